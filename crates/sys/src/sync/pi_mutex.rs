//! A mutex with priority inheritance: its holder runs at the highest priority of its waiters.
//!
//! The lock is one word: 0, or the kernel's number of the holding thread and, if the kernel queues
//! waiters, the waiters' bit. Without contention, taking and releasing the lock are one
//! compare-and-swap each. With contention the kernel (`FUTEX_LOCK_PI2`) queues waiters by priority,
//! lends the highest priority to the holder, and hands the lock over.
//!
//! Rules of memory ordering, some of which comments in the code name:
//!
//! * `holder`: a release sets the word to 0 with release ordering, and the next compare-and-swap
//!   from 0 has acquire ordering.
//! * `handed_over`, `taken_over`: with contention, `unlock` does a release (`handed_over`), the
//!   kernel then changes the word by a read-modify-write, and `lock` does an acquire
//!   (`taken_over`).
//! * A thread releases the lock with a compare-and-swap that expects exactly the thread's number.
//!   The compare-and-swap fails when the waiters' bit is set. In this case only the kernel changes
//!   the word, so no waiter is forgotten.
//!
//! Before Linux 5.14 the lock uses `FUTEX_LOCK_PI`, whose deadlines are times of the wall clock.
//! The module [`guarantees`](crate::guarantees) reports such kernels.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::lock::LockScope;
use crate::clock::Monotonic;
use crate::counters;
use crate::event_count::{Epoch, WakeCount};
use crate::shim::{AtomicU32, Ordering, UnsafeCell, const_unless_loom};
use crate::thread;

/// A mutex with priority inheritance.
pub struct PiMutex<T> {
    word: LockWord,
    name: &'static str,
    scope: LockScope,
    value: UnsafeCell<T>,
}

// SAFETY: a reference to the value exists only in the guard, and the word admits one guard at a
// time. So the value moves between threads and is not shared, which needs `T: Send`.
unsafe impl<T: Send> Sync for PiMutex<T> {}
// SAFETY: moving the mutex moves the value.
unsafe impl<T: Send> Send for PiMutex<T> {}

impl<T> PiMutex<T> {
    const_unless_loom! {
        /// Creates an unlocked mutex around `value`. The name appears in diagnostics.
        pub fn new(name: &'static str, scope: LockScope, value: T) -> Self {
            Self { word: LockWord::new(), name, scope, value: UnsafeCell::new(value) }
        }
    }

    /// Takes the lock, after a wait if another thread holds it.
    ///
    /// # Panics
    /// If the calling thread holds the lock already, or if the holding thread has ended without
    /// releasing the lock (a leaked guard).
    pub fn lock(&self) -> PiMutexGuard<'_, T> {
        match self.lock_until(None) {
            Some(guard) => guard,
            None => unreachable!("a wait without deadline has ended"),
        }
    }

    /// Takes the lock, or waits for it until `deadline` (`None`: for ever). Returns `None` after
    /// the deadline.
    ///
    /// # Panics
    /// If the calling thread holds the lock already, or if the holding thread has ended without
    /// releasing the lock (a leaked guard).
    pub fn lock_until(&self, deadline: Option<Monotonic>) -> Option<PiMutexGuard<'_, T>> {
        match self.word.lock(thread::current_tid().as_raw() as u32, deadline) {
            Ok(()) => Some(self.guard()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => None,
            Err(error) => panic!("lock `{}` cannot be taken: {error}", self.name),
        }
    }

    /// Takes the lock if it is free. Returns `None` if a thread holds it.
    pub fn try_lock(&self) -> Option<PiMutexGuard<'_, T>> {
        self.word.try_lock(thread::current_tid().as_raw() as u32).then(|| self.guard())
    }

    /// Returns true if the calling thread holds the lock.
    pub fn is_held_by_caller(&self) -> bool {
        self.word.holder() == thread::current_tid().as_raw() as u32
    }

    /// Returns the name given at creation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the scope given at creation.
    pub fn scope(&self) -> LockScope {
        self.scope
    }

    fn guard(&self) -> PiMutexGuard<'_, T> {
        counters::count_lock(self.scope);
        PiMutexGuard { mutex: self, here: PhantomData }
    }
}

