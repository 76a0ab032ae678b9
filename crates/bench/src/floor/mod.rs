//! The floor under every ORB: the same octets exchanged over bare sockets, without a message format.
//!
//! A client and a server in two processes exchange messages of given sizes, with as few system calls as a thread needs: two on
//! either side, three for a server whose threads wait in `epoll_wait`. What an ORB adds to this is its own. The same through shared memory:
//! two copies and two futex calls on either side, or looks instead of calls.

mod client;
mod memory;
mod server;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use corelane_sys::socket::Address;

pub(crate) use client::{Exchange, FloorClient, OnewayFlood};
pub(crate) use memory::Copies;
pub(crate) use server::run as run_server;

use crate::Failure;

/// Sizes of the messages of one operation, in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// From the client to the server.
    pub(crate) request: usize,
    /// From the server to the client; 0 for a oneway.
    pub(crate) reply: usize,
}

impl Sizes {
    /// Neither is larger: what a benchmark of messages needs, and a bound for what the server allocates.
    pub(crate) const LARGEST: usize = 65 << 20;

    /// Those of a GIOP 1.2 call (CORBA 3.3 part 2, 9.4): an object key and an operation name of these lengths, no service contexts,
    /// bodies of these lengths.
    #[cfg(test)]
    pub(crate) const fn giop(key: usize, operation: usize, arguments: usize, results: usize) -> Sizes {
        // Header 12, request id 4, flags and reserved 4, addressing disposition 2 and a gap of 2, length of the key 4.
        let name = (28 + key).next_multiple_of(4) + 4;
        // The name has a NUL; the count of service contexts follows.
        let contexts = (name + operation + 1).next_multiple_of(4) + 4;
        let request = if arguments == 0 { contexts } else { contexts.next_multiple_of(8) + arguments };
        // Header 12, request id 4, status 4, count of service contexts 4: a multiple of 8.
        Sizes { request, reply: 24 + results }
    }

    /// What a client says first: both sizes, little-endian.
    fn preamble(self) -> [u8; 16] {
        let mut preamble = [0; 16];
        preamble[..8].copy_from_slice(&(self.request as u64).to_le_bytes());
        preamble[8..].copy_from_slice(&(self.reply as u64).to_le_bytes());
        preamble
    }
}

/// The sizes that a client announces, if they are sensible.
fn read_preamble(preamble: &[u8; 16]) -> Option<Sizes> {
    let number = |at: usize| {
        let octets: [u8; 8] = preamble[at..at + 8].try_into().ok()?;
        usize::try_from(u64::from_le_bytes(octets)).ok().filter(|&size| size <= Sizes::LARGEST)
    };
    let sizes = Sizes { request: number(0)?, reply: number(8)? };
    (sizes.request > 0).then_some(sizes)
}

/// How the server waits for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A thread for each connection blocks in `recv`, or sleeps on a futex.
    Blocking,
    /// A thread for each connection looks for a while before it sleeps, and so does the client: shared memory only.
    Looking,
    /// So many threads block in one `epoll_wait`, edge-triggered.
    Epoll(usize),
}

/// What carries the octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// TCP over the loopback interface, without delay.
    Tcp,
    /// A Unix socket in the abstract name space.
    Unix,
    /// Memory of both processes.
    SharedMemory,
}

impl Carrier {
    /// All of them.
    pub(crate) const ALL: [Carrier; 3] = [Carrier::Tcp, Carrier::Unix, Carrier::SharedMemory];

    /// The one with that name.
    #[must_use]
    pub(crate) fn from_name(name: &str) -> Option<Carrier> {
        Carrier::ALL.into_iter().find(|carrier| carrier.name() == name)
    }

    /// As labels say it.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Carrier::Tcp => "tcp",
            Carrier::Unix => "unix",
            Carrier::SharedMemory => "shm",
        }
    }
}

/// Where a floor server is met, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FloorAddress {
    socket: Address,
    /// The socket is where the memory is passed; both sides look before they sleep, or do not.
    memory: Option<bool>,
}

/// The names of addresses at which memory is passed, by whether both sides look.
const MEMORY: [(&str, bool); 2] = [("futex:", false), ("looking:", true)];

/// One word of a command line or an answer.
impl fmt::Display for FloorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = MEMORY.iter().find(|(_, looking)| Some(*looking) == self.memory) {
            f.write_str(name)?;
        }
        match &self.socket {
            Address::Abstract(name) => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
            other => write!(f, "{other}"),
        }
    }
}

