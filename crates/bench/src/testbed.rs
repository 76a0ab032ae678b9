//! Servers that benchmarks call over one transport: bare sockets or memory, other ORBs, Corelane.

use corelane::{CallPolicies, Orb, SyncScope};
use corelane_sys::thread;

use crate::Failure;
use crate::address::free_address;
use crate::baseline::{
    BaselineClient, BaselineTransport, Copies, Exchange, MessageSizes, OnewayFlood, Spinning, StreamSpin, address_of,
};
use crate::harness::{FigureLabel, Subject, Variant};
use crate::launch::{start_echo, start_floor, start_sleeping_echo};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, target};
use crate::orb::{ServerArchitecture, sleeping_client_orb};
use crate::peer::{self, BuiltPeer, PeerInvocation, PeerKind, Threads};
use crate::placement::{CoreChoice, Placement, permits_fixed_priorities};
use crate::report::Report;
use crate::service::RunningProgram;

/// Message size in bytes from which copying dominates the time of an exchange through memory.
const LARGE: usize = 4096;

/// A baseline server and its address.
pub(crate) struct Baseline {
    carrier: BaselineTransport,
    waiting: Spinning,
    server: RunningProgram,
    address: String,
}

impl Baseline {
    pub(crate) fn start(
        carrier: BaselineTransport,
        waiting: Spinning,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let (server, address) = start_floor(carrier, waiting, &options.placement)?;
        Ok(Baseline { carrier, waiting, server, address })
    }

    fn config(&self) -> String {
        match (self.waiting, self.carrier) {
            (Spinning::Blocking, BaselineTransport::SharedMemory) => "futex".to_owned(),
            (Spinning::Blocking, _) => "blocking".to_owned(),
            (Spinning::Looking, _) => "spin".to_owned(),
            (Spinning::Parts, _) => "spin, parts".to_owned(),
            (Spinning::Stream(StreamSpin::Never), _) => "stream".to_owned(),
            (Spinning::Stream(StreamSpin::Adaptive), _) => "stream, spin".to_owned(),
            (Spinning::Epoll(threads), _) => format!("epoll, {threads} threads"),
        }
    }

    /// Returns a variant with messages of these sizes, or `None` if this server does not support
    /// the operation.
    pub(crate) fn variant(
        &self,
        bench: &'static str,
        operation: MeasuredOperation,
        sizes: MessageSizes,
    ) -> Result<Option<Variant>, Failure> {
        let drains = self.waiting == Spinning::Blocking && self.carrier != BaselineTransport::SharedMemory;
        if operation.is_oneway() && !drains {
            return Ok(None);
        }
        let client = BaselineClient::connect(&address_of(&self.address)?, sizes)?;
        let server = Some(self.server.pid());
        let subject: Box<dyn Subject + Send> = match operation.is_oneway() {
            true => Box::new(OnewayFlood { client, server }),
            false => Box::new(Exchange { client, server }),
        };
        let label = FigureLabel {
            bench,
            peer: if matches!(self.waiting, Spinning::Stream(_)) { "net" } else { "floor" },
            transport: self.carrier.name(),
            op: operation.to_string(),
            config: self.config(),
            along: None,
        };
        Ok(Some(Variant { label, subject, against: Vec::new() }))
    }
}

/// Starts the baselines of a transport. The first one is the default baseline of all variants.
pub(crate) fn baselines(carrier: BaselineTransport, options: &BenchOptions) -> Result<Vec<Baseline>, Failure> {
    let mut ways = match carrier {
        BaselineTransport::Tcp | BaselineTransport::Unix => {
            vec![(carrier, Spinning::Blocking), (carrier, Spinning::Epoll(options.threads))]
        }
        BaselineTransport::SharedMemory => vec![(carrier, Spinning::Blocking)],
    };
    // On one core, a spinning side would keep the other side from running.
    if several_cores(&options.placement) {
        ways.push((carrier, Spinning::Looking));
    }
    ways.into_iter().map(|(carrier, waiting)| Baseline::start(carrier, waiting, options)).collect()
}

/// Starts the baselines of a transport, and those over `corelane_net` streams and with pipelined
/// copying.
pub(crate) fn baselines_and_streams(
    carrier: BaselineTransport,
    options: &BenchOptions,
) -> Result<Vec<Baseline>, Failure> {
    let mut all = baselines(carrier, options)?;
    let has_parts = carrier == BaselineTransport::SharedMemory && several_cores(&options.placement);
    let streams = [StreamSpin::Never, StreamSpin::Adaptive].map(Spinning::Stream);
    for waiting in has_parts.then_some(Spinning::Parts).into_iter().chain(streams) {
        all.push(Baseline::start(carrier, waiting, options)?);
    }
    Ok(all)
}

