//! The results of the look-up of a servant, an object or a POA.

use std::sync::Arc;

use corelane_sched::Priority;
use corelane_sys::clock::Monotonic;

use super::map_tables::DeactivationReason;
use super::parked::ParkResult;
use super::servant_manager::LocatorServant;
use super::{ObjectId, PoaCore, PoaManager, SlotId};
use crate::exception::{SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::servant::Servant;
use crate::server::lane::LaneTask;
use crate::server::parked_request::{ParkedRequest, ResumeOn};
use crate::server::strategy::Lane;
use crate::server_context::ServerContext;

pub(crate) enum LookupResult<'f> {
    /// A reference, because copying fields that were just written makes the processor wait
    /// (docs/performance.md).
    Servant(&'f UpcallTarget<'f>),
    Forward(ObjectRef),
    MustWait(WaitFor),
    /// The reply is OBJECT_NOT_EXIST, or true for `_non_existent`.
    Missing(SystemException),
    Refused(SystemException),
    PriorityRefused(SystemException),
}

impl LookupResult<'_> {
    pub(super) fn from_manager_exception(exception: SystemException) -> Self {
        if exception.kind() == Kind::ObjectNotExist {
            LookupResult::Missing(exception)
        } else {
            LookupResult::Refused(exception)
        }
    }
}

pub(crate) struct UpcallTarget<'f> {
    pub(crate) poa: &'f Arc<PoaCore>,
    pub(crate) servant: &'f Servant,
    pub(crate) id: &'f [u8],
    pub(crate) in_map: bool,
    /// The priority that the thread takes for the upcall; `None` if it keeps its priority.
    pub(crate) priority: Option<Priority>,
    pub(super) locator: Option<&'f LocatorServant>,
}

impl UpcallTarget<'_> {
    pub(crate) fn is_from_locator(&self) -> bool {
        self.locator.is_some()
    }

    pub(crate) fn deactivate(&self) {
        if self.in_map {
            // Another thread may have deactivated the object, so an error is ignored.
            let _ = self.poa.deactivate(self.id, DeactivationReason::DEACTIVATED);
        }
    }

    /// Returns the servant to its servant locator, if a locator supplied it.
    ///
    /// # Errors
    /// The servant locator's exception, which replaces the operation's result.
    #[inline]
    pub(crate) fn finish(&self, operation: &[u8]) -> Result<(), SystemException> {
        match self.locator {
            None => Ok(()),
            Some(lent) => lent.postinvoke(operation, self.servant),
        }
    }
}

pub(crate) enum LocateResult {
    ObjectHere,
    UnknownObject,
    Forward(ObjectRef),
    MustWait(WaitFor),
    Exception(SystemException),
}

pub(super) enum IncarnateResult {
    /// The look-up must be repeated, because the object is now in the map.
    Retry,
    MustWait(WaitFor),
    Forward(ObjectRef),
    Refused(SystemException),
}

pub(super) enum PreinvokeResult {
    Servant(Servant, LocatorServant),
    Forward(ObjectRef),
    Refused(SystemException),
}

pub(super) enum ChildResult {
    Found(Arc<PoaCore>),
    MustWait(WaitFor),
    Missing,
    Raised(SystemException),
}

#[derive(Debug)]
pub(crate) enum WaitFor {
    Manager(PoaManager, SlotId),
    Object(Arc<PoaCore>, ObjectId),
    Adapter(Arc<PoaCore>, String),
    MainThread(Arc<ServerContext>),
    Lane(Arc<Lane>),
}

impl WaitFor {
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
                if lane.hand_over(LaneTask::RunCollocated(held)) {
                    ParkResult::Parked
                } else {
                    ParkResult::Full
                }
            }
        }
    }

    /// Waits until the request can be looked up again; returns false if the deadline passes first.
    /// Does not wait for the main thread or a lane, because their threads run the request.
    pub(crate) fn wait(&self, deadline: Option<Monotonic>) -> bool {
        match self {
            WaitFor::Manager(manager, place) => manager.wait_released(*place, deadline),
            WaitFor::Object(poa, id) => poa.wait_for_object(id.as_octets(), deadline),
            WaitFor::Adapter(parent, name) => parent.wait_for_child(name, deadline),
            WaitFor::MainThread(_) | WaitFor::Lane(_) => true,
        }
    }
}
