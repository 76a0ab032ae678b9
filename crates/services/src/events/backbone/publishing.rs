//! The half of a bridge that publishes the events of a durable channel.
//!
//! The position is in the channel's store, as that of a named consumer. An event is acknowledged to
//! the store after the backbone keeps it, so each event is published at least once. The receiving
//! channel recognizes a copy by the identity of the event.

use std::time::Duration;

use corelane::SystemException;

use super::bridge::{BridgeCounts, message};
use super::{Backbone, BackboneError};
use crate::events::gateway::passage::{ChannelId, Held, cross};
use crate::events::gateway::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::events::idl::corelane_events::durable_channel::AcknowledgeError;
use crate::events::idl::corelane_events::{DurableChannelRef, FederatedChannelRef, NumberedEvent, PassingEvent};
use crate::events::stored;

pub(super) struct Publisher<B> {
    name: String,
    channel: FederatedChannelRef,
    source: DurableChannelRef,
    /// The connection to the backbone, and the backbone's identity.
    link: Option<(B, ChannelId)>,
    /// The number of the last event that the bridge has published, or left out because [`cross`]
    /// refuses it.
    position: Option<u64>,
    /// False if the channel may have been restarted or replaced since `position` was compared with
    /// the channel's last event.
    is_position_checked: bool,
    /// The channel's number. The path of each of the channel's own events begins with the number's
    /// [`stream_id`] and the number itself.
    number: ChannelId,
    max_batch: usize,
    pending: Option<PendingBatch>,
    pub(super) counts: BridgeCounts,
}

/// A batch of events whose publication the backbone has not confirmed.
struct PendingBatch {
    message: Vec<u8>,
    /// What the batch adds to the counts when the backbone keeps it. A batch may be made twice.
    counts: BridgeCounts,
    events: u64,
    last: u64,
}

/// Returns the identity to which the event numbers of a channel's store belong. It differs from the
/// channel's number, because events get other numbers when they go to gateways.
const fn stream_id(channel: ChannelId) -> ChannelId {
    let id = !channel.rotate_left(32);
    if id == 0 { 1 } else { id }
}

impl<B: Backbone> Publisher<B> {
    pub(super) fn new(name: &str, channel: FederatedChannelRef, source: DurableChannelRef) -> Self {
        Self {
            name: name.to_owned(),
            channel,
            source,
            link: None,
            position: None,
            is_position_checked: false,
            number: 0,
            max_batch: MAX_BATCH,
            pending: None,
            counts: BridgeCounts::default(),
        }
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.link.is_some() && self.is_position_checked
    }

    /// Publishes the next events; waits for at most the time `wait` if there are none. After an
    /// error, the next call tries again.
    pub(super) fn step(
        &mut self,
        connect: impl Fn() -> Result<B, BackboneError>,
        wait: Duration,
    ) -> Result<(), String> {
        if self.link.is_none() {
            let mut backbone = connect().map_err(message)?;
            let identity = backbone.identity().map_err(message)?;
            self.link = Some((backbone, identity));
        }
        if self.pending.is_none() {
            let read = self.read(wait);
            self.pending = read.inspect_err(|_| self.is_position_checked = false)?;
        }
        self.publish()
    }

    /// Sets and returns the position after which events are read: the higher one of `position` and
    /// the position in the channel's store, because the last acknowledgement may be lost. If the
    /// channel's last event is before `position`, a new channel has replaced the channel, and the
    /// store's position applies.
    fn check_position(&mut self) -> Result<u64, SystemException> {
        let acknowledged = self.source.resume_consumer(&self.name, 0)?;
        let last = self.source.stream_status()?.last;
        let position = match self.position {
            Some(position) if position <= last => position.max(acknowledged),
            _ => acknowledged,
        };
        if position > acknowledged {
            // The last acknowledgement was lost.
            match self.source.acknowledge(&self.name, position) {
                Err(AcknowledgeError::System(exception)) => return Err(exception),
                Ok(()) | Err(AcknowledgeError::NoConsumer(_)) => {}
            }
        }
        self.number = self.channel.channel_number()?;
        (self.position, self.is_position_checked) = (Some(position), true);
        Ok(position)
    }

