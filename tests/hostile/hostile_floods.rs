//! Connections that send requests without end must not delay the requests of other connections.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use corelane::{Dispatch, Endpoint, Event, ObjectRef, Orb, PoolConfig, Servant, ServerCall, Skeleton, SystemException};
use corelane_sys::clock;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::probe;
use corelane_wire::giop::{self, Header, Reply, ReplyStatus, RequestHeader, ResponseExpected, TargetAddress};
use corelane_wire::{Decoder, Encoder, Limits, Version};

fn until(is_so: impl Fn() -> bool) {
    let end = clock::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(!end.is_past(), "the condition does not become true");
        std::thread::sleep(Duration::from_micros(500));
    }
}

struct Log {
    ran: Mutex<Vec<u32>>,
    feed: Mutex<Box<dyn FnMut() + Send>>,
    entered: AtomicBool,
    open: AtomicBool,
}

impl Log {
    fn hold(&self) {
        self.entered.store(true, Ordering::SeqCst);
        until(|| self.open.load(Ordering::SeqCst));
    }
}

struct Logger(Arc<Log>);

impl Skeleton for Logger {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Logger:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        if operation == b"gate" {
            self.0.hold();
            return Ok(());
        }
        let number = call.arguments().read_u32()?;
        self.0.ran.lock().push(number);
        if operation == b"feed" {
            (self.0.feed.lock())();
        }
        call.reply().write_u32(!number);
        Ok(())
    }
}

struct Server {
    orb: Orb,
    name: String,
    object: ObjectRef,
    log: Arc<Log>,
}

impl Server {
    fn new(dispatch: Dispatch) -> Self {
        Server::with_events(dispatch, |_, _| ())
    }

    fn with_events(dispatch: Dispatch, on_event: fn(&Log, &Event)) -> Self {
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        // The kernel keeps only 15 bytes of a thread's name, so the pool's name is short.
        let name = format!("flood{}", SERVERS.fetch_add(1, Ordering::SeqCst));
        let pool = PoolConfig::default().name(name.clone()).dispatch(dispatch);
        let ran = Mutex::new("ran", LockScope::Orb, Vec::new());
        let feed = Mutex::new("feed", LockScope::Orb, Box::new(|| ()) as Box<dyn FnMut() + Send>);
        let log = Arc::new(Log { ran, feed, entered: AtomicBool::new(false), open: AtomicBool::new(false) });
        let seen = Arc::clone(&log);
        let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").on_event(move |event| on_event(&seen, event));
        let orb = orb.build().unwrap();
        orb.root_poa().manager().activate().unwrap();
        let object = orb.root_poa().activate(&Servant::new(Logger(Arc::clone(&log)))).unwrap();
        Server { orb, name, object, log }
    }

    fn port(&self) -> u16 {
        let Endpoint::Tcp { port, .. } = self.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        port
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let profile = self.object.ior().known_profiles().next().unwrap();
        Client { stream, key: profile.object_key.to_vec() }
    }

    /// Sends a request whose upcall waits until the test opens the gate. Returns after the upcall
    /// has begun.
    fn close_the_gate(&self) -> Client {
        let mut client = self.connect();
        client.send("gate", 0, ResponseExpected::Target, 1);
        until(|| self.log.entered.load(Ordering::SeqCst));
        client
    }

    fn until_all_is_read(&self) {
        let port = format!(":{:04X}", self.port());
        let has_octets = || {
            let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
            sockets.lines().skip(1).any(|line| {
                let columns: Vec<&str> = line.split_whitespace().collect();
                let (local, remote, octets) = (columns[1], columns[2], columns[4]);
                // A socket of the server has unread bytes, or a socket of a client has
                // unacknowledged bytes.
                let is_listener = columns[3] == "0A";
                let unread = local.ends_with(&port) && !is_listener && !octets.ends_with(":00000000");
                unread || (remote.ends_with(&port) && !octets.starts_with("00000000:"))
            })
        };
        until(|| !has_octets() && is_waiting_for_events(&format!("{}/l0", self.name)) && !has_octets());
    }
}

fn task(name: &str) -> PathBuf {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| Some(task.ok()?.path()));
    let mut named = tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name));
    named.next().unwrap_or_else(|| panic!("no thread has the name {name}"))
}

