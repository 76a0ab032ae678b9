//! Priorities that peers on other machines may request (docs/decisions/0012).

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    BufferBounds, LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass, ThreadpoolConfig,
    ThreadpoolId,
};
use corelane::{Endpoint, Event, ObjectRef, Orb, PoolConfig, SystemExceptionKind as Kind};
use corelane_net::{TcpTransport, Transport, Transports};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::real_time::{RawClient, RawReply, Reporter, call_who, decode_reference};
use corelane_tests::remote_peers::{tcp_with_remote_addresses, tcp_with_remote_peers};

const CLIENT: PriorityModel = PriorityModel::ClientPropagated;
const SERVER: PriorityModel = PriorityModel::ServerDeclared;
const REFUSED: RawReply = RawReply::Raised(Kind::NoPermission, 0);

type Told = Arc<Mutex<Vec<Event>>>;

fn server(tcp: Arc<dyn Transport>, pool: PoolConfig) -> (Orb, Told) {
    let told: Told = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let list = Arc::clone(&told);
    let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
    let builder = Orb::builder().real_time(rt).transports(Transports::new(vec![tcp])).pool(pool);
    let orb = builder.listen("tcp:127.0.0.1:0").on_event(move |event| list.lock().push(event.clone())).build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    (orb, told)
}

fn lanes(orb: &Orb, ceiling: Option<i16>) -> ThreadpoolId {
    let lanes = [10, 20, 30].map(|priority| LaneConfig::default().priority(priority).max_request_priority(ceiling));
    orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap()
}

fn object(orb: &Orb, name: &str, model: PriorityModel, priority: i16, pool: Option<ThreadpoolId>) -> ObjectRef {
    let policies = RtPolicies { priority_model: Some((model, priority)), threadpool: pool, ..RtPolicies::default() };
    let root = orb.root_poa();
    let poa = root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    poa.activate(&Reporter::new(orb).servant()).unwrap()
}

fn own_port(orb: &Orb) -> u16 {
    let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP") };
    port
}

#[test]
fn without_a_ceiling_a_remote_peer_may_ask_only_for_the_default_priority() {
    let (orb, told) = server(tcp_with_remote_peers(), PoolConfig::default());
    let pool = lanes(&orb, None);
    // No lane has the priority 7, so the lowest lane serves the request.
    for (priority, most, lane) in [(7, 10, 0), (20, 20, 1)] {
        let object = object(&orb, &format!("of {priority}"), CLIENT, priority, Some(pool));
        let ports: Vec<u16> =
            decode_reference(&object).lanes.iter().map(|lane| lane.0).chain([own_port(&orb)]).collect();
        for port in ports {
            let mut client = RawClient::connect(&object, port);
            let unasked = client.who(None).who();
            assert_eq!((unasked.priority, unasked.lane), (most, lane), "{port}");
            assert_eq!(client.who(Some(30)), REFUSED, "{port}");
            assert_eq!(client.who(Some(most + 1)), REFUSED, "{port}");
            assert_eq!(client.who(Some(10)).who().priority, 10, "{port}");
        }
    }
    let refused = told.lock().iter().find_map(|event| match event {
        Event::RequestRefused { exception, .. } => Some(exception.to_string()),
        _ => None,
    });
    let refused = refused.expect("an event reports the refusal");
    assert!(refused.contains("another machine") && refused.contains("`ceiling`"), "{refused}");
    assert_eq!(orb.event_counts().requests_refused, 16);
}

/// The lowest lane must read, because a peer that may not request an urgent lane's priority must
/// not occupy that lane.
#[test]
fn the_lowest_lane_reads_for_lanes_without_a_ceiling_from_other_machines() {
    let (orb, _) = server(tcp_with_remote_peers(), PoolConfig::default());
    let pool = lanes(&orb, None);
    let clients = object(&orb, "clients", CLIENT, 10, Some(pool));
    let declared = object(&orb, "declared", SERVER, 30, Some(pool));
    let high = decode_reference(&clients).lanes[2].0;
    let mut client = RawClient::connect(&clients, high);
    let low = client.who(Some(10)).who();
    assert_eq!((low.lane, low.handed_over), (0, false));
    client.set_target(&declared);
    let own = client.who(None).who();
    assert_eq!((own.priority, own.lane, own.handed_over), (30, 2, true));
}

