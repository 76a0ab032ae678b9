//! Connections in captured traffic: their messages, and the request of each reply.

use std::collections::HashMap;
use std::net::SocketAddr;

use corelane_wire::codeset::{CodeSetContext, CodeSets, WideByteOrder};
use corelane_wire::connection::ProtocolFault;
use corelane_wire::giop::{
    CancelRequest, Header, LocateReply, LocateRequest, MessageKind, Reply, Request, ResponseExpected, context_id,
};
use corelane_wire::{CdrError, Limits};

use crate::packets::{NoSegment, Packet, Segment, segment};
use crate::stream::{Stream, StreamStep};

/// Maximum number of connections, above which the sniffer discards the least recently used half.
const MAX_CONNECTIONS: usize = 10_000;
const MAX_PENDING: usize = 10_000;
const MAX_NAME: usize = 256;
/// Maximum number of bytes that are stored for all connections together.
const MAX_HELD: usize = 256 << 20;

static LIMITS: Limits = Limits::DEFAULT;

/// A captured Request or LocateRequest that expects a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedRequest {
    /// The first 256 bytes of the operation's name; empty for a LocateRequest.
    pub operation: String,
    /// Time at which the request was captured, in nanoseconds since 1970.
    pub time_ns: u64,
}

/// Content of a GIOP message.
#[derive(Debug)]
#[non_exhaustive]
pub enum MessageContent<'m> {
    /// A Request.
    Request(Request<'m>),
    /// A Reply, with its request if the capture contains it.
    Reply(Reply<'m>, Option<CapturedRequest>),
    /// A LocateRequest.
    LocateRequest(LocateRequest<'m>),
    /// A LocateReply, with its request if the capture contains it.
    LocateReply(LocateReply<'m>, Option<CapturedRequest>),
    /// A CancelRequest.
    CancelRequest(CancelRequest),
    /// CloseConnection or MessageError.
    HeaderOnly,
    /// The header that follows the GIOP header is malformed.
    Malformed(CdrError),
}

/// An event on a connection. [`SniffRecord`] adds its time, sender and receiver.
#[derive(Debug)]
#[non_exhaustive]
pub enum SniffEvent<'m> {
    /// A message.
    Message {
        /// The GIOP header. For a fragmented message it is the header of the whole message.
        header: Header,
        /// The content.
        content: MessageContent<'m>,
        /// Offsets in the message at which fragments of GIOP 1.1 begin.
        fragment_starts: &'m [usize],
        /// The code sets of the connection.
        code_sets: CodeSets,
    },
    /// The capture lacks this number of octets.
    MissingBytes(u64),
    /// The sniffer dropped this number of captured octets of incomplete messages, because all
    /// connections together took too much memory.
    DroppedBytes(usize),
    /// The capture or the connection ends within messages, of which this number of octets was
    /// captured.
    UnfinishedMessage(usize),
    /// The octets do not follow GIOP.
    Fault(ProtocolFault),
}

/// An event with its time, sender and receiver.
#[derive(Debug)]
pub struct SniffRecord<'m> {
    /// Time at which the last packet of the event was captured, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The address of the sender.
    pub from: SocketAddr,
    /// The address of the receiver.
    pub to: SocketAddr,
    /// The event.
    pub event: SniffEvent<'m>,
}

/// Counts of processed packets, ignored packets and discarded connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SniffCounts {
    /// TCP segments of the selected ports.
    pub tcp_segments: u64,
    /// Fragments of IP packets, which are not reassembled.
    pub ip_fragments: u64,
    /// Packets whose link layer is not supported.
    pub packets_of_unsupported_link_layers: u64,
    /// Connections that were discarded above the maximum of 10,000 connections.
    pub discarded_connections: u64,
}

type Ends = (SocketAddr, SocketAddr);

#[derive(Default)]
struct Connection {
    streams: [Stream; 2],
    /// Requests without a reply, by the index of their sender and their request id.
    pending: HashMap<(usize, u32), CapturedRequest>,
    code_sets: CodeSets,
    used: u64,
    held: usize,
}

/// Finds the GIOP messages in captured packets.
#[derive(Default)]
pub struct Sniffer {
    ports: Vec<u16>,
    connections: HashMap<Ends, Connection>,
    held: usize,
    counts: SniffCounts,
}

impl Sniffer {
    /// Creates a sniffer for connections of the given TCP ports, or of all ports if the list is
    /// empty.
    #[must_use]
    pub fn new(ports: Vec<u16>) -> Self {
        Sniffer { ports, ..Sniffer::default() }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> SniffCounts {
        self.counts
    }

    /// Processes a packet, and passes the events that it causes, such as a completed message, to
    /// `visit`.
    pub fn process_packet(&mut self, packet: &Packet<'_>, visit: &mut dyn FnMut(SniffRecord<'_>)) {
        let segment = match segment(packet) {
            Ok(segment) => segment,
            Err(NoSegment::Other) => return,
            Err(NoSegment::IpFragment) => return self.counts.ip_fragments += 1,
            Err(NoSegment::Link) => return self.counts.packets_of_unsupported_link_layers += 1,
        };
        let is_wanted = |port: u16| self.ports.is_empty() || self.ports.contains(&port);
        if !is_wanted(segment.from.port()) && !is_wanted(segment.to.port()) {
            return;
        }
        self.counts.tcp_segments += 1;
        self.segment(&segment, packet.time_ns, visit);
    }

