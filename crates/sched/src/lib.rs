//! Priorities, and what follows from them, as pure functions: no clock, no thread, no socket.
//!
//! | module | what it holds |
//! |---|---|
//! | [`priority`] | CORBA priorities, 0 to 32767 |
//! | [`mapping`] | between CORBA priorities and those of the operating system; transforms on the way in and out |
//! | [`network`] | from CORBA priorities to the code point in IP packets |
//! | [`bands`] | priority bands of connections |
//! | [`placement`] | which policies go together, and which lane runs a request at which priority |
//! | [`selection`] | the client's side: which band and which endpoint a call takes |
//! | [`admission`] | what becomes of a request while every thread of its lane is busy |
//!
//! Invariant: every priority that leaves this crate is within 0 to 32767, whatever a peer sent.
#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_lossless
)]

pub mod admission;
pub mod bands;
pub mod mapping;
pub mod network;
pub mod placement;
pub mod priority;
pub mod selection;

pub use bands::{BandError, PriorityBand, PriorityBands};
pub use mapping::{Continuous, Direct, Linear, NativePriority, NativeRange, PriorityMapping, PriorityTransform};
pub use network::{DscpTable, NetworkPriorityMapping};
pub use placement::{Declared, PriorityModel};
pub use priority::Priority;
