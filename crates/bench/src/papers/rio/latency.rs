//! Round trips of 64 bytes, idle and beside bulk load.

use std::sync::Arc;
use std::time::Duration;

use corelane_sys::lock::{LockScope, Mutex};

use super::guarantees::timeline;
use super::permitted::permitted_load;
use super::shared::{BENCH, CORELANE, ECHO_BYTES, MIN_P999_CALLS, at, is_trial, judged_unless_trial, label};
use super::testbed::{BulkRate, Calls, MeasuredCalls, RioTestbed};
use super::variant::ReceiveVariant;
use crate::Failure;
use crate::harness::{
    self, ComparedQuantity, Figure, FigureLabel, Group, MeasuredSubject, Progress, RunLength, Variant,
};
use crate::options::{BenchOptions, Depth};
use crate::placement::Placement;
use crate::report::Report;
use crate::sample::{Samples, Summary};
use crate::targets::rio::{self as goals, LatencyGoals};
use crate::value::SingleValue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Idle,
    BulkLoad,
    Paced(PacedLoad),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacedLoad {
    pub(super) percent: u32,
    pub(super) bytes_per_second: u32,
}

impl Condition {
    fn name(self) -> String {
        match self {
            Condition::Idle => "idle".to_owned(),
            Condition::BulkLoad => "bulk load".to_owned(),
            Condition::Paced(load) => format!("{} % of the bulk load", load.percent),
        }
    }

    /// Returns the maximum rate of the bulk load in bytes per second, 0 for no maximum; `None`
    /// without bulk load.
    fn bulk_rate(self) -> Option<u32> {
        match self {
            Condition::Idle => None,
            Condition::BulkLoad => Some(0),
            Condition::Paced(load) => Some(load.bytes_per_second),
        }
    }
}

#[derive(Default)]
struct Observed {
    nanoseconds: Vec<u64>,
    requests: Vec<u64>,
    bulk: BulkRate,
}

struct RoundTrips {
    testbed: RioTestbed,
    variant: ReceiveVariant,
    calls: Calls,
    condition: Condition,
    observed: Arc<Mutex<Observed>>,
}

impl MeasuredSubject for RoundTrips {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let bulk_rate = self.condition.bulk_rate();
        let measured = self.testbed.call((self.variant, self.calls), bulk_rate, warm_up, count)?;
        let MeasuredCalls { times, requests, bulk } = measured;
        times.iter().for_each(|&time| into.push(time));
        let whole = Duration::from_nanos(times.iter().sum());
        let mut observed = self.observed.lock();
        if count > 0 {
            observed.nanoseconds.extend_from_slice(&times);
            observed.requests.extend(requests);
            observed.bulk.add(bulk);
        }
        Ok(whole)
    }

    fn client_pid(&self) -> Option<u32> {
        Some(self.testbed.sender_pid)
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.testbed.receiver_pid)
    }
}

pub(super) fn latency(
    testbed: &RioTestbed,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let length = &options.run_length;
    let idle = Results::measure(testbed, &ReceiveVariant::ALL, (Calls::Echo, Condition::Idle), length, progress)?;
    idle.report(options, report)?;
    report.add_values(&format!("{BENCH}: requests of the round trips, idle"), &idle.requests())?;
    report.add_values(&format!("{BENCH}: frames of streams"), &steered_frames(testbed, &idle.variants)?)?;
    report.add_json_values("Figure 7: round trips without other traffic", &idle.distribution())?;
    let loaded = Results::measure(testbed, &ReceiveVariant::ALL, (Calls::Echo, Condition::BulkLoad), length, progress)?;
    report.add_values(&format!("{BENCH}: requests of the round trips, bulk load"), &loaded.requests())?;
    let strain = lack_of_strain(&idle, &loaded);
    if let Some(reason) = &strain {
        report.add_missing(BENCH, "Corelane, bulk load", reason)?;
    } else {
        loaded.report(options, report)?;
        let rates = judged_unless_trial(options, loaded.bulk_rates());
        report.add_values(&format!("{BENCH}: rate of the bulk load during the round trips"), &rates)?;
        report.add_json_values("Figure 9: round trips beside bulk load", &loaded.distribution())?;
        let values = bulk_by_time(testbed, options, progress)?;
        report.add_json_values("Figure 10: bandwidth of the bulk load by time", &values)?;
        permitted_load(testbed, (&idle, &loaded), options, report, progress)?;
    }
    let idle = Results::measure(testbed, &ReceiveVariant::ALL, (Calls::Object, Condition::Idle), length, progress)?;
    idle.report(options, report)?;
    let loaded =
        Results::measure(testbed, &ReceiveVariant::ALL, (Calls::Object, Condition::BulkLoad), length, progress)?;
    // If the bulk load did not strain the receiver during the echo round trips, which have the same
    // load, the figures of the object calls have no meaning.
    match strain {
        Some(reason) => report.add_missing(BENCH, "Corelane, CORBA calls beside bulk load", &reason),
        None => loaded.report(options, report),
    }
}

