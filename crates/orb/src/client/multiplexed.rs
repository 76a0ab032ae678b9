//! A multiplexed connection, which several calls use at the same time.

use std::io::{self, IoSlice};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane_net::{Endpoint, ShutdownDirection, Stream, WaitLimit};
use corelane_sys::buffer::RegionCache;
use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{CheckoutCell, CheckoutGuard, LockScope, PiMutex};
use corelane_wire::cdr::{MAX_ENCODER_SLICES, MemoryRefusal};
use corelane_wire::connection::{ConnectionSide, Framer, FramingStep, ReplyMatch, RequestTable};
use corelane_wire::giop::{self, Header, MessageKind};
use corelane_wire::{CodeSets, Encoder, Limits, Octets};

use super::connection::{MIN_OWNED_BYTES, empty_slices, is_reply_start};
use super::pending_reply::{PendingReply, ReceivedReply, ReplyError};
use super::reply_reader::Registration;
use crate::exchange::{BytesSent, ExchangeError};
use crate::fault::PeerFault;
use crate::lent_messages::{self, ShortMessage, TakeError};
use crate::memory::{ByteBudget, MemoryShare};
use crate::receive::{MAX_RETAINED_BYTES, ReceiveBuffer};

const MAX_PENDING: u32 = 1 << 16;
/// Number of bytes after which the reader thread stops reading one connection and reads other
/// connections.
const MAX_READ_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct MultiplexedConnection {
    stream: Box<dyn Stream>,
    endpoint: Endpoint,
    sending: CheckoutCell<SendHalf>,
    send_gate: Arc<EventCount>,
    /// The lock has priority inheritance, because the reader thread and callers of all priorities
    /// in a band take it.
    requests: PiMutex<PendingTable>,
    reading: CheckoutCell<ReceiveHalf>,
    /// True while a message has been sent in part and its remainder waits. Stored `Release` by the
    /// holder of the sending half, loaded `Acquire` by any thread.
    has_remainder: AtomicBool,
    registration: OnceLock<Registration>,
    /// True if the connection has no priority band, or if the server knows the connection's band.
    /// Stored `Release` by the caller that declares the band, loaded `Acquire` by any caller.
    is_band_declared: AtomicBool,
    fork_generation: u64,
    spares: RegionCache,
    /// True while incomplete replies need more than [`MIN_OWNED_BYTES`] bytes of memory. Stored
    /// `Release` by the reader thread, loaded `Acquire` by callers that cancel.
    is_mid_large_reply: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) memory: Vec<u8>,
    pub(crate) announced: Option<CodeSets>,
    remainder: Vec<u8>,
    remainder_sent: usize,
    /// The last sampled `remainder_sent`, and the time since which it has not changed.
    last_progress: Option<(usize, Monotonic)>,
}

pub(crate) struct SendGuard<'m> {
    sending: CheckoutGuard<'m, SendHalf>,
    _remainder: RemainderGuard<'m>,
}

struct RemainderGuard<'m>(&'m MultiplexedConnection);

impl Drop for RemainderGuard<'_> {
    fn drop(&mut self) {
        if self.0.has_remainder.load(Ordering::Acquire) {
            self.0.watch_writable(true);
        }
    }
}

impl Deref for SendGuard<'_> {
    type Target = SendHalf;

    fn deref(&self) -> &SendHalf {
        &self.sending
    }
}

impl DerefMut for SendGuard<'_> {
    fn deref_mut(&mut self) -> &mut SendHalf {
        &mut self.sending
    }
}

#[derive(Debug)]
struct PendingTable {
    waiting: RequestTable<Arc<PendingReply>>,
    is_fault_reported: bool,
    is_closed: bool,
    is_used: bool,
    idle_since: Monotonic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Drained,
    /// The connection may have more input, which epoll may not report again.
    More,
    Closed,
}

