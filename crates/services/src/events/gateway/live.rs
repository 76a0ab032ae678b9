//! A gateway in operation: the threads that reach the channels and that send events, and the
//! objects that channels call.
//!
//! A push of the source puts an event into a buffer and returns. So a destination that does not
//! answer never holds up the source.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane::poa::{Poa, PoaPolicies};
use corelane::rt::RtCurrent;
use corelane::{Any, Completion, ObjectRef, Orb, Reference, SystemException, SystemExceptionKind as Kind};
use corelane_sched::task::Nanos;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiCondvar, PiMutex, PiMutexGuard};
use corelane_sys::{counters, process, thread};

use super::core::{CrossingEvent, GatewayCore, GatewayCounts, LinkState, MAX_BATCH};
use super::ends::{Destination, Intakes, LaneEnd, Source, SourceFailure, StaleObserver, observed, separate};
use super::passage::ChannelId;
use super::reconnect::{BackOff, ReconnectPolicy};
use crate::events::header::EventType;
use crate::events::idl::RtecEventData;
use crate::events::idl::corelane_events::{
    ChannelDemand, GatewayConsumer, GatewayConsumerRef, GatewayState, PassingEvent,
};
use crate::events::idl::cos_event_comm as cos;
use crate::events::idl::rtec_event_channel_admin::{ConsumerQOS, Observer, ObserverRef, SupplierQOS};
use crate::events::idl::rtec_event_comm::{Event, EventHeader, PushConsumer};
use crate::events::lanes::{EventLane, LaneTable};
use crate::events::queue::QueueLimits;
use crate::events::stored;

/// Maximum time for which a gateway that is being stopped still sends waiting events.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

impl CrossingEvent for PassingEvent {
    fn ttl(&self) -> i32 {
        self.event.header.ttl
    }

    fn set_ttl(&mut self, ttl: i32) {
        self.event.header.ttl = ttl;
    }

    fn path(&self) -> &[ChannelId] {
        &self.path
    }
}

/// The source channel of a gateway that ends with this channel.
pub(in crate::events) trait OwnSource: Send + Sync {
    fn is_destroyed(&self) -> bool;
}

/// The settings of a [`Gateway`].
#[derive(Clone, Debug)]
pub struct GatewayBuilder {
    lanes: LaneTable,
    buffer_limits: QueueLimits,
    reconnect: ReconnectPolicy,
    check_interval: Duration,
    call_timeout: Duration,
    own_source: Option<Weak<dyn OwnSource>>,
}

impl Default for GatewayBuilder {
    fn default() -> Self {
        Self {
            lanes: LaneTable::default(),
            buffer_limits: QueueLimits::default(),
            reconnect: ReconnectPolicy::default(),
            check_interval: Duration::from_secs(1),
            call_timeout: Duration::from_secs(2),
            own_source: None,
        }
    }
}

impl GatewayBuilder {
    /// Sets the lanes, with the names of the channels' lanes, the most urgent first. Each has a
    /// buffer, a thread and a connection to the destination. Events of a lane that the gateway does
    /// not have are in its last lane. Default: one buffer for all events.
    #[must_use]
    pub fn lanes(mut self, lanes: impl IntoIterator<Item = EventLane>) -> Self {
        self.lanes = LaneTable(lanes.into_iter().collect());
        self
    }

    /// Sets the bounds of each lane's buffer, in which events wait for the destination. A full
    /// buffer drops its oldest waiting events, and the new event if it still has no room.
    #[must_use]
    pub const fn buffer_limits(mut self, limits: QueueLimits) -> Self {
        self.buffer_limits = limits;
        self
    }

    /// Sets when the gateway tries to reach a lost channel again.
    #[must_use]
    pub const fn reconnect(mut self, policy: ReconnectPolicy) -> Self {
        self.reconnect = policy;
        self
    }

    /// Sets the interval at which the gateway checks that its channels exist. Default: 1 s.
    #[must_use]
    pub const fn check_interval(mut self, interval: Duration) -> Self {
        self.check_interval = interval;
        self
    }

    /// Sets the deadline of each call to a channel. Default: 2 s.
    #[must_use]
    pub const fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    pub(in crate::events) fn with_lane_table(mut self, lanes: LaneTable) -> Self {
        self.lanes = lanes;
        self
    }

