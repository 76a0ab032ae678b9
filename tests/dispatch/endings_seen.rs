//! Connections whose end arrives together with their last bytes, and connections that always have
//! further bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corelane::{Dispatch, Endpoint};
use corelane_tests::{EVERY_DISPATCH, Server, client, serve};
use corelane_wire::giop::{self, RequestHeader, ResponseExpected, TargetAddress};
use corelane_wire::{Encoder, Version};

fn port(server: &Server) -> u16 {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP") };
    port
}

fn request(server: &Server, id: u32, operation: &str, argument: i32, response: ResponseExpected) -> Vec<u8> {
    let profile = server.probe.as_object().ior().profiles.iter().find(|profile| profile.tag == 0).unwrap();
    let key = profile.parse().unwrap().object_key.to_vec();
    let mut message = Encoder::new();
    let head = RequestHeader {
        version: Version::GIOP_1_2,
        request_id: id,
        response_expected: response,
        target: TargetAddress::Key(&key),
        operation: operation.as_bytes(),
        contexts: &[],
    };
    giop::write_request_header(&mut message, &head).unwrap();
    message.write_i32(argument);
    giop::finish_message(&mut message).unwrap();
    message.to_vec()
}

fn until(what: &str, come: impl Fn() -> bool) {
    let start = Instant::now();
    while !come() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The server must send CloseConnection to the client whose request waits, because the request has
/// not run.
#[test]
fn connection_in_the_backlog_gets_close_connection() {
    let server = serve(Dispatch::Reactive);
    let (_orb, probe) = client(&server.ior);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| probe.slow(200).unwrap());
        while server.probe.started().unwrap() == 0 {
            std::thread::yield_now();
        }
        let mut late = TcpStream::connect(("127.0.0.1", port(&server))).unwrap();
        late.write_all(&request(&server, 1, "cube_long", 2, ResponseExpected::Target)).unwrap();
        server.orb.shutdown(false).unwrap();
        let mut said = Vec::new();
        late.read_to_end(&mut said).unwrap();
        let last = said.last_chunk::<12>().map(|last| last[7]);
        assert_eq!(last, Some(5), "CloseConnection is the last message");
        drop(late);
        busy.join().unwrap();
    });
}

#[test]
fn end_that_arrives_with_the_last_bytes_is_noticed() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let (_orb, probe) = client(&server.ior);
        let opened = server.orb.event_counts().connections_opened;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| probe.slow(100).unwrap());
            }
            until("the upcalls", || server.orb.event_counts().connections_opened > opened);
            for half in [false, true] {
                for id in 0..3 {
                    let mut stream = TcpStream::connect(("127.0.0.1", port(&server))).unwrap();
                    stream.write_all(&request(&server, id, "note", 1, ResponseExpected::None)).unwrap();
                    if half {
                        stream.shutdown(Shutdown::Write).unwrap();
                        scope.spawn(move || stream.read_to_end(&mut Vec::new()));
                    }
                }
            }
        });
        until("the oneways have run", || probe.noted().unwrap() == 6);
        until("the connections have ended", || server.orb.event_counts().connections_closed >= 6);
    }
}

#[test]
fn connections_that_always_have_more_do_not_starve_others() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let stop = Arc::new(AtomicBool::new(false));
        let flood: Vec<u8> = (0..500).flat_map(|id| request(&server, id, "note", 0, ResponseExpected::None)).collect();
        let floods: Vec<_> = (0..4)
            .map(|_| {
                let (stop, flood, port) = (Arc::clone(&stop), flood.clone(), port(&server));
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    while !stop.load(Ordering::Relaxed) && stream.write_all(&flood).is_ok() {}
                })
            })
            .collect();
        until("the floods", || server.orb.event_counts().connections_opened >= 4);
        let (_orb, probe) = client(&server.ior);
        let probe = probe.with_timeout(Duration::from_secs(20));
        for value in 0..20u8 {
            assert_eq!(probe.cube_octet(value).unwrap(), value.wrapping_mul(value).wrapping_mul(value));
        }
        stop.store(true, Ordering::Relaxed);
        drop(server);
        floods.into_iter().for_each(|flood| flood.join().unwrap());
    }
}
