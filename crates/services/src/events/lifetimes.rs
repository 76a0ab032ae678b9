//! The lifetimes of events: how long they wait for a consumer before they are dropped.

use std::collections::HashMap;
use std::time::Duration;

use corelane_sched::task::Nanos;

use super::header::EventType;
use super::router::RoutedEvent;
use super::subscriptions::Occurrence;

/// The lifetimes of the events in the queues of a channel, counted from the time at which the
/// channel received the last event of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventLifetimes {
    /// The lifetime of the types that are not in `by_type`; `None` means without end.
    pub(super) default: Option<Duration>,
    pub(super) by_type: HashMap<EventType, Duration>,
}

impl EventLifetimes {
    /// Returns the time at which a set expires. A set lives as long as its event with the longest
    /// lifetime.
    pub(super) fn end<E: RoutedEvent>(&self, set: &[Occurrence<E>], now: Nanos) -> Nanos {
        if self.default.is_none() && self.by_type.is_empty() {
            return Nanos::MAX;
        }
        let lifetime = |occurrence: &Occurrence<E>| {
            let event_type = match occurrence {
                Occurrence::Event(event) => EventType(event.key().0),
                Occurrence::Timeout(expiry) => expiry.kind.event_type(),
            };
            let lifetime = self.by_type.get(&event_type).copied().or(self.default);
            lifetime.and_then(|lifetime| u64::try_from(lifetime.as_nanos()).ok()).unwrap_or(Nanos::MAX)
        };
        now.saturating_add(set.iter().map(lifetime).max().unwrap_or(Nanos::MAX))
    }
}
