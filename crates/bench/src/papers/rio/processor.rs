//! Processor time of the receiver's core for a call and for a megabyte.

use std::fs;
use std::time::Duration;

use super::shared::{BENCH, is_trial, judged_unless_trial, label};
use super::testbed::RioTestbed;
use super::variant::ReceiveVariant;
use crate::Failure;
use crate::harness::Progress;
use crate::options::{BenchOptions, Depth};
use crate::report::Report;
use crate::targets::rio as goals;
use crate::value::SingleValue;

/// A variant is judged if its turns and those of the baseline have at least this mean processor
/// time. The kernel reports steps of 10 ms, so the difference of two readings has an error of up to
/// 10 ms, a twentieth of this time.
const MIN_JUDGED: Duration = Duration::from_millis(200);

/// The time in seconds in which a core was idle or taken by the hypervisor. In all other time the
/// core ran threads or processed packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct IdleTime(f64);

impl IdleTime {
    pub(super) fn of(core: usize) -> Result<Self, Failure> {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&stat, core).ok_or_else(|| Failure::new("the kernel does not report the processor time of cores"))
    }

    /// Parses the time for which the core was idle, waited for input and output, or was stolen. The
    /// numbers of a core in /proc/stat are user, nice, system, idle, iowait, irq, softirq, steal,
    /// in units of 10 ms.
    fn parse(stat: &str, core: usize) -> Option<Self> {
        let name = format!("cpu{core} ");
        let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        let numbers = numbers?;
        let ticks = [3, 4, 7].iter().map(|&at| numbers.get(at).copied()).sum::<Option<f64>>()?;
        Some(Self(ticks / 100.0))
    }

    pub(super) fn work_since(self, earlier: Self, elapsed: Duration) -> Duration {
        let idle = (self.0 - earlier.0).max(0.0);
        Duration::from_secs_f64((elapsed.as_secs_f64() - idle).max(0.0))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub(super) time: Duration,
    pub(super) amount: f64,
    /// Number of turns, each with two readings of the idle time.
    pub(super) turns: u32,
}

impl Work {
    fn add(&mut self, other: Work) {
        self.time += other.time;
        self.amount += other.amount;
        self.turns += other.turns;
    }

    fn is_exact(self) -> bool {
        self.time >= MIN_JUDGED * self.turns
    }

    fn per_unit_us(self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.amount
    }
}

pub(super) fn processor_time(
    testbed: &RioTestbed,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (calls, time) = match options.depth {
        _ if is_trial(options) => (10, Duration::from_millis(100)),
        Depth::Quick => (20_000, Duration::from_millis(700)),
        Depth::Usual => (40_000, Duration::from_secs(2)),
        Depth::Full => (50_000, Duration::from_secs(5)),
    };
    let variants = testbed.variants();
    let mut sums = vec![[Work::default(); 2]; variants.len()];
    for repetition in 0..options.run_length.repetitions.min(5) {
        for (&variant, sums) in variants.iter().zip(&mut sums) {
            progress.show(&format!("{BENCH}: processor time, {} ({})", variant.name(), repetition + 1));
            sums[0].add(testbed.work_of_calls(variant, calls)?);
            sums[1].add(testbed.work_of_bulk(variant, time)?);
        }
    }
    for (at, unit) in ["call", "megabyte"].into_iter().enumerate() {
        let work: Vec<_> = variants.iter().zip(&sums).map(|(&variant, sums)| (variant, sums[at])).collect();
        let values = judged_unless_trial(options, judged(unit, &work));
        report.add_values(&format!("{BENCH}: processor time of the receiver's core, {unit}"), &values)?;
    }
    Ok(())
}

fn judged(unit: &str, work: &[(ReceiveVariant, Work)]) -> Vec<SingleValue> {
    let Some(&(_, baseline)) = work.first() else { return Vec::new() };
    let value = |variant: ReceiveVariant, quantity: String, value, unit, bound| SingleValue {
        label: label(variant.peer(), "processor time", variant.name()),
        quantity,
        value,
        unit,
        bound,
    };
    let mut values = Vec::new();
    for &(variant, work) in work {
        if work.amount <= 0.0 || baseline.time.is_zero() {
            continue;
        }
        values.push(value(variant, format!("for a {unit}"), work.per_unit_us(), "us", None));
        if variant.uses_rio() {
            let is_judged = baseline.is_exact() && work.is_exact();
            let bound = is_judged.then_some(goals::MAX_PROCESSOR_RATIO);
            let ratio = work.per_unit_us() / baseline.per_unit_us();
            values.push(value(variant, format!("for a {unit}, against the kernel"), ratio, "x", bound));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_is_no_work() {
        let stat = |idle: u32| format!("cpu  1 1 1 1 1 1 1 1\ncpu0 1 1 1 {idle} 20 1 1 30 0 0\ncpu1 0 0 0 5 0 0 0 0\n");
        let of = |idle| IdleTime::parse(&stat(idle), 0).unwrap();
        assert_eq!(of(50), IdleTime(1.0));
        assert_eq!(of(80).work_since(of(50), Duration::from_secs(1)), Duration::from_millis(700));
        assert_eq!(of(80).work_since(of(50), Duration::from_millis(100)), Duration::ZERO);
        assert_eq!(IdleTime::parse(&stat(1), 2), None);
        assert!(IdleTime::of(0).is_ok());
    }

    #[test]
    fn processor_times_are_compared_with_the_kernel() {
        let work = |milliseconds, amount| Work { time: Duration::from_millis(milliseconds), amount, turns: 3 };
        let all = |ours| [(ReceiveVariant::KernelFifo, work(1000, 100.0)), (ReceiveVariant::Steered, ours)];
        let of = |ours| judged("call", &all(ours)).iter().map(|value| (value.value, value.bound)).collect::<Vec<_>>();
        let bound = Some(goals::MAX_PROCESSOR_RATIO);
        assert_eq!(of(work(600, 50.0)), [(10_000.0, None), (12_000.0, None), (1.2, bound)]);
        assert_eq!(of(work(599, 10.0))[2].1, None);
        assert_eq!(of(work(100, 0.0)).len(), 1);
    }
}
