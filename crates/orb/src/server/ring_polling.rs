//! Polling of connections in shared memory by a thread that runs the lane's loop.
//!
//! The thread polls the connection that it served last and a few connections that the lane served
//! recently. Their peers then write without a system call, and an arrival wakes no other thread. At
//! most one thread at a time polls a given connection.
//!
//! Invariant: before the thread reads a message, runs it, or handles an event or a task, the other
//! connections request wake-ups again, and the thread has returned its permit to poll. So a long
//! message or upcall delays no other connection.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{Monotonic, PolledInput, SpinWait};
use corelane_sys::epoll::EpollEvent;
use corelane_sys::slab::SlabGuard;

use super::architecture::Architecture;
use super::connection::{Connection, ReadCause};
use super::handler::RequestHandler;
use super::lane::{Lane, handle_of, token_of};
use super::recent_rings::MAX_OTHERS;
use super::worker::Worker;

const ROUNDS_PER_LOOK: u32 = 64;
/// Number of rounds at the start of a wait without the processor's pause instruction, which would
/// delay a request that arrives soon.
const ROUNDS_WITHOUT_PAUSE: u32 = 64;
/// If polling finds message after message, the thread looks at other work of the lane after this
/// time.
const TURN: Duration = Duration::from_micros(20);
/// Number of turns, each of the length [`TURN`], after which the thread returns to the lane's loop.
const MAX_TURNS: u32 = 16;

type Guard<'l> = SlabGuard<'l, Arc<Connection>>;
type Others<'l> = [Option<Guard<'l>>; MAX_OTHERS];

enum Found {
    /// Bytes have arrived: with `None` on the connection that was served last, otherwise on the
    /// connection with this index in [`Others`].
    Arrival(Option<usize>),
    Event(EpollEvent),
    Task,
    Nothing,
}

