//! Peers that close their sending side and then read: their replies, and the eviction of their
//! connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::{ConnectionLimits, Dispatch, Event, Orb, PoolConfig};
use corelane_net::Peer;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::raw::{REPLY, connect, probe_key, read_header, request, wait_for_data};
use corelane_tests::{EVERY_DISPATCH, client, serve, serve_with};

fn until(what: &str, come: impl Fn() -> bool) {
    let start = Instant::now();
    while !come() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn half_closed_peer_gets_every_reply_and_the_end() {
    const SIZE: u32 = 6 << 20;
    for (dispatch, calls) in EVERY_DISPATCH.into_iter().flat_map(|dispatch| [(dispatch, 1), (dispatch, 12)]) {
        let server = serve(dispatch);
        let mut stream = connect(&server);
        let key = probe_key(&server);
        let all: Vec<u8> =
            (1..=calls).flat_map(|id| request(&key, id, "sevens", |encoder| encoder.write_u32(SIZE))).collect();
        stream.write_all(&all).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // The pause gives the server time to read up to the end of the peer's data.
        wait_for_data(&stream);
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..calls {
            let (kind, size) = read_header(&mut stream);
            let mut body = vec![0; size];
            stream.read_exact(&mut body).unwrap_or_else(|cut| panic!("{dispatch:?}, {calls} calls: {cut}"));
            assert_eq!((kind, size > SIZE as usize, body[size - 1]), (REPLY, true, 7), "{dispatch:?}");
        }
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{dispatch:?}");
        while server.orb.event_counts().connections_closed == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn half_closed_peer_gets_its_reply() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let mut stream = connect(&server);
        stream.write_all(&request(&probe_key(&server), 7, "slow", |encoder| encoder.write_u32(50))).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let (kind, size) = read_header(&mut stream);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap_or_else(|cut| panic!("{dispatch:?}: {cut}"));
        assert_eq!((kind, size, rest.len()), (REPLY, rest.len(), size), "{dispatch:?}");
        assert_eq!(rest[..8], [7, 0, 0, 0, 0, 0, 0, 0], "{dispatch:?}: another id, or an exception");
    }
}

#[test]
fn half_closed_peer_that_reads_nothing_is_disconnected() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig::default()
            .dispatch(dispatch)
            .connection_limits(ConnectionLimits::default().write_timeout(Duration::from_millis(200)));
        let server = serve_with(
            Orb::builder().pool(pool).idle_connection_timeout(Duration::from_millis(1)).listen("tcp:127.0.0.1:0"),
        );
        let mut stream = connect(&server);
        let data = vec![7; 24 << 20];
        stream
            .write_all(&request(&probe_key(&server), 2, "mirror", |encoder| {
                encoder.write_octet_sequence(&data).unwrap()
            }))
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        until(&format!("{dispatch:?}: the write does not time out"), || {
            server.orb.event_counts().writes_timed_out == 1
        });
        let mut rest = vec![0; 1 << 20];
        while stream.read(&mut rest).is_ok_and(|count| count > 0) {}
        until(&format!("{dispatch:?}: the connection is not closed"), || {
            server.orb.event_counts().connections_closed == 1
        });
    }
}

/// Regression test: a reply waited for another request of its connection to end.
#[test]
fn reply_does_not_wait_for_another_request_of_its_connection() {
    const SIZE: u32 = 24 << 20;
    for dispatch in EVERY_DISPATCH.into_iter().filter(|dispatch| *dispatch != Dispatch::Reactive) {
        let server = serve(dispatch);
        let (mut stream, key) = (connect(&server), probe_key(&server));
        let mut all = request(&key, 1, "meet", |encoder| encoder.write_i32(3));
        all.extend(request(&key, 2, "sevens_when", |encoder| {
            encoder.write_i32(2);
            encoder.write_u32(SIZE);
        }));
        stream.write_all(&all).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        until("the server does not notice the end", || server.orb.event_counts().connections_closed == 1);
        server.probe.meet(2).unwrap();
        let (kind, size) = read_header(&mut stream);
        let mut body = vec![0; size];
        stream.read_exact(&mut body).unwrap_or_else(|stuck| panic!("{dispatch:?}: {stuck}"));
        assert_eq!((kind, body[0], body[size - 1]), (REPLY, 2, 7), "{dispatch:?}");
        server.probe.meet(3).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!((rest[7], rest[12]), (REPLY, 1), "{dispatch:?}");
    }
}

