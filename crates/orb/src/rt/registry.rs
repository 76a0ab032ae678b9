//! The registry of an ORB's thread pools, default real-time policies and named mutexes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use corelane_sched::Priority;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::JoinHandle;

use super::config::UnmatchedPriority;
use super::mutex::RtMutex;
use super::policies::RtPolicies;
use crate::event::Event;
use crate::orb_context::OrbContext;
use crate::server::strategy::Lane;
use crate::thread_context::{self, ThreadpoolId};

/// A Real-time CORBA thread pool.
#[derive(Debug)]
pub(crate) struct Threadpool {
    pub(crate) id: ThreadpoolId,
    pub(crate) lanes: Vec<Arc<Lane>>,
    /// Priorities of the lanes, in the order of `lanes`. Empty in a pool without lanes, whose
    /// threads are in one entry of `lanes`.
    pub(crate) priorities: Box<[Priority]>,
    pub(crate) unmatched_priority: UnmatchedPriority,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The real-time state of an ORB that requests need rarely.
#[derive(Debug)]
pub(crate) struct RtRegistry {
    /// The thread pools that have not been destroyed, in the order of their creation.
    pub(super) pools: Mutex<Vec<Arc<Threadpool>>>,
    /// Number of the thread pool that was created last.
    pub(super) last_id: AtomicU32,
    /// True after the creation of the first thread pool or POA with priorities. From then on,
    /// threads of different priorities may serve one connection. Written `AcqRel`, read `Acquire`.
    is_used: AtomicBool,
    /// The default policies of POAs.
    pub(crate) policies: Mutex<RtPolicies>,
    /// Locked by a thread while it claims socket properties for a new POA.
    pub(crate) socket_claims: Mutex<()>,
    /// The named mutexes.
    pub(crate) mutexes: Mutex<HashMap<String, RtMutex>>,
}

impl RtRegistry {
    pub(crate) fn new() -> Self {
        RtRegistry {
            pools: Mutex::new("thread pools", LockScope::Orb, Vec::new()),
            last_id: AtomicU32::new(thread_context::DEFAULT_POOL),
            is_used: AtomicBool::new(false),
            policies: Mutex::new("real-time policies", LockScope::Orb, RtPolicies::default()),
            socket_claims: Mutex::new("sockets of lanes", LockScope::Orb, ()),
            mutexes: Mutex::new("named mutexes", LockScope::Orb, HashMap::new()),
        }
    }

    /// Records that a thread pool or a POA with priorities is created. Returns true at the first
    /// call.
    pub(crate) fn mark_used(&self) -> bool {
        !self.is_used.swap(true, Ordering::AcqRel)
    }

    /// Returns true if a thread pool or a POA with priorities was ever created in this ORB.
    pub(crate) fn is_in_use(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    pub(crate) fn pool(&self, id: ThreadpoolId) -> Option<Arc<Threadpool>> {
        self.pools.lock().iter().find(|pool| pool.id == id).cloned()
    }

    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.pools.lock().iter().flat_map(|pool| pool.lanes.iter().cloned()).collect()
    }

    /// Takes the threads of all pools, so that the caller can join them. Called while the ORB shuts
    /// down, when no pool can be created.
    pub(crate) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        self.pools.lock().iter().flat_map(|pool| std::mem::take(&mut *pool.threads.lock())).collect()
    }
}

/// Reports each endpoint of `lanes` that other machines can reach.
#[cold]
pub(crate) fn report_reachable(orb: &OrbContext, lanes: &[Arc<Lane>]) {
    for lane in lanes {
        let ceiling = lane.ceiling().map(Priority::get);
        for endpoint in lane.endpoints().filter(|endpoint| !endpoint.is_local()) {
            let (pool, endpoint) = (lane.config.name.clone(), endpoint.clone());
            orb.events().report(&Event::ReachableLane { pool, endpoint, ceiling });
        }
    }
}
