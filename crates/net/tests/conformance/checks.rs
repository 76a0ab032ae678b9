//! The conformance suite: checks for every transport the behaviour on which the ORB relies.
//!
//! The test that includes this file has a function `each`, which calls a check with each transport
//! and an endpoint. An endpoint's path or name, if it has one, contains the given name.

use std::io::{self, IoSlice};
use std::time::Duration;

use corelane_net::{Endpoint, Listener, ShutdownDirection, SpinPolicy, Stream, Transport, WaitLimit};
use corelane_sys::clock::Monotonic;
use corelane_sys::poll;

use crate::each;

fn accept(listener: &dyn Listener) -> Box<dyn Stream> {
    poll::wait_readable(listener.readiness_descriptor(), None).unwrap();
    listener.accept().unwrap()
}

/// Makes a connection. Returns both ends, the connecting end first. The connecting end polls before
/// it sleeps, if its transport can.
fn pair(transport: &dyn Transport, endpoint: &Endpoint) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let listener = transport.listen(endpoint).unwrap();
    let client = transport.connect(listener.local_endpoint(), None).unwrap();
    client.set_spin_policy(SpinPolicy::Always { max_spin: Duration::from_micros(50) });
    (client, accept(&*listener))
}

fn send(stream: &dyn Stream, octets: &[u8], wait: WaitLimit) -> io::Result<usize> {
    stream.send_vectored(&[IoSlice::new(octets)], wait)
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn bytes_arrive_in_order_both_ways() {
    each("order", |transport, endpoint| {
        let (client, server) = pair(transport, endpoint);
        assert!(transport.supports(endpoint) && !transport.name().is_empty());
        let slices = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cd")];
        assert_eq!(client.send_vectored(&slices, WaitLimit::Block).unwrap(), 4);
        let mut buffer = [0; 3];
        assert_eq!(server.recv(&mut buffer, WaitLimit::Block).unwrap(), 3);
        assert_eq!(&buffer, b"abc");
        assert_eq!(server.recv(&mut buffer, WaitLimit::Now).unwrap(), 1);
        assert_eq!(send(&*server, b"x", WaitLimit::Now).unwrap(), 1);
        assert_eq!(client.recv(&mut buffer, WaitLimit::Block).unwrap(), 1);
        assert_eq!(buffer[0], b'x');
    });
}

#[test]
fn waits_end_at_data_deadline_or_timeout() {
    each("waits", |transport, endpoint| {
        let (client, server) = pair(transport, endpoint);
        let mut buffer = [0; 8];
        assert_eq!(kind(server.recv(&mut buffer, WaitLimit::Now)), io::ErrorKind::WouldBlock);
        let soon = Monotonic::now() + Duration::from_millis(2);
        assert_eq!(kind(server.recv(&mut buffer, WaitLimit::Until(soon))), io::ErrorKind::TimedOut);
        assert!(soon.is_past());
        // Available data takes precedence over a deadline that has passed.
        assert_eq!(send(&*client, b"late", WaitLimit::Until(soon)).unwrap(), 4);
        server.recv(&mut buffer, WaitLimit::Block).unwrap();
        server.set_coarse_timeouts(Duration::from_millis(1), Duration::ZERO).unwrap();
        assert_eq!(kind(server.recv(&mut buffer, WaitLimit::Block)), io::ErrorKind::TimedOut);
    });
}

#[test]
fn full_stream_refuses_data_until_the_peer_reads() {
    each("full", |transport, endpoint| {
        let (client, server) = pair(transport, endpoint);
        let octets: Vec<u8> = (0..100_000u32).map(|index| index.to_le_bytes()[0]).collect();
        let mut sent = 0;
        // After a refusal a network may move bytes to the peer, so that there is room again.
        let mut refused = |wait: &dyn Fn() -> WaitLimit| loop {
            match send(&*client, &octets, wait()) {
                Ok(count) => sent += count,
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(refused(&|| WaitLimit::Now), io::ErrorKind::WouldBlock);
        let soon = || WaitLimit::Until(Monotonic::now() + Duration::from_millis(2));
        assert_eq!(refused(&soon), io::ErrorKind::TimedOut);
        client.set_coarse_timeouts(Duration::ZERO, Duration::from_millis(1)).unwrap();
        assert_eq!(refused(&|| WaitLimit::Block), io::ErrorKind::TimedOut);
        client.shutdown(ShutdownDirection::Write);
        let mut received = 0;
        let mut buffer = [0; 9_999];
        loop {
            match server.recv(&mut buffer, WaitLimit::Block).unwrap() {
                0 => break,
                count => received += count,
            }
        }
        assert_eq!(received, sent);
    });
}

#[test]
fn halves_close_independently() {
    each("halves", |transport, endpoint| {
        let (client, server) = pair(transport, endpoint);
        let mut buffer = [0; 8];
        send(&*client, b"last", WaitLimit::Block).unwrap();
        client.shutdown(ShutdownDirection::Write);
        client.shutdown(ShutdownDirection::Write);
        assert_eq!(server.recv(&mut buffer, WaitLimit::Block).unwrap(), 4);
        assert_eq!(server.recv(&mut buffer, WaitLimit::Block).unwrap(), 0);
        assert_eq!(send(&*server, b"answer", WaitLimit::Now).unwrap(), 6);
        assert_eq!(client.recv(&mut buffer, WaitLimit::Block).unwrap(), 6);
        assert!(send(&*client, b"more", WaitLimit::Now).is_err());
        drop(server);
        assert_eq!(client.recv(&mut buffer, WaitLimit::Block).unwrap(), 0);
    });
}

/// The test hangs if a waiting thread is not woken.
#[test]
fn shutdown_of_both_halves_wakes_waiting_threads() {
    each("wakes", |transport, endpoint| {
        let (client, server) = pair(transport, endpoint);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| server.recv(&mut [0; 8], WaitLimit::Block));
            server.shutdown(ShutdownDirection::Both);
            assert!(!matches!(reader.join().unwrap(), Ok(1..)));
        });
        assert!(send(&*server, b"x", WaitLimit::Now).is_err());
        assert_eq!(client.recv(&mut [0; 8], WaitLimit::Block).unwrap(), 0);
    });
}

