//! The database of a store: its tables, its checkpoints, and the errors of redb.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};

use corelane_sys::process;
use redb::{
    Builder, CommitError, Database, DatabaseError, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, TableDefinition, TableError, TransactionError,
};

use super::backend::{FileAccess, StoreFile};
use super::file::RecordFormat;
use super::preview::Preview;
use super::{RangeVisitor, RecordChange, Revision, StoreError};

/// Version of the set of tables in a store that was closed. It is independent of the records'
/// format.
pub(super) const CLOSED_FORMAT: u64 = 1;

/// The version while the database may lack changes that its log has. Version 2 had a log of version
/// 1.
pub(super) const LOGGED_FORMAT: u64 = 3;

/// Size of the cache in bytes. It is small, because services seldom read records after their start.
pub(super) const CACHE_SIZE: usize = 16 << 20;
pub(super) const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
pub(super) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("corelane store");
pub(super) const FORMAT: &str = "file format";

/// Name of the number that each checkpoint increases.
pub(super) const GENERATION: &str = "log generation";
pub(super) const LOG_ID: &str = "log id";
/// Name of the random number that identifies a store. A backup gets another number. Stores of
/// earlier versions have no number.
pub(super) const STORE_ID: &str = "store id";
pub(super) const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("corelane store texts");

pub(super) type PendingChanges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The numbers in the database of a store: revision, generation and identities.
#[derive(Clone, Debug)]
pub(super) struct StoreHead {
    pub(super) revision: Revision,
    pub(super) generation: u64,
    /// Identity of the store; 0 if it has none yet.
    pub(super) store_id: u64,
    /// Identity of the log; `None` if the database has all changes.
    pub(super) log_id: Option<u64>,
}

/// An open database. Its drop cannot panic, even if its file is damaged.
pub(super) struct OpenDatabase {
    database: Option<Database>,
    access: FileAccess,
    /// True after a failed read. redb then refuses the database, so a thread that does not see the
    /// flag yet gets an error of redb.
    has_failed: AtomicBool,
}

impl OpenDatabase {
    /// Opens the database in a file for writing. The opening may repair the file.
    pub(super) fn open(
        file: &Arc<StoreFile>,
        kind: RecordFormat,
        path: Option<&Path>,
    ) -> Result<(Arc<Self>, StoreHead), StoreError> {
        let access = FileAccess::new(file);
        Self::of_backend(access.clone(), access, kind, path)
    }

    /// Opens the database in a file for reading. The database, and its repair, change only memory.
    pub(super) fn open_unchanged(
        file: &Arc<StoreFile>,
        kind: RecordFormat,
        path: Option<&Path>,
    ) -> Result<(Arc<Self>, StoreHead), StoreError> {
        let access = FileAccess::new(file);
        let preview =
            Preview::new(access.clone()).map_err(|error| StoreError::of_io(&error, path.map(Path::to_owned)))?;
        Self::of_backend(preview, access, kind, path)
    }

    fn of_backend(
        backend: impl StorageBackend,
        access: FileAccess,
        kind: RecordFormat,
        path: Option<&Path>,
    ) -> Result<(Arc<Self>, StoreHead), StoreError> {
        let opened = fenced(path, || builder().create_with_backend(backend).map_err(|error| of_database(error, path)))?;
        let database = OpenDatabase { database: Some(opened), access, has_failed: AtomicBool::new(false) };
        let head = fenced(path, || prepare(database.get(path)?, kind, path))?;
        Ok((Arc::new(database), head))
    }

    pub(super) fn get(&self, path: Option<&Path>) -> Result<&Database, StoreError> {
        self.database.as_ref().ok_or_else(|| damaged(path, "it was closed".to_owned()))
    }

    /// Returns the records as of the last checkpoint.
    pub(super) fn snapshot(self: &Arc<Self>, path: Option<&Path>) -> Result<Snapshot, StoreError> {
        let records = fenced(path, || {
            let read = self.get(path)?.begin_read().map_err(|error| of_transaction(error, path))?;
            read.open_table(RECORDS).map_err(|error| of_table(error, path))
        })?;
        Ok(Snapshot { records: Some(records), database: Arc::clone(self) })
    }

