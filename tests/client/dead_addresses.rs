//! References with several addresses, of which some do not answer.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{CallPolicies, Endpoint, Orb, RebindMode, SystemExceptionKind as Kind};
use corelane_net::{ConnectionProperties, Listener, Stream, TcpTransport, Transport, Transports};
use corelane_sys::clock::{self, Monotonic};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::socket::{self, Address, SocketOptions};
use corelane_tests::ProbeRef;
use corelane_tests::scripted::{CLOSE_CONNECTION, ScriptedServer, message, serve, successful_reply};

struct Dead {
    address: SocketAddr,
    _held: (OwnedFd, Vec<std::net::TcpStream>),
}

impl Dead {
    fn new() -> Self {
        let any = Address::Inet("127.0.0.1:0".parse().unwrap());
        let listener = socket::listen(&any, &SocketOptions::default(), 0).unwrap();
        let address = socket::local_address(listener.as_fd()).unwrap().as_inet().copied().unwrap();
        let mut held = Vec::new();
        loop {
            assert!(held.len() < 64, "the backlog of the listener does not fill");
            match std::net::TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
                Ok(stream) => held.push(stream),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
                    return Dead { address, _held: (listener, held) };
                }
            }
        }
    }

    fn assert_dead(&self) {
        let late = std::net::TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

#[derive(Clone, Debug)]
struct Counting(Arc<(TcpTransport, Mutex<HashMap<u16, usize>>)>);

impl Counting {
    fn new() -> Self {
        Counting(Arc::new((TcpTransport::new(), Mutex::new("attempts", LockScope::Orb, HashMap::new()))))
    }

    fn attempts(&self, address: SocketAddr) -> usize {
        self.0.1.lock().get(&address.port()).copied().unwrap_or(0)
    }
}

impl Transport for Counting {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        self.0.0.supports(endpoint)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        if let Endpoint::Tcp { port, .. } = endpoint {
            *self.0.1.lock().entry(*port).or_default() += 1;
        }
        self.0.0.connect_with_properties(endpoint, properties, deadline)
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.0.0.listen(endpoint)
    }
}

fn live() -> ScriptedServer {
    serve(usize::MAX, |_, _| Ok(()))
}

fn client(policies: CallPolicies) -> (Orb, Counting) {
    let counting = Counting::new();
    let transports = Transports::new(vec![Arc::new(counting.clone())]);
    (Orb::builder().call_policies(policies).transports(transports).build().unwrap(), counting)
}

fn reference(orb: &Orb, addresses: &[SocketAddr]) -> ProbeRef {
    let addresses: Vec<String> = addresses.iter().map(|address| format!("iiop:1.2@{address}")).collect();
    let object = orb.string_to_object(&format!("corbaloc:{}/Key", addresses.join(","))).unwrap().unwrap();
    ProbeRef::from_object(object)
}

const PATIENT: CallPolicies =
    CallPolicies { timeout: Some(corelane::Timeout::Precise(Duration::from_secs(120))), ..CallPolicies::NONE };

type Call = fn(&ProbeRef);

fn cube(probe: &ProbeRef) {
    assert_eq!(probe.cube_long(3).unwrap(), 27);
}

fn deferred(probe: &ProbeRef) {
    let argument = |encoder: &mut corelane::Encoder<'static>| {
        encoder.write_i32(3);
        Ok(())
    };
    let mut call = probe.as_object().send_deferred("cube_long", argument).unwrap();
    assert_eq!(call.reply().unwrap().read(|decoder| decoder.read_i32()).unwrap(), 27);
}

const CALLS: [(&str, Call); 2] = [("a call", cube), ("a deferred call", deferred)];

#[test]
fn a_dead_first_profile_is_tried_once_in_many_calls() {
    let (dead, live) = (Dead::new(), live());
    for policies in [CallPolicies::NONE, PATIENT] {
        for (what, call) in CALLS {
            let (orb, counting) = client(policies);
            let probe = reference(&orb, &[dead.address, live.address]);
            (0..20).for_each(|_| call(&probe));
            assert_eq!(counting.attempts(dead.address), 1, "{what}");
            assert_eq!(counting.attempts(live.address), 1, "{what}");
        }
    }
    dead.assert_dead();
}

