//! The benchmark `cores-isolation`, which measures calls of a task beside a task that overruns, a
//! flooding client, and requests without a task, compared with the same calls alone.
//!
//! A core pool serves all requests on one core, where the task has the highest priority. All
//! clients run on another core, where the task's client has the highest priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::rt::CorePoolMode;
use corelane_sys::clock;
use corelane_sys::thread::{CpuSet, JoinHandle, Scheduling, ThreadBuilder};

use super::{core_pair, label, server};
use crate::Failure;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Group, MeasuredSubject, Progress, RunLength, Variant};
use crate::options::BenchOptions;
use crate::orb::client::target;
use crate::orb::client_orb;
use crate::orb::generated::cubit::CountedTargetRef;
use crate::papers::cpu::rounds_for;
use crate::placement::{CoreChoice, Placement};
use crate::report::Report;
use crate::sample::Samples;
use crate::targets::cores::isolation as goals;
use crate::testbed::require_fixed_priorities;
use crate::value::SingleValue;

const BENCH: &str = "cores-isolation";

const PATIENCE: Duration = Duration::from_secs(20);

const TASK_PRIORITY: u8 = 60;
const OTHER_PRIORITY: u8 = 20;

const CLIENT_PRIORITY: u8 = 60;

/// Pause before each call of the task, so that the disturbing tasks get the core.
const PAUSE: Duration = Duration::from_micros(500);

/// Time that a job of the overrunning task computes. The pause [`REST`] follows, which leaves a
/// part of the core to other threads.
const OVERRUN: Duration = Duration::from_millis(18);
const REST: Duration = Duration::from_millis(2);

const MOST_CALLS: usize = 4_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Overrunner,
    Flood,
    BestEffort,
}

const ALL: [Beside; 4] = [Beside::Nothing, Beside::Overrunner, Beside::Flood, Beside::BestEffort];

impl Beside {
    fn name(self) -> &'static str {
        match self {
            Beside::Nothing => "alone",
            Beside::Overrunner => "beside an overrunning task",
            Beside::Flood => "beside a flooding client",
            Beside::BestEffort => "beside requests without a task",
        }
    }

    /// Returns the number of the object that the disturbing client calls; `None` if there is no
    /// such client. Object 4 belongs to no task.
    fn object(self) -> Option<usize> {
        match self {
            Beside::Nothing => None,
            Beside::Overrunner => Some(2),
            Beside::Flood => Some(3),
            Beside::BestEffort => Some(4),
        }
    }
}

const OBJECTS: usize = 4;

struct TaskCalls {
    task: CountedTargetRef,
    beside: Beside,
    other: Option<CountedTargetRef>,
    rounds: u32,
    core: usize,
    server: u32,
}

impl TaskCalls {
    fn disturb(&self, over: &Arc<AtomicBool>) -> Result<Option<JoinHandle<Result<(), Failure>>>, Failure> {
        let Some(other) = self.other.clone() else { return Ok(None) };
        let (over, is_overrunner, rounds) = (over.clone(), self.beside == Beside::Overrunner, self.rounds);
        let builder = ThreadBuilder::new().name("bench/beside").affinity(CpuSet::one(self.core));
        let thread = builder.scheduling(Scheduling::Other).spawn(move || {
            while !over.load(Ordering::Relaxed) {
                if is_overrunner {
                    other.work(rounds)?;
                    std::thread::sleep(REST);
                } else {
                    other.echo_octet(1)?;
                }
            }
            Ok(())
        });
        thread.map(Some).map_err(|error| Failure::new(format!("a client thread cannot be started: {error}")))
    }
}

impl MeasuredSubject for TaskCalls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let over = Arc::new(AtomicBool::new(false));
        let disturbing = self.disturb(&over)?;
        let once = || {
            std::thread::sleep(PAUSE);
            let began = clock::now();
            self.task.echo_octet(1)?;
            Ok::<_, Failure>(began.elapsed())
        };
        let began = clock::now();
        let called = (0..warm_up + count).try_for_each(|number| {
            let time = once()?;
            if number >= warm_up {
                into.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            }
            Ok::<(), Failure>(())
        });
        over.store(true, Ordering::Relaxed);
        if let Some(thread) = disturbing {
            thread.join().map_err(|_| Failure::new("a client thread panicked"))??;
        }
        called.map(|()| began.elapsed())
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

