//! The set of events that a consumer gets in one push.

use corelane_sched::task::Nanos;

use crate::events::counts::DropCounts;
use crate::events::header::EventType;
use crate::events::queue::LatestKey;
use crate::events::subscriptions::{Occurrence, Offered};

pub(in crate::events) trait RoutedEvent: Clone {
    fn bytes(&self) -> usize;
    fn key(&self) -> LatestKey;
    fn lane(&self) -> usize;
    /// Sets the event's lane. Must be called before the event is cloned.
    fn in_lane(self, lane: usize) -> Self;
    /// Returns a gap event that reports the drops `untold`, and all drops since the consumer was
    /// connected.
    fn gap(untold: &DropCounts, total: &DropCounts, now: Nanos) -> Self;
}

const TIMEOUT_BYTES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) enum DeliverySet<E> {
    One(Occurrence<E>),
    Several(Box<[Occurrence<E>]>),
}

impl<E: RoutedEvent> DeliverySet<E> {
    pub(super) fn of_offered(set: Offered<'_, E>) -> Self {
        match set {
            Offered::Only(event) => Self::One(event),
            Offered::Shared(set) => Self::of(set),
        }
    }

    pub(super) fn of(set: &[Occurrence<E>]) -> Self {
        match set {
            [one] => Self::One(one.clone()),
            several => Self::Several(several.into()),
        }
    }

    pub(in crate::events) fn as_slice(&self) -> &[Occurrence<E>] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |occurrence: &Occurrence<E>| match occurrence {
            Occurrence::Event(event) => event.bytes(),
            Occurrence::Timeout(_) => TIMEOUT_BYTES,
        };
        self.as_slice().iter().map(bytes).fold(0, usize::saturating_add)
    }

    pub(in crate::events) fn into_only_event(self) -> Option<E> {
        match self {
            Self::One(Occurrence::Event(event)) => Some(event),
            Self::One(Occurrence::Timeout(_)) | Self::Several(_) => None,
        }
    }

    pub(in crate::events) fn event_type(&self) -> i32 {
        match self.as_slice().first() {
            Some(Occurrence::Event(event)) => event.key().0,
            Some(Occurrence::Timeout(expiry)) => expiry.kind.event_type().0,
            None => EventType::ANY.0,
        }
    }

    /// Returns the lane of the set's most urgent event; the least urgent lane for a set of
    /// timeouts. In a channel with a schedule, a set of several events, of which one is for best
    /// effort, is in the least urgent lane, because its rate has no declared bound. `lanes` is the
    /// number of lanes.
    pub(super) fn urgency(&self, lanes: usize, is_scheduled: bool) -> usize {
        let lane = |occurrence: &Occurrence<E>| match occurrence {
            Occurrence::Event(event) => event.lane(),
            Occurrence::Timeout(_) => usize::MAX,
        };
        let last = lanes.saturating_sub(1);
        let most_urgent = self.as_slice().iter().map(lane).min().unwrap_or(usize::MAX).min(last);
        let is_last = |occurrence: &Occurrence<E>| matches!(occurrence, Occurrence::Event(it) if it.lane() >= last);
        match self {
            Self::Several(several) if is_scheduled && several.iter().any(is_last) => last,
            _ => most_urgent,
        }
    }

    pub(super) fn key(&self) -> Option<LatestKey> {
        match self {
            Self::One(Occurrence::Event(event)) => Some(event.key()),
            Self::One(Occurrence::Timeout(expiry)) => Some((expiry.kind.event_type().0, 0)),
            Self::Several(_) => None,
        }
    }
}
