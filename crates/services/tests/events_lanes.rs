//! Lanes of an event channel, and the queues of its consumers: threads, order, overflow, lifetimes
//! and gap events.

mod events_scene;

use std::sync::Arc;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{RtConfig, SchedulingClass};
use corelane::{Any, Orb, SystemExceptionKind as Kind};
use corelane_services::events::corelane_events::{Drops, Gap};
use corelane_services::events::rtec_base::DependencyInfo;
use corelane_services::events::rtec_event_channel_admin::proxy_push_consumer::ConnectPushSupplierError;
use corelane_services::events::rtec_event_channel_admin::proxy_push_supplier::ConnectPushConsumerError;
use corelane_services::events::rtec_event_channel_admin::{
    EventChannelRef, ProxyPushConsumerRef, ProxyPushSupplierRef, Publication, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{Event, PushConsumer, PushConsumerRef};
use corelane_services::events::{
    DependencySet, EventChannelBuilder, EventLane, EventSource, EventType, OverflowPolicy, QueueLimits, receive_lanes,
};

use self::events_scene::*;

/// The `rt_info` of the most urgent lane.
const FAST: i32 = 20;
/// The `rt_info` of the less urgent lane.
const SLOW: i32 = 5;

fn two_lanes() -> EventChannelBuilder {
    patient_channel().lanes([EventLane::new(FAST), EventLane::new(SLOW)])
}

fn both() -> DependencySet {
    DependencySet::new().disjunction(2).event(A, ANY).event(B, ANY)
}

fn connect_in_lane(
    orb: &Orb,
    channel: &EventChannelRef,
    recorder: &Arc<Recorder>,
    rt_info: i32,
) -> Result<ProxyPushSupplierRef, ConnectPushConsumerError> {
    let consumer = orb.root_poa().activate(&<Recorder as PushConsumer>::servant_of(Arc::clone(recorder))).unwrap();
    let proxy = channel.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    let mut qos = consumer_qos(&both());
    qos.dependencies.iter_mut().for_each(|dependency| dependency.rt_info = rt_info);
    proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &qos)?;
    Ok(proxy)
}

fn supplier(
    channel: &EventChannelRef,
    published: &[(EventType, i32)],
) -> Result<ProxyPushConsumerRef, ConnectPushSupplierError> {
    let proxy = channel.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    let publication = |(event_type, rt_info): &(EventType, i32)| Publication {
        event: event(*event_type, 0),
        dependency_info: DependencyInfo { rt_info: *rt_info, ..DependencyInfo::default() },
    };
    let qos = SupplierQOS { publications: published.iter().map(publication).collect(), is_gateway: false };
    proxy.connect_push_supplier(None, &qos)?;
    Ok(proxy)
}

fn slow_for_b(gate: &Arc<Gate>) -> Arc<Recorder> {
    let gate = Arc::clone(gate);
    let in_push = move |pushed: Pushed<'_>| {
        if matches!(pushed, Pushed::Set([event, ..]) if event.header.r#type == B.0) {
            gate.pass();
        }
    };
    Arc::new(Recorder { in_push: Box::new(in_push), ..Recorder::new() })
}

fn sources(sets: &[Vec<Event>]) -> Vec<i32> {
    sets.iter().map(|set| set[0].header.source).collect()
}

#[test]
fn urgent_events_pass_a_consumer_that_is_stuck_in_a_slow_one() {
    let scene = Scene::with(two_lanes());
    let gate = Gate::new();
    let recorder = slow_for_b(&gate);
    connect_consumer(&scene.server, scene.channel.reference(), &both(), &recorder);
    let supplier = supplier(scene.channel.reference(), &[(A, FAST), (B, SLOW)]).unwrap();
    supplier.push(&[event(B, 1)]).unwrap();
    recorder.sets.wait_for(1);
    supplier.push(&[event(B, 2), event(A, 3)]).unwrap();
    assert_eq!(sources(&recorder.sets.wait_for(2)), [1, 3]);
    let queues = scene.channel.statistics().consumers[0].queues.clone();
    assert_eq!(queues.iter().map(|queue| (queue.lane, queue.delivery_sets)).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
    gate.open();
    assert_eq!(sources(&recorder.sets.wait_for(3)), [1, 3, 2]);
    wait_until(|| scene.channel.statistics().total().delivered == 3);
}

#[test]
fn urgent_events_pass_a_stuck_call_of_another_process_on_a_connection_of_their_own() {
    let scene = Scene::with(two_lanes());
    let consumers = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    consumers.root_poa().manager().activate().unwrap();
    let gate = Gate::new();
    let recorder = slow_for_value(&gate, 2);
    let remote = consumers.string_to_reference(&scene.channel.cos_reference().to_string()).unwrap();
    connect_cos_consumer(&consumers, &remote, &recorder);
    let supplier = supplier(scene.channel.reference(), &[(A, FAST), (B, SLOW)]).unwrap();
    let valued = |event_type, value: i32| {
        let mut event = event(event_type, 1);
        event.data.any_value = Any::new(&value).unwrap();
        event
    };
    // The push of a value is a two-way call, which ends when the gate opens.
    supplier.push(&[valued(B, 2)]).unwrap();
    recorder.values.wait_for(1);
    supplier.push(&[valued(A, 1)]).unwrap();
    let values = recorder.values.wait_for(2);
    assert_eq!(values.iter().map(|value| value.extract::<i32>().unwrap()).collect::<Vec<_>>(), [2, 1]);
    gate.open();
    wait_until(|| scene.channel.statistics().total().delivered == 2);
}

fn slow_for_value(gate: &Arc<Gate>, value: i32) -> Arc<Recorder> {
    let gate = Arc::clone(gate);
    let in_push = move |pushed: Pushed<'_>| {
        if matches!(pushed, Pushed::Value(pushed) if pushed.extract::<i32>() == Ok(value)) {
            gate.pass();
        }
    };
    Arc::new(Recorder { in_push: Box::new(in_push), ..Recorder::new() })
}