fn is_waiting_for_events(name: &str) -> bool {
    let task = task(name);
    let stat = fs::read_to_string(task.join("stat")).unwrap();
    let syscall = fs::read_to_string(task.join("syscall")).unwrap();
    let number = syscall.split(' ').next().unwrap_or_default();
    // epoll_wait (232) and epoll_pwait (281) of x86-64, epoll_pwait2 (441), and epoll_pwait (22) of
    // AArch64.
    stat.contains(") S ") && ["232", "281", "441", "22"].contains(&number)
}

struct Client {
    stream: TcpStream,
    key: Vec<u8>,
}

impl Client {
    fn send(&mut self, operation: &str, number: u32, response: ResponseExpected, count: u32) {
        let mut octets = Vec::new();
        for id in 0..count {
            let mut message = Encoder::new();
            let (target, operation) = (TargetAddress::Key(&self.key), operation.as_bytes());
            let version = Version::GIOP_1_2;
            let head = RequestHeader {
                version,
                request_id: id,
                response_expected: response,
                target,
                operation,
                contexts: &[],
            };
            giop::write_request_header(&mut message, &head).unwrap();
            message.write_u32(number + id * u32::from(response == ResponseExpected::Target));
            giop::finish_message(&mut message).unwrap();
            octets.extend(message.to_vec());
        }
        self.stream.write_all(&octets).unwrap();
    }

    fn duplicate(&self) -> Client {
        Client { stream: self.stream.try_clone().unwrap(), key: self.key.clone() }
    }

    fn answer(&mut self) -> (u32, Option<u32>) {
        let mut message = vec![0; 12];
        self.stream.read_exact(&mut message).unwrap();
        let header = Header::parse(message.first_chunk().unwrap()).unwrap();
        message.resize(header.total_len(), 0);
        self.stream.read_exact(&mut message[12..]).unwrap();
        let reply = Reply::parse(&message, &header, &Limits::DEFAULT).unwrap();
        let mut body =
            Decoder::new(&message, header.endian).at_position(reply.body_offset).with_version(header.version);
        let result = (reply.status == ReplyStatus::NoException).then(|| body.read_u32().unwrap());
        (reply.request_id, result)
    }

    fn check(&mut self, number: u32, count: u32) {
        let answers: HashMap<u32, Option<u32>> = (0..count).map(|_| self.answer()).collect();
        let expected = (0..count).map(|id| (id, Some(!(number + id)))).collect();
        assert_eq!(answers, expected);
    }
}

const GOOD: u32 = 1000;
const ONEWAY: ResponseExpected = ResponseExpected::None;
const TWO_WAY: ResponseExpected = ResponseExpected::Target;

#[test]
fn queued_request_waits_for_at_most_one_request_of_each_flooding_connection() {
    const FLOODS: u32 = 4;
    let server = Server::new(Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 1024 });
    let gate = server.close_the_gate();
    let mut floods: Vec<Client> = (0..FLOODS).map(|_| server.connect()).collect();
    for (number, flood) in (0..).zip(&mut floods) {
        flood.send("note", number, ONEWAY, 100);
    }
    server.until_all_is_read();
    let mut good = server.connect();
    good.send("note", GOOD, TWO_WAY, 20);
    server.until_all_is_read();
    server.log.open.store(true, Ordering::SeqCst);
    good.check(GOOD, 20);
    drop(gate);
    let ran = server.log.ran.lock().clone();
    let mut waits = ran.split(|number| *number >= GOOD);
    for at in 0..20 {
        let before = waits.next().unwrap();
        for flood in 0..FLOODS {
            let count = before.iter().filter(|number| **number == flood).count();
            assert!(count <= 1, "request {at} waits for {count} of connection {flood}: {ran:?}");
        }
    }
}

#[test]
fn full_queue_makes_room_for_a_connection_with_fewer_queued_requests() {
    // Eight connections fill the queue, with an eighth of its places each.
    let server = Server::new(Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 64 });
    let gate = server.close_the_gate();
    let mut floods: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    floods.iter_mut().for_each(|flood| flood.send("note", 0, TWO_WAY, 8));
    server.until_all_is_read();
    let mut good = server.connect();
    good.send("note", GOOD, TWO_WAY, 4);
    server.until_all_is_read();
    server.log.open.store(true, Ordering::SeqCst);
    good.check(GOOD, 4);
    drop(gate);
    let answers: Vec<_> =
        floods.iter_mut().flat_map(|flood| (0..8).map(|_| flood.answer().1).collect::<Vec<_>>()).collect();
    assert_eq!(answers.iter().filter(|answer| answer.is_none()).count(), 4, "{answers:?}");
    assert_eq!(server.log.ran.lock().len(), 64);
}

