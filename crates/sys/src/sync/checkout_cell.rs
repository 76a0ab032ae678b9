//! A cell whose value one thread at a time checks out, such as a pooled connection.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::lock::LockScope;
use crate::counters;
use crate::event_count::EventCount;
use crate::shim::{AtomicU32, Ordering, UnsafeCell, const_unless_loom};

/// A value that one thread at a time checks out.
///
/// Comments in the code name one rule of memory ordering, `checkout`: a return clears `HOLDER_MASK`
/// with release, and the next checkout sets it with acquire. So the holder sees all writes of
/// earlier holders.
pub struct CheckoutCell<T> {
    /// The bits of [`HOLDER_MASK`] are 0 while the value is in the cell, and otherwise
    /// [`IN_MAINTENANCE`] or [`IN_USE`]. The higher bits are the use count. While the value is out,
    /// only the holder changes the state.
    state: AtomicU32,
    name: &'static str,
    scope: LockScope,
    returned: Option<Arc<EventCount>>,
    value: UnsafeCell<T>,
}

const HOLDER_MASK: u32 = 3;

const IN_MAINTENANCE: u32 = 1;

const IN_USE: u32 = 3;

/// The holder of the value of a [`CheckoutCell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckoutHolder {
    /// No holder: the value is in the cell.
    None,
    /// A maintenance thread, or for a moment a user that returns the value unused.
    Maintenance,
    /// A caller that uses the value.
    User,
}

// SAFETY: a `&T` or `&mut T` exists only in a guard, and `HOLDER_MASK` admits one guard at a time.
// So sharing the cell moves the value between threads but never shares it, which needs `T: Send`.
unsafe impl<T: Send> Sync for CheckoutCell<T> {}
// SAFETY: moving the cell moves the value.
unsafe impl<T: Send> Send for CheckoutCell<T> {}

impl<T> CheckoutCell<T> {
    const_unless_loom! {
        /// Creates a cell that contains `value`. The name appears in diagnostics.
        pub fn new(name: &'static str, scope: LockScope, value: T) -> Self {
            Self { state: AtomicU32::new(0), name, scope, returned: None, value: UnsafeCell::new(value) }
        }
    }

    /// Makes the cell notify `gate` when its value is returned.
    #[must_use]
    pub fn with_event_count(self, gate: Arc<EventCount>) -> Self {
        Self { returned: Some(gate), ..self }
    }

