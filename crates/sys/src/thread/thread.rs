//! Creation and scheduling of threads. Name, stack, cores and scheduling class of a thread are set
//! before the thread runs.
//!
//! If the kernel refuses the class or the affinity, the thread never runs its body.
//! [`ThreadBuilder::spawn`] reports the refusal, and the caller decides if it continues without
//! them. No function here falls back silently.

pub use super::builder::{JoinHandle, ThreadBuilder, start_at_highest_priority};
pub use super::scheduling::{
    CpuSet, Reservation, Scheduling, ThreadInfo, Tid, affinity, current_core, current_tid, list_threads,
    native_priority, online_cores, scheduling, set_affinity, set_scheduling, set_timer_slack,
};
