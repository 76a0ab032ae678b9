//! The task registry of a server, shared by its threads, with the targets and endpoints of task
//! references.
//!
//! The thread `cores/decide` makes pending decisions, and the thread `cores/save` saves a task
//! registry with a store. A request that waits for a save does not hold the lock of the task
//! registry.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::rt::{CorePool, TaskEndpoint};
use corelane::{ObjectRef, Orb, SystemException};
use corelane_sched::task::{CoreId, Nanos, TaskId};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex, MutexGuard};
use corelane_sys::thread;

use super::core_watch::CoreWatch;
use super::dispatch::TaskDispatch;
use super::kernel_refusals::HeldRefusals;
use super::records::BadRecord;
use super::registry::{LostCoresOutcome, RegistryRefusal, TaskRecord, TaskRegistry, TaskState, TaskToken};
use super::restart::{ReferenceAddress, RestoredTasks, TaskAttachment, texts};
use super::saving::{CompletedSave, SaveOutcome};
use super::task_id::Secrets;
use crate::store::StoreError;

const CORE_CHECK_INTERVAL: Nanos = 100_000_000;

/// Time from the next expiry in the task registry ([`TaskRegistry::next_expiry`]) until the thread
/// `cores/decide` acts on it.
const EXPIRY_DELAY: Nanos = 1_000_000;

const RESTART_PAUSE: Duration = Duration::from_millis(50);

/// Pause after a failed save, unless a request waits for a save or the service ends.
const SAVE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct AdmissionState {
    pub(super) registry: Box<dyn TaskRegistry>,
    pub(super) targets: HashMap<TaskId, ObjectRef>,
    /// The endpoint of each task's reference. `None` if the reference has the addresses of the pool
    /// or of the ORB, because no endpoint was free or there is no pool.
    pub(super) endpoints: HashMap<TaskId, Option<TaskEndpoint>>,
    /// The dispatch of task references; `None` before [`SharedTaskRegistry::set_dispatch`].
    dispatch: Option<TaskDispatch>,
    last_token: u64,
    saves: SaveQueue,
    is_ending: bool,
}

struct SaveQueue {
    begun: u64,
    waiting: BTreeMap<u64, WaitingSave>,
    last_waiting: u64,
    max_waiting: usize,
    is_ended: bool,
}

struct WaitingSave {
    /// Number of the first save that begins after the change of this request. Saves are numbered
    /// from 1 (`SaveQueue::begun`).
    save_number: u64,
    result: Option<Result<(), Arc<StoreError>>>,
}

impl SaveQueue {
    fn complete(&mut self, save_number: u64, result: &Result<(), Arc<StoreError>>) {
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.save_number <= save_number) {
            waiting.result.get_or_insert_with(|| result.clone());
        }
    }

    fn check_room(&self) -> Result<(), NotSaved> {
        if self.waiting.len() < self.max_waiting { Ok(()) } else { Err(NotSaved::Busy(self.max_waiting)) }
    }

    fn has_waiting(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.result.is_none())
    }
}

impl AdmissionState {
    /// Forgets the targets and endpoints of ended tasks. Returns true if there were ended tasks.
    fn forget_ended(&mut self, now: Nanos) -> bool {
        let ended = self.registry.take_ended_tasks(now);
        for task in &ended {
            self.targets.remove(task);
            self.endpoints.remove(task);
        }
        !ended.is_empty()
    }

    fn update_dispatch(&mut self, now: Nanos) {
        self.forget_ended(now);
        if let Some(dispatch) = &mut self.dispatch {
            let before = self.registry.timings_before_unsaved_changes();
            dispatch.update(&self.registry.snapshot(now), &before, &self.targets);
        }
    }

    fn remaining_lease(&mut self, task: TaskId, now: Nanos) -> Option<Nanos> {
        let record = self.registry.snapshot(now).tasks.into_iter().find(|record| record.task.id == task)?;
        match record.state {
            TaskState::Promised(until) | TaskState::Demoted(until) => Some(until.saturating_sub(now)),
            _ => None,
        }
    }

    pub(super) fn check_saving(&self) -> Result<(), NotSaved> {
        if self.saves.is_ended { Err(NotSaved::Ended) } else { Ok(()) }
    }

