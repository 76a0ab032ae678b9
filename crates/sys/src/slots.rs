//! A table whose entries are found by number without waiting, and taken out without pulling them from
//! under those who use them.
//!
//! An entry is named by index and generation, as in an object key. [`SlotTable::get`] is one atomic
//! addition and a check, whatever other threads do: it never waits, retries or allocates. A stale or
//! forged name is refused, because the generation of a slot is increased each time the slot is used
//! again, and a slot whose generations are used up is never used again.
//!
//! [`SlotTable::retire`] lets nobody new in; the last one out (or `retire` itself, if nobody is in)
//! takes the value out, exactly once. Slots never move: they live in segments of doubling size.
//! Inserting and retiring take a lock; getting and leaving do not, even where the last one out tells those who wait for it.
//!
//! # Protocol
//!
//! One word per slot says everything:
//!
//! ```text
//!  63             32   31     30      29     28   27           0
//! +-----------------+------+---------+-------+------+------------+
//! |   generation    | LIVE | RETIRED | TAKEN | DONE |  in flight |
//! +-----------------+------+---------+-------+------+------------+
//! ```
//!
//! ```text
//! vacant (no flag, or RETIRED|TAKEN|DONE) --insert: generation + 1--> LIVE --retire--> RETIRED
//!    ^                                                                                   | claim
//!    +------------- pushed on the free list <-- RETIRED|TAKEN|DONE <-- RETIRED|TAKEN <----+
//! ```
//!
//! *In flight* counts guards, and for a moment also callers whose `get` is about to fail: each `get`
//! adds one, and takes it back if generation or flags are not as expected. Hence every change of
//! generation or flags is an addition or a compare-and-swap that preserves the count.
//!
//! * `publish`: `insert` writes the value, then sets LIVE and the generation with release; the addition of
//!   `get` acquires, and having seen both may read the value.
//! * `leave`: the subtraction of a guard releases what it did with the value. `claim` acquires. All
//!   changes of the word are read-modify-writes, so each continues the release sequence of the ones
//!   before it, and who claims has synchronised with every guard there was.
//! * *Nobody uses a claimed value.* `claim` is tried only by who saw RETIRED together with a count of
//!   zero after its own change. At that point no guard exists, and as RETIRED lasts until the slot is
//!   used again, none can come: later callers count in and out, but fail.
//! * *Exactly one claims.* Several may see zero, because failing callers come and go. The
//!   compare-and-swap that sets TAKEN expects the generation and RETIRED without TAKEN: one wins. A
//!   late-comer finds TAKEN or a higher generation and stops; generations do not recur.
//! * *Somebody claims.* The change that made the count zero under RETIRED saw both at once, and tries.
//! * `recycle`: who took the value pushes the slot with release; `insert` takes the list with acquire, so
//!   the next value is written after the last was moved out. Pushing is lock-free, and taking takes
//!   the whole list, so there is no ABA.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::clock::Monotonic;
use crate::gate::Gate;
use crate::lock::Scope;

#[cfg(loom)]
use crate::lock::Mutex as WriterLock;
/// Threads of different priorities insert and retire. In the models one kernel thread is all threads, so they have a plain lock.
#[cfg(not(loom))]
use crate::lock::PiMutex as WriterLock;

use crate::shim::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};

const LIVE: u64 = 1 << 31;
const RETIRED: u64 = 1 << 30;
const TAKEN: u64 = 1 << 29;
const DONE: u64 = 1 << 28;
const FLAGS: u64 = LIVE | RETIRED | TAKEN | DONE;
const COUNT: u64 = DONE - 1;
/// Guards of one slot beyond which `get` refuses, so that leaked guards cannot overflow the count. As
/// many again remain for failing callers, more than there can be threads.
const MOST_GUARDS: u64 = 1 << 27;

