//! Counters of the calling thread's operations, such as system calls, locks and allocations.
//!
//! A test takes a [`snapshot`] before and after the measured code, on the thread that runs this
//! code, and subtracts.

use std::cell::Cell;
use std::ops::Sub;

/// Counts of one thread since it began, or the difference of two such counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// System calls that this crate makes, except futex calls. Calls inside the standard library
    /// and the C library are not included.
    pub syscalls: u64,
    /// Locks of the module [`lock`](crate::lock) taken, in shared or exclusive mode, with or
    /// without a wait.
    pub locks: u64,
    /// Locks taken with the scope of a lane ([`LockScope::Lane`](crate::lock::LockScope::Lane)).
    pub lane_locks: u64,
    /// Locks taken with the scope of the whole ORB
    /// ([`LockScope::Orb`](crate::lock::LockScope::Orb)).
    pub orb_locks: u64,
    /// Futex calls, for contended locks, condition variables, event counts and shared-memory rings.
    /// [`syscalls`](Self::syscalls) does not include them.
    pub futex_calls: u64,
    /// Pieces of work that the thread handed to another thread.
    pub handoffs: u64,
    /// Bursts that the thread has begun as their supervisor ([`burst`](crate::burst)).
    pub bursts: u64,
    /// Heap allocations and reallocations; counted only where the counting allocator is installed.
    pub allocations: u64,
    /// Bytes allocated on the heap, including the whole new size of reallocations; counted only
    /// where the counting allocator is installed.
    pub allocated_bytes: u64,
    /// Bytes freed, including the whole old size of reallocations; counted only where the counting
    /// allocator is installed.
    pub freed_bytes: u64,
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            syscalls: self.syscalls.wrapping_sub(earlier.syscalls),
            locks: self.locks.wrapping_sub(earlier.locks),
            lane_locks: self.lane_locks.wrapping_sub(earlier.lane_locks),
            orb_locks: self.orb_locks.wrapping_sub(earlier.orb_locks),
            futex_calls: self.futex_calls.wrapping_sub(earlier.futex_calls),
            handoffs: self.handoffs.wrapping_sub(earlier.handoffs),
            bursts: self.bursts.wrapping_sub(earlier.bursts),
            allocations: self.allocations.wrapping_sub(earlier.allocations),
            allocated_bytes: self.allocated_bytes.wrapping_sub(earlier.allocated_bytes),
            freed_bytes: self.freed_bytes.wrapping_sub(earlier.freed_bytes),
        }
    }
}

struct Cells {
    syscalls: Cell<u64>,
    locks: Cell<u64>,
    lane_locks: Cell<u64>,
    orb_locks: Cell<u64>,
    futex_calls: Cell<u64>,
    handoffs: Cell<u64>,
    bursts: Cell<u64>,
    allocations: Cell<u64>,
    allocated_bytes: Cell<u64>,
    freed_bytes: Cell<u64>,
}

thread_local! {
    static CELLS: Cells = const {
        Cells {
            syscalls: Cell::new(0),
            locks: Cell::new(0),
            lane_locks: Cell::new(0),
            orb_locks: Cell::new(0),
            futex_calls: Cell::new(0),
            handoffs: Cell::new(0),
            bursts: Cell::new(0),
            allocations: Cell::new(0),
            allocated_bytes: Cell::new(0),
            freed_bytes: Cell::new(0),
        }
    };
}

#[cfg(any(test, feature = "testing"))]
mod process {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// False until totals are requested. Counting totals takes atomic instructions, which
    /// benchmarks would count.
    pub(super) static WANTED: AtomicBool = AtomicBool::new(false);

    pub(super) struct Totals {
        pub(super) syscalls: AtomicU64,
        pub(super) locks: AtomicU64,
        pub(super) lane_locks: AtomicU64,
        pub(super) orb_locks: AtomicU64,
        pub(super) futex_calls: AtomicU64,
        pub(super) handoffs: AtomicU64,
        pub(super) bursts: AtomicU64,
        pub(super) allocations: AtomicU64,
    }

