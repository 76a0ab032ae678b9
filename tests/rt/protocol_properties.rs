//! The effects of ServerProtocol and ClientProtocol policies and of network priorities on sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use corelane::poa::{PoaError, PoaPolicies};
use corelane::rt::{
    DscpTable, LaneConfig, LanesConfig, PriorityModel, Protocol, RtClientPolicies, RtConfig, RtPolicies,
    SchedulingClass, TcpProperties, ThreadpoolConfig, UnixProperties,
};
use corelane::{ObjectRef, Orb, SystemExceptionKind as Kind};
use corelane_net::{TcpTransport, Transport, Transports, UnixTransport};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::socket;
use corelane_tests::real_time::{RawClient, Reporter, call_who};
use corelane_tests::stream_wrapper::wrap_streams;
use corelane_wire::exception::minor::inv_policy::IRRECONCILABLE;
use corelane_wire::ior::profile_tag;

fn watched(listen: &[String]) -> (Orb, Arc<Mutex<Vec<OwnedFd>>>) {
    let seen = Arc::new(Mutex::new("descriptors", LockScope::Orb, Vec::new()));
    let spy = |inner: Arc<dyn Transport>| {
        let seen = Arc::clone(&seen);
        wrap_streams(inner, move |stream, _| {
            seen.lock()
                .push(stream.readiness_descriptor().expect("a descriptor").try_clone_to_owned().expect("a copy of it"));
            stream
        })
    };
    let table = DscpTable::new([(0, 8), (100, 26), (200, 46)]).unwrap();
    let config = RtConfig::default().scheduling(SchedulingClass::Fair).network_mapping(Some(Arc::new(table)));
    let mut builder = Orb::builder()
        .real_time(config)
        .transports(Transports::new(vec![spy(Arc::new(TcpTransport::new())), spy(Arc::new(UnixTransport))]));
    for address in listen {
        builder = builder.listen(address);
    }
    let orb = builder.build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    (orb, seen)
}

fn object(orb: &Orb, name: &str, policies: &RtPolicies) -> ObjectRef {
    let root = orb.root_poa();
    let poa = root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), policies).unwrap();
    poa.activate(&Reporter::new(orb).servant()).unwrap()
}

/// Returns the requested sizes of the send and receive buffers in bytes, and true for keep-alive,
/// don't-route and no-delay if they are set.
fn tcp_of(fd: &OwnedFd) -> (usize, usize, bool, bool, bool) {
    let fd = fd.as_fd();
    let sizes = (socket::send_buffer_size(fd).unwrap() / 2, socket::receive_buffer_size(fd).unwrap() / 2);
    let bools =
        (socket::is_keepalive_enabled(fd).unwrap(), socket::dont_route(fd).unwrap(), socket::nodelay(fd).unwrap());
    (sizes.0, sizes.1, bools.0, bools.1, bools.2)
}

const SERVERS: TcpProperties = TcpProperties {
    send_buffer_size: 20_000,
    recv_buffer_size: 30_000,
    keep_alive: true,
    dont_route: true,
    no_delay: false,
    enable_network_priority: true,
};
const CLIENTS: TcpProperties = TcpProperties {
    send_buffer_size: 40_000,
    recv_buffer_size: 50_000,
    keep_alive: false,
    dont_route: true,
    no_delay: true,
    enable_network_priority: true,
};

#[test]
fn sockets_of_client_and_server_have_the_tcp_properties_of_their_policies() {
    let (server, accepted) = watched(&["tcp:127.0.0.1:0".into()]);
    let pool = server.real_time().create_threadpool(&ThreadpoolConfig::default()).unwrap();
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, 0)),
        threadpool: Some(pool),
        server_protocols: vec![Protocol::Tcp(SERVERS)],
        ..RtPolicies::default()
    };
    let ior = object(&server, "own", &policies).to_string();
    let (client, made) = watched(&[]);
    let plain = client.string_to_object(&ior).unwrap().unwrap();
    let asked = RtClientPolicies { client_protocols: vec![Protocol::Tcp(CLIENTS)], ..RtClientPolicies::default() };
    let own = plain.with_rt_policies(&asked).unwrap();
    assert!(call_who(&own).is_ok() && call_who(&plain).is_ok());
    let (made, accepted) = (made.lock(), accepted.lock());
    assert_eq!((made.len(), accepted.len()), (2, 2));
    assert_eq!(tcp_of(&made[0]), (40_000, 50_000, false, true, true));
    let by_default = tcp_of(&made[1]);
    assert_eq!((by_default.2, by_default.3, by_default.4), (false, false, true));
    for fd in &*accepted {
        assert_eq!(tcp_of(fd), (20_000, 30_000, true, true, false));
    }
    assert_eq!(socket::dscp(accepted[0].as_fd()).unwrap(), 8);
}

