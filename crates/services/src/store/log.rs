//! The write-ahead log of a store: the commits since the last checkpoint of its database.
//!
//! ```text
//! 0     "corelane log 2\n" | 00 | u64 identity | u64 identity of the store, then zeros up to octet 4096
//! 4096  two parts of equal size, the first for even generations and the second for odd ones
//!       part:               entries without gaps, then octets of earlier generations
//!       entry:              u32 length of the changes | u32 CRC-32 of the identity and of the rest of the entry
//!                           | u64 generation | u64 revision | changes
//!       change:             u32 length of the key | u32 length of the value, or FFFFFFFF for a deletion | key | value
//! ```
//! Numbers are little-endian. The database names a generation: it lacks the commits of that
//! generation and of the next, and has all earlier ones. When a part is full, commits continue in
//! the other part with the next generation, while a checkpoint writes the changes of the full part
//! to the database. A part is used again after the checkpoint that needed it. A sync of the file
//! makes the entries of both parts durable, so an entry that a sync has made durable has no gap
//! before it.
//!
//! A generation ends before the first entry that has another generation, does not continue the
//! revisions, or is incomplete or damaged. A log is refused if a part begins with a generation
//! later than the two that the database lacks.
//!
//! Logs of version 1 are read. They have 1 MiB and one part, for all generations.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::backend::StoreFile;
use super::{RecordChange, Revision};

const MAGIC: &[u8; 16] = b"corelane log 2\n\0";
const MAGIC_OF_1: &[u8; 16] = b"corelane log 1\n\0";
const START: usize = 4096;
/// Size of the log in bytes. A log of this size is replayed in a few milliseconds.
const SIZE: usize = 2 << 20;
const SIZE_OF_1: usize = 1 << 20;
const PART: usize = (SIZE - START) / 2;
const HEAD: usize = 24;
const DELETION: u32 = u32::MAX;

/// The reason why a log does not fit a database.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogError {
    Missing,
    /// The file belongs to another program or to another store.
    Foreign,
    /// The file is shorter than a log.
    Cut,
    /// The log follows a later checkpoint of the database.
    Newer,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogError::Missing => "it is missing (put it back, if it exists)",
            LogError::Foreign => "the file belongs to another program or store",
            LogError::Cut => "it is cut",
            LogError::Newer => "it is newer than the database",
        })
    }
}

/// A log beside a database that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnnamedLog {
    /// The database has all changes of the log, for example because a process was killed while it
    /// opened or closed the store.
    Obsolete,
    /// The log of another store, or of a later state of this store.
    Other,
    /// The file of another program.
    NoLog,
}

pub(super) struct WriteAheadLog {
    file: Arc<StoreFile>,
    id: u64,
    /// True for a log of version 1, which is only read.
    is_old: bool,
    generation: u64,
    /// Offset of the last entry, even if the entry's write or sync has failed.
    last: usize,
    end: usize,
    is_synced: bool,
    entry: Vec<u8>,
}

impl WriteAheadLog {
    /// Returns the kind of the file in place of a log, beside a database that names no log and has
    /// this store id and generation.
    pub(super) fn examine(file: &StoreFile, store: u64, generation: u64) -> io::Result<UnnamedLog> {
        let length = file.len()?;
        let mut octets = vec![0; length.min(SIZE as u64) as usize];
        file.read(0, &mut octets)?;
        if length <= SIZE as u64 && octets.iter().all(|octet| *octet == 0) {
            return Ok(UnnamedLog::Obsolete);
        }
        let Some((magic, rest)) = octets.split_first_chunk::<{ MAGIC.len() }>() else { return Ok(UnnamedLog::NoLog) };
        let is_old = magic == MAGIC_OF_1;
        if !is_old && magic != MAGIC {
            return Ok(UnnamedLog::NoLog);
        }
        let Some((id, rest)) = rest.split_first_chunk() else { return Ok(UnnamedLog::Other) };
        let is_own = is_old || rest.first_chunk().is_some_and(|id| u64::from_le_bytes(*id) == store);
        let has_changes = |start: usize| {
            let part = octets.get(start..).unwrap_or_default();
            split_entry(part, u64::from_le_bytes(*id)).is_some_and(|entry| entry.generation >= generation)
        };
        let has_changes = has_changes(START) || !is_old && has_changes(START + PART);
        Ok(if is_own && !has_changes { UnnamedLog::Obsolete } else { UnnamedLog::Other })
    }

