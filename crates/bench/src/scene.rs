//! Everything that is called over one transport, and what is compared with what: bare sockets or memory, other ORBs, Corelane.

use corelane::{CallPolicies, Orb, Reference, SyncScope};
use corelane_sys::thread;

use crate::Failure;
use crate::floor::{Carrier, Copies, Exchange, FloorClient, OnewayFlood, Sizes, Waiting, address_of};
use crate::harness::{Label, Subject, Variant};
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::Architecture;
use crate::orb::client::{Calls, target};
use crate::orb::server::free_address;
use crate::peer::{self, Invocation, Kind, Peer, Threads};
use crate::placement::{Cores, Placement};
use crate::report::Report;
use crate::server::{start_echo, start_floor};
use crate::service::Service;

/// From this size of messages on, copying is what an exchange through memory takes.
const LARGE: usize = 4096;

/// A floor server and where it listens.
pub(crate) struct Floor {
    carrier: Carrier,
    waiting: Waiting,
    server: Service,
    address: String,
}

impl Floor {
    pub(crate) fn start(carrier: Carrier, waiting: Waiting, options: &Options) -> Result<Self, Failure> {
        let (server, address) = start_floor(carrier, waiting, &options.placement)?;
        Ok(Floor { carrier, waiting, server, address })
    }

    fn config(&self) -> String {
        match (self.waiting, self.carrier) {
            (Waiting::Blocking, Carrier::SharedMemory) => "futex".to_owned(),
            (Waiting::Blocking, _) => "blocking".to_owned(),
            (Waiting::Looking, _) => "spin".to_owned(),
            (Waiting::Epoll(threads), _) => format!("epoll, {threads} threads"),
        }
    }

    /// Calls of messages of these sizes; none if this server is not made for them.
    pub(crate) fn variant(
        &self,
        bench: &'static str,
        operation: Operation,
        sizes: Sizes,
    ) -> Result<Option<Variant>, Failure> {
        let drains = self.waiting == Waiting::Blocking && self.carrier != Carrier::SharedMemory;
        if operation.is_oneway() && !drains {
            return Ok(None);
        }
        let client = FloorClient::connect(&address_of(&self.address)?, sizes)?;
        let server = Some(self.server.pid());
        let subject: Box<dyn Subject + Send> = match operation.is_oneway() {
            true => Box::new(OnewayFlood { client, server }),
            false => Box::new(Exchange { client, server }),
        };
        let label = Label {
            bench,
            peer: "floor",
            transport: self.carrier.name(),
            op: operation.to_string(),
            config: self.config(),
            along: None,
        };
        Ok(Some(Variant { label, subject, against: Vec::new() }))
    }
}

/// The floors of a transport. The first is the baseline of all that has no other.
pub(crate) fn floors(carrier: Carrier, options: &Options) -> Result<Vec<Floor>, Failure> {
    let mut ways = match carrier {
        Carrier::Tcp | Carrier::Unix => vec![(carrier, Waiting::Blocking), (carrier, Waiting::Epoll(options.threads))],
        Carrier::SharedMemory => vec![(carrier, Waiting::Blocking)],
    };
    // With one core, whoever looks keeps the other side from running.
    if carrier == Carrier::SharedMemory && several_cores(&options.placement) {
        ways.push((carrier, Waiting::Looking));
    }
    ways.into_iter().map(|(carrier, waiting)| Floor::start(carrier, waiting, options)).collect()
}

/// Says that nobody looks where one core is for both sides.
pub(crate) fn no_spin(
    bench: &str,
    carrier: Carrier,
    options: &Options,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    if carrier != Carrier::SharedMemory || several_cores(&options.placement) {
        return Ok(());
    }
    report.missing(bench, "floor", "spin over shm: client and server share a core; name two with --cores A,B")
}

/// Whether both sides can run at the same time.
fn several_cores(placement: &Placement) -> bool {
    match placement.cores {
        Cores::One(_) => false,
        Cores::Two(client, server) => client != server,
        Cores::Any => thread::affinity(None).is_ok_and(|cores| cores.iter().nth(1).is_some()),
    }
}

/// A Corelane server.
pub(crate) struct Corelane {
    carrier: Carrier,
    architecture: Architecture,
    pub(crate) server: Service,
    pub(crate) reference: String,
}

impl Corelane {
    /// As labels say it.
    pub(crate) fn config(&self) -> String {
        self.architecture.config()
    }

    /// One for each architecture.
    pub(crate) fn start(carrier: Carrier, options: &Options) -> Result<Vec<Self>, Failure> {
        let architectures = [Architecture::PerConnection, Architecture::LeaderFollowers(options.threads)];
        architectures.into_iter().map(|architecture| Corelane::one(carrier, architecture, options)).collect()
    }

