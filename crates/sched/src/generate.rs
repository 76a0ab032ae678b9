//! Random task sets for experiments. Each seed determines one set, on every machine.
//!
//! The utilizations of a group's tasks are uniformly distributed over all combinations that have
//! the group's sum and in which no task exceeds one processor.

use crate::random::Random;
use crate::task::{Nanos, Task, TaskId, Timing, Utilization};

/// Number of tasks in the first group of the MC-ORB paper's workload.
pub const FIRST_GROUP_TASKS: usize = 10;

/// Number of failed draws of UUniFast-Discard after which the sampler uses a random walk.
const MAX_DRAWS: u32 = 100;

const STEPS_PER_TASK: usize = 100;

/// Parameters of random task sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The sum of all utilizations.
    pub utilization: Utilization,
    /// The numbers of tasks in the groups. Each group has an equal part of the utilization.
    pub groups: Vec<usize>,
    /// The shortest period, in nanoseconds.
    pub min_period: Nanos,
    /// The longest period, in nanoseconds.
    pub max_period: Nanos,
}

impl Workload {
    /// Creates the workload of the MC-ORB paper: 10 tasks, and `balance` times as many, rounded and
    /// clamped to 1 to 10, in a second group. Periods are uniformly distributed from 50 ms to 1 s;
    /// deadlines equal periods.
    #[must_use]
    pub fn two_groups(utilization: Utilization, balance: Utilization) -> Self {
        let tenth = Utilization::ONE.0 / 10;
        let second = usize::try_from((balance.0.saturating_add(tenth / 2)) / tenth).unwrap_or(usize::MAX);
        Self {
            groups: vec![FIRST_GROUP_TASKS, second.clamp(1, FIRST_GROUP_TASKS)],
            ..Self::one_group(utilization, FIRST_GROUP_TASKS)
        }
    }

    /// Creates the parameters of sets with `tasks` tasks in one group, with periods from 50 ms to 1
    /// s.
    #[must_use]
    pub fn one_group(utilization: Utilization, tasks: usize) -> Self {
        Self { utilization, groups: vec![tasks], min_period: 50_000_000, max_period: 1_000_000_000 }
    }

    /// Returns the task set of a seed, in random order, with ids from 0.
    #[must_use]
    pub fn tasks(&self, seed: u64) -> Vec<Task> {
        let mut random = Random::new(seed);
        let groups = u64::try_from(self.groups.len()).unwrap_or(u64::MAX).max(1);
        let mut timings = Vec::new();
        for &size in &self.groups {
            for share in shares(&mut random, self.utilization.0 / groups, size) {
                timings.push(self.timing(&mut random, share));
            }
        }
        random.shuffle(&mut timings);
        let task = |(id, timing)| Task::new(TaskId(id), timing).ok();
        (0..).zip(timings).filter_map(task).collect()
    }

    fn timing(&self, random: &mut Random, share: u64) -> Timing {
        let microseconds = random.in_range(self.min_period.div_ceil(1_000), self.max_period / 1_000);
        let period = microseconds.saturating_mul(1_000).clamp(crate::task::MIN_PERIOD, crate::task::MAX_PERIOD);
        let execution = u128::from(period) * u128::from(share) / u128::from(Utilization::ONE.0);
        Timing::new(u64::try_from(execution).unwrap_or(period).clamp(1, period), period)
    }
}

fn shares(random: &mut Random, total: u64, count: usize) -> Vec<u64> {
    let one = Utilization::ONE.0;
    let whole = u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(one);
    if count == 0 || total >= whole {
        return vec![one; count];
    }
    for _ in 0..MAX_DRAWS {
        let shares = spacings(random, total, count);
        if shares.iter().all(|share| *share <= one) {
            return shares;
        }
    }
    walked(random, total, count)
}

/// Divides `total` at `count` - 1 random points: every division is equally likely, as in UUniFast.
fn spacings(random: &mut Random, total: u64, count: usize) -> Vec<u64> {
    let mut points: Vec<u64> = (1..count).map(|_| random.in_range(0, total)).collect();
    points.sort_unstable();
    points.push(total);
    let mut before = 0;
    points.into_iter().map(|point| point - std::mem::replace(&mut before, point)).collect()
}

