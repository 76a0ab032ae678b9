//! Requests that only the main thread may run, and the end of [`Orb::run`](crate::Orb::run).

use std::collections::VecDeque;
use std::fmt;

use corelane_sys::lock::{Condvar, Mutex, Scope};

type Work = Box<dyn FnOnce() + Send>;

/// What waits for the thread in `run`.
pub(crate) struct MainQueue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    work: VecDeque<Work>,
    stopped: bool,
}

/// Requests that wait for the main thread at most; further ones are answered with TRANSIENT 1.
const BOUND: usize = 1024;

impl MainQueue {
    pub(crate) fn new() -> Self {
        let state = State { work: VecDeque::new(), stopped: false };
        MainQueue { state: Mutex::new("main thread queue", Scope::Orb, state), changed: Condvar::new() }
    }

    /// Lists work; false if too much waits or nobody will run it any more.
    pub(crate) fn push(&self, work: Work) -> bool {
        let mut state = self.state.lock();
        if state.stopped || state.work.len() >= BOUND {
            return false;
        }
        state.work.push_back(work);
        self.changed.notify_one();
        true
    }

    /// Runs work until [`stop`](Self::stop).
    pub(crate) fn run(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            match state.work.pop_front() {
                Some(work) => {
                    drop(state);
                    work();
                    state = self.state.lock();
                }
                None => state = self.changed.wait(state),
            }
        }
    }

    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.work.clear();
        self.changed.notify_all();
    }
}

impl fmt::Debug for MainQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MainQueue").finish_non_exhaustive()
    }
}