    /// Makes an empty log with this identity, for this store.
    pub(super) fn create(file: Arc<StoreFile>, id: u64, store: u64) -> io::Result<Self> {
        // The zeros make the file system allocate the blocks now, so that later syncs write data
        // only.
        let mut image = vec![0; SIZE];
        image[..MAGIC.len()].copy_from_slice(MAGIC);
        image[MAGIC.len()..][..8].copy_from_slice(&id.to_le_bytes());
        image[MAGIC.len() + 8..][..8].copy_from_slice(&store.to_le_bytes());
        file.replace(&image)?;
        file.sync()?;
        Ok(Self::of(file, id, false))
    }

    /// Opens the log that the database names by its identity `id`.
    pub(super) fn open(file: Arc<StoreFile>, id: u64) -> io::Result<Result<Self, LogError>> {
        let mut start = [0; MAGIC.len() + 8];
        if file.len()? < start.len() as u64 {
            return Ok(Err(LogError::Cut));
        }
        file.read(0, &mut start)?;
        let is_old = start[..MAGIC.len()] == *MAGIC_OF_1;
        if !is_old && start[..MAGIC.len()] != *MAGIC || start[MAGIC.len()..] != id.to_le_bytes() {
            return Ok(Err(LogError::Foreign));
        }
        let size = if is_old { SIZE_OF_1 } else { SIZE };
        if file.len()? < size as u64 {
            return Ok(Err(LogError::Cut));
        }
        Ok(Ok(Self::of(file, id, is_old)))
    }

