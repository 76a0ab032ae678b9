//! What one thread of a pool works with: its buffers, and the way of a message from octets to the reply.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_net::Wait;
use corelane_wire::connection::{Framer, Step};
use corelane_wire::giop::{Header, MessageKind};
use corelane_wire::{Endian, Limits, Scratch, Version};

use super::connection::{Connection, Reading};
use super::request;
use super::rush::Part;
use crate::fault::Fault;
use crate::orb::Core;
use crate::receive::{KEPT, ReceiveBuffer};

/// Spare receive buffers that a thread keeps.
const SPARES: usize = 4;
/// A message up to this size is copied rather than what follows it.
const SMALL: usize = 8 * 1024;

/// The memory of one thread, reused from request to request.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Where reading begins when a connection has no unfinished message.
    pub(crate) buffer: ReceiveBuffer,
    /// The last piece of work came from the ready list: what is reported has its turn now.
    pub(crate) was_listed: bool,
    /// Of the whole message at the front of the buffer, from [`Read::Here`] until it is served or leaves; else it means nothing. It stays where
    /// it is: moved, it would be read before it had left the processor's store buffer.
    here: Header,
    /// In the lane's rush.
    pub(super) part: Part,
    spares: Vec<ReceiveBuffer>,
    pub(crate) memory: Memory,
    /// It reads and runs nothing: the lane's keeper.
    pub(super) is_keeper: bool,
}

/// Memory for running requests.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) reply: Vec<u8>,
    pub(crate) scratch: Scratch,
}

/// A whole message with its octets, which can leave the thread that read it.
#[derive(Debug)]
pub(crate) enum Message {
    /// In a buffer that came with the connection.
    Buffered(Header, usize, ReceiveBuffer),
    /// Put together from fragments, with the places where GIOP 1.1 fragments begin.
    Assembled(Header, Vec<u8>, Vec<usize>),
}

impl Message {
    /// Memory that it holds while it waits.
    pub(crate) fn octets(&self) -> usize {
        match self {
            Message::Buffered(_, length, buffer) => buffer.held().max(*length),
            Message::Assembled(_, octets, _) => octets.len(),
        }
    }

    /// Whether it is a request whose client waits for the reply.
    #[cold]
    pub(super) fn wants_reply(&self) -> bool {
        let (header, octets) = self.parts();
        wants_reply(header, octets)
    }

    /// Header and octets, from the header on.
    pub(crate) fn parts(&self) -> (&Header, &[u8]) {
        match self {
            Message::Buffered(header, length, buffer) => (header, &buffer.unread()[..*length]),
            Message::Assembled(header, octets, _) => (header, octets),
        }
    }
}

/// What reading came to.
#[derive(Debug)]
pub(crate) enum Read {
    /// A message in the worker's own buffer, as nearly all are; `more` says that there may be more to read right now.
    Here { more: bool },
    /// A message that is elsewhere.
    Message { message: Message, more: bool },
    /// Nothing whole is there now.
    Nothing,
    /// The peer has closed, or the connection failed.
    End,
    /// Another thread has found the end, or a fault, before.
    Over,
    /// The peer broke the protocol.
    Fault(Fault),
}

impl Worker {
    pub(crate) fn new() -> Self {
        Worker {
            buffer: ReceiveBuffer::new(),
            here: Header {
                version: Version::GIOP_1_2,
                endian: Endian::NATIVE,
                more_fragments: false,
                kind: MessageKind::MessageError,
                size: 0,
            },
            was_listed: false,
            part: Part::default(),
            spares: Vec::new(),
            memory: Memory::default(),
            is_keeper: false,
        }
    }

    /// That of a thread which runs nothing.
    pub(super) fn for_keeper() -> Self {
        Worker { is_keeper: true, ..Self::new() }
    }

    /// Reads what is there now: one message, if it is whole.
    #[inline(never)]
    pub(crate) fn read_now(&mut self, reading: &mut Reading, connection: &Connection, core: &Core) -> Read {
        self.read(reading, connection, core, Wait::Now)
    }

