//! What a call costs a pool of several threads, which take turns. Alone in its process, because it counts all threads of it.

use std::time::{Duration, Instant};

use corelane::{Dispatch, Orb, PoolConfig};
use corelane_sys::counters;
use corelane_tests::{client, serve_with};

const CALLS: u64 = 2000;

/// How often the thread that watches connections looks whether those in steady use are quiet, which takes a few system calls and locks.
const ROUND: Duration = Duration::from_millis(50);

/// What all threads but the client's may come to for a call, between these; with what the ORBs do once a second, and a call's end on the way
/// to the next wait: a few in thousands.
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
    let began = Instant::now();
    let (all, own) = (counters::of_process(), counters::snapshot());
    (0..CALLS).for_each(|_| call());
    let own = counters::snapshot() - own;
    let others = counters::of_process() - all - own;
    let rounds = began.elapsed().as_secs_f64() / ROUND.as_secs_f64();
    let bounds = [
        ("system calls", others.syscalls, budget.system_calls, 4.0 * rounds),
        ("futex calls", others.futex, (0.0, budget.futex.unwrap_or(f64::INFINITY)), 0.0),
        // That of the connection's output.
        ("locks", others.locks, (0.99, 1.05), 4.0 * rounds),
        ("hand-offs", others.handoffs, (0.0, 0.02), 0.0),
        ("locks of the lane", others.lane_locks, (0.0, 0.02), 0.0),
        ("locks of the ORB", others.orb_locks, (0.0, 0.02), 4.0 * rounds),
        ("allocations", others.allocations, (0.0, 0.02), 0.0),
    ];
    for (what, count, (least, most), besides) in bounds {
        let (least, most) = (least * CALLS as f64, most * CALLS as f64 + besides);
        assert!(
            (least..=most).contains(&(count as f64)),
            "{carrier}: {count} {what} in {CALLS} calls, {least} to {most} may be"
        );
    }
}
