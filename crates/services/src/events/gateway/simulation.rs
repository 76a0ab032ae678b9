//! A simulation in virtual time: rings and meshes of channels with gateways, whose links are cut at
//! random.
//!
//! No consumer may get an event twice. An event that was wanted may be missing only if a gateway
//! has counted a dropped event. An event that no consumer of another channel wants must not cross.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::core::{Accepted, CrossingEvent, GatewayCore, LinkState, MAX_BATCH};
use super::demand::{Demand, reported, subscription};
use super::passage::ChannelId;
use super::reconnect::ReconnectPolicy;
use super::seen::{Arrival, SeenEvents};
use crate::events::queue::QueueLimits;
use crate::naming::simulation::{SplitMix, under_seeds};

const SEEDS: u64 = 300;
const STEPS: usize = 400;
const TYPES: std::ops::Range<i32> = 16..22;
const EVENT_BYTES: usize = 10;

#[derive(Clone, Debug)]
struct SimEvent {
    event_type: i32,
    ttl: i32,
    path: Vec<ChannelId>,
    number: u64,
}

impl CrossingEvent for SimEvent {
    fn ttl(&self) -> i32 {
        self.ttl
    }

    fn set_ttl(&mut self, ttl: i32) {
        self.ttl = ttl;
    }

    fn path(&self) -> &[ChannelId] {
        &self.path
    }
}

#[derive(Default)]
struct Channel {
    wanted: BTreeSet<i32>,
    seen: SeenEvents,
    last_number: u64,
    /// Number of times that the channel's consumers have received each event, by its first channel
    /// and number.
    got: BTreeMap<(ChannelId, u64), u32>,
}

struct Gate {
    from: usize,
    to: usize,
    core: GatewayCore<SimEvent>,
    demands: Vec<Demand>,
    is_link_up: bool,
}

struct World {
    random: SplitMix,
    now: u64,
    channels: Vec<Channel>,
    gates: Vec<Gate>,
    /// The first channel and the number of each event, and the channels whose consumers wanted it.
    published: Vec<((ChannelId, u64), Vec<usize>)>,
    has_cuts: bool,
}

fn id(channel: usize) -> ChannelId {
    100 + channel as u64
}

impl World {
    fn new(seed: u64, limits: QueueLimits, has_cuts: bool) -> Self {
        let mut random = SplitMix(seed);
        let count = 2 + random.below(4);
        let mut links: BTreeSet<(usize, usize)> = (0..count).map(|at| (at, (at + 1) % count)).collect();
        match random.below(3) {
            0 => {}
            1 => links.extend((0..count).map(|at| ((at + 1) % count, at))),
            _ => {
                for _ in 0..random.below(count * count) {
                    links.insert((random.below(count), random.below(count)));
                }
            }
        }
        let policy = ReconnectPolicy { first_delay: Duration::from_nanos(2), max_delay: Duration::from_nanos(20) };
        let gate = |(from, to)| Gate {
            from,
            to,
            core: GatewayCore::new(1, limits, policy, seed + to as u64),
            demands: Vec::new(),
            is_link_up: true,
        };
        let gates = links.into_iter().filter(|(from, to)| from != to).map(gate).collect();
        let channels = (0..count).map(|_| Channel::default()).collect();
        World { random, now: 0, channels, gates, published: Vec::new(), has_cuts }
    }

    fn demands_of(&self, channel: usize) -> Vec<Demand> {
        let wanted = self.channels[channel].wanted.iter().map(|event_type| (*event_type, 0)).collect();
        let behind = self.gates.iter().filter(|gate| gate.from == channel).map(|gate| &gate.demands[..]);
        reported(id(channel), wanted, behind)
    }

    fn choose_wanted(&mut self) {
        let channel = self.random.below(self.channels.len());
        let event_type = TYPES.start + self.random.below(TYPES.len() - 1) as i32;
        let wanted = &mut self.channels[channel].wanted;
        if !wanted.remove(&event_type) {
            wanted.insert(event_type);
        }
    }

    fn publish(&mut self) {
        let channel = self.random.below(self.channels.len());
        // No consumer wants the last type, so its events must not cross.
        let event_type = TYPES.start + self.random.below(TYPES.len()) as i32;
        self.channels[channel].last_number += 1;
        let number = self.channels[channel].last_number;
        let event = SimEvent { event_type, ttl: 16, path: vec![id(channel)], number };
        let wanting = (0..self.channels.len()).filter(|at| self.channels[*at].wanted.contains(&event_type)).collect();
        self.published.push(((id(channel), number), wanting));
        self.route(channel, &event);
    }

    fn route(&mut self, channel: usize, event: &SimEvent) {
        let is_wanted_elsewhere = (0..self.channels.len())
            .any(|other| other != channel && self.channels[other].wanted.contains(&event.event_type));
        let Channel { wanted, got, .. } = &mut self.channels[channel];
        if wanted.contains(&event.event_type) {
            *got.entry((event.path[0], event.number)).or_default() += 1;
        }
        for gate in self.gates.iter_mut().filter(|gate| gate.from == channel) {
            if subscription(id(channel), &gate.demands).contains(&(event.event_type, 0)) {
                assert!(is_wanted_elsewhere, "type {} crosses, and no consumer wants it", event.event_type);
                gate.core.receive(0, event.clone(), EVENT_BYTES);
            }
        }
    }