    /// Lets the gateway end when its source disconnects it, or has ended.
    pub(in crate::events) fn ends_with(mut self, source: Weak<dyn OwnSource>) -> Self {
        self.own_source = Some(source);
        self
    }

    /// Begins to pass events from one channel to another, until the gateway is stopped or the ORB
    /// ends. Neither channel has to exist yet. Each reference may be of a channel of TAO's
    /// Real-time Event Service or of CORBA's Event Service. The channels call the gateway, so the
    /// ORB has to listen at an address that they reach.
    ///
    /// # Errors
    /// BAD_PARAM if both references are of one channel, and for invalid lanes; NO_RESOURCES if the
    /// system refuses a thread; DATA_CONVERSION if it refuses the priority of a lane; other errors
    /// of the ORB.
    pub fn serve(self, orb: &Orb, from: &impl Reference, to: &impl Reference) -> Result<Gateway, SystemException> {
        let (from, to) = (from.as_object(), to.as_object());
        if from.is_equivalent(to) {
            return Err(SystemException::new(Kind::BadParam, 0, Completion::No).with_message(ITSELF));
        }
        self.lanes.check(orb)?;
        let seed = process::random_number().unwrap_or_else(|_| now());
        let poa = orb.root_poa().create_poa(&format!("CorelaneGateway {seed:x}"), None, PoaPolicies::default())?;
        let served = self.serve_in(orb, &poa, from, to, seed);
        if served.is_err() {
            let _ = poa.destroy(false, false);
        }
        served
    }

    fn serve_in(
        self,
        orb: &Orb,
        poa: &Poa,
        from: &ObjectRef,
        to: &ObjectRef,
        seed: u64,
    ) -> Result<Gateway, SystemException> {
        let lanes = self.lanes.len().max(1);
        let run = GatewayRun {
            core: GatewayCore::new(lanes, self.buffer_limits, self.reconnect, seed),
            ends: Arc::new(Vec::new()),
            session: 0,
            is_idle: vec![false; lanes],
            observed: None,
            is_demand_due: false,
            is_source_lost: false,
            is_source_connected: false,
            problem: None,
            is_refused: false,
            is_stopping: false,
            is_stopped: false,
        };
        let rt_infos = self.lanes.rt_infos();
        let shared = Arc::new(SharedGateway {
            run: PiMutex::new("gateway", LockScope::Lane, run),
            lane_wakes: (0..lanes).map(|_| PiCondvar::new()).collect(),
            control_due: PiCondvar::new(),
            stopped: PiCondvar::new(),
            from: separate(from, self.call_timeout)?,
            to: separate(to, self.call_timeout)?,
            destination: short(&to.to_string()),
            rt_infos: if rt_infos.is_empty() { Box::new([0]) } else { rt_infos },
            current: Some(orb.real_time().current()?),
            seed,
            settings: self,
            poa: poa.clone(),
        });
        // The drop of the servants ends the threads if an error follows, and when the ORB ends.
        let intake = Arc::new(Intake { shared: Arc::clone(&shared) });
        let typed = poa.activate(&GatewayConsumer::servant_of(Arc::clone(&intake)))?;
        let values = poa.activate(&<Intake as cos::PushConsumer>::servant_of(Arc::clone(&intake)))?;
        let observer = poa.activate(&Observer::servant_of(intake))?;
        poa.manager().activate()?;
        let objects = Objects {
            intakes: Intakes {
                typed: GatewayConsumerRef::from_object(typed),
                values: cos::PushConsumerRef::from_object(values),
            },
            observer: ObserverRef::from_object(observer),
        };
        let refused = |error: std::io::Error| {
            // Ends the threads that already send events, because the thread `events/gate`, which
            // would end them, does not run.
            shared.run.lock().is_stopped = true;
            shared.lane_wakes.iter().for_each(PiCondvar::notify_all);
            SystemException::new(Kind::NoResources, 0, Completion::No).with_message(error.to_string())
        };
        for lane in 0..lanes {
            let forwarder = Arc::clone(&shared);
            let name = format!("events/f{lane}");
            thread::ThreadBuilder::new().name(name).spawn(move || forwarder.run_forwarder(lane)).map_err(&refused)?;
        }
        let control = Arc::clone(&shared);
        let spawned = thread::ThreadBuilder::new().name("events/gate").spawn(move || control.run_control(&objects));
        spawned.map_err(refused)?;
        Ok(Gateway { shared })
    }
}

