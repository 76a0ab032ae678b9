//! Peers that mean harm, or are broken: no panic, no memory or time without bound, and nobody else notices.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::{Dispatch, Endpoint, Orb, PoolConfig, Reference};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, Server, client, serve, serve_with};

fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A request that the server of the tests answers, as a client sends it.
fn real_request(server: &Server) -> Vec<u8> {
    // What a client writes is what a listener reads.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut message = vec![0; 4096];
        let length = stream.read(&mut message).unwrap();
        message.truncate(length);
        message
    });
    let orb = Orb::new().unwrap();
    let object = orb.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/HostileKey")).unwrap().unwrap();
    let probe = ProbeRef::from_object(object);
    let _ = probe.echo("a text of some length");
    server.orb.bind_key("HostileKey", server.probe.as_object()).ok();
    reader.join().unwrap()
}

#[test]
fn garbage_is_answered_with_message_error_and_the_end() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let mut stream = connect(&server);
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(&answer[..4], b"GIOP", "{dispatch:?}");
        assert_eq!(answer[7], 6, "{dispatch:?}: MessageError");
        assert_eq!(server.orb.event_counts().protocol_faults, 1);
        assert_eq!(client(&server.ior).1.cube_octet(2).unwrap(), 8);
    }
}

#[test]
fn announced_lengths_commit_no_memory() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let before = resident();
    let streams: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(b"GIOP\x01\x02\x00\x00\x03\xc0\x00\x00").unwrap();
            stream
        })
        .collect();
    let (_orb, probe) = client(&server.ior);
    for _ in 0..100 {
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
    }
    while server.orb.event_counts().connections_opened < 201 {
        std::thread::yield_now();
    }
    assert!(resident() < before + 100 * 1024, "{} KiB more", resident() - before);
    drop(streams);
}

#[test]
fn unfinished_fragmented_requests_are_capped() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let mut stream = connect(&server);
    let mut sent = 0;
    for id in 0u32..6000 {
        let mut message = b"GIOP\x01\x02\x03\x00\x0c\x00\x00\x00".to_vec();
        message.extend_from_slice(&id.to_le_bytes());
        message.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
        if stream.write_all(&message).is_err() {
            break;
        }
        sent += 1;
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(server.orb.event_counts().protocol_faults, 1, "after {sent} messages");
    assert_eq!(client(&server.ior).1.cube_octet(2).unwrap(), 8);
}

/// 10,000 real messages, each damaged somewhere, while well-behaved clients notice nothing.
#[test]
fn mutated_messages_disturb_nobody() {
    for dispatch in [Dispatch::LeaderFollowers { threads: 3 }, Dispatch::ThreadPerConnection { most: 8 }] {
        let server = serve(dispatch);
        let request = real_request(&server);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let well_behaved: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let (_orb, probe) = client(&server.ior);
                        let mut calls = 0u64;
                        while !done.load(Ordering::Relaxed) {
                            assert_eq!(probe.cube_long(3).unwrap(), 27);
                            assert_eq!(probe.echo("undisturbed").unwrap(), "undisturbed");
                            calls += 1;
                        }
                        calls
                    })
                })
                .collect();
            let mut random = 0x9e37_79b9_7f4a_7c15u64;
            let mut next = || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                usize::try_from(random >> 16).unwrap()
            };
            let mut stream = connect(&server);
            for _ in 0..10_000 {
                let mut message = request.clone();
                for _ in 0..1 + next() % 4 {
                    let at = next() % message.len();
                    message[at] = next().to_le_bytes()[0];
                }
                if next() % 8 == 0 {
                    message.truncate(next() % message.len());
                }
                // A server that has had enough of a connection closes it: the next one, then.
                if stream.write_all(&message).is_err() || next() % 16 == 0 {
                    let _ = stream.shutdown(Shutdown::Both);
                    stream = connect(&server);
                }
            }
            done.store(true, Ordering::Relaxed);
            for client in well_behaved {
                assert!(client.join().unwrap() > 0);
            }
        });
        assert_eq!(server.orb.event_counts().panics, 0);
        assert!(server.orb.event_counts().protocol_faults > 0);
        assert_eq!(client(&server.ior).1.cube_octet(2).unwrap(), 8);
    }
}

