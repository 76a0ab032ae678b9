//! Many short requests on one connection, which one thread of a pool may run alone for a while, with requests behind them that need
//! every thread of the pool at once. Alone in its process: rushes are counted in all of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use corelane::{Dispatch, Encoder, Endpoint, Reference};
use corelane_sys::counters;
use corelane_tests::{Server, client, serve};
use corelane_wire::Version;
use corelane_wire::giop::{self, RequestHead, ResponseExpected, Target};

/// More than makes one thread of four want a rush, whichever of them reads what: 64 each, with others behind them.
const SHORT: i32 = 1_000;

/// Requests of one connection, written together.
struct Requests {
    key: Vec<u8>,
    octets: Vec<u8>,
    count: u32,
}

impl Requests {
    fn to(server: &Server) -> Self {
        let key = server.probe.as_object().ior().known_profiles().next().unwrap().object_key.to_vec();
        Requests { key, octets: Vec::new(), count: 0 }
    }

    /// One more, with a `long`.
    fn add(&mut self, operation: &str, response: ResponseExpected, argument: i32) {
        self.count += 1;
        let mut request = Encoder::new();
        let head = RequestHead {
            version: Version::GIOP_1_2,
            request_id: self.count,
            response,
            target: Target::Key(&self.key),
            operation: operation.as_bytes(),
            contexts: &[],
        };
        giop::write_request_header(&mut request, &head).unwrap();
        request.write_i32(argument);
        giop::finish(&mut request).unwrap();
        self.octets.extend(request.to_vec());
    }
}

fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Waits for what a test is about.
#[track_caller]
fn until(happened: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn rushes() -> u64 {
    counters::of_process().rushes
}

/// Oneways, and what they have added up to when all have run; again until there was a rush, because one thread may be through with all of
/// them before another had time to watch it.
fn oneways(threads: usize) {
    let server = serve(Dispatch::LeaderFollowers { threads });
    let mut requests = Requests::to(&server);
    (0..SHORT).for_each(|_| requests.add("note", ResponseExpected::None, 1));
    let (before, start) = (rushes(), Instant::now());
    for round in 1.. {
        connect(&server).write_all(&requests.octets).unwrap();
        until(|| server.probe.noted().unwrap() == round * SHORT, "not every oneway has run");
        if rushes() > before {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no rush of oneways has begun");
    }
}

/// Two-way requests, and behind them as many that wait for one another as there are threads.
fn calls(threads: usize) {
    let server = serve(Dispatch::LeaderFollowers { threads });
    let (_orb, probe) = client(&server.ior);
    let mut stream = connect(&server);
    let (before, start) = (rushes(), Instant::now());
    for round in 1.. {
        let mut requests = Requests::to(&server);
        (0..SHORT).for_each(|value| requests.add("cube_long", ResponseExpected::Target, value));
        // It counts those who ever came.
        let meeting = i32::try_from(round * threads).unwrap();
        (0..threads).for_each(|_| requests.add("meet", ResponseExpected::Target, meeting));
        std::thread::scope(|scope| {
            // The server reads no further while its replies are not taken.
            let mut writer = stream.try_clone().unwrap();
            let octets = &requests.octets;
            scope.spawn(move || writer.write_all(octets).unwrap());
            let mut answered = vec![false; requests.count as usize];
            for _ in 0..requests.count {
                let (id, result) = next_reply(&mut stream);
                let index = id as usize - 1;
                assert!(!std::mem::replace(&mut answered[index], true), "request {id} is answered twice");
                assert_eq!(
                    result,
                    i32::try_from(index).ok().filter(|value| *value < SHORT).map(|value| value.wrapping_pow(3))
                );
            }
        });
        // Others are served as well.
        assert_eq!(probe.cube_octet(3).unwrap(), 27);
        if round >= 10 && rushes() > before {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no rush of calls has begun");
    }
}

/// Request id and result, if there is one, of a reply without exception.
fn next_reply(stream: &mut TcpStream) -> (u32, Option<i32>) {
    let mut header = [0; 12];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; u32::from_le_bytes(header[8..].try_into().unwrap()) as usize];
    stream.read_exact(&mut body).unwrap();
    let number = |at: usize| body.get(at..at + 4).map(|octets| u32::from_le_bytes(octets.try_into().unwrap()));
    assert_eq!((header[7], number(4)), (1, Some(0)), "no reply, or an exception");
    // Id, status, no contexts, padding to 8 octets of the message.
    (number(0).unwrap(), number(12).map(u32::cast_signed))
}

#[test]
fn requests_that_wait_for_one_another_follow_a_rush_of_short_ones() {
    // One after the other: what is counted is counted in the process.
    for threads in [2, 4] {
        oneways(threads);
        calls(threads);
    }
}
