//! The limits of a store of event channels.

/// The limits of an [`EventStore`](super::EventStore): threads that wait for it, and what clients
/// may keep in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventStoreLimits {
    /// Maximum number of requests that wait for the store at a time in threads that serve one
    /// connection each
    /// ([`Dispatch::ThreadPerConnection`](corelane::Dispatch::ThreadPerConnection)). A further
    /// request raises TRANSIENT ([`STORE_BUSY`](corelane::minor::STORE_BUSY)), COMPLETED_NO. The
    /// maximum should be clearly lower than the number of these threads. Default: 128.
    pub max_waiting_requests: usize,
    /// Maximum number of requests of one channel that wait for the store at a time in threads that
    /// serve one connection each. The same maximum applies separately to threads that serve several
    /// connections. Default: 64.
    pub max_waiting_requests_per_channel: usize,
    /// Maximum number of requests that wait for the store at a time in threads that serve several
    /// connections: the threads of the other architectures, and the four shared threads of
    /// `ThreadPerConnection`. The maximum should be lower than half the number of these threads.
    /// Default: 2.
    pub max_waiting_requests_in_pool: usize,
    /// Maximum number of readers that wait at a time for a further event: first in threads that
    /// serve one connection each, then in other threads. A further reader gets an empty answer at
    /// once. Default: 64 and 1.
    pub max_waiting_readers: (usize, usize),
    /// Maximum number of channels. A further channel is refused with IMP_LIMIT. Channels that the
    /// store already has stay, even if they are more. Default: 64.
    pub max_channels: usize,
    /// Maximum number of named consumers of all channels together; each channel has at most 256.
    /// Default: 1,024.
    pub max_consumers: usize,
    /// Maximum size in bytes of the events of all channels together. Each event counts 32 bytes
    /// beyond its encoded form. An event beyond the maximum is refused with NO_RESOURCES, unless
    /// its channel is as large as its [`Retention`](super::Retention) permits: such a channel
    /// deletes its oldest events. Default: 8 GiB.
    pub max_bytes: u64,
}

impl Default for EventStoreLimits {
    fn default() -> Self {
        Self {
            max_waiting_requests: 128,
            max_waiting_requests_per_channel: 64,
            max_waiting_requests_in_pool: 2,
            max_waiting_readers: (64, 1),
            max_channels: 64,
            max_consumers: 1_024,
            max_bytes: 8 << 30,
        }
    }
}

impl EventStoreLimits {
    /// Sets [`max_waiting_requests`](field@Self::max_waiting_requests).
    #[must_use]
    pub fn max_waiting_requests(mut self, requests: usize) -> Self {
        self.max_waiting_requests = requests;
        self
    }

    /// Sets [`max_waiting_requests_per_channel`](field@Self::max_waiting_requests_per_channel).
    #[must_use]
    pub fn max_waiting_requests_per_channel(mut self, requests: usize) -> Self {
        self.max_waiting_requests_per_channel = requests;
        self
    }

    /// Sets [`max_waiting_requests_in_pool`](field@Self::max_waiting_requests_in_pool).
    #[must_use]
    pub fn max_waiting_requests_in_pool(mut self, requests: usize) -> Self {
        self.max_waiting_requests_in_pool = requests;
        self
    }

    /// Sets [`max_channels`](field@Self::max_channels).
    #[must_use]
    pub fn max_channels(mut self, channels: usize) -> Self {
        self.max_channels = channels;
        self
    }

    /// Sets [`max_consumers`](field@Self::max_consumers).
    #[must_use]
    pub fn max_consumers(mut self, consumers: usize) -> Self {
        self.max_consumers = consumers;
        self
    }

    /// Sets [`max_bytes`](field@Self::max_bytes).
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets [`max_waiting_readers`](field@Self::max_waiting_readers).
    #[must_use]
    pub fn max_waiting_readers(mut self, of_connections: usize, in_pools: usize) -> Self {
        self.max_waiting_readers = (of_connections, in_pools);
        self
    }
}
