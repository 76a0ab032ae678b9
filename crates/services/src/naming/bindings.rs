//! Bindings as octets, and leaves that hold them one after the other.
//!
//! A search among a million bindings waits for memory at each pointer that it follows and at each
//! page that it touches. So a leaf is one block of memory.

use std::cmp::Ordering;
use std::sync::Arc;

use corelane_sys::memory;

use super::cos_naming::NameComponent;
use super::state::{BoundTarget, ContextId};
use super::trie::{LEAF_SIZE, Leaf};

/// Maximum number of octets of the bindings in a leaf, because a change copies a whole leaf. A
/// larger leaf is split if it has several bindings whose hashes differ.
const MAX_LEAF_OCTETS: usize = 8 << 10;

const OBJECT: u8 = 0;
const CONTEXT: u8 = 1;
const FOREIGN_CONTEXT: u8 = 2;

/// A view of a binding: length of the id as u32, length of the kind as u32, id, kind, a tag, and a
/// context's id or a reference.
#[derive(Clone, Copy)]
pub(super) struct NameBinding<'b>(pub(super) &'b [u8]);

impl<'b> NameBinding<'b> {
    /// Returns the number of octets that [`write`](Self::write) adds.
    pub(super) fn size((id, kind): (&[u8], &[u8]), target: BoundTarget<'_>) -> usize {
        let octets = match target {
            BoundTarget::Object(reference) | BoundTarget::ForeignContext(reference) => reference.len(),
            BoundTarget::Context(ContextId(number)) => size_of_val(&number),
        };
        2 * size_of::<u32>() + id.len() + kind.len() + 1 + octets
    }

    pub(super) fn write(block: &mut Vec<u8>, (id, kind): (&[u8], &[u8]), target: BoundTarget<'_>) {
        let number;
        let (tag, octets) = match target {
            BoundTarget::Object(reference) => (OBJECT, reference),
            BoundTarget::ForeignContext(reference) => (FOREIGN_CONTEXT, reference),
            BoundTarget::Context(context) => {
                number = context.0.to_le_bytes();
                (CONTEXT, &number[..])
            }
        };
        // Names arrive in messages shorter than 2^32 octets.
        let lengths = [id, kind].map(|text| (text.len() as u32).to_le_bytes());
        for part in [&lengths[0], &lengths[1], id, kind, &[tag], octets] {
            block.extend_from_slice(part);
        }
    }

    /// Returns the id, the kind, and the octets from the tag on.
    #[inline]
    fn parts(self) -> (&'b [u8], &'b [u8], &'b [u8]) {
        let length = |octets: &[u8; 4]| u32::from_le_bytes(*octets) as usize;
        let split = || {
            let (id_length, rest) = self.0.split_first_chunk()?;
            let (kind_length, rest) = rest.split_first_chunk()?;
            let (id, rest) = rest.split_at_checked(length(id_length))?;
            let (kind, rest) = rest.split_at_checked(length(kind_length))?;
            Some((id, kind, rest))
        };
        split().unwrap_or_default()
    }

    pub(super) fn id_and_kind(self) -> (&'b [u8], &'b [u8]) {
        let (id, kind, _) = self.parts();
        (id, kind)
    }

    /// Returns the number of octets of id and kind.
    pub(super) fn name_size(self) -> usize {
        let (id, kind) = self.id_and_kind();
        id.len() + kind.len()
    }

    pub(super) fn name(self) -> NameComponent {
        let (id, kind) = self.id_and_kind();
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        NameComponent { id: text(id), kind: text(kind) }
    }

    pub(super) fn target(self) -> BoundTarget<'b> {
        match self.parts().2 {
            [CONTEXT, number @ ..] => {
                BoundTarget::Context(ContextId(number.try_into().map(u64::from_le_bytes).unwrap_or_default()))
            }
            [FOREIGN_CONTEXT, reference @ ..] => BoundTarget::ForeignContext(reference),
            [_, reference @ ..] => BoundTarget::Object(reference),
            [] => BoundTarget::Object(&[]),
        }
    }
}

/// A leaf: for each binding its hash as u64 and the offset of its end as u32, and then the
/// bindings.
#[derive(Clone)]
pub(super) struct NameLeaf {
    octets: Arc<[u8]>,
    /// The number of bindings. It is not among the octets, because a search would wait for it.
    len: usize,
}

const ENTRY_OCTETS: usize = 12;
/// Number of octets that are fetched before and after the expected place of a binding.
const FETCHED_AROUND: usize = 384;

impl NameLeaf {
    #[inline]
    fn entry(&self, index: usize) -> Option<(u64, usize)> {
        if index >= self.len {
            return None;
        }
        let (hash, rest) = self.octets.get(ENTRY_OCTETS * index..)?.split_first_chunk()?;
        Some((u64::from_le_bytes(*hash), u32::from_le_bytes(*rest.first_chunk()?) as usize))
    }
}

