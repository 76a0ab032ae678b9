//! A simulation in virtual time: consumers are added and removed, events are pushed, and timeouts
//! expire late. The subscriptions must deliver the same sets as a naive evaluator.
//!
//! The evaluator has a separate tree for each consumer, and offers each event to every tree.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Length in nanoseconds of the unit in which this module counts time.
const UNIT: u64 = 100;

const TYPES: [i32; 6] = [0, 4, 16, 17, 18, 19];

#[derive(Clone, Debug)]
enum Condition {
    Type(i32, i32),
    Masked { masks: (i32, i32), values: (i32, i32) },
    Null,
    Timeout(TimeoutKind, u64),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Both(Vec<Condition>),
    Not(Box<Condition>),
    Bits((i32, i32), Box<Condition>),
}

impl Condition {
    fn groups(&self) -> usize {
        match self {
            Self::All(children) | Self::Any(children) | Self::Both(children) => {
                1 + children.iter().map(Self::groups).sum::<usize>()
            }
            Self::Not(child) | Self::Bits(_, child) => child.groups(),
            _ => 0,
        }
    }

    fn write(&self, set: DependencySet) -> DependencySet {
        let count = |children: &[Condition]| i32::try_from(children.len()).unwrap();
        let write_all = |children: &[Condition], set| children.iter().fold(set, |set, child| child.write(set));
        match self {
            Self::Type(event_type, source) => set.event(EventType(*event_type), EventSource(*source)),
            Self::Masked { masks, values } => set.masked_type(masks.1, masks.0, values.1, values.0),
            Self::Null => set.every_event(),
            Self::Timeout(kind, delay) => set.timeout(*kind, *delay),
            Self::All(children) => write_all(children, set.conjunction(count(children))),
            Self::Any(children) => write_all(children, set.disjunction(count(children))),
            Self::Both(children) => write_all(children, set.logical_and(count(children))),
            Self::Not(child) => child.write(set.negation()),
            Self::Bits(masks, child) => child.write(set.bitmask(masks.1, masks.0)),
        }
    }
}

#[derive(Clone, Debug)]
struct Offer {
    header: Option<EventHeader>,
    timeout: Option<usize>,
    occurrence: Occurrence<u32>,
}

#[derive(Debug)]
struct Naive {
    condition: Condition,
    children: Vec<Naive>,
    /// The number and the next expiry of a timeout; the expiry is `None` once the timeout has
    /// expired for good. `None` if the node is not a timeout.
    timer: Option<(usize, Option<u64>)>,
    arrived: Vec<bool>,
    held: Vec<Occurrence<u32>>,
}

impl Naive {
    fn new(condition: &Condition, now: u64, timers: &mut usize) -> Self {
        let children: Vec<Naive> = match condition {
            Condition::All(children) | Condition::Any(children) | Condition::Both(children) => {
                children.iter().map(|child| Naive::new(child, now, timers)).collect()
            }
            Condition::Not(child) | Condition::Bits(_, child) => vec![Naive::new(child, now, timers)],
            _ => Vec::new(),
        };
        let timer = if let Condition::Timeout(_, delay) = condition {
            *timers += 1;
            Some((*timers, Some(now + delay)))
        } else {
            None
        };
        let arrived = vec![false; children.len()];
        Naive { condition: condition.clone(), children, timer, arrived, held: Vec::new() }
    }

    fn contains(&self, timeout: usize) -> bool {
        self.timer.is_some_and(|timer| timer.0 == timeout) || self.children.iter().any(|child| child.contains(timeout))
    }

