//! The books of a server, shared by its threads, with the targets and endpoints of task references.
//! After each change of the books, task references and the core pool follow.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane::ObjectRef;
use corelane::rt::TaskEndpoint;
use corelane_sched::task::{CoreId, Nanos, TaskId};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::thread;

use super::books::{Books, CoreChange, Token};
use super::core_watch::CoreWatch;
use super::dispatch::TaskDispatch;
use super::task_id::Secrets;

/// The longest time after which the thread that makes decisions notices the loss of a core.
const CORE_CHECK_INTERVAL: Nanos = 100_000_000;

/// Delay after the end of a lease or reservation until the thread that makes decisions acts on it.
const EXPIRY_DELAY: Nanos = 1_000_000;

/// The state that the lock of the service protects.
pub(super) struct AdmissionState {
    pub(super) books: Box<dyn Books>,
    /// The targets of the tasks that have not ended.
    pub(super) targets: HashMap<TaskId, ObjectRef>,
    /// The endpoints of the tasks that have not ended; `None` if all endpoints were taken when the
    /// task got its reference.
    pub(super) endpoints: HashMap<TaskId, Option<TaskEndpoint>>,
    /// Task references and the core pool; `None` until the server has them.
    dispatch: Option<TaskDispatch>,
    /// Number of the last token.
    last_token: u64,
    is_ending: bool,
}

impl AdmissionState {
    /// Forgets the targets of tasks that have ended. Returns true if tasks have ended.
    fn forget_ended(&mut self, now: Nanos) -> bool {
        let ended = self.books.take_ended_tasks(now);
        for task in &ended {
            self.targets.remove(task);
            self.endpoints.remove(task);
        }
        !ended.is_empty()
    }

    /// Updates the task references and the core pool to match the books, and forgets ended tasks.
    /// The caller holds the lock of the state, so updates have the order of the books' changes.
    fn update_dispatch(&mut self, now: Nanos) {
        self.forget_ended(now);
        if let Some(dispatch) = &mut self.dispatch {
            dispatch.update(&self.books.snapshot(now), &self.targets);
        }
    }
}

struct SharedAdmission {
    state: Mutex<AdmissionState>,
    /// Notified when a decision becomes pending, and when an expiry changes.
    pending: Condvar,
    started_at: Monotonic,
}

impl SharedAdmission {
    fn now(&self) -> Nanos {
        u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Makes pending decisions and ends expired promises until the service ends.
    fn decide_pending(&self) {
        let mut watch = None;
        let mut state = self.state.lock();
        while !state.is_ending {
            let now = self.now();
            if let Some(pool) = state.dispatch.as_ref().and_then(TaskDispatch::pool).cloned() {
                let watch = watch.get_or_insert_with(|| {
                    CoreWatch::start(state.books.snapshot(now).cores.iter().map(|core| core.core))
                });
                let change = state.books.set_lost_cores(&watch.lost(), now);
                if change != CoreChange::default() {
                    let numbers = |cores: &[CoreId]| -> Vec<usize> {
                        cores.iter().filter_map(|core| usize::try_from(core.core).ok()).collect()
                    };
                    let (lost, returned) = (numbers(&change.lost), numbers(&change.returned));
                    // The pool must not put threads on lost cores, so it learns of them first.
                    lost.iter().for_each(|core| pool.lose_core(*core));
                    returned.iter().for_each(|core| pool.return_core(*core));
                    state.update_dispatch(now);
                    // The observer of the events may call the admission object.
                    drop(state);
                    for core in lost {
                        pool.report_lost_core(core, change.moved.len(), change.demoted.len());
                    }
                    for core in returned {
                        pool.report_returned_core(core, change.restored.len());
                    }
                    state = self.state.lock();
                    continue;
                }
            }
            if state.forget_ended(now) {
                state.update_dispatch(now);
            }
            let Some(undecided) = state.books.next_pending_decision(now) else {
                let expiry = state.books.next_expiry().map(|expiry| expiry.max(now).saturating_add(EXPIRY_DELAY));
                let check = watch.as_ref().map(|_| now.saturating_add(CORE_CHECK_INTERVAL));
                let at = expiry.into_iter().chain(check).min();
                let until = at.map(|at| self.started_at + Duration::from_nanos(at));
                (state, _) = self.pending.wait_until(state, until);
                continue;
            };
            drop(state);
            let decided = undecided.decide();
            state = self.state.lock();
            let now = self.now();
            state.books.apply_decision(decided, now);
            state.update_dispatch(now);
        }
    }
}

/// The admission of a server. Its drop ends the thread that makes pending decisions.
pub(super) struct SharedBooks {
    shared: Arc<SharedAdmission>,
    pub(super) secrets: Secrets,
    deciding: Option<thread::JoinHandle<()>>,
}

impl SharedBooks {
    pub(super) fn new(books: Box<dyn Books>) -> io::Result<Self> {
        let state = AdmissionState {
            books,
            targets: HashMap::new(),
            endpoints: HashMap::new(),
            dispatch: None,
            last_token: 0,
            is_ending: false,
        };
        let shared = Arc::new(SharedAdmission {
            state: Mutex::new("cores admission", LockScope::Orb, state),
            pending: Condvar::new(),
            started_at: Monotonic::now(),
        });
        let decider = Arc::clone(&shared);
        let deciding = thread::ThreadBuilder::new().name("cores/decide").spawn(move || decider.decide_pending())?;
        Ok(SharedBooks { shared, secrets: Secrets::new(), deciding: Some(deciding) })
    }

    /// Calls `work` with the locked books, the present time and a token that no task has.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut AdmissionState, Token, Nanos) -> R) -> R {
        let mut state = self.shared.state.lock();
        // The clock is read under the lock, so that the books never get an earlier time.
        let now = self.shared.now();
        state.last_token += 1;
        let token = self.secrets.token(state.last_token);
        let result = work(&mut state, token, now);
        if state.forget_ended(now) {
            state.update_dispatch(now);
        }
        result
    }

    /// Calls `work` as [`with`](Self::with) does, for changes of the books.
    pub(super) fn change<R>(&self, work: impl FnOnce(&mut AdmissionState, Token, Nanos) -> R) -> R {
        let result = self.with(|state, token, now| {
            let result = work(state, token, now);
            state.update_dispatch(now);
            result
        });
        // The next expiry may be earlier than before.
        self.decide();
        result
    }

    /// Sets the task references and the core pool that follow the books.
    pub(super) fn set_dispatch(&self, dispatch: TaskDispatch) {
        self.shared.state.lock().dispatch = Some(dispatch);
        // The thread that makes decisions watches the cores of the pool from now on.
        self.decide();
    }

    /// Wakes the thread that makes pending decisions.
    pub(super) fn decide(&self) {
        self.shared.pending.notify_one();
    }

    /// Returns the target of a task that has not ended.
    pub(super) fn target(&self, task: TaskId) -> Option<ObjectRef> {
        self.with(|state, _, now| {
            if state.forget_ended(now) {
                state.update_dispatch(now);
            }
            state.targets.get(&task).cloned()
        })
    }
}

impl Drop for SharedBooks {
    fn drop(&mut self) {
        self.shared.state.lock().is_ending = true;
        self.shared.pending.notify_one();
        if let Some(deciding) = self.deciding.take() {
            // An error means that the thread panicked. The panic hook has reported the panic.
            let _ = deciding.join();
        }
    }
}
