//! Channels with a schedule, over TCP: connections that do not fit are refused, and events beyond
//! their declaration go to the least urgent lane or are dropped.

mod events_scene;

use std::sync::Arc;
use std::time::Duration;

use corelane::{SystemException, SystemExceptionKind as Kind, minor};
use corelane_services::events::corelane_events::Monitor as _;
use corelane_services::events::rtec_event_channel_admin::proxy_push_consumer::ConnectPushSupplierError;
use corelane_services::events::rtec_event_channel_admin::proxy_push_supplier::ConnectPushConsumerError;
use corelane_services::events::rtec_event_channel_admin::{
    EventChannelRef, ProxyPushConsumerRef, ProxyPushSupplierRef, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{PushConsumer, PushConsumerRef};
use corelane_services::events::schedule::{AdmissibleLoad, RefusedPeer, ScheduleTest};
use corelane_services::events::{
    ChannelSchedule, DependencySet, EventChannelBuilder, EventLane, EventMonitor, EventSource, PublicationEntry,
    SubscriptionEntry, SurplusPolicy,
};

use self::events_scene::*;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Returns a schedule. Its publications are the entries 101 (every 10 ms) and 102 (every hour, 64
/// bytes), and its subscriptions the entries 201 and 202 (12 ms). All but the entry 202 permit two
/// users.
fn schedule() -> ChannelSchedule {
    ChannelSchedule::new()
        .publication(PublicationEntry::new(101, 20, 10 * MS).wcet(4 * MS).max_users(2))
        .publication(PublicationEntry::new(102, 20, HOUR).wcet(MS).max_size(64).max_users(2))
        .subscription(SubscriptionEntry::new(201).max_users(2))
        .subscription(SubscriptionEntry::new(202).wcet(12 * MS))
}

fn channel(schedule: ChannelSchedule) -> EventChannelBuilder {
    patient_channel().lanes([EventLane::new(20).event_type(B), EventLane::new(1)]).schedule(schedule)
}

fn consume(
    scene: &Scene,
    channel: &EventChannelRef,
    rt_info: i32,
    recorder: &Arc<Recorder>,
) -> Result<ProxyPushSupplierRef, SystemException> {
    let servant = <Recorder as PushConsumer>::servant_of(Arc::clone(recorder));
    let consumer = scene.other.root_poa().activate(&servant).unwrap();
    let proxy = channel.for_consumers()?.unwrap().obtain_push_supplier()?.unwrap();
    let mut qos = consumer_qos(&DependencySet::new().event(A, ANY).event(B, ANY));
    qos.dependencies.iter_mut().for_each(|dependency| dependency.rt_info = rt_info);
    match proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &qos) {
        Ok(()) => Ok(proxy),
        Err(ConnectPushConsumerError::System(exception)) => Err(exception),
        Err(error) => panic!("{error:?}"),
    }
}

fn supply(channel: &EventChannelRef, qos: &SupplierQOS) -> Result<ProxyPushConsumerRef, SystemException> {
    let proxy = channel.for_suppliers()?.unwrap().obtain_push_consumer()?.unwrap();
    match proxy.connect_push_supplier(None, qos) {
        Ok(()) => Ok(proxy),
        Err(ConnectPushSupplierError::System(exception)) => Err(exception),
        Err(error) => panic!("{error:?}"),
    }
}

fn publishing(published: &[(corelane_services::events::EventType, i32)], rt_info: i32) -> SupplierQOS {
    let mut qos = supplier_qos(published);
    qos.publications.iter_mut().for_each(|publication| publication.dependency_info.rt_info = rt_info);
    qos
}

#[test]
fn connection_that_does_not_fit_is_refused_until_there_is_room() {
    let heard = Inbox::new();
    let listener = Arc::clone(&heard);
    let scene = Scene::with(channel(schedule()).on_refusal(move |refusal| listener.add(refusal.to_string())));
    let remote = scene.remote();
    let recorder = Arc::new(Recorder::new());
    let fast = supply(&remote, &publishing(&[(A, 1)], 101)).unwrap();
    consume(&scene, &remote, 201, &recorder).unwrap();
    let refused = consume(&scene, &remote, 202, &recorder).unwrap_err();
    assert_eq!((refused.kind(), refused.minor()), (Kind::NoResources, minor::NOT_ADMITTED));
    let refusal = scene.channel.refusals().pop().unwrap();
    assert_eq!((refusal.peer, refusal.lane), (RefusedPeer::Consumer, 20));
    assert_eq!(refusal.admissible, Some(AdmissibleLoad::ExecutionTime(6_000_000)));
    assert_eq!(heard.all(), [refusal.to_string()]);
    // Two consumers fit. The events of a second supplier would be too much for them.
    consume(&scene, &remote, 201, &recorder).unwrap();
    let more = publishing(&[(A, 2)], 101);
    let refused = supply(&remote, &more).unwrap_err();
    assert_eq!((refused.kind(), refused.minor()), (Kind::NoResources, minor::NOT_ADMITTED));
    assert_eq!(scene.channel.refusals().pop().unwrap().peer, RefusedPeer::Supplier);
    assert_eq!(scene.channel.statistics().surplus.not_admitted, 2);
    fast.disconnect_push_consumer().unwrap();
    supply(&remote, &more).unwrap();
    assert_eq!(heard.all().len(), 2);
}

#[test]
fn consumer_without_an_entry_is_never_refused_and_gets_best_effort() {
    let scene = Scene::with(channel(schedule()));
    let remote = scene.remote();
    let recorder = Arc::new(Recorder::new());
    let supplier = supply(&remote, &publishing(&[(A, 1)], 102)).unwrap();
    for _ in 0..3 {
        consume(&scene, &remote, 0, &recorder).unwrap();
    }
    consume(&scene, &remote, 201, &recorder).unwrap();
    supplier.push(&[event(A, 1)]).unwrap();
    assert_eq!(recorder.sets.wait_for(4).len(), 4);
    let lanes = |consumer: &corelane_services::events::ConsumerStatistics| {
        consumer.queues.iter().map(|queue| queue.lane).collect::<Vec<_>>()
    };
    let lanes: Vec<_> = scene.channel.statistics().consumers.iter().map(lanes).collect();
    assert_eq!(lanes, [vec![1], vec![1], vec![1], vec![0, 1]]);
}

/// Pushes one event within its declaration, five events beyond it, and one event without an entry.
fn push_too_much(scene: &Scene) {
    let supplier = supply(&scene.remote(), &publishing(&[(A, 1), (A, 2)], 102)).unwrap();
    let mut large = event(A, 2);
    large.data.payload = vec![7; 65].into();
    let unknown_source = event(A, 0);
    // The second event and those after the third come too early, the third is too large, and the
    // last has no declared source.
    for event in [event(A, 1), event(A, 1), large, event(A, 1), event(A, 1), event(A, 1), unknown_source] {
        supplier.push(&[event]).unwrap();
    }
}

#[test]
fn surplus_goes_to_the_least_urgent_lane() {
    let scene = Scene::with(channel(schedule()));
    let monitor = EventMonitor::new();
    monitor.add(&scene.channel);
    let recorder = Arc::new(Recorder::new());
    consume(&scene, &scene.remote(), 201, &recorder).unwrap();
    push_too_much(&scene);
    recorder.sets.wait_for(7);
    let statistics = scene.channel.statistics();
    assert_eq!((statistics.published, statistics.total().routed), (7, 7));
    assert_eq!((statistics.surplus.best_effort, statistics.surplus.dropped), (5, 0));
    let shown = monitor.channel_named(scene.channel.name()).unwrap().surplus;
    assert_eq!((shown.best_effort, shown.dropped, shown.not_admitted), (5, 0, 0));
}

#[test]
fn surplus_is_dropped_and_counted() {
    let scene = Scene::with(channel(schedule().surplus_policy(SurplusPolicy::Drop)));
    let recorder = Arc::new(Recorder::new());
    consume(&scene, &scene.remote(), 201, &recorder).unwrap();
    push_too_much(&scene);
    wait_until(|| scene.channel.statistics().surplus.dropped == 5);
    wait_until(|| scene.channel.statistics().published == 2);
    recorder.sets.wait_for(2);
    assert_eq!(scene.channel.statistics().total().routed, 2);
    assert_eq!(scene.channel.statistics().surplus.best_effort, 0);
}

#[test]
fn further_user_of_an_entry_is_refused_until_one_leaves() {
    let one_user = ChannelSchedule::new()
        .publication(PublicationEntry::new(101, 20, HOUR).wcet(MS).event(A, EventSource(1)))
        .subscription(SubscriptionEntry::new(201));
    let scene = Scene::with(channel(one_user).allow_consumer_reconnect(true));
    let remote = scene.remote();
    let recorder = Arc::new(Recorder::new());
    let first = supply(&remote, &publishing(&[(A, 1)], 101)).unwrap();
    let consumer = consume(&scene, &remote, 201, &recorder).unwrap();
    let says = |refused: SystemException, peer, entry| {
        assert_eq!((refused.kind(), refused.minor()), (Kind::NoResources, minor::NOT_ADMITTED));
        let refusal = scene.channel.refusals().pop().unwrap();
        assert_eq!((refusal.peer, refusal.failed_test), (peer, ScheduleTest::EntryUsers { entry, max: 1 }));
    };
    says(supply(&remote, &publishing(&[(A, 1)], 101)).unwrap_err(), RefusedPeer::Supplier, 101);
    says(consume(&scene, &remote, 201, &recorder).unwrap_err(), RefusedPeer::Consumer, 201);
    // Peers without an entry are not users. The entry's user may connect again on its own proxy.
    supply(&remote, &publishing(&[(A, 1)], 0)).unwrap();
    consume(&scene, &remote, 0, &recorder).unwrap();
    let servant = <Recorder as PushConsumer>::servant_of(recorder.clone());
    let same = PushConsumerRef::unchecked_narrow(&scene.other.root_poa().activate(&servant).unwrap());
    let mut qos = consumer_qos(&DependencySet::new().event(A, ANY));
    qos.dependencies[0].rt_info = 201;
    consumer.connect_push_consumer(Some(&same), &qos).unwrap();
    first.disconnect_push_consumer().unwrap();
    supply(&remote, &publishing(&[(A, 1)], 101)).unwrap();
    // The entry 101 is for the source 1.
    let wrong = supply(scene.channel.reference(), &publishing(&[(A, 2)], 101)).unwrap_err();
    let text = format!("{wrong:?}");
    assert!(wrong.kind() == Kind::BadParam && text.contains("publications[0].event.header.source"), "{text}");
    assert_eq!(scene.channel.statistics().surplus.not_admitted, 2);
}

#[test]
fn second_connect_of_a_connected_proxy_is_refused_without_an_analysis() {
    let scene = Scene::with(channel(schedule()));
    let remote = scene.remote();
    let supplier = supply(&remote, &publishing(&[(A, 1)], 101)).unwrap();
    let consumer = consume(&scene, &remote, 201, &Arc::new(Recorder::new())).unwrap();
    // An analysis would refuse both this supplier and the consumer with entry 202 below with
    // NO_RESOURCES. AlreadyConnected shows that there is no analysis.
    let too_many = publishing(&[(A, 1), (A, 2), (A, 3)], 101);
    let refused = supplier.connect_push_supplier(None, &too_many).unwrap_err();
    assert!(matches!(refused, ConnectPushSupplierError::AlreadyConnected(_)), "{refused:?}");
    let servant = <Recorder as PushConsumer>::servant_of(Arc::new(Recorder::new()));
    let other = PushConsumerRef::unchecked_narrow(&scene.other.root_poa().activate(&servant).unwrap());
    let mut qos = consumer_qos(&DependencySet::new().event(A, ANY));
    qos.dependencies[0].rt_info = 202;
    let refused = consumer.connect_push_consumer(Some(&other), &qos).unwrap_err();
    assert!(matches!(refused, ConnectPushConsumerError::AlreadyConnected(_)), "{refused:?}");
    assert_eq!((scene.channel.refusals(), scene.channel.statistics().surplus.not_admitted), (Vec::new(), 0));
}

#[test]
fn supplier_that_connects_again_goes_on_with_its_meter() {
    let scene = Scene::with(channel(schedule()).allow_supplier_reconnect(true));
    let remote = scene.remote();
    // The entry 102 permits one event an hour.
    let first = supply(&remote, &publishing(&[(A, 1)], 102)).unwrap();
    first.push(&[event(A, 1)]).unwrap();
    wait_until(|| scene.channel.statistics().published == 1);
    first.disconnect_push_consumer().unwrap();
    // The supplier connects again with another source, on another proxy. It continues with its
    // meter, so the next event is surplus.
    let second = supply(&remote, &publishing(&[(A, 2)], 102)).unwrap();
    second.push(&[event(A, 2)]).unwrap();
    wait_until(|| scene.channel.statistics().published == 2);
    assert_eq!(scene.channel.statistics().surplus.best_effort, 1);
    second.connect_push_supplier(None, &publishing(&[(A, 1)], 102)).unwrap();
    second.push(&[event(A, 1)]).unwrap();
    wait_until(|| scene.channel.statistics().published == 3);
    assert_eq!(scene.channel.statistics().surplus.best_effort, 2);
}

#[test]
fn wrong_numbers_and_entries_are_refused_with_their_field() {
    let scene = Scene::with(channel(schedule()));
    // Calls within the process keep the reason of an exception, so the test calls the local
    // channel.
    let local = scene.channel.reference();
    let mut qos = publishing(&[(A, 1), (A, 2)], 101);
    qos.publications[1].dependency_info.rt_info = 20;
    let says = |result: Result<_, SystemException>, field: &str| {
        let exception = result.map(|_: ProxyPushConsumerRef| ()).unwrap_err();
        let text = format!("{exception:?}");
        assert!(exception.kind() == Kind::BadParam && text.contains(field), "{text}");
    };
    says(supply(local, &qos), "publications[1].dependency_info.rt_info: the schedule has no publication entry 20");
    says(supply(local, &publishing(&[(A, 1)], 201)), "publications[0].dependency_info.rt_info");
    says(supply(local, &publishing(&[(A, 0)], 101)), "publications[0].event.header.source");
    says(supply(local, &publishing(&[(ANY_TYPE, 1)], 101)), "publications[0].event.header.type");
    let refused = consume(&scene, local, 101, &Arc::new(Recorder::new())).unwrap_err();
    let text = format!("{refused:?}");
    assert!(refused.kind() == Kind::BadParam && text.contains("dependencies[0].rt_info"), "{text}");
    assert_eq!(scene.channel.statistics().surplus.not_admitted, 0);

    let one_lane = patient_channel().name("other").lanes([EventLane::new(20)]).schedule(schedule());
    let refused = one_lane.serve(&scene.server).unwrap_err();
    assert!(refused.kind() == Kind::BadParam && format!("{refused:?}").contains("lanes"), "{refused:?}");
}

const ANY_TYPE: corelane_services::events::EventType = corelane_services::events::EventType::ANY;
