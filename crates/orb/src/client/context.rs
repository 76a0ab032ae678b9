//! The client context of an ORB: the state that its references and connections share.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::{Endpoint, Stream};
use corelane_sys::clock::Monotonic;
use corelane_sys::erased::ErasedArc;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_wire::cdr::ValueReadState;
#[cfg(all(feature = "any", feature = "valuetype"))]
use corelane_wire::cdr::{CustomValueConverter, ValueTypeLookup};

use super::backoff::EndpointBackoff;
use super::connection::PoolSlot;
use super::hangup_monitor::{HangupHandler, HangupMonitor, Maintained, MonitoredStream};
use super::oneway_batch::PendingBatches;
use super::reply_reader::ReplyReaders;
use super::server_pools::ServerPools;
use crate::memory::ByteBudget;
use crate::orb_context::OrbContext;
use crate::rt::protocol::SocketSettings;

/// Number of known servers at which unused servers are removed before another server is added.
const PRUNE_THRESHOLD: usize = 256;

type ServerKey = (Vec<Endpoint>, SocketSettings);

/// The interface through which the client layer calls lanes and POAs.
pub(crate) trait UpperLayers: Send + Sync {
    fn run_maintenance(&self);

    fn lane_endpoints(&self) -> Vec<Endpoint>;
}

#[cfg(all(feature = "any", feature = "valuetype"))]
#[derive(Clone, Copy, Default)]
pub(crate) struct ValueFunctions {
    pub(crate) look_up_type: Option<ValueTypeLookup>,
    pub(crate) convert_custom: Option<CustomValueConverter>,
}

pub(crate) struct ClientContext {
    orb: OrbContext,
    hangup_monitor: HangupMonitor,
    reply_readers: ReplyReaders,
    backoff: EndpointBackoff,
    oneway_batches: PendingBatches,
    /// The lock has priority inheritance, because callers of all priorities and the maintenance
    /// thread take it.
    server_pools: PiMutex<HashMap<ServerKey, Arc<ServerPools>>>,
    /// The pools of references with PrivateConnectionPolicy. Each entry belongs to one reference
    /// and its copies.
    private_pools: PiMutex<Vec<Weak<ServerPools>>>,
    reply_memory: Arc<ByteBudget>,
    /// The type of the adapter is erased, because the client layer must not name it.
    adapter: OnceLock<ErasedArc>,
    #[cfg(feature = "valuetype")]
    value_factories: OnceLock<ErasedArc>,
    #[cfg(all(feature = "any", feature = "valuetype"))]
    value_functions: ValueFunctions,
    upper_layers: OnceLock<Box<dyn UpperLayers>>,
}

impl ClientContext {
    pub(crate) fn new(orb: OrbContext) -> io::Result<Self> {
        let config = orb.config();
        Ok(ClientContext {
            hangup_monitor: HangupMonitor::new(1 << 20, orb.stamp(), orb.cores())?,
            reply_readers: ReplyReaders::new(config.limits.clone()),
            backoff: EndpointBackoff::new(),
            oneway_batches: PendingBatches::new(config.oneway_batch.max_delay),
            server_pools: PiMutex::new("servers", LockScope::Orb, HashMap::new()),
            private_pools: PiMutex::new("private connections", LockScope::Orb, Vec::new()),
            reply_memory: Arc::new(ByteBudget::new(config.max_reply_memory)),
            adapter: OnceLock::new(),
            #[cfg(feature = "valuetype")]
            value_factories: OnceLock::new(),
            #[cfg(all(feature = "any", feature = "valuetype"))]
            value_functions: ValueFunctions::default(),
            upper_layers: OnceLock::new(),
            orb,
        })
    }

    pub(crate) fn set_upper_layers(&self, layers: Box<dyn UpperLayers>) {
        let _ = self.upper_layers.set(layers);
    }

    pub(crate) fn set_adapter(&self, adapter: ErasedArc) {
        let _ = self.adapter.set(adapter);
    }

