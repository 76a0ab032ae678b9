//! The POA operations for applications: activation, and conversions between servants, ids and
//! references (CORBA 3.0.3, section 11.3.8).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_sched::Priority;
use corelane_wire::exception::minor;

use super::error::PoaError;
use super::map::UniqueActivation;
use super::map_tables::DeactivationReason;
use super::servant_manager::ServantManager;
use super::{
    IdAssignment, IdUniqueness, ImplicitActivation, ObjectId, ObjectKey, Poa, PoaCore, RequestProcessing, SlotId,
};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::servant::Servant;

/// Set in the ids that `create_reference` makes in a transient POA; a slot number never has this
/// bit.
const UNPLACED: u64 = 1 << 63;

impl Poa {
    /// Activates a new object that `servant` incarnates, and returns the object's id.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without SYSTEM_ID and RETAIN; [`PoaError::ServantAlreadyActive`]
    /// with UNIQUE_ID; OBJECT_NOT_EXIST 4 once the POA is being destroyed, unless the POA is
    /// persistent and the calling thread runs one of its requests; NO_RESOURCES at 67 million
    /// active objects.
    pub fn activate_object(&self, servant: &Servant) -> Result<ObjectId, PoaError> {
        self.core.check_policy(self.core.retains() && self.core.assigns_ids())?;
        self.core.activate_new(servant, None)
    }

    /// Activates a new object that `servant` incarnates, and returns the object's reference.
    ///
    /// # Errors
    /// The errors of [`activate_object`](Self::activate_object).
    pub fn activate(&self, servant: &Servant) -> Result<ObjectRef, PoaError> {
        self.id_to_reference(&self.activate_object(servant)?)
    }

    /// Activates the object `id` with `servant`. If the object is being deactivated, waits for the
    /// end of the deactivation.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without RETAIN; [`PoaError::ObjectAlreadyActive`] if the object is
    /// active, or if its deactivation waits for the calling upcall;
    /// [`PoaError::ServantAlreadyActive`] with UNIQUE_ID; BAD_PARAM 14 with SYSTEM_ID for an id
    /// that this POA cannot have made; OBJECT_NOT_EXIST 4 once the POA is being destroyed, unless
    /// the calling thread runs one of its requests; NO_RESOURCES at 67 million active objects.
    pub fn activate_object_with_id(&self, id: &ObjectId, servant: &Servant) -> Result<(), PoaError> {
        let core = &self.core;
        core.check_policy(core.retains())?;
        core.check_alive_or_running()?;
        core.check_own_id(&id.0)?;
        let Some(reservation) = core.reserve(&id.0)? else { return Err(PoaError::ObjectAlreadyActive) };
        if core.is_active(&id.0) {
            return Err(PoaError::ObjectAlreadyActive);
        }
        core.insert_keyed(&reservation, &id.0, servant, crate::current::is_running_in(core))
    }

    /// Deactivates the object without waiting for its running requests. When the last of them has
    /// finished, the servant activator, if there is one, etherealizes the object, and the POA drops
    /// its reference to the servant.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without RETAIN; [`PoaError::ObjectNotActive`] if the object is not
    /// active or is being deactivated.
    pub fn deactivate_object(&self, id: &ObjectId) -> Result<(), PoaError> {
        self.core.check_policy(self.core.retains())?;
        self.core.check_not_dead()?;
        self.core.deactivate(&id.0, DeactivationReason::DEACTIVATED)
    }

    /// Creates a reference to a new, inactive object. A later
    /// [`activate_object_with_id`](Self::activate_object_with_id), the default servant or a servant
    /// manager gives the object a servant.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without SYSTEM_ID.
    pub fn create_reference(&self, repository_id: &str) -> Result<ObjectRef, PoaError> {
        self.core.check_policy(self.core.assigns_ids())?;
        self.core.check_not_dead()?;
        Ok(self.core.reference(&self.core.new_id(), repository_id)?)
    }

    /// Creates a reference to the object `id`, active or not.
    ///
    /// # Errors
    /// BAD_PARAM 14 with SYSTEM_ID for an id that this POA cannot have made.
    pub fn create_reference_with_id(&self, id: &ObjectId, repository_id: &str) -> Result<ObjectRef, PoaError> {
        self.core.check_not_dead()?;
        self.core.check_own_id(&id.0)?;
        Ok(self.core.reference(&id.0, repository_id)?)
    }

