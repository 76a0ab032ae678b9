//! A store in a file: the embedded database redb, and a write-ahead log beside it while the store
//! is open.
//!
//! A synced commit goes to the log with one sync; a commit of the database takes two. The log has
//! two parts, which take commits in turn. A checkpoint writes the log's changes to the database,
//! when one of the two parts is full, when the store is opened or closed, and after errors. It
//! saves the state of the database's allocator (quick repair), so opening a file never scans the
//! whole file.
//!
//! A separate thread makes the checkpoint of a full part, while commits continue in the other part.
//! Without errors, a commit waits for the checkpoint only if both parts are full, or if the batch
//! is larger than a part. Such a batch goes to the database.
//!
//! # Locks
//! | lock | what it guards | held during |
//! |---|---|---|
//! | `store writer` | the log, and the start and the end of checkpoints | a commit, a sync of the log, an opening after an error, a checkpoint that is not made beside commits |
//! | `store view` | what readers see: a [`Snapshot`] of the database, the changes since, and the revision | operations in memory |
//! | `store file` | the access of one opening of the database to its file | an operation of the file, also a sync; shared, but exclusive for the end of the access |
//! | `store preview` | the pages that an opening for reading has changed in memory | an operation of that opening |
//!
//! The thread that makes a checkpoint beside commits holds neither the writer's lock nor the view's
//! while it writes. A thread that takes both takes the writer's first. A reader takes only the lock
//! of the view and copies some pointers, so that without errors it waits for no operation of the
//! disk but its own reads. A commit enters the view when its durability is reached. A snapshot is
//! made once for each checkpoint and not for each reader, because redb begins a reading transaction
//! under a lock that it holds while it syncs a file that grows.
//!
//! # Errors of the disk
//! The store keeps its files open and locked until it is dropped, so no other process changes them.
//! After an error in the database redb refuses it, so the store opens it again: at once for
//! readers, through a [`Preview`] that writes nothing, and for writing when the next checkpoint is
//! due. Until then, the changes since the last successful checkpoint stay in memory. They may enter
//! the database twice, which has the same effect as once. After an error in the log, or in a
//! checkpoint that is made while commits wait and whose outcome is in doubt, a new log begins
//! before the next commit.
//!
//! All openings for reading lose their access when the database is opened for writing, because redb
//! then uses pages again that they read. A reader of such an opening begins again if it has visited
//! no record, and otherwise gets an error. After an error of reading, the next reader waits for the
//! writer's lock and for an operation of the failed opening that is in progress.
//!
//! [`Preview`]: super::preview::Preview

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::{process, thread};
use redb::StorageBackend;

use super::backend::StoreFile;
use super::database::{
    OpenDatabase, PendingChanges, Snapshot, StoreHead, changes_of, damaged, fenced, visit_merged, write_checkpoint,
};
use super::files::{self, LogFile, PRIVATE, USUAL};
use super::log::{LogError, WriteAheadLog};
use super::{Durability, RangeVisitor, RecordChange, RecordVisitor, Revision, Store, StoreError};

/// The service to which a store's records belong, and their format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFormat {
    /// Name of the service.
    pub service: &'static str,
    /// Format in which the service writes records. A file with a later format is refused.
    pub format: u64,
}

/// A store in a file, with a write-ahead log beside it while the store is open.
///
/// The store appends each commit to the log, `names.db.wal` beside the file `names.db`, with one
/// sync of the disk. The log has 2 MiB, in two parts. A checkpoint moves the log's changes to the
/// file. This happens when one part is full, while commits continue in the other, and when the
/// store is opened or dropped. The drop also removes the log. After `kill -9` or a power failure
/// the next process that opens the store needs both files; without the log, [`open`](Self::open)
/// fails. [`backup`](Store::backup) writes one file with all records.
///
/// Readers wait neither for a commit nor for a checkpoint, unless the disk has failed.
///
/// A file to which a log belongs has a later format number, so that programs that do not know the
/// log refuse it.
pub struct FileStore {
    shared: Arc<SharedStore>,
}

