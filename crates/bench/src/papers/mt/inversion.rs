//! The benchmark `inversion`, which measures the calls of a high-priority client beside floods of
//! ordinary priority on the same server.

use corelane_sys::thread::Scheduling;

use super::load_mix::{BackgroundClient, CallPace, Observations};
use super::server_under_test::{Connections, ServerUnderTest, TOP_PRIORITY, laned, omniorb, single};
use super::{calls, repetitions};
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Progress};
use crate::idle::BusyCores;
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::ServerArchitecture;
use crate::report::Report;
use crate::testbed::require_fixed_priorities;
use crate::value::SingleValue;

const LOWEST: u8 = 1;

const FLOODS: usize = 4;

/// Goal for the high-priority client: maximum ratio of its median beside floods at its server to
/// its median beside floods at another server.
const MOST: f64 = 1.5;

struct BackgroundLoad {
    name: &'static str,
    /// Operation of the floods, and true if the floods call the server of the high-priority client;
    /// `None` without floods.
    floods: Option<(MeasuredOperation, bool)>,
    against: &'static [usize],
}

const LARGE: MeasuredOperation = MeasuredOperation::Octets(64 * 1024);

const LOADS: [BackgroundLoad; 5] = [
    BackgroundLoad { name: "no other client", floods: None, against: &[] },
    BackgroundLoad {
        name: "4 floods of octets at another server",
        floods: Some((MeasuredOperation::Octet, false)),
        against: &[0],
    },
    BackgroundLoad { name: "4 floods of octets", floods: Some((MeasuredOperation::Octet, true)), against: &[0, 1] },
    BackgroundLoad { name: "4 floods of 64 KiB at another server", floods: Some((LARGE, false)), against: &[0] },
    BackgroundLoad { name: "4 floods of 64 KiB", floods: Some((LARGE, true)), against: &[0, 3] },
];

struct ServerPair {
    one: ServerUnderTest,
    other: ServerUnderTest,
    /// The index of the pair with a connection for each call, with which this pair is compared.
    /// `None` if it is compared with no such pair.
    each: Option<usize>,
    most: Option<f64>,
    seen: [Observations; LOADS.len()],
}

impl ServerPair {
    fn start(
        mut server: impl FnMut() -> Result<ServerUnderTest, Failure>,
        each: Option<usize>,
    ) -> Result<Self, Failure> {
        Ok(ServerPair { one: server()?, other: server()?, each, most: None, seen: Default::default() })
    }
}

pub(crate) fn inversion(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if !require_fixed_priorities("inversion", report)? {
        return Ok(());
    }
    let (calls, repetitions) = (calls(options, [25, 100, 1000]), repetitions(options));
    let mut pairs = pairs(options, report)?;
    let busy = BusyCores::start(&options.placement)?;
    for repetition in 1..=repetitions {
        for (at, beside) in LOADS.iter().enumerate() {
            for ServerPair { one, other, seen, .. } in &mut pairs {
                progress.show(&format!(
                    "inversion: {} {} beside {} ({repetition} of {repetitions})",
                    one.peer, one.config, beside.name
                ));
                once(one, other, beside, calls, options, &mut seen[at])?;
            }
        }
    }
    drop(busy);
    progress.clear();
    for pair in &pairs {
        let title = format!(
            "inversion: high-priority client at 100 Hz beside floods of ordinary priority, {} {}, idle states held off",
            pair.one.peer, pair.one.config
        );
        report.add_figures(&title, ComparedQuantity::Median, &figures(pair, &pairs))?;
    }
    let values: Vec<SingleValue> = pairs.iter().flat_map(|pair| inversions(pair, &pairs)).collect();
    report.add_values("inversion: beside floods at the same server", &values)
}

