//! Reservations of addresses, and those that are kept for the next large message.
//!
//! A reservation that was made among [`Spares`] becomes a *spare* of theirs when it is dropped, as long as they last: its pages are there
//! already, and are what a large message costs most. Spares are bounded in number and octets, wait for nobody, and go back to the
//! system when nothing has taken them from one [`Spares::age`] to the next but one.
//!
//! A spare is known by its address alone, in one of a few slots; what else is to be known of it is in its first octets. Who
//! takes the address out of a slot owns the mapping.
//!
//! * `spare`: putting an address into a slot releases; taking it out acquires. What the one who put it wrote to the mapping,
//!   its description above all, is thus visible to who takes it.
//! * `over`: who ends them says so and then empties the slots; who keeps one puts it there and then looks whether they have
//!   ended. In the single order of both, at least one of the two comes behind the other.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::call;

/// The smallest mapping: a page or more.
const LEAST: usize = 64 * 1024;
/// Spares at a time.
const SLOTS: usize = 8;
/// Octets of memory that all spares together may hold: what one message may take by default, and a little that was read behind it.
const MOST: usize = (64 << 20) + (64 << 10);

/// Memory of large messages, kept for the next ones: as much as the largest message may take by default, 64 MiB. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Spares(Arc<Pool>);

#[derive(Debug, Default)]
struct Pool {
    slots: [AtomicPtr<Spare>; SLOTS],
    /// Octets of memory in spares.
    held: AtomicUsize,
    /// None are kept any more.
    over: AtomicBool,
}

/// What is known of a mapping that nobody uses, at its beginning.
struct Spare {
    mapped: usize,
    touched: usize,
    /// It was there already when spares were last aged.
    is_old: bool,
}

impl Spares {
    /// None so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives back what has not been taken since the last time this was called. To be called once in a while.
    pub fn age(&self) {
        for slot in &self.0.slots {
            // What was old already goes.
            if let Some(mut spare) = self.0.take_from(slot)
                && !std::mem::replace(&mut spare.is_old, true)
            {
                self.0.put_back(spare);
            }
        }
    }

    /// Gives all of them back, and keeps none from now on.
    pub fn end(&self) {
        // Sequentially consistent: with `keep`, either this is seen, or what it has put there is (over).
        self.0.over.store(true, Ordering::SeqCst);
        self.0.slots.iter().for_each(|slot| drop(self.0.take_from(slot)));
    }

    /// Octets of memory that are kept so.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// A spare of that size. Never a larger one, so that whoever keeps a part of a message keeps less than twice its memory.
    fn take(&self, mapped: usize) -> Option<Reservation> {
        if self.held() == 0 {
            return None;
        }
        self.0.slots.iter().find_map(|slot| {
            let mut spare = self.0.take_from(slot)?;
            if spare.mapped != mapped {
                self.0.put_back(spare);
                return None;
            }
            spare.is_old = false;
            spare.pool = Some(Arc::clone(&self.0));
            Some(spare)
        })
    }
}

impl Pool {
    /// What is in a slot, as a reservation that becomes no spare again by itself.
    fn take_from(&self, slot: &AtomicPtr<Spare>) -> Option<Reservation> {
        // Acquire: pairs with `keep` (spare); sequentially consistent for `end` (over).
        let address = NonNull::new(slot.swap(ptr::null_mut(), Ordering::SeqCst))?;
        // SAFETY: `keep` wrote the description there, and who takes the address owns the mapping.
        let Spare { mapped, touched, is_old } = unsafe { address.read() };
        self.held.fetch_sub(touched, Ordering::Relaxed);
        Some(Reservation { octets: address.cast(), mapped, touched, is_old, pool: None })
    }

    /// Makes a spare of it as it is, or unmaps it.
    fn put_back(&self, reservation: Reservation) {
        if self.keep(&reservation) {
            // A slot owns it now.
            std::mem::forget(reservation);
        }
    }

