//! Schedulability analysis on one core: tests of deadlines, and worst-case response times.
//!
//! Invariant: all numbers are integers, and no sum wraps. An analysis that reaches its maximum
//! number of steps returns "not schedulable" or no response time, never "schedulable".

pub mod bounds;
pub mod chain;
pub mod demand;
pub mod priorities;
pub mod response_time;
pub mod sensitivity;
pub mod server;

use crate::task::{Nanos, Timing};

/// Maximum number of steps of an analysis to which the caller gives no [`StepBudget`].
pub const MAX_ANALYSIS_STEPS: u32 = 1 << 24;

/// A budget of steps that several analyses share.
///
/// A step is one evaluation of the jobs of one task within an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBudget {
    left: u32,
}

impl Default for StepBudget {
    fn default() -> Self {
        Self::new(MAX_ANALYSIS_STEPS)
    }
}

impl StepBudget {
    /// Creates a budget of `steps` steps.
    #[must_use]
    pub const fn new(steps: u32) -> Self {
        Self { left: steps }
    }

    /// Takes `tasks` steps, at least one, even if fewer steps are left. Returns false if no step
    /// was left before the call.
    pub fn try_take(&mut self, tasks: usize) -> bool {
        let has_steps = !self.is_exhausted();
        self.left = self.left.saturating_sub(u32::try_from(tasks).unwrap_or(u32::MAX).max(1));
        has_steps
    }

    /// Returns true if no step is left.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.left == 0
    }
}

/// Returns the largest number of jobs of a task that become ready in a half-open interval of length
/// `length`.
#[must_use]
pub fn max_arrivals(timing: &Timing, length: Nanos) -> u64 {
    if length == 0 {
        return 0;
    }
    let period = timing.period.max(1);
    let periodic = match length.checked_add(timing.jitter) {
        Some(sum) => sum.div_ceil(period),
        None => {
            let sum = u128::from(length) + u128::from(timing.jitter);
            u64::try_from(sum.div_ceil(period.into())).unwrap_or(u64::MAX)
        }
    };
    match timing.min_interarrival {
        0 => periodic,
        distance => periodic.min(length.div_ceil(distance)),
    }
}

/// Returns the shortest time between the moments at which the first and the last of `jobs`
/// consecutive jobs become ready.
#[must_use]
pub fn min_span_of_jobs(timing: &Timing, jobs: u64) -> Nanos {
    let gaps = jobs.saturating_sub(1);
    let periodic = gaps.saturating_mul(timing.period).saturating_sub(timing.jitter);
    periodic.max(gaps.saturating_mul(timing.min_interarrival))
}

/// Returns the maximum execution time of the jobs that become ready within `length`; `None` if the
/// time exceeds the range of [`Nanos`].
pub(crate) fn work(tasks: &[Timing], length: Nanos) -> Option<Nanos> {
    tasks.iter().try_fold(0_u64, |sum, task| sum.checked_add(max_arrivals(task, length).checked_mul(task.execution)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_count_jitter_and_the_shortest_distance() {
        let plain = Timing::new(1, 10);
        assert_eq!([0, 1, 10, 11, 20, 21].map(|length| max_arrivals(&plain, length)), [0, 1, 1, 2, 2, 3]);
        let late = plain.with_jitter(15);
        assert_eq!([1, 5, 6].map(|length| max_arrivals(&late, length)), [2, 2, 3]);
        let apart = late.with_min_interarrival(3);
        assert_eq!([1, 3, 4, 7].map(|length| max_arrivals(&apart, length)), [1, 1, 2, 3]);
        assert_eq!(max_arrivals(&Timing::new(1, 0), u64::MAX), u64::MAX);
    }

    #[test]
    fn arrivals_are_exact_where_length_and_jitter_exceed_the_range() {
        let half = 1 << 63;
        assert_eq!(max_arrivals(&Timing::new(1, half).with_jitter(u64::MAX), half), 3);
        assert_eq!(max_arrivals(&Timing::new(1, 1).with_jitter(u64::MAX), u64::MAX), u64::MAX);
    }

    #[test]
    fn the_shortest_span_is_the_inverse_of_arrivals() {
        for timing in [Timing::new(1, 10), Timing::new(1, 10).with_jitter(27).with_min_interarrival(2)] {
            for jobs in 1..20 {
                let span = min_span_of_jobs(&timing, jobs);
                assert!(max_arrivals(&timing, span + 1) >= jobs, "{jobs} jobs fit into {span} and one");
                assert!(max_arrivals(&timing, span) < jobs, "{jobs} jobs do not fit into {span}");
            }
        }
    }

    #[test]
    fn a_budget_ends_after_its_steps() {
        let mut steps = StepBudget::new(2);
        assert!(steps.try_take(0) && !steps.is_exhausted() && steps.try_take(1));
        assert!(steps.is_exhausted() && !steps.try_take(1));
        let mut steps = StepBudget::new(3);
        assert!(steps.try_take(2) && steps.try_take(2), "the last evaluation may exceed the budget");
        assert!(!steps.try_take(2));
    }
}
