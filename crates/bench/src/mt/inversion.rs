//! The benchmark `inversion`: a high-priority client beside floods of ordinary priority on the same server, by dispatch architecture and by how the
//! clients, which are one process, use connections; lanes and omniORB beside them. All take turns in each repetition.

use corelane_sys::thread::Scheduling;

use super::game::{Other, Pace, Seen};
use super::served::{Connections, Served, laned, omniorb, single};
use super::{TOP, calls, has_priorities, repetitions};
use crate::Failure;
use crate::floor::Carrier;
use crate::harness::{Compare, Figure, Label, Progress};
use crate::idle::Busy;
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::Architecture;
use crate::report::{Report, Value};

/// That of the lane in which floods are served.
const LOWEST: u8 = 1;

/// How many floods there are, where there are any.
const FLOODS: usize = 4;

/// With lanes, floods at the same server are to cost the high-priority client at most so many times what they cost at another one. Everything else
/// is there to be seen beside that.
const MOST: f64 = 1.5;

/// Who else calls.
struct Beside {
    name: &'static str,
    /// What they call, and whether at the same server.
    floods: Option<(Operation, bool)>,
    /// Which of the list this is compared with.
    against: &'static [usize],
}

const LARGE: Operation = Operation::Octets(64 * 1024);

const BESIDE: [Beside; 5] = [
    Beside { name: "nobody else", floods: None, against: &[] },
    Beside { name: "4 floods of octets at another server", floods: Some((Operation::Octet, false)), against: &[0] },
    Beside { name: "4 floods of octets", floods: Some((Operation::Octet, true)), against: &[0, 1] },
    Beside { name: "4 floods of 64 KiB at another server", floods: Some((LARGE, false)), against: &[0] },
    Beside { name: "4 floods of 64 KiB", floods: Some((LARGE, true)), against: &[0, 3] },
];

/// Two servers alike, of which the clients call one and the floods one or the other.
struct Pair {
    one: Served,
    other: Served,
    /// The same with a connection for each call, if this is not that: its place among the pairs.
    each: Option<usize>,
    /// How many times the same floods at another server those at this one may cost.
    most: Option<f64>,
    seen: [Seen; BESIDE.len()],
}

impl Pair {
    fn start(mut server: impl FnMut() -> Result<Served, Failure>, each: Option<usize>) -> Result<Self, Failure> {
        Ok(Pair { one: server()?, other: server()?, each, most: None, seen: Default::default() })
    }
}

pub(crate) fn inversion(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    if !has_priorities("inversion", report)? {
        return Ok(());
    }
    let (calls, repetitions) = (calls(options, [25, 100, 1000]), repetitions(options));
    let mut pairs = pairs(options, report)?;
    let busy = Busy::start(&options.placement)?;
    for repetition in 1..=repetitions {
        for (at, beside) in BESIDE.iter().enumerate() {
            for Pair { one, other, seen, .. } in &mut pairs {
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
        report.figures(&title, Compare::Median, &figures(pair, &pairs))?;
    }
    let values: Vec<Value> = pairs.iter().flat_map(|pair| inversions(pair, &pairs)).collect();
    report.values("inversion: beside floods at the same server", &values)
}

/// Each dispatch architecture with each way to use connections, lanes, and omniORB, which has a connection for each call that is under way.
fn pairs(options: &Options, report: &mut Report<'_>) -> Result<Vec<Pair>, Failure> {
    let mut pairs = Vec::new();
    for architecture in [
        Architecture::PerConnection,
        Architecture::LeaderFollowers(options.threads),
        Architecture::HalfSync(options.threads),
    ] {
        let each = pairs.len();
        pairs.push(Pair::start(|| single(architecture, Connections::Each, options), None)?);
        for connections in [Connections::Shared, Connections::SharedByOthers] {
            pairs.push(Pair::start(|| single(architecture, connections, options), Some(each))?);
        }
    }
    // One thread for all, however requests come.
    pairs.push(Pair::start(|| single(Architecture::Reactive, Connections::Each, options), None)?);
    let lanes = Pair::start(|| laned(&[TOP, LOWEST, LOWEST, LOWEST, LOWEST], Carrier::Tcp, options), None)?;
    pairs.push(Pair { most: Some(MOST), ..lanes });
    let peer = Pair::start(|| omniorb(FLOODS + 1, Carrier::Tcp, TOP, options), None);
    pairs.extend(report.found("inversion", "omniORB", peer)?);
    Ok(pairs)
}

fn once(
    one: &Served,
    other: &Served,
    beside: &Beside,
    calls: usize,
    options: &Options,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let mut floods = Vec::new();
    if let Some((operation, same)) = beside.floods {
        let flooded = if same { one } else { other };
        for number in 1..=FLOODS {
            let member = flooded.member(number, operation)?;
            floods.push(Other { member, scheduling: Scheduling::Other, pace: Pace::Flood });
        }
    }
    super::beside(one, floods, calls, options, seen)
}

fn label(one: &Served, beside: &Beside) -> Label {
    Label {
        bench: "inversion",
        peer: one.peer,
        transport: one.transport,
        op: "octet".to_owned(),
        config: format!("{}, {}", one.config, beside.name),
        along: None,
    }
}

/// Each against the same server without those floods, and against the same floods where each call has a connection for itself.
fn figures(pair: &Pair, all: &[Pair]) -> Vec<Figure> {
    let each = pair.each.and_then(|each| all.get(each));
    let figures = BESIDE.iter().enumerate().filter_map(|(at, beside)| {
        let mut against: Vec<(Label, &Seen)> =
            beside.against.iter().map(|&other| (label(&pair.one, &BESIDE[other]), &pair.seen[other])).collect();
        against.extend(each.map(|each| (label(&each.one, beside), &each.seen[at])));
        let against: Vec<_> = against.iter().map(|(label, seen)| (label, &seen.high)).collect();
        let own = &pair.seen[at];
        own.high.figure(label(&pair.one, beside), own, &against)
    });
    figures.collect()
}

/// How much longer the high-priority client waits because the floods are at its server, where what they cost the processor alone is in both, and because
/// of how it uses connections.
fn inversions(pair: &Pair, all: &[Pair]) -> Vec<Value> {
    let mut values = Vec::new();
    let each = pair.each.and_then(|each| all.get(each));
    for (at, beside) in BESIDE.iter().enumerate() {
        let (Some((_, true)), Some(&elsewhere)) = (beside.floods, beside.against.last()) else { continue };
        let (Some(own), Some(other)) = (pair.seen[at].high.summary(), pair.seen[elsewhere].high.summary()) else {
            continue;
        };
        for (what, value, unit, bound) in [
            ("median, over that at another", own.p50_us / other.p50_us, "x", pair.most),
            ("p99, over that at another", own.p99_us / other.p99_us, "x", None),
            ("longest, above that at another", own.max_us - other.max_us, "us", None),
        ] {
            values.push(Value { label: label(&pair.one, beside), what: what.to_owned(), value, unit, bound });
        }
        let Some(each) = each.and_then(|each| each.seen[at].high.summary()) else { continue };
        for (what, value) in [("median", own.p50_us / each.p50_us), ("p99", own.p99_us / each.p99_us)] {
            let what = format!("{what}, over that of a connection for each call");
            values.push(Value { label: label(&pair.one, beside), what, value, unit: "x", bound: None });
        }
    }
    values
}
