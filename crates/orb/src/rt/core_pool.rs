//! Core pools: thread pools that serve the connections of tasks on the tasks' cores.

use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::IoClass;
use corelane_net::{Endpoint, Listener};
use corelane_sched::Priority;
use corelane_sched::overload::OverloadRules;
use corelane_sys::clock::Monotonic;
use corelane_sys::cpu_budget::CpuBudgetMonitor;
use corelane_sys::thread::{self, CpuSet, Scheduling};

use super::config::{SchedulingClass, UnmatchedPriority};
use super::core_config::{
    BestEffortShare, BestEffortUse, CorePoolConfig, CorePoolCounts, CorePoolMode, JobBatch, RefusedTask, TaskBinder,
    TaskBinding, TaskMeasurement,
};
use super::overrun;
use super::pool::{self, MAX_THREADS, bad_param, no_resources};
use super::task_endpoint::{TaskEndpoint, TaskEndpoints};
use crate::adapter::ObjectAdapter;
use crate::event::Event;
use crate::exception::SystemException;
use crate::server::config::{Dispatch, PoolConfig};
use crate::server::lane_role::LaneRole;
use crate::server::strategy::Lane;
use crate::server::strategy::core_pool::{CorePoolSettings, CorePoolThreads, MOST_DEADLINE_PRIORITY};
use crate::thread_context::ThreadpoolId;

/// A core pool: threads on each core that serve the connections of tasks, and threads that serve
/// all other requests.
///
/// POAs use the pool by its [`id`](Self::id), as a pool without lanes. A request belongs to a task
/// if the pool's [`TaskBinder`] returns a task for its object key. With the first such request on a
/// connection, LocateRequests included, a free thread for tasks, if there is one, becomes the only
/// reader of the connection. It serves the requests of this object key at the task's core and
/// priority, whatever priority the requests carry and to whichever POA the object belongs. Requests
/// of another task on this connection are handed over to another free thread for tasks, if there is
/// one, and requests without a task to the [best-effort
/// threads](field@CorePoolConfig::best_effort_threads).
///
/// This is the default [mode](field@CorePoolConfig::mode). In the modes
/// [`Manager`](CorePoolMode::Manager) and [`LeaderFollowers`](CorePoolMode::LeaderFollowers) a
/// thread above all tasks reads each request, and no connection is bound.
///
/// A `CorePool` does not keep its ORB alive. [`RtOrb::destroy_threadpool`](super::RtOrb) destroys
/// the pool.
#[derive(Clone, Debug)]
pub struct CorePool {
    id: ThreadpoolId,
    lane: Weak<Lane>,
    endpoints: Arc<TaskEndpoints>,
    orb: Weak<ObjectAdapter>,
}

impl CorePool {
    /// Returns the id of the pool, for [`RtPolicies::threadpool`](super::RtPolicies).
    #[must_use]
    pub fn id(&self) -> ThreadpoolId {
        self.id
    }

    /// Replaces the tasks whose connections the pool serves.
    ///
    /// The threads of bound connections take changed cores and priorities at once. The thread of a
    /// task that is not in `tasks` finishes its running request. Within 100 ms of the end of this
    /// request, the thread returns the connection to the [best-effort
    /// threads](field@CorePoolConfig::best_effort_threads). A request that waits because it is
    /// above the [rate](field@super::TaskRules::min_interarrival) of its task runs when the new
    /// rate permits it. If its task has ended, the request runs at once as best effort. Has no
    /// effect after the end of the pool.
    ///
    /// # Errors
    /// BAD_PARAM for a priority that is not 1 to 99, for a priority below 98 of a task with a
    /// deadline, for a priority above 97 of another task if the pool has a [share for best
    /// effort](field@CorePoolConfig::best_effort_share), for the priority 99 if a thread above all
    /// tasks reads their requests, and for the number of a core that the kernel cannot have. The
    /// tasks then stay as they are.
    pub fn set_tasks(&self, tasks: &[TaskBinding]) -> Result<(), SystemException> {
        self.set_tasks_and_demoted(tasks, &[])
    }

