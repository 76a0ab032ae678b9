//! Two network namespaces with a link between them, and an ORB with real-time I/O in one of them.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass, ThreadpoolId};
use corelane::{IoClass, ObjectRef, Orb, OrbBuilder};
use corelane_net::{Transport, Transports};
use corelane_rio::RioTransport;
use corelane_rio::examination::steering_refusal;
use corelane_sys::clock::Monotonic;
use corelane_sys::{interface, process, thread};

use corelane_tests::real_time::Reporter;

/// Priority of the lower lane.
pub(crate) const LOW: i16 = 10;
/// Priority of the higher lane.
pub(crate) const HIGH: i16 = 20;

/// Returns the builder of an ORB with this transport, whose threads have the ordinary scheduling
/// class.
pub(crate) fn with(transport: &Arc<RioTransport>) -> OrbBuilder {
    let transport: Arc<dyn Transport> = transport.clone();
    let config = RtConfig::default().scheduling(SchedulingClass::Fair);
    Orb::builder().transports(Transports::new(vec![transport])).real_time(config)
}

/// Creates a pool with a lane of priority [`LOW`] and a lane of priority [`HIGH`]. The lane of
/// priority [`HIGH`] has the service class `io`.
pub(crate) fn lanes(orb: &Orb, io: IoClass) -> ThreadpoolId {
    // Without `max_request_priority`, the lowest lane would read the connections of other machines.
    let high = LaneConfig::default().priority(HIGH).max_request_priority(Some(i16::MAX)).io_class(io);
    let lanes = [LaneConfig::default().priority(LOW), high];
    orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap()
}

/// Activates a [`Reporter`] in a new POA that uses `pool`, and returns its reference. Its requests
/// run at `priority`.
pub(crate) fn object(orb: &Orb, pool: ThreadpoolId, priority: i16) -> ObjectRef {
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, priority)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    root.manager().activate().unwrap();
    let poa = root.create_rt_poa(&format!("p{priority}"), Some(root.manager()), PoaPolicies::default(), &policies);
    poa.unwrap().activate(&Reporter::new(orb).servant()).unwrap()
}

/// Creates a channel between threads of a test.
#[expect(clippy::disallowed_methods, reason = "threads of a test, which are not measured")]
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    std::sync::mpsc::channel()
}

/// Runs `ip` of iproute2, and returns its output.
pub(crate) fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until `reached` returns true. Panics after a minute.
pub(crate) fn wait_until(reached: impl Fn() -> bool) {
    let deadline = Monotonic::now() + Duration::from_secs(60);
    while !reached() {
        assert!(!deadline.is_past());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `server` in a network namespace with the interface `rio0` (10.99.0.1), and `client` in a
/// namespace with the other end of the link, `rio1` (10.99.0.2). `client` gets each text that
/// `server` sends.
pub(crate) fn in_two_namespaces(server: impl FnOnce(Sender<Option<String>>) + Send, client: impl Fn(String) + Send) {
    let (to_client, for_client) = channel::<Option<String>>();
    let (to_server, for_server) = channel::<i32>();
    std::thread::scope(|scope| {
        let caller = scope.spawn(move || {
            process::enter_new_network_namespace().unwrap();
            to_server.send(thread::current_tid().as_raw()).unwrap();
            assert_eq!(for_client.recv().unwrap().as_deref(), Some("linked"));
            ip("address add 10.99.0.2/24 dev rio1");
            ip("link set rio1 up");
            while let Some(sent) = for_client.recv().unwrap() {
                client(sent);
            }
        });
        let serving = scope.spawn(move || {
            process::enter_new_network_namespace().unwrap();
            ip("link add rio0 type veth peer name rio1");
            ip(&format!("link set rio1 netns {}", for_server.recv().unwrap()));
            ip("address add 10.99.0.1/24 dev rio0");
            ip("link set rio0 up");
            to_client.send(Some("linked".to_owned())).unwrap();
            wait_until(|| interface::is_running("rio0").unwrap());
            server(to_client);
        });
        serving.join().unwrap();
        caller.join().unwrap();
    });
}

/// Prints the reason and returns true if this process cannot steer streams.
pub(crate) fn is_refused() -> bool {
    let lacks = |name| format!("the process lacks {name}");
    let refusal = steering_refusal().or_else(|| process::missing_namespace_capability().map(lacks));
    refusal.iter().for_each(|refusal| println!("not run: {refusal}"));
    refusal.is_some()
}

/// Returns true if the interface `rio0` has an XDP program.
pub(crate) fn has_xdp() -> bool {
    ip("link show dev rio0").contains("xdp")
}
