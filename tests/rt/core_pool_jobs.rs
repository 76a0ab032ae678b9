//! The jobs of tasks in core pools: budgets, rates and measurements.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane::rt::{CorePoolConfig, JobOverrunAction, TaskBinding, TaskRules};
use corelane::{Completion, Event, ObjectRef, Orb, SystemException, SystemExceptionKind as Kind, Timeout, minor};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{Scheduling, list_threads, scheduling};
use corelane_tests::core_pool::{DEMOTED, HOLD, LOW, NOTE, OVER, REST, STEP, Scene, Served, step, task};
use corelane_tests::real_time::{RawClient, RawReply, fifo_orb, wait_until};

type Overruns = Arc<Mutex<Vec<(u64, JobOverrunAction)>>>;

fn scene_with_overruns(name: &str) -> (Scene, Overruns) {
    let events = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let seen = Arc::clone(&events);
    let observe = move |event: &Event| {
        if let Event::JobOverBudget { task, budget, used, action } = event {
            assert!(used >= budget, "{event}");
            seen.lock().push((*task, *action));
        }
    };
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").on_event(observe).build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    (Scene::new(orb, CorePoolConfig::default().name(name).cores([0])), events)
}

/// Budget of a job in microseconds. It is so large that a short job stays within it even on a
/// virtual machine that counts the time in which its host runs other machines.
const LARGE_BUDGET: u64 = 100_000;

fn budget(microseconds: u64, action: JobOverrunAction) -> TaskRules {
    TaskRules::default().budget(Duration::from_micros(microseconds), action)
}

#[test]
fn job_over_its_budget_is_demoted_until_its_end() {
    let (scene, events) = scene_with_overruns("demoted");
    scene.set(&[task(1, 0, 40).rules(budget(LARGE_BUDGET, JobOverrunAction::Demote)), task(2, 0, 30)]);
    let client = Orb::new().unwrap();
    let [one, two] = ["task-1", "task-2"].map(|id| scene.object(&client, id));
    // The first job binds the connection, and the bound thread reads the second job.
    for number in 0..2 {
        assert_eq!(step(&one, &DEMOTED, number).unwrap().native, 0);
        assert_eq!(step(&one, &STEP, number).unwrap().native, 40);
        let counts = scene.pool.counts();
        assert_eq!(
            (counts.jobs_over_budget, counts.jobs_demoted, counts.jobs_stopped),
            (u64::from(number) + 1, u64::from(number) + 1, 0)
        );
    }
    // This job sleeps for 20 ms, and stays within its budget of 100 ms. Then task 1 loses its
    // budget, and task 2 gets one.
    step(&one, &REST, 20).unwrap();
    scene.set(&[task(1, 0, 40), task(2, 0, 30).rules(budget(LARGE_BUDGET, JobOverrunAction::Demote))]);
    assert_eq!(step(&one, &STEP, 0).unwrap().native, 40);
    // A handed-over job has the budget of its own task, not of the task of the connection.
    assert_eq!(step(&two, &DEMOTED, 2).unwrap().native, 0);
    // The thread counts and reports the job after the reply.
    wait_until(|| events.lock().len() == 3);
    let counts = scene.pool.counts();
    assert_eq!(
        (counts.jobs_over_budget, counts.jobs_demoted, counts.requests_handed_over, counts.threads_moved),
        (3, 3, 1, 0)
    );
    assert_eq!(*events.lock(), [1, 1, 2].map(|task| (task, JobOverrunAction::Demote)));
}

#[test]
fn demoted_job_stays_low_when_the_priority_of_its_task_changes() {
    let (scene, _) = scene_with_overruns("stays");
    let rules = budget(LARGE_BUDGET, JobOverrunAction::Demote);
    scene.set(&[task(1, 0, 40).rules(rules)]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| step(&object, &LOW, 0).unwrap());
        wait_until(|| scene.state.held.load(Ordering::SeqCst) == 1);
        scene.set(&[task(1, 0, 50).rules(rules)]);
        scene.state.open.store(true, Ordering::SeqCst);
        assert_eq!(call.join().unwrap().native, 0);
    });
    assert_eq!(step(&object, &STEP, 1).unwrap().native, 50);
}

