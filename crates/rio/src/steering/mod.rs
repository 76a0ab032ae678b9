//! Steering: the decision to which stream each frame belongs, and where the frame waits.
//!
//! | module | content |
//! |---|---|
//! | `tables` | [`SteeringTables`], the tables and the decision in plain Rust: the specification |
//! | `program` | [`assemble_steering_program`], the decision as an XDP program |
//! | `kernel` | [`LoadedSteeringProgram`], the program and its tables in the kernel |
//!
//! The path of a frame:
//!
//! ```text
//! frame ─► parse ─► TCP? ─► port table ─► connection table ─► stream ─► cap of the receive context ─► in context
//!            │        │no       │none          │none             │            └ over the cap ─► ring or kernel thread
//!            ▼        └─────────┴──────────────┴──► stream 0: best effort ─► ceiling ─► ring or kernel thread
//!           pass: the kernel continues in the receive context                  │          └ none ─► pass
//!                                                                              └ over it ─► drop
//! ```
//!
//! Stream 0 is best effort. If the stream of a frame has no ring or thread on the frame's receive
//! queue, the frame counts in `undeliverable_frames` and goes to best effort. It is then late, or
//! the ceiling of best effort drops it.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod check;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod interpreter;
mod kernel;
mod program;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod scenario;
mod tables;

use std::fmt;

use corelane_sys::bpf::MapSymbol;

pub use crate::rate::{ByteRate, PacketRate};
pub use kernel::{LoadedSteeringProgram, SteeringError};
pub use program::assemble_steering_program;
pub use tables::{FrameClassification, SteeringDecision, SteeringTables};

/// Length in bytes of the longest frame that the program puts into a ring, with its Ethernet
/// header. Longer frames, for example of segments that the kernel has merged, count in
/// [`undeliverable_frames`](StreamCounts::undeliverable_frames).
pub const MAX_RING_FRAME_BYTES: u32 = corelane_sys::xdp::XdpQueue::max_frame_length(RING_FRAME_SIZE);
/// Size in bytes of the memory of a frame in a ring.
pub const RING_FRAME_SIZE: u32 = 2048;

/// Number of a stream in the steering tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

impl StreamId {
    /// Best effort, which gets the frames that no rule and no connection assigns to another stream.
    pub const BEST_EFFORT: Self = Self(0);
}

/// Sizes of the steering tables, fixed when the program is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizes {
    /// Number of streams, including best effort: one more than the highest [`StreamId`].
    pub stream_count: u16,
    /// Number of receive queues in the tables.
    pub receive_queue_count: u16,
    /// Maximum number of connections in each of the two connection tables: one table is for IPv4,
    /// one for IPv6.
    pub max_connections: u32,
}

impl TableSizes {
    /// Returns the number of slots. Each stream has one slot for each receive queue.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        u32::from(self.stream_count) * u32::from(self.receive_queue_count)
    }

    /// Returns the slot for a stream's frames from a receive queue. `None` if the tables have no
    /// such stream or queue.
    #[must_use]
    pub fn slot_index(&self, stream: StreamId, queue: u32) -> Option<u32> {
        let is_known = stream.0 < self.stream_count && queue < u32::from(self.receive_queue_count);
        is_known.then(|| u32::from(stream.0) * u32::from(self.receive_queue_count) + queue)
    }
}

/// Steering rule for the TCP segments to a local port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRule {
    /// A segment of a connection in the connection table goes to the stream of the connection.
    /// Segments of unknown connections, such as connection requests, go to best effort.
    ServerPort,
    /// Rule of a client's port, set before the client connects. Every segment to the port belongs
    /// to this stream.
    ClientPort(StreamId),
}

impl PortRule {
    const ACCEPTED: u32 = u32::MAX;

    /// Returns the rule's value in the kernel's table; 0 means no rule.
    fn encode(rule: Option<Self>) -> u32 {
        match rule {
            None => 0,
            Some(Self::ServerPort) => Self::ACCEPTED,
            Some(Self::ClientPort(stream)) => u32::from(stream.0) + 1,
        }
    }
}

/// Queue in which the frames of a stream wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// No queue: frames go to best effort. Frames of best effort itself go to the kernel's receive
    /// context.
    #[default]
    NoQueue,
    /// The AF_XDP ring in the slot of the stream and receive queue, for frames of up to
    /// [`MAX_RING_FRAME_BYTES`].
    Ring,
    /// The queue of a kernel thread (CPUMAP), on the processor that is set for the slot of the
    /// stream and receive queue.
    Thread,
}

/// Settings for the delivery of a stream's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamDelivery {
    /// The queue in which frames wait.
    pub delivery: Delivery,
    /// Maximum rate of packets that the kernel processes in the receive context, for low latency.
    /// Packets above this cap wait in the queue. Each receive queue has its own cap.
    pub max_receive_context_rate: Option<PacketRate>,
}

