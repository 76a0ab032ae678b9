//! A generational slab: a table whose entries are found by slot and generation without waiting. An
//! entry is removed only when it has no user.
//!
//! A successful [`GenerationalSlab::get`] is one atomic addition and a check, without waiting,
//! retries or allocation. The index and generation of a retired entry find nothing, because the
//! generation of a slot increases at each reuse.
//!
//! [`GenerationalSlab::retire`] admits no new users. The last user (or `retire` itself, if there is
//! no user) takes the value out, exactly once. Inserting and retiring take a lock of the table;
//! `get` and the drop of its guard take none.
//!
//! # Protocol
//!
//! One word per slot contains the slot's whole state:
//!
//! ```text
//!  63             32   31     30       29        28     27          0
//! +-----------------+------+---------+---------+---------+------------+
//! |   generation    | LIVE | RETIRED | CLAIMED | VACATED |   users    |
//! +-----------------+------+---------+---------+---------+------------+
//! ```
//!
//! ```text
//! vacant (no flag, or RETIRED|CLAIMED|VACATED) --insert: generation + 1--> LIVE --retire--> RETIRED
//!    ^                                                                                         | claim
//!    +----------- pushed on the free list <-- RETIRED|CLAIMED|VACATED <-- RETIRED|CLAIMED <----+
//! ```
//!
//! *Users* counts guards, and for a moment also callers whose `get` is about to fail. Each `get`
//! adds one, and subtracts it again if generation or flags are not as expected. Hence every change
//! of generation or flags is a read-modify-write that preserves the count. Comments in the code
//! refer to some of the following rules by name:
//!
//! * `publish`: `insert` writes the value, then sets LIVE and the generation with release. The
//!   addition in `get` has acquire ordering. A `get` that has seen both may read the value.
//! * `release`: a dropped guard subtracts one with release, after its thread's accesses to the
//!   value. `claim` has acquire ordering. All changes of the word are read-modify-writes, so each
//!   continues the release sequence of the earlier ones. So the claiming thread has synchronised
//!   with every earlier guard.
//! * *A claimed value has no user.* A thread tries `claim` only if it saw RETIRED together with a
//!   count of zero after its own change. At that point no guard exists. RETIRED lasts until the
//!   slot is used again, so no guard can appear: later calls of `get` fail and subtract their
//!   addition.
//! * *Exactly one thread claims.* Several threads may see zero, because failing callers come and
//!   go. The compare-and-swap that sets CLAIMED expects the generation and RETIRED without CLAIMED,
//!   so one thread succeeds. A later thread finds CLAIMED or a higher generation and stops;
//!   generations do not recur.
//! * *Some thread claims.* The change that made the count zero under RETIRED saw both at once, so
//!   the thread that made it tries to claim.
//! * `recycle`: the thread that took the value out pushes the slot on the free list with release;
//!   `insert` takes the free list with acquire. So the next value is written after the last one was
//!   moved out. Pushing is lock-free. `insert` removes the whole list at once, so the ABA problem
//!   cannot occur.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::clock::Monotonic;
use crate::event_count::EventCount;
use crate::lock::LockScope;

// `loom` models use a plain lock, because a model runs all its threads on one kernel thread.
#[cfg(loom)]
use crate::lock::Mutex as WriterLock;
#[cfg(not(loom))]
use crate::lock::PiMutex as WriterLock;

use crate::shim::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};

const LIVE: u64 = 1 << 31;
const RETIRED: u64 = 1 << 30;
const CLAIMED: u64 = 1 << 29;
const VACATED: u64 = 1 << 28;
const FLAGS: u64 = LIVE | RETIRED | CLAIMED | VACATED;
const COUNT: u64 = VACATED - 1;
/// Maximum number of guards of one slot, so that leaked guards cannot overflow the count of users.
const MAX_GUARDS: u64 = 1 << 27;

/// Number of slots in the first segment; each further segment has twice as many.
const FIRST_SEGMENT_LENGTH: u32 = if cfg!(loom) { 1 } else { 64 };
const SEGMENTS: usize = 32 - FIRST_SEGMENT_LENGTH.ilog2() as usize;
const END_OF_LIST: u32 = u32::MAX;

