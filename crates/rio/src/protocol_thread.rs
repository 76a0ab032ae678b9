//! The protocol thread of a stream with a budget in packets.
//!
//! The thread takes frames from the stream's rings and writes their packets into the TUN device.
//! The kernel runs IP and TCP within the call that writes: in this thread, at its priority and on
//! its core. When the budget of a period is used up, the thread sleeps until the next period
//! begins.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use corelane_sched::task::Nanos;
use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::eventfd::EventFd;
use corelane_sys::thread::{CpuSet, JoinHandle, Scheduling, ThreadBuilder};
use corelane_sys::tun::{PacketChecksum, TunDevice};
use corelane_sys::xdp::{XdpReceiver, XdpSocket};
use corelane_sys::{poll, process};

use crate::budget::{Budget, BudgetServerKind, StreamScheduler, ThreadStep};
use crate::frame::TcpPacket;

/// Time in nanoseconds for which a thread sleeps after an error of the kernel, so that it does not
/// spin, but still ends soon when it is stopped.
const PAUSE: Nanos = 10_000_000;

/// Use of a budget in packets, with the counts of the stream's rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketCounts {
    /// Packets that the protocol thread has taken from the rings, including packets that were then
    /// lost.
    pub processed: u64,
    /// Packets that the thread processed in the period of the last processed packet.
    pub period_packets: u64,
    /// The largest number of packets that the thread processed in one period.
    pub max_period_packets: u64,
    /// Number of times that the thread slept although packets waited, because the budget of the
    /// period was used up.
    pub waits: u64,
    /// Frames that the kernel dropped because a ring of the stream was full.
    pub ring_full: u64,
    /// Frames that were lost for another reason: the kernel had no frame for them, they were no TCP
    /// segments, or IP refused them.
    pub lost: u64,
}

/// Counts of a protocol thread, which other threads read. The counts are independent of each other,
/// so relaxed memory order is enough.
#[derive(Debug, Default)]
struct Counters {
    processed: AtomicU64,
    period_packets: AtomicU64,
    max_period_packets: AtomicU64,
    waits: AtomicU64,
    lost: AtomicU64,
    /// True after the TUN device was found down or removed.
    has_lost_device: AtomicBool,
}

/// Name, scheduling and preferred cores of a protocol thread.
#[derive(Clone, Debug)]
pub(crate) struct ThreadSettings {
    pub(crate) name: String,
    pub(crate) scheduling: Option<Scheduling>,
    pub(crate) cores: Option<CpuSet>,
}

/// A running protocol thread. Dropping the value ends the thread and closes the rings. Frames that
/// wait in the rings are lost, and TCP sends them again.
#[derive(Debug)]
pub(crate) struct ProtocolThread {
    sockets: Vec<Arc<XdpSocket>>,
    counters: Arc<Counters>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

#[derive(Debug)]
struct Stop {
    is_set: AtomicBool,
    event: EventFd,
}

impl ProtocolThread {
    /// Starts a thread for the rings of a stream. Each receive queue has one of the rings.
    ///
    /// # Errors
    /// An invalid budget as `InvalidInput`; the error of a thread that cannot start.
    pub(crate) fn start(
        receivers: Vec<XdpReceiver>,
        tun: Arc<TunDevice>,
        budget: Budget,
        settings: &ThreadSettings,
    ) -> io::Result<Self> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let origin = Monotonic::now().as_nanos();
        let scheduler = StreamScheduler::of_budget(budget, BudgetServerKind::Deferrable, origin).map_err(invalid)?;
        let sockets = receivers.iter().map(|receiver| Arc::clone(receiver.socket())).collect();
        let counters = Arc::new(Counters::default());
        let stop = Arc::new(Stop { is_set: AtomicBool::new(false), event: EventFd::new()? });
        let arrivals = Epoll::new()?;
        arrivals.add(stop.event.as_fd(), 0, Interest::READABLE)?;
        for receiver in &receivers {
            arrivals.add(receiver.socket().as_fd(), 1, Interest::READABLE)?;
        }
        let run = Run {
            receivers,
            next_receiver: 0,
            tun,
            scheduler,
            counted_period: 0,
            counters: Arc::clone(&counters),
            stop: Arc::clone(&stop),
            arrivals,
        };
        let mut builder = ThreadBuilder::new().name(settings.name.as_str()).preferred_affinity(settings.cores);
        if let Some(scheduling) = settings.scheduling {
            builder = builder.scheduling(scheduling);
        }
        let thread = Some(builder.spawn(move || run.run())?);
        Ok(Self { sockets, counters, stop, thread, process: process::id() })
    }

    /// Returns the sockets of the rings, in the order of the receive queues.
    pub(crate) fn sockets(&self) -> &[Arc<XdpSocket>] {
        &self.sockets
    }

