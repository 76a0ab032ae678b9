//! The Portable Object Adapter: servants, objects, and which of them answers a request (CORBA 3.0.3, chapter 11).
//!
//! Invariant: a request finds its servant without a lock; whoever finds it holds it until the upcall is over, so a deactivated
//! object's servant is let go only when its last request is done.

mod demux;
mod error;
mod key;
mod local;
mod manager;
mod policies;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::slots::{Retired, SlotTable};

pub(crate) use demux::{Adapters, Found, Located, Target, no_such_object};
pub use error::PoaError;
pub(crate) use key::{Key, Place};
pub(crate) use local::{call_local, invoke_local, locate_local, send_local};
pub(crate) use manager::Held;
pub use manager::{ManagerState, PoaManager};
pub use policies::{
    IdAssignment, IdUniqueness, ImplicitActivation, Lifespan, OnPanic, PoaPolicies, PolicyIndex, RequestProcessing,
    ServantRetention, Threading,
};

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::servant::Servant;

/// Objects that one POA can have active.
const MOST_OBJECTS: u32 = 1 << 26;

/// What tells the objects of a POA apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(Box<[u8]>);

impl ObjectId {
    /// The octets.
    #[must_use]
    pub fn as_octets(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for ObjectId {
    fn from(octets: &[u8]) -> Self {
        ObjectId(octets.into())
    }
}

impl From<&str> for ObjectId {
    fn from(text: &str) -> Self {
        ObjectId(text.as_bytes().into())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({})", self.0.escape_ascii())
    }
}

/// A POA; clones are the same POA.
#[derive(Clone)]
pub struct Poa {
    core: Arc<PoaCore>,
}

/// What a POA is made of.
pub(crate) struct PoaCore {
    orb: Weak<Core>,
    name: String,
    path: Box<[u8]>,
    place: OnceLock<Place>,
    /// What the keys of objects with ids that are not places begin with.
    key_prefix: Box<[u8]>,
    policies: PoaPolicies,
    manager: PoaManager,
    objects: SlotTable<ActiveObject>,
    tables: Mutex<Tables>,
}

/// An entry of the active object map.
#[derive(Debug)]
pub(crate) struct ActiveObject {
    pub(crate) servant: Servant,
}

/// What is only needed to change things.
#[derive(Debug, Default)]
struct Tables {
    by_id: HashMap<Box<[u8]>, Place>,
    by_servant: HashMap<usize, Place>,
}

impl PoaCore {
    fn orb(&self) -> Result<Arc<Core>, SystemException> {
        self.orb.upgrade().ok_or_else(|| SystemException::omg(Kind::BadInvOrder, 4, Completion::No))
    }

    /// Ends an object's activation.
    fn deactivate(&self, id: &[u8]) -> Result<(), PoaError> {
        let place = id.try_into().map(Place::from_octets).map_err(|_| PoaError::ObjectNotActive)?;
        match self.objects.retire(place.slot, place.generation) {
            Retired::Stale => Err(PoaError::ObjectNotActive),
            Retired::Taken(_) | Retired::Deferred => Ok(()),
        }
    }

    /// Lets go of every servant.
    fn close(&self) {
        for active in self.objects.iter() {
            let _ = self.objects.retire(active.index(), active.generation());
        }
        *self.tables.lock() = Tables::default();
    }

    pub(crate) fn policies(&self) -> &PoaPolicies {
        &self.policies
    }

    /// A request for an object that is not active.
    #[cold]
    pub(crate) fn find_inactive<R>(self: &Arc<Self>, _id: &[u8], act: impl FnOnce(Found<'_>) -> R) -> R {
        act(Found::Refused(no_such_object()))
    }
}

impl Poa {
    pub(crate) fn from_core(core: Arc<PoaCore>) -> Self {
        Poa { core }
    }

    /// The root POA of an ORB that is being made.
    pub(crate) fn root(orb: Weak<Core>, adapters: &Adapters) -> Self {
        let core = Arc::new(PoaCore {
            orb,
            name: "RootPOA".into(),
            path: Box::default(),
            place: OnceLock::new(),
            key_prefix: Box::default(),
            policies: PoaPolicies::ROOT,
            manager: PoaManager::new("RootPOAManager".into()),
            objects: SlotTable::new("active objects", Scope::Orb, MOST_OBJECTS),
            tables: Mutex::new("POA tables", Scope::Orb, Tables::default()),
        });
        if let Ok((slot, generation)) = adapters.poas.insert(Arc::clone(&core)) {
            // Set once: this is the only place.
            let _ = core.place.set(Place { slot, generation });
        }
        adapters.set_root(Arc::clone(&core));
        Poa { core }
    }

    /// The name given at creation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The manager that lets requests in.
    #[must_use]
    pub fn manager(&self) -> &PoaManager {
        &self.core.manager
    }

    /// Makes `servant` answer for a new object.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`] without SYSTEM_ID and RETAIN; [`PoaError::ServantAlreadyActive`] with UNIQUE_ID.
    pub fn activate_object(&self, servant: &Servant) -> Result<ObjectId, PoaError> {
        let policies = &self.core.policies;
        if policies.id_assignment != IdAssignment::System || policies.servant_retention != ServantRetention::Retain {
            return Err(PoaError::WrongPolicy);
        }
        let mut tables = self.core.tables.lock();
        let unique = policies.id_uniqueness == IdUniqueness::Unique;
        if unique && tables.by_servant.contains_key(&servant.identity()) {
            return Err(PoaError::ServantAlreadyActive);
        }
        let (slot, generation) = self.core.objects.insert(ActiveObject { servant: servant.clone() }).map_err(|_| {
            SystemException::new(Kind::NoResources, 0, Completion::No).because("too many objects are active")
        })?;
        let place = Place { slot, generation };
        if unique {
            tables.by_servant.insert(servant.identity(), place);
        }
        Ok(ObjectId(place.to_octets().into()))
    }

    /// Makes `servant` answer for a new object, and gives the object's reference: [`activate_object`](Self::activate_object)
    /// and [`id_to_reference`](Self::id_to_reference) in one step.
    ///
    /// # Errors
    /// Those of both steps.
    pub fn activate(&self, servant: &Servant) -> Result<ObjectRef, PoaError> {
        self.id_to_reference(&self.activate_object(servant)?)
    }

    /// The reference of an active object.
    ///
    /// # Errors
    /// [`PoaError::ObjectNotActive`].
    pub fn id_to_reference(&self, id: &ObjectId) -> Result<ObjectRef, PoaError> {
        let place = id.0.as_ref().try_into().map(Place::from_octets).map_err(|_| PoaError::ObjectNotActive)?;
        let active = self.core.objects.get(place.slot, place.generation).ok_or(PoaError::ObjectNotActive)?;
        let orb = self.core.orb()?;
        let poa = *self.core.place.get().ok_or(PoaError::ObjectNotActive)?;
        let key = Key::System { stamp: orb.adapters().stamp, poa, object: place }.to_octets();
        Ok(orb.make_reference(active.servant.repository_id(), &key))
    }

    /// Ends the object's activation once its running requests are done.
    ///
    /// # Errors
    /// [`PoaError::ObjectNotActive`].
    pub fn deactivate_object(&self, id: &ObjectId) -> Result<(), PoaError> {
        self.core.deactivate(&id.0)
    }
}

impl fmt::Debug for Poa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poa").field("name", &self.core.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for PoaCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoaCore").field("name", &self.name).finish_non_exhaustive()
    }
}
