//! Requests that only the main thread may run, and the end of [`Orb::run`](crate::Orb::run).
//!
//! The main thread is the one that is in `run` or last did some work with `perform_work`; before that, the one that made the
//! ORB. A second thread in `run` only waits for the end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::lock::{Condvar, Mutex, Scope};

use crate::poa::this_thread;

type Work = Box<dyn FnOnce() + Send>;

/// What waits for the main thread.
pub(crate) struct MainQueue {
    state: Mutex<State>,
    changed: Condvar,
    /// The thread that may run this ORB's work.
    thread: AtomicU64,
}

struct State {
    work: VecDeque<Work>,
    stopped: bool,
    /// A thread is in `run`.
    running: bool,
}

/// Requests that wait for the main thread at most; further ones are answered with TRANSIENT 1.
const BOUND: usize = 1024;

impl MainQueue {
    pub(crate) fn new() -> Self {
        let state = State { work: VecDeque::new(), stopped: false, running: false };
        MainQueue {
            state: Mutex::new("main thread queue", Scope::Orb, state),
            changed: Condvar::new(),
            thread: AtomicU64::new(this_thread()),
        }
    }

    /// Whether the calling thread is the main thread.
    pub(crate) fn is_main_thread(&self) -> bool {
        self.thread.load(Ordering::Acquire) == this_thread()
    }

    /// Lists work; false if too much waits or nobody will run it any more.
    pub(crate) fn push(&self, work: Work) -> bool {
        let mut state = self.state.lock();
        if state.stopped || state.work.len() >= BOUND {
            return false;
        }
        state.work.push_back(work);
        self.changed.notify_all();
        true
    }

    /// Runs work until [`stop`](Self::stop).
    pub(crate) fn run(&self) {
        let mut state = self.state.lock();
        let mut main = false;
        while !state.stopped {
            if !main && !state.running {
                main = true;
                state.running = true;
                self.thread.store(this_thread(), Ordering::Release);
            }
            match if main { state.work.pop_front() } else { None } {
                Some(work) => {
                    drop(state);
                    work();
                    state = self.state.lock();
                }
                None => state = self.changed.wait(state),
            }
        }
        if main {
            state.running = false;
        }
    }

    /// Runs one piece of work if there is any; false if there was none.
    pub(crate) fn perform_one(&self) -> bool {
        let mut state = self.state.lock();
        // A thread in `run` does it; inside of its own work it may call this.
        if state.running && !self.is_main_thread() {
            return false;
        }
        self.thread.store(this_thread(), Ordering::Release);
        let work = state.work.pop_front();
        drop(state);
        work.map(|work| work()).is_some()
    }

    /// Whether work waits.
    pub(crate) fn is_pending(&self) -> bool {
        !self.state.lock().work.is_empty()
    }

    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        let dropped = std::mem::take(&mut state.work);
        self.changed.notify_all();
        drop(state);
        drop(dropped);
    }
}

impl fmt::Debug for MainQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MainQueue").finish_non_exhaustive()
    }
}
