//! Regions: sets of values that are freed together.
//!
//! A slot is written once and never moves, so its content is borrowed without a lock.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::object::{ValueInfo, ValueObject};

/// Number of blocks, which have 1, 2, 4, ... slots.
const BLOCKS: usize = 31;

#[derive(Default)]
struct ValueSlot {
    info: OnceLock<&'static ValueInfo>,
    object: OnceLock<Box<dyn ValueObject>>,
}

type SlotBlock = OnceLock<Box<[ValueSlot]>>;

pub(crate) struct ValueRegion {
    first: ValueSlot,
    further: OnceLock<Box<[SlotBlock; BLOCKS]>>,
    used: AtomicU32,
    /// True while values are being created. A clone of a handle then does not own the region,
    /// because it may become part of another value. Stored with Release, loaded with Acquire.
    open: AtomicBool,
}

impl ValueRegion {
    pub(crate) const SLOT_SIZE: usize = size_of::<ValueSlot>();

    pub(crate) fn open() -> Arc<ValueRegion> {
        let (used, open) = (AtomicU32::new(0), AtomicBool::new(true));
        Arc::new(ValueRegion { first: ValueSlot::default(), further: OnceLock::new(), used, open })
    }

    pub(crate) fn of(info: &'static ValueInfo, object: Box<dyn ValueObject>) -> Arc<ValueRegion> {
        let first = ValueSlot { info: OnceLock::from(info), object: OnceLock::from(object) };
        let (used, open) = (AtomicU32::new(1), AtomicBool::new(false));
        Arc::new(ValueRegion { first, further: OnceLock::new(), used, open })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    pub(crate) fn declare(&self) -> u32 {
        self.used.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn set_info(&self, index: u32, info: &'static ValueInfo) {
        if let Some(slot) = self.slot(index, true) {
            let _ = slot.info.set(info);
        }
    }

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

    fn slot(&self, index: u32, make: bool) -> Option<&ValueSlot> {
        if index == 0 {
            return Some(&self.first);
        }
        let (block, offset) = (index.ilog2() as usize, (index - (1 << index.ilog2())) as usize);
        if !make {
            return self.further.get()?.get(block)?.get()?.get(offset);
        }
        let blocks = self.further.get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
        let slots = || (0..1usize << block).map(|_| ValueSlot::default()).collect();
        blocks.get(block)?.get_or_init(slots).get(offset)
    }
}

impl fmt::Debug for ValueRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueRegion of {} values", self.used.load(Ordering::Relaxed))
    }
}
