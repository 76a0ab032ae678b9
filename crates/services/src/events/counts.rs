//! The counts of a channel: what became of each set for each consumer.

use std::collections::BTreeMap;

use super::durable::UnstoredEvents;
use super::header::EventType;

/// Maximum number of types for which the drops of one consumer are counted separately. The drops of
/// further types are counted under the type 0.
const MAX_COUNTED_TYPES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropReason {
    QueueFull,
    Replaced,
    Expired,
    Suspended,
    Failed,
    Disconnected,
    Nested,
}

/// The number of sets that a consumer did not get, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// The queue was full.
    pub queue_full: u64,
    /// A newer set of the same type and source took the place of this set.
    pub replaced: u64,
    /// The set had outlived its lifetime when its turn came.
    pub expired: u64,
    /// The consumer had suspended its connection.
    pub suspended: u64,
    /// The call to the consumer failed. The consumer may nevertheless have received the set.
    pub failed: u64,
    /// The set was queued when the consumer was disconnected.
    pub disconnected: u64,
    /// The set was for a consumer that the supplier's thread calls, and the thread was in too many
    /// nested calls of such consumers.
    pub nesting_too_deep: u64,
}

impl DropCounts {
    /// Returns the sum over all reasons.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full
            + self.replaced
            + self.expired
            + self.suspended
            + self.failed
            + self.disconnected
            + self.nesting_too_deep
    }

    pub(super) const fn count(&mut self, reason: DropReason) {
        let count = match reason {
            DropReason::QueueFull => &mut self.queue_full,
            DropReason::Replaced => &mut self.replaced,
            DropReason::Expired => &mut self.expired,
            DropReason::Suspended => &mut self.suspended,
            DropReason::Failed => &mut self.failed,
            DropReason::Disconnected => &mut self.disconnected,
            DropReason::Nested => &mut self.nesting_too_deep,
        };
        *count += 1;
    }

    const fn add(&mut self, other: &Self) {
        self.queue_full += other.queue_full;
        self.replaced += other.replaced;
        self.expired += other.expired;
        self.suspended += other.suspended;
        self.failed += other.failed;
        self.disconnected += other.disconnected;
        self.nesting_too_deep += other.nesting_too_deep;
    }

    pub(super) const fn since(&self, earlier: &Self) -> Self {
        Self {
            queue_full: self.queue_full - earlier.queue_full,
            replaced: self.replaced - earlier.replaced,
            expired: self.expired - earlier.expired,
            suspended: self.suspended - earlier.suspended,
            failed: self.failed - earlier.failed,
            disconnected: self.disconnected - earlier.disconnected,
            nesting_too_deep: self.nesting_too_deep - earlier.nesting_too_deep,
        }
    }
}

/// The numbers of the sets for a consumer, by what became of them. Invariant: `routed` is
/// `delivered + queued + in_flight + dropped.total()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Sets that the consumer's filter has passed, and gap events.
    pub routed: u64,
    /// Sets whose call has succeeded, or that the consumer has pulled. A call to a consumer of
    /// TAO's Real-time Event Service in another process is oneway, and succeeds when the transport
    /// has the set.
    pub delivered: u64,
    /// Sets that wait in the consumer's queues.
    pub queued: u64,
    /// Sets whose call is running. A set that the supplier's thread delivers counts as delivered
    /// until its call fails.
    pub in_flight: u64,
    /// Sets that the consumer did not get.
    pub dropped: DropCounts,
}

