//! The configuration of thread pools: dispatch architecture, addresses and limits.

use std::time::Duration;

use corelane_net::SpinPolicy;

/// The dispatch architecture of a pool, which decides which threads read, run and answer requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// One thread serves all connections. While a servant waits for the reply to a call that it has
    /// made, the thread by default runs other requests
    /// ([`PoolConfig::nested_wait`](field@PoolConfig::nested_wait)).
    Reactive,
    /// Each connection, up to `max_threads` of them, has a thread, which runs the requests of the
    /// connection one after the other.
    ///
    /// A connection moves to the pool's four shared threads if its client sends a request before it
    /// has the reply to an earlier one, or if a servant makes a remote call. If clients share
    /// connections, or servants make calls, use leader/followers.
    ThreadPerConnection {
        /// Maximum number of connections that have a thread. The shared threads serve all further
        /// connections.
        max_threads: usize,
    },
    /// All threads wait for requests. The thread that reads a request also runs it. Requests of one
    /// connection run concurrently.
    ///
    /// In burst mode, one thread runs all requests of the pool. The mode begins when messages
    /// arrive on one connection faster than the threads read them. The mode ends when this thread
    /// has been idle for ten milliseconds, has run fewer than 200 messages in each of two
    /// successive milliseconds, or has received more than an eighth of its messages in a
    /// millisecond from other connections. Pools with priorities have no burst mode.
    LeaderFollowers {
        /// Number of threads that serve the pool.
        threads: usize,
    },
    /// One thread reads requests into a bounded queue, and other threads run them. Needs the
    /// feature `half-sync`, which is on by default.
    ///
    /// The threads run one request of each connection in turn.
    /// - If one connection has an eighth of the maximum number of requests or bytes in the queue,
    ///   the pool does not read from this connection until one of its requests runs. So no
    ///   connection can fill the queue alone.
    /// - If the queue is full and a request arrives, the connection with the largest share of the
    ///   queue loses its last requests, provided that the connection of the new request has a
    ///   smaller share.
    /// - A request that lost its place, or a new request that got none, is refused with TRANSIENT
    ///   1.
    #[cfg(feature = "half-sync")]
    HalfSyncHalfAsync {
        /// Number of threads that run requests.
        threads: usize,
        /// Maximum number of requests in the queue.
        max_queued: usize,
    },
}

