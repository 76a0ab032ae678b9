//! The settings of a channel.

use std::sync::Arc;
use std::time::Duration;

use corelane::poa::{Poa, PoaPolicies};
use corelane::rt::RtPolicies;
use corelane::{Completion, ObjectRef, Orb, Reference, SystemException, SystemExceptionKind as Kind};
use corelane_sys::thread;

use super::{ChannelConfig, ChannelEnd, EventChannel, SharedChannel};
use crate::events::durable::{DurablePart, EventStore, Retention};
use crate::events::filter::{FilterBuilder, FilterLimits};
use crate::events::gateway::{Gateway, GatewayBuilder, OwnSource};
use crate::events::header::{EventSource, EventType};
use crate::events::health::MissPolicy;
use crate::events::keys::{FACTORY_KEY, MONITOR_KEY};
use crate::events::lanes::{EventLane, LaneTable};
use crate::events::queue::{OverflowPolicy, QueueLimits};
use crate::events::router::{ChannelLimits, RouterConfig};
use crate::events::schedule::{AdmissionRefusal, ChannelSchedule, RefusalListener, ScheduleConfig};
use crate::events::servants;
use crate::events::stored::{CosEvents, HEADER_BYTES};

/// Returns the plain keys of a channel: first for CORBA's Event Service, then for TAO's Real-time
/// Event Service.
pub(super) fn plain_keys(name: &str) -> [String; 2] {
    [name.to_owned(), format!("{name}.rtec")]
}

/// Returns true for a name whose plain keys are those of another object of a server, or of another
/// channel.
fn is_reserved(name: &str) -> bool {
    [FACTORY_KEY, MONITOR_KEY].contains(&name) || name.ends_with(".rtec")
}

const DEFAULT_NAME: &str = "EventChannel";
const MAX_NAME_BYTES: usize = 64;

/// The settings of an [`EventChannel`].
#[derive(Clone, Debug)]
pub struct EventChannelBuilder {
    name: String,
    router: RouterConfig,
    config: ChannelConfig,
    durable: Option<(EventStore, Retention)>,
    gateways: Vec<(ObjectRef, GatewayBuilder)>,
    /// True if clients may destroy the channel; `None` for the default: permitted, unless the
    /// channel is durable.
    is_destroyed_by_clients: Option<bool>,
    refusal_listener: RefusalListener,
    real_time: RtPolicies,
}

impl OwnSource for SharedChannel {
    fn is_destroyed(&self) -> bool {
        self.has_ended()
    }
}

impl Default for EventChannelBuilder {
    fn default() -> Self {
        let cos_events =
            CosEvents { event_type: EventType::FIRST_APPLICATION, source: EventSource::ANY, types: Default::default() };
        let config = ChannelConfig {
            filter_builder: FilterBuilder::default(),
            filter_limits: FilterLimits::default(),
            cos_events,
            lanes: LaneTable::default(),
            schedule: None,
            current: None,
            is_destroyed_by_clients: false,
            is_joined_by_clients: true,
            calls_back_after_own_disconnect: false,
            misses: MissPolicy::default(),
            pull_interval: Duration::from_millis(100),
            pull_timeout: Duration::from_secs(1),
            max_waiting_pulls: 2,
        };
        Self {
            name: DEFAULT_NAME.to_owned(),
            router: RouterConfig::default(),
            config,
            durable: None,
            gateways: Vec::new(),
            is_destroyed_by_clients: None,
            refusal_listener: RefusalListener::default(),
            real_time: RtPolicies::default(),
        }
    }
}

impl EventChannelBuilder {
    /// Sets the name: 1 to 64 ASCII letters, digits and characters `-_.`. The plain key `NAME`
    /// reaches the channel by CORBA's Event Service, and `NAME.rtec` by TAO's Real-time Event
    /// Service. Default: `EventChannel`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the rules by which the dependencies of consumers are read as filters. Default:
    /// [`FilterBuilder::Basic`].
    #[must_use]
    pub fn filter_builder(mut self, builder: FilterBuilder) -> Self {
        self.config.filter_builder = builder;
        self
    }

    /// Sets the bounds of each consumer's filter.
    #[must_use]
    pub fn filter_limits(mut self, limits: FilterLimits) -> Self {
        self.config.filter_limits = limits;
        self
    }

    /// Sets the bounds of the channel.
    #[must_use]
    pub fn limits(mut self, limits: ChannelLimits) -> Self {
        self.router.limits = limits;
        self
    }

    /// Sets the bounds of each queue of a consumer. Push consumers in the channel's process have
    /// queues only in a channel with [lanes](Self::lanes).
    #[must_use]
    pub fn queue_limits(mut self, limits: QueueLimits) -> Self {
        self.router.queue = limits;
        self
    }

