//! Durable channels through the ORB: acknowledgements, numbers, named consumers, restarts, and slow
//! and full disks.

mod events_scene;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::sync::mpsc;
use std::time::Duration;

use corelane::{
    Any, Completion, Dispatch, Orb, PoolConfig, SystemException, SystemExceptionKind as Kind, UpcallThread, minor,
    upcall_thread,
};
use corelane_services::events::corelane_events::control::DestroyChannelError;
use corelane_services::events::corelane_events::durable_channel::AcknowledgeError;
use corelane_services::events::corelane_events::{ControlRef, DurableChannelRef, MonitorRef, NumberedEvent};
use corelane_services::events::cos_event_comm::push_consumer::PushError;
use corelane_services::events::lifecycle::cos_life_cycle::NameValuePair;
use corelane_services::events::lifecycle::cos_life_cycle::generic_factory::CreateObjectError;
use corelane_services::events::lifecycle::cos_naming::NameComponent;
use corelane_services::events::lifecycle::omni_events::EventChannelFactoryRef;
use corelane_services::events::rtec_event_channel_admin::EventChannelRef;
use corelane_services::events::{
    DependencySet, EventChannel, EventChannelFactory, EventMonitor, EventStore, EventStoreLimits, RECORD_FORMAT,
    Retention,
};
use corelane_services::store::{
    Durability, FileStore, MemoryStore, RecordChange, RecordVisitor, Revision, Store, StoreError,
};
use corelane_sys::lock::{Condvar, LockScope, Mutex};

use self::events_scene::*;

#[derive(Clone, Copy, PartialEq, Eq)]
enum DiskState {
    Works,
    Silent,
    Full,
}

/// A store whose disk can be full, or not respond.
#[derive(Clone)]
struct TestStore {
    store: MemoryStore,
    disk: Arc<(Mutex<DiskState>, Condvar)>,
}

impl TestStore {
    fn new() -> Self {
        let state = Mutex::new("test disk", LockScope::Orb, DiskState::Works);
        Self { store: MemoryStore::new(RECORD_FORMAT), disk: Arc::new((state, Condvar::new())) }
    }

    fn set(&self, state: DiskState) {
        *self.disk.0.lock() = state;
        self.disk.1.notify_all();
    }
}

impl Store for TestStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        self.store.for_each(visit)
    }

    fn commit(&self, after: Revision, batch: &[RecordChange<'_>], how: Durability) -> Result<Revision, StoreError> {
        let mut state = self.disk.0.lock();
        while *state == DiskState::Silent {
            state = self.disk.1.wait(state);
        }
        match *state {
            DiskState::Full => Err(StoreError::Full { reason: "no space left".to_owned() }),
            _ => self.store.commit(after, batch, how),
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.store.sync()
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.store.backup(path)
    }
}

/// The drop lets the disk work again, even after a failed assertion.
struct Working(TestStore);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.set(DiskState::Works);
    }
}

struct Served {
    orb: Orb,
    channel: EventChannel,
    client: Orb,
    durable: DurableChannelRef,
}

fn serve(store: &EventStore, retention: Retention) -> Served {
    serve_by(store, retention, Dispatch::ThreadPerConnection { max_threads: 64 })
}

fn serve_by(store: &EventStore, retention: Retention, dispatch: Dispatch) -> Served {
    let pool = PoolConfig::default().dispatch(dispatch);
    let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
    let channel = EventChannel::builder().name("flight").durable(store, retention).serve(&orb).unwrap();
    orb.root_poa().manager().activate().unwrap();
    let client = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    client.root_poa().manager().activate().unwrap();
    let durable = client.string_to_reference(&channel.cos_reference().to_string()).unwrap();
    Served { orb, channel, client, durable }
}

fn value(number: u32) -> Any {
    Any::new(&number).unwrap()
}

