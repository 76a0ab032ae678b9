//! The protocol state of one connection, without input or output: received octets and decisions are arguments, what is to be
//! done is the result.
//!
//! | type | what it knows |
//! |---|---|
//! | [`Framer`] | messages in the stream of received octets, fragments put together |
//! | [`FragmentPlan`] | how a large message is sent in fragments |
//! | [`RequestTable`] | requests of this side that wait for their reply |
//!
//! What a server takes in, and how its connections end, is decided by machines of the same kind in the ORB, which know its bounds
//! and its clock.

mod fault;
mod framing;
mod plan;
mod table;

pub use fault::ProtocolFault;
pub use framing::{Framer, Step};
pub use plan::{FragmentPiece, FragmentPlan};
pub use table::{Answered, Initiative, RequestTable};
