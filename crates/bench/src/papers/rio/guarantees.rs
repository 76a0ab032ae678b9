//! Guaranteed bandwidth: three streams with budgets beside best effort. Each sender sends as much
//! as TCP permits.

use std::ops::Range;
use std::time::Duration;

use corelane_net::{IoClass, IoProperties};
use corelane_sys::thread::CpuSet;

use super::shared::{BENCH, at, is_trial, judged_unless_trial, label};
use super::testbed::RioTestbed;
use super::variant::ReceiveVariant;
use crate::Failure;
use crate::harness::Progress;
use crate::options::{BenchOptions, Depth};
use crate::report::Report;
use crate::targets::rio as goals;
use crate::value::SingleValue;

const PERIOD_MS: usize = 10;
/// Length in milliseconds of the part of a period in which few bytes arrive.
const HALF: usize = PERIOD_MS / 2;
const WINDOW_MS: usize = 100;
/// Time in milliseconds after the start of a stream for which the stream is not judged.
const SETTLING_MS: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuaranteedStream {
    pub(super) number: usize,
    /// Budget of the stream in bytes for each period.
    bytes: u32,
    pub(super) priority: u8,
}

const BLOCK: u32 = 8 * 1024;

/// The streams of the paper: 8, 4 and 2 packets of 8 KB in 10 ms.
pub(super) const STREAMS: [GuaranteedStream; 3] = [
    GuaranteedStream { number: 0, bytes: 8 * BLOCK, priority: 75 },
    GuaranteedStream { number: 1, bytes: 4 * BLOCK, priority: 70 },
    GuaranteedStream { number: 2, bytes: 2 * BLOCK, priority: 66 },
];

/// Native priority of the threads that send to guaranteed streams. TCP makes these threads wait in
/// each period, so that they leave the core to others.
pub(super) const SENDER_PRIORITY: u8 = 20;

pub(super) const VARIANTS: [ReceiveVariant; 3] =
    [ReceiveVariant::SocketOptions, ReceiveVariant::Steered, ReceiveVariant::PacketBudget];

/// Bytes of a full packet of the link.
const PACKET: u32 = 1_448;

impl GuaranteedStream {
    pub(super) fn port(self, variant: ReceiveVariant) -> String {
        format!("{}-{}", variant.word(), self.number)
    }

    pub(super) fn io(self, variant: ReceiveVariant, core: usize) -> IoProperties {
        let (bytes, period) = (self.bytes, Duration::from_millis(PERIOD_MS as u64));
        let class = match variant {
            ReceiveVariant::PacketBudget => IoClass::GuaranteedPackets { packets: self.packets(), period },
            _ => IoClass::Guaranteed { bytes, period },
        };
        IoProperties { class, native_priority: Some(self.priority), cores: Some(CpuSet::one(core)) }
    }

    fn packets(self) -> u32 {
        self.bytes / PACKET
    }

    /// Returns the guaranteed bytes in each millisecond. A budget in packets is guaranteed in full
    /// packets.
    fn rate(self, variant: ReceiveVariant) -> f64 {
        let bytes = if variant == ReceiveVariant::PacketBudget { self.packets() * PACKET } else { self.bytes };
        f64::from(bytes) / PERIOD_MS as f64
    }

    fn name(self) -> String {
        format!("{:.2} MB/s", f64::from(self.bytes) / PERIOD_MS as f64 / 1e3)
    }
}

/// Numbers of bytes that arrived in each millisecond, and the judged ranges of milliseconds.
pub(super) struct GuaranteeRun {
    pub(super) best_effort: Vec<u64>,
    /// The bytes of each stream, in the order of [`STREAMS`].
    pub(super) streams: Vec<Vec<u64>>,
    /// Milliseconds in which only best effort was sent.
    pub(super) alone: Range<usize>,
    /// Milliseconds in which all streams were sent.
    pub(super) together: Range<usize>,
}

