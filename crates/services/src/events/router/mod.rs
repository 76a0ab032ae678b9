//! The decisions of a channel: which consumers get an event, which sets wait for them, and when a
//! consumer is disconnected. `P` is the peer of a proxy, and `E` is the event. The caller makes the
//! calls and wakes the threads.
//!
//! Lanes are numbers from 0, the most urgent. A consumer has a queue in one lane, for all its sets,
//! or a queue in each lane, and gets each set in the lane that `DeliverySet::urgency` returns.
//!
//! Invariants: the counts of each connection are balanced ([`DeliveryCounts::is_balanced`]). A peer
//! is called back at most once.

mod connection;
mod delivery_set;
mod metering;
mod routing;
mod sending;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use corelane_sched::task::Nanos;

use super::counts::{
    ChannelStatistics, ChannelSummary, ConsumerStatistics, DeliveryCounts, DropCounts, DropReason, DropsByType,
    SurplusCounts,
};
use super::filter::EventFilter;
use super::header::EventHeader;
use super::health::{ConsumerHealth, MissPolicy};
use super::lifetimes::EventLifetimes;
use super::numbers::NumberHashing;
use super::queue::{DeliveryQueue, LatestKey, OverflowPolicy, QueueLimits};
use super::schedule::{DepartedMeters, SurplusPolicy};
use super::subscriptions::{ConsumerId, SubscriptionLimits, Subscriptions};

pub(super) use self::connection::{
    ConnectRefusal, Disconnected, Handover, NewConsumer, ProxyId, Publication, QueuePeer, SupplierConnection, Transfer,
};
use self::connection::{Connection, SenderQueue};
pub(super) use self::delivery_set::{DeliverySet, RoutedEvent};
pub(super) use self::metering::DeclaredEvents;
pub(super) use self::routing::{DirectDelivery, ImmediateDelivery, PushRefusal, Routed};
pub(super) use self::sending::{CallResult, SenderId, SenderStep};

/// The bounds of a channel: its peers, its threads and its filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelLimits {
    /// Maximum number of proxies of consumers, connected or not.
    pub max_consumers: usize,
    /// Maximum number of proxies of suppliers, connected or not.
    pub max_suppliers: usize,
    /// Maximum number of threads that send to push consumers. In a channel without lanes, each push
    /// consumer in another process has one. In a channel with lanes, each push consumer has one for
    /// each of its lanes; only gateways in the channel's process have none.
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

#[derive(Clone, Debug, Default)]
pub(super) struct RouterConfig {
    pub(super) limits: ChannelLimits,
    pub(super) queue: QueueLimits,
    pub(super) overflow: OverflowPolicy,
    pub(super) lifetimes: EventLifetimes,
    /// The number of lanes; 0 counts as 1.
    pub(super) lanes: usize,
    /// The lane of each event type, for suppliers that name no lane.
    pub(super) lane_of_type: HashMap<i32, usize>,
    /// The reaction to events beyond their declaration; `None` for a channel without a schedule.
    pub(super) surplus: Option<SurplusPolicy>,
    pub(super) misses: MissPolicy,
    pub(super) is_consumer_reconnected: bool,
    pub(super) is_supplier_reconnected: bool,
}

type Connections<E, P> = HashMap<ConsumerId, Connection<E, P>, NumberHashing>;

#[derive(Debug)]
pub(super) struct Router<E, P> {
    config: RouterConfig,
    subscriptions: Subscriptions<E>,
    consumers: BTreeMap<ProxyId, Option<ConsumerId>>,
    connections: Connections<E, P>,
    suppliers: HashMap<ProxyId, Option<SupplierConnection<P>>, NumberHashing>,
    last_proxy: u64,
    senders: usize,
    published: u64,
    refused: u64,
    unpublished: u64,
    surplus: SurplusCounts,
    departed: DeliveryCounts,
    departed_meters: DepartedMeters,
}

impl<E: RoutedEvent, P: QueuePeer> Router<E, P> {
    pub(super) fn new(config: RouterConfig) -> Self {
        Self {
            subscriptions: Subscriptions::new(config.limits.subscriptions.clone()),
            config,
            consumers: BTreeMap::new(),
            connections: Connections::default(),
            suppliers: HashMap::default(),
            last_proxy: 0,
            senders: 0,
            published: 0,
            refused: 0,
            unpublished: 0,
            surplus: SurplusCounts::default(),
            departed: DeliveryCounts::default(),
            departed_meters: DepartedMeters::default(),
        }
    }

