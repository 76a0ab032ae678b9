//! The tree of POAs: making, finding, and having adapter activators make them (CORBA 3.0.3, section 11.3.8).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use corelane_sys::clock::Monotonic;
use corelane_sys::gate::Gate;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::published::Published;
use corelane_sys::slots::SlotTable;
use corelane_wire::exception::minor;

use super::demux::{Adapters, not_active};
use super::error::PoaError;
use super::hold::{Held, HeldList, Hold, Kept};
use super::key::{self, Key, LONGEST_PATH};
use super::map::{ActiveObject, Tables};
use super::serial::Serial;
use super::servant_manager::{AdapterActivator, guarded};
use super::{
    Life, MOST_OBJECTS, ManagerState, Place, Poa, PoaCore, PoaManager, PoaManagerFactory, PoaPolicies, Threading,
    detour, this_thread,
};
use crate::current::Upcall;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb::Core;
use crate::rt::RtPolicies;
use crate::rt::poa::RtPoa;

/// The children of a POA.
#[derive(Default)]
pub(super) struct Family {
    /// In the order of their names.
    pub(super) children: Vec<Arc<PoaCore>>,
    /// What the adapter activator is being asked for: few, one for each time that it runs.
    arriving: Vec<Arriving>,
    pub(super) activator: Option<Arc<dyn AdapterActivator>>,
}

impl Family {
    /// Where the child of this name is, or else belongs.
    fn place_of(&self, name: &str) -> Result<usize, usize> {
        self.children.binary_search_by(|child| child.name.as_str().cmp(name))
    }

    fn child(&self, name: &str) -> Option<&Arc<PoaCore>> {
        self.children.get(self.place_of(name).ok()?)
    }

    pub(super) fn forget(&mut self, name: &str) {
        if let Ok(place) = self.place_of(name) {
            self.children.remove(place);
        }
    }

    fn arriving(&self, name: &str) -> Option<&Arriving> {
        self.arriving.iter().find(|arriving| arriving.name == name)
    }
}

struct Arriving {
    name: String,
    thread: u64,
    held: HeldList,
}

/// What asking for a child came to.
pub(super) enum Child {
    Here(Arc<PoaCore>),
    /// Its adapter activator runs.
    Held(Hold),
    /// There is none.
    Missing,
    /// The adapter activator raised: OBJ_ADAPTER 1.
    Raised(SystemException),
}

impl Poa {
    /// Makes a child POA. Without a manager it gets one of its own, which holds requests until it is activated.
    ///
    /// # Errors
    /// [`PoaError::AdapterAlreadyExists`], also while a child of this name is being destroyed;
    /// [`PoaError::InvalidPolicy`] for policies that do not go together; BAD_INV_ORDER 17 while this POA is being destroyed,
    /// OBJECT_NOT_EXIST 4 afterwards; BAD_PARAM for a name with a NUL or, in a persistent POA, a path above 64 KiB.
    pub fn create_poa(&self, name: &str, manager: Option<&PoaManager>, policies: PoaPolicies) -> Result<Poa, PoaError> {
        self.create_rt_poa(name, manager, policies, &RtPolicies::default())
    }