impl<T> fmt::Debug for PiMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiMutex").field("name", &self.name).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// A guard of a [`PiMutex`]: the thread that took the lock holds it until it drops the guard.
#[must_use = "the lock is released at once"]
pub struct PiMutexGuard<'a, T> {
    mutex: &'a PiMutex<T>,
    /// Prevents `Send`: for the kernel, the lock belongs to the thread that took it.
    here: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` only (`T: Sync`). A guard cannot leave the thread that took the
// lock, so the same thread releases it.
unsafe impl<T: Sync> Sync for PiMutexGuard<'_, T> {}

impl<T> Deref for PiMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while this guard lives, the word keeps all other threads out and prevents a
        // second lock by this thread.
        self.mutex.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for PiMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: while this guard lives, the word keeps all other threads out, and the guard is
        // borrowed exclusively.
        self.mutex.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for PiMutexGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.word.unlock(thread::current_tid().as_raw() as u32);
    }
}

/// A condition variable for use with a [`PiMutex`]. A wait may end without a notification, so the
/// caller checks its condition in a loop. The notifying thread must have changed the condition
/// under the lock; otherwise a waiting thread may miss the notification.
#[derive(Debug)]
pub struct PiCondvar {
    sleepers: AtomicU32,
    notifications: Epoch,
}

impl Default for PiCondvar {
    fn default() -> Self {
        Self::new()
    }
}

impl PiCondvar {
    /// Creates a condition variable without waiters.
    #[must_use]
    pub fn new() -> Self {
        PiCondvar { sleepers: AtomicU32::new(0), notifications: Epoch::new() }
    }

    /// Releases the lock, waits for a notification, and takes the lock again.
    pub fn wait<'a, T>(&self, guard: PiMutexGuard<'a, T>) -> PiMutexGuard<'a, T> {
        self.wait_until(guard, None).0
    }

    /// Releases the lock, waits for a notification until `deadline` (`None`: for ever), and takes
    /// the lock again. The flag is false if the deadline passed before a notification.
    pub fn wait_until<'a, T>(
        &self,
        guard: PiMutexGuard<'a, T>,
        deadline: Option<Monotonic>,
    ) -> (PiMutexGuard<'a, T>, bool) {
        let (mutex, seen) = (guard.mutex, self.notifications.current());
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        drop(guard);
        let in_time = self.notifications.wait_past(seen, deadline);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        (mutex.lock(), in_time)
    }

    /// Wakes the waiting thread with the highest priority.
    pub fn notify_one(&self) {
        self.notify(WakeCount::One);
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.notify(WakeCount::All);
    }

    fn notify(&self, wake: WakeCount) {
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.notifications.advance(wake);
        }
    }
}

const TID_MASK: u32 = 0x3fff_ffff;

/// The lock's futex word. The parameter `tid` of its functions is the kernel's number of the
/// calling thread.
struct LockWord(AtomicU32);

impl LockWord {
    const_unless_loom! {
        fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    fn holder(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & TID_MASK
    }

    fn try_lock(&self, tid: u32) -> bool {
        // Acquire: pairs with `unlock` (rule `holder`).
        self.0.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn lock(&self, tid: u32, deadline: Option<Monotonic>) -> io::Result<()> {
        if self.try_lock(tid) {
            return Ok(());
        }
        super::lock::wait_traced(|| kernel::lock(&self.0, tid, deadline))?;
        // Acquire: pairs with `unlock` (rules `holder` and `taken_over`). The kernel has already
        // stored this thread's number.
        self.0.load(Ordering::Acquire);
        Ok(())
    }

    fn unlock(&self, tid: u32) {
        // Release: pairs with `try_lock` (rule `holder`).
        if self.0.compare_exchange(tid, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            // Release: pairs with `lock` (rule `handed_over`). The kernel's next write of the word
            // continues the release sequence that begins here.
            self.0.fetch_or(0, Ordering::Release);
            kernel::unlock(&self.0, tid);
        }
    }
}

#[cfg(not(loom))]
mod kernel {
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use crate::clock::{self, Monotonic};
    use crate::syscall;

    const FUTEX_LOCK_PI2: libc::c_int = 13;

    #[cold]
    pub(super) fn lock(word: &AtomicU32, _tid: u32, deadline: Option<Monotonic>) -> io::Result<()> {
        static MISSING: AtomicBool = AtomicBool::new(false);
        loop {
            let result = if MISSING.load(Ordering::Relaxed) {
                let left = deadline.map(Monotonic::remaining);
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                operation(word, libc::FUTEX_LOCK_PI, left.map(|left| now.saturating_add(left)))
            } else {
                let at = deadline.map(|deadline| Duration::from_nanos(deadline.as_nanos()));
                operation(word, FUTEX_LOCK_PI2, at)
            };
            match result {
                Ok(()) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOSYS) if !MISSING.swap(true, Ordering::Relaxed) => {}
                    Some(libc::EINTR | libc::EAGAIN) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    #[cold]
    pub(super) fn unlock(word: &AtomicU32, _tid: u32) {
        // A signal does not interrupt the call. It fails only if this thread does not hold the
        // lock, which the guard excludes.
        let _ = operation(word, libc::FUTEX_UNLOCK_PI, None);
    }

    fn operation(word: &AtomicU32, operation: libc::c_int, until: Option<Duration>) -> io::Result<()> {
        let until = until.map(clock::timespec);
        let until = until.as_ref().map_or(std::ptr::null(), |until| until as *const libc::timespec);
        // SAFETY: the kernel changes the word atomically, `until` is null or points to a time that
        // outlives the call, and these operations do not use the other arguments.
        syscall::futex(|| unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, 0, until)
        })?;
        Ok(())
    }
}

/// A model of the kernel's hand-over: waiters queue, and the first waiter gets the lock.
#[cfg(loom)]
mod kernel {
    use std::collections::VecDeque;
    use std::io;

    use loom::sync::{Condvar, Mutex};

    use crate::clock::Monotonic;
    use crate::shim::{AtomicU32, Ordering};

    const WAITERS: u32 = 1 << 31;

    loom::lazy_static! {
        static ref QUEUE: Mutex<VecDeque<u32>> = Mutex::new(VecDeque::new());
        static ref HANDED_OVER: Condvar = Condvar::new();
    }

    pub(super) fn lock(word: &AtomicU32, tid: u32, _deadline: Option<Monotonic>) -> io::Result<()> {
        let mut queue = QUEUE.lock().unwrap();
        loop {
            let seen = word.load(Ordering::Acquire);
            let (new, got) = if seen == 0 { (tid, true) } else { (seen | WAITERS, false) };
            if word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                if got {
                    return Ok(());
                }
                break;
            }
        }
        queue.push_back(tid);
        while word.load(Ordering::Acquire) & !WAITERS != tid {
            queue = HANDED_OVER.wait(queue).unwrap();
        }
        Ok(())
    }

    pub(super) fn unlock(word: &AtomicU32, tid: u32) {
        let mut queue = QUEUE.lock().unwrap();
        assert_eq!(word.load(Ordering::Acquire), tid | WAITERS, "unlock in the kernel without waiters");
        let next = queue.pop_front().unwrap();
        let waiters = if queue.is_empty() { 0 } else { WAITERS };
        word.store(next | waiters, Ordering::Release);
        HANDED_OVER.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    use super::*;
    use crate::clock;
    use crate::thread::{CpuSet, Scheduling, ThreadBuilder};

    #[test]
    fn uncontended_lock_makes_no_system_call() {
        let mutex = PiMutex::new("test", LockScope::Lane, 1);
        drop(mutex.lock());
        let before = counters::snapshot();
        *mutex.lock() += 1;
        *mutex.try_lock().unwrap() += 1;
        assert!(!mutex.is_held_by_caller());
        let counted = counters::snapshot() - before;
        assert_eq!((counted.syscalls, counted.futex_calls, counted.locks, *mutex.lock()), (0, 0, 2, 3));
    }

    #[test]
    fn lock_wait_ends_at_its_deadline() {
        let mutex = PiMutex::new("test", LockScope::Lane, ());
        let guard = mutex.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let deadline = clock::now() + Duration::from_millis(3);
                assert!(mutex.try_lock().is_none());
                let before = counters::snapshot();
                assert!(mutex.lock_until(Some(deadline)).is_none());
                let counted = counters::snapshot() - before;
                assert!(counted.syscalls == 0 && counted.futex_calls > 0 && counted.locks == 0);
                assert!(deadline.is_past() && deadline.elapsed() < Duration::from_secs(1));
            });
        });
        drop(guard);
        assert!(mutex.lock_until(Some(clock::now())).is_some());
    }

    #[test]
    #[should_panic(expected = "lock `test` cannot be taken")]
    fn locking_twice_is_detected() {
        let mutex = PiMutex::new("test", LockScope::Lane, ());
        let _guard = mutex.lock();
        let _ = mutex.lock();
    }

    #[test]
    fn condition_wait_ends_at_deadline_or_notification() {
        let shared = Arc::new((PiMutex::new("test", LockScope::Orb, false), PiCondvar::new()));
        let deadline = clock::now() + Duration::from_millis(3);
        let (guard, in_time) = shared.1.wait_until(shared.0.lock(), Some(deadline));
        assert!(!in_time && deadline.is_past());
        let other = Arc::clone(&shared);
        let teller = std::thread::spawn(move || {
            *other.0.lock() = true;
            other.1.notify_all();
        });
        let mut guard = guard;
        while !*guard {
            guard = shared.1.wait(guard);
        }
        drop(guard);
        teller.join().unwrap();
        let before = counters::snapshot();
        shared.1.notify_one();
        assert_eq!((counters::snapshot() - before).futex_calls, 0, "expected no futex call, because no thread waits");
    }

    #[test]
    fn highest_priority_waiter_wakes_first() {
        let shared = Arc::new((PiMutex::new("test", LockScope::Orb, (0, Vec::new())), PiCondvar::new()));
        let waiting = [2, 3, 1].map(|priority| {
            let shared = Arc::clone(&shared);
            let body = move || {
                let mut state = shared.0.lock();
                while state.0 == 0 {
                    state = shared.1.wait(state);
                }
                state.0 -= 1;
                state.1.push(priority);
            };
            let thread = ThreadBuilder::new().name("waits").scheduling(Scheduling::Fifo(priority)).spawn(body);
            thread.unwrap_or_else(|error| panic!("SCHED_FIFO is not permitted here: {error}"))
        });
        let asleep = || {
            let threads = thread::list_threads().unwrap();
            let stat = |tid: i32| std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
            let sleeps = |tid| stat(tid).rsplit(')').next().unwrap_or_default().trim_start().starts_with('S');
            threads.iter().filter(|thread| thread.name == "waits" && sleeps(thread.tid.as_raw())).count()
        };
        for woken in 0..3 {
            while shared.1.sleepers.load(Ordering::Relaxed) as usize != 3 - woken || asleep() != 3 - woken {
                std::thread::sleep(Duration::from_millis(1));
            }
            shared.0.lock().0 += 1;
            shared.1.notify_one();
            while shared.0.lock().1.len() == woken {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.0.lock().1, [3, 2, 1]);
    }

    #[test]
    fn threads_exclude_each_other() {
        let mutex = PiMutex::new("test", LockScope::Lane, (0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let mut pair = mutex.lock();
                        pair.0 += 1;
                        pair.1 = pair.0;
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), (20_000, 20_000));
    }

    #[test]
    fn holder_inherits_the_priority_of_a_waiter() {
        fn parked_until(flag: &AtomicBool) {
            while !flag.load(SeqCst) {
                std::thread::park();
            }
        }
        let core = CpuSet::one(thread::affinity(None).unwrap().iter().last().unwrap());
        let start = |priority, body: Box<dyn FnOnce() + Send>| {
            ThreadBuilder::new().name("pi").affinity(core).scheduling(Scheduling::Fifo(priority)).spawn(body)
        };
        let mutex = Arc::new(PiMutex::new("test", LockScope::Orb, ()));
        let [wanted, ready, middle_ran, high_first] = [(); 4].map(|()| Arc::new(AtomicBool::new(false)));
        let middle = {
            let (ready, middle_ran) = (Arc::clone(&ready), Arc::clone(&middle_ran));
            start(
                2,
                Box::new(move || {
                    parked_until(&ready);
                    middle_ran.store(true, SeqCst);
                }),
            )
        };
        let middle = middle.unwrap_or_else(|error| panic!("SCHED_FIFO is not permitted here: {error}"));
        let high = {
            let (mutex, wanted, middle_thread) = (Arc::clone(&mutex), Arc::clone(&wanted), middle.thread().clone());
            let high_first = Arc::clone(&high_first);
            start(
                3,
                Box::new(move || {
                    parked_until(&wanted);
                    ready.store(true, SeqCst);
                    middle_thread.unpark();
                    let _guard = mutex.lock();
                    high_first.store(!middle_ran.load(SeqCst), SeqCst);
                }),
            )
        };
        let high = high.unwrap();
        let high_thread = high.thread().clone();
        let low = start(
            1,
            Box::new(move || {
                let _guard = mutex.lock();
                wanted.store(true, SeqCst);
                high_thread.unpark();
            }),
        );
        for thread in [low.unwrap(), high, middle] {
            thread.join().unwrap();
        }
        assert!(high_first.load(SeqCst), "expected the high thread to have the lock before the middle thread runs");
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::shim::explore;

    #[test]
    fn three_threads_exclude_each_other_and_all_finish() {
        explore(|| {
            let shared = Arc::new((LockWord::new(), UnsafeCell::new(0)));
            let work = |shared: &(LockWord, UnsafeCell<u32>), tid| {
                shared.0.lock(tid, None).unwrap();
                // SAFETY: `loom` reports accesses that are not ordered.
                shared.1.with_mut(|value| unsafe { *value += 1 });
                shared.0.unlock(tid);
            };
            let others: Vec<_> = [2, 3]
                .into_iter()
                .map(|tid| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || work(&shared, tid))
                })
                .collect();
            work(&shared, 1);
            for other in others {
                other.join().unwrap();
            }
            // SAFETY: all other threads have ended.
            shared.1.with(|value| assert_eq!(unsafe { *value }, 3));
        });
    }
}
