//! Two rings of bytes in memory that two processes share: one for each direction of a connection.
//!
//! The memory is a sealed file without a name. Its size can never change, so no access to it
//! faults. The client makes the file. The server receives its descriptor, checks the seals and the
//! size, and then maps the file.
//!
//! The peer is not trusted. It can write every byte of the memory at any moment. So no reference to
//! the memory is ever made, and counters are validated before use (`protocol`). Each byte is copied
//! exactly once, in or out, and no decision depends on a byte that is still in the memory. A
//! hostile peer can harm this process no more than through a socket: it can send wrong bytes or
//! none.
//!
//! One thread reads and one writes at a time. Two threads of this process that read (or write) at
//! the same time garble the stream, as a hostile peer could. Even then memory stays safe: positions
//! are atomics, and every access to the shared bytes is atomic (`copy`).
//!
//! Each side may publish the core on which it runs, in the cache line of its counter. The writer
//! may announce that more bytes of the same message follow at once. The peer uses these words only
//! to choose how it copies and polls.
//!
//! | offset | content |
//! |---|---|
//! | 0 | control words of the direction to the server, each in cache lines of its own |
//! | 1024 | control words of the direction to the client |
//! | 4096 | bytes to the server |
//! | 4096 + size | bytes to the client |

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
pub use mapped::{RingPair, RingReader, RingSizes, RingWriter, WakeMethod};

#[cfg(not(loom))]
mod mapped;
