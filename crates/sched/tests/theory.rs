//! Tests that compare the analysis with the simulator, over random task sets.
//!
//! `CORELANE_SEED=n cargo test -p corelane-sched --test theory` runs one seed, and
//! `CORELANE_SEEDS=n` runs the first n seeds.

use corelane_sched::allocation::baseline;
use corelane_sched::allocation::{
    self, AllocationStep, Core, Discipline, Machine, Overheads, RequestReading, TaskSet, admit,
};
use corelane_sched::analysis::server::{self, AperiodicServer, ServerKind};
use corelane_sched::analysis::{StepBudget, bounds, demand, priorities, response_time};
use corelane_sched::random::Random;
use corelane_sched::simulation::{ArrivalPattern, CoreAssignment, SchedulingRule, SimulatedSystem, simulate};
use corelane_sched::task::{CoreId, Task, TaskId, Timing, Utilization};

const MS: u64 = 1_000_000;

fn each_seed(usual: u64, mut work: impl FnMut(&mut Random, u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("CORELANE_SEED") {
        Some(seed) => work(&mut Random::new(seed), seed),
        None => (0..number("CORELANE_SEEDS").unwrap_or(usual)).for_each(|seed| work(&mut Random::new(seed), seed)),
    }
}

/// Returns true if the default seeds run. Only then may a test check the number of each outcome.
fn all_seeds_run() -> bool {
    ["CORELANE_SEED", "CORELANE_SEEDS"].iter().all(|name| std::env::var_os(name).is_none())
}

/// Periods that divide 240, so that a simulation of 240 units covers every phase.
const PERIODS: [u64; 10] = [4, 5, 6, 8, 10, 12, 20, 24, 30, 60];

fn small_set(random: &mut Random, most: u64) -> Vec<Timing> {
    let count = random.in_range(1, most);
    let mut one = || {
        let period = PERIODS[random.random_index(PERIODS.len())];
        let execution = random.in_range(1, (period / 2).max(1));
        Timing::new(execution, period).with_deadline(random.in_range(execution, period))
    };
    (0..count).map(|_| one()).collect()
}

fn on_one_core(tasks: &[Timing], rule: SchedulingRule) -> SimulatedSystem {
    SimulatedSystem::new(tasks.to_vec(), CoreAssignment::Partitioned(vec![0; tasks.len()]), rule)
}

#[test]
fn response_times_equal_simulation_from_the_critical_instant() {
    let mut seen = [0; 2];
    each_seed(3_000, |random, seed| {
        let set = small_set(random, 5);
        let tasks: Vec<Timing> =
            priorities::deadline_monotonic_order(&set).into_iter().map(|place| set[place]).collect();
        let outcome = simulate(&on_one_core(&tasks, SchedulingRule::FixedPriority), 241);
        let found = response_time::response_times(&tasks);
        for (place, (observed, response)) in outcome.tasks.iter().zip(&found).enumerate() {
            let meets = response.is_some_and(|response| response.meets_deadline_of(&tasks[place]));
            assert_eq!(
                meets,
                observed.missed == 0,
                "seed {seed}, task {place} of {tasks:?}: {response:?}, {observed:?}"
            );
            if meets {
                let response = response.expect("the task meets its deadline").from_arrival;
                assert_eq!(response, observed.worst_response, "seed {seed}, task {place} of {tasks:?}");
            }
            seen[usize::from(meets)] += 1;
        }
    });
    assert!(!all_seeds_run() || seen.iter().all(|count| *count > 100), "{seen:?}");
}

#[test]
fn the_demand_test_agrees_with_the_simulator() {
    let mut seen = [0; 2];
    each_seed(3_000, |random, seed| {
        let tasks = small_set(random, 5);
        let outcome = simulate(&on_one_core(&tasks, SchedulingRule::EarliestDeadlineFirst), 241);
        let fits = demand::is_schedulable(&tasks);
        assert_eq!(fits, !outcome.has_misses(), "seed {seed}: {tasks:?}");
        seen[usize::from(fits)] += 1;
    });
    assert!(!all_seeds_run() || seen.iter().all(|count| *count > 100), "{seen:?}");
}

#[test]
fn sets_accepted_by_sufficient_tests_pass_the_exact_test() {
    each_seed(3_000, |random, seed| {
        let mut set = small_set(random, 6);
        if random.in_range(0, 1) == 0 {
            set.iter_mut().for_each(|task| task.deadline = task.period);
        }
        let tasks: Vec<Timing> = priorities::rate_monotonic_order(&set).into_iter().map(|place| set[place]).collect();
        let exact = response_time::all_meet_deadlines(&tasks);
        assert!(!bounds::passes_liu_layland(&tasks) || bounds::passes_hyperbolic(&tasks), "seed {seed}: {tasks:?}");
        assert!(!bounds::passes_hyperbolic(&tasks) || exact, "seed {seed}: {tasks:?}");
        for (place, task) in tasks.iter().enumerate() {
            let Some(bound) = bounds::response_time_bound(task, &tasks[..place]) else { continue };
            let response = response_time::response_time(task, &tasks[..place]).expect("a bound").from_arrival;
            assert!(bound >= response, "seed {seed}: {bound} is below {response} for task {place} of {tasks:?}");
        }
    });
}

#[test]
fn periodic_tasks_within_their_bound_are_schedulable_beside_a_server() {
    each_seed(20_000, |random, seed| {
        let kinds = [ServerKind::Polling, ServerKind::Deferrable, ServerKind::Sporadic];
        let kind = kinds[random.random_index(kinds.len())];
        let period = 1_000_000;
        let server = AperiodicServer { kind, budget: random.in_range(1, period * 3 / 4), period };
        let shortest = if kind == ServerKind::Deferrable { period + server.budget } else { period };
        let count = random.in_range(1, 4);
        let periods: Vec<u64> = (0..count).map(|_| random.in_range(shortest, 4 * shortest)).collect();
        let share = server.as_periodic_task().utilization();
        let mut left = server::max_periodic_utilization(kind, share, count as u32).0;
        let mut tasks: Vec<Timing> = vec![server.as_periodic_task()];
        for (place, &period) in periods.iter().enumerate() {
            let part = if place + 1 == periods.len() { left } else { random.in_range(0, left) };
            left -= part;
            tasks.push(Timing::new(period * part / Utilization::ONE.0, period));
        }
        tasks[1..].sort_by_key(|task| task.period);
        for place in 1..tasks.len() {
            assert!(response_time::meets_deadline(&tasks[place], &tasks[..place]), "seed {seed}: {tasks:?}");
        }
    });
}

#[test]
fn audsley_finds_an_order_whenever_one_exists() {
    each_seed(400, |random, seed| {
        let mut set = small_set(random, 4);
        for task in &mut set {
            task.deadline = random.in_range(task.execution, task.period + 6);
            task.blocking = random.in_range(0, 2);
        }
        let exists = permutations(set.len()).into_iter().any(|order| {
            response_time::all_meet_deadlines(&order.into_iter().map(|place| set[place]).collect::<Vec<_>>())
        });
        let found = priorities::audsley_order(&set);
        assert_eq!(found.is_some(), exists, "seed {seed}: {set:?}");
        if let Some(order) = found {
            let tasks: Vec<Timing> = order.into_iter().map(|place| set[place]).collect();
            assert!(response_time::all_meet_deadlines(&tasks), "seed {seed}: {tasks:?}");
        }
    });
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let insert = |shorter: Vec<usize>| {
        (0..count).map(move |place| {
            let mut longer = shorter.clone();
            longer.insert(place, count - 1);
            longer
        })
    };
    permutations(count - 1).into_iter().flat_map(insert).collect()
}

fn machine(cores: u32, discipline: Discipline) -> Machine {
    let mut machine = Machine { discipline, ..Machine::with_cores(cores) };
    machine.cores.iter_mut().for_each(|core| core.capacity = Utilization::ONE);
    machine
}

fn place(machine: &Machine, core: CoreId) -> usize {
    machine.cores.iter().position(|other| other.id == core).expect("a core of the machine")
}

/// Returns the simulated system of an admitted set. Each job takes the machine's overhead in
/// addition to its execution time.
fn as_system(set: &TaskSet, machine: &Machine, random: &mut Random) -> SimulatedSystem {
    let promises = allocation::task_placements(set, machine);
    let timing = |id: TaskId| set.iter().find(|(task, _)| task.id == id).expect("a task of the set").0.timing;
    let overheads = &machine.overheads;
    let tasks: Vec<Timing> = promises
        .iter()
        .map(|promise| {
            let timing = timing(promise.task);
            let distance = timing.min_interarrival.saturating_sub(overheads.release_jitter);
            timing.with_jitter(timing.jitter + overheads.release_jitter).with_min_interarrival(distance)
        })
        .collect();
    let arrivals = |timing: &Timing| ArrivalPattern {
        offset: random.in_range(0, timing.period),
        seed: Some(random.next_u64()),
        max_delay: timing.period / 4 * random.in_range(0, 1),
    };
    let rule = match machine.discipline {
        Discipline::EarliestDeadlineFirst => SchedulingRule::EarliestDeadlineFirst,
        Discipline::FixedPriority | Discipline::LiuLayland => SchedulingRule::FixedPriority,
    };
    let cores = promises.iter().map(|promise| place(machine, promise.core)).collect();
    SimulatedSystem {
        arrivals: tasks.iter().map(arrivals).collect(),
        levels: promises.iter().map(|promise| promise.level).collect(),
        overhead: overheads.context_switch * 2 + overheads.hand_off,
        ..SimulatedSystem::new(tasks, CoreAssignment::Partitioned(cores), rule)
    }
}

fn random_machine(random: &mut Random, discipline: Discipline) -> Machine {
    let mut machine = machine(random.in_range(1, 3) as u32, discipline);
    if random.in_range(0, 1) == 0 && discipline != Discipline::LiuLayland {
        machine.overheads = Overheads {
            context_switch: random.in_range(0, 200_000),
            hand_off: random.in_range(0, 300_000),
            release_jitter: random.in_range(0, MS),
            blocking: 0,
        };
    }
    if random.in_range(0, 2) == 0 {
        machine.max_priority_levels = random.in_range(1, 4) as u32;
    }
    machine
}

fn random_task(random: &mut Random, id: u64, discipline: Discipline) -> Task {
    let period = random.in_range(5, 100) * MS;
    let execution = random.in_range(MS, period * 6 / 10);
    let timing = Timing::new(execution, period);
    let timing = match (discipline, random.in_range(0, 3)) {
        (Discipline::LiuLayland, _) | (_, 0 | 1) => timing,
        (_, 2) => timing.with_deadline(random.in_range(execution, period)),
        _ => timing.with_deadline(random.in_range(period, 2 * period)),
    };
    Task::new(TaskId(id), timing).expect("a timing in range")
}

const DISCIPLINES: [Discipline; 3] =
    [Discipline::FixedPriority, Discipline::LiuLayland, Discipline::EarliestDeadlineFirst];

#[test]
fn admitted_tasks_never_miss() {
    let mut steps_found = std::collections::HashMap::new();
    let mut shared = 0;
    each_seed(100, |random, seed| {
        for discipline in DISCIPLINES {
            let machine = random_machine(random, discipline);
            let mut set = TaskSet::for_machine(&machine);
            for id in 0..random.in_range(4, 16) {
                let task = random_task(random, id, discipline);
                match admit(&set, &machine, &task) {
                    Ok(plan) => {
                        *steps_found.entry(plan.found_by_step).or_insert(0) += 1;
                        let response = plan.response;
                        set.apply(&plan);
                        assert!(allocation::is_schedulable(&set, &machine), "seed {seed}: {plan:?}");
                        let promises = allocation::task_placements(&set, &machine);
                        assert!(promises.iter().all(|promise| promise.is_schedulable), "seed {seed}: {promises:?}");
                        let own =
                            promises.iter().find(|promise| promise.task == task.id).expect("the task was admitted");
                        assert_eq!((own.core, own.response), (plan.core, response), "seed {seed}");
                    }
                    Err(rejection) => assert_eq!(rejection.task, task.id),
                }
            }
            let system = as_system(&set, &machine, random);
            shared += usize::from(system.levels.len() > machine.max_priority_levels as usize * machine.cores.len());
            let outcome = simulate(&system, 2_000 * MS);
            assert!(!outcome.has_misses() && !outcome.is_truncated, "seed {seed}, {discipline:?}: {set:?}");
            for (observed, promise) in outcome.tasks.iter().zip(allocation::task_placements(&set, &machine)) {
                assert!(
                    promise.response.is_none_or(|response| observed.worst_response <= response),
                    "seed {seed}: {promise:?}"
                );
            }
        }
    });
    if all_seeds_run() {
        for step in [AllocationStep::Direct, AllocationStep::Move, AllocationStep::Swap, AllocationStep::Repack] {
            assert!(steps_found.contains_key(&step), "expected a plan found by {step:?}: {steps_found:?}");
        }
        assert!(shared > 0, "expected a set with more tasks than levels");
    }
}

fn with_interference(mut system: SimulatedSystem, machine: &Machine, random: &mut Random) -> SimulatedSystem {
    system.levels.iter_mut().for_each(|level| *level += 1);
    let CoreAssignment::Partitioned(cores) = &mut system.cores else { panic!("a partitioned system") };
    for (place, core) in machine.cores.iter().enumerate() {
        for timing in &core.interference {
            // The simulator adds the overhead to every job, the analysis only to jobs of tasks. So
            // the overhead is subtracted from this job first.
            system.tasks.push(Timing { execution: timing.execution - system.overhead, ..*timing });
            system.levels.push(0);
            system.arrivals.push(ArrivalPattern { offset: 0, seed: Some(random.next_u64()), max_delay: 0 });
            cores.push(place);
        }
    }
    system
}

#[test]
fn admitted_tasks_never_miss_beside_interference_and_jitter() {
    let mut admitted = [0; 3];
    each_seed(150, |random, seed| {
        for (index, discipline) in DISCIPLINES.into_iter().enumerate() {
            let mut machine = random_machine(random, discipline);
            // Under earliest deadline first the simulator cannot run work at a priority above all
            // tasks, so the cores have no interference.
            let most = if discipline == Discipline::EarliestDeadlineFirst { 0 } else { 2 };
            let has_jitter = discipline != Discipline::LiuLayland;
            for core in &mut machine.cores {
                for _ in 0..random.in_range(0, most) {
                    let period = random.in_range(5, 100) * MS;
                    let timing = Timing::new(random.in_range(MS, period / 4), period);
                    let jitter = if has_jitter { random.in_range(0, period) } else { 0 };
                    core.interference.push(timing.with_jitter(jitter));
                }
            }
            let mut set = TaskSet::for_machine(&machine);
            for id in 0..random.in_range(4, 12) {
                let mut task = random_task(random, id, discipline);
                if has_jitter && random.in_range(0, 1) == 0 {
                    task.timing.jitter = random.in_range(0, task.timing.deadline - task.timing.execution);
                    task.timing.min_interarrival = random.in_range(0, task.timing.period);
                }
                if let Ok(plan) = admit(&set, &machine, &task) {
                    set.apply(&plan);
                }
            }
            admitted[index] += set.len();
            let mut system = as_system(&set, &machine, random);
            if random.in_range(0, 1) == 0 {
                system.arrivals.iter_mut().for_each(|arrivals| arrivals.offset = 0);
            }
            let system = with_interference(system, &machine, random);
            let outcome = simulate(&system, 2_000 * MS);
            for (observed, promise) in outcome.tasks.iter().zip(allocation::task_placements(&set, &machine)) {
                assert_eq!(observed.missed, 0, "seed {seed}, {discipline:?}: {promise:?} of {set:?} on {machine:?}");
                assert!(
                    promise.response.is_none_or(|response| observed.worst_response <= response),
                    "seed {seed}: {promise:?}"
                );
            }
        }
    });
    assert!(!all_seeds_run() || admitted.iter().all(|count| *count > 300), "{admitted:?}");
}

/// The simulator runs the reading as work above all tasks, and delays each job by up to the longest
/// wait for the reading.
#[test]
fn admitted_tasks_never_miss_beside_the_reading_of_their_requests() {
    let (mut admitted, mut moved) = (0, 0);
    each_seed(100, |random, seed| {
        let mut machine = machine(random.in_range(1, 3) as u32, Discipline::FixedPriority);
        let core = machine.cores[random.in_range(0, machine.cores.len() as u64 - 1) as usize].id;
        let core = (random.in_range(0, 1) == 0).then_some(core);
        machine.reading = Some(RequestReading { cost: random.in_range(10_000, MS), core });
        let mut set = TaskSet::for_machine(&machine);
        for id in 0..random.in_range(4, 12) {
            let Ok(plan) = admit(&set, &machine, &random_task(random, id, machine.discipline)) else { continue };
            set.apply(&plan);
            moved += plan.moves.len();
            assert!(allocation::is_schedulable(&set, &machine), "seed {seed}: {plan:?}");
            let placed = allocation::task_placements(&set, &machine);
            let own = placed.iter().find(|placed| placed.task == plan.task.id).expect("the task was admitted");
            assert_eq!((own.core, own.response), (plan.core, plan.response), "seed {seed}");
        }
        admitted += set.len();
        let counted = machine.with_reading_of(set.iter().map(|(task, _)| task));
        let system = with_interference(as_system(&set, &counted, random), &counted, random);
        for (observed, promise) in
            simulate(&system, 2_000 * MS).tasks.iter().zip(allocation::task_placements(&set, &machine))
        {
            assert_eq!(observed.missed, 0, "seed {seed}: {promise:?} of {set:?} on {machine:?}");
            assert!(
                promise.response.is_none_or(|response| observed.worst_response <= response),
                "seed {seed}: {promise:?}"
            );
        }
    });
    assert!(!all_seeds_run() || (admitted > 200 && moved > 10), "{admitted} {moved}");
}

#[test]
fn a_lost_core_costs_no_other_core_a_deadline() {
    let mut lost_jobs = 0;
    each_seed(60, |random, seed| {
        for discipline in [Discipline::FixedPriority, Discipline::EarliestDeadlineFirst] {
            let machine = machine(2, discipline);
            let tasks: Vec<Task> = (0..8).map(|id| random_task(random, id, discipline)).collect();
            let (set, _) = allocation::admit_all(&machine, &tasks);
            let lost = random.random_index(2);
            let mut system = as_system(&set, &machine, random);
            system.lost_core = Some((lost, random.in_range(0, 500 * MS)));
            let outcome = simulate(&system, 1_000 * MS);
            let CoreAssignment::Partitioned(cores) = &system.cores else { panic!("a partitioned system") };
            for (observed, core) in outcome.tasks.iter().zip(cores) {
                assert!(*core == lost || observed.missed == 0, "seed {seed}: {set:?}");
                lost_jobs += observed.missed;
            }
            let survivor: Vec<Core> =
                machine.cores.iter().filter(|core| core.id.core as usize != lost).cloned().collect();
            let rest = Machine { cores: survivor, ..machine.clone() };
            let (kept, _) = allocation::admit_all(&rest, &tasks);
            assert!(!simulate(&as_system(&kept, &rest, random), 1_000 * MS).has_misses(), "seed {seed}: {kept:?}");
        }
    });
    assert!(!all_seeds_run() || lost_jobs > 0);
}

#[test]
fn rejected_tasks_miss_from_the_critical_instant() {
    let mut rejected = [0; 2];
    each_seed(300, |random, seed| {
        for (index, (discipline, rule)) in [
            (Discipline::FixedPriority, SchedulingRule::FixedPriority),
            (Discipline::EarliestDeadlineFirst, SchedulingRule::EarliestDeadlineFirst),
        ]
        .into_iter()
        .enumerate()
        {
            let machine = machine(1, discipline);
            let mut set = TaskSet::for_machine(&machine);
            for (id, timing) in (0..).zip(small_set(random, 7)) {
                // `small_set` counts time in units of 100 us. Its shortest period is 4 units, which
                // admission accepts.
                let scaled = Timing::new(timing.execution * 100_000, timing.period * 100_000);
                let task = Task::new(TaskId(id), scaled.with_deadline(timing.deadline * 100_000)).expect("in range");
                let Err(rejection) = admit(&set, &machine, &task) else {
                    set.insert(task, machine.cores[0].id);
                    continue;
                };
                assert!(rejection.is_exhaustive, "seed {seed}: {rejection}");
                let mut timings: Vec<Timing> = set.iter().map(|(task, _)| task.timing).chain([task.timing]).collect();
                timings.sort_by_key(|timing| timing.deadline);
                let outcome = simulate(&on_one_core(&timings, rule), 24_100_000);
                assert!(outcome.has_misses(), "seed {seed}, {discipline:?}: {timings:?}, {rejection}");
                rejected[index] += 1;
                if let Some(longest) = rejection.max_fitting_execution {
                    let mut fits = task;
                    fits.timing.execution = longest;
                    assert!(admit(&set, &machine, &fits).is_ok(), "seed {seed}: {rejection}");
                }
            }
        }
    });
    assert!(!all_seeds_run() || rejected.iter().all(|count| *count > 50), "{rejected:?}");
}

#[test]
fn shared_levels_are_the_fewest_and_hold_in_the_simulator() {
    let mut seen = [0; 5];
    each_seed(400, |random, seed| {
        let set = small_set(random, 4);
        let holds = |levels: &[u32]| {
            (0..set.len()).all(|place| {
                let others = (0..set.len()).filter(|&other| other != place && levels[other] <= levels[place]);
                response_time::meets_deadline(&set[place], &others.map(|other| set[other]).collect::<Vec<_>>())
            })
        };
        let found = priorities::fewest_priority_levels(&[], &set, &mut StepBudget::default());
        let count = |levels: &[u32]| levels.iter().max().map_or(0, |last| last + 1);
        let all = (0..1_u32 << (2 * set.len()))
            .map(|choice| -> Vec<u32> { (0..set.len()).map(|place| (choice >> (2 * place)) & 3).collect() });
        let fewest = all.filter(|levels| holds(levels)).map(|levels| count(&levels)).min();
        assert_eq!(found.as_ref().map(|levels| count(levels)), fewest, "seed {seed}: {set:?}");
        let Some(levels) = found else { return };
        assert!(holds(&levels), "seed {seed}: {set:?}, {levels:?}");
        seen[count(&levels) as usize] += 1;
        let arrivals = |timing: &Timing| ArrivalPattern {
            offset: random.in_range(0, timing.period),
            seed: Some(random.next_u64()),
            max_delay: random.in_range(0, 3),
        };
        let arrivals = set.iter().map(arrivals).collect();
        let system = SimulatedSystem { levels, arrivals, ..on_one_core(&set, SchedulingRule::FixedPriority) };
        assert!(!simulate(&system, 5_000).has_misses(), "seed {seed}: {system:?}");
    });
    assert!(!all_seeds_run() || (seen[1] > 0 && seen[2] > 0 && seen[3] > 0), "{seen:?}");
}

#[test]
fn deadline_monotonic_order_is_optimal_with_jitter_and_one_blocking_time() {
    let mut seen = [0; 2];
    each_seed(1_000, |random, seed| {
        let mut set = small_set(random, 5);
        let blocking = random.in_range(0, 2);
        for task in &mut set {
            task.jitter = random.in_range(0, task.deadline - task.execution);
            task.blocking = blocking;
        }
        let order = priorities::deadline_monotonic_order(&set);
        let holds = response_time::all_meet_deadlines(&order.iter().map(|&place| set[place]).collect::<Vec<_>>());
        assert_eq!(holds, priorities::audsley_order(&set).is_some(), "seed {seed}: {set:?}");
        seen[usize::from(holds)] += 1;
    });
    assert!(!all_seeds_run() || seen.iter().all(|count| *count > 50), "{seen:?}");
}

#[test]
fn global_sets_that_a_baseline_accepts_never_miss() {
    let mut accepted = [0; 3];
    each_seed(1_500, |random, seed| {
        let cores = random.in_range(1, 3) as u32;
        let mut set = small_set(random, 6);
        if random.in_range(0, 1) == 0 {
            set.iter_mut().for_each(|task| task.deadline = task.period);
        }
        set.sort_by_key(|task| task.period);
        let verdicts = [
            (baseline::passes_global_edf_density(&set, cores), SchedulingRule::EarliestDeadlineFirst),
            (baseline::passes_global_edf_interference(&set, cores), SchedulingRule::EarliestDeadlineFirst),
            (baseline::passes_global_rate_monotonic(&set, cores), SchedulingRule::FixedPriority),
        ];
        for (index, (is_accepted, rule)) in verdicts.into_iter().enumerate() {
            if !is_accepted {
                continue;
            }
            accepted[index] += 1;
            let arrivals = set.iter().map(|task| ArrivalPattern {
                offset: random.in_range(0, task.period),
                seed: Some(random.next_u64()),
                max_delay: random.in_range(0, 4),
            });
            let arrivals = arrivals.collect();
            let system = SimulatedSystem {
                arrivals,
                ..SimulatedSystem::new(set.clone(), CoreAssignment::Global { core_count: cores as usize }, rule)
            };
            assert!(!simulate(&system, 1_000).has_misses(), "seed {seed}, {cores} cores: {system:?}");
            let together = SimulatedSystem { arrivals: Vec::new(), ..system };
            assert!(!simulate(&together, 1_000).has_misses(), "seed {seed}, {cores} cores: {together:?}");
        }
    });
    assert!(!all_seeds_run() || accepted.iter().all(|count| *count > 100), "{accepted:?}");
}

#[test]
fn the_search_accepts_whatever_some_placement_allows() {
    let mut seen = [0; 2];
    each_seed(120, |random, seed| {
        let discipline = DISCIPLINES[random.random_index(3)];
        let mut machine = machine(2, discipline);
        machine.max_steps = u32::MAX;
        let mut set = TaskSet::for_machine(&machine);
        let mut all: Vec<Timing> = Vec::new();
        for id in 0..7 {
            let period = random.in_range(5, 40);
            let timing = Timing::new(random.in_range(1, period * 7 / 10) * MS, period * MS);
            let task = Task::new(TaskId(id), timing).expect("a timing in range");
            let with_it: Vec<Timing> = all.iter().copied().chain([timing]).collect();
            let exists = (0..1_u32 << with_it.len()).any(|choice| {
                (0..2).all(|core| {
                    let on_core = with_it.iter().enumerate().filter(|(place, _)| (choice >> place) & 1 == core);
                    let mut timings: Vec<Timing> = on_core.map(|(_, timing)| *timing).collect();
                    timings.sort_by_key(|timing| timing.deadline);
                    match discipline {
                        Discipline::FixedPriority => response_time::all_meet_deadlines(&timings),
                        Discipline::LiuLayland => bounds::passes_liu_layland(&timings),
                        Discipline::EarliestDeadlineFirst => demand::is_schedulable(&timings),
                    }
                })
            });
            let decision = admit(&set, &machine, &task);
            assert_eq!(decision.is_ok(), exists, "seed {seed}: {with_it:?}");
            seen[usize::from(exists)] += 1;
            if let Ok(plan) = decision {
                set.apply(&plan);
                all = with_it;
            }
        }
    });
    assert!(!all_seeds_run() || seen.iter().all(|count| *count > 20), "{seen:?}");
}
