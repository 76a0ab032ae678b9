//! Stopped, slow and dead consumers among many: no supplier waits, healthy consumers get every
//! event, and the counts explain what became of each event.

mod events_scene;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use corelane::Any;
use corelane_services::events::cos_event_comm::PushConsumerRef as CosPushConsumerRef;
use corelane_services::events::rtec_event_comm::PushConsumerRef;
use corelane_services::events::{
    ChannelStatistics, DependencySet, EventChannel, EventChannelBuilder, MissPolicy, OverflowPolicy, QueueLimits,
};

use self::events_scene::*;

const EVENTS: u64 = 300;
const HEALTHY: usize = 5;

/// Returns a builder of a channel that disconnects a consumer after the first call that gets no
/// answer in four seconds.
fn impatient(max_sets: usize) -> EventChannelBuilder {
    let send_timeout = Duration::from_secs(4);
    let misses = MissPolicy { send_timeout, max_misses: 1, suspension_time: Duration::ZERO, max_suspensions: 0 };
    let queue = QueueLimits { max_delivery_sets: max_sets, max_bytes: 64 << 20 };
    EventChannel::builder().miss_policy(misses).queue_limits(queue).overflow_policy(OverflowPolicy::DropOldest)
}

fn assert_all_accounted_for(statistics: &ChannelStatistics, consumers: u64) {
    for consumer in &statistics.consumers {
        assert!(consumer.counts.is_balanced(), "{consumer:?}");
    }
    let total = statistics.total();
    assert!(total.is_balanced(), "{total:?}");
    assert!(total.routed <= statistics.published * consumers, "{statistics:?}");
}

#[test]
fn stopped_slow_and_dead_consumers_delay_neither_suppliers_nor_other_consumers() {
    let scene = Scene::with(impatient(EVENTS as usize));
    let every = DependencySet::new().event(A, ANY);
    let healthy: Vec<Arc<Recorder>> = (0..HEALTHY).map(|_| Arc::new(Recorder::new())).collect();
    for recorder in &healthy {
        connect_consumer(&scene.other, &scene.remote(), &every, recorder);
    }
    // The slow consumer is in another server, whose only thread waits at the gate.
    let (gate, slow_server) = (Gate::new(), listening_orb());
    let at_gate = Arc::clone(&gate);
    let slow = Arc::new(Recorder { in_push: Box::new(move |_| at_gate.pass()), ..Recorder::new() });
    let slow_channel = slow_server.string_to_reference(&scene.channel.reference().to_string()).unwrap();
    connect_consumer(&slow_server, &slow_channel, &every, &slow);
    // The stopped consumer's process accepts connections and reads nothing.
    let stopped = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = scene.remote().for_consumers().unwrap().unwrap();
    for listener in [&stopped, &dead] {
        let url = format!("corbaloc::1.2@{}/Consumer", listener.local_addr().unwrap());
        let object = scene.other.string_to_object(&url).unwrap().unwrap();
        let proxy = admin.obtain_push_supplier().unwrap().unwrap();
        let consumer = PushConsumerRef::unchecked_narrow(&object);
        proxy.connect_push_consumer(Some(&consumer), &consumer_qos(&every)).unwrap();
    }
    drop(dead);

    let supplier = connect_supplier(&scene.other, &scene.remote(), &[], &healthy[0]);
    let mut large = event(A, 1);
    // All events together do not fit into the buffers of a connection.
    large.data.payload = vec![7; 64 << 10].into();
    for _ in 0..EVENTS {
        supplier.push(std::slice::from_ref(&large)).unwrap();
    }
    for recorder in &healthy {
        assert_eq!(recorder.sets.wait_for(EVENTS as usize).len(), EVENTS as usize);
    }
    gate.open();
    // The dead and the stopped consumer are disconnected. The slow consumer did not answer while it
    // waited at the gate, and may be disconnected.
    wait_until(|| scene.channel.statistics().consumers.len() <= HEALTHY + 1);
    wait_until(|| {
        let total = scene.channel.statistics().total();
        total.queued + total.in_flight == 0
    });
    let statistics = scene.channel.statistics();
    assert_all_accounted_for(&statistics, HEALTHY as u64 + 3);
    assert_eq!((statistics.published, statistics.refused, statistics.undeclared), (EVENTS, 0, 0));
    for consumer in &statistics.consumers[..HEALTHY] {
        assert_eq!((consumer.counts.routed, consumer.counts.delivered), (EVENTS, EVENTS));
    }
    assert!(
        statistics.disconnected_consumers.dropped.failed > 0
            && statistics.disconnected_consumers.dropped.disconnected > 0,
        "{statistics:?}"
    );
    drop(stopped);
}

