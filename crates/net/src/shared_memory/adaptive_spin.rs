//! Polling for a while before sleeping, as long as it helps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use corelane_sys::clock::Monotonic;

/// Value of the moving average if polling always succeeds.
const FULL_SUCCESS: u32 = 1024;
/// Success below which polling is tried only once every `RETRY_INTERVAL` waits.
const MIN_SUCCESS: u32 = FULL_SUCCESS / 4;
/// Number of waits between two tries while success is low.
const RETRY_INTERVAL: u32 = 64;
const POLLS_PER_CLOCK_READ: u32 = 64;
/// Rounds of polls without a pause: the processor's pause takes as long as an answer that is about
/// to arrive.
const ROUNDS_WITHOUT_PAUSE: u32 = 4;

/// The success of polling, as a moving average over the last waits.
#[derive(Debug)]
pub(super) struct AdaptiveSpin {
    max_spin: Duration,
    success: AtomicU32,
    waits: AtomicU32,
}

impl AdaptiveSpin {
    /// Creates a spinner that polls for `longest` at most; zero for never.
    pub(super) fn new(longest: Duration) -> Self {
        AdaptiveSpin { max_spin: longest, success: AtomicU32::new(FULL_SUCCESS / 2), waits: AtomicU32::new(0) }
    }

    /// Returns true if polling is enabled.
    #[inline]
    pub(super) fn is_allowed(&self) -> bool {
        !self.max_spin.is_zero()
    }

    /// Polls `there` for a while if that has helped before; returns whether it became true.
    #[inline]
    pub(super) fn spin_until(&self, there: impl Fn() -> bool) -> bool {
        self.is_allowed() && self.spin_if_worthwhile(there)
    }

    fn spin_if_worthwhile(&self, there: impl Fn() -> bool) -> bool {
        // Only one thread waits here. The counts of a second one would merely blur them.
        let (paid, waits) = (self.success.load(Ordering::Relaxed), self.waits.load(Ordering::Relaxed));
        self.waits.store(waits.wrapping_add(1), Ordering::Relaxed);
        if paid < MIN_SUCCESS && !waits.is_multiple_of(RETRY_INTERVAL) {
            return false;
        }
        let end = Monotonic::now() + self.max_spin;
        let mut rounds = 0;
        let found = loop {
            if (0..POLLS_PER_CLOCK_READ).any(|_| {
                if rounds >= ROUNDS_WITHOUT_PAUSE {
                    std::hint::spin_loop();
                }
                there()
            }) {
                break true;
            }
            rounds += 1;
            if end.is_past() {
                break false;
            }
        };
        self.success.store(paid - paid / 8 + if found { FULL_SUCCESS / 8 } else { 0 }, Ordering::Relaxed);
        found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn spinning_stops_when_useless_and_resumes_when_useful() {
        let spin = AdaptiveSpin::new(Duration::from_nanos(1));
        let looks = |there: bool| {
            let looked = Cell::new(false);
            spin.spin_until(|| {
                looked.set(true);
                there
            });
            looked.get()
        };
        let waits = |there: bool| (0..1000).filter(|_| looks(there)).count();
        assert!(waits(false) < 60);
        assert!(waits(true) > 500);
        assert_eq!(waits(true), 1000);
        assert!(!AdaptiveSpin::new(Duration::ZERO).spin_until(|| true));
    }
}
