//! From an object key to the servant: constant time, no lock (decision 7).

use std::sync::{Arc, OnceLock};

use corelane_sys::index::{HashIndex, Writer};
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::slots::{Guard, SlotTable};

use super::key::{Key, Place};
use super::manager::ManagerState;
use super::{PoaCore, PoaManager};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
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
    root: OnceLock<Arc<PoaCore>>,
    index: Arc<HashIndex>,
    entries: SlotTable<Entry>,
    writer: Mutex<Writer>,
}

/// What a key in the table stands for.
#[derive(Debug)]
pub(crate) enum Entry {
    /// An active object; its key is its POA's prefix and its own id.
    Object { poa: Arc<PoaCore>, place: Place, id: Box<[u8]> },
    /// A POA by its path.
    Adapter(Arc<PoaCore>),
    /// A plain key and where it leads.
    Plain(Box<[u8]>, ObjectRef),
}

/// What a request is for.
pub(crate) enum Found<'f> {
    /// A servant, held for the time of the call.
    Servant(Target<'f>),
    /// The object is elsewhere.
    Forward(ObjectRef),
    /// The POA's manager holds requests.
    Held(PoaManager),
    /// No.
    Refused(SystemException),
}

/// A servant and the object that it stands for.
#[derive(Clone, Copy)]
pub(crate) struct Target<'f> {
    pub(crate) poa: &'f Arc<PoaCore>,
    pub(crate) servant: &'f Servant,
    pub(crate) id: &'f [u8],
}

impl Target<'_> {
    /// Ends the object's activation.
    pub(crate) fn deactivate(&self) {
        // Somebody else may have done it already.
        let _ = self.poa.deactivate(self.id);
    }
}

impl Adapters {
    pub(crate) fn new(stamp: u64) -> Self {
        let writer = Writer::new("object key index", Scope::Orb);
        Adapters {
            stamp,
            poas: SlotTable::new("POAs", Scope::Orb, MOST_POAS),
            root: OnceLock::new(),
            index: Arc::clone(writer.index()),
            entries: SlotTable::new("object keys", Scope::Orb, MOST_KEYS),
            writer: Mutex::new("object key index writer", Scope::Orb, writer),
        }
    }

    pub(crate) fn root(&self) -> Option<&Arc<PoaCore>> {
        self.root.get()
    }

    pub(crate) fn set_root(&self, root: Arc<PoaCore>) {
        // Set once, by the builder of the ORB.
        let _ = self.root.set(root);
    }