#[test]
fn oldest_draining_connection_is_evicted() {
    const MOST: usize = 4;
    const SIZE: u32 = 6 << 20;
    let told = Arc::new(Mutex::new("events", LockScope::Connection, Vec::new()));
    let events = Arc::clone(&told);
    let pool = PoolConfig::default()
        .dispatch(Dispatch::LeaderFollowers { threads: 2 })
        .connection_limits(ConnectionLimits::default().max_connections(MOST));
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").on_event(move |event| {
        if let Event::DrainingConnectionEvicted { peer, bytes: octets, .. } = event {
            events.lock().push((peer.clone(), *octets));
        }
    }));
    let key = probe_key(&server);
    let mut peers = Vec::new();
    for number in 1..=4 {
        let mut stream = connect(&server);
        let ask = request(&key, 1, "sevens_when", |encoder| {
            encoder.write_i32(number);
            encoder.write_u32(SIZE);
        });
        stream.write_all(&ask).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        until("the server does not notice the end", || {
            server.orb.event_counts().connections_closed == u64::from(number.unsigned_abs())
        });
        server.probe.meet(number).unwrap();
        peers.push(stream);
    }
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let counts = server.orb.event_counts();
    assert_eq!(
        (counts.draining_connections_evicted, counts.connections_refused, counts.idle_connections_closed),
        (1, 0, 0)
    );
    let first = Peer::Ip(peers[0].local_addr().unwrap());
    let told = told.lock().clone();
    assert!(matches!(&told[..], [(peer, octets)] if *peer == first && *octets >= SIZE as usize), "{told:?}");
    for (number, mut stream) in peers.into_iter().enumerate() {
        let mut all = Vec::new();
        let whole = stream.read_to_end(&mut all).is_ok() && all.len() > SIZE as usize;
        assert_eq!(whole, number != 0, "{number}");
    }
}

/// A connection with a waiting request must not be evicted, because its eviction would not free the
/// descriptor.
#[test]
fn draining_connection_with_waiting_request_is_not_evicted() {
    const MOST: usize = 4;
    let pool = PoolConfig::default()
        .dispatch(Dispatch::LeaderFollowers { threads: 2 })
        .connection_limits(ConnectionLimits::default().max_connections(MOST));
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let (key, poa, counts) = (probe_key(&server), server.orb.root_poa(), || server.orb.event_counts());
    let ask = |stream: &mut TcpStream| {
        stream.write_all(&request(&key, 1, "cube_octet", |encoder| encoder.write_u8(3))).unwrap();
    };
    poa.manager().hold_requests(false).unwrap();
    let mut owed: Vec<TcpStream> = (0..3).map(|_| connect(&server)).collect();
    for (number, stream) in (1..).zip(&mut owed) {
        ask(stream);
        stream.shutdown(Shutdown::Write).unwrap();
        until("the end is not seen", || counts().connections_closed == number);
    }
    let mut last = connect(&server);
    ask(&mut last);
    until("the connection is not accepted", || counts().connections_opened == 4);
    let mut refused = connect(&server);
    assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0);
    until("no event reports the refusal", || counts().connections_refused == 1);
    assert_eq!((counts().draining_connections_evicted, counts().idle_connections_closed), (0, 0));
    poa.manager().activate().unwrap();
    for mut stream in owed {
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        assert_eq!((reply[7], reply.last()), (REPLY, Some(&27)));
    }
    until("no new client gets a connection", || client(&server.ior).1.cube_octet(2).is_ok_and(|cube| cube == 8));
    assert_eq!((counts().draining_connections_evicted, counts().idle_connections_closed), (0, 0));
}
