//! Allocation of tasks to cores, and admission of further tasks.
//!
//! [`admit`] looks for a core on which the new task fits without a missed deadline. If there is
//! none, it looks for moves of admitted tasks that make room, in the order of the
//! [`AllocationStep`]s.
//!
//! Invariant: if every core passes the schedulability test of the machine's discipline, every core
//! still passes it after a plan has been applied. Pinned tasks never move. If a thread above all
//! tasks reads the requests ([`Machine::reading`]), the invariant holds for the tests that include
//! the reading of the new task's requests.

mod load;
mod reading;
mod search;

pub mod baseline;

pub use load::Discipline;
pub use reading::RequestReading;

use std::borrow::Cow;
use std::fmt;

use crate::analysis::{StepBudget, sensitivity};
use crate::quantity::format_time;
use crate::task::{CoreId, Nanos, Task, TaskId, Timing, Utilization};
use load::{Charged, CoreLoad};
use search::Search;

/// Default share of a core that tasks may use.
pub const DEFAULT_CORE_CAPACITY: Utilization = Utilization(950_000_000);

/// Default maximum number of analysis steps ([`StepBudget`]) in one search for moves.
pub const DEFAULT_MAX_STEPS: u32 = 1 << 22;

/// Maximum number of analysis steps ([`StepBudget`]) in a search for moves on a machine with [short
/// decision limits](Machine::with_short_decision_limits).
pub const MAX_INLINE_STEPS: u32 = 1 << 15;

/// Default number of native priority levels for the tasks of one core.
pub const DEFAULT_MAX_PRIORITY_LEVELS: u32 = 98;

/// Maximum number of cores that [`Machine::with_cores`] puts into one cluster.
pub const MAX_CLUSTER_CORES: u32 = 8;

/// A core that runs tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// The host, and the processor's number on that host.
    pub id: CoreId,
    /// The share of the core that tasks may use.
    pub capacity: Utilization,
    /// Work with a priority above all tasks, for example of connection threads.
    pub interference: Vec<Timing>,
    /// The number of the core's cluster. Tasks move only within a cluster, for example between
    /// cores that share a cache.
    pub cluster: u32,
}

impl Core {
    /// Creates a core with the default capacity, in cluster 0, without interference.
    #[must_use]
    pub fn new(id: CoreId) -> Self {
        Self { id, capacity: DEFAULT_CORE_CAPACITY, interference: Vec::new(), cluster: 0 }
    }
}

/// Overheads that the system adds to each job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overheads {
    /// The time of one context switch, including the reload of the caches. Each job is charged for
    /// two switches.
    pub context_switch: Nanos,
    /// The time to hand a request over from one thread to another; 0 if connections are bound to
    /// threads.
    pub hand_off: Nanos,
    /// Longest time from a request's arrival until its thread is ready, by queueing and wake-up.
    pub release_jitter: Nanos,
    /// Longest time for which the ORB cannot be preempted.
    pub blocking: Nanos,
}

impl Overheads {
    /// Returns the timing for the analysis: the declared timing with the overheads added.
    #[must_use]
    pub fn add_to(&self, timing: &Timing) -> Timing {
        let per_job = self.context_switch.saturating_mul(2).saturating_add(self.hand_off);
        Timing {
            execution: timing.execution.saturating_add(per_job),
            jitter: timing.jitter.saturating_add(self.release_jitter),
            blocking: timing.blocking.saturating_add(self.blocking),
            // A late job comes closer to the next job if that job is not late, so the jitter
            // shortens the distance.
            min_interarrival: timing.min_interarrival.saturating_sub(self.release_jitter),
            ..*timing
        }
    }
}

