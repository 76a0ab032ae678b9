//! An event channel through the ORB: consumers and suppliers in the channel's ORB and in another
//! ORB, which stands for another process.

mod events_scene;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use corelane::{Any, SystemExceptionKind as Kind};
use corelane_services::events::cos_event_channel_admin;
use corelane_services::events::cos_event_comm::pull_supplier::{PullError, TryPullError};
use corelane_services::events::cos_event_comm::push_consumer::PushError;
use corelane_services::events::cos_event_comm::{Disconnected, PullSupplier, PullSupplierRef};
use corelane_services::events::lifecycle::cos_life_cycle::NameValuePair;
use corelane_services::events::lifecycle::cos_life_cycle::generic_factory::CreateObjectError;
use corelane_services::events::lifecycle::cos_naming::NameComponent;
use corelane_services::events::lifecycle::omni_events;
use corelane_services::events::rtec_event_channel_admin::event_channel::RemoveObserverError;
use corelane_services::events::rtec_event_channel_admin::proxy_push_supplier::ConnectPushConsumerError;
use corelane_services::events::rtec_event_channel_admin::{
    ConsumerQOS, Observer, ObserverRef, ProxyPushSupplierRef, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumer, PushConsumerRef};
use corelane_services::events::{
    ChannelLimits, DependencySet, Designator, EventChannelFactory, EventSource, EventType, FACTORY_KEY, FilterBuilder,
    TimeoutKind,
};
use corelane_sys::clock::Monotonic;

use self::events_scene::*;

fn only(event_type: EventType) -> DependencySet {
    DependencySet::new().event(event_type, ANY)
}

#[test]
fn events_reach_consumers_in_the_process_and_in_others_with_time_stamps() {
    let scene = Scene::new();
    let (near, far) = (Arc::new(Recorder::new()), Arc::new(Recorder::new()));
    connect_consumer(&scene.server, scene.channel.reference(), &only(A), &near);
    connect_consumer(&scene.other, &scene.remote(), &only(A), &far);
    let local = connect_supplier(&scene.server, scene.channel.reference(), &[], &near);
    let remote = connect_supplier(&scene.other, &scene.remote(), &[], &far);
    let before = Monotonic::now().as_nanos() / 100;
    let mut first = event(A, 1);
    first.header.creation_time = 77;
    first.data.any_value = Any::new(&"text".to_owned()).unwrap();
    local.push(&[first.clone(), event(B, 1)]).unwrap();
    assert_eq!(types(&near.sets.all()), [[16]]);
    assert_eq!(types(&far.sets.wait_for(1)), [[16]]);
    remote.push(&[event(B, 2), event(A, 2)]).unwrap();
    for sets in [near.sets.wait_for(2), far.sets.wait_for(2)] {
        assert_eq!(types(&sets), [[16], [16]]);
        assert_eq!((sets[0][0].header.source, sets[1][0].header.source), (1, 2));
        assert_eq!(sets[0][0].data, first.data);
        let EventHeader { creation_time, ec_recv_time, ec_send_time, .. } = sets[0][0].header;
        assert_eq!(creation_time, 77);
        assert!(before <= ec_recv_time && ec_recv_time <= ec_send_time, "{before} {ec_recv_time} {ec_send_time}");
    }
    wait_until(|| scene.channel.statistics().total().delivered == 4);
    let statistics = scene.channel.statistics();
    assert_eq!((statistics.published, statistics.suppliers, statistics.consumers.len()), (4, 2, 2));
    assert!(statistics.consumers.iter().all(|consumer| consumer.counts.is_balanced()));
}

