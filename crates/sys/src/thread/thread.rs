//! Threads: created in one place, with name, stack, cores and scheduling class set before they run.
//!
//! If the kernel refuses the class or the affinity, the thread never runs its body:
//! [`ThreadBuilder::spawn`] reports the refusal, and the caller decides whether to go on without. Nothing
//! here falls back silently.

pub use super::builder::{JoinHandle, ThreadBuilder, at_highest_priority};
pub use super::scheduling::{
    CpuSet, Reservation, Scheduling, ThreadInfo, Tid, affinity, current_core, current_tid, list, native_priority,
    online_cores, scheduling, set_affinity, set_scheduling, set_timer_slack,
};
