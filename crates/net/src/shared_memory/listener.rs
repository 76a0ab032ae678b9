//! Accepting: a connection is taken when its client has sent the rings, and no client is waited for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::ring::{Rings, Sizes};
use corelane_sys::{process, socket};

use super::{HEADER, SharedMemory, parse, user};
use crate::socket::credentials;
use crate::socket_file::SocketFile;
use crate::{Endpoint, Listener, Peer, Properties, Stream};

/// Token of the listening socket; the others are watched as their descriptor's number.
const DOOR: u64 = u64::MAX;
/// Clients that have connected and not sent their rings; the oldest goes when another comes.
const UNREADY: usize = 64;
/// How long a client may take, if another one comes after it.
const PATIENCE: Duration = Duration::from_secs(5);
/// A ring may be as large as this without a property that allows more.
const LARGEST: u32 = 1 << 20;

#[derive(Debug)]
pub(super) struct RingListener {
    /// Goes first: as long as the socket is there, no other file can have its file's inode.
    _file: SocketFile,
    fd: OwnedFd,
    local: Endpoint,
    transport: SharedMemory,
    /// The socket and those of clients that are not ready.
    epoll: Epoll,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    unready: Vec<Unready>,
    /// The largest rings that are taken.
    largest: Sizes,
}

/// A client that has not sent its rings.
#[derive(Debug)]
struct Unready {
    fd: OwnedFd,
    peer: Peer,
    since: Monotonic,
}

impl RingListener {
    pub(super) fn new(file: SocketFile, fd: OwnedFd, local: Endpoint, transport: SharedMemory) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(fd.as_fd(), DOOR, Interest::READABLE)?;
        let state = State { unready: Vec::new(), largest: Sizes::at_least(LARGEST, LARGEST) };
        let state = Mutex::new("clients of shared memory", Scope::Lane, state);
        Ok(RingListener { _file: file, fd, local, transport, epoll, state })
    }

    /// Takes in the next client, ready or not.
    fn welcome(&self) -> io::Result<Unready> {
        let (fd, _) = socket::accept(self.fd.as_fd(), socket::Wait::Now)?;
        let peer = credentials(fd.as_fd());
        self.transport.check(user(&peer), Some(process::user())).map_err(aborted)?;
        Ok(Unready { fd, peer, since: Monotonic::now() })
    }

    /// The connection, if its rings have come; else the client again.
    ///
    /// # Errors
    /// `ConnectionAborted` where the client is at fault or gone.
    fn open(&self, client: Unready, largest: Sizes) -> io::Result<Result<Box<dyn Stream>, Unready>> {
        let mut header = [0; HEADER];
        let (count, memory) = match socket::recv_with_descriptor(client.fd.as_fd(), &mut header, socket::Wait::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Err(client)),
            other => other.map_err(aborted)?,
        };
        let sizes = if count == HEADER { parse(&header) } else { None };
        let sizes =
            sizes.filter(|sizes| sizes.to_server() <= largest.to_server() && sizes.to_client() <= largest.to_client());
        let (Some(sizes), Some(memory)) = (sizes, memory) else {
            return Err(io::ErrorKind::ConnectionAborted.into());
        };
        let rings = Rings::open(memory.as_fd(), sizes).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => aborted(error),
            _ => error,
        })?;
        Ok(Ok(self.transport.stream(client.fd, client.peer, rings)))
    }

    fn keep(&self, state: &mut State, client: Unready) {
        let now = Monotonic::now();
        state.unready.retain(|other| now.since(other.since) < PATIENCE);
        if state.unready.len() >= UNREADY {
            state.unready.remove(0);
        }
        // One that cannot be watched is dropped.
        if self.epoll.add(client.fd.as_fd(), number(&client.fd), Interest::READABLE | Interest::HANG_UP).is_ok() {
            state.unready.push(client);
        }
    }
}

impl Listener for RingListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let mut state = self.state.lock();
        loop {
            let mut events = [Event::EMPTY; 1];
            if self.epoll.wait(&mut events, Some(Duration::ZERO))? == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let client = if events[0].token() == DOOR {
                self.welcome()?
            } else {
                let index = state.unready.iter().position(|client| number(&client.fd) == events[0].token());
                let Some(index) = index else { return Err(io::ErrorKind::ConnectionAborted.into()) };
                let client = state.unready.remove(index);
                self.epoll.remove(client.fd.as_fd())?;
                client
            };
            match self.open(client, state.largest)? {
                Ok(stream) => return Ok(stream),
                Err(client) => self.keep(&mut state, client),
            }
        }
    }

    fn set_properties(&self, properties: &Properties) -> io::Result<()> {
        let octets = |wanted: Option<u32>| wanted.unwrap_or(0).max(LARGEST);
        self.state.lock().largest = Sizes::at_least(octets(properties.receive_buffer), octets(properties.send_buffer));
        Ok(())
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn local(&self) -> &Endpoint {
        &self.local
    }
}

fn number(fd: &OwnedFd) -> u64 {
    u64::from(fd.as_raw_fd().unsigned_abs())
}

/// The client's trouble, and not the listener's.
fn aborted(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, error)
}
