//! A store in a file: the embedded database redb, and a write-ahead log beside it while the store is open.
//!
//! A commit goes to the log, which takes one sync; a commit of the database takes two. A checkpoint writes the log's
//! changes to the database, when the log is full and when the store is opened or closed. It saves the state of the
//! database's allocator (quick repair), so opening a file never scans the whole file.
//!
//! After a disk error, the next use of the store opens the files again and writes a checkpoint.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::process;
use redb::backends::FileBackend;
use redb::{
    Builder, CommitError, Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, TableDefinition, TableError, TransactionError,
};

use super::log::{LogError, WriteAheadLog};
use super::preview::Preview;
use super::{Durability, RangeVisitor, RecordChange, RecordVisitor, Revision, Store, StoreError};

const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
/// Version of the set of tables, which is independent of the records' format: of a store that was closed.
const CLOSED_FORMAT: u64 = 1;
/// The version while the database lacks the changes in its log.
const LOGGED_FORMAT: u64 = 2;
/// Size of the cache in bytes. It is small, because a service reads the records once, at its start.
const CACHE_SIZE: usize = 16 << 20;
/// Number of temporary names of this process. It only makes the names unique, so its ordering is `Relaxed`.
static CREATED: AtomicU64 = AtomicU64::new(0);

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("corelane store");
const FORMAT: &str = "file format";
/// Number of checkpoints.
const GENERATION: &str = "log generation";
const LOG_ID: &str = "log id";
const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("corelane store texts");

/// The service to which a store's records belong, and their format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKind {
    /// Name of the service.
    pub service: &'static str,
    /// Format in which the service writes records. A file with a later format is refused.
    pub format: u64,
}

/// A store in a file, with a write-ahead log beside it while the store is open.
///
/// The store appends each commit to the log, `names.db.wal` beside the file `names.db`, with one sync of the disk. The
/// log has 1 MiB. A checkpoint moves its changes to the file when the log is full, and when the store is opened or
/// dropped. The drop also removes the log. After `kill -9` or a power failure the next process that opens the store
/// needs both files; without the log, [`open`](Self::open) fails. [`backup`](Store::backup) writes one file with all
/// records.
///
/// A file to which a log belongs has a later format number, so that programs that do not know the log refuse it.
pub struct FileStore {
    source: StoreSource,
    kind: RecordKind,
    state: Mutex<State>,
}

struct State {
    /// `None` after an error.
    files: Option<OpenFiles>,
    /// The database as it is on the disk, for reading, if the files cannot be opened again.
    preview: Option<OpenDatabase>,
    /// The last commit.
    revision: Revision,
    /// The generation of the log whose commits are in `pending`.
    generation: u64,
    /// The last change of each key since the checkpoint; `None` is a deletion.
    pending: Arc<PendingChanges>,
    /// After an error, the log may lack commits or have a refused one. A checkpoint precedes the next commit.
    needs_checkpoint: bool,
}

impl State {
    /// Takes over the contents of a database that another checkpoint has changed: one that was in doubt, or one of
    /// another process.
    fn adopt(&mut self, head: &StoreHead, revision: Revision, pending: PendingChanges) {
        self.revision = revision;
        self.generation = head.generation;
        self.pending = Arc::new(pending);
    }

    /// Closes the files.
    fn fail(&mut self) {
        self.files = None;
        self.needs_checkpoint = true;
    }
}

type PendingChanges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

struct OpenFiles {
    database: OpenDatabase,
    /// `None` until the first checkpoint.
    log: Option<WriteAheadLog>,
}

fn add_pending(pending: &mut PendingChanges, change: RecordChange<'_>) {
    match change {
        RecordChange::Put(key, value) => pending.insert(key.to_vec(), Some(value.to_vec())),
        RecordChange::Delete(key) => pending.insert(key.to_vec(), None),
    };
}

