//! The lane, thread, priority and connection that serve a request, as reported by `served_by`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::poa::{IdAssignment, ImplicitActivation, Lifespan, ObjectId, Poa, PoaError, PoaPolicies};
use corelane::rt::{
    ConsecutiveMapping, GuaranteeStatus, InvalidThreadpool, LaneConfig, LanesConfig, NativePriorityRange,
    NetworkPriorityMapping, Priority, PriorityModel, Reservation, RtConfig, RtPolicies, SchedulingClass,
    ThreadpoolConfig, ThreadpoolId,
};
use corelane::{
    ConnectionLimits, Dispatch, Endpoint, Event, ObjectRef, Orb, PoolConfig, Servant, ServerCall, Skeleton,
    SystemException, SystemExceptionKind as Kind,
};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::real_time::{
    RawClient, RawReply, Reporter, call_who, decode_reference, fair_orb, fifo_orb, wait_until,
};
use corelane_wire::exception::minor::OMG;
use corelane_wire::giop::context_id;
use corelane_wire::rt::{encode_priority_context, encode_priority_range_context};

const CLIENT: PriorityModel = PriorityModel::ClientPropagated;
const SERVER: PriorityModel = PriorityModel::ServerDeclared;

fn lanes(orb: &Orb, priorities: &[i16]) -> ThreadpoolId {
    let lanes = priorities.iter().map(|&priority| LaneConfig::default().priority(priority));
    orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap()
}

fn model(model: PriorityModel, priority: i16, pool: Option<ThreadpoolId>) -> RtPolicies {
    RtPolicies { priority_model: Some((model, priority)), threadpool: pool, ..RtPolicies::default() }
}

fn poa(orb: &Orb, name: &str, policies: &RtPolicies) -> Poa {
    let root = orb.root_poa();
    root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), policies).unwrap()
}

fn object(orb: &Orb, name: &str, policies: &RtPolicies) -> ObjectRef {
    poa(orb, name, policies).activate(&Reporter::new(orb).servant()).unwrap()
}

fn raised(kind: Kind, minor: u32) -> RawReply {
    RawReply::Raised(kind, minor)
}

#[test]
fn request_runs_in_the_lane_of_its_priority_at_every_port() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[30, 10, 20]);
    let object = object(&orb, "lanes", &model(CLIENT, 10, Some(pool)));
    let said = decode_reference(&object);
    assert_eq!(said.lanes.iter().map(|lane| lane.1).collect::<Vec<_>>(), [10, 20, 30]);
    assert_eq!((said.model, &*said.policies), (Some((0, 10)), &[40][..]));
    let ports: Vec<u16> = said.lanes.iter().map(|lane| lane.0).collect();
    for (came_in, port) in [10, 20, 30].into_iter().zip(&ports) {
        let mut client = RawClient::connect(&object, *port);
        for (priority, lane) in [(10, 1), (20, 2), (30, 0)] {
            let who = client.who(Some(priority)).who();
            assert_eq!((who.priority, who.pool, who.lane), (priority, pool.number(), lane));
            assert_eq!(who.handed_over, came_in != priority, "{priority} at the port of {came_in}");
            assert!(who.thread.starts_with(&format!("rt/p{priority}/")), "{}", who.thread);
        }
    }
    assert_eq!(orb.event_counts().requests_handed_over, 6);
}

#[test]
fn priority_without_a_lane_is_refused_and_client_without_a_priority_gets_the_servers() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10, 20]);
    let object = object(&orb, "lanes", &model(CLIENT, 20, Some(pool)));
    let mut client = RawClient::for_object(&object);
    assert_eq!(client.who(Some(15)), raised(Kind::Transient, OMG | 2));
    for context in [None, Some(-1)] {
        let who = client.who(context).who();
        assert_eq!((who.priority, who.lane, who.handed_over), (20, 1, true), "{context:?}");
    }
    let default = model(CLIENT, 5, Some(pool));
    let object = self::object(&orb, "lowest", &default);
    assert_eq!(RawClient::connect(&object, decode_reference(&object).lanes[1].0).who(None).who().lane, 0);
}