    /// Replaces the tasks as [`set_tasks`](Self::set_tasks) does. The pool keeps the measurements
    /// of the `demoted` tasks, which have no core at present. Their requests run as best effort,
    /// and are not jobs.
    ///
    /// # Errors
    /// The errors of [`set_tasks`](Self::set_tasks).
    pub fn set_tasks_and_demoted(&self, tasks: &[TaskBinding], demoted: &[u64]) -> Result<(), SystemException> {
        let most = |has_deadline| Some(self.lane.upgrade()?.core_pool()?.most_task_priority(has_deadline));
        for task in tasks {
            if let Some(most) = most(task.rules.deadline.is_some()).filter(|most| task.priority > *most) {
                return Err(bad_param(format!("task {}: a native priority must be 1 to {most}", task.task)));
            }
            if !Scheduling::FIXED_PRIORITIES.contains(&task.priority) {
                return Err(bad_param(format!("task {}: a native priority must be 1 to 99", task.task)));
            }
            if task.rules.deadline.is_some() && task.priority <= MOST_DEADLINE_PRIORITY {
                return Err(bad_param(format!(
                    "task {}: a task with a deadline needs the priority 98 or 99",
                    task.task
                )));
            }
            if task.core >= CpuSet::CAPACITY {
                let why = format!("task {}: the number of a core must be below {}", task.task, CpuSet::CAPACITY);
                return Err(bad_param(why));
            }
        }
        self.with_threads(|threads| threads.set_tasks(tasks, demoted));
        Ok(())
    }

    /// Limits tasks to one operation each. Requests for other operations are best effort, and are
    /// not jobs. A task that is not in `operations` has no limit. Replaces the earlier limits; call
    /// this method before the task is first in [`set_tasks`](Self::set_tasks). Has no effect after
    /// the end of the pool.
    pub fn set_operations(&self, operations: &[(u64, &str)]) {
        self.with_threads(|threads| threads.set_operations(operations));
    }

    /// Takes an endpoint for the references of one task
    /// ([`Poa::create_reference_at`](crate::poa::Poa::create_reference_at)). The drop of the
    /// endpoint returns it to the pool. Takes the endpoint that has been free the longest; returns
    /// `None` if no endpoint is free, and after the end of the pool.
    #[must_use]
    pub fn take_task_endpoint(&self) -> Option<TaskEndpoint> {
        self.lane.upgrade().filter(|lane| !lane.is_closing())?;
        self.endpoints.take()
    }

    /// Takes the free endpoint that has these addresses, in the form of
    /// [`OrbBuilder::listen`](crate::OrbBuilder::listen). With it, a server that restarts gives a
    /// task its earlier endpoint ([`CorePoolConfig::task_addresses`]). Returns `None` if no free
    /// endpoint has the addresses, and after the end of the pool.
    #[must_use]
    pub fn take_task_endpoint_at(&self, addresses: &[String]) -> Option<TaskEndpoint> {
        self.lane.upgrade().filter(|lane| !lane.is_closing())?;
        self.endpoints.take_at(addresses)
    }

    /// Returns the addresses of the references that have no [`TaskEndpoint`]. No address has port
    /// 0.
    #[must_use]
    pub fn addresses(&self) -> &[Endpoint] {
        self.endpoints.shared()
    }

    /// Returns the addresses of each endpoint of tasks, taken or free.
    #[must_use]
    pub fn task_addresses(&self) -> &[Vec<Endpoint>] {
        self.endpoints.addresses()
    }

    /// Returns the tasks that have left the set since the last call of this method, because the
    /// kernel refused a core or a priority that it had permitted to the pool before.
    ///
    /// The thread of such a task keeps the core and the priority that it had, for the request that
    /// it may be running. Further requests of the task are best effort until the task is in a new
    /// set. [`Event::TaskRefused`](crate::Event::TaskRefused) reports the task
    /// ([`report_refused_tasks`](Self::report_refused_tasks)).
    /// [`mark_core_lost`](Self::mark_core_lost) forgets the refusals of the lost core that this
    /// method has not returned yet, because the core's tasks get other cores. The pool keeps at
    /// most 10,000 refusals. The list is empty after the end of the pool.
    #[must_use]
    pub fn take_refused_tasks(&self) -> Vec<RefusedTask> {
        self.lane.upgrade().and_then(|lane| Some(lane.core_pool()?.take_refused_tasks())).unwrap_or_default()
    }

