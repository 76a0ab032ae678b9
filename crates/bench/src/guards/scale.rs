//! The benchmarks `scale` and `architectures`: many connections, many client threads, messages of
//! every size.

use std::os::fd::OwnedFd;
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::process;
use corelane_sys::socket::{self, Address, SocketOptions};

use crate::Failure;
use crate::baseline::{BaselineClient, Spinning, Transport, address_of};
use crate::call::message_sizes;
use crate::client_group::{ClientGroup, GroupClient};
use crate::cubit;
use crate::footprint::resident;
use crate::harness::{AxisPoint, Compare, Group, Label, Progress, Variant};
use crate::operation::Operation;
use crate::options::{Depth, Options};
use crate::orb::client::{Caller, Calls, target};
use crate::orb::relay::address_in;
use crate::orb::server::LOOPBACK;
use crate::orb::{Architecture, client_orb};
use crate::report::{Report, Value};
use crate::sample::Samples;
use crate::server::{start_echo, start_floor};

/// Numbers of idle connections beside the active one.
const CONNECTIONS: [usize; 4] = [0, 100, 1000, 9999];

/// Maximum server memory in bytes of an idle connection.
const MOST_OCTETS: f64 = 2048.0;

/// Numbers of client threads.
const THREADS: [usize; 4] = [1, 4, 16, 64];

/// Maximum time for a server to accept ten thousand connections.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sizes of arguments, up to the maximum of a message.
const SIZES: [Operation; 8] = [
    Operation::Octets(1),
    Operation::Octets(64),
    Operation::Octets(1024),
    Operation::Octets(16 << 10),
    Operation::Octets(256 << 10),
    Operation::Octets(4 << 20),
    Operation::Octets(16 << 20),
    Operation::Octets(64 << 20),
];

/// Measures by connections, threads and sizes.
pub(crate) fn scale(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    connections(options, report, progress)?;
    let architectures = [Architecture::PerConnection, Architecture::LeaderFollowers(options.threads)];
    for threads in THREADS {
        crowds("scale", threads, &architectures, options, report, progress)?;
    }
    cubit::sizes("scale", &SIZES, options, report, progress)
}

/// Measures paper 4's comparison of thread-pool architectures.
pub(crate) fn architectures(
    options: &Options,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let all = [
        Architecture::PerConnection,
        Architecture::LeaderFollowers(options.threads),
        Architecture::HalfSync(options.threads),
        Architecture::Reactive,
    ];
    for threads in [1, 4, 16] {
        crowds("architectures", threads, &all, options, report, progress)?;
    }
    Ok(())
}

/// Measures one active connection beside many idle ones.
fn connections(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let orb = client_orb(0)?;
    let most = CONNECTIONS.iter().sum::<usize>() as u64 + 200;
    let limit = process::raise_descriptor_limit(most).unwrap_or(0);
    let (mut variants, mut idle, mut servers, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for count in CONNECTIONS {
        progress.show(&format!("scale: {count} idle connections"));
        if limit < (idle.len() + count + 100) as u64 {
            let reason = format!("{count} connections: the process may have {limit} open descriptors (ulimit -n)");
            report.missing("scale", "Corelane", &reason)?;
            continue;
        }
        let architecture = Architecture::LeaderFollowers(options.threads);
        let (server, reference) = start_echo(architecture, LOOPBACK, &options.placement)?;
        let target = target(&orb, &reference)?;
        // The active connection is made first.
        target.echo_octet(1)?;
        let before = resident(server.pid())[0];
        let address = address_in(target.as_object())?;
        let opened = open(address, count, server.pid())?;
        let label =
            label("scale", format!("{count} idle connections"), architecture.config(), "connections", count + 1);
        if count >= 1000 {
            let octets = (resident(server.pid())[0] - before) * 1024.0 / count as f64;
            values.push(Value {
                label: label.clone(),
                what: "resident memory per idle connection".into(),
                value: octets,
                unit: "octets",
                bound: Some(MOST_OCTETS),
            });
        }
        let against = if variants.is_empty() { Vec::new() } else { vec![0] };
        let subject = Box::new(Calls { target, operation: Operation::Octet, server: server.pid() });
        variants.push(Variant { label, subject, against });
        idle.extend(opened);
        servers.push(server);
    }
    let title = "scale: latency of one active connection beside idle ones".to_owned();
    let group = Group { title, compare: Compare::Median, variants };
    report.measure(group, &options.extent, &options.placement, progress)?;
    report.values("scale: memory of idle connections", &values)
}

/// Makes `count` connections, and waits until the server has accepted all of them.
pub(crate) fn open(address: std::net::SocketAddr, count: usize, server: u32) -> Result<Vec<OwnedFd>, Failure> {
    let deadline = clock::now() + PATIENCE;
    let descriptors = || std::fs::read_dir(format!("/proc/{server}/fd")).map_or(0, Iterator::count);
    let before = descriptors();
    let mut opened = Vec::with_capacity(count);
    for number in 0..count {
        let connected = socket::connect(&Address::Inet(address), &SocketOptions::default(), Some(deadline));
        opened.push(connected.map_err(|error| Failure::new(format!("connection {number} of {count}: {error}")))?);
    }
    while descriptors() < before + count {
        if deadline.is_past() {
            let accepted = descriptors().saturating_sub(before);
            return Err(Failure::new(format!("the server has accepted {accepted} of {count} connections")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(opened)
}

impl GroupClient for BaselineClient {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        self.exchange(0, count, into).map(|_| ())
    }
}

/// Measures `threads` client threads against each architecture, and the same number of pairs of
/// bare sockets.
fn crowds(
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

fn label(bench: &'static str, config: String, series: String, axis: &'static str, x: usize) -> Label {
    let along = Some(AxisPoint { series, axis, x: x as u64 });
    Label { bench, peer: "Corelane", transport: "tcp", op: "octet".to_owned(), config, along }
}
