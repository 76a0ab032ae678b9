//! Tests of the controller: single scenarios, and an exploration of all orders of events.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;

const TICK: Nanos = 250_000_000;
const PACE: ControllerTiming = ControllerTiming { probe_interval: TICK, first_retry: TICK, max_retry: 2 * TICK };
const GOOD: ProbeResult =
    ProbeResult { capabilities: Capabilities::ALL, interface: InterfaceState::Up, hook: XdpHookState::Free };

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    in_place: Vec<FeatureStep>,
    facts: ProbeResult,
}

impl World {
    fn new(facts: ProbeResult) -> Self {
        Self { in_place: Vec::new(), facts }
    }

    fn probe(&self) -> ProbeResult {
        let is_attached =
            self.in_place.contains(&FeatureStep::SteeringProgram) && self.facts.hook == XdpHookState::Free;
        ProbeResult { hook: if is_attached { XdpHookState::Ours } else { self.facts.hook }, ..self.facts }
    }

    fn begin(&self, action: FeatureAction) {
        match action {
            FeatureAction::Probe => {}
            FeatureAction::Do(step) => {
                let later = self.in_place.iter().find(|other| **other >= step);
                assert_eq!(later, None, "{step:?} is done, but a later step is in place");
                if step == FeatureStep::SteeringProgram {
                    for needed in [FeatureStep::AfXdpRings, FeatureStep::KernelThreads, FeatureStep::ConnectionTable] {
                        assert!(self.in_place.contains(&needed), "frames would be sent where none takes them");
                    }
                }
            }
            FeatureAction::Undo(step) => {
                let later = self.in_place.iter().find(|other| **other > step);
                assert_eq!(later, None, "{step:?} is undone, but a later step is in place");
            }
        }
    }

    fn end(&mut self, action: FeatureAction, event: ActionResult) {
        match (action, event) {
            (FeatureAction::Do(step), ActionResult::Done) => self.in_place.push(step),
            (FeatureAction::Undo(step), _) => self.in_place.retain(|other| *other != step),
            _ => {}
        }
    }

    fn answer(&self, action: FeatureAction) -> ActionResult {
        match action {
            FeatureAction::Probe => ActionResult::Probed(self.probe()),
            _ => ActionResult::Done,
        }
    }
}

/// Runs the controller on the simulated machine for `time`. Every step succeeds.
fn run(controller: &mut FeatureController, world: &mut World, now: &mut Nanos, time: Nanos) -> Vec<LevelChange> {
    let (until, mut changes) = (*now + time, Vec::new());
    for _ in 0..10_000 {
        if let Some(action) = controller.poll(*now) {
            world.begin(action);
            let event = world.answer(action);
            world.end(action, event);
            changes.extend(controller.handle_result(event, *now));
        } else if *now >= until {
            return changes;
        } else {
            let next = controller.next_action_at(*now);
            assert!(next > *now, "the caller would not sleep: {controller:?}");
            *now = next.min(until);
        }
    }
    panic!("the controller does not come to rest: {controller:?}");
}

#[test]
fn controller_reaches_the_top_in_order() {
    let (mut controller, mut world, mut now) =
        (FeatureController::new(FeatureLevel::StreamSteering, PACE, 0), World::new(GOOD), 0);
    let changes = run(&mut controller, &mut world, &mut now, TICK / 2);
    assert_eq!(
        changes.iter().map(|change| change.to).collect::<Vec<_>>(),
        [FeatureLevel::SocketOptions, FeatureLevel::KernelPriorities, FeatureLevel::StreamSteering]
    );
    assert_eq!(world.in_place, FeatureStep::ALL);
    assert_eq!(controller.target_level(now), (FeatureLevel::StreamSteering, LevelLimit::Configured));
}

#[test]
fn each_missing_capability_has_its_level() {
    let lacking = |change: fn(&mut Capabilities)| {
        let mut facts = GOOD;
        change(&mut facts.capabilities);
        let (mut controller, mut world, mut now) =
            (FeatureController::new(FeatureLevel::StreamSteering, PACE, 0), World::new(facts), 0);
        run(&mut controller, &mut world, &mut now, 4 * TICK);
        (controller.level(), controller.target_level(now).1)
    };
    assert_eq!(lacking(|has| has.has_bpf = false), (FeatureLevel::KernelPriorities, LevelLimit::Capability("CAP_BPF")));
    assert_eq!(
        lacking(|has| has.has_net_raw = false),
        (FeatureLevel::KernelPriorities, LevelLimit::Capability("CAP_NET_RAW"))
    );
    assert_eq!(
        lacking(|has| has.has_sys_nice = false),
        (FeatureLevel::SocketOptions, LevelLimit::Capability("CAP_SYS_NICE"))
    );
    assert_eq!(
        lacking(|has| *has = Capabilities::default()),
        (FeatureLevel::SocketOptions, LevelLimit::Capability("CAP_NET_ADMIN"))
    );
}