    fn segment(&mut self, segment: &Segment<'_>, at: u64, visit: &mut dyn FnMut(SniffRecord<'_>)) {
        let ends = (segment.from.min(segment.to), segment.from.max(segment.to));
        let side = usize::from(segment.from != ends.0);
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&ends) {
            self.forget_half();
        }
        let connection = self.connections.entry(ends).or_default();
        connection.used = self.counts.tcp_segments;
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
            let dropped = stream.drop_held();
            if dropped > 0 {
                visit(SniffRecord {
                    time_ns: at,
                    from: segment.from,
                    to: segment.to,
                    event: SniffEvent::DroppedBytes(dropped),
                });
            }
            self.held = self.held - connection.held + connection.recount();
        }
        if is_over {
            self.end(ends, at, visit);
        }
    }

    fn end(&mut self, ends: Ends, at: u64, visit: &mut dyn FnMut(SniffRecord<'_>)) {
        let Some(mut connection) = self.connections.remove(&ends) else { return };
        self.held -= connection.held;
        for side in [0, 1] {
            let (from, to) = if side == 0 { ends } else { (ends.1, ends.0) };
            let Connection { streams, pending, code_sets, .. } = &mut connection;
            let mut see = |event: SniffEvent<'_>| visit(SniffRecord { time_ns: at, from, to, event });
            let unfinished = streams[side].finish(&LIMITS, &mut |step| {
                see(message(step, side, at, pending, code_sets));
            });
            if unfinished > 0 {
                see(SniffEvent::UnfinishedMessage(unfinished));
            }
        }
    }

    /// Ends all connections at the end of the capture, and passes their remaining events to
    /// `visit`. `at` is the time of these events, in nanoseconds since 1970.
    pub fn finish(&mut self, at: u64, visit: &mut dyn FnMut(SniffRecord<'_>)) {
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
        self.counts.discarded_connections += (before - self.connections.len()) as u64;
        self.held = self.connections.values().map(|connection| connection.held).sum();
    }
}

impl Connection {
    /// Processes a segment from the end `side`. Returns true if the connection is over.
    fn take(
        &mut self,
        side: usize,
        sequence: u32,
        segment: &Segment<'_>,
        at: u64,
        visit: &mut dyn FnMut(SniffRecord<'_>),
    ) -> bool {
        let Connection { streams, pending, code_sets, .. } = self;
        let (from, to) = (segment.from, segment.to);
        if let Some(number) = segment.acknowledges {
            let other = 1 - side;
            streams[other].acknowledge(number, &LIMITS, &mut |step| {
                visit(SniffRecord {
                    time_ns: at,
                    from: to,
                    to: from,
                    event: message(step, other, at, pending, code_sets),
                });
            });
        }
        streams[side].take(sequence, segment.octets, &LIMITS, &mut |step| {
            visit(SniffRecord { time_ns: at, from, to, event: message(step, side, at, pending, code_sets) });
        });
        streams[side].is_closed |= segment.ends;
        segment.aborts || streams.iter().all(|stream| stream.is_closed && !stream.is_waiting())
    }

    fn recount(&mut self) -> usize {
        let names: usize = self.pending.len() * (MAX_NAME + size_of::<CapturedRequest>());
        self.held = names + self.streams.iter().map(Stream::held).sum::<usize>();
        self.held
    }
}

fn message<'m>(
    step: StreamStep<'m>,
    side: usize,
    at: u64,
    pending: &mut HashMap<(usize, u32), CapturedRequest>,
    code_sets: &mut CodeSets,
) -> SniffEvent<'m> {
    let (header, octets, fragment_starts) = match step {
        StreamStep::Message { header, octets, fragment_starts } => (header, octets, fragment_starts),
        StreamStep::Lost(octets) => return SniffEvent::MissingBytes(octets.into()),
        StreamStep::Fault(fault) => return SniffEvent::Fault(fault),
    };
    let mut remember = |id: u32, operation: &[u8]| {
        if pending.len() < MAX_PENDING {
            let name = operation.get(..MAX_NAME).unwrap_or(operation);
            pending.insert(
                (side, id),
                CapturedRequest { operation: String::from_utf8_lossy(name).into_owned(), time_ns: at },
            );
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
            MessageContent::Request(request)
        }),
        MessageKind::LocateRequest => LocateRequest::parse(octets, &header, &LIMITS).map(|request| {
            remember(request.request_id, b"");
            MessageContent::LocateRequest(request)
        }),
        MessageKind::Reply => Reply::parse(octets, &header, &LIMITS)
            .map(|reply| MessageContent::Reply(reply, pending.remove(&(1 - side, reply.request_id)))),
        MessageKind::LocateReply => LocateReply::parse(octets, &header)
            .map(|reply| MessageContent::LocateReply(reply, pending.remove(&(1 - side, reply.request_id)))),
        MessageKind::CancelRequest => CancelRequest::parse(octets, &header).map(MessageContent::CancelRequest),
        _ => Ok(MessageContent::HeaderOnly),
    };
    let content = content.unwrap_or_else(MessageContent::Malformed);
    SniffEvent::Message { header, content, fragment_starts, code_sets: *code_sets }
}

fn code_sets_of(request: &Request<'_>) -> Option<CodeSets> {
    let data = request.contexts.find(context_id::CODE_SETS)?;
    CodeSetContext::parse(data).ok()?.code_sets(WideByteOrder::SpecifiedOrder)
}
