//! What the running upcall is about: PortableServer::Current (CORBA 3.0.3, section 11.3.9).
//!
//! Each thread has a stack of frames, one for each upcall that is inside another. Frames are copied, never borrowed: a frame
//! names its ORB, POA and object by numbers, so pushing one touches no reference count and allocates nothing. What does not
//! fit (long object ids, servants that no table holds) lies beside the stack.
//!
//! Invariant: a frame's POA and servant are alive as long as the frame, because whoever pushed it holds both.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use crate::exception::SystemException;
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::poa::{ObjectId, Place, Poa, PoaCore, Target};
use crate::servant::Servant;

/// Upcalls inside one another on one thread.
pub(crate) const DEPTH: usize = 32;
/// Longest object id that fits into a frame.
const INLINE: usize = 24;
/// Instead of the length of an id: it lies beside the stack.
const BESIDE: u8 = u8::MAX;
/// Instead of the length of an id: a servant manager or adapter activator runs, no object.
const NO_OBJECT: u8 = u8::MAX - 1;

#[derive(Clone, Copy)]
struct Frame {
    /// The ORB.
    stamp: u64,
    poa: Place,
    /// What tells the servant apart; 0: none yet.
    servant: usize,
    id: [u8; INLINE],
    length: u8,
    /// The servant lies beside the stack.
    keeps_servant: bool,
}

const EMPTY: Frame = Frame {
    stamp: 0,
    poa: Place { slot: 0, generation: 0 },
    servant: 0,
    id: [0; INLINE],
    length: NO_OBJECT,
    keeps_servant: false,
};

impl Frame {
    #[inline]
    fn of(poa: &PoaCore, id: &[u8]) -> Self {
        let mut frame = Frame { stamp: poa.stamp, poa: poa.place, length: BESIDE, ..EMPTY };
        if let Some(inline) = frame.id.get_mut(..id.len()) {
            inline.copy_from_slice(id);
            frame.length = id.len() as u8;
        }
        frame
    }
}

/// A frame's place on the stack. Its parts are written and read one by one: a frame that was put together and copied whole would be
/// read back before its parts had left the processor's store buffer, which takes longer than everything else here.
struct Slot {
    stamp: Cell<u64>,
    poa: Cell<Place>,
    servant: Cell<usize>,
    /// Eight octets in one word, as ids that POAs make are.
    id: [Cell<u64>; INLINE / 8],
    length: Cell<u8>,
    keeps_servant: Cell<bool>,
}

impl Slot {
    const fn vacant() -> Self {
        Slot {
            stamp: Cell::new(0),
            poa: Cell::new(EMPTY.poa),
            servant: Cell::new(0),
            id: [const { Cell::new(0) }; INLINE / 8],
            length: Cell::new(EMPTY.length),
            keeps_servant: Cell::new(false),
        }
    }

    fn get(&self) -> Frame {
        let mut id = [0; INLINE];
        for (octets, word) in id.chunks_exact_mut(8).zip(&self.id) {
            octets.copy_from_slice(&word.get().to_ne_bytes());
        }
        Frame {
            stamp: self.stamp.get(),
            poa: self.poa.get(),
            servant: self.servant.get(),
            id,
            length: self.length.get(),
            keeps_servant: self.keeps_servant.get(),
        }
    }

    fn set(&self, frame: &Frame) {
        self.stamp.set(frame.stamp);
        self.poa.set(frame.poa);
        self.servant.set(frame.servant);
        for (word, octets) in self.id.iter().zip(frame.id.as_chunks().0) {
            word.set(u64::from_ne_bytes(*octets));
        }
        self.length.set(frame.length);
        self.keeps_servant.set(frame.keeps_servant);
    }
}

struct Stack {
    depth: Cell<usize>,
    frames: [Slot; DEPTH],
    /// The ORB whose frame was pushed last: it is known below.
    known: Cell<u64>,
}

#[derive(Default)]
struct Beside {
    ids: Vec<Box<[u8]>>,
    servants: Vec<Servant>,
    orbs: Vec<(u64, Weak<Core>)>,
}

thread_local! {
    /// The ORB that started the thread; 0: none, which no stamp is.
    static OWNER: Cell<u64> = const { Cell::new(0) };
    static STACK: Stack = const {
        Stack { depth: Cell::new(0), frames: [const { Slot::vacant() }; DEPTH], known: Cell::new(0) }
    };
    static BESIDE_STACK: RefCell<Beside> = const {
        RefCell::new(Beside { ids: Vec::new(), servants: Vec::new(), orbs: Vec::new() })
    };
}

