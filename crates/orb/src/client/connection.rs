//! The client's end of a connection: one request out, its reply in.
//!
//! The thread that calls is the thread that reads. Replies that belong to calls given up earlier are skipped.

use std::io::{self, IoSlice};
use std::sync::Weak;
use std::time::Duration;

use corelane_net::{Endpoint, Half, Peer, Stream, Wait};
use corelane_sys::buffer::{RESERVE_ABOVE, Spares};
use corelane_sys::clock::Monotonic;
use corelane_wire::cdr::MAX_SLICES;
use corelane_wire::connection::{Framer, Step};
use corelane_wire::giop::{self, Header, MessageKind};
use corelane_wire::{CodeSets, Encoder, Limits};

use super::pool::Pool;
use super::watch::Watched;
use crate::cancel::Canceller;
use crate::clock;
use crate::fault::Fault;
use crate::invocation::machine::Written;
use crate::orb::Core;
use crate::policy::Due;
use crate::receive::{KEPT, ReceiveBuffer};
use crate::server::serving;

/// Replies that may be outstanding from calls given up; past it the connection is worth less than a new one.
const ABANDONED: u32 = 8;

/// Replies from this size on are taken out of the connection's buffer, so that octet sequences can share their memory. Below it the
/// buffer is heap memory, which costs more to replace than its octets to copy.
pub(crate) const OWNED_FROM: usize = RESERVE_ABOVE;

/// A connection to a server, used by one call at a time.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    /// Its stream.
    watched: Watched,
    endpoint: Endpoint,
    /// Connections that are begun later have higher ones.
    pub(super) number: u64,
    framer: Framer,
    received: ReceiveBuffer,
    spares: Spares,
    /// Memory of the last request, for the next one.
    pub(crate) request_memory: Vec<u8>,
    abandoned: u32,
    /// The code sets announced to the server.
    pub(crate) announced: Option<CodeSets>,
    coarse: Duration,
    broken: bool,
    /// The server has been told which band of priorities it carries, if it is one's. One that has not is never given back.
    is_bound: bool,
    forks: u64,
    pub(super) held: Held,
}

/// Oneways that have not been sent yet.
#[derive(Debug, Default)]
pub(super) struct Held {
    octets: Vec<u8>,
    most: usize,
    since: Option<Monotonic>,
    /// The ORB's list has the connection.
    is_listed: bool,
}

/// Whether a message was held.
pub(super) enum Holding {
    /// There is no room.
    Refused,
    /// It was, and somebody will come by for it.
    Listed,
    /// It was, and the connection is to be listed.
    First,
}

impl Held {
    #[inline]
    pub(super) fn hold(&mut self, message: &[u8]) -> Holding {
        if self.octets.len() + message.len() > self.most {
            return Holding::Refused;
        }
        if self.octets.is_empty() {
            self.since = Some(clock::now());
        }
        self.octets.extend_from_slice(message);
        if std::mem::replace(&mut self.is_listed, true) { Holding::Listed } else { Holding::First }
    }
}

/// A whole message from the server.
#[derive(Debug)]
pub(crate) enum Received {
    /// At the front of the receive buffer, this long.
    InPlace(Header, usize),
    /// Put together from fragments.
    Assembled(Box<Whole>),
}

/// A message that came in fragments.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) header: Header,
    pub(crate) message: Vec<u8>,
    /// Where GIOP 1.1 fragments begin.
    pub(crate) breaks: Vec<usize>,
}

/// Why a request did not go out or no reply came.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The transport failed or the peer closed.
    Io(io::Error),
    /// The peer broke the protocol, or said CloseConnection or MessageError.
    Fault(Fault),
    /// The time is over.
    TimedOut,
    /// The caller's canceller says so.
    Cancelled,
}

impl From<io::Error> for Broken {
    #[cold]
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut { Broken::TimedOut } else { Broken::Io(error) }
    }
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Broken::Fault(fault)
    }
}