const fn generation_of(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn word(generation: u32, flags: u64) -> u64 {
    (generation as u64) << 32 | flags
}

/// For a slot on the free list, the index of the next slot; for an occupied slot, the value.
union SlotContents<T> {
    next: u32,
    value: ManuallyDrop<T>,
}

struct SlabSlot<T> {
    word: AtomicU64,
    contents: UnsafeCell<SlotContents<T>>,
}

struct SlabWriter {
    /// First slot of the list of vacant slots that the writer has taken from `freed`.
    vacant: u32,
    unused: u32,
    live: u32,
}

type RetiredCallback<T> = Box<dyn Fn(u32, u32, T) + Send + Sync>;

/// A table of values found by index and generation.
pub struct GenerationalSlab<T> {
    segments: [AtomicPtr<SlabSlot<T>>; SEGMENTS],
    freed: AtomicU32,
    capacity: u32,
    writer: WriterLock<SlabWriter>,
    vacated: EventCount,
    on_retired: RetiredCallback<T>,
}

// SAFETY: guards give `&T` to several threads (`T: Sync`), and the last user, on any thread, takes
// the value (`T: Send`). The table alone owns the segments of the raw pointers.
unsafe impl<T: Send + Sync> Sync for GenerationalSlab<T> {}
// SAFETY: moving the table moves the values that it owns.
unsafe impl<T: Send> Send for GenerationalSlab<T> {}

/// The outcome of [`GenerationalSlab::retire`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the value may be in it"]
pub enum RetireResult<T> {
    /// The value was not in use and is returned; the slot is vacant.
    Taken(T),
    /// The value is in use. Its last user gives it to the table's callback.
    Deferred,
    /// The entry does not exist, was retired before, or has a user that
    /// [`GenerationalSlab::retire_unused`] does not wait for.
    Stale,
}

/// Error of a full table; it contains the value that was not inserted.
#[derive(Debug, PartialEq, Eq)]
pub struct SlabFull<T>(pub T);

impl<T> fmt::Display for SlabFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table is full")
    }
}

impl<T: fmt::Debug> std::error::Error for SlabFull<T> {}

impl<T> GenerationalSlab<T> {
    /// Creates an empty table of at most `capacity` slots, which are allocated as needed. If the
    /// retirement of a value is [deferred](RetireResult::Deferred), its last user drops it.
    pub fn new(name: &'static str, scope: LockScope, capacity: u32) -> Self {
        Self::with_callback(name, scope, capacity, |_, _, value| drop(value))
    }

    /// Creates a table with a callback for deferred retirements.
    ///
    /// The callback gets index, generation and value of each entry whose retirement was
    /// [deferred](RetireResult::Deferred), on the thread of its last user. The callback may use the
    /// table.
    pub fn with_callback(
        name: &'static str,
        scope: LockScope,
        capacity: u32,
        on_retired: impl Fn(u32, u32, T) + Send + Sync + 'static,
    ) -> Self {
        Self {
            segments: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            freed: AtomicU32::new(END_OF_LIST),
            capacity: capacity.min(END_OF_LIST - FIRST_SEGMENT_LENGTH),
            writer: WriterLock::new(name, scope, SlabWriter { vacant: END_OF_LIST, unused: 0, live: 0 }),
            vacated: EventCount::new(name),
            on_retired: Box::new(on_retired),
        }
    }

