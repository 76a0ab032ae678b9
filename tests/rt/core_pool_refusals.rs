//! Core pools whose threads the kernel refuses a core, a priority or a start that it permitted
//! earlier. A seccomp filter refuses the system calls of one thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane::mapping::Operation;
use corelane::poa::ObjectId;
use corelane::rt::{CorePoolConfig, JobOverrunAction, TaskBinding, TaskRules};
use corelane::{
    Dispatch, Event, ObjectRef, Orb, OrbBuilder, PoolConfig, Servant, ServerCall, Skeleton, SystemException,
    SystemExceptionKind as Kind,
};
use corelane_sched::allocation::Machine;
use corelane_services::cores::protocol::tasks::AdmitError;
use corelane_services::cores::protocol::{
    Criticality, JobOverrun, TaskRecord, TaskSpec, TaskState, TaskTiming, TasksRef,
};
use corelane_services::cores::{AdmissionConfig, AdmittedTask, ClientIdentityInterceptor};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::older_kernel::{RefusedRequest, refuse};
use corelane_sys::thread::{Scheduling, list_threads};
use corelane_tests::core_pool::{HOLD, STEP, Scene, Served, step, task};
use corelane_tests::real_time::{RawClient, require_fifo, wait_until};

type Events = Arc<Mutex<Vec<String>>>;

/// Makes an ORB that records the events of refused tasks.
fn observed_orb(configure: impl FnOnce(OrbBuilder) -> OrbBuilder) -> (Orb, Events) {
    require_fifo();
    let events: Events = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let seen = Arc::clone(&events);
    let observe = move |event: &Event| {
        if matches!(event, Event::TaskRefused { .. } | Event::TaskTimingNotGuaranteed { .. }) {
            seen.lock().push(event.to_string());
        }
    };
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(ClientIdentityInterceptor).on_event(observe);
    let orb = configure(orb).build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    (orb, events)
}

/// Sets the tasks of a pool on a new thread to which the kernel refuses `request`.
fn set_refused(scene: &Scene, request: RefusedRequest, tasks: &[TaskBinding]) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            refuse(request).unwrap();
            scene.set(tasks);
        });
    });
}

/// Counts the threads whose names begin with `name`, and that have the priority of sleeping
/// threads.
fn sleeping_threads(name: &str) -> usize {
    let threads = list_threads().unwrap();
    threads.iter().filter(|thread| thread.name.starts_with(name) && thread.scheduling == Scheduling::Fifo(1)).count()
}

fn placement(thread: &str) -> (Vec<usize>, Scheduling) {
    let threads = list_threads().unwrap();
    let thread = threads.iter().find(|other| other.name == thread).expect("the thread");
    (thread.cores.iter().collect(), thread.scheduling)
}

/// Makes the kernel refuse a request of the thread that runs the operation.
static REFUSE: Operation = Operation::new("refuse");

/// Makes the kernel refuse priorities to the thread that runs the operation, and returns once the
/// thread is demoted.
static OVERRUN: Operation = Operation::new("overrun");

/// Serves `refuse`, `overrun` and `step`.
struct Refuser;

impl Skeleton for Refuser {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Refuser:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        if !matches!(operation, b"refuse" | b"overrun" | b"step") {
            return Err(SystemException::bad_operation());
        }
        let argument = call.arguments().read_u32()?;
        let requests = [RefusedRequest::Scheduling, RefusedRequest::Thread, RefusedRequest::EventFd];
        if operation == b"refuse" {
            refuse(requests[argument as usize]).unwrap();
        }
        if operation == b"overrun" {
            refuse(RefusedRequest::Scheduling).unwrap();
            wait_until(|| corelane_sys::thread::scheduling(None).unwrap() == Scheduling::Other);
        }
        let by = corelane::rt::served_by();
        let native = if let Some(Scheduling::Fifo(native)) = by.scheduling { native } else { 0 };
        let reply = call.reply();
        reply.write_u32(by.core.unwrap_or(usize::MAX) as u32);
        reply.write_u8(native);
        reply.write_i16(-1);
        reply.write_bool(by.was_handed_over);
        reply.write_latin1_str(&by.thread)?;
        Ok(())
    }
}

