//! The timeouts of all consumers, in the order of their next expiry.
//!
//! The order is a binary heap. Each timer knows its position in the heap, so that a timer is moved
//! and removed without a search.
//!
//! Invariant: `heap[timers[t].position] == t` for each armed timer `t`.

use corelane_sched::task::Nanos;

use super::designator::TimeoutKind;

/// The consumer's slot and the timeout's node in its filter. If several timers are due at the same
/// time, the timer with the smaller owner expires first.
pub(super) type TimerOwner = (u32, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerKey(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpiredTimer {
    pub(super) key: TimerKey,
    pub(super) owner: TimerOwner,
    pub(super) kind: TimeoutKind,
    pub(super) due_at: Nanos,
    pub(super) missed: u64,
}

/// The `position` of a timer that is not armed: it has expired for good, or never expires.
const UNARMED: usize = usize::MAX;

#[derive(Debug)]
struct Timer {
    owner: TimerOwner,
    kind: TimeoutKind,
    /// The delay until the first expiry, which is also the period of a periodic timer.
    delay: Nanos,
    due_at: Nanos,
    position: usize,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    timers: Vec<Timer>,
    free: Vec<usize>,
    heap: Vec<usize>,
}

impl Timers {
    /// Adds a timer that expires after its delay. If this time is beyond the range of the clock,
    /// the timer never expires.
    pub(super) fn add(&mut self, owner: TimerOwner, kind: TimeoutKind, delay: Nanos, now: Nanos) -> TimerKey {
        let timer = Timer { owner, kind, delay, due_at: now, position: UNARMED };
        let key = if let Some(key) = self.free.pop() {
            self.timers[key] = timer;
            key
        } else {
            self.timers.push(timer);
            self.timers.len() - 1
        };
        self.arm(key, now.checked_add(delay));
        TimerKey(key)
    }

    /// Removes a timer. A later timer may get the key.
    pub(super) fn remove(&mut self, key: TimerKey) {
        self.arm(key.0, None);
        self.free.push(key.0);
    }

    pub(super) fn restart(&mut self, key: TimerKey, now: Nanos) {
        let due_at = now.checked_add(self.timers[key.0].delay);
        self.arm(key.0, due_at);
    }

    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.heap.first().map(|key| self.timers[*key].due_at)
    }

    /// Takes the first timer that is due, if there is one, and returns its expiry. A periodic timer
    /// is armed for its first expiry after `now`, a whole number of periods after the returned
    /// expiry; any other timer is disarmed.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<ExpiredTimer> {
        let key = *self.heap.first()?;
        let Timer { owner, kind, delay, due_at, .. } = self.timers[key];
        let late = now.checked_sub(due_at)?;
        let missed = if kind.is_periodic() { late / delay } else { 0 };
        let next = (late - late % delay.max(1)).checked_add(delay).and_then(|after| due_at.checked_add(after));
        self.arm(key, next.filter(|_| kind.is_periodic()));
        Some(ExpiredTimer { key: TimerKey(key), owner, kind, due_at, missed })
    }

    fn arm(&mut self, key: usize, due_at: Option<Nanos>) {
        let position = self.timers[key].position;
        match (due_at, position) {
            (None, UNARMED) => {}
            (None, position) => {
                self.timers[key].position = UNARMED;
                self.heap.swap_remove(position);
                if let Some(moved) = self.heap.get(position) {
                    self.timers[*moved].position = position;
                    self.settle(position);
                }
            }
            (Some(due_at), UNARMED) => {
                self.timers[key].due_at = due_at;
                self.timers[key].position = self.heap.len();
                self.heap.push(key);
                self.settle(self.heap.len() - 1);
            }
            (Some(due_at), position) => {
                self.timers[key].due_at = due_at;
                self.settle(position);
            }
        }
    }

    fn settle(&mut self, mut position: usize) {
        while position > 0 && self.is_before(position, (position - 1) / 2) {
            self.swap(position, (position - 1) / 2);
            position = (position - 1) / 2;
        }
        loop {
            let left = 2 * position + 1;
            let right = left + 1;
            if left >= self.heap.len() {
                return;
            }
            let first = if right < self.heap.len() && self.is_before(right, left) { right } else { left };
            if !self.is_before(first, position) {
                return;
            }
            self.swap(first, position);
            position = first;
        }
    }

    fn is_before(&self, position: usize, other: usize) -> bool {
        let order = |position: usize| {
            let timer = &self.timers[self.heap[position]];
            (timer.due_at, timer.owner)
        };
        order(position) < order(other)
    }

    fn swap(&mut self, position: usize, other: usize) {
        self.heap.swap(position, other);
        self.timers[self.heap[position]].position = position;
        self.timers[self.heap[other]].position = other;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn expiries(timers: &mut Timers, now: Nanos) -> Vec<(Nanos, u64)> {
        std::iter::from_fn(|| timers.pop_due(now)).map(|timer| (timer.due_at, timer.missed)).collect()
    }

    #[test]
    fn interval_keeps_its_schedule_when_the_caller_is_late() {
        let mut timers = Timers::default();
        timers.add((0, 0), TimeoutKind::Interval, 10, 0);
        assert_eq!(expiries(&mut timers, 9), []);
        assert_eq!(expiries(&mut timers, 13), [(10, 0)]);
        assert_eq!(timers.next_due(), Some(20));
        assert_eq!(expiries(&mut timers, 20), [(20, 0)]);
        assert_eq!(expiries(&mut timers, 1_000_005), [(30, 99_997)]);
        assert_eq!(timers.next_due(), Some(1_000_010));
    }

    #[test]
    fn once_expires_once() {
        let mut timers = Timers::default();
        timers.add((0, 0), TimeoutKind::Once, 0, 5);
        assert_eq!(expiries(&mut timers, 100), [(5, 0)]);
        assert_eq!((expiries(&mut timers, Nanos::MAX), timers.next_due()), (vec![], None));
    }

    #[test]
    fn timers_end_with_the_clock() {
        let mut timers = Timers::default();
        let interval = timers.add((0, 0), TimeoutKind::Interval, 10, Nanos::MAX - 15);
        timers.add((0, 1), TimeoutKind::Once, 16, Nanos::MAX - 15);
        assert_eq!(expiries(&mut timers, Nanos::MAX), [(Nanos::MAX - 5, 0)]);
        timers.restart(interval, Nanos::MAX - 5);
        assert_eq!(timers.next_due(), None);
        timers.restart(interval, 0);
        assert_eq!(timers.next_due(), Some(10));
    }

    proptest! {
        #[test]
        fn heap_agrees_with_a_sorted_map(
            steps in prop::collection::vec((0..5_u8, any::<prop::sample::Index>(), 1..40_u64), 0..200),
        ) {
            let mut timers = Timers::default();
            let mut model: BTreeMap<TimerOwner, (TimerKey, TimeoutKind, Nanos, Option<Nanos>)> = BTreeMap::new();
            let mut now = 0;
            for (number, (step, index, delay)) in steps.into_iter().enumerate() {
                let owner = model.keys().nth(index.index(model.len().max(1))).copied();
                match (step, owner) {
                    (0 | 1, _) => {
                        let owner = (u32::try_from(number % 7).unwrap(), number);
                        let kind = [TimeoutKind::Once, TimeoutKind::Interval][usize::from(step)];
                        model.insert(owner, (timers.add(owner, kind, delay, now), kind, delay, Some(now + delay)));
                    }
                    (2, Some(owner)) => timers.remove(model.remove(&owner).unwrap().0),
                    (3, Some(owner)) => {
                        let entry = model.get_mut(&owner).unwrap();
                        timers.restart(entry.0, now);
                        entry.3 = Some(now + entry.2);
                    }
                    _ => {
                        now += delay;
                        let mut due: Vec<_> = model.iter().filter_map(|(owner, entry)| Some((entry.3?, *owner))).collect();
                        due.retain(|(due, _)| *due <= now);
                        due.sort_unstable();
                        for (due, owner) in due {
                            let expired = timers.pop_due(now).unwrap();
                            prop_assert_eq!((expired.due_at, expired.owner), (due, owner));
                            let entry = model.get_mut(&owner).unwrap();
                            let mut next = due;
                            let mut missed = 0;
                            while next + entry.2 <= now {
                                (next, missed) = (next + entry.2, missed + 1);
                            }
                            let is_periodic = entry.1 == TimeoutKind::Interval;
                            prop_assert_eq!(expired.missed, if is_periodic { missed } else { 0 });
                            entry.3 = is_periodic.then_some(next + entry.2);
                        }
                        prop_assert_eq!(timers.pop_due(now), None);
                    }
                }
                prop_assert_eq!(timers.next_due(), model.values().filter_map(|entry| entry.3).min());
            }
        }
    }
}
