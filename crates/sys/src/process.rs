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
        // SAFETY: the child only reads atomics and the process id, then exits without unwinding.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let noticed = generation() == generation_here + 1 && id() != id_here;
            // SAFETY: ends the child at once, running nothing of the parent's.
            unsafe { libc::_exit(if noticed { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable, and `child` is ours.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
        assert_eq!(generation(), generation_here);
    }
}
