//! The stack of upcalls that a thread runs.
//!
//! A frame identifies its ORB, POA and object by numbers, so pushing it changes no reference count
//! and allocates nothing. An object id that does not fit into a frame is kept in a separate list.

use std::cell::{Cell, RefCell};

use crate::slot_id::SlotId;
use crate::thread_context;

pub(crate) const MAX_DEPTH: usize = 32;
const MAX_INLINE_ID: usize = 24;
const SPILLED: u8 = u8::MAX;
/// The `length` of a frame whose callback has no object, for example a callback of a servant
/// activator or an adapter activator.
const NO_OBJECT: u8 = u8::MAX - 1;

#[derive(Clone, Copy)]
pub(crate) struct UpcallFrame {
    pub(crate) stamp: u64,
    pub(crate) poa: SlotId,
    pub(crate) servant: usize,
    id: [u8; MAX_INLINE_ID],
    length: u8,
    pub(crate) spills_servant: bool,
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
    pub(crate) fn for_object(stamp: u64, poa: SlotId, id: &[u8]) -> Self {
        let mut frame = UpcallFrame { stamp, poa, length: SPILLED, ..EMPTY };
        if let Some(inline) = frame.id.get_mut(..id.len()) {
            inline.copy_from_slice(id);
            frame.length = id.len() as u8;
        }
        frame
    }

    pub(crate) fn for_callback(stamp: u64, poa: SlotId) -> Self {
        UpcallFrame { stamp, poa, ..EMPTY }
    }

    pub(crate) fn spills_id(&self) -> bool {
        self.length == SPILLED
    }
}

/// The memory of a frame of the upcall stack. The fields are copied one by one, because a copy of
/// the frame just after the writes would make the processor wait (docs/performance.md).
pub(crate) struct FrameSlot {
    stamp: Cell<u64>,
    poa: Cell<SlotId>,
    servant: Cell<usize>,
    /// The object id in words of eight bytes. An id that a transient POA made has one word.
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
    known_orb: Cell<u64>,
}

