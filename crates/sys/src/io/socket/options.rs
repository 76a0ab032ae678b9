//! Options of sockets, set and read by typed functions (socket(7), tcp(7), ip(7), unix(7)).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use super::Address;
use crate::syscall;

/// Options of a socket, set before it listens or connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// TCP: sends small messages at once. True by default.
    pub nodelay: bool,
    /// TCP: probes idle connections at the system's default times. False by default.
    pub system_keepalive: bool,
    /// TCP: probes idle connections at these times.
    pub keepalive: Option<KeepAlive>,
    /// Size of the kernel's send buffer in bytes. The kernel doubles the number for its overhead.
    pub send_buffer: Option<usize>,
    /// Size of the kernel's receive buffer in bytes. The kernel doubles the number for its
    /// overhead.
    pub receive_buffer: Option<usize>,
    /// Sets `receive_buffer` beyond the system's limit (`net.core.rmem_max`), if the process has
    /// `CAP_NET_ADMIN`. False by default.
    pub force_receive_buffer: bool,
    /// TCP: sends only to hosts that are reached without a gateway. False by default.
    pub dont_route: bool,
    /// TCP: differentiated services code point of sent packets, 0 to 63 (RFC 2474).
    pub dscp: Option<u8>,
    /// Listeners: binds the port even if earlier connections of this port have not expired
    /// (`SO_REUSEADDR`). True by default.
    pub reuse_address: bool,
    /// Listeners: shares the port with other listeners that have this option. False by default.
    pub reuse_port: bool,
    /// Listeners on IPv6: accepts no IPv4 connections. True by default.
    pub v6_only: bool,
    /// Unix: makes the kernel refuse descriptors that the peer passes, if the kernel supports it
    /// (see [`refuse_descriptors`]). True by default.
    pub refuse_descriptors: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            nodelay: true,
            system_keepalive: false,
            keepalive: None,
            send_buffer: None,
            receive_buffer: None,
            force_receive_buffer: false,
            dont_route: false,
            dscp: None,
            reuse_address: true,
            reuse_port: false,
            v6_only: true,
            refuse_descriptors: true,
        }
    }
}

impl SocketOptions {
    /// Sets the buffer sizes and, if `is_tcp`, the TCP options of an accepted connection, except
    /// `dscp`. The connection keeps the listener's `dscp`, and the listener's values of options
    /// that are `None` or off.
    ///
    /// # Errors
    /// `InvalidInput` for keep-alive times that the kernel does not accept.
    pub fn apply_accepted(&self, fd: BorrowedFd<'_>, is_tcp: bool) -> io::Result<()> {
        self.apply_buffer_sizes(fd)?;
        if is_tcp { self.apply_tcp(fd) } else { Ok(()) }
    }

    /// Sets the sizes of the kernel's buffers. A size of `None` stays unchanged.
    ///
    /// # Errors
    /// Only if `fd` is not a socket.
    pub fn apply_buffer_sizes(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(octets) = self.send_buffer {
            set_send_buffer_size(fd, octets)?;
        }
        if let Some(octets) = self.receive_buffer {
            set_receive_buffer_size(fd, octets)?;
            if self.force_receive_buffer {
                // Without the privilege, the size stays at the system's limit.
                let _ = force_receive_buffer_size(fd, octets);
            }
        }
        Ok(())
    }

    fn apply_tcp(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.nodelay {
            set_nodelay(fd, true)?;
        }
        if self.dont_route {
            set_dont_route(fd, true)?;
        }
        if self.system_keepalive {
            set_keepalive_enabled(fd, true)?;
        }
        if let Some(keepalive) = self.keepalive {
            set_keepalive(fd, Some(keepalive))?;
        }
        Ok(())
    }

    pub(super) fn apply(&self, fd: BorrowedFd<'_>, address: &Address, listening: bool) -> io::Result<()> {
        self.apply_buffer_sizes(fd)?;
        let Address::Inet(inet) = address else {
            if self.refuse_descriptors {
                refuse_descriptors(fd);
            }
            return Ok(());
        };
        self.apply_tcp(fd)?;
        if let Some(dscp) = self.dscp {
            set_inet_dscp(fd, inet, dscp)?;
        }
        if !listening {
            return Ok(());
        }
        if self.reuse_address {
            set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        }
        if self.reuse_port {
            set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        if inet.is_ipv6() {
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, self.v6_only.into())?;
        }
        Ok(())
    }
}

