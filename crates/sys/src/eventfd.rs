//! Waking a thread that blocks in `epoll_wait` or `ppoll`, through a descriptor.
//!
//! A [`Wake`] holds a kernel counter: notifications before anybody looks collapse into one, none is
//! lost. It never blocks, neither in notifying nor in draining.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::call;

/// An event descriptor: readable from the first [`notify`](Wake::notify) until [`drain`](Wake::drain).
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// A new one, not readable yet.
    ///
    /// # Errors
    /// When the process is out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = call::once(|| unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel just gave us `fd`, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable; with edge-triggered polling each call is one event.
    pub fn notify(&self) {
        let one = 1u64;
        // SAFETY: `one` lives through the call, which reads its 8 octets. The only failure of a valid
        // event descriptor is EAGAIN at a counter of 2^64-2: it is readable then, which is all we want.
        let _ =
            call::restarting(|| unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) });
    }

    /// Makes the descriptor unreadable again. Whether there had been a notification.
    pub fn drain(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: `count` is 8 writable octets, as many as the call may write.
        call::restarting(|| unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) })
            .is_ok()
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notifications_collapse_and_are_not_lost() {
        let wake = Wake::new().unwrap();
        assert!(!wake.drain());
        wake.notify();
        wake.notify();
        assert!(wake.drain());
        assert!(!wake.drain());
    }
}
