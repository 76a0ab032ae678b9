//! Options of the transport, and the handler of level changes.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{IoClass, IoProperties};
use corelane_sched::task::Nanos;
use corelane_sys::bpf::AttachMode;

use crate::feature_level::{FeatureLevel, LevelChange};
use crate::interface_steering::QUEUES;
use crate::memory::{MemoryBound, StreamBuffers};
use crate::packet_rings::{RingSizes, receive_queues};
use crate::steering::{ByteRate, RING_FRAME_SIZE};
use crate::stream_admission::StreamAdmission;

/// Smallest receive buffer in bytes that [`RioConfig::receive_buffer_size_of`] chooses.
const MIN_RECEIVE_BUFFER: u32 = 131_072;
/// Largest receive buffer in bytes that [`RioConfig::receive_buffer_size_of`] chooses.
const MAX_RECEIVE_BUFFER: u32 = 16_777_216;

/// Maximum of [`RioConfig::ring_frames`].
const MAX_RING_FRAMES: u32 = 32_768;
/// Bytes of a full segment over IPv4 at an MTU of 1,500, with timestamps.
const PACKET_PAYLOAD: u32 = 1_448;

/// The burst of best effort, as a time in nanoseconds: after a pause, best effort may receive the
/// bytes of this time at once. TCP needs such a burst, because a sender learns of a loss only after
/// several packets.
const BEST_EFFORT_BURST: Nanos = 20_000_000;

/// Default of [`RioConfig::journal_folder`].
pub(crate) const JOURNAL_FOLDER: &str = "/run/corelane-rio";

/// A function that is called after each change of the feature level, while the transport holds no
/// lock.
///
/// It may start and end ORBs that use the transport. Changes that it causes are reported after it
/// has returned. It must not wait for another thread that starts or ends such an ORB, because that
/// thread may wait for the function.
pub type LevelChangeHandler = Arc<dyn Fn(&LevelChange) + Send + Sync>;

