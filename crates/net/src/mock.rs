//! A transport inside the process whose streams have no descriptor, for tests: what works over it works over shared memory or a
//! polled network card too.
//!
//! Its endpoints are Unix socket paths below `/mock/`, so it can stand beside the real transports; each [`Mock`] is a network of its
//! own. Listeners do have a descriptor: accepting is nobody's hot path.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Condvar, Mutex, MutexGuard, Scope};

use crate::{Endpoint, Half, Listener, Peer, Properties, Report, Stream, Transport, Wait};

/// What the paths of its endpoints begin with.
const BELOW: &str = "/mock";
/// Octets that one direction of a connection holds.
const ROOM: usize = 64 * 1024;

/// A network inside the process.
#[derive(Debug)]
pub struct Mock(Mutex<HashMap<PathBuf, Weak<Door>>>);

impl Default for Mock {
    fn default() -> Self {
        Mock(Mutex::new("mock listeners", Scope::Orb, HashMap::new()))
    }
}

impl Mock {
    fn path(endpoint: &Endpoint) -> io::Result<&Path> {
        match endpoint {
            Endpoint::Unix { path } if path.starts_with(BELOW) => Ok(path),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint} is no endpoint of the mock"))),
        }
    }
}

impl Transport for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn serves(&self, endpoint: &Endpoint) -> bool {
        Mock::path(endpoint).is_ok()
    }

    fn connect_with(
        &self,
        endpoint: &Endpoint,
        _properties: &Properties,
        _deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let door = self.0.lock().get(Mock::path(endpoint)?).and_then(Weak::upgrade);
        let door = door.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (there, back) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
        door.waiting.lock().push_back(MockStream::new(Arc::clone(&there), Arc::clone(&back)));
        door.wake.notify();
        Ok(Box::new(MockStream::new(back, there)))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let path = Mock::path(endpoint)?;
        let mut doors = self.0.lock();
        if doors.get(path).is_some_and(|door| door.strong_count() > 0) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let waiting = Mutex::new("mock connections", Scope::Lane, VecDeque::new());
        let door = Arc::new(Door { waiting, wake: Wake::new()?, local: endpoint.clone() });
        doors.insert(path.to_owned(), Arc::downgrade(&door));
        Ok(Box::new(MockListener(door)))
    }
}

/// Where connections wait to be accepted.
#[derive(Debug)]
struct Door {
    waiting: Mutex<VecDeque<MockStream>>,
    wake: Wake,
    local: Endpoint,
}

#[derive(Debug)]
struct MockListener(Arc<Door>);

impl Listener for MockListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let mut waiting = self.0.waiting.lock();
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.0.wake.drain();
        }
        next.map(|stream| Box::new(stream) as Box<dyn Stream>).ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    fn local(&self) -> &Endpoint {
        &self.0.local
    }
}

/// One direction of a connection.
struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
enum End {
    Reader,
    Writer,
}

#[derive(Default)]
struct PipeState {
    octets: VecDeque<u8>,
    /// Who is told that there is something to read.
    reader: Option<Report>,
    /// Who is told that there is room.
    writer: Option<Report>,
    /// Nothing more is written.
    ended: bool,
    /// Nothing more is read.
    abandoned: bool,
}

impl Default for Pipe {
    fn default() -> Self {
        Pipe { state: Mutex::new("mock pipe", Scope::Connection, PipeState::default()), changed: Condvar::new() }
    }
}

impl Pipe {
    /// Does `work` as soon as it comes to something, and tells the other end.
    fn when<T>(
        &self,
        other: End,
        wait: Wait,
        coarse: Duration,
        mut work: impl FnMut(&mut PipeState) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let deadline = match wait {
            Wait::Until(deadline) => Some(deadline),
            Wait::Block if coarse > Duration::ZERO && coarse < Duration::MAX => Some(Monotonic::now() + coarse),
            Wait::Block | Wait::Now => None,
        };
        let mut state = self.state.lock();
        let mut in_time = true;
        loop {
            if let Some(result) = work(&mut state) {
                self.tell(state, other);
                return result;
            }
            if wait == Wait::Now {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if !in_time {
                return Err(io::ErrorKind::TimedOut.into());
            }
            (state, in_time) = self.changed.wait_until(state, deadline);
        }
    }

    fn change(&self, other: End, change: impl FnOnce(&mut PipeState)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.tell(state, other);
    }

    /// Something has changed that concerns `end`.
    fn tell(&self, state: MutexGuard<'_, PipeState>, end: End) {
        let report = match end {
            End::Reader => state.reader.clone(),
            End::Writer => state.writer.clone(),
        };
        drop(state);
        self.changed.notify_all();
        if let Some(report) = report {
            report();
        }
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct MockStream {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    /// Coarse time-outs for receiving and sending.
    timeouts: Mutex<(Duration, Duration)>,
}

impl MockStream {
    fn new(incoming: Arc<Pipe>, outgoing: Arc<Pipe>) -> Self {
        let timeouts = Mutex::new("mock time-outs", Scope::Connection, (Duration::ZERO, Duration::ZERO));
        MockStream { incoming, outgoing, timeouts }
    }
}

impl Stream for MockStream {
    fn recv(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let coarse = self.timeouts.lock().0;
        self.incoming.when(End::Writer, wait, coarse, |state| {
            if state.octets.is_empty() {
                return (state.ended || state.abandoned).then_some(Ok(0));
            }
            let count = buffer.len().min(state.octets.len());
            for (place, octet) in buffer.iter_mut().zip(state.octets.drain(..count)) {
                *place = octet;
            }
            Some(Ok(count))
        })
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: Wait) -> io::Result<usize> {
        let coarse = self.timeouts.lock().1;
        self.outgoing.when(End::Reader, wait, coarse, |state| {
            if state.ended || state.abandoned {
                return Some(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let room = ROOM - state.octets.len();
            let before = state.octets.len();
            state.octets.extend(slices.iter().flat_map(|slice| slice.iter()).take(room));
            let sent = state.octets.len() - before;
            (sent > 0).then_some(Ok(sent))
        })
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn report_to(&self, report: Report) -> bool {
        self.incoming.state.lock().reader = Some(Arc::clone(&report));
        self.outgoing.state.lock().writer = Some(Arc::clone(&report));
        report();
        true
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        *self.timeouts.lock() = (receive, send);
        Ok(())
    }

    fn shutdown(&self, half: Half) {
        self.outgoing.change(End::Reader, |state| state.ended = true);
        if half == Half::Both {
            self.incoming.change(End::Writer, |state| {
                state.abandoned = true;
                state.octets.clear();
            });
        }
    }

    fn peer(&self) -> &Peer {
        &Peer::Unknown
    }
}

impl Drop for MockStream {
    fn drop(&mut self) {
        self.shutdown(Half::Both);
    }
}