    pub(crate) fn one(carrier: Carrier, architecture: Architecture, options: &Options) -> Result<Self, Failure> {
        let (server, reference) = start_echo(architecture, &free_address(carrier), &options.placement)?;
        Ok(Corelane { carrier, architecture, server, reference })
    }
}

/// Another ORB's server.
pub(crate) struct Other {
    pub(crate) peer: Peer,
    carrier: Carrier,
    config: &'static str,
    server: Service,
    reference: String,
}

impl Other {
    pub(crate) fn start(
        peer: &Peer,
        carrier: Carrier,
        threads: Threads,
        config: &'static str,
        options: &Options,
    ) -> Result<Self, Failure> {
        let (server, reference) = peer.serve(carrier, threads, &options.placement)?;
        Ok(Other { peer: peer.clone(), carrier, config, server, reference })
    }

    fn client(&self, operation: Operation, how: Invocation, options: &Options) -> Result<peer::Calls, Failure> {
        self.peer.client(&self.reference, operation, self.server.pid(), how, &options.placement)
    }
}

/// What other ORBs have in place of a transport that is Corelane's own.
pub(crate) fn carrier_of_others(carrier: Carrier) -> Carrier {
    match carrier {
        Carrier::Tcp => Carrier::Tcp,
        Carrier::Unix | Carrier::SharedMemory => Carrier::Unix,
    }
}

/// Everything that is called over one transport. Beside shared memory stand Unix sockets: bare ones, Corelane's, and those of others.
pub(crate) struct Scene {
    bench: &'static str,
    carrier: Carrier,
    floors: Vec<Floor>,
    others: Vec<Other>,
}

/// The variants of one operation, and their servers.
pub(crate) struct Cast {
    pub(crate) variants: Vec<Variant>,
    pub(crate) servers: Vec<Corelane>,
    /// Of the first Corelane server: its place among the variants, which the others follow.
    pub(crate) first: usize,
    /// Of omniORB's first server.
    pub(crate) omniorb: Option<usize>,
}

impl Scene {
    pub(crate) fn start(
        bench: &'static str,
        carrier: Carrier,
        others: Vec<Other>,
        options: &Options,
    ) -> Result<Self, Failure> {
        let mut floors = floors(carrier, options)?;
        if carrier == Carrier::SharedMemory {
            floors.push(Floor::start(Carrier::Unix, Waiting::Blocking, options)?);
        }
        Ok(Scene { bench, carrier, floors, others })
    }

    /// One group: floors first, then the others, then Corelane, whose servers are new ones: a flood of oneways moves its connection to
    /// other threads for good.
    pub(crate) fn cast(
        &self,
        orb: &Orb,
        operation: Operation,
        sizes: Sizes,
        options: &Options,
        report: &mut Report<'_>,
    ) -> Result<Cast, Failure> {
        let mut variants = Vec::new();
        let mut floors = Vec::new();
        for floor in &self.floors {
            if let Some(variant) = floor.variant(self.bench, operation, sizes)? {
                floors.push((floor.carrier, floor.waiting, variants.len()));
                variants.push(variant);
            }
        }
        if self.carrier == Carrier::SharedMemory && sizes.request.max(sizes.reply) >= LARGE {
            let label = self.label("floor", "none", operation, "memcpy, in and out".to_owned());
            variants.push(Variant { label, subject: Box::new(Copies::new(sizes)), against: vec![0] });
        }
        let floor_of = |carrier, wanted: fn(Waiting) -> bool| {
            let mut of_carrier = floors.iter().filter(|(its, ..)| *its == carrier);
            of_carrier.clone().find(|(_, waiting, _)| wanted(*waiting)).or_else(|| of_carrier.next())
        };
        let blocking = |carrier| floor_of(carrier, |waiting| waiting == Waiting::Blocking).map_or(0, |found| found.2);
        let mut omniorb = None;
        for other in &self.others {
            let kind = other.peer.kind();
            let calls = other.client(operation, Invocation::Stubs, options);
            let Some(calls) = report.found(self.bench, kind.name(), calls)? else { continue };
            if kind == Kind::OmniOrb {
                omniorb.get_or_insert(variants.len());
            }
            let label = self.label(kind.name(), other.carrier.name(), operation, other.config.to_owned());
            let against = vec![blocking(other.carrier)];
            variants.push(Variant { label, subject: Box::new(calls), against });
        }
        let mut servers = Corelane::start(self.carrier, options)?;
        if self.carrier == Carrier::SharedMemory {
            servers.push(Corelane::one(Carrier::Unix, Architecture::PerConnection, options)?);
        }
        let first = variants.len();
        for server in &servers {
            let epoll = || floor_of(server.carrier, |waiting| matches!(waiting, Waiting::Epoll(_)));
            let mut against = match server.architecture {
                Architecture::PerConnection => vec![blocking(server.carrier)],
                _ => vec![epoll().map_or(0, |found| found.2)],
            };
            if server.architecture == Architecture::PerConnection {
                let looking = floors
                    .iter()
                    .find(|(carrier, waiting, _)| *carrier == server.carrier && *waiting == Waiting::Looking);
                against.extend(looking.map(|found| found.2));
            }
            against.extend(omniorb);
            // Beside shared memory the last server is the one over Unix sockets.
            if server.carrier == Carrier::SharedMemory {
                against.push(first + servers.len() - 1);
            }
            let target = target(orb, &server.reference)?;
            let calls = Calls { target, operation, server: server.server.pid() };
            let label = self.label("Corelane", server.carrier.name(), operation, server.architecture.config());
            variants.push(Variant { label, subject: Box::new(calls), against });
        }
        if operation.is_oneway() {
            // The same servers again, with requests that wait on their connection for others.
            for (server, plain) in servers.iter().zip(first..) {
                let policies = CallPolicies { sync_scope: Some(SyncScope::None), ..CallPolicies::NONE };
                let target = target(orb, &server.reference)?.with_policies(policies);
                let calls = Calls { target, operation, server: server.server.pid() };
                let config = format!("{}, batches", server.architecture.config());
                let label = self.label("Corelane", server.carrier.name(), operation, config);
                variants.push(Variant {
                    label,
                    subject: Box::new(calls),
                    against: vec![blocking(server.carrier), plain],
                });
            }
        }
        if self.carrier == Carrier::SharedMemory {
            // Two transports in one group: the text of the table has to tell them apart.
            let named = variants.iter_mut().filter(|variant| variant.label.transport != "none");
            named.for_each(|variant| name_transport(&mut variant.label));
        }
        Ok(Cast { variants, servers, first, omniorb })
    }

