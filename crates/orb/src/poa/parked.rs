//! Requests that cannot run yet. None of them occupies a thread: bounded lists keep what is needed
//! to run them later.

use std::sync::Arc;

use corelane_sys::clock::Monotonic;

use super::{ObjectId, PoaCore, PoaManager, SlotId};
use crate::clock;
use crate::server::lane::Task;
use crate::server::parked_request::{ParkedRequest, ResumeOn};
use crate::server::strategy::Lane;
use crate::server_context::ServerContext;

/// Maximum number of requests in one list; further ones are answered with TRANSIENT 1.
pub(crate) const MAX_PARKED_REQUESTS: usize = 1024;
/// Maximum size in bytes of the requests in one list. Stops a peer from filling the memory of a
/// server that is not active yet.
pub(crate) const MAX_PARKED_BYTES: usize = 64 << 20;

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

    /// Returns the number of requests and the time when the oldest was parked; `None` if empty.
    pub(crate) fn oldest(&self) -> Option<(usize, Monotonic)> {
        self.list.first().map(|entry| (self.list.len(), entry.parked_at))
    }

    /// Takes the requests for one POA.
    pub(crate) fn take_poa(&mut self, place: SlotId) -> ParkedRequests {
        let (taken, left) =
            std::mem::take(&mut self.list).into_iter().partition(|entry: &ParkedEntry| entry.poa == place);
        *self = Self::new(left);
        Self::new(taken)
    }

    fn new(list: Vec<ParkedEntry>) -> Self {
        ParkedRequests { bytes: list.iter().map(|entry| entry.request.bytes).sum(), list }
    }

    /// Continues all requests, oldest first.
    pub(crate) fn release(self) {
        for entry in self.list {
            entry.request.release();
        }
    }
}

/// The event that a request waits for.
#[derive(Debug)]
pub(crate) enum WaitFor {
    /// The manager of this POA leaves the holding state.
    Manager(PoaManager, SlotId),
    /// An object finishes entering or leaving the active object map.
    Object(Arc<PoaCore>, ObjectId),
    /// The adapter activator of this POA returns, which is creating the child with this name.
    Adapter(Arc<PoaCore>, String),
    /// The main thread runs the request.
    MainThread(Arc<ServerContext>),
    /// A thread of this lane runs the request.
    Lane(Arc<Lane>),
}

#[derive(Debug)]
pub(crate) enum ParkResult {
    Parked,
    /// The event has already happened.
    AlreadySignalled(ParkedRequest),
    /// The list is full: TRANSIENT 1.
    Full,
}

impl WaitFor {
    /// Parks a request until the event.
    pub(crate) fn park(&self, held: ParkedRequest) -> ParkResult {
        match self {
            WaitFor::Manager(manager, place) => manager.park(*place, held),
            WaitFor::Object(poa, id) => poa.park_for_object(id.as_octets(), held),
            WaitFor::Adapter(parent, name) => parent.park_for_child(name, held),
            WaitFor::MainThread(core) => {
                let ParkedRequest { bytes: octets, resume } = held;
                let listed = core.main_queue().push_request(Box::new(move || resume(ResumeOn::CurrentThread)), octets);
                if listed { ParkResult::Parked } else { ParkResult::Full }
            }
            WaitFor::Lane(lane) => {
                if lane.hand_over(Task::RunLocal(held)) {
                    ParkResult::Parked
                } else {
                    ParkResult::Full
                }
            }
        }
    }

    /// Waits for the event on the calling thread. Returns false past the deadline. Returns at once
    /// for the main thread or a lane, which are given the work instead.
    pub(crate) fn wait(&self, deadline: Option<Monotonic>) -> bool {
        match self {
            WaitFor::Manager(manager, place) => manager.wait_released(*place, deadline),
            WaitFor::Object(poa, id) => poa.wait_for_object(id.as_octets(), deadline),
            WaitFor::Adapter(parent, name) => parent.wait_for_child(name, deadline),
            WaitFor::MainThread(_) | WaitFor::Lane(_) => true,
        }
    }
}
