//! Priorities and scheduling decisions as pure functions: no clock, no thread, no socket.
//!
//! Invariant: every CORBA priority that this crate returns is within 0 to 32767.
#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_lossless
)]

pub mod allocation;
pub mod analysis;
pub mod bands;
pub mod distribution;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
pub mod generate;
pub mod lane_choice;
pub mod mapping;
pub mod network;
pub mod overload;
pub mod priority;
pub mod quantity;
pub mod random;
pub mod release;
pub mod selection;
pub mod simulation;
pub mod task;
#[cfg(feature = "task-file")]
pub mod task_file;

pub use bands::{BandError, PriorityBand, PriorityBands};
pub use lane_choice::{PriorityModel, PriorityModelPolicy};
pub use mapping::{
    ConsecutiveMapping, DirectMapping, LinearMapping, NativePriority, NativePriorityRange, PriorityMapping,
    PriorityTransform,
};
pub use network::{DscpTable, NetworkPriorityMapping};
pub use priority::Priority;
