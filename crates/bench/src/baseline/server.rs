//! The server of the baseline. A connection begins with the sizes of its requests and replies, 16
//! bytes, little-endian. Over sockets, the reply size may be 0: the server then answers a request
//! whose first byte is [`REQUESTS_ANSWER`] with one byte.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::eventfd::EventFd;
use corelane_sys::socket::{self, ShutdownDirection, SocketOptions, WaitMode};
use corelane_sys::thread::ThreadBuilder;

use super::client::REQUESTS_ANSWER;
use super::{
    BaselineAddress, BaselineTransport, Medium, MessageSizes, WaitStrategy, listening_address, memory, read_preamble,
    recv_spinning, stream,
};
use crate::Failure;
use crate::service::serve_lines;

const CHUNK: usize = 64 * 1024;

/// The server of the baseline. A connection outside the pool outlives the server, and ends when its
/// client closes it.
pub(crate) struct BaselineServer {
    accepting: Accepting,
    address: BaselineAddress,
}

enum Accepting {
    Socket { listener: Arc<OwnedFd>, pool: Option<Arc<BaselinePool>> },
    Stream { _acceptor: stream::Acceptor },
}

impl BaselineServer {
    pub(crate) fn open(transport: BaselineTransport, waiting: WaitStrategy) -> Result<Self, Failure> {
        Self::start(transport, waiting)
            .map_err(|error| Failure::new(format!("the floor server does not start: {error}")))
    }

    #[must_use]
    pub(crate) fn address(&self) -> &BaselineAddress {
        &self.address
    }

    fn start(transport: BaselineTransport, waiting: WaitStrategy) -> io::Result<Self> {
        let in_memory = transport == BaselineTransport::SharedMemory;
        let (medium, threads) = match (waiting, in_memory) {
            (WaitStrategy::Blocking, false) => (Medium::Socket { spins: false }, None),
            (WaitStrategy::SpinThenSleep, false) => (Medium::Socket { spins: true }, None),
            (WaitStrategy::Epoll(threads), false) => (Medium::Socket { spins: false }, Some(threads)),
            (WaitStrategy::Blocking, true) => (Medium::Memory { spins: false }, None),
            (WaitStrategy::SpinThenSleep, true) => (Medium::Memory { spins: true }, None),
            (WaitStrategy::Pipelined, true) => (Medium::MemoryParts, None),
            (WaitStrategy::Stream(spin), _) => {
                let (acceptor, address) = stream::serve(transport, spin)?;
                return Ok(BaselineServer { accepting: Accepting::Stream { _acceptor: acceptor }, address });
            }
            (WaitStrategy::Pipelined, false) | (WaitStrategy::Epoll(_), true) => {
                let reason = format!("this wait strategy is not supported over {}", transport.name());
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
        };
        let pool = threads.map(BaselinePool::start).transpose()?;
        let options = SocketOptions { refuse_descriptors: !in_memory, ..SocketOptions::default() };
        let listener = Arc::new(socket::listen(&listening_address(transport), &options, socket::DEFAULT_BACKLOG)?);
        let address = BaselineAddress { socket: socket::local_address(listener.as_fd())?, medium };
        let (accepting, watching) = (listener.clone(), pool.clone());
        ThreadBuilder::new()
            .name("floor/accept")
            .spawn(move || accept(accepting.as_fd(), medium, watching.as_ref()))?;
        Ok(BaselineServer { accepting: Accepting::Socket { listener, pool }, address })
    }
}

impl Drop for BaselineServer {
    fn drop(&mut self) {
        let Accepting::Socket { listener, pool } = &self.accepting else { return };
        // Some kernels refuse to shut down a Unix listener, whose acceptor thread then lives until
        // the process ends.
        let _ = socket::shutdown(listener.as_fd(), ShutdownDirection::Both);
        if let Some(pool) = pool {
            pool.end.notify();
        }
    }
}

pub(crate) fn run(transport: BaselineTransport, waiting: WaitStrategy) -> Result<(), Failure> {
    let server = BaselineServer::open(transport, waiting)?;
    println!("ready {}", server.address());
    serve_lines(|_| None).map_err(|error| Failure::new(error.to_string()))
}

fn accept(listener: BorrowedFd<'_>, medium: Medium, pool: Option<&Arc<BaselinePool>>) {
    while let Ok((socket, _)) = socket::accept(listener, WaitMode::Block) {
        // If no thread can be created, the connection closes and the client reports the failure.
        let serving = ThreadBuilder::new().name("floor/serve");
        match medium {
            Medium::Memory { spins } => {
                let Some((bare, sizes)) = memory::accept(socket.as_fd(), spins) else { continue };
                drop(serving.spawn(move || memory::serve(bare, sizes)));
            }
            Medium::MemoryParts => {
                let Some((bare, sizes)) = memory::accept_parts(socket.as_fd()) else { continue };
                drop(serving.spawn(move || memory::serve_parts(bare, sizes)));
            }
            // `Medium::Stream` does not occur here: the module `stream` accepts its connections.
            Medium::Socket { .. } | Medium::Stream(..) => {
                let Some(sizes) = read_sizes(socket.as_fd()) else { continue };
                let spins = medium == Medium::Socket { spins: true };
                match pool {
                    Some(pool) if sizes.reply > 0 => pool.watch(socket, sizes),
                    _ => drop(serving.spawn(move || serve(&socket, sizes, spins))),
                }
            }
        }
    }
}

pub(super) fn read_sizes(socket: BorrowedFd<'_>) -> Option<MessageSizes> {
    let mut preamble = [0; 16];
    fill(socket, &mut preamble, 0, false)?;
    read_preamble(&preamble)
}

fn serve(socket: &OwnedFd, sizes: MessageSizes, spins: bool) {
    let socket = socket.as_fd();
    if sizes.reply == 0 {
        drain(socket, sizes.request);
        return;
    }
    let (mut request, reply) = (vec![0; sizes.request], vec![0; sizes.reply]);
    while fill(socket, &mut request, 0, spins).is_some() && send_all(socket, &reply).is_some() {}
}

fn drain(socket: BorrowedFd<'_>, size: usize) {
    let mut chunk = vec![0; CHUNK];
    let mut ahead = 0;
    while let Ok(count) = socket::recv(socket, &mut chunk, WaitMode::Block) {
        if count == 0 {
            return;
        }
        while ahead < count {
            // The client waits for the answer, so the unread bytes belong to this message.
            if chunk[ahead] == REQUESTS_ANSWER {
                let mut missing = vec![0; (ahead + size).saturating_sub(count)];
                if fill(socket, &mut missing, 0, false).is_none() || send_all(socket, &[0]).is_none() {
                    return;
                }
                ahead = count;
                break;
            }
            ahead += size;
        }
        ahead -= count;
    }
}

#[inline]
pub(super) fn fill(socket: BorrowedFd<'_>, buffer: &mut [u8], mut have: usize, spins: bool) -> Option<()> {
    while have < buffer.len() {
        let room = &mut buffer[have..];
        let received = if spins { recv_spinning(socket, room) } else { socket::recv(socket, room, WaitMode::Block) };
        match received {
            Ok(0) | Err(_) => return None,
            Ok(count) => have += count,
        }
    }
    Some(())
}

#[inline]
fn send_all(socket: BorrowedFd<'_>, octets: &[u8]) -> Option<()> {
    let mut sent = 0;
    while sent < octets.len() {
        sent += socket::send(socket, &octets[sent..], WaitMode::Block).ok()?;
    }
    Some(())
}

struct BaselinePool {
    epoll: Epoll,
    end: EventFd,
    /// Slots are never reused, because a benchmark has few connections.
    connections: Vec<OnceLock<PoolConnection>>,
    used: AtomicUsize,
}

/// A connection of the pool. `taken` is true while a thread reads a request; another thread with an
/// event of the connection then returns at once.
struct PoolConnection {
    socket: OwnedFd,
    sizes: MessageSizes,
    taken: AtomicBool,
}

/// Maximum number of connections of a pool. The server closes further connections.
const MOST_CONNECTIONS: usize = 1024;

const END: u64 = u64::MAX;

impl BaselinePool {
    fn start(threads: usize) -> io::Result<Arc<Self>> {
        let pool = Arc::new(BaselinePool {
            epoll: Epoll::new()?,
            end: EventFd::new()?,
            connections: (0..MOST_CONNECTIONS).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
        });
        pool.epoll.add(pool.end.as_fd(), END, Interest::READABLE)?;
        for index in 0..threads.max(1) {
            let pool = pool.clone();
            ThreadBuilder::new().name(format!("floor/{index}")).spawn(move || pool.work())?;
        }
        Ok(pool)
    }