/// The configuration of a [`RioTransport`](crate::RioTransport).
#[derive(Clone)]
#[non_exhaustive]
pub struct RioConfig {
    /// The network interface whose frames are sorted by stream. Without an interface, the transport
    /// does not rise above [`FeatureLevel::SocketOptions`]. Default: `None`.
    pub interface: Option<String>,
    /// The highest feature level that the transport uses. Default:
    /// [`FeatureLevel::StreamSteering`].
    pub max_level: FeatureLevel,
    /// Point in the receive path at which frames are sorted. Default: [`AttachMode::Any`].
    pub attach_mode: AttachMode,
    /// Maximum number of connections of a stream. Above it, the transport closes accepted
    /// connections, and refuses to open connections of a client. Default: 64.
    pub max_connections: u32,
    /// Size of the kernel's receive buffer of a stream's connection in bytes. The system limits it
    /// (`net.core.rmem_max`) unless the process has `CAP_NET_ADMIN`. Default: `None`, which means
    /// the result of [`receive_buffer_size_of`](Self::receive_buffer_size_of).
    pub receive_buffer_size: Option<u32>,
    /// Size of the kernel's send buffer of a stream's connection in bytes. The system limits it
    /// (`net.core.wmem_max`). Default: 131,072.
    pub send_buffer_size: u32,
    /// Number of unsent bytes in the kernel from which a stream's connection does not count as
    /// writable (`TCP_NOTSENT_LOWAT`). Default: 16,384.
    pub max_unsent_bytes: u32,
    /// Maximum rate in bytes per second at which the kernel sends on each connection that belongs
    /// to no stream (`SO_MAX_PACING_RATE`). It has no effect if
    /// [`max_level`](field@Self::max_level) is [`FeatureLevel::PlainTcp`]. `None` means no limit.
    /// Default: `None`.
    pub best_effort_pacing_rate: Option<u32>,
    /// Maximum number of frames that wait for each kernel thread. Default: 512.
    pub thread_queue_frames: u32,
    /// Maximum number of streams of the service class [`IoClass::GuaranteedPackets`] that have
    /// rings. When the first of these streams is opened, each receive queue gets frames for all of
    /// them. Default: 8.
    pub max_packet_streams: u32,
    /// Maximum number of frames that wait in each ring of a stream with a budget in packets
    /// ([`IoClass::GuaranteedPackets`]): 1 to 32,768, rounded up to a power of two. Default: 256.
    pub ring_frames: u32,
    /// If true, a kernel thread of the ordinary scheduling class processes the sorted frames that
    /// belong to no stream. If false, the receive context, which preempts threads, processes these
    /// frames. Default: `false`.
    pub has_best_effort_thread: bool,
    /// Core on which the kernel threads of best effort and of streams without cores run. Default:
    /// 0.
    pub default_core: u32,
    /// If true, the transport gives the interface transmit classes and receive threads with a
    /// priority ([`FeatureLevel::KernelPriorities`]), even while frames are not sorted by stream. A
    /// killed process leaves these settings; the next process, or `corelane rio clean`, restores
    /// the earlier settings. Default: `false`.
    ///
    /// The field has an effect only if [`max_level`](field@Self::max_level) is
    /// [`FeatureLevel::StreamSteering`]. With [`FeatureLevel::KernelPriorities`] it counts as true,
    /// and with lower levels as false.
    pub has_kernel_priorities: bool,
    /// Maximum rate in bytes per second at which the interface sends the packets that belong to no
    /// stream. It applies while the interface has transmit classes
    /// ([`has_kernel_priorities`](field@Self::has_kernel_priorities)). `None` means no limit.
    /// Default: `None`.
    pub max_best_effort_send_rate: Option<u64>,
    /// Maximum rate in bytes per second, with Ethernet headers, of the sorted frames that belong to
    /// no stream, over all receive queues. The steering program drops frames above the rate, after
    /// a burst of the bytes of 20 ms, and TCP adapts to the rate. ARP, neighbour discovery,
    /// broadcast and multicast do not count. The maximum needs [`FeatureLevel::StreamSteering`]. 0
    /// counts as 1. `None` means no limit. Default: `None`.
    pub max_best_effort_receive_rate: Option<u64>,
    /// Core of the interface's receive threads, which exist with kernel priorities. Admission
    /// assumes that streams of low latency use this core, even without receive threads. `None`
    /// leaves the cores of the threads to the kernel. Default: `None`.
    pub receive_core: Option<usize>,
    /// Folder of the journals of kernel priorities. The user of the process must own it, and no
    /// other user may write into it. Default: `/run/corelane-rio`.
    pub journal_folder: PathBuf,
    /// Admission of streams. `None` means that each stream is opened. Default: `None`.
    pub admission: Option<StreamAdmission>,
    /// Called after each change of the feature level. Default: `None`.
    pub on_level_change: Option<LevelChangeHandler>,
}

impl Default for RioConfig {
    fn default() -> Self {
        Self {
            interface: None,
            max_level: FeatureLevel::StreamSteering,
            attach_mode: AttachMode::Any,
            max_connections: 64,
            receive_buffer_size: None,
            send_buffer_size: 131_072,
            max_unsent_bytes: 16_384,
            best_effort_pacing_rate: None,
            thread_queue_frames: 512,
            max_packet_streams: 8,
            ring_frames: 256,
            has_best_effort_thread: false,
            default_core: 0,
            has_kernel_priorities: false,
            max_best_effort_send_rate: None,
            max_best_effort_receive_rate: None,
            receive_core: None,
            journal_folder: PathBuf::from(JOURNAL_FOLDER),
            admission: None,
            on_level_change: None,
        }
    }
}

impl RioConfig {
    /// Returns the default configuration with the frames of an interface sorted by stream.
    #[must_use]
    pub fn for_interface(interface: impl Into<String>) -> Self {
        Self { interface: Some(interface.into()), ..Self::default() }
    }

    /// Sets [`max_level`](field@Self::max_level).
    #[must_use]
    pub fn max_level(mut self, level: FeatureLevel) -> Self {
        self.max_level = level;
        self
    }

    /// Sets [`attach_mode`](field@Self::attach_mode).
    #[must_use]
    pub fn attach_mode(mut self, mode: AttachMode) -> Self {
        self.attach_mode = mode;
        self
    }

    /// Sets [`max_connections`](field@Self::max_connections).
    #[must_use]
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets the sizes of the kernel's [receive](field@Self::receive_buffer_size) and
    /// [send](field@Self::send_buffer_size) buffers.
    #[must_use]
    pub fn buffer_sizes(mut self, receive: u32, send: u32) -> Self {
        (self.receive_buffer_size, self.send_buffer_size) = (Some(receive), send);
        self
    }