    fn of(file: Arc<StoreFile>, id: u64, is_old: bool) -> Self {
        WriteAheadLog { file, id, is_old, generation: 0, last: START, end: START, is_synced: true, entry: Vec::new() }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Calls `visit` for each change, in order, in the commits that a database of this generation
    /// and revision lacks. Returns the last revision.
    pub(super) fn replay(
        &self,
        generation: u64,
        mut revision: Revision,
        mut visit: impl FnMut(RecordChange<'_>),
    ) -> io::Result<Result<Revision, LogError>> {
        let (parts, latest) = if self.is_old {
            (vec![self.read_part(START, SIZE_OF_1 - START)?], generation)
        } else {
            let next = generation.saturating_add(1);
            (vec![self.read_part(start_of(generation), PART)?, self.read_part(start_of(next), PART)?], next)
        };
        let is_newer = |octets: &Vec<u8>| split_entry(octets, self.id).is_some_and(|entry| entry.generation > latest);
        if parts.iter().any(is_newer) {
            return Ok(Err(LogError::Newer));
        }
        for (generation, octets) in (generation..=latest).zip(&parts) {
            revision = replay(octets, self.id, generation, revision, &mut visit);
        }
        Ok(Ok(revision))
    }

    fn read_part(&self, start: usize, length: usize) -> io::Result<Vec<u8>> {
        let mut octets = vec![0; length];
        self.file.read(start as u64, &mut octets)?;
        Ok(octets)
    }

    /// Begins a generation in the part of an earlier one, whose changes the database has.
    pub(super) fn restart(&mut self, generation: u64) {
        self.generation = generation;
        self.last = start_of(generation);
        self.end = self.last;
    }

    /// Returns true if a commit of these changes fits into an empty part.
    pub(super) fn can_take(batch: &[RecordChange<'_>]) -> bool {
        size_of_entry(batch) <= PART
    }

    /// Returns true if a commit of these changes fits into the rest of the present part.
    pub(super) fn has_room(&self, batch: &[RecordChange<'_>]) -> bool {
        self.end.saturating_add(size_of_entry(batch)) <= start_of(self.generation) + PART
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
        // The entry fits into a part, so its length fits into a u32.
        let length = (self.entry.len() - HEAD) as u32;
        self.entry[..4].copy_from_slice(&length.to_le_bytes());
        let checksum = checksum(self.id, &self.entry[8..]);
        self.entry[4..8].copy_from_slice(&checksum.to_le_bytes());
        self.is_synced = false;
        self.last = self.end;
        self.file.write(self.end as u64, &self.entry)?;
        self.end += self.entry.len();
        Ok(())
    }

    /// Erases the entry whose write or sync has failed, as far as the disk permits, so that no
    /// process replays it.
    pub(super) fn erase_last(&self) {
        let erased = self.file.write(self.last as u64, &[0; HEAD]).and_then(|()| self.file.sync());
        // Ignores an error: the next checkpoint makes the entry invalid.
        drop(erased);
    }

    /// Syncs the file, so that all appended entries are on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync()?;
            self.is_synced = true;
        }
        Ok(())
    }
}

/// Returns the octet at which the part of a generation begins.
fn start_of(generation: u64) -> usize {
    if generation.is_multiple_of(2) { START } else { START + PART }
}

fn size_of_entry(batch: &[RecordChange<'_>]) -> usize {
    batch.iter().fold(HEAD, |size, change| size.saturating_add(8).saturating_add(size_of(change)))
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

fn checksum(id: u64, rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(rest);
    hasher.finalize()
}

/// Calls `visit` for each change in the entries of `generation` whose revisions follow `revision`
/// without a gap, up to the first damaged or other entry. Returns the last revision. `octets` are
/// one of the log's parts.
fn replay(
    mut octets: &[u8],
    id: u64,
    generation: u64,
    mut revision: Revision,
    mut visit: impl FnMut(RecordChange<'_>),
) -> Revision {
    while let Some(entry) = split_entry(octets, id) {
        let follows = entry.generation == generation && Some(entry.revision.0) == revision.0.checked_add(1);
        if !follows || !visit_changes(entry.changes, &mut |_| ()) {
            break;
        }
        visit_changes(entry.changes, &mut visit);
        (revision, octets) = (entry.revision, entry.rest);
    }
    revision
}

struct LogEntry<'o> {
    generation: u64,
    revision: Revision,
    changes: &'o [u8],
    /// The octets after the entry.
    rest: &'o [u8],
}

fn split_entry(octets: &[u8], id: u64) -> Option<LogEntry<'_>> {
    let (length, after) = split_number(octets)?;
    let (expected, checked) = split_number(after)?;
    let (checked, rest) = checked.split_at_checked(length.checked_add(HEAD - 8)?)?;
    let (generation, numbered) = checked.split_first_chunk()?;
    let (revision, changes) = numbered.split_first_chunk()?;
    let generation = u64::from_le_bytes(*generation);
    let revision = Revision(u64::from_le_bytes(*revision));
    (checksum(id, checked) as usize == expected).then_some(LogEntry { generation, revision, changes, rest })
}

/// Calls `visit` for each change, up to the first malformed one. Returns false if there is a
/// malformed one.
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
    use redb::StorageBackend;
    use redb::backends::InMemoryBackend;

    use super::*;

    const ID: u64 = 77;
    const STORE: u64 = 5;

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
        let file = StoreFile::lock(Box::new(InMemoryBackend::new()), None).unwrap();
        let mut log = WriteAheadLog::create(file, ID, STORE).unwrap();
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
                ends.push(log.end - start_of(5));
            }
            let mut octets = vec![0; ends.last().unwrap() + 64];
            log.file.read(start_of(5) as u64, &mut octets).unwrap();
            let mut found = Changes::new();
            let last = replay(&octets, ID, 5, Revision(7), collect(&mut found));
            prop_assert_eq!((last, &found), (Revision(7 + commits.len() as u64), &commits.concat()));
            prop_assert_eq!(replay(&octets, ID, 6, Revision(7), |_| ()), Revision(7));
            prop_assert_eq!(replay(&octets, ID + 1, 5, Revision(7), |_| ()), Revision(7));
            prop_assert_eq!(replay(&octets, ID, 4, Revision(7), |_| ()), Revision(7));
            prop_assert_eq!(replay(&octets, ID, 5, Revision(8), |_| ()), Revision(8));
            // A database may be one generation behind the log, but not two.
            prop_assert_eq!(log.replay(4, Revision(7), |_| ()).unwrap(), Ok(last));
            let newer = if commits.is_empty() { Ok(Revision(7)) } else { Err(LogError::Newer) };
            prop_assert_eq!(log.replay(3, Revision(7), |_| ()).unwrap(), newer);

            let changed = damage.index(ends.last().unwrap().max(&1).to_owned());
            octets[changed] ^= 1 << bit;
            let whole = ends.iter().rposition(|end| *end <= changed).unwrap();
            let mut found = Changes::new();
            let last = replay(&octets, ID, 5, Revision(7), collect(&mut found));
            prop_assert_eq!((last, &found), (Revision(7 + whole as u64), &commits[..whole].concat()));
        }

