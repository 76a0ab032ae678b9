//! Consumers and suppliers of an event channel, in the channel's ORB and in another ORB.
// Each test file uses only a part of this module.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use corelane::{Any, Dispatch, Orb, PoolConfig, SystemException};
use corelane_services::events::cos_event_channel_admin as cos_admin;
use corelane_services::events::cos_event_comm as cos;
use corelane_services::events::rtec_event_channel_admin::{
    ConsumerQOS, Dependency, EventChannelRef, ProxyPushConsumerRef, ProxyPushSupplierRef, Publication, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{
    Event, EventHeader as RtecHeader, PushConsumer, PushConsumerRef, PushSupplier, PushSupplierRef,
};
use corelane_services::events::{
    DependencySet, EventChannel, EventChannelBuilder, EventSource, EventType, MissPolicy, RtecEventData,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};

pub(crate) const A: EventType = EventType(16);
pub(crate) const B: EventType = EventType(17);
pub(crate) const ANY: EventSource = EventSource::ANY;

/// A time-out that no step of a passing test reaches.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

pub(crate) struct Inbox<T> {
    values: Mutex<Vec<T>>,
    added: Condvar,
}

impl<T: Clone> Inbox<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Inbox { values: Mutex::new("test inbox", LockScope::Orb, Vec::new()), added: Condvar::new() })
    }

    pub(crate) fn add(&self, value: T) {
        self.values.lock().push(value);
        self.added.notify_all();
    }

    pub(crate) fn wait_for(&self, count: usize) -> Vec<T> {
        let deadline = Monotonic::now() + GENEROUS;
        let mut values = self.values.lock();
        while values.len() < count {
            let is_in_time;
            (values, is_in_time) = self.added.wait_until(values, Some(deadline));
            assert!(is_in_time, "{} of {count} values", values.len());
        }
        values.clone()
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.values.lock().clone()
    }
}

pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Gate { is_open: Mutex::new("test gate", LockScope::Orb, false), opened: Condvar::new() })
    }

    pub(crate) fn pass(&self) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            is_open = self.opened.wait(is_open);
        }
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Monotonic::now() + GENEROUS;
    while !condition() {
        assert!(!deadline.is_past(), "the condition does not become true");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Pushed<'p> {
    Set(&'p [Event]),
    Value(&'p Any),
}

pub(crate) struct Recorder {
    pub(crate) sets: Arc<Inbox<Vec<Event>>>,
    pub(crate) values: Arc<Inbox<Any>>,
    pub(crate) disconnects: Arc<Inbox<&'static str>>,
    /// The action of the consumer in each push, after the event is recorded.
    pub(crate) in_push: Box<dyn Fn(Pushed<'_>) + Send + Sync>,
    pub(crate) in_disconnect: Box<dyn Fn() + Send + Sync>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Recorder {
            sets: Inbox::new(),
            values: Inbox::new(),
            disconnects: Inbox::new(),
            in_push: Box::new(|_| {}),
            in_disconnect: Box::new(|| {}),
        }
    }

    fn disconnect(&self, operation: &'static str) -> Result<(), SystemException> {
        self.disconnects.add(operation);
        (self.in_disconnect)();
        Ok(())
    }
}

impl PushConsumer for Recorder {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        self.sets.add(data.to_vec());
        (self.in_push)(Pushed::Set(data));
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.disconnect("push consumer")
    }
}

impl PushSupplier for Recorder {
    fn disconnect_push_supplier(&self) -> Result<(), SystemException> {
        self.disconnect("push supplier")
    }
}

impl cos::PushConsumer for Recorder {
    fn push(&self, data: &Any) -> Result<(), cos::push_consumer::PushError> {
        self.values.add(data.clone());
        (self.in_push)(Pushed::Value(data));
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.disconnect("push consumer")
    }
}

impl cos::PushSupplier for Recorder {
    fn disconnect_push_supplier(&self) -> Result<(), SystemException> {
        self.disconnect("push supplier")
    }
}

/// Returns an ORB that listens, with an active root POA. Its only thread serves requests in the
/// order in which they arrive.
pub(crate) fn listening_orb() -> Orb {
    let pool = PoolConfig::default().dispatch(Dispatch::Reactive);
    let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

/// Returns the builder of a channel that waits for its consumers, even if the machine pauses.
pub(crate) fn patient_channel() -> EventChannelBuilder {
    EventChannel::builder().miss_policy(MissPolicy { send_timeout: GENEROUS, ..MissPolicy::default() })
}

/// A channel in the ORB `server`, and a second ORB, `other`, which reaches it over TCP.
pub(crate) struct Scene {
    pub(crate) server: Orb,
    pub(crate) channel: EventChannel,
    pub(crate) other: Orb,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(patient_channel())
    }

    pub(crate) fn with(builder: EventChannelBuilder) -> Self {
        let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        server.root_poa().manager().activate().unwrap();
        let channel = builder.serve(&server).unwrap();
        Scene { server, channel, other: listening_orb() }
    }

    pub(crate) fn remote(&self) -> EventChannelRef {
        self.other.string_to_reference(&self.channel.reference().to_string()).unwrap()
    }

    pub(crate) fn remote_cos(&self) -> cos_admin::EventChannelRef {
        self.other.string_to_reference(&self.channel.cos_reference().to_string()).unwrap()
    }
}

pub(crate) fn event(event_type: EventType, source: i32) -> Event {
    Event {
        header: RtecHeader { r#type: event_type.0, source, ..RtecHeader::default() },
        data: RtecEventData { payload: vec![1, 2, 3].into(), ..RtecEventData::default() },
    }
}

pub(crate) fn consumer_qos(set: &DependencySet) -> ConsumerQOS {
    let dependency = |header: &corelane_services::events::EventHeader| Dependency {
        event: Event {
            header: RtecHeader {
                r#type: header.event_type.0,
                source: header.source.0,
                creation_time: header.creation_time,
                ..RtecHeader::default()
            },
            ..Event::default()
        },
        rt_info: 0,
    };
    ConsumerQOS { dependencies: set.headers().iter().map(dependency).collect(), is_gateway: false }
}

pub(crate) fn supplier_qos(published: &[(EventType, i32)]) -> SupplierQOS {
    let publication = |(event_type, source): &(EventType, i32)| Publication {
        event: event(*event_type, *source),
        ..Publication::default()
    };
    SupplierQOS { publications: published.iter().map(publication).collect(), is_gateway: false }
}

pub(crate) fn connect_consumer(
    orb: &Orb,
    channel: &EventChannelRef,
    set: &DependencySet,
    recorder: &Arc<Recorder>,
) -> ProxyPushSupplierRef {
    let consumer = orb.root_poa().activate(&<Recorder as PushConsumer>::servant_of(Arc::clone(recorder))).unwrap();
    let proxy = channel.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &consumer_qos(set)).unwrap();
    proxy
}

pub(crate) fn connect_supplier(
    orb: &Orb,
    channel: &EventChannelRef,
    published: &[(EventType, i32)],
    recorder: &Arc<Recorder>,
) -> ProxyPushConsumerRef {
    let supplier = orb.root_poa().activate(&<Recorder as PushSupplier>::servant_of(Arc::clone(recorder))).unwrap();
    let proxy = channel.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    let supplier = PushSupplierRef::unchecked_narrow(&supplier);
    proxy.connect_push_supplier(Some(&supplier), &supplier_qos(published)).unwrap();
    proxy
}

pub(crate) fn connect_cos_consumer(
    orb: &Orb,
    channel: &cos_admin::EventChannelRef,
    recorder: &Arc<Recorder>,
) -> cos_admin::ProxyPushSupplierRef {
    let consumer = orb.root_poa().activate(&<Recorder as cos::PushConsumer>::servant_of(Arc::clone(recorder))).unwrap();
    let proxy = channel.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    proxy.connect_push_consumer(Some(&cos::PushConsumerRef::unchecked_narrow(&consumer))).unwrap();
    proxy
}

/// Connects a supplier of CORBA's Event Service that has no object.
pub(crate) fn connect_cos_supplier(channel: &cos_admin::EventChannelRef) -> cos_admin::ProxyPushConsumerRef {
    let proxy = channel.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    proxy.connect_push_supplier(None).unwrap();
    proxy
}

pub(crate) fn types(sets: &[Vec<Event>]) -> Vec<Vec<i32>> {
    sets.iter().map(|set| set.iter().map(|event| event.header.r#type).collect()).collect()
}
