//! Shared memory: two rings of octets (`corelane_sys::ring`) beside a Unix socket.
//!
//! The socket in the file system is where the two meet. As with a socket, connecting does not wait for the server to accept: the client
//! makes the rings, and sends a header and their descriptor at once.
//!
//! | octets | what |
//! |---|---|
//! | 0 to 7 | `CLNRINGS` |
//! | 8 to 11 | version, 1; little-endian, as what follows |
//! | 12 to 15 | octets that the ring to the server holds, a power of two |
//! | 16 to 19 | octets that the ring to the client holds, a power of two |
//!
//! The server takes the connection when all of it has come, and waits for no client: those that keep it waiting are few, and dropped
//! after a while. Both ask the kernel who the other is. Afterwards the socket carries single octets, the bell of a side that waits
//! for a descriptor, and tells each side that the other is gone, however it went.

mod ends;
mod listener;
mod spin;
mod stream;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::process;
use corelane_sys::ring::{Rings, Sizes};
use corelane_sys::socket::{self, Address, Options};

use self::ends::Watching;
use self::listener::RingListener;
use self::stream::Shared;
use crate::socket::{BACKLOG, credentials};
use crate::socket_file::{self, SocketFile};
use crate::transport::{Listener, Transport};
use crate::{Endpoint, Peer, Properties, Stream};

const MAGIC: [u8; 8] = *b"CLNRINGS";
const VERSION: u32 = 1;
const HEADER: usize = 20;
/// What a ring holds unless the client's properties say otherwise.
const OCTETS: u32 = 64 * 1024;
/// How long a thread that waits looks without sleeping, where that has helped so far.
const SPIN: Duration = Duration::from_micros(20);

/// Rings in shared memory, for processes on one machine.
///
/// Without further settings a server takes clients of its own user and of root, and clients keep to that by themselves, so that they try
/// another way instead of being refused.
///
/// The buffer sizes of a client's [`Properties`] are those of the rings, 64 KiB each by default; those of a listener are how large rings
/// may be, where that is more than 1 MiB.
///
/// # Examples
/// ```
/// use corelane_net::{Endpoint, SharedMemory, Transport};
/// let path = std::env::temp_dir().join(format!("corelane-doc-{}", std::process::id()));
/// let listener = SharedMemory::default().listen(&Endpoint::shared_memory(path))?;
/// let client = SharedMemory::default().spin(std::time::Duration::ZERO).connect(listener.local(), None)?;
/// let server = listener.accept()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedMemory {
    users: Users,
    spin: Duration,
    watching: Watching,
}

/// Whose processes may be at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Users {
    /// The client's and the server's have the same effective user, or the client's is root.
    #[default]
    Same,
    /// Everybody's who may use the socket's file. To be set on both sides.
    Any,
}

impl Default for SharedMemory {
    fn default() -> Self {
        SharedMemory { users: Users::Same, spin: SPIN, watching: Watching::default() }
    }
}

impl SharedMemory {
    /// Whose processes may be at the other end.
    #[must_use]
    pub fn users(self, users: Users) -> Self {
        SharedMemory { users, ..self }
    }

    /// How long a thread that waits may look for octets before it sleeps, 20 us by default; zero for not at all. It does so only while the
    /// peer was last seen on another core, and only while it helps.
    #[must_use]
    pub fn spin(self, longest: Duration) -> Self {
        SharedMemory { spin: longest, ..self }
    }

    /// Whether a client of this user may talk to a server of that user.
    fn check(&self, client: Option<u32>, server: Option<u32>) -> io::Result<()> {
        let welcome = match (self.users, client, server) {
            (Users::Any, _, _) => true,
            (Users::Same, Some(client), Some(server)) => client == server || client == 0,
            (Users::Same, _, _) => false,
        };
        if welcome {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the peer is another user's"))
        }
    }

    fn stream(&self, fd: OwnedFd, peer: Peer, rings: Rings) -> Box<dyn Stream> {
        Box::new(Shared::new(fd, peer, rings, self.spin, &self.watching))
    }
}

impl Transport for SharedMemory {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn serves(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::SharedMemory { .. })
    }

    fn connect_with(
        &self,
        endpoint: &Endpoint,
        properties: &Properties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let fd = socket::connect(&Address::Unix(path(endpoint)?), &Options::default(), deadline)?;
        let peer = credentials(fd.as_fd());
        self.check(Some(process::user()), user(&peer))?;
        let octets = |wanted: Option<u32>| wanted.unwrap_or(OCTETS);
        let sizes = Sizes::at_least(octets(properties.send_buffer), octets(properties.receive_buffer));
        let (rings, memory) = Rings::create(sizes)?;
        // A new connection has room for it.
        let sent = socket::send_with_descriptor(fd.as_fd(), &header(sizes), memory.as_fd(), socket::Wait::Now)?;
        if sent < HEADER {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(self.stream(fd, peer, rings))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let path = path(endpoint)?;
        socket_file::remove_stale(&path)?;
        let fd = socket::listen(&Address::Unix(path.clone()), &Options::default(), BACKLOG)?;
        let file = SocketFile::of(&path)?;
        Ok(Box::new(RingListener::new(file, fd, endpoint.clone(), self.clone())?))
    }

    fn begin(&self) {
        self.watching.begin();
    }

    fn end(&self) {
        self.watching.end();
    }
}

/// The user of a process at the other end.
fn user(peer: &Peer) -> Option<u32> {
    match peer {
        Peer::Process { uid, .. } => Some(*uid),
        _ => None,
    }
}

fn path(endpoint: &Endpoint) -> io::Result<std::path::PathBuf> {
    match endpoint {
        Endpoint::SharedMemory { path } => Ok(path.clone()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint} is no shared memory endpoint"))),
    }
}

fn header(sizes: Sizes) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    for (place, value) in header[8..].chunks_exact_mut(4).zip([VERSION, sizes.to_server(), sizes.to_client()]) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    header
}

/// What a client announces; `None` if it is nothing that this version knows.
fn parse(header: &[u8; HEADER]) -> Option<Sizes> {
    let (magic, rest) = header.split_first_chunk::<8>()?;
    let mut values = rest.chunks_exact(4).map_while(|octets| octets.first_chunk().copied().map(u32::from_le_bytes));
    let (version, to_server, to_client) = (values.next()?, values.next()?, values.next()?);
    (*magic == MAGIC && version == VERSION).then(|| Sizes::exactly(to_server, to_client)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_no_other() {
        let sizes = Sizes::at_least(70_000, 4096);
        let good = header(sizes);
        assert_eq!(parse(&good), Some(sizes));
        for octet in 0..HEADER {
            let mut bad = good;
            bad[octet] ^= 1;
            assert_eq!(parse(&bad), None, "octet {octet}");
        }
    }

    #[test]
    fn only_the_same_user_and_root_are_welcome_unless_all_are() {
        let same = SharedMemory::default();
        assert!(same.check(Some(7), Some(7)).is_ok() && same.check(Some(0), Some(7)).is_ok());
        assert_eq!(same.check(Some(7), Some(0)).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(same.check(Some(7), Some(8)).is_err() && same.check(None, None).is_err());
        assert!(same.clone().users(Users::Any).check(Some(7), Some(8)).is_ok());
    }
}
