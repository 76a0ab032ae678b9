//! Requests with large replies wait while unread replies fill the memory of their pool.
#![cfg(feature = "reply-memory-waits")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{
    ConnectionLimits, Dispatch, Endpoint, ObjectRef, Octets, Orb, PoolConfig, Servant, ServerCall, Skeleton,
    SystemException,
};
use corelane_sys::clock;
use corelane_tests::raw::request;

const LARGE: usize = 1 << 20;
const HELD: usize = 8 << 20;
/// Number of large replies that together exceed half of `HELD`.
const UNREAD: usize = 5;
const THREADS: usize = 2;

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = clock::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(!end.is_past(), "{what}: the condition does not become true");
        std::thread::sleep(Duration::from_micros(500));
    }
}

struct Test(Arc<AtomicUsize>);

impl Skeleton for Test {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Held:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        if operation == b"large" {
            self.0.fetch_add(1, Ordering::SeqCst);
            call.reply().write_octet_sequence_owned(Octets::from(vec![7; LARGE]))?;
        }
        Ok(())
    }
}

struct Server {
    orb: Orb,
    object: ObjectRef,
    large: Arc<AtomicUsize>,
}

impl Server {
    fn new(dispatch: Dispatch, write_timeout: Duration, name: &str) -> Self {
        let limits = ConnectionLimits::default().max_buffered_bytes(HELD).write_timeout(write_timeout);
        let path = std::env::temp_dir().join(format!("corelane-held-{}-{name}", std::process::id()));
        let pool = PoolConfig::default().dispatch(dispatch).connection_limits(limits);
        let orb = Orb::builder().pool(pool).listen(format!("unix:{}", path.display())).build().unwrap();
        let large = Arc::new(AtomicUsize::new(0));
        let object = orb.root_poa().activate(&Servant::new(Test(Arc::clone(&large)))).unwrap();
        orb.root_poa().manager().activate().unwrap();
        Server { orb, object, large }
    }

    fn large(&self) -> usize {
        self.large.load(Ordering::SeqCst)
    }

    fn client(&self) -> Client {
        let Endpoint::Unix { path } = self.orb.endpoints()[0].clone() else { panic!("no Unix socket") };
        let key = self.object.ior().known_profiles().next().unwrap().object_key.to_vec();
        Client { stream: UnixStream::connect(path).unwrap(), key, received: 0 }
    }
}

struct Client {
    stream: UnixStream,
    key: Vec<u8>,
    received: usize,
}

/// Size in bytes of a reply to `large`: the two headers, the length of the sequence, and its
/// octets.
const REPLY: usize = 24 + 4 + LARGE;

impl Client {
    fn send(&mut self, operation: &str) {
        self.stream.write_all(&request(&self.key, 1, operation, |_| ())).unwrap();
    }

    fn call_small(&mut self) {
        self.send("small");
        self.stream.read_exact(&mut [0; 24]).unwrap();
    }

    fn read_arrived(&mut self, octets: &mut [u8]) {
        self.stream.set_nonblocking(true).unwrap();
        match self.stream.read(octets) {
            Ok(0) => panic!("the server has ended the connection after {} octets", self.received),
            Ok(count) => self.received += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error} after {} octets", self.received),
        }
    }
}

fn read_all(clients: &mut [Client], replies: usize) {
    let mut octets = vec![0; 256 << 10];
    until("replies", || {
        clients.iter_mut().for_each(|client| client.read_arrived(&mut octets));
        clients.iter().all(|client| client.received == replies * REPLY)
    });
}

const CLIENTS: usize = 40;
const CALLS: usize = 3;

#[test]
fn clients_with_large_replies_get_them_in_turn_and_no_client_is_ended() {
    let pools = [
        Dispatch::Reactive,
        Dispatch::LeaderFollowers { threads: THREADS },
        Dispatch::HalfSyncHalfAsync { threads: THREADS, max_queued: 8 * CLIENTS * CALLS },
    ];
    for (number, dispatch) in pools.into_iter().enumerate() {
        let server = Server::new(dispatch, Duration::from_secs(3600), &number.to_string());
        let mut small = server.client();
        small.call_small();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| (0..CALLS).for_each(|_| client.send("large")));
        until("unread replies", || server.large() >= UNREAD);
        for _ in 0..20 {
            small.call_small();
            server.client().call_small();
        }
        let begun = server.large();
        assert!(begun <= UNREAD + THREADS, "{dispatch:?}: {begun} replies of {LARGE} octets in {HELD} octets");
        read_all(&mut clients, CALLS);
        assert_eq!(server.large(), CLIENTS * CALLS, "{dispatch:?}");
        small.call_small();
    }
}

#[test]
fn peers_that_do_not_read_delay_large_replies_for_a_limited_time() {
    let server = Server::new(Dispatch::Reactive, Duration::from_secs(60), "stalled");
    let mut stalled: Vec<Client> = (0..UNREAD).map(|_| server.client()).collect();
    for (number, client) in stalled.iter_mut().enumerate() {
        client.send("large");
        until("reply", || server.large() > number);
    }
    let mut good = [server.client()];
    good[0].send("large");
    server.client().call_small();
    assert_eq!(server.large(), UNREAD, "the request must wait");
    read_all(&mut good, 1);
    read_all(&mut stalled, 1);
}

#[test]
fn waiting_requests_end_with_their_connection_and_their_server() {
    let server = Server::new(Dispatch::Reactive, Duration::from_secs(3600), "ends");
    let mut unread: Vec<Client> = (0..UNREAD).map(|_| server.client()).collect();
    for (number, client) in unread.iter_mut().enumerate() {
        client.send("large");
        until("reply", || server.large() > number);
    }
    let mut waiting: Vec<Client> = (0..4).map(|_| server.client()).collect();
    waiting.iter_mut().for_each(|client| client.send("large"));
    server.client().call_small();
    assert_eq!(server.large(), UNREAD, "the requests must wait");
    drop((waiting.pop(), waiting.pop()));
    read_all(&mut unread, 1);
    read_all(&mut waiting, 1);
    unread.iter_mut().for_each(|client| client.send("large"));
    until("replies", || server.large() >= 2 * UNREAD + 2);
    waiting.iter_mut().for_each(|client| client.send("large"));
    server.client().call_small();
    drop(server);
}
