//! A simulation of a task registry in virtual time. From snapshots of the task registry, a model
//! derives the cores on which jobs of each task may run, and until when. At every instant the jobs
//! of each core must meet their deadlines.

use std::collections::{BTreeMap, BTreeSet};

use corelane::rt::JobOverrunAction;
use corelane_sched::allocation::{AdmissionTest, Discipline, Machine, TaskSet, is_schedulable};
use corelane_sched::task::{CoreId, Criticality, Nanos, Task, TaskId, Timing, Utilization};

use super::registry::{
    ChainAdmission, ChainId, ClientName, RegistryLimits, RegistryRefusal, RegistrySnapshot, TaskAdmission,
    TaskRegistry, TaskRequest, TaskState, TaskToken,
};
use crate::naming::simulation::{SplitMix, under_seeds};

const SEEDS: u64 = 30;
const STEPS: usize = 300;
const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;

pub(super) type MakeTaskRegistry = dyn Fn(Machine, RegistryLimits) -> Box<dyn TaskRegistry>;

/// A time span in which jobs of a task may run on a core.
#[derive(Clone, Copy, Debug)]
struct CoreUse {
    task: TaskId,
    core: CoreId,
    timing: Timing,
    from: Nanos,
    /// The deadline of the last job; `None` while further jobs can arrive.
    until: Option<Nanos>,
    is_reserved: bool,
}

struct TaskRegistrySimulation {
    random: SplitMix,
    now: Nanos,
    registry: Box<dyn TaskRegistry>,
    machine: Machine,
    limits: RegistryLimits,
    decisions: Vec<Nanos>,
    tokens: BTreeMap<TaskId, TaskToken>,
    chains: BTreeMap<ChainId, (TaskToken, Vec<TaskId>)>,
    uses: Vec<CoreUse>,
    leases: BTreeMap<TaskId, Nanos>,
    pending: BTreeSet<TaskId>,
    ended: BTreeSet<TaskId>,
    told_ended: BTreeSet<TaskId>,
    seen: BTreeMap<&'static str, usize>,
}

