//! A value that many threads read while a writer replaces it (read-copy-update).
//!
//! [`RcuCell::load`] never waits for writers or other readers, and allocates nothing after a
//! thread's first load.
//!
//! Invariant: *readers never free*. A replaced version stays until no reader uses it; then
//! [`RcuCell::store`], [`update`](RcuCell::update) or [`reclaim`](RcuCell::reclaim) frees it. So
//! while the cell exists, dropping a guard on a real-time thread runs no destructor of a version.
//!
//! The implementation is the `arc-swap` crate.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::lock::{LockScope, Mutex};

/// A cell whose value is read without a lock.
pub struct RcuCell<T> {
    current: cell::Cell<T>,
    retired: Mutex<Vec<Arc<T>>>,
}

/// A guard of one version of the value. A guard delays the freeing of its version.
pub struct RcuGuard<T> {
    guard: cell::Guard<T>,
}

impl<T> RcuCell<T> {
    /// Creates a cell that holds `value`. `name` and `scope` describe the lock that writers take.
    pub fn new(name: &'static str, scope: LockScope, value: T) -> Self {
        Self { current: cell::Cell::new(Arc::new(value)), retired: Mutex::new(name, scope, Vec::new()) }
    }

    /// Returns a guard of the newest version.
    #[inline]
    pub fn load(&self) -> RcuGuard<T> {
        RcuGuard { guard: self.current.load() }
    }

    /// Returns the newest version as a counted reference.
    pub fn load_full(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Replaces the value. Loads that begin after the return of `store` get this value or a later
    /// one.
    pub fn store(&self, value: Arc<T>) {
        let mut replaced = self.retired.lock();
        let old = self.current.swap(value);
        replaced.push(old);
        let free = take_unreferenced(&mut replaced);
        // Destructors run outside the lock.
        drop(replaced);
        drop(free);
    }

    /// Calls `change` with the current value. Replaces the value by the first part of the result,
    /// and returns the second. If all writers use `update`, no change is lost. `change` must not
    /// call `store`, `update` or `reclaim` of the cell.
    pub fn update<R>(&self, change: impl FnOnce(&T) -> (T, R)) -> R {
        let mut replaced = self.retired.lock();
        let (value, result) = change(&self.current.load_full());
        replaced.push(self.current.swap(Arc::new(value)));
        let free = take_unreferenced(&mut replaced);
        drop(replaced);
        drop(free);
        result
    }

    /// Frees the replaced versions that no reader uses. Returns the number of replaced versions
    /// that readers use.
    pub fn reclaim(&self) -> usize {
        let mut replaced = self.retired.lock();
        let free = take_unreferenced(&mut replaced);
        let left = replaced.len();
        drop(replaced);
        drop(free);
        left
    }
}

/// Removes and returns the versions without readers. A reader of a replaced version holds a counted
/// reference, so a count of 1 means that it has no reader.
fn take_unreferenced<T>(replaced: &mut Vec<Arc<T>>) -> Vec<Arc<T>> {
    replaced.extract_if(.., |version| Arc::strong_count(version) == 1).collect()
}

impl<T: fmt::Debug> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuCell").field(&*self.load()).finish()
    }
}

impl<T> Deref for RcuGuard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: fmt::Debug> fmt::Debug for RcuGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(not(loom))]
mod cell {
    use std::sync::Arc;

    pub(super) struct Cell<T>(arc_swap::ArcSwap<T>);
    pub(super) type Guard<T> = arc_swap::Guard<Arc<T>>;

    impl<T> Cell<T> {
        pub(super) fn new(value: Arc<T>) -> Self {
            Self(arc_swap::ArcSwap::new(value))
        }

        #[inline]
        pub(super) fn load(&self) -> Guard<T> {
            self.0.load()
        }

        pub(super) fn load_full(&self) -> Arc<T> {
            self.0.load_full()
        }

        pub(super) fn swap(&self, value: Arc<T>) -> Arc<T> {
            self.0.swap(value)
        }
    }
}

#[cfg(loom)]
mod cell {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicPtr, Ordering};

    pub(super) struct Cell<T>(AtomicPtr<Arc<T>>, std::sync::Mutex<Vec<*mut Arc<T>>>);
    pub(super) type Guard<T> = Arc<T>;

    // SAFETY: the pointers are to shared values, which threads clone.
    unsafe impl<T: Send + Sync> Send for Cell<T> {}
    // SAFETY: the pointers are to shared values, which threads clone. The lock of the list is never
    // held across a step of the model.
    unsafe impl<T: Send + Sync> Sync for Cell<T> {}

    impl<T> Cell<T> {
        pub(super) fn new(value: Arc<T>) -> Self {
            let first = Box::into_raw(Box::new(value));
            Self(AtomicPtr::new(first), std::sync::Mutex::new(vec![first]))
        }

        pub(super) fn load(&self) -> Guard<T> {
            self.load_full()
        }

        pub(super) fn load_full(&self) -> Arc<T> {
            // SAFETY: all versions live as long as the cell.
            Arc::clone(unsafe { &*self.0.load(Ordering::Acquire) })
        }

        pub(super) fn swap(&self, value: Arc<T>) -> Arc<T> {
            let next = Box::into_raw(Box::new(value));
            self.1.lock().unwrap().push(next);
            // SAFETY: all versions live as long as the cell.
            Arc::clone(unsafe { &*self.0.swap(next, Ordering::AcqRel) })
        }
    }

    impl<T> Drop for Cell<T> {
        fn drop(&mut self) {
            for version in self.1.get_mut().unwrap().drain(..) {
                // SAFETY: each pointer came from a box and is on the list once, and no thread loads
                // any more.
                drop(unsafe { Box::from_raw(version) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn reader_keeps_its_version_and_frees_nothing() {
        let first = Arc::new(1);
        let published = RcuCell::new("test", LockScope::Orb, 0);
        published.store(Arc::clone(&first));
        let loaded = published.load();
        published.store(Arc::new(2));
        assert_eq!((*loaded, *published.load()), (1, 2));
        assert_eq!(published.reclaim(), 1);
        drop(loaded);
        assert_eq!(Arc::strong_count(&first), 2);
        drop(first);
        assert_eq!(published.reclaim(), 0);
        assert_eq!(published.update(|&old| (old + 1, old)), 2);
        assert_eq!((*published.load(), *published.load_full()), (3, 3));
    }

    #[test]
    fn versions_are_never_torn_and_all_are_freed() {
        static ALIVE: AtomicUsize = AtomicUsize::new(0);
        struct CellVersion(usize, usize);
        impl Drop for CellVersion {
            fn drop(&mut self) {
                ALIVE.fetch_sub(1, Ordering::Relaxed);
            }
        }
        fn version(n: usize) -> CellVersion {
            ALIVE.fetch_add(1, Ordering::Relaxed);
            CellVersion(n, !n)
        }
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let published = RcuCell::new("test", LockScope::Orb, version(0));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let loaded = published.load();
                        assert!(loaded.1 == !loaded.0 && loaded.0 >= last);
                        last = loaded.0;
                    }
                });
            }
            for n in 1..=rounds {
                published.store(Arc::new(version(n)));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(published.reclaim(), 0);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 1);
        drop(published);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    }
}