    /// Checks the value out. Returns `None` while it is checked out.
    #[inline]
    pub fn try_checkout(&self) -> Option<CheckoutGuard<'_, T>> {
        self.check_out(IN_USE).then(|| CheckoutGuard { cell: self })
    }

    /// Checks the value out. The guard gives access to the cell. Returns `None` while the value is
    /// checked out.
    #[inline]
    pub fn try_checkout_arc<'a>(self: &'a Arc<Self>) -> Option<ArcCheckoutGuard<'a, T>> {
        self.check_out(IN_USE).then(|| ArcCheckoutGuard { cell: CellRef::Borrowed(self) })
    }

    /// Checks the value out. The guard keeps the cell alive. Returns `None` while the value is
    /// checked out.
    #[inline]
    pub fn try_checkout_owned(self: &Arc<Self>) -> Option<ArcCheckoutGuard<'static, T>> {
        self.check_out(IN_USE).then(|| ArcCheckoutGuard { cell: CellRef::Owned(Arc::clone(self)) })
    }

    /// Checks the value out for a maintenance task, which must return it soon. Other threads learn
    /// from [`holder`](Self::holder) that a wait for the value will be short. Returns `None` while
    /// the value is checked out.
    #[cold]
    pub fn try_checkout_for_maintenance(&self) -> Option<CheckoutGuard<'_, T>> {
        self.check_out(IN_MAINTENANCE).then(|| CheckoutGuard { cell: self })
    }

    /// Returns the present holder, which may change at any time.
    pub fn holder(&self) -> CheckoutHolder {
        match self.state.load(Ordering::Relaxed) & HOLDER_MASK {
            0 => CheckoutHolder::None,
            IN_MAINTENANCE => CheckoutHolder::Maintenance,
            _ => CheckoutHolder::User,
        }
    }

    /// Returns how often users have returned the value; returns by maintenance and by
    /// [`ArcCheckoutGuard::return_unused`] do not count. Wraps around to 0 at 2<sup>30</sup>.
    pub fn use_count(&self) -> u32 {
        self.state.load(Ordering::Relaxed) / (HOLDER_MASK + 1)
    }

    /// Returns the name given at creation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    fn check_out(&self, holder: u32) -> bool {
        let take = |state| (state & HOLDER_MASK == 0).then_some(state | holder);
        // Acquire on success: pairs with `check_in` (rule `checkout`).
        let taken = self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok();
        if taken {
            counters::count_lock(self.scope);
        }
        taken
    }

    #[inline]
    fn check_in(&self) {
        // No other thread changes the state while the value is out. The addition of 1 to `IN_USE`
        // carries into the use count; the addition of 1 to `IN_MAINTENANCE` does not.
        let next = self.state.load(Ordering::Relaxed).wrapping_add(1) & !HOLDER_MASK;
        // Release in both cases: pairs with `check_out` (rule `checkout`).
        match &self.returned {
            None => self.state.store(next, Ordering::Release),
            Some(gate) => {
                // `notify_all_after_swap` requires a sequentially consistent exchange.
                self.state.swap(next, Ordering::SeqCst);
                gate.notify_all_after_swap();
            }
        }
    }

    #[inline]
    fn value_ref(&self) -> &T {
        // SAFETY: only a guard calls this, and while it lives `HOLDER_MASK` admits no other guard.
        // The guard gives out `&mut T` only for an exclusive borrow of itself.
        self.value.with(|value| unsafe { &*value })
    }

    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "an exclusive borrow of the only guard excludes other borrows of the value"
    )]
    fn value_mut(&self) -> &mut T {
        // SAFETY: only an exclusively borrowed guard calls this, and `HOLDER_MASK` admits no other
        // guard.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> fmt::Debug for CheckoutCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckoutCell")
            .field("name", &self.name)
            .field("scope", &self.scope)
            .field("holder", &self.holder())
            .finish_non_exhaustive()
    }
}

/// A checked-out value. When the guard is dropped, the value returns to its cell.
#[must_use = "the value is returned at once"]
pub struct CheckoutGuard<'a, T> {
    cell: &'a CheckoutCell<T>,
}

/// A checked-out value with its cell. When the guard is dropped, the value returns to the cell.
#[must_use = "the value is returned at once"]
pub struct ArcCheckoutGuard<'a, T> {
    cell: CellRef<'a, T>,
}

enum CellRef<'a, T> {
    Borrowed(&'a Arc<CheckoutCell<T>>),
    Owned(Arc<CheckoutCell<T>>),
}

impl<T> ArcCheckoutGuard<'_, T> {
    /// Puts the value back into the cell without counting a use.
    pub fn return_unused(self) {
        let state = &self.cell().state;
        // In the state `IN_MAINTENANCE`, the drop of the guard does not increase the use count. No
        // other thread changes the state while the value is out.
        state.store(state.load(Ordering::Relaxed) & !HOLDER_MASK | IN_MAINTENANCE, Ordering::Relaxed);
    }

    /// Returns the cell of this value.
    #[inline]
    pub fn cell(&self) -> &Arc<CheckoutCell<T>> {
        match &self.cell {
            CellRef::Borrowed(cell) => cell,
            CellRef::Owned(cell) => cell,
        }
    }
}

// SAFETY: a shared guard gives `&T` only, so sharing one needs `T: Sync`. The automatic bound (`T:
// Send`, from the cell) would be too weak, for example for a `Cell`.
unsafe impl<T: Send + Sync> Sync for CheckoutGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only, so sharing one needs `T: Sync`.
unsafe impl<T: Send + Sync> Sync for ArcCheckoutGuard<'_, T> {}

impl<T> Deref for CheckoutGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.cell.value_ref()
    }
}

impl<T> DerefMut for CheckoutGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.cell.value_mut()
    }
}

impl<T> Drop for CheckoutGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.check_in();
    }
}

impl<T> Deref for ArcCheckoutGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.cell().value_ref()
    }
}

