//! Steering tables and frames from arbitrary bytes, for property tests and the fuzz target.
//!
//! Most frames are well formed except for a few bytes, because purely random bytes rarely have a
//! known Ethernet type.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};

use super::{ByteRate, Delivery, PacketRate, PortRule, SteeringTables, StreamDelivery, StreamId, TableSizes};
use crate::frame::{ConnectionKey, build};

const MAX_FRAMES: usize = 16;
const MAX_CONNECTIONS: u32 = 6;
/// Port of the server (first) and port of the client (second).
const PORTS: [u16; 2] = [2809, 40001];

/// A frame, with its receive queue and its time of arrival in nanoseconds.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) frame: Vec<u8>,
    pub(crate) queue: u32,
    pub(crate) now: u64,
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) steering: SteeringTables,
    pub(crate) connections: Vec<(ConnectionKey, StreamId)>,
    pub(crate) ports: Vec<(u16, PortRule)>,
    pub(crate) streams: Vec<(StreamId, StreamDelivery)>,
    /// The kernel threads: stream, receive queue and processor.
    pub(crate) threads: Vec<(StreamId, u32, u32)>,
    pub(crate) arrivals: Vec<Arrival>,
}

/// A source of numbers from arbitrary bytes. After the last byte it returns zeros.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn below(&mut self, limit: u8) -> u8 {
        self.next() % limit
    }
}

impl Scenario {
    pub(crate) fn read(bytes: &[u8], processors: u8) -> Self {
        let mut bytes = Bytes(bytes);
        let table_sizes = TableSizes {
            stream_count: 2 + u16::from(bytes.below(3)),
            receive_queue_count: 1 + u16::from(bytes.below(2)),
            max_connections: MAX_CONNECTIONS,
        };
        let mut scenario = Self {
            steering: SteeringTables::new(table_sizes),
            connections: Vec::new(),
            ports: Vec::new(),
            streams: Vec::new(),
            threads: Vec::new(),
            arrivals: Vec::new(),
        };
        scenario.read_streams(&mut bytes, table_sizes, processors.max(1));
        scenario.read_rules(&mut bytes, table_sizes);
        if bytes.below(4) == 0 {
            // At 50,000 bytes per second, a frame of 100 bytes takes 2 ms.
            let rate = NonZeroU64::MIN.saturating_add(49_999);
            let ceiling = ByteRate::new(rate, u64::from(bytes.below(4)) * 1_000_000);
            scenario.steering.set_best_effort_ceiling(Some(ceiling));
        }
        let mut now = 0;
        while !bytes.0.is_empty() && scenario.arrivals.len() < MAX_FRAMES {
            now += u64::from(bytes.next()) * 10_000;
            let queue = u32::from(bytes.below(3));
            scenario.arrivals.push(Arrival { frame: frame(&mut bytes), queue, now });
        }
        scenario
    }

    fn read_streams(&mut self, bytes: &mut Bytes<'_>, table_sizes: TableSizes, processors: u8) {
        for stream in (0..table_sizes.stream_count).map(StreamId) {
            let delivery = [Delivery::NoQueue, Delivery::Ring, Delivery::Thread][usize::from(bytes.below(3))];
            let rate =
                |burst| PacketRate::new(NonZeroU32::MIN.saturating_add(999), NonZeroU32::MIN.saturating_add(burst));
            let in_context_cap = bytes.flag().then(|| rate(u32::from(bytes.below(4))));
            let entry = StreamDelivery { delivery, max_receive_context_rate: in_context_cap };
            self.streams.push((stream, entry));
            self.steering.set_delivery(stream, entry).expect("a stream of the tables");
            for queue in 0..u32::from(table_sizes.receive_queue_count) {
                let (ring, thread) = (bytes.flag(), bytes.flag().then(|| u32::from(bytes.below(processors))));
                self.steering.set_xdp_socket_present(stream, queue, ring).expect("a slot of the tables");
                if let Some(processor) = thread {
                    self.threads.push((stream, queue, processor));
                    self.steering.set_thread(stream, queue, processor, true).expect("a slot of the tables");
                }
            }
        }
    }

    fn read_rules(&mut self, bytes: &mut Bytes<'_>, table_sizes: TableSizes) {
        let mut stream = || StreamId(1 + u16::from(bytes.next()) % (table_sizes.stream_count - 1));
        let rules = [(PORTS[0], PortRule::ServerPort), (PORTS[1], PortRule::ClientPort(stream()))];
        let owners = [stream(), stream()];
        for (rule, is_set) in rules.into_iter().zip([bytes.below(8) != 0, bytes.flag()]) {
            if is_set {
                self.ports.push(rule);
                self.steering.set_port(rule.0, Some(rule.1)).expect("a stream of the tables");
            }
        }
        for (client, version) in [(0, 4), (1, 4), (0, 6), (1, 6)] {
            let (remote, local) = ends(version, client, PORTS[0]);
            if bytes.below(4) != 0
                && let Some(key) = ConnectionKey::new(remote, local)
            {
                let owner = owners[usize::from(client)];
                self.connections.push((key, owner));
                self.steering.add_connection(key, owner).expect("a table that is large enough");
            }
        }
    }
}

fn ends(version: u8, client: u8, port: u16) -> (SocketAddr, SocketAddr) {
    let (remote, local) = match version {
        4 => ([10, 0, 0, client].into(), [10, 0, 0, 9].into()),
        _ => ([0xfd00, 0, 0, 0, 0, 0, 0, client.into()].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 9].into()),
    };
    (SocketAddr::new(remote, 1000), SocketAddr::new(local, port))
}

fn frame(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let kind = bytes.next();
    if kind & 0xf0 == 0xf0 {
        let length = usize::from(bytes.next());
        return (0..length).map(|_| bytes.next()).collect();
    }
    let version = if kind & 1 == 0 { 4 } else { 6 };
    let port = PORTS.get(usize::from(kind >> 1 & 3)).copied().unwrap_or(7);
    let (remote, local) = ends(version, kind >> 3 & 1, port);
    let mut frame = build::tcp(remote, local, usize::from(bytes.below(4)), usize::from(bytes.below(32)));
    for _ in 0..bytes.below(4) {
        let (place, value) = (usize::from(bytes.below(96)), bytes.next());
        if let Some(byte) = frame.get_mut(place) {
            *byte = value;
        }
    }
    let cut = usize::from(bytes.next());
    if cut < 96 {
        frame.truncate(cut);
    }
    frame
}