fn steered_frames(testbed: &RioTestbed, variants: &[ReceiveVariant]) -> Result<Vec<SingleValue>, Failure> {
    let mut values = Vec::new();
    for variant in variants.iter().filter(|variant| variant.steers()) {
        let (queued, missed) = testbed.steered_frames(*variant)?;
        let value = |quantity: &str, frames: u64| SingleValue {
            label: label(CORELANE, "frames", variant.name()),
            quantity: quantity.to_owned(),
            value: frames as f64,
            unit: "",
            bound: None,
        };
        values.extend([value("processed as frames of the stream", queued), value("missed", missed)]);
    }
    Ok(values)
}

fn bulk_by_time(
    testbed: &RioTestbed,
    options: &BenchOptions,
    progress: &mut Progress,
) -> Result<Vec<SingleValue>, Failure> {
    let step = match options.depth {
        _ if is_trial(options) => Duration::from_millis(100),
        Depth::Quick => Duration::from_millis(500),
        Depth::Usual | Depth::Full => Duration::from_secs(1),
    };
    let mut values = Vec::new();
    for variant in testbed.variants() {
        progress.show(&format!("{BENCH}: bulk load by time, {}", variant.name()));
        let (bytes, end) = testbed.bulk_beside_calls(variant, step)?;
        let end = usize::try_from(end.as_millis()).unwrap_or(0);
        values.extend(timeline(variant, variant.name(), &bytes, end));
    }
    Ok(values)
}

pub(super) struct Results {
    title: String,
    condition: Condition,
    /// The variants; the first is the baseline.
    variants: Vec<ReceiveVariant>,
    figures: Vec<Figure>,
    observed: Vec<Arc<Mutex<Observed>>>,
}

impl Results {
    /// Measures the `wanted` variants that the testbed has. The first variant is the baseline.
    pub(super) fn measure(
        testbed: &RioTestbed,
        wanted: &[ReceiveVariant],
        (calls, condition): (Calls, Condition),
        length: &RunLength,
        progress: &mut Progress,
    ) -> Result<Self, Failure> {
        let name = match calls {
            Calls::Echo => "round trips",
            Calls::Object => "CORBA calls",
        };
        let title = format!("{BENCH}: {name} of {ECHO_BYTES} bytes, {}", condition.name());
        let can = testbed.variants_with(calls);
        let variants: Vec<_> = wanted.iter().copied().filter(|variant| can.contains(variant)).collect();
        let observed = || Arc::new(Mutex::new("round trips of a benchmark", LockScope::Orb, Observed::default()));
        let observed: Vec<_> = variants.iter().map(|_| observed()).collect();
        let measured = variants.iter().zip(&observed).enumerate().map(|(index, (&variant, observed))| {
            let (testbed, observed) = (testbed.clone(), observed.clone());
            Variant {
                label: place(variant, calls, condition),
                subject: Box::new(RoundTrips { testbed, variant, calls, condition, observed }),
                against: if index == 0 { Vec::new() } else { vec![0] },
            }
        });
        let variants_of_group = measured.collect();
        let mut group = Group { title: title.clone(), compare: ComparedQuantity::Median, variants: variants_of_group };
        // The receiver and the sender place themselves, so the placement of the group sets nothing.
        let mut figures = harness::measure(&mut group, length, &Placement::default(), progress)?.figures;
        if condition != Condition::Idle {
            figures.iter_mut().for_each(|figure| figure.cost = None);
        }
        Ok(Self { title, condition, variants, figures, observed })
    }