/// The cores that tasks may run on, with their scheduling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// All cores, of one or several hosts.
    pub cores: Vec<Core>,
    /// The schedulability test of each core.
    pub discipline: Discipline,
    /// The costs of each job beyond its execution time.
    pub overheads: Overheads,
    /// The reading of each request by a thread above all tasks; `None` if the threads of tasks read
    /// their own requests.
    pub reading: Option<RequestReading>,
    /// Maximum number of priority levels for the tasks of one core. If a core has more tasks, tasks
    /// share levels under fixed priorities; the other disciplines admit no more tasks.
    pub max_priority_levels: u32,
    /// Maximum number of analysis steps in the search for moves.
    pub max_steps: u32,
    /// The most expensive step that a decision may use.
    pub max_allocation_step: AllocationStep,
}

impl Machine {
    /// Creates a machine with `cores` cores of host 0, under fixed priorities and without
    /// overheads. Clusters have at most [`MAX_CLUSTER_CORES`] cores.
    #[must_use]
    pub fn with_cores(cores: u32) -> Self {
        let core = |core| Core { cluster: core / MAX_CLUSTER_CORES, ..Core::new(CoreId { core, ..CoreId::default() }) };
        Self {
            cores: (0..cores).map(core).collect(),
            discipline: Discipline::FixedPriority,
            overheads: Overheads::default(),
            reading: None,
            max_priority_levels: DEFAULT_MAX_PRIORITY_LEVELS,
            max_steps: DEFAULT_MAX_STEPS,
            max_allocation_step: AllocationStep::Search,
        }
    }

    /// Returns the machine with limits for decisions that must be short.
    ///
    /// After a rejection that is not [exhaustive](Rejection::is_exhaustive), a decision without
    /// these limits can succeed.
    #[must_use]
    pub fn with_short_decision_limits(mut self) -> Self {
        self.max_allocation_step = match self.cores.len() {
            0..=2 => AllocationStep::Search,
            3..=8 => AllocationStep::Repack,
            _ => AllocationStep::Swap,
        };
        self.max_steps = MAX_INLINE_STEPS;
        self
    }

    fn place_of(&self, core: CoreId) -> Option<usize> {
        self.cores.iter().position(|other| other.id == core)
    }

    fn loads(&self) -> Vec<CoreLoad> {
        let load =
            |core: &Core| CoreLoad::new(self.discipline, core.capacity, self.max_priority_levels, &core.interference);
        self.cores.iter().map(load).collect()
    }

    fn charged(&self, task: &Task) -> Charged {
        Charged::new(self.overheads.add_to(&task.timing))
    }
}

/// The admitted tasks, with the core of each; [`TaskSet::for_machine`] makes a set that stores the
/// analysis between decisions.
#[derive(Clone, Debug, Default)]
pub struct TaskSet {
    placed: Vec<(Task, CoreId)>,
    warm: Option<Warm>,
}

#[derive(Clone, Debug)]
struct Warm {
    machine: Machine,
    loads: Vec<CoreLoad>,
}

impl PartialEq for TaskSet {
    fn eq(&self, other: &Self) -> bool {
        self.placed == other.placed
    }
}

impl Eq for TaskSet {}

impl TaskSet {
    /// Creates an empty set that stores its analysis on `machine` between decisions.
    #[must_use]
    pub fn for_machine(machine: &Machine) -> Self {
        Self { placed: Vec::new(), warm: Some(Warm { machine: machine.clone(), loads: machine.loads() }) }
    }

    /// Returns the set with its analysis on `machine`, which replaces any earlier analysis.
    #[must_use]
    pub fn with_machine(self, machine: &Machine) -> Self {
        let mut loads = self.loads(machine).into_owned();
        loads.iter_mut().for_each(|load| load.refresh(&mut StepBudget::default()));
        Self { placed: self.placed, warm: Some(Warm { machine: machine.clone(), loads }) }
    }

    /// Iterates over the tasks and their cores, in the order in which the tasks were placed on
    /// these cores.
    pub fn iter(&self) -> impl Iterator<Item = (&Task, CoreId)> {
        self.placed.iter().map(|(task, core)| (task, *core))
    }

