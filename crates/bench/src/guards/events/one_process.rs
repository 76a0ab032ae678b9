//! Supplier, channel and consumer in one process: the cost of dispatch and of filters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelane::{Orb, SystemException};
use corelane_services::events::rtec_event_comm::{Event, PushConsumer, PushConsumerRef};
use corelane_services::events::{
    ChannelLimits, DependencySet, EventChannel, EventChannelBuilder, EventLane, EventSource, EventType, FilterBuilder,
};
use corelane_sys::clock;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::thread::ThreadBuilder;

use super::connections::{MEASURED, PAYLOAD, SOURCE, connect_consumer, connect_supplier, event};
use super::figures::{found, judged, label, point};
use crate::Failure;
use crate::address::LOOPBACK;
use crate::harness::{ComparedQuantity, FigureLabel, Group, MeasuredSubject, Progress, Variant};
use crate::options::BenchOptions;
use crate::orb::limits;
use crate::placement::Side;
use crate::report::Report;
use crate::sample::{Samples, time_calls};
use crate::targets::events as goals;

const LANE: i32 = 1;
/// First event type of subscriptions that no pushed event matches.
const FIRST_UNMATCHED: i32 = 1_000;
const SUBSCRIPTIONS: [usize; 3] = [1, 100, 10_000];
/// Number of subscriptions in place of the largest number if the options request fewer than 1,000
/// calls.
const SMALL: usize = 500;
const FILTER_NODES: usize = 64;
const PATIENCE: Duration = Duration::from_secs(20);

/// Creates an ORB that serves in this process, and activates its root POA.
fn serving_orb() -> Result<Orb, Failure> {
    let orb = Orb::builder().limits(limits()).listen(LOOPBACK).build();
    let orb = orb.map_err(|error| Failure::new(error.to_string()))?;
    orb.root_poa().manager().activate().map_err(|error| Failure::new(error.to_string()))?;
    Ok(orb)
}

#[derive(Default)]
struct Counter(AtomicU64);

impl PushConsumer for Counter {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        self.0.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

/// A consumer that notes the arrival time of an event. A supplier waits for this note.
struct Noting {
    arrival: Mutex<Option<u64>>,
    noted: Condvar,
}

impl Noting {
    fn new() -> Self {
        Noting { arrival: Mutex::new("arrival of an event", LockScope::Orb, None), noted: Condvar::new() }
    }

    fn wait(&self) -> Result<u64, Failure> {
        let deadline = clock::now() + PATIENCE;
        let mut arrival = self.arrival.lock();
        loop {
            if let Some(at) = arrival.take() {
                return Ok(at);
            }
            let is_in_time;
            (arrival, is_in_time) = self.noted.wait_until(arrival, Some(deadline));
            if !is_in_time {
                return Err(Failure::new("the consumer got no event"));
            }
        }
    }

