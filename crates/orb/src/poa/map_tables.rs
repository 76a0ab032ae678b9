//! The tables of the active object map. The rules for changing them are in `map`.

use std::collections::HashMap;

use corelane_sched::Priority;

use super::parked::ParkedRequests;
use crate::servant::Servant;

/// An entry of the part of the map that belongs to the POA.
#[derive(Debug)]
pub(super) struct ActiveObject {
    pub(super) servant: Servant,
    /// The object's own priority, if the POA has server-declared priorities.
    pub(super) priority: Option<Priority>,
}

/// The tables that are needed only to change the map.
#[derive(Debug, Default)]
pub(super) struct MapTables {
    pub(super) busy: HashMap<Box<[u8]>, BusyId>,
    pub(super) by_servant: HashMap<usize, Activations>,
}

/// The place of a servant's activation, or the number of activations. The type is small, because
/// every servant has one. It omits the slot's generation, so readers check that the slot still has
/// this servant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Activations {
    /// UNIQUE_ID: the servant is being inserted.
    Entering,
    /// UNIQUE_ID: the servant is in this slot of the POA's own table.
    Own(u32),
    /// UNIQUE_ID: the servant is in this slot of the ORB's table of keys.
    Keyed(u32),
    /// MULTIPLE_ID with a servant activator: number of activations. `remaining_activations` follows
    /// from this number.
    Count(u32),
}

/// An id that a thread changes.
#[derive(Debug)]
pub(super) struct BusyId {
    /// The servant that leaves, while the id is being removed.
    pub(super) leaving: Option<LeavingServant>,
    /// Number of the thread that changes the id. 0 if a deactivation waits for the running
    /// requests, so that no thread works on the id yet.
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
    /// The reason is the destruction of the POA or the deactivation of its manager.
    pub(super) cleanup: bool,
    /// True if the servant activator etherealizes the object.
    pub(super) etherealize: bool,
}

impl DeactivationReason {
    pub(super) const DEACTIVATED: DeactivationReason = DeactivationReason { cleanup: false, etherealize: true };
}