    fn watch(&self, socket: OwnedFd, sizes: MessageSizes) {
        let index = self.used.fetch_add(1, Ordering::Relaxed);
        let Some(place) = self.connections.get(index) else { return };
        let watched = place.get_or_init(|| PoolConnection { socket, sizes, taken: AtomicBool::new(false) });
        if self.epoll.add(watched.socket.as_fd(), index as u64, Interest::READABLE | Interest::EDGE).is_err() {
            let _ = socket::shutdown(watched.socket.as_fd(), ShutdownDirection::Both);
        }
    }

    fn work(&self) {
        let mut events = [EpollEvent::EMPTY; 1];
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        while let Ok(count) = self.epoll.wait(&mut events, None) {
            for event in &events[..count] {
                if event.token() == END {
                    return;
                }
                let index = usize::try_from(event.token()).unwrap_or(usize::MAX);
                if let Some(watched) = self.connections.get(index).and_then(OnceLock::get) {
                    grow(&mut request, watched.sizes.request);
                    grow(&mut reply, watched.sizes.reply);
                    watched.answer(&mut request[..watched.sizes.request], &reply[..watched.sizes.reply]);
                }
            }
        }
    }
}

/// Lengthens the buffer to at least `size` bytes. The buffer never shrinks, so repeated exchanges
/// do not allocate.
fn grow(buffer: &mut Vec<u8>, size: usize) {
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
}

impl PoolConnection {
    /// Reads one request and sends the reply. One request per event is enough, because a client
    /// sends its next request only after the reply.
    #[inline]
    fn answer(&self, request: &mut [u8], reply: &[u8]) {
        // `Acquire` and `Release` order the work of one reader before that of the next.
        if self.taken.swap(true, Ordering::Acquire) {
            return;
        }
        let socket = self.socket.as_fd();
        let read = match socket::recv(socket, request, WaitMode::Now) {
            Ok(0) | Err(_) => None,
            Ok(count) => fill(socket, request, count, false),
        };
        self.taken.store(false, Ordering::Release);
        if read.is_some() {
            let _ = send_all(socket, reply);
        }
    }
}
