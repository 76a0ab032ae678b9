//! Thread pools: how they are made, found, and ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};

use corelane_net::Endpoint;
use corelane_sched::Priority;
use corelane_sched::admission::Rules;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::overseer::Overseer;
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling};
use corelane_wire::exception::minor;

use super::config::{LaneConfig, LanesConfig, Overrun, RtConfig, SchedulingClass, ThreadpoolConfig};
use super::policies::RtPolicies;
use super::{RtMutex, station};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb::Core;
use crate::server;
use crate::server::config::{Dispatch, PoolConfig};
use crate::server::keeper::Keeper;
use crate::server::lane::Lane;

/// What tells the thread pools of an ORB apart (`RTCORBA::ThreadpoolId`). Never used again after the pool's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadpoolId(u32);

impl ThreadpoolId {
    pub(crate) fn from_number(number: u32) -> Self {
        ThreadpoolId(number)
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Why a pool is not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidThreadpool {
    /// There is no such pool.
    Unknown,
    /// BAD_INV_ORDER: a POA uses it, or the calling thread is one of its own.
    System(SystemException),
}

impl From<SystemException> for InvalidThreadpool {
    fn from(exception: SystemException) -> Self {
        InvalidThreadpool::System(exception)
    }
}

impl fmt::Display for InvalidThreadpool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidThreadpool::Unknown => f.write_str("there is no such thread pool"),
            InvalidThreadpool::System(exception) => exception.fmt(f),
        }
    }
}

impl std::error::Error for InvalidThreadpool {}

/// What a lane of a thread pool is for.
#[derive(Clone, Debug)]
pub(crate) struct Role {
    pub(crate) pool: u32,
    pub(crate) index: u32,
    /// That of the lane, or the default one of a pool without lanes.
    pub(crate) priority: Priority,
    /// The highest that a request coming in here may ask for.
    pub(crate) ceiling: Priority,
    /// A pool with lanes: threads never change their priority.
    pub(crate) is_lane: bool,
    /// No lane of the pool is higher.
    pub(crate) is_top: bool,
    pub(crate) native: Option<Scheduling>,
    pub(crate) cores: Option<CpuSet>,
    /// What becomes of requests while all threads are busy.
    pub(crate) static_threads: u32,
    pub(crate) rules: Rules,
    /// How long a dynamic thread waits for work.
    pub(crate) idle_time: Duration,
}

/// A thread pool.
#[derive(Debug)]
pub(crate) struct Threadpool {
    pub(crate) id: ThreadpoolId,
    pub(crate) lanes: Vec<Arc<Lane>>,
    /// Priorities of the lanes; empty without lanes.
    pub(crate) priorities: Box<[Priority]>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What an ORB keeps for real time, off the way of requests.
#[derive(Debug)]
pub(crate) struct Registry {
    /// In the order in which they were made.
    pools: Mutex<Vec<Arc<Threadpool>>>,
    /// The last pool's number.
    last: AtomicU32,
    /// Threads of different priorities may serve one connection.
    used: AtomicBool,
    pub(crate) policies: Mutex<RtPolicies>,
    /// Held while a POA says what its lanes' sockets are like.
    pub(crate) sockets: Mutex<()>,
    pub(crate) mutexes: Mutex<HashMap<String, RtMutex>>,
    /// Lowers threads whose operations take too long, if that is wanted.
    overseer: OnceLock<Overseer>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Registry {
            pools: Mutex::new("thread pools", Scope::Orb, Vec::new()),
            last: AtomicU32::new(station::DEFAULT_POOL),
            used: AtomicBool::new(false),
            policies: Mutex::new("real-time policies", Scope::Orb, RtPolicies::default()),
            sockets: Mutex::new("sockets of lanes", Scope::Orb, ()),
            mutexes: Mutex::new("named mutexes", Scope::Orb, HashMap::new()),
            overseer: OnceLock::new(),
        }
    }

