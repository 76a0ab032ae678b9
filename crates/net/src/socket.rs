//! The transports over sockets of the kernel: TCP and Unix sockets.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::socket::{self, Address, DescriptorFilterListener, DescriptorFilterSocket, SocketOptions};
use corelane_sys::{poll, thread};

use crate::resolver::Resolver;
use crate::socket_file::{self, SocketFile};
use crate::spin::{AdaptiveSpin, NextWait, SpinWait};
use crate::transport::{Listener, Transport};
use crate::{ConnectionProperties, Endpoint, Peer, ShutdownDirection, SpinPolicy, Stream, WaitLimit};

pub(crate) const BACKLOG: u32 = 1024;

/// Maximum delay between the connection attempts to two addresses of a name (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// TCP over IPv4 and IPv6. By default small messages are sent at once (no Nagle delay).
///
/// Threads of the transport look up host names, at most 16 at a time. Addresses are cached for ten
/// seconds, failures for two. If a name has several addresses, the transport begins the next
/// attempt when one fails or after 250 ms, and connects to the first address that answers.
#[derive(Clone)]
pub struct TcpTransport {
    resolver: Resolver,
    forces_receive_buffers: bool,
}

// The text omits the resolver, because its text would add 600 bytes of code to each server.
impl fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tcp")
    }
}

impl TcpTransport {
    /// Creates a transport that uses the system's resolver.
    #[must_use]
    pub fn new() -> Self {
        TcpTransport { resolver: Resolver::system(), forces_receive_buffers: false }
    }

    /// Makes new client connections set a requested size of their receive buffer even beyond the
    /// system's limit (`net.core.rmem_max`), if the process has `CAP_NET_ADMIN`. The cache of
    /// addresses is kept.
    ///
    /// The buffer has this size before the connection begins, because the kernel derives the scale
    /// of the TCP window from the size.
    #[must_use]
    pub fn forcing_receive_buffers(mut self) -> Self {
        self.forces_receive_buffers = true;
        self
    }

    /// Returns the addresses of `endpoint`. An empty host means all addresses of this machine.
    fn resolve(&self, endpoint: &Endpoint, deadline: Option<Monotonic>) -> io::Result<Vec<SocketAddr>> {
        match endpoint {
            Endpoint::Tcp { host, port } if host.is_empty() => Ok(vec![
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port)),
                SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, *port)),
            ]),
            Endpoint::Tcp { host, port } => self.resolver.resolve(host, *port, deadline),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint} is not a TCP endpoint"))),
        }
    }
}

impl Default for TcpTransport {
    fn default() -> Self {
        Self::new()
    }
}

/// Unix sockets in the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnixTransport;

