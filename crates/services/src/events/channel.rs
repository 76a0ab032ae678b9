//! An event channel in operation: the router behind a lock, and the threads that send, pull,
//! deliver timeouts and call back.
//!
//! The lock is not held during calls, activations and deactivations.

mod admission;
mod builder;
mod callbacks;
mod durable;
mod federation;
mod pulling;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::poa::{ObjectId, Poa};
use corelane::rt::RtCurrent;
use corelane::{Completion, Reference, Servant, SystemException, SystemExceptionKind as Kind};
use corelane_sched::task::Nanos;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex, PiCondvar, PiMutex, PiMutexGuard};
use corelane_sys::{counters, thread};

use super::counts::{ChannelStatistics, ChannelSummary, ConsumerStatistics, SurplusCounts};
use super::durable::DurablePart;
use super::filter::{EventFilter, FilterBuilder, FilterError, FilterLimits};
use super::gateway::Gateway;
use super::header::EventHeader;
use super::health::MissPolicy;
use super::idl::{cos_event_channel_admin as cos_admin, rtec_event_channel_admin as rtec_admin};
use super::lanes::LaneTable;
use super::peer::{ImmediatePush, Peer};
use super::router::{
    CallResult, ConnectRefusal, DeliverySet, DirectDelivery, Disconnected, Handover, ImmediateDelivery, NewConsumer,
    ProxyId, Publication, PushRefusal, Routed, RoutedEvent, Router, RouterConfig, SenderId, SenderStep,
    SupplierConnection, Transfer,
};
use super::schedule::{AdmissionRefusal, Refusals, ScheduleConfig};
use super::stored::{CosEvents, PushedEvent, StoredEvent};
use super::subscriptions::ConsumerId;

pub use self::builder::EventChannelBuilder;
use self::callbacks::Callbacks;
use self::federation::Federation;

const MAX_NESTED_PUSHES: u32 = 8;

const MAX_SPARE_EVENTS: usize = 64;

type ChannelRouted = Routed<Arc<StoredEvent>, Arc<Peer>>;

thread_local! {
    /// The empty lists of the thread's last push or expiry, whose memory the next push or expiry
    /// uses.
    static ROUTED: Cell<Option<Box<ChannelRouted>>> = const { Cell::new(None) };
    /// An event without content, whose memory the thread's next push uses.
    static SPARE_EVENT: Cell<Option<Arc<StoredEvent>>> = const { Cell::new(None) };
    static NESTED_PUSHES: Cell<u32> = const { Cell::new(0) };
}

pub(super) type ChannelRouter = Router<Arc<StoredEvent>, Arc<Peer>>;

type Removed = (Option<ObjectId>, Disconnected<Arc<Peer>>);

#[derive(Clone, Debug)]
pub(super) struct ChannelConfig {
    pub(super) filter_builder: FilterBuilder,
    pub(super) filter_limits: FilterLimits,
    pub(super) cos_events: CosEvents,
    /// The lanes of the channel. If there are none, the supplier's thread calls the push consumers
    /// of this process.
    pub(super) lanes: LaneTable,
    schedule: Option<ScheduleConfig>,
    pub(super) current: Option<RtCurrent>,
    pub(super) is_destroyed_by_clients: bool,
    pub(super) is_joined_by_clients: bool,
    pub(super) calls_back_after_own_disconnect: bool,
    pub(super) misses: MissPolicy,
    pub(super) pull_interval: Duration,
    pub(super) pull_timeout: Duration,
    pub(super) max_waiting_pulls: usize,
}

struct ChannelState {
    router: ChannelRouter,
    objects: HashMap<ProxyId, ObjectId>,
    callbacks: Callbacks,
    waiting_pulls: usize,
    spare_events: Vec<Arc<StoredEvent>>,
    has_keys: bool,
    has_ended: bool,
}