impl<S: Architecture<S>> Lane<S> {
    /// Polls the connection `served` and recent connections in shared memory, and runs messages
    /// that arrive. Returns `Break` with an event that the caller must handle, or with `None` if
    /// messages were read or a task is ready. Returns `Continue` if the thread is to sleep.
    #[inline(never)]
    pub(super) fn poll_rings<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        served: (u32, u32),
    ) -> io::Result<ControlFlow<Option<EpollEvent>>> {
        let mut served = served;
        let mut has_read = false;
        let mut turns = 0;
        let mut turn_end: Option<Monotonic> = None;
        loop {
            let Some(first) = self.claim_served(served) else { return Ok(ended(has_read)) };
            let Some(spin) = first.stream.begin_spin() else {
                end_polling(&first);
                return Ok(ended(has_read));
            };
            let begins_turn = turn_end.is_none_or(|end| spin.started_at() >= end);
            if begins_turn {
                turn_end = Some(spin.started_at() + TURN);
                turns += 1;
            }
            let mut others = self.claim_others(served);
            let found = self.poll_rings_once(worker, (&first, &others), spin, begins_turn);
            let mut first = Some(first);
            let arrived = match &found {
                Ok(Found::Arrival(None)) => first.take(),
                Ok(Found::Arrival(Some(index))) => others[*index].take(),
                _ => None,
            };
            for connection in first.iter().chain(others.iter().flatten()) {
                self.stop_polling(connection);
            }
            drop((first, others));
            match (found?, arrived) {
                (Found::Arrival(_), Some(connection)) => {
                    served = connection.handle;
                    if !self.read_polled(handler, worker, connection) {
                        self.recent_rings.forget(token_of(served));
                        return Ok(ended(has_read));
                    }
                    has_read = true;
                }
                (Found::Event(event), _) => {
                    worker.last_reported = Some(served);
                    return Ok(ControlFlow::Break(Some(event)));
                }
                (Found::Task, _) => {
                    worker.last_reported = Some(served);
                    return Ok(ControlFlow::Break(None));
                }
                (Found::Nothing | Found::Arrival(_), _) => return Ok(ended(has_read)),
            }
            if turns > MAX_TURNS || self.ready.has_any_or_begun() || self.is_stopping() {
                worker.last_reported = Some(served);
                return Ok(ControlFlow::Break(None));
            }
        }
    }

    /// Claims the connection that the thread served last. Returns `None` if the connection has
    /// ended, if its reading is paused, or if another thread polls or reads it.
    fn claim_served(&self, served: (u32, u32)) -> Option<Guard<'_>> {
        let connection = self.connections.get(served.0, served.1);
        match connection {
            Some(_) => self.recent_rings.note(token_of(served)),
            None => self.recent_rings.forget(token_of(served)),
        }
        connection.filter(|connection| begin_polling(connection))
    }

    /// Claims recent connections besides `served`. A thread of fixed priority claims none, because
    /// threads of higher priority may delay it, and with it each connection that it polls.
    fn claim_others(&self, served: (u32, u32)) -> Others<'_> {
        let mut others = Others::default();
        if self.is_real_time() {
            return others;
        }
        for (place, token) in others.iter_mut().zip(self.recent_rings.others(token_of(served))) {
            let handle = handle_of(token);
            match self.connections.get(handle.0, handle.1) {
                Some(connection) => *place = Some(connection).filter(|connection| begin_polling(connection)),
                None => self.recent_rings.forget(token),
            }
        }
        others
    }

    /// Polls until bytes arrive, other work of the lane is found, or the time of `spin` is over.
    /// The thread has returned its permit to poll when the function returns.
    fn poll_rings_once(
        &self,
        worker: &mut Worker,
        (first, others): (&Guard<'_>, &Others<'_>),
        spin: SpinWait<'_>,
        begins_turn: bool,
    ) -> io::Result<Found> {
        let rings = || {
            let others = others.iter().enumerate().filter_map(|(index, other)| Some((Some(index), other.as_ref()?)));
            std::iter::once((None, first)).chain(others)
        };
        if begins_turn {
            // `has_arrived` withdraws the connection's request for a wake-up. All requests are
            // withdrawn before the lane's events are checked.
            rings().for_each(|(_, connection)| _ = has_arrived(connection));
            // An event that arrived before polling began does not count in the statistics of
            // polling.
            if let Some(event) = self.next_event(worker, Some(Duration::ZERO))? {
                return Ok(Found::Event(event));
            }
        }
        let mut rounds: u32 = 0;
        loop {
            if let Some((index, _)) = rings().find(|(_, connection)| has_arrived(connection)) {
                spin.finish(true);
                return Ok(Found::Arrival(index));
            }
            rounds = rounds.wrapping_add(1);
            if rounds > ROUNDS_WITHOUT_PAUSE {
                std::hint::spin_loop();
            }
            if rounds.is_multiple_of(ROUNDS_PER_LOOK) {
                if self.ready.has_any() || self.is_stopping() {
                    return Ok(Found::Task);
                }
                if let Some(event) = self.next_event(worker, Some(Duration::ZERO))? {
                    return Ok(Found::Event(event));
                }
                if spin.is_over() || rings().any(|(_, connection)| self.guard_connection(connection).is_none()) {
                    spin.finish(false);
                    return Ok(Found::Nothing);
                }
            }
        }
    }

    /// Reads the bytes that have arrived on a connection that the thread has polled, and runs the
    /// message if it is complete. Returns true if a message was complete, or if bytes were read and
    /// reading may continue.
    fn read_polled<H: RequestHandler>(&self, handler: &Arc<H>, worker: &mut Worker, connection: Guard<'_>) -> bool {
        let handle = connection.handle;
        let Some(polled) = connection.stream.polled_input() else { return false };
        let before = polled.position();
        let mut detached = None;
        let received =
            self.receive_message(handler.context(), worker, &connection, ReadCause::Readiness, &mut detached);
        polled.end_polling();
        let Some(more) = received else {
            // There is no message to run: perhaps none is complete, another thread reads, reading
            // is paused, or the input is over.
            return polled.position() != before && may_read(&connection);
        };
        let reads_on = self.run_message(handler, worker, &connection, detached, more);
        drop(connection);
        if reads_on {
            self.read(handler, worker, handle, ReadCause::Buffered);
        }
        true
    }

    /// Ends the polling of the connection. The lane's threads then get a report of its next
    /// arrival; if bytes have arrived already, the connection is listed for reading.
    fn stop_polling(&self, connection: &Connection) {
        if connection.stream.polled_input().is_some_and(PolledInput::stop_polling) {
            self.list_connection(connection, ReadCause::Readiness);
        }
    }
}

/// Returns true if the reading of the connection is not paused and no thread reads it now.
fn may_read(connection: &Connection) -> bool {
    !connection.is_read_paused() && !connection.read_state.is_held()
}

/// Begins to poll the connection. Returns false if another thread polls or reads it, or if reading
/// is paused.
fn begin_polling(connection: &Connection) -> bool {
    may_read(connection) && connection.stream.polled_input().is_some_and(PolledInput::begin_polling)
}

/// Ends polling without a request for a wake-up, because the connection's last request is still in
/// force.
fn end_polling(connection: &Connection) {
    if let Some(polled) = connection.stream.polled_input() {
        polled.end_polling();
    }
}

fn has_arrived(connection: &Connection) -> bool {
    connection.stream.polled_input().is_some_and(PolledInput::poll)
}

/// Returns the result of a wait that has found no message. If the thread has read bytes before, the
/// reading may have left tasks on the lane's ready list, which the thread must look at before it
/// sleeps.
fn ended(has_read: bool) -> ControlFlow<Option<EpollEvent>> {
    if has_read { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
}