impl StreamDelivery {
    /// Size in bytes of an entry in the kernel's table.
    const SIZE: usize = 24;

    /// Returns the entry in the kernel's table: delivery (4 bytes), zeros (4), interval (8),
    /// tolerance (8). Interval 0 means no cap.
    fn encode(&self) -> [u8; Self::SIZE] {
        let delivery = match self.delivery {
            Delivery::NoQueue => 0_u32,
            Delivery::Ring => program::RING,
            Delivery::Thread => program::THREAD,
        };
        let (interval, tolerance) =
            self.max_receive_context_rate.map_or((0, 0), |rate| (rate.interval(), rate.tolerance()));
        let mut bytes = [0; Self::SIZE];
        let fields = delivery.to_ne_bytes().into_iter().chain([0; 4]);
        let fields = fields.chain(interval.to_ne_bytes()).chain(tolerance.to_ne_bytes());
        bytes.iter_mut().zip(fields).for_each(|(into, byte)| *into = byte);
        bytes
    }
}

/// Numbers of frames of one stream, by the way in which they were handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Frames that the receive context processed under the stream's cap.
    pub receive_context_frames: u64,
    /// Frames put into a ring or into the queue of a kernel thread, including frames that a full
    /// queue then dropped.
    pub queued_frames: u64,
    /// Frames for which the stream had no ring and no kernel thread: its delivery is
    /// [`Delivery::NoQueue`], it has no ring or thread for the receive queue, or the frame is too
    /// long for a ring. Such a frame is best effort; a frame of best effort itself goes to the
    /// receive context.
    pub undeliverable_frames: u64,
    /// Frames above the ceiling of best effort, which were dropped. They count in no other field of
    /// best effort's counts. 0 for a stream; see
    /// [`best_effort_frames`](crate::RioTransport::best_effort_frames).
    pub dropped_frames: u64,
}

impl StreamCounts {
    /// Size in bytes of the counts in the kernel's table.
    const SIZE: usize = 32;
}

/// Size in bytes of the ceiling of best effort in the kernel's table.
const CEILING_SIZE: usize = 24;

/// Returns the ceiling of best effort for the kernel's table: state (8 bytes), cost of a byte (8),
/// tolerance (8). Cost 0 means no ceiling.
fn encode_ceiling(ceiling: Option<ByteRate>) -> [u8; CEILING_SIZE] {
    let (cost, tolerance) = ceiling.map_or((0, 0), |rate| (rate.byte_cost(), rate.tolerance()));
    let mut bytes = [0; CEILING_SIZE];
    let fields = [0; 8].into_iter().chain(cost.to_ne_bytes()).chain(tolerance.to_ne_bytes());
    bytes.iter_mut().zip(fields).for_each(|(into, byte)| *into = byte);
    bytes
}

/// The reason why the steering tables refuse a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The tables do not have the stream, or the change is not possible for best effort.
    NoSuchStream(StreamId),
    /// The tables do not have the receive queue.
    NoSuchQueue(u32),
    /// The connection table of the IP version is full. The value is its maximum number of
    /// connections.
    TooManyConnections(u32),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchStream(stream) => write!(f, "stream {} is not in the steering tables", stream.0),
            Self::NoSuchQueue(queue) => write!(f, "receive queue {queue} is not in the steering tables"),
            Self::TooManyConnections(most) => write!(f, "the steering tables have room for {most} connections"),
        }
    }
}

impl std::error::Error for TableError {}

/// The program's maps, in the order in which [`load`](corelane_sys::bpf::load) takes them.
mod symbol {
    use super::MapSymbol;

    pub(super) const PORTS: MapSymbol = MapSymbol(0);
    pub(super) const CONNECTIONS: MapSymbol = MapSymbol(1);
    pub(super) const STREAMS: MapSymbol = MapSymbol(2);
    pub(super) const LIMITS: MapSymbol = MapSymbol(3);
    /// The values are counts by stream and, after the last stream, the number of passed frames.
    pub(super) const COUNTS: MapSymbol = MapSymbol(4);
    pub(super) const RINGS: MapSymbol = MapSymbol(5);
    pub(super) const THREADS: MapSymbol = MapSymbol(6);
    pub(super) const PROCESSORS: MapSymbol = MapSymbol(7);
    /// The connections over IPv4, with short keys. [`CONNECTIONS`] has the connections over IPv6.
    pub(super) const IPV4_CONNECTIONS: MapSymbol = MapSymbol(8);
    /// The ceiling of best effort, for all receive queues together.
    pub(super) const CEILING: MapSymbol = MapSymbol(9);
}
