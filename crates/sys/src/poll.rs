//! Waiting for one descriptor until an absolute deadline, with a high-resolution timer.
//!
//! This is the precise class of deadline: `ppoll` with the thread's timer slack at one nanosecond, so
//! that a deadline fires within tens of microseconds instead of a scheduler tick. The slack is set the
//! first time a thread waits here (one more system call, once per thread).

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::call;
use crate::clock::{self, Monotonic};

/// What [`wait`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Reading will not block: there are octets, the end of the stream, or an error to collect.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
    /// The other side is gone in both directions, or the descriptor holds an error.
    pub hung_up: bool,
}

impl Ready {
    /// Whether anything at all is ready; false means that the deadline came first.
    pub fn any(self) -> bool {
        self.readable || self.writable || self.hung_up
    }
}

/// Waits until `fd` can be read (data, end of stream or error) or `deadline` has passed; `None` waits
/// for ever. True if readable.
///
/// # Errors
/// When the kernel is out of memory; an interruption is not an error.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Monotonic>) -> io::Result<bool> {
    Ok(wait(fd, true, false, deadline)?.any())
}

/// Waits until `fd` can be written (space, or an error to collect) or `deadline` has passed; `None`
/// waits for ever. True if writable.
///
/// # Errors
/// When the kernel is out of memory; an interruption is not an error.
pub fn wait_writable(fd: BorrowedFd<'_>, deadline: Option<Monotonic>) -> io::Result<bool> {
    Ok(wait(fd, false, true, deadline)?.any())
}

