//! The state that references, POAs and threads of one ORB share.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::{Endpoint, Peer, Stream, Transports};
use corelane_sched::Priority;
use corelane_sys::buffer::RegionCache;
use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{Mutex, PiMutex, Scope};
use corelane_sys::thread::{self, Builder, CpuSet, JoinHandle, Scheduling};
use corelane_wire::exception::minor;
use corelane_wire::ior::Ior;

use super::builder::OrbError;
use crate::address::LaneEndpoint;
use crate::client::backoff::EndpointBackoff;
use crate::client::hangup_monitor::{HangupMonitor, MonitoredStream};
use crate::client::oneway_batch::PendingBatches;
use crate::client::pool::{Pool, PoolSlot};
use crate::client::reply_reader::ReplyReaders;
use crate::client::server_pools::ServerPools;
use crate::config::Config;
use crate::current::UpcallScope;
use crate::event::{Event, Events};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::target::UsableProfile;
use crate::main_thread::MainQueue;
use crate::memory::ByteBudget;
use crate::object::ObjectRef;
use crate::poa::{ObjectKey, Poa, PoaTable};
use crate::rt::client::LaneSelector;
use crate::rt::client_policies::{self, ClientPolicies};
use crate::rt::pool::RtRegistry;
use crate::rt::protocol::SocketSettings;
use crate::server::lane::Lane;

/// Number of known servers above which those that no reference uses are dropped.
const PRUNE_THRESHOLD: usize = 256;

const RUNNING: u8 = 0;
const ENDING: u8 = 1;
/// Every connection is closing.
const CLOSED: u8 = 2;
const ENDED: u8 = 3;

/// The key of a server: the addresses of a profile, and the socket settings of its connections.
type ServerKey = (Vec<Endpoint>, SocketSettings);

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
    config: Config,
    transports: Transports,
    poa_table: PoaTable,
    events: Events,
    hangup_monitor: HangupMonitor,
    cores: Option<CpuSet>,
    reply_readers: ReplyReaders,
    backoff: EndpointBackoff,
    oneway_batches: PendingBatches,
    /// Servers that references lead to. Callers of all priorities and the maintenance thread take
    /// this lock.
    server_pools: PiMutex<HashMap<ServerKey, Arc<ServerPools>>>,
    /// Connections that belong to one reference only.
    private_pools: PiMutex<Vec<Weak<ServerPools>>>,
    lanes: OnceLock<Vec<Arc<Lane>>>,
    listening: OnceLock<Vec<Endpoint>>,
    published: OnceLock<Vec<Endpoint>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    initial_references: Mutex<HashMap<String, ObjectRef>>,
    main_queue: MainQueue,
    rt: RtRegistry,
    /// The id of the next connection, accepted or made. Incremented `Relaxed` by the thread that
    /// accepts or connects.
    next_connection_id: AtomicU64,
    #[cfg(feature = "valuetype")]
    value_factories: crate::value::ValueFactories,
    state: AtomicU8,
    /// Notified at [`CLOSED`]. Threads wait here if another thread began the shutdown.
    closing: EventCount,
    /// True once [`Event::ReferenceWithoutAddress`] has been reported. Swapped `Relaxed`, by the
    /// thread that reports.
    nowhere_reported: AtomicBool,
    /// Keeps the memory of large messages for later ones.
    spares: RegionCache,
    reply_memory: Arc<ByteBudget>,
    /// True if much memory was in use at the last maintenance, which swaps it `Relaxed`.
    memory_was_high: AtomicBool,
    fork_generation: u64,
}