    fn accept(&mut self, channel: usize, batch: &[SimEvent]) -> Accepted {
        let mut accepted = Accepted::default();
        for event in batch {
            match self.channels[channel].seen.note(event.path[0], event.number) {
                Arrival::New => {}
                Arrival::Duplicate => {
                    accepted.duplicates += 1;
                    continue;
                }
                Arrival::TooOld => panic!("few events are under way"),
            }
            let mut event = event.clone();
            event.path.push(id(channel));
            self.route(channel, &event);
        }
        accepted
    }

    fn forward(&mut self, at: usize) -> bool {
        let batch = self.gates[at].core.take(0, MAX_BATCH);
        if batch.is_empty() {
            return false;
        }
        let (to, is_up) = (self.gates[at].to, self.gates[at].is_link_up);
        let is_reply_lost = self.has_cuts && self.random.below(4) == 0;
        let accepted = if is_up { Some(self.accept(to, &batch)) } else { None };
        let now = self.now;
        let core = &mut self.gates[at].core;
        match accepted.filter(|_| !is_reply_lost) {
            Some(accepted) => core.delivered(0, batch.len(), accepted),
            None => {
                core.failed(0, batch);
                core.lost(now);
            }
        }
        true
    }

    /// Lets a gateway ask its destination for the demands, or try to reach it. Returns true if
    /// something has changed.
    fn control(&mut self, at: usize) -> bool {
        let Gate { to, is_link_up, .. } = self.gates[at];
        let demands = self.demands_of(to);
        let now = self.now;
        let gate = &mut self.gates[at];
        let before = gate.core.state();
        if matches!(before, LinkState::Lost(at) if at > now) {
            return false;
        }
        if !is_link_up {
            gate.core.lost(now);
            return false;
        }
        if before != LinkState::Connected {
            gate.core.connected(id(to));
        }
        let has_changed = gate.demands != demands || before != LinkState::Connected;
        gate.demands = demands;
        has_changed
    }

    fn settle(&mut self) {
        self.has_cuts = false;
        self.gates.iter_mut().for_each(|gate| gate.is_link_up = true);
        for round in 0.. {
            assert!(round < 1_000, "the channels do not settle");
            self.now += 20;
            let mut has_changed = false;
            for at in 0..self.gates.len() {
                has_changed |= self.control(at);
                has_changed |= self.forward(at);
            }
            if !has_changed {
                return;
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.gates.iter().map(|gate| gate.core.counts().dropped_buffer_full).sum()
    }

    fn check(&self) {
        let mut missing = 0;
        for (event, wanting) in &self.published {
            for channel in wanting {
                match self.channels[*channel].got.get(event) {
                    Some(1) => {}
                    None => missing += 1,
                    times => panic!("{event:?} at {channel}: {times:?}"),
                }
            }
        }
        let got: u32 = self.channels.iter().flat_map(|channel| channel.got.values()).sum();
        let wanted: usize = self.published.iter().map(|(_, wanting)| wanting.len()).sum();
        assert_eq!(got as usize + missing, wanted);
        assert!(missing == 0 || self.dropped() > 0, "{missing} events are missing, and none was dropped");
        for gate in &self.gates {
            let counts = gate.core.counts();
            assert!(counts.is_balanced() && counts.waiting == 0 && gate.core.bytes() == 0, "{counts:?}");
        }
    }
}

const WIDE: QueueLimits = QueueLimits { max_delivery_sets: 100_000, max_bytes: usize::MAX };

fn run(seed: u64, limits: QueueLimits, has_cuts: bool) -> World {
    let mut world = World::new(seed, limits, has_cuts);
    (0..8).for_each(|_| world.choose_wanted());
    world.settle();
    world.has_cuts = has_cuts;
    for _ in 0..STEPS {
        world.now += 1;
        let gate = world.random.below(world.gates.len());
        match world.random.below(if has_cuts { 10 } else { 9 }) {
            0..4 => world.publish(),
            4..8 => {
                world.forward(gate);
            }
            8 => {
                world.control(gate);
            }
            _ => world.gates[gate].is_link_up = !world.gates[gate].is_link_up,
        }
    }
    world.settle();
    world.check();
    world
}

#[test]
fn every_wanted_event_reaches_each_consumer_once_while_links_are_up() {
    under_seeds(SEEDS, |seed| assert_eq!(run(seed, WIDE, false).dropped(), 0));
}

#[test]
fn every_wanted_event_reaches_each_consumer_once_after_links_were_cut() {
    under_seeds(SEEDS, |seed| assert_eq!(run(seed, WIDE, true).dropped(), 0));
}

#[test]
fn missing_events_are_counted_if_the_buffers_are_small() {
    let narrow = QueueLimits { max_delivery_sets: 5, max_bytes: 100 };
    let dropped = std::cell::Cell::new(0);
    under_seeds(SEEDS, |seed| dropped.set(dropped.get() + run(seed, narrow, true).dropped()));
    assert!(dropped.get() > 0 || std::env::var_os("CORELANE_SEED").is_some());
}

#[test]
fn demand_follows_the_consumers_and_ends_with_them() {
    under_seeds(SEEDS, |seed| {
        let mut world = World::new(seed, WIDE, false);
        for _ in 0..20 {
            (0..4).for_each(|_| world.choose_wanted());
            world.settle();
            (0..10).for_each(|_| world.publish());
            world.settle();
            world.check();
        }
        world.channels.iter_mut().for_each(|channel| channel.wanted.clear());
        world.settle();
        for gate in &world.gates {
            assert_eq!((&gate.demands[..], subscription(id(gate.from), &gate.demands).len()), (&[][..], 0));
        }
    });
}
