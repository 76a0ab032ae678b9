//! Worst-case response times under fixed priorities.
//!
//! The result is exact for sporadic tasks of different priorities without blocking and jitter;
//! otherwise it is an upper bound.
//!
//! Tasks that share a priority interfere with each other, because the kernel serves them in the
//! order of arrival.

use super::{MAX_ANALYSIS_STEPS, StepBudget, max_arrivals, min_span_of_jobs, work};
use crate::task::{Nanos, Timing, Utilization};

/// The worst-case response time of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTime {
    /// Maximum time from a job's arrival, from which deadlines count, to its completion.
    pub from_arrival: Nanos,
    /// Maximum time from the moment at which a job is ready to its completion.
    pub from_ready: Nanos,
    /// Completion time of the first job after a critical instant. If more interference is added,
    /// the value remains a lower bound for this task.
    pub first_completion: Nanos,
}

impl ResponseTime {
    /// Returns true if every job of this task completes by its deadline.
    #[must_use]
    pub fn meets_deadline_of(self, timing: &Timing) -> bool {
        self.from_arrival <= timing.deadline
    }
}

/// Returns the worst-case response time of `task`. The tasks of equal or higher priority are in
/// `interfering`.
///
/// `None` if the response time has no bound, or if it is not known after [`MAX_ANALYSIS_STEPS`] steps.
#[must_use]
pub fn response_time(task: &Timing, interfering: &[Timing]) -> Option<ResponseTime> {
    response_time_within(task, interfering, &mut StepBudget::default())
}

/// Returns the worst-case response time of `task`. The tasks of equal or higher priority are in
/// `interfering`.
///
/// `None` if the response time has no bound, or if the step budget ends before it is known.
#[must_use]
pub fn response_time_within(task: &Timing, interfering: &[Timing], steps: &mut StepBudget) -> Option<ResponseTime> {
    if has_no_bound(task, interfering) {
        return None;
    }
    follow(task, interfering, None, 0, None, steps)
}

/// Returns true if `task` meets its deadline. The tasks of equal or higher priority are in
/// `interfering`. Returns false if the result is not known after [`MAX_ANALYSIS_STEPS`] steps.
#[must_use]
pub fn meets_deadline(task: &Timing, interfering: &[Timing]) -> bool {
    meets_deadline_within(task, interfering, &mut StepBudget::default())
}

/// Returns true if `task` meets its deadline. The tasks of equal or higher priority are in
/// `interfering`. Returns false if the step budget ends before the result is known.
#[must_use]
pub fn meets_deadline_within(task: &Timing, interfering: &[Timing], steps: &mut StepBudget) -> bool {
    !has_no_bound(task, interfering)
        && follow(task, interfering, None, 0, Some(task.deadline), steps)
            .is_some_and(|response| response.meets_deadline_of(task))
}

/// Returns the worst-case response times of tasks. The tasks are in the order of their priorities,
/// highest first, and no two tasks share a priority. An entry is `None` in the cases of
/// [`response_time`].
#[must_use]
pub fn response_times(tasks: &[Timing]) -> Vec<Option<ResponseTime>> {
    tasks.iter().enumerate().map(|(place, task)| response_time(task, tasks.get(..place).unwrap_or_default())).collect()
}

/// Returns true if all tasks meet their deadlines. The tasks are in the order of their priorities,
/// highest first, and no two tasks share a priority.
#[must_use]
pub fn all_meet_deadlines(tasks: &[Timing]) -> bool {
    let above = |place| tasks.get(..place).unwrap_or_default();
    tasks.iter().enumerate().all(|(place, task)| meets_deadline(task, above(place)))
}

/// Runs the busy-window analysis of one task. `more` is a further interfering task, and `at_least`
/// a lower bound of the first job's completion. Returns `None` if the steps end, if a time exceeds
/// the range, or as soon as a job is known to miss `deadline`.
pub(crate) fn follow(
    task: &Timing,
    interfering: &[Timing],
    more: Option<&Timing>,
    at_least: Nanos,
    deadline: Option<Nanos>,
    steps: &mut StepBudget,
) -> Option<ResponseTime> {
    let mut worst = ResponseTime { from_arrival: 0, from_ready: 0, first_completion: 0 };
    let mut done = at_least;
    for jobs in 1.. {
        let own = task.blocking.checked_add(task.execution.checked_mul(jobs)?)?;
        let window_start = (jobs - 1).checked_mul(task.period)?;
        done = done.max(own);
        loop {
            if deadline.is_some_and(|deadline| from_arrival(done, task, window_start) > deadline)
                || !steps.try_take(interfering.len() + 1)
            {
                return None;
            }
            let added = more.map_or(Some(0), |more| work(std::slice::from_ref(more), done))?;
            let next = own.checked_add(work(interfering, done)?)?.checked_add(added)?;
            if next <= done {
                break;
            }
            done = next;
        }
        if jobs == 1 {
            worst.first_completion = done;
        }
        worst.from_arrival = worst.from_arrival.max(from_arrival(done, task, window_start));
        worst.from_ready = worst.from_ready.max(done - min_span_of_jobs(task, jobs).min(done));
        if done <= min_span_of_jobs(task, jobs + 1) {
            return Some(worst);
        }
    }
    None
}

