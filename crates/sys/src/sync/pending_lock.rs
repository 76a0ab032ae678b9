//! A try-lock with a pending flag: one thread at a time reads a connection, and no arrival is lost.
//!
//! A [`PendingLock`] is free, held, held with the pending flag set, or kept. A thread that gets a
//! report of an arrival calls [`try_enter`](PendingLock::try_enter). If another thread holds the
//! lock, the call sets the pending flag, and the holder finds the flag when it
//! [leaves](PendingLockGuard::leave).
//!
//! A [kept](PendingLockGuard::keep_locked) lock has no guard and lets no thread enter, until a
//! thread [resumes](PendingLock::resume_kept) or [releases](PendingLock::try_release_kept) it.
//!
//! Comments in the code refer to two rules of memory ordering. `enter`: `leave`, `try_release_kept`
//! and the drop of a guard free the lock with release, and the next `try_enter` takes it with
//! acquire. `pending`: a thread sets the flag by a read-modify-write with release, even if the flag
//! is set already, and the holder clears it in `leave` with acquire. So the holder sees the earlier
//! writes of the threads that set the flag.

use crate::shim::{AtomicU32, Ordering, UnsafeCell};

const FREE: u32 = 0;
const HELD: u32 = 1;
const PENDING: u32 = 2;
const KEPT: u32 = 3;

/// A try-lock around a value that one thread at a time uses.
#[derive(Debug)]
pub struct PendingLock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the state admits one guard, and only a guard gives access to the value, so threads never
// share the value.
unsafe impl<T: Send> Sync for PendingLock<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: Send> Send for PendingLock<T> {}

/// A guard that holds the lock until [`leave`](Self::leave) succeeds,
/// [`keep_locked`](Self::keep_locked) is called, or the guard is dropped.
///
/// A drop discards the pending flag, as `keep_locked` does.
#[must_use = "the lock is released at once"]
#[derive(Debug)]
pub struct PendingLockGuard<'a, T> {
    lock: &'a PendingLock<T>,
}

impl<T> PendingLock<T> {
    /// Creates a free lock.
    #[must_use]
    pub fn new(value: T) -> Self {
        PendingLock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. If another thread holds it, sets the pending flag for that thread and
    /// returns `None`. If the lock is kept, returns `None` and sets no flag.
    #[inline]
    pub fn try_enter(&self) -> Option<PendingLockGuard<'_, T>> {
        loop {
            // Acquire on success: pairs with the release in `leave`, `try_release_kept` and `drop`
            // (rule `enter`).
            match self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(PendingLockGuard { lock: self }),
                Err(KEPT) => return None,
                Err(taken) => {
                    // Release: pairs with `leave` (rule `pending`), even if the flag is set; a load
                    // would not publish this thread's writes.
                    if self.state.compare_exchange(taken, PENDING, Ordering::Release, Ordering::Relaxed).is_ok() {
                        return None;
                    }
                }
            }
        }
    }
}

impl<T> PendingLock<T> {
    /// Returns true if a thread holds the lock or the lock is kept. The result is a hint, because
    /// it may change at once.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    /// Takes a lock that a guard has left locked ([`PendingLockGuard::keep_locked`]). Returns
    /// `None` if the lock is not kept.
    #[inline]
    pub fn resume_kept(&self) -> Option<PendingLockGuard<'_, T>> {
        // Acquire: pairs with the release in `keep_locked`.
        let taken = self.state.compare_exchange(KEPT, HELD, Ordering::Acquire, Ordering::Relaxed);
        // The guard is made only on success, because its drop would free the lock.
        taken.is_ok().then(|| PendingLockGuard { lock: self })
    }

    /// Frees a kept lock. Returns false if the lock is not kept. The caller must check for arrivals
    /// afterwards, because threads that found the lock kept have left no flag.
    pub fn try_release_kept(&self) -> bool {
        // Acquire and release: the next `try_enter` sees the writes of the thread that kept the
        // lock.
        self.state.compare_exchange(KEPT, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl<'a, T> PendingLockGuard<'a, T> {
    /// Calls `work` with an exclusive reference to the value.
    #[inline]
    pub fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: no second guard exists, and `&mut self` excludes a second borrow through this
        // guard.
        self.lock.value.with_mut(|value| work(unsafe { &mut *value }))
    }

    /// Releases the lock if the pending flag is not set. If the flag is set, clears it and returns
    /// the guard; the caller must then check for arrivals again.
    ///
    /// # Errors
    /// The guard, if the pending flag was set.
    #[inline]
    pub fn leave(self) -> Result<(), Self> {
        // Release: pairs with the acquire in `try_enter` (rule `enter`).
        match self.lock.state.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Acquire) {
            Ok(_) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(_) => {
                // Acquire: pairs with `try_enter` (rule `pending`).
                self.lock.state.swap(HELD, Ordering::Acquire);
                Err(self)
            }
        }
    }
}

