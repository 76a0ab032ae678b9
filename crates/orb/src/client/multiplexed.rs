//! A connection that several calls use at a time: the second role of decision 1.
//!
//! Whoever calls writes its request while it has the sending end for itself, and waits for its entry of the request table. A
//! thread of the ORB's (`replies.rs`) reads the replies and completes the entries, in whatever order they come.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use corelane_net::{Endpoint, Half, Stream, Wait};
use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::Wake;
use corelane_sys::gate::Gate;
use corelane_sys::lock::{Condvar, Exclusive, ExclusiveGuard, Mutex, Scope};
use corelane_sys::turn::Turn;
use corelane_wire::connection::{Framer, Initiative, RequestTable, Step};
use corelane_wire::giop::{self, Header, MessageKind};
use corelane_wire::{CodeSets, Encoder, Limits, Octets};

use super::connection::{Broken, no_slices};
use super::replies::Place;
use crate::cancel::Canceller;
use crate::fault::Fault;
use crate::invocation::machine::Written;
use crate::receive::ReceiveBuffer;
use crate::server::serving;

/// Requests of one connection that wait for their replies at most.
const MOST: u32 = 1 << 16;

/// One connection, its requests and their replies.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    stream: Box<dyn Stream>,
    endpoint: Endpoint,
    sending: Exclusive<Sending>,
    /// Where those wait who want to send.
    gate: Arc<Gate>,
    requests: Mutex<Requests>,
    reading: Turn<Reading>,
    /// Where the reader finds it.
    place: OnceLock<Place>,
    /// The server has been told which band of priorities it carries, if it is one's.
    is_bound: AtomicBool,
    forks: u64,
}

/// What a sender has for itself.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Memory of the last request, for the next one.
    pub(crate) memory: Vec<u8>,
    /// The code sets announced to the server.
    pub(crate) announced: Option<CodeSets>,
}

#[derive(Debug)]
struct Requests {
    waiting: RequestTable<Arc<Pending>>,
    /// The connection takes no more.
    over: bool,
}

#[derive(Debug)]
struct Reading {
    framer: Framer,
    received: ReceiveBuffer,
}

/// A request whose reply is still to come.
#[derive(Debug)]
pub(crate) struct Pending {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug)]
enum State {
    /// Not here yet. A caller that waits for something else too has a bell.
    Waiting(Option<Arc<Wake>>),
    Done(Result<Arrived, Lost>),
    Taken,
}

/// Why a request cannot be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The connection has ended.
    Over,
    /// As many requests wait as may.
    Full,
}

/// A reply and where its octets are.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) header: Header,
    pub(crate) octets: Octets,
    /// Where GIOP 1.1 fragments begin.
    pub(crate) breaks: Vec<usize>,
}

/// Why the connection ended before a reply.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    Io(io::ErrorKind),
    /// The server broke the protocol, or said CloseConnection or MessageError.
    Fault(Fault),
}

impl From<Lost> for Broken {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Io(kind) => Broken::Io(kind.into()),
            Lost::Fault(fault) => Broken::Fault(fault),
        }
    }
}

impl Multiplexed {
    /// Over a new connection.
    pub(crate) fn new(stream: Box<dyn Stream>, endpoint: &Endpoint, is_bound: bool) -> Self {
        let gate = Arc::new(Gate::new("shared connection", Scope::Connection));
        let sending = Sending { memory: Vec::with_capacity(1024), announced: None };
        let waiting = RequestTable::new(Initiative::Ours, MOST);
        Multiplexed {
            stream,
            endpoint: endpoint.clone(),
            sending: Exclusive::new("sending end", Scope::Connection, sending).with_gate(Arc::clone(&gate)),
            gate,
            requests: Mutex::new("request table", Scope::Connection, Requests { waiting, over: false }),
            reading: Turn::new(Reading { framer: Framer::new(), received: ReceiveBuffer::new() }),
            place: OnceLock::new(),
            is_bound: AtomicBool::new(is_bound),
            forks: corelane_sys::process::generation(),
        }
    }

    /// Notes where the reader finds it.
    pub(super) fn keep(&self, place: Place) {
        // Once: a connection has one reader.
        let _ = self.place.set(place);
    }