#[test]
fn band_selects_the_lane_that_lies_in_it() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10, 20, 30]);
    let policies = RtPolicies { priority_bands: Some(vec![(5, 15), (25, 35)]), ..model(CLIENT, 10, Some(pool)) };
    let object = object(&orb, "bands", &policies);
    let said = decode_reference(&object);
    assert_eq!(said.lanes.iter().map(|lane| lane.1).collect::<Vec<_>>(), [10, 30]);
    assert_eq!((&*said.bands, &*said.policies), (&[(5, 15), (25, 35)][..], &[45, 40][..]));
    let mut client = RawClient::for_object(&object);
    for priority in 0..40 {
        let answer = client.who(Some(priority));
        match priority {
            5..=15 => assert_eq!(answer.who().priority, 10),
            25..=35 => assert_eq!(answer.who().priority, 30),
            _ => assert_eq!(answer, raised(Kind::InvPolicy, OMG | 1), "{priority}"),
        }
    }
}

#[test]
fn server_declared_objects_run_at_their_own_priority() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10, 20, 30]);
    let poa = poa(&orb, "declared", &model(SERVER, 20, Some(pool)));
    let reporter = || Reporter::new(&orb).servant();
    let plain = poa.activate(&reporter()).unwrap();
    let id = poa.activate_object_with_priority(&reporter(), 30).unwrap();
    let high = poa.id_to_reference(&id).unwrap();
    for (object, lane, priority) in [(&plain, 1, 20), (&high, 2, 30)] {
        let said = decode_reference(object);
        assert_eq!((said.lanes.len(), said.lanes[0].1, said.model), (1, -1, Some((1, priority))));
        for context in [None, Some(10), Some(32767)] {
            let who = RawClient::for_object(object).who(context).who();
            assert_eq!((who.priority, who.lane, who.handed_over), (priority, lane, false));
        }
    }
    let who = RawClient::connect(&high, decode_reference(&plain).lanes[0].0).who(None).who();
    assert_eq!((who.priority, who.lane, who.handed_over), (30, 2, true));
}

#[test]
fn create_poa_refuses_invalid_policies() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10, 20]);
    let root = orb.root_poa();
    let refused = |policies: &RtPolicies| match root.create_rt_poa("x", None, PoaPolicies::default(), policies) {
        Err(PoaError::InvalidPolicy(index)) => PoaPolicies::POLICY_NAMES[usize::from(index)],
        other => panic!("{other:?}"),
    };
    let none = RtPolicies::default();
    assert_eq!(refused(&RtPolicies { threadpool: Some(pool), ..none.clone() }), "ThreadpoolPolicy");
    let gone = lanes(&orb, &[10]);
    orb.real_time().destroy_threadpool(gone).unwrap();
    assert_eq!(refused(&model(SERVER, 10, Some(gone))), "ThreadpoolPolicy", "there is no such pool");
    assert_eq!(refused(&RtPolicies { private_connection: true, ..none.clone() }), "PrivateConnectionPolicy");
    let bands = |bands: &[(i16, i16)]| Some(bands.to_vec());
    assert_eq!(
        refused(&RtPolicies { priority_bands: bands(&[(0, 9)]), ..none.clone() }),
        "PriorityBandedConnectionPolicy"
    );
    assert_eq!(refused(&model(CLIENT, -1, None)), "PriorityModelPolicy");
    assert_eq!(refused(&model(SERVER, 15, Some(pool))), "PriorityModelPolicy");
    let banded = |pairs: &[(i16, i16)], pool| RtPolicies { priority_bands: bands(pairs), ..model(SERVER, 10, pool) };
    assert_eq!(refused(&banded(&[(0, 5)], None)), "PriorityModelPolicy");
    assert_eq!(refused(&banded(&[(0, 15), (30, 40)], Some(pool))), "PriorityBandedConnectionPolicy");
    for wrong in [&[][..], &[(9, 5)], &[(-5, 5)], &[(0, 10), (10, 20)]] {
        assert_eq!(refused(&banded(wrong, None)), "PriorityBandedConnectionPolicy", "{wrong:?}");
    }
    let unix = vec![corelane::rt::Protocol::Unix(Default::default())];
    assert_eq!(refused(&RtPolicies { server_protocols: unix, ..none }), "ServerProtocolPolicy");
}

