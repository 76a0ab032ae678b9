//! From an object key to the servant: constant time, no lock.
//!
//! The short way is for objects in the map of a POA that is open: two array accesses for a system id, one search of the key
//! index and three for any other. Everything else (managers that are not active, thread policies, default servants, servant
//! managers, POAs that must be made first) is the long way, which follows the specification's algorithm step by step.

use std::sync::{Arc, OnceLock};

use corelane_sched::{Priority, PriorityBand};
use corelane_sys::index::{HashIndex, Writer};
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::probe;
use corelane_sys::slots::{Guard, Retired, SlotTable};
use corelane_wire::exception::minor;

use super::hold::Hold;
use super::incarnation::{Incarnated, Preinvoked};
use super::key::{self, Key, Place};
use super::manager::{ManagerState, Managers};
use super::servant_manager::Lent;
use super::tree::Child;
use super::{Life, PoaCore, RequestProcessing, Threading, detour};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::rt::ThreadpoolId;
use crate::rt::poa::{Placed, to_default};
use crate::rt::station;
use crate::servant::Servant;

/// Objects that all POAs of an ORB together can have active under persistent or user-chosen keys.
const MOST_KEYS: u32 = 1 << 26;
/// POAs of one ORB.
const MOST_POAS: u32 = 1 << 16;

/// The POAs of an ORB and the table of all keys that are not places.
#[derive(Debug)]
pub(crate) struct Adapters {
    /// Random per ORB: part of every transient key.
    pub(crate) stamp: u64,
    pub(crate) poas: SlotTable<Arc<PoaCore>>,
    pub(super) managers: Managers,
    root: OnceLock<Arc<PoaCore>>,
    index: Arc<HashIndex>,
    entries: SlotTable<Entry>,
    writer: Mutex<Writer>,
    /// POAs that are being destroyed.
    ending: Mutex<Vec<Arc<PoaCore>>>,
    /// Held while a plain key is bound or unbound.
    bindings: Mutex<Bindings>,
}

/// What is known of the plain keys.
#[derive(Debug, Default)]
struct Bindings {
    /// How often one has been bound or unbound.
    changes: u64,
    /// The ORB has ended: none is bound any more.
    closed: bool,
}

/// What a key in the table stands for.
#[derive(Debug)]
pub(crate) enum Entry {
    /// An active object; its key is its POA's prefix and its own id.
    Object { poa: Arc<PoaCore>, servant: Servant, id: Box<[u8]>, priority: Option<Priority> },
    /// A POA by its path.
    Adapter(Arc<PoaCore>),
    /// A plain key and where it leads.
    Plain(Box<Plain>),
}

#[derive(Debug)]
pub(crate) struct Plain {
    key: Box<[u8]>,
    target: ObjectRef,
    /// [`Adapters::own_key`]: only programs that bind plain keys take references apart for them.
    own_key: for<'r> fn(&Adapters, &'r ObjectRef) -> Option<&'r [u8]>,
}

/// What a request asks for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'w> {
    /// The object.
    pub(crate) key: &'w [u8],
    /// What a servant locator is told.
    pub(crate) operation: &'w [u8],
    pub(crate) priority: ClientPriority,
    /// The band that its connection is for.
    pub(crate) band: Option<PriorityBand>,
    /// The highest priority that its client may have it run at.
    pub(crate) ceiling: Priority,
}

/// The priority that the client propagates.
#[derive(Clone, Copy)]
pub(crate) enum ClientPriority {
    /// As the request says.
    Said(Option<Priority>),
    /// The calling thread is the client; it is asked where that matters, which is seldom.
    OfCaller,
}

/// What a request is for.
pub(crate) enum Found<'f> {
    /// A servant, held for the time of the call. Where the target was put together: copied it would be read before its parts had left the
    /// processor's store buffer, which takes longer than finding it.
    Servant(&'f Target<'f>),
    /// The object is elsewhere.
    Forward(ObjectRef),
    /// Not now.
    Held(Hold),
    /// No.
    Refused(SystemException),
    /// Not at the priority that it asks for.
    Misplaced(SystemException),
}

