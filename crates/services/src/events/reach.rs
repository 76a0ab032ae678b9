//! The sets that a filter can deliver if suppliers publish only certain events, and their rates.
//!
//! The module decides from the filter alone, without a channel. It follows the rules of
//! [`correlation`](super::correlation): an event goes to the first child of a group that accepts
//! it.

use corelane_sched::task::Nanos;

use super::designator::TimeoutKind;
use super::expression::EventNames;
use super::filter::{EventFilter, FilterInput, NodeKind};
use super::header::EventHeader;

/// A kind of event that suppliers publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedEventKind {
    /// The event's type and source.
    pub header: EventHeader,
    /// The shortest time between two events, in nanoseconds, if it is declared.
    pub period: Option<Nanos>,
}

/// The part of a set that bounds the rate of its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryTrigger {
    /// The published event with this index.
    Event(usize),
    /// A timeout with this delay or period in nanoseconds.
    Timeout(TimeoutKind, Nanos),
}

/// A kind of set that a filter delivers. In any interval, at most as many sets arrive as jobs of a
/// periodic task with this period and jitter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliverySetArrival {
    /// The part that bounds the rate. In a conjunction, it belongs to the child with the lowest
    /// rate.
    pub trigger: DeliveryTrigger,
    /// The period of the trigger in nanoseconds; `None` without a bound, and for a timeout that
    /// expires once.
    pub period: Option<Nanos>,
    /// Jitter of the arrivals in nanoseconds. A conjunction has jitter, because it may hold an
    /// event for its next set.
    pub jitter: Nanos,
    /// The published events that the set may contain. An event is there as often as the set may
    /// contain it.
    pub events: Vec<usize>,
    /// Groups of published events: the set contains at least one event of each group.
    pub groups: Vec<Vec<usize>>,
}

/// A part of a filter that the published events never fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachablePart {
    /// The part as an expression.
    pub expression: String,
    /// True if an event would fulfil the part, but goes to an earlier part of the group.
    pub is_shadowed: bool,
}

/// The sets that a filter can deliver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterReach {
    /// For each published event: true if the filter accepts it.
    pub accepted_events: Vec<bool>,
    /// The sets that can arise; none if the consumer never gets a set.
    pub deliverable_sets: Vec<DeliverySetArrival>,
    /// The parts that are never fulfilled, except parts of a disjunction whose events an earlier
    /// part gets.
    pub unreachable_parts: Vec<UnreachablePart>,
}

impl EventFilter {
    /// Returns the sets that the filter delivers if suppliers publish these events and no others.
    ///
    /// ```
    /// use corelane_services::events::*;
    ///
    /// let names = EventNames::new();
    /// let filter = EventFilter::parse("all(type 16, type 17) or type 18", &names, &FilterLimits::default())?;
    /// let published = [16, 17].map(|event_type| PublishedEventKind {
    ///     header: EventHeader::new(EventType(event_type), EventSource(1)),
    ///     period: Some(1_000_000 * u64::from(event_type.unsigned_abs())),
    /// });
    /// let reach = filter.analyse_reach(&published, &names);
    /// assert_eq!(reach.accepted_events, [true, true]);
    /// assert_eq!(reach.deliverable_sets[0].period, Some(17_000_000));
    /// assert_eq!(reach.unreachable_parts[0].expression, "type 18");
    /// # Ok::<(), FilterExpressionError>(())
    /// ```
    #[must_use]
    pub fn analyse_reach(&self, published: &[PublishedEventKind], names: &EventNames) -> FilterReach {
        let timeouts = self.nodes().iter().enumerate().filter_map(|(at, node)| match node.kind {
            NodeKind::Timeout { kind, delay } => Some(Offer::Timeout(at, kind, delay)),
            _ => None,
        });
        let offers: Vec<Offer> = (0..published.len()).map(Offer::Event).chain(timeouts).collect();
        let mut search = Search { filter: self, published, names, offers: &offers, dead: Vec::new() };
        let sets = search.sets(0, &offers, false);
        let accepted = published.iter().map(|event| self.accepts(&event.header)).collect();
        FilterReach { accepted_events: accepted, deliverable_sets: sets, unreachable_parts: search.dead }
    }
}

#[derive(Clone, Copy)]
enum Offer {
    Event(usize),
    Timeout(usize, TimeoutKind, Nanos),
}