/// What a database says about its store.
struct StoreHead {
    revision: Revision,
    generation: u64,
    /// Identity of the log; `None` if the database has all changes.
    log_id: Option<u64>,
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

/// Opens the backends of a database and its log.
type OpenBackends = dyn Fn() -> (Box<dyn StorageBackend>, Box<dyn StorageBackend>) + Send + Sync;

enum StoreSource {
    Path(PathBuf),
    Backends(Box<OpenBackends>),
}

/// A backend as a type of its own, because redb takes no boxed backends.
#[derive(Debug)]
struct BoxedBackend(Box<dyn StorageBackend>);

impl StorageBackend for BoxedBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

impl StoreSource {
    fn path(&self) -> Option<&Path> {
        match self {
            StoreSource::Path(path) => Some(path),
            StoreSource::Backends(_) => None,
        }
    }

    fn log_path(&self) -> Option<PathBuf> {
        self.path().map(|path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".wal");
            PathBuf::from(name)
        })
    }

    fn open(&self, kind: RecordKind) -> Result<(OpenFiles, StoreHead), StoreError> {
        let open = || match self {
            StoreSource::Path(path) => builder().create(path).map_err(|error| of_database(error, Some(path))),
            StoreSource::Backends(open) => {
                let database = builder().create_with_backend(BoxedBackend(open().0));
                database.map_err(|error| of_database(error, None))
            }
        };
        let database = OpenDatabase(Some(fenced(self.path(), open)?));
        let head = fenced(self.path(), || prepare(database.get()?, kind, self.path()))?;
        let log = head.log_id.map(|id| self.open_log(id)).transpose()?;
        Ok((OpenFiles { database, log }, head))
    }

    /// Opens the files, and reads the commits in the log.
    fn load(&self, kind: RecordKind) -> Result<(OpenFiles, StoreHead, Revision, PendingChanges), StoreError> {
        let (files, head) = self.open(kind)?;
        let mut pending = PendingChanges::new();
        let mut revision = head.revision;
        if let Some(log) = &files.log {
            let replayed = log.replay(head.generation, revision, |change| add_pending(&mut pending, change));
            let replayed = replayed.map_err(|error| StoreError::of_io(&error, self.log_path()))?;
            revision = replayed.map_err(|error| self.log_is_unusable(error))?;
        }
        Ok((files, head, revision, pending))
    }

    /// Opens the database so that reading it, and its repair, change nothing on the disk.
    fn open_preview(&self, kind: RecordKind) -> Result<(OpenDatabase, StoreHead), StoreError> {
        let failed = |error: &io::Error| StoreError::of_io(error, self.path().map(Path::to_owned));
        let preview = match self {
            StoreSource::Path(path) => File::open(path).and_then(Preview::new),
            StoreSource::Backends(open) => Preview::of_backend(open().0),
        };
        let preview = preview.map_err(|error| failed(&error))?;
        fenced(self.path(), || {
            let database = builder().create_with_backend(preview).map_err(|error| of_database(error, self.path()))?;
            let database = OpenDatabase(Some(database));
            let head = prepare(database.get()?, kind, self.path())?;
            Ok((database, head))
        })
    }

    fn open_log(&self, id: u64) -> Result<WriteAheadLog, StoreError> {
        let backend = match self {
            StoreSource::Path(_) => self.open_log_file(false)?,
            StoreSource::Backends(open) => open().1,
        };
        let opened = WriteAheadLog::open(backend, id).map_err(|error| StoreError::of_io(&error, self.log_path()))?;
        opened.map_err(|error| self.log_is_unusable(error))
    }

    /// Makes a log for a database that has all changes. Its identity is a random number, so that no other log fits to
    /// the database.
    fn create_log(&self) -> Result<WriteAheadLog, StoreError> {
        let failed = |error: &io::Error| StoreError::of_io(error, self.log_path());
        let backend = match self {
            StoreSource::Path(_) => self.open_log_file(true)?,
            StoreSource::Backends(open) => open().1,
        };
        let id = process::random_number().map_err(|error| failed(&error))?;
        let log = WriteAheadLog::create(backend, id).map_err(|error| failed(&error))?;
        if let StoreSource::Path(path) = self {
            sync_folder(path).map_err(|error| failed(&error))?;
        }
        Ok(log)
    }

    fn open_log_file(&self, is_new: bool) -> Result<Box<dyn StorageBackend>, StoreError> {
        let (path, log) = (self.path().unwrap_or(Path::new("")), self.log_path().unwrap_or_default());
        let failed = |error: &io::Error| StoreError::of_io(error, Some(log.clone()));
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match fs::symlink_metadata(&log) {
            Ok(found) if !found.is_file() => return Err(StoreError::NotAStore { path: log }),
            Ok(_) if is_new => {
                // A process that was killed while it opened or closed the store.
                let is_log = File::open(&log).and_then(WriteAheadLog::is_log).map_err(|error| failed(&error))?;
                if !is_log {
                    return Err(StoreError::NotAStore { path: log });
                }
                fs::remove_file(&log).map_err(|error| failed(&error))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_new => {
                return Err(self.log_is_unusable(LogError::Missing));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&error)),
            _ => {}
        }
        if is_new {
            // The log has the records of the store, so it has the store's permissions.
            let mode = fs::metadata(path).map_err(|error| failed(&error))?.mode();
            options.create_new(true).mode(mode & 0o666);
        }
        let file = options.open(&log).map_err(|error| failed(&error))?;
        match FileBackend::new(file) {
            Ok(backend) => Ok(Box::new(backend)),
            Err(error) => Err(StoreError::Unusable { path: Some(log), reason: error.to_string() }),
        }
    }

    fn log_is_unusable(&self, error: LogError) -> StoreError {
        let log = self.log_path().map_or("the log".to_owned(), |log| format!("the log {}", log.display()));
        damaged(self.path(), format!("the latest changes are in {log}, and {error}"))
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
        // Another name of the file must lead to the same log.
        let path = fs::canonicalize(&path).map_err(|error| StoreError::of_io(&error, Some(path)))?;
        Self::of_source(StoreSource::Path(path), kind)
    }

    /// Opens a store over two backends of redb, for example ones that simulate failures: the database, and its log.
    /// `backends` creates them. The store calls it again after each error.
    ///
    /// # Errors
    /// The reason why the contents cannot be used.
    pub fn with_backends<B: StorageBackend>(
        backends: impl Fn() -> (B, B) + Send + Sync + 'static,
        kind: RecordKind,
    ) -> Result<FileStore, StoreError> {
        let open = move || {
            let (database, log) = backends();
            (Box::new(database) as Box<dyn StorageBackend>, Box::new(log) as Box<dyn StorageBackend>)
        };
        Self::of_source(StoreSource::Backends(Box::new(open)), kind)
    }

    fn of_source(source: StoreSource, kind: RecordKind) -> Result<FileStore, StoreError> {
        let (files, head, revision, pending) = source.load(kind)?;
        let mut state = State {
            files: Some(files),
            preview: None,
            revision,
            generation: head.generation,
            pending: Arc::new(pending),
            needs_checkpoint: true,
        };
        match checkpoint(&source, &mut state, None) {
            // The records can be read.
            Ok(()) | Err(StoreError::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(FileStore { source, kind, state: Mutex::new("file store", LockScope::Orb, state) })
    }

    /// Opens the files again if an error has closed them.
    fn reopen(&self, state: &mut State) -> Result<(), StoreError> {
        if state.files.is_some() {
            return Ok(());
        }
        state.preview = None;
        let (files, head, revision, pending) = self.source.load(self.kind)?;
        if head.generation != state.generation {
            state.adopt(&head, revision, pending);
        }
        state.files = Some(files);
        Ok(())
    }

    /// Prepares the files for a commit.
    fn restore(&self, state: &mut State) -> Result<(), StoreError> {
        self.reopen(state)?;
        if state.needs_checkpoint { checkpoint(&self.source, state, None) } else { Ok(()) }
    }

    /// Returns the database as of the last checkpoint, with the later changes and the revision.
    fn read(&self) -> Result<(ReadTransaction, Arc<PendingChanges>, Revision), StoreError> {
        let path = self.source.path();
        let mut state = self.state.lock();
        if state.preview.is_none()
            && let Err(error) = self.reopen(&mut state)
        {
            // Opening may write to the disk.
            let (preview, head) = self.source.open_preview(self.kind).map_err(|_| error)?;
            if head.generation != state.generation {
                state.adopt(&head, head.revision, PendingChanges::new());
            }
            state.preview = Some(preview);
        }
        let read = fenced(path, || {
            let database = state.files.as_ref().map(|files| &files.database).or(state.preview.as_ref());
            let database = database.ok_or_else(|| damaged(path, "it was closed".to_owned()))?;
            database.get()?.begin_read().map_err(|error| of_transaction(error, path))
        })?;
        Ok((read, Arc::clone(&state.pending), state.revision))
    }
}

/// Writes the pending changes and `batch`, if any, to the database, and restarts the log. An error closes the files.
fn checkpoint(source: &StoreSource, state: &mut State, batch: Option<&[RecordChange<'_>]>) -> Result<(), StoreError> {
    let revision = if batch.is_some() { next_revision(state.revision) } else { state.revision };
    let path = source.path();
    let written = fenced(path, || {
        let files = state.files.as_mut().ok_or_else(|| damaged(path, "it was closed".to_owned()))?;
        let log = match &mut files.log {
            Some(log) => log,
            log => log.insert(source.create_log()?),
        };
        let log_id = Some(log.id());
        let head = StoreHead { revision, generation: state.generation.wrapping_add(1), log_id };
        write_checkpoint(files.database.get()?, &state.pending, batch.unwrap_or_default(), &head, path)?;
        log.restart(head.generation);
        Ok(head)
    });
    match written {
        Ok(head) => {
            state.adopt(&head, revision, PendingChanges::new());
            state.needs_checkpoint = false;
            Ok(())
        }
        Err(error) => {
            state.fail();
            Err(error)
        }
    }
}

fn write_checkpoint(
    database: &Database,
    pending: &PendingChanges,
    batch: &[RecordChange<'_>],
    head: &StoreHead,
    path: Option<&Path>,
) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().map_err(|error| of_transaction(error, path))?;
    transaction.set_quick_repair(true);
    {
        let mut records = transaction.open_table(RECORDS).map_err(|error| of_table(error, path))?;
        let pending = pending.iter().map(|(key, value)| {
            value.as_ref().map_or(RecordChange::Delete(key), |value| RecordChange::Put(key, value))
        });
        for change in pending.chain(batch.iter().copied()) {
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
        ] {
            numbers.insert(name, number).map_err(|error| of_storage(error, path))?;
        }
    }
    transaction.commit().map_err(|error| of_commit(error, path))
}

impl Drop for FileStore {
    /// Writes the last checkpoint and removes the log. If the disk refuses that, both files remain for the next
    /// process.
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let path = self.source.path();
        let is_closed = self.reopen(&mut state).and_then(|()| {
            fenced(path, || {
                let files = state.files.as_ref().ok_or_else(|| damaged(path, "it was closed".to_owned()))?;
                let generation = state.generation.wrapping_add(1);
                let head = StoreHead { revision: state.revision, generation, log_id: None };
                write_checkpoint(files.database.get()?, &state.pending, &[], &head, path)
            })
        });
        if let (Ok(()), Some(log)) = (is_closed, self.source.log_path()) {
            let _ = fs::remove_file(log);
        }
    }
}

fn next_revision(revision: Revision) -> Revision {
    Revision(revision.0.saturating_add(1))
}

impl Store for FileStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        self.visit_from(b"", &mut |key, value| visit(key, value).map(ControlFlow::Continue))
    }

    fn visit_from(&self, from: &[u8], visit: &mut RangeVisitor<'_>) -> Result<Revision, StoreError> {
        let path = self.source.path();
        let (read, pending, revision) = self.read()?;
        fenced(path, || visit_merged(&read, &pending, from, visit, path))?;
        Ok(revision)
    }

    fn commit(
        &self,
        after: Revision,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        let mut state = self.state.lock();
        self.restore(&mut state)?;
        if state.revision != after {
            return Err(StoreError::Conflict);
        }
        let next = next_revision(after);
        let has_room = |state: &State| {
            state.files.as_ref().and_then(|files| files.log.as_ref()).is_some_and(|log| log.has_room(batch))
        };
        if !has_room(&state) {
            // The batch is in neither of these checkpoints, so a failure leaves nothing in doubt.
            checkpoint(&self.source, &mut state, None).or_else(|_| self.restore(&mut state))?;
        }
        if !has_room(&state) {
            checkpoint(&self.source, &mut state, Some(batch))?;
            return Ok(next);
        }
        let Some(log) = state.files.as_mut().and_then(|files| files.log.as_mut()) else {
            return Err(damaged(self.source.path(), "it was closed".to_owned()));
        };
        let appended = log.append(next, batch).and_then(|()| match durability {
            Durability::Synced => log.sync(),
            Durability::Relaxed => Ok(()),
        });
        if let Err(error) = appended {
            log.erase_last();
            state.fail();
            return Err(StoreError::of_io(&error, self.source.log_path()));
        }
        let pending = Arc::make_mut(&mut state.pending);
        batch.iter().for_each(|change| add_pending(pending, *change));
        state.revision = next;
        Ok(next)
    }

    fn sync(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        self.restore(&mut state)?;
        match state.files.as_mut().and_then(|files| files.log.as_mut()).map_or(Ok(()), WriteAheadLog::sync) {
            Ok(()) => Ok(()),
            Err(error) => {
                state.fail();
                Err(StoreError::of_io(&error, self.source.log_path()))
            }
        }
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        write_copy(path, self.kind, &mut |visit| self.for_each(visit))
    }
}

