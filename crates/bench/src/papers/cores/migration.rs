//! The benchmark `cores-migration`, which measures the time to move a thread to another core (table
//! II of the MC-ORB paper).
//!
//! The time of a *self* migration is half of the time in which a thread moves itself to the other
//! core and back. The other two numbers are the times of the system call by which a manager moves a
//! running or a sleeping thread from another core to the manager's core. With fixed priorities the
//! manager's priority is higher, so the moved thread waits until the manager has moved it back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::semaphore::Semaphore;
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling, ThreadBuilder, Tid};

use super::{core_pair, label};
use crate::Failure;
use crate::harness::{ComparedQuantity, Group, MeasuredSubject, Progress, Variant};
use crate::options::BenchOptions;
use crate::placement::{CoreChoice, Placement, Side};
use crate::report::Report;
use crate::sample::Samples;
use crate::targets::cores::migration as goals;
use crate::value::SingleValue;

const BENCH: &str = "cores-migration";

const PATIENCE: Duration = Duration::from_secs(5);

/// Number of measurements after which the measuring thread pauses, so that threads of fixed
/// priority do not keep a core.
const MOVES_WITHOUT_PAUSE: usize = 200;

const WARM_UP: usize = 10;

const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
struct Cores {
    manager: usize,
    other: usize,
}

fn refused(error: std::io::Error) -> Failure {
    Failure::new(format!("the kernel does not move the thread: {error}"))
}

struct SelfMigration(Cores);

