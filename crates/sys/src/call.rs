//! The one place through which this crate enters the kernel.
//!
//! It counts the call for the calling thread, turns `-1` into the thread's `errno`, and restarts
//! interrupted calls where the caller asks for it. It never interprets a result beyond that.

use std::io;

use crate::counters;

/// Integer results of system calls, of which -1 says that `errno` holds the reason.
pub(crate) trait Outcome: Copy {
    fn failed(self) -> bool;
}

impl Outcome for libc::c_int {
    fn failed(self) -> bool {
        self == -1
    }
}

impl Outcome for isize {
    fn failed(self) -> bool {
        self == -1
    }
}

impl Outcome for i64 {
    fn failed(self) -> bool {
        self == -1
    }
}

/// Makes one system call. An interruption is reported as [`io::ErrorKind::Interrupted`].
#[inline]
pub(crate) fn once<R: Outcome>(call: impl FnOnce() -> R) -> io::Result<R> {
    counters::count_syscall();
    outcome(call)
}

/// Makes one futex call, which is counted as such and not among the system calls.
#[cfg_attr(loom, expect(dead_code, reason = "models have a kernel of their own"))]
pub(crate) fn futex<R: Outcome>(call: impl FnOnce() -> R) -> io::Result<R> {
    counters::count_futex();
    outcome(call)
}

#[inline]
fn outcome<R: Outcome>(call: impl FnOnce() -> R) -> io::Result<R> {
    let result = call();
    if result.failed() { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes a system call again for as long as a signal interrupts it.
#[inline]
pub(crate) fn restarting<R: Outcome>(mut call: impl FnMut() -> R) -> io::Result<R> {
    loop {
        match once(&mut call) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
