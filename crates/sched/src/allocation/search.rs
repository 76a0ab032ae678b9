//! The search for room for one more task, in steps of increasing cost.

use std::cmp::Reverse;

use super::load::{Charged, CoreLoad};
use super::{AdmissionPlan, AllocationStep, Machine, Move};
use crate::analysis::StepBudget;
use crate::task::{Task, Utilization};

/// Minimum step budget of the search for a core without moves.
const DIRECT_STEPS: u32 = 1 << 17;

/// The search for a placement of one task. Cores are identified by their index in the machine.
pub(super) struct Search<'a> {
    machine: &'a Machine,
    loads: &'a [CoreLoad],
    steps: StepBudget,
    is_cut: bool,
}

#[derive(Clone, Copy)]
struct SearchTask {
    task: Task,
    charged: Charged,
    from: Option<usize>,
}

/// A placement for the new task: its core, and the moves that must come first.
type Room = (usize, Vec<Move>);

type Finder<'a> = fn(&mut Search<'a>, &SearchTask, &[usize]) -> Option<Room>;

impl<'a> Search<'a> {
    pub(super) fn new(machine: &'a Machine, loads: &'a [CoreLoad]) -> Self {
        Self { machine, loads, steps: StepBudget::new(machine.max_steps), is_cut: false }
    }

    pub(super) fn is_exhaustive(&self) -> bool {
        !self.is_cut && !self.steps.is_exhausted()
    }

