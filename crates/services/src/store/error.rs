//! Errors of stores.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why a store cannot be opened, read, changed or copied. Its text advises what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The file is already open, in this or another process.
    Locked {
        /// Path of the file.
        path: PathBuf,
        /// Id of the process that has opened the file, if it is known.
        process: Option<u32>,
    },
    /// The file is not a store of Corelane.
    NotAStore {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is the store of another service.
    OtherService {
        /// Path of the file.
        path: PathBuf,
        /// Service whose store the file is.
        found: String,
        /// Service for which the file was opened.
        wanted: &'static str,
    },
    /// The file has a later format than this program reads.
    LaterFormat {
        /// Path of the file.
        path: PathBuf,
        /// The format of the file.
        found: u64,
        /// The latest format that this program reads.
        known: u64,
    },
    /// The contents are inconsistent.
    Damaged {
        /// Path of the file, if it is known.
        path: Option<PathBuf>,
        /// The inconsistency that was found.
        reason: String,
    },
    /// Beside the file is a log that does not belong to it: of another store, or of a later state
    /// of this one, for example after a backup has replaced a store. Neither file is changed.
    OtherLog {
        /// Path of the log.
        path: PathBuf,
        /// Path of the store's file.
        store: PathBuf,
    },
    /// The file exists already.
    FileExists {
        /// Path of the file.
        path: PathBuf,
    },
    /// The disk is full, or the store has reached a quota or the maximum size of a file.
    Full {
        /// The system's message.
        reason: String,
    },
    /// The store cannot be opened, read or written, for a reason that no other variant describes.
    Unusable {
        /// Path of the file, if it is known.
        path: Option<PathBuf>,
        /// The message of the error.
        reason: String,
    },
    /// The store's revision differs from the revision that the caller passed.
    Conflict,
}

impl StoreError {
    pub(super) fn of_io(error: &io::Error, path: Option<PathBuf>) -> Self {
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let reason = error.to_string();
        if is_full { StoreError::Full { reason } } else { StoreError::Unusable { path, reason } }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |path: &Option<PathBuf>| path.as_ref().map_or("the store".to_owned(), |path| format!("{}", path.display()));
        match self {
            StoreError::Locked { path, process } => {
                write!(f, "{} is in use by ", path.display())?;
                match process {
                    Some(process) => write!(f, "process {process}")?,
                    None => f.write_str("another process")?,
                }
                f.write_str(": stop that process, or choose another file")
            }
            StoreError::NotAStore { path } => {
                write!(f, "{} is not a store of Corelane; it was left as it is: choose another file", path.display())
            }
            StoreError::OtherService { path, found, wanted } => {
                let path = path.display();
                write!(f, "{path} is a store of the service \"{found}\", not \"{wanted}\": choose another file")
            }
            StoreError::LaterFormat { path, found, known } => write!(
                f,
                "{} has format {found}, and this program knows formats up to {known}: use a later version of Corelane",
                path.display()
            ),
            StoreError::Damaged { path, reason } => {
                write!(f, "{} is damaged ({reason}): put a backup in its place", shown(path))
            }
            StoreError::OtherLog { path, store } => {
                let (path, store) = (path.display(), store.display());
                write!(
                    f,
                    "{path} is the log of another store or of a later state of {store}, and was left as it is: put back \
                     the store that it belongs to, or move the log away to go on without its changes"
                )
            }
            StoreError::FileExists { path } => {
                write!(f, "{} exists already: choose another name, or remove it", path.display())
            }
            StoreError::Full { reason } => write!(f, "the store has no room ({reason}): free some space on its disk"),
            StoreError::Unusable { path, reason } => {
                write!(
                    f,
                    "{} cannot be used ({reason}): check the file, its folder, their permissions and the disk",
                    shown(path)
                )
            }
            StoreError::Conflict => f.write_str("another server has changed the store: read it again"),
        }
    }
}

impl std::error::Error for StoreError {}
