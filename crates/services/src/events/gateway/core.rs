//! The decisions of a gateway: which events it passes on, which wait, which are dropped, and when
//! it tries to reach a lost channel. The caller makes the calls and wakes the threads.
//!
//! Invariant: the counts are balanced ([`GatewayCounts::is_balanced`]).

use corelane_sched::task::Nanos;

use super::buffer::ForwardBuffer;
use super::passage::{ChannelId, Held, cross};
use super::reconnect::{BackOff, ReconnectPolicy};
use crate::events::queue::QueueLimits;

pub(in crate::events) const MAX_BATCH: usize = 64;
pub(in crate::events) const MAX_BATCH_BYTES: usize = 256 << 10;

/// The counts of a gateway. Invariant: `received` is the sum of all other counts but `reconnects`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounts {
    /// Events that the source channel has given to the gateway.
    pub received: u64,
    /// Events that the destination has taken.
    pub forwarded: u64,
    /// Events that the destination had already received, through another gateway or by an earlier
    /// attempt.
    pub duplicates: u64,
    /// Events that had been in the destination before, or in too many channels (32). The gateway
    /// does not pass them on.
    pub loops_stopped: u64,
    /// Events whose time to live was not above 0. The gateway does not pass them on.
    pub ttl_expired: u64,
    /// Lost events: the buffer was full.
    pub dropped_buffer_full: u64,
    /// Lost events: the destination refused them, or they came so late that the destination could
    /// not tell whether they were duplicates.
    pub dropped_by_destination: u64,
    /// Events that wait in the gateway, or whose call is running.
    pub waiting: u64,
    /// Number of times that the gateway has reached the source or the destination again.
    pub reconnects: u64,
}

impl GatewayCounts {
    /// Returns true if `received` is the sum of what became of the events.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.received
            == self.forwarded
                + self.duplicates
                + self.loops_stopped
                + self.ttl_expired
                + self.dropped_buffer_full
                + self.dropped_by_destination
                + self.waiting
    }
}

pub(super) trait CrossingEvent {
    fn ttl(&self) -> i32;
    fn set_ttl(&mut self, ttl: i32);
    fn path(&self) -> &[ChannelId];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) duplicates: u64,
    pub(super) refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The destination is reached.
    Connected,
    /// The destination is not reached. The next attempt is due at this time.
    Lost(Nanos),
}

#[derive(Debug)]
pub(super) struct GatewayCore<E> {
    to: ChannelId,
    lanes: Box<[ForwardBuffer<E>]>,
    limits: QueueLimits,
    counts: GatewayCounts,
    state: LinkState,
    has_connected: bool,
    back_off: BackOff,
}

impl<E: CrossingEvent> GatewayCore<E> {
    /// Creates a gateway that is due to reach its channels at once. `lanes` is the number of
    /// buffers; 0 counts as 1.
    pub(super) fn new(lanes: usize, limits: QueueLimits, policy: ReconnectPolicy, seed: u64) -> Self {
        Self {
            to: 0,
            lanes: (0..lanes.max(1)).map(|_| ForwardBuffer::default()).collect(),
            limits,
            counts: GatewayCounts::default(),
            state: LinkState::Lost(0),
            has_connected: false,
            back_off: BackOff::new(policy, seed),
        }
    }

    /// Takes an event of the source, with this size in bytes, into the buffer of a lane, which
    /// drops events if it is full. Returns the lane; `None` if the gateway does not pass the event
    /// on.
    pub(super) fn receive(&mut self, lane: usize, mut event: E, bytes: usize) -> Option<usize> {
        self.counts.received += 1;
        match cross(event.ttl(), event.path(), self.to) {
            Ok(ttl) => event.set_ttl(ttl),
            Err(Held::TimeToLive) => {
                self.counts.ttl_expired += 1;
                return None;
            }
            Err(Held::Returned) => {
                self.counts.loops_stopped += 1;
                return None;
            }
        }
        let lane = lane.min(self.lanes.len() - 1);
        self.counts.dropped_buffer_full += self.lanes[lane].push(event, bytes, &self.limits);
        Some(lane)
    }

    /// Takes the next events of a lane to send, at most `max`; none if no event waits or the
    /// destination is lost. The caller answers with [`delivered`](Self::delivered) or
    /// [`failed`](Self::failed).
    pub(super) fn take(&mut self, lane: usize, max: usize) -> Vec<E> {
        match (self.state, self.lanes.get_mut(lane)) {
            (LinkState::Connected, Some(buffer)) => buffer.take(max.min(MAX_BATCH), MAX_BATCH_BYTES),
            _ => Vec::new(),
        }
    }

    /// Records that the destination has answered a batch of `sent` events.
    pub(super) fn delivered(&mut self, lane: usize, sent: usize, accepted: Accepted) {
        let sent = sent as u64;
        let duplicates = accepted.duplicates.min(sent);
        let refused = accepted.refused.min(sent - duplicates);
        self.counts.duplicates += duplicates;
        self.counts.dropped_by_destination += refused;
        self.counts.forwarded += sent - duplicates - refused;
        if let Some(buffer) = self.lanes.get_mut(lane) {
            buffer.delivered();
        }
    }

    /// Records that the destination has not answered a batch. Its events are sent again, before all
    /// others. A destination with an identity leaves out the events that it has already received.
    pub(super) fn failed(&mut self, lane: usize, batch: Vec<E>) {
        if let Some(buffer) = self.lanes.get_mut(lane) {
            buffer.put_back(batch);
        }
    }

    pub(super) fn connected(&mut self, to: ChannelId) {
        self.counts.reconnects += u64::from(self.has_connected);
        self.has_connected = true;
        self.to = to;
        self.state = LinkState::Connected;
        self.back_off.succeeded();
    }

    /// Records that the source is reached, or reached again.
    pub(super) fn source_reached(&mut self, is_again: bool) {
        self.counts.reconnects += u64::from(is_again);
    }

    pub(super) fn lost(&mut self, now: Nanos) {
        let delay = u64::try_from(self.back_off.next_delay().as_nanos()).unwrap_or(u64::MAX);
        self.state = LinkState::Lost(now.saturating_add(delay));
    }

    pub(super) const fn state(&self) -> LinkState {
        self.state
    }

    pub(super) fn counts(&self) -> GatewayCounts {
        let waiting = self.lanes.iter().map(|buffer| buffer.len() as u64).sum();
        GatewayCounts { waiting, ..self.counts }
    }

    pub(super) fn bytes(&self) -> usize {
        self.lanes.iter().map(ForwardBuffer::bytes).sum()
    }
}