    #[inline]
    pub(crate) fn adapter<T: 'static>(&self) -> Option<&T> {
        self.adapter.get()?.get()
    }

    #[cfg(all(feature = "any", feature = "valuetype"))]
    pub(crate) fn set_value_functions(&mut self, functions: ValueFunctions) {
        self.value_functions = functions;
    }

    #[cfg(all(feature = "any", feature = "valuetype"))]
    #[inline]
    pub(crate) fn value_read_state(&self) -> ValueReadState {
        ValueReadState::new()
            .with_lookup_and_converter(self.value_functions.look_up_type, self.value_functions.convert_custom)
    }

    #[cfg(not(all(feature = "any", feature = "valuetype")))]
    #[inline]
    pub(crate) fn value_read_state(&self) -> ValueReadState {
        ValueReadState::new()
    }

    #[cfg(all(feature = "any", feature = "valuetype"))]
    #[inline]
    pub(crate) fn value_functions(&self) -> ValueFunctions {
        self.value_functions
    }

    #[cfg(feature = "valuetype")]
    pub(crate) fn set_value_factories(&self, factories: ErasedArc) {
        let _ = self.value_factories.set(factories);
    }

    #[cfg(feature = "valuetype")]
    pub(crate) fn value_factories<T: 'static>(&self) -> Option<&T> {
        self.value_factories.get()?.get()
    }

    #[cold]
    pub(crate) fn own_addresses(&self) -> Vec<Endpoint> {
        let mut addresses = self.published_endpoints().to_vec();
        addresses.extend(self.upper_layers.get().into_iter().flat_map(|layers| layers.lane_endpoints()));
        addresses
    }

    pub(crate) fn hangup_monitor(&self) -> &HangupMonitor {
        &self.hangup_monitor
    }

    pub(super) fn reply_readers(&self) -> &ReplyReaders {
        &self.reply_readers
    }

    pub(crate) fn backoff(&self) -> &EndpointBackoff {
        &self.backoff
    }

    #[inline]
    pub(crate) fn reply_memory(&self) -> &Arc<ByteBudget> {
        &self.reply_memory
    }

    pub(super) fn monitor(
        &self,
        stream: Box<dyn Stream>,
        pool: Weak<dyn HangupHandler>,
        always: bool,
    ) -> io::Result<MonitoredStream> {
        self.hangup_monitor.monitor(stream, pool, always)
    }

    pub(crate) fn set_maintenance(self: &Arc<Self>, period: Duration) {
        let maintained: Weak<Self> = Arc::downgrade(self);
        self.hangup_monitor.set_maintenance(maintained, period);
    }

    #[cold]
    pub(super) fn list_batch(&self, slot: Weak<PoolSlot>) {
        if self.oneway_batches.add(slot) {
            self.hangup_monitor.wake();
        }
    }

    /// Sends the oneway batches that are due, or all batches if `all` is true. Returns the time at
    /// which to call this function again; `None` if no batch waits.
    #[cold]
    pub(crate) fn send_batches(&self, all: bool) -> Option<Monotonic> {
        self.oneway_batches.flush(Monotonic::now(), all, self.events())
    }

    pub(crate) fn has_transport(&self, endpoint: &Endpoint) -> bool {
        self.transports().find(endpoint).is_some()
    }

    /// Returns the connection pools for the server at `endpoints`. References share the pools
    /// unless `private` is true.
    pub(crate) fn pools_for(
        &self,
        endpoints: Vec<Endpoint>,
        sockets: SocketSettings,
        private: bool,
    ) -> Arc<ServerPools> {
        let pools = ServerPools::new(&endpoints, sockets, self.config().max_connections_per_server);
        if !private {
            let mut servers = self.server_pools.lock();
            if servers.len() >= PRUNE_THRESHOLD {
                // A count of 1 means that the table has the last pointer, so no reference uses the
                // server.
                servers.retain(|_, server| Arc::strong_count(server) > 1);
            }
            return Arc::clone(servers.entry((endpoints, sockets)).or_insert_with(|| Arc::new(pools)));
        }
        let pools = Arc::new(pools);
        let mut known = self.private_pools.lock();
        if known.len() == known.capacity() {
            known.retain(|pools| pools.strong_count() > 0);
            let room = known.len().max(16);
            known.reserve(room);
        }
        known.push(Arc::downgrade(&pools));
        pools
    }

    pub(crate) fn close_connections(&self) {
        let mut servers: Vec<Arc<ServerPools>> = self.server_pools.lock().drain().map(|(_, server)| server).collect();
        servers.extend(self.private_pools.lock().drain(..).filter_map(|server| server.upgrade()));
        for server in servers {
            server.pools().for_each(|pool| pool.close_idle());
        }
        self.reply_readers.stop();
        self.hangup_monitor.stop();
    }
}

impl Deref for ClientContext {
    type Target = OrbContext;

    #[inline]
    fn deref(&self) -> &OrbContext {
        &self.orb
    }
}

impl Maintained for ClientContext {
    fn orb(&self) -> &OrbContext {
        &self.orb
    }

    fn send_batches(&self) -> Option<Monotonic> {
        ClientContext::send_batches(self, false)
    }

    fn run_maintenance(&self) {
        if let Some(layers) = self.upper_layers.get() {
            layers.run_maintenance();
        }
        if self.has_ended() {
            return;
        }
        let mut servers: Vec<Arc<ServerPools>> = self.server_pools.lock().values().cloned().collect();
        servers.extend(self.private_pools.lock().iter().filter_map(Weak::upgrade));
        let now = Monotonic::now();
        for pool in servers.iter().flat_map(|server| server.pools()) {
            pool.run_maintenance(&self.orb, now, self.config().idle_connection_timeout);
        }
    }
}

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext").field("orb", &self.orb).finish_non_exhaustive()
    }
}