    /// Whether its band is still to be declared.
    pub(crate) fn is_unbound(&self) -> bool {
        !self.is_bound.load(Ordering::Acquire)
    }

    /// The server knows its band, or knows nothing of bands. Of two threads that find this out both are right.
    pub(crate) fn bound(&self) {
        self.is_bound.store(true, Ordering::Release);
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn stream(&self) -> &dyn Stream {
        &*self.stream
    }

    /// Whether it takes further requests.
    pub(crate) fn is_open(&self) -> bool {
        !self.requests.lock().over
    }

    /// The sending end, for one request; `None` if others have it until `deadline`.
    pub(crate) fn sender(&self, deadline: Option<Monotonic>) -> Option<ExclusiveGuard<'_, Sending>> {
        self.sending.try_lock().or_else(|| self.gate.wait(deadline, || self.sending.try_lock()))
    }

    /// Enters a request in the table.
    pub(crate) fn register(&self) -> Result<(u32, Arc<Pending>), NoPlace> {
        let state = Mutex::new("reply", Scope::Connection, State::Waiting(None));
        let pending = Arc::new(Pending { state, done: Condvar::new() });
        let mut requests = self.requests.lock();
        if requests.over {
            return Err(NoPlace::Over);
        }
        let id = requests.waiting.insert(Arc::clone(&pending)).map_err(|_| NoPlace::Full)?;
        Ok((id, pending))
    }

    /// Nobody waits for the reply any longer.
    pub(crate) fn forget(&self, id: u32) {
        self.requests.lock().waiting.remove(id);
    }

    /// Sends a finished message until `deadline`.
    pub(crate) fn send(
        &self,
        message: &Encoder<'_>,
        deadline: Option<Monotonic>,
        fragments: Option<Vec<u8>>,
    ) -> Result<(), (Written, Broken)> {
        let mut list = no_slices();
        let mut left = match &fragments {
            Some(fragments) => {
                list[0] = IoSlice::new(fragments);
                &mut list[..1]
            }
            None => message.gather(&mut list, IoSlice::new),
        };
        let mut written = Written::Nothing;
        while !left.is_empty() {
            match self.stream.send_vectored(left, deadline.map_or(Wait::Block, Wait::Until)) {
                Ok(sent) => {
                    IoSlice::advance_slices(&mut left, sent);
                    written = Written::Part;
                }
                Err(error) => {
                    if written == Written::Part || error.kind() != io::ErrorKind::TimedOut {
                        self.close_sending();
                    }
                    return Err((written, error.into()));
                }
            }
        }
        Ok(())
    }

    /// Tells the server that the reply to `id` is not wanted any more: a hint, if there is room for it at once.
    pub(crate) fn cancel(&self, id: u32, version: corelane_wire::Version) {
        self.forget(id);
        let Some(_sender) = self.sending.try_lock() else { return };
        let mut cancel = Encoder::new();
        giop::write_cancel_request(&mut cancel, version, id);
        let mut list = no_slices();
        match self.stream.send_vectored(cancel.gather(&mut list, IoSlice::new), Wait::Now) {
            Ok(sent) if sent == cancel.len() => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.close_sending(),
        }
    }

    /// Nothing can follow what was sent, half a message perhaps. What the server still has to say, CloseConnection above all, is read
    /// to the end, which then ends the requests that wait.
    #[cold]
    fn close_sending(&self) {
        self.requests.lock().over = true;
        self.stream.shutdown(Half::Write);
    }

    /// There is something to read: completes the requests whose replies have come. False when the connection is over.
    pub(crate) fn read(&self, limits: &Limits) -> bool {
        let mut turn = self.reading.enter();
        while let Some(mut mine) = turn {
            if let Err(lost) = mine.with(|reading| self.read_all(reading, limits)) {
                self.end(&lost);
                return false;
            }
            turn = mine.leave().err();
        }
        true
    }

