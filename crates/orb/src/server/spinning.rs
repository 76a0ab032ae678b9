//! Polling: a thread that runs the lane's loop polls for input before it sleeps in an epoll
//! instance of the lane.
//!
//! In a lane with several threads, epoll does not report the input of a connection while a thread
//! polls it, because the report would wake another thread.

use std::io;
use std::ops::ControlFlow;
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

const RECEIVES_PER_LOOK: u32 = 4;

pub(super) fn may_spin(config: &PoolConfig, role: Option<&LaneRole>) -> bool {
    let is_real_time = role.is_some_and(|role| role.scheduling.is_some());
    match config.spin_policy {
        Some(SpinPolicy::Never) => false,
        Some(SpinPolicy::Always { .. }) => true,
        Some(SpinPolicy::Adaptive { .. }) | None => !is_real_time,
    }
}

enum Polled {
    Event(EpollEvent),
    Message(bool),
    Nothing,
}

impl<S: Architecture<S>> Lane<S> {
    /// Waits for an event. If the connection of the thread's last event has a spin policy that
    /// permits it, first polls the lane's events. In a lane with several threads, also polls this
    /// connection. Returns `None` if polling found a message, which has been run or passed on, if
    /// the ready list has a task, if the lane stops, or if a signal interrupted the wait.
    #[inline(never)]
    pub(super) fn wait_spinning<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> io::Result<Option<EpollEvent>> {
        if let Some(handle) = worker.last_reported.take() {
            let mut detached = None;
            let connection = self.connections.get(handle.0, handle.1);
            if connection.as_ref().is_some_and(|connection| connection.stream.polled_input().is_some()) {
                drop(connection);
                if self.strategy.may_poll_rings()
                    && let ControlFlow::Break(event) = self.poll_rings(handler, worker, handle)?
                {
                    return Ok(event.map(|event| note_connection(worker, event)));
                }
            } else if let Some(connection) = connection {
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
        Ok(self.next_event(worker, None)?.map(|event| note_connection(worker, event)))
    }

    /// Polls the lane's events and, if the lane has several threads, the connection. Leaves a
    /// message in `detached` or in the buffer of `worker`.
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
                if let Some(event) = self.next_event(worker, Some(Duration::ZERO))? {
                    spin.finish(true);
                    return Ok(Polled::Event(event));
                }
                if spin.is_over() {
                    spin.finish(false);
                    return Ok(Polled::Nothing);
                }
            }
        }
        // An event that arrived before polling began does not count in the statistics of polling.
        if let Some(event) = self.next_event(worker, Some(Duration::ZERO))? {
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
            match self.next_event(worker, Some(Duration::ZERO)) {
                Ok(Some(event)) => break Ok(Polled::Event(event)),
                Ok(None) if !spin.is_over() && self.guard_connection(connection).is_some() => {}
                Ok(None) => {
                    spin.finish(false);
                    if self.core_groups().is_some_and(|groups| self.watch_in_groups(groups, connection)) {
                        return Ok(Polled::Nothing);
                    }
                    break Ok(Polled::Nothing);
                }
                Err(error) => break Err(error),
            }
        };
        self.watch_input(connection, true);
        polled
    }

    /// Starts or stops epoll's reports of the connection's input. After the start, epoll also
    /// reports input that has arrived before.
    pub(super) fn watch_input(&self, connection: &Connection, watches: bool) {
        let Some(readiness) = connection.stream.readiness_descriptor() else { return };
        // The output lock keeps the flag `Congested` from changing.
        let watched = connection.with_output_locked(|| {
            if self.unwatch_in_groups(&connection.group, readiness) && !watches {
                // The lane's own epoll instance did not watch the input, so it needs no change.
                return Ok(());
            }
            let interest = match (watches, connection.is_congested()) {
                (false, false) => Interest::EDGE,
                (_, congested) => interest(congested),
            };
            self.epoll.modify(readiness, token_of(connection.handle), interest)
        });
        if watched.is_err() {
            connection.close();
        }
    }
}

/// Notes the connection of the event. An event that belongs to no connection changes nothing.
fn note_connection(worker: &mut Worker, event: EpollEvent) -> EpollEvent {
    if event.token() & LISTENER == 0 {
        worker.last_reported = Some(handle_of(event.token()));
    }
    event
}
