//! Asking servant managers for servants.

use std::sync::Arc;

use corelane_wire::exception::minor;

use super::error::PoaError;
use super::hold::Hold;
use super::map::Reserved;
use super::servant_manager::{Lent, ServantManager, ServantManagerError, guarded};
use super::{ObjectId, Poa, PoaCore};
use crate::current::Upcall;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::servant::Servant;

/// What asking a servant activator came to.
pub(super) enum Incarnated {
    /// The object is in the map now, or was put there meanwhile.
    LookAgain,
    /// The object is on its way in or out.
    Held(Hold),
    Forward(ObjectRef),
    Refused(SystemException),
}

/// What asking a servant locator came to.
pub(super) enum Preinvoked {
    Servant(Servant, Lent),
    Forward(ObjectRef),
    Refused(SystemException),
}

impl PoaCore {
    /// Has the servant activator make a servant for an object that is not in the map.
    pub(super) fn incarnate(self: &Arc<Self>, id: &[u8]) -> Incarnated {
        let reservation = match self.try_reserve(id) {
            Ok(Reserved::Yes(reservation)) => reservation,
            Ok(Reserved::Busy) => {
                return Incarnated::Held(Hold::Object(Arc::clone(self), ObjectId::from(id)));
            }
            Ok(Reserved::Deadlock) => {
                let exception = SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No);
                return Incarnated::Refused(exception.because("the object is being deactivated by its own request"));
            }
            Err(exception) => return Incarnated::Refused(exception),
        };
        if self.is_active(id) {
            return Incarnated::LookAgain;
        }
        let Some(ServantManager::Activator(activator)) = Option::clone(&self.servant_manager.load()) else {
            return Incarnated::Refused(no_manager());
        };
        let poa = Poa::from_core(Arc::clone(self));
        let answer = {
            let Some(_frame) = Upcall::enter_callback(self) else { return Incarnated::Refused(too_deep()) };
            guarded(&poa, "ServantActivator", "incarnate", || activator.incarnate(&ObjectId::from(id), &poa))
        };
        let servant = match answer {
            Some(Ok(Some(servant))) => servant,
            Some(Ok(None)) => return Incarnated::Refused(no_servant()),
            Some(Err(ServantManagerError::Forward(reference))) => return Incarnated::Forward(reference),
            Some(Err(ServantManagerError::System(exception))) => return Incarnated::Refused(exception),
            None => return Incarnated::Refused(panicked()),
        };
        let entered = self.enter_keyed(&reservation, id, &servant, true);
        self.let_go_of("Servant", || drop(servant));
        match entered {
            Ok(()) => Incarnated::LookAgain,
            Err(PoaError::ServantAlreadyActive) => Incarnated::Refused(
                SystemException::new(Kind::ObjAdapter, minor::obj_adapter::INCARNATE_POLICY, Completion::No)
                    .because("incarnate returned a servant that is active already in a UNIQUE_ID POA"),
            ),
            Err(PoaError::System(exception)) => Incarnated::Refused(exception),
            Err(_) => Incarnated::Refused(no_servant()),
        }
    }

    /// Has the servant locator find a servant for one request.
    pub(super) fn preinvoke(self: &Arc<Self>, id: &[u8], operation: &[u8]) -> Preinvoked {
        let Some(ServantManager::Locator(locator)) = Option::clone(&self.servant_manager.load()) else {
            return Preinvoked::Refused(no_manager());
        };
        let (object_id, poa) = (ObjectId::from(id), Poa::from_core(Arc::clone(self)));
        let answer = {
            let Some(_frame) = Upcall::enter_preinvoke(self, id) else { return Preinvoked::Refused(too_deep()) };
            let operation = String::from_utf8_lossy(operation);
            guarded(&poa, "ServantLocator", "preinvoke", || locator.preinvoke(&object_id, &poa, &operation))
        };
        match answer {
            Some(Ok((Some(servant), cookie))) => {
                let cookie = std::cell::Cell::new(Some(cookie));
                Preinvoked::Servant(servant, Lent { locator, id: object_id, poa, cookie })
            }
            Some(Ok((None, _))) => Preinvoked::Refused(no_servant()),
            Some(Err(ServantManagerError::Forward(reference))) => Preinvoked::Forward(reference),
            Some(Err(ServantManagerError::System(exception))) => Preinvoked::Refused(exception),
            None => Preinvoked::Refused(panicked()),
        }
    }
}

fn no_manager() -> SystemException {
    SystemException::new(Kind::ObjAdapter, minor::obj_adapter::NO_SERVANT_MANAGER, Completion::No)
        .because("the POA has USE_SERVANT_MANAGER and no servant manager")
}

fn no_servant() -> SystemException {
    SystemException::new(Kind::ObjAdapter, minor::obj_adapter::NULL_SERVANT, Completion::No)
        .because("the servant manager returned no servant")
}

fn panicked() -> SystemException {
    SystemException::new(Kind::Unknown, 0, Completion::No).because("the servant manager panicked")
}

#[cold]
pub(super) fn too_deep() -> SystemException {
    SystemException::new(Kind::NoResources, 0, Completion::No).because("upcalls are nested too deep")
}
