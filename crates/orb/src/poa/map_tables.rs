//! The tables of the active object map. The module `map` has the operations that change them.

use std::collections::HashMap;

use corelane_sched::Priority;

use super::parked::ParkedRequests;
use crate::servant::Servant;

/// An active object in the POA's slab (`PoaCore::objects`).
#[derive(Debug)]
pub(super) struct ActiveObject {
    pub(super) servant: Servant,
    /// The CORBA priority that the application gave to the object at its activation; `None` if it
    /// gave none.
    pub(super) priority: Option<Priority>,
}

/// The tables for changes of the active object map. The look-up of an active object does not read
/// them.
#[derive(Debug, Default)]
pub(super) struct MapTables {
    pub(super) busy: HashMap<Box<[u8]>, BusyId>,
    pub(super) by_servant: HashMap<usize, Activations>,
}

/// The slot of a servant's activation, or the number of its activations. The type is small, because
/// the map has a value for every servant. It omits the slot's generation, so readers check that the
/// slot still has this servant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Activations {
    /// UNIQUE_ID: the servant is being inserted.
    Entering,
    /// UNIQUE_ID: the servant is in this slot of the POA's slab.
    Own(u32),
    /// UNIQUE_ID: the servant is in this slot of the ORB's table of keys.
    Keyed(u32),
    /// MULTIPLE_ID with a servant activator: the number of activations, which decides
    /// `remaining_activations`.
    Count(u32),
}

/// A busy id: an object id whose object a thread inserts or removes.
#[derive(Debug)]
pub(super) struct BusyId {
    /// The servant of the object that is being removed; `None` during an insertion.
    pub(super) leaving: Option<LeavingServant>,
    /// Number of the thread that changes the id. 0 while a deactivation waits for running requests
    /// and no thread works on it.
    pub(super) thread: u64,
    pub(super) held: ParkedRequests,
}

#[derive(Debug)]
pub(super) struct LeavingServant {
    pub(super) servant: Servant,
    pub(super) why: DeactivationReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeactivationReason {
    /// True if the reason is the destruction of the POA or the deactivation of its manager.
    pub(super) cleanup: bool,
    /// True if the servant activator etherealizes the object.
    pub(super) etherealize: bool,
}

impl DeactivationReason {
    pub(super) const DEACTIVATED: DeactivationReason = DeactivationReason { cleanup: false, etherealize: true };
}