    /// Returns a guard of the entry with this index and generation. Returns `None` if there is no
    /// such entry, it is retired, or it has 2<sup>27</sup> users.
    #[inline]
    pub fn get(&self, index: u32, generation: u32) -> Option<SlabGuard<'_, T>> {
        let slot = self.slot(index)?;
        // Acquire: pairs with `publish` (rule `publish`), and with `user_count` and `has_users`.
        let before = slot.word.fetch_add(1, Ordering::Acquire);
        // If generation and flags are as expected, the exclusive or is the count of users.
        // Otherwise it is at least `MAX_GUARDS`.
        if before ^ word(generation, LIVE) < MAX_GUARDS {
            return Some(SlabGuard { table: self, slot, index, generation });
        }
        self.release(index, slot);
        None
    }

    /// Returns a guard of the entry with this index, whichever generation the entry has. Returns
    /// `None` if there is no entry, it is retired, or it has 2<sup>27</sup> users. The caller must
    /// recognise the value, because the slot may have been reused.
    #[inline]
    pub fn get_any_generation(&self, index: u32) -> Option<SlabGuard<'_, T>> {
        let slot = self.slot(index)?;
        // Acquire: pairs with `publish` (rule `publish`), and with `user_count` and `has_users`.
        let before = slot.word.fetch_add(1, Ordering::Acquire);
        let generation = generation_of(before);
        if before ^ word(generation, LIVE) < MAX_GUARDS {
            return Some(SlabGuard { table: self, slot, index, generation });
        }
        self.release(index, slot);
        None
    }

    /// Returns a guard of the entry with this index, whichever generation the entry has. Checks by
    /// a load that the slot has an entry, before it writes to the slot. Returns `None` if there is
    /// no entry, it is retired, another entry replaces it during the call, or it has 2<sup>27</sup>
    /// users. The caller must recognise the value, because the slot may have been reused.
    #[inline]
    pub fn get_live(&self, index: u32) -> Option<SlabGuard<'_, T>> {
        let word = self.slot(index)?.word.load(Ordering::Relaxed);
        if word & LIVE != 0 { self.get(index, generation_of(word)) } else { None }
    }

    /// Inserts a value, and returns its index and its generation. A generation is never 0.
    ///
    /// # Errors
    /// [`SlabFull`], with the value, when every slot is occupied or has reached its last
    /// generation, `u32::MAX`.
    pub fn insert(&self, value: T) -> Result<(u32, u32), SlabFull<T>> {
        let mut writer = self.writer.lock();
        match self.vacant_slot(&mut writer) {
            Some((index, slot)) => Ok((index, Self::publish(&mut writer, slot, value))),
            None => Err(SlabFull(value)),
        }
    }

    /// Inserts the value that `make` returns for the new entry's index and generation, and returns
    /// both. `make` must not use the table, because this call holds the table's lock.
    ///
    /// # Errors
    /// [`SlabFull`] when every slot is occupied or has reached its last generation, `u32::MAX`;
    /// `make` is not called in this case.
    pub fn insert_with(&self, make: impl FnOnce(u32, u32) -> T) -> Result<(u32, u32), SlabFull<()>> {
        let mut writer = self.writer.lock();
        let (index, slot) = self.vacant_slot(&mut writer).ok_or(SlabFull(()))?;
        let generation = generation_of(slot.word.load(Ordering::Relaxed)) + 1;
        let value = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| make(index, generation))) {
            Ok(value) => value,
            Err(panic) => {
                Self::link(slot, writer.vacant);
                writer.vacant = index;
                drop(writer);
                std::panic::resume_unwind(panic);
            }
        };
        Ok((index, Self::publish(&mut writer, slot, value)))
    }

    /// Retires an entry: later calls of [`get`](Self::get) do not find it. Takes the value out of
    /// the slot if the entry has no user.
    pub fn retire(&self, index: u32, generation: u32) -> RetireResult<T> {
        let Some(slot) = self.slot(index) else { return RetireResult::Stale };
        let before = {
            let mut writer = self.writer.lock();
            // Generation, LIVE and RETIRED change only under this lock, so the check stays true.
            let before = slot.word.load(Ordering::Relaxed);
            if before & !COUNT != word(generation, LIVE) {
                return RetireResult::Stale;
            }
            writer.live -= 1;
            slot.word.fetch_xor(LIVE | RETIRED, Ordering::AcqRel)
        };
        if before & COUNT != 0 {
            return RetireResult::Deferred;
        }
        match Self::claim(slot, generation) {
            Some(value) => {
                self.vacate(index, slot, generation);
                RetireResult::Taken(value)
            }
            // The last user was a caller whose `get` failed. This caller has claimed the value.
            None => RetireResult::Deferred,
        }
    }

    /// Retires an entry if it has no user. If it has a user, the entry does not change, and the
    /// result is [`RetireResult::Stale`].
    pub fn retire_unused(&self, index: u32, generation: u32) -> RetireResult<T> {
        let Some(slot) = self.slot(index) else { return RetireResult::Stale };
        {
            let mut writer = self.writer.lock();
            // One atomic step: a user is either counted before it or finds the entry retired.
            let (unused, retired) = (word(generation, LIVE), word(generation, RETIRED));
            if slot.word.compare_exchange(unused, retired, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return RetireResult::Stale;
            }
            writer.live -= 1;
        }
        match Self::claim(slot, generation) {
            Some(value) => {
                self.vacate(index, slot, generation);
                RetireResult::Taken(value)
            }
            None => RetireResult::Deferred,
        }
    }

    /// Waits until the value of a retired entry is out of its slot, and until a callback that gets
    /// the value has returned.
    ///
    /// Returns true when the wait has succeeded, and for an entry that never existed. Returns false
    /// if `deadline` passes first (`None`: no deadline).
    pub fn wait_vacated(&self, index: u32, generation: u32, deadline: Option<Monotonic>) -> bool {
        let Some(slot) = self.slot(index) else { return true };
        let idle = || {
            // Acquire: pairs with `vacate`, so that the caller sees the callback's effects.
            let word = slot.word.load(Ordering::Acquire);
            generation_of(word) != generation || word & VACATED != 0
        };
        idle() || self.vacated.wait(deadline, || idle().then_some(())).is_some()
    }

    /// Returns the number of users that the entry has now; 0 if it does not exist. The number
    /// includes callers whose `get` is about to fail. A later user, which is not counted, sees all
    /// state that the caller changed before the call.
    pub fn user_count(&self, index: u32, generation: u32) -> u32 {
        let Some(slot) = self.slot(index) else { return 0 };
        // Acquire: pairs with `release`; release: with the acquire of a later `get`.
        let word = slot.word.fetch_add(0, Ordering::AcqRel);
        if generation_of(word) == generation { (word & COUNT) as u32 } else { 0 }
    }

    /// Returns true if any entry, retired or not, has a user now. Callers whose `get` is about to
    /// fail count as users.
    pub fn has_users(&self) -> bool {
        let end = self.writer.lock().unused;
        let is_in_use = |slot: &SlabSlot<T>| slot.word.fetch_add(0, Ordering::AcqRel) & COUNT != 0;
        (0..end).any(|index| self.slot(index).is_some_and(is_in_use))
    }

    /// Returns the generation that the slot of this index has reached; 0 if it was never used.
    pub fn last_generation(&self, index: u32) -> u32 {
        self.slot(index).map_or(0, |slot| generation_of(slot.word.load(Ordering::Relaxed)))
    }

    /// Iterates over the entries that are not retired, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = SlabGuard<'_, T>> {
        let end = self.writer.lock().unused;
        (0..end).filter_map(|index| self.get_live(index))
    }

    /// Returns the number of entries that are not retired.
    pub fn live_count(&self) -> usize {
        self.writer.lock().live as usize
    }

    /// Returns true if at least one entry is not retired.
    pub fn has_live_entries(&self) -> bool {
        self.live_count() > 0
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&SlabSlot<T>> {
        // Segment k begins at position FIRST_SEGMENT_LENGTH << k (index plus FIRST_SEGMENT_LENGTH)
        // and has as many slots.
        let position = index.checked_add(FIRST_SEGMENT_LENGTH)?;
        let segment = position.ilog2() - FIRST_SEGMENT_LENGTH.ilog2();
        let offset = position - (FIRST_SEGMENT_LENGTH << segment);
        // Acquire: pairs with `grow`, which published the segment after it had made the slots.
        let slots = self.segments[segment as usize].load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        // SAFETY: an existing segment has FIRST_SEGMENT_LENGTH << segment slots, `offset` is less,
        // and segments live as long as the table.
        Some(unsafe { &*slots.add(offset as usize) })
    }

    /// Subtracts the caller from the count of users. The last user of a retired slot disposes of
    /// its value.
    #[inline]
    fn release(&self, index: u32, slot: &SlabSlot<T>) {
        // Release: pairs with `claim` (rule `release`), `has_users` and `user_count`. Acquire:
        // pairs with `has_users` and `user_count`.
        let before = slot.word.fetch_sub(1, Ordering::AcqRel);
        if before & (RETIRED | CLAIMED | COUNT) == RETIRED | 1 {
            self.dispose(index, slot, generation_of(before));
        }
    }

    #[cold]
    fn dispose(&self, index: u32, slot: &SlabSlot<T>, generation: u32) {
        struct Finish<'a, T>(&'a GenerationalSlab<T>, u32, &'a SlabSlot<T>, u32);
        impl<T> Drop for Finish<'_, T> {
            fn drop(&mut self) {
                self.0.vacate(self.1, self.2, self.3);
            }
        }
        if let Some(value) = Self::claim(slot, generation) {
            let _finish = Finish(self, index, slot, generation);
            (self.on_retired)(index, generation, value);
        }
    }

    /// Takes the value out of a retired slot, unless another thread has done so. Only a thread that
    /// saw a count of zero under RETIRED in this generation may call this function.
    fn claim(slot: &SlabSlot<T>, generation: u32) -> Option<T> {
        let mut seen = slot.word.load(Ordering::Relaxed);
        loop {
            if seen & !COUNT != word(generation, RETIRED) {
                return None;
            }
            // Acquire: pairs with `release`. The exchange keeps the count, because callers whose
            // `get` is about to fail may have changed it.
            match slot.word.compare_exchange_weak(seen, seen | CLAIMED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // SAFETY: the slot holds a value, because it was LIVE in this generation and no thread has
        // taken the value (CLAIMED was clear). No reference to the value exists, because the count
        // has been zero under RETIRED. CLAIMED makes sure that only this thread takes the value.
        Some(slot.contents.with_mut(|contents| unsafe { ManuallyDrop::take(&mut (*contents).value) }))
    }

    fn vacate(&self, index: u32, slot: &SlabSlot<T>, generation: u32) {
        // Release: pairs with `wait_vacated`. Only the thread that took the value changes the flags
        // now.
        slot.word.fetch_or(VACATED, Ordering::Release);
        if generation != u32::MAX {
            let mut head = self.freed.load(Ordering::Relaxed);
            loop {
                Self::link(slot, head);
                // Release: pairs with `vacant_slot` (rule `recycle`).
                match self.freed.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) => head = now,
                }
            }
        }
        self.vacated.notify_all();
    }

    fn link(slot: &SlabSlot<T>, next: u32) {
        // SAFETY: the caller is the thread that took the value, before the slot is on the list, or
        // it holds the writer's lock and the slot is off the list. No other thread accesses the
        // contents. An integer of a union may be written over any contents.
        slot.contents.with_mut(|contents| unsafe { (*contents).next = next });
    }

    fn vacant_slot(&self, writer: &mut SlabWriter) -> Option<(u32, &SlabSlot<T>)> {
        if writer.vacant == END_OF_LIST {
            // Acquire: pairs with `vacate` (rule `recycle`).
            writer.vacant = self.freed.swap(END_OF_LIST, Ordering::Acquire);
        }
        let index = writer.vacant;
        if index != END_OF_LIST {
            let slot = self.slot(index)?;
            // SAFETY: slots on the list hold a link. This thread holds the writer's lock, and has
            // taken the list from the threads that pushed to it.
            writer.vacant = slot.contents.with(|contents| unsafe { (*contents).next });
            return Some((index, slot));
        }
        let index = writer.unused;
        if index >= self.capacity {
            return None;
        }
        self.grow(index);
        writer.unused += 1;
        Some((index, self.slot(index)?))
    }

    fn grow(&self, index: u32) {
        let segment = (index + FIRST_SEGMENT_LENGTH).ilog2() - FIRST_SEGMENT_LENGTH.ilog2();
        let place = &self.segments[segment as usize];
        if place.load(Ordering::Relaxed).is_null() {
            let slots = Box::into_raw(new_segment::<T>((FIRST_SEGMENT_LENGTH << segment) as usize));
            // Release: pairs with `slot`.
            place.store(slots.cast(), Ordering::Release);
        }
    }

    fn publish(writer: &mut SlabWriter, slot: &SlabSlot<T>, value: T) -> u32 {
        // SAFETY: the slot is vacant and off the list, and this thread holds the writer's lock, so
        // no other thread accesses the contents. A link is overwritten, which needs no drop.
        slot.contents.with_mut(|contents| unsafe { (*contents).value = ManuallyDrop::new(value) });
        // Only an inserter with the lock changes the flags of a vacant slot, so the addition below
        // changes the generation and the flags, but not the count.
        let old = slot.word.load(Ordering::Relaxed) & !COUNT;
        // The addition cannot overflow: slots of the last generation are not on the free list.
        let generation = generation_of(old) + 1;
        // Release: pairs with `get` (rule `publish`).
        slot.word.fetch_add(word(generation, LIVE).wrapping_sub(old), Ordering::Release);
        writer.live += 1;
        generation
    }

    fn segments_mut(&mut self) -> impl Iterator<Item = *mut [SlabSlot<T>]> + '_ {
        self.segments.iter_mut().enumerate().filter_map(|(segment, place)| {
            let slots = place.load(Ordering::Relaxed);
            let length = (FIRST_SEGMENT_LENGTH as usize) << segment;
            (!slots.is_null()).then(|| std::ptr::slice_from_raw_parts_mut(slots, length))
        })
    }

    #[cfg(all(test, not(loom)))]
    fn set_generation(&self, index: u32, generation: u32) {
        let slot = self.slot(index).unwrap();
        let flags = slot.word.load(Ordering::Relaxed) & u64::from(u32::MAX);
        slot.word.store(word(generation, flags), Ordering::Relaxed);
    }
}