    /// The same with real-time policies; those that are not set are inherited from
    /// [`RtOrb::set_policies`](crate::rt::RtOrb::set_policies).
    ///
    /// # Errors
    /// Those of [`create_poa`](Self::create_poa); [`PoaError::InvalidPolicy`] for real-time policies that do not go together: an
    /// unknown pool, a pool with lanes or bands without a priority model, a server priority that no lane or band has, a band that
    /// no lane is in, a protocol that nobody listens for, a policy that is for clients only.
    pub fn create_rt_poa(
        &self,
        name: &str,
        manager: Option<&PoaManager>,
        policies: PoaPolicies,
        real_time: &RtPolicies,
    ) -> Result<Poa, PoaError> {
        policies.check().map_err(PoaError::InvalidPolicy)?;
        let core = &self.core;
        let path = key::child_path(&core.path, name);
        if name.contains('\0') || path.len() > LONGEST_PATH {
            let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
            return Err(exception.because("a POA's name has no NUL, and its path at most 65535 octets").into());
        }
        let orb = core.orb()?;
        let rt = RtPoa::new(&orb, real_time).map_err(PoaError::InvalidPolicy)?;
        if rt.is_some() {
            orb.rt().note_used();
        }
        let mut family = core.family.lock();
        match core.life() {
            Life::Alive => {}
            Life::Ending | Life::Sweeping | Life::Closing => {
                let code = minor::bad_inv_order::POA_BEING_DESTROYED;
                return Err(SystemException::new(Kind::BadInvOrder, code, Completion::No).into());
            }
            Life::Dead => return Err(super::destroyed().into()),
        }
        let Err(place) = family.place_of(name) else { return Err(PoaError::AdapterAlreadyExists) };
        let sockets = rt.as_ref().map(|rt| rt.claim_sockets(&orb)).transpose().map_err(PoaError::InvalidPolicy)?;
        let manager = match manager {
            Some(manager) if manager.stamp() == core.stamp => manager.clone(),
            Some(_) => {
                let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
                return Err(exception.because("the manager belongs to another ORB").into());
            }
            None => orb.adapters().managers.unnamed(&orb),
        };
        let fresh = if family.arriving(name).is_some() { detour::FRESH } else { 0 };
        let new = New { name, path, parent: Some(Arc::downgrade(core)), manager, policies, rt, fresh };
        let child = new.enter(Arc::downgrade(&orb), orb.adapters())?;
        if let Some(sockets) = sockets {
            sockets.keep();
        }
        family.children.insert(place, Arc::clone(&child));
        Ok(Poa { core: child })
    }

    /// The child of this name. If there is none and `activate_it` is set, the adapter activator is asked to make it.
    ///
    /// # Errors
    /// [`PoaError::AdapterNonExistent`]; OBJ_ADAPTER 1 if the adapter activator raised an exception; OBJECT_NOT_EXIST 4 after
    /// this POA's destruction.
    pub fn find_poa(&self, name: &str, activate_it: bool) -> Result<Poa, PoaError> {
        self.core.check_not_dead()?;
        loop {
            match self.core.child(name, activate_it) {
                Child::Here(core) => return Ok(Poa { core }),
                Child::Held(hold) => drop(hold.wait(None)),
                Child::Missing => return Err(PoaError::AdapterNonExistent),
                Child::Raised(exception) => return Err(exception.into()),
            }
        }
    }

    /// The children that are not being destroyed, in the order of their names.
    #[must_use]
    pub fn children(&self) -> Vec<Poa> {
        let family = self.core.family.lock();
        let alive = family.children.iter().filter(|child| child.life() == Life::Alive);
        alive.map(|core| Poa { core: Arc::clone(core) }).collect()
    }

    /// What makes missing children.
    #[must_use]
    pub fn activator(&self) -> Option<Arc<dyn AdapterActivator>> {
        self.core.family.lock().activator.clone()
    }

    /// Sets what makes missing children; `None`: nothing does.
    pub fn set_activator(&self, activator: Option<Arc<dyn AdapterActivator>>) {
        let mut family = self.core.family.lock();
        // A dead POA lets go of what it was given.
        let old = if self.core.life() == Life::Dead {
            activator
        } else {
            std::mem::replace(&mut family.activator, activator)
        };
        drop(family);
        drop(old);
    }

    /// What makes managers that several POAs share.
    #[must_use]
    pub fn manager_factory(&self) -> PoaManagerFactory {
        PoaManagerFactory::new(self.core.orb.clone())
    }

    /// The root POA of an ORB that is being made.
    pub(crate) fn root(orb: Weak<Core>, adapters: &Adapters) -> Self {
        let manager = adapters.managers.root(orb.clone(), adapters.stamp);
        let policies = PoaPolicies::ROOT;
        let new = New { name: "RootPOA", path: Vec::new(), parent: None, manager, policies, rt: None, fresh: 0 };
        // The table is empty, and so is the index: nothing can be full.
        let core = new.enter(orb, adapters).expect("an empty table has room");
        adapters.set_root(Arc::clone(&core));
        Poa { core }
    }
}

