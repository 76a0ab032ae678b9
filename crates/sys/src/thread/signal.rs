//! Termination requests through a descriptor.
//!
//! After the first call of [`termination`], the first SIGINT, SIGTERM or SIGHUP makes the
//! descriptor readable for ever. Interrupted system calls are restarted (`SA_RESTART`). A second
//! signal of the same kind ends the process.
//!
//! A forked child must call [`termination`] to receive its signals.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::clock::Monotonic;
use crate::eventfd::EventFd;
use crate::syscall;
use crate::{poll, process};

static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static REQUESTED: AtomicBool = AtomicBool::new(false);
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The termination requests to this process.
#[derive(Debug)]
pub struct TerminationRequests(EventFd);

/// Returns the termination requests to this process. The first call installs handlers, which turn
/// SIGINT, SIGTERM and SIGHUP into requests. A signal that the process ignores at the first call,
/// for example under `nohup`, stays ignored.
///
/// # Errors
/// If the process is out of descriptors.
pub fn termination() -> io::Result<&'static TerminationRequests> {
    static TERMINATION: Mutex<Option<(u64, &'static TerminationRequests)>> = Mutex::new(None);
    let mut current = TERMINATION.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let forks = process::fork_generation();
    if let Some((_, termination)) = current.filter(|(made, _)| *made == forks) {
        return Ok(termination);
    }
    // The value is never freed, because the handler may run at any time.
    let termination = &*Box::leak(Box::new(TerminationRequests(EventFd::new()?)));
    install_handlers(termination)?;
    *current = Some((forks, termination));
    Ok(termination)
}

fn install_handlers(termination: &TerminationRequests) -> io::Result<()> {
    // The handler ignores the descriptor until this process is the owner.
    DESCRIPTOR.store(termination.as_fd().as_raw_fd(), Ordering::Relaxed);
    REQUESTED.store(false, Ordering::Relaxed);
    // Release: pairs with the handler's load.
    OWNER.store(own_id(), Ordering::Release);
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().try_for_each(install_handler)
}

fn own_id() -> i32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::getpid() }
}

fn install_handler(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: the structure consists of integers and an optional function, for which zeroes are
    // valid.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed; `before` is a live structure of the kind that the call fills.
    syscall::once(|| unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) })?;
    if before.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    // SAFETY: the structure consists of integers and an optional function, for which zeroes are
    // valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
    // SAFETY: `action` outlives the call, and its handler is async-signal-safe: it uses atomics,
    // `getpid`, `raise`, `write` and `errno` only.
    syscall::once(|| unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) })?;
    Ok(())
}

extern "C" fn on_signal(signal: libc::c_int) {
    // Acquire: pairs with the store in `install_handlers`.
    if OWNER.load(Ordering::Acquire) != own_id() {
        // SAFETY: the call is permitted in a handler. The handler is removed (SA_RESETHAND), so on
        // return the signal has its default effect.
        unsafe { libc::raise(signal) };
        return;
    }
    REQUESTED.store(true, Ordering::Relaxed);
    let one = 1u64;
    // SAFETY: `errno` is this thread's own variable. It is restored, so that the interrupted code
    // does not see the error number of the handler. The descriptor stays open for the life of the
    // process, and `one` is 8 readable bytes.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        libc::write(DESCRIPTOR.load(Ordering::Relaxed), (&raw const one).cast(), size_of::<u64>());
        *errno = saved;
    }
}

impl TerminationRequests {
    /// Returns true if a termination request has arrived.
    pub fn is_requested(&self) -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }

    /// Waits for a termination request until `deadline` (`None`: for ever). Returns true if a
    /// request has arrived.
    ///
    /// # Errors
    /// If the kernel is out of memory.
    pub fn wait(&self, deadline: Option<Monotonic>) -> io::Result<bool> {
        poll::wait_readable(self.as_fd(), deadline)
    }
}

/// Readable when a termination request has arrived.
impl AsFd for TerminationRequests {
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
    fn first_signal_is_reported() {
        let termination = termination().unwrap();
        assert!(!termination.is_requested());
        assert!(!termination.wait(Some(clock::now() + Duration::from_millis(1))).unwrap());
        // The signal ends a forked child, and the parent gets no request.
        // SAFETY: a handler for the signal is in place.
        let lived = process::run_in_child(|| unsafe { libc::raise(libc::SIGTERM) } == 0);
        assert!(!lived.unwrap_or(false));
        let told = process::run_in_child(|| {
            let own = super::termination().unwrap();
            let before = own.is_requested();
            // SAFETY: a handler for the signal is in place.
            unsafe { libc::raise(libc::SIGTERM) };
            !before && own.is_requested() && own.wait(None).unwrap()
        });
        assert!(told.unwrap());
        assert!(!termination.is_requested());
        assert!(!termination.wait(Some(clock::now() + Duration::from_millis(1))).unwrap());
        // SAFETY: a handler for the signal is in place.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(termination.wait(None).unwrap() && termination.wait(None).unwrap());
        assert!(termination.is_requested());
    }
}
