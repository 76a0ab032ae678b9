//! Priorities and scheduling decisions as pure functions: no clock, no thread, no socket.
//!
//! | module | content |
//! |---|---|
//! | [`priority`] | CORBA priorities, 0 to 32767 |
//! | [`mapping`] | conversion between CORBA and native priorities; transforms of inbound and outbound priorities |
//! | [`network`] | from CORBA priorities to the code point in IP packets |
//! | [`bands`] | priority bands of connections |
//! | [`lane_choice`] | valid combinations of policies, and the lane and priority of a request |
//! | [`selection`] | the client's side: the band and the endpoint of a call |
//! | [`overload`] | the decision about a request that arrives while every thread of its lane is busy |
//! | [`task`] | periodic tasks: times, utilization, criticality |
//! | [`analysis`] | schedulability on one core: the deadlines that hold, and worst-case response times |
//! | [`allocation`] | allocation of tasks to cores, and admission of further tasks |
//! | [`simulation`] | periodic tasks in virtual time: the oracle of the analysis |
//! | [`generate`] | random task sets for experiments |
//! | [`quantity`] | times and fractions as text |
//! | [`release`] | releases of a periodic task: which missed releases get a job |
//! | [`distribution`] | a distribution of times in a fixed amount of memory |
//! | [`random`] | the pseudo-random numbers of generator and simulator |
//! | `task_file` | task files in TOML, and in the JSON of rt-app (feature `task-file`) |
//!
//! Invariant: every priority that leaves this crate is within 0 to 32767, even if a peer sent
//! another number.
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
    ConsecutiveMapping, DirectMapping, LinearMapping, NativePriority, NativeRange, PriorityMapping, PriorityTransform,
};
pub use network::{DscpTable, NetworkPriorityMapping};
pub use priority::Priority;
