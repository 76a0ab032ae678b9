//! Locks with a name and a scope.
//!
//! The scope says which threads a lock can make wait: threads of one connection, of one lane, or of
//! the whole ORB. Taking a lock adds to the calling thread's [`counters`].
//!
//! A [`PiMutex`] lends the priority of its waiters to its holder: it is the lock for data that
//! threads of different priorities use.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use super::checkout_cell::{ArcCheckoutGuard, CheckoutCell, CheckoutGuard, CheckoutHolder};
pub use super::pi_mutex::{PiCondvar, PiMutex, PiMutexGuard};
use crate::clock::Monotonic;
use crate::counters;
use crate::shim::{self, const_unless_loom};

/// The threads that a lock can make wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockScope {
    /// Threads that use one connection.
    Connection,
    /// Threads of one lane, and threads of other lanes that hand requests over to this lane.
    Lane,
    /// Threads of all connections and lanes. Locks of the whole process have this scope, too.
    Orb,
}

#[cold]
pub(super) fn wait_traced<T>(take: impl FnOnce() -> T) -> T {
    crate::probe!("lock wanted");
    let taken = take();
    crate::probe!("lock taken");
    taken
}

/// A mutex around a value.
pub struct Mutex<T> {
    name: &'static str,
    scope: LockScope,
    inner: shim::Mutex<T>,
}

/// A guard of a [`Mutex`]: the calling thread holds the lock until it drops the guard.
#[must_use = "the lock is released at once"]
pub struct MutexGuard<'a, T> {
    inner: shim::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    const_unless_loom! {
        /// Creates an unlocked mutex around `value`. The name appears in diagnostics.
        pub fn new(name: &'static str, scope: LockScope, value: T) -> Self {
            Self { name, scope, inner: shim::Mutex::new(value) }
        }
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Mutex<T> {
    /// Takes the lock, after a wait if another thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        counters::count_futex();
        counters::count_lock(self.scope);
        MutexGuard { inner: wait_traced(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Takes the lock if it is free. Returns `None` if a thread holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        counters::count_lock(self.scope);
        Some(MutexGuard { inner })
    }

    /// Returns the name given at creation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the scope given at creation.
    pub fn scope(&self) -> LockScope {
        self.scope
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("name", &self.name).field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition variable for use with a [`Mutex`]. A wait may end without a notification, so the
/// caller checks its condition in a loop.
#[derive(Debug)]
pub struct Condvar(shim::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    const_unless_loom! {
        /// Creates a condition variable without waiters.
        pub fn new() -> Self {
            Self(shim::Condvar::new())
        }
    }

    /// Releases the lock, waits for a notification, and takes the lock again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        counters::count_futex();
        MutexGuard { inner: self.0.wait(guard.inner).unwrap_or_else(PoisonError::into_inner) }
    }

    /// Releases the lock, waits for a notification until `deadline` (`None`: for ever), and takes
    /// the lock again. The flag is false if the deadline has passed when the function returns. If
    /// the deadline has passed before the call, the lock is not released.
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Monotonic>,
    ) -> (MutexGuard<'a, T>, bool) {
        let Some(deadline) = deadline else {
            return (self.wait(guard), true);
        };
        let left = deadline.remaining();
        if left == Duration::ZERO {
            return (guard, false);
        }
        counters::count_futex();
        let (inner, _) = self.0.wait_timeout(guard.inner, left).unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { inner }, !deadline.is_past())
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        counters::count_futex();
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        counters::count_futex();
        self.0.notify_all();
    }
}

/// A lock for shared or exclusive access to a value.
pub struct RwLock<T> {
    name: &'static str,
    scope: LockScope,
    inner: shim::RwLock<T>,
}

/// A guard of shared access, which ends on drop.
#[must_use = "the lock is released at once"]
pub struct ReadGuard<'a, T> {
    inner: shim::RwLockReadGuard<'a, T>,
}

/// A guard of exclusive access, which ends on drop.
#[must_use = "the lock is released at once"]
pub struct WriteGuard<'a, T> {
    inner: shim::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    const_unless_loom! {
        /// Creates an unlocked lock around `value`. The name appears in diagnostics.
        pub fn new(name: &'static str, scope: LockScope, value: T) -> Self {
            Self { name, scope, inner: shim::RwLock::new(value) }
        }
    }
}

impl<T> RwLock<T> {
    /// Takes shared access, after a wait if a writer has access or waits for it.
    pub fn read(&self) -> ReadGuard<'_, T> {
        counters::count_lock(self.scope);
        let inner = match self.inner.try_read() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                counters::count_futex();
                wait_traced(|| self.inner.read().unwrap_or_else(PoisonError::into_inner))
            }
        };
        ReadGuard { inner }
    }

    /// Takes exclusive access, after a wait if readers or another writer have access.
    pub fn write(&self) -> WriteGuard<'_, T> {
        counters::count_lock(self.scope);
        let inner = match self.inner.try_write() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                counters::count_futex();
                wait_traced(|| self.inner.write().unwrap_or_else(PoisonError::into_inner))
            }
        };
        WriteGuard { inner }
    }

    /// Returns the name given at creation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the scope given at creation.
    pub fn scope(&self) -> LockScope {
        self.scope
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("name", &self.name).field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::clock;

    #[test]
    fn locks_are_counted_by_scope_and_survive_a_panic() {
        let lock = Arc::new(Mutex::new("table", LockScope::Orb, 0));
        let other = Arc::clone(&lock);
        thread::spawn(move || {
            *other.lock() += 1;
            let _guard = other.lock();
            std::panic::resume_unwind(Box::new(()));
        })
        .join()
        .unwrap_err();
        let before = counters::snapshot();
        assert_eq!(*lock.lock(), 1);
        let counted = counters::snapshot() - before;
        assert_eq!((counted.locks, counted.orb_locks, counted.futex_calls), (1, 1, 0));
    }

    #[test]
    fn condition_wait_ends_at_its_deadline() {
        let pair = Arc::new((Mutex::new("flag", LockScope::Lane, false), Condvar::new()));
        let (lock, condition) = &*pair;
        let soon = clock::now() + Duration::from_millis(2);
        let mut guard = lock.lock();
        let mut in_time = true;
        while in_time {
            (guard, in_time) = condition.wait_until(guard, Some(soon));
        }
        assert!(soon.is_past() && !*guard);
        let other = Arc::clone(&pair);
        let thread = thread::spawn(move || {
            *other.0.lock() = true;
            other.1.notify_one();
        });
        while !*guard {
            guard = condition.wait_until(guard, None).0;
        }
        thread.join().unwrap();
    }

    #[test]
    fn rwlock_gives_shared_and_exclusive_access() {
        let lock = RwLock::new("settings", LockScope::Orb, 5);
        assert_eq!(*lock.read() + *lock.read(), 10);
        *lock.write() = 6;
        assert_eq!((*lock.read(), lock.name(), lock.scope()), (6, "settings", LockScope::Orb));
    }
}
