//! The interface of a lane for its connections, without the type of the dispatch architecture.

use std::any::Any;
use std::os::fd::BorrowedFd;

use super::connection::ConnectionGroup;

pub(crate) trait ConnectionLane: Any + Send + Sync {
    /// Makes a thread read input that epoll does not report again.
    fn list_for_reading(&self, handle: (u32, u32));

    fn list_shedding(&self);

    /// Makes epoll report room to write while `congested` is true, and report again all events that
    /// hold now.
    fn watch_writability(
        &self,
        readiness: BorrowedFd<'_>,
        handle: (u32, u32),
        group: &ConnectionGroup,
        congested: bool,
    );

    fn count_begun(&self, begins: bool);
}