#[test]
fn job_over_its_budget_is_stopped_or_only_reported() {
    let (scene, events) = scene_with_overruns("stopped");
    scene.set(&[task(1, 0, 40).rules(budget(LARGE_BUDGET, JobOverrunAction::Stop))]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    let stopped = step(&object, &OVER, 0).unwrap_err();
    assert_eq!(
        (stopped.kind(), stopped.minor(), stopped.completed()),
        (Kind::Timeout, minor::OVERRUN, Completion::Yes)
    );
    assert_eq!(step(&object, &STEP, 1).unwrap().native, 40);
    assert_eq!((scene.pool.counts().jobs_over_budget, scene.pool.counts().jobs_stopped), (1, 1));
    scene.set(&[task(1, 0, 40).rules(budget(LARGE_BUDGET, JobOverrunAction::Report))]);
    assert_eq!(step(&object, &OVER, 2).unwrap().native, 40);
    wait_until(|| events.lock().len() == 2);
    let counts = scene.pool.counts();
    assert_eq!(
        (counts.jobs_over_budget, counts.jobs_stopped, counts.connections_bound, counts.threads_moved),
        (2, 1, 1, 0)
    );
    assert_eq!(*events.lock(), [(1, JobOverrunAction::Stop), (1, JobOverrunAction::Report)]);
}

fn hourly() -> TaskRules {
    TaskRules::default().rate(Duration::from_secs(3_600), Duration::ZERO)
}

/// For each refused request: its task, true if it is a oneway, and the scheduling of the thread
/// that refused it.
type Refusals = Arc<Mutex<Vec<(u64, bool, Scheduling)>>>;

fn scene_with_refusals(config: CorePoolConfig) -> (Scene, Refusals) {
    let events = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let seen = Arc::clone(&events);
    let observe = move |event: &Event| {
        if let Event::TaskRateExceeded { task, is_oneway, .. } = event {
            seen.lock().push((*task, *is_oneway, scheduling(None).unwrap()));
        }
    };
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").on_event(observe).build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    (Scene::new(orb, config.cores([0])), events)
}

fn assert_refused(outcome: Result<Served, SystemException>) {
    let exception = outcome.unwrap_err();
    let told = (exception.kind(), exception.minor(), exception.completed());
    assert_eq!(told, (Kind::Transient, minor::TASK_RATE, Completion::No));
}

fn assert_reply_refused((id, _, reply): (u32, Option<i16>, RawReply), sent: u32) {
    assert_eq!(id, sent);
    assert!(matches!(reply, RawReply::Raised(Kind::Transient, code) if code == minor::TASK_RATE), "{reply:?}");
}

#[test]
fn one_request_above_the_rate_waits_and_others_are_refused() {
    let (scene, refusals) = scene_with_refusals(CorePoolConfig::default().name("rate"));
    scene.set(&[task(1, 0, 40).rules(hourly())]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    let mut raw = RawClient::for_object(&object);
    let sent = [0, 1, 2, 3].map(|number| raw.send("step", None, Some(number)));
    assert_eq!(raw.receive_reply_id(), sent[0]);
    for refused in &sent[2..] {
        assert_reply_refused(raw.receive_reply(), *refused);
    }
    // Requests on a second connection of the task count too, although this connection has no thread
    // yet.
    assert_refused(step(&object, &STEP, 4));
    let note = |encoder: &mut corelane::Encoder| {
        encoder.write_u32(5);
        Ok(())
    };
    object.send_oneway(&NOTE, &note).unwrap();
    wait_until(|| scene.pool.counts().oneways_dropped_by_rate == 1);
    // A request without a task does not wait behind the delayed request of its connection.
    raw.set_target(&scene.object(&client, "plain"));
    assert_eq!(raw.send("step", None, Some(6)), raw.receive_reply_id());
    scene.set(&[task(1, 0, 40)]);
    assert_eq!(raw.receive_reply_id(), sent[1]);
    assert_eq!(*scene.state.steps.0.lock(), [0, 6, 1]);
    let counts = scene.pool.counts();
    assert_eq!(
        (counts.requests_delayed_by_rate, counts.calls_refused_by_rate, counts.oneways_dropped_by_rate),
        (1, 3, 1),
        "{counts:?}"
    );
    let refused = |is_oneway| (1, is_oneway, Scheduling::Other);
    assert_eq!(*refusals.lock(), [refused(false), refused(false), refused(false), refused(true)]);
}

#[test]
fn rate_bounds_a_handed_over_task_and_paces_a_client_that_waits_for_replies() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("paced").cores([0]));
    let distance = Duration::from_millis(20);
    let paced = TaskRules::default().rate(distance, Duration::ZERO);
    scene.set(&[task(1, 0, 40).rules(paced), task(2, 0, 30).rules(hourly())]);
    let client = Orb::new().unwrap();
    let [one, two] = ["task-1", "task-2"].map(|id| scene.object(&client, id));
    let begun = std::time::Instant::now();
    for number in 0..5 {
        assert_eq!(step(&one, &STEP, number).unwrap().native, 40);
    }
    assert!(begun.elapsed() >= 4 * distance);
    assert_eq!(step(&two, &STEP, 5).unwrap().native, 30);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| step(&two, &STEP, 6).unwrap());
        wait_until(|| scene.pool.counts().requests_handed_over == 2);
        scene.set(&[task(1, 0, 40), task(2, 0, 20)]);
        assert_eq!(waiting.join().unwrap().native, 20);
    });
    assert_eq!(*scene.state.steps.0.lock(), (0..7).collect::<Vec<_>>());
    assert_eq!((scene.pool.counts().calls_refused_by_rate, scene.pool.counts().oneways_dropped_by_rate), (0, 0));
}

