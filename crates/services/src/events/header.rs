//! The header of an event, as in TAO's `RtecEventComm::EventHeader`.

use std::fmt;

/// The type of an event: `RtecEventComm::EventType`.
///
/// The values from 4 to 14 are designators in a filter ([`Designator`](super::Designator)). An
/// event may have any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(pub i32);

impl EventType {
    /// Matches every type, in a filter and in an event: `ACE_ES_EVENT_ANY`.
    pub const ANY: Self = Self(0);
    /// Announces the end of a supplier: `ACE_ES_EVENT_SHUTDOWN`.
    pub const SHUTDOWN: Self = Self(1);
    /// `ACE_ES_EVENT_ACT`, which TAO reserves and gives no meaning.
    pub const ACT: Self = Self(2);
    /// `ACE_ES_EVENT_NOTIFICATION`, which TAO reserves and gives no meaning. Here it is the type of
    /// gap events, which tell a consumer that it has not received all events.
    pub const GAP: Self = Self(3);
    /// The first type for applications: `ACE_ES_EVENT_UNDEFINED`.
    pub const FIRST_APPLICATION: Self = Self(16);
}

/// The source of an event: `RtecEventComm::EventSourceID`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventSource(pub i32);

impl EventSource {
    /// Matches every source, in a filter and in an event: `ACE_ES_EVENT_SOURCE_ANY`.
    pub const ANY: Self = Self(0);
}

/// The header of an event, without the time stamps that a channel adds.
///
/// A dependency of a consumer has the same structure ([`DependencySet`](super::DependencySet)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventHeader {
    /// The type of the event.
    pub event_type: EventType,
    /// The source of the event.
    pub source: EventSource,
    /// The number of gateways that may still forward the event: 0 or more.
    pub ttl: i32,
    /// The time at which the supplier created the event, in units of 100 ns. In a dependency: the
    /// delay or period of a timeout.
    pub creation_time: u64,
}

impl EventHeader {
    /// Returns the header of an event with this type and source. Its other fields are 0.
    #[must_use]
    pub const fn new(event_type: EventType, source: EventSource) -> Self {
        Self { event_type, source, ttl: 0, creation_time: 0 }
    }

    /// Checks the header of an event that a supplier pushes.
    ///
    /// # Errors
    /// [`EventHeaderError::NegativeTtl`] if the time to live is below 0.
    pub const fn check(&self) -> Result<(), EventHeaderError> {
        if self.ttl < 0 { Err(EventHeaderError::NegativeTtl(self.ttl)) } else { Ok(()) }
    }
}

/// The reason why an event is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventHeaderError {
    /// The event has this time to live, which is below 0.
    NegativeTtl(i32),
}

impl fmt::Display for EventHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegativeTtl(ttl) => write!(f, "the event's time to live is {ttl}; it must be 0 or more"),
        }
    }
}

impl std::error::Error for EventHeaderError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_time_to_live_is_refused() {
        let header = EventHeader::new(EventType::FIRST_APPLICATION, EventSource::ANY);
        assert_eq!(header.check(), Ok(()));
        assert_eq!(EventHeader { ttl: i32::MAX, ..header }.check(), Ok(()));
        assert_eq!(EventHeader { ttl: -1, ..header }.check(), Err(EventHeaderError::NegativeTtl(-1)));
    }
}