impl MeasuredSubject for SelfMigration {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let (home, away) = (CpuSet::one(self.0.manager), CpuSet::one(self.0.other));
        let once = || {
            let began = clock::now();
            thread::set_affinity(None, &away).map_err(refused)?;
            thread::set_affinity(None, &home).map_err(refused)?;
            Ok::<_, Failure>(began.elapsed())
        };
        timed(warm_up, count, into, once, 2)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

/// Calls `once`, which returns the time of `parts` moves, `warm_up + count` times. Adds the time of
/// one move to `into` for each of the last `count` calls.
fn timed(
    warm_up: usize,
    count: usize,
    into: &mut Samples,
    mut once: impl FnMut() -> Result<Duration, Failure>,
    parts: u64,
) -> Result<Duration, Failure> {
    let began = clock::now();
    for number in 0..warm_up + count {
        let time = once()?;
        if number >= warm_up {
            into.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / parts);
        }
        if number % MOVES_WITHOUT_PAUSE == MOVES_WITHOUT_PAUSE - 1 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(began.elapsed())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MovedThread {
    Running,
    Sleeping,
}

struct Managed {
    cores: Cores,
    moved: MovedThread,
    priority: Option<u8>,
}

struct Subject {
    tid: Tid,
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    tid: OnceLock<Tid>,
    turns: AtomicU64,
    sleep: Semaphore,
}

impl Subject {
    fn start(cores: Cores, moved: MovedThread, priority: Option<u8>) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let scheduling = priority.map_or(Scheduling::Other, |priority| Scheduling::Fifo((priority - 1).max(1)));
        let builder =
            ThreadBuilder::new().name("bench/moved").affinity(CpuSet::one(cores.other)).scheduling(scheduling);
        let body = move || {
            let _ = own.tid.set(thread::current_tid());
            match moved {
                MovedThread::Sleeping => own.sleep.wait(),
                MovedThread::Running => {
                    while !own.stop.load(Ordering::Relaxed) {
                        own.turns.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        let handle = builder.spawn(body).map_err(refused)?;
        let tid = *shared.tid.wait();
        Ok(Subject { tid, shared, handle: Some(handle) })
    }

    fn await_running(&self) -> Result<(), Failure> {
        let before = self.shared.turns.load(Ordering::Relaxed);
        let deadline = clock::now() + PATIENCE;
        while self.shared.turns.load(Ordering::Relaxed) == before {
            if deadline.is_past() {
                return Err(Failure::new("the moved thread does not run"));
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.sleep.post();
        if let Some(handle) = self.handle.take() {
            // A panic of the thread is ignored, because the manager has measured the times.
            let _ = handle.join();
        }
    }
}

impl MeasuredSubject for Managed {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let subject = Subject::start(self.cores, self.moved, self.priority)?;
        let (here, there) = (CpuSet::one(self.cores.manager), CpuSet::one(self.cores.other));
        // Gives the thread time to begin its sleep.
        std::thread::sleep(Duration::from_millis(1));
        let once = || {
            if self.moved == MovedThread::Running {
                subject.await_running()?;
            }
            let began = clock::now();
            thread::set_affinity(Some(subject.tid), &here).map_err(refused)?;
            let time = began.elapsed();
            thread::set_affinity(Some(subject.tid), &there).map_err(refused)?;
            Ok(time)
        };
        timed(warm_up, count, into, once, 1)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

/// Moves a sleeping thread `count` times from core `other` to core `manager`, and returns the times
/// of the system calls in nanoseconds. The calling thread makes the calls on core `manager`. It
/// runs at the fixed priority `priority`; with `None`, in its present scheduling class.
pub(crate) fn sleeping_moves(
    count: usize,
    (manager, other): (usize, usize),
    priority: Option<u8>,
) -> Result<Vec<u64>, Failure> {
    let placement = Placement { cores: CoreChoice::Shared(manager), scheduling: priority.map(Scheduling::Fifo) };
    let _entered = placement.enter(Side::Client).map_err(refused)?;
    let mut samples = Samples::with_capacity(count);
    let mut managed = Managed { cores: Cores { manager, other }, moved: MovedThread::Sleeping, priority };
    managed.run(WARM_UP, count, &mut samples)?;
    Ok(samples.skip_first(0).to_vec())
}

pub(crate) fn migration(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let Some((one, other)) = core_pair(options) else {
        return report.add_missing(BENCH, "floor", super::ONE_CORE);
    };
    let priority = match options.placement.scheduling {
        Some(Scheduling::Fifo(priority)) => Some(priority.max(2)),
        _ => None,
    };
    let mut values = Vec::new();
    for (manager, other) in [(one, other), (other, one)] {
        let cores = Cores { manager, other };
        let managed = |moved| Box::new(Managed { cores, moved, priority });
        let variant = |config: &str, subject, against| {
            let label = label(BENCH, "floor", &format!("manager on core {manager}"), config.to_owned());
            Variant { label, subject, against }
        };
        let variants = vec![
            variant("running thread, by a manager", managed(MovedThread::Running), Vec::new()),
            variant("sleeping thread, by a manager", managed(MovedThread::Sleeping), vec![0]),
            variant("itself", Box::new(SelfMigration(cores)) as Box<dyn MeasuredSubject + Send>, vec![0]),
        ];
        let title = format!("{BENCH}: one way to another core, manager and self on core {manager}");
        let group = Group { title, compare: ComparedQuantity::Median, variants };
        let scheduling = priority.map(Scheduling::Fifo).or(options.placement.scheduling);
        let placement = Placement { cores: CoreChoice::Shared(manager), scheduling };
        let figures = report.measure(group, &options.run_length, &placement, progress)?;
        let sleeping = figures.iter().find(|figure| figure.label.config.starts_with("sleeping"));
        values.extend(sleeping.and_then(|figure| {
            Some(SingleValue {
                label: figure.label.clone(),
                quantity: "median, against a running thread".to_owned(),
                value: figure.ratios.first()?.ratio,
                unit: "x",
                bound: Some(goals::MAX_SLEEPING_RATIO),
            })
        }));
    }
    report.add_json_values(&format!("{BENCH}: goals"), &values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_moved_the_requested_number_of_times() {
        let all: Vec<usize> = thread::affinity(None).unwrap().iter().collect();
        let cores = Cores { manager: all[0], other: all[all.len() - 1] };
        let placement = Placement { cores: CoreChoice::Shared(cores.manager), scheduling: None };
        let mut subjects: Vec<Box<dyn MeasuredSubject>> = vec![
            Box::new(SelfMigration(cores)),
            Box::new(Managed { cores, moved: MovedThread::Sleeping, priority: None }),
        ];
        // With one core, a running thread could only run in the manager's place.
        if cores.manager != cores.other {
            subjects.push(Box::new(Managed { cores, moved: MovedThread::Running, priority: None }));
        }
        let _entered = placement.enter(Side::Client).unwrap();
        for subject in &mut subjects {
            let mut samples = Samples::with_capacity(10);
            subject.run(2, 10, &mut samples).unwrap();
            assert_eq!(samples.len(), 10);
        }
    }

    #[test]
    fn one_way_is_a_part_of_the_measured_time() {
        let mut samples = Samples::with_capacity(3);
        timed(1, 3, &mut samples, || Ok(Duration::from_nanos(50)), 2).unwrap();
        assert_eq!(samples.skip_first(0), [25, 25, 25]);
    }
}