    /// Marks the database as failed, after a failed read.
    pub(super) fn set_failed(&self) {
        self.has_failed.store(true, atomic::Ordering::Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(atomic::Ordering::Relaxed)
    }

    /// Ends the access to the file, so that the file can be opened again.
    pub(super) fn revoke(&self) {
        self.access.revoke();
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        let database = self.database.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
    }
}

/// The records as of a checkpoint. Later checkpoints of the same opening do not change the pages of
/// these records. Reading the records takes no lock that a checkpoint holds during a sync, but
/// beginning a transaction of redb does.
pub(super) struct Snapshot {
    records: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    database: Arc<OpenDatabase>,
}

impl Snapshot {
    pub(super) fn database(&self) -> &OpenDatabase {
        &self.database
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let records = self.records.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(records)));
    }
}

pub(super) fn write_checkpoint<'c>(
    database: &Database,
    changes: impl Iterator<Item = RecordChange<'c>>,
    head: &StoreHead,
    path: Option<&Path>,
) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().map_err(|error| of_transaction(error, path))?;
    transaction.set_quick_repair(true);
    {
        let mut records = transaction.open_table(RECORDS).map_err(|error| of_table(error, path))?;
        for change in changes {
            match change {
                RecordChange::Put(key, value) => records.insert(key, value).map(drop),
                RecordChange::Delete(key) => records.remove(key).map(drop),
            }
            .map_err(|error| of_storage(error, path))?;
        }
        let mut numbers = transaction.open_table(NUMBERS).map_err(|error| of_table(error, path))?;
        let format = if head.log_id.is_some() { LOGGED_FORMAT } else { CLOSED_FORMAT };
        for (name, number) in [
            (FORMAT, format),
            ("revision", head.revision.0),
            (GENERATION, head.generation),
            (LOG_ID, head.log_id.unwrap_or_default()),
            (STORE_ID, head.store_id),
        ] {
            numbers.insert(name, number).map_err(|error| of_storage(error, path))?;
        }
    }
    transaction.commit().map_err(|error| of_commit(error, path))
}

/// Returns the changes in the form in which a checkpoint takes them.
pub(super) fn changes_of(pending: &PendingChanges) -> impl Iterator<Item = RecordChange<'_>> {
    pending.iter().map(|(key, value)| match value {
        Some(value) => RecordChange::Put(key, value),
        None => RecordChange::Delete(key),
    })
}

/// Returns the changes of keys from `from` on, in the order of their keys. If both maps have a
/// change of a key, returns the change in `newer`.
fn merged<'c>(
    [older, newer]: [&'c PendingChanges; 2],
    from: &'c [u8],
) -> impl Iterator<Item = (&'c Vec<u8>, &'c Option<Vec<u8>>)> {
    let range =
        |changes: &'c PendingChanges| changes.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).peekable();
    let (mut older, mut newer) = (range(older), range(newer));
    std::iter::from_fn(move || {
        let order = match (older.peek(), newer.peek()) {
            (Some((older, _)), Some((newer, _))) => older.cmp(newer),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => older.next(),
            Ordering::Equal => older.next().and(newer.next()),
            Ordering::Greater => newer.next(),
        }
    })
}

