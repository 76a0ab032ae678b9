//! A bridge in operation: its threads and its state.

use std::fmt::{self, Display};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane::SystemException;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::thread::{JoinHandle, ThreadBuilder};

use super::delivering::Deliverer;
use super::publishing::Publisher;
use super::{Backbone, BackboneError};
use crate::events::gateway::{BackOff, ReconnectPolicy, separate};
use crate::events::idl::corelane_events::{DurableChannelRef, FederatedChannelRef};

/// Maximum time for which a thread of a bridge waits for a message or an event before it checks
/// whether the bridge is being stopped.
const WAIT: Duration = Duration::from_millis(500);

pub(super) fn message(error: impl Display) -> String {
    error.to_string()
}

/// The numbers of a bridge's events, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeCounts {
    /// Events of the channel that the backbone has kept.
    pub published: u64,
    /// Events of the channel that came from the backbone, or that have been in too many channels.
    /// They are not published.
    pub loops_stopped: u64,
    /// Events of the channel whose time to live was not above 0. They are not published.
    pub ttl_expired: u64,
    /// Lost events: each alone is larger than the backbone permits.
    pub dropped_too_large: u64,
    /// Lost events: the channel's store deleted them before they were published.
    pub deleted_events: u64,
    /// Events of other bridges that the channel has taken.
    pub delivered: u64,
    /// Events of other bridges that the channel already had.
    pub duplicates: u64,
    /// Lost events: the channel refused them, or could not tell if it had received them before.
    pub refused: u64,
    /// Messages of the backbone that are not events of a bridge.
    pub unreadable: u64,
    /// Lost messages, each with one or more events: the backbone deleted them before they were
    /// received.
    pub deleted_messages: u64,
}

impl BridgeCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.published += other.published;
        self.loops_stopped += other.loops_stopped;
        self.ttl_expired += other.ttl_expired;
        self.dropped_too_large += other.dropped_too_large;
        self.deleted_events += other.deleted_events;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.refused += other.refused;
        self.unreadable += other.unreadable;
        self.deleted_messages += other.deleted_messages;
    }
}

/// The state of a bridge at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeStatus {
    /// True if the bridge reaches the backbone and the channel.
    pub is_connected: bool,
    /// The reason of the latest failure; `None` before a failure, and after a recovery.
    pub problem: Option<String>,
    /// The numbers of events.
    pub counts: BridgeCounts,
}

/// The settings of a [`Bridge`].
#[derive(Clone, Debug)]
pub struct BridgeBuilder {
    name: String,
    first: u64,
    reconnect: ReconnectPolicy,
    call_timeout: Duration,
}

impl BridgeBuilder {
    /// Sets the sequence number of the backbone's message with which a new name begins. A known
    /// name resumes where it was. Default: 1, with all messages that the backbone keeps.
    #[must_use]
    pub const fn first_message(mut self, sequence: u64) -> Self {
        self.first = sequence;
        self
    }

    /// Sets when the bridge tries to reach a lost channel or backbone again.
    #[must_use]
    pub const fn reconnect(mut self, policy: ReconnectPolicy) -> Self {
        self.reconnect = policy;
        self
    }

    /// Sets the deadline of each call to the channel. Default: 5 s.
    #[must_use]
    pub const fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Begins to deliver the events of other bridges to `channel` and, if the channel is durable, to
    /// publish its events. `durable` is the channel's reference for CORBA's Event Service. Each of
    /// the two threads calls `connect` for a connection of its own, and again after a failure.
    ///
    /// # Errors
    /// The reason for which the system refuses a thread, or a system exception of the ORB.
    pub fn start<B: Backbone + 'static>(
        self,
        channel: &FederatedChannelRef,
        durable: Option<&DurableChannelRef>,
        connect: impl Fn() -> Result<B, BackboneError> + Send + Sync + 'static,
    ) -> Result<Bridge, String> {
        let half = || Half { is_connected: false, problem: None, counts: BridgeCounts::default() };
        let halves = if durable.is_some() { vec![half(), half()] } else { vec![half()] };
        let run = BridgeRun { halves, is_stopping: false };
        let shared = Arc::new(SharedBridge { run: Mutex::new("bridge", LockScope::Orb, run), ending: Condvar::new() });
        let connect = Arc::new(connect);
        let bridge = Bridge {
            shared: Arc::clone(&shared),
            threads: Arc::new(Mutex::new("bridge threads", LockScope::Orb, Vec::new())),
        };
        let system = |exception: SystemException| message(exception);
        let refused = |error: io::Error| message(error);

        // All references are made before a thread starts, because a failure must leave no thread.
        let own = separate(channel, self.call_timeout).map_err(system)?;
        let source =
            durable.map(|durable| Ok((separate(channel, self.call_timeout)?, separate(durable, self.call_timeout)?)));
        let source = source.transpose().map_err(system)?;

        let (name, first, policy) = (self.name.clone(), self.first, self.reconnect);
        let (connecting, state) = (Arc::clone(&connect), Arc::clone(&shared));
        let delivering = move || {
            let mut half = Deliverer::new(&name, first, own);
            state.run(0, policy, || {
                let done = half.step(&*connecting, WAIT);
                (done, half.is_connected(), half.counts)
            });
        };
        let delivering = ThreadBuilder::new().name("events/in").spawn(delivering).map_err(refused)?;
        bridge.threads.lock().push(delivering);

        if let Some((own, source)) = source {
            let (name, policy, state) = (self.name, self.reconnect, Arc::clone(&shared));
            let publishing = move || {
                let mut half = Publisher::new(&name, own, source);
                state.run(1, policy, || {
                    let done = half.step(&*connect, WAIT);
                    (done, half.is_connected(), half.counts)
                });
            };
            let publishing = ThreadBuilder::new().name("events/out").spawn(publishing);
            match publishing {
                Ok(thread) => bridge.threads.lock().push(thread),
                Err(error) => {
                    bridge.stop();
                    return Err(refused(error));
                }
            }
        }
        Ok(bridge)
    }
}

