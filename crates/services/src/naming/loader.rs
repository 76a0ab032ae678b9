//! The start with many bindings: consecutive bindings of one context are added together.
//!
//! A million bindings have more octets than the caches. The bindings of a large context are
//! therefore collected in parts by the beginning of their hashes. A part fits into the caches while
//! it is sorted and packed into leaves. The leaves use the memory of earlier parts again.

use super::bindings::NameBinding;
use super::state::{BoundTarget, Change, ComponentText as _, ContextId, ReplayError, State};
use super::trie::{PART_COUNT, Trie, part_of};

/// Smallest number of bindings of a context that is loaded in parts.
const MIN_PARTED: usize = 4_096;

/// Size of a chunk in bytes. The C library returns the memory of blocks above 128 KiB to the kernel,
/// which would have to clear it again for the leaves.
const CHUNK_SIZE: usize = 64 << 10;

pub(super) struct Loader {
    state: State,
    context: ContextId,
    /// One run with all bindings of the context, or a run for each of its parts.
    parts: Vec<BindingRun>,
}

impl Loader {
    pub(super) fn new(seed: u64) -> Self {
        Loader { state: State::empty(seed), context: ContextId::ROOT, parts: vec![BindingRun::default()] }
    }

    /// Adds a stored change. A name must not occur twice in a context.
    pub(super) fn replay(&mut self, change: Change) -> Result<(), ReplayError> {
        match change {
            Change::PutBinding { context, name, target } => {
                self.bind(context, name.id_and_kind(), BoundTarget::from(&target))
            }
            other => self.state.replay(other),
        }
    }

    /// Adds a binding. `name` is id and kind, in UTF-8.
    pub(super) fn bind(
        &mut self,
        context: ContextId,
        name: (&[u8], &[u8]),
        target: BoundTarget<'_>,
    ) -> Result<(), ReplayError> {
        if context != self.context {
            self.flush()?;
            self.context = context;
        }
        let hash = self.state.hash(&name);
        if let [whole] = &self.parts[..]
            && whole.places.len() >= MIN_PARTED
        {
            self.parts = whole.split();
        }
        let index = if self.parts.len() == PART_COUNT { part_of(hash) } else { 0 };
        if let Some(part) = self.parts.get_mut(index) {
            part.push(hash, name, target);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<State, ReplayError> {
        self.flush()?;
        Ok(self.state)
    }

    fn flush(&mut self) -> Result<(), ReplayError> {
        if self.parts.iter().all(|part| part.places.is_empty()) {
            return Ok(());
        }
        let parts = std::mem::replace(&mut self.parts, vec![BindingRun::default()]);
        let context = self.state.context_mut(self.context).ok_or(ReplayError)?;
        if context.bindings.len() > 0 {
            for (hash, block) in parts.iter().flat_map(BindingRun::blocks) {
                context.bindings.insert(hash, NameBinding(block).id_and_kind(), block);
            }
            return Ok(());
        }
        // Each part is freed before the next part is packed, so that the leaves use its memory.
        context.bindings = match parts.len() {
            PART_COUNT => Trie::from_parts(parts.into_iter().map(|part| Trie::part(&part.sorted()))),
            _ => parts.first().map(|whole| Trie::from_sorted(&whole.sorted())).unwrap_or_default(),
        };
        Ok(())
    }
}

/// Bindings of one context with their hashes, in the order in which they were added.
#[derive(Default)]
struct BindingRun {
    /// The blocks of the bindings. No block extends over two chunks.
    chunks: Vec<Vec<u8>>,
    places: Vec<Place>,
}

struct Place {
    hash: u64,
    chunk: u32,
    start: u32,
    end: u32,
}

impl BindingRun {
    fn push(&mut self, hash: u64, name: (&[u8], &[u8]), target: BoundTarget<'_>) {
        let size = NameBinding::size(name, target);
        let chunk = self.chunk_for(size);
        let start = chunk.len() as u32;
        NameBinding::write(chunk, name, target);
        let end = chunk.len() as u32;
        self.places.push(Place { hash, chunk: (self.chunks.len() - 1) as u32, start, end });
    }

    /// Returns the last chunk, or a new one if the last has no room for a block of this size.
    /// Chunks are smaller than 2^32 octets, as blocks are.
    fn chunk_for(&mut self, size: usize) -> &mut Vec<u8> {
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < size) {
            self.chunks.push(Vec::with_capacity(size.max(CHUNK_SIZE)));
        }
        let last = self.chunks.len() - 1;
        &mut self.chunks[last]
    }

    fn blocks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.places.iter().map(|place| {
            let chunk = self.chunks.get(place.chunk as usize).map(Vec::as_slice).unwrap_or_default();
            (place.hash, chunk.get(place.start as usize..place.end as usize).unwrap_or_default())
        })
    }

