//! What one thread of a pool works with: its buffers, and the way of a message from octets to the reply.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_net::Wait;
use corelane_wire::connection::{Framer, Step};
use corelane_wire::giop::{Header, MessageKind};
use corelane_wire::{Scratch, Version};

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
#[derive(Debug, Default)]
pub(crate) struct Worker {
    /// Where reading begins when a connection has no unfinished message.
    pub(crate) buffer: ReceiveBuffer,
    /// The last piece of work came from the ready list: what is reported has its turn now.
    pub(crate) was_listed: bool,
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

/// A whole message and where its octets are.
#[derive(Debug)]
pub(crate) enum Message {
    /// In the thread's own buffer.
    Here(Header, usize),
    /// In a buffer that came with the connection.
    Buffered(Header, usize, ReceiveBuffer),
    /// Put together from fragments, with the places where GIOP 1.1 fragments begin.
    Assembled(Header, Vec<u8>, Vec<usize>),
}

impl Message {
    /// Memory that it holds while it waits outside the thread's own buffer.
    pub(crate) fn octets(&self) -> usize {
        match self {
            Message::Here(_, length) => *length,
            Message::Buffered(_, length, buffer) => buffer.held().max(*length),
            Message::Assembled(_, octets, _) => octets.len(),
        }
    }

    /// Header and octets of a detached message, from its header on.
    pub(super) fn parts(&self) -> Option<(&Header, &[u8])> {
        match self {
            Message::Here(..) => None,
            Message::Buffered(header, length, buffer) => Some((header, &buffer.unread()[..*length])),
            Message::Assembled(header, octets, _) => Some((header, octets)),
        }
    }
}

/// What reading came to.
#[derive(Debug)]
pub(crate) enum Read {
    /// A message; `more` says that there may be more to read right now.
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
        Self::default()
    }

    /// That of a thread which runs nothing.
    pub(super) fn for_keeper() -> Self {
        Worker { is_keeper: true, ..Self::default() }
    }

    /// Reads until one message is whole, or nothing more is there (or the wait is over).
    #[inline]
    pub(crate) fn read(&mut self, reading: &mut Reading, connection: &Connection, core: &Core, wait: Wait) -> Read {
        let limits = &core.config().limits;
        let mut received = false;
        if reading.over {
            return Read::Over;
        }
        loop {
            let own = reading.partial.is_none();
            let buffer = match &mut reading.partial {
                Some(partial) => partial,
                None => &mut self.buffer,
            };
            let wanted = match reading.framer.next(buffer.unread(), limits) {
                Ok(Step::Message { header, len: length }) => {
                    let surplus = buffer.unread().get(length..).unwrap_or_default();
                    if surplus.is_empty() && own {
                        if connection.has_unfinished() {
                            note_progress(reading, connection);
                        }
                        let more = !reading.drained;
                        return Read::Message { message: Message::Here(header, length), more };
                    }
                    let more = !reading.drained || holds_message(surplus);
                    let surplus = !surplus.is_empty();
                    let Some(message) = self.part(reading, header, length, surplus) else {
                        self.forget();
                        reading.over = true;
                        return Read::End;
                    };
                    note_progress(reading, connection);
                    return Read::Message { message, more };
                }
                Ok(Step::NeedMore(wanted)) => wanted,
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
                    return Read::Message { message: Message::Assembled(header, message, breaks), more };
                }
                Err(fault) => {
                    self.forget();
                    reading.over = true;
                    return Read::Fault(fault.into());
                }
            };
            if received && reading.drained && wait == Wait::Now {
                return self.pause(reading, connection);
            }
            if wait == Wait::Block && !buffer.is_empty() {
                note_fragments(&reading.framer, buffer, connection);
            }
            let room = buffer.room(wanted, core.spares());
            let size = room.len();
            match connection.stream.recv(room, wait) {
                Ok(0) => {
                    self.forget();
                    reading.over = true;
                    return Read::End;
                }
                Ok(count) => {
                    corelane_sys::probe!("octets read");
                    received = true;
                    reading.drained = count < size && !connection.hung_up.load(Ordering::Acquire);
                    buffer.filled(count);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return self.pause(reading, connection),
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return self.pause(reading, connection),
                Err(_) => {
                    self.forget();
                    reading.over = true;
                    return Read::End;
                }
            }
        }
    }

