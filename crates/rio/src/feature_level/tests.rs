//! Tests of the ladder: single scenarios, and an exploration of all orders of events.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;

const TICK: Nanos = 250_000_000;
const PACE: LadderTiming = LadderTiming { probe_interval: TICK, first_retry: TICK, max_retry: 2 * TICK };
const GOOD: ProbeResult =
    ProbeResult { capabilities: Capabilities::ALL, interface: InterfaceState::Up, hook: XdpHook::Free };

/// A simulated machine under the ladder: its steps in place, and the result of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    in_place: Vec<RungStep>,
    facts: ProbeResult,
}

impl World {
    fn new(facts: ProbeResult) -> Self {
        Self { in_place: Vec::new(), facts }
    }

    fn probe(&self) -> ProbeResult {
        let is_attached = self.in_place.contains(&RungStep::Program) && self.facts.hook == XdpHook::Free;
        ProbeResult { hook: if is_attached { XdpHook::Ours } else { self.facts.hook }, ..self.facts }
    }

    /// Begins an action, and checks the order of the steps.
    fn begin(&self, action: RungAction) {
        match action {
            RungAction::Probe => {}
            RungAction::Do(step) => {
                let later = self.in_place.iter().find(|other| **other >= step);
                assert_eq!(later, None, "{step:?} is done, but a later step is in place");
                if step == RungStep::Program {
                    for needed in [RungStep::Rings, RungStep::Threads, RungStep::Connections] {
                        assert!(self.in_place.contains(&needed), "frames would be sent where none takes them");
                    }
                }
            }
            RungAction::Undo(step) => {
                let later = self.in_place.iter().find(|other| **other > step);
                assert_eq!(later, None, "{step:?} is undone, but a later step is in place");
            }
        }
    }

    fn end(&mut self, action: RungAction, event: RungEvent) {
        match (action, event) {
            (RungAction::Do(step), RungEvent::Done) => self.in_place.push(step),
            (RungAction::Undo(step), _) => self.in_place.retain(|other| *other != step),
            _ => {}
        }
    }

    fn answer(&self, action: RungAction) -> RungEvent {
        match action {
            RungAction::Probe => RungEvent::Probed(self.probe()),
            _ => RungEvent::Done,
        }
    }
}

/// Runs the ladder and the world for `time`. Every step succeeds.
fn run(ladder: &mut Ladder, world: &mut World, now: &mut Nanos, time: Nanos) -> Vec<RungChange> {
    let (until, mut changes) = (*now + time, Vec::new());
    for _ in 0..10_000 {
        if let Some(action) = ladder.poll(*now) {
            world.begin(action);
            let event = world.answer(action);
            world.end(action, event);
            changes.extend(ladder.handle(event, *now));
        } else if *now >= until {
            return changes;
        } else {
            let next = ladder.next_action_at(*now);
            assert!(next > *now, "the caller would not sleep: {ladder:?}");
            *now = next.min(until);
        }
    }
    panic!("the ladder does not come to rest: {ladder:?}");
}

#[test]
fn ladder_climbs_to_the_top_in_order() {
    let (mut ladder, mut world, mut now) = (Ladder::new(Rung::Streams, PACE, 0), World::new(GOOD), 0);
    let changes = run(&mut ladder, &mut world, &mut now, TICK / 2);
    assert_eq!(
        changes.iter().map(|change| change.to).collect::<Vec<_>>(),
        [Rung::Sockets, Rung::Steered, Rung::Streams]
    );
    assert_eq!(world.in_place, RungStep::ALL);
    assert_eq!(ladder.target(now), (Rung::Streams, RungLimit::Configured));
}

#[test]
fn each_missing_capability_has_its_rung() {
    let lacking = |change: fn(&mut Capabilities)| {
        let mut facts = GOOD;
        change(&mut facts.capabilities);
        let (mut ladder, mut world, mut now) = (Ladder::new(Rung::Streams, PACE, 0), World::new(facts), 0);
        run(&mut ladder, &mut world, &mut now, 4 * TICK);
        (ladder.rung(), ladder.target(now).1)
    };
    assert_eq!(lacking(|has| has.bpf = false), (Rung::Steered, RungLimit::Capability("CAP_BPF")));
    assert_eq!(lacking(|has| has.net_raw = false), (Rung::Steered, RungLimit::Capability("CAP_NET_RAW")));
    assert_eq!(lacking(|has| has.sys_nice = false), (Rung::Sockets, RungLimit::Capability("CAP_SYS_NICE")));
    assert_eq!(lacking(|has| *has = Capabilities::default()), (Rung::Sockets, RungLimit::Capability("CAP_NET_ADMIN")));
}

