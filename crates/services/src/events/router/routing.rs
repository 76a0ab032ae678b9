//! Routes events and timeouts to the queues and direct calls of the consumers.

use corelane_sched::task::Nanos;

use super::connection::{Connection, Disconnected, ProxyId, QueuePeer, SenderQueue, SupplierConnection, Transfer};
use super::delivery_set::{DeliverySet, RoutedEvent};
use super::{Connections, Router, RouterConfig, SenderId};
use crate::events::counts::{DropCounts, DropReason};
use crate::events::header::{EventHeader, EventHeaderError};
use crate::events::health::NextCall;
use crate::events::queue::QueuedSet;
use crate::events::subscriptions::ConsumerId;

/// Maximum size in bytes of a set that the supplier's thread sends itself.
const MAX_IMMEDIATE_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(in crate::events) struct Routed<E, P> {
    /// The direct consumers to call, in this order. The caller reports a failure with
    /// [`Router::direct_failed`].
    pub(in crate::events) direct: Vec<DirectDelivery<E, P>>,
    /// The sets that the caller sends as far as possible without waiting, in this order. The
    /// calling thread has the right to send to each of these peers
    /// ([`SendTurn`](crate::events::turn::SendTurn)).
    pub(in crate::events) immediate: Vec<ImmediateDelivery<E, P>>,
    /// The peers to wake, because their sender or pullers may wait for a set.
    pub(in crate::events) wake: Vec<P>,
    /// The consumers that [`Disconnect`](crate::events::OverflowPolicy::Disconnect) has
    /// disconnected, with their removed proxies.
    pub(in crate::events) disconnected: Vec<(ProxyId, Disconnected<P>)>,
    overflowed: Vec<ConsumerId>,
}