#[derive(Debug)]
struct ReceiveHalf {
    framer: Framer,
    received: ReceiveBuffer,
    share: MemoryShare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterError {
    Closed,
    Full,
}

#[derive(Clone, Debug)]
pub(crate) enum CloseCause {
    Io(io::ErrorKind),
    Fault(PeerFault),
    OverBudget(MemoryRefusal),
}

impl From<CloseCause> for ExchangeError {
    fn from(lost: CloseCause) -> Self {
        match lost {
            CloseCause::Io(kind) => ExchangeError::Io(kind.into()),
            CloseCause::Fault(fault) => ExchangeError::Fault(fault),
            CloseCause::OverBudget(refusal) => ExchangeError::OverBudget(refusal),
        }
    }
}

impl MultiplexedConnection {
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        endpoint: &Endpoint,
        (spares, replies): (&RegionCache, &Arc<ByteBudget>),
        is_band_declared: bool,
    ) -> Self {
        let send_gate = Arc::new(EventCount::new("sending half of a connection"));
        let idle_since = Monotonic::from_nanos(0);
        let memory = Vec::with_capacity(1024);
        let sending =
            SendHalf { memory, announced: None, remainder: Vec::new(), remainder_sent: 0, last_progress: None };
        let waiting = RequestTable::new(ConnectionSide::Initiator, MAX_PENDING);
        let reading =
            ReceiveHalf { framer: Framer::new(), received: ReceiveBuffer::new(), share: MemoryShare::new(replies) };
        MultiplexedConnection {
            stream,
            endpoint: endpoint.clone(),
            sending: CheckoutCell::new("sending half of a connection", LockScope::Connection, sending)
                .with_event_count(Arc::clone(&send_gate)),
            send_gate,
            requests: PiMutex::new(
                "request table",
                LockScope::Connection,
                PendingTable { waiting, is_fault_reported: false, is_closed: false, is_used: true, idle_since },
            ),
            reading: CheckoutCell::new("receiving half of a connection", LockScope::Connection, reading),
            has_remainder: AtomicBool::new(false),
            registration: OnceLock::new(),
            is_band_declared: AtomicBool::new(is_band_declared),
            spares: spares.clone(),
            is_mid_large_reply: AtomicBool::new(false),
            fork_generation: corelane_sys::process::fork_generation(),
        }
    }

    pub(super) fn set_registration(&self, registration: Registration) {
        let _ = self.registration.set(registration);
    }

    pub(crate) fn needs_band_declaration(&self) -> bool {
        !self.is_band_declared.load(Ordering::Acquire)
    }

    /// Notes that the server knows the connection's band. Two threads may call this method at the
    /// same time, because both may declare the band.
    pub(crate) fn set_band_declared(&self) {
        self.is_band_declared.store(true, Ordering::Release);
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn stream(&self) -> &dyn Stream {
        &*self.stream
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.requests.lock().is_closed
    }

    pub(crate) fn sender(&self, deadline: Option<Monotonic>) -> Option<SendGuard<'_>> {
        self.try_sender().or_else(|| self.send_gate.wait(deadline, || self.try_sender()))
    }

