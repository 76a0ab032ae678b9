//! The contract of [`Store`], and further properties of stores on disk.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corelane_services::store::{
    Durability, FileStore, MemoryStore, RecordChange, RecordFormat, Revision, Store, StoreError,
};
use redb::{Database, TableDefinition};

mod disk;
mod faults;
mod power;
mod power_events;

use disk::{Disk, Random};

const KIND: RecordFormat = RecordFormat { service: "test", format: 3 };

type Record = (Vec<u8>, Vec<u8>);
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corelane-store-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(store: &dyn Store) -> (Revision, Records) {
    let mut records = Records::new();
    let mut last: Option<Vec<u8>> = None;
    let revision = store
        .for_each(&mut |key, value| {
            assert!(last.as_deref().is_none_or(|last| last < key), "the keys must be in ascending order");
            last = Some(key.to_vec());
            records.insert(key.to_vec(), value.to_vec());
            Ok(())
        })
        .unwrap();
    (revision, records)
}

/// Returns the first `count` records from the key `from` on.
fn read_from(store: &dyn Store, from: &[u8], count: usize) -> (Revision, Vec<Record>) {
    let mut records = Vec::new();
    let revision = store
        .visit_from(from, &mut |key, value| {
            assert!(records.len() < count, "the visit must end when the visitor ends it");
            records.push((key.to_vec(), value.to_vec()));
            Ok(if records.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
    (revision, records)
}

/// Checks that each range has the records that a visit of all records has.
fn check_ranges(store: &dyn Store) {
    let (revision, all) = read(store);
    for from in [&b""[..], b"a", b"a\0", b"aa", b"b", b"t", &[0, 255, 1], &[255; 9]] {
        for count in [1, 2, usize::MAX] {
            let later = all.range(from.to_vec()..).take(count).map(|(key, value)| (key.clone(), value.clone()));
            assert_eq!(read_from(store, from, count), (revision, later.collect()), "{from:?}, {count}");
        }
    }
}

fn apply(records: &mut Records, batch: &[RecordChange<'_>]) {
    for change in batch {
        match *change {
            RecordChange::Put(key, value) => records.insert(key.to_vec(), value.to_vec()),
            RecordChange::Delete(key) => records.remove(key),
        };
    }
}

/// Checks the contract of a store. `open` opens the same store each time, and `folder` is for
/// backups.
fn conformance(folder: &Folder, open: &dyn Fn() -> Box<dyn Store>) {
    let store = open();
    let (first, records) = read(&*store);
    assert!(records.is_empty());

    let batch = [
        RecordChange::Put(b"a", b"1"),
        RecordChange::Put(b"b", b"2"),
        RecordChange::Put(b"a", b"3"),
        RecordChange::Delete(b"c"),
    ];
    let second = store.commit(first, &batch, Durability::Synced).unwrap();
    assert!(second > first);
    let expected = Records::from([(b"a".to_vec(), b"3".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
    assert_eq!(read(&*store), (second, expected.clone()));

    for other in [first, Revision(second.0 + 1)] {
        let refused = store.commit(other, &[RecordChange::Delete(b"a")], Durability::Synced);
        assert!(matches!(refused, Err(StoreError::Conflict)));
    }
    assert_eq!(read(&*store), (second, expected.clone()));

    let mut visited = 0;
    let stopped = store.for_each(&mut |_, _| {
        visited += 1;
        Err(StoreError::Conflict)
    });
    assert!(matches!(stopped, Err(StoreError::Conflict)) && visited == 1);
    let stopped = store.visit_from(b"b", &mut |_, _| Err(StoreError::Conflict));
    assert!(matches!(stopped, Err(StoreError::Conflict)));
    check_ranges(&*store);

    let large = vec![0xab; 1 << 20];
    let odd = [RecordChange::Put(b"", b""), RecordChange::Put(&[0, 255, 0], &large), RecordChange::Delete(b"b")];
    let third = store.commit(second, &odd, Durability::Relaxed).unwrap();
    let mut records = expected;
    apply(&mut records, &odd);
    assert_eq!(read(&*store), (third, records.clone()));
    store.sync().unwrap();
    store.sync().unwrap();
    assert_eq!(read(&*store), (third, records.clone()));

    let backup = folder.file("backup");
    store.backup(&backup).unwrap();
    assert!(matches!(store.backup(&backup), Err(StoreError::FileExists { .. })));
    assert_eq!(read(&FileStore::open(&backup, KIND).unwrap()).1, records);
    fs::remove_file(&backup).unwrap();
    let fourth = store.commit(third, &[], Durability::Synced).unwrap();
    assert!(fourth > third);

    drop(store);
    let store = open();
    assert_eq!(read(&*store), (fourth, records.clone()));

    let store: Arc<dyn Store> = store.into();
    let threads: Vec<_> = (0..4u8)
        .map(|thread| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                for number in 0..20u8 {
                    loop {
                        let after = store.for_each(&mut |_, _| Ok(())).unwrap();
                        let key = [b't', thread, number];
                        match store.commit(after, &[RecordChange::Put(&key, b"")], Durability::Relaxed) {
                            Ok(_) => break,
                            Err(StoreError::Conflict) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (revision, found) = read(&*store);
    assert_eq!((found.len(), revision.0), (records.len() + 80, fourth.0 + 80));
    check_ranges(&*store);
}

#[test]
fn memory_store_conforms() {
    let folder = Folder::new("memory");
    let store = MemoryStore::new(KIND);
    conformance(&folder, &|| Box::new(store.clone()));
}

#[test]
fn file_store_conforms() {
    let folder = Folder::new("file");
    conformance(&folder, &|| Box::new(FileStore::open(folder.file("store"), KIND).unwrap()));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "no other file is left");
}

#[test]
fn backup_during_commits_has_the_records_of_one_instant() {
    let folder = Folder::new("backup");
    let store = Arc::new(FileStore::open(folder.file("store"), KIND).unwrap());
    let mut revision = Revision(0);
    for number in 0..200u32 {
        let key = number.to_be_bytes();
        revision = store.commit(revision, &[RecordChange::Put(&key, &[7; 100])], Durability::Relaxed).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let committing = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) || count == 0 {
                let value: [u8; 4] = u32::to_be_bytes(count);
                let batch = [RecordChange::Put(b"x", &value), RecordChange::Put(b"y", &value)];
                revision = store.commit(revision, &batch, Durability::Relaxed).unwrap();
                count += 1;
            }
        })
    };
    for number in 0..5 {
        let path = folder.file(&format!("backup{number}"));
        store.backup(&path).unwrap();
        let (_, records) = read(&FileStore::open(&path, KIND).unwrap());
        assert_eq!(records.get(&b"x"[..]), records.get(&b"y"[..]));
        assert!(records.len() >= 200);
    }
    stop.store(true, Ordering::Relaxed);
    committing.join().unwrap();
}

fn message(result: Result<FileStore, StoreError>) -> String {
    result.err().expect("the file must be refused").to_string()
}

#[test]
fn unusable_files_are_refused_with_advice_and_left_unchanged() {
    let folder = Folder::new("refused");
    let path = folder.file("names.db");
    let store = FileStore::open(&path, KIND).unwrap();
    store.commit(Revision(0), &[RecordChange::Put(b"a", &[1; 100_000])], Durability::Synced).unwrap();

    let locked = message(FileStore::open(&path, KIND));
    assert!(locked.contains(&format!("in use by process {}: stop that process", std::process::id())), "{locked}");
    drop(store);
    let whole = fs::read(&path).unwrap();

    let other = message(FileStore::open(&path, RecordFormat { service: "other", format: 3 }));
    assert!(other.contains("a store of the service \"test\", not \"other\""), "{other}");
    let later = message(FileStore::open(&path, RecordFormat { service: "test", format: 2 }));
    assert!(later.contains("has format 3, and this program knows formats up to 2: use a later version"), "{later}");
    FileStore::open(&path, RecordFormat { service: "test", format: 4 }).unwrap();

    for (number, text) in [&b"Some text"[..], b"r", &[0; 100_000], b"SQLite format 3\0"].into_iter().enumerate() {
        let path = folder.file(&format!("foreign{number}"));
        fs::write(&path, text).unwrap();
        let foreign = message(FileStore::open(&path, KIND));
        assert!(foreign.contains("is not a store of Corelane"), "{foreign}");
        assert_eq!(fs::read(&path).unwrap(), text);
    }
    assert!(message(FileStore::open(&folder.0, KIND)).contains("is not a store of Corelane"));

    let path = folder.file("other.redb");
    let database = Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(TableDefinition::<&str, u64>::new("other")).unwrap().insert("a", 1).unwrap();
    transaction.commit().unwrap();
    // Opening the copy makes redb repair it, because the database was not closed.
    let unclosed = folder.file("unclosed.redb");
    fs::copy(&path, &unclosed).unwrap();
    drop(database);
    for path in [&path, &unclosed] {
        let before = fs::read(path).unwrap();
        assert!(message(FileStore::open(path, KIND)).contains("is not a store of Corelane"));
        assert!(fs::read(path).unwrap() == before, "{}", path.display());
    }
    let before = fs::read(&unclosed).unwrap();
    drop(Database::create(&unclosed).unwrap());
    assert!(fs::read(&unclosed).unwrap() != before, "redb must change this copy when it opens it for writing");

    let nowhere = message(FileStore::open(folder.file("none/names.db"), KIND));
    assert!(nowhere.contains("No such file") && nowhere.contains("check the file, its folder"), "{nowhere}");

    for length in [9, 100, 4_095, 4_096, 20_000, whole.len() / 2, whole.len() - 4_096, whole.len() - 1] {
        let path = folder.file("cut");
        fs::write(&path, &whole[..length]).unwrap();
        match FileStore::open(&path, KIND) {
            Err(error) => assert!(error.to_string().contains("put a backup in its place"), "{length}: {error}"),
            Ok(store) => match store.for_each(&mut |_, value| {
                assert_eq!(value, [1; 100_000]);
                Ok(())
            }) {
                Ok(revision) => assert_eq!(revision, Revision(1)),
                Err(error) => assert!(error.to_string().contains("put a backup in its place"), "{length}: {error}"),
            },
        }
    }
}

/// Copies the files of an open store in the state that the kill of its process leaves.
fn killed(folder: &Folder, store: &str) -> (PathBuf, PathBuf) {
    let (database, log) = (folder.file("killed.db"), folder.file("killed.db.wal"));
    let _ = fs::remove_file(&log);
    fs::copy(folder.file(store), &database).unwrap();
    fs::copy(folder.file(&format!("{store}.wal")), &log).unwrap();
    (database, log)
}

#[test]
fn killed_process_leaves_a_log_that_the_next_one_needs() {
    let folder = Folder::new("killed");
    let store = FileStore::open_private(folder.file("names.db"), KIND).unwrap();
    let mut expected = Records::new();
    let mut revision = Revision(0);
    for number in 0..3_000u32 {
        let key = (number % 700).to_be_bytes();
        let value = vec![number as u8; 400];
        let change = if number % 5 == 4 { RecordChange::Delete(&key) } else { RecordChange::Put(&key, &value) };
        revision = store.commit(revision, &[change], Durability::Relaxed).unwrap();
        apply(&mut expected, &[change]);
    }
    assert_eq!(read(&store), (revision, expected.clone()));
    let (database, log) = killed(&folder, "names.db");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.file("names.db")), mode(&folder.file("names.db.wal"))), (0o600, 0o600));
    assert_eq!(read(&FileStore::open(&database, KIND).unwrap()), (revision, expected.clone()));
    assert!(!log.exists(), "an orderly end removes the log");
    assert_eq!(read(&FileStore::open(&database, KIND).unwrap()), (revision, expected));

    for (damage, reason) in [
        (None, "killed.db.wal, and it is missing (put it back, if it exists)"),
        (Some(&b"corelane log 1"[..]), "killed.db.wal, and it is cut"),
        (Some(&[1; 1 << 20]), "killed.db.wal, and the file belongs to another program or store"),
    ] {
        let (database, log) = killed(&folder, "names.db");
        match damage {
            Some(octets) => fs::write(&log, octets).unwrap(),
            None => fs::remove_file(&log).unwrap(),
        }
        let refused = message(FileStore::open(&database, KIND));
        assert!(refused.contains("the latest changes are in the log") && refused.contains(reason), "{refused}");
    }
    fs::write(folder.file("other.db.wal"), "text").unwrap();
    let foreign = message(FileStore::open(folder.file("other.db"), KIND));
    assert!(foreign.contains("other.db.wal is not a store of Corelane"), "{foreign}");
    assert_eq!(fs::read(folder.file("other.db.wal")).unwrap(), b"text");
}

/// A backup, or an earlier state of the store, replaces a store whose process was killed.
#[test]
fn log_of_a_replaced_store_is_kept() {
    let folder = Folder::new("replaced");
    let (path, backup, copy) = (folder.file("names.db"), folder.file("backup"), folder.file("copy"));
    let store = FileStore::open(&path, KIND).unwrap();
    let first = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
    store.backup(&backup).unwrap();
    drop(store);
    fs::copy(&path, &copy).unwrap();
    let store = FileStore::open(&path, KIND).unwrap();
    store.commit(first, &[RecordChange::Put(b"b", b"2")], Durability::Synced).unwrap();
    let (database, log) = killed(&folder, "names.db");
    let (whole, kept) = (folder.file("whole"), fs::read(&log).unwrap());
    fs::rename(&database, &whole).unwrap();
    for (replacement, size) in [(&backup, 1), (&copy, 1)] {
        fs::copy(replacement, &database).unwrap();
        let refused = message(FileStore::open(&database, KIND));
        assert!(refused.contains("killed.db.wal is the log of another store or of a later state of"), "{refused}");
        assert!(refused.contains("move the log away"), "{refused}");
        assert_eq!(fs::read(&log).unwrap(), kept);
        let aside = folder.file("aside");
        fs::rename(&log, &aside).unwrap();
        assert_eq!(read(&FileStore::open(&database, KIND).unwrap()).1.len(), size);
        fs::rename(&aside, &log).unwrap();
    }
    fs::copy(&whole, &database).unwrap();
    assert_eq!(read(&FileStore::open(&database, KIND).unwrap()).1.len(), 2);
    // A process leaves such a log if it is killed after it has written the log's changes to the
    // database.
    fs::write(&log, kept).unwrap();
    assert_eq!(read(&FileStore::open(&database, KIND).unwrap()).1.len(), 2);
    assert!(!log.exists());
}

#[test]
fn empty_file_becomes_a_store() {
    let folder = Folder::new("empty");
    let path = folder.file("names.db");
    fs::write(&path, b"").unwrap();
    let store = FileStore::open(&path, KIND).unwrap();
    store.commit(Revision(0), &[RecordChange::Put(b"a", b"b")], Durability::Synced).unwrap();
    drop(store);
    assert_eq!(read(&FileStore::open(&path, KIND).unwrap()).0, Revision(1));
}

#[test]
fn changed_octets_never_end_the_program() {
    let folder = Folder::new("changed");
    let path = folder.file("names.db");
    let store = FileStore::open(&path, KIND).unwrap();
    let mut revision = Revision(0);
    for number in 0..300u32 {
        revision =
            store.commit(revision, &[RecordChange::Put(&number.to_be_bytes(), &[1; 50])], Durability::Relaxed).unwrap();
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    let mut random = Random(1);
    let mut refused = 0;
    for _ in 0..200 {
        let mut changed = whole.clone();
        for _ in 0..1 + random.below(40) {
            // The first pages have the structure of the database, so on average more than half of
            // the changes are there.
            let bound = if random.below(2) == 0 { 8_192 } else { changed.len() };
            changed[random.below(bound)] ^= 1 << random.below(8);
        }
        fs::write(&path, &changed).unwrap();
        let outcome = FileStore::open(&path, KIND).and_then(|store| store.for_each(&mut |_, _| Ok(())));
        refused += usize::from(outcome.is_err());
    }
    assert!(refused > 20, "{refused}");
}

fn random_batch(random: &mut Random) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    (0..1 + random.below(5))
        .map(|_| {
            let key = vec![random.below(40) as u8];
            let size = if random.below(10) == 0 { 20_000 } else { 30 };
            let value = vec![random.below(256) as u8; random.below(size)];
            (key, if random.below(3) == 0 { None } else { Some(value) })
        })
        .collect()
}

fn writes(batch: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<RecordChange<'_>> {
    batch
        .iter()
        .map(|(key, value)| value.as_ref().map_or(RecordChange::Delete(key), |value| RecordChange::Put(key, value)))
        .collect()
}

/// At a power failure the disk keeps the synced data and some later writes. The last write that it
/// keeps may be incomplete.
#[test]
fn synced_commits_survive_power_failures_whole() {
    let disk = Disk::default();
    drop(FileStore::with_backends(disk.files(), KIND).unwrap());
    disk.start_log();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    let mut random = Random(7);
    // For each revision: its records, and the number of the disk's operations at its
    // acknowledgement.
    let mut versions = vec![(Records::new(), 0)];
    for number in 0..150 {
        // The first checkpoint beside commits begins between these two commits. The sync of this
        // checkpoint waits until the second commit.
        match number {
            40 => disk.hold_syncs(disk::DATABASE),
            60 => disk.release_syncs(),
            _ => {}
        }
        let mut batch = random_batch(&mut random);
        if number % 6 == 3 {
            // These values fill one of the log's two parts three times, so the test includes
            // several checkpoints.
            batch.push((b"large".to_vec(), Some(vec![number as u8; 130_000])));
        }
        let durability = if number % 10 == 9 { Durability::Relaxed } else { Durability::Synced };
        let revision = store.commit(Revision(number), &writes(&batch), durability).unwrap();
        assert_eq!(revision, Revision(number + 1));
        let mut records = versions.last().unwrap().0.clone();
        apply(&mut records, &writes(&batch));
        let acknowledged = if durability == Durability::Synced { disk.log_len() } else { usize::MAX };
        versions.push((records, acknowledged));
    }
    drop(store);
    let length = disk.log_len();
    let mut survivors = std::collections::BTreeSet::new();
    let cuts = disk::cuts(1_000);
    for number in 0..cuts {
        let cut = if number == 0 { length } else { random.below(length + 1) };
        let mut image = disk.cut(cut, &mut random);
        if number % 5 == 1 {
            // The power fails again, while the store is opened or closed.
            image.start_log();
            drop(FileStore::with_backends(image.files(), KIND).unwrap_or_else(|error| panic!("cut {cut}: {error}")));
            let second = random.below(image.log_len() + 1);
            image = image.cut(second, &mut random);
        }
        let store = FileStore::with_backends(image.files(), KIND).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        let (revision, records) = read(&store);
        let acknowledged = versions.iter().rposition(|(_, at)| *at <= cut).unwrap();
        let found = revision.0 as usize;
        assert!(found >= acknowledged, "cut {cut}: revision {found}, {acknowledged} was acknowledged");
        assert!(records == versions[found].0, "cut {cut}: revision {found} has other records than were committed");
        survivors.insert(found);
        let next = store.commit(revision, &[RecordChange::Put(b"after", b"x")], Durability::Synced).unwrap();
        assert_eq!(read(&store).0, next);
    }
    assert!(survivors.len() > cuts.min(1_000) / 20, "{}", survivors.len());
}

fn octets_of_a_start(disk: &Disk, random: &mut Random) -> usize {
    let image = disk.cut(disk.log_len(), random);
    let store = FileStore::with_backends(image.files(), KIND).unwrap();
    assert_eq!(read(&store).1.len(), 200);
    image.octets_read()
}

#[test]
fn start_reads_the_records_and_no_history() {
    let (disk, mut random) = (Disk::default(), Random(3));
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    let mut revision = Revision(0);
    for number in 0..200u32 {
        revision =
            store.commit(revision, &[RecordChange::Put(&number.to_be_bytes(), &[1; 200])], Durability::Synced).unwrap();
    }
    let first = octets_of_a_start(&disk, &mut random);
    for number in 0..2_000u32 {
        let key = (number % 200).to_be_bytes();
        let batch = [RecordChange::Delete(&key), RecordChange::Put(&key, &[2; 200])];
        revision = store.commit(revision, &batch, Durability::Synced).unwrap();
    }
    let later = octets_of_a_start(&disk, &mut random);
    assert!(first > 200 * 200 && later <= 2 * first, "{first} octets at first, {later} after 2,000 more commits");
}

#[test]
fn full_disk_refuses_changes_until_there_is_room() {
    let disk = Disk::default();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    let mut revision = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
    let mut failures = Vec::new();
    // The log takes a commit of 10,000 octets. Only the database takes a commit of more than 1 MiB.
    let values = [vec![1; 10_000], vec![1; 1 << 20]];
    for operation in 0..60 {
        disk.fail_after(Some(operation / values.len()));
        let (before, expected) = read(&store);
        assert_eq!(before, revision);
        let value = &values[operation % values.len()];
        let outcome = store.commit(revision, &[RecordChange::Put(b"b", value)], Durability::Synced);
        disk.fail_after(None);
        match outcome {
            Ok(next) => revision = next,
            Err(error) => {
                failures.push(matches!(error, StoreError::Full { .. }));
                // The store's revision shows whether the failed batch was applied.
                match store.commit(revision, &[], Durability::Synced) {
                    Ok(next) => {
                        assert_eq!(read(&store).1, expected);
                        revision = next;
                    }
                    Err(StoreError::Conflict) => revision = read(&store).0,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        let next = store.commit(revision, &[RecordChange::Delete(b"b")], Durability::Synced).unwrap();
        revision = next;
    }
    assert!(failures.len() > 3 && failures.iter().all(|is_full| *is_full), "{failures:?}");
}

#[test]
fn store_without_room_is_read_and_works_again() {
    let disk = Disk::default();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    let mut revision = Revision(0);
    for (number, size) in [100, 1 << 20, 5_000].into_iter().enumerate() {
        let change = [RecordChange::Put(&[number as u8], &vec![7; size])];
        revision = store.commit(revision, &change, Durability::Synced).unwrap();
    }
    let (_, expected) = read(&store);
    disk.fail_after(Some(0));
    for value in [&[8; 100][..], &vec![8; 1 << 20]] {
        let refused = store.commit(revision, &[RecordChange::Put(b"b", value)], Durability::Synced);
        assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
        for _ in 0..2 {
            let (found, records) = read_from(&store, b"", usize::MAX);
            assert_eq!((found, records.into_iter().collect()), (revision, expected.clone()));
        }
    }
    disk.fail_after(None);
    store.commit(revision, &[RecordChange::Put(b"b", b"9")], Durability::Synced).unwrap();
    assert_eq!(read(&store).1.len(), expected.len() + 1);
}

/// A failed sync must not lose relaxed commits, which were acknowledged.
#[test]
fn relaxed_commits_survive_a_failed_sync() {
    let disk = Disk::default();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    let synced = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
    for operation in 0..20 {
        let value = [operation as u8; 5_000];
        let batch = [RecordChange::Put(b"b", &value), RecordChange::Delete(b"c")];
        let (before, _) = read(&store);
        let relaxed = store.commit(before, &batch, Durability::Relaxed).unwrap();
        let last = store.commit(relaxed, &[RecordChange::Put(b"c", b"2")], Durability::Relaxed).unwrap();
        disk.fail_after(Some(0));
        assert!(store.sync().is_err());
        // The second attempt fails at different operations of the checkpoint that repeats the
        // commits.
        disk.fail_after(Some(operation));
        let _ = store.sync();
        disk.fail_after(None);
        let (revision, records) = read(&store);
        assert_eq!((revision, records.get(&b"b"[..])), (last, Some(&value.to_vec())), "{operation}");
        assert_eq!(records.get(&b"c"[..]), Some(&b"2".to_vec()));
        store.sync().unwrap();
    }
    let (last, records) = read(&store);
    assert!(last > synced);
    drop(store);
    assert_eq!(read(&FileStore::with_backends(disk.files(), KIND).unwrap()), (last, records));
}

#[test]
fn store_leaves_no_lock_after_a_hundred_openings() {
    let folder = Folder::new("openings");
    let opened = Cell::new(0);
    let path: &Path = &folder.file("store");
    for _ in 0..100 {
        FileStore::open(path, KIND).unwrap();
        opened.set(opened.get() + 1);
    }
    assert_eq!(opened.get(), 100);
}

#[test]
fn refused_commit_does_not_appear_later() {
    for is_killed in [false, true] {
        let disk = Disk::default();
        let store = FileStore::with_backends(disk.files(), KIND).unwrap();
        let first = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
        // The write succeeds, and its sync fails.
        disk.fail_once_after(1);
        assert!(store.commit(first, &[RecordChange::Put(b"b", b"2")], Durability::Synced).is_err());
        let left = if is_killed { disk.cut(disk.log_len(), &mut Random(5)) } else { disk.clone() };
        drop(store);
        let (revision, records) = read(&FileStore::with_backends(left.files(), KIND).unwrap());
        assert_eq!((revision, records.len()), (first, 1), "killed: {is_killed}");
    }
}

#[test]
fn open_store_is_locked_even_after_an_error() {
    let disk = Disk::default();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    let first = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
    let refused = message(FileStore::with_backends(disk.files(), KIND));
    assert!(refused.contains("the store is in use by another process"), "{refused}");
    // The log takes a commit of 10 octets. Only the database takes a commit of 3 MiB.
    for value in [vec![2; 10], vec![2; 3 << 20]] {
        disk.fail_after(Some(0));
        assert!(store.commit(first, &[RecordChange::Put(b"b", &value)], Durability::Synced).is_err());
        disk.fail_after(None);
        assert!(matches!(FileStore::with_backends(disk.files(), KIND), Err(StoreError::Locked { .. })));
        assert_eq!(read(&store).0, first);
        assert!(matches!(FileStore::with_backends(disk.files(), KIND), Err(StoreError::Locked { .. })));
    }
    store.commit(first, &[RecordChange::Put(b"b", b"2")], Durability::Synced).unwrap();
    drop(store);
    assert_eq!(read(&FileStore::with_backends(disk.files(), KIND).unwrap()).1.len(), 2);
}

/// The test holds each sync until the reads beside it have ended, so a read that waited for the
/// sync would fail the test.
#[test]
fn reading_waits_for_no_sync() {
    let folder = Folder::new("reading");
    let disk = Disk::default();
    let store = Arc::new(FileStore::with_backends(disk.files(), KIND).unwrap());
    let mut revision = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
    // The second value needs a checkpoint. The third is in a relaxed commit with a later sync.
    for (number, file, size) in [(0, disk::LOG, 10), (1, disk::DATABASE, 3 << 20), (2, disk::LOG, 10)] {
        let before = read(&*store);
        disk.hold_syncs(file);
        let changing = {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let value = vec![number as u8; size];
                let durability = if number == 2 { Durability::Relaxed } else { Durability::Synced };
                let revision = store.commit(revision, &[RecordChange::Put(b"b", &value)], durability).unwrap();
                store.sync().unwrap();
                revision
            })
        };
        disk.wait_for_stopped_sync();
        let mut expected = before;
        if number == 2 {
            expected.0 = Revision(expected.0.0 + 1);
            expected.1.insert(b"b".to_vec(), vec![2; 10]);
        }
        assert_eq!(read(&*store), expected);
        assert_eq!(read_from(&*store, b"a", 1).1, [(b"a".to_vec(), b"1".to_vec())]);
        let copy = folder.file(&format!("copy{number}"));
        store.backup(&copy).unwrap();
        disk.release_syncs();
        revision = changing.join().unwrap();
        assert_eq!(read(&*store).0, revision);
        assert_eq!(read(&FileStore::open(&copy, KIND).unwrap()).1, expected.1);
    }
}

/// Makes `count` commits, of which every third is synced. A commit puts a value of 10,000 octets
/// or, every seventh time, deletes a value.
fn fill(store: &dyn Store, revision: &mut Revision, expected: &mut Records, count: u32) -> Result<(), StoreError> {
    for _ in 0..count {
        let number = revision.0 as u32;
        let (key, value) = ((number % 50).to_be_bytes(), vec![number as u8; 10_000]);
        let change = [if number % 7 == 6 { RecordChange::Delete(&key) } else { RecordChange::Put(&key, &value) }];
        let durability = if number.is_multiple_of(3) { Durability::Synced } else { Durability::Relaxed };
        *revision = store.commit(*revision, &change, durability)?;
        apply(expected, &change);
    }
    Ok(())
}

/// The test holds the sync of a checkpoint, which empties one part of the log, while the other part
/// takes commits.
#[test]
fn commits_go_on_beside_a_checkpoint() {
    let disk = Disk::default();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    disk.start_log();
    let (mut revision, mut expected) = (Revision(0), Records::new());
    fill(&store, &mut revision, &mut expected, 50).unwrap();
    disk.hold_syncs(disk::DATABASE);
    // One of the log's two parts takes about 100 values, so the last commits go to the other.
    fill(&store, &mut revision, &mut expected, 120).unwrap();
    disk.wait_for_stopped_sync();
    assert_eq!(read(&store), (revision, expected.clone()));
    check_ranges(&store);
    store.sync().unwrap();
    // The power fails in the middle of the checkpoint.
    for seed in 0..20 {
        let image = disk.cut(disk.log_len(), &mut Random(seed));
        let store = FileStore::with_backends(image.files(), KIND).unwrap();
        assert_eq!(read(&store), (revision, expected.clone()), "seed {seed}");
    }
    disk.release_syncs();
    fill(&store, &mut revision, &mut expected, 500).unwrap();
    assert_eq!(read(&store), (revision, expected.clone()));
    drop(store);
    assert_eq!(read(&FileStore::with_backends(disk.files(), KIND).unwrap()), (revision, expected));
}

#[test]
fn log_takes_commits_while_checkpoints_fail() {
    let disk = Disk::default();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    disk.start_log();
    let (mut revision, mut expected) = (Revision(0), Records::new());
    for _ in 0..3 {
        disk.fail_file(Some(disk::DATABASE));
        let refused = fill(&store, &mut revision, &mut expected, 500);
        assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
        assert_eq!(read(&store), (revision, expected.clone()));
        store.sync().unwrap();
        let image = disk.cut(disk.log_len(), &mut Random(revision.0));
        assert_eq!(read(&FileStore::with_backends(image.files(), KIND).unwrap()), (revision, expected.clone()));
        disk.fail_file(None);
        fill(&store, &mut revision, &mut expected, 150).unwrap();
        assert_eq!(read(&store), (revision, expected.clone()));
    }
    // Commits without changes fill the log, too. So they are refused at last if the disk has no
    // room for the database.
    for room in [false, true] {
        disk.fail_file(if room { None } else { Some(disk::DATABASE) });
        for _ in 0..100_000 {
            match store.commit(revision, &[], Durability::Relaxed) {
                Ok(next) => revision = next,
                Err(error) => {
                    assert!(!room, "{error}");
                    break;
                }
            }
        }
        assert_eq!(read(&store).0, revision);
        store.sync().unwrap();
        let image = disk.cut(disk.log_len(), &mut Random(revision.0));
        assert_eq!(read(&FileStore::with_backends(image.files(), KIND).unwrap()), (revision, expected.clone()));
    }
    drop(store);
    assert_eq!(read(&FileStore::with_backends(disk.files(), KIND).unwrap()), (revision, expected));
}

#[test]
fn store_without_room_for_a_checkpoint_is_opened_for_reading() {
    let disk = Disk::default();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    let first = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
    std::mem::forget(store);
    let mut opened = 0;
    for operation in 0..60 {
        let image = disk.cut(disk.log_len(), &mut Random(9));
        image.fail_after(Some(operation));
        let Ok(store) = FileStore::with_backends(image.files(), KIND) else { continue };
        assert_eq!(read(&store).0, first);
        match store.commit(first, &[RecordChange::Put(b"b", b"2")], Durability::Synced) {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, StoreError::Full { .. }), "{error}"),
        }
        opened += 1;
        image.fail_after(None);
        store.commit(first, &[RecordChange::Put(b"b", b"2")], Durability::Synced).unwrap();
    }
    assert!(opened > 3, "{opened}");
}

/// The next process shows its readers commits that a killed process did not sync, so it must sync
/// them first.
#[test]
fn shown_commits_of_a_killed_process_survive_a_power_failure() {
    for seed in 0..20 {
        let disk = Disk::default();
        let store = FileStore::with_backends(disk.files(), KIND).unwrap();
        disk.start_log();
        let first = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Relaxed).unwrap();
        std::mem::forget(store);
        disk.release_locks();
        disk.fail_file(Some(disk::DATABASE));
        let store = FileStore::with_backends(disk.files(), KIND).unwrap();
        let shown = read(&store);
        assert_eq!(shown.0, first);
        let image = disk.cut(disk.log_len(), &mut Random(seed));
        assert_eq!(read(&FileStore::with_backends(image.files(), KIND).unwrap()), shown, "seed {seed}");
    }
}

/// The database is renamed while its store is open, and the log keeps the old name. A new store
/// with the old name must not use this log.
#[test]
fn renamed_store_keeps_its_log() {
    let folder = Folder::new("renamed");
    let first = FileStore::open(folder.file("names.db"), KIND).unwrap();
    let revision = first.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
    fs::rename(folder.file("names.db"), folder.file("old.db")).unwrap();
    let refused = message(FileStore::open(folder.file("names.db"), KIND));
    assert!(refused.contains("names.db.wal is in use by process"), "{refused}");
    first.commit(revision, &[RecordChange::Put(b"b", b"2")], Durability::Synced).unwrap();
    fs::rename(folder.file("names.db.wal"), folder.file("old.db.wal")).unwrap();
    let second = FileStore::open(folder.file("names.db"), KIND).unwrap();
    second.commit(Revision(0), &[RecordChange::Put(b"c", b"3")], Durability::Synced).unwrap();
    // The drop of the first store must not remove the log of the second store.
    drop(first);
    let (database, _) = killed(&folder, "names.db");
    assert_eq!(read(&FileStore::open(database, KIND).unwrap()).1.len(), 1);
    assert_eq!(read(&FileStore::open(folder.file("old.db"), KIND).unwrap()).1.len(), 2);
}

#[test]
fn log_that_cannot_be_read_again_is_replaced() {
    let disk = Disk::default();
    let store = FileStore::with_backends(disk.files(), KIND).unwrap();
    let first = store.commit(Revision(0), &[RecordChange::Put(b"a", b"1")], Durability::Synced).unwrap();
    disk.fail_once_after(0);
    assert!(store.commit(first, &[RecordChange::Put(b"b", b"2")], Durability::Synced).is_err());
    disk.damage_log();
    let second = store.commit(first, &[RecordChange::Put(b"c", b"3")], Durability::Synced).unwrap();
    assert_eq!((read(&store).0, read(&store).1.len()), (second, 2));
    let killed = disk.cut(disk.log_len(), &mut Random(5));
    drop(store);
    for disk in [killed, disk] {
        assert_eq!(read(&FileStore::with_backends(disk.files(), KIND).unwrap()).1.len(), 2);
    }
}
