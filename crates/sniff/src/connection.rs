//! Connections in captured traffic: their messages, and each reply with its request.

use std::collections::HashMap;
use std::net::SocketAddr;

use corelane_wire::codeset::{CodeSetContext, CodeSets, WideOrder};
use corelane_wire::connection::ProtocolFault;
use corelane_wire::giop::{
    CancelRequest, Header, LocateReply, LocateRequest, MessageKind, Reply, Request, ResponseExpected, context_id,
};
use corelane_wire::{CdrError, Limits};

use crate::packets::{NoSegment, Packet, Segment, segment};
use crate::stream::{Stream, StreamStep};

/// Maximum number of connections; beyond it the half that was used least recently is forgotten.
const MAX_CONNECTIONS: usize = 10_000;
/// Maximum number of requests of one connection that wait for their replies.
const MAX_PENDING: usize = 10_000;
/// Maximum length in bytes of the name of an operation that is kept until its reply.
const MAX_NAME: usize = 256;
/// Maximum number of bytes that all connections hold of messages that are not complete.
const MAX_HELD: usize = 256 << 20;

static LIMITS: Limits = Limits::DEFAULT;

/// A request that waits for its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name of the operation; empty for a LocateRequest.
    pub operation: String,
    /// Time at which the request was captured, in nanoseconds since 1970.
    pub at: u64,
}

/// The content of a message.
#[derive(Debug)]
#[non_exhaustive]
pub enum Content<'m> {
    /// A Request.
    Request(Request<'m>),
    /// A Reply, with its request if the capture has it.
    Reply(Reply<'m>, Option<Call>),
    /// A LocateRequest.
    LocateRequest(LocateRequest<'m>),
    /// A LocateReply, with its request if the capture has it.
    LocateReply(LocateReply<'m>, Option<Call>),
    /// A CancelRequest.
    CancelRequest(CancelRequest),
    /// CloseConnection or MessageError.
    Empty,
    /// The header of the message's kind is malformed.
    Malformed(CdrError),
}

/// An occurrence on a connection, without its time and place.
#[derive(Debug)]
#[non_exhaustive]
pub enum Sniffed<'m> {
    /// A message.
    Message {
        /// The header; of a message in fragments it is the header of the whole.
        header: Header,
        /// The content.
        content: Content<'m>,
        /// Offsets in the message where fragments of GIOP 1.1 begin.
        fragment_starts: &'m [usize],
        /// The code sets of the connection.
        code_sets: CodeSets,
    },
    /// The capture lacks this many octets at this place.
    Lost(u64),
    /// Octets that were captured were dropped: too many wait for the rest of their messages.
    Dropped(usize),
    /// The capture, or the connection, ends within a message, of which there are this many octets.
    Unfinished(usize),
    /// The octets are not GIOP.
    Fault(ProtocolFault),
}

/// An occurrence with its time and place.
#[derive(Debug)]
pub struct Seen<'m> {
    /// Time at which the last packet of it was captured, in nanoseconds since 1970.
    pub at: u64,
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The occurrence.
    pub what: Sniffed<'m>,
}

/// Numbers of packets and connections that were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SniffCounts {
    /// Packets with TCP segments.
    pub segments: u64,
    /// Fragments of IP packets, which are not put together.
    pub ip_fragments: u64,
    /// Packets whose link layer is not known.
    pub unknown_links: u64,
    /// Connections that were forgotten because there were too many.
    pub forgotten: u64,
}

/// The two ends of a connection, the smaller address first.
type Ends = (SocketAddr, SocketAddr);

#[derive(Default)]
struct Connection {
    /// The octets that the first and the second end send.
    streams: [Stream; 2],
    /// Requests without a reply: which end sent them, and their ids.
    pending: HashMap<(usize, u32), Call>,
    code_sets: CodeSets,
    /// Number of the last segment, counted over all connections.
    used: u64,
    /// Bytes that the streams held when they were last counted.
    held: usize,
}

