//! What references, POAs and threads of one ORB share.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::{Endpoint, Peer, Stream, Transports};
use corelane_sched::Priority;
use corelane_sys::buffer::Spares;
use corelane_sys::clock::Monotonic;
use corelane_sys::gate::Gate;
use corelane_sys::lock::{Mutex, PiMutex, Scope};
use corelane_sys::thread::{self, Builder, CpuSet, JoinHandle, Scheduling};
use corelane_wire::exception::minor;
use corelane_wire::ior::Ior;
use corelane_wire::{CharSet, Limits, Version};

use super::builder::OrbError;
use crate::address::LaneEndpoint;
use crate::client::bands::Bands;
use crate::client::held::{HeldList, OnewayBatch};
use crate::client::pool::{Pool, Slot};
use crate::client::replies::Replies;
use crate::client::watch::{Watched, Watcher};
use crate::current::Upcall;
use crate::event::{Event, Events};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::target::Profile;
use crate::main_thread::MainQueue;
use crate::object::ObjectRef;
use crate::poa::{Adapters, Key, Poa};
use crate::policy::{AllBusy, CallPolicies};
use crate::rt::RtConfig;
use crate::rt::client::{self, Asked, Lanes};
use crate::rt::policies::Sockets;
use crate::rt::pool::Registry;
use crate::server::lane::Lane;

/// How an ORB is set up; never changes afterwards.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) limits: Limits,
    pub(crate) call_policies: CallPolicies,
    /// Connections to one server at most.
    pub(crate) connections_per_server: usize,
    pub(crate) oneway_batch: OnewayBatch,
    /// What a call does when every connection that may be made to a server is in use.
    pub(crate) all_busy: AllBusy,
    /// How long a connection to a server may be idle before it is closed.
    pub(crate) idle_time: Duration,
    /// How long closing may take for peers that do not answer.
    pub(crate) closing_time: Duration,
    /// Addresses that references carry; empty: those where the ORB listens.
    pub(crate) publish: Vec<Endpoint>,
    /// The highest GIOP version spoken and published.
    pub(crate) version: Version,
    /// The code set of char and string that references name as native.
    pub(crate) native_char_set: CharSet,
    pub(crate) fragment_size: Option<usize>,
    pub(crate) rt: RtConfig,
    /// The process's memory is locked: threads touch their stacks before they begin.
    pub(crate) locks_memory: bool,
    /// What references ask for that say nothing themselves.
    pub(crate) asked: Asked,
}

/// Servers known at a time before those are forgotten that no reference leads to.
const PRUNED_FROM: usize = 256;

const RUNNING: u8 = 0;
const ENDING: u8 = 1;
/// Every connection is closing.
const CLOSED: u8 = 2;
const ENDED: u8 = 3;

/// Addresses of a profile, and what connections there are made with.
type Server = (Vec<Endpoint>, Sockets);

/// How long who ends the ORB waits for servants that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all; who ends the ORB next waits for the rest.
    None,
    /// For the closing time: threads that are still in a servant then end when it returns.
    ClosingTime,
    /// Until the last of them returns.
    Endless,
}

/// The inside of an ORB.
#[derive(Debug)]
pub(crate) struct Core {
    config: Config,
    transports: Transports,
    adapters: Adapters,
    events: Events,
    watcher: Watcher,
    cores: Option<CpuSet>,
    replies: Replies,
    held: HeldList,
    /// The servers that references lead to, by the addresses of a profile and what connections are made with. Callers of all priorities
    /// look here, and the thread that tidies.
    servers: PiMutex<HashMap<Server, Arc<Bands>>>,
    /// Connections that are one reference's alone.
    private: PiMutex<Vec<Weak<Bands>>>,
    lanes: OnceLock<Vec<Arc<Lane>>>,
    listening: OnceLock<Vec<Endpoint>>,
    published: OnceLock<Vec<Endpoint>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    initial: Mutex<HashMap<String, ObjectRef>>,
    main: MainQueue,
    rt: Registry,
    /// Connections accepted so far.
    connections: AtomicU64,
    #[cfg(feature = "valuetype")]
    value_factories: crate::value::ValueFactories,
    state: AtomicU8,
    /// Where those wait for [`CLOSED`] who did not begin the end.
    closing: Gate,
    /// Large messages leave their memory to the next ones.
    spares: Spares,
    forks: u64,
}

