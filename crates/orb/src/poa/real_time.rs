//! The operations of a real-time POA (`RTPortableServer::POA`; Real-time CORBA 1.2, section 2.16).

use std::sync::Arc;

use corelane_sched::{Priority, PriorityBand};

use super::{ObjectId, Poa, PoaCore, PoaError, SlotId};
#[cfg(feature = "core-pool")]
use crate::address::LaneEndpoint;
#[cfg(feature = "core-pool")]
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::rt::poa::RtPoa;
use crate::servant::Servant;

impl Poa {
    /// Activates a new object as [`activate_object`](Self::activate_object) does, and gives the
    /// object the CORBA priority at which its requests run.
    ///
    /// # Errors
    /// The errors of `activate_object`. [`PoaError::WrongPolicy`] with IMPLICIT_ACTIVATION, or if
    /// the POA's priorities are not server-declared. BAD_PARAM for a priority that is out of range,
    /// or that no lane or band has.
    pub fn activate_object_with_priority(&self, servant: &Servant, priority: i16) -> Result<ObjectId, PoaError> {
        let core = &self.core;
        let priority = core.declaring()?.check_priority(priority)?;
        core.check_policy(core.retains() && core.assigns_ids())?;
        core.activate_new(servant, Some(priority))
    }

    /// Activates the object `id` as [`activate_object_with_id`](Self::activate_object_with_id)
    /// does, and gives the object the CORBA priority at which its requests run.
    ///
    /// # Errors
    /// The errors of `activate_object_with_id` and
    /// [`activate_object_with_priority`](Self::activate_object_with_priority); BAD_INV_ORDER 18 if
    /// the object already has another priority.
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

    /// Creates a reference to a new object as [`create_reference`](Self::create_reference) does,
    /// and gives the object the CORBA priority at which its requests run.
    ///
    /// # Errors
    /// The errors of `create_reference` and
    /// [`activate_object_with_priority`](Self::activate_object_with_priority).
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

    /// Creates a reference to the object `id` as
    /// [`create_reference_with_id`](Self::create_reference_with_id) does, and gives the object the
    /// CORBA priority at which its requests run.
    ///
    /// # Errors
    /// The errors of `create_reference_with_id` and
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

    /// Creates a reference to the object `id` as
    /// [`create_reference_with_id`](Self::create_reference_with_id) does, with the addresses of
    /// `endpoint` in place of the addresses of the POA's pool.
    ///
    /// # Errors
    /// The errors of `create_reference_with_id`. BAD_PARAM if the endpoint does not belong to the
    /// POA's pool.
    #[cfg(feature = "core-pool")]
    pub fn create_reference_at(
        &self,
        id: &ObjectId,
        repository_id: &str,
        endpoint: &crate::rt::TaskEndpoint,
    ) -> Result<ObjectRef, PoaError> {
        let core = &self.core;
        core.check_not_dead()?;
        core.check_own_id(&id.0)?;
        let of_pool = |rt: &&RtPoa| rt.pool.as_ref().is_some_and(|pool| pool.id == endpoint.pool());
        let Some(rt) = core.rt.as_ref().filter(of_pool) else {
            let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
            return Err(exception.with_message("the endpoint belongs to another pool than that of the POA").into());
        };
        let orb = core.orb()?;
        let address = |address| LaneEndpoint { endpoint: orb.published(address), priority: -1 };
        let lanes = endpoint.addresses().iter().map(address).collect();
        Ok(rt.make_reference_at(&orb, repository_id, &core.object_key(&id.0), core.priority_of(&id.0), lanes))
    }
}

impl PoaCore {
    fn declaring(&self) -> Result<&RtPoa, PoaError> {
        self.rt.as_ref().filter(|rt| rt.is_server_declared() && !self.is_implicit()).ok_or(PoaError::WrongPolicy)
    }

    /// Returns true if requests of the band `band` can run in the POA; `None` if the POA has no
    /// priority model.
    pub(crate) fn can_carry_band(&self, band: PriorityBand) -> Option<bool> {
        self.rt.as_ref()?.can_carry_band(band)
    }

    pub(super) fn priority_of(self: &Arc<Self>, id: &[u8]) -> Option<Priority> {
        if self.ids_are_slots()
            && let Ok(octets) = id.try_into()
            && let Some(active) = self.own_object(SlotId::from_octets(octets))
        {
            return active.priority;
        }
        self.rt.as_ref()?.object_priority(id)
    }
}
