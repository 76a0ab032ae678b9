//! Waiting for something that others take and give back without a lock, such as a connection of a pool.
//!
//! Giving back costs a fence and a load while nobody waits. `gate`: the waiter announces itself before it looks, the
//! giver gives before it looks for waiters, and a sequentially consistent fence on both sides makes one of them see the
//! other. Who gives by a sequentially consistent exchange needs no fence of its own: exchange and look are in one order with the
//! waiter's fence.

use std::fmt;

pub(crate) use openings::Openings;

use crate::clock::Monotonic;
use crate::shim::{AtomicU32, Ordering, fence};

/// A place to wait at. Threads of different priorities may: neither side ever holds anything that the other waits for.
pub struct Gate {
    name: &'static str,
    waiters: AtomicU32,
    /// Counts openings, so that one that comes between look and wait is noticed.
    openings: Openings,
}

impl Gate {
    /// One that nobody waits at. The name appears in diagnostics.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Gate { name, waiters: AtomicU32::new(0), openings: Openings::new() }
    }

    /// Says that something was given back: those who wait look again. Who comes just now may be faster than all of them: how long a wait
    /// lasts is bounded by its deadline only.
    #[inline]
    pub fn open(&self) {
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.openings.add(Wake::All);
        }
    }

    /// The same for who has given by a sequentially consistent exchange.
    #[inline]
    pub(crate) fn open_after_exchange(&self) {
        // The waiter adds itself, fences, and then tries to take what may have been given. If the look below does not see the addition, it
        // comes before that fence in the single order, and so does the exchange before it: the waiter's try sees what was given. `loom`
        // takes sequentially consistent accesses for weaker ones than they are, so its model covers the rest only.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) != 0 {
            self.openings.add(Wake::All);
        }
    }

    /// Looks with `look`, and again after every opening, until it finds something or `deadline` has passed.
    #[cold]
    pub fn wait<T>(&self, deadline: Option<Monotonic>, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let found = loop {
            let seen = self.openings.count();
            fence(Ordering::SeqCst);
            if let Some(found) = look() {
                break Some(found);
            }
            // With opening upon opening nobody else would look at the clock.
            if !self.openings.wait_for_more(seen, deadline) || deadline.is_some_and(Monotonic::is_past) {
                // What came with the deadline is in time.
                break look();
            }
        };
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        found
    }
}

/// Whom an opening wakes of those who sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    All,
    /// The most urgent, and of equals the one that has slept longest.
    One,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A word that the kernel has waiters sleep on, until it is another one than they saw; the most urgent wake first.
#[cfg(not(loom))]
mod openings {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Wake;
    use crate::call;
    use crate::clock::{self, Monotonic};

    #[derive(Debug)]
    pub(crate) struct Openings(AtomicU32);

    impl Openings {
        pub(crate) fn new() -> Self {
            Openings(AtomicU32::new(0))
        }

        pub(crate) fn count(&self) -> u32 {
            // Acquire: who sees an opening sees what was given before it.
            self.0.load(Ordering::Acquire)
        }

        #[cold]
        pub(crate) fn add(&self, wake: Wake) {
            // Release: pairs with `count`.
            self.0.fetch_add(1, Ordering::Release);
            let word = self.0.as_ptr();
            let most = if wake == Wake::One { 1 } else { libc::c_int::MAX };
            // SAFETY: `word` is a live, aligned word. It fails only for words that are not.
            let _ = call::futex(|| unsafe {
                libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, most)
            });
        }

        /// Sleeps until there are others than `seen`; false if the deadline comes first.
        pub(crate) fn wait_for_more(&self, seen: u32, deadline: Option<Monotonic>) -> bool {
            let until = deadline.map(|deadline| clock::timespec(std::time::Duration::from_nanos(deadline.as_nanos())));
            let until = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            while self.count() == seen {
                let word = self.0.as_ptr();
                let operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
                let nothing = std::ptr::null::<u32>();
                // SAFETY: `word` is a live, aligned word, `until` is null or points to a moment of the monotonic clock that outlives the
                // call, and the second address is not used by this operation.
                let slept = call::futex(|| unsafe {
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

/// The same for models, which have no kernel.
#[cfg(loom)]
mod openings {
    use loom::sync::{Condvar, Mutex};

    use super::Wake;
    use crate::clock::Monotonic;

    #[derive(Debug)]
    pub(crate) struct Openings(Mutex<u32>, Condvar);

    impl Openings {
        pub(crate) fn new() -> Self {
            Openings(Mutex::new(0), Condvar::new())
        }

        pub(crate) fn count(&self) -> u32 {
            *self.0.lock().unwrap()
        }

        pub(crate) fn add(&self, _wake: Wake) {
            *self.0.lock().unwrap() += 1;
            self.1.notify_all();
        }

        pub(crate) fn wait_for_more(&self, seen: u32, _deadline: Option<Monotonic>) -> bool {
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
    fn a_waiter_ends_at_its_deadline() {
        let gate = Gate::new("test");
        let deadline = Monotonic::now() + Duration::from_millis(2);
        assert_eq!(gate.wait(Some(deadline), || None::<()>), None);
        assert!(deadline.is_past());
    }

    /// Those at a gate may have any priority: nobody is kept out by somebody who was preempted there.
    #[test]
    fn neither_waiting_nor_opening_takes_a_lock() {
        let shared = Arc::new((Gate::new("test"), AtomicUsize::new(0)));
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
        shared.0.open();
        let opening = crate::counters::snapshot() - before;
        assert_eq!((opening.locks, opening.futex), (0, 1));
        assert_eq!(waiter.join().unwrap().locks, 0);
    }

    #[test]
    fn what_is_given_back_reaches_every_waiter_in_turn() {
        let shared = Arc::new((Gate::new("test"), AtomicUsize::new(0)));
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
            let shared = Arc::new((Gate::new("model"), AtomicUsize::new(0)));
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
            let shared = Arc::new((Gate::new("model"), AtomicUsize::new(0)));
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
