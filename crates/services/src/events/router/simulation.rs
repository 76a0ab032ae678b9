//! A channel's decisions in virtual time, from seeds: consumers come and go, fail and pull, while
//! suppliers push.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use corelane_sched::task::Nanos;

use super::{
    CallResult, ChannelLimits, DeliverySet, Disconnected, Handover, ImmediateDelivery, NewConsumer, ProxyId,
    Publication, PushRefusal, QueuePeer, Routed, RoutedEvent, Router, RouterConfig, SenderId, SenderStep,
    SupplierConnection, Transfer,
};
use crate::events::counts::DropCounts;
use crate::events::designator::DependencySet;
use crate::events::filter::{EventFilter, FilterBuilder, FilterLimits};
use crate::events::header::{EventHeader, EventSource, EventType};
use crate::events::health::MissPolicy;
use crate::events::lifetimes::EventLifetimes;
use crate::events::queue::{LatestKey, OverflowPolicy, QueueLimits};
use crate::events::subscriptions::{ConsumerId, Occurrence};
use crate::events::turn::SendTurn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestEvent {
    pub(super) number: u64,
    pub(super) key: LatestKey,
    pub(super) bytes: usize,
    pub(super) lane: usize,
    pub(super) gap: u64,
    pub(super) total: u64,
}

impl RoutedEvent for TestEvent {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn key(&self) -> LatestKey {
        self.key
    }

    fn lane(&self) -> usize {
        self.lane
    }

    fn in_lane(self, lane: usize) -> Self {
        Self { lane, ..self }
    }

    fn gap(untold: &DropCounts, total: &DropCounts, _: Nanos) -> Self {
        Self { number: 0, key: (EventType::GAP.0, 0), bytes: 0, lane: 0, gap: untold.total(), total: total.total() }
    }
}

const LIFETIME_OF_17: Duration = Duration::from_nanos(100);

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// The peer of a queue: the index of the consumer in `Simulation::consumers`, and a [`SendTurn`] if
/// other threads than the sender may send.
#[derive(Clone, Debug)]
struct TestPeer(usize, Option<Rc<SendTurn>>);

impl PartialEq for TestPeer {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl QueuePeer for TestPeer {
    fn take_turn(&self) -> bool {
        self.1.as_ref().is_some_and(|turn| turn.take())
    }

    fn call_sender(&self) -> bool {
        self.1.as_ref().is_none_or(|turn| turn.call_sender())
    }

    fn pass_turn(&self) {
        self.1.iter().for_each(|turn| turn.pass_to_sender());
    }

