//! The floor under every ORB: the same octets exchanged over bare sockets, without a message format.
//!
//! A client and a server in two processes exchange messages of given sizes, with as few system calls as a thread needs: two on
//! either side, three for a server whose threads wait in `epoll_wait`. What an ORB adds to this is its own.

mod client;
mod server;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use corelane_sys::socket::Address;

pub use client::{Exchange, FloorClient, OnewayFlood};
pub use server::{FloorServer, run as run_server};

use crate::Failure;

/// Sizes of the messages of one operation, in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// From the client to the server.
    pub request: usize,
    /// From the server to the client; 0 for a oneway.
    pub reply: usize,
}

impl Sizes {
    /// Neither is larger: what a benchmark of messages needs, and a bound for what the server allocates.
    pub const LARGEST: usize = 65 << 20;

    /// Those of a GIOP 1.2 call (CORBA 3.3 part 2, 9.4): an object key and an operation name of these lengths, no service contexts,
    /// bodies of these lengths.
    #[must_use]
    pub const fn giop(key: usize, operation: usize, arguments: usize, results: usize) -> Sizes {
        // Header 12, request id 4, flags and reserved 4, addressing disposition 2 and a gap of 2, length of the key 4.
        let name = (28 + key).next_multiple_of(4) + 4;
        // The name has a NUL; the count of service contexts follows.
        let contexts = (name + operation + 1).next_multiple_of(4) + 4;
        let request = if arguments == 0 { contexts } else { contexts.next_multiple_of(8) + arguments };
        // Header 12, request id 4, status 4, count of service contexts 4: a multiple of 8.
        Sizes { request, reply: 24 + results }
    }
}

/// How the server waits for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A thread for each connection blocks in `recv`.
    Blocking,
    /// So many threads block in one `epoll_wait`, edge-triggered.
    Epoll(usize),
}

/// What carries the octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP over the loopback interface, without delay.
    Tcp,
    /// A Unix socket in the abstract name space.
    Unix,
}

impl Carrier {
    /// As labels say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Tcp => "tcp",
            Carrier::Unix => "unix",
        }
    }
}

/// An address as one word of a command line or an answer.
fn address_text(address: &Address) -> String {
    match address {
        Address::Abstract(name) => format!("unix:@{}", String::from_utf8_lossy(name)),
        other => other.to_string(),
    }
}

pub(crate) fn address_of(text: &str) -> Result<Address, Failure> {
    if let Some(name) = text.strip_prefix("unix:@") {
        return Ok(Address::Abstract(name.as_bytes().to_vec()));
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Address::Unix(Path::new(path).to_path_buf()));
    }
    let inet: Result<SocketAddr, _> = text.parse();
    inet.map(Address::Inet).map_err(|_| Failure::new(format!("`{text}` is no address")))
}

fn listening_address(carrier: Carrier) -> Address {
    match carrier {
        Carrier::Tcp => Address::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        Carrier::Unix => {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            Address::Abstract(format!("corelane-bench-{}-{number}", std::process::id()).into_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        for text in ["127.0.0.1:80", "[::1]:9", "unix:@name", "unix:/tmp/x"] {
            assert_eq!(address_text(&address_of(text).unwrap()), text);
        }
        assert!(address_of("nonsense").is_err());
    }

    #[test]
    fn every_floor_answers_and_its_server_ends() {
        for carrier in [Carrier::Tcp, Carrier::Unix] {
            for waiting in [Waiting::Blocking, Waiting::Epoll(2)] {
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
