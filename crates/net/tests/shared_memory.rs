//! Tests of shared memory beyond the conformance suite: peers in other processes, dead peers and
//! hostile peers.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane_net::{
    Endpoint, Listener, SharedMemoryTransport, ShutdownDirection, SpinPolicy, Stream, Transport, WaitLimit,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::counters::snapshot;
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::ring::{RingPair, RingSizes};
use corelane_sys::{poll, socket};

/// Environment variable with the path of the socket. It makes this test binary the other process.
const OTHER: &str = "CORELANE_TEST_SHM";

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("corelane-shm-{}-{name}", std::process::id()))
}

fn listen(name: &str) -> (Box<dyn Listener>, PathBuf) {
    let path = path(name);
    (SharedMemoryTransport::default().listen(&Endpoint::shared_memory(&path)).unwrap(), path)
}

fn accept(listener: &dyn Listener) -> Box<dyn Stream> {
    loop {
        poll::wait_readable(listener.readiness_descriptor(), None).unwrap();
        match listener.accept() {
            Ok(stream) => return stream,
            Err(error) => {
                assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted), "{error}")
            }
        }
    }
}

fn pair(name: &str) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let (listener, _) = listen(name);
    let client = SharedMemoryTransport::default().connect(listener.local_endpoint(), None).unwrap();
    (client, accept(&*listener))
}

fn other_process(path: &PathBuf) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new(program).args(["--exact", "run_as_the_other_process"]).env(OTHER, path).spawn().unwrap()
}

/// Echoes arriving bytes, in a process that another test has started.
#[test]
fn run_as_the_other_process() {
    let Some(path) = std::env::var_os(OTHER) else { return };
    let client = SharedMemoryTransport::default().connect(&Endpoint::shared_memory(path), None).unwrap();
    let mut buffer = vec![0; 100_000];
    loop {
        let count = client.recv(&mut buffer, WaitLimit::Block).unwrap();
        let mut left = &buffer[..count];
        if count == 0 {
            return;
        }
        while !left.is_empty() {
            left = &left[client.send(left, WaitLimit::Block).unwrap()..];
        }
    }
}

#[test]
fn two_processes_exchange_more_than_the_rings_hold() {
    let (listener, path) = listen("two");
    let mut child = other_process(&path);
    let server = accept(&*listener);
    let octets: Vec<u8> = (0..1_000_000u32).map(|n| (n / 3) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = &octets[..];
            while !left.is_empty() {
                left = &left[server.send(left, WaitLimit::Block).unwrap()..];
            }
        });
        let mut echoed = Vec::<u8>::new();
        let mut buffer = [0; 3001];
        while echoed.len() < octets.len() {
            let count = server.recv(&mut buffer, WaitLimit::Block).unwrap();
            echoed.extend(&buffer[..count]);
        }
        assert!(echoed == octets);
    });
    for round in 0..2000u32 {
        server.send(&round.to_le_bytes(), WaitLimit::Block).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(server.recv(&mut buffer, WaitLimit::Block).unwrap(), 4);
        assert_eq!(buffer[..4], round.to_le_bytes());
    }
    server.shutdown(ShutdownDirection::Write);
    assert!(child.wait().unwrap().success());
}

