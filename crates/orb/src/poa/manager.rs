//! POA managers: whether requests of their POAs are run, held, or turned away (CORBA 3.0.3, section 11.3.2).

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::gate::Gate;
use corelane_sys::lock::{Mutex, Scope};
use corelane_wire::exception::minor;

use super::destroy::would_wait_for_itself;
use super::error::PoaError;
use super::hold::{Held, HeldList, Kept};
use super::map::Why;
use super::{Life, Place, PoaCore, RequestProcessing};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::main_thread;
use crate::orb::Core;

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerState {
    /// They wait; the state of a new manager.
    Holding,
    /// They run.
    Active,
    /// They are answered with TRANSIENT 1.
    Discarding,
    /// They are refused with OBJ_ADAPTER 1, for good.
    Inactive,
}

impl ManagerState {
    #[inline]
    fn from_octet(octet: u8) -> Self {
        match octet {
            0 => ManagerState::Holding,
            1 => ManagerState::Active,
            2 => ManagerState::Discarding,
            _ => ManagerState::Inactive,
        }
    }
}

/// Controls the requests of one or more POAs; clones are the same manager.
///
/// While it holds, up to 1,024 requests of 64 MiB together wait, without a thread; further ones are answered with TRANSIENT 1.
#[derive(Clone, Debug)]
pub struct PoaManager(Arc<ManagerCore>);

pub(super) struct ManagerCore {
    state: AtomicU8,
    id: String,
    stamp: u64,
    orb: Weak<Core>,
    changed: Gate,
    held: Mutex<HeldList>,
    members: Mutex<Vec<Weak<PoaCore>>>,
}

impl fmt::Debug for ManagerCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoaManager").field("id", &self.id).field("state", &self.state).finish_non_exhaustive()
    }
}

/// How often somebody who waits for requests to complete looks. Requests tell nobody when they are done: that would cost
/// every one of them a fence.
const LOOK: Duration = Duration::from_millis(1);

impl PoaManager {
    fn new(id: String, orb: Weak<Core>, stamp: u64) -> Self {
        PoaManager(Arc::new(ManagerCore {
            state: AtomicU8::new(ManagerState::Holding as u8),
            id,
            stamp,
            orb,
            changed: Gate::new("POA manager"),
            held: Mutex::new("held requests", Scope::Orb, HeldList::default()),
            members: Mutex::new("POAs of a manager", Scope::Orb, Vec::new()),
        }))
    }

    /// The manager's name, unique in its ORB; `RootPOAManager` for the root POA's.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The present state.
    #[must_use]
    #[inline]
    pub fn state(&self) -> ManagerState {
        ManagerState::from_octet(self.0.state.load(Ordering::Acquire))
    }

    /// Runs requests, those held first and in the order of their arrival.
    ///
    /// # Errors
    /// [`PoaError::AdapterInactive`] once the manager is inactive, and BAD_INV_ORDER 4 once the ORB has been shut down, as for every
    /// change.
    pub fn activate(&self) -> Result<(), PoaError> {
        self.change(ManagerState::Active, false)
    }

    /// Holds requests from now on; those that run go on. With `wait_for_completion` the call returns when none runs any more,
    /// or another thread has changed the state.
    ///
    /// # Errors
    /// [`PoaError::AdapterInactive`]; BAD_INV_ORDER 3 with `wait_for_completion` inside an upcall of the same ORB, the state
    /// unchanged; BAD_INV_ORDER 4 once the ORB has been shut down.
    pub fn hold_requests(&self, wait_for_completion: bool) -> Result<(), PoaError> {
        self.change(ManagerState::Holding, wait_for_completion)
    }

    /// Turns requests away from now on, those held too; `wait_for_completion` as for [`hold_requests`](Self::hold_requests).
    ///
    /// # Errors
    /// As for [`hold_requests`](Self::hold_requests).
    pub fn discard_requests(&self, wait_for_completion: bool) -> Result<(), PoaError> {
        self.change(ManagerState::Discarding, wait_for_completion)
    }

