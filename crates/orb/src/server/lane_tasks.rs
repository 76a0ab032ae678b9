//! A lane's list of tasks: putting tasks on it, taking them, and waking threads for them.

use corelane_sys::counters;

use super::architecture::Architecture;
use super::connection::{Connection, ReadCause};
use super::lane::Lane;
use super::ready_list::LaneTask;

impl<S: Architecture<S>> Lane<S> {
    /// Returns the next listed task, if there is one.
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

    /// Lists a connection because its buffer may hold further messages. If no other thread can be
    /// idle, does not wake one.
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

    /// Lists a connection for reading, unless it is already listed, and wakes an idle thread.
    #[cold]
    pub(super) fn list_connection(&self, connection: &Connection, cause: ReadCause) {
        if connection.begin_listing(cause) {
            self.push(LaneTask::Read(connection.handle));
        }
    }

    /// Lists the connection at `handle` for reading, unless it is already listed, and wakes an idle
    /// thread. A retired connection is always listed, so that its drain continues.
    #[cold]
    pub(super) fn list_handle(&self, handle: (u32, u32), cause: ReadCause) {
        match self.connections.get(handle.0, handle.1) {
            Some(connection) => self.list_connection(&connection, cause),
            None => self.push(LaneTask::Read(handle)),
        }
    }

    /// Lists a task and wakes an idle thread.
    #[cold]
    pub(crate) fn push(&self, work: LaneTask) {
        self.ready.push(work);
        self.wake_idle_thread();
    }

    /// Lists a request that arrived at another lane. Returns false if too many requests wait here,
    /// or if the lane stops.
    #[cold]
    pub(crate) fn hand_over(&self, work: LaneTask) -> bool {
        let listed = self.ready.hand_over(work, self.config.connection_limits.max_queued_bytes);
        if listed {
            self.wake_idle_thread();
        }
        listed
    }

    /// Wakes an idle thread for the ready list, unless a woken thread has not yet checked the list.
    pub(super) fn wake_idle_thread(&self) {
        if self.wake_pending.raise() {
            counters::count_handoff();
            self.wake.notify();
        }
    }
}
