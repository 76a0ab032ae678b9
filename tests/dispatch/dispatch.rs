//! Concurrency and nested callbacks in every dispatch architecture, and bounds of queues.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use corelane::{ConnectionLimits, Dispatch, Orb, PoolConfig, SystemExceptionKind};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, Server, client, serve, serve_with, test};

#[test]
fn plain_calls_work_in_every_architecture() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let (_orb, probe) = client(&server.ior);
        assert_eq!(probe.cube_octet(3).unwrap(), 27);
        assert_eq!(probe.echo("Grüße, 世界").unwrap(), "Grüße, 世界");
        assert_eq!(&*probe.mirror(&vec![7; 300_000]).unwrap(), &vec![7; 300_000][..]);
        probe.set_level(5).unwrap();
        assert_eq!(probe.level().unwrap(), 5);
        for _ in 0..10 {
            probe.note(2).unwrap();
        }
        while probe.noted().unwrap() != 20 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn exceptions_arrive_as_they_were_raised() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let (_orb, probe) = client(&server.ior);
        probe.refuse(0).unwrap();
        let test::probe::RefuseError::Refused(refused) = probe.refuse(3).unwrap_err() else { panic!() };
        assert_eq!((refused.code, refused.why.as_str()), (3, "because"));
        let test::probe::RefuseError::System(denied) = probe.refuse(100).unwrap_err() else { panic!() };
        assert_eq!((denied.kind(), denied.minor()), (SystemExceptionKind::NoPermission, 7));
        let panicked = probe.panic().unwrap_err();
        assert_eq!(panicked.kind(), SystemExceptionKind::Unknown);
        assert_eq!(server.orb.event_counts().servants_panicked, 1);
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
    }
}

#[test]
fn nested_callbacks_work_in_every_architecture() {
    for dispatch in EVERY_DISPATCH {
        let (server, peer) = (serve(dispatch), serve(dispatch));
        let ours = peer.probe.clone();
        let remote = ProbeRef::from_object(peer.orb.string_to_object(&server.ior).unwrap().unwrap());
        let remote = remote.with_timeout(Duration::from_secs(20));
        // Depth 3 needs two threads of each side, or one thread that runs requests while it waits.
        assert_eq!(remote.call_back(Some(&ours), 3).unwrap(), 3, "{dispatch:?}");
    }
}

#[test]
fn threads_of_one_reference_do_not_wait_for_each_other() {
    let server = serve(Dispatch::LeaderFollowers { threads: 8 });
    let (orb, probe) = client(&server.ior);
    // `meet` returns when all eight calls have begun.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| probe.meet(8).unwrap());
        }
    });
    drop(orb);
}

/// Ends the call that occupies the only worker when two of the calls behind it have ended.
fn end_when_two_are_over<T>(server: &Server, calls: &[ScopedJoinHandle<'_, T>]) {
    let start = Instant::now();
    while calls.iter().filter(|call| call.is_finished()).count() < 2 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.probe.set_level(1).unwrap();
}

#[test]
fn full_queue_refuses_requests() {
    let server = serve(Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 1 });
    let (_orb, probe) = client(&server.ior);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| probe.wait_for_level(1));
        // A collocated call bypasses the queue and its busy worker.
        while server.probe.started().unwrap() == 0 {
            std::thread::yield_now();
        }
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| probe.slow(0))).collect();
        end_when_two_are_over(&server, &calls);
        let outcomes: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert_eq!(refused.len(), 2, "one request waits, the others are refused: {refused:?}");
        assert!(refused.iter().all(|refused| refused.kind() == SystemExceptionKind::Transient));
        running.join().unwrap().unwrap();
    });
}

#[test]
fn queue_at_its_size_limit_refuses_requests() {
    let dispatch = Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 64 };
    let pool = PoolConfig::default()
        .dispatch(dispatch)
        .connection_limits(ConnectionLimits::default().max_queued_bytes(1 << 20));
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let (_orb, probe) = client(&server.ior);
    let large = vec![0; 3 << 20];
    std::thread::scope(|scope| {
        let running = scope.spawn(|| probe.wait_for_level(1));
        while server.probe.started().unwrap() == 0 {
            std::thread::yield_now();
        }
        // An empty queue takes one request of any size, and then has no room.
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| probe.mirror(&large).map(|octets| octets.len()))).collect();
        end_when_two_are_over(&server, &calls);
        let outcomes: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        let (taken, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((taken.len(), refused.len()), (1, 2), "{refused:?}");
        assert!(refused.iter().all(|call| call.as_ref().unwrap_err().kind() == SystemExceptionKind::Transient));
        running.join().unwrap().unwrap();
    });
    assert_eq!(probe.mirror(&large).unwrap().len(), large.len());
}

#[test]
fn thread_of_a_connection_has_the_connections_number_and_ends_with_the_connection() {
    let server = serve(Dispatch::ThreadPerConnection { max_threads: 1 });
    let (first_orb, first) = client(&server.ior);
    let (_second_orb, second) = client(&server.ior);
    let dedicated = first.thread().unwrap();
    assert!(dedicated.starts_with("pool/c"), "{dedicated}");
    assert!(second.thread().unwrap().starts_with("pool/l"));
    drop(first_orb);
    for _ in 0..1000 {
        let (_orb, next) = client(&server.ior);
        if next.thread().unwrap().starts_with("pool/c") {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("after a connection has closed, no new connection gets a thread");
}