#[test]
fn priority_operations_follow_every_rule_of_the_specification() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10, 20]);
    let reporter = || Reporter::new(&orb).servant();
    let propagated = poa(&orb, "propagated", &model(CLIENT, 10, None));
    assert_eq!(propagated.activate_object_with_priority(&reporter(), 10), Err(PoaError::WrongPolicy));
    assert_eq!(orb.root_poa().create_reference_with_priority("IDL:x:1.0", 10).unwrap_err(), PoaError::WrongPolicy);
    let implicit = PoaPolicies { implicit_activation: ImplicitActivation::Implicit, ..PoaPolicies::default() };
    let implicit = orb.root_poa().create_rt_poa("implicit", None, implicit, &model(SERVER, 10, None)).unwrap();
    assert_eq!(implicit.activate_object_with_priority(&reporter(), 10), Err(PoaError::WrongPolicy));

    let system = |error| match error {
        PoaError::System(exception) => (exception.kind(), exception.minor()),
        other => panic!("{other:?}"),
    };
    let users = PoaPolicies { id_assignment: IdAssignment::User, ..PoaPolicies::default() };
    let poa = orb.root_poa().create_rt_poa("users", None, users, &model(SERVER, 10, Some(pool))).unwrap();
    for wrong in [-1, 15, 32767] {
        let error = poa.create_reference_with_id_and_priority(&"a".into(), "IDL:x:1.0", wrong).unwrap_err();
        assert_eq!(system(error), (Kind::BadParam, 0), "{wrong}");
    }
    let id = ObjectId::from("a");
    let reference = poa.create_reference_with_id_and_priority(&id, "IDL:x:1.0", 20).unwrap();
    assert_eq!(decode_reference(&reference).model, Some((1, 20)));
    let other = poa.activate_object_with_id_and_priority(&id, &reporter(), 10).unwrap_err();
    assert_eq!(system(other), (Kind::BadInvOrder, OMG | 18));
    poa.activate_object_with_id_and_priority(&id, &reporter(), 20).unwrap();
    poa.manager().activate().unwrap();
    let who = RawClient::for_object(&reference).who(None).who();
    assert_eq!((who.priority, who.lane), (20, 1));
    let again = poa.activate_object_with_id_and_priority(&id, &reporter(), 20).unwrap_err();
    assert_eq!(again, PoaError::ObjectAlreadyActive);

    let banded = RtPolicies { priority_bands: Some(vec![(5, 15)]), ..model(SERVER, 10, None) };
    let poa = self::poa(&orb, "banded", &banded);
    assert_eq!(system(poa.activate_object_with_priority(&reporter(), 16).unwrap_err()), (Kind::BadParam, 0));
    assert!(poa.create_reference_with_priority("IDL:x:1.0", 5).is_ok());
}

#[test]
fn invalid_pool_configurations_are_refused() {
    let orb = fair_orb();
    let rt = orb.real_time();
    let with = |lanes: Vec<LaneConfig>| rt.create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes));
    let lane = |priority| LaneConfig::default().priority(priority);
    let bad = |result: Result<ThreadpoolId, SystemException>| result.unwrap_err().kind();
    assert_eq!(bad(with(vec![])), Kind::BadParam);
    assert_eq!(bad(with(vec![lane(-1)])), Kind::BadParam);
    assert_eq!(bad(with(vec![lane(1), lane(1)])), Kind::BadParam);
    assert_eq!(bad(with(vec![lane(1).static_threads(0)])), Kind::BadParam);
    assert_eq!(bad(with(vec![lane(1).max_request_priority(Some(0))])), Kind::BadParam);
    assert_eq!(bad(with(vec![lane(1).listen("nowhere")])), Kind::BadParam);
    assert_eq!(bad(rt.create_threadpool(&ThreadpoolConfig::default().static_threads(0))), Kind::BadParam);
    let taken = orb.endpoints()[0].to_string();
    assert_eq!(bad(with(vec![lane(1).listen(taken)])), Kind::NoResources);
}

#[test]
fn ceiling_of_an_endpoint_bounds_the_priorities_of_its_peers() {
    let orb = fair_orb();
    let lane = |priority, ceiling| LaneConfig::default().priority(priority).max_request_priority(ceiling);
    let config = LanesConfig::default().lanes([lane(10, Some(15)), lane(20, None)]);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
    let object = object(&orb, "ceiling", &model(CLIENT, 10, Some(pool)));
    let ports = decode_reference(&object).lanes;
    let mut low = RawClient::connect(&object, ports[0].0);
    assert_eq!(low.who(Some(20)), raised(Kind::NoPermission, 0));
    assert_eq!(low.who(Some(10)).who().lane, 0);
    assert_eq!(RawClient::connect(&object, ports[1].0).who(Some(20)).who().lane, 1);
}