#[test]
fn conjunction_delivers_one_set_and_interval_timeouts_arrive() {
    let scene = Scene::with(patient_channel().filter_builder(FilterBuilder::Prefix));
    let (both, timed) = (Arc::new(Recorder::new()), Arc::new(Recorder::new()));
    let pair = DependencySet::new().conjunction(2).event(A, ANY).event(B, EventSource(7));
    connect_consumer(&scene.other, &scene.remote(), &pair, &both);
    let interval = DependencySet::new().timeout(TimeoutKind::Interval, 20_000);
    let timer = connect_consumer(&scene.other, &scene.remote(), &interval, &timed);
    let supplier = connect_supplier(&scene.server, scene.channel.reference(), &[], &both);
    for event in [event(A, 1), event(A, 2), event(B, 6), event(B, 7), event(B, 7)] {
        supplier.push(&[event]).unwrap();
    }
    let sets = both.sets.wait_for(1);
    assert_eq!(types(&sets), [[16, 17]]);
    assert_eq!((sets[0][0].header.source, sets[0][1].header.source), (1, 7));
    let ticks = timed.sets.wait_for(3);
    assert!(types(&ticks).iter().all(|set| *set == [5]), "{ticks:?}");
    // The times of the expiries are multiples of the period apart, even if deliveries are late.
    let due: Vec<u64> = ticks.iter().map(|set| set[0].header.creation_time).collect();
    assert!(due.windows(2).all(|pair| (pair[1] - pair[0]) % 20_000 == 0), "{due:?}");
    timer.disconnect_push_supplier().unwrap();
    assert_eq!(timer.disconnect_push_supplier().unwrap_err().kind(), Kind::ObjectNotExist);
    assert_eq!(timed.disconnects.all(), [""; 0]);
}

#[test]
fn connection_is_suspended_resumed_and_refused() {
    let scene = Scene::new();
    let recorder = Arc::new(Recorder::new());
    let proxy = connect_consumer(&scene.server, scene.channel.reference(), &only(A), &recorder);
    let supplier = connect_supplier(&scene.server, scene.channel.reference(), &[(A, 1)], &recorder);
    supplier.push(&[event(A, 1)]).unwrap();
    proxy.suspend_connection().unwrap();
    supplier.push(&[event(A, 1)]).unwrap();
    proxy.resume_connection().unwrap();
    supplier.push(&[event(A, 1), event(A, 2)]).unwrap();
    assert_eq!(recorder.sets.all().len(), 2);
    let mut negative = event(A, 1);
    negative.header.ttl = -1;
    assert_eq!(supplier.push(&[negative, event(A, 1)]).unwrap_err().kind(), Kind::BadParam);
    let statistics = scene.channel.statistics();
    assert_eq!((statistics.published, statistics.undeclared, statistics.refused), (4, 1, 1));
    let counts = statistics.consumers[0].counts;
    assert_eq!((counts.routed, counts.delivered, counts.dropped.suspended), (4, 3, 1));

    let connect = |proxy: &ProxyPushSupplierRef, set: &DependencySet| {
        let consumer = <Recorder as PushConsumer>::servant(Recorder::new());
        let consumer = scene.server.root_poa().activate(&consumer).unwrap();
        proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &consumer_qos(set))
    };
    assert!(matches!(connect(&proxy, &only(A)), Err(ConnectPushConsumerError::AlreadyConnected(_))));
    let fresh = scene.channel.reference().for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    let cut = DependencySet::new().negation();
    assert!(matches!(connect(&fresh, &cut), Err(ConnectPushConsumerError::TypeError(_))));
    assert_eq!(fresh.suspend_connection().unwrap_err().kind(), Kind::BadInvOrder);
    let nil = fresh.connect_push_consumer(None, &ConsumerQOS::default());
    assert!(matches!(nil, Err(ConnectPushConsumerError::System(exception)) if exception.kind() == Kind::BadParam));
    let own = fresh.connect_push_consumer(Some(&supplier), &consumer_qos(&only(A)));
    assert!(matches!(own, Err(ConnectPushConsumerError::System(exception)) if exception.kind() == Kind::BadParam));
    connect(&fresh, &only(A)).unwrap();
    let unconnected = scene.channel.reference().for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap();
    assert_eq!(unconnected.unwrap().push(&[event(A, 1)]).unwrap_err().kind(), Kind::BadInvOrder);
}