    /// Calls of omniORB's first server by dynamic invocation.
    pub(crate) fn dynamic(&self, operation: Operation, options: &Options) -> Option<Result<peer::Calls, Failure>> {
        let omniorb = self.others.iter().find(|other| other.peer.kind() == Kind::OmniOrb)?;
        Some(omniorb.client(operation, Invocation::Dynamic, options))
    }

    fn label(&self, peer: &'static str, transport: &'static str, operation: Operation, config: String) -> Label {
        Label { bench: self.bench, peer, transport, op: operation.to_string(), config, along: None }
    }
}

/// Puts the transport in front of a label's configuration.
pub(crate) fn name_transport(label: &mut Label) {
    label.config = format!("{}, {}", label.transport, label.config);
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_sys::thread::Scheduling;
    use std::ffi::OsString;

    /// It is built, and that is all.
    #[test]
    fn a_peer_that_does_not_start_is_missing_with_its_reason() {
        let options = Options::parse(std::iter::empty::<OsString>()).unwrap();
        let peer = Peer::built(Kind::OmniOrb, "/nonexistent");
        let mut text = Vec::new();
        let mut report = Report::new(&mut text, None).unwrap();
        let started = Other::start(&peer, Carrier::Tcp, Threads::Usual, "as it comes", &options);
        assert!(report.found("call", "omniORB", started).unwrap().is_none());
        assert!(report.is_incomplete());
        drop(report);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("NOT MEASURED: call, omniORB: ") && text.contains("cannot be started"), "{text}");
    }

    #[test]
    fn nobody_looking_on_one_core_is_recorded() {
        let mut text = Vec::new();
        let mut report = Report::new(&mut text, None).unwrap();
        let mut options = Options::parse(std::iter::empty::<OsString>()).unwrap();
        for (cores, missing) in [(Cores::Two(0, 1), false), (Cores::One(0), true)] {
            options.placement.cores = cores;
            no_spin("call", Carrier::SharedMemory, &options, &mut report).unwrap();
            no_spin("call", Carrier::Tcp, &options, &mut report).unwrap();
            assert_eq!(report.is_incomplete(), missing, "{cores}");
        }
        drop(report);
        assert_eq!(String::from_utf8(text).unwrap().matches("NOT MEASURED: call, floor: spin").count(), 1);
    }

    #[test]
    fn sides_on_one_core_never_look() {
        let placed = |cores| several_cores(&Placement { cores, scheduling: Some(Scheduling::Other) });
        assert_eq!((placed(Cores::One(0)), placed(Cores::Two(1, 1)), placed(Cores::Two(0, 1))), (false, false, true));
    }
}
