//! The listener of the transport, which accepts a connection when the client has sent its rings.
//! The listener never waits for a client.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::ring::{RingPair, RingSizes};
use corelane_sys::socket::{self, DescriptorFilterListener, DescriptorFilterSocket};
use corelane_sys::{deferred_close, process};

use super::lending::{Channels, parse_channel_header};
use super::{HEADER_BYTES, NewSide, SharedMemoryTransport, parse_header, user_id};
use crate::socket::credentials;
use crate::socket_file::SocketFile;
use crate::{ConnectionProperties, Endpoint, Listener, Peer, Stream};

const LISTENER_TOKEN: u64 = u64::MAX;
/// Maximum number of clients that have connected but not sent their rings. A further client
/// replaces the oldest.
const MAX_HANDSHAKES: usize = 64;
/// Age from which a client that has not sent its rings is dropped when another such client
/// connects.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of an accepted ring in bytes, unless the listener's properties allow larger rings.
const DEFAULT_MAX_RING_BYTES: u32 = 1 << 20;

#[derive(Debug)]
pub(super) struct RingListener {
    /// The drop of this field removes the listener's file, which it recognises by the inode. The
    /// field is dropped before the socket: while the socket exists, no other file can get this
    /// inode.
    _file: SocketFile,
    fd: DescriptorFilterListener,
    local: Endpoint,
    transport: SharedMemoryTransport,
    channels: Arc<Channels>,
    epoll: Epoll,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    handshakes: Vec<Handshake>,
    max_sizes: RingSizes,
}

#[derive(Debug)]
struct Handshake {
    fd: DescriptorFilterSocket,
    peer: Peer,
    started_at: Monotonic,
}

/// The state of a client that has connected.
enum HandshakeStep {
    Connection(Box<dyn Stream>),
    /// The client's header has not arrived.
    Unfinished(Handshake),
    /// The client has opened the channel for lent memory of an earlier connection.
    Channel,
}

impl RingListener {
    pub(super) fn new(
        file: SocketFile,
        fd: DescriptorFilterListener,
        local: Endpoint,
        transport: SharedMemoryTransport,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(fd.as_fd(), LISTENER_TOKEN, Interest::READABLE)?;
        let state = State {
            handshakes: Vec::new(),
            max_sizes: RingSizes::at_least(DEFAULT_MAX_RING_BYTES, DEFAULT_MAX_RING_BYTES),
        };
        let state = Mutex::new("clients of shared memory", LockScope::Lane, state);
        Ok(RingListener { _file: file, fd, local, transport, channels: Channels::new(), epoll, state })
    }

    fn start_handshake(&self) -> io::Result<Handshake> {
        let (fd, _) = self.fd.accept()?;
        let peer = credentials(fd.as_fd());
        self.transport.check_users(user_id(&peer), Some(process::effective_user_id())).map_err(aborted)?;
        Ok(Handshake { fd, peer, started_at: Monotonic::now() })
    }

    /// Reads the client's header if it has arrived. Then makes a connection of the client's rings,
    /// or attaches the channel for lent memory that the client has opened.
    ///
    /// # Errors
    /// `ConnectionAborted` if the client is at fault or has ended. Another error if this process is
    /// out of resources.
    fn finish_handshake(&self, mut client: Handshake, largest: RingSizes) -> io::Result<HandshakeStep> {
        let mut header = [0; HEADER_BYTES];
        let (count, memory) = match socket::recv_with_descriptor(client.fd.as_fd(), &mut header, socket::WaitMode::Now)
        {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(HandshakeStep::Unfinished(client)),
            other => other.map_err(aborted)?,
        };
        if count == HEADER_BYTES
            && memory.is_none()
            && let Some(name) = parse_channel_header(&header)
        {
            self.channels.attach(name, client.fd, &client.peer);
            return Ok(HandshakeStep::Channel);
        }
        let sizes = if count == HEADER_BYTES { parse_header(&header) } else { None };
        let sizes =
            sizes.filter(|sizes| sizes.to_server() <= largest.to_server() && sizes.to_client() <= largest.to_client());
        let Some(memory) = memory else { return Err(io::ErrorKind::ConnectionAborted.into()) };
        let Some(sizes) = sizes else {
            deferred_close::close(memory);
            return Err(io::ErrorKind::ConnectionAborted.into());
        };
        let rings = match RingPair::open(memory.as_fd(), sizes) {
            // This thread closes the descriptor, which does not block while the memory is mapped.
            Ok(rings) => rings,
            Err(error) => {
                deferred_close::close(memory);
                return Err(if error.kind() == io::ErrorKind::InvalidData { aborted(error) } else { error });
            }
        };
        client.fd.refuse_descriptors();
        let side = NewSide::Server(&self.channels);
        Ok(HandshakeStep::Connection(self.transport.new_stream(client.fd, client.peer, rings, side)))
    }

    fn keep_handshake(&self, state: &mut State, client: Handshake) {
        let now = Monotonic::now();
        state.handshakes.retain(|other| now.since(other.started_at) < HANDSHAKE_TIMEOUT);
        if state.handshakes.len() >= MAX_HANDSHAKES {
            state.handshakes.remove(0);
        }
        if self.epoll.add(client.fd.as_fd(), token(&client.fd), Interest::READABLE | Interest::HANG_UP).is_ok() {
            state.handshakes.push(client);
        }
    }
}

impl Listener for RingListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let mut state = self.state.lock();
        loop {
            let mut events = [EpollEvent::EMPTY; 1];
            if self.epoll.wait(&mut events, Some(Duration::ZERO))? == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let client = if events[0].token() == LISTENER_TOKEN {
                self.start_handshake()?
            } else {
                let index = state.handshakes.iter().position(|client| token(&client.fd) == events[0].token());
                let Some(index) = index else { return Err(io::ErrorKind::ConnectionAborted.into()) };
                let client = state.handshakes.remove(index);
                self.epoll.remove(client.fd.as_fd())?;
                client
            };
            match self.finish_handshake(client, state.max_sizes)? {
                HandshakeStep::Connection(stream) => return Ok(stream),
                HandshakeStep::Unfinished(client) => self.keep_handshake(&mut state, client),
                HandshakeStep::Channel => {}
            }
        }
    }

    fn set_properties(&self, properties: &ConnectionProperties) -> io::Result<()> {
        let octets = |wanted: Option<u32>| wanted.unwrap_or(0).max(DEFAULT_MAX_RING_BYTES);
        self.state.lock().max_sizes =
            RingSizes::at_least(octets(properties.receive_buffer_size), octets(properties.send_buffer_size));
        Ok(())
    }

    fn readiness_descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn local_endpoint(&self) -> &Endpoint {
        &self.local
    }
}

fn token(fd: &DescriptorFilterSocket) -> u64 {
    u64::from(fd.as_fd().as_raw_fd().unsigned_abs())
}

/// Converts an error into `ConnectionAborted`, which concerns one client and leaves the listener
/// usable.
fn aborted(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, error)
}
