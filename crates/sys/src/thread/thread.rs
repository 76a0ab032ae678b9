//! Creation and scheduling of threads. Name, stack, cores and scheduling class of a thread are set
//! before the thread runs.
//!
//! If the kernel refuses the class or the affinity, the thread does not run its body, and
//! [`ThreadBuilder::spawn`] returns the refusal. The caller decides whether to start the thread
//! without them. [`ThreadBuilder::preferred_affinity`] is the only property whose refusal is not an
//! error.

pub use super::builder::{JoinHandle, ThreadBuilder, start_at_highest_priority};
pub use super::scheduling::{
    CpuSet, Reservation, Scheduling, ThreadInfo, Tid, affinity, current_core, current_tid, find_kernel_thread,
    list_threads, native_priority, online_cores, scheduling, set_affinity, set_scheduling, set_timer_slack,
};
