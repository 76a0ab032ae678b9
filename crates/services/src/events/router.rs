//! The decisions of a channel: which consumers get an event, what waits for them, and when a
//! consumer is disconnected.
//!
//! The module knows neither clocks nor threads nor references. `P` is the peer of a proxy, which
//! the module only keeps and returns; `E` is the event. The caller calls direct consumers,
//! has a sender for each queue of a queued consumer, and wakes the senders and pullers that
//! [`Routed::wake`] names.
//!
//! Lanes are numbers from 0, the most urgent. A consumer has a queue in one lane, and gets all its
//! sets there, or a queue in each lane, and gets each set in the lane of the set's most urgent
//! event. Sets without a supplier's event (timeouts) are in the least urgent lane.
//!
//! Invariants: the counts of each connection are balanced ([`DeliveryCounts::is_balanced`]). A peer
//! is returned for a disconnect callback at most once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use corelane_sched::task::Nanos;

use super::counts::{
    ChannelStatistics, ChannelSummary, ConsumerStatistics, DeliveryCounts, DropCounts, DropReason, DropsByType,
    QueueStatistics,
};
use super::filter::EventFilter;
use super::header::{EventHeader, EventHeaderError, EventType};
use super::health::{ConsumerHealth, MissPolicy, NextCall};
use super::lifetimes::EventLifetimes;
use super::queue::{DeliveryQueue, LatestKey, OverflowPolicy, QueueLimits, QueuedSet};
use super::subscriptions::{ConsumerId, Occurrence, SubscriptionError, SubscriptionLimits, Subscriptions};

/// The bounds of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelLimits {
    /// Maximum number of proxies of consumers, connected or not.
    pub max_consumers: usize,
    /// Maximum number of proxies of suppliers, connected or not.
    pub max_suppliers: usize,
    /// Maximum number of threads that send. A consumer in another process has one. In a channel with
    /// lanes, a consumer in the channel's process has one too, and a consumer that names no
    /// `rt_info` has one for each lane.
    pub max_senders: usize,
    /// Maximum number of suppliers from which the channel pulls. Each has a thread.
    pub max_pulled_suppliers: usize,
    /// The bounds of all filters.
    pub subscriptions: SubscriptionLimits,
}

/// The default limits: 4,096 consumers and as many suppliers; 512 threads that send; 64 suppliers
/// from which the channel pulls.
impl Default for ChannelLimits {
    fn default() -> Self {
        Self {
            max_consumers: 4_096,
            max_suppliers: 4_096,
            max_senders: 512,
            max_pulled_suppliers: 64,
            subscriptions: SubscriptionLimits::default(),
        }
    }
}

/// An event with its payload, as a router keeps it.
pub(super) trait RoutedEvent: Clone {
    /// Returns the size of the event in a queue.
    fn bytes(&self) -> usize;
    /// Returns the event's type and source.
    fn key(&self) -> LatestKey;
    /// Returns the lane of the event.
    fn lane(&self) -> usize;
    /// Returns the event with its lane. It is called before the event is copied.
    fn in_lane(self, lane: usize) -> Self;
    /// Returns the gap event that tells of these drops.
    fn gap(dropped: &DropCounts, now: Nanos) -> Self;
}

/// Size of a timeout in a queue.
const TIMEOUT_BYTES: usize = 64;

/// The content of one push to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeliverySet<E> {
    One(Occurrence<E>),
    Several(Box<[Occurrence<E>]>),
}

impl<E: RoutedEvent> DeliverySet<E> {
    fn of(set: &[Occurrence<E>]) -> Self {
        match set {
            [one] => Self::One(one.clone()),
            several => Self::Several(several.into()),
        }
    }