    pub(super) fn report(&self, options: &BenchOptions, report: &mut Report<'_>) -> Result<(), Failure> {
        report.add_figures(&self.title, ComparedQuantity::Median, &self.figures)?;
        let compared = judged_unless_trial(options, self.compared());
        report.add_json_values(&format!("{}, against the kernel", self.title), &compared)
    }
}

fn place(variant: ReceiveVariant, calls: Calls, condition: Condition) -> FigureLabel {
    let place = match (calls, variant.lane_name()) {
        (Calls::Object, Some(lane)) => label(CORELANE, &condition.name(), lane),
        _ => label(variant.peer(), &condition.name(), variant.name()),
    };
    match condition {
        Condition::Paced(load) => at(place, variant.name(), "% of the bulk load", load.percent.into()),
        Condition::Idle | Condition::BulkLoad => place,
    }
}

/// Returns a reason if the load does not strain the receiver, so that figures under load have no
/// meaning. Only the times of the requests show strain, because the replies of round trips also
/// wait at the sender for the thread that sends the bulk load.
fn lack_of_strain(idle: &Results, loaded: &Results) -> Option<String> {
    let growth = loaded.requests_of(0)?.p99_us / idle.requests_of(0)?.p99_us;
    (growth < goals::MIN_STRAIN).then(|| {
        let least = goals::MIN_STRAIN;
        format!(
            "the load does not strain the receiver: the p99 of the baseline's requests is {growth:.2} times that of \
             idle, and {least} are needed"
        )
    })
}

fn goals_of(variant: ReceiveVariant, condition: Condition) -> Option<LatencyGoals> {
    match (variant, condition) {
        (ReceiveVariant::SteeredOrdinary, Condition::Idle) => Some(goals::IDLE_ORDINARY),
        (ReceiveVariant::Kernel | ReceiveVariant::KernelFifo, _) => None,
        (_, Condition::Idle) => Some(goals::IDLE),
        (ReceiveVariant::Steered | ReceiveVariant::PacketBudget | ReceiveVariant::LowLatency, Condition::BulkLoad) => {
            Some(goals::LOADED)
        }
        _ => None,
    }
}

/// Returns the mean, percentiles and standard deviation of a variant relative to the baseline, with
/// their goals.
fn judged(variant: ReceiveVariant, condition: Condition, figure: &Figure, baseline: &Figure) -> Vec<SingleValue> {
    let (own, base, goals) = (&figure.summary, &baseline.summary, goals_of(variant, condition));
    let has_p999 = figure.calls.min(baseline.calls) >= MIN_P999_CALLS;
    let ratios = [
        ("mean", own.mean_us / base.mean_us, goals.map(|goals| goals.mean)),
        ("p99", own.p99_us / base.p99_us, goals.map(|goals| goals.p99)),
        ("p99.9", own.p999_us / base.p999_us, goals.filter(|_| has_p999).and_then(|goals| goals.p999)),
        ("jitter", own.sd_us / base.sd_us, goals.map(|goals| goals.jitter)),
    ];
    let value = |(quantity, value, bound): (&str, f64, Option<f64>)| SingleValue {
        label: figure.label.clone(),
        quantity: format!("{quantity}, against {}", baseline.label.config),
        value,
        unit: "x",
        bound,
    };
    ratios.into_iter().filter(|(_, value, _)| value.is_finite()).map(value).collect()
}

/// Variants whose 99th percentiles determine the width of the columns of a distribution.
const PICTURED: [ReceiveVariant; 2] = [ReceiveVariant::KernelFifo, ReceiveVariant::Steered];

/// Maximum number of columns of a distribution. Slower calls are in no column.
const MAX_COLUMNS: u64 = 80;

impl Results {
    fn compared(&self) -> Vec<SingleValue> {
        let [baseline, others @ ..] = &self.figures[..] else { return Vec::new() };
        let variants = self.variants.iter().skip(1);
        variants.zip(others).flat_map(|(&variant, figure)| judged(variant, self.condition, figure, baseline)).collect()
    }

    pub(super) fn p999_us(&self, variant: ReceiveVariant) -> Option<f64> {
        let index = self.variants.iter().position(|&other| other == variant)?;
        Some(self.figures.get(index)?.summary.p999_us)
    }