    /// Returns true if the node accepts the offer, and the occurrences that the node passes to its
    /// parent, if any.
    fn filter(&mut self, offer: &Offer) -> (bool, Option<Vec<Occurrence<u32>>>) {
        let itself = || Some(vec![offer.occurrence]);
        let pass = |is_passed: bool| if is_passed { (true, itself()) } else { (false, None) };
        let by_header = |test: &dyn Fn(i32, i32) -> bool| {
            offer.header.is_some_and(|header| test(header.event_type.0, header.source.0))
        };
        match &self.condition {
            Condition::Type(wanted_type, wanted_source) => pass(by_header(&|event_type, source| {
                (*wanted_type == 0 || event_type == 0 || event_type == *wanted_type)
                    && (*wanted_source == 0 || source == 0 || source == *wanted_source)
            })),
            Condition::Masked { masks, values } => {
                pass(by_header(&|event_type, source| (event_type & masks.0, source & masks.1) == *values))
            }
            Condition::Null => pass(true),
            Condition::Timeout(..) => pass(offer.timeout.is_some() && offer.timeout == self.timer.map(|timer| timer.0)),
            Condition::Not(_) => {
                let is_taken = self.children[0].filter(offer).0;
                pass(!is_taken)
            }
            Condition::Both(_) => {
                // The evaluator asks every child. The code under test stops at the first child that
                // rejects.
                let answers: Vec<bool> = self.children.iter_mut().map(|child| child.filter(offer).0).collect();
                pass(answers.into_iter().all(|answer| answer))
            }
            Condition::Bits(masks, _) => {
                let (masks, is_shared) = (*masks, |value: i32, mask: i32| value & mask != 0);
                if by_header(&|event_type, source| is_shared(event_type, masks.0) && is_shared(source, masks.1)) {
                    self.children[0].filter(offer)
                } else {
                    (false, None)
                }
            }
            Condition::Any(_) => self.first(offer).map_or((false, None), |(_, passed)| (true, passed)),
            Condition::All(_) => {
                let Some((child, passed)) = self.first(offer) else { return (false, None) };
                let Some(passed) = passed else { return (true, None) };
                if self.arrived[child] {
                    return (true, None);
                }
                self.arrived[child] = true;
                self.held.extend(passed);
                (true, self.arrived.iter().all(|arrived| *arrived).then(|| self.held.clone()))
            }
        }
    }

    fn first(&mut self, offer: &Offer) -> Option<(usize, Option<Vec<Occurrence<u32>>>)> {
        let own_timeout = offer.timeout.filter(|timeout| self.contains(*timeout));
        for (number, child) in self.children.iter_mut().enumerate() {
            if own_timeout.is_none_or(|timeout| child.contains(timeout)) {
                let (is_taken, passed) = child.filter(offer);
                if is_taken {
                    return Some((number, passed));
                }
            }
        }
        None
    }

    fn clear(&mut self, now: u64, expired: Option<usize>) {
        self.arrived.fill(false);
        self.held.clear();
        if let (Condition::Timeout(TimeoutKind::Deadline, delay), Some(timer)) = (&self.condition, &mut self.timer)
            && expired != Some(timer.0)
        {
            timer.1 = Some(now + delay);
        }
        self.children.iter_mut().for_each(|child| child.clear(now, expired));
    }

    fn timers(&mut self) -> Vec<&mut Naive> {
        if self.timer.is_some() {
            return vec![self];
        }
        self.children.iter_mut().flat_map(Naive::timers).collect()
    }

    fn leaves(&self) -> usize {
        if self.children.is_empty() { 1 } else { self.children.iter().map(Naive::leaves).sum() }
    }
}

type Log = Vec<(ConsumerId, Vec<Occurrence<u32>>)>;

#[derive(Default)]
struct NaiveChannel {
    consumers: BTreeMap<ConsumerId, Naive>,
    now: u64,
}

impl NaiveChannel {
    fn offer(&mut self, id: ConsumerId, offer: &Offer, log: &mut Log) {
        let root = self.consumers.get_mut(&id).unwrap();
        if let (_, Some(set)) = root.filter(offer) {
            log.push((id, set));
            root.clear(self.now, offer.timeout);
        }
    }

    fn expire(&mut self, log: &mut Log) {
        loop {
            let mut first: Option<(u64, ConsumerId, usize)> = None;
            for (id, root) in &mut self.consumers {
                for node in root.timers() {
                    let (number, due) = node.timer.unwrap();
                    let Some(due) = due.filter(|due| *due <= self.now) else { continue };
                    if first.is_none_or(|found| (due, *id, number) < found) {
                        first = Some((due, *id, number));
                    }
                }
            }
            let Some((due, id, number)) = first else { return };
            let root = self.consumers.get_mut(&id).unwrap();
            let node = root.timers().into_iter().find(|node| node.timer.unwrap().0 == number).unwrap();
            let Condition::Timeout(kind, period) = node.condition else { unreachable!() };
            let (mut next, mut missed) = (due + period, 0);
            while kind != TimeoutKind::Once && next <= self.now {
                (next, missed) = (next + period, missed + 1);
            }
            node.timer = Some((number, (kind != TimeoutKind::Once).then_some(next)));
            let occurrence = Occurrence::Timeout(Expiry { kind, due_at: due * UNIT, missed });
            self.offer(id, &Offer { header: None, timeout: Some(number), occurrence }, log);
        }
    }