    fn free_turn(&self) {
        self.1.iter().for_each(|turn| turn.free());
    }
}

struct SimulatedConsumer {
    proxy: ProxyId,
    id: ConsumerId,
    transfer: Transfer,
    event_type: i32,
    last: HashMap<i32, u64>,
    lanes: Vec<usize>,
    /// For each queue: the number of drops that the set in flight reports; `None` without a set in
    /// flight.
    sending: Vec<Option<u64>>,
    /// For each queue: true while a thread that has routed a set sends it.
    is_taken: Vec<bool>,
    wants_gaps: bool,
    told: u64,
    told_total: u64,
    is_disconnected: bool,
}

struct Simulation {
    random: Random,
    router: Router<TestEvent, TestPeer>,
    /// The sets that are being sent by the threads that have routed them.
    immediate: Vec<ImmediateDelivery<TestEvent, TestPeer>>,
    config: RouterConfig,
    consumers: Vec<SimulatedConsumer>,
    supplier: ProxyId,
    now: Nanos,
    pushed: u64,
    called_back: HashSet<usize>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let policies = [
            OverflowPolicy::DropOldest,
            OverflowPolicy::DropNewest,
            OverflowPolicy::DropLeastUrgent,
            OverflowPolicy::KeepLatest,
            OverflowPolicy::Disconnect,
        ];
        let lifetime = [None, Some(Duration::from_nanos(30))][random.below(2) as usize];
        let config = RouterConfig {
            limits: ChannelLimits { max_consumers: 12, max_senders: 8, ..ChannelLimits::default() },
            queue: QueueLimits { max_delivery_sets: 1 + random.below(6) as usize, max_bytes: 200 },
            overflow: policies[random.below(5) as usize],
            lifetimes: EventLifetimes { default: lifetime, by_type: HashMap::from([(EventType(17), LIFETIME_OF_17)]) },
            lanes: random.below(4) as usize,
            misses: MissPolicy {
                max_misses: random.below(3) as u32,
                suspension_time: Duration::from_nanos(50),
                max_suspensions: random.below(3) as u32,
                ..MissPolicy::default()
            },
            ..RouterConfig::default()
        };
        let mut router = Router::new(config.clone());
        let supplier = router.add_supplier().unwrap();
        // The events of source 1 are in the lane 0, the others in the least urgent lane.
        let publication = |source: i32, lane| {
            let header = EventHeader::new(EventType::ANY, EventSource(source));
            Publication { header, lane, declared: None }
        };
        let publications = Box::new([publication(1, Some(0)), publication(2, None)]);
        let all =
            SupplierConnection { peer: TestPeer(usize::MAX, None), publications, is_gateway: false, is_pulled: false };
        router.connect_supplier(supplier, all, 0).unwrap();
        Simulation {
            random,
            router,
            immediate: Vec::new(),
            config,
            consumers: Vec::new(),
            supplier,
            now: 0,
            pushed: 0,
            called_back: HashSet::new(),
        }
    }

    fn step(&mut self) {
        self.now += self.random.below(20);
        match self.random.below(13) {
            0 => self.connect(),
            1 => self.disconnect(),
            2..=5 => self.push(),
            6 => self.suspend(),
            7 => self.pull(),
            8 => self.end_immediate(),
            _ => self.run_sender(),
        }
        self.check();
    }

