//! The table of the priorities that a program has assigned to objects of a POA, by object id. A
//! look-up takes no lock, even while a thread assigns a priority.
//!
//! Invariant: an assigned priority never changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corelane_sched::Priority;
use corelane_sys::hash_index::{HashIndex, HashIndexWriter};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::slab::GenerationalSlab;

const MAX_ENTRIES: u32 = 1 << 26;

#[derive(Debug)]
pub(super) struct ObjectPriorities {
    /// True once an object has a priority. Before, a look-up does not search the index. Stored
    /// `Release` by `assign`, loaded `Acquire` by `get`.
    is_used: AtomicBool,
    index: Arc<HashIndex>,
    entries: GenerationalSlab<(Box<[u8]>, Priority)>,
    writer: Mutex<HashIndexWriter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssignError {
    Conflict(Priority),
    Full,
}

impl ObjectPriorities {
    pub(super) fn new() -> Self {
        let writer = HashIndexWriter::new("index of objects' priorities", LockScope::Orb);
        ObjectPriorities {
            is_used: AtomicBool::new(false),
            index: Arc::clone(writer.index()),
            entries: GenerationalSlab::new("priorities of objects", LockScope::Orb, MAX_ENTRIES),
            writer: Mutex::new("writer of objects' priorities", LockScope::Orb, writer),
        }
    }

    #[inline]
    pub(super) fn get(&self, id: &[u8]) -> Option<Priority> {
        if self.is_used.load(Ordering::Acquire) { self.find(id) } else { None }
    }

    fn find(&self, id: &[u8]) -> Option<Priority> {
        let mut found = None;
        self.index.find(id, |slot| {
            found = self.entries.get_live(slot).filter(|entry| *entry.0 == *id).map(|entry| entry.1);
            found.is_some()
        });
        found
    }

    pub(super) fn assign(&self, id: &[u8], priority: Priority) -> Result<(), AssignError> {
        let mut writer = self.writer.lock();
        match self.find(id) {
            Some(assigned) if assigned != priority => return Err(AssignError::Conflict(assigned)),
            Some(_) => return Ok(()),
            None => {}
        }
        let (slot, _) = self.entries.insert((id.into(), priority)).map_err(|_| AssignError::Full)?;
        writer.insert(id, slot);
        self.is_used.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::counters;

    use super::*;

    #[test]
    fn assigned_priority_is_found_without_a_lock_and_never_changes() {
        let table = ObjectPriorities::new();
        let priority = |number: u32| Priority::new(i16::try_from(number % 100).unwrap()).unwrap();
        assert_eq!(table.get(b"0"), None);
        for number in 0..1000_u32 {
            table.assign(number.to_string().as_bytes(), priority(number)).unwrap();
        }
        let before = counters::snapshot();
        for number in 0..1000_u32 {
            assert_eq!(table.get(number.to_string().as_bytes()), Some(priority(number)));
        }
        assert_eq!((counters::snapshot() - before).locks, 0);
        assert_eq!(table.get(b"1000"), None);
        assert_eq!(table.assign(b"7", priority(7)), Ok(()));
        assert_eq!(table.assign(b"7", priority(8)), Err(AssignError::Conflict(priority(7))));
        assert_eq!(table.get(b"7"), Some(priority(7)));
    }
}
