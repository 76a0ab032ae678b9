//! A channel among others: its identity, the gateways that take its events, and the events that
//! gateways bring.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use corelane::{SystemException, SystemExceptionKind as Kind};
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::process;

use super::{ConnectFailure, SharedChannel, disconnected, system};
use crate::events::designator::Designator;
use crate::events::filter::{EventFilter, FilterBuilder, FilterLimits};
use crate::events::gateway::demand::{self, Demand, MAX_ALL_WANTED, MAX_DEMANDS, MAX_WANTED};
use crate::events::gateway::outlet::{ChannelIdentity, GatewayPeer};
use crate::events::gateway::passage::{MAX_PATH, Passage};
use crate::events::gateway::seen::{Arrival, SeenEvents};
use crate::events::header::{EventHeader, EventSource, EventType};
use crate::events::idl::corelane_events::{
    AcceptedEvents, ChannelDemand, ChannelGateway, EventKey, GatewayConsumerRef, GatewayOutletRef, GatewayState,
    PassingEvent,
};
use crate::events::peer::{Peer, PeerObject};
use crate::events::router::{ProxyId, Publication, PushRefusal, SupplierConnection};
use crate::events::stored::{StoredEvent, event_header};

const MAX_GATEWAYS: usize = 64;
const MAX_DESTINATION: usize = 200;

pub(in crate::events) struct Federation {
    identity: Arc<ChannelIdentity>,
    /// The lock is not held while another lock is taken.
    known: PiMutex<Known>,
}

#[derive(Default)]
struct Known {
    seen: SeenEvents,
    /// The gateways by their proxies, including gateways whose connection has ended.
    outlets: BTreeMap<ProxyId, Outlet>,
    /// The suppliers of the events that gateways bring, by the lane that the events name.
    inlets: HashMap<i32, ProxyId>,
}

struct Outlet {
    gateway: GatewayConsumerRef,
    demands: Arc<[Demand]>,
    state: GatewayState,
}

impl Known {
    /// Removes the outlets of a gateway. Returns their proxies.
    fn remove(&mut self, gateway: &GatewayConsumerRef) -> Vec<ProxyId> {
        let removed = self.outlets.extract_if(.., |_, outlet| outlet.gateway.is_equivalent(gateway));
        removed.map(|(proxy, _)| proxy).collect()
    }

    /// Adds an outlet, which replaces the other outlets of its gateway. Returns the proxies of the
    /// replaced outlets; `None` if the channel has its maximum number of gateways.
    fn add(&mut self, proxy: ProxyId, outlet: Outlet) -> Option<Vec<ProxyId>> {
        let earlier = self.remove(&outlet.gateway);
        if self.outlets.len() >= MAX_GATEWAYS {
            return None;
        }
        self.outlets.insert(proxy, outlet);
        Some(earlier)
    }
}

impl Federation {
    pub(super) fn new() -> Self {
        // If the kernel gives no random number, the time tells the runs of a channel apart.
        let random = process::random_number().unwrap_or_else(|_| SharedChannel::now());
        Self {
            identity: Arc::new(ChannelIdentity::new(random.max(1))),
            known: PiMutex::new("gateways of a channel", LockScope::Lane, Known::default()),
        }
    }
}

/// Builds the filter of a gateway: a disjunction of the types and sources.
fn filter(own: u64, demands: &[Demand], limits: &FilterLimits) -> Result<EventFilter, ConnectFailure> {
    let wanted = demand::subscription(own, demands);
    let count = i32::try_from(wanted.len()).unwrap_or(i32::MAX);
    let head = EventHeader::new(Designator::Disjunction.event_type(), EventSource(count));
    let events =
        wanted.into_iter().map(|(event_type, source)| EventHeader::new(EventType(event_type), EventSource(source)));
    let headers: Vec<EventHeader> = std::iter::once(head).chain(events).collect();
    EventFilter::build(FilterBuilder::Basic, &headers, limits).map_err(ConnectFailure::InvalidFilter)
}

fn demands_of(demands: &[ChannelDemand]) -> Result<Arc<[Demand]>, SystemException> {
    let is_bounded = |demand: &ChannelDemand| demand.path.len() <= MAX_PATH && demand.wanted.len() <= MAX_WANTED;
    let wanted: usize = demands.iter().map(|demand| demand.wanted.len()).sum();
    if demands.len() > MAX_DEMANDS || wanted > MAX_ALL_WANTED || !demands.iter().all(is_bounded) {
        return Err(system(Kind::ImpLimit, "the demands are too many or too long"));
    }
    let demand = |demand: &ChannelDemand| Demand {
        path: demand.path.clone(),
        wanted: demand.wanted.iter().map(|key| (key.event_type, key.source)).collect(),
    };
    Ok(demands.iter().map(demand).collect())
}