#[test]
fn consumer_that_names_a_lane_gets_everything_there_in_order() {
    let scene = Scene::with(two_lanes());
    let gate = Gate::new();
    let at_gate = Arc::clone(&gate);
    let recorder = Arc::new(Recorder { in_push: Box::new(move |_| at_gate.pass()), ..Recorder::new() });
    connect_in_lane(&scene.server, scene.channel.reference(), &recorder, SLOW).unwrap();
    let supplier = supplier(scene.channel.reference(), &[(A, FAST), (B, SLOW)]).unwrap();
    supplier.push(&[event(B, 1), event(A, 2), event(B, 3), event(A, 4)]).unwrap();
    recorder.sets.wait_for(1);
    let queues = scene.channel.statistics().consumers[0].queues.clone();
    assert_eq!(queues.iter().map(|queue| (queue.lane, queue.delivery_sets)).collect::<Vec<_>>(), [(1, 3)]);
    gate.open();
    assert_eq!(sources(&recorder.sets.wait_for(4)), [1, 2, 3, 4]);
}

#[test]
fn lanes_have_threads_of_their_own_with_their_priorities() {
    let server = fair_orb();
    let current = server.real_time().current().unwrap();
    let lanes = [EventLane::new(FAST).priority(900), EventLane::new(SLOW)];
    let channel = patient_channel().lanes(lanes).serve(&server).unwrap();
    let seen = Inbox::new();
    let in_push = {
        let seen = Arc::clone(&seen);
        move |_: Pushed<'_>| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            seen.add((name, current.the_priority().ok()));
        }
    };
    let recorder = Arc::new(Recorder { in_push: Box::new(in_push), ..Recorder::new() });
    connect_consumer(&server, channel.reference(), &both(), &recorder);
    let supplier = supplier(channel.reference(), &[(A, FAST), (B, SLOW)]).unwrap();
    supplier.push(&[event(A, 1)]).unwrap();
    seen.wait_for(1);
    supplier.push(&[event(B, 1)]).unwrap();
    let proxy = channel.statistics().consumers[0].proxy_number;
    let expected = [(format!("events/s{proxy}l0"), Some(900)), (format!("events/s{proxy}l1"), None)];
    assert_eq!(seen.wait_for(2), expected);
    let reactive = patient_channel().name("reactive").serve(&server).unwrap();
    connect_consumer(&server, reactive.reference(), &both(), &recorder);
    self::supplier(reactive.reference(), &[]).unwrap().push(&[event(A, 1)]).unwrap();
    let own = std::thread::current().name().unwrap().to_owned();
    assert_eq!(seen.wait_for(3)[2], (own, None));
}

#[test]
fn pushes_run_in_the_receive_lanes_of_their_priorities() {
    let server = fair_orb();
    let lanes = [EventLane::new(FAST).priority(900), EventLane::new(SLOW).priority(100)];
    let policies = receive_lanes(&server, &lanes, None).unwrap();
    let root = server.root_poa();
    let poa = root.create_rt_poa("consumers", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    // A channel without lanes calls a consumer of the same pool in the thread that receives the
    // push.
    let channel = patient_channel().real_time(policies).serve(&server).unwrap();
    let seen = Inbox::new();
    let in_push = {
        let (seen, current) = (Arc::clone(&seen), server.real_time().current().unwrap());
        move |_: Pushed<'_>| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            let lane = name.split('/').nth(1).unwrap_or_default().to_owned();
            seen.add((lane, current.the_priority().ok()));
        }
    };
    let recorder = Arc::new(Recorder { in_push: Box::new(in_push), ..Recorder::new() });
    let consumer = poa.activate(&<Recorder as PushConsumer>::servant_of(Arc::clone(&recorder))).unwrap();
    let proxy = channel.reference().for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &consumer_qos(&both())).unwrap();
    let client = fair_orb();
    let remote =
        EventChannelRef::unchecked_narrow(&client.string_to_object(&channel.reference().to_string()).unwrap().unwrap());
    let supplier = supplier(&remote, &[]).unwrap();
    // Each priority, from 0 on, belongs to the band of the highest lane that is not above it.
    let expected = [(0, "p100"), (100, "p100"), (899, "p100"), (900, "p900"), (i16::MAX, "p900")];
    for (sent, (priority, lane)) in (1..).zip(expected) {
        client.real_time().current().unwrap().set_priority(priority).unwrap();
        supplier.push(&[event(A, 1)]).unwrap();
        assert_eq!(seen.wait_for(sent)[sent - 1].0, lane, "{priority}");
    }
}