/// Makes a segment of zeroed slots. In a large segment, a page takes no memory before its first
/// use.
#[cfg(not(loom))]
fn new_segment<T>(length: usize) -> Box<[SlabSlot<T>]> {
    // SAFETY: a word of zero is valid. The union has an integer member, so any bytes are valid, and
    // it is not read before it is written.
    unsafe { Box::new_zeroed_slice(length).assume_init() }
}

#[cfg(loom)]
fn new_segment<T>(length: usize) -> Box<[SlabSlot<T>]> {
    let slot = || SlabSlot { word: AtomicU64::new(0), contents: UnsafeCell::new(SlotContents { next: END_OF_LIST }) };
    std::iter::repeat_with(slot).take(length).collect()
}

impl<T> Drop for GenerationalSlab<T> {
    fn drop(&mut self) {
        for part in self.segments_mut() {
            // SAFETY: the segment came from a box of this type, this is its only owner, and no
            // guard is left, because guards borrow the table.
            let slots = unsafe { Box::from_raw(part) };
            for slot in &slots {
                let flags = slot.word.load(Ordering::Acquire) & FLAGS;
                if flags == LIVE || flags == RETIRED {
                    // SAFETY: with LIVE, or RETIRED without CLAIMED, the slot holds a value that
                    // was not taken.
                    slot.contents.with_mut(|contents| unsafe { ManuallyDrop::drop(&mut (*contents).value) });
                }
            }
        }
    }
}

