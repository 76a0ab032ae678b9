//! The memory of one thread of a pool, and the reading and handling of messages with this memory.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_wire::connection::{Framer, FramingStep};
use corelane_wire::exception::minor;
use corelane_wire::giop::{Header, MessageKind};
use corelane_wire::{Endian, Limits, Scratch, Version};

use super::burst_role::BurstRole;
use super::connection::{Connection, ReadState};
use super::core_groups::ThreadGroup;
use super::final_messages;
use super::handler::RequestHandler;
use super::message::{Message, RequestMemory, wants_reply};
use crate::fault::PeerFault;
#[cfg(feature = "keep-octets")]
use crate::kept_octets::{KeepAccount, Lender, MIN_LENT_BYTES, MessageMemory};
use crate::lent_messages::{self, TakeError};
use crate::orb_context::OrbContext;
use crate::receive::{MAX_RETAINED_BYTES, ReceiveBuffer};

const MAX_SPARES: usize = 4;
/// Maximum size in bytes of a message that is copied to separate it from the bytes behind it.
const MAX_COPIED_MESSAGE: usize = 8 * 1024;

#[derive(Debug)]
pub(crate) struct Worker {
    /// Receives the input of connections. A connection with an incomplete message has a buffer of
    /// its own.
    pub(crate) buffer: ReceiveBuffer,
    /// True if the thread's previous step ran a task of the ready list.
    pub(crate) ran_listed_task: bool,
    /// Valid from [`ReadResult::InPlace`] until the message is dispatched or detached. The header
    /// is not in `InPlace`, because reading a value just after a move stalls store forwarding
    /// (docs/performance.md).
    in_place_header: Header,
    /// The connection of the thread's last event, which the thread polls next.
    pub(super) last_reported: Option<(u32, u32)>,
    pub(super) burst_role: BurstRole,
    pub(super) group: ThreadGroup,
    spares: Vec<ReceiveBuffer>,
    pub(crate) memory: RequestMemory,
    /// Lends large messages to their requests, whose servants may keep octets.
    #[cfg(feature = "keep-octets")]
    lender: Lender,
    pub(super) is_overload_thread: bool,
    /// The task of the message that the thread has read. While it is set, the thread holds the
    /// connection's read lock.
    #[cfg(feature = "core-pool")]
    pub(super) claimed_task: Option<u64>,
}

#[derive(Debug)]
pub(crate) enum ReadResult {
    /// A message at the front of the worker's buffer. `more` is true if more input may have
    /// arrived.
    InPlace {
        more: bool,
    },
    Message {
        message: Message,
        more: bool,
    },
    Incomplete,
    EndOfStream,
    AlreadyEnded,
    Fault(PeerFault, Vec<u8>),
}

impl Worker {
    pub(crate) fn new() -> Self {
        Worker {
            buffer: ReceiveBuffer::new(),
            in_place_header: Header {
                version: Version::HIGHEST,
                endian: Endian::NATIVE,
                more_fragments: false,
                kind: MessageKind::MessageError,
                size: 0,
            },
            ran_listed_task: false,
            last_reported: None,
            burst_role: BurstRole::default(),
            group: ThreadGroup::default(),
            spares: Vec::new(),
            memory: RequestMemory::default(),
            #[cfg(feature = "keep-octets")]
            lender: Lender::default(),
            is_overload_thread: false,
            #[cfg(feature = "core-pool")]
            claimed_task: None,
        }
    }

    pub(super) fn for_overload_thread() -> Self {
        Worker { is_overload_thread: true, ..Self::new() }
    }

    #[inline(never)]
    pub(crate) fn read_now(
        &mut self,
        reading: &mut ReadState,
        connection: &Connection,
        context: &OrbContext,
    ) -> ReadResult {
        self.read(reading, connection, context, WaitLimit::Now)
    }

