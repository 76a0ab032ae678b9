//! The interface between a lane and its dispatch architecture, which decides the threads that read,
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

/// Maximum number of messages of one connection that a thread reads in a row before it does other
/// work.
const MAX_READS: usize = 256;

/// The thread that runs a message. This is decided when the message has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePlacement {
    /// The calling thread runs the message. If `reads_on` is true, it then reads the connection's
    /// next message.
    Here { reads_on: bool },
    /// Another thread runs the message, or the message was rejected. If `reads_on` is true, the
    /// calling thread reads the connection's next message.
    Elsewhere { reads_on: bool },
}

/// The points in which dispatch architectures differ. The default implementations are for
/// leader/followers without a burst mode.
///
/// `S` is the type that the lane holds. This is the enum of all architectures
/// ([`Strategy`](super::strategy::Strategy)), which passes each call to one of them.
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

    /// Decides which thread runs a message that the calling thread has read. The message is in
    /// `detached`, or else in the worker's own buffer. `more` is true if the next message of the
    /// connection may already be there.
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
            lane.list_rest(connection.handle);
        }
        MessagePlacement::Here { reads_on: false }
    }

    /// Returns the number of messages of one connection that a thread reads in a row.
    #[inline]
    fn max_reads(&self) -> usize {
        MAX_READS
    }

    /// Lists a request that has its turn again.
    fn requeue(&self, lane: &Lane<S>, waiting: WaitingRequest, message: Message) {
        lane.push(LaneTask::Dispatch(waiting, message));
    }

    /// Called by each thread of the lane's loop after each task.
    #[inline]
    fn after_task<H: RequestHandler>(
        &self,
        _lane: &Lane<S>,
        _handler: &Arc<H>,
        _worker: &mut Worker,
    ) -> io::Result<()> {
        Ok(())
    }

    /// Returns true if the lane has only one thread. This thread looks for listed tasks before it
    /// waits, so it needs no wake-up.
    #[inline]
    fn has_one_thread(&self) -> bool {
        false
    }

    /// Returns true if the threads of the lane's loop may poll before they sleep.
    fn may_spin(&self) -> bool {
        false
    }

    /// Returns what a thread does while its servant has made a call and waits, if the pool's
    /// configuration does not say it.
    fn default_nested_wait(&self) -> NestedWait {
        NestedWait::Block
    }

    /// Runs other work of the lane until the reply `awaited` has come.
    fn wait_nested<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        lane.step_until_arrival(handler, worker, awaited)
    }

    /// Called when the lane stops. Wakes the threads that do not wait in the lane's epoll. Returns
    /// threads to join, in addition to those of [`start`](Self::start).
    fn stop(&self) -> Vec<JoinHandle<()>> {
        Vec::new()
    }
}