/// Finds the messages in packets.
#[derive(Default)]
pub struct Sniffer {
    ports: Vec<u16>,
    connections: HashMap<Ends, Connection>,
    held: usize,
    counts: SniffCounts,
}

impl Sniffer {
    /// Creates a sniffer of the connections of some TCP ports, or of all if there are none.
    #[must_use]
    pub fn new(ports: Vec<u16>) -> Self {
        Sniffer { ports, ..Sniffer::default() }
    }

    /// Returns the counts up to now.
    #[must_use]
    pub fn counts(&self) -> SniffCounts {
        self.counts
    }

    /// Takes a packet, and passes what it completes to `visit`.
    pub fn packet(&mut self, packet: &Packet<'_>, visit: &mut dyn FnMut(Seen<'_>)) {
        let segment = match segment(packet) {
            Ok(segment) => segment,
            Err(NoSegment::Other) => return,
            Err(NoSegment::IpFragment) => return self.counts.ip_fragments += 1,
            Err(NoSegment::Link) => return self.counts.unknown_links += 1,
        };
        let is_wanted = |port: u16| self.ports.is_empty() || self.ports.contains(&port);
        if !is_wanted(segment.from.port()) && !is_wanted(segment.to.port()) {
            return;
        }
        self.counts.segments += 1;
        self.segment(&segment, packet.at, visit);
    }

    fn segment(&mut self, segment: &Segment<'_>, at: u64, visit: &mut dyn FnMut(Seen<'_>)) {
        let ends = (segment.from.min(segment.to), segment.from.max(segment.to));
        let side = usize::from(segment.from != ends.0);
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&ends) {
            self.forget_half();
        }
        let connection = self.connections.entry(ends).or_default();
        connection.used = self.counts.segments;
        let mut sequence = segment.sequence;
        if segment.begins {
            if connection.streams[side].begin(sequence) {
                connection.pending.retain(|(sender, _), _| *sender != side);
            }
            sequence = sequence.wrapping_add(1);
        }
        let is_over = connection.take(side, sequence, segment, at, visit);
        self.held = self.held - connection.held + connection.recount();
        if self.held > MAX_HELD {
            let stream = &mut connection.streams[side];
            let dropped = stream.held();
            stream.lose();
            if dropped > 0 {
                visit(Seen { at, from: segment.from, to: segment.to, what: Sniffed::Dropped(dropped) });
            }
            self.held = self.held - connection.held + connection.recount();
        }
        if is_over {
            self.end(ends, at, visit);
        }
    }

    /// Ends a connection.
    fn end(&mut self, ends: Ends, at: u64, visit: &mut dyn FnMut(Seen<'_>)) {
        let Some(mut connection) = self.connections.remove(&ends) else { return };
        self.held -= connection.held;
        for side in [0, 1] {
            let (from, to) = if side == 0 { ends } else { (ends.1, ends.0) };
            let Connection { streams, pending, code_sets, .. } = &mut connection;
            let mut see = |what: Sniffed<'_>| visit(Seen { at, from, to, what });
            let unfinished = streams[side].finish(&LIMITS, &mut |step| {
                see(message(step, side, at, pending, code_sets));
            });
            if unfinished > 0 {
                see(Sniffed::Unfinished(unfinished));
            }
        }
    }

    /// Ends all connections at the end of the capture.
    pub fn finish(&mut self, at: u64, visit: &mut dyn FnMut(Seen<'_>)) {
        let mut all: Vec<(u64, Ends)> = self.connections.iter().map(|(ends, one)| (one.used, *ends)).collect();
        all.sort_unstable();
        for (_, ends) in all {
            self.end(ends, at, visit);
        }
    }

    fn forget_half(&mut self) {
        let mut uses: Vec<u64> = self.connections.values().map(|connection| connection.used).collect();
        uses.sort_unstable();
        let limit = uses.get(uses.len() / 2).copied().unwrap_or_default();
        let before = self.connections.len();
        self.connections.retain(|_, connection| connection.used > limit);
        self.counts.forgotten += (before - self.connections.len()) as u64;
        self.held = self.connections.values().map(|connection| connection.held).sum();
    }
}

impl Connection {
    /// Takes a segment of one end. Returns true if the connection is over.
    fn take(
        &mut self,
        side: usize,
        sequence: u32,
        segment: &Segment<'_>,
        at: u64,
        visit: &mut dyn FnMut(Seen<'_>),
    ) -> bool {
        let Connection { streams, pending, code_sets, .. } = self;
        let (from, to) = (segment.from, segment.to);
        if let Some(number) = segment.acknowledges {
            let other = 1 - side;
            streams[other].acknowledge(number, &LIMITS, &mut |step| {
                visit(Seen { at, from: to, to: from, what: message(step, other, at, pending, code_sets) });
            });
        }
        streams[side].take(sequence, segment.octets, &LIMITS, &mut |step| {
            visit(Seen { at, from, to, what: message(step, side, at, pending, code_sets) });
        });
        streams[side].is_closed |= segment.ends;
        segment.aborts || streams.iter().all(|stream| stream.is_closed && !stream.is_waiting())
    }

    /// Counts what the connection holds, and returns it.
    fn recount(&mut self) -> usize {
        let names: usize = self.pending.len() * (MAX_NAME + size_of::<Call>());
        self.held = names + self.streams.iter().map(Stream::held).sum::<usize>();
        self.held
    }
}

/// Converts a part of a stream. Remembers requests, and finds those of replies.
fn message<'m>(
    step: StreamStep<'m>,
    side: usize,
    at: u64,
    pending: &mut HashMap<(usize, u32), Call>,
    code_sets: &mut CodeSets,
) -> Sniffed<'m> {
    let (header, octets, fragment_starts) = match step {
        StreamStep::Message { header, octets, fragment_starts } => (header, octets, fragment_starts),
        StreamStep::Lost(octets) => return Sniffed::Lost(octets.into()),
        StreamStep::Fault(fault) => return Sniffed::Fault(fault),
    };
    let mut remember = |id: u32, operation: &[u8]| {
        if pending.len() < MAX_PENDING {
            let name = operation.get(..MAX_NAME).unwrap_or(operation);
            pending.insert((side, id), Call { operation: String::from_utf8_lossy(name).into_owned(), at });
        }
    };
    let content = match header.kind {
        MessageKind::Request => Request::parse(octets, &header, &LIMITS).map(|request| {
            if let Some(found) = code_sets_of(&request) {
                *code_sets = found;
            }
            if request.response_expected != ResponseExpected::None {
                remember(request.request_id, request.operation);
            }
            Content::Request(request)
        }),
        MessageKind::LocateRequest => LocateRequest::parse(octets, &header, &LIMITS).map(|request| {
            remember(request.request_id, b"");
            Content::LocateRequest(request)
        }),
        MessageKind::Reply => Reply::parse(octets, &header, &LIMITS)
            .map(|reply| Content::Reply(reply, pending.remove(&(1 - side, reply.request_id)))),
        MessageKind::LocateReply => LocateReply::parse(octets, &header)
            .map(|reply| Content::LocateReply(reply, pending.remove(&(1 - side, reply.request_id)))),
        MessageKind::CancelRequest => CancelRequest::parse(octets, &header).map(Content::CancelRequest),
        _ => Ok(Content::Empty),
    };
    let content = content.unwrap_or_else(Content::Malformed);
    Sniffed::Message { header, content, fragment_starts, code_sets: *code_sets }
}

/// Returns the code sets that a request announces for its connection.
fn code_sets_of(request: &Request<'_>) -> Option<CodeSets> {
    let data = request.contexts.find(context_id::CODE_SETS)?;
    CodeSetContext::parse(data).ok()?.code_sets(WideOrder::Standard)
}