#[test]
fn ceiling_of_the_orbs_endpoints_bounds_requests_for_lanes() {
    let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
    let bounded = PoolConfig::default().max_request_priority(Some(15));
    let orb = Orb::builder().real_time(rt).pool(bounded).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    let pool = lanes(&orb, &[10, 20]);
    let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP") };
    for (name, policies) in [("laned", model(CLIENT, 10, Some(pool))), ("plain", model(CLIENT, 10, None))] {
        let object = object(&orb, name, &policies);
        let mut client = RawClient::connect(&object, port);
        assert_eq!(client.who(Some(20)), raised(Kind::NoPermission, 0), "{name}");
        assert_eq!(client.who(Some(10)).who().priority, 10, "{name}");
    }
    let declared = object(&orb, "declared", &model(SERVER, 20, Some(pool)));
    assert_eq!(RawClient::connect(&declared, port).who(None).who().priority, 20);
}

#[test]
fn priority_without_a_native_priority_raises_data_conversion_2() {
    let mapping = Arc::new(ConsecutiveMapping(NativePriorityRange { least_urgent: 1, most_urgent: 20 }));
    let orb = Orb::builder().real_time(RtConfig::default().priority_mapping(mapping));
    let orb = orb.listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    let unmappable = |result: Result<(), SystemException>| {
        let exception = result.unwrap_err();
        assert_eq!((exception.kind(), exception.minor()), (Kind::DataConversion, OMG | 2), "{exception}");
    };
    let rt = orb.real_time();
    let lane = |priority| LaneConfig::default().priority(priority);
    let config = LanesConfig::default().lanes([lane(3), lane(20)]);
    unmappable(rt.create_threadpool_with_lanes(&config).map(drop));
    let plain = |default_priority| ThreadpoolConfig::default().default_priority(default_priority);
    unmappable(rt.create_threadpool(&plain(20)).map(drop));
    let current = rt.current().unwrap();
    unmappable(current.set_priority(20));
    assert_eq!(current.the_priority().unwrap_err().kind(), Kind::Initialize, "no priority was set");
    let pool = rt.create_threadpool(&plain(3)).unwrap();
    let object = object(&orb, "propagated", &model(CLIENT, 3, Some(pool)));
    let mut client = RawClient::for_object(&object);
    assert_eq!(client.who(Some(20)), raised(Kind::DataConversion, OMG | 2));
    assert_eq!((client.who(Some(19)).who().native, client.who(None).who().native), (20, 4));
}

#[test]
fn mutex_is_found_by_its_name_within_its_orb() {
    let (orb, other) = (fair_orb(), fair_orb());
    let (rt, others) = (orb.real_time(), other.real_time());
    assert_eq!(rt.open_named_mutex("log").unwrap(), None);
    let (mutex, made) = rt.create_named_mutex("log").unwrap();
    let (again, made_again) = rt.create_named_mutex("log").unwrap();
    assert_eq!((made, made_again), (true, false));
    assert!(again == mutex && rt.open_named_mutex("log").unwrap() == Some(mutex.clone()));
    assert_eq!(others.open_named_mutex("log").unwrap(), None);
    assert!(rt.create_named_mutex("other").unwrap().0 != mutex);
    let held = mutex.lock().unwrap();
    assert_eq!(again.lock().map(drop).unwrap_err().kind(), Kind::BadInvOrder);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(again.try_lock(Duration::ZERO).unwrap().is_none()));
    });
    rt.destroy_mutex(&again).unwrap();
    assert_eq!(rt.open_named_mutex("log").unwrap(), None);
    drop(held);
    assert!(mutex.try_lock(Duration::ZERO).unwrap().is_some(), "an existing handle no longer locks the mutex");
    assert!(rt.create_named_mutex("log").unwrap().1);
}

struct Deep;

impl Skeleton for Deep {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Deep:1.0"]
    }

    fn dispatch(&self, _: &[u8], _: &mut ServerCall<'_>) -> Result<(), SystemException> {
        fn go(levels: usize) -> u64 {
            let octets = std::hint::black_box([levels as u8; 1 << 16]);
            if levels == 0 { 0 } else { go(levels - 1) + u64::from(octets[levels]) }
        }
        assert!(go(100) > 0);
        Ok(())
    }
}

