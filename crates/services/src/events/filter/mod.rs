//! The filter of a consumer: a tree of conditions on events and of timeouts.
//!
//! Invariant: the nodes of a tree are in prefix order, and `end` of a node is the index behind its
//! subtree. The root is node 0.

mod error;
mod parse;
#[cfg(test)]
mod tests;

use corelane_sched::task::Nanos;

use super::designator::{DependencySet, TIME_UNIT, TimeoutKind};
use super::header::{EventHeader, EventSource, EventType};

pub use self::error::{FilterError, FilterLimits};

/// The rules by which a set of dependencies is read as a filter. TAO has both rules
/// (`-ECFiltering`).
///
/// With both builders, several filters without a common group are a disjunction; TAO's builders
/// read only the first of them. A global designator heads a disjunction; TAO's builders read it as
/// a type that no event has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FilterBuilder {
    /// A group runs to the head of the next group or to the end of the set. The number of children
    /// in its head is ignored, and groups inside groups are refused. This is TAO's default.
    #[default]
    Basic,
    /// A group has as many children as its head says. Groups may be inside groups.
    Prefix,
}

/// The filter of a consumer.
///
/// A filter is checked when it is built and does not change. Its memory is proportional to the
/// number of dependencies.
///
/// ```
/// use corelane_services::events::*;
///
/// let set = DependencySet::new().logical_and(2).event(EventType(16), EventSource::ANY).negation().event(
///     EventType::ANY, EventSource(7));
/// let filter = EventFilter::build(FilterBuilder::Prefix, set.headers(), &FilterLimits::default())?;
/// assert!(filter.accepts(&EventHeader::new(EventType(16), EventSource(3))));
/// assert!(!filter.accepts(&EventHeader::new(EventType(16), EventSource(7))));
/// # Ok::<(), FilterError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFilter {
    nodes: Box<[Node]>,
    conjunctions: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Type {
        event_type: i32,
        source: i32,
    },
    MaskedType {
        type_mask: i32,
        source_mask: i32,
        event_type: i32,
        source: i32,
    },
    Null,
    Timeout {
        kind: TimeoutKind,
        delay: Nanos,
    },
    /// `ordinal` is the number of this conjunction among the conjunctions of the tree, from 0.
    Conjunction {
        ordinal: u32,
    },
    Disjunction,
    LogicalAnd,
    Negation,
    Bitmask {
        type_mask: i32,
        source_mask: i32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FilterInput<'a> {
    Event(&'a EventHeader),
    Timeout(usize),
}

impl EventFilter {
    /// Builds the filter that the headers of a consumer's dependencies describe.
    ///
    /// An empty set, and a disjunction without children, accept nothing.
    ///
    /// # Errors
    /// If the set is not a filter by the rules of `builder`, or exceeds a limit.
    pub fn build(
        builder: FilterBuilder,
        dependencies: &[EventHeader],
        limits: &FilterLimits,
    ) -> Result<Self, FilterError> {
        parse::build(builder, dependencies, limits)
    }

    /// Returns true if the filter accepts an event with this header. A conjunction may hold the
    /// accepted event and wait for further events before it delivers.
    #[must_use]
    pub fn accepts(&self, header: &EventHeader) -> bool {
        self.accepts_at(0, FilterInput::Event(header))
    }

    /// Returns the dependencies of the filter, as the `prefix` builder reads them.
    #[must_use]
    pub fn dependencies(&self) -> DependencySet {
        let mut set = DependencySet::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let children = i32::try_from(self.children(at).count()).unwrap_or(i32::MAX);
            set = match node.kind {
                NodeKind::Type { event_type, source } => set.event(EventType(event_type), EventSource(source)),
                NodeKind::MaskedType { type_mask, source_mask, event_type, source } => {
                    set.masked_type(source_mask, type_mask, source, event_type)
                }
                NodeKind::Null => set.every_event(),
                NodeKind::Timeout { kind, delay } => set.timeout(kind, delay / TIME_UNIT),
                NodeKind::Conjunction { .. } => set.conjunction(children),
                NodeKind::Disjunction => set.disjunction(children),
                NodeKind::LogicalAnd => set.logical_and(children),
                NodeKind::Negation => set.negation(),
                NodeKind::Bitmask { type_mask, source_mask } => set.bitmask(source_mask, type_mask),
            };
        }
        set
    }

    /// Returns types and sources that match every event which the filter may accept. A negation, a
    /// mask and a null filter count as every type and source.
    pub(super) fn wanted_events(&self) -> Vec<EventHeader> {
        let wanted = |node: &Node| match node.kind {
            NodeKind::Type { event_type, source } => Some(EventHeader::new(EventType(event_type), EventSource(source))),
            NodeKind::MaskedType { .. } | NodeKind::Null | NodeKind::Negation | NodeKind::Bitmask { .. } => {
                Some(EventHeader::default())
            }
            NodeKind::Timeout { .. } | NodeKind::Conjunction { .. } | NodeKind::Disjunction | NodeKind::LogicalAnd => {
                None
            }
        };
        self.nodes.iter().filter_map(wanted).collect()
    }

    /// Returns true if the consumer asks for gap events: the filter names their type and source,
    /// and would deliver a gap event that it gets alone. A filter of every type, a negation and a
    /// conjunction of several filters do not ask for them.
    pub(super) fn asks_for_gaps(&self) -> bool {
        !self.nodes.is_empty() && self.asks_for_gaps_at(0)
    }

    fn asks_for_gaps_at(&self, at: usize) -> bool {
        let gap = FilterInput::Event(&EventHeader::new(EventType::GAP, EventSource::ANY));
        let mut children = self.children(at);
        match self.nodes[at].kind {
            NodeKind::Type { event_type, source } => (event_type, source) == (EventType::GAP.0, EventSource::ANY.0),
            NodeKind::MaskedType { type_mask, event_type, .. } => {
                type_mask == -1 && event_type == EventType::GAP.0 && self.accepts_at(at, gap)
            }
            NodeKind::Disjunction => children.any(|child| self.asks_for_gaps_at(child)),
            NodeKind::Conjunction { .. } => {
                children.next().is_some_and(|child| self.asks_for_gaps_at(child)) && children.next().is_none()
            }
            NodeKind::LogicalAnd => self.accepts_at(at, gap) && children.any(|child| self.asks_for_gaps_at(child)),
            // A gap event has the source 0, which shares no bit with the mask of a bitmask.
            NodeKind::Bitmask { .. } | NodeKind::Null | NodeKind::Timeout { .. } | NodeKind::Negation => false,
        }
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn children(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[at].end;
        let first = (at + 1 < end).then_some(at + 1);
        std::iter::successors(first, move |child| Some(self.nodes[*child].end).filter(|next| *next < end))
    }

    /// Returns the children of a group to which the input is offered, each with its number. If the
    /// group contains the node of an expired timeout, only the child with this node gets the
    /// expiry.
    pub(super) fn children_for(&self, at: usize, input: FilterInput<'_>) -> impl Iterator<Item = (usize, usize)> + '_ {
        let contains = |node: usize, expired: usize| (node..self.nodes[node].end).contains(&expired);
        let only = match input {
            FilterInput::Timeout(expired) if contains(at, expired) => Some(expired),
            _ => None,
        };
        let children = self.children(at).enumerate();
        children.filter(move |(_, child)| only.is_none_or(|expired| contains(*child, expired)))
    }

    /// Returns true if the subtree accepts the input. A timeout's event has no type and source that
    /// a node could match.
    pub(super) fn accepts_at(&self, at: usize, input: FilterInput<'_>) -> bool {
        let kind = &self.nodes[at].kind;
        match kind {
            NodeKind::Null => true,
            NodeKind::Type { .. } | NodeKind::MaskedType { .. } => kind.matches(input),
            NodeKind::Timeout { .. } => matches!(input, FilterInput::Timeout(expired) if expired == at),
            NodeKind::Conjunction { .. } | NodeKind::Disjunction => {
                self.children_for(at, input).any(|(_, child)| self.accepts_at(child, input))
            }
            NodeKind::LogicalAnd => self.children(at).all(|child| self.accepts_at(child, input)),
            NodeKind::Negation => !self.accepts_at(at + 1, input),
            NodeKind::Bitmask { .. } => kind.matches(input) && self.accepts_at(at + 1, input),
        }
    }
}

impl NodeKind {
    /// Returns true if the type and source of an event fulfil the condition of this node, without
    /// regard to its children. Always returns false for the expiry of a timeout.
    pub(super) fn matches(&self, input: FilterInput<'_>) -> bool {
        let FilterInput::Event(header) = input else { return false };
        let (event_type, source) = (header.event_type.0, header.source.0);
        match *self {
            Self::Type { event_type: wanted_type, source: wanted_source } => {
                let matches_side = |wanted: i32, found: i32| wanted == 0 || found == 0 || wanted == found;
                matches_side(wanted_type, event_type) && matches_side(wanted_source, source)
            }
            Self::MaskedType { type_mask, source_mask, event_type: wanted_type, source: wanted_source } => {
                event_type & type_mask == wanted_type && source & source_mask == wanted_source
            }
            Self::Bitmask { type_mask, source_mask } => event_type & type_mask != 0 && source & source_mask != 0,
            _ => true,
        }
    }
}
