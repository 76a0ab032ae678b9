//! Saving and restoring of a task registry in memory, and the undoing of changes that cannot be saved.

use std::collections::BTreeMap;
use std::sync::Arc;

use corelane_sched::allocation::{TaskSet, is_schedulable};
use corelane_sched::task::{CoreId, Nanos, Task, TaskId, Timing};

use super::{Entry, EntryState, MemoryTaskRegistry, transition};
use crate::cores::records::SavedPromise;
use crate::cores::registry::{LostCoresOutcome, RegistryRefusal, TaskAdmission, TaskToken};
use crate::cores::saving::SavedTaskRegistry;

/// The state of a task before a change of its timing. The old timing keeps its share of the core,
/// so that the change can be taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevocableChange {
    share: TaskId,
    timing: Timing,
    core: CoreId,
    home: Option<CoreId>,
    starts_at: Nanos,
}

impl Entry {
    fn is_promised(&self) -> bool {
        matches!(self.state, EntryState::Promised { .. })
    }

    fn to_saved(&self) -> SavedPromise {
        let mut request = self.request.clone();
        request.lease = self.lease;
        let (client, token, attachment) = (self.client.clone(), self.token, Arc::clone(&self.attachment));
        SavedPromise { request, client, token, core: self.core, home: self.home, attachment }
    }

    fn is_saved_as(&self, saved: &SavedPromise) -> bool {
        self.request.timing == saved.request.timing && self.attachment == saved.attachment
    }

    fn equals(&self, saved: &SavedPromise) -> bool {
        let of_saved = (saved.request.lease, saved.core, saved.home);
        self.is_saved_as(saved) && (self.lease, self.core, self.home) == of_saved
    }
}

impl MemoryTaskRegistry {
    pub(in crate::cores) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Returns true if the saved promise has the timing and attachment of the task's promise, or if
    /// neither promise exists.
    pub(in crate::cores) fn is_saved_as(&self, task: TaskId, saved: Option<&SavedPromise>) -> bool {
        let entry = self.entries.get(&task).filter(|entry| entry.is_promised());
        match (entry, saved) {
            (Some(entry), Some(saved)) => entry.is_saved_as(saved),
            (entry, saved) => entry.is_none() && saved.is_none(),
        }
    }

    /// Returns the promises that differ from the saved promises, and `None` for each saved task
    /// that has ended.
    pub(in crate::cores) fn changed_promises(
        &self,
        saved: &BTreeMap<TaskId, SavedPromise>,
    ) -> Vec<(TaskId, Option<SavedPromise>)> {
        let changed = self
            .entries
            .iter()
            .filter(|(task, entry)| entry.is_promised() && !saved.get(task).is_some_and(|saved| entry.equals(saved)));
        let changed = changed.map(|(task, entry)| (*task, Some(entry.to_saved())));
        let has_ended = |task: &&TaskId| !self.entries.get(task).is_some_and(Entry::is_promised);
        changed.chain(saved.keys().filter(has_ended).map(|task| (*task, None))).collect()
    }

    /// Enters saved promises into a new task registry. Their leases begin now. If a core is absent
    /// or overloaded, the tasks that do not fit on it move to other cores or are demoted.
    pub(in crate::cores) fn restore(&mut self, saved: &SavedTaskRegistry) {
        self.last_number = saved.number;
        self.server_data.clone_from(&saved.server_data);
        let mut displaced = Vec::new();
        for (task, saved) in &saved.promises {
            self.last_number = self.last_number.max(task.0);
            let state = EntryState::Promised { until: self.lease_end(saved.request.lease) };
            let mut entry = self.new_entry(&saved.request, &saved.client, saved.token, state);
            (entry.core, entry.home) = (saved.core, saved.home);
            entry.attachment = Arc::clone(&saved.attachment);
            match saved.core {
                Some(core) if self.machine.cores.iter().any(|known| known.id == core) => {
                    self.set.insert(entry.task(*task), core);
                }
                Some(_) => displaced.push(*task),
                None => {}
            }
            self.insert(*task, entry);
        }
        displaced.extend(self.tasks_of_overloaded_cores());
        for task in &displaced {
            self.set.withdraw(*task);
            if let Some(entry) = self.entries.get_mut(task) {
                entry.home = entry.home.or(entry.core);
                entry.core = None;
            }
        }
        self.revision += 1;
        let returned = self.all_cores.iter().map(|core| core.id).collect();
        let mut change = LostCoresOutcome { returned_cores: returned, ..LostCoresOutcome::default() };
        self.return_home(&mut change);
        self.place_homeless(&displaced, &mut change);
        self.searched = self.revision;
    }

    fn tasks_of_overloaded_cores(&self) -> Vec<TaskId> {
        let mut overloaded = Vec::new();
        for core in &self.machine.cores {
            let mut machine = self.machine.clone();
            machine.cores.retain(|other| other.id == core.id);
            let mut set = TaskSet::default();
            self.set.iter().filter(|(_, on)| *on == core.id).for_each(|(task, on)| set.insert(*task, on));
            if !is_schedulable(&set, &machine) {
                overloaded.extend(set.iter().map(|(task, _)| task.id));
            }
        }
        overloaded
    }

