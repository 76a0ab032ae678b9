//! The tables of the active object map.

use std::collections::HashMap;

use corelane_sched::Priority;

use super::parked::ParkedRequests;
use crate::servant::Servant;

#[derive(Debug)]
pub(super) struct ActiveObject {
    pub(super) servant: Servant,
    pub(super) priority: Option<Priority>,
}

#[derive(Debug, Default)]
pub(super) struct MapTables {
    pub(super) busy: HashMap<Box<[u8]>, BusyId>,
    pub(super) by_servant: HashMap<usize, Activations>,
}

/// The activations of a servant. The generation of a slot is omitted to keep the type small, so
/// readers check that the slot has this servant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Activations {
    Entering,
    Own(u32),
    Keyed(u32),
    /// The number of activations under MULTIPLE_ID, from which `etherealize` gets
    /// `remaining_activations`.
    Count(u32),
}

#[derive(Debug)]
pub(super) struct BusyId {
    pub(super) leaving: Option<LeavingServant>,
    /// Number of the thread that changes the id; 0 while a deactivation waits for running requests.
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
    /// True at the destruction of the POA and the deactivation of its manager.
    pub(super) cleanup: bool,
    pub(super) etherealize: bool,
}

impl DeactivationReason {
    pub(super) const DEACTIVATED: DeactivationReason = DeactivationReason { cleanup: false, etherealize: true };
}
