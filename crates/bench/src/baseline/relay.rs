//! Baseline of event channels: a relay between a sender and receivers in a third process.
//!
//! The relay reads whole messages and sends a message of a fixed size to each receiver. There are
//! no replies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use corelane_sys::ring::bare::BareRing;
use corelane_sys::socket::{self, SocketOptions, WaitMode};
use corelane_sys::thread::ThreadBuilder;

use super::server::{fill, read_sizes};
use super::{
    BaselineAddress, BaselineClient, BaselineTransport, Medium, MessageSizes, listening_address, memory, parse_address,
};
use crate::Failure;
use crate::arrivals::ArrivalReporter;
use crate::service::serve_lines;

/// The listener for connections on which this process only receives.
struct Receiver {
    listener: OwnedFd,
    medium: Medium,
}

enum Incoming {
    Socket(OwnedFd, Vec<u8>),
    Memory(BareRing, Vec<u8>),
}

impl Receiver {
    fn open(transport: BaselineTransport) -> io::Result<(Self, BaselineAddress)> {
        let in_memory = transport == BaselineTransport::SharedMemory;
        let medium = if in_memory { Medium::Memory { spins: false } } else { Medium::Socket { spins: false } };
        let options = SocketOptions { refuse_descriptors: !in_memory, ..SocketOptions::default() };
        let listener = socket::listen(&listening_address(transport), &options, socket::DEFAULT_BACKLOG)?;
        let address = BaselineAddress { socket: socket::local_address(listener.as_fd())?, medium };
        Ok((Receiver { listener, medium }, address))
    }

    /// Accepts a connection. Returns `None` if the peer closes the connection, or sends invalid
    /// sizes, before its first message.
    fn accept(&self) -> io::Result<Option<Incoming>> {
        let (socket, _) = socket::accept(self.listener.as_fd(), WaitMode::Block)?;
        if let Medium::Memory { spins } = self.medium {
            let accepted = memory::accept(socket.as_fd(), spins);
            return Ok(accepted.map(|(ring, sizes)| Incoming::Memory(ring, vec![0; sizes.request])));
        }
        Ok(read_sizes(socket.as_fd()).map(|sizes| Incoming::Socket(socket, vec![0; sizes.request])))
    }
}

impl Incoming {
    #[inline]
    fn receive(&mut self) -> bool {
        match self {
            Incoming::Socket(socket, message) => fill(socket.as_fd(), message, 0, false).is_some(),
            Incoming::Memory(ring, message) => ring.receive(message),
        }
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::new(format!("the floor's relay does not start: {error}"))
}

/// Returns the sizes of messages of `octets` bytes without replies. The size of the reply, 1, is
/// unused.
pub(crate) fn one_way(octets: usize) -> MessageSizes {
    MessageSizes { request: octets, reply: 1 }
}

/// Runs a relay to the sink at `target`. For each message of its sender, the relay sends `octets`
/// bytes on each of `connections` connections. The relay serves one sender at a time.
pub(crate) fn run_relay(
    transport: BaselineTransport,
    target: &str,
    octets: usize,
    connections: usize,
) -> Result<(), Failure> {
    let target = parse_address(target)?;
    let connect = |_| BaselineClient::connect(&target, one_way(octets));
    let mut outgoing = (0..connections).map(connect).collect::<Result<Vec<_>, Failure>>()?;
    let (receiver, address) = Receiver::open(transport).map_err(failed)?;
    let relay = move || {
        while let Ok(accepted) = receiver.accept() {
            let Some(mut incoming) = accepted else { continue };
            while incoming.receive() {
                if outgoing.iter_mut().any(|outgoing| outgoing.post().is_err()) {
                    return;
                }
            }
        }
    };
    ThreadBuilder::new().name("floor/relay").spawn(relay).map_err(failed)?;
    println!("ready {address}");
    serve_lines(|_| None).map_err(failed)
}

/// Runs a sink that reports the last of each `connections` messages. Each connection has a thread.
pub(crate) fn run_sink(transport: BaselineTransport, connections: usize, arrivals: &str) -> Result<(), Failure> {
    let reporter = Arc::new(ArrivalReporter::connect(arrivals, connections)?);
    let (receiver, address) = Receiver::open(transport).map_err(failed)?;
    let accept = move || {
        while let Ok(accepted) = receiver.accept() {
            let Some(mut incoming) = accepted else { continue };
            let reporter = Arc::clone(&reporter);
            let receive = move || {
                while incoming.receive() {
                    reporter.arrived();
                }
            };
            // If no thread can be created, the benchmark reports that no message arrives.
            drop(ThreadBuilder::new().name("floor/sink").stack_size(256 * 1024).spawn(receive));
        }
    };
    ThreadBuilder::new().name("floor/accept").spawn(accept).map_err(failed)?;
    println!("ready {address}");
    serve_lines(|_| None).map_err(failed)
}
