//! The test for earliest deadline first on one core: Quick Processor-demand Analysis (Zhang and
//! Burns 2009).
//!
//! A set is schedulable if, for every deadline in the first busy period, the demand fits into the
//! time until the deadline. The demand is the sum of three parts: jobs whose arrivals and deadlines
//! lie in this time, the longest blocking, and the work with a priority above all tasks.

use super::{StepBudget, work};
use crate::task::{Nanos, Timing, Utilization};

/// Returns true if all tasks meet their deadlines under earliest deadline first.
///
/// Returns false if the result is not known after [`MAX_ANALYSIS_STEPS`](super::MAX_ANALYSIS_STEPS) steps.
#[must_use]
pub fn is_schedulable(tasks: &[Timing]) -> bool {
    is_schedulable_below(&[], tasks, &mut StepBudget::default())
}

/// Returns true if all tasks meet their deadlines under earliest deadline first, on a core that
/// runs `interference` at a priority above all tasks.
///
/// Returns false if the step budget ends before the result is known.
#[must_use]
pub fn is_schedulable_below(interference: &[Timing], tasks: &[Timing], steps: &mut StepBudget) -> bool {
    if tasks.is_empty() {
        return true;
    }
    let share = Utilization::total_floor(tasks).saturating_add(Utilization::total_floor(interference));
    if tasks.iter().any(|task| task.deadline < task.jitter.saturating_add(task.execution)) || share > Utilization::ONE {
        return false;
    }
    let ceiling = Utilization::total(tasks).saturating_add(Utilization::total(interference));
    if interference.is_empty() && tasks.iter().all(is_plain) && ceiling <= Utilization::ONE {
        return true;
    }
    let Some(interval) = longest_interval(interference, tasks, ceiling, steps) else { return false };
    let mut deadline = last_deadline_before(tasks, interval.saturating_add(1));
    while let Some(time) = deadline {
        if !steps.try_take(interference.len() + tasks.len()) {
            return false;
        }
        let needed =
            processor_demand(tasks, time).zip(work(interference, time)).and_then(|(one, other)| one.checked_add(other));
        let Some(needed) = needed.filter(|needed| *needed <= time) else { return false };
        // No deadline from `needed` to `time` can be missed, because the demand at an earlier
        // deadline is not greater.
        deadline = last_deadline_before(tasks, if needed < time { needed + 1 } else { time });
    }
    true
}

fn is_plain(task: &Timing) -> bool {
    task.deadline >= task.period && task.jitter == 0 && task.blocking == 0
}

/// Returns the execution time that must complete within the first `time` of a busy period,
/// including the longest blocking in it. `None` if the time exceeds the range of [`Nanos`].
#[must_use]
pub fn processor_demand(tasks: &[Timing], time: Nanos) -> Option<Nanos> {
    let mut sum = 0_u64;
    let mut blocking = 0;
    for task in tasks {
        let Some(after_first) = time.checked_sub(first_deadline(task)) else { continue };
        let jobs = (after_first / task.period.max(1)).checked_add(1)?;
        sum = sum.checked_add(jobs.checked_mul(task.execution)?)?;
        blocking = blocking.max(task.blocking);
    }
    sum.checked_add(blocking)
}

/// Returns the first deadline in the busy period of a task whose first job has the maximum jitter.
fn first_deadline(task: &Timing) -> Nanos {
    task.deadline.saturating_sub(task.jitter)
}

fn last_deadline_before(tasks: &[Timing], time: Nanos) -> Option<Nanos> {
    let last = |task: &Timing| {
        let first = first_deadline(task);
        let room = time.checked_sub(1)?.checked_sub(first)?;
        Some(first + room - room % task.period.max(1))
    };
    tasks.iter().filter_map(last).max()
}

