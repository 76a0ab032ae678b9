//! The interface through which a connection asks its lane for a thread. It hides the lane's type,
//! which depends on the dispatch architecture.

use std::any::Any;
use std::os::fd::BorrowedFd;

/// The operations of a lane that its connections call. Connections call them only on slow paths.
pub(crate) trait ConnectionLane: Any + Send + Sync {
    /// Makes a thread of the lane read the connection at `handle`, if input is there that epoll
    /// does not report.
    fn list_for_reading(&self, handle: (u32, u32));

    /// Makes a thread of the lane close connections that hold too much memory.
    fn list_shedding(&self);

    /// Starts or stops watching for room to write on `readiness`, the descriptor of the connection
    /// at `handle`. Epoll reports events again that are already true at this time.
    fn watch_writability(&self, readiness: BorrowedFd<'_>, handle: (u32, u32), congested: bool);
}
