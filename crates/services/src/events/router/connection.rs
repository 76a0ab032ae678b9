//! The connections of a channel's proxies: a consumer with its queues and counts, a supplier with
//! its publications.

use std::sync::Arc;

use corelane_sched::task::Nanos;

use super::delivery_set::{DeliverySet, RoutedEvent};
use super::metering::DeclaredEvents;
use crate::events::counts::{ConsumerStatistics, DeliveryCounts, DropCounts, DropReason, DropsByType, QueueStatistics};
use crate::events::filter::EventFilter;
use crate::events::header::EventHeader;
use crate::events::health::ConsumerHealth;
use crate::events::queue::DeliveryQueue;
use crate::events::schedule::AdmittedConsumer;
use crate::events::subscriptions::{Occurrence, SubscriptionError};

/// The number of a proxy. A channel does not use a number again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::events) struct ProxyId(pub(in crate::events) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum Transfer {
    Direct,
    /// The senders of the consumer, a thread for each of its queues, call it.
    Queued,
    Pulled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum ConnectRefusal {
    NoProxy,
    AlreadyConnected,
    Full(SubscriptionError),
    TooManySenders(usize),
    TooManyPulledSuppliers(usize),
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::events) struct Disconnected<P> {
    /// The peers of the connection's queues, at least one. The caller wakes the senders and pullers
    /// of the queues.
    pub(in crate::events) peers: Vec<P>,
    /// True if the caller has to call the disconnect operation of the first peer.
    pub(in crate::events) is_called_back: bool,
}

#[derive(Debug)]
pub(in crate::events) struct NewConsumer<P> {
    /// The lane of each queue, the most urgent first, and the peer for it: one queue, or one for
    /// each lane of the channel. A direct consumer has one peer, and its queue stays empty.
    pub(in crate::events) queues: Vec<(usize, P)>,
    pub(in crate::events) transfer: Transfer,
    pub(in crate::events) filter: Arc<EventFilter>,
    pub(in crate::events) is_gateway: bool,
    pub(in crate::events) declared: Option<Box<AdmittedConsumer>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) struct Publication {
    pub(in crate::events) header: EventHeader,
    pub(in crate::events) lane: Option<usize>,
    pub(in crate::events) declared: Option<Box<DeclaredEvents>>,
}

#[derive(Debug)]
pub(in crate::events) struct SupplierConnection<P> {
    pub(in crate::events) peer: P,
    /// The events that the supplier may push; every event if the list is empty.
    pub(in crate::events) publications: Box<[Publication]>,
    pub(in crate::events) is_gateway: bool,
    pub(in crate::events) is_pulled: bool,
}

/// The peer of a queue, from which a router takes the turn, the right to send to the peer
/// ([`SendTurn`](crate::events::turn::SendTurn)).
pub(in crate::events) trait QueuePeer: Clone {
    /// Takes the turn, the right to send, for the calling thread if no thread has it, and returns
    /// true. Otherwise returns false: the queue's sender has the turn, or gets it from the thread
    /// that has it. Always returns false for a peer to which only its sender sends.
    fn take_turn(&self) -> bool;
    /// Gives the turn, the right to send, to the queue's sender: now, or when the thread that has
    /// the turn gives it back. Returns true if the caller has to wake the sender. Always returns
    /// true for a peer to which only its sender sends.
    fn call_sender(&self) -> bool;
    /// Passes the turn, the right to send, from the calling thread to the queue's sender.
    fn pass_turn(&self);
    /// Frees the turn, the right to send, before the queue's sender waits.
    fn free_turn(&self);
}

#[derive(Debug)]
pub(super) struct SenderQueue<E, P> {
    pub(super) lane: usize,
    pub(super) peer: P,
    pub(super) sets: DeliveryQueue<DeliverySet<E>>,
    pub(super) health: ConsumerHealth,
    pub(super) in_flight: Option<InFlight>,
    /// The set in flight, if another thread has left it to the sender.
    pub(super) handed_over: Option<Handover<E>>,
    /// True while the sender waits without a deadline. The right to send to the peer
    /// ([`SendTurn`](crate::events::turn::SendTurn)) is then free, or another thread has it.
    pub(super) is_sender_idle: bool,
    pub(super) has_sender_ended: bool,
}