    pub(super) fn bulk_rate(&self, variant: ReceiveVariant) -> Option<f64> {
        let index = self.variants.iter().position(|&other| other == variant)?;
        Some(self.observed.get(index)?.lock().bulk.megabytes_per_second())
    }

    fn bulk_rates(&self) -> Vec<SingleValue> {
        let rates: Vec<f64> = self.observed.iter().map(|one| one.lock().bulk.megabytes_per_second()).collect();
        let value = |index: usize, quantity: &str, value, unit, bound| SingleValue {
            label: self.figures[index].label.clone(),
            quantity: quantity.to_owned(),
            value,
            unit,
            bound,
        };
        let mut values: Vec<_> =
            rates.iter().enumerate().map(|(index, &rate)| value(index, "bulk load", rate, "MB/s", None)).collect();
        for (index, variant) in self.variants.iter().enumerate().filter(|(_, variant)| variant.uses_rio()) {
            let bound = (*variant == ReceiveVariant::Steered).then_some(goals::MAX_BULK_RATIO);
            values.push(value(index, "bulk load of the baseline, against this", rates[0] / rates[index], "x", bound));
        }
        values
    }

    /// Returns statistics of the times from the calls of a variant until the server's thread had
    /// the requests.
    fn requests_of(&self, index: usize) -> Option<Summary> {
        Summary::of(&self.observed.get(index)?.lock().requests, Duration::ZERO)
    }

    fn requests(&self) -> Vec<SingleValue> {
        let values = self.figures.iter().enumerate().filter_map(|(index, figure)| {
            let Summary { mean_us, p99_us, .. } = self.requests_of(index)?;
            let value = |quantity: &str, value| SingleValue {
                label: figure.label.clone(),
                quantity: format!("request, from the call to the server's thread: {quantity}"),
                value,
                unit: "us",
                bound: None,
            };
            Some([value("mean", mean_us), value("p99", p99_us)])
        });
        values.flatten().collect()
    }

    fn distribution(&self) -> Vec<SingleValue> {
        let all: Vec<Vec<u64>> = self.observed.iter().map(|one| one.lock().nanoseconds.clone()).collect();
        // The width is from the 99th percentiles, because the slowest calls would dominate the
        // picture.
        let pictured = self.variants.iter().zip(&self.figures).filter(|(variant, _)| PICTURED.contains(variant));
        let width = column_width(pictured.map(|(_, figure)| figure.summary.p99_us).fold(0.0, f64::max));
        let shares = self.variants.iter().zip(&all).map(|(variant, times)| {
            let place = label(variant.peer(), &self.condition.name(), variant.name());
            columns(times, width).into_iter().map(move |(x, share)| SingleValue {
                label: at(place.clone(), variant.name(), "us", x),
                quantity: format!("share of the round trips, in columns of {width} us"),
                value: share,
                unit: "%",
                bound: None,
            })
        });
        shares.flatten().collect()
    }
}

/// Returns the width of a column in microseconds: the smallest of 1, 2 or 5 times a power of ten
/// with which `slowest_us` needs at most [`MAX_COLUMNS`] columns.
fn column_width(slowest_us: f64) -> u64 {
    let widths = (0..9).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    widths.into_iter().find(|&width| slowest_us / width as f64 <= MAX_COLUMNS as f64).unwrap_or(1_000_000)
}

