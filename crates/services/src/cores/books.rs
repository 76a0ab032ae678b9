//! The record of the tasks that a server has promised to run: [`Books`].
//!
//! All times are arguments, in nanoseconds since an instant that the caller chose. A time earlier
//! than one before counts as that one.
//!
//! A task passes these states:
//!
//! ```text
//! admit ------> promised ---> ending ---> gone        ending: withdrawn, or its lease ended
//!   |              ^
//!   +-> pending ---+-> rejected ---> gone
//!
//! reserve ----> reserved ---> promised                commit, of all stages of a chain
//!                  |
//!                  +--------> gone                    cancel, or no commit in time
//! ```
//!
//! Invariant: at every instant each core keeps all deadlines of the jobs that may run on it. A task
//! that ends keeps its share until the deadline of its last job, and so does a task on the core that
//! it leaves. A promise that needs such a share begins later: [`Promise::starts_at`].

use std::fmt;
use std::sync::Arc;

use corelane_sched::allocation::{Machine, Move, Plan, Rejection, TaskSet};
use corelane_sched::task::{CoreId, Criticality, Nanos, Task, TaskId, Timing, TimingError, Utilization};

use super::transition;

/// The longest name of a task in bytes.
pub const MAX_TASK_NAME: usize = 64;
/// The longest name of a task's operation in bytes.
pub const MAX_OPERATION_NAME: usize = 256;
/// The largest number of stages of a chain on one server.
pub const MAX_STAGES: usize = 32;

/// A secret that proves that a client may change a task. The caller of [`Books::admit`] draws it at
/// random.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(pub [u8; 16]);

/// The secret is not printed.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A client with quotas of its own, such as `address 192.0.2.1` or `user 1000`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(pub Arc<str>);

/// A chain of tasks that is reserved as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub u64);

/// A task that a client asks to admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// The name for people: 1 to [`MAX_TASK_NAME`] bytes without control characters.
    pub name: String,
    /// The operation that the task's requests call; empty for all operations.
    pub operation: String,
    /// The timing in nanoseconds.
    pub timing: Timing,
    /// The importance.
    pub criticality: Criticality,
    /// The only core that may run the task.
    pub pinned: Option<CoreId>,
    /// The time for which the promise holds unless it is renewed; 0 for
    /// [`BooksLimits::default_lease`].
    pub lease: Nanos,
}

/// The bounds of the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BooksLimits {
    /// Tasks of all clients, with those that end and those that still have a share of a former core.
    pub max_tasks: usize,
    /// Tasks of one client.
    pub max_client_tasks: usize,
    /// The sum of the utilizations of one client's tasks.
    pub max_client_utilization: Utilization,
    /// Decisions in any second: admissions, changes and stages of chains.
    pub max_decisions_per_second: usize,
    /// Decisions that wait for a search on another thread.
    pub max_pending: usize,
    /// The time after which a reservation without a commit lapses.
    pub reservation: Nanos,
    /// The lease of a request that names none.
    pub default_lease: Nanos,
    /// The longest lease.
    pub max_lease: Nanos,
    /// The time for which a rejection by a late decision can be asked for.
    pub outcome_kept: Nanos,
}

/// 1,000 tasks, of one client at most 100 with all cores of a machine of 16; 100 decisions a second;
/// 16 pending ones; reservations of 5 s; leases of 10 s, at most 1 h; outcomes kept for 60 s.
impl Default for BooksLimits {
    fn default() -> Self {
        const SECOND: Nanos = 1_000_000_000;
        Self {
            max_tasks: 1_000,
            max_client_tasks: 100,
            max_client_utilization: Utilization(16 * Utilization::ONE.0),
            max_decisions_per_second: 100,
            max_pending: 16,
            reservation: 5 * SECOND,
            default_lease: 10 * SECOND,
            max_lease: 3_600 * SECOND,
            outcome_kept: 60 * SECOND,
        }
    }
}

/// A task that the server has promised to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The task.
    pub task: TaskId,
    /// Its core.
    pub core: CoreId,
    /// Its worst-case response time from its arrival, if the discipline has one.
    pub response: Option<Nanos>,
    /// The time of its first job. Before it, jobs of tasks that left the core may still run.
    pub starts_at: Nanos,
    /// The end of the lease, or of the reservation.
    pub ends_at: Nanos,
    /// The other tasks that change their core for it.
    pub moves: Vec<Move>,
}

