//! The tables of the active object map, as data. `map` has the rules by which they change.

use std::collections::HashMap;

use corelane_sched::Priority;

use super::parked::ParkedRequests;
use crate::servant::Servant;

/// An entry of the POA's own part of the map.
#[derive(Debug)]
pub(super) struct ActiveObject {
    pub(super) servant: Servant,
    /// The object's own priority, if the POA has server-declared priorities.
    pub(super) priority: Option<Priority>,
}

/// The tables that only changes of the map use.
#[derive(Debug, Default)]
pub(super) struct MapTables {
    pub(super) busy: HashMap<Box<[u8]>, BusyId>,
    pub(super) by_servant: HashMap<usize, Activations>,
}

/// The place or number of a servant's activations. Small, because every servant has one: it omits
/// the slot's generation, so readers check that the servant is still there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Activations {
    /// UNIQUE_ID: being inserted.
    Entering,
    /// UNIQUE_ID: in this slot of the POA's own table.
    Own(u32),
    /// UNIQUE_ID: in this slot of the ORB's table of keys.
    Keyed(u32),
    /// MULTIPLE_ID with a servant activator: number of activations, from which
    /// `remaining_activations` follows.
    Count(u32),
}

/// An id that a thread is changing.
#[derive(Debug)]
pub(super) struct BusyId {
    /// Set while the id is being removed: the leaving servant.
    pub(super) leaving: Option<LeavingServant>,
    /// Number of the thread that changes the id. 0 if no thread works on it yet: a deactivation
    /// waits for the running requests.
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
    /// The POA is being destroyed, or its manager was deactivated.
    pub(super) cleanup: bool,
    /// The servant activator etherealizes the object.
    pub(super) etherealize: bool,
}

impl DeactivationReason {
    pub(super) const DEACTIVATED: DeactivationReason = DeactivationReason { cleanup: false, etherealize: true };
}