    pub(super) fn set_target(&mut self, task: TaskId, target: &ObjectRef) {
        self.targets.insert(task, target.clone());
        self.attach(task);
    }

    /// Attaches the target and the reference's address to a task in the task registry. Does nothing
    /// without a store or a target.
    pub(super) fn attach(&mut self, task: TaskId) {
        if !self.registry.has_store() {
            return;
        }
        let Some(target) = self.targets.get(&task) else { return };
        let address = match self.endpoints.get(&task) {
            None => ReferenceAddress::None,
            Some(None) => ReferenceAddress::Pool,
            Some(Some(endpoint)) => ReferenceAddress::Endpoint(texts(endpoint.addresses())),
        };
        let attachment = TaskAttachment { target: target.to_string(), address };
        self.registry.attach_data(task, &attachment.encode());
    }
}

struct SharedAdmission {
    state: Mutex<AdmissionState>,
    /// Wakes the thread `cores/decide`.
    pending: Condvar,
    /// Wakes the thread `cores/save`.
    unsaved: Condvar,
    /// Wakes the requests that wait for a save.
    saved: Condvar,
    /// The instant 0 of the task registry, set when the service begins. Until then the registry's
    /// time is 0, so that restored leases do not run before clients can renew them.
    started_at: OnceLock<Monotonic>,
}

