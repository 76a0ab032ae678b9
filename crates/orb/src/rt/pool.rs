//! The creation and destruction of Real-time CORBA thread pools.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};

use corelane_net::{Endpoint, IoClass, IoProperties, Listener};
use corelane_sched::Priority;
use corelane_sched::overload::OverloadRules;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{CpuSet, Scheduling};
use corelane_wire::exception::minor;

use super::config::{LaneConfig, LanesConfig, ThreadpoolConfig, UnmatchedPriority};
use super::registry::{Threadpool, report_reachable};
use crate::adapter::ObjectAdapter;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::server;
use crate::server::config::{Dispatch, PoolConfig};
use crate::server::lane_role::LaneRole;
use crate::server::strategy::Lane;
use crate::server::strategy::overload::OverloadThread;
use crate::thread_context::{self, ThreadpoolId};

/// The reason why a thread pool cannot be destroyed (`RTCORBA::RTORB::InvalidThreadpool`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidThreadpool {
    /// No thread pool of the ORB has this id.
    Unknown,
    /// The ORB raises the system exception in the field: BAD_INV_ORDER if a POA uses the pool, if
    /// the calling thread belongs to the pool, or after shutdown.
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

/// Maximum number of threads of a lane, of a pool without lanes, and of each kind in a core pool;
/// also the maximum number of a core pool's endpoints for tasks.
pub(super) const MAX_THREADS: u32 = 4096;

pub(super) fn bad_param(why: impl Into<String>) -> SystemException {
    SystemException::new(Kind::BadParam, 0, Completion::No).with_message(why)
}

pub(super) fn no_resources(why: impl Into<String>) -> SystemException {
    SystemException::new(Kind::NoResources, 0, Completion::No).with_message(why)
}

pub(crate) fn create(adapter: &Arc<ObjectAdapter>, config: &ThreadpoolConfig) -> Result<ThreadpoolId, SystemException> {
    let lane = LaneConfig {
        priority: config.default_priority,
        static_threads: config.static_threads,
        dynamic_threads: config.dynamic_threads,
        listen: config.listen.clone(),
        max_request_priority: config.max_request_priority,
        cores: config.cores.clone(),
        reservation: None,
        io_class: IoClass::BestEffort,
        spin_policy: None,
    };
    let lanes = LanesConfig::default()
        .name(config.name.clone())
        .thread_stack_size(config.thread_stack_size)
        .lanes([lane])
        .unmatched_priority(UnmatchedPriority::Refuse)
        .allow_borrowing(false)
        .buffering(config.buffering)
        .idle_thread_timeout(config.idle_thread_timeout)
        .nested_wait(config.nested_wait)
        .spin_policy(config.spin_policy)
        .connection_limits(config.connection_limits.clone());
    create_pool(adapter, &lanes, false)
}

pub(crate) fn create_with_lanes(
    adapter: &Arc<ObjectAdapter>,
    config: &LanesConfig,
) -> Result<ThreadpoolId, SystemException> {
    create_pool(adapter, config, true)
}

fn create_pool(
    adapter: &Arc<ObjectAdapter>,
    config: &LanesConfig,
    with_lanes: bool,
) -> Result<ThreadpoolId, SystemException> {
    if config.lanes.is_empty() {
        return Err(bad_param("a pool must have at least one lane"));
    }
    let mut priorities = Vec::new();
    for lane in &config.lanes {
        let priority = Priority::new(lane.priority).ok_or_else(|| bad_param("a priority must be 0 to 32767"))?;
        if priorities.contains(&priority) {
            return Err(bad_param(format!("two lanes have priority {priority}")));
        }
        if lane.static_threads == 0 {
            return Err(bad_param("a pool, and each lane, must have at least one static thread"));
        }
        if lane.static_threads.saturating_add(lane.dynamic_threads) > MAX_THREADS {
            return Err(bad_param(format!("a pool, and each lane, can have at most {MAX_THREADS} threads")));
        }
        if lane.cores.iter().any(|cpu| *cpu >= CpuSet::CAPACITY) {
            return Err(bad_param(format!("the number of a core must be below {}", CpuSet::CAPACITY)));
        }
        priorities.push(priority);
    }
    let id = begin_pool(adapter)?;
    let mut lanes = Vec::new();
    for ((lane, priority), index) in config.lanes.iter().zip(&priorities).zip(0..) {
        let role = lane_role(adapter, config, lane, id.number(), index, *priority, with_lanes)?;
        lanes.push(open_lane(adapter, config, lane, role, with_lanes)?);
    }
    if config.allow_borrowing {
        set_borrowing_neighbours(&lanes);
    }
    let priorities = if with_lanes { priorities.into() } else { Box::default() };
    start_pool(adapter, id, lanes, priorities, config.unmatched_priority)
}

