//! A store in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use corelane_sys::lock::{LockScope, Mutex};

use super::file::RecordFormat;
use super::files::write_copy;
use super::{Durability, RangeVisitor, RecordChange, RecordVisitor, Revision, Store, StoreError};

/// A store whose records end with the process. Clones share the records.
#[derive(Clone)]
pub struct MemoryStore {
    kind: RecordFormat,
    shared: Arc<Mutex<Records>>,
}

#[derive(Default)]
struct Records {
    revision: Revision,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryStore {
    /// Creates an empty store. `kind` is the kind of its backup files.
    #[must_use]
    pub fn new(kind: RecordFormat) -> Self {
        MemoryStore { kind, shared: Arc::new(Mutex::new("memory store", LockScope::Orb, Records::default())) }
    }
}

impl Store for MemoryStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        let shared = self.shared.lock();
        shared.records.iter().try_for_each(|(key, value)| visit(key, value))?;
        Ok(shared.revision)
    }

    fn visit_from(&self, from: &[u8], visit: &mut RangeVisitor<'_>) -> Result<Revision, StoreError> {
        let shared = self.shared.lock();
        for (key, value) in shared.records.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(shared.revision)
    }

    fn commit(
        &self,
        after: Revision,
        batch: &[RecordChange<'_>],
        _durability: Durability,
    ) -> Result<Revision, StoreError> {
        let mut shared = self.shared.lock();
        if shared.revision != after {
            return Err(StoreError::Conflict);
        }
        for change in batch {
            match *change {
                RecordChange::Put(key, value) => shared.records.insert(key.to_vec(), value.to_vec()),
                RecordChange::Delete(key) => shared.records.remove(key),
            };
        }
        shared.revision = Revision(after.0.saturating_add(1));
        Ok(shared.revision)
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        write_copy(path, self.kind, &mut |visit| self.for_each(visit))
    }
}
