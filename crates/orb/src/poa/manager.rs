//! POA managers, which run, hold or refuse the requests of their POAs (CORBA 3.0.3, section
//! 11.3.2).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_wire::exception::minor;

use super::error::{PoaError, would_deadlock};
use super::map_tables::DeactivationReason;
use super::parked::{ParkResult, ParkedRequests};
use super::table::PoaTable;
use super::{PoaCore, PoaPhase, RequestProcessing, SlotId};
use crate::clock;
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb_context::OrbContext;
use crate::server::parked_request::ParkedRequest;
use crate::server_context::{self, ServerContext};

/// The state of a POA manager, which decides the treatment of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerState {
    /// New requests wait. A new manager is in this state.
    Holding,
    /// Requests run.
    Active,
    /// Requests are answered with TRANSIENT 1.
    Discarding,
    /// Requests are refused with OBJ_ADAPTER 1, permanently.
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

/// A POA manager, which controls the requests of one or more POAs. In the holding state up to 1,024
/// remote requests, of 64 MiB in total, wait; further remote requests get TRANSIENT 1.
#[derive(Clone, Debug)]
pub struct PoaManager(Arc<ManagerCore>);

pub(super) struct ManagerCore {
    state: AtomicU8,
    id: String,
    stamp: u64,
    orb: Weak<ServerContext>,
    changed: EventCount,
    parked: Mutex<ParkedRequests>,
    /// True if the manager has been in a state other than holding. Stored with Release, loaded with
    /// Acquire.
    has_left_holding: AtomicBool,
    /// Monotonic time of the last report of held requests in nanoseconds, 0 for never; accessed
    /// `Relaxed`.
    reported_at: AtomicU64,
    poas: Mutex<Vec<Weak<PoaCore>>>,
}

impl fmt::Debug for ManagerCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoaManager").field("id", &self.id).field("state", &self.state).finish_non_exhaustive()
    }
}