impl SharedAdmission {
    fn now(&self) -> Nanos {
        let elapsed = self.started_at.get().map_or(Duration::ZERO, |started_at| started_at.elapsed());
        u64::try_from(elapsed.as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Makes pending decisions, ends expired promises and, if there is a core pool, watches the
    /// cores, until the service ends. Sets `watch` in the first pass with a core pool. `held` are
    /// refusals of the kernel that are not in the task registry yet.
    fn decide_pending(&self, watch: &mut Option<CoreWatch>, held: &mut HeldRefusals) {
        let mut state = self.state.lock();
        while !state.is_ending {
            let now = self.now();
            if let Some(pool) = state.dispatch.as_ref().and_then(TaskDispatch::pool).cloned() {
                let watch = watch.get_or_insert_with(|| {
                    CoreWatch::start(state.registry.snapshot(now).cores.iter().map(|core| core.core))
                });
                for refused in pool.take_refused_tasks() {
                    held.add(TaskId(refused.task), refused.core, now);
                }
                let lost = watch.lost();
                held.forget_cores(&lost);
                let change = state.registry.set_lost_cores(&lost, now);
                if change != LostCoresOutcome::default() {
                    let numbers = |cores: &[CoreId]| -> Vec<usize> {
                        cores.iter().filter_map(|core| usize::try_from(core.core).ok()).collect()
                    };
                    let (lost, returned) = (numbers(&change.newly_lost_cores), numbers(&change.returned_cores));
                    // The pool must not put threads on lost cores, so the pool is updated before
                    // the tasks.
                    lost.iter().for_each(|core| pool.mark_core_lost(*core));
                    returned.iter().for_each(|core| pool.mark_core_returned(*core));
                    state.update_dispatch(now);
                    self.unsaved.notify_one();
                    // The lock is released, because the observer of these reports may call the
                    // admission object.
                    drop(state);
                    for core in lost {
                        pool.report_lost_core(core, change.moved_tasks.len(), change.demoted_tasks.len());
                    }
                    for core in returned {
                        pool.report_returned_core(core, change.restored_tasks.len());
                    }
                    state = self.state.lock();
                    continue;
                }
                let due = held.take_due(now, |task| {
                    let snapshot = state.registry.snapshot(now);
                    snapshot.tasks.iter().find(|record| record.task.id == task).and_then(|record| record.core)
                });
                if !due.is_empty() {
                    for task in due {
                        state.registry.demote(task, now);
                    }
                    state.update_dispatch(now);
                    self.unsaved.notify_one();
                    // The lock is released, because the observer of the events may call the
                    // admission object.
                    drop(state);
                    pool.report_refused_tasks();
                    state = self.state.lock();
                    continue;
                }
            }
            if state.forget_ended(now) {
                state.update_dispatch(now);
                self.unsaved.notify_one();
            }
            let Some(undecided) = state.registry.next_pending_decision(now) else {
                let expiry = state.registry.next_expiry().map(|expiry| expiry.max(now).saturating_add(EXPIRY_DELAY));
                let check = watch.as_ref().map(|_| now.saturating_add(CORE_CHECK_INTERVAL));
                let at = expiry.into_iter().chain(check).min();
                // Until `begin_time` sets the start of the clock, the wait has no deadline.
                // `begin_time` wakes this thread.
                let started_at = self.started_at.get();
                let until = at.zip(started_at).map(|(at, started_at)| *started_at + Duration::from_nanos(at));
                (state, _) = self.pending.wait_until(state, until);
                continue;
            };
            drop(state);
            let decided = undecided.decide();
            state = self.state.lock();
            let now = self.now();
            state.registry.apply_decision(decided, now);
            state.update_dispatch(now);
            self.unsaved.notify_one();
        }
    }

    /// Saves the task registry until the service ends, and then the remaining changes until a save
    /// fails.
    fn save_changes(&self) {
        let mut state = self.state.lock();
        let mut retry_at: Option<Monotonic> = None;
        loop {
            // Evaluated once: `retry_at` may pass before the wait below, and a second evaluation
            // would then drop the deadline of the wait.
            let is_due = retry_at.is_none_or(Monotonic::is_past);
            let is_last = state.is_ending;
            let may_save = is_due || is_last || state.saves.has_waiting();
            let has_revocable = !state.registry.timings_before_unsaved_changes().is_empty();
            let step = if may_save { state.registry.next_save(self.now()) } else { None };
            if let Some(step) = step {
                state.saves.begun += 1;
                let number = state.saves.begun;
                drop(state);
                let save = step.save();
                state = self.state.lock();
                let now = self.now();
                retry_at = None;
                match state.registry.apply_save(save, now) {
                    SaveOutcome::Saved => state.saves.complete(number, &Ok(())),
                    SaveOutcome::StoreRead => {}
                    SaveOutcome::Failed(error) => {
                        state.saves.complete(u64::MAX, &Err(error));
                        retry_at = Some(Monotonic::now() + SAVE_RETRY_INTERVAL);
                    }
                }
                if has_revocable || retry_at.is_some() {
                    state.update_dispatch(now);
                    self.pending.notify_one();
                }
                self.saved.notify_all();
                if is_last && retry_at.is_some() {
                    return;
                }
                continue;
            }
            if may_save && has_revocable {
                let now = self.now();
                state.update_dispatch(now);
                self.pending.notify_one();
            }
            if may_save && state.saves.has_waiting() {
                // The store has all changes: the waiting requests changed nothing, or later
                // requests have undone their changes.
                state.saves.complete(u64::MAX, &Ok(()));
                self.saved.notify_all();
            }
            if state.is_ending {
                return;
            }
            (state, _) = self.unsaved.wait_until(state, retry_at.filter(|_| !is_due));
        }
    }
}

/// Ends the waits for saves when the thread that saves has ended, even by a panic.
struct SavesEnd(Arc<SharedAdmission>);

impl Drop for SavesEnd {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.saves.is_ended = true;
        if !state.is_ending {
            // The thread has panicked: the task registry undoes the changes that are not saved.
            let now = self.0.now();
            let _ = state.registry.apply_save(CompletedSave(Err(thread_has_ended())), now);
            state.update_dispatch(now);
        }
        state.saves.complete(u64::MAX, &Err(Arc::new(thread_has_ended())));
        self.0.saved.notify_all();
    }
}

fn thread_has_ended() -> StoreError {
    StoreError::Unusable { path: None, reason: "the thread that saves has ended".to_owned() }
}

#[derive(Clone, Debug)]
pub(super) enum NotSaved {
    /// The request does not wait for the store, because this number of requests, the maximum,
    /// already wait.
    Busy(usize),
    /// The thread that saves had ended before the request, which has not changed the registry.
    Ended,
    Failed(Arc<StoreError>),
}

pub(super) struct SavedResult<R> {
    pub(super) result: R,
    /// `Ok` has the time, in nanoseconds, for which the request waited until the store had its
    /// promises.
    pub(super) saved: Result<Nanos, NotSaved>,
}

/// The admission of a server. The drop waits until the threads `cores/decide` and `cores/save` have
/// ended.
pub(super) struct SharedTaskRegistry {
    shared: Arc<SharedAdmission>,
    pub(super) secrets: Secrets,
    deciding: Option<thread::JoinHandle<()>>,
    saving: Option<thread::JoinHandle<()>>,
}

impl SharedTaskRegistry {
    pub(super) fn new(registry: Box<dyn TaskRegistry>, secrets: Secrets, max_waiting: usize) -> io::Result<Self> {
        let has_store = registry.has_store();
        let max_waiting = if has_store { max_waiting.max(1) } else { usize::MAX };
        let state = AdmissionState {
            registry,
            targets: HashMap::new(),
            endpoints: HashMap::new(),
            dispatch: None,
            last_token: 0,
            saves: SaveQueue { begun: 0, waiting: BTreeMap::new(), last_waiting: 0, max_waiting, is_ended: false },
            is_ending: false,
        };
        let shared = Arc::new(SharedAdmission {
            state: Mutex::new("cores admission", LockScope::Orb, state),
            pending: Condvar::new(),
            unsaved: Condvar::new(),
            saved: Condvar::new(),
            started_at: OnceLock::new(),
        });
        // If the system refuses the second thread, the drop ends the first.
        let mut registry = SharedTaskRegistry { shared, secrets, deciding: None, saving: None };
        if has_store {
            let end = SavesEnd(Arc::clone(&registry.shared));
            let thread = thread::ThreadBuilder::new().name("cores/save").scheduling(thread::Scheduling::Other);
            registry.saving = Some(thread.spawn(move || end.0.save_changes())?);
        }
        let decider = Arc::clone(&registry.shared);
        let body = move || {
            // The watch outlives a panic. A new watch would not know the lost cores, which would
            // then count as returned.
            let (mut watch, mut held) = (None, HeldRefusals::default());
            // After a panic and a pause, the thread continues with the present task registry.
            while catch_unwind(AssertUnwindSafe(|| decider.decide_pending(&mut watch, &mut held))).is_err() {
                std::thread::sleep(RESTART_PAUSE);
            }
        };
        let deciding = thread::ThreadBuilder::new().name("cores/decide").spawn(body)?;
        registry.deciding = Some(deciding);
        Ok(registry)
    }

