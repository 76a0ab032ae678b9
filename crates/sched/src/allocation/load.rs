//! The tasks of one core, and the test whether the core has room for another task.

use crate::analysis::priorities::{audsley_order_below, deadline_key, fewest_priority_levels};
use crate::analysis::response_time::{follow, response_time};
use crate::analysis::{StepBudget, bounds, demand};
use crate::task::{Nanos, Task, TaskId, Timing, Utilization};

/// Schedulability test of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Discipline {
    /// Fixed priorities in deadline-monotonic order, or in an order that Audsley's algorithm finds;
    /// tested by response times.
    #[default]
    FixedPriority,
    /// Rate-monotonic priorities, tested with the bound of Liu and Layland.
    LiuLayland,
    /// Earliest deadline first, tested by processor demand.
    EarliestDeadlineFirst,
}

/// The number one in the fixed-point format of the hyperbolic bound.
const ONE: u128 = 1 << 62;

#[derive(Clone, Copy, Debug)]
pub(super) struct Charged {
    pub(super) timing: Timing,
    pub(super) floor: Utilization,
    ceiling: Utilization,
    /// The task's summand in the numerator of Bini's bound, in billionths of nanoseconds.
    weight: u128,
    /// 1 plus the utilization, rounded up, as a multiple of 1 / [`ONE`].
    factor: u128,
}

impl Charged {
    pub(super) fn new(timing: Timing) -> Self {
        let (floor, ceiling) = (timing.utilization_floor(), timing.utilization());
        let one = u128::from(Utilization::ONE.0);
        let counted = if timing.jitter == 0 { one.saturating_sub(u128::from(floor.0)) } else { one };
        // Each product fits into 128 bits. Their sum may not, so it saturates.
        let weight =
            (u128::from(timing.execution) * counted).saturating_add(u128::from(timing.jitter) * u128::from(ceiling.0));
        let factor = ONE + (u128::from(ceiling.0) * ONE).div_ceil(one);
        Self { timing, floor, ceiling, weight, factor }
    }

    fn is_simple(&self) -> bool {
        self.timing.deadline == self.timing.period && self.timing.jitter == 0 && self.timing.blocking == 0
    }
}

/// Sums for Bini's response-time bound, over the tasks with higher priority.
#[derive(Clone, Copy, Default)]
struct Above {
    weight: u128,
    ceiling: u128,
}

impl Above {
    fn add(&mut self, charged: &Charged) {
        self.weight = self.weight.saturating_add(charged.weight);
        self.ceiling += u128::from(charged.ceiling.0);
    }

    /// Returns true if Bini's bound proves that a job of `task`, at a lower priority, completes by
    /// its deadline and before the next job arrives.
    fn proves(&self, task: &Timing) -> bool {
        let one = u128::from(Utilization::ONE.0);
        let latest = task.deadline.min(task.period).saturating_sub(task.jitter);
        let own = (u128::from(task.execution) + u128::from(task.blocking)) * one;
        let Some(rest) = one.checked_sub(self.ceiling) else { return false };
        // A saturated sum exceeds every product of two 64-bit numbers.
        self.weight.saturating_add(own) <= u128::from(latest) * rest
    }
}

#[derive(Clone, Debug)]
pub(super) struct CoreLoad {
    discipline: Discipline,
    capacity: Utilization,
    max_levels: u32,
    interference: Vec<Charged>,
    /// The timings of the interference, followed by the timings of the tasks.
    timings: Vec<Timing>,
    tasks: Vec<(Task, Charged)>,
    /// For each task, a lower bound of `ResponseTime::first_completion` under deadline-monotonic
    /// priorities.
    completions: Vec<Nanos>,
    /// Number of leading tasks that are known to meet their deadlines under deadline-monotonic
    /// priorities.
    verified: usize,
    share: Utilization,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    pub(super) task: TaskId,
    pub(super) level: u32,
    pub(super) response: Option<Nanos>,
}

impl CoreLoad {
    pub(super) fn new(discipline: Discipline, capacity: Utilization, max_levels: u32, interference: &[Timing]) -> Self {
        Self {
            discipline,
            capacity,
            max_levels,
            interference: interference.iter().map(|timing| Charged::new(*timing)).collect(),
            timings: interference.to_vec(),
            tasks: Vec::new(),
            completions: Vec::new(),
            verified: 0,
            share: Utilization::total_floor(interference),
        }
    }

    pub(super) fn room(&self) -> Utilization {
        self.capacity.saturating_sub(self.share)
    }

