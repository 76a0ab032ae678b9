//! The configuration of an ORB, which the builder passes to the ORB's layers.

use std::time::Duration;

use corelane_net::{Endpoint, SpinPolicy};
use corelane_wire::{CharSet, Limits, Version};

use crate::policy::{CallPolicies, ConnectionPoolExhaustedAction};
use crate::rt::RtConfig;
use crate::rt::client_policies::ClientPolicies;

/// The configuration of an ORB; it never changes after the ORB is made.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) limits: Limits,
    pub(crate) call_policies: CallPolicies,
    /// Maximum number of connections to one server at one priority.
    pub(crate) max_connections_per_server: usize,
    pub(crate) oneway_batch: OnewayBatch,
    /// Spin policy of threads that wait for a reply, and of pools that set no policy. With `None`
    /// the transports decide.
    pub(crate) spin_policy: Option<SpinPolicy>,
    /// The action of a call if its server already has the maximum number of connections and all are
    /// in use.
    pub(crate) on_connection_pool_exhausted: ConnectionPoolExhaustedAction,
    /// Time for which a connection to a server may be idle before it is closed.
    pub(crate) idle_connection_timeout: Duration,
    /// Time for which a graceful close waits for a peer that does not answer.
    pub(crate) drain_timeout: Duration,
    /// Addresses that references carry. If the list is empty, references carry the addresses at
    /// which the ORB listens.
    pub(crate) publish: Vec<Endpoint>,
    /// The highest GIOP version that the ORB uses and publishes.
    pub(crate) version: Version,
    /// The native code set for `char` and `string` that references publish.
    pub(crate) native_char_set: CharSet,
    pub(crate) fragment_size: Option<usize>,
    /// Maximum number of bytes of memory that all replies may use together.
    pub(crate) max_reply_memory: usize,
    /// Maximum number of bytes of memory that servants may keep of requests.
    #[cfg(feature = "keep-octets")]
    pub(crate) max_kept_memory: usize,
    pub(crate) rt: RtConfig,
    /// True if the process's memory is locked. Threads then touch their stacks before they begin.
    pub(crate) locks_memory: bool,
    /// Client policies of references for which no client policies are set.
    pub(crate) client_policies: ClientPolicies,
}

/// The limits on buffered oneways of a connection ([`SyncScope::None`](crate::SyncScope::None)).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelane::{Orb, OnewayBatch};
/// let orb = Orb::builder().oneway_batch(OnewayBatch { max_bytes: 4 * 1024, max_delay: Duration::from_micros(200) }).build()?;
/// # Ok::<(), corelane::OrbError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnewayBatch {
    /// Maximum number of bytes of complete messages that a connection buffers; 0 disables
    /// buffering. A message that does not fit is sent together with the buffered messages. Default:
    /// 16 KiB.
    pub max_bytes: usize,
    /// Maximum time for which a message is buffered. After this time a thread of the ORB sends the
    /// message. The thread runs in the ordinary scheduling class, so it may have to wait for a
    /// core. Default: 1 ms.
    pub max_delay: Duration,
}

impl Default for OnewayBatch {
    fn default() -> Self {
        OnewayBatch { max_bytes: 16 * 1024, max_delay: Duration::from_millis(1) }
    }
}
