//! Invalid and excessive priorities, bands, deadlines and lanes, from peers and configurations.

use std::sync::Arc;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    BufferBounds, ExpiredRequestAction, LaneConfig, LanesConfig, Priority, PriorityModel, PriorityTransform, RtConfig,
    RtPolicies, SchedulingClass, ThreadpoolConfig, ThreadpoolId,
};
use corelane::{Event, ObjectRef, Orb, SystemExceptionKind as Kind};
use corelane_net::Peer;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::real_time::{RawClient, RawReply, Reporter, UpcallReport, call_who, decode_reference, fair_orb};
use corelane_wire::exception::minor::OMG;
use corelane_wire::giop::context_id::{
    INVOCATION_POLICIES, REMAINING_DEADLINE, RT_CORBA_PRIORITY, RT_CORBA_PRIORITY_RANGE,
};
use corelane_wire::ior::{ProfileAddress, ProfileEndpoint, TaggedComponent, TaggedProfile, TaoEndpoint, component_tag};
use corelane_wire::rt::{
    PriorityModelValue, encode_deadline_context, encode_priority_bands, encode_priority_context,
    encode_priority_range_context, policy_type,
};
use corelane_wire::{Ior, Limits, Version};

const CLIENT: PriorityModel = PriorityModel::ClientPropagated;
const SERVER: PriorityModel = PriorityModel::ServerDeclared;
const BIND: &str = "_bind_priority_band";

type Told = Arc<Mutex<Vec<(Peer, String, Kind, u32)>>>;

fn telling(config: RtConfig) -> (Orb, Told) {
    let told = Told::new(Mutex::new("told", LockScope::Orb, Vec::new()));
    let list = Arc::clone(&told);
    let builder = Orb::builder().real_time(config.scheduling(SchedulingClass::Fair));
    let builder = builder.listen("tcp:127.0.0.1:0").on_event(move |event| {
        if let Event::RequestRefused { peer, operation, exception } = event {
            list.lock().push((peer.clone(), operation.clone(), exception.kind(), exception.minor()));
        }
    });
    let orb = builder.build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    (orb, told)
}

fn lanes<const N: usize>(orb: &Orb, lanes: [(i16, Option<i16>); N]) -> ThreadpoolId {
    let lanes = lanes.map(|(priority, ceiling)| LaneConfig::default().priority(priority).max_request_priority(ceiling));
    orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap()
}

fn model(model: PriorityModel, priority: i16, pool: Option<ThreadpoolId>) -> RtPolicies {
    RtPolicies { priority_model: Some((model, priority)), threadpool: pool, ..RtPolicies::default() }
}

fn object(orb: &Orb, name: &str, policies: &RtPolicies, reporter: &Arc<Reporter>) -> ObjectRef {
    let root = orb.root_poa();
    let poa = root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), policies).unwrap();
    poa.activate(&reporter.servant()).unwrap()
}

/// Sends a request, and asserts that it is refused and that one event reports the refusal. Returns
/// the exception.
fn refused(client: &mut RawClient, told: &Told, operation: &str, contexts: &[(u32, &[u8])]) -> (Kind, u32) {
    let before = told.lock().len();
    client.send_with_contexts(operation, contexts, None);
    let (kind, minor) =
        client.receive_void_reply().unwrap_or_else(|| panic!("{operation} {contexts:?} is not refused"));
    let told = told.lock();
    let expected = (Peer::Ip(client.local_address()), operation.to_owned(), kind, minor);
    assert_eq!(told[before..], [expected], "{contexts:?}");
    (kind, minor)
}

fn served(client: &mut RawClient, told: &Told, contexts: &[(u32, &[u8])]) -> UpcallReport {
    let before = told.lock().len();
    client.send_with_contexts("who", contexts, None);
    let who = client.receive_reply().2.who();
    assert_eq!(told.lock().len(), before, "{contexts:?}");
    who
}

