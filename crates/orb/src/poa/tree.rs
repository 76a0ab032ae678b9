//! The tree of POAs: creation, look-up, and creation on demand by adapter activators (CORBA 3.0.3,
//! section 11.3.8).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::rcu_cell::RcuCell;
use corelane_sys::slab::GenerationalSlab;
use corelane_wire::exception::minor;

use super::children::{Children, PendingChild};
use super::error::{PoaError, being_destroyed, destroyed_error};
use super::lookup_result::{ChildResult, LookupResult, WaitFor};
use super::map_tables::{ActiveObject, MapTables};
use super::parked::{ParkResult, ParkedRequests};
use super::serial::SerialLock;
use super::servant_manager::{AdapterActivator, run_guarded};
use super::table::{PoaTable, inactive_manager_result};
use super::{
    MAX_OBJECTS, ManagerState, Poa, PoaCore, PoaManager, PoaManagerFactory, PoaPhase, PoaPolicies, SlotId, Threading,
    slow_path,
};
use crate::current::UpcallScope;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object_key::{self, MAX_PATH_LEN, ObjectKey};
use crate::rt::RtPolicies;
use crate::rt::poa::RtPoa;
use crate::server::parked_request::ParkedRequest;
use crate::server_context::ServerContext;
use crate::thread_context::thread_number;

impl Poa {
    /// Creates a child POA. If `manager` is `None`, the POA gets a new manager, which holds
    /// requests until it is activated.
    ///
    /// # Errors
    /// [`PoaError::AdapterAlreadyExists`] if a child has this name, even while that child is being
    /// destroyed; [`PoaError::InvalidPolicy`] for conflicting policies; BAD_INV_ORDER 17 while this
    /// POA is being destroyed, OBJECT_NOT_EXIST 4 afterwards; BAD_PARAM if the name has a NUL, the
    /// path is longer than 65,535 bytes, or the manager belongs to another ORB; NO_RESOURCES at the
    /// maximum number of POAs.
    pub fn create_poa(&self, name: &str, manager: Option<&PoaManager>, policies: PoaPolicies) -> Result<Poa, PoaError> {
        self.create_rt_poa(name, manager, policies, &RtPolicies::default())
    }

    /// Creates a child POA with real-time policies. Priority model, thread pool and server
    /// protocols that are not set are inherited from
    /// [`RtOrb::set_policies`](crate::rt::RtOrb::set_policies).
    ///
    /// # Errors
    /// The errors of [`create_poa`](Self::create_poa), and [`PoaError::InvalidPolicy`] for invalid
    /// or conflicting real-time policies: an unknown pool, lanes or bands without a priority model,
    /// a server priority that no lane or band has, a band without a lane, a protocol without a
    /// listener, or a policy that only clients can have.
    pub fn create_rt_poa(
        &self,
        name: &str,
        manager: Option<&PoaManager>,
        policies: PoaPolicies,
        real_time: &RtPolicies,
    ) -> Result<Poa, PoaError> {
        policies.check().map_err(PoaError::InvalidPolicy)?;
        let core = &self.core;
        let path = object_key::child_path(&core.path, name);
        if name.contains('\0') || path.len() > MAX_PATH_LEN {
            let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
            return Err(exception.with_message("a POA's name has no NUL, and its path at most 65535 octets").into());
        }
        let orb = core.orb()?;
        let rt = RtPoa::new(&orb, real_time).map_err(PoaError::InvalidPolicy)?;
        if rt.is_some() {
            orb.enable_rt();
        }
        let mut family = core.children.lock();
        match core.phase() {
            PoaPhase::Alive => {}
            PoaPhase::Destroying | PoaPhase::Deactivating | PoaPhase::Closing => {
                let code = minor::bad_inv_order::POA_BEING_DESTROYED;
                return Err(SystemException::new(Kind::BadInvOrder, code, Completion::No).into());
            }
            PoaPhase::Dead => return Err(destroyed_error().into()),
        }
        let Err(place) = family.position(name) else { return Err(PoaError::AdapterAlreadyExists) };
        let sockets = rt.as_ref().map(|rt| rt.claim_sockets(&orb)).transpose().map_err(PoaError::InvalidPolicy)?;
        let manager = match manager {
            Some(manager) if manager.stamp() == core.stamp => manager.clone(),
            Some(_) => {
                let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
                return Err(exception.with_message("the manager belongs to another ORB").into());
            }
            None => PoaTable::of_server(&orb).managers.unnamed(&orb),
        };
        let fresh = if family.pending(name).is_some() { slow_path::ACTIVATING } else { 0 };
        let new = NewPoa { name, path, parent: Some(Arc::downgrade(core)), manager, policies, rt, activating: fresh };
        let child = new.insert(Arc::downgrade(&orb), PoaTable::of_server(&orb))?;
        if let Some(sockets) = sockets {
            sockets.commit();
        }
        family.list.insert(place, Arc::clone(&child));
        Ok(Poa { core: child })
    }

