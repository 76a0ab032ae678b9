//! Polling by the threads of a lane's loop before they sleep in the lane's epoll.
//!
//! A thread polls for the next message of the connection whose readiness it handled last. The only
//! thread of a lane polls the epoll instance. One of several threads receives from the connection,
//! and takes the connection's input out of the epoll instance meanwhile: an arrival would wake a
//! thread that sleeps there. The input is back in the epoll instance before the message runs, so
//! other threads serve what arrives during an upcall.
//!
//! Invariant: the input of a connection is unwatched only while a thread polls it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::SpinPolicy;
use corelane_sys::epoll::{EpollEvent, Interest};

use super::architecture::Architecture;
use super::config::PoolConfig;
use super::connection::Connection;
use super::handler::RequestHandler;
use super::lane::{LISTENER, Lane, ReadCause, handle_of, interest, token_of};
use super::lane_role::LaneRole;
use super::message::Message;
use super::worker::Worker;

/// Number of attempts to receive before the thread looks for other work of the lane.
const RECEIVES_PER_LOOK: u32 = 4;

/// Returns true if the policy lets the threads of a lane poll.
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
    /// A whole message of the connection; true if more may be there.
    Message(bool),
    /// Nothing came, or the thread did not poll.
    Nothing,
}

impl<S: Architecture<S>> Lane<S> {
    /// Returns the next event, and polls before it sleeps where that helps. Returns `None` after a
    /// message of the polled connection has been dealt with.
    #[inline(never)]
    pub(super) fn wait_spinning<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> io::Result<Option<EpollEvent>> {
        if let Some(handle) = worker.last_reported.take() {
            let mut detached = None;
            // Guarded while the thread polls, and not while it sleeps.
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

    /// Polls for the next message of a connection, which is then in `detached` or in the worker's
    /// own buffer, or for other work of the lane.
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
        // Other work that is there already says nothing about polling.
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

    /// Watches the input of a connection, or watches it no longer. Input that is there when watching
    /// begins is reported.
    fn watch_input(&self, connection: &Connection, watches: bool) {
        let Some(readiness) = connection.stream.readiness() else { return };
        // Another thread may ask for room to write, which is to be watched all the same.
        let watched = connection.with_output_locked(|| {
            let interest = match (watches, connection.is_congested()) {
                (false, false) => Interest::EDGE,
                (_, congested) => interest(congested),
            };
            self.epoll.modify(readiness, token_of(connection.handle), interest)
        });
        if watched.is_err() {
            // A connection that cannot be watched is at its end.
            connection.close();
        }
    }
}

/// Notes the connection that an event reports: the thread polls it next.
fn note_connection(worker: &mut Worker, event: EpollEvent) -> EpollEvent {
    worker.last_reported = (event.token() & LISTENER == 0).then(|| handle_of(event.token()));
    event
}
