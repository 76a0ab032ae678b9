//! Calls that find every connection to their server in use.

use std::time::Duration;

use corelane::{CallPhase, Completion, Dispatch, Orb, SystemExceptionKind as Kind};
use corelane_tests::{ProbeRef, serve};

fn client_of(connections: usize, ior: &str) -> (Orb, ProbeRef) {
    let orb = Orb::builder().max_connections_per_server(connections).build().unwrap();
    let object = orb.string_to_object(ior).unwrap().unwrap();
    (orb, ProbeRef::from_object(object))
}

#[test]
fn calls_of_more_threads_than_connections_all_succeed() {
    let server = serve(Dispatch::LeaderFollowers { threads: 4 });
    let (_orb, probe) = client_of(2, &server.ior);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| (0..200).for_each(|_| assert_eq!(probe.cube_octet(3).unwrap(), 27)));
        }
    });
    assert!(server.orb.event_counts().connections_opened <= 2);
}

#[test]
fn call_that_gets_no_connection_in_time_is_not_sent() {
    let server = serve(Dispatch::LeaderFollowers { threads: 4 });
    let (_orb, probe) = client_of(1, &server.ior);
    std::thread::scope(|scope| {
        let long = scope.spawn(|| probe.wait_for_level(1));
        while server.probe.started().unwrap() == 0 {
            std::thread::yield_now();
        }
        let late = probe.with_timeout(Duration::from_millis(10)).cube_octet(2).unwrap_err();
        assert_eq!((late.kind(), late.completed()), (Kind::Timeout, Completion::No));
        assert_eq!(late.detail().and_then(|detail| detail.phase), Some(CallPhase::AcquireConnection));
        server.probe.set_level(1).unwrap();
        long.join().unwrap().unwrap();
    });
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    assert_eq!(server.orb.event_counts().connections_opened, 1);
}
