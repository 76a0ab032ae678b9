//! Parked requests, which cannot run yet. A parked request occupies no thread: a bounded list keeps
//! the data that are needed to run it later.

use corelane_sys::clock::Monotonic;

use crate::clock;
use crate::object_key::SlotId;
use crate::server::parked_request::{MAX_PARKED_BYTES, MAX_PARKED_REQUESTS, ParkedRequest};

/// Parked requests in the order of their arrival.
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
    /// Appends a request for the POA at `place`.
    ///
    /// # Errors
    /// The request, if the list is full.
    pub(crate) fn push(&mut self, place: SlotId, held: ParkedRequest) -> Result<(), ParkedRequest> {
        if self.list.len() >= MAX_PARKED_REQUESTS || self.bytes.saturating_add(held.bytes) > MAX_PARKED_BYTES {
            return Err(held);
        }
        self.bytes += held.bytes;
        self.list.push(ParkedEntry { poa: place, request: held, parked_at: clock::now() });
        Ok(())
    }

    /// Returns the number of requests and the time at which the oldest was parked; `None` if no
    /// request is parked.
    pub(crate) fn oldest(&self) -> Option<(usize, Monotonic)> {
        self.list.first().map(|entry| (self.list.len(), entry.parked_at))
    }

    /// Removes the requests for the POA at `place`, and returns them.
    pub(crate) fn take_poa(&mut self, place: SlotId) -> ParkedRequests {
        let (taken, left) =
            std::mem::take(&mut self.list).into_iter().partition(|entry: &ParkedEntry| entry.poa == place);
        *self = Self::new(left);
        Self::new(taken)
    }

    fn new(list: Vec<ParkedEntry>) -> Self {
        ParkedRequests { bytes: list.iter().map(|entry| entry.request.bytes).sum(), list }
    }

    /// Continues all parked requests, oldest first.
    pub(crate) fn release(self) {
        for entry in self.list {
            entry.request.release();
        }
    }
}

#[derive(Debug)]
pub(crate) enum ParkResult {
    Parked,
    /// The awaited event has already happened, so the request was not parked.
    AlreadySignalled(ParkedRequest),
    /// The list is full. The client gets TRANSIENT 1.
    Full,
}