pub(super) struct SharedChannel {
    name: String,
    /// Threads of any priority take the lock, so it lends its holder the priority of the waiting
    /// threads.
    state: PiMutex<ChannelState>,
    /// Wakes the thread `events/time`.
    timeout_added: PiCondvar,
    /// Wakes the thread `events/admin`.
    callback_due: PiCondvar,
    /// True after the first consumer with a queue has been connected. The sizes of events are then
    /// computed before the lock is taken.
    has_queues: AtomicBool,
    /// Held from the analysis of a peer until the peer is connected, and taken before `state`.
    admission: Mutex<()>,
    /// The latest refusals. The lock is never held during an analysis, which can take long.
    refusals: Mutex<Refusals>,
    pub(super) config: ChannelConfig,
    pub(super) poa: Poa,
    pub(super) durable: Option<DurablePart>,
    pub(super) federation: Federation,
}

fn system(kind: Kind, why: impl Into<String>) -> SystemException {
    SystemException::new(kind, 0, Completion::No).with_message(why.into())
}

pub(super) fn disconnected() -> SystemException {
    system(Kind::ObjectNotExist, "the proxy is disconnected, or the channel destroyed")
}

pub(super) enum ConnectFailure {
    AlreadyConnected,
    InvalidFilter(FilterError),
    System(SystemException),
}

impl From<SystemException> for ConnectFailure {
    fn from(exception: SystemException) -> Self {
        Self::System(exception)
    }
}

impl From<ConnectRefusal> for ConnectFailure {
    fn from(refusal: ConnectRefusal) -> Self {
        match refusal {
            ConnectRefusal::NoProxy => disconnected().into(),
            ConnectRefusal::AlreadyConnected => Self::AlreadyConnected,
            ConnectRefusal::Full(error) => system(Kind::ImpLimit, error.to_string()).into(),
            ConnectRefusal::TooManySenders(max) => {
                system(Kind::ImpLimit, format!("the channel may have {max} threads that send")).into()
            }
            ConnectRefusal::TooManyPulledSuppliers(max) => {
                system(Kind::ImpLimit, format!("the channel pulls from at most {max} suppliers")).into()
            }
        }
    }
}

impl SharedChannel {
    fn new(name: String, router: RouterConfig, config: ChannelConfig, poa: Poa, durable: Option<DurablePart>) -> Self {
        let state = ChannelState {
            router: Router::new(router),
            objects: HashMap::new(),
            callbacks: Callbacks::default(),
            waiting_pulls: 0,
            spare_events: Vec::with_capacity(MAX_SPARE_EVENTS),
            has_keys: false,
            has_ended: false,
        };
        Self {
            name,
            state: PiMutex::new("event channel", LockScope::Lane, state),
            timeout_added: PiCondvar::new(),
            callback_due: PiCondvar::new(),
            has_queues: AtomicBool::new(false),
            admission: Mutex::new("event admission", LockScope::Orb, ()),
            refusals: Mutex::new("refused admissions", LockScope::Orb, Refusals::default()),
            config,
            poa,
            durable,
            federation: Federation::new(),
        }
    }

    pub(super) fn now() -> Nanos {
        Monotonic::now().as_nanos()
    }

    pub(super) fn obtain_consumer<R: Reference>(
        &self,
        servant: impl FnOnce(ProxyId) -> Servant,
    ) -> Result<R, SystemException> {
        self.obtain(ChannelRouter::add_consumer, servant)
    }

    pub(super) fn obtain_supplier<R: Reference>(
        &self,
        servant: impl FnOnce(ProxyId) -> Servant,
    ) -> Result<R, SystemException> {
        self.obtain(ChannelRouter::add_supplier, servant)
    }

