//! The client's side of Real-time CORBA: the lane and connection of a call, and its refusal.

use std::sync::Arc;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    LaneConfig, LanesConfig, Priority, PriorityModel, PriorityTransform, Protocol, RtClientPolicies, RtConfig,
    RtPolicies, SchedulingClass, TcpProperties, ThreadpoolConfig, UnixProperties, with_client_policies,
};
use corelane::{ObjectRef, Orb, SystemExceptionKind as Kind};
use corelane_sys::thread::{Scheduling, ThreadBuilder, scheduling};
use corelane_tests::real_time::{RawClient, RawReply, Reporter, UpcallReport, call_who, fair_orb, fifo_orb};
use corelane_wire::exception::minor::OMG;
use corelane_wire::exception::minor::inv_policy::IRRECONCILABLE;

const LANES: [i16; 3] = [10, 20, 30];

fn served(orb: &Orb, policies: RtPolicies) -> String {
    let root = orb.root_poa();
    let poa = root.create_rt_poa("lanes", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    poa.activate(&Reporter::new(orb).servant()).unwrap().to_string()
}

fn lanes(model: PriorityModel, bands: Option<Vec<(i16, i16)>>) -> (Orb, String) {
    let orb = fair_orb();
    let lanes = LANES.map(|priority| LaneConfig::default().priority(priority));
    let config = LanesConfig::default().lanes(lanes);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
    let policies = RtPolicies {
        priority_model: Some((model, 20)),
        threadpool: Some(pool),
        priority_bands: bands,
        ..RtPolicies::default()
    };
    let ior = served(&orb, policies);
    (orb, ior)
}

fn reference(client: &Orb, ior: &str) -> ObjectRef {
    client.string_to_object(ior).unwrap().unwrap()
}

fn ask_at(client: &Orb, object: &ObjectRef, priority: i16) -> Result<UpcallReport, (Kind, u32)> {
    client.real_time().current().unwrap().set_priority(priority).unwrap();
    call_who(object).map_err(|exception| (exception.kind(), exception.minor()))
}

#[test]
fn call_goes_directly_to_the_lane_of_its_priority() {
    let (server, ior) = lanes(PriorityModel::ClientPropagated, None);
    let client = fair_orb();
    let object = reference(&client, &ior);
    for _ in 0..3 {
        for priority in LANES {
            let who = ask_at(&client, &object, priority).unwrap();
            assert_eq!((who.priority, who.handed_over), (priority, false));
            assert!(who.thread.starts_with(&format!("rt/p{priority}/")), "{}", who.thread);
        }
    }
    assert_eq!(server.event_counts().requests_handed_over, 0);
    assert_eq!(ask_at(&client, &object, 15), Err((Kind::Transient, OMG | 2)));
    assert_eq!(object.validate_connection().unwrap_err().kind(), Kind::Transient);
}

#[test]
fn in_a_band_of_several_lanes_a_call_goes_to_the_lane_of_its_priority() {
    let (server, ior) = lanes(PriorityModel::ClientPropagated, None);
    let client = fair_orb();
    let policies = RtClientPolicies { priority_bands: Some(vec![(0, 32767)]), ..RtClientPolicies::default() };
    let object = reference(&client, &ior).with_rt_policies(&policies).unwrap();
    for priority in LANES {
        let who = ask_at(&client, &object, priority).unwrap();
        assert_eq!((who.priority, who.handed_over), (priority, false));
    }
    assert_eq!(server.event_counts().requests_handed_over, 0);
    assert_eq!(ask_at(&client, &object, 25).unwrap().lane, 0);
}

#[test]
fn policies_of_the_thread_override_the_orbs_but_not_the_references() {
    let (_server, ior) = lanes(PriorityModel::ClientPropagated, None);
    let client = fair_orb();
    let object = reference(&client, &ior);
    let bands = |low, high| RtClientPolicies { priority_bands: Some(vec![(low, high)]), ..RtClientPolicies::default() };
    let own = object.with_rt_policies(&bands(0, 15)).unwrap();
    let refused = Err((Kind::InvPolicy, IRRECONCILABLE));
    with_client_policies(&bands(15, 40), || {
        assert_eq!(ask_at(&client, &object, 10), refused);
        assert_eq!(ask_at(&client, &object, 20).unwrap().priority, 20);
        assert_eq!(ask_at(&client, &own, 10).unwrap().priority, 10);
        assert_eq!(ask_at(&client, &own, 20), refused);
        assert!(object.send_deferred("who", |_| Ok(())).unwrap().reply().is_ok());
    })
    .unwrap();
    assert_eq!(ask_at(&client, &object, 10).unwrap().priority, 10);
    let connection = || ask_at(&client, &object, 10).unwrap().connection;
    let shared = connection();
    let private = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
    let (first, second) = with_client_policies(&private, || (connection(), connection())).unwrap();
    assert!(first == second && first != shared);
    assert_eq!(connection(), shared);
    assert_eq!(with_client_policies(&bands(3, 2), || ()).unwrap_err().kind(), Kind::BadParam);
}

#[test]
fn an_object_without_lanes_is_reached_by_any_of_its_addresses_at_any_priority() {
    let config = RtConfig::default().scheduling(SchedulingClass::Fair);
    let builder = Orb::builder().real_time(config).listen("tcp:127.0.0.1:0").listen("tcp:127.0.0.1:0");
    let server = builder.build().unwrap();
    server.root_poa().manager().activate().unwrap();
    let policies = RtPolicies { priority_model: Some((PriorityModel::ClientPropagated, 7)), ..RtPolicies::default() };
    let client = fair_orb();
    let object = reference(&client, &served(&server, policies));
    assert_eq!(ask_at(&client, &object, 12).unwrap().priority, 12);
}

#[test]
fn client_without_a_priority_is_served_at_the_servers_priority() {
    let (_server, ior) = lanes(PriorityModel::ClientPropagated, None);
    let client = fair_orb();
    assert_eq!(call_who(&reference(&client, &ior)).unwrap().priority, 20);
}

#[test]
fn server_declared_priority_does_not_depend_on_the_client() {
    let (server, ior) = lanes(PriorityModel::ServerDeclared, None);
    let client = fair_orb();
    let object = reference(&client, &ior);
    for priority in [0, 10, 32767] {
        assert_eq!(ask_at(&client, &object, priority).unwrap().priority, 20);
    }
    assert_eq!(server.event_counts().requests_handed_over, 0);
}

#[test]
fn calls_share_a_connection_only_within_one_band() {
    let (_server, ior) = lanes(PriorityModel::ClientPropagated, None);
    let client = fair_orb();
    let policies = RtClientPolicies { priority_bands: Some(vec![(5, 14), (15, 40)]), ..RtClientPolicies::default() };
    let object = reference(&client, &ior).with_rt_policies(&policies).unwrap();
    let connection = |priority| ask_at(&client, &object, priority).map(|who| who.connection);
    let (low, high) = (connection(10).unwrap(), connection(20).unwrap());
    assert_ne!(low, high);
    assert_eq!((connection(10), connection(20)), (Ok(low), Ok(high)));
    assert_eq!(connection(41), Err((Kind::InvPolicy, IRRECONCILABLE)));
}

#[test]
fn bands_that_both_sides_set_and_bands_without_a_model_are_refused() {
    let (_server, ior) = lanes(PriorityModel::ClientPropagated, Some(vec![(5, 14), (15, 24), (25, 40)]));
    let client = fair_orb();
    let object = reference(&client, &ior);
    assert_eq!(ask_at(&client, &object, 11).unwrap().lane, 0);
    let policies = RtClientPolicies { priority_bands: Some(vec![(0, 100)]), ..RtClientPolicies::default() };
    let both = object.with_rt_policies(&policies).unwrap();
    assert_eq!(ask_at(&client, &both, 11), Err((Kind::InvPolicy, IRRECONCILABLE)));
    let plain = fair_orb();
    let ior = plain.root_poa().activate(&Reporter::new(&plain).servant()).unwrap().to_string();
    let banded = reference(&client, &ior).with_rt_policies(&policies).unwrap();
    assert_eq!(ask_at(&client, &banded, 11), Err((Kind::InvPolicy, IRRECONCILABLE)));
    for bands in [vec![], vec![(3, 2)], vec![(-1, 2)], vec![(0, 5), (5, 9)]] {
        let wrong = RtClientPolicies { priority_bands: Some(bands), ..RtClientPolicies::default() };
        assert_eq!(object.with_rt_policies(&wrong).unwrap_err().kind(), Kind::BadParam);
    }
}

#[test]
fn call_uses_the_connection_of_an_earlier_explicit_binding() {
    let (server, ior) = lanes(PriorityModel::ClientPropagated, Some(vec![(5, 14), (15, 40)]));
    let client = fair_orb();
    client.real_time().current().unwrap().set_priority(12).unwrap();
    let object = reference(&client, &ior);
    object.validate_connection().unwrap();
    assert_eq!(server.event_counts().connections_opened, 1);
    assert_eq!(call_who(&object).unwrap().priority, 10);
    assert_eq!(server.event_counts().connections_opened, 1);
}

#[test]
fn references_share_connections_only_within_the_same_band() {
    let (_server, ior) = lanes(PriorityModel::ClientPropagated, None);
    let client = fair_orb();
    let banded = |bands: &[(i16, i16)]| {
        let policies = RtClientPolicies { priority_bands: Some(bands.to_vec()), ..RtClientPolicies::default() };
        reference(&client, &ior).with_rt_policies(&policies).unwrap()
    };
    let connection = |object: &ObjectRef| ask_at(&client, object, 10).unwrap().connection;
    let own = connection(&banded(&[(5, 14)]));
    assert_eq!(connection(&banded(&[(15, 40), (5, 14)])), own);
    assert_ne!(connection(&banded(&[(5, 13)])), own);
}

#[test]
fn policies_of_the_orb_apply_to_references_without_their_own() {
    let (_server, ior) = lanes(PriorityModel::ClientPropagated, None);
    let orb = |client| {
        let config = RtConfig::default().scheduling(SchedulingClass::Fair).client_policies(client);
        Orb::builder().real_time(config).build()
    };
    let bands =
        |bands: &[(i16, i16)]| RtClientPolicies { priority_bands: Some(bands.to_vec()), ..RtClientPolicies::default() };
    let client = orb(bands(&[(5, 14), (15, 40)])).unwrap();
    let object = reference(&client, &ior);
    assert_eq!(ask_at(&client, &object, 12).unwrap().lane, 0);
    let own = object.with_rt_policies(&bands(&[(20, 30)])).unwrap();
    assert_eq!(ask_at(&client, &own, 12), Err((Kind::InvPolicy, IRRECONCILABLE)));
    let private = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
    let private = object.with_rt_policies(&private).unwrap();
    let (own, others) = (ask_at(&client, &private, 12).unwrap(), ask_at(&client, &object, 12).unwrap());
    assert!(own.lane == 0 && own.connection != others.connection);
    assert!(orb(bands(&[(9, 3)])).is_err());
}

#[derive(Debug)]
struct Upwards;

impl PriorityTransform for Upwards {
    fn inbound(&self, priority: Priority, _object_id: &[u8]) -> Option<Priority> {
        Some(priority)
    }

    fn outbound(&self, priority: Priority, object_id: &[u8]) -> Option<Priority> {
        assert!(!object_id.is_empty());
        Priority::new(priority.get() + 10).filter(|raised| raised.get() <= 30)
    }
}

#[test]
fn calls_by_servants_are_sent_at_the_transformed_priority() {
    let (_far, ior) = lanes(PriorityModel::ClientPropagated, None);
    let transform = Some(Arc::new(Upwards) as _);
    let config = RtConfig::default().scheduling(SchedulingClass::Fair).priority_transform(transform);
    let near = Orb::builder().real_time(config).listen("tcp:127.0.0.1:0").build().unwrap();
    near.root_poa().manager().activate().unwrap();
    let policies = RtPolicies { priority_model: Some((PriorityModel::ClientPropagated, 7)), ..RtPolicies::default() };
    let reporter = Reporter::new(&near);
    let root = near.root_poa();
    let poa = root.create_rt_poa("near", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let object = poa.activate(&reporter.servant()).unwrap();
    reporter.pass_target.set(reference(&near, &ior)).unwrap();
    let mut client = RawClient::for_object(&object);
    let mut pass = |priority| {
        client.send_at_priority("pass", priority, None);
        client.receive_reply().2
    };
    assert_eq!((pass(10).who().priority, pass(20).who().priority), (20, 30));
    assert_eq!(pass(30), RawReply::Raised(Kind::DataConversion, OMG | 2));
    assert_eq!(ask_at(&near, reporter.pass_target.get().unwrap(), 10).unwrap().priority, 10);
}

#[test]
fn preconnect_makes_connections_before_the_first_call() {
    let (server, ior) = lanes(PriorityModel::ClientPropagated, Some(vec![(5, 14), (15, 24), (25, 40)]));
    let config = || RtConfig::default().scheduling(SchedulingClass::Fair);
    let builder = || Orb::builder().real_time(config()).max_connections_per_server(3);
    let client = builder().preconnect(&ior, [12, 20], 2).build().unwrap();
    assert_eq!(server.event_counts().connections_opened, 4);
    let object = reference(&client, &ior);
    for priority in [12, 20, 5, 24] {
        ask_at(&client, &object, priority).unwrap();
    }
    object.preconnect(&[12], 3).unwrap();
    assert_eq!(server.event_counts().connections_opened, 5);
    let refused = |priorities: &[i16], each| object.preconnect(priorities, each).unwrap_err().kind();
    assert_eq!(
        (refused(&[12], 4), refused(&[50], 1), refused(&[-1], 1)),
        (Kind::NoResources, Kind::InvPolicy, Kind::BadParam)
    );
    drop(server);
    assert!(builder().preconnect(&ior, [12], 1).build().is_err());
}

#[test]
fn private_connection_belongs_to_one_reference() {
    let orb = fair_orb();
    let pool = orb.real_time().create_threadpool(&ThreadpoolConfig::default().static_threads(2)).unwrap();
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 0)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let ior = served(&orb, policies);
    let client = fair_orb();
    let shared = [reference(&client, &ior), reference(&client, &ior)];
    let policies = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
    let private = shared.clone().map(|object| object.with_rt_policies(&policies).unwrap());
    let connection = |object: &ObjectRef| call_who(object).unwrap().connection;
    assert_eq!(connection(&shared[0]), connection(&shared[1]));
    let own = [connection(&private[0]), connection(&private[1])];
    assert_ne!(own[0], own[1]);
    assert!(!own.contains(&connection(&shared[0])));
    assert_eq!(connection(&private[0].clone()), own[0]);
    let opened = orb.event_counts().connections_opened;
    drop(private);
    corelane_tests::real_time::wait_until(|| orb.event_counts().connections_closed >= 2);
    assert_eq!(orb.event_counts().connections_opened, opened);
}

#[test]
fn protocols_that_the_client_does_not_ask_for_are_not_used() {
    let (_server, ior) = lanes(PriorityModel::ClientPropagated, None);
    let client = fair_orb();
    let object = reference(&client, &ior);
    let with = |protocol| {
        let policies = RtClientPolicies { client_protocols: vec![protocol], ..RtClientPolicies::default() };
        object.with_rt_policies(&policies).unwrap()
    };
    assert_eq!(ask_at(&client, &with(Protocol::Tcp(TcpProperties::default())), 10).unwrap().priority, 10);
    let refused = ask_at(&client, &with(Protocol::Unix(UnixProperties::default())), 10).unwrap_err();
    assert_eq!(refused, (Kind::InvPolicy, IRRECONCILABLE));
}

/// The call runs in the lane of the band that contains the CORBA priority of the thread's native
/// priority. Without such a band it runs at the server's priority.
#[test]
fn thread_without_a_corba_priority_is_not_refused() {
    let server = fifo_orb();
    let linear = RtConfig::default().priority_mapping;
    let implied = linear.to_corba(45).unwrap().get();
    let lanes = [1000, 15000, 30000].map(|priority| LaneConfig::default().priority(priority));
    let config = LanesConfig::default().lanes(lanes);
    let pool = server.real_time().create_threadpool_with_lanes(&config).unwrap();
    let object_of = |name: &str, bands: Option<Vec<(i16, i16)>>| {
        let policies = RtPolicies {
            priority_model: Some((PriorityModel::ClientPropagated, 1000)),
            threadpool: Some(pool),
            priority_bands: bands,
            ..RtPolicies::default()
        };
        let root = server.root_poa();
        let poa = root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
        poa.activate(&Reporter::new(&server).servant()).unwrap()
    };
    let exact = object_of("exact", None);
    let banded = object_of("banded", Some(vec![(0, 10_000), (10_001, 20_000), (20_001, 32_767)]));
    let apart = object_of("apart", Some(vec![(0, 10_000), (20_001, 32_767), (14_990, 15_010)]));
    let client = Orb::builder().build().unwrap();
    let current = client.real_time().current().unwrap();
    // Collocated calls use the priority in the server's ORB.
    let servers = server.real_time().current().unwrap();
    let far = |object: &ObjectRef| client.string_to_object(&object.to_string()).unwrap().unwrap();
    let (far, near) = ([&exact, &banded, &apart].map(far), [&exact, &banded, &apart].map(ObjectRef::clone));
    let priorities =
        |objects: &[ObjectRef; 3]| objects.each_ref().map(|object| call_who(object).map(|who| who.priority));
    ThreadBuilder::new()
        .scheduling(Scheduling::Other)
        .spawn(move || {
            current.set_priority(15_000).unwrap();
            assert_eq!(priorities(&far), [Ok(15_000), Ok(15_000), Ok(15_000)]);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // No lane has the CORBA priority of the inherited scheduling.
                    assert_eq!(scheduling(None).unwrap(), Scheduling::Fifo(45));
                    assert!(current.the_priority().is_err() && implied != 15_000);
                    assert_eq!(priorities(&far), [Ok(1000), Ok(15_000), Ok(1000)], "from another process's view");
                    assert_eq!(priorities(&near), [Ok(1000), Ok(15_000), Ok(1000)], "within the process");
                });
            });
            current.set_priority(14_000).unwrap();
            servers.set_priority(14_000).unwrap();
            for object in [&far[0], &near[0]] {
                let refused = call_who(object).unwrap_err();
                assert_eq!((refused.kind(), refused.minor()), (Kind::Transient, OMG | 2));
                let refused = refused.to_string();
                assert!(refused.contains("14000") && refused.contains("1000, 15000, 30000"), "{refused}");
            }
        })
        .unwrap()
        .join()
        .unwrap();
}
