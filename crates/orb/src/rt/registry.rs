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

#[derive(Debug)]
pub(crate) struct Threadpool {
    pub(crate) id: ThreadpoolId,
    pub(crate) lanes: Vec<Arc<Lane>>,
    /// The priorities of the lanes; empty in a pool without lanes.
    pub(crate) priorities: Box<[Priority]>,
    pub(crate) unmatched_priority: UnmatchedPriority,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
pub(crate) struct RtRegistry {
    pub(super) pools: Mutex<Vec<Arc<Threadpool>>>,
    pub(super) last_id: AtomicU32,
    /// True once the program has used real-time features. Threads of different priorities may then
    /// serve one connection. Written `AcqRel`, read `Acquire`.
    is_used: AtomicBool,
    pub(crate) policies: Mutex<RtPolicies>,
    pub(crate) socket_claims: Mutex<()>,
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

    pub(crate) fn mark_used(&self) -> bool {
        !self.is_used.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    pub(crate) fn pool(&self, id: ThreadpoolId) -> Option<Arc<Threadpool>> {
        self.pools.lock().iter().find(|pool| pool.id == id).cloned()
    }

    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.pools.lock().iter().flat_map(|pool| pool.lanes.iter().cloned()).collect()
    }

    pub(crate) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        self.pools.lock().iter().flat_map(|pool| std::mem::take(&mut *pool.threads.lock())).collect()
    }
}

#[cold]
pub(crate) fn report_reachable(orb: &OrbContext, lanes: &[Arc<Lane>]) {
    for lane in lanes {
        let ceiling = lane.ceiling().map(Priority::get);
        for endpoint in lane.endpoints().filter(|endpoint| !endpoint.is_local()) {
            let (pool, endpoint) = (lane.config.name.clone(), endpoint.clone());
            orb.events().report(&Event::LaneReachableByOtherMachines { pool, endpoint, ceiling });
        }
    }
}