/// The decision about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskAdmission {
    /// The task is admitted.
    Promised(Promise),
    /// The task does not fit.
    Rejected(Rejection),
    /// The decision takes longer. [`Books::outcome`] gives it for this task.
    Pending(TaskId),
}

/// The decision about a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainAdmission {
    /// All stages are reserved, in their order.
    Reserved(ChainId, Vec<Promise>),
    /// This stage, counted from 0, does not fit beside the stages before it. Nothing is reserved.
    Rejected(usize, Rejection),
}

/// The reason why the books do not take a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BooksRefusal {
    /// A time is out of range.
    Timing(TimingError),
    /// A field other than a time is out of range: its name, and its range.
    Field(&'static str, &'static str),
    /// More decisions within a second than this.
    Rate(usize),
    /// More tasks of one client than this.
    TaskQuota(usize),
    /// More utilization of one client than this.
    UtilizationQuota(Utilization),
    /// More tasks in all than this.
    Full(usize),
    /// The machine does not have the only core that may run the task. It has these.
    NoCore(CoreId, Vec<CoreId>),
    /// No such task or chain: it has ended, or never was.
    Unknown,
    /// The token is that of another task.
    WrongToken,
    /// The task is not admitted yet: its decision is pending, or its chain has no commit.
    Early,
}

impl fmt::Display for BooksRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timing(error) => error.fmt(f),
            Self::Field(field, range) => write!(f, "{field}: {range}"),
            Self::Rate(most) => write!(f, "more than {most} decisions within a second"),
            Self::TaskQuota(most) => write!(f, "a client may have {most} tasks"),
            Self::UtilizationQuota(most) => write!(f, "the tasks of a client may have a utilization of {most}"),
            Self::Full(most) => write!(f, "the server has room for {most} tasks"),
            Self::NoCore(asked, cores) => {
                let numbers: Vec<String> = cores.iter().map(|core| core.core.to_string()).collect();
                write!(f, "core: there is no core {}; there are {}", asked.core, numbers.join(", "))
            }
            Self::Unknown => f.write_str("the task has ended or never was"),
            Self::WrongToken => f.write_str("the token is not that of this task"),
            Self::Early => f.write_str("the task is not admitted yet"),
        }
    }
}

impl std::error::Error for BooksRefusal {}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Reserved with its chain until this time.
    Reserved(Nanos),
    /// Promised until this time.
    Promised(Nanos),
    /// Its last job may run until this time.
    Ending(Nanos),
    /// The decision takes longer.
    Pending,
}

/// A task in a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// The task, with its timing.
    pub task: Task,
    /// Its name.
    pub name: String,
    /// The operation that its requests call; empty for all.
    pub operation: String,
    /// Its client.
    pub client: ClientName,
    /// Its state.
    pub state: TaskState,
    /// Its core; `None` while the decision is pending.
    pub core: Option<CoreId>,
    /// Its priority level on the core, 0 the most urgent.
    pub level: u32,
    /// Its worst-case response time, if the discipline has one.
    pub response: Option<Nanos>,
    /// The time of its first job.
    pub starts_at: Nanos,
}

/// The use of a core in a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreUse {
    /// The core.
    pub core: CoreId,
    /// The share that may be promised.
    pub capacity: Utilization,
    /// The share that is promised or still in use, without the machine's overheads.
    pub used: Utilization,
}

/// The decisions since the books began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks that were promised.
    pub promised: u64,
    /// Tasks that did not fit.
    pub rejected: u64,
    /// Requests beyond the rate.
    pub over_rate: u64,
    /// Requests beyond a client's quota.
    pub over_quota: u64,
    /// Leases that ended.
    pub leases_ended: u64,
    /// Tasks whose reservations lapsed.
    pub reservations_lapsed: u64,
}

/// The content of the books at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The tasks, in the order in which they came.
    pub tasks: Vec<TaskRecord>,
    /// The cores, in the machine's order.
    pub cores: Vec<CoreUse>,
    /// The decisions so far.
    pub counts: Counts,
}

/// A decision that needs a longer search than a request may wait for.
#[derive(Clone, Debug)]
pub struct Undecided {
    pub(super) set: TaskSet,
    pub(super) machine: Machine,
    pub(super) task: Task,
    /// Revision of the books at which the search began.
    pub(super) revision: u64,
}

