//! Stores whose disk fails to read, whose openings end early, and whose readers outlast an opening.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use corelane_services::store::{Durability, FileStore, RecordChange, Revision, Store, StoreError};

use super::disk::{self, Disk, Random};
use super::{KIND, Records, apply, fill, read};

/// Number of records of a store.
const COUNT: u32 = 150;
/// Size in bytes of values with which the store fits into the cache of redb.
const SMALL: usize = 10_000;
/// Size in bytes of values with which the store is larger than the cache of redb.
const LARGE: usize = 200_000;

fn key(number: u32) -> Vec<u8> {
    format!("record {number:03}").into_bytes()
}

/// Sets all records in one batch, which is larger than either of the log's two parts and so goes to
/// the database.
fn set(store: &dyn Store, after: Revision, size: usize, value: u8) -> Result<Revision, StoreError> {
    let value = vec![value; size];
    let keys: Vec<_> = (0..COUNT).map(key).collect();
    let batch: Vec<_> = keys.iter().map(|key| RecordChange::Put(key, &value)).collect();
    store.commit(after, &batch, Durability::Synced)
}

fn open(disk: &Disk) -> FileStore {
    FileStore::with_backends(disk.files(), KIND).unwrap()
}

/// Returns a disk with a closed store, and the revision and the records of the store.
fn closed_store(size: usize) -> (Disk, Revision, Records) {
    let disk = Disk::default();
    let store = open(&disk);
    let revision = set(&store, Revision(0), size, 1).unwrap();
    let records = read(&store).1;
    drop(store);
    disk.start_log();
    (disk, revision, records)
}

