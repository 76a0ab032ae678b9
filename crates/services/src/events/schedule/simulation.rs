//! A simulation of admitted channels in virtual time. The simulator of `corelane-sched` runs the
//! jobs of the consumers: no job may miss its deadline. The channel's filters deliver the events:
//! no consumer may get more declared sets than its jobs allow for.

use std::collections::HashMap;
use std::sync::Arc;

use corelane_sched::analysis::max_arrivals;
use corelane_sched::random::Random;
use corelane_sched::simulation::{ArrivalPattern, CoreAssignment, SchedulingRule, SimulatedSystem, simulate};
use corelane_sched::task::Nanos;
use proptest::prelude::*;

use super::*;
use crate::events::expression::EventNames;
use crate::events::filter::{EventFilter, FilterLimits};
use crate::events::header::{EventHeader, EventSource, EventType};
use crate::events::subscriptions::{ConsumerId, Occurrence, Offered, SubscriptionLimits, Subscriptions};

const MS: Nanos = 1_000_000;

const FILTERS: [&str; 8] = [
    "type 16",
    "type 16 or type 17",
    "all(type 16, type 17)",
    "all(type 16 source 1, type 17, type 18)",
    "all(type 16 or type 18, type 17)",
    "all(type 16, interval 7ms)",
    "any",
    "type 16 or interval 5ms",
];

fn filter(expression: &str) -> EventFilter {
    EventFilter::parse(expression, &EventNames::new(), &FilterLimits::default()).unwrap()
}

fn publication(event_type: i32, source: i32, period: Nanos, wcet: Nanos, lane: usize) -> AdmittedPublication {
    let load = PublicationLoad { wcet: Some(wcet), lane, ..PublicationLoad::default() };
    let header = EventHeader::new(EventType(event_type), EventSource(source));
    AdmittedPublication { used: EntryUse { entry: 101, max_users: usize::MAX }, header, period, load }
}

fn consumer(proxy: u64, expression: &str) -> AdmittedConsumer {
    AdmittedConsumer { proxy, used: [].into(), filter: filter(expression).into(), load: SubscriptionLoad::default() }
}

fn empty() -> ChannelLoad {
    ChannelLoad { lanes: vec![20, 5, 1], ..ChannelLoad::default() }
}

fn supplier(load: &ChannelLoad, proxy: u64, publication: AdmittedPublication) -> Result<(), AdmissionRefusal> {
    load.clone().admit(proxy, Candidate::Supplier(vec![publication]))
}

fn subscriber(load: &ChannelLoad, new: AdmittedConsumer) -> Result<(), AdmissionRefusal> {
    load.clone().admit(new.proxy, Candidate::Consumer(Box::new(new)))
}

#[test]
fn refusal_names_lane_test_excess_and_what_would_fit() {
    let mut load = empty();
    load.consumers.push(consumer(7, "type 16 or type 17"));
    supplier(&load, 1, publication(16, 1, 10 * MS, 4 * MS, 0)).unwrap();
    load.publications.push(publication(16, 1, 10 * MS, 4 * MS, 0));
    // The second job needs 8 ms and is delayed by 4 ms, so it misses its deadline of 10 ms.
    let refusal = supplier(&load, 2, publication(17, 1, 10 * MS, 8 * MS, 1)).unwrap_err();
    assert_eq!((refusal.peer, refusal.proxy, refusal.consumer), (RefusedPeer::Supplier, 2, Some(7)));
    assert_eq!((refusal.lane, refusal.core, refusal.deadline_excess()), (5, 0, None));
    // 8 ms of the second job and two jobs of 4 ms take 16 ms, so the shortest period that fits is
    // 16 ms, 1.6 times the declared one.
    assert_eq!(refusal.admissible, Some(AdmissibleLoad::PeriodFactor(1_600)));
    let slower = publication(17, 1, 16 * MS, 8 * MS, 1);
    supplier(&load, 2, slower.clone()).unwrap();
    load.publications.push(slower);
    let late = AdmittedConsumer {
        load: SubscriptionLoad { wcet: Some(5 * MS), deadline: Some(6 * MS), ..SubscriptionLoad::default() },
        ..consumer(8, "type 16")
    };
    let refusal = subscriber(&load, late.clone()).unwrap_err();
    assert_eq!((refusal.peer, refusal.consumer, refusal.lane), (RefusedPeer::Consumer, Some(8), 20));
    assert_eq!(refusal.deadline_excess(), Some(3 * MS));
    let text = refusal.to_string();
    assert!(
        text.starts_with(
            "the consumer 8 does not fit the schedule: consumer 8 in the lane 20 on core 0: response time 9ms, \
             deadline 6ms, excess 3ms"
        ),
        "{text}"
    );
    // The refused consumer fits on another core.
    subscriber(&load, AdmittedConsumer { load: SubscriptionLoad { core: 1, ..late.load }, ..late }).unwrap();
}

