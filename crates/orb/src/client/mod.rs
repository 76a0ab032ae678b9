//! The client side: connections and their pools.

pub(crate) mod backoff;
pub(crate) mod checkout;
pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod hangup_monitor;
pub(crate) mod multiplexed;
pub(crate) mod oneway_batch;
pub(crate) mod pending_reply;
pub(crate) mod pool;
pub(crate) mod reply_reader;
pub(crate) mod server_pools;
pub(crate) mod try_order;
