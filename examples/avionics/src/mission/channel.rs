//! The event channel of the mission computer: its lanes, and its consumers by name.

use std::time::Duration;

use corelane::{Orb, SystemException, SystemExceptionKind};
use corelane_sched::analysis::priorities::rate_monotonic_order;
use corelane_sched::task::Timing;
use corelane_services::events::cos_event_comm::PushConsumerRef as ValueConsumerRef;
use corelane_services::events::rtec_base::DependencyInfo;
use corelane_services::events::rtec_event_channel_admin::{
    ConsumerQOS, Dependency, ProxyPushConsumerRef, ProxyPushSupplierRef, Publication, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumerRef};
use corelane_services::events::{
    EventChannel, EventFilter, EventLane, EventNames, EventType, FilterLimits, MissPolicy, QueueLimits,
};
use corelane_sys::lock::{LockScope, Mutex};

use super::plan::event_names;
use crate::Result;
use crate::avionics::ConsumerCounts;

/// The rate groups in Hz. Each is a lane of the channel, with the rate as its `rt_info`.
const GROUPS: [u32; 4] = [1, 5, 10, 20];
/// CORBA priority of the most urgent lane. It is below the priority of the ORB's threads, which
/// must receive the events of sensors.
const MOST_URGENT: i16 = 12_000;
const STEP: i16 = 1_000;
/// Maximum number of sets that wait for a consumer in one lane. The queues of a stalled display are
/// soon full.
pub(super) const MAX_SETS: usize = 32;
/// The reaction of the channel to consumers that do not answer. The times are so long that a stall
/// of the display is not a failure, even on a busy machine.
pub(crate) const MISSES: MissPolicy = MissPolicy {
    send_timeout: Duration::from_secs(20),
    max_misses: 3,
    suspension_time: Duration::from_secs(5),
    max_suspensions: 3,
};

/// An event channel with a lane for each rate group, whose consumers have names.
pub(super) struct MissionChannel {
    channel: EventChannel,
    names: EventNames,
    consumers: Mutex<Vec<Consumer>>,
}

struct Consumer {
    name: String,
    /// The number of the consumer's proxy in the statistics of the channel.
    number: u64,
    /// The proxy by which the consumer is suspended and resumed; `None` for a consumer of values.
    proxy: Option<ProxyPushSupplierRef>,
}

impl MissionChannel {
    pub(super) fn serve(orb: &Orb, misses: MissPolicy) -> Result<Self> {
        let serve = |lanes| {
            let queue = QueueLimits { max_delivery_sets: MAX_SETS, ..QueueLimits::default() };
            EventChannel::builder().name("mission").queue_limits(queue).miss_policy(misses).lanes(lanes).serve(orb)
        };
        let channel = serve(lanes(Some(MOST_URGENT))).or_else(|refusal| {
            // If the system refuses the priorities, the threads of the lanes are in the ordinary
            // scheduling class.
            if refusal.kind() == SystemExceptionKind::DataConversion { serve(lanes(None)) } else { Err(refusal) }
        })?;
        let consumers = Mutex::new("consumers of the mission", LockScope::Orb, Vec::new());
        Ok(MissionChannel { channel, names: event_names(), consumers })
    }

    /// Connects a consumer. Its sets are dispatched in the lane of the rate group `rate`.
    pub(super) fn connect(&self, name: &str, rate: u32, filter: &str, consumer: &PushConsumerRef) -> Result<()> {
        let filter = EventFilter::parse(filter, &self.names, &FilterLimits::default())?;
        let dependency = |header: &corelane_services::events::EventHeader| {
            let mut event = event_of(header.event_type);
            event.header.source = header.source.0;
            event.header.creation_time = header.creation_time;
            Dependency { event, rt_info: group(rate) }
        };
        let dependencies = filter.dependencies().headers().iter().map(dependency).collect();
        let admin = self.channel.reference().for_consumers()?.ok_or("nil")?;
        let proxy = admin.obtain_push_supplier()?.ok_or("nil")?;
        self.add(name, Some(proxy.clone()), || {
            proxy.connect_push_consumer(Some(consumer), &ConsumerQOS { dependencies, is_gateway: false })?;
            Ok(())
        })
    }

