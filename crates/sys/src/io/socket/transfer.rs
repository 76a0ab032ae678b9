//! Transfers of bytes through a connected socket. They bypass the C library's `recv` and `send`,
//! which change the thread's cancellation state.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::syscall;

/// Tells a transfer whether it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Waits until a read has at least one byte, a write has written all bytes, or the socket's
    /// time-out has passed.
    Block,
    /// Does not wait. Returns `WouldBlock` if no byte can be transferred at once.
    Now,
}

impl WaitMode {
    pub(super) fn flags(self) -> libc::c_int {
        match self {
            Self::Block => 0,
            Self::Now => libc::MSG_DONTWAIT,
        }
    }
}

/// Reads at least one byte into `buffer` and returns the number of bytes. Zero means that the
/// stream has ended or that `buffer` is empty.
///
/// # Errors
/// `WouldBlock` if no byte has arrived ([`WaitMode::Now`]) or the receive time-out has passed;
/// errors of the network.
#[inline]
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: WaitMode) -> io::Result<usize> {
    recv_with(fd, buffer, wait.flags())
}

/// Reads like [`recv`], but leaves the bytes in the socket, so the next read returns them again.
///
/// # Errors
/// As for [`recv`].
pub fn peek(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: WaitMode) -> io::Result<usize> {
    recv_with(fd, buffer, wait.flags() | libc::MSG_PEEK)
}

#[inline]
fn recv_with(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    let (fd, flags) = (fd.as_raw_fd() as usize, flags as usize);
    // SAFETY: pointer and length describe one writable slice, and no address is requested.
    unsafe {
        syscall::transfer(libc::SYS_recvfrom, [fd, buffer.as_mut_ptr().expose_provenance(), buffer.len(), flags, 0, 0])
    }
}

/// Writes bytes from the front of `buffer` and returns their number. With [`WaitMode::Now`], and
/// after a send time-out or a signal, the number may be less than the length of `buffer`.
///
/// # Errors
/// `WouldBlock` if no byte could be written at once, or within the send time-out; errors of the
/// network.
#[inline]
pub fn send(fd: BorrowedFd<'_>, buffer: &[u8], wait: WaitMode) -> io::Result<usize> {
    let (fd, flags) = (fd.as_raw_fd() as usize, (wait.flags() | libc::MSG_NOSIGNAL) as usize);
    // SAFETY: pointer and length describe one readable slice, and no address is given.
    unsafe { syscall::transfer(libc::SYS_sendto, [fd, buffer.as_ptr().expose_provenance(), buffer.len(), flags, 0, 0]) }
}

/// Writes bytes from the front of the concatenated `slices` and returns their number. Uses at most
/// the first 1024 slices.
///
/// # Errors
/// As for [`send`].
#[inline]
pub fn send_vectored(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>], wait: WaitMode) -> io::Result<usize> {
    // For one slice, `send` saves the kernel the copies of a message header and a slice descriptor.
    if let [slice] = slices {
        return send(fd, slice, wait);
    }
    const MAX_SLICES: usize = libc::UIO_MAXIOV as usize;
    let slices = &slices[..slices.len().min(MAX_SLICES)];
    // SAFETY: the header consists of integers and pointers, for which zeroes are valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    // `IoSlice` is guaranteed to have the layout of `iovec`; the kernel only reads through it.
    header.msg_iov = slices.as_ptr().cast_mut().cast();
    header.msg_iovlen = slices.len() as _;
    let (fd, flags) = (fd.as_raw_fd() as usize, (wait.flags() | libc::MSG_NOSIGNAL) as usize);
    // SAFETY: `header`, and the slices that it points to, outlive the call, which only reads them.
    unsafe { syscall::transfer(libc::SYS_sendmsg, [fd, (&raw const header).expose_provenance(), flags, 0, 0, 0]) }
}