#[test]
fn send_to_a_closed_peer_fails() {
    each("gone", |transport, endpoint| {
        let (client, server) = pair(transport, endpoint);
        drop(server);
        let deadline = Monotonic::now() + Duration::from_secs(10);
        // The system may accept the first bytes, because it learns of the end only when it
        // sends them.
        while send(&*client, b"anyone?", WaitLimit::Now).is_ok() {
            assert!(!deadline.is_past());
        }
    });
}

#[test]
fn listener_accepts_in_order_and_stops_when_dropped() {
    each("listeners", |transport, endpoint| {
        let listener = transport.listen(endpoint).unwrap();
        assert_eq!(kind(listener.accept()), io::ErrorKind::WouldBlock);
        let clients: Vec<_> = (0..3).map(|_| transport.connect(listener.local_endpoint(), None).unwrap()).collect();
        for (number, client) in (0u8..).zip(&clients) {
            send(&**client, &[number], WaitLimit::Block).unwrap();
        }
        for number in 0..3 {
            let mut octet = [9];
            assert_eq!(accept(&*listener).recv(&mut octet, WaitLimit::Block).unwrap(), 1);
            assert_eq!(octet[0], number);
        }
        assert_eq!(kind(listener.accept()), io::ErrorKind::WouldBlock);
        let local = listener.local_endpoint().clone();
        assert_eq!(kind(transport.listen(&local)), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(transport.connect(&local, None).is_err());
        drop(transport.listen(&local).unwrap());
    });
}

#[test]
fn connections_have_the_requested_properties() {
    use corelane_net::ConnectionProperties;
    use corelane_sys::socket;
    each("properties", |transport, endpoint| {
        let listener = transport.listen(endpoint).unwrap();
        let small = ConnectionProperties {
            send_buffer_size: Some(9000),
            receive_buffer_size: Some(7000),
            ..ConnectionProperties::default()
        };
        let properties =
            ConnectionProperties { keep_alive: Some(true), dont_route: Some(true), no_delay: Some(false), ..small };
        let _plain = transport.connect(listener.local_endpoint(), None).unwrap();
        let as_before = accept(&*listener);
        listener.set_properties(&properties).unwrap();
        let client = transport.connect_with_properties(listener.local_endpoint(), &properties, None).unwrap();
        let server = accept(&*listener);
        for (stream, all) in [(&client, true), (&server, true), (&as_before, false)] {
            let Some(fd) = stream.readiness_descriptor() else { continue };
            if matches!(endpoint, Endpoint::SharedMemory { .. }) {
                // The listener's properties set the size of the rings.
                let mut sent = 0;
                while let Ok(count) = send(&**stream, &[0; 5000], WaitLimit::Now) {
                    sent += count;
                }
                assert!(matches!((sent, all), (8192 | 16_384, true) | (65_536, _)), "{sent}");
                continue;
            }
            // The kernel doubles the sizes.
            assert_eq!(socket::send_buffer_size(fd).unwrap() == 18_000, all);
            assert_eq!(socket::receive_buffer_size(fd).unwrap() == 14_000, all);
            if matches!(endpoint, Endpoint::Tcp { .. }) {
                let bools = (socket::is_keepalive_enabled(fd), socket::dont_route(fd), socket::nodelay(fd));
                let bools = (bools.0.unwrap(), bools.1.unwrap(), bools.2.unwrap());
                assert_eq!(bools, (all, all, !all));
            }
            // If the peer is on this machine, no network card is behind the stream, so the time for
            // polling a card stays unchanged.
            let ip = |address: socket::Address| address.as_inet().map(std::net::SocketAddr::ip);
            let is_near = ip(socket::peer_address(fd).unwrap()) == ip(socket::local_address(fd).unwrap());
            let before = socket::busy_poll(fd).unwrap();
            let more = before + Duration::from_micros(30);
            stream.set_busy_poll(more).unwrap();
            assert_eq!(socket::busy_poll(fd).unwrap(), if is_near { before } else { more });
            stream.set_dscp(46).unwrap();
            if matches!(endpoint, Endpoint::Tcp { .. }) {
                assert_eq!(socket::dscp(fd).unwrap(), 46);
            }
        }
    });
}
