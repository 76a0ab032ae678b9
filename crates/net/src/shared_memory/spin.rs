//! Looking for a while before sleeping, as long as it pays.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use corelane_sys::clock::Monotonic;

/// What always paying is counted as.
const WHOLE: u32 = 1024;
/// Below this, looking is tried only now and then.
const WORTH: u32 = WHOLE / 4;
/// How often then.
const NOW_AND_THEN: u32 = 64;
/// Looks between two readings of the clock.
const LOOKS: u32 = 64;
/// Rounds of looks without a pause: the processor's own takes as long as an answer that is about to come.
const EAGER: u32 = 4;

/// Whether looking has paid, as a moving average over the last waits.
#[derive(Debug)]
pub(super) struct Spin {
    longest: Duration,
    paid: AtomicU32,
    waits: AtomicU32,
}

impl Spin {
    /// Looks for `longest` at most; zero for never.
    pub(super) fn new(longest: Duration) -> Self {
        Spin { longest, paid: AtomicU32::new(WHOLE / 2), waits: AtomicU32::new(0) }
    }

    /// Whether anybody ever looks.
    #[inline]
    pub(super) fn is_allowed(&self) -> bool {
        !self.longest.is_zero()
    }

    /// Looks whether `there` is true, for a while if that has paid before.
    #[inline]
    pub(super) fn look(&self, there: impl Fn() -> bool) -> bool {
        self.is_allowed() && self.look_for_a_while(there)
    }

    fn look_for_a_while(&self, there: impl Fn() -> bool) -> bool {
        // Counts of the one thread that waits here; another one's would only blur them.
        let (paid, waits) = (self.paid.load(Ordering::Relaxed), self.waits.load(Ordering::Relaxed));
        self.waits.store(waits.wrapping_add(1), Ordering::Relaxed);
        if paid < WORTH && !waits.is_multiple_of(NOW_AND_THEN) {
            return false;
        }
        let end = Monotonic::now() + self.longest;
        let mut rounds = 0;
        let found = loop {
            if (0..LOOKS).any(|_| {
                if rounds >= EAGER {
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
        self.paid.store(paid - paid / 8 + if found { WHOLE / 8 } else { 0 }, Ordering::Relaxed);
        found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn looking_stops_when_it_does_not_pay_and_begins_again_when_it_does() {
        let spin = Spin::new(Duration::from_nanos(1));
        let looks = |there: bool| {
            let looked = Cell::new(false);
            spin.look(|| {
                looked.set(true);
                there
            });
            looked.get()
        };
        let waits = |there: bool| (0..1000).filter(|_| looks(there)).count();
        assert!(waits(false) < 60);
        assert!(waits(true) > 500);
        assert_eq!(waits(true), 1000);
        assert!(!Spin::new(Duration::ZERO).look(|| true));
    }
}