    pub(super) fn as_slice(&self) -> &[Occurrence<E>] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }

    fn bytes(&self) -> usize {
        let bytes = |occurrence: &Occurrence<E>| match occurrence {
            Occurrence::Event(event) => event.bytes(),
            Occurrence::Timeout(_) => TIMEOUT_BYTES,
        };
        self.as_slice().iter().map(bytes).fold(0, usize::saturating_add)
    }

    /// Returns the event if the set has only one.
    pub(super) fn into_only_event(self) -> Option<E> {
        match self {
            Self::One(Occurrence::Event(event)) => Some(event),
            Self::One(Occurrence::Timeout(_)) | Self::Several(_) => None,
        }
    }

    /// Returns the type of the first event.
    pub(super) fn event_type(&self) -> i32 {
        match self.as_slice().first() {
            Some(Occurrence::Event(event)) => event.key().0,
            Some(Occurrence::Timeout(expiry)) => expiry.kind.event_type().0,
            None => EventType::ANY.0,
        }
    }

    /// Returns the lane of the most urgent event. `lanes` is the number of lanes.
    fn urgency(&self, lanes: usize) -> usize {
        let lane = |occurrence: &Occurrence<E>| match occurrence {
            Occurrence::Event(event) => event.lane(),
            Occurrence::Timeout(_) => usize::MAX,
        };
        self.as_slice().iter().map(lane).min().unwrap_or(usize::MAX).min(lanes.saturating_sub(1))
    }

    fn key(&self) -> Option<LatestKey> {
        match self {
            Self::One(Occurrence::Event(event)) => Some(event.key()),
            Self::One(Occurrence::Timeout(expiry)) => Some((expiry.kind.event_type().0, 0)),
            Self::Several(_) => None,
        }
    }
}

/// A proxy of a channel. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProxyId(pub(super) u64);

/// The way in which a consumer gets its sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The thread of the supplier calls the consumer.
    Direct,
    /// A sender calls the consumer.
    Queued,
    /// The consumer asks for each set.
    Pulled,
}

/// The result of routing.
#[derive(Debug)]
pub(super) struct Routed<E, P> {
    /// The direct consumers to call, in this order. The caller reports a failure with
    /// [`Router::direct_failed`].
    pub(super) direct: Vec<DirectDelivery<E, P>>,
    /// The peers whose sender or puller waits for a set.
    pub(super) wake: Vec<P>,
    /// The consumers that [`OverflowPolicy::Disconnect`] has disconnected, with their removed
    /// proxies.
    pub(super) disconnected: Vec<(ProxyId, Disconnected<P>)>,
    /// The consumers that [`OverflowPolicy::Disconnect`] is about to disconnect.
    overflowed: Vec<ConsumerId>,
}

impl<E, P> Default for Routed<E, P> {
    fn default() -> Self {
        Self { direct: Vec::new(), wake: Vec::new(), disconnected: Vec::new(), overflowed: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct DirectDelivery<E, P> {
    pub(super) consumer: ConsumerId,
    pub(super) peer: P,
    pub(super) set: DeliverySet<E>,
}

/// A sender: the thread that sends the sets of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SenderId {
    pub(super) consumer: ConsumerId,
    /// The number of the queue in [`NewConsumer::queues`].
    pub(super) queue: usize,
}

/// The next step of a sender.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SenderStep<E> {
    /// Sends the set, then reports.
    Send(DeliverySet<E>),
    /// Asks the consumer if it exists, then reports.
    Ask,
    /// Waits until it is woken, or until this time.
    Wait(Option<Nanos>),
    /// Ends. If the flag is true, the sender first calls the consumer's disconnect operation.
    End(bool),
}

/// The result of a call of a queued consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// The consumer has the set, or exists.
    Done,
    /// The consumer answered with an exception.
    Refused,
    /// The consumer did not answer.
    Missed,
    /// The consumer does not exist, or does not want further events.
    Gone,
}

/// The reason why a consumer or supplier is not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectRefusal {
    NoProxy,
    AlreadyConnected,
    Full(SubscriptionError),
    TooManySenders(usize),
    TooManyPulledSuppliers(usize),
}

/// The reason why an event is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushRefusal {
    NoProxy,
    NotConnected,
    Header(EventHeaderError),
}

/// A disconnected peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disconnected<P> {
    /// The peer of each queue, at least one. The caller wakes their senders and pullers.
    pub(super) peers: Vec<P>,
    /// The caller calls the disconnect operation of the first peer.
    pub(super) is_called_back: bool,
}

