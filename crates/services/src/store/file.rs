//! A store in a file: the embedded database redb, and a write-ahead log beside it while the store is open.
//!
//! A commit goes to the log, which takes one sync; a commit of the database takes two. A checkpoint writes the log's
//! changes to the database, when the log is full and when the store is opened or closed. It saves the state of the
//! database's allocator (quick repair), so opening a file never scans the whole file.
//!
//! # Locks
//! | lock | what it guards | held during |
//! |---|---|---|
//! | `store writer` | the log, and the database as checkpoints use it | a commit, a sync of the log, a checkpoint, an opening after an error |
//! | `store view` | what readers see: a [`Snapshot`] of the database, the changes since, and the revision | operations in memory |
//!
//! A thread takes the writer's lock first. A reader takes only the lock of the view and copies two pointers, so that it
//! waits for no disk but its own reads. A commit enters the view when its durability is reached. A snapshot is made
//! once for each checkpoint and not for each reader, because redb begins a reading transaction under a lock that it
//! holds while it syncs a file that grows.
//!
//! # Errors of the disk
//! The store keeps its files open and locked until it is dropped, so no other process changes them. After an error in
//! the database redb refuses it, so the store opens it again: at once for readers, through a [`Preview`] that writes
//! nothing, and for writing when the next checkpoint is due. The changes since the last successful checkpoint stay in
//! memory meanwhile, and enter the database again: a change has the effect of its first time. After an error in the
//! log, or in a checkpoint that must end the log's generation, a new log begins before the next commit.
//!
//! [`Preview`]: super::preview::Preview

use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::process;
use redb::StorageBackend;

use super::backend::StoreFile;
use super::database::{
    OpenDatabase, PendingChanges, Snapshot, StoreHead, damaged, fenced, visit_merged, write_checkpoint,
};
use super::files::{self, LogFile, PRIVATE, USUAL};
use super::log::{LogError, WriteAheadLog};
use super::{Durability, RangeVisitor, RecordChange, RecordVisitor, Revision, Store, StoreError};

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
/// Readers wait neither for a commit nor for a checkpoint.
///
/// A file to which a log belongs has a later format number, so that programs that do not know the log refuse it.
pub struct FileStore {
    shared: Arc<SharedStore>,
}

struct SharedStore {
    view: Mutex<View>,
    writer: Mutex<Writer>,
    /// `None` if the store is over backends.
    path: Option<PathBuf>,
    kind: RecordKind,
    /// The file of the database. It is locked.
    file: Arc<StoreFile>,
}

/// What readers see.
struct View {
    /// `None` if the database could not be opened again after an error.
    snapshot: Option<Arc<Snapshot>>,
    /// The last change of each key since the snapshot; `None` is a deletion.
    pending: Arc<PendingChanges>,
    /// The last commit.
    revision: Revision,
}

struct Writer {
    /// The database as checkpoints use it. `None` before the first one, and after an error.
    database: Option<Arc<OpenDatabase>>,
    /// `None` before the first checkpoint. After an error a new log begins.
    log: Option<WriteAheadLog>,
    log_file: Option<LogFile>,
    /// The database names a log.
    names_log: bool,
    generation: u64,
    revision: Revision,
}

impl Writer {
    fn has_room(&self, batch: &[RecordChange<'_>]) -> bool {
        self.log.as_ref().is_some_and(|log| log.has_room(batch))
    }

    /// Takes over the numbers of a database whose last checkpoint may have been in doubt.
    fn adopt(&mut self, head: &StoreHead) {
        self.generation = self.generation.max(head.generation);
        self.revision = self.revision.max(head.revision);
        self.names_log = head.log_id.is_some();
    }
}

fn add_pending(pending: &mut PendingChanges, change: RecordChange<'_>) {
    match change {
        RecordChange::Put(key, value) => pending.insert(key.to_vec(), Some(value.to_vec())),
        RecordChange::Delete(key) => pending.insert(key.to_vec(), None),
    };
}

fn next_revision(revision: Revision) -> Revision {
    Revision(revision.0.saturating_add(1))
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
        if !files::is_database(&path)? {
            fenced(Some(&path), || files::create(&path, kind, mode))?;
        }
        // Another name of the file must lead to the same log.
        let path = std::fs::canonicalize(&path).map_err(|error| StoreError::of_io(&error, Some(path)))?;
        let file = files::open_locked(&path)?;
        SharedStore::open(Some(path), kind, file, None).map(|shared| FileStore { shared: Arc::new(shared) })
    }