pub(crate) fn isolation(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if !require_fixed_priorities(BENCH, report)? {
        return Ok(());
    }
    let Some((client, served)) = core_pair(options) else {
        return report.add_missing(BENCH, "Corelane", super::ONE_CORE);
    };
    progress.show(&format!("{BENCH}: octet"));
    let cores = [client.min(served), client.max(served)];
    let (mut server, references) =
        server::start_core_pool(&cores, OBJECTS, CorePoolMode::Bound, &Placement::default())?;
    let tasks = format!("set 1:{served}:{TASK_PRIORITY} 2:{served}:{OTHER_PRIORITY} 3:{served}:{OTHER_PRIORITY}");
    server.ask(&tasks, PATIENCE)?;
    let rounds = rounds_for(OVERRUN);
    // Each client has a separate ORB, so that clients share no connection.
    let orbs = ALL.iter().map(|_| Ok([client_orb(0)?, client_orb(0)?])).collect::<Result<Vec<_>, Failure>>()?;
    let mut variants = Vec::new();
    for (beside, [for_task, for_other]) in ALL.into_iter().zip(&orbs) {
        let other = beside.object().map(|number| target(for_other, &references[number - 1])).transpose()?;
        let label = FigureLabel { transport: "tcp", ..label(BENCH, "Corelane", "octet", beside.name().to_owned()) };
        let subject = TaskCalls {
            task: target(for_task, &references[0])?,
            beside,
            other,
            rounds,
            core: client,
            server: server.pid(),
        };
        let against = if beside == Beside::Nothing { Vec::new() } else { vec![0] };
        variants.push(Variant { label, subject: Box::new(subject), against });
    }
    let title =
        format!("{BENCH}: a task on core {served} at priority {TASK_PRIORITY}, others there at {OTHER_PRIORITY}");
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let placement =
        Placement { cores: CoreChoice::Shared(client), scheduling: Some(Scheduling::Fifo(CLIENT_PRIORITY)) };
    let length = RunLength { count: options.run_length.count.min(MOST_CALLS), ..options.run_length };
    let length = RunLength { warm_up: length.warm_up.min(100), ..length };
    let figures = report.measure(group, &length, &placement, progress)?;
    report.add_json_values(&format!("{BENCH}: goals"), &judged(&figures))
}

fn judged(figures: &[Figure]) -> Vec<SingleValue> {
    let [alone, others @ ..] = figures else { return Vec::new() };
    let ratio = |figure: &Figure| SingleValue {
        label: figure.label.clone(),
        quantity: "p99, against the task alone".to_owned(),
        value: figure.summary.p99_us / alone.summary.p99_us,
        unit: "x",
        bound: Some(goals::MAX_P99_RATIO),
    };
    others.iter().map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Summary;

    #[test]
    fn percentiles_are_compared_with_the_task_alone() {
        let figure = |beside: Beside, nanoseconds: u64| Figure {
            label: label(BENCH, "Corelane", "octet", beside.name().to_owned()),
            summary: Summary::of(&[nanoseconds], Duration::from_secs(1)).unwrap(),
            medians_us: Vec::new(),
            cdf_us: Vec::new(),
            ratios: Vec::new(),
            cost: None,
            calls: 1,
        };
        let values = judged(&[figure(Beside::Nothing, 20_000), figure(Beside::Flood, 21_000)]);
        assert_eq!(values.len(), 1);
        assert_eq!((values[0].value, values[0].bound), (1.05, Some(goals::MAX_P99_RATIO)));
        assert!(judged(&[]).is_empty());
    }

    #[test]
    fn each_disturbing_client_has_an_object_of_its_own() {
        let objects: Vec<_> = ALL.into_iter().filter_map(Beside::object).collect();
        assert_eq!(objects, [2, 3, OBJECTS]);
    }
}