    fn note(&self) {
        let now = clock::now().as_nanos();
        *self.arrival.lock() = Some(now);
        self.noted.notify_all();
    }
}

impl PushConsumer for Noting {
    fn push(&self, _: &[Event]) -> Result<(), SystemException> {
        self.note();
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

fn reference(orb: &Orb, servant: &corelane::Servant) -> Result<PushConsumerRef, Failure> {
    let object = orb.root_poa().activate(servant).map_err(|error| Failure::new(error.to_string()))?;
    Ok(PushConsumerRef::unchecked_narrow(&object))
}

/// Pushes to a consumer or to a channel, and checks how many events arrive.
struct Pushes {
    _orb: Arc<Orb>,
    target: PushConsumerRef,
    events: [Event; 1],
    counter: Arc<Counter>,
    /// Number of events that the counter gets for each push.
    each: u64,
}

impl MeasuredSubject for Pushes {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let before = self.counter.0.load(Ordering::Relaxed);
        for _ in 0..warm_up {
            self.target.push(&self.events)?;
        }
        let whole = time_calls(count, into, || self.target.push(&self.events))?;
        let arrived = self.counter.0.load(Ordering::Relaxed) - before;
        if arrived != (warm_up + count) as u64 * self.each {
            return Err(Failure::new(format!("{arrived} events have arrived after {} pushes", warm_up + count)));
        }
        Ok(whole)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

/// Measures the time from a push to a channel until the consumer's servant runs, or from the
/// wake-up of a thread until the thread runs.
struct Deliveries {
    push: Box<dyn FnMut() -> Result<(), Failure> + Send>,
    consumer: Arc<Noting>,
}

impl Deliveries {
    fn push(&mut self) -> Result<u64, Failure> {
        let sent = clock::now().as_nanos();
        (self.push)()?;
        Ok(self.consumer.wait()?.saturating_sub(sent))
    }
}

/// Starts a thread that waits, and returns the measured hand-off to this thread. A lane adds at
/// least as much time. The thread ends when the returned subject is dropped.
fn bare_hand_off() -> Result<Box<Deliveries>, Failure> {
    let consumer = Arc::new(Noting::new());
    let woken = Arc::new((EventCount::new("bare hand-off"), AtomicU64::new(0)));
    let (noting, other) = (Arc::clone(&consumer), Arc::clone(&woken));
    let run = move || {
        let mut seen = 0;
        let mut wait = || {
            let changed = || Some(other.1.load(Ordering::Acquire)).filter(|now| *now != seen);
            seen = other.0.wait(None, changed).unwrap_or(ENDED);
            seen != ENDED
        };
        while wait() {
            noting.note();
        }
    };
    ThreadBuilder::new().name("floor/hand-off").spawn(run).map_err(|error| Failure::new(error.to_string()))?;
    let waker = Waker(woken);
    let push = move || {
        waker.0.1.fetch_add(1, Ordering::Release);
        waker.0.0.notify_all();
        Ok(())
    };
    Ok(Box::new(Deliveries { push: Box::new(push), consumer }))
}

/// The number of wake-ups at which the thread of a bare hand-off ends.
const ENDED: u64 = u64::MAX;

struct Waker(Arc<(EventCount, AtomicU64)>);

impl Drop for Waker {
    fn drop(&mut self) {
        self.0.1.store(ENDED, Ordering::Release);
        self.0.0.notify_all();
    }
}

impl MeasuredSubject for Deliveries {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.push()?;
        }
        let mut whole = 0;
        for _ in 0..count {
            let time = self.push()?;
            into.push(time);
            whole += time;
        }
        Ok(Duration::from_nanos(whole))
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

fn measured() -> DependencySet {
    DependencySet::new().event(MEASURED, EventSource(SOURCE))
}

/// Measures a push through a reactive channel and through a lane, beside a collocated call and a
/// hand-off between bare threads.
pub(super) fn dispatch(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let placed = options.placement.enter(Side::Client);
    // The thread of the lane inherits the core from this thread.
    let _placed = placed.map_err(|error| Failure::new(format!("this placement is refused: {error}")))?;
    let orb = Arc::new(serving_orb()?);
    let counted = |channel: bool| {
        let counter = Arc::new(Counter::default());
        let consumer = reference(&orb, &PushConsumer::servant_of(Arc::clone(&counter)))?;
        let target = if channel {
            let channel = EventChannel::builder().name("reactive").serve(&orb)?;
            connect_consumer(channel.reference(), &consumer, &measured(), 0)?;
            connect_supplier(channel.reference(), MEASURED, 0)?
        } else {
            consumer
        };
        Ok::<_, Failure>(Box::new(Pushes {
            _orb: Arc::clone(&orb),
            target,
            events: [event(MEASURED, PAYLOAD)],
            counter,
            each: 1,
        }))
    };
    let delivered = |channel: EventChannelBuilder, rt_info: i32| {
        let channel = channel.serve(&orb)?;
        let consumer = Arc::new(Noting::new());
        let noting = reference(&orb, &PushConsumer::servant_of(Arc::clone(&consumer)))?;
        connect_consumer(channel.reference(), &noting, &measured(), 0)?;
        let target = connect_supplier(channel.reference(), MEASURED, rt_info)?;
        let (orb, events) = (Arc::clone(&orb), [event(MEASURED, PAYLOAD)]);
        let push = move || {
            let _orb = &orb;
            Ok(target.push(&events)?)
        };
        Ok::<_, Failure>(Box::new(Deliveries { push: Box::new(push), consumer }))
    };
    let reactive_delivery = delivered(EventChannel::builder().name("reactive-delivery"), 0)?;
    let lane_delivery = delivered(EventChannel::builder().name("lanes").lanes([EventLane::new(LANE)]), LANE)?;
    let ours = |config: &str| label("Corelane", "none", "push", config);
    let [call, reactive] = [ours("collocated call"), ours("reactive channel")];
    let [delivery, lane] = [ours("reactive channel, delivery"), ours("lane, delivery")];
    let floor = label("floor", "none", "push", "bare hand-off");
    let variants = vec![
        Variant { label: call.clone(), subject: counted(false)?, against: Vec::new() },
        Variant { label: reactive.clone(), subject: counted(true)?, against: vec![0] },
        Variant { label: delivery.clone(), subject: reactive_delivery, against: Vec::new() },
        Variant { label: floor, subject: bare_hand_off()?, against: Vec::new() },
        Variant { label: lane.clone(), subject: lane_delivery, against: vec![2, 3] },
    ];
    let title = "events: one process, one consumer".to_owned();
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let figures = report.measure(group, &options.run_length, &options.placement, progress)?;
    let [call, reactive, delivery, lane] = [call, reactive, delivery, lane].map(|label| found(&figures, &label));
    let (Some(call), Some(reactive), Some(delivery), Some(lane)) = (call, reactive, delivery, lane) else {
        return Ok(());
    };
    let ratio = reactive.summary.p50_us / call.summary.p50_us;
    let more = lane.summary.p50_us - delivery.summary.p50_us;
    let values = [
        judged(reactive, "median against the call", ratio, "x", goals::MAX_REACTIVE_TO_CALL_RATIO),
        judged(lane, "median above the reactive channel", more, "us", goals::MAX_LANE_US),
    ];
    report.add_values("events: goals of one process", &values)
}

/// Returns a filter of [`FILTER_NODES`] nodes that refuses each measured event, but only after all
/// nodes have been evaluated.
fn large_filter() -> DependencySet {
    // The masks compare only some bits, so that the filter decides and not the channel's index of
    // event types.
    let accepts = |set: DependencySet| set.masked_type(0x7f, 0x7f, SOURCE, MEASURED.0);
    let refuses = |set: DependencySet| set.masked_type(0x7f, 0x7f, SOURCE, MEASURED.0 + 1);
    let mut set = DependencySet::new().logical_and(4);
    for (children, last_accepts) in [(15, true), (15, true), (15, true), (14, false)] {
        set = set.disjunction(children);
        for _ in 1..children {
            set = refuses(set);
        }
        set = if last_accepts { accepts(set) } else { refuses(set) };
    }
    set
}

fn roomy() -> EventChannelBuilder {
    let limits = ChannelLimits { max_consumers: 2 * SUBSCRIPTIONS[2], ..ChannelLimits::default() };
    EventChannel::builder().limits(limits).filter_builder(FilterBuilder::Prefix)
}

/// Measures pushes of events that no consumer accepts, among 1 to 10,000 subscriptions, and beside
/// a filter of 64 nodes.
pub(super) fn subscriptions(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let orb = Arc::new(serving_orb()?);
    let is_small = options.requested.count.is_some_and(|count| count < 1_000);
    let most = if is_small { SMALL } else { SUBSCRIPTIONS[2] };
    let counter = Arc::new(Counter::default());
    let consumer = reference(&orb, &PushConsumer::servant_of(Arc::clone(&counter)))?;
    let subject = |name: String, count: usize, filter: Option<&DependencySet>| {
        let channel = roomy().name(name).serve(&orb)?;
        for number in 0..count {
            let event_type = EventType(FIRST_UNMATCHED + i32::try_from(number).unwrap_or(i32::MAX));
            let other = DependencySet::new().event(event_type, EventSource(SOURCE));
            connect_consumer(channel.reference(), &consumer, &other, 0)?;
        }
        if let Some(filter) = filter {
            connect_consumer(channel.reference(), &consumer, filter, 0)?;
        }
        let target = connect_supplier(channel.reference(), MEASURED, 0)?;
        let (_orb, counter) = (Arc::clone(&orb), Arc::clone(&counter));
        Ok::<_, Failure>(Box::new(Pushes { _orb, target, events: [event(MEASURED, PAYLOAD)], counter, each: 0 }))
    };
    let of_count = |count: usize| {
        let config = format!("{count} subscriptions that do not match");
        point(label("Corelane", "none", "push", config), "push", "subscriptions", count)
    };
    let counts = [SUBSCRIPTIONS[0], SUBSCRIPTIONS[1], most];
    let mut variants = Vec::new();
    for count in counts {
        progress.show(&format!("events: connecting {count} consumers"));
        let subject = subject(format!("subscriptions{count}"), count, None)?;
        let against = if variants.is_empty() { Vec::new() } else { vec![0] };
        variants.push(Variant { label: of_count(count), subject, against });
    }
    let filtered: FigureLabel = label("Corelane", "none", "push", format!("a filter of {FILTER_NODES} nodes"));
    let subject = subject("filter".to_owned(), 1, Some(&large_filter()))?;
    variants.push(Variant { label: filtered.clone(), subject, against: vec![0] });
    let title = "events: push of an event that no subscription matches".to_owned();
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let figures = report.measure(group, &options.run_length, &options.placement, progress)?;
    let Some(base) = found(&figures, &of_count(counts[0])) else { return Ok(()) };
    let mut values = Vec::new();
    for count in &counts[1..] {
        let Some(figure) = found(&figures, &of_count(*count)) else { continue };
        let ratio = figure.summary.p50_us / base.summary.p50_us;
        values.push(judged(figure, "median against 1 subscription", ratio, "x", goals::MAX_PUSH_RATIO));
    }
    if let Some(figure) = found(&figures, &filtered) {
        let more = figure.summary.p50_us - base.summary.p50_us;
        values.push(judged(figure, "median above 1 subscription", more, "us", goals::MAX_FILTER_US));
    }
    report.add_values("events: goals of filters", &values)
}

#[cfg(test)]
mod tests {
    use corelane_services::events::{EventFilter, EventHeader, FilterLimits};

    use super::*;

    #[test]
    fn large_filter_refuses_the_measured_event_and_has_64_nodes() {
        let set = large_filter();
        // The header of a group is one dependency, and a masked type is three dependencies.
        let heads = 5;
        assert_eq!(heads + (set.headers().len() - heads) / 3, FILTER_NODES);
        let filter = EventFilter::build(FilterBuilder::Prefix, set.headers(), &FilterLimits::default()).unwrap();
        let accepts = |event_type| filter.accepts(&EventHeader::new(event_type, EventSource(SOURCE)));
        // The event type after `MEASURED` passes all groups, so the filter refuses `MEASURED` for
        // its type alone.
        assert!(!accepts(MEASURED) && accepts(EventType(MEASURED.0 + 1)));
    }

    #[test]
    fn lost_events_are_a_failure() {
        let orb = Arc::new(serving_orb().unwrap());
        let counter = Arc::new(Counter::default());
        let target = reference(&orb, &PushConsumer::servant_of(Arc::clone(&counter))).unwrap();
        let mut pushes = Pushes { _orb: orb, target, events: [event(MEASURED, PAYLOAD)], counter, each: 1 };
        let mut samples = Samples::with_capacity(4);
        pushes.run(1, 2, &mut samples).unwrap();
        pushes.each = 2;
        assert!(pushes.run(1, 2, &mut samples).is_err());
    }
}
