//! Polling of connections in shared memory by a thread that runs the lane's loop.
//!
//! The thread polls the connection that it served last and a few connections that the lane served
//! recently. Their peers then write without a system call, and an arrival wakes no other thread.
//! Before the thread runs a message or handles an event, these connections request wake-ups again,
//! so that their requests reach other threads of the lane.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use corelane_net::{Monotonic, PolledInput, SpinWait};
use corelane_sys::epoll::EpollEvent;
use corelane_sys::slab::SlabGuard;

use super::architecture::Architecture;
use super::connection::{Connection, ReadCause};
use super::handler::RequestHandler;
use super::lane::{Lane, handle_of, token_of};
use super::message::Message;
use super::worker::Worker;

/// Number of connections in shared memory that a thread polls besides the one that it served last.
const MAX_OTHERS: usize = 7;
const ROUNDS_PER_LOOK: u32 = 64;
/// Number of rounds without the processor's pause instruction, which would delay a request that
/// arrives soon.
const ROUNDS_WITHOUT_PAUSE: u32 = 64;
/// Time after which a thread whose polling finds message after message looks at other work of the
/// lane.
const TURN: Duration = Duration::from_micros(20);
/// Number of turns after which the thread returns to the lane's loop.
const MAX_TURNS: u32 = 16;
const NONE: u64 = u64::MAX;

type Guard<'l> = SlabGuard<'l, Arc<Connection>>;

/// The connections in shared memory whose messages threads of the lane have run last.
#[derive(Debug)]
pub(super) struct RecentRings {
    tokens: [AtomicU64; MAX_OTHERS + 1],
    next: AtomicUsize,
}

impl Default for RecentRings {
    fn default() -> Self {
        RecentRings { tokens: [const { AtomicU64::new(NONE) }; MAX_OTHERS + 1], next: AtomicUsize::new(0) }
    }
}

impl RecentRings {
    // Relaxed: a token publishes no other data, and a lost or doubled one only affects polling.
    fn note(&self, token: u64) {
        if !self.tokens.iter().any(|noted| noted.load(Ordering::Relaxed) == token) {
            let place = self.next.fetch_add(1, Ordering::Relaxed) % self.tokens.len();
            self.tokens[place].store(token, Ordering::Relaxed);
        }
    }

    fn forget(&self, token: u64) {
        for noted in self.tokens.iter().filter(|noted| noted.load(Ordering::Relaxed) == token) {
            noted.store(NONE, Ordering::Relaxed);
        }
    }

    fn others(&self, token: u64) -> impl Iterator<Item = u64> {
        let noted = self.tokens.iter().map(|noted| noted.load(Ordering::Relaxed));
        noted.filter(move |noted| *noted != NONE && *noted != token)
    }
}

enum Found {
    /// A message, which has been read. `place` is `None` if the connection that was served last
    /// sent it, otherwise the connection's index in [`Others`]. `more` is true if the next message
    /// may have arrived.
    Message {
        place: Option<usize>,
        more: bool,
    },
    Event(EpollEvent),
    Task,
    Nothing,
}

type Others<'l> = [Option<Guard<'l>>; MAX_OTHERS];

