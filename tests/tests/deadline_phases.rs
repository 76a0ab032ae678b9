//! A call's time may be over while it connects and while it sends, on a connection of its own: what it raises says so. Nothing here
//! depends on how long anything takes, except that a test without end is ended.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use corelane::{
    CallPolicies, Completion, Orb, Phase, Reference, SystemException, SystemExceptionKind as Kind, Timeout,
};
use corelane_sys::clock;
use corelane_sys::socket::{self, Address, Options};
use corelane_tests::ProbeRef;

/// After this a call that should have ended has not.
const ENOUGH: Duration = Duration::from_secs(60);
/// Enough for a connection where it is not to take long.
const SHORT: Duration = Duration::from_secs(1);

fn probe(orb: &Orb, port: u16) -> ProbeRef {
    ProbeRef::from_object(orb.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/Key")).unwrap().unwrap())
}

/// The exception of a call, which has to come.
fn exception<T: Send + 'static>(call: impl FnOnce() -> Result<T, SystemException> + Send + 'static) -> SystemException {
    let (start, call) = (Instant::now(), std::thread::spawn(move || call().err()));
    while !call.is_finished() {
        assert!(start.elapsed() < ENOUGH, "the call does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    call.join().unwrap().expect("an exception")
}

/// A precise time-out and a coarse one.
fn timeouts() -> [CallPolicies; 2] {
    [Timeout::Precise(SHORT), Timeout::Coarse(SHORT)]
        .map(|timeout| CallPolicies { timeout: Some(timeout), ..CallPolicies::NONE })
}

fn assert_ended(ended: &SystemException, phase: Phase, port: u16, what: &str) {
    assert_eq!((ended.kind(), ended.minor() & 0xfff, ended.completed()), (Kind::Timeout, 2, Completion::No), "{what}");
    let detail = ended.detail().unwrap();
    assert_eq!(detail.phase, Some(phase), "{what}: {ended}");
    assert_eq!(detail.endpoint.as_deref(), Some(format!("tcp:127.0.0.1:{port}").as_str()), "{what}");
}

/// A listener on loopback that takes in no further connection, those that fill it, and its port.
fn full() -> (OwnedFd, Vec<OwnedFd>, u16) {
    let address = Address::Inet((Ipv4Addr::LOCALHOST, 0).into());
    let listener = socket::listen(&address, &Options::default(), 0).unwrap();
    let address = socket::local_address(listener.as_fd()).unwrap();
    let mut taken = Vec::new();
    // On loopback what is taken in is there at once.
    while let Ok(stream) = socket::connect(&address, &Options::default(), Some(clock::now() + Duration::from_secs(1))) {
        taken.push(stream);
        assert!(taken.len() < 16, "the listener is never full");
    }
    let port = address.as_inet().unwrap().port();
    (listener, taken, port)
}

#[test]
fn a_call_whose_time_is_over_while_it_connects_says_so() {
    let (_listener, _taken, port) = full();
    for policies in timeouts() {
        let orb = Orb::new().unwrap();
        let probe = probe(&orb, port).with_policies(policies);
        let ended = exception(move || probe.cube_octet(2));
        assert_ended(&ended, Phase::Connect, port, &format!("{policies:?}"));
        assert!(ended.detail().unwrap().elapsed.unwrap() >= SHORT);
    }
}

/// The time for connecting is a part of the call's: when it is over, there may be another address, so it is TRANSIENT.
#[test]
fn a_connection_that_takes_too_long_is_given_up_within_the_call_s_time() {
    let (_listener, _taken, port) = full();
    let orb = Orb::builder().call_timeout(10 * ENOUGH).build().unwrap();
    let probe = probe(&orb, port).with_connect_timeout(SHORT);
    let ended = exception(move || probe.cube_octet(2));
    assert_eq!((ended.kind(), ended.completed()), (Kind::Transient, Completion::No));
    assert_eq!(ended.detail().unwrap().phase, Some(Phase::Connect), "{ended}");
}

/// A peer that takes the connection and reads nothing: the request stays on the way, and has not run.
#[test]
fn a_call_whose_time_is_over_while_it_sends_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for policies in timeouts() {
        let orb = Orb::new().unwrap();
        let probe = probe(&orb, port).with_policies(policies);
        // More than the buffers of both ends hold.
        let ended = exception(move || probe.mirror(&vec![7; 32 << 20]));
        assert_ended(&ended, Phase::Send, port, &format!("{policies:?}"));
        assert!(ended.detail().unwrap().elapsed.unwrap() >= SHORT);
        // The connection is of no use any more: half a message is out.
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(ENOUGH)).unwrap();
        let mut header = [0; 12];
        stream.read_exact(&mut header).unwrap();
        let announced = u32::from_le_bytes(header[8..].try_into().unwrap());
        // It ends by a reset, or by the end of the octets.
        let sent = std::io::copy(&mut stream, &mut std::io::sink()).unwrap_or(0);
        assert!(sent < u64::from(announced), "the whole request has come: {sent} octets");
    }
}