    /// Sets [`thread_queue_frames`](field@Self::thread_queue_frames).
    #[must_use]
    pub fn thread_queue_frames(mut self, frames: u32) -> Self {
        self.thread_queue_frames = frames;
        self
    }

    /// Sets [`max_packet_streams`](field@Self::max_packet_streams) and
    /// [`ring_frames`](field@Self::ring_frames).
    #[must_use]
    pub fn rings(mut self, streams: u32, frames: u32) -> Self {
        (self.max_packet_streams, self.ring_frames) = (streams, frames);
        self
    }

    /// Sets [`default_core`](field@Self::default_core).
    #[must_use]
    pub fn default_core(mut self, core: u32) -> Self {
        self.default_core = core;
        self
    }

    /// Sets [`has_best_effort_thread`](field@Self::has_best_effort_thread).
    #[must_use]
    pub fn has_best_effort_thread(mut self, has_thread: bool) -> Self {
        self.has_best_effort_thread = has_thread;
        self
    }

    /// Sets [`best_effort_pacing_rate`](field@Self::best_effort_pacing_rate).
    #[must_use]
    pub fn best_effort_pacing_rate(mut self, bytes_per_second: Option<u32>) -> Self {
        self.best_effort_pacing_rate = bytes_per_second;
        self
    }

    /// Sets [`has_kernel_priorities`](field@Self::has_kernel_priorities).
    #[must_use]
    pub fn has_kernel_priorities(mut self, has_priorities: bool) -> Self {
        self.has_kernel_priorities = has_priorities;
        self
    }

    /// Sets [`max_best_effort_send_rate`](field@Self::max_best_effort_send_rate).
    #[must_use]
    pub fn max_best_effort_send_rate(mut self, bytes_per_second: Option<u64>) -> Self {
        self.max_best_effort_send_rate = bytes_per_second;
        self
    }

    /// Sets [`max_best_effort_receive_rate`](field@Self::max_best_effort_receive_rate).
    #[must_use]
    pub fn max_best_effort_receive_rate(mut self, bytes_per_second: Option<u64>) -> Self {
        self.max_best_effort_receive_rate = bytes_per_second;
        self
    }

    /// Sets [`receive_core`](field@Self::receive_core).
    #[must_use]
    pub fn receive_core(mut self, core: Option<usize>) -> Self {
        self.receive_core = core;
        self
    }

