//! The benchmark `switch`, which measures the time that the operating system needs to switch a core
//! between threads.
//!
//! The tests are those of the papers. Each test has a variant with a second thread, and a variant
//! in which one thread does equal work alone. The difference is the time of the switch:
//!
//! * *yield*: two threads of equal priority yield to each other.
//! * *suspend-resume*: a thread wakes a thread of higher priority, which waits again. This takes
//!   two switches.
//! * *synchronized suspend-resume*: a thread of higher priority waits for a lock. The time is from
//!   just before the release to just after the acquisition, which is one switch.
//! * *across cores*, and without permission for fixed priorities: the two threads of the
//!   suspend-resume tests wake each other in turn, which takes two switches.

mod partner;
mod stage;

use corelane_sys::lock::{LockScope, Mutex, PiMutex};
use corelane_sys::thread::{self, Scheduling, ThreadBuilder};

use crate::Failure;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Group, Progress, Variant};
use crate::options::BenchOptions;
use crate::placement::{CoreChoice, Placement};
use crate::report::Report;
use crate::value::SingleValue;
use partner::{LockHandover, SingleThread, WakingPair, Yielders};
use stage::{SwitchSetting, WakeMechanism};

const YIELD: &str = "yield";

struct SwitchTest {
    name: &'static str,
    /// Index of the variant with a second thread. The next variant has no second thread.
    at: usize,
    switches: f64,
    /// How many times the variant with a second thread does the work of the variant without one.
    works: f64,
}

pub(crate) fn switch(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let cores: Vec<usize> = thread::affinity(None).map(|set| set.iter().collect()).unwrap_or_default();
    let (first, second) = match options.placement.cores {
        CoreChoice::Shared(core) => (core, cores.iter().copied().find(|other| *other != core)),
        CoreChoice::Separate(client, server) => (client, (client != server).then_some(server)),
        CoreChoice::Any => (cores.last().copied().unwrap_or(0), cores.first().copied().filter(|_| cores.len() > 1)),
    };
    let priority = match options.placement.scheduling {
        Some(Scheduling::Fifo(priority)) => Some(priority.min(98)),
        Some(_) => None,
        // The papers' threads have fixed priorities, so the benchmark uses a fixed priority if the
        // kernel permits it.
        None => ThreadBuilder::new().scheduling(Scheduling::Fifo(10)).spawn(|| ()).is_ok().then_some(10),
    };
    if priority.is_none() {
        let reason = "preemption by a higher priority: fixed priorities are not permitted here; threads wake each other in turn instead";
        report.add_missing("switch", "floor", reason)?;
    }
    let same = SwitchSetting { partner: Some(first), priority, same_core: true };
    one_stage("on one core", first, same, options, report, progress)?;
    match second {
        Some(core) => {
            let across = SwitchSetting { partner: Some(core), priority, same_core: false };
            one_stage("across cores", first, across, options, report, progress)
        }
        None => report.add_missing("switch", "floor", "switches across cores: the process may use one core only"),
    }
}

fn one_stage(
    place: &'static str,
    core: usize,
    stage: SwitchSetting,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut variants = Vec::new();
    let mut tests = Vec::new();
    let mut add = |name: &'static str,
                   switches: f64,
                   works: f64,
                   with: Box<dyn crate::harness::MeasuredSubject + Send>,
                   alone| {
        let label = |config: String| FigureLabel {
            bench: "switch",
            peer: "floor",
            transport: "none",
            op: place.to_owned(),
            config,
            axis_point: None,
        };
        tests.push(SwitchTest { name, at: variants.len(), switches, works });
        let after = variants.len() + 1;
        variants.push(Variant { label: label(name.to_owned()), subject: with, against: vec![after] });
        variants.push(Variant { label: label(format!("{name}, alone")), subject: alone, against: Vec::new() });
    };
    if stage.same_core {
        add(YIELD, 2.0, 2.0, Box::new(Yielders { stage }), Box::new(SingleThread::yielding(stage)));
    }
    for (waker, name) in
        [(WakeMechanism::Futex, "suspend-resume, futex"), (WakeMechanism::Semaphore, "suspend-resume, semaphore")]
    {
        // Without preemption, both threads wake and wait in each turn.
        let works = if stage.preempts() { 1.0 } else { 2.0 };
        add(name, 2.0, works, Box::new(WakingPair { stage, waker }), Box::new(SingleThread::waking(stage, waker)));
    }
    let plain = || Mutex::new("bench switch", LockScope::Lane, ());
    let inheriting = || PiMutex::new("bench switch", LockScope::Lane, ());
    add(
        "synchronized, mutex",
        1.0,
        1.0,
        Box::new(LockHandover::new(stage, plain())),
        Box::new(SingleThread::locking(stage, plain())),
    );
    add(
        "synchronized, PI mutex",
        1.0,
        1.0,
        Box::new(LockHandover::new(stage, inheriting())),
        Box::new(SingleThread::locking(stage, inheriting())),
    );
    let group = Group {
        title: format!("context switches {place}, {}", stage.class()),
        compare: ComparedQuantity::Median,
        variants,
    };
    let placement = Placement { cores: CoreChoice::Shared(core), scheduling: stage.priority.map(Scheduling::Fifo) };
    let figures = report.measure(group, &options.run_length, &placement, progress)?;
    let values: Vec<SingleValue> = tests.iter().flat_map(|test| test.values(&figures)).collect();
    report.add_values(&format!("one context switch {place}, {}", stage.class()), &values)
}

