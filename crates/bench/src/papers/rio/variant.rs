//! The ways in which the receiver treats the packets of the measured connections.

use std::time::Duration;

use corelane_net::{IoClass, IoProperties};
use corelane_sys::thread::{CpuSet, Scheduling};

pub(super) const PRIORITY: u8 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveVariant {
    /// The kernel's TCP, with all threads in the ordinary scheduling class.
    Kernel,
    /// The kernel's TCP, with the measured threads at a fixed priority: the baseline of the paper.
    KernelFifo,
    /// Real-time I/O at the level "socket options".
    SocketOptions,
    /// Real-time I/O at the level "stream steering", with a kernel thread of the stream's priority.
    Steered,
    /// Real-time I/O at the level "stream steering", with a kernel thread of the ordinary
    /// scheduling class, as in the paper's table.
    SteeredOrdinary,
    /// Real-time I/O at the level "stream steering", with a budget in packets: a protocol thread of
    /// the receiver lets IP and TCP process the packets.
    PacketBudget,
    /// Real-time I/O at the level "stream steering", with the class of low latency: the receive
    /// context processes the packets.
    LowLatency,
}

use ReceiveVariant::{Kernel, KernelFifo, LowLatency, PacketBudget, SocketOptions, Steered, SteeredOrdinary};

/// Number of packets and period of the budget and of the cap. The round trips never use them up.
const UNLIMITED: (u32, Duration) = (100_000, Duration::from_millis(10));

impl ReceiveVariant {
    pub(super) const ALL: [ReceiveVariant; 7] =
        [KernelFifo, Kernel, SocketOptions, Steered, SteeredOrdinary, PacketBudget, LowLatency];

    pub(super) fn word(self) -> &'static str {
        match self {
            Kernel => "kernel",
            KernelFifo => "kernel-fifo",
            SocketOptions => "socket-options",
            Steered => "steered",
            SteeredOrdinary => "steered-ordinary",
            PacketBudget => "packet-budget",
            LowLatency => "low-latency",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.word() == word)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kernel => "kernel, ordinary class",
            KernelFifo => "kernel, SCHED_FIFO",
            SocketOptions => "socket options",
            Steered => "stream steering",
            SteeredOrdinary => "stream steering, ordinary class",
            PacketBudget => "budget in packets",
            LowLatency => "low latency",
        }
    }

    pub(super) fn peer(self) -> &'static str {
        if self.uses_rio() { "Corelane" } else { "floor" }
    }

    pub(super) fn uses_rio(self) -> bool {
        self == SocketOptions || self.steers()
    }

    pub(super) fn steers(self) -> bool {
        matches!(self, Steered | SteeredOrdinary | PacketBudget | LowLatency)
    }

    /// Returns the name of a lane whose packets are treated in this way; `None` if no CORBA calls
    /// are measured in this way.
    pub(super) fn lane_name(self) -> Option<&'static str> {
        match self {
            KernelFifo => Some("lane over TCP"),
            SocketOptions => Some("lane, socket options"),
            Steered => Some("lane, stream steering"),
            PacketBudget => Some("lane, budget in packets"),
            LowLatency => Some("lane, low latency"),
            Kernel | SteeredOrdinary => None,
        }
    }

    /// Returns the fixed priority of the threads that send and answer; `None` for the ordinary
    /// scheduling class.
    pub(super) fn priority(self) -> Option<u8> {
        (self != Kernel).then_some(PRIORITY)
    }

    pub(super) fn scheduling(self) -> Scheduling {
        self.priority().map_or(Scheduling::Other, Scheduling::Fifo)
    }

    pub(super) fn io(self, core: usize) -> IoProperties {
        let (packets, period) = UNLIMITED;
        let class = match self {
            Kernel | KernelFifo => IoClass::BestEffort,
            SocketOptions | Steered | SteeredOrdinary => IoClass::Priority,
            PacketBudget => IoClass::GuaranteedPackets { packets, period },
            LowLatency => IoClass::LowLatency { packets, period },
        };
        let native_priority = matches!(self, SocketOptions | Steered | PacketBudget | LowLatency).then_some(PRIORITY);
        IoProperties { class, native_priority, cores: Some(CpuSet::one(core)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_names_differ() {
        for variant in ReceiveVariant::ALL {
            assert_eq!(ReceiveVariant::from_word(variant.word()), Some(variant));
            assert_eq!(ReceiveVariant::ALL.iter().filter(|other| other.name() == variant.name()).count(), 1);
        }
        assert_eq!(ReceiveVariant::from_word("best"), None);
    }
}