    /// Returns the id of the object that `servant` incarnates. For an active servant in a POA with
    /// UNIQUE_ID, this object is the servant's active object. Otherwise, in a POA with
    /// IMPLICIT_ACTIVATION, the method activates the servant for a new object. Otherwise, if the
    /// calling thread runs a request on the servant, the method returns the id of the request's
    /// object; in a POA with USE_DEFAULT_SERVANT it does so only for the default servant.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] if the POA has neither USE_DEFAULT_SERVANT, nor RETAIN with
    /// UNIQUE_ID or IMPLICIT_ACTIVATION; [`PoaError::ServantNotActive`]; the errors of
    /// [`activate_object`](Self::activate_object) if the method activates the servant.
    pub fn servant_to_id(&self, servant: &Servant) -> Result<ObjectId, PoaError> {
        let core = &self.core;
        let default = core.policies.request_processing == RequestProcessing::DefaultServant;
        core.check_policy(default || core.knows_servants())?;
        core.check_not_dead()?;
        match core.activation_of(servant)? {
            Some(id) => Ok(id),
            None if core.default_is(servant) || !default => {
                crate::current::upcall_on(core, servant.identity()).ok_or(PoaError::ServantNotActive)
            }
            None => Err(PoaError::ServantNotActive),
        }
    }

    /// Returns a reference to the object that `servant` incarnates. For an active servant in a POA
    /// with UNIQUE_ID, this object is the servant's active object. Otherwise, in a POA with
    /// IMPLICIT_ACTIVATION, the method activates the servant for a new object. Otherwise, in every
    /// POA, it is the object of the request that the calling thread runs on the servant.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] outside an upcall on the servant, if the POA does not have RETAIN
    /// with UNIQUE_ID or IMPLICIT_ACTIVATION; [`PoaError::ServantNotActive`]; the errors of
    /// [`activate_object`](Self::activate_object) if the method activates the servant.
    pub fn servant_to_reference(&self, servant: &Servant) -> Result<ObjectRef, PoaError> {
        let core = &self.core;
        core.check_not_dead()?;
        let running = || crate::current::upcall_on(core, servant.identity());
        let id = if core.knows_servants() {
            core.activation_of(servant)?.or_else(running).ok_or(PoaError::ServantNotActive)?
        } else {
            running().ok_or(PoaError::WrongPolicy)?
        };
        Ok(core.reference(id.as_octets(), servant.repository_id())?)
    }

    /// Returns the servant of the reference's object: its servant in the active object map,
    /// otherwise the default servant.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without RETAIN or USE_DEFAULT_SERVANT; [`PoaError::WrongAdapter`]
    /// for a reference that another POA made; [`PoaError::ObjectNotActive`].
    pub fn reference_to_servant(&self, reference: &ObjectRef) -> Result<Servant, PoaError> {
        let default = self.core.policies.request_processing == RequestProcessing::DefaultServant;
        self.core.check_policy(self.core.retains() || default)?;
        let id = self.reference_to_id(reference)?;
        self.core.servant_of(&id.0)
    }

    /// Returns the id of the reference's object, which need not be active.
    ///
    /// # Errors
    /// [`PoaError::WrongAdapter`] for a reference that another POA made.
    pub fn reference_to_id(&self, reference: &ObjectRef) -> Result<ObjectId, PoaError> {
        let core = &self.core;
        core.check_not_dead()?;
        let orb = core.orb()?;
        let key = reference.binding().local_key(&orb).ok_or(PoaError::WrongAdapter)?;
        let id = ObjectKey::without_hint(key).strip_prefix(&*core.key_prefix).ok_or(PoaError::WrongAdapter)?;
        Ok(ObjectId::from(id))
    }

    /// Returns the servant of the object: its servant in the active object map, otherwise the
    /// default servant.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without RETAIN or USE_DEFAULT_SERVANT;
    /// [`PoaError::ObjectNotActive`].
    pub fn id_to_servant(&self, id: &ObjectId) -> Result<Servant, PoaError> {
        let default = self.core.policies.request_processing == RequestProcessing::DefaultServant;
        self.core.check_policy(self.core.retains() || default)?;
        self.core.check_not_dead()?;
        self.core.servant_of(&id.0)
    }

