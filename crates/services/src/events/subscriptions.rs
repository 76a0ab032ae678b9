//! The consumers of a channel: their filters, the events that their groups hold, their timeouts.

use std::fmt;
use std::sync::Arc;

use corelane_sched::task::Nanos;

use super::correlation::Correlation;
use super::designator::TimeoutKind;
use super::filter::{EventFilter, FilterInput, NodeKind};
use super::header::{EventHeader, EventHeaderError};
use super::index::{self, Index, ListName};
use super::timers::{TimerKey, Timers};

/// A consumer in [`Subscriptions`]. The id of a removed consumer is used again at the earliest
/// after 2^32 further consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId {
    slot: u32,
    generation: u32,
}

/// The bounds of all subscriptions together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionLimits {
    /// Maximum number of consumers.
    pub max_consumers: u32,
    /// Maximum number of nodes in the filters of all consumers. It also bounds the number of
    /// timeouts, and the number of events that groups hold.
    pub max_filter_nodes: usize,
}

/// The default limits: 65,536 consumers, and 1,048,576 nodes in all their filters.
impl Default for SubscriptionLimits {
    fn default() -> Self {
        Self { max_consumers: 1 << 16, max_filter_nodes: 1 << 20 }
    }
}

/// The reason why a consumer is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriptionError {
    /// There are as many consumers as this limit permits.
    TooManyConsumers(u32),
    /// The nodes of all filters would exceed this limit.
    TooManyFilterNodes(usize),
}

impl fmt::Display for SubscriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyConsumers(max) => write!(f, "the channel has room for {max} consumers"),
            Self::TooManyFilterNodes(max) => write!(f, "the filters of all consumers may have {max} nodes"),
        }
    }
}

impl std::error::Error for SubscriptionError {}

/// An element of the set that a consumer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence<E> {
    /// An event that a supplier pushed.
    Event(E),
    /// The expiry of one of the consumer's timeouts.
    Timeout(Expiry),
}

pub(super) enum Offered<'a, E> {
    /// The event of a push that no other consumer gets.
    Only(Occurrence<E>),
    Shared(&'a [Occurrence<E>]),
}

/// The expiry of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The kind of the timeout. The event has its type ([`TimeoutKind::event_type`]) and source 0.
    pub kind: TimeoutKind,
    /// The time at which the timeout was due, in nanoseconds.
    pub due_at: Nanos,
    /// The number of further expiries of this timeout that were due when this expiry was reported,
    /// and that are not reported.
    pub missed: u64,
}

/// The consumers of a channel, with the filters that decide which events each consumer gets.
///
/// `E` is the event with its payload. Groups hold clones of it, so it should be cheap to clone.
///
/// # Contract
/// - Times are nanoseconds of a monotonic clock. If a time is earlier than the time of a previous
///   call, the time of the previous call counts.
/// - The caller calls [`Subscriptions::expire`] at [`Subscriptions::next_expiry`], or later: a
///   timeout that is late by whole periods expires once, and says how many expiries were missed.
/// - The `deliver` function gets each set once, in the order in which the sets arise. The order
///   among the consumers of one event is not specified.
/// - The cost of a push grows with the number of consumers whose filters may accept the event.
///   Negations, null filters and partial masks may accept every event.
///
/// ```
/// use corelane_services::events::*;
///
/// let (inertial, position) = (EventType(16), EventType(17));
/// let set = DependencySet::new().conjunction(2).event(inertial, EventSource::ANY).event(position, EventSource::ANY);
/// let navigation = EventFilter::build(FilterBuilder::Basic, set.headers(), &FilterLimits::default())?;
///
/// let mut subscriptions = Subscriptions::new(SubscriptionLimits::default());
/// let navigation = subscriptions.add(navigation, 0)?;
/// let mut delivered = Vec::new();
/// for (event_type, event) in [(inertial, "attitude"), (inertial, "later attitude"), (position, "place")] {
///     let header = EventHeader::new(event_type, EventSource(1));
///     subscriptions.push(&header, event, 0, |consumer, set| delivered.push((consumer, set.to_vec())))?;
/// }
/// assert_eq!(delivered, [(navigation, vec![Occurrence::Event("attitude"), Occurrence::Event("place")])]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Subscriptions<E> {
    limits: SubscriptionLimits,
    slots: Vec<Slot<E>>,
    free: Vec<u32>,
    index: Index,
    timers: Timers,
    filter_nodes: usize,
    /// Number of pushes so far. A consumer whose `last_push` is this number is not offered the
    /// present event again.
    pushes: u64,
    now: Nanos,
}

