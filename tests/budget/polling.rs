//! The system calls of threads that poll before they sleep, and the number of these threads in the
//! process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corelane::{ConnectionPoolExhaustedAction, Dispatch, Orb, OrbBuilder, PoolConfig, SpinPolicy};
use corelane_net::spinning_thread_count;
use corelane_sys::thread::CpuSet;
use corelane_sys::{counters, thread};
use corelane_tests::{ProbeRef, Server, serve_with};

const ALWAYS: SpinPolicy = SpinPolicy::Always { max_spin: SpinPolicy::MAX_SPIN };

const POLLING: [Dispatch; 3] =
    [Dispatch::Reactive, Dispatch::ThreadPerConnection { max_threads: 16 }, Dispatch::LeaderFollowers { threads: 4 }];

const PATIENCE: Duration = Duration::from_secs(60);

fn serve(carrier: &str, dispatch: Dispatch, policy: Option<SpinPolicy>) -> Server {
    let path = std::env::temp_dir().join(format!("corelane-polling-{}-{carrier}", std::process::id()));
    let address = match carrier {
        "tcp" => "tcp:127.0.0.1:0".to_owned(),
        _ => format!("{carrier}:{}", path.display()),
    };
    serve_with(Orb::builder().pool(PoolConfig::default().dispatch(dispatch).spin_policy(policy)).listen(address))
}

fn connect(builder: OrbBuilder, server: &Server) -> (Orb, ProbeRef) {
    let orb = builder.build().unwrap();
    let object = orb.string_to_object(&server.ior).unwrap().unwrap();
    (orb, ProbeRef::from_object(object))
}

#[test]
fn polling_is_counted_and_bounded() {
    if thread::online_cores() > 1 {
        references_have_their_own_policy();
    }
    for dispatch in POLLING {
        for carrier in ["tcp", "unix", "shm"] {
            idle_servers_make_no_system_calls(carrier, dispatch);
        }
        if thread::online_cores() > 1 {
            for carrier in ["tcp", "shm"] {
                requests_arrive_while_a_thread_that_polled_is_in_an_upcall(carrier, dispatch);
                fewer_threads_than_cores_poll(carrier, dispatch);
            }
            servers_that_poll_make_more_system_calls(dispatch);
            callers_over_shared_memory_need_not_wake_a_thread_that_polls(dispatch);
        }
    }
}

/// Lets the calling thread, and threads that it starts, run on one core only: the first that is
/// permitted if `first`, otherwise the second.
fn run_on_core(permitted: &CpuSet, first: bool) {
    let core = permitted.iter().nth(usize::from(!first)).unwrap();
    thread::set_affinity(None, &CpuSet::one(core)).unwrap();
}

/// Checks that callers over shared memory rarely wake a thread of the server while it polls.
///
/// To wake a thread that sleeps, a caller makes one system call. The callers do not poll and so
/// make no other system calls, so the test counts their system calls.
fn callers_over_shared_memory_need_not_wake_a_thread_that_polls(dispatch: Dispatch) {
    let permitted = thread::affinity(None).unwrap();
    if matches!(dispatch, Dispatch::ThreadPerConnection { .. }) || permitted.iter().count() < 2 {
        return;
    }
    for connections in [1, 3] {
        let calls = 300 * connections as u64;
        let bells = |policy| {
            run_on_core(&permitted, true);
            let server = serve("shm", dispatch, Some(policy));
            run_on_core(&permitted, false);
            let clients: Vec<_> =
                (0..connections).map(|_| connect(Orb::builder().spin_policy(SpinPolicy::Never), &server)).collect();
            let begun = Instant::now();
            loop {
                let before = counters::snapshot();
                for _ in 0..300 {
                    clients.iter().for_each(|(_, probe)| assert_eq!(probe.cube_long(3).unwrap(), 27));
                }
                let bells = (counters::snapshot() - before).syscalls;
                if policy == SpinPolicy::Never || bells < calls / 4 || begun.elapsed() > PATIENCE {
                    break bells;
                }
            }
        };
        let sleeping = bells(SpinPolicy::Never);
        assert!(sleeping >= calls, "{dispatch:?}: {calls} calls woke sleeping threads {sleeping} times");
        let polling = bells(ALWAYS);
        assert!(polling < calls / 4, "{dispatch:?}: {calls} calls woke polling threads {polling} times");
    }
    thread::set_affinity(None, &permitted).unwrap();
}

