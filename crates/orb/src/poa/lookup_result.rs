//! The results of the look-up of a servant, an object or a POA, and the events for which a request
//! may have to wait.

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
    /// The servant, pinned for the call. The target is passed by reference: a copy just after its
    /// fields are written would make the processor wait for the writes (docs/performance.md).
    Servant(&'f UpcallTarget<'f>),
    Forward(ObjectRef),
    /// The request cannot run yet.
    MustWait(WaitFor),
    /// The POA or the servant manager states that the object does not exist. The reply is
    /// OBJECT_NOT_EXIST, or true for `_non_existent`.
    Missing(SystemException),
    Refused(SystemException),
    /// The priority that the request asks for is refused.
    PriorityRefused(SystemException),
}

impl LookupResult<'_> {
    /// Converts an exception that a servant manager raised.
    pub(super) fn from_manager_exception(exception: SystemException) -> Self {
        if exception.kind() == Kind::ObjectNotExist {
            LookupResult::Missing(exception)
        } else {
            LookupResult::Refused(exception)
        }
    }
}

/// The target of an upcall: a servant, and the object that it incarnates for the request.
pub(crate) struct UpcallTarget<'f> {
    pub(crate) poa: &'f Arc<PoaCore>,
    pub(crate) servant: &'f Servant,
    pub(crate) id: &'f [u8],
    /// True if the active object map has the servant under this id.
    pub(crate) in_map: bool,
    /// CORBA priority of the upcall; `None` if the thread keeps its priority.
    pub(crate) priority: Option<Priority>,
    /// The servant locator that lent the servant, if one did. `finish` returns the servant to it.
    pub(super) locator: Option<&'f LocatorServant>,
}

impl UpcallTarget<'_> {
    /// Returns true if a servant locator supplied the servant for this request only.
    pub(crate) fn is_from_locator(&self) -> bool {
        self.locator.is_some()
    }

    pub(crate) fn deactivate(&self) {
        if self.in_map {
            // An error means that another thread has already deactivated the object.
            let _ = self.poa.deactivate(self.id, DeactivationReason::DEACTIVATED);
        }
    }

    /// Ends the request after the operation has returned or failed.
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

/// The location of an object, for the reply to a LocateRequest.
pub(crate) enum LocateResult {
    ObjectHere,
    UnknownObject,
    Forward(ObjectRef),
    /// The location is not known before this event.
    MustWait(WaitFor),
    Exception(SystemException),
}

pub(super) enum IncarnateResult {
    /// The activator or another thread has inserted the object into the map, so the look-up must be
    /// repeated.
    Retry,
    /// Another thread inserts the object into the map or removes it.
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
    /// The adapter activator that creates the child is running.
    MustWait(WaitFor),
    Missing,
    /// The adapter activator raised an exception, for which the client gets OBJ_ADAPTER 1.
    Raised(SystemException),
}

/// An event for which a request waits.
#[derive(Debug)]
pub(crate) enum WaitFor {
    /// The manager of the POA in this slot leaves the holding state.
    Manager(PoaManager, SlotId),
    /// The insertion of this object into the active object map, or its removal, is complete.
    Object(Arc<PoaCore>, ObjectId),
    /// The adapter activator of this POA returns from the creation of the child with this name.
    Adapter(Arc<PoaCore>, String),
    /// The main thread runs the request.
    MainThread(Arc<ServerContext>),
    /// A thread of this lane runs the request.
    Lane(Arc<Lane>),
}

impl WaitFor {
    /// Parks a request until the event happens.
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

    /// Waits for the event on the calling thread. Returns false if the deadline passes first. For
    /// the main thread and for a lane the method returns at once, because their threads get the
    /// request.
    pub(crate) fn wait(&self, deadline: Option<Monotonic>) -> bool {
        match self {
            WaitFor::Manager(manager, place) => manager.wait_released(*place, deadline),
            WaitFor::Object(poa, id) => poa.wait_for_object(id.as_octets(), deadline),
            WaitFor::Adapter(parent, name) => parent.wait_for_child(name, deadline),
            WaitFor::MainThread(_) | WaitFor::Lane(_) => true,
        }
    }
}