/// Times for probing an idle TCP connection. They are rounded down to whole seconds, but are at
/// least 1 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Time between two probes.
    pub interval: Duration,
    /// Number of unanswered probes that end the connection, 1 to 127.
    pub probes: u8,
}

/// Credentials of the peer of a Unix connection, as the kernel recorded them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id of the peer in this process's PID namespace.
    pub pid: u32,
    /// Effective user id of the peer.
    pub uid: u32,
    /// Effective group id of the peer.
    pub gid: u32,
}

/// TCP: sets whether small messages are sent at once instead of waiting for acknowledgements.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn set_nodelay(fd: BorrowedFd<'_>, nodelay: bool) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, nodelay.into())
}

/// TCP: returns true if small messages are sent at once instead of waiting for acknowledgements.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn nodelay(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)? != 0)
}

/// TCP: starts or stops probing the idle connection, at the times set by [`set_keepalive`] or the
/// system's default times.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn set_keepalive_enabled(fd: BorrowedFd<'_>, enabled: bool) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, enabled.into())
}

/// Returns true if the kernel probes the connection while it is idle.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn is_keepalive_enabled(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE)? != 0)
}

/// Sets whether packets go only to hosts that are reached without a gateway.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn set_dont_route(fd: BorrowedFd<'_>, dont_route: bool) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_DONTROUTE, dont_route.into())
}

/// Returns true if packets go only to hosts that are reached without a gateway.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn dont_route(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(int(fd, libc::SOL_SOCKET, libc::SO_DONTROUTE)? != 0)
}

/// TCP: sets the times for probing idle connections; `None` stops probing.
///
/// # Errors
/// `InvalidInput` for times that the kernel does not accept (more than 32767 s) or more than 127
/// probes. Another error if the socket is not a TCP socket.
pub fn set_keepalive(fd: BorrowedFd<'_>, keepalive: Option<KeepAlive>) -> io::Result<()> {
    let Some(keepalive) = keepalive else {
        return set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0);
    };
    let seconds = |time: Duration| libc::c_int::try_from(time.as_secs().max(1)).unwrap_or(libc::c_int::MAX);
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds(keepalive.idle))?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds(keepalive.interval))?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, keepalive.probes.max(1).into())?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)
}

/// TCP: sets the differentiated services code point, 0 to 63, of all packets sent after the call.
/// Has no effect on a Unix socket.
///
/// # Errors
/// `InvalidInput` for a larger code point on a TCP socket.
pub fn set_dscp(fd: BorrowedFd<'_>, dscp: u8) -> io::Result<()> {
    match super::local_address(fd)? {
        Address::Inet(address) => set_inet_dscp(fd, &address, dscp),
        Address::Unix(_) | Address::Abstract(_) | Address::Unnamed => Ok(()),
    }
}

/// Returns the differentiated services code point of the socket's packets; 0 on a Unix socket.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn dscp(fd: BorrowedFd<'_>) -> io::Result<u8> {
    let class = match super::local_address(fd)? {
        Address::Inet(SocketAddr::V4(_)) => int(fd, libc::IPPROTO_IP, libc::IP_TOS)?,
        Address::Inet(SocketAddr::V6(_)) => int(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS)?,
        Address::Unix(_) | Address::Abstract(_) | Address::Unnamed => 0,
    };
    Ok(((class >> 2) & 63) as u8)
}

fn set_inet_dscp(fd: BorrowedFd<'_>, address: &SocketAddr, dscp: u8) -> io::Result<()> {
    if dscp > 63 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a DSCP has 6 bits"));
    }
    // The code point is the upper six bits of the octet; the lower two belong to congestion
    // notification.
    let class = libc::c_int::from(dscp) << 2;
    match address {
        SocketAddr::V4(_) => set_int(fd, libc::IPPROTO_IP, libc::IP_TOS, class),
        SocketAddr::V6(_) => set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class),
    }
}

/// Sets the size of the kernel's send buffer in bytes. The kernel limits the number to
/// `net.core.wmem_max` and then doubles it for its own overhead.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn set_send_buffer_size(fd: BorrowedFd<'_>, octets: usize) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, saturate(octets))
}

/// Returns the size of the kernel's send buffer in bytes, including the kernel's overhead.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn send_buffer_size(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)? as usize)
}

/// Sets the size of the kernel's receive buffer in bytes. The kernel limits the number to
/// `net.core.rmem_max` and then doubles it for its own overhead.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn set_receive_buffer_size(fd: BorrowedFd<'_>, octets: usize) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, saturate(octets))
}

