//! The system's allocator with a count, for programs that check or report their allocations.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: corelane_sys::alloc::CountingAllocator = corelane_sys::alloc::CountingAllocator;
//!
//! let before = corelane_sys::counters::snapshot();
//! let octets = vec![0u8; 100];
//! let counted = corelane_sys::counters::snapshot() - before;
//! assert_eq!((counted.allocations, counted.allocated_bytes), (1, 100));
//! # drop(octets);
//! ```
//!
//! [`counters`] counts for the calling thread. In a program with one thread, the difference of
//! allocated and freed bytes is the memory in use.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::counters;

/// The system's allocator, which counts in [`counters`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

#[cfg(any(test, feature = "testing"))]
mod shared {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    static LOCKED: AtomicBool = AtomicBool::new(false);
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    static PEAK: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static PASSES_LOCK: Cell<bool> = const { Cell::new(false) };
    }

    impl super::CountingAllocator {
        /// Makes the calling thread take a global lock whenever it allocates or frees, as
        /// allocators with one lock for all threads do.
        pub fn lock_each_allocation() {
            PASSES_LOCK.set(true);
        }

        /// Runs `body` while this thread has the global lock, like a thread that is preempted in
        /// the allocator.
        pub fn with_lock_held(body: impl FnOnce()) {
            take_lock();
            body();
            LOCKED.store(false, Ordering::Release);
        }
    }

    impl super::CountingAllocator {
        /// Returns the number of bytes that the process has allocated and not freed.
        #[must_use]
        pub fn live_bytes() -> usize {
            LIVE.load(Ordering::Relaxed)
        }

        /// Returns the maximum of [`live_bytes`](Self::live_bytes) since the previous call of this
        /// function; at the first call, since the start of the process.
        #[must_use]
        pub fn take_peak_bytes() -> usize {
            PEAK.swap(Self::live_bytes(), Ordering::Relaxed).max(Self::live_bytes())
        }
    }

    pub(super) fn record_allocated(octets: usize) {
        let live = LIVE.fetch_add(octets, Ordering::Relaxed) + octets;
        PEAK.fetch_max(live, Ordering::Relaxed);
    }

    pub(super) fn record_freed(octets: usize) {
        LIVE.fetch_sub(octets, Ordering::Relaxed);
    }

    fn take_lock() {
        while LOCKED.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // The thread sleeps, because the thread with the lock may need this core.
            thread::sleep(Duration::from_micros(200));
        }
    }

    pub(super) fn pass() {
        if PASSES_LOCK.get() {
            take_lock();
            LOCKED.store(false, Ordering::Release);
        }
    }
}

#[cfg(any(test, feature = "testing"))]
use shared::{pass, record_allocated, record_freed};

#[cfg(not(any(test, feature = "testing")))]
fn pass() {}

#[cfg(not(any(test, feature = "testing")))]
fn record_allocated(_: usize) {}

#[cfg(not(any(test, feature = "testing")))]
fn record_freed(_: usize) {}

// SAFETY: the system allocator does the work. The counters and the tests' lock use atomics, and
// thread-local cells without initialiser or destructor. So they neither allocate nor fail, on any
// thread at any time.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        pass();
        counters::count_allocation(layout.size());
        record_allocated(layout.size());
        // SAFETY: the caller's guarantees are passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        pass();
        counters::count_allocation(layout.size());
        record_allocated(layout.size());
        // SAFETY: the caller's guarantees about `layout` are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        pass();
        counters::count_allocation(size);
        counters::count_freed(layout.size());
        record_allocated(size);
        record_freed(layout.size());
        // SAFETY: `pointer` came from the system allocator, like all pointers of this allocator,
        // with that layout.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        pass();
        counters::count_freed(layout.size());
        record_freed(layout.size());
        // SAFETY: `pointer` came from one of the functions above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
