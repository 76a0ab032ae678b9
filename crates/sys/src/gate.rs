//! Waiting for something that others take and give back without a lock, such as a connection of a pool.
//!
//! Giving back costs a fence and a load while nobody waits. `gate`: the waiter announces itself before it looks, the
//! giver gives before it looks for waiters, and a sequentially consistent fence on both sides makes one of them see the
//! other.

use crate::clock::Monotonic;
use crate::lock::{Condvar, Mutex, Scope};
use crate::shim::{AtomicU32, Ordering, fence};

/// A place to wait at.
#[derive(Debug)]
pub struct Gate {
    waiters: AtomicU32,
    /// Counts openings, so that one that comes between look and wait is noticed.
    openings: Mutex<u64>,
    opened: Condvar,
}

impl Gate {
    /// One that nobody waits at.
    #[must_use]
    pub fn new(name: &'static str, scope: Scope) -> Self {
        Gate { waiters: AtomicU32::new(0), openings: Mutex::new(name, scope, 0), opened: Condvar::new() }
    }

    /// Says that something was given back: those who wait look again. Who comes just now may be faster than all of them: how long a wait
    /// lasts is bounded by its deadline only.
    #[inline]
    pub fn open(&self) {
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        *self.openings.lock() += 1;
        self.opened.notify_all();
    }

    /// Looks with `look`, and again after every opening, until it finds something or `deadline` has passed.
    #[cold]
    pub fn wait<T>(&self, deadline: Option<Monotonic>, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let found = loop {
            let seen = *self.openings.lock();
            fence(Ordering::SeqCst);
            if let Some(found) = look() {
                break Some(found);
            }
            let mut openings = self.openings.lock();
            let mut in_time = true;
            while *openings == seen && in_time {
                (openings, in_time) = self.opened.wait_until(openings, deadline);
            }
            if !in_time {
                // What came with the deadline is in time.
                break look();
            }
        };
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_waiter_ends_at_its_deadline() {
        let gate = Gate::new("test", Scope::Lane);
        let deadline = Monotonic::now() + Duration::from_millis(2);
        assert_eq!(gate.wait(Some(deadline), || None::<()>), None);
        assert!(deadline.is_past());
    }

    #[test]
    fn what_is_given_back_reaches_every_waiter_in_turn() {
        let shared = Arc::new((Gate::new("test", Scope::Lane), AtomicUsize::new(0)));
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
            shared.0.open();
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

    /// Whoever waits for what is given back gets it: an opening that nobody notices would leave the waiter there for ever.
    #[test]
    fn no_opening_is_lost() {
        explore(|| {
            let shared = Arc::new((Gate::new("model", Scope::Lane), AtomicUsize::new(0)));
            let giver = Arc::clone(&shared);
            let giver = loom::thread::spawn(move || {
                giver.1.fetch_add(1, Ordering::Release);
                giver.0.open();
            });
            assert_eq!(shared.0.wait(None, || take(&shared.1)), Some(1));
            giver.join().unwrap();
        });
    }

    /// Two wait and two are given back, one after the other: none is left behind.
    #[test]
    fn every_waiter_is_served() {
        explore(|| {
            let shared = Arc::new((Gate::new("model", Scope::Lane), AtomicUsize::new(0)));
            let waiter = Arc::clone(&shared);
            let waiter = loom::thread::spawn(move || waiter.0.wait(None, || take(&waiter.1)).unwrap());
            shared.1.fetch_add(1, Ordering::Release);
            shared.0.open();
            shared.1.fetch_add(1, Ordering::Release);
            shared.0.open();
            shared.0.wait(None, || take(&shared.1)).unwrap();
            waiter.join().unwrap();
            assert_eq!(shared.1.load(Ordering::Relaxed), 0);
        });
    }
}
