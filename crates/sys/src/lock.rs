//! Locks that have a name, a scope, and are counted.
//!
//! The scope says who can be made to wait: threads of one connection, of one lane, or of the whole ORB. Taking a lock
//! adds to the calling thread's [`counters`], and a wait for another thread adds a futex call, so a test can say which
//! locks a path takes. A panic while holding a lock does not poison it: upcalls are isolated elsewhere, and data under
//! these locks is left consistent at every step that can panic.
//!
//! [`PiMutex`] lends the priority of its waiters to its holder; it is for locks that threads of different priorities
//! take. [`Exclusive`] is not a lock one can wait for: it checks a value out or says at once that it is out.

mod pi;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

pub use pi::{PiCondvar, PiGuard, PiMutex};

use crate::clock::Monotonic;
use crate::counters;
use crate::gate::Gate;
use crate::shim::{self, AtomicU32, Ordering, UnsafeCell, const_unless_loom};

/// Whose threads a lock can make wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Threads that use one connection. They may differ in priority where requests are handed over to other lanes; what they wait for
    /// is a [`PiMutex`] there.
    Connection,
    /// Threads of one lane, and those of others that hand requests over to it: a [`PiMutex`] as well.
    Lane,
    /// Any thread: never taken in a steady-state call.
    Orb,
}

/// Marks a wait for another thread's lock: a trace says that it was the lock.
#[cold]
fn waited<T>(take: impl FnOnce() -> T) -> T {
    crate::probe!("lock wanted");
    let taken = take();
    crate::probe!("lock taken");
    taken
}

/// Mutual exclusion over a value.
pub struct Mutex<T> {
    name: &'static str,
    scope: Scope,
    inner: shim::Mutex<T>,
}

/// Proof that the calling thread holds a [`Mutex`]; it is released on drop.
#[must_use = "the lock is released at once"]
pub struct MutexGuard<'a, T> {
    inner: shim::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    const_unless_loom! {
        /// An open lock around `value`. The name appears in diagnostics.
        pub fn new(name: &'static str, scope: Scope, value: T) -> Self {
            Self { name, scope, inner: shim::Mutex::new(value) }
        }
    }

    /// The value, when nobody else can have it.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Mutex<T> {
    /// Takes the lock, waiting for whoever holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        counters::count_futex();
        counters::count_lock(self.scope);
        MutexGuard { inner: waited(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        counters::count_lock(self.scope);
        Some(MutexGuard { inner })
    }

    /// The name given at creation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The scope given at creation.
    pub fn scope(&self) -> Scope {
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

/// A condition waited for under a [`Mutex`]. Waits may end without a notification: check in a loop.
#[derive(Debug)]
pub struct Condvar(shim::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    const_unless_loom! {
        /// One that nobody waits for.
        pub fn new() -> Self {
            Self(shim::Condvar::new())
        }
    }

    /// Releases the lock, waits for a notification, takes the lock again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        counters::count_futex();
        MutexGuard { inner: self.0.wait(guard.inner).unwrap_or_else(PoisonError::into_inner) }
    }

    /// The same until `deadline`; `None` waits for ever. False if the deadline has passed.
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

/// Shared or exclusive access to a value. For configuration and tables off the request path, where
/// readers block writers for short; the request path uses published values instead.
pub struct RwLock<T> {
    name: &'static str,
    scope: Scope,
    inner: shim::RwLock<T>,
}

/// Proof of shared access; released on drop.
#[must_use = "the lock is released at once"]
pub struct ReadGuard<'a, T> {
    inner: shim::RwLockReadGuard<'a, T>,
}

/// Proof of exclusive access; released on drop.
#[must_use = "the lock is released at once"]
pub struct WriteGuard<'a, T> {
    inner: shim::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    const_unless_loom! {
        /// An open lock around `value`. The name appears in diagnostics.
        pub fn new(name: &'static str, scope: Scope, value: T) -> Self {
            Self { name, scope, inner: shim::RwLock::new(value) }
        }
    }
}

