//! The role of a lane in its Real-time CORBA thread pool.

use std::time::Duration;

use corelane_sched::Priority;
use corelane_sched::overload::OverloadRules;
use corelane_sys::thread::{CpuSet, Scheduling};

/// The properties of a lane in a Real-time CORBA thread pool.
#[derive(Clone, Debug)]
pub(crate) struct LaneRole {
    /// Number of the pool, which no other pool of the ORB has.
    pub(crate) pool: u32,
    /// Index of the lane in its pool.
    pub(crate) index: u32,
    /// The CORBA priority of the lane, or the default priority of a pool without lanes.
    pub(crate) priority: Priority,
    /// The highest CORBA priority that requests at the lane's addresses may ask for. `None` if none
    /// is configured.
    pub(crate) ceiling: Option<Priority>,
    /// True in a pool with lanes. The priority of a request then does not change the priority of
    /// the thread that runs it.
    pub(crate) is_lane: bool,
    /// True for the lane with the highest priority in the pool.
    pub(crate) is_highest: bool,
    /// The kernel scheduling of the lane's threads. `None` means the ordinary class.
    pub(crate) scheduling: Option<Scheduling>,
    /// The cores on which the lane's threads may run. `None` means all cores.
    pub(crate) cores: Option<CpuSet>,
    /// Number of static threads, which the lane always has.
    pub(crate) static_threads: u32,
    /// The rules for requests that arrive while all threads of the lane are busy.
    pub(crate) overload_rules: OverloadRules,
    /// Number of listeners, at the end of the lane's list, whose addresses are not the lane's own:
    /// only references of single tasks have them.
    pub(crate) task_listeners: usize,
    /// Time without work after which a dynamic thread ends.
    pub(crate) idle_thread_timeout: Duration,
}