#[test]
fn reconnection_replaces_consumer_and_filter_if_permitted() {
    let scene = Scene::with(patient_channel().allow_consumer_reconnect(true).allow_supplier_reconnect(true));
    let (old, new) = (Arc::new(Recorder::new()), Arc::new(Recorder::new()));
    let proxy = connect_consumer(&scene.other, &scene.remote(), &only(A), &old);
    let supplier = connect_supplier(&scene.server, scene.channel.reference(), &[(A, 1)], &old);
    supplier.push(&[event(A, 1)]).unwrap();
    old.sets.wait_for(1);
    let consumer = <Recorder as PushConsumer>::servant_of(Arc::clone(&new));
    let consumer = PushConsumerRef::unchecked_narrow(&scene.other.root_poa().activate(&consumer).unwrap());
    proxy.connect_push_consumer(Some(&consumer), &consumer_qos(&only(B))).unwrap();
    supplier.connect_push_supplier(None, &supplier_qos(&[(B, 0)])).unwrap();
    supplier.push(&[event(A, 1), event(B, 1)]).unwrap();
    assert_eq!(types(&new.sets.wait_for(1)), [[17]]);
    assert_eq!((types(&old.sets.all()), old.disconnects.all()), (vec![vec![16]], vec![]));
    wait_until(|| scene.channel.statistics().total().delivered == 2);
    assert_eq!(scene.channel.statistics().disconnected_consumers.delivered, 1);
}

