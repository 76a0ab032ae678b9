//! The interface through which a connection calls its lane. It hides the type of the lane, which
//! depends on the dispatch architecture.

use std::any::Any;
use std::os::fd::BorrowedFd;

/// The operations of a lane that its connections call. None of them is on the fast path of a
/// request.
pub(crate) trait ConnectionLane: Any + Send + Sync {
    /// Puts the connection with the slot and generation `handle` on the lane's ready list, so that
    /// a thread reads input that epoll does not report again.
    fn list_for_reading(&self, handle: (u32, u32));

    /// Makes a thread of the lane close the connections that hold the most memory.
    fn list_shedding(&self);

    /// Makes epoll report room to write on `readiness`, the descriptor of the connection `handle`,
    /// if `congested` is true, else stop reporting it. Epoll also reports again the events that are
    /// true at this time.
    fn watch_writability(&self, readiness: BorrowedFd<'_>, handle: (u32, u32), congested: bool);

    /// Counts a connection that begins or ends to wait for room to write.
    fn count_begun(&self, begins: bool);
}
