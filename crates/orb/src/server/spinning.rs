//! Polling: a thread that runs the lane's loop polls for input before it sleeps in the lane's epoll
//! instance.
//!
//! A thread polls for the next message of the connection whose event it handled last. In a lane
//! with one thread, this thread polls the epoll instance. In a lane with several threads, the
//! polling thread receives from the connection, and the epoll instance does not report the
//! connection's input while the thread polls, because the report would wake another thread. Before
//! the thread runs a message, epoll reports the input again, so that other threads serve messages
//! that arrive during the upcall.
//!
//! Invariant: epoll reports the input of a connection, except while a thread polls this connection.

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

/// Number of attempts to receive from the connection between two checks for other events of the
/// lane.
const RECEIVES_PER_LOOK: u32 = 4;

/// Returns true if the pool's spin policy permits the threads of a lane to poll.
pub(super) fn may_spin(config: &PoolConfig, role: Option<&LaneRole>) -> bool {
    let is_real_time = role.is_some_and(|role| role.scheduling.is_some());
    match config.spin_policy {
        Some(SpinPolicy::Never) => false,
        Some(SpinPolicy::Always { .. }) => true,
        Some(SpinPolicy::Adaptive { .. }) | None => !is_real_time,
    }
}

/// The outcome of polling.
enum Polled {
    /// Epoll has reported the event in the field.
    Event(EpollEvent),
    /// A complete message of the connection has arrived. The field is true if more input may have
    /// arrived.
    Message(bool),
    /// Nothing arrived in the time for polling, or the thread may not poll this connection.
    Nothing,
}

impl<S: Architecture<S>> Lane<S> {
    /// Returns the next event of the lane. Before it waits for the event, polls the connection
    /// whose event the thread handled last, if the spin policy permits it. Returns `None` if
    /// polling found a message: the message has then been run or passed on.
    #[inline(never)]
    pub(super) fn wait_spinning<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> io::Result<Option<EpollEvent>> {
        if let Some(handle) = worker.last_reported.take() {
            let mut detached = None;
            // The guard `connection` keeps the connection open while the thread polls. It is
            // dropped before the thread sleeps.
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

    /// Polls for the next message of a connection, and for events of the lane. Leaves the message
    /// in `detached` or in the buffer of `worker`.
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
        // An event that is there before polling begins does not show if polling is useful, so
        // `spin` gets no result.
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

    /// Makes epoll report the input of a connection, or stops it. When it starts, epoll also
    /// reports input that has arrived before.
    fn watch_input(&self, connection: &Connection, watches: bool) {
        let Some(readiness) = connection.stream.readiness() else { return };
        // If the connection is congested, epoll must report its room to write, and this must not
        // change. The lock keeps the flag from changing in between.
        let watched = connection.with_output_locked(|| {
            let interest = match (watches, connection.is_congested()) {
                (false, false) => Interest::EDGE,
                (_, congested) => interest(congested),
            };
            self.epoll.modify(readiness, token_of(connection.handle), interest)
        });
        if watched.is_err() {
            // If the kernel refuses, no event would report the connection's input, so the
            // connection is closed.
            connection.close();
        }
    }
}

/// Records the connection of an event, so that the thread polls it before it sleeps.
fn note_connection(worker: &mut Worker, event: EpollEvent) -> EpollEvent {
    worker.last_reported = (event.token() & LISTENER == 0).then(|| handle_of(event.token()));
    event
}
