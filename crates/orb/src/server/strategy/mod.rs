//! The dispatch architectures, which decide the threads that read, run and answer the requests of a
//! lane.

pub(super) mod burst;
#[cfg(feature = "core-pool")]
pub(crate) mod core_pool;
#[cfg(feature = "half-sync")]
pub(super) mod half_sync;
mod leader_followers;
pub(crate) mod overload;
mod reactive;
mod thread_per_connection;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::Listener;
use corelane_sys::thread::JoinHandle;

use super::architecture::{Architecture, MessagePlacement};
use super::config::{Dispatch, NestedWait, PoolConfig};
use super::connection::{Connection, WaitingRequest};
use super::lane;
use super::lane_role::LaneRole;
use super::message::Message;
use super::threads::ThreadStarter;
use super::worker::Worker;
use crate::nested_wait::AwaitedReply;
#[cfg(feature = "core-pool")]
use crate::orb_context::OrbContext;
use crate::server::handler::RequestHandler;
#[cfg(feature = "core-pool")]
use core_pool::CorePoolThreads;
#[cfg(feature = "half-sync")]
use half_sync::HalfSync;
use leader_followers::LeaderFollowers;
use overload::{HasOverloadThread, OverloadThread};
use reactive::Reactive;
use thread_per_connection::ThreadPerConnection;

#[derive(Debug)]
pub(crate) enum Strategy {
    Reactive(Reactive),
    ThreadPerConnection(ThreadPerConnection),
    LeaderFollowers(LeaderFollowers),
    #[cfg(feature = "half-sync")]
    HalfSync(HalfSync),
    Overload(OverloadThread<Strategy>),
    #[cfg(feature = "core-pool")]
    CorePool(CorePoolThreads),
}

macro_rules! delegate {
    ($strategy:ident.$function:ident($($argument:expr),*)) => {
        match $strategy {
            Strategy::Reactive(architecture) => Architecture::<Strategy>::$function(architecture, $($argument),*),
            Strategy::ThreadPerConnection(architecture) => {
                Architecture::<Strategy>::$function(architecture, $($argument),*)
            }
            Strategy::LeaderFollowers(architecture) => {
                Architecture::<Strategy>::$function(architecture, $($argument),*)
            }
            #[cfg(feature = "half-sync")]
            Strategy::HalfSync(architecture) => Architecture::<Strategy>::$function(architecture, $($argument),*),
            Strategy::Overload(architecture) => Architecture::<Strategy>::$function(architecture, $($argument),*),
            #[cfg(feature = "core-pool")]
            Strategy::CorePool(architecture) => Architecture::<Strategy>::$function(architecture, $($argument),*),
        }
    };
}

impl Strategy {
    pub(super) fn new(
        config: &PoolConfig,
        role: Option<&LaneRole>,
        overload: Option<OverloadThread<Strategy>>,
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
            #[cfg(feature = "half-sync")]
            Dispatch::HalfSyncHalfAsync { threads, max_queued } => {
                let max_bytes = config.connection_limits.max_queued_bytes;
                Strategy::HalfSync(HalfSync::new(threads, max_queued, max_bytes)?)
            }
        })
    }

    #[cfg(test)]
    pub(crate) fn request_queue(&self) -> Option<&half_sync::request_queue::RequestQueue> {
        match self {
            Strategy::HalfSync(half_sync) => Some(half_sync.queue()),
            _ => None,
        }
    }
}