impl<S: Architecture<S>> Lane<S> {
    /// Polls the connection `served` and recent connections in shared memory, and runs messages
    /// that arrive. Returns `Break` with an event that the caller must handle, or with `None` if
    /// messages were run or a task is ready. Returns `Continue` if the thread is to sleep.
    #[inline(never)]
    pub(super) fn poll_rings<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        served: (u32, u32),
    ) -> io::Result<ControlFlow<Option<EpollEvent>>> {
        let mut served = served;
        let mut ran = false;
        let mut turns = 0;
        let mut turn_end: Option<Monotonic> = None;
        loop {
            let Some(first) = self.connections.get(served.0, served.1) else {
                self.recent_rings.forget(token_of(served));
                return Ok(ended(ran));
            };
            let spin = if first.is_read_paused() { None } else { first.stream.begin_spin() };
            let Some(spin) = spin else {
                if ran {
                    self.stop_polling(&first);
                }
                return Ok(ended(ran));
            };
            let begins_turn = turn_end.is_none_or(|end| spin.begun() >= end);
            if begins_turn {
                turn_end = Some(spin.begun() + TURN);
                turns += 1;
            }
            self.recent_rings.note(token_of(served));
            let mut others = self.other_rings(served);
            let mut detached = None;
            let found = self.poll_rings_once(handler, worker, (&first, &others), spin, begins_turn, &mut detached);
            let mut first = Some(first);
            let connection = match &found {
                Ok(Found::Message { place: None, .. }) => first.take(),
                Ok(Found::Message { place: Some(place), .. }) => others[*place].take(),
                _ => None,
            };
            for idle in first.iter().chain(others.iter().flatten()) {
                self.stop_polling(idle);
            }
            drop((first, others));
            let (connection, more) = match (found?, connection) {
                (Found::Message { more, .. }, Some(connection)) => (connection, more),
                (Found::Event(event), _) => return Ok(ControlFlow::Break(Some(event))),
                (Found::Nothing, _) => return Ok(ended(ran)),
                (Found::Task | Found::Message { .. }, _) => return Ok(ControlFlow::Break(None)),
            };
            served = connection.handle;
            self.run_polled(handler, worker, connection, detached, more);
            ran = true;
            if turns > MAX_TURNS || self.ready.has_any_or_begun() || self.is_stopping() {
                if let Some(connection) = self.connections.get(served.0, served.1) {
                    self.stop_polling(&connection);
                    worker.last_reported = Some(served);
                }
                return Ok(ControlFlow::Break(None));
            }
        }
    }

    fn run_polled<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: Guard<'_>,
        detached: Option<Message>,
        more: bool,
    ) {
        let handle = connection.handle;
        let reads_on = self.run_message(handler, worker, &connection, detached, more);
        drop(connection);
        if reads_on {
            self.read(handler, worker, handle, ReadCause::Buffered);
        }
    }

    fn poll_rings_once<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        (first, others): (&Guard<'_>, &Others<'_>),
        spin: SpinWait<'_>,
        begins_turn: bool,
        detached: &mut Option<Message>,
    ) -> io::Result<Found> {
        let rings = || {
            let others = others.iter().enumerate().filter_map(|(place, other)| Some((Some(place), other.as_ref()?)));
            std::iter::once((None, first)).chain(others)
        };
        if begins_turn {
            for (_, connection) in rings() {
                has_arrived(connection);
            }
            // An event that is there before polling begins does not show if polling is useful.
            if let Some(event) = self.next_event(Some(Duration::ZERO))? {
                return Ok(Found::Event(event));
            }
        }
        let mut rounds: u32 = 0;
        loop {
            for (place, connection) in rings() {
                if !has_arrived(connection) {
                    continue;
                }
                let more = self.receive_message(handler.context(), worker, connection, ReadCause::Readiness, detached);
                if let Some(more) = more {
                    spin.finish(true);
                    return Ok(Found::Message { place, more });
                }
                if has_arrived(connection) {
                    // Another thread reads, reading is paused, or the input is over.
                    return Ok(Found::Nothing);
                }
            }
            rounds = rounds.wrapping_add(1);
            if rounds > ROUNDS_WITHOUT_PAUSE {
                std::hint::spin_loop();
            }
            if rounds.is_multiple_of(ROUNDS_PER_LOOK) {
                if self.ready.has_any() || self.is_stopping() {
                    return Ok(Found::Task);
                }
                if let Some(event) = self.next_event(Some(Duration::ZERO))? {
                    return Ok(Found::Event(event));
                }
                if spin.is_over() || rings().any(|(_, connection)| self.guard_connection(connection).is_none()) {
                    spin.finish(false);
                    return Ok(Found::Nothing);
                }
            }
        }
    }

    fn other_rings(&self, served: (u32, u32)) -> Others<'_> {
        let mut others = Others::default();
        for (place, token) in others.iter_mut().zip(self.recent_rings.others(token_of(served))) {
            let handle = handle_of(token);
            match self.connections.get(handle.0, handle.1) {
                Some(connection) if !connection.is_read_paused() => *place = Some(connection),
                Some(_) => {}
                None => self.recent_rings.forget(token),
            }
        }
        others
    }

    /// Makes the connection report its next arrival to the lane's threads.
    fn stop_polling(&self, connection: &Connection) {
        if connection.stream.polled_input().is_some_and(PolledInput::stop_polling) {
            self.list_connection(connection, ReadCause::Readiness);
        }
    }
}

fn has_arrived(connection: &Connection) -> bool {
    connection.stream.polled_input().is_some_and(PolledInput::poll)
}

/// Returns the result of a wait that has found no message. If the thread `ran` messages before, they
/// may have left tasks on the lane's ready list, which the thread must look at before it sleeps.
fn ended(ran: bool) -> ControlFlow<Option<EpollEvent>> {
    if ran { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
}
