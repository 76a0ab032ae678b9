//! The budget of an event channel: allocations, locks and hand-offs of an event in steady state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane::{Dispatch, Orb, PoolConfig, SystemException};
use corelane_services::events::rtec_event_channel_admin::{
    ConsumerQOS, Dependency, EventChannelRef, ProxyPushConsumerRef, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumer, PushConsumerRef};
use corelane_services::events::{EventChannel, EventLane, RtecEventData};
use corelane_sys::counters::{self, Counters};
use corelane_tests as _;

const EVENTS: u64 = 500;

/// A consumer that counts events. The other fields are the counters of the thread that delivered
/// the latest events.
#[derive(Default)]
struct Counting {
    events: AtomicU64,
    allocations: AtomicU64,
    orb_locks: AtomicU64,
    locks: AtomicU64,
    handoffs: AtomicU64,
}

impl PushConsumer for Counting {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        let counts = counters::snapshot();
        self.allocations.store(counts.allocations, Ordering::Relaxed);
        self.orb_locks.store(counts.orb_locks, Ordering::Relaxed);
        self.locks.store(counts.locks, Ordering::Relaxed);
        self.handoffs.store(counts.handoffs, Ordering::Relaxed);
        self.events.fetch_add(data.len() as u64, Ordering::Release);
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

fn orb() -> Orb {
    let pool = PoolConfig::default().dispatch(Dispatch::Reactive);
    let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

fn connect(orb: &Orb, channel: &EventChannelRef) -> Arc<Counting> {
    let counting = Arc::new(Counting::default());
    let consumer = orb.root_poa().activate(&Counting::servant_of(Arc::clone(&counting))).unwrap();
    let proxy = channel.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    let qos = ConsumerQOS { dependencies: vec![Dependency { event: event(0), rt_info: 0 }], is_gateway: false };
    proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &qos).unwrap();
    counting
}

fn event(octets: usize) -> Event {
    let header = EventHeader { r#type: 0, source: 0, ..EventHeader::default() };
    Event { header, data: RtecEventData { payload: vec![7; octets].into(), ..RtecEventData::default() } }
}

fn supplier(channel: &EventChannelRef) -> ProxyPushConsumerRef {
    let proxy = channel.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    proxy.connect_push_supplier(None, &SupplierQOS::default()).unwrap();
    proxy
}

/// Pushes `count` events one after the other: each is delivered before the next is pushed. Returns
/// the counts of the pushing thread.
fn push(channel: &EventChannel, supplier: &ProxyPushConsumerRef, event: &Event, count: u64) -> Counters {
    let mut sum = Counters::default();
    for _ in 0..count {
        let before = counters::snapshot();
        supplier.push(std::slice::from_ref(event)).unwrap();
        let cost = counters::snapshot() - before;
        sum.allocations += cost.allocations;
        sum.orb_locks += cost.orb_locks;
        sum.handoffs += cost.handoffs;
        sum.locks += cost.locks;
        sum.lane_locks += cost.lane_locks;
        sum.syscalls += cost.syscalls;
        sum.futex_calls += cost.futex_calls;
        while channel.statistics().total().queued + channel.statistics().total().in_flight > 0 {
            std::thread::yield_now();
        }
    }
    sum
}

fn supplier_cost(channel: &EventChannel, event: &Event) -> Counters {
    let supplier = supplier(channel.reference());
    push(channel, &supplier, event, 50);
    push(channel, &supplier, event, EVENTS)
}

/// Asserts that each event took one lock, that of the channel, and made no system call. Futex calls
/// of contended locks do not count.
fn assert_one_lock_per_event(cost: &Counters) {
    assert_eq!([cost.lane_locks, cost.locks, cost.orb_locks], [EVENTS, EVENTS, 0]);
    assert_eq!([cost.handoffs, cost.syscalls], [0, 0]);
}

#[test]
fn reactive_dispatch_allocates_nothing_and_hands_nothing_over() {
    let server = orb();
    let channel = EventChannel::builder().serve(&server).unwrap();
    let first = connect(&server, channel.reference());
    // The channel copies the payload of an event once, into memory of the previous event, and
    // passes this copy to the consumer.
    for octets in [0, 64] {
        let cost = supplier_cost(&channel, &event(octets));
        assert_eq!(cost.allocations, 0, "{octets} octets");
        assert_one_lock_per_event(&cost);
    }
    // With several consumers, the first and the last consumer share the copy of the channel. Each
    // other consumer needs a further copy, because its event has another send time.
    let second = connect(&server, channel.reference());
    for octets in [0, 64] {
        let cost = supplier_cost(&channel, &event(octets));
        assert_eq!(cost.allocations, 0, "{octets} octets");
        assert_one_lock_per_event(&cost);
    }
    let got = [first, second].map(|consumer| consumer.events.load(Ordering::Acquire));
    assert_eq!(got, [4 * (EVENTS + 50), 2 * (EVENTS + 50)]);
}

#[test]
fn lanes_allocate_nothing_and_hand_an_event_over_once() {
    let server = orb();
    let lanes = [EventLane::new(1), EventLane::new(2)];
    let channel = EventChannel::builder().lanes(lanes).serve(&server).unwrap();
    let consumer = connect(&server, channel.reference());
    let supplier = supplier(channel.reference());
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = || [&consumer.allocations, &consumer.orb_locks, &consumer.handoffs].map(load);
    for octets in [0, 64] {
        push(&channel, &supplier, &event(octets), 50);
        let (before, locks) = (counts(), load(&consumer.locks));
        let cost = push(&channel, &supplier, &event(octets), EVENTS);
        assert_eq!([cost.allocations, cost.orb_locks, cost.handoffs], [0, 0, EVENTS], "{octets} octets");
        assert_eq!([cost.lane_locks, cost.locks, cost.syscalls], [EVENTS, EVENTS, 0]);
        // The thread of the lane takes the channel's lock twice for each event: when it wakes, and
        // after the call. It makes no hand-off.
        assert_eq!((counts(), load(&consumer.locks) - locks), (before, 2 * EVENTS));
    }
    assert_eq!(consumer.events.load(Ordering::Acquire), 2 * (EVENTS + 50));
}

/// Waits until the consumers have this number of events.
fn wait_for(consumers: &[Arc<Counting>], events: u64) {
    for consumer in consumers {
        while consumer.events.load(Ordering::Acquire) < events {
            std::thread::yield_now();
        }
    }
}

#[test]
fn events_for_other_processes_are_sent_by_their_supplier_without_a_hand_off() {
    let (server, other) = (orb(), orb());
    let channel = EventChannel::builder().serve(&server).unwrap();
    let remote = other.string_to_reference(&channel.reference().to_string()).unwrap();
    let consumers = [connect(&other, &remote), connect(&other, &remote)];
    let supplier = supplier(channel.reference());
    push(&channel, &supplier, &event(0), 50);
    for octets in [0, 16] {
        push(&channel, &supplier, &event(octets), 50);
        let cost = push(&channel, &supplier, &event(octets), EVENTS);
        // The channel copies the payload once, into memory of the previous event.
        assert_eq!([cost.allocations, cost.orb_locks, cost.handoffs], [0, 0, 0]);
        // An event takes the lock of the channel and the lock of the connection to each consumer,
        // which no other thread uses. The message to each consumer is one system call.
        assert_eq!([cost.lane_locks, cost.locks, cost.syscalls], [EVENTS, 3 * EVENTS, 2 * EVENTS]);
        assert_eq!(cost.futex_calls, 0);
    }
    wait_for(&consumers, 2 * EVENTS + 150);
    let counts = channel.statistics().total();
    assert!(counts.is_balanced() && counts.delivered == counts.routed, "{counts:?}");
}
