//! The look-up of the servant for an object key.
//!
//! The fast path for an active object takes no lock. It makes two array accesses for a system id of
//! a transient POA, and a hash look-up for other ids. The slow path is the specification's
//! algorithm.

use std::sync::{Arc, OnceLock};

use corelane_sched::Priority;
use corelane_sys::hash_index::{HashIndex, HashIndexWriter};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::probe;
use corelane_sys::slab::{GenerationalSlab, RetireResult, SlabGuard};
use corelane_wire::exception::minor;

use super::error::{being_destroyed, too_many_objects};
use super::lookup::Lookup;
use super::lookup_result::{
    ChildResult, IncarnateResult, LocateResult, LookupResult, PreinvokeResult, UpcallTarget, WaitFor,
};
use super::manager::{ManagerState, PoaManagers};
use super::{PoaCore, PoaPhase, RequestProcessing, Threading, slow_path};
use crate::ceiling::Ceiling;
use crate::client::context::ClientContext;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind, no_such_object};
use crate::object::ObjectRef;
use crate::object_key::{self, ObjectKey, SlotId};
use crate::orb_context::OrbContext;
use crate::rt::poa::{RequestPlacement, place_in_default_pool};
use crate::servant::Servant;
use crate::server_context::ServerContext;
use crate::thread_context::{self, ThreadpoolId};

const MAX_KEYS: u32 = 1 << 26;
const MAX_POAS: u32 = 1 << 16;

#[derive(Debug)]
pub(crate) struct PoaTable {
    pub(crate) stamp: u64,
    pub(crate) poas: GenerationalSlab<Arc<PoaCore>>,
    pub(crate) managers: PoaManagers,
    root: OnceLock<Arc<PoaCore>>,
    index: Arc<HashIndex>,
    entries: GenerationalSlab<KeyEntry>,
    writer: Mutex<HashIndexWriter>,
    ending: Mutex<Vec<Arc<PoaCore>>>,
    plain_keys: Mutex<PlainKeyState>,
}

#[derive(Debug, Default)]
struct PlainKeyState {
    changes: u64,
    closed: bool,
}

#[derive(Debug)]
pub(crate) enum KeyEntry {
    /// The key of an object is the prefix of its POA followed by its id.
    Object {
        poa: Arc<PoaCore>,
        servant: Servant,
        id: Box<[u8]>,
        priority: Option<Priority>,
    },
    /// The key of a POA is its path.
    Adapter(Arc<PoaCore>),
    Plain(Box<PlainKey>),
}

#[derive(Debug)]
pub(crate) struct PlainKey {
    key: Box<[u8]>,
    target: ObjectRef,
    /// A call through a pointer lets the linker drop the function from programs that bind no plain
    /// keys.
    object_key: for<'r> fn(&PoaTable, &'r ObjectRef) -> Option<&'r [u8]>,
}

impl KeyEntry {
    #[inline]
    fn is_object(&self, key: &[u8]) -> bool {
        match self {
            KeyEntry::Object { poa, id, .. } => key.strip_prefix(&*poa.key_prefix).is_some_and(|found| *found == **id),
            KeyEntry::Adapter(_) | KeyEntry::Plain(_) => false,
        }
    }
}

impl PoaTable {
    pub(crate) fn new(stamp: u64) -> Self {
        let writer = HashIndexWriter::new("object key index", LockScope::Orb);
        let last_out = |_, _, entry| match entry {
            KeyEntry::Object { poa, servant, id, .. } => poa.finish_deactivation(&id, servant),
            // Dropping the target of a plain key may run code of the application, so the drop is
            // guarded.
            KeyEntry::Plain(plain) => {
                let client = Arc::clone(plain.target.client());
                if let Some(root) = PoaTable::of(&client).and_then(PoaTable::root) {
                    root.drop_guarded("Servant", || drop(plain));
                }
            }
            KeyEntry::Adapter(_) => {}
        };
        PoaTable {
            stamp,
            poas: GenerationalSlab::with_callback("POAs", LockScope::Orb, MAX_POAS, |_, _, poa: Arc<PoaCore>| {
                poa.on_requests_done();
            }),
            managers: PoaManagers::new(),
            root: OnceLock::new(),
            index: Arc::clone(writer.index()),
            entries: GenerationalSlab::with_callback("object keys", LockScope::Orb, MAX_KEYS, last_out),
            writer: Mutex::new("object key index writer", LockScope::Orb, writer),
            ending: Mutex::new("ending POAs", LockScope::Orb, Vec::new()),
            plain_keys: Mutex::new("plain keys", LockScope::Orb, PlainKeyState::default()),
        }
    }

