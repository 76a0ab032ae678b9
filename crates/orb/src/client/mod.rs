//! The client's side: connections, and the pools that they are taken from.

pub(crate) mod bands;
pub(crate) mod connection;
pub(crate) mod held;
pub(crate) mod multiplexed;
pub(crate) mod pool;
pub(crate) mod replies;
pub(crate) mod watch;
