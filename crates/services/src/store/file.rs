//! A store in a file: the embedded database redb, and a write-ahead log beside it while the store is open.
//!
//! A commit goes to the log, which takes one sync; a commit of the database takes two. A checkpoint writes the log's
//! changes to the database, when the log is full and when the store is opened or closed. It saves the state of the
//! database's allocator (quick repair), so opening a file never scans the whole file.
//!
//! After a disk error, the next use of the store opens the files again and writes a checkpoint.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::process;
use redb::backends::FileBackend;
use redb::{Database, ReadTransaction, ReadableDatabase, StorageBackend};

use super::database::{
    OpenDatabase, PendingChanges, RECORDS, StoreHead, builder, damaged, fenced, lock, of_commit, of_database,
    of_storage, of_table, of_transaction, prepare, visit_merged, write_checkpoint,
};
use super::log::{FileId, LogError, WriteAheadLog};
use super::preview::Preview;
use super::{Durability, RangeVisitor, RecordChange, RecordVisitor, Revision, Store, StoreError};

const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
/// Number of temporary names of this process. It only makes the names unique, so its ordering is `Relaxed`.
static CREATED: AtomicU64 = AtomicU64::new(0);

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
/// The store appends each commit to the log, `names.db.wal` beside the file `names.db`. A synced
/// commit then takes one sync of the disk. The log has 1 MiB; a commit that does not fit goes to
/// the file itself. A checkpoint moves the log's changes to the file when the log is full, and when
/// the store is opened or dropped. The drop also removes the log. After `kill -9` or a power
/// failure the next process that opens the store needs both files; without the log,
/// [`open`](Self::open) fails. [`backup`](Store::backup) writes one file with all records.
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
    /// The records as they are on the disk, for reading, if the files cannot be opened again.
    preview: Option<ReadOnlyView>,
    /// The last commit.
    revision: Revision,
    /// The generation and the identity of the log whose commits are in `pending`.
    base: (u64, Option<u64>),
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
        self.base = head.base();
        self.pending = Arc::new(pending);
    }

    /// Closes the files.
    fn fail(&mut self) {
        self.files = None;
        self.needs_checkpoint = true;
    }
}

/// The log is closed first, so that the lock on the database is the last.
struct OpenFiles {
    /// `None` until the first checkpoint, and if the log cannot be read again.
    log: Option<WriteAheadLog>,
    database: OpenDatabase,
}

struct ReadOnlyView {
    database: OpenDatabase,
    pending: Arc<PendingChanges>,
}

