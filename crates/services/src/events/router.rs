//! The decisions of a channel: which consumers get an event, what waits for them, and when a
//! consumer is disconnected.
//!
//! The module knows neither clocks nor threads nor references. `P` is the peer of a proxy, which
//! the module only keeps and returns; `E` is the event. The caller calls direct consumers,
//! has a sender for each queued consumer, and wakes the senders and pullers that
//! [`Routed::wake`] names.
//!
//! Invariants: the counts of each connection are balanced ([`DeliveryCounts::is_balanced`]). A peer
//! is returned for a disconnect callback at most once.

use std::collections::{BTreeSet, HashMap};

use corelane_sched::task::Nanos;

use super::counts::{ChannelStatistics, ConsumerStatistics, DeliveryCounts};
use super::filter::EventFilter;
use super::header::{EventHeader, EventHeaderError};
use super::health::{ConsumerHealth, MissPolicy, NextCall};
use super::queue::{DeliveryQueue, LatestKey, OverflowPolicy, QueueLimits};
use super::subscriptions::{ConsumerId, Occurrence, SubscriptionError, SubscriptionLimits, Subscriptions};

/// The bounds of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelLimits {
    /// Maximum number of proxies of consumers, connected or not.
    pub max_consumers: usize,
    /// Maximum number of proxies of suppliers, connected or not.
    pub max_suppliers: usize,
    /// Maximum number of consumers in other processes. Each has a thread.
    pub max_remote_consumers: usize,
    /// Maximum number of suppliers from which the channel pulls. Each has a thread.
    pub max_pulled_suppliers: usize,
    /// The bounds of all filters.
    pub subscriptions: SubscriptionLimits,
}