    /// Starts what the configuration wants beside the lanes.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn oversee(&self, rt: &RtConfig) -> io::Result<()> {
        if !matches!(rt.overrun, Overrun::Lower(_)) || rt.scheduling == SchedulingClass::Fair {
            return Ok(());
        }
        const NAME: &str = "orb/overrun";
        // Where fixed priorities are refused lanes have none either.
        let overseer = thread::at_highest(|scheduling| Overseer::start(NAME, scheduling))?;
        // Once: an ORB starts once.
        let _ = self.overseer.set(overseer);
        Ok(())
    }

    pub(crate) fn overseer(&self) -> Option<&Overseer> {
        self.overseer.get()
    }

    /// Notes that this ORB has a thread pool, or a POA with priorities.
    pub(crate) fn note_used(&self) {
        self.used.store(true, Ordering::Release);
    }

    /// Whether it has had any.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    pub(crate) fn pool(&self, id: ThreadpoolId) -> Option<Arc<Threadpool>> {
        self.pools.lock().iter().find(|pool| pool.id == id).cloned()
    }

    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.pools.lock().iter().flat_map(|pool| pool.lanes.iter().cloned()).collect()
    }

    /// The threads of every pool; there will be no more.
    pub(crate) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        self.pools.lock().iter().flat_map(|pool| std::mem::take(&mut *pool.threads.lock())).collect()
    }
}

/// Threads of a pool, or of one lane, at most: a number from a configuration that is a mistake is told, before it has taken the system's last
/// thread from everybody.
const MOST_THREADS: u32 = 4096;

fn bad(why: impl Into<String>) -> SystemException {
    SystemException::new(Kind::BadParam, 0, Completion::No).because(why)
}

fn no_resources(why: impl Into<String>) -> SystemException {
    SystemException::new(Kind::NoResources, 0, Completion::No).because(why)
}

pub(crate) fn create(core: &Arc<Core>, config: &ThreadpoolConfig) -> Result<ThreadpoolId, SystemException> {
    let lane = LaneConfig {
        priority: config.default_priority,
        static_threads: config.static_threads,
        dynamic_threads: config.dynamic_threads,
        listen: config.listen.clone(),
        ceiling: config.ceiling,
        cores: config.cores.clone(),
        reservation: None,
    };
    let lanes = LanesConfig {
        name: config.name.clone(),
        stack: config.stack,
        lanes: vec![lane],
        allow_borrowing: false,
        buffering: config.buffering,
        idle_time: config.idle_time,
        bounds: config.bounds.clone(),
    };
    make(core, &lanes, false)
}

pub(crate) fn create_with_lanes(core: &Arc<Core>, config: &LanesConfig) -> Result<ThreadpoolId, SystemException> {
    make(core, config, true)
}

