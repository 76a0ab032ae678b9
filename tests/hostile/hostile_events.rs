//! Each event about a hostile peer has the address of this peer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use corelane::{ConnectionLimits, Dispatch, Endpoint, Event, Limits, Orb, PoolConfig};
use corelane_net::Peer;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::{EVERY_DISPATCH, Server, client, serve_with};
use corelane_wire::giop::{self, RequestHeader, ResponseExpected, TargetAddress};
use corelane_wire::{Encoder, Version};

type Told = Arc<Mutex<Vec<(&'static str, Peer)>>>;

fn server(pool: PoolConfig) -> (Server, Told) {
    let told = Arc::new(Mutex::new("events", LockScope::Connection, Vec::new()));
    let events = Arc::clone(&told);
    let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").on_event(move |event| {
        let (name, peer) = match event {
            Event::ProtocolFault { peer, .. } => ("fault", peer),
            Event::ReadStalled { peer } => ("stalled", peer),
            Event::WriteTimedOut { peer } => ("unread", peer),
            Event::MemoryBudgetExceeded { peer, .. } => ("held", peer),
            Event::ConnectionRefused { peer, .. } => ("refused", peer),
            _ => return,
        };
        events.lock().push((name, peer.clone()));
    });
    // With this idle time-out, the server looks for stalled connections every 10 ms.
    (serve_with(orb.idle_connection_timeout(Duration::from_millis(1))), told)
}

fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    TcpStream::connect(("127.0.0.1", port)).unwrap()
}

fn is_told(told: &Told, name: &'static str, peer: &TcpStream, what: &dyn std::fmt::Debug) {
    while told.lock().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let expected = (name, Peer::Ip(peer.local_addr().unwrap()));
    let told = told.lock().clone();
    assert!(told.iter().all(|one| *one == expected), "{what:?}: {told:?} and not {expected:?}");
}

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
fn protocol_fault_names_the_peer() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig::default().dispatch(dispatch);
        with_a_bystander(pool, "fault", |_, stream| stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap());
    }
}

#[test]
fn stalled_message_names_the_peer() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig::default()
            .dispatch(dispatch)
            .connection_limits(ConnectionLimits::default().read_stall_timeout(Duration::from_millis(100)));
        with_a_bystander(pool, "stalled", |_, stream| {
            stream.write_all(b"GIOP\x01\x02\x01\x00\x40\x00\x00\x00half").unwrap();
        });
    }
}

#[test]
fn exceeded_memory_budget_names_the_peer_that_holds_most() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig::default()
            .dispatch(dispatch)
            .connection_limits(ConnectionLimits::default().max_buffered_bytes(1 << 20));
        with_a_bystander(pool, "held", |_, stream| {
            stream.write_all(b"GIOP\x01\x02\x01\x00\x00\x00\x40\x00").unwrap();
            // The server may close the connection during this write, so an error is ignored.
            let _ = stream.write_all(&vec![0; 3 << 20]);
        });
    }
}

fn reads_nothing(server: &Server, stream: &mut TcpStream) {
    let key = server.probe.as_object().ior().known_profiles().next().unwrap().object_key.to_vec();
    let data = vec![7; 512 << 10];
    let mut encoder = Encoder::new();
    let head = RequestHeader {
        version: Version::GIOP_1_2,
        request_id: 1,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(&key),
        operation: b"mirror",
        contexts: &[],
    };
    giop::write_request_header(&mut encoder, &head).unwrap();
    encoder.write_octet_sequence(&data).unwrap();
    giop::finish_message(&mut encoder).unwrap();
    let request = encoder.slices().collect::<Vec<_>>().concat();
    while stream.write_all(&request).is_ok() {}
}

/// Returns the architectures in which no thread waits until a peer reads.
fn queueing() -> impl Iterator<Item = Dispatch> {
    EVERY_DISPATCH.into_iter().filter(|dispatch| !matches!(dispatch, Dispatch::ThreadPerConnection { .. }))
}

#[test]
fn write_timeout_names_the_peer() {
    for dispatch in queueing() {
        let output_timeout = Duration::from_millis(100);
        let pool = PoolConfig::default()
            .dispatch(dispatch)
            .connection_limits(ConnectionLimits::default().write_timeout(output_timeout));
        with_a_bystander(pool, "unread", reads_nothing);
    }
}

#[test]
fn refused_connection_names_the_peer() {
    for dispatch in EVERY_DISPATCH {
        let (server, told) = server(
            PoolConfig::default().dispatch(dispatch).connection_limits(ConnectionLimits::default().max_connections(0)),
        );
        let mut stream = connect(&server);
        is_told(&told, "refused", &stream, &dispatch);
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "{dispatch:?}");
        assert_eq!(server.orb.event_counts().connections_refused, 1);
    }
}

#[test]
fn unfinished_fragments_name_the_peer() {
    for dispatch in EVERY_DISPATCH {
        with_a_bystander(PoolConfig::default().dispatch(dispatch), "fault", |_, stream| {
            let bound = Limits::DEFAULT.max_partial_messages;
            for id in 0..=bound {
                let mut message = b"GIOP\x01\x02\x03\x00\x0c\x00\x00\x00".to_vec();
                message.extend_from_slice(&id.to_le_bytes());
                message.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
                stream.write_all(&message).unwrap();
            }
        });
    }
}