    fn with_lock<'a, R>(
        &'a self,
        mut state: MutexGuard<'a, AdmissionState>,
        work: impl FnOnce(&mut AdmissionState, TaskToken, Nanos) -> R,
    ) -> (MutexGuard<'a, AdmissionState>, R) {
        // The clock is read under the lock, so that the task registry never gets an earlier time.
        let now = self.shared.now();
        state.last_token += 1;
        let token = self.secrets.token(state.last_token);
        let result = work(&mut state, token, now);
        if state.forget_ended(now) {
            state.update_dispatch(now);
            self.shared.unsaved.notify_one();
        }
        (state, result)
    }

    /// Calls `work` with the locked task registry, the present time and a token that no task has.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut AdmissionState, TaskToken, Nanos) -> R) -> R {
        self.with_lock(self.shared.state.lock(), work).1
    }

    /// Calls `work` like [`with`](Self::with), updates the task references and the core pool, and
    /// wakes the threads that decide and save.
    pub(super) fn change<R>(&self, work: impl FnOnce(&mut AdmissionState, TaskToken, Nanos) -> R) -> R {
        let result = self.with(|state, token, now| {
            let result = work(state, token, now);
            state.update_dispatch(now);
            result
        });
        // The next expiry may be earlier than before, so `cores/decide` is woken.
        self.decide();
        self.shared.unsaved.notify_one();
        result
    }

    /// Calls `work` like [`change`](Self::change), and waits until the store has the promises of
    /// the tasks that `tasks` returns, or until a save fails. If too many requests wait, returns
    /// [`NotSaved::Busy`] without calling `work`.
    pub(super) fn change_saved<R>(
        &self,
        work: impl FnOnce(&mut AdmissionState, TaskToken, Nanos) -> R,
        tasks: impl FnOnce(&R) -> Vec<TaskId>,
    ) -> Result<SavedResult<R>, NotSaved> {
        let state = self.shared.state.lock();
        state.saves.check_room()?;
        let (state, result) = self.with_lock(state, |state, token, now| {
            let result = work(state, token, now);
            state.update_dispatch(now);
            result
        });
        let saved = self.wait_saved(state, &tasks(&result));
        self.decide();
        Ok(SavedResult { result, saved })
    }

    /// Calls `work` like [`with`](Self::with), and waits until the store has the promises of the
    /// tasks that `tasks` returns, or until a save fails. Does not wait if too many requests wait;
    /// `saved` is then [`NotSaved::Busy`].
    pub(super) fn read_saved<R>(
        &self,
        work: impl FnOnce(&mut AdmissionState, TaskToken, Nanos) -> R,
        tasks: impl FnOnce(&R) -> Vec<TaskId>,
    ) -> SavedResult<R> {
        let (state, result) = self.with_lock(self.shared.state.lock(), work);
        let saved = self.wait_saved(state, &tasks(&result));
        SavedResult { result, saved }
    }

    /// Renews a lease by `renew`, and returns the time until the lease ends. `renew` returns the
    /// length of the lease. If the lease becomes longer than the saved one, the request waits for a
    /// save. If the save fails or too many requests wait, the saved length applies.
    pub(super) fn renew<E: From<RegistryRefusal>>(
        &self,
        task: TaskId,
        renew: impl FnOnce(&mut AdmissionState, Nanos) -> Result<Nanos, E>,
    ) -> Result<Nanos, E> {
        let (state, length) = self.with_lock(self.shared.state.lock(), |state, _, now| renew(state, now));
        let length = length?;
        let renewed = match state.registry.saved_lease(task).filter(|saved| length > *saved) {
            Some(saved) if state.saves.check_room().is_err() => saved,
            Some(_) => {
                // If the save fails, the task registry shortens the lease.
                let _ = self.wait_for_step(state);
                self.with(|state, _, now| state.remaining_lease(task, now)).ok_or(RegistryRefusal::NotFound)?
            }
            None => length,
        };
        self.decide();
        Ok(renewed)
    }

    /// Waits until the store has the present promises of the tasks, and returns the time of the
    /// wait. Returns an error if a save fails, or at once if too many requests wait.
    fn wait_saved(&self, state: MutexGuard<'_, AdmissionState>, tasks: &[TaskId]) -> Result<Nanos, NotSaved> {
        if tasks.iter().all(|task| state.registry.is_saved(*task)) {
            self.shared.unsaved.notify_one();
            return Ok(0);
        }
        state.saves.check_room()?;
        let began_at = self.shared.now();
        self.wait_for_step(state).map_err(NotSaved::Failed)?;
        Ok(self.shared.now().saturating_sub(began_at))
    }

    /// Waits until the store has all changes up to now, or until a save fails.
    fn wait_for_step(&self, mut state: MutexGuard<'_, AdmissionState>) -> Result<(), Arc<StoreError>> {
        let saves = &mut state.saves;
        let (number, save_number) = (saves.last_waiting + 1, saves.begun + 1);
        saves.last_waiting = number;
        let result = saves.is_ended.then(|| Err(Arc::new(thread_has_ended())));
        saves.waiting.insert(number, WaitingSave { save_number, result });
        self.shared.unsaved.notify_one();
        loop {
            if let Some(result) = state.saves.waiting.get(&number).and_then(|waiting| waiting.result.clone()) {
                state.saves.waiting.remove(&number);
                return result;
            }
            state = self.shared.saved.wait(state);
        }
    }

    pub(super) fn save(&self) -> Result<(), Arc<StoreError>> {
        if self.saving.is_some() { self.wait_for_step(self.shared.state.lock()) } else { Ok(()) }
    }

    /// Restores the targets and endpoints of the tasks that the task registry has from an earlier
    /// process. `has_moved` is true if references without an endpoint have other addresses than
    /// before.
    pub(super) fn restore(
        &self,
        orb: &Orb,
        pool: Option<&CorePool>,
        has_moved: bool,
    ) -> Result<RestoredTasks, SystemException> {
        let (attachments, snapshot) =
            self.with(|state, _, now| (state.registry.attached_data(), state.registry.snapshot(now)));
        let is_demoted = |record: &&TaskRecord| matches!(record.state, TaskState::Demoted(_));
        let mut restored = RestoredTasks {
            tasks: attachments.len(),
            demoted: snapshot.tasks.iter().filter(is_demoted).count(),
            ..RestoredTasks::default()
        };
        let mut found = Vec::new();
        for (task, attachment) in attachments.into_iter().filter(|(_, attachment)| !attachment.is_empty()) {
            let TaskAttachment { target, address } = TaskAttachment::decode(&attachment)?;
            let target = orb.string_to_object(&target)?.ok_or(BadRecord)?;
            let endpoint = match (&address, pool) {
                (ReferenceAddress::None, _) => None,
                (ReferenceAddress::Pool, _) => {
                    restored.tasks_with_new_references += usize::from(has_moved);
                    Some(None)
                }
                (ReferenceAddress::Endpoint(addresses), pool) => {
                    let endpoint = pool.and_then(|pool| pool.take_task_endpoint_at(addresses));
                    restored.tasks_with_new_references += usize::from(endpoint.is_none());
                    endpoint.map(Some)
                }
            };
            found.push((task, target, endpoint));
        }
        self.with(|state, _, _| {
            let live: BTreeSet<TaskId> = state.registry.attached_data().into_iter().map(|(task, _)| task).collect();
            for (task, target, endpoint) in found.into_iter().filter(|(task, ..)| live.contains(task)) {
                state.targets.insert(task, target);
                endpoint.map(|endpoint| state.endpoints.insert(task, endpoint));
            }
        });
        Ok(restored)
    }

    pub(super) fn begin_time(&self) {
        // A second call has no effect.
        let _ = self.shared.started_at.set(Monotonic::now());
        self.decide();
    }

    pub(super) fn set_dispatch(&self, dispatch: TaskDispatch) {
        let mut state = self.shared.state.lock();
        state.dispatch = Some(dispatch);
        let now = self.shared.now();
        state.update_dispatch(now);
        drop(state);
        self.decide();
    }

    /// Wakes the thread `cores/decide`.
    pub(super) fn decide(&self) {
        self.shared.pending.notify_one();
    }

    pub(super) fn target(&self, task: TaskId) -> Option<ObjectRef> {
        self.with(|state, _, now| {
            if state.forget_ended(now) {
                state.update_dispatch(now);
            }
            state.targets.get(&task).cloned()
        })
    }
}