#[test]
fn properties_in_a_reference_apply_to_clients_without_their_own() {
    let (server, _) = watched(&["tcp:127.0.0.1:0".into()]);
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, 0)),
        client_protocols: vec![Protocol::Tcp(CLIENTS)],
        ..RtPolicies::default()
    };
    let ior = object(&server, "says", &policies).to_string();
    let (client, made) = watched(&[]);
    let plain = client.string_to_object(&ior).unwrap().unwrap();
    assert!(call_who(&plain).is_ok());
    assert_eq!(tcp_of(&made.lock()[0]), (40_000, 50_000, false, true, true));
    let asked = RtClientPolicies { client_protocols: vec![Protocol::Tcp(SERVERS)], ..RtClientPolicies::default() };
    let both = call_who(&plain.with_rt_policies(&asked).unwrap()).unwrap_err();
    assert_eq!((both.kind(), both.minor()), (Kind::InvPolicy, IRRECONCILABLE));
}

#[test]
fn unix_sockets_have_the_requested_buffer_sizes() {
    let path = std::env::temp_dir().join(format!("corelane-properties-{}", std::process::id()));
    let (server, accepted) = watched(&[format!("unix:{}", path.display())]);
    let sizes =
        |send, receive| vec![Protocol::Unix(UnixProperties { send_buffer_size: send, recv_buffer_size: receive })];
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, 0)),
        server_protocols: sizes(20_000, 30_000),
        client_protocols: sizes(40_000, 50_000),
        ..RtPolicies::default()
    };
    let ior = object(&server, "unix", &policies).to_string();
    let (client, made) = watched(&[]);
    assert!(call_who(&client.string_to_object(&ior).unwrap().unwrap()).is_ok());
    let of = |fds: &Mutex<Vec<OwnedFd>>| {
        let fds = fds.lock();
        let fd = fds[0].as_fd();
        (socket::send_buffer_size(fd).unwrap() / 2, socket::receive_buffer_size(fd).unwrap() / 2)
    };
    assert_eq!((of(&made), of(&accepted)), ((40_000, 50_000), (20_000, 30_000)));
}

#[test]
fn shared_memory_is_a_protocol_like_the_others() {
    let path = |name| std::env::temp_dir().join(format!("corelane-carriers-{}-{name}", std::process::id()));
    let (shm, unix) = (format!("shm:{}", path("shm").display()), format!("unix:{}", path("unix").display()));
    let fair = RtConfig::default().scheduling(SchedulingClass::Fair);
    let server = Orb::builder().real_time(fair).listen("tcp:127.0.0.1:0").listen(unix).listen(shm).build().unwrap();
    server.root_poa().manager().activate().unwrap();
    let all =
        [Protocol::SharedMemory, Protocol::Unix(UnixProperties::default()), Protocol::Tcp(TcpProperties::default())];
    let tags = [profile_tag::SHARED_MEMORY, profile_tag::UNIX, profile_tag::IIOP];
    let offering = |name: &str, protocols: &[Protocol]| {
        let policies = RtPolicies {
            priority_model: Some((PriorityModel::ServerDeclared, 0)),
            server_protocols: protocols.to_vec(),
            ..RtPolicies::default()
        };
        object(&server, name, &policies)
    };
    let offers = |object: &ObjectRef| -> Vec<u32> { object.ior().profiles.iter().map(|profile| profile.tag).collect() };
    assert_eq!(offers(&offering("any", &[])), tags);
    let reversed: Vec<_> = all.iter().rev().copied().collect();
    assert_eq!(offers(&offering("reversed", &reversed)), [tags[2], tags[1], tags[0]]);
    let client = Orb::builder().build().unwrap();
    let by = |ior: &str, protocols: &[Protocol]| {
        let asked = RtClientPolicies { client_protocols: protocols.to_vec(), ..RtClientPolicies::default() };
        client.string_to_object(ior).unwrap().unwrap().with_rt_policies(&asked).unwrap()
    };
    for (index, protocol) in all.into_iter().enumerate() {
        let only = offering(&format!("only {index}"), &[protocol]);
        assert_eq!(offers(&only), [tags[index]]);
        for (other, asked) in all.into_iter().enumerate() {
            let called = call_who(&by(&only.to_string(), &[asked]));
            match called {
                Ok(_) => assert_eq!(index, other),
                Err(refused) => assert!(index != other && refused.kind() == Kind::InvPolicy, "{refused}"),
            }
        }
    }
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, 0)),
        client_protocols: vec![Protocol::SharedMemory],
        ..RtPolicies::default()
    };
    let says = object(&server, "says it", &policies).to_string();
    assert!(call_who(&by(&says, &[])).is_ok());
    assert_eq!(call_who(&by(&says, &[Protocol::SharedMemory])).unwrap_err().kind(), Kind::InvPolicy);
}