    /// Returns the number of tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.placed.len()
    }

    /// Returns true if there is no task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Returns the core of a task; `None` if the task is not in the set.
    #[must_use]
    pub fn core_of(&self, task: TaskId) -> Option<CoreId> {
        self.placed.iter().find(|(other, _)| other.id == task).map(|(_, core)| *core)
    }

    /// Applies a plan: moves tasks to their new cores, and adds the new task to its core.
    pub fn apply(&mut self, plan: &AdmissionPlan) {
        for step in &plan.moves {
            if let Some(task) = self.take(step.task) {
                self.insert(task, step.to);
            }
        }
        self.insert(plan.task, plan.core);
    }

    /// Puts a task on a core without a test.
    pub fn insert(&mut self, task: Task, core: CoreId) {
        self.placed.push((task, core));
        if let Some(warm) = &mut self.warm
            && let Some(place) = warm.machine.place_of(core)
        {
            warm.loads[place].insert(task, warm.machine.charged(&task));
            warm.loads[place].refresh(&mut StepBudget::default());
        }
    }

    /// Removes a task. Returns true if the task was in the set.
    pub fn withdraw(&mut self, task: TaskId) -> bool {
        self.take(task).is_some()
    }

    fn take(&mut self, task: TaskId) -> Option<Task> {
        let place = self.placed.iter().position(|(other, _)| other.id == task)?;
        let (task, core) = self.placed.remove(place);
        if let Some(warm) = &mut self.warm
            && let Some(place) = warm.machine.place_of(core)
        {
            warm.loads[place].remove_task(task.id);
            warm.loads[place].refresh(&mut StepBudget::default());
        }
        Some(task)
    }

    fn loads(&self, machine: &Machine) -> Cow<'_, [CoreLoad]> {
        match &self.warm {
            Some(warm) if warm.machine.cores == machine.cores && warm.suits(machine) => Cow::Borrowed(&warm.loads),
            _ => {
                let mut loads = machine.loads();
                for (task, core) in self.iter() {
                    if let Some(place) = machine.place_of(core) {
                        loads[place].insert(*task, machine.charged(task));
                    }
                }
                Cow::Owned(loads)
            }
        }
    }
}

impl Warm {
    fn suits(&self, machine: &Machine) -> bool {
        self.machine.discipline == machine.discipline
            && self.machine.overheads == machine.overheads
            && self.machine.max_priority_levels == machine.max_priority_levels
    }
}

/// Steps by which [`admit`] finds room for a task, from the cheapest to the most expensive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AllocationStep {
    /// A core has room for the task without moves.
    Direct,
    /// One admitted task moves to another core.
    Move,
    /// Two admitted tasks exchange their cores.
    Swap,
    /// All tasks of a cluster that are not pinned are placed again, by decreasing utilization.
    Repack,
    /// Branch and bound over all placements of a cluster's tasks that are not pinned.
    Search,
}

/// A change of a task's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The task that moves.
    pub task: TaskId,
    /// The task's core before the move.
    pub from: CoreId,
    /// The task's core after the move.
    pub to: CoreId,
}

/// Placement of a new task, with the moves that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionPlan {
    /// The new task.
    pub task: Task,
    /// The new task's core.
    pub core: CoreId,
    /// Moves of admitted tasks that make room for the new task.
    pub moves: Vec<Move>,
    /// The allocation step that found room for the task.
    pub found_by_step: AllocationStep,
    /// The task's worst-case response time from its arrival. `None` under earliest deadline first,
    /// or if no bound is found.
    pub response: Option<Nanos>,
}

/// The test that a rejected task failed. Tests of a core refer to the core with the most room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionTest {
    /// The core's share would exceed its capacity.
    Capacity,
    /// The share fits, but a deadline would be missed.
    Deadlines,
    /// The share fits, but with the task the core has more tasks than priority levels, and the
    /// discipline shares no levels or a deadline would be missed.
    PriorityLevels,
    /// The machine has no core on which the task may run.
    NoCore,
    /// The set contains a task with this id.
    DuplicateId,
}

