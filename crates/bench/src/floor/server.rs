//! The server's half, in a process of its own or, for tests, on threads of this one.
//!
//! A connection begins with 16 octets: the sizes of its requests and replies, little-endian. A reply size of 0 makes it one of oneways, where
//! a request whose first octet is [`SETTLE`] is answered by one octet.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::socket::{self, Options, Shutdown, Wait};
use corelane_sys::thread::Builder;

use super::client::SETTLE;
use super::{Carrier, FloorAddress, Sizes, Waiting, listening_address, memory, read_preamble};
use crate::Failure;
use crate::service::serve_lines;

/// What a thread reads into at once when it drains oneways.
const CHUNK: usize = 64 * 1024;

/// A listening floor server. Dropping it ends its acceptor and its pool; other connections end with their clients.
pub(crate) struct FloorServer {
    listener: Arc<OwnedFd>,
    pool: Option<Arc<Pool>>,
    address: FloorAddress,
}

impl FloorServer {
    /// Listens and serves on threads of this process.
    ///
    /// # Errors
    /// The limits of the process, or the carrier has no such way to wait.
    pub(crate) fn open(carrier: Carrier, waiting: Waiting) -> Result<Self, Failure> {
        Self::start(carrier, waiting).map_err(|error| Failure::new(format!("the floor server does not start: {error}")))
    }

    /// Where it listens.
    #[must_use]
    pub(crate) fn address(&self) -> &FloorAddress {
        &self.address
    }

