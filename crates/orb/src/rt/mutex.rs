//! `RTCORBA::Mutex`, a mutex with priority inheritance.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiMutex, PiMutexGuard};

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

/// A mutex with priority inheritance. Clones of an `RtMutex` are handles to one mutex. Locking a
/// free mutex makes no system call.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// let orb = corelane::Orb::new()?;
/// let mutex = orb.real_time().create_mutex();
/// let guard = mutex.lock()?;
/// drop(guard);
/// assert!(mutex.try_lock(Duration::ZERO)?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RtMutex(Arc<PiMutex<()>>);

/// The guard of a locked [`RtMutex`]. Dropping it unlocks the mutex.
#[must_use = "the mutex is unlocked at once"]
pub struct RtMutexGuard<'m> {
    _held: PiMutexGuard<'m, ()>,
}

impl RtMutex {
    pub(crate) fn new() -> Self {
        RtMutex(Arc::new(PiMutex::new("RTCORBA::Mutex", LockScope::Orb, ())))
    }

    /// Locks the mutex. If another thread holds the mutex, waits without a time limit until it is
    /// unlocked.
    ///
    /// # Errors
    /// BAD_INV_ORDER if the calling thread already holds the mutex.
    pub fn lock(&self) -> Result<RtMutexGuard<'_>, SystemException> {
        self.check()?;
        Ok(RtMutexGuard { _held: self.0.lock() })
    }

    /// Locks the mutex, and waits for it at most the time `wait` of the monotonic clock. If `wait`
    /// is zero, does not wait. Returns `None` if another thread holds the mutex at the end of this
    /// time.
    ///
    /// # Errors
    /// BAD_INV_ORDER if the calling thread already holds the mutex.
    pub fn try_lock(&self, wait: Duration) -> Result<Option<RtMutexGuard<'_>>, SystemException> {
        self.check()?;
        let held = if wait.is_zero() { self.0.try_lock() } else { self.0.lock_until(Some(Monotonic::now() + wait)) };
        Ok(held.map(|held| RtMutexGuard { _held: held }))
    }

    fn check(&self) -> Result<(), SystemException> {
        if !self.0.is_held_by_caller() {
            return Ok(());
        }
        Err(SystemException::new(Kind::BadInvOrder, 0, Completion::No)
            .with_message("this thread holds the mutex already"))
    }
}

impl Default for RtMutex {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for RtMutex {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RtMutex {}

impl fmt::Debug for RtMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RtMutex").finish_non_exhaustive()
    }
}

impl fmt::Debug for RtMutexGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RtMutexGuard").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relocking_by_the_holder_is_refused() {
        let mutex = RtMutex::new();
        let guard = mutex.lock().unwrap();
        assert_eq!(mutex.lock().unwrap_err().kind(), Kind::BadInvOrder);
        assert_eq!(mutex.try_lock(Duration::from_secs(9)).unwrap_err().kind(), Kind::BadInvOrder);
        drop(guard);
        assert!(mutex.lock().is_ok());
    }

    #[test]
    fn try_lock_waits_for_its_timeout() {
        let mutex = RtMutex::new();
        let guard = mutex.lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert!(mutex.try_lock(Duration::ZERO).unwrap().is_none());
                let start = Monotonic::now();
                assert!(mutex.try_lock(Duration::from_millis(3)).unwrap().is_none());
                assert!(start.elapsed() >= Duration::from_millis(3));
            });
            waiting.join().unwrap();
            let waiting = scope.spawn(|| mutex.try_lock(Duration::from_secs(60)).unwrap().is_some());
            drop(guard);
            assert!(waiting.join().unwrap());
        });
    }
}
