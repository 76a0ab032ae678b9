//! The maximum memory of a stream, fixed before the stream begins.
//!
//! The figures are upper bounds of the memory that Linux uses. Linux doubles socket buffer sizes
//! (socket(7)), checks a buffer's limit before it adds a packet and not after, and rounds rings up
//! to pages.

use std::fmt;

const PAGE: u64 = 4096;
/// Size in bytes of a descriptor in an AF_XDP receive ring.
const RECEIVE_DESCRIPTOR: u64 = 16;
/// Size in bytes of an address in an AF_XDP fill ring.
const FILL_DESCRIPTOR: u64 = 8;
/// Upper bound in bytes of a ring's producer, consumer and flags.
const RING_HEADER: u64 = 512;
/// Number of frames that a stream has on each queue beyond the places of its ring. The kernel takes
/// a frame before it finds that the stream's ring is full. Without a spare frame, it would not
/// count the lost frame as dropped by the full ring.
pub(crate) const SPARE_RING_FRAMES: u32 = 1;
/// Upper bound in bytes of the kernel's overhead for a packet in a socket buffer: descriptor and
/// list of fragments.
const PACKET_OVERHEAD: u64 = 1024;
/// Upper bound in bytes of an entry in the connection table, with key, value and links.
const CONNECTION_ENTRY: u64 = 128;

/// Sizes of the buffers of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBuffers {
    /// Number of receive queues of the interface. The stream has a ring on each queue.
    pub receive_queue_count: u16,
    /// Number of frames in each receive ring, a power of two.
    pub ring_frames: u32,
    /// Size in bytes of a frame in the rings, 2048 or 4096.
    pub frame_size: u32,
    /// Maximum number of frames that wait for the stream's kernel thread, if it has one.
    pub kernel_thread_queue_frames: u32,
    /// Maximum number of connections of the stream.
    pub max_connections: u32,
    /// `SO_RCVBUF` of each connection in bytes.
    pub receive_buffer_size: u32,
    /// `SO_SNDBUF` of each connection in bytes.
    pub send_buffer_size: u32,
    /// Size in bytes of the largest packet: the MTU, or 65,535 if the kernel merges segments.
    pub max_packet_size: u32,
}

/// Maximum number of bytes that a stream occupies, by kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBound {
    /// Frames of the receive rings.
    pub frame_bytes: u64,
    /// Descriptors of the receive rings, with the stream's share of the fill ring.
    pub ring_bytes: u64,
    /// Frames that wait for a kernel thread.
    pub thread_queue_bytes: u64,
    /// Buffers of the connections' sockets.
    pub socket_bytes: u64,
    /// Entries of the connection table.
    pub connection_table_bytes: u64,
}

impl MemoryBound {
    /// Returns the sum of all kinds of memory.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let Self {
            frame_bytes: frames,
            ring_bytes: rings,
            thread_queue_bytes: thread_queue,
            socket_bytes: sockets,
            connection_table_bytes: connection_table,
        } = *self;
        [rings, thread_queue, sockets, connection_table].into_iter().fold(frames, u64::saturating_add)
    }
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            frame_bytes: frames,
            ring_bytes: rings,
            thread_queue_bytes: thread_queue,
            socket_bytes: sockets,
            connection_table_bytes: connection_table,
        } = self;
        write!(
            f,
            "{} bytes: frames {frames}, rings {rings}, kernel thread's queue {thread_queue}, sockets {sockets}, connection table \
             {connection_table}",
            self.total_bytes()
        )
    }
}

/// The reason why the kernel would refuse the buffers of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamBuffersError {
    /// The number of frames in a ring is not a power of two.
    RingFrames(u32),
    /// The size of a frame is neither 2048 nor 4096 bytes.
    FrameSize(u32),
    /// The number of receive queues is 0.
    Queues,
}

impl fmt::Display for StreamBuffersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RingFrames(frames) => write!(f, "a ring has {frames} frames: the number must be a power of two"),
            Self::FrameSize(size) => write!(f, "a frame has {size} bytes: the size must be 2048 or 4096"),
            Self::Queues => f.write_str("a stream needs at least one receive queue"),
        }
    }
}

impl std::error::Error for StreamBuffersError {}

impl StreamBuffers {
    /// Checks the kernel's requirements on rings.
    ///
    /// # Errors
    /// [`StreamBuffersError`] for the first invalid field.
    pub fn check(&self) -> Result<(), StreamBuffersError> {
        if self.receive_queue_count == 0 {
            return Err(StreamBuffersError::Queues);
        }
        if !self.ring_frames.is_power_of_two() {
            return Err(StreamBuffersError::RingFrames(self.ring_frames));
        }
        if ![2048, 4096].contains(&self.frame_size) {
            return Err(StreamBuffersError::FrameSize(self.frame_size));
        }
        Ok(())
    }

