//! An event count: threads wait until a condition on lock-free state is true, for example until a
//! connection is back in its pool.
//!
//! [`EventCount::notify_all`] costs a fence and a load while no thread waits. The waiter announces
//! itself before it checks the state, and the notifier changes the state before it checks for
//! waiters. A sequentially consistent fence on both sides (in `notify_all_after_swap`, the caller's
//! exchange instead of the notifier's fence) makes at least one of them see the other.

use std::fmt;

pub(crate) use epoch::Epoch;

use crate::clock::Monotonic;
use crate::shim::{AtomicU32, Ordering, fence};

/// A queue of threads that wait for lock-free state to change.
pub struct EventCount {
    name: &'static str,
    waiters: AtomicU32,
    /// Number of notifications that have found a waiter, modulo 2<sup>32</sup>.
    epoch: Epoch,
}

impl EventCount {
    /// Creates an event count without waiters. The name appears in diagnostics.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        EventCount { name, waiters: AtomicU32::new(0), epoch: Epoch::new() }
    }

    /// Wakes all waiting threads, which then check the state that the caller has changed.
    #[inline]
    pub fn notify_all(&self) {
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.epoch.advance(WakeCount::All);
        }
    }

    /// Wakes all waiting threads without a fence. The caller must have changed the state by a
    /// sequentially consistent exchange.
    #[inline]
    pub(crate) fn notify_all_after_swap(&self) {
        // If the load below does not see a waiter's addition, the load precedes the waiter's fence
        // in the order of sequentially consistent operations. The caller's exchange precedes the
        // load, so the waiter's check sees the change. `loom` treats sequentially consistent
        // accesses as weaker than they are, so the model has a fence here.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) != 0 {
            self.epoch.advance(WakeCount::All);
        }
    }

    /// Calls `look` at once, after each wake-up, and a last time after `deadline` (`None`: no
    /// deadline). Returns the first value that `look` returns, or `None` after the deadline.
    #[cold]
    pub fn wait<T>(&self, deadline: Option<Monotonic>, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let found = loop {
            let seen = self.epoch.current();
            fence(Ordering::SeqCst);
            if let Some(found) = look() {
                break Some(found);
            }
            // Under constant notifications `wait_past` may never return false, so this line checks
            // the deadline.
            if !self.epoch.wait_past(seen, deadline) || deadline.is_some_and(Monotonic::is_past) {
                break look();
            }
        };
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        found
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeCount {
    All,
    /// The waiter with the highest priority.
    One,
}

impl fmt::Debug for EventCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventCount").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(not(loom))]
mod epoch {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::WakeCount;
    use crate::clock::{self, Monotonic};
    use crate::syscall;

    #[derive(Debug)]
    pub(crate) struct Epoch(AtomicU32);

    impl Epoch {
        pub(crate) fn new() -> Self {
            Epoch(AtomicU32::new(0))
        }

        pub(crate) fn current(&self) -> u32 {
            // Acquire: a thread that sees a notification sees the changes before the notification.
            self.0.load(Ordering::Acquire)
        }

        #[cold]
        pub(crate) fn advance(&self, wake: WakeCount) {
            // Release: pairs with `current`.
            self.0.fetch_add(1, Ordering::Release);
            let word = self.0.as_ptr();
            let most = if wake == WakeCount::One { 1 } else { libc::c_int::MAX };
            // SAFETY: `word` is a live, aligned word, and the call fails only for other words.
            let _ = syscall::futex(|| unsafe {
                libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, most)
            });
        }

        /// Sleeps until the epoch differs from `seen`. Returns false if the deadline passes first.
        pub(crate) fn wait_past(&self, seen: u32, deadline: Option<Monotonic>) -> bool {
            let until = deadline.map(|deadline| clock::timespec(std::time::Duration::from_nanos(deadline.as_nanos())));
            let until = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            while self.current() == seen {
                let word = self.0.as_ptr();
                let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
                let nothing = std::ptr::null::<u32>();
                // SAFETY: `word` is a live, aligned word. `until` is null or points to a time of
                // the monotonic clock that outlives the call. The operation does not use the second
                // address.
                let slept = syscall::futex(|| unsafe {
                    libc::syscall(libc::SYS_futex, word, operation, seen, until, nothing, libc::FUTEX_BITSET_MATCH_ANY)
                });
                if slept.is_err_and(|error| error.raw_os_error() == Some(libc::ETIMEDOUT)) {
                    return false;
                }
            }
            true
        }
    }
}