struct Search<'f> {
    filter: &'f EventFilter,
    published: &'f [PublishedEventKind],
    names: &'f EventNames,
    offers: &'f [Offer],
    dead: Vec<UnreachablePart>,
}

impl Search<'_> {
    /// Returns the sets that the subtree makes from these offers. `is_needed` is true inside a
    /// conjunction, which needs each child.
    fn sets(&mut self, at: usize, offers: &[Offer], is_needed: bool) -> Vec<DeliverySetArrival> {
        let kind = self.filter.nodes()[at].kind;
        match kind {
            NodeKind::Disjunction => {
                let children: Vec<Vec<DeliverySetArrival>> = self.children(at, offers, is_needed);
                if children.is_empty() {
                    self.note_dead(at, is_needed);
                }
                children.concat()
            }
            NodeKind::Conjunction { .. } => {
                let children = self.children(at, offers, true);
                if children.iter().any(Vec::is_empty) { Vec::new() } else { joined(&children) }
            }
            NodeKind::Bitmask { .. } => {
                let masked =
                    offers.iter().copied().filter(|offer| kind.matches(self.input(*offer))).collect::<Vec<_>>();
                let before = self.dead.len();
                let sets = self.sets(at + 1, &masked, is_needed);
                if sets.is_empty() {
                    self.dead.truncate(before);
                    self.note_dead(at, is_needed);
                }
                sets
            }
            _ => {
                let taken: Vec<Offer> = offers.iter().copied().filter(|offer| self.takes(at, *offer)).collect();
                if taken.is_empty() {
                    self.note_dead(at, is_needed);
                }
                taken.into_iter().map(|offer| self.set_of(offer)).collect()
            }
        }
    }

    fn children(&mut self, at: usize, offers: &[Offer], is_needed: bool) -> Vec<Vec<DeliverySetArrival>> {
        let mut left = offers.to_vec();
        let children: Vec<usize> = self.filter.children(at).collect();
        let mut sets = Vec::with_capacity(children.len());
        for child in children {
            let (taken, others) = left.into_iter().partition(|offer| self.takes(child, *offer));
            left = others;
            let taken: Vec<Offer> = taken;
            sets.push(self.sets(child, &taken, is_needed));
        }
        sets
    }

    /// Returns true if the subtree accepts the offer. A timeout is offered only to its own subtree.
    fn takes(&self, at: usize, offer: Offer) -> bool {
        let is_offered = match offer {
            Offer::Event(_) => true,
            Offer::Timeout(node, ..) => (at..self.filter.nodes()[at].end).contains(&node),
        };
        is_offered && self.filter.accepts_at(at, self.input(offer))
    }

    fn input(&self, offer: Offer) -> FilterInput<'_> {
        match offer {
            Offer::Event(number) => FilterInput::Event(&self.published[number].header),
            Offer::Timeout(node, ..) => FilterInput::Timeout(node),
        }
    }

    fn note_dead(&mut self, at: usize, is_needed: bool) {
        let is_shadowed = self.offers.iter().any(|offer| self.takes(at, *offer));
        if !is_shadowed || is_needed {
            self.dead.push(UnreachablePart { expression: self.filter.expression_at(at, self.names), is_shadowed });
        }
    }

    fn set_of(&self, offer: Offer) -> DeliverySetArrival {
        match offer {
            Offer::Event(number) => {
                let period = self.published[number].period;
                let (events, groups) = (vec![number], vec![vec![number]]);
                DeliverySetArrival { trigger: DeliveryTrigger::Event(number), period, jitter: 0, events, groups }
            }
            Offer::Timeout(_, kind, delay) => {
                let period = kind.is_periodic().then_some(delay);
                let trigger = DeliveryTrigger::Timeout(kind, delay);
                DeliverySetArrival { trigger, period, jitter: 0, events: Vec::new(), groups: Vec::new() }
            }
        }
    }
}