    /// Connects a consumer that gets the value of each event, in the lane of the event.
    pub(super) fn connect_display(&self, name: &str, consumer: &ValueConsumerRef) -> Result<()> {
        let admin = self.channel.cos_reference().for_consumers()?.ok_or("nil")?;
        let proxy = admin.obtain_push_supplier()?.ok_or("nil")?;
        self.add(name, None, || Ok(proxy.connect_push_consumer(Some(consumer))?))
    }

    /// Returns the proxy of a supplier whose events are in the lane of the rate group `rate`.
    pub(super) fn supplier(&self, event_type: EventType, rate: u32) -> Result<ProxyPushConsumerRef> {
        let admin = self.channel.reference().for_suppliers()?.ok_or("nil")?;
        let proxy = admin.obtain_push_consumer()?.ok_or("nil")?;
        let dependency_info = DependencyInfo { rt_info: group(rate), ..DependencyInfo::default() };
        let publication = Publication { event: event_of(event_type), dependency_info };
        proxy.connect_push_supplier(None, &SupplierQOS { publications: vec![publication], is_gateway: false })?;
        Ok(proxy)
    }

    /// Returns the type of events with this name.
    pub(super) fn event_type(&self, name: &str) -> Option<EventType> {
        self.names.event_type(name)
    }

    /// Suspends or resumes a consumer.
    pub(super) fn set_active(&self, name: &str, is_active: bool) -> Result<(), SystemException> {
        let found = self.consumers.lock().iter().find(|consumer| consumer.name == name).and_then(|it| it.proxy.clone());
        match found {
            Some(proxy) if is_active => proxy.resume_connection(),
            Some(proxy) => proxy.suspend_connection(),
            None => Ok(()),
        }
    }

    pub(super) fn counts(&self) -> Vec<ConsumerCounts> {
        let found = self.channel.statistics();
        let consumers = self.consumers.lock();
        let named = consumers.iter().filter_map(|consumer| {
            let counts = found.consumers.iter().find(|it| it.proxy_number == consumer.number)?.counts;
            Some(ConsumerCounts {
                name: consumer.name.clone(),
                matched: counts.routed,
                delivered: counts.delivered,
                waiting: counts.queued + counts.in_flight,
                overflowed: counts.dropped.queue_full,
                suspended: counts.dropped.suspended,
                failed: counts.dropped.total() - counts.dropped.queue_full - counts.dropped.suspended,
            })
        });
        named.collect()
    }

    fn add(&self, name: &str, proxy: Option<ProxyPushSupplierRef>, connect: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut consumers = self.consumers.lock();
        let before = self.proxies();
        connect()?;
        let number = self.proxies().into_iter().find(|number| !before.contains(number));
        let number = number.ok_or("the channel has disconnected the consumer")?;
        consumers.push(Consumer { name: name.to_owned(), number, proxy });
        Ok(())
    }

    fn proxies(&self) -> Vec<u64> {
        self.channel.statistics().consumers.iter().map(|consumer| consumer.proxy_number).collect()
    }
}

/// Returns the lanes, the most urgent first: the shorter the period of a group, the more urgent is
/// its lane.
fn lanes(most_urgent: Option<i16>) -> Vec<EventLane> {
    let periods = GROUPS.map(|rate| Timing::new(0, 1_000_000_000 / u64::from(rate)));
    let lane = |(rank, at): (i16, &usize)| {
        let lane = EventLane::new(group(GROUPS[*at]));
        most_urgent.map_or(lane.clone(), |most_urgent| lane.priority(most_urgent - rank * STEP))
    };
    (0..).zip(&rate_monotonic_order(&periods)).map(lane).collect()
}

fn group(rate: u32) -> i32 {
    i32::try_from(rate).unwrap_or(0)
}

fn event_of(event_type: EventType) -> Event {
    Event { header: EventHeader { r#type: event_type.0, ..EventHeader::default() }, ..Event::default() }
}