fn two_hourly() -> TaskRules {
    TaskRules::default().rate(Duration::from_secs(7_200), Duration::ZERO)
}

#[test]
fn change_of_a_rate_moves_the_wait_of_a_request_and_the_end_of_its_task_ends_it() {
    let (scene, _) = scene_with_refusals(CorePoolConfig::default().name("changed"));
    scene.set(&[task(1, 0, 40), task(2, 0, 30).rules(hourly())]);
    for (round, id) in (0..).zip(["task-1", "task-2"]) {
        let (client, other) = (Orb::new().unwrap(), Orb::new().unwrap());
        step(&scene.object(&client, id), &STEP, 0).unwrap_or_else(|_| panic!("{id}"));
        let [object, same] = [&client, &other].map(|client| scene.object(client, "task-2"));
        if id == "task-1" {
            step(&object, &STEP, 1).unwrap();
        }
        let delayed = |object, number| {
            let before = scene.pool.counts().requests_delayed_by_rate;
            let call = move || step(object, &STEP, number).unwrap();
            (call, move |scene: &Scene| wait_until(|| scene.pool.counts().requests_delayed_by_rate > before))
        };
        std::thread::scope(|scope| {
            let (call, waits) = delayed(&object, 2);
            let call = scope.spawn(call);
            waits(&scene);
            scene.set(&[task(1, 0, 40), task(2, 0, 30).rules(two_hourly())]);
            assert_refused(step(&same, &STEP, 3));
            assert!(!call.is_finished(), "round {round}: the request does not wait any more");
            let short = TaskRules::default().rate(Duration::from_nanos(1), Duration::ZERO);
            scene.set(&[task(1, 0, 40), task(2, 0, 20).rules(short)]);
            assert_eq!(call.join().unwrap().native, 20, "round {round}");
            // The interval of the rate begins with the request that has just run.
            scene.set(&[task(1, 0, 40), task(2, 0, 30).rules(hourly())]);
            let (call, waits) = delayed(&object, 4);
            let call = scope.spawn(call);
            waits(&scene);
            scene.set(&[task(1, 0, 40)]);
            let by = call.join().unwrap();
            assert_eq!((by.native, by.is_bound()), (0, false), "round {round}: {by:?}");
        });
        scene.set(&[task(1, 0, 40), task(2, 0, 30).rules(hourly())]);
    }
}

