//! Requests that only the main thread may run, and the end of [`Orb::run`](crate::Orb::run).
//!
//! The main thread is the one that is in `run` or last did some work with `perform_work`; before that, the one that made the
//! ORB. A second thread in `run` only waits for the end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::lock::{Condvar, Mutex, Scope};

use crate::poa::{HELD, HELD_OCTETS, this_thread};
use crate::server::admission;

type Work = Box<dyn FnOnce() + Send>;

/// What waits for the main thread.
pub(crate) struct MainQueue {
    state: Mutex<State>,
    changed: Condvar,
    /// The thread that may run this ORB's work.
    thread: AtomicU64,
}

struct State {
    work: VecDeque<(Work, usize)>,
    /// Octets of the requests among it.
    octets: usize,
    stopped: bool,
    /// A thread is in `run`.
    running: bool,
}

impl State {
    fn next(&mut self) -> Option<Work> {
        let (work, octets) = self.work.pop_front()?;
        self.octets -= octets;
        Some(work)
    }
}

impl MainQueue {
    pub(crate) fn new() -> Self {
        let state = State { work: VecDeque::new(), octets: 0, stopped: false, running: false };
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

    /// Lists work that keeps `octets` of a request; false if too much waits or nobody will run it any more. A request is answered
    /// with TRANSIENT 1 then.
    pub(crate) fn push(&self, work: Work, octets: usize) -> bool {
        let mut state = self.state.lock();
        if state.stopped || state.work.len() >= HELD || !admission::octets_fit(state.octets, octets, HELD_OCTETS) {
            return false;
        }
        state.octets += octets;
        state.work.push_back((work, octets));
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
            match if main { state.next() } else { None } {
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
        let work = state.next();
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
        state.octets = 0;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_by_number_and_by_octets() {
        let queue = MainQueue::new();
        let push = |octets| queue.push(Box::new(|| {}), octets);
        assert!(push(HELD_OCTETS) && !push(1) && push(0));
        assert!(queue.perform_one() && push(HELD_OCTETS) && !push(1));
        assert!((2..HELD).all(|_| push(0)) && !push(0));
        queue.stop();
        assert!(!push(0) && !queue.is_pending());
    }
}