    #[inline]
    pub(crate) fn of(client: &ClientContext) -> Option<&PoaTable> {
        client.adapter()
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn of_server(orb: &ServerContext) -> &PoaTable {
        Self::of(orb.client()).expect("an ORB has a table of POAs")
    }

    pub(crate) fn root(&self) -> Option<&Arc<PoaCore>> {
        self.root.get()
    }

    pub(crate) fn set_root(&self, root: Arc<PoaCore>) {
        let _ = self.root.set(root);
    }

    /// Looks up the servant of a request, and passes the result to `act`, because the result
    /// borrows from the guards that pin the POA and the object.
    #[inline]
    pub(crate) fn look_up<R>(&self, wanted: Lookup<'_>, act: impl FnOnce(LookupResult<'_>) -> R) -> R {
        match ObjectKey::parse(wanted.key) {
            ObjectKey::System { stamp, poa, object } if stamp == self.stamp => {
                self.find_system(wanted, poa, object, act)
            }
            ObjectKey::System { .. } => act(LookupResult::Missing(no_such_object())),
            ObjectKey::User { .. } | ObjectKey::Persistent { .. } => self.find_by_key(wanted, act),
            ObjectKey::Hinted { slot, key } => self.find_hinted(slot, Lookup { key, ..wanted }, act),
            ObjectKey::Plain => self.find_plain(wanted, act),
        }
    }