impl<T> RwLock<T> {
    /// Takes shared access, waiting for a writer.
    pub fn read(&self) -> ReadGuard<'_, T> {
        counters::count_lock(self.scope);
        let inner = match self.inner.try_read() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                counters::count_futex();
                waited(|| self.inner.read().unwrap_or_else(PoisonError::into_inner))
            }
        };
        ReadGuard { inner }
    }

    /// Takes exclusive access, waiting for readers and writers.
    pub fn write(&self) -> WriteGuard<'_, T> {
        counters::count_lock(self.scope);
        let inner = match self.inner.try_write() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                counters::count_futex();
                waited(|| self.inner.write().unwrap_or_else(PoisonError::into_inner))
            }
        };
        WriteGuard { inner }
    }

    /// The name given at creation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The scope given at creation.
    pub fn scope(&self) -> Scope {
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

/// A value that one thread at a time checks out, without ever waiting: one compare-and-swap to take,
/// one store to return. A connection of a pool is kept in one. Whoever does wait, for one of several or for this one, does so at their
/// [`Gate`], which each opens when its value is returned: then the store is an exchange.
///
/// `checkout`: the compare-and-swap that sets bits of `OUT` acquires what the store that cleared it released,
/// so the holder sees all that earlier holders wrote.
pub struct Exclusive<T> {
    /// [`TENDED`], [`USED`] or neither, and above them how often the value was used.
    state: AtomicU32,
    name: &'static str,
    scope: Scope,
    gate: Option<Arc<Gate>>,
    value: UnsafeCell<T>,
}

/// The bits that say with whom the value is: none of them while it is in.
const OUT: u32 = 3;

/// It is out with who looks after it.
const TENDED: u32 = 1;

/// It is out with a user; to return it counts.
const USED: u32 = 3;

/// With whom the value of an [`Exclusive`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It is in.
    Nobody,
    /// Who looks after it, and returns it soon.
    Tender,
    /// Somebody else.
    User,
}

// SAFETY: a `&T` or `&mut T` exists only in a guard, of which `OUT` admits one at a time, so sharing
// the cell moves the value between threads but never shares it: `T: Send` is what that needs.
unsafe impl<T: Send> Sync for Exclusive<T> {}
// SAFETY: moving the cell moves the value.
unsafe impl<T: Send> Send for Exclusive<T> {}

impl<T> Exclusive<T> {
    const_unless_loom! {
        /// A value that is in.
        pub fn new(name: &'static str, scope: Scope, value: T) -> Self {
            Self { state: AtomicU32::new(0), name, scope, gate: None, value: UnsafeCell::new(value) }
        }
    }

    /// The same, opening `gate` whenever it is returned.
    #[must_use]
    pub fn with_gate(self, gate: Arc<Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// Checks the value out; `None` if it is out.
    #[inline]
    pub fn try_lock(&self) -> Option<ExclusiveGuard<'_, T>> {
        self.take(USED).then(|| ExclusiveGuard { cell: self })
    }