impl Core {
    pub(crate) fn new(config: Config, transports: Transports, events: Events, stamp: u64) -> io::Result<Self> {
        let cores = thread::affinity(None).ok();
        Ok(Core {
            replies: Replies::new(config.limits.clone()),
            cores,
            held: HeldList::new(config.oneway_batch.delay),
            config,
            transports,
            adapters: Adapters::new(stamp),
            events,
            watcher: Watcher::new(1 << 20, stamp, cores)?,
            servers: PiMutex::new("servers", Scope::Orb, HashMap::new()),
            private: PiMutex::new("private connections", Scope::Orb, Vec::new()),
            lanes: OnceLock::new(),
            listening: OnceLock::new(),
            published: OnceLock::new(),
            threads: Mutex::new("ORB threads", Scope::Orb, Vec::new()),
            initial: Mutex::new("initial references", Scope::Orb, HashMap::new()),
            main: MainQueue::new(),
            rt: Registry::new(),
            connections: AtomicU64::new(1),
            #[cfg(feature = "valuetype")]
            value_factories: crate::value::ValueFactories::new(),
            state: AtomicU8::new(RUNNING),
            closing: Gate::new("end of the ORB"),
            spares: Spares::new(),
            forks: corelane_sys::process::generation(),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn transports(&self) -> &Transports {
        &self.transports
    }

    pub(crate) fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    pub(crate) fn rt(&self) -> &Registry {
        &self.rt
    }

    /// The number of a connection that is being accepted or made.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that the next connection will have.
    #[inline]
    pub(crate) fn upcoming_connection(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    #[cfg(feature = "valuetype")]
    pub(crate) fn value_factories(&self) -> &crate::value::ValueFactories {
        &self.value_factories
    }

    pub(crate) fn main_queue(&self) -> &MainQueue {
        &self.main
    }

    pub(crate) fn watch(&self, stream: Box<dyn Stream>, pool: Weak<Pool>, always: bool) -> io::Result<Watched> {
        self.watcher.watch(stream, pool, always)
    }

    /// From now on nothing is watched, and the ORB does not know.
    #[cfg(test)]
    pub(crate) fn watch_no_more(&self) {
        self.watcher.pause();
    }

    /// The connection of a slot holds oneways from now on.
    #[cold]
    pub(crate) fn list_held(&self, slot: Weak<Slot>) {
        if self.held.add(slot) {
            self.watcher.look();
        }
    }

    /// Sends the oneways that connections have held long enough, or `all`. When to come by again.
    #[cold]
    pub(crate) fn send_held(&self, all: bool) -> Option<Monotonic> {
        self.held.send(Monotonic::now(), all, &self.events)
    }

    pub(crate) fn replies(&self) -> &Replies {
        &self.replies
    }

    pub(crate) fn root_poa(&self) -> Poa {
        // Set before the ORB is handed out.
        Poa::from_core(Arc::clone(self.adapters.root().expect("the builder makes the root POA")))
    }

    pub(crate) fn listening(&self) -> &[Endpoint] {
        self.listening.get().map_or(&[], Vec::as_slice)
    }

    /// BAD_INV_ORDER 4 after shutdown, and a clear word after a fork.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<(), SystemException> {
        if self.state.load(Ordering::Acquire) == RUNNING && corelane_sys::process::generation() == self.forks {
            return Ok(());
        }
        self.unusable()
    }

    #[cold]
    fn unusable(&self) -> Result<(), SystemException> {
        if corelane_sys::process::generation() != self.forks {
            return Err(SystemException::new(Kind::BadInvOrder, 0, Completion::No)
                .because("this process was forked from the one that made the ORB; make an ORB of its own here"));
        }
        Err(SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No)
            .because("the ORB has been shut down"))
    }

    /// Starts serving: lanes, their threads, and what references will say.
    pub(crate) fn start(self: &Arc<Self>, lanes: Vec<Arc<Lane>>) -> Result<(), OrbError> {
        let listening: Vec<Endpoint> = lanes.iter().flat_map(|lane| lane.endpoints().cloned()).collect();
        let published = if self.config.publish.is_empty() {
            listening.iter().map(super::builder::reachable).collect()
        } else {
            super::builder::with_ports(&self.config.publish, &listening)
        };
        // Set once: the builder calls this once.
        let _ = self.listening.set(listening);
        let _ = self.published.set(published);
        // Known before their threads run: if one cannot be started, the others are ended like any.
        let _ = self.lanes.set(lanes);
        for lane in self.lanes() {
            crate::server::start(lane, self, &mut self.threads.lock()).map_err(OrbError::Thread)?;
        }
        self.watcher.tidy(Arc::downgrade(self), self.tidy_period());
        // A client needs no watching before its first connection.
        if self.lanes().is_empty() { Ok(()) } else { self.watch_lanes().map_err(OrbError::Thread) }
    }

    /// The cores of the thread that made the ORB, if they are known: where threads run of which nothing else is said.
    pub(crate) fn cores(&self) -> Option<CpuSet> {
        self.cores
    }

    /// Sees to it that lanes are tidied.
    pub(crate) fn watch_lanes(&self) -> io::Result<()> {
        self.watcher.start()
    }

    /// What is to be done now and then, also while connections are on their way to the end.
    pub(crate) fn tidy(self: &Arc<Self>) {
        self.spares.age();
        if self.state.load(Ordering::Acquire) != ENDED {
            for lane in self.all_lanes() {
                lane.tidy(self);
            }
            // Not under the lock: closing a connection is a system call.
            let mut servers: Vec<Arc<Bands>> = self.servers.lock().values().cloned().collect();
            servers.extend(self.private.lock().iter().filter_map(Weak::upgrade));
            let now = Monotonic::now();
            for pool in servers.iter().flat_map(|server| server.pools()) {
                pool.tidy(self, now, self.config.idle_time);
            }
        }
    }

    /// Memory of large messages for the next ones.
    #[inline]
    pub(crate) fn spares(&self) -> &Spares {
        &self.spares
    }

    /// How often that is.
    pub(crate) fn tidy_period(&self) -> Duration {
        const LANES: Duration = Duration::from_secs(1);
        const SPARES: Duration = Duration::from_secs(10);
        let pools = (self.config.idle_time / 4).clamp(Duration::from_millis(10), SPARES);
        if self.lanes().is_empty() { pools } else { LANES.min(pools) }
    }

    pub(crate) fn lanes(&self) -> &[Arc<Lane>] {
        self.lanes.get().map_or(&[], Vec::as_slice)
    }

    /// The lanes of the builder's pools and of all thread pools.
    pub(crate) fn all_lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes().iter().cloned().chain(self.rt.lanes()).collect()
    }

    /// What references say where the ORB itself listens.
    pub(crate) fn published_at(&self) -> &[Endpoint] {
        self.published.get().map_or(&[][..], Vec::as_slice)
    }

    /// What references say for an endpoint of a lane: at the host that the ORB publishes, if it does.
    pub(crate) fn published(&self, endpoint: &Endpoint) -> Endpoint {
        let host = self.config.publish.iter().find_map(|published| match published {
            Endpoint::Tcp { host, .. } => Some(host),
            _ => None,
        });
        match (endpoint, host) {
            (Endpoint::Tcp { port, .. }, Some(host)) => Endpoint::tcp(host, *port),
            _ => super::builder::reachable(endpoint),
        }
    }

    /// A reference to an object of a real-time POA.
    pub(crate) fn make_rt_reference(
        self: &Arc<Self>,
        type_id: &str,
        lanes: &[LaneEndpoint],
        policies: &[(u32, Vec<u8>)],
        key: &[u8],
    ) -> ObjectRef {
        let (version, native) = (self.config.version, self.config.native_char_set);
        // Neither type ids nor addresses of this ORB's own can be impossible to write.
        let ior = crate::address::rt_reference(type_id, lanes, policies, version, native, key).unwrap_or(Ior::NIL);
        ObjectRef::new(Arc::clone(self), ior)
    }

    /// The connections to these endpoints, shared by every reference that goes there.
    fn server(&self, endpoints: Vec<Endpoint>, sockets: Sockets) -> Arc<Bands> {
        let mut servers = self.servers.lock();
        if servers.len() >= PRUNED_FROM {
            // References come and go with their servers: what no reference is bound to is given up.
            servers.retain(|_, server| Arc::strong_count(server) > 1);
        }
        let made = Bands::new(&endpoints, sockets, self.config.connections_per_server);
        Arc::clone(servers.entry((endpoints, sockets)).or_insert_with(|| Arc::new(made)))
    }

    /// Gives the packets of a connection the code point of a priority, where the ORB has any.
    #[cold]
    pub(crate) fn mark(&self, stream: &dyn Stream, priority: Priority) {
        if let Some(dscp) = self.config.rt.network.as_ref().and_then(|network| network.to_dscp(priority))
            && let Err(error) = stream.set_dscp(dscp)
        {
            // The connection is as good as without: what it carries arrives all the same.
            let peer = stream.peer().clone();
            self.events.report(&Event::CodePointRefused { peer, dscp, error: error.to_string() });
        }
    }

    /// A reference to an object of this ORB.
    pub(crate) fn make_reference(self: &Arc<Self>, type_id: &str, key: &[u8]) -> ObjectRef {
        let endpoints = self.published.get().map_or(&[][..], Vec::as_slice);
        // Neither type ids nor addresses of this ORB's own can be impossible to write.
        let ior = crate::address::reference(type_id, endpoints, self.config.version, self.config.native_char_set, key)
            .unwrap_or(Ior::NIL);
        ObjectRef::new(Arc::clone(self), ior)
    }

    /// What references ask for that say nothing themselves.
    pub(crate) fn asked(&self) -> &Asked {
        &self.config.asked
    }

    /// The profiles of `ior` that a transport serves, bound to their connections; true if ClientProtocol policies leave some out.
    pub(crate) fn usable_profiles(&self, ior: &Ior, asked: &Asked) -> (Vec<Profile>, bool) {
        let found = crate::address::profiles(ior, self.config.version, self.config.native_char_set);
        let mut left_out = false;
        let mut profiles: Vec<(usize, Profile)> = found
            .into_iter()
            .filter_map(|found| {
                let endpoints: Vec<Endpoint> =
                    found.endpoints.into_iter().filter(|endpoint| self.reaches(endpoint)).collect();
                let first = endpoints.first()?;
                let Some((rank, sockets)) =
                    client::protocols(asked, &found.said).and_then(|all| client::rank(all, first))
                else {
                    left_out = true;
                    return None;
                };
                let bands = self.connections(endpoints, sockets, asked.private);
                let lanes = || {
                    let reached = found.lanes.into_iter().filter(|lane| self.reaches(&lane.endpoint));
                    let mut lanes: Vec<(i16, Arc<Bands>)> = reached
                        .map(|lane| (lane.priority, self.connections(vec![lane.endpoint], sockets, asked.private)))
                        .collect();
                    if lanes.is_empty() {
                        lanes.push((-1, Arc::clone(&bands)));
                    }
                    lanes
                };
                let lanes = Lanes::new(&found.said, asked, lanes).map(Box::new);
                let profile = Profile {
                    bands,
                    lanes,
                    object_key: found.object_key.into(),
                    version: found.version,
                    code_sets: found.code_sets,
                    default_code_sets: found.default_code_sets,
                    index: found.index,
                    is_ours: found.is_ours,
                    said: found.said,
                };
                Some((rank, profile))
            })
            .collect();
        // The reference's own order holds among those of one protocol.
        profiles.sort_by_key(|(rank, _)| *rank);
        (profiles.into_iter().map(|(_, profile)| profile).collect(), left_out)
    }

    fn reaches(&self, endpoint: &Endpoint) -> bool {
        self.transports.for_endpoint(endpoint).is_some()
    }

    fn connections(&self, endpoints: Vec<Endpoint>, sockets: Sockets, private: bool) -> Arc<Bands> {
        if !private {
            return self.server(endpoints, sockets);
        }
        let bands = Arc::new(Bands::new(&endpoints, sockets, self.config.connections_per_server));
        let mut private = self.private.lock();
        if private.len() == private.capacity() {
            // Only where it is full: else each of many references with private connections would look at those of all others.
            private.retain(|bands| bands.strong_count() > 0);
            let room = private.len().max(16);
            private.reserve(room);
        }
        private.push(Arc::downgrade(&bands));
        bands
    }

    /// The object key of `ior` if it may be an object of this ORB: a transient key of this very ORB, or any key at an address
    /// that this ORB publishes.
    pub(crate) fn local_key(&self, ior: &Ior) -> Option<Box<[u8]>> {
        let mut published = self.published_at().to_vec();
        let lanes = self.rt.lanes();
        published.extend(lanes.iter().flat_map(|lane| lane.endpoints()).map(|endpoint| self.published(endpoint)));
        crate::address::profiles(ior, self.config.version, self.config.native_char_set).into_iter().find_map(|found| {
            let own_stamp = match Key::parse(&found.object_key) {
                Key::System { stamp, .. } | Key::User { stamp, .. } => stamp == self.adapters.stamp,
                Key::Persistent { .. } | Key::Hinted { .. } | Key::Plain => {
                    found.endpoints.iter().any(|endpoint| published.contains(endpoint))
                }
            };
            own_stamp.then(|| found.object_key.into())
        })
    }

    pub(crate) fn string_to_object(self: &Arc<Self>, text: &str) -> Result<Option<ObjectRef>, SystemException> {
        match crate::address::parse(text, &self.config.limits)? {
            Ok(ior) => Ok((!ior.is_nil()).then(|| ObjectRef::new(Arc::clone(self), ior))),
            Err(name) => self.initial_reference(&name).map(Some),
        }
    }

    /// A reference that was registered under a name.
    pub(crate) fn initial_reference(&self, name: &str) -> Result<ObjectRef, SystemException> {
        self.initial.lock().get(name).cloned().ok_or_else(|| {
            SystemException::new(Kind::BadParam, minor::bad_param::URL_OTHER, Completion::No)
                .because(format!("no initial reference \"{name}\" is registered with this ORB"))
        })
    }

    /// Registers a reference under a name; false if the name is taken or empty.
    pub(crate) fn register_initial(&self, name: &str, reference: &ObjectRef) -> Result<bool, SystemException> {
        let mut initial = self.initial.lock();
        // Looked at under the lock: once the end has begun, whatever is in the table goes, and nothing new may come.
        self.check_usable()?;
        let free = !name.is_empty() && !initial.contains_key(name);
        if free {
            initial.insert(name.to_owned(), reference.clone());
        }
        Ok(free)
    }

    /// Ends everything, for a thread of this ORB, which cannot wait for itself: another thread does.
    #[cold]
    pub(crate) fn shutdown_elsewhere(self: &Arc<Self>) {
        self.shutdown(Patience::None);
        if corelane_sys::process::generation() != self.forks {
            return;
        }
        let core = Arc::clone(self);
        // The end is not urgent, whatever the priority of who began it.
        let ender = Builder::new().name("orb/end").stack_size(256 * 1024);
        let ender = ender.scheduling(Scheduling::Other).preferred_affinity(self.cores);
        if ender.spawn(move || core.shutdown(Patience::Endless)).is_err() {
            // Without a thread nobody waits for the others: they are told to end, and do when their requests are done.
            let lanes = self.all_lanes();
            let threads: Vec<_> = lanes.iter().flat_map(|lane| lane.stop()).collect();
            drop((threads, std::mem::take(&mut *self.threads.lock()), self.rt.take_threads()));
            self.events.replies_unread(lanes.iter().flat_map(|lane| lane.cut_endings()));
            self.watcher.tell();
        }
    }

    /// Ends everything; see [`Orb::shutdown`](super::Orb::shutdown).
    pub(crate) fn shutdown(self: &Arc<Self>, patience: Patience) {
        if corelane_sys::process::generation() != self.forks {
            // A forked child has the parent's connections and none of its threads: nothing here is its to end.
            return;
        }
        let patient = match patience {
            Patience::None => Some(Monotonic::from_nanos(0)),
            Patience::ClosingTime => Some(Monotonic::now() + self.config.closing_time),
            Patience::Endless => None,
        };
        if self.state.compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let root = self.root_poa();
            // Whoever is called back on the way would wait for itself.
            let _frame = Upcall::enter_callback(root.core());
            // No other thread comes for them any more, and the end waits for them.
            self.main.stop().for_each(|end| end());
            let initial = std::mem::take(&mut *self.initial.lock());
            for reference in initial.into_values() {
                // One with direct calls keeps its servant.
                root.core().let_go_of("Servant", || drop(reference));
            }
            root.end(patient);
            self.adapters.close();
            for lane in self.all_lanes() {
                lane.close(self);
            }
            // Whoever had no more patience may have gone on to the end.
            self.state.fetch_max(CLOSED, Ordering::AcqRel);
            self.closing.open();
        }
        if patience == Patience::None {
            return;
        }
        // Another thread may have begun the end, and not be through with what is to be closed in good order.
        let through = || (self.state.load(Ordering::Acquire) >= CLOSED).then_some(());
        let _ = self.closing.wait(patient, through);
        // Or it had less patience.
        self.root_poa().core().wait_for_end(patient);
        let until = Monotonic::now() + self.config.closing_time;
        let lanes = self.all_lanes();
        while lanes.iter().any(|lane| lane.is_closing(self)) && !until.is_past() {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.join(&lanes, patience);
    }

    /// Ends what is left once every connection has been told, or had its time.
    fn join(&self, lanes: &[Arc<Lane>], patience: Patience) {
        let mut threads = self.threads.lock();
        if self.state.load(Ordering::Acquire) == ENDED {
            return;
        }
        threads.extend(lanes.iter().flat_map(|lane| lane.stop()));
        let unread: Vec<Peer> = lanes.iter().flat_map(|lane| lane.cut_endings()).collect();
        threads.extend(self.rt.take_threads());
        let until = Monotonic::now() + self.config.closing_time;
        for thread in threads.drain(..) {
            if patience == Patience::ClosingTime {
                while !thread.is_finished() && !until.is_past() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if !thread.is_finished() {
                    // In a servant still: it ends when that returns.
                    continue;
                }
            }
            // A thread that panicked has already been reported; its end is what matters here.
            let _ = thread.join();
        }
        let mut servers: Vec<Arc<Bands>> = self.servers.lock().drain().map(|(_, server)| server).collect();
        servers.extend(self.private.lock().drain(..).filter_map(|server| server.upgrade()));
        for server in servers {
            server.pools().for_each(|pool| pool.close_idle());
        }
        self.replies.stop();
        self.watcher.stop();
        self.transports.end();
        self.spares.end();
        self.state.store(ENDED, Ordering::Release);
        drop(threads);
        // Whoever is told may look at the ORB, or end it once more.
        self.events.replies_unread(unread);
    }
}
