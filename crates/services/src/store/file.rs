//! A store in one file, with the embedded database redb.
//!
//! After a failed commit, the next use reopens the file and repeats the relaxed commits that were
//! lost.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::lock::{LockScope, Mutex, RwLock};
use redb::{
    Builder, CommitError, Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, TableDefinition, TableError, TransactionError, WriteTransaction,
};

use super::preview::Preview;
use super::{Durability, RecordChange, RecordVisitor, Revision, Store, StoreError};

const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
/// Version of the layout of the tables. The version of the records is [`RecordKind::format`].
const FILE_FORMAT: u64 = 1;
/// In bytes. Services answer from memory, so a small cache suffices.
const CACHE_SIZE: usize = 16 << 20;
/// In bytes. A relaxed commit that raises the unsynced commits above this size is synced.
const MAX_RELAXED_SIZE: usize = 16 << 20;

/// Makes temporary names unique in this process.
static CREATED: AtomicU64 = AtomicU64::new(0);

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("corelane store");
const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("corelane store texts");

/// The service to which a store's records belong, and their format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKind {
    /// Name of the service.
    pub service: &'static str,
    /// Format in which the service writes records. A file with a later format is refused.
    pub format: u64,
}

/// A store in a file.
pub struct FileStore {
    source: StoreSource,
    kind: RecordKind,
    /// `None` after a failed commit, until the file is reopened.
    database: RwLock<Option<OpenDatabase>>,
    commits: Mutex<Commits>,
}

struct Commits {
    revision: Revision,
    /// Unsynced commits, the oldest first. They are repeated if a failed commit closes the file.
    relaxed: Vec<RelaxedCommit>,
    relaxed_size: usize,
}