#[test]
fn request_of_a_task_without_a_free_thread_keeps_the_rate() {
    let config = CorePoolConfig::default().name("full").threads_per_core(1).max_threads(1);
    let (scene, _) = scene_with_refusals(config);
    scene.set(&[task(1, 0, 40).rules(hourly()), task(2, 0, 30).rules(hourly())]);
    let (first, second) = (Orb::new().unwrap(), Orb::new().unwrap());
    assert!(step(&scene.object(&first, "task-2"), &STEP, 0).unwrap().is_bound());
    // The connection of the first client has the thread, so the second client's connection has
    // none.
    for (number, client) in (1..).zip([&second, &first]) {
        let object = scene.object(client, "task-1");
        if number == 1 {
            assert!(!step(&object, &STEP, number).unwrap().is_bound());
        }
        assert_refused(step(&object, &STEP, 10));
    }
    assert_eq!(*scene.state.steps.0.lock(), [0, 1]);
    let counts = scene.pool.counts();
    assert_eq!(
        (counts.requests_not_bound, counts.requests_delayed_by_rate, counts.calls_refused_by_rate),
        (1, 0, 2),
        "{counts:?}"
    );
}

#[test]
fn threads_without_a_task_refuse_requests_above_a_rate() {
    let (scene, refusals) = scene_with_refusals(CorePoolConfig::default().name("flood"));
    scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
    let clients = [(); 3].map(|()| Orb::new().unwrap());
    let mut raw = ["task-2", "task-2", "task-1"].into_iter().zip(&clients).map(|(id, client)| {
        let mut raw = RawClient::for_object(&scene.object(client, id));
        assert_eq!(raw.send("step", None, Some(0)), raw.receive_reply_id());
        raw.set_target(&scene.object(client, "task-2"));
        raw
    });
    let [mut one, mut two, mut foreign] = [(); 3].map(|()| raw.next().unwrap());
    scene.set(&[task(1, 0, 40), task(2, 0, 30).rules(hourly())]);
    assert_eq!(one.send("step", None, Some(1)), one.receive_reply_id());
    let waiting = one.send("step", None, Some(2));
    wait_until(|| scene.pool.counts().requests_delayed_by_rate == 1);
    for client in [&mut two, &mut foreign, &mut one] {
        for _ in 0..20 {
            let sent = client.send("step", None, Some(3));
            assert_reply_refused(client.receive_reply(), sent);
        }
    }
    wait_until(|| refusals.lock().len() >= 60);
    assert_eq!(*refusals.lock(), [(2, false, Scheduling::Other); 60]);
    // The second connection of task 2 no longer has a thread.
    wait_until(|| scene.pool.counts().currently_bound_connections == 2);
    scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
    assert_eq!(one.receive_reply_id(), waiting);
    assert_eq!(two.send("step", None, Some(4)), two.receive_reply_id());
    assert_eq!(*scene.state.steps.0.lock(), [0, 0, 0, 1, 2, 4]);
    assert_eq!(scene.pool.counts().currently_bound_connections, 3);
}

#[test]
fn locate_request_is_no_job() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("locate").cores([0]));
    let rules = budget(0, JobOverrunAction::Report);
    scene.set(&[task(1, 0, 40).rules(rules), task(2, 0, 30).rules(rules)]);
    let client = Orb::new().unwrap();
    let [one, two] = ["task-1", "task-2"].map(|id| scene.object(&client, id));
    for _ in 0..5 {
        one.validate_connection().unwrap();
        two.validate_connection().unwrap();
    }
    let counts = scene.pool.counts();
    assert_eq!(
        (counts.connections_bound, counts.requests_handed_over, counts.requests_without_task, counts.jobs_over_budget),
        (1, 0, 0, 0),
        "{counts:?}"
    );
    assert!(scene.pool.measurements().iter().all(|measured| measured.jobs == 0));
    step(&one, &STEP, 0).unwrap();
    step(&two, &STEP, 1).unwrap();
    wait_until(|| scene.pool.measurements().iter().all(|measured| measured.jobs == 1));
    // A job is counted as over its budget after its measurement.
    wait_until(|| scene.pool.counts().jobs_over_budget == 2);
    let counts = scene.pool.counts();
    assert_eq!((counts.requests_handed_over, counts.requests_without_task), (1, 0), "{counts:?}");
}

