//! Hostile and broken servers: floods of replies, late and slow replies, and forbidden messages.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{CallPolicies, Completion, Event, Orb, SystemExceptionKind as Kind, Timeout};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::ProbeRef;
use corelane_tests::scripted::{REPLY, message, reply_start, serve};

type Told = Arc<Mutex<Vec<Event>>>;

fn client(server: SocketAddr, timeout: Timeout) -> (Orb, ProbeRef, Told) {
    let told = Told::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let list = Arc::clone(&told);
    let policies = CallPolicies { timeout: Some(timeout), ..CallPolicies::NONE };
    let told_of = move |event: &Event| list.lock().push(event.clone());
    let builder = Orb::builder().call_policies(policies).max_connections_per_server(1).on_event(told_of);
    let orb = builder.build().unwrap();
    let object = orb.string_to_object(&format!("corbaloc::1.2@{server}/Key")).unwrap().unwrap();
    (orb, ProbeRef::from_object(object), told)
}

fn assert_told(orb: &Orb, told: &Told, server: SocketAddr, expected_faults: RangeInclusive<usize>, what: &str) {
    let told = told.lock();
    for event in &*told {
        let Event::ProtocolFault { peer, .. } = event else { panic!("{what}: {event:?}") };
        assert!(peer.to_string().contains(&server.to_string()), "{what}: {peer} is not {server}");
    }
    assert!(expected_faults.contains(&told.len()), "{what}: {:?}", *told);
    assert_eq!(orb.event_counts().protocol_faults, told.len() as u64, "{what}");
}

const WELL: [usize; 2] = [0, 1];

fn warm(probe: &ProbeRef, well: usize) {
    for _ in 0..well {
        assert_eq!(probe.cube_long(3).unwrap(), 27);
    }
}

fn flood(stream: &mut TcpStream, octets: &[u8]) -> std::io::Result<()> {
    let many = octets.repeat(1000);
    loop {
        stream.write_all(&many)?;
    }
}

#[test]
fn flood_of_unknown_replies_ends_the_call() {
    let day = Duration::from_secs(24 * 3600);
    for timeout in [Timeout::Never, Timeout::Precise(day), Timeout::Coarse(day)] {
        for well in WELL {
            let server =
                serve(well, |stream, id| flood(stream, &message(REPLY, false, &reply_start(id + 1000, 0)))).address;
            let (orb, probe, told) = client(server, timeout);
            warm(&probe, well);
            let exception = probe.cube_long(2).unwrap_err();
            assert_eq!(exception.kind(), Kind::CommFailure, "{exception}");
            assert_told(&orb, &told, server, 1..=1, &format!("{timeout:?}, {well}"));
        }
    }
}

#[test]
fn flood_of_unknown_replies_ends_a_shared_connection() {
    let flooded = Arc::new(AtomicUsize::new(0));
    let floods = Arc::clone(&flooded);
    let server = serve(0, move |stream, id| {
        floods.fetch_add(1, Ordering::SeqCst);
        flood(stream, &message(REPLY, false, &reply_start(id + 1000, 0)))
    })
    .address;
    let (orb, probe, told) = client(server, Timeout::Never);
    let mut calls: Vec<_> = (0..3)
        .map(|number| {
            let argument = move |encoder: &mut corelane::Encoder<'static>| {
                encoder.write_i32(number);
                Ok(())
            };
            probe.as_object().send_deferred("cube_long", argument)
        })
        .filter_map(Result::ok)
        .collect();
    assert!(!calls.is_empty());
    for call in &mut calls {
        assert_eq!(call.reply().unwrap_err().kind(), Kind::CommFailure);
    }
    assert_told(&orb, &told, server, 1..=flooded.load(Ordering::SeqCst), "shared");
}

#[test]
fn late_replies_to_timed_out_calls_are_skipped() {
    let seen = Mutex::new("requests seen", LockScope::Connection, Vec::new());
    let server = serve(0, move |stream, id| {
        let mut seen = seen.lock();
        seen.push(id);
        if seen.len() < 3 {
            return Ok(());
        }
        for id in &*seen {
            let mut body = reply_start(*id, 0);
            body.extend(27_i32.to_le_bytes());
            stream.write_all(&message(REPLY, false, &body))?;
        }
        Ok(())
    })
    .address;
    let (orb, probe, _told) = client(server, Timeout::Never);
    for _ in 0..2 {
        // If the deadline passes before the request is sent, the test repeats the call.
        let impatient = || probe.with_timeout(Duration::from_millis(100)).cube_long(3).unwrap_err();
        let late = std::iter::repeat_with(impatient)
            .find(|late| late.kind() != Kind::Timeout || late.completed() == Completion::Maybe);
        assert_eq!(late.map(|late| late.kind()), Some(Kind::Timeout));
    }
    assert_eq!(probe.cube_long(3).unwrap(), 27);
    assert_eq!(orb.event_counts().protocol_faults, 0);
}

#[test]
fn messages_that_a_server_may_not_send_end_the_call_with_an_event() {
    type Answer = fn(&mut TcpStream, u32) -> std::io::Result<()>;
    let answers: [(&str, Answer); 7] = [
        ("no GIOP", |stream, _| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        ("a status that there is none of", |stream, id| stream.write_all(&message(REPLY, false, &reply_start(id, 77)))),
        ("a request", |stream, id| stream.write_all(&message(0, false, &reply_start(id, 3)))),
        ("a reply cut short", |stream, _| stream.write_all(&message(REPLY, false, &[0, 0]))),
        ("an unknown type of message", |stream, _| stream.write_all(&message(9, false, &[]))),
        ("a message of 4 GiB", |stream, id| {
            let mut octets = message(REPLY, false, &reply_start(id, 0));
            octets[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
            stream.write_all(&octets)
        }),
        ("fragmented replies without end", |stream, _| {
            (0..).try_for_each(|id| stream.write_all(&message(REPLY, true, &reply_start(0x10_0000 + id, 0))))
        }),
    ];
    for (what, answer) in answers {
        for well in WELL {
            let server = serve(well, answer).address;
            let (orb, probe, told) = client(server, Timeout::Never);
            warm(&probe, well);
            let exception = probe.cube_long(2).unwrap_err();
            assert!(matches!(exception.kind(), Kind::CommFailure | Kind::Marshal), "{what}: {exception}");
            assert_told(&orb, &told, server, 1..=1, &format!("{what}, {well}"));
        }
    }
}

#[test]
fn slow_reply_does_not_extend_the_timeout() {
    for timeout in [Timeout::Precise(Duration::from_millis(300)), Timeout::Coarse(Duration::from_millis(300))] {
        for well in WELL {
            let server = serve(well, |stream, id| {
                let mut octets = message(REPLY, false, &reply_start(id, 0));
                octets[8..12].copy_from_slice(&(1_u32 << 20).to_le_bytes());
                stream.write_all(&octets)?;
                loop {
                    stream.write_all(b"x")?;
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let (_orb, probe, _told) = client(server.address, Timeout::Never);
            warm(&probe, well);
            let impatient = probe.with_timeout(timeout);
            assert_eq!(impatient.cube_long(2).unwrap_err().kind(), Kind::Timeout, "{timeout:?}, {well}");
        }
    }
}