    /// Opens a store over two backends of redb, for example ones that simulate failures: the database, and its log.
    /// The store locks each over its whole length, if the backend has locks, and closes it when the store is dropped.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if a backend is locked; the reason why the contents cannot be used.
    pub fn with_backends<B: StorageBackend>(
        (database, log): (B, B),
        kind: RecordKind,
    ) -> Result<FileStore, StoreError> {
        let database = StoreFile::lock(Box::new(database), None)?;
        let log = LogFile::of_backend(StoreFile::lock(Box::new(log), None)?);
        SharedStore::open(None, kind, database, Some(log)).map(|shared| FileStore { shared: Arc::new(shared) })
    }
}

impl SharedStore {
    fn open(
        path: Option<PathBuf>,
        kind: RecordKind,
        file: Arc<StoreFile>,
        log_file: Option<LogFile>,
    ) -> Result<Self, StoreError> {
        // redb would repair another program's database if the file were opened for writing.
        let (database, head) = OpenDatabase::open_unchanged(&file, kind, path.as_deref())?;
        let snapshot = Arc::new(database.snapshot(path.as_deref())?);
        let log_file = match (log_file, &path) {
            (None, Some(path)) if head.log_id.is_some() => LogFile::open(path)?,
            (log_file, _) => log_file,
        };
        let mut pending = PendingChanges::new();
        let mut revision = head.revision;
        if let Some(id) = head.log_id {
            let unusable = |error: LogError| log_is_unusable(path.as_deref(), error);
            let log_file = log_file.as_ref().ok_or_else(|| unusable(LogError::Missing))?;
            let failed = |error: &io::Error| StoreError::of_io(error, path.as_deref().map(files::log_path));
            let opened = WriteAheadLog::open(Arc::clone(&log_file.file), id).map_err(|error| failed(&error))?;
            let log = opened.map_err(unusable)?;
            let replayed = log.replay(head.generation, head.revision, |change| add_pending(&mut pending, change));
            revision = replayed.map_err(|error| failed(&error))?.map_err(unusable)?;
        }
        let view = View { snapshot: Some(snapshot), pending: Arc::new(pending), revision };
        let writer = Writer {
            database: None,
            log: None,
            log_file,
            names_log: head.log_id.is_some(),
            generation: head.generation,
            revision,
        };
        let shared = SharedStore {
            view: Mutex::new("store view", LockScope::Orb, view),
            writer: Mutex::new("store writer", LockScope::Orb, writer),
            path,
            kind,
            file,
        };
        let began = shared.begin_log(&mut shared.writer.lock());
        match began {
            // The records can be read.
            Ok(()) | Err(StoreError::Full { .. }) => Ok(shared),
            Err(error) => Err(error),
        }
    }

    fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn log_failed(&self, error: &io::Error) -> StoreError {
        StoreError::of_io(error, self.path().map(files::log_path))
    }

    /// Returns the database for a checkpoint. Opens it again after an error.
    fn database(&self, writer: &mut Writer) -> Result<Arc<OpenDatabase>, StoreError> {
        if let Some(database) = &writer.database {
            return Ok(Arc::clone(database));
        }
        let (database, head) = OpenDatabase::open(&self.file, self.kind, self.path())?;
        let snapshot = database.snapshot(self.path())?;
        writer.adopt(&head);
        let earlier = self.show(writer, snapshot, None);
        // The second checkpoint from now on may write over the pages of the earlier opening.
        if let Some(earlier) = earlier {
            earlier.database().revoke();
        }
        writer.database = Some(Arc::clone(&database));
        Ok(database)
    }