    pub(super) fn place(&mut self, task: &Task, charged: &Charged) -> Option<AdmissionPlan> {
        let item = SearchTask { task: *task, charged: *charged, from: None };
        let all: Vec<usize> = (0..self.loads.len()).collect();
        let for_moves = std::mem::replace(&mut self.steps, StepBudget::new(DIRECT_STEPS.max(self.machine.max_steps)));
        let direct = self.best_fit(&item, &all);
        self.is_cut = direct.is_none() && self.steps.is_exhausted();
        self.steps = for_moves;
        if let Some(core) = direct {
            let response = self.loads[core].response_with(task, charged);
            return Some(self.plan(&item, core, Vec::new(), AllocationStep::Direct, response));
        }
        let allocation_steps: [(AllocationStep, Finder<'a>); 4] = [
            (AllocationStep::Move, Self::with_one_move),
            (AllocationStep::Swap, Self::with_a_swap),
            (AllocationStep::Repack, Self::repacked),
            (AllocationStep::Search, Self::searched),
        ];
        let clusters = self.clusters(&item);
        for (allocation_step, find) in allocation_steps {
            if clusters.is_empty() {
                return None;
            }
            if allocation_step > self.machine.max_allocation_step {
                self.is_cut = true;
                return None;
            }
            for cores in &clusters {
                if let Some((core, moves)) = find(self, &item, cores) {
                    let response = self.response_after(&item, core, &moves);
                    return Some(self.plan(&item, core, moves, allocation_step, response));
                }
            }
        }
        None
    }

    fn plan(
        &self,
        item: &SearchTask,
        core: usize,
        moves: Vec<Move>,
        allocation_step: AllocationStep,
        response: Option<u64>,
    ) -> AdmissionPlan {
        AdmissionPlan {
            task: item.task,
            core: self.machine.cores[core].id,
            moves,
            found_by_step: allocation_step,
            response,
        }
    }

    fn response_after(&self, item: &SearchTask, core: usize, moves: &[Move]) -> Option<u64> {
        let id = self.machine.cores[core].id;
        let mut load = self.loads[core].clone();
        for step in moves {
            if step.from == id {
                load.remove_task(step.task);
            } else if step.to == id {
                let mut tasks = self.loads.iter().flat_map(CoreLoad::tasks);
                if let Some((task, charged)) = tasks.find(|(task, _)| task.id == step.task) {
                    load.insert(*task, *charged);
                }
            }
        }
        load.response_with(&item.task, &item.charged)
    }

    /// Returns the cores of each cluster, the cluster with the most room first.
    ///
    /// A cluster is omitted if all its cores together have less room than the task needs, or if the
    /// task may run on none of them.
    fn clusters(&self, item: &SearchTask) -> Vec<Vec<usize>> {
        let mut numbers: Vec<u32> = self.machine.cores.iter().map(|core| core.cluster).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let cores = |number: u32| -> Vec<usize> {
            (0..self.loads.len()).filter(|&core| self.machine.cores[core].cluster == number).collect()
        };
        let room = |cores: &[usize]| {
            cores.iter().fold(Utilization::default(), |sum, &core| sum.saturating_add(self.loads[core].room()))
        };
        let mut clusters: Vec<Vec<usize>> = numbers.into_iter().map(cores).collect();
        clusters.retain(|cores| {
            item.charged.floor <= room(cores) && cores.iter().any(|&core| self.may_run(&item.task, core))
        });
        clusters.sort_by_key(|cores| Reverse(room(cores)));
        clusters
    }

    fn may_run(&self, task: &Task, core: usize) -> bool {
        task.pinned_core.is_none_or(|pinned| self.machine.cores[core].id == pinned)
    }

    fn best_fit(&mut self, item: &SearchTask, cores: &[usize]) -> Option<usize> {
        let loads = self.loads;
        let possible = |core: &usize| self.may_run(&item.task, *core) && loads[*core].room() >= item.charged.floor;
        let mut cores: Vec<usize> = cores.iter().copied().filter(possible).collect();
        cores.sort_by_key(|&core| loads[core].room());
        cores.into_iter().find(|&core| loads[core].fits_with(&item.charged, &mut self.steps))
    }

    fn step(&self, task: &Task, from: usize, to: usize) -> Move {
        Move { task: task.id, from: self.machine.cores[from].id, to: self.machine.cores[to].id }
    }

    /// Searches for one task whose move to another core makes room for the new task on the old
    /// core.
    fn with_one_move(&mut self, item: &SearchTask, cores: &[usize]) -> Option<Room> {
        for &core in cores {
            if !self.may_run(&item.task, core) {
                continue;
            }
            let others: Vec<usize> = cores.iter().copied().filter(|&other| other != core).collect();
            let widest = others.iter().map(|&other| self.loads[other].room()).max().unwrap_or_default();
            for place in 0..self.loads[core].tasks().len() {
                let (task, charged) = self.loads[core].tasks()[place];
                if charged.floor > widest {
                    continue;
                }
                if self.rest_with(item, core, place).is_none() {
                    continue;
                }
                let moved = SearchTask { task, charged, from: Some(core) };
                if let Some(to) = self.best_fit(&moved, &others) {
                    return Some((core, vec![self.step(&task, core, to)]));
                }
            }
        }
        None
    }

    /// Returns the load of `core` in which the new task replaces the task at index `place`; `None`
    /// if the replaced task is pinned, the new task does not fit, or the step budget ends.
    fn rest_with(&mut self, item: &SearchTask, core: usize, place: usize) -> Option<CoreLoad> {
        let load = &self.loads[core];
        let (task, charged) = &load.tasks()[place];
        if task.pinned_core.is_some() || load.room().saturating_add(charged.floor) < item.charged.floor {
            return None;
        }
        // Copying a load costs about as much as one step for each of its tasks.
        if !self.steps.try_take(load.tasks().len()) {
            return None;
        }
        let mut rest = load.clone();
        rest.remove(place);
        if !rest.fits_with(&item.charged, &mut self.steps) {
            return None;
        }
        rest.insert(item.task, item.charged);
        Some(rest)
    }

    fn with_a_swap(&mut self, item: &SearchTask, cores: &[usize]) -> Option<Room> {
        let loads = self.loads;
        for &core in cores {
            if !self.may_run(&item.task, core) {
                continue;
            }
            for place in 0..loads[core].tasks().len() {
                // If the new task does not fit after the removal of this task, no exchange of this
                // task helps.
                let Some(rest) = self.rest_with(item, core, place) else { continue };
                let (task, charged) = loads[core].tasks()[place];
                for &other in cores.iter().filter(|&&other| other != core) {
                    for (partner, (back, back_charged)) in loads[other].tasks().iter().enumerate() {
                        if self.steps.is_exhausted() {
                            return None;
                        }
                        // An exchange makes room only if the task that moves to this core is
                        // smaller than the task that leaves it.
                        if back.pinned_core.is_some()
                            || back_charged.floor >= charged.floor
                            || back_charged.floor > rest.room()
                            || loads[other].room().saturating_add(back_charged.floor) < charged.floor
                            || !rest.fits_with(back_charged, &mut self.steps)
                        {
                            continue;
                        }
                        let mut other_rest = loads[other].clone();
                        other_rest.remove(partner);
                        if other_rest.fits_with(&charged, &mut self.steps) {
                            return Some((core, vec![self.step(&task, core, other), self.step(back, other, core)]));
                        }
                    }
                }
            }
        }
        None
    }

    fn items(&self, item: &SearchTask, cores: &[usize]) -> Vec<SearchTask> {
        let mut items = vec![*item];
        for &core in cores {
            let tasks = self.loads[core].tasks().iter().filter(|(task, _)| task.pinned_core.is_none());
            items.extend(tasks.map(|(task, charged)| SearchTask { task: *task, charged: *charged, from: Some(core) }));
        }
        items.sort_by_key(|item| Reverse(item.charged.floor));
        items
    }

    fn emptied(&self, cores: &[usize]) -> Vec<CoreLoad> {
        let empty = |core: &usize| {
            let mut load = self.loads[*core].clone();
            for place in (0..load.tasks().len()).rev() {
                if load.tasks()[place].0.pinned_core.is_none() {
                    load.remove(place);
                }
            }
            load
        };
        cores.iter().map(empty).collect()
    }

    /// Places the cluster's tasks that are not pinned, and the new task, again: the largest task
    /// first, each on the core with the least room on which it fits.
    fn repacked(&mut self, item: &SearchTask, cores: &[usize]) -> Option<Room> {
        let items = self.items(item, cores);
        let mut loads = self.emptied(cores);
        let mut places = Vec::with_capacity(items.len());
        for item in &items {
            let place = by_room(&loads).into_iter().find(|&place| {
                self.may_run(&item.task, cores[place]) && loads[place].fits_with(&item.charged, &mut self.steps)
            })?;
            loads[place].insert(item.task, item.charged);
            loads[place].refresh(&mut self.steps);
            places.push(place);
        }
        self.moves(&items, &places, cores)
    }

    fn moves(&self, items: &[SearchTask], places: &[usize], cores: &[usize]) -> Option<Room> {
        let mut core = None;
        let mut moves = Vec::new();
        for (item, &place) in items.iter().zip(places) {
            match item.from {
                None => core = Some(cores[place]),
                Some(from) if from != cores[place] => moves.push(self.step(&item.task, from, cores[place])),
                Some(_) => {}
            }
        }
        core.map(|core| (core, moves))
    }

    /// Searches all placements of the new task and of the cluster's tasks that are not pinned by
    /// branch and bound, the largest task and the fullest core first.
    fn searched(&mut self, item: &SearchTask, cores: &[usize]) -> Option<Room> {
        let items = self.items(item, cores);
        let mut loads = self.emptied(cores);
        let mut places = Vec::with_capacity(items.len());
        self.branch(&items, &mut loads, &mut places, cores).then(|| self.moves(&items, &places, cores)).flatten()
    }

    fn branch(
        &mut self,
        items: &[SearchTask],
        loads: &mut [CoreLoad],
        places: &mut Vec<usize>,
        cores: &[usize],
    ) -> bool {
        let rest = &items[places.len()..];
        let Some(item) = rest.first() else { return true };
        let needed = rest.iter().fold(Utilization::default(), |sum, item| sum.saturating_add(item.charged.floor));
        let room = loads.iter().fold(Utilization::default(), |sum, load| sum.saturating_add(load.room()));
        if needed > room {
            return false;
        }
        let mut tried: Vec<Utilization> = Vec::new();
        for place in by_room(loads) {
            if self.steps.is_exhausted() {
                return false;
            }
            // Empty cores of one capacity are alike, so a try on one of them is enough, unless this
            // task or a later one is pinned.
            let load = &loads[place];
            if load.tasks().is_empty()
                && !load.has_interference()
                && rest.iter().all(|item| item.task.pinned_core.is_none())
            {
                if tried.contains(&load.capacity()) {
                    continue;
                }
                tried.push(load.capacity());
            }
            if !self.may_run(&item.task, cores[place]) || !load.fits_with(&item.charged, &mut self.steps) {
                continue;
            }
            let before = load.clone();
            loads[place].insert(item.task, item.charged);
            loads[place].refresh(&mut self.steps);
            places.push(place);
            if self.branch(items, loads, places, cores) {
                return true;
            }
            places.pop();
            loads[place] = before;
        }
        false
    }
}

fn by_room(loads: &[CoreLoad]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..loads.len()).collect();
    places.sort_by_key(|&place| loads[place].room());
    places
}