    /// Returns the reference of an active object.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without RETAIN; [`PoaError::ObjectNotActive`].
    pub fn id_to_reference(&self, id: &ObjectId) -> Result<ObjectRef, PoaError> {
        self.core.check_policy(self.core.retains())?;
        self.core.check_not_dead()?;
        let type_id = self.core.with_servant(&id.0, Servant::repository_id).ok_or(PoaError::ObjectNotActive)?;
        Ok(self.core.reference(&id.0, type_id)?)
    }

    /// Returns the default servant.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without USE_DEFAULT_SERVANT; [`PoaError::NoServant`] if no default
    /// servant is set.
    pub fn servant(&self) -> Result<Servant, PoaError> {
        self.core.check_policy(self.core.policies.request_processing == RequestProcessing::DefaultServant)?;
        self.core.check_not_dead()?;
        self.core.default_servant.load().clone().ok_or(PoaError::NoServant)
    }

    /// Sets the default servant, which serves all objects that are not active.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without USE_DEFAULT_SERVANT.
    pub fn set_servant(&self, servant: &Servant) -> Result<(), PoaError> {
        self.core.check_policy(self.core.policies.request_processing == RequestProcessing::DefaultServant)?;
        self.core.check_alive()?;
        self.core.default_servant.store(Arc::new(Some(servant.clone())));
        Ok(())
    }

    /// Returns the servant manager, if one is set.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without USE_SERVANT_MANAGER.
    pub fn servant_manager(&self) -> Result<Option<ServantManager>, PoaError> {
        self.core.check_policy(self.core.policies.request_processing == RequestProcessing::ServantManager)?;
        self.core.check_not_dead()?;
        Ok(Option::clone(&self.core.servant_manager.load()))
    }

    /// Sets the servant manager of the POA, which is possible once.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without USE_SERVANT_MANAGER; BAD_INV_ORDER 6 if a manager is
    /// already set; OBJ_ADAPTER 4 for the wrong kind of manager (RETAIN needs an activator,
    /// NON_RETAIN a locator).
    pub fn set_servant_manager(&self, manager: ServantManager) -> Result<(), PoaError> {
        let core = &self.core;
        core.check_policy(core.policies.request_processing == RequestProcessing::ServantManager)?;
        core.check_alive()?;
        if core.retains() != matches!(manager, ServantManager::Activator(_)) {
            let code = minor::obj_adapter::NO_SERVANT_MANAGER;
            return Err(SystemException::new(Kind::ObjAdapter, code, Completion::No)
                .with_message("RETAIN needs a servant activator, NON_RETAIN a servant locator")
                .into());
        }
        let is_first = core.servant_manager.update(|set| match set {
            Some(set) => (Some(set.clone()), false),
            None => (Some(manager.clone()), true),
        });
        if is_first {
            return Ok(());
        }
        let code = minor::bad_inv_order::SERVANT_MANAGER_ALREADY_SET;
        Err(SystemException::new(Kind::BadInvOrder, code, Completion::No).into())
    }
}

impl PoaCore {
    pub(super) fn check_policy(&self, allowed: bool) -> Result<(), PoaError> {
        if allowed { Ok(()) } else { Err(PoaError::WrongPolicy) }
    }

    pub(super) fn assigns_ids(&self) -> bool {
        self.policies.id_assignment == IdAssignment::System
    }

    fn knows_servants(&self) -> bool {
        self.retains() && (self.is_unique() || self.is_implicit())
    }

    pub(super) fn is_implicit(&self) -> bool {
        self.policies.implicit_activation == ImplicitActivation::Implicit
    }

    /// Fails once the destruction of the POA has begun; on a thread that runs a request of the POA,
    /// only once the POA is dead.
    fn check_alive_or_running(&self) -> Result<(), SystemException> {
        if crate::current::is_running_in(self) { self.check_not_dead() } else { self.check_alive() }
    }

    pub(super) fn activate_new(
        self: &Arc<Self>,
        servant: &Servant,
        priority: Option<Priority>,
    ) -> Result<ObjectId, PoaError> {
        if self.ids_are_slots() {
            return self.insert_own(servant, priority);
        }
        self.check_alive_or_running()?;
        let id = self.new_id();
        if let (Some(rt), Some(priority)) = (&self.rt, priority) {
            rt.assign(&id, priority)?;
        }
        let Some(reservation) = self.reserve(&id)? else { return Err(PoaError::ObjectAlreadyActive) };
        self.insert_keyed(&reservation, &id, servant, crate::current::is_running_in(self))?;
        drop(reservation);
        Ok(ObjectId::from(&*id))
    }

