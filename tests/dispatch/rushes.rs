//! A burst of short requests starts burst mode, and then requests arrive that need every thread.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use corelane::{Dispatch, Encoder, Endpoint};
use corelane_sys::counters;
use corelane_tests::{Server, client, serve};
use corelane_wire::Version;
use corelane_wire::giop::{self, RequestHeader, ResponseExpected, TargetAddress};

const SHORT: i32 = 1_000;

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

    fn add(&mut self, operation: &str, response: ResponseExpected, argument: i32) {
        self.count += 1;
        let mut request = Encoder::new();
        let head = RequestHeader {
            version: Version::GIOP_1_2,
            request_id: self.count,
            response_expected: response,
            target: TargetAddress::Key(&self.key),
            operation: operation.as_bytes(),
            contexts: &[],
        };
        giop::write_request_header(&mut request, &head).unwrap();
        request.write_i32(argument);
        giop::finish_message(&mut request).unwrap();
        self.octets.extend(request.to_vec());
    }
}

fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[track_caller]
fn until(happened: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn rushes() -> u64 {
    counters::process_snapshot().bursts
}

/// Sends bursts of oneways until burst mode starts. A burst may end before burst mode starts.
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
        assert!(start.elapsed() < Duration::from_secs(60), "oneways have not started burst mode");
    }
}

/// Sends bursts of calls until burst mode starts. The last requests of each burst call `meet`,
/// which returns when all threads run it.
fn calls(threads: usize) {
    let server = serve(Dispatch::LeaderFollowers { threads });
    let (_orb, probe) = client(&server.ior);
    let mut stream = connect(&server);
    let (before, start) = (rushes(), Instant::now());
    for round in 1.. {
        let mut requests = Requests::to(&server);
        (0..SHORT).for_each(|value| requests.add("cube_long", ResponseExpected::Target, value));
        let meeting = i32::try_from(round * threads).unwrap();
        (0..threads).for_each(|_| requests.add("meet", ResponseExpected::Target, meeting));
        std::thread::scope(|scope| {
            // The server stops reading if the client does not read its replies, so another thread
            // writes.
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
        assert_eq!(probe.cube_octet(3).unwrap(), 27);
        if round >= 10 && rushes() > before {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "calls have not started burst mode");
    }
}

fn next_reply(stream: &mut TcpStream) -> (u32, Option<i32>) {
    let mut header = [0; 12];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; u32::from_le_bytes(header[8..].try_into().unwrap()) as usize];
    stream.read_exact(&mut body).unwrap();
    let number = |at: usize| body.get(at..at + 4).map(|octets| u32::from_le_bytes(octets.try_into().unwrap()));
    assert_eq!((header[7], number(4)), (1, Some(0)), "no reply, or an exception");
    (number(0).unwrap(), number(12).map(u32::cast_signed))
}

#[test]
fn requests_that_need_every_thread_run_after_a_burst() {
    for threads in [2, 4] {
        oneways(threads);
        calls(threads);
    }
}
