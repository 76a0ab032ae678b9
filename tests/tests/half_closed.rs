//! Peers that have said all that they will, and still read: what each of them gets, and who goes where there are too many.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::{Dispatch, Event, Orb, PoolConfig};
use corelane_net::Peer;
use corelane_sys::lock::{Mutex, Scope};
use corelane_tests::raw::{REPLY, connect, header, key, request};
use corelane_tests::{EVERY_DISPATCH, client, serve, serve_with};

fn until(what: &str, come: impl Fn() -> bool) {
    let start = Instant::now();
    while !come() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A peer that has closed its sending side gets every reply to what it sent before, however large, and then the end.
#[test]
fn a_half_closed_peer_gets_all_that_it_asked_for() {
    const SIZE: u32 = 6 << 20;
    for (dispatch, calls) in EVERY_DISPATCH.into_iter().flat_map(|dispatch| [(dispatch, 1), (dispatch, 12)]) {
        let server = serve(dispatch);
        let mut stream = connect(&server);
        let key = key(&server);
        let all: Vec<u8> =
            (1..=calls).flat_map(|id| request(&key, id, "sevens", |encoder| encoder.write_u32(SIZE))).collect();
        stream.write_all(&all).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Time for the server to come to the end of what was sent. Without it less is tested, and nothing fails.
        stream.peek(&mut [0]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..calls {
            let (kind, size) = header(&mut stream);
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

/// A peer that has said all it will may still listen: what it asked is answered.
#[test]
fn a_half_closed_peer_gets_its_reply() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let mut stream = connect(&server);
        stream.write_all(&request(&key(&server), 7, "slow", |encoder| encoder.write_u32(50))).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let (kind, size) = header(&mut stream);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap_or_else(|cut| panic!("{dispatch:?}: {cut}"));
        assert_eq!((kind, size, rest.len()), (REPLY, rest.len(), size), "{dispatch:?}");
        assert_eq!(rest[..8], [7, 0, 0, 0, 0, 0, 0, 0], "{dispatch:?}: another id, or an exception");
    }
}

/// One that listens no more either, and does not say so, keeps its connection only for so long.
#[test]
fn a_half_closed_peer_that_reads_nothing_is_let_go() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig { dispatch, output_timeout: Duration::from_millis(200), ..PoolConfig::default() };
        let server = serve_with(
            Orb::builder().pool(pool).idle_connection_time(Duration::from_millis(1)).listen("tcp:127.0.0.1:0"),
        );
        let mut stream = connect(&server);
        let data = vec![7; 24 << 20];
        stream.write_all(&request(&key(&server), 2, "mirror", |encoder| encoder.write_octets(&data).unwrap())).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        until(&format!("{dispatch:?}: it is held"), || server.orb.event_counts().replies_unread == 1);
        let mut rest = vec![0; 1 << 20];
        while stream.read(&mut rest).is_ok_and(|count| count > 0) {}
        until(&format!("{dispatch:?}: it is closed"), || server.orb.event_counts().connections_closed == 1);
    }
}

/// A large reply goes on as soon as its peer reads, though another request of the same connection runs on: it waited for that one.
#[test]
fn a_reply_does_not_wait_for_another_request_of_its_connection() {
    const SIZE: u32 = 24 << 20;
    for dispatch in EVERY_DISPATCH.into_iter().filter(|dispatch| *dispatch != Dispatch::Reactive) {
        let server = serve(dispatch);
        let (mut stream, key) = (connect(&server), key(&server));
        let mut all = request(&key, 1, "meet", |encoder| encoder.write_i32(3));
        all.extend(request(&key, 2, "sevens_when", |encoder| {
            encoder.write_i32(2);
            encoder.write_u32(SIZE);
        }));
        stream.write_all(&all).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Nothing has been answered, and nothing waits any more, when the end is seen.
        until("the end is not seen", || server.orb.event_counts().connections_closed == 1);
        server.probe.meet(2).unwrap();
        let (kind, size) = header(&mut stream);
        let mut body = vec![0; size];
        stream.read_exact(&mut body).unwrap_or_else(|stuck| panic!("{dispatch:?}: {stuck}"));
        assert_eq!((kind, body[0], body[size - 1]), (REPLY, 2, 7), "{dispatch:?}");
        server.probe.meet(3).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!((rest[7], rest[12]), (REPLY, 1), "{dispatch:?}");
    }
}

/// Connections of such peers count among those that a pool may hold. Where there are so many, the one whose end has taken longest
/// makes room, and is named; it was the one beyond 256, of whom nobody heard.
#[test]
fn the_end_that_takes_longest_makes_room() {
    const MOST: usize = 4;
    const SIZE: u32 = 6 << 20;
    let told = Arc::new(Mutex::new("events", Scope::Connection, Vec::new()));
    let events = Arc::clone(&told);
    let pool =
        PoolConfig { dispatch: Dispatch::LeaderFollowers { threads: 2 }, connections: MOST, ..PoolConfig::default() };
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").on_event(move |event| {
        if let Event::EndCut { peer, octets, .. } = event {
            events.lock().push((peer.clone(), *octets));
        }
    }));
    let key = key(&server);
    let mut peers = Vec::new();
    for number in 1..=4 {
        let mut stream = connect(&server);
        let ask = request(&key, 1, "sevens_when", |encoder| {
            encoder.write_i32(number);
            encoder.write_u32(SIZE);
        });
        stream.write_all(&ask).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // One thread sees the end while the other one is in the servant: neither is in the connections before it.
        until("the end is not seen", || server.orb.event_counts().connections_closed == number.unsigned_abs().into());
        server.probe.meet(number).unwrap();
        peers.push(stream);
    }
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let counts = server.orb.event_counts();
    assert_eq!((counts.ends_cut, counts.connections_refused, counts.silent_closed), (1, 0, 0));
    let first = Peer::Ip(peers[0].local_addr().unwrap());
    let told = told.lock().clone();
    assert!(matches!(&told[..], [(peer, octets)] if *peer == first && *octets >= SIZE as usize), "{told:?}");
    for (number, mut stream) in peers.into_iter().enumerate() {
        let mut all = Vec::new();
        let whole = stream.read_to_end(&mut all).is_ok() && all.len() > SIZE as usize;
        assert_eq!(whole, number != 0, "{number}");
    }
}

/// Whose request waits goes for nobody: it is owed the reply, and its descriptor would not be free. Such connections went, were not
/// counted any more, and left new ones none the less without a descriptor.
#[test]
fn an_end_whose_request_waits_makes_no_room() {
    const MOST: usize = 4;
    let pool =
        PoolConfig { dispatch: Dispatch::LeaderFollowers { threads: 2 }, connections: MOST, ..PoolConfig::default() };
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let (key, poa, counts) = (key(&server), server.orb.root_poa(), || server.orb.event_counts());
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
    until("it does not come in", || counts().connections_opened == 4);
    let mut refused = connect(&server);
    assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0);
    until("nobody is told", || counts().connections_refused == 1);
    assert_eq!((counts().ends_cut, counts().silent_closed), (0, 0));
    poa.manager().activate().unwrap();
    for mut stream in owed {
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        assert_eq!((reply[7], reply.last()), (REPLY, Some(&27)));
    }
    // Their places are free, without anybody having made them.
    until("nobody comes in", || client(&server.ior).1.cube_octet(2).is_ok_and(|cube| cube == 8));
    assert_eq!((counts().ends_cut, counts().silent_closed), (0, 0));
}