struct RelaxedCommit {
    revision: Revision,
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Commits {
    fn push_relaxed(&mut self, revision: Revision, batch: &[RecordChange<'_>]) {
        let changes = batch.iter().map(|change| match *change {
            RecordChange::Put(key, value) => (key.to_vec(), Some(value.to_vec())),
            RecordChange::Delete(key) => (key.to_vec(), None),
        });
        let commit = RelaxedCommit { revision, changes: changes.collect() };
        self.relaxed_size += size_of(batch);
        self.relaxed.push(commit);
    }

    fn clear_relaxed(&mut self) {
        self.relaxed.clear();
        self.relaxed_size = 0;
    }
}

fn size_of(batch: &[RecordChange<'_>]) -> usize {
    let size = |change: &RecordChange<'_>| match *change {
        RecordChange::Put(key, value) => key.len() + value.len(),
        RecordChange::Delete(key) => key.len(),
    };
    batch.iter().map(size).sum()
}

/// A database whose drop cannot panic, even if its file is damaged.
struct OpenDatabase(Option<Database>);

impl OpenDatabase {
    fn get(&self) -> Result<&Database, StoreError> {
        self.0.as_ref().ok_or_else(|| damaged(None, "it was closed".to_owned()))
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        let database = self.0.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
    }
}

enum StoreSource {
    Path(PathBuf),
    Backend(Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>),
}

impl StoreSource {
    fn path(&self) -> Option<&Path> {
        match self {
            StoreSource::Path(path) => Some(path),
            StoreSource::Backend(_) => None,
        }
    }

    fn open(&self) -> Result<OpenDatabase, StoreError> {
        let open = || match self {
            StoreSource::Path(path) => builder().create(path).map_err(|error| of_database(error, Some(path))),
            StoreSource::Backend(open) => open().map_err(|error| of_database(error, None)),
        };
        fenced(self.path(), open).map(|database| OpenDatabase(Some(database)))
    }
}

impl FileStore {
    /// Opens a store file. A file that does not exist or is empty becomes a new store.
    ///
    /// # Errors
    /// The reason why the file cannot be used. A file that is not a store of this kind is left
    /// unchanged.
    pub fn open(path: impl Into<PathBuf>, kind: RecordKind) -> Result<FileStore, StoreError> {
        Self::open_with(path.into(), kind, USUAL)
    }

    /// Opens a store file like [`open`](Self::open). Only the owner can read and write a file that
    /// this creates.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn open_private(path: impl Into<PathBuf>, kind: RecordKind) -> Result<FileStore, StoreError> {
        Self::open_with(path.into(), kind, PRIVATE)
    }

    fn open_with(path: PathBuf, kind: RecordKind, mode: u32) -> Result<FileStore, StoreError> {
        if is_database(&path)? {
            check_contents(&path, kind)?;
        } else {
            fenced(Some(&path), || create(&path, kind, mode))?;
        }
        Self::of_source(StoreSource::Path(path), kind)
    }

    /// Opens a store over a storage backend of redb. `backend` creates the backend, and creates it
    /// anew when the store reopens after a failed commit.
    ///
    /// # Errors
    /// The reason why the contents cannot be used.
    pub fn with_backend<B: StorageBackend>(
        backend: impl Fn() -> B + Send + Sync + 'static,
        kind: RecordKind,
    ) -> Result<FileStore, StoreError> {
        let open = move || builder().create_with_backend(backend());
        Self::of_source(StoreSource::Backend(Box::new(open)), kind)
    }

    fn of_source(source: StoreSource, kind: RecordKind) -> Result<FileStore, StoreError> {
        let database = source.open()?;
        let revision = fenced(source.path(), || prepare(database.get()?, kind, source.path()))?;
        Ok(FileStore {
            source,
            kind,
            database: RwLock::new("file store", LockScope::Orb, Some(database)),
            commits: Mutex::new(
                "file store commit",
                LockScope::Orb,
                Commits { revision, relaxed: Vec::new(), relaxed_size: 0 },
            ),
        })
    }

    fn read(&self) -> Result<ReadTransaction, StoreError> {
        let database = self.database.read();
        let database = database.as_ref().ok_or_else(|| self.closed())?.get()?;
        database.begin_read().map_err(|error| of_transaction(error, self.source.path()))
    }

    fn write(&self, revision: Revision, batch: &[RecordChange<'_>], durability: Durability) -> Result<(), StoreError> {
        let path = self.source.path();
        let database = self.database.read();
        let database = database.as_ref().ok_or_else(|| self.closed())?.get()?;
        let mut transaction = database.begin_write().map_err(|error| of_transaction(error, path))?;
        set_durability(&mut transaction, durability)?;
        {
            let mut records = transaction.open_table(RECORDS).map_err(|error| of_table(error, path))?;
            for change in batch {
                match *change {
                    RecordChange::Put(key, value) => records.insert(key, value).map(drop),
                    RecordChange::Delete(key) => records.remove(key).map(drop),
                }
                .map_err(|error| of_storage(error, path))?;
            }
            let mut numbers = transaction.open_table(NUMBERS).map_err(|error| of_table(error, path))?;
            numbers.insert("revision", revision.0).map_err(|error| of_storage(error, path))?;
        }
        transaction.commit().map_err(|error| of_commit(error, path))
    }

    fn reopen(&self) -> Result<Revision, StoreError> {
        let mut database = self.database.write();
        // Dropping the database releases its lock on the file.
        *database = None;
        let opened = self.source.open()?;
        let path = self.source.path();
        let revision = fenced(path, || prepare(opened.get()?, self.kind, path))?;
        *database = Some(opened);
        Ok(revision)
    }

    fn restore(&self, commits: &mut Commits) -> Result<(), StoreError> {
        if self.database.read().is_some() {
            return Ok(());
        }
        let found = self.reopen()?;
        commits.relaxed.retain(|commit| commit.revision > found);
        let first = commits.relaxed.first().map(|commit| commit.revision);
        let last = commits.relaxed.last().map(|commit| commit.revision);
        // If the commits do not follow the file's revision, another process has changed the file,
        // and the commits are dropped.
        if let Some(last) = last.filter(|_| first == Some(next_revision(found))) {
            let changes = commits.relaxed.iter().flat_map(|commit| &commit.changes);
            let batch: Vec<RecordChange<'_>> = changes
                .map(|(key, value)| {
                    value.as_ref().map_or(RecordChange::Delete(key), |value| RecordChange::Put(key, value))
                })
                .collect();
            self.try_commit(last, &batch, Durability::Synced)?;
            commits.revision = last;
        } else {
            commits.revision = found;
        }
        commits.clear_relaxed();
        Ok(())
    }

    fn closed(&self) -> StoreError {
        let path = self.source.path().map(Path::to_owned);
        StoreError::Unusable { path, reason: "it was closed after an error".to_owned() }
    }

    /// Closes the file after an error; the next use reopens it.
    fn try_commit(
        &self,
        revision: Revision,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<(), StoreError> {
        let committed = fenced(self.source.path(), || self.write(revision, batch, durability));
        if committed.is_err() {
            *self.database.write() = None;
        }
        committed
    }
}

fn next_revision(revision: Revision) -> Revision {
    Revision(revision.0.saturating_add(1))
}

impl Store for FileStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        let path = self.source.path();
        if self.database.read().is_none() {
            self.restore(&mut self.commits.lock())?;
        }
        fenced(path, || {
            let transaction = self.read()?;
            let records = transaction.open_table(RECORDS).map_err(|error| of_table(error, path))?;
            for record in records.iter().map_err(|error| of_storage(error, path))? {
                let (key, value) = record.map_err(|error| of_storage(error, path))?;
                visit(key.value(), value.value())?;
            }
            let numbers = transaction.open_table(NUMBERS).map_err(|error| of_table(error, path))?;
            revision_of(&numbers, path)
        })
    }

    fn commit(
        &self,
        after: Revision,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        let mut commits = self.commits.lock();
        self.restore(&mut commits)?;
        if commits.revision != after {
            return Err(StoreError::Conflict);
        }
        let next = next_revision(after);
        let has_room = commits.relaxed_size.saturating_add(size_of(batch)) <= MAX_RELAXED_SIZE;
        let durability = if has_room { durability } else { Durability::Synced };
        self.try_commit(next, batch, durability)?;
        commits.revision = next;
        match durability {
            Durability::Synced => commits.clear_relaxed(),
            Durability::Relaxed => commits.push_relaxed(next, batch),
        }
        Ok(next)
    }

    fn sync(&self) -> Result<(), StoreError> {
        let mut commits = self.commits.lock();
        self.restore(&mut commits)?;
        if !commits.relaxed.is_empty() {
            self.try_commit(commits.revision, &[], Durability::Synced)?;
            commits.clear_relaxed();
        }
        Ok(())
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        write_copy(path, self.kind, &mut |visit| self.for_each(visit))
    }
}

const USUAL: u32 = 0o666;
const PRIVATE: u32 = 0o600;

pub(super) fn write_copy(
    path: &Path,
    kind: RecordKind,
    records: &mut dyn FnMut(&mut RecordVisitor<'_>) -> Result<Revision, StoreError>,
) -> Result<(), StoreError> {
    let own = Some(path);
    if path.exists() {
        return Err(StoreError::FileExists { path: path.to_owned() });
    }
    let fill = |database: &Database| {
        let mut transaction = database.begin_write().map_err(|error| of_transaction(error, own))?;
        set_durability(&mut transaction, Durability::Synced)?;
        {
            let mut table = transaction.open_table(RECORDS).map_err(|error| of_table(error, own))?;
            records(&mut |key, value| table.insert(key, value).map(drop).map_err(|error| of_storage(error, own)))?;
        }
        transaction.commit().map_err(|error| of_commit(error, own))
    };
    let is_new = fenced(own, || create_with(path, kind, PRIVATE, fill))?;
    if is_new { Ok(()) } else { Err(StoreError::FileExists { path: path.to_owned() }) }
}

fn create(path: &Path, kind: RecordKind, mode: u32) -> Result<(), StoreError> {
    create_with(path, kind, mode, |_| Ok(())).map(drop)
}

/// Creates a store file under a temporary name and then gives it its final name, so that no process
/// sees it half written. Returns false if a file that is not empty has the final name. An empty
/// file is replaced.
fn create_with(
    path: &Path,
    kind: RecordKind,
    mode: u32,
    fill: impl FnOnce(&Database) -> Result<(), StoreError>,
) -> Result<bool, StoreError> {
    let failed = |error: &io::Error| StoreError::of_io(error, Some(path.to_owned()));
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}-{}", std::process::id(), CREATED.fetch_add(1, Ordering::Relaxed)));
    let unfinished = PathBuf::from(name);
    let made = (|| {
        // A killed process with the same process id may have left the file.
        if unfinished.exists() {
            fs::remove_file(&unfinished).map_err(|error| failed(&error))?;
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(&unfinished);
        made.map_err(|error| failed(&error))?;
        let database = builder().create(&unfinished).map_err(|error| of_database(error, Some(path)))?;
        prepare(&database, kind, Some(path))?;
        fill(&database)?;
        database.close().map_err(|error| of_database(error, Some(path)))?;
        File::open(&unfinished).and_then(|file| file.sync_all()).map_err(|error| failed(&error))?;
        match fs::hard_link(&unfinished, path) {
            Ok(()) => sync_folder(path).map(|()| true).map_err(|error| failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_empty = fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0);
                if !is_empty {
                    return Ok(false);
                }
                fs::rename(&unfinished, path).and_then(|()| sync_folder(path)).map_err(|error| failed(&error))?;
                Ok(true)
            }
            Err(error) => Err(failed(&error)),
        }
    })();
    let _ = fs::remove_file(&unfinished);
    made
}

/// Makes the name of a new file survive a crash.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Returns true if the file begins like a database of redb, and false if it does not exist or is
/// empty.
///
/// # Errors
/// [`StoreError::NotAStore`] for any other file; errors of reading.
fn is_database(path: &Path) -> Result<bool, StoreError> {
    let failed = |error: &io::Error| StoreError::of_io(error, Some(path.to_owned()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(&error)),
    };
    if !file.metadata().map_err(|error| failed(&error))?.is_file() {
        return Err(StoreError::NotAStore { path: path.to_owned() });
    }
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(|error| failed(&error))?;
    match start.as_slice() {
        [] => Ok(false),
        start if start == MAGIC => Ok(true),
        _ => Err(StoreError::NotAStore { path: path.to_owned() }),
    }
}

/// Checks the contents of a file without writing to it: redb would repair another program's
/// database if the file were opened for writing.
fn check_contents(path: &Path, kind: RecordKind) -> Result<(), StoreError> {
    let failed = |error: &io::Error| StoreError::of_io(error, Some(path.to_owned()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StoreError::Locked { path: path.to_owned(), process: lock_holder(path) });
        }
        Err(TryLockError::Error(error)) => return Err(failed(&error)),
    }
    let preview = Preview::new(file).map_err(|error| failed(&error))?;
    let opened =
        fenced(Some(path), || builder().create_with_backend(preview).map_err(|error| of_database(error, Some(path))))?;
    let opened = OpenDatabase(Some(opened));
    fenced(Some(path), || prepare(opened.get()?, kind, Some(path))).map(drop)
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_SIZE);
    builder
}

