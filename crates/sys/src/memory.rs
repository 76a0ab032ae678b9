//! Keeping the process's memory in place, so that a real-time thread meets no page fault that goes to disk.

use std::io;

use crate::call;

/// Locks all pages that the process has touched or will touch. Reservations that were not touched cost nothing
/// (`MCL_ONFAULT`), so announced message lengths and unused stack stay free.
///
/// # Errors
/// `PermissionDenied` or `OutOfMemory` when the process may not lock as much (`RLIMIT_MEMLOCK`, `CAP_IPC_LOCK`).
pub fn lock_all() -> io::Result<()> {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: the call takes no pointers; it changes where pages may be kept, not what they hold.
    call::once(|| unsafe { libc::mlockall(flags) })?;
    Ok(())
}

/// Touches the next 128 KiB of the calling thread's stack, so that calls of that depth meet no page fault later. The
/// stack must be larger than that.
#[inline(never)]
pub fn prefault_stack() {
    let mut room = [0u8; 128 * 1024];
    for octet in room.iter_mut().step_by(4096) {
        *std::hint::black_box(octet) = 1;
    }
    std::hint::black_box(&room);
}

/// How much the process may lock, in octets; `None` means no limit.
pub(crate) fn lock_limit() -> io::Result<Option<u64>> {
    limit(libc::RLIMIT_MEMLOCK as libc::c_int)
}

/// The highest fixed priority that `RLIMIT_RTPRIO` grants without privilege; `None` means no limit.
pub(crate) fn priority_limit() -> io::Result<Option<u64>> {
    limit(libc::RLIMIT_RTPRIO as libc::c_int)
}

fn limit(resource: libc::c_int) -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable and outlives the call.
    call::once(|| unsafe { libc::getrlimit(resource as _, &mut limit) })?;
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn stack_and_limits() {
        prefault_stack();
        lock_limit().unwrap();
        priority_limit().unwrap();
    }
}
