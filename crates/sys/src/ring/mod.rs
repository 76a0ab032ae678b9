//! Two rings of octets in memory that two processes share: one for each direction of a connection.
//!
//! The memory is a sealed file without a name: its size can never change, so touching it never faults. The client makes it, the
//! server is given its descriptor and maps it after it has seen that the seals are there and the size is right.
//!
//! The peer is not trusted. It can write every octet of the memory at any moment; so no reference to it is ever made, counters are
//! validated before use (`protocol`), octets are copied exactly once, in or out, and nothing is decided by an octet that is still
//! in there. What a hostile peer can do is what it could do with a socket: send nonsense, or nothing.
//!
//! One thread reads and one writes at a time. Two that read (or write) at once garble the stream, as a hostile peer could; nothing
//! worse comes of it.
//!
//! | offset | what |
//! |---|---|
//! | 0 | words of the direction to the server, each in lines of its own |
//! | 1024 | words of the direction to the client |
//! | 4096 | octets to the server |
//! | 4096 + size | octets to the client |

mod protocol;

#[cfg(not(loom))]
pub mod bare;

#[cfg(not(loom))]
mod mapping;

#[cfg(not(loom))]
pub use mapped::{Ask, Reader, Rings, Sizes, Writer};

#[cfg(not(loom))]
mod mapped;