    fn next_expiry(&mut self) -> Option<u64> {
        let timers = self.consumers.values_mut().flat_map(Naive::timers);
        timers.filter_map(|node| node.timer.unwrap().1).min().map(|due| due * UNIT)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(Condition),
    Remove(prop::sample::Index),
    Push { event_type: i32, source: i32, gap: u64 },
    Expire { gap: u64 },
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let kind = prop::sample::select(vec![TimeoutKind::Once, TimeoutKind::Interval, TimeoutKind::Deadline]);
    let mask = || prop::sample::select(vec![-1, 0, 1, 2, 3, 16, 17]);
    let leaf = prop_oneof![
        8 => (prop::sample::select(TYPES.to_vec()), 0..3).prop_map(|(event_type, source)| {
            Condition::Type(if event_type == 4 { 20 } else { event_type }, source)
        }),
        2 => ((mask(), mask()), (prop::sample::select(TYPES.to_vec()), 0..3))
            .prop_map(|(masks, values)| Condition::Masked { masks, values: (values.0 & masks.0, values.1) }),
        1 => Just(Condition::Null),
        2 => (kind, 1..12_u64).prop_map(|(kind, delay)| Condition::Timeout(kind, delay)),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let several = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            4 => several().prop_map(Condition::All),
            3 => several().prop_map(Condition::Any),
            1 => several().prop_map(Condition::Both),
            1 => inner.clone().prop_map(|child| Condition::Not(Box::new(child))),
            1 => ((mask(), mask()), inner.clone()).prop_map(|(masks, child)| Condition::Bits(masks, Box::new(child))),
        ]
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let push = (prop::sample::select(TYPES.to_vec()), 0..4, 0..3_u64);
    prop_oneof![
        2 => any_condition().prop_map(Step::Add),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
        12 => push.prop_map(|(event_type, source, gap)| Step::Push { event_type, source, gap }),
        2 => (0..60_u64).prop_map(|gap| Step::Expire { gap }),
    ]
}

fn limits() -> FilterLimits {
    FilterLimits { min_period: UNIT, ..FilterLimits::default() }
}

fn by_consumer(mut log: Log) -> Log {
    log.sort_by_key(|(consumer, _)| *consumer);
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn subscriptions_deliver_what_a_naive_evaluator_delivers(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut subscriptions = Subscriptions::new(SubscriptionLimits::default());
        let mut naive = NaiveChannel::default();
        for (number, step) in steps.into_iter().enumerate() {
            let (mut log, mut expected) = (Log::new(), Log::new());
            let event = u32::try_from(number).unwrap();
            match step {
                Step::Add(condition) => {
                    let set = condition.write(DependencySet::new());
                    // With at most one group, the end of the set ends the group for both builders.
                    // So the basic builder reads the set as the prefix builder does.
                    let is_basic = condition.groups() <= 1;
                    let builder = if is_basic { FilterBuilder::Basic } else { FilterBuilder::Prefix };
                    let filter = EventFilter::build(builder, set.headers(), &limits()).unwrap();
                    let id = subscriptions.add(filter, naive.now * UNIT).unwrap();
                    let root = Naive::new(&condition, naive.now, &mut 0);
                    prop_assert!(naive.consumers.insert(id, root).is_none(), "the id is in use");
                }
                Step::Remove(index) => {
                    let id = naive.consumers.keys().nth(index.index(naive.consumers.len().max(1))).copied();
                    if let Some(id) = id {
                        prop_assert!(subscriptions.remove(id) && !subscriptions.remove(id));
                        naive.consumers.remove(&id);
                    }
                }
                Step::Push { event_type, source, gap } => {
                    naive.now += gap;
                    naive.expire(&mut expected);
                    let expiries = expected.len();
                    let header = EventHeader::new(EventType(event_type), EventSource(source));
                    let offer = Offer { header: Some(header), timeout: None, occurrence: Occurrence::Event(event) };
                    for id in naive.consumers.keys().copied().collect::<Vec<_>>() {
                        naive.offer(id, &offer, &mut expected);
                    }
                    let deliver = |id, set: &[Occurrence<u32>]| log.push((id, set.to_vec()));
                    let count = subscriptions.push(&header, event, naive.now * UNIT, deliver).unwrap();
                    prop_assert_eq!(count, expected.len() - expiries);
                    (log, expected) = (by_consumer(log), by_consumer(expected));
                }
                Step::Expire { gap } => {
                    naive.now += gap;
                    naive.expire(&mut expected);
                    subscriptions.expire(naive.now * UNIT, |id, set| log.push((id, set.to_vec())));
                }
            }
            prop_assert_eq!(log, expected, "step {}", number);
            prop_assert_eq!(subscriptions.len(), naive.consumers.len());
            prop_assert_eq!(subscriptions.next_expiry(), naive.next_expiry());
            for (id, root) in &naive.consumers {
                prop_assert!(subscriptions.held_occurrence_count(*id).unwrap() <= root.leaves());
            }
        }
    }
}
