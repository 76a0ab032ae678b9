//! The queue between the reading thread and the threads that run requests; it takes one request of
//! each connection in turn.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use corelane_sys::counters;
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{Condvar, LockScope, Mutex};

use super::fair_queue::{FairQueue, Measure, QueueItem};
use crate::server::admission::{self, RequestAdmission};
use crate::server::connection::{Connection, WaitingRequest};
use crate::server::message::Message;

#[derive(Debug)]
pub(crate) struct RequestQueue {
    state: Mutex<State>,
    not_empty: Condvar,
    max_requests: usize,
    max_bytes: usize,
    /// Becomes readable when a message is queued while a thread in a nested wait listens.
    readiness: EventFd,
    listeners: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    requests: FairQueue<QueuedRequest>,
    stopped: bool,
}

pub(in crate::server) type QueuedRequest = (WaitingRequest, Message);

impl QueueItem for QueuedRequest {
    fn owner_list(&self) -> &AtomicU32 {
        &self.0.owner_list
    }

    fn bytes(&self) -> usize {
        self.1.bytes()
    }
}

impl State {
    fn next(&mut self) -> Option<QueuedRequest> {
        if self.stopped { None } else { self.requests.pop() }
    }
}

impl RequestQueue {
    pub(crate) fn new(max_requests: usize, bytes: usize) -> io::Result<Self> {
        Ok(RequestQueue {
            state: Mutex::new("request queue", LockScope::Lane, State::default()),
            not_empty: Condvar::new(),
            max_requests,
            max_bytes: bytes,
            readiness: EventFd::new()?,
            listeners: AtomicUsize::new(0),
        })
    }

    pub(crate) fn connection_share(&self) -> usize {
        admission::fair_share(self.max_requests)
    }

    /// Queues a message of `connection`. If the queue has no room, moves the last messages of the
    /// connection with the largest share to `displaced`, provided that `connection` has a smaller
    /// share. The caller must reject the messages in `displaced`, and the message that is returned
    /// as an error.
    pub(crate) fn push(
        &self,
        connection: &Arc<Connection>,
        message: Message,
        displaced: &mut Vec<QueuedRequest>,
    ) -> Result<(), Message> {
        let mut state = self.state.lock();
        let more = message.bytes();
        while let Some((measure, more)) = self.shortage(&state.requests, more) {
            match state.requests.take_from_largest(&connection.owner_list, more, measure) {
                Some(other) => displaced.push(other),
                None => return Err(message),
            }
        }
        state.requests.push((connection.add_queued_request(more), message));
        drop(state);
        corelane_sys::probe!("request queued");
        counters::count_handoff();
        self.not_empty.notify_one();
        self.notify_listeners();
        Ok(())
    }

    /// Returns the exceeded measure and the amount that the message needs, or `None` if the queue
    /// has room.
    fn shortage(&self, waiting: &FairQueue<QueuedRequest>, bytes: usize) -> Option<(Measure, usize)> {
        if admission::admit_request(Some((waiting.len(), self.max_requests))) == RequestAdmission::Refuse {
            return Some((Measure::Items, 1));
        }
        (!admission::bytes_fit(waiting.bytes(), bytes, self.max_bytes)).then_some((Measure::Bytes, bytes))
    }

    /// Queues a message that has waited elsewhere since it was read. The maximums do not apply to
    /// it.
    #[cold]
    pub(crate) fn requeue(&self, waiting: WaitingRequest, message: Message) {
        let mut state = self.state.lock();
        state.requests.push((waiting, message));
        drop(state);
        self.not_empty.notify_one();
        self.notify_listeners();
    }

    /// Returns the descriptor for which a thread may wait between its calls of
    /// [`add_listener`](Self::add_listener) and [`remove_listener`](Self::remove_listener).
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    /// Makes [`readiness`](Self::readiness) report messages that are queued from now on. The
    /// descriptor need not report earlier messages, which [`try_pop`](Self::try_pop) returns.
    pub(crate) fn add_listener(&self) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn remove_listener(&self) {
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    fn notify_listeners(&self) {
        if self.listeners.load(Ordering::SeqCst) > 0 {
            self.readiness.notify();
        }
    }

    /// Takes the next message; `None` if there is none, or after [`stop`](Self::stop). If more
    /// messages are in the queue, makes [`readiness`](Self::readiness) readable, so that other
    /// listeners take them.
    #[cold]
    pub(crate) fn try_pop(&self) -> Option<QueuedRequest> {
        self.readiness.take_notifications();
        let mut state = self.state.lock();
        let next = state.next();
        let more = !state.stopped && state.requests.len() > 0;
        drop(state);
        if more {
            self.notify_listeners();
        }
        next
    }

    /// Waits for a message and takes it. Returns `None` after [`stop`](Self::stop).
    pub(crate) fn pop(&self) -> Option<QueuedRequest> {
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
            state = self.not_empty.wait(state);
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.not_empty.notify_all();
    }
}