    /// Returns the priority that the thread must take for the request; `None` if the thread keeps
    /// its priority. The error is the reason for which the request cannot run on this thread.
    fn place_request(
        &self,
        poa: &Arc<PoaCore>,
        wanted: Lookup<'_>,
        object: Option<Priority>,
        id: &[u8],
    ) -> Result<Option<Priority>, LookupResult<'static>> {
        if is_outside_rt(poa) {
            return Ok(None);
        }
        // On a thread that serves a task of a core pool, each request runs at the task's priority.
        #[cfg(feature = "core-pool")]
        if let Some(priority) = thread_context::current_lane(self.stamp).task_priority() {
            return Ok(Some(priority));
        }
        let Ok(core) = poa.orb() else { return Ok(None) };
        let placed = match &poa.rt {
            Some(rt) => rt.place_request(&core, wanted, object, id),
            None if thread_context::current_lane(self.stamp).serves_default_pool() => {
                RequestPlacement::CurrentThread(None)
            }
            None => place_in_default_pool(&core, None),
        };
        match placed {
            RequestPlacement::CurrentThread(priority) => Ok(priority),
            RequestPlacement::OtherLane(lane) => Err(LookupResult::MustWait(WaitFor::Lane(lane))),
            RequestPlacement::Refused(exception) => Err(LookupResult::PriorityRefused(exception)),
        }
    }

    #[cold]
    pub(crate) fn poa_of(&self, key: &[u8]) -> Option<Arc<PoaCore>> {
        match ObjectKey::parse(key) {
            ObjectKey::System { stamp, poa, .. } | ObjectKey::User { stamp, poa, .. } if stamp == self.stamp => {
                self.poas.get(poa.slot, poa.generation).map(|poa| Arc::clone(&poa))
            }
            ObjectKey::Persistent { path, .. } => self.poa_by_path(path),
            ObjectKey::Hinted { key, .. } => self.poa_of(key),
            ObjectKey::Plain => self.through_plain_key(key, |key| self.poa_of(key)),
            ObjectKey::System { .. } | ObjectKey::User { .. } => None,
        }
    }

    #[cold]
    pub(crate) fn effective_priority(
        &self,
        orb: &OrbContext,
        key: &[u8],
        asked: Option<Priority>,
        ceiling: Ceiling,
    ) -> Option<Priority> {
        let of = |id: &[u8]| {
            let poa = self.poa_of(key)?;
            poa.rt.as_ref()?.effective_priority(orb, asked, ceiling, poa.priority_of(id), id)
        };
        match ObjectKey::parse(key) {
            ObjectKey::System { object, .. } => of(&object.to_octets()),
            ObjectKey::User { id, .. } | ObjectKey::Persistent { id, .. } => of(id),
            ObjectKey::Hinted { key, .. } => self.effective_priority(orb, key, asked, ceiling),
            ObjectKey::Plain => self.through_plain_key(key, |key| self.effective_priority(orb, key, asked, ceiling)),
        }
    }

    pub(crate) fn uses_pool(&self, id: ThreadpoolId) -> bool {
        let uses = |poa: &PoaCore| poa.rt.as_ref().and_then(|rt| rt.pool.as_ref()).is_some_and(|pool| pool.id == id);
        self.poas.iter().any(|poa| uses(&poa)) || self.ending.lock().iter().any(|poa| uses(poa))
    }

    #[inline]
    fn find_system<R>(
        &self,
        wanted: Lookup<'_>,
        poa: SlotId,
        object: SlotId,
        act: impl FnOnce(LookupResult<'_>) -> R,
    ) -> R {
        let Some(running) = self.poas.get(poa.slot, poa.generation) else {
            return act(self.missing_poa(poa));
        };
        probe!("adapter found");
        if running.has_fast_path()
            && let Some(active) = running.own_object(object)
        {
            let id = &object.to_octets();
            let mut priority = None;
            if !is_outside_rt(&running) {
                match self.place_request(&running, wanted, active.priority, id) {
                    Ok(placed) => priority = placed,
                    Err(elsewhere) => return act(elsewhere),
                }
            }
            let target =
                UpcallTarget { poa: &running, servant: &active.servant, id, in_map: true, priority, locator: None };
            return act(LookupResult::Servant(&target));
        }
        self.find_slow(&running, wanted, &object.to_octets(), act)
    }

    #[inline]
    fn find_entry(&self, key: &[u8], is_it: impl Fn(&KeyEntry) -> bool) -> Option<SlabGuard<'_, KeyEntry>> {
        let mut found = None;
        self.index.find(key, |slot| {
            found = self.entries.get_any_generation(slot).filter(|entry| is_it(entry));
            found.is_some()
        });
        found
    }

    #[inline]
    pub(super) fn find_object(&self, key: &[u8]) -> Option<SlabGuard<'_, KeyEntry>> {
        self.find_entry(key, |entry| entry.is_object(key))
    }

    #[inline]
    fn find_by_key<R>(&self, wanted: Lookup<'_>, act: impl FnOnce(LookupResult<'_>) -> R) -> R {
        self.find_active(self.find_object(wanted.key), wanted, act)
    }

    /// If the object is in the slot of the hint, the look-up needs no hash search.
    #[inline]
    fn find_hinted<R>(&self, slot: u32, wanted: Lookup<'_>, act: impl FnOnce(LookupResult<'_>) -> R) -> R {
        let entry = self.entries.get_any_generation(slot).filter(|entry| entry.is_object(wanted.key));
        self.find_active(entry.or_else(|| self.find_object(wanted.key)), wanted, act)
    }

    #[inline]
    fn find_active<R>(
        &self,
        entry: Option<SlabGuard<'_, KeyEntry>>,
        wanted: Lookup<'_>,
        act: impl FnOnce(LookupResult<'_>) -> R,
    ) -> R {
        if let Some(KeyEntry::Object { poa, servant, id, priority }) = entry.as_deref()
            && poa.has_fast_path()
            && let Some(running) = self.poas.get(poa.slot_id.slot, poa.slot_id.generation)
            // `get` has counted this thread as a user (`GenerationalSlab::user_count`). A thread
            // that ends the fast path after this check finds this thread among the users.
            && running.has_fast_path()
        {
            let mut at = None;
            if !is_outside_rt(poa) {
                match self.place_request(poa, wanted, *priority, id) {
                    Ok(placed) => at = placed,
                    Err(elsewhere) => return act(elsewhere),
                }
            }
            return act(LookupResult::Servant(&UpcallTarget {
                poa,
                servant,
                id,
                in_map: true,
                priority: at,
                locator: None,
            }));
        }
        drop(entry);
        self.find_in_poa(wanted, act)
    }

    fn find_in_poa<R>(&self, wanted: Lookup<'_>, act: impl FnOnce(LookupResult<'_>) -> R) -> R {
        let (place, id) = match ObjectKey::parse(wanted.key) {
            ObjectKey::User { stamp, poa, id } if stamp == self.stamp => (poa, id),
            ObjectKey::Persistent { path, id } => match self.find_or_activate_poa(path) {
                Ok(poa) => (poa.slot_id, id),
                Err(found) => return act(found),
            },
            _ => return act(LookupResult::Missing(no_such_object())),
        };
        match self.poas.get(place.slot, place.generation) {
            Some(running) => self.find_slow(&running, wanted, id, act),
            None => act(self.missing_poa(place)),
        }
    }

    /// Returns the persistent POA with the path `path`. If POAs on the path do not exist, calls the
    /// adapter activators for them, beginning at the root.
    fn find_or_activate_poa(&self, path: &[u8]) -> Result<Arc<PoaCore>, LookupResult<'static>> {
        if let Some(poa) = self.poa_by_path(path) {
            return if poa.phase() == PoaPhase::Alive {
                Ok(poa)
            } else {
                Err(LookupResult::Refused(being_destroyed()))
            };
        }
        let refused = || LookupResult::Refused(no_such_object());
        let names = object_key::names(path).ok_or_else(refused)?;
        let mut poa = Arc::clone(self.root().ok_or_else(refused)?);
        for name in names {
            poa = match poa.find_child(name, false) {
                ChildResult::Found(child) => child,
                _ => {
                    if let Some(found) = poa.activation_obstacle() {
                        return Err(found);
                    }
                    match poa.find_child(name, true) {
                        ChildResult::Found(child) => child,
                        ChildResult::MustWait(hold) => return Err(LookupResult::MustWait(hold)),
                        ChildResult::Missing => return Err(refused()),
                        ChildResult::Raised(exception) => return Err(LookupResult::Refused(exception)),
                    }
                }
            };
        }
        if poa.is_persistent() { Ok(poa) } else { Err(refused()) }
    }

    fn poa_by_path(&self, path: &[u8]) -> Option<Arc<PoaCore>> {
        let entry = self.find_entry(path, |entry| matches!(entry, KeyEntry::Adapter(poa) if *poa.path == *path))?;
        match &*entry {
            KeyEntry::Adapter(poa) => Some(Arc::clone(poa)),
            KeyEntry::Object { .. } | KeyEntry::Plain(_) => None,
        }
    }

    #[cold]
    fn find_slow<R>(
        &self,
        poa_at: &SlabGuard<'_, Arc<PoaCore>>,
        wanted: Lookup<'_>,
        id: &[u8],
        act: impl FnOnce(LookupResult<'_>) -> R,
    ) -> R {
        let poa: &Arc<PoaCore> = poa_at;
        let key = wanted.key;
        if let Some(found) = self.obstacle(poa) {
            return act(found);
        }
        #[cfg(feature = "core-pool")]
        if !poa.retains()
            && poa.policies.request_processing == RequestProcessing::ServantManager
            && let Some(KeyEntry::Plain(plain)) = self.plain_key(key).as_deref()
            && let Some(key) = (plain.object_key)(self, &plain.target)
        {
            return self.look_up(Lookup { key, ..wanted }, act);
        }
        let priority = match self.place_request(poa, wanted, poa.priority_of(id), id) {
            Ok(priority) => priority,
            Err(elsewhere) => return act(elsewhere),
        };
        let _turn = (poa.policies.threading == Threading::SingleThread).then(|| poa.serial.enter());
        loop {
            if poa.retains() {
                if poa.ids_are_slots()
                    && let Ok(octets) = id.try_into()
                    && let Some(active) = poa.own_object(SlotId::from_octets(octets))
                {
                    let target =
                        UpcallTarget { poa, servant: &active.servant, id, in_map: true, priority, locator: None };
                    return act(LookupResult::Servant(&target));
                }
                if let Some(KeyEntry::Object { servant, .. }) = self.find_object(key).as_deref() {
                    return act(LookupResult::Servant(&UpcallTarget {
                        poa,
                        servant,
                        id,
                        in_map: true,
                        priority,
                        locator: None,
                    }));
                }
            }
            match poa.policies.request_processing {
                RequestProcessing::ActiveObjectMapOnly => return act(LookupResult::Missing(no_such_object())),
                RequestProcessing::DefaultServant => {
                    let default = poa.default_servant.load();
                    let Some(servant) = &*default else { return act(LookupResult::Refused(no_default_servant())) };
                    return act(LookupResult::Servant(&UpcallTarget {
                        poa,
                        servant,
                        id,
                        in_map: false,
                        priority,
                        locator: None,
                    }));
                }
                RequestProcessing::ServantManager if poa.retains() => match poa.incarnate(id) {
                    IncarnateResult::Retry => {}
                    IncarnateResult::MustWait(hold) => return act(LookupResult::MustWait(hold)),
                    IncarnateResult::Forward(reference) => return act(LookupResult::Forward(reference)),
                    IncarnateResult::Refused(exception) => return act(LookupResult::from_manager_exception(exception)),
                },
                RequestProcessing::ServantManager => {
                    return match poa.preinvoke(id, wanted.operation) {
                        PreinvokeResult::Servant(servant, lent) => {
                            let target = UpcallTarget {
                                poa,
                                servant: &servant,
                                id,
                                in_map: false,
                                priority,
                                locator: Some(&lent),
                            };
                            let answer = act(LookupResult::Servant(&target));
                            poa.drop_guarded("Servant", || drop((servant, lent)));
                            answer
                        }
                        PreinvokeResult::Forward(reference) => act(LookupResult::Forward(reference)),
                        PreinvokeResult::Refused(exception) => act(LookupResult::from_manager_exception(exception)),
                    };
                }
            }
        }
    }

    fn obstacle(&self, poa: &Arc<PoaCore>) -> Option<LookupResult<'static>> {
        if let Some(hold) = poa.wait_for_activator() {
            return Some(LookupResult::MustWait(hold));
        }
        // The activator may have returned because the POA is being destroyed.
        if poa.slow_path_reasons() & slow_path::DESTROYING != 0 {
            return Some(LookupResult::Refused(being_destroyed()));
        }
        if poa.manager.state() != ManagerState::Active {
            return Some(inactive_manager_result(poa));
        }
        if poa.policies.threading == Threading::MainThread {
            return match poa.orb() {
                Ok(core) if core.main_queue().is_main_thread() => None,
                Ok(core) => Some(LookupResult::MustWait(WaitFor::MainThread(core))),
                Err(exception) => Some(LookupResult::Refused(exception)),
            };
        }
        None
    }

    /// Looks up a plain key. A request for an object of this ORB is served, and a request for an
    /// object of another ORB is forwarded. Forwards within this ORB are avoided because some
    /// clients, for example omniORB's, repeat a request without end if the target of its forward no
    /// longer exists.
    fn find_plain<R>(&self, wanted: Lookup<'_>, act: impl FnOnce(LookupResult<'_>) -> R) -> R {
        let entry = self.plain_key(wanted.key);
        let Some(KeyEntry::Plain(plain)) = entry.as_deref() else {
            return act(LookupResult::Missing(no_such_object()));
        };
        match (plain.object_key)(self, &plain.target) {
            Some(key) => self.look_up(Lookup { key, ..wanted }, act),
            None => act(LookupResult::Forward(plain.target.clone())),
        }
    }

    fn through_plain_key<R>(&self, key: &[u8], of: impl FnOnce(&[u8]) -> Option<R>) -> Option<R> {
        let entry = self.plain_key(key)?;
        let KeyEntry::Plain(plain) = &*entry else { return None };
        of((plain.object_key)(self, &plain.target)?)
    }

    /// Returns the key of an object of this ORB. Returns `None` for an object of another ORB, and
    /// for a plain key, which may be bound to itself.
    fn local_object_key<'r>(&self, reference: &'r ObjectRef) -> Option<&'r [u8]> {
        let client = reference.client();
        let is_own = PoaTable::of(client).is_some_and(|table| std::ptr::eq(table, self));
        let key = is_own.then(|| reference.binding().local_key(client))??;
        (ObjectKey::parse(key) != ObjectKey::Plain).then_some(key)
    }

    fn locate_plain(&self, key: &[u8]) -> LocateResult {
        let entry = self.plain_key(key);
        let Some(KeyEntry::Plain(plain)) = entry.as_deref() else { return LocateResult::UnknownObject };
        match (plain.object_key)(self, &plain.target) {
            Some(own) => self.locate(own),
            None => LocateResult::Forward(plain.target.clone()),
        }
    }

    fn plain_key(&self, key: &[u8]) -> Option<SlabGuard<'_, KeyEntry>> {
        self.find_entry(key, |entry| matches!(entry, KeyEntry::Plain(plain) if *plain.key == *key))
    }

    #[cold]
    pub(crate) fn locate(&self, key: &[u8]) -> LocateResult {
        let of_found = |found: LookupResult<'_>| match found {
            LookupResult::Servant(_) => LocateResult::ObjectHere,
            LookupResult::Forward(reference) => LocateResult::Forward(reference),
            LookupResult::MustWait(hold) => LocateResult::MustWait(hold),
            LookupResult::Missing(_) => LocateResult::UnknownObject,
            LookupResult::Refused(exception) if exception.kind() == Kind::ObjectNotExist => LocateResult::UnknownObject,
            LookupResult::Refused(exception) | LookupResult::PriorityRefused(exception) => {
                LocateResult::Exception(exception)
            }
        };
        let (place, id) = match ObjectKey::parse(key) {
            ObjectKey::System { stamp, poa, .. } | ObjectKey::User { stamp, poa, .. } if stamp == self.stamp => {
                (poa, key.get(key.len() - SlotId::OCTETS..))
            }
            ObjectKey::Persistent { path, id } => match self.find_or_activate_poa(path) {
                Ok(poa) => (poa.slot_id, Some(id)),
                Err(found) => return of_found(found),
            },
            ObjectKey::Hinted { key, .. } => return self.locate(key),
            ObjectKey::Plain => return self.locate_plain(key),
            _ => return LocateResult::UnknownObject,
        };
        let id = if let ObjectKey::User { id, .. } = ObjectKey::parse(key) { Some(id) } else { id };
        let Some(running) = self.poas.get(place.slot, place.generation) else {
            return of_found(self.missing_poa(place));
        };
        let poa: &Arc<PoaCore> = &running;
        if let Some(found) = self.obstacle(poa)
            && !matches!(found, LookupResult::MustWait(WaitFor::MainThread(_)))
        {
            return of_found(found);
        }
        let known = match poa.policies.request_processing {
            RequestProcessing::ActiveObjectMapOnly => false,
            RequestProcessing::DefaultServant => poa.default_servant.load().is_some(),
            RequestProcessing::ServantManager => poa.servant_manager.load().is_some(),
        };
        if known || (poa.retains() && id.is_some_and(|id| poa.is_active(id))) {
            LocateResult::ObjectHere
        } else {
            LocateResult::UnknownObject
        }
    }

    pub(crate) fn bind_plain(&self, key: &[u8], reference: &ObjectRef) -> Result<(), SystemException> {
        let bad = |why: &str| SystemException::new(Kind::BadParam, 0, Completion::No).with_message(why);
        if ObjectKey::parse(key) != ObjectKey::Plain || key.is_empty() {
            return Err(bad("the key has the form of the ORB's own object keys"));
        }
        self.bind_target(key, reference, None)
    }

    #[cfg(feature = "core-pool")]
    pub(super) fn bind_substitute(&self, key: &[u8], reference: &ObjectRef) -> Result<(), SystemException> {
        let bound = self.bound_target(reference);
        let reference = bound.as_ref().unwrap_or(reference);
        match self.local_object_key(reference) {
            Some(own) if own != key => self.bind_target(key, reference, Some(own)),
            _ => Err(no_substitute()),
        }
    }

    /// Returns the reference to which a plain key of this ORB is bound; `None` if `reference` has
    /// no such key.
    #[cfg(feature = "core-pool")]
    fn bound_target(&self, reference: &ObjectRef) -> Option<ObjectRef> {
        let client = reference.client();
        let is_own = PoaTable::of(client).is_some_and(|table| std::ptr::eq(table, self));
        let key = is_own.then(|| reference.binding().local_key(client))??;
        match self.plain_key(key).as_deref() {
            Some(KeyEntry::Plain(plain)) if ObjectKey::parse(key) == ObjectKey::Plain => Some(plain.target.clone()),
            _ => None,
        }
    }

    /// Binds `key` to `reference`. `own` is the object key of a substitute, which must not have a
    /// substitute itself, so that no look-up runs in a circle; `None` for a plain key.
    fn bind_target(&self, key: &[u8], reference: &ObjectRef, own: Option<&[u8]>) -> Result<(), SystemException> {
        let bad = |why: &str| SystemException::new(Kind::BadParam, 0, Completion::No).with_message(why);
        loop {
            let seen = self.plain_keys.lock().changes;
            if self.plain_key(key).is_some() {
                return Err(bad("the key is bound already"));
            }
            if own.is_some_and(|own| self.plain_key(own).is_some()) {
                return Err(no_substitute());
            }
            let mut bindings = self.plain_keys.lock();
            if bindings.closed {
                return Err(SystemException::new(
                    Kind::BadInvOrder,
                    minor::bad_inv_order::ORB_SHUT_DOWN,
                    Completion::No,
                )
                .with_message("the ORB has been shut down"));
            }
            if bindings.changes == seen {
                bindings.changes += 1;
                let plain = PlainKey { key: key.into(), target: reference.clone(), object_key: Self::local_object_key };
                return self.insert(key, KeyEntry::Plain(Box::new(plain))).map(drop);
            }
        }
    }

    pub(crate) fn unbind_plain(&self, key: &[u8]) -> bool {
        loop {
            let seen = self.plain_keys.lock().changes;
            let found = self.plain_key(key).map(|entry| SlotId { slot: entry.index(), generation: entry.generation() });
            let Some(place) = found else { return false };
            let mut bindings = self.plain_keys.lock();
            if bindings.changes == seen {
                bindings.changes += 1;
                let left = self.remove(key, place);
                drop(bindings);
                drop(left);
                return true;
            }
        }
    }

    pub(crate) fn close(&self) {
        self.plain_keys.lock().closed = true;
        let plain = self.entries.iter().filter_map(|entry| match &*entry {
            KeyEntry::Plain(plain) => Some(plain.key.clone()),
            KeyEntry::Object { .. } | KeyEntry::Adapter(_) => None,
        });
        let plain: Vec<_> = plain.collect();
        let Some(root) = self.root() else { return };
        for key in plain {
            // Dropping the target of a plain key may run code of the application, so the drop is
            // guarded.
            root.drop_guarded("Servant", || _ = self.unbind_plain(&key));
        }
    }

    /// Inserts an entry. The caller has checked that the key is not in the table.
    pub(super) fn insert(&self, key: &[u8], entry: KeyEntry) -> Result<SlotId, SystemException> {
        let mut writer = self.writer.lock();
        let (slot, generation) = self.entries.insert(entry).map_err(|_| too_many_objects())?;
        writer.insert(key, slot);
        Ok(SlotId { slot, generation })
    }

    /// Removes an entry. The caller drops a returned entry without holding a lock.
    pub(super) fn remove(&self, key: &[u8], place: SlotId) -> RetireResult<KeyEntry> {
        {
            let mut writer = self.writer.lock();
            // Another thread may have removed the entry, and a newer entry may have its slot.
            if self.entries.last_generation(place.slot) != place.generation {
                return RetireResult::Stale;
            }
            writer.remove(key, place.slot);
        }
        self.entries.retire(place.slot, place.generation)
    }

    pub(super) fn entry_at(&self, slot: u32) -> Option<SlabGuard<'_, KeyEntry>> {
        self.entries.get_any_generation(slot)
    }

    pub(super) fn insert_poa(&self, poa: &Arc<PoaCore>) -> Result<(), SystemException> {
        self.insert(&poa.path, KeyEntry::Adapter(Arc::clone(poa))).map(drop)
    }

    pub(super) fn ids_of(&self, poa: &Arc<PoaCore>) -> Vec<Box<[u8]>> {
        let ids = self.entries.iter().filter_map(|entry| match &*entry {
            KeyEntry::Object { poa: of, id, .. } if Arc::ptr_eq(of, poa) => Some(id.clone()),
            _ => None,
        });
        ids.collect()
    }

    pub(crate) fn running(&self, place: SlotId) -> Option<Arc<PoaCore>> {
        let running = self.poas.get(place.slot, place.generation).map(|poa| Arc::clone(&poa));
        running.or_else(|| self.ending.lock().iter().find(|poa| poa.slot_id == place).cloned())
    }

    pub(super) fn add_ending(&self, poa: &Arc<PoaCore>) {
        self.ending.lock().push(Arc::clone(poa));
    }

    pub(super) fn remove_poa(&self, poa: &Arc<PoaCore>) {
        let entry = self.find_entry(&poa.path, |entry| matches!(entry, KeyEntry::Adapter(of) if Arc::ptr_eq(of, poa)));
        let place = entry.map(|entry| SlotId { slot: entry.index(), generation: entry.generation() });
        if let Some(place) = place {
            drop(self.remove(&poa.path, place));
        }
        self.ending.lock().retain(|of| !Arc::ptr_eq(of, poa));
    }

    #[cold]
    fn missing_poa(&self, place: SlotId) -> LookupResult<'static> {
        let is_ending = self.ending.lock().iter().any(|poa| poa.slot_id == place);
        if is_ending { LookupResult::Refused(being_destroyed()) } else { LookupResult::Missing(no_such_object()) }
    }
}