fn times(options: &BenchOptions) -> (Duration, Duration) {
    match options.depth {
        _ if is_trial(options) => (Duration::from_millis(400), Duration::from_millis(600)),
        Depth::Quick => (Duration::from_millis(600), Duration::from_millis(1500)),
        Depth::Usual => (Duration::from_secs(1), Duration::from_secs(4)),
        Depth::Full => (Duration::from_secs(2), Duration::from_secs(12)),
    }
}

pub(super) fn guarantees(
    testbed: &RioTestbed,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (step, hold) = times(options);
    let variants: Vec<_> = VARIANTS.into_iter().filter(|&variant| testbed.has_guarantees(variant)).collect();
    let mut runs: Vec<Vec<GuaranteeRun>> = variants.iter().map(|_| Vec::new()).collect();
    for repetition in 0..options.run_length.repetitions.min(3) {
        for (&variant, runs) in variants.iter().zip(&mut runs) {
            progress.show(&format!("{BENCH}: guarantees, {} ({})", variant.name(), repetition + 1));
            runs.push(testbed.guarantees(variant, step, hold)?);
        }
    }
    for (&variant, runs) in variants.iter().zip(&runs) {
        let Some(first) = runs.first() else { continue };
        let values = judged_unless_trial(options, judged(variant, runs));
        report.add_values(&format!("{BENCH}: guaranteed bandwidth, {}", variant.name()), &values)?;
        let (alone, beside) = best_effort(runs);
        if let Err(reason) = shortfall(variant, alone, beside) {
            report.add_missing(BENCH, &format!("Corelane, rest of best effort, {}", variant.name()), &reason)?;
        }
        report.add_json_values(&format!("Figure 11: bandwidth, {}", variant.name()), &pictured(variant, first))?;
    }
    Ok(())
}

fn judged(variant: ReceiveVariant, runs: &[GuaranteeRun]) -> Vec<SingleValue> {
    let value = |config: &str, quantity: &str, value, unit, bound| SingleValue {
        label: label(variant.peer(), config, variant.name()),
        quantity: quantity.to_owned(),
        value,
        unit,
        bound,
    };
    let mut values = Vec::new();
    for stream in STREAMS {
        let windows: Vec<f64> = runs
            .iter()
            .filter_map(|run| Some(windows(run.streams.get(stream.number)?, &run.together)))
            .flatten()
            .map(|bytes| bytes as f64 / WINDOW_MS as f64)
            .collect();
        if windows.is_empty() {
            continue;
        }
        let mean = windows.iter().sum::<f64>() / windows.len() as f64;
        let distance = |rate: f64| 100.0 * (rate / stream.rate(variant) - 1.0).abs();
        let worst = windows.iter().copied().map(distance).fold(0.0, f64::max);
        let name = stream.name();
        values.push(value(&name, "received", mean / 1e3, "MB/s", None));
        values.push(value(&name, "distance from the guarantee", distance(mean), "%", Some(goals::MAX_RATE_ERROR)));
        let bound = Some(goals::MAX_WINDOW_ERROR);
        values.push(value(&name, "distance in the worst 100 ms", worst, "%", bound));
    }
    let (alone, beside) = best_effort(runs);
    values.push(value("best effort", "alone", alone / 1e3, "MB/s", None));
    values.push(value("best effort", "beside the guarantees", beside / 1e3, "MB/s", None));
    if let Ok(shortfall) = shortfall(variant, alone, beside) {
        let bound = Some(goals::MAX_REST_SHORTFALL);
        values.push(value("best effort", "shortfall from the rest of its rate alone", shortfall, "%", bound));
    }
    values
}

fn best_effort(runs: &[GuaranteeRun]) -> (f64, f64) {
    let mean = |range: fn(&GuaranteeRun) -> &Range<usize>| {
        let rates = runs.iter().map(|run| rate(&run.best_effort, range(run)));
        rates.sum::<f64>() / runs.len().max(1) as f64
    };
    (mean(|run| &run.alone), mean(|run| &run.together))
}