/// Checks the kind of the records, or writes it into an empty database. Returns the revision.
fn prepare(database: &Database, kind: RecordKind, path: Option<&Path>) -> Result<Revision, StoreError> {
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
        let value = numbers.get(name).map_err(|error| of_storage(error, path))?;
        value.map(|value| value.value()).ok_or_else(|| damaged(path, format!("it has no {name}")))
    };
    let shown = || path.unwrap_or(Path::new("")).to_owned();
    let check = |found: u64, known: u64| {
        if found > known { Err(StoreError::LaterFormat { path: shown(), found, known }) } else { Ok(()) }
    };
    check(number("file format")?, FILE_FORMAT)?;
    let texts = read.open_table(TEXTS).map_err(|error| of_table(error, path))?;
    let service = texts.get("service").map_err(|error| of_storage(error, path))?;
    let service = service.map(|service| service.value().to_owned()).unwrap_or_default();
    if service != kind.service {
        return Err(StoreError::OtherService { path: shown(), found: service, wanted: kind.service });
    }
    check(number("record format")?, kind.format)?;
    revision_of(&numbers, path)
}

fn initialise(database: &Database, kind: RecordKind, path: Option<&Path>) -> Result<Revision, StoreError> {
    let mut transaction = database.begin_write().map_err(|error| of_transaction(error, path))?;
    set_durability(&mut transaction, Durability::Synced)?;
    {
        let mut numbers = transaction.open_table(NUMBERS).map_err(|error| of_table(error, path))?;
        for (name, number) in [("file format", FILE_FORMAT), ("record format", kind.format), ("revision", 0)] {
            numbers.insert(name, number).map_err(|error| of_storage(error, path))?;
        }
        let mut texts = transaction.open_table(TEXTS).map_err(|error| of_table(error, path))?;
        texts.insert("service", kind.service).map_err(|error| of_storage(error, path))?;
        transaction.open_table(RECORDS).map_err(|error| of_table(error, path))?;
    }
    transaction.commit().map_err(|error| of_commit(error, path))?;
    Ok(Revision(0))
}