impl Core {
    pub(crate) fn new(config: Config, transports: Transports, events: Events, stamp: u64) -> io::Result<Self> {
        let cores = thread::affinity(None).ok();
        Ok(Core {
            reply_readers: ReplyReaders::new(config.limits.clone()),
            backoff: EndpointBackoff::new(),
            cores,
            oneway_batches: PendingBatches::new(config.oneway_batch.delay),
            memory_was_high: AtomicBool::new(false),
            reply_memory: Arc::new(ByteBudget::new(config.max_reply_memory)),
            config,
            nowhere_reported: AtomicBool::new(false),
            transports,
            poa_table: PoaTable::new(stamp),
            events,
            hangup_monitor: HangupMonitor::new(1 << 20, stamp, cores)?,
            server_pools: PiMutex::new("servers", Scope::Orb, HashMap::new()),
            private_pools: PiMutex::new("private connections", Scope::Orb, Vec::new()),
            lanes: OnceLock::new(),
            listening: OnceLock::new(),
            published: OnceLock::new(),
            threads: Mutex::new("ORB threads", Scope::Orb, Vec::new()),
            initial_references: Mutex::new("initial references", Scope::Orb, HashMap::new()),
            main_queue: MainQueue::new(),
            rt: RtRegistry::new(),
            next_connection_id: AtomicU64::new(1),
            #[cfg(feature = "valuetype")]
            value_factories: crate::value::ValueFactories::new(),
            state: AtomicU8::new(RUNNING),
            closing: EventCount::new("end of the ORB"),
            spares: RegionCache::new(),
            fork_generation: corelane_sys::process::generation(),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn transports(&self) -> &Transports {
        &self.transports
    }

    pub(crate) fn poa_table(&self) -> &PoaTable {
        &self.poa_table
    }

    /// Returns the random number that identifies the ORB.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.poa_table.stamp
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    pub(crate) fn rt(&self) -> &RtRegistry {
        &self.rt
    }

    /// Returns a new id for a connection that is being accepted or made.
    pub(crate) fn allocate_connection_id(&self) -> u64 {
        self.next_connection_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the id that the next connection will have.
    #[inline]
    pub(crate) fn peek_connection_id(&self) -> u64 {
        self.next_connection_id.load(Ordering::Relaxed)
    }

    #[cfg(feature = "valuetype")]
    pub(crate) fn value_factories(&self) -> &crate::value::ValueFactories {
        &self.value_factories
    }

    pub(crate) fn main_queue(&self) -> &MainQueue {
        &self.main_queue
    }

    pub(crate) fn monitor(
        &self,
        stream: Box<dyn Stream>,
        pool: Weak<Pool>,
        always: bool,
    ) -> io::Result<MonitoredStream> {
        self.hangup_monitor.monitor(stream, pool, always)
    }

    /// Stops the hang-up monitor without the ORB's knowledge.
    #[cfg(test)]
    pub(crate) fn pause_hangup_monitor(&self) {
        self.hangup_monitor.replace_thread();
    }

    /// Registers a connection that now holds oneways.
    #[cold]
    pub(crate) fn list_batch(&self, slot: Weak<PoolSlot>) {
        if self.oneway_batches.add(slot) {
            self.hangup_monitor.wake();
        }
    }

    /// Sends the oneways whose delay has passed, or `all`. Returns when to call it again.
    #[cold]
    pub(crate) fn send_batches(&self, all: bool) -> Option<Monotonic> {
        self.oneway_batches.flush(Monotonic::now(), all, &self.events)
    }

    pub(crate) fn reply_readers(&self) -> &ReplyReaders {
        &self.reply_readers
    }

    pub(crate) fn root_poa(&self) -> Poa {
        // Set before the ORB is handed out.
        Poa::from_core(Arc::clone(self.poa_table.root().expect("the builder makes the root POA")))
    }

    pub(crate) fn listening(&self) -> &[Endpoint] {
        self.listening.get().map_or(&[], Vec::as_slice)
    }

    /// Fails with BAD_INV_ORDER 4 after shutdown, and with an explanation after a fork.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<(), SystemException> {
        if self.state.load(Ordering::Acquire) == RUNNING && corelane_sys::process::generation() == self.fork_generation
        {
            return Ok(());
        }
        self.unusable_error()
    }

    #[cold]
    fn unusable_error(&self) -> Result<(), SystemException> {
        if corelane_sys::process::generation() != self.fork_generation {
            return Err(SystemException::new(Kind::BadInvOrder, 0, Completion::No)
                .because("this process was forked from the one that made the ORB; make an ORB of its own here"));
        }
        Err(SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No)
            .because("the ORB has been shut down"))
    }

    /// Starts serving: the lanes, their threads, and the addresses that references carry.
    pub(crate) fn start(self: &Arc<Self>, lanes: Vec<Arc<Lane>>) -> Result<(), OrbError> {
        let listening: Vec<Endpoint> = lanes.iter().flat_map(|lane| lane.endpoints().cloned()).collect();
        let published = if self.config.publish.is_empty() {
            listening.iter().map(super::builder::publishable).collect()
        } else {
            super::builder::fill_ports(&self.config.publish, &listening)
        };
        // Set once: the builder calls this once.
        let _ = self.listening.set(listening);
        let _ = self.published.set(published);
        // Stored before their threads run: if one thread cannot be started, the shutdown ends the
        // others.
        let _ = self.lanes.set(lanes);
        for lane in self.lanes() {
            crate::server::start(lane, self, &mut self.threads.lock()).map_err(OrbError::Thread)?;
        }
        self.hangup_monitor.set_maintenance(Arc::downgrade(self), self.maintenance_period());
        // A client needs no maintenance before its first connection.
        if self.lanes().is_empty() { Ok(()) } else { self.start_maintenance().map_err(OrbError::Thread) }
    }

    /// Returns the cores of the thread that made the ORB, if known. Threads run there by default.
    pub(crate) fn cores(&self) -> Option<CpuSet> {
        self.cores
    }

    /// Starts the thread that maintains lanes and connections.
    pub(crate) fn start_maintenance(&self) -> io::Result<()> {
        self.hangup_monitor.start()
    }

    /// Runs the periodic maintenance, also while connections are draining.
    pub(crate) fn run_maintenance(self: &Arc<Self>) {
        self.spares.evict_unused();
        self.trim_memory();
        if self.state.load(Ordering::Acquire) != ENDED {
            self.poa_table().managers.report_parked(self);
            for lane in self.all_lanes() {
                lane.run_maintenance(self);
            }
            // Collected first: closing a connection is a system call, which must not run under the
            // lock.
            let mut servers: Vec<Arc<ServerPools>> = self.server_pools.lock().values().cloned().collect();
            servers.extend(self.private_pools.lock().iter().filter_map(Weak::upgrade));
            let now = Monotonic::now();
            for pool in servers.iter().flat_map(|server| server.pools()) {
                pool.run_maintenance(self, now, self.config.idle_time);
            }
        }
    }

    /// Returns freed memory to the system if large messages came before the last call and none
    /// since.
    fn trim_memory(&self) {
        let lanes = self.all_lanes();
        let used = lanes.iter().fold(self.reply_memory.was_used(), |used, lane| lane.was_used() | used);
        if !self.memory_was_high.swap(used, Ordering::Relaxed) || used {
            return;
        }
        // Real-time threads must not wait for the allocator's locks.
        let is_real_time = self.config.locks_memory || lanes.iter().any(|lane| lane.is_real_time());
        if !is_real_time {
            corelane_sys::memory::trim();
        }
    }

    /// Returns the memory kept for large messages.
    #[inline]
    pub(crate) fn spares(&self) -> &RegionCache {
        &self.spares
    }

    #[inline]
    pub(crate) fn reply_memory(&self) -> &Arc<ByteBudget> {
        &self.reply_memory
    }

    /// Returns the time between two maintenance runs.
    pub(crate) fn maintenance_period(&self) -> Duration {
        const LANES: Duration = Duration::from_secs(1);
        const SPARES: Duration = Duration::from_secs(10);
        let pools = (self.config.idle_time / 4).clamp(Duration::from_millis(10), SPARES);
        if self.lanes().is_empty() { pools } else { LANES.min(pools) }
    }

    pub(crate) fn lanes(&self) -> &[Arc<Lane>] {
        self.lanes.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the lanes of the builder's pools and of all thread pools.
    pub(crate) fn all_lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes().iter().cloned().chain(self.rt.lanes()).collect()
    }

    /// Returns the addresses that references carry for the ORB's own listeners.
    pub(crate) fn published_endpoints(&self) -> &[Endpoint] {
        self.published.get().map_or(&[][..], Vec::as_slice)
    }

    /// Reports, once, that a reference without an address was converted to text.
    #[cold]
    pub(crate) fn report_nowhere_reference(&self, type_id: &str) {
        if !self.nowhere_reported.swap(true, Ordering::Relaxed) {
            self.events.report(&Event::ReferenceWithoutAddress { type_id: type_id.to_owned() });
        }
    }

    /// Returns the address that references carry for a lane's endpoint. Takes the host that the ORB
    /// publishes, if it publishes one.
    pub(crate) fn published(&self, endpoint: &Endpoint) -> Endpoint {
        let host = self.config.publish.iter().find_map(|published| match published {
            Endpoint::Tcp { host, .. } => Some(host),
            _ => None,
        });
        match (endpoint, host) {
            (Endpoint::Tcp { port, .. }, Some(host)) => Endpoint::tcp(host, *port),
            _ => super::builder::publishable(endpoint),
        }
    }

    /// Makes a reference to an object of a real-time POA.
    pub(crate) fn make_rt_reference(
        self: &Arc<Self>,
        type_id: &str,
        lanes: &[LaneEndpoint],
        policies: &[(u32, Vec<u8>)],
        key: &[u8],
    ) -> ObjectRef {
        let (version, native) = (self.config.version, self.config.native_char_set);
        // The ORB's own type ids and addresses can always be encoded.
        let ior = crate::address::make_rt_ior(type_id, lanes, policies, version, native, key).unwrap_or(Ior::NIL);
        ObjectRef::local(Arc::clone(self), ior, !lanes.is_empty())
    }

    pub(crate) fn backoff(&self) -> &EndpointBackoff {
        &self.backoff
    }

    /// Returns the connections to these endpoints, shared by every reference that leads there.
    fn shared_pools(&self, endpoints: Vec<Endpoint>, sockets: SocketSettings) -> Arc<ServerPools> {
        let mut servers = self.server_pools.lock();
        if servers.len() >= PRUNE_THRESHOLD {
            // Drop the servers that no reference is bound to any more.
            servers.retain(|_, server| Arc::strong_count(server) > 1);
        }
        let made = ServerPools::new(&endpoints, sockets, self.config.connections_per_server);
        Arc::clone(servers.entry((endpoints, sockets)).or_insert_with(|| Arc::new(made)))
    }

    /// Sets the DSCP code point of a priority on a connection's packets, if the ORB maps the
    /// priority to one.
    #[cold]
    pub(crate) fn set_code_point(&self, stream: &dyn Stream, priority: Priority) {
        if let Some(dscp) = self.config.rt.network.as_ref().and_then(|network| network.to_dscp(priority))
            && let Err(error) = stream.set_dscp(dscp)
        {
            // The connection works without a code point: its data still arrives.
            let peer = stream.peer().clone();
            self.events.report(&Event::CodePointRefused { peer, dscp, error: error.to_string() });
        }
    }

    /// Makes a reference to an object of this ORB.
    pub(crate) fn make_reference(self: &Arc<Self>, type_id: &str, key: &[u8]) -> ObjectRef {
        let endpoints = self.published.get().map_or(&[][..], Vec::as_slice);
        // The ORB's own type ids and addresses can always be encoded.
        let ior = crate::address::make_ior(type_id, endpoints, self.config.version, self.config.native_char_set, key)
            .unwrap_or(Ior::NIL);
        ObjectRef::local(Arc::clone(self), ior, !endpoints.is_empty())
    }

    pub(crate) fn client_policies(&self) -> &ClientPolicies {
        &self.config.client_policies
    }

    /// Returns the profiles of `ior` that a transport serves, bound to their connections. The flag
    /// is true if ClientProtocol policies exclude some.
    pub(crate) fn usable_profiles(&self, ior: &Ior, asked: &ClientPolicies) -> (Vec<UsableProfile>, bool) {
        let found =
            crate::address::parse_profiles(ior, self.config.version, self.config.native_char_set, &self.config.limits);
        let mut left_out = false;
        let mut profiles: Vec<(usize, UsableProfile)> = found
            .into_iter()
            .filter_map(|found| {
                let endpoints: Vec<Endpoint> =
                    found.endpoints.into_iter().filter(|endpoint| self.has_transport(endpoint)).collect();
                let first = endpoints.first()?;
                let Some((rank, sockets)) = client_policies::usable_protocols(asked, &found.policies)
                    .and_then(|all| client_policies::protocol_rank(all, first))
                else {
                    left_out = true;
                    return None;
                };
                let pools = self.pools_for(endpoints, sockets, asked.private);
                let lanes = || {
                    let reached = found.lanes.into_iter().filter(|lane| self.has_transport(&lane.endpoint));
                    let mut lanes: Vec<(i16, Arc<ServerPools>)> = reached
                        .map(|lane| (lane.priority, self.pools_for(vec![lane.endpoint], sockets, asked.private)))
                        .collect();
                    if lanes.is_empty() {
                        lanes.push((-1, Arc::clone(&pools)));
                    }
                    lanes
                };
                let lanes = LaneSelector::new(&found.policies, asked, lanes).map(Box::new);
                let profile = UsableProfile {
                    pools,
                    lanes,
                    object_key: found.object_key.into(),
                    version: found.version,
                    code_sets: found.code_sets,
                    default_code_sets: found.default_code_sets,
                    index: found.index,
                    is_ours: found.is_ours,
                    said: found.policies,
                };
                Some((rank, profile))
            })
            .collect();
        // A stable sort: profiles of one protocol stay in the reference's order.
        profiles.sort_by_key(|(rank, _)| *rank);
        (profiles.into_iter().map(|(_, profile)| profile).collect(), left_out)
    }

    fn has_transport(&self, endpoint: &Endpoint) -> bool {
        self.transports.find(endpoint).is_some()
    }

    fn pools_for(&self, endpoints: Vec<Endpoint>, sockets: SocketSettings, private: bool) -> Arc<ServerPools> {
        if !private {
            return self.shared_pools(endpoints, sockets);
        }
        let bands = Arc::new(ServerPools::new(&endpoints, sockets, self.config.connections_per_server));
        let mut private = self.private_pools.lock();
        if private.len() == private.capacity() {
            // Only when full; otherwise each new private connection would scan all others.
            private.retain(|bands| bands.strong_count() > 0);
            let room = private.len().max(16);
            private.reserve(room);
        }
        private.push(Arc::downgrade(&bands));
        bands
    }

    /// Returns the object key of `ior` if it may denote an object of this ORB. That is a transient
    /// key with this ORB's stamp, or any other key at an address that this ORB publishes.
    pub(crate) fn local_key(&self, ior: &Ior) -> Option<Box<[u8]>> {
        let mut published = self.published_endpoints().to_vec();
        let lanes = self.rt.lanes();
        published.extend(lanes.iter().flat_map(|lane| lane.endpoints()).map(|endpoint| self.published(endpoint)));
        crate::address::parse_profiles(ior, self.config.version, self.config.native_char_set, &self.config.limits)
            .into_iter()
            .find_map(|found| {
                let own_stamp = match ObjectKey::parse(&found.object_key) {
                    ObjectKey::System { stamp, .. } | ObjectKey::User { stamp, .. } => stamp == self.poa_table.stamp,
                    ObjectKey::Persistent { .. } | ObjectKey::Hinted { .. } | ObjectKey::Plain => {
                        found.endpoints.iter().any(|endpoint| published.contains(endpoint))
                    }
                };
                own_stamp.then(|| found.object_key.into())
            })
    }

    pub(crate) fn string_to_object(self: &Arc<Self>, text: &str) -> Result<Option<ObjectRef>, SystemException> {
        match crate::address::parse_reference(text, &self.config.limits)? {
            Ok(ior) => Ok((!ior.is_nil()).then(|| ObjectRef::new(Arc::clone(self), ior))),
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
        if corelane_sys::process::generation() != self.fork_generation {
            return;
        }
        let core = Arc::clone(self);
        // The shutdown is not urgent, even if the thread that began it is.
        let ender = Builder::new().name("orb/end").stack_size(256 * 1024);
        let ender = ender.scheduling(Scheduling::Other).preferred_affinity(self.cores);
        if ender.spawn(move || core.shutdown(ShutdownWait::Unbounded)).is_err() {
            // Without that thread no thread joins the others. They are told to stop, and end when
            // their requests are done.
            let lanes = self.all_lanes();
            let threads: Vec<_> = lanes.iter().flat_map(|lane| lane.stop()).collect();
            drop((threads, std::mem::take(&mut *self.threads.lock()), self.rt.take_threads()));
            self.events.replies_unread(lanes.iter().flat_map(|lane| lane.abort_draining()));
            self.hangup_monitor.request_stop();
        }
    }

    /// Shuts the ORB down; see [`Orb::shutdown`](super::Orb::shutdown).
    pub(crate) fn shutdown(self: &Arc<Self>, patience: ShutdownWait) {
        if corelane_sys::process::generation() != self.fork_generation {
            // A forked child has the parent's connections but none of its threads: it must end
            // nothing here.
            return;
        }
        let patient = match patience {
            ShutdownWait::DoNotWait => Some(Monotonic::from_nanos(0)),
            ShutdownWait::ClosingTimeout => Some(Monotonic::now() + self.config.closing_time),
            ShutdownWait::Unbounded => None,
        };
        if self.state.compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
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
            // `fetch_max`: a thread that stopped waiting may already have reached `ENDED`.
            self.state.fetch_max(CLOSED, Ordering::AcqRel);
            self.closing.notify_all();
        }
        if patience == ShutdownWait::DoNotWait {
            return;
        }
        // Another thread may have begun the shutdown and may still be closing connections.
        let through = || (self.state.load(Ordering::Acquire) >= CLOSED).then_some(());
        let _ = self.closing.wait(patient, through);
        // It may also have waited less long for servants.
        self.root_poa().core().wait_for_end(patient);
        let until = Monotonic::now() + self.config.closing_time;
        let lanes = self.all_lanes();
        while lanes.iter().any(|lane| lane.poll_all_draining(self)) && !until.is_past() {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.join_threads(&lanes, patience);
    }

    /// Joins the threads and closes what is left, after every connection has drained or timed out.
    fn join_threads(&self, lanes: &[Arc<Lane>], patience: ShutdownWait) {
        let mut threads = self.threads.lock();
        if self.state.load(Ordering::Acquire) == ENDED {
            return;
        }
        threads.extend(lanes.iter().flat_map(|lane| lane.stop()));
        let unread: Vec<Peer> = lanes.iter().flat_map(|lane| lane.abort_draining()).collect();
        threads.extend(self.rt.take_threads());
        let until = Monotonic::now() + self.config.closing_time;
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
        let mut servers: Vec<Arc<ServerPools>> = self.server_pools.lock().drain().map(|(_, server)| server).collect();
        servers.extend(self.private_pools.lock().drain(..).filter_map(|server| server.upgrade()));
        for server in servers {
            server.pools().for_each(|pool| pool.close_idle());
        }
        self.reply_readers.stop();
        self.hangup_monitor.stop();
        self.transports.detach_orb();
        self.spares.close();
        self.state.store(ENDED, Ordering::Release);
        drop(threads);
        // After the unlock: the event handler may use the ORB, or shut it down again.
        self.events.replies_unread(unread);
    }
}