/// Returns the length of an interval that contains a missed deadline if the set misses any; `None`
/// if no bound is found.
fn longest_interval(
    interference: &[Timing],
    tasks: &[Timing],
    ceiling: Utilization,
    steps: &mut StepBudget,
) -> Option<Nanos> {
    let by_utilization = interval_by_utilization(interference, tasks, ceiling);
    match (busy_period(interference, tasks, by_utilization, steps), by_utilization) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn busy_period(
    interference: &[Timing],
    tasks: &[Timing],
    longest: Option<Nanos>,
    steps: &mut StepBudget,
) -> Option<Nanos> {
    let blocking = tasks.iter().map(|task| task.blocking).max().unwrap_or(0);
    let mut length = 1;
    while longest.is_none_or(|longest| length < longest) && steps.try_take(interference.len() + tasks.len()) {
        let next = blocking.checked_add(work(interference, length)?)?.checked_add(work(tasks, length)?)?;
        if next <= length {
            return Some(length);
        }
        length = next;
    }
    None
}

/// Returns the interval bound of Baruah, Rosier and Howell (1990), or the largest `first_deadline`
/// of the tasks if that is longer; `None` if the total utilization is 1 or more, or the bound
/// exceeds the range.
///
/// The bound is (longest blocking + sum of max(0, T - D + J) U over the tasks + sum of (T + J) U
/// over the interference) / (1 - total U), with the period T, the deadline D, the jitter J and the
/// utilization U of each task.
fn interval_by_utilization(interference: &[Timing], tasks: &[Timing], ceiling: Utilization) -> Option<Nanos> {
    let one = u128::from(Utilization::ONE.0);
    let rest = one.checked_sub(u128::from(ceiling.0)).filter(|rest| *rest > 0)?;
    let blocking = u128::from(tasks.iter().map(|task| task.blocking).max().unwrap_or(0));
    let late = |task: &Timing, deadline: Nanos| {
        let beyond = (u128::from(task.period) + u128::from(task.jitter)).saturating_sub(u128::from(deadline));
        beyond * u128::from(task.utilization().0)
    };
    let sum = tasks.iter().try_fold(blocking * one, |sum, task| sum.checked_add(late(task, task.deadline)))?;
    let sum = interference.iter().try_fold(sum, |sum, task| sum.checked_add(late(task, 0)))?;
    let least = tasks.iter().map(first_deadline).max().unwrap_or(0);
    u64::try_from(sum.div_ceil(rest)).ok().map(|bound| bound.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_at_the_period_are_schedulable_up_to_the_whole_processor() {
        assert!(is_schedulable(&[Timing::new(5, 10), Timing::new(7, 14)]));
        assert!(is_schedulable(&[Timing::new(1, 3), Timing::new(1, 3), Timing::new(1, 3)]));
        assert!(!is_schedulable(&[Timing::new(5, 10), Timing::new(8, 14)]));
        assert!(is_schedulable(&[]));
    }

    #[test]
    fn shorter_deadlines_are_counted_exactly() {
        let pair = |deadline| [Timing::new(2, 10).with_deadline(3), Timing::new(4, 20).with_deadline(deadline)];
        assert!(is_schedulable(&pair(6)));
        assert!(!is_schedulable(&pair(5)));
        assert_eq!(processor_demand(&pair(6), 6), Some(6));
        assert_eq!(processor_demand(&pair(6), 13), Some(8));
    }

    #[test]
    fn jitter_and_blocking_take_their_share() {
        let high = Timing::new(2, 10).with_deadline(5);
        assert!(is_schedulable(&[high.with_blocking(3)]));
        assert!(!is_schedulable(&[high.with_blocking(4)]));
        assert!(is_schedulable(&[high.with_jitter(3)]));
        assert!(!is_schedulable(&[high.with_jitter(4)]));
        assert!(is_schedulable(&[high.with_jitter(2), Timing::new(2, 20).with_deadline(4)]));
        assert!(!is_schedulable(&[high.with_jitter(2), Timing::new(2, 20).with_deadline(3)]));
    }

    #[test]
    fn work_above_all_tasks_takes_its_share_of_every_interval() {
        let above = [Timing::new(2, 10), Timing::new(1, 10)];
        let fits = |execution, deadline| {
            let task = Timing::new(execution, 100).with_deadline(deadline);
            is_schedulable_below(&above, &[task], &mut StepBudget::default())
        };
        assert!(fits(7, 10));
        assert!(!fits(8, 10));
        assert!(!fits(8, 13));
        assert!(fits(8, 14));
        assert!(!is_schedulable_below(&[Timing::new(1, 1)], &[Timing::new(1, 100)], &mut StepBudget::default()));
        assert!(is_schedulable_below(&above, &[], &mut StepBudget::default()));
    }

    #[test]
    fn exhausted_step_budget_refuses_the_set() {
        let tasks = [Timing::new(5, 10).with_deadline(9), Timing::new(4, 14).with_deadline(13)];
        assert!(is_schedulable(&tasks));
        assert!(!is_schedulable_below(&[], &tasks, &mut StepBudget::new(2)));
    }

    #[test]
    fn times_at_the_end_of_the_range_neither_wrap_nor_loop() {
        assert!(is_schedulable(&[Timing::new(u64::MAX, u64::MAX)]));
        assert!(!is_schedulable(&[Timing::new(u64::MAX, u64::MAX), Timing::new(1, u64::MAX)]));
        assert!(!is_schedulable(&[Timing::new(1, 0)]));
        assert_eq!(processor_demand(&[Timing::new(1, 1).with_deadline(0)], u64::MAX), None);
    }
}
