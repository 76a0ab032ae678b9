//! Address ranges for large messages, and a cache of these ranges.
//!
//! A dropped region returns to the [`RegionCache`] with which it was made, unless the cache is
//! closed or full. A cache limits the number of its regions and the sum of their committed bytes.
//!
//! The first bytes of a cached region contain its description. The thread that takes the address
//! out of a slot owns the mapping. Comments in the code refer to two rules of memory ordering:
//!
//! * `cached`: a thread puts an address into a slot with release order, and a thread takes it out
//!   with acquire order. So the second thread sees all earlier writes to the mapping, including the
//!   description.
//! * `closed`: a thread that closes the cache sets the flag and then empties the slots. A thread
//!   that caches a region puts it into a slot and then reads the flag. All four accesses are
//!   sequentially consistent. So the closing thread finds the region, or the caching thread sees
//!   the flag.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::syscall;

const MIN_REGION_BYTES: usize = 64 * 1024;
const MAX_CACHED_REGIONS: usize = 8;
const MAX_CACHED_BYTES: usize = (64 << 20) + (64 << 10);

static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// Returns the total size in bytes of the address ranges of all large buffers of the process,
/// including cached ranges.
#[must_use]
pub fn mapped_bytes() -> usize {
    MAPPED_BYTES.load(Ordering::Relaxed)
}

/// Returns how many address ranges the process has mapped for large buffers since its start. A
/// buffer that takes its range from a cache maps none.
#[must_use]
pub fn mapping_count() -> usize {
    MAPPINGS.load(Ordering::Relaxed)
}

/// A cache of address ranges for large messages. By default the cached ranges together have at most
/// 64 MiB + 64 KiB of committed memory, enough for one message of the default maximum size. Clones
/// share the cache.
#[derive(Clone, Debug, Default)]
pub struct RegionCache(Arc<CacheInner>);

#[derive(Debug)]
struct CacheInner {
    max_bytes: usize,
    slots: [AtomicPtr<CachedRegion>; MAX_CACHED_REGIONS],
    cached_bytes: AtomicUsize,
    closed: AtomicBool,
}

struct CachedRegion {
    mapped: usize,
    touched: usize,
    /// True if the region was in the cache at the last call of `evict_unused`.
    is_old: bool,
}

impl CacheInner {
    fn with_max_bytes(max_bytes: usize) -> Self {
        let slots = Default::default();
        CacheInner { max_bytes, slots, cached_bytes: AtomicUsize::new(0), closed: AtomicBool::new(false) }
    }
}

impl Default for CacheInner {
    fn default() -> Self {
        Self::with_max_bytes(MAX_CACHED_BYTES)
    }
}

impl RegionCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty cache. The cached ranges together have at most `max_bytes` bytes of
    /// committed memory.
    #[must_use]
    pub fn with_max_bytes(max_bytes: usize) -> Self {
        RegionCache(Arc::new(CacheInner::with_max_bytes(max_bytes)))
    }

    /// Unmaps the regions that have been in the cache since the previous call.
    pub fn evict_unused(&self) {
        for slot in &self.0.slots {
            if let Some(mut spare) = self.0.take_from(slot)
                && !std::mem::replace(&mut spare.is_old, true)
            {
                self.0.put(spare);
            }
        }
    }

    /// Unmaps all cached regions. After the call the cache accepts no regions.
    pub fn close(&self) {
        // Either `try_put` sees the flag, or this thread finds the region that `try_put` has cached
        // (rule `closed`).
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.slots.iter().for_each(|slot| drop(self.0.take_from(slot)));
    }

    /// Returns the number of bytes of committed memory in all cached ranges together.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.0.cached_bytes.load(Ordering::Relaxed)
    }

    fn take(&self, mapped: usize) -> Option<MappedRegion> {
        if self.cached_bytes() == 0 {
            return None;
        }
        self.0.slots.iter().find_map(|slot| {
            let mut spare = self.0.take_from(slot)?;
            if spare.mapped != mapped {
                self.0.put(spare);
                return None;
            }
            spare.is_old = false;
            spare.pool = Some(Arc::clone(&self.0));
            Some(spare)
        })
    }
}

impl CacheInner {
    fn take_from(&self, slot: &AtomicPtr<CachedRegion>) -> Option<MappedRegion> {
        // Acquire: pairs with `try_put` (rule `cached`). Sequentially consistent: pairs with
        // `try_put` if `close` is the caller (rule `closed`).
        let address = NonNull::new(slot.swap(ptr::null_mut(), Ordering::SeqCst))?;
        // SAFETY: `try_put` wrote the description there, and the thread that takes the address owns
        // the mapping.
        let CachedRegion { mapped, touched, is_old } = unsafe { address.read() };
        self.cached_bytes.fetch_sub(touched, Ordering::Relaxed);
        Some(MappedRegion { octets: address.cast(), mapped, touched, is_old, pool: None })
    }

