//! The exception of a call says if its deadline passed while it connected or while it sent.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use corelane::{CallPhase, CallPolicies, Completion, Orb, SystemException, SystemExceptionKind as Kind, Timeout};
use corelane_sys::clock;
use corelane_sys::socket::{self, Address, SocketOptions};
use corelane_tests::ProbeRef;

const ENOUGH: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);

fn probe(orb: &Orb, port: u16) -> ProbeRef {
    ProbeRef::from_object(orb.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/Key")).unwrap().unwrap())
}

fn exception<T: Send + 'static>(call: impl FnOnce() -> Result<T, SystemException> + Send + 'static) -> SystemException {
    let (start, call) = (Instant::now(), std::thread::spawn(move || call().err()));
    while !call.is_finished() {
        assert!(start.elapsed() < ENOUGH, "the call does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    call.join().unwrap().expect("an exception")
}

fn timeouts() -> [CallPolicies; 2] {
    [Timeout::Precise(SHORT), Timeout::Coarse(SHORT)]
        .map(|timeout| CallPolicies { timeout: Some(timeout), ..CallPolicies::NONE })
}

fn assert_ended(ended: &SystemException, phase: CallPhase, port: u16, what: &str) {
    assert_eq!((ended.kind(), ended.minor() & 0xfff, ended.completed()), (Kind::Timeout, 2, Completion::No), "{what}");
    let detail = ended.detail().unwrap();
    assert_eq!(detail.phase, Some(phase), "{what}: {ended}");
    assert_eq!(detail.endpoint.as_deref(), Some(format!("tcp:127.0.0.1:{port}").as_str()), "{what}");
}

fn full() -> (OwnedFd, Vec<OwnedFd>, u16) {
    let address = Address::Inet((Ipv4Addr::LOCALHOST, 0).into());
    let listener = socket::listen(&address, &SocketOptions::default(), 0).unwrap();
    let address = socket::local_address(listener.as_fd()).unwrap();
    let mut taken = Vec::new();
    while let Ok(stream) =
        socket::connect(&address, &SocketOptions::default(), Some(clock::now() + Duration::from_secs(1)))
    {
        taken.push(stream);
        assert!(taken.len() < 16, "the backlog of the listener does not fill");
    }
    let port = address.as_inet().unwrap().port();
    (listener, taken, port)
}

#[test]
fn exception_tells_that_the_deadline_passed_while_connecting() {
    let (_listener, _taken, port) = full();
    for policies in timeouts() {
        let orb = Orb::new().unwrap();
        let probe = probe(&orb, port).with_policies(policies);
        let ended = exception(move || probe.cube_octet(2));
        assert_ended(&ended, CallPhase::Connect, port, &format!("{policies:?}"));
        assert!(ended.detail().unwrap().elapsed.unwrap() >= SHORT);
    }
}

/// The exception is TRANSIENT, because another address of a reference may answer.
#[test]
fn connect_timeout_ends_a_call_before_its_own_timeout() {
    let (_listener, _taken, port) = full();
    let orb = Orb::builder().call_timeout(10 * ENOUGH).build().unwrap();
    let probe = probe(&orb, port).with_connect_timeout(SHORT);
    let ended = exception(move || probe.cube_octet(2));
    assert_eq!((ended.kind(), ended.completed()), (Kind::Transient, Completion::No));
    assert_eq!(ended.detail().unwrap().phase, Some(CallPhase::Connect), "{ended}");
}

#[test]
fn exception_tells_that_the_deadline_passed_while_sending() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for policies in timeouts() {
        let orb = Orb::new().unwrap();
        let probe = probe(&orb, port).with_policies(policies);
        let ended = exception(move || probe.mirror(&vec![7; 32 << 20]));
        assert_ended(&ended, CallPhase::SendRequest, port, &format!("{policies:?}"));
        assert!(ended.detail().unwrap().elapsed.unwrap() >= SHORT);
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(ENOUGH)).unwrap();
        let mut header = [0; 12];
        stream.read_exact(&mut header).unwrap();
        let announced = u32::from_le_bytes(header[8..].try_into().unwrap());
        let sent = std::io::copy(&mut stream, &mut std::io::sink()).unwrap_or(0);
        assert!(sent < u64::from(announced), "the whole request was sent: {sent} octets");
    }
}
