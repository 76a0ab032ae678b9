//! The connections of a client: the calls that share a connection, and the end of idle connections.

use std::time::{Duration, Instant};

use corelane::{Dispatch, Orb};
use corelane_sys::thread::{Scheduling, ThreadBuilder};
use corelane_tests::{ProbeRef, client, serve};

#[test]
fn no_connection_carries_two_native_priorities() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (_orb, probe) = client(&server.ior);
    let call_at = |scheduling| {
        let probe = probe.clone();
        let thread = ThreadBuilder::new().scheduling(scheduling).spawn(move || probe.cube_octet(2).unwrap());
        thread.expect("a thread of this scheduling class: SCHED_FIFO takes root or RLIMIT_RTPRIO").join().unwrap()
    };
    for _ in 0..3 {
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
        assert_eq!(call_at(Scheduling::Fifo(5)), 8);
        assert_eq!(call_at(Scheduling::Fifo(6)), 8);
        assert_eq!(call_at(Scheduling::Other), 8);
    }
    assert_eq!(server.orb.event_counts().connections_opened, 3);
}

#[test]
fn idle_connections_end() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let orb = Orb::builder().idle_connection_timeout(Duration::from_millis(40)).build().unwrap();
    let probe: ProbeRef = orb.string_to_reference(&server.ior).unwrap();
    for connections in 1..=2 {
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
        let start = Instant::now();
        while server.orb.event_counts().connections_closed < connections {
            assert!(start.elapsed() < Duration::from_secs(60), "the client does not close the idle connection");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(server.orb.event_counts().connections_opened, 2);
}
