//! Transports and the list of them that an ORB has.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use corelane_sys::clock::Monotonic;

pub use crate::socket::{Tcp, Unix};
use crate::{Endpoint, Properties, SharedMemory, Stream};

/// Makes connections to, and listeners at, the endpoints of one kind.
pub trait Transport: Send + Sync + fmt::Debug {
    /// A short name for diagnostics: `tcp`.
    fn name(&self) -> &'static str;

    /// Whether this transport is for `endpoint`.
    fn serves(&self, endpoint: &Endpoint) -> bool;

    /// Connects, trying every address that the endpoint's name stands for until `deadline`, which bounds looking up the name too. The
    /// `properties` are in force before the peer hears of the connection where that matters.
    ///
    /// # Errors
    /// `TimedOut` past the deadline, else why the last address failed; also where the system refuses a property.
    fn connect_with(
        &self,
        endpoint: &Endpoint,
        properties: &Properties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>>;

    /// The same with properties as the transport has them.
    ///
    /// # Errors
    /// Those of [`connect_with`](Self::connect_with).
    fn connect(&self, endpoint: &Endpoint, deadline: Option<Monotonic>) -> io::Result<Box<dyn Stream>> {
        self.connect_with(endpoint, &Properties::default(), deadline)
    }

    /// Listens at `endpoint`.
    ///
    /// # Errors
    /// When the address is taken, not this machine's, or not permitted.
    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>>;

    /// An ORB uses it from now on, until it says [`end`](Self::end). A transport that is made of another one hands both on.
    fn begin(&self) {}

    /// An ORB that used it has ended. If it was the last one, waits for the end of threads of its own; streams that are left go on
    /// without them.
    fn end(&self) {}
}

/// Accepts connections at one endpoint.
pub trait Listener: Send + Sync + fmt::Debug {
    /// The next connection that is waiting; never blocks.
    ///
    /// # Errors
    /// `WouldBlock` when none waits; others concern this one connection or the machine's limits, and the listener stays usable.
    fn accept(&self) -> io::Result<Box<dyn Stream>>;

    /// Properties of connections accepted from now on.
    ///
    /// # Errors
    /// Where the system refuses one.
    fn set_properties(&self, _properties: &Properties) -> io::Result<()> {
        Ok(())
    }

    /// Becomes readable when a connection waits.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Where it listens, with the port that the system chose.
    fn local(&self) -> &Endpoint;
}

/// The transports of an ORB, in order of preference.
#[derive(Clone, Debug)]
pub struct Transports(Vec<Arc<dyn Transport>>);

impl Default for Transports {
    fn default() -> Self {
        Transports(vec![Arc::new(Tcp::new()), Arc::new(Unix), Arc::new(SharedMemory::default())])
    }
}

impl Transports {
    /// These transports only.
    #[must_use]
    pub fn new(transports: Vec<Arc<dyn Transport>>) -> Self {
        Transports(transports)
    }

    /// The transport for `endpoint`, if there is one.
    #[must_use]
    pub fn for_endpoint(&self, endpoint: &Endpoint) -> Option<&Arc<dyn Transport>> {
        self.0.iter().find(|transport| transport.serves(endpoint))
    }

    /// Connects through the transport of `endpoint`.
    ///
    /// # Errors
    /// `Unsupported` when no transport serves the endpoint, else as [`Transport::connect`].
    pub fn connect(&self, endpoint: &Endpoint, deadline: Option<Monotonic>) -> io::Result<Box<dyn Stream>> {
        self.serving(endpoint)?.connect(endpoint, deadline)
    }

    /// Connects through the transport of `endpoint`, with `properties`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect) and [`Transport::connect_with`].
    pub fn connect_with(
        &self,
        endpoint: &Endpoint,
        properties: &Properties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.serving(endpoint)?.connect_with(endpoint, properties, deadline)
    }

    /// Listens through the transport of `endpoint`.
    ///
    /// # Errors
    /// `Unsupported` when no transport serves the endpoint, else as [`Transport::listen`].
    pub fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.serving(endpoint)?.listen(endpoint)
    }

    /// An ORB uses them from now on: see [`Transport::begin`].
    pub fn begin(&self) {
        self.0.iter().for_each(|transport| transport.begin());
    }

    /// The ORB that uses them has ended: see [`Transport::end`].
    pub fn end(&self) {
        self.0.iter().for_each(|transport| transport.end());
    }

    fn serving(&self, endpoint: &Endpoint) -> io::Result<&Arc<dyn Transport>> {
        self.for_endpoint(endpoint)
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, format!("no transport for {endpoint}")))
    }
}
