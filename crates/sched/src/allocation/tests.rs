use super::*;
use crate::task::HostId;

const MS: Nanos = 1_000_000;

#[test]
fn the_longest_overheads_are_refused_without_overflow() {
    let mut machine = Machine::with_cores(2);
    machine.overheads = Overheads { context_switch: u64::MAX, release_jitter: u64::MAX, ..Overheads::default() };
    let task = Task::new(TaskId(1), Timing::new(50_000, 100_000)).expect("in range");
    assert!(admit(&TaskSet::default(), &machine, &task).is_err());
    let above = [machine.overheads.add_to(&task.timing)];
    assert_eq!(crate::analysis::bounds::response_time_bound(&task.timing, &above), None);
}

#[test]
fn release_jitter_shortens_the_distance_of_jobs() {
    let overheads = Overheads { release_jitter: 4, ..Overheads::default() };
    let charged = |distance| overheads.add_to(&Timing::new(1, 10).with_jitter(9).with_min_interarrival(distance));
    assert_eq!((charged(5).jitter, charged(5).min_interarrival), (13, 1));
    assert_eq!(charged(3).min_interarrival, 0, "only the jitter bounds the distance");
    assert_eq!(crate::analysis::max_arrivals(&charged(5), 2), 2);
}

fn task(id: u64, execution: Nanos, period: Nanos) -> Task {
    Task::new(TaskId(id), Timing::new(execution * MS, period * MS)).expect("a timing in range")
}

fn whole(cores: u32) -> Machine {
    let mut machine = Machine::with_cores(cores);
    for core in &mut machine.cores {
        core.capacity = Utilization::ONE;
    }
    machine
}

fn filled(machine: &Machine, tasks: &[Task]) -> TaskSet {
    let mut set = TaskSet::default();
    for task in tasks {
        let plan = admit(&set, machine, task).unwrap_or_else(|rejection| panic!("{rejection}"));
        set.apply(&plan);
        assert!(is_schedulable(&set, machine), "after task {}", task.id.0);
    }
    set
}

#[test]
fn task_goes_to_the_fullest_core_with_room() {
    let machine = whole(2);
    let mut set = filled(&machine, &[task(1, 60, 100), task(2, 30, 100)]);
    assert_eq!(set.core_of(TaskId(1)), set.core_of(TaskId(2)), "best fit puts both on one core");
    let plan = admit(&set, &machine, &task(3, 20, 100)).expect("room");
    assert_ne!(Some(plan.core), set.core_of(TaskId(1)));
    assert_eq!((plan.found_by_step, plan.response), (AllocationStep::Direct, Some(20 * MS)));
    set.apply(&plan);
    assert_eq!(set.len(), 3);
    assert!(set.withdraw(TaskId(3)));
    assert!(!set.withdraw(TaskId(3)));
}

fn placed(machine: &Machine, cores: [&[Task]; 2]) -> TaskSet {
    let mut set = TaskSet::default();
    for (core, tasks) in machine.cores.iter().zip(cores) {
        tasks.iter().for_each(|task| set.insert(*task, core.id));
    }
    assert!(is_schedulable(&set, machine));
    set
}

#[test]
fn a_task_moves_to_make_room() {
    let machine = whole(2);
    let set = placed(&machine, [&[task(1, 40, 100), task(2, 20, 100)], &[task(3, 60, 100)]]);
    let plan = admit(&set, &machine, &task(4, 60, 100)).expect("room after a move");
    assert_eq!(plan.found_by_step, AllocationStep::Move);
    let mut after = set.clone();
    after.apply(&plan);
    assert!(is_schedulable(&after, &machine));
    assert_eq!(plan.moves.len(), 1);
}

#[test]
fn two_tasks_change_places_to_make_room() {
    let machine = whole(2);
    let set = placed(&machine, [&[task(1, 50, 100), task(2, 20, 100)], &[task(3, 60, 100), task(4, 10, 100)]]);
    // No single move makes room for 40, but an exchange of 50 and 60, or of 20 and 10, does.
    let plan = admit(&set, &machine, &task(5, 40, 100)).expect("room after a swap");
    assert!(plan.found_by_step <= AllocationStep::Swap, "{:?}", plan.found_by_step);
    let mut after = set.clone();
    after.apply(&plan);
    assert!(is_schedulable(&after, &machine));
}

