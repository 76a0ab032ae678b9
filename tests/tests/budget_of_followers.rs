//! What a call costs a pool of several threads, which take turns. Alone in its process, because it counts all threads of it.

use corelane::{Dispatch, Orb, PoolConfig};
use corelane_sys::counters::{self, Counters};
use corelane_tests::{client, serve_with};

const CALLS: u64 = 2000;

/// How often the same calls are counted at most, until nothing came in between.
const TRIES: usize = 20;

/// What the server's threads may come to for a call, between these.
struct Budget {
    system_calls: (f64, f64),
    /// Where they are the transport's own way to wake a client.
    futex: Option<f64>,
}

impl Budget {
    /// Whether that many are within it. What the ORBs do once a second, and a call's end on the way to the next wait, are a few in thousands.
    fn holds(&self, counted: &Counters) -> Result<(), String> {
        let bounds = [
            ("system calls", counted.syscalls, self.system_calls),
            ("futex calls", counted.futex, (0.0, self.futex.unwrap_or(f64::INFINITY))),
            // That of the connection's output.
            ("locks", counted.locks, (0.99, 1.05)),
            ("hand-offs", counted.handoffs, (0.0, 0.02)),
            ("locks of the lane", counted.lane_locks, (0.0, 0.02)),
            ("locks of the ORB", counted.orb_locks, (0.0, 0.02)),
            ("allocations", counted.allocations, (0.0, 0.02)),
        ];
        for (what, count, (least, most)) in bounds {
            if !(least..most).contains(&(count as f64 / CALLS as f64)) {
                return Err(format!("{count} {what} of the server"));
            }
        }
        Ok(())
    }
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
    // What the ORBs do once in a while comes to more for a call where the machine keeps the threads from running: then they are counted anew.
    let mut others = of_others(call);
    for _ in 1..TRIES {
        if budget.holds(&others).is_ok() {
            break;
        }
        others = of_others(call);
    }
    if let Err(what) = budget.holds(&others) {
        panic!("{carrier}: {what} in {CALLS} calls");
    }
}

/// What all threads but the calling one do in [`CALLS`] of its calls.
fn of_others(call: impl Fn()) -> Counters {
    let (all, own) = (counters::of_process(), counters::snapshot());
    (0..CALLS).for_each(|_| call());
    let own = counters::snapshot() - own;
    let all = counters::of_process() - all;
    Counters {
        syscalls: all.syscalls - own.syscalls,
        locks: all.locks - own.locks,
        lane_locks: all.lane_locks - own.lane_locks,
        orb_locks: all.orb_locks - own.orb_locks,
        futex: all.futex - own.futex,
        handoffs: all.handoffs - own.handoffs,
        allocations: all.allocations - own.allocations,
        ..Counters::default()
    }
}
