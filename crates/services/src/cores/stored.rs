//! A [`TaskRegistry`] with a store, which outlives the process. [`MemoryTaskRegistry`] makes the
//! decisions. Each save writes the difference between its promises and the promises in the store.

use std::path::PathBuf;
use std::sync::Arc;

use corelane_sched::allocation::Machine;
use corelane_sched::task::{CoreId, Nanos, TaskId, Timing};

use super::memory::MemoryTaskRegistry;
use super::records::KIND;
use super::registry::{
    ChainAdmission, ChainId, ClientName, CompletedDecision, LostCoresOutcome, MAX_CHAIN_STAGES, PendingDecision,
    Promise, RegistryLimits, RegistryRefusal, RegistrySnapshot, TaskAdmission, TaskRegistry, TaskRequest, TaskToken,
};
use super::saving::{CompletedSave, PendingSave, SaveOutcome, SaveStep, SavedChanges, SavedTaskRegistry};
use crate::store::{FileStore, Store, StoreError};

/// Number of task numbers that a commit reserves, so that a restarted server assigns none twice.
const NUMBERS: u64 = 1_000;

/// A task registry with a store: a restarted server has the promises that were acknowledged.
///
/// When the store is opened, each promise begins a new lease, as long as the longest lease that the
/// task has had. Ended tasks, the shares of their last jobs, reservations and pending decisions are
/// not stored.
pub struct StoredTaskRegistry {
    memory: MemoryTaskRegistry,
    store: Arc<dyn Store>,
    saved: SavedTaskRegistry,
    /// True after a failed step, because a failed commit may have changed the store.
    must_read: bool,
    is_saving: bool,
}

impl std::fmt::Debug for StoredTaskRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredTaskRegistry").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl StoredTaskRegistry {
    /// Opens the task registry in a store. Leases begin at the time 0.
    ///
    /// A task whose core the machine does not have moves to another core, or is demoted. If a core
    /// cannot meet the deadlines of its tasks, for example with another discipline, the most
    /// critical tasks that fit keep the core, and the others move or are demoted.
    ///
    /// # Errors
    /// Errors of reading, and [`StoreError::Damaged`] for malformed records.
    pub fn open(store: impl Store, machine: Machine, limits: RegistryLimits) -> Result<Self, StoreError> {
        Self::of_store(Arc::new(store), machine, limits)
    }

    /// Opens the task registry in a file, which is created if it does not exist. Only its owner can
    /// read the new file, because it has the tokens of tasks.
    ///
    /// # Errors
    /// The reason why the file cannot be used, and the errors of [`open`](Self::open).
    pub fn open_file(path: impl Into<PathBuf>, machine: Machine, limits: RegistryLimits) -> Result<Self, StoreError> {
        let path = path.into();
        let store = FileStore::open_private(path.clone(), KIND)?;
        Self::open(store, machine, limits).map_err(|error| match error {
            StoreError::Damaged { path: None, reason } => StoreError::Damaged { path: Some(path), reason },
            other => other,
        })
    }

    fn of_store(store: Arc<dyn Store>, machine: Machine, limits: RegistryLimits) -> Result<Self, StoreError> {
        let saved = SavedTaskRegistry::read(&*store)?;
        let mut memory = MemoryTaskRegistry::new(machine, limits);
        memory.restore(&saved);
        Ok(StoredTaskRegistry { memory, store, saved, must_read: false, is_saving: false })
    }

    fn unsaved(&self) -> SavedChanges {
        let mut changes =
            SavedChanges { promises: self.memory.changed_promises(&self.saved.promises), ..SavedChanges::default() };
        if self.memory.server_data() != self.saved.server_data {
            changes.server_data = Some(self.memory.server_data().to_vec());
        }
        let last = self.memory.last_number();
        if last.saturating_add(NUMBERS / 2) > self.saved.number {
            changes.number = Some(last.saturating_add(NUMBERS));
        }
        changes
    }
}