#[test]
fn with_a_ceiling_peers_of_other_machines_are_served_like_peers_of_this_machine() {
    let open = PoolConfig::default().max_request_priority(Some(i16::MAX));
    let (orb, told) = server(tcp_with_remote_peers(), open);
    let pool = lanes(&orb, Some(i16::MAX));
    let object = object(&orb, "open", CLIENT, 10, Some(pool));
    for (lane, (port, priority)) in (0..).zip(decode_reference(&object).lanes) {
        let who = RawClient::connect(&object, port).who(Some(priority)).who();
        assert_eq!((who.lane, who.handed_over), (lane, false));
    }
    assert_eq!(RawClient::connect(&object, own_port(&orb)).who(Some(30)).who().lane, 2);
    assert!(!told.lock().iter().any(|event| matches!(event, Event::RequestRefused { .. })));
}

#[test]
fn peers_of_this_machine_need_no_ceiling() {
    let (orb, told) = server(Arc::new(TcpTransport::new()), PoolConfig::default());
    let object = object(&orb, "near", CLIENT, 10, Some(lanes(&orb, None)));
    for (lane, (port, priority)) in (0..).zip(decode_reference(&object).lanes) {
        let who = RawClient::connect(&object, port).who(Some(priority)).who();
        assert_eq!((who.lane, who.handed_over), (lane, false));
    }
    assert!(told.lock().is_empty(), "an event reports an endpoint that is open to other machines");
}

#[test]
fn other_machines_are_bounded_in_pools_without_lanes() {
    let (orb, _) = server(tcp_with_remote_peers(), PoolConfig::default());
    let buffering = Some(BufferBounds { max_requests: 10, max_bytes: 0 });
    for (name, buffering) in [("plain", None), ("buffered", buffering)] {
        let config = ThreadpoolConfig::default().default_priority(5).buffering(buffering);
        let pool = orb.real_time().create_threadpool(&config).unwrap();
        let object = object(&orb, name, CLIENT, 5, Some(pool));
        let mut client = RawClient::for_object(&object);
        assert_eq!(client.who(Some(6)), REFUSED, "{name}");
        assert_eq!(client.who(Some(5)).who().priority, 5, "{name}");
        assert_eq!(client.who(None).who().priority, 5, "{name}");
    }
    let object = object(&orb, "builder's", CLIENT, 5, None);
    let mut client = RawClient::for_object(&object);
    assert_eq!((client.who(Some(6)), client.who(Some(5)).who().priority), (REFUSED, 5));
}

#[test]
fn an_event_names_every_lane_that_other_machines_can_reach() {
    // The listeners report the addresses of the configuration. Their real addresses are on
    // loopback.
    let (orb, told) = server(tcp_with_remote_addresses().0, PoolConfig::default());
    let lane = |priority, ceiling, host: &str| {
        LaneConfig::default()
            .priority(priority)
            .max_request_priority(ceiling)
            .listen(format!("tcp:{host}:{}", 4000 + priority))
    };
    let lanes = vec![lane(10, None, "192.0.2.1"), lane(20, Some(25), "0.0.0.0"), lane(30, None, "127.0.0.1")];
    let config = LanesConfig::default().name("flight").lanes(lanes);
    orb.real_time().create_threadpool_with_lanes(&config).unwrap();
    let lines: Vec<String> = told.lock().iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("flight/p10 at tcp:192.0.2.1:4010, which has no ceiling"), "{lines:?}");
    assert!(
        lines[1].contains("flight/p20 at tcp:0.0.0.0:4020: their clients may ask for priorities up to 25"),
        "{lines:?}"
    );
}