/// Visits the records of a snapshot with later changes, from the key `from` on, in the order of
/// their keys.
pub(super) fn visit_merged(
    snapshot: &Snapshot,
    changes: [&PendingChanges; 2],
    from: &[u8],
    visit: &mut RangeVisitor<'_>,
    path: Option<&Path>,
) -> Result<(), StoreError> {
    let mut pending = merged(changes, from).peekable();
    let mut visit_present = |key: &[u8], value: Option<&[u8]>| match value {
        Some(value) => visit(key, value),
        None => Ok(ControlFlow::Continue(())),
    };
    let records = snapshot.records.as_ref().ok_or_else(|| damaged(path, "it was closed".to_owned()))?;
    for record in records.range(from..).map_err(|error| of_storage(error, path))? {
        let (key, value) = record.map_err(|error| of_storage(error, path))?;
        let key = key.value();
        while let Some((earlier, value)) = pending.next_if(|(other, _)| other.as_slice() < key) {
            if visit_present(earlier, value.as_deref())?.is_break() {
                return Ok(());
            }
        }
        let flow = match pending.next_if(|(other, _)| other.as_slice() == key) {
            Some((_, value)) => visit_present(key, value.as_deref())?,
            None => visit_present(key, Some(value.value()))?,
        };
        if flow.is_break() {
            return Ok(());
        }
    }
    for (key, value) in pending {
        if visit_present(key, value.as_deref())?.is_break() {
            return Ok(());
        }
    }
    Ok(())
}

pub(super) fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned(), process: lock_holder(path) }),
        Err(TryLockError::Error(error)) => Err(StoreError::of_io(&error, Some(path.to_owned()))),
    }
}

pub(super) fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_SIZE);
    builder
}

/// Checks the kind of the records, or writes it into an empty database. Returns the head of the
/// store.
pub(super) fn prepare(database: &Database, kind: RecordFormat, path: Option<&Path>) -> Result<StoreHead, StoreError> {
    let read = database.begin_read().map_err(|error| of_transaction(error, path))?;
    let numbers = match read.open_table(NUMBERS) {
        Ok(numbers) => numbers,
        Err(TableError::TableDoesNotExist(_)) => {
            let tables = read.list_tables().map_err(|error| of_storage(error, path))?;
            if tables.count() > 0 {
                return Err(StoreError::NotAStore { path: path.unwrap_or(Path::new("")).to_owned() });
            }
            return initialise(database, kind, path);
        }
        Err(error) => return Err(of_table(error, path)),
    };
    let number = |name: &str| -> Result<u64, StoreError> {
        number_of(&numbers, name, path)?.ok_or_else(|| damaged(path, format!("it has no {name}")))
    };
    let shown = || path.unwrap_or(Path::new("")).to_owned();
    let check = |found: u64, known: u64| {
        if found > known { Err(StoreError::LaterFormat { path: shown(), found, known }) } else { Ok(()) }
    };
    let format = number(FORMAT)?;
    check(format, LOGGED_FORMAT)?;
    let texts = read.open_table(TEXTS).map_err(|error| of_table(error, path))?;
    let service = texts.get("service").map_err(|error| of_storage(error, path))?;
    let service = service.map(|service| service.value().to_owned()).unwrap_or_default();
    if service != kind.service {
        return Err(StoreError::OtherService { path: shown(), found: service, wanted: kind.service });
    }
    check(number("record format")?, kind.format)?;
    Ok(StoreHead {
        revision: Revision(number("revision")?),
        generation: number_of(&numbers, GENERATION, path)?.unwrap_or_default(),
        store_id: number_of(&numbers, STORE_ID, path)?.unwrap_or_default(),
        log_id: if format > CLOSED_FORMAT { Some(number(LOG_ID)?) } else { None },
    })
}

pub(super) fn number_of(
    numbers: &impl ReadableTable<&'static str, u64>,
    name: &str,
    path: Option<&Path>,
) -> Result<Option<u64>, StoreError> {
    let value = numbers.get(name).map_err(|error| of_storage(error, path))?;
    Ok(value.map(|value| value.value()))
}

