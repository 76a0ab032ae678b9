//! Many client threads against each dispatch architecture, beside as many clients of bare sockets.

use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::{BaselineClient, Spinning, Transport, address_of};
use crate::client_group::ClientGroup;
use crate::harness::{AxisPoint, Compare, Group, Label, Progress, Variant};
use crate::launch::{start_echo, start_floor};
use crate::operation::Operation;
use crate::options::{Depth, Options};
use crate::orb::client::{Caller, target};
use crate::orb::{Architecture, client_orb};
use crate::report::Report;
use crate::workload::message_sizes;

/// Measures `threads` client threads against each architecture, and the same number of pairs of
/// bare sockets.
pub(crate) fn client_threads(
    bench: &'static str,
    threads: usize,
    architectures: &[Architecture],
    options: &Options,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let operation = Operation::Octet;
    let mut variants = Vec::new();
    let (floor, address) = start_floor(Transport::Tcp, Spinning::Blocking, &options.placement)?;
    let orb = client_orb(threads)?;
    let sizes = message_sizes(&orb, operation, options)?;
    let clients = (0..threads).map(|_| BaselineClient::connect(&address_of(&address)?, sizes));
    let clients: Vec<BaselineClient> = clients.collect::<Result<_, Failure>>()?;
    let named = |peer: &'static str, config: String| Label {
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
        let callers = (0..threads).map(|_| Ok(Caller { target: target(&orb, &reference)?, operation }));
        let callers: Vec<Caller> = callers.collect::<Result<_, Failure>>()?;
        variants.push(Variant {
            label: named("Corelane", architecture.config()),
            subject: Box::new(ClientGroup::new(callers, server.pid())),
            against: vec![0],
        });
        servers.push(server);
    }
    let plural = if threads == 1 { "" } else { "s" };
    let title = format!("{bench}: {threads} client thread{plural}, octet; time per call over all");
    let group = Group { title, compare: Compare::Rate, variants };
    let mut extent = options.extent;
    if options.depth == Depth::Quick {
        extent.repetitions = extent.repetitions.min(2);
    }
    report.measure(group, &extent, &options.placement, progress).map(drop)
}

pub(crate) fn label(bench: &'static str, config: String, series: String, axis: &'static str, x: usize) -> Label {
    let along = Some(AxisPoint { series, axis, x: x as u64 });
    Label { bench, peer: "Corelane", transport: "tcp", op: "octet".to_owned(), config, along }
}
