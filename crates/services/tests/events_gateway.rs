//! Gateways between event channels of several ORBs, which stand for several processes.

mod events_scene;

use std::sync::Arc;
use std::time::Duration;

use corelane::{Any, Dispatch, Orb, PoolConfig, SystemExceptionKind as Kind};
use corelane_services::events::corelane_events::{
    AcceptedEvents, ChannelDemand, EventKey, FederatedChannelRef, GatewayConsumerRef, GatewayState, PassingEvent,
};
use corelane_services::events::rtec_event_channel_admin::ProxyPushConsumerRef;
use corelane_services::events::rtec_event_channel_admin::{Publication, SupplierQOS};
use corelane_services::events::rtec_event_comm::{Event, PushConsumer};
use corelane_services::events::{
    DependencySet, EventChannel, EventChannelBuilder, EventLane, EventType, Gateway, GatewayBuilder, GatewayCounts,
    MissPolicy, QueueLimits, ReconnectPolicy,
};

use self::events_scene::*;

/// An event type that shows if demand has reached a channel.
const PROBE: EventType = EventType(99);

fn server() -> Orb {
    let pool = PoolConfig::default().dispatch(Dispatch::ThreadPerConnection { max_threads: 64 });
    let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

fn quick() -> GatewayBuilder {
    let reconnect = ReconnectPolicy { first_delay: Duration::from_millis(5), max_delay: Duration::from_millis(50) };
    Gateway::builder().reconnect(reconnect).check_interval(Duration::from_millis(50)).call_timeout(GENEROUS)
}

/// A server with a channel and a consumer at it.
struct Site {
    orb: Orb,
    channel: EventChannel,
    got: Arc<Recorder>,
    supplier: ProxyPushConsumerRef,
}

impl Site {
    fn new(builder: EventChannelBuilder, wanted: &[EventType]) -> Self {
        Self::with(builder, wanted, Recorder::new())
    }

    fn with(builder: EventChannelBuilder, wanted: &[EventType], recorder: Recorder) -> Self {
        let (orb, got) = (server(), Arc::new(recorder));
        let channel = builder.serve(&orb).unwrap();
        let set = wanted.iter().chain([&PROBE]).fold(DependencySet::new(), |set, it| set.event(*it, ANY));
        connect_consumer(&orb, channel.reference(), &set, &got);
        let supplier = connect_supplier(&orb, channel.reference(), &[], &got);
        Site { orb, channel, got, supplier }
    }

    /// Returns the type, the source and the time to live of each event that the consumer has
    /// received, except probes.
    fn events(&self) -> Vec<(i32, i32, i32)> {
        let sets = self.got.sets.all();
        let headers = sets.iter().flatten().map(|event| event.header);
        headers.filter(|it| it.r#type != PROBE.0).map(|it| (it.r#type, it.source, it.ttl)).collect()
    }

    fn wait_for(&self, count: usize) -> Vec<(i32, i32, i32)> {
        wait_until(|| self.events().len() >= count);
        self.events()
    }

    /// Pushes probes at this site until a probe has reached each of the other sites.
    fn wait_for_demand(&self, others: &[&Site], mark: i32) {
        let has_probe = |site: &Site| {
            site.got.sets.all().iter().flatten().any(|it| (it.header.r#type, it.header.source) == (PROBE.0, mark))
        };
        wait_until(|| {
            self.supplier.push(&[crossing(PROBE, mark, 9)]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            others.iter().all(|other| has_probe(other))
        });
    }

    fn federated(&self) -> FederatedChannelRef {
        FederatedChannelRef::unchecked_narrow(self.channel.reference().as_object())
    }
}

fn crossing(event_type: EventType, source: i32, ttl: i32) -> Event {
    let mut event = event(event_type, source);
    event.header.ttl = ttl;
    event
}

/// Serves a gateway in the ORB of `from`, which passes events from the channel of `from` to the
/// channel of `to`. The reference of the channel of `to` is made from its text, as in another
/// process.
fn gateway(from: &Site, to: &Site, settings: GatewayBuilder) -> Gateway {
    let there: corelane_services::events::rtec_event_channel_admin::EventChannelRef =
        from.orb.string_to_reference(&to.channel.reference().to_string()).unwrap();
    settings.serve(&from.orb, from.channel.reference(), &there).unwrap()
}

fn settled(gateway: &Gateway) -> GatewayCounts {
    wait_until(|| gateway.status().counts.waiting == 0);
    let counts = gateway.status().counts;
    assert!(counts.is_balanced(), "{counts:?}");
    counts
}

#[test]
fn only_wanted_events_with_time_to_live_cross() {
    let (north, south) = (Site::new(patient_channel(), &[]), Site::new(patient_channel(), &[A]));
    let gateway = gateway(&north, &south, quick());
    north.wait_for_demand(&[&south], 1);
    let before = settled(&gateway);
    north.supplier.push(&[crossing(A, 1, 1), crossing(B, 2, 1), crossing(A, 3, 0), crossing(A, 4, 7)]).unwrap();
    assert_eq!(south.wait_for(2), [(16, 1, 0), (16, 4, 6)]);
    let after = settled(&gateway);
    assert_eq!((after.received - before.received, after.forwarded - before.forwarded), (3, 2));
    assert_eq!((after.ttl_expired, after.duplicates, after.dropped_buffer_full), (1, 0, 0));
    assert!(north.supplier.push(&[crossing(A, 5, -1)]).is_err());
    // The gateway passes no event to the north, whose consumers want none.
    assert_eq!(north.events(), []);
    gateway.stop();
    north.supplier.push(&[crossing(A, 6, 1)]).unwrap();
    wait_until(|| north.channel.statistics().consumers.len() == 1);
    assert_eq!(south.events().len(), 2);
}

#[test]
fn demand_ends_with_the_consumer() {
    let (north, south) = (Site::new(patient_channel(), &[]), Site::new(patient_channel(), &[]));
    let late = Arc::new(Recorder::new());
    let proxy = connect_consumer(&south.orb, south.channel.reference(), &DependencySet::new().event(A, ANY), &late);
    let gateway = gateway(&north, &south, quick());
    north.wait_for_demand(&[&south], 1);
    north.supplier.push(&[crossing(A, 1, 1)]).unwrap();
    assert_eq!(types(&late.sets.wait_for(1)), [[16]]);
    proxy.disconnect_push_supplier().unwrap();
    wait_until(|| {
        let before = settled(&gateway).received;
        north.supplier.push(&[crossing(A, 2, 1)]).unwrap();
        settled(&gateway).received == before
    });
}

#[test]
fn ring_of_three_servers_delivers_each_wanted_event_once() {
    let sites: Vec<Site> = (0..3).map(|_| Site::new(patient_channel(), &[A, B])).collect();
    let links = [(0, 1), (1, 2), (2, 0), (1, 0)];
    let gateways: Vec<Gateway> = links.iter().map(|(from, to)| gateway(&sites[*from], &sites[*to], quick())).collect();
    let all: Vec<&Site> = sites.iter().collect();
    (0..3).for_each(|at| sites[at].wait_for_demand(&all, at as i32 + 1));
    const EVENTS: i32 = 200;
    for number in 0..EVENTS {
        for (at, site) in sites.iter().enumerate() {
            site.supplier.push(&[crossing(A, number * 3 + at as i32 + 1, 9)]).unwrap();
        }
    }
    for site in &sites {
        let mut sources: Vec<i32> = site.wait_for(3 * EVENTS as usize).iter().map(|it| it.1).collect();
        for gateway in &gateways {
            settled(gateway);
        }
        sources.sort_unstable();
        assert_eq!(sources, (1..=3 * EVENTS).collect::<Vec<_>>());
    }
    let lost = |counts: GatewayCounts| counts.dropped_buffer_full + counts.dropped_by_destination;
    assert_eq!(gateways.iter().map(settled).map(lost).sum::<u64>(), 0);
    assert!(gateways.iter().map(settled).any(|counts| counts.duplicates > 0));
}

#[test]
fn stopped_destination_holds_up_no_supplier_and_gets_each_event_once_afterwards() {
    let gate = Gate::new();
    let mut recorder = Recorder::new();
    let stop = Arc::clone(&gate);
    recorder.in_push = Box::new(move |pushed| {
        if matches!(pushed, Pushed::Set([event]) if event.header.r#type == B.0) {
            stop.pass();
        }
    });
    let south = Site::with(patient_channel(), &[A, B], recorder);
    let north = Site::new(patient_channel(), &[]);
    let gateway = gateway(&north, &south, quick().call_timeout(Duration::from_millis(100)));
    north.wait_for_demand(&[&south], 1);
    // The consumer blocks in the push of the event B, so the server's thread that takes the
    // gateway's events waits.
    north.supplier.push(&[crossing(B, 1, 1)]).unwrap();
    wait_until(|| !south.events().is_empty());
    for source in 2..=500 {
        north.supplier.push(&[crossing(A, source, 1)]).unwrap();
    }
    let counts = gateway.status().counts;
    assert!(counts.is_balanced() && counts.dropped_buffer_full == 0, "{counts:?}");
    wait_until(|| !gateway.status().is_connected);
    assert!(gateway.status().problem.is_some());
    gate.open();
    let mut sources: Vec<i32> = south.wait_for(500).iter().map(|it| it.1).collect();
    settled(&gateway);
    assert_eq!(south.events().len(), 500);
    sources.sort_unstable();
    assert_eq!(sources, (1..=500).collect::<Vec<_>>());
    assert!(gateway.status().counts.reconnects > 0);
}

#[test]
fn full_buffer_drops_the_oldest_events_and_counts_them() {
    let gate = Gate::new();
    let mut recorder = Recorder::new();
    let stop = Arc::clone(&gate);
    recorder.in_push = Box::new(move |pushed| {
        if matches!(pushed, Pushed::Set([event]) if event.header.r#type == B.0) {
            stop.pass();
        }
    });
    let south = Site::with(patient_channel(), &[A, B], recorder);
    let north = Site::new(patient_channel(), &[]);
    let narrow = QueueLimits { max_delivery_sets: 10, max_bytes: 1 << 20 };
    let gateway = gateway(&north, &south, quick().buffer_limits(narrow));
    north.wait_for_demand(&[&south], 1);
    settled(&gateway);
    north.supplier.push(&[crossing(B, 1, 1)]).unwrap();
    wait_until(|| !south.events().is_empty());
    for source in 2..=100 {
        north.supplier.push(&[crossing(A, source, 1)]).unwrap();
    }
    // The event B, whose push has not returned, takes one of the ten places in the buffer.
    assert_eq!(gateway.status().counts.dropped_buffer_full, 90);
    gate.open();
    let sources: Vec<i32> = south.wait_for(10).iter().map(|it| it.1).collect();
    assert_eq!(sources, [1].into_iter().chain(92..=100).collect::<Vec<_>>());
    settled(&gateway);
}

#[test]
fn gateway_to_itself_is_refused() {
    let site = Site::new(patient_channel(), &[]);
    let refused = quick().serve(&site.orb, site.channel.reference(), site.channel.reference());
    assert_eq!(refused.unwrap_err().kind(), Kind::BadParam);
    // If the reference has another address, the gateway recognises the channel by its identity.
    let other = listening_orb();
    let port = site.channel.reference().to_string();
    let remote: corelane_services::events::rtec_event_channel_admin::EventChannelRef =
        other.string_to_reference(&port).unwrap();
    let by_key = other.string_to_object(&key_url(&site)).unwrap().unwrap();
    let gateway = quick().serve(&other, &remote, &by_key);
    match gateway {
        Err(exception) => assert_eq!(exception.kind(), Kind::BadParam),
        Ok(gateway) => {
            wait_until(|| gateway.status().is_refused);
            gateway.stop();
            assert_eq!(site.channel.statistics().consumers.len(), 1);
        }
    }
}

fn key_url(site: &Site) -> String {
    let address = site.orb.endpoints().first().expect("the ORB listens").to_string();
    let address = address.trim_start_matches("tcp:").to_owned();
    format!("corbaloc::1.2@{address}/EventChannel.rtec")
}

#[test]
fn channel_takes_events_of_gateways_once_and_refuses_wrong_ones() {
    let site = Site::new(patient_channel(), &[A]);
    let channel = site.federated();
    let number = channel.channel_number().unwrap();
    let passing = |path: Vec<u64>, number, ttl| PassingEvent { path, number, lane: 77, event: crossing(A, 1, ttl) };
    let accept = |events: &[PassingEvent]| channel.accept(events).unwrap();
    let counts = |duplicates, refused| AcceptedEvents { duplicates, refused };
    assert_eq!(accept(&[passing(vec![5], 1, 0), passing(vec![5, 6], 1, 3), passing(vec![6, 5], 1, 3)]), counts(1, 0));
    assert_eq!(accept(&[passing(vec![5], 2, -1), passing(vec![5], 2, i32::MIN)]), counts(0, 2));
    assert_eq!(accept(&[passing(vec![5, number], 3, 1), passing(vec![number], 9, 1)]), counts(2, 0));
    assert_eq!(accept(&[passing(vec![7; 40], 3, 1)]), counts(0, 1));
    assert_eq!(accept(&[passing(vec![], 0, 1), passing(vec![], 0, 1)]), counts(0, 0));
    assert_eq!(accept(&[]), counts(0, 0));
    assert_eq!(site.events().len(), 4);
    assert_eq!(channel.open_outlet(None, &[]).unwrap_err().kind(), Kind::BadParam);
}

#[test]
fn events_cross_in_their_lanes() {
    let lanes = || [EventLane::new(20), EventLane::new(1)];
    let gate = Gate::new();
    let mut recorder = Recorder::new();
    let stop = Arc::clone(&gate);
    recorder.in_push = Box::new(move |pushed| {
        if matches!(pushed, Pushed::Set([event]) if event.header.r#type == B.0) {
            stop.pass();
        }
    });
    let south = Site::with(patient_channel().lanes(lanes()), &[A, B], recorder);
    let there: corelane_services::events::rtec_event_channel_admin::EventChannelRef;
    let orb = server();
    there = orb.string_to_reference(&south.channel.reference().to_string()).unwrap();
    let north = patient_channel().lanes(lanes()).gateway(&there, quick()).serve(&orb).unwrap();
    let supplier = north.reference().for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    let publication = |event_type, rt_info| {
        let mut publication = Publication { event: event(event_type, 0), ..Publication::default() };
        publication.dependency_info.rt_info = rt_info;
        publication
    };
    let publications = vec![publication(A, 20), publication(B, 1), publication(PROBE, 20)];
    supplier.connect_push_supplier(None, &SupplierQOS { publications, is_gateway: false }).unwrap();
    wait_until(|| {
        supplier.push(&[crossing(PROBE, 1, 1)]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        !south.got.sets.all().is_empty()
    });
    // While the consumer waits in the push of an event of the lower lane, it gets events of the
    // higher lane.
    supplier.push(&[crossing(B, 1, 1), crossing(B, 2, 1)]).unwrap();
    wait_until(|| south.events().iter().any(|it| it.0 == B.0));
    supplier.push(&[crossing(A, 3, 1), crossing(A, 4, 1)]).unwrap();
    assert_eq!(south.wait_for(3), [(17, 1, 0), (16, 3, 0), (16, 4, 0)]);
    gate.open();
    south.wait_for(4);
    assert_eq!(north.gateways().len(), 1);
    north.destroy().unwrap();
    north.gateways()[0].stop();
}

#[test]
fn events_cross_to_and_from_channels_of_corbas_event_service() {
    let (north, south) = (Site::new(patient_channel(), &[]), Site::new(patient_channel(), &[A]));
    let there: corelane_services::events::cos_event_channel_admin::EventChannelRef =
        north.orb.string_to_reference(&south.channel.cos_reference().to_string()).unwrap();
    let here: corelane_services::events::cos_event_channel_admin::EventChannelRef =
        south.orb.string_to_reference(&north.channel.cos_reference().to_string()).unwrap();
    let values = quick().serve(&north.orb, north.channel.reference(), &there).unwrap();
    let sent = Any::new(&"text".to_owned()).unwrap();
    wait_until(|| {
        let mut event = crossing(A, 1, 1);
        event.data.any_value = sent.clone();
        north.supplier.push(&[event]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        !south.events().is_empty()
    });
    let got = south.got.sets.all();
    assert_eq!(got[0][0].data.any_value.extract::<String>().unwrap(), "text");
    values.stop();
    let before = south.events().len();
    let typed = quick().serve(&south.orb, &here, south.channel.reference()).unwrap();
    let supplier = connect_cos_supplier(north.channel.cos_reference());
    wait_until(|| {
        supplier.push(&sent).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        south.events().len() > before
    });
    assert_eq!(south.events().last(), Some(&(16, 0, 0)));
    typed.stop();
    assert!(typed.status().counts.is_balanced());
}

#[test]
fn vanished_gateway_leaves_its_source() {
    let quickly = MissPolicy { max_misses: 1, suspension_time: Duration::from_millis(10), ..MissPolicy::default() };
    let north = Site::new(patient_channel().miss_policy(quickly), &[]);
    let south = Site::new(patient_channel(), &[A]);
    let elsewhere = server();
    let reference = |site: &Site| -> corelane_services::events::rtec_event_channel_admin::EventChannelRef {
        elsewhere.string_to_reference(&site.channel.reference().to_string()).unwrap()
    };
    let gateway = quick().serve(&elsewhere, &reference(&north), &reference(&south)).unwrap();
    north.wait_for_demand(&[&south], 1);
    assert_eq!(north.federated().demands().unwrap().len(), 2);
    elsewhere.shutdown(true).unwrap();
    wait_until(|| {
        north.supplier.push(&[crossing(A, 1, 1)]).unwrap();
        north.channel.statistics().consumers.len() == 1
    });
    assert_eq!(north.federated().demands().unwrap().len(), 1);
    gateway.stop();
}

#[test]
fn gateway_that_connects_again_has_one_outlet() {
    let north = Site::new(patient_channel(), &[]);
    let elsewhere = server();
    let channel: FederatedChannelRef = elsewhere.string_to_reference(&north.channel.reference().to_string()).unwrap();
    let servant = <Recorder as PushConsumer>::servant_of(Arc::new(Recorder::new()));
    let gateway = GatewayConsumerRef::unchecked_narrow(&elsewhere.root_poa().activate(&servant).unwrap());
    let demand = ChannelDemand { path: vec![7], wanted: vec![EventKey { event_type: A.0, source: 0 }] };
    let open = || channel.open_outlet(Some(&gateway), std::slice::from_ref(&demand)).unwrap().unwrap();
    // A gateway repeats a call whose answer it has lost. So it may open several outlets, and only
    // the last one stays.
    let first = open();
    let opened: Vec<_> = (0..100).map(|_| open()).collect();
    let last = &opened[99];
    assert_eq!(first.report(&GatewayState::default()).unwrap_err().kind(), Kind::ObjectNotExist);
    last.report(&GatewayState::default()).unwrap();
    assert_eq!(north.channel.statistics().consumers.len(), 2);
    let paths: Vec<usize> = channel.demands().unwrap().iter().map(|it| it.path.len()).collect();
    assert_eq!(paths, [1, 2]);
    last.close().unwrap();
    assert_eq!(channel.demands().unwrap().len(), 1);
}

#[test]
fn gateways_of_other_processes_need_permission() {
    let site = Site::new(patient_channel().allow_gateways_by_clients(false), &[A]);
    let elsewhere = server();
    let remote: FederatedChannelRef = elsewhere.string_to_reference(&site.channel.reference().to_string()).unwrap();
    let servant = <Recorder as PushConsumer>::servant_of(Arc::new(Recorder::new()));
    let gateway = GatewayConsumerRef::unchecked_narrow(&elsewhere.root_poa().activate(&servant).unwrap());
    let passing = PassingEvent { path: vec![5], number: u64::MAX, lane: 0, event: crossing(A, 1, 1) };
    let brought = |channel: &FederatedChannelRef| channel.accept(std::slice::from_ref(&passing));
    assert_eq!(brought(&remote).unwrap_err().kind(), Kind::NoPermission);
    assert_eq!(remote.open_outlet(Some(&gateway), &[]).unwrap_err().kind(), Kind::NoPermission);
    assert_eq!(site.events(), []);
    assert_eq!(brought(&site.federated()).unwrap(), AcceptedEvents::default());
    assert!(site.federated().open_outlet(Some(&gateway), &[]).unwrap().is_some());
    assert_eq!(site.events().len(), 1);
}
