//! A persistent map whose versions share nodes: a trie over 64-bit hashes. A change copies the path
//! from the root to the item, unless no other version shares it.
//!
//! Items are in the same order, by hash and then by key, in all versions. A [`Cursor`] can continue
//! in a later version: an item that is present all the time is visited once.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Maximum number of items of a leaf whose hashes differ. With this size the leaves of a million
/// items are on one level, so a search reads few cache lines.
pub(super) const LEAF_SIZE: usize = 32;
const BITS: u32 = 4;
const WIDTH: usize = 1 << BITS;

/// The depth of the parts of a trie: the number of levels above them.
const PART_DEPTH: u32 = 2;
/// The number of parts of a trie.
pub(super) const PART_COUNT: usize = WIDTH.pow(PART_DEPTH);

/// Returns the index of the part for this hash.
pub(super) fn part_of(hash: u64) -> usize {
    (hash >> (u64::BITS - PART_DEPTH * BITS)) as usize
}

/// The items of a leaf, sorted by hash and then by key. A clone must be cheap.
pub(super) trait Leaf: Clone {
    type Item: ?Sized;
    type Key<'k>: Copy;

    fn pack(items: &[(u64, &Self::Item)]) -> Self;

    /// Returns true if these items may share a leaf. Other items are split, unless no bits of their
    /// hashes are left.
    fn fits(items: &[(u64, &Self::Item)]) -> bool;

    fn len(&self) -> usize;

    fn hash_at(&self, index: usize) -> Option<u64>;

    fn item_at(&self, index: usize) -> Option<&Self::Item>;

    fn compare(item: &Self::Item, key: Self::Key<'_>) -> Ordering;

    /// Starts to fetch the memory of the items around `index` into the caches.
    fn prefetch(&self, index: usize) {
        let _ = index;
    }
}

/// An item of a leaf of the type `Arc<[(u64, T)]>`. A clone of the item must be cheap.
pub(super) trait TrieItem: Clone {
    type Key: Copy;

    fn compare(&self, key: Self::Key) -> Ordering;
}

impl<T: TrieItem> Leaf for Arc<[(u64, T)]> {
    type Item = T;
    type Key<'k> = T::Key;

    fn pack(items: &[(u64, &T)]) -> Self {
        items.iter().map(|(hash, item)| (*hash, T::clone(item))).collect()
    }

    fn fits(items: &[(u64, &T)]) -> bool {
        items.len() <= LEAF_SIZE
    }

    fn len(&self) -> usize {
        <[(u64, T)]>::len(self)
    }

    fn hash_at(&self, index: usize) -> Option<u64> {
        self.get(index).map(|(hash, _)| *hash)
    }

    fn item_at(&self, index: usize) -> Option<&T> {
        self.get(index).map(|(_, item)| item)
    }

    fn compare(item: &T, key: T::Key) -> Ordering {
        item.compare(key)
    }
}

pub(super) struct Trie<L> {
    root: Child<L>,
    len: usize,
}

/// A part of a trie: the items whose hashes begin with the same bits.
pub(super) struct TriePart<L> {
    child: Child<L>,
    len: usize,
}

enum Child<L> {
    Empty,
    Leaf(L),
    Branch(Arc<[Child<L>; WIDTH]>),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<K> {
    pub(super) hash: u64,
    pub(super) key: K,
}

impl<L: Clone> Clone for Trie<L> {
    fn clone(&self) -> Self {
        Trie { root: self.root.clone(), len: self.len }
    }
}

impl<L: Clone> Clone for Child<L> {
    fn clone(&self) -> Self {
        match self {
            Child::Empty => Child::Empty,
            Child::Leaf(leaf) => Child::Leaf(leaf.clone()),
            Child::Branch(children) => Child::Branch(Arc::clone(children)),
        }
    }
}

impl<L> Default for Trie<L> {
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

/// Returns the index at which a hash is expected in a leaf at `depth` if hashes are spread evenly.
fn expected_index<L: Leaf>(leaf: &L, depth: u32, hash: u64) -> usize {
    let below = hash.checked_shl(BITS * depth).unwrap_or_default();
    ((u128::from(below) * leaf.len() as u128) >> u64::BITS) as usize
}

/// Searches a leaf at `depth`. `Ok` is the index of the item, and `Err` the index at which the item
/// would be. The search begins at the expected index, because each cache line of a large map that a
/// search reads is fetched from memory.
fn search<L: Leaf>(leaf: &L, depth: u32, hash: u64, key: L::Key<'_>) -> Result<usize, usize> {
    let mut at = expected_index(leaf, depth, hash);
    while at > 0 && leaf.hash_at(at - 1).is_some_and(|other| other >= hash) {
        at -= 1;
    }
    while leaf.hash_at(at).is_some_and(|other| other < hash) {
        at += 1;
    }
    while let Some(item) = leaf.item_at(at).filter(|_| leaf.hash_at(at) == Some(hash)) {
        match L::compare(item, key) {
            Ordering::Less => at += 1,
            Ordering::Equal => return Ok(at),
            Ordering::Greater => return Err(at),
        }
    }
    Err(at)
}

impl<L: Leaf> Trie<L> {
    /// Builds a map from items that are sorted by hash and key, and whose keys differ.
    pub(super) fn from_sorted(items: &[(u64, &L::Item)]) -> Self {
        Trie { root: build(items, 0), len: items.len() }
    }