    /// Sets [`journal_folder`](field@Self::journal_folder).
    #[must_use]
    pub fn journal_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.journal_folder = folder.into();
        self
    }

    /// Sets [`admission`](field@Self::admission). The transport then refuses streams that do not
    /// fit, unless [`is_advisory`](field@StreamAdmission::is_advisory) is true.
    #[must_use]
    pub fn admission(mut self, admission: StreamAdmission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Sets [`on_level_change`](field@Self::on_level_change).
    #[must_use]
    pub fn on_level_change(mut self, handler: impl Fn(&LevelChange) + Send + Sync + 'static) -> Self {
        self.on_level_change = Some(Arc::new(handler));
        self
    }

    /// Returns the size in bytes of the kernel's receive buffer of a connection with the service
    /// class `class`.
    ///
    /// If [`receive_buffer_size`](field@Self::receive_buffer_size) is `None`, the size is at least
    /// 131,072 and at most 16,777,216. Within these bounds, a guaranteed stream's connection has
    /// room for the bytes or full packets of two periods, because peers send new bytes while the
    /// bytes of one period wait for the reader. If periods are shorter than 10 ms, the buffer has
    /// room for the periods within 10 ms and one more. The size is twice the number of these bytes:
    /// the kernel doubles the configured size, but charges up to four times the bytes of a frame to
    /// the buffer.
    #[must_use]
    pub fn receive_buffer_size_of(&self, class: IoClass) -> u32 {
        const DELAY: Duration = Duration::from_millis(10);
        let of_periods = |bytes: u128, period: Duration| {
            let periods = DELAY.as_nanos().div_ceil(period.as_nanos().max(1)).saturating_add(1);
            let waiting = bytes.saturating_mul(periods.max(2));
            u32::try_from(waiting.saturating_mul(2)).unwrap_or(u32::MAX)
        };
        let chosen = match class {
            IoClass::Guaranteed { bytes, period } => of_periods(bytes.into(), period),
            IoClass::GuaranteedPackets { packets, period } => {
                of_periods(u128::from(packets) * u128::from(PACKET_PAYLOAD), period)
            }
            _ => 0,
        };
        self.receive_buffer_size.unwrap_or_else(|| chosen.clamp(MIN_RECEIVE_BUFFER, MAX_RECEIVE_BUFFER))
    }

    /// Returns true if the configuration asks for kernel priorities and names the interface.
    pub(crate) fn requests_kernel_priorities(&self) -> bool {
        let is_requested = self.has_kernel_priorities && self.max_level == FeatureLevel::StreamSteering;
        self.interface.is_some() && (is_requested || self.max_level == FeatureLevel::KernelPriorities)
    }

    /// Returns the core of the kernel thread of a stream with the properties `io`: the first of the
    /// stream's cores, or [`default_core`](field@Self::default_core).
    pub(crate) fn core_of(&self, io: &IoProperties) -> u32 {
        let core = io.cores.and_then(|cores| cores.iter().next()).and_then(|core| u32::try_from(core).ok());
        core.unwrap_or(self.default_core)
    }

    pub(crate) fn best_effort_ceiling(&self) -> Option<ByteRate> {
        let rate = self.max_best_effort_receive_rate?;
        Some(ByteRate::new(NonZeroU64::new(rate).unwrap_or(NonZeroU64::MIN), BEST_EFFORT_BURST))
    }

    /// Returns the number of receive queues that the interface has now, from 1 to [`QUEUES`], the
    /// number of queues in the steering tables.
    pub(crate) fn receive_queue_count(&self) -> u32 {
        let queues = self.interface.as_ref().and_then(|name| receive_queues(name).ok());
        queues.unwrap_or(1).clamp(1, QUEUES.into())
    }

    pub(crate) fn ring_sizes(&self) -> RingSizes {
        let frames = self.ring_frames.clamp(1, MAX_RING_FRAMES).next_power_of_two();
        RingSizes { streams: self.max_packet_streams, frames }
    }

    /// Returns the maximum memory of one stream with the service class `class`. A stream with rings
    /// has a ring on each receive queue that the interface has now.
    #[must_use]
    pub fn memory_bound(&self, class: IoClass) -> MemoryBound {
        let interface = self.interface.as_ref().filter(|_| self.max_level == FeatureLevel::StreamSteering);
        let buffers = StreamBuffers {
            receive_queue_count: 0,
            ring_frames: self.ring_sizes().frames,
            frame_size: RING_FRAME_SIZE,
            kernel_thread_queue_frames: if interface.is_some() { self.thread_queue_frames } else { 0 },
            max_connections: self.max_connections,
            receive_buffer_size: self.receive_buffer_size_of(class),
            send_buffer_size: self.send_buffer_size,
            // The kernel may merge segments, up to the largest IP packet.
            max_packet_size: 65_535,
        };
        let with_rings = || {
            let receive_queue_count = u16::try_from(self.receive_queue_count()).unwrap_or(QUEUES);
            StreamBuffers { receive_queue_count, ..buffers }.memory_bound().ok()
        };
        let has_rings = interface.is_some() && matches!(class, IoClass::GuaranteedPackets { .. });
        let of_rings = if has_rings { with_rings() } else { None };
        of_rings.unwrap_or_else(|| buffers.memory_bound_without_rings())
    }
}

impl std::fmt::Debug for RioConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RioConfig")
            .field("interface", &self.interface)
            .field("level", &self.max_level)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receive_buffer_has_room_for_the_bytes_of_two_periods() {
        let config = RioConfig::default();
        let of = |bytes, micros| {
            config.receive_buffer_size_of(IoClass::Guaranteed { bytes, period: Duration::from_micros(micros) })
        };
        assert_eq!(config.receive_buffer_size_of(IoClass::Priority), 131_072);
        assert_eq!(of(1_000, 10_000), 131_072);
        assert_eq!(of(100_000, 10_000), 2 * 2 * 100_000);
        assert_eq!(of(100_000, 1_000_000), 2 * 2 * 100_000);
        // Ten periods of 1 ms fit into 10 ms; the buffer has room for one more.
        assert_eq!(of(100_000, 1_000), 2 * 11 * 100_000);
        assert_eq!((of(u32::MAX, 1), of(1, 0)), (16_777_216, 16_777_216));
        assert_eq!(RioConfig::default().buffer_sizes(1, 1).receive_buffer_size_of(IoClass::Priority), 1);
    }
}
