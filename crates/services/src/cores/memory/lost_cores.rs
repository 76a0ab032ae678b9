//! The loss and the return of cores, and cores that the kernel refuses to a task.
//!
//! A task that loses its core remembers it as its home. The task moves to a core with room, the
//! most critical task first, or is demoted: it has no core until a core has room. When its home
//! returns, the task returns there if there is room.

use std::cmp::Reverse;

use corelane_sched::allocation::{AllocationStep, Machine, admit};
use corelane_sched::task::{CoreId, Task, TaskId};

use super::{EntryState, MemoryTaskRegistry};
use crate::cores::registry::LostCoresOutcome;

impl MemoryTaskRegistry {
    pub(super) fn change_lost_cores(&mut self, lost: &[CoreId]) -> LostCoresOutcome {
        let is_lost = |core: &CoreId| lost.contains(core);
        let known: Vec<CoreId> = self.all_cores.iter().map(|core| core.id).collect();
        let was_lost = |registry: &Self, core: &CoreId| !registry.machine.cores.iter().any(|usable| usable.id == *core);
        let newly_lost = known.iter().filter(|core| is_lost(core) && !was_lost(self, core)).copied().collect();
        let returned = known.iter().filter(|core| !is_lost(core) && was_lost(self, core)).copied().collect();
        let mut change =
            LostCoresOutcome { newly_lost_cores: newly_lost, returned_cores: returned, ..LostCoresOutcome::default() };
        if !change.newly_lost_cores.is_empty() || !change.returned_cores.is_empty() {
            let usable: Vec<_> = self.all_cores.iter().filter(|core| !is_lost(&core.id)).cloned().collect();
            (self.machine.cores, self.inline.cores) = (usable.clone(), usable);
            let displaced = self.leave_lost_cores(&change.newly_lost_cores);
            self.return_home(&mut change);
            self.place_homeless(&displaced, &mut change);
        } else if self.searched != self.revision {
            self.place_homeless(&[], &mut change);
        }
        self.searched = self.revision;
        change
    }

    /// Removes the tasks of lost cores, and the shares for last jobs there, from the set. Returns
    /// the promised and reserved tasks among them.
    fn leave_lost_cores(&mut self, lost: &[CoreId]) -> Vec<TaskId> {
        let gone: Vec<TaskId> =
            self.set.iter().filter(|(_, core)| lost.contains(core)).map(|(task, _)| task.id).collect();
        let mut displaced = Vec::new();
        for task in gone {
            self.set.withdraw(task);
            if let Some(entry) = self.entries.get_mut(&task)
                && matches!(entry.state, EntryState::Promised { .. } | EntryState::Reserved { .. })
            {
                entry.home = entry.home.or(entry.core);
                entry.core = None;
                displaced.push(task);
            }
        }
        self.set = std::mem::take(&mut self.set).with_machine(&self.machine);
        self.revision += 1;
        displaced
    }

    /// Returns the promised and reserved tasks whose home and core match `is_wanted`, the most
    /// critical first.
    fn by_criticality(&self, is_wanted: impl Fn(CoreId, Option<CoreId>) -> bool) -> Vec<TaskId> {
        let wanted = |(task, entry): (&TaskId, &super::Entry)| {
            let is_live = matches!(entry.state, EntryState::Promised { .. } | EntryState::Reserved { .. });
            let is_wanted = is_live && is_wanted(entry.home?, entry.core);
            is_wanted.then_some((Reverse(entry.request.criticality), *task))
        };
        let mut tasks: Vec<_> = self.entries.iter().filter_map(wanted).collect();
        tasks.sort_unstable();
        tasks.into_iter().map(|(_, task)| task).collect()
    }

    pub(super) fn return_home(&mut self, change: &mut LostCoresOutcome) {
        let returned = change.returned_cores.clone();
        for id in self.by_criticality(|home, _| returned.contains(&home)) {
            let Some((task, Some(home), from)) =
                self.entries.get(&id).map(|entry| (entry.task(id), entry.home, entry.core))
            else {
                continue;
            };
            // The task fits, unless tasks or timings have changed since it lost its home.
            if !self.place_beside(&Task { pinned_core: Some(home), ..task }, task) {
                continue;
            }
            if let Some(from) = from {
                self.leave_share(task.timing, from);
            }
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.home = None;
            }
            change.restored_tasks.push(id);
        }
    }

    /// Gives tasks without a core a core that has room for them. Cancels a reserved chain if no
    /// core has room for one of its stages. `displaced` are the tasks that lose their core in this
    /// change.
    pub(super) fn place_homeless(&mut self, displaced: &[TaskId], change: &mut LostCoresOutcome) {
        for id in self.by_criticality(|_, core| core.is_none()) {
            let Some(entry) = self.entries.get(&id) else { continue };
            let (task, state, is_new) = (entry.task(id), entry.state.clone(), displaced.contains(&id));
            let has_core = self.place_beside(&task, task);
            match (has_core, state) {
                (true, _) if is_new => change.moved_tasks.push(id),
                (true, _) => change.restored_tasks.push(id),
                (false, EntryState::Reserved { chain, .. }) => {
                    let is_stage = |entry: &super::Entry| matches!(entry.state, EntryState::Reserved { chain: of, .. } if of == chain);
                    let stages: Vec<TaskId> =
                        self.entries.iter().filter(|(_, entry)| is_stage(entry)).map(|(task, _)| *task).collect();
                    stages.into_iter().for_each(|stage| self.remove(stage));
                }
                (false, _) if is_new => change.demoted_tasks.push(id),
                (false, _) => {}
            }
        }
    }

    /// Demotes a promised task for good: without a home, it gets no core again. Returns false, and
    /// changes nothing, if the task is not promised or has no core.
    pub(super) fn leave_refused_core(&mut self, task: TaskId) -> bool {
        let is_promised = |entry: &&super::Entry| matches!(entry.state, EntryState::Promised { .. });
        if self.entries.get(&task).filter(is_promised).and_then(|entry| entry.core).is_none() {
            return false;
        }
        // A failed save would take back a change of the timing, and give the task its earlier core
        // again. So the change is made final first.
        self.keep_change(task);
        let Some(entry) = self.entries.get(&task) else { return false };
        let Some(core) = entry.core else { return false };
        let (timing, has_started) = (entry.request.timing, entry.starts_at < self.now);
        self.set.withdraw(task);
        self.revision += 1;
        if has_started {
            self.leave_share(timing, core);
        }
        if let Some(entry) = self.entries.get_mut(&task) {
            (entry.core, entry.home) = (None, None);
        }
        true
    }

    /// Places `task` on a core that has room for it without moves of other tasks. `asked` is the
    /// same task, perhaps pinned to a core. Returns false if no permitted core has room.
    pub(super) fn place_beside(&mut self, asked: &Task, task: Task) -> bool {
        let machine = Machine { max_allocation_step: AllocationStep::Direct, ..self.inline.clone() };
        let mut set = self.set.clone();
        set.withdraw(task.id);
        let Ok(plan) = admit(&set, &machine, asked) else { return false };
        self.set = set;
        self.set.insert(task, plan.core);
        self.revision += 1;
        if let Some(entry) = self.entries.get_mut(&task.id) {
            entry.core = Some(plan.core);
        }
        true
    }
}
