//! The half of a bridge that delivers the events of other bridges to its channel.
//!
//! A message is acknowledged to the backbone after the channel has taken its events, so each event
//! is delivered at least once. The channel recognizes an event that it has received before.

use std::time::Duration;

use super::bridge::{BridgeCounts, message};
use super::message::{EventBatch, decode};
use super::{Backbone, BackboneError};
use crate::events::gateway::{LaneEnd, MAX_BATCH};
use crate::events::idl::corelane_events::{FederatedChannelRef, PassingEvent};

pub(super) struct Deliverer<B> {
    name: String,
    first: u64,
    channel: LaneEnd,
    link: Option<B>,
    is_channel_lost: bool,
    /// The highest sequence number of a received message. If the next number leaves a gap, the
    /// backbone has deleted messages.
    last_sequence: Option<u64>,
    /// The events of the received message that the channel has not taken.
    held: Option<Vec<PassingEvent>>,
    pub(super) counts: BridgeCounts,
}

impl<B: Backbone> Deliverer<B> {
    pub(super) fn new(name: &str, first: u64, channel: FederatedChannelRef) -> Self {
        Self {
            name: name.to_owned(),
            first,
            channel: LaneEnd::Federated(channel),
            link: None,
            is_channel_lost: false,
            last_sequence: None,
            held: None,
            counts: BridgeCounts::default(),
        }
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.link.is_some() && !self.is_channel_lost
    }

    /// Delivers the next message; waits for at most the time `wait` if there is none. After an
    /// error, the next call tries again.
    pub(super) fn step(
        &mut self,
        connect: impl Fn() -> Result<B, BackboneError>,
        wait: Duration,
    ) -> Result<(), String> {
        if self.link.is_none() {
            let mut backbone = connect().map_err(message)?;
            backbone.subscribe(&self.name, self.first).map_err(message)?;
            self.link = Some(backbone);
        }
        if self.held.is_none() {
            let received = self.with_link(|backbone| backbone.receive(wait))?;
            let Some(received) = received else { return Ok(()) };
            let expected = self.last_sequence.map_or(received.sequence, |last| last + 1);
            self.counts.deleted_messages += received.sequence.saturating_sub(expected);
            self.last_sequence = self.last_sequence.max(Some(received.sequence));
            self.held = Some(self.events_of(&received.octets));
        }
        while let Some(events) = self.held.as_mut().filter(|events| !events.is_empty()) {
            let batch = &events[..events.len().min(MAX_BATCH)];
            let sent = batch.len();
            let taken = self.channel.send(batch);
            self.is_channel_lost = taken.is_err();
            let accepted = taken.map_err(message)?;
            self.counts.duplicates += accepted.duplicates;
            self.counts.refused += accepted.refused;
            self.counts.delivered += (sent as u64).saturating_sub(accepted.duplicates + accepted.refused);
            events.drain(..sent);
        }
        self.with_link(Backbone::acknowledge)?;
        self.held = None;
        Ok(())
    }

    /// Makes a call to the backbone. After an error, drops the connection and the received message,
    /// which the backbone then delivers again.
    fn with_link<R>(&mut self, call: impl FnOnce(&mut B) -> Result<R, BackboneError>) -> Result<R, String> {
        let backbone = self.link.as_mut().ok_or("the backbone is lost")?;
        call(backbone).map_err(|error| {
            (self.link, self.held) = (None, None);
            message(error)
        })
    }

    /// Returns the events of other bridges in a message.
    fn events_of(&mut self, octets: &[u8]) -> Vec<PassingEvent> {
        match decode(octets) {
            None => {
                self.counts.unreadable += 1;
                Vec::new()
            }
            Some(EventBatch { publisher, .. }) if publisher == self.name => Vec::new(),
            Some(EventBatch { events, .. }) => events,
        }
    }
}