/// Each fault lowers the rung within a second, and the end of the fault restores it.
#[test]
fn lost_feature_lowers_the_rung_within_a_second() {
    let pace = LadderTiming::default();
    let troubles = [
        (ProbeResult { interface: InterfaceState::Absent, ..GOOD }, Rung::Sockets, RungLimit::InterfaceAbsent),
        (ProbeResult { interface: InterfaceState::Down, ..GOOD }, Rung::Steered, RungLimit::LinkDown),
        (ProbeResult { hook: XdpHook::Foreign, ..GOOD }, Rung::Steered, RungLimit::HookTaken),
    ];
    for (trouble, rung, limit) in troubles {
        let (mut ladder, mut world, mut now) = (Ladder::new(Rung::Streams, pace, 0), World::new(GOOD), 0);
        run(&mut ladder, &mut world, &mut now, 1_000_000_000);
        assert_eq!(ladder.rung(), Rung::Streams);
        world.facts = trouble;
        let changes = run(&mut ladder, &mut world, &mut now, 1_000_000_000);
        assert_eq!((ladder.rung(), world.in_place.len()), (rung, rung.steps()), "{trouble:?}");
        assert_eq!(changes.first().map(|change| change.limit), Some(limit), "{changes:?}");
        world.facts = GOOD;
        run(&mut ladder, &mut world, &mut now, 1_000_000_000);
        assert_eq!(ladder.rung(), Rung::Streams, "{trouble:?}");
    }
}

#[test]
fn failed_step_is_retried_with_growing_delays() {
    let pace = LadderTiming { max_retry: 8 * TICK, ..PACE };
    let (mut ladder, world, mut now) = (Ladder::new(Rung::Streams, pace, 0), World::new(GOOD), 0);
    let mut tries = Vec::new();
    while tries.len() < 7 {
        match ladder.poll(now) {
            Some(action @ RungAction::Do(RungStep::ThreadedNapi)) => {
                tries.push(now / TICK);
                assert_eq!(ladder.running, Some(action));
                ladder.handle(RungEvent::Failed, now);
                assert_eq!(ladder.target(now), (Rung::Sockets, RungLimit::StepFailed(RungStep::ThreadedNapi)));
            }
            Some(action) => {
                ladder.handle(world.answer(action), now);
            }
            None => now = ladder.next_action_at(now),
        }
    }
    let gaps: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [1, 2, 4, 8, 8, 8]);
}

#[test]
fn skipped_step_does_not_prevent_the_rung() {
    let (mut ladder, world, now) = (Ladder::new(Rung::Streams, PACE, 0), World::new(GOOD), 0);
    while let Some(action) = ladder.poll(now) {
        let event =
            if action == RungAction::Do(RungStep::TransmitClasses) { RungEvent::Skipped } else { world.answer(action) };
        ladder.handle(event, now);
    }
    assert_eq!((ladder.rung(), ladder.is_in_place(RungStep::TransmitClasses)), (Rung::Streams, false));
    assert!(RungStep::ALL.into_iter().all(|step| ladder.is_in_place(step) || step == RungStep::TransmitClasses));
}

