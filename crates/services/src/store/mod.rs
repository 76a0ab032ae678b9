//! Maps from keys to values: the records of a service. Each batch of changes is applied completely
//! or not at all.
//!
//! Several servers can share a store that permits it: a commit fails with [`StoreError::Conflict`]
//! if another server has committed since the revision that the server knows.

mod backend;
mod database;
mod error;
mod file;
mod files;
mod log;
mod memory;
mod preview;

use std::ops::ControlFlow;
use std::path::Path;

pub use error::StoreError;
pub use file::{FileStore, RecordFormat};
pub use memory::MemoryStore;

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordChange<'b> {
    /// Sets the value of the key.
    Put(&'b [u8], &'b [u8]),
    /// Deletes the key; no effect if it has no value.
    Delete(&'b [u8]),
}

/// A number that each commit to a store increases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The choice whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The commit waits for the disk, so that it survives the end of the process and a power
    /// failure.
    #[default]
    Synced,
    /// The commit may return before the disk has it. The next [`Store::sync`] or synced commit
    /// writes it to the disk. A power failure or a crash of the kernel before that may lose the
    /// commit. A [`FileStore`] does not lose it if only the process ends.
    Relaxed,
}

/// A function that receives the key and the value of each record of a store. An error ends the
/// visit.
pub type RecordVisitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<(), StoreError> + 'v;

/// A function that receives the key and the value of each record of a range. It ends the visit with
/// an error, or with [`ControlFlow::Break`].
pub type RangeVisitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'v;

/// The records of a service, as a map from keys to values.
pub trait Store: Send + Sync + 'static {
    /// Calls `visit` for all records as of one instant, in the order of their keys. Returns the
    /// revision of that instant.
    ///
    /// # Errors
    /// Errors of reading, and errors that `visit` returns.
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError>;

    /// Calls `visit` for the records whose keys are `from` or greater, in the order of their keys,
    /// until it ends the visit. Returns the revision of the visited records.
    ///
    /// A store whose disk refuses writes should still show its records, if it can read them.
    ///
    /// The default implementation reads all records.
    ///
    /// # Errors
    /// Errors of reading, and errors that `visit` returns.
    fn visit_from(&self, from: &[u8], visit: &mut RangeVisitor<'_>) -> Result<Revision, StoreError> {
        let mut flow = ControlFlow::Continue(());
        self.for_each(&mut |key, value| {
            if flow.is_continue() && key >= from {
                flow = visit(key, value)?;
            }
            Ok(())
        })
    }

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
    /// The reason why syncing failed. A later call tries again.
    fn sync(&self) -> Result<(), StoreError>;

    /// Writes all records as of one instant to a new file, for [`FileStore::open`].
    ///
    /// # Errors
    /// [`StoreError::FileExists`] if the file exists; errors of reading and writing.
    fn backup(&self, path: &Path) -> Result<(), StoreError>;
}