impl Leaf for NameLeaf {
    type Item = [u8];
    /// The id and the kind of a name.
    type Key<'k> = (&'k [u8], &'k [u8]);

    fn pack(items: &[(u64, &[u8])]) -> Self {
        let head = ENTRY_OCTETS * items.len();
        let mut octets = Vec::with_capacity(head + items.iter().map(|(_, block)| block.len()).sum::<usize>());
        let mut end = head;
        for (hash, block) in items {
            end += block.len();
            octets.extend_from_slice(&hash.to_le_bytes());
            // The offset fits into a u32: a binding is shorter than a message, and larger leaves
            // are split.
            octets.extend_from_slice(&(end as u32).to_le_bytes());
        }
        for (_, block) in items {
            octets.extend_from_slice(block);
        }
        NameLeaf { octets: octets.into(), len: items.len() }
    }

    fn fits(items: &[(u64, &[u8])]) -> bool {
        items.len() <= LEAF_SIZE && items.iter().map(|(_, block)| block.len()).sum::<usize>() <= MAX_LEAF_OCTETS
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn hash_at(&self, index: usize) -> Option<u64> {
        self.entry(index).map(|(hash, _)| hash)
    }

    #[inline]
    fn item_at(&self, index: usize) -> Option<&[u8]> {
        let (_, end) = self.entry(index)?;
        let start = match index.checked_sub(1) {
            Some(before) => self.entry(before)?.1,
            None => ENTRY_OCTETS * self.len,
        };
        self.octets.get(start..end)
    }

    #[inline]
    fn compare(block: &[u8], key: (&[u8], &[u8])) -> Ordering {
        NameBinding(block).id_and_kind().cmp(&key)
    }

    /// Fetches the entry and the binding at the same time. The place of the binding is guessed, as
    /// if all bindings had the same size.
    #[inline]
    fn prefetch(&self, index: usize) {
        let entry = ENTRY_OCTETS * index;
        let (entries, bindings) = self.octets.split_at(ENTRY_OCTETS * self.len);
        memory::prefetch(entries.get(entry..(entry + 2 * ENTRY_OCTETS).min(entries.len())).unwrap_or_default());
        let place = bindings.len() * (2 * index + 1) / (2 * self.len.max(1));
        let range = place.saturating_sub(FETCHED_AROUND)..(place + FETCHED_AROUND).min(bindings.len());
        memory::prefetch(bindings.get(range).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::super::trie::Trie;
    use super::*;

    fn block(id: &str, target: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        NameBinding::write(&mut block, key(id), BoundTarget::Object(target));
        block
    }

    fn key(id: &str) -> (&[u8], &[u8]) {
        (id.as_bytes(), b"k")
    }

    /// Returns a hash of an id. Some ids have equal hashes.
    fn hash(id: &str) -> u64 {
        let number: u64 = id.parse().unwrap();
        if number.is_multiple_of(5) { 7 } else { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    proptest! {
        #[test]
        fn bindings_of_any_size_are_found(
            steps in prop::collection::vec((0..4u8, 0..120u32, prop_oneof![0..300usize, 4_000..9_000usize]), 0..300)
        ) {
            let mut trie: Trie<NameLeaf> = Trie::default();
            let mut map = BTreeMap::new();
            for (kind, id, size) in steps {
                let id = id.to_string();
                if kind == 0 {
                    let was_bound = map.remove(&(hash(&id), id.clone())).is_some();
                    prop_assert_eq!(trie.remove(hash(&id), key(&id)), was_bound);
                } else {
                    let target = vec![id.len() as u8; size];
                    trie.insert(hash(&id), key(&id), &block(&id, &target));
                    map.insert((hash(&id), id), target);
                }
            }
            prop_assert_eq!(trie.len(), map.len());
            let mut listed = Vec::new();
            let _: ControlFlow<()> = trie.visit_after(None, |hash, block| {
                listed.push((hash, NameBinding(block).name().id));
                ControlFlow::Continue(())
            });
            prop_assert_eq!(listed, map.keys().cloned().collect::<Vec<_>>());
            for ((hash, id), target) in &map {
                let found = trie.get(*hash, key(id)).map(|block| NameBinding(block).target());
                prop_assert_eq!(found, Some(BoundTarget::Object(target)));
            }
            prop_assert!(trie.get(hash("121"), key("121")).is_none() && trie.get(7, key("5a")).is_none());
        }
    }

    #[test]
    fn large_bindings_do_not_share_a_leaf() {
        let large = block("1", &[0; MAX_LEAF_OCTETS]);
        let small = block("2", &[0; 100]);
        assert!(NameLeaf::fits(&[(1, &small), (2, &small)]));
        assert!(!NameLeaf::fits(&[(1, &large), (2, &small)]));
        assert!(!NameLeaf::fits(&vec![(1, &small[..]); LEAF_SIZE + 1]));
    }
}
