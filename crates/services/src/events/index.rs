//! The index that finds the consumers of an event by its type and source.
//!
//! Invariant: the lists that [`Index::candidates`] visits for an event contain each consumer whose
//! filter accepts the event. They may contain further consumers, and may contain a consumer more
//! than once.

use std::collections::HashMap;

use super::filter::{EventFilter, NodeKind};
use super::header::EventHeader;

/// A pair of type and source that a filter may accept. A type of 0 means every type, and a source
/// of 0 means every source.
type Key = (i32, i32);

const EVERYTHING: Key = (0, 0);

/// A list of the index: the consumers whose filters have a key of the form that the variant names.
/// There are separate lists for events with the type 0 or the source 0, which are wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ListName {
    Exact(i32, i32),
    Type(i32),
    Source(i32),
    /// The key of all events.
    Everything,
    /// Keys with this type and a source other than 0, for events with the source 0.
    ExactOfType(i32),
    /// Keys with this source and a type other than 0, for events with the type 0.
    ExactOfSource(i32),
    /// Keys with a type other than 0 and every source, for events with the type 0.
    AllTypes,
    /// Keys with a source other than 0 and every type, for events with the source 0.
    AllSources,
    /// All keys, for events with the type 0 and the source 0.
    All,
}

/// Number of entries in the cache of candidates. A power of two.
const KEPT_KINDS: usize = 64;
/// Maximum number of consumers in one entry of the cache. Longer lists of candidates are not kept.
const MAX_KEPT_CONSUMERS: usize = 8;

/// The candidates for one type and source, from the latest search.
#[derive(Clone, Debug, Default)]
struct KeptCandidates {
    version: u64,
    key: Key,
    /// The number of consumers; `None` if there are more than [`MAX_KEPT_CONSUMERS`].
    count: Option<usize>,
    consumers: [u32; MAX_KEPT_CONSUMERS],
}

#[derive(Debug, Default)]
pub(super) struct Index {
    /// The consumers of each list. Empty lists are removed.
    lists: HashMap<ListName, Vec<u32>>,
    // The numbers of lists with the names `Type`, `Source` and `Everything`. A search for an event
    // without wildcards skips a form that has no list.
    types: usize,
    sources: usize,
    everything: usize,
    version: u64,
    /// The cache of the latest candidates, empty before the first search. Types and sources that
    /// share an entry displace each other.
    kept: Box<[KeptCandidates]>,
}

impl Index {
    pub(super) fn add(&mut self, lists: &[ListName], consumer: u32) {
        self.version += 1;
        for name in lists {
            let list = self.lists.entry(*name).or_default();
            let is_new = list.is_empty();
            list.push(consumer);
            if let Some(count) = self.count(*name).filter(|_| is_new) {
                *count += 1;
            }
        }
    }

    /// Returns the counter of the lists whose names have the form of `name`; `None` if that form is
    /// not counted.
    fn count(&mut self, name: ListName) -> Option<&mut usize> {
        match name {
            ListName::Type(_) => Some(&mut self.types),
            ListName::Source(_) => Some(&mut self.sources),
            ListName::Everything => Some(&mut self.everything),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, lists: &[ListName], consumer: u32) {
        self.version += 1;
        for name in lists {
            let Some(list) = self.lists.get_mut(name) else { continue };
            list.retain(|entry| *entry != consumer);
            if list.is_empty() {
                self.lists.remove(name);
                if let Some(count) = self.count(*name) {
                    *count -= 1;
                }
            }
        }
    }

    /// Returns the consumers that may accept an event with this header, each once; `None` if there
    /// are more than [`MAX_KEPT_CONSUMERS`].
    pub(super) fn few_candidates(&mut self, header: &EventHeader) -> Option<&[u32]> {
        let key = (header.event_type.0, header.source.0);
        let mixed = (key.0 ^ key.1.rotate_left(16)).cast_unsigned().wrapping_mul(0x9e37_79b9);
        let at = (mixed >> (u32::BITS - KEPT_KINDS.ilog2())) as usize;
        let is_kept = self.kept.get(at).is_some_and(|kept| kept.version == self.version && kept.key == key);
        if !is_kept {
            self.keep(at, header, key);
        }
        let kept = self.kept.get(at)?;
        kept.consumers.get(..kept.count?)
    }

    fn keep(&mut self, at: usize, header: &EventHeader, key: Key) {
        let mut found = KeptCandidates { version: self.version, key, count: Some(0), ..KeptCandidates::default() };
        for consumer in self.candidates(header) {
            let Some(count) = found.count else { break };
            if found.consumers[..count].contains(&consumer) {
                continue;
            }
            found.count = found.consumers.get_mut(count).map(|place| {
                *place = consumer;
                count + 1
            });
        }
        if self.kept.is_empty() {
            self.kept = vec![KeptCandidates::default(); KEPT_KINDS].into();
        }
        if let Some(kept) = self.kept.get_mut(at) {
            *kept = found;
        }
    }

    /// Returns the consumers that may accept an event with this header. A consumer may occur more
    /// than once.
    pub(super) fn candidates(&self, header: &EventHeader) -> impl Iterator<Item = u32> + '_ {
        use ListName::{All, AllSources, AllTypes, Everything, Exact, ExactOfSource, ExactOfType, Source, Type};
        let names = match (header.event_type.0, header.source.0) {
            EVERYTHING => [Some(All), None, None, None],
            (event_type, 0) => [ExactOfType(event_type), Type(event_type), AllSources, Everything].map(Some),
            (0, source) => [ExactOfSource(source), Source(source), AllTypes, Everything].map(Some),
            (event_type, source) => [
                Some(Exact(event_type, source)),
                (self.types > 0).then_some(Type(event_type)),
                (self.sources > 0).then_some(Source(source)),
                (self.everything > 0).then_some(Everything),
            ],
        };
        names.into_iter().flatten().filter_map(|name| self.lists.get(&name)).flatten().copied()
    }
}

