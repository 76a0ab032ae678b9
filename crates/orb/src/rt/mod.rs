//! Real-time CORBA: thread pools with lanes, priorities of threads and requests, and the policies that tie them together
//! (Real-time CORBA 1.2).
//!
//! * `pool` makes thread pools; each of their lanes is a `server::lane` with threads of its own at the lane's priority.
//! * `policies` are what POAs and references go by; `poa` is what a POA keeps of them and how it places requests.
//! * `station` is what a thread knows of itself: which lane it serves, at which native priority, for which request.
//! * `current` is `RTCORBA::Current`.
//!
//! # Invariants
//! * A lane's thread never changes its priority; one of a pool without lanes takes it back after the upcall.
//! * A request runs in a lane of its POA's own pool. One that arrives elsewhere is handed over once, and never by a thread that waits.

mod assigned;
pub(crate) mod client;
mod config;
mod current;
mod mutex;
mod overrun;
pub(crate) mod poa;
pub(crate) mod policies;
pub(crate) mod pool;
pub(crate) mod station;

use std::sync::{Arc, Weak};

pub use client::{RtClientPolicies, with_client_policies};
pub use config::{LaneConfig, LanesConfig, Late, Overrun, RtConfig, SchedulingClass, ThreadpoolConfig};
pub use corelane_sched::admission::Bound;
pub use corelane_sched::{
    Continuous, Direct, DscpTable, Linear, NativePriority, NativeRange, NetworkPriorityMapping, Priority, PriorityBand,
    PriorityMapping, PriorityModel, PriorityTransform,
};
pub use corelane_sys::guarantees::{Guarantee, Holds};
pub use corelane_sys::thread::{CpuSet, FoundThread, Reservation, Scheduling, Tid};
pub use current::RtCurrent;
pub(crate) use current::{Running, of_caller};
pub use mutex::{RtMutex, RtMutexGuard};
pub(crate) use overrun::{Aside, Watch};
pub use policies::{Protocol, RtPolicies, TcpProperties, UnixProperties};
pub use pool::{InvalidThreadpool, ThreadpoolId};
pub use station::{ServedBy, served_by};

use corelane_wire::exception::minor;

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb::Core;

/// Which real-time guarantees the machine gives to this process, found by looking and trying; what
/// [`OrbBuilder::require`](crate::OrbBuilder::require) goes by, and what `corelane doctor` shows.
pub fn guarantees() -> Vec<Guarantee> {
    corelane_sys::guarantees::report()
}

/// The threads of this process, as the kernel sees them: how each is scheduled, and where it may run. Those of ORBs are named by pool or
/// part, role and number (`flight/l0`, `orb/watch`; docs/real-time.md lists them).
///
/// # Errors
/// There is no `/proc`.
pub fn threads() -> std::io::Result<Vec<FoundThread>> {
    corelane_sys::thread::all()
}

/// The user's page about real time; its examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/real-time.md")]
mod user_page {}

/// `RTCORBA::RTORB`: makes thread pools and mutexes. It does not keep its ORB alive.
///
/// # Examples
/// ```
/// use corelane::Orb;
/// use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass};
/// use corelane::poa::PoaPolicies;
/// // In the ordinary class, so that it needs no privilege.
/// let rt = RtConfig { scheduling: SchedulingClass::Fair, ..RtConfig::default() };
/// let orb = Orb::builder().real_time(rt).listen("tcp:127.0.0.1:0").build()?;
/// let lanes = [1000, 30000].map(|priority| LaneConfig { priority, ..LaneConfig::default() });
/// let pool = orb.real_time().create_threadpool_with_lanes(&LanesConfig { lanes: lanes.into(), ..LanesConfig::default() })?;
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
    core: Weak<Core>,
}

impl RtOrb {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        RtOrb { core: Arc::downgrade(core) }
    }

    fn core(&self) -> Result<Arc<Core>, SystemException> {
        let core = self.core.upgrade().ok_or_else(|| {
            SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No)
        })?;
        core.check_usable()?;
        Ok(core)
    }

    /// Makes a pool without lanes: its threads wait at the default priority and take each request's for its upcall.
    ///
    /// # Errors
    /// BAD_PARAM without static threads, for a priority below 0 and for an address that is none; DATA_CONVERSION 2 for a priority
    /// that cannot be mapped; NO_RESOURCES when the system refuses threads, descriptors or the address; BAD_INV_ORDER 4 after shutdown.
    pub fn create_threadpool(&self, config: &ThreadpoolConfig) -> Result<ThreadpoolId, SystemException> {
        pool::create(&self.core()?, config)
    }

    /// Makes a pool with lanes. Each has threads at its own priority, which never changes, a listener and connections of its own.
    ///
    /// # Errors
    /// Those of [`create_threadpool`](Self::create_threadpool), for each lane; BAD_PARAM also without lanes and for two of one
    /// priority.
    pub fn create_threadpool_with_lanes(&self, config: &LanesConfig) -> Result<ThreadpoolId, SystemException> {
        pool::create_with_lanes(&self.core()?, config)
    }

    /// Ends a pool: nothing new is let in, requests that run are finished, connections closed in good order, threads joined.
    ///
    /// # Errors
    /// [`InvalidThreadpool::Unknown`]; BAD_INV_ORDER while a POA uses the pool; BAD_INV_ORDER 3 on one of its own threads, 4 after
    /// shutdown.
    pub fn destroy_threadpool(&self, pool: ThreadpoolId) -> Result<(), InvalidThreadpool> {
        pool::destroy(&self.core()?, pool)
    }

    /// The policies that POAs made from now on inherit where their own say nothing (the ORB's overrides).
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn set_policies(&self, policies: RtPolicies) -> Result<(), SystemException> {
        *self.core()?.rt().policies.lock() = policies;
        Ok(())
    }

    /// `RTCORBA::Current`: the priority of the calling thread.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn current(&self) -> Result<RtCurrent, SystemException> {
        Ok(RtCurrent::new(&self.core()?))
    }

    /// A mutex whose holder runs at the priority of whoever waits for it.
    #[must_use]
    pub fn create_mutex(&self) -> RtMutex {
        RtMutex::new()
    }

    /// The mutex of this name, made if there is none; true if it was. Names are those of one ORB.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn create_named_mutex(&self, name: &str) -> Result<(RtMutex, bool), SystemException> {
        let core = self.core()?;
        let mut mutexes = core.rt().mutexes.lock();
        let made = !mutexes.contains_key(name);
        Ok((mutexes.entry(name.to_owned()).or_default().clone(), made))
    }

    /// The mutex of this name; `None` (MutexNotFound) if there is none.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn open_named_mutex(&self, name: &str) -> Result<Option<RtMutex>, SystemException> {
        Ok(self.core()?.rt().mutexes.lock().get(name).cloned())
    }

    /// Forgets a mutex's name; those who have it keep it.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn destroy_mutex(&self, mutex: &RtMutex) -> Result<(), SystemException> {
        self.core()?.rt().mutexes.lock().retain(|_, named| named != mutex);
        Ok(())
    }
}