/// Reports spinning as missing if both sides share a core.
pub(crate) fn no_spin(
    bench: &str,
    carrier: BaselineTransport,
    options: &BenchOptions,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    if carrier != BaselineTransport::SharedMemory || several_cores(&options.placement) {
        return Ok(());
    }
    report.missing(bench, "floor", "spin over shm: client and server share a core; name two with --cores A,B")
}

/// Returns true if fixed priorities are permitted. Otherwise reports the benchmark as missing.
pub(crate) fn has_priorities(bench: &str, report: &mut Report<'_>) -> Result<bool, Failure> {
    if !permits_fixed_priorities() {
        report.missing(bench, "Corelane", "fixed priorities are not permitted here, so there is no high priority")?;
    }
    Ok(permits_fixed_priorities())
}

/// Returns true if both sides can run at the same time.
fn several_cores(placement: &Placement) -> bool {
    match placement.cores {
        CoreChoice::One(_) => false,
        CoreChoice::Two(client, server) => client != server,
        CoreChoice::Any => thread::affinity(None).is_ok_and(|cores| cores.iter().nth(1).is_some()),
    }
}

/// Suffix of the configurations whose threads never poll before they sleep.
pub(crate) const NEVER_POLLS: &str = ", never polls";

pub(crate) struct Corelane {
    carrier: BaselineTransport,
    architecture: ServerArchitecture,
    /// ORB of the callers if neither they nor the server poll.
    sleeping: Option<Orb>,
    pub(crate) server: RunningProgram,
    pub(crate) reference: String,
}

impl Corelane {
    /// Returns the configuration's name in labels.
    pub(crate) fn config(&self) -> String {
        self.architecture.config() + if self.sleeping.is_some() { NEVER_POLLS } else { "" }
    }

    /// Starts one server for each dispatch architecture.
    pub(crate) fn start(carrier: BaselineTransport, options: &BenchOptions) -> Result<Vec<Self>, Failure> {
        let architectures = [ServerArchitecture::PerConnection, ServerArchitecture::LeaderFollowers(options.threads)];
        architectures.into_iter().map(|architecture| Corelane::one(carrier, architecture, options)).collect()
    }

    pub(crate) fn one(
        carrier: BaselineTransport,
        architecture: ServerArchitecture,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let (server, reference) = start_echo(architecture, &free_address(carrier), &options.placement)?;
        Ok(Corelane { carrier, architecture, sleeping: None, server, reference })
    }

    /// Starts a server whose threads never poll before they sleep, and an ORB whose callers never
    /// poll.
    fn sleeping(
        carrier: BaselineTransport,
        architecture: ServerArchitecture,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let (server, reference) = start_sleeping_echo(architecture, &free_address(carrier), &options.placement)?;
        Ok(Corelane { carrier, architecture, sleeping: Some(sleeping_client_orb()?), server, reference })
    }
}

pub(crate) struct PeerServer {
    pub(crate) peer: BuiltPeer,
    carrier: BaselineTransport,
    config: &'static str,
    server: RunningProgram,
    reference: String,
}

impl PeerServer {
    pub(crate) fn start(
        peer: &BuiltPeer,
        carrier: BaselineTransport,
        threads: Threads,
        config: &'static str,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let (server, reference) = peer.serve(carrier, threads, &options.placement)?;
        Ok(PeerServer { peer: peer.clone(), carrier, config, server, reference })
    }

    fn client(
        &self,
        operation: MeasuredOperation,
        how: PeerInvocation,
        options: &BenchOptions,
    ) -> Result<peer::PeerCalls, Failure> {
        self.peer.client(&self.reference, operation, self.server.pid(), how, &options.placement)
    }
}

/// Returns the transport of other ORBs that is comparable to one of Corelane's transports.
pub(crate) fn carrier_of_others(carrier: BaselineTransport) -> BaselineTransport {
    match carrier {
        BaselineTransport::Tcp => BaselineTransport::Tcp,
        BaselineTransport::Unix | BaselineTransport::SharedMemory => BaselineTransport::Unix,
    }
}

