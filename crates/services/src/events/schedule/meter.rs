//! The meter of a publication: which events are within the declared rate and size, even if the
//! supplier connects again.

use std::collections::BTreeMap;

use corelane_sched::task::Nanos;

use crate::events::header::EventHeader;
use crate::events::queue::LatestKey;

/// A meter of arrivals, the generic cell rate algorithm of ITU-T I.371: a token bucket that keeps
/// one time in place of its level.
///
/// Invariant: in no interval does the meter accept more events than
/// [`max_arrivals`](corelane_sched::analysis::max_arrivals) says for this period and jitter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) struct RateMeter {
    period: Nanos,
    jitter: Nanos,
    max_bytes: Option<usize>,
    due_at: Nanos,
}

impl RateMeter {
    pub(in crate::events) const fn new(period: Nanos, jitter: Nanos, max_bytes: Option<usize>) -> Self {
        Self { period, jitter, max_bytes, due_at: 0 }
    }

    /// Takes an event of `bytes` bytes that arrives at `now`. Returns false if the event is too
    /// large or too early; such an event does not change the meter.
    pub(in crate::events) fn take(&mut self, bytes: usize, now: Nanos) -> bool {
        let is_small = self.max_bytes.is_none_or(|max| bytes <= max);
        if !is_small || now.saturating_add(self.jitter) < self.due_at {
            return false;
        }
        self.due_at = self.due_at.max(now).saturating_add(self.period);
        true
    }
}

/// The meters of publications that have ended. A later publication with the same entry takes one
/// of them over, so a supplier gains no events if it connects again.
///
/// Invariant: the number of an entry's meters, here and in use, is at most the largest number of
/// publications that used the entry at one time.
#[derive(Debug, Default)]
pub(in crate::events) struct DepartedMeters {
    /// By the number of the entry: the type and source of each publication, and the time at which
    /// its next event is due.
    by_entry: BTreeMap<i32, Vec<(LatestKey, Nanos)>>,
}

impl DepartedMeters {
    /// Keeps the meter of a publication that ends at `now`. Forgets the meters of the entry whose
    /// next event is due: a new meter would accept the same events.
    pub(in crate::events) fn keep(&mut self, entry: i32, header: &EventHeader, meter: &RateMeter, now: Nanos) {
        let kept = self.by_entry.entry(entry).or_default();
        kept.push((key(header), meter.due_at));
        kept.retain(|(_, due_at)| *due_at > now);
        if kept.is_empty() {
            self.by_entry.remove(&entry);
        }
    }

    /// Gives the meter of a new publication the state of a kept meter of the entry. A meter of the
    /// same type and source comes first; otherwise the meter whose next event is due last.
    pub(in crate::events) fn resume(&mut self, entry: i32, header: &EventHeader, meter: &mut RateMeter) {
        let Some(kept) = self.by_entry.get_mut(&entry) else { return };
        let own = key(header);
        let found = kept.iter().enumerate().max_by_key(|(_, (key, due_at))| (*key == own, *due_at)).map(|(at, _)| at);
        if let Some(at) = found {
            meter.due_at = kept.swap_remove(at).1;
        }
        if kept.is_empty() {
            self.by_entry.remove(&entry);
        }
    }
}

fn key(header: &EventHeader) -> LatestKey {
    (header.event_type.0, header.source.0)
}

#[cfg(test)]
mod tests {
    use corelane_sched::analysis::max_arrivals;
    use corelane_sched::task::Timing;
    use proptest::prelude::*;

    use super::*;
    use crate::events::header::{EventSource, EventType};

    fn header(source: i32) -> EventHeader {
        EventHeader::new(EventType(16), EventSource(source))
    }

    #[test]
    fn new_meter_goes_on_where_one_of_the_entry_has_ended() {
        let mut departed = DepartedMeters::default();
        let fresh = RateMeter::new(100, 0, None);
        for (source, at) in [(1, 1_000), (2, 1_030), (3, 1_010)] {
            let mut meter = fresh.clone();
            assert!(meter.take(1, at));
            departed.keep(101, &header(source), &meter, at);
        }
        let mut resumed = |entry, source| {
            let mut meter = fresh.clone();
            departed.resume(entry, &header(source), &mut meter);
            meter.due_at
        };
        assert_eq!(resumed(102, 1), 0, "another entry");
        assert_eq!(resumed(101, 1), 1_100, "the same type and source");
        assert_eq!(resumed(101, 4), 1_130, "the last of the others");
        assert_eq!((resumed(101, 4), resumed(101, 4)), (1_110, 0));
    }

    #[test]
    fn meters_whose_next_event_is_due_are_forgotten() {
        let mut departed = DepartedMeters::default();
        for at in (1_000..2_000).step_by(10) {
            let mut meter = RateMeter::new(100, 50, None);
            assert!(meter.take(1, at));
            departed.keep(101, &header(1), &meter, at);
            assert!(departed.by_entry[&101].len() <= 10);
        }
        departed.keep(101, &header(1), &RateMeter::new(100, 0, None), 2_090);
        assert!(departed.by_entry.is_empty());
    }

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
        fn supplier_that_connects_again_has_no_more_events_than_one_that_stays(
            period in 1_u64..100,
            jitter in 0_u64..300,
            steps in prop::collection::vec((0_u64..40, prop::bool::ANY), 1..200),
        ) {
            let mut departed = DepartedMeters::default();
            let mut staying = RateMeter::new(period, jitter, None);
            let mut meter = staying.clone();
            let mut now = 1_000;
            for (gap, connects_again) in steps {
                now += gap;
                if connects_again {
                    departed.keep(101, &header(1), &meter, now);
                    meter = RateMeter::new(period, jitter, None);
                    departed.resume(101, &header(2), &mut meter);
                }
                prop_assert_eq!(meter.take(1, now), staying.take(1, now), "at {}", now);
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
