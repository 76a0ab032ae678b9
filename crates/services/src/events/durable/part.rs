//! The part of a channel that makes it durable.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane::SystemException;

use super::ledger::Retention;
use super::store::{DurableError, DurableStream, EventStore};
use crate::events::router::PushRefusal;

/// The store of a durable channel.
#[derive(Debug)]
pub(in crate::events) struct DurablePart {
    store: EventStore,
    retention: Retention,
    /// Empty until the channel has its plain keys, so that a channel that cannot be served leaves nothing in the store.
    stream: OnceLock<DurableStream>,
    /// Events without acknowledgement that are not in the store. A count for reports, so its ordering is `Relaxed`.
    unstored: AtomicU64,
}

impl DurablePart {
    pub(in crate::events) const fn new(store: EventStore, retention: Retention) -> Self {
        Self { store, retention, stream: OnceLock::new(), unstored: AtomicU64::new(0) }
    }

    /// Opens the stream of the channel with this name. Returns true if the store had no such channel.
    pub(in crate::events) fn open(&self, name: &str) -> Result<bool, DurableError> {
        let (stream, is_new) = self.store.stream(name, self.retention)?;
        let _ = self.stream.set(stream);
        Ok(is_new)
    }

    /// Returns the stream; an error before [`open`](Self::open).
    pub(in crate::events) fn stream(&self) -> Result<&DurableStream, DurableError> {
        self.stream.get().ok_or(DurableError::NO_CHANNEL)
    }

    pub(in crate::events) fn unstored(&self) -> u64 {
        self.unstored.load(Ordering::Relaxed)
    }

    pub(in crate::events) fn count_unstored(&self) {
        self.unstored.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reason why an acknowledged event was refused.
#[derive(Debug)]
pub(in crate::events) enum PublishFailure {
    Push(PushRefusal),
    System(SystemException),
}
