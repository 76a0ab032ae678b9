//! The parser of sets of dependencies. Where TAO's builders read over the end of a set, leave out
//! dependencies or keep null children, this parser refuses the set.

use super::error::{FilterError, FilterLimits};
use super::{EventFilter, FilterBuilder, Node, NodeKind};
use crate::events::designator::{Designator, TIME_UNIT, TimeoutKind};
use crate::events::header::EventHeader;

pub(super) fn build(
    builder: FilterBuilder,
    set: &[EventHeader],
    limits: &FilterLimits,
) -> Result<EventFilter, FilterError> {
    if set.len() > limits.max_dependencies {
        return Err(FilterError::TooLong { length: set.len(), max: limits.max_dependencies });
    }
    let mut parser =
        Parser { builder, set, limits, next: 0, nodes: Vec::with_capacity(set.len() + 1), groups: 0, timeouts: 0 };
    parser.root()?;
    Ok(EventFilter { nodes: parser.nodes.into(), conjunctions: parser.groups })
}

#[derive(Clone, Copy)]
struct Place {
    /// Depth of the filter: 1 plus the number of filters that enclose it.
    depth: usize,
    is_in_group: bool,
}

impl Place {
    const TOP: Self = Self { depth: 1, is_in_group: false };

    fn inside_filter(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    fn inside_group(self) -> Self {
        Self { depth: self.depth + 1, is_in_group: true }
    }
}

struct Parser<'a> {
    builder: FilterBuilder,
    set: &'a [EventHeader],
    limits: &'a FilterLimits,
    next: usize,
    nodes: Vec<Node>,
    groups: u32,
    timeouts: usize,
}