/// A peer that sends half a message and then nothing is given up; the pool's threads are not held by it meanwhile.
#[test]
fn stalled_messages_are_given_up() {
    let pool = PoolConfig {
        dispatch: Dispatch::LeaderFollowers { threads: 1 },
        message_timeout: Duration::from_millis(200),
        ..PoolConfig::default()
    };
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let mut stream = connect(&server);
    stream.write_all(b"GIOP\x01\x02\x01\x00\x40\x00\x00\x00half").unwrap();
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(server.orb.event_counts().stalled, 1);
}

/// Waits for what a test is about: forever, if it does not come.
fn until(happened: impl Fn() -> bool) {
    while !happened() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A message whose end has come while every thread was busy has not stalled, and neither has one behind it.
#[test]
fn messages_that_wait_for_a_busy_server_are_not_given_up() {
    let time = Duration::from_millis(700);
    let pool = PoolConfig { dispatch: Dispatch::Reactive, message_timeout: time, ..PoolConfig::default() };
    // Looked at every 10 ms.
    let quick = Duration::from_millis(1);
    let server = serve_with(Orb::builder().pool(pool).idle_connection_time(quick).listen("tcp:127.0.0.1:0"));
    let (_orb, probe) = client(&server.ior);
    let request = mirror_request(&server, 1000);
    let mut stream = connect(&server);
    stream.write_all(&request[..500]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| probe.slow(2000).unwrap());
        until(|| server.probe.started().unwrap() == 1);
        stream.write_all(&[&request[500..], &request].concat()).unwrap();
    });
    let mut replies = vec![0; 2 * 1000];
    stream.read_exact(&mut replies).unwrap();
    assert_eq!(server.orb.event_counts().stalled, 0);
}

/// Fragments that wait for the rest of their message do not live on what comes between.
#[test]
fn stalled_fragments_are_given_up_whatever_comes_between() {
    for dispatch in [Dispatch::LeaderFollowers { threads: 1 }, Dispatch::ThreadPerConnection { most: 8 }] {
        let pool = PoolConfig { dispatch, message_timeout: Duration::from_millis(200), ..PoolConfig::default() };
        let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
        let mut stream = connect(&server);
        stream.write_all(b"GIOP\x01\x02\x03\x00\x08\x00\x00\x00\x01\x00\x00\x00half").unwrap();
        // Requests to cancel what never was.
        while stream.write_all(b"GIOP\x01\x02\x01\x02\x04\x00\x00\x00\x63\x00\x00\x00").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        until(|| server.orb.event_counts().stalled == 1);
        assert_eq!(client(&server.ior).1.cube_octet(2).unwrap(), 8);
    }
}

/// Many connections, each of which holds no more than it may: the one that holds most makes room.
#[test]
fn what_all_connections_hold_is_bounded() {
    let pool = PoolConfig {
        dispatch: Dispatch::LeaderFollowers { threads: 1 },
        held_octets: 1 << 20,
        ..PoolConfig::default()
    };
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let begin = |octets: usize| {
        let mut stream = connect(&server);
        stream.write_all(b"GIOP\x01\x02\x01\x00\x00\x00\x10\x00").unwrap();
        stream.write_all(&vec![0; octets]).unwrap();
        stream
    };
    let (mut small, mut large) = (begin(300 << 10), begin(500 << 10));
    assert_eq!(client(&server.ior).1.cube_octet(2).unwrap(), 8);
    let mut last = begin(400 << 10);
    let mut rest = Vec::new();
    assert!(large.read_to_end(&mut rest).is_ok_and(|octets| octets == 0), "the largest goes");
    assert_eq!(server.orb.event_counts().held_too_much, 1);
    for stream in [&mut small, &mut last] {
        stream.set_nonblocking(true).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the others stay");
    }
}