    /// Makes a spare of it: true if a slot owns it now. False where no slot or no room is left.
    fn keep(&self, reservation: &Reservation) -> bool {
        if self.over.load(Ordering::Relaxed) {
            return false;
        }
        let (address, touched) = (reservation.octets.cast::<Spare>(), reservation.touched.max(size_of::<Spare>()));
        if self.held.fetch_add(touched, Ordering::Relaxed) + touched <= MOST {
            let spare = Spare { mapped: reservation.mapped, touched, is_old: reservation.is_old };
            // SAFETY: the mapping is ours, begins at a page, and is not shorter; its octets mean nothing any more.
            unsafe { address.write(spare) };
            for slot in &self.slots {
                // Release: pairs with `take_from` (spare); sequentially consistent for `end` (over).
                let put = slot.compare_exchange(ptr::null_mut(), address.as_ptr(), Ordering::SeqCst, Ordering::Relaxed);
                if put.is_ok() {
                    if self.over.load(Ordering::SeqCst) {
                        // Nobody may come for it any more.
                        drop(self.take_from(slot));
                    }
                    return true;
                }
            }
        }
        self.held.fetch_sub(touched, Ordering::Relaxed);
        false
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for slot in &self.slots {
            drop(self.take_from(slot));
        }
    }
}

/// Addresses whose pages appear, zeroed, when touched. On drop a spare, or unmapped.
pub(super) struct Reservation {
    octets: NonNull<u8>,
    /// Octets of addresses: a power of two, so that spares of few sizes serve many.
    mapped: usize,
    /// Octets from the start that have been written at some time: at most so many have pages.
    touched: usize,
    /// It is no spare any more, whatever becomes of it.
    is_old: bool,
    /// Whose spare it becomes.
    pool: Option<Arc<Pool>>,
}

// SAFETY: the mapping is private to this process and owned by this value alone, like a boxed slice.
unsafe impl Send for Reservation {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// At least `length` octets.
    ///
    /// # Errors
    /// `OutOfMemory` when no such range of addresses is free.
    pub(super) fn new(length: usize, spares: Option<&Spares>) -> io::Result<Self> {
        let mapped = length.checked_next_power_of_two().filter(|&mapped| isize::try_from(mapped).is_ok());
        let mapped = mapped.ok_or(io::ErrorKind::OutOfMemory)?.max(LEAST);
        match spares.and_then(|spares| spares.take(mapped)) {
            Some(spare) => Ok(spare),
            None => Self::map(mapped, spares),
        }
    }

    /// The first octet. All are mapped until drop, read as zero until written, and nobody else's.
    pub(super) fn octets(&self) -> NonNull<u8> {
        self.octets
    }

    fn map(mapped: usize, spares: Option<&Spares>) -> io::Result<Self> {
        // SAFETY: without a wanted address the mapping touches nothing that exists.
        let address = call::once(|| unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            ) as isize
        })?;
        let pool = spares.map(|spares| Arc::clone(&spares.0));
        match NonNull::new(address as *mut u8) {
            Some(octets) => Ok(Self { octets, mapped, touched: 0, is_old: false, pool }),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// Whose spare it becomes, if anybody's.
    pub(super) fn spares(&self) -> Option<Spares> {
        self.pool.clone().map(Spares)
    }

    /// Octets from the start that have been written at some time.
    pub(super) fn touched(&self) -> usize {
        self.touched
    }

    /// Says that so many octets from the start have been written.
    #[inline]
    pub(super) fn touch(&mut self, octets: usize) {
        self.touched = self.touched.max(octets);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_old && self.pool.as_ref().is_some_and(|pool| pool.keep(self)) {
            return;
        }
        // SAFETY: the mapping is ours, of that length, and no reference into it outlives this value. A failure could
        // only leave it mapped.
        let _ = call::once(|| unsafe { libc::munmap(self.octets.as_ptr().cast(), self.mapped) });
    }
}
