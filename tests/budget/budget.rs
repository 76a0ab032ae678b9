//! The request budget: allocations, system calls, locks and hand-offs of a call in steady state.

use corelane::poa::{IdAssignment, PoaPolicies};
use corelane::rt::{
    CorePool, CorePoolConfig, CorePoolMode, LaneConfig, LanesConfig, PriorityModel, RtPolicies, TaskBinder,
    TaskBinding, ThreadpoolConfig, ThreadpoolId,
};
use corelane::{CallPolicies, Dispatch, Endpoint, Orb, OrbBuilder, PoolConfig, SpinPolicy, Timeout, Transports};
use corelane_net::SharedMemoryTransport;
use corelane_sys::counters;
use corelane_tests::real_time::{fifo_orb, require_fifo};
use corelane_tests::{Counts, Probe, ProbeRef, Server, Small, TestProbe, serve_with};
use corelane_wire::giop::{self, RequestHeader, ResponseExpected, TargetAddress};
use corelane_wire::{Cdr, CharSet, Encoder, Endian, Version};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

const CALLS: u64 = 500;

const TRIES: usize = 20;

struct Cost {
    client: Each,
    server: Each,
    server_locks: u64,
}

/// The numbers of system calls, allocations, locks of the lane, locks of the ORB, hand-offs and
/// futex calls.
type Each = [u64; 6];

const SYSTEM_CALLS: usize = 0;
const ORB_LOCKS: usize = 3;

/// Returns the builder of an ORB whose threads do not poll sockets, because polling makes a varying
/// number of system calls.
fn sleeping() -> OrbBuilder {
    Orb::builder().spin_policy(SpinPolicy::Never)
}

fn serve(dispatch: Dispatch) -> Server {
    serve_with(sleeping().pool(PoolConfig::default().dispatch(dispatch)).listen("tcp:127.0.0.1:0"))
}

fn client(ior: &str) -> (Orb, ProbeRef) {
    let orb = sleeping().build().unwrap();
    let object = orb.string_to_object(ior).unwrap().unwrap();
    (orb, ProbeRef::from_object(object))
}

/// Returns the costs of 1000 calls for the client's thread and for the server's thread that also
/// runs `cost_so_far`.
///
/// Repeats the measurement if only some calls took locks of the ORB. In this case the hang-up
/// monitor watched the connection, because the client had paused.
fn measure(probe: &ProbeRef, call: impl Fn(&ProbeRef)) -> Cost {
    let mut cost = count(probe, &call);
    for _ in 1..TRIES {
        if !(1..1000).contains(&cost.client[ORB_LOCKS]) {
            break;
        }
        cost = count(probe, &call);
    }
    cost
}

fn count(probe: &ProbeRef, call: impl Fn(&ProbeRef)) -> Cost {
    for _ in 0..200 {
        call(probe);
    }
    probe.cost_so_far().unwrap();
    let before = probe.cost_so_far().unwrap();
    let here = counters::snapshot();
    for _ in 0..CALLS {
        call(probe);
    }
    let client = counters::snapshot() - here;
    let after = probe.cost_so_far().unwrap();
    let server = of(&after, &before);
    let server_locks = (after.locks - before.locks) * 1000 / (CALLS + 1);
    let client =
        [client.syscalls, client.allocations, client.lane_locks, client.orb_locks, client.handoffs, client.futex_calls];
    // The server takes each snapshot inside `cost_so_far`. Between the snapshots it ends one such
    // call and begins another, so it runs CALLS + 1 calls in all.
    Cost {
        client: client.map(|all| all * 1000 / CALLS),
        server: server.map(|all| all * 1000 / (CALLS + 1)),
        server_locks,
    }
}

fn of(after: &Counts, before: &Counts) -> Each {
    [
        after.system_calls - before.system_calls,
        after.allocations - before.allocations,
        after.lane_locks - before.lane_locks,
        after.orb_locks - before.orb_locks,
        after.handoffs - before.handoffs,
        after.futex - before.futex,
    ]
}

fn assert_costs(cost: &Cost, system_calls: u64, what: &str) {
    let all = "system calls, allocations, lane locks, ORB locks, hand-offs, futex calls";
    assert_eq!(cost.client, [2000, 0, 0, 0, 0, 0], "{what}: {all} of the client");
    assert_eq!(cost.server, [system_calls * 1000, 0, 0, 0, 0, 0], "{what}: {all} of the server");
    assert_eq!(
        cost.server_locks, 1000,
        "{what}: the server takes other locks than the lock of the connection's output"
    );
}

