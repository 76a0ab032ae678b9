//! Counts of received bytes by the millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane_sys::clock;

/// Number of milliseconds that a meter can count.
const MAX_MILLISECONDS: usize = 30_000;

/// Counts of the bytes that a port has received, in each millisecond since the meter started.
#[derive(Clone, Debug)]
pub(super) struct ByteMeter(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// Start in nanoseconds of the monotonic clock; 0 while only `total` is counted.
    start: AtomicU64,
    total: AtomicU64,
    milliseconds: Vec<AtomicU64>,
}

impl ByteMeter {
    pub(super) fn new() -> Self {
        let milliseconds = (0..MAX_MILLISECONDS).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Counts { start: AtomicU64::new(0), total: AtomicU64::new(0), milliseconds }))
    }

    pub(super) fn add(&self, bytes: usize) {
        self.add_at(bytes, clock::now().as_nanos());
    }

    fn add_at(&self, bytes: usize, now: u64) {
        let counts = &*self.0;
        let bytes = bytes as u64;
        counts.total.fetch_add(bytes, Ordering::Relaxed);
        let start = counts.start.load(Ordering::Relaxed);
        if start == 0 {
            return;
        }
        let at = usize::try_from(now.saturating_sub(start) / 1_000_000).ok();
        if let Some(count) = at.and_then(|at| counts.milliseconds.get(at)) {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Clears the counts by the millisecond, and starts them at the time `now` in nanoseconds.
    pub(super) fn start(&self, now: u64) {
        self.0.milliseconds.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.0.start.store(now, Ordering::Relaxed);
    }

    /// Stops the counts by the millisecond, and returns them up to the last count that is not 0.
    pub(super) fn stop(&self) -> Vec<u64> {
        self.0.start.store(0, Ordering::Relaxed);
        let mut bytes: Vec<u64> = self.0.milliseconds.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let end = bytes.iter().rposition(|&bytes| bytes > 0).map_or(0, |last| last + 1);
        bytes.truncate(end);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_in_their_millisecond() {
        let meter = ByteMeter::new();
        meter.add_at(5, 7);
        meter.start(1_000_000);
        meter.add_at(10, 1_999_999);
        meter.add_at(20, 3_000_000);
        meter.add_at(40, u64::MAX);
        assert_eq!((meter.total(), meter.stop()), (75, vec![10, 0, 20]));
        meter.add_at(1, 1_500_000);
        meter.start(1_000_000);
        assert_eq!(meter.stop(), [0; 0]);
    }
}