fn make(core: &Arc<Core>, config: &LanesConfig, with_lanes: bool) -> Result<ThreadpoolId, SystemException> {
    if config.lanes.is_empty() {
        return Err(bad("a pool has at least one lane"));
    }
    let mut priorities = Vec::new();
    for lane in &config.lanes {
        let priority = Priority::new(lane.priority).ok_or_else(|| bad("a priority is 0 to 32767"))?;
        if priorities.contains(&priority) {
            return Err(bad(format!("two lanes have priority {priority}")));
        }
        if lane.static_threads == 0 {
            return Err(bad("a pool, and each lane, has at least one static thread"));
        }
        if lane.static_threads.saturating_add(lane.dynamic_threads) > MOST_THREADS {
            return Err(bad(format!("a pool, and each lane, has at most {MOST_THREADS} threads")));
        }
        if lane.cores.iter().any(|core| *core >= CpuSet::CAPACITY) {
            return Err(bad(format!("a core's number is below {}", CpuSet::CAPACITY)));
        }
        priorities.push(priority);
    }
    // First, while failing leaves nothing behind.
    core.watch_lanes().map_err(|error| no_resources(format!("a thread cannot be started: {error}")))?;
    core.rt().note_used();
    let id = ThreadpoolId(core.rt().last.fetch_add(1, Ordering::Relaxed) + 1);
    let mut lanes = Vec::new();
    for ((lane, priority), index) in config.lanes.iter().zip(&priorities).zip(0..) {
        let role = role(core, config, lane, id.0, index, *priority, with_lanes)?;
        lanes.push(open(core, config, lane, role, with_lanes)?);
    }
    let priorities = if with_lanes { priorities.into() } else { Box::default() };
    let pool = Threadpool { id, lanes, priorities, threads: Mutex::new("pool threads", Scope::Orb, Vec::new()) };
    let pool = Arc::new(pool);
    if config.allow_borrowing {
        introduce(&pool.lanes);
    }
    for lane in &pool.lanes {
        let mut threads = pool.threads.lock();
        if let Err(error) = server::start(lane, core, &mut threads) {
            drop(threads);
            end(core, &pool);
            return Err(no_resources(format!("a thread cannot be started: {error}")));
        }
    }
    let mut pools = core.rt().pools.lock();
    // Under the lock: the end of the ORB, once it has begun, looks for pools under it.
    if let Err(ended) = core.check_usable() {
        drop(pools);
        end(core, &pool);
        return Err(ended);
    }
    pools.push(pool);
    Ok(id)
}

/// Tells each lane from which ones it may borrow threads, the highest first, and which ones may borrow from it.
fn introduce(lanes: &[Arc<Lane>]) {
    let mut falling: Vec<&Arc<Lane>> = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let at = falling.partition_point(|other| other.priority() >= lane.priority());
        falling.insert(at, lane);
    }
    for lane in lanes {
        let (lower, others): (Vec<&Arc<Lane>>, _) =
            falling.iter().partition(|other| other.priority() < lane.priority());
        let upper = others.into_iter().filter(|other| other.priority() > lane.priority());
        if let Some(keeper) = &lane.keeper {
            keeper.set_neighbours(lower.into_iter().map(Arc::downgrade).collect(), upper.map(Arc::downgrade).collect());
        }
    }
}

fn role(
    core: &Core,
    config: &LanesConfig,
    lane: &LaneConfig,
    pool: u32,
    index: u32,
    priority: Priority,
    is_lane: bool,
) -> Result<Role, SystemException> {
    let ceiling = match lane.ceiling {
        None => Priority::MAX,
        Some(ceiling) => Priority::new(ceiling)
            .filter(|ceiling| *ceiling >= priority)
            .ok_or_else(|| bad("a ceiling is not below its lane's priority"))?,
    };
    let cores: CpuSet = lane.cores.iter().copied().collect();
    let rules =
        Rules { dynamic_threads: lane.dynamic_threads, borrowing: config.allow_borrowing, buffering: config.buffering };
    Ok(Role {
        pool,
        index,
        priority,
        ceiling,
        is_lane,
        is_top: config.lanes.iter().all(|other| other.priority <= priority.get()),
        native: native(core, config, lane, priority)?,
        cores: (!cores.is_empty()).then_some(cores),
        static_threads: lane.static_threads,
        rules,
        idle_time: config.idle_time,
    })
}

/// How the kernel schedules the threads of a lane.
fn native(
    core: &Core,
    config: &LanesConfig,
    lane: &LaneConfig,
    priority: Priority,
) -> Result<Option<Scheduling>, SystemException> {
    let native = core.config().rt.native(priority)?;
    let Some(reservation) = lane.reservation else { return Ok(native) };
    if !reservation.is_valid() {
        return Err(bad("a reservation's processor time is within its deadline, and that within its period"));
    }
    if !lane.cores.is_empty() || config.allow_borrowing {
        return Err(bad("threads with a reservation run on all cores, and are not borrowed"));
    }
    Ok(native.map(|_| Scheduling::Deadline(reservation)))
}

