//! Transports: how octets travel between two ORBs.
//!
//! A [`Stream`] is one connection, a [`Listener`] accepts them, a [`Transport`] makes both for the [`Endpoint`]s it knows.
//! The ORB sees nothing but these traits, so that a transport without a descriptor (a simulation), or
//! one whose descriptor is only a bell (shared memory), fits as well as TCP. This crate knows nothing of GIOP; octets are never interpreted here.
//!
//! Invariant: a call with [`Wait::Now`] never blocks; one with [`Wait::Until`] ends at the deadline.
#![forbid(unsafe_code)]

mod endpoint;
pub mod mock;
mod properties;
mod resolve;
mod shared_memory;
mod socket;
mod socket_file;
mod stream;
mod transport;

pub use endpoint::Endpoint;
pub use properties::Properties;
pub use shared_memory::{SharedMemory, Users};
pub use stream::{Half, Peer, Report, Stream, Wait};
pub use transport::{Listener, Tcp, Transport, Transports, Unix};