/// Returns shares of at most one processor each, by a random walk from equal shares.
///
/// The walk's stationary distribution is uniform over all shares with this sum and bound.
fn walked(random: &mut Random, total: u64, count: usize) -> Vec<u64> {
    let one = Utilization::ONE.0;
    let parts = u64::try_from(count).unwrap_or(u64::MAX);
    let mut shares = vec![total / parts; count];
    let rest = usize::try_from(total % parts).unwrap_or(0);
    shares.iter_mut().take(rest).for_each(|share| *share += 1);
    for _ in 0..count.saturating_mul(STEPS_PER_TASK) {
        let (first, second) = (random.random_index(count), random.random_index(count));
        if first != second {
            let sum = shares[first] + shares[second];
            shares[first] = random.in_range(sum.saturating_sub(one), sum.min(one));
            shares[second] = sum - shares[first];
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(tasks: &[Task]) -> u64 {
        tasks.iter().map(|task| task.timing.utilization().0).sum()
    }

    #[test]
    fn a_seed_gives_one_set_with_its_utilization() {
        let workload = Workload::two_groups(Utilization(1_600_000_000), Utilization(300_000_000));
        let tasks = workload.tasks(7);
        assert_eq!(tasks, workload.tasks(7));
        assert_ne!(tasks, workload.tasks(8));
        assert_eq!(tasks.len(), 13);
        assert!(total(&tasks).abs_diff(1_600_000_000) < 1_000, "{}", total(&tasks));
        for task in &tasks {
            assert!((50_000_000..=1_000_000_000).contains(&task.timing.period) && task.timing.period % 1_000 == 0);
            assert_eq!(task.timing.deadline, task.timing.period);
        }
    }

    #[test]
    fn the_balance_sets_the_size_of_the_second_group() {
        let second = |millis: u64| Workload::two_groups(Utilization::ONE, Utilization(millis * 1_000_000)).groups[1];
        assert_eq!([0, 100, 149, 151, 500, 1_000, 9_000].map(second), [1, 1, 1, 2, 5, 10, 10]);
    }

    #[test]
    fn each_group_has_an_equal_part_of_the_utilization() {
        let workload = Workload { groups: vec![1, 10], ..Workload::one_group(Utilization(1_000_000_000), 0) };
        let largest = workload.tasks(3).iter().map(|task| task.timing.utilization().0).max();
        assert!(largest.is_some_and(|largest| (499_999_000..=500_001_000).contains(&largest)), "{largest:?}");
    }

    #[test]
    fn shares_stay_below_a_processor_at_high_utilization() {
        for (total, count) in [(9_500_000_000, 10), (5_000_000_000, 10), (1_999_999_999, 2), (3, 7), (0, 3)] {
            for seed in 0..20 {
                let shares = shares(&mut Random::new(seed), total, count);
                assert_eq!(shares.iter().sum::<u64>(), total, "{count} shares");
                assert!(shares.iter().all(|share| *share <= Utilization::ONE.0), "{shares:?}");
            }
        }
        assert_eq!(shares(&mut Random::new(0), 3_000_000_000, 2), [1_000_000_000; 2]);
        assert!(shares(&mut Random::new(0), 5, 0).is_empty());
    }

    #[test]
    fn both_samplers_have_equal_distributions() {
        // The mean of the largest of 4 shares whose sum is 1: (1 + 1/2 + 1/3 + 1/4) / 4.
        let mean = |sample: fn(&mut Random, u64, usize) -> Vec<u64>| {
            let mut random = Random::new(11);
            let largest = |_| sample(&mut random, Utilization::ONE.0, 4).into_iter().max().unwrap_or(0);
            (0..4_000).map(largest).sum::<u64>() / 4_000
        };
        let known = 520_833_333;
        assert!(mean(spacings).abs_diff(known) < 10_000_000, "{}", mean(spacings));
        assert!(mean(walked).abs_diff(known) < 10_000_000, "{}", mean(walked));
    }

    #[test]
    fn period_bounds_are_clamped_to_the_permitted_range() {
        let workload = Workload { min_period: 0, max_period: u64::MAX, ..Workload::one_group(Utilization::ONE, 5) };
        assert_eq!(workload.tasks(1).len(), 5);
        let reversed = Workload { min_period: 9_000_000, max_period: 1_000_000, ..workload };
        assert!(reversed.tasks(1).iter().all(|task| task.timing.period == 9_000_000));
    }
}