    /// Makes a proxy for a consumer. Returns `None` if there are too many.
    pub(super) fn add_consumer(&mut self) -> Option<ProxyId> {
        let has_room = self.consumers.len() < self.config.limits.max_consumers;
        let proxy = has_room.then(|| self.next_proxy())?;
        self.consumers.insert(proxy, None);
        Some(proxy)
    }

    pub(super) fn add_supplier(&mut self) -> Option<ProxyId> {
        let has_room = self.suppliers.len() < self.config.limits.max_suppliers;
        let proxy = has_room.then(|| self.next_proxy())?;
        self.suppliers.insert(proxy, None);
        Some(proxy)
    }

    /// Checks that a consumer may be connected to a proxy. Returns the connection that it would
    /// replace, if there is one.
    pub(super) fn check_consumer(&self, proxy: ProxyId) -> Result<Option<ConsumerId>, ConnectRefusal> {
        let before = *self.consumers.get(&proxy).ok_or(ConnectRefusal::NoProxy)?;
        let is_permitted = before.is_none() || self.config.is_consumer_reconnected;
        if is_permitted { Ok(before) } else { Err(ConnectRefusal::AlreadyConnected) }
    }

    pub(super) fn check_supplier(&self, proxy: ProxyId) -> Result<(), ConnectRefusal> {
        let before = self.suppliers.get(&proxy).ok_or(ConnectRefusal::NoProxy)?;
        let is_permitted = before.is_none() || self.config.is_supplier_reconnected;
        if is_permitted { Ok(()) } else { Err(ConnectRefusal::AlreadyConnected) }
    }

