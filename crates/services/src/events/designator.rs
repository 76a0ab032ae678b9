//! The designators in the dependencies of a consumer, and sets of dependencies.

use corelane_sched::task::Nanos;

use super::header::{EventHeader, EventSource, EventType};

/// The unit of `TimeBase::TimeT` in nanoseconds.
pub(super) const TIME_UNIT: Nanos = 100;

/// The kind of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutKind {
    /// Expires once: `ACE_ES_EVENT_TIMEOUT`.
    Once,
    /// Expires once in every period: `ACE_ES_EVENT_INTERVAL_TIMEOUT`.
    Interval,
    /// Expires if the consumer gets nothing for a period: `ACE_ES_EVENT_DEADLINE_TIMEOUT`. Each
    /// delivery to the consumer starts the period again.
    Deadline,
}

impl TimeoutKind {
    /// Returns true if the timeout expires repeatedly.
    #[must_use]
    pub const fn is_periodic(self) -> bool {
        !matches!(self, Self::Once)
    }

    /// Returns the type of the event that the timeout delivers.
    #[must_use]
    pub const fn event_type(self) -> EventType {
        Designator::Timeout(self).event_type()
    }
}

/// The meaning of a dependency that is not a plain pair of type and source.
///
/// The number in parentheses is the designator's value in TAO's `Event_Service_Constants.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Designator {
    /// A timeout; `creation_time` is its delay or period (4, 5, 6).
    Timeout(TimeoutKind),
    /// The head of a group whose dependencies deliver independently of each other (7).
    Global,
    /// The head of a group that delivers one set when each child has accepted an event (8).
    Conjunction,
    /// The head of a group that offers an event to its children in order, until one accepts the
    /// event (9).
    Disjunction,
    /// Precedes a filter, and accepts the events that this filter rejects (10).
    Negation,
    /// The head of a group that delivers an event if all children accept it (11).
    LogicalAnd,
    /// Precedes masks and a filter, and accepts those events of the filter whose type and source
    /// each share a bit with their mask (12).
    Bitmask,
    /// Precedes masks and values, and accepts events whose masked type and source equal the values
    /// (13).
    MaskedType,
    /// Accepts every event (14).
    Null,
}

impl Designator {
    /// The value between the designators and the first application type. It has no meaning.
    pub(super) const UNASSIGNED: EventType = EventType(15);

    /// Returns the designator with this value; `None` if no designator has the value.
    #[must_use]
    pub const fn from_type(event_type: EventType) -> Option<Self> {
        Some(match event_type.0 {
            4 => Self::Timeout(TimeoutKind::Once),
            5 => Self::Timeout(TimeoutKind::Interval),
            6 => Self::Timeout(TimeoutKind::Deadline),
            7 => Self::Global,
            8 => Self::Conjunction,
            9 => Self::Disjunction,
            10 => Self::Negation,
            11 => Self::LogicalAnd,
            12 => Self::Bitmask,
            13 => Self::MaskedType,
            14 => Self::Null,
            _ => return None,
        })
    }

    /// Returns the designator's value, which a dependency has as its type.
    #[must_use]
    pub const fn event_type(self) -> EventType {
        EventType(match self {
            Self::Timeout(TimeoutKind::Once) => 4,
            Self::Timeout(TimeoutKind::Interval) => 5,
            Self::Timeout(TimeoutKind::Deadline) => 6,
            Self::Global => 7,
            Self::Conjunction => 8,
            Self::Disjunction => 9,
            Self::Negation => 10,
            Self::LogicalAnd => 11,
            Self::Bitmask => 12,
            Self::MaskedType => 13,
            Self::Null => 14,
        })
    }

    /// Returns true if the designator is the head of a group of dependencies.
    #[must_use]
    pub const fn is_group(self) -> bool {
        matches!(self, Self::Global | Self::Conjunction | Self::Disjunction | Self::LogicalAnd)
    }
}

