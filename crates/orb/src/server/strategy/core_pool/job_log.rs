//! Measurements of jobs, which are requests of tasks: sums for each task, and on request a record
//! of each job in a ring.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelane_sys::clock::{self, Monotonic};
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::{thread, usage};

use crate::rt::core_config::{CoreJob, JobBatch, TaskMeasurement};

/// Number of records that a reader copies under one hold of the ring's lock. Threads of tasks may
/// wait for this lock, so the number is small.
const RECORDS_PER_LOCK: usize = 64;

/// The latest recorded jobs of a core pool, and the time until which jobs are recorded.
pub(super) struct JobLog {
    /// End of the recording, in nanoseconds of the monotonic clock; 0 before the first call of
    /// [`record_until()`](Self::record_until()). Written with the lock of the ring held. Relaxed
    /// ordering is enough, because a job near the end may be recorded or not.
    record_until: AtomicU64,
    ring: PiMutex<JobRing>,
}

/// Number, sum, minimum and maximum of the times of one task's jobs, in nanoseconds. Threads add
/// jobs with relaxed ordering, so a reader may see a job in some of the fields and not in others.
#[derive(Debug)]
pub(super) struct TaskMeter {
    task: u64,
    jobs: AtomicU64,
    sum: AtomicU64,
    shortest: AtomicU64,
    longest: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct TaskMeters(BTreeMap<u64, Arc<TaskMeter>>);

#[derive(Clone, Copy, Debug)]
pub(super) struct JobStart {
    at: Monotonic,
    /// The core, and the processor time that the thread had used when the job began; `None` if the
    /// job is not recorded.
    recorded: Option<(usize, Duration)>,
}

#[derive(Debug, Default)]
struct JobRing {
    capacity: usize,
    /// The record with the number `n` is at `n` modulo the capacity.
    records: Vec<CoreJob>,
    next: u64,
}

impl JobRing {
    /// Adds a record. Does nothing before the ring has its memory.
    fn push(&mut self, job: CoreJob) {
        if self.records.capacity() < self.capacity {
            return;
        }
        let job = CoreJob { number: self.next, ..job };
        let Some(place) = self.place(self.next) else { return };
        match self.records.get_mut(place) {
            Some(slot) => *slot = job,
            // The buffer has room for its capacity, so nothing is allocated.
            None => self.records.push(job),
        }
        self.next += 1;
    }

    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_rem(u64::try_from(self.capacity).ok()?)?).ok()
    }

    fn oldest(&self) -> u64 {
        self.next - self.records.len() as u64
    }

    /// Appends up to `most` records, beginning with the record `from` or, if a newer record has
    /// replaced it, with the oldest record. Returns the number after the last appended record.
    fn copy(&self, from: u64, most: usize, jobs: &mut Vec<CoreJob>) -> u64 {
        let from = from.clamp(self.oldest(), self.next);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let until = self.next.min(from.saturating_add(most));
        jobs.extend((from..until).filter_map(|number| self.records.get(self.place(number)?).copied()));
        until
    }
}

impl JobLog {
    pub(super) fn new(capacity: usize) -> Self {
        let ring = JobRing { capacity, ..JobRing::default() };
        JobLog { record_until: AtomicU64::new(0), ring: PiMutex::new("job records", LockScope::Lane, ring) }
    }

    /// Records the jobs that begin before `until`, or before a later end that another call has set.
    pub(super) fn record_until(&self, until: Monotonic) {
        // The memory is allocated outside of the lock, for which threads of tasks may wait.
        let mut memory = Vec::new();
        let needed = {
            let ring = self.ring.lock();
            if ring.records.capacity() < ring.capacity { ring.capacity } else { 0 }
        };
        memory.reserve_exact(needed);
        let mut ring = self.ring.lock();
        if ring.records.capacity() < memory.capacity() {
            std::mem::swap(&mut ring.records, &mut memory);
        }
        self.record_until.fetch_max(until.as_nanos(), Ordering::Relaxed);
        drop(ring);
    }

    pub(super) fn recorded(&self, from: u64, most: usize) -> JobBatch {
        let most = most.min(self.ring.lock().records.len());
        let mut jobs = Vec::with_capacity(most);
        let mut next = from;
        loop {
            let left = most - jobs.len();
            let before = jobs.len();
            next = self.ring.lock().copy(next, left.min(RECORDS_PER_LOCK), &mut jobs);
            if jobs.len() == before || jobs.len() >= most {
                return JobBatch { jobs, next_number: next };
            }
        }
    }

    #[inline]
    pub(super) fn begin(&self) -> JobStart {
        let at = clock::now();
        let is_recorded = at.as_nanos() < self.record_until.load(Ordering::Relaxed);
        JobStart { at, recorded: if is_recorded { Some(start_of_record()) } else { None } }
    }

    #[inline]
    pub(super) fn end(&self, meter: &TaskMeter, start: JobStart) {
        let ended_at = clock::now();
        meter.add(u64::try_from((ended_at - start.at).as_nanos()).unwrap_or(u64::MAX));
        if let Some((core, used)) = start.recorded {
            self.record(meter.task, start.at, ended_at, core, used);
        }
    }

    #[cold]
    fn record(&self, task: u64, started_at: Monotonic, ended_at: Monotonic, core: usize, used: Duration) {
        self.ring.lock().push(CoreJob {
            number: 0,
            task,
            core,
            started_at: started_at.as_nanos(),
            ended_at: ended_at.as_nanos(),
            processor_time: usage::thread_time().saturating_sub(used),
        });
    }
}

#[cold]
fn start_of_record() -> (usize, Duration) {
    (thread::current_core().unwrap_or(0), usage::thread_time())
}

