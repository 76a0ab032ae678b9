//! The eviction of idle connections when a new connection needs their place, and the time-out for
//! the first message of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::slab::RetireResult;

use super::architecture::Architecture;
use super::connection::Connection;
use super::connection::eviction_rank::EvictionRank;
use super::handler::RequestHandler;
use super::lane::Lane;
use crate::clock;
use crate::event::Event;
use crate::orb_context::OrbContext;

const MAX_CANDIDATES: usize = 64;

#[derive(Debug)]
pub(crate) struct IdleTracker {
    started_at: Monotonic,
    /// Seconds since `started_at`, plus 1. The value 0 is kept for a connection that has sent no
    /// message. Stored by the maintenance.
    now: AtomicU32,
    /// The candidates for eviction in falling order of their ranks. The last candidate is evicted
    /// first.
    candidates: PiMutex<Vec<(EvictionRank, (u32, u32))>>,
}

impl IdleTracker {
    pub(super) fn new(now: Monotonic) -> Self {
        let candidates = PiMutex::new("candidates for eviction", LockScope::Lane, Vec::new());
        IdleTracker { started_at: now, now: AtomicU32::new(1), candidates }
    }

    #[inline]
    pub(super) fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn advance_clock(&self, now: Monotonic) {
        let seconds = u32::try_from(now.since(self.started_at).as_secs()).unwrap_or(u32::MAX);
        self.now.store(seconds.saturating_add(1), Ordering::Relaxed);
    }
}

impl<S: Architecture<S>> Lane<S> {
    /// Evicts an idle connection or, if this fails, the connection that has been draining
    /// longest. Returns false if no connection may be evicted.
    #[cold]
    pub(crate) fn evict_for_new_connection(&self, context: &OrbContext) -> bool {
        self.evict_candidate(context)
            || {
                let candidates = self.find_candidates();
                *self.idle_tracker.candidates.lock() = candidates;
                self.evict_candidate(context)
            }
            || self.evict_oldest_draining(context)
    }

    /// Evicts the candidate with the lowest rank, provided that its rank has not changed since the
    /// search, that it has no unread input, and that no thread uses it. Otherwise tries the
    /// candidate with the next rank. Removes the candidates that it tries from the list. Returns
    /// false if all of them fail.
    fn evict_candidate(&self, context: &OrbContext) -> bool {
        while let Some((eviction_rank, handle)) = self.next_candidate() {
            let found = self.connections.get(handle.0, handle.1).map(|connection| Arc::clone(&connection));
            if let Some(connection) = found
                && connection.eviction_rank(self.idle_tracker.now()) == Some(eviction_rank)
                && !connection.has_unread_input()
                && self.close_idle(context, &connection, true)
            {
                return true;
            }
        }
        false
    }

    #[cold]
    pub(super) fn evict_for_descriptor<H: RequestHandler>(&self, handler: &Arc<H>) -> bool {
        self.evict_for_new_connection(handler.context()) || handler.evict_connection()
    }

    fn next_candidate(&self) -> Option<(EvictionRank, (u32, u32))> {
        self.idle_tracker.candidates.lock().pop()
    }

    fn find_candidates(&self) -> Vec<(EvictionRank, (u32, u32))> {
        let now = self.idle_tracker.now();
        let mut candidates = Vec::new();
        for connection in self.connections.iter() {
            let Some(eviction_rank) = connection.eviction_rank(now) else { continue };
            let found = (eviction_rank, connection.handle);
            let at = candidates.partition_point(|other| *other < found);
            if at < MAX_CANDIDATES {
                candidates.insert(at, found);
                candidates.truncate(MAX_CANDIDATES);
            }
        }
        candidates.reverse();
        candidates
    }

    /// Returns true if no byte of the first message has arrived within `first_request_timeout`.
    pub(super) fn exceeds_first_request_timeout(&self, connection: &Connection, now: Monotonic) -> bool {
        let Some(timeout) = self.config.connection_limits.first_request_timeout else { return false };
        connection.has_sent_nothing()
            && !connection.has_partial_message()
            && connection.idle_for(self.idle_tracker.now(), now) > timeout
            && !connection.has_unread_input()
    }

    /// Closes a connection that no thread uses. `is_evicted` is true if the close makes room for a
    /// new connection. Returns false if a thread uses the connection, or if it is retired.
    #[cold]
    pub(super) fn close_idle(&self, context: &OrbContext, connection: &Connection, is_evicted: bool) -> bool {
        // The state changes before the removal from the slab: a thread that does not find the
        // connection in the slab reads in the state whether the peer gets CloseConnection.
        if !connection.begin_idle_close() {
            return false;
        }
        self.retiring.fetch_add(1, Ordering::AcqRel);
        let retired = self.connections.retire_unused(connection.handle.0, connection.handle.1);
        if matches!(retired, RetireResult::Stale) {
            connection.cancel_idle_close();
            self.retiring.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        if let RetireResult::Taken(ended) = retired {
            self.finish_retire(ended);
            self.retiring.fetch_sub(1, Ordering::AcqRel);
        }
        context.events().connection_closed();
        let idle = connection.idle_for(self.idle_tracker.now(), clock::now());
        let peer = connection.stream.peer().clone();
        context.events().report(&Event::IdleConnectionClosed { peer, idle, is_evicted });
        self.accept_again();
        true
    }
}
