//! The write-ahead log of a store: the commits since the last checkpoint of its database.
//!
//! ```text
//! 0     "corelane log 1\n" | 00, then zeros up to octet 4096
//! 4096  entries without gaps: u32 length of the changes | u32 CRC-32 of all that follows
//!                             | u64 generation | u64 revision | changes
//!       change:               u32 length of the key | u32 length of the value, or FFFFFFFF for a deletion | key | value
//! ```
//! Numbers are little-endian. A checkpoint begins a new generation at octet 4096. The log ends before the first entry
//! that has another generation, does not continue the revisions, or is incomplete.

use std::io;

use redb::StorageBackend;

use super::{RecordChange, Revision};

const MAGIC: &[u8; 16] = b"corelane log 1\n\0";
const START: usize = 4096;
/// Size of the log in bytes. A log of this size is replayed in a few milliseconds.
const SIZE: usize = 1 << 20;
const HEAD: usize = 24;
const DELETION: u32 = u32::MAX;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogError {
    /// The file belongs to another program.
    Foreign,
    /// The file is shorter than a log.
    Cut,
}

pub(super) struct WriteAheadLog {
    backend: Box<dyn StorageBackend>,
    generation: u64,
    end: usize,
    is_synced: bool,
    entry: Vec<u8>,
}

impl WriteAheadLog {
    /// Makes an empty log in a backend that is empty or has a log.
    pub(super) fn create(backend: Box<dyn StorageBackend>) -> io::Result<Result<Self, LogError>> {
        let length = backend.len()?;
        let mut start = [0; MAGIC.len()];
        let known = usize::try_from(length).unwrap_or(usize::MAX).min(start.len());
        let start = start.split_at_mut(known).0;
        backend.read(0, start)?;
        // A power failure during the creation can leave zeros.
        if *start != MAGIC[..known] && start.iter().any(|octet| *octet != 0) {
            return Ok(Err(LogError::Foreign));
        }
        // The zeros make the file system allocate the blocks now, so that later syncs write data only.
        let mut image = vec![0; SIZE];
        image[..MAGIC.len()].copy_from_slice(MAGIC);
        backend.set_len(SIZE as u64)?;
        backend.write(0, &image)?;
        backend.sync_data()?;
        Ok(Ok(Self::of(backend)))
    }

    /// Opens a log that the database needs.
    pub(super) fn open(backend: Box<dyn StorageBackend>) -> io::Result<Result<Self, LogError>> {
        if backend.len()? < SIZE as u64 {
            return Ok(Err(LogError::Cut));
        }
        let mut start = [0; MAGIC.len()];
        backend.read(0, &mut start)?;
        Ok(if start == *MAGIC { Ok(Self::of(backend)) } else { Err(LogError::Foreign) })
    }

    fn of(backend: Box<dyn StorageBackend>) -> Self {
        WriteAheadLog { backend, generation: 0, end: START, is_synced: true, entry: Vec::new() }
    }

