//! Accounting of the memory that decoding one message takes, before it is allocated.

use std::cell::Cell;
use std::fmt;

use super::CdrError;

/// Memory in bytes that a message may take beyond the memory that its meter has reserved.
const FREE_BYTES: usize = 64 * 1024;
/// A reservation for charged memory takes a multiple of this number of bytes.
const RESERVE_STEP: usize = 64 * 1024;

/// An account of the memory that several messages take together.
pub trait MemoryAccount: Sync {
    /// Reserves `octets` bytes of the remaining memory.
    ///
    /// # Errors
    /// [`MemoryRefusal`] if less remains. Nothing is reserved then.
    fn reserve(&self, octets: usize) -> Result<(), MemoryRefusal>;

    /// Releases `octets` bytes that were reserved.
    fn release(&self, octets: usize);
}

/// The refusal of a reservation by an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRefusal {
    /// The requested amount in bytes.
    pub requested: usize,
    /// The amount in bytes that was reserved when the account refused.
    pub in_use: usize,
    /// The account's limit in bytes.
    pub limit: usize,
}

impl fmt::Display for MemoryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryRefusal { requested: wanted, in_use: held, limit } = self;
        write!(f, "{wanted} further octets of memory are needed, {held} of at most {limit} are in use")
    }
}

/// Counts the memory that decoding one message takes, and reserves it from an account. At most 64
/// KiB of the counted memory are not reserved.
pub struct MemoryMeter<'a> {
    account: &'a dyn MemoryAccount,
    charged_bytes: Cell<usize>,
    allowance: Cell<usize>,
    reserved: Cell<usize>,
    refusal: Cell<Option<MemoryRefusal>>,
}

impl<'a> MemoryMeter<'a> {
    /// Creates a meter that reserves from `account`.
    #[must_use]
    #[inline]
    pub const fn new(account: &'a dyn MemoryAccount) -> MemoryMeter<'a> {
        MemoryMeter {
            account,
            charged_bytes: Cell::new(0),
            allowance: Cell::new(FREE_BYTES),
            reserved: Cell::new(0),
            refusal: Cell::new(None),
        }
    }

    /// Returns the memory in bytes that was charged for allocations so far.
    #[must_use]
    pub fn charged_bytes(&self) -> usize {
        self.charged_bytes.get()
    }

    /// Returns the account's last refusal, if any.
    #[must_use]
    #[inline]
    pub fn refusal(&self) -> Option<MemoryRefusal> {
        self.refusal.get()
    }

    pub(super) fn set_refusal(&self, refusal: MemoryRefusal) {
        self.refusal.set(Some(refusal));
    }

    #[inline]
    pub(super) fn charge(&self, octets: usize, limit: usize) -> Result<(), CdrError> {
        let spent = self.charged_bytes.get().saturating_add(octets);
        if spent > limit {
            return Err(CdrError::LimitExceeded);
        }
        if spent > self.allowance.get() {
            self.raise_allowance(spent)?;
        }
        self.charged_bytes.set(spent);
        Ok(())
    }

    /// Reserves memory from the account for bytes that are already allocated, such as a large
    /// message. The meter releases the memory when it is dropped.
    ///
    /// # Errors
    /// [`CdrError::MemoryBudgetExceeded`] if less memory remains in the account.
    pub fn charge_existing(&self, octets: usize) -> Result<(), CdrError> {
        if let Err(refusal) = self.account.reserve(octets) {
            self.refusal.set(Some(refusal));
            return Err(CdrError::MemoryBudgetExceeded);
        }
        self.reserved.set(self.reserved.get() + octets);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn raise_allowance(&self, spent: usize) -> Result<(), CdrError> {
        // Afterwards the reservations cover `spent`, and charges of 64 KiB more need no further
        // reservation.
        let wanted =
            (spent - (self.allowance.get() - FREE_BYTES)).checked_next_multiple_of(RESERVE_STEP).unwrap_or(usize::MAX);
        self.charge_existing(wanted)?;
        self.allowance.set(self.allowance.get().saturating_add(wanted));
        Ok(())
    }
}

impl Drop for MemoryMeter<'_> {
    #[inline]
    fn drop(&mut self) {
        let taken = self.reserved.get();
        if taken > 0 {
            std::hint::cold_path();
            self.account.release(taken);
        }
    }
}

impl fmt::Debug for MemoryMeter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryMeter")
            .field("spent", &self.charged_bytes.get())
            .field("taken", &self.reserved.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Purse(AtomicUsize);

    impl MemoryAccount for Purse {
        fn reserve(&self, octets: usize) -> Result<(), MemoryRefusal> {
            let held = self.0.load(Ordering::Relaxed);
            match held.checked_add(octets).filter(|sum| *sum <= 1 << 20) {
                Some(sum) => self.0.store(sum, Ordering::Relaxed),
                None => return Err(MemoryRefusal { requested: octets, in_use: held, limit: 1 << 20 }),
            }
            Ok(())
        }

        fn release(&self, octets: usize) {
            self.0.fetch_sub(octets, Ordering::Relaxed);
        }
    }

    #[test]
    fn existing_memory_counts_for_the_account_and_not_for_the_limit_of_the_message() {
        let purse = Purse(AtomicUsize::new(0));
        let meter = MemoryMeter::new(&purse);
        meter.charge_existing(500_000).unwrap();
        assert_eq!(purse.0.load(Ordering::Relaxed), 500_000);
        assert_eq!((meter.charge(1000, 1000), meter.charged_bytes()), (Ok(()), 1000));
        assert_eq!(meter.charge(1, 1000), Err(CdrError::LimitExceeded));
        assert_eq!(purse.0.load(Ordering::Relaxed), 500_000);
        meter.charge(FREE_BYTES, usize::MAX).unwrap();
        assert_eq!(purse.0.load(Ordering::Relaxed), 500_000 + FREE_BYTES + RESERVE_STEP);
        assert_eq!(meter.charge(usize::MAX, usize::MAX), Err(CdrError::MemoryBudgetExceeded));
        assert_eq!(meter.charge_existing(1 << 20), Err(CdrError::MemoryBudgetExceeded));
        assert_eq!(meter.refusal().map(|refusal| refusal.requested), Some(1 << 20));
        drop(meter);
        assert_eq!(purse.0.load(Ordering::Relaxed), 0);
    }
}