/// Starts the servers. For omniORB, each call in progress has a separate connection.
fn pairs(options: &BenchOptions, report: &mut Report<'_>) -> Result<Vec<ServerPair>, Failure> {
    let mut pairs = Vec::new();
    for architecture in [
        ServerArchitecture::PerConnection,
        ServerArchitecture::LeaderFollowers(options.threads),
        ServerArchitecture::HalfSync(options.threads),
    ] {
        let each = pairs.len();
        pairs.push(ServerPair::start(|| single(architecture, Connections::Each, options), None)?);
        for connections in [Connections::Shared, Connections::SharedByOthers] {
            pairs.push(ServerPair::start(|| single(architecture, connections, options), Some(each))?);
        }
    }
    // One thread serves all requests, so the sharing of connections makes no difference.
    pairs.push(ServerPair::start(|| single(ServerArchitecture::Reactive, Connections::Each, options), None)?);
    let lanes = ServerPair::start(
        || laned(&[TOP_PRIORITY, LOWEST, LOWEST, LOWEST, LOWEST], BaselineTransport::Tcp, options),
        None,
    )?;
    pairs.push(ServerPair { most: Some(MOST), ..lanes });
    let peer = ServerPair::start(|| omniorb(FLOODS + 1, BaselineTransport::Tcp, TOP_PRIORITY, options), None);
    pairs.extend(report.or_report_missing("inversion", "omniORB", peer)?);
    Ok(pairs)
}

fn once(
    one: &ServerUnderTest,
    other: &ServerUnderTest,
    beside: &BackgroundLoad,
    calls: usize,
    options: &BenchOptions,
    seen: &mut Observations,
) -> Result<(), Failure> {
    let mut floods = Vec::new();
    if let Some((operation, same)) = beside.floods {
        let flooded = if same { one } else { other };
        for number in 1..=FLOODS {
            let member = flooded.client(number, operation)?;
            floods.push(BackgroundClient { member, scheduling: Scheduling::Other, pace: CallPace::Flood });
        }
    }
    super::beside(one, floods, calls, options, seen)
}

fn label(one: &ServerUnderTest, beside: &BackgroundLoad) -> FigureLabel {
    FigureLabel {
        bench: "inversion",
        peer: one.peer,
        transport: one.transport,
        op: "octet".to_owned(),
        config: format!("{}, {}", one.config, beside.name),
        axis_point: None,
    }
}

fn figures(pair: &ServerPair, all: &[ServerPair]) -> Vec<Figure> {
    let each = pair.each.and_then(|each| all.get(each));
    let figures = LOADS.iter().enumerate().filter_map(|(at, beside)| {
        let mut against: Vec<(FigureLabel, &Observations)> =
            beside.against.iter().map(|&other| (label(&pair.one, &LOADS[other]), &pair.seen[other])).collect();
        against.extend(each.map(|each| (label(&each.one, beside), &each.seen[at])));
        let against: Vec<_> = against.iter().map(|(label, seen)| (label, &seen.high)).collect();
        let own = &pair.seen[at];
        own.high.figure(label(&pair.one, beside), own, &against)
    });
    figures.collect()
}

/// Compares the response times of the high-priority client beside floods at the same server with
/// those beside floods at another server, which need as much processor time. If connections are
/// shared, also compares with a connection for each call.
fn inversions(pair: &ServerPair, all: &[ServerPair]) -> Vec<SingleValue> {
    let mut values = Vec::new();
    let each = pair.each.and_then(|each| all.get(each));
    for (at, beside) in LOADS.iter().enumerate() {
        let (Some((_, true)), Some(&elsewhere)) = (beside.floods, beside.against.last()) else { continue };
        let (Some(own), Some(other)) = (pair.seen[at].high.summary(), pair.seen[elsewhere].high.summary()) else {
            continue;
        };
        for (quantity, value, unit, bound) in [
            ("median, over that at another", own.p50_us / other.p50_us, "x", pair.most),
            ("p99, over that at another", own.p99_us / other.p99_us, "x", None),
            ("longest, above that at another", own.max_us - other.max_us, "us", None),
        ] {
            values.push(SingleValue {
                label: label(&pair.one, beside),
                quantity: quantity.to_owned(),
                value,
                unit,
                bound,
            });
        }
        let Some(each) = each.and_then(|each| each.seen[at].high.summary()) else { continue };
        for (quantity, value) in [("median", own.p50_us / each.p50_us), ("p99", own.p99_us / each.p99_us)] {
            let quantity = format!("{quantity}, over that of a connection for each call");
            values.push(SingleValue { label: label(&pair.one, beside), quantity, value, unit: "x", bound: None });
        }
    }
    values
}
