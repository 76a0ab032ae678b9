//! The protocol state of one connection, without input or output. Received bytes and decisions are
//! arguments, and results tell the caller the next step.
//!
//! | type | contents |
//! |---|---|
//! | [`Framer`] | the messages in the received byte stream, with fragments assembled |
//! | [`FragmentPlan`] | the fragments in which a large message is sent |
//! | [`RequestTable`] | the requests of this side that wait for their replies |

mod fault;
mod framing;
mod plan;
mod table;

pub use fault::ProtocolFault;
pub use framing::{Framer, FramingStep};
pub use plan::{FragmentPlan, PlannedFragment};
pub use table::{ConnectionSide, ReplyMatch, RequestTable};
