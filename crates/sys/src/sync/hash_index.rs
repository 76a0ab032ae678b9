//! A hash index from byte strings to slot numbers, searched without waiting.
//!
//! An entry consists of half a hash and the number of a slot, in which the caller stores the key.
//! [`HashIndex::find`] offers the slots whose half hash agrees, and the caller compares the whole
//! key.
//!
//! Only the [`HashIndexWriter`] changes the index, and the caller protects the writer by a lock.
//!
//! Comments in the code refer to one rule of memory ordering, `cell`: the writer changes a cell
//! with release, and a search loads it with acquire. So a search that finds a slot sees the data
//! that the caller wrote before it inserted the slot.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use crate::lock::LockScope;
use crate::rcu_cell::RcuCell;
use crate::shim::{AtomicU64, Ordering};

/// A cell without an entry. A cell with an entry has half of the hash in its upper half and the
/// slot number in its lower half.
const EMPTY: u64 = u32::MAX as u64;
const REMOVED: u64 = (u32::MAX - 1) as u64;
/// The largest slot number.
pub const MAX_SLOT: u32 = u32::MAX - 2;

#[cfg(not(loom))]
type HashKeys = std::hash::RandomState;
/// Fixed hash keys for `loom` models, which must run in the same way each time.
#[cfg(loom)]
type HashKeys = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

const MIN_CELLS: usize = if cfg!(loom) { 4 } else { 16 };

/// The index for searches. [`HashIndexWriter::new`] creates it.
#[derive(Debug)]
pub struct HashIndex {
    table: RcuCell<CellTable>,
    keys: HashKeys,
}

/// The writer of an index; the caller protects it by a lock.
#[derive(Debug)]
pub struct HashIndexWriter {
    index: Arc<HashIndex>,
    entries: usize,
    used_cells: usize,
}

#[derive(Debug)]
struct CellTable {
    cells: Box<[AtomicU64]>,
}

impl HashIndex {
    /// Calls `is_it` with the slots under the key `octets` until `is_it` returns true, and returns
    /// that slot; `None` if `is_it` accepts no slot. In rare cases `is_it` gets the slot of another
    /// key with an equal half hash, or a slot whose entry is removed during the call.
    #[inline]
    pub fn find(&self, octets: &[u8], mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let hash = self.hash(octets);
        let table = self.table.load();
        for at in table.probe_sequence(hash) {
            // Acquire: pairs with `HashIndexWriter` (rule `cell`).
            let cell = table.cells[at].load(Ordering::Acquire);
            if cell == EMPTY {
                return None;
            }
            let slot = cell as u32;
            if tag(cell) == tag(hash) && slot <= MAX_SLOT && is_it(slot) {
                return Some(slot);
            }
        }
        None
    }

    #[inline]
    fn hash(&self, octets: &[u8]) -> u64 {
        // The length is not hashed, because the key is the whole input.
        let mut hasher = self.keys.build_hasher();
        hasher.write(octets);
        hasher.finish()
    }
}

fn tag(hash_or_cell: u64) -> u32 {
    (hash_or_cell >> 32) as u32
}

fn pack_entry(tag: u32, slot: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(slot)
}

impl CellTable {
    fn new(length: usize) -> Self {
        Self { cells: std::iter::repeat_with(|| AtomicU64::new(EMPTY)).take(length).collect() }
    }

    /// Returns the indices of all cells in the order in which to check them. For a given number of
    /// cells, the order depends on the stored half of the hash alone, so that a new table can be
    /// made from old cells.
    #[inline]
    fn probe_sequence(&self, hash_or_cell: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.cells.len() - 1;
        let start = tag(hash_or_cell) as usize;
        (0..=mask).map(move |step| start.wrapping_add(step) & mask)
    }
}

impl HashIndexWriter {
    /// Creates an empty index with its writer. `name` and `scope` describe the lock that the writer
    /// takes when it replaces the table.
    pub fn new(name: &'static str, scope: LockScope) -> Self {
        let table = RcuCell::new(name, scope, CellTable::new(MIN_CELLS));
        Self { index: Arc::new(HashIndex { table, keys: HashKeys::default() }), entries: 0, used_cells: 0 }
    }