#[test]
fn refused_move_is_taken_back_and_its_task_withdrawn() {
    let requests = [(RefusedRequest::Affinity, "core 1: "), (RefusedRequest::Scheduling, "Fifo(35): ")];
    for (number, (request, reason)) in requests.into_iter().enumerate() {
        let (orb, events) = observed_orb(|builder| builder);
        let pool = format!("move{number}");
        let scene = Scene::new(orb, CorePoolConfig::default().name(pool.clone()).cores([0, 1]));
        scene.set(&[task(1, 0, 40), task(2, 1, 30)]);
        let (client, other) = (Orb::new().unwrap(), Orb::new().unwrap());
        let (object, of_other) = (scene.object(&client, "task-1"), scene.object(&other, "task-2"));
        let by = step(&object, &STEP, 0).unwrap();
        assert!(step(&of_other, &STEP, 0).unwrap().is_bound());
        let holding = {
            let object = object.clone();
            std::thread::spawn(move || step(&object, &HOLD, 1).unwrap())
        };
        wait_until(|| scene.state.held.load(Ordering::SeqCst) == 1);
        set_refused(&scene, request, &[task(1, 1, 35), task(2, 1, 30)]);
        // The running request keeps its core and its priority.
        assert_eq!(placement(&by.thread), (vec![0], Scheduling::Fifo(40)), "{request:?}");
        // The bound thread reports nothing while it runs the request.
        assert_eq!(events.lock().len(), 0);
        scene.pool.report_refused_tasks();
        assert_eq!(events.lock().len(), 1);
        let refused = scene.pool.take_refused_tasks();
        assert_eq!(refused.iter().map(|refused| refused.task).collect::<Vec<_>>(), [1]);
        assert_eq!(refused[0].core, (request == RefusedRequest::Affinity).then_some(1));
        assert!(refused[0].reason.starts_with(reason), "{refused:?}");
        assert_eq!(scene.pool.take_refused_tasks(), []);
        scene.state.open.store(true, Ordering::SeqCst);
        let held = holding.join().unwrap();
        assert_eq!((held.core, held.native, &held.thread), (0, 40, &by.thread));
        wait_until(|| scene.pool.counts().currently_bound_connections == 1);
        let plain = step(&object, &STEP, 2).unwrap();
        assert!(!plain.is_bound() && plain.native == 0, "{plain:?}");
        let expected = format!("the core pool {pool} has withdrawn the promise of task 1: the kernel refused {reason}");
        wait_until(|| events.lock().iter().any(|event| event.starts_with(&expected)));
        assert_eq!((events.lock().len(), scene.pool.missing_guarantee_reason()), (1, None));
        // The refusal does not affect the other task, and the pool accepts the refused task again.
        let kept = step(&of_other, &STEP, 1).unwrap();
        assert_eq!((kept.core, kept.native, kept.is_bound()), (1, 30, true));
        scene.set(&[task(1, 1, 35), task(2, 1, 30)]);
        let again = step(&object, &STEP, 3).unwrap();
        assert_eq!((again.core, again.native, again.is_bound()), (1, 35, true));
        assert_eq!((scene.pool.counts().tasks_refused_by_kernel, scene.pool.counts().connections_bound), (1, 3));
    }
}

/// Makes a pool with a bound thread for task 1. The kernel refuses `request` to the only thread
/// that serves requests without a task.
fn refused_binding(name: &str, request: u32) -> (Scene, Events, Orb) {
    let (orb, events) = observed_orb(|builder| builder);
    let config =
        CorePoolConfig::default().name(name).cores([0]).best_effort_threads(1).threads_per_core(1).max_threads(3);
    let scene = Scene::new(orb, config);
    let servant = Servant::new(Refuser);
    scene.poa.activate_object_with_id(&ObjectId::from(&b"refuser"[..]), &servant).unwrap();
    scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
    let client = Orb::new().unwrap();
    assert!(step(&scene.object(&client, "task-1"), &STEP, 0).unwrap().is_bound());
    let by = step(&scene.object(&client, "refuser"), &REFUSE, request).unwrap();
    assert!(!by.is_bound(), "{by:?}");
    (scene, events, client)
}

