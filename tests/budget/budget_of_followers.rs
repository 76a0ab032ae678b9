//! The cost of a call in a pool of several threads, which serve requests in turn.
//!
//! The test has a process of its own, because all threads of the process are counted.

use std::time::{Duration, Instant};

use corelane::{Dispatch, Orb, PoolConfig, SpinPolicy};
use corelane_sys::counters;
use corelane_tests::{ProbeRef, serve_with};

const CALLS: u64 = 2000;

/// The interval at which the hang-up monitor looks for idle connections.
///
/// Each of the monitor's checks takes a few system calls and locks.
const ROUND: Duration = Duration::from_millis(50);

/// The permitted range of a call's cost in all threads except the client's.
///
/// A few calls in a thousand may cost more: a call during the ORBs' periodic work, and a call that
/// ends while the serving thread begins its next wait.
struct Budget {
    system_calls: (f64, f64),
    /// The maximum of futex calls, for transports that wake a client by a futex.
    futex: Option<f64>,
}

/// Measures the transports one after the other, because each measurement counts the whole process.
#[test]
fn several_threads_cost_no_more_than_one() {
    // A call over a socket costs a read, a write and a wait. The test does not bound futex calls: a
    // thread may lose its core between sending a reply and releasing the connection's output, so
    // that the next thread waits.
    let socket = || Budget { system_calls: (2.99, 3.05), futex: None };
    // A call over shared memory costs a wait for the bell, which is read once in 64 requests. It
    // also costs a futex call that wakes the client, unless the client already has its reply.
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
    let pool = PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 4 });
    // Polling of sockets is off, because it makes an unknown number of further system calls.
    let builder = || if carrier == "shm" { Orb::builder() } else { Orb::builder().spin_policy(SpinPolicy::Never) };
    let server = serve_with(builder().pool(pool).listen(address));
    let orb = builder().build().unwrap();
    let probe = ProbeRef::from_object(orb.string_to_object(&server.ior).unwrap().unwrap());
    let call = || assert_eq!(probe.cube_long(3).unwrap(), 27);
    // After these calls every thread has served its first request.
    (0..500).for_each(|_| call());
    let began = Instant::now();
    let (all, own) = (counters::process_snapshot(), counters::snapshot());
    (0..CALLS).for_each(|_| call());
    let own = counters::snapshot() - own;
    let others = counters::process_snapshot() - all - own;
    let rounds = began.elapsed().as_secs_f64() / ROUND.as_secs_f64();
    let bounds = [
        ("system calls", others.syscalls, budget.system_calls, 4.0 * rounds),
        ("futex calls", others.futex_calls, (0.0, budget.futex.unwrap_or(f64::INFINITY)), 0.0),
        // A call takes the lock of the connection's output.
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
