//! Transports: the connections over which ORBs exchange bytes.
//!
//! A [`Stream`] is one connection, a [`Listener`] accepts connections, and a [`Transport`] creates
//! streams and listeners for the [`Endpoint`]s that it supports.
//!
//! This crate knows nothing of GIOP and never interprets the bytes that it carries.
//!
//! Invariant: a call with [`WaitLimit::Now`] never blocks. A call with [`WaitLimit::Until`] does
//! not wait beyond its deadline.
#![forbid(unsafe_code)]

mod endpoint;
mod io_class;
pub mod mock;
mod properties;
mod resolver;
mod shared_memory;
mod socket;
mod socket_file;
mod spin;
mod stream;
mod transport;

/// The clock in which deadlines are passed to transports.
pub use corelane_sys::clock::Monotonic;
/// The directions that [`Stream::shutdown`] ends.
pub use corelane_sys::socket::ShutdownDirection;
pub use endpoint::{Endpoint, OtherAddress};
pub use io_class::{IoClass, IoProperties};
pub use properties::ConnectionProperties;
pub use shared_memory::{AllowedUsers, SharedMemoryTransport};
pub use spin::{SpinPolicy, SpinWait, spinning_thread_count};
pub use stream::{LentReference, MemoryLending, Peer, PolledInput, ReadinessCallback, Stream, WaitLimit};
pub use transport::{Listener, TcpTransport, Transport, Transports, UnixTransport};