#[test]
fn invalid_contexts_are_refused_with_an_event_and_extremes_accepted() {
    let (orb, told) = telling(RtConfig::default());
    let reporter = Reporter::new(&orb);
    let objects = [
        object(&orb, "propagated", &model(CLIENT, 7, None), &reporter),
        object(&orb, "declared", &model(SERVER, 7, None), &reporter),
        orb.root_poa().activate(&reporter.servant()).unwrap(),
    ];
    for object in &objects {
        let mut client = RawClient::for_object(object);
        let mut refused = |id: u32, data: &[u8]| refused(&mut client, &told, "who", &[(id, data)]);
        for data in [&[][..], &[1], &[1, 0], &[1, 0, 5], &[0, 0, 5]] {
            assert_eq!(refused(RT_CORBA_PRIORITY, data).0, Kind::Marshal, "{data:?}");
        }
        // TAO sends -1 for a request without a priority; other negative numbers are invalid.
        for priority in [-2, -3, -100, -32767, i16::MIN] {
            assert_eq!(
                refused(RT_CORBA_PRIORITY, &encode_priority_context(priority)),
                (Kind::BadParam, 0),
                "{priority}"
            );
        }
        for data in [&[][..], &[1], &[1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]] {
            assert_eq!(refused(REMAINING_DEADLINE, data).0, Kind::Marshal, "{data:?}");
        }
        let cut = TaggedComponent::policies(&[(policy_type::RELATIVE_ROUND_TRIP_TIMEOUT, vec![1, 0, 0])]).unwrap();
        let many = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f];
        for data in [&[][..], &[1, 0, 0], &many, &cut.data] {
            assert_eq!(refused(INVOCATION_POLICIES, data).0, Kind::Marshal, "{data:?}");
        }
        let longest = encode_deadline_context(Duration::MAX);
        let round_trip = (policy_type::RELATIVE_ROUND_TRIP_TIMEOUT, longest.to_vec());
        let round_trip = TaggedComponent::policies(&[round_trip]).unwrap();
        let (none, highest) = (encode_priority_context(-1), encode_priority_context(i16::MAX));
        for (id, data) in [
            (RT_CORBA_PRIORITY, &none[..]),
            (RT_CORBA_PRIORITY, &highest),
            (REMAINING_DEADLINE, &longest),
            (INVOCATION_POLICIES, &round_trip.data),
        ] {
            let _ = served(&mut client, &told, &[(id, data)]);
        }
    }
    assert_eq!(orb.event_counts().requests_refused, told.lock().len() as u64);
    assert_eq!(
        (reporter.priorities_run.lock().len(), orb.event_counts().deadlines_passed),
        (12, 0),
        "a refused request has run"
    );
}

#[test]
fn zero_deadline_is_timeout_and_does_not_bypass_a_refusal() {
    let (orb, told) = telling(RtConfig::default().expired_request_action(ExpiredRequestAction::Reject));
    let reporter = Reporter::new(&orb);
    let object = object(&orb, "late", &model(CLIENT, 7, Some(lanes(&orb, [(7, Some(9))]))), &reporter);
    let mut client = RawClient::for_object(&object);
    let (now, above) = (encode_deadline_context(Duration::ZERO), encode_priority_context(10));
    client.send_with_contexts("who", &[(REMAINING_DEADLINE, &now)], None);
    assert_eq!(client.receive_reply().2, RawReply::Raised(Kind::Timeout, OMG | 2));
    let both = [(REMAINING_DEADLINE, &now[..]), (RT_CORBA_PRIORITY, &above)];
    assert_eq!(refused(&mut client, &told, "who", &both), (Kind::NoPermission, 0));
    assert_eq!((reporter.priorities_run.lock().len(), orb.event_counts().deadlines_passed), (0, 1));
}

