//! A simulation, in virtual time, of senders, a network that loses and reorders frames, and one
//! core that processes the frames.
//!
//! The steering tables, the schedulers and the feature controller are the crate's real code. A seed
//! determines the whole run.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};

use corelane_sched::task::Nanos;

use crate::budget::{Budget, ServiceClass, StreamScheduler, ThreadStep, processing_order};
use crate::feature_level::{
    ActionResult, Capabilities, ControllerTiming, FeatureAction, FeatureController, FeatureLevel, FeatureStep,
    InterfaceState, ProbeResult, XdpHookState,
};
use crate::frame::{ConnectionKey, build};
use crate::steering::{
    ByteRate, Delivery, PacketRate, PortRule, SteeringDecision, SteeringTables, StreamDelivery, StreamId, TableSizes,
};

const US: Nanos = 1_000;
const MS: Nanos = 1_000_000;
/// Processor time for one packet in nanoseconds.
const COST: Nanos = 20 * US;
/// Time without an acknowledgement after which a connection sends again.
const RETRANSMISSION: Nanos = 60 * MS;
/// Maximum number of segments in flight on a connection.
const WINDOW: u64 = 32;
const PAYLOAD: usize = 100;

struct LinearCongruence(u64);

impl LinearCongruence {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Default)]
struct SimulatedConnection {
    frame: Vec<u8>,
    stream: Owner,
    /// Number of segments to send; `u64::MAX` means that the connection sends without end.
    total: u64,
    sent: u64,
    acknowledged: u64,
    received: BTreeSet<u64>,
    /// Number of segments delivered in order to the receiver.
    delivered: u64,
    timer_at: Nanos,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Owner(u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SimulatedSegment {
    connection: usize,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedArrival {
    Segment(SimulatedSegment),
    Acknowledgement { connection: usize, up_to: u64 },
    Timer { connection: usize },
    Processed(SimulatedSegment),
    Wake,
}

/// Parameters of the network. Delays are in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Network {
    /// Number of frames lost in each thousand.
    loss: u64,
    delay: Nanos,
    /// Maximum additional delay of a frame. Frames with different delays can overtake each other.
    jitter: Nanos,
}

struct Simulation {
    now: Nanos,
    random: LinearCongruence,
    network: Network,
    events: BinaryHeap<Reverse<(Nanos, u64, SimulatedArrival)>>,
    scheduled: u64,
    connections: Vec<SimulatedConnection>,
    steering: SteeringTables,
    is_attached: bool,
    is_link_up: bool,
    queues: Vec<VecDeque<SimulatedSegment>>,
    turns: Vec<StreamScheduler>,
    has_threads: bool,
    order: Vec<usize>,
    is_core_busy: bool,
    max_queue: usize,
    dropped: Vec<u64>,
    /// Number of segments that were processed before an earlier one of their connection, by stream.
    overtaken: Vec<u64>,
    processed: Vec<u64>,
    /// Number of segments processed in each period of 10 ms, for each connection.
    by_period: Vec<Vec<u64>>,
}

impl Simulation {
    /// Creates a simulation. Stream 0 is best effort. The further streams are guaranteed and have
    /// the budgets `lanes`.
    fn new(seed: u64, network: Network, best_effort: Option<Budget>, lanes: &[Budget]) -> Self {
        let lanes: Vec<ServiceClass> = lanes.iter().map(|budget| ServiceClass::Guaranteed(*budget)).collect();
        Self::with_classes(seed, network, best_effort, &lanes)
    }

    fn with_classes(seed: u64, network: Network, best_effort: Option<Budget>, lanes: &[ServiceClass]) -> Self {
        let best_effort = ServiceClass::BestEffort(best_effort);
        let classes: Vec<ServiceClass> = [best_effort].iter().chain(lanes).copied().collect();
        let streams = u16::try_from(classes.len()).unwrap();
        let mut steering =
            SteeringTables::new(TableSizes { stream_count: streams, receive_queue_count: 1, max_connections: 64 });
        for (stream, class) in (0..).map(StreamId).zip(&classes) {
            let max_receive_context_rate = match class {
                ServiceClass::LowLatency(rate) => Some(*rate),
                _ => None,
            };
            steering
                .set_delivery(stream, StreamDelivery { delivery: Delivery::Ring, max_receive_context_rate })
                .unwrap();
            steering.set_xdp_socket_present(stream, 0, true).unwrap();
            steering.set_port(2809 + stream.0, Some(PortRule::ServerPort)).unwrap();
        }
        let priorities: Vec<(u8, ServiceClass)> = classes.iter().map(|class| (50, *class)).collect();
        let count = classes.len();
        Self {
            now: 0,
            random: LinearCongruence(seed),
            network,
            events: BinaryHeap::new(),
            scheduled: 0,
            connections: Vec::new(),
            steering,
            is_attached: true,
            is_link_up: true,
            queues: vec![VecDeque::new(); count],
            turns: classes.into_iter().map(|class| StreamScheduler::new(class, 0).unwrap()).collect(),
            has_threads: true,
            order: processing_order(&priorities),
            is_core_busy: false,
            max_queue: 256,
            dropped: vec![0; count],
            overtaken: vec![0; count],
            processed: vec![0; count],
            by_period: Vec::new(),
        }
    }

    /// Adds a connection to the port of a lane, and returns its index. A connection that is not
    /// accepted represents a spoofed peer, whose frames are best effort.
    fn connect(&mut self, stream: u16, total: u64, is_accepted: bool) -> usize {
        let number = u16::try_from(self.connections.len()).unwrap();
        let remote = SocketAddr::from(([10, 0, 0, 1], 1000 + number));
        let local = SocketAddr::from(([10, 0, 0, 2], 2809 + stream));
        if is_accepted && stream > 0 {
            self.steering.add_connection(ConnectionKey::new(remote, local).unwrap(), StreamId(stream)).unwrap();
        }
        let frame = build::tcp(remote, local, 0, PAYLOAD);
        let stream = Owner(if is_accepted { stream } else { 0 });
        self.connections.push(SimulatedConnection { frame, stream, total, ..SimulatedConnection::default() });
        let connection = self.connections.len() - 1;
        self.schedule(self.now, SimulatedArrival::Timer { connection });
        connection
    }

    fn schedule(&mut self, at: Nanos, arrival: SimulatedArrival) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, arrival)));
    }

    fn run_until(&mut self, until: Nanos) {
        while let Some(Reverse((at, _, arrival))) = self.events.peek().copied() {
            if at > until {
                break;
            }
            self.events.pop();
            self.now = self.now.max(at);
            self.take(arrival);
            self.dispatch();
        }
        self.now = until;
    }

    fn take(&mut self, arrival: SimulatedArrival) {
        match arrival {
            SimulatedArrival::Segment(segment) => self.receive(segment),
            SimulatedArrival::Processed(segment) => {
                self.is_core_busy = false;
                self.deliver(segment);
            }
            SimulatedArrival::Acknowledgement { connection, up_to } => {
                let state = &mut self.connections[connection];
                if up_to > state.acknowledged {
                    state.acknowledged = up_to;
                    state.sent = state.sent.max(up_to);
                    state.timer_at = self.now + RETRANSMISSION;
                }
                self.send(connection);
            }
            SimulatedArrival::Timer { connection } => self.expire(connection),
            SimulatedArrival::Wake => {}
        }
    }

    fn send(&mut self, connection: usize) {
        loop {
            let state = &mut self.connections[connection];
            let end = state.total.min(state.acknowledged + WINDOW);
            if state.sent >= end {
                return;
            }
            let number = state.sent;
            state.sent += 1;
            self.transmit(SimulatedArrival::Segment(SimulatedSegment { connection, number }));
        }
    }

    /// Sends again from the first unacknowledged segment if no acknowledgement came within the
    /// retransmission time.
    fn expire(&mut self, connection: usize) {
        let state = &mut self.connections[connection];
        if state.acknowledged == state.total {
            return;
        }
        if state.timer_at <= self.now {
            state.sent = state.acknowledged;
            state.timer_at = self.now + RETRANSMISSION;
        }
        let timer_at = state.timer_at;
        self.schedule(timer_at, SimulatedArrival::Timer { connection });
        self.send(connection);
    }

    fn transmit(&mut self, arrival: SimulatedArrival) {
        let Network { loss, delay, jitter } = self.network;
        if self.random.below(1_000) < loss || !self.is_link_up {
            return;
        }
        let at = self.now + delay + self.random.below(jitter + 1);
        self.schedule(at, arrival);
    }

    fn receive(&mut self, segment: SimulatedSegment) {
        let owner = self.connections[segment.connection].stream.0;
        let route = if self.is_attached {
            let frame = &self.connections[segment.connection].frame;
            self.steering.steer(frame, 0, self.now)
        } else {
            SteeringDecision::Pass
        };
        match route {
            SteeringDecision::Pass => self.deliver(segment),
            SteeringDecision::Ring { slot } => {
                assert_eq!(slot, u32::from(owner), "expected the frame in the queue of its own stream");
                assert!(self.has_threads, "expected a thread that serves the ring");
                let queue = &mut self.queues[usize::from(owner)];
                if queue.len() < self.max_queue {
                    queue.push_back(segment);
                } else {
                    self.dropped[usize::from(owner)] += 1;
                }
            }
            SteeringDecision::Drop => self.dropped[0] += 1,
            SteeringDecision::Thread { .. } => panic!("no stream has a kernel thread here"),
        }
    }

    fn deliver(&mut self, segment: SimulatedSegment) {
        let state = &mut self.connections[segment.connection];
        self.processed[usize::from(state.stream.0)] += 1;
        let period = usize::try_from(self.now / (10 * MS)).unwrap();
        self.by_period.resize_with(self.by_period.len().max(period + 1), Vec::new);
        let counts = &mut self.by_period[period];
        counts.resize(counts.len().max(segment.connection + 1), 0);
        counts[segment.connection] += 1;
        if segment.number >= state.delivered {
            self.overtaken[usize::from(state.stream.0)] += u64::from(segment.number > state.delivered);
            state.received.insert(segment.number);
        }
        while state.received.remove(&state.delivered) {
            state.delivered += 1;
        }
        let up_to = state.delivered;
        self.transmit(SimulatedArrival::Acknowledgement { connection: segment.connection, up_to });
    }

    /// Gives the core to the first thread, in the order of priorities, that has a packet and whose
    /// budget permits it.
    fn dispatch(&mut self) {
        if self.is_core_busy || !self.has_threads {
            return;
        }
        for stream in self.order.clone() {
            let head = self.queues[stream].front().map(|_| u32::try_from(PAYLOAD + 40).unwrap());
            match self.turns[stream].next_step(head, self.now) {
                ThreadStep::Process => {
                    let segment = self.queues[stream].pop_front().unwrap();
                    self.is_core_busy = true;
                    return self.schedule(self.now + COST, SimulatedArrival::Processed(segment));
                }
                ThreadStep::SleepUntil(at) if head.is_some() => self.schedule(at, SimulatedArrival::Wake),
                ThreadStep::SleepUntil(_) | ThreadStep::Wait => {}
            }
        }
    }

    fn drain(&mut self) {
        for stream in 0..self.queues.len() {
            while let Some(segment) = self.queues[stream].pop_front() {
                self.deliver(segment);
            }
        }
    }

    /// Returns the number of segments of a connection that were processed in each period of 10 ms.
    fn periods(&self, connection: usize, periods: std::ops::Range<usize>) -> Vec<u64> {
        let count = |period: &Vec<u64>| period.get(connection).copied().unwrap_or(0);
        self.by_period[periods].iter().map(count).collect()
    }
}