    /// Returns the child POA with this name. If the child is missing and `activate_it` is set,
    /// calls the adapter activator to create it.
    ///
    /// # Errors
    /// [`PoaError::AdapterNonExistent`] if there is no such child; OBJ_ADAPTER 1 if the adapter
    /// activator raised an exception or panicked; OBJECT_NOT_EXIST 4 after this POA's destruction.
    pub fn find_poa(&self, name: &str, activate_it: bool) -> Result<Poa, PoaError> {
        self.core.check_not_dead()?;
        loop {
            match self.core.find_child(name, activate_it) {
                ChildResult::Found(core) => return Ok(Poa { core }),
                ChildResult::MustWait(hold) => drop(hold.wait(None)),
                ChildResult::Missing => return Err(PoaError::AdapterNonExistent),
                ChildResult::Raised(exception) => return Err(exception.into()),
            }
        }
    }

    /// Returns the child POAs that are not being destroyed, sorted by name.
    #[must_use]
    pub fn children(&self) -> Vec<Poa> {
        let family = self.core.children.lock();
        let alive = family.list.iter().filter(|child| child.phase() == PoaPhase::Alive);
        alive.map(|core| Poa { core: Arc::clone(core) }).collect()
    }

    /// Returns the adapter activator, which creates missing children; `None` if none is set.
    #[must_use]
    pub fn adapter_activator(&self) -> Option<Arc<dyn AdapterActivator>> {
        self.core.children.lock().activator.clone()
    }

    /// Sets the adapter activator, which creates missing children; `None` removes it.
    pub fn set_adapter_activator(&self, activator: Option<Arc<dyn AdapterActivator>>) {
        let mut family = self.core.children.lock();
        // A dead POA keeps no object of the application, so the new activator is dropped.
        let old = if self.core.phase() == PoaPhase::Dead {
            activator
        } else {
            std::mem::replace(&mut family.activator, activator)
        };
        drop(family);
        drop(old);
    }

    /// Returns the factory of POA managers. Several POAs can share a manager.
    #[must_use]
    pub fn manager_factory(&self) -> PoaManagerFactory {
        PoaManagerFactory::new(self.core.orb.clone())
    }

    pub(crate) fn root(orb: Weak<ServerContext>, adapters: &PoaTable) -> Self {
        let manager = adapters.managers.root(orb.clone(), adapters.stamp);
        let policies = PoaPolicies::ROOT_POA;
        let new =
            NewPoa { name: "RootPOA", path: Vec::new(), parent: None, manager, policies, rt: None, activating: 0 };
        let core = new.insert(orb, adapters).expect("an empty table has room");
        adapters.set_root(Arc::clone(&core));
        Poa { core }
    }
}

struct NewPoa<'n> {
    name: &'n str,
    path: Vec<u8>,
    parent: Option<Weak<PoaCore>>,
    manager: PoaManager,
    policies: PoaPolicies,
    rt: Option<RtPoa>,
    activating: u8,
}

