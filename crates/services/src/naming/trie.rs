//! A persistent map whose versions share nodes: a trie over 64-bit hashes. A change copies the path
//! from the root to the item, unless no other version shares it.
//!
//! Items are in the same order, by hash and then by key, in all versions. A [`Cursor`] can continue
//! in a later version: an item that is present all the time is visited once.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// An insertion splits a leaf with more items, unless no bits of the hash are left.
const LEAF_SIZE: usize = 16;
const BITS: u32 = 4;
const WIDTH: usize = 1 << BITS;

pub(super) trait TrieItem: Clone {
    type Key: ?Sized;

    fn compare(&self, key: &Self::Key) -> Ordering;
}

pub(super) struct Trie<T> {
    root: Option<Arc<Node<T>>>,
    len: usize,
}

enum Node<T> {
    /// Sorted by hash and key.
    Leaf(Vec<(u64, Arc<T>)>),
    /// Children are stored inline, so that a search follows one pointer for each level.
    Branch([Option<Arc<Node<T>>>; WIDTH]),
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

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(items) => Node::Leaf(items.clone()),
            Node::Branch(children) => Node::Branch(children.clone()),
        }
    }
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Trie { root: None, len: 0 }
    }
}

/// Returns the index of the child for a hash in a branch at `depth`. Branches near the root use the
/// higher bits, so that children are in the order of hashes.
fn child_index(hash: u64, depth: u32) -> usize {
    let shift = u64::BITS - BITS * (depth + 1);
    (hash >> shift) as usize % WIDTH
}

fn can_split(depth: u32) -> bool {
    BITS * (depth + 1) <= u64::BITS
}

fn search<T: TrieItem>(items: &[(u64, Arc<T>)], hash: u64, key: &T::Key) -> Result<usize, usize> {
    items.binary_search_by(|(other, item)| other.cmp(&hash).then_with(|| item.compare(key)))
}

impl<T: TrieItem> Trie<T> {
    /// Creates a trie of items, which must be sorted by hash and key, without duplicate keys.
    pub(super) fn from_sorted(items: &[(u64, Arc<T>)]) -> Self {
        let root = if items.is_empty() { None } else { Some(Arc::new(build(items, 0))) };
        Trie { root, len: items.len() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, hash: u64, key: &T::Key) -> Option<&T> {
        let mut node = self.root.as_deref()?;
        let mut depth = 0;
        loop {
            match node {
                Node::Leaf(items) => {
                    let index = search(items, hash, key).ok()?;
                    return items.get(index).map(|(_, item)| &**item);
                }
                Node::Branch(children) => node = children.get(child_index(hash, depth))?.as_deref()?,
            }
            depth += 1;
        }
    }

    /// Returns an item for changes. The caller must not change its key.
    pub(super) fn get_mut(&mut self, hash: u64, key: &T::Key) -> Option<&mut T> {
        self.get(hash, key)?;
        let mut node = self.root.as_mut()?;
        let mut depth = 0;
        loop {
            match Arc::make_mut(node) {
                Node::Leaf(items) => {
                    let index = search(items, hash, key).ok()?;
                    return items.get_mut(index).map(|(_, item)| Arc::make_mut(item));
                }
                Node::Branch(children) => node = children.get_mut(child_index(hash, depth))?.as_mut()?,
            }
            depth += 1;
        }
    }

    pub(super) fn insert(&mut self, hash: u64, key: &T::Key, item: T) -> Option<Arc<T>> {
        let item = Arc::new(item);
        let replaced = match &mut self.root {
            None => {
                self.root = Some(Arc::new(Node::Leaf(vec![(hash, item)])));
                None
            }
            Some(root) => insert_into(root, 0, hash, key, item),
        };
        if replaced.is_none() {
            self.len += 1;
        }
        replaced
    }

    pub(super) fn remove(&mut self, hash: u64, key: &T::Key) -> Option<Arc<T>> {
        self.get(hash, key)?;
        let removed = remove_from(&mut self.root, 0, hash, key)?;
        self.len -= 1;
        Some(removed)
    }

    /// Visits the items after `cursor`, or all items, in their order. A break of `visit` ends the
    /// visit.
    pub(super) fn visit_after<'t, B>(
        &'t self,
        cursor: Option<Cursor<'_, T::Key>>,
        mut visit: impl FnMut(u64, &'t T) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match &self.root {
            Some(root) => visit_node(root, 0, cursor, &mut visit),
            None => ControlFlow::Continue(()),
        }
    }
}

/// Inserts an item, and returns the item that it replaces. The bits of the hash bound the depth of
/// the recursion.
fn insert_into<T: TrieItem>(
    node: &mut Arc<Node<T>>,
    depth: u32,
    hash: u64,
    key: &T::Key,
    item: Arc<T>,
) -> Option<Arc<T>> {
    match Arc::make_mut(node) {
        Node::Branch(children) => match children.get_mut(child_index(hash, depth))? {
            Some(child) => insert_into(child, depth + 1, hash, key, item),
            empty => {
                *empty = Some(Arc::new(Node::Leaf(vec![(hash, item)])));
                None
            }
        },
        Node::Leaf(items) => match search(items, hash, key) {
            Ok(index) => items.get_mut(index).map(|(_, old)| std::mem::replace(old, item)),
            Err(index) => {
                items.insert(index, (hash, item));
                if items.len() > LEAF_SIZE && can_split(depth) {
                    let items = std::mem::take(items);
                    *node = Arc::new(split(items, depth));
                }
                None
            }
        },
    }
}