struct SharedStore {
    view: Mutex<View>,
    writer: Mutex<Writer>,
    /// Notified when a checkpoint beside commits ends.
    checkpointed: Condvar,
    /// The path of the database; `None` for a store over backends.
    path: Option<PathBuf>,
    kind: RecordFormat,
    /// The file of the database. It is locked.
    file: Arc<StoreFile>,
}

/// The state that readers see.
struct View {
    /// The records as of a checkpoint; `None` after an error, until the database is opened again.
    snapshot: Option<Arc<Snapshot>>,
    /// The last change of each key in the part of the log that is full. A checkpoint writes these
    /// changes to the database; after an error, the next checkpoint does so. A value of `None` is a
    /// deletion.
    written: Arc<PendingChanges>,
    /// The last change of each key after the changes in `written`.
    pending: Arc<PendingChanges>,
    /// The revision of the last commit.
    revision: Revision,
}

struct Writer {
    /// The database that checkpoints write. `None` before the first checkpoint, and after an error.
    database: Option<Arc<OpenDatabase>>,
    /// Openings of the database for reading, which some readers may still use.
    previews: Vec<Weak<OpenDatabase>>,
    /// The log that takes commits; `None` before the first checkpoint, and after an error of the
    /// log; a new log then begins before the next commit.
    log: Option<WriteAheadLog>,
    log_file: Option<LogFile>,
    /// True if the database names a log, without which it cannot be opened.
    names_log: bool,
    /// The random number of the store, by which its logs name it.
    store_id: u64,
    generation: u64,
    revision: Revision,
    /// True while a thread makes a checkpoint. During this time no other checkpoint begins, and the
    /// database is not opened for writing.
    is_checkpointing: bool,
    /// True after a checkpoint beside commits has failed or could not begin. The database then
    /// needs both parts of the log.
    needs_both_parts: bool,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    fn has_room(&self, batch: &[RecordChange<'_>]) -> bool {
        self.log.as_ref().is_some_and(|log| log.has_room(batch))
    }

    /// Takes over the numbers of a database. The generation and the revision do not decrease.
    fn adopt(&mut self, head: &StoreHead) {
        self.generation = self.generation.max(head.generation);
        self.revision = self.revision.max(head.revision);
        self.names_log = head.log_id.is_some();
        self.store_id = head.store_id;
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

/// The changes of a [`View`] that a new snapshot of the database contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SnapshotChanges {
    /// It is unknown which of the changes the snapshot has.
    Unknown,
    Written,
    All,
}

/// The state that a reader sees, of one instant.
struct Shown {
    snapshot: Arc<Snapshot>,
    written: Arc<PendingChanges>,
    pending: Arc<PendingChanges>,
    revision: Revision,
}

impl FileStore {
    /// Opens a store file. A file that does not exist or is empty becomes a new store.
    ///
    /// # Errors
    /// The reason why the file cannot be used. A file that is not a store of this kind is left
    /// unchanged.
    pub fn open(path: impl Into<PathBuf>, kind: RecordFormat) -> Result<FileStore, StoreError> {
        Self::open_with(path.into(), kind, USUAL)
    }

    /// Opens a store file like [`open`](Self::open). Only the owner can read and write a file that
    /// this function creates.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn open_private(path: impl Into<PathBuf>, kind: RecordFormat) -> Result<FileStore, StoreError> {
        Self::open_with(path.into(), kind, PRIVATE)
    }

    fn open_with(path: PathBuf, kind: RecordFormat, mode: u32) -> Result<FileStore, StoreError> {
        if !files::is_database(&path)? {
            fenced(Some(&path), || files::create(&path, kind, mode))?;
        }
        // Another name of the file must lead to the same log.
        let path = std::fs::canonicalize(&path).map_err(|error| StoreError::of_io(&error, Some(path)))?;
        let file = files::open_locked(&path)?;
        SharedStore::open(Some(path), kind, file, None).map(|shared| FileStore { shared: Arc::new(shared) })
    }

    /// Opens a store over two backends of redb, for example ones that simulate failures: the
    /// database, and its log. The store locks each over its whole length, if the backend has locks,
    /// and closes it when the store is dropped.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if a backend is locked; the reason why the contents cannot be used.
    pub fn with_backends<B: StorageBackend>(
        (database, log): (B, B),
        kind: RecordFormat,
    ) -> Result<FileStore, StoreError> {
        let database = StoreFile::lock(Box::new(database), None)?;
        let log = LogFile::of_backend(StoreFile::lock(Box::new(log), None)?);
        SharedStore::open(None, kind, database, Some(log)).map(|shared| FileStore { shared: Arc::new(shared) })
    }
}

impl SharedStore {
    fn open(
        path: Option<PathBuf>,
        kind: RecordFormat,
        file: Arc<StoreFile>,
        log_file: Option<LogFile>,
    ) -> Result<Self, StoreError> {
        // redb would repair another program's database if the file were opened for writing. So the
        // file is opened for reading first.
        let (database, head) = OpenDatabase::open_unchanged(&file, kind, path.as_deref())?;
        let snapshot = Arc::new(database.snapshot(path.as_deref())?);
        let mut log_file = match (log_file, &path) {
            (None, Some(path)) if head.log_id.is_some() => LogFile::open(path)?,
            (log_file, _) => log_file,
        };
        let mut pending = PendingChanges::new();
        let mut revision = head.revision;
        if let Some(id) = head.log_id {
            let unusable = |error: LogError| log_is_unusable(path.as_deref(), error);
            let log_file = log_file.as_mut().ok_or_else(|| unusable(LogError::Missing))?;
            let failed = |error: &io::Error| StoreError::of_io(error, path.as_deref().map(files::log_path));
            let opened = WriteAheadLog::open(Arc::clone(&log_file.file), id).map_err(|error| failed(&error))?;
            let log = opened.map_err(unusable)?;
            // A killed process may have left writes in both files without a sync. Both are synced
            // now, because readers see these writes from here on, even if there is no room for a
            // checkpoint.
            file.sync().map_err(|error| StoreError::of_io(&error, path.clone()))?;
            log_file.file.sync().map_err(|error| failed(&error))?;
            let replayed = log.replay(head.generation, head.revision, |change| add_pending(&mut pending, change));
            revision = replayed.map_err(|error| failed(&error))?.map_err(unusable)?;
            log_file.is_own = true;
        }
        let view = View { snapshot: Some(snapshot), written: Arc::default(), pending: Arc::new(pending), revision };
        let writer = Writer {
            database: None,
            previews: vec![Arc::downgrade(&database)],
            log: None,
            log_file,
            names_log: head.log_id.is_some(),
            store_id: head.store_id,
            // The log may have entries of the generation after the database's, so that generation
            // is the present one.
            generation: head.generation.wrapping_add(u64::from(head.log_id.is_some())),
            revision,
            is_checkpointing: false,
            needs_both_parts: false,
            thread: None,
        };
        let shared = SharedStore {
            view: Mutex::new("store view", LockScope::Orb, view),
            writer: Mutex::new("store writer", LockScope::Orb, writer),
            checkpointed: Condvar::new(),
            path,
            kind,
            file,
        };
        let began = shared.begin_log(&mut shared.writer.lock());
        match began {
            // Without room on the disk, the store opens, because its records can be read.
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
        match &writer.database {
            Some(database) if !database.has_failed() => return Ok(Arc::clone(database)),
            _ => {}
        }
        if let Some(failed) = writer.database.take() {
            failed.revoke();
        }
        let (database, head) = OpenDatabase::open(&self.file, self.kind, self.path())?;
        // Snapshots of earlier openings must not be read any more, because the second checkpoint
        // from now on may write over their pages.
        writer.previews.drain(..).filter_map(|preview| preview.upgrade()).for_each(|preview| preview.revoke());
        let snapshot = database.snapshot(self.path())?;
        writer.adopt(&head);
        self.show(writer, snapshot, SnapshotChanges::Unknown);
        writer.database = Some(Arc::clone(&database));
        Ok(database)
    }

    /// Shows readers another snapshot. `has` says which changes of the view the snapshot contains.
    fn show(&self, writer: &Writer, snapshot: Snapshot, has: SnapshotChanges) {
        let mut view = self.view.lock();
        view.revision = writer.revision;
        let earlier = view.snapshot.replace(Arc::new(snapshot));
        let mut replaced = [Arc::default(), Arc::default()];
        if has != SnapshotChanges::Unknown {
            std::mem::swap(&mut view.written, &mut replaced[0]);
        }
        if has == SnapshotChanges::All {
            std::mem::swap(&mut view.pending, &mut replaced[1]);
        }
        // Destructors run outside the lock.
        drop(view);
        drop((earlier, replaced));
    }

    /// Begins an empty log if there is none. All changes are then in the database.
    fn begin_log(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if writer.log.is_some() {
            return Ok(());
        }
        self.database(writer)?;
        let is_without_id = writer.store_id == 0;
        if is_without_id {
            writer.store_id = process::random_number().map_err(|error| self.log_failed(&error))?;
        }
        if writer.names_log || is_without_id || self.has_changes() {
            // When the new log replaces an old one, the database must name no log, have all
            // changes, and have the id of the store.
            self.checkpoint(writer, None, None)?;
        }
        let (store, generation) = (writer.store_id, writer.generation);
        let log_file = match (&mut writer.log_file, self.path()) {
            (Some(log_file), path) => {
                if !log_file.is_own {
                    log_file.check_obsolete(path, store, generation)?;
                    log_file.is_own = true;
                }
                log_file
            }
            (log_file, Some(path)) => log_file.insert(LogFile::create(path, store, generation)?),
            (None, None) => return Err(log_is_unusable(None, LogError::Missing)),
        };
        let file = Arc::clone(&log_file.file);
        // The identity is a random number, so that no other log fits the database.
        let log = process::random_number().and_then(|id| WriteAheadLog::create(file, id, store));
        let mut log = log.map_err(|error| self.log_failed(&error))?;
        self.checkpoint(writer, None, Some(log.id()))?;
        log.restart(writer.generation);
        writer.log = Some(log);
        Ok(())
    }

    /// Returns true if the database lacks changes.
    fn has_changes(&self) -> bool {
        let view = self.view.lock();
        !view.written.is_empty() || !view.pending.is_empty()
    }

    /// Writes all changes and `batch`, if any, to the database, which then names the log `log_id`.
    /// Restarts the log. No thread may be making a checkpoint.
    ///
    /// With a batch there must be no other changes. Otherwise, if an error left open whether the
    /// database has the checkpoint, readers would see the other changes in place of the batch.
    fn checkpoint(
        &self,
        writer: &mut Writer,
        batch: Option<&[RecordChange<'_>]>,
        log_id: Option<u64>,
    ) -> Result<(), StoreError> {
        let database = self.database(writer)?;
        let (written, pending) = {
            let view = self.view.lock();
            (Arc::clone(&view.written), Arc::clone(&view.pending))
        };
        let revision = if batch.is_some() { next_revision(writer.revision) } else { writer.revision };
        let head =
            StoreHead { revision, generation: writer.generation.wrapping_add(1), store_id: writer.store_id, log_id };
        let batch = batch.unwrap_or_default().iter().copied();
        let changes = changes_of(&written).chain(changes_of(&pending)).chain(batch);
        match self.write(&database, changes, &head) {
            Ok(snapshot) => {
                writer.adopt(&head);
                writer.needs_both_parts = false;
                self.show(writer, snapshot, SnapshotChanges::All);
                if let Some(log) = &mut writer.log {
                    log.restart(head.generation);
                }
                Ok(())
            }
            Err(error) => {
                let latest = writer.generation;
                let oldest = latest.wrapping_sub(u64::from(writer.needs_both_parts));
                // If the opening fails, the next reader tries again.
                let found = self.read_again(writer);
                // The log stays in use if the database still names it and has a generation that the
                // log can follow. Otherwise a new log begins before the next commit.
                writer.log = writer.log.take().filter(|log| {
                    found.is_ok_and(|found| {
                        found.log_id == Some(log.id()) && (oldest..=latest).contains(&found.generation)
                    })
                });
                Err(error)
            }
        }
    }

    /// Makes a checkpoint of all changes. If an error ends the log, begins a new log, which writes
    /// the changes once more.
    fn checkpoint_or_begin(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let log_id = writer.log.as_ref().map(WriteAheadLog::id);
        match self.checkpoint(writer, None, log_id) {
            Err(_) if writer.log.is_none() => self.begin_log(writer),
            done => done,
        }
    }

    fn write<'c>(
        &self,
        database: &Arc<OpenDatabase>,
        changes: impl Iterator<Item = RecordChange<'c>>,
        head: &StoreHead,
    ) -> Result<Snapshot, StoreError> {
        fenced(self.path(), || write_checkpoint(database.get(self.path())?, changes, head, self.path()))?;
        database.snapshot(self.path())
    }

    /// Begins the next generation in the part of the log that is not full, and a thread that writes
    /// the changes of the full part to the database. The last checkpoint must have succeeded, so
    /// that the database does not need the part that is overwritten.
    fn start_checkpoint(self: &Arc<Self>, writer: &mut Writer) {
        let database = self.database(writer);
        let generation = writer.generation.wrapping_add(1);
        let Some(log) = &mut writer.log else { return };
        log.restart(generation);
        writer.generation = generation;
        let head =
            StoreHead { revision: writer.revision, generation, store_id: writer.store_id, log_id: Some(log.id()) };
        let written = {
            let mut view = self.view.lock();
            view.written = std::mem::take(&mut view.pending);
            Arc::clone(&view.written)
        };
        let Ok(database) = database else {
            // The database cannot be opened now. Commits continue in the part of the log that is
            // not full, and a later checkpoint opens the database.
            writer.needs_both_parts = true;
            return;
        };
        if let Some(ended) = writer.thread.take() {
            let _ = ended.join();
        }
        let shared = Arc::clone(self);
        let (to_write, its_head) = (Arc::clone(&written), head.clone());
        let its_database = Arc::clone(&database);
        let started =
            thread::ThreadBuilder::new().name("store/save").scheduling(thread::Scheduling::Other).spawn(move || {
                let snapshot = shared.write(&its_database, changes_of(&to_write), &its_head);
                let mut writer = shared.writer.lock();
                shared.end_checkpoint(&mut writer, &its_database, &its_head, snapshot);
                writer.is_checkpointing = false;
                drop(writer);
                shared.checkpointed.notify_all();
            });
        match started {
            Ok(thread) => {
                writer.is_checkpointing = true;
                writer.thread = Some(thread);
            }
            // The system refuses a thread, so this thread writes the checkpoint.
            Err(_) => {
                let snapshot = self.write(&database, changes_of(&written), &head);
                self.end_checkpoint(writer, &database, &head, snapshot);
            }
        }
    }

    /// Takes over the result of a checkpoint beside commits. After an error the changes remain in
    /// the log and in memory for the next checkpoint.
    fn end_checkpoint(
        &self,
        writer: &mut Writer,
        database: &Arc<OpenDatabase>,
        head: &StoreHead,
        snapshot: Result<Snapshot, StoreError>,
    ) {
        let is_current = writer.database.as_ref().is_some_and(|current| Arc::ptr_eq(current, database));
        match snapshot {
            Ok(snapshot) if is_current && !database.has_failed() => {
                writer.adopt(head);
                self.show(writer, snapshot, SnapshotChanges::Written);
            }
            _ => {
                writer.needs_both_parts = true;
                // If `database` is not current, a reader has opened the database again, and this
                // opening has no access any more.
                if is_current {
                    let _ = self.read_again(writer);
                }
            }
        }
    }

    /// Opens the database for reading, after an error. Returns its head.
    fn read_again(&self, writer: &mut Writer) -> Result<StoreHead, StoreError> {
        if let Some(failed) = writer.database.take() {
            failed.revoke();
        }
        let earlier = self.view.lock().snapshot.take();
        drop(earlier);
        let (database, head) = OpenDatabase::open_unchanged(&self.file, self.kind, self.path())?;
        writer.previews.retain(|preview| preview.strong_count() > 0);
        writer.previews.push(Arc::downgrade(&database));
        let snapshot = database.snapshot(self.path())?;
        writer.adopt(&head);
        self.show(writer, snapshot, SnapshotChanges::Unknown);
        Ok(head)
    }

    /// Marks the database of a snapshot that a reader could not read, and removes its snapshot from
    /// the view. After an error redb refuses every further use of a database.
    fn reading_failed(&self, failed: &Snapshot) {
        failed.database().set_failed();
        let is_failed = |current: &mut Arc<Snapshot>| std::ptr::eq(current.database(), failed.database());
        let removed = self.view.lock().snapshot.take_if(is_failed);
        drop(removed);
    }

    fn shown(&self) -> Result<Shown, StoreError> {
        let shown = || {
            let view = self.view.lock();
            Some(Shown {
                snapshot: view.snapshot.clone()?,
                written: Arc::clone(&view.written),
                pending: Arc::clone(&view.pending),
                revision: view.revision,
            })
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
    /// Writes the last checkpoint and removes the log. If the disk refuses the checkpoint, both
    /// files remain for the next process.
    fn drop(&mut self) {
        let shared = &self.shared;
        let thread = shared.writer.lock().thread.take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        let mut writer = shared.writer.lock();
        // After an error the second attempt opens the database again.
        let closed = shared.checkpoint(&mut writer, None, None).or_else(|_| shared.checkpoint(&mut writer, None, None));
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
        let mut is_retry = false;
        loop {
            let shown = self.shared.shown()?;
            let (mut is_visited, mut is_ended, mut panicked) = (false, false, None);
            let mut visit = |key: &[u8], value: &[u8]| {
                is_visited = true;
                // A panic of the visitor is not an error of the database.
                let visited = catch_unwind(AssertUnwindSafe(|| visit(key, value))).unwrap_or_else(|panic| {
                    panicked = Some(panic);
                    Err(damaged(path, String::new()))
                });
                is_ended = visited.is_err();
                visited
            };
            let changes = [&*shown.written, &*shown.pending];
            let visited = fenced(path, || visit_merged(&shown.snapshot, changes, from, &mut visit, path));
            if let Some(panic) = panicked {
                resume_unwind(panic);
            }
            if visited.is_err() && !is_ended {
                self.shared.reading_failed(&shown.snapshot);
                if !is_visited && !is_retry {
                    is_retry = true;
                    continue;
                }
            }
            return visited.map(|()| shown.revision);
        }
    }

    fn commit(
        &self,
        after: Revision,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        let shared = &self.shared;
        let mut writer = shared.writer.lock();
        loop {
            if writer.revision != after {
                return Err(StoreError::Conflict);
            }
            if writer.has_room(batch) {
                return shared.append(&mut writer, batch, durability);
            }
            if writer.is_checkpointing {
                writer = shared.checkpointed.wait(writer);
                continue;
            }
            // The checkpoints that may come first do not contain the batch, so the batch has not
            // been applied if one of them fails.
            if writer.log.is_none() {
                shared.begin_log(&mut writer)?;
            } else if !writer.needs_both_parts && WriteAheadLog::can_take(batch) {
                shared.start_checkpoint(&mut writer);
            } else if writer.needs_both_parts || shared.has_changes() {
                shared.checkpoint_or_begin(&mut writer)?;
            } else {
                let log_id = writer.log.as_ref().map(WriteAheadLog::id);
                return shared.checkpoint(&mut writer, Some(batch), log_id).map(|()| writer.revision);
            }
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        let shared = &self.shared;
        let mut writer = shared.writer.lock();
        while writer.log.is_none() {
            if writer.is_checkpointing {
                writer = shared.checkpointed.wait(writer);
            } else {
                shared.begin_log(&mut writer)?;
            }
        }
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