impl SharedChannel {
    pub(in crate::events) fn channel_number(&self) -> u64 {
        self.federation.identity.id
    }

    /// Returns the demand of the channel's consumers, and of those behind its gateways.
    pub(in crate::events) fn demands(&self) -> Vec<ChannelDemand> {
        let mut known: Vec<(ProxyId, Arc<[Demand]>)> = {
            let known = self.federation.known.lock();
            known.outlets.iter().map(|(proxy, outlet)| (*proxy, Arc::clone(&outlet.demands))).collect()
        };
        let mut wanted = {
            let state = self.state.lock();
            known.retain(|(proxy, _)| state.router.connection(*proxy).is_some());
            state.router.wanted_events()
        };
        // Each channel makes its own gap events, so gateways do not pass them.
        wanted.retain(|(event_type, _)| *event_type != EventType::GAP.0);
        let behind = known.iter().map(|(_, demands)| &demands[..]);
        let key = |(event_type, source): (i32, i32)| EventKey { event_type, source };
        let demand =
            |demand: Demand| ChannelDemand { path: demand.path, wanted: demand.wanted.into_iter().map(key).collect() };
        demand::reported(self.channel_number(), wanted, behind).into_iter().map(demand).collect()
    }

    /// Connects a gateway. `outlet` makes the servant of the returned reference. An earlier
    /// connection of this gateway ends, because a gateway connects again after it has lost the
    /// answer to a call.
    pub(in crate::events) fn open_outlet(
        self: &Arc<Self>,
        gateway: &GatewayConsumerRef,
        demands: &[ChannelDemand],
        outlet: impl FnOnce(ProxyId) -> corelane::Servant,
    ) -> Result<GatewayOutletRef, ConnectFailure> {
        let demands = demands_of(demands)?;
        let filter = filter(self.channel_number(), &demands, &self.config.filter_limits)?;
        self.forget_ended_outlets();
        // The earlier connection ends first, because its proxy counts for the channel's maximum.
        let earlier = self.federation.known.lock().remove(gateway);
        self.disconnect_all(earlier);
        let mut opened = None;
        let reference = self.obtain_consumer(|proxy| {
            opened = Some(proxy);
            outlet(proxy)
        })?;
        let proxy = opened.ok_or_else(disconnected)?;
        let peer = || {
            let (identity, lanes) = (Arc::clone(&self.federation.identity), self.config.lanes.rt_infos());
            Ok(Peer::new(PeerObject::Gateway(GatewayPeer { consumer: gateway.clone(), identity, lanes })))
        };
        let entry = Outlet { gateway: gateway.clone(), demands, state: GatewayState::default() };
        let added = self.federation.known.lock().add(proxy, entry);
        let Some(earlier) = added else {
            self.close_outlet(proxy);
            return Err(system(Kind::ImpLimit, format!("a channel has at most {MAX_GATEWAYS} gateways")).into());
        };
        self.disconnect_all(earlier);
        let connected = self.connect_consumer(proxy, peer, false, filter, (true, &[]));
        if connected.is_err() {
            self.close_outlet(proxy);
        }
        connected.map(|()| reference)
    }

    fn disconnect_all(&self, proxies: Vec<ProxyId>) {
        for proxy in proxies {
            self.disconnect_consumer(proxy, false);
        }
    }

    /// Removes the gateways whose connections the channel has ended.
    fn forget_ended_outlets(&self) {
        let proxies: Vec<ProxyId> = self.federation.known.lock().outlets.keys().copied().collect();
        let ended: Vec<ProxyId> = {
            let state = self.state.lock();
            proxies.into_iter().filter(|proxy| !state.router.has_consumer(*proxy)).collect()
        };
        let mut known = self.federation.known.lock();
        known.outlets.retain(|proxy, _| !ended.contains(proxy));
    }

    pub(in crate::events) fn set_demands(
        &self,
        proxy: ProxyId,
        demands: &[ChannelDemand],
    ) -> Result<(), ConnectFailure> {
        let demands = demands_of(demands)?;
        let filter = filter(self.channel_number(), &demands, &self.config.filter_limits)?;
        match self.federation.known.lock().outlets.get_mut(&proxy) {
            Some(outlet) => outlet.demands = demands,
            None => return Err(disconnected().into()),
        }
        let mut state = self.state.lock();
        let is_connected = state.router.replace_filter(proxy, filter, Self::now())?;
        self.tell_observers(&mut state);
        if is_connected { Ok(()) } else { Err(disconnected().into()) }
    }

