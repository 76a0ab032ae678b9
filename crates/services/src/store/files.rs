//! The files of a store: their names, their creation, and copies.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::Database;
use redb::backends::FileBackend;

use super::backend::StoreFile;
use super::database::{
    RECORDS, builder, fenced, lock, of_commit, of_database, of_storage, of_table, of_transaction, prepare,
};
use super::file::RecordFormat;
use super::log::{UnnamedLog, WriteAheadLog};
use super::{RecordVisitor, Revision, StoreError};

const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
/// Number of temporary names of this process. It only makes the names unique, so its ordering is
/// `Relaxed`.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// Permissions of a new file that other users may read, before the process's mask.
pub(super) const USUAL: u32 = 0o666;
/// Permissions of a new file that only its owner may read, before the process's mask.
pub(super) const PRIVATE: u32 = 0o600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// The file of a log.
pub(super) struct LogFile {
    pub(super) file: Arc<StoreFile>,
    /// True if the store may write over the contents.
    pub(super) is_own: bool,
    /// The identity of the file; `None` if the log is not a file.
    id: Option<FileId>,
}

impl LogFile {
    pub(super) fn of_backend(file: Arc<StoreFile>) -> Self {
        LogFile { file, is_own: false, id: None }
    }

    /// Opens the log of a database. `Ok(None)` if there is none.
    pub(super) fn open(database: &Path) -> Result<Option<Self>, StoreError> {
        let path = log_path(database);
        let failed = |error: &io::Error| StoreError::of_io(error, Some(path.clone()));
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => return Err(StoreError::NotAStore { path }),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| failed(&error))?;
        Self::of_file(file, &path).map(Some)
    }

    /// Creates the file for the log of a database that names no log. An earlier log is removed if
    /// the database has all its changes, and otherwise left.
    pub(super) fn create(database: &Path, store: u64, generation: u64) -> Result<Self, StoreError> {
        let path = log_path(database);
        let failed = |error: &io::Error| StoreError::of_io(error, Some(path.clone()));
        if let Some(earlier) = Self::open(database)? {
            earlier.check_obsolete(Some(database), store, generation)?;
            fs::remove_file(&path).map_err(|error| failed(&error))?;
        }
        // The log has the records of the store, so it has the store's permissions.
        let mode = fs::metadata(database).map_err(|error| failed(&error))?.mode();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(mode & 0o666).open(&path);
        let mut created = Self::of_file(file.map_err(|error| failed(&error))?, &path)?;
        created.is_own = true;
        sync_folder(database).map_err(|error| failed(&error))?;
        Ok(created)
    }

    /// Checks that a new log can replace this log beside a database that names no log.
    pub(super) fn check_obsolete(
        &self,
        database: Option<&Path>,
        store: u64,
        generation: u64,
    ) -> Result<(), StoreError> {
        let path = database.map(log_path);
        let found = WriteAheadLog::examine(&self.file, store, generation);
        let shown = || path.clone().unwrap_or_else(|| PathBuf::from("the log"));
        match found.map_err(|error| StoreError::of_io(&error, path.clone()))? {
            UnnamedLog::Obsolete => Ok(()),
            UnnamedLog::NoLog => Err(StoreError::NotAStore { path: shown() }),
            UnnamedLog::Other => {
                let store = database.map_or_else(|| PathBuf::from("the store"), Path::to_owned);
                Err(StoreError::OtherLog { path: shown(), store })
            }
        }
    }

    fn of_file(file: File, path: &Path) -> Result<Self, StoreError> {
        let id = file.metadata().map(|found| file_id(&found));
        let id = id.map_err(|error| StoreError::of_io(&error, Some(path.to_owned())))?;
        // Locked, because another store may use the log's name after a rename of the database.
        Ok(LogFile { file: locked(file, path)?, is_own: false, id: Some(id) })
    }

    /// Removes the file, unless its name is that of another file now.
    pub(super) fn remove(&self, database: &Path) {
        let path = log_path(database);
        if fs::symlink_metadata(&path).is_ok_and(|found| self.id == Some(file_id(&found))) {
            let _ = fs::remove_file(path);
        }
    }
}

fn file_id(found: &fs::Metadata) -> FileId {
    FileId { device: found.dev(), inode: found.ino() }
}

pub(super) fn log_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".wal");
    PathBuf::from(name)
}

/// Opens the file of a database, and locks it.
pub(super) fn open_locked(path: &Path) -> Result<Arc<StoreFile>, StoreError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    locked(file.map_err(|error| StoreError::of_io(&error, Some(path.to_owned())))?, path)
}

fn locked(file: File, path: &Path) -> Result<Arc<StoreFile>, StoreError> {
    // This lock shows the process's id to other processes.
    lock(&file, path)?;
    let duplicate = file.try_clone().map_err(|error| StoreError::of_io(&error, Some(path.to_owned())))?;
    match FileBackend::new(file) {
        Ok(backend) => StoreFile::lock_range(Box::new(backend), Some(path), Some(duplicate)),
        Err(error) => Err(of_database(error, Some(path))),
    }
}

pub(super) fn write_copy(
    path: &Path,
    kind: RecordFormat,
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

pub(super) fn create(path: &Path, kind: RecordFormat, mode: u32) -> Result<(), StoreError> {
    create_with(path, kind, mode, |_| Ok(())).map(drop)
}

/// Creates a store file under a temporary name and then gives it its final name, so that no process
/// sees it half written. Returns false if a file that is not empty has the final name. An empty
/// file is replaced.
fn create_with(
    path: &Path,
    kind: RecordFormat,
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
pub(super) fn is_database(path: &Path) -> Result<bool, StoreError> {
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

#[cfg(test)]
mod tests {
    use super::super::{FileStore, Store};
    use super::*;

    const KIND: RecordFormat = RecordFormat { service: "test", format: 1 };

    /// The outer copy begins first and ends last. It must fail, and must leave the inner copy
    /// unchanged.
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

    /// A process that another thread starts has a duplicate of the descriptor until it runs its
    /// program. Closing the descriptor does not release the locks in this time.
    #[test]
    fn drop_unlocks_the_file_although_a_duplicate_of_its_descriptor_is_open() {
        let path = std::env::temp_dir().join(format!("corelane-duplicate-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let _duplicate = file.try_clone().unwrap();
        let store = locked(file, &path).unwrap();
        assert!(matches!(open_locked(&path), Err(StoreError::Locked { .. })));
        drop(store);
        open_locked(&path).unwrap();
        fs::remove_file(&path).unwrap();
    }
}