fn every_plain_argument(connect: impl Fn() -> (Orb, ProbeRef), assert: impl Fn(&Cost, &str)) {
    let longs: Vec<i32> = (0..1024).collect();
    let many: Vec<i32> = vec![1; 8192];
    let small = Small { o: 1, l: 2, s: 3 };
    let smalls = vec![small; 64];
    type Call<'a> = &'a dyn Fn(&ProbeRef);
    let forms: [(&str, Call<'_>); 7] = [
        ("octet", &|probe| assert_eq!(probe.cube_octet(3).unwrap(), 27)),
        ("long", &|probe| assert_eq!(probe.cube_long(3).unwrap(), 27)),
        ("struct", &|probe| assert_eq!(probe.cube_small(&small).unwrap().l, 8)),
        ("string", &|probe| assert_eq!(probe.length_of("grün").unwrap(), 4)),
        ("sequence<long>", &|probe| assert_eq!(probe.sum(&longs).unwrap(), 523_776)),
        ("a long sequence<long>", &|probe| assert_eq!(probe.sum(&many).unwrap(), 8192)),
        ("sequence<struct>", &|probe| assert_eq!(probe.total(&smalls).unwrap(), 128)),
    ];
    for (what, call) in forms {
        let (_orb, probe) = connect();
        assert(&measure(&probe, call), what);
    }
}

fn every_plain_argument_costs(server: &Server, system_calls: u64) {
    every_plain_argument(|| client(&server.ior), |cost, what| assert_costs(cost, system_calls, what));
}

#[test]
fn leader_followers_costs_three_system_calls() {
    every_plain_argument_costs(&serve(Dispatch::LeaderFollowers { threads: 1 }), 3);
}

#[test]
fn thread_per_connection_costs_two_system_calls() {
    every_plain_argument_costs(&serve(Dispatch::ThreadPerConnection { max_threads: 16 }), 2);
}

struct EveryObject;

impl TaskBinder for EveryObject {
    fn task_of(&self, _: &[u8]) -> Option<u64> {
        Some(1)
    }
}

/// Makes a server with a core pool of this mode, whose only object belongs to a task.
fn serve_task(mode: CorePoolMode) -> (Orb, CorePool, String) {
    require_fifo();
    let orb = sleeping().listen("tcp:127.0.0.1:0").build().unwrap();
    let root = orb.root_poa();
    root.manager().activate().unwrap();
    let pool = CorePoolConfig::default().cores([0]).mode(mode);
    let pool = orb.real_time().create_core_pool(&pool, Arc::new(EveryObject)).unwrap();
    pool.set_tasks(&[TaskBinding::new(1, 0, 10)]).unwrap();
    let policies = RtPolicies { threadpool: Some(pool.id()), ..RtPolicies::default() };
    let poa = root.create_rt_poa("task", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let ior = poa.activate(&Probe::servant(TestProbe::default())).unwrap().to_string();
    (orb, pool, ior)
}

#[test]
fn bound_connection_of_a_task_costs_two_system_calls() {
    for mode in [CorePoolMode::Bound, CorePoolMode::NoAffinity] {
        let (_orb, pool, ior) = serve_task(mode);
        every_plain_argument(|| client(&ior), |cost, what| assert_costs(cost, 2, what));
        assert_eq!((pool.counts().connections_bound, pool.counts().requests_not_bound), (7, 0), "{mode:?}");
    }
}

#[test]
fn request_that_a_manager_reads_costs_one_hand_over() {
    for (mode, hand_overs) in [(CorePoolMode::Manager, CALLS), (CorePoolMode::LeaderFollowers, 0)] {
        let (_orb, pool, ior) = serve_task(mode);
        let (_client, probe) = client(&ior);
        for _ in 0..CALLS {
            assert_eq!(probe.cube_octet(3).unwrap(), 27);
        }
        let counts = pool.counts();
        assert_eq!((counts.requests_handed_over, counts.led), (hand_overs, CALLS - hand_overs), "{mode:?}");
        assert_eq!((counts.connections_bound, counts.requests_not_bound), (0, 0), "{mode:?}");
    }
}

/// Asserts only the client's cost, because the server's cost depends on the number of oneways that
/// arrive together.
#[test]
fn a_oneway_costs_its_client_one_system_call() {
    let server = serve(Dispatch::ThreadPerConnection { max_threads: 16 });
    let (_orb, probe) = client(&server.ior);
    let cost = measure(&probe, |probe| probe.note(3).unwrap());
    assert_eq!(cost.client, [1000, 0, 0, 0, 0, 0]);
}

fn listening(carrier: &str, dispatch: Dispatch) -> OrbBuilder {
    let path = std::env::temp_dir().join(format!("corelane-budget-{}-{carrier}-{dispatch:?}", std::process::id()));
    let pool = PoolConfig::default().dispatch(dispatch);
    Orb::builder().pool(pool).listen(format!("{carrier}:{}", path.display()))
}

#[test]
fn a_unix_socket_has_the_same_costs_as_tcp() {
    let serve_at = |dispatch| serve_with(listening("unix", dispatch).spin_policy(SpinPolicy::Never));
    every_plain_argument_costs(&serve_at(Dispatch::LeaderFollowers { threads: 1 }), 3);
    every_plain_argument_costs(&serve_at(Dispatch::ThreadPerConnection { max_threads: 16 }), 2);
}

/// A message to a sleeping receiver costs one system call of the sender and one of the receiver.
/// The threads of `LeaderFollowers` wait for the bell, a socket to which the sender writes. Clients
/// and the threads of connections sleep in a futex call.
#[test]
fn shared_memory_costs_only_the_system_calls_of_waiting() {
    // With `max_spin` 0, threads do not poll the rings before they sleep.
    for rings in [SharedMemoryTransport::default(), SharedMemoryTransport::default().max_spin(Duration::ZERO)] {
        let transports = || Transports::new(vec![Arc::new(rings.clone())]);
        for dispatch in [Dispatch::LeaderFollowers { threads: 1 }, Dispatch::ThreadPerConnection { max_threads: 16 }] {
            let server = listening("shm", dispatch).transports(transports());
            let server = match dispatch {
                Dispatch::LeaderFollowers { .. } => serve_with(server.spin_policy(SpinPolicy::Never)),
                _ => serve_with(server),
            };
            let connect = || {
                let orb = Orb::builder().transports(transports()).build().unwrap();
                let object = orb.string_to_object(&server.ior).unwrap().unwrap();
                (orb, ProbeRef::from_object(object))
            };
            let assert = |cost: &Cost, what: &str| assert_waits(cost, dispatch, &format!("{dispatch:?}, {what}"));
            every_plain_argument(connect, assert);
        }
    }
}

fn assert_waits(cost: &Cost, dispatch: Dispatch, what: &str) {
    let (client, server) = (cost.client, cost.server);
    assert_eq!(client[1..5], [0, 0, 0, 0], "{what}: allocations, lane locks, ORB locks, hand-offs of the client");
    assert_eq!(server[1..5], [0, 0, 0, 0], "{what}: allocations, lane locks, ORB locks, hand-offs of the server");
    let [ring, wait] = [1000, 1000];
    // A late wake-up may end the next wait of a thread too early, so that the thread waits again.
    // The bounds permit 50 such waits in 1000 calls.
    let stray = 50;
    let tidied = 1000 / 64 + 1;
    let [most_of_server, locks] = match dispatch {
        Dispatch::ThreadPerConnection { .. } => {
            // A thread that sleeps on a ring for the first time asks the kernel for its priority,
            // with one system call.
            let once = 1000 / CALLS;
            assert!(client[0] <= once && server[0] <= once, "{what}: {} and {} system calls", client[0], server[0]);
            assert!(client[5] <= ring + wait + stray, "{what}: {} futex calls of the client", client[5]);
            [ring + wait + stray, 1000]
        }
        _ => {
            assert_eq!(client[0], ring, "{what}: the client rings for each request");
            assert!(client[5] <= wait + stray, "{what}: {} futex calls of the client", client[5]);
            let most = wait + tidied;
            assert!((wait..=most).contains(&server[0]), "{what}: {} system calls of the server", server[0]);
            [ring + stray, 1000 + tidied]
        }
    };
    assert!(server[5] <= most_of_server, "{what}: {} futex calls of the server", server[5]);
    assert!((1000..=locks).contains(&cost.server_locks), "{what}: {} locks of the server", cost.server_locks);
}

/// The server converts ISO 8859-1 to `str` in the thread's arena, without an allocation.
#[test]
fn text_in_another_code_set_costs_no_more() {
    let latin = || sleeping().native_char_set(CharSet::Latin1);
    for (dispatch, system_calls) in
        [(Dispatch::LeaderFollowers { threads: 1 }, 3), (Dispatch::ThreadPerConnection { max_threads: 16 }, 2)]
    {
        let pool = PoolConfig::default().dispatch(dispatch);
        let server = serve_with(latin().pool(pool).listen("tcp:127.0.0.1:0"));
        let orb = latin().build().unwrap();
        let probe = ProbeRef::from_object(orb.string_to_object(&server.ior).unwrap().unwrap());
        let cost = measure(&probe, |probe| assert_eq!(probe.length_of("grün").unwrap(), 4));
        assert_costs(&cost, system_calls, "a string in ISO 8859-1");
    }
}

/// The server swaps the octets of numbers in the thread's arena, without an allocation.
#[test]
fn numbers_in_the_other_byte_order_cost_the_server_no_more() {
    let server = serve(Dispatch::LeaderFollowers { threads: 1 });
    let (_orb, probe) = client(&server.ior);
    let key = server.probe.as_object().ior().known_profiles().next().unwrap().object_key.to_vec();
    let longs: Vec<i32> = (0..1024).collect();
    let mut encoder = Encoder::new();
    encoder.set_endian(Endian::from_flag(Endian::NATIVE.to_flag() ^ 1));
    let head = RequestHeader {
        version: Version::GIOP_1_2,
        request_id: 1,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(&key),
        operation: b"sum",
        contexts: &[],
    };
    giop::write_request_header(&mut encoder, &head).unwrap();
    longs.encode(&mut encoder).unwrap();
    giop::finish_message(&mut encoder).unwrap();
    let request = encoder.to_vec();
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut call = || {
        stream.write_all(&request).unwrap();
        // The message header, a reply header without service contexts, and the sum in the server's
        // byte order.
        let mut reply = [0; 28];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[24..], 523_776i32.to_ne_bytes());
    };
    let mut measure = || {
        (0..200).for_each(|_| call());
        probe.cost_so_far().unwrap();
        let before = probe.cost_so_far().unwrap();
        (0..CALLS).for_each(|_| call());
        of(&probe.cost_so_far().unwrap(), &before).map(|all| all * 1000 / (CALLS + 1))
    };
    let mut cost = measure();
    // The kernel sometimes delivers a request of 4 KiB in two pieces, which costs another wait and
    // another read. The measurement is then repeated.
    for _ in 1..TRIES {
        if !(3001..4000).contains(&cost[SYSTEM_CALLS]) {
            break;
        }
        cost = measure();
    }
    assert_eq!(cost, [3000, 0, 0, 0, 0, 0]);
}

#[test]
fn a_precise_deadline_costs_the_client_a_third_system_call() {
    let server = serve(Dispatch::LeaderFollowers { threads: 1 });
    let (_orb, probe) = client(&server.ior);
    let precise = Some(Timeout::Precise(Duration::from_secs(60)));
    let probe = probe.with_policies(CallPolicies { timeout: precise, ..CallPolicies::NONE });
    let cost = measure(&probe, |probe| assert_eq!(probe.cube_octet(3).unwrap(), 27));
    assert_eq!(cost.client, [3000, 0, 0, 0, 0, 0]);
}

#[test]
fn a_variable_result_costs_the_client_one_allocation() {
    let server = serve(Dispatch::LeaderFollowers { threads: 1 });
    let (_orb, probe) = client(&server.ior);
    let cost = measure(&probe, |probe| assert_eq!(probe.echo("text").unwrap(), "text"));
    assert_eq!(cost.client, [2000, 1000, 0, 0, 0, 0]);
}

fn in_pool(orb: &Orb, pool: ThreadpoolId, priority: i16) -> String {
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, priority)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa =
        root.create_rt_poa(&priority.to_string(), Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    poa.activate(&Probe::servant(TestProbe::default())).unwrap().to_string()
}

fn served_for(ior: &str) -> Each {
    let (_orb, probe) = client(ior);
    measure(&probe, |probe| assert_eq!(probe.cube_octet(3).unwrap(), 27)).server
}

#[test]
fn lane_has_the_same_costs_as_a_pool_without_lanes() {
    let orb = fifo_orb();
    let lanes = [100, 20_000].map(|priority| LaneConfig::default().priority(priority));
    let config = LanesConfig::default().lanes(lanes);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
    for priority in [100, 20_000] {
        assert_eq!(served_for(&in_pool(&orb, pool, priority)), [3000, 0, 0, 0, 0, 0], "lane {priority}");
    }
}

#[test]
fn thread_without_a_lane_takes_two_system_calls_for_another_priority_and_none_for_its_own() {
    let orb = fifo_orb();
    let config = ThreadpoolConfig::default().default_priority(335);
    let pool = orb.real_time().create_threadpool(&config).unwrap();
    assert_eq!(served_for(&in_pool(&orb, pool, 335)), [3000, 0, 0, 0, 0, 0]);
    assert_eq!(served_for(&in_pool(&orb, pool, 16384)), [5000, 0, 0, 0, 0, 0]);
}

#[test]
fn an_object_with_a_priority_of_its_own_costs_no_more() {
    let orb = fifo_orb();
    let lanes = [100, 20_000].map(|priority| LaneConfig::default().priority(priority));
    let config = LanesConfig::default().lanes(lanes);
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, 100)),
        threadpool: Some(orb.real_time().create_threadpool_with_lanes(&config).unwrap()),
        ..RtPolicies::default()
    };
    let ids = PoaPolicies { id_assignment: IdAssignment::User, ..PoaPolicies::default() };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("own", Some(root.manager()), ids, &policies).unwrap();
    let id = "valve".into();
    poa.activate_object_with_id_and_priority(&id, &Probe::servant(TestProbe::default()), 20_000).unwrap();
    let ior = poa.id_to_reference(&id).unwrap().to_string();
    assert_eq!(served_for(&ior), [3000, 0, 0, 0, 0, 0]);
}