    /// Returns the maximum memory of a stream with AF_XDP rings.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn memory_bound(&self) -> Result<MemoryBound, StreamBuffersError> {
        self.check()?;
        let [queues, ring_frames] = [u64::from(self.receive_queue_count), u64::from(self.ring_frames)];
        let frames = ring_frames + u64::from(SPARE_RING_FRAMES);
        let ring = (RING_HEADER + ring_frames * RECEIVE_DESCRIPTOR).next_multiple_of(PAGE);
        // The size of the fill ring is rounded up to a power of two, which at most doubles the sum
        // of the receive rings (`fill_ring_frames`).
        let fill_share = (RING_HEADER + 2 * frames * FILL_DESCRIPTOR).next_multiple_of(PAGE);
        Ok(MemoryBound {
            frame_bytes: queues * frames * u64::from(self.frame_size),
            ring_bytes: queues * (ring + fill_share),
            ..self.memory_bound_without_rings()
        })
    }

    /// Returns the maximum memory of a stream without AF_XDP rings.
    #[must_use]
    pub fn memory_bound_without_rings(&self) -> MemoryBound {
        let [kernel_thread_queue_frames, connections] =
            [self.kernel_thread_queue_frames, self.max_connections].map(u64::from);
        let largest = u64::from(self.max_packet_size) + PACKET_OVERHEAD;
        let socket = 2 * (u64::from(self.receive_buffer_size) + u64::from(self.send_buffer_size)) + 2 * largest;
        MemoryBound {
            frame_bytes: 0,
            ring_bytes: 0,
            thread_queue_bytes: u64::saturating_mul(kernel_thread_queue_frames, largest.next_multiple_of(PAGE)),
            socket_bytes: connections.saturating_mul(socket),
            connection_table_bytes: connections * CONNECTION_ENTRY,
        }
    }
}

/// Returns the number of frames in the fill ring that the streams of a receive queue share. The
/// result is the smallest power of two that is larger than the sum of the streams' receive rings.
///
/// With fewer frames in the fill ring, a stream whose thread is stalled would occupy frames that
/// other streams need. `None` if the size exceeds 2^31 frames.
#[must_use]
pub fn fill_ring_frames(ring_frames: impl IntoIterator<Item = u32>) -> Option<u32> {
    let sum = ring_frames.into_iter().try_fold(0_u32, u32::checked_add)?;
    sum.checked_add(1)?.checked_next_power_of_two()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BUFFERS: StreamBuffers = StreamBuffers {
        receive_queue_count: 2,
        ring_frames: 256,
        frame_size: 2048,
        kernel_thread_queue_frames: 0,
        max_connections: 3,
        receive_buffer_size: 262_144,
        send_buffer_size: 131_072,
        max_packet_size: 1500,
    };

    #[test]
    fn the_bound_is_the_sum_of_its_places() {
        let bound = BUFFERS.memory_bound().unwrap();
        assert_eq!(bound.frame_bytes, 2 * 257 * 2048);
        assert_eq!(bound.ring_bytes, 2 * (8192 + 8192));
        assert_eq!(bound.socket_bytes, 3 * (2 * 393_216 + 2 * 2524));
        assert_eq!(
            bound.total_bytes(),
            bound.frame_bytes + bound.ring_bytes + bound.socket_bytes + bound.connection_table_bytes
        );
        assert!(bound.to_string().starts_with(&format!("{} bytes", bound.total_bytes())));
    }

    #[test]
    fn rings_that_the_kernel_refuses_have_no_bound() {
        assert_eq!(StreamBuffers { ring_frames: 0, ..BUFFERS }.memory_bound(), Err(StreamBuffersError::RingFrames(0)));
        assert_eq!(
            StreamBuffers { ring_frames: 255, ..BUFFERS }.memory_bound(),
            Err(StreamBuffersError::RingFrames(255))
        );
        assert_eq!(
            StreamBuffers { frame_size: 1500, ..BUFFERS }.memory_bound(),
            Err(StreamBuffersError::FrameSize(1500))
        );
        assert_eq!(StreamBuffers { receive_queue_count: 0, ..BUFFERS }.memory_bound(), Err(StreamBuffersError::Queues));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let largest = StreamBuffers {
            receive_queue_count: u16::MAX,
            ring_frames: 1 << 31,
            frame_size: 4096,
            kernel_thread_queue_frames: u32::MAX,
            max_connections: u32::MAX,
            receive_buffer_size: u32::MAX,
            send_buffer_size: u32::MAX,
            max_packet_size: u32::MAX,
        };
        assert_eq!(largest.memory_bound().unwrap().total_bytes(), u64::MAX);
    }

    proptest! {
        #[test]
        fn the_bounds_of_all_streams_hold_their_rings(exponents in prop::collection::vec(0_u32..16, 1..20)) {
            let rings: Vec<u32> = exponents.into_iter().map(|exponent| 1 << exponent).collect();
            let pages = |descriptors: u64, size: u64| (RING_HEADER + descriptors * size).next_multiple_of(PAGE);
            let fill = pages(fill_ring_frames(rings.clone()).unwrap().into(), FILL_DESCRIPTOR);
            let receive: u64 = rings.iter().map(|frames| pages((*frames).into(), RECEIVE_DESCRIPTOR)).sum();
            let bounds = rings.iter().map(|&ring_frames| StreamBuffers { receive_queue_count: 1, ring_frames, ..BUFFERS }.memory_bound().unwrap());
            prop_assert!(bounds.map(|bound| bound.ring_bytes).sum::<u64>() >= receive + fill);
        }

        #[test]
        fn the_fill_ring_is_larger_than_all_receive_rings(rings in prop::collection::vec(0_u32..1 << 20, 0..100)) {
            let sum: u32 = rings.iter().sum();
            let fill = fill_ring_frames(rings).unwrap();
            prop_assert!(fill > sum && fill.is_power_of_two() && fill / 2 <= sum);
        }
    }

    #[test]
    fn impossible_fill_ring_has_no_size() {
        assert_eq!(fill_ring_frames([u32::MAX]), None);
        assert_eq!(fill_ring_frames([1 << 31, 1 << 31]), None);
        assert_eq!(fill_ring_frames([1 << 31]), None);
    }
}
