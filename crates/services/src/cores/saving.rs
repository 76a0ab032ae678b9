//! The steps by which a task registry brings its store up to date. A step is made and applied under
//! the lock of the task registry, and runs without the lock, because it waits for the disk.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use corelane_sched::task::TaskId;

use super::records::{self, CoresRecord, NUMBER_KEY, SERVER_KEY, SavedPromise};
use crate::store::{Durability, RecordChange, Revision, Store, StoreError};

#[derive(Clone, Debug, Default)]
pub(super) struct SavedTaskRegistry {
    pub(super) revision: Revision,
    pub(super) promises: BTreeMap<TaskId, SavedPromise>,
    pub(super) server_data: Vec<u8>,
    /// The number that the store has reserved: no task has a larger number.
    pub(super) number: u64,
}

impl SavedTaskRegistry {
    pub(super) fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut saved = SavedTaskRegistry::default();
        let mut bad = None;
        saved.revision = store.for_each(&mut |key, value| {
            match records::decode(key, value) {
                Ok(CoresRecord::Number(number)) => saved.number = number,
                Ok(CoresRecord::Server(data)) => saved.server_data = data,
                Ok(CoresRecord::Promise(task, promise)) => _ = saved.promises.insert(task, promise),
                Err(records::BadRecord) => bad = bad.take().or_else(|| Some(key.to_vec())),
            }
            Ok(())
        })?;
        match bad {
            Some(key) => Err(StoreError::Damaged {
                path: None,
                reason: format!("the record {} is malformed", key.escape_ascii()),
            }),
            None => Ok(saved),
        }
    }

    fn apply(&mut self, changes: SavedChanges, revision: Revision) {
        for (task, promise) in changes.promises {
            match promise {
                Some(promise) => _ = self.promises.insert(task, promise),
                None => _ = self.promises.remove(&task),
            }
        }
        self.server_data = changes.server_data.unwrap_or(std::mem::take(&mut self.server_data));
        self.number = changes.number.unwrap_or(self.number);
        self.revision = revision;
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct SavedChanges {
    pub(super) promises: Vec<(TaskId, Option<SavedPromise>)>,
    pub(super) server_data: Option<Vec<u8>>,
    pub(super) number: Option<u64>,
}

impl SavedChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.promises.is_empty() && self.server_data.is_none() && self.number.is_none()
    }

    fn commit(&self, store: &dyn Store, after: Revision) -> Result<Revision, StoreError> {
        let number = self.number.map(u64::to_be_bytes);
        let server = self.server_data.as_deref();
        let promise = |(task, promise): &(TaskId, Option<SavedPromise>)| {
            (records::promise_key(*task), promise.as_ref().map(records::encode_promise))
        };
        let promises: Vec<(Vec<u8>, Option<Vec<u8>>)> = self.promises.iter().map(promise).collect();
        let of_promises = promises.iter().map(|(key, value)| match value {
            Some(value) => RecordChange::Put(key, value),
            None => RecordChange::Delete(key),
        });
        let number = number.iter().map(|number| RecordChange::Put(NUMBER_KEY, number));
        let server = server.iter().map(|data| RecordChange::Put(SERVER_KEY, data));
        let batch: Vec<RecordChange<'_>> = number.chain(server).chain(of_promises).collect();
        store.commit(after, &batch, Durability::Synced)
    }
}

/// A step that brings the store of a task registry up to date.
pub struct PendingSave {
    pub(super) store: Arc<dyn Store>,
    pub(super) step: SaveStep,
}

pub(super) enum SaveStep {
    /// Reads the store, because a failed step may have changed the store.
    Read,
    Commit(Revision, SavedChanges),
}

impl fmt::Debug for PendingSave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSave").finish_non_exhaustive()
    }
}

impl PendingSave {
    /// Reads or writes the store, and waits for the disk. The caller should hold no lock on the
    /// task registry during the wait. The result is for
    /// [`TaskRegistry::apply_save`](super::registry::TaskRegistry::apply_save).
    #[must_use]
    pub fn save(self) -> CompletedSave {
        CompletedSave(match self.step {
            SaveStep::Read => SavedTaskRegistry::read(&*self.store).map(SaveResult::Read),
            SaveStep::Commit(after, changes) => {
                changes.commit(&*self.store, after).map(|revision| SaveResult::Committed(revision, changes))
            }
        })
    }
}

/// The outcome of a save step, for [`TaskRegistry::apply_save`](super::registry::TaskRegistry::apply_save).
#[derive(Debug)]
pub struct CompletedSave(pub(super) Result<SaveResult, StoreError>);

#[derive(Debug)]
pub(super) enum SaveResult {
    Read(SavedTaskRegistry),
    Committed(Revision, SavedChanges),
}

impl SaveResult {
    pub(super) fn apply(self, saved: &mut SavedTaskRegistry) -> SaveOutcome {
        match self {
            SaveResult::Read(found) => {
                *saved = found;
                SaveOutcome::StoreRead
            }
            SaveResult::Committed(revision, changes) => {
                saved.apply(changes, revision);
                SaveOutcome::Saved
            }
        }
    }
}

/// The effect of a step on the task registry
/// ([`TaskRegistry::apply_save`](super::registry::TaskRegistry::apply_save)).
#[derive(Clone, Debug)]
pub enum SaveOutcome {
    /// The store has all changes that were made before the step.
    Saved,
    /// The store has been read. The next step saves the changes.
    StoreRead,
    /// The step has failed. The task registry has undone the changes that the store does not have.
    Failed(Arc<StoreError>),
}