    /// Reports [`Event::TaskRefused`](crate::Event::TaskRefused) for each refused task that the
    /// pool's threads have not reported yet. The threads report such a task with the next request
    /// of a task at the latest. [`set_tasks`](Self::set_tasks) reports nothing, because its caller
    /// may hold locks. The caller of this method must hold no lock that the ORB's event callback
    /// may need.
    pub fn report_refused_tasks(&self) {
        if let (Some(orb), Some(lane)) = (self.orb.upgrade(), self.lane.upgrade())
            && let Some(threads) = lane.core_pool()
        {
            threads.report_refusal(&orb, &lane.config.name);
        }
    }

    /// Puts no thread on a core until [`mark_core_returned`](Self::mark_core_returned), because the
    /// kernel lets no thread of the process run on it. The caller then passes the new set of tasks
    /// to [`set_tasks`](Self::set_tasks).
    pub fn mark_core_lost(&self, core: usize) {
        self.with_threads(|threads| threads.mark_core_lost(core));
    }

    /// Puts the threads of a lost core back on it, because threads of the process can run on it
    /// again. The caller then passes the new set of tasks to [`set_tasks`](Self::set_tasks).
    pub fn mark_core_returned(&self, core: usize) {
        self.with_threads(|threads| threads.mark_core_returned(core));
    }

    /// Reports [`Event::CoreLost`](crate::Event::CoreLost): other cores run `moved` tasks of the
    /// core, and `demoted` tasks have no core. The caller must hold no lock that the ORB's event
    /// callback may need.
    pub fn report_lost_core(&self, core: usize, moved: usize, demoted: usize) {
        self.report(&|pool| Event::CoreLost { pool, core, moved, demoted });
    }

    /// Reports [`Event::CoreReturned`](crate::Event::CoreReturned): the core runs `restored` tasks
    /// again. The caller must hold no lock that the ORB's event callback may need.
    pub fn report_returned_core(&self, core: usize, restored: usize) {
        self.report(&|pool| Event::CoreReturned { pool, core, restored });
    }

    fn with_threads(&self, work: impl FnOnce(&CorePoolThreads)) {
        if let Some(lane) = self.lane.upgrade()
            && let Some(threads) = lane.core_pool()
        {
            work(threads);
        }
    }

    fn report(&self, event: &dyn Fn(String) -> Event) {
        if let (Some(orb), Some(lane)) = (self.orb.upgrade(), self.lane.upgrade()) {
            orb.events().report(&event(lane.config.name.clone()));
        }
    }

    /// Returns the pool's counts. All are 0 after the end of the pool.
    #[must_use]
    pub fn counts(&self) -> CorePoolCounts {
        self.lane.upgrade().and_then(|lane| Some(lane.core_pool()?.counts())).unwrap_or_default()
    }

    /// Returns the use of the [share for best effort](field@CorePoolConfig::best_effort_share) of
    /// each core. The list is empty for a pool without a share, and after the end of the pool.
    #[must_use]
    pub fn best_effort_uses(&self) -> Vec<BestEffortUse> {
        self.lane.upgrade().and_then(|lane| Some(lane.core_pool()?.best_effort_uses())).unwrap_or_default()
    }

    /// Returns the measured times of all tasks of the pool, demoted tasks included, in the order of
    /// their numbers. The list is empty after the end of the pool.
    #[must_use]
    pub fn measurements(&self) -> Vec<TaskMeasurement> {
        self.lane.upgrade().and_then(|lane| Some(lane.core_pool()?.measurements())).unwrap_or_default()
    }

