//! Real-time CORBA 1.2: thread pools with lanes, priorities of threads and requests, and their
//! policies.
//!
//! # Invariants
//! * In a pool with lanes, the priority of a request does not change the priority of its thread.
//!   Only the rules for expired deadlines and for used-up budgets may lower the thread. In a pool
//!   without lanes, the thread has the request's priority during the upcall.

pub(crate) mod band;
pub(crate) mod client_policies;
pub(crate) mod config;
#[cfg(feature = "core-pool")]
pub(crate) mod core_config;
#[cfg(feature = "core-pool")]
mod core_pool;
mod current;
mod mutex;
mod object_priorities;
mod overrun;
mod periodic;
pub(crate) mod poa;
pub(crate) mod policies;
pub(crate) mod pool;
pub(crate) mod protocol;
pub(crate) mod registry;
#[cfg(feature = "core-pool")]
mod task_endpoint;
mod thread_priority;

use std::sync::{Arc, Weak};

pub use client_policies::RtClientPolicies;
pub use config::{
    ExpiredRequestAction, LaneConfig, LanesConfig, OverrunAction, RtConfig, SchedulingClass, ThreadpoolConfig,
    UnmatchedPriority,
};
#[cfg(feature = "core-pool")]
pub use core_config::{
    BestEffortShare, BestEffortUse, CoreJob, CorePoolConfig, CorePoolCounts, CorePoolMode, JobBatch, JobOverrunAction,
    RefusedTask, TaskBinder, TaskBinding, TaskMeasurement, TaskRules,
};
#[cfg(feature = "core-pool")]
pub use core_pool::CorePool;
pub use corelane_sched::distribution::TimeDistribution;
pub use corelane_sched::overload::BufferBounds;
pub use corelane_sched::release::OverrunRule;
pub use corelane_sched::{
    ConsecutiveMapping, DirectMapping, DscpTable, LinearMapping, NativePriority, NativePriorityRange,
    NetworkPriorityMapping, Priority, PriorityBand, PriorityMapping, PriorityModel, PriorityTransform,
};
pub use corelane_sys::guarantees::{Guarantee, GuaranteeReport, GuaranteeStatus};
pub use corelane_sys::thread::{CpuSet, Reservation, Scheduling, ThreadInfo, Tid};
pub use current::RtCurrent;
pub use mutex::{RtMutex, RtMutexGuard};
pub(crate) use overrun::{OverrunMonitor, start_cpu_monitor};
pub use periodic::{PeriodicJob, PeriodicOverrun, PeriodicTask, PeriodicTaskBuilder, PeriodicTaskStatistics};
pub use policies::RtPolicies;
pub use pool::InvalidThreadpool;
pub use protocol::{Protocol, TcpProperties, UnixProperties};
#[cfg(feature = "core-pool")]
pub use task_endpoint::TaskEndpoint;

#[cfg(feature = "core-pool")]
pub use crate::job_budget::is_job_over_budget;
pub(crate) use thread_priority::{CallerPriority, UpcallPriority, caller_priority};

use corelane_wire::exception::minor;

use crate::adapter::ObjectAdapter;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
pub use crate::invocation::with_client_policies;
pub use crate::thread_context::{ServedBy, ThreadpoolId, served_by};

/// Checks which real-time guarantees this machine gives to this process, and returns a report on
/// each guarantee. [`OrbBuilder::require_guarantee`](crate::OrbBuilder::require_guarantee) makes
/// the building of an ORB fail if the machine does not give a guarantee.
pub fn check_guarantees() -> Vec<GuaranteeReport> {
    corelane_sys::guarantees::report()
}

/// Returns the threads of this process, with the scheduling that the kernel reports for each.
/// docs/real-time.md explains the names of an ORB's threads, for example `flight/l0` and
/// `orb/watch`.
///
/// # Errors
/// If the files in `/proc` cannot be read.
pub fn threads() -> std::io::Result<Vec<ThreadInfo>> {
    corelane_sys::thread::list_threads()
}

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/real-time.md")]
mod user_page {}

/// `RTCORBA::RTORB`, which creates thread pools and mutexes. An `RtOrb` does not keep its ORB
/// alive.
///
/// # Examples
/// ```
/// use corelane::Orb;
/// use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass};
/// use corelane::poa::PoaPolicies;
/// // In the ordinary class, so that it needs no privilege.
/// let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
/// let orb = Orb::builder().real_time(rt).listen("tcp:127.0.0.1:0").build()?;
/// let lanes = [1000, 30000].map(|priority| LaneConfig::default().priority(priority));
/// let pool = orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes))?;
/// let policies = RtPolicies {
///     priority_model: Some((PriorityModel::ClientPropagated, 1000)),
///     threadpool: Some(pool),
///     ..RtPolicies::default()
/// };
/// let poa = orb.root_poa().create_rt_poa("sensors", None, PoaPolicies::default(), &policies)?;
/// assert_eq!(poa.rt_policies().unwrap().threadpool, Some(pool));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RtOrb {
    adapter: Weak<ObjectAdapter>,
}

