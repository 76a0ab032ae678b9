//! The protocol state of one connection, without input or output: received octets and decisions are arguments, what is to be
//! done is the result.

mod fault;
mod framing;

pub use fault::{Answer, ProtocolFault};
pub use framing::{Framer, Step};