    /// Returns an id that the POA has not made before. In a persistent POA the id contains the
    /// POA's creation time, so that it differs from the ids of other runs of the server.
    pub(super) fn new_id(&self) -> Vec<u8> {
        let count = self.ids.fetch_add(1, Ordering::Relaxed);
        if self.is_persistent() {
            [self.created_at.to_be_bytes(), count.to_be_bytes()].concat()
        } else {
            (UNPLACED | count).to_be_bytes().to_vec()
        }
    }

    /// With SYSTEM_ID, returns BAD_PARAM 14 for an id that this POA cannot have made.
    pub(super) fn check_own_id(&self, id: &[u8]) -> Result<(), SystemException> {
        if !self.assigns_ids() {
            return Ok(());
        }
        let made = self.ids.load(Ordering::Relaxed);
        let own = if self.is_persistent() {
            // An id contains the creation time of the POA that made it, and a count. The counts of
            // earlier runs are unknown, so an id with an earlier time passes.
            id.split_first_chunk::<8>().zip(id.split_last_chunk::<8>()).is_some_and(|((born, _), (_, count))| {
                let (born, count) = (u64::from_be_bytes(*born), u64::from_be_bytes(*count));
                id.len() == 16 && (born < self.created_at || (born == self.created_at && count < made))
            })
        } else {
            <[u8; SlotId::OCTETS]>::try_from(id).is_ok_and(|octets| {
                let place = SlotId::from_octets(octets);
                let number = u64::from_be_bytes(octets);
                if number & UNPLACED != 0 {
                    number & !UNPLACED < made
                } else {
                    (1..=self.objects.last_generation(place.slot)).contains(&place.generation)
                }
            })
        };
        if own {
            return Ok(());
        }
        Err(SystemException::new(Kind::BadParam, minor::bad_param::INVALID_OBJECT_ID, Completion::No)
            .with_message("the POA did not make this object id"))
    }

    /// Returns the id under which the servant is active in a POA with UNIQUE_ID. Otherwise, with
    /// IMPLICIT_ACTIVATION, activates the servant for a new object. Otherwise, and while a servant
    /// of a POA with UNIQUE_ID is being deactivated, returns `None`.
    fn activation_of(self: &Arc<Self>, servant: &Servant) -> Result<Option<ObjectId>, PoaError> {
        if !self.retains() {
            return Ok(None);
        }
        let implicit = self.is_implicit();
        loop {
            let unique = self.policies.id_uniqueness == IdUniqueness::Unique;
            if unique && let UniqueActivation::At(id) = self.unique_activation(servant) {
                return Ok(Some(id));
            }
            if !implicit {
                return Ok(None);
            }
            match self.activate_new(servant, None) {
                Ok(id) => return Ok(Some(id)),
                Err(PoaError::ServantAlreadyActive)
                    if matches!(self.unique_activation(servant), UniqueActivation::Leaving) =>
                {
                    return Ok(None);
                }
                Err(PoaError::ServantAlreadyActive) => std::thread::yield_now(),
                Err(other) => return Err(other),
            }
        }
    }

    fn default_is(&self, servant: &Servant) -> bool {
        self.default_servant.load().as_ref() == Some(servant)
    }

    fn servant_of(self: &Arc<Self>, id: &[u8]) -> Result<Servant, PoaError> {
        let active = if self.retains() { self.with_servant(id, Servant::clone) } else { None };
        active.or_else(|| self.default_servant.load().clone()).ok_or(PoaError::ObjectNotActive)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MAX_OBJECTS, ObjectKey};
    use super::*;

    #[test]
    fn reserved_system_ids_are_never_slot_ids() {
        let place = SlotId::from_octets(UNPLACED.to_be_bytes());
        assert!(place.slot >= MAX_OBJECTS);
        let key = ObjectKey::System { stamp: 1, poa: place, object: place }.to_octets();
        assert!(matches!(ObjectKey::parse(&key), ObjectKey::System { object, .. } if object == place));
    }
}