    fn obtain<R: Reference>(
        &self,
        add: impl FnOnce(&mut ChannelRouter) -> Option<ProxyId>,
        servant: impl FnOnce(ProxyId) -> Servant,
    ) -> Result<R, SystemException> {
        let proxy = {
            let mut state = self.state.lock();
            if state.has_ended {
                return Err(disconnected());
            }
            add(&mut state.router).ok_or_else(|| system(Kind::ImpLimit, "the channel has too many proxies"))?
        };
        let activated = (|| {
            let id = self.poa.activate_object(&servant(proxy))?;
            Ok::<_, SystemException>((self.poa.id_to_reference(&id)?, id))
        })();
        let mut state = self.state.lock();
        let (reference, id) = match activated {
            Ok(activated) if !state.has_ended => activated,
            activated => {
                state.router.remove_consumer(proxy, false);
                state.router.remove_supplier(proxy, Self::now());
                drop(state);
                let (_, id) = activated?;
                self.deactivate(Some(id));
                return Err(disconnected());
            }
        };
        state.objects.insert(proxy, id);
        Ok(R::from_object(reference))
    }

    pub(super) fn filter(&self, dependencies: &[EventHeader]) -> Result<EventFilter, FilterError> {
        EventFilter::build(self.config.filter_builder, dependencies, &self.config.filter_limits)
    }

    /// Connects a consumer. `peer` makes a peer for each queue; the queues of a pull consumer share
    /// one peer. `rt_infos` are the numbers by which the consumer names lanes. A push consumer in
    /// this process is called directly if the channel has no lanes or the consumer is a gateway.
    pub(super) fn connect_consumer(
        self: &Arc<Self>,
        proxy: ProxyId,
        peer: impl Fn() -> Result<Arc<Peer>, SystemException>,
        is_pulled: bool,
        filter: EventFilter,
        (is_gateway, rt_infos): (bool, &[i32]),
    ) -> Result<(), ConnectFailure> {
        let first = peer()?;
        // A gateway in this process only puts the event into a buffer, so the gateway is called
        // directly even in a channel with lanes.
        let is_direct = first.is_collocated() && (self.config.lanes.is_empty() || first.is_gateway());
        let transfer = match (is_pulled, is_direct) {
            (true, _) => Transfer::Pulled,
            (false, true) => Transfer::Direct,
            (false, false) => Transfer::Queued,
        };
        if transfer != Transfer::Direct {
            self.has_queues.store(true, Ordering::Relaxed);
        }
        let filter = Arc::new(filter);
        let declared = self.declared_handling(proxy, is_gateway, rt_infos, &filter)?;
        let count = self.config.lanes.len().max(1);
        let lanes = match &self.config.schedule {
            Some(_) if declared.is_some() => 0..count,
            Some(_) => count - 1..count,
            None => match self.config.lanes.most_urgent(rt_infos.iter().copied())? {
                Some(lane) => lane..lane + 1,
                None => 0..count,
            },
        };
        let mut queues = vec![(lanes.start, first)];
        for lane in lanes.skip(1) {
            // A pull consumer waits for all its queues at once, so they share a peer.
            let peer = if is_pulled { Arc::clone(&queues[0].1) } else { peer()? };
            queues.push((lane, peer));
        }
        let admission = self.admit_consumer(proxy, declared.as_deref())?;
        let consumer = NewConsumer { queues: queues.clone(), transfer, filter, is_gateway, declared };
        let mut state = self.state.lock();
        let (id, replaced) = state.router.connect_consumer(proxy, consumer, Self::now())?;
        self.timeout_added.notify_all();
        self.tell_observers(&mut state);
        drop(state);
        drop(admission);
        self.finish(replaced);
        if transfer == Transfer::Queued { self.start_senders(proxy, id, queues) } else { Ok(()) }
    }

    fn start_senders(
        self: &Arc<Self>,
        proxy: ProxyId,
        consumer: ConsumerId,
        queues: Vec<(usize, Arc<Peer>)>,
    ) -> Result<(), ConnectFailure> {
        let count = queues.len();
        for (queue, (lane, peer)) in queues.into_iter().enumerate() {
            let shared = Arc::clone(self);
            let lane_name = if self.config.lanes.is_empty() { String::new() } else { format!("l{lane}") };
            let name = format!("events/s{}{lane_name}", proxy.0);
            let spawned = thread::ThreadBuilder::new()
                .name(name)
                .spawn(move || shared.run_sender(SenderId { consumer, queue }, lane, &peer));
            if let Err(error) = spawned {
                self.disconnect_consumer(proxy, false);
                // The remaining queues have no senders to end them, so this loop ends them.
                let mut state = self.state.lock();
                for queue in queue..count {
                    state.router.next_step(SenderId { consumer, queue }, Self::now());
                }
                return Err(system(Kind::NoResources, format!("no thread for the consumer: {error}")).into());
            }
        }
        Ok(())
    }

