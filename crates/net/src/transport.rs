//! The traits of transports, and the list of transports that an ORB uses.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use corelane_sys::clock::Monotonic;

pub use crate::socket::{TcpTransport, UnixTransport};
use crate::{ConnectionProperties, Endpoint, IoProperties, SharedMemoryTransport, Stream};

/// A transport: makes connections to, and listeners at, the endpoints of one kind.
///
/// # Writing a transport
/// A transport is three types:
///
/// | trait | a value is | methods without a default |
/// |---|---|---|
/// | `Transport` | the transport, which all threads of its ORBs share | `name`, `supports`, `connect_with_properties`, `listen` |
/// | [`Listener`] | one endpoint at which it listens | `accept`, `readiness_descriptor`, `local_endpoint` |
/// | [`Stream`] | one connection | `recv`, `send_vectored`, `readiness_descriptor`, `set_coarse_timeouts`, `shutdown`, `peer` |
///
/// A transport sees only bytes: framing, byte order and requests belong to the ORB.
///
/// ## Endpoints
/// A new transport has endpoints of its own: [`Endpoint::Other`], with a scheme that the transport
/// chooses ([`OtherAddress`](crate::OtherAddress)). To the ORB, the address behind the scheme is
/// text. `supports` returns true for every address of the scheme; `listen` and
/// `connect_with_properties` refuse an address that they do not understand. Programs write such an
/// address wherever they write `tcp:HOST:PORT`, and references carry it unchanged. A client skips
/// the address if none of its transports supports it. To add the transport, a program passes it to
/// `OrbBuilder::transports`, which takes the list.
///
/// Lanes of a real-time pool that have no addresses of their own listen at the addresses of the
/// ORB, each followed by `-POOL-LANE`. Either the transport accepts these addresses, or the program
/// gives each lane addresses of its own.
///
/// A transport that wraps or replaces another transport uses the endpoints of that transport. The
/// ORB uses the first of its [`Transports`] that supports an endpoint, so the wrapping transport
/// must precede the wrapped one. [`MockTransport`](crate::mock::MockTransport) supports Unix paths
/// below `/mock`.
///
/// ## Rules for listeners
/// * `accept` never blocks. `WouldBlock` means that no connection waits. Any other error concerns
///   one connection or the machine's limits, and the listener stays usable.
/// * `readiness_descriptor` returns a descriptor, even if the streams of the transport have none.
///   It becomes readable when a connection waits. The ORB watches it with edge-triggered epoll.
/// * Connections are accepted in the order in which they were made. A client that connects does not
///   wait for `accept`.
/// * A second listener at the same endpoint is refused with `AddrInUse`. Dropping the listener
///   frees the endpoint: connecting then fails, and listening there succeeds again.
/// * `local_endpoint` contains the values that the system chose, such as the port. Clients can
///   connect to it.
///
/// ## Rules for streams
/// * Bytes arrive unchanged and in order. The two directions are independent.
/// * One thread may read while another writes. `shutdown` may be called by any thread at any time.
/// * A call with [`WaitLimit::Now`](crate::WaitLimit::Now) never blocks. A call with
///   [`WaitLimit::Until`](crate::WaitLimit::Until) returns `TimedOut` after the deadline, and a call with
///   [`WaitLimit::Block`](crate::WaitLimit::Block) returns it after the stream's coarse time-out. Data or
///   room that is available takes precedence over a deadline that has passed.
/// * `recv` returns 0 only at the end of the stream. `send_vectored` takes at least one byte if
///   there is room; it returns an error, not 0, if there is none.
/// * A stream with a descriptor reports an edge when there is something to read, after a `recv`
///   with `WaitLimit::Now` that did not fill its buffer. It also reports an edge when there is
///   room, after a send with `WaitLimit::Now` that returned `WouldBlock`. A stream whose descriptor
///   does not report other arrivals returns false from
///   [`reports_every_arrival`](Stream::reports_every_arrival) and implements
///   [`arm_readiness`](Stream::arm_readiness).
/// * A stream without a descriptor implements
///   [`set_readiness_callback`](Stream::set_readiness_callback). Otherwise the ORB must serve it by
///   a thread of its own.
/// * After `shutdown(Write)` the peer reads the remaining bytes and then the end of the stream, and
///   further sends of this side fail. `shutdown(Both)` also ends every `recv` and `send` that
///   waits.
/// * Dropping a stream closes the connection: the peer's `recv` returns 0, and the peer's sends
///   fail, although the first ones may succeed. In a forked child the connection belongs to the
///   parent, so dropping the child's copy must not end it.
///
/// ## Threads of the transport
/// A transport with threads of its own starts them when needed. It ends them when the last ORB has
/// called [`detach_orb`](Self::detach_orb).
///
/// ## Real-time I/O
/// A transport whose packets can have priorities or budgets implements
/// [`listen_with_io_properties`](Self::listen_with_io_properties) and
/// [`connect_with_io_properties`](Self::connect_with_io_properties), which the ORB calls in place
/// of `listen` and `connect_with_properties`. A transport that wraps such a transport passes both
/// calls on to it.
///
/// ## Tests
/// `tests/conformance.rs` of this crate checks these rules, except the rules about forks and
/// threads. A transport of this crate is added to the list in the file. A transport of another
/// crate has such a file with a list of its own, which includes `tests/conformance/checks.rs`.
///
/// # Examples
/// A transport that wraps another transport:
/// ```
/// use std::io;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use corelane_net::{ConnectionProperties, Endpoint, Listener, Monotonic, Stream, TcpTransport, Transport};
///
/// /// TCP with a count of the attempts to connect.
/// #[derive(Debug)]
/// struct CountedTcp {
///     tcp: TcpTransport,
///     attempts: AtomicUsize,
/// }
///
/// impl Transport for CountedTcp {
///     fn name(&self) -> &'static str {
///         "counted-tcp"
///     }
///
///     fn supports(&self, endpoint: &Endpoint) -> bool {
///         self.tcp.supports(endpoint)
///     }
///
///     fn connect_with_properties(
///         &self,
///         endpoint: &Endpoint,
///         properties: &ConnectionProperties,
///         deadline: Option<Monotonic>,
///     ) -> io::Result<Box<dyn Stream>> {
///         self.attempts.fetch_add(1, Ordering::Relaxed);
///         self.tcp.connect_with_properties(endpoint, properties, deadline)
///     }
///
///     fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
///         self.tcp.listen(endpoint)
///     }
///
///     fn attach_orb(&self) {
///         self.tcp.attach_orb();
///     }
///
///     fn detach_orb(&self) {
///         self.tcp.detach_orb();
///     }
/// }
///
/// let transport = CountedTcp { tcp: TcpTransport::new(), attempts: AtomicUsize::new(0) };
/// let listener = transport.listen(&Endpoint::tcp("127.0.0.1", 0))?;
/// let _client = transport.connect(listener.local_endpoint(), None)?;
/// assert_eq!(transport.attempts.load(Ordering::Relaxed), 1);
/// # Ok::<(), io::Error>(())
/// ```
pub trait Transport: Send + Sync + fmt::Debug {
    /// Returns a short name for diagnostics, such as `tcp`.
    fn name(&self) -> &'static str;