/// Returns the lists into which a consumer with this filter belongs, each once.
pub(super) fn lists(filter: &EventFilter) -> Box<[ListName]> {
    let mut names: Vec<ListName> = keys(filter, 0).into_iter().flat_map(lists_of_key).flatten().collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

fn lists_of_key(key: Key) -> [Option<ListName>; 4] {
    match key {
        EVERYTHING => [Some(ListName::Everything), Some(ListName::All), None, None],
        (event_type, 0) => [Some(ListName::Type(event_type)), Some(ListName::AllTypes), Some(ListName::All), None],
        (0, source) => [Some(ListName::Source(source)), Some(ListName::AllSources), Some(ListName::All), None],
        (event_type, source) => [
            Some(ListName::Exact(event_type, source)),
            Some(ListName::ExactOfType(event_type)),
            Some(ListName::ExactOfSource(source)),
            Some(ListName::All),
        ],
    }
}

/// Returns keys that together match each event that the subtree accepts.
fn keys(filter: &EventFilter, at: usize) -> Vec<Key> {
    match filter.nodes()[at].kind {
        NodeKind::Type { event_type, source } => vec![(event_type, source)],
        NodeKind::MaskedType { type_mask, source_mask, event_type, source } => {
            if event_type & type_mask != event_type || source & source_mask != source {
                return Vec::new();
            }
            let side = |mask: i32, value: i32| if mask == -1 { value } else { 0 };
            vec![(side(type_mask, event_type), side(source_mask, source))]
        }
        NodeKind::Null | NodeKind::Negation => vec![EVERYTHING],
        NodeKind::Timeout { .. } => Vec::new(),
        NodeKind::Conjunction { .. } | NodeKind::Disjunction => {
            let mut all: Vec<Key> = filter.children(at).flat_map(|child| keys(filter, child)).collect();
            if all.contains(&EVERYTHING) {
                return vec![EVERYTHING];
            }
            all.sort_unstable();
            all.dedup();
            all
        }
        // An event must be accepted by each child, so the keys of any child suffice.
        NodeKind::LogicalAnd => {
            let of_children = filter.children(at).map(|child| keys(filter, child));
            of_children.min_by_key(|keys| (keys.contains(&EVERYTHING), keys.len())).unwrap_or_default()
        }
        NodeKind::Bitmask { type_mask: 0, .. } | NodeKind::Bitmask { source_mask: 0, .. } => Vec::new(),
        NodeKind::Bitmask { .. } => keys(filter, at + 1),
    }
}

/// Returns true if the filter accepts each event for which the index finds it, and delivers the
/// event at once. Such a filter needs no evaluation.
pub(super) fn is_decided_by_index(filter: &EventFilter) -> bool {
    filter.nodes().iter().all(|node| {
        matches!(node.kind, NodeKind::Type { .. } | NodeKind::Null | NodeKind::Disjunction | NodeKind::Timeout { .. })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::events::header::{EventSource, EventType};

    fn found(index: &mut Index, event_type: i32, source: i32) -> Option<Vec<u32>> {
        let header = EventHeader::new(EventType(event_type), EventSource(source));
        let searched: BTreeSet<u32> = index.candidates(&header).collect();
        let few = index.few_candidates(&header).map(<[u32]>::to_vec);
        assert!(
            few.as_ref().is_none_or(|few| few.len() == searched.len() && few.iter().all(|it| searched.contains(it)))
        );
        few
    }

    #[test]
    fn kept_candidates_follow_each_change_of_the_index() {
        let mut index = Index::default();
        assert_eq!(found(&mut index, 16, 1), Some(vec![]));
        index.add(&[ListName::Exact(16, 1), ListName::Type(16)], 3);
        index.add(&[ListName::Type(16)], 4);
        for _ in 0..2 {
            for event_type in 0..3 * i32::try_from(KEPT_KINDS).unwrap() {
                let expected = if event_type == 16 { vec![3, 4] } else { vec![] };
                assert_eq!(found(&mut index, event_type, 1), Some(expected), "type {event_type}");
            }
        }
        index.remove(&[ListName::Exact(16, 1), ListName::Type(16)], 3);
        assert_eq!(found(&mut index, 16, 1), Some(vec![4]));
    }

    #[test]
    fn many_candidates_are_not_kept() {
        let mut index = Index::default();
        let most = u32::try_from(MAX_KEPT_CONSUMERS).unwrap();
        for consumer in 0..most {
            index.add(&[ListName::Type(16)], consumer);
        }
        assert_eq!(found(&mut index, 16, 1), Some((0..most).collect()));
        index.add(&[ListName::Type(16)], most);
        assert_eq!([found(&mut index, 16, 1), found(&mut index, 16, 1)], [None, None]);
    }
}
