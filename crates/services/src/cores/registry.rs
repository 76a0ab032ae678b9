//! The record of the tasks that a server has promised to run: [`TaskRegistry`].
//!
//! All times are in nanoseconds since an instant that the caller chooses. A time that is earlier
//! than a previous one counts as the previous one.
//!
//! A task passes through these states:
//!
//! ```text
//! admit ------> promised ---> ending ---> gone        ending: withdrawn, or its lease ended
//!   |              ^
//!   +-> pending ---+-> rejected ---> gone
//!
//! reserve ----> reserved ---> promised                commit, of all stages of a chain
//!                  |
//!                  +--------> gone                    cancel, or no commit in time
//!
//! promised <---> demoted                              its core is lost, and no other has room
//! promised ----> demoted                              the kernel refuses its core or priority
//! ```
//!
//! Invariant: while no core is lost, at every instant each core meets the deadlines of all jobs
//! that may run on it. A task that ends keeps its share of the core until the deadline of its last
//! job. A task that moves or changes its timing keeps its earlier share until the deadline of the
//! last job that uses it. A promise that needs such a share begins when the share is free:
//! [`Promise::starts_at`].

use std::fmt;
use std::sync::Arc;

use corelane::rt::JobOverrunAction;
use corelane_sched::allocation::{AdmissionPlan, Machine, Move, Rejection, TaskSet};
use corelane_sched::task::{CoreId, Criticality, Nanos, Task, TaskId, Timing, TimingError, Utilization};

use super::saving::{CompletedSave, PendingSave, SaveOutcome};
use super::transition;

/// Maximum length of a task's name in bytes.
pub const MAX_TASK_NAME_BYTES: usize = 64;
/// Maximum length of the name of a task's operation in bytes.
pub const MAX_OPERATION_NAME_BYTES: usize = 256;
/// Maximum number of stages of a chain on one server.
pub const MAX_CHAIN_STAGES: usize = 32;

/// A secret that proves that a client may change a task. The caller of [`TaskRegistry::admit`] or
/// [`TaskRegistry::reserve_chain`] must choose a token that no other client can guess.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TaskToken(pub [u8; 16]);

impl fmt::Debug for TaskToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskToken(..)")
    }
}

/// The name of a client, such as `address 192.0.2.1` or `user 1000`. The quotas apply to each name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(pub Arc<str>);

/// The id of a chain of tasks, which is reserved as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub u64);

/// A task that a client asks to admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// The name that reports show: 1 to [`MAX_TASK_NAME_BYTES`] bytes without control characters.
    pub name: String,
    /// The operation that the task's requests call: at most [`MAX_OPERATION_NAME_BYTES`] bytes
    /// without control characters; empty for all operations.
    pub operation: String,
    /// The times of the task's jobs, such as period, deadline and execution time, in nanoseconds.
    pub timing: Timing,
    /// The importance of the task: after the loss of a core, the most critical tasks get new cores
    /// first.
    pub criticality: Criticality,
    /// The only core that may run the task; `None` if every core may run it.
    pub pinned_core: Option<CoreId>,
    /// The time for which the promise holds unless the client renews it. 0 means
    /// [`RegistryLimits::default_lease`]; a time above [`RegistryLimits::max_lease`] means
    /// `max_lease`.
    pub lease: Nanos,
    /// The action on a job that has used the execution time of `timing`.
    pub overrun_action: JobOverrunAction,
}

/// The bounds of the task registry, for all clients together and for each client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryLimits {
    /// Maximum number of tasks of all clients. Pending and ending tasks, retained rejections, and
    /// the shares of cores that tasks keep after a move or a change of timing count as tasks.
    pub max_tasks: usize,
    /// Maximum number of tasks of one client, including pending and ending tasks.
    pub max_tasks_per_client: usize,
    /// Maximum sum of the utilizations of one client's tasks, including pending and ending tasks.
    pub max_utilization_per_client: Utilization,
    /// Maximum number of decisions in any second. Each admission, each change and each stage of a
    /// chain is a decision.
    pub max_decisions_per_second: usize,
    /// Maximum number of decisions that wait for a search on another thread.
    pub max_pending_decisions: usize,
    /// The time after which a reservation without a commit lapses.
    pub reservation_timeout: Nanos,
    /// The lease of a request whose lease is 0.
    pub default_lease: Nanos,
    /// The longest lease, to which longer requests are reduced.
    pub max_lease: Nanos,
    /// The time for which [`TaskRegistry::pending_outcome`] reports a rejection that followed a
    /// pending decision.
    pub rejection_retention: Nanos,
}