#[inline]
pub(super) fn is_outside_rt(poa: &PoaCore) -> bool {
    poa.rt.is_none() && thread_context::is_outside_rt_pools()
}

#[cold]
pub(super) fn inactive_manager_result(adapter: &Arc<PoaCore>) -> LookupResult<'static> {
    match adapter.manager.state() {
        ManagerState::Active | ManagerState::Holding => {
            LookupResult::MustWait(WaitFor::Manager(adapter.manager.clone(), adapter.slot_id))
        }
        ManagerState::Discarding => LookupResult::Refused(
            SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No)
                .with_message("the POA manager discards requests"),
        ),
        ManagerState::Inactive => LookupResult::Refused(
            SystemException::new(Kind::ObjAdapter, minor::obj_adapter::UNKNOWN_ADAPTER_RAISED, Completion::No)
                .with_message("the POA manager is inactive"),
        ),
    }
}

#[cold]
fn no_substitute() -> SystemException {
    SystemException::new(Kind::BadParam, 0, Completion::No)
        .with_message("a substitute must be an object of this ORB that has no substitute")
}

fn no_default_servant() -> SystemException {
    SystemException::new(Kind::ObjAdapter, minor::obj_adapter::NO_DEFAULT_SERVANT, Completion::No)
        .with_message("the POA has no default servant")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_handle_does_not_remove_the_next_entry() {
        let orb = crate::Orb::new().unwrap();
        let adapters = orb.core().poa_table();
        let enter = || adapters.insert(b"key", KeyEntry::Adapter(Arc::clone(adapters.root().unwrap()))).unwrap();
        let is_there = || adapters.find_entry(b"key", |_| true).is_some();
        let first = enter();
        assert!(matches!(adapters.remove(b"key", first), RetireResult::Taken(_)));
        let next = enter();
        assert_eq!(next.slot, first.slot, "the second entry must get the slot of the first entry");
        assert!(matches!(adapters.remove(b"key", first), RetireResult::Stale));
        assert!(is_there());
        assert!(matches!(adapters.remove(b"key", next), RetireResult::Taken(_)));
        assert!(!is_there());
    }
}
