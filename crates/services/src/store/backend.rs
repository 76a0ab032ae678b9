//! The files of a store, which are locked while the store is open.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corelane_sys::lock::{LockScope, RwLock};
use redb::{BackendError, StorageBackend};

use super::StoreError;
use super::database::lock_holder;

/// A file that the store has locked, if its backend has locks. The drop releases the locks.
#[derive(Debug)]
pub(super) struct StoreFile {
    backend: Box<dyn StorageBackend>,
    /// A duplicate of the backend's file, if the file is locked as a whole too.
    locked: Option<File>,
}

impl StoreFile {
    /// Locks the whole backend. A backend without locks is accepted, too.
    pub(super) fn lock(backend: Box<dyn StorageBackend>, path: Option<&Path>) -> Result<Arc<Self>, StoreError> {
        Self::lock_range(backend, path, None)
    }

    /// Locks the whole backend like [`lock`](Self::lock). `locked` is a duplicate of the backend's
    /// file, which the caller has locked as a whole.
    pub(super) fn lock_range(
        backend: Box<dyn StorageBackend>,
        path: Option<&Path>,
        locked: Option<File>,
    ) -> Result<Arc<Self>, StoreError> {
        match backend.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
            Ok(true) | Err(BackendError::Unsupported) => Ok(Arc::new(StoreFile { backend, locked })),
            Ok(false) => {
                let process = path.and_then(lock_holder);
                Err(StoreError::Locked {
                    path: path.map_or_else(|| PathBuf::from("the store"), Path::to_owned),
                    process,
                })
            }
            Err(BackendError::Io(error)) => Err(StoreError::of_io(&error, path.map(Path::to_owned))),
            Err(error) => Err(StoreError::Unusable { path: path.map(Path::to_owned), reason: error.to_string() }),
        }
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    pub(super) fn set_len(&self, length: u64) -> io::Result<()> {
        self.backend.set_len(length)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }
}

impl Drop for StoreFile {
    /// Unlocks the file explicitly. While another thread starts a process, the new process has
    /// duplicates of all descriptors, so to close them here does not yet release the locks.
    fn drop(&mut self) {
        let _ = self.backend.unlock_range(Bound::Unbounded, Bound::Unbounded);
        let _ = self.backend.close();
        if let Some(file) = &self.locked {
            let _ = file.unlock();
        }
    }
}

/// The access of one opening of the database to the file. After [`revoke`](Self::revoke) all
/// operations fail, so that the file can be opened again while readers still have the earlier
/// opening.
#[derive(Clone, Debug)]
pub(super) struct FileAccess {
    file: Arc<StoreFile>,
    is_permitted: Arc<RwLock<bool>>,
}

impl FileAccess {
    pub(super) fn new(file: &Arc<StoreFile>) -> Self {
        let is_permitted = Arc::new(RwLock::new("store file", LockScope::Orb, true));
        FileAccess { file: Arc::clone(file), is_permitted }
    }

    /// Ends the access. Operations in progress end first.
    pub(super) fn revoke(&self) {
        *self.is_permitted.write() = false;
    }

    fn with<R>(&self, operation: impl FnOnce(&StoreFile) -> io::Result<R>) -> io::Result<R> {
        let is_permitted = self.is_permitted.read();
        if *is_permitted {
            operation(&self.file)
        } else {
            Err(io::Error::other("the store was opened again after an error of its disk"))
        }
    }
}

/// Grants the database each lock, because the store has locked the file.
impl StorageBackend for FileAccess {
    fn len(&self) -> io::Result<u64> {
        self.with(StoreFile::len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|file| file.read(offset, out))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.with(|file| file.set_len(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(StoreFile::sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|file| file.write(offset, data))
    }

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn query_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(false)
    }
}
