//! The protocol state of one connection, without input or output: received octets and decisions are arguments, what is to be
//! done is the result.
//!
//! | type | what it knows |
//! |---|---|
//! | [`Framer`] | messages in the stream of received octets, fragments put together |
//! | [`FragmentPlan`] | how a large message is sent in fragments |
//! | [`RequestTable`] | requests of this side that wait for their reply |
//! | [`ServedRequests`] | requests of the peer that are being served |
//! | [`Lifecycle`] | which messages may come and go, and how the connection ends |

mod fault;
mod framing;
mod lifecycle;
mod plan;
mod table;

pub use fault::{Answer, ProtocolFault};
pub use framing::{Framer, Step};
pub use lifecycle::{CloseAction, Fate, Lifecycle, Received, Role};
pub use plan::{FragmentPiece, FragmentPlan};
pub use table::{Initiative, RequestTable, ServedRequests};