/// A consumer to be connected.
#[derive(Debug)]
pub(super) struct NewConsumer<P> {
    /// The lane of each queue, the most urgent first, and the peer for it: one queue, or one for
    /// each lane of the channel. A direct consumer has one peer, and its queue stays empty.
    pub(super) queues: Vec<(usize, P)>,
    pub(super) transfer: Transfer,
    pub(super) filter: EventFilter,
    pub(super) is_gateway: bool,
}

/// An event that a supplier may push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Publication {
    pub(super) header: EventHeader,
    /// The lane that the supplier names for these events.
    pub(super) lane: Option<usize>,
}

/// A connected supplier, or a supplier to be connected.
#[derive(Debug)]
pub(super) struct SupplierConnection<P> {
    pub(super) peer: P,
    /// The events that the supplier may push; every event, in the least urgent lane, if there are
    /// none.
    pub(super) publications: Box<[Publication]>,
    pub(super) is_gateway: bool,
    /// The channel pulls the events of the supplier.
    pub(super) is_pulled: bool,
}

/// Settings of a router.
#[derive(Clone, Debug, Default)]
pub(super) struct RouterConfig {
    pub(super) limits: ChannelLimits,
    pub(super) queue: QueueLimits,
    pub(super) overflow: OverflowPolicy,
    pub(super) lifetimes: EventLifetimes,
    /// The number of lanes; 0 counts as 1.
    pub(super) lanes: usize,
    /// The lanes of event types whose supplier names none.
    pub(super) lane_of_type: HashMap<i32, usize>,
    pub(super) misses: MissPolicy,
    pub(super) is_consumer_reconnected: bool,
    pub(super) is_supplier_reconnected: bool,
}

/// A queue of a consumer, and the state of its sender.
#[derive(Debug)]
struct SenderQueue<E, P> {
    lane: usize,
    peer: P,
    sets: DeliveryQueue<DeliverySet<E>>,
    health: ConsumerHealth,
    /// The type of the set whose call is running.
    in_flight: Option<i32>,
    /// The sender waits for a set.
    is_sender_idle: bool,
    has_sender_ended: bool,
}

#[derive(Debug)]
struct Connection<E, P> {
    proxy: ProxyId,
    queues: Box<[SenderQueue<E, P>]>,
    transfer: Transfer,
    is_gateway: bool,
    /// The types and sources that observers are told.
    wanted: Box<[EventHeader]>,
    /// The consumer has suspended its connection.
    is_suspended: bool,
    /// The consumer asks for gap events.
    wants_gaps: bool,
    counts: DeliveryCounts,
    drops_by_type: DropsByType,
    /// The drops of which gap events have told.
    told: DropCounts,
    /// The connection has ended, but not all its senders; true if the last sender calls the consumer
    /// back.
    ending: Option<bool>,
}

impl<E: RoutedEvent, P: Clone> Connection<E, P> {
    fn count_drop(&mut self, event_type: i32, reason: DropReason) {
        self.counts.dropped.count(reason);
        self.drops_by_type.count(event_type, reason);
    }

    /// Returns a gap event if one is due, as a set that is counted as routed.
    fn take_gap(&mut self, now: Nanos) -> Option<DeliverySet<E>> {
        if !self.wants_gaps || self.is_suspended || self.told == self.counts.dropped {
            return None;
        }
        let untold = self.counts.dropped.since(&self.told);
        self.told = self.counts.dropped;
        self.counts.routed += 1;
        Some(DeliverySet::One(Occurrence::Event(E::gap(&untold, now))))
    }

    fn peers(&self) -> Vec<P> {
        self.queues.iter().map(|queue| queue.peer.clone()).collect()
    }

    fn statistics(&self, now: Nanos) -> ConsumerStatistics {
        let queue = |queue: &SenderQueue<E, P>| QueueStatistics {
            lane: queue.lane,
            sets: queue.sets.len(),
            bytes: queue.sets.bytes(),
        };
        let has_queues = self.transfer != Transfer::Direct;
        ConsumerStatistics {
            proxy: self.proxy.0,
            counts: DeliveryCounts { queued: self.queued(), ..self.counts },
            drops_by_type: self.drops_by_type.to_vec(),
            queues: self.queues.iter().filter(|_| has_queues).map(queue).collect(),
            is_suspended: self.queues.iter().any(|queue| queue.health.is_suspended(now)),
        }
    }