    pub(super) fn tasks(&self) -> &[(Task, Charged)] {
        &self.tasks
    }

    pub(super) fn has_interference(&self) -> bool {
        !self.interference.is_empty()
    }

    pub(super) fn capacity(&self) -> Utilization {
        self.capacity
    }

    pub(super) fn has_free_level(&self) -> bool {
        self.tasks.len() < self.max_levels as usize
    }

    pub(super) fn insert(&mut self, task: Task, charged: Charged) {
        let place = self.place_of(&charged.timing);
        self.tasks.insert(place, (task, charged));
        self.timings.insert(self.interference.len() + place, charged.timing);
        self.completions.insert(place, 0);
        for completion in &mut self.completions[place + 1..] {
            *completion = completion.saturating_add(charged.timing.execution);
        }
        self.verified = self.verified.min(place);
        self.share = self.share.saturating_add(charged.floor);
    }

    pub(super) fn remove(&mut self, place: usize) -> (Task, Charged) {
        let removed = self.tasks.remove(place);
        self.timings.remove(self.interference.len() + place);
        self.completions.remove(place);
        self.completions[place..].fill(0);
        self.verified -= usize::from(place < self.verified);
        self.share = self.share.saturating_sub(removed.1.floor);
        removed
    }

    pub(super) fn remove_task(&mut self, task: TaskId) -> Option<(Task, Charged)> {
        let place = self.tasks.iter().position(|(other, _)| other.id == task)?;
        Some(self.remove(place))
    }

    /// Analyses the tasks from index `verified` on, under fixed priorities, until one of them is
    /// not known to meet its deadline.
    pub(super) fn refresh(&mut self, steps: &mut StepBudget) {
        if self.discipline != Discipline::FixedPriority {
            return;
        }
        while let Some((_, task)) = self.tasks.get(self.verified) {
            let above = &self.timings[..self.interference.len() + self.verified];
            let timing = &task.timing;
            let at_least = self.completions[self.verified];
            match follow(timing, above, None, at_least, Some(timing.deadline), steps) {
                Some(response) if response.meets_deadline_of(timing) => {
                    self.completions[self.verified] = response.first_completion;
                    self.verified += 1;
                }
                _ => return,
            }
        }
    }

    pub(super) fn fits_with(&self, added: &Charged, steps: &mut StepBudget) -> bool {
        self.holds(Some(added), steps)
    }

    pub(super) fn fits(&self, steps: &mut StepBudget) -> bool {
        self.holds(None, steps)
    }

    fn holds(&self, added: Option<&Charged>, steps: &mut StepBudget) -> bool {
        let share = added.map_or(self.share, |added| self.share.saturating_add(added.floor));
        if share > self.capacity || !steps.try_take(self.tasks.len()) {
            return false;
        }
        match self.discipline {
            Discipline::FixedPriority => self.fixed_priorities_hold(added, steps),
            Discipline::LiuLayland => {
                let timings = self.timings_with(added);
                self.has_levels(added)
                    && have_longer_periods(&timings, self.above())
                    && bounds::passes_liu_layland(&[self.above(), &timings].concat())
            }
            Discipline::EarliestDeadlineFirst => {
                self.has_levels(added) && demand::is_schedulable_below(self.above(), &self.timings_with(added), steps)
            }
        }
    }

    /// Returns true if the tasks and `added` are known to meet their deadlines at fixed priorities.
    /// Applies the hyperbolic bound, then for each task Bini's bound and, if it fails, the exact
    /// response time, and then searches for another order. If there are more tasks than levels,
    /// searches for shared levels instead.
    fn fixed_priorities_hold(&self, added: Option<&Charged>, steps: &mut StepBudget) -> bool {
        if !self.has_levels(added) {
            return fewest_priority_levels(self.above(), &self.timings_with(added), steps)
                .is_some_and(|levels| levels.into_iter().all(|level| level < self.max_levels));
        }
        if self.passes_hyperbolic(added) || self.meets_in_order(added, steps) {
            return true;
        }
        let timings = self.timings_with(added);
        needs_search(&timings) && audsley_order_below(self.above(), &timings, steps).is_some()
    }

    fn has_levels(&self, added: Option<&Charged>) -> bool {
        self.tasks.len() + usize::from(added.is_some()) <= self.max_levels as usize
    }