#[test]
fn values_are_pushed_and_pulled_through_the_standard_event_service() {
    let scene = Scene::with(patient_channel().cos_event_type("IDL:RtecEventData:1.0", B));
    let (near, far) = (Arc::new(Recorder::new()), Arc::new(Recorder::new()));
    connect_cos_consumer(&scene.server, scene.channel.cos_reference(), &near);
    let pushed_to = connect_cos_consumer(&scene.other, &scene.remote_cos(), &far);
    connect_consumer(&scene.server, scene.channel.reference(), &only(A), &near);
    let admin = scene.remote_cos().for_consumers().unwrap().unwrap();
    let puller = admin.obtain_pull_supplier().unwrap().unwrap();
    assert!(matches!(puller.pull(), Err(PullError::Disconnected(_))));
    puller.connect_pull_consumer(None).unwrap();
    assert_eq!(puller.try_pull().unwrap(), (Any::null(), false));
    let supplier = connect_cos_supplier(&scene.remote_cos());
    let value = |text: &str| Any::new(&text.to_owned()).unwrap();
    for text in ["one", "two"] {
        supplier.push(&value(text)).unwrap();
    }
    assert_eq!(near.values.wait_for(2), [value("one"), value("two")]);
    assert_eq!(far.values.wait_for(2), [value("one"), value("two")]);
    assert_eq!(types(&near.sets.wait_for(2)), [[16], [16]]);
    assert_eq!(puller.pull().unwrap(), value("one"));
    assert_eq!(puller.try_pull().unwrap(), (value("two"), true));
    assert!(matches!(puller.pull(), Err(PullError::System(exception)) if exception.kind() == Kind::Transient));
    // The type of the first event follows from its repository id and is not 16, so the consumer of
    // type 16 does not get the event. The second event has no value, so consumers of values get the
    // whole event.
    supplier.push(&Any::new(&event(B, 0).data).unwrap()).unwrap();
    let rtec = connect_supplier(&scene.other, &scene.remote(), &[], &far);
    rtec.push(&[event(B, 3)]).unwrap();
    let whole: Event = far.values.wait_for(4)[3].extract().unwrap();
    assert_eq!((whole.header.r#type, whole.header.source), (17, 3));
    assert_eq!(near.sets.all().len(), 2);
    pushed_to.disconnect_push_supplier().unwrap();
    supplier.disconnect_push_consumer().unwrap();
    assert!(matches!(supplier.push(&value("late")), Err(PushError::System(e)) if e.kind() == Kind::ObjectNotExist));
}

struct Stock(corelane_sys::lock::Mutex<Vec<i32>>, Arc<Inbox<&'static str>>);

impl PullSupplier for Stock {
    fn pull(&self) -> Result<Any, PullError> {
        Err(PullError::Disconnected(Disconnected))
    }

    fn try_pull(&self) -> Result<(Any, bool), TryPullError> {
        let value = self.0.lock().pop();
        Ok((Any::new(&value.unwrap_or_default())?, value.is_some()))
    }

    fn disconnect_pull_supplier(&self) -> Result<(), corelane::SystemException> {
        self.1.add("pull supplier");
        Ok(())
    }
}

#[test]
fn channel_pulls_from_suppliers_until_they_are_disconnected() {
    let scene = Scene::with(patient_channel().pull_interval(Duration::from_millis(1)));
    let recorder = Arc::new(Recorder::new());
    connect_cos_consumer(&scene.server, scene.channel.cos_reference(), &recorder);
    let values = corelane_sys::lock::Mutex::new("test stock", corelane_sys::lock::LockScope::Orb, vec![3, 2, 1]);
    let disconnects = Inbox::new();
    let stock = PullSupplier::servant(Stock(values, Arc::clone(&disconnects)));
    let stock = PullSupplierRef::unchecked_narrow(&scene.other.root_poa().activate(&stock).unwrap());
    let admin = scene.remote_cos().for_suppliers().unwrap().unwrap();
    let proxy = admin.obtain_pull_consumer().unwrap().unwrap();
    assert!(proxy.connect_pull_supplier(None).is_err());
    proxy.connect_pull_supplier(Some(&stock)).unwrap();
    let pulled: Vec<i32> = recorder.values.wait_for(3).iter().map(|value| value.extract().unwrap()).collect();
    assert_eq!(pulled, [1, 2, 3]);
    scene.channel.destroy().unwrap();
    assert_eq!(disconnects.wait_for(1), ["pull supplier"]);
    wait_until(|| proxy.as_object().non_existent() == Ok(true));
}

#[test]
fn destruction_calls_each_peer_back_once() {
    let scene = Scene::new();
    let recorders: Vec<Arc<Recorder>> = (0..4)
        .map(|_| {
            let remote = scene.remote();
            let own = Recorder { in_disconnect: Box::new(move || drop(remote.destroy())), ..Recorder::new() };
            Arc::new(own)
        })
        .collect();
    connect_consumer(&scene.server, scene.channel.reference(), &only(A), &recorders[0]);
    connect_consumer(&scene.other, &scene.remote(), &only(A), &recorders[1]);
    connect_supplier(&scene.server, scene.channel.reference(), &[], &recorders[2]);
    let supplier = connect_supplier(&scene.other, &scene.remote(), &[], &recorders[3]);
    let channel = scene.remote();
    channel.destroy().unwrap();
    for recorder in &recorders {
        recorder.disconnects.wait_for(1);
    }
    // While a request is running, a destroyed POA answers TRANSIENT, so the test waits for
    // OBJECT_NOT_EXIST.
    wait_until(|| channel.destroy().is_err_and(|exception| exception.kind() == Kind::ObjectNotExist));
    wait_until(|| supplier.as_object().non_existent() == Ok(true));
    let operations: Vec<_> = recorders.iter().flat_map(|recorder| recorder.disconnects.all()).collect();
    assert_eq!(operations, ["push consumer", "push consumer", "push supplier", "push supplier"]);
    scene.channel.destroy().unwrap();
}

#[test]
fn destroyed_channel_gives_its_plain_keys_back() {
    let scene = Scene::with(patient_channel().name("flight"));
    let other = scene.server.root_poa().activate(&<Recorder as PushConsumer>::servant_of(Arc::new(Recorder::new())));
    let other = other.unwrap();
    let bind = |key: &str| scene.server.bind_corbaloc_key(key, &other);
    assert!(bind("flight").is_err() && bind("flight.rtec").is_err());
    bind("mine.rtec").unwrap();
    assert!(patient_channel().name("mine").serve(&scene.server).is_err());
    assert!(bind("mine.rtec").is_err() && bind("mine").is_ok());
    scene.channel.destroy().unwrap();
    assert!(bind("flight").is_ok() && bind("flight.rtec").is_ok());
}

#[test]
fn peer_that_disconnects_itself_is_called_back_if_configured() {
    let scene = Scene::with(patient_channel().calls_back_after_own_disconnect(true));
    let recorder = Arc::new(Recorder::new());
    let consumer = connect_consumer(&scene.other, &scene.remote(), &only(A), &recorder);
    consumer.disconnect_push_supplier().unwrap();
    recorder.disconnects.wait_for(1);
    let supplier = connect_supplier(&scene.other, &scene.remote(), &[], &recorder);
    supplier.disconnect_push_consumer().unwrap();
    assert_eq!(recorder.disconnects.wait_for(2), ["push consumer", "push supplier"]);
}

#[test]
fn consumer_that_pushes_back_connects_and_destroys_in_its_push_causes_no_deadlock() {
    let scene = Scene::new();
    let echo = connect_supplier(&scene.server, scene.channel.reference(), &[], &Arc::new(Recorder::new()));
    let pushes = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&pushes);
    let in_push = move |_: Pushed<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        echo.push(&[event(A, 1)]).unwrap();
    };
    let looping = Arc::new(Recorder { in_push: Box::new(in_push), ..Recorder::new() });
    let proxy = connect_consumer(&scene.server, scene.channel.reference(), &only(A), &looping);
    let supplier = connect_supplier(&scene.other, &scene.remote(), &[], &looping);
    supplier.push(&[event(A, 1)]).unwrap();
    wait_until(|| scene.channel.statistics().total().dropped.nesting_too_deep == 1);
    assert_eq!(pushes.load(Ordering::Relaxed), 8);
    assert!(scene.channel.statistics().total().is_balanced());
    proxy.disconnect_push_supplier().unwrap();

    // While a push to a remote consumer runs, the consumer calls the channel and then destroys the
    // channel.
    let (remote, other) = (scene.remote(), corelane::Orb::new().unwrap());
    let text = remote.to_string();
    let in_push = move |_: Pushed<'_>| {
        let channel: corelane_services::events::rtec_event_channel_admin::EventChannelRef =
            other.string_to_reference(&text).unwrap();
        channel.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
        channel.destroy().unwrap();
    };
    let ending = Arc::new(Recorder { in_push: Box::new(in_push), ..Recorder::new() });
    connect_consumer(&scene.other, &remote, &only(A), &ending);
    supplier.push(&[event(A, 1)]).unwrap();
    assert_eq!(ending.disconnects.wait_for(1), ["push consumer"]);
}

