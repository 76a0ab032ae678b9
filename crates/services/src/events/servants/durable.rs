//! The servant of a durable channel: `CorelaneEvents::DurableChannel`.

use std::time::Duration;

use corelane::{Any, SystemException, SystemExceptionKind as Kind};
use corelane_sys::clock::Monotonic;

use super::cos::Channel;
use super::system;
use crate::events::channel::{SharedChannel, disconnected};
use crate::events::durable::{DurablePart, PublishFailure, StoredOctets};
use crate::events::gateway::passage::Passage;
use crate::events::idl::corelane_events::durable_channel::{AcknowledgeError, ForgetConsumerError};
use crate::events::idl::corelane_events::{DurableChannel, NoConsumer, NumberedEvent, StreamStatus};
use crate::events::idl::rtec_event_comm::Event;
use crate::events::router::PushRefusal;
use crate::events::stored::StoredEvent;

/// Maximum time for which `events_after` waits, even if the client asks for a longer wait.
const MAX_WAIT: Duration = Duration::from_secs(1);

impl Channel {
    fn part(&self) -> Result<&DurablePart, SystemException> {
        self.shared.durable.as_ref().ok_or_else(|| system(Kind::Internal, "the channel is not durable"))
    }

    fn publish_stored(&self, event: StoredEvent) -> Result<u64, SystemException> {
        self.shared.publish(self.part()?, None, event).map_err(|failure| match failure {
            PublishFailure::System(exception) => exception,
            PublishFailure::Push(PushRefusal::Header(error)) => system(Kind::BadParam, error.to_string()),
            PublishFailure::Push(_) => disconnected(),
        })
    }
}

fn numbered(stored: &StoredOctets) -> Result<NumberedEvent, SystemException> {
    let event = StoredEvent::event_of_octets(&stored.event);
    let (event, passage) =
        event.map_err(|error| system(Kind::Internal, format!("event {}: {error}", stored.number)))?;
    let Passage { path, number: path_number } = passage;
    Ok(NumberedEvent { number: stored.number, stored_at: stored.stored_at, path, path_number, event })
}

impl DurableChannel for Channel {
    fn publish(&self, value: &Any) -> Result<u64, SystemException> {
        let config = &self.shared.config;
        self.publish_stored(StoredEvent::of_value(value.clone(), &config.cos_events, SharedChannel::now()))
    }

    fn publish_event(&self, event: &Event) -> Result<u64, SystemException> {
        self.publish_stored(StoredEvent::new(event, SharedChannel::now()))
    }

    fn stream_status(&self) -> Result<StreamStatus, SystemException> {
        let part = self.part()?;
        let status = part.stream()?.status().ok_or_else(disconnected)?;
        Ok(StreamStatus {
            first: status.first,
            last: status.last,
            bytes: status.bytes,
            unstored: part.unstored().total(),
        })
    }

    fn events_after(&self, number: u64, max: u32, wait_ms: u32) -> Result<Vec<NumberedEvent>, SystemException> {
        let part = self.part()?;
        let stream = part.stream()?;
        if wait_ms > 0 {
            let wait = Duration::from_millis(wait_ms.into()).min(MAX_WAIT);
            part.with_waiting_reader(|| stream.wait_beyond(number, Monotonic::now() + wait));
        }
        let stored = {
            let _place = part.enter()?;
            stream.read_after(number, usize::try_from(max).unwrap_or(usize::MAX))?
        };
        let mut events = Vec::with_capacity(stored.len());
        for stored in &stored {
            match numbered(stored) {
                Ok(event) => events.push(event),
                // The events before an unreadable event are returned first.
                Err(_) if !events.is_empty() => break,
                Err(exception) => return Err(exception),
            }
        }
        Ok(events)
    }

    fn resume_consumer(&self, name: &str, start: u64) -> Result<u64, SystemException> {
        let part = self.part()?;
        let _place = part.enter()?;
        Ok(part.stream()?.resume(name, start)?)
    }

    fn acknowledge(&self, name: &str, number: u64) -> Result<(), AcknowledgeError> {
        let part = self.part()?;
        let _place = part.enter().map_err(SystemException::from)?;
        let acknowledged = part.stream().and_then(|stream| stream.acknowledge(name, number));
        acknowledged.map_err(|error| match error {
            error if error.is_unknown_consumer() => NoConsumer.into(),
            error => SystemException::from(error).into(),
        })
    }

    fn forget_consumer(&self, name: &str) -> Result<(), ForgetConsumerError> {
        let part = self.part()?;
        let _place = part.enter().map_err(SystemException::from)?;
        let forgotten = part.stream().and_then(|stream| stream.forget(name));
        forgotten.map_err(|error| match error {
            error if error.is_unknown_consumer() => NoConsumer.into(),
            error => SystemException::from(error).into(),
        })
    }
}
