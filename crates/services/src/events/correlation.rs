//! The events that the conjunctions of a filter hold until their groups are complete.
//!
//! The module follows the rules of TAO's `EC_Conjunction_Filter`:
//! - An event goes to the first child that accepts it, even if this child has contributed an event.
//! - The first event of a child is held. Further events of this child are ignored until a delivery.
//! - A delivery to the consumer empties all groups of the consumer's filter.
//!
//! The caller may depart from the second rule: an event that outranks the held event of its child
//! replaces the held event.
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
    contributions: Box<[Contribution]>,
    missing: usize,
    held: Vec<Occurrence<E>>,
    /// The enclosing group to which the held events have gone, and the index of the first of these
    /// events in that group; `None` while the group is incomplete.
    moved_to: Option<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contribution {
    Missing,
    /// An occurrence, with its index among those that the group has held.
    One(usize),
    /// The occurrences of an inner group, which finds them by [`Group::moved_to`].
    Group,
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
            Group {
                contributions: vec![Contribution::Missing; children].into(),
                missing: children,
                held: Vec::new(),
                moved_to: None,
            }
        });
        Self { groups: groups.collect(), is_dirty: false }
    }

    /// Offers an occurrence to the filter. Returns the set that the consumer gets, if there is one.
    /// After the delivery of the set the caller calls [`Correlation::clear`]. `outranks(offered,
    /// held)` returns true if the offered event replaces the held event.
    pub(super) fn offer<'a>(
        &'a mut self,
        filter: &EventFilter,
        input: FilterInput<'_>,
        occurrence: &'a Occurrence<E>,
        outranks: &impl Fn(&E, &E) -> bool,
    ) -> Option<&'a [Occurrence<E>]> {
        match self.step(filter, 0, input, (occurrence, outranks)) {
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
            group.contributions.fill(Contribution::Missing);
            group.missing = group.contributions.len();
            group.held.clear();
            group.moved_to = None;
        }
    }

    pub(super) fn held(&self) -> usize {
        self.groups.iter().map(|group| group.held.len()).sum()
    }

    fn step<F: Fn(&E, &E) -> bool>(
        &mut self,
        filter: &EventFilter,
        at: usize,
        input: FilterInput<'_>,
        offered: (&Occurrence<E>, &F),
    ) -> Outcome {
        let kind = &filter.nodes()[at].kind;
        match *kind {
            NodeKind::Disjunction => {
                self.first_taker(filter, at, input, offered).map_or(Outcome::Rejected, |(_, outcome)| outcome)
            }
            NodeKind::Conjunction { ordinal } => {
                let group = ordinal as usize;
                match self.first_taker(filter, at, input, offered) {
                    None => Outcome::Rejected,
                    Some((_, Outcome::Rejected | Outcome::Absorbed)) => Outcome::Absorbed,
                    Some((child, passed)) => self.contribute(group, child, &passed, offered),
                }
            }
            NodeKind::Bitmask { .. } if kind.matches(input) => self.step(filter, at + 1, input, offered),
            // Inside a logical "and" or a negation, conjunctions hold no events: the condition is
            // evaluated at once.
            _ if filter.accepts_at(at, input) => Outcome::Passed,
            _ => Outcome::Rejected,
        }
    }

    fn first_taker<F: Fn(&E, &E) -> bool>(
        &mut self,
        filter: &EventFilter,
        at: usize,
        input: FilterInput<'_>,
        offered: (&Occurrence<E>, &F),
    ) -> Option<(usize, Outcome)> {
        filter.children_for(at, input).find_map(|(number, child)| match self.step(filter, child, input, offered) {
            Outcome::Rejected => None,
            outcome => Some((number, outcome)),
        })
    }

    fn contribute<F: Fn(&E, &E) -> bool>(
        &mut self,
        group: usize,
        child: usize,
        passed: &Outcome,
        (occurrence, outranks): (&Occurrence<E>, &F),
    ) -> Outcome {
        let before = self.groups[group].contributions[child];
        if before != Contribution::Missing {
            if let (Contribution::One(at), Outcome::Passed) = (before, passed) {
                self.replace_outranked(group, at, occurrence, outranks);
            }
            return Outcome::Absorbed;
        }
        let at = self.groups[group].held.len();
        let contribution = if let Outcome::Completed(inner) = *passed {
            // The inner group stays complete, and so ignores further events until the delivery.
            let mut inner_events = mem::take(&mut self.groups[inner].held);
            self.groups[group].held.append(&mut inner_events);
            self.groups[inner].held = inner_events;
            self.groups[inner].moved_to = Some((group, at));
            Contribution::Group
        } else {
            self.groups[group].held.push(occurrence.clone());
            Contribution::One(at)
        };
        let Group { contributions, missing, .. } = &mut self.groups[group];
        contributions[child] = contribution;
        *missing -= 1;
        self.is_dirty = true;
        if *missing == 0 { Outcome::Completed(group) } else { Outcome::Absorbed }
    }

    /// Replaces the event that a group has held at this index, if the new event outranks it. The
    /// event may have moved to an enclosing group.
    fn replace_outranked(
        &mut self,
        mut group: usize,
        mut at: usize,
        occurrence: &Occurrence<E>,
        outranks: &impl Fn(&E, &E) -> bool,
    ) {
        while let Some((outer, first)) = self.groups[group].moved_to {
            group = outer;
            at += first;
        }
        let Some(held) = self.groups[group].held.get_mut(at) else { return };
        if let (Occurrence::Event(before), Occurrence::Event(event)) = (&*held, occurrence)
            && outranks(event, before)
        {
            *held = occurrence.clone();
        }
    }
}