        #[test]
        fn no_octets_end_the_program(octets in prop::collection::vec(any::<u8>(), 0..200), generation in 0..3u64) {
            let _ = replay(&octets, ID, generation, Revision(0), |_| ());
        }
    }

    #[test]
    fn entries_of_an_earlier_generation_do_not_follow_later_ones() {
        let mut log = new_log(1);
        let change = [RecordChange::Put(b"key", b"value")];
        for number in 1..=3 {
            log.append(Revision(number), &change).unwrap();
        }
        log.restart(3);
        log.append(Revision(1), &change).unwrap();
        // The second entry of the first generation still follows in the file, with the next
        // revision. It is not replayed.
        assert_eq!(log.replay(3, Revision(0), |_| ()).unwrap(), Ok(Revision(1)));
    }

    #[test]
    fn two_generations_follow_each_other() {
        let mut log = new_log(1);
        let change = |number: &'static [u8]| [RecordChange::Put(b"key", number)];
        log.append(Revision(1), &change(b"1")).unwrap();
        log.append(Revision(2), &change(b"2")).unwrap();
        log.restart(2);
        log.append(Revision(3), &change(b"3")).unwrap();
        let mut found = Changes::new();
        assert_eq!(log.replay(1, Revision(0), collect(&mut found)).unwrap(), Ok(Revision(3)));
        let values: Vec<_> = found.into_iter().map(|(_, value)| value.unwrap()).collect();
        assert_eq!(values, [b"1", b"2", b"3"]);
        assert_eq!(log.replay(2, Revision(2), |_| ()).unwrap(), Ok(Revision(3)));
        // The second entry of the first generation is lost, so the entry of the second generation
        // has a gap before it and is not replayed.
        log.restart(1);
        log.append(Revision(1), &change(b"4")).unwrap();
        log.file.write(log.end as u64, &[0; HEAD]).unwrap();
        assert_eq!(log.replay(1, Revision(0), |_| ()).unwrap(), Ok(Revision(1)));
    }

    #[test]
    fn part_is_full_at_its_size() {
        for generation in 1..=2 {
            let mut log = new_log(generation);
            let value = vec![0; PART - HEAD - 8];
            for (key, fits) in [(&b""[..], true), (b"k", false)] {
                let batch = [RecordChange::Put(key, &value)];
                assert_eq!((log.has_room(&batch), WriteAheadLog::can_take(&batch)), (fits, fits));
            }
            log.append(Revision(1), &[RecordChange::Put(b"", &value)]).unwrap();
            assert!(!log.has_room(&[]));
            log.restart(generation + 1);
            log.append(Revision(2), &[RecordChange::Put(b"", &value)]).unwrap();
            assert_eq!(log.replay(generation, Revision(0), |_| ()).unwrap(), Ok(Revision(2)));
        }
    }

    #[test]
    fn only_a_log_without_changes_for_the_database_is_obsolete() {
        let mut log = new_log(2);
        let examine =
            |log: &WriteAheadLog, store, generation| WriteAheadLog::examine(&log.file, store, generation).unwrap();
        assert_eq!(examine(&log, STORE, 0), UnnamedLog::Obsolete);
        for generation in [2, 3] {
            log.restart(generation);
            log.append(Revision(4), &[RecordChange::Put(b"key", b"value")]).unwrap();
            assert_eq!(examine(&log, STORE, generation), UnnamedLog::Other);
            assert_eq!(examine(&log, STORE, generation + 1), UnnamedLog::Obsolete);
            assert_eq!(examine(&log, STORE + 1, generation + 1), UnnamedLog::Other);
        }
        log.file.write(0, b"text").unwrap();
        assert_eq!(examine(&log, STORE, 9), UnnamedLog::NoLog);
    }

    #[test]
    fn log_of_version_1_is_read() {
        let mut log = new_log(2);
        log.append(Revision(4), &[RecordChange::Put(b"key", b"value")]).unwrap();
        let mut octets = vec![0; SIZE_OF_1];
        log.file.read(0, &mut octets).unwrap();
        octets[..MAGIC.len()].copy_from_slice(MAGIC_OF_1);
        let backend = InMemoryBackend::new();
        backend.set_len(octets.len() as u64).unwrap();
        backend.write(0, &octets).unwrap();
        let file = StoreFile::lock(Box::new(backend), None).unwrap();
        for (generation, expected) in [(2, UnnamedLog::Other), (3, UnnamedLog::Obsolete)] {
            assert_eq!(WriteAheadLog::examine(&file, STORE + 1, generation).unwrap(), expected);
        }
        let log = WriteAheadLog::open(file, ID).unwrap().unwrap();
        assert_eq!(log.replay(2, Revision(3), |_| ()).unwrap(), Ok(Revision(4)));
        assert_eq!(log.replay(1, Revision(3), |_| ()).unwrap(), Err(LogError::Newer));
    }

    #[test]
    fn erased_entry_is_not_replayed() {
        let mut log = new_log(1);
        for number in 1..=2 {
            log.append(Revision(number), &[RecordChange::Put(b"key", b"value")]).unwrap();
        }
        log.erase_last();
        assert_eq!(log.replay(1, Revision(0), |_| ()).unwrap(), Ok(Revision(1)));
    }

    #[test]
    fn only_the_log_of_the_store_is_opened() {
        let open = |octets: &[u8], id: u64| {
            let backend = InMemoryBackend::new();
            backend.set_len(octets.len() as u64).unwrap();
            backend.write(0, octets).unwrap();
            let file = StoreFile::lock(Box::new(backend), None).unwrap();
            WriteAheadLog::open(file, id).unwrap().err()
        };
        let mut log = vec![0; SIZE];
        new_log(1).file.read(0, &mut log).unwrap();
        assert_eq!(open(&log, ID), None);
        assert_eq!(open(&log, ID + 1), Some(LogError::Foreign));
        assert_eq!(open(&log[1..], ID), Some(LogError::Foreign));
        assert_eq!(open(&log[..SIZE - 1], ID), Some(LogError::Cut));
        assert_eq!(open(&log[..20], ID), Some(LogError::Cut));
        assert_eq!(open(&[0; SIZE], ID), Some(LogError::Foreign));
    }
}