    /// Returns true if this transport handles `endpoint`.
    fn supports(&self, endpoint: &Endpoint) -> bool;

    /// Connects to `endpoint` with `properties`.
    ///
    /// `deadline` limits the whole call, including name resolution.
    ///
    /// # Errors
    /// `TimedOut` after the deadline, otherwise the error of the last address. Another error if the
    /// system refuses a property.
    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>>;

    /// Connects to `endpoint` with the default properties of the transport.
    ///
    /// # Errors
    /// As for [`connect_with_properties`](Self::connect_with_properties).
    fn connect(&self, endpoint: &Endpoint, deadline: Option<Monotonic>) -> io::Result<Box<dyn Stream>> {
        self.connect_with_properties(endpoint, &ConnectionProperties::default(), deadline)
    }

    /// Connects like [`connect_with_properties`](Self::connect_with_properties), for calls with the
    /// properties `io`. The default implementation ignores `io`.
    ///
    /// # Errors
    /// As for [`connect_with_properties`](Self::connect_with_properties). `InvalidInput` if the
    /// transport uses `io` and its class is not valid. `QuotaExceeded` if the transport itself
    /// permits no further connection, which a caller does not count as a failure of the server.
    fn connect_with_io_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        _io: &IoProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.connect_with_properties(endpoint, properties, deadline)
    }

    /// Listens at `endpoint`.
    ///
    /// # Errors
    /// If the address is taken, is not an address of this machine, or is not permitted.
    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>>;

    /// Listens at `endpoint` for a lane with the properties `io`. The default implementation
    /// ignores `io`.
    ///
    /// # Errors
    /// As for [`listen`](Self::listen). `InvalidInput` if the transport uses `io` and its class is
    /// not valid.
    fn listen_with_io_properties(&self, endpoint: &Endpoint, _io: &IoProperties) -> io::Result<Box<dyn Listener>> {
        self.listen(endpoint)
    }

    /// Tells the transport that an ORB uses it until [`detach_orb`](Self::detach_orb).
    fn attach_orb(&self) {}

    /// Tells the transport that an ORB which used it has ended. After the last ORB, the transport
    /// ends its threads and waits for their end.
    fn detach_orb(&self) {}
}

