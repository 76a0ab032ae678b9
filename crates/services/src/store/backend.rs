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

const PAGE: usize = 4096;

/// A file that the store has locked, if its backend has locks. The drop releases the locks.
#[derive(Debug)]
pub(super) struct StoreFile {
    backend: Box<dyn StorageBackend>,
    /// A duplicate of the backend's file, if the whole file is locked too. The drop unlocks the
    /// file through it.
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

    /// Replaces the content, and allocates its blocks.
    ///
    /// A file of the file system is written page by page. One large write would make the kernel
    /// keep the pages together, and examine all of them at each later write and sync of one (large
    /// folios of ext4). The kernel may keep the earlier content together in this way, so the
    /// earlier content is removed first.
    pub(super) fn replace(&self, content: &[u8]) -> io::Result<()> {
        let is_of_file_system = self.locked.is_some();
        if is_of_file_system {
            self.set_len(0)?;
        }
        self.set_len(content.len() as u64)?;
        let piece = if is_of_file_system { PAGE } else { content.len().max(1) };
        for (number, octets) in content.chunks(piece).enumerate() {
            self.write((number * piece) as u64, octets)?;
        }
        Ok(())
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
    /// duplicates of all descriptors, so closing the descriptors here does not yet release the
    /// locks.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use redb::backends::InMemoryBackend;

    use super::*;

    #[derive(Debug, Default)]
    struct Measured {
        memory: InMemoryBackend,
        writes: Arc<AtomicUsize>,
    }

    impl StorageBackend for Measured {
        fn len(&self) -> io::Result<u64> {
            self.memory.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.memory.read(offset, out)
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.memory.set_len(length)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.memory.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            self.memory.write(offset, data)
        }
    }

    #[test]
    fn content_of_a_file_is_replaced_page_by_page() {
        let content: Vec<u8> = (0..3 * PAGE + 5).map(|index| (index / 7) as u8).collect();
        let duplicate = || File::open("/dev/null").ok();
        for (locked, expected) in [(duplicate(), 4), (None, 1)] {
            let backend = Measured::default();
            backend.set_len(9 * PAGE as u64).unwrap();
            let writes = Arc::clone(&backend.writes);
            let file = StoreFile::lock_range(Box::new(backend), None, locked).unwrap();
            file.replace(&content).unwrap();
            let mut found = vec![0; content.len()];
            file.read(0, &mut found).unwrap();
            assert_eq!((writes.load(Ordering::Relaxed), file.len().unwrap()), (expected, content.len() as u64));
            assert!(found == content);
        }
    }
}