#[test]
fn large_messages_arrive_unchanged_with_few_wake_ups() {
    for (name, policy) in
        [("large", SpinPolicy::Adaptive { max_spin: Duration::from_micros(20) }), ("large-s", SpinPolicy::Never)]
    {
        let (client, server) = pair(name);
        client.set_spin_policy(policy);
        server.set_spin_policy(policy);
        let part = 16 * 1024;
        let near = |size: usize| [size - 1, size, size + 1];
        let sizes: Vec<usize> = [1, part, 4 * part, 5 * part + 7, 1 << 20, 5_000_000]
            .into_iter()
            .flat_map(near)
            .filter(|size| *size > 0)
            .collect();
        let total: usize = sizes.iter().sum();
        let octet = |at: usize| (at % 251) as u8;
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let before = snapshot();
                let mut buffer = vec![0; 2_000_000];
                for (number, size) in sizes.iter().enumerate() {
                    let mut read = 0;
                    while read < *size {
                        let room = buffer.len().min(size - read);
                        let wait = if number % 3 == 0 { WaitLimit::Now } else { WaitLimit::Block };
                        let count = match server.recv(&mut buffer[..room], wait) {
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                                poll::wait_readable(server.readiness_descriptor().unwrap(), None).unwrap();
                                assert!(server.arm_readiness().is_ok());
                                continue;
                            }
                            other => other.unwrap(),
                        };
                        assert!((1..=room).contains(&count));
                        assert!((0..count).all(|at| buffer[at] == octet(read + at)), "message {number} at {read}");
                        read += count;
                    }
                }
                (snapshot() - before).futex_calls
            });
            let before = snapshot();
            for (number, size) in sizes.iter().enumerate() {
                let message: Vec<u8> = (0..*size).map(octet).collect();
                let mut left = &message[..];
                while !left.is_empty() {
                    let cut = left.len().min(12 + number);
                    let slices = [IoSlice::new(&left[..cut]), IoSlice::new(b""), IoSlice::new(&left[cut..])];
                    left = &left[client.send_vectored(&slices, WaitLimit::Block).unwrap()..];
                }
            }
            // Each part, and each message, may cost one wake-up and one sleep.
            let bound = 2 * (total / part + 2 * sizes.len()) as u64;
            let calls = ((snapshot() - before).futex_calls, reader.join().unwrap());
            assert!(calls.0 <= bound && calls.1 <= bound, "{calls:?} of {bound}");
        });
    }
}

#[test]
fn killed_peer_ends_the_stream_of_a_waiting_thread() {
    for waits_to_write in [false, true] {
        let (listener, path) = listen(if waits_to_write { "killed-w" } else { "killed" });
        let mut child = other_process(&path);
        let server = accept(&*listener);
        server.send(b"there?", WaitLimit::Block).unwrap();
        assert_eq!(server.recv(&mut [0; 100], WaitLimit::Block).unwrap(), 6);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                if waits_to_write {
                    while server.send(&[1; 50_000], WaitLimit::Block).is_ok() {}
                    0
                } else {
                    server.recv(&mut [0; 8], WaitLimit::Block).unwrap_or(0)
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            child.kill().unwrap();
            assert_eq!(waiting.join().unwrap(), 0);
        });
        child.wait().unwrap();
        // A thread that does not wait must see the end after it has read the remaining bytes.
        while server.recv(&mut [0; 100_000], WaitLimit::Now).unwrap() > 0 {}
    }
}

#[test]
fn long_waiting_reader_is_woken() {
    let (client, server) = pair("bell");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut octet = [0];
            for _ in 0..3 {
                assert_eq!(server.recv(&mut octet, WaitLimit::Block).unwrap(), 1);
            }
            octet[0]
        });
        for octet in 1..=3 {
            std::thread::sleep(Duration::from_millis(120));
            client.send(&[octet], WaitLimit::Block).unwrap();
        }
        assert_eq!(reader.join().unwrap(), 3);
    });
}

#[test]
fn every_arrival_after_a_short_read_is_an_edge() {
    let (client, server) = pair("edges");
    let epoll = Epoll::new().unwrap();
    epoll
        .add(server.readiness_descriptor().unwrap(), 1, Interest::READABLE | Interest::HANG_UP | Interest::EDGE)
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            for round in 0..5000usize {
                let size = round % 63 + 1;
                assert_eq!(client.send(&[7; 63][..size], WaitLimit::Block).unwrap(), size);
                let mut there = 0;
                while there < size {
                    there += client.recv(&mut buffer, WaitLimit::Block).unwrap();
                }
            }
            client.shutdown(ShutdownDirection::Both);
        });
        let mut buffer = [0; 200];
        let mut events = [EpollEvent::EMPTY; 1];
        loop {
            assert_eq!(epoll.wait(&mut events, Some(Duration::from_secs(60))).unwrap(), 1, "expected an edge");
            match server.recv(&mut buffer, WaitLimit::Now) {
                Ok(0) => break,
                Ok(count) => drop(server.send(&buffer[..count], WaitLimit::Now)),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    });
}