/// A servant and the object that it stands for.
pub(crate) struct Target<'f> {
    pub(crate) poa: &'f Arc<PoaCore>,
    pub(crate) servant: &'f Servant,
    pub(crate) id: &'f [u8],
    /// The servant is in the active object map under this id.
    pub(crate) in_map: bool,
    /// At which priority the upcall runs; `None`: as the thread is.
    pub(crate) priority: Option<Priority>,
    /// The servant is a locator's, and goes back to it.
    pub(super) lent: Option<&'f Lent>,
}

impl Entry {
    /// Whether this is the active object with this key.
    #[inline]
    fn is_object(&self, key: &[u8]) -> bool {
        match self {
            Entry::Object { poa, id, .. } => key.strip_prefix(&*poa.key_prefix).is_some_and(|found| *found == **id),
            Entry::Adapter(_) | Entry::Plain(_) => false,
        }
    }
}

impl Target<'_> {
    /// Whether a servant locator gave the servant, for this request alone.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Ends the object's activation.
    pub(crate) fn deactivate(&self) {
        if self.in_map {
            // Somebody else may have done it already.
            let _ = self.poa.deactivate(self.id, super::map::Why::DEACTIVATED);
        }
    }

    /// The operation is done, whatever came of it.
    ///
    /// # Errors
    /// The servant locator's exception, which replaces the operation's outcome.
    #[inline]
    pub(crate) fn finish(&self, operation: &[u8]) -> Result<(), SystemException> {
        match self.lent {
            None => Ok(()),
            Some(lent) => lent.postinvoke(operation, self.servant),
        }
    }
}

impl Adapters {
    pub(crate) fn new(stamp: u64) -> Self {
        let writer = Writer::new("object key index", Scope::Orb);
        let last_out = |_, _, entry| match entry {
            Entry::Object { poa, servant, id, .. } => poa.finish_deactivation(&id, servant),
            // A reference with direct calls keeps its servant.
            Entry::Plain(plain) => {
                let root = plain.target.core().root_poa();
                root.core().let_go_of("Servant", || drop(plain));
            }
            Entry::Adapter(_) => {}
        };
        Adapters {
            stamp,
            poas: SlotTable::with_callback("POAs", Scope::Orb, MOST_POAS, |_, _, poa: Arc<PoaCore>| {
                poa.requests_are_done();
            }),
            managers: Managers::new(),
            root: OnceLock::new(),
            index: Arc::clone(writer.index()),
            entries: SlotTable::with_callback("object keys", Scope::Orb, MOST_KEYS, last_out),
            writer: Mutex::new("object key index writer", Scope::Orb, writer),
            ending: Mutex::new("ending POAs", Scope::Orb, Vec::new()),
            bindings: Mutex::new("plain keys", Scope::Orb, Bindings::default()),
        }
    }

    pub(crate) fn root(&self) -> Option<&Arc<PoaCore>> {
        self.root.get()
    }

    pub(crate) fn set_root(&self, root: Arc<PoaCore>) {
        // Set once, by the builder of the ORB.
        let _ = self.root.set(root);
    }