/// Returns the middle of each column in microseconds, and the percentage of all times that are in
/// the column.
fn columns(nanoseconds: &[u64], width: u64) -> Vec<(u64, f64)> {
    let mut counts = vec![0_u64; 1 + MAX_COLUMNS as usize];
    for time in nanoseconds {
        if let Some(count) = usize::try_from(time / 1000 / width).ok().and_then(|column| counts.get_mut(column)) {
            *count += 1;
        }
    }
    let (Some(first), Some(last)) =
        (counts.iter().position(|&count| count > 0), counts.iter().rposition(|&count| count > 0))
    else {
        return Vec::new();
    };
    let share = |count: u64| 100.0 * count as f64 / nanoseconds.len() as f64;
    let shares = counts[first..=last].iter().enumerate();
    shares.map(|(index, &count)| ((first + index) as u64 * width + width / 2, share(count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(variant: ReceiveVariant, condition: Condition, microseconds: &[u64]) -> Figure {
        let times: Vec<u64> = microseconds.iter().map(|time| time * 1000).collect();
        Figure {
            label: label(variant.peer(), &condition.name(), variant.name()),
            summary: Summary::of(&times, Duration::from_secs(1)).unwrap(),
            medians_us: Vec::new(),
            cdf_us: Vec::new(),
            ratios: Vec::new(),
            cost: None,
            calls: MIN_P999_CALLS,
        }
    }

    #[test]
    fn variants_are_compared_with_the_kernel_and_fixed_priorities() {
        use ReceiveVariant::{Kernel, KernelFifo, Steered, SteeredOrdinary};
        let of = |variant, condition| {
            let baseline = figure(KernelFifo, condition, &[100, 200]);
            let values = judged(variant, condition, &figure(variant, condition, &[50, 150]), &baseline);
            values.iter().map(|value| (value.value, value.bound)).collect::<Vec<_>>()
        };
        let bounds =
            |bounds: [Option<f64>; 4]| [100.0 / 150.0, 0.75, 0.75, 1.0].into_iter().zip(bounds).collect::<Vec<_>>();
        assert_eq!(of(Steered, Condition::Idle), bounds([Some(1.01), Some(1.02), None, Some(0.95)]));
        assert_eq!(of(SteeredOrdinary, Condition::Idle), bounds([Some(1.10), Some(1.15), None, Some(1.20)]));
        assert_eq!(of(Steered, Condition::BulkLoad), bounds([Some(0.45), Some(0.60), Some(0.50), Some(0.45)]));
        assert_eq!(of(Kernel, Condition::BulkLoad), bounds([None; 4]));
        let all = figure(Steered, Condition::BulkLoad, &[1]);
        let few = Figure { calls: MIN_P999_CALLS - 1, ..all.clone() };
        let p999 = |own, base| judged(Steered, Condition::BulkLoad, own, base)[2].bound;
        assert_eq!((p999(&all, &all), p999(&few, &all), p999(&all, &few)), (Some(0.50), None, None));
    }

    #[test]
    fn load_without_strain_is_refused() {
        let baseline = |condition, request, whole| {
            let observed = Observed { requests: vec![request], ..Observed::default() };
            Results {
                title: String::new(),
                condition,
                variants: vec![ReceiveVariant::KernelFifo],
                figures: vec![figure(ReceiveVariant::KernelFifo, condition, &[whole])],
                observed: vec![Arc::new(Mutex::new("test", LockScope::Orb, observed))],
            }
        };
        let idle = baseline(Condition::Idle, 1_000, 1);
        let refused = lack_of_strain(&idle, &baseline(Condition::BulkLoad, 1_490, 9)).unwrap();
        assert!(refused.contains("1.49"), "{refused}");
        assert_eq!(lack_of_strain(&idle, &baseline(Condition::BulkLoad, 1_500, 1)), None);
    }

    #[test]
    fn bulk_rates_are_compared_with_the_baseline() {
        let variants = vec![ReceiveVariant::KernelFifo, ReceiveVariant::Steered];
        let observed = [100_000_000, 80_000_000].map(|bytes| {
            let bulk = BulkRate { bytes, time: Duration::from_secs(1) };
            Arc::new(Mutex::new(
                "test",
                LockScope::Orb,
                Observed { nanoseconds: vec![1000], bulk, ..Observed::default() },
            ))
        });
        let figures = variants.iter().map(|&variant| figure(variant, Condition::BulkLoad, &[1])).collect();
        let results = Results {
            title: String::new(),
            condition: Condition::BulkLoad,
            variants,
            figures,
            observed: observed.to_vec(),
        };
        let values: Vec<_> = results.bulk_rates().iter().map(|value| (value.value, value.bound)).collect();
        assert_eq!(values, [(100.0, None), (80.0, None), (1.25, Some(goals::MAX_BULK_RATIO))]);
    }

    #[test]
    fn columns_have_the_shares_of_the_times() {
        assert_eq!([79.0, 81.0, 399.0, 1000.0].map(column_width), [1, 2, 5, 20]);
        assert_eq!(columns(&[4_000, 11_000, 11_500, 14_999], 5), [(2, 25.0), (7, 0.0), (12, 75.0)]);
        assert_eq!(columns(&[], 5), []);
        assert_eq!(columns(&[u64::MAX], 1), []);
    }
}