/// The upcall that the calling thread is running.
#[derive(Clone, Debug)]
pub struct Current {
    /// The POA of the object.
    pub poa: Poa,
    /// The object.
    pub object_id: ObjectId,
    servant: Option<Servant>,
}

impl Current {
    /// The servant that runs; `None` while a servant locator's `preinvoke` still looks for one.
    #[must_use]
    pub fn servant(&self) -> Option<&Servant> {
        self.servant.as_ref()
    }

    /// A reference to the object.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 when the ORB has ended.
    pub fn reference(&self) -> Result<ObjectRef, SystemException> {
        let type_id = self.servant.as_ref().map_or(crate::object::OBJECT_ID, Servant::repository_id);
        self.poa.core().reference(self.object_id.as_octets(), type_id)
    }
}

/// The upcall that the calling thread is running; `None` outside of one (NoContext), and in servant activators and adapter
/// activators, which run for no object.
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

/// The frames of the calling thread, the innermost first.
fn frames() -> impl Iterator<Item = (Frame, usize)> {
    let depth = STACK.with(|stack| stack.depth.get());
    (1..=depth).rev().map(|depth| (STACK.with(|stack| stack.frames[depth - 1].get()), depth))
}

/// What a frame stands for.
fn resolve(frame: Frame, depth: usize) -> Option<Current> {
    if frame.length == NO_OBJECT {
        return None;
    }
    let below = || (1..depth).map(|depth| STACK.with(|stack| stack.frames[depth - 1].get()));
    let (object_id, kept, core) = BESIDE_STACK.with_borrow(|beside| {
        let object_id = match frame.length {
            BESIDE => ObjectId::from(&**beside.ids.get(below().filter(|frame| frame.length == BESIDE).count())?),
            length => ObjectId::from(&frame.id[..usize::from(length)]),
        };
        let kept = if frame.keeps_servant {
            beside.servants.get(below().filter(|frame| frame.keeps_servant).count()).cloned()
        } else {
            None
        };
        let (_, core) = beside.orbs.iter().find(|(stamp, _)| *stamp == frame.stamp)?;
        Some((object_id, kept, core.upgrade()?))
    })?;
    let poa = core.adapters().running(frame.poa)?;
    let servant = kept.or_else(|| poa.running_servant(object_id.as_octets(), frame.servant));
    Some(Current { poa: Poa::from_core(poa), object_id, servant })
}

/// The innermost upcall on `servant` of `poa` that the calling thread runs.
pub(crate) fn upcall_on(poa: &PoaCore, servant: usize) -> Option<ObjectId> {
    frames()
        .find(|(frame, _)| frame.stamp == poa.stamp && frame.poa == poa.place && frame.servant == servant)
        .and_then(|(frame, depth)| resolve(frame, depth))
        .map(|current| current.object_id)
}

/// How many upcalls and callbacks the calling thread runs inside one another.
pub(crate) fn depth() -> usize {
    STACK.with(|stack| stack.depth.get())
}

/// Whether the calling thread runs an upcall, or a callback such as a servant manager's, of the ORB with this stamp.
pub(crate) fn in_upcall_of(stamp: u64) -> bool {
    frames().any(|(frame, _)| frame.stamp == stamp)
}

/// The calling thread is one of those that the ORB with this stamp started.
pub(crate) fn belongs_to(stamp: u64) {
    OWNER.set(stamp);
}

/// Whether the ORB with this stamp would wait for itself if the calling thread waited for its end: the thread runs an upcall of it,
/// or is one of its own, which also run event handlers and drop servants.
pub(crate) fn is_inside(stamp: u64) -> bool {
    OWNER.get() == stamp || in_upcall_of(stamp)
}

/// Whether the calling thread runs anything of this POA.
pub(crate) fn runs_in(poa: &PoaCore) -> bool {
    frames().any(|(frame, _)| frame.stamp == poa.stamp && frame.poa == poa.place)
}

/// Whether the calling thread runs an upcall on this object.
pub(crate) fn runs_on(poa: &PoaCore, id: &[u8]) -> bool {
    frames()
        .filter(|(frame, _)| frame.stamp == poa.stamp && frame.poa == poa.place)
        .any(|(frame, depth)| resolve(frame, depth).is_some_and(|current| current.object_id.as_octets() == id))
}