const REPORT_AFTER: Duration = Duration::from_secs(1);
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The interval at which `wait_for_requests` looks for running requests. If each request signalled
/// its end instead, each request would need a memory fence.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl PoaManager {
    fn new(id: String, orb: Weak<ServerContext>, stamp: u64) -> Self {
        PoaManager(Arc::new(ManagerCore {
            state: AtomicU8::new(ManagerState::Holding as u8),
            id,
            stamp,
            orb,
            changed: EventCount::new("POA manager"),
            parked: Mutex::new("held requests", LockScope::Orb, ParkedRequests::default()),
            has_left_holding: AtomicBool::new(false),
            reported_at: AtomicU64::new(0),
            poas: Mutex::new("POAs of a manager", LockScope::Orb, Vec::new()),
        }))
    }

    /// Returns the manager's id, which is unique in its ORB. The root POA's manager has the id
    /// `RootPOAManager`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Returns the manager's present state.
    #[must_use]
    #[inline]
    pub fn state(&self) -> ManagerState {
        ManagerState::from_octet(self.0.state.load(Ordering::Acquire))
    }

    /// Changes to the active state: held requests are released in the order of their arrival, and
    /// new requests run.
    ///
    /// # Errors
    /// [`PoaError::AdapterInactive`] if the manager is inactive; BAD_INV_ORDER 4 if the ORB has
    /// been shut down.
    pub fn activate(&self) -> Result<(), PoaError> {
        self.set_state(ManagerState::Active, false)
    }

    /// Changes to the holding state: new requests wait, and running requests continue. With
    /// `wait_for_completion` the call returns when no request runs, or when another thread has
    /// changed the state.
    ///
    /// # Errors
    /// [`PoaError::AdapterInactive`] if the manager is inactive; BAD_INV_ORDER 3, without a change
    /// of state, with `wait_for_completion` inside an upcall of the same ORB; BAD_INV_ORDER 4 if
    /// the ORB has been shut down.
    pub fn hold_requests(&self, wait_for_completion: bool) -> Result<(), PoaError> {
        self.set_state(ManagerState::Holding, wait_for_completion)
    }

    /// Changes to the discarding state: new and held requests are answered with TRANSIENT 1.
    /// `wait_for_completion` has the same effect as for [`hold_requests`](Self::hold_requests).
    ///
    /// # Errors
    /// The errors of [`hold_requests`](Self::hold_requests).
    pub fn discard_requests(&self, wait_for_completion: bool) -> Result<(), PoaError> {
        self.set_state(ManagerState::Discarding, wait_for_completion)
    }

    /// Changes to the inactive state permanently: new and held requests are refused with
    /// OBJ_ADAPTER 1. In POAs with a servant activator, objects are deactivated when their running
    /// requests have finished, and etherealized if `etherealize_objects` is set. With
    /// `wait_for_completion` the call returns when the running requests and the deactivations are
    /// complete. On an inactive manager the method does nothing.
    ///
    /// # Errors
    /// BAD_INV_ORDER 3, without a change of state, with `wait_for_completion` inside an upcall of
    /// the same ORB; BAD_INV_ORDER 4 if the ORB has been shut down.
    pub fn deactivate(&self, etherealize_objects: bool, wait_for_completion: bool) -> Result<(), PoaError> {
        match self.set_state(ManagerState::Inactive, wait_for_completion) {
            Ok(()) => {}
            Err(PoaError::AdapterInactive) => return Ok(()),
            Err(other) => return Err(other),
        }
        let why = DeactivationReason { cleanup: true, etherealize: etherealize_objects };
        let managed = |poa: &Arc<PoaCore>| {
            poa.retains() && poa.policies().request_processing == RequestProcessing::ServantManager
        };
        for poa in self.poas().iter().filter(|poa| managed(poa)) {
            poa.deactivate_all(why);
            if wait_for_completion {
                poa.wait_until(None, || poa.tables.lock().busy.is_empty());
            }
        }
        Ok(())
    }

    fn set_state(&self, to: ManagerState, wait: bool) -> Result<(), PoaError> {
        usable_orb(&self.0.orb)?;
        if wait && crate::upcall_stack::in_upcall_of(self.0.stamp) {
            return Err(would_deadlock().into());
        }
        let changed = self.0.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (ManagerState::from_octet(state) != ManagerState::Inactive).then_some(to as u8)
        });
        if changed.is_err() {
            return Err(PoaError::AdapterInactive);
        }
        if to != ManagerState::Holding {
            self.0.has_left_holding.store(true, Ordering::Release);
            let held = std::mem::take(&mut *self.0.parked.lock());
            held.release();
        }
        server_context::notify(&self.0.orb, &self.0.changed);
        if wait {
            self.wait_for_requests(to);
        }
        Ok(())
    }

    fn wait_for_requests(&self, state: ManagerState) {
        loop {
            let over = || (self.state() != state || !self.is_running()).then_some(());
            let deadline = Some(Monotonic::now() + POLL_INTERVAL);
            if server_context::wait_for(&self.0.orb, &self.0.changed, deadline, over).is_some() {
                return;
            }
        }
    }

    fn is_running(&self) -> bool {
        let Some(orb) = self.0.orb.upgrade() else { return false };
        let poas = &PoaTable::of_server(&orb).poas;
        let runs = |poa: &Arc<PoaCore>| {
            poas.user_count(poa.slot_id.slot, poa.slot_id.generation) > 0 || poa.objects.has_users()
        };
        self.poas().iter().any(runs)
    }

    fn poas(&self) -> Vec<Arc<PoaCore>> {
        self.0.poas.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn add_poa(&self, poa: &Arc<PoaCore>) {
        self.0.poas.lock().push(Arc::downgrade(poa));
    }

    pub(super) fn remove_poa(&self, poa: &PoaCore) {
        self.0.poas.lock().retain(|member| !std::ptr::eq(member.as_ptr(), poa));
    }

    pub(super) fn stamp(&self) -> u64 {
        self.0.stamp
    }

    pub(super) fn park(&self, place: SlotId, request: ParkedRequest) -> ParkResult {
        let mut held = self.0.parked.lock();
        if self.state() != ManagerState::Holding || self.is_poa_ending(place) {
            return ParkResult::AlreadySignalled(request);
        }
        held.push(place, request).map_or(ParkResult::Full, |()| ParkResult::Parked)
    }

    pub(super) fn release_poa(&self, place: SlotId) {
        let held = self.0.parked.lock().take_poa(place);
        held.release();
        server_context::notify(&self.0.orb, &self.0.changed);
    }

    pub(super) fn wait_released(&self, place: SlotId, deadline: Option<Monotonic>) -> bool {
        let released = || (self.state() != ManagerState::Holding || self.is_poa_ending(place)).then_some(());
        let wait = |until| server_context::wait_for(&self.0.orb, &self.0.changed, until, released).is_some();
        let began = clock::now();
        let soon = began + REPORT_AFTER;
        if deadline.is_none_or(|deadline| soon < deadline) {
            if wait(Some(soon)) {
                return true;
            }
            if let Some(orb) = self.0.orb.upgrade() {
                self.report_parked(&orb, 1, began);
            }
        }
        wait(deadline)
    }

    fn report_oldest_parked(&self, orb: &OrbContext) {
        let oldest = self.0.parked.lock().oldest();
        if let Some((requests, since)) = oldest {
            self.report_parked(orb, requests, since);
        }
    }

    #[cold]
    fn report_parked(&self, orb: &OrbContext, requests: usize, since: Monotonic) {
        let now = clock::now();
        let held = now.since(since);
        let last_report = self.0.reported_at.load(Ordering::Relaxed);
        if held < REPORT_AFTER || (last_report != 0 && now.since(Monotonic::from_nanos(last_report)) < REPORT_INTERVAL)
        {
            return;
        }
        self.0.reported_at.store(now.as_nanos(), Ordering::Relaxed);
        let (manager, was_active) = (self.0.id.clone(), self.0.has_left_holding.load(Ordering::Acquire));
        orb.events().report(&Event::PoaManagerHoldsRequests { manager, requests, oldest: held, was_active });
    }

    fn was_never_activated(&self) -> bool {
        let never = self.state() == ManagerState::Holding && !self.0.has_left_holding.load(Ordering::Acquire);
        never && self.poas().iter().any(|poa| poa.has_servants())
    }

    fn is_poa_ending(&self, place: SlotId) -> bool {
        let member = |member: &Weak<PoaCore>| member.upgrade().filter(|poa| poa.slot_id == place);
        let found = self.0.poas.lock().iter().find_map(member);
        found.is_none_or(|poa| poa.phase() != PoaPhase::Alive)
    }
}

