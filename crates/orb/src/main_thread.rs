//! What only the main thread may run, requests and the ends of objects, and the end of [`Orb::run`](crate::Orb::run).
//!
//! The main thread is the one that is in `run` or last did some work with `perform_work`; before that, the one that made the
//! ORB. A second thread in `run` only waits for the end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::clock::Monotonic;
use corelane_sys::gate::Gate;
use corelane_sys::lock::{Condvar, Mutex, Scope};

use crate::orb::Core;
use crate::poa::{HELD, HELD_OCTETS, this_thread};
use crate::server::admission;

type Work = Box<dyn FnOnce() + Send>;

/// What waits for the main thread.
pub(crate) struct MainQueue {
    state: Mutex<State>,
    changed: Condvar,
    /// The thread that may run this ORB's work.
    thread: AtomicU64,
    /// Where that thread waits for a change of a POA.
    waits: Gate,
}

struct State {
    work: VecDeque<(Work, usize)>,
    /// Ends of activations. Others wait for them, so none is ever left undone, and their number is that of objects there were.
    ends: VecDeque<Work>,
    /// Octets of the requests among it.
    octets: usize,
    stopped: bool,
    /// A thread is in `run`.
    running: bool,
}

impl State {
    fn next(&mut self) -> Option<Work> {
        if let Some(end) = self.ends.pop_front() {
            return Some(end);
        }
        let (work, octets) = self.work.pop_front()?;
        self.octets -= octets;
        Some(work)
    }
}

impl MainQueue {
    pub(crate) fn new() -> Self {
        let (work, ends) = (VecDeque::new(), VecDeque::new());
        let state = State { work, ends, octets: 0, stopped: false, running: false };
        MainQueue {
            state: Mutex::new("main thread queue", Scope::Orb, state),
            changed: Condvar::new(),
            thread: AtomicU64::new(this_thread()),
            waits: Gate::new("main thread"),
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

    /// Lists the end of an activation; gives it back if nobody will run it any more.
    pub(crate) fn push_end(&self, end: Work) -> Result<(), Work> {
        {
            let mut state = self.state.lock();
            if state.stopped {
                return Err(end);
            }
            state.ends.push_back(end);
            self.changed.notify_all();
        }
        self.look_again();
        Ok(())
    }

    /// Waits, as the main thread, until `look` finds something or `deadline` has passed, and ends activations meanwhile: what it waits
    /// for may wait for that. Requests are not run.
    #[cold]
    fn wait<T>(&self, deadline: Option<Monotonic>, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        self.waits.wait(deadline, || {
            loop {
                // Before the look: who comes in time ends one at least, however long it takes to look.
                let late = deadline.is_some_and(Monotonic::is_past);
                if let Some(found) = look() {
                    return Some(found);
                }
                // Another thread may have become the main thread meanwhile.
                if late || !self.is_main_thread() {
                    return None;
                }
                let end = self.state.lock().ends.pop_front()?;
                end();
            }
        })
    }

    /// What the main thread [waits](Self::wait) for may have come.
    fn look_again(&self) {
        self.waits.open();
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
        let state = self.state.lock();
        !(state.work.is_empty() && state.ends.is_empty())
    }

    /// Takes nothing more, and drops the requests that wait. The ends of activations among it are the caller's to run.
    pub(crate) fn stop(&self) -> impl Iterator<Item = Work> + use<> {
        let mut state = self.state.lock();
        state.stopped = true;
        let (dropped, ends) = (std::mem::take(&mut state.work), std::mem::take(&mut state.ends));
        state.octets = 0;
        self.changed.notify_all();
        drop(state);
        drop(dropped);
        ends.into_iter()
    }
}

/// Waits at `gate` for what [`open`] tells of. The main thread of `orb` waits at its queue, and does what only it may do meanwhile.
pub(crate) fn wait_at<T>(
    orb: &Weak<Core>,
    gate: &Gate,
    deadline: Option<Monotonic>,
    look: impl FnMut() -> Option<T>,
) -> Option<T> {
    match orb.upgrade() {
        Some(orb) if orb.main_queue().is_main_thread() => orb.main_queue().wait(deadline, look),
        _ => gate.wait(deadline, look),
    }
}

/// Those who [wait at](wait_at) `gate` look again.
pub(crate) fn open(orb: &Weak<Core>, gate: &Gate) {
    gate.open();
    if let Some(orb) = orb.upgrade() {
        orb.main_queue().look_again();
    }
}

impl fmt::Debug for MainQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MainQueue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn what_waits_is_bounded_by_number_and_by_octets() {
        let queue = MainQueue::new();
        let push = |octets| queue.push(Box::new(|| {}), octets);
        assert!(push(HELD_OCTETS) && !push(1) && push(0));
        assert!(queue.perform_one() && push(HELD_OCTETS) && !push(1));
        assert!((2..HELD).all(|_| push(0)) && !push(0));
        assert_eq!(queue.stop().count(), 0);
        assert!(!push(0) && !queue.is_pending());
    }

    #[test]
    fn ends_of_activations_are_not_bounded_and_not_dropped() {
        let (queue, ended) = (MainQueue::new(), Arc::new(AtomicUsize::new(0)));
        let end = || {
            let ended = Arc::clone(&ended);
            Box::new(move || _ = ended.fetch_add(1, Ordering::Relaxed)) as Work
        };
        assert!((0..HELD).all(|_| queue.push(Box::new(|| {}), 0)));
        assert!((0..=HELD).all(|_| queue.push_end(end()).is_ok()));
        assert!(queue.perform_one());
        assert_eq!(ended.load(Ordering::Relaxed), 1, "before the requests");
        queue.stop().for_each(|end| end());
        assert_eq!(ended.load(Ordering::Relaxed), HELD + 1);
        assert!(queue.push_end(end()).is_err() && !queue.is_pending());
    }

    #[test]
    fn the_main_thread_ends_activations_while_it_waits() {
        let (queue, ended) = (Arc::new(MainQueue::new()), Arc::new(AtomicUsize::new(0)));
        let other = std::thread::spawn({
            let (queue, ended) = (Arc::clone(&queue), Arc::clone(&ended));
            move || queue.push_end(Box::new(move || _ = ended.fetch_add(1, Ordering::Relaxed))).is_ok()
        });
        let look = || (ended.load(Ordering::Relaxed) == 1).then_some(());
        assert_eq!(queue.wait(None, look), Some(()));
        assert!(other.join().unwrap());
    }

    #[test]
    fn it_does_no_more_than_what_it_waits_for() {
        let (queue, ended) = (Arc::new(MainQueue::new()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..4 {
            let (again, ended) = (Arc::clone(&queue), Arc::clone(&ended));
            let end = move || {
                ended.fetch_add(1, Ordering::Relaxed);
                again.look_again();
            };
            assert!(queue.push_end(Box::new(end)).is_ok());
        }
        let look = || (ended.load(Ordering::Relaxed) == 1).then_some(());
        assert_eq!(queue.wait(None, look), Some(()));
        let past = Some(Monotonic::from_nanos(1));
        assert_eq!((queue.wait(past, || None::<()>), ended.load(Ordering::Relaxed)), (None, 1));
        // Nor once another thread is the main thread.
        std::thread::scope(|scope| scope.spawn(|| assert!(queue.perform_one())).join().unwrap());
        let soon = Some(Monotonic::now() + std::time::Duration::from_millis(1));
        assert_eq!((queue.wait(soon, || None::<()>), ended.load(Ordering::Relaxed)), (None, 2));
    }
}
