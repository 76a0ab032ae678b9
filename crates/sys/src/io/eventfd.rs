//! A descriptor that wakes a thread blocked in `epoll_wait` or `ppoll`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::syscall;

/// An event descriptor: readable from the first [`notify`](EventFd::notify) until
/// [`take_notifications`](EventFd::take_notifications).
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates a descriptor that is not readable.
    ///
    /// # Errors
    /// If the process or the system is out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = syscall::once(|| unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable. With edge-triggered polling each call is one event.
    pub fn notify(&self) {
        let one = 1u64;
        // SAFETY: `one` lives through the call, which reads its 8 bytes. The call fails only with
        // EAGAIN at a counter of 2^64-2, with which the descriptor is readable.
        let _ = syscall::retry_interrupted(|| unsafe {
            libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>())
        });
    }

    /// Makes the descriptor unreadable. Returns true if it had notifications.
    pub fn take_notifications(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: `count` is 8 writable bytes, the number that the call may write.
        syscall::retry_interrupted(|| unsafe {
            libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>())
        })
        .is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notifications_collapse_and_are_not_lost() {
        let wake = EventFd::new().unwrap();
        assert!(!wake.take_notifications());
        wake.notify();
        wake.notify();
        assert!(wake.take_notifications());
        assert!(!wake.take_notifications());
    }
}