#[test]
fn receive_lanes_need_lanes_with_valid_priorities() {
    let server = fair_orb();
    for lanes in [vec![], vec![EventLane::new(FAST).priority(-1)]] {
        assert_eq!(receive_lanes(&server, &lanes, None).unwrap_err().kind(), Kind::BadParam);
    }
}

/// Returns an ORB whose threads keep the ordinary class at each CORBA priority.
fn fair_orb() -> Orb {
    let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(rt).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

#[test]
fn lanes_that_do_not_exist_are_refused() {
    let scene = Scene::with(two_lanes().name("flight"));
    let is_bad = |exception: &corelane::SystemException| exception.kind() == Kind::BadParam;
    let recorder = Arc::new(Recorder::new());
    let refused = connect_in_lane(&scene.server, scene.channel.reference(), &recorder, 7).unwrap_err();
    assert!(matches!(&refused, ConnectPushConsumerError::System(exception) if is_bad(exception)), "{refused:?}");
    let refused = supplier(scene.channel.reference(), &[(A, 0), (B, 7)]).unwrap_err();
    assert!(matches!(&refused, ConnectPushSupplierError::System(exception) if is_bad(exception)), "{refused:?}");
    let plain = patient_channel().name("plain").serve(&scene.server).unwrap();
    connect_in_lane(&scene.server, plain.reference(), &recorder, 7).unwrap();
    supplier(plain.reference(), &[(A, 7)]).unwrap();
    let serve = |lanes: Vec<EventLane>| patient_channel().name("wrong").lanes(lanes).serve(&scene.server);
    for wrong in [vec![EventLane::new(0)], vec![EventLane::new(1); 2], (1..18).map(EventLane::new).collect()] {
        assert!(serve(wrong).is_err_and(|exception| is_bad(&exception)));
    }
    assert_eq!(serve(vec![EventLane::new(1).priority(-1)]).unwrap_err().kind(), Kind::BadParam);
}

/// Returns a channel whose consumer waits at a gate in each push and has room for `max_sets` sets
/// in its queue.
fn stuck(
    builder: EventChannelBuilder,
    set: &DependencySet,
    max_sets: usize,
) -> (Scene, Arc<Gate>, Arc<Recorder>, ProxyPushConsumerRef) {
    let queue = QueueLimits { max_delivery_sets: max_sets, ..QueueLimits::default() };
    let scene = Scene::with(builder.queue_limits(queue));
    let gate = Gate::new();
    let at_gate = Arc::clone(&gate);
    let recorder = Arc::new(Recorder { in_push: Box::new(move |_| at_gate.pass()), ..Recorder::new() });
    connect_consumer(&scene.server, scene.channel.reference(), set, &recorder);
    let supplier = supplier(scene.channel.reference(), &[(A, FAST), (B, SLOW)]).unwrap();
    supplier.push(&[event(A, 1)]).unwrap();
    recorder.sets.wait_for(1);
    (scene, gate, recorder, supplier)
}

#[test]
fn gap_event_tells_a_consumer_that_asks_for_it_what_it_has_missed() {
    let set = DependencySet::new().disjunction(2).event(A, ANY).event(EventType::GAP, ANY);
    let (scene, gate, recorder, supplier) = stuck(two_lanes(), &set, 2);
    for source in 2..=5 {
        supplier.push(&[event(A, source)]).unwrap();
    }
    gate.open();
    wait_until(|| scene.channel.statistics().total().in_flight == 0);
    let sets = recorder.sets.wait_for(4);
    // The senders of both lanes report drops, so the two drops have one gap event or one each.
    let (gaps, events): (Vec<_>, Vec<_>) = sets.into_iter().partition(|set| set[0].header.r#type == EventType::GAP.0);
    assert_eq!((types(&events), sources(&events)), (vec![vec![A.0]; 3], vec![1, 4, 5]));
    let told: Vec<Gap> = gaps.iter().map(|set| set[0].data.any_value.extract().unwrap()).collect();
    let drops = 2 / told.len() as u64;
    for (number, gap) in (1..).zip(&told) {
        let since_connected = Drops { queue_full: number * drops, ..Drops::default() };
        assert_eq!(*gap, Gap { queue_full: drops, since_connected, ..Gap::default() }, "{told:?}");
    }
    let consumer = &scene.channel.statistics().consumers[0];
    let gaps = told.len() as u64;
    assert_eq!((consumer.counts.routed, consumer.counts.delivered), (5 + gaps, 3 + gaps));
    assert_eq!(consumer.drops_by_type.iter().map(|(it, drops)| (*it, drops.queue_full)).collect::<Vec<_>>(), [(A, 2)]);
}

#[test]
fn consumer_with_a_full_queue_is_disconnected_if_configured() {
    let builder = two_lanes().overflow_policy(OverflowPolicy::Disconnect);
    let (scene, gate, recorder, supplier) = stuck(builder, &DependencySet::new().event(A, ANY), 2);
    supplier.push(&[event(A, 2), event(A, 3)]).unwrap();
    assert_eq!(scene.channel.statistics().consumers.len(), 1);
    supplier.push(&[event(A, 4), event(A, 5)]).unwrap();
    assert_eq!(scene.channel.statistics().consumers, []);
    gate.open();
    assert_eq!(recorder.disconnects.wait_for(1), ["push consumer"]);
    wait_until(|| scene.channel.statistics().total().in_flight == 0);
    let departed = scene.channel.statistics().disconnected_consumers;
    assert_eq!((departed.routed, departed.delivered), (4, 1));
    assert_eq!((departed.dropped.queue_full, departed.dropped.disconnected), (1, 2));
    assert_eq!(sources(&recorder.sets.all()), [1]);
}

#[test]
fn event_that_has_outlived_its_lifetime_is_dropped_and_counted() {
    let builder = two_lanes().event_type_lifetime(B, Duration::ZERO);
    let (scene, gate, recorder, supplier) = stuck(builder, &both(), 8);
    let values = scene.channel.cos_reference().for_consumers().unwrap().unwrap();
    let puller = values.obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    supplier.push(&[event(B, 2), event(A, 3), event(B, 4)]).unwrap();
    gate.open();
    assert_eq!(sources(&recorder.sets.wait_for(2)), [1, 3]);
    assert_eq!((puller.try_pull().unwrap().1, puller.try_pull().unwrap().1), (true, false));
    wait_until(|| scene.channel.statistics().total().dropped.expired == 4);
    for consumer in scene.channel.statistics().consumers {
        assert_eq!(consumer.drops_by_type.iter().map(|(it, drops)| (*it, drops.expired)).collect::<Vec<_>>(), [(B, 2)]);
        assert!(consumer.counts.is_balanced());
    }
}

#[test]
fn least_urgent_event_is_dropped_from_a_full_queue() {
    let queue = QueueLimits { max_delivery_sets: 3, ..QueueLimits::default() };
    let scene = Scene::with(two_lanes().queue_limits(queue).overflow_policy(OverflowPolicy::DropLeastUrgent));
    let gate = Gate::new();
    let at_gate = Arc::clone(&gate);
    let recorder = Arc::new(Recorder { in_push: Box::new(move |_| at_gate.pass()), ..Recorder::new() });
    connect_in_lane(&scene.server, scene.channel.reference(), &recorder, FAST).unwrap();
    let supplier = supplier(scene.channel.reference(), &[(A, FAST), (B, SLOW)]).unwrap();
    supplier.push(&[event(A, 1)]).unwrap();
    recorder.sets.wait_for(1);
    supplier.push(&[event(A, 2), event(B, 3), event(B, 4), event(A, 5), event(A, 6), event(B, 7)]).unwrap();
    gate.open();
    assert_eq!(sources(&recorder.sets.wait_for(4)), [1, 2, 5, 6]);
}

#[test]
fn supplier_of_values_is_in_the_lane_of_their_type() {
    let fast = EventLane::new(FAST).event_type(EventType(30));
    let scene =
        Scene::with(patient_channel().lanes([fast, EventLane::new(SLOW)]).cos_events(EventType(30), EventSource(1)));
    let puller =
        scene.channel.cos_reference().for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    supplier(scene.channel.reference(), &[]).unwrap().push(&[event(A, 1)]).unwrap();
    connect_cos_supplier(scene.channel.cos_reference()).push(&Any::new(&7_i32).unwrap()).unwrap();
    let queues = scene.channel.statistics().consumers[0].queues.clone();
    assert_eq!(queues.iter().map(|queue| (queue.lane, queue.delivery_sets)).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
    assert_eq!(puller.try_pull().unwrap().0.extract::<i32>(), Ok(7));
}
