//! The client side: connections and their pools.
//!
//! `context` has the data that all calls of an ORB share. `pool` has the connections to one server
//! for one priority band, and `checkout` is a call's exclusive use of one of them. `connection` is a
//! connection that one call at a time uses, `multiplexed` a connection that several calls share, and
//! `pending_reply` a request on it. This module does not use the types of references, POAs
//! and lanes: it calls their layers through the trait `UpperLayers` in `context`.

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
