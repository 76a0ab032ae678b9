//! The meter of a publication: which events are within the declared rate and size.

use corelane_sched::task::Nanos;

/// A meter of arrivals, the generic cell rate algorithm of ITU-T I.371: a token bucket that keeps
/// one time in place of its level.
///
/// Invariant: in no interval does the meter accept more events than
/// [`max_arrivals`](corelane_sched::analysis::max_arrivals) says for this period and jitter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) struct RateMeter {
    period: Nanos,
    jitter: Nanos,
    /// Maximum size of an event in bytes; `None` without a bound.
    max_bytes: Option<usize>,
    /// The time at which the next event is due.
    due_at: Nanos,
}

impl RateMeter {
    pub(in crate::events) const fn new(period: Nanos, jitter: Nanos, max_bytes: Option<usize>) -> Self {
        Self { period, jitter, max_bytes, due_at: 0 }
    }

    /// Takes an event of `bytes` bytes that arrives at `now`. Returns false if it is more than
    /// declared; such an event leaves the meter as it is.
    pub(in crate::events) fn take(&mut self, bytes: usize, now: Nanos) -> bool {
        let is_small = self.max_bytes.is_none_or(|max| bytes <= max);
        if !is_small || now.saturating_add(self.jitter) < self.due_at {
            return false;
        }
        self.due_at = self.due_at.max(now).saturating_add(self.period);
        true
    }
}

#[cfg(test)]
mod tests {
    use corelane_sched::analysis::max_arrivals;
    use corelane_sched::task::Timing;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_event_is_early_by_the_jitter_at_most() {
        let mut meter = RateMeter::new(50, 10, Some(64));
        assert!(meter.take(64, 1_000) && !meter.take(64, 1_039) && meter.take(64, 1_040));
        // The event at 1,040 was 10 early, so the next one is due at 1,100.
        assert!(!meter.take(64, 1_089) && meter.take(64, 1_090));
        assert!(!meter.take(65, 2_000), "too large");
        assert!(meter.take(64, 2_000), "an event that is refused uses nothing");
    }

    #[test]
    fn times_at_the_end_of_the_range_do_not_wrap() {
        let mut meter = RateMeter::new(Nanos::MAX, Nanos::MAX, None);
        assert!(meter.take(0, 0) && meter.take(0, 1) && meter.take(usize::MAX, Nanos::MAX));
    }

    proptest! {
        #[test]
        fn no_interval_has_more_events_than_the_analysis_supposes(
            period in 1_u64..100,
            jitter in 0_u64..300,
            gaps in prop::collection::vec(0_u64..80, 1..200),
        ) {
            let mut meter = RateMeter::new(period, jitter, None);
            let timing = Timing::new(1, period).with_jitter(jitter);
            let mut now = 1_000;
            let mut taken = Vec::new();
            for gap in gaps {
                now += gap;
                if meter.take(1, now) {
                    taken.push(now);
                }
            }
            for (first, from) in taken.iter().enumerate() {
                for (last, until) in taken.iter().enumerate().skip(first) {
                    let events = (last - first + 1) as u64;
                    prop_assert!(events <= max_arrivals(&timing, until - from + 1), "{from} to {until}");
                }
            }
        }

        #[test]
        fn an_event_in_each_period_is_always_taken(
            period in 1_u64..100,
            jitter in 0_u64..99,
            delays in prop::collection::vec(0_u64..99, 1..100),
        ) {
            let mut meter = RateMeter::new(period, jitter, None);
            let mut before = 0;
            for (number, delay) in (0_u64..).zip(delays) {
                let at = (1_000 + number * period + delay.min(jitter)).max(before);
                before = at;
                prop_assert!(meter.take(1, at), "the event {number} at {at}");
            }
        }
    }
}