    /// Finds what is wanted and gives it to `act`, which runs while the servant is held.
    #[inline]
    pub(crate) fn find<R>(&self, wanted: Wanted<'_>, act: impl FnOnce(Found<'_>) -> R) -> R {
        match Key::parse(wanted.key) {
            Key::System { stamp, poa, object } if stamp == self.stamp => self.find_system(wanted, poa, object, act),
            Key::System { .. } => act(Found::Refused(no_such_object())),
            Key::User { .. } | Key::Persistent { .. } => self.find_by_key(wanted, act),
            Key::Hinted { slot, key } => self.find_hinted(slot, Wanted { key, ..wanted }, act),
            Key::Plain => self.find_plain(wanted, act),
        }
    }

    /// Whether a request of this POA runs on the calling thread, and at which priority.
    fn place(
        &self,
        poa: &Arc<PoaCore>,
        wanted: Wanted<'_>,
        object: Option<Priority>,
        id: &[u8],
    ) -> Result<Option<Priority>, Found<'static>> {
        if is_served_anywhere(poa) {
            return Ok(None);
        }
        let Ok(core) = poa.orb() else { return Ok(None) };
        let placed = match &poa.rt {
            Some(rt) => rt.place(&core, wanted, object, id),
            None if station::of_thread(self.stamp).is_default() => Placed::Here(None),
            None => to_default(&core, None),
        };
        match placed {
            Placed::Here(priority) => Ok(priority),
            Placed::Elsewhere(lane) => Err(Found::Held(Hold::Lane(lane))),
            Placed::Refused(exception) => Err(Found::Misplaced(exception)),
        }
    }

    /// The POA of a key's object, if there is one now.
    #[cold]
    pub(crate) fn poa_of(&self, key: &[u8]) -> Option<Arc<PoaCore>> {
        match Key::parse(key) {
            Key::System { stamp, poa, .. } | Key::User { stamp, poa, .. } if stamp == self.stamp => {
                self.poas.get(poa.slot, poa.generation).map(|poa| Arc::clone(&poa))
            }
            Key::Persistent { path, .. } => self.adapter_by_path(path),
            Key::Hinted { key, .. } => self.poa_of(key),
            Key::Plain => self.led_to(key, |key| self.poa_of(key)),
            Key::System { .. } | Key::User { .. } => None,
        }
    }

    /// How urgent a request is that asks for priority `asked`, by what goes for its object; `None`: as its pool is.
    #[cold]
    pub(crate) fn urgency(&self, core: &Core, key: &[u8], asked: Option<Priority>) -> Option<Priority> {
        let of = |id: &[u8]| {
            let poa = self.poa_of(key)?;
            poa.rt.as_ref()?.urgency(core, asked, poa.priority_of(id), id)
        };
        match Key::parse(key) {
            Key::System { object, .. } => of(&object.to_octets()),
            Key::User { id, .. } | Key::Persistent { id, .. } => of(id),
            Key::Hinted { key, .. } => self.urgency(core, key, asked),
            Key::Plain => self.led_to(key, |key| self.urgency(core, key, asked)),
        }
    }

    /// Whether a POA that is not dead uses the thread pool.
    pub(crate) fn uses_pool(&self, id: ThreadpoolId) -> bool {
        let uses = |poa: &PoaCore| poa.rt.as_ref().and_then(|rt| rt.pool.as_ref()).is_some_and(|pool| pool.id == id);
        self.poas.iter().any(|poa| uses(&poa)) || self.ending.lock().iter().any(|poa| uses(poa))
    }

    /// Two array accesses.
    #[inline]
    fn find_system<R>(&self, wanted: Wanted<'_>, poa: Place, object: Place, act: impl FnOnce(Found<'_>) -> R) -> R {
        let Some(running) = self.poas.get(poa.slot, poa.generation) else {
            return act(Found::Refused(self.no_poa(poa)));
        };
        probe!("adapter found");
        if running.is_open()
            && let Some(active) = running.own(object)
        {
            let id = &object.to_octets();
            let mut priority = None;
            if !is_served_anywhere(&running) {
                match self.place(&running, wanted, active.priority, id) {
                    Ok(placed) => priority = placed,
                    Err(elsewhere) => return act(elsewhere),
                }
            }
            let target = Target { poa: &running, servant: &active.servant, id, in_map: true, priority, lent: None };
            return act(Found::Servant(&target));
        }
        self.find_slowly(&running, wanted, &object.to_octets(), act)
    }

    /// One hash of the whole key.
    #[inline]
    fn find_entry(&self, key: &[u8], is_it: impl Fn(&Entry) -> bool) -> Option<Guard<'_, Entry>> {
        let mut found = None;
        self.index.find(key, |slot| {
            found = self.entries.get_current(slot).filter(|entry| is_it(entry));
            found.is_some()
        });
        found
    }

    /// The active object with this key, if it is in the table of keys.
    #[inline]
    pub(super) fn find_object(&self, key: &[u8]) -> Option<Guard<'_, Entry>> {
        self.find_entry(key, |entry| entry.is_object(key))
    }

    /// Persistent keys and ids that the user chose.
    #[inline]
    fn find_by_key<R>(&self, wanted: Wanted<'_>, act: impl FnOnce(Found<'_>) -> R) -> R {
        self.find_active(self.find_object(wanted.key), wanted, act)
    }

    /// One array access, if the object still is where it was when the reference was made.
    #[inline]
    fn find_hinted<R>(&self, slot: u32, wanted: Wanted<'_>, act: impl FnOnce(Found<'_>) -> R) -> R {
        let entry = self.entries.get_current(slot).filter(|entry| entry.is_object(wanted.key));
        self.find_active(entry.or_else(|| self.find_object(wanted.key)), wanted, act)
    }

    #[inline]
    fn find_active<R>(
        &self,
        entry: Option<Guard<'_, Entry>>,
        wanted: Wanted<'_>,
        act: impl FnOnce(Found<'_>) -> R,
    ) -> R {
        if let Some(Entry::Object { poa, servant, id, priority }) = entry.as_deref()
            && poa.is_open()
            && let Some(running) = self.poas.get(poa.place.slot, poa.place.generation)
            // Looked at again by who is counted: see `SlotTable::in_flight`.
            && running.is_open()
        {
            let mut at = None;
            if !is_served_anywhere(poa) {
                match self.place(poa, wanted, *priority, id) {
                    Ok(placed) => at = placed,
                    Err(elsewhere) => return act(elsewhere),
                }
            }
            return act(Found::Servant(&Target { poa, servant, id, in_map: true, priority: at, lent: None }));
        }
        drop(entry);
        self.find_elsewhere(wanted, act)
    }

    /// The key of an object that is not in the table, or not to be had the short way: its POA decides.
    fn find_elsewhere<R>(&self, wanted: Wanted<'_>, act: impl FnOnce(Found<'_>) -> R) -> R {
        let (place, id) = match Key::parse(wanted.key) {
            Key::User { stamp, poa, id } if stamp == self.stamp => (poa, id),
            Key::Persistent { path, id } => match self.adapter(path) {
                Ok(poa) => (poa.place, id),
                Err(found) => return act(found),
            },
            _ => return act(Found::Refused(no_such_object())),
        };
        match self.poas.get(place.slot, place.generation) {
            Some(running) => self.find_slowly(&running, wanted, id, act),
            None => act(Found::Refused(self.no_poa(place))),
        }
    }

    /// The persistent POA with this path. If it must be made first, adapter activators are asked, from the root on.
    fn adapter(&self, path: &[u8]) -> Result<Arc<PoaCore>, Found<'static>> {
        if let Some(poa) = self.adapter_by_path(path) {
            return if poa.life() == Life::Alive { Ok(poa) } else { Err(Found::Refused(ending())) };
        }
        let refused = || Found::Refused(no_such_object());
        let names = key::names(path).ok_or_else(refused)?;
        let mut poa = Arc::clone(self.root().ok_or_else(refused)?);
        for name in names {
            poa = match poa.child(name, false) {
                Child::Here(child) => child,
                _ => {
                    if let Some(found) = poa.may_ask() {
                        return Err(found);
                    }
                    match poa.child(name, true) {
                        Child::Here(child) => child,
                        Child::Held(hold) => return Err(Found::Held(hold)),
                        Child::Missing => return Err(refused()),
                        Child::Raised(exception) => return Err(Found::Refused(exception)),
                    }
                }
            };
        }
        if poa.is_persistent() { Ok(poa) } else { Err(refused()) }
    }

    fn adapter_by_path(&self, path: &[u8]) -> Option<Arc<PoaCore>> {
        let entry = self.find_entry(path, |entry| matches!(entry, Entry::Adapter(poa) if *poa.path == *path))?;
        match &*entry {
            Entry::Adapter(poa) => Some(Arc::clone(poa)),
            Entry::Object { .. } | Entry::Plain(_) => None,
        }
    }

    /// The specification's algorithm from the POA on: manager, thread, servant.
    #[cold]
    fn find_slowly<R>(
        &self,
        running: &Guard<'_, Arc<PoaCore>>,
        wanted: Wanted<'_>,
        id: &[u8],
        act: impl FnOnce(Found<'_>) -> R,
    ) -> R {
        let poa: &Arc<PoaCore> = running;
        let key = wanted.key;
        if let Some(found) = self.not_now(poa) {
            return act(found);
        }
        let priority = match self.place(poa, wanted, poa.priority_of(id), id) {
            Ok(priority) => priority,
            Err(elsewhere) => return act(elsewhere),
        };
        let _turn = (poa.policies.threading == Threading::SingleThread).then(|| poa.serial.enter());
        loop {
            if poa.retains() {
                if poa.has_places()
                    && let Ok(octets) = id.try_into()
                    && let Some(active) = poa.own(Place::from_octets(octets))
                {
                    let target = Target { poa, servant: &active.servant, id, in_map: true, priority, lent: None };
                    return act(Found::Servant(&target));
                }
                if let Some(Entry::Object { servant, .. }) = self.find_object(key).as_deref() {
                    return act(Found::Servant(&Target { poa, servant, id, in_map: true, priority, lent: None }));
                }
            }
            match poa.policies.request_processing {
                RequestProcessing::ActiveObjectMapOnly => return act(Found::Refused(no_such_object())),
                RequestProcessing::DefaultServant => {
                    let default = poa.default_servant.load();
                    let Some(servant) = &*default else { return act(Found::Refused(no_default_servant())) };
                    return act(Found::Servant(&Target { poa, servant, id, in_map: false, priority, lent: None }));
                }
                RequestProcessing::ServantManager if poa.retains() => match poa.incarnate(id) {
                    Incarnated::LookAgain => {}
                    Incarnated::Held(hold) => return act(Found::Held(hold)),
                    Incarnated::Forward(reference) => return act(Found::Forward(reference)),
                    Incarnated::Refused(exception) => return act(Found::Refused(exception)),
                },
                RequestProcessing::ServantManager => {
                    return match poa.preinvoke(id, wanted.operation) {
                        Preinvoked::Servant(servant, lent) => {
                            let target =
                                Target { poa, servant: &servant, id, in_map: false, priority, lent: Some(&lent) };
                            let answer = act(Found::Servant(&target));
                            poa.let_go_of("Servant", || drop((servant, lent)));
                            answer
                        }
                        Preinvoked::Forward(reference) => act(Found::Forward(reference)),
                        Preinvoked::Refused(exception) => act(Found::Refused(exception)),
                    };
                }
            }
        }
    }

    /// Why requests of this POA do not run now on this thread.
    fn not_now(&self, poa: &Arc<PoaCore>) -> Option<Found<'static>> {
        if let Some(hold) = poa.fresh_hold() {
            return Some(Found::Held(hold));
        }
        // Afterwards: an activator that gave up because the POA was being destroyed may have returned just now.
        if poa.detours() & detour::ENDING != 0 {
            return Some(Found::Refused(ending()));
        }
        if poa.manager.state() != ManagerState::Active {
            return Some(not_active(poa));
        }
        if poa.policies.threading == Threading::MainThread {
            return match poa.orb() {
                Ok(core) if core.main_queue().is_main_thread() => None,
                Ok(core) => Some(Found::Held(Hold::MainThread(core))),
                Err(exception) => Some(Found::Refused(exception)),
            };
        }
        None
    }

    /// An object of this ORB is served as under its own key; any other one is elsewhere. (A client that was sent to an object
    /// which is gone may ask the plain key again, without end: omniORB's does.)
    fn find_plain<R>(&self, wanted: Wanted<'_>, act: impl FnOnce(Found<'_>) -> R) -> R {
        let entry = self.plain(wanted.key);
        let Some(Entry::Plain(plain)) = entry.as_deref() else { return act(Found::Refused(no_such_object())) };
        match (plain.own_key)(self, &plain.target) {
            Some(key) => self.find(Wanted { key, ..wanted }, act),
            None => act(Found::Forward(plain.target.clone())),
        }
    }

    /// What `of` says of the object of this ORB that a plain key leads to.
    fn led_to<R>(&self, key: &[u8], of: impl FnOnce(&[u8]) -> Option<R>) -> Option<R> {
        let entry = self.plain(key)?;
        let Entry::Plain(plain) = &*entry else { return None };
        of((plain.own_key)(self, &plain.target)?)
    }

    /// The object key of a reference to an object of this ORB. A plain key is none: it may lead anywhere, to itself too.
    fn own_key<'r>(&self, reference: &'r ObjectRef) -> Option<&'r [u8]> {
        let core = reference.core();
        let key = std::ptr::eq(core.adapters(), self).then(|| reference.binding().local_key(core))??;
        (Key::parse(key) != Key::Plain).then_some(key)
    }

    fn locate_plain(&self, key: &[u8]) -> Located {
        let entry = self.plain(key);
        let Some(Entry::Plain(plain)) = entry.as_deref() else { return Located::Unknown };
        match (plain.own_key)(self, &plain.target) {
            Some(own) => self.locate(own),
            None => Located::Forward(plain.target.clone()),
        }
    }

    fn plain(&self, key: &[u8]) -> Option<Guard<'_, Entry>> {
        self.find_entry(key, |entry| matches!(entry, Entry::Plain(plain) if *plain.key == *key))
    }

    /// Where the object of `key` is; asks no servant manager.
    #[cold]
    pub(crate) fn locate(&self, key: &[u8]) -> Located {
        let of_found = |found: Found<'_>| match found {
            Found::Servant(_) => Located::Here,
            Found::Forward(reference) => Located::Forward(reference),
            Found::Held(hold) => Located::Held(hold),
            Found::Refused(exception) if exception.kind() == Kind::ObjectNotExist => Located::Unknown,
            Found::Refused(exception) | Found::Misplaced(exception) => Located::Raised(exception),
        };
        let (place, id) = match Key::parse(key) {
            Key::System { stamp, poa, .. } | Key::User { stamp, poa, .. } if stamp == self.stamp => {
                (poa, key.get(key.len() - Place::OCTETS..))
            }
            Key::Persistent { path, id } => match self.adapter(path) {
                Ok(poa) => (poa.place, Some(id)),
                Err(found) => return of_found(found),
            },
            Key::Hinted { key, .. } => return self.locate(key),
            Key::Plain => return self.locate_plain(key),
            _ => return Located::Unknown,
        };
        let id = if let Key::User { id, .. } = Key::parse(key) { Some(id) } else { id };
        let Some(running) = self.poas.get(place.slot, place.generation) else {
            return of_found(Found::Refused(self.no_poa(place)));
        };
        let poa: &Arc<PoaCore> = &running;
        // Where an object is can be told on any thread.
        if let Some(found) = self.not_now(poa)
            && !matches!(found, Found::Held(Hold::MainThread(_)))
        {
            return of_found(found);
        }
        let known = match poa.policies.request_processing {
            RequestProcessing::ActiveObjectMapOnly => false,
            RequestProcessing::DefaultServant => poa.default_servant.load().is_some(),
            RequestProcessing::ServantManager => poa.servant_manager.load().is_some(),
        };
        if known || (poa.retains() && id.is_some_and(|id| poa.is_active(id))) {
            Located::Here
        } else {
            Located::Unknown
        }
    }

    /// Lets a plain key lead to `reference`.
    pub(crate) fn bind_plain(&self, key: &[u8], reference: &ObjectRef) -> Result<(), SystemException> {
        let bad = |why: &str| SystemException::new(Kind::BadParam, 0, Completion::No).because(why);
        if Key::parse(key) != Key::Plain || key.is_empty() {
            return Err(bad("the key looks like one of the ORB's own"));
        }
        loop {
            let seen = self.bindings.lock().changes;
            if self.plain(key).is_some() {
                return Err(bad("the key is bound already"));
            }
            let mut bindings = self.bindings.lock();
            if bindings.closed {
                return Err(SystemException::new(
                    Kind::BadInvOrder,
                    minor::bad_inv_order::ORB_SHUT_DOWN,
                    Completion::No,
                )
                .because("the ORB has been shut down"));
            }
            if bindings.changes == seen {
                bindings.changes += 1;
                let plain = Plain { key: key.into(), target: reference.clone(), own_key: Self::own_key };
                return self.enter(key, Entry::Plain(Box::new(plain))).map(drop);
            }
        }
    }

    /// Lets a plain key lead nowhere; false if it did not lead anywhere.
    pub(crate) fn unbind_plain(&self, key: &[u8]) -> bool {
        loop {
            let seen = self.bindings.lock().changes;
            let found = self.plain(key).map(|entry| Place { slot: entry.index(), generation: entry.generation() });
            let Some(place) = found else { return false };
            let mut bindings = self.bindings.lock();
            if bindings.changes == seen {
                bindings.changes += 1;
                let left = self.leave(key, place);
                drop(bindings);
                drop(left);
                return true;
            }
        }
    }

    /// Lets go of every reference, when the ORB has ended.
    pub(crate) fn close(&self) {
        self.bindings.lock().closed = true;
        let plain = self.entries.iter().filter_map(|entry| match &*entry {
            Entry::Plain(plain) => Some(plain.key.clone()),
            Entry::Object { .. } | Entry::Adapter(_) => None,
        });
        let plain: Vec<_> = plain.collect();
        let Some(root) = self.root() else { return };
        for key in plain {
            // A reference with direct calls keeps its servant.
            root.let_go_of("Servant", || _ = self.unbind_plain(&key));
        }
    }

    /// Enters a key; the caller has made sure that it is new.
    pub(super) fn enter(&self, key: &[u8], entry: Entry) -> Result<Place, SystemException> {
        let mut writer = self.writer.lock();
        let (slot, generation) = self.entries.insert(entry).map_err(|_| super::map::full())?;
        writer.insert(key, slot);
        Ok(Place { slot, generation })
    }

    /// Takes out what is at a place, and its key. The caller lets go of the entry under no lock.
    pub(super) fn leave(&self, key: &[u8], place: Place) -> Retired<Entry> {
        {
            let mut writer = self.writer.lock();
            // Another thread may have been faster, and the slot be another entry's, even of the same key. None comes in meanwhile.
            if self.entries.last_generation(place.slot) != place.generation {
                return Retired::Stale;
            }
            writer.remove(key, place.slot);
        }
        self.entries.retire(place.slot, place.generation)
    }

    pub(super) fn entry_at(&self, slot: u32) -> Option<Guard<'_, Entry>> {
        self.entries.get_current(slot)
    }

    pub(super) fn enter_adapter(&self, poa: &Arc<PoaCore>) -> Result<(), SystemException> {
        self.enter(&poa.path, Entry::Adapter(Arc::clone(poa))).map(drop)
    }

    /// The ids of a POA's objects in the table of keys. Looks at all entries of the ORB.
    pub(super) fn ids_of(&self, poa: &Arc<PoaCore>) -> Vec<Box<[u8]>> {
        let ids = self.entries.iter().filter_map(|entry| match &*entry {
            Entry::Object { poa: of, id, .. } if Arc::ptr_eq(of, poa) => Some(id.clone()),
            _ => None,
        });
        ids.collect()
    }

    /// A POA that is not dead.
    pub(crate) fn running(&self, place: Place) -> Option<Arc<PoaCore>> {
        let running = self.poas.get(place.slot, place.generation).map(|poa| Arc::clone(&poa));
        running.or_else(|| self.ending.lock().iter().find(|poa| poa.place == place).cloned())
    }

    pub(super) fn note_ending(&self, poa: &Arc<PoaCore>) {
        self.ending.lock().push(Arc::clone(poa));
    }

    /// A POA is dead: its path leads nowhere.
    pub(super) fn forget(&self, poa: &Arc<PoaCore>) {
        let entry = self.find_entry(&poa.path, |entry| matches!(entry, Entry::Adapter(of) if Arc::ptr_eq(of, poa)));
        let place = entry.map(|entry| Place { slot: entry.index(), generation: entry.generation() });
        if let Some(place) = place {
            drop(self.leave(&poa.path, place));
        }
        self.ending.lock().retain(|of| !Arc::ptr_eq(of, poa));
    }

    /// Why there is no POA at a place: it is being destroyed, or it never was or is dead.
    #[cold]
    fn no_poa(&self, place: Place) -> SystemException {
        if self.ending.lock().iter().any(|poa| poa.place == place) { ending() } else { no_such_object() }
    }
}

