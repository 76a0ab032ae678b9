//! The counts of a channel: what became of each set for each consumer.

/// The number of sets that a consumer did not get, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// The queue was full.
    pub queue_full: u64,
    /// A newer set of the same type and source took the place of this set.
    pub replaced: u64,
    /// The consumer had suspended its connection.
    pub suspended: u64,
    /// The call of the consumer failed. The consumer may have got the set all the same.
    pub failed: u64,
    /// The set was queued when the consumer was disconnected.
    pub disconnected: u64,
    /// A consumer pushed in its own push, more deeply than the channel permits.
    pub nested: u64,
}

impl DropCounts {
    /// Returns the sum over all reasons.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full + self.replaced + self.suspended + self.failed + self.disconnected + self.nested
    }
}

/// The fates of the sets for a consumer.
///
/// `routed` is always `delivered + queued + in_flight + dropped.total()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Sets that the consumer's filter has passed.
    pub routed: u64,
    /// Sets whose call has succeeded. A call of an Rtec consumer is oneway, and succeeds when the
    /// transport has the event.
    pub delivered: u64,
    /// Sets that wait in the consumer's queue.
    pub queued: u64,
    /// Sets whose call is running: 0 or 1, more for all consumers together.
    pub in_flight: u64,
    /// Sets that the consumer did not get.
    pub dropped: DropCounts,
}

impl DeliveryCounts {
    /// Returns true if the counts say of each routed set what became of it.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.routed == self.delivered + self.queued + self.in_flight + self.dropped.total()
    }

    /// Adds the counts of another consumer.
    pub(super) const fn add(&mut self, other: &Self) {
        self.routed += other.routed;
        self.delivered += other.delivered;
        self.queued += other.queued;
        self.in_flight += other.in_flight;
        self.dropped.queue_full += other.dropped.queue_full;
        self.dropped.replaced += other.dropped.replaced;
        self.dropped.suspended += other.dropped.suspended;
        self.dropped.failed += other.dropped.failed;
        self.dropped.disconnected += other.dropped.disconnected;
        self.dropped.nested += other.dropped.nested;
    }
}

/// The counts of one consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerStatistics {
    /// The number of the consumer's proxy, in the order in which proxies were made.
    pub proxy: u64,
    /// The fates of the consumer's sets.
    pub counts: DeliveryCounts,
    /// The consumer does not answer, and the channel sends it nothing for some time.
    pub is_suspended: bool,
}

/// The counts of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelStatistics {
    /// Events that suppliers have pushed and the channel has routed.
    pub published: u64,
    /// Events that the channel refused, because their header is invalid or their supplier is not
    /// connected.
    pub refused: u64,
    /// Events of a type and source that their supplier does not publish. They are not routed.
    pub unpublished: u64,
    /// The connected consumers.
    pub consumers: Vec<ConsumerStatistics>,
    /// Number of connected suppliers.
    pub suppliers: usize,
    /// The sum of the counts of all consumers that were disconnected.
    pub departed: DeliveryCounts,
}

impl ChannelStatistics {
    /// Returns the sum of the counts of all consumers, connected or not.
    #[must_use]
    pub fn total(&self) -> DeliveryCounts {
        self.consumers.iter().fold(self.departed, |mut sum, consumer| {
            sum.add(&consumer.counts);
            sum
        })
    }
}
