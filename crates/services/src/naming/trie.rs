//! A persistent map whose versions share nodes: a trie over 64-bit hashes. A change copies the path
//! from the root to the item, unless no other version shares it.
//!
//! Items are in the same order, by hash and then by key, in all versions. A [`Cursor`] can continue
//! in a later version: an item that is present all the time is visited once.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Maximum number of items of a leaf. A larger leaf is split, unless no bits of the hash are left. With this size a
/// million items have leaves on one level, so a search reads few cache lines.
const LEAF_SIZE: usize = 32;
const BITS: u32 = 4;
const WIDTH: usize = 1 << BITS;

/// An item. A clone must be cheap.
pub(super) trait TrieItem: Clone {
    type Key: ?Sized;

    fn compare(&self, key: &Self::Key) -> Ordering;
}

pub(super) struct Trie<T> {
    root: Child<T>,
    len: usize,
}

enum Child<T> {
    Empty,
    /// Sorted by hash and key.
    Leaf(Arc<[(u64, T)]>),
    Branch(Arc<[Child<T>; WIDTH]>),
}

#[derive(Debug)]
pub(super) struct Cursor<'k, K: ?Sized> {
    pub(super) hash: u64,
    pub(super) key: &'k K,
}

impl<K: ?Sized> Clone for Cursor<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized> Copy for Cursor<'_, K> {}

impl<T> Clone for Trie<T> {
    fn clone(&self) -> Self {
        Trie { root: self.root.clone(), len: self.len }
    }
}

impl<T> Clone for Child<T> {
    fn clone(&self) -> Self {
        match self {
            Child::Empty => Child::Empty,
            Child::Leaf(items) => Child::Leaf(Arc::clone(items)),
            Child::Branch(children) => Child::Branch(Arc::clone(children)),
        }
    }
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Trie { root: Child::Empty, len: 0 }
    }
}

fn child_index(hash: u64, depth: u32) -> usize {
    let shift = u64::BITS - BITS * (depth + 1);
    (hash >> shift) as usize % WIDTH
}

fn can_split(depth: u32) -> bool {
    BITS * (depth + 1) <= u64::BITS
}

/// Searches a leaf at `depth`. Returns the index of the item or, as an error, the index where it
/// would be. Hashes are spread evenly, so the search begins at the expected index: in a large map
/// each cache line that it reads costs the time to fetch it from memory.
fn search<T: TrieItem>(items: &[(u64, T)], depth: u32, hash: u64, key: &T::Key) -> Result<usize, usize> {
    let below = hash.checked_shl(BITS * depth).unwrap_or_default();
    let expected = ((u128::from(below) * items.len() as u128) >> u64::BITS) as usize;
    let (before, after) = items.split_at(expected);
    let mut at = match before.iter().rev().take_while(|(other, _)| *other >= hash).count() {
        0 => expected + after.iter().take_while(|(other, _)| *other < hash).count(),
        beyond => expected - beyond,
    };
    let is_less = |(other, item): &&(u64, T)| *other == hash && item.compare(key).is_lt();
    at += items.iter().skip(at).take_while(is_less).count();
    let is_found = items.get(at).is_some_and(|(other, item)| *other == hash && item.compare(key).is_eq());
    if is_found { Ok(at) } else { Err(at) }
}

