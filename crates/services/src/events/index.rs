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

/// A list of the index: the consumers whose filters have a key of the described form. There are
/// separate lists for events with the type 0 or the source 0, which are wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ListName {
    /// Keys with this type and this source.
    Exact(i32, i32),
    /// Keys with this type and every source.
    Type(i32),
    /// Keys with this source and every type.
    Source(i32),
    /// The key of all events.
    Everything,
    /// Keys with this type and one source, for events with the source 0.
    ExactOfType(i32),
    /// Keys with this source and one type, for events with the type 0.
    ExactOfSource(i32),
    /// Keys with one type and every source, for events with the type 0.
    AllTypes,
    /// Keys with one source and every type, for events with the source 0.
    AllSources,
    /// All keys, for events with the type 0 and the source 0.
    All,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    /// No list is empty.
    lists: HashMap<ListName, Vec<u32>>,
    /// The numbers of lists with the names `Type`, `Source` and `Everything`. Most events need no
    /// search in lists of a form that does not occur.
    types: usize,
    sources: usize,
    everything: usize,
}

impl Index {
    pub(super) fn add(&mut self, lists: &[ListName], consumer: u32) {
        for name in lists {
            let list = self.lists.entry(*name).or_default();
            let is_new = list.is_empty();
            list.push(consumer);
            if let Some(count) = self.count(*name).filter(|_| is_new) {
                *count += 1;
            }
        }
    }

    /// Returns the number of lists with a name of the form of `name`, if this is counted.
    fn count(&mut self, name: ListName) -> Option<&mut usize> {
        match name {
            ListName::Type(_) => Some(&mut self.types),
            ListName::Source(_) => Some(&mut self.sources),
            ListName::Everything => Some(&mut self.everything),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, lists: &[ListName], consumer: u32) {
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