    pub(super) fn connect_supplier(
        &self,
        proxy: ProxyId,
        peer: Arc<Peer>,
        publications: Box<[Publication]>,
        is_gateway: bool,
    ) -> Result<(), ConnectFailure> {
        self.add_supplier(proxy, SupplierConnection { peer, publications, is_gateway, is_pulled: false })
    }

    fn add_supplier(&self, proxy: ProxyId, supplier: SupplierConnection<Arc<Peer>>) -> Result<(), ConnectFailure> {
        let _admission = self.admit_supplier(proxy, &supplier.publications)?;
        let mut state = self.state.lock();
        if let Some(replaced) = state.router.connect_supplier(proxy, supplier, Self::now())? {
            replaced.wake.notify_all();
        }
        self.tell_observers(&mut state);
        Ok(())
    }

    /// Removes the proxy of a consumer. Returns false if there is no such proxy. `is_own` is true
    /// if the consumer itself asks to be disconnected.
    pub(super) fn disconnect_consumer(&self, proxy: ProxyId, is_own: bool) -> bool {
        let mut state = self.state.lock();
        let is_called_back = is_own && self.config.calls_back_after_own_disconnect;
        let Some(peer) = state.router.remove_consumer(proxy, is_called_back) else { return false };
        let object = state.objects.remove(&proxy);
        self.tell_observers(&mut state);
        drop(state);
        self.deactivate(object);
        self.finish(peer);
        true
    }

    pub(super) fn disconnect_supplier(&self, proxy: ProxyId, is_own: bool) -> bool {
        let mut state = self.state.lock();
        let Some(peer) = state.router.remove_supplier(proxy, Self::now()) else { return false };
        let object = state.objects.remove(&proxy);
        self.tell_observers(&mut state);
        drop(state);
        self.deactivate(object);
        let is_called_back = is_own && self.config.calls_back_after_own_disconnect;
        self.finish(peer.map(|peer| Disconnected { peers: vec![peer], is_called_back }));
        true
    }

    pub(super) fn set_suspended(&self, proxy: ProxyId, is_suspended: bool) -> Result<(), SystemException> {
        match self.state.lock().router.set_suspended(proxy, is_suspended) {
            None => Err(disconnected()),
            Some(false) => Err(system(Kind::BadInvOrder, "no consumer is connected")),
            Some(true) => Ok(()),
        }
    }

    /// Routes the events of a supplier in their order, and calls the direct consumers. Returns the
    /// first refusal, which does not stop the later events.
    pub(super) fn push(&self, supplier: ProxyId, events: impl Iterator<Item: PushedEvent>) -> Result<(), PushRefusal> {
        if let Some(durable) = &self.durable {
            let events = events.map(|event| StoredEvent::new(event, Self::now()));
            return self.push_and_offer(durable, supplier, events);
        }
        let mut result = Ok(());
        for event in events {
            // Another thread may route an event with a later time before this event: the router's
            // timers then keep the later time.
            let now = Self::now();
            let event = in_spare_memory(event, now);
            // Queues and meters need the size. It is computed here, before the channel's lock is
            // taken.
            if self.config.schedule.is_some() || self.has_queues.load(Ordering::Relaxed) {
                event.bytes();
            }
            let mut routed = ROUTED.take().unwrap_or_default();
            let header = event.header();
            let mut state = self.state.lock();
            let pushed = state.router.push(supplier, &header, event, now, &mut routed);
            let removed = self.remove_disconnected(&mut state, &mut routed);
            let spare = state.spare_events.pop();
            drop(state);
            if spare.is_some() {
                SPARE_EVENT.set(spare);
            }
            self.deliver(&mut routed, now);
            ROUTED.set(Some(routed));
            self.finish_all(removed);
            result = result.and(pushed);
        }
        result
    }

