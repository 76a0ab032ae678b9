//! Binding iterators: the positions of clients in lists of bindings. At a maximum, for a client or
//! in total, a new iterator ends the least recently used iterator.
//!
//! Times are durations since any fixed instant.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::state::{ContextId, ListCursor};

/// The upper 64 bits are a number, the lower 64 bits a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct IteratorId(pub(super) u128);

/// The id of the connection whose request created an iterator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClientId(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IteratorLimits {
    pub(super) max_iterators: usize,
    pub(super) max_per_client: usize,
    pub(super) idle_timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IteratorPosition {
    pub(super) context: ContextId,
    pub(super) cursor: Option<ListCursor>,
}

struct IteratorEntry {
    client: ClientId,
    place: IteratorPosition,
    used: u64,
    used_at: Duration,
}

pub(super) struct Iterators {
    limits: IteratorLimits,
    entries: HashMap<IteratorId, IteratorEntry>,
    by_use: BTreeMap<u64, IteratorId>,
    by_client: HashMap<ClientId, BTreeMap<u64, IteratorId>>,
    next_id: u64,
    next_use: u64,
}

impl Iterators {
    pub(super) fn new(limits: IteratorLimits, first_id: u64) -> Self {
        Iterators {
            limits,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            by_client: HashMap::new(),
            next_id: first_id,
            next_use: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an iterator; at a maximum, the least recently used iterator ends. Returns `None` if a
    /// maximum is 0. `secret` becomes part of the id.
    pub(super) fn open(
        &mut self,
        client: ClientId,
        place: IteratorPosition,
        secret: u64,
        now: Duration,
    ) -> Option<IteratorId> {
        self.expire(now);
        if self.limits.max_iterators == 0 || self.limits.max_per_client == 0 {
            return None;
        }
        while self.by_client.get(&client).is_some_and(|uses| uses.len() >= self.limits.max_per_client) {
            let oldest = self.by_client.get(&client).and_then(|uses| uses.values().next().copied())?;
            self.close(oldest);
        }
        while self.entries.len() >= self.limits.max_iterators {
            let oldest = self.by_use.values().next().copied()?;
            self.close(oldest);
        }
        let id = IteratorId(u128::from(self.next_id) << 64 | u128::from(secret));
        self.next_id = self.next_id.wrapping_add(1);
        self.entries.insert(id, IteratorEntry { client, place, used: 0, used_at: now });
        self.note_use(id, now);
        Some(id)
    }

    /// Returns the position of an iterator; `None` if the iterator has ended. The call counts as a
    /// use of the iterator.
    pub(super) fn position_mut(&mut self, id: IteratorId, now: Duration) -> Option<&mut IteratorPosition> {
        self.expire(now);
        self.note_use(id, now);
        self.entries.get_mut(&id).map(|entry| &mut entry.place)
    }

    pub(super) fn close(&mut self, id: IteratorId) -> bool {
        let Some(entry) = self.entries.remove(&id) else { return false };
        self.forget_use(entry.client, entry.used);
        true
    }

    pub(super) fn expire(&mut self, now: Duration) {
        while let Some(id) = self.by_use.values().next().copied() {
            let is_idle =
                self.entries.get(&id).is_none_or(|entry| now.saturating_sub(entry.used_at) >= self.limits.idle_timeout);
            if !is_idle || !self.close(id) {
                return;
            }
        }
    }

    fn note_use(&mut self, id: IteratorId, now: Duration) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (client, before) = (entry.client, entry.used);
        self.next_use += 1;
        entry.used = self.next_use;
        entry.used_at = now;
        self.forget_use(client, before);
        self.by_use.insert(self.next_use, id);
        self.by_client.entry(client).or_default().insert(self.next_use, id);
    }

    fn forget_use(&mut self, client: ClientId, used: u64) {
        self.by_use.remove(&used);
        if let Some(uses) = self.by_client.get_mut(&client) {
            uses.remove(&used);
            if uses.is_empty() {
                self.by_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: IteratorLimits =
        IteratorLimits { max_iterators: 4, max_per_client: 2, idle_timeout: Duration::from_secs(60) };

    fn place(context: u64) -> IteratorPosition {
        IteratorPosition { context: ContextId(context), cursor: None }
    }

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn least_recently_used_iterator_of_the_client_makes_room() {
        let mut table = Iterators::new(LIMITS, 10);
        let [ann, bob] = [ClientId(1), ClientId(2)];
        let first = table.open(ann, place(1), 7, second(0)).unwrap();
        let other = table.open(bob, place(2), 7, second(1)).unwrap();
        let second_one = table.open(ann, place(3), 7, second(2)).unwrap();
        assert_eq!(table.position_mut(first, second(3)).unwrap().context, ContextId(1));
        let third = table.open(ann, place(4), 7, second(4)).unwrap();
        assert!(table.position_mut(second_one, second(5)).is_none());
        for (id, context) in [(first, 1), (other, 2), (third, 4)] {
            assert_eq!(table.position_mut(id, second(5)), Some(&mut place(context)));
        }
        assert!(table.close(third) && !table.close(third));
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn least_recently_used_iterator_of_all_makes_room() {
        let mut table = Iterators::new(LIMITS, 0);
        let ids: Vec<IteratorId> =
            (0..5).map(|client| table.open(ClientId(client), place(client), 7, second(client)).unwrap()).collect();
        let alive: Vec<bool> = ids.iter().map(|id| table.position_mut(*id, second(9)).is_some()).collect();
        assert_eq!(alive, [false, true, true, true, true]);
        assert_eq!(table.by_client.len(), 4);
    }

    #[test]
    fn idle_iterators_end() {
        let mut table = Iterators::new(LIMITS, 0);
        let ids = [0, 1].map(|client| table.open(ClientId(client), place(client), 7, second(client)).unwrap());
        assert!(table.position_mut(ids[0], second(59)).is_some());
        table.expire(second(61));
        assert_eq!(table.len(), 1);
        assert!(table.position_mut(ids[0], second(118)).is_some());
        assert!(table.position_mut(ids[0], second(178)).is_none());
        assert!(table.by_use.is_empty() && table.by_client.is_empty() && table.len() == 0);
    }

    #[test]
    fn limits_of_zero_allow_no_iterator() {
        for (max_iterators, max_per_client) in [(0, 1), (1, 0)] {
            let mut table = Iterators::new(IteratorLimits { max_iterators, max_per_client, ..LIMITS }, 0);
            assert!(table.open(ClientId(0), place(0), 7, second(0)).is_none());
        }
    }
}