    fn passes_hyperbolic(&self, added: Option<&Charged>) -> bool {
        let mut product = ONE;
        self.interference.is_empty()
            && self.tasks.iter().map(|(_, charged)| charged).chain(added).all(|charged| {
                // Each factor is at most 2 * `ONE`, so the product fits into 128 bits.
                product = (product * charged.factor.min(2 * ONE)).div_ceil(ONE);
                charged.is_simple() && charged.factor <= 2 * ONE && product <= 2 * ONE
            })
    }

    fn meets_in_order(&self, added: Option<&Charged>, steps: &mut StepBudget) -> bool {
        let place = added.map_or(self.tasks.len(), |added| self.place_of(&added.timing));
        let first = self.interference.len();
        let mut above = Above::default();
        self.interference.iter().for_each(|charged| above.add(charged));
        for (index, (_, charged)) in self.tasks.iter().enumerate() {
            if let Some(added) = added.filter(|_| index == place) {
                if !meets(&added.timing, &above, &self.timings[..first + index], None, 0, steps) {
                    return false;
                }
                above.add(added);
            }
            let more = added.filter(|_| index >= place).map(|added| &added.timing);
            if index >= self.verified || more.is_some() {
                let at_least = self.completions[index].saturating_add(more.map_or(0, |more| more.execution));
                if !meets(&charged.timing, &above, &self.timings[..first + index], more, at_least, steps) {
                    return false;
                }
            }
            above.add(charged);
        }
        added
            .filter(|_| place == self.tasks.len())
            .is_none_or(|added| meets(&added.timing, &above, &self.timings, None, 0, steps))
    }

    /// Returns the worst-case response time of an added task that is known to fit; `None` under
    /// earliest deadline first, or if no bound is found.
    pub(super) fn response_with(&self, task: &Task, added: &Charged) -> Option<Nanos> {
        match self.discipline {
            Discipline::EarliestDeadlineFirst => return None,
            Discipline::FixedPriority
                if !self.has_levels(Some(added)) || !self.meets_in_order(Some(added), &mut StepBudget::default()) => {}
            _ => {
                let above = &self.timings[..self.interference.len() + self.place_of(&added.timing)];
                return response_time(&added.timing, above).map(|response| response.from_arrival);
            }
        }
        let mut with = self.clone();
        with.insert(*task, *added);
        with.assigned().into_iter().find(|assigned| assigned.task == task.id).and_then(|assigned| assigned.response)
    }

    /// Returns the level and the response time of each task. If no priorities meet all deadlines,
    /// the order is deadline-monotonic, and all tasks beyond the last level share this level. Under
    /// earliest deadline first all tasks have level 0 and no response time.
    pub(super) fn assigned(&self) -> Vec<Assigned> {
        let timings = self.timings_with(None);
        let steps = &mut StepBudget::default();
        if self.discipline == Discipline::EarliestDeadlineFirst {
            let assign = |(task, _): &(Task, Charged)| Assigned { task: task.id, level: 0, response: None };
            return self.tasks.iter().map(assign).collect();
        }
        let levels = self.shared(&timings, steps).or_else(|| self.searched(&timings, steps));
        let last = self.max_levels.saturating_sub(1);
        let levels = levels.unwrap_or_else(|| (0..).map(|level: u32| level.min(last)).take(timings.len()).collect());
        let assign = |(place, (task, charged)): (usize, &(Task, Charged))| {
            let above = self.above().iter().copied();
            let others = (0..timings.len()).filter(|&other| other != place && levels[other] <= levels[place]);
            let interfering: Vec<Timing> = above.chain(others.map(|other| timings[other])).collect();
            let response = response_time(&charged.timing, &interfering).map(|response| response.from_arrival);
            Assigned { task: task.id, level: levels[place], response }
        };
        self.tasks.iter().enumerate().map(assign).collect()
    }

    fn shared(&self, timings: &[Timing], steps: &mut StepBudget) -> Option<Vec<u32>> {
        if self.has_levels(None) {
            return None;
        }
        let levels = fewest_priority_levels(self.above(), timings, steps)?;
        levels.iter().all(|level| *level < self.max_levels).then_some(levels)
    }

    /// Returns the levels that Audsley's algorithm finds if the deadline-monotonic order fails;
    /// `None` if the deadline-monotonic order succeeds, or the algorithm finds no levels.
    fn searched(&self, timings: &[Timing], steps: &mut StepBudget) -> Option<Vec<u32>> {
        if !needs_search(timings) || self.meets_in_order(None, steps) {
            return None;
        }
        let order = audsley_order_below(self.above(), timings, steps)?;
        let mut levels = vec![0; timings.len()];
        for (place, level) in order.into_iter().zip(0..) {
            levels[place] = level;
        }
        Some(levels)
    }

