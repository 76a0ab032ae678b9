//! Dispatch architectures: which threads of a lane read, run and answer requests.
//!
//! [`Strategy`] is the architecture of one lane. [`Architecture`] lists every point in which
//! architectures differ. Beside it, the rest of the server knows only that a worker may have a
//! burst role, and a lane an overload thread. A new architecture needs a file in this folder, a variant of [`Strategy`] and its lines in this file,
//! and a variant of the public [`Dispatch`].

pub(super) mod burst;
pub(super) mod half_sync;
mod leader_followers;
pub(crate) mod overload;
mod reactive;
mod thread_per_connection;

use std::io;
use std::sync::Arc;

use corelane_sys::thread::JoinHandle;

use super::Run;
use super::config::{Dispatch, NestedWait, PoolConfig};
use super::connection::{Connection, WaitingRequest};
use super::lane::{Lane, Task};
use super::lane_role::LaneRole;
use super::message::Message;
use super::nested_wait::wait_stepping_lane;
use super::worker::Worker;
use crate::nested_wait::AwaitedReply;
use crate::server::handler::RequestHandler;
use half_sync::HalfSync;
use leader_followers::LeaderFollowers;
use overload::OverloadThread;
use reactive::Reactive;
use thread_per_connection::ThreadPerConnection;

/// Maximum number of messages of one connection that a thread reads in a row before other work has
/// a turn.
const MAX_READS: usize = 256;

/// The dispatch architecture of a lane.
#[derive(Debug)]
pub(crate) enum Strategy {
    /// One thread serves all connections.
    Reactive(Reactive),
    /// Each connection has a thread of its own, as far as the maximum allows.
    ThreadPerConnection(ThreadPerConnection),
    /// Threads take turns at waiting; the thread that reads a request runs it.
    LeaderFollowers(LeaderFollowers),
    /// One thread reads requests into a queue, and other threads run them.
    HalfSync(HalfSync),
    /// Leader/followers with an overload thread, which reads while all others are busy.
    Overload(OverloadThread),
}

/// The thread that runs a message, as decided when the message has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The calling thread runs the message. If `reads_on`, it then reads the connection's next
    /// message.
    Here { reads_on: bool },
    /// Another thread runs the message, or it was rejected. If `reads_on`, the calling thread reads
    /// the next one.
    Elsewhere { reads_on: bool },
}

/// The points in which dispatch architectures differ. The defaults are those of leader/followers
/// without a burst mode.
trait Architecture {
    /// Starts the lane's threads.
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, H>) -> io::Result<()>;

    /// Gives an accepted connection to the threads that will serve it.
    fn serve_connection<H: RequestHandler>(&self, lane: &Lane, handler: &Arc<H>, connection: &Arc<Connection>) {
        lane.watch_connection(handler.context(), connection);
    }

    /// Returns the number of requests that one connection may have in the lane's queue.
    fn max_queued_of_connection(&self) -> usize {
        usize::MAX
    }

    /// Decides which thread runs a message that the calling thread has read. The message is
    /// `detached`, or in the worker's own buffer. `more` says that the next message of the
    /// connection may be there.
    #[inline]
    fn place_message<H: RequestHandler>(
        &self,
        lane: &Lane,
        _handler: &Arc<H>,
        _worker: &mut Worker,
        connection: &Arc<Connection>,
        _detached: &mut Option<Message>,
        more: bool,
    ) -> Placement {
        if more {
            lane.list_rest(connection.handle);
        }
        Placement::Here { reads_on: false }
    }

    /// Returns the number of messages of one connection that a thread reads in a row.
    #[inline]
    fn max_reads(&self) -> usize {
        MAX_READS
    }

    /// Lists a request whose turn has come again.
    fn requeue(&self, lane: &Lane, waiting: WaitingRequest, message: Message) {
        lane.push(Task::Dispatch(waiting, message));
    }

    /// Is called by each thread of the lane's loop after each task.
    #[inline]
    fn after_task<H: RequestHandler>(&self, _lane: &Lane, _handler: &Arc<H>, _worker: &mut Worker) -> io::Result<()> {
        Ok(())
    }

    /// Returns true if the lane has one thread only, which looks for listed tasks before it waits:
    /// nothing is to be woken.
    #[inline]
    fn has_one_thread(&self) -> bool {
        false
    }

    /// Returns what a thread does while a call made by its servant waits, if the pool's
    /// configuration does not say.
    fn default_nested_wait(&self) -> NestedWait {
        NestedWait::Block
    }

    /// Runs other work of the lane until `awaited` has come.
    fn wait_nested<H: RequestHandler>(
        &self,
        lane: &Lane,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        wait_stepping_lane(lane, handler, worker, awaited)
    }

    /// Wakes the threads that wait elsewhere than in the lane's epoll, because the lane stops.
    /// Returns threads to join besides those of [`start`](Self::start).
    fn stop(&self) -> Vec<JoinHandle<()>> {
        Vec::new()
    }
}