impl TaskRegistrySimulation {
    fn new(make: &MakeTaskRegistry, seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let mut machine = Machine::with_cores(1 + random.below(4) as u32);
        machine.max_steps = 1 << 12;
        if random.below(3) == 0 {
            machine.discipline = Discipline::EarliestDeadlineFirst;
        }
        let limits = RegistryLimits {
            max_tasks: 12,
            max_tasks_per_client: 8,
            max_utilization_per_client: Utilization(1_500_000_000),
            max_decisions_per_second: 12,
            max_pending_decisions: 2,
            reservation_timeout: 300 * MS,
            default_lease: 2 * SECOND,
            max_lease: 5 * SECOND,
            rejection_retention: SECOND,
        };
        let registry = make(machine.clone(), limits.clone());
        Self {
            random,
            now: 0,
            registry,
            machine,
            limits,
            decisions: Vec::new(),
            tokens: BTreeMap::new(),
            chains: BTreeMap::new(),
            uses: Vec::new(),
            leases: BTreeMap::new(),
            pending: BTreeSet::new(),
            ended: BTreeSet::new(),
            told_ended: BTreeSet::new(),
            seen: BTreeMap::new(),
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn token(&mut self) -> TaskToken {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&self.random.next().to_ne_bytes());
        TaskToken(octets)
    }

    fn timing(&mut self) -> Timing {
        let period = MS * (5 + self.random.below(96) as u64);
        let execution = period * (1 + self.random.below(600) as u64) / 1_000;
        let deadline = execution + (period - execution) * (1 + self.random.below(4) as u64) / 4;
        Timing::new(execution, period).with_deadline(deadline)
    }

    fn request(&mut self) -> TaskRequest {
        let cores = self.machine.cores.len();
        let pinned = (self.random.below(5) == 0).then(|| self.machine.cores[self.random.below(cores)].id);
        let lease = [0, 500 * MS, SECOND, 3 * SECOND, Nanos::MAX][self.random.below(5)];
        TaskRequest {
            name: "t".to_owned(),
            operation: String::new(),
            timing: self.timing(),
            criticality: Criticality::Normal,
            pinned_core: pinned,
            lease,
            overrun_action: JobOverrunAction::Report,
        }
    }

    fn client(&mut self) -> ClientName {
        ClientName(["a", "b", "c"][self.random.below(3)].into())
    }

    fn lease(&self, lease: Nanos) -> Nanos {
        let lease = if lease == 0 { self.limits.default_lease } else { lease };
        self.now + lease.min(self.limits.max_lease)
    }

    /// Returns the refusal that the limits demand, except `Full`, which `check_refusal` checks.
    fn expected_refusal(&mut self, client: &ClientName, timings: &[Timing]) -> Option<RegistryRefusal> {
        let recent = self.decisions.iter().filter(|at| self.now - **at < SECOND).count();
        if recent + timings.len() > self.limits.max_decisions_per_second {
            return Some(RegistryRefusal::RateExceeded(self.limits.max_decisions_per_second));
        }
        self.decisions.extend(timings.iter().map(|_| self.now));
        let own = self.registry.snapshot(self.now).tasks.into_iter().filter(|task| task.client == *client);
        let own: Vec<Timing> = own.map(|task| task.task.timing).collect();
        if own.len() + timings.len() > self.limits.max_tasks_per_client {
            return Some(RegistryRefusal::TaskQuotaExceeded(self.limits.max_tasks_per_client));
        }
        let used = Utilization::total(&own).saturating_add(Utilization::total(timings));
        (used > self.limits.max_utilization_per_client)
            .then_some(RegistryRefusal::UtilizationQuotaExceeded(self.limits.max_utilization_per_client))
    }

    /// Checks a refusal. The task registry may refuse with `Full` a little below the maximum,
    /// because it counts retained rejections.
    fn check_refusal(&mut self, refusal: RegistryRefusal, expected: Option<RegistryRefusal>) {
        match refusal {
            RegistryRefusal::Full(most) => {
                let left = self.uses.iter().filter(|used| used.until.is_some()).count();
                let tasks = self.registry.snapshot(self.now).tasks.len();
                assert!(tasks + left + 8 > most, "full with {tasks} tasks and {left} former shares");
                self.note("full");
            }
            other => {
                match other {
                    RegistryRefusal::RateExceeded(_) => self.note("rate"),
                    RegistryRefusal::TaskQuotaExceeded(_) => self.note("task quota"),
                    _ => self.note("utilization quota"),
                }
                assert_eq!(Some(other), expected);
            }
        }
    }

    /// Checks that no core has room for the task while all other tasks stay on their cores.
    fn check_rejection(&self, request: &TaskRequest, without: Option<TaskId>) {
        for core in &self.machine.cores {
            if request.pinned_core.is_some_and(|pinned| pinned != core.id) {
                continue;
            }
            let mut set = TaskSet::default();
            let is_other = |used: &&CoreUse| Some(used.task) != without || used.until.is_some();
            let uses = self.uses.iter().filter(|used| used.core == core.id).filter(is_other);
            let uses = uses.filter(|used| used.until.is_none_or(|until| until > self.now));
            let timings = uses.map(|used| used.timing).chain([request.timing]);
            for (number, timing) in timings.enumerate() {
                set.insert(Task::new(TaskId(number as u64), timing).unwrap(), core.id);
            }
            assert!(!is_schedulable(&set, &self.machine), "core {} has room for {request:?}", core.id.core);
        }
    }

    fn admit(&mut self) {
        let (request, client, token) = (self.request(), self.client(), self.token());
        let expected = self.expected_refusal(&client, &[request.timing]);
        match self.registry.admit(&request, &client, token, self.now) {
            Ok(admission) => {
                assert_eq!(expected, None);
                match admission {
                    TaskAdmission::Promised(promise) => {
                        assert_eq!(promise.ends_at, self.lease(request.lease));
                        assert!(promise.response.is_none_or(|response| response <= request.timing.deadline));
                        self.tokens.insert(promise.task, token);
                        self.note(if promise.moves.is_empty() { "promised" } else { "promised with moves" });
                        if promise.starts_at > self.now {
                            self.note("begins later");
                        }
                    }
                    TaskAdmission::Rejected(rejection) => {
                        assert_ne!(rejection.test, AdmissionTest::NoCore);
                        self.check_rejection(&request, None);
                        self.note("rejected");
                    }
                    TaskAdmission::Pending(task) => {
                        self.tokens.insert(task, token);
                        self.note("pending");
                    }
                }
            }
            Err(refusal) => self.check_refusal(refusal, expected),
        }
    }

    fn reserve(&mut self) {
        let stages: Vec<TaskRequest> = (0..1 + self.random.below(3)).map(|_| self.request()).collect();
        let (client, token) = (self.client(), self.token());
        let timings: Vec<Timing> = stages.iter().map(|stage| stage.timing).collect();
        let expected = self.expected_refusal(&client, &timings);
        let before = self.registry.snapshot(self.now);
        match self.registry.reserve_chain(&stages, &client, token, self.now) {
            Ok(ChainAdmission::Reserved(chain, promises)) => {
                assert_eq!((expected, promises.len()), (None, stages.len()));
                let tasks: Vec<TaskId> = promises.iter().map(|promise| promise.task).collect();
                tasks.iter().for_each(|task| _ = self.tokens.insert(*task, token));
                self.chains.insert(chain, (token, tasks));
                self.note("reserved");
            }
            Ok(ChainAdmission::Rejected(stage, _)) => {
                assert!(expected.is_none() && stage < stages.len());
                let after = self.registry.snapshot(self.now);
                assert_eq!((before.tasks, before.cores), (after.tasks, after.cores), "all stages or none");
                if stage == 0 {
                    self.check_rejection(&stages[0], None);
                }
                self.note("chain rejected");
            }
            Err(refusal) => self.check_refusal(refusal, expected),
        }
    }

    fn end_chain(&mut self) {
        let index = self.random.below(self.chains.len());
        let Some((&chain, &(token, ref tasks))) = self.chains.iter().nth(index) else { return };
        let (tasks, other) = (tasks.clone(), self.token());
        let alive = self.uses.iter().any(|used| used.is_reserved && used.task == tasks[0]);
        let wrong = if alive { RegistryRefusal::WrongToken } else { RegistryRefusal::NotFound };
        assert_eq!(self.registry.commit_chain(chain, other, self.now), Err(wrong.clone()));
        assert_eq!(self.registry.cancel_chain(chain, other, self.now), Err(wrong));
        if alive {
            assert_eq!(self.registry.withdraw(tasks[0], token, self.now), Err(RegistryRefusal::NotAdmittedYet));
        }
        if self.random.below(3) == 0 {
            let expected = if alive { Ok(()) } else { Err(RegistryRefusal::NotFound) };
            assert_eq!(self.registry.cancel_chain(chain, token, self.now), expected);
        } else {
            match self.registry.commit_chain(chain, token, self.now) {
                Ok(promises) => {
                    assert!(alive && promises.iter().map(|promise| promise.task).eq(tasks));
                    self.note("committed");
                }
                Err(refusal) => {
                    assert_eq!((refusal, alive), (RegistryRefusal::NotFound, false));
                    self.note("lapsed");
                }
            }
        }
        self.chains.remove(&chain);
    }

    fn work_on_task(&mut self) {
        let index = self.random.below(self.tokens.len());
        let Some((&task, &token)) = self.tokens.iter().nth(index) else { return };
        let (other, timing) = (self.token(), self.timing());
        let is_promised = self.leases.contains_key(&task);
        let record = self.registry.snapshot(self.now).tasks.into_iter().find(|record| record.task.id == task);
        if record.is_some() {
            assert_eq!(self.registry.renew(task, other, 0, self.now), Err(RegistryRefusal::WrongToken));
            assert_eq!(self.registry.withdraw(task, other, self.now), Err(RegistryRefusal::WrongToken));
            assert_eq!(self.registry.change_timing(task, other, timing, self.now), Err(RegistryRefusal::WrongToken));
            assert_eq!(self.registry.pending_outcome(task, other, self.now), Err(RegistryRefusal::WrongToken));
        }
        match self.random.below(4) {
            0 => {
                let withdrawn = self.registry.withdraw(task, token, self.now);
                assert!(withdrawn.is_ok() || !is_promised, "{withdrawn:?}");
                if withdrawn.is_ok() {
                    self.note("withdrawn");
                }
            }
            1 if is_promised => {
                let Some(record) = record else { return };
                let own =
                    self.registry.snapshot(self.now).tasks.into_iter().filter(|task| task.client == record.client);
                let used = own.filter(|other| other.task.id != task);
                let used =
                    used.fold(timing.utilization(), |sum, task| sum.saturating_add(task.task.timing.utilization()));
                let recent = self.decisions.iter().filter(|at| self.now - **at < SECOND).count();
                let is_over_rate = recent >= self.limits.max_decisions_per_second;
                if !is_over_rate {
                    self.decisions.push(self.now);
                }
                match self.registry.change_timing(task, token, timing, self.now) {
                    Ok(TaskAdmission::Promised(_)) => {
                        assert!(!is_over_rate && used <= self.limits.max_utilization_per_client);
                        self.note("changed");
                    }
                    Ok(_) => {
                        let request = TaskRequest { timing, pinned_core: record.task.pinned_core, ..self.request() };
                        self.check_rejection(&request, Some(task));
                        self.note("change rejected");
                    }
                    Err(RegistryRefusal::RateExceeded(_)) => assert!(is_over_rate),
                    Err(RegistryRefusal::UtilizationQuotaExceeded(most)) => assert!(used > most),
                    Err(refusal @ RegistryRefusal::Full(_)) => self.check_refusal(refusal, None),
                    Err(refusal) => panic!("{refusal}"),
                }
            }
            _ if is_promised => {
                let lease = [0, SECOND, Nanos::MAX][self.random.below(3)];
                let end = self.lease(lease);
                assert_eq!(self.registry.renew(task, token, lease, self.now), Ok(end));
                self.note("renewed");
            }
            _ => {
                let renewed = self.registry.renew(task, token, 0, self.now);
                assert!(
                    matches!(renewed, Err(RegistryRefusal::NotFound | RegistryRefusal::NotAdmittedYet)),
                    "{renewed:?}"
                );
            }
        }
    }

    fn decide_pending(&mut self) {
        let Some(undecided) = self.registry.next_pending_decision(self.now) else { return };
        let decided = undecided.decide();
        let task = decided.task;
        if self.random.below(2) == 0 {
            self.admit();
            self.observe();
        }
        self.registry.apply_decision(decided, self.now);
        let token = self.tokens[&task];
        match self.registry.pending_outcome(task, token, self.now) {
            Ok(TaskAdmission::Promised(_)) => self.note("late promise"),
            Ok(TaskAdmission::Rejected(_)) => self.note("late rejection"),
            Ok(TaskAdmission::Pending(_)) => self.note("still pending"),
            Err(refusal) => panic!("{refusal}"),
        }
    }

    fn observe(&mut self) {
        let snapshot = self.registry.snapshot(self.now);
        let ended = self.registry.take_ended_tasks(self.now);
        for task in ended {
            assert!(self.told_ended.insert(task), "the end of a task was reported twice");
        }
        self.observe_ends(&snapshot);
        for record in &snapshot.tasks {
            let (task, timing) = (record.task.id, record.task.timing);
            let (is_reserved, core) = match (record.state, record.core) {
                (TaskState::Reserved(_), Some(core)) => (true, core),
                (TaskState::Promised(until), Some(core)) => {
                    self.leases.insert(task, until);
                    (false, core)
                }
                _ => continue,
            };
            let now = self.now;
            let open = self.uses.iter_mut().find(|used| used.task == task && used.until.is_none());
            match open {
                Some(used) if used.core == core && used.timing == timing => {
                    (used.is_reserved, used.from) = (is_reserved, record.starts_at);
                    continue;
                }
                Some(used) => {
                    // The task has just moved or changed its timing. A running job ends on the old
                    // core with the old timing.
                    let end = if used.is_reserved || used.from >= now { now } else { now + used.timing.deadline };
                    used.until = Some(end);
                }
                None => {}
            }
            self.uses.push(CoreUse { task, core, timing, from: record.starts_at, until: None, is_reserved });
        }
        self.uses.retain(|used| used.until.is_none_or(|until| until > self.now));
        self.check_deadlines(&snapshot);
    }

    fn observe_ends(&mut self, snapshot: &RegistrySnapshot) {
        for used in self.uses.iter_mut().filter(|used| used.until.is_none()) {
            let record = snapshot.tasks.iter().find(|record| record.task.id == used.task);
            let state = record.map(|record| record.state);
            if matches!(state, Some(TaskState::Promised(_) | TaskState::Reserved(_))) {
                continue;
            }
            self.ended.insert(used.task);
            if used.is_reserved {
                used.until = Some(0);
                continue;
            }
            let lease = self.leases.remove(&used.task).expect("a promise has a lease");
            let end = lease.min(self.now);
            let last = end + used.timing.deadline;
            used.until = Some(if used.from < end { last } else { 0 });
            if let Some(TaskState::Ending(until)) = state {
                assert_eq!(until, last);
            }
        }
        let in_state = |wanted: fn(TaskState) -> bool| {
            let found = snapshot.tasks.iter().filter(move |record| wanted(record.state));
            found.map(|record| record.task.id).collect::<BTreeSet<_>>()
        };
        let pending = in_state(|state| state == TaskState::Pending);
        let promised = in_state(|state| matches!(state, TaskState::Promised(_)));
        let decided = self.pending.difference(&pending).copied();
        self.ended.extend(decided.filter(|task| !promised.contains(task)));
        self.pending = pending;
        assert!(self.leases.values().all(|end| *end > self.now), "{:?} at {}", self.leases, self.now);
        assert_eq!(self.told_ended, self.ended);
    }

    /// Checks that no job misses a deadline on any core, at present and at each later start.
    fn check_deadlines(&self, snapshot: &RegistrySnapshot) {
        let starts = self.uses.iter().map(|used| used.from).filter(|from| *from > self.now);
        for at in starts.chain([self.now]) {
            for core in &self.machine.cores {
                let mut set = TaskSet::default();
                let runs = |used: &&CoreUse| {
                    used.core == core.id && used.from <= at && used.until.is_none_or(|until| until > at)
                };
                for (number, used) in self.uses.iter().filter(runs).enumerate() {
                    set.insert(Task::new(TaskId(number as u64), used.timing).unwrap(), core.id);
                }
                assert!(
                    is_schedulable(&set, &self.machine),
                    "core {} at {at}: {:?} {snapshot:?}",
                    core.id.core,
                    self.uses
                );
            }
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.below(100) {
                0..35 => self.admit(),
                35..45 => self.reserve(),
                45..52 => self.end_chain(),
                52..70 => self.work_on_task(),
                70..78 => self.decide_pending(),
                78..96 => self.now += MS * (1 + self.random.below(120) as u64),
                96..99 => self.now += SECOND,
                _ => self.now += 10 * SECOND,
            }
            self.observe();
        }
        for _ in 0..1_000 {
            while let Some(undecided) = self.registry.next_pending_decision(self.now) {
                self.registry.apply_decision(undecided.decide(), self.now);
                self.observe();
            }
            let Some(end) = self.registry.next_expiry() else { break };
            self.now = self.now.max(end);
            self.observe();
        }
        let snapshot = self.registry.snapshot(self.now);
        assert!(snapshot.tasks.is_empty() && self.registry.next_expiry().is_none(), "{snapshot:?}");
        assert!(snapshot.cores.iter().all(|core| core.used_by_tasks == Utilization(0)), "{snapshot:?}");
    }
}

pub(super) fn check(make: &MakeTaskRegistry) {
    let seen = std::cell::RefCell::new(BTreeMap::<&str, usize>::new());
    under_seeds(SEEDS, |seed| {
        let mut world = TaskRegistrySimulation::new(make, seed);
        world.run();
        for (what, count) in world.seen {
            *seen.borrow_mut().entry(what).or_default() += count;
        }
    });
    let seen = seen.into_inner();
    assert!(std::env::var_os("CORELANE_SEED").is_some() || seen.len() == 20, "{seen:?}");
}
