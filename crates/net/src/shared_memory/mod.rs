//! Connections over shared memory: each has two rings of bytes (`corelane_sys::ring`) and a Unix
//! socket.
//!
//! The peers meet at the socket in the file system. A client does not wait until the server
//! accepts: it creates the rings, and sends a header and their descriptor at once.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 7 | `CLNRINGS` |
//! | 8 to 11 | version, 1; all numbers are little-endian |
//! | 12 to 15 | capacity of the ring to the server in bytes, a power of two |
//! | 16 to 19 | capacity of the ring to the client in bytes, a power of two |
//!
//! The server accepts the connection when the whole header has arrived.
//!
//! After the header the socket is the *bell*: it carries single bytes, each of which wakes a side
//! that waits for the descriptor. When one side ends, for any reason, its socket is closed, which
//! the peer notices.
//!
//! Large payloads can be lent instead of copied; the module `lending` describes the further socket
//! for them.

mod large;
mod lending;
mod listener;
mod peer_monitor;
mod polled_input;
mod stream;

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::process;
use corelane_sys::ring::{RingPair, RingSizes};
use corelane_sys::socket::{self, Address, DescriptorFilterListener, DescriptorFilterSocket, SocketOptions};

use self::lending::{Channels, Lending};
use self::listener::RingListener;
use self::peer_monitor::{PeerMonitor, PeerState};
use self::stream::RingStream;
use crate::socket::{BACKLOG, credentials, filtered_socket};
use crate::socket_file::{self, SocketFile};
use crate::transport::{Listener, Transport};
use crate::{ConnectionProperties, Endpoint, Peer, SpinPolicy, Stream};

const MAGIC: [u8; 8] = *b"CLNRINGS";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 20;
const DEFAULT_RING_BYTES: u32 = 64 * 1024;
const DEFAULT_MAX_LENT_BYTES: usize = 128 << 20;
const DEFAULT_MAX_SPIN: Duration = Duration::from_micros(20);

/// A transport over rings in shared memory, between processes of one machine.
///
/// By default a server accepts clients of its own user and of root.
///
/// The buffer sizes in a client's [`ConnectionProperties`] are the sizes of the rings, 64 KiB each
/// by default, rounded up to powers of two from 4 KiB to 64 MiB. A listener accepts rings of at
/// most 1 MiB, or of the buffer sizes in the listener's properties if these sizes are larger.
///
/// # Examples
/// ```
/// use corelane_net::{Endpoint, SharedMemoryTransport, Transport};
/// let path = std::env::temp_dir().join(format!("corelane-doc-{}", std::process::id()));
/// let listener = SharedMemoryTransport::default().listen(&Endpoint::shared_memory(path))?;
/// let client = SharedMemoryTransport::default();
/// let client = client.max_spin(std::time::Duration::ZERO).connect(listener.local_endpoint(), None)?;
/// let server = listener.accept()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedMemoryTransport {
    allowed_users: AllowedUsers,
    spin: SpinPolicy,
    max_lent_memory: usize,
    monitor: PeerMonitor,
}

/// The users whose processes are accepted as peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllowedUsers {
    /// The client and the server have the same effective user, or the client is root.
    #[default]
    SameUser,
    /// Any user that may use the socket's file. The client and the server must both set this value.
    AnyUser,
}

impl Default for SharedMemoryTransport {
    fn default() -> Self {
        let spin = SpinPolicy::Adaptive { max_spin: DEFAULT_MAX_SPIN };
        SharedMemoryTransport {
            allowed_users: AllowedUsers::SameUser,
            spin,
            max_lent_memory: DEFAULT_MAX_LENT_BYTES,
            monitor: PeerMonitor::default(),
        }
    }
}

impl SharedMemoryTransport {
    /// Sets the users whose processes are accepted as peers.
    #[must_use]
    pub fn allowed_users(self, users: AllowedUsers) -> Self {
        SharedMemoryTransport { allowed_users: users, ..self }
    }

    /// Sets the policy [`SpinPolicy::Adaptive`] with this maximum time for which a waiting thread
    /// polls before it sleeps: 20 us by default, zero for never.
    #[must_use]
    pub fn max_spin(self, longest: Duration) -> Self {
        self.spin_policy(SpinPolicy::Adaptive { max_spin: longest })
    }

    /// Sets the policy by which waiting threads poll before they sleep. Under every policy a thread
    /// polls only if its peer was last seen on another core.
    #[must_use]
    pub fn spin_policy(self, policy: SpinPolicy) -> Self {
        SharedMemoryTransport { spin: policy, ..self }
    }

    /// Sets the maximum memory in bytes that the sides of a connection lend to each other, in each
    /// direction: 128 MiB by default, rounded down to a multiple of 64 KiB, 0 for none. The smaller
    /// value of the two sides applies. A connection keeps at most 16 files of each side.
    ///
    /// Memory is lent only to processes of the same user and of root. All other payloads are copied
    /// through the rings.
    #[must_use]
    pub fn max_lent_memory(self, bytes: usize) -> Self {
        SharedMemoryTransport { max_lent_memory: bytes, ..self }
    }