#[test]
fn lost_feature_lowers_the_level_within_a_second() {
    let timing = ControllerTiming::default();
    let troubles = [
        (
            ProbeResult { interface: InterfaceState::Absent, ..GOOD },
            FeatureLevel::SocketOptions,
            LevelLimit::InterfaceAbsent,
        ),
        (ProbeResult { interface: InterfaceState::Down, ..GOOD }, FeatureLevel::KernelPriorities, LevelLimit::LinkDown),
        (ProbeResult { hook: XdpHookState::Foreign, ..GOOD }, FeatureLevel::KernelPriorities, LevelLimit::XdpHookTaken),
    ];
    for (trouble, level, limit) in troubles {
        let (mut controller, mut world, mut now) =
            (FeatureController::new(FeatureLevel::StreamSteering, timing, 0), World::new(GOOD), 0);
        run(&mut controller, &mut world, &mut now, 1_000_000_000);
        assert_eq!(controller.level(), FeatureLevel::StreamSteering);
        world.facts = trouble;
        let changes = run(&mut controller, &mut world, &mut now, 1_000_000_000);
        assert_eq!((controller.level(), world.in_place.len()), (level, level.steps()), "{trouble:?}");
        assert_eq!(changes.first().map(|change| change.limit), Some(limit), "{changes:?}");
        world.facts = GOOD;
        run(&mut controller, &mut world, &mut now, 1_000_000_000);
        assert_eq!(controller.level(), FeatureLevel::StreamSteering, "{trouble:?}");
    }
}

#[test]
fn failed_step_is_retried_with_growing_delays() {
    let timing = ControllerTiming { max_retry: 8 * TICK, ..PACE };
    let (mut controller, world, mut now) =
        (FeatureController::new(FeatureLevel::StreamSteering, timing, 0), World::new(GOOD), 0);
    let mut tries = Vec::new();
    while tries.len() < 7 {
        match controller.poll(now) {
            Some(action @ FeatureAction::Do(FeatureStep::ThreadedNapi)) => {
                tries.push(now / TICK);
                assert_eq!(controller.running, Some(action));
                controller.handle_result(ActionResult::Failed, now);
                assert_eq!(
                    controller.target_level(now),
                    (FeatureLevel::SocketOptions, LevelLimit::StepFailed(FeatureStep::ThreadedNapi))
                );
            }
            Some(action) => {
                controller.handle_result(world.answer(action), now);
            }
            None => now = controller.next_action_at(now),
        }
    }
    let gaps: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [1, 2, 4, 8, 8, 8]);
}

#[test]
fn skipped_step_does_not_prevent_the_level() {
    let (mut controller, world, now) =
        (FeatureController::new(FeatureLevel::StreamSteering, PACE, 0), World::new(GOOD), 0);
    while let Some(action) = controller.poll(now) {
        let event = if action == FeatureAction::Do(FeatureStep::TransmitClasses) {
            ActionResult::Skipped
        } else {
            world.answer(action)
        };
        controller.handle_result(event, now);
    }
    assert_eq!(
        (controller.level(), controller.is_in_place(FeatureStep::TransmitClasses)),
        (FeatureLevel::StreamSteering, false)
    );
    assert!(
        FeatureStep::ALL.into_iter().all(|step| controller.is_in_place(step) || step == FeatureStep::TransmitClasses)
    );
}

