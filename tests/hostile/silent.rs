//! Peers that connect and send nothing do not keep other clients out.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::{ConnectionLimits, Dispatch, Endpoint, Event, Orb, PoolConfig};
use corelane_net::Peer;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::{EVERY_DISPATCH, Server, client, serve_with};

const CLOSE_CONNECTION: u8 = 5;

fn silent(server: &Server) -> TcpStream {
    let opened = server.orb.event_counts().connections_opened;
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    until(|| server.orb.event_counts().connections_opened > opened);
    stream
}

fn until(come: impl Fn() -> bool) {
    let begin = Instant::now();
    while !come() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the server did not accept the connection");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ends_with_close_connection(mut stream: TcpStream) -> bool {
    let mut last = Vec::new();
    stream.read_to_end(&mut last).unwrap();
    last.len() == 12 && last[7] == CLOSE_CONNECTION
}

#[test]
fn silent_connections_are_evicted_oldest_first() {
    for dispatch in EVERY_DISPATCH {
        let told = Arc::new(Mutex::new("events", LockScope::Connection, Vec::new()));
        let events = Arc::clone(&told);
        let pool =
            PoolConfig::default().dispatch(dispatch).connection_limits(ConnectionLimits::default().max_connections(4));
        let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").on_event(move |event| {
            if let Event::IdleConnectionClosed { peer, is_evicted: true, .. } = event {
                events.lock().push(peer.clone());
            }
        }));
        let quiet: Vec<_> = (0..3).map(|_| silent(&server)).collect();
        let addresses: Vec<_> = quiet.iter().map(|stream| Peer::Ip(stream.local_addr().unwrap())).collect();
        let clients: Vec<_> = (0..4).map(|_| client(&server.ior)).collect();
        for (_, probe) in &clients {
            assert_eq!(probe.cube_octet(2).unwrap(), 8, "{dispatch:?}");
        }
        assert_eq!(*told.lock(), addresses, "{dispatch:?}");
        assert!(quiet.into_iter().all(ends_with_close_connection), "{dispatch:?}");
        let (_orb, further) = client(&server.ior);
        // The deadline of a call may pass before the call connects, so calls are repeated until the
        // server refuses one.
        until(|| {
            further.with_timeout(Duration::from_millis(500)).cube_octet(2).unwrap_err();
            server.orb.event_counts().connections_refused > 0
        });
        let counts = server.orb.event_counts();
        assert_eq!(counts.idle_connections_closed, 3, "{dispatch:?}: {counts:?}");
        for (_, probe) in &clients {
            assert_eq!(probe.cube_octet(3).unwrap(), 27, "{dispatch:?}");
        }
        assert_eq!(server.orb.event_counts().connections_opened, 7, "{dispatch:?}: a client had to connect anew");
    }
}

#[test]
fn server_without_free_descriptors_accepts_new_clients() {
    let mut server = Command::new("sh")
        .args(["-c", "ulimit -n 48 && exec \"$0\"", env!("CARGO_BIN_EXE_probe-server")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (port, ior) = line.trim().split_once(' ').unwrap();
    let port: u16 = port.parse().unwrap();
    let quiet: Vec<_> = (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    for _ in 0..3 {
        let (_orb, probe) = client(ior);
        assert_eq!(probe.with_timeout(Duration::from_secs(20)).cube_octet(2).unwrap(), 8);
    }
    drop(quiet);
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

#[test]
fn first_request_timeout_closes_silent_connections() {
    for dispatch in EVERY_DISPATCH {
        let first_request_timeout = Some(Duration::from_millis(100));
        let pool = PoolConfig::default()
            .dispatch(dispatch)
            .connection_limits(ConnectionLimits::default().first_request_timeout(first_request_timeout));
        // With this idle time-out, the server checks silent connections every 10 ms.
        let quick = Duration::from_millis(1);
        let told = Arc::new(Mutex::new("events", LockScope::Connection, Vec::new()));
        let events = Arc::clone(&told);
        let builder = Orb::builder().pool(pool).idle_connection_timeout(quick).listen("tcp:127.0.0.1:0");
        let server = serve_with(builder.on_event(move |event| {
            if let Event::IdleConnectionClosed { peer, idle: silent, is_evicted: false } = event {
                events.lock().push((peer.clone(), *silent));
            }
        }));
        let (_orb, probe) = client(&server.ior);
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
        // A client whose first request came too late has connected twice, so the number of its
        // connections is not certain.
        let opened = server.orb.event_counts().connections_opened;
        let silent = silent(&server);
        let address = Peer::Ip(silent.local_addr().unwrap());
        assert!(ends_with_close_connection(silent), "{dispatch:?}");
        until(|| told.lock().iter().any(|(peer, _)| *peer == address));
        assert!(told.lock().iter().all(|(_, silent)| Some(*silent) > first_request_timeout), "{told:?}");
        assert_eq!(probe.cube_octet(3).unwrap(), 27);
        let counts = server.orb.event_counts();
        assert_eq!(counts.connections_opened, opened + 1, "{dispatch:?}: the client had to connect anew");
    }
}

#[test]
fn silent_connections_stay_open_without_a_first_request_timeout() {
    let server = serve_with(
        Orb::builder()
            .idle_connection_timeout(Duration::from_millis(1))
            .listen("tcp:127.0.0.1:0")
            .pool(PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 1 })),
    );
    let mut quiet = silent(&server);
    quiet.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let no_end = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::Interrupted];
    assert!(quiet.read(&mut [0]).is_err_and(|error| no_end.contains(&error.kind())));
}