impl<E, P> Default for Routed<E, P> {
    fn default() -> Self {
        Self {
            direct: Vec::new(),
            immediate: Vec::new(),
            wake: Vec::new(),
            disconnected: Vec::new(),
            overflowed: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(in crate::events) struct DirectDelivery<E, P> {
    pub(in crate::events) consumer: ConsumerId,
    pub(in crate::events) peer: P,
    pub(in crate::events) set: DeliverySet<E>,
    gap: Option<Box<DropCounts>>,
}

/// A set that counts as delivered unless [`Router::hand_over`] or [`Router::immediate_failed`] is
/// called for it.
#[derive(Debug)]
pub(in crate::events) struct ImmediateDelivery<E, P> {
    pub(in crate::events) sender: SenderId,
    pub(in crate::events) peer: P,
    pub(in crate::events) set: DeliverySet<E>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum PushRefusal {
    NoProxy,
    NotConnected,
    Header(EventHeaderError),
}

impl<E: RoutedEvent, P: QueuePeer> Router<E, P> {
    pub(in crate::events) fn push(
        &mut self,
        supplier: ProxyId,
        header: &EventHeader,
        event: E,
        now: Nanos,
        routed: &mut Routed<E, P>,
    ) -> Result<(), PushRefusal> {
        let proxy = supplier;
        let checked = match self.suppliers.get(&supplier) {
            None => Err(PushRefusal::NoProxy),
            Some(None) => Err(PushRefusal::NotConnected),
            Some(Some(supplier)) => header.check().map_err(PushRefusal::Header).map(|()| supplier),
        };
        let supplier = match checked {
            Ok(supplier) => supplier,
            Err(refusal) => {
                self.refused += 1;
                return Err(refusal);
            }
        };
        let Some(mut lane) = lane(supplier, header, &self.config) else {
            self.unpublished += 1;
            return Ok(());
        };
        if self.config.surplus.is_some() {
            let Some(metered) = self.metered_lane(proxy, header, event.bytes(), now) else { return Ok(()) };
            lane = metered;
        }
        self.published += 1;
        let Self { subscriptions, connections, config, .. } = self;
        let event = event.in_lane(lane);
        let least_urgent = config.lanes.saturating_sub(1);
        // Without this rule, a held best-effort event would move the whole set, with its declared
        // events, to the least urgent lane.
        let outranks = |event: &E, held: &E| {
            config.surplus.is_some() && event.lane() < least_urgent && held.lane() >= least_urgent
        };
        let result = subscriptions.push_owned(header, event, now, &outranks, |id, set| {
            route(connections, config, id, DeliverySet::of_offered(set), now, routed);
        });
        self.disconnect_overflowed(routed);
        result.map(drop).map_err(PushRefusal::Header)
    }

    /// Routes an event that has no supplier, because a client has published it directly to a
    /// durable channel.
    pub(in crate::events) fn publish(
        &mut self,
        header: &EventHeader,
        event: E,
        now: Nanos,
        routed: &mut Routed<E, P>,
    ) -> Result<(), PushRefusal> {
        if let Err(error) = header.check() {
            self.refused += 1;
            return Err(PushRefusal::Header(error));
        }
        self.published += 1;
        let Self { subscriptions, connections, config, .. } = self;
        let least_urgent = config.lanes.saturating_sub(1);
        let lane = if config.surplus.is_some() { least_urgent } else { lane_of_type(header, config) };
        let event = event.in_lane(lane);
        let result = subscriptions.push_owned(header, event, now, &|_, _| false, |id, set| {
            route(connections, config, id, DeliverySet::of_offered(set), now, routed);
        });
        self.disconnect_overflowed(routed);
        result.map(drop).map_err(PushRefusal::Header)
    }

    pub(in crate::events) fn published(&self) -> u64 {
        self.published
    }

    pub(in crate::events) fn expire(&mut self, now: Nanos, routed: &mut Routed<E, P>) {
        let Self { subscriptions, connections, config, .. } = self;
        subscriptions.expire(now, |id, set| route(connections, config, id, DeliverySet::of(set), now, routed));
        self.disconnect_overflowed(routed);
    }

    fn disconnect_overflowed(&mut self, routed: &mut Routed<E, P>) {
        while let Some(id) = routed.overflowed.pop() {
            let Some(proxy) = self.connections.get(&id).map(|connection| connection.proxy) else { continue };
            if let Some(Some(disconnected)) = self.remove_consumer(proxy, true) {
                routed.disconnected.push((proxy, disconnected));
            }
        }
    }

    pub(in crate::events) fn next_expiry(&self) -> Option<Nanos> {
        self.subscriptions.next_expiry()
    }

    /// Counts a set as dropped that a direct consumer did not get. `is_nested` is true if the
    /// consumer was not called at all. If `is_gone`, removes the consumer's proxy and returns it.
    pub(in crate::events) fn direct_failed(
        &mut self,
        delivery: &DirectDelivery<E, P>,
        is_nested: bool,
        is_gone: bool,
    ) -> Option<ProxyId> {
        let reason = if is_nested { DropReason::Nested } else { DropReason::Failed };
        let Some(connection) = self.connections.get_mut(&delivery.consumer) else {
            // The counts of a consumer that was disconnected during its push are in `departed`.
            self.departed.delivered = self.departed.delivered.saturating_sub(1);
            self.departed.dropped.count(reason);
            return None;
        };
        connection.counts.delivered = connection.counts.delivered.saturating_sub(1);
        connection.count_failed(delivery.set.event_type(), reason, delivery.gap.as_deref());
        let proxy = connection.proxy;
        is_gone.then(|| {
            self.remove_consumer(proxy, false);
            proxy
        })
    }
}

/// Returns the lane of an event of a supplier: the most urgent lane of the publications that match
/// the event, or else the lane of the event's type, or else the least urgent lane. Returns `None`
/// if the supplier does not publish the event. 0 matches everything on both sides.
fn lane<P>(supplier: &SupplierConnection<P>, event: &EventHeader, config: &RouterConfig) -> Option<usize> {
    let matches = |published: i32, found: i32| published == 0 || found == 0 || published == found;
    let mut matching = supplier.publications.iter().filter(|publication| {
        matches(publication.header.event_type.0, event.event_type.0)
            && matches(publication.header.source.0, event.source.0)
    });
    let first = matching.next();
    if first.is_none() && !supplier.publications.is_empty() {
        return None;
    }
    let named = first.into_iter().chain(matching).filter_map(|publication| publication.lane).min();
    Some(named.unwrap_or_else(|| lane_of_type(event, config)))
}

fn lane_of_type(event: &EventHeader, config: &RouterConfig) -> usize {
    let of_type = config.lane_of_type.get(&event.event_type.0).copied();
    of_type.unwrap_or(config.lanes.saturating_sub(1))
}

/// Counts a set, and queues it for its consumer or adds it to the direct or immediate deliveries.
/// Drops a set for a suspended connection.
fn route<E: RoutedEvent, P: QueuePeer>(
    connections: &mut Connections<E, P>,
    config: &RouterConfig,
    id: ConsumerId,
    set: DeliverySet<E>,
    now: Nanos,
    routed: &mut Routed<E, P>,
) {
    let Some(connection) = connections.get_mut(&id) else { return };
    connection.counts.routed += 1;
    if connection.is_suspended {
        connection.count_drop(set.event_type(), DropReason::Suspended);
        return;
    }
    if connection.transfer == Transfer::Direct {
        // A set follows each gap event, so a gap event needs no delay after a failed gap event.
        connection.dropped_at_failed_gap = None;
        let gap = connection.take_gap(true, now);
        let Connection { queues, counts, .. } = connection;
        let Some(peer) = queues.first().map(|queue| &queue.peer) else { return };
        let mut deliver = |set, gap| {
            counts.delivered += 1;
            routed.direct.push(DirectDelivery { consumer: id, peer: peer.clone(), set, gap });
        };
        if let Some((set, gap)) = gap {
            deliver(set, Some(gap));
        }
        deliver(set, None);
        return;
    }
    let has_gap = connection.has_gap();
    let Connection { queues, counts, drops_by_type, transfer, .. } = connection;
    let urgency = set.urgency(config.lanes, config.surplus.is_some());
    // The queue of the set's lane, or the only queue.
    let at = queues.iter().position(|queue| queue.lane == urgency).filter(|_| queues.len() > 1).unwrap_or(0);
    let Some(queue) = queues.get_mut(at) else { return };
    let (bytes, key, event_type) = (set.bytes(), set.key(), set.event_type());
    let expires_at = config.lifetimes.end(set.as_slice(), now);
    let is_small = bytes <= MAX_IMMEDIATE_BYTES;
    let fits = config.queue.max_delivery_sets > 0 && bytes <= config.queue.max_bytes && expires_at > now;
    if *transfer == Transfer::Queued
        && fits
        && is_small
        && !has_gap
        && queue.may_skip(config, now)
        && queue.peer.take_turn()
    {
        counts.delivered += 1;
        let sender = SenderId { consumer: id, queue: at };
        routed.immediate.push(ImmediateDelivery { sender, peer: queue.peer.clone(), set });
        return;
    }
    let entry = QueuedSet { set, bytes, event_type, key, urgency, expires_at };
    let is_kept = queue.sets.push(entry, config.overflow, &config.queue, |event_type, reason| {
        counts.dropped.count(reason);
        drops_by_type.count(event_type, reason);
    });
    if !is_kept {
        routed.overflowed.push(id);
    }
    if *transfer == Transfer::Pulled || queue.call_sender() {
        routed.wake.push(queue.peer.clone());
    }
}

impl<E: RoutedEvent, P: QueuePeer> SenderQueue<E, P> {
    /// Returns true if a set need not go through the queue: the channel has no lanes, the sender is
    /// idle, no set is queued, and the consumer has answered its last call.
    fn may_skip(&self, config: &RouterConfig, now: Nanos) -> bool {
        config.lanes == 0
            && self.is_sender_idle
            && self.sets.len() == 0
            && self.health.next_call(now) == NextCall::Event
    }

    /// Gives the right to send ([`SendTurn`](crate::events::turn::SendTurn)) to the queue's sender
    /// if the sender is idle. Returns true if the caller has to wake the sender.
    pub(super) fn call_sender(&mut self) -> bool {
        let is_called = self.is_sender_idle && self.peer.call_sender();
        self.is_sender_idle &= !is_called;
        is_called
    }
}
