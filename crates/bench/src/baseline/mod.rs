//! The baseline of the ORBs, called `floor` in results: messages as large as an ORB's, exchanged
//! without an ORB.
//!
//! A client and a server exchange the messages over bare sockets or shared memory, with few system
//! calls. The additional time of a call through an ORB is the cost of the ORB.

mod client;
mod memory;
mod relay;
mod server;
mod stream;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::socket::{self, Address, WaitMode};

pub(crate) use client::{BaselineClient, OnewayFlood, TwoWayExchange};
pub(crate) use memory::MemoryCopies;
pub(crate) use relay::{one_way, run_relay, run_sink};
pub(crate) use server::run as run_server;

use crate::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageSizes {
    pub(crate) request: usize,
    /// Size of a reply in bytes; 0 for a oneway.
    pub(crate) reply: usize,
}

impl MessageSizes {
    /// Maximum size of a message in bytes, which bounds the server's allocation.
    pub(crate) const MAX: usize = 65 << 20;

    /// Returns the message sizes of a GIOP 1.2 call (CORBA 3.3 part 2, 9.4) without service
    /// contexts. The arguments are lengths in bytes.
    #[cfg(test)]
    pub(crate) const fn giop(key: usize, operation: usize, arguments: usize, results: usize) -> MessageSizes {
        // Bytes: header 12, request id 4, flags and reserved 4, addressing disposition 2, padding
        // 2, length of the object key 4.
        let name = (28 + key).next_multiple_of(4) + 4;
        let contexts = (name + operation + 1).next_multiple_of(4) + 4;
        let request = if arguments == 0 { contexts } else { contexts.next_multiple_of(8) + arguments };
        // Bytes: header 12, request id 4, status 4, number of service contexts 4: together a
        // multiple of 8.
        MessageSizes { request, reply: 24 + results }
    }

    fn preamble(self) -> [u8; 16] {
        let mut preamble = [0; 16];
        preamble[..8].copy_from_slice(&(self.request as u64).to_le_bytes());
        preamble[8..].copy_from_slice(&(self.reply as u64).to_le_bytes());
        preamble
    }
}

