//! Simple allocators, and tests of global scheduling, for comparison with [`admit`](super::admit).

use super::DEFAULT_MAX_PRIORITY_LEVELS;
use super::load::{Charged, CoreLoad, Discipline};
use crate::analysis::StepBudget;
use crate::task::{Task, Timing, Utilization};

/// Places each task in turn on the core with the most room. Returns the index of each task's core;
/// `None` for a task that does not fit on that core.
#[must_use]
pub fn worst_fit(tasks: &[Task], cores: usize, discipline: Discipline) -> Vec<Option<usize>> {
    fit(tasks, cores, discipline, |rooms| (0..rooms.len()).max_by_key(|&core| rooms[core]).into_iter().collect())
}

/// Places each task in turn on the first core on which it fits. Returns the index of each task's
/// core; `None` for a task that fits on no core.
#[must_use]
pub fn first_fit(tasks: &[Task], cores: usize, discipline: Discipline) -> Vec<Option<usize>> {
    fit(tasks, cores, discipline, |rooms| (0..rooms.len()).collect())
}

fn fit(
    tasks: &[Task],
    cores: usize,
    discipline: Discipline,
    candidates: impl Fn(&[Utilization]) -> Vec<usize>,
) -> Vec<Option<usize>> {
    let mut loads = vec![CoreLoad::new(discipline, Utilization::ONE, DEFAULT_MAX_PRIORITY_LEVELS, &[]); cores];
    let place = |task: &Task| {
        let rooms: Vec<Utilization> = loads.iter().map(CoreLoad::room).collect();
        let charged = Charged::new(task.timing);
        let fits = |core: &usize| loads[*core].fits_with(&charged, &mut StepBudget::default());
        let core = candidates(&rooms).into_iter().find(fits)?;
        loads[core].insert(*task, charged);
        loads[core].refresh(&mut StepBudget::default());
        Some(core)
    };
    tasks.iter().map(place).collect()
}

/// Returns true if the tasks pass a density bound for global earliest deadline first (Goossens,
/// Funk and Baruah 2003). On m cores the sum of the densities must be at most m - (m - 1) d, where
/// d is the largest density. Returns false if a task has jitter or blocking.
#[must_use]
pub fn passes_global_edf_density(timings: &[Timing], cores: u32) -> bool {
    let densities: Vec<Utilization> = timings.iter().map(density).collect();
    let largest = densities.iter().copied().max().unwrap_or_default();
    let sum = densities.iter().fold(0_u128, |sum, density| sum + u128::from(density.0));
    let one = u128::from(Utilization::ONE.0);
    let cores = u128::from(cores);
    let bound = (cores * one).checked_sub(cores.saturating_sub(1) * u128::from(largest.0));
    bound.is_some_and(|bound| cores > 0 && sum <= bound) && timings.iter().all(is_undelayed)
}

/// Returns true if the tasks pass the interference test for global earliest deadline first
/// (Bertogna, Cirinei and Lipari 2005). Returns false if a deadline exceeds its period, or a task
/// has jitter or blocking.
#[must_use]
pub fn passes_global_edf_interference(timings: &[Timing], cores: u32) -> bool {
    timings.iter().enumerate().all(|(place, task)| {
        let Some(slack) = task.deadline.checked_sub(task.execution) else { return false };
        // Interference above the slack makes the task late, so each other task counts for at most
        // `slack` + 1.
        let most = u128::from(slack) + 1;
        let others = timings.iter().enumerate().filter(|(other, _)| *other != place);
        let sum: u128 = others.map(|(_, other)| u128::from(work_before(other, task.deadline)).min(most)).sum();
        sum < u128::from(cores) * most && task.deadline <= task.period && is_undelayed(task)
    })
}

fn work_before(task: &Timing, interval: u64) -> u64 {
    let period = task.period.max(1);
    let whole = interval.checked_sub(task.deadline).map_or(0, |room| room / period + 1);
    let carried = task.execution.min(interval.saturating_sub(whole.saturating_mul(period)));
    whole.saturating_mul(task.execution).saturating_add(carried)
}

