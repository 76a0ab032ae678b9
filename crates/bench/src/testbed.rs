//! Servers that benchmarks call over one transport: bare sockets or memory, other ORBs, Corelane.

use corelane::{CallPolicies, Orb, SyncScope};
use corelane_sys::thread;

use crate::Failure;
use crate::address::free_address;
use crate::baseline::{
    BaselineClient, BaselineTransport, MemoryCopies, MessageSizes, OnewayFlood, StreamSpin, TwoWayExchange,
    WaitStrategy, parse_address,
};
use crate::harness::{FigureLabel, MeasuredSubject, Variant};
use crate::launch::{start_baseline, start_echo, start_non_polling_echo};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, target};
use crate::orb::{ServerArchitecture, non_polling_client_orb};
use crate::peer::{self, BuiltPeer, PeerInvocation, PeerKind, PeerThreads};
use crate::placement::{CoreChoice, Placement, permits_fixed_priorities};
use crate::report::Report;
use crate::service::RunningProgram;

/// Message size in bytes from which copying dominates the time of an exchange through memory.
const LARGE: usize = 4096;

pub(crate) struct Baseline {
    transport: BaselineTransport,
    waiting: WaitStrategy,
    server: RunningProgram,
    address: String,
}

impl Baseline {
    pub(crate) fn start(
        transport: BaselineTransport,
        waiting: WaitStrategy,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let (server, address) = start_baseline(transport, waiting, &options.placement)?;
        Ok(Baseline { transport, waiting, server, address })
    }

    fn config(&self) -> String {
        match (self.waiting, self.transport) {
            (WaitStrategy::Blocking, BaselineTransport::SharedMemory) => "futex".to_owned(),
            (WaitStrategy::Blocking, _) => "blocking".to_owned(),
            (WaitStrategy::SpinThenSleep, _) => "spin".to_owned(),
            (WaitStrategy::Pipelined, _) => "spin, parts".to_owned(),
            (WaitStrategy::Stream(StreamSpin::Never), _) => "stream".to_owned(),
            (WaitStrategy::Stream(StreamSpin::Adaptive), _) => "stream, spin".to_owned(),
            (WaitStrategy::Epoll(threads), _) => format!("epoll, {threads} threads"),
        }
    }

    pub(crate) fn variant(
        &self,
        bench: &'static str,
        operation: MeasuredOperation,
        sizes: MessageSizes,
    ) -> Result<Option<Variant>, Failure> {
        let drains = self.waiting == WaitStrategy::Blocking && self.transport != BaselineTransport::SharedMemory;
        if operation.is_oneway() && !drains {
            return Ok(None);
        }
        let client = BaselineClient::connect(&parse_address(&self.address)?, sizes)?;
        let server = Some(self.server.pid());
        let subject: Box<dyn MeasuredSubject + Send> = match operation.is_oneway() {
            true => Box::new(OnewayFlood { client, server }),
            false => Box::new(TwoWayExchange { client, server }),
        };
        let label = FigureLabel {
            bench,
            peer: if matches!(self.waiting, WaitStrategy::Stream(_)) { "net" } else { "floor" },
            transport: self.transport.name(),
            op: operation.to_string(),
            config: self.config(),
            axis_point: None,
        };
        Ok(Some(Variant { label, subject, against: Vec::new() }))
    }
}

pub(crate) fn baselines(transport: BaselineTransport, options: &BenchOptions) -> Result<Vec<Baseline>, Failure> {
    let mut ways = match transport {
        BaselineTransport::Tcp | BaselineTransport::Unix => {
            vec![(transport, WaitStrategy::Blocking), (transport, WaitStrategy::Epoll(options.threads))]
        }
        BaselineTransport::SharedMemory => vec![(transport, WaitStrategy::Blocking)],
    };
    // On one core, a spinning side keeps the other side from running.
    if several_cores(&options.placement) {
        ways.push((transport, WaitStrategy::SpinThenSleep));
    }
    ways.into_iter().map(|(transport, waiting)| Baseline::start(transport, waiting, options)).collect()
}

pub(crate) fn baselines_and_streams(
    transport: BaselineTransport,
    options: &BenchOptions,
) -> Result<Vec<Baseline>, Failure> {
    let mut all = baselines(transport, options)?;
    let has_parts = transport == BaselineTransport::SharedMemory && several_cores(&options.placement);
    let streams = [StreamSpin::Never, StreamSpin::Adaptive].map(WaitStrategy::Stream);
    for waiting in has_parts.then_some(WaitStrategy::Pipelined).into_iter().chain(streams) {
        all.push(Baseline::start(transport, waiting, options)?);
    }
    Ok(all)
}

pub(crate) fn report_missing_spin(
    bench: &str,
    transport: BaselineTransport,
    options: &BenchOptions,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    if transport != BaselineTransport::SharedMemory || several_cores(&options.placement) {
        return Ok(());
    }
    report.add_missing(bench, "floor", "spin over shm: client and server share a core; name two with --cores A,B")
}

