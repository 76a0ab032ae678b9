//! The state that references, POAs and threads of one ORB share.

use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::{Endpoint, Peer, Transports};
use corelane_sys::clock::Monotonic;
use corelane_sys::erased::ErasedArc;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::thread::{JoinHandle, Scheduling, ThreadBuilder};
use corelane_wire::exception::minor;
use corelane_wire::ior::Ior;

use super::error::OrbError;
use crate::address::LaneEndpoint;
use crate::client::context::{ClientContext, UpperLayers};
use crate::config::Config;
use crate::current::UpcallScope;
use crate::event::Events;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::main_thread::MainQueue;
use crate::object::ObjectRef;
use crate::orb_context::OrbContext;
use crate::poa::{Poa, PoaTable};
use crate::rt::pool::RtRegistry;
use crate::server::strategy::Lane;

/// The time for which a shutdown waits for running servants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownWait {
    /// Returns at once; a later shutdown waits.
    DoNotWait,
    /// Waits for the closing time. A thread that is still in a servant ends when the servant
    /// returns.
    ClosingTimeout,
    /// Waits until the last servant returns.
    Unbounded,
}

/// The internals of an ORB.
#[derive(Debug)]
pub(crate) struct Core {
    context: Arc<ClientContext>,
    poa_table: Arc<PoaTable>,
    lanes: OnceLock<Vec<Arc<Lane>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    initial_references: Mutex<HashMap<String, ObjectRef>>,
    main_queue: MainQueue,
    rt: RtRegistry,
    #[cfg(feature = "valuetype")]
    value_factories: Arc<crate::value::ValueFactories>,
    /// True if much memory was in use at the last maintenance, which swaps it `Relaxed`.
    memory_was_high: AtomicBool,
}

impl Core {
    pub(crate) fn new(config: Config, transports: Transports, events: Events, stamp: u64) -> io::Result<Arc<Self>> {
        let orb = OrbContext::new(config, transports, events, stamp);
        #[cfg_attr(not(all(feature = "any", feature = "valuetype")), expect(unused_mut))]
        let mut context = ClientContext::new(orb)?;
        #[cfg(all(feature = "any", feature = "valuetype"))]
        context.set_value_functions(crate::value::FUNCTIONS);
        let core = Arc::new(Core {
            context: Arc::new(context),
            poa_table: Arc::new(PoaTable::new(stamp)),
            lanes: OnceLock::new(),
            threads: Mutex::new("ORB threads", Scope::Orb, Vec::new()),
            initial_references: Mutex::new("initial references", Scope::Orb, HashMap::new()),
            main_queue: MainQueue::new(),
            rt: RtRegistry::new(),
            #[cfg(feature = "valuetype")]
            value_factories: Arc::default(),
            memory_was_high: AtomicBool::new(false),
        });
        let poa_table: Arc<PoaTable> = Arc::clone(&core.poa_table);
        core.context.set_adapter(ErasedArc::new(poa_table));
        #[cfg(feature = "valuetype")]
        core.context.set_value_factories(ErasedArc::new(Arc::clone(&core.value_factories)));
        core.context.set_upper_layers(Box::new(CoreHandle(Arc::downgrade(&core))));
        Ok(core)
    }

    /// Returns the context of calls, which references keep.
    #[inline]
    pub(crate) fn client(&self) -> &Arc<ClientContext> {
        &self.context
    }

    pub(crate) fn poa_table(&self) -> &PoaTable {
        &self.poa_table
    }

    pub(crate) fn rt(&self) -> &RtRegistry {
        &self.rt
    }

    #[cfg(feature = "valuetype")]
    pub(crate) fn value_factories(&self) -> &crate::value::ValueFactories {
        &self.value_factories
    }

    pub(crate) fn main_queue(&self) -> &MainQueue {
        &self.main_queue
    }

    pub(crate) fn root_poa(&self) -> Poa {
        // Set before the ORB is handed out.
        Poa::from_core(Arc::clone(self.poa_table.root().expect("the builder makes the root POA")))
    }

    /// Starts serving: the lanes, their threads, and the addresses that references carry.
    pub(crate) fn start(self: &Arc<Self>, lanes: Vec<Arc<Lane>>) -> Result<(), OrbError> {
        let listening: Vec<Endpoint> = lanes.iter().flat_map(|lane| lane.endpoints().cloned()).collect();
        self.set_listening(listening);
        // Set once, as the builder calls this once. Stored before their threads run: if one thread
        // cannot be started, the shutdown ends the others.
        let _ = self.lanes.set(lanes);
        for lane in self.lanes() {
            crate::server::start(lane, self, &mut self.threads.lock()).map_err(OrbError::Thread)?;
        }
        self.context.set_maintenance(self.maintenance_period());
        // A client needs no maintenance before its first connection.
        if self.lanes().is_empty() { Ok(()) } else { self.start_maintenance().map_err(OrbError::Thread) }
    }

