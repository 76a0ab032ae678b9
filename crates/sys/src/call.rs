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

/// Makes a system call of a transfer, with its arguments in the kernel's order, again for as long as a signal interrupts it.
///
/// Without the C library: its `syscall` moves all arguments to other registers and the error through `errno`, and the functions of its own
/// change the thread's cancellation state before and after.
///
/// # Safety
/// What the kernel reads and writes through the arguments is there for it.
#[inline]
pub(crate) unsafe fn transfer(number: libc::c_long, arguments: [usize; 6]) -> io::Result<usize> {
    loop {
        counters::count_syscall();
        // SAFETY: the caller's promise.
        let result = unsafe { enter(number, arguments) };
        if let Ok(count) = usize::try_from(result) {
            return Ok(count);
        }
        let error = refused(result);
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cold]
fn refused(result: isize) -> io::Error {
    io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO))
}

/// The kernel's own answer: what it counted, or the error's number, negative.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn enter(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: the registers are those of the kernel's convention, which destroys `rcx` and `r11` and nothing else; the rest is the caller's promise.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn enter(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the caller's promise.
    match unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) } {
        -1 => -(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize),
        count => count as isize,
    }
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