impl PartialEq for PoaManager {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PoaManager {}

fn usable_orb(orb: &Weak<ServerContext>) -> Result<Arc<ServerContext>, SystemException> {
    let ended = || SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No);
    let orb = orb.upgrade().ok_or_else(ended)?;
    orb.check_usable()?;
    Ok(orb)
}

#[derive(Debug)]
pub(crate) struct PoaManagers {
    list: Mutex<Vec<Weak<ManagerCore>>>,
}

impl PoaManagers {
    pub(super) fn new() -> Self {
        PoaManagers { list: Mutex::new("POA managers", LockScope::Orb, Vec::new()) }
    }

    #[cold]
    pub(crate) fn report_parked(&self, orb: &OrbContext) {
        self.all().iter().for_each(|manager| manager.report_oldest_parked(orb));
    }

    #[cold]
    pub(crate) fn report_never_activated(&self, orb: &OrbContext) {
        for manager in self.all().iter().filter(|manager| manager.was_never_activated()) {
            orb.events().never_activated(manager.id());
        }
    }

    fn all(&self) -> Vec<PoaManager> {
        self.list.lock().iter().filter_map(Weak::upgrade).map(PoaManager).collect()
    }

    pub(super) fn root(&self, orb: Weak<ServerContext>, stamp: u64) -> PoaManager {
        let manager = PoaManager::new("RootPOAManager".into(), orb, stamp);
        self.list.lock().push(Arc::downgrade(&manager.0));
        manager
    }

    pub(super) fn unnamed(&self, orb: &Arc<ServerContext>) -> PoaManager {
        let mut list = self.list.lock();
        let taken = |id: &str| list.iter().filter_map(Weak::upgrade).any(|manager| manager.id == id);
        let mut number = list.len();
        while taken(&format!("POAManager{number}")) {
            number += 1;
        }
        let id = format!("POAManager{number}");
        Self::insert(&mut list, id, orb)
    }

    fn insert(list: &mut Vec<Weak<ManagerCore>>, id: String, orb: &Arc<ServerContext>) -> PoaManager {
        list.retain(|manager| manager.strong_count() > 0);
        let manager = PoaManager::new(id, Arc::downgrade(orb), orb.stamp());
        list.push(Arc::downgrade(&manager.0));
        manager
    }
}

/// The factory of an ORB's POA managers. The factory does not keep the ORB alive.
#[derive(Clone, Debug)]
pub struct PoaManagerFactory {
    orb: Weak<ServerContext>,
}

impl PoaManagerFactory {
    pub(super) fn new(orb: Weak<ServerContext>) -> Self {
        PoaManagerFactory { orb }
    }

    /// Creates a manager with the id `id`. The manager holds requests until it is activated.
    ///
    /// # Errors
    /// [`PoaError::ManagerAlreadyExists`] if a manager has this id; BAD_INV_ORDER 4 if the ORB has
    /// been shut down.
    pub fn create_manager(&self, id: &str) -> Result<PoaManager, PoaError> {
        let orb = usable_orb(&self.orb)?;
        let mut list = PoaTable::of_server(&orb).managers.list.lock();
        if list.iter().filter_map(Weak::upgrade).any(|manager| manager.id == id) {
            return Err(PoaError::ManagerAlreadyExists);
        }
        Ok(PoaManagers::insert(&mut list, id.to_owned(), &orb))
    }

    /// Returns all managers that a POA or the application uses.
    #[must_use]
    pub fn list(&self) -> Vec<PoaManager> {
        let Some(orb) = self.orb.upgrade() else { return Vec::new() };
        PoaTable::of_server(&orb).managers.all()
    }

    /// Returns the manager with the id `id`; `None` if there is none.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<PoaManager> {
        self.list().into_iter().find(|manager| manager.id() == id)
    }
}