    /// Calls `visit` for each commit of `generation` that follows `revision`, in order. Returns the last revision.
    pub(super) fn replay(
        &self,
        generation: u64,
        revision: Revision,
        visit: impl FnMut(RecordChange<'_>),
    ) -> io::Result<Revision> {
        let mut entries = vec![0; SIZE - START];
        self.backend.read(START as u64, &mut entries)?;
        Ok(replay(&entries, generation, revision, visit))
    }

    /// Removes all entries. Later ones belong to `generation`, which no earlier entry has.
    pub(super) fn restart(&mut self, generation: u64) {
        self.generation = generation;
        self.end = START;
        self.is_synced = true;
    }

    /// Returns true if a commit of these changes fits.
    pub(super) fn has_room(&self, batch: &[RecordChange<'_>]) -> bool {
        let size = batch.iter().fold(HEAD, |size, change| size.saturating_add(8).saturating_add(size_of(change)));
        self.end.saturating_add(size) <= SIZE
    }

    /// Appends a commit for which there is room.
    pub(super) fn append(&mut self, revision: Revision, batch: &[RecordChange<'_>]) -> io::Result<()> {
        self.entry.clear();
        self.entry.extend([0; 8]);
        self.entry.extend(self.generation.to_le_bytes());
        self.entry.extend(revision.0.to_le_bytes());
        for change in batch {
            write_change(&mut self.entry, change);
        }
        // The room limits the length.
        let length = (self.entry.len() - HEAD) as u32;
        self.entry[..4].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&self.entry[8..]);
        self.entry[4..8].copy_from_slice(&checksum.to_le_bytes());
        self.is_synced = false;
        self.backend.write(self.end as u64, &self.entry)?;
        self.end += self.entry.len();
        Ok(())
    }

    /// Writes all entries to the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.backend.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }
}

fn size_of(change: &RecordChange<'_>) -> usize {
    match *change {
        RecordChange::Put(key, value) => key.len().saturating_add(value.len()),
        RecordChange::Delete(key) => key.len(),
    }
}

fn write_change(entry: &mut Vec<u8>, change: &RecordChange<'_>) {
    let (key, value, mark) = match *change {
        RecordChange::Put(key, value) => (key, value, value.len() as u32),
        RecordChange::Delete(key) => (key, &[][..], DELETION),
    };
    entry.extend((key.len() as u32).to_le_bytes());
    entry.extend(mark.to_le_bytes());
    entry.extend(key);
    entry.extend(value);
}

/// Reads a log's octets from its first entry on.
pub(super) fn replay(
    mut octets: &[u8],
    generation: u64,
    mut revision: Revision,
    mut visit: impl FnMut(RecordChange<'_>),
) -> Revision {
    while let Some((next, changes, rest)) = split_entry(octets, generation) {
        if Some(next.0) != revision.0.checked_add(1) || !visit_changes(changes, &mut |_| ()) {
            break;
        }
        visit_changes(changes, &mut visit);
        (revision, octets) = (next, rest);
    }
    revision
}

/// Returns the first entry's revision and changes, and the octets after it.
fn split_entry(octets: &[u8], generation: u64) -> Option<(Revision, &[u8], &[u8])> {
    let (length, after) = split_number(octets)?;
    let (checksum, checked) = split_number(after)?;
    let (checked, rest) = checked.split_at_checked(length.checked_add(HEAD - 8)?)?;
    let (found, numbered) = checked.split_first_chunk()?;
    let (revision, changes) = numbered.split_first_chunk()?;
    let is_whole = u64::from_le_bytes(*found) == generation && crc32fast::hash(checked) as usize == checksum;
    is_whole.then_some((Revision(u64::from_le_bytes(*revision)), changes, rest))
}

/// Returns false if the octets are no sequence of changes. The changes before the error are visited.
fn visit_changes(mut octets: &[u8], visit: &mut impl FnMut(RecordChange<'_>)) -> bool {
    while !octets.is_empty() {
        let Some((change, rest)) = split_change(octets) else { return false };
        visit(change);
        octets = rest;
    }
    true
}

fn split_change(octets: &[u8]) -> Option<(RecordChange<'_>, &[u8])> {
    let (key_length, rest) = split_number(octets)?;
    let (value_length, rest) = split_number(rest)?;
    let (key, rest) = rest.split_at_checked(key_length)?;
    if value_length == DELETION as usize {
        return Some((RecordChange::Delete(key), rest));
    }
    let (value, rest) = rest.split_at_checked(value_length)?;
    Some((RecordChange::Put(key, value), rest))
}

fn split_number(octets: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = octets.split_first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    use super::*;

    type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    fn batch(changes: &Changes) -> Vec<RecordChange<'_>> {
        changes
            .iter()
            .map(|(key, value)| value.as_ref().map_or(RecordChange::Delete(key), |value| RecordChange::Put(key, value)))
            .collect()
    }

    fn collect(found: &mut Changes) -> impl FnMut(RecordChange<'_>) {
        |change| {
            found.push(match change {
                RecordChange::Put(key, value) => (key.to_vec(), Some(value.to_vec())),
                RecordChange::Delete(key) => (key.to_vec(), None),
            });
        }
    }

    fn new_log(generation: u64) -> WriteAheadLog {
        let mut log = WriteAheadLog::create(Box::new(InMemoryBackend::new())).unwrap().unwrap();
        log.restart(generation);
        log
    }

    proptest! {
        #[test]
        fn entries_are_replayed_up_to_the_first_damage(
            commits in prop::collection::vec(
                prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9), prop::option::of(prop::collection::vec(any::<u8>(), 0..40))), 0..4),
                0..12,
            ),
            damage in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let mut log = new_log(5);
            let mut ends = vec![0];
            for (number, changes) in (8..).zip(&commits) {
                log.append(Revision(number), &batch(changes)).unwrap();
                ends.push(log.end - START);
            }
            let mut octets = vec![0; ends.last().unwrap() + 64];
            log.backend.read(START as u64, &mut octets).unwrap();
            let mut found = Changes::new();
            let last = replay(&octets, 5, Revision(7), collect(&mut found));
            prop_assert_eq!((last, &found), (Revision(7 + commits.len() as u64), &commits.concat()));
            prop_assert_eq!(replay(&octets, 6, Revision(7), |_| ()), Revision(7));
            prop_assert_eq!(replay(&octets, 5, Revision(8), |_| ()), Revision(8));

            let changed = damage.index(ends.last().unwrap().max(&1).to_owned());
            octets[changed] ^= 1 << bit;
            let whole = ends.iter().rposition(|end| *end <= changed).unwrap();
            let mut found = Changes::new();
            let last = replay(&octets, 5, Revision(7), collect(&mut found));
            prop_assert_eq!((last, &found), (Revision(7 + whole as u64), &commits[..whole].concat()));
        }

        #[test]
        fn no_octets_end_the_program(octets in prop::collection::vec(any::<u8>(), 0..200), generation in 0..3u64) {
            replay(&octets, generation, Revision(0), |_| ());
        }
    }

