//! Peers that read late or not at all, and peers that send more than the server reads.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use corelane::{ConnectionLimits, Dispatch, Orb, PoolConfig};
use corelane_tests::raw::{REPLY, connect, probe_key, read_header, request, wait_for_data};
use corelane_tests::{EVERY_DISPATCH, client, serve, serve_with};

const CLOSE_CONNECTION: u8 = 5;
const MESSAGE_ERROR: u8 = 6;

#[test]
fn slow_peer_gets_its_replies_before_the_end() {
    const SIZE: usize = 24 << 20;
    for dispatch in EVERY_DISPATCH {
        let server = serve_with(
            Orb::builder()
                .pool(PoolConfig::default().dispatch(dispatch))
                .drain_timeout(Duration::from_secs(60))
                .listen("tcp:127.0.0.1:0"),
        );
        let mut stream = connect(&server);
        let data = vec![7; SIZE];
        stream
            .write_all(&request(&probe_key(&server), 2, "mirror", |encoder| {
                encoder.write_octet_sequence(&data).unwrap()
            }))
            .unwrap();
        let (kind, size) = read_header(&mut stream);
        assert_eq!(kind, REPLY, "{dispatch:?}");
        assert!(size > SIZE, "{dispatch:?}");
        server.orb.shutdown(false).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap_or_else(|cut| panic!("{dispatch:?}: {cut}"));
        assert_eq!(rest.len(), size + 12, "{dispatch:?}");
        assert_eq!((&rest[size..size + 4], rest[size + 7]), (&b"GIOP"[..], CLOSE_CONNECTION), "{dispatch:?}");
    }
}

#[test]
fn a_peer_that_reads_again_gets_every_reply() {
    const CALLS: u32 = 64;
    const SIZE: usize = 256 << 10;
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let mut stream = connect(&server);
        let mut sending = stream.try_clone().unwrap();
        let key = probe_key(&server);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let data = vec![7; SIZE];
                for id in 1..=CALLS {
                    let ask =
                        request(&key, id, "mirror", |encoder| encoder.write_octet_sequence_copied(&data).unwrap());
                    sending.write_all(&ask).unwrap();
                }
            });
            // The replies exceed the socket buffers, and the peer does not read them for a while.
            wait_for_data(&stream);
            std::thread::sleep(Duration::from_millis(100));
            let mut ids = Vec::new();
            for _ in 0..CALLS {
                let (kind, size) = read_header(&mut stream);
                let mut body = vec![0; size];
                stream.read_exact(&mut body).unwrap_or_else(|stuck| panic!("{dispatch:?}: {stuck}"));
                assert_eq!((kind, &body[4..8]), (REPLY, &[0; 4][..]), "{dispatch:?}: a request was refused");
                assert!(size > SIZE && body.ends_with(&[7]));
                ids.push(u32::from_ne_bytes(*body.first_chunk().unwrap()));
            }
            ids.sort_unstable();
            assert!(ids.iter().copied().eq(1..=CALLS), "{dispatch:?}");
        });
        assert_eq!(server.orb.event_counts().writes_timed_out, 0, "{dispatch:?}");
    }
}

#[test]
fn large_replies_wait_for_a_peer_that_reads() {
    const SIZE: u32 = 24 << 20;
    const CALLS: u32 = 6;
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let mut stream = connect(&server);
        let key = probe_key(&server);
        let all: Vec<u8> =
            (1..=CALLS).flat_map(|id| request(&key, id, "sevens", |encoder| encoder.write_u32(SIZE))).collect();
        stream.write_all(&all).unwrap();
        for _ in 0..CALLS {
            let (kind, size) = read_header(&mut stream);
            let mut body = vec![0; size];
            stream.read_exact(&mut body).unwrap_or_else(|cut| panic!("{dispatch:?}: {cut}"));
            assert_eq!((kind, size > SIZE as usize), (REPLY, true), "{dispatch:?}");
        }
        let counts = server.orb.event_counts();
        assert_eq!((counts.memory_budget_exceeded, counts.writes_timed_out), (0, 0), "{dispatch:?}");
    }
}

/// The server must read on after its error reply. Unread data would make the kernel reset the
/// connection, so that the reply is lost.
#[test]
fn error_reply_reaches_a_peer_that_continues_to_send() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        for _ in 0..20 {
            let mut stream = connect(&server);
            let mut message = b"GIOP\x01\x02\x01\x00\x04\x00\x00\x00\x02\x00\x00\x00".to_vec();
            message.extend(std::iter::repeat_n(0, 100_000));
            stream.write_all(&message).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap_or_else(|cut| panic!("{dispatch:?}: {cut}"));
            assert_eq!((answer.len(), answer[7]), (12, MESSAGE_ERROR), "{dispatch:?}");
        }
        assert_eq!(client(&server.ior).1.cube_octet(2).unwrap(), 8);
    }
}

#[test]
fn one_connection_does_not_fill_the_queue() {
    let few = (8, 64 << 20, 4);
    let small = (64, 1 << 20, 300 << 10);
    for (queue, queue_octets, length) in [few, small] {
        let dispatch = Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: queue };
        let pool = PoolConfig::default()
            .dispatch(dispatch)
            .connection_limits(ConnectionLimits::default().max_queued_bytes(queue_octets));
        let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
        let mut stream = connect(&server);
        let (key, calls) = (probe_key(&server), 40);
        let text = "x".repeat(length);
        let mut all = request(&key, 0, "slow", |encoder| encoder.write_u32(300));
        all.extend(
            (1..calls).flat_map(|id| request(&key, id, "length_of", |encoder| encoder.write_str(&text).unwrap())),
        );
        let mut sending = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| sending.write_all(&all).unwrap());
            while server.probe.started().unwrap() == 0 {
                std::thread::yield_now();
            }
            let (_orb, probe) = client(&server.ior);
            assert_eq!(probe.cube_octet(3).unwrap(), 27, "another client is turned away");
        });
        for _ in 0..calls {
            let (kind, size) = read_header(&mut stream);
            let mut body = vec![0; size];
            stream.read_exact(&mut body).unwrap();
            assert_eq!((kind, &body[4..8]), (REPLY, &[0; 4][..]), "a request was refused");
        }
    }
}

#[test]
fn stuck_peer_does_not_delay_the_drop_after_a_shutdown_without_waiting() {
    for dispatch in EVERY_DISPATCH {
        let server = serve_with(
            Orb::builder()
                .pool(PoolConfig::default().dispatch(dispatch))
                .drain_timeout(Duration::from_millis(50))
                .listen("tcp:127.0.0.1:0"),
        );
        let mut stream = connect(&server);
        let data = vec![7; 24 << 20];
        stream
            .write_all(&request(&probe_key(&server), 2, "mirror", |encoder| {
                encoder.write_octet_sequence(&data).unwrap()
            }))
            .unwrap();
        assert!(read_header(&mut stream).1 > 24 << 20);
        server.orb.shutdown(false).unwrap();
        let start = Instant::now();
        drop(server);
        // Without the drain time-out, the drop could take 30 seconds, the write time-out.
        assert!(start.elapsed() < Duration::from_secs(20), "{dispatch:?}");
        drop(stream);
    }
}