/// A listener: accepts connections at one endpoint.
pub trait Listener: Send + Sync + fmt::Debug {
    /// Accepts the next waiting connection. Never blocks.
    ///
    /// # Errors
    /// `WouldBlock` when no connection waits. Other errors concern one connection or the machine's
    /// limits; the listener stays usable.
    fn accept(&self) -> io::Result<Box<dyn Stream>>;

    /// Sets the properties of connections that the listener accepts after the call.
    ///
    /// # Errors
    /// If the system refuses a property.
    fn set_properties(&self, _properties: &ConnectionProperties) -> io::Result<()> {
        Ok(())
    }

    /// Returns a descriptor that becomes readable when a connection waits.
    fn readiness_descriptor(&self) -> BorrowedFd<'_>;

    /// Returns the endpoint at which the listener listens, with the port that the system chose.
    fn local_endpoint(&self) -> &Endpoint;
}

/// The transports of an ORB, in order of preference.
#[derive(Clone, Debug)]
pub struct Transports(Vec<Arc<dyn Transport>>);

impl Default for Transports {
    fn default() -> Self {
        Transports(vec![
            Arc::new(TcpTransport::new()),
            Arc::new(UnixTransport),
            Arc::new(SharedMemoryTransport::default()),
        ])
    }
}

impl Transports {
    /// Creates the list of an ORB's transports, in order of preference.
    #[must_use]
    pub fn new(transports: Vec<Arc<dyn Transport>>) -> Self {
        Transports(transports)
    }

    /// Returns the first transport that supports `endpoint`.
    #[must_use]
    pub fn find(&self, endpoint: &Endpoint) -> Option<&Arc<dyn Transport>> {
        self.0.iter().find(|transport| transport.supports(endpoint))
    }

    /// Connects through the first transport that supports `endpoint`.
    ///
    /// # Errors
    /// `Unsupported` when no transport supports the endpoint, otherwise as for
    /// [`Transport::connect`].
    pub fn connect(&self, endpoint: &Endpoint, deadline: Option<Monotonic>) -> io::Result<Box<dyn Stream>> {
        self.require(endpoint)?.connect(endpoint, deadline)
    }

    /// Connects through the first transport that supports `endpoint`, with `properties`.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect) and [`Transport::connect_with_properties`].
    pub fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.require(endpoint)?.connect_with_properties(endpoint, properties, deadline)
    }

    /// Connects as [`connect_with_properties`](Self::connect_with_properties), for calls with the
    /// properties `io`.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect) and [`Transport::connect_with_io_properties`].
    pub fn connect_with_io_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        io: &IoProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.require(endpoint)?.connect_with_io_properties(endpoint, properties, io, deadline)
    }

    /// Listens through the first transport that supports `endpoint`.
    ///
    /// # Errors
    /// `Unsupported` when no transport supports the endpoint, otherwise as for
    /// [`Transport::listen`].
    pub fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.require(endpoint)?.listen(endpoint)
    }

    /// Listens as [`listen`](Self::listen), for a lane with the properties `io`.
    ///
    /// # Errors
    /// As for [`listen`](Self::listen) and [`Transport::listen_with_io_properties`].
    pub fn listen_with_io_properties(&self, endpoint: &Endpoint, io: &IoProperties) -> io::Result<Box<dyn Listener>> {
        self.require(endpoint)?.listen_with_io_properties(endpoint, io)
    }

    /// Tells every transport that an ORB uses it (see [`Transport::attach_orb`]).
    pub fn attach_orb(&self) {
        self.0.iter().for_each(|transport| transport.attach_orb());
    }

    /// Tells every transport that the ORB has ended (see [`Transport::detach_orb`]).
    pub fn detach_orb(&self) {
        self.0.iter().for_each(|transport| transport.detach_orb());
    }

    fn require(&self, endpoint: &Endpoint) -> io::Result<&Arc<dyn Transport>> {
        self.find(endpoint)
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, format!("no transport for {endpoint}")))
    }
}
