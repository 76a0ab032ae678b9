//! A connection that several calls use at a time, unlike those that a call has for itself.
//!
//! Whoever calls writes its request while it has the sending end for itself, and waits for its entry of the request table. A
//! thread of the ORB's (`replies.rs`) reads the replies and completes the entries, in whatever order they come.

use std::io::{self, IoSlice};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane_net::{Endpoint, Half, Stream, Wait};
use corelane_sys::buffer::Spares;
use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::Wake;
use corelane_sys::gate::Gate;
use corelane_sys::lock::{Exclusive, ExclusiveGuard, PiMutex, Scope};
use corelane_wire::connection::{Answered, Framer, Initiative, RequestTable, Step};
use corelane_wire::giop::{self, Header, MessageKind};
use corelane_wire::{CodeSets, Encoder, Limits, Octets};

use super::connection::{Broken, no_slices};
use super::replies::Place;
use crate::cancel::Canceller;
use crate::fault::Fault;
use crate::invocation::machine::Written;
use crate::receive::{KEPT, ReceiveBuffer};
use crate::server::serving;

/// Requests of one connection that wait for their replies at most.
const MOST: u32 = 1 << 16;
/// Octets of replies that are read in one go before other connections have a turn.
const BURST: usize = 256 << 10;

/// One connection, its requests and their replies.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    stream: Box<dyn Stream>,
    endpoint: Endpoint,
    sending: Exclusive<Sending>,
    /// Where those wait who want to send.
    gate: Arc<Gate>,
    /// Callers of all priorities of a band take it, and the reader.
    requests: PiMutex<Requests>,
    /// The reader's.
    reading: Exclusive<Reading>,
    /// The end of a message is still to be sent.
    behind: AtomicBool,
    /// Where the reader finds it.
    place: OnceLock<Place>,
    /// The server has been told which band of priorities it carries, if it is one's.
    is_bound: AtomicBool,
    forks: u64,
    /// Of the ORB.
    spares: Spares,
}

/// What a sender has for itself.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Memory of the last request, for the next one.
    pub(crate) memory: Vec<u8>,
    /// The code sets announced to the server.
    pub(crate) announced: Option<CodeSets>,
    /// A message whose sender had no more time, and how much of it is out: it goes on before anything else does.
    rest: Vec<u8>,
    sent: usize,
    /// How much was out when that was last looked at, and since when it has been so much.
    seen: Option<(usize, Monotonic)>,
}

/// The sending end, which the holder has for itself.
pub(crate) struct Sender<'m> {
    sending: ExclusiveGuard<'m, Sending>,
    /// Goes after `sending` has been given back.
    _behind: Behind<'m>,
}

/// If the end of a message is still to be sent, the reader of the connection does that when there is room.
struct Behind<'m>(&'m Multiplexed);

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        if self.0.behind.load(Ordering::Acquire) {
            self.0.watch_room(true);
        }
    }
}

impl Deref for Sender<'_> {
    type Target = Sending;

    fn deref(&self) -> &Sending {
        &self.sending
    }
}

impl DerefMut for Sender<'_> {
    fn deref_mut(&mut self) -> &mut Sending {
        &mut self.sending
    }
}

#[derive(Debug)]
struct Requests {
    waiting: RequestTable<Arc<Pending>>,
    /// A fault of the server's has been told of.
    told: bool,
    /// The connection takes no more.
    over: bool,
    /// One was entered since it was last asked how long there has been none.
    used: bool,
    idle_since: Monotonic,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Nothing is there any more: the next octets are reported.
    Dry,
    /// There may be more.
    More,
    /// The connection is over.
    Over,
}

#[derive(Debug)]
struct Reading {
    framer: Framer,
    received: ReceiveBuffer,
}

