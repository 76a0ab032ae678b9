//! The core group of a connection.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Number of a core group, from 1. Zero stands for no group.
pub(in crate::server) type GroupNumber = u8;

/// The state of a connection in the core groups of its lane. Threads change it under the output
/// lock, except for the peer's group.
#[derive(Debug, Default)]
pub(crate) struct ConnectionGroup {
    is_watched: AtomicBool,
    /// The group of the peer's core; zero before the first message.
    peer: AtomicU8,
}

impl ConnectionGroup {
    /// Stores whether the groups watch the connection, and returns whether they watched it before.
    pub(in crate::server) fn set_watched(&self, is_watched: bool) -> bool {
        // Relaxed: the output lock orders the changes.
        self.is_watched.swap(is_watched, Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(in crate::server) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    pub(in crate::server) fn note_peer(&self, group: GroupNumber) {
        // Relaxed: the number publishes no other data.
        self.peer.store(group, Ordering::Relaxed);
    }

    pub(in crate::server) fn peer(&self) -> GroupNumber {
        self.peer.load(Ordering::Relaxed)
    }
}