/// A frame on the stack; gone when dropped.
pub(crate) struct Upcall(());

impl Upcall {
    /// Pushes a frame for an upcall; `None` when upcalls are nested too deep.
    #[inline]
    pub(crate) fn enter(target: &Target<'_>) -> Option<Self> {
        let poa = target.poa;
        if target.in_map
            && let Ok(id) = target.id.try_into()
        {
            return Self::push_with(poa, |slot| {
                slot.stamp.set(poa.stamp);
                slot.poa.set(poa.place);
                slot.servant.set(target.servant.identity());
                slot.id[0].set(u64::from_ne_bytes(id));
                slot.length.set(8);
                slot.keeps_servant.set(false);
            });
        }
        Self::enter_with(target)
    }

    /// The same for an object whose id is of any length, or that is in no map.
    fn enter_with(target: &Target<'_>) -> Option<Self> {
        let poa = target.poa;
        let mut frame = Frame::of(poa, target.id);
        frame.servant = target.servant.identity();
        frame.keeps_servant = !target.in_map;
        if frame.length == BESIDE || frame.keeps_servant {
            return Self::push_beside(poa, frame, Some(target.id), Some(target.servant));
        }
        Self::push(poa, frame)
    }

    /// Pushes a frame for `preinvoke`: the object is known, the servant is not.
    pub(crate) fn enter_preinvoke(poa: &Arc<PoaCore>, id: &[u8]) -> Option<Self> {
        Self::push_beside(poa, Frame::of(poa, id), Some(id), None)
    }

    /// Pushes a frame for a callback that runs for no object.
    pub(crate) fn enter_callback(poa: &Arc<PoaCore>) -> Option<Self> {
        Self::push(poa, Frame { stamp: poa.stamp, poa: poa.place, ..EMPTY })
    }

    fn push(poa: &Arc<PoaCore>, frame: Frame) -> Option<Self> {
        Self::push_with(poa, |slot| slot.set(&frame))
    }

    #[inline]
    fn push_with(poa: &Arc<PoaCore>, fill: impl FnOnce(&Slot)) -> Option<Self> {
        STACK.with(|stack| {
            if stack.known.get() != poa.stamp {
                know(poa);
                stack.known.set(poa.stamp);
            }
            let depth = stack.depth.get();
            fill(stack.frames.get(depth)?);
            stack.depth.set(depth + 1);
            Some(Upcall(()))
        })
    }

    #[cold]
    fn push_beside(poa: &Arc<PoaCore>, frame: Frame, id: Option<&[u8]>, servant: Option<&Servant>) -> Option<Self> {
        let upcall = Self::push(poa, frame)?;
        BESIDE_STACK.with_borrow_mut(|beside| {
            if frame.length == BESIDE {
                beside.ids.extend(id.map(Box::from));
            }
            if frame.keeps_servant {
                beside.servants.extend(servant.cloned());
            }
        });
        Some(upcall)
    }
}

/// Notes which ORB the stamp of this POA stands for.
#[cold]
fn know(poa: &PoaCore) {
    BESIDE_STACK.with_borrow_mut(|beside| {
        beside.orbs.retain(|(stamp, core)| *stamp != poa.stamp && core.strong_count() > 0);
        beside.orbs.push((poa.stamp, poa.orb_handle().clone()));
    });
}

#[cold]
fn pop_beside(has_id: bool, has_servant: bool) {
    let (id, servant) = BESIDE_STACK.with_borrow_mut(|beside| {
        let id = if has_id { beside.ids.pop() } else { None };
        (id, if has_servant { beside.servants.pop() } else { None })
    });
    // Outside of the borrow: the last owner's destructor may be the application's.
    drop((id, servant));
}

impl Drop for Upcall {
    #[inline]
    fn drop(&mut self) {
        let (has_id, has_servant) = STACK.with(|stack| {
            let depth = stack.depth.get().saturating_sub(1);
            stack.depth.set(depth);
            let slot = stack.frames.get(depth);
            slot.map_or((false, false), |slot| (slot.length.get() == BESIDE, slot.keeps_servant.get()))
        });
        if has_id || has_servant {
            pop_beside(has_id, has_servant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_cache_line_at_most() {
        assert!(size_of::<Slot>() <= 64);
    }
}
