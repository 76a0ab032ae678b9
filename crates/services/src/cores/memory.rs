//! A [`TaskRegistry`] in memory, which ends with the process.

mod lost_cores;
mod persistence;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use corelane_sched::allocation::{
    AdmissionPlan, AllocationStep, Core, Machine, Move, Rejection, TaskSet, admit, task_placements,
};
use corelane_sched::task::{CoreId, Criticality, Nanos, Task, TaskId, Timing, Utilization};

use super::registry::{
    ChainAdmission, ChainId, ClientName, CompletedDecision, CoreUse, DecisionCounts, LostCoresOutcome,
    MAX_CHAIN_STAGES, MAX_OPERATION_NAME_BYTES, MAX_TASK_NAME_BYTES, PendingDecision, Promise, RegistryLimits,
    RegistryRefusal, RegistrySnapshot, TaskAdmission, TaskRecord, TaskRegistry, TaskRequest, TaskState, TaskToken,
};
use super::transition;
use persistence::RevocableChange;

const SECOND: Nanos = 1_000_000_000;
/// Maximum number of searches for one decision. A search is repeated if it found a plan and the
/// registry changed during it. After the last search, a bounded search under the lock decides. A
/// search without a plan is not repeated: its rejection is final.
const MAX_SEARCHES: u32 = 3;

#[derive(Clone, Debug)]
enum EntryState {
    Reserved { chain: ChainId, until: Nanos },
    Promised { until: Nanos },
    Ending { until: Nanos },
    Pending { searches: u32 },
    Rejected { rejection: Rejection, until: Nanos },
}

#[derive(Clone, Debug)]
struct Entry {
    request: TaskRequest,
    client: ClientName,
    token: TaskToken,
    state: EntryState,
    /// The core of the task; `None` before the decision, after a rejection, and while the task is
    /// demoted.
    core: Option<CoreId>,
    /// The core that the task has lost, and to which it returns if the core has room.
    home: Option<CoreId>,
    starts_at: Nanos,
    lease: Nanos,
    attachment: Arc<[u8]>,
}

impl Entry {
    fn task(&self, id: TaskId) -> Task {
        let TaskRequest { timing, criticality, pinned_core: pinned, .. } = self.request;
        Task { id, timing, criticality, pinned_core: pinned }
    }

    fn end(&self) -> Option<Nanos> {
        match self.state {
            EntryState::Reserved { until, .. }
            | EntryState::Promised { until }
            | EntryState::Ending { until }
            | EntryState::Rejected { until, .. } => Some(until),
            EntryState::Pending { .. } => None,
        }
    }

    /// Returns true if the kernel has refused the core, priority or thread of the promised task
    /// ([`TaskRegistry::demote`]). Such a task has no home, unlike a task that has lost its core.
    fn is_refused(&self) -> bool {
        matches!(self.state, EntryState::Promised { .. }) && self.core.is_none() && self.home.is_none()
    }

    fn is_counted(&self) -> bool {
        !matches!(self.state, EntryState::Rejected { .. })
    }

    fn promise(&self, task: TaskId, core: CoreId, response: Option<Nanos>, moves: Vec<Move>) -> Promise {
        let ends_at = self.end().unwrap_or_default();
        Promise { task, core, response, starts_at: self.starts_at, ends_at, moves }
    }
}

/// A task registry without a store: the promises end with the process.
#[derive(Debug)]
pub struct MemoryTaskRegistry {
    limits: RegistryLimits,
    /// All cores of the machine. `machine` and `inline` have only the cores that are not lost.
    all_cores: Vec<Core>,
    /// The machine with the bounds of a search on another thread.
    machine: Machine,
    /// The machine with the bounds of a decision that a request waits for.
    inline: Machine,
    /// All tasks that have a share of a core, and the shares of `left_shares` and `revocable`.
    set: TaskSet,
    revision: u64,
    /// The revision at which cores were last searched for demoted tasks.
    searched: u64,
    entries: BTreeMap<TaskId, Entry>,
    ends: BTreeSet<(Nanos, TaskId)>,
    /// Shares for the last jobs of tasks that moved or changed their timing, by the time at which
    /// each share is free. Each share has a separate task id.
    left_shares: BTreeSet<(Nanos, TaskId)>,
    revocable: BTreeMap<TaskId, RevocableChange>,
    pending: VecDeque<TaskId>,
    /// The times of the decisions within the second before the latest decision.
    decisions: VecDeque<Nanos>,
    ended: Vec<TaskId>,
    last_number: u64,
    now: Nanos,
    counts: DecisionCounts,
    server_data: Vec<u8>,
}

