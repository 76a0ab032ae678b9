//! What is told of hostile peers: the right event, with the address of the peer that it is about.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use corelane::{Dispatch, Endpoint, Event, Limits, Orb, PoolConfig, Reference};
use corelane_net::Peer;
use corelane_sys::lock::{Mutex, Scope};
use corelane_tests::{EVERY_DISPATCH, Server, client, serve_with};
use corelane_wire::giop::{self, RequestHead, ResponseExpected, Target};
use corelane_wire::{Encoder, Version};

/// Which events were told of, and of whom.
type Told = Arc<Mutex<Vec<(&'static str, Peer)>>>;

fn server(pool: PoolConfig) -> (Server, Told) {
    let told = Arc::new(Mutex::new("events", Scope::Connection, Vec::new()));
    let events = Arc::clone(&told);
    let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").on_event(move |event| {
        let (name, peer) = match event {
            Event::ProtocolFault { peer, .. } => ("fault", peer),
            Event::Stalled { peer } => ("stalled", peer),
            Event::RepliesUnread { peer } => ("unread", peer),
            Event::HeldTooMuch { peer, .. } => ("held", peer),
            Event::ConnectionRefused { peer, .. } => ("refused", peer),
            _ => return,
        };
        events.lock().push((name, peer.clone()));
    });
    // Connections that stall are looked for every 10 ms.
    (serve_with(orb.idle_connection_time(Duration::from_millis(1))), told)
}

fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    TcpStream::connect(("127.0.0.1", port)).unwrap()
}

/// Waits until something is told: it has to be `name` of this peer, and nothing else.
fn is_told(told: &Told, name: &'static str, peer: &TcpStream, what: &dyn std::fmt::Debug) {
    while told.lock().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let expected = (name, Peer::Ip(peer.local_addr().unwrap()));
    let told = told.lock().clone();
    assert!(told.iter().all(|one| *one == expected), "{what:?}: {told:?} and not {expected:?}");
}

/// Another connection, which is none of the hostile peer's business, and goes on.
fn with_a_bystander(pool: PoolConfig, name: &'static str, harm: impl Fn(&Server, &mut TcpStream)) {
    let dispatch = pool.dispatch;
    let (server, told) = server(pool);
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let mut stream = connect(&server);
    harm(&server, &mut stream);
    is_told(&told, name, &stream, &dispatch);
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    assert_eq!(server.orb.event_counts().connections_opened, 2, "{dispatch:?}: the bystander had to connect anew");
}

#[test]
fn who_breaks_the_protocol_is_named() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig { dispatch, ..PoolConfig::default() };
        with_a_bystander(pool, "fault", |_, stream| stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap());
    }
}

#[test]
fn who_stops_in_the_middle_is_named() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig { dispatch, message_timeout: Duration::from_millis(100), ..PoolConfig::default() };
        with_a_bystander(pool, "stalled", |_, stream| {
            stream.write_all(b"GIOP\x01\x02\x01\x00\x40\x00\x00\x00half").unwrap();
        });
    }
}

#[test]
fn who_holds_most_is_named() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig { dispatch, held_octets: 1 << 20, ..PoolConfig::default() };
        with_a_bystander(pool, "held", |_, stream| {
            stream.write_all(b"GIOP\x01\x02\x01\x00\x00\x00\x40\x00").unwrap();
            // It is cut off on the way.
            let _ = stream.write_all(&vec![0; 3 << 20]);
        });
    }
}

/// Requests for 512 KiB each whose replies nobody reads, until the connection ends.
fn reads_nothing(server: &Server, stream: &mut TcpStream) {
    let key = server.probe.as_object().ior().known_profiles().next().unwrap().object_key.to_vec();
    let data = vec![7; 512 << 10];
    let mut encoder = Encoder::new();
    let head = RequestHead {
        version: Version::GIOP_1_2,
        request_id: 1,
        response: ResponseExpected::Target,
        target: Target::Key(&key),
        operation: b"mirror",
        contexts: &[],
    };
    giop::write_request_header(&mut encoder, &head).unwrap();
    encoder.write_octets(&data).unwrap();
    giop::finish(&mut encoder).unwrap();
    let request = encoder.slices().collect::<Vec<_>>().concat();
    while stream.write_all(&request).is_ok() {}
}

/// Those that queue replies; a thread of its own waits for its peer.
fn queueing() -> impl Iterator<Item = Dispatch> {
    EVERY_DISPATCH.into_iter().filter(|dispatch| !matches!(dispatch, Dispatch::ThreadPerConnection { .. }))
}

#[test]
fn who_leaves_replies_for_too_long_is_named() {
    for dispatch in queueing() {
        let output_timeout = Duration::from_millis(100);
        let pool = PoolConfig { dispatch, output_timeout, ..PoolConfig::default() };
        with_a_bystander(pool, "unread", reads_nothing);
    }
}

#[test]
fn who_is_not_let_in_is_named() {
    for dispatch in EVERY_DISPATCH {
        let (server, told) = server(PoolConfig { dispatch, connections: 0, ..PoolConfig::default() });
        let mut stream = connect(&server);
        is_told(&told, "refused", &stream, &dispatch);
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "{dispatch:?}");
        assert_eq!(server.orb.event_counts().connections_refused, 1);
    }
}

/// Fragmented requests that are never finished end where their number is bounded, and so does the connection.
#[test]
fn who_finishes_no_fragments_is_named() {
    for dispatch in EVERY_DISPATCH {
        with_a_bystander(PoolConfig { dispatch, ..PoolConfig::default() }, "fault", |_, stream| {
            let bound = Limits::DEFAULT.pending_fragmented;
            for id in 0..=bound {
                let mut message = b"GIOP\x01\x02\x03\x00\x0c\x00\x00\x00".to_vec();
                message.extend_from_slice(&id.to_le_bytes());
                message.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
                stream.write_all(&message).unwrap();
            }
        });
    }
}
