//! The Portable Object Adapter: servants, objects, and which of them answers a request (CORBA 3.0.3, chapter 11).
//!
//! * `demux` leads from an object key to a servant; `hold` keeps requests that must wait for something.
//! * `tree` makes and finds POAs, `destroy` ends them; `manager` lets requests in.
//! * `activation` holds what the application calls; `map` is the active object map beneath it; `incarnation` calls servant
//!   managers.
//! * `local` is the way of a call that stays in the process.
//!
//! # Invariants
//! * A request finds its servant without a lock. Whoever finds it holds it, and the POA, until the upcall is over: a
//!   deactivated object's servant is let go, and a destroyed POA's objects are etherealized, only when the last request is
//!   done, by the thread that ran it. An entry of the POA's own part of the map stands for the POA too: a call within the process
//!   that knows where its object is holds nothing else.
//! * An object id is changed by one thread at a time: while it is, it is listed as busy (`map`), and
//!   requests that need it are held there.
//! * No lock of this module is held while the application's code runs, nor while an entry of a slot table is let go of,
//!   because that may run such code. Locks are taken in the order children, tables, key index.

mod activation;
mod demux;
mod destroy;
mod error;
mod hold;
mod incarnation;
mod key;
mod local;
mod manager;
mod map;
mod policies;
mod real_time;
mod serial;
mod servant_manager;
mod tree;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use corelane_sys::clock::Monotonic;
use corelane_sys::gate::Gate;
use corelane_sys::lock::Mutex;
use corelane_sys::published::Published;
use corelane_sys::slots::SlotTable;
use corelane_wire::exception::minor;

pub(crate) use demux::{Adapters, ClientPriority, Found, Located, Target, Wanted, no_such_object};
pub use error::PoaError;
pub(crate) use hold::{HELD, HELD_OCTETS, Held, Hold, Kept, Resume};
pub(crate) use key::{Key, Place};
pub(crate) use local::{Home, call_local, invoke_local, locate_local, send_local};
pub use manager::{ManagerState, PoaManager, PoaManagerFactory};
pub use policies::{
    IdAssignment, IdUniqueness, ImplicitActivation, KeyHints, Lifespan, OnPanic, PoaPolicies, PolicyIndex,
    RequestProcessing, ServantRetention, Threading,
};
pub(crate) use serial::this_thread;
pub use servant_manager::{
    AdapterActivator, Cookie, ServantActivator, ServantLocator, ServantManager, ServantManagerError, ServantResult,
};

use crate::current::Upcall;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::main_thread;
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::rt::RtPolicies;
use crate::rt::poa::RtPoa;
use crate::servant::Servant;
use map::{ActiveObject, Tables};
use serial::Serial;
use servant_manager::guarded;
use tree::Family;

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

/// A POA; clones are the same POA. It does not keep its ORB alive.
#[derive(Clone)]
pub struct Poa {
    core: Arc<PoaCore>,
}

/// Why requests of a POA take the long way; none of these, and the manager active: the short one.
mod detour {
    /// Its thread policy asks for it.
    pub(super) const THREADING: u8 = 1;
    /// The adapter activator that made it has not returned.
    pub(super) const FRESH: u8 = 2;
    /// It is being destroyed.
    pub(super) const ENDING: u8 = 4;
}

/// How far a POA's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// `destroy` was called; requests still run, or children live.
    Ending,
    /// Objects are being deactivated, and there will be no new ones.
    Sweeping,
    /// The last of them are on their way out.
    Closing,
    Dead,
}

/// What a POA is made of.
pub(crate) struct PoaCore {
    orb: Weak<Core>,
    /// That of the ORB.
    pub(crate) stamp: u64,
    pub(crate) place: Place,
    manager: PoaManager,
    /// Bits of [`detour`].
    detour: AtomicU8,
    policies: PoaPolicies,
    /// Active objects whose ids are their places.
    objects: SlotTable<ActiveObject>,
    /// What the keys of its objects begin with; the id follows.
    key_prefix: Box<[u8]>,
    name: String,
    path: Box<[u8]>,
    parent: Option<Weak<PoaCore>>,
    life: AtomicU8,
    /// Active objects in the ORB's table of keys.
    keyed: AtomicUsize,
    tables: Mutex<Tables>,
    family: Mutex<Family>,
    /// Opened when an id or a child is not busy any more, and when the POA's life goes on.
    changed: Gate,
    default_servant: Published<Option<Servant>>,
    servant_manager: Published<Option<ServantManager>>,
    serial: Serial,
    /// References made without an object, and persistent system ids.
    ids: AtomicU64,
    /// When it was made, in nanoseconds since 1970: makes persistent system ids unique from run to run.
    born: u64,
    /// What real-time policies make of it.
    rt: Option<RtPoa>,
    /// Destruction: children that live, one for running requests that hold the POA, one for those that hold its objects, one for the caller.
    remaining: AtomicUsize,
    /// Destruction: nobody has held an object any more.
    objects_free: AtomicBool,
    /// Destruction: whether objects are etherealized.
    etherealizes: AtomicBool,
}

