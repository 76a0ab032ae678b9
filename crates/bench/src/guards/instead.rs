//! The benchmark `instead`, which compares echoes through Corelane and through its alternatives.

use corelane::Orb;

use crate::Failure;
use crate::baseline::{BaselineTransport, MessageSizes};
use crate::harness::{ComparedQuantity, FigureLabel, Group, Progress, Variant};
use crate::idle::IdleStateLock;
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, target};
use crate::orb::client_orb;
use crate::peer::rpc::{Alternative, BuiltAlternative};
use crate::report::Report;
use crate::testbed::{Baseline, CorelaneServer, baselines, report_missing_spin, several_cores};
use crate::workload::{message_sizes, run_length};

const BENCH: &str = "instead";

const DEFAULT_OPERATIONS: [MeasuredOperation; 3] =
    [MeasuredOperation::Octet, MeasuredOperation::Octets(64 << 10), MeasuredOperation::Octets(1 << 20)];

const TRANSPORTS: [BaselineTransport; 2] = [BaselineTransport::Tcp, BaselineTransport::SharedMemory];

/// Compares Corelane with the alternatives over TCP and over shared memory. First measures with the
/// cores' idle states as the system has them and then, if the system permits it, without idle
/// states.
pub(crate) fn instead(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let mut alternatives = Vec::new();
    for kind in Alternative::ALL {
        progress.show(&format!("{BENCH}: building {}'s program, at first for minutes", kind.name()));
        let built = match (kind, options.without_peers) {
            (_, true) => Err(Failure::new("left out by --without-peers")),
            (Alternative::Iceoryx2Polling, false) if !several_cores(&options.placement) => {
                Err(Failure::new("polling: client and server share a core; name two with --cores A,B"))
            }
            (_, false) => BuiltAlternative::build(kind, &options.peers_folder),
        };
        progress.clear();
        alternatives.extend(report.or_report_missing(BENCH, kind.name(), built)?.map(|built| (kind, built)));
    }
    report_missing_spin(BENCH, BaselineTransport::SharedMemory, options, report)?;
    let orb = client_orb(0)?;
    let operations = options.operations_or(&DEFAULT_OPERATIONS).into_iter();
    let sizes = operations.map(|operation| Ok((operation, message_sizes(&orb, operation, options)?)));
    let sizes: Vec<(MeasuredOperation, MessageSizes)> = sizes.collect::<Result<_, Failure>>()?;
    for holds_idle in [false, true] {
        let awake = if holds_idle { IdleStateLock::hold() } else { None };
        if holds_idle && awake.is_none() {
            report.add_missing(BENCH, "Corelane", "without idle states: /dev/cpu_dma_latency may not be written")?;
            continue;
        }
        let idle = if holds_idle { "without idle states" } else { "idle states as they come" };
        for transport in TRANSPORTS {
            for &(operation, sizes) in &sizes {
                let title = format!("{BENCH} {operation} over {}, {idle}", transport.name());
                let scene = Echo { transport, operation, sizes, idle }.scene(&orb, &alternatives, options, report)?;
                let group = Group { title, compare: ComparedQuantity::Median, variants: scene.variants };
                report.measure(group, &run_length(options.run_length, sizes), &options.placement, progress)?;
            }
        }
    }
    Ok(())
}

struct Scene {
    variants: Vec<Variant>,
    _floors: Vec<Baseline>,
    _servers: Vec<CorelaneServer>,
}

struct Echo {
    transport: BaselineTransport,
    operation: MeasuredOperation,
    sizes: MessageSizes,
    /// Words for the label: whether the cores' idle states are used.
    idle: &'static str,
}

impl Echo {
    fn scene(
        &self,
        orb: &Orb,
        alternatives: &[(Alternative, BuiltAlternative)],
        options: &BenchOptions,
        report: &mut Report<'_>,
    ) -> Result<Scene, Failure> {
        let &Echo { transport, operation, sizes, idle } = self;
        let label = |peer: &'static str, config: &str| FigureLabel {
            bench: BENCH,
            peer,
            transport: transport.name(),
            op: operation.to_string(),
            config: format!("{config}, {idle}"),
            axis_point: None,
        };
        let floors = baselines(transport, options)?;
        let mut variants = Vec::new();
        for floor in &floors {
            if let Some(mut variant) = floor.variant(BENCH, operation, sizes)? {
                variant.label = label("floor", &variant.label.config);
                variants.push(variant);
            }
        }
        // Every variant is compared with the first baseline, and Corelane's variants also with the
        // alternatives.
        let mut against = vec![0];
        for (kind, built) in alternatives.iter().filter(|(kind, _)| kind.transport() == transport) {
            let calls = built.calls(operation, &options.placement);
            if let Some(calls) = report.or_report_missing(BENCH, kind.name(), calls)? {
                against.push(variants.len());
                let label = label(kind.name(), kind.config());
                variants.push(Variant { label, subject: Box::new(calls), against: vec![0] });
            }
        }
        let servers = CorelaneServer::start(transport, options)?;
        for server in &servers {
            let target = target(orb, &server.reference)?;
            let subject = Box::new(StubCalls { target, operation, server: server.server.pid() });
            variants.push(Variant { label: label("Corelane", &server.config()), subject, against: against.clone() });
        }
        Ok(Scene { variants, _floors: floors, _servers: servers })
    }
}