impl TaskMeter {
    fn new(task: u64) -> Self {
        let [jobs, sum, longest] = [const { AtomicU64::new(0) }; 3];
        TaskMeter { task, jobs, sum, shortest: AtomicU64::new(u64::MAX), longest }
    }

    #[inline]
    fn add(&self, nanos: u64) {
        self.jobs.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
        self.shortest.fetch_min(nanos, Ordering::Relaxed);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    fn measurement(&self) -> TaskMeasurement {
        let jobs = self.jobs.load(Ordering::Relaxed);
        let nanos = |sum: &AtomicU64| Duration::from_nanos(sum.load(Ordering::Relaxed));
        let mean = Duration::from_nanos(self.sum.load(Ordering::Relaxed).checked_div(jobs).unwrap_or(0));
        let shortest = if jobs == 0 { Duration::ZERO } else { nanos(&self.shortest) };
        TaskMeasurement {
            task: self.task,
            jobs,
            min_response: shortest,
            mean_response: mean,
            max_response: nanos(&self.longest),
        }
    }
}

impl TaskMeters {
    /// Creates the missing meters of these tasks, and drops the meters of all other tasks.
    pub(super) fn set_tasks(&mut self, tasks: impl Iterator<Item = u64>) {
        let mut kept = BTreeMap::new();
        for task in tasks {
            let meter = self.0.remove(&task).unwrap_or_else(|| Arc::new(TaskMeter::new(task)));
            kept.insert(task, meter);
        }
        self.0 = kept;
    }

    pub(super) fn get(&self, task: u64) -> Option<Arc<TaskMeter>> {
        self.0.get(&task).cloned()
    }

    pub(super) fn measurements(&self) -> Vec<TaskMeasurement> {
        self.0.values().map(|meter| meter.measurement()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(task: u64) -> CoreJob {
        CoreJob { number: 0, task, core: 1, started_at: task, ended_at: task + 1, processor_time: Duration::ZERO }
    }

    fn ring(capacity: usize, jobs: u64) -> JobRing {
        let mut ring = JobRing { capacity, records: Vec::with_capacity(capacity), next: 0 };
        (0..jobs).for_each(|task| ring.push(job(task)));
        ring
    }

    #[test]
    fn ring_keeps_the_last_records_in_the_order_of_their_numbers() {
        for capacity in 1..5 {
            for pushed in 0..12 {
                let ring = ring(capacity, pushed);
                assert_eq!(ring.records.capacity(), capacity);
                for from in 0..14 {
                    for most in 0..6 {
                        let mut jobs = Vec::new();
                        let next = ring.copy(from, most, &mut jobs);
                        let oldest = pushed.saturating_sub(capacity as u64);
                        let expected: Vec<u64> = (from.max(oldest)..pushed).take(most).collect();
                        let numbers: Vec<u64> = jobs.iter().map(|job| job.number).collect();
                        assert_eq!(numbers, expected, "{capacity} {pushed} {from} {most}");
                        assert!(jobs.iter().all(|job| job.task == job.number));
                        assert_eq!(next, from.clamp(oldest, pushed) + jobs.len() as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn jobs_are_recorded_only_while_they_are_asked_for() {
        let log = JobLog::new(8);
        let mut meters = TaskMeters::default();
        meters.set_tasks([5].into_iter());
        let meter = meters.get(5).unwrap();
        log.end(&meter, log.begin());
        assert_eq!(log.recorded(0, 100), JobBatch { jobs: Vec::new(), next_number: 0 });
        log.record_until(Monotonic::FAR_FUTURE);
        log.record_until(Monotonic::from_nanos(1));
        (0..3).for_each(|_| log.end(&meter, log.begin()));
        let batch = log.recorded(0, 2);
        assert_eq!((batch.jobs.len(), batch.next_number), (2, 2));
        let rest = log.recorded(batch.next_number, 100);
        assert_eq!((rest.jobs.len(), rest.jobs[0].number, rest.next_number), (1, 2, 3));
        assert!(rest.jobs[0].task == 5 && rest.jobs[0].ended_at >= rest.jobs[0].started_at);
        let [measured] = &meters.measurements()[..] else { panic!("one task") };
        assert_eq!((measured.task, measured.jobs), (5, 4));
        assert!(measured.min_response <= measured.mean_response && measured.mean_response <= measured.max_response);
    }

    #[test]
    fn batch_is_copied_in_parts() {
        let log = JobLog::new(1_000);
        log.record_until(Monotonic::FAR_FUTURE);
        let meter = TaskMeter::new(1);
        (0..300).for_each(|_| log.end(&meter, log.begin()));
        for most in [0, 1, 63, 64, 65, 299, 300, 1_000, usize::MAX] {
            let batch = log.recorded(0, most);
            let numbers: Vec<u64> = batch.jobs.iter().map(|job| job.number).collect();
            assert_eq!(numbers, (0..300).take(most).collect::<Vec<_>>());
        }
    }

    #[test]
    fn meters_of_tasks_that_stay_keep_their_sums() {
        let mut meters = TaskMeters::default();
        meters.set_tasks([1, 2].into_iter());
        meters.get(2).unwrap().add(10);
        meters.get(2).unwrap().add(30);
        meters.set_tasks([2, 3].into_iter());
        assert!(meters.get(1).is_none());
        let nanos = Duration::from_nanos;
        let (shortest, mean, longest) = (nanos(10), nanos(20), nanos(30));
        let none = TaskMeasurement {
            task: 3,
            jobs: 0,
            min_response: nanos(0),
            mean_response: nanos(0),
            max_response: nanos(0),
        };
        assert_eq!(
            meters.measurements(),
            [
                TaskMeasurement {
                    task: 2,
                    jobs: 2,
                    min_response: shortest,
                    mean_response: mean,
                    max_response: longest
                },
                none
            ]
        );
    }
}
