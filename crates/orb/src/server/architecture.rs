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

/// Default for the maximum number of messages of one connection that a thread reads in a row,
/// before it does other work of the lane.
const MAX_READS: usize = 256;

/// The decision of a dispatch architecture about a message that a thread has read: which thread
/// runs it, and if the reading thread reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePlacement {
    /// The calling thread, which has read the message, runs it. If `reads_on` is true, the thread
    /// then reads the next message of the connection.
    Here { reads_on: bool },
    /// The architecture has passed the message to another thread, or has refused it. If `reads_on`
    /// is true, the calling thread reads the next message of the connection.
    Elsewhere { reads_on: bool },
}

/// The operations in which dispatch architectures differ. The default implementations suit
/// leader/followers without burst mode.
///
/// `S` is the type of the lane's field `strategy`: the enum [`Strategy`](super::strategy::Strategy)
/// of all architectures, which passes each call to the architecture in its variant.
pub(crate) trait Architecture<S: Architecture<S>>: fmt::Debug + Send + Sync + Sized + 'static {
    /// Starts the lane's threads.
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()>;

    /// Gives an accepted connection to the threads that will serve it.
    fn serve_connection<H: RequestHandler>(&self, lane: &Lane<S>, handler: &Arc<H>, connection: &Arc<Connection>) {
        lane.watch_connection(handler.context(), connection);
    }

    /// Returns the maximum number of requests that one connection may have in the lane's queue.
    fn max_queued_of_connection(&self) -> usize {
        usize::MAX
    }

    /// Returns true if the calling thread, which has read a message, keeps the connection's read lock
    /// for another thread. The message is in `detached` if this is set, otherwise in the worker's
    /// own buffer. The thread then calls [`place_message`](Self::place_message).
    #[cfg(feature = "core-pool")]
    #[inline]
    fn keeps_read_lock(&self, _context: &OrbContext, _worker: &mut Worker, _detached: Option<&Message>) -> bool {
        false
    }

    /// Decides which thread runs a message that the calling thread has read. The message is in
    /// `detached` if this is set, else in the buffer of `worker`. `more` is true if the next
    /// message of the connection may have arrived.
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

    /// Returns the maximum number of messages of one connection that a thread reads in a row.
    #[inline]
    fn max_reads(&self) -> usize {
        MAX_READS
    }

    /// Queues a request that was deferred or parked, and that may run now.
    fn requeue(&self, lane: &Lane<S>, waiting: WaitingRequest, message: Message) {
        lane.push(LaneTask::Dispatch(waiting, message));
    }

    /// Does the work that the architecture has after each task. Each thread that runs the lane's
    /// loop calls this method after each task.
    #[inline]
    fn after_task<H: RequestHandler>(
        &self,
        _lane: &Lane<S>,
        _handler: &Arc<H>,
        _worker: &mut Worker,
    ) -> io::Result<()> {
        Ok(())
    }

    /// Returns true if the lane has one thread. This thread checks the lane's list of tasks before
    /// it waits, so a task that it adds itself needs no wake-up.
    #[inline]
    fn has_one_thread(&self) -> bool {
        false
    }

    /// Returns true if the threads that run the lane's loop may poll for input before they sleep.
    fn may_spin(&self) -> bool {
        false
    }

    /// Returns the default of [`PoolConfig::nested_wait`](super::config::PoolConfig::nested_wait)
    /// for this architecture.
    fn default_nested_wait(&self) -> NestedWait {
        NestedWait::Block
    }

    /// Runs other work of the lane on the calling thread, whose servant waits for the reply
    /// `awaited`, until this reply arrives.
    fn wait_nested<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        lane.step_until_arrival(handler, worker, awaited)
    }

    /// Wakes threads of the architecture that do not wait in the lane's epoll instance, because the
    /// lane stops. Returns the threads that the architecture started after [`start`](Self::start).
    /// The caller joins them.
    fn stop(&self) -> Vec<JoinHandle<()>> {
        Vec::new()
    }
}
