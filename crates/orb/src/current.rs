//! The context of the running upcall: PortableServer::Current (CORBA 3.0.3, section 11.3.9).
//!
//! Each thread has a stack of frames, one for each nested upcall. Frames are copied, never
//! borrowed. A frame names its ORB, POA and object by numbers, so pushing one touches no reference
//! count and allocates nothing. Parts that do not fit (long object ids, servants in no table) are
//! kept beside the stack.
//!
//! Invariant: a frame's POA and servant live as long as the frame, because the code that pushed it
//! holds both.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use crate::exception::SystemException;
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::poa::{ObjectId, Poa, PoaCore, SlotId, UpcallTarget};
use crate::servant::Servant;
use crate::thread_context;

/// Maximum number of nested upcalls on one thread.
pub(crate) const MAX_DEPTH: usize = 32;
/// Maximum length in bytes of an object id stored in a frame.
const MAX_INLINE_ID: usize = 24;
/// Replaces the length of an id that is kept beside the stack.
const SPILLED: u8 = u8::MAX;
/// Replaces the length of an id while a servant manager or adapter activator runs, for no object.
const NO_OBJECT: u8 = u8::MAX - 1;

#[derive(Clone, Copy)]
struct UpcallFrame {
    /// Stamp of the ORB.
    stamp: u64,
    poa: SlotId,
    /// Identity of the servant; 0 if there is none yet.
    servant: usize,
    id: [u8; MAX_INLINE_ID],
    length: u8,
    /// True if the servant is kept beside the stack.
    spills_servant: bool,
}

const EMPTY: UpcallFrame = UpcallFrame {
    stamp: 0,
    poa: SlotId { slot: 0, generation: 0 },
    servant: 0,
    id: [0; MAX_INLINE_ID],
    length: NO_OBJECT,
    spills_servant: false,
};

impl UpcallFrame {
    #[inline]
    fn new(poa: &PoaCore, id: &[u8]) -> Self {
        let mut frame = UpcallFrame { stamp: poa.stamp, poa: poa.slot_id, length: SPILLED, ..EMPTY };
        if let Some(inline) = frame.id.get_mut(..id.len()) {
            inline.copy_from_slice(id);
            frame.length = id.len() as u8;
        }
        frame
    }
}

/// A frame's slot on the stack. Its parts are written and read one by one; copying a whole frame
/// would stall store forwarding (docs/performance.md).
struct FrameSlot {
    stamp: Cell<u64>,
    poa: Cell<SlotId>,
    servant: Cell<usize>,
    /// The id in words of eight bytes, the length of the ids that POAs make.
    id: [Cell<u64>; MAX_INLINE_ID / 8],
    length: Cell<u8>,
    spills_servant: Cell<bool>,
}

impl FrameSlot {
    const fn empty() -> Self {
        FrameSlot {
            stamp: Cell::new(0),
            poa: Cell::new(EMPTY.poa),
            servant: Cell::new(0),
            id: [const { Cell::new(0) }; MAX_INLINE_ID / 8],
            length: Cell::new(EMPTY.length),
            spills_servant: Cell::new(false),
        }
    }

    fn get(&self) -> UpcallFrame {
        let mut id = [0; MAX_INLINE_ID];
        for (octets, word) in id.chunks_exact_mut(8).zip(&self.id) {
            octets.copy_from_slice(&word.get().to_ne_bytes());
        }
        UpcallFrame {
            stamp: self.stamp.get(),
            poa: self.poa.get(),
            servant: self.servant.get(),
            id,
            length: self.length.get(),
            spills_servant: self.spills_servant.get(),
        }
    }

    fn set(&self, frame: &UpcallFrame) {
        self.stamp.set(frame.stamp);
        self.poa.set(frame.poa);
        self.servant.set(frame.servant);
        for (word, octets) in self.id.iter().zip(frame.id.as_chunks().0) {
            word.set(u64::from_ne_bytes(*octets));
        }
        self.length.set(frame.length);
        self.spills_servant.set(frame.spills_servant);
    }
}

struct UpcallStack {
    depth: Cell<usize>,
    frames: [FrameSlot; MAX_DEPTH],
    /// Stamp of the ORB whose frame was pushed last. [`SpilledParts`] already has its handle.
    known_orb: Cell<u64>,
}

#[derive(Default)]
struct SpilledParts {
    ids: Vec<Box<[u8]>>,
    servants: Vec<Servant>,
    orbs: Vec<(u64, Weak<Core>)>,
}

thread_local! {
    static STACK: UpcallStack = const {
        UpcallStack { depth: Cell::new(0), frames: [const { FrameSlot::empty() }; MAX_DEPTH], known_orb: Cell::new(0) }
    };
    static SPILL: RefCell<SpilledParts> = const {
        RefCell::new(SpilledParts { ids: Vec::new(), servants: Vec::new(), orbs: Vec::new() })
    };
}