    /// Records each job that begins within `span` from now. After several calls of this method, the
    /// latest end counts. The pool keeps the last
    /// [`max_recorded_jobs`](CorePoolConfig::max_recorded_jobs) records, whose memory the first
    /// call of this method allocates.
    pub fn record_jobs_for(&self, span: Duration) {
        if let Some(lane) = self.lane.upgrade()
            && let Some(threads) = lane.core_pool()
        {
            threads.record_jobs_until(Monotonic::now() + span);
        }
    }

    /// Returns records of jobs, the oldest first, beginning with the number `from`: the first
    /// `most` of them, or fewer if fewer are kept. The batch is empty after the end of the pool.
    #[must_use]
    pub fn recorded_jobs(&self, from: u64, most: usize) -> JobBatch {
        self.lane.upgrade().and_then(|lane| Some(lane.core_pool()?.recorded_jobs(from, most))).unwrap_or_default()
    }

    /// Returns the reason why the pool cannot guarantee the timing of its tasks: the kernel has
    /// refused a core or a priority to one of its threads, the ORB's threads are in the ordinary
    /// class, or the pool's threads run on all its cores ([`CorePoolMode::NoAffinity`]). Returns
    /// `None` otherwise, and after the end of the pool.
    #[must_use]
    pub fn missing_guarantee_reason(&self) -> Option<String> {
        self.lane.upgrade()?.core_pool()?.refusal()
    }
}

pub(crate) fn create(
    adapter: &Arc<ObjectAdapter>,
    config: &CorePoolConfig,
    binder: Arc<dyn TaskBinder>,
) -> Result<CorePool, SystemException> {
    if config.best_effort_threads == 0 || config.threads_per_core == 0 {
        return Err(bad_param("a core pool must have a best-effort thread, and a thread for each core"));
    }
    if config.best_effort_threads.max(config.max_threads) > MAX_THREADS {
        return Err(bad_param(format!("a core pool can have at most {MAX_THREADS} threads of each kind")));
    }
    if config.cores.iter().any(|core| *core >= CpuSet::CAPACITY) {
        return Err(bad_param(format!("the number of a core must be below {}", CpuSet::CAPACITY)));
    }
    let cores = match &*config.cores {
        [] => match adapter.cores() {
            Some(cores) => cores.iter().collect(),
            None => (0..thread::online_cores()).collect(),
        },
        cores => cores.to_vec(),
    };
    let count = |threads| usize::try_from(threads).unwrap_or(usize::MAX);
    if cores.len().saturating_mul(count(config.threads_per_core)) > count(config.max_threads) {
        return Err(bad_param("a core pool must not start with more threads than its maximum"));
    }
    if config.mode == CorePoolMode::LeaderFollowers && config.max_threads < 2 {
        return Err(bad_param("a core pool with leader/followers needs at least two threads"));
    }
    if config.task_endpoint_count > MAX_THREADS {
        return Err(bad_param(format!("a core pool can have at most {MAX_THREADS} endpoints of tasks")));
    }
    if let Some(BestEffortShare { budget, period, request_cost }) = config.best_effort_share {
        if !(Duration::from_millis(1)..=Duration::from_secs(3_600)).contains(&period) {
            return Err(bad_param("the period of the share for best effort must be 1 ms to 1 h"));
        }
        if budget < BestEffortShare::MAX_BUDGET_OVERRUN
            || budget.saturating_add(BestEffortShare::MAX_BUDGET_OVERRUN) >= period
        {
            let why =
                "the budget of the share for best effort must be at least 100 us, and 100 us less than the period";
            return Err(bad_param(why));
        }
        if request_cost >= budget {
            return Err(bad_param("the cost of a request must be less than the budget of the share for best effort"));
        }
    }
    let id = pool::begin_pool(adapter)?;
    let mut role = LaneRole {
        pool: id.number(),
        index: 0,
        priority: Priority::MIN,
        ceiling: None,
        // The threads never change their priority for a request, as in a lane.
        is_lane: true,
        is_highest: false,
        scheduling: None,
        cores: None,
        static_threads: config.best_effort_threads,
        overload_rules: OverloadRules { dynamic_threads: 0, can_borrow: false, buffering: None },
        task_listeners: 0,
        idle_thread_timeout: Duration::ZERO,
    };
    let mut listeners = pool::open_listeners(adapter, &config.listen, &role, IoClass::BestEffort)?;
    let shared: Vec<Endpoint> = listeners.iter().map(|listener| listener.local_endpoint().clone()).collect();
    let of_tasks = open_task_endpoints(adapter, &mut listeners, &shared, config)?;
    role.task_listeners = listeners.len() - shared.len();
    let best_effort_threads = count(config.best_effort_threads);
    let lane_config = PoolConfig::default()
        .name(config.name.clone())
        .dispatch(Dispatch::LeaderFollowers { threads: best_effort_threads })
        .thread_stack_size(config.thread_stack_size)
        .spin_policy(adapter.config().spin_policy)
        .connection_limits(config.connection_limits.clone());
    let settings = CorePoolSettings {
        cores,
        mode: config.mode,
        threads_per_core: count(config.threads_per_core),
        max_threads: count(config.max_threads),
        refuses_without_thread: config.refuses_without_thread,
        best_effort_threads,
        best_effort_share: config.best_effort_share,
        class: adapter.config().rt.scheduling,
        max_recorded_jobs: count(config.max_recorded_jobs),
        limits: adapter.config().limits.clone(),
    };
    if settings.class != SchedulingClass::Fair {
        overrun::ensure_cpu_monitor(adapter)
            .map_err(|error| no_resources(format!("a thread cannot be started: {error}")))?;
    }
    let threads = CorePoolThreads::new(settings, binder, adapter.cpu_monitor().map(CpuBudgetMonitor::budgets))
        .map_err(|error| no_resources(error.to_string()))?;
    let lane = Lane::of_core_pool(lane_config, listeners, adapter.config().drain_timeout, role, threads)
        .map_err(|error| no_resources(error.to_string()))?;
    if let Some(threads) = lane.core_pool() {
        threads.report_refusal(adapter, &lane.config.name);
    }
    let endpoints = Arc::new(TaskEndpoints::new(id, shared, of_tasks));
    let handle = CorePool { id, lane: Arc::downgrade(&lane), endpoints, orb: Arc::downgrade(adapter) };
    pool::start_pool(adapter, id, vec![lane], Box::default(), UnmatchedPriority::Refuse)?;
    Ok(handle)
}

