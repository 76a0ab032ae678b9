//! Bridges between channels, step by step, over a backbone whose calls fail at random.
//!
//! Each consumer gets each event of the other channels once, and the events of one channel in their
//! order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::{
    AddedServiceContexts, Completion, Endpoint, Interceptor, Orb, RequestInfo, SystemException,
    SystemExceptionKind as Kind, minor,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};

use super::bridge::BridgeCounts;
use super::delivering::Deliverer;
use super::publishing::Publisher;
use super::{Backbone, BackboneError, BackboneMessage, MemoryBackbone};
use crate::events::durable::{EventStore, RECORD_FORMAT, Retention};
use crate::events::idl::corelane_events::{DurableChannelRef, FederatedChannelRef, PassingEvent};
use crate::events::idl::rtec_event_channel_admin::{ConsumerQOS, Dependency};
use crate::events::idl::rtec_event_comm::{Event, EventHeader, PushConsumer, PushConsumerRef};
use crate::events::{EventChannel, RtecEventData};
use crate::naming::simulation::{SplitMix, under_seeds};
use crate::store::{Durability, MemoryStore, RecordChange, RecordVisitor, Revision, Store, StoreError};

const SEEDS: u64 = 40;
const STEPS: usize = 120;
const NAMES: [&str; 3] = ["north", "south", "west"];

/// A connection that fails at random, before or after the effect of a call.
struct Flaky {
    backbone: MemoryBackbone,
    random: Rc<RefCell<SplitMix>>,
}

impl Flaky {
    fn call<R>(
        &mut self,
        call: impl FnOnce(&mut MemoryBackbone) -> Result<R, BackboneError>,
    ) -> Result<R, BackboneError> {
        let lost = || BackboneError::Failed("lost".to_owned());
        let chance = self.random.borrow_mut().below(8);
        if chance == 0 {
            return Err(lost());
        }
        let done = call(&mut self.backbone);
        if chance == 1 { Err(lost()) } else { done }
    }
}

impl Backbone for Flaky {
    fn identity(&mut self) -> Result<u64, BackboneError> {
        self.call(Backbone::identity)
    }

    fn publish(&mut self, message: &[u8]) -> Result<(), BackboneError> {
        self.call(|backbone| backbone.publish(message))
    }