    /// Shows readers another snapshot, and the changes since. Returns the earlier snapshot.
    fn show(&self, writer: &Writer, snapshot: Snapshot, pending: Option<Arc<PendingChanges>>) -> Option<Arc<Snapshot>> {
        let mut view = self.view.lock();
        view.revision = writer.revision;
        let earlier = view.snapshot.replace(Arc::new(snapshot));
        let replaced = pending.map(|pending| std::mem::replace(&mut view.pending, pending));
        // Destructors run outside the lock.
        drop(view);
        drop(replaced);
        earlier
    }

    /// Begins an empty log, if an error, or the opening, requires a new one. All changes are then in the database.
    fn begin_log(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.log.is_some() {
            return Ok(());
        }
        self.database(writer)?;
        if writer.names_log || !self.view.lock().pending.is_empty() {
            // The database must not name the old log when a new one replaces it.
            self.checkpoint(writer, None, None)?;
        }
        let log_file = match (&mut writer.log_file, self.path()) {
            (Some(log_file), _) => log_file,
            (log_file, Some(path)) => log_file.insert(LogFile::create(path)?),
            (None, None) => return Err(log_is_unusable(None, LogError::Missing)),
        };
        let file = Arc::clone(&log_file.file);
        // The identity is a random number, so that no other log fits to the database.
        let log = process::random_number().and_then(|id| WriteAheadLog::create(file, id));
        let mut log = log.map_err(|error| self.log_failed(&error))?;
        self.checkpoint(writer, None, Some(log.id()))?;
        log.restart(writer.generation);
        writer.log = Some(log);
        Ok(())
    }

    /// Writes the pending changes and `batch`, if any, to the database, which then names the log `log_id`. Restarts the
    /// log. There must be no pending changes if there is a batch, because they would hide it from readers if the
    /// checkpoint were in doubt.
    fn checkpoint(
        &self,
        writer: &mut Writer,
        batch: Option<&[RecordChange<'_>]>,
        log_id: Option<u64>,
    ) -> Result<(), StoreError> {
        let database = self.database(writer)?;
        let pending = Arc::clone(&self.view.lock().pending);
        let revision = if batch.is_some() { next_revision(writer.revision) } else { writer.revision };
        let head = StoreHead { revision, generation: writer.generation.wrapping_add(1), log_id };
        let written = fenced(self.path(), || {
            let database = database.get(self.path())?;
            write_checkpoint(database, &pending, batch.unwrap_or_default(), &head, self.path())
        });
        match written.and_then(|()| database.snapshot(self.path())) {
            Ok(snapshot) => {
                writer.adopt(&head);
                self.show(writer, snapshot, Some(Arc::default()));
                if let Some(log) = &mut writer.log {
                    log.restart(head.generation);
                }
                Ok(())
            }
            Err(error) => {
                // The database may have the next generation, of which the log knows nothing.
                writer.log = None;
                // Otherwise the next reader tries again.
                let _ = self.read_again(writer);
                Err(error)
            }
        }
    }

    /// Opens the database for reading, after an error.
    fn read_again(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if let Some(failed) = writer.database.take() {
            failed.revoke();
        }
        self.view.lock().snapshot = None;
        let (database, head) = OpenDatabase::open_unchanged(&self.file, self.kind, self.path())?;
        let snapshot = database.snapshot(self.path())?;
        writer.adopt(&head);
        self.show(writer, snapshot, None);
        Ok(())
    }

    /// Returns the database as of the last checkpoint, with the later changes and the revision.
    fn shown(&self) -> Result<(Arc<Snapshot>, Arc<PendingChanges>, Revision), StoreError> {
        let shown = || {
            let view = self.view.lock();
            let snapshot = view.snapshot.as_ref()?;
            Some((Arc::clone(snapshot), Arc::clone(&view.pending), view.revision))
        };
        if let Some(shown) = shown() {
            return Ok(shown);
        }
        let mut writer = self.writer.lock();
        match shown() {
            Some(shown) => Ok(shown),
            None => {
                self.read_again(&mut writer)?;
                shown().ok_or_else(|| damaged(self.path(), "it was closed".to_owned()))
            }
        }
    }

    fn append(
        &self,
        writer: &mut Writer,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        let next = next_revision(writer.revision);
        let Some(log) = &mut writer.log else { return Err(damaged(self.path(), "it was closed".to_owned())) };
        let appended = log.append(next, batch).and_then(|()| match durability {
            Durability::Synced => log.sync(),
            Durability::Relaxed => Ok(()),
        });
        if let Err(error) = appended {
            log.erase_last();
            writer.log = None;
            return Err(self.log_failed(&error));
        }
        writer.revision = next;
        let mut view = self.view.lock();
        let pending = Arc::make_mut(&mut view.pending);
        batch.iter().for_each(|change| add_pending(pending, *change));
        view.revision = next;
        Ok(next)
    }
}

fn log_is_unusable(path: Option<&Path>, error: LogError) -> StoreError {
    let log = path.map_or("the log".to_owned(), |path| format!("the log {}", files::log_path(path).display()));
    damaged(path, format!("the latest changes are in {log}, and {error}"))
}

impl Drop for FileStore {
    /// Writes the last checkpoint and removes the log. If the disk refuses that, both files remain for the next
    /// process.
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut writer = shared.writer.lock();
        let closed = shared.checkpoint(&mut writer, None, None);
        if let (Ok(()), Some(log_file), Some(path)) = (closed, &writer.log_file, shared.path()) {
            log_file.remove(path);
        }
    }
}