#[test]
fn first_of_two_priority_contexts_counts_for_the_ceiling() {
    let (orb, told) = telling(RtConfig::default());
    let reporter = Reporter::new(&orb);
    let pool = lanes(&orb, [(10, Some(15)), (20, None)]);
    let object = object(&orb, "lanes", &model(CLIENT, 10, Some(pool)), &reporter);
    let mut client = RawClient::connect(&object, decode_reference(&object).lanes[0].0);
    let [low, high] = [10, 20].map(encode_priority_context);
    let both = |first, second| [(RT_CORBA_PRIORITY, first), (RT_CORBA_PRIORITY, second)];
    assert_eq!(served(&mut client, &told, &both(&low[..], &high[..])).lane, 0);
    assert_eq!(refused(&mut client, &told, "who", &both(&high[..], &low[..])), (Kind::NoPermission, 0));
}

#[test]
fn priority_without_a_lane_or_band_is_refused_with_an_event() {
    let (orb, told) = telling(RtConfig::default());
    let (pool, reporter) = (lanes(&orb, [(10, None), (20, None)]), Reporter::new(&orb));
    let laned = object(&orb, "lanes", &model(CLIENT, 10, Some(pool)), &reporter);
    let bands = RtPolicies { priority_bands: Some(vec![(5, 15)]), ..model(CLIENT, 10, Some(pool)) };
    let banded = object(&orb, "bands", &bands, &reporter);
    let between = encode_priority_context(16);
    for (object, expected) in [(&laned, (Kind::Transient, OMG | 2)), (&banded, (Kind::InvPolicy, OMG | 1))] {
        let mut client = RawClient::for_object(object);
        assert_eq!(refused(&mut client, &told, "who", &[(RT_CORBA_PRIORITY, &between)]), expected);
    }
}

fn bind(client: &mut RawClient, (low, high): (i16, i16)) -> Option<(Kind, u32)> {
    client.send_with_context(BIND, Some((RT_CORBA_PRIORITY_RANGE, &encode_priority_range_context(low, high))), None);
    client.receive_void_reply()
}

#[test]
fn invalid_bands_are_refused_with_an_event_and_bind_nothing() {
    let (orb, told) = telling(RtConfig::default());
    let (pool, reporter) = (lanes(&orb, [(10, None), (20, None)]), Reporter::new(&orb));
    let object = object(&orb, "lanes", &model(CLIENT, 10, Some(pool)), &reporter);
    let mut client = RawClient::for_object(&object);
    let ends = [(-1, 5), (9, 5), (i16::MIN, i16::MAX), (i16::MAX, 0), (-5, -1), (0, -1)];
    for (low, high) in ends {
        let data = encode_priority_range_context(low, high);
        let answer = refused(&mut client, &told, BIND, &[(RT_CORBA_PRIORITY_RANGE, &data)]);
        assert_eq!(answer, (Kind::BadParam, 0), "{low} to {high}");
    }
    let outside = encode_priority_range_context(11, 19);
    let answer = refused(&mut client, &told, BIND, &[(RT_CORBA_PRIORITY_RANGE, &outside)]);
    assert_eq!(answer, (Kind::InvPolicy, OMG | 1));
    for data in [&[][..], &[1], &[1, 0, 5, 0], &[1, 0, 5, 0, 9]] {
        let answer = refused(&mut client, &told, BIND, &[(RT_CORBA_PRIORITY_RANGE, data)]);
        assert_eq!(answer.0, Kind::Marshal, "{data:?}");
    }
    // Without the context, `_bind_priority_band` is an ordinary operation.
    client.send(BIND, None, None);
    assert_eq!(client.receive_void_reply().map(|(kind, _)| kind), Some(Kind::BadOperation));
    // A refused context has no effect on later requests.
    let (between, all) = (encode_priority_context(15), encode_priority_range_context(0, i16::MAX));
    let both = [(RT_CORBA_PRIORITY, &between[..]), (RT_CORBA_PRIORITY_RANGE, &all)];
    assert_eq!(refused(&mut client, &told, "who", &both), (Kind::Transient, OMG | 2));
    assert_eq!(refused(&mut client, &told, "who", &both[..1]), (Kind::Transient, OMG | 2));
    assert_eq!(bind(&mut client, (11, 25)), None);
    assert_eq!(served(&mut client, &told, &both[..1]).lane, 1);
}