#[derive(Debug)]
struct Slot<E> {
    generation: u32,
    consumer: Option<Consumer<E>>,
}

#[derive(Debug)]
struct Consumer<E> {
    filter: Arc<EventFilter>,
    is_decided_by_index: bool,
    lists: Box<[ListName]>,
    correlation: Correlation<E>,
    timers: Box<[TimerKey]>,
    deadlines: Box<[TimerKey]>,
    last_push: u64,
}

impl<E: Clone> Subscriptions<E> {
    /// Returns subscriptions without consumers.
    #[must_use]
    pub fn new(limits: SubscriptionLimits) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            free: Vec::new(),
            index: Index::default(),
            timers: Timers::default(),
            filter_nodes: 0,
            pushes: 0,
            now: 0,
        }
    }

    /// Returns the number of consumers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if there are no consumers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a consumer, and starts its timeouts.
    ///
    /// # Errors
    /// If the consumer would exceed a limit of [`SubscriptionLimits`].
    pub fn add(&mut self, filter: impl Into<Arc<EventFilter>>, now: Nanos) -> Result<ConsumerId, SubscriptionError> {
        let filter = filter.into();
        let now = self.advance(now);
        let filter_nodes = self.filter_nodes.saturating_add(filter.nodes().len());
        if filter_nodes > self.limits.max_filter_nodes {
            return Err(SubscriptionError::TooManyFilterNodes(self.limits.max_filter_nodes));
        }
        let slot = self.free_slot()?;
        self.filter_nodes = filter_nodes;
        let generation = self.occupy(slot, filter, now);
        Ok(ConsumerId { slot, generation })
    }

    /// Gives a consumer another filter, between two events. The events that its groups hold are
    /// lost, and its timeouts start anew. Returns false if the consumer was removed before.
    ///
    /// # Errors
    /// If the filter would exceed a limit of [`SubscriptionLimits`]. The consumer then keeps its
    /// filter.
    pub fn replace(&mut self, id: ConsumerId, filter: EventFilter, now: Nanos) -> Result<bool, SubscriptionError> {
        let now = self.advance(now);
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        let Some(place) = slot.map(|slot| &mut slot.consumer) else { return Ok(false) };
        let Some(present) = place.as_ref() else { return Ok(false) };
        let without = self.filter_nodes - present.filter.nodes().len();
        let filter_nodes = without.saturating_add(filter.nodes().len());
        if filter_nodes > self.limits.max_filter_nodes {
            return Err(SubscriptionError::TooManyFilterNodes(self.limits.max_filter_nodes));
        }
        self.filter_nodes = filter_nodes;
        if let Some(removed) = place.take() {
            self.index.remove(&removed.lists, id.slot);
            removed.timers.iter().for_each(|timer| {
                self.timers.remove(*timer);
            });
        }
        self.occupy(id.slot, Arc::new(filter), now);
        Ok(true)
    }

    fn occupy(&mut self, slot: u32, filter: Arc<EventFilter>, now: Nanos) -> u32 {
        let lists = index::lists(&filter);
        self.index.add(&lists, slot);
        let (mut timers, mut deadlines) = (Vec::new(), Vec::new());
        for (at, node) in filter.nodes().iter().enumerate() {
            let NodeKind::Timeout { kind, delay } = node.kind else { continue };
            let timer = self.timers.add((slot, at), kind, delay, now);
            timers.push(timer);
            if kind == TimeoutKind::Deadline {
                deadlines.push(timer);
            }
        }
        let entry = &mut self.slots[slot as usize];
        entry.consumer = Some(Consumer {
            is_decided_by_index: index::is_decided_by_index(&filter),
            correlation: Correlation::new(&filter),
            filter,
            lists,
            timers: timers.into(),
            deadlines: deadlines.into(),
            last_push: 0,
        });
        entry.generation
    }

    /// Removes a consumer, with the events that its groups hold. Returns false if the consumer was
    /// removed before.
    pub fn remove(&mut self, consumer: ConsumerId) -> bool {
        let Some(slot) = self.slots.get_mut(consumer.slot as usize) else { return false };
        if slot.generation != consumer.generation {
            return false;
        }
        let Some(removed) = slot.consumer.take() else { return false };
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(consumer.slot);
        self.filter_nodes -= removed.filter.nodes().len();
        self.index.remove(&removed.lists, consumer.slot);
        for timer in &removed.timers {
            self.timers.remove(*timer);
        }
        true
    }

    /// Returns the number of occurrences that a consumer's groups hold; `None` if the consumer was
    /// removed.
    #[must_use]
    pub fn held_occurrence_count(&self, consumer: ConsumerId) -> Option<usize> {
        let slot = self.slots.get(consumer.slot as usize)?;
        let entry = slot.consumer.as_ref().filter(|_| slot.generation == consumer.generation)?;
        Some(entry.correlation.held())
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn is_candidate(&self, consumer: ConsumerId, header: &EventHeader) -> bool {
        self.index.candidates(header).any(|slot| slot == consumer.slot)
    }

    /// Offers an event to the consumers, after the expiries that are due. Returns the number of
    /// consumers that got the event, or a set that it completed. `deliver` gets the consumer and
    /// its set.
    ///
    /// # Errors
    /// If the header is invalid. Nothing is delivered in this case.
    pub fn push(
        &mut self,
        header: &EventHeader,
        event: E,
        now: Nanos,
        mut deliver: impl FnMut(ConsumerId, &[Occurrence<E>]),
    ) -> Result<usize, EventHeaderError> {
        self.push_owned(header, event, now, &|_, _| false, |id, set| match set {
            Offered::Only(event) => deliver(id, &[event]),
            Offered::Shared(set) => deliver(id, set),
        })
    }

    /// Does what [`push`](Self::push) does. If the index finds only one consumer, that consumer may
    /// get the event itself, which spares a clone. A group with an event that the new event
    /// `outranks` holds the new event in its place.
    pub(super) fn push_owned(
        &mut self,
        header: &EventHeader,
        event: E,
        now: Nanos,
        outranks: &impl Fn(&E, &E) -> bool,
        mut deliver: impl FnMut(ConsumerId, Offered<'_, E>),
    ) -> Result<usize, EventHeaderError> {
        header.check()?;
        self.expire(now, |id, set| deliver(id, Offered::Shared(set)));
        self.pushes += 1;
        let occurrence = Occurrence::Event(event);
        let Self { slots, index, timers, pushes, now, .. } = self;
        let few = index.few_candidates(header);
        if let Some([slot]) = few
            && let Some((id, consumer)) = occupied(slots, *slot)
            && consumer.is_decided_by_index
        {
            deliver(id, Offered::Only(occurrence));
            consumer.restart_deadlines(timers, *now, None);
            return Ok(1);
        }
        let offer = |slot: u32| {
            let Some((id, consumer)) = occupied(slots, slot) else { return 0 };
            if consumer.last_push == *pushes {
                return 0;
            }
            consumer.last_push = *pushes;
            let is_delivered = if consumer.is_decided_by_index {
                deliver(id, Offered::Shared(std::slice::from_ref(&occurrence)));
                true
            } else {
                consumer
                    .offer(FilterInput::Event(header), &occurrence, outranks, |set| deliver(id, Offered::Shared(set)))
            };
            if is_delivered {
                consumer.restart_deadlines(timers, *now, None);
            }
            usize::from(is_delivered)
        };
        Ok(match few {
            Some(few) => few.iter().copied().map(offer).sum(),
            None => index.candidates(header).map(offer).sum(),
        })
    }

    /// Returns the time at which the next timeout expires; `None` if no timeout will expire.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Nanos> {
        self.timers.next_due()
    }

    /// Delivers the timeouts that are due, each once. Returns the number of deliveries, which is
    /// smaller than the number of expiries if a group waits for further events.
    pub fn expire(&mut self, now: Nanos, mut deliver: impl FnMut(ConsumerId, &[Occurrence<E>])) -> usize {
        let now = self.advance(now);
        let mut deliveries = 0;
        while let Some(expired) = self.timers.pop_due(now) {
            let (slot, node) = expired.owner;
            let Some((id, consumer)) = occupied(&mut self.slots, slot) else { continue };
            let expiry = Expiry { kind: expired.kind, due_at: expired.due_at, missed: expired.missed };
            let occurrence = Occurrence::Timeout(expiry);
            if consumer.offer(FilterInput::Timeout(node), &occurrence, &|_, _| false, |set| deliver(id, set)) {
                // A deadline that expired keeps its schedule, so that it does not drift.
                consumer.restart_deadlines(&mut self.timers, now, Some(expired.key));
                deliveries += 1;
            }
        }
        deliveries
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    fn free_slot(&mut self) -> Result<u32, SubscriptionError> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let max = self.limits.max_consumers;
        let slot = u32::try_from(self.slots.len()).ok().filter(|slot| *slot < max);
        let slot = slot.ok_or(SubscriptionError::TooManyConsumers(max))?;
        self.slots.push(Slot { generation: 0, consumer: None });
        Ok(slot)
    }
}