/// The default limits: 1,000 tasks; for one client 100 tasks and a utilization of 16 cores; 100
/// decisions a second; 16 pending decisions; reservations of 5 s; leases of 10 s and at most 1 h;
/// rejections reported for 60 s.
impl Default for RegistryLimits {
    fn default() -> Self {
        const SECOND: Nanos = 1_000_000_000;
        Self {
            max_tasks: 1_000,
            max_tasks_per_client: 100,
            max_utilization_per_client: Utilization(16 * Utilization::ONE.0),
            max_decisions_per_second: 100,
            max_pending_decisions: 16,
            reservation_timeout: 5 * SECOND,
            default_lease: 10 * SECOND,
            max_lease: 3_600 * SECOND,
            rejection_retention: 60 * SECOND,
        }
    }
}

/// A task that the server has promised to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The id of the task.
    pub task: TaskId,
    /// The core that runs the task.
    pub core: CoreId,
    /// The task's worst-case response time, counted from a job's arrival; `None` if the analysis of
    /// the scheduling discipline computes none.
    pub response: Option<Nanos>,
    /// The earliest arrival of the first job. Jobs of tasks that left the core may run until then.
    pub starts_at: Nanos,
    /// The end of the lease, or of the reservation of a stage.
    pub ends_at: Nanos,
    /// The moves of earlier tasks to other cores that make room for this task. Empty for stages of
    /// chains, and in the results of [`TaskRegistry::pending_outcome`].
    pub moves: Vec<Move>,
}

/// The decision about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskAdmission {
    /// The task is admitted.
    Promised(Promise),
    /// The decision found no room for the task.
    Rejected(Rejection),
    /// The decision needs a longer search. [`TaskRegistry::pending_outcome`] returns the decision
    /// about this task.
    Pending(TaskId),
}

/// The decision about a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainAdmission {
    /// All stages are reserved. The promises are in the order of the stages.
    Reserved(ChainId, Vec<Promise>),
    /// No room was found for the stage with this index in addition to the stages before it. Nothing
    /// is reserved.
    Rejected(usize, Rejection),
}

/// The reason why the task registry refuses a request without deciding it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryRefusal {
    /// A time is out of range.
    TimingOutOfRange(TimingError),
    /// A field other than a time is out of range: the field's name, and the permitted range.
    FieldOutOfRange(&'static str, &'static str),
    /// The request exceeds this maximum number of decisions within a second.
    RateExceeded(usize),
    /// The request exceeds this maximum number of tasks of one client.
    TaskQuotaExceeded(usize),
    /// The request exceeds this maximum utilization of one client's tasks.
    UtilizationQuotaExceeded(Utilization),
    /// The request exceeds this maximum number of tasks of all clients.
    Full(usize),
    /// The task is pinned to a core that the machine does not have or that is lost: this core, and
    /// the usable cores.
    NoSuchCore(CoreId, Vec<CoreId>),
    /// The task registry has no such task or reservation: it has ended, the chain is committed, or
    /// it never existed.
    NotFound,
    /// The token is not the token of the task or chain.
    WrongToken,
    /// The task has lost its core, and no other core has room for it.
    TaskDisplaced,
    /// The promise of the task is withdrawn, because the kernel has refused the task's core,
    /// priority or thread.
    KernelRefused,
    /// The task is not admitted yet: its decision is pending, or its chain is not committed.
    NotAdmittedYet,
    /// The store does not have an earlier change of the task's timing yet.
    EarlierTimingNotSaved,
    /// The store has not reserved enough task numbers for the chain yet.
    TaskNumbersNotSaved,
}

impl fmt::Display for RegistryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimingOutOfRange(error) => error.fmt(f),
            Self::FieldOutOfRange(field, range) => write!(f, "{field}: {range}"),
            Self::RateExceeded(most) => write!(f, "more than {most} decisions within a second"),
            Self::TaskQuotaExceeded(most) => write!(f, "a client may have {most} tasks"),
            Self::UtilizationQuotaExceeded(most) => write!(f, "the tasks of a client may have a utilization of {most}"),
            Self::Full(most) => write!(f, "the server has room for {most} tasks"),
            Self::NoSuchCore(asked, cores) => {
                let numbers: Vec<String> = cores.iter().map(|core| core.core.to_string()).collect();
                write!(f, "core: there is no core {}; there are {}", asked.core, numbers.join(", "))
            }
            Self::NotFound => f.write_str("the task has ended or never existed"),
            Self::WrongToken => f.write_str("the token belongs to another task"),
            Self::TaskDisplaced => f.write_str("the core of the task is lost, and no other core has room for the task"),
            Self::KernelRefused => f.write_str(
                "the promise of the task is withdrawn, because the kernel has refused the core, the priority or a \
                 thread: withdraw the task, and ask for a new admission",
            ),
            Self::NotAdmittedYet => f.write_str("the task is not admitted yet"),
            Self::EarlierTimingNotSaved => {
                f.write_str("the store does not have an earlier change of the task's timing yet")
            }
            Self::TaskNumbersNotSaved => f.write_str("the store has not reserved task numbers for the chain yet"),
        }
    }
}

