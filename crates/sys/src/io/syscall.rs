//! System calls, which this module counts for the calling thread.

use std::io;

use crate::counters;

/// The result of a system call. -1 means that `errno` is the error.
pub(crate) trait SyscallResult: Copy {
    fn is_error(self) -> bool;
}

impl SyscallResult for libc::c_int {
    fn is_error(self) -> bool {
        self == -1
    }
}

impl SyscallResult for isize {
    fn is_error(self) -> bool {
        self == -1
    }
}

impl SyscallResult for i64 {
    fn is_error(self) -> bool {
        self == -1
    }
}

/// Makes one system call. If a signal interrupts the call, returns [`io::ErrorKind::Interrupted`].
#[inline]
pub(crate) fn once<R: SyscallResult>(call: impl FnOnce() -> R) -> io::Result<R> {
    counters::count_syscall();
    check(call)
}

/// Makes one futex call, which counts as a futex call and not as a system call.
#[cfg_attr(loom, expect(dead_code, reason = "models have a kernel of their own"))]
pub(crate) fn futex<R: SyscallResult>(call: impl FnOnce() -> R) -> io::Result<R> {
    counters::count_futex();
    check(call)
}

#[inline]
fn check<R: SyscallResult>(call: impl FnOnce() -> R) -> io::Result<R> {
    let result = call();
    if result.is_error() { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes the system call of a transfer, and repeats it while signals interrupt it. Bypasses the C
/// library's transfer functions, which change the thread's cancellation state.
///
/// # Safety
/// The memory that the kernel reads and writes through the arguments is valid for these accesses.
#[inline]
pub(crate) unsafe fn transfer(number: libc::c_long, arguments: [usize; 6]) -> io::Result<usize> {
    loop {
        counters::count_syscall();
        // SAFETY: the caller guarantees that the memory of the arguments is valid.
        let result = unsafe { enter_kernel(number, arguments) };
        if let Ok(count) = usize::try_from(result) {
            return Ok(count);
        }
        let error = os_error(result);
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cold]
fn os_error(result: isize) -> io::Error {
    io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO))
}

/// Enters the kernel. Returns a count, or the negated error number.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
#[inline]
unsafe fn enter_kernel(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: the registers follow the kernel's convention, in which a call destroys `rcx` and `r11`
    // and no others. The caller guarantees that the memory of the arguments is valid.
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

#[cfg(any(all(test, not(loom)), not(all(target_arch = "x86_64", target_pointer_width = "64"))))]
unsafe fn enter_by_libc(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the caller guarantees that the memory of the arguments is valid.
    match unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) } {
        -1 => -(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize),
        count => count as isize,
    }
}
#[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64")))]
use enter_by_libc as enter_kernel;

#[inline]
pub(crate) fn retry_interrupted<R: SyscallResult>(mut call: impl FnMut() -> R) -> io::Result<R> {
    loop {
        match once(&mut call) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn direct_and_libc_system_calls_agree() {
        for enter in [enter_kernel as unsafe fn(_, _) -> _, enter_by_libc] {
            let (near, far) = crate::socket::pair().unwrap();
            let (near, far) = (near.as_raw_fd() as usize, far.as_raw_fd() as usize);
            let (octets, mut room) = (*b"some octets", [0; 64]);
            let now = libc::MSG_DONTWAIT as usize;
            // SAFETY: the arguments describe live bytes, which the call reads.
            let send = |fd| unsafe {
                enter(libc::SYS_sendto, [fd, octets.as_ptr().expose_provenance(), octets.len(), now, 0, 0])
            };
            let into = room.as_mut_ptr().expose_provenance();
            // SAFETY: `into` points to 64 writable bytes, which are read only afterwards.
            let recv = || unsafe { enter(libc::SYS_recvfrom, [far, into, 64, now, 0, 0]) };
            assert_eq!((send(near), recv()), (11, 11));
            assert_eq!((recv(), send(usize::MAX)), (-(libc::EAGAIN as isize), -(libc::EBADF as isize)));
            assert_eq!(room[..11], octets);
        }
        assert_eq!(os_error(-(libc::EBADF as isize)).raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn transfer_continues_after_a_signal() {
        use std::sync::atomic::{AtomicU32, Ordering};

        static CAUGHT: AtomicU32 = AtomicU32::new(0);
        extern "C" fn caught(_: libc::c_int) {
            CAUGHT.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: zeroes are a valid action, and the handler only adds to an atomic, which is
        // async-signal-safe. Without SA_RESTART, the signal interrupts calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = caught as extern "C" fn(_) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
        }
        let (near, far) = crate::socket::pair().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let before = counters::snapshot();
            // SAFETY: the call has no arguments and cannot fail.
            tell.send(unsafe { libc::gettid() }).unwrap();
            let mut octets = [0; 8];
            let count =
                crate::socket::recv(std::os::fd::AsFd::as_fd(&far), &mut octets, crate::socket::WaitMode::Block);
            (count.unwrap(), (counters::snapshot() - before).syscalls)
        });
        let id = std::os::unix::thread::JoinHandleExt::as_pthread_t(&thread);
        let state = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        let sleeps = || std::fs::read_to_string(&state).unwrap().rsplit(')').next().unwrap().starts_with(" S");
        for number in 1..=3 {
            while !sleeps() {
                std::thread::yield_now();
            }
            // SAFETY: the thread is not joined yet.
            assert_eq!(unsafe { libc::pthread_kill(id, libc::SIGUSR2) }, 0);
            while CAUGHT.load(Ordering::SeqCst) < number {
                assert!(!thread.is_finished());
                std::thread::yield_now();
            }
        }
        crate::socket::send(std::os::fd::AsFd::as_fd(&near), b"abc", crate::socket::WaitMode::Block).unwrap();
        let (count, entries) = thread.join().unwrap();
        assert_eq!(count, 3);
        assert!(entries > 1, "expected that a signal interrupted the read");
    }
}