const NEAR: Network = Network { loss: 0, delay: 50 * US, jitter: 0 };

fn guarantees() -> [Budget; 3] {
    [80, 40, 20].map(|packets| Budget::of_packets(packets, 10 * MS))
}

/// Best effort and a guaranteed stream keep the core busy. Fails if packets over the cap overtake
/// others, or if packets below the cap wait for the core.
#[test]
fn low_latency_stream_is_processed_at_once_below_its_cap_and_in_order_above_it() {
    let rate = PacketRate::of_period(NonZeroU32::new(10).unwrap(), 10 * MS);
    let lanes = [ServiceClass::LowLatency(rate), ServiceClass::Guaranteed(Budget::of_packets(100, 10 * MS))];
    let busy = || {
        let mut simulation = Simulation::with_classes(1, NEAR, None, &lanes);
        for stream in [0, 0, 0, 2, 2] {
            simulation.connect(stream, u64::MAX, true);
        }
        simulation.run_until(20 * MS);
        simulation
    };
    let mut calm = busy();
    let begun = calm.now;
    for call in 0..20 {
        calm.run_until(begun + call * rate.interval());
        calm.connect(1, 1, true);
    }
    calm.run_until(calm.now + 2 * NEAR.delay);
    let counts = calm.steering.counts(StreamId(1));
    assert_eq!((counts.receive_context_frames, counts.queued_frames), (20, 0));
    assert!(calm.connections[5..].iter().all(|connection| connection.acknowledged == 1));

    let mut flooded = busy();
    let bulk = flooded.connect(1, 3_000, true);
    flooded.run_until(1_000 * MS);
    assert_eq!(flooded.connections[bulk].delivered, 3_000);
    let counts = flooded.steering.counts(StreamId(1));
    assert_eq!((counts.receive_context_frames, counts.queued_frames), (10, 2_990));
    assert_eq!((flooded.overtaken[1], flooded.dropped[1]), (0, 0));
    flooded.connect(1, 1, true);
    flooded.run_until(flooded.now + 2 * NEAR.delay);
    assert_eq!(flooded.steering.counts(StreamId(1)).receive_context_frames, 11);
}