    fn any_consumer(&mut self) -> Option<usize> {
        let count = self.consumers.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    fn connect(&mut self) {
        let transfer = [Transfer::Direct, Transfer::Queued, Transfer::Pulled][self.random.below(3) as usize];
        let event_type = 16 + self.random.below(3) as i32;
        let Some(proxy) = self.router.add_consumer() else {
            let present = self.consumers.iter().filter(|consumer| !consumer.is_disconnected).count();
            assert_eq!(present, self.config.limits.max_consumers);
            return;
        };
        let wants_gaps = self.random.below(3) == 0;
        let set = DependencySet::new().event(EventType(event_type), EventSource::ANY);
        let set = if wants_gaps { set.event(EventType::GAP, EventSource::ANY) } else { set };
        let filter = EventFilter::build(FilterBuilder::Basic, set.headers(), &FilterLimits::default()).unwrap().into();
        let count = self.config.lanes.max(1);
        let only = self.random.below(count as u64) as usize;
        let lanes = if self.random.below(2) == 0 { only..only + 1 } else { 0..count };
        let lanes: Vec<usize> = lanes.collect();
        let has_turns = self.random.below(2) == 0;
        let turn = || has_turns.then(|| Rc::new(SendTurn::new()));
        let queues = lanes.iter().map(|lane| (*lane, TestPeer(self.consumers.len(), turn()))).collect();
        let new = NewConsumer { queues, transfer, filter, is_gateway: false, declared: None };
        match self.router.connect_consumer(proxy, new, self.now) {
            Ok((id, replaced)) => {
                assert_eq!(replaced, None);
                self.consumers.push(SimulatedConsumer {
                    proxy,
                    id,
                    transfer,
                    event_type,
                    last: HashMap::new(),
                    sending: vec![None; lanes.len()],
                    is_taken: vec![false; lanes.len()],
                    lanes,
                    wants_gaps,
                    told: 0,
                    told_total: 0,
                    is_disconnected: false,
                });
            }
            Err(_) => assert_eq!(self.router.remove_consumer(proxy, true), Some(None)),
        }
    }

    fn disconnect(&mut self) {
        let Some(at) = self.any_consumer() else { return };
        let peer = self.router.remove_consumer(self.consumers[at].proxy, true);
        assert_eq!(peer.is_none(), self.consumers[at].is_disconnected, "a proxy is removed once");
        self.consumers[at].is_disconnected = true;
        if let Some(Some(disconnected)) = peer {
            self.note_disconnected(at, &disconnected);
        }
    }

    fn note_disconnected(&mut self, at: usize, disconnected: &Disconnected<TestPeer>) {
        self.consumers[at].is_disconnected = true;
        assert_eq!(disconnected.peers, vec![TestPeer(at, None); self.consumers[at].lanes.len()]);
        assert_eq!(disconnected.is_called_back, self.consumers[at].transfer != Transfer::Queued);
        self.call_back(at, disconnected.is_called_back);
    }

    fn call_back(&mut self, at: usize, is_called_back: bool) {
        assert!(!is_called_back || self.called_back.insert(at), "consumer {at} is called back twice");
    }

    fn push(&mut self) {
        self.pushed += 1;
        let key = (16 + self.random.below(4) as i32, 1 + self.random.below(2) as i32);
        let event =
            TestEvent { number: self.pushed, key, bytes: self.random.below(120) as usize, lane: 9, gap: 0, total: 0 };
        let header = EventHeader::new(EventType(key.0), EventSource(key.1));
        let mut routed = Routed::default();
        self.router.push(self.supplier, &header, event, self.now, &mut routed).unwrap();
        self.begin_immediate(routed.immediate);
        for delivery in routed.direct {
            let at = delivery.peer.0;
            assert_eq!((delivery.consumer, self.consumers[at].transfer), (self.consumers[at].id, Transfer::Direct));
            let gap = self.take(at, None, &delivery.set);
            if self.random.below(10) == 0 {
                let is_gone = self.random.below(2) == 0;
                let lost = self.router.direct_failed(&delivery, false, is_gone);
                assert_eq!(lost, (is_gone && !self.consumers[at].is_disconnected).then_some(self.consumers[at].proxy));
                self.consumers[at].is_disconnected |= is_gone;
            } else {
                self.consumers[at].told += gap;
            }
        }
        for (proxy, disconnected) in routed.disconnected {
            let at = disconnected.peers[0].0;
            assert_eq!((proxy, self.config.overflow), (self.consumers[at].proxy, OverflowPolicy::Disconnect));
            self.note_disconnected(at, &disconnected);
        }
        let refused = self.router.push(ProxyId(u64::MAX), &header, event, self.now, &mut Routed::default());
        assert_eq!(refused, Err(PushRefusal::NoProxy));
    }

    fn begin_immediate(&mut self, deliveries: Vec<ImmediateDelivery<TestEvent, TestPeer>>) {
        for delivery in deliveries {
            let consumer = &mut self.consumers[delivery.peer.0];
            assert_eq!((consumer.id, consumer.transfer), (delivery.sender.consumer, Transfer::Queued));
            assert!(self.config.lanes == 0, "the threads of lanes send");
            let queue = delivery.sender.queue;
            assert!(!std::mem::replace(&mut consumer.is_taken[queue], true), "one thread sends to a consumer");
            assert_eq!(consumer.sending[queue], None, "one thread sends to a consumer");
            self.immediate.push(delivery);
        }
    }

    fn end_immediate(&mut self) {
        if self.immediate.is_empty() {
            return;
        }
        let at = self.random.below(self.immediate.len() as u64) as usize;
        let result = self.random.below(6);
        self.end_immediate_with(at, result);
    }

    /// Ends an immediate delivery with `result`: 0 means that nothing was sent, 1 that a part was
    /// sent, 2 that the set cannot be written, and any other number that the set was sent.
    fn end_immediate_with(&mut self, index: usize, result: u64) {
        let ImmediateDelivery { sender, peer, set } = self.immediate.remove(index);
        let at = peer.0;
        self.consumers[at].is_taken[sender.queue] = false;
        if result != 0 {
            self.take(at, Some(sender.queue), &set);
        }
        match result {
            0 => return self.router.hand_over(sender, set.event_type(), Handover::Whole(set)),
            1 => return self.router.hand_over(sender, set.event_type(), Handover::Rest),
            2 => {
                let lost = self.router.immediate_failed(sender, set.event_type(), CallResult::Refused, self.now);
                assert_eq!(lost, None);
            }
            _ => {}
        }
        if !peer.1.is_some_and(|turn| turn.give_back()) {
            self.router.pass_turn(sender);
        }
    }

    /// Checks a set that the consumer gets, from its queue with the number `queue` if it has
    /// queues. Returns the number of drops that the set reports.
    fn take(&mut self, at: usize, queue: Option<usize>, set: &DeliverySet<TestEvent>) -> u64 {
        let [Occurrence::Event(event)] = set.as_slice() else { panic!("{set:?}") };
        let consumer = &mut self.consumers[at];
        if event.number == 0 {
            assert!(consumer.wants_gaps && event.gap > 0, "gap events are for consumers that ask for them");
            assert!(consumer.told_total < event.total && event.gap <= event.total, "each gap event tells of new drops");
            consumer.told_total = event.total;
            return event.gap;
        }
        assert_eq!(event.key.0, consumer.event_type, "the filter is obeyed");
        assert_eq!(event.lane, if event.key.1 == 1 { 0 } else { self.config.lanes.saturating_sub(1) });
        let is_own_lane = |queue: usize| consumer.lanes.len() == 1 || consumer.lanes[queue] == event.lane;
        assert!(queue.is_none_or(is_own_lane), "each set is in its lane");
        let before = consumer.last.insert(event.key.1, event.number);
        assert!(before.is_none_or(|before| before < event.number), "events of one type and source keep their order");
        0
    }

    fn suspend(&mut self) {
        let Some(at) = self.any_consumer() else { return };
        let is_suspended = self.random.below(2) == 0;
        let found = self.router.set_suspended(self.consumers[at].proxy, is_suspended);
        assert_eq!(found.is_none(), self.consumers[at].is_disconnected);
    }

    fn pull(&mut self) {
        let Some(at) = self.any_consumer() else { return };
        if self.consumers[at].transfer != Transfer::Pulled {
            return;
        }
        let pulled = self.router.pull(self.consumers[at].id, self.now);
        assert_eq!(pulled.is_none(), self.consumers[at].is_disconnected);
        if let Some(Some(set)) = pulled {
            self.take(at, None, &set);
        }
    }

    fn run_sender(&mut self) {
        let Some(at) = self.any_consumer() else { return };
        if self.consumers[at].transfer != Transfer::Queued {
            return;
        }
        let queue = self.random.below(self.consumers[at].lanes.len() as u64) as usize;
        let sender = SenderId { consumer: self.consumers[at].id, queue };
        if let Some(gap) = self.consumers[at].sending[queue].take() {
            return self.end_call(at, sender, gap);
        }
        match self.router.next_step(sender, self.now) {
            SenderStep::Send(set) => {
                let gap = self.take(at, Some(queue), &set);
                assert!(!self.consumers[at].is_taken[queue], "one thread sends to a consumer");
                self.consumers[at].sending[queue] = Some(gap);
            }
            SenderStep::Finish => self.consumers[at].sending[queue] = Some(0),
            SenderStep::Ask => self.end_call(at, sender, 0),
            SenderStep::Wait(until) => assert!(until.is_none_or(|until| until > self.now)),
            SenderStep::End(is_called_back) => {
                assert!(self.consumers[at].is_disconnected, "only a disconnected consumer's sender ends");
                self.call_back(at, is_called_back);
            }
        }
    }

    /// Ends a running call with a random result. `gap` is the number of drops that the sent set
    /// reports.
    fn end_call(&mut self, at: usize, sender: SenderId, gap: u64) {
        let results = [CallResult::Done, CallResult::Refused, CallResult::Missed, CallResult::Missed, CallResult::Gone];
        let result = results[self.random.below(5) as usize];
        self.consumers[at].told += if result == CallResult::Done { gap } else { 0 };
        if let Some((lost, disconnected)) = self.router.called(sender, result, self.now) {
            assert_eq!((lost, self.consumers[at].is_disconnected), (self.consumers[at].proxy, false));
            self.note_disconnected(at, &disconnected);
        }
    }

    fn check(&self) {
        let statistics = self.router.statistics(self.now);
        let all =
            statistics.consumers.iter().map(|consumer| consumer.counts).chain([statistics.disconnected_consumers]);
        for counts in all {
            assert!(counts.is_balanced(), "{counts:?}");
        }
        for consumer in &statistics.consumers {
            let limits = &self.config.queue;
            assert!(
                consumer
                    .queues
                    .iter()
                    .all(|it| it.delivery_sets <= limits.max_delivery_sets && it.bytes <= limits.max_bytes)
            );
            let queued: usize = consumer.queues.iter().map(|queue| queue.delivery_sets).sum();
            assert_eq!(consumer.counts.queued, queued as u64);
            let by_type: u64 = consumer.drops_by_type.iter().map(|(_, counts)| counts.total()).sum();
            assert_eq!(consumer.counts.dropped.total(), by_type, "each drop is counted by its type");
        }
        for consumer in self.consumers.iter().filter(|consumer| !consumer.is_disconnected) {
            let counts = statistics.consumers.iter().find(|it| it.proxy_number == consumer.proxy.0).unwrap().counts;
            assert!(consumer.told <= counts.dropped.total(), "gap events tell of each drop once");
        }
        assert_eq!(statistics.published, self.pushed);
        let connected = self.consumers.iter().filter(|consumer| !consumer.is_disconnected);
        assert_eq!(statistics.consumers.len(), connected.count());
    }

    /// Ends suspensions, and lets all senders send their sets without a failure. Then pushes an
    /// event of each type and source, which consumers without queues need for their gap events.
    /// Checks that each drop of a pushed consumer that wants gap events has been reported exactly
    /// once.
    fn settle(&mut self) {
        self.now += 1_000;
        self.settle_immediate();
        for at in 0..self.consumers.len() {
            if let Some(id) = self.router.connection(self.consumers[at].proxy) {
                assert_eq!(id, self.consumers[at].id);
                self.router.set_suspended(self.consumers[at].proxy, false);
            }
        }
        if self.random.below(2) == 0 {
            self.refuse();
        }
        self.settle_senders();
        for key in (16..19).flat_map(|event_type| [(event_type, 1), (event_type, 2)]) {
            self.pushed += 1;
            let event = TestEvent { number: self.pushed, key, bytes: 1, lane: 9, gap: 0, total: 0 };
            let header = EventHeader::new(EventType(key.0), EventSource(key.1));
            let mut routed = Routed::default();
            self.router.push(self.supplier, &header, event, self.now, &mut routed).unwrap();
            self.begin_immediate(routed.immediate);
            self.settle_immediate();
            for delivery in routed.direct {
                let at = delivery.peer.0;
                self.consumers[at].told += self.take(at, None, &delivery.set);
            }
            for (_, disconnected) in routed.disconnected {
                self.note_disconnected(disconnected.peers[0].0, &disconnected);
            }
        }
        self.settle_senders();
        for at in 0..self.consumers.len() {
            let counts = self.router.statistics(self.now).consumers;
            let counts = counts.into_iter().find(|it| it.proxy_number == self.consumers[at].proxy.0);
            if self.consumers[at].transfer == Transfer::Queued {
                let waiting = counts.iter().map(|it| it.counts.queued + it.counts.in_flight).sum::<u64>();
                assert_eq!(waiting, 0, "no set waits for a sender that waits");
            }
            let Some(counts) = counts.filter(|_| self.consumers[at].wants_gaps) else { continue };
            if self.consumers[at].transfer != Transfer::Pulled {
                let SimulatedConsumer { told, told_total, .. } = self.consumers[at];
                let dropped = counts.counts.dropped.total();
                assert_eq!((told, told_total), (dropped, dropped), "each drop is told exactly once");
            }
        }
    }

    fn settle_immediate(&mut self) {
        while !self.immediate.is_empty() {
            self.end_immediate_with(0, 5);
        }
    }

    /// Answers every call of every sender with a refusal until the sender waits. Checks that this
    /// ends: a sender sends at most one gap event before its first set and one after each set.
    fn refuse(&mut self) {
        for at in 0..self.consumers.len() {
            if self.consumers[at].transfer != Transfer::Queued || self.consumers[at].is_disconnected {
                continue;
            }
            for queue in 0..self.consumers[at].lanes.len() {
                let sender = SenderId { consumer: self.consumers[at].id, queue };
                if self.consumers[at].sending[queue].take().is_some() {
                    assert_eq!(self.router.called(sender, CallResult::Refused, self.now), None);
                }
                let mut steps = 0;
                loop {
                    match self.router.next_step(sender, self.now) {
                        SenderStep::Send(set) => drop(self.take(at, Some(queue), &set)),
                        SenderStep::Ask | SenderStep::Finish => {}
                        SenderStep::Wait(None) => break,
                        step @ (SenderStep::Wait(Some(_)) | SenderStep::End(_)) => panic!("{step:?}"),
                    }
                    assert_eq!(self.router.called(sender, CallResult::Refused, self.now), None);
                    steps += 1;
                    assert!(
                        steps <= 2 + 2 * self.config.queue.max_delivery_sets,
                        "no consumer gets gap events without end"
                    );
                }
            }
        }
    }

    fn settle_senders(&mut self) {
        for at in 0..self.consumers.len() {
            (0..self.consumers[at].lanes.len()).for_each(|queue| self.settle_sender(at, queue));
        }
    }

    fn settle_sender(&mut self, at: usize, queue: usize) {
        if self.consumers[at].transfer != Transfer::Queued || self.consumers[at].is_disconnected {
            return;
        }
        let sender = SenderId { consumer: self.consumers[at].id, queue };
        loop {
            if let Some(gap) = self.consumers[at].sending[queue].take() {
                self.consumers[at].told += gap;
                assert_eq!(self.router.called(sender, CallResult::Done, self.now), None);
            }
            match self.router.next_step(sender, self.now) {
                SenderStep::Send(set) => {
                    let gap = self.take(at, Some(queue), &set);
                    self.consumers[at].sending[queue] = Some(gap);
                }
                SenderStep::Finish => self.consumers[at].sending[queue] = Some(0),
                SenderStep::Ask => assert_eq!(self.router.called(sender, CallResult::Done, self.now), None),
                SenderStep::Wait(None) => break,
                step @ (SenderStep::Wait(Some(_)) | SenderStep::End(_)) => panic!("{step:?}"),
            }
        }
    }

    fn end(&mut self) {
        for Disconnected { peers, is_called_back } in self.router.remove_all(true) {
            if peers[0].0 != usize::MAX {
                self.call_back(peers[0].0, is_called_back);
            }
        }
        for at in 0..self.consumers.len() {
            self.consumers[at].is_disconnected = true;
            for queue in 0..self.consumers[at].lanes.len() {
                let sender = SenderId { consumer: self.consumers[at].id, queue };
                if self.consumers[at].sending[queue].take().is_some() {
                    assert_eq!(self.router.called(sender, CallResult::Done, self.now), None);
                }
                if let SenderStep::End(is_called_back) = self.router.next_step(sender, self.now) {
                    self.call_back(at, is_called_back);
                }
            }
        }
        let statistics = self.router.statistics(self.now);
        assert_eq!((statistics.disconnected_consumers.queued, statistics.disconnected_consumers.in_flight), (0, 0));
        self.check();
    }
}

#[test]
fn every_routed_set_is_accounted_for_and_every_peer_is_called_back_at_most_once() {
    for seed in 0..300 {
        let mut simulation = Simulation::new(seed);
        for _ in 0..400 {
            simulation.step();
        }
        simulation.settle();
        simulation.end();
    }
}
