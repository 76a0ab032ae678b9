//! The counts of events without acknowledgement that are not in the store.

use std::sync::atomic::{AtomicU64, Ordering};

use super::committer::LedgerError;
use super::ledger::LedgerRefusal;
use crate::store::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum UnstoredReason {
    QueueFull,
    Size,
    NoRoom,
    /// The store failed, has ended, or no longer has the channel. The event may be in the store.
    Failed,
}

impl UnstoredReason {
    pub(super) fn of(error: &LedgerError) -> Self {
        match error {
            LedgerError::Store(error) if matches!(**error, StoreError::Full { .. }) => Self::NoRoom,
            LedgerError::Refused(LedgerRefusal::NoRoom) => Self::NoRoom,
            LedgerError::Store(_) | LedgerError::Refused(_) => Self::Failed,
        }
    }
}

/// The number of events without acknowledgement of a durable channel that are not in its store, by
/// reason, since the channel was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnstoredEvents {
    /// Too many events waited for the disk.
    pub queue_full: u64,
    /// The event is too large for a store, or cannot be encoded.
    pub too_large: u64,
    /// The disk is full, or the store has as many bytes of events as it may have.
    pub store_full: u64,
    /// The store failed, has ended, or no longer has the channel. After a failure the event may be
    /// in the store.
    pub commit_failed: u64,
}

impl UnstoredEvents {
    /// Returns the sum over all reasons.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full + self.too_large + self.store_full + self.commit_failed
    }
}

/// The counts by reason. They are for reports, so their ordering is `Relaxed`.
#[derive(Debug, Default)]
pub(in crate::events) struct UnstoredCounts([AtomicU64; 4]);

impl UnstoredCounts {
    pub(in crate::events) fn count(&self, reason: UnstoredReason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::events) fn read(&self) -> UnstoredEvents {
        let [queue_full, size, no_room, failed] =
            [0, 1, 2, 3].map(|reason: usize| self.0[reason].load(Ordering::Relaxed));
        UnstoredEvents { queue_full, too_large: size, store_full: no_room, commit_failed: failed }
    }
}
