//! Descriptors that processes pass to each other over Unix connections: sending, receiving and
//! refusing. An unwanted descriptor goes to [`deferred_close`], because its last close may sleep.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{ShutdownDirection, WaitMode, options};
use crate::{deferred_close, syscall};

/// Maximum number of descriptors that the kernel passes at once (SCM_MAX_FD).
const MAX_PASSED: usize = 253;

/// Space for the control message with the maximum number of descriptors, aligned for its headers.
/// With less space the kernel would close descriptors in the reading thread.
type ControlBuffer = [u64; 2 + MAX_PASSED.div_ceil(2) + 2];

/// Writes `octets` and passes the descriptor `passed` with their first byte. Returns the number of
/// bytes written.
///
/// # Errors
/// As for [`send`](super::send). `PermissionDenied` if the peer refuses descriptors.
pub fn send_with_descriptor(
    fd: BorrowedFd<'_>,
    octets: &[u8],
    passed: BorrowedFd<'_>,
    wait: WaitMode,
) -> io::Result<usize> {
    send_with_control(fd, octets, &[passed], wait.flags())
}

/// Writes `octets` and passes several descriptors with the first byte. Returns the number of bytes
/// written. Does not wait, as with [`WaitMode::Now`]. With `is_urgent` the bytes are out-of-band
/// data (`MSG_OOB`).
///
/// # Errors
/// As for [`send_with_descriptor`].
#[cfg(any(test, feature = "testing"))]
pub fn pass_descriptors(
    fd: BorrowedFd<'_>,
    octets: &[u8],
    passed: &[BorrowedFd<'_>],
    is_urgent: bool,
) -> io::Result<usize> {
    send_with_control(fd, octets, passed, libc::MSG_DONTWAIT | if is_urgent { libc::MSG_OOB } else { 0 })
}

fn send_with_control(
    fd: BorrowedFd<'_>,
    octets: &[u8],
    passed: &[BorrowedFd<'_>],
    flags: libc::c_int,
) -> io::Result<usize> {
    if passed.len() > MAX_PASSED {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the kernel passes at most 253 descriptors at once"));
    }
    let mut control: ControlBuffer = [0; _];
    let mut slice = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    // SAFETY: the header consists of integers and pointers, for which zeroes are valid.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    let length = (passed.len() * size_of::<RawFd>()) as libc::c_uint;
    // SAFETY: the macro only computes a size.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as _;
    // SAFETY: the control buffer is aligned, zeroed and larger than the space for `MAX_PASSED`
    // descriptors. So the first header and its data are inside the buffer.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(length) as _;
        for (index, passed) in passed.iter().enumerate() {
            libc::CMSG_DATA(first).cast::<RawFd>().add(index).write_unaligned(passed.as_raw_fd());
        }
    }
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: `header`, and the bytes and control message to which it points, outlive the call,
    // which only reads them.
    let count = syscall::retry_interrupted(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) })?;
    Ok(count as usize)
}

/// Reads bytes into `buffer`, and the descriptor that was passed with them. Returns the number of
/// bytes and the descriptor.
///
/// # Errors
/// As for [`recv`](super::recv). `InvalidData` if the peer passed several descriptors, or if this
/// process has no room for a descriptor; the thread of [`deferred_close`] then closes the received
/// descriptors.
pub fn recv_with_descriptor(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: WaitMode,
) -> io::Result<(usize, Option<OwnedFd>)> {
    let (mut first, mut has_more) = (None, false);
    let (count, is_whole) = recv_with_control(fd, buffer, wait, |passed| match first {
        None => first = Some(passed),
        Some(_) => {
            has_more = true;
            deferred_close::close(passed);
        }
    })?;
    if has_more || !is_whole {
        first.into_iter().for_each(deferred_close::close);
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer passed several descriptors at once"));
    }
    Ok((count, first))
}

/// Reads like [`recv`](super::recv) on a Unix socket whose peer could pass descriptors but must
/// not. If a descriptor arrives, the thread of [`deferred_close`] closes it, and the connection is
/// shut down.
///
/// # Errors
/// As for [`recv`](super::recv). `ConnectionAborted` if the peer passed a descriptor.
#[cold]
pub fn recv_without_descriptors(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: WaitMode) -> io::Result<usize> {
    let mut is_clean = true;
    let (count, is_whole) = recv_with_control(fd, buffer, wait, |passed| {
        is_clean = false;
        deferred_close::close(passed);
    })?;
    if is_clean && is_whole {
        return Ok(count);
    }
    // The call fails only if the connection has already ended.
    let _ = super::shutdown(fd, ShutdownDirection::Both);
    Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the peer passed a descriptor, which ends the connection"))
}

/// Discards all bytes in a Unix socket's receive queue, and calls `take` with each descriptor in
/// the queue.
#[cfg_attr(loom, allow(dead_code, reason = "the models have no closing thread"))]
pub(crate) fn take_descriptors(fd: BorrowedFd<'_>, mut take: impl FnMut(OwnedFd)) {
    let mut octets = [0; 4096];
    while recv_with_control(fd, &mut octets, WaitMode::Now, &mut take).is_ok_and(|(count, _)| count > 0) {}
}

#[cfg_attr(loom, allow(dead_code, reason = "the models have no closing thread"))]
pub(crate) fn disable_linger(fd: BorrowedFd<'_>) {
    let _ = options::set_linger(fd, None);
}

/// Reads bytes and calls `take` with each descriptor that was passed with them. Returns the number
/// of bytes. The flag is false if the kernel closed descriptors because the process had no room for
/// them.
fn recv_with_control(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: WaitMode,
    mut take: impl FnMut(OwnedFd),
) -> io::Result<(usize, bool)> {
    let mut control: ControlBuffer = [0; _];
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the header consists of integers and pointers, for which zeroes are valid.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<ControlBuffer>() as _;
    let flags = (wait.flags() | libc::MSG_CMSG_CLOEXEC) as usize;
    let arguments = [fd.as_raw_fd() as usize, (&raw mut header).expose_provenance(), flags, 0, 0, 0];
    // SAFETY: the header points to writable bytes and a control buffer of the size that it states;
    // all outlive the call.
    let count = unsafe { syscall::transfer(libc::SYS_recvmsg, arguments) }?;
    // SAFETY: the kernel filled the control buffer and set its length; the macro gives null or a
    // header inside it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    // SAFETY: the pointer is null, or it points to a header that the kernel wrote.
    while let Some(found) = unsafe { next.as_ref() } {
        if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS {
            #[allow(clippy::unnecessary_cast, reason = "32 bits with musl")]
            let length = found.cmsg_len as usize;
            // SAFETY: the macro only computes a size.
            let octets = length.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
            for index in 0..octets / size_of::<RawFd>() {
                // SAFETY: the message is long enough for this number of descriptors, which the
                // kernel has just given to this process.
                take(unsafe {
                    OwnedFd::from_raw_fd(libc::CMSG_DATA(found).cast::<RawFd>().add(index).read_unaligned())
                });
            }
        }
        // SAFETY: `next` is a header inside the control buffer, whose filled length the kernel has
        // set.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
    Ok((count, header.msg_flags & libc::MSG_CTRUNC == 0))
}
