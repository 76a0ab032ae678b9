//! The properties of a lane of a Real-time CORBA thread pool: its priority, scheduling, cores and
//! numbers of threads.

use std::time::Duration;

use corelane_sched::Priority;
use corelane_sched::overload::OverloadRules;
use corelane_sys::thread::{CpuSet, Scheduling};

#[derive(Clone, Debug)]
pub(crate) struct LaneRole {
    pub(crate) pool: u32,
    pub(crate) index: u32,
    /// The CORBA priority of the lane, or the default priority of a pool without lanes.
    pub(crate) priority: Priority,
    pub(crate) ceiling: Option<Priority>,
    pub(crate) is_lane: bool,
    pub(crate) is_highest: bool,
    pub(crate) scheduling: Option<Scheduling>,
    /// The cores on which the lane's threads may run; `None` means all cores.
    pub(crate) cores: Option<CpuSet>,
    pub(crate) static_threads: u32,
    pub(crate) overload_rules: OverloadRules,
    /// Number of listeners, at the end of the lane's list, whose addresses only references of
    /// single tasks have.
    pub(crate) task_listeners: usize,
    pub(crate) idle_thread_timeout: Duration,
}
