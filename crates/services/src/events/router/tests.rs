//! Tests of gap events: which drops they report, and when. Tests of admission and lanes in a
//! channel with a schedule.

use std::sync::Arc;

use super::simulation::TestEvent;
use super::*;
use crate::events::designator::DependencySet;
use crate::events::filter::{EventFilter, FilterBuilder, FilterLimits};
use crate::events::header::{EventSource, EventType};
use crate::events::schedule::{
    AdmittedConsumer, AdmittedPublication, EntryUse, PublicationLoad, RateMeter, SubscriptionLoad,
};
use crate::events::subscriptions::Occurrence;

const A: EventType = EventType(16);
const B: EventType = EventType(17);

impl QueuePeer for () {
    fn take_turn(&self) -> bool {
        false
    }

    fn call_sender(&self) -> bool {
        true
    }

    fn pass_turn(&self) {}

    fn free_turn(&self) {}
}

struct GapScene {
    router: Router<TestEvent, ()>,
    supplier: ProxyId,
    consumer: SenderId,
    pushed: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Got {
    Event(u64),
    Gap(u64),
}

impl GapScene {
    fn new(transfer: Transfer, max_sets: usize) -> Self {
        let queue = QueueLimits { max_delivery_sets: max_sets, ..QueueLimits::default() };
        let mut router = Router::new(RouterConfig { queue, ..RouterConfig::default() });
        let supplier = router.add_supplier().unwrap();
        let connection =
            SupplierConnection { peer: (), publications: Box::new([]), is_gateway: false, is_pulled: false };
        router.connect_supplier(supplier, connection, 0).unwrap();
        let set = DependencySet::new().event(A, EventSource::ANY).event(EventType::GAP, EventSource::ANY);
        let filter = EventFilter::build(FilterBuilder::Basic, set.headers(), &FilterLimits::default()).unwrap();
        let proxy = router.add_consumer().unwrap();
        let new =
            NewConsumer { queues: vec![(0, ())], transfer, filter: filter.into(), is_gateway: false, declared: None };
        let (consumer, _) = router.connect_consumer(proxy, new, 0).unwrap();
        Self { router, supplier, consumer: SenderId { consumer, queue: 0 }, pushed: 0 }
    }

    fn push(&mut self) -> Vec<DirectDelivery<TestEvent, ()>> {
        self.pushed += 1;
        let event = TestEvent { number: self.pushed, key: (A.0, 1), bytes: 1, lane: 0, gap: 0, total: 0 };
        let mut routed = Routed::default();
        self.router.push(self.supplier, &EventHeader::new(A, EventSource(1)), event, 0, &mut routed).unwrap();
        routed.direct
    }

    /// Runs the sender's next call, which ends with `result`. Returns the sent event or gap event;
    /// `None` if there is nothing to send.
    fn send(&mut self, result: CallResult) -> Option<Got> {
        let step = self.router.next_step(self.consumer, 0);
        let got = match step {
            SenderStep::Send(set) => got(&set),
            SenderStep::Wait(None) => return None,
            step => panic!("{step:?}"),
        };
        assert_eq!(self.router.called(self.consumer, result, 0), None);
        Some(got)
    }

