//! Entry point for fuzzing: a function over bytes that must return for any input. It panics if the
//! code violates a property.

use super::{
    EventFilter, EventHeader, EventNames, EventSource, EventType, FilterBuilder, FilterLimits, SubscriptionLimits,
    Subscriptions,
};

pub use super::durable::fuzz::event_records;

const MAX_EVENTS: usize = 64;

/// Builds a filter from the input, and reads it again from its dependencies and from its
/// expression. Both must give the same filter, unless the input is long enough to nest too deeply.
/// The index must find the consumer if its filter accepts an event, and groups must hold no more
/// occurrences than the filter has nodes.
///
/// # Panics
/// If a property is violated.
pub fn event_filters(input: &[u8]) {
    let Some((settings, rest)) = input.split_first() else { return };
    let builder = if settings & 1 == 0 { FilterBuilder::Basic } else { FilterBuilder::Prefix };
    let limits = FilterLimits {
        max_depth: if settings & 2 == 0 { usize::MAX } else { 4 },
        min_period: if settings & 4 == 0 { 0 } else { 200 },
        ..FilterLimits::default()
    };
    let headers: Vec<EventHeader> = rest.chunks_exact(4).map(header).collect();
    let Ok(filter) = EventFilter::build(builder, &headers, &limits) else { return };
    let nodes = filter.nodes().len();
    assert!(nodes <= headers.len() + 1);
    // The filter's dependencies also name a group that is implicit in the input. So they may be
    // more, and nested more deeply, than those of the input.
    let wider = FilterLimits { max_depth: usize::MAX, max_dependencies: usize::MAX, ..limits };
    let is_deepest = FilterLimits::MAX_SUPPORTED_DEPTH <= headers.len();
    let again = EventFilter::build(FilterBuilder::Prefix, filter.dependencies().headers(), &wider);
    assert!(is_deepest || again.as_ref() == Ok(&filter));
    let read = EventFilter::parse(&filter.expression(&EventNames::new()), &EventNames::new(), &wider);
    assert!(is_deepest || read.as_ref() == Ok(&filter));

    let mut subscriptions = Subscriptions::new(SubscriptionLimits::default());
    let Ok(consumer) = subscriptions.add(filter.clone(), 0) else { return };
    let mut now = 0;
    for header in headers.iter().take(MAX_EVENTS) {
        now += header.creation_time.min(1 << 40);
        subscriptions.expire(now, |_, set| assert!(!set.is_empty() && set.len() <= nodes));
        let before = subscriptions.held_occurrence_count(consumer);
        let delivered = subscriptions.push(header, (), now, |_, set| assert!(!set.is_empty() && set.len() <= nodes));
        let has_changed =
            delivered.is_ok_and(|count| count > 0) || subscriptions.held_occurrence_count(consumer) != before;
        assert!(!has_changed || filter.accepts(header));
        assert!(subscriptions.held_occurrence_count(consumer).is_some_and(|held| held <= nodes));
        assert!(subscriptions.is_candidate(consumer, header) || !filter.accepts(header));
    }
    assert!(subscriptions.remove(consumer) && subscriptions.next_expiry().is_none());
}

fn header(octets: &[u8]) -> EventHeader {
    let octet = |index: usize| octets.get(index).copied().unwrap_or_default();
    let event_type = if octet(0) < 128 { i32::from(octet(0)) } else { i32::from(octet(0)) << (octet(0) & 31) };
    let creation_time = u64::from(octet(2)).checked_shl(u32::from(octet(3))).unwrap_or(u64::MAX);
    EventHeader {
        creation_time,
        ..EventHeader::new(EventType(event_type), EventSource(i32::from(octet(1).cast_signed())))
    }
}