    fn remove_disconnected(
        &self,
        state: &mut PiMutexGuard<'_, ChannelState>,
        routed: &mut ChannelRouted,
    ) -> Vec<Removed> {
        if routed.disconnected.is_empty() {
            return Vec::new();
        }
        let removed =
            routed.disconnected.drain(..).map(|(proxy, peers)| (state.objects.remove(&proxy), peers)).collect();
        self.tell_observers(state);
        removed
    }

    #[inline]
    fn finish_all(&self, removed: Vec<Removed>) {
        if removed.is_empty() {
            return;
        }
        for (object, disconnected) in removed {
            self.deactivate(object);
            self.finish(Some(disconnected));
        }
    }

    /// Wakes senders and pullers, makes the immediate deliveries, and calls direct consumers.
    /// Empties the lists of `routed`. The first delivery has the time `now`, at which the set was
    /// routed.
    fn deliver(&self, routed: &mut ChannelRouted, now: Nanos) {
        // The order of the wake-ups does not matter. For an empty list, `pop` costs less than
        // `drain`.
        while let Some(peer) = routed.wake.pop() {
            counters::count_handoff();
            peer.wake.notify_all();
        }
        // A direct consumer may take long, and the sender of a queue cannot send before the queue's
        // immediate delivery ends. So the immediate deliveries come first.
        let mut routed_at = Some(now);
        let mut time = || routed_at.take().unwrap_or_else(Self::now);
        if !routed.immediate.is_empty() {
            for delivery in routed.immediate.drain(..) {
                self.send_now(delivery, time());
            }
        }
        if routed.direct.is_empty() {
            return;
        }
        let Some(_nested) = NestedPush::enter() else {
            let mut state = self.state.lock();
            for delivery in routed.direct.drain(..) {
                state.router.direct_failed(&delivery, true, false);
            }
            return;
        };
        for mut delivery in routed.direct.drain(..) {
            let result = delivery.peer.push(&mut delivery.set, time());
            if result != CallResult::Done {
                self.direct_failed(&delivery, result);
            }
            if let Some(event) = delivery.set.into_only_event().and_then(emptied) {
                SPARE_EVENT.set(Some(event));
            }
        }
    }

    fn send_now(&self, delivery: ImmediateDelivery<Arc<StoredEvent>, Arc<Peer>>, now: Nanos) {
        let ImmediateDelivery { sender, peer, set } = delivery;
        match peer.push_now(&set, now) {
            ImmediatePush::Done => {
                if !peer.give_turn_back() {
                    self.pass_turn(sender, &peer);
                }
                if let Some(event) = set.into_only_event().and_then(emptied) {
                    SPARE_EVENT.set(Some(event));
                }
            }
            ImmediatePush::Begun => self.hand_over(sender, &peer, set.event_type(), Handover::Rest),
            ImmediatePush::NotSent => self.hand_over(sender, &peer, set.event_type(), Handover::Whole(set)),
            ImmediatePush::Refused => self.refused_now(sender, &peer, set.event_type()),
        }
    }

    #[cold]
    fn pass_turn(&self, sender: SenderId, peer: &Peer) {
        let is_waiting = self.state.lock().router.pass_turn(sender);
        if is_waiting {
            counters::count_handoff();
            peer.wake.notify_all();
        }
    }

    #[cold]
    fn hand_over(&self, sender: SenderId, peer: &Peer, event_type: i32, handover: Handover<Arc<StoredEvent>>) {
        self.state.lock().router.hand_over(sender, event_type, handover);
        counters::count_handoff();
        peer.wake.notify_all();
    }

