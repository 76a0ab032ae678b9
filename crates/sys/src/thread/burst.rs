//! Burst mode of a group of threads: one thread works alone, another supervises it, and the other
//! threads sleep.
//!
//! A thread that would work faster alone calls [`BurstCoordinator::try_request`] with the *subject*
//! of the burst, a number that the caller chooses. The next thread that calls
//! [`sleep_or_supervise`](BurstCoordinator::sleep_or_supervise) becomes the *supervisor*. The
//! supervisor begins the burst, checks periodically whether the burst should continue, and ends it.
//! Other threads that call `sleep_or_supervise` sleep until the end.
//!
//! Comments in the code refer to one rule of memory ordering, `roles`: the supervisor sets the
//! subject of the burst before it clears the request (release). It clears the subject only when it
//! ends the burst. So a thread that no longer finds its request (acquire) sees the burst that the
//! request led to, unless the burst is over or the group was shut down.

use std::time::Duration;

#[cfg(not(loom))]
use crate::clock::Monotonic;
use crate::counters;
use crate::lock::{Condvar, LockScope, Mutex, MutexGuard};
use crate::shim::{AtomicU64, Ordering};

/// The subject while there is no burst.
pub const NO_BURST: u64 = u64::MAX;

/// The roles of a group's threads, as the module describes them.
#[derive(Debug)]
pub struct BurstCoordinator {
    /// The subject of the present burst, or [`NO_BURST`]. Only the supervisor and
    /// [`shut_down`](Self::shut_down) change it.
    subject: AtomicU64,
    requested: AtomicU64,
    has_supervisor: Mutex<bool>,
    burst_over: Condvar,
}

impl Default for BurstCoordinator {
    fn default() -> Self {
        Self::new()
    }
}

impl BurstCoordinator {
    /// Creates a group without a burst and without a request.
    #[must_use]
    pub fn new() -> Self {
        BurstCoordinator {
            subject: AtomicU64::new(NO_BURST),
            requested: AtomicU64::new(NO_BURST),
            has_supervisor: Mutex::new("supervisor of a burst", LockScope::Lane, false),
            burst_over: Condvar::new(),
        }
    }