/// The servers that benchmarks call over one transport. Shared memory is compared with Unix
/// sockets: bare ones, Corelane's and those of other ORBs.
pub(crate) struct Testbed {
    bench: &'static str,
    carrier: BaselineTransport,
    floors: Vec<Baseline>,
    others: Vec<PeerServer>,
}

/// The variants of one operation, and the Corelane servers among them.
pub(crate) struct VariantGroup {
    pub(crate) variants: Vec<Variant>,
    pub(crate) servers: Vec<Corelane>,
    /// Index of the first Corelane server's variant. Those of the other Corelane servers follow.
    pub(crate) first: usize,
    /// Index of the variant of the first omniORB server.
    pub(crate) omniorb: Option<usize>,
}

impl Testbed {
    pub(crate) fn start(
        bench: &'static str,
        carrier: BaselineTransport,
        others: Vec<PeerServer>,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let mut floors = baselines(carrier, options)?;
        if carrier == BaselineTransport::SharedMemory {
            floors.push(Baseline::start(BaselineTransport::Unix, Spinning::Blocking, options)?);
        }
        Ok(Testbed { bench, carrier, floors, others })
    }

    /// Returns the variants of an operation: baselines, other ORBs, then Corelane. Each call starts
    /// new Corelane servers, because a flood of oneways moves its connection to other threads
    /// permanently.
    pub(crate) fn variant_group(
        &self,
        orb: &Orb,
        operation: MeasuredOperation,
        sizes: MessageSizes,
        options: &BenchOptions,
        report: &mut Report<'_>,
    ) -> Result<VariantGroup, Failure> {
        let mut variants = Vec::new();
        let mut floors = Vec::new();
        for floor in &self.floors {
            if let Some(variant) = floor.variant(self.bench, operation, sizes)? {
                floors.push((floor.carrier, floor.waiting, variants.len()));
                variants.push(variant);
            }
        }
        if self.carrier == BaselineTransport::SharedMemory && sizes.request.max(sizes.reply) >= LARGE {
            let label = self.label("floor", "none", operation, "memcpy, in and out".to_owned());
            variants.push(Variant { label, subject: Box::new(Copies::new(sizes)), against: vec![0] });
        }
        let floor_of = |carrier, wanted: fn(Spinning) -> bool| {
            let mut of_carrier = floors.iter().filter(|(its, ..)| *its == carrier);
            of_carrier.clone().find(|(_, waiting, _)| wanted(*waiting)).or_else(|| of_carrier.next())
        };
        let blocking = |carrier| floor_of(carrier, |waiting| waiting == Spinning::Blocking).map_or(0, |found| found.2);
        let mut omniorb = None;
        for other in &self.others {
            let kind = other.peer.kind();
            let calls = other.client(operation, PeerInvocation::Stubs, options);
            let Some(calls) = report.found(self.bench, kind.name(), calls)? else { continue };
            if kind == PeerKind::OmniOrb {
                omniorb.get_or_insert(variants.len());
            }
            let label = self.label(kind.name(), other.carrier.name(), operation, other.config.to_owned());
            let against = vec![blocking(other.carrier)];
            variants.push(Variant { label, subject: Box::new(calls), against });
        }
        let mut servers = Corelane::start(self.carrier, options)?;
        if self.carrier == BaselineTransport::SharedMemory {
            servers.push(Corelane::one(BaselineTransport::Unix, ServerArchitecture::PerConnection, options)?);
        }
        // Each polling server has a counterpart with threads that never poll.
        let polling = servers.len();
        if self.bench == "call" && self.carrier != BaselineTransport::SharedMemory && !operation.is_oneway() {
            for index in 0..polling {
                servers.push(Corelane::sleeping(self.carrier, servers[index].architecture, options)?);
            }
        }
        let first = variants.len();
        for (index, server) in servers.iter().enumerate() {
            let epoll = || floor_of(server.carrier, |waiting| matches!(waiting, Spinning::Epoll(_)));
            let mut against = match server.architecture {
                ServerArchitecture::PerConnection => vec![blocking(server.carrier)],
                _ => vec![epoll().map_or(0, |found| found.2)],
            };
            let polls_sockets = server.carrier != BaselineTransport::SharedMemory && server.sleeping.is_none();
            if server.architecture == ServerArchitecture::PerConnection || polls_sockets {
                let looking = floors
                    .iter()
                    .find(|(carrier, waiting, _)| *carrier == server.carrier && *waiting == Spinning::Looking);
                against.extend(looking.map(|found| found.2));
            }
            against.extend(omniorb);
            if index + polling < servers.len() {
                against.push(first + index + polling);
            }
            // For shared memory, the last server is the one over Unix sockets.
            if server.carrier == BaselineTransport::SharedMemory {
                against.push(first + servers.len() - 1);
            }
            let target = target(server.sleeping.as_ref().unwrap_or(orb), &server.reference)?;
            let calls = StubCalls { target, operation, server: server.server.pid() };
            let label = self.label("Corelane", server.carrier.name(), operation, server.config());
            variants.push(Variant { label, subject: Box::new(calls), against });
        }
        if operation.is_oneway() {
            // Each server has a second variant with batches: oneways wait on their connection and
            // are sent together.
            for (server, plain) in servers.iter().zip(first..) {
                let policies = CallPolicies { sync_scope: Some(SyncScope::None), ..CallPolicies::NONE };
                let target = target(orb, &server.reference)?.with_policies(policies);
                let calls = StubCalls { target, operation, server: server.server.pid() };
                let config = format!("{}, batches", server.architecture.config());
                let label = self.label("Corelane", server.carrier.name(), operation, config);
                variants.push(Variant {
                    label,
                    subject: Box::new(calls),
                    against: vec![blocking(server.carrier), plain],
                });
            }
        }
        if self.carrier == BaselineTransport::SharedMemory {
            // A group with two transports has the transport in each configuration's name.
            let named = variants.iter_mut().filter(|variant| variant.label.transport != "none");
            named.for_each(|variant| name_transport(&mut variant.label));
        }
        Ok(VariantGroup { variants, servers, first, omniorb })
    }