impl ClientConnection {
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        core: &Core,
        endpoint: &Endpoint,
        pool: Weak<Pool>,
        number: u64,
    ) -> io::Result<Self> {
        let band = pool.upgrade().map(|pool| pool.band());
        let is_bound = band.is_none_or(|band| band.range().is_none());
        // Who has a real-time priority is not to learn of the end later than others would tell.
        let watched = core.watch(stream, pool, band.is_some_and(|band| band.is_real_time()))?;
        Ok(ClientConnection {
            watched,
            endpoint: endpoint.clone(),
            number,
            framer: Framer::new(),
            received: ReceiveBuffer::new(),
            spares: core.spares().clone(),
            request_memory: Vec::with_capacity(1024),
            abandoned: 0,
            announced: None,
            coarse: Duration::ZERO,
            broken: false,
            is_bound,
            forks: corelane_sys::process::generation(),
            held: Held::default(),
        })
    }

    /// Whether the next call may use it.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.broken && self.is_bound && !self.watched.hung_up()
    }

    /// Whether the next call may use it at once, one that `awaits` a reply or does not: it owes no reply to a call given up, and its number is
    /// from `since` on.
    #[inline]
    pub(super) fn takes(&mut self, since: u64, awaits: bool) -> bool {
        self.is_usable() && !self.is_behind() && self.number >= since && (awaits || self.takes_oneways())
    }

    /// Whether its band is still to be declared.
    pub(crate) fn is_unbound(&self) -> bool {
        !self.is_bound
    }

    /// The server knows its band, or knows nothing of bands.
    pub(crate) fn bound(&mut self) {
        self.is_bound = true;
    }

    /// Lets it keep so many octets of oneways back.
    pub(crate) fn may_hold(&mut self, octets: usize) {
        self.held.most = octets;
    }

    /// Sends what it holds, if it has for `delay`, without waiting. When to come by again, if it is to stay listed.
    ///
    /// # Errors
    /// The connection is broken: who the peer was, and how many octets are lost.
    #[cold]
    pub(super) fn send_held(&mut self, now: Monotonic, delay: Duration) -> Result<Option<Monotonic>, (Peer, usize)> {
        if let Some(since) = self.held.since.filter(|_| !self.held.octets.is_empty() && !self.broken) {
            if now < since + delay {
                return Ok(Some(since + delay));
            }
            match self.watched.stream().send(&self.held.octets, Wait::Now) {
                Ok(sent) => drop(self.held.octets.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    self.broken = true;
                    return Err((self.watched.stream().peer().clone(), std::mem::take(&mut self.held.octets).len()));
                }
            }
            if !self.held.octets.is_empty() {
                return Ok(Some(now + delay.max(clock::coarse_lag())));
            }
        }
        self.held.is_listed = false;
        Ok(None)
    }

    /// Gives back memory that a large message took. For connections that nobody uses.
    #[cold]
    pub(crate) fn shrink(&mut self) {
        if self.request_memory.capacity() > KEPT {
            self.request_memory = Vec::new();
        }
        if self.received.is_empty() && self.received.capacity() > KEPT {
            self.received = ReceiveBuffer::new();
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A request id; even, as bidirectional GIOP wants of the side that connected.
    #[inline]
    pub(crate) fn request_id(&mut self) -> u32 {
        self.watched.next_request()
    }

    /// Whether nobody watches it for the end.
    #[cfg(test)]
    pub(super) fn is_left(&self) -> bool {
        self.watched.is_left()
    }

    /// Sees to it that somebody watches it for the end, of which a request without a reply learns nothing. False if it has ended.
    #[inline]
    pub(crate) fn takes_oneways(&mut self) -> bool {
        self.watched.keep()
    }

    /// Asks the transport to keep `due`. A coarse time-out costs a system call only where the one before was shorter, or longer by more
    /// than an eighth: it never ends a call early.
    #[inline(always)]
    fn wait(&mut self, due: Due) -> Result<Wait, Broken> {
        let coarse = match due {
            Due::At(moment) => return Ok(Wait::Until(moment)),
            Due::Within(duration, _) => duration,
            Due::Never => Duration::MAX,
        };
        if coarse != self.coarse {
            self.set_coarse(coarse)?;
        }
        Ok(Wait::Block)
    }

    #[cold]
    fn set_coarse(&mut self, coarse: Duration) -> io::Result<()> {
        let longer = self.coarse.checked_sub(coarse);
        if longer.is_none_or(|longer| longer > coarse / 8) {
            let late = coarse.saturating_add(clock::coarse_lag());
            self.watched.stream().set_coarse_timeouts(late, late)?;
            self.coarse = coarse;
        }
        Ok(())
    }

    /// Sends a finished message, that of request `id`, in fragments of `fragment_size` where there is one.
    ///
    /// # Errors
    /// How much of it went out, and why no more.
    #[inline]
    pub(crate) fn send(
        &mut self,
        message: &Encoder<'_>,
        id: u32,
        due: Due,
        fragment_size: Option<usize>,
    ) -> Result<(), (Written, Broken)> {
        match message.contiguous() {
            Some(whole) if self.held.octets.is_empty() && fragment_size.is_none() => self.send_whole(whole, due),
            _ => self.send_in_parts(message, id, due, fragment_size),
        }
    }

    #[inline(never)]
    fn send_in_parts(
        &mut self,
        message: &Encoder<'_>,
        id: u32,
        due: Due,
        fragment_size: Option<usize>,
    ) -> Result<(), (Written, Broken)> {
        let fragments = fragment_size.and_then(|size| crate::fragment::cut(message, id, size));
        if !self.held.octets.is_empty() {
            return self.send_behind_held(message, due, fragments.as_deref());
        }
        match fragments {
            Some(fragments) => self.send_all(&mut [IoSlice::new(&fragments)], due),
            None => self.send_all(message.gather(&mut no_slices(), IoSlice::new), due),
        }
    }

    /// What is held, and the message behind it.
    #[cold]
    fn send_behind_held(
        &mut self,
        message: &Encoder<'_>,
        due: Due,
        fragments: Option<&[u8]>,
    ) -> Result<(), (Written, Broken)> {
        let mut held = std::mem::take(&mut self.held.octets);
        let mut slices = [IoSlice::new(&[]); MAX_SLICES + 1];
        slices[0] = IoSlice::new(&held);
        let used = match fragments {
            Some(fragments) => {
                slices[1] = IoSlice::new(fragments);
                2
            }
            None => {
                let mut list = no_slices();
                let gathered = message.gather(&mut list, IoSlice::new);
                slices[1..=gathered.len()].copy_from_slice(gathered);
                1 + gathered.len()
            }
        };
        let sent = self.send_all(&mut slices[..used], due);
        held.clear();
        self.held.octets = held;
        sent
    }

    #[inline]
    fn send_whole(&mut self, whole: &[u8], due: Due) -> Result<(), (Written, Broken)> {
        let wait = self.wait(due).map_err(|broken| (Written::Nothing, broken))?;
        match self.watched.stream().send(whole, wait) {
            Ok(sent) if sent == whole.len() => Ok(()),
            Ok(sent) => {
                let rest = whole.get(sent..).unwrap_or_default();
                // Some of it is out already, whatever becomes of the rest.
                self.send_all(&mut [IoSlice::new(rest)], due.fixed()).map_err(|(_, broken)| (Written::Part, broken))
            }
            Err(error) => {
                self.broken = true;
                Err((Written::Nothing, error.into()))
            }
        }
    }

    #[cold]
    fn send_all(&mut self, slices: &mut [IoSlice<'_>], due: Due) -> Result<(), (Written, Broken)> {
        let mut left = slices;
        let mut written = Written::Nothing;
        let mut wait = self.wait(due).map_err(|broken| (written, broken))?;
        loop {
            match self.watched.stream().send_vectored(left, wait) {
                Ok(sent) => {
                    IoSlice::advance_slices(&mut left, sent);
                    if left.is_empty() {
                        return Ok(());
                    }
                    written = Written::Part;
                    // A peer that takes a little at a time may not stretch the time.
                    wait = self.wait(due.fixed()).map_err(|broken| (written, broken))?;
                }
                Err(error) => {
                    self.broken = true;
                    return Err((written, error.into()));
                }
            }
        }
    }

    /// One read, which nearly always is the whole reply. False where it takes more than that: nothing has been read.
    ///
    /// # Errors
    /// Why there is nothing to read.
    #[inline(always)]
    pub(crate) fn hear(&mut self, due: Due, canceller: Option<&Canceller>) -> Result<bool, Broken> {
        serving::let_others_read();
        if serving::is_serving() || canceller.is_some() || !self.received.is_empty() {
            return Ok(false);
        }
        let wait = self.wait(due)?;
        self.fill(Header::LEN, wait)?;
        Ok(true)
    }

    /// The header of the reply to request `id`, if it has arrived and is as nearly all are: [plain](giop::Reply::plain), and not so large
    /// that its octets are to be taken out of the buffer.
    #[inline]
    pub(crate) fn plain_reply(&self, id: u32, limits: &Limits) -> Option<Header> {
        giop::Reply::plain(self.received.unread(), id, limits.message_size).filter(|header| header.total() < OWNED_FROM)
    }

    /// The next whole message; `first`: nothing has been read yet of what the call waits for.
    pub(crate) fn receive(
        &mut self,
        due: Due,
        limits: &Limits,
        canceller: Option<&Canceller>,
        first: bool,
    ) -> Result<Received, Broken> {
        let (mut due, mut first) = (due, first);
        loop {
            let wanted = match self.arrived(limits)? {
                Ok(received) => return Ok(received),
                Err(wanted) => wanted,
            };
            if !first {
                // A peer that drips octets may not stretch the time: from the second read on the moment is fixed.
                due = due.fixed();
            }
            first = false;
            serving::let_others_read();
            if serving::is_serving() || canceller.is_some() {
                due = due.fixed();
                self.wait_otherwise(due.moment(), canceller)?;
            }
            let wait = self.wait(due)?;
            self.fill(wanted, wait)?;
        }
    }

    /// Waits for octets until `moment`, while the thread serves its lane, if it does, and `canceller` has not been used.
    #[cold]
    fn wait_otherwise(&self, moment: Option<Monotonic>, canceller: Option<&Canceller>) -> Result<(), Broken> {
        let Some(fd) = self.watched.stream().readiness() else { return Ok(()) };
        let mut told = self.watched.stream().ask_to_poll()? == Some(true);
        while !told && serving::is_serving() {
            let waited = serving::until_readable(fd, moment, canceller)?;
            // Where it is too deep in upcalls to serve, it waits in place.
            told = !waited || canceller.is_some_and(Canceller::is_cancelled) || self.is_told(moment)?;
        }
        let Some(canceller) = canceller else { return Ok(()) };
        loop {
            if self.watched.stream().ask_to_poll()? == Some(true) {
                return Ok(());
            }
            canceller.wait_beside(fd, moment)?;
            if self.is_told(moment)? {
                return Ok(());
            }
        }
    }

    /// Whether a descriptor that has become readable means that there are octets, or the time is over anyway.
    fn is_told(&self, moment: Option<Monotonic>) -> io::Result<bool> {
        Ok(moment.is_some_and(Monotonic::is_past) || self.watched.stream().ask_to_poll()?.is_none_or(|there| there))
    }

    /// The first whole message of what has arrived; if there is none, how many octets it takes.
    pub(crate) fn arrived(&mut self, limits: &Limits) -> Result<Result<Received, usize>, Broken> {
        loop {
            match self.framer.next(self.received.unread(), limits) {
                Ok(Step::Message { header, len }) => return Ok(Ok(Received::InPlace(header, len))),
                Ok(Step::NeedMore(wanted)) => return Ok(Err(wanted)),
                Ok(Step::Absorbed(length)) => self.received.consume(length),
                Ok(Step::Assembled { header, message, breaks, len }) => {
                    self.received.consume(len);
                    return Ok(Ok(Received::Assembled(Box::new(Whole { header, message, breaks }))));
                }
                Err(fault) => {
                    self.broken = true;
                    return Err(Broken::Fault(fault.into()));
                }
            }
        }
    }

    /// Reads what there is, `wanted` octets in all at best.
    #[inline(always)]
    pub(crate) fn fill(&mut self, wanted: usize, wait: Wait) -> Result<(), Broken> {
        match self.watched.stream().recv(self.received.room(wanted, &self.spares), wait) {
            Ok(0) => {
                self.broken = true;
                Err(Broken::Io(io::ErrorKind::UnexpectedEof.into()))
            }
            Ok(count) => {
                self.received.filled(count);
                Ok(())
            }
            Err(error) => {
                let broken = Broken::from(error);
                self.broken |= !matches!(broken, Broken::TimedOut);
                Err(broken)
            }
        }
    }

    /// The octets of a message received in place.
    #[inline]
    pub(crate) fn in_place(&self, length: usize) -> &[u8] {
        &self.received.unread()[..length]
    }

    /// Takes the message at the front out of the buffer, for results that outlive the connection's use.
    #[cold]
    pub(crate) fn take_message(&mut self, length: usize) -> ReceiveBuffer {
        let rest = self.received.split_after(length, ReceiveBuffer::new());
        // What follows is lost when there is no room for it.
        self.broken |= rest.is_none();
        let taken = std::mem::replace(&mut self.received, rest.unwrap_or_default());
        if self.received.capacity() == 0 && length <= KEPT {
            // The next one is likely to be as large: it is read where it is to stay.
            self.received.room(length, &self.spares);
        }
        taken
    }

    /// The message at the front has been read.
    #[inline]
    pub(crate) fn consume(&mut self, length: usize) {
        self.received.consume(length);
    }

    /// The call that waited for a reply gives up: the reply may still come and is skipped then.
    #[cold]
    pub(crate) fn abandon(&mut self, cancel: &Encoder<'_>) {
        self.abandoned += 1;
        let mut list = no_slices();
        let slices = cancel.gather(&mut list, IoSlice::new);
        // A hint only: if it does not fit, it is not worth waiting for, but half of it would break the stream.
        match self.watched.stream().send_vectored(slices, Wait::Now) {
            Ok(sent) if sent == slices.iter().map(|slice| slice.len()).sum::<usize>() => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.broken = true,
        }
        self.broken |= self.abandoned > ABANDONED;
    }

    /// A reply has come that the call at hand did not ask for: whether it can be that to a call that was given up.
    #[cold]
    pub(crate) fn caught_up(&mut self) -> bool {
        let was_behind = self.is_behind();
        self.abandoned = self.abandoned.saturating_sub(1);
        was_behind
    }

    pub(crate) fn peer(&self) -> &Peer {
        self.watched.stream().peer()
    }

    /// Whether replies to calls given up are still to come.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.abandoned > 0
    }

    /// After a failed send the peer's last words may still be there: whether they are CloseConnection.
    #[cold]
    pub(crate) fn was_closed_orderly(&mut self, limits: &Limits) -> bool {
        for _ in 0..64 {
            match self.framer.next(self.received.unread(), limits) {
                Ok(Step::Message { header, len }) => {
                    if header.kind == MessageKind::CloseConnection {
                        return true;
                    }
                    self.received.consume(len);
                }
                Ok(Step::Absorbed(len) | Step::Assembled { len, .. }) => self.received.consume(len),
                Ok(Step::NeedMore(wanted)) => {
                    match self.watched.stream().recv(self.received.room(wanted, &self.spares), Wait::Now) {
                        Ok(count) if count > 0 => self.received.filled(count),
                        _ => return false,
                    }
                }
                Err(_) => return false,
            }
        }
        false
    }
}

/// A list for the slices of a message.
pub(super) fn no_slices<'m>() -> [IoSlice<'m>; MAX_SLICES] {
    [IoSlice::new(&[]); MAX_SLICES]
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        // In a forked child it is still the parent's connection.
        if corelane_sys::process::generation() == self.forks {
            if !self.held.octets.is_empty() && !self.broken {
                // Nobody is left to be told if they do not fit.
                let _ = self.watched.stream().send(&self.held.octets, Wait::Now);
            }
            self.watched.stream().shutdown(Half::Both);
        }
    }
}
