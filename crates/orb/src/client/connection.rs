//! A client connection that one call at a time uses.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{Endpoint, Peer, ShutdownDirection, WaitLimit};
use corelane_sys::buffer::{MAX_HEAP_BYTES, RegionCache};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::CheckoutCell;
use corelane_wire::cdr::MAX_ENCODER_SLICES;
use corelane_wire::connection::{Framer, FramingStep};
use corelane_wire::giop::{self, Header, MessageKind, ReplyStatus};
use corelane_wire::{CodeSets, Decoder, Encoder, Limits, Octets};

use super::hangup_monitor::MonitoredStream;
use crate::cancel::Canceller;
use crate::clock;
use crate::exchange::{BytesSent, ExchangeError};
use crate::lent_messages::{self, ShortMessage, TakeError};
use crate::memory::{ByteBudget, MemoryShare};
use crate::nested_wait;
use crate::policy::CallDeadline;
use crate::receive::{MAX_RETAINED_BYTES, ReceiveBuffer};

/// Maximum number of abandoned calls on a connection, counted until their replies arrive.
const MAX_ABANDONED: u32 = 8;

/// Minimum size in bytes of a reply that takes the connection's buffer, so that octet sequences in
/// the results share its memory.
pub(crate) const MIN_OWNED_BYTES: usize = MAX_HEAP_BYTES;

/// Maximum number of bytes that a call reads into the connection's buffer before it receives the
/// rest of its results in the caller's memory.
const MAX_REPLY_HEAD: usize = 16 << 10;

pub(crate) type PoolSlot = CheckoutCell<Option<Box<ClientConnection>>>;

#[derive(Debug)]
pub(crate) struct ClientConnection {
    monitored: MonitoredStream,
    endpoint: Endpoint,
    /// The connection's id. Connections whose attempts to connect began later have higher ids.
    pub(super) connection_id: u64,
    framer: Framer,
    received: ReceiveBuffer,
    spares: RegionCache,
    share: MemoryShare,
    pub(crate) request_memory: Vec<u8>,
    abandoned: u32,
    pub(crate) announced: Option<CodeSets>,
    coarse_timeout: Duration,
    is_broken: bool,
    is_truncated: bool,
    /// True if the connection has no priority band, or if the server knows the connection's band.
    is_band_declared: bool,
    fork_generation: u64,
    pub(super) oneways: OnewayBuffer,
}

#[derive(Debug, Default)]
pub(super) struct OnewayBuffer {
    bytes: Vec<u8>,
    max_bytes: usize,
    oldest_at: Option<Monotonic>,
    is_listed: bool,
}

/// How much of a message was sent without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImmediateSendResult {
    /// The transport has taken the whole message.
    Sent,
    /// The transport has taken a part of the message. The connection keeps the rest, and sends it
    /// before any other message.
    PartlySent,
    /// Nothing was sent, because the call would have had to wait.
    NotSent,
}

pub(super) enum BufferResult {
    Full,
    AlreadyListed,
    NeedsListing,
}

impl OnewayBuffer {
    #[inline]
    pub(super) fn push(&mut self, message: &[u8]) -> BufferResult {
        if self.bytes.len() + message.len() > self.max_bytes {
            return BufferResult::Full;
        }
        if self.bytes.is_empty() {
            self.oldest_at = Some(clock::now());
        }
        self.bytes.extend_from_slice(message);
        if std::mem::replace(&mut self.is_listed, true) {
            BufferResult::AlreadyListed
        } else {
            BufferResult::NeedsListing
        }
    }
}

#[derive(Debug)]
pub(crate) enum ReceivedMessage {
    InPlace(Header, usize),
    Owned(Box<OwnedMessage>),
}

/// A message that was assembled from fragments, or that ends in [lent
/// memory](crate::lent_messages).
#[derive(Debug)]
pub(crate) struct OwnedMessage {
    pub(crate) header: Header,
    pub(crate) message: Octets,
    pub(crate) breaks: Vec<usize>,
}