impl TaskRegistry for StoredTaskRegistry {
    fn admit(
        &mut self,
        request: &TaskRequest,
        client: &ClientName,
        token: TaskToken,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal> {
        self.memory.admit(request, client, token, now)
    }

    fn pending_outcome(
        &mut self,
        task: TaskId,
        token: TaskToken,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal> {
        self.memory.pending_outcome(task, token, now)
    }

    fn reserve_chain(
        &mut self,
        stages: &[TaskRequest],
        client: &ClientName,
        token: TaskToken,
        now: Nanos,
    ) -> Result<ChainAdmission, RegistryRefusal> {
        // A reservation is not saved, so the store must have reserved its numbers before.
        let numbers = (stages.len() as u64).saturating_add(1);
        if self.memory.last_number().saturating_add(numbers) > self.saved.number && stages.len() <= MAX_CHAIN_STAGES {
            return Err(RegistryRefusal::TaskNumbersNotSaved);
        }
        self.memory.reserve_chain(stages, client, token, now)
    }

    fn commit_chain(&mut self, chain: ChainId, token: TaskToken, now: Nanos) -> Result<Vec<Promise>, RegistryRefusal> {
        self.memory.commit_chain(chain, token, now)
    }

    fn cancel_chain(&mut self, chain: ChainId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal> {
        self.memory.cancel_chain(chain, token, now)
    }

    fn change_timing(
        &mut self,
        task: TaskId,
        token: TaskToken,
        timing: Timing,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal> {
        self.memory.change_timing_revocably(task, token, timing, now)
    }

    fn renew(&mut self, task: TaskId, token: TaskToken, lease: Nanos, now: Nanos) -> Result<Nanos, RegistryRefusal> {
        self.memory.renew(task, token, lease, now)
    }

    fn withdraw(&mut self, task: TaskId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal> {
        self.memory.withdraw(task, token, now)
    }

    fn task_name(&self, task: TaskId) -> Option<&str> {
        self.memory.task_name(task)
    }

    fn snapshot(&mut self, now: Nanos) -> RegistrySnapshot {
        self.memory.snapshot(now)
    }

    fn next_pending_decision(&mut self, now: Nanos) -> Option<PendingDecision> {
        self.memory.next_pending_decision(now)
    }

    fn apply_decision(&mut self, decided: CompletedDecision, now: Nanos) {
        self.memory.apply_decision(decided, now);
    }

    fn set_lost_cores(&mut self, lost: &[CoreId], now: Nanos) -> LostCoresOutcome {
        self.memory.set_lost_cores(lost, now)
    }

    fn demote(&mut self, task: TaskId, now: Nanos) -> bool {
        self.memory.demote(task, now)
    }

    fn take_ended_tasks(&mut self, now: Nanos) -> Vec<TaskId> {
        self.memory.take_ended_tasks(now)
    }

    fn next_expiry(&self) -> Option<Nanos> {
        self.memory.next_expiry()
    }

    fn attach_data(&mut self, task: TaskId, attachment: &[u8]) {
        self.memory.attach_data(task, attachment);
    }

    fn attached_data(&self) -> Vec<(TaskId, Arc<[u8]>)> {
        self.memory.attached_data()
    }

    fn set_server_data(&mut self, data: &[u8]) {
        self.memory.set_server_data(data);
    }

    fn server_data(&self) -> &[u8] {
        self.memory.server_data()
    }

    fn has_store(&self) -> bool {
        true
    }

    fn is_saved(&self, task: TaskId) -> bool {
        self.memory.is_saved_as(task, self.saved.promises.get(&task))
    }

    fn timings_before_unsaved_changes(&self) -> Vec<(TaskId, Timing)> {
        self.memory.revocable_timings()
    }

    fn saved_lease(&self, task: TaskId) -> Option<Nanos> {
        self.saved.promises.get(&task).map(|saved| saved.request.lease)
    }

    fn next_save(&mut self, now: Nanos) -> Option<PendingSave> {
        if self.is_saving {
            return None;
        }
        self.memory.advance(now);
        let step = if self.must_read {
            SaveStep::Read
        } else {
            let changes = self.unsaved();
            if changes.is_empty() {
                self.memory.keep_changes(&self.saved.promises);
                return None;
            }
            SaveStep::Commit(self.saved.revision, changes)
        };
        self.is_saving = true;
        Some(PendingSave { store: Arc::clone(&self.store), step })
    }

    fn apply_save(&mut self, save: CompletedSave, now: Nanos) -> SaveOutcome {
        self.is_saving = false;
        self.memory.advance(now);
        match save.0 {
            Ok(result) => {
                self.must_read = false;
                let outcome = result.apply(&mut self.saved);
                // A failed step may have reached the store, so a repeated change may already be
                // saved.
                self.memory.keep_changes(&self.saved.promises);
                outcome
            }
            Err(error) => {
                self.must_read = true;
                self.memory.take_back(&self.saved.promises);
                SaveOutcome::Failed(Arc::new(error))
            }
        }
    }
}