    #[cold]
    fn refused_now(&self, sender: SenderId, peer: &Peer, event_type: i32) {
        let mut state = self.state.lock();
        // `CallResult::Refused` removes no consumer, so there is no returned proxy to handle.
        state.router.immediate_failed(sender, event_type, CallResult::Refused, Self::now());
        drop(state);
        if !peer.give_turn_back() {
            self.pass_turn(sender, peer);
        }
    }

    #[cold]
    fn direct_failed(&self, delivery: &DirectDelivery<Arc<StoredEvent>, Arc<Peer>>, result: CallResult) {
        let mut state = self.state.lock();
        let is_gone = result == CallResult::Gone;
        let lost = state.router.direct_failed(delivery, false, is_gone);
        let object = lost.and_then(|proxy| state.objects.remove(&proxy));
        if object.is_some() {
            self.tell_observers(&mut state);
        }
        drop(state);
        self.deactivate(object);
    }

    /// Returns the next set for a pull consumer. Waits for a set until `deadline`, or not at all if
    /// there is no deadline or if the maximum number of threads already wait. Returns `Ok(None)` if
    /// there is no set.
    pub(super) fn pull(
        &self,
        proxy: ProxyId,
        deadline: Option<Monotonic>,
    ) -> Result<Option<DeliverySet<Arc<StoredEvent>>>, PullRefusal> {
        let mut state = self.state.lock();
        if !state.router.has_consumer(proxy) {
            return Err(PullRefusal::NoProxy);
        }
        let id = state.router.connection(proxy).ok_or(PullRefusal::NotConnected)?;
        let peer = state.router.peer(id).ok_or(PullRefusal::NotConnected)?;
        let mut is_waiting = false;
        loop {
            let pulled = state.router.pull(id, Self::now()).ok_or(PullRefusal::NotConnected);
            let has_passed = deadline.is_none_or(Monotonic::is_past);
            let has_room = is_waiting || state.waiting_pulls < self.config.max_waiting_pulls;
            if !matches!(pulled, Ok(None)) || has_passed || !has_room {
                state.waiting_pulls -= usize::from(is_waiting);
                return pulled;
            }
            state.waiting_pulls += usize::from(!is_waiting);
            is_waiting = true;
            state = peer.wake.wait_until(state, deadline).0;
        }
    }

    pub(super) fn statistics(&self) -> ChannelStatistics {
        let counts = self.state.lock().router.statistics(Self::now());
        let surplus = SurplusCounts { not_admitted: self.refusals.lock().count, ..counts.surplus };
        ChannelStatistics { unstored: self.unstored(), surplus, ..counts }
    }

    pub(super) fn summary(&self) -> ChannelSummary {
        let counts = self.state.lock().router.summary();
        let surplus = SurplusCounts { not_admitted: self.refusals.lock().count, ..counts.surplus };
        ChannelSummary { surplus, ..counts }
    }