    /// Reads until a message is complete, no input is left, or the input has ended or is faulty.
    /// Waits for input if `wait` permits it.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        reading: &mut ReadState,
        connection: &Connection,
        context: &OrbContext,
        wait: WaitLimit,
    ) -> ReadResult {
        let limits = &context.config().limits;
        let mut received = false;
        if reading.is_over {
            return ReadResult::AlreadyEnded;
        }
        loop {
            let unread = self.buffer.unread();
            let own = reading.partial.is_none();
            let wanted = if own && unread.is_empty() {
                Header::LEN
            } else if own
                && let Some(header) =
                    Header::parse_unfragmented_1_2(unread, MessageKind::Request, limits.max_message_size)
                && header.total_len() == unread.len()
            {
                self.in_place_header = header;
                return in_place(reading, connection);
            } else {
                match self.frame(reading, connection, limits) {
                    ControlFlow::Continue(wanted) => wanted,
                    ControlFlow::Break(read) => return read,
                }
            };
            if received && reading.is_drained && wait == WaitLimit::Now {
                return self.suspend(reading, connection);
            }
            let buffer = match &mut reading.partial {
                Some(partial) => partial,
                None => &mut self.buffer,
            };
            if wait == WaitLimit::Block && !buffer.is_empty() {
                record_fragments(&reading.framer, buffer, connection);
            }
            let room = buffer.room(wanted, context.spares());
            let size = room.len();
            match connection.stream.recv(room, wait) {
                Ok(0) => return self.end_input(reading),
                Ok(count) => {
                    corelane_sys::probe!("octets read");
                    received = true;
                    reading.is_drained = count < size && !connection.is_hung_up();
                    buffer.filled(count);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return self.suspend(reading, connection);
                }
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return self.suspend(reading, connection),
                Err(_) => return self.end_input(reading),
            }
        }
    }

    /// Looks for a complete message in the received bytes. `Break` has a message, the end of the
    /// input or a fault; `Continue` has the number of bytes that the first message needs.
    #[inline(never)]
    fn frame(
        &mut self,
        reading: &mut ReadState,
        connection: &Connection,
        limits: &Limits,
    ) -> ControlFlow<ReadResult, usize> {
        let own = reading.partial.is_none();
        loop {
            let buffer = match &mut reading.partial {
                Some(partial) => partial,
                None => &mut self.buffer,
            };
            let read = match reading.framer.next(buffer.unread(), limits) {
                Ok(FramingStep::Message { header, len })
                    if lent_messages::is_lent(&*connection.stream, buffer.unread()) =>
                {
                    self.take_lent(reading, connection, &header, len, limits)
                }
                Ok(FramingStep::Message { header, len: length }) => {
                    let surplus = buffer.unread().get(length..).unwrap_or_default();
                    if surplus.is_empty() && own {
                        self.in_place_header = header;
                        return ControlFlow::Break(in_place(reading, connection));
                    }
                    let more = !reading.is_drained || holds_message(surplus);
                    let surplus = !surplus.is_empty();
                    let read = self.split_off(reading, header, length, surplus, more);
                    if !matches!(read, ReadResult::EndOfStream) {
                        record_progress(reading, connection);
                    }
                    read
                }
                Ok(FramingStep::NeedMore(wanted)) => return ControlFlow::Continue(wanted),
                Ok(FramingStep::FragmentBuffered(length)) => {
                    buffer.consume(length);
                    record_fragments(&reading.framer, buffer, connection);
                    continue;
                }
                Ok(FramingStep::Assembled { header, message, fragment_starts: breaks, len }) => {
                    buffer.consume(len);
                    let more = !reading.is_drained || !buffer.is_empty();
                    self.store_rest(reading);
                    record_progress(reading, connection);
                    ReadResult::Message { message: Message::Assembled(header, message, breaks), more }
                }
                Err(fault) => {
                    let last_message =
                        final_messages::fault_reply(fault, reading.framer.faulty_message(buffer.unread()), limits);
                    self.discard_input();
                    reading.is_over = true;
                    ReadResult::Fault(fault.into(), last_message)
                }
            };
            return ControlFlow::Break(read);
        }
    }

    /// Takes the first message out of the buffer, and returns it with the octets that the peer has
    /// lent in shared memory. The buffer has a reference in place of these octets.
    #[cold]
    fn take_lent(
        &mut self,
        reading: &mut ReadState,
        connection: &Connection,
        header: &Header,
        length: usize,
        limits: &Limits,
    ) -> ReadResult {
        let buffer = match &mut reading.partial {
            Some(partial) => partial,
            None => &mut self.buffer,
        };
        let short = &buffer.unread()[..length];
        match lent_messages::take(&*connection.stream, header, short, limits) {
            Ok((header, message)) => {
                buffer.consume(length);
                let more = !reading.is_drained || !buffer.is_empty();
                self.store_rest(reading);
                record_progress(reading, connection);
                ReadResult::Message { message: Message::Buffered(header, header.total_len(), message), more }
            }
            Err(TakeError::Fault(fault)) => {
                let last_message = match fault {
                    PeerFault::Protocol(fault) => final_messages::fault_reply(fault, short, limits),
                    _ => final_messages::message_error(),
                };
                self.discard_input();
                reading.is_over = true;
                ReadResult::Fault(fault, last_message)
            }
            Err(TakeError::Io(_)) => self.end_input(reading),
        }
    }

    /// Separates a message from the bytes behind it. `surplus` is true if there are any. A small
    /// message is copied to the worker's buffer, and the connection keeps the buffer with the bytes
    /// behind the message. A large message keeps its buffer, and the bytes behind the message are
    /// copied. Returns [`ReadResult::EndOfStream`] if no memory can be allocated for the copy.
    #[cold]
    fn split_off(
        &mut self,
        reading: &mut ReadState,
        header: Header,
        length: usize,
        surplus: bool,
        more: bool,
    ) -> ReadResult {
        let spare = self.spare();
        let mut whole = match reading.partial.take() {
            Some(partial) => {
                self.give_back(spare);
                partial
            }
            None => std::mem::replace(&mut self.buffer, spare),
        };
        if !surplus {
            return ReadResult::Message { message: Message::Buffered(header, length, whole), more };
        }
        if length <= MAX_COPIED_MESSAGE {
            self.buffer.clear();
            let copied = self.buffer.append(&whole.unread()[..length]);
            whole.consume(length);
            reading.partial = Some(whole);
            self.in_place_header = header;
            return if copied { ReadResult::InPlace { more } } else { self.end_input(reading) };
        }
        let spare = self.spare();
        match whole.split_after(length, spare) {
            Some(rest) => {
                reading.partial = Some(rest);
                ReadResult::Message { message: Message::Buffered(header, length, whole), more }
            }
            None => self.end_input(reading),
        }
    }

    #[cold]
    fn end_input(&mut self, reading: &mut ReadState) -> ReadResult {
        self.discard_input();
        reading.is_over = true;
        ReadResult::EndOfStream
    }

    #[cold]
    fn suspend(&mut self, reading: &mut ReadState, connection: &Connection) -> ReadResult {
        self.store_rest(reading);
        record_progress(reading, connection);
        ReadResult::Incomplete
    }

    fn store_rest(&mut self, reading: &mut ReadState) {
        if reading.partial.as_ref().is_some_and(ReceiveBuffer::is_empty)
            && let Some(empty) = reading.partial.take()
        {
            self.give_back(empty);
        }
        if !self.buffer.is_empty() && reading.partial.is_none() {
            let spare = self.spare();
            reading.partial = Some(std::mem::replace(&mut self.buffer, spare));
        }
    }

    #[cold]
    fn discard_input(&mut self) {
        self.buffer.clear();
        self.trim_buffers();
    }

    #[inline]
    fn trim_buffers(&mut self) {
        if self.buffer.capacity().max(self.memory.reply.capacity()).max(self.memory.scratch.allocated_bytes())
            > MAX_RETAINED_BYTES
        {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_RETAINED_BYTES {
            self.buffer = self.spare();
        }
        if self.memory.reply.capacity() > MAX_RETAINED_BYTES {
            self.memory.reply = Vec::new();
        }
        if self.memory.scratch.allocated_bytes() > MAX_RETAINED_BYTES {
            self.memory.scratch = Scratch::new();
        }
    }

    fn spare(&mut self) -> ReceiveBuffer {
        self.spares.pop().unwrap_or_default()
    }

    fn give_back(&mut self, mut buffer: ReceiveBuffer) {
        if self.spares.len() < MAX_SPARES && buffer.capacity() <= MAX_RETAINED_BYTES {
            buffer.clear();
            self.spares.push(buffer);
        }
    }

    #[cold]
    pub(crate) fn in_place_wants_reply(&self) -> bool {
        wants_reply(&self.in_place_header, &self.buffer.unread()[..self.in_place_header.total_len()])
    }

    #[cfg(feature = "replies-first")]
    pub(super) fn keeps_read_lock(&self) -> bool {
        #[cfg(feature = "core-pool")]
        return self.claimed_task.is_some();
        #[cfg(not(feature = "core-pool"))]
        false
    }

    #[cfg(any(feature = "core-pool", feature = "replies-first"))]
    #[inline]
    pub(super) fn in_place(&self) -> (&Header, &[u8]) {
        (&self.in_place_header, &self.buffer.unread()[..self.in_place_header.total_len()])
    }

    /// Takes the message [in place](ReadResult::InPlace) out of the worker, which gets an empty
    /// buffer.
    pub(crate) fn detach(&mut self) -> Message {
        let spare = self.spare();
        Message::Buffered(
            self.in_place_header,
            self.in_place_header.total_len(),
            std::mem::replace(&mut self.buffer, spare),
        )
    }

    #[cold]
    pub(crate) fn reject<H: RequestHandler>(
        &mut self,
        handler: &Arc<H>,
        connection: &Connection,
        message: &Message,
        minor: u32,
    ) {
        let (header, octets) = message.parts();
        handler.reject(connection, (header, octets), minor, &mut self.memory);
    }

    #[cold]
    pub(crate) fn reject_overloaded<H: RequestHandler>(
        &mut self,
        handler: &Arc<H>,
        connection: &Connection,
        message: &Message,
    ) {
        self.reject(handler, connection, message, minor::transient::DISCARDED);
    }

    /// Passes the message [in place](ReadResult::InPlace) to the handler. Returns false if the
    /// connection must be retired.
    #[inline]
    pub(crate) fn dispatch_in_place<H: RequestHandler>(
        &mut self,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        wait: WaitLimit,
    ) -> bool {
        let length = self.in_place_header.total_len();
        #[cfg(feature = "keep-octets")]
        if length >= MIN_LENT_BYTES {
            return self.lend_in_place(handler, connection, wait);
        }
        let octets = &self.buffer.unread()[..length];
        let goes_on = handler.handle_message(
            connection,
            &self.in_place_header,
            (octets, &[]),
            &mut self.memory,
            wait,
            Duration::ZERO,
        );
        self.buffer.consume(length);
        self.trim_buffers();
        goes_on
    }

    /// Passes a message to the handler. `waited` is the time since the message was read. Returns
    /// false if the connection must be retired.
    #[inline(never)]
    pub(crate) fn dispatch<H: RequestHandler>(
        &mut self,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        message: Message,
        wait: WaitLimit,
        waited: Duration,
    ) -> bool {
        #[cfg(feature = "keep-octets")]
        if message.parts().1.len() >= MIN_LENT_BYTES {
            let (goes_on, buffer) = self.lend(handler, connection, message, wait, waited);
            if let Some(buffer) = buffer {
                self.give_back(buffer);
            }
            return goes_on;
        }
        let goes_on = match message {
            Message::Buffered(header, length, buffer) => {
                let octets = &buffer.unread()[..length];
                let goes_on =
                    handler.handle_message(connection, &header, (octets, &[]), &mut self.memory, wait, waited);
                self.give_back(buffer);
                goes_on
            }
            Message::Assembled(header, octets, breaks) => {
                handler.handle_message(connection, &header, (&octets, &breaks), &mut self.memory, wait, waited)
            }
        };
        self.trim_buffers();
        goes_on
    }

    /// Passes the large message [in place](ReadResult::InPlace) to the handler. The worker keeps
    /// its buffer unless the buffer is too large, or a servant keeps octets of the message.
    #[cfg(feature = "keep-octets")]
    #[cold]
    #[inline(never)]
    fn lend_in_place<H: RequestHandler>(
        &mut self,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        wait: WaitLimit,
    ) -> bool {
        let buffer = std::mem::take(&mut self.buffer);
        let message = Message::Buffered(self.in_place_header, self.in_place_header.total_len(), buffer);
        let (goes_on, buffer) = self.lend(handler, connection, message, wait, Duration::ZERO);
        self.buffer = match buffer {
            Some(mut buffer) => {
                buffer.clear();
                buffer
            }
            None => self.spare(),
        };
        goes_on
    }

    /// Passes a large message to the handler. A servant may keep octets of the message without a
    /// copy. The first result is false if the connection must be retired. The second is the
    /// message's buffer; `None` if octets are kept, if the buffer is too large, or if the message
    /// was assembled from fragments.
    #[cfg(feature = "keep-octets")]
    #[cold]
    #[inline(never)]
    fn lend<H: RequestHandler>(
        &mut self,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        message: Message,
        wait: WaitLimit,
        waited: Duration,
    ) -> (bool, Option<ReceiveBuffer>) {
        let account = KeepAccount::new(handler.context().kept_budget(), connection.origin.id);
        let (header, length, memory, breaks) = match message {
            Message::Buffered(header, length, buffer) => (header, length, MessageMemory::Buffer(buffer), Vec::new()),
            Message::Assembled(header, octets, breaks) => {
                (header, octets.len(), MessageMemory::Assembled(octets), breaks)
            }
        };
        let (lender, request_memory) = (&mut self.lender, &mut self.memory);
        let (goes_on, memory) = lender.lend(memory, account, |octets| {
            let octets = octets.get(..length).unwrap_or_default();
            handler.handle_message(connection, &header, (octets, &breaks), request_memory, wait, waited)
        });
        self.trim_buffers();
        let reusable = match memory {
            MessageMemory::Buffer(buffer) if buffer.capacity() <= MAX_RETAINED_BYTES => Some(buffer),
            _ => None,
        };
        (goes_on, reusable)
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn in_place(reading: &ReadState, connection: &Connection) -> ReadResult {
    if connection.has_partial_message() {
        record_progress(reading, connection);
    }
    ReadResult::InPlace { more: !reading.is_drained }
}

#[cold]
fn record_progress(reading: &ReadState, connection: &Connection) {
    let framer = &reading.framer;
    match &reading.partial {
        Some(partial) => record_fragments(framer, partial, connection),
        None if framer.partial_message_count() == 0 && !connection.has_partial_message() => {}
        None => connection.record_partial_messages(0, framer.oldest_partial_message(), framer.partial_message_bytes()),
    }
}

#[cold]
fn record_fragments(framer: &Framer, buffer: &ReceiveBuffer, connection: &Connection) {
    let unread = buffer.unread();
    let held = if unread.is_empty() { 0 } else { buffer.held().max(unread.len()) };
    // The peer does not cause the delay of a complete message that waits for a thread, so such a
    // message counts with 0 bytes.
    let arrived = if holds_message(unread) { 0 } else { unread.len() };
    connection.record_partial_messages(arrived, framer.oldest_partial_message(), held + framer.partial_message_bytes());
}

fn holds_message(octets: &[u8]) -> bool {
    let header = octets.first_chunk().map(Header::parse);
    header.is_some_and(|header| header.map_or(true, |header| header.total_len() <= octets.len()))
}

#[cfg(test)]
mod tests {
    use corelane_sys::clock::Monotonic;
    use corelane_wire::giop::MessageKind;
    use corelane_wire::{Decoder, Endian, Version};

    use super::*;
    use crate::server::connection::tests::detached_connection;
    use crate::server::memory_budget::MemoryBudget;
    use crate::{Orb, clock};

    fn header(size: usize) -> Header {
        Header {
            version: Version::GIOP_1_2,
            endian: Endian::Big,
            more_fragments: false,
            kind: MessageKind::CancelRequest,
            size: u32::try_from(size).unwrap(),
        }
    }

    fn held(worker: &Worker) -> usize {
        let memory = &worker.memory;
        let spares = worker.spares.iter().map(ReceiveBuffer::capacity).max().unwrap_or(0);
        worker.buffer.capacity().max(memory.reply.capacity()).max(memory.scratch.allocated_bytes()).max(spares)
    }

    #[test]
    fn fragments_stay_counted_between_whole_messages() {
        let at = |seconds: u64| clock::set(Some(Monotonic::from_nanos(seconds * 1_000_000_000)));
        let memory_budget = MemoryBudget::new(100);
        let (connection, orb) = (detached_connection(&memory_budget, false), Orb::new().unwrap());
        let mut worker = Worker::new();
        let mut reading = ReadState { framer: Default::default(), partial: None, is_drained: true, is_over: false };
        let message = |kind: MessageKind, more_fragments, body: &[u8]| {
            let size = u32::try_from(body.len()).unwrap();
            let header = Header { more_fragments, kind, size, ..header(0) };
            [&header.to_bytes(), body].concat()
        };
        let cancel = |id| message(MessageKind::CancelRequest, false, &[0, 0, 0, id]);
        let oneway = message(MessageKind::Request, false, &[[0, 0, 0, 9].as_slice(), &[0; 24]].concat());
        let mut read = |octets: &[u8]| {
            assert!(worker.buffer.append(octets));
            let read = worker.read_now(&mut reading, &connection, orb.core().adapter());
            match read {
                ReadResult::InPlace { .. } => {
                    worker.dispatch_in_place(orb.core().adapter(), &connection, WaitLimit::Now)
                }
                ReadResult::Message { message, .. } => {
                    worker.dispatch(orb.core().adapter(), &connection, message, WaitLimit::Now, Duration::ZERO)
                }
                read => panic!("{read:?}"),
            };
        };
        at(1);
        let begun = message(MessageKind::Request, true, &[[0, 0, 0, 7].as_slice(), &[0; 84]].concat());
        read(&[begun, cancel(1)].concat());
        assert!(connection.has_partial_message());
        for second in 2..40 {
            at(second);
            read(&if second % 2 == 0 { cancel(1) } else { oneway.clone() });
        }
        assert_eq!(connection.stalled_for(clock::now()).as_secs(), 38);
        assert_eq!(connection.memory_use().held_bytes(), 100);
        assert!(!memory_budget.is_exceeded());
        read(&cancel(7));
        assert!(!connection.has_partial_message());
        assert_eq!(connection.memory_use().held_bytes(), 0);
        clock::set(None);
    }

    #[test]
    fn buffers_shrink_after_one_large_message() {
        let orb = Orb::new().unwrap();
        let connection = detached_connection(&MemoryBudget::new(usize::MAX), false);
        let mut worker = Worker::new();
        let large = vec![0; 4 * MAX_RETAINED_BYTES];
        for kind in 0..3 {
            assert!(worker.buffer.append(&large));
            worker.memory.reply.reserve(4 * MAX_RETAINED_BYTES);
            // Decoding a foreign byte order fills the scratch memory with the converted numbers.
            let mut numbers = Decoder::new(&large, Endian::from_flag(Endian::NATIVE.to_flag() ^ 1))
                .with_scratch(&worker.memory.scratch);
            numbers.read_slice::<u64>(large.len() / 8).unwrap();
            assert!(held(&worker) > MAX_RETAINED_BYTES);
            worker.in_place_header = header(large.len() - Header::LEN);
            let message = match kind {
                0 => None,
                1 => Some(worker.detach()),
                _ => {
                    worker.buffer.consume(large.len());
                    Some(Message::Assembled(header(0), Vec::new(), Vec::new()))
                }
            };
            match message {
                None => worker.dispatch_in_place(orb.core().adapter(), &connection, WaitLimit::Now),
                Some(message) => {
                    worker.dispatch(orb.core().adapter(), &connection, message, WaitLimit::Now, Duration::ZERO)
                }
            };
            assert!(held(&worker) <= MAX_RETAINED_BYTES, "{kind}");
        }
        assert!(worker.buffer.append(&large));
        let mut reading = ReadState { framer: Default::default(), partial: None, is_drained: false, is_over: false };
        let read = worker.read_now(&mut reading, &connection, orb.core().adapter());
        assert!(matches!(read, ReadResult::Fault(..)) && held(&worker) <= MAX_RETAINED_BYTES);
    }
}