/// The reason why a task was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The task that was not admitted.
    pub task: TaskId,
    /// The test that the task failed.
    pub test: AdmissionTest,
    /// The core with the most room on which the task may run; `None` for [`AdmissionTest::NoCore`]
    /// and [`AdmissionTest::DuplicateId`].
    pub core: Option<CoreId>,
    /// The amount by which the share of `core` would exceed its capacity; 0 if the share fits.
    pub excess_utilization: Utilization,
    /// The longest execution time with which the task fits on `core` without moves, to within a
    /// thousandth of the core's room. `None` if none is found.
    pub max_fitting_execution: Option<Nanos>,
    /// True if every placement that the clusters permit was tried or ruled out. False if
    /// [`Machine::max_steps`] or [`Machine::max_allocation_step`] ended the search.
    pub is_exhaustive: bool,
}

impl Rejection {
    fn without_core(task: TaskId, test: AdmissionTest) -> Self {
        let excess = Utilization::default();
        Self { task, test, core: None, excess_utilization: excess, max_fitting_execution: None, is_exhaustive: true }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} cannot be admitted: {}", self.task.0, self.reason())
    }
}

impl Rejection {
    /// Returns the reason as text, without the task's name.
    #[must_use]
    pub fn reason(&self) -> String {
        let reason = match (self.test, self.core) {
            (AdmissionTest::DuplicateId, _) => return "a task with this name has been admitted before".to_owned(),
            (AdmissionTest::NoCore, _) | (_, None) => return "the machine has no core on which it may run".to_owned(),
            (AdmissionTest::Capacity, Some(core)) => {
                format!("core {} would be used {} beyond its capacity", core.core, self.excess_utilization)
            }
            (AdmissionTest::Deadlines, Some(core)) => format!("a deadline would be missed on core {}", core.core),
            (AdmissionTest::PriorityLevels, Some(core)) => {
                format!("core {} has no priority level left, and none can be shared", core.core)
            }
        };
        let fits = match self.max_fitting_execution {
            Some(execution) => format!("an execution time of {} would fit", format_time(execution)),
            None => "no execution time would fit".to_owned(),
        };
        let open = if self.is_exhaustive { "" } else { "; not every placement was tried" };
        format!("{reason}; {fits}{open}")
    }
}

impl std::error::Error for Rejection {}

/// Decides whether `task` can run on `machine` together with the tasks of `set`, and on which core.
///
/// # Errors
/// [`Rejection`] if no allocation step finds room.
///
/// # Examples
/// ```
/// use corelane_sched::allocation::{Machine, TaskSet, admit};
/// use corelane_sched::task::{Task, TaskId, Timing};
///
/// let machine = Machine::with_cores(2);
/// let mut set = TaskSet::for_machine(&machine);
/// for id in 0..3 {
///     // 60 ms in every 100 ms: two of them fit, one on each core.
///     let task = Task::new(TaskId(id), Timing::new(60_000_000, 100_000_000))?;
///     match admit(&set, &machine, &task) {
///         Ok(plan) => set.apply(&plan),
///         Err(rejection) => assert_eq!(rejection.max_fitting_execution, Some(35_000_000)),
///     }
/// }
/// assert_eq!(set.len(), 2);
/// # Ok::<(), corelane_sched::task::TimingError>(())
/// ```
pub fn admit(set: &TaskSet, machine: &Machine, task: &Task) -> Result<AdmissionPlan, Rejection> {
    if set.core_of(task.id).is_some() {
        return Err(Rejection::without_core(task.id, AdmissionTest::DuplicateId));
    }
    match machine.reading {
        Some(_) => reading::admit(set, machine, task),
        None => admit_charged(set, machine, task),
    }
}

fn admit_charged(set: &TaskSet, machine: &Machine, task: &Task) -> Result<AdmissionPlan, Rejection> {
    let loads = set.loads(machine);
    let charged = machine.charged(task);
    let mut search = Search::new(machine, &loads);
    search.place(task, &charged).ok_or_else(|| reject(&loads, machine, task, &charged, search.is_exhaustive()))
}