    /// The same, for who wants the cell itself too.
    #[inline]
    pub fn try_lock_cell<'a>(self: &'a Arc<Self>) -> Option<CellGuard<'a, T>> {
        self.take(USED).then(|| CellGuard { cell: Whose::Lent(self) })
    }

    /// Checks the value out and keeps the cell alive; `None` if it is out. The guard can be stored and
    /// moved to another thread.
    #[inline]
    pub fn try_lock_owned(self: &Arc<Self>) -> Option<CellGuard<'static, T>> {
        self.take(USED).then(|| CellGuard { cell: Whose::Own(Arc::clone(self)) })
    }

    /// Checks the value out as [`try_lock`](Self::try_lock), for who looks after it and returns it soon: those who come meanwhile can
    /// [tell](Self::holder), and may wait.
    #[cold]
    pub fn try_tend(&self) -> Option<ExclusiveGuard<'_, T>> {
        self.take(TENDED).then(|| ExclusiveGuard { cell: self })
    }

    /// With whom the value is at this moment; by the time the caller looks it may have changed.
    pub fn holder(&self) -> Holder {
        match self.state.load(Ordering::Relaxed) & OUT {
            0 => Holder::Nobody,
            TENDED => Holder::Tender,
            _ => Holder::User,
        }
    }

    /// How often the value has been used, which is to say returned by others than who looks after it; after 2<sup>30</sup> times it begins anew.
    pub fn uses(&self) -> u32 {
        self.state.load(Ordering::Relaxed) / (OUT + 1)
    }

    /// The name given at creation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    fn take(&self, holder: u32) -> bool {
        let take = |state| (state & OUT == 0).then_some(state | holder);
        // Acquire on success: pairs with `give_back` (checkout).
        let taken = self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok();
        if taken {
            counters::count_lock(self.scope);
        }
        taken
    }

    #[inline]
    fn give_back(&self) {
        // Nobody else changes it while the value is out. One more than `USED` is the next number; one more than `TENDED` is not.
        let next = self.state.load(Ordering::Relaxed).wrapping_add(1) & !OUT;
        // Both release: they pair with `take` (checkout).
        match &self.gate {
            None => self.state.store(next, Ordering::Release),
            Some(gate) => {
                // An exchange where a store would do: the gate wants one, or a fence, which takes longer.
                self.state.swap(next, Ordering::SeqCst);
                gate.open_after_exchange();
            }
        }
    }

    #[inline]
    fn shared(&self) -> &T {
        // SAFETY: called by a guard only, and while it lives `OUT` keeps others out; the guard hands
        // out `&mut` only against its own exclusive borrow.
        self.value.with(|value| unsafe { &*value })
    }

    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the guard's exclusive borrow stands for the cell's")]
    fn exclusive(&self) -> &mut T {
        // SAFETY: called by a guard that is borrowed exclusively, and `OUT` keeps other guards away.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> fmt::Debug for Exclusive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exclusive")
            .field("name", &self.name)
            .field("scope", &self.scope)
            .field("holder", &self.holder())
            .finish_non_exhaustive()
    }
}

/// A checked-out value; it is returned on drop.
#[must_use = "the value is returned at once"]
pub struct ExclusiveGuard<'a, T> {
    cell: &'a Exclusive<T>,
}

/// A checked-out value together with its cell; it is returned on drop. Two words, so that it moves in registers.
#[must_use = "the value is returned at once"]
pub struct CellGuard<'a, T> {
    cell: Whose<'a, T>,
}

enum Whose<'a, T> {
    /// Somebody else keeps it: no reference is counted.
    Lent(&'a Arc<Exclusive<T>>),
    Own(Arc<Exclusive<T>>),
}

impl<T> CellGuard<'_, T> {
    /// Returns the value, of which the caller made no use.
    pub fn put_back(self) {
        let state = &self.cell().state;
        // Nor does who looks after it. Nobody else changes the state while the value is out.
        state.store(state.load(Ordering::Relaxed) & !OUT | TENDED, Ordering::Relaxed);
    }

    /// The cell whose value this is.
    #[inline]
    pub fn cell(&self) -> &Arc<Exclusive<T>> {
        match &self.cell {
            Whose::Lent(cell) => cell,
            Whose::Own(cell) => cell,
        }
    }
}

// SAFETY: a shared guard gives `&T` only, so `T: Sync` is what sharing one needs; the derived bound
// (`T: Send`, from the cell) would let a `Cell` be reached from two threads.
unsafe impl<T: Send + Sync> Sync for ExclusiveGuard<'_, T> {}
// SAFETY: as for `ExclusiveGuard`.
unsafe impl<T: Send + Sync> Sync for CellGuard<'_, T> {}

impl<T> Deref for ExclusiveGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.cell.shared()
    }
}

impl<T> DerefMut for ExclusiveGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.cell.exclusive()
    }
}

impl<T> Drop for ExclusiveGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.give_back();
    }
}

impl<T> Deref for CellGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.cell().shared()
    }
}

impl<T> DerefMut for CellGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.cell().exclusive()
    }
}

