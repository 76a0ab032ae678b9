//! The queue between the thread that reads and the threads that run requests (half-sync/half-async; paper 4 compares it).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane_sys::counters;
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Condvar, Mutex, Scope};

use super::admission::{self, Entry};
use super::connection::{Connection, Waiting};
use super::worker::Message;

/// A bounded queue of messages.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    /// Messages, and their octets, that may wait.
    bound: usize,
    octets: usize,
    /// For threads that wait for a reply and would serve meanwhile.
    bell: Wake,
    listening: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Waiting, Message)>,
    /// What the waiting messages hold.
    octets: usize,
    stopped: bool,
}

impl State {
    fn next(&mut self) -> Option<(Waiting, Message)> {
        if self.stopped {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.octets -= next.1.octets();
        Some(next)
    }
}

impl Queue {
    pub(crate) fn new(bound: usize, octets: usize) -> io::Result<Self> {
        Ok(Queue {
            state: Mutex::new("request queue", Scope::Lane, State::default()),
            filled: Condvar::new(),
            bound,
            octets,
            bell: Wake::new()?,
            listening: AtomicUsize::new(0),
        })
    }

    /// Messages that one connection may have in it.
    pub(crate) fn share(&self) -> usize {
        admission::share(self.bound)
    }

    /// Lists a message; gives it back when too many wait.
    pub(crate) fn push(&self, connection: &Arc<Connection>, message: Message) -> Result<(), Message> {
        let mut state = self.state.lock();
        let more = message.octets();
        if admission::request(Some((state.waiting.len(), self.bound))) == Entry::Refuse
            || !admission::octets_fit(state.octets, more, self.octets)
        {
            return Err(message);
        }
        state.octets += more;
        state.waiting.push_back((connection.wait_in_queue(more), message));
        drop(state);
        corelane_sys::probe!("request queued");
        counters::count_handoff();
        self.filled.notify_one();
        self.ring();
        Ok(())
    }

    /// Lists a message that had its turn before, and so much room.
    #[cold]
    pub(crate) fn push_again(&self, waiting: Waiting, message: Message) {
        let mut state = self.state.lock();
        state.octets += message.octets();
        state.waiting.push_back((waiting, message));
        drop(state);
        self.filled.notify_one();
        self.ring();
    }

    /// Becomes readable when there is a message, for those between [`listen`](Self::listen) and [`unlisten`](Self::unlisten).
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The calling thread will wait for the bell. Messages listed before are told by nothing but [`try_pop`](Self::try_pop).
    pub(crate) fn listen(&self) {
        self.listening.fetch_add(1, Ordering::SeqCst);
    }

    /// It does not wait any more.
    pub(crate) fn unlisten(&self) {
        self.listening.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    fn ring(&self) {
        if self.listening.load(Ordering::SeqCst) > 0 {
            self.bell.notify();
        }
    }

    /// The next message, if there is one. Stops the bell, and rings it again for the others when more messages wait.
    #[cold]
    pub(crate) fn try_pop(&self) -> Option<(Waiting, Message)> {
        self.bell.drain();
        let mut state = self.state.lock();
        let next = state.next();
        let more = !state.stopped && !state.waiting.is_empty();
        drop(state);
        if more {
            self.ring();
        }
        next
    }

    /// The next message; `None` after [`stop`](Self::stop).
    pub(crate) fn pop(&self) -> Option<(Waiting, Message)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some((waiting, message)) = state.next() {
                drop(state);
                corelane_sys::probe!("taken from the queue");
                return Some((waiting, message));
            }
            state = self.filled.wait(state);
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.filled.notify_all();
    }
}