    /// Returns the index for searches, which threads can share.
    pub fn index(&self) -> &Arc<HashIndex> {
        &self.index
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Inserts `slot`, at most [`MAX_SLOT`], under the key `octets`. The caller must ensure that
    /// the key has no entry. Threads that find the slot see all that the caller wrote before this
    /// call.
    ///
    /// # Panics
    /// If `slot` is above [`MAX_SLOT`].
    pub fn insert(&mut self, octets: &[u8], slot: u32) {
        assert!(slot <= MAX_SLOT, "slot number out of range");
        let hash = self.index.hash(octets);
        let table = self.index.table.load();
        let length = table.cells.len();
        if (self.used_cells + 1) * 4 > length * 3 {
            drop(table);
            self.rebuild();
            return self.insert(octets, slot);
        }
        for at in table.probe_sequence(hash) {
            let cell = table.cells[at].load(Ordering::Relaxed);
            if cell == EMPTY || cell == REMOVED {
                // Release: pairs with `find` (rule `cell`).
                table.cells[at].store(pack_entry(tag(hash), slot), Ordering::Release);
                self.entries += 1;
                self.used_cells += usize::from(cell == EMPTY);
                return;
            }
        }
    }

    /// Removes the entry of `slot` under the key `octets`. Returns false if there is no such entry.
    pub fn remove(&mut self, octets: &[u8], slot: u32) -> bool {
        let hash = self.index.hash(octets);
        let table = self.index.table.load();
        let wanted = pack_entry(tag(hash), slot);
        for at in table.probe_sequence(hash) {
            let cell = table.cells[at].load(Ordering::Relaxed);
            if cell == EMPTY {
                return false;
            }
            if cell == wanted && slot <= MAX_SLOT {
                // Release: pairs with `find` (rule `cell`).
                table.cells[at].store(REMOVED, Ordering::Release);
                self.entries -= 1;
                return true;
            }
        }
        false
    }

    /// Replaces the table by a table without removed cells, at most three fifths full.
    fn rebuild(&mut self) {
        let length = ((self.entries + 1) * 5).div_ceil(3).next_power_of_two().max(MIN_CELLS);
        let new = CellTable::new(length);
        let old = self.index.table.load();
        for cell in &old.cells {
            let cell = cell.load(Ordering::Relaxed);
            if cell == EMPTY || cell == REMOVED {
                continue;
            }
            if let Some(at) = new.probe_sequence(cell).find(|&at| new.cells[at].load(Ordering::Relaxed) == EMPTY) {
                new.cells[at].store(cell, Ordering::Relaxed);
            }
        }
        drop(old);
        self.used_cells = self.entries;
        self.index.table.store(Arc::new(new));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn key(n: u32) -> [u8; 4] {
        n.to_le_bytes()
    }

    #[test]
    fn index_agrees_with_a_hash_map() {
        let rounds = if cfg!(miri) { 300 } else { 40_000 };
        let mut writer = HashIndexWriter::new("test", LockScope::Orb);
        let index = Arc::clone(writer.index());
        let mut model = HashMap::new();
        let mut state = 12345u64;
        for _ in 0..rounds {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = (state >> 40) as u32 % 2000;
            if model.remove(&n).is_some() {
                assert!(writer.remove(&key(n), n));
                assert!(!writer.remove(&key(n), n));
            } else {
                writer.insert(&key(n), n);
                model.insert(n, ());
            }
            let probe = (state >> 20) as u32 % 2000;
            let found = index.find(&key(probe), |slot| slot == probe);
            assert_eq!(found.is_some(), model.contains_key(&probe));
            assert_eq!(writer.len(), model.len());
        }
        assert!(index.table.load().cells.len() <= 8192);
        assert!(!writer.is_empty());
    }

    #[test]
    fn every_slot_with_an_equal_key_is_offered() {
        let mut writer = HashIndexWriter::new("test", LockScope::Orb);
        for slot in [3, MAX_SLOT, 0] {
            writer.insert(b"key", slot);
        }
        let mut offered = Vec::new();
        assert_eq!(
            writer.index().find(b"key", |slot| {
                offered.push(slot);
                false
            }),
            None
        );
        assert_eq!(offered, [3, MAX_SLOT, 0]);
        assert_eq!(writer.index().find(b"", |_| true), None);
    }

    #[test]
    fn entry_is_found_while_other_entries_change() {
        let rounds = if cfg!(miri) { 2 } else { 200 };
        let mut writer = HashIndexWriter::new("test", LockScope::Orb);
        let index = Arc::clone(writer.index());
        writer.insert(&key(0), 0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(index.find(&key(0), |slot| slot == 0), Some(0));
                    }
                });
            }
            for _ in 0..rounds {
                for n in 1..300 {
                    writer.insert(&key(n), n);
                }
                for n in 1..300 {
                    assert!(writer.remove(&key(n), n));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    use super::*;
    use crate::shim::explore;

    #[test]
    fn offered_slot_is_initialised_and_no_slot_is_missed() {
        explore(|| {
            let mut writer = HashIndexWriter::new("model", LockScope::Orb);
            writer.insert(b"always", 1);
            let ready = loom::sync::Arc::new(AtomicU32::new(0));
            let reader = {
                let (index, ready) = (Arc::clone(writer.index()), loom::sync::Arc::clone(&ready));
                thread::spawn(move || {
                    assert_eq!(index.find(b"always", |slot| slot == 1), Some(1));
                    if index.find(b"new", |slot| slot == 2).is_some() {
                        assert_eq!(ready.load(Ordering::Relaxed), 1);
                    }
                })
            };
            writer.remove(b"absent", 9);
            ready.store(1, Ordering::Relaxed);
            writer.insert(b"new", 2);
            writer.insert(b"more", 3);
            writer.insert(b"grows", 4);
            reader.join().unwrap();
            assert_eq!(writer.index().find(b"new", |slot| slot == 2), Some(2));
        });
    }
}
