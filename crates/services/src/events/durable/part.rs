//! The part of a channel that makes it durable.

use std::sync::atomic::{AtomicU64, Ordering};

use corelane::SystemException;

use super::store::DurableStream;
use crate::events::router::PushRefusal;

/// The store of a durable channel.
#[derive(Debug)]
pub(in crate::events) struct DurablePart {
    pub(in crate::events) stream: DurableStream,
    /// Events without acknowledgement that are not in the store. A count for reports, so its ordering is `Relaxed`.
    unstored: AtomicU64,
}

impl DurablePart {
    pub(in crate::events) const fn new(stream: DurableStream) -> Self {
        Self { stream, unstored: AtomicU64::new(0) }
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