    /// Returns true if there is a burst or a request for one.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.subject.load(Ordering::Relaxed) != NO_BURST || self.requested.load(Ordering::Relaxed) != NO_BURST
    }

    /// Returns true if there is a burst for this subject.
    #[inline]
    pub fn is_burst_for(&self, subject: u64) -> bool {
        self.subject.load(Ordering::Acquire) == subject
    }

    /// Returns true if a burst for this subject is requested and has no supervisor.
    pub fn is_requested_for(&self, subject: u64) -> bool {
        // Acquire: pairs with `sleep_or_supervise` (rule `roles`).
        self.requested.load(Ordering::Acquire) == subject
    }

    /// Requests a burst in which the calling thread works alone on `subject`. Returns false if an
    /// earlier request has no supervisor yet.
    pub fn try_request(&self, subject: u64) -> bool {
        self.requested.compare_exchange(NO_BURST, subject, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Sleeps while there is a burst, then supervises a requested burst, if any. The supervisor
    /// calls `goes_on` about every `tick`. It ends the burst when `goes_on` returns false or the
    /// group is shut down. Returns the subject of the burst that the calling thread has supervised,
    /// or `None`.
    pub fn sleep_or_supervise(&self, tick: Duration, mut goes_on: impl FnMut() -> bool) -> Option<u64> {
        let mut watched = self.has_supervisor.lock();
        while *watched {
            watched = self.burst_over.wait(watched);
        }
        let subject = self.requested.load(Ordering::Relaxed);
        if subject == NO_BURST {
            return None;
        }
        *watched = true;
        self.subject.store(subject, Ordering::Relaxed);
        // Release: pairs with `is_requested_for` (rule `roles`). A newer request remains for the
        // next supervisor.
        let _ = self.requested.compare_exchange(subject, NO_BURST, Ordering::Release, Ordering::Relaxed);
        counters::count_burst();
        while self.is_burst_for(subject) {
            watched = self.wait_tick(tick, watched);
            if !goes_on() {
                break;
            }
        }
        *watched = false;
        self.subject.store(NO_BURST, Ordering::Release);
        self.burst_over.notify_all();
        Some(subject)
    }

    #[cfg(not(loom))]
    fn wait_tick<'a>(&'a self, tick: Duration, watched: MutexGuard<'a, bool>) -> MutexGuard<'a, bool> {
        self.burst_over.wait_until(watched, Some(Monotonic::now() + tick)).0
    }

    /// In a `loom` model a tick may end at any time.
    #[cfg(loom)]
    fn wait_tick<'a>(&'a self, _: Duration, supervisor: MutexGuard<'a, bool>) -> MutexGuard<'a, bool> {
        drop(supervisor);
        self.has_supervisor.lock()
    }

    /// Ends the group: the burst is over, and every sleeping thread returns.
    #[cold]
    pub fn shut_down(&self) {
        // The supervisor checks `subject` under this lock before it waits, so `subject` must change
        // under the lock.
        let watched = self.has_supervisor.lock();
        self.requested.store(NO_BURST, Ordering::Relaxed);
        self.subject.store(NO_BURST, Ordering::Release);
        self.burst_over.notify_all();
        drop(watched);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_supervisor_without_a_request() {
        let roles = BurstCoordinator::new();
        assert_eq!(roles.sleep_or_supervise(Duration::ZERO, || panic!("no burst was requested")), None);
        assert!(!roles.is_active());
    }

    #[test]
    fn requested_burst_is_supervised_until_its_check_fails() {
        let roles = BurstCoordinator::new();
        assert!(roles.try_request(7));
        assert!(roles.is_active() && roles.is_requested_for(7) && !roles.is_burst_for(7));
        let (before, mut looks) = (counters::snapshot().bursts, 0);
        let watched = roles.sleep_or_supervise(Duration::from_micros(10), || {
            assert!(roles.is_burst_for(7) && !roles.is_requested_for(7));
            looks += 1;
            looks < 3
        });
        assert_eq!((watched, looks), (Some(7), 3));
        assert_eq!(counters::snapshot().bursts - before, 1);
        assert!(!roles.is_active());
    }

    #[test]
    fn shut_down_ends_the_burst() {
        let roles = BurstCoordinator::new();
        assert!(roles.try_request(7));
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| roles.sleep_or_supervise(Duration::from_secs(3600), || true));
            while !roles.is_burst_for(7) {
                std::thread::yield_now();
            }
            let sleeper = scope.spawn(|| roles.sleep_or_supervise(Duration::ZERO, || true));
            roles.shut_down();
            assert_eq!((watch.join().unwrap(), sleeper.join().unwrap()), (Some(7), None));
        });
        assert!(!roles.is_active());
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;
    use crate::shim::{AtomicBool, explore, explore_within};
    use crate::wake_flag::WakeFlag;

    const CONNECTION: u64 = 1;
    const TICK: Duration = Duration::ZERO;

    #[test]
    fn requesting_thread_sees_its_burst() {
        explore(|| {
            let shared = Arc::new((BurstCoordinator::new(), AtomicBool::new(false)));
            assert!(shared.0.try_request(CONNECTION));
            let other = Arc::clone(&shared);
            let watch = thread::spawn(move || {
                other.0.sleep_or_supervise(TICK, || {
                    other.1.store(true, Ordering::Relaxed);
                    false
                })
            });
            // Lets `loom` order this thread's loads between the stores of the supervisor.
            thread::yield_now();
            if !shared.0.is_requested_for(CONNECTION) && !shared.0.is_burst_for(CONNECTION) {
                assert!(shared.1.load(Ordering::Relaxed), "expected that the burst is over");
            }
            assert_eq!(watch.join().unwrap(), Some(CONNECTION));
        });
    }

    #[test]
    fn group_end_wakes_sleepers_and_admits_one_supervisor() {
        explore(|| {
            let shared = Arc::new((BurstCoordinator::new(), AtomicBool::new(false)));
            assert!(shared.0.try_request(CONNECTION));
            let threads = [(); 2].map(|()| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut ticks = 0;
                    let watched = shared.0.sleep_or_supervise(TICK, || {
                        ticks += 1;
                        assert_eq!(
                            shared.1.swap(ticks == 1, Ordering::Relaxed),
                            ticks == 2,
                            "expected one supervisor at a time"
                        );
                        ticks < 2
                    });
                    if ticks == 1 {
                        shared.1.store(false, Ordering::Relaxed);
                    }
                    watched.is_some()
                })
            });
            shared.0.shut_down();
            let watches = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|watched| *watched).count();
            assert!(watches <= 1);
            assert!(!shared.0.is_active());
        });
    }

    struct Lane {
        roles: BurstCoordinator,
        unread: Mutex<u32>,
        listed: AtomicUsize,
        wake_flag: WakeFlag,
        edge: Mutex<bool>,
        reported: Condvar,
        done: Mutex<u32>,
        progress: Condvar,
        stop: AtomicBool,
    }

    const MESSAGES: u32 = 3;

    impl Lane {
        fn new() -> Arc<Self> {
            Arc::new(Lane {
                roles: BurstCoordinator::new(),
                unread: Mutex::new(MESSAGES),
                listed: AtomicUsize::new(0),
                wake_flag: WakeFlag::new(),
                edge: Mutex::new(false),
                reported: Condvar::new(),
                done: Mutex::new(0),
                progress: Condvar::new(),
                stop: AtomicBool::new(false),
            })
        }

        fn wake(&self) {
            *self.edge.lock().unwrap() = true;
            self.reported.notify_one();
        }

        fn wake_one(&self) {
            if self.wake_flag.try_raise() {
                self.wake();
            }
        }

        fn push(&self) {
            self.listed.fetch_add(1, Ordering::SeqCst);
            self.wake_one();
        }

        fn step(&self, runs: &mut bool) {
            let before = self.listed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |listed| listed.checked_sub(1));
            match before {
                Ok(before) => {
                    if before > 1 {
                        self.wake_one();
                    }
                    self.read(runs);
                }
                Err(_) => {
                    let mut edge = self.edge.lock().unwrap();
                    while !*edge {
                        edge = self.reported.wait(edge).unwrap();
                    }
                    *edge = false;
                    drop(edge);
                    self.wake_flag.clear();
                }
            }
        }

        fn read(&self, runs: &mut bool) {
            loop {
                let mut unread = self.unread.lock().unwrap();
                let message = *unread;
                *unread = message.saturating_sub(1);
                drop(unread);
                if message == 0 {
                    return;
                }
                let more = message > 1;
                let keeps = more && self.keeps_rest(runs);
                if more && !keeps {
                    self.push();
                }
                self.serve(message);
                if !keeps {
                    return;
                }
            }
        }

        fn keeps_rest(&self, runs: &mut bool) -> bool {
            if *runs {
                return self.roles.is_burst_for(CONNECTION);
            }
            if !self.roles.is_active() {
                *runs = true;
                self.roles.try_request(CONNECTION);
            }
            false
        }

        fn serve(&self, message: u32) {
            let mut done = self.done.lock().unwrap();
            while message == 2 && *done < MESSAGES - 1 {
                done = self.progress.wait(done).unwrap();
            }
            *done += 1;
            self.progress.notify_all();
            if *done == MESSAGES {
                drop(done);
                self.stop.store(true, Ordering::Release);
                self.roles.shut_down();
                self.wake();
            }
        }

        fn supervise(&self, runs: &mut bool) {
            if !self.roles.is_active() {
                *runs = false;
            } else if !*runs {
                if self.roles.sleep_or_supervise(TICK, || false).is_some() {
                    self.push();
                }
            } else if !self.roles.is_requested_for(CONNECTION) {
                while self.roles.is_burst_for(CONNECTION) && !self.stop.load(Ordering::Acquire) {
                    self.step(runs);
                }
                *runs = false;
            }
        }

        fn run(&self) {
            let mut runs = false;
            while !self.stop.load(Ordering::Acquire) {
                self.step(&mut runs);
                self.supervise(&mut runs);
            }
            // Another sleeping thread must find the stop flag too, so this thread wakes one.
            self.wake();
        }
    }

    #[test]
    fn request_may_wait_for_a_later_request() {
        explore_within(2, || {
            let lane = Lane::new();
            let threads = [(); 2].map(|()| {
                let lane = Arc::clone(&lane);
                thread::spawn(move || lane.run())
            });
            lane.push();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(*lane.done.lock().unwrap(), MESSAGES);
        });
    }
}
