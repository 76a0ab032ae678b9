//! The configuration of core pools, and the tasks that a core pool serves.

use std::time::Duration;

use crate::server::config::ConnectionLimits;

/// A task of a core pool, with the core and the priority at which its requests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskBinding {
    /// The task's number, which [`TaskBinder::task_of`] returns for the task's object keys.
    pub task: u64,
    /// The number of the core, as the kernel counts cores.
    pub core: usize,
    /// The native priority, 1 to 99. The thread of a task with a
    /// [deadline](field@TaskRules::deadline) waits at this priority, 98 or 99, for its next job,
    /// and the job then takes the level of its deadline. A thread in the ordinary class
    /// ([`SchedulingClass::Fair`](super::SchedulingClass::Fair)) ignores the priority.
    pub priority: u8,
    /// The limits on the task's requests.
    pub rules: TaskRules,
}

impl TaskBinding {
    /// Creates the binding of a task without [`rules`](field@Self::rules).
    #[must_use]
    pub fn new(task: u64, core: usize, priority: u8) -> Self {
        TaskBinding { task, core, priority, rules: TaskRules::default() }
    }

    /// Sets [`rules`](field@Self::rules).
    #[must_use]
    pub fn rules(mut self, rules: TaskRules) -> Self {
        self.rules = rules;
        self
    }
}

/// The limits on the requests of a task. By default no limit applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct TaskRules {
    /// The processor time that each job may use, from the dispatch of its request until the reply
    /// is sent. `None` for no bound. Time during which the job waits or is preempted does not
    /// count.
    pub budget: Option<Duration>,
    /// The action on a job that has used its budget. Default: [`JobOverrunAction::Report`].
    pub overrun_action: JobOverrunAction,
    /// The shortest time between two requests of the task; `None` for no bound. A request may
    /// arrive earlier by up to [`jitter`](field@Self::jitter). One request that arrives still
    /// earlier waits until it may run. While it waits, clients of further two-way calls get
    /// TRANSIENT ([`minor::TASK_RATE`](crate::minor::TASK_RATE)), and further oneways are dropped.
    /// An early request for which the pool has no free thread is refused in the same way. The pool
    /// counts refused requests and reports
    /// [`Event::TaskRateExceeded`](crate::Event::TaskRateExceeded).
    ///
    /// A change of this time changes the end of a wait at once. The end of the task ends the wait.
    pub min_interarrival: Option<Duration>,
    /// The time by which a request may arrive early. Default: 0.
    pub jitter: Duration,
    /// The time from the arrival of a request to its deadline; `None` for a task whose jobs run at
    /// the task's priority. The running jobs of a core that have deadlines get native priorities of
    /// 2 to 97 in the order of their deadlines (EDF). Of two jobs with equal deadlines, the job
    /// that began on the core earlier, or moved to it earlier, comes first. A job arrives when its
    /// thread has read the request. If the request waited or another thread read it, the job
    /// arrives when its thread begins to run it.
    pub deadline: Option<Duration>,
    /// The shortest deadline that a request may ask for; `None` if every job has
    /// [`deadline`](field@Self::deadline). With a value, a request whose client still waits for a
    /// shorter time than `deadline` gets this time as its deadline, but at least this value.
    /// Clients of Corelane send the time with each call that has a precise time-out (service
    /// context 0x434c4e00). No request gets a longer deadline than `deadline`.
    ///
    /// An analysis must count the task with this deadline, because a job that runs earlier delays
    /// the jobs of other tasks.
    pub min_requested_deadline: Option<Duration>,
}

impl TaskRules {
    /// Sets [`budget`](field@Self::budget) and [`overrun_action`](field@Self::overrun_action).
    #[must_use]
    pub fn budget(mut self, time: Duration, overrun: JobOverrunAction) -> Self {
        (self.budget, self.overrun_action) = (Some(time), overrun);
        self
    }

    /// Sets [`deadline`](field@Self::deadline).
    #[must_use]
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = Some(time);
        self
    }

    /// Sets [`min_requested_deadline`](field@Self::min_requested_deadline).
    #[must_use]
    pub fn min_requested_deadline(mut self, time: Duration) -> Self {
        self.min_requested_deadline = Some(time);
        self
    }

    /// Sets [`min_interarrival`](field@Self::min_interarrival) and [`jitter`](field@Self::jitter).
    #[must_use]
    pub fn rate(mut self, min_interarrival: Duration, jitter: Duration) -> Self {
        (self.min_interarrival, self.jitter) = (Some(min_interarrival), jitter);
        self
    }
}