impl Transport for TcpTransport {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::Tcp { .. })
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let mut options = socket_options(properties);
        options.force_receive_buffer = self.forces_receive_buffers;
        let (fd, address) = match *self.resolve(endpoint, deadline)? {
            [] => return Err(io::Error::new(io::ErrorKind::NotFound, format!("{endpoint} has no address"))),
            [address] => (socket::connect(&Address::Inet(address), &options, deadline)?, address),
            ref several => socket::connect_any(several, &options, ATTEMPT_DELAY, deadline)?,
        };
        Ok(Box::new(SocketStream::new(DescriptorFilterSocket::without_descriptor_passing(fd), Peer::Ip(address))))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("{endpoint} has no address"));
        for address in self.resolve(endpoint, None)? {
            // The unspecified IPv6 address accepts IPv4 and IPv6 connections, as users of
            // dual-stack hosts expect.
            let v6_only = address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            // Accepted connections must not inherit `nodelay`: each gets the properties of the
            // listener.
            let options = SocketOptions { v6_only, nodelay: false, ..SocketOptions::default() };
            match socket::listen(&Address::Inet(address), &options, BACKLOG) {
                Ok(fd) => {
                    let port = match socket::local_address(fd.as_fd())?.as_inet() {
                        Some(local) => local.port(),
                        None => address.port(),
                    };
                    let host = match endpoint {
                        Endpoint::Tcp { host, .. } if !host.is_empty() => host.clone(),
                        _ => address.ip().to_string(),
                    };
                    let fd = DescriptorFilterListener::without_descriptor_passing(fd);
                    return Ok(Box::new(SocketListener::new(fd, Endpoint::Tcp { host, port }, None)));
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

fn socket_options(properties: &ConnectionProperties) -> SocketOptions {
    let octets = |size: Option<u32>| size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    SocketOptions {
        nodelay: properties.no_delay.unwrap_or(true),
        dont_route: properties.dont_route.unwrap_or(false),
        system_keepalive: properties.keep_alive.unwrap_or(false),
        send_buffer: octets(properties.send_buffer_size),
        receive_buffer: octets(properties.receive_buffer_size),
        ..SocketOptions::default()
    }
}

impl Transport for UnixTransport {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::Unix { .. })
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let fd =
            socket::connect(&Address::Unix(unix_path(endpoint)?.to_owned()), &socket_options(properties), deadline)?;
        let peer = credentials(fd.as_fd());
        Ok(Box::new(SocketStream::new(filtered_socket(fd), peer)))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let path = unix_path(endpoint)?;
        socket_file::remove_stale(path)?;
        let fd = socket::listen(&Address::Unix(path.to_owned()), &SocketOptions::default(), BACKLOG)?;
        let file = Some(SocketFile::for_path(path)?);
        let is_refused = socket::is_refusing_descriptors(fd.as_fd());
        let fd = if is_refused {
            DescriptorFilterListener::without_descriptor_passing(fd)
        } else {
            DescriptorFilterListener::for_unix_listener(fd)
        };
        Ok(Box::new(SocketListener::new(fd, endpoint.clone(), file)))
    }
}

fn unix_path(endpoint: &Endpoint) -> io::Result<&Path> {
    match endpoint {
        Endpoint::Unix { path } => Ok(path),
        Endpoint::Tcp { .. } | Endpoint::SharedMemory { .. } | Endpoint::Other(_) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint} is not a Unix endpoint")))
        }
    }
}

pub(crate) fn filtered_socket(fd: OwnedFd) -> DescriptorFilterSocket {
    if socket::is_refusing_descriptors(fd.as_fd()) {
        DescriptorFilterSocket::without_descriptor_passing(fd)
    } else {
        DescriptorFilterSocket::for_unix_socket(fd)
    }
}

pub(crate) fn credentials(fd: BorrowedFd<'_>) -> Peer {
    match socket::peer_credentials(fd) {
        Ok(credentials) => Peer::Process {
            pid: i32::try_from(credentials.pid).unwrap_or_default(),
            uid: credentials.uid,
            gid: credentials.gid,
        },
        Err(_) => Peer::Unknown,
    }
}

struct SocketStream {
    fd: DescriptorFilterSocket,
    peer: Peer,
    spin: AdaptiveSpin,
}

impl fmt::Debug for SocketStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SocketStream({})", self.peer)
    }
}

impl SocketStream {
    fn new(fd: DescriptorFilterSocket, peer: Peer) -> Self {
        SocketStream { fd, peer, spin: AdaptiveSpin::untried(SpinPolicy::DEFAULT) }
    }

    #[inline(never)]
    fn recv_spinning(&self, buffer: &mut [u8], deadline: Option<Monotonic>) -> io::Result<usize> {
        match self.spin.next_wait() {
            NextWait::Sleep => self.recv_sleeping(buffer, deadline),
            NextWait::Try(_) => {
                let received = self.recv_sleeping(buffer, deadline);
                // The core is checked after an arrival, because the last packet then carries the
                // peer's bytes. Before the arrival, the last packet may be an acknowledgement of
                // this thread's own bytes, which this core processed.
                if received.is_ok() {
                    if self.is_peer_elsewhere() { self.spin.encourage() } else { self.spin.record(false) }
                }
                received
            }
            NextWait::Spin(max_spin) => match self.poll_recv(buffer, max_spin, deadline) {
                Some(received) => received,
                None => self.recv_sleeping(buffer, deadline),
            },
        }
    }