#[test]
fn ring_of_two_channels_in_one_process_ends_each_event() {
    let scene = Scene::new();
    let second = patient_channel().name("second").serve(&scene.server).unwrap();
    let channels = [&scene.channel, &second];
    for (from, to) in [(0, 1), (1, 0)] {
        let entry = connect_supplier(&scene.server, channels[to].reference(), &[], &Arc::new(Recorder::new()));
        let exit = channels[from].reference().for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap();
        exit.unwrap().connect_push_consumer(Some(&entry), &consumer_qos(&only(A))).unwrap();
    }
    let supplier = connect_supplier(&scene.server, scene.channel.reference(), &[], &Arc::new(Recorder::new()));
    supplier.push(&[event(A, 1)]).unwrap();
    let totals = channels.map(|channel| channel.statistics().total());
    assert_eq!(totals.map(|total| total.delivered), [4, 4]);
    assert_eq!(totals.map(|total| total.dropped.nesting_too_deep), [1, 0]);
}

#[test]
fn factory_creates_channels_by_the_criteria_of_omnievents() {
    let server = Arc::new(listening_orb());
    EventChannelFactory::new(patient_channel()).max_channels(2).serve(&server).unwrap();
    let corelane::Endpoint::Tcp { port, .. } = server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let client = listening_orb();
    let at = |key: &str| format!("corbaloc::1.2@127.0.0.1:{port}/{key}");
    let factory: omni_events::EventChannelFactoryRef = client.string_to_reference(&at(FACTORY_KEY)).unwrap();
    let key = |id: &str| [NameComponent { id: id.to_owned(), kind: "object interface".to_owned() }];
    assert_eq!((factory.supports(&key("EventChannel")), factory.supports(&key("Other"))), (Ok(true), Ok(false)));
    assert!(matches!(factory.create_object(&key("Other"), &[]), Err(CreateObjectError::NoFactory(_))));
    let named = |name: &str, value: Any| NameValuePair { name: name.to_owned(), value };
    let text = |text: &str| Any::new(&text.to_owned()).unwrap();
    let create = |criteria: &[NameValuePair]| factory.create_object(&key("EventChannel"), criteria);
    let wrong = create(&[named("InsName", Any::new(&7_u32).unwrap())]);
    assert!(matches!(wrong, Err(CreateObjectError::InvalidCriteria(e)) if e.invalid_criteria[0].name == "InsName"));
    let unmet = create(&[named("FilterId", text("IDL:Any:1.0"))]);
    assert!(matches!(unmet, Err(CreateObjectError::CannotMeetCriteria(e)) if e.unmet_criteria[0].name == "FilterId"));
    let flight = [
        named("InsName", text("flight")),
        named("MaxQueueLength", Any::new(&5_u32).unwrap()),
        named("CyclePeriod_ns", Any::new(&10_u32).unwrap()),
    ];
    create(&flight).unwrap().unwrap();
    let channel: cos_event_channel_admin::EventChannelRef = client.string_to_reference(&at("flight")).unwrap();
    let puller = channel.for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    let supplier = connect_cos_supplier(&channel);
    for number in 0..7_i32 {
        supplier.push(&Any::new(&number).unwrap()).unwrap();
    }
    assert_eq!(puller.pull().unwrap().extract::<i32>().unwrap(), 2);
    assert!(matches!(create(&flight), Err(CreateObjectError::InvalidCriteria(_))));
    let unnamed = create(&[]).unwrap().unwrap();
    assert!(matches!(create(&[]), Err(CreateObjectError::System(e)) if e.kind() == Kind::ImpLimit));
    cos_event_channel_admin::EventChannelRef::unchecked_narrow(&unnamed).destroy().unwrap();
    channel.destroy().unwrap();
    // The name of a destroyed channel is free when its POA has ended.
    wait_until(|| create(&flight).is_ok());
}