impl std::error::Error for RegistryRefusal {}

/// The state of a task in a [`RegistrySnapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The task is reserved with its chain until this time.
    Reserved(Nanos),
    /// The task is promised until this time.
    Promised(Nanos),
    /// The task has lost its core, and no other core has room for it. Its requests are best effort
    /// until a core has room. The lease ends at this time. A task whose core or priority the kernel
    /// has refused stays in this state.
    Demoted(Nanos),
    /// The task ends. Its last job may run until this time.
    Ending(Nanos),
    /// The decision about the task waits for a longer search.
    Pending,
}

/// A task in a [`RegistrySnapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// The id, timing, criticality and pinned core of the task.
    pub task: Task,
    /// The task's name.
    pub name: String,
    /// The operation that the task's requests call; empty for all operations.
    pub operation: String,
    /// The action on a job that has used the task's execution time.
    pub overrun_action: JobOverrunAction,
    /// The client that asked for the task.
    pub client: ClientName,
    /// The task's state.
    pub state: TaskState,
    /// The task's core; `None` while the decision is pending, and while the task is demoted.
    pub core: Option<CoreId>,
    /// The task's priority level on the core; 0 is the most urgent. 0 for a task without a core.
    pub priority_level: u32,
    /// The task's worst-case response time. `None` for a task without a core, and if the analysis
    /// of the scheduling discipline computes none.
    pub response: Option<Nanos>,
    /// The earliest arrival of the task's first job.
    pub starts_at: Nanos,
}

/// The use of a core in a [`RegistrySnapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreUse {
    /// The id of the core.
    pub core: CoreId,
    /// The share that may be promised; 0 while the core is lost.
    pub capacity: Utilization,
    /// The share that is in use, without the machine's overheads: by promised and reserved tasks,
    /// by the last jobs of tasks that ended, moved or changed their timing, and by changes of
    /// timings that may still be taken back.
    pub used_by_tasks: Utilization,
    /// The share of work above all tasks, for example of the guaranteed share for best effort. It
    /// is a part of `capacity`, and not of `used_by_tasks`.
    pub reserved_above_tasks: Utilization,
}

/// The numbers of decisions and ends since the creation of the task registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    /// Tasks that were promised or reserved, and changed timings.
    pub promised: u64,
    /// Tasks, chains and changes of timings for which no room was found.
    pub rejected: u64,
    /// Requests refused because they exceeded the maximum rate of decisions.
    pub refused_over_rate: u64,
    /// Requests refused because they exceeded a client's quota.
    pub refused_over_quota: u64,
    /// Tasks whose leases ended before a renewal or withdrawal.
    pub leases_expired: u64,
    /// Tasks whose reservations lapsed.
    pub reservations_expired: u64,
}

/// The content of the task registry at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrySnapshot {
    /// The tasks, in the order of their requests.
    pub tasks: Vec<TaskRecord>,
    /// The cores, in the machine's order.
    pub cores: Vec<CoreUse>,
    /// The decisions so far.
    pub counts: DecisionCounts,
}

/// The effect of the loss or return of cores ([`TaskRegistry::set_lost_cores`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostCoresOutcome {
    /// The cores that are lost now and were usable before.
    pub newly_lost_cores: Vec<CoreId>,
    /// The cores that are usable now and were lost before.
    pub returned_cores: Vec<CoreId>,
    /// The tasks that moved from a lost core to another core.
    pub moved_tasks: Vec<TaskId>,
    /// The tasks that lost their core, and for which no other core has room.
    pub demoted_tasks: Vec<TaskId>,
    /// The tasks that returned to their core, and demoted tasks that have a core again.
    pub restored_tasks: Vec<TaskId>,
}