#[test]
fn threads_have_the_stack_size_of_their_pool() {
    let orb = fair_orb();
    let lanes = vec![LaneConfig::default().priority(5).dynamic_threads(1)];
    let config = LanesConfig::default().thread_stack_size(16 << 20).lanes(lanes);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
    let object = poa(&orb, "deep", &model(CLIENT, 5, Some(pool))).activate(&Servant::new(Deep)).unwrap();
    let mut client = RawClient::for_object(&object);
    client.send_at_priority("go", 5, None);
    assert_eq!(client.receive_void_reply(), None);
}

#[test]
fn invalid_priority_contexts_are_refused_and_valid_ones_returned_in_the_reply() {
    let orb = fair_orb();
    let object = object(&orb, "contexts", &model(CLIENT, 7, None));
    let mut client = RawClient::for_object(&object);
    let mut call = |context: Option<&[u8]>| {
        client.send("who", context, None);
        let (_, echo, answer) = client.receive_reply();
        (echo, answer)
    };
    for malformed in [&[][..], &[1], &[1, 0], &[1, 0, 5]] {
        let (echo, answer) = call(Some(malformed));
        assert!(matches!(answer, RawReply::Raised(Kind::Marshal, _)), "{malformed:?}: {answer:?}");
        assert_eq!(echo, None);
    }
    assert_eq!(call(Some(&encode_priority_context(-2))).1, raised(Kind::BadParam, 0));
    // The first octet marks the priority as big-endian.
    let (echo, answer) = call(Some(&[0, 0, 0x03, 0xe8]));
    assert_eq!((echo, answer.who().priority), (Some(1000), 1000));
    let (echo, answer) = call(Some(&encode_priority_context(-1)));
    assert_eq!((echo, answer.who().priority), (Some(-1), 7));
    assert_eq!(call(None).0, None);
}

#[test]
fn priority_that_a_servant_sets_in_rtcurrent_ends_with_its_upcall() {
    let orb = fair_orb();
    let current = orb.real_time().current().unwrap();
    assert_eq!(current.the_priority().unwrap_err().kind(), Kind::Initialize);
    assert_eq!(current.set_priority(-1).unwrap_err().kind(), Kind::BadParam);
    let poa = poa(&orb, "setting", &model(CLIENT, 7, None));
    let object = poa.activate(&Reporter::with_priority(&orb, Some(99)).servant()).unwrap();
    assert_eq!(RawClient::for_object(&object).who(Some(50)).who().priority, 99);
    let plain = orb.root_poa().activate(&Reporter::with_priority(&orb, Some(98)).servant()).unwrap();
    let mut client = RawClient::for_object(&plain);
    assert_eq!(client.who(None).who().priority, 98);
    let unset = orb.root_poa().activate(&Reporter::new(&orb).servant()).unwrap();
    for _ in 0..8 {
        assert_eq!(RawClient::for_object(&unset).who(None).who().priority, -1);
    }
    current.set_priority(123).unwrap();
    assert_eq!(call_who(&object).unwrap().priority, 99);
    assert_eq!(current.the_priority().unwrap(), 123);
}

#[test]
fn calls_within_the_process_run_on_a_thread_of_the_objects_pool() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10, 20]);
    let declared = poa(&orb, "declared", &model(SERVER, 20, Some(pool)));
    let object = declared.activate(&Reporter::new(&orb).servant()).unwrap();
    let who = call_who(&object).unwrap();
    assert_eq!((who.pool, who.lane, who.priority, who.connection), (pool.number(), 1, 20, 0));
    let again = orb.string_to_object(&object.to_string()).unwrap().unwrap();
    assert_eq!(call_who(&again).unwrap().lane, 1);
    // The caller is a servant of another pool, and then a servant of the object's own lane, whose
    // only thread serves the call.
    let other = lanes(&orb, &[5]);
    for (name, policies, elsewhere) in
        [("other", model(SERVER, 5, Some(other)), true), ("same", model(SERVER, 20, Some(pool)), false)]
    {
        let reporter = Reporter::new(&orb);
        let from = poa(&orb, name, &policies).activate(&reporter.servant()).unwrap();
        reporter.pass_target.set(object.clone()).unwrap();
        let mut client = RawClient::for_object(&from);
        client.send("pass", None, None);
        let who = client.receive_reply().2.who();
        assert_eq!((who.pool, who.lane, who.priority), (pool.number(), 1, 20), "{name}");
        assert_eq!(who.connection == 0, elsewhere, "{name}: a call in the same lane is still part of the request");
    }
}

