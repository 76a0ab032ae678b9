//! The queue of the main thread: requests and deactivations that only the main thread may run, and
//! the end of [`Orb::run`](crate::Orb::run).
//!
//! The main thread is at first the thread that made the ORB. A thread that calls `run` or
//! `perform_work` becomes the main thread, unless another thread is in `run`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{Condvar, LockScope, Mutex};

use crate::server::admission;
use crate::server::parked_request::{MAX_PARKED_BYTES, MAX_PARKED_REQUESTS};
use crate::thread_context::thread_number;

type MainThreadJob = Box<dyn FnOnce() + Send>;

pub(crate) struct MainQueue {
    state: Mutex<State>,
    changed: Condvar,
    thread: AtomicU64,
    waiter: EventCount,
}

struct State {
    requests: VecDeque<(MainThreadJob, usize)>,
    /// Jobs that end activations. Other threads may wait for these jobs.
    deactivations: VecDeque<MainThreadJob>,
    request_bytes: usize,
    stopped: bool,
    running: bool,
}

impl State {
    fn next(&mut self) -> Option<MainThreadJob> {
        if let Some(end) = self.deactivations.pop_front() {
            return Some(end);
        }
        let (work, octets) = self.requests.pop_front()?;
        self.request_bytes -= octets;
        Some(work)
    }
}

impl MainQueue {
    pub(crate) fn new() -> Self {
        let (work, ends) = (VecDeque::new(), VecDeque::new());
        let state = State { requests: work, deactivations: ends, request_bytes: 0, stopped: false, running: false };
        MainQueue {
            state: Mutex::new("main thread queue", LockScope::Orb, state),
            changed: Condvar::new(),
            thread: AtomicU64::new(thread_number()),
            waiter: EventCount::new("main thread"),
        }
    }

    pub(crate) fn is_main_thread(&self) -> bool {
        self.thread.load(Ordering::Acquire) == thread_number()
    }

    pub(crate) fn push_request(&self, work: MainThreadJob, octets: usize) -> bool {
        let mut state = self.state.lock();
        if state.stopped
            || state.requests.len() >= MAX_PARKED_REQUESTS
            || !admission::bytes_fit(state.request_bytes, octets, MAX_PARKED_BYTES)
        {
            return false;
        }
        state.request_bytes += octets;
        state.requests.push_back((work, octets));
        self.changed.notify_all();
        true
    }

    pub(crate) fn push_deactivation(&self, end: MainThreadJob) -> Result<(), MainThreadJob> {
        {
            let mut state = self.state.lock();
            if state.stopped {
                return Err(end);
            }
            state.deactivations.push_back(end);
            self.changed.notify_all();
        }
        self.notify_waiter();
        Ok(())
    }

    /// Waits until `look` returns a value or `deadline` has passed. If the calling thread is the
    /// main thread, it runs queued deactivations during the wait, because the awaited event may
    /// depend on them.
    #[cold]
    pub(crate) fn wait<T>(&self, deadline: Option<Monotonic>, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        self.waiter.wait(deadline, || {
            loop {
                // `look` may take long, and a caller that arrives before the deadline must run at
                // least one job. So the deadline is checked before `look` runs.
                let late = deadline.is_some_and(Monotonic::is_past);
                if let Some(found) = look() {
                    return Some(found);
                }
                if late || !self.is_main_thread() {
                    return None;
                }
                let end = self.state.lock().deactivations.pop_front()?;
                end();
            }
        })
    }

    pub(crate) fn notify_waiter(&self) {
        self.waiter.notify_all();
    }