/// The action of a pool's thread while the servant that it runs waits for the reply to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedWait {
    /// The thread blocks until the reply arrives.
    Block,
    /// The thread runs other requests of its lane until the reply arrives.
    Serve {
        /// Maximum number of nested upcalls on one thread, in addition to its first upcall. If a
        /// servant waits at this maximum, the thread blocks.
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
    /// Maximum number of open connections. In pools with lanes, the maximum applies to each lane.
    ///
    /// When the maximum is reached, a new connection makes the pool close another one. The first
    /// choice is a connection that has never sent a complete message. The second choice is a
    /// connection that has been idle for ten seconds: its client gets CloseConnection, and connects
    /// again for its next call. The last choice is the connection that has been draining longest
    /// ([`Event::DrainingConnectionEvicted`](crate::Event::DrainingConnectionEvicted)). A
    /// connection with running or waiting requests is never chosen. If no connection can be chosen,
    /// the new connection is refused. Default: 20,000.
    pub max_connections: usize,
    /// Maximum memory in bytes that all connections of a lane use together for incomplete messages
    /// and for replies that the peers have not read. A reply whose memory the servant gave to the
    /// ORB counts in full until all of it is sent. While the maximum is exceeded, the pool closes
    /// the connection that uses the most memory. With the experimental feature
    /// `reply-memory-waits`, requests for operations with large replies wait while unread replies
    /// use more than half of the maximum, and connections whose peers have read nothing for a tenth
    /// of [`write_timeout`](field@Self::write_timeout) are closed first.
    ///
    /// Running requests of a lane have a second budget of this size. Each request above 64 KiB
    /// counts, and so do the values decoded from arguments beyond the first 64 KiB. The requests of
    /// one connection may use half of the second budget. A request that finds no room there may use
    /// a reserve of this size, one request at a time. A request that does not fit into the reserve
    /// is refused with IMP_LIMIT ([`Event::RequestRefused`](crate::Event::RequestRefused)).
    /// Default: 256 MiB.
    pub max_buffered_bytes: usize,
    /// Maximum total size in bytes of the requests in the queue of a half-sync pool. In pools with
    /// lanes, the maximum applies to the requests that arrived at other lanes and wait for a thread
    /// of one lane. A request for which there is no room is refused with TRANSIENT 1. If another
    /// connection has a larger share of the queue of a half-sync pool, the pool refuses requests of
    /// that connection instead. An empty queue accepts a request of any size. Default: 64 MiB.
    pub max_queued_bytes: usize,
    /// Time in which an incomplete message must grow by 1,024 bytes. If it grows by less, the pool
    /// closes its connection. Messages that arrive between the fragments of this message do not
    /// count. The time begins again if the pool itself has not read bytes that have arrived.
    /// Default: 30 s.
    pub read_stall_timeout: Duration,
    /// Maximum time from the accepting of a connection to the first byte of its first message.
    /// `None` means no maximum. Clients that connect in advance (`OrbBuilder::preconnect`) may send
    /// nothing for a long time, and need a long time-out or none. The pool checks this time-out
    /// once a second, or at intervals of a quarter of `OrbBuilder::idle_connection_timeout`, at
    /// least 10 ms, if this is shorter. Default: `None`.
    pub first_request_timeout: Option<Duration>,
    /// Maximum time for which a peer may read nothing while replies wait for it. After this time,
    /// the pool closes the connection. While replies wait for the peer, the pool reads nothing from
    /// the connection, and begins none of its requests. Default: 30 s.
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

/// The configuration of a thread pool of the ORB's builder: its name, threads, addresses and
/// limits.
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
    /// The pool's name, which the names of its threads and events about the pool contain. Default:
    /// `pool`.
    pub name: String,
    /// The dispatch architecture and its threads. Default: leader/followers with 4 threads.
    pub dispatch: Dispatch,
    /// Addresses at which the pool listens, in the syntax of
    /// [`OrbBuilder::listen`](crate::OrbBuilder::listen). The first pool also listens at the
    /// addresses of `OrbBuilder::listen`. Default: none.
    pub listen: Vec<String>,
    /// The action of a thread while the servant that it runs waits for the reply to a call. With
    /// `None`, the threads of reactive pools and the shared threads of thread-per-connection pools
    /// run other requests ([`NestedWait::Serve`]), and all other threads block
    /// ([`NestedWait::Block`]). A thread that serves one connection always blocks. Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// How long the pool's threads poll for the next request before they sleep. Threads of a
    /// half-sync pool never poll. Threads that serve several connections poll only with the feature
    /// `spin`, which is on by default. `None` means the policy of
    /// [`OrbBuilder::spin_policy`](crate::OrbBuilder::spin_policy). Default: `None`.
    pub spin_policy: Option<SpinPolicy>,
    /// Stack size of each thread in bytes.
    /// Default: 1 MiB.
    pub thread_stack_size: usize,
    /// Highest CORBA priority, from 0 to 32767, that a request may carry at an address of the pool.
    /// A request with a higher priority is refused with NO_PERMISSION. With `None` or a negative
    /// number, requests of peers on this machine may carry any priority. Requests of peers on other
    /// machines may carry at most the priority that a request without a priority gets. [`i16::MAX`]
    /// permits every priority to all peers. For pools with priorities, see
    /// [`LaneConfig::max_request_priority`](crate::rt::LaneConfig::max_request_priority). Default:
    /// `None`.
    pub max_request_priority: Option<i16>,
    /// Limits on the pool's connections. Default: [`ConnectionLimits::default`].
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
            max_request_priority: None,
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
    max_request_priority: Option<i16>,
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