#[test]
fn objects_without_a_pool_do_not_run_in_lanes() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10]);
    let laned = object(&orb, "laned", &model(CLIENT, 10, Some(pool)));
    let plain = orb.root_poa().activate(&Reporter::new(&orb).servant()).unwrap();
    let who = RawClient::connect(&plain, decode_reference(&laned).lanes[0].0).who(Some(10)).who();
    assert_eq!((who.pool, who.handed_over), (0, true));
}

#[test]
fn pools_are_created_and_destroyed_under_load() {
    let orb = fair_orb();
    for round in 0..10 {
        let pool = lanes(&orb, &[10, 20]);
        let poa = poa(&orb, "laned", &model(CLIENT, 10, Some(pool)));
        let object = poa.activate(&Reporter::new(&orb).servant()).unwrap();
        let rt = orb.real_time();
        let mut clients: Vec<_> =
            decode_reference(&object).lanes.iter().map(|lane| RawClient::connect(&object, lane.0)).collect();
        for (client, priority) in clients.iter_mut().zip([10, 20]) {
            // The reply shows that the server has accepted the connection; closing the listener
            // would reset it otherwise.
            let _ = client.who(Some(priority));
            for _ in 0..20 {
                client.send_at_priority("spin", priority, Some(200));
            }
        }
        let InvalidThreadpool::System(in_use) = rt.destroy_threadpool(pool).unwrap_err() else { panic!() };
        assert_eq!(in_use.kind(), Kind::BadInvOrder);
        let clients: Vec<_> =
            clients.into_iter().map(|client| std::thread::spawn(|| client.read_until_close())).collect();
        poa.destroy(true, true).unwrap();
        // A thread that has just sent a reply may still be in the POA, so the pool may not be free
        // yet.
        wait_until(|| rt.destroy_threadpool(pool).is_ok());
        assert_eq!(rt.destroy_threadpool(pool), Err(InvalidThreadpool::Unknown), "round {round}");
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

#[test]
fn persistent_objects_keep_their_lanes_endpoints() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let policies =
        PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
    let start = || {
        let orb = fair_orb();
        let listen = vec![format!("tcp:127.0.0.1:{port}")];
        let mut lane = LaneConfig::default().priority(10);
        lane.listen = listen;
        let lanes = [lane];
        let config = LanesConfig::default().lanes(lanes);
        let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
        let root = orb.root_poa();
        let poa = root.create_rt_poa("kept", Some(root.manager()), policies, &model(CLIENT, 10, Some(pool))).unwrap();
        poa.activate_object_with_id(&"it".into(), &Reporter::new(&orb).servant()).unwrap();
        let object = poa.id_to_reference(&"it".into()).unwrap();
        (orb, object)
    };
    let (orb, object) = start();
    let text = object.to_string();
    assert_eq!(RawClient::for_object(&object).who(Some(10)).who().priority, 10);
    orb.shutdown(true).unwrap();
    drop(orb);
    let (orb, again) = start();
    assert_eq!(again.to_string(), text);
    assert_eq!(RawClient::for_object(&again).who(Some(10)).who().priority, 10);
    assert_eq!(call_who(&orb.string_to_object(&text).unwrap().unwrap()).unwrap().connection, 0);
}

#[test]
fn policies_of_the_orb_are_inherited() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10]);
    orb.real_time().set_policies(model(SERVER, 10, Some(pool))).unwrap();
    let root = orb.root_poa();
    let poa = root.create_poa("heir", Some(root.manager()), PoaPolicies::default()).unwrap();
    assert_eq!(poa.rt_policies(), Some(&model(SERVER, 10, Some(pool))));
    let own = root.create_rt_poa("own", None, PoaPolicies::default(), &model(CLIENT, 5, None)).unwrap();
    assert_eq!(own.rt_policies().unwrap().priority_model, Some((CLIENT, 5)));
}

#[test]
fn threads_run_at_the_native_priority_of_their_lane() {
    let orb = fifo_orb();
    let pool = lanes(&orb, &[0, 16384, 32767]);
    let object = object(&orb, "lanes", &model(CLIENT, 0, Some(pool)));
    for (priority, native) in [(0, 1), (16384, 50), (32767, 99)] {
        let who = RawClient::for_object(&object).who(Some(priority)).who();
        assert_eq!((who.native, who.priority), (native, priority));
    }
    assert_eq!(orb.event_counts().thread_schedulings_refused, 0);
}