#[test]
fn search_finds_placements_that_cheaper_steps_miss() {
    let machine = whole(2);
    // Both cores can be used to 100 %: 50 + 30 + 20 and 40 + 40 + 20.
    let set = placed(
        &machine,
        [&[task(1, 40, 100), task(2, 50, 100)], &[task(3, 40, 100), task(4, 30, 100), task(5, 20, 100)]],
    );
    let plan = admit(&set, &machine, &task(6, 20, 100)).expect("a placement exists");
    let mut after = set.clone();
    after.apply(&plan);
    assert!(is_schedulable(&after, &machine));
    let mut narrow = machine.clone();
    narrow.max_allocation_step = AllocationStep::Direct;
    let rejection = admit(&set, &narrow, &task(6, 20, 100)).expect_err("no core has room without moves");
    assert!(!rejection.is_exhaustive);
}

#[test]
fn rejection_states_an_execution_time_that_would_fit() {
    let machine = whole(2);
    let set = placed(&machine, [&[task(1, 70, 100)], &[task(2, 80, 100)]]);
    let rejection = admit(&set, &machine, &task(3, 50, 100)).expect_err("no room");
    assert_eq!((rejection.test, rejection.excess_utilization), (AdmissionTest::Capacity, Utilization(200_000_000)));
    assert_eq!(rejection.max_fitting_execution, Some(30 * MS));
    assert_eq!(
        rejection.to_string(),
        "task 3 cannot be admitted: core 0 would be used 0.200 beyond its capacity; an execution time of 30ms would fit"
    );
    let short = Task::new(TaskId(4), Timing::new(6 * MS, 100 * MS).with_deadline(7 * MS)).expect("in range");
    let busy = placed(&machine, [&[task(1, 6, 10)], &[task(2, 6, 10)]]);
    let rejection = admit(&busy, &machine, &short).expect_err("the share fits, the deadline does not");
    assert_eq!(rejection.test, AdmissionTest::Deadlines);
}

#[test]
fn names_are_unique_and_cores_must_exist() {
    let machine = whole(1);
    let set = filled(&machine, &[task(1, 10, 100)]);
    assert_eq!(
        admit(&set, &machine, &task(1, 10, 100)).expect_err("the name is taken").test,
        AdmissionTest::DuplicateId
    );
    let mut lost = task(2, 10, 100);
    lost.pinned_core = Some(CoreId { host: HostId(9), core: 0 });
    assert_eq!(admit(&set, &machine, &lost).expect_err("no such core").test, AdmissionTest::NoCore);
    assert_eq!(admit(&set, &whole(0), &task(3, 1, 100)).expect_err("no core").test, AdmissionTest::NoCore);
}

#[test]
fn pinned_tasks_stay() {
    let machine = whole(2);
    let mut first = task(1, 40, 100);
    first.pinned_core = Some(machine.cores[0].id);
    let set = placed(&machine, [&[first, task(2, 20, 100)], &[task(3, 60, 100)]]);
    let plan = admit(&set, &machine, &task(4, 60, 100));
    if let Ok(plan) = plan {
        assert!(plan.moves.iter().all(|step| step.task != TaskId(1)), "{plan:?}");
        let mut after = set.clone();
        after.apply(&plan);
        assert!(is_schedulable(&after, &machine));
    }
}

#[test]
fn overheads_are_charged_to_each_job() {
    let mut machine = whole(1);
    machine.overheads = Overheads { context_switch: MS, hand_off: 2 * MS, release_jitter: 3 * MS, blocking: 4 * MS };
    let charged = machine.overheads.add_to(&Timing::new(10 * MS, 100 * MS));
    assert_eq!((charged.execution, charged.jitter, charged.blocking), (14 * MS, 3 * MS, 4 * MS));
    let plan = admit(&TaskSet::default(), &machine, &task(1, 10, 100)).expect("room");
    assert_eq!(plan.response, Some(21 * MS));
    assert!(admit(&TaskSet::default(), &machine, &task(1, 90, 100)).is_err());
    assert!(admit(&TaskSet::default(), &machine, &task(1, 89, 100)).is_ok());
}

#[test]
fn clusters_keep_moves_among_themselves() {
    let mut machine = whole(4);
    machine.cores[2].cluster = 1;
    machine.cores[3].cluster = 1;
    let mut set = TaskSet::default();
    for (core, id, share) in [(0, 1, 40), (0, 2, 20), (1, 3, 60), (2, 4, 90), (3, 5, 90)] {
        set.insert(task(id, share, 100), machine.cores[core].id);
    }
    let plan = admit(&set, &machine, &task(6, 60, 100)).expect("room in the first cluster");
    assert!(plan.core.core < 2);
    assert!(plan.moves.iter().all(|step| step.to.core < 2), "{plan:?}");
}

