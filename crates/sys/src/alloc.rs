//! The system's allocator with a count, for programs that assert or report how often they allocate.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: corelane_sys::alloc::Counting = corelane_sys::alloc::Counting;
//!
//! let before = corelane_sys::counters::snapshot();
//! let octets = vec![0u8; 100];
//! let counted = corelane_sys::counters::snapshot() - before;
//! assert_eq!((counted.allocations, counted.allocated_bytes), (1, 100));
//! # drop(octets);
//! ```
//!
//! Counts are the calling thread's, in [`counters`]. What one thread allocates another may free, so only a program that
//! works in one thread can tell from them how much it holds.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::counters;

/// To be named in a `#[global_allocator]` of a test or benchmark program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// An allocator that all threads share, for tests of who waits for whom there.
#[cfg(any(test, feature = "testing"))]
mod shared {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    static LOCKED: AtomicBool = AtomicBool::new(false);

    thread_local! {
        static PASSES_LOCK: Cell<bool> = const { Cell::new(false) };
    }

    impl super::Counting {
        /// The calling thread passes one lock from now on whenever it allocates or frees, as with an allocator that all threads share.
        pub fn pass_lock() {
            PASSES_LOCK.set(true);
        }

        /// Runs `body` with that lock held, as a thread that is preempted in the allocator.
        pub fn hold_lock(body: impl FnOnce()) {
            take_lock();
            body();
            LOCKED.store(false, Ordering::Release);
        }
    }

    fn take_lock() {
        while LOCKED.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Asleep: whoever holds it may need the core.
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
use shared::pass;

#[cfg(not(any(test, feature = "testing")))]
fn pass() {}

// SAFETY: all work is the system allocator's. Counting and the tests' lock touch thread-local cells without initialiser or destructor and an
// atomic, so they neither allocate nor fail, on any thread at any time of its life.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        pass();
        counters::count_allocation(layout.size());
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        pass();
        counters::count_allocation(layout.size());
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        pass();
        counters::count_allocation(size);
        counters::count_freed(layout.size());
        // SAFETY: `pointer` came from the system allocator, as all of ours do, with that layout.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        pass();
        counters::count_freed(layout.size());
        // SAFETY: `pointer` came from one of the functions above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