impl<T> fmt::Debug for GenerationalSlab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerationalSlab")
            .field("name", &self.writer.name())
            .field("live_count", &self.live_count())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// A guard that keeps a value of a [`GenerationalSlab`] in its slot. After the last guard of a
/// retired value is dropped, the table's callback gets the value.
#[must_use = "the guard is dropped at once"]
pub struct SlabGuard<'a, T> {
    table: &'a GenerationalSlab<T>,
    slot: &'a SlabSlot<T>,
    index: u32,
    generation: u32,
}

// SAFETY: a guard gives `&T` (`T: Sync`) and may take the value out on the thread where it is
// dropped (`T: Send`). The table is `Sync` under the same bounds.
unsafe impl<T: Send + Sync> Send for SlabGuard<'_, T> {}
// SAFETY: sharing a guard shares the `&T`.
unsafe impl<T: Send + Sync> Sync for SlabGuard<'_, T> {}

impl<T> SlabGuard<'_, T> {
    /// Returns the index of the value.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the generation of the value.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

impl<T> Deref for SlabGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `get` saw LIVE in this generation, so there is a value. This guard is counted, so
        // no thread claims the value before the guard is dropped.
        self.slot.contents.with(|contents| unsafe { &(*contents).value })
    }
}

impl<T: fmt::Debug> fmt::Debug for SlabGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for SlabGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.table.release(self.index, self.slot);
    }
}

#[cfg(test)]
mod tests;