/// A set that another thread could not send without waiting, and has left to the queue's sender.
#[derive(Debug)]
pub(in crate::events) enum Handover<E> {
    /// No byte was sent.
    Whole(DeliverySet<E>),
    /// A part was sent, and the connection has the rest.
    Rest,
}

#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) event_type: i32,
    /// The drops that a gap event reports; `None` for any other set.
    pub(super) gap: Option<Box<DropCounts>>,
}

#[derive(Debug)]
pub(super) struct Connection<E, P> {
    pub(super) proxy: ProxyId,
    pub(super) queues: Box<[SenderQueue<E, P>]>,
    pub(super) transfer: Transfer,
    pub(super) is_gateway: bool,
    pub(super) declared: Option<Box<AdmittedConsumer>>,
    pub(super) wanted: Box<[EventHeader]>,
    pub(super) is_suspended: bool,
    pub(super) wants_gaps: bool,
    pub(super) counts: DeliveryCounts,
    pub(super) drops_by_type: DropsByType,
    /// The drops that gap events have reported, or that a gap event whose call is running reports.
    /// If the call of a gap event fails, its drops count as not reported.
    pub(super) told: DropCounts,
    /// The total of `counts.dropped` when the call of a gap event last failed; `None` if a set has
    /// been sent since then.
    pub(super) dropped_at_failed_gap: Option<u64>,
    /// `Some` if the connection has ended, but not all its senders: true if the last sender calls
    /// the consumer back.
    pub(super) ending: Option<bool>,
}

impl<E: RoutedEvent, P: QueuePeer> Connection<E, P> {
    pub(super) fn count_drop(&mut self, event_type: i32, reason: DropReason) {
        self.counts.dropped.count(reason);
        self.drops_by_type.count(event_type, reason);
    }

    /// Returns true if the consumer asks for gap events, and has drops that no gap event has
    /// reported.
    pub(super) fn has_gap(&self) -> bool {
        self.wants_gaps && self.told != self.counts.dropped
    }

    /// Returns a gap event if one is due, with the drops that it reports, and counts it as routed.
    /// After a failed gap event, the next one waits until a set has been sent, or, if no set is
    /// queued, for a further drop. Without this wait, a consumer that refuses gap events would
    /// never get a set.
    pub(super) fn take_gap(&mut self, has_sets: bool, now: Nanos) -> Option<(DeliverySet<E>, Box<DropCounts>)> {
        if !self.has_gap() || self.is_suspended {
            return None;
        }
        if self.dropped_at_failed_gap.is_some_and(|total| has_sets || total == self.counts.dropped.total()) {
            return None;
        }
        let untold = self.counts.dropped.since(&self.told);
        self.told = self.counts.dropped;
        self.counts.routed += 1;
        Some((DeliverySet::One(Occurrence::Event(E::gap(&untold, &self.told, now))), Box::new(untold)))
    }

    /// Counts a set whose call has failed, so that the next gap event reports it. If the set is a
    /// gap event, the drops `gap` that it reported count as not reported.
    pub(super) fn count_failed(&mut self, event_type: i32, reason: DropReason, gap: Option<&DropCounts>) {
        self.count_drop(event_type, reason);
        if let Some(gap) = gap {
            self.told = self.told.since(gap);
            self.dropped_at_failed_gap = Some(self.counts.dropped.total());
        }
    }

    pub(super) fn peers(&self) -> Vec<P> {
        self.queues.iter().map(|queue| queue.peer.clone()).collect()
    }

    pub(super) fn statistics(&self, now: Nanos) -> ConsumerStatistics {
        let queue = |queue: &SenderQueue<E, P>| QueueStatistics {
            lane: queue.lane,
            delivery_sets: queue.sets.len(),
            bytes: queue.sets.bytes(),
        };
        let has_queues = self.transfer != Transfer::Direct;
        ConsumerStatistics {
            proxy_number: self.proxy.0,
            counts: DeliveryCounts { queued: self.queued(), ..self.counts },
            drops_by_type: self.drops_by_type.to_vec(),
            queues: self.queues.iter().filter(|_| has_queues).map(queue).collect(),
            is_suspended: self.queues.iter().any(|queue| queue.health.is_suspended(now)),
        }
    }

    pub(super) fn queued(&self) -> u64 {
        self.queues.iter().map(|queue| queue.sets.len() as u64).sum()
    }
}