/// The headers of a consumer's dependencies, in prefix order: each designator precedes the
/// dependencies to which it applies.
///
/// Each method that appends adds one node, as TAO's `ACE_ConsumerQOS_Factory` does, and checks
/// nothing; [`EventFilter::build`](super::EventFilter::build) checks the set.
///
/// ```
/// use corelane_services::events::{DependencySet, EventSource, EventType};
///
/// let inertial = EventType(16);
/// let position = EventType(17);
/// let both = DependencySet::new()
///     .conjunction(2)
///     .event(inertial, EventSource::ANY)
///     .event(position, EventSource::ANY);
/// assert_eq!(both.headers().len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DependencySet {
    headers: Vec<EventHeader>,
}

impl DependencySet {
    /// Returns an empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { headers: Vec::new() }
    }

    /// Returns the headers of the dependencies.
    #[must_use]
    pub fn headers(&self) -> &[EventHeader] {
        &self.headers
    }

    /// Appends a type and a source. A type of 0 matches every type, and a source of 0 matches every
    /// source.
    #[must_use]
    pub fn event(self, event_type: EventType, source: EventSource) -> Self {
        self.with(EventHeader::new(event_type, source))
    }

    /// Appends a timeout with this delay or period in units of 100 ns.
    #[must_use]
    pub fn timeout(self, kind: TimeoutKind, delay: u64) -> Self {
        let header = EventHeader::new(kind.event_type(), EventSource::ANY);
        self.with(EventHeader { creation_time: delay, ..header })
    }

    /// Appends the head of a global group: the dependencies after it deliver independently of each
    /// other.
    #[must_use]
    pub fn global(self) -> Self {
        self.group(Designator::Global, 0)
    }

    /// Appends the head of a conjunction of this number of filters.
    #[must_use]
    pub fn conjunction(self, children: i32) -> Self {
        self.group(Designator::Conjunction, children)
    }

    /// Appends the head of a disjunction of this number of filters.
    #[must_use]
    pub fn disjunction(self, children: i32) -> Self {
        self.group(Designator::Disjunction, children)
    }

    /// Appends the head of a logical "and" of this number of filters.
    #[must_use]
    pub fn logical_and(self, children: i32) -> Self {
        self.group(Designator::LogicalAnd, children)
    }

    /// Appends the negation of the filter that is appended next.
    #[must_use]
    pub fn negation(self) -> Self {
        self.group(Designator::Negation, 0)
    }

    /// Appends masks for the filter that is appended next.
    #[must_use]
    pub fn bitmask(self, source_mask: i32, type_mask: i32) -> Self {
        self.group(Designator::Bitmask, 0).event(EventType(type_mask), EventSource(source_mask))
    }

    /// Appends masks, and the values that the masked source and type must have.
    #[must_use]
    pub fn masked_type(self, source_mask: i32, type_mask: i32, source: i32, event_type: i32) -> Self {
        self.group(Designator::MaskedType, 0)
            .event(EventType(type_mask), EventSource(source_mask))
            .event(EventType(event_type), EventSource(source))
    }

    /// Appends a filter that accepts every event.
    #[must_use]
    pub fn every_event(self) -> Self {
        self.group(Designator::Null, 0)
    }

    fn group(self, designator: Designator, children: i32) -> Self {
        self.with(EventHeader::new(designator.event_type(), EventSource(children)))
    }

    fn with(mut self, header: EventHeader) -> Self {
        self.headers.push(header);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designators_have_the_values_from_4_to_14() {
        let designators: Vec<i32> =
            (-20..40).filter(|value| Designator::from_type(EventType(*value)).is_some()).collect();
        assert_eq!(designators, (4..15).collect::<Vec<_>>());
        for value in designators {
            let designator = Designator::from_type(EventType(value)).unwrap();
            assert_eq!(designator.event_type(), EventType(value));
        }
    }
}