impl<T> PendingLockGuard<'_, T> {
    /// Gives up the guard without freeing the lock, and discards the pending flag. No thread enters
    /// until a thread [resumes](PendingLock::resume_kept) or
    /// [releases](PendingLock::try_release_kept) the lock.
    #[inline]
    pub fn keep_locked(self) {
        // Release: pairs with the acquire in `resume_kept` and in `try_release_kept`.
        self.lock.state.swap(KEPT, Ordering::Release);
        std::mem::forget(self);
    }
}

impl<T> Drop for PendingLockGuard<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_enter` (rule `enter`).
        self.lock.state.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn holder_finds_the_pending_flag() {
        let lock = PendingLock::new(0);
        assert!(!lock.is_held());
        let mut first = lock.try_enter().unwrap();
        first.with(|value| *value += 1);
        assert!(lock.try_enter().is_none());
        assert!(lock.try_enter().is_none());
        let mut first = first.leave().unwrap_err();
        assert_eq!(first.with(|value| *value), 1);
        assert!(lock.is_held());
        first.leave().unwrap();
        assert!(!lock.is_held());
        drop(lock.try_enter().unwrap());
        assert!(lock.try_enter().is_some());
    }

    #[test]
    fn kept_lock_admits_only_the_thread_that_resumes_it() {
        let lock = PendingLock::new(0);
        assert!(lock.resume_kept().is_none() && !lock.try_release_kept());
        let held = lock.try_enter().unwrap();
        assert!(lock.resume_kept().is_none() && lock.try_enter().is_none());
        held.keep_locked();
        assert!(lock.try_enter().is_none());
        let mut resumed = lock.resume_kept().unwrap();
        resumed.with(|value| *value += 1);
        assert!(lock.resume_kept().is_none());
        resumed.leave().unwrap();
        lock.try_enter().unwrap().keep_locked();
        assert!(lock.try_release_kept());
        assert_eq!(lock.try_enter().unwrap().with(|value| *value), 1);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::shim::explore;

    #[test]
    fn no_arrival_is_lost() {
        explore(|| {
            let shared = Arc::new((PendingLock::new(0usize), AtomicUsize::new(0)));
            let arrive = |shared: &(PendingLock<usize>, AtomicUsize)| {
                shared.1.fetch_add(1, Ordering::Relaxed);
                let mut next = shared.0.try_enter();
                while let Some(mut guard) = next {
                    let arrived = shared.1.load(Ordering::Relaxed);
                    guard.with(|seen| *seen = arrived);
                    next = guard.leave().err();
                }
            };
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || arrive(&shared))
                })
                .collect();
            arrive(&shared);
            for other in others {
                other.join().unwrap();
            }
            let mut last = shared.0.try_enter().unwrap();
            assert_eq!(last.with(|seen| *seen), 3);
        });
    }

    #[test]
    fn kept_lock_passes_to_one_thread() {
        explore(|| {
            let shared = Arc::new((PendingLock::new(0usize), AtomicUsize::new(0)));
            let read = |shared: &(PendingLock<usize>, AtomicUsize)| {
                let mut next = shared.0.try_enter();
                while let Some(mut guard) = next {
                    let arrived = shared.1.load(Ordering::Relaxed);
                    guard.with(|seen| *seen = arrived);
                    next = guard.leave().err();
                }
            };
            shared.0.try_enter().unwrap().keep_locked();
            let resuming = Arc::clone(&shared);
            let resuming = loom::thread::spawn(move || {
                let mut guard = resuming.0.resume_kept().unwrap();
                guard.with(|seen| *seen += 0);
                guard.keep_locked();
                assert!(resuming.0.try_release_kept());
                read(&resuming);
            });
            shared.1.fetch_add(1, Ordering::Release);
            read(&shared);
            resuming.join().unwrap();
            read(&shared);
            assert_eq!(shared.0.try_enter().unwrap().with(|seen| *seen), 1);
        });
    }
}
