//! POSIX's counting semaphore, which only benchmarks use.

use std::cell::UnsafeCell;
use std::fmt;

/// A counting semaphore: a thread waits until the count is above 0.
pub struct Semaphore {
    /// Boxed, because a semaphore must not move after its initialisation.
    inner: Box<UnsafeCell<libc::sem_t>>,
}

// SAFETY: the functions of sem_overview(7) may be called by any thread on the same semaphore at the
// same time.
unsafe impl Sync for Semaphore {}
// SAFETY: moving the value moves the box, not the semaphore in it.
unsafe impl Send for Semaphore {}

impl Semaphore {
    /// Creates a semaphore with the count 0, so the first wait blocks.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: `sem_t` is a plain structure of integers, for which zeroes are valid.
        let inner = Box::new(UnsafeCell::new(unsafe { std::mem::zeroed() }));
        // SAFETY: the pointer is to a live `sem_t` that no other thread knows yet. The call fails
        // only for values above SEM_VALUE_MAX.
        unsafe { libc::sem_init(inner.get(), 0, 0) };
        Semaphore { inner }
    }

    /// Adds one to the count and wakes the waiting thread with the highest priority.
    pub fn post(&self) {
        // SAFETY: the semaphore was initialised in `new` and lives as long as `self`. The call
        // fails only at SEM_VALUE_MAX (2^31 - 1), where a further wake-up changes nothing.
        unsafe { libc::sem_post(self.inner.get()) };
    }

    /// Waits until the count is above 0, then subtracts one.
    pub fn wait(&self) {
        // SAFETY: the semaphore was initialised in `new` and lives as long as `self`. The only
        // error is an interruption by a signal, after which the wait begins again.
        while unsafe { libc::sem_wait(self.inner.get()) } == -1 {}
    }
}

impl Default for Semaphore {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: no thread waits, because `&mut self` is the only reference.
        unsafe { libc::sem_destroy(self.inner.get()) };
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn every_post_ends_one_wait() {
        let there = Arc::new(Semaphore::new());
        let back = Arc::new(Semaphore::default());
        let other = {
            let (there, back) = (there.clone(), back.clone());
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    there.wait();
                    back.post();
                }
            })
        };
        for _ in 0..1000 {
            there.post();
            back.wait();
        }
        other.join().unwrap();
        there.post();
        there.post();
        there.wait();
        there.wait();
    }
}
