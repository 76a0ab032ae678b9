//! Limits on the memory that several holders use together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use corelane_wire::CdrError;
use corelane_wire::cdr::{MemoryAccount, MemoryMeter, MemoryRefusal};

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

#[derive(Debug)]
pub(crate) struct ByteBudget {
    held: AtomicUsize,
    limit: usize,
    /// True if memory that was in use has been released since the last call of
    /// [`was_used`](Self::was_used). Accessed `Relaxed`.
    is_used: AtomicBool,
}

impl ByteBudget {
    pub(crate) const fn new(limit: usize) -> Self {
        ByteBudget { held: AtomicUsize::new(0), limit, is_used: AtomicBool::new(false) }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.held() > self.limit
    }

    pub(crate) fn was_used(&self) -> bool {
        self.is_used.swap(false, Ordering::Relaxed) || self.held() > 0
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn refusal(&self, octets: usize) -> MemoryRefusal {
        MemoryRefusal { requested: octets, in_use: self.held(), limit: self.limit }
    }

    /// Adds `octets` bytes to the held bytes. Returns false, and adds nothing, if the sum would
    /// exceed the limit.
    #[cold]
    pub(crate) fn add(&self, octets: usize) -> bool {
        let add = |held: usize| held.checked_add(octets).filter(|sum| *sum <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    #[cold]
    pub(crate) fn add_first(&self, octets: usize) -> bool {
        octets <= self.limit && self.held.compare_exchange(0, octets, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn change(&self, from: usize, to: usize) {
        if to < from {
            self.is_used.store(true, Ordering::Relaxed);
        }
        // A negative difference wraps. The sum is right, because every byte that is subtracted was
        // added before.
        self.held.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    }
}

impl MemoryAccount for ByteBudget {
    #[cold]
    fn reserve(&self, octets: usize) -> Result<(), MemoryRefusal> {
        if self.add(octets) { Ok(()) } else { Err(self.refusal(octets)) }
    }

    #[cold]
    fn release(&self, octets: usize) {
        self.change(octets, 0);
    }
}

#[derive(Debug)]
pub(crate) struct MemoryShare {
    total: Arc<ByteBudget>,
    octets: usize,
}

impl MemoryShare {
    pub(crate) fn new(total: &Arc<ByteBudget>) -> Self {
        MemoryShare { total: Arc::clone(total), octets: 0 }
    }

    pub(crate) fn total(&self) -> &Arc<ByteBudget> {
        &self.total
    }

    #[inline]
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// Changes the share to `octets` bytes.
    ///
    /// # Errors
    /// If the budget has no room for this number of bytes.
    pub(crate) fn set(&mut self, octets: usize) -> Result<(), MemoryRefusal> {
        match octets.checked_sub(self.octets) {
            Some(more) => self.total.reserve(more)?,
            None => self.total.change(self.octets, octets),
        }
        self.octets = octets;
        Ok(())
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if self.octets > 0 {
            self.total.change(self.octets, 0);
        }
    }
}

/// Makes the exception IMP_LIMIT for a refused amount of memory. `what` begins the message, and
/// `setting` is the name of the limit.
#[cold]
pub(crate) fn over_budget(what: &str, refusal: MemoryRefusal, setting: &str, completed: Completion) -> SystemException {
    let minor = CdrError::MemoryBudgetExceeded.minor();
    SystemException::new(Kind::ImpLimit, minor, completed).with_message(format!("{what}: {refusal} ({setting})"))
}

/// Adds the needed amount of memory to an exception that the memory account of `meter` caused.
/// Returns false if the exception has another cause.
#[cold]
pub(crate) fn explain_refusal(
    exception: &mut SystemException,
    meter: &MemoryMeter<'_>,
    what: &str,
    setting: &str,
) -> bool {
    let Some(refusal) = meter.refusal() else { return false };
    let explained = over_budget(what, refusal, setting, exception.completed());
    let is_cause = explained == *exception;
    if is_cause {
        *exception = explained;
    }
    is_cause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_limited_and_returned_on_drop() {
        let total = Arc::new(ByteBudget::new(100));
        let (mut first, mut second) = (MemoryShare::new(&total), MemoryShare::new(&total));
        first.set(60).unwrap();
        assert_eq!(second.set(41), Err(MemoryRefusal { requested: 41, in_use: 60, limit: 100 }));
        assert_eq!((first.octets(), second.octets(), total.held()), (60, 0, 60));
        second.set(40).unwrap();
        first.set(10).unwrap();
        assert_eq!(total.held(), 50);
        drop(first);
        assert_eq!(total.held(), 40);
        assert!(total.reserve(usize::MAX).is_err() && !total.is_exceeded());
        drop(second);
        assert_eq!(total.held(), 0);
    }

    #[test]
    fn memory_released_since_the_last_query_counts_as_used() {
        let total = Arc::new(ByteBudget::new(100));
        assert!(!total.was_used());
        let mut share = MemoryShare::new(&total);
        share.set(60).unwrap();
        drop(share);
        assert!(total.was_used() && !total.was_used());
        total.reserve(10).unwrap();
        total.release(10);
        assert!(total.was_used() && !total.was_used());
    }
}
