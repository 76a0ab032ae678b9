//! The core of an ORB: its start and its shutdown.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{Endpoint, Peer};
use corelane_sys::clock::Monotonic;
use corelane_sys::erased::ErasedArc;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{JoinHandle, Scheduling, ThreadBuilder};

use super::error::OrbError;
use super::initial_references::InitialReferences;
use crate::adapter::ObjectAdapter;
use crate::client::context::ClientContext;
use crate::current::UpcallScope;
use crate::exception::SystemException;
use crate::object::ObjectRef;
use crate::orb_context::OrbContext;
use crate::poa::{Poa, PoaTable};
use crate::server::strategy::Lane;
use crate::server_context::ServerContext;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownWait {
    DoNotWait,
    /// Waits for threads until the drain time-out. A thread that is still in a servant then ends
    /// when the servant returns.
    ClosingTimeout,
    Unbounded,
}

#[derive(Debug)]
pub(crate) struct OrbCore {
    adapter: Arc<ObjectAdapter>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    initial_references: Mutex<InitialReferences>,
    #[cfg(feature = "valuetype")]
    value_factories: Arc<crate::value::ValueFactories>,
}

impl OrbCore {
    pub(crate) fn new(orb: OrbContext, initial_references: InitialReferences) -> io::Result<Arc<Self>> {
        let stamp = orb.stamp();
        #[cfg_attr(not(all(feature = "any", feature = "valuetype")), expect(unused_mut))]
        let mut context = ClientContext::new(orb)?;
        #[cfg(all(feature = "any", feature = "valuetype"))]
        context.set_value_functions(crate::value::FUNCTIONS);
        let server = Arc::new(ServerContext::new(Arc::new(context)));
        let poa_table = Arc::new(PoaTable::new(stamp));
        server.set_adapter(ErasedArc::new(Arc::clone(&poa_table)));
        let core = Arc::new(OrbCore {
            adapter: Arc::new(ObjectAdapter::new(server, poa_table)),
            threads: Mutex::new("ORB threads", LockScope::Orb, Vec::new()),
            initial_references: Mutex::new("initial references", LockScope::Orb, initial_references),
            #[cfg(feature = "valuetype")]
            value_factories: Arc::default(),
        });
        #[cfg(feature = "valuetype")]
        core.set_value_factories(ErasedArc::new(Arc::clone(&core.value_factories)));
        core.adapter.register_with_client();
        Ok(core)
    }

    pub(crate) fn adapter(&self) -> &Arc<ObjectAdapter> {
        &self.adapter
    }

    #[cfg(feature = "valuetype")]
    pub(crate) fn value_factories(&self) -> &crate::value::ValueFactories {
        &self.value_factories
    }

    pub(crate) fn root_poa(&self) -> Poa {
        Poa::from_core(Arc::clone(self.poa_table().root().expect("the builder makes the root POA")))
    }

    pub(crate) fn start(self: &Arc<Self>, lanes: Vec<Arc<Lane>>) -> Result<(), OrbError> {
        let listening: Vec<Endpoint> = lanes.iter().flat_map(|lane| lane.endpoints().cloned()).collect();
        self.set_listening(listening);
        // The lanes are recorded before their threads start. If a thread cannot be started, the
        // shutdown then finds the lanes whose threads run.
        self.server().set_lanes(lanes);
        for lane in self.server().lanes() {
            crate::server::start(lane, &self.adapter, &mut self.threads.lock()).map_err(OrbError::ThreadStart)?;
        }
        self.client().set_maintenance(self.maintenance_period());
        if self.server().lanes().is_empty() { Ok(()) } else { self.start_maintenance().map_err(OrbError::ThreadStart) }
    }

    pub(crate) fn start_maintenance(&self) -> io::Result<()> {
        self.hangup_monitor().start()
    }

    pub(crate) fn maintenance_period(&self) -> Duration {
        const LANES: Duration = Duration::from_secs(1);
        const SPARES: Duration = Duration::from_secs(10);
        let pools = (self.config().idle_connection_timeout / 4).clamp(Duration::from_millis(10), SPARES);
        if self.server().lanes().is_empty() { pools } else { LANES.min(pools) }
    }

    pub(super) fn initial_references(&self) -> &Mutex<InitialReferences> {
        &self.initial_references
    }