/// Returns a branch with the items of a leaf that is too long. One child may get all items; the
/// next insertion into this child splits it.
fn split<T>(items: Vec<(u64, Arc<T>)>, depth: u32) -> Node<T> {
    let mut leaves: [Vec<(u64, Arc<T>)>; WIDTH] = [const { Vec::new() }; WIDTH];
    for (hash, item) in items {
        if let Some(leaf) = leaves.get_mut(child_index(hash, depth)) {
            leaf.push((hash, item));
        }
    }
    let child = |leaf: Vec<_>| if leaf.is_empty() { None } else { Some(Arc::new(Node::Leaf(leaf))) };
    Node::Branch(leaves.map(child))
}

/// Builds the node at `depth` of sorted items, whose hashes agree in their highest `depth` groups
/// of four bits.
fn build<T>(items: &[(u64, Arc<T>)], depth: u32) -> Node<T> {
    if items.len() <= LEAF_SIZE || !can_split(depth) {
        return Node::Leaf(items.to_vec());
    }
    let mut rest = items;
    Node::Branch(std::array::from_fn(|index| {
        let end = rest.partition_point(|(hash, _)| child_index(*hash, depth) <= index);
        let (child, after) = rest.split_at(end);
        rest = after;
        if child.is_empty() { None } else { Some(Arc::new(build(child, depth + 1))) }
    }))
}

fn remove_from<T: TrieItem>(node: &mut Option<Arc<Node<T>>>, depth: u32, hash: u64, key: &T::Key) -> Option<Arc<T>> {
    let (removed, is_empty) = match Arc::make_mut(node.as_mut()?) {
        Node::Leaf(items) => {
            let index = search(items, hash, key).ok()?;
            let (_, removed) = items.remove(index);
            (removed, items.is_empty())
        }
        Node::Branch(children) => {
            let removed = remove_from(children.get_mut(child_index(hash, depth))?, depth + 1, hash, key)?;
            (removed, children.iter().all(Option::is_none))
        }
    };
    if is_empty {
        *node = None;
    }
    Some(removed)
}

fn visit_node<'t, T: TrieItem, B>(
    node: &'t Node<T>,
    depth: u32,
    cursor: Option<Cursor<'_, T::Key>>,
    visit: &mut impl FnMut(u64, &'t T) -> ControlFlow<B>,
) -> ControlFlow<B> {
    match node {
        Node::Leaf(items) => {
            let start = match cursor {
                None => 0,
                Some(Cursor { hash, key }) => match search(items, hash, key) {
                    Ok(index) => index + 1,
                    Err(index) => index,
                },
            };
            items.iter().skip(start).try_for_each(|(hash, item)| visit(*hash, item))
        }
        Node::Branch(children) => {
            let start = cursor.map_or(0, |cursor| child_index(cursor.hash, depth));
            for (index, child) in children.iter().enumerate().skip(start) {
                if let Some(child) = child {
                    // Later children lie entirely after the cursor.
                    visit_node(child, depth + 1, cursor.filter(|_| index == start), visit)?;
                }
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
                        let removed = trie.remove(hash(key), &key).map(|item| item.1);
                        prop_assert_eq!(removed, map.remove(&(hash(key), key)));
                    }
                    1 => {
                        let changed = trie.get_mut(hash(key), &key).map(|item| item.1 = value);
                        prop_assert_eq!(changed, map.get_mut(&(hash(key), key)).map(|old| *old = value));
                    }
                    _ => {
                        let old = trie.insert(hash(key), &key, Pair(key, value)).map(|item| item.1);
                        prop_assert_eq!(old, map.insert((hash(key), key), value));
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
                let sorted: Vec<_> = expected.iter().map(|pair| (hash(pair.0), Arc::new(pair.clone()))).collect();
                let built = Trie::from_sorted(&sorted);
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
        let root = Arc::as_ptr(trie.root.as_ref().unwrap());
        trie.insert(hash(9000), &9000, Pair(9000, 0));
        assert_eq!(Arc::as_ptr(trie.root.as_ref().unwrap()), root);
        let version = trie.clone();
        trie.insert(hash(9001), &9001, Pair(9001, 0));
        assert_ne!(Arc::as_ptr(trie.root.as_ref().unwrap()), root);
        assert_eq!((version.len(), trie.len()), (1001, 1002));
        for key in 0..1000 {
            trie.remove(hash(3 * key + 2), &key);
        }
        trie.remove(hash(9000), &9000);
        trie.remove(hash(9001), &9001);
        assert!(trie.root.is_none() && trie.len() == 0);
    }

    #[test]
    fn search_of_an_absent_item_copies_nothing() {
        let mut trie = Trie::default();
        trie.insert(1, &1, Pair(1, 1));
        let version = trie.clone();
        assert!(trie.get_mut(2, &2).is_none() && trie.remove(2, &2).is_none());
        assert!(Arc::ptr_eq(trie.root.as_ref().unwrap(), version.root.as_ref().unwrap()));
    }
}
