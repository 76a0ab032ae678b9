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

// SAFETY: all work is the system allocator's. Counting touches thread-local cells without initialiser or destructor, so
// it neither allocates nor fails, on any thread at any time of its life.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        counters::count_allocation(layout.size());
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        counters::count_allocation(layout.size());
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        counters::count_allocation(size);
        counters::count_freed(layout.size());
        // SAFETY: `pointer` came from the system allocator, as all of ours do, with that layout.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        counters::count_freed(layout.size());
        // SAFETY: `pointer` came from one of the functions above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