    /// Reads until nothing is there any more.
    fn read_all(&self, reading: &mut Reading, limits: &Limits) -> Result<(), Lost> {
        let Reading { framer, received } = reading;
        loop {
            let wanted = match framer.next(received.unread(), limits).map_err(|fault| Lost::Fault(fault.into()))? {
                Step::Message { header, len } => {
                    let octets = Octets::copy_from(&received.unread()[..len]);
                    received.consume(len);
                    self.complete(Arrived { header, octets, breaks: Vec::new() }, limits)?;
                    continue;
                }
                Step::Assembled { header, message, breaks, len } => {
                    received.consume(len);
                    self.complete(Arrived { header, octets: Octets::from(message), breaks }, limits)?;
                    continue;
                }
                Step::Absorbed(len) => {
                    received.consume(len);
                    continue;
                }
                Step::NeedMore(wanted) => wanted,
            };
            match self.stream.recv(received.room(wanted), Wait::Now) {
                Ok(0) => return Err(Lost::Io(io::ErrorKind::UnexpectedEof)),
                Ok(count) => received.filled(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Lost::Io(error.kind())),
            }
        }
    }

    fn complete(&self, arrived: Arrived, limits: &Limits) -> Result<(), Lost> {
        let Arrived { header, octets, .. } = &arrived;
        let id = match header.kind {
            MessageKind::Reply => giop::Reply::parse(octets, header, limits).map(|reply| reply.request_id),
            MessageKind::LocateReply => giop::LocateReply::parse(octets, header).map(|reply| reply.request_id),
            kind => return Err(Lost::Fault(Fault::Unexpected(kind))),
        };
        let id = id.map_err(|error| Lost::Fault(error.into()))?;
        let pending = self.requests.lock().waiting.remove(id);
        // A reply that nobody waits for any more is skipped.
        if let Some(pending) = pending {
            pending.complete(Ok(arrived));
        }
        Ok(())
    }

    /// The connection is over: so is every request that waits.
    #[cold]
    pub(crate) fn end(&self, lost: &Lost) {
        let mut requests = self.requests.lock();
        requests.over = true;
        let waiting: Vec<_> = requests.waiting.drain().collect();
        drop(requests);
        self.stream.shutdown(Half::Both);
        for (_, pending) in waiting {
            pending.complete(Err(lost.clone()));
        }
    }
}

impl Drop for Multiplexed {
    fn drop(&mut self) {
        // In a forked child it is still the parent's connection.
        if corelane_sys::process::generation() == self.forks {
            self.stream.shutdown(Half::Both);
        }
    }
}

impl Pending {
    fn complete(&self, outcome: Result<Arrived, Lost>) {
        let mut state = self.state.lock();
        let State::Waiting(bell) = &mut *state else { return };
        let bell = bell.take();
        *state = State::Done(outcome);
        drop(state);
        self.done.notify_all();
        if let Some(bell) = bell {
            bell.notify();
        }
    }

    /// Whether waiting would return at once.
    pub(crate) fn is_done(&self) -> bool {
        !matches!(*self.state.lock(), State::Waiting(_))
    }

    /// Waits for the reply.
    pub(crate) fn wait(&self, deadline: Option<Monotonic>, canceller: Option<&Canceller>) -> Result<Arrived, Broken> {
        serving::let_others_read();
        if (serving::is_serving() || canceller.is_some())
            && let Some(bell) = self.bell()?
        {
            serving::until_readable(bell.as_fd(), deadline)?;
            if let Some(canceller) = canceller {
                canceller.wait_beside(bell.as_fd(), deadline)?;
            }
        }
        let mut state = self.state.lock();
        let mut in_time = true;
        while matches!(*state, State::Waiting(_)) && in_time {
            (state, in_time) = self.done.wait_until(state, deadline);
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(outcome) => outcome.map_err(Broken::from),
            // The first to ask has it.
            State::Waiting(_) | State::Taken => Err(Broken::TimedOut),
        }
    }

    /// A descriptor that becomes readable with the reply; nothing if that is here already.
    fn bell(&self) -> io::Result<Option<Arc<Wake>>> {
        let made = Arc::new(Wake::new()?);
        let mut state = self.state.lock();
        let State::Waiting(bell) = &mut *state else { return Ok(None) };
        *bell = Some(Arc::clone(&made));
        Ok(Some(made))
    }
}