#[test]
fn offered_execution_time_fits_and_a_longer_one_does_not() {
    let mut load = empty();
    load.publications.push(publication(16, 1, 10 * MS, 4 * MS, 0));
    load.consumers.push(consumer(7, "type 16"));
    let with = |wcet| AdmittedConsumer {
        load: SubscriptionLoad { wcet: Some(wcet), ..SubscriptionLoad::default() },
        ..consumer(8, "type 16")
    };
    let refusal = subscriber(&load, with(8 * MS)).unwrap_err();
    let Some(AdmissibleLoad::ExecutionTime(time)) = refusal.admissible else { panic!("{refusal}") };
    assert_eq!(time, 6 * MS);
    assert!(refusal.to_string().ends_with("; a wcet of 6ms would fit"), "{refusal}");
    subscriber(&load, with(time)).unwrap();
    assert!(subscriber(&load, with(time + 1)).is_err());
}

#[test]
fn a_load_without_an_execution_time_and_too_many_peers_are_refused() {
    let mut load = empty();
    let mut undeclared = publication(16, 1, 10 * MS, MS, 0);
    undeclared.load.wcet = None;
    load.publications.push(undeclared);
    let refusal = subscriber(&load, consumer(8, "type 16")).unwrap_err();
    assert_eq!(
        (refusal.failed_test, refusal.admissible),
        (ScheduleTest::NoExecutionTime, Some(AdmissibleLoad::ExecutionTime(10 * MS)))
    );
    // A timeout alone is in the least urgent lane, so its consumer is admitted.
    subscriber(&load, consumer(8, "interval 1ms")).unwrap();
    let mut load = empty();
    load.publications = vec![publication(16, 1, 10 * MS, 1, 0); 250];
    let parts = vec!["type 17"; 1_000].join(" or ");
    load.consumers = vec![consumer(7, &parts); 250];
    let refusal = subscriber(&load, consumer(8, "type 16")).unwrap_err();
    assert_eq!((refusal.failed_test, refusal.admissible), (ScheduleTest::TooComplex, None));
    let many = vec![publication(16, 1, 10 * MS, 1, 0); 300];
    let refusal = empty().admit(9, Candidate::Supplier(many)).unwrap_err();
    assert_eq!((refusal.failed_test, refusal.consumer), (ScheduleTest::ChannelLimit { max: 256 }, None));
}

#[test]
fn entry_has_at_most_its_maximum_of_users() {
    let using =
        |max_users, publication| AdmittedPublication { used: EntryUse { entry: 102, max_users }, ..publication };
    let mut load = empty();
    for source in 1..=2 {
        let new = using(2, publication(16, source, 10 * MS, 1, 0));
        supplier(&load, 1, new.clone()).unwrap();
        load.publications.push(new);
    }
    let refusal = supplier(&load, 3, using(2, publication(17, 1, 10 * MS, 1, 0))).unwrap_err();
    assert_eq!(
        (refusal.failed_test, refusal.peer),
        (ScheduleTest::EntryUsers { entry: 102, max: 2 }, RefusedPeer::Supplier)
    );
    let text = "the supplier 3 does not fit the schedule: the entry 102 has its maximum number of users, 2";
    assert_eq!(refusal.to_string(), text);
    supplier(&load, 3, publication(17, 1, 10 * MS, 1, 0)).unwrap();
    let with = |proxy| AdmittedConsumer {
        used: [EntryUse { entry: 201, max_users: 1 }].into(),
        load: SubscriptionLoad { wcet: Some(1), ..SubscriptionLoad::default() },
        ..consumer(proxy, "type 16")
    };
    load.consumers.push(with(7));
    let refusal = subscriber(&load, with(8)).unwrap_err();
    assert_eq!(
        (refusal.failed_test, refusal.peer),
        (ScheduleTest::EntryUsers { entry: 201, max: 1 }, RefusedPeer::Consumer)
    );
}

/// Offers random publications and consumers, and returns the admitted ones.
fn admitted(random: &mut Random) -> ChannelLoad {
    let mut load = empty();
    load.overhead = random.in_range(0, MS / 10);
    for proxy in 0..random.in_range(2, 10) {
        if random.random_index(2) == 0 {
            let (event_type, source) = (16 + random.random_index(3), 1 + random.random_index(2));
            let (period, wcet) = (random.in_range(2, 20) * MS, random.in_range(1, 2 * MS));
            let mut new = publication(
                i32::try_from(event_type).unwrap(),
                i32::try_from(source).unwrap(),
                period,
                wcet,
                random.random_index(2),
            );
            new.load.jitter = random.in_range(0, period / 2);
            if supplier(&load, proxy, new.clone()).is_ok() {
                load.publications.push(new);
            }
        } else {
            let mut new = consumer(proxy, FILTERS[random.random_index(FILTERS.len())]);
            new.load.core = u32::from(random.random_index(3) == 0);
            new.load.wcet = (random.random_index(2) == 0).then(|| random.in_range(1, 3 * MS));
            if subscriber(&load, new.clone()).is_ok() {
                load.consumers.push(new);
            }
        }
    }
    load
}

