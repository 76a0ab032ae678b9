//! A try-lock with a pending flag: one thread at a time reads a connection, and no arrival is lost.
//!
//! The lock guards the state of a connection whose readiness may be reported to several threads. A
//! [`PendingLock`] is free, held, or held with the pending flag set. A thread that gets a report of
//! an arrival calls [`try_enter`](PendingLock::try_enter). If another thread holds the lock, the
//! call sets the pending flag, and the holder finds the flag when it
//! [leaves](PendingLockGuard::leave). So no edge-triggered report is lost although only one thread
//! reads.
//!
//! Comments in the code refer to two rules of memory ordering. `enter`: `leave` frees the lock with
//! release, and the next `try_enter` takes it with acquire. `pending`: a thread sets the flag by a
//! read-modify-write with release, even if the flag is set already, and the holder clears it with
//! acquire. So the holder sees all that the threads which set the flag had seen.

use crate::shim::{AtomicU32, Ordering, UnsafeCell};

const FREE: u32 = 0;
const HELD: u32 = 1;
const PENDING: u32 = 2;

/// A value that one thread at a time uses. A thread that finds the lock held sets the pending flag.
#[derive(Debug)]
pub struct PendingLock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the one guard that the state admits gives access to the value, so threads never
// share the value.
unsafe impl<T: Send> Sync for PendingLock<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: Send> Send for PendingLock<T> {}

/// A guard that holds the lock until [`leave`](Self::leave) succeeds or the guard is dropped.
///
/// A drop discards the pending flag. A holder may drop the guard if no thread reads the connection
/// any more, or if the holder schedules another read of the connection in any case.
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
    /// returns `None`.
    #[inline]
    pub fn try_enter(&self) -> Option<PendingLockGuard<'_, T>> {
        loop {
            // Acquire on success: pairs with the release in `leave` and `drop` (rule `enter`).
            match self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(PendingLockGuard { lock: self }),
                // Release: pairs with `leave` (rule `pending`), even if another thread has set the flag
                // already. A mere load would not make this thread's earlier writes visible to the
                // holder.
                Err(taken) => {
                    if self.state.compare_exchange(taken, PENDING, Ordering::Release, Ordering::Relaxed).is_ok() {
                        return None;
                    }
                }
            }
        }
    }
}

impl<'a, T> PendingLockGuard<'a, T> {
    /// Calls `work` with an exclusive reference to the value.
    #[inline]
    pub fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: this guard is the only one, and `&mut self` makes this borrow the only one of the
        // guard.
        self.lock.value.with_mut(|value| work(unsafe { &mut *value }))
    }

    /// Releases the lock if the pending flag is not set. If it is set, clears the flag and returns
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
                // Acquire: pairs with `try_enter` (rule `pending`). The exchange also clears a flag that
                // was set after the compare-and-swap above.
                self.lock.state.swap(HELD, Ordering::Acquire);
                Err(self)
            }
        }
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
        let mut first = lock.try_enter().unwrap();
        first.with(|value| *value += 1);
        assert!(lock.try_enter().is_none());
        assert!(lock.try_enter().is_none());
        let mut first = first.leave().unwrap_err();
        assert_eq!(first.with(|value| *value), 1);
        first.leave().unwrap();
        drop(lock.try_enter().unwrap());
        assert!(lock.try_enter().is_some());
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::shim::explore;

    /// Each of three threads makes one arrival and reports it. Fails if no thread that holds the
    /// lock sees an arrival.
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
}
