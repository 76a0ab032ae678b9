//! Stream sockets: TCP over IPv4 and IPv6, and Unix domain.
//!
//! All descriptors that this module opens are close-on-exec. Connections are in blocking mode; a
//! [`WaitMode`] decides whether a transfer may wait. No call raises `SIGPIPE`. A transfer that a
//! signal interrupts is repeated, so `Interrupted` is never returned.

mod address;
mod descriptor_passing;
mod filtered;
mod happy_eyeballs;
mod options;
#[cfg(any(test, feature = "testing"))]
mod raw_packets;
mod transfer;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use address::{Address, local_address, peer_address};
#[cfg(any(test, feature = "testing"))]
pub use descriptor_passing::pass_descriptors;
#[cfg_attr(loom, expect(unused_imports, reason = "models have no closing thread"))]
pub(crate) use descriptor_passing::{disable_linger, take_descriptors};
pub use descriptor_passing::{recv_with_descriptor, recv_without_descriptors, send_with_descriptor};
pub use filtered::{DescriptorFilterListener, DescriptorFilterSocket};
pub use happy_eyeballs::connect_any;
#[cfg(any(test, feature = "testing"))]
pub use options::simulate_unrefusable_descriptors;
pub use options::{
    Credentials, KeepAlive, SocketOptions, busy_poll, dont_route, dscp, force_receive_buffer_size, incoming_core,
    is_keepalive_enabled, is_refusing_descriptors, max_pacing_rate, max_unsent_bytes, nodelay, peer_credentials,
    peer_user_id, priority, receive_buffer_size, refuse_descriptors, report_unread_bytes_again, send_buffer_size,
    set_busy_poll, set_dont_route, set_dscp, set_incoming_core, set_keepalive, set_keepalive_enabled, set_linger,
    set_max_pacing_rate, set_max_unsent_bytes, set_nodelay, set_priority, set_receive_buffer_size, set_receive_timeout,
    set_send_buffer_size, set_send_timeout, take_error, unread_bytes,
};
#[cfg(any(test, feature = "testing"))]
pub use raw_packets::RawPacketSender;
pub use transfer::{WaitMode, peek, recv, send, send_vectored};

use crate::clock::Monotonic;
use crate::{poll, syscall};
use address::RawAddress;

/// Default maximum number of connections in a listener's queue.
pub const DEFAULT_BACKLOG: u32 = 1024;

