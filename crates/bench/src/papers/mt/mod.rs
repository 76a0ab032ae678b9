//! The benchmarks `mt`, `mt-equal`, `inversion` and `saturation`, which measure the effect of
//! low-priority clients on a high-priority client of the same server.
//!
//! `mt` and `mt-equal` are the papers' MT_Cubit. One client at the top priority calls at 20 Hz, and
//! n clients at lower priorities call at 10 Hz. The low priorities are all different (`mt`, as in
//! the papers of 1999 and 2001) or all equal (`mt-equal`, as in Schmidt's slides of 1999).

mod inversion;
pub(crate) mod load_mix;
mod saturation;
mod server_under_test;

pub(crate) use inversion::inversion;
pub(crate) use saturation::saturation;

use std::fmt::Write as _;
use std::time::Duration;

use corelane_sys::thread::Scheduling;

use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{AxisPoint, ComparedQuantity, Figure, FigureLabel, Progress, is_corelane_or_floor};
use crate::idle::BusyCores;
use crate::operation::MeasuredOperation;
use crate::options::{BenchOptions, Depth};
use crate::orb::{ServerArchitecture, levels};
use crate::placement::permits_fixed_priorities;
use crate::report::Report;
use crate::sample::Summary;
use crate::value::SingleValue;
use load_mix::{BackgroundClient, CallPace, LoadMix, Observations, range};
use server_under_test::{ServerUnderTest, TOP_PRIORITY, banded, floor, omniorb, pool};

const HIGH_PERIOD: Duration = Duration::from_millis(50);
const LOW_PERIOD: Duration = Duration::from_millis(100);

const EQUAL: u8 = 10;

const REPETITIONS: usize = 5;

fn repetitions(options: &BenchOptions) -> usize {
    options.requested.repetitions.unwrap_or(REPETITIONS)
}

fn calls(options: &BenchOptions, [quick, usual, full]: [usize; 3]) -> usize {
    options.requested.count.unwrap_or(match options.depth {
        Depth::Quick => quick,
        Depth::Usual => usual,
        Depth::Full => full,
    })
}

/// A fifth of MT_Cubit's period, so that a run of equal length has five times as many calls.
const PERIOD: Duration = Duration::from_millis(10);

fn beside(
    one: &ServerUnderTest,
    others: Vec<BackgroundClient>,
    calls: usize,
    options: &BenchOptions,
    seen: &mut Observations,
) -> Result<(), Failure> {
    let game = LoadMix {
        high: one.client(0, MeasuredOperation::Octet)?,
        scheduling: Scheduling::Fifo(TOP_PRIORITY),
        period: PERIOD,
        calls,
        placement: options.placement,
        others: options.placement,
        server: one.pid(),
    };
    game.run(others, seen)
}

struct LoadPlan {
    clients: &'static [usize],
    calls: usize,
}

/// Number of calls of each low-priority client at the full depth, over all repetitions.
const PAPERS_CALLS: usize = 4000;

