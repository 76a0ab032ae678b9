//! The active object map, whose entries are in two tables. If the POA is transient and made the id
//! at the activation, the object is in the POA's slab, and its slot is its id. All other active
//! objects are in the ORB's table of keys.
//!
//! An id is *busy* while its object is inserted into the table of keys, removed, incarnated or
//! etherealized. During this time no other insertion or removal of the object begins.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_sched::Priority;
use corelane_sys::clock::Monotonic;
use corelane_sys::slab::{RetireResult, SlabGuard};

use super::error::{PoaError, destroyed_error, too_many_objects};
use super::map_tables::{Activations, ActiveObject, BusyId, DeactivationReason, LeavingServant, MapTables};
use super::parked::{ParkResult, ParkedRequests};
use super::servant_manager::{ServantManager, run_guarded};
use super::table::KeyEntry;
use super::table::PoaTable;
use super::{IdUniqueness, ObjectId, Poa, PoaCore, PoaPhase, RequestProcessing, SlotId, Threading, slow_path};
use crate::current::UpcallScope;
use crate::exception::SystemException;
use crate::servant::Servant;
use crate::server::parked_request::ParkedRequest;
use crate::thread_context::thread_number;

/// An object that a request pins. The POA's destruction waits for the pin, so the request need not
/// pin the POA.
pub(super) struct PinnedObject<'p> {
    active: SlabGuard<'p, ActiveObject>,
    _left: UnpinCheck<'p>,
}

impl Deref for PinnedObject<'_> {
    type Target = ActiveObject;

    #[inline]
    fn deref(&self) -> &ActiveObject {
        &self.active
    }
}

impl PinnedObject<'_> {
    fn slot_id(&self) -> SlotId {
        SlotId { slot: self.active.index(), generation: self.active.generation() }
    }
}

struct UnpinCheck<'p>(&'p Arc<PoaCore>);

impl Drop for UnpinCheck<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.slow_path_reasons() & slow_path::DESTROYING != 0 {
            self.0.check_objects_unused();
        }
    }
}

pub(super) enum UniqueActivation {
    At(ObjectId),
    Nowhere,
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectLocation {
    Own(SlotId),
    Keyed(SlotId),
}

pub(super) enum PinnedEntry<'a> {
    Own(PinnedObject<'a>),
    Keyed(SlabGuard<'a, KeyEntry>),
}

impl PinnedEntry<'_> {
    pub(super) fn servant(&self) -> Option<&Servant> {
        match self {
            PinnedEntry::Own(active) => Some(&active.servant),
            PinnedEntry::Keyed(entry) => match &**entry {
                KeyEntry::Object { servant, .. } => Some(servant),
                KeyEntry::Adapter(_) | KeyEntry::Plain(_) => None,
            },
        }
    }

    fn location(&self) -> ObjectLocation {
        match self {
            PinnedEntry::Own(active) => ObjectLocation::Own(active.slot_id()),
            PinnedEntry::Keyed(entry) => {
                ObjectLocation::Keyed(SlotId { slot: entry.index(), generation: entry.generation() })
            }
        }
    }
}

pub(super) struct IdReservation<'p> {
    poa: &'p Arc<PoaCore>,
    id: &'p [u8],
}

impl Drop for IdReservation<'_> {
    fn drop(&mut self) {
        self.poa.release_id(self.id);
    }
}

pub(super) enum ReserveResult<'p> {
    Yes(IdReservation<'p>),
    Busy,
    /// The calling thread would wait for itself.
    Deadlock,
}

