//! One direction of a TCP connection: orders segments and extracts GIOP messages.

use corelane_wire::Limits;
use corelane_wire::connection::{Framer, FramingStep, ProtocolFault};
use corelane_wire::giop::Header;

const MAX_WAITING: usize = 256;
const MAX_WAITING_BYTES: usize = 4 << 20;

pub(crate) enum StreamStep<'m> {
    /// `fragment_starts` are the offsets at which fragments of GIOP 1.1 begin.
    Message {
        header: Header,
        octets: &'m [u8],
        fragment_starts: &'m [usize],
    },
    /// This number of octets is not in the capture.
    Lost(u32),
    Fault(ProtocolFault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    /// SYN was captured, but not yet the first octets of the connection.
    Begin,
    /// The next octet is the first octet of a message.
    Synchronised,
    /// The start of the next message is unknown.
    Searching,
    /// The connection carries another protocol.
    Foreign,
}

pub(crate) struct Stream {
    state: StreamState,
    first: Option<u32>,
    next: Option<u32>,
    unread: Vec<u8>,
    /// Segments that arrived before octets with lower sequence numbers, each with the sequence
    /// number of its first octet.
    waiting: Vec<(u32, Vec<u8>)>,
    waiting_bytes: usize,
    framer: Framer,
    pub(crate) is_closed: bool,
}

impl Default for Stream {
    fn default() -> Self {
        Stream {
            state: StreamState::Searching,
            first: None,
            next: None,
            unread: Vec::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            framer: Framer::new(),
            is_closed: false,
        }
    }
}

pub(crate) type Visit<'v> = dyn FnMut(StreamStep<'_>) + 'v;

impl Stream {
    /// Begins a connection with its SYN. Returns false, and changes nothing, if the SYN repeats the
    /// SYN of the current connection.
    pub(crate) fn begin(&mut self, sequence: u32) -> bool {
        let first = Some(sequence.wrapping_add(1));
        let is_new = self.first != first;
        if is_new {
            *self = Stream { state: StreamState::Begin, first, next: first, ..Stream::default() };
        }
        is_new
    }