#[test]
fn shutdown_undoes_everything_in_the_reverse_order() {
    let (mut controller, mut world, mut now) =
        (FeatureController::new(FeatureLevel::StreamSteering, PACE, 0), World::new(GOOD), 0);
    run(&mut controller, &mut world, &mut now, TICK / 2);
    controller.set_requested(FeatureLevel::PlainTcp);
    let mut undone = Vec::new();
    while let Some(action) = controller.poll(now) {
        world.begin(action);
        world.end(action, ActionResult::Done);
        if let FeatureAction::Undo(step) = action {
            undone.push(step);
        }
        controller.handle_result(world.answer(action), now);
    }
    assert_eq!(undone, FeatureStep::ALL.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(controller.level(), FeatureLevel::PlainTcp);
}

/// The state that determines all later actions. Times are relative to the current time.
type Key = (
    (FeatureLevel, Option<ProbeResult>, usize, u8, Option<FeatureAction>, bool),
    (Nanos, Option<(FeatureLevel, LevelLimit, Nanos)>, Nanos),
    World,
);

fn key(controller: &FeatureController, world: &World, now: Nanos) -> Key {
    let failure =
        controller.failure.map(|failure| (failure.level, failure.limit, failure.retry_at.saturating_sub(now)));
    let state = (
        controller.requested,
        controller.facts,
        controller.done,
        controller.skipped,
        controller.running,
        controller.is_program_lost,
    );
    (state, (controller.probe_at.saturating_sub(now), failure, controller.retry), world.clone())
}

/// Visits each reachable state once. The events are results of each kind, faults that begin and end
/// at any time, changes of the configuration, and passing time.
#[test]
fn every_order_of_events_keeps_the_order_of_steps() {
    let worlds = [
        GOOD,
        ProbeResult { hook: XdpHookState::Foreign, ..GOOD },
        ProbeResult { interface: InterfaceState::Down, ..GOOD },
        ProbeResult { interface: InterfaceState::Absent, ..GOOD },
        ProbeResult { capabilities: Capabilities { has_bpf: false, ..Capabilities::ALL }, ..GOOD },
    ];
    let mut open =
        VecDeque::from([(FeatureController::new(FeatureLevel::StreamSteering, PACE, 0), World::new(GOOD), 0)]);
    let mut seen: HashSet<Key> = HashSet::new();
    let mut most: HashMap<FeatureLevel, usize> = HashMap::new();
    while let Some((controller, world, now)) = open.pop_front() {
        if !seen.insert(key(&controller, &world, now)) {
            continue;
        }
        assert!(seen.len() < 2_000_000, "too many states");
        *most.entry(controller.level()).or_default() += 1;
        check_state(&controller, &world);
        for facts in worlds {
            // A foreign program and the removal of the interface detach the steering program.
            let mut world = World { facts, ..world.clone() };
            if facts.hook == XdpHookState::Foreign || facts.interface == InterfaceState::Absent {
                world.in_place.retain(|step| *step != FeatureStep::SteeringProgram);
            }
            open.push_back((controller.clone(), world, now));
        }
        for requested in [FeatureLevel::PlainTcp, FeatureLevel::StreamSteering] {
            let mut controller = controller.clone();
            controller.set_requested(requested);
            open.push_back((controller, world.clone(), now));
        }
        open.push_back((controller.clone(), world.clone(), now + TICK));
        let mut polled = controller;
        if let Some(action) = polled.running.or_else(|| polled.poll(now)) {
            world.begin(action);
            let answers = match action {
                FeatureAction::Probe => vec![ActionResult::Probed(world.probe()), ActionResult::Failed],
                FeatureAction::Do(FeatureStep::TransmitClasses) => {
                    vec![ActionResult::Done, ActionResult::Skipped, ActionResult::Failed]
                }
                FeatureAction::Do(_) | FeatureAction::Undo(_) => vec![ActionResult::Done, ActionResult::Failed],
            };
            open.push_back((polled.clone(), world.clone(), now));
            for event in answers {
                let (mut controller, mut world) = (polled.clone(), world.clone());
                world.end(action, event);
                let before = controller.level();
                let change = controller.handle_result(event, now);
                assert_eq!(change.map_or(before, |change| change.to), controller.level());
                open.push_back((controller, world, now));
            }
        }
    }
    assert!(FeatureLevel::ALL.iter().all(|level| most.contains_key(level)), "{most:?}");
    println!("{} states: {most:?}", seen.len());
}

/// Checks the controller's record of the steps in place, except the program, which a fault can
/// detach.
fn check_state(controller: &FeatureController, world: &World) {
    let known: Vec<FeatureStep> = FeatureStep::ALL.into_iter().filter(|step| controller.is_in_place(*step)).collect();
    let in_place = world.in_place.iter().filter(|step| **step != FeatureStep::SteeringProgram);
    assert!(
        in_place.eq(known.iter().filter(|step| **step != FeatureStep::SteeringProgram)),
        "{controller:?} {world:?}"
    );
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap()
}

#[test]
fn requested_level_is_reached_after_faults_end() {
    let mut state = 1_u64;
    let mut random = |limit: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [first, second, third, fourth, ..] = state.to_be_bytes();
        u32::from_be_bytes([first, second, third, fourth]) % limit
    };
    for _ in 0..2_000 {
        let (mut controller, mut world, mut now) =
            (FeatureController::new(FeatureLevel::StreamSteering, ControllerTiming::default(), 0), World::new(GOOD), 0);
        for _ in 0..random(200) {
            match random(8) {
                0 => {
                    world.facts.interface =
                        [InterfaceState::Up, InterfaceState::Down, InterfaceState::Absent][index(random(3))]
                }
                1 => world.facts.hook = [XdpHookState::Free, XdpHookState::Foreign][index(random(2))],
                2 => now += u64::from(random(750)) * (TICK / 250),
                3 => controller.set_requested(FeatureLevel::ALL[index(random(4))]),
                _ => {
                    if let Some(action) = controller.poll(now) {
                        world.begin(action);
                        let is_failure = action != FeatureAction::Probe && random(5) == 0;
                        let event = if is_failure { ActionResult::Failed } else { world.answer(action) };
                        world.end(action, event);
                        controller.handle_result(event, now);
                    }
                }
            }
        }
        world.facts = GOOD;
        controller.set_requested(FeatureLevel::StreamSteering);
        run(&mut controller, &mut world, &mut now, 2 * ControllerTiming::default().max_retry);
        assert_eq!(
            (controller.level(), world.in_place.as_slice()),
            (FeatureLevel::StreamSteering, FeatureStep::ALL.as_slice())
        );
    }
}
