//! The interface between a lane and its dispatch architecture. The architecture decides which
//! threads read, run and answer requests.

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

/// Maximum number of messages of one connection that a thread reads in a row before it does other
/// work.
const MAX_READS: usize = 256;

/// The thread that runs a message, as the dispatch architecture decides when the message has been
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePlacement {
    /// The calling thread runs the message. If `reads_on` is true, it then reads the connection's
    /// next message.
    Here { reads_on: bool },
    /// Another thread runs the message, or the message was refused. If `reads_on` is true, the
    /// calling thread reads the connection's next message.
    Elsewhere { reads_on: bool },
}

/// The operations in which dispatch architectures differ. The default implementations are those of
/// leader/followers without burst mode.
///
/// `S` is the type that the lane holds: [`Strategy`](super::strategy::Strategy), the enum of all
/// architectures, which passes each call to one of them.
pub(crate) trait Architecture<S: Architecture<S>>: fmt::Debug + Send + Sync + Sized + 'static {
    /// Starts the lane's threads.
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()>;

    /// Gives an accepted connection to the threads that will serve it.
    fn serve_connection<H: RequestHandler>(&self, lane: &Lane<S>, handler: &Arc<H>, connection: &Arc<Connection>) {
        lane.watch_connection(handler.context(), connection);
    }

    /// Returns the number of requests that one connection may have in the lane's queue.
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
    /// `detached` if this is set, otherwise in the worker's own buffer. `more` is true if the next
    /// message of the connection may already be there.
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

    /// Returns the number of messages of one connection that a thread reads in a row.
    #[inline]
    fn max_reads(&self) -> usize {
        MAX_READS
    }

    /// Lists a request that was deferred or parked and may run now.
    fn requeue(&self, lane: &Lane<S>, waiting: WaitingRequest, message: Message) {
        lane.push(LaneTask::Dispatch(waiting, message));
    }

    /// Does work of the architecture after a task. Each thread of the lane's loop calls this method
    /// after each of its tasks.
    #[inline]
    fn after_task<H: RequestHandler>(
        &self,
        _lane: &Lane<S>,
        _handler: &Arc<H>,
        _worker: &mut Worker,
    ) -> io::Result<()> {
        Ok(())
    }

    /// Returns true if the lane has only one thread. The only thread checks for listed tasks before
    /// it waits, so it needs no wake-up.
    #[inline]
    fn has_one_thread(&self) -> bool {
        false
    }

    /// Returns true if the threads of the lane's loop may poll before they sleep.
    fn may_spin(&self) -> bool {
        false
    }

    /// Returns the default of [`PoolConfig::nested_wait`](super::config::PoolConfig::nested_wait)
    /// for this architecture.
    fn default_nested_wait(&self) -> NestedWait {
        NestedWait::Block
    }

    /// Runs other work of the lane until the reply `awaited` has arrived.
    fn wait_nested<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        lane.step_until_arrival(handler, worker, awaited)
    }

    /// Wakes the threads that do not wait in the lane's epoll, because the lane stops. Returns the
    /// threads to join, in addition to those of [`start`](Self::start).
    fn stop(&self) -> Vec<JoinHandle<()>> {
        Vec::new()
    }
}