    pub(in crate::events) fn note_gateway(
        &self,
        proxy: ProxyId,
        reported: &GatewayState,
    ) -> Result<(), SystemException> {
        let is_connected = self.state.lock().router.connection(proxy).is_some();
        let mut known = self.federation.known.lock();
        let outlet = known.outlets.get_mut(&proxy).filter(|_| is_connected).ok_or_else(disconnected)?;
        let destination = reported.destination.chars().take(MAX_DESTINATION).collect();
        outlet.state = GatewayState { destination, ..reported.clone() };
        Ok(())
    }

    pub(in crate::events) fn close_outlet(&self, proxy: ProxyId) -> bool {
        self.federation.known.lock().outlets.remove(&proxy);
        self.disconnect_consumer(proxy, false)
    }

    /// Returns the states that at most `max` connected gateways have reported: those with the
    /// lowest numbers above `proxy`.
    pub(in crate::events) fn gateways_after(&self, proxy: u64, max: usize) -> Vec<ChannelGateway> {
        self.forget_ended_outlets();
        let known = self.federation.known.lock();
        let gateway =
            |(proxy, outlet): (&ProxyId, &Outlet)| ChannelGateway { proxy: proxy.0, state: outlet.state.clone() };
        let later = known.outlets.range((Bound::Excluded(ProxyId(proxy)), Bound::Unbounded));
        later.map(gateway).take(max).collect()
    }

    /// Routes the events that a gateway brings. Leaves out duplicates, and counts events that are
    /// invalid, too old or on a path that is too long as refused. Raises TRANSIENT if too many
    /// events wait for the disk: the gateway then sends the events again.
    pub(in crate::events) fn accept(&self, events: &[PassingEvent]) -> Result<AcceptedEvents, SystemException> {
        let mut accepted = AcceptedEvents::default();
        for PassingEvent { path, number, lane, event } in events {
            if event_header(&event.header).check().is_err() || path.len() > MAX_PATH {
                accepted.refused += 1;
                continue;
            }
            // An event that cannot be routed may come again, so it must not count as known.
            // Therefore the inlet is found first.
            let inlet = self.inlet(*lane)?;
            if let Some(durable) = &self.durable {
                durable.check_room()?;
            }
            let now = Self::now();
            let stored = match path.first() {
                None => StoredEvent::new(event, now),
                Some(origin) => {
                    let is_own = path.contains(&self.channel_number());
                    let arrival = if is_own {
                        Arrival::Duplicate
                    } else {
                        self.federation.known.lock().seen.note(*origin, *number)
                    };
                    match arrival {
                        Arrival::New => {}
                        Arrival::Duplicate => {
                            accepted.duplicates += 1;
                            continue;
                        }
                        Arrival::TooOld => {
                            accepted.refused += 1;
                            continue;
                        }
                    }
                    let path = path.iter().copied().chain([self.channel_number()]).collect();
                    StoredEvent::passed(event, Passage { path, number: *number }, now)
                }
            };
            match self.push(inlet, std::iter::once(stored)) {
                Ok(()) => {}
                Err(PushRefusal::Header(_)) => accepted.refused += 1,
                Err(PushRefusal::NoProxy | PushRefusal::NotConnected) => return Err(disconnected()),
            }
        }
        Ok(accepted)
    }

    /// Returns the supplier of the events that gateways bring in this lane. For a lane that the
    /// channel does not have, returns the supplier whose events get the lane of their type.
    fn inlet(&self, lane: i32) -> Result<ProxyId, SystemException> {
        let index = self.config.lanes.most_urgent(std::iter::once(lane)).unwrap_or_default();
        let lane = if index.is_some() { lane } else { 0 };
        if let Some(inlet) = self.federation.known.lock().inlets.get(&lane) {
            return Ok(*inlet);
        }
        let added = {
            let mut state = self.state.lock();
            if state.has_ended {
                return Err(disconnected());
            }
            let proxy = state.router.add_supplier();
            let proxy = proxy.ok_or_else(|| system(Kind::ImpLimit, "the channel has too many proxies"))?;
            let header = EventHeader::new(EventType::ANY, EventSource::ANY);
            let supplier = SupplierConnection {
                peer: Peer::new(PeerObject::Nil),
                publications: [Publication { header, lane: index, declared: None }].into(),
                is_gateway: true,
                is_pulled: false,
            };
            state.router.connect_supplier(proxy, supplier, Self::now()).map_err(|_| disconnected())?;
            proxy
        };
        let mut known = self.federation.known.lock();
        let inlet = *known.inlets.entry(lane).or_insert(added);
        drop(known);
        if inlet != added {
            self.disconnect_supplier(added, false);
        }
        Ok(inlet)
    }
}
