//! Reservations of addresses, and those that are kept for the next large message.
//!
//! A reservation that is dropped becomes a *spare* while any [`Spares`] lives: its pages are there already, and are what a
//! large message costs most. Spares are bounded in number and octets, wait for nobody, and go back to the system when
//! nothing has taken them from one [`Spares::age`] to the next but one.
//!
//! A spare is known by its address alone, in one of a few slots; what else is to be known of it is in its first octets. Who
//! takes the address out of a slot owns the mapping.
//!
//! * `spare`: putting an address into a slot releases; taking it out acquires. What the one who put it wrote to the mapping,
//!   its description above all, is thus visible to who takes it.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::call;

/// The smallest mapping: a page or more.
const LEAST: usize = 64 * 1024;
/// Spares of a process.
const SLOTS: usize = 8;
/// Octets of memory that all spares together may hold: what one message may take by default.
const MOST: usize = 64 << 20;

static SLOTS_OF_SPARES: [AtomicPtr<Spare>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];
/// Octets of memory in spares.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// How many want spares to be kept.
static KEEPERS: AtomicUsize = AtomicUsize::new(0);

/// While one lives, the process keeps memory of large messages for the next ones: at most 64 MiB of it.
#[derive(Debug)]
pub struct Spares(());

/// What is known of a mapping that nobody uses, at its beginning.
struct Spare {
    mapped: usize,
    touched: usize,
    /// It was there already when spares were last aged.
    is_old: bool,
}

impl Spares {
    /// Keeps spares from now on.
    pub fn keep() -> Self {
        KEEPERS.fetch_add(1, Ordering::Relaxed);
        Spares(())
    }

    /// Gives back what has not been taken since the last time this was called, by anybody. To be called once in a while.
    pub fn age(&self) {
        for slot in &SLOTS_OF_SPARES {
            // What was old already goes.
            if let Some(mut spare) = Reservation::take_from(slot)
                && !std::mem::replace(&mut spare.is_old, true)
            {
                spare.put_back();
            }
        }
    }

    /// Octets of memory that the process keeps so.
    pub fn held() -> usize {
        HELD.load(Ordering::Relaxed)
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        if KEEPERS.fetch_sub(1, Ordering::Relaxed) == 1 {
            for slot in &SLOTS_OF_SPARES {
                if let Some(mut spare) = Reservation::take_from(slot) {
                    spare.is_old = true;
                }
            }
        }
    }
}

/// Addresses whose pages appear, zeroed, when touched. On drop a spare, or unmapped.
pub(super) struct Reservation {
    octets: NonNull<u8>,
    /// Octets that are used.
    length: usize,
    /// Octets of addresses: a power of two, so that spares of few sizes serve many.
    mapped: usize,
    /// Octets from the start that have been written at some time: at most so many have pages.
    touched: usize,
    /// It is no spare any more, whatever becomes of it.
    is_old: bool,
}

// SAFETY: the mapping is private to this process and owned by this value alone, like a boxed slice.
unsafe impl Send for Reservation {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Reservation {}

impl Reservation {
    pub(super) fn new(length: usize) -> io::Result<Self> {
        let mapped = length.checked_next_power_of_two().filter(|&mapped| isize::try_from(mapped).is_ok());
        let mapped = mapped.ok_or(io::ErrorKind::OutOfMemory)?.max(LEAST);
        match Self::spare(mapped) {
            Some(mut spare) => {
                spare.length = length;
                Ok(spare)
            }
            None => Self::map(length, mapped),
        }
    }

    fn map(length: usize, mapped: usize) -> io::Result<Self> {
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
        match NonNull::new(address as *mut u8) {
            Some(octets) => Ok(Self { octets, length, mapped, touched: 0, is_old: false }),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// A spare of that size. Never a larger one, so that whoever keeps a part of a message keeps less than twice its memory.
    fn spare(mapped: usize) -> Option<Self> {
        if HELD.load(Ordering::Relaxed) == 0 {
            return None;
        }
        SLOTS_OF_SPARES.iter().find_map(|slot| {
            let mut spare = Self::take_from(slot)?;
            if spare.mapped != mapped {
                spare.put_back();
                return None;
            }
            spare.is_old = false;
            Some(spare)
        })
    }

    fn take_from(slot: &AtomicPtr<Spare>) -> Option<Self> {
        // Acquire: pairs with `keep` (spare).
        let address = NonNull::new(slot.swap(ptr::null_mut(), Ordering::Acquire))?;
        // SAFETY: `keep` wrote the description there, and who takes the address owns the mapping.
        let Spare { mapped, touched, is_old } = unsafe { address.read() };
        HELD.fetch_sub(touched, Ordering::Relaxed);
        Some(Self { octets: address.cast(), length: mapped, mapped, touched, is_old })
    }

    /// Makes a spare of it as it is, or unmaps it.
    fn put_back(mut self) {
        if self.keep() {
            // A slot owns it now.
            std::mem::forget(self);
        } else {
            self.is_old = true;
        }
    }

    /// Makes a spare of it: true if a slot owns it now. False where no slot or no room is left.
    fn keep(&mut self) -> bool {
        let (address, touched) = (self.octets.cast::<Spare>(), self.touched.max(size_of::<Spare>()));
        if HELD.fetch_add(touched, Ordering::Relaxed) + touched <= MOST {
            let spare = Spare { mapped: self.mapped, touched, is_old: self.is_old };
            // SAFETY: the mapping is ours, begins at a page, and is not shorter; its octets mean nothing any more.
            unsafe { address.write(spare) };
            for slot in &SLOTS_OF_SPARES {
                // Release: pairs with `take_from` (spare).
                let put =
                    slot.compare_exchange(ptr::null_mut(), address.as_ptr(), Ordering::Release, Ordering::Relaxed);
                if put.is_ok() {
                    return true;
                }
            }
        }
        HELD.fetch_sub(touched, Ordering::Relaxed);
        false
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

impl Deref for Reservation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` octets and more are mapped from `octets` on until drop, read as zero until written, and
        // only this value hands out references to them.
        unsafe { std::slice::from_raw_parts(self.octets.as_ptr(), self.length) }
    }
}

impl DerefMut for Reservation {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is large enough and initialised (see `deref`), and this value is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.octets.as_ptr(), self.length) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_old && KEEPERS.load(Ordering::Relaxed) > 0 && self.keep() {
            return;
        }
        // SAFETY: the mapping is ours, of that length, and no reference into it outlives this value. A failure could
        // only leave it mapped.
        let _ = call::once(|| unsafe { libc::munmap(self.octets.as_ptr().cast(), self.mapped) });
    }
}