/// Reads the records from the key 100 on, and calls `beside` after the first record.
fn read_slowly(store: &dyn Store, beside: impl FnOnce()) -> Result<Records, StoreError> {
    let (mut records, mut beside) = (Records::new(), Some(beside));
    store.visit_from(&key(100), &mut |key, value| {
        records.insert(key.to_vec(), value.to_vec());
        if let Some(beside) = beside.take() {
            beside();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(records)
}

/// Replaces all records several times, so that redb uses the pages of the replaced records again.
/// Returns the last revision.
fn replace_often(store: &dyn Store, mut revision: Revision) -> Revision {
    for value in 2..8 {
        revision = set(store, revision, LARGE, value).unwrap();
    }
    revision
}

/// The log has entries of two generations when its process is killed. Then the power fails while
/// the next process opens the store.
#[test]
fn opening_that_a_power_failure_ends_can_be_repeated() {
    let (disk, mut revision, mut expected) = closed_store(SMALL);
    let store = open(&disk);
    disk.fail_file(Some(disk::DATABASE));
    fill(&store, &mut revision, &mut expected, 500).unwrap_err();
    store.sync().unwrap();
    let killed = || disk.cut(disk.log_len(), &mut Random(1));
    let operations = {
        let image = killed();
        image.start_log();
        std::mem::forget(open(&image));
        image.log_len()
    };
    assert!(operations > 10, "{operations}");
    for count in 0..=operations {
        let image = killed();
        image.start_log();
        std::mem::forget(open(&image));
        let image = image.cut(count, &mut Random(count as u64));
        assert_eq!(read(&open(&image)), (revision, expected.clone()), "{count} operations");
    }
}

#[test]
fn read_that_fails_leaves_a_usable_store() {
    let mut failures = 0;
    for reads in (0..120).step_by(7) {
        let (disk, revision, expected) = closed_store(LARGE);
        let store = open(&disk);
        disk.fail_one_read_after(Some(reads));
        let mut visited = 0;
        let outcome = store.for_each(&mut |_, _| {
            visited += 1;
            Ok(())
        });
        disk.fail_one_read_after(None);
        if outcome.is_err() {
            failures += 1;
            assert!(visited > 0, "a reader that has seen nothing begins again");
        }
        // The next use of the store is a read, a commit that only the database takes, or the end.
        let mut last = (revision, expected);
        match reads % 3 {
            0 => assert_eq!(read(&store), last),
            1 => {
                last.0 = set(&store, revision, LARGE, 2).unwrap();
                last.1.values_mut().for_each(|value| value.fill(2));
            }
            _ => {}
        }
        drop(store);
        // Opens the store without its log, which would fail if the closed database still named a
        // log.
        let files = (disk.files().0, Disk::default().files().1);
        assert_eq!(read(&FileStore::with_backends(files, KIND).unwrap()), last, "{reads} reads");
    }
    assert!(failures > 9, "{failures}");
}

#[test]
fn panic_of_a_visitor_is_its_callers() {
    let (disk, revision, expected) = closed_store(SMALL);
    let store = open(&disk);
    let visit = || store.for_each(&mut |_, _| panic!("the visitor's"));
    let panic = catch_unwind(AssertUnwindSafe(visit)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"the visitor's"));
    let (before, later) = (disk.octets_read(), read(&store));
    assert_eq!(later, (revision, expected));
    // If the panic had made the store open the database again, it would have read twice as many
    // octets.
    assert!(disk.octets_read() - before < 2 * 150 * SMALL);
}

/// A database that was opened again does not know the readers of the earlier opening, so it may
/// write over the pages that they read.
#[test]
fn reader_of_an_earlier_opening_sees_no_later_records() {
    let (disk, revision, expected) = closed_store(LARGE);
    let store = open(&disk);
    disk.fail_file(Some(disk::DATABASE));
    set(&store, revision, LARGE, 2).unwrap_err();
    disk.fail_file(None);
    let mut last = revision;
    let seen = read_slowly(&store, || last = replace_often(&store, revision)).ok();
    assert!(seen.is_none_or(|seen| seen == expected.clone().split_off(&key(100))), "the records of another revision");
    let later = read(&store);
    assert_eq!(later.0, last);
    assert!(later.1.values().all(|value| *value == [7; LARGE]));
}

/// A read fails while a thread makes a checkpoint of the database, and the reader begins again.
#[test]
fn reader_beside_a_failed_checkpoint_sees_no_later_records() {
    let (disk, mut revision, mut expected) = closed_store(LARGE);
    let store = open(&disk);
    disk.hold_syncs(disk::DATABASE);
    fill(&store, &mut revision, &mut expected, 140).unwrap();
    disk.wait_for_stopped_sync();
    disk.fail_one_read_after(Some(0));
    let releasing = {
        let disk = disk.clone();
        std::thread::spawn(move || {
            disk.wait_for_failed_read();
            // The pause lets the reader begin its wait for the sync.
            std::thread::sleep(Duration::from_millis(100));
            disk.release_syncs();
        })
    };
    let mut last = revision;
    let seen = read_slowly(&store, || last = replace_often(&store, revision)).ok();
    releasing.join().unwrap();
    assert!(seen.is_none_or(|seen| seen == expected.clone().split_off(&key(100))), "the records of another revision");
    expected.iter_mut().filter(|(key, _)| key.starts_with(b"record")).for_each(|(_, value)| value.fill(7));
    assert_eq!(read(&store), (last, expected.clone()));
    drop(store);
    assert_eq!(read(&open(&disk)), (last, expected));
}

/// Each operation of a checkpoint beside commits fails once.
#[test]
fn commits_survive_a_checkpoint_in_doubt() {
    for operations in 0..40 {
        let (disk, mut revision, mut expected) = closed_store(SMALL);
        let store = open(&disk);
        // One of the log's two parts takes 104 values, which are about 121 commits with deletions.
        // So the next commits begin a checkpoint.
        fill(&store, &mut revision, &mut expected, 118).unwrap();
        disk.fail_once_after(operations);
        let mut refused = 0;
        while revision.0 < 260 {
            refused += usize::from(fill(&store, &mut revision, &mut expected, 1).is_err());
            assert!(refused < 4, "{operations}");
        }
        store.sync().unwrap();
        assert_eq!(read(&store), (revision, expected.clone()));
        let image = disk.cut(disk.log_len(), &mut Random(operations as u64));
        assert_eq!(read(&open(&image)), (revision, expected.clone()), "{operations}");
        drop(store);
        assert_eq!(read(&open(&disk)), (revision, expected), "{operations}");
    }
}

/// The disk has room for the log, but not for the database.
#[test]
fn refused_large_batch_leaves_the_log() {
    let (disk, mut revision, mut expected) = closed_store(SMALL);
    let store = open(&disk);
    fill(&store, &mut revision, &mut expected, 10).unwrap();
    disk.fail_file(Some(disk::DATABASE));
    for _ in 0..3 {
        let refused = set(&store, revision, SMALL, 2);
        assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
        fill(&store, &mut revision, &mut expected, 50).unwrap();
        assert_eq!(read(&store), (revision, expected.clone()));
        store.sync().unwrap();
        let image = disk.cut(disk.log_len(), &mut Random(revision.0));
        assert_eq!(read(&open(&image)), (revision, expected.clone()));
    }
    disk.fail_file(None);
    revision = set(&store, revision, SMALL, 3).unwrap();
    let value = vec![3; SMALL];
    (0..COUNT).for_each(|number| apply(&mut expected, &[RecordChange::Put(&key(number), &value)]));
    fill(&store, &mut revision, &mut expected, 150).unwrap();
    drop(store);
    assert_eq!(read(&open(&disk)), (revision, expected));
}