/// Sets the size of the kernel's receive buffer in bytes, beyond the system's limit
/// (`net.core.rmem_max`). The kernel doubles the number for its own overhead.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn force_receive_buffer_size(fd: BorrowedFd<'_>, octets: usize) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, saturate(octets))
}

/// Returns the size of the kernel's receive buffer in bytes, including the kernel's overhead.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn receive_buffer_size(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)? as usize)
}

/// Limits the duration of each blocking read; `None` removes the limit.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn set_receive_timeout(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    set_time(fd, libc::SO_RCVTIMEO, timeout)
}

/// Limits the duration of each blocking write; `None` removes the limit.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn set_send_timeout(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    set_time(fd, libc::SO_SNDTIMEO, timeout)
}

/// Sets the time for which a read or poll of the socket polls the network card before it sleeps
/// (`SO_BUSY_POLL`). Zero disables the polling.
///
/// # Errors
/// `PermissionDenied` if the kernel demands `CAP_NET_ADMIN` for a longer time than the present one.
pub fn set_busy_poll(fd: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let micros = libc::c_int::try_from(time.as_micros()).unwrap_or(libc::c_int::MAX);
    set_int(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros)
}

/// Returns the time set by [`set_busy_poll`], or the system's default.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn busy_poll(fd: BorrowedFd<'_>) -> io::Result<Duration> {
    Ok(Duration::from_micros(int(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL)?.unsigned_abs().into()))
}

/// Returns the core that last processed a packet for the socket, or that [`set_incoming_core`] has
/// set since (`SO_INCOMING_CPU`); `None` if there is no such core.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn incoming_core(fd: BorrowedFd<'_>) -> io::Result<Option<usize>> {
    Ok(usize::try_from(int(fd, libc::SOL_SOCKET, libc::SO_INCOMING_CPU)?).ok())
}

/// Sets the core whose packets a listener of a shared port prefers (`SO_INCOMING_CPU`,
/// `SO_REUSEPORT`).
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn set_incoming_core(fd: BorrowedFd<'_>, core: usize) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_INCOMING_CPU, saturate(core))
}

/// Sets the priority of sent packets in the queues of the interface (`SO_PRIORITY`): 0 to 6, or
/// more with `CAP_NET_ADMIN`. If a queue has classes (traffic control), the number of a class
/// selects this class.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN` for a priority above 6.
pub fn set_priority(fd: BorrowedFd<'_>, priority: u32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority.cast_signed())
}

/// Returns the priority of sent packets in the queues of the interface.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn priority(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(int(fd, libc::SOL_SOCKET, libc::SO_PRIORITY)?.cast_unsigned())
}

/// Limits the rate at which the kernel sends, in bytes per second (`SO_MAX_PACING_RATE`).
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_second: u32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_second.cast_signed())
}

/// Returns the limit set by [`set_max_pacing_rate`]; `u32::MAX` means no limit.
///
/// # Errors
/// Only if `fd` is not a socket.
pub fn max_pacing_rate(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(int(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)?.cast_unsigned())
}

/// TCP: sets a number of bytes (`TCP_NOTSENT_LOWAT`). While at least as many bytes are unsent,
/// polling reports no room for writing.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn set_max_unsent_bytes(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes.cast_signed())
}

/// Returns the number of bytes set by [`set_max_unsent_bytes`]; 0 if none was set.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn max_unsent_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)?.cast_unsigned())
}

/// TCP: makes the socket report again to epoll instances and waiting threads that bytes, or the end
/// of the stream, can be read. Has no effect if nothing can be read.
///
/// Edge-triggered epoll instances get a new edge. The function sets `SO_RCVLOWAT` to its default of
/// one byte, after which the kernel looks for unread bytes (Linux 4.18 and later).
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn report_unread_bytes_again(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)
}

/// Returns the pending error of the socket and clears it.
///
/// # Errors
/// Only if `fd` is not a socket. The pending error is in the `Ok` value.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let error = int(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((error != 0).then(|| io::Error::from_raw_os_error(error)))
}

/// Returns the process, user and group of the peer of a Unix connection.
///
/// # Errors
/// `Unsupported` if the socket is not a Unix socket, or if the peer's process is outside of this
/// process's PID namespace.
pub fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
    let none = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let found = option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, none)?;
    match u32::try_from(found.pid) {
        Ok(pid) if pid != 0 => Ok(Credentials { pid, uid: found.uid, gid: found.gid }),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "only Unix sockets have credentials of their peer")),
    }
}

