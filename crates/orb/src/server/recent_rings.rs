//! The connections in shared memory that the threads of a lane poll.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Number of connections in shared memory that a thread polls besides the one that it served last.
pub(super) const MAX_OTHERS: usize = 7;
/// Number of waits without a message of a connection after which threads no longer poll it.
const MAX_IDLE_WAITS: u32 = 256;
const NONE: u64 = u64::MAX;

/// The connections in shared memory whose messages threads of the lane have run last.
#[derive(Debug)]
pub(super) struct RecentRings {
    rings: [RecentRing; MAX_OTHERS + 1],
    next: AtomicUsize,
}

#[derive(Debug)]
struct RecentRing {
    token: AtomicU64,
    /// Number of waits in which a thread has polled the connection since its last message.
    idle_waits: AtomicU32,
}

impl Default for RecentRings {
    fn default() -> Self {
        let ring = |_| RecentRing { token: AtomicU64::new(NONE), idle_waits: AtomicU32::new(0) };
        RecentRings { rings: std::array::from_fn(ring), next: AtomicUsize::new(0) }
    }
}

// Relaxed: a token publishes no other data, and a lost or doubled token only affects polling.
impl RecentRings {
    pub(super) fn note(&self, token: u64) {
        let noted = self.rings.iter().find(|ring| ring.token.load(Ordering::Relaxed) == token);
        let ring = noted.unwrap_or_else(|| &self.rings[self.next.fetch_add(1, Ordering::Relaxed) % self.rings.len()]);
        ring.token.store(token, Ordering::Relaxed);
        ring.idle_waits.store(0, Ordering::Relaxed);
    }

    pub(super) fn forget(&self, token: u64) {
        for ring in self.rings.iter().filter(|ring| ring.token.load(Ordering::Relaxed) == token) {
            ring.token.store(NONE, Ordering::Relaxed);
        }
    }

    /// Returns the connections besides `served` that a thread polls in its next wait. Forgets
    /// connections that have been idle.
    pub(super) fn others(&self, served: u64) -> impl Iterator<Item = u64> {
        self.rings.iter().filter_map(move |ring| {
            let token = ring.token.load(Ordering::Relaxed);
            if token == NONE || token == served {
                return None;
            }
            let waits = ring.idle_waits.load(Ordering::Relaxed);
            if waits >= MAX_IDLE_WAITS {
                ring.token.store(NONE, Ordering::Relaxed);
                return None;
            }
            ring.idle_waits.store(waits + 1, Ordering::Relaxed);
            Some(token)
        })
    }
}