/// Returns the sets of a conjunction of these children. A set needs a contribution of each child,
/// so the child with the lowest rate bounds the rate. The conjunction may hold one contribution of
/// this child, so the longest period is added to the jitter of the set with this period.
fn joined(children: &[Vec<DeliverySetArrival>]) -> Vec<DeliverySetArrival> {
    let mut all = Vec::new();
    for child in children {
        let mut events: Vec<usize> = child.iter().flat_map(|set| set.events.iter().copied()).collect();
        // A set of the child may contain an event several times. The result has the event as often
        // as the child's set with the most of it.
        events.sort_unstable();
        let most = |event: usize| child.iter().map(|set| set.events.iter().filter(|it| **it == event).count()).max();
        let mut distinct = events.clone();
        distinct.dedup();
        all.extend(distinct.into_iter().flat_map(|event| std::iter::repeat_n(event, most(event).unwrap_or(0))));
    }
    let groups: Vec<Vec<usize>> = children.iter().flat_map(|child| groups_of(child)).collect();
    let slowest = children.iter().min_by_key(|child| rate(child));
    let mut sets = slowest.cloned().unwrap_or_default();
    let held = sets.iter().enumerate().max_by_key(|(_, set)| set.period).map(|(at, _)| at);
    for (at, set) in sets.iter_mut().enumerate() {
        set.events.clone_from(&all);
        set.groups.clone_from(&groups);
        if held == Some(at) {
            set.jitter = set.jitter.saturating_add(set.period.unwrap_or(0));
        }
    }
    sets
}

fn groups_of(sets: &[DeliverySetArrival]) -> Vec<Vec<usize>> {
    match sets {
        [one] => one.groups.clone(),
        // A set of a timeout has no event, so no event is certain.
        sets if sets.iter().any(|set| set.groups.is_empty()) => Vec::new(),
        sets => {
            let mut events: Vec<usize> = sets.iter().flat_map(|set| set.groups.concat()).collect();
            events.sort_unstable();
            events.dedup();
            vec![events]
        }
    }
}