    /// Starts the thread that maintains lanes and connections.
    pub(crate) fn start_maintenance(&self) -> io::Result<()> {
        self.hangup_monitor().start()
    }

    /// Returns freed memory to the system if large messages came before the last call and none
    /// since.
    fn trim_memory(&self) {
        let lanes = self.all_lanes();
        let used = lanes.iter().fold(self.reply_memory().was_used(), |used, lane| lane.was_used() | used);
        if !self.memory_was_high.swap(used, Ordering::Relaxed) || used {
            return;
        }
        // Real-time threads must not wait for the allocator's locks.
        let is_real_time = self.config().locks_memory || lanes.iter().any(|lane| lane.is_real_time());
        if !is_real_time {
            corelane_sys::memory::trim();
        }
    }

    /// Returns the time between two maintenance runs.
    pub(crate) fn maintenance_period(&self) -> Duration {
        const LANES: Duration = Duration::from_secs(1);
        const SPARES: Duration = Duration::from_secs(10);
        let pools = (self.config().idle_connection_timeout / 4).clamp(Duration::from_millis(10), SPARES);
        if self.lanes().is_empty() { pools } else { LANES.min(pools) }
    }

    pub(crate) fn lanes(&self) -> &[Arc<Lane>] {
        self.lanes.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the lanes of the builder's pools and of all thread pools.
    pub(crate) fn all_lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes().iter().cloned().chain(self.rt.lanes()).collect()
    }

    /// Makes a reference to an object of a real-time POA.
    pub(crate) fn make_rt_reference(
        &self,
        type_id: &str,
        lanes: &[LaneEndpoint],
        policies: &[(u32, Vec<u8>)],
        key: &[u8],
    ) -> ObjectRef {
        let (version, native) = (self.config().version, self.config().native_char_set);
        // The ORB's own type ids and addresses can always be encoded.
        let ior = crate::address::make_rt_ior(type_id, lanes, policies, version, native, key).unwrap_or(Ior::NIL);
        ObjectRef::local(Arc::clone(&self.context), ior, !lanes.is_empty())
    }

    /// Makes a reference to an object of this ORB.
    pub(crate) fn make_reference(&self, type_id: &str, key: &[u8]) -> ObjectRef {
        let endpoints = self.published_endpoints();
        // The ORB's own type ids and addresses can always be encoded.
        let ior =
            crate::address::make_ior(type_id, endpoints, self.config().version, self.config().native_char_set, key)
                .unwrap_or(Ior::NIL);
        ObjectRef::local(Arc::clone(&self.context), ior, !endpoints.is_empty())
    }

    pub(crate) fn string_to_object(&self, text: &str) -> Result<Option<ObjectRef>, SystemException> {
        match crate::address::parse_reference(text, &self.config().limits)? {
            Ok(ior) => Ok((!ior.is_nil()).then(|| ObjectRef::new(Arc::clone(&self.context), ior))),
            Err(name) => self.initial_reference(&name).map(Some),
        }
    }

    pub(crate) fn initial_reference(&self, name: &str) -> Result<ObjectRef, SystemException> {
        self.initial_references.lock().get(name).cloned().ok_or_else(|| {
            SystemException::new(Kind::BadParam, minor::bad_param::URL_OTHER, Completion::No)
                .because(format!("no initial reference \"{name}\" is registered with this ORB"))
        })
    }

    /// Registers a reference under a name. Returns false if the name is taken or empty.
    pub(crate) fn register_initial_reference(
        &self,
        name: &str,
        reference: &ObjectRef,
    ) -> Result<bool, SystemException> {
        let mut initial = self.initial_references.lock();
        // Checked under the lock: the shutdown empties the table, and nothing may be added after
        // that.
        self.check_usable()?;
        let free = !name.is_empty() && !initial.contains_key(name);
        if free {
            initial.insert(name.to_owned(), reference.clone());
        }
        Ok(free)
    }

