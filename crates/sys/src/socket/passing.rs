//! Passing a descriptor to the process at the other end of a Unix connection.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::Wait;
use crate::call;

/// Room for the control message that carries one descriptor, aligned as its header must be.
type Control = [u64; 8];

/// Writes `octets`, with `passed` at the first of them; how many octets went.
///
/// # Errors
/// As [`send`](super::send).
pub fn send_with_descriptor(
    fd: BorrowedFd<'_>,
    octets: &[u8],
    passed: BorrowedFd<'_>,
    wait: Wait,
) -> io::Result<usize> {
    let mut control: Control = [0; 8];
    let mut slice = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    // SAFETY: the header consists of integers and pointers, for which zeroes are values.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    const OCTETS: libc::c_uint = size_of::<RawFd>() as libc::c_uint;
    // SAFETY: arithmetic only.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(OCTETS) } as _;
    // SAFETY: the control buffer is aligned, zeroed and larger than the space for one descriptor, so the first header and the place of
    // its data are inside it.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(OCTETS) as _;
        libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(passed.as_raw_fd());
    }
    let flags = wait.flags() | libc::MSG_NOSIGNAL;
    // SAFETY: `header`, the octets and the control message it points to outlive the call, which only reads them.
    let count = call::restarting(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) })?;
    Ok(count as usize)
}

/// Reads octets into `buffer`, and the descriptor that came with them, if one did; of several, the kernel closes all but the first.
///
/// # Errors
/// As [`recv`](super::recv).
pub fn recv_with_descriptor(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: Wait) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control: Control = [0; 8];
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the header consists of integers and pointers, for which zeroes are values.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    // Without padding: a second descriptor must not fit.
    // SAFETY: arithmetic only.
    header.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as libc::c_uint) } as _;
    let flags = wait.flags() | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points to writable octets and a control buffer at least as large as it says; all outlive the call.
    let count = call::restarting(|| unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) })?;
    // SAFETY: the kernel filled the control buffer and said how far; the macro gives null or a header inside that.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    // SAFETY: null, or a header that the kernel wrote.
    let passed = unsafe { first.as_ref() }.filter(|found| {
        // SAFETY: arithmetic only.
        let least = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as libc::c_uint) } as usize;
        found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS && found.cmsg_len >= least
    });
    let passed = passed.map(|found| {
        // SAFETY: the message is long enough for one descriptor, which the kernel has just made ours.
        unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(found).cast::<RawFd>().read_unaligned()) }
    });
    Ok((count as usize, passed))
}
