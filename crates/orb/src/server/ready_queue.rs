//! The part of a lane that its connections use: they ask for a thread, and know no lane.

use std::any::Any;
use std::os::fd::BorrowedFd;

/// The lane of a connection, as the connection sees it. Called on slow paths only.
pub(crate) trait ReadyQueue: Any + Send + Sync {
    /// Has a thread of the lane read the connection at `handle`, which no edge reports.
    fn list_for_reading(&self, handle: (u32, u32));

    /// Has a thread of the lane close connections that hold too much memory.
    fn list_shedding(&self);

    /// Starts or stops watching `readiness`, the descriptor of the connection at `handle`, for room
    /// to write. Events that hold already are reported anew.
    fn watch_writability(&self, readiness: BorrowedFd<'_>, handle: (u32, u32), congested: bool);
}
