//! The active object map: two tables, and who may change what in them.
//!
//! Ids that the POA made for a transient object are places in the POA's own slot table. All other active objects are entries
//! of the ORB's table of keys: persistent and user-chosen ids, and system ids that were activated again or for the first time
//! after their reference.
//!
//! An id is *busy* while it is put in, taken out, incarnated or etherealized. Making it busy is the right to change it.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_sched::Priority;
use corelane_sys::clock::Monotonic;
use corelane_sys::slots::{Guard, Retired};

use super::demux::Entry;
use super::error::PoaError;
use super::hold::{Held, HeldList, Kept};
use super::servant_manager::{ServantManager, guarded};
use super::{IdUniqueness, Life, ObjectId, Place, Poa, PoaCore, RequestProcessing, Threading, detour, this_thread};
use crate::current::Upcall;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::servant::Servant;

/// An entry of the POA's own part of the map.
#[derive(Debug)]
pub(super) struct ActiveObject {
    pub(super) servant: Servant,
    /// Its own, where the POA declares priorities.
    pub(super) priority: Option<Priority>,
}

/// An entry of the POA's own part of the map, held: that is all that a request needs which found it by its place. Who lets go of one looks
/// whether the end of the POA waits for that.
pub(super) struct Own<'p> {
    active: Guard<'p, ActiveObject>,
    // Dropped afterwards.
    _left: Left<'p>,
}

impl Deref for Own<'_> {
    type Target = ActiveObject;

    #[inline]
    fn deref(&self) -> &ActiveObject {
        &self.active
    }
}

impl Own<'_> {
    fn place(&self) -> Place {
        Place { slot: self.active.index(), generation: self.active.generation() }
    }
}

struct Left<'p>(&'p Arc<PoaCore>);

impl Drop for Left<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.detours() & detour::ENDING != 0 {
            self.0.look_for_users();
        }
    }
}

/// What is only needed to change the map.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) busy: HashMap<Box<[u8]>, Busy>,
    pub(super) by_servant: HashMap<usize, Activations>,
}

/// Where or how often a servant is active. One for each servant, so it is small: places are slots alone, and who looks there
/// makes sure that the servant is there still.
#[derive(Clone, Copy, Debug)]
pub(super) enum Activations {
    /// UNIQUE_ID: on its way in.
    Entering,
    /// UNIQUE_ID: in this slot of the POA's own table.
    Own(u32),
    /// UNIQUE_ID: in this slot of the ORB's table of keys.
    Keyed(u32),
    /// MULTIPLE_ID with a servant activator, which wants to know.
    Times(u32),
}

/// What is known of where a servant is active, by UNIQUE_ID's rule.
pub(super) enum Only {
    /// Under this id.
    At(ObjectId),
    /// Nowhere, or it is on its way in.
    Nowhere,
    /// It is on its way out, and has no id to speak of.
    Leaving,
}

/// Where an active object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectPlace {
    /// In the POA's own table; the place is the id.
    Own(Place),
    /// In the ORB's table of keys.
    Keyed(Place),
}

/// An id that somebody changes.
#[derive(Debug)]
pub(super) struct Busy {
    /// Set while the id is on its way out: the servant that goes.
    leaving: Option<Leaving>,
    /// The thread that changes it; 0 while running requests are waited for.
    thread: u64,
    held: HeldList,
}

#[derive(Debug)]
struct Leaving {
    servant: Servant,
    why: Why,
}

/// Why an object leaves the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Why {
    /// Because of the POA's end or its manager's.
    pub(super) cleanup: bool,
    /// The servant activator is told.
    pub(super) etherealize: bool,
}

impl Why {
    /// It was deactivated.
    pub(super) const DEACTIVATED: Why = Why { cleanup: false, etherealize: true };
}

/// An active object, held.
pub(super) enum Active<'a> {
    Own(Own<'a>),
    Keyed(Guard<'a, Entry>),
}

impl Active<'_> {
    pub(super) fn servant(&self) -> Option<&Servant> {
        match self {
            Active::Own(active) => Some(&active.servant),
            Active::Keyed(entry) => match &**entry {
                Entry::Object { servant, .. } => Some(servant),
                Entry::Adapter(_) | Entry::Plain(_) => None,
            },
        }
    }

    fn place(&self) -> ObjectPlace {
        match self {
            Active::Own(active) => ObjectPlace::Own(active.place()),
            Active::Keyed(entry) => ObjectPlace::Keyed(Place { slot: entry.index(), generation: entry.generation() }),
        }
    }
}