impl NewPoa<'_> {
    fn insert(self, orb: Weak<ServerContext>, adapters: &PoaTable) -> Result<Arc<PoaCore>, SystemException> {
        let persistent = self.policies.lifespan == super::Lifespan::Persistent;
        let manager = self.manager.clone();
        let mut made = None;
        let inserted = adapters.poas.insert_with(|slot, generation| {
            let core = self.create(orb, adapters.stamp, SlotId { slot, generation });
            made = Some(Arc::clone(&core));
            core
        });
        let (Ok(_), Some(core)) = (inserted, made) else {
            let exception = SystemException::new(Kind::NoResources, 0, Completion::No);
            return Err(exception.with_message("the ORB has the maximum number of POAs"));
        };
        if persistent {
            adapters.insert_poa(&core)?;
        }
        manager.add_poa(&core);
        Ok(core)
    }

    fn create(self, orb: Weak<ServerContext>, stamp: u64, place: SlotId) -> Arc<PoaCore> {
        let key_prefix = match (self.policies.lifespan, self.policies.id_assignment) {
            (super::Lifespan::Persistent, _) => ObjectKey::Persistent { path: &self.path, id: &[] }.to_octets(),
            (_, super::IdAssignment::User) => ObjectKey::User { stamp, poa: place, id: &[] }.to_octets(),
            (_, super::IdAssignment::System) => {
                let mut key = ObjectKey::System { stamp, poa: place, object: place }.to_octets();
                key.truncate(key.len() - SlotId::OCTETS);
                key
            }
        };
        let threading = if self.policies.threading == Threading::OrbControlled { 0 } else { slow_path::THREAD_POLICY };
        Arc::new_cyclic(|own: &Weak<PoaCore>| {
            let own = own.clone();
            let last_out = move |slot, generation, active: ActiveObject| {
                if let Some(poa) = own.upgrade() {
                    poa.finish_deactivation(&SlotId { slot, generation }.to_octets(), active.servant);
                }
            };
            PoaCore {
                orb,
                stamp,
                slot_id: place,
                manager: self.manager,
                slow_path: AtomicU8::new(threading | self.activating),
                policies: self.policies,
                objects: GenerationalSlab::with_callback("active objects", LockScope::Orb, MAX_OBJECTS, last_out),
                key_prefix: key_prefix.into(),
                name: self.name.to_owned(),
                path: self.path.into(),
                parent: self.parent,
                phase: AtomicU8::new(PoaPhase::Alive as u8),
                keyed_objects: AtomicUsize::new(0),
                tables: Mutex::new("POA tables", LockScope::Orb, MapTables::default()),
                children: Mutex::new("POA children", LockScope::Orb, Children::default()),
                changed: EventCount::new("POA changes"),
                default_servant: RcuCell::new("default servant", LockScope::Orb, None),
                servant_manager: RcuCell::new("servant manager", LockScope::Orb, None),
                serial: SerialLock::new(),
                ids: AtomicU64::new(0),
                created_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64),
                rt: self.rt,
                destruction_blockers: AtomicUsize::new(0),
                objects_unused: AtomicBool::new(false),
                etherealizes: AtomicBool::new(false),
            }
        })
    }
}