pub(crate) fn require_fixed_priorities(bench: &str, report: &mut Report<'_>) -> Result<bool, Failure> {
    if !permits_fixed_priorities() {
        report.add_missing(
            bench,
            "Corelane",
            "fixed priorities are not permitted here, so there is no high priority",
        )?;
    }
    Ok(permits_fixed_priorities())
}

pub(crate) fn several_cores(placement: &Placement) -> bool {
    match placement.cores {
        CoreChoice::Shared(_) => false,
        CoreChoice::Separate(client, server) => client != server,
        CoreChoice::Any => thread::affinity(None).is_ok_and(|cores| cores.iter().nth(1).is_some()),
    }
}

pub(crate) const NEVER_POLLS: &str = ", never polls";

pub(crate) struct CorelaneServer {
    transport: BaselineTransport,
    architecture: ServerArchitecture,
    /// The ORB of callers that never poll; `None` if callers and server may poll.
    sleeping: Option<Orb>,
    pub(crate) server: RunningProgram,
    pub(crate) reference: String,
}

impl CorelaneServer {
    pub(crate) fn config(&self) -> String {
        self.architecture.config() + if self.sleeping.is_some() { NEVER_POLLS } else { "" }
    }

    pub(crate) fn start(transport: BaselineTransport, options: &BenchOptions) -> Result<Vec<Self>, Failure> {
        let architectures = [ServerArchitecture::PerConnection, ServerArchitecture::LeaderFollowers(options.threads)];
        architectures
            .into_iter()
            .map(|architecture| CorelaneServer::start_one(transport, architecture, options))
            .collect()
    }

    pub(crate) fn start_one(
        transport: BaselineTransport,
        architecture: ServerArchitecture,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let (server, reference) = start_echo(architecture, &free_address(transport), &options.placement)?;
        Ok(CorelaneServer { transport, architecture, sleeping: None, server, reference })
    }

    fn sleeping(
        transport: BaselineTransport,
        architecture: ServerArchitecture,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let (server, reference) = start_non_polling_echo(architecture, &free_address(transport), &options.placement)?;
        Ok(CorelaneServer { transport, architecture, sleeping: Some(non_polling_client_orb(0)?), server, reference })
    }
}

pub(crate) struct PeerServer {
    pub(crate) peer: BuiltPeer,
    transport: BaselineTransport,
    config: &'static str,
    server: RunningProgram,
    reference: String,
}