/// The right to change an id; given back when dropped.
pub(super) struct Reservation<'p> {
    poa: &'p Arc<PoaCore>,
    id: &'p [u8],
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.poa.give_back(self.id);
    }
}

/// Whether an id could be reserved.
pub(super) enum Reserved<'p> {
    Yes(Reservation<'p>),
    /// Somebody else changes it.
    Busy,
    /// The calling thread is what it would wait for.
    Deadlock,
}

impl PoaCore {
    /// The object at this place of the POA's own part of the map.
    #[inline]
    pub(super) fn own(self: &Arc<Self>, place: Place) -> Option<Own<'_>> {
        // One that fails is counted for a moment too.
        let left = Left(self);
        let active = self.objects.get(place.slot, place.generation)?;
        Some(Own { active, _left: left })
    }

    /// Calls `look` with the servant of an active object. `None` if it is not active. Not under any lock: letting go of the
    /// object may be what ends it.
    pub(super) fn look<R>(self: &Arc<Self>, id: &[u8], look: impl FnOnce(&Servant) -> R) -> Option<R> {
        if self.has_places()
            && let Ok(octets) = id.try_into()
            && let Some(active) = self.own(Place::from_octets(octets))
        {
            return Some(look(&active.servant));
        }
        if self.keyed.load(Ordering::Acquire) == 0 {
            return None;
        }
        let orb = self.orb().ok()?;
        let entry = orb.adapters().find_object(&self.key(id))?;
        Active::Keyed(entry).servant().map(look)
    }

    pub(super) fn is_active(self: &Arc<Self>, id: &[u8]) -> bool {
        self.look(id, |_| ()).is_some()
    }

    /// The servant that runs or did run when its object was deactivated.
    pub(crate) fn running_servant(self: &Arc<Self>, id: &[u8], identity: usize) -> Option<Servant> {
        let is_it = |servant: &Servant| (servant.identity() == identity).then(|| servant.clone());
        self.look(id, is_it).flatten().or_else(|| {
            let tables = self.tables.lock();
            tables.busy.get(id).and_then(|busy| busy.leaving.as_ref()).and_then(|leaving| is_it(&leaving.servant))
        })
    }

    fn place_of(self: &Arc<Self>, id: &[u8]) -> Option<(ObjectPlace, Servant)> {
        let held = |active: Active<'_>| Some((active.place(), active.servant()?.clone()));
        if self.has_places()
            && let Ok(octets) = id.try_into()
            && let Some(active) = self.own(Place::from_octets(octets))
        {
            return held(Active::Own(active));
        }
        if self.keyed.load(Ordering::Acquire) == 0 {
            return None;
        }
        let orb = self.orb().ok()?;
        orb.adapters().find_object(&self.key(id)).and_then(|entry| held(Active::Keyed(entry)))
    }

    /// Under which id, by UNIQUE_ID's rule, a servant is active. Not under any lock, as [`look`](Self::look).
    pub(super) fn only_id(self: &Arc<Self>, servant: &Servant) -> Only {
        let activation = self.tables.lock().by_servant.get(&servant.identity()).copied();
        let id = match activation {
            Some(Activations::Own(slot)) => {
                let left = Left(self);
                let active = self.objects.get_current(slot).map(|active| Own { active, _left: left });
                let active = active.filter(|active| active.servant == *servant);
                active.map(|active| active.place().to_octets()[..].into())
            }
            Some(Activations::Keyed(slot)) => {
                let Ok(orb) = self.orb() else { return Only::Leaving };
                match orb.adapters().entry_at(slot).as_deref() {
                    Some(Entry::Object { poa, servant: found, id, .. })
                        if found == servant && Arc::ptr_eq(poa, self) =>
                    {
                        Some(ObjectId::from(&**id))
                    }
                    _ => None,
                }
            }
            Some(Activations::Entering | Activations::Times(_)) | None => return Only::Nowhere,
        };
        id.map_or(Only::Leaving, Only::At)
    }

    /// Makes an id busy.
    pub(super) fn try_reserve<'p>(self: &'p Arc<Self>, id: &'p [u8]) -> Result<Reserved<'p>, SystemException> {
        let mut tables = self.tables.lock();
        if self.life() == Life::Dead {
            return Err(super::destroyed());
        }
        match tables.busy.get(id) {
            None => {
                let busy = Busy { leaving: None, thread: this_thread(), held: HeldList::default() };
                tables.busy.insert(id.into(), busy);
                Ok(Reserved::Yes(Reservation { poa: self, id }))
            }
            Some(busy) if busy.thread == this_thread() => Ok(Reserved::Deadlock),
            Some(busy) => {
                let leaving = busy.leaving.is_some();
                drop(tables);
                Ok(if leaving && self.would_wait_for_itself(id) { Reserved::Deadlock } else { Reserved::Busy })
            }
        }
    }

    /// Whether the calling thread runs what it would wait for: an upcall on the object, or a turn of a POA that gives turns.
    pub(super) fn would_wait_for_itself(&self, id: &[u8]) -> bool {
        if self.policies.threading == Threading::OrbControlled {
            crate::current::runs_on(self, id)
        } else {
            crate::current::runs_in(self)
        }
    }

    /// Makes an id busy as soon as it is not; `None` if the calling thread would wait for itself.
    pub(super) fn reserve<'p>(self: &'p Arc<Self>, id: &'p [u8]) -> Result<Option<Reservation<'p>>, SystemException> {
        loop {
            match self.try_reserve(id)? {
                Reserved::Yes(reservation) => return Ok(Some(reservation)),
                Reserved::Deadlock => return Ok(None),
                Reserved::Busy => drop(self.wait_for_object(id, None)),
            }
        }
    }

    /// Ends the change of an id and goes on with what waited for that.
    fn give_back(self: &Arc<Self>, id: &[u8]) {
        let busy = self.tables.lock().busy.remove(id);
        let leaving = busy.and_then(|busy| {
            busy.held.release();
            busy.leaving
        });
        self.has_changed();
        self.object_is_gone();
        if leaving.is_some() {
            self.let_go_of("Servant", || drop(leaving));
        }
    }

    /// Keeps a request until the id is not busy.
    pub(super) fn keep_for_object(&self, id: &[u8], held: Held) -> Kept {
        match self.tables.lock().busy.get_mut(id) {
            None => Kept::Over(held),
            Some(busy) => busy.held.push(self.place, held).map_or(Kept::Full, |()| Kept::Held),
        }
    }

    /// Waits until the id is not busy; false past the deadline.
    pub(super) fn wait_for_object(&self, id: &[u8], deadline: Option<Monotonic>) -> bool {
        self.wait_until(deadline, || !self.tables.lock().busy.contains_key(id))
    }

    /// Goes on with every request that waits for an id.
    pub(super) fn release_held(&self) {
        let held: Vec<HeldList> =
            self.tables.lock().busy.values_mut().map(|busy| std::mem::take(&mut busy.held)).collect();
        held.into_iter().for_each(HeldList::release);
    }

    /// Counts one more activation of a servant in.
    pub(super) fn claim_servant(&self, tables: &mut Tables, servant: &Servant) -> Result<(), PoaError> {
        if self.is_unique() {
            if tables.by_servant.contains_key(&servant.identity()) {
                return Err(PoaError::ServantAlreadyActive);
            }
            tables.by_servant.insert(servant.identity(), Activations::Entering);
        } else if self.policies.request_processing == RequestProcessing::ServantManager {
            let activations = tables.by_servant.entry(servant.identity()).or_insert(Activations::Times(0));
            if let Activations::Times(times) = activations {
                *times += 1;
            }
        }
        Ok(())
    }

    fn note_place(&self, tables: &mut Tables, servant: &Servant, place: Activations) {
        if self.is_unique() {
            tables.by_servant.insert(servant.identity(), place);
        }
    }

    /// Counts one activation out; true if more remain.
    fn disclaim_servant(&self, servant: &Servant) -> bool {
        let mut tables = self.tables.lock();
        match tables.by_servant.get_mut(&servant.identity()) {
            Some(Activations::Times(times)) if *times > 1 => {
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

    /// Puts an object into the ORB's table of keys. The caller has reserved the id and knows that it is not active.
    /// `running`: on behalf of a request that runs, which a POA that is being destroyed waits for.
    pub(super) fn enter_keyed(
        self: &Arc<Self>,
        _reservation: &Reservation<'_>,
        id: &[u8],
        servant: &Servant,
        running: bool,
    ) -> Result<(), PoaError> {
        let orb = self.orb()?;
        {
            let mut tables = self.tables.lock();
            match self.life() {
                Life::Alive => {}
                Life::Ending if running => {}
                _ => return Err(super::destroyed().into()),
            }
            self.claim_servant(&mut tables, servant)?;
        }
        let priority = self.rt.as_ref().and_then(|rt| rt.assigned(id));
        let entry = Entry::Object { poa: Arc::clone(self), servant: servant.clone(), id: id.into(), priority };
        // Before the entry, so that nobody who knows of the object takes the POA for empty.
        self.keyed.fetch_add(1, Ordering::AcqRel);
        match orb.adapters().enter(&self.key(id), entry) {
            Ok(place) => {
                self.note_place(&mut self.tables.lock(), servant, Activations::Keyed(place.slot));
                Ok(())
            }
            Err(full) => {
                self.keyed.fetch_sub(1, Ordering::AcqRel);
                self.disclaim_servant(servant);
                Err(full.into())
            }
        }
    }

    /// Puts a new object into the POA's own table, which gives it its id.
    pub(super) fn enter_own(
        self: &Arc<Self>,
        servant: &Servant,
        priority: Option<Priority>,
    ) -> Result<ObjectId, PoaError> {
        let mut tables = self.tables.lock();
        self.check_alive()?;
        self.claim_servant(&mut tables, servant)?;
        match self.objects.insert(ActiveObject { servant: servant.clone(), priority }) {
            Ok((slot, generation)) => {
                let place = Place { slot, generation };
                self.note_place(&mut tables, servant, Activations::Own(slot));
                Ok(ObjectId::from(&place.to_octets()[..]))
            }
            Err(_) => {
                drop(tables);
                self.disclaim_servant(servant);
                Err(full().into())
            }
        }
    }

    /// Ends an object's activation; its servant goes when its running requests are done.
    pub(super) fn deactivate(self: &Arc<Self>, id: &[u8], why: Why) -> Result<(), PoaError> {
        self.reserve_to_leave(id, why)?;
        self.take_out(id, why)
    }

    /// Makes the id of an active object busy.
    fn reserve_to_leave(self: &Arc<Self>, id: &[u8], why: Why) -> Result<(), PoaError> {
        loop {
            let Some((_, servant)) = self.place_of(id) else { return Err(PoaError::ObjectNotActive) };
            let mut tables = self.tables.lock();
            let goes = match tables.busy.get(id) {
                None => {
                    let leaving = Some(Leaving { servant, why });
                    tables.busy.insert(id.into(), Busy { leaving, thread: 0, held: HeldList::default() });
                    return Ok(());
                }
                Some(busy) => busy.leaving.is_some() || busy.thread == this_thread(),
            };
            drop(tables);
            // Whoever takes it out may be through with that.
            self.let_go_of("Servant", || drop(servant));
            if goes {
                return Err(PoaError::ObjectNotActive);
            }
            // Somebody is finding out that it is active.
            self.wait_for_object(id, None);
        }
    }

    /// Takes the object out whose id has been made busy for that.
    fn take_out(self: &Arc<Self>, id: &[u8], why: Why) -> Result<(), PoaError> {
        // Before the id was busy, others may have taken it out, and put it in again.
        let Some((place, servant)) = self.place_of(id) else {
            self.give_back(id);
            return Err(PoaError::ObjectNotActive);
        };
        let before =
            self.tables.lock().busy.get_mut(id).and_then(|busy| busy.leaving.replace(Leaving { servant, why }));
        self.let_go_of("Servant", || drop(before));
        let taken = match place {
            ObjectPlace::Own(place) => match self.objects.retire(place.slot, place.generation) {
                Retired::Taken(active) => Some(active.servant),
                Retired::Deferred => return Ok(()),
                Retired::Stale => None,
            },
            ObjectPlace::Keyed(place) => {
                let Ok(orb) = self.orb() else {
                    self.give_back(id);
                    return Err(PoaError::ObjectNotActive);
                };
                // Before its end, which another thread may be through with at once; until then the busy id keeps the POA.
                self.keyed.fetch_sub(1, Ordering::AcqRel);
                match orb.adapters().leave(&self.key(id), place) {
                    Retired::Taken(Entry::Object { servant, .. }) => Some(servant),
                    Retired::Deferred => return Ok(()),
                    Retired::Taken(_) | Retired::Stale => None,
                }
            }
        };
        match taken {
            Some(servant) => {
                self.finish_deactivation(id, servant);
                Ok(())
            }
            None => {
                debug_assert!(false, "nobody else changes an id that is busy");
                self.give_back(id);
                Err(PoaError::ObjectNotActive)
            }
        }
    }

    /// The last request on a deactivated object is done. Called under no lock.
    pub(super) fn finish_deactivation(self: &Arc<Self>, id: &[u8], servant: Servant) {
        if self.policies.threading == Threading::MainThread
            && let Ok(orb) = self.orb()
            && !orb.main_queue().is_main_thread()
        {
            // With the servant: nobody else is to be the last to let go of it.
            let (poa, id) = (Arc::clone(self), ObjectId::from(id));
            let end = Box::new(move || poa.etherealize(id.as_octets(), servant));
            if let Err(end) = orb.main_queue().push_end(end) {
                end();
            }
            return;
        }
        self.etherealize(id, servant);
    }

    /// Lets a servant go, telling the servant activator.
    fn etherealize(self: &Arc<Self>, id: &[u8], servant: Servant) {
        let why = {
            let mut tables = self.tables.lock();
            tables.busy.get_mut(id).and_then(|busy| {
                busy.thread = this_thread();
                busy.leaving.as_ref().map(|leaving| leaving.why)
            })
        };
        // With UNIQUE_ID the servant is free only when it is etherealized.
        let multiple = self.policies.id_uniqueness == IdUniqueness::Multiple;
        let remaining = multiple && self.disclaim_servant(&servant);
        if let (Some(Why { cleanup, etherealize: true }), Some(ServantManager::Activator(activator))) =
            (why, Option::clone(&self.servant_manager.load()))
        {
            let _turn = (self.policies.threading == Threading::SingleThread).then(|| self.serial.enter());
            let _frame = Upcall::enter_callback(self);
            let (id, poa) = (ObjectId::from(id), Poa::from_core(Arc::clone(self)));
            // A panic has been reported; for the rest it is ignored, as exceptions of etherealize are.
            let _ = guarded(&poa, "ServantActivator", "etherealize", || {
                activator.etherealize(&id, &poa, &servant, cleanup, remaining);
            });
        }
        if !multiple {
            self.disclaim_servant(&servant);
        }
        let leaving = self.tables.lock().busy.get_mut(id).and_then(|busy| busy.leaving.take());
        self.let_go_of("Servant", || drop((leaving, servant)));
        self.give_back(id);
    }

    /// Ends the activation of every object.
    pub(super) fn deactivate_all(self: &Arc<Self>, why: Why) {
        let left = Left(self);
        let own: Vec<Place> =
            self.objects.iter().map(|active| Place { slot: active.index(), generation: active.generation() }).collect();
        drop(left);
        for place in own {
            // Those that somebody else deactivates meanwhile are no loss.
            let _ = self.deactivate(&place.to_octets(), why);
        }
        if self.keyed.load(Ordering::Acquire) == 0 {
            return;
        }
        let Ok(orb) = self.orb() else { return };
        for id in orb.adapters().ids_of(self) {
            let _ = self.deactivate(&id, why);
        }
    }
}

/// NO_RESOURCES: more objects than there can be.
#[cold]
pub(super) fn full() -> SystemException {
    SystemException::new(Kind::NoResources, 0, Completion::No).because("too many objects are active")
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

    /// Between the look that finds an object active and the one under the busy id others may take it out and activate another one.
    #[test]
    fn who_was_late_takes_out_what_is_active_now_or_nothing() {
        let orb = crate::Orb::new().unwrap();
        let policies = PoaPolicies { id_assignment: IdAssignment::User, ..PoaPolicies::default() };
        let poa = orb.root_poa().create_poa("p", None, policies).unwrap();
        let (core, id) = (poa.core(), ObjectId::from("x"));
        let [before, now] = [(); 2].map(|()| Servant::new(Nothing));
        let why = Why { cleanup: false, etherealize: true };
        let reserve_late = || {
            let leaving = Some(Leaving { servant: before.clone(), why });
            let busy = Busy { leaving, thread: 0, held: HeldList::default() };
            core.tables.lock().busy.insert(id.as_octets().into(), busy);
        };
        poa.activate_object_with_id(&id, &now).unwrap();
        reserve_late();
        core.take_out(id.as_octets(), why).unwrap();
        assert!(core.place_of(id.as_octets()).is_none() && core.tables.lock().busy.is_empty());
        assert_eq!(core.keyed.load(Ordering::Acquire), 0);
        // UNIQUE_ID: the servant that was active is free again.
        poa.activate_object_with_id(&id, &now).unwrap();
        poa.deactivate_object(&id).unwrap();
        reserve_late();
        assert_eq!(core.take_out(id.as_octets(), why), Err(PoaError::ObjectNotActive));
        assert_eq!((core.keyed.load(Ordering::Acquire), core.tables.lock().busy.len()), (0, 0));
    }
}