    /// Returns the counts of at most `max` consumers: those with the lowest numbers above `proxy`.
    pub(super) fn consumers_after(&self, proxy: u64, max: usize) -> Vec<ConsumerStatistics> {
        self.state.lock().router.consumers_after(ProxyId(proxy), max, Self::now())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    fn has_bound_keys(&self) {
        let mut state = self.state.lock();
        state.has_keys = true;
        if state.has_ended {
            drop(state);
            self.unbind_keys();
        }
    }

    fn unbind_keys(&self) {
        for key in builder::plain_keys(&self.name) {
            self.poa.unbind_corbaloc_key(&key);
        }
    }

    /// Ends the channel, unless it has ended: removes all proxies, unbinds the plain keys, and
    /// makes the threads end. With `is_called_back`, each connected peer's disconnect operation is
    /// called once.
    pub(super) fn end(&self, is_called_back: bool) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.has_ended, true) {
            return;
        }
        let mut collocated = Vec::new();
        for Disconnected { peers, is_called_back } in state.router.remove_all(is_called_back) {
            peers.iter().for_each(|peer| peer.wake.notify_all());
            let Some(peer) = peers.into_iter().next() else { continue };
            match (is_called_back, peer.is_collocated()) {
                (false, _) => {}
                (true, true) => collocated.push(peer),
                (true, false) => state.callbacks.peers.push_back(peer),
            }
        }
        let objects: Vec<ObjectId> = state.objects.drain().map(|(_, id)| id).collect();
        let has_keys = state.has_keys;
        drop(state);
        if has_keys {
            self.unbind_keys();
        }
        self.timeout_added.notify_all();
        self.callback_due.notify_all();
        for object in objects {
            self.deactivate(Some(object));
        }
        for peer in collocated {
            peer.call_back();
        }
    }

    /// Wakes the senders and the pullers of a disconnected peer, and calls the peer back if that is
    /// due. The thread `events/admin` calls peers of other processes while the channel exists; the
    /// calling thread calls all others.
    fn finish(&self, disconnected: Option<Disconnected<Arc<Peer>>>) {
        let Some(Disconnected { peers, is_called_back }) = disconnected else { return };
        let mut state = self.state.lock();
        peers.iter().for_each(|peer| peer.wake.notify_all());
        let Some(peer) = peers.into_iter().next().filter(|_| is_called_back) else { return };
        // The thread `events/admin` may have ended with the channel. This thread then calls the
        // peer.
        if !peer.is_collocated() && !state.has_ended {
            state.callbacks.peers.push_back(peer);
            self.callback_due.notify_all();
            return;
        }
        drop(state);
        peer.call_back();
    }

    fn deactivate(&self, object: Option<ObjectId>) {
        if let Some(object) = object {
            // An error means that the POA was destroyed with its objects, so it is ignored.
            let _ = self.poa.deactivate_object(&object);
        }
    }

    fn run_sender(&self, sender: SenderId, lane: usize, peer: &Peer) {
        self.config.lanes.enter(lane, self.config.current.as_ref());
        let mut state = self.state.lock();
        loop {
            let now = Self::now();
            let step = state.router.next_step(sender, now);
            let mut spare = None;
            let result = match step {
                SenderStep::Wait(until) => {
                    state = peer.wake.wait_until(state, until.map(Monotonic::from_nanos)).0;
                    continue;
                }
                SenderStep::Send(mut set) => {
                    drop(state);
                    let result = peer.push(&mut set, now);
                    spare = set.into_only_event().and_then(emptied);
                    result
                }
                SenderStep::Finish => {
                    drop(state);
                    peer.finish_push()
                }
                SenderStep::Ask => {
                    drop(state);
                    peer.ask()
                }
                SenderStep::End(is_called_back) => {
                    drop(state);
                    if is_called_back {
                        peer.call_back();
                    }
                    return;
                }
            };
            state = self.state.lock();
            if state.spare_events.len() < MAX_SPARE_EVENTS {
                state.spare_events.extend(spare);
            }
            if let Some((proxy, disconnected)) = state.router.called(sender, result, Self::now()) {
                let object = state.objects.remove(&proxy);
                self.tell_observers(&mut state);
                drop(state);
                self.finish_all(vec![(object, disconnected)]);
                state = self.state.lock();
            }
        }
    }

    fn run_timeouts(&self) {
        let mut state = self.state.lock();
        while !state.has_ended {
            let next = state.router.next_expiry();
            if next.is_none_or(|next| next > Self::now()) {
                state = self.timeout_added.wait_until(state, next.map(Monotonic::from_nanos)).0;
                continue;
            }
            let mut routed = ROUTED.take().unwrap_or_default();
            let now = Self::now();
            state.router.expire(now, &mut routed);
            let removed = self.remove_disconnected(&mut state, &mut routed);
            drop(state);
            self.deliver(&mut routed, now);
            ROUTED.set(Some(routed));
            self.finish_all(removed);
            state = self.state.lock();
        }
    }
}

fn in_spare_memory(event: impl PushedEvent, now: Nanos) -> Arc<StoredEvent> {
    let mut spare = SPARE_EVENT.take().unwrap_or_default();
    match Arc::get_mut(&mut spare) {
        Some(empty) => {
            event.store(now, empty);
            spare
        }
        None => Arc::new(StoredEvent::new(event, now)),
    }
}

