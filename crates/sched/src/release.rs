//! Releases of a periodic task whose jobs run one after another.
//!
//! [`OverrunRule`] says which releases get a job if a job ends after the releases of later jobs.
//! All times are in nanoseconds of a clock that the caller chooses. The release times are multiples
//! of the period after the first release, so delays of jobs do not add up.

use crate::task::Nanos;

/// Rule for the releases that pass while a late job runs: it decides which of them get a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverrunRule {
    /// Skips the releases that have passed. The next job runs at the first later release.
    #[default]
    SkipMissed,
    /// Runs the jobs of missed releases at once, one after another.
    CatchUp {
        /// Maximum number of missed releases that keep their jobs. If more releases were missed,
        /// the oldest are skipped, so that a program that was stopped for long does not run all
        /// jobs of this time.
        max_backlog: u64,
    },
}

impl OverrunRule {
    /// Returns how many of the missed releases get no job.
    #[must_use]
    pub const fn skipped(self, missed: u64) -> u64 {
        match self {
            Self::SkipMissed => missed,
            Self::CatchUp { max_backlog } => missed.saturating_sub(max_backlog),
        }
    }
}

/// A release of a periodic task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// Number of the release; the first one is 0.
    pub number: u64,
    /// Time of the release in nanoseconds. It saturates, so it never wraps to an early time.
    pub at: Nanos,
}

/// The sequence of a task's releases. The caller runs the job of [`next`](Self::next) at its time,
/// and then calls [`complete`](Self::complete).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseSequence {
    first: Nanos,
    period: Nanos,
    number: u64,
}

impl ReleaseSequence {
    /// Creates the sequence of releases from `first` on. A period of 0 counts as 1 ns.
    #[must_use]
    pub const fn new(first: Nanos, period: Nanos) -> Self {
        Self { first, period: if period == 0 { 1 } else { period }, number: 0 }
    }

    /// Returns the release whose job runs next.
    #[must_use]
    pub const fn next(&self) -> Release {
        self.release(self.number)
    }

    const fn release(&self, number: u64) -> Release {
        Release { number, at: self.first.saturating_add(self.period.saturating_mul(number)) }
    }

    /// Returns the number of releases after [`next`](Self::next) whose time has passed. A release
    /// at `now` has not passed.
    #[must_use]
    pub const fn missed(&self, now: Nanos) -> u64 {
        let since_next = now.saturating_sub(self.next().at);
        // The releases after the next one follow at whole periods. A release at `now` itself does
        // not count.
        since_next.saturating_sub(1) / self.period
    }

