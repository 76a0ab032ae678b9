//! The entries of a stream, of its port and of its connections in the steering tables.
//!
//! A stream can be open before the tables exist, for example while the link of the interface is
//! down. [`StreamSteering::attach`] then adds the stream with its port and connections.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use corelane_sched::task::Nanos;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::process;
use corelane_sys::thread::Scheduling;

use crate::budget::Budget;
use crate::interface_steering::{InterfaceSteering, SteeredConnection, SteeredPort, SteeredStream, StreamPlace};
use crate::protocol_thread::{PacketCounts, ThreadSettings};
use crate::steering::{PacketRate, SteeringError, StreamCounts};

pub(crate) struct StreamSteering {
    core: u32,
    scheduling: Option<Scheduling>,
    queue_frames: u32,
    /// Maximum rate of packets in the receive context, for low latency.
    receive_context_rate: Option<PacketRate>,
    /// Budget and thread of a stream with a budget in packets.
    packets: Option<(Budget, ThreadSettings)>,
    state: PiMutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` until the tables exist and have an entry for the stream.
    stream: Option<SteeredStream>,
    /// True while a thread makes the entry without the lock.
    is_opening: bool,
    lack: Option<String>,
    /// The reason why a stream with a budget in packets has no rings.
    ring_lack: Option<String>,
    retry: Retry,
    members: BTreeMap<u64, Member>,
    last_number: u64,
}

/// The time at which a stream tries to get its missing entries and rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableAttempt {
    /// The stream tries at once, because the tables or the rings of the interface are new. It waits
    /// until the kernel has released the earlier sockets of the receive queues.
    Now,
    /// As `Now`, but without a wait, because a stream before this one has waited in vain.
    NowWithoutWait,
    /// The stream tries if it lacks something and the pause after the last failure is over.
    IfDue,
}

/// The time of the next attempt to get an entry or rings that were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Retry {
    due_at: Nanos,
    /// Pause in nanoseconds after the last failure.
    pause: Nanos,
}

impl Retry {
    /// Pause in nanoseconds after the first failure.
    const FIRST: Nanos = 250_000_000;
    /// Maximum pause in nanoseconds.
    const LAST: Nanos = 30_000_000_000;

    /// Returns the next attempt after a failure at `now`. `is_full` is true if other streams have
    /// all places, so that one of them can free a place at any time. The next attempt then has no
    /// pause, because such attempts cost little.
    fn after_failure(self, is_full: bool, now: Nanos) -> Self {
        if is_full {
            return Self::default();
        }
        let pause = self.pause.saturating_mul(2).clamp(Self::FIRST, Self::LAST);
        Self { due_at: now.saturating_add(pause), pause }
    }
}

/// A port or a connection of the stream; `entry` is `None` while the tables have no entry for it.
enum Member {
    Port { port: u16, entry: Option<SteeredPort> },
    Connection { remote: SocketAddr, local: SocketAddr, entry: Option<SteeredConnection> },
}

impl Member {
    /// Adds the missing entry. If the tables refuse it, for example because they are full, the
    /// frames stay best effort.
    fn attach(&mut self, stream: &SteeredStream) {
        match self {
            Self::Port { port, entry: entry @ None } => *entry = stream.steering().open_port(*port).ok(),
            Self::Connection { remote, local, entry: entry @ None } => {
                *entry = stream.add_connection(*remote, *local).unwrap_or(None);
            }
            Self::Port { .. } | Self::Connection { .. } => {}
        }
    }
}

impl StreamSteering {
    pub(crate) fn new(
        core: u32,
        scheduling: Option<Scheduling>,
        queue_frames: u32,
        receive_context_rate: Option<PacketRate>,
        packets: Option<(Budget, ThreadSettings)>,
    ) -> Arc<Self> {
        let state = PiMutex::new("steering of a stream", LockScope::Orb, State::default());
        Arc::new(Self { core, scheduling, queue_frames, receive_context_rate, packets, state })
    }

    /// Makes an attempt with each stream. After a refusal of rings at an attempt `IfDue`, the further
    /// streams remain due for the next round, because they would probably be refused too.
    pub(crate) fn attach_all<'s>(
        streams: impl Iterator<Item = &'s Arc<Self>>,
        steering: &Arc<InterfaceSteering>,
        attempt: TableAttempt,
    ) {
        let mut next = attempt;
        for stream in streams {
            if stream.attach(steering, next) {
                continue;
            }
            if attempt == TableAttempt::IfDue {
                return;
            }
            next = TableAttempt::NowWithoutWait;
        }
    }

    /// Adds the entries that the tables lack, and opens missing rings. Entries that another thread
    /// adds now are left to that thread. Returns false if rings were refused, except if other streams
    /// have all rings.
    pub(crate) fn attach(&self, steering: &Arc<InterfaceSteering>, attempt: TableAttempt) -> bool {
        if attempt == TableAttempt::IfDue && !self.is_due(Monotonic::now().as_nanos()) {
            return true;
        }
        self.attach_with(|| {
            let (core, scheduling, rate) = (self.core, self.scheduling, self.receive_context_rate);
            let (stream, lack) = steering.open_stream(core, scheduling, self.queue_frames, rate)?;
            Ok((stream.for_rings(self.packets.is_some()), lack))
        });
        let Some((budget, thread)) = &self.packets else { return true };
        let Some(place) = self.place() else { return true };
        let opened = place.open_rings(*budget, thread, attempt == TableAttempt::Now);
        let is_refused = opened.as_ref().is_err_and(|error| !is_full(error));
        let mut state = self.state.lock();
        state.retry = match &opened {
            Ok(()) => Retry::default(),
            Err(error) => state.retry.after_failure(is_full(error), Monotonic::now().as_nanos()),
        };
        state.ring_lack = opened.err().map(|error| format!("packets have no budget: {error}"));
        !is_refused
    }

    fn is_due(&self, now: Nanos) -> bool {
        let state = self.state.lock();
        // A stream that has neither an entry nor a lack is new. The thread that opens the stream
        // makes the first attempt.
        let is_refused = (state.stream.is_none() && state.lack.is_some()) || state.ring_lack.is_some();
        is_refused && now >= state.retry.due_at
    }

    /// Adds the entries that the tables lack. `open` makes the stream's entry and its kernel
    /// thread. `open` runs without the lock, which each new connection of the stream takes.
    fn attach_with(&self, open: impl FnOnce() -> Result<(SteeredStream, Option<String>), SteeringError>) {
        let mut state = self.state.lock();
        if state.is_opening {
            return;
        }
        if state.stream.is_none() {
            state.is_opening = true;
            drop(state);
            let opened = open();
            state = self.state.lock();
            state.is_opening = false;
            match opened {
                Ok((stream, refusal)) => {
                    (state.stream, state.lack, state.retry) = (Some(stream), refusal, Retry::default());
                }
                Err(error) => {
                    let is_full = matches!(&error, SteeringError::Map(error) if is_full(error));
                    state.retry = state.retry.after_failure(is_full, Monotonic::now().as_nanos());
                    state.lack = Some(format!("frames of the stream are not sorted: {error}"));
                }
            }
        }
        let State { stream, members, .. } = &mut *state;
        stream.iter().for_each(|stream| members.values_mut().for_each(|member| member.attach(stream)));
    }

    pub(crate) fn add_port(self: &Arc<Self>, port: u16) -> SteeringMember {
        self.add(Member::Port { port, entry: None })
    }

    pub(crate) fn add_connection(self: &Arc<Self>, remote: SocketAddr, local: SocketAddr) -> SteeringMember {
        self.add(Member::Connection { remote, local, entry: None })
    }

    fn add(self: &Arc<Self>, mut member: Member) -> SteeringMember {
        let mut state = self.state.lock();
        state.stream.iter().for_each(|stream| member.attach(stream));
        state.last_number += 1;
        let number = state.last_number;
        state.members.insert(number, member);
        SteeringMember { steering: Arc::clone(self), number, process: process::id() }
    }

    pub(crate) fn counts(&self) -> Option<StreamCounts> {
        self.state.lock().stream.as_ref()?.counts().ok()
    }

    pub(crate) fn thread_name(&self) -> Option<String> {
        self.place()?.thread_name()
    }

    /// Returns the counts of the protocol thread; `None` if the stream has no rings.
    pub(crate) fn packet_counts(&self) -> Option<PacketCounts> {
        self.place()?.packet_counts()
    }

    /// Returns the place of the stream, with which the caller makes calls after the lock is
    /// released. The kernel may need a moment to open rings.
    fn place(&self) -> Option<StreamPlace> {
        self.state.lock().stream.as_ref().map(SteeredStream::place)
    }

    pub(crate) fn lack(&self) -> Option<String> {
        let state = self.state.lock();
        let lacks: Vec<&str> = [&state.lack, &state.ring_lack].into_iter().flatten().map(String::as_str).collect();
        (!lacks.is_empty()).then(|| lacks.join("; "))
    }
}

/// Returns true if the error says that other streams have all places.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::QuotaExceeded
}

/// A port or a connection of a stream with its entry in the steering tables. Dropping the value
/// removes the entry.
pub(crate) struct SteeringMember {
    steering: Arc<StreamSteering>,
    number: u64,
    process: u32,
}

impl Drop for SteeringMember {
    fn drop(&mut self) {
        // In a forked child, the lock may be held for a thread that only the parent process has, so
        // the child does not take it.
        if self.process == process::id() {
            let member = self.steering.state.lock().members.remove(&self.number);
            drop(member);
        }
    }
}

impl std::fmt::Debug for SteeringMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SteeringMember({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails, with a deadlock, if the lock is held while the kernel thread is created.
    #[test]
    fn connections_come_and_go_while_the_kernel_thread_of_their_stream_is_created() {
        let steering = StreamSteering::new(0, None, 64, None, None);
        let ends = ("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap());
        steering.attach_with(|| {
            drop(steering.add_connection(ends.0, ends.1));
            steering.attach_with(|| unreachable!("another thread opens the stream"));
            Err(io::Error::other("refused").into())
        });
        assert_eq!(steering.lack().as_deref(), Some("frames of the stream are not sorted: steering table: refused"));
        let mut is_tried_again = false;
        steering.attach_with(|| {
            is_tried_again = true;
            Err(io::Error::other("refused").into())
        });
        assert!(is_tried_again);
    }

    #[test]
    fn pauses_between_attempts_double_and_a_full_table_has_none() {
        let mut retry = Retry::default();
        let mut pauses = Vec::new();
        for now in 0..9 {
            retry = retry.after_failure(false, now);
            assert_eq!(retry.due_at, now + retry.pause);
            pauses.push(retry.pause / 1_000_000);
        }
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(retry.after_failure(true, 7), Retry::default());
    }
}