    /// Builds a part from its items, which are sorted by hash and key, and whose keys differ.
    pub(super) fn part(items: &[(u64, &L::Item)]) -> TriePart<L> {
        TriePart { child: build(items, PART_DEPTH), len: items.len() }
    }

    /// Builds a map from its parts, in order.
    pub(super) fn from_parts(mut parts: impl Iterator<Item = TriePart<L>>) -> Self {
        let mut len = 0;
        let mut next = || {
            let Some(part) = parts.next() else { return Child::Empty };
            len += part.len;
            part.child
        };
        let mut branch = |_| Child::Branch(Arc::new(std::array::from_fn(|_| next())));
        let root = Child::Branch(Arc::new(std::array::from_fn(&mut branch)));
        Trie { root, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the item with this key. `hash` is the key's hash.
    pub(super) fn get(&self, hash: u64, key: L::Key<'_>) -> Option<&L::Item> {
        let mut child = &self.root;
        let mut depth = 0;
        loop {
            match child {
                Child::Empty => return None,
                Child::Leaf(leaf) => {
                    leaf.prefetch(expected_index(leaf, depth, hash));
                    return leaf.item_at(search(leaf, depth, hash, key).ok()?);
                }
                Child::Branch(children) => child = children.get(child_index(hash, depth))?,
            }
            depth += 1;
        }
    }

    /// Adds an item, or replaces the item with the same key. `key` is the item's key.
    pub(super) fn insert(&mut self, hash: u64, key: L::Key<'_>, item: &L::Item) {
        if insert_into(&mut self.root, 0, hash, key, item) {
            self.len += 1;
        }
    }

    /// Removes the item with this key. Returns true if there was one.
    pub(super) fn remove(&mut self, hash: u64, key: L::Key<'_>) -> bool {
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
        cursor: Option<Cursor<L::Key<'_>>>,
        mut visit: impl FnMut(u64, &'t L::Item) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        visit_child(&self.root, 0, cursor, &mut visit)
    }
}

impl<T: TrieItem> Trie<Arc<[(u64, T)]>> {
    /// Returns the item with this key, to be modified in place; `None` without such an item. Nodes
    /// on its path that another version of the trie shares are copied first.
    pub(super) fn get_mut(&mut self, hash: u64, key: T::Key) -> Option<&mut T> {
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
}

fn items_of<L: Leaf>(leaf: &L) -> impl Iterator<Item = (u64, &L::Item)> {
    (0..leaf.len()).filter_map(|index| Some((leaf.hash_at(index)?, leaf.item_at(index)?)))
}

/// Adds an item or replaces the item with this key. Returns true if no item had this key.
fn insert_into<L: Leaf>(child: &mut Child<L>, depth: u32, hash: u64, key: L::Key<'_>, item: &L::Item) -> bool {
    match child {
        Child::Empty => {
            *child = Child::Leaf(L::pack(&[(hash, item)]));
            true
        }
        Child::Branch(children) => match Arc::make_mut(children).get_mut(child_index(hash, depth)) {
            Some(child) => insert_into(child, depth + 1, hash, key, item),
            None => false,
        },
        Child::Leaf(leaf) => {
            let found = search(leaf, depth, hash, key);
            let (Ok(index) | Err(index)) = found;
            let mut items = Vec::with_capacity(leaf.len() + 1);
            items.extend(items_of(leaf).take(index));
            items.push((hash, item));
            items.extend(items_of(leaf).skip(index + usize::from(found.is_ok())));
            let changed = build(&items, depth);
            *child = changed;
            found.is_err()
        }
    }
}

fn build<L: Leaf>(items: &[(u64, &L::Item)], depth: u32) -> Child<L> {
    if items.is_empty() {
        return Child::Empty;
    }
    if items.len() == 1 || L::fits(items) || !can_split(depth) {
        return Child::Leaf(L::pack(items));
    }
    let mut rest = items;
    Child::Branch(Arc::new(std::array::from_fn(|index| {
        let end = rest.partition_point(|(hash, _)| child_index(*hash, depth) <= index);
        let (child, after) = rest.split_at(end);
        rest = after;
        build(child, depth + 1)
    })))
}

/// Removes the item with this key. The trie must contain the item: otherwise the nodes on its path
/// would be copied in vain.
fn remove_from<L: Leaf>(child: &mut Child<L>, depth: u32, hash: u64, key: L::Key<'_>) {
    match child {
        Child::Empty => {}
        Child::Leaf(leaf) => {
            let Ok(index) = search(leaf, depth, hash, key) else { return };
            let items: Vec<_> = items_of(leaf).take(index).chain(items_of(leaf).skip(index + 1)).collect();
            let changed = build(&items, depth);
            *child = changed;
        }
        Child::Branch(children) => {
            let children = Arc::make_mut(children);
            if let Some(child) = children.get_mut(child_index(hash, depth)) {
                remove_from(child, depth + 1, hash, key);
            }
            if children.iter().all(|child| matches!(child, Child::Empty)) {
                *child = Child::Empty;
            }
        }
    }
}

fn visit_child<'t, L: Leaf, B>(
    child: &'t Child<L>,
    depth: u32,
    cursor: Option<Cursor<L::Key<'_>>>,
    visit: &mut impl FnMut(u64, &'t L::Item) -> ControlFlow<B>,
) -> ControlFlow<B> {
    match child {
        Child::Empty => ControlFlow::Continue(()),
        Child::Leaf(leaf) => {
            let start = match cursor {
                None => 0,
                Some(Cursor { hash, key }) => match search(leaf, depth, hash, key) {
                    Ok(index) => index + 1,
                    Err(index) => index,
                },
            };
            items_of(leaf).skip(start).try_for_each(|(hash, item)| visit(hash, item))
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
        fn compare(&self, key: u32) -> Ordering {
            self.0.cmp(&key)
        }
    }

    fn hash(key: u32) -> u64 {
        match key % 3 {
            0 => 7,
            1 => u64::from(key % 64),
            _ => u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    type Pairs = Trie<Arc<[(u64, Pair)]>>;

    fn items(trie: &Pairs) -> Vec<Pair> {
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
            let mut trie = Pairs::default();
            let mut map = BTreeMap::new();
            let mut versions = Vec::new();
            for (step, (kind, key, value)) in steps.into_iter().enumerate() {
                match kind {
                    0 => {
                        prop_assert_eq!(trie.remove(hash(key), key), map.remove(&(hash(key), key)).is_some());
                    }
                    1 => {
                        let changed = trie.get_mut(hash(key), key).map(|item| item.1 = value);
                        prop_assert_eq!(changed, map.get_mut(&(hash(key), key)).map(|old| *old = value));
                    }
                    _ => {
                        trie.insert(hash(key), key, &Pair(key, value));
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
                let sorted: Vec<_> = expected.iter().map(|pair| (hash(pair.0), pair)).collect();
                let built = Pairs::from_sorted(&sorted);
                prop_assert_eq!((items(&built), built.len()), (expected.clone(), trie.len()));
                prop_assert!(expected.iter().all(|pair| built.get(hash(pair.0), pair.0) == Some(pair)));
                let part = |index| Pairs::part(sorted.iter().filter(|(hash, _)| part_of(*hash) == index).copied().collect::<Vec<_>>().as_slice());
                let joined = Pairs::from_parts((0..PART_COUNT).map(part));
                prop_assert_eq!((items(&joined), joined.len()), (expected.clone(), trie.len()));
                prop_assert!(expected.iter().all(|pair| joined.get(hash(pair.0), pair.0) == Some(pair)));
                for key in 0..200 {
                    prop_assert_eq!(trie.get(hash(key), key).map(|item| item.1), map.get(&(hash(key), key)).copied());
                    let mut after = Vec::new();
                    let _: ControlFlow<()> = trie.visit_after(Some(Cursor { hash: hash(key), key }), |_, item| {
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
        let mut trie = Pairs::default();
        for key in 0..1000 {
            trie.insert(hash(3 * key + 2), key, &Pair(key, 0));
        }
        let address = |trie: &Pairs| match &trie.root {
            Child::Branch(children) => Arc::as_ptr(children),
            _ => panic!("a thousand items need a branch"),
        };
        let root = address(&trie);
        trie.insert(hash(9000), 9000, &Pair(9000, 0));
        assert_eq!(address(&trie), root);
        let version = trie.clone();
        trie.insert(hash(9001), 9001, &Pair(9001, 0));
        assert_ne!(address(&trie), root);
        assert_eq!((version.len(), trie.len()), (1001, 1002));
        for key in 0..1000 {
            trie.remove(hash(3 * key + 2), key);
        }
        trie.remove(hash(9000), 9000);
        trie.remove(hash(9001), 9001);
        assert!(matches!(trie.root, Child::Empty) && trie.len() == 0);
    }

    #[test]
    fn search_of_an_absent_item_copies_nothing() {
        let mut trie = Pairs::default();
        trie.insert(1, 1, &Pair(1, 1));
        let version = trie.clone();
        assert!(trie.get_mut(2, 2).is_none() && !trie.remove(2, 2));
        let (Child::Leaf(items), Child::Leaf(before)) = (&trie.root, &version.root) else { panic!() };
        assert!(Arc::ptr_eq(items, before));
    }
}
