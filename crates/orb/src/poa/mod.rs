//! The Portable Object Adapter: servants, objects and the look-up of the servant for a request
//! (CORBA 3.0.3, chapter 11).
//!
//! # Invariants
//! * A thread holds no mutex of this module while it runs code of the application, or while it
//!   releases a slab entry, which may run such code.

mod activation;
mod children;
mod collocated;
mod destroy;
mod error;
mod incarnation;
mod lookup;
mod lookup_result;
mod manager;
mod map;
mod map_tables;
mod parked;
mod policies;
mod real_time;
mod serial;
mod servant_manager;
#[cfg(feature = "core-pool")]
mod substitutes;
mod table;
mod tree;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::Mutex;
use corelane_sys::rcu_cell::RcuCell;
use corelane_sys::slab::GenerationalSlab;
use corelane_wire::exception::minor;

pub(crate) use collocated::{call_local, invoke_local, locate_local, send_local};
pub use error::PoaError;
pub(crate) use lookup::{ClientPriority, Lookup};
pub(crate) use lookup_result::{LocateResult, LookupResult, UpcallTarget, WaitFor};
pub use manager::{ManagerState, PoaManager, PoaManagerFactory};
pub(crate) use parked::ParkResult;
pub use policies::{
    IdAssignment, IdUniqueness, ImplicitActivation, Lifespan, ObjectKeyHints, PoaPolicies, PolicyIndex,
    RequestProcessing, ServantPanicAction, ServantRetention, Threading,
};
pub use servant_manager::{
    AdapterActivator, Cookie, ServantActivator, ServantLocator, ServantManager, ServantManagerError, ServantResult,
};
pub(crate) use table::PoaTable;

use crate::current::UpcallScope;
pub(crate) use crate::exception::no_such_object;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
pub(crate) use crate::object_key::{ObjectKey, SlotId};
use crate::rt::RtPolicies;
use crate::rt::poa::RtPoa;
use crate::servant::Servant;
use crate::server_context::{self, ServerContext};
use children::Children;
use error::destroyed_error;
use map_tables::{ActiveObject, MapTables};
use serial::SerialLock;
use servant_manager::run_guarded;

const MAX_OBJECTS: u32 = 1 << 26;

/// The id of an object within its POA.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(Box<[u8]>);

impl ObjectId {
    /// Returns the octets of the id.
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

/// A Portable Object Adapter. A `Poa` does not keep its ORB alive. After the POA's destruction,
/// operations on its objects, servants and children fail with OBJECT_NOT_EXIST 4.
#[derive(Clone)]
pub struct Poa {
    core: Arc<PoaCore>,
}

mod slow_path {
    pub(super) const THREAD_POLICY: u8 = 1;
    pub(super) const ACTIVATING: u8 = 2;
    pub(super) const DESTROYING: u8 = 4;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoaPhase {
    Alive,
    Destroying,
    Deactivating,
    Closing,
    Dead,
}

pub(crate) struct PoaCore {
    orb: Weak<ServerContext>,
    pub(crate) stamp: u64,
    pub(crate) slot_id: SlotId,
    manager: PoaManager,
    /// The bits of [`slow_path`] that forbid the fast path; 0 permits it. Changed with AcqRel; read
    /// with Relaxed on the fast path, and with Acquire elsewhere.
    slow_path: AtomicU8,
    policies: PoaPolicies,
    objects: GenerationalSlab<ActiveObject>,
    key_prefix: Box<[u8]>,
    name: String,
    path: Box<[u8]>,
    parent: Option<Weak<PoaCore>>,
    phase: AtomicU8,
    /// Number of the POA's objects in the ORB's table of keys. Changed with AcqRel, read with
    /// Acquire.
    keyed_objects: AtomicUsize,
    tables: Mutex<MapTables>,
    children: Mutex<Children>,
    changed: EventCount,
    default_servant: RcuCell<Option<Servant>>,
    servant_manager: RcuCell<Option<ServantManager>>,
    serial: SerialLock,
    /// Number of system ids of the POA that are not slots of `objects`. Accessed `Relaxed`.
    ids: AtomicU64,
    created_at: u64,
    rt: Option<RtPoa>,
    /// Number of conditions for which the destruction waits. Stored with Release, then decremented
    /// with AcqRel.
    destruction_blockers: AtomicUsize,
    /// True once a thread has found, during destruction, that no entry of `objects` is pinned.
    /// Swapped with AcqRel.
    objects_unused: AtomicBool,
    etherealizes: AtomicBool,
}

impl PoaCore {
    fn has_servants(&self) -> bool {
        self.objects.has_live_entries()
            || self.keyed_objects.load(Ordering::Acquire) > 0
            || self.default_servant.load().is_some()
            || self.servant_manager.load().is_some()
    }

    fn orb(&self) -> Result<Arc<ServerContext>, SystemException> {
        self.orb
            .upgrade()
            .ok_or_else(|| SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No))
    }

    fn wait_until(&self, deadline: Option<Monotonic>, over: impl Fn() -> bool) -> bool {
        server_context::wait_for(&self.orb, &self.changed, deadline, || over().then_some(())).is_some()
    }

