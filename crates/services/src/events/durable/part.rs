//! The part of a durable channel that other channels lack: its stream, waiting requests and counts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::SystemException;

use super::error::DurableError;
use super::gate::{WaitGate, WaitPlace};
use super::ledger::Retention;
use super::store::{DurableStream, EventStore};
use super::unstored::{UnstoredCounts, UnstoredEvents, UnstoredReason};
use crate::events::router::PushRefusal;

/// Maximum time for which the end of a channel waits for the commit of its events.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The stream of a durable channel, its waiting requests, and its counts.
#[derive(Debug)]
pub(in crate::events) struct DurablePart {
    store: EventStore,
    retention: Retention,
    /// The stream of the channel; empty until the channel has its plain keys, so that a channel
    /// that cannot be served leaves nothing in the store.
    stream: OnceLock<DurableStream>,
    requests: WaitGate,
    unstored: Arc<UnstoredCounts>,
}

#[derive(Debug)]
pub(in crate::events) struct RequestPlace<'p> {
    _of_channel: WaitPlace<'p>,
    _of_store: WaitPlace<'p>,
}

impl DurablePart {
    pub(in crate::events) fn new(store: EventStore, retention: Retention) -> Self {
        let max = store.limits().max_waiting_requests_per_channel;
        let (stream, requests, unstored) = (OnceLock::new(), WaitGate::new(max, max), Arc::default());
        Self { store, retention, stream, requests, unstored }
    }

    /// Counts a request that may wait for the store, until the returned place is dropped. Refuses
    /// the request at the maximum number, and after the end of the store.
    pub(in crate::events) fn enter(&self) -> Result<RequestPlace<'_>, DurableError> {
        if !self.store.takes_requests() {
            return Err(DurableError::Ended);
        }
        let places = self.requests.enter().zip(self.store.requests().enter());
        let (of_channel, of_store) = places.ok_or(DurableError::Busy)?;
        Ok(RequestPlace { _of_channel: of_channel, _of_store: of_store })
    }

    /// Calls `wait`, which waits for a further event, unless the maximum number of threads wait
    /// already.
    pub(in crate::events) fn with_waiting_reader(&self, wait: impl FnOnce()) {
        if let Some(_place) = self.store.readers().enter() {
            wait();
        }
    }

    /// Opens the stream of the channel with this name. Returns true if the store had no such
    /// channel.
    pub(in crate::events) fn open(&self, name: &str) -> Result<bool, DurableError> {
        let _place = self.enter()?;
        let (stream, is_new) = self.store.stream(name, self.retention)?;
        let _ = self.stream.set(stream);
        Ok(is_new)
    }

    /// Returns the stream; an error before [`open`](Self::open).
    pub(in crate::events) fn stream(&self) -> Result<&DurableStream, DurableError> {
        self.stream.get().ok_or(DurableError::NO_CHANNEL)
    }

    pub(in crate::events) fn remove(&self) -> Result<(), DurableError> {
        let _place = self.enter()?;
        self.stream()?.remove()
    }

    /// Refuses an event that may come again, if too many events wait for the disk.
    pub(in crate::events) fn check_room(&self) -> Result<(), DurableError> {
        let has_room = self.stream.get().is_none_or(DurableStream::has_room);
        if has_room { Ok(()) } else { Err(DurableError::Busy) }
    }

    /// Stores an event without acknowledgement, and without waiting. Counts an event that is not
    /// stored.
    pub(in crate::events) fn offer(&self, event: Result<Arc<[u8]>, SystemException>) {
        match (self.stream(), event) {
            (Ok(stream), Ok(event)) => stream.offer(event, &self.unstored),
            (Err(_), Ok(_)) => self.unstored.count(UnstoredReason::Failed),
            (_, Err(_)) => self.unstored.count(UnstoredReason::Size),
        }
    }

    /// Waits until the store's queued requests have results, for [`SETTLE_TIMEOUT`] at most.
    pub(in crate::events) fn settle(&self) {
        if let Some(stream) = self.stream.get() {
            stream.settle(SETTLE_TIMEOUT);
        }
    }

    pub(in crate::events) fn unstored(&self) -> UnstoredEvents {
        self.unstored.read()
    }
}

#[derive(Debug)]
pub(in crate::events) enum PublishFailure {
    Push(PushRefusal),
    System(SystemException),
}
