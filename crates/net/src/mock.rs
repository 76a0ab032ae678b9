//! A transport inside the process, for tests. Its streams have no descriptor, so a test over it
//! shows that the tested code needs none. Its endpoints are Unix socket paths below `/mock/`.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{Condvar, LockScope, Mutex, MutexGuard};

use crate::{
    ConnectionProperties, Endpoint, Listener, Peer, ReadinessCallback, ShutdownDirection, Stream, Transport, WaitLimit,
};

const PATH_PREFIX: &str = "/mock";
const PIPE_CAPACITY: usize = 64 * 1024;

/// A transport between threads of this process.
#[derive(Debug)]
pub struct MockTransport(Mutex<HashMap<PathBuf, Weak<AcceptQueue>>>);

impl Default for MockTransport {
    fn default() -> Self {
        MockTransport(Mutex::new("mock listeners", LockScope::Orb, HashMap::new()))
    }
}

impl MockTransport {
    fn path(endpoint: &Endpoint) -> io::Result<&Path> {
        match endpoint {
            Endpoint::Unix { path } if path.starts_with(PATH_PREFIX) => Ok(path),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{endpoint} is not an endpoint of the mock transport"),
            )),
        }
    }
}

impl Transport for MockTransport {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        MockTransport::path(endpoint).is_ok()
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        _properties: &ConnectionProperties,
        _deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        let door = self.0.lock().get(MockTransport::path(endpoint)?).and_then(Weak::upgrade);
        let door = door.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (there, back) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
        door.waiting.lock().push_back(MockStream::new(Arc::clone(&there), Arc::clone(&back)));
        door.wake.notify();
        Ok(Box::new(MockStream::new(back, there)))
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let path = MockTransport::path(endpoint)?;
        let mut doors = self.0.lock();
        if doors.get(path).is_some_and(|door| door.strong_count() > 0) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let waiting = Mutex::new("mock connections", LockScope::Lane, VecDeque::new());
        let door = Arc::new(AcceptQueue { waiting, wake: EventFd::new()?, local: endpoint.clone() });
        doors.insert(path.to_owned(), Arc::downgrade(&door));
        Ok(Box::new(MockListener(door)))
    }
}

#[derive(Debug)]
struct AcceptQueue {
    waiting: Mutex<VecDeque<MockStream>>,
    wake: EventFd,
    local: Endpoint,
}

#[derive(Debug)]
struct MockListener(Arc<AcceptQueue>);

impl Listener for MockListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let mut waiting = self.0.waiting.lock();
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.0.wake.take_notifications();
        }
        next.map(|stream| Box::new(stream) as Box<dyn Stream>).ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn readiness_descriptor(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    fn local_endpoint(&self) -> &Endpoint {
        &self.0.local
    }
}

struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
enum PipeEnd {
    Reader,
    Writer,
}

#[derive(Default)]
struct PipeState {
    octets: VecDeque<u8>,
    reader: Option<ReadinessCallback>,
    writer: Option<ReadinessCallback>,
    ended: bool,
    abandoned: bool,
}

impl Default for Pipe {
    fn default() -> Self {
        Pipe { state: Mutex::new("mock pipe", LockScope::Connection, PipeState::default()), changed: Condvar::new() }
    }
}

impl Pipe {
    /// Calls `work` until it returns a result or the wait ends. After a result, wakes the threads
    /// that wait on the pipe, and calls the callback of the end `other`.
    fn when<T>(
        &self,
        other: PipeEnd,
        wait: WaitLimit,
        coarse: Duration,
        mut work: impl FnMut(&mut PipeState) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let deadline = match wait {
            WaitLimit::Until(deadline) => Some(deadline),
            WaitLimit::Block if coarse > Duration::ZERO && coarse < Duration::MAX => Some(Monotonic::now() + coarse),
            WaitLimit::Block | WaitLimit::Now => None,
        };
        let mut state = self.state.lock();
        let mut in_time = true;
        loop {
            if let Some(result) = work(&mut state) {
                self.tell(state, other);
                return result;
            }
            if wait == WaitLimit::Now {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if !in_time {
                return Err(io::ErrorKind::TimedOut.into());
            }
            (state, in_time) = self.changed.wait_until(state, deadline);
        }
    }

    fn change(&self, other: PipeEnd, change: impl FnOnce(&mut PipeState)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.tell(state, other);
    }

    fn tell(&self, state: MutexGuard<'_, PipeState>, end: PipeEnd) {
        let report = match end {
            PipeEnd::Reader => state.reader.clone(),
            PipeEnd::Writer => state.writer.clone(),
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
    timeouts: Mutex<(Duration, Duration)>,
}

impl MockStream {
    fn new(incoming: Arc<Pipe>, outgoing: Arc<Pipe>) -> Self {
        let timeouts = Mutex::new("mock time-outs", LockScope::Connection, (Duration::ZERO, Duration::ZERO));
        MockStream { incoming, outgoing, timeouts }
    }
}

impl Stream for MockStream {
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        let coarse = self.timeouts.lock().0;
        self.incoming.when(PipeEnd::Writer, wait, coarse, |state| {
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

    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        let coarse = self.timeouts.lock().1;
        self.outgoing.when(PipeEnd::Reader, wait, coarse, |state| {
            if state.ended || state.abandoned {
                return Some(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let room = PIPE_CAPACITY - state.octets.len();
            let before = state.octets.len();
            state.octets.extend(slices.iter().flat_map(|slice| slice.iter()).take(room));
            let sent = state.octets.len() - before;
            (sent > 0).then_some(Ok(sent))
        })
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn set_readiness_callback(&self, report: ReadinessCallback) -> bool {
        self.incoming.state.lock().reader = Some(Arc::clone(&report));
        self.outgoing.state.lock().writer = Some(Arc::clone(&report));
        report();
        true
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        *self.timeouts.lock() = (receive, send);
        Ok(())
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        self.outgoing.change(PipeEnd::Reader, |state| state.ended = true);
        if direction == ShutdownDirection::Both {
            self.incoming.change(PipeEnd::Writer, |state| {
                state.abandoned = true;
                state.octets.clear();
            });
        }
    }

    fn peer(&self) -> &Peer {
        &Peer::Unknown
    }

    fn is_peer_local(&self) -> bool {
        true
    }
}

impl Drop for MockStream {
    fn drop(&mut self) {
        self.shutdown(ShutdownDirection::Both);
    }
}