#[test]
fn no_band_leads_to_a_lane_above_the_ceiling() {
    let (orb, told) = telling(RtConfig::default());
    let pool = lanes(&orb, [(10, Some(15)), (20, None)]);
    let reporter = Reporter::new(&orb);
    let plain = object(&orb, "plain", &model(CLIENT, 10, Some(pool)), &reporter);
    let bands = Some(vec![(0, 12), (13, 40)]);
    let banded = RtPolicies { priority_bands: bands, ..model(CLIENT, 10, Some(pool)) };
    let banded = object(&orb, "banded", &banded, &reporter);
    let [low, high] = [0, 1].map(|lane| decode_reference(&plain).lanes[lane].0);
    let within = encode_priority_context(15);
    for object in [&plain, &banded] {
        let mut client = RawClient::connect(object, low);
        assert_eq!(bind(&mut client, (13, 40)), None);
        let answer = refused(&mut client, &told, "who", &[(RT_CORBA_PRIORITY, &within)]);
        assert_eq!(answer, (Kind::NoPermission, 0));
        assert_eq!(served(&mut client, &told, &[(RT_CORBA_PRIORITY, &encode_priority_context(10))]).lane, 0);
        let mut client = RawClient::connect(object, high);
        assert_eq!(bind(&mut client, (13, 40)), None);
        let who = served(&mut client, &told, &[(RT_CORBA_PRIORITY, &within)]);
        assert_eq!((who.lane, who.priority), (1, 20));
    }
}

#[derive(Debug)]
struct Raising;

impl PriorityTransform for Raising {
    fn inbound(&self, _: Priority, _: &[u8]) -> Option<Priority> {
        Priority::new(20)
    }

    fn outbound(&self, priority: Priority, _: &[u8]) -> Option<Priority> {
        Some(priority)
    }
}

#[test]
fn servers_own_transform_may_raise_a_request_above_the_ceiling() {
    let (orb, told) = telling(RtConfig::default().priority_transform(Some(Arc::new(Raising))));
    let pool = lanes(&orb, [(10, Some(15)), (20, None)]);
    let object = object(&orb, "raised", &model(CLIENT, 10, Some(pool)), &Reporter::new(&orb));
    let mut client = RawClient::connect(&object, decode_reference(&object).lanes[0].0);
    assert_eq!(served(&mut client, &told, &[(RT_CORBA_PRIORITY, &encode_priority_context(10))]).priority, 20);
    let above = encode_priority_context(16);
    assert_eq!(refused(&mut client, &told, "who", &[(RT_CORBA_PRIORITY, &above)]), (Kind::NoPermission, 0));
}

#[test]
fn buffer_is_ordered_by_the_effective_priority() {
    let (orb, told) = telling(RtConfig::default());
    let reporter = Reporter::new(&orb);
    let config = ThreadpoolConfig::default()
        .default_priority(10)
        .max_request_priority(Some(100))
        .buffering(Some(BufferBounds { max_requests: 5, max_bytes: 0 }));
    let pool = orb.real_time().create_threadpool(&config).unwrap();
    let propagated = object(&orb, "propagated", &model(CLIENT, 10, Some(pool)), &reporter);
    let declared = object(&orb, "declared", &model(SERVER, 20, Some(pool)), &reporter);
    orb.bind_corbaloc_key("Propagated", &propagated).unwrap();
    let named =
        orb.string_to_object(&format!("corbaloc::127.0.0.1:{}/Propagated", decode_reference(&propagated).lanes[0].0));
    let named = named.unwrap().unwrap();
    let mut blocker = RawClient::for_object(&propagated);
    blocker.send_at_priority("wait", 10, None);
    reporter.wait_for_held_threads(1);
    let mut client = RawClient::for_object(&propagated);
    let above = client.send_at_priority("who", 200, None);
    client.set_target(&declared);
    let declared = client.send_at_priority("who", 90, None);
    client.set_target(&propagated);
    let middle = client.send_at_priority("who", 50, None);
    client.set_target(&named);
    let by_name = client.send_at_priority("who", 60, None);
    client.set_target(&propagated);
    let none = client.send("who", None, None);
    let beyond = client.send_at_priority("who", 30, None);
    assert_eq!(client.receive_reply_id(), beyond);
    assert!(told.lock().is_empty());
    reporter.release();
    let answered = [(); 5].map(|()| client.receive_reply_id());
    assert_eq!(answered, [by_name, middle, declared, none, above]);
    assert_eq!(*reporter.priorities_run.lock(), [10, 60, 50, 20, 10]);
    assert_eq!(told.lock().len(), 1);
}

