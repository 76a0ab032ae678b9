//! The books of a server, shared by its threads, with the targets of task references.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use corelane::ObjectRef;
use corelane_sched::task::{Nanos, TaskId};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::thread;

use super::books::{Books, Token};
use super::task_id::Secrets;

/// The state that the lock of the service protects.
pub(super) struct AdmissionState {
    pub(super) books: Box<dyn Books>,
    /// The targets of the tasks that have not ended.
    pub(super) targets: HashMap<TaskId, ObjectRef>,
    /// Number of the last token.
    last_token: u64,
    is_ending: bool,
}

impl AdmissionState {
    /// Forgets the targets of tasks that have ended.
    pub(super) fn forget_ended(&mut self, now: Nanos) {
        for task in self.books.take_ended_tasks(now) {
            self.targets.remove(&task);
        }
    }
}

struct SharedAdmission {
    state: Mutex<AdmissionState>,
    /// Notified when a decision becomes pending.
    pending: Condvar,
    started_at: Monotonic,
}

impl SharedAdmission {
    fn now(&self) -> Nanos {
        u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Makes pending decisions until the service ends.
    fn decide_pending(&self) {
        let mut state = self.state.lock();
        while !state.is_ending {
            let Some(undecided) = state.books.next_pending_decision(self.now()) else {
                state = self.pending.wait(state);
                continue;
            };
            drop(state);
            let decided = undecided.decide();
            state = self.state.lock();
            state.books.apply_decision(decided, self.now());
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
        let state = AdmissionState { books, targets: HashMap::new(), last_token: 0, is_ending: false };
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
        state.forget_ended(now);
        result
    }

    /// Wakes the thread that makes pending decisions.
    pub(super) fn decide(&self) {
        self.shared.pending.notify_one();
    }

    /// Returns the target of a task that has not ended.
    pub(super) fn target(&self, task: TaskId) -> Option<ObjectRef> {
        let mut state = self.shared.state.lock();
        state.forget_ended(self.shared.now());
        state.targets.get(&task).cloned()
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
