//! The cost of a call in a pool of several threads, counted for the whole process.

use std::time::{Duration, Instant};

use corelane::{Dispatch, Orb, PoolConfig, SpinPolicy};
use corelane_sys::counters;
use corelane_tests::{ProbeRef, serve_with};

const CALLS: u64 = 2000;

/// Interval of the hang-up monitor, which may make four system calls and take four locks each time.
const ROUND: Duration = Duration::from_millis(50);

/// Bounds of the mean cost of a call: the minimum and the maximum number of system calls, and the
/// maximum number of futex calls.
struct Budget {
    system_calls: (f64, f64),
    futex: Option<f64>,
}

/// One test for all transports, because the counters are those of the whole process.
#[test]
fn several_threads_cost_no_more_than_one() {
    // For each call over a socket, the server makes three system calls: it reads, writes and waits.
    let socket = || Budget { system_calls: (2.99, 3.05), futex: None };
    // The server waits for the bell once for each call over shared memory, and reads the bell once
    // in 64 calls. A futex call wakes the client if it sleeps.
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
    let builder = || if carrier == "shm" { Orb::builder() } else { Orb::builder().spin_policy(SpinPolicy::Never) };
    let server = serve_with(builder().pool(pool).listen(address));
    let orb = builder().build().unwrap();
    let probe = ProbeRef::from_object(orb.string_to_object(&server.ior).unwrap().unwrap());
    let call = || assert_eq!(probe.cube_long(3).unwrap(), 27);
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