    /// Changes the timing of a task. The old timing keeps its share of the core until the change is
    /// [kept](Self::keep_change) or taken back.
    pub(in crate::cores) fn change_timing_revocably(
        &mut self,
        task: TaskId,
        token: TaskToken,
        timing: Timing,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal> {
        self.advance(now);
        let entry = self.owned(task, token)?.clone();
        let EntryState::Promised { .. } = entry.state else {
            return Err(if matches!(entry.state, EntryState::Reserved { .. } | EntryState::Pending { .. }) {
                RegistryRefusal::NotAdmittedYet
            } else {
                RegistryRefusal::NotFound
            });
        };
        let Some(core) = entry.core else {
            return Err(if entry.is_refused() {
                RegistryRefusal::KernelRefused
            } else {
                RegistryRefusal::TaskDisplaced
            });
        };
        if self.revocable.contains_key(&task) {
            return Err(RegistryRefusal::EarlierTimingNotSaved);
        }
        timing.check().map_err(RegistryRefusal::TimingOutOfRange)?;
        self.count_decisions(1)?;
        if self.count_with_shares() >= self.limits.max_tasks {
            return Err(RegistryRefusal::Full(self.limits.max_tasks));
        }
        self.check_quota(&entry.client, 0, timing.utilization(), Some(task))?;
        let changed = Task { timing, ..entry.task(task) };
        let mut set = self.set.clone();
        set.withdraw(task);
        let plan = match transition::admit(&self.set, &set, &self.inline, &changed) {
            Ok(plan) => plan,
            Err(rejection) => {
                self.counts.rejected += 1;
                return Ok(TaskAdmission::Rejected(rejection));
            }
        };
        self.set = set;
        let mut starts_at = self.apply(&plan);
        let old = entry.request.timing;
        let has_started = entry.starts_at < self.now;
        let until = if has_started { self.now.saturating_add(old.deadline) } else { self.now };
        if core == plan.core {
            // A task that has not started keeps its start, because it may wait for the shares of
            // other tasks.
            starts_at = starts_at.max(if has_started { until } else { entry.starts_at });
        }
        if old != timing {
            let share = self.add_share(old, core);
            let (home, began_at) = (entry.home, entry.starts_at);
            self.revocable.insert(task, RevocableChange { share, timing: old, core, home, starts_at: began_at });
        } else if has_started {
            // The timing is the same, so there is no change to take back.
            self.leave_share(old, core);
        }
        let Some(entry) = self.entries.get_mut(&task) else { return Err(RegistryRefusal::NotFound) };
        entry.request.timing = timing;
        (entry.core, entry.starts_at) = (Some(plan.core), starts_at);
        self.counts.promised += 1;
        let promise = entry.promise(task, plan.core, plan.response, plan.moves.clone());
        Ok(TaskAdmission::Promised(promise))
    }

    /// Makes the revocable change of a task's timing final, if there is one. The old share is free
    /// after the deadline of a job that arrives now, and on the same core the new timing begins
    /// then. If the old timing has not started, its share is free at once.
    pub(super) fn keep_change(&mut self, task: TaskId) {
        let Some(old) = self.revocable.remove(&task) else { return };
        if old.starts_at >= self.now {
            if self.set.withdraw(old.share) {
                self.revision += 1;
            }
            return;
        }
        let until = self.now.saturating_add(old.timing.deadline);
        self.left_shares.insert((until, old.share));
        if let Some(entry) = self.entries.get_mut(&task).filter(|entry| entry.core == Some(old.core)) {
            entry.starts_at = entry.starts_at.max(until);
        }
    }

    pub(in crate::cores) fn keep_changes(&mut self, saved: &BTreeMap<TaskId, SavedPromise>) {
        let is_saved = |task: &&TaskId| {
            let timing = self.entries.get(task).map(|entry| entry.request.timing);
            timing.is_some() && saved.get(task).map(|saved| saved.request.timing) == timing
        };
        let kept: Vec<TaskId> = self.revocable.keys().filter(is_saved).copied().collect();
        kept.into_iter().for_each(|task| self.keep_change(task));
    }

    pub(in crate::cores) fn revocable_timings(&self) -> Vec<(TaskId, Timing)> {
        self.revocable.iter().map(|(task, old)| (*task, old.timing)).collect()
    }

    /// Undoes the changes that are not saved: new promises, changes of timings, and longer leases.
    pub(in crate::cores) fn take_back(&mut self, saved: &BTreeMap<TaskId, SavedPromise>) {
        let promised: Vec<TaskId> =
            self.entries.iter().filter(|(_, entry)| entry.is_promised()).map(|(task, _)| *task).collect();
        for task in promised {
            let Some(saved) = saved.get(&task) else {
                self.take(task);
                self.ended.push(task);
                continue;
            };
            self.take_change_back(task);
            let Some(entry) = self.entries.get_mut(&task).filter(|entry| entry.lease > saved.request.lease) else {
                continue;
            };
            entry.lease = saved.request.lease;
            let most = self.now.saturating_add(entry.lease);
            if let EntryState::Promised { until } = entry.state {
                self.set_state(task, EntryState::Promised { until: until.min(most) });
            }
        }
    }

    fn take_change_back(&mut self, task: TaskId) {
        let Some(old) = self.revocable.remove(&task) else { return };
        // The share is absent if its core has been lost.
        let has_share = self.set.withdraw(old.share);
        self.set.withdraw(task);
        self.revision += 1;
        let Some(entry) = self.entries.get_mut(&task) else { return };
        (entry.request.timing, entry.starts_at) = (old.timing, old.starts_at);
        (entry.core, entry.home) =
            if has_share { (Some(old.core), old.home) } else { (None, old.home.or(Some(old.core))) };
        let taken = entry.task(task);
        if has_share {
            self.set.insert(taken, old.core);
        } else {
            // A task for which no core has room stays demoted.
            self.place_beside(&taken, taken);
        }
    }
}