    fn queued(&self) -> u64 {
        self.queues.iter().map(|queue| queue.sets.len() as u64).sum()
    }
}

/// The consumers and suppliers of a channel.
#[derive(Debug)]
pub(super) struct Router<E, P> {
    config: RouterConfig,
    subscriptions: Subscriptions<E>,
    /// The proxies of consumers, and the connection of each.
    consumers: BTreeMap<ProxyId, Option<ConsumerId>>,
    connections: HashMap<ConsumerId, Connection<E, P>>,
    /// The proxies of suppliers, and the supplier of each.
    suppliers: HashMap<ProxyId, Option<SupplierConnection<P>>>,
    last_proxy: u64,
    /// Number of senders.
    senders: usize,
    published: u64,
    refused: u64,
    unpublished: u64,
    departed: DeliveryCounts,
}

impl<E: RoutedEvent, P: Clone> Router<E, P> {
    pub(super) fn new(config: RouterConfig) -> Self {
        Self {
            subscriptions: Subscriptions::new(config.limits.subscriptions.clone()),
            config,
            consumers: BTreeMap::new(),
            connections: HashMap::new(),
            suppliers: HashMap::new(),
            last_proxy: 0,
            senders: 0,
            published: 0,
            refused: 0,
            unpublished: 0,
            departed: DeliveryCounts::default(),
        }
    }

    /// Makes a proxy for a consumer. Returns `None` if there are too many.
    pub(super) fn add_consumer(&mut self) -> Option<ProxyId> {
        let has_room = self.consumers.len() < self.config.limits.max_consumers;
        let proxy = has_room.then(|| self.next_proxy())?;
        self.consumers.insert(proxy, None);
        Some(proxy)
    }

    /// Makes a proxy for a supplier. Returns `None` if there are too many.
    pub(super) fn add_supplier(&mut self) -> Option<ProxyId> {
        let has_room = self.suppliers.len() < self.config.limits.max_suppliers;
        let proxy = has_room.then(|| self.next_proxy())?;
        self.suppliers.insert(proxy, None);
        Some(proxy)
    }

    /// Connects a consumer. Returns the id of the connection, and the consumer that it replaces.
    pub(super) fn connect_consumer(
        &mut self,
        proxy: ProxyId,
        consumer: NewConsumer<P>,
        now: Nanos,
    ) -> Result<(ConsumerId, Option<Disconnected<P>>), ConnectRefusal> {
        let before = *self.consumers.get(&proxy).ok_or(ConnectRefusal::NoProxy)?;
        if before.is_some() && !self.config.is_consumer_reconnected {
            return Err(ConnectRefusal::AlreadyConnected);
        }
        let max = self.config.limits.max_senders;
        let senders = if consumer.transfer == Transfer::Queued { consumer.queues.len() } else { 0 };
        if self.senders + senders > max {
            return Err(ConnectRefusal::TooManySenders(max));
        }
        let wants_gaps = consumer.filter.wanted_events().iter().any(|event| event.event_type == EventType::GAP);
        let wanted = consumer.filter.wanted_events().into();
        let id = self.subscriptions.add(consumer.filter, now).map_err(ConnectRefusal::Full)?;
        let replaced = before.and_then(|before| self.end_connection(before, false));
        self.senders += senders;
        let queue = |(lane, peer)| SenderQueue {
            lane,
            peer,
            sets: DeliveryQueue::default(),
            health: ConsumerHealth::default(),
            in_flight: None,
            is_sender_idle: false,
            has_sender_ended: false,
        };
        let connection = Connection {
            proxy,
            queues: consumer.queues.into_iter().map(queue).collect(),
            transfer: consumer.transfer,
            is_gateway: consumer.is_gateway,
            wanted,
            is_suspended: false,
            wants_gaps,
            counts: DeliveryCounts::default(),
            drops_by_type: DropsByType::default(),
            told: DropCounts::default(),
            ending: None,
        };
        self.connections.insert(id, connection);
        self.consumers.insert(proxy, Some(id));
        Ok((id, replaced))
    }