    /// Refuses requests for good, those held too. The objects of POAs with a servant activator are deactivated when their
    /// running requests are done; with `etherealize_objects` the activator is told of each. With `wait_for_completion` the
    /// call returns when that is over. A second call changes nothing.
    ///
    /// # Errors
    /// BAD_INV_ORDER 3 with `wait_for_completion` inside an upcall of the same ORB, the state unchanged; BAD_INV_ORDER 4 once the
    /// ORB has been shut down.
    pub fn deactivate(&self, etherealize_objects: bool, wait_for_completion: bool) -> Result<(), PoaError> {
        match self.change(ManagerState::Inactive, wait_for_completion) {
            Ok(()) => {}
            Err(PoaError::AdapterInactive) => return Ok(()),
            Err(other) => return Err(other),
        }
        let why = Why { cleanup: true, etherealize: etherealize_objects };
        let managed = |poa: &Arc<PoaCore>| {
            poa.retains() && poa.policies().request_processing == RequestProcessing::ServantManager
        };
        for poa in self.members().iter().filter(|poa| managed(poa)) {
            poa.deactivate_all(why);
            if wait_for_completion {
                poa.wait_until(None, || poa.tables.lock().busy.is_empty());
            }
        }
        Ok(())
    }

    fn change(&self, to: ManagerState, wait: bool) -> Result<(), PoaError> {
        usable(&self.0.orb)?;
        if wait && crate::current::in_upcall_of(self.0.stamp) {
            return Err(would_wait_for_itself().into());
        }
        let changed = self.0.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (ManagerState::from_octet(state) != ManagerState::Inactive).then_some(to as u8)
        });
        if changed.is_err() {
            return Err(PoaError::AdapterInactive);
        }
        if to != ManagerState::Holding {
            let held = std::mem::take(&mut *self.0.held.lock());
            held.release();
        }
        main_thread::open(&self.0.orb, &self.0.changed);
        if wait {
            self.wait_for_requests(to);
        }
        Ok(())
    }

    /// Waits until no request runs in the manager's POAs, or the state is another than `state`.
    fn wait_for_requests(&self, state: ManagerState) {
        loop {
            let over = || (self.state() != state || !self.is_running()).then_some(());
            let deadline = Some(Monotonic::now() + LOOK);
            if main_thread::wait_at(&self.0.orb, &self.0.changed, deadline, over).is_some() {
                return;
            }
        }
    }

    fn is_running(&self) -> bool {
        let Some(orb) = self.0.orb.upgrade() else { return false };
        let poas = &orb.adapters().poas;
        let runs =
            |poa: &Arc<PoaCore>| poas.in_flight(poa.place.slot, poa.place.generation) > 0 || poa.objects.is_in_use();
        self.members().iter().any(runs)
    }

    fn members(&self) -> Vec<Arc<PoaCore>> {
        self.0.members.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn add(&self, poa: &Arc<PoaCore>) {
        self.0.members.lock().push(Arc::downgrade(poa));
    }

    pub(super) fn forget(&self, poa: &PoaCore) {
        self.0.members.lock().retain(|member| !std::ptr::eq(member.as_ptr(), poa));
    }

    pub(super) fn stamp(&self) -> u64 {
        self.0.stamp
    }

    /// Keeps a request until the state changes.
    pub(super) fn keep(&self, place: Place, request: Held) -> Kept {
        let mut held = self.0.held.lock();
        if self.state() != ManagerState::Holding || self.is_ending(place) {
            return Kept::Over(request);
        }
        held.push(place, request).map_or(Kept::Full, |()| Kept::Held)
    }

    /// Goes on with the requests for a POA that ends.
    pub(super) fn release_of(&self, place: Place) {
        let held = self.0.held.lock().take_of(place);
        held.release();
        main_thread::open(&self.0.orb, &self.0.changed);
    }

    /// Waits until the manager does not hold the requests of this POA any more; false past the deadline.
    pub(super) fn wait_released(&self, place: Place, deadline: Option<Monotonic>) -> bool {
        let released = || (self.state() != ManagerState::Holding || self.is_ending(place)).then_some(());
        main_thread::wait_at(&self.0.orb, &self.0.changed, deadline, released).is_some()
    }

    fn is_ending(&self, place: Place) -> bool {
        let member = |member: &Weak<PoaCore>| member.upgrade().filter(|poa| poa.place == place);
        let found = self.0.members.lock().iter().find_map(member);
        found.is_none_or(|poa| poa.life() != Life::Alive)
    }
}