    fn subscribe(&mut self, consumer: &str, first: u64) -> Result<u64, BackboneError> {
        self.call(|backbone| backbone.subscribe(consumer, first))
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<BackboneMessage>, BackboneError> {
        self.call(|backbone| backbone.receive(wait))
    }

    fn acknowledge(&mut self) -> Result<(), BackboneError> {
        self.call(Backbone::acknowledge)
    }
}

struct Got(Arc<Mutex<Vec<(i32, i32)>>>);

impl PushConsumer for Got {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        self.0.lock().extend(data.iter().map(|event| (event.header.source, event.header.r#type)));
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

/// A durable channel, its consumer, and the publisher and the deliverer of its bridge.
struct Site<B> {
    name: &'static str,
    served: EventChannel,
    durable: DurableChannelRef,
    channel: FederatedChannelRef,
    got: Arc<Mutex<Vec<(i32, i32)>>>,
    publisher: Publisher<B>,
    deliverer: Deliverer<B>,
    counts: BridgeCounts,
}

fn orb() -> Orb {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

/// Returns the references of a channel of `server` in another ORB.
fn references(server: &Orb, client: &Orb, name: &str) -> (FederatedChannelRef, DurableChannelRef) {
    let Endpoint::Tcp { port, .. } = server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let url = format!("corbaloc::1.2@127.0.0.1:{port}/{name}");
    let channel = client.string_to_reference(&format!("{url}.rtec")).unwrap();
    (channel, client.string_to_reference(&url).unwrap())
}

/// Fails calls in their order: those of an operation, with an exception of this kind.
#[derive(Clone)]
struct Failing(Arc<Mutex<VecDeque<(&'static str, Kind)>>>);

impl Failing {
    fn new() -> Self {
        Self(Arc::new(Mutex::new("test failures", LockScope::Orb, VecDeque::new())))
    }

    fn next(&self, operation: &'static str, kind: Kind) {
        self.0.lock().push_back((operation, kind));
    }
}

impl Interceptor for Failing {
    fn send_request(&self, request: &RequestInfo<'_>, _: &mut AddedServiceContexts) -> Result<(), SystemException> {
        match self.0.lock().pop_front_if(|(operation, _)| request.operation() == *operation) {
            Some((_, kind)) => Err(SystemException::new(kind, 0, Completion::No)),
            None => Ok(()),
        }
    }
}

fn event(source: i32, number: i32, ttl: i32) -> Event {
    let header = EventHeader { r#type: number, source, ttl, ..EventHeader::default() };
    Event { header, data: RtecEventData::default() }
}

impl<B: Backbone> Site<B> {
    fn new(orb: &Orb, name: &'static str) -> Self {
        Self::with(orb, name, Retention::default())
    }

    fn with(orb: &Orb, name: &'static str, retention: Retention) -> Self {
        let store = EventStore::open(MemoryStore::new(RECORD_FORMAT)).unwrap();
        let channel = EventChannel::builder().name(name).durable(&store, retention).serve(orb).unwrap();
        let got = Arc::new(Mutex::new("test events", LockScope::Orb, Vec::new()));
        let consumer = orb.root_poa().activate(&PushConsumer::servant(Got(Arc::clone(&got)))).unwrap();
        let proxy = channel.reference().for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
        let qos = ConsumerQOS { dependencies: vec![Dependency::default()], is_gateway: false };
        proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &qos).unwrap();
        let served = channel;
        let (channel, durable) = references(orb, orb, name);
        let publisher = Publisher::new(name, channel.clone(), durable.clone());
        let deliverer = Deliverer::new(name, 1, channel.clone());
        Site { name, served, durable, channel, got, publisher, deliverer, counts: BridgeCounts::default() }
    }

    /// Replaces the publisher and the deliverer, as a restart of the bridge's process does.
    fn restart(&mut self) {
        self.counts = self.counts();
        self.publisher = Publisher::new(self.name, self.channel.clone(), self.durable.clone());
        self.deliverer = Deliverer::new(self.name, 1, self.channel.clone());
    }

    fn counts(&self) -> BridgeCounts {
        let mut sum = self.counts;
        sum.add(&self.publisher.counts);
        sum.add(&self.deliverer.counts);
        sum
    }

    fn step(&mut self, connect: impl Fn() -> Result<B, BackboneError>) {
        let _ = self.publisher.step(&connect, Duration::ZERO);
        let _ = self.deliverer.step(&connect, Duration::ZERO);
    }
}

/// Makes steps until the store of each site has `stored` events and the site's bridge has
/// acknowledged all of them, and then a few further steps.
fn settle<B: Backbone>(sites: &mut [Site<B>], stored: u64, connect: impl Fn() -> Result<B, BackboneError>) {
    let deadline = Monotonic::now() + Duration::from_secs(60);
    let is_done = |site: &Site<B>| site.durable.resume_consumer(site.name, 0).unwrap() >= stored;
    while !sites.iter().all(is_done) {
        assert!(!deadline.is_past(), "{:?}", sites.iter().map(Site::counts).collect::<Vec<_>>());
        sites.iter_mut().for_each(|site| site.step(&connect));
    }
    for _ in 0..20 {
        sites.iter_mut().for_each(|site| site.step(&connect));
    }
}

#[test]
fn every_channel_gets_every_event_once_and_in_order() {
    let (orb, runs) = (orb(), RefCell::new((0_u64, 0_u64)));
    under_seeds(SEEDS, |seed| {
        let random = Rc::new(RefCell::new(SplitMix(seed)));
        let backbone = MemoryBackbone::new();
        let connect = || Ok(Flaky { backbone: backbone.clone(), random: Rc::clone(&random) });
        let mut sites = NAMES.map(|name| Site::new(&orb, name));
        let mut last = [0; NAMES.len()];
        for _ in 0..STEPS {
            let (site, action) = {
                let mut random = random.borrow_mut();
                (random.below(NAMES.len()), random.below(16))
            };
            match action {
                0 => sites[site].restart(),
                1..6 => {
                    last[site] += 1;
                    sites[site].durable.publish_event(&event(site as i32 + 1, 100 + last[site], 9)).unwrap();
                }
                6..11 => drop(sites[site].publisher.step(connect, Duration::ZERO)),
                _ => drop(sites[site].deliverer.step(connect, Duration::ZERO)),
            }
        }
        settle(&mut sites, last.iter().sum::<i32>() as u64, connect);
        for (index, site) in sites.iter().enumerate() {
            let got = site.got.lock().clone();
            for (source, last) in last.iter().enumerate() {
                let source = source as i32 + 1;
                let numbers: Vec<i32> = got.iter().filter(|it| it.0 == source).map(|it| it.1 - 100).collect();
                assert_eq!(
                    numbers,
                    (1..=*last).collect::<Vec<_>>(),
                    "seed {seed}, events of {source} at {}",
                    site.name
                );
            }
            let counts = site.counts();
            let others: i32 = last.iter().enumerate().filter(|it| it.0 != index).map(|it| *it.1).sum();
            assert_eq!((counts.delivered, counts.loops_stopped >= others as u64), (others as u64, true), "{counts:?}");
            assert_eq!((counts.refused, counts.ttl_expired, counts.unreadable), (0, 0, 0), "seed {seed}");
            assert_eq!((counts.deleted_events, counts.deleted_messages), (0, 0), "seed {seed}");
            let mut runs = runs.borrow_mut();
            runs.0 += counts.delivered;
            runs.1 += counts.duplicates;
            site.served.destroy().unwrap();
        }
    });
    let (delivered, duplicates) = runs.into_inner();
    assert!(delivered > 0 && (duplicates > 0 || std::env::var_os("CORELANE_SEED").is_some()));
    orb.shutdown(true).unwrap();
}

#[test]
fn events_without_time_to_live_or_too_large_for_the_backbone_do_not_cross() {
    let (orb, backbone) = (orb(), MemoryBackbone::new());
    let connect = || Ok(backbone.clone());
    let mut sites = ["north", "south"].map(|name| Site::<MemoryBackbone>::new(&orb, name));
    let mut large = event(1, 102, 1);
    large.data.payload = vec![1; 2 << 20].into();
    for published in [event(1, 100, 0), event(1, 101, 1), large, event(1, 103, 1)] {
        sites[0].durable.publish_event(&published).unwrap();
    }
    backbone.clone().publish(b"no events").unwrap();
    settle(&mut sites[..1], 4, connect);
    settle(&mut sites[1..], 2, connect);
    let [north, south] = &sites;
    assert_eq!(*south.got.lock(), [(1, 101), (1, 103)]);
    let expected = BridgeCounts { published: 2, ttl_expired: 1, dropped_too_large: 1, ..BridgeCounts::default() };
    assert_eq!(north.counts(), BridgeCounts { unreadable: 1, ..expected });
    // The events from the backbone have no time to live left, so the bridge does not publish them
    // again.
    let expected = BridgeCounts { delivered: 2, unreadable: 1, ttl_expired: 2, ..BridgeCounts::default() };
    assert_eq!(south.counts(), expected);
    orb.shutdown(true).unwrap();
}

#[test]
fn events_that_a_store_deletes_before_they_are_published_are_counted() {
    let (orb, backbone) = (orb(), MemoryBackbone::new());
    let connect = || Ok(backbone.clone());
    let mut north = Site::<MemoryBackbone>::with(&orb, "north", Retention { max_events: 3, ..Retention::default() });
    let publish = |numbers: std::ops::Range<i32>| {
        numbers.for_each(|number| {
            north.durable.publish_event(&event(1, 100 + number, 1)).unwrap();
        });
    };
    publish(0..5);
    let mut publisher = Publisher::new("north", north.channel.clone(), north.durable.clone());
    while publisher.counts.published < 3 {
        publisher.step(connect, Duration::ZERO).unwrap();
    }
    // A new name begins with the first event kept.
    assert_eq!(publisher.counts.deleted_events, 0);
    publish(5..10);
    north.publisher = publisher;
    settle(std::slice::from_mut(&mut north), 10, connect);
    let expected = BridgeCounts { published: 6, deleted_events: 2, ..BridgeCounts::default() };
    assert_eq!(north.counts(), expected);
    orb.shutdown(true).unwrap();
}

#[test]
fn channel_that_takes_the_place_of_another_begins_anew() {
    let (orb, backbone) = (orb(), MemoryBackbone::new());
    let connect = || Ok(backbone.clone());
    let mut sites = ["north", "south"].map(|name| Site::<MemoryBackbone>::new(&orb, name));
    for number in 100..103 {
        sites[0].durable.publish_event(&event(1, number, 1)).unwrap();
    }
    settle(&mut sites[..1], 3, connect);
    sites[0].served.destroy().unwrap();
    let second = Site::<MemoryBackbone>::new(&orb, "north");
    second.durable.publish_event(&event(2, 100, 1)).unwrap();
    settle(&mut sites[..1], 1, connect);
    settle(&mut sites[1..], 4, connect);
    assert_eq!(*sites[1].got.lock(), [(1, 100), (1, 101), (1, 102), (2, 100)]);
    assert_eq!(sites[1].counts().duplicates, 0);
    orb.shutdown(true).unwrap();
}

#[test]
fn only_exceptions_about_an_event_are_its_refusal() {
    let (orb, backbone, failing) = (orb(), MemoryBackbone::new(), Failing::new());
    let client = Orb::builder().interceptor(failing.clone()).build().unwrap();
    let connect = || Ok(backbone.clone());
    let mut sites = ["north", "south"].map(|name| Site::<MemoryBackbone>::new(&orb, name));
    let channel = references(&orb, &client, "south").0;
    let mut deliverer = Deliverer::new("south", 1, channel);
    for number in 101..104 {
        sites[0].durable.publish_event(&event(1, number, 1)).unwrap();
    }
    settle(&mut sites[..1], 3, connect);
    // The channel refuses the three events together, and then the first of them.
    failing.next("accept", Kind::Marshal);
    failing.next("accept", Kind::Marshal);
    deliverer.step(connect, Duration::ZERO).unwrap();
    let expected = BridgeCounts { delivered: 2, refused: 1, ..BridgeCounts::default() };
    assert_eq!(deliverer.counts, expected);

    sites[0].durable.publish_event(&event(1, 104, 1)).unwrap();
    settle(&mut sites[..1], 4, connect);
    for kind in [Kind::NoPermission, Kind::NoResources, Kind::ImpLimit, Kind::Internal, Kind::Unknown, Kind::Timeout] {
        failing.next("accept", kind);
        assert!(deliverer.step(connect, Duration::ZERO).is_err() && !deliverer.is_connected(), "{kind:?}");
        assert_eq!(deliverer.counts, expected, "{kind:?}");
    }
    deliverer.step(connect, Duration::ZERO).unwrap();
    assert_eq!(deliverer.counts, BridgeCounts { delivered: 3, ..expected });
    assert_eq!(*sites[1].got.lock(), [(1, 102), (1, 103), (1, 104)]);
    client.shutdown(true).unwrap();
    orb.shutdown(true).unwrap();
}

#[test]
fn lost_acknowledgement_is_repeated() {
    let (orb, backbone, failing) = (orb(), MemoryBackbone::new(), Failing::new());
    let client = Orb::builder().interceptor(failing.clone()).build().unwrap();
    let connect = || Ok(backbone.clone());
    let north = Site::<MemoryBackbone>::new(&orb, "north");
    let (channel, durable) = references(&orb, &client, "north");
    let mut publisher = Publisher::new("north", channel, durable);
    north.durable.publish_event(&event(1, 100, 1)).unwrap();
    failing.next("acknowledge", Kind::CommFailure);
    publisher.step(connect, Duration::ZERO).unwrap_err();
    assert_eq!(north.durable.resume_consumer("north", 0).unwrap(), 0);
    publisher.step(connect, Duration::ZERO).unwrap();
    assert_eq!(north.durable.resume_consumer("north", 0).unwrap(), 1);
    assert_eq!(publisher.counts, BridgeCounts { published: 1, ..BridgeCounts::default() });
    client.shutdown(true).unwrap();
    orb.shutdown(true).unwrap();
}

/// A connection to a backbone that has deleted the first messages of a known consumer.
struct Deleting(MemoryBackbone);

impl Backbone for Deleting {
    fn identity(&mut self) -> Result<u64, BackboneError> {
        self.0.identity()
    }

    fn publish(&mut self, message: &[u8]) -> Result<(), BackboneError> {
        self.0.publish(message)
    }

    fn subscribe(&mut self, consumer: &str, first: u64) -> Result<u64, BackboneError> {
        self.0.subscribe(consumer, first)
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<BackboneMessage>, BackboneError> {
        let received = self.0.receive(wait)?;
        Ok(received.map(|message| BackboneMessage { sequence: message.sequence + 4, ..message }))
    }

    fn acknowledge(&mut self) -> Result<(), BackboneError> {
        self.0.acknowledge()
    }
}

#[test]
fn messages_deleted_before_a_bridge_starts_are_counted() {
    let (orb, backbone) = (orb(), MemoryBackbone::new());
    let site = Site::<MemoryBackbone>::new(&orb, "south");
    let mut deliverer = Deliverer::new("south", 1, site.channel.clone());
    backbone.clone().publish(b"no events").unwrap();
    deliverer.step(|| Ok(Deleting(backbone.clone())), Duration::ZERO).unwrap();
    let expected = BridgeCounts { deleted_messages: 4, unreadable: 1, ..BridgeCounts::default() };
    assert_eq!(deliverer.counts, expected);
    orb.shutdown(true).unwrap();
}

/// A store whose commits wait while `stands` is true.
struct Standing {
    inner: MemoryStore,
    stands: Arc<AtomicBool>,
}

impl Store for Standing {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        self.inner.for_each(visit)
    }

    fn commit(&self, after: Revision, batch: &[RecordChange<'_>], how: Durability) -> Result<Revision, StoreError> {
        while self.stands.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inner.commit(after, batch, how)
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.inner.backup(path)
    }
}

#[test]
fn durable_channel_without_room_takes_no_event_that_may_come_again() {
    let (orb, stands) = (orb(), Arc::new(AtomicBool::new(false)));
    let standing = Standing { inner: MemoryStore::new(RECORD_FORMAT), stands: Arc::clone(&stands) };
    let store = EventStore::open(standing).unwrap();
    let channel = EventChannel::builder().name("south").durable(&store, Retention::default()).serve(&orb).unwrap();
    let shared = channel.shared();
    let mut large = event(1, 100, 1);
    large.data.payload = vec![1; 64 << 10].into();
    let passing = |number| PassingEvent { path: vec![7], number, event: large.clone(), ..PassingEvent::default() };
    stands.store(true, Ordering::SeqCst);
    let refused = (1..10_000).find_map(|number| Some((number, shared.accept(&[passing(number)]).err()?)));
    let (number, refusal) = refused.expect("the queue is bounded");
    assert_eq!((refusal.kind(), refusal.minor()), (Kind::Transient, minor::STORE_BUSY));
    stands.store(false, Ordering::SeqCst);
    shared.durable.as_ref().unwrap().settle();
    let accepted = shared.accept(&[passing(number)]).unwrap();
    assert_eq!((accepted.duplicates, accepted.refused), (0, 0));
    assert_eq!(shared.unstored().total(), 0);
    orb.shutdown(true).unwrap();
}
