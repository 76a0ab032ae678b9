//! Two rings of bytes in memory that two processes share: one for each direction of a connection.
//!
//! The memory is a sealed file without a name, which the client makes. The size can never change,
//! so no access to the memory raises `SIGBUS`. The server receives the descriptor, checks the seals
//! and the size, and then maps the file.
//!
//! The peer is not trusted. It can write every byte at any moment, so no references to the memory
//! are made except to atomics, and counters are validated before use (`protocol`).
//!
//! In each process, at most one thread reads and at most one writes at a time.
//!
//! | offset | content |
//! |---|---|
//! | 0 | control words of the direction to the server |
//! | 1024 | control words of the direction to the client |
//! | 2048 | words that each side publishes to the other |
//! | 4096 | bytes to the server |
//! | 4096 + capacity of the ring to the server | bytes to the client |

mod protocol;

#[cfg(all(not(loom), any(test, feature = "bench")))]
pub mod bare;
#[cfg(all(not(loom), any(test, feature = "bench")))]
pub mod bare_stream;

#[cfg(not(loom))]
mod copy;

#[cfg(not(loom))]
mod mapping;

#[cfg(not(loom))]
pub use mapped::{ParkResult, RingPair, RingReader, RingSizes, RingWriter, SharedWord, WakeMethod};

#[cfg(not(loom))]
mod mapped;