    /// Polls the socket for bytes, for at most `max_spin` and not past `deadline`. Returns `None`
    /// if no bytes arrived in time, or if too many threads poll.
    #[inline]
    fn poll_recv(
        &self,
        buffer: &mut [u8],
        max_spin: Duration,
        deadline: Option<Monotonic>,
    ) -> Option<io::Result<usize>> {
        let (_permit, now) = self.spin.begin_polling()?;
        let end = now + max_spin;
        let until = deadline.map_or(end, |deadline| end.min(deadline));
        loop {
            let received = self.fd.recv(buffer, socket::WaitMode::Now);
            let is_late = until.is_past();
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if is_late {
                        // If the deadline was earlier than the end of polling, the attempt does not
                        // show whether polling helps.
                        if until == end {
                            self.spin.record(false);
                        }
                        return None;
                    }
                }
                received => {
                    // Bytes that arrive late count as a failure: another thread has probably run on
                    // this core, and the polling may have delayed it.
                    self.spin.record(!is_late);
                    return Some(received);
                }
            }
        }
    }

    #[inline]
    fn recv_sleeping(&self, buffer: &mut [u8], deadline: Option<Monotonic>) -> io::Result<usize> {
        match deadline {
            None => self.fd.recv(buffer, socket::WaitMode::Block).map_err(time_out),
            Some(deadline) => recv_until(&self.fd, buffer, deadline),
        }
    }

    /// Returns true unless the peer is known to run on this thread's core.
    fn is_peer_elsewhere(&self) -> bool {
        if !self.is_peer_local() {
            return true;
        }
        let core = self.incoming_core();
        core.is_none() || core != thread::current_core()
    }

    #[inline]
    fn send_with(
        &self,
        wait: WaitLimit,
        send: impl Fn(BorrowedFd<'_>, socket::WaitMode) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let fd = self.fd.as_fd();
        match wait {
            WaitLimit::Block => send(fd, socket::WaitMode::Block).map_err(time_out),
            WaitLimit::Now => send(fd, socket::WaitMode::Now),
            WaitLimit::Until(deadline) => send_until(fd, deadline, &send),
        }
    }
}

impl Stream for SocketStream {
    #[inline]
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        if cfg!(feature = "spin") && self.spin.is_allowed() {
            match wait {
                WaitLimit::Block => return self.recv_spinning(buffer, None),
                WaitLimit::Until(deadline) => return self.recv_spinning(buffer, Some(deadline)),
                WaitLimit::Now => {}
            }
        }
        match wait {
            WaitLimit::Block => self.fd.recv(buffer, socket::WaitMode::Block).map_err(time_out),
            WaitLimit::Now => self.fd.recv(buffer, socket::WaitMode::Now),
            WaitLimit::Until(deadline) => recv_until(&self.fd, buffer, deadline),
        }
    }

    #[inline]
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        self.send_with(wait, |fd, wait| socket::send_vectored(fd, slices, wait))
    }

    #[inline]
    fn send(&self, octets: &[u8], wait: WaitLimit) -> io::Result<usize> {
        self.send_with(wait, |fd, wait| socket::send(fd, octets, wait))
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        let some = |time: Duration| (time > Duration::ZERO && time < Duration::MAX).then_some(time);
        socket::set_receive_timeout(self.fd.as_fd(), some(receive))?;
        socket::set_send_timeout(self.fd.as_fd(), some(send))
    }

    fn set_spin_policy(&self, policy: SpinPolicy) {
        self.spin.set_policy(policy);
    }

    fn begin_spin(&self) -> Option<SpinWait<'_>> {
        if cfg!(feature = "spin") { self.spin.begin(|| self.is_peer_elsewhere()) } else { None }
    }

    fn incoming_core(&self) -> Option<usize> {
        // Unix sockets do not report the core; the result is then `None`.
        if cfg!(feature = "spin") { socket::incoming_core(self.fd.as_fd()).ok().flatten() } else { None }
    }

    fn set_busy_poll(&self, time: Duration) -> io::Result<()> {
        if self.is_peer_local() { Ok(()) } else { socket::set_busy_poll(self.fd.as_fd(), time) }
    }

    fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        socket::set_dscp(self.fd.as_fd(), dscp)
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        let _ = socket::shutdown(self.fd.as_fd(), direction);
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn is_peer_local(&self) -> bool {
        let Peer::Ip(peer) = &self.peer else { return true };
        // A connection to an own address of the machine has this address at both ends, and its
        // packets do not leave the machine. A peer on another machine cannot have this address: the
        // kernel drops packets from outside whose source is an address of this machine.
        let has_own_address = || {
            let local = socket::local_address(self.fd.as_fd());
            let same = |local: &SocketAddr| local.ip().to_canonical() == peer.ip().to_canonical();
            local.is_ok_and(|local| local.as_inet().is_some_and(same))
        };
        self.peer.is_local() || has_own_address()
    }
}