#[test]
fn the_steps_of_a_decision_are_bounded() {
    let mut machine = whole(2);
    let set = placed(&machine, [&[task(1, 40, 100), task(2, 20, 100)], &[task(3, 60, 100)]]);
    assert!(admit(&set, &machine, &task(4, 60, 100)).is_ok());
    machine.max_steps = 1;
    let rejection = admit(&set, &machine, &task(4, 60, 100)).expect_err("the budget ends before a move is found");
    assert!(!rejection.is_exhaustive);
    assert!(rejection.to_string().ends_with("not every placement was tried"), "{rejection}");
}

#[test]
fn more_than_the_room_of_all_cores_is_refused_without_a_search() {
    let mut machine = whole(2);
    machine.max_allocation_step = AllocationStep::Direct;
    let set = placed(&machine, [&[task(1, 90, 100)], &[task(2, 80, 100)]]);
    assert!(admit(&set, &machine, &task(3, 35, 100)).expect_err("no room").is_exhaustive);
    assert!(
        !admit(&set, &machine, &task(3, 25, 100)).expect_err("no permitted step finds the placement").is_exhaustive
    );
}

#[test]
fn kept_analysis_and_new_analysis_decide_alike() {
    let machine = whole(3);
    let (mut warm, mut cold) = (TaskSet::for_machine(&machine), TaskSet::default());
    for id in 0..24 {
        let one = task(id, 3 + id * 7 % 11, 20 + id * 13 % 60);
        let plans = [admit(&warm, &machine, &one), admit(&cold, &machine, &one)];
        assert_eq!(plans[0], plans[1], "task {id}");
        if let [Ok(plan), Ok(_)] = plans {
            warm.apply(&plan);
            cold.apply(&plan);
        }
        if id % 5 == 4 {
            assert_eq!(warm.withdraw(TaskId(id - 2)), cold.withdraw(TaskId(id - 2)));
        }
        assert_eq!(task_placements(&warm, &machine), task_placements(&cold, &machine));
    }
    assert_eq!(warm, cold);
    let mut slower = machine.clone();
    slower.overheads.context_switch = 3 * MS;
    assert_eq!(task_placements(&warm, &slower), task_placements(&cold, &slower));
    assert_eq!(task_placements(&cold.with_machine(&slower), &slower), task_placements(&warm, &slower));
    assert_ne!(task_placements(&warm, &slower), task_placements(&warm, &machine));
}

#[test]
fn search_distinguishes_empty_cores_for_pinned_tasks() {
    let mut machine = whole(2);
    machine.max_allocation_step = AllocationStep::Search;
    // The new task must go to the second core, so that both other tasks share the first.
    let set = placed(&machine, [&[task(1, 40, 100)], &[task(2, 50, 100)]]);
    let mut new = task(3, 60, 100);
    new.pinned_core = Some(machine.cores[1].id);
    let plan = admit(&set, &machine, &new).expect("a placement exists");
    let mut after = set.clone();
    after.apply(&plan);
    assert!(is_schedulable(&after, &machine));
    assert_eq!(after.core_of(TaskId(3)), Some(machine.cores[1].id));
}

#[test]
fn rejection_names_missing_priority_levels() {
    let mut machine = whole(1);
    machine.max_priority_levels = 1;
    machine.discipline = Discipline::EarliestDeadlineFirst;
    let set = filled(&machine, &[task(1, 10, 100)]);
    let rejection = admit(&set, &machine, &task(2, 10, 100)).expect_err("one level, one task");
    assert_eq!(rejection.test, AdmissionTest::PriorityLevels);
    assert!(rejection.to_string().contains("no priority level left"), "{rejection}");
    machine.discipline = Discipline::FixedPriority;
    assert!(admit(&set, &machine, &task(2, 10, 100)).is_ok());
    assert_eq!(
        admit(&set, &machine, &task(2, 10, 15)).expect_err("the task cannot wait for 10 ms").test,
        AdmissionTest::PriorityLevels
    );
}

#[test]
fn inline_decisions_limit_the_step_by_the_number_of_cores() {
    let step = |cores| Machine::with_cores(cores).with_short_decision_limits().max_allocation_step;
    assert_eq!(
        [1, 2, 3, 8, 9, 128].map(step),
        [
            AllocationStep::Search,
            AllocationStep::Search,
            AllocationStep::Repack,
            AllocationStep::Repack,
            AllocationStep::Swap,
            AllocationStep::Swap
        ]
    );
    let clusters: Vec<u32> = Machine::with_cores(20).cores.iter().map(|core| core.cluster).collect();
    assert_eq!((clusters[7], clusters[8], clusters[19]), (0, 1, 2));
}

