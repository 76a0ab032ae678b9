//! Periodic clients: each job is a call at a fixed time, whose reply is due one period later.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::rt::RtOrb;
use corelane_sys::clock::{self, Monotonic};
use corelane_sys::thread::{CpuSet, JoinHandle, Scheduling, ThreadBuilder};

use crate::Failure;
use crate::cost;
use crate::orb::generated::cubit::CountedTargetRef;

const LEAD: Duration = Duration::from_millis(200);

const STEAL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct PeriodicClient {
    pub(super) target: CountedTargetRef,
    pub(super) rounds: u32,
    pub(super) period: Duration,
    /// Core of the client's thread; `None` if it may run on every core.
    pub(super) core: Option<usize>,
    pub(super) scheduling: Scheduling,
    /// CORBA priority that the client's thread sets, with the ORB that maps it; `None` if the
    /// thread keeps `scheduling`.
    pub(super) priority: Option<(RtOrb, i16)>,
}

/// A job. Its times are in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) due: u64,
    pub(super) replied: u64,
}

impl Job {
    fn is_late(self, period: Duration) -> bool {
        u128::from(self.replied.saturating_sub(self.due)) > period.as_nanos()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobCounts {
    pub(super) jobs: usize,
    /// Late jobs during which the hypervisor took no time.
    pub(super) missed: usize,
    /// Late jobs during which the hypervisor took time.
    pub(super) stalled: usize,
}

impl JobCounts {
    fn add(&mut self, jobs: &[Job], period: Duration, stolen: &[Stolen]) {
        self.jobs += jobs.len();
        for job in jobs.iter().filter(|job| job.is_late(period)) {
            match stolen.iter().any(|stolen| stolen.from < job.replied && job.due < stolen.until) {
                true => self.stalled += 1,
                false => self.missed += 1,
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stolen {
    from: u64,
    until: u64,
}

/// Returns the intervals between successive readings in which the stolen time has grown. A reading
/// is a time in nanoseconds, and the stolen time in milliseconds up to this time.
fn stolen(readings: &[(u64, f64)]) -> Vec<Stolen> {
    let grown = readings.windows(2).filter(|pair| pair[1].1 > pair[0].1);
    grown.map(|pair| Stolen { from: pair[0].0, until: pair[1].0 }).collect()
}

fn stolen_ms() -> f64 {
    fs::read_to_string("/proc/stat").ok().as_deref().and_then(cost::steal_ms).unwrap_or(0.0)
}

/// Runs all clients for `time`, with their first jobs at the same moment. A late client begins its
/// next job at once.
pub(super) fn run_jobs(clients: Vec<PeriodicClient>, time: Duration) -> Result<JobCounts, Failure> {
    let over = Arc::new(AtomicBool::new(false));
    let begin = clock::now() + LEAD;
    let mut threads = Vec::with_capacity(clients.len());
    for (number, client) in clients.into_iter().enumerate() {
        let period = client.period;
        let mut builder = ThreadBuilder::new().name(format!("client/{number}")).stack_size(256 * 1024);
        builder = builder.scheduling(client.scheduling);
        if let Some(core) = client.core {
            builder = builder.affinity(CpuSet::one(core));
        }
        let over = over.clone();
        let thread = builder.spawn(move || client.run(begin, time, &over));
        let refused = |error| Failure::new(format!("a client thread cannot be started: {error}"));
        threads.push((period, thread.map_err(refused)?));
    }
    let mut readings = vec![(clock::now().as_nanos(), stolen_ms())];
    while clock::now() < begin + time {
        std::thread::sleep(STEAL_INTERVAL);
        readings.push((clock::now().as_nanos(), stolen_ms()));
    }
    over.store(true, Ordering::Relaxed);
    let ended = |thread: JoinHandle<Result<Vec<Job>, Failure>>| {
        thread.join().map_err(|_| Failure::new("a client thread panicked"))?
    };
    let jobs: Vec<(Duration, Result<Vec<Job>, Failure>)> =
        threads.into_iter().map(|(period, thread)| (period, ended(thread))).collect();
    readings.push((clock::now().as_nanos(), stolen_ms()));
    let stolen = stolen(&readings);
    let mut counts = JobCounts::default();
    for (period, jobs) in jobs {
        counts.add(&jobs?, period, &stolen);
    }
    Ok(counts)
}

impl PeriodicClient {
    fn run(self, begin: Monotonic, time: Duration, over: &AtomicBool) -> Result<Vec<Job>, Failure> {
        if let Some((orb, priority)) = &self.priority {
            orb.current()?.set_priority(*priority)?;
        }
        self.target.work(1)?;
        let mut jobs = Vec::with_capacity((time.as_nanos() / self.period.as_nanos().max(1)) as usize + 1);
        let mut due = begin;
        while due < begin + time && !over.load(Ordering::Relaxed) {
            std::thread::sleep(due.remaining());
            self.target.work(self.rounds)?;
            jobs.push(Job { due: due.as_nanos(), replied: clock::now().as_nanos() });
            due += self.period;
        }
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_jobs_count_unless_the_hypervisor_took_time() {
        let period = Duration::from_nanos(100);
        let job = |due, replied| Job { due, replied };
        let jobs = [job(0, 100), job(100, 201), job(200, 320), job(400, 550)];
        let stolen = stolen(&[(0, 10.0), (190, 10.0), (250, 20.0), (390, 20.0), (600, 20.0)]);
        assert_eq!(stolen, [Stolen { from: 190, until: 250 }]);
        let mut counts = JobCounts::default();
        counts.add(&jobs, period, &stolen);
        assert_eq!(counts, JobCounts { jobs: 4, missed: 1, stalled: 2 });
    }
}