/// The upcall that the calling thread runs.
#[derive(Clone, Debug)]
pub struct Current {
    /// The POA of the object.
    pub poa: Poa,
    /// The object.
    pub object_id: ObjectId,
    servant: Option<Servant>,
}

impl Current {
    /// Returns the running servant; `None` while a servant locator's `preinvoke` still looks for
    /// it.
    #[must_use]
    pub fn servant(&self) -> Option<&Servant> {
        self.servant.as_ref()
    }

    /// Returns a reference to the object.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after the ORB's shutdown.
    pub fn reference(&self) -> Result<ObjectRef, SystemException> {
        let type_id = self.servant.as_ref().map_or(crate::object::OBJECT_REPOSITORY_ID, Servant::repository_id);
        self.poa.core().reference(self.object_id.as_octets(), type_id)
    }
}

/// Returns the upcall that the calling thread runs. `None` outside an upcall (NoContext), and in
/// servant activators and adapter activators, which run for no object.
///
/// # Examples
/// ```
/// assert!(corelane::current().is_none());
/// ```
#[must_use]
pub fn current() -> Option<Current> {
    let (frame, depth) = STACK.with(|stack| {
        let depth = stack.depth.get();
        Some((stack.frames.get(depth.checked_sub(1)?)?.get(), depth))
    })?;
    resolve(frame, depth)
}

/// Returns the frames of the calling thread, innermost first.
fn frames() -> impl Iterator<Item = (UpcallFrame, usize)> {
    let depth = STACK.with(|stack| stack.depth.get());
    (1..=depth).rev().map(|depth| (STACK.with(|stack| stack.frames[depth - 1].get()), depth))
}

/// Resolves a frame to its POA, object and servant.
fn resolve(frame: UpcallFrame, depth: usize) -> Option<Current> {
    if frame.length == NO_OBJECT {
        return None;
    }
    let below = || (1..depth).map(|depth| STACK.with(|stack| stack.frames[depth - 1].get()));
    let (object_id, kept, core) = SPILL.with_borrow(|beside| {
        let object_id = match frame.length {
            SPILLED => ObjectId::from(&**beside.ids.get(below().filter(|frame| frame.length == SPILLED).count())?),
            length => ObjectId::from(&frame.id[..usize::from(length)]),
        };
        let kept = if frame.spills_servant {
            beside.servants.get(below().filter(|frame| frame.spills_servant).count()).cloned()
        } else {
            None
        };
        let (_, core) = beside.orbs.iter().find(|(stamp, _)| *stamp == frame.stamp)?;
        Some((object_id, kept, core.upgrade()?))
    })?;
    let poa = core.poa_table().running(frame.poa)?;
    let servant = kept.or_else(|| poa.running_servant(object_id.as_octets(), frame.servant));
    Some(Current { poa: Poa::from_core(poa), object_id, servant })
}

/// Returns the object of the innermost upcall on `servant` of `poa` that the calling thread runs.
pub(crate) fn upcall_on(poa: &PoaCore, servant: usize) -> Option<ObjectId> {
    frames()
        .find(|(frame, _)| frame.stamp == poa.stamp && frame.poa == poa.slot_id && frame.servant == servant)
        .and_then(|(frame, depth)| resolve(frame, depth))
        .map(|current| current.object_id)
}

/// Returns the number of nested upcalls and callbacks that the calling thread runs.
pub(crate) fn upcall_depth() -> usize {
    STACK.with(|stack| stack.depth.get())
}

/// Returns true if the calling thread runs an upcall or callback of the ORB with this stamp. A
/// servant manager's methods are callbacks.
pub(crate) fn in_upcall_of(stamp: u64) -> bool {
    frames().any(|(frame, _)| frame.stamp == stamp)
}

/// Returns true if the calling thread must not wait for the end of the ORB with this stamp. It
/// would wait for itself if it runs one of the ORB's upcalls, or is one of its threads. These also
/// run event handlers and drop servants.
pub(crate) fn is_inside(stamp: u64) -> bool {
    thread_context::is_owned_by(stamp) || in_upcall_of(stamp)
}

/// Returns true if the calling thread runs an upcall or callback of this POA.
pub(crate) fn is_running_in(poa: &PoaCore) -> bool {
    frames().any(|(frame, _)| frame.stamp == poa.stamp && frame.poa == poa.slot_id)
}

