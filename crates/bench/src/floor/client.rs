//! The client's half.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::ring::bare::Bare;
use corelane_sys::socket::{self, Address, Options, Wait};

use super::{FloorAddress, Sizes, memory};
use crate::Failure;
use crate::harness::Subject;
use crate::sample::{Samples, timed};

/// How long one transfer may take before the floor counts as broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first octet of a message that asks for an answer although its connection has oneways only.
pub(super) const SETTLE: u8 = 1;

/// One connection to a floor server.
#[derive(Debug)]
pub(crate) struct FloorClient {
    link: Link,
    request: Vec<u8>,
    reply: Vec<u8>,
}

#[derive(Debug)]
enum Link {
    Socket(OwnedFd),
    /// Without a bound for its waits: a time-out is a timer of the kernel's for each, which a floor does not have.
    Memory(Bare),
}

impl FloorClient {
    /// Connects and tells the server the sizes.
    ///
    /// # Errors
    /// Nobody listens there, or the sizes are too large, or those of oneways where there are none.
    pub(crate) fn connect(address: &FloorAddress, sizes: Sizes) -> Result<Self, Failure> {
        if sizes.request == 0 || sizes.request.max(sizes.reply) > Sizes::LARGEST {
            return Err(Failure::new(format!("messages have 1 to {} octets", Sizes::LARGEST)));
        }
        let link = match address.memory {
            Some(_) if sizes.reply == 0 => return Err(Failure::new("shared memory has one place: no oneways")),
            Some(looking) => memory::connect(&address.socket, sizes, looking, PATIENCE).map(Link::Memory),
            None => connected(&address.socket, sizes).map(Link::Socket),
        };
        let link = link.map_err(|error| Failure::new(format!("no floor server at {address}: {error}")))?;
        Ok(FloorClient { link, request: vec![0; sizes.request], reply: vec![0; sizes.reply.max(1)] })
    }

    /// Sends requests and reads the reply of each.
    ///
    /// # Errors
    /// The server is gone.
    pub(crate) fn exchange(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.once()?;
        }
        timed(count, into, || self.once())
    }

    /// Sends without waiting for replies; the time of all ends when the server has read everything.
    ///
    /// # Errors
    /// The server is gone.
    pub(crate) fn flood(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.send()?;
        }
        self.settle()?;
        let began = clock::now();
        timed(count, into, || self.send())?;
        self.settle()?;
        Ok(began.elapsed())
    }

    #[inline]
    fn once(&mut self) -> Result<(), Failure> {
        self.send()?;
        self.receive()
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.request[0] = SETTLE;
        self.send()?;
        self.request[0] = 0;
        self.receive()
    }

    #[inline]
    fn send(&mut self) -> Result<(), Failure> {
        let socket = match &mut self.link {
            Link::Socket(socket) => &*socket,
            Link::Memory(bare) => {
                bare.send(&self.request);
                return Ok(());
            }
        };
        let mut sent = 0;
        while sent < self.request.len() {
            match socket::send(socket.as_fd(), &self.request[sent..], Wait::Block) {
                Ok(count) => sent += count,
                Err(error) => return Err(Failure::new(format!("sending to the floor server: {error}"))),
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<(), Failure> {
        let gone = || Failure::new("the floor server has closed the connection");
        let socket = match &mut self.link {
            Link::Socket(socket) => &*socket,
            Link::Memory(bare) => return if bare.receive(&mut self.reply) { Ok(()) } else { Err(gone()) },
        };
        let mut have = 0;
        while have < self.reply.len() {
            match socket::recv(socket.as_fd(), &mut self.reply[have..], Wait::Block) {
                Ok(0) => return Err(gone()),
                Ok(count) => have += count,
                Err(error) => return Err(Failure::new(format!("receiving from the floor server: {error}"))),
            }
        }
        Ok(())
    }
}

fn connected(address: &Address, sizes: Sizes) -> std::io::Result<OwnedFd> {
    let socket = socket::connect(address, &Options::default(), Some(clock::now() + PATIENCE))?;
    socket::set_receive_timeout(socket.as_fd(), Some(PATIENCE))?;
    socket::set_send_timeout(socket.as_fd(), Some(PATIENCE))?;
    socket::send(socket.as_fd(), &sizes.preamble(), Wait::Block)?;
    Ok(socket)
}

/// Two-way exchanges as a subject of the harness.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The connection.
    pub(crate) client: FloorClient,
    /// The server's process, if it is not this one.
    pub(crate) server: Option<u32>,
}

impl Subject for Exchange {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.client.exchange(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.server
    }
}

/// Oneways as a subject of the harness.
#[derive(Debug)]
pub(crate) struct OnewayFlood {
    /// The connection.
    pub(crate) client: FloorClient,
    /// The server's process, if it is not this one.
    pub(crate) server: Option<u32>,
}

impl Subject for OnewayFlood {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.client.flood(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.server
    }
}