    pub(crate) fn held(&self) -> usize {
        self.unread.len() + self.waiting_bytes + self.framer.partial_message_bytes()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn take(&mut self, sequence: u32, octets: &[u8], limits: &Limits, visit: &mut Visit<'_>) {
        if octets.is_empty() || self.state == StreamState::Foreign {
            return;
        }
        if self.next.is_none() && !begins_message(octets) {
            // The capture lacks the start of the connection, so the boundaries of messages are
            // unknown.
            return;
        }
        let next = *self.next.get_or_insert(sequence);
        if is_after(sequence, next) {
            self.keep(sequence, octets);
            if self.waiting.len() > MAX_WAITING || self.waiting_bytes > MAX_WAITING_BYTES {
                self.skip_gap(limits, visit);
            }
        } else {
            self.append(sequence, octets, limits, visit);
        }
        self.append_waiting(limits, visit);
    }

    fn keep(&mut self, sequence: u32, octets: &[u8]) {
        let is_same = |(known, kept): &&(u32, Vec<u8>)| *known == sequence && kept.len() >= octets.len();
        if self.waiting.iter().find(is_same).is_none() {
            self.waiting_bytes += octets.len();
            self.waiting.push((sequence, octets.to_vec()));
        }
    }

    fn append_waiting(&mut self, limits: &Limits, visit: &mut Visit<'_>) {
        loop {
            let next = self.next.unwrap_or_default();
            let Some(index) = self.waiting.iter().position(|(sequence, _)| !is_after(*sequence, next)) else { return };
            let (sequence, octets) = self.waiting.swap_remove(index);
            self.waiting_bytes -= octets.len();
            self.append(sequence, &octets, limits, visit);
        }
    }

    fn skip_gap(&mut self, limits: &Limits, visit: &mut Visit<'_>) {
        let next = self.next.unwrap_or_default();
        let Some(gap) = self.waiting.iter().map(|(sequence, _)| sequence.wrapping_sub(next)).min() else { return };
        self.lose();
        self.next = Some(next.wrapping_add(gap));
        visit(StreamStep::Lost(gap));
        self.append_waiting(limits, visit);
    }

    /// Processes an acknowledgement: octets before `number` that the capture lacks are reported as
    /// lost.
    pub(crate) fn acknowledge(&mut self, number: u32, limits: &Limits, visit: &mut Visit<'_>) {
        // The acknowledgement of FIN counts one number that is not an octet, so a closed direction
        // is left out.
        let is_open = self.state != StreamState::Foreign && !self.is_closed;
        while let Some(next) = self.next.filter(|next| is_open && is_after(number, *next)) {
            if self.waiting.iter().any(|(sequence, _)| !is_after(*sequence, number)) {
                self.skip_gap(limits, visit);
            } else {
                self.lose();
                self.next = Some(number);
                visit(StreamStep::Lost(number.wrapping_sub(next)));
            }
        }
    }

    /// Processes the waiting segments, and returns the number of octets of incomplete messages.
    pub(crate) fn finish(&mut self, limits: &Limits, visit: &mut Visit<'_>) -> usize {
        // Each round processes at least one segment, so the loop ends.
        while self.is_waiting() {
            self.skip_gap(limits, visit);
        }
        self.unread.len() + self.framer.partial_message_bytes()
    }

    /// Drops the octets of incomplete messages; the stream then searches for the next message.
    pub(crate) fn lose(&mut self) {
        self.unread = Vec::new();
        self.framer = Framer::new();
        self.state = StreamState::Searching;
    }

    /// Drops the octets of incomplete messages and of segments that wait for earlier ones. Returns
    /// the number of dropped octets. The stream then searches for the next message.
    pub(crate) fn drop_held(&mut self) -> usize {
        let dropped = self.held();
        self.lose();
        self.waiting.clear();
        self.waiting_bytes = 0;
        dropped
    }

    /// Processes the octets that no earlier segment contained.
    fn append(&mut self, sequence: u32, octets: &[u8], limits: &Limits, visit: &mut Visit<'_>) {
        let next = self.next.unwrap_or_default();
        let Some(octets) = octets.get(next.wrapping_sub(sequence) as usize..).filter(|octets| !octets.is_empty())
        else {
            return;
        };
        // A segment is far shorter than the range of sequence numbers.
        self.next = Some(next.wrapping_add(octets.len() as u32));
        match self.state {
            StreamState::Foreign => return,
            StreamState::Searching if !begins_message(octets) => return,
            StreamState::Searching => self.state = StreamState::Synchronised,
            StreamState::Begin | StreamState::Synchronised => {}
        }
        self.unread.extend_from_slice(octets);
        if self.state == StreamState::Begin {
            let length = self.unread.len().min(MAGIC.len());
            if self.unread[..length] != MAGIC[..length] {
                *self = Stream { state: StreamState::Foreign, first: self.first, ..Stream::default() };
                return;
            }
            if length < MAGIC.len() {
                return;
            }
            self.state = StreamState::Synchronised;
        }
        self.read_messages(limits, visit);
    }

    fn read_messages(&mut self, limits: &Limits, visit: &mut Visit<'_>) {
        let mut at = 0;
        loop {
            let unread = self.unread.get(at..).unwrap_or_default();
            match self.framer.next(unread, limits) {
                Ok(FramingStep::NeedMore(_)) => break,
                Ok(FramingStep::Message { header, len }) => {
                    let octets = unread.get(..len).unwrap_or_default();
                    visit(StreamStep::Message { header, octets, fragment_starts: &[] });
                    at += len;
                }
                Ok(FramingStep::FragmentBuffered(len)) => at += len,
                Ok(FramingStep::Assembled { message, header, fragment_starts, len }) => {
                    visit(StreamStep::Message { header, octets: &message, fragment_starts: &fragment_starts });
                    at += len;
                }
                Err(fault) => {
                    visit(StreamStep::Fault(fault));
                    return self.lose();
                }
            }
        }
        self.unread.drain(..at);
        if self.unread.is_empty() {
            // The memory of a large message is freed, because the connection may never need it
            // again.
            self.unread = Vec::new();
        }
    }
}

const MAGIC: &[u8] = b"GIOP";

fn begins_message(octets: &[u8]) -> bool {
    octets.first_chunk().is_some_and(|octets| Header::parse(octets).is_ok())
}

/// Returns true if a sequence number is after `next`. Sequence numbers wrap around.
fn is_after(sequence: u32, next: u32) -> bool {
    let distance = sequence.wrapping_sub(next);
    distance != 0 && distance < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_octets_include_the_segments_that_wait() {
        let mut stream = Stream::default();
        assert!(stream.begin(99));
        stream.take(200, &[7; 40], &Limits::DEFAULT, &mut |_| unreachable!("no octets are in order"));
        assert_eq!(stream.drop_held(), 40);
        assert_eq!((stream.held(), stream.is_waiting()), (0, false));
    }
}
