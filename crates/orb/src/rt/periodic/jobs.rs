//! The jobs of a periodic task, one after another, and their statistics. The clock is an argument,
//! so that tests run in virtual time.

use std::time::Duration;

use corelane_sched::distribution::TimeDistribution;
use corelane_sched::release::{OverrunRule, ReleaseSequence};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::PiMutex;

/// A job of a periodic task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodicJob {
    number: u64,
    skipped: u64,
    start_lateness: Duration,
    deadline_at: Monotonic,
}

impl PeriodicJob {
    /// Returns the number of the job's release. The first release is 0, and skipped releases count.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of releases between the previous job and this job that got no job.
    #[must_use]
    pub fn skipped_releases(&self) -> u64 {
        self.skipped
    }

    /// Returns the time from the release to the start of the job.
    #[must_use]
    pub fn start_lateness(&self) -> Duration {
        self.start_lateness
    }

    /// Returns the time from now to the job's deadline, zero after the deadline. The job can use
    /// this time as the time-out of its calls.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline_at.remaining()
    }
}

/// A job that ended after the next release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeriodicOverrun {
    /// Number of the job's release.
    pub job: u64,
    /// Time from the release to the end of the job.
    pub response: Duration,
    /// Number of later releases that have passed at the end of the job.
    pub missed_releases: u64,
}

/// The statistics of a periodic task since its start.
///
/// No release is counted both in `started` and in `skipped_releases`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeriodicTaskStatistics {
    /// Jobs that have started.
    pub started: u64,
    /// Jobs that returned without an exception.
    pub completed: u64,
    /// Jobs that returned an exception or panicked.
    pub failed: u64,
    /// Jobs that ended after their deadline.
    pub missed_deadlines: u64,
    /// Jobs that ended later than the next release.
    pub overruns: u64,
    /// Releases that got no job, because of the overrun rule.
    pub skipped_releases: u64,
    /// True if a function of the task panicked, which ended the task.
    /// [`Event::ThreadFailed`](crate::Event::ThreadFailed) reports the panic.
    pub has_panicked: bool,
    /// Nanoseconds from the release to the end of each job.
    pub response: TimeDistribution,
    /// Nanoseconds from the release to the start of each job.
    pub start_lateness: TimeDistribution,
}

pub(super) trait TaskClock {
    fn now(&self) -> u64;

    /// Waits until the time `at`, in nanoseconds. Returns false if the task must stop.
    fn wait_until(&self, at: u64) -> bool;
}

/// The times of a task's jobs in nanoseconds, and the maximum number of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobPlan {
    pub(super) first_release_at: u64,
    pub(super) period: u64,
    pub(super) deadline: u64,
    pub(super) max_jobs: u64,
}