#[test]
fn room_is_an_edge_for_a_refused_writer() {
    let (client, server) = pair("room");
    let epoll = Epoll::new().unwrap();
    epoll.add(server.readiness_descriptor().unwrap(), 1, Interest::READABLE | Interest::EDGE).unwrap();
    let total = 3_000_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = total;
            let mut buffer = [0; 10_000];
            while left > 0 {
                left -= client.recv(&mut buffer, WaitLimit::Block).unwrap();
            }
        });
        let mut events = [EpollEvent::EMPTY; 1];
        let mut left = total;
        while left > 0 {
            match server.send(&[0; 70_000][..left.min(70_000)], WaitLimit::Now) {
                Ok(count) => left -= count,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    assert_eq!(epoll.wait(&mut events, Some(Duration::from_secs(60))).unwrap(), 1, "expected an edge");
                    // A thread that reads the stream must not consume the writer's edge.
                    assert!(server.recv(&mut [0; 8], WaitLimit::Now).is_err());
                }
            }
        }
    });
}

/// Regression test: a thread that waited for data read the bell's bytes, which reported room to a
/// writer.
#[test]
fn thread_that_waits_for_data_leaves_the_edge_of_a_refused_writer() {
    let (client, server) = pair("armed");
    let epoll = Epoll::new().unwrap();
    epoll.add(server.readiness_descriptor().unwrap(), 1, Interest::READABLE | Interest::EDGE).unwrap();
    while server.send(&[0; 70_000], WaitLimit::Now).is_ok() {}
    client.recv(&mut [0; 100_000], WaitLimit::Now).unwrap();
    // The room has been reported, but the writer's thread has not run yet. So the edge must stay.
    assert_eq!(server.arm_readiness().unwrap(), Some(true));
    let mut events = [EpollEvent::EMPTY; 1];
    assert_eq!(epoll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1, "the edge is lost");
    assert!(server.send(&[0; 10], WaitLimit::Now).is_ok());
    assert_eq!(server.arm_readiness().unwrap(), Some(false));
}

/// The test requests the bell more often than the socket's buffer has room for the bell's bytes,
/// which no thread of the test reads.
#[test]
fn writer_with_repeated_room_edges_is_not_disconnected() {
    let (client, server) = pair("deaf");
    let epoll = Epoll::new().unwrap();
    epoll.add(server.readiness_descriptor().unwrap(), 1, Interest::READABLE | Interest::EDGE).unwrap();
    let total = 60_000_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = total;
            let mut buffer = [0; 10_000];
            while left > 0 {
                let count = client.recv(&mut buffer, WaitLimit::Block).unwrap();
                assert!(count > 0, "expected {left} more octets before the end of the stream");
                left -= count;
            }
            client.send(b"thanks", WaitLimit::Block).unwrap();
        });
        let mut events = [EpollEvent::EMPTY; 1];
        let mut left = total;
        while left > 0 {
            match server.send(&[7; 40_000][..left.min(40_000)], WaitLimit::Now) {
                Ok(count) => left -= count,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    assert_eq!(epoll.wait(&mut events, Some(Duration::from_secs(60))).unwrap(), 1, "expected an edge");
                }
            }
        }
        let mut buffer = [0; 8];
        while !matches!(server.recv(&mut buffer, WaitLimit::Now), Ok(6)) {
            assert_eq!(epoll.wait(&mut events, Some(Duration::from_secs(60))).unwrap(), 1, "expected an edge");
        }
    });
}

#[test]
fn armed_descriptor_reports_data() {
    let (client, server) = pair("polled");
    for round in 0..200 {
        assert_eq!(client.arm_readiness().unwrap(), Some(false));
        let now = Some(Monotonic::from_nanos(0));
        assert!(!poll::wait_readable(client.readiness_descriptor().unwrap(), now).unwrap(), "round {round}");
        server.send(b"x", WaitLimit::Now).unwrap();
        assert!(poll::wait_readable(client.readiness_descriptor().unwrap(), None).unwrap());
        assert_eq!(client.arm_readiness().unwrap(), Some(true));
        assert_eq!(client.recv(&mut [0; 8], WaitLimit::Block).unwrap(), 1);
    }
    drop(server);
    assert_eq!(client.arm_readiness().unwrap(), Some(true));
}