#[test]
fn task_whose_thread_cannot_be_raised_is_not_bound_and_withdrawn() {
    let (scene, events, first) = refused_binding("raise", 0);
    // The end of the first client's connection frees a thread of the pool.
    drop(first);
    wait_until(|| scene.pool.counts().currently_bound_connections == 0);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-2");
    let plain = step(&object, &STEP, 1).unwrap();
    assert!(!plain.is_bound() && plain.native == 0, "{plain:?}");
    wait_until(|| events.lock().len() == 1);
    assert!(events.lock()[0].contains("task 2: the kernel refused Fifo(30): "), "{events:?}");
    assert_eq!(scene.pool.take_refused_tasks().len(), 1);
    assert_eq!(placement("raise/b0"), (vec![0], Scheduling::Fifo(1)));
    let counts = scene.pool.counts();
    assert_eq!(
        (
            counts.connections_bound,
            counts.currently_bound_connections,
            counts.requests_not_bound,
            counts.tasks_refused_by_kernel
        ),
        (1, 0, 0, 1)
    );
}

#[test]
fn refusal_to_the_thread_of_a_parked_request_is_reported_at_once() {
    let (orb, events) = observed_orb(|builder| builder);
    let scene = Scene::new(orb, CorePoolConfig::default().name("parked").cores([0]));
    scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
    let client = Orb::new().unwrap();
    let mut raw = RawClient::for_object(&scene.object(&client, "task-1"));
    assert_eq!(raw.send("step", None, Some(0)), raw.receive_reply_id());
    scene.poa.manager().hold_requests(false).unwrap();
    raw.set_target(&scene.object(&client, "task-2"));
    let parked = raw.send("step", None, Some(1));
    wait_until(|| scene.pool.counts().requests_handed_over == 1 && sleeping_threads("parked/b") == 3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            refuse(RefusedRequest::Scheduling).unwrap();
            scene.poa.manager().activate().unwrap();
        });
    });
    assert_eq!(raw.receive_reply_id(), parked);
    wait_until(|| events.lock().len() == 1);
    assert!(events.lock()[0].contains("task 2: the kernel refused Fifo(30): "), "{events:?}");
    // The thread of the other task stays bound, and no bound thread ran the request.
    assert_eq!((scene.pool.counts().currently_bound_connections, scene.state.bound.load(Ordering::SeqCst)), (1, 1));
}

#[test]
fn lack_of_descriptors_or_threads_withdraws_no_promise() {
    for (name, request) in [("threads", 1), ("descriptors", 2)] {
        let (scene, events, first) = refused_binding(name, request);
        let client = Orb::new().unwrap();
        let plain = step(&scene.object(&client, "task-2"), &STEP, 1).unwrap();
        assert!(!plain.is_bound() && plain.native == 0, "{plain:?}");
        assert_eq!((scene.pool.take_refused_tasks(), events.lock().len()), (vec![], 0));
        assert_eq!((scene.pool.counts().requests_not_bound, scene.pool.counts().tasks_refused_by_kernel), (1, 0));
        // The task gets the thread that the other client no longer needs.
        drop(first);
        wait_until(|| scene.pool.counts().currently_bound_connections == 0);
        let bound = step(&scene.object(&client, "task-2"), &STEP, 2).unwrap();
        assert!(bound.is_bound() && bound.native == 30, "{bound:?}");
    }
}