/// Returns by how many percent best effort beside the guaranteed streams falls short of its rate
/// alone minus the guaranteed rates.
///
/// # Errors
/// The guaranteed rates exceed the rate of best effort alone.
fn shortfall(variant: ReceiveVariant, alone: f64, beside: f64) -> Result<f64, String> {
    let guaranteed: f64 = STREAMS.iter().map(|stream| stream.rate(variant)).sum();
    let rest = alone - guaranteed;
    if rest <= 0.0 {
        let (alone, guaranteed) = (alone / 1e3, guaranteed / 1e3);
        return Err(format!(
            "best effort alone, {alone:.1} MB/s, does not exceed the guarantees, {guaranteed:.1} MB/s"
        ));
    }
    Ok((100.0 * (1.0 - beside / rest)).max(0.0))
}

fn rate(bytes: &[u64], range: &Range<usize>) -> f64 {
    let sum: u64 = bytes.iter().take(range.end).skip(range.start).sum();
    sum as f64 / range.len().max(1) as f64
}

/// Returns the bytes of each whole window in the range. Windows begin in the middle of the part of
/// a period in which the fewest bytes arrive, so that bytes that arrive a little late or early
/// still count in their window.
fn windows(bytes: &[u64], range: &Range<usize>) -> Vec<u64> {
    let in_range = |at: usize| if range.contains(&at) { bytes.get(at).copied().unwrap_or(0) } else { 0 };
    let of_phase = |phase: usize| (range.start + phase..range.end).step_by(PERIOD_MS).map(in_range).sum::<u64>();
    let phases: Vec<u64> = (0..PERIOD_MS).map(of_phase).collect();
    let around = |&phase: &usize| {
        let first = phase + PERIOD_MS - HALF / 2;
        (first..first + HALF).map(|at| phases[at % PERIOD_MS]).sum::<u64>()
    };
    let Some(phase) = (0..PERIOD_MS).min_by_key(around) else { return Vec::new() };
    let starts = (range.start + phase..range.end).step_by(WINDOW_MS);
    let whole = starts.filter(|start| start + WINDOW_MS <= range.end);
    whole.map(|start| (start..start + WINDOW_MS).map(in_range).sum()).collect()
}

fn pictured(variant: ReceiveVariant, run: &GuaranteeRun) -> Vec<SingleValue> {
    let best_effort = ("best effort".to_owned(), &run.best_effort);
    let streams = STREAMS.iter().zip(&run.streams).map(|(stream, bytes)| (stream.name(), bytes));
    let end = run.together.end;
    [best_effort].into_iter().chain(streams).flat_map(|(name, bytes)| timeline(variant, &name, bytes, end)).collect()
}

pub(super) fn timeline(variant: ReceiveVariant, name: &str, bytes: &[u64], end: usize) -> Vec<SingleValue> {
    let place = label(variant.peer(), name, variant.name());
    let points = (0..end / WINDOW_MS).map(|window| {
        let range = window * WINDOW_MS..(window + 1) * WINDOW_MS;
        SingleValue {
            label: at(place.clone(), name, "ms", range.start as u64),
            quantity: "bandwidth".to_owned(),
            value: rate(bytes, &range) / 1e3,
            unit: "MB/s",
            bound: None,
        }
    });
    points.collect()
}