/// The default limits: 4,096 consumers and as many suppliers; 512 consumers in other processes; 64
/// suppliers from which the channel pulls.
impl Default for ChannelLimits {
    fn default() -> Self {
        Self {
            max_consumers: 4_096,
            max_suppliers: 4_096,
            max_remote_consumers: 512,
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
}

impl<E, P> Default for Routed<E, P> {
    fn default() -> Self {
        Self { direct: Vec::new(), wake: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct DirectDelivery<E, P> {
    pub(super) consumer: ConsumerId,
    pub(super) peer: P,
    pub(super) set: DeliverySet<E>,
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
    TooManyRemoteConsumers(usize),
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
    /// The caller wakes the peer's sender and pullers.
    pub(super) peer: P,
    /// The caller calls the peer's disconnect operation.
    pub(super) is_called_back: bool,
}

/// A consumer to be connected.
#[derive(Debug)]
pub(super) struct NewConsumer<P> {
    pub(super) peer: P,
    pub(super) transfer: Transfer,
    pub(super) filter: EventFilter,
    pub(super) is_gateway: bool,
}

/// A connected supplier, or a supplier to be connected.
#[derive(Debug)]
pub(super) struct SupplierConnection<P> {
    pub(super) peer: P,
    /// The events that the supplier may push; every event if there are none.
    pub(super) publications: Box<[EventHeader]>,
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
    pub(super) misses: MissPolicy,
    pub(super) is_consumer_reconnected: bool,
    pub(super) is_supplier_reconnected: bool,
}

#[derive(Debug)]
struct Connection<E, P> {
    proxy: ProxyId,
    peer: P,
    transfer: Transfer,
    is_gateway: bool,
    /// The types and sources that observers are told.
    wanted: Box<[EventHeader]>,
    /// The consumer has suspended its connection.
    is_suspended: bool,
    queue: DeliveryQueue<DeliverySet<E>>,
    health: ConsumerHealth,
    counts: DeliveryCounts,
    /// The sender waits for a set.
    is_sender_idle: bool,
    /// The connection has ended, but its sender has not; true if the sender calls the consumer back.
    ending: Option<bool>,
}

/// The consumers and suppliers of a channel.
#[derive(Debug)]
pub(super) struct Router<E, P> {
    config: RouterConfig,
    subscriptions: Subscriptions<E>,
    /// The proxies of consumers, and the connection of each.
    consumers: HashMap<ProxyId, Option<ConsumerId>>,
    connections: HashMap<ConsumerId, Connection<E, P>>,
    /// The proxies of suppliers, and the supplier of each.
    suppliers: HashMap<ProxyId, Option<SupplierConnection<P>>>,
    last_proxy: u64,
    /// Number of connections that have a sender.
    queued_consumers: usize,
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
            consumers: HashMap::new(),
            connections: HashMap::new(),
            suppliers: HashMap::new(),
            last_proxy: 0,
            queued_consumers: 0,
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
        let max = self.config.limits.max_remote_consumers;
        if consumer.transfer == Transfer::Queued && self.queued_consumers >= max {
            return Err(ConnectRefusal::TooManyRemoteConsumers(max));
        }
        let wanted = consumer.filter.wanted_events().into();
        let id = self.subscriptions.add(consumer.filter, now).map_err(ConnectRefusal::Full)?;
        let replaced = before.and_then(|before| self.end_connection(before, false));
        self.queued_consumers += usize::from(consumer.transfer == Transfer::Queued);
        let connection = Connection {
            proxy,
            peer: consumer.peer,
            transfer: consumer.transfer,
            is_gateway: consumer.is_gateway,
            wanted,
            is_suspended: false,
            queue: DeliveryQueue::default(),
            health: ConsumerHealth::default(),
            counts: DeliveryCounts::default(),
            is_sender_idle: false,
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
        let consumers: Vec<ConsumerId> = self.consumers.drain().filter_map(|(_, connection)| connection).collect();
        let mut peers: Vec<_> =
            consumers.into_iter().filter_map(|id| self.end_connection(id, is_called_back)).collect();
        let suppliers = self.suppliers.drain().filter_map(|(_, supplier)| supplier);
        peers.extend(suppliers.map(|supplier| Disconnected { peer: supplier.peer, is_called_back }));
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
        if !publishes(&supplier.publications, header) {
            self.unpublished += 1;
            return Ok(());
        }
        self.published += 1;
        let Self { subscriptions, connections, config, .. } = self;
        let result = subscriptions.push(header, event, now, |id, set| route(connections, config, id, set, routed));
        result.map(drop).map_err(PushRefusal::Header)
    }

    /// Routes the timeouts that are due.
    pub(super) fn expire(&mut self, now: Nanos, routed: &mut Routed<E, P>) {
        let Self { subscriptions, connections, config, .. } = self;
        subscriptions.expire(now, |id, set| route(connections, config, id, set, routed));
    }

    pub(super) fn next_expiry(&self) -> Option<Nanos> {
        self.subscriptions.next_expiry()
    }

    /// Counts a set as dropped that a direct consumer did not get. `is_nested` is true if it was
    /// not called at all. Returns the consumer's proxy, which is removed, if the consumer is gone.
    pub(super) fn direct_failed(&mut self, id: ConsumerId, is_nested: bool, is_gone: bool) -> Option<ProxyId> {
        let connection = self.connections.get_mut(&id);
        // A consumer that was disconnected during its push counts with the others.
        let counts = connection.map_or(&mut self.departed, |connection| &mut connection.counts);
        counts.delivered = counts.delivered.saturating_sub(1);
        let dropped = &mut counts.dropped;
        *(if is_nested { &mut dropped.nested } else { &mut dropped.failed }) += 1;
        let proxy = is_gone.then(|| self.connections.get(&id).map(|connection| connection.proxy)).flatten()?;
        self.remove_consumer(proxy, false);
        Some(proxy)
    }

    /// Returns the next step of a sender.
    pub(super) fn next_step(&mut self, id: ConsumerId, now: Nanos) -> SenderStep<E> {
        let Some(connection) = self.connections.get_mut(&id) else { return SenderStep::End(false) };
        if let Some(is_called_back) = connection.ending {
            self.forget(id);
            return SenderStep::End(is_called_back);
        }
        connection.is_sender_idle = connection.queue.len() == 0;
        if connection.is_sender_idle {
            return SenderStep::Wait(None);
        }
        match connection.health.next_call(now) {
            NextCall::WaitUntil(time) => SenderStep::Wait(Some(time)),
            NextCall::Question => SenderStep::Ask,
            NextCall::Event => match connection.queue.pop() {
                Some(set) => {
                    connection.counts.in_flight = 1;
                    SenderStep::Send(set)
                }
                None => SenderStep::Wait(None),
            },
        }
    }

    /// Takes note of the result of a sender's step. Returns the consumer's proxy, which is removed,
    /// if the consumer is gone or has missed too many calls.
    pub(super) fn called(&mut self, id: ConsumerId, result: CallResult, now: Nanos) -> Option<ProxyId> {
        let connection = self.connections.get_mut(&id)?;
        let counts = &mut connection.counts;
        let in_flight = std::mem::take(&mut counts.in_flight);
        match result {
            CallResult::Done => counts.delivered += in_flight,
            CallResult::Refused | CallResult::Missed | CallResult::Gone => counts.dropped.failed += in_flight,
        }
        let is_lost = match result {
            CallResult::Done | CallResult::Refused => {
                connection.health.answered();
                false
            }
            CallResult::Missed => connection.health.missed(&self.config.misses, now),
            CallResult::Gone => true,
        };
        if !is_lost || connection.ending.is_some() {
            return None;
        }
        let proxy = connection.proxy;
        self.remove_consumer(proxy, false);
        Some(proxy)
    }

    /// Removes the first set of a consumer that pulls. Returns `None` if the connection has ended,
    /// and `Some(None)` if there is no set.
    pub(super) fn pull(&mut self, id: ConsumerId) -> Option<Option<DeliverySet<E>>> {
        let connection = self.connections.get_mut(&id)?;
        let set = connection.queue.pop();
        connection.counts.delivered += u64::from(set.is_some());
        Some(set)
    }

    /// Returns the peer of a connection.
    pub(super) fn peer(&self, id: ConsumerId) -> Option<P> {
        self.connections.get(&id).map(|connection| connection.peer.clone())
    }

    /// Returns the types and sources that consumers want, except gateways, each once.
    pub(super) fn wanted_events(&self) -> BTreeSet<LatestKey> {
        let own = self.connections.values().filter(|connection| !connection.is_gateway && connection.ending.is_none());
        own.flat_map(|connection| connection.wanted.iter().map(event_key)).collect()
    }

    /// Returns the types and sources that suppliers publish, except gateways, each once.
    pub(super) fn published_events(&self) -> BTreeSet<LatestKey> {
        let own = self.suppliers.values().flatten().filter(|supplier| !supplier.is_gateway);
        own.flat_map(|supplier| supplier.publications.iter().map(event_key)).collect()
    }

    pub(super) fn statistics(&self, now: Nanos) -> ChannelStatistics {
        let (mut consumers, mut departed) = (Vec::new(), self.departed);
        for connection in self.connections.values() {
            let counts = DeliveryCounts { queued: connection.queue.len() as u64, ..connection.counts };
            if connection.ending.is_some() {
                departed.add(&counts);
                continue;
            }
            let is_suspended = connection.health.is_suspended(now);
            consumers.push(ConsumerStatistics { proxy: connection.proxy.0, counts, is_suspended });
        }
        consumers.sort_unstable_by_key(|consumer| consumer.proxy);
        ChannelStatistics {
            published: self.published,
            refused: self.refused,
            unpublished: self.unpublished,
            consumers,
            suppliers: self.suppliers.values().flatten().count(),
            departed,
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
        connection.counts.dropped.disconnected += connection.queue.clear();
        let peer = connection.peer.clone();
        if connection.transfer == Transfer::Queued {
            connection.ending = Some(is_called_back);
            return Some(Disconnected { peer, is_called_back: false });
        }
        self.forget(id);
        Some(Disconnected { peer, is_called_back })
    }

    /// Removes a connection that has ended, and keeps its counts.
    fn forget(&mut self, id: ConsumerId) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.queued_consumers -= usize::from(connection.transfer == Transfer::Queued);
        self.departed.add(&connection.counts);
    }
}

fn event_key(header: &EventHeader) -> LatestKey {
    (header.event_type.0, header.source.0)
}

/// Returns true if the publications permit an event. 0 matches everything on both sides.
fn publishes(publications: &[EventHeader], event: &EventHeader) -> bool {
    let matches = |published: i32, found: i32| published == 0 || found == 0 || published == found;
    publications.is_empty()
        || publications.iter().any(|publication| {
            matches(publication.event_type.0, event.event_type.0) && matches(publication.source.0, event.source.0)
        })
}

/// Hands a set to its consumer.
fn route<E: RoutedEvent, P: Clone>(
    connections: &mut HashMap<ConsumerId, Connection<E, P>>,
    config: &RouterConfig,
    id: ConsumerId,
    set: &[Occurrence<E>],
    routed: &mut Routed<E, P>,
) {
    let Some(connection) = connections.get_mut(&id) else { return };
    let counts = &mut connection.counts;
    counts.routed += 1;
    if connection.is_suspended {
        counts.dropped.suspended += 1;
        return;
    }
    let set = DeliverySet::of(set);
    if connection.transfer == Transfer::Direct {
        counts.delivered += 1;
        routed.direct.push(DirectDelivery { consumer: id, peer: connection.peer.clone(), set });
        return;
    }
    let (bytes, key) = (set.bytes(), set.key());
    let displaced = connection.queue.push(set, bytes, key, config.overflow, &config.queue);
    counts.dropped.queue_full += displaced.dropped;
    counts.dropped.replaced += displaced.replaced;
    if connection.transfer == Transfer::Pulled || std::mem::take(&mut connection.is_sender_idle) {
        routed.wake.push(connection.peer.clone());
    }
}