/// Calls a function of the architecture that a [`Strategy`] has.
macro_rules! delegate {
    ($strategy:expr, $architecture:ident => $call:expr) => {
        match $strategy {
            Strategy::Reactive($architecture) => $call,
            Strategy::ThreadPerConnection($architecture) => $call,
            Strategy::LeaderFollowers($architecture) => $call,
            Strategy::HalfSync($architecture) => $call,
            Strategy::Overload($architecture) => $call,
        }
    };
}

impl Strategy {
    /// Creates the strategy of a lane; `overload` as for [`Lane::new`].
    pub(super) fn new(
        config: &PoolConfig,
        role: Option<&LaneRole>,
        overload: Option<OverloadThread>,
    ) -> io::Result<Self> {
        if let Some(overload) = overload {
            return Ok(Strategy::Overload(overload));
        }
        Ok(match config.dispatch {
            Dispatch::Reactive => Strategy::Reactive(Reactive),
            Dispatch::ThreadPerConnection { max_threads } => {
                Strategy::ThreadPerConnection(ThreadPerConnection::new(max_threads))
            }
            Dispatch::LeaderFollowers { threads } => {
                Strategy::LeaderFollowers(LeaderFollowers::new(threads, role.is_none()))
            }
            Dispatch::HalfSyncHalfAsync { threads, max_queued } => {
                let max_bytes = config.connection_limits.max_queued_bytes;
                Strategy::HalfSync(HalfSync::new(threads, max_queued, max_bytes)?)
            }
        })
    }

    /// The overload thread, if the lane has one.
    pub(crate) fn overload_thread(&self) -> Option<&OverloadThread> {
        match self {
            Strategy::Overload(overload) => Some(overload),
            _ => None,
        }
    }

    /// The queue of requests between threads, for tests that take the place of the threads.
    #[cfg(test)]
    pub(crate) fn request_queue(&self) -> Option<&half_sync::request_queue::RequestQueue> {
        match self {
            Strategy::HalfSync(half_sync) => Some(half_sync.queue()),
            _ => None,
        }
    }

    /// Starts the lane's threads.
    pub(super) fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, H>) -> io::Result<()> {
        delegate!(self, architecture => architecture.start(threads))
    }

    /// Gives an accepted connection to the threads that will serve it.
    pub(super) fn serve_connection<H: RequestHandler>(
        &self,
        lane: &Lane,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
    ) {
        delegate!(self, architecture => architecture.serve_connection(lane, handler, connection));
    }

    /// Returns the number of requests that one connection may have in the lane's queue.
    pub(super) fn max_queued_of_connection(&self) -> usize {
        delegate!(self, architecture => architecture.max_queued_of_connection())
    }

    /// Decides which thread runs a message that the calling thread has read.
    #[inline]
    pub(super) fn place_message<H: RequestHandler>(
        &self,
        lane: &Lane,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        detached: &mut Option<Message>,
        more: bool,
    ) -> Placement {
        delegate!(self, architecture => architecture.place_message(lane, handler, worker, connection, detached, more))
    }

    /// Returns the number of messages of one connection that a thread reads in a row.
    #[inline]
    pub(super) fn max_reads(&self) -> usize {
        delegate!(self, architecture => architecture.max_reads())
    }

    /// Lists a request whose turn has come again.
    #[cold]
    pub(super) fn requeue(&self, lane: &Lane, waiting: WaitingRequest, message: Message) {
        delegate!(self, architecture => architecture.requeue(lane, waiting, message));
    }

    /// Is called by each thread of the lane's loop after each task.
    #[inline]
    pub(super) fn after_task<H: RequestHandler>(
        &self,
        lane: &Lane,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> io::Result<()> {
        delegate!(self, architecture => architecture.after_task(lane, handler, worker))
    }

    /// Returns true if the lane has one thread only.
    #[inline]
    pub(super) fn has_one_thread(&self) -> bool {
        delegate!(self, architecture => architecture.has_one_thread())
    }

    /// Returns what a thread does while a call made by its servant waits, if the pool's
    /// configuration does not say.
    pub(super) fn default_nested_wait(&self) -> NestedWait {
        delegate!(self, architecture => architecture.default_nested_wait())
    }

    /// Runs other work of the lane until `awaited` has come.
    pub(super) fn wait_nested<H: RequestHandler>(
        &self,
        lane: &Lane,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        delegate!(self, architecture => architecture.wait_nested(lane, handler, worker, awaited))
    }

    /// Wakes the lane's threads for its end. Returns threads to join besides those of
    /// [`start`](Self::start).
    pub(super) fn stop(&self) -> Vec<JoinHandle<()>> {
        delegate!(self, architecture => architecture.stop())
    }
}

/// Starts threads of one lane and collects them.
pub(super) struct ThreadStarter<'a, H> {
    pub(super) lane: &'a Arc<Lane>,
    pub(super) handler: &'a Arc<H>,
    pub(super) threads: &'a mut Vec<JoinHandle<()>>,
}

impl<H: RequestHandler> ThreadStarter<'_, H> {
    /// Starts `count` threads that are named by `role` and run `run`.
    fn spawn(&mut self, role: char, count: usize, run: Run<H>) -> io::Result<()> {
        for index in 0..count {
            let name = format!("{}/{role}{index}", self.lane.config.name);
            self.threads.push(super::spawn(self.lane, self.handler, name, run)?);
        }
        Ok(())
    }
}
