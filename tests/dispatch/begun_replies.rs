//! A reply that waits, partly sent, until its peer reads, while requests of other connections
//! arrive.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass};
use corelane::{
    Dispatch, Endpoint, ObjectRef, Octets, Orb, PoolConfig, Servant, ServerCall, Skeleton, SystemException,
};
use corelane_net::{SharedMemoryTransport, Stream, Transport, WaitLimit};
use corelane_sys::clock;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::raw::request;

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = clock::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(!end.is_past(), "{what}: the condition does not become true");
        std::thread::sleep(Duration::from_micros(500));
    }
}

enum Line {
    Tcp(TcpStream),
    Shared(Box<dyn Stream>),
}

impl Line {
    fn send(&mut self, octets: &[u8]) {
        match self {
            Line::Tcp(stream) => stream.write_all(octets).unwrap(),
            Line::Shared(stream) => assert_eq!(stream.send(octets, WaitLimit::Block).unwrap(), octets.len()),
        }
    }

    fn receive(&mut self, octets: &mut [u8]) -> usize {
        match self {
            Line::Tcp(stream) => stream.read(octets).unwrap(),
            Line::Shared(stream) => stream.recv(octets, WaitLimit::Block).unwrap(),
        }
    }

    fn receive_arrived(&mut self, octets: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Line::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.read(octets)
            }
            Line::Shared(stream) => stream.recv(octets, WaitLimit::Now),
        }
    }
}

struct Reader {
    line: Line,
    received: usize,
}