/// Returns true if the calling thread runs an upcall on this object.
pub(crate) fn is_running_on(poa: &PoaCore, id: &[u8]) -> bool {
    frames()
        .filter(|(frame, _)| frame.stamp == poa.stamp && frame.poa == poa.slot_id)
        .any(|(frame, depth)| resolve(frame, depth).is_some_and(|current| current.object_id.as_octets() == id))
}

/// A frame on the stack, popped on drop.
pub(crate) struct UpcallScope(());

impl UpcallScope {
    /// Pushes a frame for an upcall; `None` if upcalls are nested too deeply.
    #[inline]
    pub(crate) fn enter(target: &UpcallTarget<'_>) -> Option<Self> {
        let poa = target.poa;
        if target.in_map
            && let Ok(id) = target.id.try_into()
        {
            return Self::push_with(poa, |slot| {
                slot.stamp.set(poa.stamp);
                slot.poa.set(poa.slot_id);
                slot.servant.set(target.servant.identity());
                slot.id[0].set(u64::from_ne_bytes(id));
                slot.length.set(8);
                slot.spills_servant.set(false);
            });
        }
        Self::enter_with(target)
    }

    /// Like [`enter`](Self::enter), for an id of any length, or an object that is in no map.
    fn enter_with(target: &UpcallTarget<'_>) -> Option<Self> {
        let poa = target.poa;
        let mut frame = UpcallFrame::new(poa, target.id);
        frame.servant = target.servant.identity();
        frame.spills_servant = !target.in_map;
        if frame.length == SPILLED || frame.spills_servant {
            return Self::push_spilled(poa, frame, Some(target.id), Some(target.servant));
        }
        Self::push(poa, frame)
    }

    /// Pushes a frame for `preinvoke`: the object is known, the servant is not.
    pub(crate) fn enter_preinvoke(poa: &Arc<PoaCore>, id: &[u8]) -> Option<Self> {
        Self::push_spilled(poa, UpcallFrame::new(poa, id), Some(id), None)
    }

    /// Pushes a frame for a callback that runs for no object.
    pub(crate) fn enter_callback(poa: &Arc<PoaCore>) -> Option<Self> {
        Self::push(poa, UpcallFrame { stamp: poa.stamp, poa: poa.slot_id, ..EMPTY })
    }

    fn push(poa: &Arc<PoaCore>, frame: UpcallFrame) -> Option<Self> {
        Self::push_with(poa, |slot| slot.set(&frame))
    }

    #[inline]
    fn push_with(poa: &Arc<PoaCore>, fill: impl FnOnce(&FrameSlot)) -> Option<Self> {
        STACK.with(|stack| {
            if stack.known_orb.get() != poa.stamp {
                register_orb(poa);
                stack.known_orb.set(poa.stamp);
            }
            let depth = stack.depth.get();
            fill(stack.frames.get(depth)?);
            stack.depth.set(depth + 1);
            Some(UpcallScope(()))
        })
    }

    #[cold]
    fn push_spilled(
        poa: &Arc<PoaCore>,
        frame: UpcallFrame,
        id: Option<&[u8]>,
        servant: Option<&Servant>,
    ) -> Option<Self> {
        let upcall = Self::push(poa, frame)?;
        SPILL.with_borrow_mut(|beside| {
            if frame.length == SPILLED {
                beside.ids.extend(id.map(Box::from));
            }
            if frame.spills_servant {
                beside.servants.extend(servant.cloned());
            }
        });
        Some(upcall)
    }
}

/// Records the ORB that the stamp of this POA identifies.
#[cold]
fn register_orb(poa: &PoaCore) {
    SPILL.with_borrow_mut(|beside| {
        beside.orbs.retain(|(stamp, core)| *stamp != poa.stamp && core.strong_count() > 0);
        beside.orbs.push((poa.stamp, poa.orb_handle().clone()));
    });
}

#[cold]
fn pop_spilled(has_id: bool, has_servant: bool) {
    let (id, servant) = SPILL.with_borrow_mut(|beside| {
        let id = if has_id { beside.ids.pop() } else { None };
        (id, if has_servant { beside.servants.pop() } else { None })
    });
    // Dropped outside the borrow: the last owner's destructor may be the application's.
    drop((id, servant));
}

impl Drop for UpcallScope {
    #[inline]
    fn drop(&mut self) {
        let (has_id, has_servant) = STACK.with(|stack| {
            let depth = stack.depth.get().saturating_sub(1);
            stack.depth.set(depth);
            let slot = stack.frames.get(depth);
            slot.map_or((false, false), |slot| (slot.length.get() == SPILLED, slot.spills_servant.get()))
        });
        if has_id || has_servant {
            pop_spilled(has_id, has_servant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_fits_in_a_cache_line() {
        assert!(size_of::<FrameSlot>() <= 64);
    }
}
