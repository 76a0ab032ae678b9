//! Gateways, through which events cross from one channel to another.
//!
//! A gateway subscribes at its source the events that consumers at its destination want, and those
//! that channels behind the destination want (`demand`). Each event that crosses carries its
//! [path](passage), so that each channel of a ring or a mesh delivers it once (`seen`). While a
//! channel cannot be reached, events wait in a bounded buffer (`buffer`), and the gateway tries
//! again (`reconnect`). `core` has the decisions. None of these modules reads a clock or uses a
//! socket.
//!
//! `ends` makes the calls to the two channels, `live` has the threads, and `outlet` is the gateway
//! as its source sees it.

mod buffer;
mod core;
pub(in crate::events) mod demand;
mod ends;
mod live;
pub(in crate::events) mod outlet;
pub(in crate::events) mod passage;
mod reconnect;
pub(in crate::events) mod seen;
#[cfg(test)]
mod simulation;

pub use self::core::GatewayCounts;
pub(in crate::events) use self::core::{MAX_BATCH, MAX_BATCH_BYTES};
pub(in crate::events) use self::ends::separate;
pub(in crate::events) use self::live::OwnSource;
pub use self::live::{Gateway, GatewayBuilder, GatewayStatus};
pub(in crate::events) use self::reconnect::BackOff;
pub use self::reconnect::ReconnectPolicy;