struct RecordedUpdates {
    consumers: Arc<Inbox<Vec<(i32, i32)>>>,
    suppliers: Arc<Inbox<Vec<(i32, i32)>>>,
}

impl Observer for RecordedUpdates {
    fn update_consumer(&self, sub: &ConsumerQOS) -> Result<(), corelane::SystemException> {
        let header = |header: &EventHeader| (header.r#type, header.source);
        self.consumers.add(sub.dependencies.iter().map(|dependency| header(&dependency.event.header)).collect());
        Ok(())
    }

    fn update_supplier(&self, r#pub: &SupplierQOS) -> Result<(), corelane::SystemException> {
        let publications = r#pub.publications.iter();
        self.suppliers.add(publications.map(|it| (it.event.header.r#type, it.event.header.source)).collect());
        Ok(())
    }
}

#[test]
fn observers_are_told_subscriptions_and_publications() {
    let scene = Scene::new();
    let recorder = Arc::new(Recorder::new());
    let observer = Arc::new(RecordedUpdates { consumers: Inbox::new(), suppliers: Inbox::new() });
    let servant = RecordedUpdates::servant_of(Arc::clone(&observer));
    let reference = ObserverRef::unchecked_narrow(&scene.other.root_poa().activate(&servant).unwrap());
    let remote = scene.remote();
    let handle = remote.append_observer(Some(&reference)).unwrap();
    let disjunction = Designator::Disjunction.event_type().0;
    observer.consumers.wait_for(1);
    let first = handle;
    let handle = remote.append_observer(Some(&reference)).unwrap();
    assert!(matches!(remote.remove_observer(first), Err(RemoveObserverError::CantRemoveObserver(_))));
    connect_consumer(&scene.other, &remote, &only(A).event(B, EventSource(3)), &recorder);
    wait_until(|| observer.consumers.all().last() == Some(&vec![(disjunction, 2), (16, 0), (17, 3)]));
    connect_supplier(&scene.other, &remote, &[(A, 5)], &recorder);
    wait_until(|| observer.suppliers.all().last() == Some(&vec![(16, 5)]));
    remote.remove_observer(handle).unwrap();
    assert!(matches!(remote.remove_observer(handle), Err(RemoveObserverError::CantRemoveObserver(_))));
}

#[test]
fn connections_beyond_the_limits_are_refused() {
    let limits = ChannelLimits { max_consumers: 2, max_suppliers: 1, max_senders: 1, ..ChannelLimits::default() };
    let scene = Scene::with(patient_channel().limits(limits));
    let recorder = Arc::new(Recorder::new());
    let consumers = scene.remote().for_consumers().unwrap().unwrap();
    let first = connect_consumer(&scene.other, &scene.remote(), &only(A), &recorder);
    let second = consumers.obtain_push_supplier().unwrap().unwrap();
    assert_eq!(consumers.obtain_push_supplier().unwrap_err().kind(), Kind::ImpLimit);
    let consumer = <Recorder as PushConsumer>::servant_of(Arc::clone(&recorder));
    let consumer = PushConsumerRef::unchecked_narrow(&scene.other.root_poa().activate(&consumer).unwrap());
    let connect = || second.connect_push_consumer(Some(&consumer), &consumer_qos(&only(A)));
    assert!(matches!(connect(), Err(ConnectPushConsumerError::System(e)) if e.kind() == Kind::ImpLimit));
    first.disconnect_push_supplier().unwrap();
    wait_until(|| connect().is_ok());
    connect_supplier(&scene.other, &scene.remote(), &[], &recorder);
    let suppliers = scene.remote().for_suppliers().unwrap().unwrap();
    assert_eq!(suppliers.obtain_push_consumer().unwrap_err().kind(), Kind::ImpLimit);
}

#[test]
fn channel_is_reached_by_its_plain_keys_and_ends_with_its_orb() {
    let scene = Scene::with(patient_channel().name("flight"));
    let corelane::Endpoint::Tcp { port, .. } = scene.server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let cos = format!("corbaloc::1.2@127.0.0.1:{port}/flight");
    let cos: cos_event_channel_admin::EventChannelRef = scene.other.string_to_reference(&cos).unwrap();
    let recorder = Arc::new(Recorder::new());
    connect_cos_consumer(&scene.other, &cos, &recorder);
    let rtec = format!("corbaloc::1.2@127.0.0.1:{port}/flight.rtec");
    let rtec: corelane_services::events::rtec_event_channel_admin::EventChannelRef =
        scene.other.string_to_reference(&rtec).unwrap();
    let supplier = connect_supplier(&scene.other, &rtec, &[], &recorder);
    supplier.push(&[event(A, 1)]).unwrap();
    recorder.values.wait_for(1);
    assert!(patient_channel().name("flight").serve(&scene.server).is_err());
    assert!(patient_channel().name("a/b").serve(&scene.server).is_err());
    assert!(patient_channel().name("flight2").serve(&scene.server).is_ok());
    let Scene { server, channel, .. } = scene;
    server.shutdown(true).unwrap();
    assert_eq!(channel.statistics().consumers, []);
}