#[test]
fn two_way_consumers_without_answers_are_given_up_and_the_others_get_every_event() {
    let scene = Scene::with(impatient(8));
    let value = |number: u64| Any::new(&number).unwrap();
    let healthy: Vec<Arc<Recorder>> = (0..HEALTHY).map(|_| Arc::new(Recorder::new())).collect();
    for recorder in &healthy {
        connect_cos_consumer(&scene.other, &scene.remote_cos(), recorder);
    }
    let stopped = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("corbaloc::1.2@{}/Consumer", stopped.local_addr().unwrap());
    let object = scene.other.string_to_object(&url).unwrap().unwrap();
    let proxy = scene.remote_cos().for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    proxy.connect_push_consumer(Some(&CosPushConsumerRef::unchecked_narrow(&object))).unwrap();
    let supplier = connect_cos_supplier(&scene.remote_cos());
    for number in 0..EVENTS {
        supplier.push(&value(number)).unwrap();
        // The queues are short, so the supplier continues when each healthy consumer has the event.
        for recorder in &healthy {
            recorder.values.wait_for(usize::try_from(number).unwrap() + 1);
        }
    }
    let values: Vec<Any> = (0..EVENTS).map(value).collect();
    for recorder in &healthy {
        assert_eq!(recorder.values.all(), values);
    }
    wait_until(|| scene.channel.statistics().consumers.len() == HEALTHY);
    wait_until(|| scene.channel.statistics().total().in_flight == 0);
    let statistics = scene.channel.statistics();
    assert_all_accounted_for(&statistics, HEALTHY as u64 + 1);
    // One event was sent without an answer; the others were queued, or dropped from the full queue.
    let departed = statistics.disconnected_consumers;
    assert_eq!((departed.delivered, departed.dropped.failed), (0, 1));
    assert!(departed.dropped.queue_full + departed.dropped.disconnected < EVENTS);
    assert_eq!(proxy.as_object().non_existent(), Ok(true));
}

#[test]
fn consumer_that_keeps_the_latest_gets_the_newest_event_of_each_source() {
    let scene = Scene::with(impatient(64).overflow_policy(OverflowPolicy::KeepLatest));
    let gate = Gate::new();
    let at_gate = Arc::clone(&gate);
    let slow = Arc::new(Recorder { in_push: Box::new(move |_| at_gate.pass()), ..Recorder::new() });
    connect_cos_consumer(&scene.other, &scene.remote_cos(), &slow);
    let puller = scene.remote_cos().for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    let supplier = connect_supplier(&scene.server, scene.channel.reference(), &[], &slow);
    for number in 0..30_i32 {
        for source in [1, 2] {
            let mut latest = event(A, source);
            latest.data.any_value = Any::new(&(10 * number + source)).unwrap();
            supplier.push(&[latest]).unwrap();
        }
    }
    let pulled: Vec<(Any, bool)> = (0..3).map(|_| puller.try_pull().unwrap()).collect();
    let values: Vec<i32> = pulled[..2].iter().map(|(value, _)| value.extract().unwrap()).collect();
    assert_eq!((values, pulled[2].1), (vec![291, 292], false));
    let statistics = scene.channel.statistics();
    let of_puller = statistics.consumers[1].counts;
    assert_eq!((of_puller.routed, of_puller.delivered, of_puller.dropped.replaced), (60, 2, 58));
    gate.open();
    assert_all_accounted_for(&scene.channel.statistics(), 2);
}

/// The consumers' buffers fill and are emptied again while the suppliers send, so events go out at
/// once, in part, and through the queues.
#[test]
fn events_of_concurrent_suppliers_arrive_once_and_in_the_order_of_each_supplier() {
    const SUPPLIERS: i32 = 4;
    const EACH: i64 = 1_500;
    let queue = QueueLimits { max_delivery_sets: 1 << 20, max_bytes: 1 << 30 };
    let scene = Scene::with(patient_channel().queue_limits(queue));
    let every = DependencySet::new().event(A, ANY);
    let gates = [Gate::new(), Gate::new()];
    let consumers = gates.iter().map(|gate| {
        let (gate, server) = (Arc::clone(gate), listening_orb());
        let recorder = Arc::new(Recorder { in_push: Box::new(move |_| gate.pass()), ..Recorder::new() });
        let channel = server.string_to_reference(&scene.channel.reference().to_string()).unwrap();
        connect_consumer(&server, &channel, &every, &recorder);
        (recorder, server)
    });
    let consumers: Vec<(Arc<Recorder>, corelane::Orb)> = consumers.collect();
    let idle = Arc::new(Recorder::new());
    let suppliers: Vec<_> =
        (0..SUPPLIERS).map(|_| connect_supplier(&scene.server, scene.channel.reference(), &[], &idle)).collect();
    gates[0].open();
    std::thread::scope(|scope| {
        for (supplier, source) in suppliers.iter().zip(1..) {
            scope.spawn(move || {
                let mut next = event(A, source);
                next.data.payload = vec![7; 4 << 10].into();
                for number in 0..EACH {
                    next.header.creation_time = u64::try_from(number).unwrap();
                    supplier.push(std::slice::from_ref(&next)).unwrap();
                }
            });
        }
    });
    // The suppliers are done, and a consumer is still at its gate: no supplier has waited for it.
    assert!(consumers[1].0.sets.all().len() <= 1);
    gates[1].open();
    let all = usize::try_from(i64::from(SUPPLIERS) * EACH).unwrap();
    for (recorder, _) in &consumers {
        let sets = recorder.sets.wait_for(all);
        for source in 1..=SUPPLIERS {
            let of_source = sets.iter().flatten().filter(|event| event.header.source == source);
            let numbers: Vec<u64> = of_source.map(|event| event.header.creation_time).collect();
            assert!(numbers.iter().copied().eq(0..EACH.unsigned_abs()), "events of {source}: {numbers:?}");
        }
    }
    wait_until(|| scene.channel.statistics().total().in_flight == 0);
    let statistics = scene.channel.statistics();
    assert_all_accounted_for(&statistics, 2);
    assert_eq!((statistics.published, statistics.total().delivered), (all as u64, 2 * all as u64));
}