impl<T> DerefMut for ArcCheckoutGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.cell().value_mut()
    }
}

impl<T> Drop for ArcCheckoutGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell().check_in();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn value_is_checked_out_once() {
        let cell = Arc::new(CheckoutCell::new("connection", LockScope::Connection, 1));
        let before = counters::snapshot();
        let mut guard = cell.try_checkout().unwrap();
        *guard += 1;
        let is_out = || {
            let refused = cell.try_checkout().is_none()
                && cell.try_checkout_arc().is_none()
                && cell.try_checkout_owned().is_none();
            refused && cell.holder() == CheckoutHolder::User
        };
        assert!(is_out() && is_out());
        drop(guard);
        let guard = cell.try_checkout_arc().unwrap();
        assert!(is_out() && Arc::ptr_eq(guard.cell(), &cell));
        drop(guard);
        let guard = cell.try_checkout_owned().unwrap();
        assert_eq!(((counters::snapshot() - before).locks, cell.use_count()), (3, 2));
        thread::spawn(move || assert_eq!(*guard, 2)).join().unwrap();
        assert_eq!(cell.holder(), CheckoutHolder::None);
    }

    #[test]
    fn maintenance_does_not_count_as_use() {
        let cell = Arc::new(CheckoutCell::new("connection", LockScope::Connection, 1));
        for uses in 0..3 {
            assert_eq!((cell.holder(), cell.use_count()), (CheckoutHolder::None, uses));
            let guard = cell.try_checkout_for_maintenance().unwrap();
            assert!(
                cell.holder() == CheckoutHolder::Maintenance
                    && cell.try_checkout().is_none()
                    && cell.try_checkout_for_maintenance().is_none()
            );
            drop(guard);
            cell.try_checkout_owned().unwrap().return_unused();
            assert_eq!((cell.holder(), cell.use_count()), (CheckoutHolder::None, uses));
            let guard = cell.try_checkout().unwrap();
            assert!(
                cell.holder() == CheckoutHolder::User
                    && cell.try_checkout().is_none()
                    && cell.try_checkout_for_maintenance().is_none()
            );
            drop(guard);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::shim::explore;

    #[test]
    fn waiter_receives_the_returned_value() {
        explore(|| {
            let gate = Arc::new(EventCount::new("model"));
            let cell =
                Arc::new(CheckoutCell::new("model", LockScope::Connection, 0).with_event_count(Arc::clone(&gate)));
            let other = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || {
                other.try_checkout_for_maintenance().map(|mut guard| *guard += 1).is_some()
            });
            *gate.wait(None, || cell.try_checkout()).unwrap() += 1;
            let taken = i32::from(thread.join().unwrap());
            assert_eq!(*cell.try_checkout().unwrap(), 1 + taken);
        });
    }

    #[test]
    fn waiter_receives_the_value_after_maintenance() {
        explore(|| {
            let gate = Arc::new(EventCount::new("model"));
            let cell =
                Arc::new(CheckoutCell::new("model", LockScope::Connection, 0).with_event_count(Arc::clone(&gate)));
            let other = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || {
                drop(other.try_checkout_for_maintenance());
                other.try_checkout_owned().into_iter().for_each(ArcCheckoutGuard::return_unused);
            });
            let look = || loop {
                if let Some(taken) = cell.try_checkout() {
                    return Some(taken);
                }
                if cell.holder() != CheckoutHolder::None {
                    return None;
                }
            };
            *gate.wait(None, look).unwrap() += 1;
            thread.join().unwrap();
            assert_eq!((*cell.try_checkout().unwrap(), cell.use_count()), (1, 1));
        });
    }

    #[test]
    fn holder_sees_writes_of_earlier_holders() {
        explore(|| {
            let cell = Arc::new(CheckoutCell::new("model", LockScope::Connection, 0));
            let other = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || match other.try_checkout() {
                Some(mut guard) => {
                    *guard += 1;
                    1
                }
                None => 0,
            });
            let here = match cell.try_checkout_owned() {
                Some(mut guard) => {
                    *guard += 1;
                    1
                }
                None => 0,
            };
            let there = thread.join().unwrap();
            assert_eq!(*cell.try_checkout().unwrap(), here + there);
        });
    }
}