/// A request whose reply is still to come.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The caller's, and for a moment the reader's, whose other callers may be more urgent.
    state: PiMutex<State>,
    done: Gate,
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
    pub(crate) fn new(stream: Box<dyn Stream>, endpoint: &Endpoint, spares: &Spares, is_bound: bool) -> Self {
        let gate = Arc::new(Gate::new("shared connection"));
        let idle_since = Monotonic::from_nanos(0);
        let memory = Vec::with_capacity(1024);
        let sending = Sending { memory, announced: None, rest: Vec::new(), sent: 0, seen: None };
        let waiting = RequestTable::new(Initiative::Ours, MOST);
        let reading = Reading { framer: Framer::new(), received: ReceiveBuffer::new() };
        Multiplexed {
            stream,
            endpoint: endpoint.clone(),
            sending: Exclusive::new("sending end", Scope::Connection, sending).with_gate(Arc::clone(&gate)),
            gate,
            requests: PiMutex::new(
                "request table",
                Scope::Connection,
                Requests { waiting, told: false, over: false, used: true, idle_since },
            ),
            reading: Exclusive::new("replies", Scope::Connection, reading),
            behind: AtomicBool::new(false),
            place: OnceLock::new(),
            is_bound: AtomicBool::new(is_bound),
            spares: spares.clone(),
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
    pub(crate) fn sender(&self, deadline: Option<Monotonic>) -> Option<Sender<'_>> {
        self.try_sender().or_else(|| self.gate.wait(deadline, || self.try_sender()))
    }

    fn try_sender(&self) -> Option<Sender<'_>> {
        self.sending.try_lock().map(|sending| Sender { sending, _behind: Behind(self) })
    }

    /// Enters a request in the table.
    pub(crate) fn register(&self) -> Result<(u32, Arc<Pending>), NoPlace> {
        let state = PiMutex::new("reply", Scope::Connection, State::Waiting(None));
        let pending = Arc::new(Pending { state, done: Gate::new("reply") });
        let mut requests = self.requests.lock();
        if requests.over {
            return Err(NoPlace::Over);
        }
        requests.used = true;
        match requests.waiting.insert(Arc::clone(&pending)) {
            Ok(id) => Ok((id, pending)),
            // The server leaves requests unanswered: the next ones take another connection.
            Err(_) if requests.waiting.forgotten() > 0 => {
                requests.over = true;
                Err(NoPlace::Over)
            }
            Err(_) => Err(NoPlace::Full),
        }
    }

    /// No reply will come: the request was not sent, or wants none.
    pub(crate) fn unregister(&self, id: u32) {
        let request = self.requests.lock().waiting.remove(id);
        drop(request);
    }

    /// Nobody waits for the reply any longer; it may still come.
    pub(crate) fn forget(&self, id: u32) {
        let request = self.requests.lock().waiting.forget(id);
        drop(request);
    }

    /// Whether the caller is the first to tell of the fault with which the connection ended.
    #[cold]
    pub(crate) fn tells_fault(&self) -> bool {
        !std::mem::replace(&mut self.requests.lock().told, true)
    }

    /// Sends a finished message until `deadline`.
    ///
    /// # Errors
    /// How much of it went out, and why no more. A message of which a part is out when the time is over goes on later, because others
    /// use the connection: it counts as out.
    pub(crate) fn send(
        &self,
        sender: &mut Sender<'_>,
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
        let wait = deadline.map_or(Wait::Block, Wait::Until);
        self.send_rest(sender, wait).map_err(|error| (written, error.into()))?;
        while !left.is_empty() {
            match self.stream.send_vectored(left, wait) {
                Ok(sent) => {
                    IoSlice::advance_slices(&mut left, sent);
                    written = Written::Part;
                }
                Err(error) if error.kind() != io::ErrorKind::TimedOut => {
                    self.close_sending();
                    return Err((written, error.into()));
                }
                Err(_) if written == Written::Nothing => return Err((written, Broken::TimedOut)),
                Err(_) => {
                    self.send_later(sender, left.iter().map(|slice| &**slice));
                    return Err((Written::Whole, Broken::TimedOut));
                }
            }
        }
        Ok(())
    }

    /// Keeps the end of a message that has begun.
    #[cold]
    fn send_later<'o>(&self, sender: &mut Sender<'_>, left: impl Iterator<Item = &'o [u8]>) {
        left.for_each(|octets| sender.rest.extend_from_slice(octets));
        self.behind.store(true, Ordering::Release);
    }

    /// Sends what is left of an earlier message.
    fn send_rest(&self, sender: &mut Sender<'_>, wait: Wait) -> io::Result<()> {
        if sender.rest.is_empty() {
            return Ok(());
        }
        while let Some(left) = sender.rest.get(sender.sent..).filter(|left| !left.is_empty()) {
            match self.stream.send(left, wait) {
                Ok(sent) => sender.sent += sent,
                Err(error) => {
                    if !matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) {
                        self.behind.store(false, Ordering::Release);
                        self.close_sending();
                    }
                    return Err(error);
                }
            }
        }
        (sender.rest, sender.sent, sender.seen) = (Vec::new(), 0, None);
        self.behind.store(false, Ordering::Release);
        self.watch_room(false);
        Ok(())
    }

    /// There may be room for what is left of a message. Whoever has the sending end sees to it otherwise.
    #[cold]
    pub(super) fn go_on_sending(&self) {
        if let Some(mut sender) = self.try_sender() {
            // What failed has ended the connection; the reader finds its end.
            let _ = self.send_rest(&mut sender, Wait::Now);
        }
    }

    #[cold]
    fn watch_room(&self, wanted: bool) {
        let watched = self.place.get().zip(self.stream.readiness()).map(|(place, fd)| place.watch_room(fd, wanted));
        if !matches!(watched, Some(Ok(()))) && wanted {
            self.close_sending();
        }
    }

    /// Tells the server that the reply to `id` is not wanted any more: a hint, if there is room for it at once.
    pub(crate) fn cancel(&self, id: u32, version: corelane_wire::Version) {
        self.forget(id);
        let Some(mut sender) = self.try_sender() else { return };
        if self.send_rest(&mut sender, Wait::Now).is_err() {
            return;
        }
        let mut cancel = Encoder::new();
        giop::write_cancel_request(&mut cancel, version, id);
        let octets: Vec<u8> = cancel.slices().flatten().copied().collect();
        match self.stream.send(&octets, Wait::Now) {
            Ok(sent) if sent == octets.len() => {}
            Ok(sent) => self.send_later(&mut sender, octets.get(sent..).into_iter()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.close_sending(),
        }
    }

    /// Ends the connection if nobody has used it for `idle`, or the server has taken nothing of what is left of a message, in steps of how
    /// often this is asked, and gives back memory that large requests took. True when it has ended.
    #[cold]
    pub(crate) fn tidy(&self, now: Monotonic, idle: Duration) -> bool {
        if self.is_stuck(now, idle) {
            self.end(&Lost::Io(io::ErrorKind::TimedOut));
            return true;
        }
        let mut requests = self.requests.lock();
        if std::mem::take(&mut requests.used) || !requests.waiting.is_empty() || self.behind.load(Ordering::Acquire) {
            requests.idle_since = now;
            return requests.over;
        }
        if !requests.over && now.since(requests.idle_since) < idle {
            drop(requests);
            if let Some(mut sender) = self.try_sender()
                && sender.memory.capacity() > KEPT
            {
                sender.memory = Vec::new();
            }
            return false;
        }
        // Whoever was about to enter a request is told, and takes another connection.
        requests.over = true;
        drop(requests);
        self.stream.shutdown(Half::Both);
        true
    }

    fn is_stuck(&self, now: Monotonic, time: Duration) -> bool {
        // Whoever has the sending end sends.
        let Some(mut sender) = self.try_sender().filter(|_| self.behind.load(Ordering::Acquire)) else { return false };
        match sender.seen {
            Some((sent, since)) if sent == sender.sent => now.since(since) >= time,
            _ => {
                sender.seen = Some((sender.sent, now));
                false
            }
        }
    }

    /// Nothing can follow what was sent, half a message perhaps. What the server still has to say, CloseConnection above all, is read
    /// to the end, which then ends the requests that wait.
    #[cold]
    fn close_sending(&self) {
        self.requests.lock().over = true;
        self.stream.shutdown(Half::Write);
    }

    /// There is something to read: completes the requests whose replies have come.
    pub(crate) fn read(&self, limits: &Limits) -> Read {
        // One thread reads.
        let Some(mut reading) = self.reading.try_lock() else { return Read::Dry };
        self.read_some(&mut reading, limits).unwrap_or_else(|lost| {
            self.end(&lost);
            Read::Over
        })
    }

    /// Reads until nothing is there any more, or others are to have a turn.
    fn read_some(&self, reading: &mut Reading, limits: &Limits) -> Result<Read, Lost> {
        let Reading { framer, received } = reading;
        let mut read = 0;
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
            if received.is_empty() && received.capacity() > KEPT {
                *received = ReceiveBuffer::new();
            }
            if read >= BURST {
                return Ok(Read::More);
            }
            match self.stream.recv(received.room(wanted, &self.spares), Wait::Now) {
                Ok(0) => return Err(Lost::Io(io::ErrorKind::UnexpectedEof)),
                Ok(count) => {
                    read += count;
                    received.filled(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::Dry),
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
        let mut requests = self.requests.lock();
        let answered = requests.waiting.answer(id);
        drop(requests);
        match answered {
            Answered::Waiting(pending) => pending.complete(Ok(arrived)),
            // A reply that nobody waits for any more is skipped.
            Answered::Forgotten => {}
            Answered::Unasked => return Err(Lost::Fault(Fault::Unexpected(header.kind))),
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
        self.done.open();
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
        // Where there is no descriptor to be had, the reply alone is waited for.
        if (serving::is_serving() || canceller.is_some())
            && let Ok(Some(bell)) = self.bell()
        {
            let _ = serving::until_readable(bell.as_fd(), deadline, canceller);
            if let Some(Err(Broken::Cancelled)) = canceller.map(|other| other.wait_beside(bell.as_fd(), deadline)) {
                return Err(Broken::Cancelled);
            }
        }
        if !self.is_done() {
            self.done.wait(deadline, || self.is_done().then_some(()));
        }
        match std::mem::replace(&mut *self.state.lock(), State::Taken) {
            State::Done(outcome) => outcome.map_err(Broken::from),
            // The first to ask has it.
            State::Waiting(_) | State::Taken => Err(Broken::TimedOut),
        }
    }

    /// A descriptor that becomes readable with the reply; nothing if that is here already.
    fn bell(&self) -> io::Result<Option<Arc<Wake>>> {
        let made = Arc::new(Wake::new()?);
        Ok(self.ring(&made).then_some(made))
    }

    /// Has `bell`, and no other one, rung with the reply; false if that is here already.
    pub(crate) fn ring(&self, bell: &Arc<Wake>) -> bool {
        match &mut *self.state.lock() {
            State::Waiting(waiting) => {
                *waiting = Some(Arc::clone(bell));
                true
            }
            State::Done(_) | State::Taken => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use corelane_net::Peer;

    use super::*;
    use crate::lending::lends;

    /// A server that answers, without end, the requests that were made of it in the order of their ids.
    #[derive(Debug)]
    struct Endless(AtomicU32);

    const REPLY: &[u8; 24] = b"GIOP\x01\x02\x01\x01\x0c\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0";

    impl Stream for Endless {
        fn recv(&self, buffer: &mut [u8], _: Wait) -> io::Result<usize> {
            let whole = buffer.chunks_exact_mut(REPLY.len()).map(|reply| {
                reply.copy_from_slice(REPLY);
                reply[12..16].copy_from_slice(&self.0.fetch_add(2, Ordering::Relaxed).to_le_bytes());
            });
            Ok(whole.count() * REPLY.len())
        }

        fn send_vectored(&self, _: &[IoSlice<'_>], _: Wait) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn readiness(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }

        fn set_coarse_timeouts(&self, _: Duration, _: Duration) -> io::Result<()> {
            Ok(())
        }

        fn shutdown(&self, _: Half) {}

        fn peer(&self) -> &Peer {
            &Peer::Unknown
        }
    }

    #[test]
    fn a_server_that_sends_without_end_leaves_others_their_turn() {
        let calls = 40_000;
        let first = 1 << 17;
        let connection =
            Multiplexed::new(Box::new(Endless(first.into())), &Endpoint::tcp("127.0.0.1", 1), &Spares::new(), true);
        let ids: Vec<u32> = (0..calls).map(|_| connection.register().unwrap().0).collect();
        assert_eq!(ids[0], first);
        // Replies to calls that were given up.
        ids.into_iter().for_each(|id| connection.forget(id));
        for _ in 0..3 {
            assert_eq!(connection.read(&Limits::DEFAULT), Read::More);
        }
        // Then come some that nobody asked for.
        assert_eq!(connection.read(&Limits::DEFAULT), Read::Over);
        assert!(!connection.is_open());
    }

    #[test]
    fn a_connection_full_of_unanswered_requests_takes_no_more() {
        let connection =
            Multiplexed::new(Box::new(Endless(0.into())), &Endpoint::tcp("127.0.0.1", 1), &Spares::new(), true);
        let ids: Vec<u32> = (0..MOST).map(|_| connection.register().unwrap().0).collect();
        assert_eq!(connection.register().err(), Some(NoPlace::Full));
        connection.forget(ids[7]);
        assert_eq!(connection.register().err(), Some(NoPlace::Over));
        assert!(!connection.is_open());
    }

    /// Its callers may have any priority of a band: one that is preempted with the table or with its reply in its hands runs on for those
    /// who wait.
    #[test]
    fn who_waits_for_the_table_or_to_complete_a_reply_lends_its_priority() {
        let connection = || {
            Arc::new(Multiplexed::new(
                Box::new(Endless(0.into())),
                &Endpoint::tcp("127.0.0.1", 1),
                &Spares::new(),
                true,
            ))
        };
        let (own, other) = (connection(), connection());
        let callers = Arc::clone(&own);
        assert!(lends(
            move |held| {
                let _requests = own.requests.lock();
                held();
            },
            move || drop(callers.register())
        ));
        let (id, pending) = other.register().unwrap();
        let callers = Arc::clone(&pending);
        assert!(lends(
            move |held| {
                let _state = callers.state.lock();
                held();
            },
            move || pending.complete(Err(Lost::Io(io::ErrorKind::TimedOut)))
        ));
        other.forget(id);
    }
}
