//! Sufficient schedulability tests for rate-monotonic priorities: a set that fails may be
//! schedulable.
//!
//! Shares are rounded up and bounds are rounded down, so rounding never makes a set pass.

use crate::task::{Nanos, Timing, Utilization};

/// The number one in the fixed-point format of this module.
const SCALE: u128 = 1_000_000_000_000_000_000;

/// Returns the largest utilization that Liu and Layland (1973) guarantee for `tasks` tasks. With n
/// tasks it is n (2^(1/n) - 1).
///
/// The bound applies to deadlines that equal periods, without jitter and blocking.
#[must_use]
pub fn liu_layland_bound(tasks: u32) -> Utilization {
    largest_periodic_load(tasks, 2 * SCALE)
}

/// Returns the largest U, at most a whole processor, with (1 + U / n)^n <= `bound`. The number n is
/// `tasks`, and `bound` is in the fixed-point format of this module.
pub(super) fn largest_periodic_load(tasks: u32, bound: u128) -> Utilization {
    let tasks = tasks.max(1);
    let (mut low, mut high) = (0, Utilization::ONE.0 + 1);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        let factor =
            SCALE + (u128::from(middle) * (SCALE / u128::from(Utilization::ONE.0))).div_ceil(u128::from(tasks));
        if power(factor, tasks, bound) <= bound {
            low = middle;
        } else {
            high = middle;
        }
    }
    Utilization(low)
}

/// Returns `base` to the power of `exponent`, rounded up. If the power exceeds `bound`, the result
/// is any number above `bound`.
fn power(mut base: u128, mut exponent: u32, bound: u128) -> u128 {
    let mut result = SCALE;
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = product(result, base);
            if result > bound {
                return result;
            }
        }
        exponent /= 2;
        if exponent > 0 {
            base = product(base, base);
            if base > bound {
                // The highest bit of the exponent is not processed yet, so the power is at least
                // `base`.
                return base;
            }
        }
    }
    result
}

pub(super) fn product(one: u128, other: u128) -> u128 {
    // Both factors are at most 3 * `SCALE`, which is below 2^62, so the product fits into 128 bits.
    one.saturating_mul(other).div_ceil(SCALE)
}

pub(super) fn one_plus(share: Utilization) -> u128 {
    SCALE + u128::from(share.0) * (SCALE / u128::from(Utilization::ONE.0))
}

pub(super) const TWO: u128 = 2 * SCALE;

pub(super) fn quotient(one: u128, other: u128) -> u128 {
    one.saturating_mul(SCALE) / other.max(1)
}

/// Returns true if the set's utilization is within the bound of Liu and Layland for its number of
/// tasks. A set with jitter, with blocking or with a deadline that is not the period does not pass.
#[must_use]
pub fn passes_liu_layland(tasks: &[Timing]) -> bool {
    let count = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    tasks.iter().all(is_simple) && Utilization::total(tasks) <= liu_layland_bound(count)
}

/// Returns true if the set passes the hyperbolic test (Bini, Buttazzo and Buttazzo 2001): the
/// product of all (U + 1) is at most 2. A set with jitter, with blocking or with a deadline that is
/// not the period does not pass.
#[must_use]
pub fn passes_hyperbolic(tasks: &[Timing]) -> bool {
    let mut all = SCALE;
    for task in tasks {
        if !is_simple(task) || task.utilization() > Utilization::ONE {
            return false;
        }
        all = product(all, one_plus(task.utilization()));
        if all > TWO {
            return false;
        }
    }
    true
}

fn is_simple(task: &Timing) -> bool {
    task.deadline == task.period && task.jitter == 0 && task.blocking == 0
}

/// Returns an upper bound of a task's worst-case response time from its arrival, in linear time
/// (Bini and Baruah 2007). The tasks of higher priority are in `above`.
///
/// `None` if the bound does not apply: the tasks in `above` use the whole processor, a second job
/// may become ready before the first job completes, or a sum exceeds the range.
#[must_use]
pub fn response_time_bound(task: &Timing, above: &[Timing]) -> Option<Nanos> {
    let one = u128::from(Utilization::ONE.0);
    let mut share = 0;
    let mut work = (u128::from(task.execution) + u128::from(task.blocking)) * one;
    for other in above {
        let utilization = u128::from(other.utilization().0);
        share += utilization;
        // Without jitter, the last job of the task arrives at least its execution time before the
        // completion. So less than a whole job counts in addition to the share.
        let counted = if other.jitter == 0 { one.saturating_sub(u128::from(other.utilization_floor().0)) } else { one };
        work = work.checked_add(u128::from(other.execution) * counted)?;
        work = work.checked_add(u128::from(other.jitter) * utilization)?;
    }
    let rest = one.checked_sub(share).filter(|rest| *rest > 0)?;
    let done = u64::try_from(work.div_ceil(rest)).ok()?;
    let late = done.checked_add(task.jitter)?;
    (late <= task.period).then_some(late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::response_time;

    #[test]
    fn the_bound_of_liu_and_layland() {
        let digits = |tasks| liu_layland_bound(tasks).0.div_ceil(1_000);
        assert_eq!(
            [1, 2, 3, 4, 5, 10].map(digits),
            [1_000_000, 828_428, 779_764, 756_829, 743_492, 717_735],
            "in millionths, rounded up"
        );
        let many = liu_layland_bound(u32::MAX).0;
        assert!((693_000_000..693_200_000).contains(&many), "near the natural logarithm of 2: {many}");
        assert_eq!(liu_layland_bound(0), liu_layland_bound(1));
    }

    #[test]
    fn hyperbolic_test_accepts_sets_beyond_the_sum_bound() {
        let tasks = [Timing::new(1, 2), Timing::new(33, 100)];
        assert!(!passes_liu_layland(&tasks), "expected a failure: 0.83 is above 0.828");
        assert!(passes_hyperbolic(&tasks), "expected success: 1.5 times 1.33 is below 2");
        assert!(!passes_hyperbolic(&[Timing::new(1, 2), Timing::new(100_001, 300_000)]));
        assert!(
            !passes_hyperbolic(&[Timing::new(1, 10).with_deadline(9)]),
            "expected a failure: the deadline is below the period"
        );
        assert!(!passes_hyperbolic(&[Timing::new(11, 10)]));
    }

    #[test]
    fn a_response_bound_is_never_below_the_response_time() {
        let above = [Timing::new(1, 4), Timing::new(1, 5).with_jitter(1)];
        let task = Timing::new(2, 30).with_blocking(1);
        let bound = response_time_bound(&task, &above).expect("a bound");
        let exact = response_time::response_time(&task, &above).expect("a bound").from_arrival;
        assert!(bound >= exact, "{bound} is below {exact}");
        assert_eq!(response_time_bound(&task, &[Timing::new(1, 1)]), None);
        assert_eq!(
            response_time_bound(&Timing::new(5, 6), &above),
            None,
            "expected no bound: the second job comes before the first is done"
        );
    }
}