fn saying(object: &ObjectRef, endpoints: TaggedComponent, policies: &[(u32, Vec<u8>)]) -> String {
    let profile = object.ior().profiles.iter().find(|profile| profile.tag == 0).unwrap().parse().unwrap();
    let ProfileEndpoint::Inet { host, port } = profile.endpoints()[0].clone() else { panic!("no address") };
    let components = [endpoints, TaggedComponent::policies(policies).unwrap()];
    let address = ProfileAddress::Inet { host: &host, port };
    let profile = TaggedProfile::encode(Version::GIOP_1_2, address, profile.object_key, &components).unwrap();
    Ior { type_id: String::new(), profiles: vec![profile] }.to_text().unwrap()
}

fn answered(ior: &str) -> Result<UpcallReport, (Kind, u32)> {
    let client = fair_orb();
    client.real_time().current().unwrap().set_priority(20).unwrap();
    let object = client.string_to_object(ior).unwrap().unwrap();
    call_who(&object).map_err(|exception| (exception.kind(), exception.minor()))
}

#[test]
fn invalid_lists_of_lanes_and_policies_are_ignored() {
    let orb = fair_orb();
    let pool = lanes(&orb, [(10, None), (20, None)]);
    let object = object(&orb, "lanes", &model(CLIENT, 10, Some(pool)), &Reporter::new(&orb));
    let ports = decode_reference(&object).lanes;
    let model = |model, server_priority| {
        let value = PriorityModelValue { model, server_priority }.encode().unwrap();
        vec![(policy_type::PRIORITY_MODEL, value)]
    };
    let at = |port, priority| TaoEndpoint { address: "127.0.0.1".into(), port: Some(port), priority };
    let list = |endpoints: &[TaoEndpoint]| TaggedComponent::tao_endpoints(endpoints).unwrap();
    let good = [at(ports[0].0, 10), at(ports[1].0, 20)];
    let who = answered(&saying(&object, list(&good), &model(0, 10))).unwrap();
    assert_eq!((who.priority, who.handed_over), (20, false));
    // The client ignores an invalid list of lanes and uses the address of the profile.
    let endless = vec![at(1, 20); 5000];
    assert!(endless.len() > Limits::DEFAULT.max_lane_endpoints as usize);
    let crafted = |data: &[u8]| TaggedComponent { tag: component_tag::TAO_ENDPOINTS, data: data.into() };
    let mut cut = list(&good);
    cut.data.truncate(cut.data.len() - 1);
    for endpoints in [list(&endless), cut, crafted(&[]), crafted(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff])] {
        let who = answered(&saying(&object, endpoints, &model(0, 10))).unwrap();
        assert_eq!((who.priority, who.handed_over), (20, true));
    }
    let others: Vec<_> = (21..1021).map(|priority| at(1, priority)).collect();
    assert_eq!(answered(&saying(&object, list(&others), &model(0, 10))), Err((Kind::Transient, OMG | 2)));
    let impossible = vec![at(1, i16::MIN), at(1, -2)];
    assert_eq!(answered(&saying(&object, list(&impossible), &model(0, 10))), Err((Kind::Transient, OMG | 2)));
    let mut no_model = model(1, 10);
    no_model[0].1[4..8].fill(7);
    let who = answered(&saying(&object, list(&good), &no_model)).unwrap();
    assert_eq!(who.priority, 10, "without a priority model, the client propagates no priority");
    let who = answered(&saying(&object, list(&good[..1]), &model(1, -5))).unwrap();
    assert_eq!(who.priority, 10);
    let many: Vec<(i16, i16)> = (0..20_000).map(|_| (0, i16::MAX)).collect();
    for bands in [&[(9, 5)][..], &[(-1, 5)], &[], &[(0, 20), (20, 30)], &many] {
        let bands = (policy_type::PRIORITY_BANDED_CONNECTION, encode_priority_bands(bands).unwrap());
        let policies = [model(0, 10), vec![bands]].concat();
        assert_eq!(answered(&saying(&object, list(&good), &policies)).unwrap().priority, 20);
    }
}