    fn sorted(&self) -> Vec<(u64, &[u8])> {
        let mut blocks: Vec<(u64, &[u8])> = self.blocks().collect();
        // Names are not in the caches, so they are read only if hashes are equal.
        blocks.sort_unstable_by(|(hash, block), (other_hash, other)| {
            hash.cmp(other_hash).then_with(|| NameBinding(block).id_and_kind().cmp(&NameBinding(other).id_and_kind()))
        });
        blocks
    }

    /// Splits the bindings by the beginning of their hashes.
    fn split(&self) -> Vec<BindingRun> {
        let mut parts: Vec<BindingRun> = (0..PART_COUNT).map(|_| BindingRun::default()).collect();
        for (hash, block) in self.blocks() {
            if let Some(part) = parts.get_mut(part_of(hash)) {
                let binding = NameBinding(block);
                part.push(hash, binding.id_and_kind(), binding.target());
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::super::cos_naming::NameComponent;
    use super::super::state::{BatchLimits, BindingTarget, EncodedReference};
    use super::*;

    const CONTEXT: ContextId = ContextId(3);

    fn bind(context: ContextId, number: usize) -> Change {
        let name = NameComponent { id: format!("object{number}"), kind: "o".to_owned() };
        // Some bindings are larger than a chunk.
        let size = if number % 1_000 == 7 { 2 * CHUNK_SIZE } else { number % 400 };
        let reference = EncodedReference::from(vec![number as u8; size]);
        let target = match number % 5 {
            0 => BindingTarget::Context(CONTEXT),
            1 => BindingTarget::ForeignContext(reference),
            _ => BindingTarget::Object(reference),
        };
        Change::PutBinding { context, name, target }
    }

    /// Adds the changes with a loader, and to another state one by one, and compares the contexts.
    fn check(changes: &[Change]) {
        let mut expected = State::empty(5);
        let mut loader = Loader::new(5);
        let contexts = [Change::AddContext(ContextId::ROOT), Change::AddContext(CONTEXT)];
        for change in contexts.iter().chain(changes) {
            expected.replay(change.clone()).unwrap();
            loader.replay(change.clone()).unwrap();
        }
        let loaded = loader.finish().unwrap();
        let limits = BatchLimits { max_bindings: usize::MAX, max_size: usize::MAX };
        for context in [ContextId::ROOT, CONTEXT] {
            let [all, expected_all] = [&loaded, &expected].map(|state| state.list(context, None, limits).unwrap());
            assert_eq!(all.bindings, expected_all.bindings);
            for (name, _) in all.bindings {
                let name = [name];
                assert_eq!(loaded.resolve(context, &name), expected.resolve(context, &name));
            }
        }
    }

    #[test]
    fn loaded_contexts_equal_contexts_that_are_changed_one_by_one() {
        for count in [0, 1, MIN_PARTED, MIN_PARTED + 1, 2 * MIN_PARTED] {
            let many = (0..count).map(|number| bind(ContextId::ROOT, number));
            check(&many.chain((0..10).map(|number| bind(CONTEXT, number))).collect::<Vec<_>>());
        }
    }

    #[test]
    fn bindings_are_added_to_a_context_that_has_some() {
        let several = |context, numbers: std::ops::Range<usize>| numbers.map(move |number| bind(context, number));
        let first = several(ContextId::ROOT, 0..2 * MIN_PARTED);
        let changes = first.chain(several(CONTEXT, 0..5)).chain(several(ContextId::ROOT, 9_000..9_005));
        check(&changes.collect::<Vec<_>>());
    }

    #[test]
    fn binding_of_no_context_is_refused() {
        let mut loader = Loader::new(5);
        loader.replay(bind(ContextId::ROOT, 0)).unwrap();
        assert!(loader.finish().is_err());
    }
}
