//! The methods of a lane that put tasks on its ready list, take tasks from the list, and wake
//! threads for them.

use corelane_sys::counters;

use super::architecture::Architecture;
use super::connection::{Connection, ReadCause};
use super::lane::Lane;
use super::ready_list::LaneTask;

impl<S: Architecture<S>> Lane<S> {
    #[inline]
    pub(super) fn next_task(&self) -> Option<LaneTask> {
        if self.has_ready() { self.next_ready() } else { None }
    }

    #[cold]
    pub(super) fn next_ready(&self) -> Option<LaneTask> {
        let (work, more) = self.ready.next();
        if more && !self.strategy.has_one_thread() {
            self.wake_idle_thread();
        }
        work
    }

    /// Puts the connection on the ready list for the input that remains, unless it is there
    /// already. Then wakes an idle thread if the lane has several threads.
    #[cold]
    pub(super) fn list_rest(&self, connection: &Connection) {
        if !connection.begin_listing(ReadCause::Buffered) {
            return;
        }
        if self.strategy.has_one_thread() {
            self.ready.push(LaneTask::Read(connection.handle));
        } else {
            self.push(LaneTask::Read(connection.handle));
        }
    }

    /// Puts the connection on the ready list. If it is there already, only adds `cause` to its
    /// listing.
    #[cold]
    pub(super) fn list_connection(&self, connection: &Connection, cause: ReadCause) {
        if connection.begin_listing(cause) {
            self.push(LaneTask::Read(connection.handle));
        }
    }

    /// Puts the connection on the ready list. A retired connection is added even if it is on the
    /// list, because a thread must continue its drain.
    #[cold]
    pub(super) fn list_handle(&self, handle: (u32, u32), cause: ReadCause) {
        match self.connections.get(handle.0, handle.1) {
            Some(connection) => self.list_connection(&connection, cause),
            None => self.push(LaneTask::Read(handle)),
        }
    }

    #[cold]
    pub(crate) fn push(&self, work: LaneTask) {
        self.ready.push(work);
        self.wake_idle_thread();
    }

    #[cold]
    pub(crate) fn hand_over(&self, work: LaneTask) -> bool {
        let listed = self.ready.hand_over(work, self.config.connection_limits.max_queued_bytes);
        if listed {
            self.wake_idle_thread();
        }
        listed
    }

    pub(super) fn wake_idle_thread(&self) {
        if self.wake_pending.try_raise() {
            counters::count_handoff();
            self.wake.notify();
        }
    }
}