impl PeerServer {
    pub(crate) fn start(
        peer: &BuiltPeer,
        transport: BaselineTransport,
        threads: PeerThreads,
        config: &'static str,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let (server, reference) = peer.serve(transport, threads, &options.placement)?;
        Ok(PeerServer { peer: peer.clone(), transport, config, server, reference })
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

pub(crate) fn transport_of_other_orbs(transport: BaselineTransport) -> BaselineTransport {
    match transport {
        BaselineTransport::Tcp => BaselineTransport::Tcp,
        BaselineTransport::Unix | BaselineTransport::SharedMemory => BaselineTransport::Unix,
    }
}

pub(crate) struct Testbed {
    bench: &'static str,
    transport: BaselineTransport,
    floors: Vec<Baseline>,
    others: Vec<PeerServer>,
}

pub(crate) struct VariantGroup {
    pub(crate) variants: Vec<Variant>,
    pub(crate) servers: Vec<CorelaneServer>,
    /// Index of the first Corelane server's variant, before the variants of the other Corelane
    /// servers.
    pub(crate) first: usize,
    pub(crate) omniorb: Option<usize>,
}

impl Testbed {
    pub(crate) fn start(
        bench: &'static str,
        transport: BaselineTransport,
        others: Vec<PeerServer>,
        options: &BenchOptions,
    ) -> Result<Self, Failure> {
        let mut floors = baselines(transport, options)?;
        if transport == BaselineTransport::SharedMemory {
            floors.push(Baseline::start(BaselineTransport::Unix, WaitStrategy::Blocking, options)?);
        }
        Ok(Testbed { bench, transport, floors, others })
    }

    /// Returns the variants of a group. Starts new Corelane servers for each group, because a flood
    /// of oneways moves its connection to other threads permanently.
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
                floors.push((floor.transport, floor.waiting, variants.len()));
                variants.push(variant);
            }
        }
        if self.transport == BaselineTransport::SharedMemory && sizes.request.max(sizes.reply) >= LARGE {
            let label = self.label("floor", "none", operation, "memcpy, in and out".to_owned());
            variants.push(Variant { label, subject: Box::new(MemoryCopies::new(sizes)), against: vec![0] });
        }
        let floor_of = |transport, wanted: fn(WaitStrategy) -> bool| {
            let mut of_carrier = floors.iter().filter(|(its, ..)| *its == transport);
            of_carrier.clone().find(|(_, waiting, _)| wanted(*waiting)).or_else(|| of_carrier.next())
        };
        let blocking =
            |transport| floor_of(transport, |waiting| waiting == WaitStrategy::Blocking).map_or(0, |found| found.2);
        let mut omniorb = None;
        for other in &self.others {
            let kind = other.peer.kind();
            let calls = other.client(operation.copied(), PeerInvocation::Stubs, options);
            let Some(calls) = report.or_report_missing(self.bench, kind.name(), calls)? else { continue };
            if kind == PeerKind::OmniOrb {
                omniorb.get_or_insert(variants.len());
            }
            let label = self.label(kind.name(), other.transport.name(), operation, other.config.to_owned());
            let against = vec![blocking(other.transport)];
            variants.push(Variant { label, subject: Box::new(calls), against });
        }
        let mut servers = CorelaneServer::start(self.transport, options)?;
        if self.transport == BaselineTransport::SharedMemory {
            servers.push(CorelaneServer::start_one(
                BaselineTransport::Unix,
                ServerArchitecture::PerConnection,
                options,
            )?);
        }
        let polling = servers.len();
        if self.bench == "call" && self.transport != BaselineTransport::SharedMemory && !operation.is_oneway() {
            for index in 0..polling {
                servers.push(CorelaneServer::sleeping(self.transport, servers[index].architecture, options)?);
            }
        }
        let first = variants.len();
        for (index, server) in servers.iter().enumerate() {
            let epoll = || floor_of(server.transport, |waiting| matches!(waiting, WaitStrategy::Epoll(_)));
            let mut against = match server.architecture {
                ServerArchitecture::PerConnection => vec![blocking(server.transport)],
                _ => vec![epoll().map_or(0, |found| found.2)],
            };
            let polls_sockets = server.transport != BaselineTransport::SharedMemory && server.sleeping.is_none();
            if server.architecture == ServerArchitecture::PerConnection || polls_sockets {
                let looking = floors.iter().find(|(transport, waiting, _)| {
                    *transport == server.transport && *waiting == WaitStrategy::SpinThenSleep
                });
                against.extend(looking.map(|found| found.2));
            }
            against.extend(omniorb);
            if index + polling < servers.len() {
                against.push(first + index + polling);
            }
            // The last server is Corelane's server over Unix sockets, with which shared memory is
            // compared.
            if server.transport == BaselineTransport::SharedMemory {
                against.push(first + servers.len() - 1);
            }
            let target = target(server.sleeping.as_ref().unwrap_or(orb), &server.reference)?;
            let calls = StubCalls { target, operation, server: server.server.pid() };
            let label = self.label("Corelane", server.transport.name(), operation, server.config());
            variants.push(Variant { label, subject: Box::new(calls), against });
        }
        if operation.is_oneway() {
            for (server, plain) in servers.iter().zip(first..) {
                let policies = CallPolicies { sync_scope: Some(SyncScope::None), ..CallPolicies::NONE };
                let target = target(orb, &server.reference)?.with_policies(policies);
                let calls = StubCalls { target, operation, server: server.server.pid() };
                let config = format!("{}, batches", server.architecture.config());
                let label = self.label("Corelane", server.transport.name(), operation, config);
                variants.push(Variant {
                    label,
                    subject: Box::new(calls),
                    against: vec![blocking(server.transport), plain],
                });
            }
        }
        if self.transport == BaselineTransport::SharedMemory {
            let named = variants.iter_mut().filter(|variant| variant.label.transport != "none");
            named.for_each(|variant| prefix_transport(&mut variant.label));
        }
        Ok(VariantGroup { variants, servers, first, omniorb })
    }

    pub(crate) fn dynamic(
        &self,
        operation: MeasuredOperation,
        options: &BenchOptions,
    ) -> Option<Result<peer::PeerCalls, Failure>> {
        let omniorb = self.others.iter().find(|other| other.peer.kind() == PeerKind::OmniOrb)?;
        Some(omniorb.client(operation, PeerInvocation::DynamicCalls, options))
    }

    fn label(
        &self,
        peer: &'static str,
        transport: &'static str,
        operation: MeasuredOperation,
        config: String,
    ) -> FigureLabel {
        FigureLabel { bench: self.bench, peer, transport, op: operation.to_string(), config, axis_point: None }
    }
}

pub(crate) fn prefix_transport(label: &mut FigureLabel) {
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
        let started = PeerServer::start(&peer, BaselineTransport::Tcp, PeerThreads::Default, "as it comes", &options);
        assert!(report.or_report_missing("call", "omniORB", started).unwrap().is_none());
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
        for (cores, missing) in [(CoreChoice::Separate(0, 1), false), (CoreChoice::Shared(0), true)] {
            options.placement.cores = cores;
            report_missing_spin("call", BaselineTransport::SharedMemory, &options, &mut report).unwrap();
            report_missing_spin("call", BaselineTransport::Tcp, &options, &mut report).unwrap();
            assert_eq!(report.is_incomplete(), missing, "{cores}");
        }
        drop(report);
        assert_eq!(String::from_utf8(text).unwrap().matches("NOT MEASURED: call, floor: spin").count(), 1);
    }

    #[test]
    fn baselines_on_one_core_do_not_spin() {
        let placed = |cores| several_cores(&Placement { cores, scheduling: Some(Scheduling::Other) });
        assert_eq!(
            (placed(CoreChoice::Shared(0)), placed(CoreChoice::Separate(1, 1)), placed(CoreChoice::Separate(0, 1))),
            (false, false, true)
        );
    }
}