/// The action on a job that has used the processor time of its budget. In every case the pool
/// counts the job and reports [`Event::JobOverBudget`](crate::Event::JobOverBudget) at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum JobOverrunAction {
    /// The job continues unchanged.
    #[default]
    Report,
    /// The rest of the job runs in the ordinary class, below all tasks. If the ORB's threads are in
    /// the ordinary class, the job continues unchanged.
    Demote,
    /// The rest of the job runs as with [`Demote`](Self::Demote), and its client gets TIMEOUT
    /// ([`minor::OVERRUN`](crate::minor::OVERRUN)) in place of the results. If the servant raises
    /// an exception, the client gets the exception. A running servant is not interrupted; it can
    /// ask [`is_job_over_budget`](super::is_job_over_budget) and return.
    Stop,
}

/// The share of each core that requests without a task get even while tasks keep the core busy: a
/// budget of processor time in each period, at a priority above all tasks.
///
/// The share is a deferrable server: the threads of a core keep an unused budget until the end of
/// the period, and may use two budgets back to back. Threads that have used the budget run in the
/// ordinary class until the period ends. A period begins with the first work after the end of the
/// previous period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BestEffortShare {
    /// The processor time in each period: at least 100 us, and less than the period minus 100 us.
    /// The threads may exceed it by [`MAX_BUDGET_OVERRUN`](Self::MAX_BUDGET_OVERRUN) and the
    /// wake-up time of a thread.
    pub budget: Duration,
    /// The period, 1 ms to 1 h.
    pub period: Duration,
    /// The time that each piece of work costs beyond the processor time of its thread, less than
    /// the budget: the context switches by which a thread displaces a task and the task returns.
    /// The budget is charged with this time whenever a thread begins to work. 0 by default.
    pub request_cost: Duration,
}

impl BestEffortShare {
    /// The longest time for which the threads of a core may exceed the budget, not including the
    /// wake-up of the thread that lowers them. An analysis adds it to the budget.
    pub const MAX_BUDGET_OVERRUN: Duration = Duration::from_micros(100);

    /// Creates a share whose work costs nothing beyond its processor time.
    #[must_use]
    pub const fn new(budget: Duration, period: Duration) -> Self {
        BestEffortShare { budget, period, request_cost: Duration::ZERO }
    }

    /// Sets the time that each piece of work costs beyond its processor time.
    #[must_use]
    pub const fn request_cost(mut self, request_cost: Duration) -> Self {
        self.request_cost = request_cost;
        self
    }
}

/// The use of a core's [`BestEffortShare`] since the pool was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BestEffortUse {
    /// The number of the core.
    pub core: usize,
    /// The processor time that the core's [best-effort
    /// threads](field@CorePoolConfig::best_effort_threads) have used above all tasks, plus the
    /// [cost of each piece of work](field@BestEffortShare::request_cost).
    pub used_time: Duration,
    /// Number of periods in which the budget was used up.
    pub exhausted_periods: u64,
    /// True if the core has best-effort threads, and they run above all tasks at present.
    pub runs_above_tasks: bool,
}

/// Tells a core pool which object keys name a task.
///
/// The pool's threads call the method for requests that they have read, so it must neither block
/// nor allocate.
pub trait TaskBinder: Send + Sync + 'static {
    /// Returns the number of the task that an object key names; `None` for all other keys. The
    /// answer for a key must never change, even after the task has ended.
    fn task_of(&self, object_key: &[u8]) -> Option<u64>;
}

/// The way in which a core pool brings the requests of tasks to threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CorePoolMode {
    /// A thread of the task's core becomes the only reader of the task's connection. The
    /// connection's requests cost no hand-over.
    #[default]
    Bound,
    /// The manager reads the requests of all tasks above all tasks, on the first core of the pool.
    /// It hands each request over to a sleeping thread of the task's core. This is the architecture
    /// of the MC-ORB paper.
    ///
    /// The manager has two threads, so that one can read while the other blocks.
    Manager,
    /// The threads of tasks wait for requests above all tasks. The thread that has read a request
    /// takes the core and the priority of the request's task, runs the request, and waits again on
    /// this core. The pool must permit at least two threads, because one thread always remains to
    /// read.
    LeaderFollowers,
    /// Connections are bound as with [`Bound`](Self::Bound), and each thread has the priority of
    /// its task, but runs on each core of the pool. [`TaskBinding::core`] has no effect. Deadlines
    /// order the jobs of all cores together. No analysis of single cores holds, so the pool does
    /// not guarantee the timing of its tasks.
    NoAffinity,
}

impl CorePoolMode {
    /// Returns true if a thread above all tasks reads the requests of tasks.
    pub(crate) fn reads_above_tasks(self) -> bool {
        matches!(self, CorePoolMode::Manager | CorePoolMode::LeaderFollowers)
    }
}

