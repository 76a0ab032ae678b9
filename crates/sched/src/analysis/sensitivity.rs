//! Sensitivity analysis: the largest execution times with which all tasks meet their deadlines.

use crate::task::{Nanos, Timing, Utilization};

/// Factor for execution times, in thousandths.
pub type Thousandths = u64;

/// The largest factor that [`max_execution_factor`] tries: a factor of 1,000.
pub const MAX_SCALING_FACTOR: Thousandths = 1_000_000;

/// Returns the largest factor for all execution times, up to [`MAX_SCALING_FACTOR`], with which
/// `schedulable` returns true. `None` if it does so for no factor. If `schedulable` returns true
/// for a factor, it must return true for all smaller ones.
///
/// Products of factor and execution time are rounded up.
pub fn max_execution_factor(tasks: &[Timing], mut schedulable: impl FnMut(&[Timing]) -> bool) -> Option<Thousandths> {
    let scaled = |factor: Thousandths| -> Vec<Timing> {
        let stretch = |task: &Timing| {
            let execution = (u128::from(task.execution) * u128::from(factor)).div_ceil(1_000);
            Timing { execution: Nanos::try_from(execution).unwrap_or(Nanos::MAX), ..*task }
        };
        tasks.iter().map(stretch).collect()
    };
    find_largest(1, MAX_SCALING_FACTOR, |factor| schedulable(&scaled(factor)))
}

/// Returns the longest execution time of the task at `place`, up to its deadline, with which
/// `schedulable` returns true. `None` if it does so for no execution time, or if there is no task
/// at `place`. If `schedulable` returns true for an execution time, it must return true for all
/// shorter ones.
pub fn max_execution_time(
    tasks: &[Timing],
    place: usize,
    mut schedulable: impl FnMut(&[Timing]) -> bool,
) -> Option<Nanos> {
    let mut tried = tasks.to_vec();
    let most = tried.get(place)?.deadline;
    find_largest(1, most, |execution| {
        if let Some(task) = tried.get_mut(place) {
            task.execution = execution;
        }
        schedulable(&tried)
    })
}

/// Returns an execution time that fits and needs at most the share `room`: the longest one, to
/// within a 1,024th of the maximum that `room` and the deadline allow. `None` if no such time fits.
pub(crate) fn longest_part(room: Utilization, task: &Timing, mut fits: impl FnMut(&Timing) -> bool) -> Option<Nanos> {
    const PARTS: u64 = 1_024;
    let most = u128::from(task.period) * u128::from(room.0) / u128::from(Utilization::ONE.0);
    let most = most.min(task.deadline.into());
    let execution = |parts: u64| Nanos::try_from(most * u128::from(parts) / u128::from(PARTS)).unwrap_or(Nanos::MAX);
    let parts =
        find_largest(1, PARTS, |parts| execution(parts) > 0 && fits(&Timing { execution: execution(parts), ..*task }));
    parts.map(execution)
}

/// Returns the largest number from `least` to `most` for which `fits` returns true; `None` if there
/// is none. If `fits` returns true for a number, it must return true for all smaller numbers.
///
/// The search halves the range with each call of `fits`, so it makes at most 65 calls.
///
/// # Examples
/// ```
/// use corelane_sched::analysis::sensitivity::find_largest;
///
/// assert_eq!(find_largest(1, 1_000, |number| number * number <= 150), Some(12));
/// assert_eq!(find_largest(1, 1_000, |_| false), None);
/// ```
pub fn find_largest(least: u64, most: u64, mut fits: impl FnMut(u64) -> bool) -> Option<u64> {
    if most < least || !fits(least) {
        return None;
    }
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::response_time::all_meet_deadlines;

    #[test]
    fn the_largest_number_that_fits_is_found_within_65_calls() {
        for (least, most) in [(0, 0), (1, 1), (1, 7), (3, 8), (0, u64::MAX)] {
            for bound in [0, 1, 3, 7, 8, 1_000, u64::MAX] {
                let mut calls = 0;
                let found = find_largest(least, most, |number| {
                    calls += 1;
                    assert!((least..=most).contains(&number));
                    number <= bound
                });
                assert_eq!(found, (bound >= least).then(|| bound.min(most)), "{least} {most} {bound}");
                assert!(calls <= 65, "{calls}");
            }
        }
        assert_eq!(find_largest(2, 1, |_| true), None);
    }

    #[test]
    fn a_task_may_grow_until_another_misses() {
        let tasks = [Timing::new(1_000, 4_000), Timing::new(2_000, 8_000)];
        assert_eq!(max_execution_time(&tasks, 0, all_meet_deadlines), Some(3_000));
        assert_eq!(max_execution_time(&tasks, 1, all_meet_deadlines), Some(6_000));
        assert_eq!(max_execution_time(&tasks, 2, all_meet_deadlines), None);
    }

    #[test]
    fn all_tasks_may_grow_by_a_factor() {
        let tasks = [Timing::new(1_000, 4_000), Timing::new(2_000, 8_000)];
        assert_eq!(max_execution_factor(&tasks, all_meet_deadlines), Some(2_000));
        let late = [Timing::new(9_000, 4_000), Timing::new(2_000, 8_000)];
        assert_eq!(max_execution_factor(&late, all_meet_deadlines), Some(400));
        assert_eq!(max_execution_factor(&[], all_meet_deadlines), Some(MAX_SCALING_FACTOR));
        assert_eq!(max_execution_factor(&[Timing::new(1_000_000_000, 1)], all_meet_deadlines), None);
    }

    #[test]
    fn a_part_of_the_room_is_found_to_a_thousandth() {
        let task = Timing::new(900_000, 1_000_000).with_deadline(800_000);
        let longest = |room| longest_part(Utilization(room), &task, |tried| tried.execution <= 300_000);
        let found = longest(1_000_000_000).expect("some part fits");
        assert!((299_000..=300_000).contains(&found), "{found}");
        assert_eq!(longest(250_000_000), Some(250_000), "the whole room");
        assert_eq!(longest(0), None);
        assert_eq!(longest_part(Utilization::ONE, &task, |tried| tried.execution <= 800_000), Some(800_000));
        assert_eq!(longest_part(Utilization::ONE, &task, |_| false), None);
    }
}