impl PartialEq for PoaManager {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PoaManager {}

/// The ORB, unless it is at its end.
fn usable(orb: &Weak<Core>) -> Result<Arc<Core>, SystemException> {
    let ended = || SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No);
    let orb = orb.upgrade().ok_or_else(ended)?;
    orb.check_usable()?;
    Ok(orb)
}

/// The managers of an ORB.
#[derive(Debug)]
pub(crate) struct Managers {
    list: Mutex<Vec<Weak<ManagerCore>>>,
}

impl Managers {
    pub(super) fn new() -> Self {
        Managers { list: Mutex::new("POA managers", Scope::Orb, Vec::new()) }
    }

    pub(super) fn root(&self, orb: Weak<Core>, stamp: u64) -> PoaManager {
        let manager = PoaManager::new("RootPOAManager".into(), orb, stamp);
        self.list.lock().push(Arc::downgrade(&manager.0));
        manager
    }

    /// A manager with a name that no other has.
    pub(super) fn unnamed(&self, orb: &Arc<Core>) -> PoaManager {
        let mut list = self.list.lock();
        let taken = |id: &str| list.iter().filter_map(Weak::upgrade).any(|manager| manager.id == id);
        let mut number = list.len();
        while taken(&format!("POAManager{number}")) {
            number += 1;
        }
        let id = format!("POAManager{number}");
        Self::enter(&mut list, id, orb)
    }

    fn enter(list: &mut Vec<Weak<ManagerCore>>, id: String, orb: &Arc<Core>) -> PoaManager {
        list.retain(|manager| manager.strong_count() > 0);
        let manager = PoaManager::new(id, Arc::downgrade(orb), orb.adapters().stamp);
        list.push(Arc::downgrade(&manager.0));
        manager
    }
}

/// Makes and finds the POA managers of an ORB. It does not keep the ORB alive.
#[derive(Clone, Debug)]
pub struct PoaManagerFactory {
    orb: Weak<Core>,
}

impl PoaManagerFactory {
    pub(super) fn new(orb: Weak<Core>) -> Self {
        PoaManagerFactory { orb }
    }

    /// Makes a manager, which holds requests until it is activated.
    ///
    /// # Errors
    /// [`PoaError::ManagerAlreadyExists`]; BAD_INV_ORDER 4 when the ORB has ended.
    pub fn create_manager(&self, id: &str) -> Result<PoaManager, PoaError> {
        let orb = usable(&self.orb)?;
        let mut list = orb.adapters().managers.list.lock();
        if list.iter().filter_map(Weak::upgrade).any(|manager| manager.id == id) {
            return Err(PoaError::ManagerAlreadyExists);
        }
        Ok(Managers::enter(&mut list, id.to_owned(), &orb))
    }

    /// All managers that somebody uses.
    #[must_use]
    pub fn list(&self) -> Vec<PoaManager> {
        let Some(orb) = self.orb.upgrade() else { return Vec::new() };
        let list = orb.adapters().managers.list.lock();
        list.iter().filter_map(Weak::upgrade).map(PoaManager).collect()
    }

    /// The manager of this name.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<PoaManager> {
        self.list().into_iter().find(|manager| manager.id() == id)
    }
}