impl RtOrb {
    pub(crate) fn new(adapter: &Arc<ObjectAdapter>) -> Self {
        RtOrb { adapter: Arc::downgrade(adapter) }
    }

    fn adapter(&self) -> Result<Arc<ObjectAdapter>, SystemException> {
        let adapter = self.adapter.upgrade().ok_or_else(|| {
            SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No)
        })?;
        adapter.check_usable()?;
        Ok(adapter)
    }

    /// Creates a thread pool without lanes. Its threads wait for requests at the default priority.
    /// For an upcall, a thread takes the priority of the request.
    ///
    /// # Errors
    /// BAD_PARAM for an invalid configuration: no static thread, too many threads, or an invalid
    /// priority, ceiling, core or address. DATA_CONVERSION 2 if the priority cannot be mapped.
    /// NO_RESOURCES if the kernel refuses threads, descriptors or an address. BAD_INV_ORDER 4 after
    /// shutdown.
    pub fn create_threadpool(&self, config: &ThreadpoolConfig) -> Result<ThreadpoolId, SystemException> {
        pool::create(&self.adapter()?, config)
    }

    /// Creates a thread pool with lanes. Each lane has listeners, connections and threads. Its
    /// threads run all requests at the priority of the lane.
    ///
    /// # Errors
    /// The errors of [`create_threadpool`](Self::create_threadpool) for each lane. BAD_PARAM if
    /// there is no lane, if two lanes have one priority, or for an invalid reservation.
    pub fn create_threadpool_with_lanes(&self, config: &LanesConfig) -> Result<ThreadpoolId, SystemException> {
        pool::create_with_lanes(&self.adapter()?, config)
    }

    /// Creates a core pool, whose threads serve the connections of tasks on the tasks' cores. The
    /// pool has no tasks at first ([`CorePool::set_tasks`]). `binder` tells which object keys name
    /// a task.
    ///
    /// # Errors
    /// BAD_PARAM for an invalid address or [share for best
    /// effort](field@CorePoolConfig::best_effort_share), for a number of threads or endpoints that
    /// is out of range, and for the number of a core that the kernel cannot have; NO_RESOURCES if
    /// the kernel refuses threads, descriptors or the address; BAD_INV_ORDER 4 after shutdown. If
    /// the kernel refuses cores or priorities, the pool works without them
    /// ([`Event::TaskTimingNotGuaranteed`](crate::Event::TaskTimingNotGuaranteed)).
    #[cfg(feature = "core-pool")]
    pub fn create_core_pool(
        &self,
        config: &CorePoolConfig,
        binder: Arc<dyn TaskBinder>,
    ) -> Result<CorePool, SystemException> {
        core_pool::create(&self.adapter()?, config, binder)
    }

    /// Destroys a thread pool: refuses new requests, lets running requests finish, closes the
    /// connections gracefully within the ORB's drain time-out, and joins the threads.
    ///
    /// # Errors
    /// [`InvalidThreadpool::Unknown`] if there is no pool with this id. BAD_INV_ORDER while a POA
    /// uses the pool. BAD_INV_ORDER 3 if a thread of the pool makes the call. BAD_INV_ORDER 4 after
    /// shutdown.
    pub fn destroy_threadpool(&self, pool: ThreadpoolId) -> Result<(), InvalidThreadpool> {
        pool::destroy(&self.adapter()?, pool)
    }

    /// Sets the ORB's default policies. A POA that is created later inherits the priority model,
    /// the thread pool and the server protocols from them, unless the policies of the POA set them.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn set_policies(&self, policies: RtPolicies) -> Result<(), SystemException> {
        *self.adapter()?.server().rt().policies.lock() = policies;
        Ok(())
    }

    /// Returns the `RTCORBA::Current`, which reads and sets the priority of the calling thread.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn current(&self) -> Result<RtCurrent, SystemException> {
        Ok(RtCurrent::new(self.adapter()?.client()))
    }

    /// Creates a mutex with priority inheritance: the thread that holds the mutex runs at least at
    /// the highest priority of the threads that wait for it.
    #[must_use]
    pub fn create_mutex(&self) -> RtMutex {
        RtMutex::new()
    }

    /// Returns the mutex with the name `name`, and creates it if there is none. The flag is true if
    /// this call created the mutex. Two ORBs share no names.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn create_named_mutex(&self, name: &str) -> Result<(RtMutex, bool), SystemException> {
        let adapter = self.adapter()?;
        let mut mutexes = adapter.server().rt().mutexes.lock();
        let made = !mutexes.contains_key(name);
        Ok((mutexes.entry(name.to_owned()).or_default().clone(), made))
    }

    /// Returns the mutex with the name `name`, or `None` if there is none (MutexNotFound).
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn open_named_mutex(&self, name: &str) -> Result<Option<RtMutex>, SystemException> {
        Ok(self.adapter()?.server().rt().mutexes.lock().get(name).cloned())
    }

    /// Removes the name of a mutex from the ORB. Threads can continue to use the mutex through its
    /// clones.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn destroy_mutex(&self, mutex: &RtMutex) -> Result<(), SystemException> {
        self.adapter()?.server().rt().mutexes.lock().retain(|_, named| named != mutex);
        Ok(())
    }
}