impl Undecided {
    /// Searches. The caller holds no lock on the books meanwhile, and gives the result to
    /// [`Books::decided`].
    #[must_use]
    pub fn decide(self) -> Decided {
        let outcome = transition::admit(&self.set, &self.set, &self.machine, &self.task);
        Decided { task: self.task.id, revision: self.revision, outcome }
    }
}

/// The result of [`Undecided::decide`].
#[derive(Clone, Debug)]
pub struct Decided {
    pub(super) task: TaskId,
    pub(super) revision: u64,
    pub(super) outcome: Result<Plan, Rejection>,
}

/// The record of admitted tasks. All implementations pass `conformance::check`.
///
/// The work of an operation is bounded by the [limits](BooksLimits) and by the
/// [inline bounds](Machine::inline) of the machine.
pub trait Books: Send {
    /// Decides about a task, and admits it if it fits.
    ///
    /// # Errors
    /// The reason why the request is not decided.
    fn admit(
        &mut self,
        request: &TaskRequest,
        client: &ClientName,
        token: Token,
        now: Nanos,
    ) -> Result<TaskAdmission, BooksRefusal>;

    /// Returns the decision about a task that was pending, or the promise as it is now.
    ///
    /// # Errors
    /// [`BooksRefusal::Unknown`] and [`BooksRefusal::WrongToken`].
    fn outcome(&mut self, task: TaskId, token: Token, now: Nanos) -> Result<TaskAdmission, BooksRefusal>;

    /// Reserves room for all stages of a chain, or for none. The reservation lapses unless
    /// [`commit`](Self::commit) follows.
    ///
    /// # Errors
    /// The reason why the request is not decided.
    fn reserve(
        &mut self,
        stages: &[TaskRequest],
        client: &ClientName,
        token: Token,
        now: Nanos,
    ) -> Result<ChainAdmission, BooksRefusal>;

    /// Turns a reservation into promises, whose leases begin now.
    ///
    /// # Errors
    /// [`BooksRefusal::Unknown`] if it lapsed, and [`BooksRefusal::WrongToken`].
    fn commit(&mut self, chain: ChainId, token: Token, now: Nanos) -> Result<Vec<Promise>, BooksRefusal>;

    /// Gives a reservation up.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    fn cancel(&mut self, chain: ChainId, token: Token, now: Nanos) -> Result<(), BooksRefusal>;

    /// Replaces the timing of a promised task. If the new timing does not fit, the old one stays.
    ///
    /// # Errors
    /// The reason why the request is not decided.
    fn change(&mut self, task: TaskId, token: Token, timing: Timing, now: Nanos)
    -> Result<TaskAdmission, BooksRefusal>;

    /// Begins a new lease, 0 for the default one. Returns its end.
    ///
    /// # Errors
    /// [`BooksRefusal::Unknown`] if the task has ended, [`BooksRefusal::WrongToken`], and
    /// [`BooksRefusal::Early`].
    fn renew(&mut self, task: TaskId, token: Token, lease: Nanos, now: Nanos) -> Result<Nanos, BooksRefusal>;

    /// Ends a task, or gives up its pending decision. Its share is free after the deadline of its
    /// last job.
    ///
    /// # Errors
    /// [`BooksRefusal::Unknown`], [`BooksRefusal::WrongToken`], and [`BooksRefusal::Early`] for a
    /// stage of a chain without a commit.
    fn withdraw(&mut self, task: TaskId, token: Token, now: Nanos) -> Result<(), BooksRefusal>;

    /// Returns the name of a task that [`outcome`](Self::outcome) knows.
    fn name(&self, task: TaskId) -> Option<&str>;

    /// Returns all tasks, cores and counts.
    fn snapshot(&mut self, now: Nanos) -> Snapshot;

    /// Returns the longest waiting decision that is pending.
    fn undecided(&mut self, now: Nanos) -> Option<Undecided>;

    /// Takes the result of a search. If the books have changed since it began, the decision stays
    /// pending, at most three times.
    fn decided(&mut self, decided: Decided, now: Nanos);

    /// Returns the tasks that clients were told of and that are no longer promised, reserved or
    /// pending, each once.
    fn take_ended(&mut self, now: Nanos) -> Vec<TaskId>;

    /// Returns the time at which the next promise, share or reservation ends.
    fn next_end(&self) -> Option<Nanos>;
}