fn revision_of(numbers: &impl ReadableTable<&'static str, u64>, path: Option<&Path>) -> Result<Revision, StoreError> {
    let revision = numbers.get("revision").map_err(|error| of_storage(error, path))?;
    revision.map(|revision| Revision(revision.value())).ok_or_else(|| damaged(path, "it has no revision".to_owned()))
}

fn set_durability(transaction: &mut WriteTransaction, durability: Durability) -> Result<(), StoreError> {
    match durability {
        Durability::Synced => {
            transaction.set_quick_repair(true);
            Ok(())
        }
        Durability::Relaxed => transaction
            .set_durability(redb::Durability::None)
            .map_err(|error| StoreError::Unusable { path: None, reason: error.to_string() }),
    }
}

/// Converts a panic inside redb, for example for a damaged page, into an error.
fn fenced<T>(path: Option<&Path>, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no further reason");
        Err(damaged(path, format!("the database stopped: {text}")))
    })
}

fn damaged(path: Option<&Path>, reason: String) -> StoreError {
    StoreError::Damaged { path: path.map(Path::to_owned), reason }
}

fn of_storage(error: StorageError, path: Option<&Path>) -> StoreError {
    match error {
        StorageError::Corrupted(reason) => damaged(path, reason),
        StorageError::Io(error) if error.kind() == io::ErrorKind::InvalidData => damaged(path, error.to_string()),
        StorageError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => damaged(path, error.to_string()),
        StorageError::Io(error) => StoreError::of_io(&error, path.map(Path::to_owned)),
        other => StoreError::Unusable { path: path.map(Path::to_owned), reason: other.to_string() },
    }
}

