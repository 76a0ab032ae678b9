//! Parked requests, which cannot run yet and occupy no thread.

use corelane_sys::clock::Monotonic;

use crate::clock;
use crate::object_key::SlotId;
use crate::server::parked_request::{MAX_PARKED_BYTES, MAX_PARKED_REQUESTS, ParkedRequest};

#[derive(Debug, Default)]
pub(crate) struct ParkedRequests {
    list: Vec<ParkedEntry>,
    bytes: usize,
}

#[derive(Debug)]
struct ParkedEntry {
    poa: SlotId,
    request: ParkedRequest,
    parked_at: Monotonic,
}

impl ParkedRequests {
    /// Adds a request. If the list has no room for the request, returns it as the error.
    pub(crate) fn push(&mut self, place: SlotId, held: ParkedRequest) -> Result<(), ParkedRequest> {
        if self.list.len() >= MAX_PARKED_REQUESTS || self.bytes.saturating_add(held.bytes) > MAX_PARKED_BYTES {
            return Err(held);
        }
        self.bytes += held.bytes;
        self.list.push(ParkedEntry { poa: place, request: held, parked_at: clock::now() });
        Ok(())
    }

    pub(crate) fn oldest(&self) -> Option<(usize, Monotonic)> {
        self.list.first().map(|entry| (self.list.len(), entry.parked_at))
    }

    pub(crate) fn take_poa(&mut self, place: SlotId) -> ParkedRequests {
        let (taken, left) =
            std::mem::take(&mut self.list).into_iter().partition(|entry: &ParkedEntry| entry.poa == place);
        *self = Self::new(left);
        Self::new(taken)
    }

    fn new(list: Vec<ParkedEntry>) -> Self {
        ParkedRequests { bytes: list.iter().map(|entry| entry.request.bytes).sum(), list }
    }

    pub(crate) fn release(self) {
        for entry in self.list {
            entry.request.release();
        }
    }
}

#[derive(Debug)]
pub(crate) enum ParkResult {
    Parked,
    AlreadySignalled(ParkedRequest),
    /// The list has no room for the request, so the client gets TRANSIENT 1.
    Full,
}
