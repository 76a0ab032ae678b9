//! The thread-per-connection architecture: each connection, up to a maximum number, has a thread
//! until it moves to the lane's shared threads.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::thread::{JoinHandle, ThreadBuilder};

use crate::nested_wait;
use crate::server::architecture::Architecture;
use crate::server::config::NestedWait;
use crate::server::connection::Connection;
use crate::server::handler::RequestHandler;
use crate::server::lane::Lane;
use crate::server::lane_loop;
use crate::server::nested_wait::{SERVE_WHILE_WAITING, set_dedicated};
use crate::server::threads::ThreadStarter;
use crate::server::worker::{ReadResult, Worker};
use crate::thread_context;

/// Number of shared threads, which accept connections and serve those that have no thread.
const SHARED_THREADS: usize = 4;

#[derive(Debug)]
pub(crate) struct ThreadPerConnection {
    max_threads: usize,
    threads: PiMutex<Vec<(JoinHandle<()>, Weak<Connection>)>>,
}

impl ThreadPerConnection {
    pub(super) fn new(max_threads: usize) -> Self {
        ThreadPerConnection {
            max_threads,
            threads: PiMutex::new("threads of connections", LockScope::Lane, Vec::new()),
        }
    }

    fn spawn_thread<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
    ) -> bool {
        let mut threads = self.threads.lock();
        threads.retain(|(thread, _)| !thread.is_finished());
        let Some(lane) = lane.weak_self.upgrade() else { return false };
        // `stop` takes the list of threads under this lock, so no thread may be added afterwards.
        if threads.len() >= self.max_threads || lane.is_stopping() {
            return false;
        }
        // The time-out limits how long a peer that does not read blocks the thread.
        if connection.stream.set_coarse_timeouts(Duration::ZERO, lane.config.connection_limits.write_timeout).is_err() {
            return false;
        }
        let weak = Arc::downgrade(connection);
        let builder = ThreadBuilder::new()
            .name(format!("{}/c{}", lane.config.name, connection.handle.0))
            .stack_size(lane.config.thread_stack_size)
            .prefault_stack(handler.context().config().locks_memory);
        let (handler, connection) = (Arc::clone(handler), Arc::clone(connection));
        let run = move || {
            thread_context::enter_lane(lane.identity(handler.context().stamp()), None);
            run(&lane, &handler, &connection);
            drop(connection);
            lane.accept_again();
        };
        match builder.spawn(run) {
            Ok(thread) => threads.push((thread, weak)),
            Err(_) => return false,
        }
        true
    }
}

impl<S: Architecture<S>> Architecture<S> for ThreadPerConnection {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()> {
        threads.spawn('l', SHARED_THREADS, lane_loop::run)
    }

    fn serve_connection<H: RequestHandler>(&self, lane: &Lane<S>, handler: &Arc<H>, connection: &Arc<Connection>) {
        if !self.spawn_thread(lane, handler, connection) {
            lane.watch_connection(handler.context(), connection);
        }
    }

    fn may_spin(&self) -> bool {
        true
    }

    fn default_nested_wait(&self) -> NestedWait {
        // If the shared threads blocked, a few waiting servants would leave no thread for other
        // requests.
        SERVE_WHILE_WAITING
    }

    fn stop(&self) -> Vec<JoinHandle<()>> {
        let threads = std::mem::take(&mut *self.threads.lock());
        let stopped = threads.into_iter().map(|(thread, connection)| {
            if let Some(connection) = connection.upgrade() {
                connection.close();
            }
            thread
        });
        stopped.collect()
    }
}

fn run<S: Architecture<S>, H: RequestHandler>(lane: &Arc<Lane<S>>, handler: &Arc<H>, connection: &Arc<Connection>) {
    thread_context::set_owner(handler.context().stamp());
    set_dedicated(lane, handler, connection);
    serve(lane, handler, connection);
    nested_wait::uninstall();
}

fn serve<S: Architecture<S>, H: RequestHandler>(lane: &Arc<Lane<S>>, handler: &Arc<H>, connection: &Arc<Connection>) {
    let mut worker = Worker::new();
    loop {
        if connection.is_read_paused() {
            // The lane's shared threads serve the connection when the pause of reading ends.
            return nested_wait::release_dedicated_connection();
        }
        let Some(mut turn) = connection.read_state.try_enter() else { return };
        let (message, more) =
            match turn.with(|reading| worker.read(reading, connection, handler.context(), WaitLimit::Block)) {
                ReadResult::InPlace { more } => (None, more),
                ReadResult::Message { message, more } => (Some(message), more),
                ReadResult::Incomplete => continue,
                ReadResult::AlreadyEnded => return,
                ReadResult::EndOfStream => {
                    drop(turn);
                    return lane.handle_half_close(handler.context(), connection);
                }
                ReadResult::Fault(fault, last_message) => {
                    drop(turn);
                    return lane.handle_protocol_fault(handler.context(), connection, fault, &last_message);
                }
            };
        drop(turn);
        connection.record_message(lane.idle_tracker.now());
        let Some(held) = lane.guard_connection(connection) else { return };
        let wants_reply =
            || message.as_ref().map_or_else(|| worker.in_place_wants_reply(), |message| message.wants_reply());
        let moves = more && wants_reply();
        if moves {
            nested_wait::release_dedicated_connection();
        }
        // While it holds the output lock, this thread must not wait for the peer if other threads
        // may send.
        let wait = if moves || connection.has_handed_over() { WaitLimit::Now } else { WaitLimit::Block };
        let goes_on = match message {
            None => worker.dispatch_in_place(handler, connection, wait),
            Some(message) => worker.dispatch(handler, connection, message, wait, Duration::ZERO),
        };
        drop(held);
        if !goes_on {
            return lane.retire_connection(handler.context(), connection.handle);
        }
        if !nested_wait::is_dedicated() || lane.is_closing() {
            return;
        }
    }
}