/// The configuration of a core pool
/// ([`RtOrb::create_core_pool`](super::RtOrb::create_core_pool)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorePoolConfig {
    /// The pool's name, which is part of its threads' names. Default: `cores`.
    pub name: String,
    /// The cores that run tasks, as the kernel counts cores. Empty for all cores on which the
    /// process may run. Default: empty.
    pub cores: Vec<usize>,
    /// The way in which requests of tasks reach their threads. Default: [`CorePoolMode::Bound`].
    pub mode: CorePoolMode,
    /// Number of threads that the pool creates for each core at its creation. Default: 4.
    pub threads_per_core: u32,
    /// Maximum number of threads for tasks, and so of connections that are bound at the same time.
    /// If no thread sleeps, the pool starts further threads up to this number, which then stay.
    /// Default: 64.
    pub max_threads: u32,
    /// True if the client of a request for which no thread is free gets TRANSIENT (the standard's
    /// minor code 1). Otherwise a [best-effort thread](field@Self::best_effort_threads) runs the
    /// request. Default: false.
    pub refuses_without_thread: bool,
    /// Number of best-effort threads, which accept connections, and serve requests that belong to
    /// no task. They are in the ordinary class, except while a
    /// [`best_effort_share`](field@Self::best_effort_share) lets them run above all tasks. Default:
    /// 4.
    pub best_effort_threads: u32,
    /// The share of each core that requests without a task get. With a share, the
    /// [`best_effort_threads`](field@Self::best_effort_threads), at least one for each core, are
    /// distributed among the cores, and the native priority of a task without a deadline must be
    /// below 98. A thread that a servant starts in a best-effort thread is in the ordinary class,
    /// and inherits the core. An admission must count the share as work above all tasks. Default:
    /// `None`, so tasks can keep all other requests from running.
    pub best_effort_share: Option<BestEffortShare>,
    /// Stack size of each thread in bytes. Default: 1 MiB.
    pub thread_stack_size: usize,
    /// Addresses at which the pool listens, as for
    /// [`OrbBuilder::listen`](crate::OrbBuilder::listen). If the list is empty, the pool derives
    /// one address from each address of the ORB: the host with a free port, or the path with a
    /// suffix. Default: empty.
    pub listen: Vec<String>,
    /// Number of [`TaskEndpoint`](super::TaskEndpoint)s that the pool opens at its creation. Each
    /// has one address for each address of the pool. Unless `task_addresses` gives it, the address
    /// is a free TCP port of the same host, or the path with a suffix. Default: 16.
    pub task_endpoint_count: u32,
    /// Addresses of the first endpoints of tasks, in the form of [`listen`](field@Self::listen):
    /// for each endpoint, one address for each address of the pool, in the same order. An address
    /// at which the pool cannot listen is replaced by a free one. A server that restarts passes its
    /// earlier addresses, so that its task references stay valid. Default: empty.
    pub task_addresses: Vec<Vec<String>>,
    /// Limits on connections. Default: [`ConnectionLimits::default`].
    pub connection_limits: ConnectionLimits,
    /// Maximum number of records of jobs
    /// ([`CorePool::record_jobs_for`](super::CorePool::record_jobs_for)), about 56 bytes each.
    /// Default: 65,536.
    pub max_recorded_jobs: u32,
}

impl Default for CorePoolConfig {
    fn default() -> Self {
        CorePoolConfig {
            name: "cores".into(),
            cores: Vec::new(),
            mode: CorePoolMode::Bound,
            threads_per_core: 4,
            max_threads: 64,
            refuses_without_thread: false,
            best_effort_threads: 4,
            best_effort_share: None,
            thread_stack_size: 1 << 20,
            listen: Vec::new(),
            task_endpoint_count: 16,
            task_addresses: Vec::new(),
            connection_limits: ConnectionLimits::default(),
            max_recorded_jobs: 65_536,
        }
    }
}

setters!(CorePoolConfig {
    name: impl Into<String>,
    mode: CorePoolMode,
    threads_per_core: u32,
    max_threads: u32,
    refuses_without_thread: bool,
    best_effort_threads: u32,
    thread_stack_size: usize,
    task_endpoint_count: u32,
    connection_limits: ConnectionLimits,
    max_recorded_jobs: u32,
});

impl CorePoolConfig {
    /// Sets [`cores`](field@Self::cores).
    #[must_use]
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.cores = cores.into_iter().collect();
        self
    }

    /// Sets [`best_effort_share`](field@Self::best_effort_share).
    #[must_use]
    pub fn best_effort_share(mut self, share: BestEffortShare) -> Self {
        self.best_effort_share = Some(share);
        self
    }

    /// Sets [`task_addresses`](field@Self::task_addresses).
    #[must_use]
    pub fn task_addresses(mut self, addresses: Vec<Vec<String>>) -> Self {
        self.task_addresses = addresses;
        self
    }

    /// Adds an address to [`listen`](field@Self::listen).
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }
}