    /// Sets the reaction to a full queue. Default: [`OverflowPolicy::DropOldest`].
    #[must_use]
    pub fn overflow_policy(mut self, policy: OverflowPolicy) -> Self {
        self.router.overflow = policy;
        self
    }

    /// Sets the lanes, at most 16, the most urgent first. A push consumer has a separate thread for
    /// each of its lanes, even in the channel's process; only gateways there have none. Default: no
    /// lanes. The supplier's thread then calls push consumers in the channel's process, and any
    /// other push consumer has one thread.
    ///
    /// The `rt_info` of dependencies and publications names a lane. A consumer that names lanes
    /// gets all its sets in the most urgent of these lanes. Any other consumer gets each event in
    /// the lane that the supplier names, or else in the lane of the event's type
    /// ([`EventLane::event_type`]), or else in the least urgent lane. An `rt_info` that names no
    /// lane is refused with BAD_PARAM; 0 names none.
    #[must_use]
    pub fn lanes(mut self, lanes: impl IntoIterator<Item = EventLane>) -> Self {
        self.config.lanes = LaneTable(lanes.into_iter().collect());
        self
    }

    /// Sets the real-time policies of the channel's objects, for example the lanes in which calls
    /// to the channel arrive ([`receive_lanes`](crate::events::receive_lanes)). Default: those of
    /// [`RtOrb::set_policies`](corelane::rt::RtOrb::set_policies).
    #[must_use]
    pub fn real_time(mut self, policies: RtPolicies) -> Self {
        self.real_time = policies;
        self
    }

    /// Sets the schedule. The `rt_info` of publications and dependencies then names an entry of the
    /// schedule instead of a lane; another number that is not 0 is refused with BAD_PARAM. A
    /// publication or consumer with which an admitted consumer would miss its deadline is refused
    /// with NO_RESOURCES ([`NOT_ADMITTED`](corelane::minor::NOT_ADMITTED)). Default: none.
    ///
    /// A consumer that names an entry gets each set in the lane that the publications of its events
    /// declare, and a set with a surplus or undeclared event in the least urgent lane. Any other
    /// consumer gets all sets in the least urgent lane. [`EventLane::event_type`] has no effect.
    #[must_use]
    pub fn schedule(mut self, schedule: ChannelSchedule) -> Self {
        self.config.schedule = Some(ScheduleConfig { schedule, listener: RefusalListener::default() });
        self
    }

    /// Sets a function that is called with each refusal of the [schedule](Self::schedule), in the
    /// thread of the refused call.
    #[must_use]
    pub fn on_refusal(mut self, listener: impl Fn(&AdmissionRefusal) + Send + Sync + 'static) -> Self {
        self.refusal_listener = RefusalListener(Some(Arc::new(listener)));
        self
    }

    /// Sets how long an event may wait in a queue before it is dropped. A set of several events
    /// lives as long as its longest-lived event. Default: without end.
    #[must_use]
    pub fn event_lifetime(mut self, lifetime: Duration) -> Self {
        self.router.lifetimes.default = Some(lifetime);
        self
    }

    /// Sets how long an event of this type may wait, in place of
    /// [`event_lifetime`](Self::event_lifetime).
    #[must_use]
    pub fn event_type_lifetime(mut self, event_type: EventType, lifetime: Duration) -> Self {
        self.router.lifetimes.by_type.insert(event_type, lifetime);
        self
    }

    /// Sets the reaction to peers that do not answer.
    #[must_use]
    pub fn miss_policy(mut self, policy: MissPolicy) -> Self {
        self.config.misses = policy;
        self.router.misses = policy;
        self
    }

    /// Permits connected consumers to connect again: the new consumer and its dependencies replace
    /// the old ones, and queued sets are dropped. Default: such a call raises AlreadyConnected.
    #[must_use]
    pub fn allow_consumer_reconnect(mut self, is_permitted: bool) -> Self {
        self.router.is_consumer_reconnected = is_permitted;
        self
    }

    /// Permits connected suppliers to connect again. Default: such a call raises AlreadyConnected.
    #[must_use]
    pub fn allow_supplier_reconnect(mut self, is_permitted: bool) -> Self {
        self.router.is_supplier_reconnected = is_permitted;
        self
    }

    /// Sets whether the disconnect operation of a peer is called if the peer itself disconnects
    /// from its proxy. Default: false; it is called only if the channel disconnects the peer
    /// because a queue is full ([`OverflowPolicy::Disconnect`]) or because the channel is
    /// destroyed.
    #[must_use]
    pub fn calls_back_after_own_disconnect(mut self, is_called: bool) -> Self {
        self.config.calls_back_after_own_disconnect = is_called;
        self
    }