impl<T: TrieItem> Trie<T> {
    /// Builds a map from items that are sorted by hash and key, and whose keys differ.
    pub(super) fn from_sorted<U>(items: &[(u64, U)], mut make: impl FnMut(&U) -> T) -> Self {
        Trie { root: build(items, 0, &mut make), len: items.len() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the item with this key. `hash` is the key's hash, here and below.
    pub(super) fn get(&self, hash: u64, key: &T::Key) -> Option<&T> {
        let mut child = &self.root;
        let mut depth = 0;
        loop {
            match child {
                Child::Empty => return None,
                Child::Leaf(items) => {
                    let index = search(items, depth, hash, key).ok()?;
                    return items.get(index).map(|(_, item)| item);
                }
                Child::Branch(children) => child = children.get(child_index(hash, depth))?,
            }
            depth += 1;
        }
    }

    /// Returns the item for a change.
    pub(super) fn get_mut(&mut self, hash: u64, key: &T::Key) -> Option<&mut T> {
        self.get(hash, key)?;
        let mut child = &mut self.root;
        let mut depth = 0;
        loop {
            match child {
                Child::Empty => return None,
                Child::Leaf(items) => {
                    let index = search(items, depth, hash, key).ok()?;
                    return Arc::make_mut(items).get_mut(index).map(|(_, item)| item);
                }
                Child::Branch(children) => {
                    child = Arc::make_mut(children).get_mut(child_index(hash, depth))?;
                }
            }
            depth += 1;
        }
    }

    /// Adds an item, or replaces the item with the same key. `key` is the item's key.
    pub(super) fn insert(&mut self, hash: u64, key: &T::Key, item: T) {
        if insert_into(&mut self.root, 0, hash, key, item) {
            self.len += 1;
        }
    }

    /// Returns true if there was an item with this key.
    pub(super) fn remove(&mut self, hash: u64, key: &T::Key) -> bool {
        if self.get(hash, key).is_none() {
            return false;
        }
        remove_from(&mut self.root, 0, hash, key);
        self.len -= 1;
        true
    }

    /// Visits the items after `cursor`, or all items, in order, until `visit` breaks.
    pub(super) fn visit_after<'t, B>(
        &'t self,
        cursor: Option<Cursor<'_, T::Key>>,
        mut visit: impl FnMut(u64, &'t T) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        visit_child(&self.root, 0, cursor, &mut visit)
    }
}

/// Returns true if no item had this key.
fn insert_into<T: TrieItem>(child: &mut Child<T>, depth: u32, hash: u64, key: &T::Key, item: T) -> bool {
    match child {
        Child::Empty => {
            *child = Child::Leaf(Arc::from([(hash, item)]));
            true
        }
        Child::Branch(children) => match Arc::make_mut(children).get_mut(child_index(hash, depth)) {
            Some(child) => insert_into(child, depth + 1, hash, key, item),
            None => false,
        },
        Child::Leaf(items) => match search(items, depth, hash, key) {
            Ok(index) => {
                if let Some((_, old)) = Arc::make_mut(items).get_mut(index) {
                    *old = item;
                }
                false
            }
            Err(index) => {
                let (before, after) = items.split_at(index);
                let mut larger = Vec::with_capacity(items.len() + 1);
                larger.extend_from_slice(before);
                larger.push((hash, item));
                larger.extend_from_slice(after);
                *child = build(&larger, depth, &mut T::clone);
                true
            }
        },
    }
}

/// Makes the items of a leaf and the leaf one after the other, so that they are neighbours in memory.
fn build<T: TrieItem, U>(items: &[(u64, U)], depth: u32, make: &mut impl FnMut(&U) -> T) -> Child<T> {
    if items.is_empty() {
        return Child::Empty;
    }
    if items.len() <= LEAF_SIZE || !can_split(depth) {
        return Child::Leaf(items.iter().map(|(hash, item)| (*hash, make(item))).collect());
    }
    let mut rest = items;
    Child::Branch(Arc::new(std::array::from_fn(|index| {
        let end = rest.partition_point(|(hash, _)| child_index(*hash, depth) <= index);
        let (child, after) = rest.split_at(end);
        rest = after;
        build(child, depth + 1, make)
    })))
}

/// Removes an item that is present.
fn remove_from<T: TrieItem>(child: &mut Child<T>, depth: u32, hash: u64, key: &T::Key) {
    let is_empty = match child {
        Child::Empty => true,
        Child::Leaf(items) => {
            let Ok(index) = search(items, depth, hash, key) else { return };
            let (before, rest) = items.split_at(index);
            *items = before.iter().chain(rest.iter().skip(1)).cloned().collect();
            items.is_empty()
        }
        Child::Branch(children) => {
            let children = Arc::make_mut(children);
            if let Some(child) = children.get_mut(child_index(hash, depth)) {
                remove_from(child, depth + 1, hash, key);
            }
            children.iter().all(|child| matches!(child, Child::Empty))
        }
    };
    if is_empty {
        *child = Child::Empty;
    }
}

fn visit_child<'t, T: TrieItem, B>(
    child: &'t Child<T>,
    depth: u32,
    cursor: Option<Cursor<'_, T::Key>>,
    visit: &mut impl FnMut(u64, &'t T) -> ControlFlow<B>,
) -> ControlFlow<B> {
    match child {
        Child::Empty => ControlFlow::Continue(()),
        Child::Leaf(items) => {
            let start = match cursor {
                None => 0,
                Some(Cursor { hash, key }) => match search(items, depth, hash, key) {
                    Ok(index) => index + 1,
                    Err(index) => index,
                },
            };
            items.iter().skip(start).try_for_each(|(hash, item)| visit(*hash, item))
        }
        Child::Branch(children) => {
            let start = cursor.map_or(0, |cursor| child_index(cursor.hash, depth));
            for (index, child) in children.iter().enumerate().skip(start) {
                // Later children lie entirely after the cursor.
                visit_child(child, depth + 1, cursor.filter(|_| index == start), visit)?;
            }
            ControlFlow::Continue(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Pair(u32, u32);

    impl TrieItem for Pair {
        type Key = u32;
        fn compare(&self, key: &u32) -> Ordering {
            self.0.cmp(key)
        }
    }

    fn hash(key: u32) -> u64 {
        match key % 3 {
            0 => 7,
            1 => u64::from(key % 64),
            _ => u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    fn items(trie: &Trie<Pair>) -> Vec<Pair> {
        let mut found = Vec::new();
        let end: ControlFlow<()> = trie.visit_after(None, |_, item| {
            found.push(item.clone());
            ControlFlow::Continue(())
        });
        assert!(end.is_continue());
        found
    }

    proptest! {
        #[test]
        fn versions_behave_as_maps(steps in prop::collection::vec((0..3u8, 0..200u32, any::<u32>()), 0..600)) {
            let mut trie: Trie<Pair> = Trie::default();
            let mut map = BTreeMap::new();
            let mut versions = Vec::new();
            for (step, (kind, key, value)) in steps.into_iter().enumerate() {
                match kind {
                    0 => {
                        prop_assert_eq!(trie.remove(hash(key), &key), map.remove(&(hash(key), key)).is_some());
                    }
                    1 => {
                        let changed = trie.get_mut(hash(key), &key).map(|item| item.1 = value);
                        prop_assert_eq!(changed, map.get_mut(&(hash(key), key)).map(|old| *old = value));
                    }
                    _ => {
                        trie.insert(hash(key), &key, Pair(key, value));
                        map.insert((hash(key), key), value);
                        prop_assert_eq!(trie.len(), map.len());
                    }
                }
                if step % 50 == 0 {
                    versions.push((trie.clone(), map.clone()));
                }
            }
            versions.push((trie, map));
            for (trie, map) in versions {
                prop_assert_eq!(trie.len(), map.len());
                let expected: Vec<Pair> = map.iter().map(|((_, key), value)| Pair(*key, *value)).collect();
                prop_assert_eq!(items(&trie), expected.clone());
                let sorted: Vec<_> = expected.iter().map(|pair| (hash(pair.0), pair.clone())).collect();
                let built = Trie::from_sorted(&sorted, Pair::clone);
                prop_assert_eq!((items(&built), built.len()), (expected.clone(), trie.len()));
                prop_assert!(expected.iter().all(|pair| built.get(hash(pair.0), &pair.0) == Some(pair)));
                for key in 0..200 {
                    prop_assert_eq!(trie.get(hash(key), &key).map(|item| item.1), map.get(&(hash(key), key)).copied());
                    let mut after = Vec::new();
                    let _: ControlFlow<()> = trie.visit_after(Some(Cursor { hash: hash(key), key: &key }), |_, item| {
                        after.push(item.clone());
                        ControlFlow::Continue(())
                    });
                    let rest = map.range((hash(key), key + 1)..).map(|((_, key), value)| Pair(*key, *value));
                    prop_assert_eq!(after, rest.collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn unshared_paths_are_changed_in_place() {
        let mut trie = Trie::default();
        for key in 0..1000 {
            trie.insert(hash(3 * key + 2), &key, Pair(key, 0));
        }
        let address = |trie: &Trie<Pair>| match &trie.root {
            Child::Branch(children) => Arc::as_ptr(children),
            _ => panic!("a thousand items need a branch"),
        };
        let root = address(&trie);
        trie.insert(hash(9000), &9000, Pair(9000, 0));
        assert_eq!(address(&trie), root);
        let version = trie.clone();
        trie.insert(hash(9001), &9001, Pair(9001, 0));
        assert_ne!(address(&trie), root);
        assert_eq!((version.len(), trie.len()), (1001, 1002));
        for key in 0..1000 {
            trie.remove(hash(3 * key + 2), &key);
        }
        trie.remove(hash(9000), &9000);
        trie.remove(hash(9001), &9001);
        assert!(matches!(trie.root, Child::Empty) && trie.len() == 0);
    }

    #[test]
    fn search_of_an_absent_item_copies_nothing() {
        let mut trie = Trie::default();
        trie.insert(1, &1, Pair(1, 1));
        let version = trie.clone();
        assert!(trie.get_mut(2, &2).is_none() && !trie.remove(2, &2));
        let (Child::Leaf(items), Child::Leaf(before)) = (&trie.root, &version.root) else { panic!() };
        assert!(Arc::ptr_eq(items, before));
    }
}
