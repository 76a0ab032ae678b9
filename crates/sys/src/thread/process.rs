//! Fork detection without a system call, and other properties of the process.
//!
//! After `fork` the child has one thread, and copies of the parent's sockets and lanes, which it
//! must not use. [`fork_generation`] returns a number that a handler of `pthread_atfork` increases
//! in the child. A raw `clone` system call goes unnoticed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock::Monotonic;
use crate::{poll, syscall};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static PID: AtomicU32 = AtomicU32::new(0);

/// Returns the fork generation of this process, which is never 0: 1 at the first call, one more in
/// each forked child.
#[inline]
pub fn fork_generation() -> u64 {
    match GENERATION.load(Ordering::Relaxed) {
        0 => watch_forks(),
        generation => generation,
    }
}

/// Returns the process id, without a system call if it is cached. A fork clears the cache.
#[inline]
pub fn id() -> u32 {
    // Sets up fork detection, so that a later fork clears the cached value.
    fork_generation();
    match PID.load(Ordering::Relaxed) {
        0 => {
            let pid = std::process::id();
            PID.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

/// Returns the effective user id of this process.
#[must_use]
pub fn effective_user_id() -> u32 {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Flag for `OpenOptionsExt::custom_flags`: the opening of a file fails if its name is a symbolic
/// link (open(2)).
pub const O_NOFOLLOW: i32 = libc::O_NOFOLLOW;

/// Returns a number from the kernel's random generator.
///
/// # Errors
/// The kernel's error, if the kernel is older than 3.17 or a filter refuses the call.
pub fn random_number() -> std::io::Result<u64> {
    let mut octets = [0_u8; 8];
    // SAFETY: the buffer is live and writable for the length that the call gets.
    let filled =
        syscall::retry_interrupted(|| unsafe { libc::getrandom(octets.as_mut_ptr().cast(), octets.len(), 0) })?;
    // The kernel fills requests of up to 256 bytes completely.
    if usize::try_from(filled) == Ok(octets.len()) {
        Ok(u64::from_ne_bytes(octets))
    } else {
        Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof))
    }
}

/// Returns true if `error` means that the process or the system is out of descriptors, or of memory
/// for a descriptor.
#[must_use]
pub fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Writes a line to the standard error output if the write does not block. Returns false if nothing
/// was written. The line is cut to `PIPE_BUF` - 1 bytes, so that a pipe takes it in one piece.
pub fn try_print_error(line: &str) -> bool {
    let mut octets = line.as_bytes()[..line.floor_char_boundary(libc::PIPE_BUF - 1)].to_vec();
    octets.push(b'\n');
    try_write(std::io::stderr().as_fd(), &octets)
}

/// Writes `octets` if the write does not block. The caller passes at most `PIPE_BUF` bytes, so that
/// a pipe takes them in one piece. Returns false if nothing was written.
fn try_write(fd: BorrowedFd<'_>, octets: &[u8]) -> bool {
    // A pipe that polls as writable has room for `PIPE_BUF` bytes, and a terminal that polls as
    // writable is not stopped. So the write does not block.
    let at_once = Some(Monotonic::from_nanos(0));
    if !poll::wait_writable(fd, at_once).unwrap_or(false) {
        return false;
    }
    let slice = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    // After the check another thread or process may fill the pipe. `RWF_NOWAIT` then makes the
    // write fail.
    // SAFETY: the slice describes live bytes, which the call reads. An offset of -1 means the
    // file's own position.
    let written = syscall::retry_interrupted(|| unsafe {
        libc::pwritev2(fd.as_raw_fd(), &raw const slice, 1, -1, libc::RWF_NOWAIT)
    });
    match written {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && is_waited_for(fd) => false,
        // Terminals, and kernels before 6.4, do not support RWF_NOWAIT. A regular file refuses it
        // when the file has to grow.
        Err(_) => {
            // SAFETY: the bytes are live, and only read.
            syscall::retry_interrupted(|| unsafe { libc::write(fd.as_raw_fd(), octets.as_ptr().cast(), octets.len()) })
                .is_ok()
        }
    }
}

/// Returns true if the file is not a regular file, so that a write to it can wait for another
/// process.
fn is_waited_for(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: the structure consists of integers, for which zeroes are valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` is one live, writable structure of the kind that the call fills.
    let found = syscall::once(|| unsafe { libc::fstat(fd.as_raw_fd(), &raw mut status) });
    found.is_ok() && status.st_mode & libc::S_IFMT != libc::S_IFREG
}

/// Raises the limit of open descriptors to `wanted`, or as far as permitted. A limit that is higher
/// already stays. Returns the new limit.
///
/// # Errors
/// If the limit cannot be read.
pub fn raise_descriptor_limit(wanted: u64) -> std::io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is one live, writable structure of the kind that the call fills.
    syscall::once(|| unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    // The first try raises both limits. Raising the hard limit needs a privilege, so the second try
    // keeps it.
    for upper in [limit.rlim_max.max(wanted), limit.rlim_max] {
        let raised = libc::rlimit { rlim_cur: wanted.min(upper), rlim_max: upper };
        // SAFETY: `raised` is one live structure that the call only reads.
        if syscall::once(|| unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) }).is_ok() {
            return Ok(raised.rlim_cur);
        }
    }
    Ok(limit.rlim_cur)
}

/// Runs `body` in a forked child and returns its result, for tests.
///
/// The child has the calling thread only, so `body` must not need a lock that another thread may
/// hold. Returns false if `body` returned false or panicked, or if the child was killed.
///
/// # Errors
/// If the system refuses a process.
#[cfg(any(test, feature = "testing"))]
pub fn run_in_child(body: impl FnOnce() -> bool) -> std::io::Result<bool> {
    // SAFETY: the call takes no pointers. The child runs `body`, whose requirements the caller
    // meets, and ends below.
    let child = syscall::once(|| unsafe { libc::fork() })?;
    if child == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: the call ends the child at once, without the handlers that the parent registered.
        unsafe { libc::_exit(if outcome.unwrap_or(false) { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is one writable int, and `child` is a child of this process.
    syscall::retry_interrupted(|| unsafe { libc::waitpid(child, &raw mut status, 0) })?;
    Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
}

#[cold]
fn watch_forks() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        extern "C" fn in_forked_child() {
            PID.store(0, Ordering::Relaxed);
            GENERATION.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the handler touches two atomics only, which is allowed in a forked child, and
        // lives as long as the program. If the call fails (out of memory), forks go unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
        GENERATION.store(1, Ordering::Relaxed);
    });
    GENERATION.load(Ordering::Relaxed)
}

/// Moves the calling thread into a new network namespace, in which the loopback interface is down.
/// Threads that the calling thread starts later are in the new namespace, too. The namespace ends
/// with its last thread.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN`.
#[cfg(any(test, feature = "testing"))]
pub fn enter_new_network_namespace() -> std::io::Result<()> {
    // SAFETY: the call takes no pointers, and changes the network namespace of this thread only.
    syscall::once(|| unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    Ok(())
}

/// Returns the name of the capability for [`enter_new_network_namespace`] if the calling thread
/// lacks it.
#[cfg(any(test, feature = "testing"))]
#[must_use]
pub fn missing_namespace_capability() -> Option<&'static str> {
    // include/uapi/linux/capability.h.
    (!crate::bpf::has_capability(21)).then_some("CAP_SYS_ADMIN")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        let numbers: std::collections::HashSet<u64> = (0..100).map(|_| random_number().unwrap()).collect();
        assert_eq!(numbers.len(), 100);
        assert_eq!(numbers.iter().fold(0, |all, number| all | number), u64::MAX);
        assert_eq!(numbers.iter().fold(u64::MAX, |all, number| all & number), 0);
    }

    #[test]
    fn line_is_written_whole_or_not_at_all_without_waiting() {
        use std::io::{Read, Write};

        let (mut out, mut into) = std::io::pipe().unwrap();
        assert!(try_write(into.as_fd(), b"a line\n"));
        let mut octets = [0; 7];
        out.read_exact(&mut octets).unwrap();
        assert_eq!(&octets, b"a line\n");
        let mut written = 0;
        while try_write(into.as_fd(), &[b'x'; 4096]) {
            written += 4096;
        }
        assert!(written > 0);
        out.read_exact(&mut [0; 100]).unwrap();
        assert!(!try_write(into.as_fd(), &[b'y'; 4096]));
        let reader = std::thread::spawn(move || {
            let mut rest = Vec::new();
            out.read_to_end(&mut rest).map(|_| rest)
        });
        into.write_all(b"z").unwrap();
        drop(into);
        let rest = reader.join().unwrap().unwrap();
        assert_eq!((rest.len(), rest.contains(&b'y')), (written - 100 + 1, false));
        let file = std::env::temp_dir().join(format!("corelane-line-{}", id()));
        let open = std::fs::File::create(&file).unwrap();
        assert!(try_write(open.as_fd(), b"one\n") && try_write(open.as_fd(), b"two\n"));
        assert_eq!(std::fs::read(&file).unwrap(), b"one\ntwo\n");
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn fork_changes_generation_and_id() {
        let (generation_here, id_here) = (fork_generation(), id());
        assert_eq!(id_here, std::process::id());
        assert!(run_in_child(|| fork_generation() == generation_here + 1 && id() != id_here).unwrap());
        assert!(!run_in_child(|| false).unwrap());
        assert_eq!(fork_generation(), generation_here);
    }
}
