//! Time per call of several client threads, for each dispatch architecture and for bare sockets.

use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::{BaselineClient, BaselineTransport, WaitStrategy, parse_address};
use crate::client_group::ClientGroup;
use crate::harness::{AxisPoint, ComparedQuantity, FigureLabel, Group, Progress, Variant};
use crate::launch::{start_baseline, start_echo};
use crate::operation::MeasuredOperation;
use crate::options::{BenchOptions, Depth};
use crate::orb::client::{TwoWayCaller, target};
use crate::orb::{ServerArchitecture, client_orb};
use crate::report::Report;
use crate::workload::message_sizes;

pub(crate) fn client_threads(
    bench: &'static str,
    threads: usize,
    architectures: &[ServerArchitecture],
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let operation = MeasuredOperation::Octet;
    let mut variants = Vec::new();
    let (floor, address) = start_baseline(BaselineTransport::Tcp, WaitStrategy::Blocking, &options.placement)?;
    let orb = client_orb(threads)?;
    let sizes = message_sizes(&orb, operation, options)?;
    let clients = (0..threads).map(|_| BaselineClient::connect(&parse_address(&address)?, sizes));
    let clients: Vec<BaselineClient> = clients.collect::<Result<_, Failure>>()?;
    let named = |peer: &'static str, config: String| FigureLabel {
        peer,
        ..label(bench, config.clone(), config, "client threads", threads)
    };
    variants.push(Variant {
        label: named("floor", "blocking pairs".to_owned()),
        subject: Box::new(ClientGroup::new(clients, floor.pid())),
        against: Vec::new(),
    });
    let mut servers = Vec::new();
    for &architecture in architectures {
        let (server, reference) = start_echo(architecture, LOOPBACK, &options.placement)?;
        let callers = (0..threads).map(|_| Ok(TwoWayCaller { target: target(&orb, &reference)?, operation }));
        let callers: Vec<TwoWayCaller> = callers.collect::<Result<_, Failure>>()?;
        variants.push(Variant {
            label: named("Corelane", architecture.config()),
            subject: Box::new(ClientGroup::new(callers, server.pid())),
            against: vec![0],
        });
        servers.push(server);
    }
    let plural = if threads == 1 { "" } else { "s" };
    let title = format!("{bench}: {threads} client thread{plural}, octet; time per call over all");
    let group = Group { title, compare: ComparedQuantity::Rate, variants };
    let mut run_length = options.run_length;
    if options.depth == Depth::Quick {
        run_length.repetitions = run_length.repetitions.min(2);
    }
    report.measure(group, &run_length, &options.placement, progress).map(drop)
}

pub(crate) fn label(bench: &'static str, config: String, series: String, axis: &'static str, x: usize) -> FigureLabel {
    let axis_point = Some(AxisPoint { series, axis, x: x as u64 });
    FigureLabel { bench, peer: "Corelane", transport: "tcp", op: "octet".to_owned(), config, axis_point }
}