/// Visits the records of a snapshot with later changes, from the key `from` on, in the order of their keys.
fn visit_merged(
    read: &ReadTransaction,
    pending: &PendingChanges,
    from: &[u8],
    visit: &mut RangeVisitor<'_>,
    path: Option<&Path>,
) -> Result<(), StoreError> {
    let mut pending = pending.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).peekable();
    let mut visit_present = |key: &[u8], value: Option<&[u8]>| match value {
        Some(value) => visit(key, value),
        None => Ok(ControlFlow::Continue(())),
    };
    let records = read.open_table(RECORDS).map_err(|error| of_table(error, path))?;
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
        transaction.set_quick_repair(true);
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

/// Checks the kind of the records, or writes it into an empty file.
fn prepare(database: &Database, kind: RecordKind, path: Option<&Path>) -> Result<StoreHead, StoreError> {
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
        log_id: if format == LOGGED_FORMAT { Some(number(LOG_ID)?) } else { None },
    })
}

fn number_of(
    numbers: &impl ReadableTable<&'static str, u64>,
    name: &str,
    path: Option<&Path>,
) -> Result<Option<u64>, StoreError> {
    let value = numbers.get(name).map_err(|error| of_storage(error, path))?;
    Ok(value.map(|value| value.value()))
}

fn initialise(database: &Database, kind: RecordKind, path: Option<&Path>) -> Result<StoreHead, StoreError> {
    let mut transaction = database.begin_write().map_err(|error| of_transaction(error, path))?;
    transaction.set_quick_repair(true);
    {
        let mut numbers = transaction.open_table(NUMBERS).map_err(|error| of_table(error, path))?;
        for (name, number) in [(FORMAT, CLOSED_FORMAT), ("record format", kind.format), ("revision", 0)] {
            numbers.insert(name, number).map_err(|error| of_storage(error, path))?;
        }
        let mut texts = transaction.open_table(TEXTS).map_err(|error| of_table(error, path))?;
        texts.insert("service", kind.service).map_err(|error| of_storage(error, path))?;
        transaction.open_table(RECORDS).map_err(|error| of_table(error, path))?;
    }
    transaction.commit().map_err(|error| of_commit(error, path))?;
    Ok(StoreHead { revision: Revision(0), generation: 0, log_id: None })
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
