//! What a call costs a pool of several threads, which take turns. Alone in its process, because it counts all threads of it.

use corelane::Dispatch;
use corelane_sys::counters;
use corelane_tests::{client, serve};

const CALLS: u64 = 2000;

#[test]
fn followers_cost_nothing() {
    let server = serve(Dispatch::LeaderFollowers { threads: 4 });
    let (_orb, probe) = client(&server.ior);
    let call = || assert_eq!(probe.cube_long(3).unwrap(), 27);
    // Each of the threads has had its first request.
    (0..500).for_each(|_| call());
    let (all, own) = (counters::of_process(), counters::snapshot());
    (0..CALLS).for_each(|_| call());
    let own = counters::snapshot() - own;
    let all = counters::of_process() - all;
    // Futex calls are not asserted: who has just sent a reply, and lost the core before it gave the connection's output back, makes the
    // next one wait, as seldom as that is. What the ORBs do once a second, and a call's end on the way to the next wait: a few in thousands.
    let each = |all: u64, own: u64| (all - own) as f64 / CALLS as f64;
    let system_calls = each(all.syscalls, own.syscalls);
    assert!((2.99..3.05).contains(&system_calls), "{system_calls} system calls of the server for a call");
    for (what, all, own) in [
        ("hand-offs", all.handoffs, own.handoffs),
        ("locks of the lane", all.lane_locks, own.lane_locks),
        ("locks of the ORB", all.orb_locks, own.orb_locks),
        ("allocations", all.allocations, own.allocations),
    ] {
        assert!(each(all, own) < 0.02, "{} {what} in {CALLS} calls", all - own);
    }
}
