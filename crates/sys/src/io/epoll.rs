//! Readiness of many descriptors.
//!
//! Several threads may wait on one `Epoll`: with edge-triggered interest the kernel wakes one of
//! them per event. An `Epoll` does not own the watched descriptors.

use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{clock, syscall};

/// Events to report for a descriptor; values combine with `|`. Errors and full hang-ups are always
/// reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Errors and full hang-ups only.
    pub const NONE: Self = Self(0);
    /// Bytes to read, a connection to accept, or the end of the stream.
    pub const READABLE: Self = Self(libc::EPOLLIN as u32);
    /// There is room to write.
    pub const WRITABLE: Self = Self(libc::EPOLLOUT as u32);
    /// The peer closed at least its writing side.
    pub const HANG_UP: Self = Self(libc::EPOLLRDHUP as u32);
    /// Reports an event once when it occurs. Without this flag each wait reports the event while
    /// its cause lasts.
    pub const EDGE: Self = Self(libc::EPOLLET as u32);
    /// If several sets watch a descriptor exclusively, an event wakes a thread of the first set, in
    /// the order of [`Epoll::add`], in which a thread waits. Sets earlier in the order report the
    /// event at their next wait, if its cause still lasts.
    ///
    /// Combines with `READABLE`, `WRITABLE` and `EDGE`, and only in [`Epoll::add`]: `modify` fails.
    pub const EXCLUSIVE: Self = Self(libc::EPOLLEXCLUSIVE as u32);
    /// Reports one event, and then nothing until the next [`modify`](Epoll::modify) of the
    /// descriptor.
    pub const ONE_SHOT: Self = Self(libc::EPOLLONESHOT as u32);

    /// Combines two interests: the set reports the events of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// One report of [`Epoll::wait`]: the token of a descriptor, and its events.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct EpollEvent(libc::epoll_event);

impl EpollEvent {
    /// An empty report, to fill the array that [`Epoll::wait`] writes into.
    pub const EMPTY: Self = Self(libc::epoll_event { events: 0, u64: 0 });

    /// Returns the token given to [`Epoll::add`].
    pub fn token(&self) -> u64 {
        self.0.u64
    }

    /// Returns true if the descriptor can be read: bytes, a connection, or the end of the stream.
    pub fn is_readable(&self) -> bool {
        self.has(libc::EPOLLIN)
    }

    /// Returns true if there is room to write.
    pub fn is_writable(&self) -> bool {
        self.has(libc::EPOLLOUT)
    }

    /// Returns true if the peer closed at least its writing side, or the connection has ended.
    pub fn is_hung_up(&self) -> bool {
        self.has(libc::EPOLLHUP | libc::EPOLLRDHUP)
    }

    /// Returns true if the descriptor has a pending error.
    pub fn is_error(&self) -> bool {
        self.has(libc::EPOLLERR)
    }

    fn has(&self, flags: libc::c_int) -> bool {
        self.0.events & flags as u32 != 0
    }
}

impl std::fmt::Debug for EpollEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EpollEvent")
            .field("token", &self.token())
            .field("readable", &self.is_readable())
            .field("writable", &self.is_writable())
            .field("hung_up", &self.is_hung_up())
            .field("failed", &self.is_error())
            .finish()
    }
}

/// A set of watched descriptors.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// Creates an empty set.
    ///
    /// # Errors
    /// If the process or the system is out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = syscall::once(|| unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd` and reports it as `token`.
    ///
    /// # Errors
    /// `AlreadyExists` if this set watches `fd`; any other error of epoll_ctl(2).
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes token and interest of a watched descriptor. The kernel reports a pending edge again.
    ///
    /// # Errors
    /// `NotFound` if `fd` is not watched.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Stops watching `fd`. A report that [`wait`](Self::wait) returned earlier may contain the
    /// token of `fd`.
    ///
    /// # Errors
    /// `NotFound` if `fd` is not watched.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::NONE)
    }

    /// Waits for reports, writes them to the front of `events` and returns their number.
    ///
    /// A `timeout` of `None` waits for ever; zero does not wait. A result of 0 means that the
    /// timeout has passed, that a signal interrupted the wait, or that `events` is empty.
    ///
    /// # Errors
    /// `InvalidInput` if `events` is longer than the kernel permits.
    pub fn wait(&self, events: &mut [EpollEvent], timeout: Option<Duration>) -> io::Result<usize> {
        if events.is_empty() {
            return Ok(0);
        }
        let result = match timeout {
            None => self.wait_millis(events, -1),
            Some(Duration::ZERO) => self.wait_millis(events, 0),
            Some(timeout) => self.wait_precisely(events, timeout),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }

    fn wait_millis(&self, events: &mut [EpollEvent], millis: libc::c_int) -> io::Result<usize> {
        let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
        let none = std::ptr::null::<libc::sigset_t>();
        // Bypasses the C library's wrapper, which changes the thread's cancellation state before
        // and after the call.
        // SAFETY: `EpollEvent` is a transparent `epoll_event`, `room` does not exceed the slice,
        // and a null signal mask changes nothing.
        let count = syscall::once(|| unsafe {
            libc::syscall(libc::SYS_epoll_pwait, self.0.as_raw_fd(), events.as_mut_ptr(), room, millis, none, 0usize)
        })?;
        Ok(count as usize)
    }

    fn wait_precisely(&self, events: &mut [EpollEvent], timeout: Duration) -> io::Result<usize> {
        static MISSING: AtomicBool = AtomicBool::new(false);
        if !MISSING.load(Ordering::Relaxed) {
            let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
            let time = clock::timespec(timeout);
            // SAFETY: `EpollEvent` is a transparent `epoll_event`, `room` does not exceed the
            // slice, `time` outlives the call, and a null signal mask (whose size is then not read)
            // changes nothing.
            let result = syscall::once(|| unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    self.0.as_raw_fd(),
                    events.as_mut_ptr(),
                    room,
                    &raw const time,
                    std::ptr::null::<libc::sigset_t>(),
                    0usize,
                )
            });
            match result {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                    MISSING.store(true, Ordering::Relaxed);
                }
                other => return other.map(|count| count as usize),
            }
        }
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        self.wait_millis(events, libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX))
    }

    fn control(&self, operation: libc::c_int, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.0, u64: token };
        // SAFETY: `event` outlives the call, which only reads it; `fd` is open because it is
        // borrowed.
        syscall::once(|| unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) })?;
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn edge_is_reported_once_with_its_token() {
        let epoll = Epoll::new().unwrap();
        let wake = EventFd::new().unwrap();
        epoll.add(wake.as_fd(), 0xdead_beef_0000_0007, Interest::READABLE | Interest::EDGE).unwrap();
        let mut events = [EpollEvent::EMPTY; 4];
        let soon = Some(Duration::from_micros(200));
        assert_eq!(epoll.wait(&mut events, soon).unwrap(), 0);
        wake.notify();
        assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
        assert_eq!(events[0].token(), 0xdead_beef_0000_0007);
        assert!(events[0].is_readable() && !events[0].is_writable() && !events[0].is_hung_up());
        assert_eq!(epoll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        epoll.modify(wake.as_fd(), 9, Interest::READABLE).unwrap();
        assert_eq!(epoll.wait(&mut events, soon).unwrap(), 1);
        assert_eq!(events[0].token(), 9);
        epoll.remove(wake.as_fd()).unwrap();
        assert_eq!(epoll.wait(&mut events, soon).unwrap(), 0);
        let gone = epoll.remove(wake.as_fd()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
