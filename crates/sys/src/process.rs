//! Noticing a fork without a system call.
//!
//! After `fork` the child has one thread, and sockets, threads and lanes of the parent that it must not
//! use. [`generation`] is a number that a fork increases in the child: whoever keeps it beside what it
//! guards sees by one load and one comparison that the process is no longer the one that made it.
//! The counting is done by a handler that the C library runs in the child (`pthread_atfork`), so a raw
//! `clone` system call goes unnoticed.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static PID: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the first use of this function and this process, plus one. Never 0.
#[inline]
pub fn generation() -> u64 {
    match GENERATION.load(Ordering::Relaxed) {
        0 => watch(),
        generation => generation,
    }
}

/// The process id, right also in a forked child; asked of the kernel once per process.
#[inline]
pub fn id() -> u32 {
    // Watching first: a fork after this line resets what is cached below.
    generation();
    match PID.load(Ordering::Relaxed) {
        0 => {
            let pid = std::process::id();
            PID.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

/// The effective user of this process.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether an error says that this process or the system has no descriptor, or no memory for one, left.
#[must_use]
pub fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Raises the number of descriptors that this process may have open to at least `wanted`, where it may, and returns the number
/// in force then.
///
/// # Errors
/// When the limit cannot be read.
pub fn raise_descriptor_limit(wanted: u64) -> std::io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is one live, writable structure of the kind that the call fills.
    crate::call::once(|| unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    // With privileges the upper bound moves too; without, the attempt fails and the bound is what can be had.
    for upper in [limit.rlim_max.max(wanted), limit.rlim_max] {
        let raised = libc::rlimit { rlim_cur: wanted.min(upper), rlim_max: upper };
        // SAFETY: `raised` is one live structure that the call only reads.
        if crate::call::once(|| unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) }).is_ok() {
            return Ok(raised.rlim_cur);
        }
    }
    Ok(limit.rlim_cur)
}

/// Runs `body` in a forked child, and returns what it returned: for tests of what a child finds. The child has the calling thread
/// only, so `body` must not need a lock that another thread may hold, and has ended when it returns; nothing else of the parent
/// runs in it. False too where the child died.
///
/// # Errors
/// When the system gives no process.
#[cfg(any(test, feature = "testing"))]
pub fn in_child(body: impl FnOnce() -> bool) -> std::io::Result<bool> {
    // SAFETY: takes no pointers; the child runs `body`, of which the caller says what it needs, and ends below.
    let child = crate::call::once(|| unsafe { libc::fork() })?;
    if child == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child at once, without the handlers that the parent registered.
        unsafe { libc::_exit(if outcome.unwrap_or(false) { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is one writable int, and `child` is this process's own.
    crate::call::restarting(|| unsafe { libc::waitpid(child, &raw mut status, 0) })?;
    Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
}

#[cold]
fn watch() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        extern "C" fn in_child() {
            PID.store(0, Ordering::Relaxed);
            GENERATION.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the handler touches two atomics only, which is allowed in a forked child, and lives
        // as long as the program. Failure (out of memory) leaves forks unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        GENERATION.store(1, Ordering::Relaxed);
    });
    GENERATION.load(Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_fork_changes_generation_and_id() {
        let (generation_here, id_here) = (generation(), id());
        assert_eq!(id_here, std::process::id());
        assert!(in_child(|| generation() == generation_here + 1 && id() != id_here).unwrap());
        assert!(!in_child(|| false).unwrap());
        assert_eq!(generation(), generation_here);
    }
}