impl Parser<'_> {
    /// Reads the whole set. Several filters without a common group become a disjunction.
    fn root(&mut self) -> Result<(), FilterError> {
        let root = self.open(NodeKind::Disjunction);
        let first = self.set.first().and_then(|header| Designator::from_type(header.event_type));
        let mut filters = 0_usize;
        if self.builder == FilterBuilder::Prefix && first == Some(Designator::Global) {
            self.next = 1;
            // The root represents the global group, so it remains even if the group has a single
            // filter.
            filters = 1;
        } else if self.builder == FilterBuilder::Prefix && first.is_some_and(Designator::is_group) {
            self.filter(Place::TOP, 0)?;
            if self.next < self.set.len() {
                return Err(FilterError::TrailingDependencies { at: self.next });
            }
            filters = 1;
        }
        while self.next < self.set.len() {
            self.filter(Place::TOP, self.next)?;
            filters += 1;
        }
        self.close(root);
        if filters == 1 && self.nodes.len() > 1 {
            self.nodes.remove(0);
            for node in &mut self.nodes {
                node.end -= 1;
            }
        }
        Ok(())
    }

    /// Reads one filter. `parent` is the index of the designator that needs the filter.
    fn filter(&mut self, place: Place, parent: usize) -> Result<(), FilterError> {
        let at = self.next;
        let max_depth = self.limits.max_depth.min(FilterLimits::MAX_SUPPORTED_DEPTH);
        if place.depth > max_depth {
            return Err(FilterError::TooDeep { at, max: max_depth });
        }
        let header = self.take(parent)?;
        let Some(designator) = Designator::from_type(header.event_type) else {
            if header.event_type == Designator::UNASSIGNED {
                return Err(FilterError::UnknownDesignator { at, value: header.event_type.0 });
            }
            self.leaf(NodeKind::Type { event_type: header.event_type.0, source: header.source.0 });
            return Ok(());
        };
        match designator {
            Designator::Null => self.leaf(NodeKind::Null),
            Designator::Timeout(kind) => self.timeout(at, kind, header.creation_time)?,
            Designator::MaskedType => {
                let masks = self.take(at)?;
                let values = self.take(at)?;
                self.leaf(NodeKind::MaskedType {
                    type_mask: masks.event_type.0,
                    source_mask: masks.source.0,
                    event_type: values.event_type.0,
                    source: values.source.0,
                });
            }
            Designator::Bitmask => {
                let masks = self.take(at)?;
                let node = self.open(NodeKind::Bitmask { type_mask: masks.event_type.0, source_mask: masks.source.0 });
                self.filter(place.inside_filter(), at)?;
                self.close(node);
            }
            Designator::Negation => {
                let node = self.open(NodeKind::Negation);
                self.filter(place.inside_filter(), at)?;
                self.close(node);
            }
            Designator::Global | Designator::Conjunction | Designator::Disjunction | Designator::LogicalAnd => {
                self.group(at, designator, header.source.0, place)?;
            }
        }
        Ok(())
    }

    fn group(&mut self, at: usize, head: Designator, count: i32, place: Place) -> Result<(), FilterError> {
        let kind = match head {
            Designator::Conjunction => {
                self.groups += 1;
                NodeKind::Conjunction { ordinal: self.groups - 1 }
            }
            Designator::LogicalAnd => NodeKind::LogicalAnd,
            _ => NodeKind::Disjunction,
        };
        let node = self.open(kind);
        let children = match self.builder {
            FilterBuilder::Prefix => self.counted_children(at, head, count, place)?,
            FilterBuilder::Basic => self.children_to_next_group(at, place)?,
        };
        self.close(node);
        if children == 0 && matches!(head, Designator::Conjunction | Designator::LogicalAnd) {
            return Err(FilterError::EmptyGroup { at });
        }
        Ok(())
    }

    fn counted_children(
        &mut self,
        at: usize,
        head: Designator,
        count: i32,
        place: Place,
    ) -> Result<usize, FilterError> {
        if head == Designator::Global {
            return Err(FilterError::MisplacedGlobal { at });
        }
        // Each child consists of at least one dependency, so the rest of the set bounds the number
        // of children.
        let left = self.set.len() - self.next;
        let children = usize::try_from(count)
            .ok()
            .filter(|children| *children <= left)
            .ok_or(FilterError::WrongCount { at, count })?;
        for _ in 0..children {
            self.filter(place.inside_group(), at)?;
        }
        Ok(children)
    }

    fn children_to_next_group(&mut self, at: usize, place: Place) -> Result<usize, FilterError> {
        if place.is_in_group {
            return Err(FilterError::NestedGroup { at });
        }
        let mut children = 0;
        while let Some(header) = self.set.get(self.next) {
            if Designator::from_type(header.event_type).is_some_and(Designator::is_group) {
                break;
            }
            self.filter(place.inside_group(), at)?;
            children += 1;
        }
        Ok(children)
    }

    fn timeout(&mut self, at: usize, kind: TimeoutKind, units: u64) -> Result<(), FilterError> {
        if self.timeouts == self.limits.max_timeouts {
            return Err(FilterError::TooManyTimeouts { at, max: self.limits.max_timeouts });
        }
        self.timeouts += 1;
        let max = self.limits.max_timeout_delay;
        let delay = units.checked_mul(TIME_UNIT).filter(|delay| *delay <= max);
        let delay = delay.ok_or(FilterError::DelayTooLong { at, max })?;
        let min = self.limits.min_period.max(1);
        if kind.is_periodic() && delay < min {
            return Err(FilterError::PeriodTooShort { at, min });
        }
        self.leaf(NodeKind::Timeout { kind, delay });
        Ok(())
    }

    fn take(&mut self, parent: usize) -> Result<EventHeader, FilterError> {
        let header = self.set.get(self.next).ok_or(FilterError::Truncated { at: parent })?;
        self.next += 1;
        Ok(*header)
    }

    fn leaf(&mut self, kind: NodeKind) {
        let node = self.open(kind);
        self.close(node);
    }

    fn open(&mut self, kind: NodeKind) -> usize {
        self.nodes.push(Node { kind, end: 0 });
        self.nodes.len() - 1
    }

    fn close(&mut self, node: usize) {
        self.nodes[node].end = self.nodes.len();
    }
}
