//! The configuration of an ORB, which the builder passes to the ORB's layers.

use std::time::Duration;

use corelane_net::{Endpoint, SpinPolicy};
use corelane_wire::{CharSet, Limits, Version};

use crate::policy::{CallPolicies, ConnectionPoolExhaustedAction};
use crate::rt::RtConfig;
use crate::rt::client_policies::ClientPolicies;

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) limits: Limits,
    pub(crate) call_policies: CallPolicies,
    pub(crate) max_connections_per_server: usize,
    pub(crate) oneway_batch: OnewayBatch,
    /// How long threads poll before they sleep; with `None` each transport decides.
    pub(crate) spin_policy: Option<SpinPolicy>,
    pub(crate) on_connection_pool_exhausted: ConnectionPoolExhaustedAction,
    pub(crate) idle_connection_timeout: Duration,
    pub(crate) drain_timeout: Duration,
    /// The addresses that references carry; if the list is empty, the addresses at which the ORB
    /// listens.
    pub(crate) publish: Vec<Endpoint>,
    pub(crate) version: Version,
    pub(crate) native_char_set: CharSet,
    pub(crate) fragment_size: Option<usize>,
    pub(crate) max_reply_memory: usize,
    /// Maximum memory in bytes of the octets that servants keep beyond their requests
    /// (`keep_octets`).
    #[cfg(feature = "keep-octets")]
    pub(crate) max_kept_memory: usize,
    pub(crate) rt: RtConfig,
    pub(crate) locks_memory: bool,
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
    /// Maximum time for which a message is buffered. It can be exceeded, because the sending thread
    /// runs in the ordinary scheduling class. Default: 1 ms.
    pub max_delay: Duration,
}

impl Default for OnewayBatch {
    fn default() -> Self {
        OnewayBatch { max_bytes: 16 * 1024, max_delay: Duration::from_millis(1) }
    }
}