    /// Connects a supplier. Returns the peer that it replaces.
    pub(super) fn connect_supplier(
        &mut self,
        proxy: ProxyId,
        supplier: SupplierConnection<P>,
    ) -> Result<Option<P>, ConnectRefusal> {
        let before = self.suppliers.get(&proxy).ok_or(ConnectRefusal::NoProxy)?;
        if before.is_some() && !self.config.is_supplier_reconnected {
            return Err(ConnectRefusal::AlreadyConnected);
        }
        let max = self.config.limits.max_pulled_suppliers;
        let pulled = self.suppliers.values().flatten().filter(|supplier| supplier.is_pulled);
        if supplier.is_pulled && pulled.count() >= max {
            return Err(ConnectRefusal::TooManyPulledSuppliers(max));
        }
        let before = self.suppliers.insert(proxy, Some(supplier));
        Ok(before.flatten().map(|before| before.peer))
    }

    /// Removes a consumer's proxy. Returns `None` if there is no such proxy; otherwise the peer, if
    /// one was connected. `is_called_back` is true if the peer's disconnect operation is called.
    pub(super) fn remove_consumer(&mut self, proxy: ProxyId, is_called_back: bool) -> Option<Option<Disconnected<P>>> {
        let connection = self.consumers.remove(&proxy)?;
        Some(connection.and_then(|id| self.end_connection(id, is_called_back)))
    }

    /// Removes a supplier's proxy. Returns `None` if there is no such proxy; otherwise the peer, if
    /// one was connected.
    pub(super) fn remove_supplier(&mut self, proxy: ProxyId) -> Option<Option<P>> {
        self.suppliers.remove(&proxy).map(|supplier| supplier.map(|supplier| supplier.peer))
    }

    /// Removes all proxies. Returns each connected peer, which is called back if the flag is true.
    pub(super) fn remove_all(&mut self, is_called_back: bool) -> Vec<Disconnected<P>> {
        let consumers = std::mem::take(&mut self.consumers).into_values().flatten();
        let mut peers: Vec<_> = consumers.filter_map(|id| self.end_connection(id, is_called_back)).collect();
        let suppliers = self.suppliers.drain().filter_map(|(_, supplier)| supplier);
        peers.extend(suppliers.map(|supplier| Disconnected { peers: vec![supplier.peer], is_called_back }));
        peers
    }

    /// Returns the peer of a supplier's proxy, if one is connected.
    pub(super) fn supplier(&self, proxy: ProxyId) -> Option<&P> {
        self.suppliers.get(&proxy)?.as_ref().map(|supplier| &supplier.peer)
    }

    /// Returns true if the proxy exists.
    pub(super) fn has_consumer(&self, proxy: ProxyId) -> bool {
        self.consumers.contains_key(&proxy)
    }

    /// Returns the id of a consumer's connection.
    pub(super) fn connection(&self, proxy: ProxyId) -> Option<ConsumerId> {
        self.consumers.get(&proxy).copied().flatten()
    }

    /// Suspends or resumes a connection for its consumer. Returns `None` if there is no such proxy,
    /// false if no consumer is connected.
    pub(super) fn set_suspended(&mut self, proxy: ProxyId, is_suspended: bool) -> Option<bool> {
        let connection = (*self.consumers.get(&proxy)?).and_then(|id| self.connections.get_mut(&id));
        Some(connection.map(|connection| connection.is_suspended = is_suspended).is_some())
    }

    /// Routes an event of a supplier, after the timeouts that are due.
    pub(super) fn push(
        &mut self,
        supplier: ProxyId,
        header: &EventHeader,
        event: E,
        now: Nanos,
        routed: &mut Routed<E, P>,
    ) -> Result<(), PushRefusal> {
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
        let Some(lane) = lane(supplier, header, &self.config) else {
            self.unpublished += 1;
            return Ok(());
        };
        self.published += 1;
        let Self { subscriptions, connections, config, .. } = self;
        let event = event.in_lane(lane);
        let result = subscriptions.push(header, event, now, |id, set| route(connections, config, id, set, now, routed));
        self.disconnect_overflowed(routed);
        result.map(drop).map_err(PushRefusal::Header)
    }