/// Makes a lane that listens; its threads come later.
fn open(
    core: &Arc<Core>,
    config: &LanesConfig,
    lane: &LaneConfig,
    role: Role,
    with_lanes: bool,
) -> Result<Arc<Lane>, SystemException> {
    let mut endpoints = Vec::new();
    for address in &lane.listen {
        endpoints.push(crate::orb::parse_address(address).map_err(|error| bad(error.to_string()))?);
    }
    if lane.listen.is_empty() {
        endpoints = core.listening().iter().map(|endpoint| beside(endpoint, &role)).collect();
    }
    let mut listeners = Vec::new();
    for endpoint in endpoints {
        let listener = core.transports().listen(&endpoint);
        listeners.push(listener.map_err(|error| no_resources(format!("cannot listen at {endpoint}: {error}")))?);
    }
    let threads = usize::try_from(lane.static_threads).unwrap_or(usize::MAX);
    let name = if with_lanes { format!("{}/p{}", config.name, role.priority) } else { config.name.clone() };
    let stack = if config.stack == 0 { config.bounds.stack } else { config.stack };
    let dispatch = Dispatch::LeaderFollowers { threads };
    let pool = PoolConfig { name, dispatch, stack, ..config.bounds.clone() };
    let failed = |error: io::Error| no_resources(error.to_string());
    let keeper = if role.rules.need_a_keeper() { Some(Keeper::new().map_err(failed)?) } else { None };
    Lane::new(pool, listeners, core.config().closing_time, Some(role), keeper).map_err(failed)
}

/// A free address beside one of the ORB's own.
fn beside(endpoint: &Endpoint, role: &Role) -> Endpoint {
    match endpoint {
        Endpoint::Tcp { host, .. } => Endpoint::tcp(host, 0),
        Endpoint::Unix { path } => Endpoint::unix(beside_file(path, role)),
        Endpoint::SharedMemory { path } => Endpoint::shared_memory(beside_file(path, role)),
        other => other.clone(),
    }
}

fn beside_file(path: &std::path::Path, role: &Role) -> std::ffi::OsString {
    let mut path = path.as_os_str().to_owned();
    path.push(format!("-{}-{}", role.pool, role.index));
    path
}

pub(crate) fn destroy(core: &Arc<Core>, id: ThreadpoolId) -> Result<(), InvalidThreadpool> {
    let pool = core.rt().pool(id).ok_or(InvalidThreadpool::Unknown)?;
    if station::of_thread(core.adapters().stamp).pool == id.0 {
        return Err(
            SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::WOULD_DEADLOCK, Completion::No).into()
        );
    }
    if core.adapters().uses_pool(id) {
        let exception = SystemException::new(Kind::BadInvOrder, 0, Completion::No);
        return Err(exception.because("a POA uses the thread pool; destroy it first").into());
    }
    {
        let mut pools = core.rt().pools.lock();
        // Not there: another thread was faster.
        let at = pools.iter().position(|pool| pool.id == id).ok_or(InvalidThreadpool::Unknown)?;
        pools.remove(at);
    }
    end(core, &pool);
    Ok(())
}

/// Closes every lane in good order and joins the threads.
fn end(core: &Arc<Core>, pool: &Threadpool) {
    for lane in &pool.lanes {
        lane.close(core);
    }
    let until = Monotonic::now() + core.config().closing_time;
    while pool.lanes.iter().any(|lane| lane.is_closing(core)) && !until.is_past() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut threads = std::mem::take(&mut *pool.threads.lock());
    threads.extend(pool.lanes.iter().flat_map(|lane| lane.stop()));
    core.events().replies_unread(pool.lanes.iter().flat_map(|lane| lane.cut_endings()));
    for thread in threads {
        // A thread that panicked has already been reported; its end is what matters here.
        let _ = thread.join();
    }
}