/// A POA to be.
struct New<'n> {
    name: &'n str,
    path: Vec<u8>,
    parent: Option<Weak<PoaCore>>,
    manager: PoaManager,
    policies: PoaPolicies,
    rt: Option<RtPoa>,
    fresh: u8,
}

impl New<'_> {
    /// Makes it and enters it in the ORB's tables.
    fn enter(self, orb: Weak<Core>, adapters: &Adapters) -> Result<Arc<PoaCore>, SystemException> {
        let persistent = self.policies.lifespan == super::Lifespan::Persistent;
        let manager = self.manager.clone();
        let mut made = None;
        let inserted = adapters.poas.insert_with(|slot, generation| {
            let core = self.make(orb, adapters.stamp, Place { slot, generation });
            made = Some(Arc::clone(&core));
            core
        });
        let (Ok(_), Some(core)) = (inserted, made) else {
            let exception = SystemException::new(Kind::NoResources, 0, Completion::No);
            return Err(exception.because("the ORB has as many POAs as it can"));
        };
        if persistent {
            adapters.enter_adapter(&core)?;
        }
        manager.add(&core);
        Ok(core)
    }

    fn make(self, orb: Weak<Core>, stamp: u64, place: Place) -> Arc<PoaCore> {
        let key_prefix = match (self.policies.lifespan, self.policies.id_assignment) {
            (super::Lifespan::Persistent, _) => Key::Persistent { path: &self.path, id: &[] }.to_octets(),
            (_, super::IdAssignment::User) => Key::User { stamp, poa: place, id: &[] }.to_octets(),
            (_, super::IdAssignment::System) => {
                let mut key = Key::System { stamp, poa: place, object: place }.to_octets();
                key.truncate(key.len() - Place::OCTETS);
                key
            }
        };
        let threading = if self.policies.threading == Threading::OrbControlled { 0 } else { detour::THREADING };
        Arc::new_cyclic(|own: &Weak<PoaCore>| {
            let own = own.clone();
            let last_out = move |slot, generation, active: ActiveObject| {
                if let Some(poa) = own.upgrade() {
                    poa.finish_deactivation(&Place { slot, generation }.to_octets(), active.servant);
                }
            };
            PoaCore {
                orb,
                stamp,
                place,
                manager: self.manager,
                detour: AtomicU8::new(threading | self.fresh),
                policies: self.policies,
                objects: SlotTable::with_callback("active objects", Scope::Orb, MOST_OBJECTS, last_out),
                key_prefix: key_prefix.into(),
                name: self.name.to_owned(),
                path: self.path.into(),
                parent: self.parent,
                life: AtomicU8::new(Life::Alive as u8),
                keyed: AtomicUsize::new(0),
                tables: Mutex::new("POA tables", Scope::Orb, Tables::default()),
                family: Mutex::new("POA children", Scope::Orb, Family::default()),
                changed: Gate::new("POA changes"),
                default_servant: Published::new("default servant", Scope::Orb, None),
                servant_manager: Published::new("servant manager", Scope::Orb, None),
                serial: Serial::new(),
                ids: AtomicU64::new(0),
                born: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64),
                rt: self.rt,
                remaining: AtomicUsize::new(0),
                objects_free: AtomicBool::new(false),
                etherealizes: AtomicBool::new(false),
            }
        })
    }
}