fn reject(loads: &[CoreLoad], machine: &Machine, task: &Task, charged: &Charged, is_exhaustive: bool) -> Rejection {
    let allowed = |place: &usize| task.pinned_core.is_none_or(|pinned| machine.cores[*place].id == pinned);
    let widest = (0..loads.len()).filter(allowed).max_by_key(|&place| loads[place].room());
    let Some(place) = widest else { return Rejection::without_core(task.id, AdmissionTest::NoCore) };
    let load = &loads[place];
    let excess = charged.floor.saturating_sub(load.room());
    let test = match excess {
        Utilization(0) if load.has_free_level() => AdmissionTest::Deadlines,
        Utilization(0) => AdmissionTest::PriorityLevels,
        _ => AdmissionTest::Capacity,
    };
    let mut steps = StepBudget::new(machine.max_steps);
    let longest_execution = sensitivity::longest_part(load.room(), &task.timing, |tried| {
        load.fits_with(&Charged::new(machine.overheads.add_to(tried)), &mut steps)
    });
    Rejection {
        task: task.id,
        test,
        core: Some(machine.cores[place].id),
        excess_utilization: excess,
        max_fitting_execution: longest_execution,
        is_exhaustive,
    }
}

/// Admits tasks one after another. Returns the set of admitted tasks, and the rejections.
#[must_use]
pub fn admit_all<'t>(machine: &Machine, tasks: impl IntoIterator<Item = &'t Task>) -> (TaskSet, Vec<Rejection>) {
    let mut set = TaskSet::for_machine(machine);
    let mut rejections = Vec::new();
    for task in tasks {
        match admit(&set, machine, task) {
            Ok(plan) => set.apply(&plan),
            Err(rejection) => rejections.push(rejection),
        }
    }
    (set, rejections)
}

/// Core, priority and response time of a task on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPlacement {
    /// The task.
    pub task: TaskId,
    /// The task's core.
    pub core: CoreId,
    /// The task's priority level on its core; 0 is the most urgent. Tasks may share a level.
    pub level: u32,
    /// The task's worst-case response time from its arrival, with the machine's overheads. `None`
    /// if it has no bound, and under earliest deadline first.
    pub response: Option<Nanos>,
    /// True if the task meets its deadline. Under earliest deadline first, and under the bound of
    /// Liu and Layland, the test is for all tasks of the core together.
    pub is_schedulable: bool,
}

/// Returns the placement of every task, by core. Tasks on cores that the machine does not have are
/// omitted.
#[must_use]
pub fn task_placements(set: &TaskSet, machine: &Machine) -> Vec<TaskPlacement> {
    let mut promises = Vec::with_capacity(set.len());
    let machine = &*machine.with_reading_of(set.iter().map(|(task, _)| task));
    for (load, core) in set.loads(machine).iter().zip(&machine.cores) {
        let fits = load.fits(&mut StepBudget::default());
        for (assigned, (task, _)) in load.assigned().into_iter().zip(load.tasks()) {
            let is_schedulable = match machine.discipline {
                Discipline::FixedPriority => {
                    fits || assigned.response.is_some_and(|response| response <= task.timing.deadline)
                }
                Discipline::LiuLayland | Discipline::EarliestDeadlineFirst => fits,
            };
            let (level, response) = (assigned.level, assigned.response);
            promises.push(TaskPlacement { task: task.id, core: core.id, level, response, is_schedulable });
        }
    }
    promises
}

/// Returns true if every task is on a core of the machine, and every core passes the schedulability
/// test.
#[must_use]
pub fn is_schedulable(set: &TaskSet, machine: &Machine) -> bool {
    let machine = &*machine.with_reading_of(set.iter().map(|(task, _)| task));
    let is_placed = set.iter().all(|(_, core)| machine.place_of(core).is_some());
    is_placed && set.loads(machine).iter().all(|load| load.fits(&mut StepBudget::default()))
}

#[cfg(test)]
mod tests;
