//! The part of a lane that its connections use. Through it they ask for a thread, without knowing
//! the lane's type.

use std::any::Any;
use std::os::fd::BorrowedFd;

/// The lane of a connection, from the connection's view. Called only on slow paths.
pub(crate) trait ReadyQueue: Any + Send + Sync {
    /// Lets a thread of the lane read the connection at `handle`, which no edge reports.
    fn list_for_reading(&self, handle: (u32, u32));

    /// Lets a thread of the lane close connections that hold too much memory.
    fn list_shedding(&self);

    /// Starts or stops watching `readiness`, the descriptor of the connection at `handle`, for room
    /// to write. Events that are already true are reported again.
    fn watch_writability(&self, readiness: BorrowedFd<'_>, handle: (u32, u32), congested: bool);
}