#[test]
fn shutdown_undoes_everything_in_the_reverse_order() {
    let (mut ladder, mut world, mut now) = (Ladder::new(Rung::Streams, PACE, 0), World::new(GOOD), 0);
    run(&mut ladder, &mut world, &mut now, TICK / 2);
    ladder.set_wanted(Rung::Plain);
    let mut undone = Vec::new();
    while let Some(action) = ladder.poll(now) {
        world.begin(action);
        world.end(action, RungEvent::Done);
        if let RungAction::Undo(step) = action {
            undone.push(step);
        }
        ladder.handle(world.answer(action), now);
    }
    assert_eq!(undone, RungStep::ALL.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(ladder.rung(), Rung::Plain);
}

/// The state that determines all later actions. Times are relative to the present time.
type Key = (
    (Rung, Option<ProbeResult>, usize, u8, Option<RungAction>, bool),
    (Nanos, Option<(Rung, RungLimit, Nanos)>, Nanos),
    World,
);

fn key(ladder: &Ladder, world: &World, now: Nanos) -> Key {
    let failure = ladder.failure.map(|failure| (failure.rung, failure.limit, failure.retry_at.saturating_sub(now)));
    let state = (ladder.wanted, ladder.facts, ladder.done, ladder.skipped, ladder.running, ladder.is_program_lost);
    (state, (ladder.probe_at.saturating_sub(now), failure, ladder.retry), world.clone())
}

/// Explores every order of events, and visits each reachable state once. Events are answers of each
/// kind, faults that begin and end at any time, changes of the configuration, and passing time.
#[test]
fn every_order_of_events_keeps_the_order_of_steps() {
    let worlds = [
        GOOD,
        ProbeResult { hook: XdpHook::Foreign, ..GOOD },
        ProbeResult { interface: InterfaceState::Down, ..GOOD },
        ProbeResult { interface: InterfaceState::Absent, ..GOOD },
        ProbeResult { capabilities: Capabilities { bpf: false, ..Capabilities::ALL }, ..GOOD },
    ];
    let mut open = VecDeque::from([(Ladder::new(Rung::Streams, PACE, 0), World::new(GOOD), 0)]);
    let mut seen: HashSet<Key> = HashSet::new();
    let mut most: HashMap<Rung, usize> = HashMap::new();
    while let Some((ladder, world, now)) = open.pop_front() {
        if !seen.insert(key(&ladder, &world, now)) {
            continue;
        }
        assert!(seen.len() < 2_000_000, "too many states");
        *most.entry(ladder.rung()).or_default() += 1;
        check_state(&ladder, &world);
        for facts in worlds {
            // A program of another owner replaces the steering program, which is then detached.
            let mut world = World { facts, ..world.clone() };
            if facts.hook == XdpHook::Foreign || facts.interface == InterfaceState::Absent {
                world.in_place.retain(|step| *step != RungStep::Program);
            }
            open.push_back((ladder.clone(), world, now));
        }
        for wanted in [Rung::Plain, Rung::Streams] {
            let mut ladder = ladder.clone();
            ladder.set_wanted(wanted);
            open.push_back((ladder, world.clone(), now));
        }
        open.push_back((ladder.clone(), world.clone(), now + TICK));
        let mut polled = ladder;
        if let Some(action) = polled.running.or_else(|| polled.poll(now)) {
            world.begin(action);
            let answers = match action {
                RungAction::Probe => vec![RungEvent::Probed(world.probe()), RungEvent::Failed],
                RungAction::Do(RungStep::TransmitClasses) => {
                    vec![RungEvent::Done, RungEvent::Skipped, RungEvent::Failed]
                }
                RungAction::Do(_) | RungAction::Undo(_) => vec![RungEvent::Done, RungEvent::Failed],
            };
            open.push_back((polled.clone(), world.clone(), now));
            for event in answers {
                let (mut ladder, mut world) = (polled.clone(), world.clone());
                world.end(action, event);
                let before = ladder.rung();
                let change = ladder.handle(event, now);
                assert_eq!(change.map_or(before, |change| change.to), ladder.rung());
                open.push_back((ladder, world, now));
            }
        }
    }
    assert!(Rung::ALL.iter().all(|rung| most.contains_key(rung)), "{most:?}");
    println!("{} states: {most:?}", seen.len());
}

/// Checks that the ladder's record of the steps in place is correct.
fn check_state(ladder: &Ladder, world: &World) {
    let known: Vec<RungStep> = RungStep::ALL.into_iter().filter(|step| ladder.is_in_place(*step)).collect();
    let in_place = world.in_place.iter().filter(|step| **step != RungStep::Program);
    assert!(in_place.eq(known.iter().filter(|step| **step != RungStep::Program)), "{ladder:?} {world:?}");
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap()
}

/// Starts from states in the middle of changes. After the faults end, the ladder reaches the wanted
/// rung.
#[test]
fn wanted_rung_is_reached_after_faults_end() {
    let mut state = 1_u64;
    let mut random = |limit: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [first, second, third, fourth, ..] = state.to_be_bytes();
        u32::from_be_bytes([first, second, third, fourth]) % limit
    };
    for _ in 0..2_000 {
        let (mut ladder, mut world, mut now) =
            (Ladder::new(Rung::Streams, LadderTiming::default(), 0), World::new(GOOD), 0);
        for _ in 0..random(200) {
            match random(8) {
                0 => {
                    world.facts.interface =
                        [InterfaceState::Up, InterfaceState::Down, InterfaceState::Absent][index(random(3))]
                }
                1 => world.facts.hook = [XdpHook::Free, XdpHook::Foreign][index(random(2))],
                2 => now += u64::from(random(750)) * (TICK / 250),
                3 => ladder.set_wanted(Rung::ALL[index(random(4))]),
                _ => {
                    if let Some(action) = ladder.poll(now) {
                        world.begin(action);
                        let is_failure = action != RungAction::Probe && random(5) == 0;
                        let event = if is_failure { RungEvent::Failed } else { world.answer(action) };
                        world.end(action, event);
                        ladder.handle(event, now);
                    }
                }
            }
        }
        world.facts = GOOD;
        ladder.set_wanted(Rung::Streams);
        run(&mut ladder, &mut world, &mut now, 2 * LadderTiming::default().max_retry);
        assert_eq!((ladder.rung(), world.in_place.as_slice()), (Rung::Streams, RungStep::ALL.as_slice()));
    }
}