impl Reader {
    fn read_arrived(&mut self) -> usize {
        let mut octets = vec![0; 256 << 10];
        loop {
            match self.line.receive_arrived(&mut octets) {
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
    large: Octets,
    /// For each call of `turn`, the number of octets of the reply to `large` that had arrived at
    /// its end.
    turns: Mutex<Vec<usize>>,
}

struct Test(Arc<Shared>);

impl Skeleton for Test {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Begun:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        match operation {
            b"large" => call.reply().write_octet_sequence_owned(self.0.large.clone())?,
            b"gate" => {
                self.0.is_at_gate.store(true, Ordering::SeqCst);
                until("gate", || self.0.is_gate_open.load(Ordering::SeqCst));
            }
            _ => {
                if let Some(reader) = &mut *self.0.reader.lock() {
                    let (before, end) = (reader.received, clock::now() + Duration::from_millis(200));
                    reader.read_arrived();
                    // The kernel may deliver octets and acknowledgements a little later.
                    std::thread::sleep(Duration::from_millis(2));
                    let is_over = |received| received != before || received > self.0.large.len();
                    while !is_over(reader.read_arrived()) && !end.is_past() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    let received = reader.received;
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

/// The threads of the server. In each case one thread serves all requests, so that their order is
/// certain.
#[derive(Clone, Copy, Debug)]
enum Threads {
    Pool(Dispatch),
    /// A lane of one thread, whose overload thread finds no lower lane from which to borrow a
    /// thread.
    LaneWithOverloadThread,
}

const EVERY: [Threads; 3] = [
    Threads::Pool(Dispatch::Reactive),
    Threads::Pool(Dispatch::LeaderFollowers { threads: 1 }),
    Threads::LaneWithOverloadThread,
];

impl Server {
    fn new(threads: Threads, address: &str, large: usize) -> Self {
        let shared = Arc::new(Shared {
            is_at_gate: AtomicBool::new(false),
            is_gate_open: AtomicBool::new(false),
            reader: Mutex::new("reader of a test", LockScope::Orb, None),
            large: Octets::from(vec![7; large]),
            turns: Mutex::new("turns of a test", LockScope::Orb, Vec::new()),
        });
        let servant = Servant::new(Test(Arc::clone(&shared)));
        let builder = Orb::builder().listen(address);
        let (orb, object) = match threads {
            Threads::Pool(dispatch) => {
                let orb = builder.pool(PoolConfig::default().dispatch(dispatch)).build().unwrap();
                let object = orb.root_poa().activate(&servant).unwrap();
                (orb, object)
            }
            Threads::LaneWithOverloadThread => {
                let orb = builder.real_time(RtConfig::default().scheduling(SchedulingClass::Fair)).build().unwrap();
                let lanes = LanesConfig::default().lanes([LaneConfig::default().priority(10)]);
                let pool = orb.real_time().create_threadpool_with_lanes(&lanes.allow_borrowing(true)).unwrap();
                let policies = RtPolicies {
                    priority_model: Some((PriorityModel::ServerDeclared, 10)),
                    threadpool: Some(pool),
                    ..RtPolicies::default()
                };
                let root = orb.root_poa();
                let poa = root.create_rt_poa("lane", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
                let object = poa.activate(&servant).unwrap();
                (orb, object)
            }
        };
        orb.root_poa().manager().activate().unwrap();
        Server { orb, object, shared }
    }

    fn connect(&self) -> Line {
        if let Endpoint::SharedMemory { .. } = &self.orb.endpoints()[0] {
            return Line::Shared(SharedMemoryTransport::default().connect(&self.orb.endpoints()[0], None).unwrap());
        }
        let port =
            self.object.ior().profiles.iter().find_map(|profile| match profile.parse().ok()?.endpoints().first()? {
                corelane_wire::ior::ProfileEndpoint::Inet { port, .. } => Some(*port),
                _ => None,
            });
        Line::Tcp(TcpStream::connect(("127.0.0.1", port.unwrap())).unwrap())
    }

    fn send(&self, line: &mut Line, operation: &str) {
        let key = self.object.ior().known_profiles().next().unwrap().object_key.to_vec();
        line.send(&request(&key, 1, operation, |_| ()));
    }

    fn served(&self) -> Line {
        let mut line = self.connect();
        self.send(&mut line, "turn");
        let mut left = 24;
        while left > 0 {
            left -= line.receive(&mut [0; 24][..left]);
        }
        line
    }
}

const TURNS: usize = 60;

/// Checks that the server sends more of a begun reply before it takes further requests. Each call
/// of `turn` reads the octets that have arrived, which makes room for more of the large reply.
fn check_order(threads: Threads, address: &str, size: usize) {
    let server = Server::new(threads, address, size);
    let mut others: Vec<Line> = (0..TURNS).map(|_| server.served()).collect();
    let mut gate = server.served();
    let mut large = server.served();
    server.send(&mut large, "large");
    // The first octet shows that the reply has begun. The whole reply does not fit into the
    // transport's buffers.
    let received = large.receive(&mut [0]);
    server.send(&mut gate, "gate");
    until("gate", || server.shared.is_at_gate.load(Ordering::SeqCst));
    others.iter_mut().for_each(|other| server.send(other, "turn"));
    *server.shared.reader.lock() = Some(Reader { line: large, received });
    server.shared.is_gate_open.store(true, Ordering::SeqCst);
    until("turns", || server.shared.turns.lock().len() == TURNS);
    let turns = server.shared.turns.lock().clone();
    assert!(turns[0] < size, "{threads:?}: the whole reply fits into the transport");
    assert!(turns[TURNS - 1] > size, "{threads:?}: the reply waited for {TURNS} requests: {turns:?}");
}

#[test]
fn begun_reply_goes_out_before_threads_take_new_requests() {
    for threads in EVERY {
        check_order(threads, "tcp:127.0.0.1:0", 12 << 20);
    }
}

#[test]
fn begun_reply_over_shared_memory_goes_out_before_threads_take_new_requests() {
    for (number, threads) in EVERY[..2].iter().enumerate() {
        let path = std::env::temp_dir().join(format!("corelane-begun-{}-{number}", std::process::id()));
        check_order(*threads, &format!("shm:{}", path.display()), 1 << 20);
    }
}