/// Opens a listener on `address`, with a queue of at most `backlog` connections. For port 0 the
/// kernel chooses a free port, which [`local_address`] returns. The path of a Unix socket must not
/// exist.
///
/// # Errors
/// `InvalidInput` for an unnamed, empty or too long Unix address; `AddrInUse`, `AddrNotAvailable`,
/// `PermissionDenied`; the limits of the process.
pub fn listen(address: &Address, options: &SocketOptions, backlog: u32) -> io::Result<OwnedFd> {
    let raw = RawAddress::from_address(address)?;
    let fd = create(raw.family(), libc::SOCK_NONBLOCK)?;
    options.apply(fd.as_fd(), address, true)?;
    let (pointer, length) = raw.as_ptr();
    // SAFETY: `pointer` and `length` describe the live address in `raw`.
    syscall::once(|| unsafe { libc::bind(fd.as_raw_fd(), pointer, length) })?;
    let backlog = libc::c_int::try_from(backlog).unwrap_or(libc::c_int::MAX);
    // SAFETY: the call takes no pointers.
    syscall::once(|| unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(fd)
}

/// Accepts one connection and returns its socket with the peer's address. If no connection is in
/// the queue, [`WaitMode::Block`] waits for one and [`WaitMode::Now`] returns `WouldBlock`.
///
/// # Errors
/// `WouldBlock`; `ConnectionAborted` if the peer closed the connection before it was accepted; the
/// limits of the process (`EMFILE`, `ENFILE`, `ENOMEM`).
pub fn accept(listener: BorrowedFd<'_>, wait: WaitMode) -> io::Result<(OwnedFd, Address)> {
    loop {
        let mut raw = RawAddress::unspecified();
        let (pointer, length) = raw.as_mut_ptr();
        // SAFETY: `pointer` has room for any address, as `length` says, and both outlive the call.
        let result = syscall::retry_interrupted(|| unsafe {
            libc::accept4(listener.as_raw_fd(), pointer, length, libc::SOCK_CLOEXEC)
        });
        match result {
            Ok(fd) => {
                // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
                return Ok((unsafe { OwnedFd::from_raw_fd(fd) }, raw.to_address()));
            }
            Err(error) if wait == WaitMode::Block && error.kind() == io::ErrorKind::WouldBlock => {
                poll::wait_readable(listener, None)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Connects to `address`, and gives up at `deadline`. Without a deadline (`None`) the kernel ends
/// an attempt over TCP after minutes; an attempt at a Unix socket waits without limit for room in
/// the listener's queue.
///
/// # Errors
/// `TimedOut` after the deadline; `InvalidInput` for an unnamed, empty or too long Unix address;
/// errors of the network; the limits of the process.
pub fn connect(address: &Address, options: &SocketOptions, deadline: Option<Monotonic>) -> io::Result<OwnedFd> {
    let raw = RawAddress::from_address(address)?;
    let fd = create(raw.family(), 0)?;
    options.apply(fd.as_fd(), address, false)?;
    match address {
        Address::Inet(_) => connect_inet(fd.as_fd(), &raw, deadline)?,
        Address::Unix(_) | Address::Abstract(_) | Address::Unnamed => {
            connect_unix(fd.as_fd(), &raw, deadline)?;
        }
    }
    Ok(fd)
}

fn connect_inet(fd: BorrowedFd<'_>, raw: &RawAddress, deadline: Option<Monotonic>) -> io::Result<()> {
    set_nonblocking(fd, true)?;
    let (pointer, length) = raw.as_ptr();
    // SAFETY: `pointer` and `length` describe the live address in `raw`.
    match syscall::once(|| unsafe { libc::connect(fd.as_raw_fd(), pointer, length) }) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            if !poll::wait_writable(fd, deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(error) = take_error(fd)? {
                return Err(error);
            }
        }
        Err(error) => return Err(error),
    }
    set_nonblocking(fd, false)
}

/// Connects to a Unix socket. A send time-out bounds the wait, because no poll waits for room in a
/// listener's queue.
fn connect_unix(fd: BorrowedFd<'_>, raw: &RawAddress, deadline: Option<Monotonic>) -> io::Result<()> {
    let (pointer, length) = raw.as_ptr();
    loop {
        if let Some(deadline) = deadline {
            let left = deadline.remaining();
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            set_send_timeout(fd, Some(left))?;
        }
        // SAFETY: `pointer` and `length` describe the live address in `raw`.
        match syscall::once(|| unsafe { libc::connect(fd.as_raw_fd(), pointer, length) }) {
            Ok(_) => break,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                _ => return Err(error),
            },
        }
    }
    if deadline.is_some() { set_send_timeout(fd, None) } else { Ok(()) }
}

/// Connects to a Unix socket if the listener's queue has room.
///
/// # Errors
/// `WouldBlock` if the queue is full; `InvalidInput` for an IP address, and for an unnamed, empty
/// or too long Unix address; errors of the kernel; the limits of the process.
pub fn connect_unix_without_waiting(address: &Address, options: &SocketOptions) -> io::Result<OwnedFd> {
    if matches!(address, Address::Inet(_)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let raw = RawAddress::from_address(address)?;
    let fd = create(raw.family(), libc::SOCK_NONBLOCK)?;
    options.apply(fd.as_fd(), address, false)?;
    let (pointer, length) = raw.as_ptr();
    // SAFETY: `pointer` and `length` describe the live address in `raw`.
    syscall::once(|| unsafe { libc::connect(fd.as_raw_fd(), pointer, length) })?;
    set_nonblocking(fd.as_fd(), false)?;
    Ok(fd)
}

/// Returns two connected Unix sockets.
///
/// # Errors
/// Any error that the kernel returns, for example at the limit on open descriptors.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` has room for the two descriptors that the call writes.
    syscall::once(|| unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    // SAFETY: the kernel has just returned both, and nothing else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// The directions of a connection that a shutdown ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownDirection {
    /// The sending direction: no more bytes can be written. The peer reads all earlier bytes and
    /// then the end of the stream.
    Write,
    /// Both directions. Threads that are blocked in a read or write return at once.
    Both,
}

/// Ends the sending direction or both directions of a connection.
///
/// # Errors
/// `NotConnected` if the connection has already ended.
pub fn shutdown(fd: BorrowedFd<'_>, direction: ShutdownDirection) -> io::Result<()> {
    let direction = match direction {
        ShutdownDirection::Write => libc::SHUT_WR,
        ShutdownDirection::Both => libc::SHUT_RDWR,
    };
    // SAFETY: the call takes no pointers.
    syscall::once(|| unsafe { libc::shutdown(fd.as_raw_fd(), direction) })?;
    Ok(())
}

/// Sets whether calls on the descriptor return `WouldBlock` instead of waiting.
///
/// # Errors
/// Only for a descriptor that was opened with `O_PATH`.
pub fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    let mut flag = libc::c_int::from(nonblocking);
    // SAFETY: FIONBIO reads one int, which `flag` is.
    syscall::once(|| unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &raw mut flag) })?;
    Ok(())
}

fn create(family: libc::c_int, flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
    // SAFETY: the call takes no pointers.
    let fd = syscall::once(|| unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(all(test, not(loom)))]
mod tests;