/// Returns the time from a job's arrival to its completion. `done` is the time of the completion,
/// counted from the start of the busy window, and `earlier_periods` the sum of the periods of the
/// earlier jobs in the window.
fn from_arrival(done: Nanos, task: &Timing, earlier_periods: Nanos) -> Nanos {
    match done.checked_sub(earlier_periods) {
        Some(in_period) => in_period.saturating_add(task.jitter),
        None => task.jitter.saturating_sub(earlier_periods - done),
    }
}

fn has_no_bound(task: &Timing, interfering: &[Timing]) -> bool {
    Utilization::total_floor(interfering).saturating_add(task.utilization_floor()) > Utilization::ONE
}

/// Returns worst-case response times for jobs that are not preempted, as on a CAN bus (Davis,
/// Burns, Bril and Lukkien 2007).
///
/// The tasks are in the order of their priorities, highest first. The longest job of a lower
/// priority is the blocking time, so [`Timing::blocking`] is ignored. `granularity` is the shortest
/// time between two decisions of the scheduler, on CAN the time of one bit; 0 counts as 1. An entry
/// is `None` if the response time has no bound, or if it is not known after [`MAX_ANALYSIS_STEPS`] steps.
#[must_use]
pub fn non_preemptive_response_times(tasks: &[Timing], granularity: Nanos) -> Vec<Option<ResponseTime>> {
    let respond = |place: usize| {
        let (above, rest) = tasks.split_at_checked(place)?;
        let (task, below) = rest.split_first()?;
        let blocking = below.iter().map(|task| task.execution).max().unwrap_or(0);
        one_non_preemptive(task, above, blocking, granularity.max(1))
    };
    (0..tasks.len()).map(respond).collect()
}