    /// Permits the operation `destroy` of the channel to clients. Without permission it raises
    /// NO_PERMISSION; the program can still destroy the channel
    /// ([`EventChannel::destroy`], and the control object of an
    /// [`EventMonitor`](crate::events::EventMonitor)). Default: permitted, unless the channel is
    /// [durable](Self::durable).
    #[must_use]
    pub fn allow_destroy_by_clients(mut self, is_permitted: bool) -> Self {
        self.is_destroyed_by_clients = Some(is_permitted);
        self
    }

    /// Permits gateways of clients, which take the channel's events with their paths and bring
    /// events that have come through other channels. Without permission such calls raise
    /// NO_PERMISSION; gateways in the channel's process stay permitted. Default: permitted. A
    /// client that is not a gateway can misuse the permission. If it brings events under the
    /// identity of another channel, the channel drops later events of that other channel as
    /// duplicates.
    #[must_use]
    pub fn allow_gateways_by_clients(mut self, is_permitted: bool) -> Self {
        self.config.is_joined_by_clients = is_permitted;
        self
    }

    /// Sets the type and source that the channel gives to events of CORBA's Event Service, which
    /// have neither. Default: the type 16, and the source 0, which every filter for this type
    /// accepts.
    #[must_use]
    pub fn cos_events(mut self, event_type: EventType, source: EventSource) -> Self {
        self.config.cos_events.event_type = event_type;
        self.config.cos_events.source = source;
        self
    }

    /// Sets the type of events of CORBA's Event Service whose value has this repository id.
    #[must_use]
    pub fn cos_event_type(mut self, repository_id: impl Into<String>, event_type: EventType) -> Self {
        self.config.cos_events.types.insert(repository_id.into(), event_type);
        self
    }

    /// Sets the time for which `pull` waits for an event before it raises TRANSIENT. Default: 1 s.
    #[must_use]
    pub fn pull_timeout(mut self, timeout: Duration) -> Self {
        self.config.pull_timeout = timeout;
        self
    }

    /// Sets the interval at which the channel asks a pull supplier that had no event. Default: 100
    /// ms.
    #[must_use]
    pub fn pull_interval(mut self, interval: Duration) -> Self {
        self.config.pull_interval = interval;
        self
    }

    /// Sets the maximum number of threads of the ORB that wait in `pull`. At the maximum, `pull`
    /// does not wait: if there is no event, it raises TRANSIENT. The bound of `events_after` of a
    /// durable channel is that of its store,
    /// [`max_waiting_readers`](field@crate::events::EventStoreLimits::max_waiting_readers).
    /// Default: 2.
    #[must_use]
    pub fn max_waiting_pulls(mut self, threads: usize) -> Self {
        self.config.max_waiting_pulls = threads;
        self
    }

    /// Keeps the channel's events in a store, under the channel's name. The channel's reference for
    /// CORBA's Event Service is then a `CorelaneEvents::DurableChannel`: `push` of a push supplier,
    /// and `publish`, return when the event is on the disk. Events of TAO's service, and pulled
    /// ones, are stored without acknowledgement. The delivery of an event does not wait for its
    /// commit. Default: none.
    ///
    /// Threads of the ORB that serve requests wait for the disk, at most as many as
    /// [`EventStoreLimits`](crate::events::EventStoreLimits) says; further requests raise
    /// TRANSIENT. [`Dispatch::ThreadPerConnection`](corelane::Dispatch::ThreadPerConnection) lets
    /// all suppliers share commits, and keeps the order of each supplier whose connection has a
    /// thread. The names `omniEvents` and `CorelaneEvents`, and those that end with `.rtec`, are
    /// not permitted for durable channels, because other objects of a server have these plain keys.
    #[must_use]
    pub fn durable(mut self, store: &EventStore, retention: Retention) -> Self {
        self.durable = Some((store.clone(), retention));
        self
    }

    /// Adds a gateway that passes the channel's events to another channel, for the consumers there.
    /// The gateway has the channel's lanes, and ends with the channel. [`EventChannel::gateways`]
    /// returns it.
    #[must_use]
    pub fn gateway(mut self, to: &impl Reference, settings: GatewayBuilder) -> Self {
        self.gateways.push((to.as_object().clone(), settings));
        self
    }

    pub(in crate::events) fn max_queued_sets(mut self, count: usize) -> Self {
        self.router.queue.max_delivery_sets = count;
        self
    }

    pub(in crate::events) fn max_consumers(mut self, count: usize) -> Self {
        self.router.limits.max_consumers = count;
        self
    }