#[test]
fn silent_or_malformed_clients_delay_no_other_client() {
    let (listener, path) = listen("slow");
    let silent: Vec<_> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut liar = UnixStream::connect(&path).unwrap();
    liar.write_all(b"GIOP\x01\x02\x00\x00 and so on").unwrap();
    let mut header = b"CLNRINGS".to_vec();
    header.extend([1, 65536, 65536].map(u32::to_le_bytes).concat());
    UnixStream::connect(&path).unwrap().write_all(&header).unwrap();
    let other = UnixStream::connect(&path).unwrap();
    let file = File::open("/dev/null").unwrap();
    socket::send_with_descriptor(other.as_fd(), &header, file.as_fd(), socket::WaitMode::Now).unwrap();
    let large = RingSizes::at_least(16 << 20, 4096);
    let greedy = UnixStream::connect(&path).unwrap();
    let (_rings, memory) = RingPair::create(large).unwrap();
    header[12..20].copy_from_slice(&[large.to_server(), large.to_client()].map(u32::to_le_bytes).concat());
    socket::send_with_descriptor(greedy.as_fd(), &header, memory.as_fd(), socket::WaitMode::Now).unwrap();
    let client = SharedMemoryTransport::default().connect(listener.local_endpoint(), None).unwrap();
    let server = accept(&*listener);
    client.send(b"x", WaitLimit::Block).unwrap();
    assert_eq!(server.recv(&mut [0; 8], WaitLimit::Block).unwrap(), 1);
    drop(silent);
}

#[test]
fn calls_with_a_hostile_peer_end_in_time() {
    against_a_hostile_peer("hostile", 4096, 5000);
}

#[test]
fn large_calls_with_a_hostile_peer_end_in_time() {
    against_a_hostile_peer("hostile-l", 65_536, 200_000);
}

fn against_a_hostile_peer(name: &str, ring: u32, message: usize) {
    let (listener, path) = listen(name);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sizes = RingSizes::at_least(ring, ring);
            let mut header = b"CLNRINGS".to_vec();
            header.extend([1, ring, ring].map(u32::to_le_bytes).concat());
            let mut state = 0x2545_f491_4f6c_dd1du64;
            while !stop.load(Ordering::Relaxed) {
                let socket = UnixStream::connect(&path).unwrap();
                let (_rings, memory) = RingPair::create(sizes).unwrap();
                socket::send_with_descriptor(socket.as_fd(), &header, memory.as_fd(), socket::WaitMode::Now).unwrap();
                let memory = File::from(memory);
                for _ in 0..3000 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    // Most writes change the control words of both directions.
                    let offset = if state & 1 == 0 { (state >> 8) % 16 * 128 } else { (state >> 8) % 3072 * 4 };
                    let value = if state & 6 == 0 { state as u32 } else { (state >> 40) as u32 % (ring + 4) };
                    memory.write_all_at(&value.to_le_bytes(), offset).unwrap();
                    if state & 0xf0 == 0 {
                        let _ = socket::send(socket.as_fd(), &[0; 3], socket::WaitMode::Now);
                    }
                }
            }
        });
        for _ in 0..30 {
            let server = accept(&*listener);
            let mut buffer = vec![0; message + 1000];
            let body = vec![2; message];
            let slices = [IoSlice::new(&[1; 700]), IoSlice::new(&body)];
            for round in 0..100 {
                let soon = WaitLimit::Until(Monotonic::now() + Duration::from_micros(100));
                let wait = if round % 2 == 0 { soon } else { WaitLimit::Now };
                if let Ok(count) = server.recv(&mut buffer, wait) {
                    assert!(count <= message + 1000);
                }
                if let Ok(count) = server.send_vectored(&slices, wait) {
                    assert!(count <= message + 1000);
                }
                let _ = server.arm_readiness();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