fn one_non_preemptive(task: &Timing, above: &[Timing], blocking: Nanos, granularity: Nanos) -> Option<ResponseTime> {
    if has_no_bound(task, above) {
        return None;
    }
    let mut steps = StepBudget::new(MAX_ANALYSIS_STEPS);
    let mut busy = task.execution.checked_add(blocking)?;
    loop {
        let own = max_arrivals(task, busy).checked_mul(task.execution)?;
        let next = blocking.checked_add(own)?.checked_add(work(above, busy)?)?;
        if next <= busy {
            break;
        }
        if !steps.try_take(above.len() + 1) {
            return None;
        }
        busy = next;
    }
    let mut worst = ResponseTime { from_arrival: 0, from_ready: 0, first_completion: 0 };
    let mut start = 0;
    for earlier in 0..max_arrivals(task, busy) {
        let own = blocking.checked_add(task.execution.checked_mul(earlier)?)?;
        start = own.max(start);
        loop {
            if !steps.try_take(above.len() + 1) {
                return None;
            }
            let next = own.checked_add(work(above, start.checked_add(granularity)?)?)?;
            if next <= start {
                break;
            }
            start = next;
        }
        let done = start.checked_add(task.execution)?;
        if earlier == 0 {
            worst.first_completion = done;
        }
        worst.from_arrival = worst.from_arrival.max(from_arrival(done, task, earlier.checked_mul(task.period)?));
        worst.from_ready = worst.from_ready.max(done.saturating_sub(min_span_of_jobs(task, earlier + 1)));
    }
    Some(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(Nanos, Nanos)]) -> Vec<Timing> {
        pairs.iter().map(|&(execution, period)| Timing::new(execution, period)).collect()
    }

    fn from_arrival(tasks: &[Timing]) -> Vec<Nanos> {
        response_times(tasks).into_iter().map(|response| response.expect("a bound").from_arrival).collect()
    }

    #[test]
    fn response_times_of_published_sets() {
        assert_eq!(from_arrival(&set(&[(3, 7), (3, 12), (5, 20)])), [3, 6, 20]);
        assert_eq!(from_arrival(&set(&[(5, 20), (10, 40), (40, 80)])), [5, 15, 80]);
        assert_eq!(from_arrival(&set(&[(20, 100), (40, 150), (100, 350)])), [20, 60, 240]);
        assert_eq!(from_arrival(&set(&[(40, 100), (40, 150), (100, 350)])), [40, 80, 300]);
        assert_eq!(from_arrival(&set(&[(1, 4), (1, 5), (3, 9), (3, 18)])), [1, 2, 7, 18]);
        assert_eq!(from_arrival(&set(&[(1, 2), (5, 20), (1, 20)])), [1, 10, 12]);
    }

    #[test]
    fn a_task_that_misses_has_its_response_time_and_fails_the_test() {
        let tasks = set(&[(10, 30), (10, 40), (12, 50)]);
        assert_eq!(from_arrival(&tasks), [10, 20, 52]);
        assert!(!all_meet_deadlines(&tasks));
        assert!(all_meet_deadlines(&tasks[..2]));
    }

    #[test]
    fn the_worst_job_need_not_be_the_first() {
        let tasks = set(&[(26, 70), (62, 100)]);
        assert_eq!(from_arrival(&tasks), [26, 118]);
        assert!(!meets_deadline(&tasks[1].with_deadline(117), &tasks[..1]));
        assert!(meets_deadline(&tasks[1].with_deadline(118), &tasks[..1]));
    }

    #[test]
    fn jitter_of_others_and_own_blocking_delay_a_task() {
        let high = Timing::new(2, 10).with_jitter(9);
        let low = Timing::new(4, 40).with_blocking(3);
        // Blocking of 3, the execution time of 4, and two jobs of `high`, which become ready
        // at 0 and 1; its third job becomes ready at 11, when the job of `low` completes.
        assert_eq!(response_time(&low, &[high]).expect("a bound").from_arrival, 3 + 4 + 2 * 2);
        assert_eq!(response_time(&high, &[]).expect("a bound").from_arrival, 11);
        // The second job is ready 1 unit after the first, and completes at 4.
        assert_eq!(response_time(&high, &[]).expect("a bound").from_ready, 3);
    }

    #[test]
    fn more_than_the_whole_processor_has_no_bound() {
        let tasks = set(&[(5, 10), (5, 9)]);
        assert_eq!(response_times(&tasks)[1], None);
        assert!(!all_meet_deadlines(&tasks));
        assert_eq!(from_arrival(&set(&[(1, 3), (1, 3), (1, 3)])), [1, 2, 3]);
    }

    #[test]
    fn times_at_the_end_of_the_range_neither_wrap_nor_loop() {
        let huge = Timing::new(u64::MAX, u64::MAX);
        assert!(response_time(&huge, &[]).is_some());
        assert_eq!(response_time(&huge, &[huge]), None);
        assert_eq!(response_time(&Timing::new(u64::MAX - 1, u64::MAX).with_blocking(2), &[]), None);
        assert_eq!(response_time(&Timing::new(1, 0), &[]), None);
        let half = 1 << 63;
        let late = Timing::new(1, half).with_jitter(half + 5);
        assert_eq!(super::from_arrival(half, &late, half), half + 5);
        // Each step approaches the result by a billionth of the distance, so the analysis reaches
        // its limit of steps.
        let slow = Timing::new(1 << 30, u64::MAX);
        assert_eq!(response_time(&slow, &[Timing::new(999_999_999, 1_000_000_000)]), None);
    }

    #[test]
    fn messages_on_a_can_bus() {
        let bus = set(&[(1_000, 2_500), (1_000, 3_500), (1_000, 3_500)]);
        let late: Vec<_> = non_preemptive_response_times(&bus, 8)
            .into_iter()
            .map(|response| response.expect("a bound").from_arrival)
            .collect();
        assert_eq!(late, [2_000, 3_000, 3_500]);
    }

    #[test]
    fn simultaneous_job_of_higher_priority_starts_first() {
        let late = |granularity| {
            let found = non_preemptive_response_times(&set(&[(3, 10), (3, 10)]), granularity);
            found.into_iter().map(|response| response.expect("a bound").from_arrival).collect::<Vec<_>>()
        };
        assert_eq!(late(1), [6, 6]);
        assert_eq!(late(0), [6, 6], "time has no finer grain than its unit");
    }

    #[test]
    fn a_bus_with_a_job_of_almost_endless_blocking_ends_the_analysis() {
        // The busy period contains 2^61 jobs of the first task, more than the analysis has steps.
        let bus = [Timing::new(1, 2), Timing::new(1 << 61, u64::MAX)];
        assert_eq!(non_preemptive_response_times(&bus, 1)[0], None);
    }

    #[test]
    fn a_lower_bound_of_the_first_completion_does_not_change_the_result() {
        let tasks = set(&[(3, 7), (3, 12), (5, 20)]);
        let start = |at_least| follow(&tasks[2], &tasks[..2], None, at_least, None, &mut StepBudget::default());
        let cold = start(0).expect("a bound");
        assert_eq!(cold.first_completion, 20);
        assert_eq!(start(11), Some(cold));
        let one_more = follow(&tasks[2], &tasks[..1], Some(&tasks[1]), 0, None, &mut StepBudget::default());
        assert_eq!(one_more, Some(cold));
        assert_eq!(follow(&tasks[2], &tasks[..2], None, 0, None, &mut StepBudget::new(1)), None);
    }
}