impl DeliveryCounts {
    /// Returns true if `routed` is the sum of the other counts.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.routed == self.delivered + self.queued + self.in_flight + self.dropped.total()
    }

    pub(super) const fn add(&mut self, other: &Self) {
        self.routed += other.routed;
        self.delivered += other.delivered;
        self.queued += other.queued;
        self.in_flight += other.in_flight;
        self.dropped.add(&other.dropped);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct DropsByType(BTreeMap<i32, DropCounts>);

impl DropsByType {
    pub(super) fn count(&mut self, event_type: i32, reason: DropReason) {
        let has_room = self.0.len() < MAX_COUNTED_TYPES || self.0.contains_key(&event_type);
        let event_type = if has_room { event_type } else { EventType::ANY.0 };
        self.0.entry(event_type).or_default().count(reason);
    }

    pub(super) fn to_vec(&self) -> Vec<(EventType, DropCounts)> {
        self.0.iter().map(|(event_type, counts)| (EventType(*event_type), *counts)).collect()
    }
}

/// The queue of a consumer in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatistics {
    /// The number of the lane, from 0, the most urgent.
    pub lane: usize,
    /// The number of sets in the queue.
    pub delivery_sets: usize,
    /// The number of bytes of these sets.
    pub bytes: usize,
}

/// The counts of one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerStatistics {
    /// The number of the consumer's proxy. A proxy that was made later has a larger number.
    pub proxy_number: u64,
    /// The numbers of the consumer's sets.
    pub counts: DeliveryCounts,
    /// The drops by the type of the set's first event. At most 64 types are counted separately;
    /// the drops of other types are under [`EventType::ANY`].
    pub drops_by_type: Vec<(EventType, DropCounts)>,
    /// The queues of the consumer, of the most urgent lane first. A consumer that the supplier's
    /// thread calls has none.
    pub queues: Vec<QueueStatistics>,
    /// True while a queue of the consumer is paused, because the consumer did not answer.
    pub is_suspended: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChannelSummary {
    pub(super) published: u64,
    pub(super) refused: u64,
    pub(super) unpublished: u64,
    pub(super) surplus: SurplusCounts,
    pub(super) suppliers: usize,
    pub(super) consumers: usize,
    pub(super) sets: DeliveryCounts,
}

/// The events beyond the declarations of their suppliers, in a channel with a
/// [schedule](super::ChannelSchedule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SurplusCounts {
    /// Events that the channel has routed in the least urgent lane. They count as published too.
    pub best_effort: u64,
    /// Events that the channel has dropped. They do not count as published.
    pub dropped: u64,
    /// Connections that the schedule has refused.
    pub not_admitted: u64,
}

/// The counts of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelStatistics {
    /// Events that the channel has routed: pushed by suppliers, or published directly to a durable
    /// channel.
    pub published: u64,
    /// Events that the channel refused, because their header is invalid or their supplier is not
    /// connected.
    pub refused: u64,
    /// Events of a type and source that their supplier does not publish. They are not routed.
    pub undeclared: u64,
    /// Events beyond the declarations of their suppliers, and refused connections.
    pub surplus: SurplusCounts,
    /// The connected consumers.
    pub consumers: Vec<ConsumerStatistics>,
    /// Number of connected suppliers.
    pub suppliers: usize,
    /// The sum of the counts of all consumers that were disconnected.
    pub disconnected_consumers: DeliveryCounts,
    /// Events that suppliers pushed to a durable channel without acknowledgement, and that are not
    /// in its store.
    pub unstored: UnstoredEvents,
}

impl ChannelStatistics {
    /// Returns the sum of the counts of all consumers, connected or not.
    #[must_use]
    pub fn total(&self) -> DeliveryCounts {
        self.consumers.iter().fold(self.disconnected_consumers, |mut sum, consumer| {
            sum.add(&consumer.counts);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_too_many_types_are_counted_together() {
        let mut drops = DropsByType::default();
        for event_type in 100..200 {
            drops.count(event_type, DropReason::Expired);
        }
        drops.count(100, DropReason::QueueFull);
        let counted = drops.to_vec();
        assert!(counted.len() <= MAX_COUNTED_TYPES + 1);
        assert_eq!(counted[0].0, EventType::ANY);
        let sum: u64 = counted.iter().map(|(_, counts)| counts.total()).sum();
        assert_eq!((sum, counted[1].1.total()), (101, 2));
    }
}
