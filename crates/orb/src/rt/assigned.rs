//! Priorities of objects by id, which every request for an object of the POA looks up: finding one takes no lock, whoever assigns others.
//!
//! Invariant: what is assigned stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corelane_sched::Priority;
use corelane_sys::index::{HashIndex, Writer};
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::slots::SlotTable;

/// Ids at most.
const MOST: u32 = 1 << 26;

/// The table of a POA.
#[derive(Debug)]
pub(super) struct Assigned {
    /// Spares the look where there are none.
    any: AtomicBool,
    index: Arc<HashIndex>,
    entries: SlotTable<(Box<[u8]>, Priority)>,
    writer: Mutex<Writer>,
}

/// Why a priority is not assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAssigned {
    /// The object has this one.
    Other(Priority),
    /// There are as many as may be.
    Full,
}

impl Assigned {
    pub(super) fn new() -> Self {
        let writer = Writer::new("index of objects' priorities", Scope::Orb);
        Assigned {
            any: AtomicBool::new(false),
            index: Arc::clone(writer.index()),
            entries: SlotTable::new("priorities of objects", Scope::Orb, MOST),
            writer: Mutex::new("writer of objects' priorities", Scope::Orb, writer),
        }
    }

    /// The priority of an object, if it was given one.
    #[inline]
    pub(super) fn of(&self, id: &[u8]) -> Option<Priority> {
        if self.any.load(Ordering::Acquire) { self.find(id) } else { None }
    }

    fn find(&self, id: &[u8]) -> Option<Priority> {
        let mut found = None;
        self.index.find(id, |slot| {
            found = self.entries.peek(slot).filter(|entry| *entry.0 == *id).map(|entry| entry.1);
            found.is_some()
        });
        found
    }

    /// Gives an object its priority.
    ///
    /// # Errors
    /// It has another one, or there are too many.
    pub(super) fn assign(&self, id: &[u8], priority: Priority) -> Result<(), NotAssigned> {
        let mut writer = self.writer.lock();
        match self.find(id) {
            Some(assigned) if assigned != priority => return Err(NotAssigned::Other(assigned)),
            Some(_) => return Ok(()),
            None => {}
        }
        let (slot, _) = self.entries.insert((id.into(), priority)).map_err(|_| NotAssigned::Full)?;
        writer.insert(id, slot);
        self.any.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::counters;

    use super::*;

    #[test]
    fn what_is_assigned_is_found_without_a_lock_and_stays() {
        let table = Assigned::new();
        let priority = |number: u32| Priority::new(i16::try_from(number % 100).unwrap()).unwrap();
        assert_eq!(table.of(b"0"), None);
        for number in 0..1000_u32 {
            table.assign(number.to_string().as_bytes(), priority(number)).unwrap();
        }
        let before = counters::snapshot();
        for number in 0..1000_u32 {
            assert_eq!(table.of(number.to_string().as_bytes()), Some(priority(number)));
        }
        assert_eq!((counters::snapshot() - before).locks, 0);
        assert_eq!(table.of(b"1000"), None);
        assert_eq!(table.assign(b"7", priority(7)), Ok(()));
        assert_eq!(table.assign(b"7", priority(8)), Err(NotAssigned::Other(priority(7))));
        assert_eq!(table.of(b"7"), Some(priority(7)));
    }
}