struct Half {
    is_connected: bool,
    problem: Option<String>,
    counts: BridgeCounts,
}

struct BridgeRun {
    /// The state of the thread that delivers and, if the channel is durable, of the thread that
    /// publishes.
    halves: Vec<Half>,
    is_stopping: bool,
}

struct SharedBridge {
    run: Mutex<BridgeRun>,
    ending: Condvar,
}

impl SharedBridge {
    /// Repeats `step` until the bridge is stopped, pauses after failures, and records the state in
    /// `halves[half]`. `step` returns its result, true if both the channel and the backbone are
    /// reached, and its counts.
    fn run(
        &self,
        half: usize,
        policy: ReconnectPolicy,
        mut step: impl FnMut() -> (Result<(), String>, bool, BridgeCounts),
    ) {
        let _end = HalfEnd { shared: self, half };
        let mut back_off = BackOff::new(policy, half as u64 ^ Monotonic::now().as_nanos());
        loop {
            let (done, is_connected, counts) = step();
            let mut run = self.run.lock();
            let problem = done.err();
            let has_failed = problem.is_some();
            run.halves[half] = Half { is_connected: is_connected && !has_failed, problem, counts };
            if has_failed {
                let deadline = Monotonic::now() + back_off.next_delay();
                while !run.is_stopping && !deadline.is_past() {
                    run = self.ending.wait_until(run, Some(deadline)).0;
                }
            } else {
                back_off.succeeded();
            }
            if run.is_stopping {
                return;
            }
        }
    }
}

/// Records the end of a half whose thread panics.
struct HalfEnd<'b> {
    shared: &'b SharedBridge,
    half: usize,
}

impl Drop for HalfEnd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let half = &mut self.shared.run.lock().halves[self.half];
            (half.is_connected, half.problem) = (false, Some("the thread has panicked".to_owned()));
        }
    }
}

/// A bridge between an event channel and a [`Backbone`].
///
/// It publishes each event of a durable channel whose time to live is above 0, with the time to
/// live decremented by 1. The channel's store keeps the position under the name of the bridge. The
/// bridge delivers the events of other bridges to its channel, in the order of the backbone. Each
/// channel takes an event once.
///
/// The drop of the value does not end the bridge, which then runs until the process ends.
///
/// ```
/// use corelane::Orb;
/// use corelane_services::events::backbone::{Bridge, MemoryBackbone};
/// use corelane_services::events::corelane_events::FederatedChannelRef;
/// use corelane_services::events::EventChannel;
/// # use corelane::Reference;
///
/// let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
/// let channel = EventChannel::builder().name("flight").serve(&orb)?;
/// let reference = FederatedChannelRef::unchecked_narrow(channel.reference().as_object());
/// let backbone = MemoryBackbone::new();
/// let bridge = Bridge::builder("north").start(&reference, None, move || Ok(backbone.clone()))?;
/// bridge.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Bridge {
    shared: Arc<SharedBridge>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Bridge {
    /// Returns a builder of a bridge with this name: 1 to 64 letters, digits and characters `-_`.
    /// The channel's store and the backbone keep the bridge's positions under this name, so each
    /// bridge of a backbone needs a name of its own.
    #[must_use]
    pub fn builder(name: &str) -> BridgeBuilder {
        BridgeBuilder {
            name: name.to_owned(),
            first: 1,
            reconnect: ReconnectPolicy::default(),
            call_timeout: Duration::from_secs(5),
        }
    }

    /// Returns the state of the bridge.
    #[must_use]
    pub fn status(&self) -> BridgeStatus {
        let run = self.shared.run.lock();
        let mut status = BridgeStatus { is_connected: true, ..BridgeStatus::default() };
        for Half { is_connected, problem, counts } in &run.halves {
            status.is_connected &= is_connected;
            status.problem = status.problem.or_else(|| problem.clone());
            status.counts.add(counts);
        }
        status
    }

    /// Ends the bridge. Returns when its threads have ended, after the present call of each.
    pub fn stop(&self) {
        self.shared.run.lock().is_stopping = true;
        self.shared.ending.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A thread that has panicked has ended too.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("status", &self.status()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_whose_thread_panics_has_a_problem() {
        let half = Half { is_connected: true, problem: None, counts: BridgeCounts::default() };
        let run = BridgeRun { halves: vec![half], is_stopping: false };
        let shared = Arc::new(SharedBridge { run: Mutex::new("bridge", LockScope::Orb, run), ending: Condvar::new() });
        let bridge = Bridge {
            shared: Arc::clone(&shared),
            threads: Arc::new(Mutex::new("bridge threads", LockScope::Orb, Vec::new())),
        };
        let half = move || shared.run(0, ReconnectPolicy::default(), || panic!("the test panics"));
        assert!(ThreadBuilder::new().name("test").spawn(half).unwrap().join().is_err());
        let BridgeStatus { is_connected, problem, .. } = bridge.status();
        assert_eq!((is_connected, problem.as_deref()), (false, Some("the thread has panicked")));
    }
}