/// Runs the jobs until `clock` tells the task to stop or `plan.max_jobs` have run. `run` returns
/// false if the job failed. `overrun_rule` is asked after each overrun.
pub(super) fn run_jobs(
    plan: &JobPlan,
    clock: &impl TaskClock,
    statistics: &PiMutex<PeriodicTaskStatistics>,
    run: &mut dyn FnMut(&PeriodicJob) -> bool,
    overrun_rule: &mut dyn FnMut(&PeriodicOverrun) -> OverrunRule,
) {
    let mut sequence = ReleaseSequence::new(plan.first_release_at, plan.period);
    let mut skipped = 0;
    for _ in 0..plan.max_jobs {
        let release = sequence.next();
        if !clock.wait_until(release.at) {
            return;
        }
        let lateness = clock.now().saturating_sub(release.at);
        {
            let mut statistics = statistics.lock();
            statistics.started += 1;
            statistics.start_lateness.add(lateness);
        }
        let job = PeriodicJob {
            number: release.number,
            skipped,
            start_lateness: Duration::from_nanos(lateness),
            deadline_at: Monotonic::from_nanos(release.at.saturating_add(plan.deadline)),
        };
        let has_succeeded = run(&job);
        let ended_at = clock.now();
        let response = ended_at.saturating_sub(release.at);
        let missed_releases = sequence.missed(ended_at);
        // The overrun function may panic, so the job is counted first.
        {
            let mut statistics = statistics.lock();
            statistics.completed += u64::from(has_succeeded);
            statistics.failed += u64::from(!has_succeeded);
            statistics.missed_deadlines += u64::from(response > plan.deadline);
            statistics.overruns += u64::from(missed_releases > 0);
            statistics.response.add(response);
        }
        let rule = if missed_releases > 0 {
            let response = Duration::from_nanos(response);
            overrun_rule(&PeriodicOverrun { job: release.number, response, missed_releases })
        } else {
            OverrunRule::default()
        };
        skipped = sequence.complete(ended_at, rule);
        statistics.lock().skipped_releases += skipped;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use corelane_sys::lock::LockScope;

    use super::*;

    const FIRST: u64 = 500;
    const PERIOD: u64 = 100;

    /// A clock that a job advances. A wait ends `wake_lateness` after its time.
    #[derive(Default)]
    struct VirtualClock {
        now: Cell<u64>,
        wake_lateness: u64,
        stops_at: Option<u64>,
    }

    impl TaskClock for VirtualClock {
        fn now(&self) -> u64 {
            self.now.get()
        }

        fn wait_until(&self, at: u64) -> bool {
            if at > self.now.get() {
                self.now.set(at + self.wake_lateness);
            }
            self.stops_at.is_none_or(|stop| self.now.get() < stop)
        }
    }

    fn plan(max_jobs: u64) -> JobPlan {
        JobPlan { first_release_at: FIRST, period: PERIOD, deadline: 80, max_jobs }
    }

    /// Runs one job of each length. Returns the statistics, and the number of each job with its
    /// skipped releases.
    fn run(
        clock: &VirtualClock,
        lengths: &[u64],
        overrun_rule: &mut dyn FnMut(&PeriodicOverrun) -> OverrunRule,
    ) -> (PeriodicTaskStatistics, Vec<(u64, u64)>) {
        let statistics = PiMutex::new("periodic task", LockScope::Connection, PeriodicTaskStatistics::default());
        let (mut jobs, mut left) = (Vec::new(), lengths.iter());
        let mut job = |job: &PeriodicJob| {
            jobs.push((job.number(), job.skipped_releases()));
            clock.now.set(clock.now.get() + left.next().unwrap());
            job.number().is_multiple_of(2)
        };
        run_jobs(&plan(lengths.len() as u64), clock, &statistics, &mut job, overrun_rule);
        let statistics = statistics.lock().clone();
        (statistics, jobs)
    }

    #[test]
    fn statistics_follow_the_rule_at_every_offset_of_an_overrun() {
        for wake_lateness in [0, 7, 130] {
            for length in 0..=5 * PERIOD {
                for rule in [OverrunRule::SkipMissed, OverrunRule::CatchUp { max_backlog: 2 }] {
                    let clock = VirtualClock { wake_lateness, ..VirtualClock::default() };
                    let mut asked = Vec::new();
                    let (statistics, jobs) = run(&clock, &[length, 0], &mut |overrun| {
                        asked.push(*overrun);
                        rule
                    });
                    let response = wake_lateness + length;
                    let missed = (1..).take_while(|number| number * PERIOD < response).count() as u64;
                    let skipped = rule.skipped(missed);
                    assert_eq!(jobs, [(0, 0), (1 + skipped, skipped)], "{length} {rule:?}");
                    assert_eq!(asked.first().is_some_and(|overrun| overrun.job == 0), missed > 0);
                    if let Some(overrun) = asked.first().filter(|overrun| overrun.job == 0) {
                        assert_eq!((overrun.missed_releases, overrun.response.as_nanos()), (missed, response.into()));
                    }
                    let releases = jobs.last().unwrap().0 + 1;
                    let after_last = statistics.skipped_releases - skipped;
                    assert_eq!(statistics.started + skipped, releases);
                    assert_eq!(statistics.completed + statistics.failed, 2);
                    assert_eq!(statistics.failed, (1 + skipped) % 2);
                    let later = asked.iter().filter(|overrun| overrun.job != 0);
                    assert_eq!(after_last, later.map(|overrun| rule.skipped(overrun.missed_releases)).sum::<u64>());
                    assert_eq!(statistics.overruns, asked.len() as u64);
                    assert_eq!(statistics.response.count(), 2);
                    assert!(statistics.start_lateness.max() >= Some(wake_lateness));
                    assert!(statistics.missed_deadlines >= u64::from(response > 80));
                }
            }
        }
    }

    #[test]
    fn callback_chooses_the_rule_of_each_overrun() {
        let catch_up = OverrunRule::CatchUp { max_backlog: 10 };
        let mut rules = [catch_up, catch_up, OverrunRule::SkipMissed].into_iter();
        let (statistics, jobs) = run(&VirtualClock::default(), &[250, 10, 10, 250, 0], &mut |_| rules.next().unwrap());
        assert_eq!(jobs, [(0, 0), (1, 0), (2, 0), (3, 0), (6, 2)]);
        // Relative to the first release, job 1 was released at 100 and ended at 260; job 2 was
        // released at 200 and ended at 270.
        assert_eq!((statistics.overruns, statistics.skipped_releases, statistics.missed_deadlines), (3, 2, 3));
    }

    #[test]
    fn response_and_lateness_count_from_the_release() {
        let clock = VirtualClock { wake_lateness: 7, ..VirtualClock::default() };
        let (statistics, _) = run(&clock, &[10, 30, 90, 20], &mut |_| OverrunRule::SkipMissed);
        let summary = |times: &TimeDistribution| (times.min(), times.mean(), times.max());
        assert_eq!(summary(&statistics.response), (Some(17), Some(44), Some(97)));
        assert_eq!(summary(&statistics.start_lateness), (Some(7), Some(7), Some(7)));
        assert_eq!((statistics.missed_deadlines, statistics.overruns), (1, 0));
    }

    #[test]
    fn stop_ends_the_task_before_the_next_job() {
        let clock = VirtualClock { stops_at: Some(FIRST + 3 * PERIOD), ..VirtualClock::default() };
        let (statistics, jobs) = run(&clock, &[0; 10], &mut |_| OverrunRule::SkipMissed);
        assert_eq!((jobs.len(), statistics.started, statistics.completed), (3, 3, 2));
    }
}