fn of_database(error: DatabaseError, path: Option<&Path>) -> StoreError {
    match (error, path) {
        (DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch, Some(path)) => {
            StoreError::Locked { path: path.to_owned(), process: lock_holder(path) }
        }
        (DatabaseError::Storage(error), path) => of_storage(error, path),
        (error, path) => StoreError::Unusable { path: path.map(Path::to_owned), reason: error.to_string() },
    }
}

fn of_transaction(error: TransactionError, path: Option<&Path>) -> StoreError {
    match error {
        TransactionError::Storage(error) => of_storage(error, path),
        other => StoreError::Unusable { path: path.map(Path::to_owned), reason: other.to_string() },
    }
}

fn of_table(error: TableError, path: Option<&Path>) -> StoreError {
    match error {
        TableError::Storage(error) => of_storage(error, path),
        other => damaged(path, other.to_string()),
    }
}

fn of_commit(error: CommitError, path: Option<&Path>) -> StoreError {
    match error {
        CommitError::Storage(error) => of_storage(error, path),
        other => StoreError::Unusable { path: path.map(Path::to_owned), reason: other.to_string() },
    }
}

/// Returns the id of a process that has locked the file, by the inode numbers in `/proc/locks`.
fn lock_holder(path: &Path) -> Option<u32> {
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
    use super::*;

    const KIND: RecordKind = RecordKind { service: "test", format: 1 };

    /// The outer copy begins first and ends last: it must fail and leave the inner copy unchanged.
    #[test]
    fn copies_to_one_file_at_a_time_do_not_mix() {
        let folder = std::env::temp_dir().join(format!("corelane-copies-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("copy");
        let refused = write_copy(&path, KIND, &mut |visit| {
            visit(b"outer", b"")?;
            write_copy(&path, KIND, &mut |visit| visit(b"inner", b"").map(|()| Revision(0)))?;
            Ok(Revision(0))
        });
        assert!(matches!(refused, Err(StoreError::FileExists { .. })), "{refused:?}");
        let mut keys = Vec::new();
        let store = FileStore::open(&path, KIND).unwrap();
        let mut collect = |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            Ok(())
        };
        store.for_each(&mut collect).unwrap();
        assert_eq!(keys, [b"inner"]);
        drop(store);
        fs::remove_dir_all(&folder).unwrap();
    }
}