/// A decision that needs a longer search than a request may wait for.
#[derive(Clone, Debug)]
pub struct PendingDecision {
    pub(super) set: TaskSet,
    pub(super) machine: Machine,
    pub(super) task: Task,
    pub(super) revision: u64,
}

impl PendingDecision {
    /// Searches for a plan. The search may take long, so the caller should hold no lock on the
    /// task registry during it. The result is for [`TaskRegistry::apply_decision`].
    #[must_use]
    pub fn decide(self) -> CompletedDecision {
        let outcome = transition::admit(&self.set, &self.set, &self.machine, &self.task);
        CompletedDecision { task: self.task.id, revision: self.revision, outcome }
    }
}

/// The plan or the rejection that [`PendingDecision::decide`] found, for [`TaskRegistry::apply_decision`].
#[derive(Clone, Debug)]
pub struct CompletedDecision {
    pub(super) task: TaskId,
    pub(super) revision: u64,
    pub(super) outcome: Result<AdmissionPlan, Rejection>,
}

/// The record of admitted tasks.
///
/// The work of a method is bounded by the [limits](RegistryLimits) and by the [inline
/// bounds](Machine::with_short_decision_limits) of the machine.
///
/// No method waits for a disk. A caller acknowledges a promise when the store has it
/// ([`is_saved`](Self::is_saved)), and saves by [`next_save`](Self::next_save),
/// [`PendingSave::save`] and [`apply_save`](Self::apply_save). The defaults of these methods are
/// for a task registry without a store.
pub trait TaskRegistry: Send {
    /// Decides about a task, and admits it if it fits.
    ///
    /// # Errors
    /// The reason why the request is not decided.
    fn admit(
        &mut self,
        request: &TaskRequest,
        client: &ClientName,
        token: TaskToken,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal>;

    /// Returns the decision about a task that was pending, or the present promise of a task.
    ///
    /// # Errors
    /// [`RegistryRefusal::NotFound`] if the task has ended, [`RegistryRefusal::WrongToken`] for the
    /// token of another task, [`RegistryRefusal::TaskDisplaced`] while the task is demoted by the loss
    /// of its core, and [`RegistryRefusal::KernelRefused`] after [`demote`](Self::demote).
    fn pending_outcome(&mut self, task: TaskId, token: TaskToken, now: Nanos)
    -> Result<TaskAdmission, RegistryRefusal>;

    /// Reserves room for all stages of a chain, or for none. The reservation lapses unless
    /// [`commit_chain`](Self::commit_chain) follows within [`RegistryLimits::reservation_timeout`].
    ///
    /// # Errors
    /// The reason why the request is not decided.
    fn reserve_chain(
        &mut self,
        stages: &[TaskRequest],
        client: &ClientName,
        token: TaskToken,
        now: Nanos,
    ) -> Result<ChainAdmission, RegistryRefusal>;

    /// Turns a reservation into promises, whose leases begin now.
    ///
    /// # Errors
    /// [`RegistryRefusal::NotFound`] if the reservation has lapsed, or was committed or cancelled
    /// before, and [`RegistryRefusal::WrongToken`] for the token of another chain.
    fn commit_chain(&mut self, chain: ChainId, token: TaskToken, now: Nanos) -> Result<Vec<Promise>, RegistryRefusal>;

    /// Releases a reservation.
    ///
    /// # Errors
    /// The errors of [`commit_chain`](Self::commit_chain).
    fn cancel_chain(&mut self, chain: ChainId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal>;

    /// Replaces the timing of a promised task. If the new timing does not fit, the task keeps the
    /// old timing.
    ///
    /// # Errors
    /// The reason why the request is not decided.
    fn change_timing(
        &mut self,
        task: TaskId,
        token: TaskToken,
        timing: Timing,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal>;

    /// Begins a new lease of a task and returns the end of the lease. A `lease` of 0 means the
    /// default lease; a `lease` above the maximum means the maximum.
    ///
    /// # Errors
    /// [`RegistryRefusal::NotFound`] if the task has ended, [`RegistryRefusal::WrongToken`],
    /// [`RegistryRefusal::NotAdmittedYet`], and [`RegistryRefusal::KernelRefused`] after
    /// [`demote`](Self::demote): the task then ends with its present lease.
    fn renew(&mut self, task: TaskId, token: TaskToken, lease: Nanos, now: Nanos) -> Result<Nanos, RegistryRefusal>;

    /// Ends a task, cancels its pending decision, or drops its retained rejection. The share of a
    /// promised task is free after the deadline of its last job.
    ///
    /// # Errors
    /// [`RegistryRefusal::NotFound`], [`RegistryRefusal::WrongToken`], and
    /// [`RegistryRefusal::NotAdmittedYet`] for a stage of a chain without a commit.
    fn withdraw(&mut self, task: TaskId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal>;

    /// Returns the name of a task; `None` if the task registry has neither the task nor its
    /// rejection.
    fn task_name(&self, task: TaskId) -> Option<&str>;

    /// Returns all tasks, cores and counts.
    fn snapshot(&mut self, now: Nanos) -> RegistrySnapshot;

    /// Returns the pending decision that has waited longest; `None` if there is none. The decision
    /// stays pending until [`apply_decision`](Self::apply_decision).
    fn next_pending_decision(&mut self, now: Nanos) -> Option<PendingDecision>;

    /// Applies the result of a search. If the search found a plan, and the task registry has
    /// changed since the search began, the decision stays pending for another search. After the
    /// last permitted search, a bounded search decides at once.
    fn apply_decision(&mut self, decided: CompletedDecision, now: Nanos);

    /// Sets the cores of the machine that cannot run tasks at present. Tasks of a lost core move to
    /// cores with room, the most critical first, or are demoted. A reserved chain is cancelled if a
    /// stage finds no room. When a core returns, its tasks return to it if it has room. Repeat the
    /// call at intervals, so that demoted tasks get room that becomes free.
    ///
    /// A job that runs at the time of the loss may miss its deadline.
    fn set_lost_cores(&mut self, lost: &[CoreId], now: Nanos) -> LostCoresOutcome;

    /// Withdraws the promise of a task, because the kernel refuses the task's core, priority or
    /// thread. The task is demoted until it ends, even if a core has room for it. The task ends
    /// when its client withdraws it, or with its lease. Its share of the core is free after the
    /// deadline of a job that may run now. Returns false, and changes nothing, if the task is not
    /// promised or has no core.
    fn demote(&mut self, task: TaskId, now: Nanos) -> bool;

    /// Returns the tasks that have ended since the last call. A task has ended when it is no longer
    /// promised, demoted, reserved or pending.
    fn take_ended_tasks(&mut self, now: Nanos) -> Vec<TaskId>;

    /// Returns the earliest time at which a lease, a reservation, a share for last jobs, or the
    /// report of a rejection ends; `None` if there is none.
    fn next_expiry(&self) -> Option<Nanos>;

    /// Attaches octets to a task. The task registry stores the octets without reading them. The
    /// octets replace earlier octets, and end with the task. Has no effect if the task registry
    /// does not have the task.
    fn attach_data(&mut self, task: TaskId, attachment: &[u8]);

    /// Returns the promised and demoted tasks with their attached octets, which may be empty.
    fn attached_data(&self) -> Vec<(TaskId, Arc<[u8]>)>;

    /// Sets octets that the server needs after a restart. The task registry stores them without
    /// reading them.
    fn set_server_data(&mut self, data: &[u8]);

    /// Returns the octets of [`set_server_data`](Self::set_server_data); empty if there are none.
    fn server_data(&self) -> &[u8];

    /// Returns true if the task registry has a store.
    fn has_store(&self) -> bool {
        false
    }

    /// Returns true if the store has the task's promise with its timing and attachment, or if the
    /// task has no promise and the store has no promise of the task. Always true for a task
    /// registry without a store.
    fn is_saved(&self, _task: TaskId) -> bool {
        true
    }

    /// Returns the tasks whose changes of timing are not saved, with the timings before the
    /// changes. Always empty for a task registry without a store.
    fn timings_before_unsaved_changes(&self) -> Vec<(TaskId, Timing)> {
        Vec::new()
    }

    /// Returns the length of the task's lease in the store. Returns `None` for a task registry
    /// without a store, and for a task whose promise the store does not have.
    fn saved_lease(&self, _task: TaskId) -> Option<Nanos> {
        None
    }

    /// Returns the next step that brings the store up to date. Returns `None` if the store has
    /// everything, and while a step has not been [applied](Self::apply_save).
    fn next_save(&mut self, _now: Nanos) -> Option<PendingSave> {
        None
    }

    /// Applies the result of a step. After a failure the task registry takes back what the store
    /// does not have: new promises end, changed timings and longer leases return to those that the
    /// store has.
    fn apply_save(&mut self, _save: CompletedSave, _now: Nanos) -> SaveOutcome {
        SaveOutcome::Saved
    }
}