fn references_have_their_own_policy() {
    let server = serve("tcp", Dispatch::ThreadPerConnection { max_threads: 16 }, Some(SpinPolicy::Never));
    let (_orb, probe) = connect(Orb::builder().spin_policy(SpinPolicy::Never), &server);
    let polling = ProbeRef::from_object(probe.as_object().with_spin_policy(ALWAYS));
    let system_calls = |probe: &ProbeRef| {
        let before = counters::snapshot();
        probe.slow(20).unwrap();
        (counters::snapshot() - before).syscalls
    };
    probe.slow(0).unwrap();
    let begun = Instant::now();
    while system_calls(&polling) <= 100 {
        assert!(begun.elapsed() < PATIENCE, "the caller does not poll");
    }
    assert!(system_calls(&probe) < 10, "a reference that must not poll polls");
}

fn idle_servers_make_no_system_calls(carrier: &str, dispatch: Dispatch) {
    let server = serve(carrier, dispatch, None);
    let (_orb, probe) = connect(Orb::builder(), &server);
    (0..1000).for_each(|_| assert_eq!(probe.cube_long(3).unwrap(), 27));
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "{carrier}, {dispatch:?}: the server does not become idle");
        let before = counters::process_snapshot();
        std::thread::sleep(Duration::from_secs(1));
        // In one second, a thread that polls a socket makes 100,000 system calls or more, and the
        // maintenance of two ORBs makes a few.
        if (counters::process_snapshot() - before).syscalls <= 30 {
            break;
        }
    }
    assert_eq!(spinning_thread_count(), 0);
    assert_eq!(probe.cube_long(3).unwrap(), 27);
}

fn servers_that_poll_make_more_system_calls(dispatch: Dispatch) {
    let server = serve("tcp", dispatch, Some(ALWAYS));
    let (_orb, probe) = connect(Orb::builder().spin_policy(SpinPolicy::Never), &server);
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "{dispatch:?}: the server does not poll");
        let before = counters::process_snapshot();
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(probe.cube_long(3).unwrap(), 27);
        }
        if (counters::process_snapshot() - before).syscalls > 1000 {
            break;
        }
    }
}

fn requests_arrive_while_a_thread_that_polled_is_in_an_upcall(carrier: &str, dispatch: Dispatch) {
    if !matches!(dispatch, Dispatch::LeaderFollowers { .. }) {
        return;
    }
    for connections in [1, 2] {
        let server = serve(carrier, dispatch, Some(ALWAYS));
        let shared = Orb::builder()
            .max_connections_per_server(1)
            .on_connection_pool_exhausted(ConnectionPoolExhaustedAction::Multiplex);
        let builder = if connections == 1 { shared } else { Orb::builder() };
        let (_orb, probe) = connect(builder, &server);
        for round in 1..=200 {
            assert_eq!(probe.cube_long(3).unwrap(), 27);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| probe.meet(2 * round).unwrap());
                }
            });
        }
        assert_eq!(server.orb.event_counts().protocol_faults, 0);
    }
}

fn fewer_threads_than_cores_poll(carrier: &str, dispatch: Dispatch) {
    let server = serve(carrier, dispatch, Some(ALWAYS));
    let (_orb, probe) = connect(Orb::builder().spin_policy(ALWAYS), &server);
    let limit = thread::online_cores() - 1;
    let is_over = AtomicBool::new(false);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..limit + 3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(probe.cube_long(3).unwrap(), 27);
                }
            });
        }
        let mut has_reached_limit = false;
        while !has_reached_limit || begun.elapsed() < Duration::from_millis(100) {
            assert!(begun.elapsed() < PATIENCE, "{dispatch:?}: no thread polls");
            let spinning = spinning_thread_count();
            assert!(spinning <= limit, "{spinning} threads poll");
            has_reached_limit |= spinning == limit;
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
