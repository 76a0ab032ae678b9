//! What a call costs a pool of several threads, which take turns. Alone in its process, because it counts all threads of it.

use corelane::{Dispatch, Orb, PoolConfig};
use corelane_sys::counters;
use corelane_tests::{client, serve_with};

const CALLS: u64 = 2000;

/// What the server's threads may come to for a call, between these.
struct Budget {
    system_calls: (f64, f64),
    /// Where they are the transport's own way to wake a client.
    futex: Option<f64>,
}

/// One after another: each counts what happens anywhere in the process.
#[test]
fn followers_cost_nothing() {
    // Reads, writes, and waits. Futex calls are not asserted: who has just sent a reply, and lost the core before it gave the connection's
    // output back, makes the next one wait, as seldom as that is.
    let socket = || Budget { system_calls: (2.99, 3.05), futex: None };
    // Waits for the bell, whose octets are read once in 64 requests, and wakes the client from its futex unless that has the reply already.
    let rings = Budget { system_calls: (0.99, 1.07), futex: Some(1.05) };
    for (carrier, budget) in [("tcp", socket()), ("unix", socket()), ("shm", rings)] {
        followers_cost(carrier, &budget);
    }
}

fn followers_cost(carrier: &str, budget: &Budget) {
    let path = std::env::temp_dir().join(format!("corelane-followers-{}-{carrier}", std::process::id()));
    let address = match carrier {
        "tcp" => "tcp:127.0.0.1:0".to_owned(),
        _ => format!("{carrier}:{}", path.display()),
    };
    let pool = PoolConfig { dispatch: Dispatch::LeaderFollowers { threads: 4 }, ..PoolConfig::default() };
    let server = serve_with(Orb::builder().pool(pool).listen(address));
    let (_orb, probe) = client(&server.ior);
    let call = || assert_eq!(probe.cube_long(3).unwrap(), 27);
    // Each of the threads has had its first request.
    (0..500).for_each(|_| call());
    let (all, own) = (counters::of_process(), counters::snapshot());
    (0..CALLS).for_each(|_| call());
    let own = counters::snapshot() - own;
    let all = counters::of_process() - all;
    // What the ORBs do once a second, and a call's end on the way to the next wait: a few in thousands.
    let each = |all: u64, own: u64| (all - own) as f64 / CALLS as f64;
    let (system_calls, futex) = (each(all.syscalls, own.syscalls), each(all.futex, own.futex));
    let (least, most) = budget.system_calls;
    assert!((least..most).contains(&system_calls), "{carrier}: {system_calls} system calls of the server for a call");
    assert!(budget.futex.is_none_or(|most| futex < most), "{carrier}: {futex} futex calls of the server for a call");
    let locks = each(all.locks, own.locks);
    assert!(
        (0.99..1.05).contains(&locks),
        "{carrier}: {locks} locks for a call, beside that of the connection's output"
    );
    for (what, all, own) in [
        ("hand-offs", all.handoffs, own.handoffs),
        ("locks of the lane", all.lane_locks, own.lane_locks),
        ("locks of the ORB", all.orb_locks, own.orb_locks),
        ("allocations", all.allocations, own.allocations),
    ] {
        assert!(each(all, own) < 0.02, "{carrier}: {} {what} in {CALLS} calls", all - own);
    }
}