/// Whether requests of this POA run on the calling thread, as it is: neither has anything to do with priorities.
#[inline]
pub(super) fn is_served_anywhere(poa: &PoaCore) -> bool {
    poa.rt.is_none() && station::is_plain()
}

/// Where an object is, as LocateRequest asks.
pub(crate) enum Located {
    /// Here.
    Here,
    /// Nowhere.
    Unknown,
    /// Elsewhere.
    Forward(ObjectRef),
    /// One cannot tell yet.
    Held(Hold),
    /// One cannot tell.
    Raised(SystemException),
}

/// What a manager that is not active does with a request.
#[cold]
pub(super) fn not_active(adapter: &Arc<PoaCore>) -> Found<'static> {
    match adapter.manager.state() {
        ManagerState::Active | ManagerState::Holding => {
            Found::Held(Hold::Manager(adapter.manager.clone(), adapter.place))
        }
        ManagerState::Discarding => Found::Refused(
            SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No)
                .because("the POA manager discards requests"),
        ),
        ManagerState::Inactive => Found::Refused(
            SystemException::new(Kind::ObjAdapter, minor::obj_adapter::UNKNOWN_ADAPTER_RAISED, Completion::No)
                .because("the POA manager is inactive"),
        ),
    }
}

/// OBJECT_NOT_EXIST 2.
#[cold]
pub(crate) fn no_such_object() -> SystemException {
    SystemException::new(Kind::ObjectNotExist, minor::object_not_exist::NO_OBJECT_OR_ADAPTER, Completion::No)
}

/// TRANSIENT 4.
#[cold]
pub(super) fn ending() -> SystemException {
    SystemException::new(Kind::Transient, minor::transient::POA_DESTROYED, Completion::No)
        .because("the POA is being destroyed")
}

fn no_default_servant() -> SystemException {
    SystemException::new(Kind::ObjAdapter, minor::obj_adapter::NO_DEFAULT_SERVANT, Completion::No)
        .because("the POA has no default servant")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_late_takes_nothing_of_the_next_entry() {
        let orb = crate::Orb::new().unwrap();
        let adapters = orb.core().adapters();
        let enter = || adapters.enter(b"key", Entry::Adapter(Arc::clone(adapters.root().unwrap()))).unwrap();
        let is_there = || adapters.find_entry(b"key", |_| true).is_some();
        let first = enter();
        assert!(matches!(adapters.leave(b"key", first), Retired::Taken(_)));
        let next = enter();
        assert_eq!(next.slot, first.slot, "slots are used again");
        assert!(matches!(adapters.leave(b"key", first), Retired::Stale));
        assert!(is_there());
        assert!(matches!(adapters.leave(b"key", next), Retired::Taken(_)));
        assert!(!is_there());
    }
}