    fn check_users(&self, client: Option<u32>, server: Option<u32>) -> io::Result<()> {
        let welcome = match (self.allowed_users, client, server) {
            (AllowedUsers::AnyUser, _, _) => true,
            (AllowedUsers::SameUser, Some(client), Some(server)) => client == server || client == 0,
            (AllowedUsers::SameUser, _, _) => false,
        };
        if welcome {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the peer belongs to another user"))
        }
    }

    fn new_stream(
        &self,
        fd: DescriptorFilterSocket,
        peer: Peer,
        rings: RingPair,
        side: NewSide<'_>,
    ) -> Box<dyn Stream> {
        let ends = PeerState::new(rings);
        // Without the feature, the ORB does not understand lent messages, so the sides lend
        // nothing.
        let max_lent_memory = if cfg!(feature = "lent-memory") { self.max_lent_memory } else { 0 };
        let lending = match side {
            NewSide::Client(path) => Lending::of_client(&ends, &peer, path, max_lent_memory),
            NewSide::Server(channels) => Lending::of_server(&ends, &peer, channels, max_lent_memory),
        };
        Box::new(RingStream::new(fd, peer, ends, self.spin, &self.monitor, lending))
    }
}

/// The side of a new connection, with the data that lending needs on this side.
enum NewSide<'c> {
    Client(PathBuf),
    Server(&'c Arc<Channels>),
}

impl Transport for SharedMemoryTransport {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::SharedMemory { .. })
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let path = socket_path(endpoint)?;
        let fd = socket::connect(&Address::Unix(path.clone()), &SocketOptions::default(), deadline)?;
        // The server passes no descriptors, so the client's socket closes descriptors that arrive.
        let fd = filtered_socket(fd);
        let peer = credentials(fd.as_fd());
        self.check_users(Some(process::effective_user_id()), user_id(&peer))?;
        let octets = |wanted: Option<u32>| wanted.unwrap_or(DEFAULT_RING_BYTES);
        let sizes = RingSizes::at_least(octets(properties.send_buffer_size), octets(properties.receive_buffer_size));
        let (rings, memory) = RingPair::create(sizes)?;
        // The socket of a new connection has room for the header, so the call does not wait.
        let sent =
            socket::send_with_descriptor(fd.as_fd(), &encode_header(sizes), memory.as_fd(), socket::WaitMode::Now)?;
        if sent < HEADER_BYTES {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(self.new_stream(fd, peer, rings, NewSide::Client(path)))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let path = socket_path(endpoint)?;
        socket_file::remove_stale(&path)?;
        // Clients pass the rings' descriptor, so the listener must not refuse descriptors.
        let options = SocketOptions { refuse_descriptors: false, ..SocketOptions::default() };
        let fd = DescriptorFilterListener::for_unix_listener(socket::listen(
            &Address::Unix(path.clone()),
            &options,
            BACKLOG,
        )?);
        let file = SocketFile::for_path(&path)?;
        Ok(Box::new(RingListener::new(file, fd, endpoint.clone(), self.clone())?))
    }

    fn attach_orb(&self) {
        self.monitor.attach_orb();
    }

    fn detach_orb(&self) {
        self.monitor.detach_orb();
    }
}

fn user_id(peer: &Peer) -> Option<u32> {
    match peer {
        Peer::Process { uid, .. } => Some(*uid),
        _ => None,
    }
}

fn socket_path(endpoint: &Endpoint) -> io::Result<PathBuf> {
    match endpoint {
        Endpoint::SharedMemory { path } => Ok(path.clone()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint} is not a shared memory endpoint"))),
    }
}

fn encode_header(sizes: RingSizes) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    for (place, value) in header[8..].chunks_exact_mut(4).zip([VERSION, sizes.to_server(), sizes.to_client()]) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    header
}

fn parse_header(header: &[u8; HEADER_BYTES]) -> Option<RingSizes> {
    let (magic, rest) = header.split_first_chunk::<8>()?;
    let mut values = rest.chunks_exact(4).map_while(|octets| octets.first_chunk().copied().map(u32::from_le_bytes));
    let (version, to_server, to_client) = (values.next()?, values.next()?, values.next()?);
    (*magic == MAGIC && version == VERSION).then(|| RingSizes::exactly(to_server, to_client)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_and_other_headers_are_refused() {
        let sizes = RingSizes::at_least(70_000, 4096);
        let good = encode_header(sizes);
        assert_eq!(parse_header(&good), Some(sizes));
        for octet in 0..HEADER_BYTES {
            let mut bad = good;
            bad[octet] ^= 1;
            assert_eq!(parse_header(&bad), None, "octet {octet}");
        }
    }

    #[test]
    fn same_user_and_root_are_accepted_unless_all_users_are() {
        let same = SharedMemoryTransport::default();
        assert!(same.check_users(Some(7), Some(7)).is_ok() && same.check_users(Some(0), Some(7)).is_ok());
        assert_eq!(same.check_users(Some(7), Some(0)).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(same.check_users(Some(7), Some(8)).is_err() && same.check_users(None, None).is_err());
        assert!(same.clone().allowed_users(AllowedUsers::AnyUser).check_users(Some(7), Some(8)).is_ok());
    }
}