#[test]
fn thread_without_a_lane_takes_the_priority_of_a_request_until_its_end() {
    let orb = fifo_orb();
    let config = ThreadpoolConfig::default().default_priority(335);
    let pool = orb.real_time().create_threadpool(&config).unwrap();
    let propagated = object(&orb, "propagated", &model(CLIENT, 335, Some(pool)));
    let mut client = RawClient::for_object(&propagated);
    let first = client.who(None).who();
    assert_eq!((first.native, first.priority), (2, 335));
    for (priority, native) in [(32767, 99), (0, 1), (16384, 50), (335, 2)] {
        let who = client.who(Some(priority)).who();
        assert_eq!((who.native, who.priority, who.tid), (native, priority, first.tid));
    }
    let no_model = RtPolicies { threadpool: Some(pool), ..RtPolicies::default() };
    let no_model = object(&orb, "no model", &no_model);
    let who = RawClient::for_object(&no_model).who(Some(30000)).who();
    assert_eq!((who.native, who.priority, who.tid), (2, 335, first.tid));
    let declared = poa(&orb, "declared", &model(SERVER, 16384, Some(pool)));
    let id = declared.activate_object_with_priority(&Reporter::new(&orb).servant(), 24743).unwrap();
    let who = RawClient::for_object(&declared.id_to_reference(&id).unwrap()).who(Some(1)).who();
    assert_eq!((who.native, who.priority, who.tid), (75, 24743, first.tid));
}

#[test]
fn a_thread_of_the_application_gets_the_priority_that_it_sets() {
    let orb = fifo_orb();
    std::thread::spawn(move || {
        use corelane_sys::thread::{Scheduling, scheduling};
        let current = orb.real_time().current().unwrap();
        current.set_priority(16384).unwrap();
        assert_eq!(scheduling(None).unwrap(), Scheduling::Fifo(50));
        current.set_priority(0).unwrap();
        assert_eq!(scheduling(None).unwrap(), Scheduling::Fifo(1));
    })
    .join()
    .unwrap();
}

#[test]
fn band_is_bound_only_if_it_contains_a_lane() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[10, 20]);
    let bind = |object: &ObjectRef, low: i16, high: i16| {
        let mut client = RawClient::for_object(object);
        client.send_with_context(
            "_bind_priority_band",
            Some((context_id::RT_CORBA_PRIORITY_RANGE, &encode_priority_range_context(low, high)[..])),
            None,
        );
        client.receive_void_reply()
    };
    let laned = object(&orb, "laned", &model(CLIENT, 10, Some(pool)));
    assert_eq!((bind(&laned, 5, 15), bind(&laned, 0, 32767)), (None, None));
    assert_eq!(bind(&laned, 11, 19), Some((Kind::InvPolicy, OMG | 1)));
    assert_eq!((bind(&laned, 9, 5), bind(&laned, -1, 5)), (Some((Kind::BadParam, 0)), Some((Kind::BadParam, 0))));
    let banded = RtPolicies { priority_bands: Some(vec![(5, 15), (16, 30)]), ..model(CLIENT, 10, None) };
    let banded = object(&orb, "banded", &banded);
    assert_eq!((bind(&banded, 5, 15), bind(&banded, 6, 7)), (None, None));
    assert_eq!(bind(&banded, 10, 20), Some((Kind::InvPolicy, OMG | 1)));
    let plain = orb.root_poa().activate(&Reporter::new(&orb).servant()).unwrap();
    assert_eq!(bind(&plain, 5, 15), Some((Kind::BadOperation, OMG | 2)));
}