/// Slots of the first segment; each further one doubles.
const FIRST: u32 = if cfg!(loom) { 1 } else { 64 };
const SEGMENTS: usize = 32 - FIRST.ilog2() as usize;
/// No slot: the end of the free list.
const NONE: u32 = u32::MAX;

const fn generation_of(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn word(generation: u32, flags: u64) -> u64 {
    (generation as u64) << 32 | flags
}

/// A slot's memory: a link while on the free list, a value while it holds one. Which of the two is said
/// by the slot's word and the rules of the module.
union Contents<T> {
    next: u32,
    value: ManuallyDrop<T>,
}

struct Slot<T> {
    word: AtomicU64,
    contents: UnsafeCell<Contents<T>>,
}

/// What only inserting and retiring touch.
struct Writer {
    /// First of the vacant slots already taken over from `freed`, linked through their contents.
    vacant: u32,
    /// The lowest index never used.
    unused: u32,
    live: u32,
}

type OnLast<T> = Box<dyn Fn(u32, u32, T) + Send + Sync>;

/// Values found by index and generation. See the module for what it promises.
pub struct SlotTable<T> {
    segments: [AtomicPtr<Slot<T>>; SEGMENTS],
    freed: AtomicU32,
    capacity: u32,
    writer: WriterLock<Writer>,
    /// Where threads are that [`wait_idle`](Self::wait_idle).
    left: Gate,
    on_last: OnLast<T>,
}

// SAFETY: guards give `&T` to several threads (`T: Sync`), and the last one out, on whatever thread, takes
// the value (`T: Send`). The raw pointers are to segments that the table owns alone.
unsafe impl<T: Send + Sync> Sync for SlotTable<T> {}
// SAFETY: moving the table moves the values it owns.
unsafe impl<T: Send> Send for SlotTable<T> {}

/// What became of a value that [`SlotTable::retire`] was asked to retire.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the value may be in it"]
pub enum Retired<T> {
    /// Nobody was using it: here it is, and the slot is vacant.
    Taken(T),
    /// It is in use. The last one out hands it to the table's callback.
    Deferred,
    /// There is no such entry, or it is retired already.
    Stale,
}

/// The table holds as many values as it may; the value comes back.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table holds as many entries as it may")
    }
}

impl<T: fmt::Debug> std::error::Error for Full<T> {}

impl<T> SlotTable<T> {
    /// An empty table of at most `capacity` slots; they are made as needed. Values whose last user
    /// leaves after their retirement are dropped there.
    pub fn new(name: &'static str, scope: Scope, capacity: u32) -> Self {
        Self::with_callback(name, scope, capacity, |_, _, value| drop(value))
    }

    /// The same, with a callback that is given index, generation and value of each entry whose retirement
    /// was [deferred](Retired::Deferred), on the thread of its last user. The callback may use the table.
    pub fn with_callback(
        name: &'static str,
        scope: Scope,
        capacity: u32,
        on_last: impl Fn(u32, u32, T) + Send + Sync + 'static,
    ) -> Self {
        Self {
            segments: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            freed: AtomicU32::new(NONE),
            // Indices stop short of NONE, and of what the segments can hold.
            capacity: capacity.min(NONE - FIRST),
            writer: WriterLock::new(name, scope, Writer { vacant: NONE, unused: 0, live: 0 }),
            left: Gate::new(name),
            on_last: Box::new(on_last),
        }
    }