impl PoaCore {
    fn orb(&self) -> Result<Arc<Core>, SystemException> {
        self.orb
            .upgrade()
            .ok_or_else(|| SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No))
    }

    /// Waits until `over`; false past the deadline.
    fn wait_until(&self, deadline: Option<Monotonic>, over: impl Fn() -> bool) -> bool {
        main_thread::wait_at(&self.orb, &self.changed, deadline, || over().then_some(())).is_some()
    }

    /// Those who [wait](Self::wait_until) look again.
    fn has_changed(&self) {
        main_thread::open(&self.orb, &self.changed);
    }

    /// Lets go of what the application gave. What that calls back cannot wait for the ORB, which waits for it, and its panic ends here.
    pub(crate) fn let_go_of(self: &Arc<Self>, interface: &'static str, drop: impl FnOnce()) {
        let _frame = Upcall::enter_callback(self);
        let _ = guarded(&Poa::from_core(Arc::clone(self)), interface, "drop", drop);
    }

    pub(crate) fn orb_handle(&self) -> &Weak<Core> {
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

    /// Whether ids of active objects are places in `objects`.
    fn has_places(&self) -> bool {
        !self.is_persistent() && self.policies.id_assignment == IdAssignment::System
    }

    fn life(&self) -> Life {
        match self.life.load(Ordering::Acquire) {
            0 => Life::Alive,
            1 => Life::Ending,
            2 => Life::Sweeping,
            3 => Life::Closing,
            _ => Life::Dead,
        }
    }

    fn detours(&self) -> u8 {
        self.detour.load(Ordering::Acquire)
    }

    /// Whether requests may take the short way.
    #[inline]
    fn is_open(&self) -> bool {
        self.detour.load(Ordering::Relaxed) == 0 && self.manager.state() == ManagerState::Active
    }

    /// OBJECT_NOT_EXIST 4 unless the POA lives.
    fn check_alive(&self) -> Result<(), SystemException> {
        if self.life() == Life::Alive { Ok(()) } else { Err(destroyed()) }
    }

    /// The same, for questions that a POA answers as long as its requests run.
    fn check_not_dead(&self) -> Result<(), SystemException> {
        if self.life() == Life::Dead { Err(destroyed()) } else { Ok(()) }
    }

    /// The key of an object.
    fn key(&self, id: &[u8]) -> Vec<u8> {
        [&*self.key_prefix, id].concat()
    }

    /// A reference to an object, active or not.
    pub(crate) fn reference(self: &Arc<Self>, id: &[u8], type_id: &str) -> Result<ObjectRef, SystemException> {
        let (orb, key) = (self.orb()?, self.key(id));
        let hints = self.is_persistent() && self.policies.key_hints == KeyHints::Slots;
        let slot = if hints { orb.adapters().find_object(&key).map(|entry| entry.index()) } else { None };
        let key = slot.map(|slot| Key::Hinted { slot, key: &key }.to_octets()).unwrap_or(key);
        Ok(match &self.rt {
            None => orb.make_reference(type_id, &key),
            Some(rt) => rt.reference(&orb, type_id, &key, self.priority_of(id)),
        })
    }
}

#[cold]
fn destroyed() -> SystemException {
    SystemException::new(Kind::ObjectNotExist, minor::object_not_exist::ADAPTER_INACTIVE, Completion::No)
        .because("the POA has been destroyed")
}

impl Poa {
    pub(crate) fn from_core(core: Arc<PoaCore>) -> Self {
        Poa { core }
    }

    pub(crate) fn core(&self) -> &Arc<PoaCore> {
        &self.core
    }

    /// The name given at creation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The POA that this one is a child of; `None` for the root POA.
    #[must_use]
    pub fn parent(&self) -> Option<Poa> {
        self.core.parent.as_ref().and_then(Weak::upgrade).map(Poa::from_core)
    }

    /// What tells the POA apart from all others of its ORB, past ones too.
    #[must_use]
    pub fn id(&self) -> Vec<u8> {
        [&self.core.stamp.to_be_bytes()[..], &self.core.place.to_octets()].concat()
    }

    /// The policies, which never change.
    #[must_use]
    pub fn policies(&self) -> &PoaPolicies {
        &self.core.policies
    }

    /// The real-time policies, those inherited from the ORB among them; `None` without any.
    #[must_use]
    pub fn rt_policies(&self) -> Option<&RtPolicies> {
        self.core.rt.as_ref().map(|rt| &rt.policies)
    }

    /// The manager that lets requests in.
    #[must_use]
    pub fn manager(&self) -> &PoaManager {
        &self.core.manager
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

/// The user's page about POAs; its examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/poa.md")]
mod user_page {}