    /// Reads until one message is whole, or nothing more is there (or the wait is over). It is part of its caller, always: the kernel may
    /// fill the processor's return stack buffer when it runs another process meanwhile.
    #[inline(always)]
    pub(crate) fn read(&mut self, reading: &mut Reading, connection: &Connection, core: &Core, wait: Wait) -> Read {
        let limits = &core.config().limits;
        let mut received = false;
        if reading.over {
            return Read::Over;
        }
        loop {
            let unread = self.buffer.unread();
            let own = reading.partial.is_none();
            let wanted = if own && unread.is_empty() {
                Header::LEN
            } else if own
                && let Some(header) = Header::of_whole(unread, MessageKind::Request, limits.message_size)
                && header.total() == unread.len()
            {
                self.here = header;
                return here(reading, connection);
            } else {
                match self.frame(reading, connection, limits) {
                    ControlFlow::Continue(wanted) => wanted,
                    ControlFlow::Break(read) => return read,
                }
            };
            if received && reading.drained && wait == Wait::Now {
                return self.pause(reading, connection);
            }
            let buffer = match &mut reading.partial {
                Some(partial) => partial,
                None => &mut self.buffer,
            };
            if wait == Wait::Block && !buffer.is_empty() {
                note_fragments(&reading.framer, buffer, connection);
            }
            let room = buffer.room(wanted, core.spares());
            let size = room.len();
            match connection.stream.recv(room, wait) {
                Ok(0) => return self.end(reading),
                Ok(count) => {
                    corelane_sys::probe!("octets read");
                    received = true;
                    reading.drained = count < size && !connection.hung_up.load(Ordering::Acquire);
                    buffer.filled(count);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return self.pause(reading, connection),
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return self.pause(reading, connection),
                Err(_) => return self.end(reading),
            }
        }
    }

    /// Takes the first whole message out of the octets that are there; how many octets it takes if there is none.
    #[inline(never)]
    fn frame(&mut self, reading: &mut Reading, connection: &Connection, limits: &Limits) -> ControlFlow<Read, usize> {
        let own = reading.partial.is_none();
        loop {
            let buffer = match &mut reading.partial {
                Some(partial) => partial,
                None => &mut self.buffer,
            };
            let read = match reading.framer.next(buffer.unread(), limits) {
                Ok(Step::Message { header, len: length }) => {
                    let surplus = buffer.unread().get(length..).unwrap_or_default();
                    if surplus.is_empty() && own {
                        self.here = header;
                        return ControlFlow::Break(here(reading, connection));
                    }
                    let more = !reading.drained || holds_message(surplus);
                    let surplus = !surplus.is_empty();
                    let read = self.part(reading, header, length, surplus, more);
                    if !matches!(read, Read::End) {
                        note_progress(reading, connection);
                    }
                    read
                }
                Ok(Step::NeedMore(wanted)) => return ControlFlow::Continue(wanted),
                Ok(Step::Absorbed(length)) => {
                    buffer.consume(length);
                    note_fragments(&reading.framer, buffer, connection);
                    continue;
                }
                Ok(Step::Assembled { header, message, breaks, len }) => {
                    buffer.consume(len);
                    let more = !reading.drained || !buffer.is_empty();
                    self.keep_rest(reading);
                    note_progress(reading, connection);
                    Read::Message { message: Message::Assembled(header, message, breaks), more }
                }
                Err(fault) => {
                    self.forget();
                    reading.over = true;
                    Read::Fault(fault.into())
                }
            };
            return ControlFlow::Break(read);
        }
    }

    /// Parts a message from what follows it in its buffer. A small message is copied to the thread's own buffer, and the rest
    /// stays with the connection; a large one leaves with the buffer, and the rest is copied. The end when there is no room to copy it to.
    #[cold]
    fn part(&mut self, reading: &mut Reading, header: Header, length: usize, surplus: bool, more: bool) -> Read {
        let spare = self.spare();
        let mut whole = match reading.partial.take() {
            Some(partial) => {
                self.give_back(spare);
                partial
            }
            None => std::mem::replace(&mut self.buffer, spare),
        };
        if !surplus {
            return Read::Message { message: Message::Buffered(header, length, whole), more };
        }
        if length <= SMALL {
            self.buffer.clear();
            let copied = self.buffer.append(&whole.unread()[..length]);
            whole.consume(length);
            reading.partial = Some(whole);
            self.here = header;
            return if copied { Read::Here { more } } else { self.end(reading) };
        }
        let spare = self.spare();
        match whole.split_after(length, spare) {
            Some(rest) => {
                reading.partial = Some(rest);
                Read::Message { message: Message::Buffered(header, length, whole), more }
            }
            None => self.end(reading),
        }
    }

    /// Nothing is read any more.
    #[cold]
    fn end(&mut self, reading: &mut Reading) -> Read {
        self.forget();
        reading.over = true;
        Read::End
    }

    /// Nothing whole is there: what has arrived stays with the connection, which owns a buffer only now.
    #[cold]
    fn pause(&mut self, reading: &mut Reading, connection: &Connection) -> Read {
        self.keep_rest(reading);
        note_progress(reading, connection);
        Read::Nothing
    }

    fn keep_rest(&mut self, reading: &mut Reading) {
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

    /// What was read leads to nothing.
    #[cold]
    fn forget(&mut self) {
        self.buffer.clear();
        self.settle();
    }

    /// Gives back what one large message made grow.
    #[inline]
    fn settle(&mut self) {
        if self.buffer.capacity().max(self.memory.reply.capacity()).max(self.memory.scratch.allocated()) > KEPT {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT {
            self.buffer = self.spare();
        }
        if self.memory.reply.capacity() > KEPT {
            self.memory.reply = Vec::new();
        }
        if self.memory.scratch.allocated() > KEPT {
            self.memory.scratch = Scratch::new();
        }
    }

    fn spare(&mut self) -> ReceiveBuffer {
        self.spares.pop().unwrap_or_default()
    }

    fn give_back(&mut self, mut buffer: ReceiveBuffer) {
        if self.spares.len() < SPARES && buffer.capacity() <= KEPT {
            buffer.clear();
            self.spares.push(buffer);
        }
    }

    /// Whether the message that is [here](Read::Here) is a request whose client waits for the reply: with another one behind it, several
    /// are outstanding.
    #[cold]
    pub(crate) fn wants_reply_here(&self) -> bool {
        wants_reply(&self.here, &self.buffer.unread()[..self.here.total()])
    }

    /// Has the message that is [here](Read::Here) leave the thread.
    pub(crate) fn detach(&mut self) -> Message {
        let spare = self.spare();
        Message::Buffered(self.here, self.here.total(), std::mem::replace(&mut self.buffer, spare))
    }

    /// Answers a message that there is no room for: TRANSIENT 1 (CORBA 3.0.3, section 4.12.4).
    #[cold]
    pub(crate) fn turn_away(&mut self, core: &Core, connection: &Connection, message: &Message) {
        let (header, octets) = message.parts();
        request::turn_away(core, connection, header, octets, &mut self.memory);
    }

    /// Does what the message that is [here](Read::Here) asks for. False when the connection is over.
    #[inline]
    pub(crate) fn serve_here(&mut self, core: &Arc<Core>, connection: &Arc<Connection>, wait: Wait) -> bool {
        let length = self.here.total();
        let octets = &self.buffer.unread()[..length];
        let goes_on = request::serve(core, connection, &self.here, octets, &[], &mut self.memory, wait);
        self.buffer.consume(length);
        self.settle();
        goes_on
    }

    /// Does what a message asks for. False when the connection is over.
    #[inline(never)]
    pub(crate) fn serve(
        &mut self,
        core: &Arc<Core>,
        connection: &Arc<Connection>,
        message: Message,
        wait: Wait,
    ) -> bool {
        let goes_on = match message {
            Message::Buffered(header, length, buffer) => {
                let octets = &buffer.unread()[..length];
                let goes_on = request::serve(core, connection, &header, octets, &[], &mut self.memory, wait);
                self.give_back(buffer);
                goes_on
            }
            Message::Assembled(header, octets, breaks) => {
                request::serve(core, connection, &header, &octets, &breaks, &mut self.memory, wait)
            }
        };
        self.settle();
        goes_on
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a message is a request whose client waits for the reply.
fn wants_reply(header: &Header, octets: &[u8]) -> bool {
    header.kind == MessageKind::Request && !is_oneway(header, octets)
}

/// A whole message, and nothing else, is in the worker's own buffer.
#[inline]
fn here(reading: &Reading, connection: &Connection) -> Read {
    if connection.has_unfinished() {
        note_progress(reading, connection);
    }
    Read::Here { more: !reading.drained }
}

/// Notes how much of unfinished messages stays with the connection, so that one that makes no progress is found.
#[cold]
fn note_progress(reading: &Reading, connection: &Connection) {
    let framer = &reading.framer;
    match &reading.partial {
        Some(partial) => note_fragments(framer, partial, connection),
        None if framer.pending() == 0 && !connection.has_unfinished() => {}
        None => connection.note_unfinished(0, framer.oldest_pending(), framer.pending_octets()),
    }
}

/// The same while what has arrived is in `buffer`.
#[cold]
fn note_fragments(framer: &Framer, buffer: &ReceiveBuffer, connection: &Connection) {
    let unread = buffer.unread();
    let held = if unread.is_empty() { 0 } else { buffer.held().max(unread.len()) };
    // A whole message waits for a thread: the peer has done its part.
    let arrived = if holds_message(unread) { 0 } else { unread.len() };
    connection.note_unfinished(arrived, framer.oldest_pending(), held + framer.pending_octets());
}

/// Whether a message is a request whose client does not wait for a reply.
fn is_oneway(header: &Header, octets: &[u8]) -> bool {
    // After the header and the request id (CORBA 3.0.3, section 15.4.2). Earlier versions have it behind the contexts: their requests
    // are taken for such as are waited for.
    const RESPONSE_FLAGS: usize = 16;
    header.kind == MessageKind::Request
        && header.version == Version::GIOP_1_2
        && octets.get(RESPONSE_FLAGS).is_some_and(|flags| flags & 1 == 0)
}

/// Whether a whole message (or something that is none at all) is at the front of `octets`.
fn holds_message(octets: &[u8]) -> bool {
    let header = octets.first_chunk().map(Header::parse);
    header.is_some_and(|header| header.map_or(true, |header| header.total() <= octets.len()))
}

#[cfg(test)]
mod tests {
    use corelane_sys::clock::Monotonic;
    use corelane_wire::giop::MessageKind;
    use corelane_wire::{Decoder, Endian, Version};

    use super::*;
    use crate::server::budget::Budget;
    use crate::server::connection::tests::lone;
    use crate::{Orb, clock};

    /// A message that asks for nothing.
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
        worker.buffer.capacity().max(memory.reply.capacity()).max(memory.scratch.allocated()).max(spares)
    }

    /// Fragments that wait for the rest are watched, and counted, whatever whole messages come between.
    #[test]
    fn fragments_do_not_escape_behind_whole_messages() {
        let at = |seconds: u64| clock::set(Some(Monotonic::from_nanos(seconds * 1_000_000_000)));
        let budget = Budget::new(100);
        let (connection, orb) = (lone(&budget, false), Orb::new().unwrap());
        let mut worker = Worker::new();
        let mut reading = Reading { framer: Default::default(), partial: None, drained: true, over: false };
        let message = |kind: MessageKind, more_fragments, body: &[u8]| {
            let size = u32::try_from(body.len()).unwrap();
            let header = Header { more_fragments, kind, size, ..header(0) };
            [&header.octets(), body].concat()
        };
        let cancel = |id| message(MessageKind::CancelRequest, false, &[0, 0, 0, id]);
        // Of an object that there is none of; nobody waits for the reply.
        let oneway = message(MessageKind::Request, false, &[[0, 0, 0, 9].as_slice(), &[0; 24]].concat());
        let mut read = |octets: &[u8]| {
            assert!(worker.buffer.append(octets));
            let read = worker.read_now(&mut reading, &connection, orb.core());
            match read {
                Read::Here { .. } => worker.serve_here(orb.core(), &connection, Wait::Now),
                Read::Message { message, .. } => worker.serve(orb.core(), &connection, message, Wait::Now),
                read => panic!("{read:?}"),
            };
        };
        at(1);
        let begun = message(MessageKind::Request, true, &[[0, 0, 0, 7].as_slice(), &[0; 84]].concat());
        read(&[begun, cancel(1)].concat());
        assert!(connection.has_unfinished());
        for second in 2..40 {
            at(second);
            read(&if second % 2 == 0 { cancel(1) } else { oneway.clone() });
        }
        assert_eq!(connection.stalled_for(clock::now()).as_secs(), 38);
        assert_eq!(connection.account().held(), 100);
        assert!(!budget.is_exceeded());
        read(&cancel(7));
        assert!(!connection.has_unfinished());
        assert_eq!(connection.account().held(), 0);
        clock::set(None);
    }

    #[test]
    fn one_large_message_leaves_no_large_buffers() {
        let orb = Orb::new().unwrap();
        let connection = lone(&Budget::new(usize::MAX), false);
        let mut worker = Worker::new();
        let large = vec![0; 4 * KEPT];
        for kind in 0..3 {
            assert!(worker.buffer.append(&large));
            worker.memory.reply.reserve(4 * KEPT);
            // Numbers of the other order are turned around in the arena.
            let mut numbers =
                Decoder::new(&large, Endian::from_flag(Endian::NATIVE.flag() ^ 1)).with_scratch(&worker.memory.scratch);
            numbers.read_slice::<u64>(large.len() / 8).unwrap();
            assert!(held(&worker) > KEPT);
            worker.here = header(large.len() - Header::LEN);
            let message = match kind {
                0 => None,
                1 => Some(worker.detach()),
                _ => {
                    worker.buffer.consume(large.len());
                    Some(Message::Assembled(header(0), Vec::new(), Vec::new()))
                }
            };
            match message {
                None => worker.serve_here(orb.core(), &connection, Wait::Now),
                Some(message) => worker.serve(orb.core(), &connection, message, Wait::Now),
            };
            assert!(held(&worker) <= KEPT, "{kind}");
        }
        assert!(worker.buffer.append(&large));
        let mut reading = Reading { framer: Default::default(), partial: None, drained: false, over: false };
        let read = worker.read_now(&mut reading, &connection, orb.core());
        assert!(matches!(read, Read::Fault(_)) && held(&worker) <= KEPT);
    }
}