impl SwitchTest {
    fn values(&self, figures: &[Figure]) -> Vec<SingleValue> {
        let (Some(with), Some(alone)) = (figures.get(self.at), figures.get(self.at + 1)) else { return Vec::new() };
        let one = |with: f64, alone: f64| (with - self.works * alone) / self.switches;
        let value = |quantity: &str, value: f64| SingleValue {
            label: FigureLabel { config: self.name.to_owned(), ..with.label.clone() },
            quantity: quantity.to_owned(),
            value,
            unit: "us",
            bound: None,
        };
        let mut values = vec![
            value("switch, from medians", one(with.summary.p50_us, alone.summary.p50_us)),
            value("switch, from means", one(with.summary.mean_us, alone.summary.mean_us)),
            value("jitter", with.summary.sd_us.hypot(self.works * alone.summary.sd_us) / self.switches),
        ];
        if self.name == YIELD {
            // The papers' table of yields does not subtract the single thread's work.
            values.push(value("a yield that switches", with.summary.p50_us / self.switches));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Samples, Summary};
    use std::time::Duration;

    #[test]
    fn work_of_the_single_thread_is_subtracted() {
        let figure = |nanoseconds: u64| Figure {
            label: FigureLabel {
                bench: "switch",
                peer: "floor",
                transport: "none",
                op: String::new(),
                config: String::new(),
                axis_point: None,
            },
            summary: Summary::of(&[nanoseconds; 4], Duration::from_secs(1)).unwrap(),
            medians_us: Vec::new(),
            cdf_us: Vec::new(),
            ratios: Vec::new(),
            cost: None,
            calls: 4,
        };
        let test = SwitchTest { name: "x", at: 0, switches: 2.0, works: 2.0 };
        let values = test.values(&[figure(5000), figure(1000)]);
        assert_eq!(values.iter().map(|value| value.value).collect::<Vec<_>>(), [1.5, 1.5, 0.0]);
        assert!(test.values(&[]).is_empty());
    }

    #[test]
    fn every_switch_test_records_the_requested_number_of_times() {
        let stage = SwitchSetting { partner: None, priority: None, same_core: false };
        let lock = || PiMutex::new("bench switch", LockScope::Lane, ());
        let mut subjects: Vec<Box<dyn crate::harness::MeasuredSubject>> = vec![
            Box::new(Yielders { stage }),
            Box::new(SingleThread::yielding(stage)),
            Box::new(LockHandover::new(stage, lock())),
            Box::new(LockHandover::new(stage, Mutex::new("bench switch", LockScope::Lane, ()))),
            Box::new(SingleThread::locking(stage, lock())),
        ];
        for waker in [WakeMechanism::Futex, WakeMechanism::Semaphore] {
            subjects.push(Box::new(WakingPair { stage, waker }));
            subjects.push(Box::new(SingleThread::waking(stage, waker)));
        }
        for subject in &mut subjects {
            let mut samples = Samples::with_capacity(20);
            subject.run(5, 20, &mut samples).unwrap();
            assert_eq!(samples.len(), 20);
        }
    }
}