    /// Returns true if the thread has found the TUN device down or removed, and therefore loses all
    /// packets.
    pub(crate) fn has_lost_device(&self) -> bool {
        self.counters.has_lost_device.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> PacketCounts {
        let Counters { processed, period_packets, max_period_packets, waits, lost, .. } = &*self.counters;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut counts = PacketCounts {
            processed: read(processed),
            period_packets: read(period_packets),
            max_period_packets: read(max_period_packets),
            waits: read(waits),
            ring_full: 0,
            lost: read(lost),
        };
        for statistics in self.sockets.iter().filter_map(|socket| socket.statistics().ok()) {
            counts.ring_full += statistics.ring_full;
            counts.lost += statistics.dropped;
        }
        counts
    }
}

impl Drop for ProtocolThread {
    fn drop(&mut self) {
        // A forked child has no copy of the thread, so there is nothing to end.
        if self.process != process::id() {
            return;
        }
        self.stop.is_set.store(true, Ordering::Relaxed);
        self.stop.event.notify();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Run {
    receivers: Vec<XdpReceiver>,
    /// Index of the ring that is looked at first for the next frame, so that the receive queues
    /// take turns.
    next_receiver: usize,
    tun: Arc<TunDevice>,
    scheduler: StreamScheduler,
    /// Number of the period of the last processed packet.
    counted_period: u64,
    counters: Arc<Counters>,
    stop: Arc<Stop>,
    arrivals: Epoll,
}

impl Run {
    /// Processes packets until the thread is stopped. Each iteration processes a packet or sleeps.
    fn run(mut self) {
        while !self.stop.is_set.load(Ordering::Relaxed) {
            let now = Monotonic::now().as_nanos();
            let head = self.next_head();
            match self.scheduler.next_step(head.map(|(_, length)| length), now) {
                ThreadStep::Process => head.into_iter().for_each(|(place, _)| self.process(place)),
                ThreadStep::SleepUntil(due) => {
                    add_one(&self.counters.waits);
                    self.sleep_until(due);
                }
                ThreadStep::Wait => self.wait_for_frames(),
            }
        }
    }

    /// Returns the index of a ring in which a frame waits, and the length of the frame.
    fn next_head(&self) -> Option<(usize, u32)> {
        let count = self.receivers.len();
        let places = (0..count).map(|step| (self.next_receiver + step) % count);
        places.into_iter().find_map(|place| Some((place, self.receivers.get(place)?.head_length()?)))
    }

    fn process(&mut self, place: usize) {
        let Self { receivers, tun, .. } = self;
        let taken = receivers.get_mut(place).and_then(|receiver| receiver.receive(|frame| write(tun, frame)));
        if let Some(Err(error)) = taken {
            add_one(&self.counters.lost);
            if error.kind() == io::ErrorKind::NetworkDown {
                self.counters.has_lost_device.store(true, Ordering::Relaxed);
            }
        }
        self.next_receiver = place + 1;
        let period = self.scheduler.budget().map_or(0, |budget| budget.period());
        let counters = &self.counters;
        if self.counted_period != period {
            self.counted_period = period;
            counters.period_packets.store(0, Ordering::Relaxed);
        }
        add_one(&counters.processed);
        add_one(&counters.period_packets);
        let packets = counters.period_packets.load(Ordering::Relaxed);
        counters.max_period_packets.fetch_max(packets, Ordering::Relaxed);
    }

    fn wait_for_frames(&self) {
        let reported = self.arrivals.wait(&mut [EpollEvent::EMPTY; 1], None);
        match reported {
            // A signal has ended the wait, so the thread waits again.
            Ok(0) => {}
            Ok(_) if self.next_head().is_some() => {}
            // A report without a frame, for example an error of a socket, would come again at once.
            // The thread pauses, so that it never spins.
            _ => self.sleep_until(Monotonic::now().as_nanos().saturating_add(PAUSE)),
        }
    }

    /// Sleeps until `due`, or until the thread must end.
    fn sleep_until(&self, due: Nanos) {
        if poll::wait_readable(self.stop.event.as_fd(), Some(Monotonic::from_nanos(due))).is_err() {
            // The wait fails only if the kernel is out of memory.
            std::thread::sleep(std::time::Duration::from_nanos(PAUSE));
        }
    }
}

/// Lets the kernel process the packet of a frame. After an error the packet is lost.
fn write(tun: &TunDevice, frame: &[u8]) -> io::Result<()> {
    let packet = TcpPacket::of_frame(frame).ok_or(io::ErrorKind::InvalidData)?;
    let checksum = match (packet.has_partial_checksum(), u16::try_from(packet.header_length())) {
        (true, Ok(tcp)) => PacketChecksum::Partial { tcp },
        _ => PacketChecksum::Unverified,
    };
    tun.receive(packet.bytes(), checksum)
}

fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
