//! Being told through a descriptor that the process should end.
//!
//! After the first call of [`termination`], the first SIGINT, SIGTERM or SIGHUP makes the descriptor readable, for good, and
//! does nothing else; blocked system calls go on. A second one of the same kind ends the process in the usual way, so a
//! program whose shutdown hangs can still be interrupted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::call;
use crate::clock::Monotonic;
use crate::eventfd::Wake;
use crate::poll;

/// The descriptor, for the handler, which may touch nothing but atomics.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether and when the process was asked to end. There is one per process, from [`termination`].
#[derive(Debug)]
pub struct Termination(Wake);

/// Watches for SIGINT, SIGTERM and SIGHUP from the first call on. What the process was told to ignore, as by `nohup`, stays ignored.
///
/// # Errors
/// When the process is out of descriptors.
pub fn termination() -> io::Result<&'static Termination> {
    static TERMINATION: OnceLock<Result<Termination, io::ErrorKind>> = OnceLock::new();
    TERMINATION.get_or_init(|| begin().map_err(|error| error.kind())).as_ref().map_err(|&kind| kind.into())
}

fn begin() -> io::Result<Termination> {
    let termination = Termination(Wake::new()?);
    DESCRIPTOR.store(termination.as_fd().as_raw_fd(), Ordering::Relaxed);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        watch(signal)?;
    }
    Ok(termination)
}

fn watch(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: the structure consists of integers and an optional function, for which zeroes are values.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed; `before` is a live structure of the kind that the call fills.
    call::once(|| unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) })?;
    if before.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
    // SAFETY: `action` outlives the call, and its handler only does what is allowed in one: atomics, `write`, `errno`.
    call::once(|| unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) })?;
    Ok(())
}

extern "C" fn on_signal(_: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
    let one = 1u64;
    // SAFETY: `errno` of this thread is put back, so that the interrupted code does not see the handler's. The
    // descriptor stays open for the life of the process, and `one` is 8 readable octets.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        libc::write(DESCRIPTOR.load(Ordering::Relaxed), (&raw const one).cast(), size_of::<u64>());
        *errno = saved;
    }
}

impl Termination {
    /// Whether the process was asked to end.
    pub fn requested(&self) -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }

    /// Waits for that until `deadline` (`None`: for ever). True if so.
    ///
    /// # Errors
    /// When the kernel is out of memory.
    pub fn wait(&self, deadline: Option<Monotonic>) -> io::Result<bool> {
        poll::wait_readable(self.as_fd(), deadline)
    }
}

/// Readable once the process was asked to end; not to be read.
impl AsFd for Termination {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn the_first_signal_is_told() {
        let termination = termination().unwrap();
        assert!(!termination.requested());
        assert!(!termination.wait(Some(clock::now() + Duration::from_millis(1))).unwrap());
        // SAFETY: a handler for the signal is in place.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(termination.wait(None).unwrap() && termination.wait(None).unwrap());
        assert!(termination.requested());
    }
}