impl ClientConnection {
    pub(super) fn new(
        monitored: MonitoredStream,
        endpoint: &Endpoint,
        connection_id: u64,
        is_band_declared: bool,
        (spares, reply_memory): (&RegionCache, &Arc<ByteBudget>),
    ) -> Self {
        ClientConnection {
            monitored,
            endpoint: endpoint.clone(),
            connection_id,
            framer: Framer::new(),
            received: ReceiveBuffer::new(),
            spares: spares.clone(),
            share: MemoryShare::new(reply_memory),
            request_memory: Vec::with_capacity(1024),
            abandoned: 0,
            announced: None,
            coarse_timeout: Duration::ZERO,
            is_broken: false,
            is_truncated: false,
            is_band_declared,
            fork_generation: corelane_sys::process::fork_generation(),
            oneways: OnewayBuffer::default(),
        }
    }

    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_broken && self.is_band_declared && !self.monitored.has_hung_up()
    }

    #[inline]
    pub(super) fn accepts_request(&mut self, min_connection_id: u64, awaits: bool) -> bool {
        self.is_usable()
            && !self.owes_replies()
            && self.connection_id >= min_connection_id
            && (awaits || self.ensure_monitored())
    }

    pub(crate) fn needs_band_declaration(&self) -> bool {
        !self.is_band_declared
    }

    pub(crate) fn set_band_declared(&mut self) {
        self.is_band_declared = true;
    }

    pub(crate) fn set_batch_limit(&mut self, octets: usize) {
        self.oneways.max_bytes = octets;
    }

    /// Sends the buffered oneways if the oldest has waited for the time `delay`. If bytes remain in
    /// the buffer of a connection that has not failed, returns the time at which to call this
    /// function again.
    ///
    /// # Errors
    /// The peer's address and the number of lost bytes, if the connection fails.
    #[cold]
    pub(super) fn flush_oneways(
        &mut self,
        now: Monotonic,
        delay: Duration,
    ) -> Result<Option<Monotonic>, (Peer, usize)> {
        if let Some(oldest_at) = self.oneways.oldest_at.filter(|_| !self.oneways.bytes.is_empty() && !self.is_broken) {
            if now < oldest_at + delay {
                return Ok(Some(oldest_at + delay));
            }
            match self.monitored.stream().send(&self.oneways.bytes, WaitLimit::Now) {
                Ok(sent) => drop(self.oneways.bytes.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    self.is_broken = true;
                    return Err((
                        self.monitored.stream().peer().clone(),
                        std::mem::take(&mut self.oneways.bytes).len(),
                    ));
                }
            }
            if !self.oneways.bytes.is_empty() {
                return Ok(Some(now + delay.max(clock::max_coarse_lag())));
            }
        }
        self.oneways.is_listed = false;
        Ok(None)
    }

    #[cold]
    pub(crate) fn trim_buffers(&mut self) {
        if self.request_memory.capacity() > MAX_RETAINED_BYTES {
            self.request_memory = Vec::new();
        }
        if self.received.is_empty() && self.received.capacity() > MAX_RETAINED_BYTES {
            self.received = ReceiveBuffer::new();
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Counts a call, and returns the id of its request. Ids are even, as bidirectional GIOP
    /// requires of the connecting side.
    #[inline]
    pub(crate) fn next_request_id(&mut self) -> u32 {
        self.monitored.count_call().wrapping_mul(2)
    }

    #[cfg(test)]
    pub(super) fn is_unmonitored(&self) -> bool {
        self.monitored.is_unmonitored()
    }

    /// Makes sure that the connection is monitored, because a oneway does not notice a hang-up.
    /// Returns false if the peer has hung up.
    #[inline]
    pub(crate) fn ensure_monitored(&mut self) -> bool {
        self.monitored.ensure_monitored()
    }

    #[inline(always)]
    fn apply_timeout(&mut self, due: CallDeadline) -> Result<WaitLimit, ExchangeError> {
        let coarse = match due {
            CallDeadline::At(moment) => return Ok(WaitLimit::Until(moment)),
            CallDeadline::WithinFrom(duration, _) => duration,
            CallDeadline::Never => Duration::MAX,
        };
        if coarse != self.coarse_timeout {
            self.set_coarse_timeout(coarse)?;
        }
        Ok(WaitLimit::Block)
    }

    /// Sets the stream's coarse time-out to `coarse` plus the error of the coarse clock, so that no
    /// call ends early. A time-out that is at most an eighth longer than `coarse` stays in force.
    #[cold]
    fn set_coarse_timeout(&mut self, coarse: Duration) -> io::Result<()> {
        let longer = self.coarse_timeout.checked_sub(coarse);
        if longer.is_none_or(|longer| longer > coarse / 8) {
            let late = coarse.saturating_add(clock::max_coarse_lag());
            self.monitored.stream().set_coarse_timeouts(late, late)?;
            self.coarse_timeout = coarse;
        }
        Ok(())
    }

    /// Sends the message of request `id`, behind any buffered oneways.
    ///
    /// # Errors
    /// How much of the message was sent, and the reason why sending stopped.
    #[inline]
    pub(crate) fn send(
        &mut self,
        message: &Encoder<'_>,
        id: u32,
        due: CallDeadline,
        fragment_size: Option<usize>,
    ) -> Result<(), (BytesSent, ExchangeError)> {
        match message.as_contiguous_slice() {
            Some(whole) if self.oneways.bytes.is_empty() && fragment_size.is_none() => self.send_whole(whole, due),
            _ => self.send_in_parts(message, id, due, fragment_size),
        }
    }

    #[inline(never)]
    fn send_in_parts(
        &mut self,
        message: &Encoder<'_>,
        id: u32,
        due: CallDeadline,
        fragment_size: Option<usize>,
    ) -> Result<(), (BytesSent, ExchangeError)> {
        let fragments = fragment_size.and_then(|size| crate::fragment::split(message, id, size));
        if !self.oneways.bytes.is_empty() {
            return self.send_behind_oneways(message, due, fragments.as_deref());
        }
        if let Some(fragments) = fragments {
            return self.send_all(&mut [IoSlice::new(&fragments)], due);
        }
        let mut list = [&[][..]; MAX_ENCODER_SLICES];
        match ShortMessage::new(self.monitored.stream(), message.gather_slices(&mut list, |slice| slice)) {
            Some(short) => self.send_all(&mut short.slices().map(IoSlice::new), due),
            None => self.send_all(message.gather_slices(&mut empty_slices(), IoSlice::new), due),
        }
    }

    /// Sends a message if the transport takes it at once, and keeps the rest if the transport takes
    /// a part. A connection that fails before it has taken a byte becomes unusable.
    pub(crate) fn send_now(&mut self, message: &[u8]) -> ImmediateSendResult {
        if self.has_unsent() {
            return ImmediateSendResult::NotSent;
        }
        match self.monitored.stream().send(message, WaitLimit::Now) {
            Ok(sent) if sent >= message.len() => ImmediateSendResult::Sent,
            Ok(0) => ImmediateSendResult::NotSent,
            Ok(sent) => {
                self.oneways.bytes.extend_from_slice(message.get(sent..).unwrap_or_default());
                ImmediateSendResult::PartlySent
            }
            Err(error) => {
                self.is_broken |= error.kind() != io::ErrorKind::WouldBlock;
                ImmediateSendResult::NotSent
            }
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.oneways.bytes.is_empty()
    }

    /// Sends the rest of the message that [`send_now`](Self::send_now) has begun.
    pub(crate) fn send_rest(&mut self, due: CallDeadline) -> Result<(), ExchangeError> {
        let mut rest = std::mem::take(&mut self.oneways.bytes);
        let sent = self.send_all(&mut [IoSlice::new(&rest)], due);
        if rest.capacity() <= MAX_RETAINED_BYTES {
            rest.clear();
            self.oneways.bytes = rest;
        }
        sent.map_err(|(_, broken)| broken)
    }

    #[cold]
    fn send_behind_oneways(
        &mut self,
        message: &Encoder<'_>,
        due: CallDeadline,
        fragments: Option<&[u8]>,
    ) -> Result<(), (BytesSent, ExchangeError)> {
        let mut held = std::mem::take(&mut self.oneways.bytes);
        let mut slices = [IoSlice::new(&[]); MAX_ENCODER_SLICES + 1];
        slices[0] = IoSlice::new(&held);
        let used = match fragments {
            Some(fragments) => {
                slices[1] = IoSlice::new(fragments);
                2
            }
            None => {
                let mut list = empty_slices();
                let gathered = message.gather_slices(&mut list, IoSlice::new);
                slices[1..=gathered.len()].copy_from_slice(gathered);
                1 + gathered.len()
            }
        };
        let sent = self.send_all(&mut slices[..used], due);
        held.clear();
        self.oneways.bytes = held;
        sent
    }

    #[inline]
    fn send_whole(&mut self, whole: &[u8], due: CallDeadline) -> Result<(), (BytesSent, ExchangeError)> {
        let wait = self.apply_timeout(due).map_err(|broken| (BytesSent::None, broken))?;
        match self.monitored.stream().send(whole, wait) {
            Ok(sent) if sent == whole.len() => Ok(()),
            Ok(sent) => {
                let rest = whole.get(sent..).unwrap_or_default();
                // A part of the message was sent before this call of `send_all`, which may send no
                // byte. So a failure always counts as `BytesSent::Some`.
                self.send_all(&mut [IoSlice::new(rest)], due.to_absolute())
                    .map_err(|(_, broken)| (BytesSent::Some, broken))
            }
            Err(error) => {
                self.is_broken = true;
                Err((BytesSent::None, error.into()))
            }
        }
    }

    #[cold]
    fn send_all(&mut self, slices: &mut [IoSlice<'_>], due: CallDeadline) -> Result<(), (BytesSent, ExchangeError)> {
        let mut left = slices;
        let mut bytes_sent = BytesSent::None;
        let mut wait = self.apply_timeout(due).map_err(|broken| (bytes_sent, broken))?;
        loop {
            match self.monitored.stream().send_vectored(left, wait) {
                Ok(sent) => {
                    IoSlice::advance_slices(&mut left, sent);
                    if left.is_empty() {
                        return Ok(());
                    }
                    bytes_sent = BytesSent::Some;
                    // A relative time would begin anew with each operation, so a slow peer could
                    // prolong the call.
                    wait = self.apply_timeout(due.to_absolute()).map_err(|broken| (bytes_sent, broken))?;
                }
                Err(error) => {
                    self.is_broken = true;
                    return Err((bytes_sent, error.into()));
                }
            }
        }
    }

    /// Reads once from the transport. Returns false without reading if bytes are already in the
    /// buffer, the call can be cancelled, or the thread must run other requests while it waits.
    #[inline(always)]
    pub(crate) fn read_reply_fast(
        &mut self,
        due: CallDeadline,
        canceller: Option<&Canceller>,
    ) -> Result<bool, ExchangeError> {
        nested_wait::release_dedicated_connection();
        if nested_wait::dispatches_while_waiting() || canceller.is_some() || !self.received.is_empty() {
            return Ok(false);
        }
        let wait = self.apply_timeout(due)?;
        self.read_more(Header::LEN, wait)?;
        Ok(true)
    }

    /// Reads at most [`MAX_REPLY_HEAD`] bytes as [`read_reply_fast`](Self::read_reply_fast) does.
    pub(crate) fn read_reply_head(
        &mut self,
        due: CallDeadline,
        canceller: Option<&Canceller>,
    ) -> Result<bool, ExchangeError> {
        nested_wait::release_dedicated_connection();
        if nested_wait::dispatches_while_waiting() || canceller.is_some() || !self.received.is_empty() {
            return Ok(false);
        }
        let wait = self.apply_timeout(due)?;
        self.read_at_most(MAX_REPLY_HEAD, Header::LEN, wait)?;
        Ok(true)
    }

    /// Returns the header of the reply to request `id`, and the offset of its results, if the
    /// buffer has the reply's beginning and nothing else. Returns `None` for a reply that is in
    /// fragments, ends in lent memory, or reports an exception.
    /// Also returns `None` if the connection has failed, for example while the request was sent.
    pub(crate) fn begun_reply(&self, id: u32, limits: &Limits) -> Option<(Header, usize)> {
        if self.is_broken {
            return None;
        }
        let unread = self.received.unread();
        let header = Header::parse(unread.first_chunk()?).ok()?;
        if header.kind != MessageKind::Reply || header.more_fragments || header.size > limits.max_message_size {
            return None;
        }
        if header.total_len() <= unread.len() || lent_messages::is_lent(self.monitored.stream(), unread) {
            return None;
        }
        let reply = giop::Reply::parse(unread, &header, limits).ok()?;
        let has_results = reply.status == ReplyStatus::NoException && reply.body_offset <= unread.len();
        (reply.request_id == id && has_results).then_some((header, reply.body_offset))
    }

    pub(crate) fn unread(&self) -> &[u8] {
        self.received.unread()
    }

    /// Begins to read the rest of a reply without the buffer, and returns how the reads wait. Until
    /// [`end_direct_read`](Self::end_direct_read) the connection counts as broken, because nothing
    /// else can use it.
    pub(crate) fn begin_direct_read(&mut self, due: CallDeadline) -> Result<WaitLimit, ExchangeError> {
        let wait = self.apply_timeout(due)?;
        self.is_broken = true;
        Ok(wait)
    }

    /// Fills `octets` from the stream, with the bytes that follow the bytes in the buffer.
    pub(crate) fn read_past_buffer(&self, octets: &mut [u8], wait: WaitLimit) -> Result<(), ExchangeError> {
        let mut missing = octets;
        while !missing.is_empty() {
            match self.monitored.stream().recv(missing, wait)? {
                0 => return Err(ExchangeError::Io(io::ErrorKind::UnexpectedEof.into())),
                count => missing = missing.get_mut(count..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Removes the reply's beginning, `octets` bytes, from the buffer. The connection can be used
    /// again: [`begun_reply`](Self::begun_reply) permits a direct read of no failed connection.
    pub(crate) fn end_direct_read(&mut self, octets: usize) {
        self.is_broken = false;
        self.consume(octets);
    }

    /// Returns the header of the reply to request `id` if the whole reply is at the front of the
    /// buffer, is [plain](giop::Reply::parse_header_of_plain_result), and is smaller than
    /// [`MIN_OWNED_BYTES`].
    #[inline]
    pub(crate) fn plain_reply(&self, id: u32, limits: &Limits) -> Option<Header> {
        giop::Reply::parse_header_of_plain_result(self.received.unread(), id, limits.max_message_size)
            .filter(|header| header.total_len() < MIN_OWNED_BYTES)
    }

    /// Receives the next message. `first` is true if no bytes of this message have been read.
    pub(crate) fn receive_message(
        &mut self,
        due: CallDeadline,
        limits: &Limits,
        canceller: Option<&Canceller>,
        first: bool,
    ) -> Result<ReceivedMessage, ExchangeError> {
        let (mut due, mut first) = (due, first);
        loop {
            let wanted = match self.next_message(limits)? {
                Ok(received) => return Ok(received),
                Err(wanted) => wanted,
            };
            if !first {
                due = due.to_absolute();
            }
            first = false;
            nested_wait::release_dedicated_connection();
            if nested_wait::dispatches_while_waiting() || canceller.is_some() {
                due = due.to_absolute();
                self.wait_slow(due.latest(), canceller)?;
            }
            let wait = self.apply_timeout(due)?;
            self.read_more(wanted, wait)?;
        }
    }

    /// Waits until bytes arrive, the time `moment` is reached, or the call is cancelled. Does not
    /// wait if the stream has no descriptor that reports arrivals.
    #[cold]
    fn wait_slow(&self, moment: Option<Monotonic>, canceller: Option<&Canceller>) -> Result<(), ExchangeError> {
        let Some(fd) = self.monitored.stream().arrival_descriptor() else { return Ok(()) };
        let mut is_readable = self.monitored.stream().arm_readiness()? == Some(true);
        while !is_readable && nested_wait::dispatches_while_waiting() {
            let waited = nested_wait::wait_or_dispatch(fd, moment, canceller)?;
            is_readable =
                !waited || canceller.is_some_and(Canceller::is_cancelled) || self.is_readable_or_late(moment)?;
        }
        let Some(canceller) = canceller else { return Ok(()) };
        loop {
            if self.monitored.stream().arm_readiness()? == Some(true) {
                return Ok(());
            }
            if !canceller.wait_or_cancelled(fd, moment)? {
                return Err(ExchangeError::Cancelled);
            }
            if self.is_readable_or_late(moment)? {
                return Ok(());
            }
        }
    }

    /// Returns true if bytes have arrived or `moment` has passed. A descriptor may be readable
    /// although no bytes have arrived, so this method asks the stream.
    fn is_readable_or_late(&self, moment: Option<Monotonic>) -> io::Result<bool> {
        Ok(moment.is_some_and(Monotonic::is_past) || self.monitored.stream().arm_readiness()?.is_none_or(|there| there))
    }

    /// Examines the received bytes, and assembles fragments. Returns the first message if it is
    /// complete, else (as the inner error) the number of bytes that it needs.
    pub(crate) fn next_message(&mut self, limits: &Limits) -> Result<Result<ReceivedMessage, usize>, ExchangeError> {
        loop {
            match self.framer.next(self.received.unread(), limits) {
                Ok(FramingStep::Message { header, len })
                    if lent_messages::is_lent(self.monitored.stream(), self.received.unread()) =>
                {
                    return self.take_lent(&header, len, limits).map(Ok);
                }
                Ok(FramingStep::Message { header, len }) => return Ok(Ok(ReceivedMessage::InPlace(header, len))),
                Ok(FramingStep::NeedMore(wanted)) => return Ok(Err(wanted)),
                Ok(FramingStep::FragmentBuffered(length)) => {
                    self.received.consume(length);
                    self.account_memory()?;
                }
                Ok(FramingStep::Assembled { header, message, fragment_starts: breaks, len }) => {
                    self.consume(len);
                    let message = Octets::from(message);
                    return Ok(Ok(ReceivedMessage::Owned(Box::new(OwnedMessage { header, message, breaks }))));
                }
                Err(fault) => {
                    self.is_broken = true;
                    return Err(ExchangeError::Fault(fault.into()));
                }
            }
        }
    }

    #[cold]
    fn take_lent(&mut self, header: &Header, length: usize, limits: &Limits) -> Result<ReceivedMessage, ExchangeError> {
        let taken = lent_messages::take(self.monitored.stream(), header, self.front_message(length), limits);
        self.consume(length);
        match taken {
            Ok((header, message)) => {
                let message = message.into_octets();
                Ok(ReceivedMessage::Owned(Box::new(OwnedMessage { header, message, breaks: Vec::new() })))
            }
            Err(error) => {
                self.is_broken = true;
                Err(match error {
                    TakeError::Fault(fault) => ExchangeError::Fault(fault),
                    TakeError::Io(error) => ExchangeError::Io(error),
                })
            }
        }
    }

    #[inline(always)]
    pub(crate) fn read_more(&mut self, wanted: usize, wait: WaitLimit) -> Result<(), ExchangeError> {
        self.read_at_most(usize::MAX, wanted, wait)
    }

    #[inline(always)]
    fn read_at_most(&mut self, max: usize, wanted: usize, wait: WaitLimit) -> Result<(), ExchangeError> {
        let room = self.received.room(wanted, &self.spares);
        let max = room.len().min(max);
        match self.monitored.stream().recv(&mut room[..max], wait) {
            Ok(0) => {
                self.is_broken = true;
                Err(ExchangeError::Io(io::ErrorKind::UnexpectedEof.into()))
            }
            Ok(count) => {
                self.received.filled(count);
                if self.received.unread().len() > MAX_HEAP_BYTES { self.account_memory() } else { Ok(()) }
            }
            Err(error) => {
                let broken = ExchangeError::from(error);
                self.is_broken |= !matches!(broken, ExchangeError::TimedOut);
                Err(broken)
            }
        }
    }

    /// Counts the received bytes in the ORB's memory for replies, if they occupy more than
    /// [`MAX_HEAP_BYTES`]. An error drops the received bytes and makes the connection unusable.
    ///
    /// # Errors
    /// [`ExchangeError::OverBudget`] if the ORB's memory for replies is exhausted.
    #[cold]
    fn account_memory(&mut self) -> Result<(), ExchangeError> {
        let unread = if self.received.is_empty() { 0 } else { self.received.held().max(self.received.unread().len()) };
        let held = unread + self.framer.partial_message_bytes();
        self.share.set(if held > MAX_HEAP_BYTES { held } else { 0 }).map_err(|refusal| {
            self.drop_received();
            ExchangeError::OverBudget(refusal)
        })
    }

    #[cold]
    fn drop_received(&mut self) {
        self.is_broken = true;
        (self.received, self.framer) = (ReceiveBuffer::new(), Framer::new());
        // Setting a share to 0 needs no memory, so it cannot fail.
        let _ = self.share.set(0);
    }

    #[inline]
    pub(crate) fn front_message(&self, length: usize) -> &[u8] {
        &self.received.unread()[..length]
    }

    #[cold]
    pub(crate) fn take_message(&mut self, length: usize) -> ReceiveBuffer {
        let rest = self.received.split_after(length, ReceiveBuffer::new());
        // If no memory can be allocated for the bytes behind the message, they are lost, so the
        // connection is broken.
        self.is_broken |= rest.is_none();
        let taken = std::mem::replace(&mut self.received, rest.unwrap_or_default());
        if self.received.capacity() == 0 && length <= MAX_RETAINED_BYTES {
            self.received.room(length, &self.spares);
        }
        let _ = self.account_memory();
        taken
    }

    #[inline]
    pub(crate) fn consume(&mut self, length: usize) {
        self.received.consume(length);
        if self.share.octets() > 0 {
            let _ = self.account_memory();
        }
    }

    /// Abandons the reply for which a call waited, and sends the CancelRequest `cancel` if the
    /// transport takes it at once. If a large part of the reply has arrived, frees it and marks the
    /// connection as broken instead of sending. If more than [`MAX_ABANDONED`] replies are
    /// abandoned, the connection counts as broken.
    #[cold]
    pub(crate) fn abandon(&mut self, cancel: &Encoder<'_>) {
        self.abandoned += 1;
        if self.share.octets() > 0 {
            return self.drop_received();
        }
        let mut list = empty_slices();
        let slices = cancel.gather_slices(&mut list, IoSlice::new);
        // The server may ignore a CancelRequest, so the message is dropped if the transport accepts
        // none of its bytes.
        match self.monitored.stream().send_vectored(slices, WaitLimit::Now) {
            Ok(sent) if sent == slices.iter().map(|slice| slice.len()).sum::<usize>() => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.is_broken = true,
        }
        self.is_broken |= self.abandoned > MAX_ABANDONED;
    }

    /// Checks the connection after the reply `received` with a system exception. Marks the
    /// connection as broken if bytes follow the reply although no other reply is outstanding,
    /// because such bytes are a fault of the server.
    #[cold]
    pub(crate) fn on_system_exception(&mut self, received: &ReceivedMessage) {
        let length = match received {
            ReceivedMessage::InPlace(_, length) => *length,
            ReceivedMessage::Owned(_) => 0,
        };
        self.is_broken |= !self.owes_replies() && self.received.unread().len() > length;
    }

    /// Counts a reply with the id of another request. Returns true if an abandoned call is
    /// outstanding, to which the reply may belong.
    #[cold]
    pub(crate) fn accept_late_reply(&mut self) -> bool {
        let was_behind = self.owes_replies();
        self.abandoned = self.abandoned.saturating_sub(1);
        was_behind
    }

    pub(crate) fn peer(&self) -> &Peer {
        self.monitored.stream().peer()
    }

    #[inline]
    pub(crate) fn owes_replies(&self) -> bool {
        self.abandoned > 0
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    #[cold]
    pub(crate) fn mark_truncated(&mut self) {
        self.is_truncated = true;
    }

    /// Returns true if the beginning of a reply has arrived that is, or may be, the reply to
    /// request `id`.
    #[cold]
    pub(crate) fn has_begun_reply(&self, id: u32) -> bool {
        self.framer.has_partial_reply(id) || is_reply_start(self.received.unread(), id)
    }

    /// Searches the input after the connection has failed. Returns the kind of the first
    /// CloseConnection or MessageError; `None` if there is none, or if the reply to request `id`
    /// precedes it. Does not wait, and returns `None` after 64 steps, each a message, a fragment or
    /// a read.
    #[cold]
    pub(crate) fn final_message(&mut self, id: u32, limits: &Limits) -> Option<MessageKind> {
        for _ in 0..64 {
            match self.framer.next(self.received.unread(), limits) {
                Ok(FramingStep::Message { header, len }) => {
                    if is_reply_to(self.front_message(len), &header, id, limits) {
                        return None;
                    }
                    if matches!(header.kind, MessageKind::CloseConnection | MessageKind::MessageError) {
                        return Some(header.kind);
                    }
                    self.received.consume(len);
                }
                Ok(FramingStep::Assembled { header, message, len, .. }) => {
                    self.received.consume(len);
                    if is_reply_to(&message, &header, id, limits) {
                        return None;
                    }
                }
                Ok(FramingStep::FragmentBuffered(len)) => self.received.consume(len),
                Ok(FramingStep::NeedMore(wanted)) => {
                    match self.monitored.stream().recv(self.received.room(wanted, &self.spares), WaitLimit::Now) {
                        Ok(count) if count > 0 => self.received.filled(count),
                        _ => return None,
                    }
                }
                Err(_) => return None,
            }
        }
        None
    }
}

fn is_reply_to(message: &[u8], header: &Header, id: u32, limits: &Limits) -> bool {
    let named = match header.kind {
        MessageKind::Reply => giop::Reply::parse(message, header, limits).map(|reply| reply.request_id),
        MessageKind::LocateReply => giop::LocateReply::parse(message, header).map(|reply| reply.request_id),
        _ => return false,
    };
    named.map_or(true, |named| named == id)
}

pub(super) fn is_reply_start(unread: &[u8], id: u32) -> bool {
    let Some(Ok(header)) = unread.first_chunk().map(Header::parse) else { return false };
    let names_id_first = header.kind == MessageKind::LocateReply || header.version.has_giop_1_2_headers();
    let named = Decoder::new(unread, header.endian).at_position(Header::LEN).read_u32().ok().filter(|_| names_id_first);
    matches!(header.kind, MessageKind::Reply | MessageKind::LocateReply) && named.is_none_or(|named| named == id)
}

pub(super) fn empty_slices<'m>() -> [IoSlice<'m>; MAX_ENCODER_SLICES] {
    [IoSlice::new(&[]); MAX_ENCODER_SLICES]
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        // In a forked child process, the parent process uses the connection, so the child sends
        // nothing.
        if corelane_sys::process::fork_generation() == self.fork_generation {
            if !self.oneways.bytes.is_empty() && !self.is_broken {
                let _ = self.monitored.stream().send(&self.oneways.bytes, WaitLimit::Now);
            }
            self.monitored.stream().shutdown(ShutdownDirection::Both);
        }
    }
}