impl LoadPlan {
    fn of(depth: Depth, repetitions: usize) -> LoadPlan {
        match depth {
            Depth::Quick => LoadPlan { clients: &[0, 5, 10, 20, 50, 500], calls: 40 },
            Depth::Usual => LoadPlan { clients: &[0, 1, 2, 5, 10, 20, 50, 100, 500], calls: 100 },
            Depth::Full => {
                let each = PAPERS_CALLS.div_ceil(repetitions) as u32;
                let calls = (LOW_PERIOD * each).as_nanos().div_ceil(HIGH_PERIOD.as_nanos());
                let clients = &[0, 1, 2, 5, 10, 20, 30, 40, 50, 100, 200, 300, 400, 500];
                LoadPlan { clients, calls: usize::try_from(calls).unwrap_or(usize::MAX) }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    Different,
    Equal,
}

impl Ranks {
    fn bench(self) -> &'static str {
        match self {
            Ranks::Different => "mt",
            Ranks::Equal => "mt-equal",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Ranks::Different => "priorities all different",
            Ranks::Equal => "priorities all equal",
        }
    }

    /// Returns the native priority of a low-priority client. With different ranks, the clients take
    /// the 97 priorities below the highest in turn.
    fn priority(self, client: usize) -> u8 {
        match self {
            Ranks::Equal => EQUAL,
            Ranks::Different => TOP_PRIORITY - 1 - (client % usize::from(TOP_PRIORITY - 1)) as u8,
        }
    }

    /// Returns the CORBA priority of a client. With different ranks, clients with the same native
    /// priority have different CORBA priorities as far as the band permits.
    fn corba(self, client: usize) -> i16 {
        let (low, high) = levels::band(self.priority(client)).unwrap_or_default();
        match self {
            Ranks::Equal => low,
            Ranks::Different => {
                low + i16::try_from(client / usize::from(TOP_PRIORITY - 1)).unwrap_or(0).min(high - low)
            }
        }
    }
}

pub(crate) fn mt(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    cubit(Ranks::Different, options, report, progress)
}

pub(crate) fn mt_equal(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    cubit(Ranks::Equal, options, report, progress)
}

fn cubit(
    ranks: Ranks,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let repetitions = repetitions(options);
    let plan = LoadPlan::of(options.depth, repetitions);
    let calls = options.requested.count.unwrap_or(plan.calls);
    let most = plan.clients.iter().copied().max().unwrap_or(0);
    let served = servers(ranks, most, options, report)?;
    let mut all: Vec<Vec<MeasuredPoint>> =
        served.iter().map(|_| plan.clients.iter().map(|_| MeasuredPoint::default()).collect()).collect();
    let busy = BusyCores::start(&options.placement)?;
    let mut gone = Vec::new();
    for repetition in 0..repetitions {
        for (at, &clients) in plan.clients.iter().enumerate().filter(|(_, clients)| **clients > 0) {
            for (index, (one, points)) in served.iter().zip(&mut all).enumerate() {
                if gone.contains(&index) {
                    continue;
                }
                let (bench, turn) = (ranks.bench(), repetition + 1);
                progress.show(&format!(
                    "{bench}: {clients} clients, {} {} ({turn} of {repetitions})",
                    one.peer, one.config
                ));
                let alone = once(one, ranks, 0, calls, options, &mut points[at].alone);
                let played = alone.and_then(|()| once(one, ranks, clients, calls, options, &mut points[at].seen));
                if !goes_on(bench, one, played, report)? {
                    gone.push(index);
                }
            }
        }
    }
    drop(busy);
    let (served, mut all) = without(&gone, served, all);
    for points in &mut all {
        let mut without = Observations::default();
        points.iter().for_each(|point| without.add(&point.alone));
        points[0].seen = without;
    }
    progress.clear();
    let class = if permits_fixed_priorities() { "SCHED_FIFO" } else { "SCHED_OTHER" };
    for side in [MeasuredClient::High, MeasuredClient::Low] {
        let figures: Vec<Figure> =
            served.iter().zip(&all).flat_map(|(one, points)| figures(one, ranks, side, plan.clients, points)).collect();
        let title = format!("MT_Cubit, {}, {class}, idle states held off: {}", ranks.name(), side.name());
        report.add_figures(&title, ComparedQuantity::Median, &figures)?;
    }
    let title = format!("MT_Cubit, {}: the high-priority client against no low-priority client", ranks.name());
    let mut text = format!(
        "\n{title}\n  {:<9} {:<25} {:>5} {:>6} {:>15} {:>7} {:>7} {:>7} {:>8} {:>8} {:>11} {:>9} {:>5}\n",
        "peer",
        "config",
        "n",
        "mean x",
        "",
        "median x",
        "p99 x",
        "jitter x",
        "sd us",
        "max us",
        "due max us",
        "steal ms",
        "late"
    );
    let mut beside = format!(
        "\ngrowth divided by the floor's; all threads of the floor server are at the top priority\n  {:<9} {:<25} {:>5} {:>6} {:>8} {:>7} {:>8}\n",
        "peer", "config", "n", "mean", "median", "p99", "jitter"
    );
    let mut values = Vec::new();
    let floor: Vec<Option<LatencyGrowth>> = all[0].iter().map(LatencyGrowth::of).collect();
    for (one, points) in served.iter().zip(&all) {
        for ((&clients, point), floor) in plan.clients.iter().zip(points).zip(&floor).filter(|((n, _), _)| **n > 0) {
            if let Some(grown) = LatencyGrowth::of(point) {
                grown.tell(one, clients, &point.seen, &mut text);
                values.extend(grown.values(one, ranks, clients, &point.seen));
                if let Some(floor) = floor.as_ref().filter(|_| one.peer != "floor") {
                    values.extend(grown.beside(floor, one, ranks, clients, &mut beside));
                }
            }
        }
    }
    report.add_text(&text)?;
    report.add_text(&beside)?;
    for (one, points) in served.iter().zip(&all).filter(|_| ranks == Ranks::Different) {
        values.extend(growth(one, ranks, plan.clients, points));
    }
    report.add_json_values(&title, &values)
}

/// Returns false, and reports the peer as missing, if the turn of a peer failed.
///
/// # Errors
/// The turn of Corelane or of the baseline failed, or the report cannot be written.
fn goes_on(
    bench: &str,
    one: &ServerUnderTest,
    played: Result<(), Failure>,
    report: &mut Report<'_>,
) -> Result<bool, Failure> {
    if is_corelane_or_floor(one.peer) {
        return played.map(|()| true);
    }
    Ok(report.or_report_missing(bench, one.peer, played)?.is_some())
}

fn without<S, T>(gone: &[usize], served: Vec<S>, all: Vec<T>) -> (Vec<S>, Vec<T>) {
    let left = served.into_iter().zip(all).enumerate().filter(|(index, _)| !gone.contains(index));
    left.map(|(_, both)| both).unzip()
}

/// Returns the ratio of the medians at each two successive numbers of clients. Corelane's bound is
/// the ratio of the two numbers of clients.
fn growth(one: &ServerUnderTest, ranks: Ranks, clients: &[usize], points: &[MeasuredPoint]) -> Vec<SingleValue> {
    let points =
        clients.iter().zip(points).filter_map(|(&clients, point)| Some((clients, point.seen.low.summary()?.p50_us)));
    let points: Vec<(usize, f64)> = points.collect();
    let steps = points.windows(2).map(|pair| {
        let ((fewer, before), (more, after)) = (pair[0], pair[1]);
        SingleValue {
            label: label(one, ranks, MeasuredClient::Low, more),
            quantity: format!("median, against {fewer} clients"),
            value: after / before,
            unit: "x",
            bound: (one.peer == "Corelane").then_some(more as f64 / fewer as f64),
        }
    });
    steps.collect()
}

fn servers(
    ranks: Ranks,
    most: usize,
    options: &BenchOptions,
    report: &mut Report<'_>,
) -> Result<Vec<ServerUnderTest>, Failure> {
    let bench = ranks.bench();
    let mut served = vec![floor(MeasuredOperation::Octet, options)?];
    if options.depth != Depth::Quick {
        served.push(pool(ServerArchitecture::PerConnection, most + 1, options)?);
    }
    if permits_fixed_priorities() {
        let priorities = std::iter::once(i16::MAX).chain((0..most).map(|client| ranks.corba(client))).collect();
        served.push(banded(priorities, options)?);
    } else {
        let reason =
            "fixed priorities are not permitted here: all clients run in the ordinary class, and there are no lanes";
        report.add_missing(bench, "Corelane", reason)?;
        served.push(pool(ServerArchitecture::LeaderFollowers(options.threads), most + 1, options)?);
    }
    served.extend(report.or_report_missing(
        bench,
        "omniORB",
        omniorb(most + 1, BaselineTransport::Tcp, TOP_PRIORITY, options),
    )?);
    Ok(served)
}

fn once(
    one: &ServerUnderTest,
    ranks: Ranks,
    clients: usize,
    calls: usize,
    options: &BenchOptions,
    seen: &mut Observations,
) -> Result<(), Failure> {
    let class = |priority| if permits_fixed_priorities() { Scheduling::Fifo(priority) } else { Scheduling::Other };
    let others = (0..clients).map(|client| {
        Ok(BackgroundClient {
            member: one.client(client + 1, MeasuredOperation::Octet)?,
            scheduling: class(ranks.priority(client)),
            pace: CallPace::Every(LOW_PERIOD),
        })
    });
    let others = others.collect::<Result<Vec<_>, Failure>>()?;
    let game = LoadMix {
        high: one.client(0, MeasuredOperation::Octet)?,
        scheduling: class(TOP_PRIORITY),
        period: HIGH_PERIOD,
        calls,
        placement: options.placement,
        others: options.placement,
        server: one.pid(),
    };
    game.run(others, seen)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MeasuredClient {
    High,
    Low,
}

impl MeasuredClient {
    fn name(self) -> &'static str {
        match self {
            MeasuredClient::High => "high-priority client",
            MeasuredClient::Low => "low-priority clients",
        }
    }

    fn of(self, seen: &Observations) -> &load_mix::ResponseTimes {
        match self {
            MeasuredClient::High => &seen.high,
            MeasuredClient::Low => &seen.low,
        }
    }
}

fn label(one: &ServerUnderTest, ranks: Ranks, side: MeasuredClient, clients: usize) -> FigureLabel {
    FigureLabel {
        bench: ranks.bench(),
        peer: one.peer,
        transport: one.transport,
        op: side.name().to_owned(),
        config: format!("{}, {clients} low-priority clients", one.config),
        axis_point: Some(AxisPoint { series: one.config.clone(), axis: "low-priority clients", x: clients as u64 }),
    }
}

fn figures(
    one: &ServerUnderTest,
    ranks: Ranks,
    side: MeasuredClient,
    clients: &[usize],
    points: &[MeasuredPoint],
) -> Vec<Figure> {
    let points = || clients.iter().zip(points).filter(|(_, point)| side.of(&point.seen).summary().is_some());
    let Some((&fewest, first)) = points().next() else { return Vec::new() };
    let first_label = label(one, ranks, side, fewest);
    let figures = points().filter_map(|(&clients, point)| {
        let before = if fewest == 0 { &point.alone } else { &first.seen };
        let against = [(&first_label, side.of(before))];
        let against: &[_] = if clients == fewest { &[] } else { &against };
        side.of(&point.seen).figure(label(one, ranks, side, clients), &point.seen, against)
    });
    figures.collect()
}

#[derive(Default)]
struct MeasuredPoint {
    seen: Observations,
    /// Results without low-priority clients, measured just before `seen`, because the speed of the
    /// machine changes with time.
    alone: Observations,
}

struct LatencyGrowth {
    summary: Summary,
    response: Summary,
    mean: f64,
    means: (f64, f64),
    median: f64,
    p99: f64,
    jitter: f64,
}

/// Returns the 99th percentile minus the median, in microseconds. It shows late calls that the
/// standard deviation hides.
fn jitter(summary: &Summary) -> f64 {
    summary.p99_us - summary.p50_us
}

impl LatencyGrowth {
    fn of(MeasuredPoint { seen: own, alone }: &MeasuredPoint) -> Option<LatencyGrowth> {
        let (summary, alone_summary) = (own.high.summary()?, alone.high.summary()?);
        Some(LatencyGrowth {
            mean: summary.mean_us / alone_summary.mean_us,
            means: range(&own.high.means_us, &alone.high.means_us),
            median: summary.p50_us / alone_summary.p50_us,
            p99: summary.p99_us / alone_summary.p99_us,
            jitter: jitter(&summary) / jitter(&alone_summary),
            response: own.responses()?,
            summary,
        })
    }

    fn tell(&self, one: &ServerUnderTest, clients: usize, own: &Observations, text: &mut String) {
        let spread = format!("({:.3}-{:.3})", self.means.0, self.means.1);
        let _ = writeln!(
            text,
            "  {:<9} {:<25} {clients:>5} {:>6.3} {spread:>15} {:>7.3} {:>7.3} {:>7.3} {:>8.2} {:>8.1} {:>11.1} {:>9.0} {:>5}",
            one.peer,
            one.config,
            self.mean,
            self.median,
            self.p99,
            self.jitter,
            self.summary.sd_us,
            self.summary.max_us,
            self.response.max_us,
            own.cost.steal_ms,
            own.late
        );
    }

    fn beside(
        &self,
        floor: &LatencyGrowth,
        one: &ServerUnderTest,
        ranks: Ranks,
        clients: usize,
        text: &mut String,
    ) -> [SingleValue; 4] {
        let ratios = [
            ("mean", self.mean / floor.mean),
            ("median", self.median / floor.median),
            ("p99", self.p99 / floor.p99),
            ("p99 - p50", self.jitter / floor.jitter),
        ];
        let [mean, median, p99, jitter] = ratios.map(|(_, ratio)| ratio);
        let _ = writeln!(
            text,
            "  {:<9} {:<25} {clients:>5} {mean:>6.3} {median:>8.3} {p99:>7.3} {jitter:>8.3}",
            one.peer, one.config
        );
        ratios.map(|(quantity, value)| SingleValue {
            label: label(one, ranks, MeasuredClient::High, clients),
            quantity: format!("{quantity}, growth against the floor's"),
            value,
            unit: "x",
            bound: None,
        })
    }

    fn values(&self, one: &ServerUnderTest, ranks: Ranks, clients: usize, own: &Observations) -> Vec<SingleValue> {
        let bounds = match clients {
            _ if one.peer != "Corelane" => [None; 3],
            1..=50 => [Some(1.10), Some(1.25), Some(1.5)],
            51..=500 => [Some(1.25), Some(1.5), Some(1.5)],
            _ => [None; 3],
        };
        let value = |quantity: &str, value: f64, unit, bound| SingleValue {
            label: label(one, ranks, MeasuredClient::High, clients),
            quantity: quantity.to_owned(),
            value,
            unit,
            bound,
        };
        vec![
            value("mean, against no others", self.mean, "x", bounds[0]),
            value("median, against no others", self.median, "x", bounds[0]),
            value("p99, against no others", self.p99, "x", bounds[1]),
            value("p99 - p50, against no others", self.jitter, "x", bounds[2]),
            value("standard deviation", self.summary.sd_us, "us", None),
            value("from due to reply, p99", self.response.p99_us, "us", None),
            value("from due to reply, longest", self.response.max_us, "us", None),
            value("given by the hypervisor to others", own.cost.steal_ms, "ms", None),
            value("calls that began late", own.late as f64, "", None),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_priority_clients_are_below_the_top_priority() {
        let mut different: Vec<u8> = (0..500).map(|client| Ranks::Different.priority(client)).collect();
        assert!(different.iter().all(|priority| (1..TOP_PRIORITY).contains(priority)));
        assert_eq!(different[0], TOP_PRIORITY - 1);
        assert_eq!((Ranks::Equal.priority(0), Ranks::Equal.priority(400)), (EQUAL, EQUAL));
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len() + 1, 98);
    }

    #[test]
    fn five_hundred_clients_have_different_corba_priorities_of_their_levels() {
        let mut corba: Vec<i16> = (0..500).map(|client| Ranks::Different.corba(client)).collect();
        for (client, &priority) in corba.iter().enumerate() {
            assert_eq!(levels::level(priority), Ranks::Different.priority(client), "{client}");
        }
        corba.sort_unstable();
        corba.dedup();
        assert_eq!((corba.len(), levels::level(i16::MAX)), (500, TOP_PRIORITY));
        assert_eq!(Ranks::Equal.corba(0), Ranks::Equal.corba(499));
    }

    #[test]
    fn results_of_a_server_are_removed_with_the_server() {
        assert_eq!(
            without(&[1], vec!["floor", "omniORB", "Corelane"], vec![1, 2, 3]),
            (vec!["floor", "Corelane"], vec![1, 3])
        );
    }

    #[test]
    fn plans_start_without_low_priority_clients_and_full_depth_is_that_of_the_papers() {
        for depth in [Depth::Quick, Depth::Usual, Depth::Full] {
            let plan = LoadPlan::of(depth, REPETITIONS);
            assert!(plan.clients[0] == 0 && plan.clients.is_sorted() && plan.clients.last() == Some(&500));
        }
        assert_eq!((LoadPlan::of(Depth::Quick, 1).calls, LoadPlan::of(Depth::Usual, 1).calls), (40, 100));
        for repetitions in [1, 3, REPETITIONS, 7] {
            let time = HIGH_PERIOD * (LoadPlan::of(Depth::Full, repetitions).calls * repetitions) as u32;
            assert!(time >= LOW_PERIOD * PAPERS_CALLS as u32, "{repetitions}: {time:?}");
        }
    }
}