/// Opens the endpoints of tasks, each with one address for each address of the pool. Adds their
/// listeners to `listeners`, and returns the addresses of each endpoint.
fn open_task_endpoints(
    adapter: &Arc<ObjectAdapter>,
    listeners: &mut Vec<Box<dyn Listener>>,
    shared: &[Endpoint],
    config: &CorePoolConfig,
) -> Result<Vec<Vec<Endpoint>>, SystemException> {
    let mut open = |of: &Endpoint, number: u32, wanted: Option<&String>| {
        let wanted = wanted.and_then(|address| crate::listen_address::parse(address, adapter.transports()));
        let at_wanted = wanted.and_then(|endpoint| adapter.transports().listen(&endpoint).ok());
        let listener = match at_wanted {
            Some(listener) => listener,
            None => {
                let endpoint = pool::sibling_endpoint(of, &format!("-t{number}"));
                let listener = adapter.transports().listen(&endpoint);
                listener.map_err(|error| no_resources(format!("cannot listen at {endpoint}: {error}")))?
            }
        };
        let address = listener.local_endpoint().clone();
        listeners.push(listener);
        Ok(address)
    };
    let mut endpoint = |number: u32| {
        let wanted = usize::try_from(number).ok().and_then(|place| config.task_addresses.get(place));
        let wanted = |place: usize| wanted.and_then(|addresses| addresses.get(place));
        shared.iter().enumerate().map(|(place, of)| open(of, number, wanted(place))).collect()
    };
    (0..config.task_endpoint_count).map(&mut endpoint).collect()
}
