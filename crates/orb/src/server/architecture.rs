//! The interface between a lane and its dispatch architecture, which decides which threads read,
//! run and answer requests.

use std::fmt;
use std::io;
use std::sync::Arc;

use corelane_sys::thread::JoinHandle;

use super::config::NestedWait;
use super::connection::{Connection, WaitingRequest};
use super::handler::RequestHandler;
use super::lane::{Lane, LaneTask};
use super::message::Message;
use super::threads::ThreadStarter;
use super::worker::Worker;
use crate::nested_wait::AwaitedReply;
#[cfg(feature = "core-pool")]
use crate::orb_context::OrbContext;

/// Default of [`Architecture::max_reads`].
const MAX_READS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePlacement {
    /// The calling thread runs the message, and reads the next message of the connection if
    /// `reads_on` is true.
    Here { reads_on: bool },
    /// The calling thread does not run the message, and reads the next message of the connection if
    /// `reads_on` is true.
    Elsewhere { reads_on: bool },
}

pub(crate) trait Architecture<S: Architecture<S>>: fmt::Debug + Send + Sync + Sized + 'static {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()>;

    fn serve_connection<H: RequestHandler>(&self, lane: &Lane<S>, handler: &Arc<H>, connection: &Arc<Connection>) {
        lane.watch_connection(handler.context(), connection);
    }

    fn max_queued_of_connection(&self) -> usize {
        usize::MAX
    }

    /// Returns true if the calling thread must not release the connection's read lock after it has
    /// read a message. The message is in `_detached` or, if this is `None`, in the buffer of
    /// `_worker`.
    #[cfg(feature = "core-pool")]
    #[inline]
    fn keeps_read_lock(&self, _context: &OrbContext, _worker: &mut Worker, _detached: Option<&Message>) -> bool {
        false
    }

    /// Decides which thread runs a message. The message is in `_detached` or, if this is `None`, in
    /// the buffer of `_worker`. `more` is true if the next message of the connection may have
    /// arrived.
    #[inline]
    fn place_message<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        _handler: &Arc<H>,
        _worker: &mut Worker,
        connection: &Arc<Connection>,
        _detached: &mut Option<Message>,
        more: bool,
    ) -> MessagePlacement {
        if more {
            lane.list_rest(connection);
        }
        MessagePlacement::Here { reads_on: false }
    }

    #[inline]
    fn max_reads(&self) -> usize {
        MAX_READS
    }

    fn requeue(&self, lane: &Lane<S>, waiting: WaitingRequest, message: Message) {
        lane.push(LaneTask::Dispatch(waiting, message));
    }

    #[inline]
    fn after_task<H: RequestHandler>(
        &self,
        _lane: &Lane<S>,
        _handler: &Arc<H>,
        _worker: &mut Worker,
    ) -> io::Result<()> {
        Ok(())
    }

    /// Returns true if the lane has a single thread. This thread checks the ready list before it
    /// waits, so the tasks that it adds need no wake-up.
    #[inline]
    fn has_one_thread(&self) -> bool {
        false
    }

    fn may_spin(&self) -> bool {
        false
    }

    /// Returns the number of threads that wait in core groups; zero if the lane has no groups.
    fn threads_in_core_groups(&self) -> usize {
        0
    }

    /// Returns true if threads of the lane may poll rings in shared memory. Not called if
    /// [`may_spin`](Self::may_spin) returns false.
    fn may_poll_rings(&self) -> bool {
        false
    }

    #[cfg(feature = "replies-first")]
    fn may_defer_requests(&self) -> bool {
        true
    }

    fn default_nested_wait(&self) -> NestedWait {
        NestedWait::Block
    }

    /// Handles events and tasks of the lane until the wait for the reply `awaited` is over.
    fn wait_nested<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        lane.step_until_arrival(handler, worker, awaited)
    }

    /// When the lane stops, ends the waits of threads that do not wait in the lane's epoll
    /// instance. Returns the threads that the caller must join.
    fn stop(&self) -> Vec<JoinHandle<()>> {
        Vec::new()
    }
}