pub(super) fn initialise(
    database: &Database,
    kind: RecordFormat,
    path: Option<&Path>,
) -> Result<StoreHead, StoreError> {
    let store_id = process::random_number().map_err(|error| StoreError::of_io(&error, path.map(Path::to_owned)))?;
    let mut transaction = database.begin_write().map_err(|error| of_transaction(error, path))?;
    transaction.set_quick_repair(true);
    {
        let mut numbers = transaction.open_table(NUMBERS).map_err(|error| of_table(error, path))?;
        let names = [(FORMAT, CLOSED_FORMAT), ("record format", kind.format), ("revision", 0), (STORE_ID, store_id)];
        for (name, number) in names {
            numbers.insert(name, number).map_err(|error| of_storage(error, path))?;
        }
        let mut texts = transaction.open_table(TEXTS).map_err(|error| of_table(error, path))?;
        texts.insert("service", kind.service).map_err(|error| of_storage(error, path))?;
        transaction.open_table(RECORDS).map_err(|error| of_table(error, path))?;
    }
    transaction.commit().map_err(|error| of_commit(error, path))?;
    Ok(StoreHead { revision: Revision(0), generation: 0, store_id, log_id: None })
}

/// Converts a panic inside redb, for example for a damaged page, into an error.
pub(super) fn fenced<T>(path: Option<&Path>, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no further reason");
        Err(damaged(path, format!("the database stopped: {text}")))
    })
}

pub(super) fn damaged(path: Option<&Path>, reason: String) -> StoreError {
    StoreError::Damaged { path: path.map(Path::to_owned), reason }
}

pub(super) fn of_storage(error: StorageError, path: Option<&Path>) -> StoreError {
    match error {
        StorageError::Corrupted(reason) => damaged(path, reason),
        StorageError::Io(error) if error.kind() == io::ErrorKind::InvalidData => damaged(path, error.to_string()),
        StorageError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => damaged(path, error.to_string()),
        StorageError::Io(error) => StoreError::of_io(&error, path.map(Path::to_owned)),
        other => StoreError::Unusable { path: path.map(Path::to_owned), reason: other.to_string() },
    }
}

pub(super) fn of_database(error: DatabaseError, path: Option<&Path>) -> StoreError {
    match (error, path) {
        (DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch, Some(path)) => {
            StoreError::Locked { path: path.to_owned(), process: lock_holder(path) }
        }
        (DatabaseError::Storage(error), path) => of_storage(error, path),
        (error, path) => StoreError::Unusable { path: path.map(Path::to_owned), reason: error.to_string() },
    }
}

pub(super) fn of_transaction(error: TransactionError, path: Option<&Path>) -> StoreError {
    match error {
        TransactionError::Storage(error) => of_storage(error, path),
        other => StoreError::Unusable { path: path.map(Path::to_owned), reason: other.to_string() },
    }
}

pub(super) fn of_table(error: TableError, path: Option<&Path>) -> StoreError {
    match error {
        TableError::Storage(error) => of_storage(error, path),
        other => damaged(path, other.to_string()),
    }
}

pub(super) fn of_commit(error: CommitError, path: Option<&Path>) -> StoreError {
    match error {
        CommitError::Storage(error) => of_storage(error, path),
        other => StoreError::Unusable { path: path.map(Path::to_owned), reason: other.to_string() },
    }
}

/// Returns the id of a process that has locked the file, by the inode numbers in `/proc/locks`.
pub(super) fn lock_holder(path: &Path) -> Option<u32> {
    let inode = fs::metadata(path).ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // A line is, for example, `1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF`.
        let mut fields = line.split_whitespace().skip(4);
        let (process, file) = (fields.next()?, fields.next()?);
        if file.rsplit(':').next()? == inode { process.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changes() -> impl Strategy<Value = PendingChanges> {
        prop::collection::btree_map(
            prop::collection::vec(0..3_u8, 0..3),
            prop::option::of(prop::collection::vec(any::<u8>(), 0..2)),
            0..12,
        )
    }

    proptest! {
        #[test]
        fn newer_changes_replace_older_ones(older in changes(), newer in changes(), from in prop::collection::vec(0..3_u8, 0..3)) {
            let mut expected = older.clone();
            expected.extend(newer.clone());
            let found: Vec<_> = merged([&older, &newer], &from).collect();
            prop_assert_eq!(found, expected.range(from.clone()..).collect::<Vec<_>>());
        }
    }
}