    /// Connects a consumer. Returns the id of the connection, and the consumer that it replaces, if
    /// there is one.
    pub(super) fn connect_consumer(
        &mut self,
        proxy: ProxyId,
        consumer: NewConsumer<P>,
        now: Nanos,
    ) -> Result<(ConsumerId, Option<Disconnected<P>>), ConnectRefusal> {
        let before = self.check_consumer(proxy)?;
        let max = self.config.limits.max_senders;
        let senders = if consumer.transfer == Transfer::Queued { consumer.queues.len() } else { 0 };
        if self.senders + senders > max {
            return Err(ConnectRefusal::TooManySenders(max));
        }
        let wants_gaps = consumer.filter.asks_for_gaps();
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
            handed_over: None,
            is_sender_idle: false,
            has_sender_ended: false,
        };
        let connection = Connection {
            proxy,
            queues: consumer.queues.into_iter().map(queue).collect(),
            transfer: consumer.transfer,
            is_gateway: consumer.is_gateway,
            declared: consumer.declared,
            wanted,
            is_suspended: false,
            wants_gaps,
            counts: DeliveryCounts::default(),
            drops_by_type: DropsByType::default(),
            told: DropCounts::default(),
            dropped_at_failed_gap: None,
            ending: None,
        };
        self.connections.insert(id, connection);
        self.consumers.insert(proxy, Some(id));
        Ok((id, replaced))
    }

    /// Gives a connected consumer another filter. Its queued sets stay. Returns false if no
    /// consumer is connected.
    pub(super) fn replace_filter(
        &mut self,
        proxy: ProxyId,
        filter: EventFilter,
        now: Nanos,
    ) -> Result<bool, ConnectRefusal> {
        let Some(id) = self.connection(proxy) else { return Ok(false) };
        let wanted = filter.wanted_events().into();
        let is_replaced = self.subscriptions.replace(id, filter, now).map_err(ConnectRefusal::Full)?;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.wanted = wanted;
        }
        Ok(is_replaced)
    }

    pub(super) fn connect_supplier(
        &mut self,
        proxy: ProxyId,
        mut supplier: SupplierConnection<P>,
        now: Nanos,
    ) -> Result<Option<P>, ConnectRefusal> {
        self.check_supplier(proxy)?;
        let max = self.config.limits.max_pulled_suppliers;
        let pulled = self.suppliers.values().flatten().filter(|supplier| supplier.is_pulled);
        if supplier.is_pulled && pulled.count() >= max {
            return Err(ConnectRefusal::TooManyPulledSuppliers(max));
        }
        let before = self.suppliers.insert(proxy, None).flatten();
        if let Some(before) = &before {
            self.keep_meters(before, now);
        }
        self.resume_meters(&mut supplier);
        self.suppliers.insert(proxy, Some(supplier));
        Ok(before.map(|before| before.peer))
    }

    /// Removes a consumer's proxy. Returns `None` if there is no such proxy; otherwise the peer, if
    /// one was connected. `is_called_back` is true if the peer's disconnect operation has to be
    /// called.
    pub(super) fn remove_consumer(&mut self, proxy: ProxyId, is_called_back: bool) -> Option<Option<Disconnected<P>>> {
        let connection = self.consumers.remove(&proxy)?;
        Some(connection.and_then(|id| self.end_connection(id, is_called_back)))
    }

    /// Removes a supplier's proxy. Returns `None` if there is no such proxy; otherwise the peer, if
    /// one was connected.
    pub(super) fn remove_supplier(&mut self, proxy: ProxyId, now: Nanos) -> Option<Option<P>> {
        let removed = self.suppliers.remove(&proxy)?;
        if let Some(supplier) = &removed {
            self.keep_meters(supplier, now);
        }
        Some(removed.map(|supplier| supplier.peer))
    }

    /// Removes all proxies, and returns the connected peers. If `is_called_back`, each peer is
    /// called back: a queued consumer by its last sender, and any other peer by the caller.
    pub(super) fn remove_all(&mut self, is_called_back: bool) -> Vec<Disconnected<P>> {
        let consumers = std::mem::take(&mut self.consumers).into_values().flatten();
        let mut peers: Vec<_> = consumers.filter_map(|id| self.end_connection(id, is_called_back)).collect();
        let suppliers = self.suppliers.drain().filter_map(|(_, supplier)| supplier);
        peers.extend(suppliers.map(|supplier| Disconnected { peers: vec![supplier.peer], is_called_back }));
        peers
    }

    pub(super) fn supplier(&self, proxy: ProxyId) -> Option<&P> {
        self.suppliers.get(&proxy)?.as_ref().map(|supplier| &supplier.peer)
    }

    pub(super) fn has_consumer(&self, proxy: ProxyId) -> bool {
        self.consumers.contains_key(&proxy)
    }

    pub(super) fn connection(&self, proxy: ProxyId) -> Option<ConsumerId> {
        self.consumers.get(&proxy).copied().flatten()
    }

    /// Suspends or resumes a connection for its consumer. Returns `None` if there is no such proxy,
    /// false if no consumer is connected.
    pub(super) fn set_suspended(&mut self, proxy: ProxyId, is_suspended: bool) -> Option<bool> {
        let connection = (*self.consumers.get(&proxy)?).and_then(|id| self.connections.get_mut(&id));
        Some(connection.map(|connection| connection.is_suspended = is_suspended).is_some())
    }

    pub(super) fn peer(&self, id: ConsumerId) -> Option<P> {
        self.connections.get(&id)?.queues.first().map(|queue| queue.peer.clone())
    }

    /// Returns the types and sources that consumers other than gateways want.
    pub(super) fn wanted_events(&self) -> BTreeSet<LatestKey> {
        let own = self.connections.values().filter(|connection| !connection.is_gateway && connection.ending.is_none());
        own.flat_map(|connection| connection.wanted.iter().map(event_key)).collect()
    }

    /// Returns the types and sources that suppliers other than gateways publish.
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
            undeclared: self.unpublished,
            surplus: self.surplus,
            consumers: self.consumers_after(ProxyId(0), usize::MAX, now),
            suppliers: self.suppliers.values().flatten().count(),
            disconnected_consumers: ending.fold(self.departed, |mut sum, connection| {
                sum.add(&connection.counts);
                sum
            }),
            ..ChannelStatistics::default()
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
            surplus: self.surplus,
            suppliers: self.suppliers.values().flatten().count(),
            consumers: self.consumers.values().flatten().count(),
            sets,
        }
    }

    fn next_proxy(&mut self) -> ProxyId {
        self.last_proxy += 1;
        ProxyId(self.last_proxy)
    }

    /// Ends a connection. Returns the peers of its queues, unless the connection has ended before.
    fn end_connection(&mut self, id: ConsumerId, is_called_back: bool) -> Option<Disconnected<P>> {
        self.subscriptions.remove(id);
        let connection = self.connections.get_mut(&id).filter(|connection| connection.ending.is_none())?;
        let Connection { queues, counts, .. } = &mut *connection;
        for queue in queues.iter_mut() {
            queue.sets.clear(|_, reason| counts.dropped.count(reason));
            if queue.handed_over.take().is_some() {
                queue.in_flight = None;
                counts.in_flight -= 1;
                counts.dropped.count(DropReason::Disconnected);
            }
        }
        let peers = connection.peers();
        if connection.transfer == Transfer::Queued {
            connection.ending = Some(is_called_back);
            return Some(Disconnected { peers, is_called_back: false });
        }
        self.forget(id);
        Some(Disconnected { peers, is_called_back })
    }

    fn forget(&mut self, id: ConsumerId) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.senders -= if connection.transfer == Transfer::Queued { connection.queues.len() } else { 0 };
        self.departed.add(&connection.counts);
    }
}

fn event_key(header: &EventHeader) -> LatestKey {
    (header.event_type.0, header.source.0)
}