pub(crate) fn address_of(text: &str) -> Result<FloorAddress, Failure> {
    let stripped = MEMORY.iter().find_map(|(name, looking)| Some((text.strip_prefix(name)?, *looking)));
    let (text, memory) = stripped.map_or((text, None), |(rest, looking)| (rest, Some(looking)));
    let socket = if let Some(name) = text.strip_prefix("unix:@") {
        Address::Abstract(name.as_bytes().to_vec())
    } else if let Some(path) = text.strip_prefix("unix:") {
        Address::Unix(Path::new(path).to_path_buf())
    } else {
        let inet: Result<SocketAddr, _> = text.parse();
        Address::Inet(inet.map_err(|_| Failure::new(format!("`{text}` is no address")))?)
    };
    Ok(FloorAddress { socket, memory })
}

fn listening_address(carrier: Carrier) -> Address {
    match carrier {
        Carrier::Tcp => Address::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        Carrier::Unix | Carrier::SharedMemory => {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            Address::Abstract(format!("corelane-bench-{}-{number}", std::process::id()).into_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::server::FloorServer;
    use super::*;
    use crate::harness::Subject;
    use crate::sample::Samples;

    #[test]
    fn sizes_follow_the_message_format() {
        // Worked out by hand: 28 + 12 = 40, + 4 = 44, "echo_octet" and NUL 55, aligned 56, + 4 = 60, aligned 64, + 1.
        assert_eq!(Sizes::giop(12, 10, 1, 1), Sizes { request: 65, reply: 25 });
        // Nothing behind the contexts: no gap.
        assert_eq!(Sizes::giop(12, 10, 0, 0), Sizes { request: 60, reply: 24 });
    }

    #[test]
    fn addresses_survive_as_text() {
        for text in ["127.0.0.1:80", "[::1]:9", "unix:@name", "unix:/tmp/x", "futex:unix:@name", "looking:unix:@name"] {
            assert_eq!(address_of(text).unwrap().to_string(), text);
        }
        assert!(address_of("nonsense").is_err());
    }

    #[test]
    fn every_floor_answers_and_its_server_ends() {
        for (carrier, both) in [
            (Carrier::Tcp, [Waiting::Blocking, Waiting::Epoll(2)]),
            (Carrier::Unix, [Waiting::Blocking, Waiting::Epoll(2)]),
            (Carrier::SharedMemory, [Waiting::Blocking, Waiting::Looking]),
        ] {
            for waiting in both {
                let server = FloorServer::open(carrier, waiting).unwrap();
                for sizes in [
                    Sizes { request: 1, reply: 1 },
                    Sizes { request: 100, reply: 25 },
                    Sizes { request: 1_000_000, reply: 300_000 },
                ] {
                    let mut client = FloorClient::connect(server.address(), sizes).unwrap();
                    let mut samples = Samples::with_room(50);
                    client.exchange(5, 50, &mut samples).unwrap();
                    assert_eq!(samples.len(), 50);
                }
            }
        }
    }

    #[test]
    fn what_a_carrier_does_not_have_is_refused() {
        assert!(FloorServer::open(Carrier::SharedMemory, Waiting::Epoll(2)).is_err());
        assert!(FloorServer::open(Carrier::Tcp, Waiting::Looking).is_err());
        let server = FloorServer::open(Carrier::SharedMemory, Waiting::Blocking).unwrap();
        assert!(FloorClient::connect(server.address(), Sizes { request: 8, reply: 0 }).is_err());
    }

    #[test]
    fn what_is_copied_arrives() {
        let mut copies = Copies::new(Sizes { request: 5, reply: 3 });
        let mut samples = Samples::with_room(4);
        copies.run(1, 4, &mut samples).unwrap();
        assert_eq!(samples.len(), 4);
        assert!(copies.request[2] == [1; 5] && copies.reply[2] == [1; 3]);
    }

    #[test]
    fn a_flood_is_drained_before_it_counts_as_done() {
        let server = FloorServer::open(Carrier::Tcp, Waiting::Blocking).unwrap();
        let mut client = FloorClient::connect(server.address(), Sizes { request: 77, reply: 0 }).unwrap();
        let mut samples = Samples::with_room(20_000);
        for _ in 0..2 {
            client.flood(10, 10_000, &mut samples).unwrap();
        }
        assert_eq!(samples.len(), 20_000);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let server = FloorServer::open(Carrier::Tcp, Waiting::Blocking).unwrap();
        let mut client = FloorClient::connect(server.address(), Sizes { request: 8, reply: 8 }).unwrap();
        client.exchange(0, 1, &mut Samples::with_room(1)).unwrap();
        let absurd = FloorClient::connect(server.address(), Sizes { request: Sizes::LARGEST + 1, reply: 1 });
        assert!(absurd.is_err());
    }
}
