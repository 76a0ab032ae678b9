//! The server context of an ORB: its lanes, its thread pools and the queue of its main thread.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_wire::ior::Ior;

use crate::address::LaneEndpoint;
use crate::client::context::ClientContext;
use crate::main_thread::MainQueue;
use crate::object::ObjectRef;
use crate::rt::registry::{RtRegistry, report_reachable};
use crate::server::strategy::Lane;

#[derive(Debug)]
pub(crate) struct ServerContext {
    client: Arc<ClientContext>,
    lanes: OnceLock<Vec<Arc<Lane>>>,
    main_queue: MainQueue,
    rt: RtRegistry,
    /// True if large messages used memory at the last maintenance, which swaps this flag `Relaxed`.
    memory_was_high: AtomicBool,
}

impl ServerContext {
    pub(crate) fn new(client: Arc<ClientContext>) -> Self {
        ServerContext {
            client,
            lanes: OnceLock::new(),
            main_queue: MainQueue::new(),
            rt: RtRegistry::new(),
            memory_was_high: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn client(&self) -> &Arc<ClientContext> {
        &self.client
    }

    pub(crate) fn rt(&self) -> &RtRegistry {
        &self.rt
    }

    pub(crate) fn main_queue(&self) -> &MainQueue {
        &self.main_queue
    }

    pub(crate) fn set_lanes(&self, lanes: Vec<Arc<Lane>>) {
        let _ = self.lanes.set(lanes);
    }

    pub(crate) fn lanes(&self) -> &[Arc<Lane>] {
        self.lanes.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn all_lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes().iter().cloned().chain(self.rt.lanes()).collect()
    }

    /// Records that the program uses real-time features. From the first use on, requests at the
    /// builder's endpoints can reach every lane.
    pub(crate) fn enable_rt(&self) {
        if self.rt.mark_used() {
            report_reachable(self, self.lanes());
        }
    }

    /// Returns freed memory to the kernel if large messages have used memory, but not since the
    /// last call. Does nothing in an ORB with real-time threads or locked memory.
    pub(crate) fn trim_memory(&self, lanes: &[Arc<Lane>]) {
        let used = lanes.iter().fold(self.reply_memory().was_used(), |used, lane| lane.was_used() | used);
        if !self.memory_was_high.swap(used, Ordering::Relaxed) || used {
            return;
        }
        // Trimming takes the allocator's locks, for which real-time threads must not wait.
        let is_real_time = self.config().locks_memory || lanes.iter().any(|lane| lane.is_real_time());
        if !is_real_time {
            corelane_sys::memory::trim_heap();
        }
    }

    pub(crate) fn make_rt_reference(
        &self,
        type_id: &str,
        lanes: &[LaneEndpoint],
        policies: &[(u32, Vec<u8>)],
        key: &[u8],
    ) -> ObjectRef {
        let (version, native) = (self.config().version, self.config().native_char_set);
        let ior = crate::address::make_rt_ior(type_id, lanes, policies, version, native, key).unwrap_or(Ior::NIL);
        ObjectRef::local(Arc::clone(&self.client), ior, !lanes.is_empty())
    }

    pub(crate) fn make_reference(&self, type_id: &str, key: &[u8]) -> ObjectRef {
        let endpoints = self.published_endpoints();
        let ior =
            crate::address::make_ior(type_id, endpoints, self.config().version, self.config().native_char_set, key)
                .unwrap_or(Ior::NIL);
        ObjectRef::local(Arc::clone(&self.client), ior, !endpoints.is_empty())
    }
}

impl Deref for ServerContext {
    type Target = ClientContext;

    #[inline]
    fn deref(&self) -> &ClientContext {
        &self.client
    }
}

/// Waits until `look` returns a value or `deadline` has passed. If the calling thread is the main
/// thread of `orb`, it runs queued deactivations during the wait.
pub(crate) fn wait_for<T>(
    orb: &Weak<ServerContext>,
    gate: &EventCount,
    deadline: Option<Monotonic>,
    look: impl FnMut() -> Option<T>,
) -> Option<T> {
    match orb.upgrade() {
        Some(orb) if orb.main_queue().is_main_thread() => orb.main_queue().wait(deadline, look),
        _ => gate.wait(deadline, look),
    }
}

pub(crate) fn notify(orb: &Weak<ServerContext>, gate: &EventCount) {
    gate.notify_all();
    if let Some(orb) = orb.upgrade() {
        orb.main_queue().notify_waiter();
    }
}