    pub(crate) fn register_initial_reference(
        &self,
        name: &str,
        reference: &ObjectRef,
    ) -> Result<bool, SystemException> {
        let mut initial = self.initial_references.lock();
        // The shutdown empties the table under its lock. This check, under the same lock, prevents
        // an addition after that.
        self.check_usable()?;
        Ok(initial.register(name, reference))
    }

    /// Starts the shutdown. A new thread completes it, because the calling thread cannot wait for
    /// itself.
    #[cold]
    pub(crate) fn shutdown_elsewhere(self: &Arc<Self>) {
        self.shutdown(ShutdownWait::DoNotWait);
        if self.is_forked_copy() {
            return;
        }
        let core = Arc::clone(self);
        // The thread has no real-time priority, because the shutdown is not urgent.
        let ender = ThreadBuilder::new().name("orb/end").stack_size(256 * 1024);
        let ender = ender.scheduling(Scheduling::Other).preferred_affinity(self.cores());
        if ender.spawn(move || core.shutdown(ShutdownWait::Unbounded)).is_err() {
            // No thread waits for the threads of the lanes, so each of them ends when its requests
            // have finished.
            let lanes = self.server().all_lanes();
            let threads: Vec<_> = lanes.iter().flat_map(|lane| lane.stop()).collect();
            drop((threads, std::mem::take(&mut *self.threads.lock()), self.server().rt().take_threads()));
            self.events().replies_unread(lanes.iter().flat_map(|lane| lane.abort_draining()));
            self.hangup_monitor().request_stop();
        }
    }

    pub(crate) fn shutdown(self: &Arc<Self>, patience: ShutdownWait) {
        if self.is_forked_copy() {
            // A forked child has the connections of its parent process, but no threads to join.
            return;
        }
        let patient = match patience {
            ShutdownWait::DoNotWait => Some(Monotonic::from_nanos(0)),
            ShutdownWait::ClosingTimeout => Some(Monotonic::now() + self.config().drain_timeout),
            ShutdownWait::Unbounded => None,
        };
        if self.begin_shutdown() {
            let root = self.root_poa();
            // In this scope, a callback that waits for the shutdown gets an error.
            let _frame = UpcallScope::enter_callback(root.core());
            // The main thread no longer runs the queued deactivations, for which the shutdown
            // waits. So this thread runs them.
            self.server().main_queue().stop().for_each(|end| end());
            let initial = self.initial_references.lock().take_objects();
            for reference in initial {
                // The drop may run code of the application, so the drop is guarded.
                root.core().drop_guarded("Servant", || drop(reference));
            }
            root.destroy_root(patient);
            self.poa_table().close();
            for lane in self.server().all_lanes() {
                lane.close(&self.adapter);
            }
            self.set_closed();
        }
        if patience == ShutdownWait::DoNotWait {
            return;
        }
        self.wait_until_closed(patient);
        self.root_poa().core().wait_for_end(patient);
        let until = Monotonic::now() + self.config().drain_timeout;
        let lanes = self.server().all_lanes();
        while lanes.iter().any(|lane| lane.poll_all_draining(&self.adapter)) && !until.is_past() {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.join_threads(&lanes, patience);
    }

    fn join_threads(&self, lanes: &[Arc<Lane>], patience: ShutdownWait) {
        let mut threads = self.threads.lock();
        if self.has_ended() {
            return;
        }
        threads.extend(lanes.iter().flat_map(|lane| lane.stop()));
        let unread: Vec<Peer> = lanes.iter().flat_map(|lane| lane.abort_draining()).collect();
        threads.extend(self.server().rt().take_threads());
        let until = Monotonic::now() + self.config().drain_timeout;
        for thread in threads.drain(..) {
            if patience == ShutdownWait::ClosingTimeout {
                while !thread.is_finished() && !until.is_past() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if !thread.is_finished() {
                    continue;
                }
            }
            // The panic hook has reported a panic of the thread, so the result is ignored.
            let _ = thread.join();
        }
        self.close_connections();
        self.transports().detach_orb();
        self.spares().close();
        self.set_ended();
        drop(threads);
        // `threads` is unlocked first, because the event callback may use the ORB or shut it down.
        self.events().replies_unread(unread);
    }
}

impl Deref for OrbCore {
    type Target = ObjectAdapter;

    #[inline]
    fn deref(&self) -> &ObjectAdapter {
        &self.adapter
    }
}