    fn read(&mut self, wait: Duration) -> Result<Option<PendingBatch>, String> {
        let checked = self.position.filter(|_| self.is_position_checked);
        let position = checked.map_or_else(|| self.check_position(), Ok).map_err(message)?;
        let max = u32::try_from(self.max_batch).unwrap_or(u32::MAX);
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let stored = self.source.events_after(position, max, wait_ms).map_err(message)?;
        if stored.is_empty() {
            // If the last event is now before `position`, a new channel has replaced the channel.
            self.is_position_checked = self.source.stream_status().map_err(message)?.last >= position;
            return Ok(None);
        }
        let (mut events, mut last, mut bytes, mut counts) = (Vec::new(), position, 0, BridgeCounts::default());
        for numbered in stored.into_iter().take(self.max_batch) {
            if numbered.number <= last {
                return Err("the channel has returned events out of order".to_owned());
            }
            bytes += stored::size(&numbered.event.data);
            if last > position && bytes > MAX_BATCH_BYTES {
                break;
            }
            // A channel gives numbers without gaps, so missing numbers are those of deleted events.
            // A bridge with a new name, whose `last` is 0, begins with the first event kept.
            counts.deleted_events += if last == 0 { 0 } else { numbered.number - last - 1 };
            last = numbered.number;
            events.extend(self.crossing(numbered, &mut counts));
        }
        let count = events.len() as u64;
        let message = super::message::encode(&self.name, &events).map_err(message)?;
        Ok(Some(PendingBatch { message, counts, events: count, last }))
    }

    /// Returns the event for the backbone, with the backbone on its path and a decremented time to
    /// live. Counts the event and returns `None` if [`cross`] refuses it.
    fn crossing(&self, numbered: NumberedEvent, counts: &mut BridgeCounts) -> Option<PassingEvent> {
        let NumberedEvent { number, mut path, path_number, mut event, .. } = numbered;
        let is_own = path.is_empty();
        if is_own {
            path = vec![stream_id(self.number), self.number];
        }
        let backbone = self.link.as_ref()?.1;
        match cross(event.header.ttl, &path, backbone) {
            Ok(ttl) => event.header.ttl = ttl,
            Err(Held::TimeToLive) => {
                counts.ttl_expired += 1;
                return None;
            }
            Err(Held::Returned) => {
                counts.loops_stopped += 1;
                return None;
            }
        }
        path.push(backbone);
        Some(PassingEvent { path, number: if is_own { number } else { path_number }, lane: 0, event })
    }

    /// Publishes the pending batch, and acknowledges its events to the channel.
    fn publish(&mut self) -> Result<(), String> {
        let (Some((backbone, _)), Some(pending)) = (&mut self.link, &self.pending) else { return Ok(()) };
        let published = if pending.events == 0 { Ok(()) } else { backbone.publish(&pending.message) };
        match published {
            Ok(()) => {
                self.counts.published += pending.events;
                self.max_batch = MAX_BATCH;
            }
            Err(BackboneError::TooLarge) if self.max_batch > 1 => {
                // The events are read again, one at a time, so that only an event that is too large
                // by itself is dropped.
                (self.max_batch, self.pending) = (1, None);
                return Ok(());
            }
            Err(BackboneError::TooLarge) => self.counts.dropped_too_large += pending.events,
            Err(error) => {
                self.link = None;
                return Err(message(error));
            }
        }
        let last = pending.last;
        self.counts.add(&pending.counts);
        (self.position, self.pending) = (Some(last), None);
        match self.source.acknowledge(&self.name, last) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.is_position_checked = false;
                match error {
                    // `check_position` creates the consumer again.
                    AcknowledgeError::NoConsumer(_) => Ok(()),
                    AcknowledgeError::System(exception) => Err(message(exception)),
                }
            }
        }
    }
}