    fn start(carrier: Carrier, waiting: Waiting) -> io::Result<Self> {
        let in_memory = carrier == Carrier::SharedMemory;
        let pool = match (waiting, in_memory) {
            (Waiting::Blocking, _) | (Waiting::Looking, true) => None,
            (Waiting::Epoll(threads), false) => Some(Pool::start(threads)?),
            (Waiting::Looking, false) | (Waiting::Epoll(_), true) => {
                let reason = format!("nobody waits like that over {}", carrier.name());
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
        };
        let listener =
            Arc::new(socket::listen(&listening_address(carrier), &Options::default(), socket::DEFAULT_BACKLOG)?);
        let looking = in_memory.then_some(waiting == Waiting::Looking);
        let address = FloorAddress { socket: socket::local_address(listener.as_fd())?, memory: looking };
        let (accepting, watching) = (listener.clone(), pool.clone());
        Builder::new().name("floor/accept").spawn(move || match looking {
            Some(looking) => accept_memory(accepting.as_fd(), looking),
            None => accept(accepting.as_fd(), watching.as_ref()),
        })?;
        Ok(FloorServer { listener, pool, address })
    }
}

impl Drop for FloorServer {
    fn drop(&mut self) {
        // Refused on a Unix listener of some kernels; the acceptor then lives as long as the process.
        let _ = socket::shutdown(self.listener.as_fd(), Shutdown::Both);
        if let Some(pool) = &self.pool {
            pool.end.notify();
        }
    }
}

/// Runs a floor server as the whole program: prints `ready ADDRESS`, ends when the standard input does.
///
/// # Errors
/// It cannot listen.
pub(crate) fn run(carrier: Carrier, waiting: Waiting) -> Result<(), Failure> {
    let server = FloorServer::open(carrier, waiting)?;
    println!("ready {}", server.address());
    serve_lines(|_| None).map_err(|error| Failure::new(error.to_string()))
}

/// Until the listener is shut down.
fn accept(listener: BorrowedFd<'_>, pool: Option<&Arc<Pool>>) {
    while let Ok((socket, _)) = socket::accept(listener, Wait::Block) {
        let Some(sizes) = read_sizes(socket.as_fd()) else { continue };
        match pool {
            Some(pool) if sizes.reply > 0 => pool.watch(socket, sizes),
            // Without a thread the connection is closed, which the client reports.
            _ => drop(Builder::new().name("floor/serve").spawn(move || serve(&socket, sizes))),
        }
    }
}

/// The same, of clients that pass memory.
fn accept_memory(listener: BorrowedFd<'_>, looking: bool) {
    while let Ok((socket, _)) = socket::accept(listener, Wait::Block) {
        let Some((bare, sizes)) = memory::accept(socket.as_fd(), looking) else { continue };
        // Without a thread the end is dropped, which the client reports.
        drop(Builder::new().name("floor/serve").spawn(move || memory::serve(bare, sizes)));
    }
}

/// The sizes that a client announces, if they are sensible.
fn read_sizes(socket: BorrowedFd<'_>) -> Option<Sizes> {
    let mut preamble = [0; 16];
    fill(socket, &mut preamble, 0)?;
    read_preamble(&preamble)
}

/// A thread's whole work for one connection.
fn serve(socket: &OwnedFd, sizes: Sizes) {
    let socket = socket.as_fd();
    if sizes.reply == 0 {
        drain(socket, sizes.request);
        return;
    }
    let (mut request, reply) = (vec![0; sizes.request], vec![0; sizes.reply]);
    while fill(socket, &mut request, 0).is_some() && send_all(socket, &reply).is_some() {}
}

/// Reads oneways as they come, many at once, and looks at the head of each.
fn drain(socket: BorrowedFd<'_>, size: usize) {
    let mut chunk = vec![0; CHUNK];
    // Octets until the next message begins.
    let mut ahead = 0;
    while let Ok(count) = socket::recv(socket, &mut chunk, Wait::Block) {
        if count == 0 {
            return;
        }
        while ahead < count {
            // A message to be answered is the last one for now, so all of it is here or follows at once.
            if chunk[ahead] == SETTLE {
                let mut missing = vec![0; (ahead + size).saturating_sub(count)];
                if fill(socket, &mut missing, 0).is_none() || send_all(socket, &[0]).is_none() {
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

/// Reads until `buffer` is full, of which `have` octets are there. None at the end of the stream or an error.
#[inline]
fn fill(socket: BorrowedFd<'_>, buffer: &mut [u8], mut have: usize) -> Option<()> {
    while have < buffer.len() {
        match socket::recv(socket, &mut buffer[have..], Wait::Block) {
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
        sent += socket::send(socket, &octets[sent..], Wait::Block).ok()?;
    }
    Some(())
}

/// Threads that block in one `epoll_wait` and serve whatever connection has a request.
struct Pool {
    epoll: Epoll,
    /// Told to end the threads.
    end: Wake,
    /// Indexed by token. A connection's place is never used again: a benchmark has few.
    connections: Vec<OnceLock<Watched>>,
    used: AtomicUsize,
}

/// A connection of the pool. `taken` is set while a thread reads a request, so that a second edge of the same request
/// brings nobody else into it.
struct Watched {
    socket: OwnedFd,
    sizes: Sizes,
    taken: AtomicBool,
}

/// More connections than this are refused.
const MOST_CONNECTIONS: usize = 1024;

/// The token of [`Pool::end`].
const END: u64 = u64::MAX;

impl Pool {
    fn start(threads: usize) -> io::Result<Arc<Self>> {
        let pool = Arc::new(Pool {
            epoll: Epoll::new()?,
            end: Wake::new()?,
            connections: (0..MOST_CONNECTIONS).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
        });
        pool.epoll.add(pool.end.as_fd(), END, Interest::READABLE)?;
        for index in 0..threads.max(1) {
            let pool = pool.clone();
            Builder::new().name(format!("floor/{index}")).spawn(move || pool.work())?;
        }
        Ok(pool)
    }

    fn watch(&self, socket: OwnedFd, sizes: Sizes) {
        let index = self.used.fetch_add(1, Ordering::Relaxed);
        let Some(place) = self.connections.get(index) else { return };
        let watched = place.get_or_init(|| Watched { socket, sizes, taken: AtomicBool::new(false) });
        if self.epoll.add(watched.socket.as_fd(), index as u64, Interest::READABLE | Interest::EDGE).is_err() {
            // The client sees the end of the stream.
            let _ = socket::shutdown(watched.socket.as_fd(), Shutdown::Both);
        }
    }

    /// A thread's whole work.
    fn work(&self) {
        let mut events = [Event::EMPTY; 1];
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

/// Buffers keep their largest size, so that steady exchanges allocate nothing.
fn grow(buffer: &mut Vec<u8>, size: usize) {
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
}

impl Watched {
    /// Reads one request and answers it. A client sends the next one after the reply only.
    #[inline]
    fn answer(&self, request: &mut [u8], reply: &[u8]) {
        // Acquire and release: what the connection's last reader did comes before what the next one does.
        if self.taken.swap(true, Ordering::Acquire) {
            return;
        }
        let socket = self.socket.as_fd();
        let read = match socket::recv(socket, request, Wait::Now) {
            Ok(0) | Err(_) => None,
            Ok(count) => fill(socket, request, count),
        };
        self.taken.store(false, Ordering::Release);
        if read.is_some() {
            // A failure shows at the client.
            let _ = send_all(socket, reply);
        }
    }
}
