//! Waiting for descriptors until an absolute deadline. A wait with a deadline sets the thread's
//! timer slack to 1 ns.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::clock::{self, Monotonic};
use crate::syscall;

/// The result of [`wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Reading was requested and does not block: there are bytes, the end of the stream, or an
    /// error.
    pub is_readable: bool,
    /// Writing was requested and does not block.
    pub is_writable: bool,
    /// Both directions of the connection have ended, or the descriptor has a pending error.
    pub is_hung_up: bool,
}

impl Readiness {
    /// Returns true if at least one field is true.
    pub fn is_ready(self) -> bool {
        self.is_readable || self.is_writable || self.is_hung_up
    }
}

/// Waits until `fd` can be read (bytes, end of stream or error) or `deadline` has passed (`None`:
/// no deadline). Returns true if `fd` can be read.
///
/// # Errors
/// When the kernel is out of memory. A signal does not end the wait.
pub fn wait_readable(fd: BorrowedFd<'_>, deadline: Option<Monotonic>) -> io::Result<bool> {
    Ok(wait(fd, true, false, deadline)?.is_ready())
}

/// Waits until `fd` can be written (room or error) or `deadline` has passed (`None`: no deadline).
/// Returns true if `fd` can be written.
///
/// # Errors
/// When the kernel is out of memory. A signal does not end the wait.
pub fn wait_writable(fd: BorrowedFd<'_>, deadline: Option<Monotonic>) -> io::Result<bool> {
    Ok(wait(fd, false, true, deadline)?.is_ready())
}