#[test]
fn connections_of_a_lane_get_the_code_point_of_its_priority() {
    #[derive(Debug)]
    struct Asked(Mutex<Vec<i16>>);
    impl NetworkPriorityMapping for Asked {
        fn to_dscp(&self, priority: Priority) -> Option<u8> {
            self.0.lock().push(priority.get());
            // Code points have 6 bits, so the ORB refuses 64.
            Some(if priority.get() == 20 { 64 } else { 46 })
        }
    }
    let asked = Arc::new(Asked(Mutex::new("asked", LockScope::Orb, Vec::new())));
    let config = RtConfig::default().scheduling(SchedulingClass::Fair).network_mapping(Some(Arc::clone(&asked) as _));
    let refused = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&refused);
    let orb = Orb::builder()
        .real_time(config)
        .on_event(move |event| {
            if let Event::DscpRefused { dscp: 64, .. } = event {
                told.fetch_add(1, Ordering::SeqCst);
            }
        })
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    let object = object(&orb, "marked", &model(CLIENT, 10, Some(lanes(&orb, &[10, 20]))));
    orb.root_poa().manager().activate().unwrap();
    for (port, priority) in decode_reference(&object).lanes {
        assert_eq!(RawClient::connect(&object, port).who(Some(priority)).who().priority, priority);
    }
    let mut asked = asked.0.lock().clone();
    asked.sort_unstable();
    assert_eq!((asked, refused.load(Ordering::SeqCst)), (vec![10, 20], 1));
}

struct Endless;

impl Skeleton for Endless {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Endless:1.0"]
    }

    fn dispatch(&self, _operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        call.reply().write_bytes(&vec![0; 32 << 20]);
        Ok(())
    }
}

/// The thread of a connection waits for a peer that does not read, and a lane runs a handed-over
/// request of this connection. The lane must answer the request and serve other connections.
#[test]
fn peer_that_does_not_read_does_not_delay_another_lane_that_answers_it() {
    let config = RtConfig::default().scheduling(SchedulingClass::Fair);
    let dispatch = Dispatch::ThreadPerConnection { max_threads: 4 };
    let output_timeout = Duration::from_secs(600);
    let orb = Orb::builder()
        .real_time(config)
        .pool(
            PoolConfig::default()
                .dispatch(dispatch)
                .connection_limits(ConnectionLimits::default().write_timeout(output_timeout)),
        )
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    orb.root_poa().manager().activate().unwrap();
    let pool = lanes(&orb, &[10]);
    let reporter = Reporter::new(&orb);
    let laned = poa(&orb, "lanes", &model(CLIENT, 10, Some(pool))).activate(&reporter.servant()).unwrap();
    let endless = orb.root_poa().activate(&Servant::new(Endless)).unwrap();
    let mut peer = RawClient::for_object(&endless);
    peer.set_target(&laned);
    peer.send_at_priority("wait", 10, None);
    reporter.wait_for_held_threads(1);
    peer.set_target(&endless);
    peer.send("fetch", None, None);
    peer.wait_for_data();
    reporter.release();
    let mut other = RawClient::for_object(&laned);
    assert_eq!(other.who(Some(10)).who().priority, 10);
}

#[test]
fn lane_can_reserve_processor_time_instead_of_a_priority() {
    let orb = fifo_orb();
    let milliseconds = Duration::from_millis;
    let reservation = Reservation { runtime: milliseconds(2), deadline: milliseconds(20), period: milliseconds(20) };
    let reserved = LaneConfig::default().priority(10).reservation(Some(reservation));
    let make = |lane: &LaneConfig, allow_borrowing| {
        let lanes = vec![lane.clone(), LaneConfig::default().priority(16384)];
        orb.real_time()
            .create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes).allow_borrowing(allow_borrowing))
    };
    let late = Reservation { deadline: milliseconds(1), ..reservation };
    for (lane, borrowing) in [
        (reserved.clone().reservation(Some(late)), false),
        (reserved.clone().cores([0]), false),
        (reserved.clone(), true),
    ] {
        assert_eq!(make(&lane, borrowing).unwrap_err().kind(), Kind::BadParam);
    }
    let pool = make(&reserved, false).unwrap();
    let object = object(&orb, "reserved", &model(CLIENT, 10, Some(pool)));
    let mut client = RawClient::for_object(&object);
    let low = client.who(Some(10)).who();
    let scheduling = |tid| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().map(str::to_owned).collect();
        fields[38].parse::<i32>().unwrap()
    };
    let permitted = corelane::rt::check_guarantees()
        .iter()
        .any(|known| known.name == "deadline-class" && known.status == GuaranteeStatus::Met);
    // The scheduling policy is SCHED_DEADLINE (6) if the kernel permits it, and otherwise
    // SCHED_OTHER (0).
    assert_eq!((scheduling(low.tid), low.priority), (if permitted { 6 } else { 0 }, 10));
    assert_eq!(client.who(Some(16384)).who().native, 50);
}