fn add_pending(pending: &mut PendingChanges, change: RecordChange<'_>) {
    match change {
        RecordChange::Put(key, value) => pending.insert(key.to_vec(), Some(value.to_vec())),
        RecordChange::Delete(key) => pending.insert(key.to_vec(), None),
    };
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

    fn open_database(&self, kind: RecordKind) -> Result<(OpenDatabase, StoreHead), StoreError> {
        let open = || match self {
            StoreSource::Path(path) => builder().open(path).map_err(|error| of_database(error, Some(path))),
            StoreSource::Backends(open) => {
                let database = builder().create_with_backend(BoxedBackend(open().0));
                database.map_err(|error| of_database(error, None))
            }
        };
        let database = OpenDatabase(Some(fenced(self.path(), open)?));
        let head = fenced(self.path(), || prepare(database.get()?, kind, self.path()))?;
        Ok((database, head))
    }

    /// Opens the log of a database, and reads its commits. Returns the log, the revision of the
    /// last commit, and the changes that the database does not have.
    fn load_log(&self, head: &StoreHead) -> Result<(Option<WriteAheadLog>, Revision, PendingChanges), StoreError> {
        let mut pending = PendingChanges::new();
        let Some(id) = head.log_id else { return Ok((None, head.revision, pending)) };
        let log = self.open_log(id)?;
        let replayed = log.replay(head.generation, head.revision, |change| add_pending(&mut pending, change));
        let replayed = replayed.map_err(|error| StoreError::of_io(&error, self.log_path()))?;
        let revision = replayed.map_err(|error| self.log_is_unusable(error))?;
        Ok((Some(log), revision, pending))
    }

    /// Opens the database so that reading it, and its repair, change nothing on the disk.
    fn open_preview(&self, kind: RecordKind) -> Result<(OpenDatabase, StoreHead), StoreError> {
        let failed = |error: &io::Error| StoreError::of_io(error, self.path().map(Path::to_owned));
        let preview = match self {
            StoreSource::Path(path) => {
                let file = File::open(path).map_err(|error| failed(&error))?;
                // The view holds the lock, so that no other process changes the file meanwhile.
                lock(&file, path)?;
                Preview::new(file)
            }
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
        let (backend, file) = match self {
            StoreSource::Path(path) => self.open_log_file(path, false)?,
            StoreSource::Backends(open) => (open().1, None),
        };
        let opened =
            WriteAheadLog::open(backend, id, file).map_err(|error| StoreError::of_io(&error, self.log_path()))?;
        opened.map_err(|error| self.log_is_unusable(error))
    }

    /// Makes a log for a database that has all changes. Its identity is a random number, so that it
    /// belongs to no other database.
    fn create_log(&self) -> Result<WriteAheadLog, StoreError> {
        let failed = |error: &io::Error| StoreError::of_io(error, self.log_path());
        let (backend, file) = match self {
            StoreSource::Path(path) => self.open_log_file(path, true)?,
            StoreSource::Backends(open) => (open().1, None),
        };
        let id = process::random_number().map_err(|error| failed(&error))?;
        let log = WriteAheadLog::create(backend, id, file).map_err(|error| failed(&error))?;
        if let StoreSource::Path(path) = self {
            sync_folder(path).map_err(|error| failed(&error))?;
        }
        Ok(log)
    }

    fn open_log_file(
        &self,
        path: &Path,
        is_new: bool,
    ) -> Result<(Box<dyn StorageBackend>, Option<FileId>), StoreError> {
        let log = self.log_path().unwrap_or_default();
        let failed = |error: &io::Error| StoreError::of_io(error, Some(log.clone()));
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match fs::symlink_metadata(&log) {
            Ok(found) if !found.is_file() => return Err(StoreError::NotAStore { path: log }),
            Ok(_) if is_new => {
                // A process that was killed while it opened or closed the store.
                let old = File::open(&log).map_err(|error| failed(&error))?;
                lock(&old, &log)?;
                if !WriteAheadLog::is_log(old).map_err(|error| failed(&error))? {
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
        // If the database was renamed, another store may use the log's name.
        lock(&file, &log)?;
        let id = file.metadata().map(|found| file_id(&found)).map_err(|error| failed(&error))?;
        match FileBackend::new(file) {
            Ok(backend) => Ok((Box::new(backend), Some(id))),
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
        let (database, head) = source.open_database(kind)?;
        let (log, revision, pending) = source.load_log(&head)?;
        let mut state = State {
            files: Some(OpenFiles { log, database }),
            preview: None,
            revision,
            base: head.base(),
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
        let (database, head) = self.source.open_database(self.kind)?;
        let log = if head.base() == state.base {
            // All commits are in memory, so a log that cannot be read is no loss.
            head.log_id.and_then(|id| self.source.open_log(id).ok())
        } else {
            let (log, revision, pending) = self.source.load_log(&head)?;
            state.adopt(&head, revision, pending);
            log
        };
        state.files = Some(OpenFiles { log, database });
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
        if state.preview.is_none() {
            match self.reopen(&mut state) {
                Ok(()) => {}
                Err(error @ StoreError::Locked { .. }) => return Err(error),
                // Opening may write to the disk.
                Err(error) => state.preview = Some(self.preview(&state).ok_or(error)?),
            }
        }
        let read = fenced(path, || {
            let files = state.files.as_ref().map(|files| (&files.database, &state.pending));
            let view = state.preview.as_ref().map(|view| (&view.database, &view.pending));
            let (database, pending) = files.or(view).ok_or_else(|| damaged(path, "it was closed".to_owned()))?;
            let read = database.get()?.begin_read().map_err(|error| of_transaction(error, path))?;
            Ok((read, Arc::clone(pending)))
        })?;
        Ok((read.0, read.1, state.revision))
    }

    /// Opens the records for reading; `None` if the file does not have the acknowledged commits.
    fn preview(&self, state: &State) -> Option<ReadOnlyView> {
        let (database, head) = self.source.open_preview(self.kind).ok()?;
        let (generation, log_id) = state.base;
        // A checkpoint in doubt has the pending changes.
        let is_next = head.base() == (generation.wrapping_add(1), log_id) && head.revision == state.revision;
        let pending = match head.base() == state.base {
            true => Arc::clone(&state.pending),
            false if is_next => Arc::default(),
            false => return None,
        };
        Some(ReadOnlyView { database, pending })
    }
}

/// Writes the pending changes and `batch`, if any, to the database, and restarts the log. An error closes the files.
fn checkpoint(source: &StoreSource, state: &mut State, batch: Option<&[RecordChange<'_>]>) -> Result<(), StoreError> {
    let revision = if batch.is_some() { next_revision(state.revision) } else { state.revision };
    let path = source.path();
    let written = fenced(path, || {
        let files = state.files.as_mut().ok_or_else(|| damaged(path, "it was closed".to_owned()))?;
        let mut generation = state.base.0.wrapping_add(1);
        if files.log.is_none() && state.base.1.is_some() {
            // The database must not name the old log when a new one replaces it.
            let head = StoreHead { revision: state.revision, generation, log_id: None };
            write_checkpoint(files.database.get()?, &state.pending, &[], &head, path)?;
            state.base = head.base();
            state.pending = Arc::default();
            generation = generation.wrapping_add(1);
        }
        let log = match &mut files.log {
            Some(log) => log,
            log => log.insert(source.create_log()?),
        };
        let head = StoreHead { revision, generation, log_id: Some(log.id()) };
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

impl Drop for FileStore {
    /// Writes the last checkpoint and removes the log. If the disk refuses that, both files remain for the next
    /// process.
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let path = self.source.path();
        let closed = self.reopen(&mut state).and_then(|()| {
            fenced(path, || {
                let files = state.files.as_ref().ok_or_else(|| damaged(path, "it was closed".to_owned()))?;
                let generation = state.base.0.wrapping_add(1);
                let head = StoreHead { revision: state.revision, generation, log_id: None };
                write_checkpoint(files.database.get()?, &state.pending, &[], &head, path)?;
                Ok(files.log.as_ref().and_then(WriteAheadLog::file))
            })
        });
        // If the database was renamed, the log's name may be that of another log.
        if let (Ok(Some(file)), Some(log)) = (closed, self.source.log_path())
            && fs::symlink_metadata(&log).is_ok_and(|found| file_id(&found) == file)
        {
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
        let visit_failed = Cell::new(false);
        let mut visit = |key: &[u8], value: &[u8]| {
            let visited = visit(key, value);
            visit_failed.set(visited.is_err());
            visited
        };
        let visited = fenced(path, || visit_merged(&read, &pending, from, &mut visit, path));
        if visited.is_err() && !visit_failed.get() {
            // After an error the database refuses every further use.
            let mut state = self.state.lock();
            state.fail();
            state.preview = None;
        }
        visited.map(|()| revision)
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
            if state.revision != after {
                return Err(StoreError::Conflict);
            }
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

fn file_id(found: &fs::Metadata) -> FileId {
    FileId { device: found.dev(), inode: found.ino() }
}

/// Checks the contents of a file without writing to it: redb would repair another program's
/// database if the file were opened for writing.
fn check_contents(path: &Path, kind: RecordKind) -> Result<(), StoreError> {
    let failed = |error: &io::Error| StoreError::of_io(error, Some(path.to_owned()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    lock(&file, path)?;
    let preview = Preview::new(file).map_err(|error| failed(&error))?;
    let opened =
        fenced(Some(path), || builder().create_with_backend(preview).map_err(|error| of_database(error, Some(path))))?;
    let opened = OpenDatabase(Some(opened));
    fenced(Some(path), || prepare(opened.get()?, kind, Some(path))).map(drop)
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
