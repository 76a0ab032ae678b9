//! The half of a bridge that delivers the events of other bridges to its channel.
//!
//! A message is acknowledged to the backbone after the channel has taken its events, so each event
//! is delivered at least once. The channel recognizes an event that it has received before.

use std::time::Duration;

use corelane::{SystemException, SystemExceptionKind as Kind};

use super::bridge::{BridgeCounts, message};
use super::message::{EventBatch, decode};
use super::{Backbone, BackboneError};
use crate::events::gateway::MAX_BATCH;
use crate::events::idl::corelane_events::{AcceptedEvents, FederatedChannelRef, PassingEvent};

/// Returns true if the exception is about the events of a call. Every other one may be about the
/// channel or the call, so the events are sent again.
fn is_refusal(exception: &SystemException) -> bool {
    matches!(exception.kind(), Kind::Marshal | Kind::BadParam | Kind::DataConversion)
}

pub(super) struct Deliverer<B> {
    name: String,
    first: u64,
    channel: FederatedChannelRef,
    link: Option<B>,
    is_channel_lost: bool,
    /// The lowest sequence number that the next new message can have.
    next_sequence: u64,
    /// Maximum number of events in a call. It is 1 after the channel has refused several together.
    max_batch: usize,
    /// The events of the received message that the channel has not taken.
    held: Option<Vec<PassingEvent>>,
    pub(super) counts: BridgeCounts,
}

impl<B: Backbone> Deliverer<B> {
    pub(super) fn new(name: &str, first: u64, channel: FederatedChannelRef) -> Self {
        Self {
            name: name.to_owned(),
            first,
            channel,
            link: None,
            is_channel_lost: false,
            next_sequence: 0,
            max_batch: MAX_BATCH,
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
            let next = backbone.subscribe(&self.name, self.first).map_err(message)?;
            self.next_sequence = self.next_sequence.max(next);
            self.link = Some(backbone);
        }
        if self.held.is_none() {
            let received = self.with_link(|backbone| backbone.receive(wait))?;
            let Some(received) = received else { return Ok(()) };
            self.counts.deleted_messages += received.sequence.saturating_sub(self.next_sequence);
            self.next_sequence = self.next_sequence.max(received.sequence.saturating_add(1));
            self.held = Some(self.events_of(&received.octets));
        }
        while let Some(events) = self.held.as_mut().filter(|events| !events.is_empty()) {
            let batch = &events[..events.len().min(self.max_batch)];
            let sent = batch.len();
            let taken = match self.channel.accept(batch) {
                Err(exception) if is_refusal(&exception) && sent > 1 => {
                    // The channel may refuse only one of the events, so each is sent alone.
                    self.max_batch = 1;
                    continue;
                }
                Err(exception) if is_refusal(&exception) => Ok(AcceptedEvents { duplicates: 0, refused: 1 }),
                taken => taken,
            };
            self.is_channel_lost = taken.is_err();
            let AcceptedEvents { duplicates, refused } = taken.map_err(message)?;
            let (duplicates, refused) = (u64::from(duplicates), u64::from(refused));
            self.counts.duplicates += duplicates;
            self.counts.refused += refused;
            self.counts.delivered += (sent as u64).saturating_sub(duplicates + refused);
            events.drain(..sent);
        }
        self.with_link(Backbone::acknowledge)?;
        (self.held, self.max_batch) = (None, MAX_BATCH);
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
