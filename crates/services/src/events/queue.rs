//! The bounded queue of a consumer, with the sets that wait to be sent.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use corelane_sched::task::Nanos;

use super::counts::DropReason;

/// The reaction to a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverflowPolicy {
    /// The oldest sets are dropped.
    #[default]
    DropOldest,
    /// The new set is dropped.
    DropNewest,
    /// Sets that are not more urgent than the new set make room for it: the least urgent first, and
    /// the oldest first among equally urgent ones. If more urgent sets leave no room, the new set
    /// is dropped. The urgency of a set is the lane of its most urgent event. A channel without
    /// lanes drops the oldest set.
    DropLeastUrgent,
    /// A new set of one event takes the place of the queued set with its type and source, even if
    /// the queue has room. If the set does not fit, the oldest other sets are dropped. Sets of
    /// several events are not replaced.
    KeepLatest,
    /// The new set is dropped, and the consumer is disconnected.
    Disconnect,
}

/// The bounds of a consumer's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum number of sets.
    pub max_delivery_sets: usize,
    /// Maximum size in bytes of all sets together. A set that is larger by itself is dropped.
    pub max_bytes: usize,
}

/// The default limits: 1,024 sets, 4 MiB.
impl Default for QueueLimits {
    fn default() -> Self {
        Self { max_delivery_sets: 1_024, max_bytes: 4 << 20 }
    }
}

pub(super) type LatestKey = (i32, i32);

#[derive(Debug)]
pub(super) struct QueuedSet<S> {
    pub(super) set: S,
    pub(super) bytes: usize,
    pub(super) event_type: i32,
    /// The type and source of the only event; `None` for sets of several events. A queue clears the
    /// key unless its policy is [`OverflowPolicy::KeepLatest`].
    pub(super) key: Option<LatestKey>,
    /// The lane of the most urgent event.
    pub(super) urgency: usize,
    pub(super) expires_at: Nanos,
}

/// The sets that wait for a consumer. Invariants: `bytes` is the sum over all entries. With
/// [`OverflowPolicy::KeepLatest`], `latest[k]` is the number of the only entry with the key `k`,
/// and the entry with the number `n` is `entries[n - first]`; otherwise `latest` is empty.
#[derive(Debug)]
pub(super) struct DeliveryQueue<S> {
    entries: VecDeque<QueuedSet<S>>,
    first: u64,
    latest: HashMap<LatestKey, u64>,
    bytes: usize,
    /// Memory of `displace_less_urgent`: the urgency and position of each set that may be
    /// displaced, and the positions of the displaced sets.
    displaceable: Vec<(usize, Reverse<usize>)>,
    displaced: Vec<usize>,
}

impl<S> Default for DeliveryQueue<S> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            latest: HashMap::new(),
            bytes: 0,
            displaceable: Vec::new(),
            displaced: Vec::new(),
        }
    }
}