    /// Records the end of the job of [`next`](Self::next) at `now`, and moves to the next release
    /// that gets a job under `rule`. Returns the number of skipped releases.
    pub const fn complete(&mut self, now: Nanos, rule: OverrunRule) -> u64 {
        let skipped = rule.skipped(self.missed(now));
        self.number = self.number.saturating_add(1).saturating_add(skipped);
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Nanos = 1_000;
    const PERIOD: Nanos = 10;

    fn after(offset: Nanos, rule: OverrunRule) -> (u64, Release) {
        let mut sequence = ReleaseSequence::new(FIRST, PERIOD);
        let skipped = sequence.complete(FIRST + offset, rule);
        (skipped, sequence.next())
    }

    fn passed(end: Nanos) -> u64 {
        (1..).map(|number| FIRST + number * PERIOD).take_while(|at| *at < end).count() as u64
    }

    #[test]
    fn skipping_leads_to_the_next_release_of_the_grid_at_every_offset() {
        for offset in 0..=5 * PERIOD {
            let (skipped, next) = after(offset, OverrunRule::SkipMissed);
            assert_eq!(skipped, passed(FIRST + offset), "{offset}");
            assert_eq!(next, Release { number: 1 + skipped, at: FIRST + (1 + skipped) * PERIOD });
            assert!(next.at >= FIRST + offset, "{offset}");
            assert!(next.number == 1 || next.at - PERIOD < FIRST + offset, "{offset}");
        }
    }

    #[test]
    fn catching_up_skips_only_releases_beyond_the_backlog_at_every_offset() {
        for max_backlog in 0..4 {
            for offset in 0..=7 * PERIOD {
                let missed = passed(FIRST + offset);
                let (skipped, next) = after(offset, OverrunRule::CatchUp { max_backlog });
                assert_eq!(skipped, missed.saturating_sub(max_backlog), "{offset} {max_backlog}");
                assert_eq!(next.number, 1 + skipped);
                assert_eq!(next.at, FIRST + next.number * PERIOD);
            }
        }
        assert_eq!(after(7 * PERIOD, OverrunRule::CatchUp { max_backlog: u64::MAX }).0, 0);
        assert_eq!(
            after(7 * PERIOD, OverrunRule::CatchUp { max_backlog: 0 }),
            after(7 * PERIOD, OverrunRule::SkipMissed)
        );
    }

    #[test]
    fn job_that_ends_at_or_before_the_next_release_misses_none() {
        for rule in [OverrunRule::SkipMissed, OverrunRule::CatchUp { max_backlog: 2 }] {
            assert_eq!(after(PERIOD, rule), (0, Release { number: 1, at: FIRST + PERIOD }));
            assert_eq!(after(PERIOD - 1, rule), (0, Release { number: 1, at: FIRST + PERIOD }));
        }
        // A job may end before its own release, for example after a change of the clock.
        let mut sequence = ReleaseSequence::new(FIRST, PERIOD);
        assert_eq!((sequence.missed(0), sequence.complete(0, OverrunRule::SkipMissed)), (0, 0));
    }

    fn run(rule: OverrunRule, lengths: &[Nanos]) -> Vec<(Release, Nanos)> {
        let mut sequence = ReleaseSequence::new(FIRST, PERIOD);
        let mut now = FIRST;
        let mut runs = Vec::new();
        for length in lengths {
            let release = sequence.next();
            now = now.max(release.at);
            runs.push((release, now));
            now += length;
            sequence.complete(now, rule);
        }
        runs
    }

    #[test]
    fn delays_do_not_add_up() {
        let lengths: Vec<Nanos> = (0..1_000).map(|job| job % PERIOD).collect();
        for rule in [OverrunRule::SkipMissed, OverrunRule::CatchUp { max_backlog: 3 }] {
            for (number, (release, start)) in (0..).zip(run(rule, &lengths)) {
                assert_eq!((release.number, release.at, start), (number, FIRST + number * PERIOD, release.at));
            }
        }
    }

    #[test]
    fn task_that_catches_up_runs_every_job_and_returns_to_the_grid() {
        let mut lengths = vec![35];
        lengths.extend([1; 9]);
        let runs = run(OverrunRule::CatchUp { max_backlog: 100 }, &lengths);
        let numbers: Vec<u64> = runs.iter().map(|(release, _)| release.number).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        let starts: Vec<Nanos> = runs.iter().map(|(_, start)| start - FIRST).collect();
        assert_eq!(starts, [0, 35, 36, 37, 40, 50, 60, 70, 80, 90]);
        let skipping = run(OverrunRule::SkipMissed, &lengths);
        let starts: Vec<Nanos> = skipping.iter().map(|(_, start)| start - FIRST).collect();
        assert_eq!(starts, [0, 40, 50, 60, 70, 80, 90, 100, 110, 120]);
    }

    #[test]
    fn far_times_saturate() {
        let mut sequence = ReleaseSequence::new(Nanos::MAX - 5, 0);
        assert_eq!(sequence.complete(Nanos::MAX, OverrunRule::SkipMissed), 4);
        assert_eq!(sequence.next(), Release { number: 5, at: Nanos::MAX });
        let mut sequence = ReleaseSequence { first: 0, period: Nanos::MAX, number: u64::MAX };
        assert_eq!(sequence.complete(Nanos::MAX, OverrunRule::SkipMissed), 0);
        assert_eq!(sequence.next(), Release { number: u64::MAX, at: Nanos::MAX });
    }
}
