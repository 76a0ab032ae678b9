//! Memory of the process: locking and prefaulting against page faults of real-time threads,
//! prefetching, and trimming of the heap.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::syscall;

/// Locks all pages that the process has touched or will touch.
///
/// # Errors
/// `PermissionDenied` or `OutOfMemory` when the process may not lock all its memory
/// (`RLIMIT_MEMLOCK`, `CAP_IPC_LOCK`).
pub fn lock_all_pages() -> io::Result<()> {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: the call takes no pointers. It changes where pages may be kept, not their contents.
    syscall::once(|| unsafe { libc::mlockall(flags) })?;
    Ok(())
}

/// Starts to fetch memory into the processor's caches, and returns at once. Has no effect on
/// processors other than x86-64.
#[inline]
pub fn prefetch(octets: &[u8]) {
    const LINE: usize = 64;
    #[cfg(target_arch = "x86_64")]
    for line in octets.chunks(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing into the program, and all x86-64 processors have it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = octets.chunks(LINE);
}

static TRIMS: AtomicU64 = AtomicU64::new(0);

/// Makes glibc's allocator return unused memory to the system; has no effect with other C
/// libraries. While the call locks an arena of the allocator, allocations from it wait.
pub fn trim_heap() {
    TRIMS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the call takes no pointers, and any thread may make it at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the number of calls of [`trim_heap`] in this process.
#[must_use]
pub fn heap_trim_count() -> u64 {
    TRIMS.load(Ordering::Relaxed)
}

/// Touches the next 128 KiB of the calling thread's stack, so that later function calls within this
/// depth cause no page fault. The stack must have more than 128 KiB left.
#[inline(never)]
pub fn prefault_stack() {
    let mut room = [0u8; 128 * 1024];
    for octet in room.iter_mut().step_by(4096) {
        *std::hint::black_box(octet) = 1;
    }
    std::hint::black_box(&room);
}

pub(crate) fn lock_limit() -> io::Result<Option<u64>> {
    limit(libc::RLIMIT_MEMLOCK as libc::c_int)
}

pub(crate) fn priority_limit() -> io::Result<Option<u64>> {
    limit(libc::RLIMIT_RTPRIO as libc::c_int)
}

fn limit(resource: libc::c_int) -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable and outlives the call.
    syscall::once(|| unsafe { libc::getrlimit(resource as _, &mut limit) })?;
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn stack_is_prefaulted_and_limits_are_read() {
        prefault_stack();
        lock_limit().unwrap();
        priority_limit().unwrap();
    }
}