    /// Returns dynamic invocation of the first omniORB server.
    pub(crate) fn dynamic(
        &self,
        operation: MeasuredOperation,
        options: &BenchOptions,
    ) -> Option<Result<peer::PeerCalls, Failure>> {
        let omniorb = self.others.iter().find(|other| other.peer.kind() == PeerKind::OmniOrb)?;
        Some(omniorb.client(operation, PeerInvocation::Dynamic, options))
    }

    fn label(
        &self,
        peer: &'static str,
        transport: &'static str,
        operation: MeasuredOperation,
        config: String,
    ) -> FigureLabel {
        FigureLabel { bench: self.bench, peer, transport, op: operation.to_string(), config, along: None }
    }
}

/// Puts the transport in front of a label's configuration.
pub(crate) fn name_transport(label: &mut FigureLabel) {
    label.config = format!("{}, {}", label.transport, label.config);
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_sys::thread::Scheduling;
    use std::ffi::OsString;

    #[test]
    fn peer_that_does_not_start_is_reported_missing_with_its_reason() {
        let options = BenchOptions::parse(std::iter::empty::<OsString>()).unwrap();
        let peer = BuiltPeer::built(PeerKind::OmniOrb, "/nonexistent");
        let mut text = Vec::new();
        let mut report = Report::new(&mut text, None).unwrap();
        let started = PeerServer::start(&peer, BaselineTransport::Tcp, Threads::Usual, "as it comes", &options);
        assert!(report.found("call", "omniORB", started).unwrap().is_none());
        assert!(report.is_incomplete());
        drop(report);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("NOT MEASURED: call, omniORB: ") && text.contains("cannot be started"), "{text}");
    }

    #[test]
    fn spinning_on_one_core_is_reported_missing() {
        let mut text = Vec::new();
        let mut report = Report::new(&mut text, None).unwrap();
        let mut options = BenchOptions::parse(std::iter::empty::<OsString>()).unwrap();
        for (cores, missing) in [(CoreChoice::Two(0, 1), false), (CoreChoice::One(0), true)] {
            options.placement.cores = cores;
            no_spin("call", BaselineTransport::SharedMemory, &options, &mut report).unwrap();
            no_spin("call", BaselineTransport::Tcp, &options, &mut report).unwrap();
            assert_eq!(report.is_incomplete(), missing, "{cores}");
        }
        drop(report);
        assert_eq!(String::from_utf8(text).unwrap().matches("NOT MEASURED: call, floor: spin").count(), 1);
    }

    #[test]
    fn baselines_on_one_core_do_not_spin() {
        let placed = |cores| several_cores(&Placement { cores, scheduling: Some(Scheduling::Other) });
        assert_eq!(
            (placed(CoreChoice::One(0)), placed(CoreChoice::Two(1, 1)), placed(CoreChoice::Two(0, 1))),
            (false, false, true)
        );
    }
}