impl PoaCore {
    /// The child of this name, made by the adapter activator if it is missing and `activate_it` is set.
    pub(super) fn child(self: &Arc<Self>, name: &str, activate_it: bool) -> Child {
        let activator = {
            let mut family = self.family.lock();
            let living = family.child(name).map(|child| (child.life() == Life::Alive).then(|| Arc::clone(child)));
            let arriving = family.arriving(name).map(|arriving| arriving.thread);
            match (living, arriving) {
                // The activator's own thread sees what it has made.
                (Some(Some(child)), None) => return Child::Here(child),
                (Some(Some(child)), Some(thread)) if thread == this_thread() || !activate_it => {
                    return Child::Here(child);
                }
                (_, Some(thread)) if thread != this_thread() && activate_it => {
                    return Child::Held(Hold::Adapter(Arc::clone(self), name.to_owned()));
                }
                (None, None) => {}
                _ => return Child::Missing,
            }
            let Some(activator) = family.activator.clone().filter(|_| activate_it && self.life() == Life::Alive) else {
                return Child::Missing;
            };
            let held = HeldList::default();
            family.arriving.push(Arriving { name: name.to_owned(), thread: this_thread(), held });
            activator
        };
        let answer = self.ask(&activator, name);
        let (child, arriving) = {
            let mut family = self.family.lock();
            let child = family.child(name).filter(|child| child.life() == Life::Alive).cloned();
            let place = family.arriving.iter().position(|arriving| arriving.name == name);
            (child, place.map(|place| family.arriving.swap_remove(place)))
        };
        if let Some(child) = &child {
            child.detour.fetch_and(!detour::FRESH, Ordering::AcqRel);
        }
        if let Some(arriving) = arriving {
            arriving.held.release();
        }
        self.has_changed();
        self.let_go_of("AdapterActivator", || drop(activator));
        match (answer, child) {
            (Some(Ok(true)), Some(child)) => Child::Here(child),
            (Some(Ok(_)), _) => Child::Missing,
            (Some(Err(_)) | None, _) => Child::Raised(SystemException::new(
                Kind::ObjAdapter,
                minor::obj_adapter::UNKNOWN_ADAPTER_RAISED,
                Completion::No,
            )),
        }
    }

    /// Calls the adapter activator; `None` if it panicked.
    fn ask(
        self: &Arc<Self>,
        activator: &Arc<dyn AdapterActivator>,
        name: &str,
    ) -> Option<Result<bool, SystemException>> {
        // The call counts as a request on this POA.
        let orb = self.orb().ok()?;
        let Some(_running) = orb.adapters().poas.get(self.place.slot, self.place.generation) else {
            return Some(Ok(false));
        };
        let _turn = (self.policies.threading == Threading::SingleThread).then(|| self.serial.enter());
        let _frame = Upcall::enter_callback(self)?;
        let poa = Poa::from_core(Arc::clone(self));
        guarded(&poa, "AdapterActivator", "unknown_adapter", || activator.unknown_adapter(&poa, name))
    }

    /// Whether a request may have the adapter activator asked now; if not, what becomes of it.
    pub(super) fn may_ask(self: &Arc<Self>) -> Option<super::Found<'static>> {
        if self.life() != Life::Alive {
            return Some(super::Found::Refused(super::demux::ending()));
        }
        if self.manager.state() != ManagerState::Active {
            return Some(not_active(self));
        }
        // The request goes on in the main thread, which asks then.
        let orb = self
            .orb()
            .ok()
            .filter(|orb| self.policies.threading == Threading::MainThread && !orb.main_queue().is_main_thread())?;
        Some(super::Found::Held(Hold::MainThread(orb)))
    }

    /// The name and parent of a POA whose adapter activator has not returned; not in the thread of that activator.
    pub(super) fn fresh_hold(&self) -> Option<Hold> {
        if self.detours() & detour::FRESH == 0 {
            return None;
        }
        let parent = self.parent.as_ref().and_then(Weak::upgrade)?;
        let mine = parent.family.lock().arriving(&self.name).is_none_or(|arriving| arriving.thread == this_thread());
        (!mine).then(|| Hold::Adapter(parent, self.name.clone()))
    }

    /// Keeps a request until the adapter activator has returned.
    pub(super) fn keep_for_child(&self, name: &str, held: Held) -> Kept {
        match self.family.lock().arriving.iter_mut().find(|arriving| arriving.name == name) {
            None => Kept::Over(held),
            Some(arriving) => arriving.held.push(self.place, held).map_or(Kept::Full, |()| Kept::Held),
        }
    }

    /// Waits until the adapter activator has returned; false past the deadline.
    pub(super) fn wait_for_child(&self, name: &str, deadline: Option<Monotonic>) -> bool {
        self.wait_until(deadline, || self.family.lock().arriving(name).is_none())
    }
}