    /// The entry of this index and generation, if there is one and it is not retired. Wait-free: one
    /// atomic addition. While the guard lives the value stays where it is.
    #[inline]
    pub fn get(&self, index: u32, generation: u32) -> Option<Guard<'_, T>> {
        let slot = self.slot(index)?;
        // Acquire: pairs with `insert` (publish).
        let before = slot.word.fetch_add(1, Ordering::Acquire);
        // What remains is the count if generation and flags agree, and more than any count if not.
        if before ^ word(generation, LIVE) < MOST_GUARDS {
            return Some(Guard { table: self, slot, index, generation });
        }
        self.leave(index, slot);
        None
    }

    /// The entry of this index, whatever its generation, if it is not retired: for an index found by a key, which is
    /// then to be compared. As wait-free as [`get`](Self::get).
    #[inline]
    pub fn get_current(&self, index: u32) -> Option<Guard<'_, T>> {
        let slot = self.slot(index)?;
        // Acquire: pairs with `insert` (publish).
        let before = slot.word.fetch_add(1, Ordering::Acquire);
        let generation = generation_of(before);
        if before ^ word(generation, LIVE) < MOST_GUARDS {
            return Some(Guard { table: self, slot, index, generation });
        }
        self.leave(index, slot);
        None
    }

    /// The entry that is at this index now, whatever its generation: for a caller that knows the value when it sees it.
    #[inline]
    pub fn peek(&self, index: u32) -> Option<Guard<'_, T>> {
        let word = self.slot(index)?.word.load(Ordering::Relaxed);
        if word & LIVE != 0 { self.get(index, generation_of(word)) } else { None }
    }

    /// Puts a value in and returns its index and generation, which is never 0.
    ///
    /// # Errors
    /// [`Full`], with the value, when the table holds its capacity.
    pub fn insert(&self, value: T) -> Result<(u32, u32), Full<T>> {
        let mut writer = self.writer.lock();
        match self.vacant_slot(&mut writer) {
            Some((index, slot)) => Ok((index, Self::publish(&mut writer, slot, value))),
            None => Err(Full(value)),
        }
    }

    /// Puts in a value that is made knowing its own index and generation. `make` must not use the table,
    /// whose lock is held.
    ///
    /// # Errors
    /// [`Full`] when the table holds its capacity; nothing was made then.
    pub fn insert_with(&self, make: impl FnOnce(u32, u32) -> T) -> Result<(u32, u32), Full<()>> {
        let mut writer = self.writer.lock();
        let (index, slot) = self.vacant_slot(&mut writer).ok_or(Full(()))?;
        let generation = generation_of(slot.word.load(Ordering::Relaxed)) + 1;
        let value = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| make(index, generation))) {
            Ok(value) => value,
            Err(panic) => {
                // The slot was unlinked already: put it back before the panic goes on.
                Self::link(slot, writer.vacant);
                writer.vacant = index;
                drop(writer);
                std::panic::resume_unwind(panic);
            }
        };
        Ok((index, Self::publish(&mut writer, slot, value)))
    }

    /// Lets nobody new in, and takes the value out if nobody is in.
    pub fn retire(&self, index: u32, generation: u32) -> Retired<T> {
        let Some(slot) = self.slot(index) else { return Retired::Stale };
        let before = {
            let mut writer = self.writer.lock();
            // Generation, LIVE and RETIRED change only under this lock, so what is checked stays.
            let before = slot.word.load(Ordering::Relaxed);
            if before & !COUNT != word(generation, LIVE) {
                return Retired::Stale;
            }
            writer.live -= 1;
            slot.word.fetch_xor(LIVE | RETIRED, Ordering::AcqRel)
        };
        if before & COUNT != 0 {
            return Retired::Deferred;
        }
        match Self::claim(slot, generation) {
            Some(value) => {
                self.finish(index, slot, generation);
                Retired::Taken(value)
            }
            // A caller that failed came and went, and as the last one out claimed it.
            None => Retired::Deferred,
        }
    }

    /// Retires an entry if nobody uses it now; [`Retired::Stale`] if somebody does, and it stays.
    pub fn retire_unused(&self, index: u32, generation: u32) -> Retired<T> {
        let Some(slot) = self.slot(index) else { return Retired::Stale };
        {
            let mut writer = self.writer.lock();
            // One step: a user either is counted before it, or finds the entry retired.
            let (unused, retired) = (word(generation, LIVE), word(generation, RETIRED));
            if slot.word.compare_exchange(unused, retired, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return Retired::Stale;
            }
            writer.live -= 1;
        }
        match Self::claim(slot, generation) {
            Some(value) => {
                self.finish(index, slot, generation);
                Retired::Taken(value)
            }
            // As in `retire`.
            None => Retired::Deferred,
        }
    }

    /// Waits until a retired entry's value is out and the callback, if it was given the value, is
    /// through; until `deadline`, or for ever without one. True if so (also for an entry that never was), false
    /// if the deadline came first. An entry that is not retired is waited for too.
    pub fn wait_idle(&self, index: u32, generation: u32, deadline: Option<Monotonic>) -> bool {
        let Some(slot) = self.slot(index) else { return true };
        let idle = || {
            // Acquire: pairs with `finish`, so that the caller sees what the callback did.
            let word = slot.word.load(Ordering::Acquire);
            generation_of(word) != generation || word & DONE != 0
        };
        idle() || self.left.wait(deadline, || idle().then_some(())).is_some()
    }

    /// How many use the entry now; 0 if there is no such entry. Callers whose `get` is about to fail count for a
    /// moment.
    ///
    /// For who changes something that users look at after their `get`: the addition of 0 is a change of the word like
    /// that of `get`, so a user either is counted here, or finds what the caller did before.
    pub fn in_flight(&self, index: u32, generation: u32) -> u32 {
        let Some(slot) = self.slot(index) else { return 0 };
        // Acquire: pairs with `leave`; release: with the acquire of a later `get`.
        let word = slot.word.fetch_add(0, Ordering::AcqRel);
        if generation_of(word) == generation { (word & COUNT) as u32 } else { 0 }
    }

    /// Whether anybody uses any entry now, retired ones among them; looks at every slot. Callers whose `get` is about to fail count for a
    /// moment.
    ///
    /// For who changes something first, as with [`in_flight`](Self::in_flight); and whoever this finds inside finds, when it has left, what was
    /// changed before.
    pub fn is_in_use(&self) -> bool {
        let end = self.writer.lock().unused;
        // As in `in_flight`.
        let is_in_use = |slot: &Slot<T>| slot.word.fetch_add(0, Ordering::AcqRel) & COUNT != 0;
        (0..end).any(|index| self.slot(index).is_some_and(is_in_use))
    }

    /// The generation that the slot of this index has reached; 0 if it was never used.
    pub fn last_generation(&self, index: u32) -> u32 {
        self.slot(index).map_or(0, |slot| generation_of(slot.word.load(Ordering::Relaxed)))
    }

    /// The entries that are there, in the order of their indices. Entries that are inserted or retired meanwhile may or
    /// may not be seen.
    pub fn iter(&self) -> impl Iterator<Item = Guard<'_, T>> {
        let end = self.writer.lock().unused;
        (0..end).filter_map(|index| self.peek(index))
    }

    /// Number of entries that are not retired.
    pub fn len(&self) -> usize {
        self.writer.lock().live as usize
    }

    /// Whether every entry is retired.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of that index, if its segment exists.
    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        // Counted from FIRST, segment k begins at FIRST << k and is as long.
        let position = index.checked_add(FIRST)?;
        let segment = position.ilog2() - FIRST.ilog2();
        let offset = position - (FIRST << segment);
        // Acquire: pairs with `grow`, which made the slots before it published the segment.
        let slots = self.segments[segment as usize].load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        // SAFETY: a segment that is there has FIRST << segment slots, `offset` is less, and segments
        // live as long as the table.
        Some(unsafe { &*slots.add(offset as usize) })
    }

    /// Counts the caller out; as the last one out of a retired slot, disposes of the value.
    #[inline]
    fn leave(&self, index: u32, slot: &Slot<T>) {
        // Release: pairs with `claim` (leave). Acquire: pairs with `is_in_use`.
        let before = slot.word.fetch_sub(1, Ordering::AcqRel);
        if before & (RETIRED | TAKEN | COUNT) == RETIRED | 1 {
            self.last_out(index, slot, generation_of(before));
        }
    }

    #[cold]
    fn last_out(&self, index: u32, slot: &Slot<T>, generation: u32) {
        /// Finishes also when the callback panics.
        struct Finish<'a, T>(&'a SlotTable<T>, u32, &'a Slot<T>, u32);
        impl<T> Drop for Finish<'_, T> {
            fn drop(&mut self) {
                self.0.finish(self.1, self.2, self.3);
            }
        }
        if let Some(value) = Self::claim(slot, generation) {
            let _finish = Finish(self, index, slot, generation);
            (self.on_last)(index, generation, value);
        }
    }

    /// Takes the value out of a retired slot, unless another has. Only for who saw a count of zero under
    /// RETIRED in this generation.
    fn claim(slot: &Slot<T>, generation: u32) -> Option<T> {
        let mut seen = slot.word.load(Ordering::Relaxed);
        loop {
            if seen & !COUNT != word(generation, RETIRED) {
                return None;
            }
            // Acquire: pairs with `leave`. The count may be that of failing callers; it is preserved.
            match slot.word.compare_exchange_weak(seen, seen | TAKEN, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // SAFETY: the slot holds a value, because it was LIVE in this generation and nobody took it
        // (TAKEN was clear); nobody refers to it, because the count has been zero under RETIRED; and
        // TAKEN makes this the only taking.
        Some(slot.contents.with_mut(|contents| unsafe { ManuallyDrop::take(&mut (*contents).value) }))
    }

    /// Gives a slot back whose value is out, and tells who waits for that.
    fn finish(&self, index: u32, slot: &Slot<T>, generation: u32) {
        // Release: pairs with `wait_idle`. Flags of a taken slot are changed by its taker only.
        slot.word.fetch_or(DONE, Ordering::Release);
        if generation != u32::MAX {
            let mut head = self.freed.load(Ordering::Relaxed);
            loop {
                Self::link(slot, head);
                // Release: pairs with `vacant_slot` (recycle).
                match self.freed.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) => head = now,
                }
            }
        }
        self.left.open();
    }

    fn link(slot: &Slot<T>, next: u32) {
        // SAFETY: only called by who took the value, before the slot is on the list, or under the
        // writer's lock for a slot off the list: nobody else looks at the contents. A union's integer
        // may be written whatever was there.
        slot.contents.with_mut(|contents| unsafe { (*contents).next = next });
    }

    /// Unlinks a vacant slot, or makes one.
    fn vacant_slot(&self, writer: &mut Writer) -> Option<(u32, &Slot<T>)> {
        if writer.vacant == NONE {
            // Acquire: pairs with `finish` (recycle).
            writer.vacant = self.freed.swap(NONE, Ordering::Acquire);
        }
        let index = writer.vacant;
        if index != NONE {
            let slot = self.slot(index)?;
            // SAFETY: slots on the list hold a link, and we hold the writer's lock over a list that was
            // taken from its pushers.
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

    /// Makes the segment of `index` if it is not there; under the writer's lock.
    fn grow(&self, index: u32) {
        let segment = (index + FIRST).ilog2() - FIRST.ilog2();
        let place = &self.segments[segment as usize];
        if place.load(Ordering::Relaxed).is_null() {
            let slots = Box::into_raw(new_segment::<T>((FIRST << segment) as usize));
            // Release: pairs with `slot`.
            place.store(slots.cast(), Ordering::Release);
        }
    }

    /// Fills a vacant slot; returns its new generation.
    fn publish(writer: &mut Writer, slot: &Slot<T>, value: T) -> u32 {
        // SAFETY: the slot is vacant and off the list, and we hold the writer's lock: nobody else looks
        // at the contents. What is overwritten is a link.
        slot.contents.with_mut(|contents| unsafe { (*contents).value = ManuallyDrop::new(value) });
        // Nobody but an inserter, under the lock we hold, changes the flags of a vacant slot, so the
        // difference computed here is right; the count it leaves alone.
        let old = slot.word.load(Ordering::Relaxed) & !COUNT;
        // Slots at the last generation are not on the list.
        let generation = generation_of(old) + 1;
        // Release: pairs with `get` (publish).
        slot.word.fetch_add(word(generation, LIVE).wrapping_sub(old), Ordering::Release);
        writer.live += 1;
        generation
    }

    /// Address and length of the segments that are there.
    fn parts(&mut self) -> impl Iterator<Item = *mut [Slot<T>]> + '_ {
        self.segments.iter_mut().enumerate().filter_map(|(segment, place)| {
            let slots = place.load(Ordering::Relaxed);
            let length = (FIRST as usize) << segment;
            (!slots.is_null()).then(|| std::ptr::slice_from_raw_parts_mut(slots, length))
        })
    }

    /// Gives a vacant slot that generation, to try what happens at the last one.
    #[cfg(all(test, not(loom)))]
    fn age(&self, index: u32, generation: u32) {
        let slot = self.slot(index).unwrap();
        let flags = slot.word.load(Ordering::Relaxed) & u64::from(u32::MAX);
        slot.word.store(word(generation, flags), Ordering::Relaxed);
    }
}