/// Waits for either direction, as asked, until `deadline`. Nothing ready means that the deadline passed.
/// One system call unless signals interrupt.
///
/// # Errors
/// When the kernel is out of memory; an interruption is not an error.
pub fn wait(fd: BorrowedFd<'_>, readable: bool, writable: bool, deadline: Option<Monotonic>) -> io::Result<Ready> {
    let mut events = 0;
    if readable {
        events |= libc::POLLIN;
    }
    if writable {
        events |= libc::POLLOUT;
    }
    if deadline.is_some() {
        sharpen_timers();
    }
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    loop {
        let left = deadline.map(|deadline| clock::timespec(deadline.remaining()));
        let left = left.as_ref().map_or(std::ptr::null(), |left| left as *const libc::timespec);
        // SAFETY: `entry` is one live pollfd and the count says one; `left` is null or points to a
        // timespec that lives until after the call; a null signal mask changes nothing.
        match call::once(|| unsafe { libc::ppoll(&mut entry, 1, left, std::ptr::null()) }) {
            Ok(0) if deadline.is_some_and(|deadline| !deadline.is_past()) => {}
            Ok(_) => {
                return Ok(Ready {
                    readable: entry.revents & libc::POLLIN != 0,
                    writable: entry.revents & libc::POLLOUT != 0,
                    hung_up: entry.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What has come to an end at a connection, as far as its descriptor knows; a look, no wait. One system call.
///
/// # Errors
/// When the kernel is out of memory.
pub fn ended(fd: BorrowedFd<'_>) -> io::Result<Ended> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `entry` is one live pollfd and the count says one; `now` outlives the call; a null signal mask changes nothing.
    call::restarting(|| unsafe { libc::ppoll(&mut entry, 1, &raw const now, std::ptr::null()) })?;
    let both = entry.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
    Ok(Ended { reading: both || entry.revents & libc::POLLRDHUP != 0, both })
}

/// What [`ended`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The peer writes no more.
    pub reading: bool,
    /// Nothing goes either way: the peer is gone, or both sides have ended writing.
    pub both: bool,
}

/// Waits until one of two descriptors can be read or `deadline` has passed; says which of them can. Neither means that the
/// deadline passed or a signal came.
///
/// # Errors
/// When the kernel is out of memory.
pub fn wait_either(
    first: BorrowedFd<'_>,
    second: BorrowedFd<'_>,
    deadline: Option<Monotonic>,
) -> io::Result<(bool, bool)> {
    wait_any([first, second], deadline).map(|[first, second]| (first, second))
}

/// The same for so many descriptors.
///
/// # Errors
/// As [`wait_either`].
pub fn wait_any<const N: usize>(fds: [BorrowedFd<'_>; N], deadline: Option<Monotonic>) -> io::Result<[bool; N]> {
    if deadline.is_some() {
        sharpen_timers();
    }
    let mut entries = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let count = N as libc::nfds_t;
    let left = deadline.map(|deadline| clock::timespec(deadline.remaining()));
    let left = left.as_ref().map_or(std::ptr::null(), |left| left as *const libc::timespec);
    // SAFETY: the count is that of the live array; `left` is null or points to a timespec that lives until after the
    // call; a null signal mask changes nothing.
    match call::once(|| unsafe { libc::ppoll(entries.as_mut_ptr(), count, left, std::ptr::null()) }) {
        Ok(_) => Ok(entries.map(|entry| entry.revents != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
    }
}

/// Sets the calling thread's timer slack to 1 ns, once. The default of 50 us would be added to every
/// deadline of a thread in the ordinary scheduling class; real-time threads have no slack anyway.
pub fn sharpen_timers() {
    thread_local! {
        static SHARP: Cell<bool> = const { Cell::new(false) };
    }
    if !SHARP.replace(true) {
        // SAFETY: the call takes no pointers. It cannot fail with this option, and a failure would only
        // leave the default slack.
        let _ = call::once(|| unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::eventfd::Wake;

    #[test]
    fn a_deadline_is_absolute_and_precise() {
        let wake = Wake::new().unwrap();
        let deadline = clock::now() + Duration::from_millis(3);
        assert!(!wait_readable(wake.as_fd(), Some(deadline)).unwrap());
        assert!(deadline.is_past());
        assert!(!wait_readable(wake.as_fd(), Some(deadline)).unwrap());
        wake.notify();
        assert!(wait_readable(wake.as_fd(), Some(deadline)).unwrap());
        assert!(wait_readable(wake.as_fd(), None).unwrap());
        assert!(wait_writable(wake.as_fd(), None).unwrap());
    }

    #[test]
    fn the_end_of_each_half_is_told_apart() {
        use crate::socket::{self, Shutdown};
        let (near, far) = socket::pair().unwrap();
        assert_eq!(ended(near.as_fd()).unwrap(), Ended::default());
        socket::shutdown(far.as_fd(), Shutdown::Write).unwrap();
        assert_eq!(ended(near.as_fd()).unwrap(), Ended { reading: true, both: false });
        drop(far);
        assert_eq!(ended(near.as_fd()).unwrap(), Ended { reading: true, both: true });
    }

    #[test]
    fn either_of_two_ends_the_wait() {
        let (one, two) = (Wake::new().unwrap(), Wake::new().unwrap());
        let soon = || Some(clock::now() + Duration::from_millis(1));
        assert_eq!(wait_either(one.as_fd(), two.as_fd(), soon()).unwrap(), (false, false));
        two.notify();
        assert_eq!(wait_either(one.as_fd(), two.as_fd(), None).unwrap(), (false, true));
        one.notify();
        assert_eq!(wait_either(one.as_fd(), two.as_fd(), None).unwrap(), (true, true));
    }

    #[test]
    fn the_slack_costs_one_call_per_thread() {
        std::thread::spawn(|| {
            let wake = Wake::new().unwrap();
            let before = crate::counters::snapshot();
            wait_readable(wake.as_fd(), Some(clock::now())).unwrap();
            assert_eq!((crate::counters::snapshot() - before).syscalls, 2);
            let before = crate::counters::snapshot();
            wait_readable(wake.as_fd(), Some(clock::now())).unwrap();
            assert_eq!((crate::counters::snapshot() - before).syscalls, 1);
        })
        .join()
        .unwrap();
    }
}