    fn above(&self) -> &[Timing] {
        &self.timings[..self.interference.len()]
    }

    fn timings_with(&self, added: Option<&Charged>) -> Vec<Timing> {
        let mut timings = self.timings[self.interference.len()..].to_vec();
        if let Some(added) = added {
            timings.insert(self.place_of(&added.timing), added.timing);
        }
        timings
    }

    fn place_of(&self, timing: &Timing) -> usize {
        let key = deadline_key(timing);
        self.tasks.partition_point(|(_, other)| deadline_key(&other.timing) <= key)
    }
}

/// Returns true if another order may succeed after the deadline-monotonic order has failed.
fn needs_search(timings: &[Timing]) -> bool {
    let blocking = timings.first().map_or(0, |timing| timing.blocking);
    timings.iter().any(|timing| timing.deadline > timing.period || timing.blocking != blocking)
}

/// Returns true if no task has a shorter period than the interference, as the bound of Liu and
/// Layland requires.
fn have_longer_periods(tasks: &[Timing], interference: &[Timing]) -> bool {
    let longest = interference.iter().map(|timing| timing.period).max().unwrap_or(0);
    tasks.iter().all(|task| task.period >= longest)
}

fn meets(
    task: &Timing,
    above: &Above,
    timings: &[Timing],
    more: Option<&Timing>,
    at_least: Nanos,
    steps: &mut StepBudget,
) -> bool {
    above.proves(task)
        || follow(task, timings, more, at_least, Some(task.deadline), steps)
            .is_some_and(|response| response.meets_deadline_of(task))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn task(id: u64, execution: Nanos, period: Nanos) -> Task {
        Task::new(TaskId(id), Timing::new(execution * MS, period * MS)).expect("a timing in range")
    }

    fn empty(discipline: Discipline, interference: &[Timing]) -> CoreLoad {
        CoreLoad::new(discipline, Utilization::ONE, 98, interference)
    }

    fn load(discipline: Discipline, tasks: &[Task]) -> CoreLoad {
        let mut load = empty(discipline, &[]);
        for task in tasks {
            load.insert(*task, Charged::new(task.timing));
        }
        load
    }

    fn fits(load: &CoreLoad) -> bool {
        load.fits(&mut StepBudget::default())
    }

    fn fits_with(load: &CoreLoad, timing: Timing) -> bool {
        load.fits_with(&Charged::new(timing), &mut StepBudget::default())
    }

    #[test]
    fn bound_of_liu_and_layland_needs_interference_with_the_shortest_periods() {
        // The interference runs first, so a job with a deadline of 10 ms waits for 20 ms.
        let mut load = empty(Discipline::LiuLayland, &[Timing::new(20 * MS, 100 * MS)]);
        assert!(!fits_with(&load, Timing::new(MS, 10 * MS)));
        assert!(fits_with(&load, Timing::new(MS, 100 * MS)));
        let short = task(1, 1, 10);
        load.insert(short, Charged::new(short.timing));
        assert!(!fits(&load));
    }

    #[test]
    fn tasks_beyond_the_last_level_share_it() {
        let mut load = CoreLoad::new(Discipline::FixedPriority, Utilization::ONE, 2, &[]);
        for (id, deadline) in [(1, 3), (2, 6), (3, 9)] {
            let timing = Timing::new(3 * MS, 10 * MS).with_deadline(deadline * MS);
            load.insert(Task::new(TaskId(id), timing).expect("in range"), Charged::new(timing));
        }
        assert!(!fits(&load));
        let assigned = load.assigned();
        assert_eq!(assigned.iter().map(|assigned| assigned.level).collect::<Vec<_>>(), [0, 1, 1]);
        let responses: Vec<_> = assigned.iter().map(|assigned| assigned.response).collect();
        assert_eq!(responses, [Some(3 * MS), Some(9 * MS), Some(9 * MS)]);
    }

    #[test]
    fn each_discipline_has_its_test() {
        // The set has utilization 1 and harmonic periods. Exact tests accept it, and the bound does
        // not.
        let harmonic = [task(1, 5, 10), task(2, 10, 20)];
        assert!(fits(&load(Discipline::FixedPriority, &harmonic)));
        assert!(fits(&load(Discipline::EarliestDeadlineFirst, &harmonic)));
        assert!(!fits(&load(Discipline::LiuLayland, &harmonic)));
        // The set has utilization 0.97 and no harmonic periods. Only earliest deadline first
        // accepts it.
        let uneven = [task(1, 5, 10), task(2, 7, 15)];
        assert!(!fits(&load(Discipline::FixedPriority, &uneven)));
        assert!(fits(&load(Discipline::EarliestDeadlineFirst, &uneven)));
    }

    #[test]
    fn interference_comes_before_every_task_in_each_discipline() {
        for discipline in [Discipline::FixedPriority, Discipline::EarliestDeadlineFirst] {
            let manager = Timing::new(MS, 100 * MS);
            let mut load = empty(discipline, &[manager, manager]);
            load.insert(task(1, 8, 10), Charged::new(task(1, 8, 10).timing));
            assert!(fits(&load), "{discipline:?}");
            assert!(!fits_with(&load, Timing::new(MS, 50 * MS).with_deadline(9 * MS)), "{discipline:?}");
        }
    }

    #[test]
    fn a_core_promises_no_more_than_its_capacity() {
        let mut load = CoreLoad::new(Discipline::FixedPriority, Utilization(950_000_000), 98, &[]);
        assert!(fits_with(&load, Timing::new(95, 100)));
        assert!(!fits_with(&load, Timing::new(96, 100)));
        load.insert(task(1, 45, 100), Charged::new(task(1, 45, 100).timing));
        assert_eq!(load.room(), Utilization(500_000_000));
        load.remove(0);
        assert_eq!(load.room(), Utilization(950_000_000));
    }

    #[test]
    fn levels_and_response_times_follow_the_deadlines() {
        let load = load(Discipline::FixedPriority, &[task(3, 5, 20), task(1, 3, 7), task(2, 3, 12)]);
        let assigned = load.assigned().into_iter().map(|one| (one.task.0, one.level, one.response));
        assert_eq!(assigned.collect::<Vec<_>>(), [(1, 0, Some(3 * MS)), (2, 1, Some(6 * MS)), (3, 2, Some(20 * MS))]);
    }

    #[test]
    fn levels_follow_audsley_where_the_deadlines_mislead() {
        let late = |id, execution, period, deadline| {
            let timing = Timing::new(execution * MS, period * MS).with_deadline(deadline * MS);
            Task::new(TaskId(id), timing).expect("a timing in range")
        };
        let load = load(Discipline::FixedPriority, &[late(1, 52, 100, 110), late(2, 52, 140, 154)]);
        assert!(fits(&load));
        let assigned = load.assigned();
        assert_eq!(assigned.iter().map(|one| (one.task.0, one.level)).collect::<Vec<_>>(), [(1, 1), (2, 0)]);
        assert!(assigned[0].response <= Some(110 * MS) && assigned[1].response <= Some(154 * MS), "{assigned:?}");
    }

    #[test]
    fn more_tasks_than_levels_share_some() {
        let mut load = CoreLoad::new(Discipline::FixedPriority, Utilization::ONE, 2, &[]);
        for one in [task(1, 2, 10), task(2, 2, 40), task(3, 9, 40)] {
            assert!(fits_with(&load, one.timing));
            load.insert(one, Charged::new(one.timing));
        }
        let assigned = load.assigned();
        assert_eq!(assigned.iter().map(|one| one.level).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!(assigned[1].response, assigned[2].response);
        assert_eq!(assigned[2].response, Some(15 * MS));
        assert!(!load.has_free_level());
        let one_level = CoreLoad { max_levels: 1, ..load };
        assert!(!fits(&one_level));
    }

    #[test]
    fn results_before_do_not_change_later_ones() {
        let mut load = empty(Discipline::FixedPriority, &[Timing::new(MS / 2, 10 * MS)]);
        for one in [task(1, 3, 20), task(2, 5, 30), task(3, 7, 50), task(4, 8, 70), task(5, 2, 15)] {
            let cold = load.clone();
            load.refresh(&mut StepBudget::default());
            assert!(fits_with(&load, one.timing));
            assert!(fits_with(&cold, one.timing));
            load.insert(one, Charged::new(one.timing));
        }
        load.refresh(&mut StepBudget::default());
        assert_eq!(load.verified, 5);
        load.remove_task(TaskId(5)).expect("the task is in the load");
        assert_eq!(load.verified, 4);
        assert!(fits(&load));
        assert!(!load.fits_with(&Charged::new(Timing::new(8 * MS, 40 * MS)), &mut StepBudget::new(1)));
    }
}