    pub(crate) fn run(&self) {
        let mut state = self.state.lock();
        let mut main = false;
        while !state.stopped {
            if !main && !state.running {
                main = true;
                state.running = true;
                self.thread.store(thread_number(), Ordering::Release);
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

    pub(crate) fn perform_one(&self) -> bool {
        let mut state = self.state.lock();
        // If another thread is in `run`, that thread runs the jobs.
        if state.running && !self.is_main_thread() {
            return false;
        }
        self.thread.store(thread_number(), Ordering::Release);
        let work = state.next();
        drop(state);
        work.map(|work| work()).is_some()
    }

    pub(crate) fn is_pending(&self) -> bool {
        let state = self.state.lock();
        !(state.requests.is_empty() && state.deactivations.is_empty())
    }

    /// Stops the queue and drops its requests. The caller must run the returned jobs, which end
    /// activations.
    pub(crate) fn stop(&self) -> impl Iterator<Item = MainThreadJob> + use<> {
        let mut state = self.state.lock();
        state.stopped = true;
        let (dropped, ends) = (std::mem::take(&mut state.requests), std::mem::take(&mut state.deactivations));
        state.request_bytes = 0;
        self.changed.notify_all();
        drop(state);
        drop(dropped);
        ends.into_iter()
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
    fn request_queue_is_bounded_by_count_and_bytes() {
        let queue = MainQueue::new();
        let push = |octets| queue.push_request(Box::new(|| {}), octets);
        assert!(push(MAX_PARKED_BYTES) && !push(1) && push(0));
        assert!(queue.perform_one() && push(MAX_PARKED_BYTES) && !push(1));
        assert!((2..MAX_PARKED_REQUESTS).all(|_| push(0)) && !push(0));
        assert_eq!(queue.stop().count(), 0);
        assert!(!push(0) && !queue.is_pending());
    }

    #[test]
    fn deactivations_are_unbounded_and_never_dropped() {
        let (queue, ended) = (MainQueue::new(), Arc::new(AtomicUsize::new(0)));
        let end = || {
            let ended = Arc::clone(&ended);
            Box::new(move || _ = ended.fetch_add(1, Ordering::Relaxed)) as MainThreadJob
        };
        assert!((0..MAX_PARKED_REQUESTS).all(|_| queue.push_request(Box::new(|| {}), 0)));
        assert!((0..=MAX_PARKED_REQUESTS).all(|_| queue.push_deactivation(end()).is_ok()));
        assert!(queue.perform_one());
        assert_eq!(ended.load(Ordering::Relaxed), 1, "deactivations must run before requests");
        queue.stop().for_each(|end| end());
        assert_eq!(ended.load(Ordering::Relaxed), MAX_PARKED_REQUESTS + 1);
        assert!(queue.push_deactivation(end()).is_err() && !queue.is_pending());
    }

    #[test]
    fn waiting_main_thread_runs_deactivations() {
        let (queue, ended) = (Arc::new(MainQueue::new()), Arc::new(AtomicUsize::new(0)));
        let other = std::thread::spawn({
            let (queue, ended) = (Arc::clone(&queue), Arc::clone(&ended));
            move || queue.push_deactivation(Box::new(move || _ = ended.fetch_add(1, Ordering::Relaxed))).is_ok()
        });
        let look = || (ended.load(Ordering::Relaxed) == 1).then_some(());
        assert_eq!(queue.wait(None, look), Some(()));
        assert!(other.join().unwrap());
    }

    #[test]
    fn waiting_main_thread_stops_at_its_condition() {
        let (queue, ended) = (Arc::new(MainQueue::new()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..4 {
            let (again, ended) = (Arc::clone(&queue), Arc::clone(&ended));
            let end = move || {
                ended.fetch_add(1, Ordering::Relaxed);
                again.notify_waiter();
            };
            assert!(queue.push_deactivation(Box::new(end)).is_ok());
        }
        let look = || (ended.load(Ordering::Relaxed) == 1).then_some(());
        assert_eq!(queue.wait(None, look), Some(()));
        let past = Some(Monotonic::from_nanos(1));
        assert_eq!((queue.wait(past, || None::<()>), ended.load(Ordering::Relaxed)), (None, 1));
        std::thread::scope(|scope| scope.spawn(|| assert!(queue.perform_one())).join().unwrap());
        let soon = Some(Monotonic::now() + std::time::Duration::from_millis(1));
        assert_eq!((queue.wait(soon, || None::<()>), ended.load(Ordering::Relaxed)), (None, 2));
    }
}
