//! Values that are freed together: those of one message, or of one graph.
//!
//! Slots are filled once and never move, so what is in them is borrowed without a lock. They come in blocks that double in size,
//! and one slot stands by itself, because most regions hold one value.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::object::{ValueInfo, ValueObject};

/// Blocks of 1, 2, 4, ... slots: more values than a message can hold.
const BLOCKS: usize = 31;

#[derive(Default)]
struct Slot {
    info: OnceLock<&'static ValueInfo>,
    object: OnceLock<Box<dyn ValueObject>>,
}

type Block = OnceLock<Box<[Slot]>>;

/// The region.
pub(crate) struct Region {
    first: Slot,
    further: OnceLock<Box<[Block; BLOCKS]>>,
    used: AtomicU32,
    /// Whether values are still made, so that a clone of a reference to one of them may become part of another.
    open: AtomicBool,
}

impl Region {
    /// A region whose values are to come.
    pub(crate) fn open() -> Arc<Region> {
        let (used, open) = (AtomicU32::new(0), AtomicBool::new(true));
        Arc::new(Region { first: Slot::default(), further: OnceLock::new(), used, open })
    }

    /// The region of one value.
    pub(crate) fn of(info: &'static ValueInfo, object: Box<dyn ValueObject>) -> Arc<Region> {
        let first = Slot { info: OnceLock::from(info), object: OnceLock::from(object) };
        let (used, open) = (AtomicU32::new(1), AtomicBool::new(false));
        Arc::new(Region { first, further: OnceLock::new(), used, open })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    /// The index of a value that is to come.
    pub(crate) fn announce(&self) -> u32 {
        self.used.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known of a value before it is read.
    pub(crate) fn set_info(&self, index: u32, info: &'static ValueInfo) {
        if let Some(slot) = self.slot(index, true) {
            let _ = slot.info.set(info);
        }
    }

    /// Puts a value in its slot; false if there is one.
    pub(crate) fn define(&self, index: u32, info: &'static ValueInfo, object: Box<dyn ValueObject>) -> bool {
        let Some(slot) = self.slot(index, true) else { return false };
        let _ = slot.info.set(info);
        slot.object.set(object).is_ok()
    }

    pub(crate) fn info(&self, index: u32) -> Option<&'static ValueInfo> {
        self.slot(index, false)?.info.get().copied()
    }

    pub(crate) fn get(&self, index: u32) -> Option<&dyn ValueObject> {
        self.slot(index, false)?.object.get().map(|object| &**object)
    }

    fn slot(&self, index: u32, make: bool) -> Option<&Slot> {
        if index == 0 {
            return Some(&self.first);
        }
        let (block, offset) = (index.ilog2() as usize, (index - (1 << index.ilog2())) as usize);
        if !make {
            return self.further.get()?.get(block)?.get()?.get(offset);
        }
        let blocks = self.further.get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
        let slots = || (0..1usize << block).map(|_| Slot::default()).collect();
        blocks.get(block)?.get_or_init(slots).get(offset)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region of {} values", self.used.load(Ordering::Relaxed))
    }
}