/// Reads bytes, after a wait until `deadline` if none are there. Not inlined, to keep the code of
/// reads without a deadline short.
#[inline(never)]
fn recv_until(fd: &DescriptorFilterSocket, buffer: &mut [u8], deadline: Monotonic) -> io::Result<usize> {
    loop {
        if !poll::wait_readable(fd.as_fd(), Some(deadline))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match fd.recv(buffer, socket::WaitMode::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

#[inline(never)]
fn send_until(
    fd: BorrowedFd<'_>,
    deadline: Monotonic,
    send: &dyn Fn(BorrowedFd<'_>, socket::WaitMode) -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        // The socket usually has room, so the first attempt does not wait, and a deadline costs no
        // further system call.
        match send(fd, socket::WaitMode::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        if !poll::wait_writable(fd, Some(deadline))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Converts `WouldBlock`, which the kernel returns when SO_RCVTIMEO or SO_SNDTIMEO has expired, to
/// `TimedOut`.
#[cold]
fn time_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

struct SocketListener {
    /// The drop of this field removes the listener's file, which it recognises by the inode. The
    /// field is dropped before the socket: while the socket exists, no other file can get this
    /// inode.
    _file: Option<SocketFile>,
    fd: DescriptorFilterListener,
    local: Endpoint,
    properties: Mutex<ConnectionProperties>,
}

impl fmt::Debug for SocketListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SocketListener({})", self.local)
    }
}

impl SocketListener {
    fn new(fd: DescriptorFilterListener, local: Endpoint, file: Option<SocketFile>) -> Self {
        let properties = Mutex::new("properties of a listener", LockScope::Lane, ConnectionProperties::default());
        SocketListener { _file: file, fd, local, properties }
    }
}

impl Listener for SocketListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let (fd, address) = self.fd.accept()?;
        let peer = match address {
            Address::Inet(address) => Peer::Ip(address),
            Address::Unix(_) | Address::Abstract(_) | Address::Unnamed => credentials(fd.as_fd()),
        };
        let options = socket_options(&self.properties.lock());
        options.apply_accepted(fd.as_fd(), matches!(peer, Peer::Ip(_)))?;
        Ok(Box::new(SocketStream::new(fd, peer)))
    }

    fn set_properties(&self, properties: &ConnectionProperties) -> io::Result<()> {
        // The buffer sizes of the listener determine the TCP window that a connection offers, so
        // they are set before a connection is accepted.
        socket_options(properties).apply_buffer_sizes(self.fd.as_fd())?;
        *self.properties.lock() = *properties;
        Ok(())
    }

    fn readiness_descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn local_endpoint(&self) -> &Endpoint {
        &self.local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_socket_file_is_replaced_and_used_file_is_kept() {
        let path = std::env::temp_dir().join(format!("corelane-net-{}", std::process::id()));
        let endpoint = Endpoint::unix(&path);
        let alive = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(UnixTransport.listen(&endpoint).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(alive);
        drop(UnixTransport.listen(&endpoint).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn connecting_to_a_closed_port_is_refused() {
        let gone = TcpTransport::new().listen(&Endpoint::tcp("127.0.0.1", 0)).unwrap().local_endpoint().clone();
        assert_eq!(TcpTransport::new().connect(&gone, None).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
