//! Peers that mean harm, or are broken: no panic, no memory or time without bound, and nobody else notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use corelane::{Dispatch, Endpoint, Orb, PoolConfig, Reference};
use corelane_tests::{EVERY_DISPATCH, Server, client, serve, serve_with};

fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
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
    let time = Duration::from_secs(2);
    let pool = PoolConfig { dispatch: Dispatch::Reactive, message_timeout: time, ..PoolConfig::default() };
    // Looked at every 10 ms.
    let quick = Duration::from_millis(1);
    let server = serve_with(Orb::builder().pool(pool).idle_connection_time(quick).listen("tcp:127.0.0.1:0"));
    let (_orb, probe) = client(&server.ior);
    let request = mirror_request(&server, 1000);
    let mut stream = connect(&server);
    stream.write_all(&request[..500]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| probe.slow(5_000).unwrap());
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

/// A server whose peers may leave replies unread for `output_timeout`, and a peer that sends requests and reads no
/// reply, until it is cut off.
fn overfill(dispatch: Dispatch, output_timeout: Duration) -> Server {
    // What the threads were at when the first reply was not taken.
    let pool = PoolConfig { dispatch, held_octets: 2 << 20, output_timeout, ..PoolConfig::default() };
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

/// A peer that sends requests and reads no reply: little waits for it, others are served, and it is cut off when it has taken nothing for
/// long.
#[test]
fn a_peer_that_reads_nothing_for_long_is_cut_off() {
    for dispatch in [Dispatch::LeaderFollowers { threads: 2 }, Dispatch::HalfSyncHalfAsync { threads: 2, queue: 80 }] {
        let server = overfill(dispatch, Duration::from_millis(200));
        until(|| server.orb.event_counts().replies_unread == 1);
        assert_eq!(server.orb.event_counts().held_too_much, 0);
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