/// The core can process 500 packets in 10 ms, of which the guarantees take 140. Best effort starts
/// first and has no limit.
#[test]
fn guaranteed_streams_get_their_budgets_and_best_effort_the_remainder() {
    let mut simulation = Simulation::new(1, NEAR, None, &guarantees());
    for _ in 0..6 {
        simulation.connect(0, u64::MAX, true);
    }
    simulation.run_until(5 * MS);
    let lanes = [1, 2, 3].map(|stream| {
        // Several connections send, so that the window of a single connection does not limit
        // the stream.
        [0; 3].map(|_| simulation.connect(stream, u64::MAX, true))
    });
    simulation.run_until(200 * MS);
    for (connections, packets) in lanes.iter().zip([80, 40, 20]) {
        let each = connections.map(|connection| simulation.periods(connection, 2..20));
        let sums: Vec<u64> = (0..18).map(|period| each.iter().map(|counts| counts[period]).sum()).collect();
        assert_eq!(sums, vec![packets; 18]);
    }
    let best_effort: u64 = (0..6).map(|connection| simulation.periods(connection, 2..20).iter().sum::<u64>()).sum();
    assert!((355 * 18..=361 * 18).contains(&best_effort), "{best_effort} packets of best effort");
}

#[test]
fn best_effort_stays_below_its_ceiling() {
    let ceiling = Budget::of_packets(200, 10 * MS);
    let mut simulation = Simulation::new(1, NEAR, Some(ceiling), &[]);
    for _ in 0..6 {
        simulation.connect(0, u64::MAX, true);
    }
    simulation.run_until(100 * MS);
    let sums: Vec<u64> = (1..10)
        .map(|period| (0..6).map(|connection| simulation.periods(connection, period..period + 1)[0]).sum())
        .collect();
    // The last packet of a period may end in the next period.
    assert!(sums.iter().all(|sum| (199..=201).contains(sum)), "{sums:?}");
}

