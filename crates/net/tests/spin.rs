//! Tests of polling before sleeping.
#![allow(clippy::disallowed_types, reason = "a test may lock as it likes")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corelane_net::{
    Endpoint, Listener, Peer, SpinPolicy, Stream, TcpTransport, Transport, UnixTransport, WaitLimit,
    spinning_thread_count,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::counters::{self, snapshot};
use corelane_sys::{poll, thread};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Returns a guard by which the tests run one after the other, because permits to poll and counts
/// belong to the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &dyn Listener) -> Box<dyn Stream> {
    poll::wait_readable(listener.readiness_descriptor(), None).unwrap();
    listener.accept().unwrap()
}

fn each(name: &str, check: impl Fn(&dyn Stream, &dyn Stream)) {
    let path = std::env::temp_dir().join(format!("corelane-spin-{}-{name}", std::process::id()));
    let transports: [(Box<dyn Transport>, Endpoint); 2] = [
        (Box::new(TcpTransport::new()), Endpoint::tcp("127.0.0.1", 0)),
        (Box::new(UnixTransport), Endpoint::unix(path)),
    ];
    for (transport, endpoint) in transports {
        let listener = transport.listen(&endpoint).unwrap();
        let client = transport.connect(listener.local_endpoint(), None).unwrap();
        let server = accept(&*listener);
        [&client, &server].into_iter().for_each(|stream| stream.set_spin_policy(SpinPolicy::Never));
        check(&*client, &*server);
    }
}

/// Makes the system calls that a thread makes only at its first wait.
fn ask_once() {
    poll::minimize_timer_slack();
    thread::native_priority();
}

fn wait_until_asleep(tid: thread::Tid) {
    let state = format!("/proc/self/task/{}/stat", tid.as_raw());
    let end = Monotonic::now() + Duration::from_secs(60);
    loop {
        assert!(!end.is_past(), "expected the thread to fall asleep");
        let stat = std::fs::read_to_string(&state).unwrap();
        if stat.rsplit(')').next().unwrap().starts_with(" S") {
            return;
        }
        std::thread::yield_now();
    }
}

/// Lets a thread wait in `recv`, and returns the number of system calls of this wait. The peer
/// writes when the thread sleeps.
fn syscalls_of_a_long_wait(reader: &dyn Stream, writer: &dyn Stream, wait: WaitLimit) -> u64 {
    let (told, tid) = (AtomicBool::new(false), std::sync::OnceLock::new());
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            ask_once();
            tid.set(thread::current_tid()).unwrap();
            told.store(true, Ordering::Release);
            let before = snapshot();
            assert_eq!(reader.recv(&mut [0; 8], wait).unwrap(), 1);
            (snapshot() - before).syscalls
        });
        while !told.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        wait_until_asleep(*tid.get().unwrap());
        // An idle thread must make no system calls, even if it polled before it fell asleep.
        let before = counters::process_snapshot();
        std::thread::sleep(20 * MILLISECOND);
        assert_eq!((counters::process_snapshot() - before).syscalls, 0);
        writer.send(b"x", WaitLimit::Block).unwrap();
        reading.join().unwrap()
    })
}

#[test]
fn thread_polls_only_with_permission_and_idle_thread_makes_no_calls() {
    let _alone = alone();
    counters::process_snapshot();
    each("syscalls", |client, server| {
        let soon = || WaitLimit::Until(Monotonic::now() + Duration::from_secs(60));
        assert_eq!(syscalls_of_a_long_wait(server, client, WaitLimit::Block), 1);
        // With a precise deadline the thread first asks the kernel for readiness, which is a second
        // system call.
        assert_eq!(syscalls_of_a_long_wait(server, client, soon()), 2);
        server.set_spin_policy(SpinPolicy::Always { max_spin: SpinPolicy::MAX_SPIN });
        let end = Monotonic::now() + Duration::from_secs(60);
        for wait in [WaitLimit::Block, soon()] {
            // Other programs may keep the thread from its core while it polls, so the test tries
            // again.
            while thread::online_cores() > 1 && syscalls_of_a_long_wait(server, client, wait) <= 3 {
                assert!(!end.is_past(), "expected the thread to poll");
            }
        }
        server.set_spin_policy(SpinPolicy::Never);
        assert_eq!(syscalls_of_a_long_wait(server, client, WaitLimit::Block), 1);
    });
}

#[test]
fn adaptive_threads_stop_polling_for_a_slow_peer() {
    let _alone = alone();
    each("slow", |client, server| {
        server.set_spin_policy(SpinPolicy::Adaptive { max_spin: Duration::from_nanos(1) });
        let mut buffer = [0; 8];
        // After this arrival a TCP socket reports the core on which the peer runs.
        client.send(b"x", WaitLimit::Block).unwrap();
        assert_eq!(server.recv(&mut buffer, WaitLimit::Block).unwrap(), 1);
        ask_once();
        let before = snapshot();
        for _ in 0..1000 {
            let soon = WaitLimit::Until(Monotonic::now() + MILLISECOND / 50);
            assert_eq!(server.recv(&mut buffer, soon).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        let syscalls = (snapshot() - before).syscalls;
        // A thread that does not poll makes one system call for each wait.
        assert!(syscalls < 1050, "{syscalls}");
        let may_poll = matches!(client.peer(), Peer::Process { .. }) && thread::online_cores() > 1;
        assert!(syscalls > 1000 || !may_poll, "{syscalls}");
        client.send(b"x", WaitLimit::Block).unwrap();
        assert_eq!(server.recv(&mut [0; 8], WaitLimit::Block).unwrap(), 1);
    });
}

#[test]
fn polling_respects_deadline_data_and_end() {
    let _alone = alone();
    each("deadline", |client, server| {
        server.set_spin_policy(SpinPolicy::Always { max_spin: 100 * MILLISECOND });
        let mut buffer = [0; 8];
        let soon = Monotonic::now() + MILLISECOND;
        assert_eq!(server.recv(&mut buffer, WaitLimit::Until(soon)).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(soon.is_past());
        client.send(b"late", WaitLimit::Block).unwrap();
        assert_eq!(server.recv(&mut buffer, WaitLimit::Until(soon)).unwrap(), 4);
        assert_eq!(server.recv(&mut buffer, WaitLimit::Now).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.shutdown(corelane_net::ShutdownDirection::Write);
        assert_eq!(server.recv(&mut buffer, WaitLimit::Block).unwrap(), 0);
    });
}

#[test]
fn fewer_threads_than_cores_poll_at_once() {
    let _alone = alone();
    let limit = thread::online_cores() - 1;
    let listener = TcpTransport::new().listen(&Endpoint::tcp("127.0.0.1", 0)).unwrap();
    let pairs: Vec<_> = (0..limit + 3)
        .map(|_| {
            let client = TcpTransport::new().connect(listener.local_endpoint(), None).unwrap();
            client.set_spin_policy(SpinPolicy::Always { max_spin: SpinPolicy::MAX_SPIN });
            (client, accept(&*listener))
        })
        .collect();
    let is_over = AtomicBool::new(false);
    let end = Monotonic::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        for (client, _) in &pairs {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = client.recv(&mut [0; 8], WaitLimit::Until(Monotonic::now() + 10 * MILLISECOND));
                }
            });
        }
        let mut most = 0;
        while most < limit {
            assert!(!end.is_past(), "{most} threads poll");
            most = most.max(spinning_thread_count());
        }
        for _ in 0..100_000 {
            assert!(spinning_thread_count() <= limit);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(spinning_thread_count(), 0);
}
