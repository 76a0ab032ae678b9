//! Calls of servant managers, which supply servants.

use std::sync::Arc;

use corelane_wire::exception::minor;

use super::error::PoaError;
use super::lookup_result::{IncarnateResult, PreinvokeResult, WaitFor};
use super::map::ReserveResult;
use super::servant_manager::{LocatorServant, ServantManager, ServantManagerError, run_guarded};
use super::{ObjectId, Poa, PoaCore};
use crate::current::UpcallScope;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

impl PoaCore {
    pub(super) fn incarnate(self: &Arc<Self>, id: &[u8]) -> IncarnateResult {
        let reservation = match self.try_reserve(id) {
            Ok(ReserveResult::Yes(reservation)) => reservation,
            Ok(ReserveResult::Busy) => {
                return IncarnateResult::MustWait(WaitFor::Object(Arc::clone(self), ObjectId::from(id)));
            }
            Ok(ReserveResult::Deadlock) => {
                let exception = SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No);
                return IncarnateResult::Refused(
                    exception.with_message("the object is being deactivated by its own request"),
                );
            }
            Err(exception) => return IncarnateResult::Refused(exception),
        };
        if self.is_active(id) {
            return IncarnateResult::Retry;
        }
        let Some(ServantManager::Activator(activator)) = Option::clone(&self.servant_manager.load()) else {
            return IncarnateResult::Refused(no_manager());
        };
        let poa = Poa::from_core(Arc::clone(self));
        let answer = {
            let Some(_frame) = UpcallScope::enter_callback(self) else { return IncarnateResult::Refused(too_deep()) };
            run_guarded(&poa, "ServantActivator", "incarnate", || activator.incarnate(&ObjectId::from(id), &poa))
        };
        let servant = match answer {
            Some(Ok(Some(servant))) => servant,
            Some(Ok(None)) => return IncarnateResult::Refused(no_servant()),
            Some(Err(ServantManagerError::Forward(reference))) => return IncarnateResult::Forward(reference),
            Some(Err(ServantManagerError::System(exception))) => return IncarnateResult::Refused(exception),
            None => return IncarnateResult::Refused(panicked()),
        };
        let entered = self.insert_keyed(&reservation, id, &servant, true);
        self.drop_guarded("Servant", || drop(servant));
        match entered {
            Ok(()) => IncarnateResult::Retry,
            Err(PoaError::ServantAlreadyActive) => IncarnateResult::Refused(
                SystemException::new(Kind::ObjAdapter, minor::obj_adapter::INCARNATE_POLICY, Completion::No)
                    .with_message("incarnate returned a servant that is active already in a UNIQUE_ID POA"),
            ),
            Err(PoaError::System(exception)) => IncarnateResult::Refused(exception),
            Err(_) => IncarnateResult::Refused(no_servant()),
        }
    }

    pub(super) fn preinvoke(self: &Arc<Self>, id: &[u8], operation: &[u8]) -> PreinvokeResult {
        let Some(ServantManager::Locator(locator)) = Option::clone(&self.servant_manager.load()) else {
            return PreinvokeResult::Refused(no_manager());
        };
        let (object_id, poa) = (ObjectId::from(id), Poa::from_core(Arc::clone(self)));
        let answer = {
            let Some(_frame) = UpcallScope::enter_preinvoke(self, id) else {
                return PreinvokeResult::Refused(too_deep());
            };
            let operation = String::from_utf8_lossy(operation);
            run_guarded(&poa, "ServantLocator", "preinvoke", || locator.preinvoke(&object_id, &poa, &operation))
        };
        match answer {
            Some(Ok((Some(servant), cookie))) => {
                let cookie = std::cell::Cell::new(Some(cookie));
                PreinvokeResult::Servant(servant, LocatorServant { locator, id: object_id, poa, cookie })
            }
            Some(Ok((None, _))) => PreinvokeResult::Refused(no_servant()),
            Some(Err(ServantManagerError::Forward(reference))) => PreinvokeResult::Forward(reference),
            Some(Err(ServantManagerError::System(exception))) => PreinvokeResult::Refused(exception),
            None => PreinvokeResult::Refused(panicked()),
        }
    }
}

fn no_manager() -> SystemException {
    SystemException::new(Kind::ObjAdapter, minor::obj_adapter::NO_SERVANT_MANAGER, Completion::No)
        .with_message("the POA has USE_SERVANT_MANAGER and no servant manager")
}

fn no_servant() -> SystemException {
    SystemException::new(Kind::ObjAdapter, minor::obj_adapter::NULL_SERVANT, Completion::No)
        .with_message("the servant manager returned no servant")
}

fn panicked() -> SystemException {
    SystemException::new(Kind::Unknown, 0, Completion::No).with_message("the servant manager panicked")
}

#[cold]
pub(super) fn too_deep() -> SystemException {
    SystemException::new(Kind::NoResources, 0, Completion::No).with_message("upcalls are nested too deep")
}
