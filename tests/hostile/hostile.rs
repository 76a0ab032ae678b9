//! Hostile and broken peers: no panic, no unbounded memory or time, no effect on other connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use corelane::{ConnectionLimits, Dispatch, Endpoint, Orb, PoolConfig};
use corelane_tests::{EVERY_DISPATCH, Server, client, serve, serve_with};

fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn garbage_is_answered_with_message_error_and_the_end_of_the_connection() {
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

#[test]
fn stalled_message_closes_its_connection() {
    let pool = PoolConfig::default()
        .dispatch(Dispatch::LeaderFollowers { threads: 1 })
        .connection_limits(ConnectionLimits::default().read_stall_timeout(Duration::from_millis(200)));
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let mut stream = connect(&server);
    stream.write_all(b"GIOP\x01\x02\x01\x00\x40\x00\x00\x00half").unwrap();
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(server.orb.event_counts().reads_stalled, 1);
}

fn until(happened: impl Fn() -> bool) {
    while !happened() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn message_that_waits_for_a_busy_server_does_not_count_as_stalled() {
    let time = Duration::from_secs(1);
    let pool = PoolConfig::default()
        .dispatch(Dispatch::Reactive)
        .connection_limits(ConnectionLimits::default().read_stall_timeout(time));
    // The stall detector runs every 10 ms with this idle time-out.
    let quick = Duration::from_millis(1);
    let server = serve_with(Orb::builder().pool(pool).idle_connection_timeout(quick).listen("tcp:127.0.0.1:0"));
    let (_orb, probe) = client(&server.ior);
    let request = mirror_request(&server, 1000);
    for round in 1..=20 {
        let stalled = server.orb.event_counts().reads_stalled;
        let mut stream = connect(&server);
        let begun = Instant::now();
        stream.write_all(&request[..500]).unwrap();
        let mut wait = Duration::MAX;
        std::thread::scope(|scope| {
            scope.spawn(|| probe.slow(3_000).unwrap());
            until(|| server.probe.started().unwrap() == round);
            // The server may have ended the connection, if the machine has paused for `time`, so an
            // error is ignored.
            let _ = stream.write_all(&[&request[500..], &request].concat());
            wait = begun.elapsed();
        });
        if wait < time {
            let mut replies = vec![0; 2 * 1000];
            stream.read_exact(&mut replies).unwrap();
            assert_eq!(server.orb.event_counts().reads_stalled, stalled);
            return;
        }
    }
    panic!("the machine pauses too often for a test of a message that is delayed for less than {time:?}");
}

#[test]
fn other_messages_do_not_extend_the_time_of_stalled_fragments() {
    for dispatch in [Dispatch::LeaderFollowers { threads: 1 }, Dispatch::ThreadPerConnection { max_threads: 8 }] {
        let pool = PoolConfig::default()
            .dispatch(dispatch)
            .connection_limits(ConnectionLimits::default().read_stall_timeout(Duration::from_millis(200)));
        let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
        let mut stream = connect(&server);
        stream.write_all(b"GIOP\x01\x02\x03\x00\x08\x00\x00\x00\x01\x00\x00\x00half").unwrap();
        while stream.write_all(b"GIOP\x01\x02\x01\x02\x04\x00\x00\x00\x63\x00\x00\x00").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        until(|| server.orb.event_counts().reads_stalled == 1);
        assert_eq!(client(&server.ior).1.cube_octet(2).unwrap(), 8);
    }
}

#[test]
fn memory_of_all_connections_is_bounded() {
    let pool = PoolConfig::default()
        .dispatch(Dispatch::LeaderFollowers { threads: 1 })
        .connection_limits(ConnectionLimits::default().max_buffered_bytes(1 << 20));
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
    assert!(
        large.read_to_end(&mut rest).is_ok_and(|octets| octets == 0),
        "the connection with the most memory was not closed"
    );
    assert_eq!(server.orb.event_counts().memory_budget_exceeded, 1);
    for stream in [&mut small, &mut last] {
        stream.set_nonblocking(true).unwrap();
        assert_eq!(
            stream.read(&mut [0]).unwrap_err().kind(),
            std::io::ErrorKind::WouldBlock,
            "the other connections stay open"
        );
    }
}

fn overfill(dispatch: Dispatch, output_timeout: Duration) -> Server {
    let pool = PoolConfig::default()
        .dispatch(dispatch)
        .connection_limits(ConnectionLimits::default().max_buffered_bytes(2 << 20).write_timeout(output_timeout));
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let (_orb, probe) = client(&server.ior);
    let request = mirror_request(&server, 512 * 1024);
    let mut stream = connect(&server);
    while stream.write_all(&request).is_ok() {
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
    }
    drop(stream);
    server
}

#[test]
fn peer_that_reads_nothing_is_disconnected_after_the_write_timeout() {
    for dispatch in
        [Dispatch::LeaderFollowers { threads: 2 }, Dispatch::HalfSyncHalfAsync { threads: 2, max_queued: 80 }]
    {
        let server = overfill(dispatch, Duration::from_millis(200));
        until(|| server.orb.event_counts().writes_timed_out == 1);
        assert_eq!(server.orb.event_counts().memory_budget_exceeded, 0);
    }
}

fn mirror_request(server: &Server, length: usize) -> Vec<u8> {
    server.orb.bind_corbaloc_key("Mirror", server.probe.as_object()).unwrap();
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
