//! The benchmark `scale`, which measures calls beside many idle connections, of many client
//! threads, and with messages of many sizes.

use corelane_sys::process;

use super::cubit;
use crate::Failure;
use crate::address::LOOPBACK;
use crate::client_threads::{client_threads, label};
use crate::cost::resident_memory_kib;
use crate::harness::{ComparedQuantity, Group, Progress, Variant};
use crate::launch::start_echo;
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, target};
use crate::orb::relay::tcp_address;
use crate::orb::{ServerArchitecture, client_orb};
use crate::report::Report;
use crate::value::SingleValue;
use crate::workload::open_idle_connections;

const CONNECTIONS: [usize; 4] = [0, 100, 1000, 9999];

const MAX_OCTETS: f64 = 2048.0;

const THREADS: [usize; 4] = [1, 4, 16, 64];

const SIZES: [MeasuredOperation; 8] = [
    MeasuredOperation::Octets(1),
    MeasuredOperation::Octets(64),
    MeasuredOperation::Octets(1024),
    MeasuredOperation::Octets(16 << 10),
    MeasuredOperation::Octets(256 << 10),
    MeasuredOperation::Octets(4 << 20),
    MeasuredOperation::Octets(16 << 20),
    MeasuredOperation::Octets(64 << 20),
];

pub(crate) fn scale(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    connections(options, report, progress)?;
    let architectures = [ServerArchitecture::PerConnection, ServerArchitecture::LeaderFollowers(options.threads)];
    for threads in THREADS {
        client_threads("scale", threads, &architectures, options, report, progress)?;
    }
    cubit::sizes("scale", &SIZES, options, report, progress)
}

fn connections(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let orb = client_orb(0)?;
    let most = CONNECTIONS.iter().sum::<usize>() as u64 + 200;
    let limit = process::raise_descriptor_limit(most).unwrap_or(0);
    let (mut variants, mut idle, mut servers, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for count in CONNECTIONS {
        progress.show(&format!("scale: {count} idle connections"));
        if limit < (idle.len() + count + 100) as u64 {
            let reason = format!("{count} connections: the process may have {limit} open descriptors (ulimit -n)");
            report.add_missing("scale", "Corelane", &reason)?;
            continue;
        }
        let architecture = ServerArchitecture::LeaderFollowers(options.threads);
        let (server, reference) = start_echo(architecture, LOOPBACK, &options.placement)?;
        let target = target(&orb, &reference)?;
        target.echo_octet(1)?;
        let before = resident_memory_kib(server.pid())[0];
        let address = tcp_address(target.as_object())?;
        let opened = open_idle_connections(address, count, server.pid())?;
        let label =
            label("scale", format!("{count} idle connections"), architecture.config(), "connections", count + 1);
        if count >= 1000 {
            let octets = (resident_memory_kib(server.pid())[0] - before) * 1024.0 / count as f64;
            values.push(SingleValue {
                label: label.clone(),
                quantity: "resident memory per idle connection".into(),
                value: octets,
                unit: "octets",
                bound: Some(MAX_OCTETS),
            });
        }
        let against = if variants.is_empty() { Vec::new() } else { vec![0] };
        let subject = Box::new(StubCalls { target, operation: MeasuredOperation::Octet, server: server.pid() });
        variants.push(Variant { label, subject, against });
        idle.extend(opened);
        servers.push(server);
    }
    let title = "scale: latency of one active connection beside idle ones".to_owned();
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    report.measure(group, &options.run_length, &options.placement, progress)?;
    report.add_values("scale: memory of idle connections", &values)
}