/// Returns the number of sets in 10^18 ns; `u128::MAX` if there is no bound.
fn rate(sets: &[DeliverySetArrival]) -> u128 {
    let of_set = |set: &DeliverySetArrival| match set.trigger {
        DeliveryTrigger::Timeout(TimeoutKind::Once, _) => Some(0),
        _ => set.period.map(|period| 1_000_000_000_000_000_000 / u128::from(period.max(1))),
    };
    sets.iter().try_fold(0_u128, |sum, set| sum.checked_add(of_set(set)?)).unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::events::filter::FilterLimits;
    use crate::events::header::{EventSource, EventType};
    use crate::events::subscriptions::{Occurrence, SubscriptionLimits, Subscriptions};

    const MS: Nanos = 1_000_000;

    fn published(events: &[(i32, i32, Nanos)]) -> Vec<PublishedEventKind> {
        let event = |(event_type, source, period): &(i32, i32, Nanos)| PublishedEventKind {
            header: EventHeader::new(EventType(*event_type), EventSource(*source)),
            period: Some(*period),
        };
        events.iter().map(event).collect()
    }

    fn reach(expression: &str, events: &[(i32, i32, Nanos)]) -> FilterReach {
        let filter = EventFilter::parse(expression, &EventNames::new(), &FilterLimits::default()).unwrap();
        filter.analyse_reach(&published(events), &EventNames::new())
    }

    fn dead(reach: &FilterReach) -> Vec<(&str, bool)> {
        reach.unreachable_parts.iter().map(|part| (part.expression.as_str(), part.is_shadowed)).collect()
    }

    #[test]
    fn parts_without_an_event_are_named() {
        let events = [(16, 1, 50 * MS), (17, 2, 100 * MS)];
        let case = |expression: &str| {
            let reach = reach(expression, &events);
            (
                !reach.deliverable_sets.is_empty(),
                reach.unreachable_parts.iter().map(|part| part.expression.clone()).collect::<Vec<_>>(),
            )
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(case("type 16"), (true, none.clone()));
        assert_eq!(case("type 18"), (false, vec!["type 18".to_owned()]));
        assert_eq!(case("type 16 source 2"), (false, vec!["type 16 source 2".to_owned()]));
        assert_eq!(case("type 16 or type 18"), (true, vec!["type 18".to_owned()]));
        assert_eq!(case("type 16 and type 17"), (false, vec!["type 16 and type 17".to_owned()]));
        assert_eq!(case("all(type 16, type 17)"), (true, none.clone()));
        assert_eq!(case("all(type 16, type 18, type 19)"), (false, vec!["type 18".to_owned(), "type 19".to_owned()]));
        assert_eq!(case("all(type 16, interval 5ms)"), (true, none.clone()));
        assert_eq!(case("not type 16"), (true, none.clone()));
        assert_eq!(case("not any"), (false, vec!["not any".to_owned()]));
        assert_eq!(case("bits(1, 1) any"), (false, vec!["bits(0x1, 0x1) any".to_owned()]));
        assert_eq!(case("bits(1, 2) any"), (true, none.clone()));
        assert_eq!(case("or()"), (false, vec!["or()".to_owned()]));
        // The first part gets every event that the second part accepts, so the conjunction never
        // completes.
        assert_eq!(case("type 16 or type 16 source 1"), (true, none));
        let shadowed = reach("all(type 16, type 16 source 1)", &events);
        assert_eq!((shadowed.deliverable_sets.len(), dead(&shadowed)), (0, vec![("type 16 source 1", true)]));
    }

    #[test]
    fn conjunction_arrives_at_the_rate_of_its_slowest_child() {
        let events = [(16, 1, 50 * MS), (17, 2, 100 * MS), (17, 3, 40 * MS)];
        let sets = reach("all(type 16, type 17)", &events).deliverable_sets;
        let expected = DeliverySetArrival {
            trigger: DeliveryTrigger::Event(0),
            period: Some(50 * MS),
            jitter: 50 * MS,
            events: vec![0, 1, 2],
            groups: vec![vec![0], vec![1, 2]],
        };
        assert_eq!(sets, [expected]);
        let sets = reach("all(type 16, interval 200ms) or type 17 source 3", &events).deliverable_sets;
        let triggers: Vec<_> = sets.iter().map(|set| (set.trigger, set.period, set.events.clone())).collect();
        let timeout = DeliveryTrigger::Timeout(TimeoutKind::Interval, 200 * MS);
        assert_eq!(triggers, [(timeout, Some(200 * MS), vec![0]), (DeliveryTrigger::Event(2), Some(40 * MS), vec![2])]);
    }

    fn expressions() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            (16..19, 0..3).prop_map(|(event_type, source)| format!("type {event_type} source {source}")),
            (1..3).prop_map(|source| format!("source {source}")),
            Just("any".to_owned()),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let group = (prop::sample::select(vec!["all", "or", "and"]), prop::collection::vec(inner.clone(), 1..4));
            prop_oneof![
                4 => group.prop_map(|(word, parts)| format!("{word}({})", parts.join(", "))),
                1 => inner.prop_map(|part| format!("not ({part})")),
            ]
        })
    }

    proptest! {
        #[test]
        fn consumer_gets_only_sets_within_the_reach_of_its_filter(
            expression in expressions(),
            events in prop::collection::hash_set((16..19, 1..3_i32), 1..4),
            order in prop::collection::vec(any::<prop::sample::Index>(), 60),
        ) {
            let events: Vec<(i32, i32, Nanos)> = events.into_iter().map(|(a, b)| (a, b, MS)).collect();
            let filter = EventFilter::parse(&expression, &EventNames::new(), &FilterLimits::default()).unwrap();
            let reach = filter.analyse_reach(&published(&events), &EventNames::new());
            let mut subscriptions = Subscriptions::new(SubscriptionLimits::default());
            subscriptions.add(filter, 0).unwrap();
            let mut sets: Vec<Vec<usize>> = Vec::new();
            for index in order {
                let number = index.index(events.len());
                let header = published(&events)[number].header;
                let event = |occurrence: &Occurrence<usize>| match occurrence {
                    Occurrence::Event(event) => *event,
                    Occurrence::Timeout(_) => panic!("there are no timeouts"),
                };
                let take = |_, set: &[Occurrence<usize>]| sets.push(set.iter().map(event).collect());
                subscriptions.push(&header, number, 0, take).unwrap();
            }
            prop_assert!(!reach.deliverable_sets.is_empty() || sets.is_empty(), "{} {:?}", expression, events);
            for set in &sets {
                let fits = |arrival: &DeliverySetArrival| {
                    let mut left = arrival.events.clone();
                    let mut take = |event: &usize| left.iter().position(|it| it == event).map(|at| left.swap_remove(at));
                    set.iter().all(|event| take(event).is_some())
                        && arrival.groups.iter().all(|group| group.iter().any(|event| set.contains(event)))
                };
                prop_assert!(reach.deliverable_sets.iter().any(fits), "{} {:?} {:?}", expression, set, reach);
            }
        }
    }
}