    /// Finds what `key` stands for and gives it to `act`, which runs while the servant is held.
    #[inline]
    pub(crate) fn find<R>(&self, key: &[u8], act: impl FnOnce(Found<'_>) -> R) -> R {
        match Key::parse(key) {
            Key::System { stamp, poa, object } if stamp == self.stamp => self.find_system(poa, object, act),
            Key::System { .. } => act(Found::Refused(no_such_object())),
            Key::User { .. } | Key::Persistent { .. } => self.find_by_key(key, act),
            Key::Plain => self.find_plain(key, act),
        }
    }

    /// Two array accesses.
    #[inline]
    fn find_system<R>(&self, poa: Place, object: Place, act: impl FnOnce(Found<'_>) -> R) -> R {
        let Some(adapter) = self.poas.get(poa.slot, poa.generation) else {
            return act(Found::Refused(no_such_object()));
        };
        if adapter.manager.state() != ManagerState::Active {
            return act(not_active(&adapter));
        }
        match adapter.objects.get(object.slot, object.generation) {
            Some(active) => {
                act(Found::Servant(Target { poa: &adapter, servant: &active.servant, id: &object.to_octets() }))
            }
            None => adapter.find_inactive(&object.to_octets(), act),
        }
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

    /// Persistent keys and ids that the user chose.
    #[inline]
    fn find_by_key<R>(&self, key: &[u8], act: impl FnOnce(Found<'_>) -> R) -> R {
        let entry = self.find_entry(key, |entry| match entry {
            Entry::Object { poa, id, .. } => key.strip_prefix(&*poa.key_prefix).is_some_and(|found| *found == **id),
            Entry::Adapter(_) | Entry::Plain(..) => false,
        });
        let Some(Entry::Object { poa, place, id }) = entry.as_deref() else { return self.find_inactive(key, act) };
        if poa.manager.state() != ManagerState::Active {
            return act(not_active(poa));
        }
        match poa.objects.get(place.slot, place.generation) {
            Some(active) => act(Found::Servant(Target { poa, servant: &active.servant, id })),
            None => poa.find_inactive(id, act),
        }
    }

    /// The key of an object that is not in the table: its POA decides.
    #[cold]
    fn find_inactive<R>(&self, key: &[u8], act: impl FnOnce(Found<'_>) -> R) -> R {
        let (poa, id) = match Key::parse(key) {
            Key::User { stamp, poa, id } if stamp == self.stamp => {
                (self.poas.get(poa.slot, poa.generation).map(|poa| Arc::clone(&poa)), id)
            }
            Key::Persistent { path, id } => (self.adapter(path), id),
            _ => (None, &[][..]),
        };
        match poa {
            Some(poa) if poa.manager.state() != ManagerState::Active => act(not_active(&poa)),
            Some(poa) => poa.find_inactive(id, act),
            None => act(Found::Refused(no_such_object())),
        }
    }

    /// The POA with this path.
    fn adapter(&self, path: &[u8]) -> Option<Arc<PoaCore>> {
        let entry = self.find_entry(path, |entry| matches!(entry, Entry::Adapter(poa) if *poa.path == *path))?;
        match &*entry {
            Entry::Adapter(poa) => Some(Arc::clone(poa)),
            Entry::Object { .. } | Entry::Plain(..) => None,
        }
    }

    fn find_plain<R>(&self, key: &[u8], act: impl FnOnce(Found<'_>) -> R) -> R {
        let entry = self.find_entry(key, |entry| matches!(entry, Entry::Plain(plain, _) if **plain == *key));
        match entry.as_deref() {
            Some(Entry::Plain(_, reference)) => act(Found::Forward(reference.clone())),
            _ => act(Found::Refused(no_such_object())),
        }
    }

    /// Where the object of `key` is; never makes one.
    pub(crate) fn locate(&self, key: &[u8]) -> Located {
        self.find(key, |found| match found {
            Found::Servant(_) | Found::Held(_) => Located::Here,
            Found::Forward(reference) => Located::Forward(reference),
            Found::Refused(_) => Located::Unknown,
        })
    }

    /// Lets a plain key lead to `reference`.
    pub(crate) fn bind_plain(&self, key: &[u8], reference: &ObjectRef) -> Result<(), SystemException> {
        let bad = |why: &str| SystemException::new(Kind::BadParam, 0, Completion::No).because(why);
        if Key::parse(key) != Key::Plain || key.is_empty() {
            return Err(bad("the key looks like one of the ORB's own"));
        }
        if self.find_entry(key, |entry| matches!(entry, Entry::Plain(plain, _) if **plain == *key)).is_some() {
            return Err(bad("the key is bound already"));
        }
        self.enter(key, Entry::Plain(key.into(), reference.clone())).map(drop)
    }

    /// Lets go of every servant and reference, when the ORB ends.
    pub(crate) fn close(&self) {
        for entry in self.entries.iter() {
            let _ = self.entries.retire(entry.index(), entry.generation());
        }
        for adapter in self.poas.iter() {
            adapter.close();
            let _ = self.poas.retire(adapter.index(), adapter.generation());
        }
    }

    /// Enters a key; the caller has made sure that it is new.
    pub(crate) fn enter(&self, key: &[u8], entry: Entry) -> Result<u32, SystemException> {
        let mut writer = self.writer.lock();
        let (slot, _) = self.entries.insert(entry).map_err(|_| {
            SystemException::new(Kind::NoResources, 0, Completion::No).because("too many objects are active")
        })?;
        writer.insert(key, slot);
        Ok(slot)
    }
}

/// Where an object is, as LocateRequest asks.
pub(crate) enum Located {
    /// Here.
    Here,
    /// Nowhere.
    Unknown,
    /// Elsewhere.
    Forward(ObjectRef),
}

/// What a manager that is not active does with a request.
#[cold]
fn not_active(adapter: &Arc<PoaCore>) -> Found<'static> {
    match adapter.manager.state() {
        ManagerState::Active | ManagerState::Holding => Found::Held(adapter.manager.clone()),
        ManagerState::Discarding => Found::Refused(SystemException::omg(Kind::Transient, 1, Completion::No)),
        ManagerState::Inactive => Found::Refused(SystemException::omg(Kind::ObjAdapter, 1, Completion::No)),
    }
}

/// OBJECT_NOT_EXIST 2.
#[cold]
pub(crate) fn no_such_object() -> SystemException {
    SystemException::omg(Kind::ObjectNotExist, 2, Completion::No)
}