#[test]
fn later_refusal_to_a_sleeping_thread_leaves_promises_true() {
    let (orb, _events) = observed_orb(|builder| builder);
    let scene = Scene::new(orb, CorePoolConfig::default().name("asleep").cores([0]));
    scene.poa.activate_object_with_id(&ObjectId::from(&b"task-3"[..]), &Servant::new(Refuser)).unwrap();
    scene.set(&[task(3, 0, 40)]);
    let client = Orb::new().unwrap();
    assert!(step(&scene.object(&client, "task-3"), &REFUSE, 0).unwrap().is_bound());
    drop(client);
    wait_until(|| scene.pool.counts().currently_bound_connections == 0);
    // The thread that cannot be lowered sleeps at the priority of the task.
    assert!(
        list_threads()
            .unwrap()
            .iter()
            .any(|thread| { thread.name.starts_with("asleep/b") && thread.scheduling == Scheduling::Fifo(40) })
    );
    assert_eq!((scene.pool.missing_guarantee_reason(), scene.pool.take_refused_tasks()), (None, vec![]));
}

#[test]
fn task_whose_priority_is_not_restored_after_a_demoted_job_is_withdrawn() {
    let (orb, events) = observed_orb(|builder| builder);
    let scene = Scene::new(orb, CorePoolConfig::default().name("demoted").cores([0]));
    scene.poa.activate_object_with_id(&ObjectId::from(&b"task-3"[..]), &Servant::new(Refuser)).unwrap();
    let rules = TaskRules::default().budget(Duration::from_millis(1), JobOverrunAction::Demote);
    scene.set(&[task(3, 0, 40).rules(rules), task(2, 0, 30)]);
    let (client, other) = (Orb::new().unwrap(), Orb::new().unwrap());
    let object = scene.object(&client, "task-3");
    assert!(step(&scene.object(&other, "task-2"), &STEP, 0).unwrap().is_bound());
    assert!(step(&object, &OVERRUN, 0).unwrap().is_bound());
    wait_until(|| events.lock().len() == 1);
    assert!(events.lock()[0].contains("task 3: the kernel refused Fifo(40): "), "{events:?}");
    assert_eq!(scene.pool.take_refused_tasks().len(), 1);
    wait_until(|| scene.pool.counts().currently_bound_connections == 1);
    assert!(!step(&object, &STEP, 1).unwrap().is_bound());
    assert!(step(&scene.object(&other, "task-2"), &STEP, 1).unwrap().is_bound());
}

#[test]
fn refused_move_leaves_the_order_of_the_deadlines_on_the_other_core() {
    let (orb, _events) = observed_orb(|builder| builder);
    let scene = Scene::new(orb, CorePoolConfig::default().name("order").cores([0, 1]));
    scene.poa.activate_object_with_id(&ObjectId::from(&b"task-3"[..]), &Servant::new(Refuser)).unwrap();
    let by_deadline = |number, core, minutes: u64| {
        task(number, core, 98).rules(TaskRules::default().deadline(Duration::from_secs(60 * minutes)))
    };
    scene.set(&[by_deadline(1, 0, 10), by_deadline(2, 1, 30), by_deadline(3, 1, 20)]);
    let clients = [Orb::new().unwrap(), Orb::new().unwrap(), Orb::new().unwrap()];
    let objects = [0, 1, 2].map(|at| scene.object(&clients[at], &format!("task-{}", at + 1)));
    let alone = step(&objects[2], &STEP, 0).unwrap().native;
    let holding = [0, 1].map(|at| {
        let object = objects[at].clone();
        std::thread::spawn(move || step(&object, &HOLD, 1).unwrap())
    });
    wait_until(|| scene.state.held.load(Ordering::SeqCst) == 2);
    let above = step(&objects[2], &STEP, 0).unwrap().native;
    assert!(above > alone, "{above}, {alone}");
    set_refused(
        &scene,
        RefusedRequest::Affinity,
        &[by_deadline(1, 1, 10), by_deadline(2, 1, 30), by_deadline(3, 1, 20)],
    );
    assert_eq!(scene.pool.take_refused_tasks().len(), 1);
    // The refused task 1 has no place in the order of deadlines on core 1, so the priority of task
    // 3 does not change.
    assert_eq!(step(&objects[2], &STEP, 0).unwrap().native, above);
    scene.state.open.store(true, Ordering::SeqCst);
    holding.into_iter().for_each(|held| _ = held.join().unwrap());
}

