//! The configuration of thread pools: dispatch architecture, addresses and bounds.

use std::time::Duration;

use corelane_net::SpinPolicy;

/// The dispatch architecture of a pool, which decides the threads that read, run and answer
/// requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// One thread serves all connections. This needs the least memory. While a servant has made a
    /// call and waits for the reply, the thread serves other requests.
    Reactive,
    /// Each connection has a thread, which serves its requests one after the other.
    ///
    /// In two cases a connection moves to the pool's four shared threads for the rest of its life.
    /// The first case is a connection with several outstanding requests. The second case is a
    /// servant that makes a remote call, because a callback may arrive on the same connection. Use
    /// leader/followers if clients share connections or servants make calls.
    ThreadPerConnection {
        /// Maximum number of connections with their own threads. The shared threads serve the other
        /// connections.
        max_threads: usize,
    },
    /// Threads take turns at waiting for a request. The thread that read a request runs it, without
    /// a hand-off. Requests of one connection run concurrently.
    ///
    /// In burst mode one thread runs all requests of the lane. The mode begins if more than 200
    /// short requests arrive on one connection in a millisecond, and ends if the thread does not
    /// keep up. Pools with priorities have no burst mode.
    LeaderFollowers {
        /// Number of threads.
        threads: usize,
    },
    /// One thread reads requests into a bounded queue, and other threads run them. Needs the
    /// feature `half-sync`, which is on by default.
    ///
    /// The queue is full when it has `max_queued` requests or
    /// [`ConnectionLimits::max_queued_bytes`]. Connections take turns in it.
    /// - If one connection has an eighth of these requests or bytes in the queue, the pool does not
    ///   read it until one of its requests runs. No peer can fill the queue alone.
    /// - If the queue is full, a new request replaces the last request of the connection with the
    ///   largest share of the queue, provided that the new request's connection has a smaller
    ///   share.
    /// - The replaced request, or else the new one, is refused with TRANSIENT 1.
    #[cfg(feature = "half-sync")]
    HalfSyncHalfAsync {
        /// Number of threads that run requests.
        threads: usize,
        /// Maximum number of requests in the queue.
        max_queued: usize,
    },
}

/// The activity of a pool's thread while a servant that the thread runs waits for the reply to a
/// call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedWait {
    /// The thread blocks.
    Block,
    /// The thread serves other requests of its lane.
    Serve {
        /// Maximum number of nested upcalls on one thread.
        max_depth: u8,
    },
}

/// Limits on the connections of a pool, and on the memory and time that their peers may use.
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
    /// Maximum number of open connections. In pools with lanes it applies to each lane.
    ///
    /// When the pool is full, a new connection evicts another one. The first choice is a connection
    /// that never sent a whole message. The second choice is a connection that has been idle for
    /// ten seconds: its client gets CloseConnection, and connects again for its next call. The last
    /// choice is the connection that has been draining longest
    /// ([`Event::DrainingConnectionEvicted`](crate::Event::DrainingConnectionEvicted)). If no
    /// connection can be evicted, the new one is refused. A connection with waiting requests is
    /// never evicted. The pool evicts in the same order when the process has no descriptors left.
    /// Default: 20,000.
    pub max_connections: usize,
    /// Maximum number of bytes that the connections of a lane hold together: incomplete messages,
    /// and replies that the peers have not read. A reply whose memory the servant gave to the ORB
    /// counts in full until all of it is sent. Above the maximum the pool closes the connection
    /// that holds the most bytes, then the next one, until the others hold less than the maximum.
    ///
    /// The requests that run in a lane may hold the same number of bytes in addition. Each request
    /// above 64 KiB counts, and so do the values decoded from arguments beyond the first 64 KiB.
    /// The requests of one connection may hold half of these bytes. A request that finds no room
    /// may use a reserve of the same size, one request at a time. A request that does not fit into
    /// the reserve is refused with IMP_LIMIT, and
    /// [`Event::RequestRefused`](crate::Event::RequestRefused) reports the number of bytes that it
    /// needed. Its connection stays open. Default: 256 MiB.
    pub max_buffered_bytes: usize,
    /// Maximum size in bytes of the requests in the queue of a half-sync pool. A lane applies the
    /// maximum also to requests that arrived at another lane and wait for a thread of this lane.
    /// Further requests are refused with TRANSIENT 1. An empty queue accepts a request of any size.
    /// Default: 64 MiB.
    pub max_queued_bytes: usize,
    /// Time in which an incomplete message must grow by 1,024 bytes. A connection whose message
    /// grows by less is closed. Other messages between the fragments of a message do not count as
    /// progress. Default: 30 s.
    pub read_stall_timeout: Duration,
    /// Maximum time until the first message of a connection begins; `None` for no maximum. Clients
    /// that connect early (`OrbBuilder::preconnect`) send nothing at first, and need a long
    /// time-out or none. The pool checks this time-out once a second. If a quarter of
    /// `OrbBuilder::idle_connection_timeout` is shorter than a second, the pool checks at that
    /// interval. Default: `None`.
    pub first_request_timeout: Option<Duration>,
    /// Maximum time for which a peer may read nothing of its replies. After this time its
    /// connection is closed. While replies wait for the peer, the pool reads nothing from the
    /// connection and begins none of its requests. Default: 30 s.
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

/// The configuration of a thread pool: its name, threads, addresses and limits.
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
    /// The pool's name, which events and the names of its threads contain. Default: `pool`.
    pub name: String,
    /// The threads that serve requests.
    /// Default: leader/followers with 4 threads.
    pub dispatch: Dispatch,
    /// Addresses at which the pool listens, as for [`OrbBuilder::listen`](crate::OrbBuilder::listen).
    /// Default: none. The addresses of `OrbBuilder::listen` belong to the first pool.
    pub listen: Vec<String>,
    /// The activity of a thread while a servant that the thread runs waits for the reply to a call.
    /// With `None`, the threads of reactive pools and the shared threads of thread-per-connection pools serve
    /// other requests ([`NestedWait::Serve`]), and all other threads block ([`NestedWait::Block`]).
    /// A thread that serves a single connection always blocks. Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// How long the pool's threads poll for the next request before they sleep. Threads that run
    /// queued requests of a half-sync pool never poll. Pools with several threads poll only with
    /// the feature `spin`, which is on by default. `None` means the policy of
    /// [`OrbBuilder::spin_policy`](crate::OrbBuilder::spin_policy). Default: `None`.
    pub spin_policy: Option<SpinPolicy>,
    /// Stack size of each thread in bytes.
    /// Default: 1 MiB.
    pub thread_stack_size: usize,
    /// Highest CORBA priority that a request may ask for at an endpoint of the pool: 0 to 32767. A
    /// request with a higher priority is refused with NO_PERMISSION. With `None` or a negative
    /// number, peers on this machine may ask for any priority, and peers on other machines get at
    /// most the priority of a request without a priority. [`i16::MAX`] permits every priority to
    /// all peers. Pools with priorities have
    /// [`LaneConfig::ceiling`](crate::rt::LaneConfig::ceiling) instead. Default: `None`.
    pub ceiling: Option<i16>,
    /// Limits on connections. Default: [`ConnectionLimits::default`].
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