/// Returns the event without its content, so that its memory can be used again; `None` if there are
/// other references to the event.
fn emptied(mut event: Arc<StoredEvent>) -> Option<Arc<StoredEvent>> {
    Arc::get_mut(&mut event)?.empty();
    Some(event)
}

#[derive(Debug)]
pub(super) enum PullRefusal {
    NoProxy,
    NotConnected,
}

struct NestedPush;

impl NestedPush {
    fn enter() -> Option<Self> {
        let depth = NESTED_PUSHES.get();
        (depth < MAX_NESTED_PUSHES).then(|| NESTED_PUSHES.set(depth + 1)).map(|()| NestedPush)
    }
}

impl Drop for NestedPush {
    fn drop(&mut self) {
        NESTED_PUSHES.set(NESTED_PUSHES.get() - 1);
    }
}

/// When the servant that owns this value is dropped, ends the channel and waits, for a limited
/// time, until the channel's queued events have results.
pub(super) struct ChannelEnd(pub(super) Arc<SharedChannel>);

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        self.0.end(false);
        if let Some(durable) = &self.0.durable {
            durable.settle();
        }
    }
}

/// An event channel in operation. Dropping the handle has no effect: the channel ends with its ORB,
/// or when this process or a client destroys it.
#[derive(Clone)]
pub struct EventChannel {
    shared: Arc<SharedChannel>,
    rtec: rtec_admin::EventChannelRef,
    cos: cos_admin::EventChannelRef,
    gateways: Arc<[Gateway]>,
}

impl EventChannel {
    /// Returns a builder with the default settings.
    #[must_use]
    pub fn builder() -> EventChannelBuilder {
        EventChannelBuilder::default()
    }

    /// Returns the channel's reference for TAO's Real-time Event Service.
    #[must_use]
    pub fn reference(&self) -> &rtec_admin::EventChannelRef {
        &self.rtec
    }

    /// Returns the channel's reference for CORBA's Event Service.
    #[must_use]
    pub fn cos_reference(&self) -> &cos_admin::EventChannelRef {
        &self.cos
    }

    /// Returns the gateways that the channel was built with.
    #[must_use]
    pub fn gateways(&self) -> &[Gateway] {
        &self.gateways
    }

    /// Returns the counts of the channel.
    #[must_use]
    pub fn statistics(&self) -> ChannelStatistics {
        self.shared.statistics()
    }

    /// Returns the latest connections that the channel's schedule has refused, at most 64, the
    /// oldest first.
    #[must_use]
    pub fn refusals(&self) -> Vec<AdmissionRefusal> {
        self.shared.refusals.lock().latest.iter().cloned().collect()
    }

    /// Returns the channel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    pub(super) fn shared(&self) -> &SharedChannel {
        &self.shared
    }

    pub(super) fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    /// Disconnects all consumers and suppliers, calls the disconnect operation of each once,
    /// unbinds the plain keys, and ends the channel's objects. The events of a durable channel are
    /// removed from its store.
    ///
    /// # Errors
    /// NO_RESOURCES, INTERNAL or TIMEOUT if the store of a durable channel fails; the channel then
    /// stays in operation.
    pub fn destroy(&self) -> Result<(), SystemException> {
        self.shared.remove_stored()?;
        destroy(&self.shared);
        Ok(())
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").field("poa", &self.shared.poa.name()).finish_non_exhaustive()
    }
}

pub(super) fn destroy_for_client(shared: &SharedChannel) -> Result<(), SystemException> {
    if !shared.config.is_destroyed_by_clients {
        return Err(system(Kind::NoPermission, "clients of this channel may not destroy it"));
    }
    shared.remove_stored()?;
    destroy(shared);
    Ok(())
}

fn destroy(shared: &SharedChannel) {
    shared.end(true);
    let _ = shared.poa.destroy(false, false);
}
