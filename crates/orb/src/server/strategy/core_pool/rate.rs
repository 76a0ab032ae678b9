//! The rate of a task's requests: one request above the rate waits, and further ones are refused.
//! Pure: time is an argument.
//!
//! A request may arrive `distance` after the request before it, and up to the task's jitter
//! earlier. An early request waits until its arrival time, and the next arrival time then moves on
//! by `distance`. While a request waits, other early requests are refused.
//!
//! Invariants: in any time `t` at most `1 + (t + jitter) / distance` requests begin. At most one
//! request of a task waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The decision about a request of a task with a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateVerdict {
    /// The request runs now.
    Run,
    /// The request waits until this time, and then runs. The caller then reports
    /// [`end_wait`](RateGuard::end_wait).
    WaitUntil(Duration),
    /// Another request waits, so this request is refused.
    Refuse,
}

/// The rate of one task. All times are since an instant that the caller chose.
#[derive(Debug)]
pub(super) struct RateGuard {
    distance: u64,
    jitter: u64,
    /// Bits 1 to 63 are the next arrival time in nanoseconds; bit 0 is set while a request waits.
    /// Changed by compare-and-exchange with `Relaxed`, because no other memory depends on it.
    state: AtomicU64,
}

const WAITS: u64 = 1;
const MAX_TIME: u64 = u64::MAX >> 1;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(MAX_TIME)
}

impl RateGuard {
    pub(super) fn new(distance: Duration, jitter: Duration) -> Self {
        RateGuard { distance: nanos(distance), jitter: nanos(jitter), state: AtomicU64::new(0) }
    }

    /// Returns true if the guard has these parameters.
    pub(super) fn has(&self, distance: Duration, jitter: Duration) -> bool {
        (self.distance, self.jitter) == (nanos(distance), nanos(jitter))
    }

    /// Decides about a request that arrives at the time `now`.
    pub(super) fn arrive(&self, now: Duration) -> RateVerdict {
        let now = nanos(now);
        let mut verdict = RateVerdict::Refuse;
        let decide = |state: u64| {
            let (next, waits) = (state >> 1, state & WAITS);
            let earliest = next.saturating_sub(self.jitter);
            let (after, waits) = if now >= earliest {
                verdict = RateVerdict::Run;
                (now.max(next), waits)
            } else if waits == 0 {
                verdict = RateVerdict::WaitUntil(Duration::from_nanos(earliest));
                (next, WAITS)
            } else {
                verdict = RateVerdict::Refuse;
                return None;
            };
            Some(after.saturating_add(self.distance).min(MAX_TIME) << 1 | waits)
        };
        // An error means that the request is refused, and nothing changes.
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decide);
        verdict
    }

    /// Ends the wait of a request, which runs now.
    pub(super) fn end_wait(&self) {
        self.state.fetch_and(!WAITS, Ordering::Relaxed);
    }

    /// Ends the wait of a request that does not run. The next request may arrive at its time.
    pub(super) fn cancel_wait(&self) {
        let back = |state: u64| Some((state >> 1).saturating_sub(self.distance) << 1);
        // The function always returns a state.
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[test]
    fn one_early_request_waits_and_others_are_refused() {
        let guard = RateGuard::new(ms(10), ms(0));
        assert_eq!(guard.arrive(ms(100)), RateVerdict::Run);
        assert_eq!(guard.arrive(ms(103)), RateVerdict::WaitUntil(ms(110)));
        assert_eq!(guard.arrive(ms(104)), RateVerdict::Refuse);
        assert_eq!(guard.arrive(ms(109)), RateVerdict::Refuse);
        guard.end_wait();
        // The request that waited was the one of 110 ms.
        assert_eq!(guard.arrive(ms(111)), RateVerdict::WaitUntil(ms(120)));
        guard.end_wait();
        assert_eq!(guard.arrive(ms(130)), RateVerdict::Run);
        assert_eq!(guard.arrive(ms(140)), RateVerdict::Run);
        // Unused arrivals are not saved up.
        assert_eq!(guard.arrive(ms(500)), RateVerdict::Run);
        assert_eq!(guard.arrive(ms(500)), RateVerdict::WaitUntil(ms(510)));
    }

    #[test]
    fn cancelled_waits_do_not_move_the_next_arrival() {
        let guard = RateGuard::new(ms(10), ms(0));
        assert_eq!(guard.arrive(ms(100)), RateVerdict::Run);
        for _ in 0..100 {
            assert_eq!(guard.arrive(ms(103)), RateVerdict::WaitUntil(ms(110)));
            guard.cancel_wait();
        }
        assert_eq!(guard.arrive(ms(110)), RateVerdict::Run);
    }

    #[test]
    fn jitter_permits_an_early_arrival() {
        let guard = RateGuard::new(ms(10), ms(3));
        assert_eq!(guard.arrive(ms(100)), RateVerdict::Run);
        assert_eq!(guard.arrive(ms(107)), RateVerdict::Run);
        assert_eq!(guard.arrive(ms(114)), RateVerdict::WaitUntil(ms(117)));
        guard.end_wait();
        let largest = RateGuard::new(Duration::MAX, Duration::ZERO);
        assert_eq!(largest.arrive(ms(1)), RateVerdict::Run);
        assert!(matches!(largest.arrive(ms(2)), RateVerdict::WaitUntil(_)));
    }

    /// Tries all arrivals on a grid, with waits that end in time, late and never.
    #[test]
    fn requests_that_begin_keep_the_rate_in_all_orders() {
        const DISTANCE: u64 = 4;
        const JITTER: u64 = 1;
        fn explore(arrivals: &[u64], end_waits: u64) {
            let guard = RateGuard::new(Duration::from_nanos(DISTANCE), Duration::from_nanos(JITTER));
            let mut begun: Vec<u64> = Vec::new();
            let mut waiting: Option<u64> = None;
            for &now in arrivals {
                if let Some(until) = waiting
                    && now >= until + end_waits
                {
                    waiting = None;
                    guard.end_wait();
                }
                match guard.arrive(Duration::from_nanos(now)) {
                    RateVerdict::Run => begun.push(now),
                    RateVerdict::WaitUntil(until) => {
                        assert!(waiting.is_none(), "two requests wait: {arrivals:?}");
                        let until = u64::try_from(until.as_nanos()).unwrap();
                        assert!(until > now);
                        waiting = Some(until);
                        begun.push(until);
                    }
                    RateVerdict::Refuse => assert!(waiting.is_some(), "refused without need: {arrivals:?}"),
                }
            }
            begun.sort_unstable();
            for (first, from) in begun.iter().enumerate() {
                for (count, to) in (1..).zip(&begun[first..]) {
                    assert!(count <= 1 + (to - from + JITTER) / DISTANCE, "{begun:?} {arrivals:?}");
                }
            }
        }
        let mut orders = 0;
        for bits in 0..1_u32 << 14 {
            let arrivals: Vec<u64> = (0..14).filter(|bit| bits & (1 << bit) != 0).collect();
            for end_waits in [0, 2, 100] {
                explore(&arrivals, end_waits);
                orders += 1;
            }
        }
        assert_eq!(orders, 3 << 14);
    }
}
