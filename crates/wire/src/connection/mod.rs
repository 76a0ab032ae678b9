//! The protocol state of one connection, without input or output. Received bytes and decisions are
//! arguments, and results tell the caller the next step.

mod fault;
mod framing;
mod plan;
mod table;

pub use fault::ProtocolFault;
pub use framing::{Framer, FramingStep};
pub use plan::{FragmentPlan, PlannedFragment};
pub use table::{ConnectionSide, ReplyMatch, RequestTable};
