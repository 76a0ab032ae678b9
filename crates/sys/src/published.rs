//! A value that many read while one at a time replaces it (read-copy-update).
//!
//! [`Published::load`] never waits for writers or other readers, writes to no memory that other threads write, and
//! allocates nothing after a thread's first load. A reader keeps the version it loaded for as long as it holds the
//! guard; new loads get the newest one.
//!
//! Invariant: *readers never free*. [`Published::store`] keeps the replaced versions until no reader has them, and
//! later stores free them; so dropping a guard on a real-time thread never runs a destructor. The price is that the
//! last replaced versions live until the next store, or [`collect`](Published::collect).
//!
//! Inside is the `arc-swap` crate, whose readers announce themselves in slots of their own thread. While a thread holds
//! eight guards at once, further loads touch the version's reference count instead. Under `loom`, which cannot look
//! into that crate, a plain atomic pointer stands in, so that protocols built on this one can be explored.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::lock::{Mutex, Scope};

/// The cell. See the module for what it promises.
pub struct Published<T> {
    current: cell::Cell<T>,
    /// Versions that were replaced and may still be read.
    replaced: Mutex<Vec<Arc<T>>>,
}

/// One version, for as long as the guard lives. Not for keeping: it holds back the freeing of its version.
pub struct Loaded<T> {
    guard: cell::Guard<T>,
}

impl<T> Published<T> {
    /// A cell that holds `value`. Name and scope are those of the lock that writers take.
    pub fn new(name: &'static str, scope: Scope, value: T) -> Self {
        Self { current: cell::Cell::new(Arc::new(value)), replaced: Mutex::new(name, scope, Vec::new()) }
    }

    /// The newest version.
    #[inline]
    pub fn load(&self) -> Loaded<T> {
        Loaded { guard: self.current.load() }
    }

    /// The newest version, to keep: touches its reference count.
    pub fn load_full(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Replaces the value. Loads that begin after this returns get the new one.
    pub fn store(&self, value: Arc<T>) {
        let mut replaced = self.replaced.lock();
        let old = self.current.swap(value);
        replaced.push(old);
        let free = unread(&mut replaced);
        // Destructors run outside the lock.
        drop(replaced);
        drop(free);
    }

    /// Replaces the value by one made from it. Writers that use only this lose no update; `change` must not store
    /// into the same cell.
    pub fn update<R>(&self, change: impl FnOnce(&T) -> (T, R)) -> R {
        let mut replaced = self.replaced.lock();
        let (value, result) = change(&self.current.load_full());
        replaced.push(self.current.swap(Arc::new(value)));
        let free = unread(&mut replaced);
        drop(replaced);
        drop(free);
        result
    }

    /// Frees replaced versions that nobody reads any more; returns how many are still read.
    pub fn collect(&self) -> usize {
        let mut replaced = self.replaced.lock();
        let free = unread(&mut replaced);
        let left = replaced.len();
        drop(replaced);
        drop(free);
        left
    }
}

/// Takes out the versions whose only owner is the list. Readers announced elsewhere have been turned into
/// owners by the swap that replaced their version, so none is overlooked, and a replaced version gets no new ones
/// except by cloning those.
fn unread<T>(replaced: &mut Vec<Arc<T>>) -> Vec<Arc<T>> {
    replaced.extract_if(.., |version| Arc::strong_count(version) == 1).collect()
}

impl<T: fmt::Debug> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Published").field(&*self.load()).finish()
    }
}

impl<T> Deref for Loaded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: fmt::Debug> fmt::Debug for Loaded<T> {
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

/// A release store and an acquire load of a pointer, which is what the real cell promises, and nothing more. Versions are
/// freed with the cell.
#[cfg(loom)]
mod cell {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicPtr, Ordering};

    pub(super) struct Cell<T>(AtomicPtr<Arc<T>>, std::sync::Mutex<Vec<*mut Arc<T>>>);
    pub(super) type Guard<T> = Arc<T>;

    // SAFETY: the pointers are to shared values, which threads clone.
    unsafe impl<T: Send + Sync> Send for Cell<T> {}
    // SAFETY: as above; the list is behind a lock that is never held across a step of the model.
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
                // SAFETY: each came from a box, is on the list once, and nobody loads any more.
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
    fn a_reader_keeps_its_version_and_frees_none() {
        let first = Arc::new(1);
        let published = Published::new("test", Scope::Orb, 0);
        published.store(Arc::clone(&first));
        let loaded = published.load();
        published.store(Arc::new(2));
        assert_eq!((*loaded, *published.load()), (1, 2));
        assert_eq!(published.collect(), 1);
        drop(loaded);
        // Ours and the list's, although the reader has let go.
        assert_eq!(Arc::strong_count(&first), 2);
        drop(first);
        assert_eq!(published.collect(), 0);
        assert_eq!(published.update(|&old| (old + 1, old)), 2);
        assert_eq!((*published.load(), *published.load_full()), (3, 3));
    }

    #[test]
    fn versions_are_whole_and_all_are_freed() {
        static ALIVE: AtomicUsize = AtomicUsize::new(0);
        struct Version(usize, usize);
        impl Drop for Version {
            fn drop(&mut self) {
                ALIVE.fetch_sub(1, Ordering::Relaxed);
            }
        }
        fn version(n: usize) -> Version {
            ALIVE.fetch_add(1, Ordering::Relaxed);
            Version(n, !n)
        }
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let published = Published::new("test", Scope::Orb, version(0));
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
        assert_eq!(published.collect(), 0);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 1);
        drop(published);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    }
}