    fn try_sender(&self) -> Option<SendGuard<'_>> {
        self.sending.try_checkout().map(|sending| SendGuard { sending, _remainder: RemainderGuard(self) })
    }

    pub(crate) fn register(&self) -> Result<(u32, Arc<PendingReply>), RegisterError> {
        let pending = Arc::new(PendingReply::new());
        let mut requests = self.requests.lock();
        if requests.is_closed {
            return Err(RegisterError::Closed);
        }
        requests.is_used = true;
        match requests.waiting.insert(Arc::clone(&pending)) {
            Ok(id) => Ok((id, pending)),
            // The table is full, and contains abandoned requests that the server has not answered.
            // The connection accepts no more requests, and the caller uses another connection.
            Err(_) if requests.waiting.abandoned_count() > 0 => {
                requests.is_closed = true;
                Err(RegisterError::Closed)
            }
            Err(_) => Err(RegisterError::Full),
        }
    }

    pub(crate) fn unregister(&self, id: u32) {
        let request = self.requests.lock().waiting.remove(id);
        drop(request);
    }

    /// Abandons a request. Its id stays in the table, so that the reader thread can skip a later
    /// reply.
    pub(crate) fn abandon(&self, id: u32) {
        let request = self.requests.lock().waiting.abandon(id);
        drop(request);
    }

    #[cold]
    pub(crate) fn claim_fault_report(&self) -> bool {
        !std::mem::replace(&mut self.requests.lock().is_fault_reported, true)
    }

    /// Sends a message, and waits for the transport until `deadline`. A message whose deadline
    /// passes after a part was sent counts as sent, because the connection sends the remainder
    /// later.
    ///
    /// # Errors
    /// How much of the message was sent.
    pub(crate) fn send(
        &self,
        sender: &mut SendGuard<'_>,
        message: &Encoder<'_>,
        deadline: Option<Monotonic>,
        fragments: Option<Vec<u8>>,
    ) -> Result<(), (BytesSent, ExchangeError)> {
        let mut list = empty_slices();
        let mut bytes_sent = BytesSent::None;
        let wait = deadline.map_or(WaitLimit::Block, WaitLimit::Until);
        self.send_remainder(sender, wait).map_err(|error| (bytes_sent, error.into()))?;
        let mut plain = [&[][..]; MAX_ENCODER_SLICES];
        let short = match &fragments {
            Some(_) => None,
            None => ShortMessage::new(self.stream(), message.gather_slices(&mut plain, |slice| slice)),
        };
        let mut left = match (&fragments, &short) {
            (Some(fragments), _) => {
                list[0] = IoSlice::new(fragments);
                &mut list[..1]
            }
            (None, Some(short)) => {
                list[..3].copy_from_slice(&short.slices().map(IoSlice::new));
                &mut list[..3]
            }
            (None, None) => message.gather_slices(&mut list, IoSlice::new),
        };
        while !left.is_empty() {
            match self.stream.send_vectored(left, wait) {
                Ok(sent) => {
                    IoSlice::advance_slices(&mut left, sent);
                    bytes_sent = BytesSent::Some;
                }
                Err(error) if error.kind() != io::ErrorKind::TimedOut => {
                    self.close_send_half();
                    return Err((bytes_sent, error.into()));
                }
                Err(_) if bytes_sent == BytesSent::None => return Err((bytes_sent, ExchangeError::TimedOut)),
                Err(_) => {
                    self.queue_remainder(sender, left.iter().map(|slice| &**slice));
                    return Err((BytesSent::All, ExchangeError::TimedOut));
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn queue_remainder<'o>(&self, sender: &mut SendGuard<'_>, left: impl Iterator<Item = &'o [u8]>) {
        left.for_each(|octets| sender.remainder.extend_from_slice(octets));
        self.has_remainder.store(true, Ordering::Release);
    }

    fn send_remainder(&self, sender: &mut SendGuard<'_>, wait: WaitLimit) -> io::Result<()> {
        if sender.remainder.is_empty() {
            return Ok(());
        }
        while let Some(left) = sender.remainder.get(sender.remainder_sent..).filter(|left| !left.is_empty()) {
            match self.stream.send(left, wait) {
                Ok(sent) => sender.remainder_sent += sent,
                Err(error) => {
                    if !matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) {
                        self.has_remainder.store(false, Ordering::Release);
                        self.close_send_half();
                    }
                    return Err(error);
                }
            }
        }
        (sender.remainder, sender.remainder_sent, sender.last_progress) = (Vec::new(), 0, None);
        self.has_remainder.store(false, Ordering::Release);
        self.watch_writable(false);
        Ok(())
    }

    /// Sends the remainder, unless a caller has checked the sending half out. In this case the
    /// caller sends the remainder, or makes epoll report when the transport has room.
    #[cold]
    pub(super) fn resume_sending(&self) {
        if let Some(mut sender) = self.try_sender() {
            let _ = self.send_remainder(&mut sender, WaitLimit::Now);
        }
    }

    /// Makes epoll tell the reader thread when the transport has room for more bytes, or stops
    /// these reports. If the reports cannot start, closes the sending half, because the remainder
    /// would never be sent.
    #[cold]
    fn watch_writable(&self, wanted: bool) {
        let watched = self
            .registration
            .get()
            .zip(self.stream.readiness_descriptor())
            .map(|(registration, fd)| registration.set_writable_interest(fd, wanted));
        if !matches!(watched, Some(Ok(()))) && wanted {
            self.close_send_half();
        }
    }

    /// Abandons the request `id`, and sends a CancelRequest for it if the transport takes the
    /// message without waiting. If a large reply is incomplete and no other call waits, closes the
    /// connection instead of sending.
    pub(crate) fn cancel(&self, id: u32, version: corelane_wire::Version) {
        self.abandon(id);
        if self.is_mid_large_reply.load(Ordering::Acquire) && self.close_if_unused() {
            return;
        }
        let Some(mut sender) = self.try_sender() else { return };
        if self.send_remainder(&mut sender, WaitLimit::Now).is_err() {
            return;
        }
        let mut cancel = Encoder::new();
        giop::write_cancel_request(&mut cancel, version, id);
        let octets: Vec<u8> = cancel.slices().flatten().copied().collect();
        match self.stream.send(&octets, WaitLimit::Now) {
            Ok(sent) if sent == octets.len() => {}
            Ok(sent) => self.queue_remainder(&mut sender, octets.get(sent..).into_iter()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.close_send_half(),
        }
    }

    /// Closes the connection if no call used it, or if the transport accepted nothing of a
    /// remainder, for the time `idle`. Returns true if the connection is closed.
    #[cold]
    pub(crate) fn run_maintenance(&self, now: Monotonic, idle: Duration) -> bool {
        if self.is_send_stalled(now, idle) {
            self.close(&CloseCause::Io(io::ErrorKind::TimedOut));
            return true;
        }
        let mut requests = self.requests.lock();
        if std::mem::take(&mut requests.is_used)
            || requests.waiting.has_waiting()
            || self.has_remainder.load(Ordering::Acquire)
        {
            requests.idle_since = now;
            return requests.is_closed;
        }
        if !requests.is_closed && now.since(requests.idle_since) < idle {
            drop(requests);
            if let Some(mut sender) = self.try_sender()
                && sender.memory.capacity() > MAX_RETAINED_BYTES
            {
                sender.memory = Vec::new();
            }
            return false;
        }
        requests.is_closed = true;
        drop(requests);
        self.stream.shutdown(ShutdownDirection::Both);
        true
    }

    fn is_send_stalled(&self, now: Monotonic, time: Duration) -> bool {
        // If a caller has checked the sending half out, it sends the remainder, so sending is not
        // stalled.
        let Some(mut sender) = self.try_sender().filter(|_| self.has_remainder.load(Ordering::Acquire)) else {
            return false;
        };
        match sender.last_progress {
            Some((sent, since)) if sent == sender.remainder_sent => now.since(since) >= time,
            _ => {
                sender.last_progress = Some((sender.remainder_sent, now));
                false
            }
        }
    }

    #[cold]
    fn close_send_half(&self) {
        self.requests.lock().is_closed = true;
        self.stream.shutdown(ShutdownDirection::Write);
    }

    /// Reads replies and passes them to their callers. Returns after [`MAX_READ_BYTES`] even if
    /// more bytes have arrived.
    pub(crate) fn read_replies(&self, limits: &Limits) -> ReadOutcome {
        let Some(mut reading) = self.reading.try_checkout() else { return ReadOutcome::Drained };
        let read = self.read_burst(&mut reading, limits);
        read.unwrap_or_else(|lost| {
            let ReceiveHalf { framer, received, .. } = &*reading;
            self.close_with(&lost, |id| framer.has_partial_reply(id) || is_reply_start(received.unread(), id));
            reading.drop_received();
            ReadOutcome::Closed
        })
    }

    fn read_burst(&self, reading: &mut ReceiveHalf, limits: &Limits) -> Result<ReadOutcome, CloseCause> {
        let mut read = 0;
        loop {
            let ReceiveHalf { framer, received, .. } = &mut *reading;
            let wanted = match framer
                .next(received.unread(), limits)
                .map_err(|fault| CloseCause::Fault(fault.into()))?
            {
                FramingStep::Message { header, len } if lent_messages::is_lent(self.stream(), received.unread()) => {
                    let taken = lent_messages::take(self.stream(), &header, &received.unread()[..len], limits);
                    received.consume(len);
                    let (header, message) = taken.map_err(|error| match error {
                        TakeError::Fault(fault) => CloseCause::Fault(fault),
                        TakeError::Io(error) => CloseCause::Io(error.kind()),
                    })?;
                    self.on_message(header, message.into_octets(), Vec::new(), reading, limits)?;
                    continue;
                }
                FramingStep::Message { header, len } => {
                    let octets = reading.take(len)?;
                    self.on_message(header, octets, Vec::new(), reading, limits)?;
                    continue;
                }
                FramingStep::Assembled { header, message, fragment_starts: breaks, len } => {
                    received.consume(len);
                    self.on_message(header, Octets::from(message), breaks, reading, limits)?;
                    continue;
                }
                FramingStep::FragmentBuffered(len) => {
                    received.consume(len);
                    self.account_memory(reading)?;
                    continue;
                }
                FramingStep::NeedMore(wanted) => wanted,
            };
            if received.is_empty() && received.capacity() > MAX_RETAINED_BYTES {
                *received = ReceiveBuffer::new();
            }
            if read >= MAX_READ_BYTES {
                return Ok(ReadOutcome::More);
            }
            match self.stream.recv(received.room(wanted, &self.spares), WaitLimit::Now) {
                Ok(0) => return Err(CloseCause::Io(io::ErrorKind::UnexpectedEof)),
                Ok(count) => {
                    read += count;
                    received.filled(count);
                    if received.unread().len() > MIN_OWNED_BYTES {
                        self.account_memory(reading)?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ReadOutcome::Drained),
                Err(error) => return Err(CloseCause::Io(error.kind())),
            }
        }
    }

    #[cold]
    fn account_memory(&self, reading: &mut ReceiveHalf) -> Result<(), CloseCause> {
        let ReceiveHalf { framer, received, share } = reading;
        let unread = if received.is_empty() { 0 } else { received.held().max(received.unread().len()) };
        let held = unread + framer.partial_message_bytes();
        share.set(if held > MIN_OWNED_BYTES { held } else { 0 }).map_err(CloseCause::OverBudget)?;
        self.is_mid_large_reply.store(share.octets() > 0, Ordering::Release);
        Ok(())
    }

    fn on_message(
        &self,
        header: Header,
        octets: Octets,
        breaks: Vec<usize>,
        reading: &mut ReceiveHalf,
        limits: &Limits,
    ) -> Result<(), CloseCause> {
        if reading.share.octets() > 0 {
            self.account_memory(reading)?;
        }
        let mut share = None;
        if octets.len() > MIN_OWNED_BYTES {
            let mut own = MemoryShare::new(reading.share.total());
            own.set(octets.len()).map_err(CloseCause::OverBudget)?;
            share = Some(own);
        }
        self.complete(ReceivedReply { header, octets, breaks, _share: share }, limits)
    }

    fn complete(&self, arrived: ReceivedReply, limits: &Limits) -> Result<(), CloseCause> {
        let ReceivedReply { header, octets, .. } = &arrived;
        let id = match header.kind {
            MessageKind::Reply => giop::Reply::parse(octets, header, limits).map(|reply| reply.request_id),
            MessageKind::LocateReply => giop::LocateReply::parse(octets, header).map(|reply| reply.request_id),
            kind => return Err(CloseCause::Fault(PeerFault::UnexpectedMessage(kind))),
        };
        let id = id.map_err(|error| CloseCause::Fault(error.into()))?;
        let mut requests = self.requests.lock();
        let answered = requests.waiting.match_reply(id);
        drop(requests);
        match answered {
            ReplyMatch::Matched(pending) => pending.complete(Ok(arrived)),
            ReplyMatch::Abandoned => {}
            ReplyMatch::Unknown => return Err(CloseCause::Fault(PeerFault::UnexpectedMessage(header.kind))),
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn close(&self, lost: &CloseCause) {
        self.close_with(lost, |_| false);
    }

    #[cold]
    fn close_if_unused(&self) -> bool {
        let mut requests = self.requests.lock();
        if requests.waiting.has_waiting() {
            return false;
        }
        // The flag is set under the lock, so that no caller can register a request between the
        // check and the close.
        requests.is_closed = true;
        drop(requests);
        self.stream.shutdown(ShutdownDirection::Both);
        true
    }

    /// Closes the connection, and gives all waiting calls the error `lost`. `has_begun` returns
    /// true for the id of a request if a part of its reply has arrived.
    #[cold]
    fn close_with(&self, lost: &CloseCause, has_begun: impl Fn(u32) -> bool) {
        let mut requests = self.requests.lock();
        requests.is_closed = true;
        let waiting: Vec<_> = requests.waiting.drain().collect();
        drop(requests);
        self.stream.shutdown(ShutdownDirection::Both);
        for (id, pending) in waiting {
            pending.complete(Err(ReplyError { error: lost.clone().into(), reply_begun: has_begun(id) }));
        }
    }
}

impl ReceiveHalf {
    /// Takes the first message. A message of at most [`MIN_OWNED_BYTES`] bytes is copied, and a
    /// larger message gets the buffer.
    fn take(&mut self, length: usize) -> Result<Octets, CloseCause> {
        if length <= MIN_OWNED_BYTES {
            let octets = Octets::copy_from(&self.received.unread()[..length]);
            self.received.consume(length);
            return Ok(octets);
        }
        let rest = self.received.split_after(length, ReceiveBuffer::new());
        let rest = rest.ok_or(CloseCause::Io(io::ErrorKind::OutOfMemory))?;
        Ok(std::mem::replace(&mut self.received, rest).into_octets())
    }

    #[cold]
    fn drop_received(&mut self) {
        (self.received, self.framer) = (ReceiveBuffer::new(), Framer::new());
        let _ = self.share.set(0);
    }
}

impl Drop for MultiplexedConnection {
    fn drop(&mut self) {
        // In a forked child process, the parent process uses the connection, so the child does not
        // shut it down.
        if corelane_sys::process::fork_generation() == self.fork_generation {
            self.stream.shutdown(ShutdownDirection::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use corelane_net::Peer;

    use super::*;
    use crate::priority_inheritance::inherits_priority;

    /// An endless stream of replies; the field is the request id of the next reply.
    #[derive(Debug)]
    struct Endless(AtomicU32);

    fn unbounded() -> Arc<ByteBudget> {
        Arc::new(ByteBudget::new(usize::MAX))
    }

    const REPLY: &[u8; 24] = b"GIOP\x01\x02\x01\x01\x0c\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0";

    impl Stream for Endless {
        fn recv(&self, buffer: &mut [u8], _: WaitLimit) -> io::Result<usize> {
            let whole = buffer.chunks_exact_mut(REPLY.len()).map(|reply| {
                reply.copy_from_slice(REPLY);
                reply[12..16].copy_from_slice(&self.0.fetch_add(2, Ordering::Relaxed).to_le_bytes());
            });
            Ok(whole.count() * REPLY.len())
        }

        fn send_vectored(&self, _: &[IoSlice<'_>], _: WaitLimit) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn readiness_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }

        fn set_coarse_timeouts(&self, _: Duration, _: Duration) -> io::Result<()> {
            Ok(())
        }

        fn shutdown(&self, _: ShutdownDirection) {}

        fn peer(&self) -> &Peer {
            &Peer::Unknown
        }
    }

    #[test]
    fn endless_sender_does_not_starve_other_connections() {
        let calls = 40_000;
        let first = 1 << 17;
        let connection = MultiplexedConnection::new(
            Box::new(Endless(first.into())),
            &Endpoint::tcp("127.0.0.1", 1),
            (&RegionCache::new(), &unbounded()),
            true,
        );
        let ids: Vec<u32> = (0..calls).map(|_| connection.register().unwrap().0).collect();
        assert_eq!(ids[0], first);
        // Without the limit `MAX_READ_BYTES`, the first `read_replies` would read all replies and
        // return `Closed`.
        ids.into_iter().for_each(|id| connection.abandon(id));
        for _ in 0..3 {
            assert_eq!(connection.read_replies(&Limits::DEFAULT), ReadOutcome::More);
        }
        assert_eq!(connection.read_replies(&Limits::DEFAULT), ReadOutcome::Closed);
        assert!(!connection.is_open());
    }

    /// If `cancel` ignored `is_mid_large_reply`, the connection would stay open.
    #[test]
    fn large_abandoned_reply_closes_the_connection_if_no_call_waits() {
        let connection = MultiplexedConnection::new(
            Box::new(Endless(0.into())),
            &Endpoint::tcp("127.0.0.1", 1),
            (&RegionCache::new(), &unbounded()),
            true,
        );
        let (first, _) = connection.register().unwrap();
        let (second, waiting) = connection.register().unwrap();
        connection.is_mid_large_reply.store(true, Ordering::Release);
        connection.cancel(first, corelane_wire::Version::GIOP_1_2);
        assert!(connection.is_open() && !waiting.is_done(), "the other call still waits, so the connection stays open");
        connection.cancel(second, corelane_wire::Version::GIOP_1_2);
        assert!(!connection.is_open());
        assert_eq!(connection.register().err(), Some(RegisterError::Closed));
    }

    #[test]
    fn connection_full_of_abandoned_requests_closes() {
        let connection = MultiplexedConnection::new(
            Box::new(Endless(0.into())),
            &Endpoint::tcp("127.0.0.1", 1),
            (&RegionCache::new(), &unbounded()),
            true,
        );
        let ids: Vec<u32> = (0..MAX_PENDING).map(|_| connection.register().unwrap().0).collect();
        assert_eq!(connection.register().err(), Some(RegisterError::Full));
        connection.abandon(ids[7]);
        assert_eq!(connection.register().err(), Some(RegisterError::Closed));
        assert!(!connection.is_open());
    }

    /// Each lock must lend its holder the priority of a waiting thread. With an ordinary mutex,
    /// `inherits_priority` would return false.
    #[test]
    fn table_and_reply_locks_inherit_priority() {
        let connection = || {
            Arc::new(MultiplexedConnection::new(
                Box::new(Endless(0.into())),
                &Endpoint::tcp("127.0.0.1", 1),
                (&RegionCache::new(), &unbounded()),
                true,
            ))
        };
        let (own, other) = (connection(), connection());
        let callers = Arc::clone(&own);
        assert!(inherits_priority(
            move |held| {
                let _requests = own.requests.lock();
                held();
            },
            move || drop(callers.register())
        ));
        let (id, pending) = other.register().unwrap();
        let callers = Arc::clone(&pending);
        assert!(inherits_priority(
            move |held| {
                let _state = callers.state.lock();
                held();
            },
            move || pending.complete(Err(ExchangeError::TimedOut.into()))
        ));
        other.abandon(id);
    }
}
