//! A simulation of a task registry with a store: saves fail or overlap with requests, and processes
//! end at any time. After each restart the task registry must have exactly the promises of the
//! store. The store must have every acknowledged promise that has not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use corelane::rt::JobOverrunAction;
use corelane_sched::allocation::{Machine, TaskSet, is_schedulable};
use corelane_sched::task::{CoreId, Criticality, Nanos, Task, TaskId, Timing, Utilization};
use corelane_sys::lock::{LockScope, Mutex};

use super::records::KIND;
use super::registry::{
    ChainAdmission, ClientName, RegistryLimits, RegistryRefusal, TaskAdmission, TaskRecord, TaskRegistry, TaskRequest,
    TaskState, TaskToken,
};
use super::saving::{CompletedSave, PendingSave, SaveOutcome, SaveStep};
use super::stored::StoredTaskRegistry;
use crate::naming::simulation::{SplitMix, under_seeds};
use crate::store::{Durability, MemoryStore, RecordChange, RecordVisitor, Revision, Store, StoreError};

const SEEDS: u64 = 60;
const STEPS: usize = 400;
const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    None,
    /// The commit fails, and is not applied.
    Before,
    /// The commit is applied, but reported as failed.
    After,
    Read,
}

#[derive(Clone)]
struct FlakyStore {
    store: MemoryStore,
    failure: Arc<Mutex<Failure>>,
}

fn full() -> StoreError {
    StoreError::Full { reason: "simulated".to_owned() }
}

