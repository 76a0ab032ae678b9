//! Eviction of idle connections to make room for new ones, and the time that a peer has for its
//! first message. The pure function [`eviction_rank`] ranks the connections, and the lane carries
//! out the eviction.
//!
//! An evicted connection ends at once. None of its requests runs, and none can begin: a thread that
//! runs a message counts as a user of the connection's slot, and the slot is retired only if it has
//! no users. The peer gets CloseConnection, after which the client may safely send an unanswered
//! request again on another connection.

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

/// Maximum number of candidates that one search keeps. Later evictions use the remaining candidates
/// without another search.
const MAX_CANDIDATES: usize = 64;

/// A lane's coarse clock, and the candidates for eviction that the last search found.
#[derive(Debug)]
pub(crate) struct IdleTracker {
    started_at: Monotonic,
    /// The coarse clock: seconds since `started_at`, plus 1. Maintenance updates it, so that each
    /// message reads the time with one atomic load.
    now: AtomicU32,
    /// Candidates for eviction. The last one is evicted next.
    candidates: PiMutex<Vec<(EvictionRank, (u32, u32))>>,
}

impl IdleTracker {
    pub(super) fn new(now: Monotonic) -> Self {
        let candidates = PiMutex::new("silent connections", LockScope::Lane, Vec::new());
        IdleTracker { started_at: now, now: AtomicU32::new(1), candidates }
    }

    #[inline]
    pub(super) fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Sets the coarse clock.
    pub(super) fn advance_clock(&self, now: Monotonic) {
        let seconds = u32::try_from(now.since(self.started_at).as_secs()).unwrap_or(u32::MAX);
        self.now.store(seconds.saturating_add(1), Ordering::Relaxed);
    }
}

impl<S: Architecture<S>> Lane<S> {
    /// Closes the connection that has been idle longest. If no connection has been idle long
    /// enough, evicts the oldest draining connection. Returns false if no connection can be
    /// evicted.
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

    /// Closes the first candidate whose eviction is still permitted.
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

    /// Closes an idle or draining connection because the process has no descriptors left. If this
    /// lane has no such connection, searches the other lanes.
    #[cold]
    pub(super) fn evict_for_descriptor<H: RequestHandler>(&self, handler: &Arc<H>) -> bool {
        self.evict_for_new_connection(handler.context()) || handler.evict_connection()
    }

    fn next_candidate(&self) -> Option<(EvictionRank, (u32, u32))> {
        self.idle_tracker.candidates.lock().pop()
    }

    /// Searches all connections for the next candidates.
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

    /// Returns true if no message of a connection has begun within the pool's
    /// `first_request_timeout`. After the first message has begun, `read_stall_timeout` applies
    /// instead.
    pub(super) fn exceeds_first_request_timeout(&self, connection: &Connection, now: Monotonic) -> bool {
        let Some(timeout) = self.config.connection_limits.first_request_timeout else { return false };
        connection.has_sent_nothing()
            && !connection.has_partial_message()
            && connection.idle_for(self.idle_tracker.now(), now) > timeout
            && !connection.has_unread_input()
    }

    /// Closes an idle connection. Returns false if it is no longer idle.
    #[cold]
    pub(super) fn close_idle(&self, context: &OrbContext, connection: &Connection, evicted: bool) -> bool {
        // The state changes before the slab removes the connection: a thread that no longer finds
        // the connection checks the state to learn if the peer got CloseConnection.
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
        context.events().report(&Event::IdleConnectionClosed { peer, idle, evicted });
        self.accept_again();
        true
    }
}
