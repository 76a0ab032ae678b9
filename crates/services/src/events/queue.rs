//! The bounded queue of a consumer, with the sets that wait to be sent.

use std::collections::{HashMap, VecDeque};

/// The reaction to a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverflowPolicy {
    /// The oldest sets are dropped.
    #[default]
    DropOldest,
    /// The new set is dropped.
    DropNewest,
    /// The queue holds one set of each type and source: a newer set takes the place of the older
    /// one, even if the queue has room. If there are too many types and sources, the oldest sets
    /// are dropped. Sets of several events are never replaced.
    KeepLatest,
}

/// The bounds of a consumer's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum number of sets.
    pub max_sets: usize,
    /// Maximum number of bytes of all sets. A larger set is dropped.
    pub max_bytes: usize,
}

/// The default limits: 1,024 sets, 4 MiB.
impl Default for QueueLimits {
    fn default() -> Self {
        Self { max_sets: 1_024, max_bytes: 4 << 20 }
    }
}

/// Type and source, for [`OverflowPolicy::KeepLatest`].
pub(super) type LatestKey = (i32, i32);

/// The sets that a push has displaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Displaced {
    /// Number of sets that were dropped because the queue is full.
    pub(super) dropped: u64,
    /// Number of sets in whose place a newer set is.
    pub(super) replaced: u64,
}

#[derive(Debug)]
struct Entry<S> {
    set: S,
    bytes: usize,
    key: Option<LatestKey>,
}

/// Invariants: `bytes` is the sum over all entries; `latest[k]` is the number of the only entry
/// with the key `k`. The entry with the number `n` is `entries[n - first]`.
#[derive(Debug)]
pub(super) struct DeliveryQueue<S> {
    entries: VecDeque<Entry<S>>,
    /// The number of the first entry.
    first: u64,
    latest: HashMap<LatestKey, u64>,
    bytes: usize,
}

impl<S> Default for DeliveryQueue<S> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), first: 0, latest: HashMap::new(), bytes: 0 }
    }
}