impl Drop for SharedTaskRegistry {
    fn drop(&mut self) {
        self.shared.state.lock().is_ending = true;
        self.shared.pending.notify_one();
        self.shared.unsaved.notify_one();
        for ended in [self.deciding.take(), self.saving.take()].into_iter().flatten() {
            let _ = ended.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane::rt::{CorePoolConfig, CpuSet};
    use corelane_sched::allocation::Machine;
    use corelane_sched::task::Timing;

    use super::*;
    use crate::cores::dispatch::{DispatchRules, TaskKeys};
    use crate::cores::memory::MemoryTaskRegistry;
    use crate::cores::registry::{
        ChainAdmission, ChainId, ClientName, CompletedDecision, PendingDecision, Promise, RegistryLimits,
        RegistrySnapshot, TaskAdmission, TaskRequest,
    };
    use crate::cores::task_id::TagKey;

    #[test]
    fn time_of_the_registry_begins_with_the_service() {
        let registry = MemoryTaskRegistry::new(Machine::with_cores(1), RegistryLimits::default());
        let shared = SharedTaskRegistry::new(Box::new(registry), Secrets::new(TagKey([1, 2])), 0).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(shared.with(|_, _, now| now), 0);
        shared.begin_time();
        let began_at = Monotonic::now();
        std::thread::sleep(Duration::from_millis(1));
        let elapsed = u64::try_from(began_at.elapsed().as_nanos()).unwrap();
        assert!(shared.with(|_, _, now| now) >= elapsed);
    }

    /// A task registry that panics once, in a call of `next_pending_decision`.
    struct PanickingTaskRegistry {
        registry: MemoryTaskRegistry,
        panics: bool,
        cores: Arc<WatchedCores>,
    }

    struct WatchedCores {
        lost: Mutex<Vec<Vec<u32>>>,
        usable: Mutex<Option<CpuSet>>,
    }

    impl Default for WatchedCores {
        fn default() -> Self {
            let lost = Mutex::new("lost cores", LockScope::Orb, Vec::new());
            WatchedCores { lost, usable: Mutex::new("usable cores", LockScope::Orb, None) }
        }
    }

    impl TaskRegistry for PanickingTaskRegistry {
        fn next_pending_decision(&mut self, now: Nanos) -> Option<PendingDecision> {
            assert!(!std::mem::take(&mut self.panics), "the test wants this panic");
            self.registry.next_pending_decision(now)
        }

        fn admit(
            &mut self,
            request: &TaskRequest,
            client: &ClientName,
            token: TaskToken,
            now: Nanos,
        ) -> Result<TaskAdmission, RegistryRefusal> {
            self.registry.admit(request, client, token, now)
        }

        fn pending_outcome(
            &mut self,
            task: TaskId,
            token: TaskToken,
            now: Nanos,
        ) -> Result<TaskAdmission, RegistryRefusal> {
            self.registry.pending_outcome(task, token, now)
        }

        fn reserve_chain(
            &mut self,
            stages: &[TaskRequest],
            client: &ClientName,
            token: TaskToken,
            now: Nanos,
        ) -> Result<ChainAdmission, RegistryRefusal> {
            self.registry.reserve_chain(stages, client, token, now)
        }

        fn commit_chain(
            &mut self,
            chain: ChainId,
            token: TaskToken,
            now: Nanos,
        ) -> Result<Vec<Promise>, RegistryRefusal> {
            self.registry.commit_chain(chain, token, now)
        }

        fn cancel_chain(&mut self, chain: ChainId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal> {
            self.registry.cancel_chain(chain, token, now)
        }

        fn change_timing(
            &mut self,
            task: TaskId,
            token: TaskToken,
            timing: Timing,
            now: Nanos,
        ) -> Result<TaskAdmission, RegistryRefusal> {
            self.registry.change_timing(task, token, timing, now)
        }

        fn renew(
            &mut self,
            task: TaskId,
            token: TaskToken,
            lease: Nanos,
            now: Nanos,
        ) -> Result<Nanos, RegistryRefusal> {
            self.registry.renew(task, token, lease, now)
        }

        fn withdraw(&mut self, task: TaskId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal> {
            self.registry.withdraw(task, token, now)
        }

        fn task_name(&self, task: TaskId) -> Option<&str> {
            self.registry.task_name(task)
        }

        fn snapshot(&mut self, now: Nanos) -> RegistrySnapshot {
            self.registry.snapshot(now)
        }

        fn apply_decision(&mut self, decided: CompletedDecision, now: Nanos) {
            self.registry.apply_decision(decided, now);
        }

        fn set_lost_cores(&mut self, lost: &[CoreId], now: Nanos) -> LostCoresOutcome {
            self.cores.lost.lock().push(lost.iter().map(|core| core.core).collect());
            if let Some(usable) = self.cores.usable.lock().take() {
                thread::set_affinity(None, &usable).unwrap();
                self.panics = usable.iter().count() == 1;
            }
            self.registry.set_lost_cores(lost, now)
        }

        fn demote(&mut self, task: TaskId, now: Nanos) -> bool {
            self.registry.demote(task, now)
        }

        fn take_ended_tasks(&mut self, now: Nanos) -> Vec<TaskId> {
            self.registry.take_ended_tasks(now)
        }

        fn next_expiry(&self) -> Option<Nanos> {
            self.registry.next_expiry()
        }

        fn attach_data(&mut self, task: TaskId, attachment: &[u8]) {
            self.registry.attach_data(task, attachment);
        }

        fn attached_data(&self) -> Vec<(TaskId, Arc<[u8]>)> {
            self.registry.attached_data()
        }

        fn set_server_data(&mut self, data: &[u8]) {
            self.registry.set_server_data(data);
        }

        fn server_data(&self) -> &[u8] {
            self.registry.server_data()
        }
    }

    #[test]
    fn panic_of_the_thread_that_decides_keeps_the_registry_and_later_decisions() {
        let limits = RegistryLimits { default_lease: 1_000_000, ..RegistryLimits::default() };
        let registry = MemoryTaskRegistry::new(Machine::with_cores(1), limits);
        let registry = PanickingTaskRegistry { registry, panics: true, cores: Arc::default() };
        let shared = SharedTaskRegistry::new(Box::new(registry), Secrets::new(TagKey([1, 2])), 0).unwrap();
        let request = TaskRequest {
            name: "held".to_owned(),
            operation: String::new(),
            timing: Timing::new(1_000_000, 10_000_000),
            criticality: Default::default(),
            pinned_core: None,
            lease: 3_600_000_000_000,
            overrun_action: Default::default(),
        };
        let admit = |lease: Nanos| {
            let request = TaskRequest { lease, ..request.clone() };
            let client = ClientName("a client".into());
            let decided = shared.change(|state, token, now| state.registry.admit(&request, &client, token, now));
            assert!(matches!(decided, Ok(TaskAdmission::Promised(_))), "{decided:?}");
        };
        admit(request.lease);
        shared.begin_time();
        admit(0);
        // Only the thread `cores/decide` notices the end of the second lease, because no other
        // request comes.
        let ended = || shared.shared.state.lock().registry.next_expiry() > Some(1_000_000_000_000);
        for _ in 0..10_000 {
            if ended() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(ended());
        let snapshot = shared.with(|state, _, now| state.registry.snapshot(now));
        let names: Vec<_> = snapshot.tasks.iter().map(|record| record.name.as_str()).collect();
        assert_eq!((names, snapshot.counts.promised, snapshot.counts.leases_expired), (vec!["held"], 2, 1));
    }

    /// The thread must keep its set of watched cores over a panic. A new set would lack the lost
    /// core.
    #[test]
    fn core_that_is_lost_at_a_panic_stays_lost_until_it_returns() {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let secrets = Secrets::new(TagKey([1, 2]));
        let keys = Arc::new(TaskKeys::new(secrets.clone()));
        let pool = orb.real_time().create_core_pool(&CorePoolConfig::default().cores([0]), keys).unwrap();
        let cores: Arc<WatchedCores> = Arc::default();
        let registry = MemoryTaskRegistry::new(Machine::with_cores(2), RegistryLimits::default());
        let registry = PanickingTaskRegistry { registry, panics: false, cores: Arc::clone(&cores) };
        let shared = SharedTaskRegistry::new(Box::new(registry), secrets.clone(), 0).unwrap();
        let rules = DispatchRules { enforces_rates: false, by_deadline: false, has_share: false };
        shared.set_dispatch(TaskDispatch::new(secrets, orb.root_poa(), Some(pool), rules));
        shared.begin_time();
        let wait_for = |what: &str, seen: &dyn Fn(&[Vec<u32>]) -> bool| {
            for _ in 0..10_000 {
                if seen(&cores.lost.lock()) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            panic!("{what}: {:?}", *cores.lost.lock());
        };
        wait_for("the cores must be watched", &|lost| lost.last() == Some(&vec![]));
        *cores.usable.lock() = Some(CpuSet::one(0));
        // The registry panics just after the first check that finds the core lost. So the restarted
        // thread makes the later checks.
        let is_lost = |lost: &[Vec<u32>]| lost.iter().filter(|lost| **lost == [1]).count();
        wait_for("the core must be lost", &|lost| is_lost(lost) >= 4);
        let lost = cores.lost.lock().clone();
        let since = lost.iter().position(|lost| *lost == [1]).unwrap();
        assert!(lost[since..].iter().all(|lost| *lost == [1]), "{lost:?}");
        *cores.usable.lock() = Some([0, 1].into_iter().collect());
        wait_for("the core must return", &|lost| lost.last() == Some(&vec![]));
    }
}