/// Waits until a requested direction is ready, the connection has ended, the descriptor has a
/// pending error, or `deadline` has passed (`None`: no deadline). After the deadline all fields of
/// the result are false.
///
/// # Errors
/// When the kernel is out of memory. A signal does not end the wait.
pub fn wait(fd: BorrowedFd<'_>, readable: bool, writable: bool, deadline: Option<Monotonic>) -> io::Result<Readiness> {
    let mut events = 0;
    if readable {
        events |= libc::POLLIN;
    }
    if writable {
        events |= libc::POLLOUT;
    }
    if deadline.is_some() {
        minimize_timer_slack();
    }
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    loop {
        let left = deadline.map(|deadline| clock::timespec(deadline.remaining()));
        let left = left.as_ref().map_or(std::ptr::null(), |left| left as *const libc::timespec);
        // SAFETY: `entry` is one live pollfd and the count says one; `left` is null or points to a
        // timespec that lives until after the call; a null signal mask changes nothing.
        match syscall::once(|| unsafe { libc::ppoll(&mut entry, 1, left, std::ptr::null()) }) {
            Ok(0) if deadline.is_some_and(|deadline| !deadline.is_past()) => {}
            Ok(_) => {
                return Ok(Readiness {
                    is_readable: entry.revents & libc::POLLIN != 0,
                    is_writable: entry.revents & libc::POLLOUT != 0,
                    is_hung_up: entry.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns which directions of a connection have ended.
///
/// # Errors
/// When the kernel is out of memory.
pub fn check_hang_up(fd: BorrowedFd<'_>) -> io::Result<HangUp> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `entry` is one live pollfd and the count says one; `now` outlives the call; a null
    // signal mask changes nothing.
    syscall::retry_interrupted(|| unsafe { libc::ppoll(&mut entry, 1, &raw const now, std::ptr::null()) })?;
    let is_both_closed = entry.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
    Ok(HangUp { is_read_closed: is_both_closed || entry.revents & libc::POLLRDHUP != 0, is_both_closed })
}

/// The result of [`check_hang_up`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HangUp {
    /// The peer sends no more bytes. Bytes that have arrived can still be read.
    pub is_read_closed: bool,
    /// Both directions have ended, or the descriptor has a pending error.
    pub is_both_closed: bool,
}

/// Waits until one of two descriptors can be read, `deadline` has passed (`None`: no deadline), or
/// a signal arrives. Returns for each descriptor whether it can be read.
///
/// # Errors
/// When the kernel is out of memory.
pub fn wait_readable_either(
    first: BorrowedFd<'_>,
    second: BorrowedFd<'_>,
    deadline: Option<Monotonic>,
) -> io::Result<(bool, bool)> {
    wait_readable_any([first, second], deadline).map(|[first, second]| (first, second))
}

/// Waits until one of `fds` can be read, `deadline` has passed (`None`: no deadline), or a signal
/// arrives. Returns for each descriptor whether it can be read.
///
/// # Errors
/// When the kernel is out of memory.
pub fn wait_readable_any<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    deadline: Option<Monotonic>,
) -> io::Result<[bool; N]> {
    if deadline.is_some() {
        minimize_timer_slack();
    }
    let mut entries = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let count = N as libc::nfds_t;
    let left = deadline.map(|deadline| clock::timespec(deadline.remaining()));
    let left = left.as_ref().map_or(std::ptr::null(), |left| left as *const libc::timespec);
    // SAFETY: the count is the length of the live array; `left` is null or points to a timespec
    // that lives until after the call; a null signal mask changes nothing.
    match syscall::once(|| unsafe { libc::ppoll(entries.as_mut_ptr(), count, left, std::ptr::null()) }) {
        Ok(_) => Ok(entries.map(|entry| entry.revents != 0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
    }
}

/// Waits until one of `fds` can be written or `deadline` has passed (`None`: no deadline). Returns
/// the index of the first descriptor that can be written; `None` after the deadline.
///
/// # Errors
/// When the kernel is out of memory. A signal does not end the wait.
pub fn wait_writable_any(fds: &[BorrowedFd<'_>], deadline: Option<Monotonic>) -> io::Result<Option<usize>> {
    if deadline.is_some() {
        minimize_timer_slack();
    }
    let entry = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let mut entries: Vec<libc::pollfd> = fds.iter().map(entry).collect();
    let count = entries.len() as libc::nfds_t;
    loop {
        let left = deadline.map(|deadline| clock::timespec(deadline.remaining()));
        let left = left.as_ref().map_or(std::ptr::null(), |left| left as *const libc::timespec);
        // SAFETY: the count is the number of live entries; `left` is null or points to a timespec
        // that lives until after the call; a null signal mask changes nothing.
        match syscall::once(|| unsafe { libc::ppoll(entries.as_mut_ptr(), count, left, std::ptr::null()) }) {
            Ok(0) if deadline.is_some_and(|deadline| !deadline.is_past()) => {}
            Ok(_) => return Ok(entries.iter().position(|entry| entry.revents != 0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// At a thread's first call, sets the thread's timer slack to 1 ns. With the default of 50 us,
/// timed waits of threads in the ordinary scheduling class end late.
pub fn minimize_timer_slack() {
    thread_local! {
        static SHARP: Cell<bool> = const { Cell::new(false) };
    }
    if !SHARP.replace(true) {
        // SAFETY: the call takes no pointers. The kernel does not refuse this option, and a failure
        // would only leave the default slack.
        let _ = syscall::once(|| unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn deadline_is_absolute_and_precise() {
        let wake = EventFd::new().unwrap();
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
    fn half_close_and_hang_up_are_distinguished() {
        use crate::socket::{self, ShutdownDirection};
        let (near, far) = socket::pair().unwrap();
        assert_eq!(check_hang_up(near.as_fd()).unwrap(), HangUp::default());
        socket::shutdown(far.as_fd(), ShutdownDirection::Write).unwrap();
        assert_eq!(check_hang_up(near.as_fd()).unwrap(), HangUp { is_read_closed: true, is_both_closed: false });
        drop(far);
        assert_eq!(check_hang_up(near.as_fd()).unwrap(), HangUp { is_read_closed: true, is_both_closed: true });
    }

    #[test]
    fn either_descriptor_ends_the_wait() {
        let (one, two) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        let soon = || Some(clock::now() + Duration::from_millis(1));
        assert_eq!(wait_readable_either(one.as_fd(), two.as_fd(), soon()).unwrap(), (false, false));
        two.notify();
        assert_eq!(wait_readable_either(one.as_fd(), two.as_fd(), None).unwrap(), (false, true));
        one.notify();
        assert_eq!(wait_readable_either(one.as_fd(), two.as_fd(), None).unwrap(), (true, true));
    }

    #[test]
    fn timer_slack_costs_one_call_per_thread() {
        std::thread::spawn(|| {
            let wake = EventFd::new().unwrap();
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