impl MemoryTaskRegistry {
    /// Creates a task registry without tasks for a machine.
    #[must_use]
    pub fn new(machine: Machine, limits: RegistryLimits) -> Self {
        let mut inline = machine.clone().with_short_decision_limits();
        inline.max_steps = inline.max_steps.min(machine.max_steps);
        inline.max_allocation_step = inline.max_allocation_step.min(machine.max_allocation_step);
        Self {
            limits,
            all_cores: machine.cores.clone(),
            set: TaskSet::for_machine(&machine),
            inline,
            machine,
            revision: 0,
            searched: 0,
            entries: BTreeMap::new(),
            ends: BTreeSet::new(),
            left_shares: BTreeSet::new(),
            revocable: BTreeMap::new(),
            pending: VecDeque::new(),
            decisions: VecDeque::new(),
            ended: Vec::new(),
            last_number: 0,
            now: 0,
            counts: DecisionCounts::default(),
            server_data: Vec::new(),
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Advances the time to `now`, and ends all states and shares whose end has passed, in order.
    pub(super) fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        loop {
            let share = self.left_shares.first().copied().filter(|(at, _)| *at <= self.now);
            let entry = self.ends.first().copied().filter(|(at, _)| *at <= self.now);
            match (share, entry) {
                (None, None) => return,
                (Some(share), entry) if entry.is_none_or(|entry| share.0 <= entry.0) => {
                    self.left_shares.remove(&share);
                    self.set.withdraw(share.1);
                    self.revision += 1;
                }
                (_, Some((at, task))) => self.end_state(task, at),
                (Some(_), None) => return,
            }
        }
    }

    fn end_state(&mut self, task: TaskId, at: Nanos) {
        match self.entries.get(&task).map(|entry| &entry.state) {
            Some(EntryState::Promised { .. }) => {
                self.counts.leases_expired += 1;
                self.end_promise(task, at);
            }
            Some(EntryState::Reserved { .. }) => {
                self.counts.reservations_expired += 1;
                self.remove(task);
            }
            _ => self.remove(task),
        }
    }

    /// Ends a promise at time `at`. A task that has started on a core keeps its share until the
    /// deadline of a job that arrived just before `at`. Any other task is removed.
    fn end_promise(&mut self, task: TaskId, at: Nanos) {
        self.keep_change(task);
        let Some(entry) = self.entries.get(&task) else { return };
        let until = at.saturating_add(entry.request.timing.deadline);
        self.ended.push(task);
        let Some(core) = entry.core.filter(|_| entry.starts_at < at) else {
            self.take(task);
            return;
        };
        let pinned = Task { pinned_core: Some(core), ..entry.task(task) };
        // A running job stays on its core, so the share is pinned to this core.
        self.set.withdraw(task);
        self.set.insert(pinned, core);
        self.revision += 1;
        self.set_state(task, EntryState::Ending { until });
    }

    fn set_state(&mut self, task: TaskId, state: EntryState) {
        let Some(entry) = self.entries.get_mut(&task) else { return };
        if let Some(end) = entry.end() {
            self.ends.remove(&(end, task));
        }
        entry.state = state;
        if let Some(end) = entry.end() {
            self.ends.insert((end, task));
        }
    }

    /// Removes a task with its share, and reports its end unless the end was already reported.
    fn remove(&mut self, task: TaskId) {
        let entry = self.take(task);
        if entry.is_some_and(|entry| matches!(entry.state, EntryState::Reserved { .. } | EntryState::Pending { .. })) {
            self.ended.push(task);
        }
    }

    fn take(&mut self, task: TaskId) -> Option<Entry> {
        self.keep_change(task);
        let entry = self.entries.remove(&task)?;
        if let Some(end) = entry.end() {
            self.ends.remove(&(end, task));
        }
        self.pending.retain(|other| *other != task);
        if self.set.withdraw(task) {
            self.revision += 1;
        }
        Some(entry)
    }

    fn insert(&mut self, task: TaskId, entry: Entry) {
        if let Some(end) = entry.end() {
            self.ends.insert((end, task));
        }
        self.entries.insert(task, entry);
    }

    fn check(&self, request: &TaskRequest) -> Result<(), RegistryRefusal> {
        if request.name.is_empty()
            || request.name.len() > MAX_TASK_NAME_BYTES
            || request.name.chars().any(char::is_control)
        {
            return Err(RegistryRefusal::FieldOutOfRange("name", "a name has 1 to 64 bytes and no control characters"));
        }
        if request.operation.len() > MAX_OPERATION_NAME_BYTES || request.operation.chars().any(char::is_control) {
            return Err(RegistryRefusal::FieldOutOfRange(
                "operation",
                "an operation has at most 256 bytes and no control characters",
            ));
        }
        request.timing.check().map_err(RegistryRefusal::TimingOutOfRange)?;
        match request.pinned_core {
            Some(pinned) if !self.machine.cores.iter().any(|core| core.id == pinned) => {
                Err(RegistryRefusal::NoSuchCore(pinned, self.machine.cores.iter().map(|core| core.id).collect()))
            }
            _ => Ok(()),
        }
    }

    fn count_decisions(&mut self, count: usize) -> Result<(), RegistryRefusal> {
        while self.decisions.front().is_some_and(|at| self.now - at >= SECOND) {
            self.decisions.pop_front();
        }
        let most = self.limits.max_decisions_per_second;
        if self.decisions.len().saturating_add(count) > most {
            self.counts.refused_over_rate += 1;
            return Err(RegistryRefusal::RateExceeded(most));
        }
        self.decisions.extend(std::iter::repeat_n(self.now, count));
        Ok(())
    }

    /// Checks that the task registry has room for `count` more tasks, and that the client's quotas
    /// permit them with a total utilization of `further`. The utilization of task `replaced` does
    /// not count.
    fn check_quota(
        &mut self,
        client: &ClientName,
        count: usize,
        further: Utilization,
        replaced: Option<TaskId>,
    ) -> Result<(), RegistryRefusal> {
        let room = self.limits.max_tasks.saturating_sub(self.count_with_shares());
        if count > room {
            return Err(RegistryRefusal::Full(self.limits.max_tasks));
        }
        let own = self.entries.iter().filter(|(_, entry)| entry.client == *client && entry.is_counted());
        let (mut tasks, mut used) = (count, further);
        for (task, entry) in own {
            tasks = tasks.saturating_add(1);
            if Some(*task) != replaced {
                used = used.saturating_add(entry.request.timing.utilization());
            }
        }
        let refusal = if tasks > self.limits.max_tasks_per_client {
            RegistryRefusal::TaskQuotaExceeded(self.limits.max_tasks_per_client)
        } else if used > self.limits.max_utilization_per_client {
            RegistryRefusal::UtilizationQuotaExceeded(self.limits.max_utilization_per_client)
        } else {
            return Ok(());
        };
        self.counts.refused_over_quota += 1;
        Err(refusal)
    }

    fn count_with_shares(&self) -> usize {
        self.entries.len() + self.left_shares.len() + self.revocable.len()
    }

    fn lease_length(&self, lease: Nanos) -> Nanos {
        let lease = if lease == 0 { self.limits.default_lease } else { lease };
        lease.min(self.limits.max_lease)
    }

    fn lease_end(&self, lease: Nanos) -> Nanos {
        self.now.saturating_add(self.lease_length(lease))
    }

    fn owned(&self, task: TaskId, token: TaskToken) -> Result<&Entry, RegistryRefusal> {
        let entry = self.entries.get(&task).ok_or(RegistryRefusal::NotFound)?;
        if entry.token == token { Ok(entry) } else { Err(RegistryRefusal::WrongToken) }
    }

    /// Keeps a share of a core for the last job of a task that leaves the core or begins its timing
    /// anew. Returns the time at which the share is free.
    fn leave_share(&mut self, timing: Timing, core: CoreId) -> Nanos {
        let id = self.add_share(timing, core);
        let until = self.now.saturating_add(timing.deadline);
        self.left_shares.insert((until, id));
        until
    }

    fn add_share(&mut self, timing: Timing, core: CoreId) -> TaskId {
        let id = TaskId(self.next_number());
        let criticality = Criticality::High;
        self.set.insert(Task { id, timing, criticality, pinned_core: Some(core) }, core);
        id
    }

    fn apply(&mut self, plan: &AdmissionPlan) -> Nanos {
        self.set.apply(plan);
        self.revision += 1;
        let mut starts_at = self.now;
        for step in &plan.moves {
            let Some(entry) = self.entries.get_mut(&step.task) else { continue };
            entry.core = Some(step.to);
            let has_started = matches!(entry.state, EntryState::Promised { .. }) && entry.starts_at < self.now;
            let timing = entry.request.timing;
            if has_started {
                let until = self.leave_share(timing, step.from);
                if step.from == plan.core {
                    starts_at = starts_at.max(until);
                }
            }
        }
        starts_at
    }

    /// Returns the present promises of tasks. Tasks without a core are left out.
    fn promises(&self, tasks: &[TaskId]) -> Vec<Promise> {
        let placed = task_placements(&self.set, &self.machine);
        let promise = |task: &TaskId| {
            let entry = self.entries.get(task)?;
            let response = placed.iter().find(|placed| placed.task == *task).and_then(|placed| placed.response);
            Some(entry.promise(*task, entry.core?, response, Vec::new()))
        };
        tasks.iter().filter_map(promise).collect()
    }

    fn enter(&mut self, plan: &AdmissionPlan, mut entry: Entry) -> Promise {
        entry.starts_at = self.apply(plan);
        entry.core = Some(plan.core);
        self.counts.promised += 1;
        let promise = entry.promise(plan.task.id, plan.core, plan.response, plan.moves.clone());
        self.insert(plan.task.id, entry);
        promise
    }

    fn new_entry(&self, request: &TaskRequest, client: &ClientName, token: TaskToken, state: EntryState) -> Entry {
        let lease = self.lease_length(request.lease);
        let (request, client, attachment) = (request.clone(), client.clone(), Arc::default());
        Entry { request, client, token, state, core: None, home: None, starts_at: 0, lease, attachment }
    }

    fn stages(&self, chain: ChainId, token: TaskToken) -> Result<Vec<TaskId>, RegistryRefusal> {
        let is_stage = |entry: &Entry| matches!(entry.state, EntryState::Reserved { chain: of, .. } if of == chain);
        let stages: Vec<TaskId> =
            self.entries.iter().filter(|(_, entry)| is_stage(entry)).map(|(task, _)| *task).collect();
        let first = stages.first().ok_or(RegistryRefusal::NotFound)?;
        self.owned(*first, token)?;
        Ok(stages)
    }
}

impl TaskRegistry for MemoryTaskRegistry {
    fn admit(
        &mut self,
        request: &TaskRequest,
        client: &ClientName,
        token: TaskToken,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal> {
        self.advance(now);
        self.check(request)?;
        self.count_decisions(1)?;
        self.check_quota(client, 1, request.timing.utilization(), None)?;
        let id = TaskId(self.next_number());
        let state = EntryState::Promised { until: self.lease_end(request.lease) };
        let entry = self.new_entry(request, client, token, state);
        match transition::admit(&self.set, &self.set, &self.inline, &entry.task(id)) {
            Ok(plan) => Ok(TaskAdmission::Promised(self.enter(&plan, entry))),
            Err(rejection) if !rejection.is_exhaustive && self.pending.len() < self.limits.max_pending_decisions => {
                self.pending.push_back(id);
                self.insert(id, Entry { state: EntryState::Pending { searches: 0 }, ..entry });
                Ok(TaskAdmission::Pending(id))
            }
            Err(rejection) => {
                self.counts.rejected += 1;
                Ok(TaskAdmission::Rejected(rejection))
            }
        }
    }

    fn pending_outcome(
        &mut self,
        task: TaskId,
        token: TaskToken,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal> {
        self.advance(now);
        let entry = self.owned(task, token)?;
        match &entry.state {
            EntryState::Promised { .. } if entry.is_refused() => Err(RegistryRefusal::KernelRefused),
            EntryState::Rejected { rejection, .. } => Ok(TaskAdmission::Rejected(*rejection)),
            EntryState::Ending { .. } => Err(RegistryRefusal::NotFound),
            EntryState::Pending { .. } => Ok(TaskAdmission::Pending(task)),
            EntryState::Reserved { .. } | EntryState::Promised { .. } => {
                let promise = self.promises(&[task]).pop();
                promise.map(TaskAdmission::Promised).ok_or(RegistryRefusal::TaskDisplaced)
            }
        }
    }

    fn reserve_chain(
        &mut self,
        stages: &[TaskRequest],
        client: &ClientName,
        token: TaskToken,
        now: Nanos,
    ) -> Result<ChainAdmission, RegistryRefusal> {
        self.advance(now);
        if stages.is_empty() || stages.len() > MAX_CHAIN_STAGES {
            return Err(RegistryRefusal::FieldOutOfRange("stages", "a chain has 1 to 32 stages on one server"));
        }
        stages.iter().try_for_each(|stage| self.check(stage))?;
        self.count_decisions(stages.len())?;
        let further = Utilization::total(stages.iter().map(|stage| &stage.timing));
        self.check_quota(client, stages.len(), further, None)?;
        let chain = ChainId(self.next_number());
        let until = self.now.saturating_add(self.limits.reservation_timeout);
        let mut promises: Vec<Promise> = Vec::with_capacity(stages.len());
        for (index, stage) in stages.iter().enumerate() {
            let entry = self.new_entry(stage, client, token, EntryState::Reserved { chain, until });
            let task = entry.task(TaskId(self.next_number()));
            // No task moves for a chain, because the moves would have to be undone if a later stage
            // did not fit.
            let machine = Machine { max_allocation_step: AllocationStep::Direct, ..self.inline.clone() };
            match admit(&self.set, &machine, &task) {
                Ok(plan) => promises.push(self.enter(&plan, entry)),
                Err(rejection) => {
                    for promise in &promises {
                        self.take(promise.task);
                    }
                    self.counts.promised -= promises.len() as u64;
                    self.counts.rejected += 1;
                    return Ok(ChainAdmission::Rejected(index, rejection));
                }
            }
        }
        // A later stage delays earlier stages on its core, so all response times are computed at
        // the end.
        let tasks: Vec<TaskId> = promises.iter().map(|promise| promise.task).collect();
        Ok(ChainAdmission::Reserved(chain, self.promises(&tasks)))
    }

    fn commit_chain(&mut self, chain: ChainId, token: TaskToken, now: Nanos) -> Result<Vec<Promise>, RegistryRefusal> {
        self.advance(now);
        let stages = self.stages(chain, token)?;
        for task in &stages {
            let lease = self.entries.get(task).map_or(0, |entry| entry.request.lease);
            let until = self.lease_end(lease);
            self.set_state(*task, EntryState::Promised { until });
            if let Some(entry) = self.entries.get_mut(task) {
                entry.starts_at = entry.starts_at.max(self.now);
            }
        }
        Ok(self.promises(&stages))
    }

    fn cancel_chain(&mut self, chain: ChainId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal> {
        self.advance(now);
        self.stages(chain, token)?.into_iter().for_each(|task| self.remove(task));
        Ok(())
    }

    fn change_timing(
        &mut self,
        task: TaskId,
        token: TaskToken,
        timing: Timing,
        now: Nanos,
    ) -> Result<TaskAdmission, RegistryRefusal> {
        let changed = self.change_timing_revocably(task, token, timing, now)?;
        self.keep_change(task);
        Ok(changed)
    }

    fn renew(&mut self, task: TaskId, token: TaskToken, lease: Nanos, now: Nanos) -> Result<Nanos, RegistryRefusal> {
        self.advance(now);
        let entry = self.owned(task, token)?;
        match entry.state {
            EntryState::Promised { .. } if entry.is_refused() => Err(RegistryRefusal::KernelRefused),
            EntryState::Promised { .. } => {
                let (until, length) = (self.lease_end(lease), self.lease_length(lease));
                self.set_state(task, EntryState::Promised { until });
                if let Some(entry) = self.entries.get_mut(&task) {
                    entry.lease = entry.lease.max(length);
                }
                Ok(until)
            }
            EntryState::Reserved { .. } | EntryState::Pending { .. } => Err(RegistryRefusal::NotAdmittedYet),
            EntryState::Ending { .. } | EntryState::Rejected { .. } => Err(RegistryRefusal::NotFound),
        }
    }

    fn withdraw(&mut self, task: TaskId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal> {
        self.advance(now);
        match self.owned(task, token)?.state {
            EntryState::Promised { .. } => self.end_promise(task, self.now),
            EntryState::Pending { .. } | EntryState::Rejected { .. } => self.remove(task),
            EntryState::Reserved { .. } => return Err(RegistryRefusal::NotAdmittedYet),
            EntryState::Ending { .. } => return Err(RegistryRefusal::NotFound),
        }
        Ok(())
    }

    fn task_name(&self, task: TaskId) -> Option<&str> {
        self.entries.get(&task).map(|entry| entry.request.name.as_str())
    }

    fn snapshot(&mut self, now: Nanos) -> RegistrySnapshot {
        self.advance(now);
        let places: BTreeMap<TaskId, _> =
            task_placements(&self.set, &self.machine).into_iter().map(|placed| (placed.task, placed)).collect();
        let record = |(task, entry): (&TaskId, &Entry)| {
            let state = match entry.state {
                EntryState::Reserved { until, .. } => TaskState::Reserved(until),
                EntryState::Promised { until } if entry.core.is_none() => TaskState::Demoted(until),
                EntryState::Promised { until } => TaskState::Promised(until),
                EntryState::Ending { until } => TaskState::Ending(until),
                EntryState::Pending { .. } => TaskState::Pending,
                EntryState::Rejected { .. } => return None,
            };
            let placed = places.get(task);
            Some(TaskRecord {
                task: entry.task(*task),
                name: entry.request.name.clone(),
                operation: entry.request.operation.clone(),
                overrun_action: entry.request.overrun_action,
                client: entry.client.clone(),
                state,
                core: entry.core,
                priority_level: placed.map_or(0, |placed| placed.level),
                response: placed.and_then(|placed| placed.response),
                starts_at: entry.starts_at,
            })
        };
        let counted = self.machine.with_reading_of(self.set.iter().map(|(task, _)| task));
        let use_of = |core: &Core| {
            let tasks = self.set.iter().filter(|(_, on)| *on == core.id);
            let used =
                tasks.fold(Utilization::default(), |sum, (task, _)| sum.saturating_add(task.timing.utilization()));
            let is_usable = self.machine.cores.iter().any(|usable| usable.id == core.id);
            let capacity = if is_usable { core.capacity } else { Utilization::default() };
            let above = counted.cores.iter().find(|counted| counted.id == core.id).unwrap_or(core);
            CoreUse {
                core: core.id,
                capacity,
                used_by_tasks: used,
                reserved_above_tasks: Utilization::total(&above.interference),
            }
        };
        RegistrySnapshot {
            tasks: self.entries.iter().filter_map(record).collect(),
            cores: self.all_cores.iter().map(use_of).collect(),
            counts: self.counts,
        }
    }

    fn next_pending_decision(&mut self, now: Nanos) -> Option<PendingDecision> {
        self.advance(now);
        let task = *self.pending.front()?;
        let task = self.entries.get(&task)?.task(task);
        Some(PendingDecision { set: self.set.clone(), machine: self.machine.clone(), task, revision: self.revision })
    }

    fn apply_decision(&mut self, decided: CompletedDecision, now: Nanos) {
        self.advance(now);
        let CompletedDecision { task, revision, mut outcome } = decided;
        let Some(mut entry) = self.entries.get(&task).cloned() else { return };
        let EntryState::Pending { searches } = entry.state else { return };
        if revision != self.revision && outcome.is_ok() {
            if searches + 1 < MAX_SEARCHES {
                self.set_state(task, EntryState::Pending { searches: searches + 1 });
                return;
            }
            outcome = transition::admit(&self.set, &self.set, &self.inline, &entry.task(task));
        }
        self.take(task);
        match outcome {
            Ok(plan) => {
                entry.state = EntryState::Promised { until: self.lease_end(entry.request.lease) };
                self.enter(&plan, entry);
            }
            Err(rejection) => {
                self.counts.rejected += 1;
                self.ended.push(task);
                let until = self.now.saturating_add(self.limits.rejection_retention);
                entry.state = EntryState::Rejected { rejection, until };
                self.insert(task, entry);
            }
        }
    }

    fn set_lost_cores(&mut self, lost: &[CoreId], now: Nanos) -> LostCoresOutcome {
        self.advance(now);
        self.change_lost_cores(lost)
    }

    fn demote(&mut self, task: TaskId, now: Nanos) -> bool {
        self.advance(now);
        self.leave_refused_core(task)
    }

    fn take_ended_tasks(&mut self, now: Nanos) -> Vec<TaskId> {
        self.advance(now);
        std::mem::take(&mut self.ended)
    }

    fn next_expiry(&self) -> Option<Nanos> {
        let ends = [self.ends.first(), self.left_shares.first()];
        ends.into_iter().flatten().map(|(at, _)| *at).min()
    }

    fn attach_data(&mut self, task: TaskId, attachment: &[u8]) {
        if let Some(entry) = self.entries.get_mut(&task)
            && *entry.attachment != *attachment
        {
            entry.attachment = attachment.into();
        }
    }

    fn attached_data(&self) -> Vec<(TaskId, Arc<[u8]>)> {
        let promised = self.entries.iter().filter(|(_, entry)| matches!(entry.state, EntryState::Promised { .. }));
        promised.map(|(task, entry)| (*task, Arc::clone(&entry.attachment))).collect()
    }

    fn set_server_data(&mut self, data: &[u8]) {
        self.server_data = data.to_vec();
    }

    fn server_data(&self) -> &[u8] {
        &self.server_data
    }
}
