//! Requests that have been read and have not begun, and the limits on them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_sys::clock::Monotonic;

use super::Connection;
use super::output::UnsentRequest;
#[cfg(feature = "replies-first")]
use super::state::Flag;
use crate::clock;
use crate::server::admission;
use crate::server::message::Message;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestBounds {
    pub(crate) max_waiting: u32,
    pub(crate) max_queued: usize,
    pub(crate) max_queued_bytes: usize,
}

#[derive(Debug)]
pub(crate) struct WaitingRequest {
    pub(super) connection: Arc<Connection>,
    pub(super) read_at: Monotonic,
    pub(super) queued_bytes: Option<usize>,
}

impl Connection {
    /// Returns true if the connection is congested, too many of its requests wait, or its share of
    /// the lane's queue is full.
    #[inline]
    pub(crate) fn is_read_paused(&self) -> bool {
        let waiting = self.waiting_requests.load(Ordering::SeqCst);
        // The queue holds only waiting requests. So if none waits, its share is not checked.
        !admission::may_read(self.is_congested(), waiting, self.request_bounds.max_waiting)
            || (waiting > 0 && self.has_full_queue_share())
    }

    #[cold]
    fn has_full_queue_share(&self) -> bool {
        self.queued_requests.load(Ordering::SeqCst) >= self.request_bounds.max_queued
            || self.queued_bytes.load(Ordering::SeqCst) >= self.request_bounds.max_queued_bytes
    }

    #[cold]
    pub(crate) fn add_waiting_request(self: &Arc<Self>, waited: Duration) -> WaitingRequest {
        self.waiting_request(waited, None)
    }

    #[cfg(feature = "half-sync")]
    pub(crate) fn add_queued_request(self: &Arc<Self>, octets: usize) -> WaitingRequest {
        self.queued_requests.fetch_add(1, Ordering::SeqCst);
        self.queued_bytes.fetch_add(octets, Ordering::SeqCst);
        self.waiting_request(Duration::ZERO, Some(octets))
    }

    fn waiting_request(self: &Arc<Self>, waited: Duration, queued: Option<usize>) -> WaitingRequest {
        self.waiting_requests.fetch_add(1, Ordering::SeqCst);
        WaitingRequest { connection: Arc::clone(self), read_at: clock::now() - waited, queued_bytes: queued }
    }
}

impl WaitingRequest {
    /// Defers the request if the connection is congested. Returns the request if it may run, or if
    /// the connection closes.
    #[inline]
    pub(crate) fn defer(self, message: Message) -> Option<(WaitingRequest, Message)> {
        if self.connection.is_congested() { self.defer_locked(message) } else { Some((self, message)) }
    }

    #[cold]
    fn defer_locked(self, message: Message) -> Option<(WaitingRequest, Message)> {
        let connection = &self.connection;
        let given_back = connection.output.with(|writing| {
            let may_run = writing.queue.is_empty() && !writing.waits_for_memory();
            if may_run || writing.closing.is_some() || connection.is_closed() {
                return Some(message);
            }
            connection.waiting_requests.fetch_add(1, Ordering::SeqCst);
            writing.deferred.push(UnsentRequest { message, read_at: self.read_at });
            None
        });
        given_back.map(|message| (self, message))
    }

    /// Defers the request until [`Connection::end_memory_wait`]. Until then the connection counts
    /// as congested, so that the lane reads nothing from it. Returns the request if the connection
    /// closes.
    #[cfg(feature = "replies-first")]
    #[cold]
    pub(in crate::server) fn defer_for_memory(self, message: Message) -> Option<(WaitingRequest, Message)> {
        let connection = &self.connection;
        let given_back = connection.output.with(|writing| {
            if writing.closing.is_some() || connection.is_closed() {
                return Some(message);
            }
            writing.waits_for_memory = true;
            connection.state.set(Flag::Congested);
            connection.waiting_requests.fetch_add(1, Ordering::SeqCst);
            writing.deferred.push(UnsentRequest { message, read_at: self.read_at });
            None
        });
        given_back.map(|message| (self, message))
    }

    #[cfg(feature = "replies-first")]
    pub(in crate::server) fn waited(&self) -> Duration {
        clock::now().since(self.read_at)
    }

    pub(crate) fn stop_waiting(self) -> (Arc<Connection>, Duration) {
        (Arc::clone(&self.connection), clock::now().since(self.read_at))
    }
}

impl std::ops::Deref for WaitingRequest {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        // The thread that pauses reading checks the limits again after it has released the read
        // lock. So that thread or this thread notices the fall below a limit.
        let connection = &self.connection;
        let mut goes_on = false;
        if let Some(octets) = self.queued_bytes {
            goes_on |=
                connection.queued_requests.fetch_sub(1, Ordering::SeqCst) == connection.request_bounds.max_queued;
            let before = connection.queued_bytes.fetch_sub(octets, Ordering::SeqCst);
            let bound = connection.request_bounds.max_queued_bytes;
            goes_on |= before >= bound && before - octets < bound;
        }
        let before = connection.waiting_requests.fetch_sub(1, Ordering::SeqCst);
        goes_on |= before == connection.request_bounds.max_waiting || (before == 1 && connection.is_peer_half_closed());
        if goes_on {
            connection.list_for_reading();
        }
    }
}
