//! Gap events: which drops they report, and when.

use super::simulation::TestEvent;
use super::*;
use crate::events::designator::DependencySet;
use crate::events::filter::{EventFilter, FilterBuilder, FilterLimits};
use crate::events::header::{EventSource, EventType};
use crate::events::subscriptions::Occurrence;

const A: EventType = EventType(16);

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

/// The number of an event, or the number of drops that a gap event reports.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    Event(u64),
    Gap(u64),
}

impl GapScene {
    fn new(transfer: Transfer, max_sets: usize) -> Self {
        let queue = QueueLimits { max_sets, ..QueueLimits::default() };
        let mut router = Router::new(RouterConfig { queue, ..RouterConfig::default() });
        let supplier = router.add_supplier().unwrap();
        let connection =
            SupplierConnection { peer: (), publications: Box::new([]), is_gateway: false, is_pulled: false };
        router.connect_supplier(supplier, connection).unwrap();
        let set = DependencySet::new().event(A, EventSource::ANY).event(EventType::GAP, EventSource::ANY);
        let filter = EventFilter::build(FilterBuilder::Basic, set.headers(), &FilterLimits::default()).unwrap();
        let proxy = router.add_consumer().unwrap();
        let new = NewConsumer { queues: vec![(0, ())], transfer, filter, is_gateway: false, declared: None };
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
    // The failed gap event is a drop too.
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
        // The consumer fails in gap events alone.
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
    // The call of the first gap event fails after the consumer has got it.
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