#[test]
fn request_that_waits_for_its_reader_is_a_job_when_it_runs() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("unread").cores([0]));
    scene.set(&[task(1, 0, 40), task(2, 0, 30).rules(hourly())]);
    let client = Orb::new().unwrap();
    let mut raw = RawClient::for_object(&scene.object(&client, "task-1"));
    assert_eq!(raw.send("step", None, Some(0)), raw.receive_reply_id());
    raw.set_target(&scene.object(&client, "task-2"));
    let large = raw.send("fill", None, Some(1));
    wait_until(|| scene.state.held.load(Ordering::SeqCst) == 1);
    let waiting = raw.send("step", None, Some(2));
    wait_until(|| scene.pool.counts().requests_delayed_by_rate == 1);
    let jobs = || scene.pool.measurements().iter().find(|measured| measured.task == 2).unwrap().jobs;
    // The client does not read the large result, so the next request cannot run when its delay
    // ends.
    scene.state.open.store(true, Ordering::SeqCst);
    wait_until(|| jobs() == 1);
    scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
    wait_until(|| scene.pool.counts().currently_bound_connections == 0);
    assert_eq!(jobs(), 1);
    assert_eq!([raw.receive_reply_id(), raw.receive_reply_id()], [large, waiting]);
    wait_until(|| jobs() == 2);
    assert_eq!(*scene.state.steps.0.lock(), [0, 1, 2]);
    assert_eq!(scene.state.bound.load(Ordering::SeqCst), 3);
}

#[test]
fn parked_request_is_a_job_when_it_runs() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("parked").cores([0]));
    scene.set(&[task(1, 0, 40)]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    let mut raw = RawClient::for_object(&object);
    assert_eq!(raw.send("step", None, Some(0)), raw.receive_reply_id());
    let jobs = || scene.pool.measurements()[0].jobs;
    wait_until(|| jobs() == 1);
    scene.poa.manager().hold_requests(false).unwrap();
    let parked = raw.send("step", None, Some(1));
    // The thread reads this request after it has parked the previous request, so the reply shows
    // that the previous request is parked.
    raw.set_target(&client.string_to_object("corbaloc::127.0.0.1:1/Nothing").unwrap().unwrap());
    assert_eq!(raw.send("step", None, Some(2)), raw.receive_reply().0);
    assert_eq!(jobs(), 1);
    scene.poa.manager().activate().unwrap();
    assert_eq!(raw.receive_reply_id(), parked);
    wait_until(|| jobs() == 2);
    assert_eq!(scene.state.bound.load(Ordering::SeqCst), 2);
}

#[test]
fn measurements_of_a_demoted_task_continue() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("kept").cores([0]));
    scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    let jobs = || scene.pool.measurements().iter().map(|measured| (measured.task, measured.jobs)).collect::<Vec<_>>();
    (0..3).for_each(|number| drop(step(&object, &STEP, number).unwrap()));
    wait_until(|| jobs() == [(1, 3), (2, 0)]);
    scene.pool.set_tasks_and_demoted(&[task(2, 0, 30)], &[1]).unwrap();
    // Requests of a demoted task are not jobs.
    wait_until(|| scene.pool.counts().currently_bound_connections == 0);
    assert!(!step(&object, &STEP, 3).unwrap().is_bound());
    assert_eq!(jobs(), [(1, 3), (2, 0)]);
    scene.set(&[task(1, 0, 40)]);
    step(&object, &STEP, 4).unwrap();
    wait_until(|| jobs() == [(1, 4)]);
}

fn by_deadline(number: u64, core: usize, minutes: u64) -> TaskBinding {
    task(number, core, 98).rules(TaskRules::default().deadline(Duration::from_secs(60 * minutes)))
}

