//! Priority assignment for the tasks of one core.
//!
//! The functions that return an order return indices of tasks, highest priority first.

use super::StepBudget;
use super::response_time::meets_deadline_within;
use crate::task::Timing;

/// Returns the rate-monotonic order: shorter periods first (Liu and Layland 1973).
///
/// The order is optimal if deadlines equal periods, there is no jitter, and all tasks have equal
/// blocking times.
#[must_use]
pub fn rate_monotonic_order(tasks: &[Timing]) -> Vec<usize> {
    ordered(tasks, |task| task.period)
}

/// Returns the deadline-monotonic order: tasks with a smaller difference of deadline and release
/// jitter first.
///
/// The order is optimal if no deadline exceeds its period and all tasks have equal blocking times
/// (Zuhily and Burns 2007).
#[must_use]
pub fn deadline_monotonic_order(tasks: &[Timing]) -> Vec<usize> {
    ordered(tasks, deadline_key)
}

pub(crate) fn deadline_key(task: &Timing) -> u64 {
    task.deadline.saturating_sub(task.jitter)
}

/// Returns an order in which every task meets its deadline (Audsley 1991). `None` if no such order
/// exists, or none is found in [`MAX_ANALYSIS_STEPS`](super::MAX_ANALYSIS_STEPS) steps.
#[must_use]
pub fn audsley_order(tasks: &[Timing]) -> Option<Vec<usize>> {
    audsley_order_below(&[], tasks, &mut StepBudget::default())
}

/// Returns an order in which every task meets its deadline at a priority below `interference`
/// (Audsley 1991). `None` if no such order exists, or if the step budget ends first.
#[must_use]
pub fn audsley_order_below(interference: &[Timing], tasks: &[Timing], steps: &mut StepBudget) -> Option<Vec<usize>> {
    let mut open = deadline_monotonic_order(tasks);
    let mut lowest_first = Vec::with_capacity(tasks.len());
    while !open.is_empty() {
        // The task with the latest deadline is most likely to fit, so it is tried first.
        let place =
            open.iter().copied().rev().find(|&candidate| fits_below(interference, tasks, &open, candidate, steps))?;
        open.retain(|&other| other != place);
        lowest_first.push(place);
    }
    lowest_first.reverse();
    Some(lowest_first)
}

/// Returns the level of each task (0 is the most urgent), with the fewest levels on which every
/// task meets its deadline. `None` if no such assignment exists, or if the step budget ends first.
///
/// Tasks of one level interfere with each other. The tasks in `interference` have a higher priority
/// than all levels.
#[must_use]
pub fn fewest_priority_levels(interference: &[Timing], tasks: &[Timing], steps: &mut StepBudget) -> Option<Vec<u32>> {
    let mut open = deadline_monotonic_order(tasks);
    let mut from_lowest = vec![0_u32; tasks.len()];
    let mut level = 0;
    while !open.is_empty() {
        let shares: Vec<usize> = open
            .iter()
            .copied()
            .filter(|&candidate| fits_below(interference, tasks, &open, candidate, steps))
            .collect();
        if shares.is_empty() || steps.is_exhausted() {
            return None;
        }
        open.retain(|place| !shares.contains(place));
        shares.into_iter().for_each(|place| from_lowest[place] = level);
        level += 1;
    }
    Some(from_lowest.into_iter().map(|from_lowest| level - 1 - from_lowest).collect())
}

fn fits_below(
    interference: &[Timing],
    tasks: &[Timing],
    open: &[usize],
    candidate: usize,
    steps: &mut StepBudget,
) -> bool {
    let others = open.iter().filter(|&&place| place != candidate).map(|&place| tasks[place]);
    let above: Vec<Timing> = interference.iter().copied().chain(others).collect();
    meets_deadline_within(&tasks[candidate], &above, steps)
}

fn ordered(tasks: &[Timing], key: impl Fn(&Timing) -> u64) -> Vec<usize> {
    let mut places: Vec<usize> = (0..tasks.len()).collect();
    places.sort_by_key(|&place| key(&tasks[place]));
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::response_time::all_meet_deadlines;

    fn meets(tasks: &[Timing], order: &[usize]) -> bool {
        all_meet_deadlines(&order.iter().map(|&place| tasks[place]).collect::<Vec<_>>())
    }

    #[test]
    fn rate_and_deadline_monotonic_orders() {
        let tasks = [Timing::new(1, 20).with_deadline(5), Timing::new(1, 10), Timing::new(1, 15).with_jitter(12)];
        assert_eq!(rate_monotonic_order(&tasks), [1, 2, 0]);
        assert_eq!(deadline_monotonic_order(&tasks), [2, 0, 1]);
    }

    #[test]
    fn audsley_finds_an_order_where_the_monotonic_ones_fail() {
        // The deadlines of this example (Lehoczky 1990) exceed the periods, so neither monotonic
        // order is optimal.
        let tasks = [Timing::new(52, 100).with_deadline(110), Timing::new(52, 140).with_deadline(154)];
        assert!(!meets(&tasks, &rate_monotonic_order(&tasks)));
        assert!(!meets(&tasks, &deadline_monotonic_order(&tasks)));
        let order = audsley_order(&tasks).expect("an order");
        assert!(meets(&tasks, &order), "{order:?}");
    }

    #[test]
    fn audsley_reports_that_there_is_no_order() {
        assert_eq!(audsley_order(&[Timing::new(6, 10), Timing::new(6, 10)]), None);
        assert_eq!(audsley_order(&[]), Some(vec![]));
        assert_eq!(audsley_order_below(&[Timing::new(6, 10)], &[Timing::new(5, 10)], &mut StepBudget::default()), None);
        assert_eq!(audsley_order_below(&[], &[Timing::new(5, 10)], &mut StepBudget::new(0)), None);
    }

    #[test]
    fn tasks_share_a_level_where_their_deadlines_allow() {
        let light = [Timing::new(2, 10), Timing::new(2, 20), Timing::new(2, 30)];
        assert_eq!(fewest_priority_levels(&[], &light, &mut StepBudget::default()), Some(vec![0, 0, 0]));
        let long = [Timing::new(2, 10), Timing::new(2, 40), Timing::new(9, 40)];
        assert_eq!(fewest_priority_levels(&[], &long, &mut StepBudget::default()), Some(vec![0, 1, 1]));
        assert_eq!(fewest_priority_levels(&[Timing::new(9, 10)], &light, &mut StepBudget::default()), None);
        assert_eq!(fewest_priority_levels(&[], &long, &mut StepBudget::new(3)), None);
    }
}
