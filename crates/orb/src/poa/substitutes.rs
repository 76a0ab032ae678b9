//! Objects that serve the requests for other object ids, without a servant manager and without a
//! forward.

use super::table::PoaTable;
use super::{ObjectId, Poa, PoaError, RequestProcessing};
use crate::object::ObjectRef;

impl Poa {
    /// Lets another object of this ORB serve the requests for the object `id`, until
    /// [`remove_substitute_object`](Self::remove_substitute_object). The POA must have NON_RETAIN
    /// and USE_SERVANT_MANAGER. Destroying the POA does not remove substitutes.
    ///
    /// If `substitute` has a plain key ([`Orb::bind_corbaloc_key`](crate::Orb::bind_corbaloc_key)),
    /// the object to which the key is bound now serves the requests.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`]; BAD_PARAM if `substitute` is the object itself, is not an object
    /// of this ORB, or has a substitute, or if the id has a substitute; BAD_INV_ORDER 4 after
    /// shutdown.
    pub fn set_substitute_object(&self, id: &ObjectId, substitute: &ObjectRef) -> Result<(), PoaError> {
        let core = &self.core;
        core.check_policy(!core.retains() && core.policies.request_processing == RequestProcessing::ServantManager)?;
        core.check_not_dead()?;
        let orb = core.orb()?;
        Ok(PoaTable::of_server(&orb).bind_substitute(&core.object_key(&id.0), substitute)?)
    }

    /// Removes the substitute of the object `id`. Returns false if the id has no substitute.
    pub fn remove_substitute_object(&self, id: &ObjectId) -> bool {
        let core = &self.core;
        core.orb().is_ok_and(|orb| PoaTable::of_server(&orb).unbind_plain(&core.object_key(&id.0)))
    }
}