/// Six connections of best effort send as much as they can. The core can process 500 packets in 10
/// ms.
#[test]
fn best_effort_above_its_ceiling_is_dropped_and_its_connections_share_the_ceiling() {
    let mut simulation = Simulation::new(1, NEAR, None, &guarantees());
    let lane = [0; 3].map(|_| simulation.connect(1, u64::MAX, true));
    let frame = u64::try_from(build::tcp(([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 1).into(), 0, PAYLOAD).len());
    // The ceiling is 200 packets in 10 ms, with 100 packets at once after a pause.
    let ceiling = ByteRate::new(NonZeroU64::new(frame.unwrap() * 20_000).unwrap(), 5 * MS);
    simulation.steering.set_best_effort_ceiling(Some(ceiling));
    let others = [0; 6].map(|_| simulation.connect(0, u64::MAX, true));
    simulation.run_until(1_000 * MS);
    let processed: u64 = others.iter().map(|other| simulation.periods(*other, 10..100).iter().sum::<u64>()).sum();
    assert!((100..=18_100).contains(&processed), "{processed} packets in 90 periods");
    assert!(simulation.steering.counts(StreamId::BEST_EFFORT).dropped_frames > 0);
    assert!(others.iter().all(|other| simulation.connections[*other].delivered > 0));
    let each = lane.map(|connection| simulation.periods(connection, 10..100));
    let sums: Vec<u64> = (0..90).map(|period| each.iter().map(|counts| counts[period]).sum()).collect();
    assert_eq!(sums, vec![80; 90]);
}

#[test]
fn flood_at_a_lane_port_does_not_slow_the_lane() {
    let rate = |flood: usize| {
        let mut simulation = Simulation::new(1, NEAR, None, &guarantees());
        let lane = [0; 3].map(|_| simulation.connect(1, u64::MAX, true));
        for _ in 0..flood {
            simulation.connect(1, u64::MAX, false);
        }
        simulation.run_until(100 * MS);
        let each = lane.map(|connection| simulation.periods(connection, 1..10));
        let sums: Vec<u64> = (0..9).map(|period| each.iter().map(|counts| counts[period]).sum()).collect();
        (sums, simulation.dropped[1], simulation.dropped[0])
    };
    assert_eq!(rate(0), (vec![80; 9], 0, 0));
    let (sums, lane_drops, best_effort_drops) = rate(20);
    assert_eq!((sums, lane_drops), (vec![80; 9], 0));
    assert!(best_effort_drops > 0, "expected the flood to fill the queue of best effort");
}

#[test]
fn a_stream_that_is_too_slow_drops_only_its_own_frames() {
    let lanes = [Budget::of_packets(1, 10 * MS), Budget::of_packets(80, 10 * MS)];
    let mut simulation = Simulation::new(1, NEAR, None, &lanes);
    simulation.max_queue = 100;
    for _ in 0..4 {
        simulation.connect(1, u64::MAX, true);
    }
    let other = simulation.connect(2, 500, true);
    simulation.run_until(200 * MS);
    assert!(simulation.dropped[1] > 0);
    assert_eq!((simulation.dropped[0], simulation.dropped[2]), (0, 0));
    assert_eq!(simulation.connections[other].delivered, 500);
}

fn act(simulation: &mut Simulation, action: FeatureAction, facts: &ProbeResult) -> ActionResult {
    match action {
        FeatureAction::Probe => {
            let hook = if simulation.is_attached { XdpHookState::Ours } else { facts.hook };
            return ActionResult::Probed(ProbeResult { hook, ..*facts });
        }
        FeatureAction::Do(FeatureStep::SteeringProgram) => simulation.is_attached = true,
        FeatureAction::Undo(FeatureStep::SteeringProgram) => simulation.is_attached = false,
        FeatureAction::Do(FeatureStep::KernelThreads) => simulation.has_threads = true,
        FeatureAction::Undo(FeatureStep::KernelThreads) => {
            simulation.drain();
            simulation.has_threads = false;
        }
        FeatureAction::Undo(FeatureStep::AfXdpRings) => {
            assert!(simulation.queues.iter().all(VecDeque::is_empty), "expected no frames in the removed rings");
        }
        FeatureAction::Do(_) | FeatureAction::Undo(_) => {}
    }
    ActionResult::Done
}

/// Fails if a segment is not delivered, or if a frame is in the queue of another stream.
#[test]
fn connections_survive_every_change_of_level() {
    let mut levels = BTreeSet::new();
    for seed in 1..=60 {
        let network = Network { loss: 30, delay: 200 * US, jitter: 2 * MS };
        let mut simulation = Simulation::new(seed, network, None, &guarantees());
        (simulation.is_attached, simulation.has_threads) = (false, false);
        let connections: Vec<usize> =
            [0, 1, 1, 2, 3].map(|stream| simulation.connect(stream, 600, true)).into_iter().collect();
        let timing = ControllerTiming { probe_interval: 5 * MS, first_retry: 5 * MS, max_retry: 20 * MS };
        let mut controller = FeatureController::new(FeatureLevel::StreamSteering, timing, 0);
        let mut facts =
            ProbeResult { capabilities: Capabilities::ALL, interface: InterfaceState::Up, hook: XdpHookState::Free };
        let mut random = LinearCongruence(seed);
        for round in 0..2_000 {
            if round < 1_000 {
                change_something(&mut random, &mut simulation, &mut controller, &mut facts);
            } else {
                (facts.interface, facts.hook, simulation.is_link_up) = (InterfaceState::Up, XdpHookState::Free, true);
            }
            if let Some(action) = controller.poll(simulation.now) {
                let event = act(&mut simulation, action, &facts);
                controller.handle_result(event, simulation.now);
            }
            levels.insert(controller.level());
            let step = simulation.now + random.below(2 * MS);
            simulation.run_until(step);
            if connections.iter().all(|connection| simulation.connections[*connection].delivered == 600)
                && round > 1_000
            {
                break;
            }
        }
        for connection in connections {
            assert_eq!(simulation.connections[connection].delivered, 600, "seed {seed}, connection {connection}");
        }
    }
    assert_eq!(levels.into_iter().collect::<Vec<_>>(), FeatureLevel::ALL);
}

fn change_something(
    random: &mut LinearCongruence,
    simulation: &mut Simulation,
    controller: &mut FeatureController,
    facts: &mut ProbeResult,
) {
    match random.below(40) {
        0 => {
            facts.interface = if random.below(2) == 0 { InterfaceState::Down } else { InterfaceState::Up };
            simulation.is_link_up = facts.interface == InterfaceState::Up;
        }
        1 => {
            // A foreign program detaches the steering program.
            facts.hook = XdpHookState::Foreign;
            simulation.is_attached = false;
        }
        2 => facts.hook = XdpHookState::Free,
        3 => controller.set_requested(if random.below(3) == 0 {
            FeatureLevel::PlainTcp
        } else {
            FeatureLevel::StreamSteering
        }),
        _ => {}
    }
}