    /// Shuts down on behalf of a thread of this ORB. A new thread does the waiting, as this one
    /// cannot wait for itself.
    #[cold]
    pub(crate) fn shutdown_elsewhere(self: &Arc<Self>) {
        self.shutdown(ShutdownWait::DoNotWait);
        if self.is_forked_copy() {
            return;
        }
        let core = Arc::clone(self);
        // The shutdown is not urgent, even if the thread that began it is.
        let ender = ThreadBuilder::new().name("orb/end").stack_size(256 * 1024);
        let ender = ender.scheduling(Scheduling::Other).preferred_affinity(self.cores());
        if ender.spawn(move || core.shutdown(ShutdownWait::Unbounded)).is_err() {
            // Without that thread no thread joins the others. They are told to stop, and end when
            // their requests are done.
            let lanes = self.all_lanes();
            let threads: Vec<_> = lanes.iter().flat_map(|lane| lane.stop()).collect();
            drop((threads, std::mem::take(&mut *self.threads.lock()), self.rt.take_threads()));
            self.events().replies_unread(lanes.iter().flat_map(|lane| lane.abort_draining()));
            self.hangup_monitor().request_stop();
        }
    }

    /// Shuts the ORB down; see [`Orb::shutdown`](super::Orb::shutdown).
    pub(crate) fn shutdown(self: &Arc<Self>, patience: ShutdownWait) {
        if self.is_forked_copy() {
            // A forked child has the parent's connections but none of its threads: it must end
            // nothing here.
            return;
        }
        let patient = match patience {
            ShutdownWait::DoNotWait => Some(Monotonic::from_nanos(0)),
            ShutdownWait::ClosingTimeout => Some(Monotonic::now() + self.config().drain_timeout),
            ShutdownWait::Unbounded => None,
        };
        if self.begin_shutdown() {
            let root = self.root_poa();
            // A callback that waits for the shutdown would wait for itself; the scope makes that an
            // error.
            let _frame = UpcallScope::enter_callback(root.core());
            // No other thread runs these callbacks any more, and the shutdown waits for them.
            self.main_queue.stop().for_each(|end| end());
            let initial = std::mem::take(&mut *self.initial_references.lock());
            for reference in initial.into_values() {
                // A reference with direct calls keeps its servant.
                root.core().drop_guarded("Servant", || drop(reference));
            }
            root.destroy_root(patient);
            self.poa_table.close();
            for lane in self.all_lanes() {
                lane.close(self);
            }
            self.set_closed();
        }
        if patience == ShutdownWait::DoNotWait {
            return;
        }
        // Another thread may have begun the shutdown and may still be closing connections.
        self.wait_until_closed(patient);
        // It may also have waited less long for servants.
        self.root_poa().core().wait_for_end(patient);
        let until = Monotonic::now() + self.config().drain_timeout;
        let lanes = self.all_lanes();
        while lanes.iter().any(|lane| lane.poll_all_draining(self)) && !until.is_past() {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.join_threads(&lanes, patience);
    }

    /// Joins the threads and closes what is left, after every connection has drained or timed out.
    fn join_threads(&self, lanes: &[Arc<Lane>], patience: ShutdownWait) {
        let mut threads = self.threads.lock();
        if self.has_ended() {
            return;
        }
        threads.extend(lanes.iter().flat_map(|lane| lane.stop()));
        let unread: Vec<Peer> = lanes.iter().flat_map(|lane| lane.abort_draining()).collect();
        threads.extend(self.rt.take_threads());
        let until = Monotonic::now() + self.config().drain_timeout;
        for thread in threads.drain(..) {
            if patience == ShutdownWait::ClosingTimeout {
                while !thread.is_finished() && !until.is_past() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if !thread.is_finished() {
                    // Still in a servant: the thread ends when the servant returns.
                    continue;
                }
            }
            // A panic of the thread has been reported already; only its end matters here.
            let _ = thread.join();
        }
        self.close_connections();
        self.transports().detach_orb();
        self.spares().close();
        self.set_ended();
        drop(threads);
        // After the unlock: the event handler may use the ORB, or shut it down again.
        self.events().replies_unread(unread);
    }
}

impl Deref for Core {
    type Target = ClientContext;

    #[inline]
    fn deref(&self) -> &ClientContext {
        &self.context
    }
}

/// The ORB, for its client side.
struct CoreHandle(Weak<Core>);

impl UpperLayers for CoreHandle {
    fn run_maintenance(&self) {
        let Some(core) = self.0.upgrade() else { return };
        core.spares().evict_unused();
        core.trim_memory();
        if !core.has_ended() {
            core.poa_table().managers.report_parked(&core);
            for lane in core.all_lanes() {
                lane.run_maintenance(&core);
            }
        }
    }

    fn lane_endpoints(&self) -> Vec<Endpoint> {
        let Some(core) = self.0.upgrade() else { return Vec::new() };
        let lanes = core.rt.lanes();
        lanes.iter().flat_map(|lane| lane.endpoints()).map(|endpoint| core.published(endpoint)).collect()
    }
}
