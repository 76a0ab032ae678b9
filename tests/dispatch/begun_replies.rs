//! Replies whose rest waits until the peer reads, while new requests arrive.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::{
    ConnectionLimits, Dispatch, Endpoint, ObjectRef, Octets, Orb, PoolConfig, Servant, ServerCall, Skeleton,
    SystemException,
};
use corelane_sys::clock;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::raw::request;

/// Waits up to a minute until `is_so` returns true.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = clock::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(!end.is_past(), "{what}: the condition does not become true");
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// A client that consists of a socket, which counts what it has read.
struct Reader {
    stream: TcpStream,
    received: usize,
}

impl Reader {
    /// Reads everything that has arrived. Returns the number of octets that have arrived so far.
    fn read_arrived(&mut self) -> usize {
        let mut octets = vec![0; 256 << 10];
        loop {
            match self.stream.read(&mut octets) {
                Ok(0) => panic!("the server has closed the connection after {} octets", self.received),
                Ok(count) => self.received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.received,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

struct Shared {
    is_at_gate: AtomicBool,
    is_gate_open: AtomicBool,
    reader: Mutex<Option<Reader>>,
    /// The result of `large`.
    large: Octets,
    /// The number of octets that the reader had read in the upcall of each request `turn`.
    turns: Mutex<Vec<usize>>,
}

/// A servant with the operations `large`, which returns octets, `gate`, which waits, and `turn`,
/// which reads what has arrived at the reader.
struct Test(Arc<Shared>);

impl Skeleton for Test {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Begun:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        match operation {
            b"large" => call.reply().write_octets_owned(self.0.large.clone())?,
            b"gate" => {
                self.0.is_at_gate.store(true, Ordering::SeqCst);
                until("gate", || self.0.is_gate_open.load(Ordering::SeqCst));
            }
            _ => {
                if let Some(reader) = &mut *self.0.reader.lock() {
                    reader.read_arrived();
                    // The kernel may deliver octets and acknowledgements a little later.
                    std::thread::sleep(Duration::from_millis(2));
                    let received = reader.read_arrived();
                    self.0.turns.lock().push(received);
                }
            }
        }
        Ok(())
    }
}

struct Server {
    orb: Orb,
    object: ObjectRef,
    shared: Arc<Shared>,
}

impl Server {
    fn new(dispatch: Dispatch, limits: ConnectionLimits, large: usize) -> Self {
        let pool = PoolConfig::default().dispatch(dispatch).connection_limits(limits);
        let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
        let shared = Arc::new(Shared {
            is_at_gate: AtomicBool::new(false),
            is_gate_open: AtomicBool::new(false),
            reader: Mutex::new("reader of a test", LockScope::Orb, None),
            large: Octets::from(vec![7; large]),
            turns: Mutex::new("turns of a test", LockScope::Orb, Vec::new()),
        });
        let object = orb.root_poa().activate(&Servant::new(Test(Arc::clone(&shared)))).unwrap();
        orb.root_poa().manager().activate().unwrap();
        Server { orb, object, shared }
    }

    fn connect(&self) -> TcpStream {
        let Endpoint::Tcp { port, .. } = self.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        TcpStream::connect(("127.0.0.1", port)).unwrap()
    }

    fn send(&self, mut stream: &TcpStream, operation: &str) {
        let key = self.object.ior().known_profiles().next().unwrap().object_key.to_vec();
        stream.write_all(&request(&key, 1, operation, |_| ())).unwrap();
    }

    /// Makes a connection that the server has accepted and served once.
    fn served(&self) -> TcpStream {
        let stream = self.connect();
        self.send(&stream, "turn");
        let mut header = [0; 24];
        (&stream).read_exact(&mut header).unwrap();
        stream
    }
}

const TURNS: usize = 60;
const LARGE: usize = 12 << 20;

/// While a reply waits for its peer, requests of other connections arrive. The upcall of each request
/// reads as the peer, and before the next upcall the server sends more of the reply.
#[test]
fn begun_reply_goes_out_before_threads_take_new_requests() {
    // With one thread the order is certain.
    for dispatch in [Dispatch::Reactive, Dispatch::LeaderFollowers { threads: 1 }] {
        let server = Server::new(dispatch, ConnectionLimits::default(), LARGE);
        let others: Vec<TcpStream> = (0..TURNS).map(|_| server.served()).collect();
        let gate = server.served();
        let large = server.served();
        server.send(&large, "large");
        // The reply has begun when its first octet is there. Its rest does not fit into the sockets.
        large.peek(&mut [0]).unwrap();
        server.send(&gate, "gate");
        until("gate", || server.shared.is_at_gate.load(Ordering::SeqCst));
        others.iter().for_each(|other| server.send(other, "turn"));
        large.set_nonblocking(true).unwrap();
        *server.shared.reader.lock() = Some(Reader { stream: large, received: 0 });
        server.shared.is_gate_open.store(true, Ordering::SeqCst);
        until("turns", || server.shared.turns.lock().len() == TURNS);
        let turns = server.shared.turns.lock().clone();
        assert!(turns[0] < LARGE, "{dispatch:?}: the whole reply fits into the sockets");
        assert!(turns[TURNS - 1] > LARGE, "{dispatch:?}: the reply waited for {TURNS} requests: {turns:?}");
    }
}