impl PoaCore {
    #[inline]
    pub(super) fn own_object(self: &Arc<Self>, place: SlotId) -> Option<PinnedObject<'_>> {
        // Even a failed `get` counts as a user for a moment, which can delay the POA's destruction.
        // The drop of the `UnpinCheck` then continues the destruction.
        let left = UnpinCheck(self);
        let active = self.objects.get(place.slot, place.generation)?;
        Some(PinnedObject { active, _left: left })
    }

    /// Calls `look` with the servant of an active object; returns `None` if the object is not
    /// active. The caller must hold no lock, because the release of the object may run code of the
    /// application.
    pub(super) fn with_servant<R>(self: &Arc<Self>, id: &[u8], look: impl FnOnce(&Servant) -> R) -> Option<R> {
        if self.ids_are_slots()
            && let Ok(octets) = id.try_into()
            && let Some(active) = self.own_object(SlotId::from_octets(octets))
        {
            return Some(look(&active.servant));
        }
        if self.keyed_objects.load(Ordering::Acquire) == 0 {
            return None;
        }
        let orb = self.orb().ok()?;
        let entry = PoaTable::of_server(&orb).find_object(&self.object_key(id))?;
        PinnedEntry::Keyed(entry).servant().map(look)
    }

    pub(super) fn is_active(self: &Arc<Self>, id: &[u8]) -> bool {
        self.with_servant(id, |_| ()).is_some()
    }

    pub(crate) fn running_servant(self: &Arc<Self>, id: &[u8], identity: usize) -> Option<Servant> {
        let is_it = |servant: &Servant| (servant.identity() == identity).then(|| servant.clone());
        self.with_servant(id, is_it).flatten().or_else(|| {
            let tables = self.tables.lock();
            tables.busy.get(id).and_then(|busy| busy.leaving.as_ref()).and_then(|leaving| is_it(&leaving.servant))
        })
    }

    fn find_location(self: &Arc<Self>, id: &[u8]) -> Option<(ObjectLocation, Servant)> {
        let held = |active: PinnedEntry<'_>| Some((active.location(), active.servant()?.clone()));
        if self.ids_are_slots()
            && let Ok(octets) = id.try_into()
            && let Some(active) = self.own_object(SlotId::from_octets(octets))
        {
            return held(PinnedEntry::Own(active));
        }
        if self.keyed_objects.load(Ordering::Acquire) == 0 {
            return None;
        }
        let orb = self.orb().ok()?;
        PoaTable::of_server(&orb).find_object(&self.object_key(id)).and_then(|entry| held(PinnedEntry::Keyed(entry)))
    }

    /// Returns the activation of a servant in a POA with UNIQUE_ID. The caller must hold no lock,
    /// because the release of the object may run code of the application.
    pub(super) fn unique_activation(self: &Arc<Self>, servant: &Servant) -> UniqueActivation {
        let activation = self.tables.lock().by_servant.get(&servant.identity()).copied();
        let id = match activation {
            Some(Activations::Own(slot)) => {
                let left = UnpinCheck(self);
                let active = self.objects.get_any_generation(slot).map(|active| PinnedObject { active, _left: left });
                let active = active.filter(|active| active.servant == *servant);
                active.map(|active| active.slot_id().to_octets()[..].into())
            }
            Some(Activations::Keyed(slot)) => {
                let Ok(orb) = self.orb() else { return UniqueActivation::Leaving };
                match PoaTable::of_server(&orb).entry_at(slot).as_deref() {
                    Some(KeyEntry::Object { poa, servant: found, id, .. })
                        if found == servant && Arc::ptr_eq(poa, self) =>
                    {
                        Some(ObjectId::from(&**id))
                    }
                    _ => None,
                }
            }
            Some(Activations::Entering | Activations::Count(_)) | None => return UniqueActivation::Nowhere,
        };
        id.map_or(UniqueActivation::Leaving, UniqueActivation::At)
    }

    pub(super) fn try_reserve<'p>(self: &'p Arc<Self>, id: &'p [u8]) -> Result<ReserveResult<'p>, SystemException> {
        let mut tables = self.tables.lock();
        if self.phase() == PoaPhase::Dead {
            return Err(destroyed_error());
        }
        match tables.busy.get(id) {
            None => {
                let busy = BusyId { leaving: None, thread: thread_number(), held: ParkedRequests::default() };
                tables.busy.insert(id.into(), busy);
                Ok(ReserveResult::Yes(IdReservation { poa: self, id }))
            }
            Some(busy) if busy.thread == thread_number() => Ok(ReserveResult::Deadlock),
            Some(busy) => {
                let leaving = busy.leaving.is_some();
                drop(tables);
                Ok(if leaving && self.would_deadlock(id) { ReserveResult::Deadlock } else { ReserveResult::Busy })
            }
        }
    }

    /// Returns true in an upcall on the object and, if the POA serializes its requests, in every
    /// upcall of the POA.
    pub(super) fn would_deadlock(&self, id: &[u8]) -> bool {
        if self.policies.threading == Threading::OrbControlled {
            crate::current::is_running_on(self, id)
        } else {
            crate::current::is_running_in(self)
        }
    }

    /// Reserves the id, and waits while another thread changes it. Returns `None` if the calling
    /// thread would wait for itself.
    pub(super) fn reserve<'p>(self: &'p Arc<Self>, id: &'p [u8]) -> Result<Option<IdReservation<'p>>, SystemException> {
        loop {
            match self.try_reserve(id)? {
                ReserveResult::Yes(reservation) => return Ok(Some(reservation)),
                ReserveResult::Deadlock => return Ok(None),
                ReserveResult::Busy => drop(self.wait_for_object(id, None)),
            }
        }
    }

    fn release_id(self: &Arc<Self>, id: &[u8]) {
        let busy = self.tables.lock().busy.remove(id);
        let leaving = busy.and_then(|busy| {
            busy.held.release();
            busy.leaving
        });
        self.notify_changed();
        self.continue_closing();
        if leaving.is_some() {
            self.drop_guarded("Servant", || drop(leaving));
        }
    }

    pub(super) fn park_for_object(&self, id: &[u8], held: ParkedRequest) -> ParkResult {
        match self.tables.lock().busy.get_mut(id) {
            None => ParkResult::AlreadySignalled(held),
            Some(busy) => busy.held.push(self.slot_id, held).map_or(ParkResult::Full, |()| ParkResult::Parked),
        }
    }

    pub(super) fn wait_for_object(&self, id: &[u8], deadline: Option<Monotonic>) -> bool {
        self.wait_until(deadline, || !self.tables.lock().busy.contains_key(id))
    }

    pub(super) fn release_parked(&self) {
        let held: Vec<ParkedRequests> =
            self.tables.lock().busy.values_mut().map(|busy| std::mem::take(&mut busy.held)).collect();
        held.into_iter().for_each(ParkedRequests::release);
    }

    /// Records an activation of the servant if the POA has UNIQUE_ID or a servant manager. Fails
    /// with UNIQUE_ID if the servant has an activation.
    pub(super) fn claim_servant(&self, tables: &mut MapTables, servant: &Servant) -> Result<(), PoaError> {
        if self.is_unique() {
            if tables.by_servant.contains_key(&servant.identity()) {
                return Err(PoaError::ServantAlreadyActive);
            }
            tables.by_servant.insert(servant.identity(), Activations::Entering);
        } else if self.policies.request_processing == RequestProcessing::ServantManager {
            let activations = tables.by_servant.entry(servant.identity()).or_insert(Activations::Count(0));
            if let Activations::Count(times) = activations {
                *times += 1;
            }
        }
        Ok(())
    }

    fn record_location(&self, tables: &mut MapTables, servant: &Servant, place: Activations) {
        if self.is_unique() {
            tables.by_servant.insert(servant.identity(), place);
        }
    }

    fn release_servant(&self, servant: &Servant) -> bool {
        let mut tables = self.tables.lock();
        match tables.by_servant.get_mut(&servant.identity()) {
            Some(Activations::Count(times)) if *times > 1 => {
                *times -= 1;
                true
            }
            Some(_) => {
                tables.by_servant.remove(&servant.identity());
                false
            }
            None => false,
        }
    }

    /// Inserts an object into the table of keys. The caller has reserved the id and checked that it
    /// is not active. `running` is true if a running request activates the object.
    pub(super) fn insert_keyed(
        self: &Arc<Self>,
        _reservation: &IdReservation<'_>,
        id: &[u8],
        servant: &Servant,
        running: bool,
    ) -> Result<(), PoaError> {
        let orb = self.orb()?;
        {
            let mut tables = self.tables.lock();
            match self.phase() {
                PoaPhase::Alive => {}
                PoaPhase::Destroying if running => {}
                _ => return Err(destroyed_error().into()),
            }
            self.claim_servant(&mut tables, servant)?;
        }
        let priority = self.rt.as_ref().and_then(|rt| rt.object_priority(id));
        let entry = KeyEntry::Object { poa: Arc::clone(self), servant: servant.clone(), id: id.into(), priority };
        // A thread that found the object before it was counted could consider the POA empty. So the
        // object is counted before its insertion.
        self.keyed_objects.fetch_add(1, Ordering::AcqRel);
        match PoaTable::of_server(&orb).insert(&self.object_key(id), entry) {
            Ok(place) => {
                self.record_location(&mut self.tables.lock(), servant, Activations::Keyed(place.slot));
                Ok(())
            }
            Err(full) => {
                self.keyed_objects.fetch_sub(1, Ordering::AcqRel);
                self.release_servant(servant);
                Err(full.into())
            }
        }
    }

    /// Inserts an object into the POA's slab, and returns its slot as its id.
    pub(super) fn insert_own(
        self: &Arc<Self>,
        servant: &Servant,
        priority: Option<Priority>,
    ) -> Result<ObjectId, PoaError> {
        let mut tables = self.tables.lock();
        self.check_alive()?;
        self.claim_servant(&mut tables, servant)?;
        match self.objects.insert(ActiveObject { servant: servant.clone(), priority }) {
            Ok((slot, generation)) => {
                let place = SlotId { slot, generation };
                self.record_location(&mut tables, servant, Activations::Own(slot));
                Ok(ObjectId::from(&place.to_octets()[..]))
            }
            Err(_) => {
                drop(tables);
                self.release_servant(servant);
                Err(too_many_objects().into())
            }
        }
    }

    /// Deactivates an object. When the object's running requests have finished, the POA
    /// etherealizes the object and drops its reference to the servant.
    pub(super) fn deactivate(self: &Arc<Self>, id: &[u8], why: DeactivationReason) -> Result<(), PoaError> {
        self.begin_deactivation(id, why)?;
        self.remove_object(id, why)
    }

    fn begin_deactivation(self: &Arc<Self>, id: &[u8], why: DeactivationReason) -> Result<(), PoaError> {
        loop {
            let Some((_, servant)) = self.find_location(id) else { return Err(PoaError::ObjectNotActive) };
            let mut tables = self.tables.lock();
            let goes = match tables.busy.get(id) {
                None => {
                    let leaving = Some(LeavingServant { servant, why });
                    tables.busy.insert(id.into(), BusyId { leaving, thread: 0, held: ParkedRequests::default() });
                    return Ok(());
                }
                Some(busy) => busy.leaving.is_some() || busy.thread == thread_number(),
            };
            drop(tables);
            // The thread that removes the object may have finished. The drop of `servant` may then
            // be the last drop, and run code of the application, so it is guarded.
            self.drop_guarded("Servant", || drop(servant));
            if goes {
                return Err(PoaError::ObjectNotActive);
            }
            // Another thread has reserved the id. That thread will find the object active, and
            // release the id.
            self.wait_for_object(id, None);
        }
    }

    fn remove_object(self: &Arc<Self>, id: &[u8], why: DeactivationReason) -> Result<(), PoaError> {
        // Other threads may have removed the object and activated another object under this id, so
        // the location is looked up now.
        let Some((place, servant)) = self.find_location(id) else {
            self.release_id(id);
            return Err(PoaError::ObjectNotActive);
        };
        let before =
            self.tables.lock().busy.get_mut(id).and_then(|busy| busy.leaving.replace(LeavingServant { servant, why }));
        self.drop_guarded("Servant", || drop(before));
        let taken = match place {
            ObjectLocation::Own(place) => match self.objects.retire(place.slot, place.generation) {
                RetireResult::Taken(active) => Some(active.servant),
                RetireResult::Deferred => return Ok(()),
                RetireResult::Stale => None,
            },
            ObjectLocation::Keyed(place) => {
                let Ok(orb) = self.orb() else {
                    self.release_id(id);
                    return Err(PoaError::ObjectNotActive);
                };
                // Directly after the removal, another thread may finish the deactivation, and must
                // then find the new count. So the count is decremented first.
                self.keyed_objects.fetch_sub(1, Ordering::AcqRel);
                match PoaTable::of_server(&orb).remove(&self.object_key(id), place) {
                    RetireResult::Taken(KeyEntry::Object { servant, .. }) => Some(servant),
                    RetireResult::Deferred => return Ok(()),
                    RetireResult::Taken(_) | RetireResult::Stale => None,
                }
            }
        };
        match taken {
            Some(servant) => {
                self.finish_deactivation(id, servant);
                Ok(())
            }
            None => {
                debug_assert!(false, "only the thread that reserved a busy id may change it");
                self.release_id(id);
                Err(PoaError::ObjectNotActive)
            }
        }
    }

    /// Etherealizes a deactivated object, or lets the main thread do so. Runs code of the
    /// application, so the caller must hold no lock.
    pub(super) fn finish_deactivation(self: &Arc<Self>, id: &[u8], servant: Servant) {
        if self.policies.threading == Threading::MainThread
            && let Ok(orb) = self.orb()
            && !orb.main_queue().is_main_thread()
        {
            // The main thread etherealizes the object and drops the last reference to the servant.
            // If the queue of the main thread has stopped, this thread does both.
            let (poa, id) = (Arc::clone(self), ObjectId::from(id));
            let end = Box::new(move || poa.etherealize(id.as_octets(), servant));
            if let Err(end) = orb.main_queue().push_deactivation(end) {
                end();
            }
            return;
        }
        self.etherealize(id, servant);
    }

    fn etherealize(self: &Arc<Self>, id: &[u8], servant: Servant) {
        let why = {
            let mut tables = self.tables.lock();
            tables.busy.get_mut(id).and_then(|busy| {
                busy.thread = thread_number();
                busy.leaving.as_ref().map(|leaving| leaving.why)
            })
        };
        // Under UNIQUE_ID the servant's activation is released after its etherealization, so that
        // the servant cannot be activated earlier.
        let multiple = self.policies.id_uniqueness == IdUniqueness::Multiple;
        let remaining = multiple && self.release_servant(&servant);
        if let (Some(DeactivationReason { cleanup, etherealize: true }), Some(ServantManager::Activator(activator))) =
            (why, Option::clone(&self.servant_manager.load()))
        {
            let _turn = (self.policies.threading == Threading::SingleThread).then(|| self.serial.enter());
            let _frame = UpcallScope::enter_callback(self);
            let (id, poa) = (ObjectId::from(id), Poa::from_core(Arc::clone(self)));
            // The specification says that exceptions of `etherealize` are ignored.
            let _ = run_guarded(&poa, "ServantActivator", "etherealize", || {
                activator.etherealize(&id, &poa, &servant, cleanup, remaining);
            });
        }
        if !multiple {
            self.release_servant(&servant);
        }
        let leaving = self.tables.lock().busy.get_mut(id).and_then(|busy| busy.leaving.take());
        self.drop_guarded("Servant", || drop((leaving, servant)));
        self.release_id(id);
    }

    pub(super) fn deactivate_all(self: &Arc<Self>, why: DeactivationReason) {
        let left = UnpinCheck(self);
        let own: Vec<SlotId> = self
            .objects
            .iter()
            .map(|active| SlotId { slot: active.index(), generation: active.generation() })
            .collect();
        drop(left);
        for place in own {
            // The deactivation fails if another thread has deactivated the object, so an error is
            // ignored.
            let _ = self.deactivate(&place.to_octets(), why);
        }
        if self.keyed_objects.load(Ordering::Acquire) == 0 {
            return;
        }
        let Ok(orb) = self.orb() else { return };
        for id in PoaTable::of_server(&orb).ids_of(self) {
            let _ = self.deactivate(&id, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poa::{IdAssignment, PoaPolicies};

    struct Nothing;

    impl crate::Skeleton for Nothing {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:test/Nothing:1.0"]
        }

        fn dispatch(&self, _: &[u8], _: &mut crate::ServerCall<'_>) -> Result<(), SystemException> {
            Err(SystemException::bad_operation())
        }
    }

    /// Another thread may replace or remove an active object between its look-up and the
    /// reservation of its id.
    #[test]
    fn late_deactivation_removes_only_the_current_object() {
        let orb = crate::Orb::new().unwrap();
        let policies = PoaPolicies { id_assignment: IdAssignment::User, ..PoaPolicies::default() };
        let poa = orb.root_poa().create_poa("p", None, policies).unwrap();
        let (core, id) = (poa.core(), ObjectId::from("x"));
        let [before, now] = [(); 2].map(|()| Servant::new(Nothing));
        let why = DeactivationReason { cleanup: false, etherealize: true };
        let reserve_late = || {
            let leaving = Some(LeavingServant { servant: before.clone(), why });
            let busy = BusyId { leaving, thread: 0, held: ParkedRequests::default() };
            core.tables.lock().busy.insert(id.as_octets().into(), busy);
        };
        poa.activate_object_with_id(&id, &now).unwrap();
        reserve_late();
        core.remove_object(id.as_octets(), why).unwrap();
        assert!(core.find_location(id.as_octets()).is_none() && core.tables.lock().busy.is_empty());
        assert_eq!(core.keyed_objects.load(Ordering::Acquire), 0);
        poa.activate_object_with_id(&id, &now).unwrap();
        poa.deactivate_object(&id).unwrap();
        reserve_late();
        assert_eq!(core.remove_object(id.as_octets(), why), Err(PoaError::ObjectNotActive));
        assert_eq!((core.keyed_objects.load(Ordering::Acquire), core.tables.lock().busy.len()), (0, 0));
    }
}