    /// Serves the channel in an ORB until the ORB ends or the channel is destroyed.
    ///
    /// # Errors
    /// BAD_PARAM for an invalid name, for invalid lanes or an invalid schedule, and if a plain key
    /// of the channel is already bound; NO_RESOURCES if the system refuses a thread;
    /// DATA_CONVERSION if it refuses the priority of a lane; NO_RESOURCES, INTERNAL or TIMEOUT if
    /// the store of a durable channel fails; IMP_LIMIT if the store has too many channels; other
    /// errors of the ORB.
    pub fn serve(mut self, orb: &Orb) -> Result<EventChannel, SystemException> {
        let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || !self.name.bytes().all(is_plain) {
            let reason = format!("a channel's name has 1 to {MAX_NAME_BYTES} letters, digits and characters -_.");
            return Err(SystemException::new(Kind::BadParam, 0, Completion::No).with_message(reason));
        }
        if self.durable.is_some() && is_reserved(&self.name) {
            let reason = "a durable channel has no name that ends with .rtec, and none of a server's other plain keys";
            return Err(SystemException::new(Kind::BadParam, 0, Completion::No).with_message(reason));
        }
        self.config.is_destroyed_by_clients = self.is_destroyed_by_clients.unwrap_or(self.durable.is_none());
        self.config.lanes.check(orb)?;
        self.config.current = Some(orb.real_time().current()?);
        self.router.lanes = self.config.lanes.len();
        match &mut self.config.schedule {
            Some(ScheduleConfig { schedule, listener }) => {
                *listener = self.refusal_listener.clone();
                let max_queued = self.router.queue.max_bytes.saturating_sub(HEADER_BYTES);
                schedule.check(&self.config.lanes.rt_infos(), max_queued).map_err(|error| {
                    SystemException::new(Kind::BadParam, 0, Completion::No).with_message(error.to_string())
                })?;
                self.router.surplus = Some(schedule.chosen_surplus_policy());
            }
            None => self.router.lane_of_type = self.config.lanes.by_type(),
        }
        let name = format!("CorelaneEvents {}", self.name);
        let poa = orb.root_poa().create_rt_poa(&name, None, PoaPolicies::default(), &self.real_time)?;
        let keys = plain_keys(&self.name);
        let served = self.serve_in(orb, &poa, &keys);
        if served.is_err() {
            let _ = poa.destroy(false, false);
        }
        served
    }

    fn serve_in(self, orb: &Orb, poa: &Poa, keys: &[String; 2]) -> Result<EventChannel, SystemException> {
        let durable = self.durable.map(|(store, retention)| DurablePart::new(store, retention));
        let lanes = self.config.lanes.clone();
        let shared = Arc::new(SharedChannel::new(self.name, self.router, self.config, poa.clone(), durable));
        // The drop of this value ends the threads if an error follows.
        let end = ChannelEnd(Arc::clone(&shared));
        let (timeouts, callbacks) = (Arc::clone(&shared), Arc::clone(&shared));
        thread::ThreadBuilder::new()
            .name("events/time")
            .spawn(move || timeouts.run_timeouts())
            .and_then(|_| thread::ThreadBuilder::new().name("events/admin").spawn(move || callbacks.run_callbacks()))
            .map_err(|error| {
                SystemException::new(Kind::NoResources, 0, Completion::No).with_message(error.to_string())
            })?;
        let cos = servants::cos::activate(&shared)?;
        let rtec = servants::rtec::activate(&shared, end)?;
        orb.bind_corbaloc_key(&keys[0], cos.as_object())?;
        let bound = orb.bind_corbaloc_key(&keys[1], rtec.as_object()).and_then(|()| {
            shared.open_and_activate().inspect_err(|_| {
                orb.unbind_corbaloc_key(&keys[1]);
            })
        });
        let is_new = bound.inspect_err(|_| {
            orb.unbind_corbaloc_key(&keys[0]);
        })?;
        shared.has_bound_keys();
        let mut gateways: Vec<Gateway> = Vec::new();
        for (to, settings) in self.gateways {
            let own_source = Arc::downgrade(&shared);
            match settings.with_lane_table(lanes.clone()).ends_with(own_source).serve(orb, &rtec, &to) {
                Ok(gateway) => gateways.push(gateway),
                Err(exception) => {
                    gateways.iter().for_each(Gateway::stop);
                    if is_new {
                        // Ignores an error: if the store fails, it still has the record of the
                        // channel, which a later start finds.
                        let _ = shared.remove_stored();
                    }
                    shared.end(false);
                    return Err(exception);
                }
            }
        }
        Ok(EventChannel { shared, rtec, cos, gateways: gateways.into() })
    }
}