    /// Routes the timeouts that are due.
    pub(super) fn expire(&mut self, now: Nanos, routed: &mut Routed<E, P>) {
        let Self { subscriptions, connections, config, .. } = self;
        subscriptions.expire(now, |id, set| route(connections, config, id, set, now, routed));
        self.disconnect_overflowed(routed);
    }

    /// Disconnects the consumers whose queue has overflowed, if the policy demands it.
    fn disconnect_overflowed(&mut self, routed: &mut Routed<E, P>) {
        while let Some(id) = routed.overflowed.pop() {
            let Some(proxy) = self.connections.get(&id).map(|connection| connection.proxy) else { continue };
            if let Some(Some(disconnected)) = self.remove_consumer(proxy, true) {
                routed.disconnected.push((proxy, disconnected));
            }
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Nanos> {
        self.subscriptions.next_expiry()
    }

    /// Counts a set as dropped that a direct consumer did not get. `is_nested` is true if it was
    /// not called at all. Returns the consumer's proxy, which is removed, if the consumer is gone.
    pub(super) fn direct_failed(
        &mut self,
        id: ConsumerId,
        event_type: i32,
        is_nested: bool,
        is_gone: bool,
    ) -> Option<ProxyId> {
        let reason = if is_nested { DropReason::Nested } else { DropReason::Failed };
        let Some(connection) = self.connections.get_mut(&id) else {
            // A consumer that was disconnected during its push counts with the others.
            self.departed.delivered = self.departed.delivered.saturating_sub(1);
            self.departed.dropped.count(reason);
            return None;
        };
        connection.counts.delivered = connection.counts.delivered.saturating_sub(1);
        connection.count_drop(event_type, reason);
        let proxy = connection.proxy;
        is_gone.then(|| {
            self.remove_consumer(proxy, false);
            proxy
        })
    }

    /// Returns the next step of a sender.
    pub(super) fn next_step(&mut self, sender: SenderId, now: Nanos) -> SenderStep<E> {
        let Some(connection) = self.connections.get_mut(&sender.consumer) else { return SenderStep::End(false) };
        let Connection { queues, counts, drops_by_type, ending, .. } = connection;
        let Some(queue) = queues.get_mut(sender.queue) else { return SenderStep::End(false) };
        if let Some(is_called_back) = *ending {
            queue.has_sender_ended = true;
            if queues.iter().any(|queue| !queue.has_sender_ended) {
                return SenderStep::End(false);
            }
            self.forget(sender.consumer);
            return SenderStep::End(is_called_back);
        }
        let has_sets = queue.sets.drop_expired(now, |event_type, reason| {
            counts.dropped.count(reason);
            drops_by_type.count(event_type, reason);
        });
        let next_call = queue.health.next_call(now);
        let gap = if next_call == NextCall::Event { connection.take_gap(now) } else { None };
        let Some(queue) = connection.queues.get_mut(sender.queue) else { return SenderStep::End(false) };
        queue.is_sender_idle = !has_sets && gap.is_none();
        if queue.is_sender_idle {
            return SenderStep::Wait(None);
        }
        match next_call {
            NextCall::WaitUntil(time) => SenderStep::Wait(Some(time)),
            NextCall::Question => SenderStep::Ask,
            NextCall::Event => {
                let next = gap.map(|gap| (gap, EventType::GAP.0));
                let next = next.or_else(|| queue.sets.pop(now, |_, _| {}));
                let Some((set, event_type)) = next else { return SenderStep::Wait(None) };
                queue.in_flight = Some(event_type);
                connection.counts.in_flight += 1;
                SenderStep::Send(set)
            }
        }
    }

    /// Takes note of the result of a sender's step. Returns the consumer's proxy, which is removed,
    /// if the consumer is gone or has missed too many calls, and the peers to wake.
    pub(super) fn called(
        &mut self,
        sender: SenderId,
        result: CallResult,
        now: Nanos,
    ) -> Option<(ProxyId, Disconnected<P>)> {
        let connection = self.connections.get_mut(&sender.consumer)?;
        let in_flight = connection.queues.get_mut(sender.queue)?.in_flight.take();
        if let Some(event_type) = in_flight {
            connection.counts.in_flight -= 1;
            match result {
                CallResult::Done => connection.counts.delivered += 1,
                CallResult::Refused | CallResult::Missed | CallResult::Gone => {
                    connection.count_drop(event_type, DropReason::Failed);
                    // A gap event that fails causes no further gap event: a consumer that refuses
                    // each event would get them without end.
                    connection.told.failed += u64::from(event_type == EventType::GAP.0);
                }
            }
        }
        let health = &mut connection.queues.get_mut(sender.queue)?.health;
        let is_lost = match result {
            CallResult::Done | CallResult::Refused => {
                health.answered();
                false
            }
            CallResult::Missed => health.missed(&self.config.misses, now),
            CallResult::Gone => true,
        };
        if !is_lost || connection.ending.is_some() {
            return None;
        }
        let proxy = connection.proxy;
        let disconnected = self.remove_consumer(proxy, false).flatten()?;
        Some((proxy, disconnected))
    }

    /// Removes the first set of a consumer that pulls, of the most urgent lane first. Returns `None`
    /// if the connection has ended, and `Some(None)` if there is no set.
    pub(super) fn pull(&mut self, id: ConsumerId, now: Nanos) -> Option<Option<DeliverySet<E>>> {
        let Connection { queues, counts, drops_by_type, .. } = self.connections.get_mut(&id)?;
        let mut note = |event_type: i32, reason: DropReason| {
            counts.dropped.count(reason);
            drops_by_type.count(event_type, reason);
        };
        let set = queues.iter_mut().find_map(|queue| queue.sets.pop(now, &mut note));
        counts.delivered += u64::from(set.is_some());
        Some(set.map(|(set, _)| set))
    }

    /// Returns the peer of a connection's first queue.
    pub(super) fn peer(&self, id: ConsumerId) -> Option<P> {
        self.connections.get(&id)?.queues.first().map(|queue| queue.peer.clone())
    }

    /// Returns the types and sources that consumers want, except gateways, each once.
    pub(super) fn wanted_events(&self) -> BTreeSet<LatestKey> {
        let own = self.connections.values().filter(|connection| !connection.is_gateway && connection.ending.is_none());
        own.flat_map(|connection| connection.wanted.iter().map(event_key)).collect()
    }

    /// Returns the types and sources that suppliers publish, except gateways, each once.
    pub(super) fn published_events(&self) -> BTreeSet<LatestKey> {
        let own = self.suppliers.values().flatten().filter(|supplier| !supplier.is_gateway);
        own.flat_map(|supplier| supplier.publications.iter().map(|publication| event_key(&publication.header)))
            .collect()
    }

    pub(super) fn statistics(&self, now: Nanos) -> ChannelStatistics {
        let ending = self.connections.values().filter(|connection| connection.ending.is_some());
        ChannelStatistics {
            published: self.published,
            refused: self.refused,
            unpublished: self.unpublished,
            consumers: self.consumers_after(ProxyId(0), usize::MAX, now),
            suppliers: self.suppliers.values().flatten().count(),
            departed: ending.fold(self.departed, |mut sum, connection| {
                sum.add(&connection.counts);
                sum
            }),
        }
    }

    /// Returns the counts of at most `max` connected consumers: those with the lowest numbers above
    /// `proxy`.
    pub(super) fn consumers_after(&self, proxy: ProxyId, max: usize, now: Nanos) -> Vec<ConsumerStatistics> {
        let later = self.consumers.range((Bound::Excluded(proxy), Bound::Unbounded));
        let connections = later.filter_map(|(_, id)| self.connections.get(&(*id)?));
        connections.take(max).map(|connection| connection.statistics(now)).collect()
    }

    pub(super) fn summary(&self) -> ChannelSummary {
        let mut sets = self.departed;
        for connection in self.connections.values() {
            sets.add(&DeliveryCounts { queued: connection.queued(), ..connection.counts });
        }
        ChannelSummary {
            published: self.published,
            refused: self.refused,
            unpublished: self.unpublished,
            suppliers: self.suppliers.values().flatten().count(),
            consumers: self.consumers.values().flatten().count(),
            sets,
        }
    }

    fn next_proxy(&mut self) -> ProxyId {
        self.last_proxy += 1;
        ProxyId(self.last_proxy)
    }

    /// Ends a connection. Returns the peer, unless the connection ended before.
    fn end_connection(&mut self, id: ConsumerId, is_called_back: bool) -> Option<Disconnected<P>> {
        self.subscriptions.remove(id);
        let connection = self.connections.get_mut(&id).filter(|connection| connection.ending.is_none())?;
        let Connection { queues, counts, .. } = &mut *connection;
        for queue in queues.iter_mut() {
            queue.sets.clear(|_, reason| counts.dropped.count(reason));
        }
        let peers = connection.peers();
        if connection.transfer == Transfer::Queued {
            connection.ending = Some(is_called_back);
            return Some(Disconnected { peers, is_called_back: false });
        }
        self.forget(id);
        Some(Disconnected { peers, is_called_back })
    }

    /// Removes a connection that has ended, and keeps its counts.
    fn forget(&mut self, id: ConsumerId) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.senders -= if connection.transfer == Transfer::Queued { connection.queues.len() } else { 0 };
        self.departed.add(&connection.counts);
    }
}

fn event_key(header: &EventHeader) -> LatestKey {
    (header.event_type.0, header.source.0)
}

/// Returns the lane of an event of a supplier: that of the most urgent publication that names the
/// event, or that of the event's type, or the least urgent lane. Returns `None` if the supplier does
/// not publish the event. 0 matches everything on both sides.
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
    let of_type = || config.lane_of_type.get(&event.event_type.0).copied();
    Some(named.or_else(of_type).unwrap_or(config.lanes.saturating_sub(1)))
}

