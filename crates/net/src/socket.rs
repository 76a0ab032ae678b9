//! TCP and Unix sockets: the transports that the kernel carries.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::poll;
use corelane_sys::socket::{self, Address, Options};

use crate::resolve::Resolver;
use crate::socket_file::{self, SocketFile};
use crate::transport::{Listener, Transport};
use crate::{Endpoint, Half, Peer, Properties, Stream, Wait};

/// Connections that wait to be accepted before the kernel refuses more.
pub(crate) const BACKLOG: u32 = 1024;

/// TCP over IPv4 and IPv6, small messages sent at once (no Nagle delay).
///
/// Where a connection has a deadline, host names are looked up by threads of their own, at most 16 at a time. One that is still
/// asking when nobody waits any more ends when the system's resolver answers; its answer serves for ten seconds.
#[derive(Clone, Debug)]
pub struct Tcp {
    resolver: Resolver,
}

impl Tcp {
    /// TCP with the system's resolver.
    #[must_use]
    pub fn new() -> Self {
        Tcp { resolver: Resolver::system() }
    }

    /// The addresses of a TCP endpoint; an empty host stands for every address of this machine.
    fn resolve(&self, endpoint: &Endpoint, deadline: Option<Monotonic>) -> io::Result<Vec<SocketAddr>> {
        match endpoint {
            Endpoint::Tcp { host, port } if host.is_empty() => Ok(vec![
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port)),
                SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, *port)),
            ]),
            Endpoint::Tcp { host, port } => self.resolver.resolve(host, *port, deadline),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint} is no TCP endpoint"))),
        }
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self::new()
    }
}

/// Unix sockets in the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unix;

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn serves(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::Tcp { .. })
    }

    fn connect_with(
        &self,
        endpoint: &Endpoint,
        properties: &Properties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("{endpoint} has no address"));
        let options = options(properties);
        let addresses = self.resolve(endpoint, deadline)?;
        let most = addresses.len();
        for (tried, address) in addresses.into_iter().enumerate() {
            let until = deadline.map(|deadline| share(Monotonic::now(), deadline, most - tried));
            match socket::connect(&Address::Inet(address), &options, until) {
                Ok(fd) => return Ok(Box::new(Socket { fd, peer: Peer::Ip(address) })),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("{endpoint} has no address"));
        for address in self.resolve(endpoint, None)? {
            // The unspecified IPv6 address takes IPv4 connections too, as users of dual-stack hosts expect.
            let v6_only = address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            // Not inherited: connections are accepted with what is asked for.
            let options = Options { v6_only, nodelay: false, ..Options::default() };
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
                    return Ok(Box::new(SocketListener::new(fd, Endpoint::Tcp { host, port }, None)));
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// What connections with these properties are made with.
fn options(properties: &Properties) -> Options {
    let octets = |size: Option<u32>| size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    Options {
        nodelay: properties.no_delay.unwrap_or(true),
        dont_route: properties.dont_route.unwrap_or(false),
        probing: properties.keep_alive.unwrap_or(false),
        send_buffer: octets(properties.send_buffer),
        receive_buffer: octets(properties.receive_buffer),
        ..Options::default()
    }
}

/// Until when the first of `left` addresses may be tried: one that does not answer leaves the others their part of the time.
fn share(now: Monotonic, deadline: Monotonic, left: usize) -> Monotonic {
    now + deadline.since(now) / u32::try_from(left.max(1)).unwrap_or(u32::MAX)
}

impl Transport for Unix {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn serves(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::Unix { .. })
    }

    fn connect_with(
        &self,
        endpoint: &Endpoint,
        properties: &Properties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let fd = socket::connect(&Address::Unix(path(endpoint)?.to_owned()), &options(properties), deadline)?;
        let peer = credentials(fd.as_fd());
        Ok(Box::new(Socket { fd, peer }))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let path = path(endpoint)?;
        socket_file::remove_stale(path)?;
        let fd = socket::listen(&Address::Unix(path.to_owned()), &Options::default(), BACKLOG)?;
        let file = Some(SocketFile::of(path)?);
        Ok(Box::new(SocketListener::new(fd, endpoint.clone(), file)))
    }
}

fn path(endpoint: &Endpoint) -> io::Result<&Path> {
    match endpoint {
        Endpoint::Unix { path } => Ok(path),
        Endpoint::Tcp { .. } | Endpoint::SharedMemory { .. } => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint} is no Unix endpoint")))
        }
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

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    peer: Peer,
}

