//! The role of a lane in its real-time pool.

use std::time::Duration;

use corelane_sched::Priority;
use corelane_sched::overload::OverloadRules;
use corelane_sys::thread::{CpuSet, Scheduling};

/// The role of a lane in its real-time pool: its numbers, its priority and its threads.
#[derive(Clone, Debug)]
pub(crate) struct LaneRole {
    /// Number of the pool in its ORB.
    pub(crate) pool: u32,
    /// Index of the lane in its pool.
    pub(crate) index: u32,
    /// The lane's CORBA priority, or the default priority of a pool without lanes.
    pub(crate) priority: Priority,
    /// Highest priority that requests arriving at this lane may ask for; `None` if not configured.
    pub(crate) ceiling: Option<Priority>,
    /// True in a pool with lanes, whose threads never change their priority.
    pub(crate) is_lane: bool,
    /// True if no lane of the pool has a higher priority.
    pub(crate) is_highest: bool,
    /// The kernel's scheduling for the lane's threads; `None` for the ordinary class.
    pub(crate) scheduling: Option<Scheduling>,
    /// Cores to which the threads are bound; `None` for all cores.
    pub(crate) cores: Option<CpuSet>,
    /// Number of threads with which the lane starts.
    pub(crate) static_threads: u32,
    /// Rules for requests that arrive while all threads are busy.
    pub(crate) overload_rules: OverloadRules,
    /// Time for which a dynamic thread waits for work before it ends.
    pub(crate) idle_thread_timeout: Duration,
}