    pub(super) static TOTALS: Totals = Totals {
        syscalls: AtomicU64::new(0),
        locks: AtomicU64::new(0),
        lane_locks: AtomicU64::new(0),
        orb_locks: AtomicU64::new(0),
        futex_calls: AtomicU64::new(0),
        handoffs: AtomicU64::new(0),
        bursts: AtomicU64::new(0),
        allocations: AtomicU64::new(0),
    };
}

/// Returns the counts of all threads of the process since the first call of this function. The
/// counts of bytes are 0.
#[cfg(any(test, feature = "testing"))]
pub fn process_snapshot() -> Counters {
    use std::sync::atomic::Ordering;

    process::WANTED.store(true, Ordering::SeqCst);
    let totals = &process::TOTALS;
    Counters {
        syscalls: totals.syscalls.load(Ordering::Relaxed),
        locks: totals.locks.load(Ordering::Relaxed),
        lane_locks: totals.lane_locks.load(Ordering::Relaxed),
        orb_locks: totals.orb_locks.load(Ordering::Relaxed),
        futex_calls: totals.futex_calls.load(Ordering::Relaxed),
        handoffs: totals.handoffs.load(Ordering::Relaxed),
        bursts: totals.bursts.load(Ordering::Relaxed),
        allocations: totals.allocations.load(Ordering::Relaxed),
        ..Counters::default()
    }
}

macro_rules! bump {
    ($which:ident) => {{
        CELLS.with(|cells| cells.$which.set(cells.$which.get().wrapping_add(1)));
        #[cfg(any(test, feature = "testing"))]
        if process::WANTED.load(std::sync::atomic::Ordering::Relaxed) {
            process::TOTALS.$which.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }};
}

/// Returns the calling thread's counts since it began.
pub fn snapshot() -> Counters {
    CELLS.with(|cells| Counters {
        syscalls: cells.syscalls.get(),
        locks: cells.locks.get(),
        lane_locks: cells.lane_locks.get(),
        orb_locks: cells.orb_locks.get(),
        futex_calls: cells.futex_calls.get(),
        handoffs: cells.handoffs.get(),
        bursts: cells.bursts.get(),
        allocations: cells.allocations.get(),
        allocated_bytes: cells.allocated_bytes.get(),
        freed_bytes: cells.freed_bytes.get(),
    })
}

/// Counts one piece of work handed to another thread, for a queue outside this crate.
#[inline]
pub fn count_handoff() {
    bump!(handoffs);
}

pub(crate) fn count_burst() {
    bump!(bursts);
}

#[inline]
pub(crate) fn count_syscall() {
    bump!(syscalls);
}

#[inline]
pub(crate) fn count_futex() {
    bump!(futex_calls);
}

#[inline]
pub(crate) fn count_allocation(octets: usize) {
    bump!(allocations);
    CELLS.with(|cells| cells.allocated_bytes.set(cells.allocated_bytes.get().wrapping_add(octets as u64)));
}

#[inline]
pub(crate) fn count_freed(octets: usize) {
    CELLS.with(|cells| cells.freed_bytes.set(cells.freed_bytes.get().wrapping_add(octets as u64)));
}

#[inline]
pub(crate) fn count_lock(scope: crate::lock::LockScope) {
    bump!(locks);
    match scope {
        crate::lock::LockScope::Connection => {}
        crate::lock::LockScope::Lane => bump!(lane_locks),
        crate::lock::LockScope::Orb => bump!(orb_locks),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_are_per_thread() {
        let before = snapshot();
        std::thread::spawn(|| {
            count_handoff();
            count_syscall();
            assert_eq!(snapshot().handoffs, 1);
        })
        .join()
        .unwrap();
        assert_eq!(snapshot() - before, Counters::default());
        count_handoff();
        assert_eq!((snapshot() - before).handoffs, 1);
    }
}
