//! Damaged requests, LocateRequests, CancelRequests and fragments.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::Endpoint;
use corelane_tests::{EVERY_DISPATCH, Server, client, serve};
use corelane_wire::giop::{self, RequestHeader, ResponseExpected, TargetAddress};
use corelane_wire::{Encoder, Endian, Version};

const MESSAGES: usize = 2500;
const QUESTION: u32 = 0x7fff_0000;
const WELL_BEHAVED: u64 = 2;

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap()
    }
}

fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Nagle's algorithm would delay a LocateRequest after a oneway message by 40 ms.
    stream.set_nodelay(true).unwrap();
    stream
}

fn request(key: &[u8], version: Version, endian: Endian) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.set_endian(endian);
    encoder.set_version(version);
    let head = RequestHeader {
        version,
        request_id: 9,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(key),
        operation: b"echo",
        contexts: &[],
    };
    giop::write_request_header(&mut encoder, &head).unwrap();
    encoder.write_str("a text of some length").unwrap();
    giop::finish_message(&mut encoder).unwrap();
    encoder.slices().collect::<Vec<_>>().concat()
}

fn message(minor: u8, flags: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&b"GIOP\x01"[..], &[minor, 1 | flags, kind], &size, body].concat()
}

fn locate(key: &[u8], minor: u8, id: u32) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap().to_le_bytes();
    let form: &[u8] = if minor < 2 { &[] } else { &[0, 0, 0, 0] };
    message(minor, 0, 3, &[&id.to_le_bytes()[..], form, &length, key].concat())
}

fn seeds(key: &[u8]) -> Vec<Vec<u8>> {
    let whole = request(key, Version::GIOP_1_2, Endian::Little);
    let (first, rest) = whole[12..].split_at(44);
    let fragments = [message(2, 2, 0, first), message(2, 0, 7, &[&9u32.to_le_bytes(), rest].concat())].concat();
    vec![
        request(key, Version::GIOP_1_0, Endian::Little),
        request(key, Version::GIOP_1_1, Endian::Little),
        request(key, Version::GIOP_1_2, Endian::Big),
        whole,
        locate(key, 0, 9),
        locate(key, 2, 9),
        message(0, 0, 2, &9u32.to_le_bytes()),
        message(2, 0, 2, &9u32.to_le_bytes()),
        fragments,
    ]
}

fn is_answered(stream: &mut TcpStream) -> bool {
    loop {
        let mut header = [0; 12];
        match stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("neither an answer nor the end"),
            Err(_) => return false,
        }
        let size = header[8..].try_into().unwrap();
        let size = if header[6] & 1 == 1 { u32::from_le_bytes(size) } else { u32::from_be_bytes(size) };
        let mut body = vec![0; size as usize];
        if stream.read_exact(&mut body).is_err() {
            return false;
        }
        if header[7] == 4 && body.first_chunk().copied().map(u32::from_le_bytes) == Some(QUESTION) {
            return true;
        }
    }
}

/// Returns true if the damage changes no length and no byte order of a message. Otherwise the
/// server may take the next message for a part of the damaged message.
fn ends_where_it_did(seed: &[u8], damaged: &[u8]) -> bool {
    let mut at = 0;
    while at < seed.len() && damaged.len() == seed.len() {
        if damaged[at + 6] & 1 != seed[at + 6] & 1 || damaged[at + 8..at + 12] != seed[at + 8..at + 12] {
            return false;
        }
        let size = seed[at + 8..at + 12].try_into().unwrap();
        at += 12 + if seed[at + 6] & 1 == 1 { u32::from_le_bytes(size) } else { u32::from_be_bytes(size) } as usize;
    }
    damaged.len() == seed.len()
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends damaged messages, each followed by a LocateRequest. Returns the number of messages after
/// which the server answers, the number of messages with unchanged lengths after which it does not
/// answer, and the number of connections.
fn disturb(server: &Server, random: &mut Random) -> (usize, usize, u64) {
    let key = server.probe.as_object().ior().known_profiles().next().unwrap().object_key.to_vec();
    let (seeds, question) = (seeds(&key), locate(&key, 2, QUESTION));
    let (mut answered, mut ended, mut connections) = (0, 0, 1);
    let mut stream = connect(server);
    for number in 0..MESSAGES {
        let seed = &seeds[number % seeds.len()];
        let mut damaged = seed.clone();
        for _ in 0..1 + random.next() % 4 {
            // Three of four changes spare the header, where the server notices damage at once.
            let from = if random.next().is_multiple_of(4) { 0 } else { 12 };
            let at = from + random.next() % (damaged.len() - from);
            damaged[at] = random.next().to_le_bytes()[0];
        }
        if random.next().is_multiple_of(8) {
            damaged.truncate(random.next() % damaged.len());
        }
        let whole = ends_where_it_did(seed, &damaged);
        let sent = stream.write_all(&damaged).and_then(|()| stream.write_all(&question));
        let goes_on = whole && sent.is_ok() && is_answered(&mut stream);
        if goes_on {
            answered += 1;
        } else {
            ended += usize::from(whole);
            stream = connect(server);
            connections += 1;
        }
    }
    (answered, ended, connections)
}

#[test]
fn damaged_messages_do_not_disturb_good_clients() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let done = AtomicBool::new(false);
        let (answered, ended, connections) = std::thread::scope(|scope| {
            let well_behaved: Vec<_> = (0..WELL_BEHAVED)
                .map(|_| {
                    scope.spawn(|| {
                        let (_orb, probe) = client(&server.ior);
                        let mut calls = 0u64;
                        while !done.load(Ordering::Relaxed) || calls == 0 {
                            assert_eq!(probe.cube_long(3).unwrap(), 27);
                            assert_eq!(probe.echo("undisturbed").unwrap(), "undisturbed");
                            calls += 1;
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    })
                })
                .collect();
            let ending = Done(&done);
            let result = disturb(&server, &mut Random(0x9e37_79b9_7f4a_7c15));
            drop(ending);
            for client in well_behaved {
                client.join().unwrap();
            }
            result
        });
        assert!(
            answered > MESSAGES / 3,
            "{dispatch:?}: {answered} messages left their connection open, {ended} ended it"
        );
        assert!(ended > MESSAGES / 100, "{dispatch:?}: only {ended} messages ended their connection");
        while server.orb.event_counts().connections_opened < connections + WELL_BEHAVED {
            std::thread::sleep(Duration::from_millis(1));
        }
        let counts = server.orb.event_counts();
        assert_eq!(counts.connections_opened, connections + WELL_BEHAVED, "{dispatch:?}: a client had to connect anew");
        assert_eq!(counts.servants_panicked, 0, "{dispatch:?}");
        assert!(counts.protocol_faults > 0, "{dispatch:?}");
        assert_eq!(client(&server.ior).1.cube_octet(2).unwrap(), 8, "{dispatch:?}");
    }
}
