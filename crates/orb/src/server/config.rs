//! The configuration of thread pools: dispatch architecture, addresses and bounds.

use std::time::Duration;

use corelane_net::SpinPolicy;

/// The dispatch architecture of a pool: which threads read, run and answer requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// One thread serves all connections; needs the least memory. While a servant's own call waits for
    /// its reply, the thread serves other requests.
    Reactive,
    /// A thread for each connection, which serves its requests one after the other.
    ///
    /// A connection moves to the pool's four shared threads, for good, when it carries several requests
    /// at once, or when its servant makes a remote call, whose callback may come in on the same
    /// connection. Leader/followers fits better where clients share connections or servants call others.
    ThreadPerConnection {
        /// Maximum number of connections with a thread of their own. The shared threads serve the rest.
        max_threads: usize,
    },
    /// Threads that take turns at waiting. A request runs in the thread that read it, without a
    /// hand-off, and requests of one connection run side by side.
    ///
    /// Under a burst of more than 200 short requests a millisecond on one connection, one thread runs
    /// them, and the others check every millisecond whether it keeps up. Pools with priorities have no
    /// such burst mode.
    LeaderFollowers {
        /// Number of threads.
        threads: usize,
    },
    /// One thread reads requests into a bounded queue, and other threads run them. Needs the feature
    /// `half-sync`, which is on by default.
    ///
    /// The queue is full at `max_queued` requests or [`ConnectionLimits::max_queued_bytes`]. Its
    /// connections take turns.
    /// - A connection that has an eighth of the requests or of the bytes is not read until one of its
    ///   requests runs, so that no peer can fill the queue alone.
    /// - A request that finds the queue full replaces the last request of the connection with the most
    ///   in it, if its own connection has less.
    /// - The request that has no place is refused with TRANSIENT 1.
    #[cfg(feature = "half-sync")]
    HalfSyncHalfAsync {
        /// Threads that run requests.
        threads: usize,
        /// Maximum number of requests in the queue.
        max_queued: usize,
    },
}

/// Behaviour of a pool's thread while a call made by one of its servants waits for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedWait {
    /// The thread blocks.
    Block,
    /// The thread serves other requests of its lane.
    Serve {
        /// Maximum number of upcalls nested in each other on one thread.
        max_depth: u8,
    },
}

/// Bounds on the connections of a pool, and on the memory and the time that their peers may use.
///
/// # Examples
/// ```
/// use corelane::ConnectionLimits;
/// let limits = ConnectionLimits::default().max_connections(100);
/// assert_eq!(limits.max_connections, 100);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionLimits {
    /// Maximum number of open connections; in pools with lanes, of each lane.
    ///
    /// When the pool is full, a new connection evicts another one. The first choice is a connection
    /// that never sent a whole message, then one that has been idle for ten seconds. Its client is
    /// told by CloseConnection and connects again when it needs to. The last choice is the connection
    /// that has been draining longest
    /// ([`Event::DrainingConnectionEvicted`](crate::Event::DrainingConnectionEvicted)). If there is
    /// none, the new connection is refused. A connection with waiting requests is never evicted.
    /// The pool evicts in the same order when the process has no descriptors left.
    /// Default: 20,000.
    pub max_connections: usize,
    /// Maximum size in bytes of what the connections of a lane hold together: incomplete messages and
    /// replies that their peers have not read. A reply in memory that the servant gave away counts
    /// whole until all of it is sent. Above the bound the pool closes the connection that holds most,
    /// then the next one.
    ///
    /// The requests that run in a lane may hold as many bytes again: each request above 64 KiB, and
    /// the values made of its arguments beyond the first 64 KiB. Those of one connection may hold
    /// half of that. One request at a time that finds no room may hold as many bytes once more. A
    /// request that does not fit is refused with IMP_LIMIT
    /// ([`Event::RequestRefused`](crate::Event::RequestRefused) says how much it needed). The pool
    /// closes no connection for it.
    /// Default: 256 MiB.
    pub max_buffered_bytes: usize,
    /// Maximum size in bytes of the requests in the queue of a half-synchronous pool, and of requests
    /// that came in at another lane and wait for a thread of this one. Above the bound requests are
    /// refused with TRANSIENT 1. An empty queue takes a request of any size.
    /// Default: 64 MiB.
    pub max_queued_bytes: usize,
    /// Longest time in which an incomplete message may grow by less than 1,024 bytes; then its
    /// connection is closed. Other messages between its fragments do not count.
    /// Default: 30 s.
    pub read_stall_timeout: Duration,
    /// Longest time until the first whole message of a connection; `None` sets no bound. Clients that
    /// connect early (`OrbBuilder::preconnect`) are silent at first. The pool checks once a second,
    /// or four times in `OrbBuilder::idle_connection_timeout` where that is shorter.
    /// Default: `None`.
    pub first_request_timeout: Option<Duration>,
    /// Longest time for which a peer may take nothing of its replies; then its connection is closed.
    /// While replies wait, the pool reads nothing from the connection and begins none of its requests.
    /// Default: 30 s.
    pub write_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            max_connections: 20_000,
            max_buffered_bytes: 256 << 20,
            max_queued_bytes: 64 << 20,
            read_stall_timeout: Duration::from_secs(30),
            first_request_timeout: None,
            write_timeout: Duration::from_secs(30),
        }
    }
}

