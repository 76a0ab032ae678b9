//! Polling by the threads of a lane's loop before they sleep in the lane's epoll.
//!
//! A thread polls for the next message of the connection whose readiness it handled last. The only
//! thread of a lane polls the epoll instance. In a lane with several threads, the polling thread
//! receives from the connection. Meanwhile the epoll instance does not watch the connection's
//! input, because an arrival would wake another thread. The input is watched again before the
//! message runs, so other threads serve messages that arrive during the upcall.
//!
//! Invariant: the input of a connection is unwatched only while a thread polls it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::SpinPolicy;
use corelane_sys::epoll::{EpollEvent, Interest};

use super::architecture::Architecture;
use super::config::PoolConfig;
use super::connection::{Connection, ReadCause};
use super::handler::RequestHandler;
use super::lane::{LISTENER, Lane, handle_of, interest, token_of};
use super::lane_role::LaneRole;
use super::message::Message;
use super::worker::Worker;

/// Number of attempts to receive before the polling thread checks for other work of the lane.
const RECEIVES_PER_LOOK: u32 = 4;

/// Returns true if the spin policy permits the threads of a lane to poll.
pub(super) fn may_spin(config: &PoolConfig, role: Option<&LaneRole>) -> bool {
    let is_real_time = role.is_some_and(|role| role.scheduling.is_some());
    match config.spin_policy {
        Some(SpinPolicy::Never) => false,
        Some(SpinPolicy::Always { .. }) => true,
        Some(SpinPolicy::Adaptive { .. }) | None => !is_real_time,
    }
}

/// The end of a thread's polling.
enum Polled {
    /// The lane has other work.
    Event(EpollEvent),
    /// A whole message of the connection has arrived. The flag is true if more input may be there.
    Message(bool),
    /// Nothing came, or the thread did not poll.
    Nothing,
}

impl<S: Architecture<S>> Lane<S> {
    /// Returns the next event of the lane, after polling the last connection if its spin policy
    /// permits. Returns `None` if polling found a message of this connection, which then has been
    /// run or passed on.
    #[inline(never)]
    pub(super) fn wait_spinning<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> io::Result<Option<EpollEvent>> {
        if let Some(handle) = worker.last_reported.take() {
            let mut detached = None;
            // The guard keeps the connection open while the thread polls. It is dropped before the
            // thread sleeps.
            if let Some(connection) = self.connections.get(handle.0, handle.1) {
                match self.poll(handler, worker, &connection, &mut detached)? {
                    Polled::Event(event) => return Ok(Some(note_connection(worker, event))),
                    Polled::Message(more) => {
                        worker.last_reported = Some(handle);
                        if self.run_message(handler, worker, &connection, detached, more) {
                            drop(connection);
                            self.read(handler, worker, handle, ReadCause::Buffered);
                        }
                        return Ok(None);
                    }
                    Polled::Nothing => {}
                }
            }
        }
        Ok(self.next_event(None)?.map(|event| note_connection(worker, event)))
    }

    /// Polls for the next message of a connection, and for other work of the lane. A message that
    /// was found is in `detached` or in the worker's own buffer.
    fn poll<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        detached: &mut Option<Message>,
    ) -> io::Result<Polled> {
        if connection.is_read_paused() {
            return Ok(Polled::Nothing);
        }
        let Some(spin) = connection.stream.begin_spin() else { return Ok(Polled::Nothing) };
        if self.strategy.has_one_thread() {
            loop {
                if let Some(event) = self.next_event(Some(Duration::ZERO))? {
                    spin.finish(true);
                    return Ok(Polled::Event(event));
                }
                if spin.is_over() {
                    spin.finish(false);
                    return Ok(Polled::Nothing);
                }
            }
        }
        // An event from before polling began says nothing about the benefit of polling, so `spin`
        // records no result.
        if let Some(event) = self.next_event(Some(Duration::ZERO))? {
            return Ok(Polled::Event(event));
        }
        self.watch_input(connection, false);
        let polled = loop {
            let mut receive =
                || self.receive_message(handler.context(), worker, connection, ReadCause::Readiness, detached);
            if let Some(more) = (0..RECEIVES_PER_LOOK).find_map(|_| receive()) {
                spin.finish(true);
                break Ok(Polled::Message(more));
            }
            match self.next_event(Some(Duration::ZERO)) {
                Ok(Some(event)) => break Ok(Polled::Event(event)),
                Ok(None) if !spin.is_over() && self.guard_connection(connection).is_some() => {}
                Ok(None) => {
                    spin.finish(false);
                    break Ok(Polled::Nothing);
                }
                Err(error) => break Err(error),
            }
        };
        self.watch_input(connection, true);
        polled
    }

    /// Starts or stops watching the input of a connection. When watching starts, epoll reports
    /// input that is already there.
    fn watch_input(&self, connection: &Connection, watches: bool) {
        let Some(readiness) = connection.stream.readiness() else { return };
        // Another thread may have asked to be told of room to write. This interest must be kept.
        let watched = connection.with_output_locked(|| {
            let interest = match (watches, connection.is_congested()) {
                (false, false) => Interest::EDGE,
                (_, congested) => interest(congested),
            };
            self.epoll.modify(readiness, token_of(connection.handle), interest)
        });
        if watched.is_err() {
            // The kernel refuses to watch the connection, so no event would ever report its input.
            connection.close();
        }
    }
}

/// Records the connection that an event reports, because the thread polls this connection next.
fn note_connection(worker: &mut Worker, event: EpollEvent) -> EpollEvent {
    worker.last_reported = (event.token() & LISTENER == 0).then(|| handle_of(event.token()));
    event
}
