//! Stores, which keep the records of a service.
//!
//! A [`Store`] is a map from keys to values, whose batches of changes are applied completely or not at all. Services
//! read a store at their start, and later commit changes.
//!
//! Several servers can share a store that allows it. A commit fails with [`StoreError::Conflict`] if another server has
//! committed since the server's [`Revision`].

mod error;
mod file;
mod log;
mod memory;
mod preview;

use std::path::Path;

pub use error::StoreError;
pub use file::{FileStore, RecordKind};
pub use memory::MemoryStore;

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordChange<'b> {
    /// Sets the value of the key.
    Put(&'b [u8], &'b [u8]),
    /// Deletes the key; no effect if it has no value.
    Delete(&'b [u8]),
}

/// The number of the last commit to a store, which every commit increases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The moment at which a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the disk has the commit, which then survives the end of the process and a power
    /// failure.
    #[default]
    Synced,
    /// At once, before the disk has the commit. The next [`Store::sync`] or synced commit writes it
    /// to the disk. If the process ends before that, the commit is lost.
    Relaxed,
}

/// A function that receives the key and the value of each record of a store. An error ends the visit.
pub type RecordVisitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<(), StoreError> + 'v;

/// A persistent map. Every method can be called from any thread.
pub trait Store: Send + Sync + 'static {
    /// Calls `visit` for all records as of one instant, in the order of their keys. Returns the
    /// revision of that instant.
    ///
    /// # Errors
    /// Errors of reading, and errors that `visit` returns.
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError>;

    /// Applies all changes of a batch, in order, or none. Returns the new revision.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the store's revision is not `after`. After any other error the
    /// batch may have been applied; [`for_each`](Self::for_each) shows whether it was.
    fn commit(
        &self,
        after: Revision,
        batch: &[RecordChange<'_>],
        durability: Durability,
    ) -> Result<Revision, StoreError>;

    /// Syncs all relaxed commits to the disk.
    ///
    /// # Errors
    /// The reason why syncing failed. The commits are not lost: a later call tries again.
    fn sync(&self) -> Result<(), StoreError>;

    /// Writes all records as of one instant to a new file, for [`FileStore::open`]. Other threads
    /// can commit meanwhile.
    ///
    /// # Errors
    /// [`StoreError::FileExists`] if the file exists; errors of reading and writing.
    fn backup(&self, path: &Path) -> Result<(), StoreError>;
}
