//! Creation and scheduling of threads.
//!
//! If the kernel refuses the class or the affinity, the thread does not run its body, and
//! [`ThreadBuilder::spawn`] returns the kernel's error.

pub use super::builder::{JoinHandle, ThreadBuilder, start_at_highest_priority};
pub use super::scheduling::{
    CpuSet, Reservation, Scheduling, ThreadInfo, Tid, affinity, current_core, current_tid, find_kernel_thread,
    is_ended_thread_error, list_threads, native_priority, online_cores, scheduling, set_affinity, set_scheduling,
    set_timer_slack, set_uninherited_scheduling,
};