/// Returns the user of the peer of a Unix connection, even if the peer's process is outside of this
/// process's PID namespace.
///
/// # Errors
/// `Unsupported` if the socket is not a Unix socket.
pub fn peer_user_id(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let none = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    match option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, none)?.uid {
        u32::MAX => Err(io::Error::new(io::ErrorKind::Unsupported, "only Unix sockets have credentials of their peer")),
        user => Ok(user),
    }
}

/// Returns the number of bytes that have arrived and that no call has read.
///
/// # Errors
/// If the socket is a listener.
pub fn unread_bytes(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, which `count` is.
    syscall::once(|| unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut count) })?;
    Ok(count as usize)
}

/// Number of the option `SO_PASSRIGHTS`; `None` on architectures whose number has not been checked.
const SO_PASSRIGHTS: Option<libc::c_int> =
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")) { Some(83) } else { None };

/// Makes the kernel refuse all descriptors that the peer of a Unix socket passes after the call.
///
/// The refusal of a listener applies to all connections that peers make to it after the call.
/// Returns true if the kernel supports the option, as Linux 6.16 and later do.
pub fn refuse_descriptors(fd: BorrowedFd<'_>) -> bool {
    let Some(option) = SO_PASSRIGHTS else { return false };
    #[cfg(any(test, feature = "testing"))]
    if OLD_KERNEL.load(std::sync::atomic::Ordering::Relaxed) {
        return false;
    }
    set_int(fd, libc::SOL_SOCKET, option, 0).is_ok()
}

/// Returns true if the kernel refuses descriptors that the peer of a Unix socket passes.
pub fn is_refusing_descriptors(fd: BorrowedFd<'_>) -> bool {
    SO_PASSRIGHTS.is_some_and(|option| int(fd, libc::SOL_SOCKET, option).is_ok_and(|value| value == 0))
}

#[cfg(any(test, feature = "testing"))]
static OLD_KERNEL: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Makes [`refuse_descriptors`] return false in this process, as on a kernel without the option,
/// until a call with `is_simulated` false.
#[cfg(any(test, feature = "testing"))]
pub fn simulate_unrefusable_descriptors(is_simulated: bool) {
    OLD_KERNEL.store(is_simulated, std::sync::atomic::Ordering::Relaxed);
}

/// Unix: delivers urgent bytes at their place in the stream, with the descriptors that came with
/// them. Without this option, a plain read discards both.
///
/// # Errors
/// Only if `fd` is not a socket.
pub(super) fn set_urgent_inline(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)
}

/// Sets the time, in whole seconds, for which a close waits until unsent bytes are sent. With less
/// than a second, a close discards unsent bytes and resets a TCP connection. With `None`, a close
/// does not wait, and the kernel sends the bytes afterwards.
///
/// # Errors
/// If the descriptor is not a socket.
pub fn set_linger(fd: BorrowedFd<'_>, time: Option<Duration>) -> io::Result<()> {
    let seconds = time.map_or(0, |time| libc::c_int::try_from(time.as_secs()).unwrap_or(libc::c_int::MAX));
    let value = libc::linger { l_onoff: time.is_some().into(), l_linger: seconds };
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &value)
}

fn saturate(octets: usize) -> libc::c_int {
    libc::c_int::try_from(octets).unwrap_or(libc::c_int::MAX)
}

fn set_time(fd: BorrowedFd<'_>, name: libc::c_int, time: Option<Duration>) -> io::Result<()> {
    let time = time.map_or(Duration::ZERO, |time| time.max(Duration::from_micros(1)));
    let value = libc::timeval { tv_sec: time.as_secs().min(i32::MAX as u64) as _, tv_usec: time.subsec_micros() as _ };
    set_option(fd, libc::SOL_SOCKET, name, &value)
}

fn set_int(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_option(fd, level, name, &value)
}

fn int(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    option(fd, level, name, 0)
}

/// A value of a socket option. It consists of integers, so every bit pattern is valid.
trait SocketOptionValue: Copy {}
impl SocketOptionValue for libc::c_int {}
impl SocketOptionValue for libc::timeval {}
impl SocketOptionValue for libc::ucred {}
impl SocketOptionValue for libc::linger {}

fn set_option<T: SocketOptionValue>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer leads to a live value of the given length, which the kernel only reads.
    syscall::once(|| unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), length) })?;
    Ok(())
}

fn option<T: SocketOptionValue>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for the given length, and the kernel writes no more bytes.
    // `SocketOptionValue` guarantees that any bytes are valid.
    syscall::once(|| unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}