const ITSELF: &str = "a gateway does not lead from a channel to itself";

/// Returns the first characters of a stringified reference, for people to read.
fn short(reference: &str) -> String {
    const MAX: usize = 80;
    reference.chars().take(MAX).collect()
}

fn now() -> Nanos {
    Monotonic::now().as_nanos()
}

struct Objects {
    intakes: Intakes,
    observer: ObserverRef,
}

struct GatewayRun {
    core: GatewayCore<PassingEvent>,
    /// The destination in each lane; empty while the destination is lost.
    ends: Arc<Vec<LaneEnd>>,
    /// The number of times that the destination was reached, by which a late failure of an earlier
    /// connection is recognised and ignored.
    session: u64,
    /// For each lane: true while the thread that sends the lane's events waits for an event.
    is_idle: Vec<bool>,
    observed: Option<Vec<ChannelDemand>>,
    is_demand_due: bool,
    is_source_lost: bool,
    is_source_connected: bool,
    problem: Option<String>,
    is_refused: bool,
    is_stopping: bool,
    is_stopped: bool,
}

struct SharedGateway {
    /// Threads of any priority take the lock, so it lends its holder the priority of the waiting
    /// threads. It is not held during calls.
    run: PiMutex<GatewayRun>,
    lane_wakes: Box<[PiCondvar]>,
    /// Wakes the thread `events/gate`.
    control_due: PiCondvar,
    stopped: PiCondvar,
    from: ObjectRef,
    to: ObjectRef,
    destination: String,
    rt_infos: Box<[i32]>,
    current: Option<RtCurrent>,
    seed: u64,
    settings: GatewayBuilder,
    poa: Poa,
}

/// The state of a gateway at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayStatus {
    /// True if both channels are reached.
    pub is_connected: bool,
    /// The reason of the latest failure to reach a channel; `None` before a failure, and after a
    /// recovery.
    pub problem: Option<String>,
    /// True if the gateway has ended because it would lead from a channel to itself.
    pub is_refused: bool,
    /// The numbers of events, by what became of them.
    pub counts: GatewayCounts,
    /// Size in bytes of the events that wait in the gateway, or whose call is running.
    pub waiting_bytes: usize,
}

/// A gateway in operation. It passes events of one channel, the source, to another, the
/// destination, if consumers there want them.
///
/// An event crosses if its time to live is above 0; each gateway decrements it. No channel of this
/// crate takes an event from other channels of this crate twice, even in rings and meshes of up to
/// 256 channels. Dropping the handle has no effect.
///
/// ```
/// use corelane::Orb;
/// use corelane_services::events::{EventChannel, Gateway};
///
/// let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
/// let north = EventChannel::builder().name("north").serve(&orb)?;
/// let south = EventChannel::builder().name("south").serve(&orb)?;
/// let gateway = Gateway::builder().serve(&orb, north.reference(), south.reference())?;
/// gateway.stop();
/// assert!(gateway.status().counts.is_balanced());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<SharedGateway>,
}

impl Gateway {
    /// Returns a builder with the default settings.
    #[must_use]
    pub fn builder() -> GatewayBuilder {
        GatewayBuilder::default()
    }

    /// Returns the state of the gateway.
    #[must_use]
    pub fn status(&self) -> GatewayStatus {
        let run = self.shared.run.lock();
        GatewayStatus {
            is_connected: run.is_connected(),
            problem: run.problem.clone(),
            is_refused: run.is_refused,
            counts: run.core.counts(),
            waiting_bytes: run.core.bytes(),
        }
    }