pub(super) fn begin_pool(adapter: &Arc<ObjectAdapter>) -> Result<ThreadpoolId, SystemException> {
    // The monitor starts first: if its start fails, there is nothing to undo.
    adapter.hangup_monitor().start().map_err(|error| no_resources(format!("a thread cannot be started: {error}")))?;
    adapter.server().enable_rt();
    Ok(ThreadpoolId::from_number(adapter.server().rt().last_id.fetch_add(1, Ordering::Relaxed) + 1))
}

pub(super) fn start_pool(
    adapter: &Arc<ObjectAdapter>,
    id: ThreadpoolId,
    lanes: Vec<Arc<Lane>>,
    priorities: Box<[Priority]>,
    unmatched_priority: UnmatchedPriority,
) -> Result<ThreadpoolId, SystemException> {
    let pool = Threadpool {
        id,
        lanes,
        priorities,
        unmatched_priority,
        threads: Mutex::new("pool threads", LockScope::Orb, Vec::new()),
    };
    let pool = Arc::new(pool);
    if let Some(lowest) = pool.lanes.iter().min_by_key(|lane| lane.priority()) {
        pool.lanes.iter().for_each(|lane| lane.set_lowest(lowest));
        server::delegate(&pool.lanes, lowest)
            .map_err(|error| no_resources(format!("a listener cannot be watched: {error}")))?;
    }
    report_reachable(adapter, &pool.lanes);
    for lane in &pool.lanes {
        let mut threads = pool.threads.lock();
        if let Err(error) = server::start(lane, adapter, &mut threads) {
            drop(threads);
            close_pool(adapter, &pool);
            return Err(no_resources(format!("a thread cannot be started: {error}")));
        }
    }
    let mut pools = adapter.server().rt().pools.lock();
    // The shutdown of the ORB takes the pools under this lock, so either the shutdown closes this
    // pool or this check fails.
    if let Err(ended) = adapter.check_usable() {
        drop(pools);
        close_pool(adapter, &pool);
        return Err(ended);
    }
    pools.push(pool);
    Ok(id)
}

fn set_borrowing_neighbours(lanes: &[Arc<Lane>]) {
    let mut falling: Vec<&Arc<Lane>> = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let at = falling.partition_point(|other| other.priority() >= lane.priority());
        falling.insert(at, lane);
    }
    for lane in lanes {
        let (lower, others): (Vec<&Arc<Lane>>, _) =
            falling.iter().partition(|other| other.priority() < lane.priority());
        let upper = others.into_iter().filter(|other| other.priority() > lane.priority());
        if let Some(overload) = lane.overload() {
            overload
                .set_neighbours(lower.into_iter().map(Arc::downgrade).collect(), upper.map(Arc::downgrade).collect());
        }
    }
}

fn lane_role(
    adapter: &ObjectAdapter,
    config: &LanesConfig,
    lane: &LaneConfig,
    pool: u32,
    index: u32,
    priority: Priority,
    is_lane: bool,
) -> Result<LaneRole, SystemException> {
    let allowed = |ceiling| {
        let ceiling = Priority::new(ceiling).filter(|ceiling| *ceiling >= priority);
        ceiling.ok_or_else(|| bad_param("a ceiling must not be below its lane's priority"))
    };
    let ceiling = lane.max_request_priority.map(allowed).transpose()?;
    let cores: CpuSet = lane.cores.iter().copied().collect();
    let overload_rules = OverloadRules {
        dynamic_threads: lane.dynamic_threads,
        can_borrow: config.allow_borrowing,
        buffering: config.buffering,
    };
    Ok(LaneRole {
        pool,
        index,
        priority,
        ceiling,
        is_lane,
        is_highest: config.lanes.iter().all(|other| other.priority <= priority.get()),
        scheduling: lane_scheduling(adapter, config, lane, priority)?,
        cores: (!cores.is_empty()).then_some(cores),
        static_threads: lane.static_threads,
        overload_rules,
        task_listeners: 0,
        idle_thread_timeout: config.idle_thread_timeout,
    })
}

fn lane_scheduling(
    adapter: &ObjectAdapter,
    config: &LanesConfig,
    lane: &LaneConfig,
    priority: Priority,
) -> Result<Option<Scheduling>, SystemException> {
    let native = adapter.config().rt.scheduling_for(priority)?;
    let Some(reservation) = lane.reservation else { return Ok(native) };
    if !reservation.is_valid() {
        return Err(bad_param("a reservation must have processor time <= deadline <= period"));
    }
    if !lane.cores.is_empty() || config.allow_borrowing {
        return Err(bad_param("a lane with a reservation cannot have cores or borrowing"));
    }
    Ok(native.map(|_| Scheduling::Deadline(reservation)))
}

