//! The treatment of packets that a lane or a client requests.

use std::time::Duration;

use corelane_sys::thread::CpuSet;

/// Service class of the packets of a lane, or of a client's connections.
///
/// A transport without such classes, such as [`TcpTransport`](crate::TcpTransport), ignores the
/// class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoClass {
    /// Packets have neither a priority nor a budget.
    #[default]
    BestEffort,
    /// Packets are processed as soon as they arrive, at the priority of the lane or of the client's
    /// calls, if the machine permits it.
    Priority,
    /// The context that receives the packets processes them as soon as they arrive, before all
    /// threads of its core: `packets` at once after a pause, and one more in each `packets`-th part
    /// of a period. The rest is processed as with [`Priority`](Self::Priority). A transport that
    /// does not sort received packets treats the class as [`Priority`](Self::Priority).
    LowLatency {
        /// Number of received packets in each period, at least 1.
        packets: u32,
        /// Length of a period.
        period: Duration,
    },
    /// The connections together receive at most `bytes` bytes in each period, and are guaranteed
    /// this number.
    Guaranteed {
        /// Number of received bytes in each period, at least 1.
        bytes: u32,
        /// Length of a period.
        period: Duration,
    },
    /// At most `packets` received packets of the connections are processed in each period, at the
    /// priority of the lane or of the client's calls. The rest waits outside the protocol stack. A
    /// transport without rings of packets treats the class as [`Priority`](Self::Priority).
    GuaranteedPackets {
        /// Number of received packets in each period, at least 1.
        packets: u32,
        /// Length of a period.
        period: Duration,
    },
}

/// Properties of a lane, or of a client's calls, for transports with real-time I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoProperties {
    /// Service class of the packets.
    pub class: IoClass,
    /// Fixed priority of the threads that read the packets, 1 to 99. `None` means the ordinary
    /// class.
    pub native_priority: Option<u8>,
    /// Cores on which the threads that read the packets may run. `None` means all cores.
    pub cores: Option<CpuSet>,
}