/// Publishes one event by each of `threads` threads. Returns the receiver of their results.
#[expect(clippy::disallowed_methods, reason = "threads of a test, which are not measured")]
fn publish_by_threads<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    durable: &DurableChannelRef,
    threads: u32,
) -> mpsc::Receiver<Result<u64, SystemException>> {
    let (results, received) = mpsc::channel();
    for number in 0..threads {
        let (durable, results) = (durable.clone(), results.clone());
        scope.spawn(move || results.send(durable.publish(&value(number))));
    }
    received
}

fn assert_busy(result: Result<u64, SystemException>) {
    let busy = result.unwrap_err();
    assert_eq!((busy.kind(), busy.minor(), busy.completed()), (Kind::Transient, minor::STORE_BUSY, Completion::No));
}

fn numbers(events: &[NumberedEvent]) -> Vec<(u64, u32)> {
    events.iter().map(|it| (it.number, it.event.data.any_value.extract().unwrap())).collect()
}

struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("corelane-durable-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn open(&self) -> EventStore {
        EventStore::open(FileStore::open(self.0.join("events.db"), RECORD_FORMAT).unwrap()).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn named_consumer_resumes_after_a_restart_behind_what_it_acknowledged() {
    let file = TestFile::new("restart");
    let served = serve(&file.open(), Retention::default());
    assert!(served.durable.as_object().is_a(DurableChannelRef::REPOSITORY_ID).unwrap());
    let proxy = served.durable.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    proxy.connect_push_supplier(None).unwrap();
    for number in 1..=5 {
        proxy.push(&value(number)).unwrap();
    }
    assert_eq!(served.durable.publish(&value(6)).unwrap(), 6);
    let mut typed = event(B, 3);
    typed.data.any_value = value(7);
    assert_eq!(served.durable.publish_event(&typed).unwrap(), 7);
    assert_eq!(served.durable.resume_consumer("log", 2).unwrap(), 2);
    let events = served.durable.events_after(2, 3, 0).unwrap();
    assert_eq!(numbers(&events), [(3, 3), (4, 4), (5, 5)]);
    served.durable.acknowledge("log", 4).unwrap();
    assert!(matches!(served.durable.acknowledge("map", 4), Err(AcknowledgeError::NoConsumer(_))));
    let Err(AcknowledgeError::System(ahead)) = served.durable.acknowledge("log", 8) else { panic!("it was taken") };
    assert_eq!(ahead.kind(), Kind::BadParam);
    served.orb.shutdown(true).unwrap();
    drop(served);

    let served = serve(&file.open(), Retention::default());
    // The consumer has received the event 5 without acknowledging it, so the event comes again with
    // its number.
    assert_eq!(served.durable.resume_consumer("log", 0).unwrap(), 4);
    let events = served.durable.events_after(4, 100, 0).unwrap();
    assert_eq!(numbers(&events), [(5, 5), (6, 6), (7, 7)]);
    assert_eq!((events[2].event.header.r#type, events[2].event.header.source), (B.0, 3));
    assert_eq!(served.durable.publish(&value(8)).unwrap(), 8);
    served.durable.forget_consumer("log").unwrap();
    assert_eq!(served.durable.resume_consumer("log", u64::MAX).unwrap(), 8);
    let status = served.durable.stream_status().unwrap();
    assert_eq!((status.first, status.last, status.unstored), (1, 8, 0));
    served.channel.destroy().unwrap();
    served.orb.shutdown(true).unwrap();
    drop(served);
    assert!(file.open().channels().is_empty());
}

#[test]
fn slow_disk_delays_acknowledgements_and_not_deliveries() {
    let disk = TestStore::new();
    let store = EventStore::open(disk.clone()).unwrap();
    let served = serve(&store, Retention::default());
    let recorder = Arc::new(Recorder::new());
    let rtec: EventChannelRef = served.client.string_to_reference(&served.channel.reference().to_string()).unwrap();
    let all = DependencySet::new().event(corelane_services::events::EventType::ANY, ANY);
    connect_consumer(&served.client, &rtec, &all, &recorder);
    let supplier = connect_supplier(&served.client, &rtec, &[], &recorder);
    assert_eq!(served.durable.publish(&value(1)).unwrap(), 1);
    disk.set(DiskState::Silent);
    std::thread::scope(|scope| {
        let _working = Working(disk.clone());
        let waiting: Vec<_> = (0..4)
            .map(|number| {
                let durable = served.durable.clone();
                scope.spawn(move || durable.publish(&value(number)).unwrap())
            })
            .collect();
        supplier.push(&[event(B, 1)]).unwrap();
        assert_eq!(recorder.sets.wait_for(6).len(), 6);
        assert!(waiting.iter().all(|thread| !thread.is_finished()), "the disk has not answered yet");
        assert_eq!(served.durable.events_after(0, 100, 0).unwrap().len(), 1);
        disk.set(DiskState::Works);
        let mut found: Vec<u64> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
        found.push(served.durable.publish(&value(9)).unwrap());
        assert_eq!(found.last(), Some(&7));
    });
    assert_eq!(served.durable.events_after(0, 100, 0).unwrap().len(), 7);
    served.orb.shutdown(true).unwrap();
}

#[test]
fn requests_that_wait_for_a_silent_disk_are_bounded_and_dispatch_goes_on() {
    let disk = TestStore::new();
    let limits = EventStoreLimits::default().max_waiting_requests_per_channel(3).max_waiting_requests(5);
    let store = EventStore::open_with(disk.clone(), limits).unwrap();
    let served = serve(&store, Retention::default());
    let remote = |channel: &EventChannel| served.client.string_to_reference(&channel.cos_reference().to_string());
    let ground = EventChannel::builder().name("ground").durable(&store, Retention::default());
    let ground: DurableChannelRef = remote(&ground.serve(&served.orb).unwrap()).unwrap();
    let plain = EventChannel::builder().name("plain").serve(&served.orb).unwrap();
    let (recorder, flight_recorder) = (Arc::new(Recorder::new()), Arc::new(Recorder::new()));
    let all = DependencySet::new().event(corelane_services::events::EventType::ANY, ANY);
    let connect = |channel: &EventChannel, recorder: &Arc<Recorder>| {
        let rtec: EventChannelRef = served.client.string_to_reference(&channel.reference().to_string()).unwrap();
        connect_consumer(&served.client, &rtec, &all, recorder);
        connect_supplier(&served.client, &rtec, &[], recorder)
    };
    let supplier = connect(&plain, &recorder);
    let flight_supplier = connect(&served.channel, &flight_recorder);
    std::thread::scope(|scope| {
        let _working = Working(disk.clone());
        disk.set(DiskState::Silent);
        let of_flight = publish_by_threads(scope, &served.durable, 8);
        (0..5).for_each(|_| assert_busy(of_flight.recv().unwrap()));
        assert_eq!(store.waiting_requests(), 3);
        let of_ground = publish_by_threads(scope, &ground, 4);
        (0..2).for_each(|_| assert_busy(of_ground.recv().unwrap()));
        assert_eq!(store.waiting_requests(), 5);
        // The consumers have the events of the waiting requests, and none of the refused requests.
        flight_supplier.push(&[event(B, 1)]).unwrap();
        assert_eq!(flight_recorder.sets.wait_for(4).len(), 4);
        for number in 0..100 {
            supplier.push(&[event(B, number)]).unwrap();
        }
        assert_eq!(recorder.sets.wait_for(100).len(), 100);
        let busy = served.durable.acknowledge("log", 1);
        assert!(matches!(&busy, Err(AcknowledgeError::System(it)) if it.minor() == minor::STORE_BUSY), "{busy:?}");
        disk.set(DiskState::Works);
        let stored: Vec<u64> =
            of_flight.iter().take(3).chain(of_ground.iter().take(2)).map(|result| result.unwrap()).collect();
        assert_eq!(stored.len(), 5);
    });
    assert_eq!(store.waiting_requests(), 0);
    assert_eq!(served.durable.publish(&value(9)).unwrap(), 5);
    served.orb.shutdown(true).unwrap();
}

#[test]
fn threads_that_serve_all_connections_do_not_all_wait_for_the_disk() {
    assert_eq!(upcall_thread(), UpcallThread::Application);
    let disk = TestStore::new();
    let store = EventStore::open(disk.clone()).unwrap();
    let served = serve_by(&store, Retention::default(), Dispatch::LeaderFollowers { threads: 4 });
    std::thread::scope(|scope| {
        let _working = Working(disk.clone());
        disk.set(DiskState::Silent);
        let results = publish_by_threads(scope, &served.durable, 6);
        (0..4).for_each(|_| assert_busy(results.recv().unwrap()));
        assert_eq!(store.waiting_requests(), 2);
        assert_eq!(served.durable.stream_status().unwrap().last, 0);
        let local = DurableChannelRef::unchecked_narrow(served.channel.cos_reference().as_object());
        let local = scope.spawn(move || local.publish(&value(7)).unwrap());
        disk.set(DiskState::Works);
        (0..2).for_each(|_| assert!(results.recv().unwrap().is_ok()));
        local.join().unwrap();
    });
    served.orb.shutdown(true).unwrap();
}

#[test]
fn shutdown_with_a_silent_disk_ends_and_names_the_events_that_are_not_committed() {
    let disk = TestStore::new();
    let store = EventStore::open(disk.clone()).unwrap();
    let served = serve(&store, Retention::default());
    let recorder = Arc::new(Recorder::new());
    let supplier = connect_supplier(&served.orb, served.channel.reference(), &[], &recorder);
    std::thread::scope(|scope| {
        let _working = Working(disk.clone());
        disk.set(DiskState::Silent);
        let results = publish_by_threads(scope, &served.durable, 1);
        supplier.push(&[event(B, 1), event(B, 2)]).unwrap();
        while store.waiting_requests() == 0 {
            std::thread::yield_now();
        }
        let limit = Duration::from_millis(200);
        store.limit_wait_time(limit);
        served.orb.shutdown(true).unwrap();
        let slow = results.recv().unwrap().unwrap_err();
        assert_eq!((slow.kind(), slow.completed()), (Kind::Timeout, Completion::Maybe));
        let uncommitted = store.close(limit).unwrap_err();
        assert_eq!(uncommitted.channels, [("flight".to_owned(), 3)]);
        assert_eq!(
            uncommitted.to_string(),
            "the disk has not answered in time; events that are not committed: 3 of `flight`"
        );
    });
    store.close(Duration::from_secs(60)).unwrap();
    drop((store, served));
    let events = serve(&EventStore::open(disk).unwrap(), Retention::default()).durable.events_after(0, 10, 0).unwrap();
    assert_eq!(events.len(), 3);
}

#[test]
fn full_disk_refuses_acknowledgements_while_deliveries_and_reading_go_on() {
    let disk = TestStore::new();
    let store = EventStore::open(disk.clone()).unwrap();
    let served = serve(&store, Retention::default());
    let puller = served.durable.for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    let proxy = served.durable.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    proxy.connect_push_supplier(None).unwrap();
    proxy.push(&value(1)).unwrap();
    disk.set(DiskState::Full);
    let Err(PushError::System(refused)) = proxy.push(&value(2)) else { panic!("it was acknowledged") };
    assert_eq!(refused.kind(), Kind::NoResources);
    assert_eq!(served.durable.publish(&value(3)).unwrap_err().kind(), Kind::NoResources);
    let pulled: Vec<u32> = (0..3).map(|_| puller.try_pull().unwrap().0.extract().unwrap()).collect();
    assert_eq!(pulled, [1, 2, 3]);
    assert_eq!(numbers(&served.durable.events_after(0, 100, 0).unwrap()), [(1, 1)]);
    let supplier = connect_supplier(&served.orb, served.channel.reference(), &[], &Arc::new(Recorder::new()));
    supplier.push(&[event(B, 1), event(B, 2)]).unwrap();
    let mut large = event(B, 3);
    large.data.payload = vec![0; 5 << 20].into();
    supplier.push(&[large]).unwrap();
    assert_eq!(served.durable.publish(&value(5)).unwrap_err().kind(), Kind::NoResources);
    let unstored = served.channel.statistics().unstored;
    assert_eq!((unstored.store_full, unstored.too_large, unstored.total()), (2, 1, 3));
    let monitor = EventMonitor::new();
    monitor.add(&served.channel);
    let monitor = MonitorRef::unchecked_narrow(&monitor.serve(&served.orb).unwrap());
    assert_eq!(monitor.channel_named("flight").unwrap().unstored.no_room, 2);
    assert_eq!(served.durable.stream_status().unwrap().unstored, 3);
    disk.set(DiskState::Works);
    assert_eq!(served.durable.publish(&value(4)).unwrap(), 2);
    served.orb.shutdown(true).unwrap();
}

#[test]
fn reader_waits_for_the_next_event_and_old_events_are_deleted() {
    let store = EventStore::open(TestStore::new()).unwrap();
    let served = serve(&store, Retention { max_events: 3, ..Retention::default() });
    std::thread::scope(|scope| {
        let durable = served.durable.clone();
        let reader = scope.spawn(move || {
            loop {
                let events = durable.events_after(0, 1, 1_000).unwrap();
                if !events.is_empty() {
                    return numbers(&events);
                }
            }
        });
        served.durable.publish(&value(7)).unwrap();
        assert_eq!(reader.join().unwrap(), [(1, 7)]);
    });
    for number in 2..=9 {
        served.durable.publish(&value(number)).unwrap();
    }
    let kept = numbers(&served.durable.events_after(0, 100, 0).unwrap());
    assert_eq!(kept, [(7, 7), (8, 8), (9, 9)]);
    let bad = served.durable.resume_consumer("a b", 0).unwrap_err();
    assert_eq!(bad.kind(), Kind::BadParam);
    assert!(served.durable.events_after(u64::MAX, 100, 0).unwrap().is_empty());
    let nested = |depth| (1..depth).fold(value(1), |inner, _| Any::new(&inner).unwrap());
    served.durable.publish(&nested(60)).unwrap();
    assert_eq!(served.durable.publish(&nested(70)).unwrap_err().kind(), Kind::ImpLimit);
    assert_eq!(served.durable.events_after(9, 100, 0).unwrap().len(), 1);
    let large = Any::new(&vec![0_u8; 5 << 20]).unwrap();
    assert_eq!(served.durable.publish(&large).unwrap_err().kind(), Kind::ImpLimit);
    served.orb.shutdown(true).unwrap();
}

#[test]
fn factory_makes_durable_channels_on_request() {
    let store = EventStore::open(TestStore::new()).unwrap();
    let key = [NameComponent { id: "EventChannel".to_owned(), kind: "object interface".to_owned() }];
    let criterion = |name: &str, value: Any| NameValuePair { name: name.to_owned(), value };
    let criteria = |name: &str| {
        vec![
            criterion("InsName", Any::new(&name.to_owned()).unwrap()),
            criterion("CorelaneDurable", Any::new(&true).unwrap()),
        ]
    };
    let orb = Arc::new(Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap());
    let settings = EventChannelFactory::new(EventChannel::builder());
    let factory = settings.clone().durable(&store, Retention::default()).serve(&orb).unwrap();
    let factory = EventChannelFactoryRef::unchecked_narrow(&factory);
    let channel = factory.create_object(&key, &criteria("kept")).unwrap().unwrap();
    assert!(channel.is_a(DurableChannelRef::REPOSITORY_ID).unwrap());
    assert_eq!(store.channels(), ["kept"]);
    let plain = factory.create_object(&key, &criteria("plain")[..1]).unwrap().unwrap();
    assert!(!plain.is_a(DurableChannelRef::REPOSITORY_ID).unwrap());

    let other = Arc::new(Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap());
    let factory = EventChannelFactoryRef::unchecked_narrow(&settings.serve(&other).unwrap());
    let refused = factory.create_object(&key, &criteria("kept"));
    assert!(matches!(refused, Err(CreateObjectError::CannotMeetCriteria(_))), "{refused:?}");
    orb.shutdown(true).unwrap();
    other.shutdown(true).unwrap();
}

/// Returns the name under which an omniEvents factory creates channels.
fn factory_key() -> [NameComponent; 1] {
    [NameComponent { id: "EventChannel".to_owned(), kind: "object interface".to_owned() }]
}

fn durable_criteria(name: Option<&str>) -> Vec<NameValuePair> {
    let criterion = |name: &str, value: Any| NameValuePair { name: name.to_owned(), value };
    let name = name.map(|name| criterion("InsName", Any::new(&name.to_owned()).unwrap()));
    name.into_iter().chain([criterion("CorelaneDurable", Any::new(&true).unwrap())]).collect()
}

#[test]
fn clients_need_permission_to_create_and_destroy_durable_channels() {
    let store = EventStore::open(TestStore::new()).unwrap();
    let orb = Arc::new(Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap());
    let factory = EventChannelFactory::new(EventChannel::builder()).durable_by_permission(&store, Retention::default());
    let (factory, permitted) = factory.serve_with_control_servant(&orb).unwrap();
    let factory = EventChannelFactoryRef::unchecked_narrow(&factory);
    let permitted = EventChannelFactoryRef::unchecked_narrow(&orb.root_poa().activate(&permitted).unwrap());
    let Err(CreateObjectError::System(refused)) = factory.create_object(&factory_key(), &durable_criteria(Some("a")))
    else {
        panic!("it was created")
    };
    assert_eq!(refused.kind(), Kind::NoPermission);
    assert!(store.channels().is_empty());
    factory.create_object(&factory_key(), &durable_criteria(Some("plain"))[..1]).unwrap().unwrap();
    orb.root_poa().manager().activate().unwrap();
    let channel = permitted.create_object(&factory_key(), &durable_criteria(Some("a"))).unwrap().unwrap();
    assert_eq!(store.channels(), ["a"]);
    // The control servant belongs to the same factory, so the name `a` is in use.
    let taken = factory.create_object(&factory_key(), &durable_criteria(Some("a"))[..1]);
    assert!(matches!(taken, Err(CreateObjectError::InvalidCriteria(_))), "{taken:?}");
    let channel = DurableChannelRef::unchecked_narrow(&channel);
    assert_eq!(channel.destroy().unwrap_err().kind(), Kind::NoPermission);
    assert_eq!(channel.publish(&value(1)).unwrap(), 1);
    orb.shutdown(true).unwrap();
}

#[test]
fn factory_makes_ordinary_channels_while_a_durable_one_waits_for_the_disk() {
    let disk = TestStore::new();
    let store = EventStore::open(disk.clone()).unwrap();
    let orb = Arc::new(Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap());
    let factory = EventChannelFactory::new(EventChannel::builder()).durable(&store, Retention::default());
    let factory = factory.max_channels(2).serve(&orb).unwrap();
    let client = Orb::new().unwrap();
    let factory: EventChannelFactoryRef = client.string_to_reference(&factory.to_string()).unwrap();
    std::thread::scope(|scope| {
        let _working = Working(disk.clone());
        disk.set(DiskState::Silent);
        let waiting = {
            let factory = factory.clone();
            scope.spawn(move || factory.create_object(&factory_key(), &durable_criteria(Some("kept"))).unwrap())
        };
        while store.waiting_requests() == 0 {
            std::thread::yield_now();
        }
        let taken = factory.create_object(&factory_key(), &durable_criteria(Some("kept"))[..1]);
        assert!(matches!(taken, Err(CreateObjectError::InvalidCriteria(_))), "{taken:?}");
        factory.create_object(&factory_key(), &durable_criteria(Some("plain"))[..1]).unwrap().unwrap();
        let third = factory.create_object(&factory_key(), &durable_criteria(Some("third"))[..1]);
        assert!(matches!(&third, Err(CreateObjectError::System(full)) if full.kind() == Kind::ImpLimit), "{third:?}");
        disk.set(DiskState::Works);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(store.channels(), ["kept"]);
    orb.shutdown(true).unwrap();
}

#[test]
fn durable_channels_without_a_name_come_back_and_later_ones_have_other_names() {
    let disk = TestStore::new();
    let settings = EventChannelFactory::new(EventChannel::builder());
    for expected in [&["omniEvents-1"][..], &["omniEvents-1", "omniEvents-2"]] {
        let store = EventStore::open(disk.clone()).unwrap();
        let orb = Arc::new(Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap());
        for name in store.channels() {
            EventChannel::builder().name(name).durable(&store, Retention::default()).serve(&orb).unwrap();
        }
        let factory = settings.clone().durable(&store, Retention::default()).serve(&orb).unwrap();
        let factory = EventChannelFactoryRef::unchecked_narrow(&factory);
        factory.create_object(&factory_key(), &durable_criteria(None)).unwrap().unwrap();
        assert_eq!(store.channels(), expected);
        orb.shutdown(true).unwrap();
    }
}

#[test]
fn refused_channels_leave_nothing_in_the_store() {
    let disk = TestStore::new();
    let store = EventStore::open(disk.clone()).unwrap();
    let key = [NameComponent { id: "EventChannel".to_owned(), kind: "object interface".to_owned() }];
    let criteria = |name: &str| {
        let durable = NameValuePair { name: "CorelaneDurable".to_owned(), value: Any::new(&true).unwrap() };
        vec![NameValuePair { name: "InsName".to_owned(), value: Any::new(&name.to_owned()).unwrap() }, durable]
    };
    let orb = Arc::new(Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap());
    let factory = EventChannelFactory::new(EventChannel::builder()).durable(&store, Retention::default());
    let factory = factory.serve(&orb).unwrap();
    orb.bind_corbaloc_key("taken.rtec", &factory).unwrap();
    let factory = EventChannelFactoryRef::unchecked_narrow(&factory);
    for name in ["omniEvents", "CorelaneEvents", "flight.rtec", "taken"] {
        let refused = factory.create_object(&key, &criteria(name));
        assert!(matches!(refused, Err(CreateObjectError::InvalidCriteria(_))), "{name}: {refused:?}");
    }
    disk.set(DiskState::Full);
    let Err(CreateObjectError::System(full)) = factory.create_object(&key, &criteria("flight")) else {
        panic!("it was created")
    };
    assert_eq!(full.kind(), Kind::NoResources);
    disk.set(DiskState::Works);
    assert_eq!(EventStore::open(disk.clone()).unwrap().channels(), [""; 0]);
    factory.create_object(&key, &criteria("flight")).unwrap();
    assert_eq!(EventStore::open(disk).unwrap().channels(), ["flight"]);
    orb.shutdown(true).unwrap();
}

#[test]
fn channel_goes_on_if_its_removal_fails() {
    let disk = TestStore::new();
    let store = EventStore::open(disk.clone()).unwrap();
    let served = serve(&store, Retention::default());
    let monitor = EventMonitor::new();
    monitor.add(&served.channel);
    let control = served.orb.root_poa().activate(&monitor.control_servant()).unwrap();
    let control = ControlRef::unchecked_narrow(&control);
    disk.set(DiskState::Full);
    let Err(DestroyChannelError::System(full)) = control.destroy_channel("flight") else { panic!("it was destroyed") };
    assert_eq!(full.kind(), Kind::NoResources);
    disk.set(DiskState::Works);
    assert_eq!(served.durable.publish(&value(1)).unwrap(), 1);
    control.destroy_channel("flight").unwrap();
    assert!(store.channels().is_empty());
    served.orb.shutdown(true).unwrap();
}