#[test]
fn reading_thread_takes_turns_between_connections() {
    const FLOODS: usize = 5;
    const EACH: u32 = 200;
    const REQUESTS_A_TURN: usize = 16;
    let server = Server::with_events(Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 8192 }, |log, event| {
        if matches!(event, Event::ProtocolFault { .. }) {
            log.hold();
        }
    });
    let mut floods: Vec<Client> = (0..FLOODS).map(|_| server.connect()).collect();
    for flood in &mut floods {
        flood.send("note", GOOD, TWO_WAY, 1);
        flood.check(GOOD, 1);
    }
    let mut faulty = server.connect();
    faulty.stream.write_all(b"This is no GIOP message.").unwrap();
    until(|| server.log.entered.load(Ordering::SeqCst));
    floods.iter_mut().for_each(|flood| flood.send("note", 0, ONEWAY, EACH));
    probe::enable();
    server.log.open.store(true, Ordering::SeqCst);
    until(|| server.log.ran.lock().len() == FLOODS + FLOODS * EACH as usize);
    probe::disable();
    let reader: u32 = task(&format!("{}/l0", server.name)).file_name().unwrap().to_str().unwrap().parse().unwrap();
    let points: Vec<&str> =
        probe::collect().iter().filter(|record| record.thread == reader).map(|record| record.point).collect();
    let queued = points.iter().filter(|point| **point == "request queued").count();
    assert_eq!(queued, FLOODS * EACH as usize, "every request passes the probe");
    let mut readings = points.iter().enumerate().filter(|(_, point)| **point == "octets read").map(|(at, _)| at);
    let last_connection = readings.nth(FLOODS - 1).expect("the thread reads from each connection");
    let before = points[..last_connection].iter().filter(|point| **point == "request queued").count();
    assert!(before <= 2 * REQUESTS_A_TURN * (FLOODS - 1), "{before} requests before the last connection: {points:?}");
}

/// The flooding connection always has input: each of the first `FED` upcalls sends two more
/// requests on it.
#[test]
fn listed_connection_waits_for_few_requests_of_a_connection_with_endless_input() {
    const FED: usize = 1000;
    let server = Server::new(Dispatch::Reactive);
    let mut flood = server.connect();
    let mut good = server.connect();
    let (mut feeding, mut sending) = (flood.duplicate(), good.duplicate());
    let mut upcalls = 0;
    *server.log.feed.lock() = Box::new(move || {
        upcalls += 1;
        if upcalls <= FED {
            feeding.send("feed", 0, ONEWAY, 1);
            feeding.send("feed", 0, ONEWAY, 1);
        }
        if upcalls == FED / 2 {
            sending.send("note", GOOD, TWO_WAY, 2);
        }
    });
    flood.send("feed", 0, ONEWAY, 1);
    good.check(GOOD, 2);
    *server.log.feed.lock() = Box::new(|| ());
    let ran = server.log.ran.lock().clone();
    let between = ran.split(|number| *number >= GOOD).nth(1).expect("both requests ran").len();
    assert!(between <= 4, "{between} requests of the flooding connection ran before a queued connection");
}

#[test]
fn good_client_gets_right_replies_beside_floods() {
    let modes = [
        Dispatch::HalfSyncHalfAsync { threads: 2, max_queued: 256 },
        Dispatch::LeaderFollowers { threads: 2 },
        Dispatch::Reactive,
        Dispatch::ThreadPerConnection { max_threads: 64 },
    ];
    for dispatch in modes {
        let server = Server::new(dispatch);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (server, over) = (&server, &over);
                scope.spawn(move || {
                    let mut flood = server.connect();
                    while !over.load(Ordering::SeqCst) {
                        flood.send("note", number, ONEWAY, 50);
                    }
                });
            }
            let ends = End(&over);
            let mut good = server.connect();
            for round in 0..100 {
                good.send("note", GOOD + 10 * round, TWO_WAY, 5);
                good.check(GOOD + 10 * round, 5);
            }
            drop(ends);
        });
        let good = server.log.ran.lock().iter().filter(|number| **number >= GOOD).count();
        assert_eq!(good, 500, "{dispatch:?}: each request ran once");
    }
}

struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