pub(super) fn open_listeners(
    adapter: &Arc<ObjectAdapter>,
    addresses: &[String],
    role: &LaneRole,
    class: IoClass,
) -> Result<Vec<Box<dyn Listener>>, SystemException> {
    let priority = role.scheduling.map(Scheduling::priority);
    let native_priority = priority.filter(|native| Scheduling::FIXED_PRIORITIES.contains(native));
    let io = IoProperties { class, native_priority, cores: role.cores };
    let mut endpoints = Vec::new();
    for address in addresses {
        let endpoint = crate::listen_address::parse(address, adapter.transports());
        let refused = || {
            let why = crate::listen_address::scheme_error(address);
            bad_param(format!("\"{address}\" is not an address: {why}{}", crate::listen_address::SYNTAX))
        };
        endpoints.push(endpoint.ok_or_else(refused)?);
    }
    if addresses.is_empty() {
        let suffix = format!("-{}-{}", role.pool, role.index);
        endpoints = adapter.listening().iter().map(|endpoint| sibling_endpoint(endpoint, &suffix)).collect();
    }
    let mut listeners = Vec::new();
    for endpoint in endpoints {
        let listener = adapter.transports().listen_with_io_properties(&endpoint, &io);
        listeners.push(listener.map_err(|error| no_resources(format!("cannot listen at {endpoint}: {error}")))?);
    }
    Ok(listeners)
}

fn open_lane(
    adapter: &Arc<ObjectAdapter>,
    config: &LanesConfig,
    lane: &LaneConfig,
    role: LaneRole,
    with_lanes: bool,
) -> Result<Arc<Lane>, SystemException> {
    let listeners = open_listeners(adapter, &lane.listen, &role, lane.io_class)?;
    let threads = usize::try_from(lane.static_threads).unwrap_or(usize::MAX);
    let name = if with_lanes { format!("{}/p{}", config.name, role.priority) } else { config.name.clone() };
    let dispatch = Dispatch::LeaderFollowers { threads };
    let pool = PoolConfig::default().name(name).dispatch(dispatch).thread_stack_size(config.thread_stack_size);
    let pool = pool.nested_wait(config.nested_wait).connection_limits(config.connection_limits.clone());
    let pool = pool.spin_policy(lane.spin_policy.or(config.spin_policy).or(adapter.config().spin_policy));
    let failed = |error: io::Error| no_resources(error.to_string());
    let overload = if role.overload_rules.needs_overload_thread() {
        Some(OverloadThread::new::<ObjectAdapter>().map_err(failed)?)
    } else {
        None
    };
    Lane::new(pool, listeners, adapter.config().drain_timeout, Some(role), overload).map_err(failed)
}

/// Returns the endpoint with port 0 (a free port), or with `suffix` appended to its path or other
/// address.
pub(super) fn sibling_endpoint(endpoint: &Endpoint, suffix: &str) -> Endpoint {
    let mut sibling = endpoint.clone();
    match &mut sibling {
        Endpoint::Tcp { port, .. } => *port = 0,
        Endpoint::Unix { path } | Endpoint::SharedMemory { path } => path.as_mut_os_string().push(suffix),
        Endpoint::Other(address) => *address = address.with_suffix(suffix),
        _ => {}
    }
    sibling
}

pub(crate) fn destroy(adapter: &Arc<ObjectAdapter>, id: ThreadpoolId) -> Result<(), InvalidThreadpool> {
    let pool = adapter.server().rt().pool(id).ok_or(InvalidThreadpool::Unknown)?;
    if thread_context::current_lane(adapter.stamp()).pool == id.number() {
        return Err(
            SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::WOULD_DEADLOCK, Completion::No).into()
        );
    }
    if adapter.poa_table().uses_pool(id) {
        let exception = SystemException::new(Kind::BadInvOrder, 0, Completion::No);
        return Err(exception.with_message("a POA uses the thread pool; destroy it first").into());
    }
    {
        let mut pools = adapter.server().rt().pools.lock();
        let at = pools.iter().position(|pool| pool.id == id).ok_or(InvalidThreadpool::Unknown)?;
        pools.remove(at);
    }
    close_pool(adapter, &pool);
    Ok(())
}

fn close_pool(adapter: &Arc<ObjectAdapter>, pool: &Threadpool) {
    for lane in &pool.lanes {
        lane.close(adapter);
    }
    let until = Monotonic::now() + adapter.config().drain_timeout;
    while pool.lanes.iter().any(|lane| lane.poll_all_draining(adapter)) && !until.is_past() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut threads = std::mem::take(&mut *pool.threads.lock());
    threads.extend(pool.lanes.iter().flat_map(|lane| lane.stop()));
    adapter.events().replies_unread(pool.lanes.iter().flat_map(|lane| lane.abort_draining()));
    for thread in threads {
        // The panic hook has reported a panic of the thread, so the result is ignored.
        let _ = thread.join();
    }
}