#[test]
fn rate_of_a_withdrawn_task_ends() {
    let (orb, _events) = observed_orb(|builder| builder);
    let scene = Scene::new(orb, CorePoolConfig::default().name("rate").cores([0, 1]));
    let limited = |core| task(1, core, 40).rules(TaskRules::default().rate(Duration::from_secs(3_600), Duration::ZERO));
    scene.set(&[limited(0)]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    // The second task shows that the kernel permits core 1 before the refusal.
    let other = Orb::new().unwrap();
    assert!(step(&object, &STEP, 0).unwrap().is_bound());
    scene.set(&[limited(0), task(2, 1, 30)]);
    assert!(step(&scene.object(&other, "task-2"), &STEP, 0).unwrap().is_bound());
    set_refused(&scene, RefusedRequest::Affinity, &[limited(1), task(2, 1, 30)]);
    assert_eq!(scene.pool.take_refused_tasks().len(), 1);
    // Now the threads of the lane read the connection of task 1. If the rate of the task still
    // applied, its next job would wait for an hour.
    wait_until(|| scene.pool.counts().currently_bound_connections == 1);
    let next = std::thread::spawn(move || step(&object, &STEP, 1).unwrap());
    wait_until(|| next.is_finished());
    assert!(!next.join().unwrap().is_bound());
}

const MS: u64 = 1_000_000;

fn spec(name: &str, period: u64, target: &ObjectRef) -> TaskSpec {
    TaskSpec {
        name: name.into(),
        target: Some(target.clone()),
        operation: String::new(),
        timing: TaskTiming { execution: 5 * MS, period, deadline: 0, jitter: 0, blocking: 0, min_distance: 0 },
        importance: Criticality::Normal,
        core: 0,
        lease: 3_600_000 * MS,
        overrun: JobOverrun::Report,
    }
}

#[test]
fn admission_object_demotes_a_task_that_the_kernel_refuses() {
    // One thread serves the target and the admission object, so a refusal for this thread applies
    // to admissions too.
    let one =
        |builder: OrbBuilder| builder.pool(PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 1 }));
    let (server, events) = observed_orb(one);
    let pool = CorePoolConfig::default().cores([0]);
    let service = AdmissionConfig::new(Machine::with_cores(1)).core_pool(pool).serve(&server).unwrap();
    let target = server.root_poa().activate(&Servant::new(Refuser)).unwrap().to_string();
    let client = Orb::new().unwrap();
    let tasks: TasksRef = client.string_to_reference(&service.reference().to_string()).unwrap();
    let target = client.string_to_object(&target).unwrap().unwrap();
    let record = |task: u64| -> TaskRecord {
        let (records, ..) = tasks.snapshot().unwrap();
        records.into_iter().find(|record| record.task == task).expect("the task")
    };
    let served =
        |object: &Option<ObjectRef>| -> Served { step(object.as_ref().expect("a task reference"), &STEP, 0).unwrap() };
    let slow = tasks.admit(&spec("slow", 200 * MS, &target)).unwrap();
    assert_eq!(served(&slow.target).native, 98);
    assert!(!step(&target, &REFUSE, 0).unwrap().is_bound());
    // The kernel does not permit the thread that admits the urgent task to lower the thread of the
    // slow task.
    let urgent = tasks.admit(&spec("urgent", 50 * MS, &target)).unwrap();
    wait_until(|| record(slow.task).state == TaskState::Demoted);
    assert_eq!(record(slow.task).core, -1);
    wait_until(|| !events.lock().is_empty());
    let event = events.lock()[0].clone();
    assert!(event.contains("has withdrawn the promise of task") && event.contains("Fifo(97): "), "{event}");
    let outcome = tasks.outcome(slow.task, &slow.token);
    let Err(AdmitError::System(error)) = &outcome else { panic!("{outcome:?}") };
    let renewed = tasks.renew(slow.task, &slow.token, 0).unwrap_err();
    let refused = (Kind::NoResources, corelane::minor::TASK_REFUSED);
    assert_eq!([(error.kind(), error.minor()), (renewed.kind(), renewed.minor())], [refused; 2]);
    wait_until(|| !served(&slow.target).is_bound());
    let by = served(&urgent.target);
    assert_eq!((by.core, by.native, by.is_bound(), record(urgent.task).state), (0, 98, true, TaskState::Promised));
    // The task registry keeps the demoted task until its client withdraws it.
    tasks.withdraw(slow.task, &slow.token).unwrap();
    assert_eq!(service.core_pool().and_then(|pool| pool.missing_guarantee_reason()), None);
}

