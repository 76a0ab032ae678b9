//! A fair queue: it has a list of items for each owner, and takes one item from each list in turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::server::connection::NO_LIST;

pub(in crate::server) trait QueueItem {
    /// Returns the cell with the number of the owner's list, or [`NO_LIST`] while the owner has no
    /// items. All items of an owner must be in one queue.
    fn owner_list(&self) -> &AtomicU32;
    fn bytes(&self) -> usize;
}

const KEPT_CAPACITY: usize = 16;

#[derive(Debug)]
struct OwnerList<T> {
    items: VecDeque<T>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Measure {
    Items,
    Bytes,
}

impl<T> OwnerList<T> {
    fn size(&self, measure: Measure) -> usize {
        match measure {
            Measure::Items => self.items.len(),
            Measure::Bytes => self.bytes,
        }
    }
}

#[derive(Debug)]
pub(in crate::server) struct FairQueue<T> {
    lists: Vec<OwnerList<T>>,
    free: Vec<u32>,
    /// Numbers of the lists with items, in the order of their turns.
    ring: VecDeque<u32>,
    len: usize,
    bytes: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        FairQueue { lists: Vec::new(), free: Vec::new(), ring: VecDeque::new(), len: 0, bytes: 0 }
    }
}

fn index(owner_list: u32) -> usize {
    usize::try_from(owner_list).unwrap_or(usize::MAX)
}