impl Socket {
    #[inline]
    fn send_with(
        &self,
        wait: Wait,
        send: impl Fn(BorrowedFd<'_>, socket::Wait) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let fd = self.fd.as_fd();
        match wait {
            Wait::Block => send(fd, socket::Wait::Block).map_err(time_out),
            Wait::Now => send(fd, socket::Wait::Now),
            Wait::Until(deadline) => send_until(fd, deadline, &send),
        }
    }
}

impl Stream for Socket {
    #[inline]
    fn recv(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let fd = self.fd.as_fd();
        match wait {
            Wait::Block => socket::recv(fd, buffer, socket::Wait::Block).map_err(time_out),
            Wait::Now => socket::recv(fd, buffer, socket::Wait::Now),
            Wait::Until(deadline) => recv_until(fd, buffer, deadline),
        }
    }

    #[inline]
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: Wait) -> io::Result<usize> {
        self.send_with(wait, |fd, wait| socket::send_vectored(fd, slices, wait))
    }

    #[inline]
    fn send(&self, octets: &[u8], wait: Wait) -> io::Result<usize> {
        self.send_with(wait, |fd, wait| socket::send(fd, octets, wait))
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        let some = |time: Duration| (time > Duration::ZERO && time < Duration::MAX).then_some(time);
        socket::set_receive_timeout(self.fd.as_fd(), some(receive))?;
        socket::set_send_timeout(self.fd.as_fd(), some(send))
    }

    fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        socket::set_dscp(self.fd.as_fd(), dscp)
    }

    fn shutdown(&self, half: Half) {
        let direction = match half {
            Half::Write => socket::Shutdown::Write,
            Half::Both => socket::Shutdown::Both,
        };
        // The only failure is a connection that is gone already, which is what was asked for.
        let _ = socket::shutdown(self.fd.as_fd(), direction);
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// Outside of the way that most reads take.
#[inline(never)]
fn recv_until(fd: BorrowedFd<'_>, buffer: &mut [u8], deadline: Monotonic) -> io::Result<usize> {
    loop {
        if !poll::wait_readable(fd, Some(deadline))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match socket::recv(fd, buffer, socket::Wait::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

/// Outside of the way that most messages take.
#[inline(never)]
fn send_until(
    fd: BorrowedFd<'_>,
    deadline: Monotonic,
    send: &dyn Fn(BorrowedFd<'_>, socket::Wait) -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        // Room is the rule: try first, so that a precise deadline costs the sender nothing.
        match send(fd, socket::Wait::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        if !poll::wait_writable(fd, Some(deadline))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// The kernel reports a passed SO_RCVTIMEO or SO_SNDTIMEO as "would block".
#[cold]
fn time_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

#[derive(Debug)]
struct SocketListener {
    /// Goes first: as long as the socket is there, no other file can have its file's inode.
    _file: Option<SocketFile>,
    fd: OwnedFd,
    local: Endpoint,
    /// Of connections accepted from now on.
    properties: Mutex<Properties>,
}

impl SocketListener {
    fn new(fd: OwnedFd, local: Endpoint, file: Option<SocketFile>) -> Self {
        let properties = Mutex::new("properties of a listener", Scope::Lane, Properties::default());
        SocketListener { _file: file, fd, local, properties }
    }
}

impl Listener for SocketListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let (fd, address) = socket::accept(self.fd.as_fd(), socket::Wait::Now)?;
        let peer = match address {
            Address::Inet(address) => Peer::Ip(address),
            Address::Unix(_) | Address::Abstract(_) | Address::Unnamed => credentials(fd.as_fd()),
        };
        let options = options(&self.properties.lock());
        options.apply_accepted(fd.as_fd(), matches!(peer, Peer::Ip(_)))?;
        Ok(Box::new(Socket { fd, peer }))
    }

    fn set_properties(&self, properties: &Properties) -> io::Result<()> {
        // The listener's own buffers are what a connection's window is offered by.
        options(properties).apply_sizes(self.fd.as_fd())?;
        *self.properties.lock() = *properties;
        Ok(())
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn local(&self) -> &Endpoint {
        &self.local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that died leaves its socket's file behind; one that lives is not robbed of it.
    #[test]
    fn a_stale_socket_file_is_replaced_and_one_in_use_is_not() {
        let path = std::env::temp_dir().join(format!("corelane-net-{}", std::process::id()));
        let endpoint = Endpoint::unix(&path);
        let alive = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(Unix.listen(&endpoint).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(alive);
        drop(Unix.listen(&endpoint).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_port_nobody_listens_at_is_refused() {
        let gone = Tcp::new().listen(&Endpoint::tcp("127.0.0.1", 0)).unwrap().local().clone();
        assert_eq!(Tcp::new().connect(&gone, None).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_the_others_their_part_of_the_time() {
        let at = Monotonic::from_nanos;
        assert_eq!(share(at(100), at(400), 3), at(200));
        assert_eq!(share(at(200), at(400), 2), at(300));
        assert_eq!(share(at(300), at(400), 1), at(400));
        assert_eq!(share(at(500), at(400), 2), at(500));
    }
}
