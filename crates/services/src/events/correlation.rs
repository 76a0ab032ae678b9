//! The events that the conjunctions of a filter hold until their groups are complete.
//!
//! The module follows the rules of TAO's `EC_Conjunction_Filter`:
//! - An event goes to the first child that accepts it, even if this child has contributed an event.
//! - The first event of a child is held. Further events of this child are ignored until a delivery.
//! - A delivery to the consumer empties all groups of the consumer's filter.
//!
//! Invariant: each child of a group has contributed at most once since the last delivery, so a
//! filter holds at most one event for each of its leaves.

use std::mem;
use std::slice;

use super::filter::{EventFilter, FilterInput, NodeKind};
use super::subscriptions::Occurrence;

#[derive(Debug)]
pub(super) struct Correlation<E> {
    /// A group for each conjunction, at the index of the conjunction's ordinal.
    groups: Box<[Group<E>]>,
    is_dirty: bool,
}

#[derive(Debug)]
struct Group<E> {
    arrived: Box<[bool]>,
    missing: usize,
    held: Vec<Occurrence<E>>,
}

enum Outcome {
    Rejected,
    Absorbed,
    Passed,
    /// The conjunction with this ordinal is complete, and passes the occurrences that it holds to
    /// its parent.
    Completed(usize),
}

impl<E: Clone> Correlation<E> {
    pub(super) fn new(filter: &EventFilter) -> Self {
        let conjunctions =
            filter.nodes().iter().enumerate().filter(|(_, node)| matches!(node.kind, NodeKind::Conjunction { .. }));
        let groups = conjunctions.map(|(at, _)| {
            let children = filter.children(at).count();
            Group { arrived: vec![false; children].into(), missing: children, held: Vec::new() }
        });
        Self { groups: groups.collect(), is_dirty: false }
    }

    /// Offers an occurrence to the filter. Returns the set that the consumer gets, if there is one.
    /// After the delivery of the set the caller calls [`Correlation::clear`].
    pub(super) fn offer<'a>(
        &'a mut self,
        filter: &EventFilter,
        input: FilterInput<'_>,
        occurrence: &'a Occurrence<E>,
    ) -> Option<&'a [Occurrence<E>]> {
        match self.step(filter, 0, input, occurrence) {
            Outcome::Rejected | Outcome::Absorbed => None,
            Outcome::Passed => Some(slice::from_ref(occurrence)),
            Outcome::Completed(group) => Some(&self.groups[group].held),
        }
    }

    pub(super) fn clear(&mut self) {
        if !mem::take(&mut self.is_dirty) {
            return;
        }
        for group in &mut self.groups {
            group.arrived.fill(false);
            group.missing = group.arrived.len();
            group.held.clear();
        }
    }

    pub(super) fn held(&self) -> usize {
        self.groups.iter().map(|group| group.held.len()).sum()
    }

    fn step(&mut self, filter: &EventFilter, at: usize, input: FilterInput<'_>, occurrence: &Occurrence<E>) -> Outcome {
        let kind = &filter.nodes()[at].kind;
        match *kind {
            NodeKind::Disjunction => {
                self.first_taker(filter, at, input, occurrence).map_or(Outcome::Rejected, |(_, outcome)| outcome)
            }
            NodeKind::Conjunction { ordinal } => {
                let group = ordinal as usize;
                match self.first_taker(filter, at, input, occurrence) {
                    None => Outcome::Rejected,
                    Some((_, Outcome::Rejected | Outcome::Absorbed)) => Outcome::Absorbed,
                    Some((child, passed)) => self.contribute(group, child, &passed, occurrence),
                }
            }
            NodeKind::Bitmask { .. } if kind.matches(input) => self.step(filter, at + 1, input, occurrence),
            // Inside a logical "and" or a negation, conjunctions hold no events.
            _ if filter.accepts_at(at, input) => Outcome::Passed,
            _ => Outcome::Rejected,
        }
    }

    fn first_taker(
        &mut self,
        filter: &EventFilter,
        at: usize,
        input: FilterInput<'_>,
        occurrence: &Occurrence<E>,
    ) -> Option<(usize, Outcome)> {
        filter.children_for(at, input).find_map(|(number, child)| match self.step(filter, child, input, occurrence) {
            Outcome::Rejected => None,
            outcome => Some((number, outcome)),
        })
    }

    fn contribute(&mut self, group: usize, child: usize, passed: &Outcome, occurrence: &Occurrence<E>) -> Outcome {
        let Group { arrived, missing, .. } = &mut self.groups[group];
        if mem::replace(&mut arrived[child], true) {
            return Outcome::Absorbed;
        }
        *missing -= 1;
        let is_complete = *missing == 0;
        self.is_dirty = true;
        if let Outcome::Completed(inner) = *passed {
            // The inner group stays complete, and so ignores further events until the delivery.
            let mut inner_events = mem::take(&mut self.groups[inner].held);
            self.groups[group].held.append(&mut inner_events);
            self.groups[inner].held = inner_events;
        } else {
            self.groups[group].held.push(occurrence.clone());
        }
        if is_complete { Outcome::Completed(group) } else { Outcome::Absorbed }
    }
}