impl Architecture<Strategy> for Strategy {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, Strategy, H>) -> io::Result<()> {
        delegate!(self.start(threads))
    }

    fn serve_connection<H: RequestHandler>(&self, lane: &Lane, handler: &Arc<H>, connection: &Arc<Connection>) {
        delegate!(self.serve_connection(lane, handler, connection));
    }

    fn max_queued_of_connection(&self) -> usize {
        delegate!(self.max_queued_of_connection())
    }

    #[cfg(feature = "core-pool")]
    #[inline]
    fn keeps_read_lock(&self, context: &OrbContext, worker: &mut Worker, detached: Option<&Message>) -> bool {
        delegate!(self.keeps_read_lock(context, worker, detached))
    }

    #[inline]
    fn place_message<H: RequestHandler>(
        &self,
        lane: &Lane,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        detached: &mut Option<Message>,
        more: bool,
    ) -> MessagePlacement {
        delegate!(self.place_message(lane, handler, worker, connection, detached, more))
    }

    #[inline]
    fn max_reads(&self) -> usize {
        delegate!(self.max_reads())
    }

    #[cold]
    fn requeue(&self, lane: &Lane, waiting: WaitingRequest, message: Message) {
        delegate!(self.requeue(lane, waiting, message));
    }

    #[inline]
    fn after_task<H: RequestHandler>(&self, lane: &Lane, handler: &Arc<H>, worker: &mut Worker) -> io::Result<()> {
        delegate!(self.after_task(lane, handler, worker))
    }

    #[inline]
    fn has_one_thread(&self) -> bool {
        delegate!(self.has_one_thread())
    }

    fn threads_in_core_groups(&self) -> usize {
        delegate!(self.threads_in_core_groups())
    }

    fn may_spin(&self) -> bool {
        delegate!(self.may_spin())
    }

    fn may_poll_rings(&self) -> bool {
        delegate!(self.may_poll_rings())
    }

    #[cfg(feature = "replies-first")]
    fn may_defer_requests(&self) -> bool {
        delegate!(self.may_defer_requests())
    }

    fn default_nested_wait(&self) -> NestedWait {
        delegate!(self.default_nested_wait())
    }

    fn wait_nested<H: RequestHandler>(
        &self,
        lane: &Lane,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        delegate!(self.wait_nested(lane, handler, worker, awaited))
    }

    fn stop(&self) -> Vec<JoinHandle<()>> {
        delegate!(self.stop())
    }
}

impl HasOverloadThread for Strategy {
    fn overload_thread(&self) -> Option<&OverloadThread<Self>> {
        match self {
            Strategy::Overload(overload) => Some(overload),
            _ => None,
        }
    }
}

pub(crate) type Lane = lane::Lane<Strategy>;

impl Lane {
    /// Creates a lane. Pools with dynamic threads, borrowing or buffering need `overload`, the
    /// state of the overload thread. The caller makes `overload`, so that the linker drops its code
    /// from programs without such pools.
    pub(crate) fn new(
        config: PoolConfig,
        listeners: Vec<Box<dyn Listener>>,
        closing_time: Duration,
        role: Option<LaneRole>,
        overload: Option<OverloadThread<Strategy>>,
    ) -> io::Result<Arc<Self>> {
        let strategy = Strategy::new(&config, role.as_ref(), overload)?;
        Lane::with_strategy(config, listeners, closing_time, role, strategy)
    }

    pub(crate) fn resume(&self, waiting: WaitingRequest, message: Message) {
        #[cfg(feature = "core-pool")]
        if let Strategy::CorePool(threads) = &self.strategy {
            return Architecture::<Strategy>::requeue(threads, self, waiting, message);
        }
        self.push(lane::LaneTask::Dispatch(waiting, message));
    }

    #[cfg(feature = "core-pool")]
    pub(crate) fn of_core_pool(
        config: PoolConfig,
        listeners: Vec<Box<dyn Listener>>,
        closing_time: Duration,
        role: LaneRole,
        threads: CorePoolThreads,
    ) -> io::Result<Arc<Self>> {
        Lane::with_strategy(config, listeners, closing_time, Some(role), Strategy::CorePool(threads))
    }

    #[cfg(feature = "core-pool")]
    pub(crate) fn core_pool(&self) -> Option<&CorePoolThreads> {
        match &self.strategy {
            Strategy::CorePool(threads) => Some(threads),
            _ => None,
        }
    }
}