/// Slots of generation 0 without flags. Pages of large segments are not touched before use.
#[cfg(not(loom))]
fn new_segment<T>(length: usize) -> Box<[Slot<T>]> {
    // SAFETY: a word of zero is valid, and so is any octet of a union that has an integer member and is
    // not read before it is written.
    unsafe { Box::new_zeroed_slice(length).assume_init() }
}

/// The same, for atomics that zeroes do not make.
#[cfg(loom)]
fn new_segment<T>(length: usize) -> Box<[Slot<T>]> {
    let slot = || Slot { word: AtomicU64::new(0), contents: UnsafeCell::new(Contents { next: NONE }) };
    std::iter::repeat_with(slot).take(length).collect()
}

impl<T> Drop for SlotTable<T> {
    fn drop(&mut self) {
        for part in self.parts() {
            // SAFETY: the segment came from such a box, this is its only owner, and no guard is left,
            // because guards borrow the table.
            let slots = unsafe { Box::from_raw(part) };
            for slot in &slots {
                let flags = slot.word.load(Ordering::Acquire) & FLAGS;
                if flags == LIVE || flags == RETIRED {
                    // SAFETY: LIVE or RETIRED without TAKEN: the slot holds a value nobody took.
                    slot.contents.with_mut(|contents| unsafe { ManuallyDrop::drop(&mut (*contents).value) });
                }
            }
        }
    }
}

impl<T> fmt::Debug for SlotTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotTable")
            .field("name", &self.writer.name())
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Keeps a value of a [`SlotTable`] in its slot. The last guard of a retired value hands it to the table's
/// callback when dropped. A leaked guard keeps the value for ever, harmlessly.
#[must_use = "the value is let go at once"]
pub struct Guard<'a, T> {
    table: &'a SlotTable<T>,
    slot: &'a Slot<T>,
    index: u32,
    generation: u32,
}

// SAFETY: a guard is a `&T` (`T: Sync`) that may take the value out on the thread where it is dropped
// (`T: Send`), and the table itself is `Sync` under the same bounds.
unsafe impl<T: Send + Sync> Send for Guard<'_, T> {}
// SAFETY: sharing a guard shares the `&T`.
unsafe impl<T: Send + Sync> Sync for Guard<'_, T> {}

impl<T> Guard<'_, T> {
    /// Where the value is.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// In which generation of its slot it is.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `get` saw LIVE in this generation, so a value is there, and as this guard is counted
        // nobody claims it before the guard is dropped.
        self.slot.contents.with(|contents| unsafe { &(*contents).value })
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.table.leave(self.index, self.slot);
    }
}

#[cfg(test)]
mod tests;