/// Hands a set to its consumer.
fn route<E: RoutedEvent, P: Clone>(
    connections: &mut HashMap<ConsumerId, Connection<E, P>>,
    config: &RouterConfig,
    id: ConsumerId,
    set: &[Occurrence<E>],
    now: Nanos,
    routed: &mut Routed<E, P>,
) {
    let Some(connection) = connections.get_mut(&id) else { return };
    connection.counts.routed += 1;
    let set = DeliverySet::of(set);
    if connection.is_suspended {
        connection.count_drop(set.event_type(), DropReason::Suspended);
        return;
    }
    if connection.transfer == Transfer::Direct {
        let gap = connection.take_gap(now);
        let Connection { queues, counts, .. } = connection;
        let Some(peer) = queues.first().map(|queue| &queue.peer) else { return };
        for set in gap.into_iter().chain([set]) {
            counts.delivered += 1;
            routed.direct.push(DirectDelivery { consumer: id, peer: peer.clone(), set });
        }
        return;
    }
    let Connection { queues, counts, drops_by_type, transfer, .. } = connection;
    let urgency = set.urgency(config.lanes);
    // The queue of the set's lane, or the only queue.
    let at = queues.iter().position(|queue| queue.lane == urgency).filter(|_| queues.len() > 1).unwrap_or(0);
    let Some(queue) = queues.get_mut(at) else { return };
    let (bytes, key, event_type) = (set.bytes(), set.key(), set.event_type());
    let expires_at = config.lifetimes.end(set.as_slice(), now);
    let entry = QueuedSet { set, bytes, event_type, key, urgency, expires_at };
    let is_kept = queue.sets.push(entry, config.overflow, &config.queue, |event_type, reason| {
        counts.dropped.count(reason);
        drops_by_type.count(event_type, reason);
    });
    if !is_kept {
        routed.overflowed.push(id);
    }
    if *transfer == Transfer::Pulled || std::mem::take(&mut queue.is_sender_idle) {
        routed.wake.push(queue.peer.clone());
    }
}