fn occupied<E>(slots: &mut [Slot<E>], slot: u32) -> Option<(ConsumerId, &mut Consumer<E>)> {
    let Slot { generation, consumer } = slots.get_mut(slot as usize)?;
    Some((ConsumerId { slot, generation: *generation }, consumer.as_mut()?))
}

impl<E: Clone> Consumer<E> {
    fn offer(
        &mut self,
        input: FilterInput<'_>,
        occurrence: &Occurrence<E>,
        outranks: &impl Fn(&E, &E) -> bool,
        deliver: impl FnOnce(&[Occurrence<E>]),
    ) -> bool {
        let Some(set) = self.correlation.offer(&self.filter, input, occurrence, outranks) else { return false };
        deliver(set);
        self.correlation.clear();
        true
    }

    fn restart_deadlines(&self, timers: &mut Timers, now: Nanos, expired: Option<TimerKey>) {
        for deadline in self.deadlines.iter().filter(|deadline| Some(**deadline) != expired) {
            timers.restart(*deadline, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{DependencySet, EventNames, EventSource, EventType, FilterBuilder, FilterLimits};

    const A: EventType = EventType(16);
    const B: EventType = EventType(17);
    const C: EventType = EventType(18);
    const ANY: EventSource = EventSource::ANY;
    const MS: Nanos = 1_000_000;

    /// Offers events, each with its type and rank. Returns the delivered sets by the numbers of
    /// their events.
    fn ranked(filter: &str, events: &[(EventType, u32)]) -> Vec<Vec<usize>> {
        let filter = EventFilter::parse(filter, &EventNames::new(), &FilterLimits::default()).unwrap();
        let mut subscriptions = Subscriptions::new(SubscriptionLimits::default());
        subscriptions.add(filter, 0).unwrap();
        let mut sets = Vec::new();
        for (number, (event_type, rank)) in events.iter().enumerate() {
            let header = EventHeader::new(*event_type, EventSource(1));
            let outranks = |new: &(usize, u32), held: &(usize, u32)| new.1 > held.1;
            let number_of = |it: &Occurrence<(usize, u32)>| match it {
                Occurrence::Event(event) => event.0,
                Occurrence::Timeout(_) => panic!("a timeout"),
            };
            let deliver = |_, set: Offered<'_, _>| match set {
                Offered::Only(event) => sets.push(vec![number_of(&event)]),
                Offered::Shared(set) => sets.push(set.iter().map(number_of).collect()),
            };
            subscriptions.push_owned(&header, (number, *rank), 0, &outranks, deliver).unwrap();
        }
        sets
    }

    #[test]
    fn event_takes_the_place_of_one_that_it_outranks() {
        let pair = "all(type 16, type 17)";
        assert_eq!(ranked(pair, &[(A, 0), (A, 1), (A, 2), (A, 2), (A, 1), (B, 0)]), [[2, 5]]);
        assert_eq!(ranked(pair, &[(A, 1), (B, 0), (B, 0), (A, 0), (B, 1)]), [[0, 1], [2, 3]]);
        let nested = "all(type 16, all(type 17, type 18))";
        assert_eq!(ranked(nested, &[(B, 0), (A, 0), (C, 0), (A, 1)]), [[1, 0, 2]]);
        assert_eq!(ranked(nested, &[(B, 0), (B, 1), (C, 0), (C, 1), (B, 2), (A, 0)]), [[4, 3, 5]]);
        let deep = "all(type 19, all(type 20, all(type 17, type 16)), type 18)";
        let (d, e) = (EventType(19), EventType(20));
        let events = [(d, 0), (e, 0), (A, 0), (B, 0), (B, 1), (e, 1), (d, 1), (A, 1), (C, 0)];
        assert_eq!(ranked(deep, &events), [[6, 5, 7, 4, 8]]);
        // The whole inner group is the contribution of its child, and no single event replaces it.
        assert_eq!(
            ranked("all(type 16 or all(type 17, type 18), type 19)", &[(B, 0), (C, 0), (A, 1), (d, 0)]),
            [[0, 1, 3]]
        );
    }

    struct Scene {
        subscriptions: Subscriptions<u32>,
        now: Nanos,
        events: u32,
    }

    impl Scene {
        fn new() -> Self {
            Self { subscriptions: Subscriptions::new(SubscriptionLimits::default()), now: 0, events: 0 }
        }

        fn add(&mut self, set: &DependencySet) -> ConsumerId {
            let filter = EventFilter::build(FilterBuilder::Prefix, set.headers(), &FilterLimits::default()).unwrap();
            self.subscriptions.add(filter, self.now).unwrap()
        }

        fn push(&mut self, event_type: EventType) -> Vec<Vec<Occurrence<u32>>> {
            self.events += 1;
            let mut sets = Vec::new();
            let header = EventHeader::new(event_type, EventSource(1));
            self.subscriptions.push(&header, self.events, self.now, |_, set| sets.push(set.to_vec())).unwrap();
            sets
        }

        fn expire_at(&mut self, now: Nanos) -> Vec<Vec<Occurrence<u32>>> {
            self.now = now;
            let mut sets = Vec::new();
            self.subscriptions.expire(now, |_, set| sets.push(set.to_vec()));
            sets
        }
    }

    fn events(numbers: &[u32]) -> Vec<Occurrence<u32>> {
        numbers.iter().map(|number| Occurrence::Event(*number)).collect()
    }

    fn timeout(kind: TimeoutKind, due_at: Nanos, missed: u64) -> Occurrence<u32> {
        Occurrence::Timeout(Expiry { kind, due_at, missed })
    }

    const NONE: Vec<Vec<Occurrence<u32>>> = Vec::new();

    #[test]
    fn conjunction_keeps_the_first_event_of_each_child_until_all_have_come() {
        let mut scene = Scene::new();
        let id = scene.add(&DependencySet::new().conjunction(3).event(A, ANY).event(B, ANY).event(C, ANY));
        for _ in 0..3 {
            let first = scene.events + 1;
            assert_eq!((scene.push(B), scene.push(B), scene.push(A)), (NONE, NONE, NONE));
            assert_eq!(scene.subscriptions.held_occurrence_count(id), Some(2));
            assert_eq!(scene.push(C), [events(&[first, first + 2, first + 3])]);
            assert_eq!(scene.subscriptions.held_occurrence_count(id), Some(0));
        }
    }

    #[test]
    fn replaced_filter_takes_effect_with_the_next_event_and_is_bounded() {
        let mut scene = Scene::new();
        let id = scene.add(&DependencySet::new().conjunction(2).event(A, ANY).timeout(TimeoutKind::Interval, 100_000));
        let filter = |set: &DependencySet| {
            EventFilter::build(FilterBuilder::Prefix, set.headers(), &FilterLimits::default()).unwrap()
        };
        assert_eq!(scene.push(A), NONE);
        assert_eq!(scene.subscriptions.replace(id, filter(&DependencySet::new().event(B, ANY)), 0), Ok(true));
        assert_eq!((scene.push(A), scene.push(B)), (NONE, vec![events(&[3])]));
        assert_eq!((scene.subscriptions.next_expiry(), scene.subscriptions.len()), (None, 1));
        scene.subscriptions.limits.max_filter_nodes = 2;
        let long = filter(&DependencySet::new().disjunction(2).event(A, ANY).event(C, ANY));
        let refused = scene.subscriptions.replace(id, long.clone(), 0);
        assert_eq!(refused, Err(SubscriptionError::TooManyFilterNodes(2)));
        assert_eq!(scene.push(B), [events(&[4])]);
        assert!(scene.subscriptions.remove(id));
        assert_eq!(scene.subscriptions.replace(id, long, 0), Ok(false));
        assert_eq!(scene.push(B), NONE);
    }

    #[test]
    fn inner_conjunction_contributes_its_whole_set() {
        let mut scene = Scene::new();
        scene.add(&DependencySet::new().conjunction(2).conjunction(2).event(A, ANY).event(B, ANY).event(C, ANY));
        assert_eq!((scene.push(A), scene.push(C), scene.push(A)), (NONE, NONE, NONE));
        assert_eq!(scene.push(B), [events(&[2, 1, 4])]);
    }

    #[test]
    fn event_of_two_equal_children_goes_to_the_first_of_them() {
        let mut scene = Scene::new();
        scene.add(&DependencySet::new().conjunction(2).event(A, ANY).event(A, ANY));
        assert_eq!((scene.push(A), scene.push(A), scene.push(A)), (NONE, NONE, NONE));
    }

    #[test]
    fn delivery_empties_the_groups_beside_the_one_that_delivers() {
        let mut scene = Scene::new();
        let id =
            scene.add(&DependencySet::new().disjunction(2).conjunction(2).event(A, ANY).event(B, ANY).event(C, ANY));
        assert_eq!(scene.push(A), NONE);
        assert_eq!(scene.push(C), [events(&[2])]);
        assert_eq!(scene.subscriptions.held_occurrence_count(id), Some(0));
        assert_eq!(scene.push(B), NONE);
        assert_eq!(scene.push(A), [events(&[3, 4])]);
    }

    #[test]
    fn disjunction_delivers_each_event_once() {
        let mut scene = Scene::new();
        scene.add(
            &DependencySet::new().disjunction(3).event(A, ANY).event(EventType::ANY, EventSource(1)).every_event(),
        );
        assert_eq!((scene.push(A), scene.push(B)), (vec![events(&[1])], vec![events(&[2])]));
    }

    #[test]
    fn conjunction_with_a_timeout_waits_for_its_expiry() {
        let mut scene = Scene::new();
        let negation_first = DependencySet::new().conjunction(2).negation().event(B, ANY);
        scene.add(&negation_first.timeout(TimeoutKind::Interval, 100_000));
        assert_eq!(scene.push(A), NONE);
        let expiry = timeout(TimeoutKind::Interval, 10 * MS, 2);
        assert_eq!(scene.expire_at(39 * MS), [vec![Occurrence::Event(1), expiry]]);
        assert_eq!(scene.expire_at(40 * MS), NONE);
        assert_eq!(scene.push(A), [vec![timeout(TimeoutKind::Interval, 40 * MS, 0), Occurrence::Event(2)]]);
    }

    #[test]
    fn push_delivers_first_the_timeouts_that_are_due() {
        let mut scene = Scene::new();
        scene.add(&DependencySet::new().disjunction(2).event(A, ANY).timeout(TimeoutKind::Deadline, 100_000));
        scene.now = 10 * MS;
        assert_eq!(scene.push(A), [vec![timeout(TimeoutKind::Deadline, 10 * MS, 0)], events(&[1])]);
    }

    #[test]
    fn deliveries_start_a_deadline_again_and_its_own_expiries_do_not() {
        let mut scene = Scene::new();
        scene.add(&DependencySet::new().disjunction(2).event(A, ANY).timeout(TimeoutKind::Deadline, 100_000));
        scene.now = 7 * MS;
        assert_eq!((scene.push(A), scene.push(B)), (vec![events(&[1])], NONE));
        assert_eq!(scene.subscriptions.next_expiry(), Some(17 * MS));
        assert_eq!(scene.expire_at(18 * MS), [vec![timeout(TimeoutKind::Deadline, 17 * MS, 0)]]);
        assert_eq!(scene.subscriptions.next_expiry(), Some(27 * MS));
    }

    #[test]
    fn clock_that_goes_back_counts_as_standing_still() {
        let mut scene = Scene::new();
        scene.add(&DependencySet::new().timeout(TimeoutKind::Once, 100_000));
        assert_eq!(scene.expire_at(9 * MS), NONE);
        scene.now = 0;
        scene.add(&DependencySet::new().timeout(TimeoutKind::Once, 100_000));
        assert_eq!(scene.expire_at(18 * MS).len(), 1);
        assert_eq!(scene.subscriptions.next_expiry(), Some(19 * MS));
    }

    #[test]
    fn consumers_and_nodes_are_bounded_and_their_room_is_used_again() {
        let limits = SubscriptionLimits { max_consumers: 2, max_filter_nodes: 4 };
        let mut subscriptions: Subscriptions<()> = Subscriptions::new(limits);
        let filter = |nodes: i32| {
            let set = (1..nodes).fold(DependencySet::new().disjunction(nodes - 1), |set, _| set.every_event());
            EventFilter::build(FilterBuilder::Prefix, set.headers(), &FilterLimits::default()).unwrap()
        };
        for _ in 0..3 {
            let first = subscriptions.add(filter(2), 0).unwrap();
            assert_eq!(subscriptions.add(filter(3), 0), Err(SubscriptionError::TooManyFilterNodes(4)));
            let second = subscriptions.add(filter(1), 0).unwrap();
            assert_eq!(subscriptions.add(filter(1), 0), Err(SubscriptionError::TooManyConsumers(2)));
            assert!(subscriptions.remove(first) && !subscriptions.remove(first));
            assert_eq!(
                (subscriptions.held_occurrence_count(first), subscriptions.held_occurrence_count(second)),
                (None, Some(0))
            );
            assert!(subscriptions.remove(second) && subscriptions.is_empty());
        }
    }

    #[test]
    fn refused_event_is_not_delivered() {
        let mut scene = Scene::new();
        scene.add(&DependencySet::new().every_event());
        let header = EventHeader { ttl: -1, ..EventHeader::default() };
        let refused = scene.subscriptions.push(&header, 1, 0, |_, _| panic!("delivered"));
        assert_eq!(refused, Err(EventHeaderError::NegativeTtl(-1)));
    }

    #[test]
    fn push_visits_its_takers_and_not_the_other_consumers() {
        let mut scene = Scene::new();
        for number in 0..10_000 {
            let both = DependencySet::new().logical_and(2).event(EventType(100 + number), ANY);
            scene.add(&both.negation().event(EventType::ANY, EventSource(9)));
            scene
                .add(&DependencySet::new().disjunction(2).event(EventType(100 + number), ANY).event(B, EventSource(2)));
        }
        scene.add(&DependencySet::new().event(A, ANY));
        scene.add(&DependencySet::new().conjunction(2).event(A, EventSource(1)).event(EventType(100), EventSource(1)));
        let candidates = |event_type: EventType, source: i32| {
            scene.subscriptions.index.candidates(&EventHeader::new(event_type, EventSource(source))).count()
        };
        assert_eq!(candidates(A, 1), 2);
        assert_eq!(candidates(A, 2), 1);
        assert_eq!(candidates(B, 1), 0);
        assert_eq!(candidates(EventType(100), 1), 3);
        assert_eq!(candidates(B, 0), 10_000);
    }
}