/// A server whose peers may leave `output_bound` octets unread for `output_timeout`, and a peer that sends requests and reads no
/// reply, until it is cut off.
fn overfill(dispatch: Dispatch, output_bound: usize, output_timeout: Duration) -> Server {
    let pool = PoolConfig { dispatch, output_bound, output_timeout, ..PoolConfig::default() };
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let (_orb, probe) = client(&server.ior);
    let request = mirror_request(&server, 512 * 1024);
    let mut stream = connect(&server);
    // Its own requests stop being read once its replies wait; then it writes no more either.
    while stream.write_all(&request).is_ok() {
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
    }
    drop(stream);
    server
}

/// A peer that sends requests and reads no reply: what waits for it is bounded, and others are served.
#[test]
fn a_peer_that_does_not_read_is_cut_off() {
    let ages = Duration::from_secs(1000);
    let server = overfill(Dispatch::LeaderFollowers { threads: 2 }, 0, ages);
    until(|| server.orb.event_counts().output_overflows == 1);
    assert_eq!(server.orb.event_counts().replies_unread, 0);
}

/// The same within the bound, but for too long.
#[test]
fn a_peer_that_reads_nothing_for_long_is_cut_off() {
    for dispatch in [Dispatch::LeaderFollowers { threads: 2 }, Dispatch::HalfSyncHalfAsync { threads: 2, queue: 8 }] {
        let server = overfill(dispatch, usize::MAX, Duration::from_millis(200));
        until(|| server.orb.event_counts().replies_unread == 1);
        assert_eq!(server.orb.event_counts().output_overflows, 0);
    }
}

/// A request that asks for `length` octets back.
fn mirror_request(server: &Server, length: usize) -> Vec<u8> {
    server.orb.bind_key("Mirror", server.probe.as_object()).unwrap();
    let mut message = b"GIOP\x01\x02\x01\x00\0\0\0\0".to_vec();
    message.extend_from_slice(&1u32.to_le_bytes());
    message.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(&6u32.to_le_bytes());
    message.extend_from_slice(b"Mirror\0\0");
    message.extend_from_slice(&7u32.to_le_bytes());
    message.extend_from_slice(b"mirror\0\0");
    message.extend_from_slice(&0u32.to_le_bytes());
    message.resize(message.len().next_multiple_of(8), 0);
    message.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
    message.resize(message.len() + length, 7);
    let size = u32::try_from(message.len() - 12).unwrap();
    message[8..12].copy_from_slice(&size.to_le_bytes());
    message
}

/// 10,000 idle connections: at most 2 KiB each on the server's side, and an active one is served as before.
#[test]
fn ten_thousand_idle_connections_are_held() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let wanted = 10_000u64;
    let most = corelane_sys::process::raise_descriptor_limit(wanted + 1000).unwrap();
    assert!(most >= wanted + 1000, "the limit of open descriptors is {most}: this test needs 11,000 (ulimit -n)");
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let before = resident();
    // The other ends are a process of their own, which has its own limit.
    let mut peer = Command::new(env!("CARGO_BIN_EXE_idle-peer"))
        .args([port.to_string(), wanted.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    while server.orb.event_counts().connections_opened < wanted + 1 {
        assert!(peer.try_wait().unwrap().is_none(), "the peer could not connect");
        std::thread::sleep(Duration::from_millis(1));
    }
    let each = (resident() - before) * 1024 / wanted;
    assert!(each <= 2048, "{each} octets for an idle connection");
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    drop(peer.stdin.take());
    assert!(peer.wait().unwrap().success());
    // Their ends are noticed, all of them.
    while server.orb.event_counts().connections_closed < wanted {
        std::thread::sleep(Duration::from_millis(1));
    }
}