    /// Leaves the source, sends the waiting events for at most two seconds, leaves the destination,
    /// and ends the threads. Returns when the gateway has stopped.
    pub fn stop(&self) {
        let mut run = self.shared.run.lock();
        run.is_stopping = true;
        self.shared.control_due.notify_all();
        while !run.is_stopped {
            run = self.shared.stopped.wait(run);
        }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl GatewayRun {
    fn is_connected(&self) -> bool {
        self.is_source_connected && self.core.state() == LinkState::Connected
    }
}

/// The two channels of a gateway, as the thread `events/gate` knows them.
struct Ends {
    destination: Option<(Destination, Arc<Vec<LaneEnd>>)>,
    source: Option<Source>,
    /// The demand of the destination, as last heard; `None` before the first contact. The source
    /// keeps it while the destination is lost, so that events wait.
    demands: Option<Vec<ChannelDemand>>,
    is_demand_changed: bool,
    source_due_at: Nanos,
    source_back_off: BackOff,
    has_had_source: bool,
    stale: Option<StaleObserver>,
}

impl SharedGateway {
    fn take_in(&self, events: impl Iterator<Item = PassingEvent>) {
        // Copies and sizes take time, so they are made before the lock is taken.
        let measured = |event: PassingEvent| (stored::size(&event.event.data), event);
        let events: Vec<(usize, PassingEvent)> = events.map(measured).collect();
        let mut run = self.run.lock();
        if run.is_stopping {
            return;
        }
        for (bytes, event) in events {
            let lane = self.rt_infos.iter().position(|lane| *lane == event.lane);
            let received = run.core.receive(lane.unwrap_or(self.rt_infos.len() - 1), event, bytes);
            let Some(lane) = received.filter(|_| run.core.state() == LinkState::Connected) else { continue };
            if std::mem::take(&mut run.is_idle[lane]) {
                counters::count_handoff();
                self.lane_wakes[lane].notify_all();
            }
        }
    }

    fn run_forwarder(&self, lane: usize) {
        self.settings.lanes.enter(lane, self.current.as_ref());
        let mut run = self.run.lock();
        while !run.is_stopped {
            let max = run.ends.get(lane).map_or(MAX_BATCH, LaneEnd::max_batch);
            let batch = run.core.take(lane, max);
            if batch.is_empty() {
                run.is_idle[lane] = true;
                run = self.lane_wakes[lane].wait(run);
                continue;
            }
            let (ends, session) = (Arc::clone(&run.ends), run.session);
            drop(run);
            let lost = || SystemException::new(Kind::Transient, 0, Completion::No);
            let sent = ends.get(lane).map_or_else(|| Err(lost()), |end| end.send(&batch));
            run = self.run.lock();
            match sent {
                Ok(accepted) => run.core.delivered(lane, batch.len(), accepted),
                Err(exception) => {
                    run.core.failed(lane, batch);
                    if session == run.session {
                        self.lose_destination(&mut run, format!("the destination is lost: {exception}"));
                    }
                }
            }
            if run.is_stopping {
                self.control_due.notify_all();
            }
        }
    }

    fn lose_destination(&self, run: &mut GatewayRun, why: String) {
        run.core.lost(now());
        run.ends = Arc::new(Vec::new());
        run.problem = Some(why);
        self.control_due.notify_all();
    }

    fn run_control(&self, objects: &Objects) {
        let mut ends = Ends {
            destination: None,
            source: None,
            demands: None,
            is_demand_changed: false,
            source_due_at: 0,
            source_back_off: BackOff::new(self.settings.reconnect, self.seed ^ 1),
            has_had_source: false,
            stale: None,
        };
        let mut check_at = 0;
        loop {
            let mut run = self.run.lock();
            loop {
                let is_source_due = ends.source.is_none() && ends.demands.is_some();
                let next = match run.core.state() {
                    LinkState::Lost(at) => at.min(if ends.source.is_some() { check_at } else { Nanos::MAX }),
                    LinkState::Connected => check_at,
                };
                let next = if is_source_due { next.min(ends.source_due_at) } else { next };
                if run.is_stopping || run.is_demand_due || run.is_source_lost || next <= now() {
                    break;
                }
                run = self.control_due.wait_until(run, Some(Monotonic::from_nanos(next))).0;
            }
            if run.is_stopping {
                drop(run);
                return self.finish(&ends);
            }
            run.is_demand_due = false;
            if std::mem::take(&mut run.is_source_lost) {
                run.is_source_connected = false;
                ends.source = None;
                ends.source_due_at = now() + nanos(ends.source_back_off.next_delay());
            }
            let state = run.core.state();
            drop(run);
            if now() >= check_at {
                check_at = now() + nanos(self.settings.check_interval);
            }
            // A gateway that never reached its destination has no connection to its source, so
            // nothing else tells it of the source's end.
            let has_ended = |source: &Weak<dyn OwnSource>| source.upgrade().is_none_or(|source| source.is_destroyed());
            if self.settings.own_source.as_ref().is_some_and(has_ended) {
                self.run.lock().is_stopping = true;
                return self.finish(&ends);
            }
            self.see_to_destination(objects, &mut ends, state);
            self.see_to_source(objects, &mut ends);
        }
    }

    fn see_to_destination(&self, objects: &Objects, ends: &mut Ends, state: LinkState) {
        match state {
            LinkState::Lost(at) => {
                if let Some((destination, lanes)) = ends.destination.take() {
                    // The destination may exist although a call had no answer, so the gateway
                    // leaves it.
                    ends.stale = destination.leave(&lanes).or(ends.stale.take());
                }
                if at > now() {
                    return;
                }
                let timeout = self.settings.call_timeout;
                match Destination::connect(&self.to, &self.rt_infos, &objects.observer, timeout) {
                    Ok((destination, lanes)) => {
                        ends.stale.take().iter().for_each(|stale| destination.remove_stale(stale));
                        let lanes = Arc::new(lanes);
                        let mut run = self.run.lock();
                        run.core.connected(destination.number);
                        run.session += 1;
                        run.ends = Arc::clone(&lanes);
                        run.problem = None;
                        run.is_idle.fill(false);
                        self.lane_wakes.iter().for_each(PiCondvar::notify_all);
                        drop(run);
                        ends.destination = Some((destination, lanes));
                    }
                    Err(why) => {
                        let mut run = self.run.lock();
                        run.core.lost(now());
                        run.problem = Some(format!("the destination is not reached: {why}"));
                        return;
                    }
                }
            }
            LinkState::Connected => {}
        }
        let Some((destination, _)) = &ends.destination else { return };
        match destination.demands() {
            Ok(Some(demands)) => ends.learn(demands),
            Ok(None) => {
                let observed = self.run.lock().observed.clone();
                observed.into_iter().for_each(|demands| ends.learn(demands));
            }
            Err(exception) => {
                let mut run = self.run.lock();
                self.lose_destination(&mut run, format!("the destination is lost: {exception}"));
            }
        }
    }

    fn see_to_source(&self, objects: &Objects, ends: &mut Ends) {
        let Some(demands) = &ends.demands else { return };
        let kept = match &mut ends.source {
            Some(source) => {
                let changed = std::mem::take(&mut ends.is_demand_changed);
                let timeout = self.settings.call_timeout;
                let set = if changed { source.set_demands(&objects.intakes, demands, timeout) } else { Ok(()) };
                set.and_then(|()| source.report(&self.state())).map_err(SourceFailure::from)
            }
            None if ends.source_due_at > now() => return,
            None => {
                ends.is_demand_changed = false;
                let to = ends.destination.as_ref().map_or(0, |(destination, _)| destination.number);
                let timeout = self.settings.call_timeout;
                Source::connect(&self.from, to, &objects.intakes, demands, timeout).map(|source| {
                    ends.source = Some(source);
                    ends.source_back_off.succeeded();
                    let mut run = self.run.lock();
                    run.is_source_connected = true;
                    run.is_source_lost = false;
                    run.core.source_reached(std::mem::replace(&mut ends.has_had_source, true));
                    if run.core.state() == LinkState::Connected {
                        run.problem = None;
                    }
                })
            }
        };
        let why = match kept {
            Ok(()) => return,
            Err(SourceFailure::NotReached(why)) => format!("the source is not reached: {why}"),
            Err(SourceFailure::Itself) => {
                let mut run = self.run.lock();
                run.is_refused = true;
                run.is_stopping = true;
                ITSELF.to_owned()
            }
        };
        if let Some(source) = ends.source.take() {
            source.leave();
        }
        ends.source_due_at = now() + nanos(ends.source_back_off.next_delay());
        let mut run = self.run.lock();
        run.is_source_connected = false;
        run.problem = Some(why);
    }

    fn state(&self) -> GatewayState {
        let run = self.run.lock();
        let counts = run.core.counts();
        GatewayState {
            destination: self.destination.clone(),
            is_connected: run.core.state() == LinkState::Connected,
            received: counts.received,
            forwarded: counts.forwarded,
            duplicates: counts.duplicates,
            returned: counts.loops_stopped,
            ttl_ended: counts.ttl_expired,
            dropped_full: counts.dropped_buffer_full,
            dropped_refused: counts.dropped_by_destination,
            waiting: counts.waiting,
            reconnects: counts.reconnects,
        }
    }

    /// Leaves the source, sends the waiting events for at most [`DRAIN_TIMEOUT`], and ends the
    /// gateway.
    fn finish(&self, ends: &Ends) {
        if let Some(source) = &ends.source {
            let _ = source.report(&self.state());
            source.leave();
        }
        let deadline = Monotonic::now() + DRAIN_TIMEOUT;
        let mut run = self.run.lock();
        while run.core.counts().waiting > 0 && run.core.state() == LinkState::Connected && !deadline.is_past() {
            run = self.control_due.wait_until(run, Some(deadline)).0;
        }
        run.is_source_connected = false;
        run.is_stopped = true;
        self.lane_wakes.iter().for_each(PiCondvar::notify_all);
        drop(run);
        if let Some((destination, lanes)) = &ends.destination {
            let _ = destination.leave(lanes);
        }
        let _ = self.poa.destroy(false, false);
        let _run: PiMutexGuard<'_, GatewayRun> = self.run.lock();
        self.stopped.notify_all();
    }
}

impl Ends {
    fn learn(&mut self, demands: Vec<ChannelDemand>) {
        if self.demands.as_ref() != Some(&demands) {
            self.demands = Some(demands);
            self.is_demand_changed = true;
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX / 2)
}

/// The servant of the objects that the channels call. Its drop ends the threads.
struct Intake {
    shared: Arc<SharedGateway>,
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.shared.run.lock().is_stopping = true;
        self.shared.control_due.notify_all();
    }
}

impl Intake {
    fn disconnected(&self) {
        let mut run = self.shared.run.lock();
        run.is_source_lost = true;
        run.is_stopping |= self.shared.settings.own_source.is_some();
        self.shared.control_due.notify_all();
    }
}

impl GatewayConsumer for Intake {
    fn pass(&self, events: &[PassingEvent]) -> Result<(), SystemException> {
        self.shared.take_in(events.iter().cloned());
        Ok(())
    }
}

impl PushConsumer for Intake {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        let passing = |event: &Event| PassingEvent { event: event.clone(), ..PassingEvent::default() };
        self.shared.take_in(data.iter().map(passing));
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.disconnected();
        Ok(())
    }
}

impl cos::PushConsumer for Intake {
    fn push(&self, data: &Any) -> Result<(), cos::push_consumer::PushError> {
        let header = EventHeader { r#type: EventType::FIRST_APPLICATION.0, ttl: 1, ..EventHeader::default() };
        let event = Event { header, data: RtecEventData { any_value: data.clone(), ..RtecEventData::default() } };
        self.shared.take_in(std::iter::once(PassingEvent { event, ..PassingEvent::default() }));
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.disconnected();
        Ok(())
    }
}

impl Observer for Intake {
    fn update_consumer(&self, sub: &ConsumerQOS) -> Result<(), SystemException> {
        let mut run = self.shared.run.lock();
        run.observed = Some(observed(sub));
        run.is_demand_due = true;
        self.shared.control_due.notify_all();
        Ok(())
    }

    fn update_supplier(&self, _pub: &SupplierQOS) -> Result<(), SystemException> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventChannel;

    #[test]
    fn gateway_ends_with_a_source_that_it_is_not_connected_to() {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let away = orb.string_to_object("corbaloc::1.2@127.0.0.1:1/away.rtec").unwrap().unwrap();
        let delay = Duration::from_millis(5);
        let settings = Gateway::builder().reconnect(ReconnectPolicy { first_delay: delay, max_delay: delay });
        let channel = EventChannel::builder().gateway(&away, settings).serve(&orb).unwrap();
        let gateway = channel.gateways()[0].clone();
        channel.destroy().unwrap();
        let deadline = Monotonic::now() + Duration::from_secs(20);
        let mut run = gateway.shared.run.lock();
        while !run.is_stopped && !deadline.is_past() {
            run = gateway.shared.stopped.wait_until(run, Some(deadline)).0;
        }
        assert!(run.is_stopped);
        drop(run);
        orb.shutdown(true).unwrap();
    }
}