#[test]
fn poas_that_share_sockets_agree_on_their_properties() {
    let (server, accepted) = watched(&["tcp:127.0.0.1:0".into()]);
    let with = |tcp| RtPolicies { server_protocols: vec![Protocol::Tcp(tcp)], ..RtPolicies::default() };
    let root = server.root_poa();
    let create = |name, tcp| root.create_rt_poa(name, None, PoaPolicies::default(), &with(tcp)).map(drop);
    assert_eq!(create("first", SERVERS), Ok(()));
    assert_eq!(create("same", SERVERS), Ok(()));
    assert_eq!(create("other", CLIENTS), Err(PoaError::InvalidPolicy(9)));
    let lane = |priority| LaneConfig::default().priority(priority);
    let config = LanesConfig::default().lanes([lane(50), lane(150)]);
    let pool = server.real_time().create_threadpool_with_lanes(&config).unwrap();
    let model = Some((PriorityModel::ClientPropagated, 50));
    let in_lanes = |name, tcp| {
        let policies = RtPolicies { threadpool: Some(pool), priority_model: model, ..with(tcp) };
        root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), &policies)
    };
    assert_eq!(in_lanes("first", CLIENTS).map(drop), Err(PoaError::AdapterAlreadyExists));
    let poa = in_lanes("lanes", SERVERS).unwrap();
    let mut peer = RawClient::for_object(&poa.activate(&Reporter::new(&server).servant()).unwrap());
    let _ = peer.who(Some(50)).who();
    assert_eq!(tcp_of(accepted.lock().last().unwrap()), (20_000, 30_000, true, true, false));
    let negative = TcpProperties { recv_buffer_size: -1, ..SERVERS };
    assert_eq!(create("negative", negative), Err(PoaError::InvalidPolicy(9)));
}

#[test]
fn packets_of_both_sides_carry_the_code_point_of_their_priority() {
    let (server, accepted) = watched(&["tcp:127.0.0.1:0".into()]);
    let lane = |priority| LaneConfig::default().priority(priority);
    let config = LanesConfig::default().lanes([lane(50), lane(150), lane(250)]);
    let pool = server.real_time().create_threadpool_with_lanes(&config).unwrap();
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 50)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let ior = object(&server, "lanes", &policies).to_string();
    let (client, made) = watched(&[]);
    let plain = client.string_to_object(&ior).unwrap().unwrap();
    let bands = Some(vec![(0, 99), (100, 199), (200, 32767)]);
    let of = |tcp| {
        let client_protocols = vec![Protocol::Tcp(tcp)];
        let asked = RtClientPolicies { priority_bands: bands.clone(), client_protocols, ..RtClientPolicies::default() };
        plain.with_rt_policies(&asked).unwrap()
    };
    let marked = of(TcpProperties::default());
    let unmarked = of(TcpProperties { enable_network_priority: false, ..TcpProperties::default() });
    for object in [&marked, &unmarked] {
        for priority in [50, 150, 250] {
            client.real_time().current().unwrap().set_priority(priority).unwrap();
            assert_eq!(call_who(object).unwrap().priority, priority);
        }
    }
    let dscp = |fds: &Mutex<Vec<OwnedFd>>| -> Vec<u8> {
        fds.lock().iter().map(|fd| socket::dscp(fd.as_fd()).unwrap()).collect()
    };
    assert_eq!(dscp(&made), [8, 26, 46, 0, 0, 0]);
    assert_eq!(dscp(&accepted), [8, 26, 46, 8, 26, 46]);
}

#[test]
fn in_a_pool_without_lanes_replies_carry_the_code_point_of_their_request() {
    let (server, accepted) = watched(&["tcp:127.0.0.1:0".into()]);
    let pool = server.real_time().create_threadpool(&ThreadpoolConfig::default()).unwrap();
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 0)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let object = object(&server, "unlaned", &policies);
    let mut peer = RawClient::for_object(&object);
    for (priority, dscp) in [(None, 8), (Some(250), 46), (Some(120), 26), (None, 26), (Some(0), 8)] {
        let _ = peer.who(priority).who();
        assert_eq!(socket::dscp(accepted.lock()[0].as_fd()).unwrap(), dscp, "{priority:?}");
    }
}