#[test]
fn a_short_time_out_reaches_the_profile_that_answers() {
    let (dead, live) = (Dead::new(), live());
    let timeout = Some(corelane::Timeout::Precise(Duration::from_secs(20)));
    let connect_timeout = Some(Duration::from_secs(20));
    let (orb, counting) = client(CallPolicies { timeout, connect_timeout, ..CallPolicies::NONE });
    let probe = reference(&orb, &[dead.address, dead.address, live.address]);
    (0..20).for_each(|_| cube(&probe));
    assert_eq!(counting.attempts(live.address), 1);
    assert!(counting.attempts(dead.address) <= 2);
    dead.assert_dead();
}

#[test]
fn a_dead_address_of_many_references_is_not_tried_for_each_of_them() {
    const MANY: usize = 40;
    let (dead, live) = (Dead::new(), live());
    let (orb, counting) = client(PATIENT);
    let begun = clock::now();
    let mut most = 1;
    for _ in 0..MANY {
        cube(&reference(&orb, &[dead.address, live.address]));
        // The back-off time doubles with each failure: 1, 2, 4 seconds.
        most = 1 + usize::try_from((1 + begun.elapsed().as_secs()).ilog2()).unwrap() + 1;
    }
    assert!(counting.attempts(dead.address) <= most.min(MANY / 2), "{} attempts", counting.attempts(dead.address));
    dead.assert_dead();
}

#[test]
fn a_dead_address_of_a_profile_is_tried_once_in_many_calls() {
    let (dead, live) = (Dead::new(), live());
    let (orb, counting) = client(PATIENT);
    let served = Orb::builder()
        .published_address(format!("tcp:{}", dead.address))
        .published_address(format!("tcp:{}", live.address))
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    let root = served.root_poa();
    let text = root.create_reference("IDL:Probe:1.0").unwrap().to_string();
    let probe = ProbeRef::from_object(orb.string_to_object(&text).unwrap().unwrap());
    (0..20).for_each(|_| cube(&probe));
    assert_eq!((counting.attempts(dead.address), counting.attempts(live.address)), (1, 1));
    dead.assert_dead();
}

#[test]
fn the_profile_that_answered_last_is_tried_first() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    // The server closes the connection after each request, so every call makes a new connection.
    let second = serve(0, move |stream, id| {
        counted.fetch_add(1, Ordering::SeqCst);
        stream.write_all(&successful_reply(id))?;
        stream.write_all(&message(CLOSE_CONNECTION, false, &[]))?;
        Err(io::ErrorKind::ConnectionAborted.into())
    });
    // The port `shut` stays closed, because no other test uses this address.
    let (third, shut) = (live(), std::net::TcpListener::bind("127.0.0.6:0").unwrap().local_addr().unwrap());
    let (orb, counting) = client(PATIENT);
    let probe = reference(&orb, &[shut, second.address, third.address]);
    (0..5).for_each(|_| cube(&probe));
    assert_eq!((counting.attempts(shut), counting.attempts(third.address)), (1, 0));
    assert_eq!(asked.load(Ordering::SeqCst), 5);
}

#[test]
fn no_rebind_keeps_the_policies_in_force_across_profiles() {
    let (dead, live) = (Dead::new(), live());
    let (orb, counting) = client(CallPolicies { rebind: Some(RebindMode::NoReconnect), ..PATIENT });
    let probe = reference(&orb, &[dead.address, live.address]);
    // The policy permits the second profile while the reference has received no reply.
    (0..5).for_each(|_| cube(&probe));
    assert_eq!((counting.attempts(dead.address), counting.attempts(live.address)), (1, 1));
}

#[test]
fn call_to_dead_addresses_ends_at_its_deadline() {
    let dead = Dead::new();
    let timeout = Some(corelane::Timeout::Precise(Duration::from_millis(700)));
    let (orb, counting) = client(CallPolicies { timeout, ..CallPolicies::NONE });
    let probe = reference(&orb, &[dead.address, dead.address]);
    // If the machine pauses, the deadline may pass before the first attempt, so the call is
    // repeated.
    while counting.attempts(dead.address) == 0 {
        let exception = probe.cube_long(3).unwrap_err();
        assert!(matches!(exception.kind(), Kind::Timeout | Kind::Transient), "{exception}");
        assert_eq!(exception.completed(), corelane::Completion::No);
    }
    dead.assert_dead();
}