/// Returns the judged milliseconds between `begin` and `end`, without the first [`SETTLING_MS`].
pub(super) fn settled(begin: Duration, end: Duration) -> Range<usize> {
    let milliseconds = |time: Duration| usize::try_from(time.as_millis()).unwrap_or(0);
    milliseconds(begin) + SETTLING_MS..milliseconds(end).max(milliseconds(begin) + SETTLING_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of bytes that arrive in each millisecond of a stream. Each period brings
    /// `bytes` bytes: a half in its millisecond 3, and a half in its millisecond 4.
    fn arriving(bytes: u64, milliseconds: usize) -> Vec<u64> {
        (0..milliseconds).map(|at| if matches!(at % PERIOD_MS, 3 | 4) { bytes / 2 } else { 0 }).collect()
    }

    fn run() -> GuaranteeRun {
        let best_effort = (0..1000).map(|at| if at < 500 { 30_000 } else { 15_000 }).collect();
        let streams = STREAMS.iter().map(|stream| arriving(stream.bytes.into(), 1000)).collect();
        GuaranteeRun { best_effort, streams, alone: 100..500, together: 504..1000 }
    }

    #[test]
    fn windows_begin_between_the_bytes_of_two_periods() {
        let bytes = arriving(100, 1000);
        assert_eq!(windows(&bytes, &(504..1000)), [1000; 4]);
        let mut moved = bytes.clone();
        moved[623..630].rotate_right(2);
        moved[720..725].rotate_left(1);
        assert_eq!(windows(&moved, &(504..1000)), [1000; 4]);
        assert_eq!(windows(&bytes, &(500..560)), [0; 0]);
        assert_eq!(settled(Duration::from_millis(100), Duration::from_millis(1000)), 400..1000);
        assert!(settled(Duration::from_millis(900), Duration::from_millis(1000)).is_empty());
    }

    #[test]
    fn rates_are_compared_with_the_guarantees() {
        let mut late = run();
        // In one period the second stream receives nothing, and the third stream receives twice its
        // bytes.
        late.streams[1][620..630].fill(0);
        late.streams[2][623] *= 3;
        let values = judged(ReceiveVariant::Steered, &[run(), late]);
        let of = |config: &str, quantity: &str| {
            let found = values.iter().find(|value| value.label.op == config && value.quantity.contains(quantity));
            found.map(|value| ((value.value * 1e3).round() / 1e3, value.bound)).unwrap()
        };
        assert_eq!(of("6.55 MB/s", "received"), (6.554, None));
        assert_eq!(of("6.55 MB/s", "worst"), (0.0, Some(goals::MAX_WINDOW_ERROR)));
        assert_eq!(of("3.28 MB/s", "worst"), (10.0, Some(goals::MAX_WINDOW_ERROR)));
        assert_eq!(of("3.28 MB/s", "from the guarantee"), (1.25, Some(goals::MAX_RATE_ERROR)));
        assert_eq!(of("1.64 MB/s", "worst"), (10.0, Some(goals::MAX_WINDOW_ERROR)));
        assert_eq!(of("best effort", "alone").0, 30.0);
        let shortfall = 100.0 - 100.0 * 15_000.0 / (30_000.0 - 11_468.8);
        let rounded = (shortfall * 1e3_f64).round() / 1e3;
        assert_eq!(of("best effort", "shortfall"), (rounded, Some(goals::MAX_REST_SHORTFALL)));
    }

    #[test]
    fn best_effort_falls_short_of_the_rest_of_its_rate_alone() {
        let shortfall = |alone, beside| shortfall(ReceiveVariant::Steered, alone, beside);
        assert_eq!(shortfall(30_000.0, 0.0), Ok(100.0));
        assert_eq!(shortfall(30_000.0, 20_000.0), Ok(0.0));
        assert!(shortfall(11_000.0, 5_000.0).unwrap_err().contains("11.0 MB/s, does not exceed"));
    }

    #[test]
    fn budget_in_packets_is_judged_by_full_packets() {
        let rates = STREAMS.map(|stream| stream.rate(ReceiveVariant::PacketBudget));
        assert_eq!(rates, [6_516.0, 3_185.6, 1_592.8]);
    }

    #[test]
    fn bandwidth_is_pictured_by_time() {
        let points = pictured(ReceiveVariant::Steered, &run());
        assert_eq!(points.len(), 40);
        let place = points[5].label.axis_point.as_ref().unwrap();
        assert_eq!((place.series.as_str(), place.x, points[5].value), ("best effort", 500, 15.0));
    }
}
