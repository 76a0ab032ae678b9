//! How a thread pool serves its connections.

use std::time::Duration;

use corelane_sched::Priority;

/// Which threads read, run and answer requests (chosen per pool).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// One thread for all connections: smallest. A call made from a servant goes on serving while it waits.
    Reactive,
    /// A thread for each connection, at most `most`; requests of one connection are served one after the other. A connection
    /// that is seen to carry several requests at once moves to the pool's shared threads (four), for good; so does one whose servant makes a remote
    /// call, because what that waits for may come on the same connection. For clients that share connections, and servers that call
    /// others, leader/followers fit better.
    ThreadPerConnection {
        /// Connections that get a thread of their own; further ones are served by the shared threads.
        most: usize,
    },
    /// Threads that take turns at waiting: no hand-off, requests of one connection run side by side. While one connection sends more
    /// than 200 short requests a millisecond, one thread runs them and the others look every millisecond whether it keeps up;
    /// not in pools with priorities.
    LeaderFollowers {
        /// Number of threads.
        threads: usize,
    },
    /// One thread reads and fills a bounded queue, the others run requests; past the bound, or that of
    /// [`PoolConfig::queue_octets`], requests are refused with TRANSIENT 1. A connection that has an eighth of either (of
    /// the places at least one) is not read until one of its requests runs, so that no single peer can fill the queue.
    HalfSyncHalfAsync {
        /// Threads that run requests.
        threads: usize,
        /// Requests that may wait.
        queue: usize,
    },
}

/// What a thread of the pool does while a call made by one of its servants waits for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedWait {
    /// It waits.
    InPlace,
    /// It serves other requests of its lane, at most `depth` of them inside one another.
    Serving {
        /// Upcalls inside one another on one thread.
        depth: u8,
    },
}

/// A thread pool: its name, its threads and its bounds.
///
/// # Examples
/// ```
/// use corelane::{Dispatch, PoolConfig};
/// let pool = PoolConfig { dispatch: Dispatch::LeaderFollowers { threads: 2 }, ..PoolConfig::default() };
/// assert_eq!(pool.connections, 20_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Shown in thread names and events.
    pub name: String,
    /// Which threads serve.
    pub dispatch: Dispatch,
    /// What a waiting thread does; `None`: serving for reactive pools and for the shared threads of a pool with a thread per
    /// connection, in place for all others. A connection's own thread always waits in place.
    pub nested_wait: Option<NestedWait>,
    /// Stack of each thread in octets.
    pub stack: usize,
    /// The highest priority that a request coming in at an endpoint of the pool may ask for, whatever pool runs it; `None`: any.
    /// NO_PERMISSION beyond it. In pools with priorities [`LaneConfig::ceiling`](crate::rt::LaneConfig::ceiling) and its like say it instead.
    pub ceiling: Option<Priority>,
    /// Connections held at most. A further one takes the place of the one whose peer has been silent longest: one that never sent a whole
    /// message first, else one that has been idle for ten seconds; it is told by CloseConnection, upon which a client connects anew when
    /// it has something to say. Those that are on their way to the end count too, until their peers have taken the last replies: if
    /// none is silent, the one whose end has taken longest is closed ([`Event::EndCut`](crate::Event::EndCut)), and if there is none of
    /// either, the further one at once. A connection whose requests wait, as for a POA manager that holds them, makes room for nobody. The same is done where the process has no descriptors left. Stops a peer that opens
    /// connections without end, and one that closes its sending side on many and never reads.
    pub connections: usize,
    /// Octets of requests that may wait in the queue of a half-synchronous pool, and of those that came in at another lane and wait for
    /// a thread of this one; past it they are refused with TRANSIENT 1, as past the bound on their number. A request that finds nothing waiting is taken whatever its size.
    pub queue_octets: usize,
    /// Octets of messages that are not whole, and of replies that are not read, that all connections of a lane may hold together; a large
    /// reply that a servant gave away counts whole until all of it has gone. Past it the connection that holds most is closed, then the
    /// next one. Stops peers that stay below what one connection may hold, on many of them.
    pub held_octets: usize,
    /// How long an incomplete message may go without 1,024 further octets before its connection is closed. What comes between its
    /// fragments does not count.
    pub message_timeout: Duration,
    /// How long a connection may take until its first whole message; `None`: for ever, as far as [`connections`](Self::connections) and
    /// the process's descriptors go. Clients that connect before they need it (`OrbBuilder::establish`) are silent at first.
    /// Those that have sent something are never closed for their silence alone. It is looked at once a second, or four times
    /// in `OrbBuilder::idle_connection_time` where that is shorter.
    pub first_request_timeout: Option<Duration>,
    /// How long replies may wait for a peer that takes nothing of them before its connection is closed. While they wait nothing is read
    /// from it, and none of its requests that wait for a thread begins to run.
    pub output_timeout: Duration,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig {
            name: "pool".into(),
            dispatch: Dispatch::LeaderFollowers { threads: 4 },
            nested_wait: None,
            stack: 1 << 20,
            ceiling: None,
            connections: 20_000,
            queue_octets: 64 << 20,
            held_octets: 256 << 20,
            message_timeout: Duration::from_secs(30),
            first_request_timeout: None,
            output_timeout: Duration::from_secs(30),
        }
    }
}

/// Upcalls inside one another on one thread, beside the first: what `Current` holds.
const DEEPEST: u8 = 31;

impl PoolConfig {
    pub(crate) fn nested_wait(&self) -> NestedWait {
        self.nested_wait.unwrap_or(match self.dispatch {
            // They are few and can be reached by any number of callers, so waiting in place would soon leave none.
            Dispatch::Reactive | Dispatch::ThreadPerConnection { .. } => NestedWait::Serving { depth: DEEPEST },
            Dispatch::LeaderFollowers { .. } | Dispatch::HalfSyncHalfAsync { .. } => NestedWait::InPlace,
        })
    }
}