/// The lowest lane must accept, because otherwise the kernel would run the accepting thread of a
/// flooded listener at an urgent priority.
#[test]
fn the_lowest_lane_accepts_for_lanes_without_a_ceiling() {
    let (tcp, listeners) = tcp_with_remote_addresses();
    let (orb, _) = server(tcp, PoolConfig::default());
    let at = |priority: i16| Endpoint::tcp("192.0.2.1", 4000 + u16::try_from(priority).unwrap());
    let lane = |priority, ceiling| {
        LaneConfig::default().priority(priority).max_request_priority(ceiling).listen(at(priority).to_string())
    };
    let lanes = vec![lane(10, None), lane(20, Some(25)), lane(30, None)];
    let config = LanesConfig::default().name("flight").lanes(lanes);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
    let object = object(&orb, "clients", CLIENT, 10, Some(pool));
    for (priority, accepted_by) in [(10, "flight/p10/l"), (20, "flight/p20/l"), (30, "flight/p10/l")] {
        let Endpoint::Tcp { port, .. } = listeners.local_endpoint_of(&at(priority)) else { panic!("no TCP") };
        let mut clients: Vec<_> = (0..40).map(|_| RawClient::connect(&object, port)).collect();
        for client in &mut clients {
            assert_eq!(client.who(Some(10)).who().priority, 10);
        }
        let threads = listeners.accepting_threads(&at(priority));
        assert_eq!(threads.len(), 40, "{priority}");
        assert!(threads.iter().all(|thread| thread.starts_with(accepted_by)), "{priority}: {threads:?}");
    }
    orb.shutdown(true).unwrap();
}

/// Environment variable with the reference for the child processes.
const PART: &str = "CORELANE_TEST_REFERENCE";

fn ip(words: &[&str]) {
    let status = Command::new("ip").args(words).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {words:?}");
}

struct Namespace(String);

impl Namespace {
    fn new(role: &str) -> Self {
        let namespace = Namespace(format!("corelane-{role}-{}", std::process::id()));
        ip(&["netns", "add", &namespace.0]);
        ip(&["-n", &namespace.0, "link", "set", "lo", "up"]);
        namespace
    }

    fn set_up(&self, device: &str, address: &str) {
        ip(&["-n", &self.0, "address", "add", address, "dev", device]);
        ip(&["-n", &self.0, "link", "set", device, "up"]);
    }

    fn run(&self, test: &str, part: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", test]).env(PART, part);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[test]
fn a_client_of_another_network_namespace_is_of_another_machine() {
    assert_eq!(corelane_sys::process::effective_user_id(), 0, "only root may make network namespaces");
    let (servers, clients) = (Namespace::new("server"), Namespace::new("client"));
    ip(&["link", "add", "lanes", "netns", &servers.0, "type", "veth", "peer", "name", "lanes", "netns", &clients.0]);
    servers.set_up("lanes", "192.0.2.1/30");
    clients.set_up("lanes", "192.0.2.2/30");
    let mut server = servers.run("part_that_serves", "").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let reference = lines.find_map(|line| line.find("IOR:").map(|at| line[at..].to_owned()));
    let reference = reference.expect("the server prints its reference");
    for (namespace, test) in [(&clients, "part_that_is_refused"), (&servers, "part_that_is_served")] {
        let output = namespace.run(test, &reference).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        // A filter that matches no test succeeds, so the output must report one passed test.
        assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}");
    }
    drop(server.stdin.take());
    let rest: Vec<String> = lines.collect();
    assert!(server.wait().unwrap().success(), "{rest:?}");
}

#[test]
#[ignore = "a part of a_client_of_another_network_namespace_is_of_another_machine"]
fn part_that_serves() {
    assert!(std::env::var(PART).is_ok(), "this test was not started in a network namespace");
    let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(rt).listen("tcp:192.0.2.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    println!("\n{}", object(&orb, "far", CLIENT, 10, Some(lanes(&orb, None))));
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn called() -> [Result<i16, Kind>; 2] {
    let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(rt).build().unwrap();
    let reference = std::env::var(PART).expect("the test runs in a network namespace");
    let object = orb.string_to_object(&reference).unwrap().unwrap();
    let current = orb.real_time().current().unwrap();
    [10, 30].map(|priority| {
        current.set_priority(priority).unwrap();
        call_who(&object).map(|who| who.priority).map_err(|exception| exception.kind())
    })
}

#[test]
#[ignore = "a part of a_client_of_another_network_namespace_is_of_another_machine"]
fn part_that_is_refused() {
    assert_eq!(called(), [Ok(10), Err(Kind::NoPermission)]);
}

/// Calls an object on this machine at the address that other machines use.
#[test]
#[ignore = "a part of a_client_of_another_network_namespace_is_of_another_machine"]
fn part_that_is_served() {
    assert_eq!(called(), [Ok(10), Ok(30)]);
}
