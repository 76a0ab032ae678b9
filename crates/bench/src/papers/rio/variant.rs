//! The ways in which the receiver treats the packets of the measured connections.

use corelane_net::{IoClass, IoProperties};
use corelane_sys::thread::{CpuSet, Scheduling};

pub(super) const PRIORITY: u8 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveVariant {
    /// The kernel's TCP, with all threads in the ordinary class.
    Kernel,
    /// The kernel's TCP, with the measured threads at a fixed priority: the baseline of the paper.
    KernelFifo,
    /// Real-time I/O at the level "socket options".
    SocketOptions,
    /// Real-time I/O at the level "stream steering", with a kernel thread of the stream's priority.
    Steered,
    /// Real-time I/O at the level "stream steering", with a kernel thread of the ordinary class, as
    /// in the paper's table.
    SteeredOrdinary,
}

use ReceiveVariant::{Kernel, KernelFifo, SocketOptions, Steered, SteeredOrdinary};

impl ReceiveVariant {
    pub(super) const ALL: [ReceiveVariant; 5] = [KernelFifo, Kernel, SocketOptions, Steered, SteeredOrdinary];

    pub(super) fn word(self) -> &'static str {
        match self {
            Kernel => "kernel",
            KernelFifo => "kernel-fifo",
            SocketOptions => "socket-options",
            Steered => "steered",
            SteeredOrdinary => "steered-ordinary",
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
        }
    }

    pub(super) fn peer(self) -> &'static str {
        if self.uses_rio() { "Corelane" } else { "floor" }
    }

    pub(super) fn uses_rio(self) -> bool {
        matches!(self, SocketOptions | Steered | SteeredOrdinary)
    }

    pub(super) fn steers(self) -> bool {
        matches!(self, Steered | SteeredOrdinary)
    }

    /// Returns the name of a lane whose packets are treated in this way; `None` if no CORBA calls
    /// are measured in this way.
    pub(super) fn lane_name(self) -> Option<&'static str> {
        match self {
            KernelFifo => Some("lane over TCP"),
            SocketOptions => Some("lane, socket options"),
            Steered => Some("lane, stream steering"),
            Kernel | SteeredOrdinary => None,
        }
    }

    /// Returns the fixed priority of the threads that send and answer; `None` for the ordinary
    /// class.
    pub(super) fn priority(self) -> Option<u8> {
        (self != Kernel).then_some(PRIORITY)
    }

    pub(super) fn scheduling(self) -> Scheduling {
        self.priority().map_or(Scheduling::Other, Scheduling::Fifo)
    }

    pub(super) fn io(self, core: usize) -> IoProperties {
        let class = if self.uses_rio() { IoClass::Priority } else { IoClass::BestEffort };
        let native_priority = matches!(self, SocketOptions | Steered).then_some(PRIORITY);
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
