//! The operations of a real-time POA (`RTPortableServer::POA`; Real-time CORBA 1.2, section 2.16).

use std::sync::Arc;

use corelane_sched::{Priority, PriorityBand};

use super::{ObjectId, Place, Poa, PoaCore, PoaError};
use crate::object::ObjectRef;
use crate::rt::poa::RtPoa;
use crate::servant::Servant;

impl Poa {
    /// [`activate_object`](Self::activate_object) for an object with a priority of its own.
    ///
    /// # Errors
    /// Those of `activate_object`; [`PoaError::WrongPolicy`] unless priorities are server declared, and with
    /// IMPLICIT_ACTIVATION; BAD_PARAM for a priority out of range, or that no lane or band has.
    pub fn activate_object_with_priority(&self, servant: &Servant, priority: i16) -> Result<ObjectId, PoaError> {
        let core = &self.core;
        let priority = core.declaring()?.check_priority(priority)?;
        core.check_policy(core.retains() && core.assigns_ids())?;
        core.activate_new(servant, Some(priority))
    }

    /// [`activate_object_with_id`](Self::activate_object_with_id) for an object with a priority of its own.
    ///
    /// # Errors
    /// Those of `activate_object_with_id` and of [`activate_object_with_priority`](Self::activate_object_with_priority);
    /// BAD_INV_ORDER 18 if the object has another priority.
    pub fn activate_object_with_id_and_priority(
        &self,
        id: &ObjectId,
        servant: &Servant,
        priority: i16,
    ) -> Result<(), PoaError> {
        let core = &self.core;
        let rt = core.declaring()?;
        let priority = rt.check_priority(priority)?;
        core.check_policy(core.retains())?;
        core.check_own_id(&id.0)?;
        rt.assign(&id.0, priority)?;
        self.activate_object_with_id(id, servant)
    }

    /// [`create_reference`](Self::create_reference) to an object with a priority of its own.
    ///
    /// # Errors
    /// Those of `create_reference` and of [`activate_object_with_priority`](Self::activate_object_with_priority).
    pub fn create_reference_with_priority(&self, repository_id: &str, priority: i16) -> Result<ObjectRef, PoaError> {
        let core = &self.core;
        let rt = core.declaring()?;
        let priority = rt.check_priority(priority)?;
        core.check_policy(core.assigns_ids())?;
        core.check_not_dead()?;
        let id = core.new_id();
        rt.assign(&id, priority)?;
        Ok(core.reference(&id, repository_id)?)
    }

    /// [`create_reference_with_id`](Self::create_reference_with_id) to an object with a priority of its own.
    ///
    /// # Errors
    /// Those of `create_reference_with_id` and of
    /// [`activate_object_with_id_and_priority`](Self::activate_object_with_id_and_priority).
    pub fn create_reference_with_id_and_priority(
        &self,
        id: &ObjectId,
        repository_id: &str,
        priority: i16,
    ) -> Result<ObjectRef, PoaError> {
        let core = &self.core;
        let rt = core.declaring()?;
        let priority = rt.check_priority(priority)?;
        core.check_not_dead()?;
        core.check_own_id(&id.0)?;
        rt.assign(&id.0, priority)?;
        Ok(core.reference(&id.0, repository_id)?)
    }
}

impl PoaCore {
    /// WrongPolicy unless objects may have priorities of their own.
    fn declaring(&self) -> Result<&RtPoa, PoaError> {
        self.rt.as_ref().filter(|rt| rt.is_server_declared() && !self.is_implicit()).ok_or(PoaError::WrongPolicy)
    }

    /// Whether connections can carry this band to the POA's objects; `None` without priorities.
    pub(crate) fn carries(&self, band: PriorityBand) -> Option<bool> {
        self.rt.as_ref()?.carries(band)
    }

    /// The priority of an object's own.
    pub(super) fn priority_of(self: &Arc<Self>, id: &[u8]) -> Option<Priority> {
        if self.has_places()
            && let Ok(octets) = id.try_into()
            && let Some(active) = self.own(Place::from_octets(octets))
        {
            return active.priority;
        }
        self.rt.as_ref()?.assigned(id)
    }
}