    fn dropped(&self) -> u64 {
        self.router.statistics(0).consumers[0].counts.dropped.total()
    }
}

fn got(set: &DeliverySet<TestEvent>) -> Got {
    match set.as_slice() {
        [Occurrence::Event(event)] if event.number == 0 => Got::Gap(event.gap),
        [Occurrence::Event(event)] => Got::Event(event.number),
        set => panic!("{set:?}"),
    }
}

#[test]
fn next_gap_event_tells_what_a_failed_one_should_have_told() {
    let mut scene = GapScene::new(Transfer::Queued, 2);
    (0..5).for_each(|_| drop(scene.push()));
    assert_eq!(scene.send(CallResult::Refused), Some(Got::Gap(3)));
    assert_eq!(scene.send(CallResult::Done), Some(Got::Event(4)));
    // The failed gap event counts as a drop too.
    assert_eq!(scene.send(CallResult::Done), Some(Got::Gap(4)));
    assert_eq!(scene.send(CallResult::Done), Some(Got::Event(5)));
    assert_eq!((scene.send(CallResult::Done), scene.dropped()), (None, 4));
}

#[test]
fn consumer_that_refuses_each_event_gets_no_gap_events_without_end() {
    let mut scene = GapScene::new(Transfer::Queued, 2);
    drop(scene.push());
    assert_eq!(scene.send(CallResult::Refused), Some(Got::Event(1)));
    assert_eq!(scene.send(CallResult::Refused), Some(Got::Gap(1)));
    assert_eq!(scene.send(CallResult::Refused), None);
    drop(scene.push());
    assert_eq!(scene.send(CallResult::Done), Some(Got::Event(2)));
    assert_eq!(scene.send(CallResult::Done), Some(Got::Gap(2)));
    assert_eq!((scene.send(CallResult::Done), scene.dropped()), (None, 2));
}

#[test]
fn consumer_that_refuses_gap_events_gets_its_queued_sets() {
    for failure in [CallResult::Refused, CallResult::Missed] {
        let mut scene = GapScene::new(Transfer::Queued, 2);
        (0..5).for_each(|_| drop(scene.push()));
        let mut sent = Vec::new();
        // Only the consumer's calls with gap events fail.
        for _ in 0..12 {
            match scene.router.next_step(scene.consumer, 0) {
                SenderStep::Send(set) => {
                    sent.push(got(&set));
                    let result = if matches!(sent.last(), Some(Got::Gap(_))) { failure } else { CallResult::Done };
                    assert_eq!(scene.router.called(scene.consumer, result, 0), None);
                }
                SenderStep::Ask => assert_eq!(scene.router.called(scene.consumer, CallResult::Done, 0), None),
                SenderStep::Wait(None) => break,
                step => panic!("{step:?}"),
            }
        }
        assert_eq!(sent, [Got::Gap(3), Got::Event(4), Got::Gap(4), Got::Event(5), Got::Gap(5)]);
        assert_eq!((scene.send(CallResult::Done), scene.dropped()), (None, 6));
    }
}

#[test]
fn totals_of_gap_events_do_not_count_a_drop_twice() {
    let mut scene = GapScene::new(Transfer::Queued, 1);
    let mut totals = Vec::new();
    (0..3).for_each(|_| drop(scene.push()));
    // The call of the first gap event fails, although the consumer has received the event.
    for result in [CallResult::Missed, CallResult::Done, CallResult::Done, CallResult::Done] {
        match scene.router.next_step(scene.consumer, 0) {
            SenderStep::Send(set) => totals.extend(set.into_only_event().map(|event| (event.gap, event.total))),
            SenderStep::Ask => {}
            step => panic!("{step:?}"),
        }
        assert_eq!(scene.router.called(scene.consumer, result, 0), None);
    }
    assert_eq!(totals, [(2, 2), (0, 0), (3, 3)]);
}

#[test]
fn direct_consumer_is_told_again_after_a_failed_gap_event() {
    let mut scene = GapScene::new(Transfer::Direct, 1);
    let calls =
        |deliveries: &[DirectDelivery<TestEvent, ()>]| deliveries.iter().map(|it| got(&it.set)).collect::<Vec<_>>();
    let first = scene.push();
    assert_eq!(calls(&first), [Got::Event(1)]);
    assert_eq!(scene.router.direct_failed(&first[0], false, false), None);
    let second = scene.push();
    assert_eq!(calls(&second), [Got::Gap(1), Got::Event(2)]);
    for delivery in &second {
        assert_eq!(scene.router.direct_failed(delivery, true, false), None);
    }
    assert_eq!(calls(&scene.push()), [Got::Gap(3), Got::Event(3)]);
    assert_eq!((calls(&scene.push()), scene.dropped()), (vec![Got::Event(4)], 3));
}

#[test]
fn load_for_an_admission_shares_the_filters_of_the_consumers() {
    let mut router = Router::<TestEvent, ()>::new(RouterConfig::default());
    let set = DependencySet::new().event(A, EventSource::ANY);
    let filter = EventFilter::build(FilterBuilder::Basic, set.headers(), &FilterLimits::default()).unwrap();
    let filter = Arc::new(filter);
    let load = SubscriptionLoad::default();
    let proxy = router.add_consumer().unwrap();
    let declared = AdmittedConsumer { proxy: proxy.0, used: [].into(), filter: Arc::clone(&filter), load };
    let new = NewConsumer {
        queues: vec![(0, ())],
        transfer: Transfer::Direct,
        filter: Arc::clone(&filter),
        is_gateway: false,
        declared: Some(Box::new(declared)),
    };
    router.connect_consumer(proxy, new, 0).unwrap();
    let other = router.add_consumer().unwrap();
    let shared = router.admitted_load(other, vec![1], 0).consumers.remove(0).filter;
    // The filter's holders are the test, its copy of the load, the router's declaration, and the
    // subscription.
    assert!(Arc::ptr_eq(&shared, &filter));
    assert_eq!(Arc::strong_count(&filter), 4);
    assert!(router.admitted_load(proxy, vec![1], 0).consumers.is_empty());
}

/// A channel with a schedule and two lanes, whose consumer waits for the types 16 and 17.
struct ScheduledScene {
    router: Router<TestEvent, ()>,
    consumer: ConsumerId,
    declared: ProxyId,
    undeclared: ProxyId,
    pushed: u64,
}

impl ScheduledScene {
    fn new() -> Self {
        let lane_of_type = [(A.0, 0), (B.0, 0)].into();
        let surplus = Some(SurplusPolicy::BestEffort);
        let mut router = Router::new(RouterConfig { lanes: 2, lane_of_type, surplus, ..RouterConfig::default() });
        let set = DependencySet::new().conjunction(2).event(A, EventSource::ANY).event(B, EventSource::ANY);
        let filter = EventFilter::build(FilterBuilder::Basic, set.headers(), &FilterLimits::default()).unwrap();
        let new = NewConsumer {
            queues: vec![(0, ()), (1, ())],
            transfer: Transfer::Pulled,
            filter: filter.into(),
            is_gateway: false,
            declared: None,
        };
        let proxy = router.add_consumer().unwrap();
        let (consumer, _) = router.connect_consumer(proxy, new, 0).unwrap();
        let declaration = |event_type| {
            let header = EventHeader::new(event_type, EventSource(1));
            let used = EntryUse { entry: 101, max_users: 2 };
            let publication = AdmittedPublication { used, header, period: 10, load: PublicationLoad::default() };
            let meter = RateMeter::new(10, 0, None);
            Publication { header, lane: None, declared: Some(Box::new(DeclaredEvents { publication, meter })) }
        };
        let mut supplier = |publications: &[Publication]| {
            let proxy = router.add_supplier().unwrap();
            let connection =
                SupplierConnection { peer: (), publications: publications.into(), is_gateway: false, is_pulled: false };
            router.connect_supplier(proxy, connection, 0).unwrap();
            proxy
        };
        let (declared, undeclared) = (supplier(&[declaration(A), declaration(B)]), supplier(&[]));
        Self { router, consumer, declared, undeclared, pushed: 0 }
    }