#[test]
fn client_reaches_each_of_98_lanes() {
    let orb = fair_orb();
    let lanes = (1..=98).map(|priority| LaneConfig::default().priority(priority));
    let pool = orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap();
    let object = object(&orb, "lanes", &model(CLIENT, 1, Some(pool)), &Reporter::new(&orb));
    let client = fair_orb();
    let object = client.string_to_object(&object.to_string()).unwrap().unwrap();
    for priority in 1..=98 {
        client.real_time().current().unwrap().set_priority(priority).unwrap();
        let who = call_who(&object).unwrap();
        assert_eq!((who.priority, who.lane), (priority, u32::from(priority.unsigned_abs()) - 1));
    }
    assert_eq!(orb.event_counts().requests_handed_over, 0);
}

#[test]
fn invalid_configurations_are_refused_before_a_thread_or_listener_is_made() {
    const NAME: &str = "nonsense";
    let orb = fair_orb();
    let rt = orb.real_time();
    let threads = || corelane::rt::threads().unwrap().iter().filter(|thread| thread.name.starts_with(NAME)).count();
    let lane = LaneConfig::default().priority(5);
    let pool = ThreadpoolConfig::default().name(NAME);
    let make = |lane: &LaneConfig| {
        let lanes = vec![LaneConfig::default().priority(1), lane.clone()];
        rt.create_threadpool_with_lanes(&LanesConfig::default().name(NAME).lanes(lanes))
    };
    for (static_threads, dynamic_threads) in [(0, 0), (0, 5), (u32::MAX, 0), (4097, 0), (1, 4096), (1, u32::MAX)] {
        let lane = lane.clone().static_threads(static_threads).dynamic_threads(dynamic_threads);
        let pool = pool.clone().static_threads(static_threads).dynamic_threads(dynamic_threads);
        for made in [make(&lane), rt.create_threadpool(&pool)] {
            assert_eq!(made.unwrap_err().kind(), Kind::BadParam, "{static_threads} and {dynamic_threads} threads");
        }
    }
    for priority in [-1, i16::MIN, 1] {
        assert_eq!(make(&lane.clone().priority(priority)).unwrap_err().kind(), Kind::BadParam, "{priority}");
    }
    for ceiling in [-1, i16::MIN, 4] {
        let lane = lane.clone().max_request_priority(Some(ceiling));
        assert_eq!(make(&lane).unwrap_err().kind(), Kind::BadParam, "{ceiling}");
    }
    for cores in [vec![1024], vec![0, usize::MAX]] {
        let lane = lane.clone().cores(cores.clone());
        assert_eq!(make(&lane).unwrap_err().kind(), Kind::BadParam, "{cores:?}");
    }
    assert_eq!(threads(), 0);
    for stack in [usize::MAX, usize::MAX / 2] {
        let made = rt.create_threadpool(&pool.clone().thread_stack_size(stack));
        assert_eq!(made.unwrap_err().kind(), Kind::NoResources, "{stack}");
    }
    assert!(make(&lane.static_threads(1).dynamic_threads(4095)).is_ok());
    assert_eq!(threads(), 3, "an overload thread, and a thread of each lane");
}