setters!(ConnectionLimits {
    max_connections: usize,
    max_buffered_bytes: usize,
    max_queued_bytes: usize,
    read_stall_timeout: Duration,
    first_request_timeout: Option<Duration>,
    write_timeout: Duration,
});

/// A thread pool: its name, its threads, its addresses and its bounds.
///
/// # Examples
/// ```
/// use corelane::{Dispatch, PoolConfig};
/// let pool = PoolConfig::default().name("sensors").dispatch(Dispatch::LeaderFollowers { threads: 2 });
/// assert_eq!(pool.connection_limits.max_connections, 20_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The pool's name in thread names and events.
    /// Default: `pool`.
    pub name: String,
    /// The threads that serve requests.
    /// Default: leader/followers with 4 threads.
    pub dispatch: Dispatch,
    /// Addresses at which the pool listens, as for [`OrbBuilder::listen`](crate::OrbBuilder::listen).
    /// Default: none. The addresses of `OrbBuilder::listen` belong to the first pool.
    pub listen: Vec<String>,
    /// Behaviour of a thread while a call made by its servant waits for the reply. `None` means
    /// [`NestedWait::Serve`] for reactive pools and for the shared threads of a pool with a thread for
    /// each connection, and [`NestedWait::Block`] for all others. The own thread of a connection always
    /// blocks.
    /// Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// Polling of the pool's threads for the next request, before they sleep. Threads that run queued
    /// requests of a half-synchronous pool never poll. Threads that share a pool poll only with the feature
    /// `spin`, which is on by default. `None` means the policy of
    /// [`OrbBuilder::spin_policy`](crate::OrbBuilder::spin_policy).
    /// Default: `None`.
    pub spin_policy: Option<SpinPolicy>,
    /// Stack size of each thread in bytes.
    /// Default: 1 MiB.
    pub thread_stack_size: usize,
    /// Highest CORBA priority that a request may ask for at an endpoint of the pool, 0 to 32767; above
    /// it the request is refused with NO_PERMISSION. With `None` or a negative number, peers on this
    /// machine may ask for any priority, and peers on other machines for none above that of a client
    /// which sends no priority. [`i16::MAX`] opens the pool to them. Pools with priorities have
    /// [`LaneConfig::ceiling`](crate::rt::LaneConfig::ceiling) instead.
    /// Default: `None`.
    pub ceiling: Option<i16>,
    /// Bounds on connections.
    /// Default: [`ConnectionLimits::default`].
    pub connection_limits: ConnectionLimits,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig {
            name: "pool".into(),
            dispatch: Dispatch::LeaderFollowers { threads: 4 },
            listen: Vec::new(),
            nested_wait: None,
            spin_policy: None,
            thread_stack_size: 1 << 20,
            ceiling: None,
            connection_limits: ConnectionLimits::default(),
        }
    }
}

setters!(PoolConfig {
    name: impl Into<String>,
    dispatch: Dispatch,
    nested_wait: Option<NestedWait>,
    spin_policy: Option<SpinPolicy>,
    thread_stack_size: usize,
    ceiling: Option<i16>,
    connection_limits: ConnectionLimits,
});

impl PoolConfig {
    /// Adds an address to [`listen`](field@Self::listen).
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }
}