/// Returns true if the tasks pass a bound for global rate-monotonic scheduling (Bertogna, Cirinei
/// and Lipari 2005). On m cores the total utilization must be at most m / 2 (1 - U_max) + U_max,
/// with the largest utilization U_max. Returns false if a deadline is below its period, or a task
/// has jitter or blocking.
#[must_use]
pub fn passes_global_rate_monotonic(timings: &[Timing], cores: u32) -> bool {
    let shares: Vec<Utilization> = timings.iter().map(Timing::utilization).collect();
    let largest = shares.iter().copied().max().unwrap_or_default();
    let sum = shares.iter().fold(0_u128, |sum, share| sum + u128::from(share.0));
    let Some(rest) = Utilization::ONE.0.checked_sub(largest.0) else { return false };
    2 * sum <= u128::from(cores) * u128::from(rest) + 2 * u128::from(largest.0)
        && cores > 0
        && timings.iter().all(|task| task.deadline >= task.period && is_undelayed(task))
}

fn is_undelayed(task: &Timing) -> bool {
    task.jitter == 0 && task.blocking == 0
}

fn density(task: &Timing) -> Utilization {
    Timing { period: task.period.min(task.deadline), ..*task }.utilization()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskId;

    fn tasks(pairs: &[(u64, u64)]) -> Vec<Task> {
        let task = |(id, &(execution, period)): (usize, &(u64, u64))| {
            Task::new(TaskId(id as u64), Timing::new(execution * 1_000_000, period * 1_000_000)).expect("in range")
        };
        pairs.iter().enumerate().map(task).collect()
    }

    #[test]
    fn worst_fit_places_fewer_tasks_than_first_fit() {
        let set = tasks(&[(4, 10), (4, 10), (8, 10)]);
        assert_eq!(worst_fit(&set, 2, Discipline::EarliestDeadlineFirst).last(), Some(&None));
        assert_eq!(first_fit(&set, 2, Discipline::EarliestDeadlineFirst), [Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn one_heavy_task_defeats_global_scheduling() {
        // Dhall's effect: the light tasks run first, and the heavy task misses its deadline at a
        // utilization just above 1.
        let heavy = [Timing::new(2, 100), Timing::new(2, 100), Timing::new(100, 101)];
        assert!(!passes_global_edf_density(&heavy, 2));
        assert!(!passes_global_edf_interference(&heavy, 2));
        assert!(!passes_global_rate_monotonic(&heavy, 2));
        let light = [Timing::new(30, 100); 4];
        assert!(passes_global_edf_density(&light, 2));
        assert!(passes_global_edf_interference(&light, 2));
        assert!(!passes_global_rate_monotonic(&light, 2), "expected a failure: 1.2 is above 1.0");
        assert!(passes_global_rate_monotonic(&light[..3], 2));
    }

    #[test]
    fn jobs_that_end_with_the_interval_count_completely() {
        assert_eq!(work_before(&Timing::new(3, 10).with_deadline(5), 16), 6);
        assert_eq!(work_before(&Timing::new(3, 10).with_deadline(5), 4), 3);
        assert_eq!(work_before(&Timing::new(3, 10).with_deadline(5), 12), 5);
        assert_eq!(work_before(&Timing::new(3, 10).with_deadline(5), 2), 2);
    }

    #[test]
    fn no_core_and_no_task() {
        assert!(!passes_global_edf_density(&[Timing::new(1, 2)], 0));
        assert!(passes_global_edf_density(&[], 1));
        assert!(!passes_global_edf_interference(&[Timing::new(1, 2)], 0));
        assert!(!passes_global_rate_monotonic(&[Timing::new(1, 2)], 0));
        let late = [Timing::new(1, 10).with_jitter(1)];
        assert!(!passes_global_edf_density(&late, 2) && !passes_global_edf_interference(&late, 2));
        assert!(!passes_global_rate_monotonic(&late, 2));
        assert_eq!(worst_fit(&tasks(&[(1, 2)]), 0, Discipline::FixedPriority), [None]);
    }
}