#[cfg(loom)]
mod epoch {
    use loom::sync::{Condvar, Mutex};

    use super::WakeCount;
    use crate::clock::Monotonic;

    #[derive(Debug)]
    pub(crate) struct Epoch(Mutex<u32>, Condvar);

    impl Epoch {
        pub(crate) fn new() -> Self {
            Epoch(Mutex::new(0), Condvar::new())
        }

        pub(crate) fn current(&self) -> u32 {
            *self.0.lock().unwrap()
        }

        pub(crate) fn advance(&self, _wake: WakeCount) {
            *self.0.lock().unwrap() += 1;
            self.1.notify_all();
        }

        pub(crate) fn wait_past(&self, seen: u32, _deadline: Option<Monotonic>) -> bool {
            let mut count = self.0.lock().unwrap();
            while *count == seen {
                count = self.1.wait(count).unwrap();
            }
            true
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[test]
    fn wait_ends_at_its_deadline() {
        let gate = EventCount::new("test");
        let deadline = Monotonic::now() + Duration::from_millis(2);
        assert_eq!(gate.wait(Some(deadline), || None::<()>), None);
        assert!(deadline.is_past());
    }

    #[test]
    fn wait_and_notify_take_no_lock() {
        let shared = Arc::new((EventCount::new("test"), AtomicUsize::new(0)));
        let other = Arc::clone(&shared);
        let waiter = std::thread::spawn(move || {
            let before = crate::counters::snapshot();
            let there = || (other.1.load(Ordering::SeqCst) > 0).then_some(());
            assert_eq!(other.0.wait(None, there), Some(()));
            crate::counters::snapshot() - before
        });
        while shared.0.waiters.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let before = crate::counters::snapshot();
        shared.1.store(1, Ordering::SeqCst);
        shared.0.notify_all();
        let opening = crate::counters::snapshot() - before;
        assert_eq!((opening.locks, opening.futex_calls), (0, 1));
        assert_eq!(waiter.join().unwrap().locks, 0);
    }

    #[test]
    fn every_returned_token_reaches_a_waiter() {
        let shared = Arc::new((EventCount::new("test"), AtomicUsize::new(0)));
        let take = |tokens: &AtomicUsize| {
            tokens.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).ok()
        };
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    for _ in 0..1000 {
                        shared.0.wait(None, || take(&shared.1)).unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..4000 {
            shared.1.fetch_add(1, Ordering::SeqCst);
            shared.0.notify_all();
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(shared.1.load(Ordering::SeqCst), 0);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    use super::*;
    use crate::shim::explore;

    fn take(tokens: &AtomicUsize) -> Option<usize> {
        tokens.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |left| left.checked_sub(1)).ok()
    }

    #[test]
    fn no_notification_is_lost() {
        explore(|| {
            let shared = Arc::new((EventCount::new("model"), AtomicUsize::new(0)));
            let giver = Arc::clone(&shared);
            let giver = loom::thread::spawn(move || {
                giver.1.fetch_add(1, Ordering::Release);
                giver.0.notify_all();
            });
            assert_eq!(shared.0.wait(None, || take(&shared.1)), Some(1));
            giver.join().unwrap();
        });
    }

    #[test]
    fn both_waiters_receive_a_token() {
        explore(|| {
            let shared = Arc::new((EventCount::new("model"), AtomicUsize::new(0)));
            let waiter = Arc::clone(&shared);
            let waiter = loom::thread::spawn(move || waiter.0.wait(None, || take(&waiter.1)).unwrap());
            shared.1.fetch_add(1, Ordering::Release);
            shared.0.notify_all();
            shared.1.fetch_add(1, Ordering::Release);
            shared.0.notify_all();
            shared.0.wait(None, || take(&shared.1)).unwrap();
            waiter.join().unwrap();
            assert_eq!(shared.1.load(Ordering::Relaxed), 0);
        });
    }
}