#[test]
fn jobs_of_a_core_take_the_levels_of_their_deadlines() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("edf").cores([0, 1]));
    scene.set(&[by_deadline(1, 0, 60), by_deadline(2, 0, 30)]);
    let clients = [(); 2].map(|()| Orb::new().unwrap());
    let [one, two] = [(&clients[0], "task-1"), (&clients[1], "task-2")].map(|(client, id)| scene.object(client, id));
    let alone = step(&one, &STEP, 0).unwrap();
    assert_eq!((alone.core, step(&two, &STEP, 1).unwrap().native), (0, alone.native));
    assert!((2..=97).contains(&alone.native), "{alone:?}");
    // Between jobs, both threads have a priority above all jobs.
    let waits = || list_threads().unwrap().iter().filter(|thread| thread.scheduling == Scheduling::Fifo(98)).count();
    wait_until(|| waits() == 2);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| step(&one, &HOLD, 2).unwrap());
        wait_until(|| scene.state.held.load(Ordering::SeqCst) == 1);
        let earlier = step(&two, &STEP, 3).unwrap();
        scene.set(&[by_deadline(1, 0, 60), by_deadline(2, 0, 90)]);
        let later = step(&two, &STEP, 4).unwrap();
        // Jobs are ordered within a core only.
        scene.set(&[by_deadline(1, 0, 60), by_deadline(2, 1, 90)]);
        let elsewhere = step(&two, &STEP, 5).unwrap();
        scene.state.open.store(true, Ordering::SeqCst);
        let held = held.join().unwrap();
        assert!(earlier.native > held.native && held.native > later.native, "{earlier:?} {held:?} {later:?}");
        assert_eq!((elsewhere.core, elsewhere.native), (1, alone.native));
    });
    assert_eq!(step(&one, &STEP, 6).unwrap().native, alone.native);
    // A handed-over job gets the level of its deadline, too.
    let shared = step(&scene.object(&clients[0], "task-2"), &STEP, 7).unwrap();
    assert_eq!((shared.core, shared.native), (1, alone.native));
    assert!(scene.pool.set_tasks(&[task(1, 0, 97).rules(TaskRules::default().deadline(Duration::ZERO))]).is_err());
}

#[test]
fn deadline_of_a_request_may_shorten_the_deadline_of_its_task() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("travel").cores([0]));
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let set = |rules: TaskRules| scene.set(&[by_deadline(1, 0, 60), task(2, 0, 98).rules(rules)]);
    let late = TaskRules::default().deadline(minutes(90));
    set(late);
    let clients = [(); 2].map(|()| Orb::new().unwrap());
    let [one, two] = [(&clients[0], "task-1"), (&clients[1], "task-2")].map(|(client, id)| scene.object(client, id));
    let urgent = two.with_timeout(Timeout::Precise(minutes(20)));
    std::thread::scope(|scope| {
        let held = scope.spawn(|| step(&one, &HOLD, 0).unwrap());
        wait_until(|| scene.state.held.load(Ordering::SeqCst) == 1);
        let mut seen = Vec::new();
        let mut see = |object: &ObjectRef| seen.push(step(object, &STEP, 1).unwrap().native);
        // Without `min_requested_deadline`, a request cannot shorten the deadline of its task.
        see(&urgent);
        set(late.min_requested_deadline(minutes(1)));
        see(&two);
        see(&urgent);
        // The request asks for a shorter deadline than the task permits.
        set(late.min_requested_deadline(minutes(80)));
        see(&urgent);
        // A request cannot lengthen the deadline of its task.
        set(TaskRules::default().deadline(minutes(30)).min_requested_deadline(minutes(1)));
        see(&two.with_timeout(Timeout::Precise(minutes(240))));
        scene.state.open.store(true, Ordering::SeqCst);
        let held = held.join().unwrap().native;
        let is_above: Vec<bool> = seen.iter().map(|native| *native > held).collect();
        assert_eq!(is_above, [false, false, true, false, true], "{seen:?} beside {held}");
    });
}