impl PoaCore {
    pub(super) fn find_child(self: &Arc<Self>, name: &str, activate_it: bool) -> ChildResult {
        let activator = {
            let mut family = self.children.lock();
            let living = family.get(name).map(|child| (child.phase() == PoaPhase::Alive).then(|| Arc::clone(child)));
            let arriving = family.pending(name).map(|arriving| arriving.thread);
            match (living, arriving) {
                // Before the activator returns, only two kinds of callers find the child: the
                // thread that runs the activator, and callers that do not ask for activation.
                (Some(Some(child)), None) => return ChildResult::Found(child),
                (Some(Some(child)), Some(thread)) if thread == thread_number() || !activate_it => {
                    return ChildResult::Found(child);
                }
                (_, Some(thread)) if thread != thread_number() && activate_it => {
                    return ChildResult::MustWait(WaitFor::Adapter(Arc::clone(self), name.to_owned()));
                }
                (None, None) => {}
                _ => return ChildResult::Missing,
            }
            let Some(activator) = family.activator.clone().filter(|_| activate_it && self.phase() == PoaPhase::Alive)
            else {
                return ChildResult::Missing;
            };
            let held = ParkedRequests::default();
            family.pending.push(PendingChild { name: name.to_owned(), thread: thread_number(), parked: held });
            activator
        };
        let answer = self.call_activator(&activator, name);
        let (child, arriving) = {
            let mut family = self.children.lock();
            let child = family.get(name).filter(|child| child.phase() == PoaPhase::Alive).cloned();
            let place = family.pending.iter().position(|arriving| arriving.name == name);
            (child, place.map(|place| family.pending.swap_remove(place)))
        };
        if let Some(child) = &child {
            child.slow_path.fetch_and(!slow_path::ACTIVATING, Ordering::AcqRel);
        }
        if let Some(arriving) = arriving {
            arriving.parked.release();
        }
        self.notify_changed();
        self.drop_guarded("AdapterActivator", || drop(activator));
        match (answer, child) {
            (Some(Ok(true)), Some(child)) => ChildResult::Found(child),
            (Some(Ok(_)), _) => ChildResult::Missing,
            (Some(Err(_)) | None, _) => ChildResult::Raised(SystemException::new(
                Kind::ObjAdapter,
                minor::obj_adapter::UNKNOWN_ADAPTER_RAISED,
                Completion::No,
            )),
        }
    }

    fn call_activator(
        self: &Arc<Self>,
        activator: &Arc<dyn AdapterActivator>,
        name: &str,
    ) -> Option<Result<bool, SystemException>> {
        // The POA is pinned while its activator runs. So the POA's destruction waits for the end of
        // this call.
        let orb = self.orb().ok()?;
        let Some(_running) = PoaTable::of_server(&orb).poas.get(self.slot_id.slot, self.slot_id.generation) else {
            return Some(Ok(false));
        };
        let _turn = (self.policies.threading == Threading::SingleThread).then(|| self.serial.enter());
        let _frame = UpcallScope::enter_callback(self)?;
        let poa = Poa::from_core(Arc::clone(self));
        run_guarded(&poa, "AdapterActivator", "unknown_adapter", || activator.unknown_adapter(&poa, name))
    }

    pub(super) fn activation_obstacle(self: &Arc<Self>) -> Option<LookupResult<'static>> {
        if self.phase() != PoaPhase::Alive {
            return Some(LookupResult::Refused(being_destroyed()));
        }
        if self.manager.state() != ManagerState::Active {
            return Some(inactive_manager_result(self));
        }
        // With MAIN_THREAD_MODEL the activator must run on the main thread.
        let orb = self
            .orb()
            .ok()
            .filter(|orb| self.policies.threading == Threading::MainThread && !orb.main_queue().is_main_thread())?;
        Some(LookupResult::MustWait(WaitFor::MainThread(orb)))
    }

    pub(super) fn wait_for_activator(&self) -> Option<WaitFor> {
        if self.slow_path_reasons() & slow_path::ACTIVATING == 0 {
            return None;
        }
        let parent = self.parent.as_ref().and_then(Weak::upgrade)?;
        let mine = parent.children.lock().pending(&self.name).is_none_or(|arriving| arriving.thread == thread_number());
        (!mine).then(|| WaitFor::Adapter(parent, self.name.clone()))
    }

    pub(super) fn park_for_child(&self, name: &str, held: ParkedRequest) -> ParkResult {
        match self.children.lock().pending.iter_mut().find(|arriving| arriving.name == name) {
            None => ParkResult::AlreadySignalled(held),
            Some(arriving) => {
                arriving.parked.push(self.slot_id, held).map_or(ParkResult::Full, |()| ParkResult::Parked)
            }
        }
    }

    pub(super) fn wait_for_child(&self, name: &str, deadline: Option<Monotonic>) -> bool {
        self.wait_until(deadline, || self.children.lock().pending(name).is_none())
    }
}