fn read_preamble(preamble: &[u8; 16]) -> Option<MessageSizes> {
    let number = |at: usize| {
        let octets: [u8; 8] = preamble[at..at + 8].try_into().ok()?;
        usize::try_from(u64::from_le_bytes(octets)).ok().filter(|&size| size <= MessageSizes::MAX)
    };
    let sizes = MessageSizes { request: number(0)?, reply: number(8)? };
    (sizes.request > 0).then_some(sizes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitStrategy {
    Blocking,
    SpinThenSleep,
    /// Only over shared memory. The reader copies a part of a message while the writer copies the
    /// next part.
    Pipelined,
    Stream(StreamSpin),
    /// This number of threads wait for edge-triggered events of one epoll descriptor.
    Epoll(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamSpin {
    Never,
    Adaptive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaselineTransport {
    Tcp,
    Unix,
    SharedMemory,
}

impl BaselineTransport {
    pub(crate) const ALL: [BaselineTransport; 3] =
        [BaselineTransport::Tcp, BaselineTransport::Unix, BaselineTransport::SharedMemory];

    #[must_use]
    pub(crate) fn from_name(name: &str) -> Option<BaselineTransport> {
        BaselineTransport::ALL.into_iter().find(|transport| transport.name() == name)
    }

    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            BaselineTransport::Tcp => "tcp",
            BaselineTransport::Unix => "unix",
            BaselineTransport::SharedMemory => "shm",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaselineAddress {
    socket: Address,
    medium: Medium,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Socket { spins: bool },
    Memory { spins: bool },
    MemoryParts,
    Stream(BaselineTransport, StreamSpin),
}

/// Prefixes of addresses. An address without a prefix names a socket on which neither side spins.
const MEDIA: [(&str, Medium); 10] = [
    ("polling:", Medium::Socket { spins: true }),
    ("futex:", Medium::Memory { spins: false }),
    ("looking:", Medium::Memory { spins: true }),
    ("parts:", Medium::MemoryParts),
    ("tcp-stream:", Medium::Stream(BaselineTransport::Tcp, StreamSpin::Never)),
    ("unix-stream:", Medium::Stream(BaselineTransport::Unix, StreamSpin::Never)),
    ("shm-stream:", Medium::Stream(BaselineTransport::SharedMemory, StreamSpin::Never)),
    ("spinning-tcp-stream:", Medium::Stream(BaselineTransport::Tcp, StreamSpin::Adaptive)),
    ("spinning-unix-stream:", Medium::Stream(BaselineTransport::Unix, StreamSpin::Adaptive)),
    ("spinning-shm-stream:", Medium::Stream(BaselineTransport::SharedMemory, StreamSpin::Adaptive)),
];

impl fmt::Display for BaselineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = MEDIA.iter().find(|(_, medium)| *medium == self.medium) {
            f.write_str(name)?;
        }
        match &self.socket {
            Address::Abstract(name) => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
            other => write!(f, "{other}"),
        }
    }
}

pub(crate) fn parse_address(text: &str) -> Result<BaselineAddress, Failure> {
    let stripped = MEDIA.iter().find_map(|(name, medium)| Some((text.strip_prefix(name)?, *medium)));
    let (text, medium) = stripped.unwrap_or((text, Medium::Socket { spins: false }));
    let socket = if let Some(name) = text.strip_prefix("unix:@") {
        Address::Abstract(name.as_bytes().to_vec())
    } else if let Some(path) = text.strip_prefix("unix:") {
        Address::Unix(Path::new(path).to_path_buf())
    } else {
        let inet: Result<SocketAddr, _> = text.parse();
        Address::Inet(inet.map_err(|_| Failure::new(format!("`{text}` is not an address")))?)
    };
    Ok(BaselineAddress { socket, medium })
}

fn listening_address(transport: BaselineTransport) -> Address {
    match transport {
        BaselineTransport::Tcp => Address::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        BaselineTransport::Unix | BaselineTransport::SharedMemory => Address::Abstract(unused_name().into_bytes()),
    }
}

fn unused_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("corelane-bench-{}-{number}", std::process::id())
}

fn unused_path() -> PathBuf {
    std::env::temp_dir().join(unused_name())
}

const LOOK: Duration = Duration::from_micros(100);

#[inline]
fn recv_spinning(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let end = clock::now() + LOOK;
    loop {
        match socket::recv(socket, buffer, WaitMode::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !end.is_past() => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            other => return other,
        }
    }
    socket::recv(socket, buffer, WaitMode::Block)
}

#[cfg(test)]
mod tests {
    use super::server::BaselineServer;
    use super::*;
    use crate::harness::MeasuredSubject;
    use crate::sample::Samples;

    #[test]
    fn message_sizes_are_those_of_giop() {
        assert_eq!(MessageSizes::giop(12, 10, 1, 1), MessageSizes { request: 65, reply: 25 });
        assert_eq!(MessageSizes::giop(12, 10, 0, 0), MessageSizes { request: 60, reply: 24 });
    }

    #[test]
    fn addresses_are_parsed_back_from_their_text() {
        for text in ["127.0.0.1:80", "[::1]:9", "unix:@name", "unix:/tmp/x", "futex:unix:@name", "looking:unix:@name"]
            .into_iter()
            .chain([
                "polling:127.0.0.1:80",
                "parts:unix:@name",
                "tcp-stream:[::1]:9",
                "spinning-shm-stream:unix:/tmp/x",
            ])
        {
            assert_eq!(parse_address(text).unwrap().to_string(), text);
        }
        assert!(parse_address("nonsense").is_err());
    }

    #[test]
    fn every_baseline_answers_and_its_server_ends() {
        for (transport, both) in [
            (BaselineTransport::Tcp, [WaitStrategy::Epoll(2), WaitStrategy::SpinThenSleep]),
            (BaselineTransport::Unix, [WaitStrategy::Epoll(2), WaitStrategy::SpinThenSleep]),
            (BaselineTransport::SharedMemory, [WaitStrategy::SpinThenSleep, WaitStrategy::Pipelined]),
        ] {
            let streams = [StreamSpin::Never, StreamSpin::Adaptive].map(WaitStrategy::Stream);
            for waiting in both.into_iter().chain(streams).chain([WaitStrategy::Blocking]) {
                let server = BaselineServer::open(transport, waiting).unwrap();
                for sizes in [
                    MessageSizes { request: 1, reply: 1 },
                    MessageSizes { request: 100, reply: 25 },
                    MessageSizes { request: 1_000_000, reply: 300_000 },
                ] {
                    let mut client = BaselineClient::connect(server.address(), sizes).unwrap();
                    let mut samples = Samples::with_capacity(50);
                    client.exchange(5, 50, &mut samples).unwrap();
                    assert_eq!(samples.len(), 50);
                }
            }
        }
    }

    #[test]
    fn baseline_refuses_settings_that_its_transport_does_not_support() {
        assert!(BaselineServer::open(BaselineTransport::SharedMemory, WaitStrategy::Epoll(2)).is_err());
        assert!(BaselineServer::open(BaselineTransport::Tcp, WaitStrategy::Pipelined).is_err());
        let server = BaselineServer::open(BaselineTransport::SharedMemory, WaitStrategy::Blocking).unwrap();
        assert!(BaselineClient::connect(server.address(), MessageSizes { request: 8, reply: 0 }).is_err());
    }

    #[test]
    fn copied_messages_arrive() {
        let mut copies = MemoryCopies::new(MessageSizes { request: 5, reply: 3 });
        let mut samples = Samples::with_capacity(4);
        copies.run(1, 4, &mut samples).unwrap();
        assert_eq!(samples.len(), 4);
        assert!(copies.request[2] == [1; 5] && copies.reply[2] == [1; 3]);
    }

    #[test]
    fn flood_ends_after_the_server_has_read_it() {
        let server = BaselineServer::open(BaselineTransport::Tcp, WaitStrategy::Blocking).unwrap();
        let mut client = BaselineClient::connect(server.address(), MessageSizes { request: 77, reply: 0 }).unwrap();
        let mut samples = Samples::with_capacity(20_000);
        for _ in 0..2 {
            client.flood(10, 10_000, &mut samples).unwrap();
        }
        assert_eq!(samples.len(), 20_000);
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        let server = BaselineServer::open(BaselineTransport::Tcp, WaitStrategy::Blocking).unwrap();
        let mut client = BaselineClient::connect(server.address(), MessageSizes { request: 8, reply: 8 }).unwrap();
        client.exchange(0, 1, &mut Samples::with_capacity(1)).unwrap();
        let absurd =
            BaselineClient::connect(server.address(), MessageSizes { request: MessageSizes::MAX + 1, reply: 1 });
        assert!(absurd.is_err());
    }
}