impl Store for FileStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        self.visit_from(b"", &mut |key, value| visit(key, value).map(ControlFlow::Continue))
    }

    fn visit_from(&self, from: &[u8], visit: &mut RangeVisitor<'_>) -> Result<Revision, StoreError> {
        let path = self.shared.path();
        let (snapshot, pending, revision) = self.shared.shown()?;
        let visit_failed = Cell::new(false);
        let mut visit = |key: &[u8], value: &[u8]| {
            let visited = visit(key, value);
            visit_failed.set(visited.is_err());
            visited
        };
        let visited = fenced(path, || visit_merged(&snapshot, &pending, from, &mut visit, path));
        if visited.is_err() && !visit_failed.get() {
            // After an error the database refuses every further use.
            let mut view = self.shared.view.lock();
            view.snapshot.take_if(|shown| Arc::ptr_eq(shown, &snapshot));
        }
        visited.map(|()| revision)
    }

    fn commit(
        &self,
        after: Revision,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        let shared = &self.shared;
        let mut writer = shared.writer.lock();
        shared.begin_log(&mut writer)?;
        if writer.revision != after {
            return Err(StoreError::Conflict);
        }
        if !writer.has_room(batch) {
            // The batch is in none of these checkpoints, so a failure leaves nothing in doubt.
            let log_id = writer.log.as_ref().map(WriteAheadLog::id);
            shared.checkpoint(&mut writer, None, log_id).or_else(|_| shared.begin_log(&mut writer))?;
        }
        if !writer.has_room(batch) {
            let log_id = writer.log.as_ref().map(WriteAheadLog::id);
            return shared.checkpoint(&mut writer, Some(batch), log_id).map(|()| writer.revision);
        }
        shared.append(&mut writer, batch, durability)
    }

    fn sync(&self) -> Result<(), StoreError> {
        let shared = &self.shared;
        let mut writer = shared.writer.lock();
        shared.begin_log(&mut writer)?;
        let synced = writer.log.as_mut().map_or(Ok(()), WriteAheadLog::sync);
        synced.map_err(|error| {
            writer.log = None;
            shared.log_failed(&error)
        })
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        files::write_copy(path, self.shared.kind, &mut |visit| self.for_each(visit))
    }
}
