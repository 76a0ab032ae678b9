//! Client side of the baseline, which exchanges messages without an ORB.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use corelane_net::Stream;
use corelane_sys::clock;
use corelane_sys::ring::bare::BareRing;
use corelane_sys::ring::bare_stream::BareStream;
use corelane_sys::socket::{self, Address, SocketOptions, WaitMode};

use super::{BaselineAddress, Medium, MessageSizes, memory, recv_spinning, stream};
use crate::Failure;
use crate::client_group::GroupClient;
use crate::harness::MeasuredSubject;
use crate::sample::{Samples, time_calls};

const PATIENCE: Duration = Duration::from_secs(10);

/// First byte of a oneway that requests an answer.
pub(super) const REQUESTS_ANSWER: u8 = 1;

#[derive(Debug)]
pub(crate) struct BaselineClient {
    link: BaselineLink,
    request: Vec<u8>,
    reply: Vec<u8>,
}

#[derive(Debug)]
enum BaselineLink {
    Socket(OwnedFd),
    /// Waits without a time-out, because the kernel timer of a time-out would lengthen each
    /// exchange.
    Memory(BareRing),
    Polled(OwnedFd),
    Pipelined(BareStream),
    Stream(Box<dyn Stream>),
}

impl BaselineClient {
    pub(crate) fn connect(address: &BaselineAddress, sizes: MessageSizes) -> Result<Self, Failure> {
        if sizes.request == 0 || sizes.request.max(sizes.reply) > MessageSizes::MAX {
            return Err(Failure::new(format!("messages have 1 to {} octets", MessageSizes::MAX)));
        }
        if sizes.reply == 0 && address.medium != (Medium::Socket { spins: false }) {
            return Err(Failure::new("oneways need a floor over sockets that do not spin"));
        }
        let link = match address.medium {
            Medium::Socket { spins: false } => connected(&address.socket, sizes).map(BaselineLink::Socket),
            Medium::Socket { spins: true } => connected(&address.socket, sizes).map(BaselineLink::Polled),
            Medium::Memory { spins } => {
                memory::connect(&address.socket, sizes, spins, PATIENCE).map(BaselineLink::Memory)
            }
            Medium::MemoryParts => memory::connect_parts(&address.socket, sizes, PATIENCE).map(BaselineLink::Pipelined),
            Medium::Stream(transport, spin) => {
                stream::connect(transport, spin, &address.socket, sizes, PATIENCE).map(BaselineLink::Stream)
            }
        };
        let link =
            link.map_err(|error| Failure::new(format!("cannot connect to the floor server at {address}: {error}")))?;
        Ok(BaselineClient { link, request: vec![0; sizes.request], reply: vec![0; sizes.reply.max(1)] })
    }

    pub(crate) fn exchange(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.once()?;
        }
        time_calls(count, into, || self.once())
    }

    /// Sends messages without replies. Returns the time from the first counted message until the
    /// server has read the last one.
    pub(crate) fn flood(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.send()?;
        }
        self.settle()?;
        let began = clock::now();
        time_calls(count, into, || self.send())?;
        self.settle()?;
        Ok(began.elapsed())
    }

    #[inline]
    pub(crate) fn post(&mut self) -> Result<(), Failure> {
        self.send()
    }

    #[inline]
    fn once(&mut self) -> Result<(), Failure> {
        self.send()?;
        self.receive()
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.request[0] = REQUESTS_ANSWER;
        self.send()?;
        self.request[0] = 0;
        self.receive()
    }

    #[inline]
    fn send(&mut self) -> Result<(), Failure> {
        let gone = || Failure::new("the floor server has closed the connection");
        let socket = match &mut self.link {
            BaselineLink::Socket(socket) | BaselineLink::Polled(socket) => &*socket,
            BaselineLink::Memory(bare) => {
                bare.send(&self.request);
                return Ok(());
            }
            BaselineLink::Pipelined(bare) => return if bare.send(&self.request) { Ok(()) } else { Err(gone()) },
            BaselineLink::Stream(stream) => return stream::send_all(&**stream, &self.request).map_err(broken),
        };
        let mut sent = 0;
        while sent < self.request.len() {
            match socket::send(socket.as_fd(), &self.request[sent..], WaitMode::Block) {
                Ok(count) => sent += count,
                Err(error) => return Err(Failure::new(format!("cannot send to the floor server: {error}"))),
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<(), Failure> {
        let gone = || Failure::new("the floor server has closed the connection");
        let (socket, polls) = match &mut self.link {
            BaselineLink::Socket(socket) => (&*socket, false),
            BaselineLink::Polled(socket) => (&*socket, true),
            BaselineLink::Pipelined(bare) => return if bare.receive(&mut self.reply) { Ok(()) } else { Err(gone()) },
            BaselineLink::Stream(stream) => return stream::fill(&**stream, &mut self.reply).map_err(broken),
            BaselineLink::Memory(bare) => return if bare.receive(&mut self.reply) { Ok(()) } else { Err(gone()) },
        };
        let mut have = 0;
        while have < self.reply.len() {
            let room = &mut self.reply[have..];
            let received = if polls {
                recv_spinning(socket.as_fd(), room)
            } else {
                socket::recv(socket.as_fd(), room, WaitMode::Block)
            };
            match received {
                Ok(0) => return Err(gone()),
                Ok(count) => have += count,
                Err(error) => return Err(Failure::new(format!("cannot receive from the floor server: {error}"))),
            }
        }
        Ok(())
    }
}

#[cold]
fn broken(error: std::io::Error) -> Failure {
    Failure::new(format!("the connection to the floor server is broken: {error}"))
}

fn connected(address: &Address, sizes: MessageSizes) -> std::io::Result<OwnedFd> {
    let socket = socket::connect(address, &SocketOptions::default(), Some(clock::now() + PATIENCE))?;
    socket::set_receive_timeout(socket.as_fd(), Some(PATIENCE))?;
    socket::set_send_timeout(socket.as_fd(), Some(PATIENCE))?;
    socket::send(socket.as_fd(), &sizes.preamble(), WaitMode::Block)?;
    Ok(socket)
}

#[derive(Debug)]
pub(crate) struct TwoWayExchange {
    pub(crate) client: BaselineClient,
    pub(crate) server: Option<u32>,
}

impl MeasuredSubject for TwoWayExchange {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.client.exchange(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.server
    }
}

#[derive(Debug)]
pub(crate) struct OnewayFlood {
    pub(crate) client: BaselineClient,
    pub(crate) server: Option<u32>,
}

impl MeasuredSubject for OnewayFlood {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.client.flood(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.server
    }
}

impl GroupClient for BaselineClient {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        self.exchange(0, count, into).map(|_| ())
    }
}