/// Simulates the jobs with random arrivals, each in one of its lanes. Returns the number of jobs.
fn simulate_jobs(load: &ChannelLoad, random: &mut Random) -> usize {
    let (_, jobs) = load.jobs();
    let tasks: Vec<_> = jobs.iter().filter_map(|job| job.timing.ok()).collect();
    assert_eq!(tasks.len(), jobs.len(), "each admitted job has its times");
    let core = |job: &ConsumerJob| load.consumers[job.subscription].load.core as usize;
    let cores = CoreAssignment::Partitioned(jobs.iter().map(core).collect());
    let mut system = SimulatedSystem::new(tasks.clone(), cores, SchedulingRule::FixedPriority);
    let level = |job: &ConsumerJob| random.in_range(job.lanes.0 as u64, job.lanes.1 as u64) as u32;
    system.levels = jobs.iter().map(level).collect();
    system.arrivals = tasks
        .iter()
        .map(|task| ArrivalPattern {
            offset: random.in_range(0, task.period),
            seed: (random.random_index(2) == 0).then(|| random.next_u64()),
            max_delay: random.in_range(0, task.period / 4),
        })
        .collect();
    for (task, seen) in tasks.iter().zip(simulate(&system, 400 * MS).tasks) {
        // Deadlines count from the moment at which a job is ready, after its jitter.
        assert!(seen.worst_response <= task.deadline + task.jitter, "{task:?} {seen:?} {load:?}");
    }
    jobs.len()
}

/// Pushes events of random suppliers, more than declared, through the meters and the filters, and
/// compares the consumers' sets of declared events with their jobs.
fn push_events(load: &ChannelLoad, random: &mut Random) {
    let mut subscriptions: Subscriptions<bool> = Subscriptions::new(SubscriptionLimits::default());
    let ids: HashMap<ConsumerId, usize> = (0..load.consumers.len())
        .map(|number| (subscriptions.add(Arc::clone(&load.consumers[number].filter), 0).unwrap(), number))
        .collect();
    let mut meters: Vec<RateMeter> =
        load.publications.iter().map(|it| RateMeter::new(it.period, it.load.jitter, None)).collect();
    let mut sets: Vec<Vec<Nanos>> = vec![Vec::new(); load.consumers.len()];
    let mut now = 0;
    for _ in 0..300 {
        now += random.in_range(0, 2 * MS);
        let Some(number) = (!meters.is_empty()).then(|| random.random_index(meters.len())) else { return };
        let is_declared = meters[number].take(1, now);
        let header = load.publications[number].header;
        let deliver = |id: ConsumerId, set: Offered<'_, bool>| {
            let set = match &set {
                Offered::Only(event) => std::slice::from_ref(event),
                Offered::Shared(set) => set,
            };
            let events =
                || set.iter().filter_map(|it| if let Occurrence::Event(event) = it { Some(*event) } else { None });
            if events().count() > 0 && events().all(|is_declared| is_declared) {
                sets[ids[&id]].push(now);
            }
        };
        subscriptions.push_owned(&header, is_declared, now, &|new, held| *new && !*held, deliver).unwrap();
    }
    let (_, jobs) = load.jobs();
    for (number, sets) in sets.iter().enumerate() {
        let own = || jobs.iter().filter(|job| job.subscription == number).filter_map(|job| job.timing.ok());
        for (first, from) in sets.iter().enumerate() {
            for (last, until) in sets.iter().enumerate().skip(first) {
                let bound: u64 = own().map(|timing| max_arrivals(&timing, until - from + 1)).sum();
                let count = (last - first + 1) as u64;
                assert!(count <= bound, "{count} sets from {from} to {until}, {bound} declared: {load:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn admitted_consumers_meet_their_deadlines(seed: u64) {
        let mut random = Random::new(seed);
        let load = admitted(&mut random);
        simulate_jobs(&load, &mut random);
        push_events(&load, &mut random);
    }
}

#[test]
fn random_channels_have_jobs() {
    let jobs = (0..20).map(|seed| simulate_jobs(&admitted(&mut Random::new(seed)), &mut Random::new(seed)));
    assert!(jobs.filter(|jobs| *jobs >= 2).count() >= 5);
}