impl<S> DeliveryQueue<S> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of bytes of all sets.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a set of this number of bytes.
    pub(super) fn push(
        &mut self,
        set: S,
        bytes: usize,
        key: Option<LatestKey>,
        policy: OverflowPolicy,
        limits: &QueueLimits,
    ) -> Displaced {
        let mut displaced = Displaced::default();
        if limits.max_sets == 0 || bytes > limits.max_bytes {
            displaced.dropped = 1;
            return displaced;
        }
        let key = key.filter(|_| policy == OverflowPolicy::KeepLatest);
        if let Some(number) = key.and_then(|key| self.latest.get(&key).copied()) {
            displaced.replaced = 1;
            displaced.dropped = self.replace(number, set, bytes, limits);
            return displaced;
        }
        let has_room = |queue: &Self| queue.len() < limits.max_sets && queue.bytes + bytes <= limits.max_bytes;
        if policy == OverflowPolicy::DropNewest && !has_room(self) {
            displaced.dropped = 1;
            return displaced;
        }
        while !has_room(self) && self.pop().is_some() {
            displaced.dropped += 1;
        }
        self.append(Entry { set, bytes, key });
        displaced
    }

    /// Removes and returns the first set.
    pub(super) fn pop(&mut self) -> Option<S> {
        self.pop_entry().map(|entry| entry.set)
    }

    /// Drops all sets, and returns their number.
    pub(super) fn clear(&mut self) -> u64 {
        let mut dropped = 0;
        while self.pop().is_some() {
            dropped += 1;
        }
        dropped
    }

    /// Puts a set in the place of the entry with this number, and drops the oldest other sets until
    /// the set fits. Returns the number of dropped sets.
    fn replace(&mut self, mut number: u64, set: S, bytes: usize, limits: &QueueLimits) -> u64 {
        let position = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let Some(entry) = self.entries.get_mut(position) else { return 0 };
        self.bytes = self.bytes - entry.bytes + bytes;
        entry.set = set;
        entry.bytes = bytes;
        let mut dropped = 0;
        while self.bytes > limits.max_bytes {
            let is_new = self.first == number;
            let Some(oldest) = self.pop_entry() else { break };
            if is_new {
                number = self.append(oldest);
            } else {
                dropped += 1;
            }
        }
        dropped
    }

    fn append(&mut self, entry: Entry<S>) -> u64 {
        let number = self.first + self.entries.len() as u64;
        if let Some(key) = entry.key {
            self.latest.insert(key, number);
        }
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
        number
    }

    fn pop_entry(&mut self) -> Option<Entry<S>> {
        let entry = self.entries.pop_front()?;
        self.first += 1;
        self.bytes -= entry.bytes;
        if let Some(key) = entry.key {
            self.latest.remove(&key);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(queue: &mut DeliveryQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    fn filled(policy: OverflowPolicy, sets: &[(u32, usize, i32)]) -> (Vec<u32>, Displaced) {
        let mut queue = DeliveryQueue::default();
        let mut sum = Displaced::default();
        let limits = QueueLimits { max_sets: 3, max_bytes: 100 };
        for (set, bytes, event_type) in sets {
            let displaced = queue.push(*set, *bytes, Some((*event_type, 1)), policy, &limits);
            sum.dropped += displaced.dropped;
            sum.replaced += displaced.replaced;
        }
        (contents(&mut queue), sum)
    }

    #[test]
    fn full_queue_drops_as_its_policy_says() {
        let sets = [(1, 10, 16), (2, 10, 17), (3, 10, 16), (4, 10, 18), (5, 10, 19)];
        let displaced = |dropped, replaced| Displaced { dropped, replaced };
        assert_eq!(filled(OverflowPolicy::DropOldest, &sets), (vec![3, 4, 5], displaced(2, 0)));
        assert_eq!(filled(OverflowPolicy::DropNewest, &sets), (vec![1, 2, 3], displaced(2, 0)));
        assert_eq!(filled(OverflowPolicy::KeepLatest, &sets), (vec![2, 4, 5], displaced(1, 1)));
        let large = [(1, 40, 16), (2, 40, 17), (3, 70, 16), (4, 101, 18)];
        assert_eq!(filled(OverflowPolicy::DropOldest, &large), (vec![3], displaced(3, 0)));
        assert_eq!(filled(OverflowPolicy::DropNewest, &large), (vec![1, 2], displaced(2, 0)));
        assert_eq!(filled(OverflowPolicy::KeepLatest, &large), (vec![3], displaced(2, 1)));
    }

    proptest! {
        #[test]
        fn queue_stays_within_its_bounds_and_counts_each_set_once(
            sets in prop::collection::vec((0..40_usize, 0..4_i32, any::<bool>()), 0..200),
            policy in prop::sample::select(vec![OverflowPolicy::DropOldest, OverflowPolicy::DropNewest, OverflowPolicy::KeepLatest]),
        ) {
            let limits = QueueLimits { max_sets: 5, max_bytes: 60 };
            let mut queue = DeliveryQueue::default();
            let (mut pushed, mut popped, mut displaced) = (0_u64, 0_u64, 0_u64);
            let mut last_of_type = HashMap::new();
            for (number, (bytes, event_type, is_pop)) in sets.into_iter().enumerate() {
                let step = queue.push((number, event_type), bytes, Some((event_type, 0)), policy, &limits);
                pushed += 1;
                displaced += step.dropped + step.replaced;
                prop_assert!(queue.len() <= limits.max_sets && queue.bytes() <= limits.max_bytes);
                if is_pop && let Some((number, event_type)) = queue.pop() {
                    popped += 1;
                    let before = last_of_type.insert(event_type, number);
                    prop_assert!(before.is_none_or(|before| before < number), "sets of one type and source keep their order");
                }
                prop_assert_eq!(pushed, popped + queue.len() as u64 + displaced);
            }
            displaced += queue.clear();
            prop_assert_eq!((pushed, queue.bytes(), queue.latest.len()), (popped + displaced, 0, 0));
        }
    }
}