impl<T: QueueItem> FairQueue<T> {
    pub(in crate::server) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::server) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(in crate::server) fn push(&mut self, item: T) {
        let bytes = item.bytes();
        let mut owner_list = item.owner_list().load(Ordering::Relaxed);
        if owner_list == NO_LIST {
            owner_list = self.free.pop().unwrap_or_else(|| {
                self.lists.push(OwnerList { items: VecDeque::new(), bytes: 0 });
                u32::try_from(self.lists.len() - 1).unwrap_or(NO_LIST - 1)
            });
            item.owner_list().store(owner_list, Ordering::Relaxed);
            self.ring.push_back(owner_list);
        }
        let Some(owner_list) = self.lists.get_mut(index(owner_list)) else { return };
        owner_list.bytes += bytes;
        owner_list.items.push_back(item);
        self.bytes += bytes;
        self.len += 1;
    }

    pub(in crate::server) fn pop(&mut self) -> Option<T> {
        let number = self.ring.pop_front()?;
        let owner_list = self.lists.get_mut(index(number))?;
        let item = owner_list.items.pop_front()?;
        let left = !owner_list.items.is_empty();
        self.record_removal(number, &item);
        if left {
            self.ring.push_back(number);
        }
        Some(item)
    }

    /// Takes the last item of the owner with the largest share by `measure`. Returns `None` unless
    /// this share is larger than the share that `owner` would have with `more` added.
    #[cold]
    pub(in crate::server) fn take_from_largest(
        &mut self,
        owner: &AtomicU32,
        more: usize,
        measure: Measure,
    ) -> Option<T> {
        let size = |owner_list: u32| self.lists.get(index(owner_list)).map_or(0, |owner_list| owner_list.size(measure));
        let own = size(owner.load(Ordering::Relaxed)).saturating_add(more);
        let largest = self
            .ring
            .iter()
            .copied()
            .max_by_key(|&owner_list| size(owner_list))
            .filter(|&owner_list| size(owner_list) > own)?;
        let owner_list = self.lists.get_mut(index(largest))?;
        let item = owner_list.items.pop_back()?;
        if owner_list.items.is_empty() {
            self.ring.retain(|&owner_list| owner_list != largest);
        }
        self.record_removal(largest, &item);
        Some(item)
    }

    fn record_removal(&mut self, number: u32, item: &T) {
        let bytes = item.bytes();
        self.bytes -= bytes;
        self.len -= 1;
        let Some(owner_list) = self.lists.get_mut(index(number)) else { return };
        owner_list.bytes -= bytes;
        if owner_list.items.is_empty() {
            item.owner_list().store(NO_LIST, Ordering::Relaxed);
            self.free.push(number);
            owner_list.items.shrink_to(KEPT_CAPACITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[derive(Debug)]
    struct Owner(char, AtomicU32);

    #[derive(Debug)]
    struct Item(Rc<Owner>, usize);

    impl QueueItem for Item {
        fn owner_list(&self) -> &AtomicU32 {
            &self.0.1
        }

        fn bytes(&self) -> usize {
            self.1
        }
    }

    fn owners<const N: usize>(names: [char; N]) -> [Rc<Owner>; N] {
        names.map(|name| Rc::new(Owner(name, AtomicU32::new(NO_LIST))))
    }

    fn rest(turns: &mut FairQueue<Item>) -> String {
        std::iter::from_fn(|| turns.pop()).map(|item| item.0.0).collect()
    }

    #[test]
    fn owners_take_turns_for_any_number_of_items() {
        let [a, b, c] = owners(['a', 'b', 'c']);
        let mut turns = FairQueue::default();
        for (owner, items) in [(&a, 4), (&b, 2), (&c, 1)] {
            (0..items).for_each(|at| turns.push(Item(Rc::clone(owner), at)));
        }
        assert_eq!((turns.len(), turns.bytes()), (7, 7));
        assert_eq!(rest(&mut turns), "abcabaa");
        assert_eq!((turns.len(), turns.bytes()), (0, 0));
        (0..4).for_each(|at| turns.push(Item(Rc::clone(&a), at)));
        assert_eq!(std::iter::from_fn(|| turns.pop()).map(|item| item.1).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    /// A queue in order of arrival would take all earlier items of the other owners first.
    #[test]
    fn item_waits_for_at_most_one_item_of_each_other_owner() {
        let [good, first, second] = owners(['g', '1', '2']);
        let mut turns = FairQueue::default();
        let flood = |turns: &mut FairQueue<Item>, items| {
            for _ in 0..items {
                turns.push(Item(Rc::clone(&first), 1));
                turns.push(Item(Rc::clone(&second), 1));
            }
        };
        flood(&mut turns, 100);
        for round in 0..50 {
            turns.push(Item(Rc::clone(&good), 1));
            let mut before = String::new();
            loop {
                let item = turns.pop().unwrap();
                if item.0.0 == 'g' {
                    break;
                }
                before.push(item.0.0);
                flood(&mut turns, 2);
            }
            assert!(before.matches('1').count() <= 1 && before.matches('2').count() <= 1, "{round}: {before}");
            flood(&mut turns, round % 3);
        }
    }

    #[test]
    fn item_is_taken_from_the_largest_owner_only_for_a_smaller_one() {
        let [a, b, c] = owners(['a', 'b', 'c']);
        let mut turns = FairQueue::default();
        for (owner, bytes) in [(&a, 1), (&a, 1), (&a, 2), (&b, 50), (&b, 1)] {
            turns.push(Item(Rc::clone(owner), bytes));
        }
        let mut take = |owner: &Owner, more, measure| {
            turns.take_from_largest(&owner.1, more, measure).map(|item| (item.0.0, item.1))
        };
        assert_eq!(take(&c, 1, Measure::Items), Some(('a', 2)));
        // The largest share is two items. With `more`, b would have three items and c two, so no
        // item is taken for them.
        assert_eq!(take(&b, 1, Measure::Items), None);
        assert_eq!(take(&c, 2, Measure::Items), None);
        assert_eq!(take(&c, 10, Measure::Bytes), Some(('b', 1)));
        assert_eq!(take(&c, 10, Measure::Bytes), Some(('b', 50)));
        assert_eq!(take(&c, 10, Measure::Bytes), None);
        assert_eq!((turns.len(), turns.bytes()), (2, 2));
        turns.push(Item(Rc::clone(&b), 1));
        assert_eq!(rest(&mut turns), "aba");
        assert!([a, b, c].iter().all(|owner| owner.1.load(Ordering::Relaxed) == NO_LIST));
    }
}