/// Counts of a core pool since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorePoolCounts {
    /// Connections that were bound to a thread.
    pub connections_bound: u64,
    /// Connections and handed-over requests for which a sleeping thread of another core was woken,
    /// because no thread of the task's core slept.
    pub threads_borrowed: u64,
    /// Connections and handed-over requests for which a thread was started.
    pub threads_started: u64,
    /// Changes of a thread's core or priority, because the task that it served got another core or
    /// priority.
    pub threads_moved: u64,
    /// Connections that returned to the best-effort threads, because their task ended.
    pub connections_unbound_by_task_end: u64,
    /// Requests of admitted tasks that ran as best effort, without the core and priority of their
    /// task, because no thread was free for the task
    /// ([`Event::TaskNotBound`](crate::Event::TaskNotBound)).
    pub requests_not_bound: u64,
    /// Requests of tasks for which no thread was free, and whose clients got TRANSIENT
    /// ([`CorePoolConfig::refuses_without_thread`]). They are not counted in
    /// `requests_not_bound`.
    pub without_thread: u64,
    /// Requests of tasks that were handed over to a thread that does not read their connection.
    pub requests_handed_over: u64,
    /// Requests of tasks that were run by the thread that had read them, with
    /// [`CorePoolMode::LeaderFollowers`].
    pub led: u64,
    /// Requests without a task that the thread of a task's connection read. Best-effort threads ran
    /// these requests. LocateRequests are not counted.
    pub requests_without_task: u64,
    /// Jobs that used more processor time than the budget of their task
    /// ([`TaskRules::budget`](field@TaskRules::budget)).
    pub jobs_over_budget: u64,
    /// Jobs that were demoted when they had used their budget, stopped jobs included.
    pub jobs_demoted: u64,
    /// Jobs whose clients got TIMEOUT because the jobs had used their budgets.
    pub jobs_stopped: u64,
    /// Requests above the rate of their task
    /// ([`TaskRules::min_interarrival`](field@TaskRules::min_interarrival)) that waited.
    pub requests_delayed_by_rate: u64,
    /// Two-way calls above the rate of their task, whose clients got TRANSIENT.
    pub calls_refused_by_rate: u64,
    /// Oneways above the rate of their task, which were dropped.
    pub oneways_dropped_by_rate: u64,
    /// Tasks that left the set, because the kernel refused a core or a priority to them
    /// ([`Event::TaskRefused`](crate::Event::TaskRefused)). If the task is set again and the kernel
    /// refuses the same request again, the task is not counted and reported again.
    pub tasks_refused_by_kernel: u64,
    /// Number of connections that are bound now.
    pub currently_bound_connections: u64,
}

/// A task that left the set of a core pool, because the kernel refused a core or a
/// priority to it ([`CorePool::take_refused_tasks`](super::CorePool::take_refused_tasks)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedTask {
    /// The number of the task, as the pool's [`TaskBinder`] returns it.
    pub task: u64,
    /// The number of the refused core; `None` if the kernel refused a priority. The core may be
    /// lost, which the program may notice later.
    pub core: Option<usize>,
    /// The request and the error of the kernel.
    pub reason: String,
}

/// The times of a task's jobs at the server since the task was admitted. A job is a request that
/// threads of the pool ran for the task. A LocateRequest is not a job.
///
/// A time lasts from the moment at which the task's thread has read the request until the reply is
/// written. It includes the time in which more urgent threads had the core. If another thread read
/// the request, or if it had to wait for the task's [rate](field@TaskRules::min_interarrival), for
/// a POA manager, or until the client read its replies, the time begins when the thread begins to
/// run the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskMeasurement {
    /// The number of the task, as the pool's [`TaskBinder`] returns it.
    pub task: u64,
    /// Number of jobs that have ended.
    pub jobs: u64,
    /// The shortest time; zero if no job has ended.
    pub min_response: Duration,
    /// The mean time, rounded down; zero if no job has ended.
    pub mean_response: Duration,
    /// The longest time; zero if no job has ended.
    pub max_response: Duration,
}

/// The record of a job of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoreJob {
    /// The number of the record. Records are numbered in the order in which the jobs end.
    pub number: u64,
    /// The number of the task, as the pool's [`TaskBinder`] returns it.
    pub task: u64,
    /// The core on which the job began.
    pub core: usize,
    /// The start of the job in nanoseconds of the machine's monotonic clock.
    pub started_at: u64,
    /// The end of the job in nanoseconds of the machine's monotonic clock.
    pub ended_at: u64,
    /// The processor time that the job used.
    pub processor_time: Duration,
}

/// Records of jobs, as [`CorePool::recorded_jobs`](super::CorePool::recorded_jobs) returns them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobBatch {
    /// The records in the order of their numbers. If the first number is higher than the number
    /// that the caller asked for, newer records have replaced the records between them.
    pub jobs: Vec<CoreJob>,
    /// The number with which the caller gets the next batch.
    pub next_number: u64,
}
