//! The leader/followers architecture: all threads wait for messages, and the thread that reads a
//! request runs it.

use std::io;
use std::sync::Arc;

use corelane_sys::thread::JoinHandle;

use super::burst::BurstMode;
use crate::server::architecture::{Architecture, MessagePlacement};
use crate::server::connection::Connection;
use crate::server::handler::RequestHandler;
use crate::server::lane::Lane;
use crate::server::lane_loop;
use crate::server::message::Message;
use crate::server::threads::ThreadStarter;
use crate::server::worker::Worker;

#[derive(Debug)]
pub(crate) struct LeaderFollowers {
    threads: usize,
    /// The state of the lane's burst mode; `None` in lanes with one thread, and in lanes of
    /// real-time pools.
    burst_mode: Option<BurstMode>,
}

impl LeaderFollowers {
    pub(super) fn new(threads: usize, best_effort: bool) -> Self {
        LeaderFollowers { threads, burst_mode: (threads > 1 && best_effort).then(BurstMode::new) }
    }

    /// Programs without the feature `spin` have no burst mode.
    #[inline]
    fn burst_mode(&self) -> Option<&BurstMode> {
        if cfg!(feature = "spin") { self.burst_mode.as_ref() } else { None }
    }
}

impl<S: Architecture<S>> Architecture<S> for LeaderFollowers {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()> {
        threads.spawn('l', self.threads.max(1), lane_loop::run)
    }

    #[inline]
    fn place_message<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        _: &mut Option<Message>,
        more: bool,
    ) -> MessagePlacement {
        if worker.burst_role.is_runner()
            && let Some(burst_mode) = self.burst_mode()
        {
            burst_mode.count_message(&worker.burst_role, connection);
        }
        if !more {
            return MessagePlacement::Here { reads_on: false };
        }
        let keeps_connection = self.burst_mode().is_some_and(|burst_mode| {
            burst_mode.keeps_connection(&mut worker.burst_role, connection, lane.has_ready())
        });
        if keeps_connection {
            lane.send_begun_first(handler.context());
        } else {
            lane.list_rest(connection);
        }
        MessagePlacement::Here { reads_on: keeps_connection }
    }

    #[inline]
    fn after_task<H: RequestHandler>(&self, lane: &Lane<S>, handler: &Arc<H>, worker: &mut Worker) -> io::Result<()> {
        let Some(burst_mode) = self.burst_mode() else { return Ok(()) };
        if burst_mode.is_active() {
            return burst_mode.join(lane, handler, worker);
        }
        worker.burst_role.reset();
        Ok(())
    }

    #[inline]
    fn has_one_thread(&self) -> bool {
        self.threads <= 1
    }

    fn may_spin(&self) -> bool {
        true
    }

    fn threads_in_core_groups(&self) -> usize {
        // Lanes of real-time pools have cores and priorities of their own, so they have no core
        // groups.
        if self.burst_mode.is_some() { self.threads } else { 0 }
    }

    fn may_poll_rings(&self) -> bool {
        true
    }

    fn stop(&self) -> Vec<JoinHandle<()>> {
        if let Some(burst_mode) = self.burst_mode() {
            burst_mode.end();
        }
        Vec::new()
    }
}