    #[test]
    fn entries_of_an_earlier_generation_do_not_follow_later_ones() {
        let mut log = new_log(1);
        let change = [RecordChange::Put(b"key", b"value")];
        for number in 1..=3 {
            log.append(Revision(number), &change).unwrap();
        }
        log.restart(2);
        log.append(Revision(2), &change).unwrap();
        // The third entry of the first generation follows in the file, and has the next revision.
        assert_eq!(log.replay(2, Revision(1), |_| ()).unwrap(), Revision(2));
    }

    #[test]
    fn log_is_full_at_its_size() {
        let mut log = new_log(1);
        let value = vec![0; SIZE - START - HEAD - 8];
        assert!(log.has_room(&[RecordChange::Put(b"", &value)]));
        assert!(!log.has_room(&[RecordChange::Put(b"k", &value)]));
        log.append(Revision(1), &[RecordChange::Put(b"", &value)]).unwrap();
        assert!(!log.has_room(&[]));
        assert_eq!(log.replay(1, Revision(0), |_| ()).unwrap(), Revision(1));
    }

    #[test]
    fn only_logs_are_opened_and_overwritten() {
        let open = |octets: &[u8]| {
            let backend = InMemoryBackend::new();
            backend.set_len(octets.len() as u64).unwrap();
            backend.write(0, octets).unwrap();
            backend
        };
        let log = |length: usize| {
            let mut octets = vec![0; length];
            octets[..MAGIC.len()].copy_from_slice(MAGIC);
            octets
        };
        for unfinished in [&[][..], &[0; 100], &log(16), &log(5_000), &MAGIC[..3]] {
            assert!(WriteAheadLog::create(Box::new(open(unfinished))).unwrap().is_ok());
            assert_eq!(WriteAheadLog::open(Box::new(open(unfinished))).unwrap().err(), Some(LogError::Cut));
        }
        assert!(WriteAheadLog::open(Box::new(open(&log(SIZE)))).unwrap().is_ok());
        assert_eq!(WriteAheadLog::create(Box::new(open(b"text"))).unwrap().err(), Some(LogError::Foreign));
        assert_eq!(WriteAheadLog::open(Box::new(open(&[1; SIZE]))).unwrap().err(), Some(LogError::Foreign));
    }
}