    /// Parts a message from what follows it in its buffer. A small message is copied to the thread's own buffer, and the rest
    /// stays with the connection; a large one leaves with the buffer, and the rest is copied. `None` when there is no room to copy it to.
    #[cold]
    fn part(&mut self, reading: &mut Reading, header: Header, length: usize, surplus: bool) -> Option<Message> {
        let spare = self.spare();
        let mut whole = match reading.partial.take() {
            Some(partial) => {
                self.give_back(spare);
                partial
            }
            None => std::mem::replace(&mut self.buffer, spare),
        };
        if !surplus {
            return Some(Message::Buffered(header, length, whole));
        }
        if length <= SMALL {
            self.buffer.clear();
            let copied = self.buffer.append(&whole.unread()[..length]);
            whole.consume(length);
            reading.partial = Some(whole);
            return copied.then_some(Message::Here(header, length));
        }
        let spare = self.spare();
        reading.partial = Some(whole.split_after(length, spare)?);
        Some(Message::Buffered(header, length, whole))
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

    /// Whether the message is a request whose client waits for the reply: with another one behind it, several are outstanding.
    #[cold]
    pub(crate) fn wants_reply(&self, message: &Message) -> bool {
        let (header, octets) = match message {
            Message::Here(header, length) => (header, &self.buffer.unread()[..*length]),
            Message::Buffered(header, length, buffer) => (header, &buffer.unread()[..*length]),
            Message::Assembled(header, octets, _) => (header, octets.as_slice()),
        };
        header.kind == MessageKind::Request && !is_oneway(header, octets)
    }

    /// A message that can leave the thread that read it.
    pub(crate) fn detach(&mut self, message: Message) -> Message {
        match message {
            Message::Here(header, length) => {
                let spare = self.spare();
                Message::Buffered(header, length, std::mem::replace(&mut self.buffer, spare))
            }
            other => other,
        }
    }

    /// Answers a message that there is no room for: TRANSIENT 1 (CORBA 3.0.3, section 4.12.4).
    #[cold]
    pub(crate) fn turn_away(&mut self, core: &Core, connection: &Connection, message: &Message) {
        match message {
            // Only detached messages are turned away.
            Message::Here(..) => {}
            Message::Buffered(header, length, buffer) => {
                request::turn_away(core, connection, header, &buffer.unread()[..*length], &mut self.memory);
            }
            Message::Assembled(header, octets, _) => {
                request::turn_away(core, connection, header, octets, &mut self.memory)
            }
        }
    }

    /// Does what a message asks for. False when the connection is over.
    #[inline]
    pub(crate) fn serve(
        &mut self,
        core: &Arc<Core>,
        connection: &Arc<Connection>,
        message: Message,
        wait: Wait,
    ) -> bool {
        let goes_on = match message {
            Message::Here(header, length) => {
                let goes_on = request::serve(
                    core,
                    connection,
                    header,
                    &self.buffer.unread()[..length],
                    &[],
                    &mut self.memory,
                    wait,
                );
                self.buffer.consume(length);
                goes_on
            }
            Message::Buffered(header, length, buffer) => {
                let goes_on =
                    request::serve(core, connection, header, &buffer.unread()[..length], &[], &mut self.memory, wait);
                self.give_back(buffer);
                goes_on
            }
            Message::Assembled(header, octets, breaks) => {
                request::serve(core, connection, header, &octets, &breaks, &mut self.memory, wait)
            }
        };
        self.settle();
        goes_on
    }
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
        let mut read = |octets: &[u8]| {
            assert!(worker.buffer.append(octets));
            let read = worker.read(&mut reading, &connection, orb.core(), Wait::Now);
            let Read::Message { message, .. } = read else { panic!("{read:?}") };
            worker.serve(orb.core(), &connection, message, Wait::Now);
        };
        at(1);
        let begun = message(MessageKind::Request, true, &[[0, 0, 0, 7].as_slice(), &[0; 84]].concat());
        read(&[begun, cancel(1)].concat());
        assert!(connection.has_unfinished());
        for second in 2..40 {
            at(second);
            read(&cancel(1));
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
            let message = match kind {
                0 => Message::Here(header(large.len() - Header::LEN), large.len()),
                1 => {
                    let here = Message::Here(header(large.len() - Header::LEN), large.len());
                    worker.detach(here)
                }
                _ => {
                    worker.buffer.consume(large.len());
                    Message::Assembled(header(0), Vec::new(), Vec::new())
                }
            };
            worker.serve(orb.core(), &connection, message, Wait::Now);
            assert!(held(&worker) <= KEPT, "{kind}");
        }
        assert!(worker.buffer.append(&large));
        let mut reading = Reading { framer: Default::default(), partial: None, drained: false, over: false };
        let read = worker.read(&mut reading, &connection, orb.core(), Wait::Now);
        assert!(matches!(read, Read::Fault(_)) && held(&worker) <= KEPT);
    }
}