    fn put(&self, reservation: MappedRegion) {
        if self.try_put(&reservation) {
            std::mem::forget(reservation);
        }
    }

    /// Caches a region. Returns false if no slot is free, the limit of bytes is reached, or the
    /// cache is closed.
    fn try_put(&self, reservation: &MappedRegion) -> bool {
        if self.closed.load(Ordering::Relaxed) {
            return false;
        }
        let (address, touched) =
            (reservation.octets.cast::<CachedRegion>(), reservation.touched.max(size_of::<CachedRegion>()));
        if self.cached_bytes.fetch_add(touched, Ordering::Relaxed) + touched <= self.max_bytes {
            let spare = CachedRegion { mapped: reservation.mapped, touched, is_old: reservation.is_old };
            // SAFETY: the caller owns the mapping, which begins at a page and is longer than the
            // description. Its present bytes have no meaning.
            unsafe { address.write(spare) };
            for slot in &self.slots {
                // Release: pairs with `take_from` (rule `cached`). Sequentially consistent: pairs
                // with `close` (rule `closed`).
                let put = slot.compare_exchange(ptr::null_mut(), address.as_ptr(), Ordering::SeqCst, Ordering::Relaxed);
                if put.is_ok() {
                    if self.closed.load(Ordering::SeqCst) {
                        drop(self.take_from(slot));
                    }
                    return true;
                }
            }
        }
        self.cached_bytes.fetch_sub(touched, Ordering::Relaxed);
        false
    }
}

impl Drop for CacheInner {
    fn drop(&mut self) {
        for slot in &self.slots {
            drop(self.take_from(slot));
        }
    }
}

/// A mapped range of addresses. The kernel provides each page, filled with zeros, at the first
/// access.
pub(super) struct MappedRegion {
    octets: NonNull<u8>,
    mapped: usize,
    /// Number of bytes from the start of the range to the last byte written since it was mapped.
    touched: usize,
    /// True if the drop unmaps the region instead of caching it.
    is_old: bool,
    pool: Option<Arc<CacheInner>>,
}

// SAFETY: the mapping is private to this process and owned by this value alone, like a boxed slice.
unsafe impl Send for MappedRegion {}
// SAFETY: shared access only reads the mapping.
unsafe impl Sync for MappedRegion {}

impl MappedRegion {
    /// Takes a cached region or maps a new one.
    ///
    /// # Errors
    /// `OutOfMemory` if no address range of this size is free.
    pub(super) fn new(length: usize, spares: Option<&RegionCache>) -> io::Result<Self> {
        let mapped = length.checked_next_power_of_two().filter(|&mapped| isize::try_from(mapped).is_ok());
        let mapped = mapped.ok_or(io::ErrorKind::OutOfMemory)?.max(MIN_REGION_BYTES);
        match spares.and_then(|spares| spares.take(mapped)) {
            Some(spare) => Ok(spare),
            None => Self::map(mapped, spares),
        }
    }

    /// Returns the address of the first byte. All bytes stay mapped until the drop, and belong to
    /// this value alone.
    pub(super) fn as_ptr(&self) -> NonNull<u8> {
        self.octets
    }

    fn map(mapped: usize, spares: Option<&RegionCache>) -> io::Result<Self> {
        // SAFETY: without a requested address the mapping replaces no existing one.
        let address = syscall::once(|| unsafe {
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
            Some(octets) => {
                MAPPED_BYTES.fetch_add(mapped, Ordering::Relaxed);
                MAPPINGS.fetch_add(1, Ordering::Relaxed);
                Ok(Self { octets, mapped, touched: 0, is_old: false, pool })
            }
            None => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    pub(super) fn cache(&self) -> Option<RegionCache> {
        self.pool.clone().map(RegionCache)
    }

    pub(super) fn touched(&self) -> usize {
        self.touched
    }

    #[inline]
    pub(super) fn record_touched(&mut self, octets: usize) {
        self.touched = self.touched.max(octets);
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        if !self.is_old && self.pool.as_ref().is_some_and(|pool| pool.try_put(self)) {
            return;
        }
        MAPPED_BYTES.fetch_sub(self.mapped, Ordering::Relaxed);
        // SAFETY: the mapping belongs to this value, has this length, and no reference into it
        // outlives this value. After a failure the memory would stay mapped, which is harmless.
        let _ = syscall::once(|| unsafe { libc::munmap(self.octets.as_ptr().cast(), self.mapped) });
    }
}