    fn notify_changed(&self) {
        server_context::notify(&self.orb, &self.changed);
    }

    /// Runs `drop` as a callback, in which waits for the ORB are refused, because the ORB waits for
    /// the drop. A panic of the drop is caught and reported.
    pub(crate) fn drop_guarded(self: &Arc<Self>, interface: &'static str, drop: impl FnOnce()) {
        let _frame = UpcallScope::enter_callback(self);
        let _ = run_guarded(&Poa::from_core(Arc::clone(self)), interface, "drop", drop);
    }

    pub(crate) fn orb_handle(&self) -> &Weak<ServerContext> {
        &self.orb
    }

    pub(crate) fn policies(&self) -> &PoaPolicies {
        &self.policies
    }

    fn retains(&self) -> bool {
        self.policies.servant_retention == ServantRetention::Retain
    }

    fn is_unique(&self) -> bool {
        self.policies.id_uniqueness == IdUniqueness::Unique
    }

    fn is_persistent(&self) -> bool {
        self.policies.lifespan == Lifespan::Persistent
    }

    fn ids_are_slots(&self) -> bool {
        !self.is_persistent() && self.policies.id_assignment == IdAssignment::System
    }

    fn phase(&self) -> PoaPhase {
        match self.phase.load(Ordering::Acquire) {
            0 => PoaPhase::Alive,
            1 => PoaPhase::Destroying,
            2 => PoaPhase::Deactivating,
            3 => PoaPhase::Closing,
            _ => PoaPhase::Dead,
        }
    }

    fn slow_path_reasons(&self) -> u8 {
        self.slow_path.load(Ordering::Acquire)
    }

    #[inline]
    fn has_fast_path(&self) -> bool {
        self.slow_path.load(Ordering::Relaxed) == 0 && self.manager.state() == ManagerState::Active
    }

    fn check_alive(&self) -> Result<(), SystemException> {
        if self.phase() == PoaPhase::Alive { Ok(()) } else { Err(destroyed_error()) }
    }

    fn check_not_dead(&self) -> Result<(), SystemException> {
        if self.phase() == PoaPhase::Dead { Err(destroyed_error()) } else { Ok(()) }
    }

    fn object_key(&self, id: &[u8]) -> Vec<u8> {
        [&*self.key_prefix, id].concat()
    }

    pub(crate) fn reference(self: &Arc<Self>, id: &[u8], type_id: &str) -> Result<ObjectRef, SystemException> {
        let (orb, key) = (self.orb()?, self.object_key(id));
        let hints = self.is_persistent() && self.policies.object_key_hints == ObjectKeyHints::Slots;
        let slot = if hints { PoaTable::of_server(&orb).find_object(&key).map(|entry| entry.index()) } else { None };
        let key = slot.map(|slot| ObjectKey::Hinted { slot, key: &key }.to_octets()).unwrap_or(key);
        Ok(match &self.rt {
            None => orb.make_reference(type_id, &key),
            Some(rt) => rt.make_reference_to(&orb, type_id, &key, self.priority_of(id)),
        })
    }
}

impl Poa {
    pub(crate) fn from_core(core: Arc<PoaCore>) -> Self {
        Poa { core }
    }

    pub(crate) fn core(&self) -> &Arc<PoaCore> {
        &self.core
    }

    /// Returns the name that the POA got at its creation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Returns the POA's parent. Returns `None` for the root POA, and if the parent no longer
    /// exists.
    #[must_use]
    pub fn parent(&self) -> Option<Poa> {
        self.core.parent.as_ref().and_then(Weak::upgrade).map(Poa::from_core)
    }

    /// Returns the POA's id, which no other POA of the ORB has or had.
    #[must_use]
    pub fn id(&self) -> Vec<u8> {
        [&self.core.stamp.to_be_bytes()[..], &self.core.slot_id.to_octets()].concat()
    }

    /// Returns the POA's policies, which never change.
    #[must_use]
    pub fn policies(&self) -> &PoaPolicies {
        &self.core.policies
    }

    /// Returns the POA's real-time policies, with the policies that it inherits from the ORB.
    /// Returns `None` if the POA has no real-time policies.
    #[must_use]
    pub fn rt_policies(&self) -> Option<&RtPolicies> {
        self.core.rt.as_ref().map(|rt| &rt.policies)
    }

    /// Returns the manager that admits the POA's requests.
    #[must_use]
    pub fn manager(&self) -> &PoaManager {
        &self.core.manager
    }

    /// Unbinds a plain object key of the POA's ORB
    /// ([`Orb::bind_corbaloc_key`](crate::Orb::bind_corbaloc_key)), for servants that know their
    /// POA but not their ORB. Returns false if the key was not bound, or if the ORB has ended.
    pub fn unbind_corbaloc_key(&self, key: &str) -> bool {
        self.core.orb().is_ok_and(|orb| PoaTable::of_server(&orb).unbind_plain(key.as_bytes()))
    }
}

impl PartialEq for Poa {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

impl Eq for Poa {}

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

/// Runs the examples of docs/poa.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/poa.md")]
mod user_page {}