    fn push(&mut self, supplier: ProxyId, event_type: EventType, now: Nanos) {
        let (header, event) = self.event(event_type);
        self.router.push(supplier, &header, event, now, &mut Routed::default()).unwrap();
    }

    fn event(&mut self, event_type: EventType) -> (EventHeader, TestEvent) {
        self.pushed += 1;
        let event = TestEvent { number: self.pushed, key: (event_type.0, 1), bytes: 1, lane: 9, gap: 0, total: 0 };
        (EventHeader::new(event_type, EventSource(1)), event)
    }

    fn pull(&mut self) -> Option<(usize, Vec<u64>)> {
        let queues = self.router.statistics(0).consumers.remove(0).queues;
        let lane = queues.iter().find(|queue| queue.delivery_sets > 0)?.lane;
        let set = self.router.pull(self.consumer, 0).unwrap()?;
        let number = |it: &Occurrence<TestEvent>| match it {
            Occurrence::Event(event) => event.number,
            Occurrence::Timeout(expiry) => panic!("{expiry:?}"),
        };
        Some((lane, set.as_slice().iter().map(number).collect()))
    }
}

#[test]
fn declared_event_takes_the_place_of_one_for_best_effort_in_its_conjunction() {
    let mut scene = ScheduledScene::new();
    let (declared, undeclared) = (scene.declared, scene.undeclared);
    scene.push(undeclared, A, 0);
    scene.push(declared, A, 0);
    // The second declared event comes too early.
    scene.push(declared, A, 5);
    scene.push(declared, B, 10);
    assert_eq!(scene.pull(), Some((0, vec![2, 4])));
    // If no declared event arrives for a part of the set, an undeclared event takes its place. Such
    // sets have no declared rate, so they are in the least urgent lane.
    scene.push(undeclared, A, 20);
    scene.push(declared, B, 20);
    assert_eq!((scene.pull(), scene.pull()), (Some((1, vec![5, 6])), None));
}

#[test]
fn event_without_a_supplier_has_best_effort_in_a_channel_with_a_schedule() {
    let mut scene = ScheduledScene::new();
    for event_type in [A, B] {
        let (header, event) = scene.event(event_type);
        scene.router.publish(&header, event, 0, &mut Routed::default()).unwrap();
    }
    assert_eq!(scene.pull(), Some((1, vec![1, 2])));
}

#[test]
fn set_with_an_event_for_best_effort_is_in_the_least_urgent_lane_of_a_schedule() {
    let event = |lane| Occurrence::Event(TestEvent { number: 1, key: (A.0, 1), bytes: 1, lane, gap: 0, total: 0 });
    let lanes = |events: &[_]| {
        let set = DeliverySet::of(events);
        (set.urgency(3, false), set.urgency(3, true))
    };
    assert_eq!(lanes(&[event(0), event(2)]), (0, 2));
    assert_eq!(lanes(&[event(1), event(0)]), (0, 0));
    assert_eq!(lanes(&[event(2)]), (2, 2));
}