impl<T> Drop for CellGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell().give_back();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;
    use crate::clock;

    #[test]
    fn a_value_is_out_once() {
        let cell = Arc::new(Exclusive::new("connection", Scope::Connection, 1));
        let before = counters::snapshot();
        let mut guard = cell.try_lock().unwrap();
        *guard += 1;
        let is_out = || {
            let refused =
                cell.try_lock().is_none() && cell.try_lock_cell().is_none() && cell.try_lock_owned().is_none();
            refused && cell.holder() == Holder::User
        };
        // Asking has no effect.
        assert!(is_out() && is_out());
        drop(guard);
        let guard = cell.try_lock_cell().unwrap();
        assert!(is_out() && Arc::ptr_eq(guard.cell(), &cell));
        drop(guard);
        let guard = cell.try_lock_owned().unwrap();
        assert_eq!(((counters::snapshot() - before).locks, cell.uses()), (3, 2));
        thread::spawn(move || assert_eq!(*guard, 2)).join().unwrap();
        assert_eq!(cell.holder(), Holder::Nobody);
    }

    #[test]
    fn who_looks_after_a_value_does_not_use_it() {
        let cell = Arc::new(Exclusive::new("connection", Scope::Connection, 1));
        for uses in 0..3 {
            assert_eq!((cell.holder(), cell.uses()), (Holder::Nobody, uses));
            let guard = cell.try_tend().unwrap();
            assert!(cell.holder() == Holder::Tender && cell.try_lock().is_none() && cell.try_tend().is_none());
            drop(guard);
            cell.try_lock_owned().unwrap().put_back();
            assert_eq!((cell.holder(), cell.uses()), (Holder::Nobody, uses));
            let guard = cell.try_lock().unwrap();
            assert!(cell.holder() == Holder::User && cell.try_lock().is_none() && cell.try_tend().is_none());
            drop(guard);
        }
    }

    #[test]
    fn locks_are_counted_by_scope_and_survive_a_panic() {
        let lock = Arc::new(Mutex::new("table", Scope::Orb, 0));
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
        assert_eq!((counted.locks, counted.orb_locks, counted.futex), (1, 1, 0));
    }

    #[test]
    fn a_condition_is_waited_for_until_its_deadline() {
        let pair = Arc::new((Mutex::new("flag", Scope::Lane, false), Condvar::new()));
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
    fn shared_and_exclusive_access() {
        let lock = RwLock::new("settings", Scope::Orb, 5);
        assert_eq!(*lock.read() + *lock.read(), 10);
        *lock.write() = 6;
        assert_eq!((*lock.read(), lock.name(), lock.scope()), (6, "settings", Scope::Orb));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::shim::explore;

    /// A return that nobody notices would leave the waiter there for ever.
    #[test]
    fn who_waits_at_the_gate_gets_the_value() {
        explore(|| {
            let gate = Arc::new(Gate::new("model"));
            let cell = Arc::new(Exclusive::new("model", Scope::Connection, 0).with_gate(Arc::clone(&gate)));
            let other = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || other.try_tend().map(|mut guard| *guard += 1).is_some());
            *gate.wait(None, || cell.try_lock()).unwrap() += 1;
            let taken = i32::from(thread.join().unwrap());
            assert_eq!(*cell.try_lock().unwrap(), 1 + taken);
        });
    }

    /// As a caller of a pool does, beside who looks after the value, and then only looks.
    #[test]
    fn who_waits_for_who_looks_after_it_gets_the_value() {
        explore(|| {
            let gate = Arc::new(Gate::new("model"));
            let cell = Arc::new(Exclusive::new("model", Scope::Connection, 0).with_gate(Arc::clone(&gate)));
            let other = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || {
                drop(other.try_tend());
                other.try_lock_owned().into_iter().for_each(CellGuard::put_back);
            });
            let look = || loop {
                if let Some(taken) = cell.try_lock() {
                    return Some(taken);
                }
                if cell.holder() != Holder::Nobody {
                    return None;
                }
            };
            *gate.wait(None, look).unwrap() += 1;
            thread.join().unwrap();
            assert_eq!((*cell.try_lock().unwrap(), cell.uses()), (1, 1));
        });
    }

    #[test]
    fn the_holder_sees_what_earlier_holders_wrote() {
        explore(|| {
            let cell = Arc::new(Exclusive::new("model", Scope::Connection, 0));
            let other = Arc::clone(&cell);
            let thread = loom::thread::spawn(move || match other.try_lock() {
                Some(mut guard) => {
                    *guard += 1;
                    1
                }
                None => 0,
            });
            let here = match cell.try_lock_owned() {
                Some(mut guard) => {
                    *guard += 1;
                    1
                }
                None => 0,
            };
            let there = thread.join().unwrap();
            assert_eq!(*cell.try_lock().unwrap(), here + there);
        });
    }
}