#[test]
fn client_of_a_refused_task_learns_of_it_at_its_next_renewal() {
    let one =
        |builder: OrbBuilder| builder.pool(PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 1 }));
    let (server, _events) = observed_orb(one);
    let pool = CorePoolConfig::default().cores([0]);
    let service = AdmissionConfig::new(Machine::with_cores(1)).core_pool(pool).serve(&server).unwrap();
    let target = server.root_poa().activate(&Servant::new(Refuser)).unwrap().to_string();
    let client = Orb::new().unwrap();
    let tasks: TasksRef = client.string_to_reference(&service.reference().to_string()).unwrap();
    let target = client.string_to_object(&target).unwrap().unwrap();
    // The first renewal follows after 10 s, and the lease ends after 30 s. So the end of the lease
    // is not the reason if the task lapses while it is registered.
    let short = TaskSpec { lease: 30_000 * MS, ..spec("slow", 200 * MS, &target) };
    let slow = AdmittedTask::admit(&tasks, &target, &short).unwrap();
    assert_eq!(step(slow.reference(), &STEP, 0).unwrap().native, 98);
    assert!(!slow.has_lapsed() && !step(&target, &REFUSE, 0).unwrap().is_bound());
    tasks.admit(&spec("urgent", 50 * MS, &target)).unwrap();
    wait_until(|| slow.has_lapsed());
    let task = slow.promise().task;
    let is_in_registry = || tasks.snapshot().unwrap().0.iter().any(|record| record.task == task);
    assert!(is_in_registry());
    slow.withdraw().unwrap();
    assert!(!is_in_registry());
}

#[test]
fn task_keeps_its_promise_and_priority_if_the_task_above_it_ends_and_no_raise_is_permitted() {
    let one =
        |builder: OrbBuilder| builder.pool(PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 1 }));
    let (server, events) = observed_orb(one);
    let pool = CorePoolConfig::default().cores([0]);
    let service = AdmissionConfig::new(Machine::with_cores(1)).core_pool(pool).serve(&server).unwrap();
    let target = server.root_poa().activate(&Servant::new(Refuser)).unwrap().to_string();
    let client = Orb::new().unwrap();
    let tasks: TasksRef = client.string_to_reference(&service.reference().to_string()).unwrap();
    let target = client.string_to_object(&target).unwrap().unwrap();
    let served =
        |object: &Option<ObjectRef>| -> Served { step(object.as_ref().expect("a task reference"), &STEP, 0).unwrap() };
    let slow = tasks.admit(&spec("slow", 200 * MS, &target)).unwrap();
    let urgent = tasks.admit(&spec("urgent", 50 * MS, &target)).unwrap();
    assert_eq!(served(&slow.target).native, 97);
    assert!(!step(&target, &REFUSE, 0).unwrap().is_bound());
    tasks.withdraw(urgent.task, &urgent.token).unwrap();
    // The withdrawn task leaves the task registry when its share of the core, kept for its last
    // job, is free.
    wait_until(|| tasks.snapshot().unwrap().0.iter().all(|record| record.task != urgent.task));
    // Each request for a change brings the pool up to date, even a request that fails.
    assert!(tasks.withdraw(urgent.task, &urgent.token).is_err());
    let by = served(&slow.target);
    assert_eq!((by.native, by.is_bound()), (97, true));
    assert_eq!((service.core_pool().unwrap().counts().tasks_refused_by_kernel, events.lock().len()), (0, 0));
    tasks.outcome(slow.task, &slow.token).unwrap();
}