#[test]
fn placements_state_if_deadlines_hold() {
    let machine = whole(1);
    let mut set = TaskSet::default();
    for one in [task(1, 10, 30), task(2, 10, 40), task(3, 12, 50)] {
        set.insert(one, machine.cores[0].id);
    }
    let found: Vec<_> =
        task_placements(&set, &machine).into_iter().map(|one| (one.response, one.is_schedulable)).collect();
    assert_eq!(found, [(Some(10 * MS), true), (Some(20 * MS), true), (Some(52 * MS), false)]);
    let mut edf = machine.clone();
    edf.discipline = Discipline::EarliestDeadlineFirst;
    assert!(task_placements(&set, &edf).iter().all(|one| one.response.is_none() && one.is_schedulable));
    assert!(!is_schedulable(&set, &machine) && is_schedulable(&set, &edf));
}

fn read_by(cost: Nanos, core: Option<u32>) -> Machine {
    let core = core.map(|core| CoreId { core, ..CoreId::default() });
    Machine { reading: Some(RequestReading { cost, core }), ..whole(2) }
}

fn on(core: u32, task: Task) -> Task {
    Task { pinned_core: Some(CoreId { core, ..CoreId::default() }), ..task }
}

#[test]
fn reading_of_requests_delays_the_tasks_of_its_core_and_the_start_of_all_jobs() {
    let tasks = [on(0, task(1, 10, 100)), on(1, task(2, 10, 50))];
    let responses = |machine: &Machine| {
        let set = filled(machine, &tasks);
        task_placements(&set, machine).iter().map(|placed| placed.response.expect("a bound") / MS).collect::<Vec<_>>()
    };
    assert_eq!(responses(&whole(2)), [10, 10]);
    // The wait of a request is bounded by three readings of 1 ms: one for each task, and a further
    // one. On core 0 the readings for both tasks also delay the job.
    assert_eq!(responses(&read_by(MS, Some(0))), [15, 13]);
    assert_eq!(responses(&read_by(MS, None)), [15, 15]);
    // If the machine lacks the reading thread's core, the reading counts on every core.
    assert_eq!(responses(&read_by(MS, Some(7))), [15, 15]);
    assert_eq!(responses(&read_by(0, Some(0))), [10, 10]);
}

#[test]
fn reading_that_a_core_has_no_time_for_rejects_a_task_of_another_core() {
    let machine = read_by(5 * MS, Some(0));
    let set = filled(&machine, &[on(0, task(1, 85, 100))]);
    // The first task takes 85 % of core 0, and the reading of its requests takes 5 %. The reading
    // of the new task's requests does not fit.
    let refused = admit(&set, &machine, &on(1, task(2, 1, 40))).expect_err("no room for the reading");
    assert_eq!((refused.test, refused.core.map(|core| core.core)), (AdmissionTest::Deadlines, Some(0)));
    assert!(admit(&set, &whole(2), &on(1, task(2, 1, 40))).is_ok());
    // A task that may move makes room.
    let machine = read_by(2 * MS, Some(0));
    let set = filled(&machine, &[on(0, task(1, 45, 100)), task(3, 40, 100)]);
    assert_eq!(set.core_of(TaskId(3)).map(|core| core.core), Some(0));
    let plan = admit(&set, &machine, &on(1, task(2, 1, 40))).expect("room after a move");
    let moves: Vec<_> = plan.moves.iter().map(|step| (step.task.0, step.from.core, step.to.core)).collect();
    assert_eq!((moves, plan.core.core, plan.found_by_step), (vec![(3, 0, 1)], 1, AllocationStep::Move));
    let mut after = set.clone();
    after.apply(&plan);
    assert!(is_schedulable(&after, &machine));
    let direct = Machine { max_allocation_step: AllocationStep::Direct, ..machine };
    assert!(!admit(&set, &direct, &on(1, task(2, 1, 40))).expect_err("no moves").is_exhaustive);
}

#[test]
fn requests_that_arrive_faster_than_they_are_read_are_refused() {
    let machine = read_by(60 * MS, None);
    let set = filled(&machine, &[task(1, 1, 1_000)]);
    assert!(admit(&set, &machine, &task(2, 1, 50)).is_err());
}