thread_local! {
    static STACK: UpcallStack = const {
        UpcallStack { depth: Cell::new(0), frames: [const { FrameSlot::empty() }; MAX_DEPTH], known_orb: Cell::new(0) }
    };
    static SPILLED_IDS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

impl FrameSlot {
    #[inline]
    pub(crate) fn set_mapped(&self, stamp: u64, poa: SlotId, servant: usize, id: [u8; 8]) {
        self.stamp.set(stamp);
        self.poa.set(poa);
        self.servant.set(servant);
        self.id[0].set(u64::from_ne_bytes(id));
        self.length.set(8);
        self.spills_servant.set(false);
    }
}

/// Pushes a frame, which `fill` writes. Calls `register` first if the thread has pushed no frame,
/// or if its last pushed frame belongs to another ORB. Returns `None` if too many upcalls are
/// nested.
#[inline]
pub(crate) fn push_with(stamp: u64, register: impl FnOnce(), fill: impl FnOnce(&FrameSlot)) -> Option<()> {
    STACK.with(|stack| {
        if stack.known_orb.get() != stamp {
            register();
            stack.known_orb.set(stamp);
        }
        let depth = stack.depth.get();
        fill(stack.frames.get(depth)?);
        stack.depth.set(depth + 1);
        Some(())
    })
}

pub(crate) fn push(frame: &UpcallFrame, id: Option<&[u8]>, register: impl FnOnce()) -> Option<()> {
    push_with(frame.stamp, register, |slot| slot.set(frame))?;
    if frame.spills_id() {
        SPILLED_IDS.with_borrow_mut(|ids| ids.extend(id.map(Box::from)));
    }
    Some(())
}

/// Removes the innermost frame. Returns true if the frame's servant is in the thread's list of
/// servants.
#[inline]
pub(crate) fn pop() -> bool {
    let (spills_id, spills_servant) = STACK.with(|stack| {
        let depth = stack.depth.get().saturating_sub(1);
        stack.depth.set(depth);
        let slot = stack.frames.get(depth);
        slot.map_or((false, false), |slot| (slot.length.get() == SPILLED, slot.spills_servant.get()))
    });
    if spills_id {
        pop_spilled_id();
    }
    spills_servant
}

#[cold]
fn pop_spilled_id() {
    let id = SPILLED_IDS.with_borrow_mut(Vec::pop);
    drop(id);
}

pub(crate) fn depth() -> usize {
    STACK.with(|stack| stack.depth.get())
}

fn frame_at(depth: usize) -> Option<UpcallFrame> {
    let index = depth.checked_sub(1)?;
    STACK.with(|stack| stack.frames.get(index).map(FrameSlot::get))
}

pub(crate) fn innermost() -> Option<(UpcallFrame, usize)> {
    let depth = depth();
    Some((frame_at(depth)?, depth))
}

pub(crate) fn frames() -> impl Iterator<Item = (UpcallFrame, usize)> {
    (1..=depth()).rev().filter_map(|depth| Some((frame_at(depth)?, depth)))
}

pub(crate) fn frames_below(depth: usize) -> impl Iterator<Item = UpcallFrame> {
    (1..depth).filter_map(frame_at)
}

pub(crate) fn object_id(frame: &UpcallFrame, depth: usize) -> Option<Box<[u8]>> {
    match frame.length {
        NO_OBJECT => None,
        SPILLED => {
            let index = frames_below(depth).filter(UpcallFrame::spills_id).count();
            SPILLED_IDS.with_borrow(|ids| ids.get(index).cloned())
        }
        length => frame.id.get(..usize::from(length)).map(Box::from),
    }
}

/// Calls `read` with the object id of the innermost upcall. Returns `None` outside upcalls, and if
/// the innermost upcall is a callback without an object. Allocates nothing if the id fits into its
/// frame.
pub(crate) fn with_innermost_id<R>(read: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let (frame, depth) = innermost()?;
    match frame.id.get(..usize::from(frame.length)) {
        Some(id) => Some(read(id)),
        None => object_id(&frame, depth).map(|id| read(&id)),
    }
}

/// Returns true in an upcall or a callback of the ORB. The methods of servant managers are
/// callbacks.
pub(crate) fn in_upcall_of(stamp: u64) -> bool {
    frames().any(|(frame, _)| frame.stamp == stamp)
}

/// Returns true on a thread that would wait for itself if it waited for the ORB: in an upcall, and
/// on each thread that the ORB started.
pub(crate) fn is_inside(stamp: u64) -> bool {
    thread_context::is_owned_by(stamp) || in_upcall_of(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_fits_in_a_cache_line() {
        assert!(size_of::<FrameSlot>() <= 64);
    }

    #[test]
    fn ids_of_any_length_belong_to_their_frames() {
        let poa = SlotId { slot: 1, generation: 2 };
        let ids: [&[u8]; 4] = [b"", &[7; MAX_INLINE_ID], &[8; MAX_INLINE_ID + 1], &[9; 1000]];
        for id in ids {
            push(&UpcallFrame::for_object(5, poa, id), Some(id), || ()).unwrap();
        }
        push(&UpcallFrame::for_callback(6, poa), None, || ()).unwrap();
        let found: Vec<_> = frames().map(|(frame, depth)| object_id(&frame, depth)).collect();
        let expected: Vec<_> =
            std::iter::once(None).chain(ids.into_iter().rev().map(|id| Some(Box::from(id)))).collect();
        assert_eq!(found, expected);
        let mut innermost = Vec::new();
        while depth() > 1 {
            innermost.push(with_innermost_id(|id| id.to_vec().into_boxed_slice()));
            pop();
        }
        assert_eq!(innermost, expected.get(..ids.len()).unwrap());
        pop();
        for id in ids {
            push(&UpcallFrame::for_object(5, poa, id), Some(id), || ()).unwrap();
        }
        push(&UpcallFrame::for_callback(6, poa), None, || ()).unwrap();
        assert!(in_upcall_of(5) && in_upcall_of(6) && !in_upcall_of(7));
        while depth() > 0 {
            pop();
        }
        assert!(SPILLED_IDS.with_borrow(Vec::is_empty));
    }

    #[test]
    fn number_of_nested_upcalls_is_bounded() {
        let frame = UpcallFrame::for_callback(5, SlotId { slot: 1, generation: 2 });
        while push(&frame, None, || ()).is_some() {}
        assert_eq!(depth(), MAX_DEPTH);
        for _ in 0..MAX_DEPTH {
            pop();
        }
        assert_eq!(depth(), 0);
    }
}