impl Store for FlakyStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        if *self.failure.lock() == Failure::Read { Err(full()) } else { self.store.for_each(visit) }
    }

    fn commit(&self, after: Revision, batch: &[RecordChange<'_>], sync: Durability) -> Result<Revision, StoreError> {
        assert_eq!(sync, Durability::Synced);
        match *self.failure.lock() {
            Failure::Before => Err(full()),
            Failure::After => self.store.commit(after, batch, sync).and(Err(full())),
            _ => self.store.commit(after, batch, sync),
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.store.sync()
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.store.backup(path)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownPromise {
    token: TaskToken,
    timing: Timing,
    lease: Nanos,
    attachment: Vec<u8>,
    core: CoreId,
}

type Promises = BTreeMap<TaskId, KnownPromise>;

struct StoredSimulation {
    random: SplitMix,
    now: Nanos,
    store: FlakyStore,
    machine: Machine,
    limits: RegistryLimits,
    registry: StoredTaskRegistry,
    /// The promises after all requests, as their clients expect them.
    wanted: Promises,
    acknowledged: Promises,
    step: Option<PendingSave>,
    in_step: Promises,
    /// For each step since the last successful step, the promises that the step tried to save. A
    /// failed step may have reached the store.
    attempted: Vec<Promises>,
    stored: Promises,
    refused: Vec<(TaskId, Timing)>,
    seen: BTreeMap<&'static str, usize>,
}

impl StoredSimulation {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let mut machine = Machine::with_cores(1 + random.below(3) as u32);
        machine.max_steps = 1 << 12;
        let limits = RegistryLimits {
            max_tasks: 16,
            max_decisions_per_second: usize::MAX,
            default_lease: 2 * SECOND,
            max_lease: 5 * SECOND,
            ..RegistryLimits::default()
        };
        let failure = Arc::new(Mutex::new("flaky store", LockScope::Orb, Failure::None));
        let store = FlakyStore { store: MemoryStore::new(KIND), failure };
        let registry = StoredTaskRegistry::open(store.clone(), machine.clone(), limits.clone()).unwrap();
        Self {
            random,
            now: 0,
            store,
            machine,
            limits,
            registry,
            wanted: Promises::new(),
            acknowledged: Promises::new(),
            step: None,
            in_step: Promises::new(),
            attempted: Vec::new(),
            stored: Promises::new(),
            refused: Vec::new(),
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

    fn request(&mut self) -> TaskRequest {
        TaskRequest {
            name: "t".to_owned(),
            operation: String::new(),
            timing: self.timing(),
            criticality: Criticality::Normal,
            pinned_core: None,
            lease: [0, SECOND, Nanos::MAX][self.random.below(3)],
            overrun_action: JobOverrunAction::Report,
        }
    }

    fn timing(&mut self) -> Timing {
        let period = MS * (5 + self.random.below(96) as u64);
        Timing::new(period * (1 + self.random.below(600) as u64) / 1_000, period)
    }

    fn length(&self, lease: Nanos) -> Nanos {
        if lease == 0 { self.limits.default_lease } else { lease.min(self.limits.max_lease) }
    }

    fn records(&mut self) -> BTreeMap<TaskId, TaskRecord> {
        let promised = |record: &TaskRecord| matches!(record.state, TaskState::Promised(_));
        let tasks = self.registry.snapshot(self.now).tasks.into_iter().filter(promised);
        tasks.map(|record| (record.task.id, record)).collect()
    }

    fn promise(&mut self, task: TaskId, token: TaskToken, request: &TaskRequest, core: CoreId) {
        let attachment = task.0.to_le_bytes().to_vec();
        self.registry.attach_data(task, &attachment);
        let (timing, lease) = (request.timing, self.length(request.lease));
        let earlier = self.wanted.insert(task, KnownPromise { token, timing, lease, attachment, core });
        assert!(earlier.is_none() && !self.acknowledged.contains_key(&task), "no number is given twice");
        assert!(!self.registry.is_saved(task), "a new promise is not saved");
    }

    fn admit(&mut self) {
        let (request, token) = (self.request(), self.token());
        match self.registry.admit(&request, &ClientName("a".into()), token, self.now) {
            Ok(TaskAdmission::Promised(promise)) => {
                self.promise(promise.task, token, &request, promise.core);
                self.note("promised");
            }
            Ok(_) | Err(RegistryRefusal::Full(_)) => {}
            Err(refusal) => panic!("{refusal}"),
        }
    }

    fn commit_chain(&mut self) {
        let (stages, token) = ([self.request(), self.request()], self.token());
        let Ok(ChainAdmission::Reserved(chain, _)) =
            self.registry.reserve_chain(&stages, &ClientName("b".into()), token, self.now)
        else {
            return;
        };
        let promises = self.registry.commit_chain(chain, token, self.now).unwrap();
        for (promise, stage) in promises.iter().zip(&stages) {
            self.promise(promise.task, token, stage, promise.core);
        }
        self.note("committed");
    }

    fn work_on_task(&mut self) {
        let index = self.random.below(self.wanted.len());
        let Some((task, known)) = self.wanted.iter().nth(index).map(|(task, known)| (*task, known.clone())) else {
            return;
        };
        match self.random.below(4) {
            0 => {
                self.registry.withdraw(task, known.token, self.now).unwrap();
                self.wanted.remove(&task);
                self.note("withdrawn");
            }
            1 => {
                let lease = [0, SECOND, Nanos::MAX][self.random.below(3)];
                self.registry.renew(task, known.token, lease, self.now).unwrap();
                let length = self.length(lease);
                let known = self.wanted.get_mut(&task).unwrap();
                known.lease = known.lease.max(length);
            }
            _ => {
                let timing = self.timing();
                self.change(task, known.token, timing);
            }
        }
    }

    fn repeat_change(&mut self) {
        let Some((task, timing)) = self.refused.pop() else { return };
        if let Some(token) = self.wanted.get(&task).map(|known| known.token) {
            self.note("change repeated");
            self.change(task, token, timing);
        }
    }

    fn change(&mut self, task: TaskId, token: TaskToken, timing: Timing) {
        match self.registry.change_timing(task, token, timing, self.now) {
            Ok(TaskAdmission::Promised(_)) => {
                self.wanted.get_mut(&task).unwrap().timing = timing;
                self.note("changed");
            }
            Err(RegistryRefusal::EarlierTimingNotSaved) => self.note("change refused"),
            Ok(_) | Err(RegistryRefusal::Full(_)) => {}
            Err(refusal) => panic!("{refusal}"),
        }
    }

    fn begin_step(&mut self) {
        if let Some(step) = self.registry.next_save(self.now) {
            assert!(self.step.is_none() && self.registry.next_save(self.now).is_none(), "there is one step at a time");
            if matches!(step.step, SaveStep::Commit(..)) {
                self.in_step = self.wanted.clone();
                self.attempted.push(self.in_step.clone());
            }
            self.step = Some(step);
        } else if self.step.is_none() {
            // The store has everything, so all requests are acknowledged, and no change can be
            // taken back.
            self.compare(&self.wanted.clone());
            assert_eq!(self.registry.timings_before_unsaved_changes(), []);
            assert_eq!(self.stored.len(), self.wanted.len());
            self.acknowledged = self.wanted.clone();
            self.attempted.clear();
        }
    }

    fn run_step(&mut self) -> Option<CompletedSave> {
        let step = self.step.take()?;
        let failure = [Failure::None, Failure::None, Failure::None, Failure::Before, Failure::After, Failure::Read]
            [self.random.below(6)];
        let is_commit = matches!(step.step, SaveStep::Commit(..));
        *self.store.failure.lock() = failure;
        let save = step.save();
        *self.store.failure.lock() = Failure::None;
        if is_commit && failure != Failure::Before {
            self.stored = self.in_step.clone();
        }
        Some(save)
    }

    fn end_step(&mut self) {
        let Some(save) = self.run_step() else { return };
        match self.registry.apply_save(save, self.now) {
            SaveOutcome::Saved => {
                self.acknowledged = self.in_step.clone();
                self.attempted.clear();
                self.note("saved");
            }
            SaveOutcome::StoreRead => self.note("read"),
            SaveOutcome::Failed(error) => {
                assert!(matches!(*error, StoreError::Full { .. }));
                // All clients whose changes are not saved get NO_RESOURCES. Withdrawals stay in
                // effect.
                let ended = |task: &TaskId, wanted: &Promises| !wanted.contains_key(task);
                let wanted = std::mem::take(&mut self.wanted);
                let changed = |task: &TaskId| Some(wanted.get(task)?.timing);
                let refused = self.acknowledged.iter().filter_map(|(task, known)| {
                    changed(task).filter(|timing| *timing != known.timing).map(|timing| (*task, timing))
                });
                self.refused = refused.collect();
                self.wanted = self.acknowledged.clone();
                self.wanted.retain(|task, _| !ended(task, &wanted));
                self.note("failed");
                self.compare(&self.wanted.clone());
            }
        }
    }

    fn observe(&mut self) {
        let records = self.records();
        self.wanted.retain(|task, _| records.contains_key(task));
        let ended: BTreeSet<TaskId> = self.registry.take_ended_tasks(self.now).into_iter().collect();
        assert!(records.keys().all(|task| !ended.contains(task)));
        for (task, known) in &mut self.wanted {
            known.core = records[task].core.unwrap();
        }
    }

    fn compare(&mut self, expected: &Promises) {
        let records = self.records();
        let timings = |promises: &Promises| -> BTreeMap<TaskId, Timing> {
            promises.iter().map(|(task, known)| (*task, known.timing)).collect()
        };
        let found: BTreeMap<TaskId, Timing> =
            records.iter().map(|(task, record)| (*task, record.task.timing)).collect();
        assert_eq!(found, timings(expected));
        for (task, known) in expected {
            let TaskState::Promised(until) = records[task].state else { panic!("{:?}", records[task]) };
            assert!(until <= self.now + known.lease, "{task:?}");
        }
        let mut set = TaskSet::default();
        for record in records.values() {
            set.insert(Task { pinned_core: None, ..record.task }, record.core.unwrap());
        }
        assert!(is_schedulable(&set, &self.machine), "{records:?}");
    }

    fn restart(&mut self) {
        if self.random.below(2) == 0 {
            // The process ends between the commit and its application.
            let _ = self.run_step();
        }
        self.step = None;
        for (task, known) in &self.acknowledged {
            if !self.wanted.contains_key(task) {
                continue;
            }
            let stored = self.stored.get(task).expect("no acknowledged promise is lost");
            let is_attempted = |attempt: &Promises| attempt.get(task).is_some_and(|attempt| attempt == stored);
            let is_acknowledged = stored.timing == known.timing && stored.lease == known.lease;
            assert!(is_acknowledged || self.attempted.iter().any(is_attempted), "{task:?}");
        }
        self.now = 0;
        self.registry =
            StoredTaskRegistry::open(self.store.clone(), self.machine.clone(), self.limits.clone()).unwrap();
        let stored = self.stored.clone();
        self.compare(&stored);
        let records = self.records();
        let attachments: BTreeMap<TaskId, Vec<u8>> =
            self.registry.attached_data().into_iter().map(|(task, octets)| (task, octets.to_vec())).collect();
        for (task, known) in &stored {
            assert_eq!(records[task].core, Some(known.core), "a task keeps its core");
            assert_eq!(records[task].state, TaskState::Promised(known.lease), "each promise begins its lease");
            assert_eq!(attachments[task], known.attachment);
            assert_eq!(self.registry.renew(*task, known.token, known.lease, 0), Ok(known.lease));
            assert!(self.registry.is_saved(*task));
        }
        let used: u64 = self.registry.snapshot(0).cores.iter().map(|core| core.used_by_tasks.0).sum();
        let expected = Utilization::total(stored.values().map(|known| &known.timing));
        assert!(used.abs_diff(expected.0) <= stored.len() as u64, "{used} {expected:?}");
        (self.wanted, self.acknowledged) = (stored.clone(), stored);
        self.attempted.clear();
        self.refused.clear();
        self.note("restarted");
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.below(100) {
                0..30 => self.admit(),
                30..35 => self.commit_chain(),
                35..52 => self.work_on_task(),
                52..55 => self.repeat_change(),
                55..70 => self.begin_step(),
                70..83 => self.end_step(),
                83..95 => self.now += MS * (1 + self.random.below(200) as u64),
                95..97 => self.now += SECOND,
                _ => self.restart(),
            }
            self.observe();
        }
    }
}

#[test]
fn simulation_of_a_registry_whose_store_fails_and_whose_process_ends() {
    let seen = std::cell::RefCell::new(BTreeMap::<&str, usize>::new());
    under_seeds(SEEDS, |seed| {
        let mut world = StoredSimulation::new(seed);
        world.run();
        for (what, count) in world.seen {
            *seen.borrow_mut().entry(what).or_default() += count;
        }
    });
    let seen = seen.into_inner();
    assert!(std::env::var_os("CORELANE_SEED").is_some() || seen.len() == 10, "{seen:?}");
}

fn saved_registry() -> (StoredTaskRegistry, TaskRequest) {
    saved_registry_in(MemoryStore::new(KIND))
}

fn saved_registry_in(store: MemoryStore) -> (StoredTaskRegistry, TaskRequest) {
    let (machine, limits) = (Machine::with_cores(1), RegistryLimits::default());
    let mut registry = StoredTaskRegistry::open(store, machine, limits).unwrap();
    save(&mut registry, 0);
    let request = TaskRequest {
        name: "t".to_owned(),
        operation: String::new(),
        timing: Timing::new(50 * MS, 100 * MS),
        criticality: Criticality::Normal,
        pinned_core: None,
        lease: 0,
        overrun_action: JobOverrunAction::Report,
    };
    (registry, request)
}

fn save(registry: &mut StoredTaskRegistry, now: Nanos) {
    let step = registry.next_save(now).expect("the store lacks something");
    assert!(matches!(registry.apply_save(step.save(), now), SaveOutcome::Saved));
}

#[test]
fn changed_timing_begins_after_the_last_job_before_its_save() {
    let (mut registry, request) = saved_registry();
    let (client, token) = (ClientName("a".into()), TaskToken([1; 16]));
    let Ok(TaskAdmission::Promised(promise)) = registry.admit(&request, &client, token, 0) else { panic!("no room") };
    save(&mut registry, 0);
    let changed = Timing::new(20 * MS, 100 * MS);
    registry.change_timing(promise.task, token, changed, 200 * MS).unwrap();
    assert_eq!(registry.timings_before_unsaved_changes(), [(promise.task, request.timing)]);
    // The client sends jobs with the old timing until the store has the new one.
    save(&mut registry, 400 * MS);
    assert_eq!(registry.timings_before_unsaved_changes(), []);
    let Ok(TaskAdmission::Promised(kept)) = registry.pending_outcome(promise.task, token, 400 * MS) else {
        panic!("no promise")
    };
    assert_eq!(kept.starts_at, 500 * MS);
    let mut used = |at| registry.snapshot(at).cores[0].used_by_tasks.0;
    assert_eq!([used(500 * MS - 1), used(500 * MS)], [700_000_000, 200_000_000]);
}

#[test]
fn task_that_the_kernel_refuses_stays_demoted_if_its_change_cannot_be_saved() {
    let (mut registry, request) = saved_registry();
    let (client, token) = (ClientName("a".into()), TaskToken([1; 16]));
    let Ok(TaskAdmission::Promised(promise)) = registry.admit(&request, &client, token, 0) else { panic!("no room") };
    save(&mut registry, 0);
    registry.change_timing(promise.task, token, Timing::new(20 * MS, 100 * MS), 200 * MS).unwrap();
    assert!(registry.demote(promise.task, 200 * MS));
    let step = registry.next_save(200 * MS);
    assert!(step.is_some());
    assert!(matches!(registry.apply_save(CompletedSave(Err(full())), 200 * MS), SaveOutcome::Failed(_)));
    let records = registry.snapshot(200 * MS).tasks;
    assert!(records.iter().any(|record| record.task.id == promise.task && record.core.is_none()), "{records:?}");
    // The share of the last job with the old timing ends at its deadline.
    let mut used = |at| registry.snapshot(at).cores[0].used_by_tasks.0;
    assert_eq!([used(300 * MS - 1), used(300 * MS)], [500_000_000, 0]);
}

#[test]
fn task_that_the_kernel_refuses_stays_demoted_after_a_restart() {
    let store = MemoryStore::new(KIND);
    let (mut registry, request) = saved_registry_in(store.clone());
    let (client, token) = (ClientName("a".into()), TaskToken([1; 16]));
    let Ok(TaskAdmission::Promised(promise)) = registry.admit(&request, &client, token, 0) else { panic!("no room") };
    save(&mut registry, 0);
    assert!(registry.demote(promise.task, MS));
    save(&mut registry, MS);
    drop(registry);
    let mut registry = StoredTaskRegistry::open(store, Machine::with_cores(1), RegistryLimits::default()).unwrap();
    assert_eq!(registry.pending_outcome(promise.task, token, 0), Err(RegistryRefusal::KernelRefused));
    registry.set_lost_cores(&[CoreId::default()], MS);
    registry.set_lost_cores(&[], 2 * MS);
    assert_eq!(registry.renew(promise.task, token, 0, 2 * MS), Err(RegistryRefusal::KernelRefused));
    registry.withdraw(promise.task, token, 2 * MS).unwrap();
}

#[test]
fn reservation_has_only_numbers_that_no_later_process_gives() {
    let (mut registry, request) = saved_registry();
    let (client, token) = (ClientName("a".into()), TaskToken([1; 16]));
    let reserve = |registry: &mut StoredTaskRegistry, now| {
        registry.reserve_chain(std::slice::from_ref(&request), &client, token, now)
    };
    let mut reserved = 0;
    for second in 0..1_000 {
        let now = second * SECOND;
        match reserve(&mut registry, now) {
            Ok(ChainAdmission::Reserved(chain, promises)) => {
                reserved = promises[0].task.0.max(chain.0);
                registry.cancel_chain(chain, token, now).unwrap();
            }
            Ok(ChainAdmission::Rejected(..)) => panic!("there is room"),
            Err(refusal) => {
                assert_eq!((refusal, reserved), (RegistryRefusal::TaskNumbersNotSaved, 1_000));
                save(&mut registry, now);
                assert!(reserve(&mut registry, now).is_ok());
                return;
            }
        }
    }
    panic!("all reservations were accepted");
}