impl<S> DeliveryQueue<S> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a set. `dropped` gets the type of each set that is dropped or replaced, and the
    /// reason. Returns false if the policy demands that the consumer be disconnected.
    pub(super) fn push(
        &mut self,
        mut entry: QueuedSet<S>,
        policy: OverflowPolicy,
        limits: &QueueLimits,
        mut dropped: impl FnMut(i32, DropReason),
    ) -> bool {
        if limits.max_delivery_sets == 0 || entry.bytes > limits.max_bytes {
            dropped(entry.event_type, DropReason::QueueFull);
            return policy != OverflowPolicy::Disconnect;
        }
        entry.key = entry.key.filter(|_| policy == OverflowPolicy::KeepLatest);
        if let Some(number) = entry.key.and_then(|key| self.latest.get(&key).copied()) {
            self.replace(number, entry, limits, dropped);
            return true;
        }
        while !self.has_room(entry.bytes, limits) {
            let has_displaced = match policy {
                OverflowPolicy::DropNewest | OverflowPolicy::Disconnect => false,
                OverflowPolicy::DropOldest | OverflowPolicy::KeepLatest => {
                    let oldest = self.pop_entry();
                    oldest.iter().for_each(|oldest| dropped(oldest.event_type, DropReason::QueueFull));
                    oldest.is_some()
                }
                OverflowPolicy::DropLeastUrgent => self.displace_less_urgent(&entry, limits, &mut dropped),
            };
            if !has_displaced {
                dropped(entry.event_type, DropReason::QueueFull);
                return policy != OverflowPolicy::Disconnect;
            }
        }
        self.append(entry);
        true
    }

    /// Removes and returns the first set that has not expired, with the type of its first event.
    /// `dropped` gets the type of each set that has expired.
    pub(super) fn pop(&mut self, now: Nanos, mut dropped: impl FnMut(i32, DropReason)) -> Option<(S, i32)> {
        loop {
            let entry = self.pop_entry()?;
            if entry.expires_at > now {
                return Some((entry.set, entry.event_type));
            }
            dropped(entry.event_type, DropReason::Expired);
        }
    }

    /// Drops the first sets as long as they have expired. Returns true if a set is left; the first
    /// set has then not expired.
    pub(super) fn drop_expired(&mut self, now: Nanos, mut dropped: impl FnMut(i32, DropReason)) -> bool {
        while self.entries.front().is_some_and(|entry| entry.expires_at <= now) {
            if let Some(entry) = self.pop_entry() {
                dropped(entry.event_type, DropReason::Expired);
            }
        }
        !self.entries.is_empty()
    }

    pub(super) fn clear(&mut self, mut dropped: impl FnMut(i32, DropReason)) {
        while let Some(entry) = self.pop_entry() {
            dropped(entry.event_type, DropReason::Disconnected);
        }
    }

    /// Puts a set in the place of the entry with this number, and drops the oldest other sets until
    /// the set fits. If these drops make the new set the oldest, it moves to the end.
    fn replace(
        &mut self,
        mut number: u64,
        new: QueuedSet<S>,
        limits: &QueueLimits,
        mut dropped: impl FnMut(i32, DropReason),
    ) {
        let position = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let Some(entry) = self.entries.get_mut(position) else { return };
        dropped(entry.event_type, DropReason::Replaced);
        self.bytes = self.bytes - entry.bytes + new.bytes;
        *entry = new;
        while self.bytes > limits.max_bytes {
            let is_new = self.first == number;
            let Some(oldest) = self.pop_entry() else { break };
            if is_new {
                number = self.append(oldest);
            } else {
                dropped(oldest.event_type, DropReason::QueueFull);
            }
        }
    }

    fn has_room(&self, bytes: usize, limits: &QueueLimits) -> bool {
        self.len() < limits.max_delivery_sets && self.bytes.saturating_add(bytes) <= limits.max_bytes
    }

    /// Removes sets that are not more urgent than a new set, until it fits: the least urgent first,
    /// and the oldest first among equally urgent ones. Returns false, and removes nothing, if the
    /// more urgent sets leave no room.
    fn displace_less_urgent(
        &mut self,
        new: &QueuedSet<S>,
        limits: &QueueLimits,
        mut dropped: impl FnMut(i32, DropReason),
    ) -> bool {
        let more_urgent = self.entries.iter().filter(|entry| entry.urgency < new.urgency);
        let kept = more_urgent.fold((0, 0), |(sets, bytes), entry| (sets + 1, bytes + entry.bytes));
        if kept.0 >= limits.max_delivery_sets || kept.1 + new.bytes > limits.max_bytes {
            return false;
        }
        let mut sets = (self.len() + 1).saturating_sub(limits.max_delivery_sets);
        let mut bytes = (self.bytes + new.bytes).saturating_sub(limits.max_bytes);
        let (mut freed_sets, mut freed_bytes) = (0, 0);
        // A heap is built in linear time, and often only few sets are taken from it.
        let mut displaceable = std::mem::take(&mut self.displaceable);
        displaceable.clear();
        let entries = self.entries.iter().enumerate();
        let not_more_urgent = entries.filter(|(_, entry)| entry.urgency >= new.urgency);
        displaceable.extend(not_more_urgent.map(|(at, entry)| (entry.urgency, Reverse(at))));
        let mut displaceable = BinaryHeap::from(displaceable);
        self.displaced.clear();
        while freed_sets < sets || freed_bytes < bytes {
            let Some((_, Reverse(at))) = displaceable.pop() else { break };
            freed_sets += 1;
            freed_bytes += self.entries.get(at).map_or(0, |entry| entry.bytes);
            self.displaced.push(at);
        }
        self.displaceable = displaceable.into_vec();
        // A large set that was displaced last may leave room for smaller sets that were displaced
        // before it. Such sets stay.
        sets = freed_sets - sets;
        bytes = freed_bytes - bytes;
        let entries = &self.entries;
        let mut displaced = std::mem::take(&mut self.displaced);
        displaced.reverse();
        displaced.retain(|at| {
            let size = entries.get(*at).map_or(0, |entry| entry.bytes);
            let is_kept = sets > 0 && size <= bytes;
            if is_kept {
                sets -= 1;
                bytes -= size;
            }
            !is_kept
        });
        displaced.sort_unstable();
        let mut next = displaced.iter().copied().peekable();
        let (bytes, mut at) = (&mut self.bytes, 0);
        self.entries.retain(|entry| {
            let is_displaced = next.next_if_eq(&at).is_some();
            at += 1;
            if is_displaced {
                *bytes -= entry.bytes;
                dropped(entry.event_type, DropReason::QueueFull);
            }
            !is_displaced
        });
        self.displaced = displaced;
        true
    }

    fn append(&mut self, entry: QueuedSet<S>) -> u64 {
        let number = self.first + self.entries.len() as u64;
        if let Some(key) = entry.key {
            self.latest.insert(key, number);
        }
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
        number
    }

    fn pop_entry(&mut self) -> Option<QueuedSet<S>> {
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

    const POLICIES: [OverflowPolicy; 5] = [
        OverflowPolicy::DropOldest,
        OverflowPolicy::DropNewest,
        OverflowPolicy::DropLeastUrgent,
        OverflowPolicy::KeepLatest,
        OverflowPolicy::Disconnect,
    ];

    fn queued<S>(set: S, bytes: usize, event_type: i32, urgency: usize) -> QueuedSet<S> {
        QueuedSet { set, bytes, event_type, key: Some((event_type, 1)), urgency, expires_at: Nanos::MAX }
    }

    fn contents<S>(queue: &mut DeliveryQueue<S>) -> Vec<S> {
        std::iter::from_fn(|| queue.pop(0, |_, _| panic!("nothing expires"))).map(|(set, _)| set).collect()
    }

    /// Pushes sets, each given as number, size in bytes, event type and urgency. Returns the
    /// numbers of the sets that are left, the counts of dropped and of replaced sets, and true if
    /// no push demanded a disconnection.
    fn filled(policy: OverflowPolicy, sets: &[(u32, usize, i32, usize)]) -> (Vec<u32>, (u64, u64), bool) {
        let mut queue = DeliveryQueue::default();
        let (mut dropped, mut replaced, mut is_kept) = (0, 0, true);
        let limits = QueueLimits { max_delivery_sets: 3, max_bytes: 100 };
        for (set, bytes, event_type, urgency) in sets {
            is_kept &= queue.push(queued(*set, *bytes, *event_type, *urgency), policy, &limits, |_, reason| {
                *(if reason == DropReason::Replaced { &mut replaced } else { &mut dropped }) += 1;
            });
        }
        (contents(&mut queue), (dropped, replaced), is_kept)
    }

    #[test]
    fn full_queue_drops_as_its_policy_says() {
        let sets = [(1, 10, 16, 0), (2, 10, 17, 0), (3, 10, 16, 0), (4, 10, 18, 0), (5, 10, 19, 0)];
        assert_eq!(filled(OverflowPolicy::DropOldest, &sets), (vec![3, 4, 5], (2, 0), true));
        assert_eq!(filled(OverflowPolicy::DropNewest, &sets), (vec![1, 2, 3], (2, 0), true));
        assert_eq!(filled(OverflowPolicy::DropLeastUrgent, &sets), (vec![3, 4, 5], (2, 0), true));
        assert_eq!(filled(OverflowPolicy::KeepLatest, &sets), (vec![2, 4, 5], (1, 1), true));
        assert_eq!(filled(OverflowPolicy::Disconnect, &sets), (vec![1, 2, 3], (2, 0), false));
        assert_eq!(filled(OverflowPolicy::Disconnect, &sets[..3]), (vec![1, 2, 3], (0, 0), true));
        let large = [(1, 40, 16, 0), (2, 40, 17, 0), (3, 70, 16, 0), (4, 101, 18, 0)];
        assert_eq!(filled(OverflowPolicy::DropOldest, &large), (vec![3], (3, 0), true));
        assert_eq!(filled(OverflowPolicy::DropNewest, &large), (vec![1, 2], (2, 0), true));
        assert_eq!(filled(OverflowPolicy::KeepLatest, &large), (vec![3], (2, 1), true));
        assert_eq!(filled(OverflowPolicy::Disconnect, &[(4, 101, 18, 0)]), (vec![], (1, 0), false));
    }

    #[test]
    fn least_urgent_set_is_dropped_first() {
        let sets = [(1, 10, 16, 1), (2, 10, 16, 2), (3, 10, 16, 2), (4, 10, 16, 0), (5, 10, 16, 3), (6, 10, 16, 1)];
        assert_eq!(filled(OverflowPolicy::DropLeastUrgent, &sets), (vec![1, 4, 6], (3, 0), true));
    }

    #[test]
    fn no_set_is_dropped_in_vain_for_a_more_urgent_one() {
        let policy = OverflowPolicy::DropLeastUrgent;
        // The third set has no room beside the more urgent first set, so the third is dropped and
        // the second stays.
        assert_eq!(filled(policy, &[(1, 80, 16, 0), (2, 10, 16, 2), (3, 30, 16, 1)]), (vec![1, 2], (1, 0), true));
        // The second set must go. It leaves room for the first set, which stays although it is less
        // urgent.
        assert_eq!(filled(policy, &[(1, 10, 16, 2), (2, 80, 16, 1), (3, 40, 16, 0)]), (vec![1, 3], (1, 0), true));
        assert_eq!(filled(policy, &[(1, 10, 16, 2), (2, 80, 16, 1), (3, 95, 16, 0)]), (vec![3], (2, 0), true));
    }

    #[test]
    fn expired_sets_are_dropped_at_their_turn() {
        let mut queue = DeliveryQueue::default();
        for (set, expires_at) in [(1, 10), (2, 30), (3, 20), (4, 40)] {
            let entry = QueuedSet { expires_at, ..queued(set, 1, 16 + set, 0) };
            assert!(queue.push(entry, OverflowPolicy::DropOldest, &QueueLimits::default(), |_, _| panic!("dropped")));
        }
        let mut expired = Vec::new();
        let mut note = |event_type, reason| expired.push((event_type, reason));
        assert!(queue.drop_expired(10, &mut note));
        assert_eq!(queue.pop(20, &mut note), Some((2, 18)));
        assert_eq!(queue.pop(20, &mut note), Some((4, 20)));
        assert_eq!((queue.pop(20, &mut note), queue.bytes()), (None, 0));
        assert_eq!(expired, [(17, DropReason::Expired), (19, DropReason::Expired)]);
    }

    proptest! {
        #[test]
        fn least_urgent_sets_give_way_and_none_in_vain(
            sets in prop::collection::vec((1..70_usize, 0..4_usize), 1..60),
        ) {
            let limits = QueueLimits { max_delivery_sets: 5, max_bytes: 100 };
            let mut queue = DeliveryQueue::default();
            for (number, (bytes, urgency)) in sets.into_iter().enumerate() {
                let before: Vec<_> = queue.entries.iter().map(|it: &QueuedSet<usize>| (it.set, it.bytes, it.urgency)).collect();
                queue.push(queued(number, bytes, 16, urgency), OverflowPolicy::DropLeastUrgent, &limits, |_, _| {});
                let after: Vec<usize> = queue.entries.iter().map(|it| it.set).collect();
                let (mut kept, lost): (Vec<_>, Vec<_>) = before.iter().partition(|it| after.contains(&it.0));
                let fits = |sets: &[(usize, usize, usize)], bytes: usize| {
                    sets.len() < limits.max_delivery_sets && sets.iter().map(|it| it.1).sum::<usize>() + bytes <= limits.max_bytes
                };
                if after.contains(&number) {
                    kept.push((number, bytes, urgency));
                    prop_assert!(lost.iter().all(|it| it.2 >= urgency && !fits(&kept, it.1)), "{before:?} {kept:?}");
                } else {
                    prop_assert!(lost.is_empty());
                    let more_urgent: Vec<_> = before.iter().filter(|it| it.2 < urgency).copied().collect();
                    prop_assert!(!fits(&more_urgent, bytes), "{before:?}");
                }
            }
        }

        #[test]
        fn queue_stays_within_its_bounds_and_counts_each_set_once(
            sets in prop::collection::vec((0..40_usize, 0..4_i32, any::<bool>(), 0..3_usize), 0..200),
            policy in prop::sample::select(POLICIES.to_vec()),
        ) {
            let limits = QueueLimits { max_delivery_sets: 5, max_bytes: 60 };
            let mut queue = DeliveryQueue::default();
            let (mut pushed, mut popped, mut displaced) = (0_u64, 0_u64, 0_u64);
            let mut last_of_type = HashMap::new();
            for (number, (bytes, event_type, is_pop, urgency)) in sets.into_iter().enumerate() {
                queue.push(queued((number, event_type), bytes, event_type, urgency), policy, &limits, |_, _| displaced += 1);
                pushed += 1;
                prop_assert!(queue.len() <= limits.max_delivery_sets && queue.bytes() <= limits.max_bytes);
                if is_pop && let Some(((number, event_type), _)) = queue.pop(0, |_, _| panic!("nothing expires")) {
                    popped += 1;
                    let before = last_of_type.insert(event_type, number);
                    prop_assert!(before.is_none_or(|before| before < number), "sets of one type and source keep their order");
                }
                prop_assert_eq!(pushed, popped + queue.len() as u64 + displaced);
            }
            queue.clear(|_, _| displaced += 1);
            prop_assert_eq!((pushed, queue.bytes(), queue.latest.len()), (popped + displaced, 0, 0));
        }
    }
}
