//! Core pools: the core, the priority and the thread that serve the requests of a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use corelane::poa::ObjectId;
use corelane::rt::{CorePoolConfig, CorePoolCounts, RtConfig, SchedulingClass};
use corelane::{Event, ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{Scheduling, list_threads};
use corelane_tests::core_pool::{ByName, HOLD, NOTE, STEP, Scene, Served, step, task};
use corelane_tests::real_time::{RawClient, fair_orb, fifo_orb, wait_until};

const MOVES: u64 = 1_000;

fn bound_threads(pool: &str) -> Vec<(Vec<usize>, Scheduling)> {
    let own = format!("{pool}/b");
    let threads = list_threads().unwrap();
    threads
        .iter()
        .filter(|thread| thread.name.starts_with(&own))
        .map(|thread| (thread.cores.iter().collect(), thread.scheduling))
        .collect()
}

#[test]
fn requests_of_a_task_run_on_its_core_at_its_priority() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("own").cores([0, 1]));
    assert_eq!(scene.pool.missing_guarantee_reason(), None);
    scene.set(&[task(1, 1, 40), task(2, 0, 30)]);
    for (id, core, native) in [("task-1", 1, 40), ("task-2", 0, 30)] {
        let client = Orb::new().unwrap();
        let object = scene.object(&client, id);
        let first = step(&object, &STEP, 0).unwrap();
        assert_eq!((first.core, first.native), (core, native));
        assert!(first.is_bound(), "{first:?}");
        assert!(first.priority > 0, "{first:?}");
        for number in 1..50 {
            assert_eq!(step(&object, &STEP, number).unwrap(), first);
        }
    }
    let client = Orb::new().unwrap();
    let plain = step(&scene.object(&client, "plain"), &STEP, 0).unwrap();
    assert!(!plain.is_bound() && plain.native == 0, "{plain:?}");
    // A thread returns to its core and its resting priority when its connection has ended.
    wait_until(|| scene.pool.counts().currently_bound_connections == 0);
    let threads = bound_threads("own");
    assert_eq!(threads.len(), 8);
    assert!(threads.iter().all(|(cores, native)| cores.len() == 1 && *native == Scheduling::Fifo(1)), "{threads:?}");
    let counts = scene.pool.counts();
    assert_eq!(
        (counts.connections_bound, counts.threads_borrowed, counts.requests_not_bound, counts.requests_without_task),
        (2, 0, 0, 0)
    );
}

#[test]
fn priority_of_a_request_does_not_change_the_priority_of_its_task() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("kept").cores([0]));
    scene.set(&[task(1, 0, 40)]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    let first = step(&object, &STEP, 0).unwrap();
    // The client uses another connection for calls at another priority, and this connection has
    // another thread.
    client.real_time().current().unwrap().set_priority(32_000).unwrap();
    let urgent = step(&object, &STEP, 1).unwrap();
    assert!(urgent.is_bound(), "{urgent:?}");
    assert_eq!(Served { thread: first.thread.clone(), ..urgent }, first);
}

#[test]
fn locate_request_binds_a_connection() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("located").cores([0]));
    scene.set(&[task(1, 0, 40)]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    object.validate_connection().unwrap();
    assert!(!object.non_existent().unwrap());
    assert_eq!(scene.pool.counts().currently_bound_connections, 1);
}

#[test]
fn bound_connection_follows_its_task_to_another_core() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("moved").cores([0, 1]));
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    scene.set(&[task(1, 0, 40)]);
    let first = step(&object, &STEP, 0).unwrap();
    scene.set(&[task(1, 1, 20)]);
    let moved = step(&object, &STEP, 1).unwrap();
    assert_eq!((moved.core, moved.native, &moved.thread), (1, 20, &first.thread));
    assert!(moved.priority < first.priority, "{moved:?} {first:?}");
    assert_eq!((scene.pool.counts().threads_moved, scene.pool.counts().connections_bound), (1, 1));
}

#[test]
fn thread_sleeps_again_when_its_task_ends() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("ended").cores([0]));
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    scene.set(&[task(1, 0, 40)]);
    assert!(step(&object, &STEP, 0).unwrap().is_bound());
    scene.set(&[]);
    wait_until(|| scene.pool.counts().currently_bound_connections == 0);
    let plain = step(&object, &STEP, 1).unwrap();
    assert!(!plain.is_bound() && plain.native == 0, "{plain:?}");
    scene.set(&[task(1, 0, 30)]);
    assert_eq!(step(&object, &STEP, 2).unwrap().native, 30);
    assert_eq!(*scene.state.steps.0.lock(), [0, 1, 2]);
    assert_eq!((scene.pool.counts().connections_unbound_by_task_end, scene.pool.counts().connections_bound), (1, 2));
    assert_eq!(scene.orb.event_counts().connections_opened, 1);
}

#[test]
fn bound_thread_of_a_silent_client_sleeps_until_its_task_ends() {
    for carrier in ["tcp", "shm"] {
        let path = std::env::temp_dir().join(format!("corelane-core-pool-silent-{}", std::process::id()));
        let address = if carrier == "tcp" { "tcp:127.0.0.1:0".to_owned() } else { format!("shm:{}", path.display()) };
        let config = CorePoolConfig::default().name("silent").cores([0]).listen(address);
        let scene = Scene::new(fifo_orb(), config);
        let client = Orb::new().unwrap();
        let object = scene.object(&client, "task-1");
        scene.set(&[task(1, 0, 40)]);
        let by = step(&object, &STEP, 0).unwrap();
        let tid = list_threads().unwrap().iter().find(|thread| thread.name == by.thread).unwrap().tid.as_raw();
        let switches = || {
            let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
            line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
        };
        // Shortly after a call the thread may wake up, so the check is repeated.
        let is_asleep = || {
            let before = switches();
            std::thread::sleep(Duration::from_millis(300));
            switches() == before
        };
        assert!((0..20).any(|_| is_asleep()), "{carrier}: the thread wakes up without a reason");
        assert_eq!(step(&object, &STEP, 1).unwrap(), by, "{carrier}");
        assert!((0..20).any(|_| is_asleep()), "{carrier}: the thread wakes up without a reason");
        scene.set(&[]);
        wait_until(|| scene.pool.counts().currently_bound_connections == 0);
        assert_eq!(step(&object, &STEP, 2).unwrap().native, 0, "{carrier}");
        assert_eq!(*scene.state.steps.0.lock(), [0, 1, 2], "{carrier}");
    }
}

#[test]
fn connections_of_other_transports_are_bound_and_given_back() {
    for carrier in ["unix", "shm"] {
        let counts = serve_over(carrier, CorePoolConfig::default().name(carrier));
        assert_eq!(counts.connections_bound, 3, "{carrier}");
    }
}

/// Calls a task over a transport while the task begins and ends three times.
fn serve_over(carrier: &str, config: CorePoolConfig) -> CorePoolCounts {
    let path = std::env::temp_dir().join(format!("corelane-{}-{}-{carrier}", config.name, std::process::id()));
    let config = config.cores([0]);
    let scene = Scene::new(fifo_orb(), config.listen(format!("{carrier}:{}", path.display())));
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    for round in 0..3 {
        scene.set(&[task(1, 0, 40)]);
        for number in 0..50 {
            assert_eq!(step(&object, &STEP, 100 * round + number).unwrap().native, 40, "{carrier}");
        }
        scene.set(&[]);
        wait_until(|| scene.pool.counts().currently_bound_connections == 0);
        for number in 50..100 {
            assert_eq!(step(&object, &STEP, 100 * round + number).unwrap().native, 0, "{carrier}");
        }
    }
    assert_eq!(*scene.state.steps.0.lock(), (0..300).collect::<Vec<_>>(), "{carrier}");
    scene.pool.counts()
}

#[test]
fn sleeping_thread_of_another_core_is_borrowed_and_then_one_started() {
    let config = CorePoolConfig::default().name("few").cores([0, 1]).threads_per_core(1).max_threads(3);
    let scene = Scene::new(fifo_orb(), config);
    scene.set(&[task(1, 0, 40)]);
    let clients: Vec<Orb> = (0..4).map(|_| Orb::new().unwrap()).collect();
    let served: Vec<Served> =
        clients.iter().map(|client| step(&scene.object(client, "task-1"), &STEP, 0).unwrap()).collect();
    for by in &served[..3] {
        assert_eq!((by.core, by.native, by.is_bound()), (0, 40, true), "{served:?}");
    }
    assert!(!served[3].is_bound() && served[3].native == 0, "{served:?}");
    let counts = scene.pool.counts();
    assert_eq!(
        (counts.connections_bound, counts.threads_borrowed, counts.threads_started, counts.requests_not_bound),
        (3, 1, 1, 1)
    );
    drop(clients.into_iter().next());
    drop(scene);
}

#[test]
fn request_without_a_free_thread_is_reported_and_bound_later() {
    let events = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let seen = Arc::clone(&events);
    let observe = move |event: &Event| {
        if matches!(event, Event::TaskNotBound { .. }) {
            seen.lock().push(event.to_string());
        }
    };
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").on_event(observe).build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    let scene = Scene::new(orb, CorePoolConfig::default().name("one").cores([0]).threads_per_core(1).max_threads(1));
    scene.set(&[task(1, 0, 40)]);
    let (first, second) = (Orb::new().unwrap(), Orb::new().unwrap());
    assert!(step(&scene.object(&first, "task-1"), &STEP, 0).unwrap().is_bound());
    let object = scene.object(&second, "task-1");
    assert!(!step(&object, &STEP, 1).unwrap().is_bound());
    assert_eq!(events.lock().len(), 1);
    drop(first);
    wait_until(|| scene.pool.counts().currently_bound_connections == 0);
    assert!(step(&object, &STEP, 2).unwrap().is_bound());
    assert_eq!((events.lock().len(), scene.pool.counts().requests_not_bound), (1, 1));
}

#[test]
fn requests_of_another_task_and_without_a_task_on_a_bound_connection_run_on_other_threads() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("mixed").cores([0]));
    scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
    let client = Orb::new().unwrap();
    let [one, two, plain] = ["task-1", "task-2", "plain"].map(|id| scene.object(&client, id));
    for round in 0..20 {
        let [by_one, by_two, by_plain] = [(&one, 0), (&two, 1), (&plain, 2)]
            .map(|(object, offset)| step(object, &STEP, 3 * round + offset).unwrap());
        assert_eq!((by_one.native, by_two.native, by_plain.native), (40, 30, 0));
        assert!(by_one.is_bound() && by_two.is_bound() && !by_plain.is_bound());
        assert_ne!(by_one.thread, by_two.thread);
    }
    assert_eq!(*scene.state.steps.0.lock(), (0..60).collect::<Vec<_>>());
    let counts = scene.pool.counts();
    assert_eq!((counts.connections_bound, counts.requests_handed_over, counts.requests_without_task), (1, 20, 20));
}

/// A servant that calls `targets` on the connection on which the client waits for the reply.
struct CallBack {
    client: Arc<Mutex<RawClient>>,
    targets: [ObjectRef; 2],
    ended: Arc<AtomicU32>,
}

impl Skeleton for CallBack {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/CallBack:1.0"]
    }

    fn dispatch(&self, _: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let number = call.arguments().read_u32()?;
        let mut client = self.client.lock();
        for target in &self.targets {
            client.set_target(target);
            let sent = client.send("step", None, Some(number + 1));
            assert_eq!(client.receive_reply_id(), sent);
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        // The reply has the form of the results of `step`. Its values are arbitrary, because the
        // server ignores them.
        let reply = call.reply();
        reply.write_u32(0);
        reply.write_u8(0);
        reply.write_i16(0);
        reply.write_bool(false);
        reply.write_latin1_str("")?;
        Ok(())
    }
}

const ROUNDS: u32 = 20;

#[test]
fn callbacks_run_on_a_bound_connection_during_nested_calls() {
    let counts = call_back_during_nested_calls(CorePoolConfig::default().name("nested"));
    assert_eq!((counts.requests_handed_over, counts.requests_not_bound), (ROUNDS.into(), 0), "{counts:?}");
}

/// Calls a task whose servant calls the client. The client then calls the server on the same
/// connection before it replies.
fn call_back_during_nested_calls(config: CorePoolConfig) -> CorePoolCounts {
    let scene = Scene::new(fifo_orb(), config.cores([0]));
    scene.set(&[task(1, 0, 40)]);
    let client = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    client.root_poa().manager().activate().unwrap();
    let [object, plain] = ["task-1", "plain"].map(|id| scene.object(&client, id));
    let raw = Arc::new(Mutex::new("client", LockScope::Orb, RawClient::for_object(&object)));
    let ended = Arc::new(AtomicU32::new(0));
    let targets = [plain, object.clone()];
    let back = CallBack { client: Arc::clone(&raw), targets, ended: Arc::clone(&ended) };
    let back = client.root_poa().activate(&Servant::new(back)).unwrap();
    let other = scene.orb.string_to_object(&back.to_string()).unwrap().unwrap();
    assert!(scene.state.other.set(other).is_ok());
    for round in 0..ROUNDS {
        let sent = {
            let mut raw = raw.lock();
            raw.set_target(&object);
            raw.send("pass", None, Some(2 * round))
        };
        wait_until(|| ended.load(Ordering::SeqCst) == round + 1);
        assert_eq!(raw.lock().receive_reply_id(), sent);
    }
    let in_order: Vec<u32> = (0..ROUNDS).flat_map(|round| [2 * round + 1, 2 * round + 1, 2 * round]).collect();
    assert_eq!(*scene.state.steps.0.lock(), in_order);
    assert_eq!(scene.state.bound.load(Ordering::SeqCst), 2 * ROUNDS);
    scene.pool.counts()
}

#[test]
fn no_request_is_lost_repeated_or_reordered_while_tasks_change() {
    let counts = change_tasks_under_calls(CorePoolConfig::default().name("moves"), MOVES);
    assert!(counts.threads_moved >= MOVES / 5 && counts.connections_unbound_by_task_end >= MOVES / 5, "{counts:?}");
}

/// Changes the tasks of a pool while a client calls, and checks that the client's requests run once
/// each and in order.
fn change_tasks_under_calls(config: CorePoolConfig, changes: u64) -> CorePoolCounts {
    let scene = Scene::new(fifo_orb(), config.cores([0, 1]).best_effort_threads(1));
    let sets = [vec![task(1, 0, 40)], vec![task(1, 1, 20)], vec![], vec![task(1, 1, 40)], vec![]];
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    let ends = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let mut number = 0;
            while !ends.load(Ordering::SeqCst) {
                for _ in 0..3 {
                    object
                        .send_oneway(&NOTE, &|encoder| {
                            encoder.write_u32(number);
                            Ok(())
                        })
                        .unwrap();
                    number += 1;
                }
                step(&object, &STEP, number).unwrap();
                number += 1;
            }
            number
        });
        for change in 0..changes {
            scene.set(&sets[change as usize % sets.len()]);
            // At least five requests run with each set of tasks.
            let before = scene.state.steps.0.lock().len();
            wait_until(|| scene.state.steps.0.lock().len() > before + 4);
        }
        ends.store(true, Ordering::SeqCst);
        calls.join().unwrap()
    });
    assert_eq!(*scene.state.steps.0.lock(), (0..sent).collect::<Vec<_>>());
    let counts = scene.pool.counts();
    assert_eq!((scene.orb.event_counts().connections_opened, counts.requests_not_bound), (1, 0));
    counts
}

/// Returns true after the beginning of a shutdown, which destroys the POA of the objects and then
/// waits for its requests.
fn has_shutdown_begun(scene: &Scene) -> bool {
    scene.orb.root_poa().children().is_empty()
}

/// Shuts the ORB of a scene down. Returns the arguments of the operations that had ended when the
/// shutdown ended.
fn shut_down(scene: &Scene) -> Vec<u32> {
    scene.orb.shutdown(true).unwrap();
    scene.state.steps.0.lock().clone()
}

#[test]
fn running_request_is_finished_when_its_task_ends_and_when_the_orb_ends() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("running").cores([0]));
    scene.set(&[task(1, 0, 40)]);
    let client = Orb::new().unwrap();
    let object = scene.object(&client, "task-1");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| step(&object, &HOLD, 7).unwrap());
        wait_until(|| scene.state.held.load(Ordering::SeqCst) == 1);
        scene.set(&[]);
        assert_eq!(scene.pool.counts().currently_bound_connections, 1);
        let end = scope.spawn(|| shut_down(&scene));
        wait_until(|| has_shutdown_begun(&scene));
        scene.state.open.store(true, Ordering::SeqCst);
        assert_eq!(call.join().unwrap().native, 40);
        assert_eq!(end.join().unwrap(), [7]);
    });
    assert_eq!(scene.pool.counts().currently_bound_connections, 0);
}

#[test]
fn client_that_breaks_the_protocol_frees_its_thread() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("broken").cores([0]));
    scene.set(&[task(1, 0, 40)]);
    let client = Orb::new().unwrap();
    let mut raw = RawClient::for_object(&scene.object(&client, "task-1"));
    raw.send("step", None, Some(1));
    raw.receive_reply_id();
    assert_eq!(scene.pool.counts().currently_bound_connections, 1);
    drop(raw);
    wait_until(|| scene.pool.counts().currently_bound_connections == 0);
}

#[test]
fn pool_without_priorities_serves_its_tasks_and_says_that_promises_are_advisory() {
    let events = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let seen = Arc::clone(&events);
    let observe = move |event: &Event| {
        if matches!(event, Event::TaskTimingNotGuaranteed { .. }) {
            seen.lock().push(event.to_string());
        }
    };
    let config = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(config).listen("tcp:127.0.0.1:0").on_event(observe).build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    let scene = Scene::new(orb, CorePoolConfig::default().name("advice").cores([0, 1]));
    scene.set(&[task(1, 1, 40)]);
    let client = Orb::new().unwrap();
    let by = step(&scene.object(&client, "task-1"), &STEP, 0).unwrap();
    assert_eq!((by.core, by.native, by.is_bound()), (1, 0, true));
    assert!(scene.pool.missing_guarantee_reason().is_some());
    assert_eq!(events.lock().len(), 1);
}

#[test]
fn core_that_the_machine_lacks_makes_promises_advisory() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("absent").cores([0]));
    assert_eq!(scene.pool.missing_guarantee_reason(), None);
    scene.set(&[task(1, 1_000, 40)]);
    let client = Orb::new().unwrap();
    let by = step(&scene.object(&client, "task-1"), &STEP, 0).unwrap();
    assert_eq!((by.native, by.is_bound()), (40, true));
    let reason = scene.pool.missing_guarantee_reason().unwrap();
    assert!(reason.starts_with("core 1000: "), "{reason}");
}

#[test]
fn reference_at_an_endpoint_of_a_task_has_a_connection_of_its_own() {
    let scene = Scene::new(fifo_orb(), CorePoolConfig::default().name("ends").cores([0, 1]).task_endpoint_count(2));
    scene.set(&[task(1, 0, 40), task(2, 1, 30)]);
    let endpoints = [(); 2].map(|()| scene.pool.take_task_endpoint().unwrap());
    assert!(scene.pool.take_task_endpoint().is_none());
    let client = Orb::new().unwrap();
    let objects = [("task-1", &endpoints[0]), ("task-2", &endpoints[1])].map(|(id, endpoint)| {
        let object = scene.poa.create_reference_at(&ObjectId::from(id.as_bytes()), "", endpoint).unwrap();
        client.string_to_object(&object.to_string()).unwrap().unwrap()
    });
    for round in 0..20 {
        let by = [0, 1].map(|at| step(&objects[at], &STEP, 2 * round + at as u32).unwrap());
        assert_eq!(by.each_ref().map(|by| (by.core, by.native, by.handed_over)), [(0, 40, false), (1, 30, false)]);
    }
    let counts = scene.pool.counts();
    assert_eq!((counts.connections_bound, counts.requests_handed_over), (2, 0), "{counts:?}");
    // The next endpoint has the address of the dropped endpoint. A POA refuses an endpoint of
    // another pool.
    let [first, second] = endpoints;
    let addresses = first.addresses().to_vec();
    drop(first);
    let again = scene.pool.take_task_endpoint().unwrap();
    assert_eq!(again.addresses(), addresses);
    assert_ne!(again.addresses(), second.addresses());
    let other = CorePoolConfig::default().name("other").cores([0]);
    let other = scene.orb.real_time().create_core_pool(&other, Arc::new(ByName)).unwrap();
    let foreign = other.take_task_endpoint().unwrap();
    assert!(scene.poa.create_reference_at(&ObjectId::from(&b"task-1"[..]), "", &foreign).is_err());
    scene.orb.real_time().destroy_threadpool(other.id()).unwrap();
    assert!(other.take_task_endpoint().is_none());
}

#[test]
fn settings_out_of_range_are_refused() {
    let orb = fair_orb();
    let create = |config: CorePoolConfig| orb.real_time().create_core_pool(&config, Arc::new(ByName));
    assert!(create(CorePoolConfig::default().cores([1_000_000])).is_err());
    assert!(create(CorePoolConfig::default().best_effort_threads(0)).is_err());
    assert!(create(CorePoolConfig::default().threads_per_core(0)).is_err());
    assert!(create(CorePoolConfig::default().cores([0]).threads_per_core(3).max_threads(2)).is_err());
    assert!(create(CorePoolConfig::default().listen("nowhere")).is_err());
    let pool = create(CorePoolConfig::default().cores([0])).unwrap();
    assert!(pool.set_tasks(&[task(1, 0, 0)]).is_err());
    assert!(pool.set_tasks(&[task(1, 1_000_000, 1)]).is_err());
    orb.real_time().destroy_threadpool(pool.id()).unwrap();
    assert_eq!(pool.counts(), CorePoolCounts::default());
    pool.set_tasks(&[task(1, 0, 1)]).unwrap();
}

/// The modes of core pools: the thread that reads a request of a task, and the thread that runs it.
mod modes {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, OnceLock};

    use corelane::rt::{CorePoolConfig, CorePoolMode, TaskBinder, TaskRules};
    use corelane::{Event, Orb, SystemExceptionKind as Kind};
    use corelane_sys::lock::{LockScope, Mutex};
    use corelane_sys::thread::{Scheduling, list_threads};
    use corelane_tests::core_pool::{ByName, HOLD, STEP, Scene, step, task};
    use corelane_tests::real_time::{RawClient, fifo_orb, wait_until};

    use super::{
        ROUNDS, bound_threads, call_back_during_nested_calls, change_tasks_under_calls, has_shutdown_begun, serve_over,
        shut_down,
    };

    const READING: [CorePoolMode; 2] = [CorePoolMode::Manager, CorePoolMode::LeaderFollowers];

    fn named(mode: CorePoolMode, name: &str) -> CorePoolConfig {
        CorePoolConfig::default().mode(mode).name(format!("{name}{}", mode as u8))
    }

    /// Returns the cores and the scheduling of all threads whose names begin with `name`.
    fn threads(name: &str) -> Vec<(Vec<usize>, Scheduling)> {
        let threads = list_threads().unwrap();
        let threads = threads.iter().filter(|thread| thread.name.starts_with(name));
        threads.map(|thread| (thread.cores.iter().collect(), thread.scheduling)).collect()
    }

    #[test]
    fn requests_run_on_the_core_and_at_the_priority_of_their_task_in_each_mode() {
        for mode in READING {
            let scene = Scene::new(fifo_orb(), named(mode, "each").cores([0, 1]));
            assert_eq!(scene.pool.missing_guarantee_reason(), None);
            scene.set(&[task(1, 1, 40), task(2, 0, 30)]);
            for (id, core, native) in [("task-1", 1, 40), ("task-2", 0, 30)] {
                let client = Orb::new().unwrap();
                let object = scene.object(&client, id);
                for number in 0..50 {
                    let by = step(&object, &STEP, number).unwrap();
                    assert_eq!((by.core, by.native, by.is_bound()), (core, native, true), "{mode:?} {by:?}");
                    assert!(by.priority > 0, "{mode:?} {by:?}");
                }
            }
            let client = Orb::new().unwrap();
            let plain = step(&scene.object(&client, "plain"), &STEP, 0).unwrap();
            assert!(!plain.is_bound() && plain.native == 0, "{plain:?}");
            let counts = scene.pool.counts();
            let by_mode = if mode == CorePoolMode::Manager { (100, 0) } else { (0, 100) };
            assert_eq!((counts.requests_handed_over, counts.led), by_mode);
            assert_eq!((counts.connections_bound, counts.requests_not_bound, counts.requests_without_task), (0, 0, 0));
            let (managers, resting) = match mode {
                CorePoolMode::Manager => (vec![(vec![0], Scheduling::Fifo(99)); 2], Scheduling::Fifo(1)),
                _ => (vec![], Scheduling::Fifo(99)),
            };
            let name = format!("each{}", mode as u8);
            assert_eq!(threads(&format!("{name}/m")), managers);
            wait_until(|| bound_threads(&name).iter().all(|thread| thread.1 == resting));
            assert_eq!(bound_threads(&name).len(), 8);
        }
    }

    #[test]
    fn threads_without_affinity_have_the_priority_of_their_task_on_all_cores() {
        let scene = Scene::new(fifo_orb(), named(CorePoolMode::NoAffinity, "free").cores([0, 1]));
        let reason = scene.pool.missing_guarantee_reason().unwrap();
        assert_eq!(reason, "its threads run on each core of the pool");
        scene.set(&[task(1, 1, 40), task(2, 0, 30)]);
        let clients = [(); 2].map(|()| Orb::new().unwrap());
        for (client, (id, native)) in clients.iter().zip([("task-1", 40), ("task-2", 30)]) {
            let object = scene.object(client, id);
            let first = step(&object, &STEP, 0).unwrap();
            assert_eq!((first.native, first.is_bound()), (native, true));
            for number in 1..50 {
                assert_eq!(step(&object, &STEP, number).unwrap().thread, first.thread);
            }
            let placed = threads(&first.thread);
            assert_eq!(placed, [(vec![0, 1], Scheduling::Fifo(native))]);
        }
        let counts = scene.pool.counts();
        assert_eq!(
            (counts.connections_bound, counts.threads_borrowed, counts.threads_moved, counts.requests_handed_over),
            (2, 0, 0, 0)
        );
        // In this mode a bound thread may run on every core of the pool, so another core of its
        // task does not move it.
        scene.set(&[task(1, 0, 40), task(2, 1, 30)]);
        assert_eq!(scene.pool.counts().threads_moved, 0);
        scene.pool.mark_core_lost(0);
        scene.pool.mark_core_returned(0);
        assert!(bound_threads("free3").iter().all(|(cores, _)| cores[..] == [0, 1]));
    }

    #[test]
    fn request_is_served_by_a_borrowed_and_a_new_thread_and_then_by_none_in_each_mode() {
        for mode in READING {
            for refuses in [false, true] {
                let name = if refuses { "refuses" } else { "few" };
                let config = named(mode, name).cores([0, 1]).threads_per_core(1).refuses_without_thread(refuses);
                // In the leader/followers modes, one more thread must remain to read.
                let most = if mode == CorePoolMode::Manager { 3 } else { 4 };
                let scene = Scene::new(fifo_orb(), config.max_threads(most));
                scene.set(&[task(1, 0, 40)]);
                let clients: Vec<Orb> = (0..4).map(|_| Orb::new().unwrap()).collect();
                std::thread::scope(|scope| {
                    let mut holding = Vec::new();
                    for (client, held) in clients[..3].iter().zip(1..) {
                        let object = scene.object(client, "task-1");
                        holding.push(scope.spawn(move || step(&object, &HOLD, 0).unwrap()));
                        wait_until(|| scene.state.held.load(Ordering::SeqCst) == held);
                    }
                    let last = step(&scene.object(&clients[3], "task-1"), &STEP, 0);
                    if refuses {
                        let refusal = last.unwrap_err();
                        assert_eq!((refusal.kind(), refusal.minor() & 0xfff), (Kind::Transient, 1), "{mode:?}");
                    } else {
                        let by = last.unwrap();
                        assert!(!by.is_bound() && by.native == 0, "{mode:?} {by:?}");
                    }
                    scene.state.open.store(true, Ordering::SeqCst);
                    let served: BTreeSet<String> = holding
                        .into_iter()
                        .map(|held| {
                            let by = held.join().unwrap();
                            assert_eq!((by.core, by.native, by.is_bound()), (0, 40, true), "{mode:?} {by:?}");
                            by.thread
                        })
                        .collect();
                    assert_eq!(served.len(), 3, "{mode:?}");
                });
                let counts = scene.pool.counts();
                assert!(counts.threads_borrowed >= 1, "{mode:?} {counts:?}");
                let spawned = if mode == CorePoolMode::Manager { 1 } else { 2 };
                assert_eq!(counts.threads_started, spawned, "{mode:?}");
                // A client repeats a refused call before the call fails, so the number of refusals
                // is not certain.
                let unserved = (counts.requests_not_bound, counts.without_thread > 0);
                assert_eq!(unserved, if refuses { (0, true) } else { (1, false) }, "{mode:?} {counts:?}");
                // Checks that the threads are free again.
                let object = scene.object(&clients[3], "task-1");
                wait_until(|| step(&object, &STEP, 0).is_ok_and(|by| by.is_bound()));
            }
        }
    }

    #[test]
    fn requests_keep_their_order_while_tasks_change_in_each_mode() {
        for mode in [CorePoolMode::Manager, CorePoolMode::LeaderFollowers, CorePoolMode::NoAffinity] {
            change_tasks_under_calls(named(mode, "changed"), 200);
        }
    }

    #[test]
    fn callbacks_run_during_nested_calls_in_each_mode() {
        for mode in READING {
            let counts = call_back_during_nested_calls(named(mode, "nested"));
            let served = counts.requests_handed_over + counts.led;
            assert_eq!((served, counts.requests_not_bound), (2 * u64::from(ROUNDS), 0), "{mode:?} {counts:?}");
        }
    }

    #[test]
    fn connections_of_other_transports_are_read_in_each_mode() {
        for mode in READING {
            for carrier in ["unix", "shm"] {
                let counts = serve_over(carrier, named(mode, carrier));
                assert_eq!(counts.requests_handed_over + counts.led, 150, "{mode:?} {carrier} {counts:?}");
            }
        }
    }

    #[test]
    fn requests_of_several_tasks_and_of_none_share_a_connection_in_each_mode() {
        for mode in READING {
            let scene = Scene::new(fifo_orb(), named(mode, "shared").cores([0]));
            scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
            let client = Orb::new().unwrap();
            let [one, two, plain] = ["task-1", "task-2", "plain"].map(|id| scene.object(&client, id));
            assert!(!one.non_existent().unwrap());
            for round in 0..20 {
                let by = [&one, &two, &plain].map(|object| step(object, &STEP, round).unwrap());
                assert_eq!(by.each_ref().map(|by| by.native), [40, 30, 0], "{mode:?}");
                two.validate_connection().unwrap();
            }
            let counts = scene.pool.counts();
            assert_eq!(
                (counts.requests_handed_over + counts.led, counts.requests_without_task),
                (41, 20),
                "{mode:?} {counts:?}"
            );
            assert_eq!(scene.orb.event_counts().connections_opened, 1);
        }
    }

    #[test]
    fn few_messages_besides_jobs_are_read_above_tasks_between_two_jobs() {
        for mode in READING {
            let scene = Scene::new(fifo_orb(), named(mode, "flood").cores([0]));
            scene.set(&[task(1, 0, 40)]);
            let client = Orb::new().unwrap();
            let [object, plain] = ["task-1", "plain"].map(|id| scene.object(&client, id));
            let mut raw = RawClient::for_object(&object);
            let read_above_tasks = || scene.pool.counts().requests_without_task;
            for round in 1..=3 {
                raw.set_target(&object);
                assert_eq!(raw.send("step", None, Some(0)), raw.receive_reply_id());
                raw.set_target(&plain);
                let sent: BTreeSet<u32> = (0..100).map(|_| raw.send("step", None, Some(1))).collect();
                let received: BTreeSet<u32> = sent.iter().map(|_| raw.receive_reply_id()).collect();
                assert_eq!(received, sent, "{mode:?}");
                assert_eq!(read_above_tasks(), 4 * round, "{mode:?}");
            }
            // A new connection without a job is not read above tasks. It stays with the best-effort
            // threads until its first job.
            for number in 0..5 {
                object.validate_connection().unwrap();
                step(&plain, &STEP, number).unwrap();
            }
            assert_eq!(read_above_tasks(), 12, "{mode:?}");
            assert_eq!(step(&object, &STEP, 2).unwrap().native, 40, "{mode:?}");
            step(&plain, &STEP, 3).unwrap();
            assert_eq!(read_above_tasks(), 13, "{mode:?}");
        }
    }

    #[test]
    fn pipelined_requests_run_one_after_another_in_each_mode() {
        for mode in READING {
            let scene = Scene::new(fifo_orb(), named(mode, "piped").cores([0, 1]));
            scene.set(&[task(1, 0, 40)]);
            let client = Orb::new().unwrap();
            let mut raw = RawClient::for_object(&scene.object(&client, "task-1"));
            let sent: Vec<u32> = (0..100).map(|number| raw.send("step", None, Some(number))).collect();
            let received: Vec<u32> = sent.iter().map(|_| raw.receive_reply_id()).collect();
            assert_eq!(received, sent, "{mode:?}");
            assert_eq!(*scene.state.steps.0.lock(), (0..100).collect::<Vec<_>>(), "{mode:?}");
            drop(raw);
            wait_until(|| scene.orb.event_counts().connections_closed == 1);
        }
    }

    #[test]
    fn rate_of_a_task_holds_in_each_mode() {
        for mode in READING {
            let scene = Scene::new(fifo_orb(), named(mode, "rated").cores([0]));
            let hour = std::time::Duration::from_secs(3_600);
            let rated = |distance| task(1, 0, 40).rules(TaskRules::default().rate(distance, std::time::Duration::ZERO));
            scene.set(&[rated(hour)]);
            let clients = [(); 2].map(|()| Orb::new().unwrap());
            let [one, two] = clients.each_ref().map(|client| scene.object(client, "task-1"));
            assert_eq!(step(&one, &STEP, 0).unwrap().native, 40);
            std::thread::scope(|scope| {
                let early = scope.spawn(|| step(&one, &STEP, 1).unwrap());
                wait_until(|| scene.pool.counts().requests_delayed_by_rate == 1);
                // Another request on each connection exceeds the rate, so the server refuses it.
                for object in [&one, &two] {
                    assert_eq!(step(object, &STEP, 2).unwrap_err().kind(), Kind::Transient, "{mode:?}");
                }
                scene.set(&[rated(std::time::Duration::from_nanos(1))]);
                assert_eq!(early.join().unwrap().native, 40);
            });
            assert_eq!(step(&two, &STEP, 3).unwrap().native, 40);
            assert_eq!(*scene.state.steps.0.lock(), [0, 1, 3], "{mode:?}");
            assert!(scene.pool.counts().calls_refused_by_rate >= 2);
        }
    }

    /// Finds tasks by name. Blocks or panics once on a thread of a manager, for a request of task
    /// 2.
    struct Faulty {
        panics: bool,
        has_failed: Arc<AtomicBool>,
        gate: Arc<OnceLock<()>>,
    }

    impl TaskBinder for Faulty {
        fn task_of(&self, object_key: &[u8]) -> Option<u64> {
            let task = ByName.task_of(object_key);
            let is_manager = std::thread::current().name().is_some_and(|name| name.contains("/m"));
            if is_manager && task == Some(2) && !self.has_failed.swap(true, Ordering::SeqCst) {
                assert!(!self.panics, "the binder of the test panics");
                self.gate.wait();
            }
            task
        }
    }

    /// The texts of observed events.
    type Events = Arc<Mutex<Vec<String>>>;

    /// A scene with a [`Faulty`] binder, and the signs that the binder has blocked or panicked.
    struct FaultyScene {
        scene: Scene,
        has_failed: Arc<AtomicBool>,
        gate: Arc<OnceLock<()>>,
        events: Events,
    }

    fn faulty_manager(name: &str, panics: bool) -> FaultyScene {
        let events = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
        let seen = Arc::clone(&events);
        let observe = move |event: &Event| {
            if matches!(event, Event::ThreadFailed { .. }) {
                seen.lock().push(event.to_string());
            }
        };
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").on_event(observe).build().unwrap();
        orb.root_poa().manager().activate().unwrap();
        let gate = Arc::new(OnceLock::new());
        let has_failed = Arc::new(AtomicBool::new(false));
        let binder = Faulty { panics, has_failed: Arc::clone(&has_failed), gate: Arc::clone(&gate) };
        let config = CorePoolConfig::default().mode(CorePoolMode::Manager).name(name).cores([0]);
        let scene = Scene::with_binder(orb, config, Arc::new(binder));
        scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
        FaultyScene { scene, has_failed, gate, events }
    }

    #[test]
    fn manager_goes_on_while_one_of_its_threads_is_blocked() {
        let FaultyScene { scene, has_failed, gate, .. } = faulty_manager("stalls", false);
        let clients = [(); 2].map(|()| Orb::new().unwrap());
        let [one, two] = ["task-1", "task-2"].map(|id| scene.object(&clients[usize::from(id == "task-2")], id));
        // A thread of the lane reads the first request of each connection, and the manager reads
        // the later requests.
        assert!(step(&two, &STEP, 0).unwrap().is_bound());
        std::thread::scope(|scope| {
            let stalled = scope.spawn(|| step(&two, &STEP, 1).unwrap());
            wait_until(|| has_failed.load(Ordering::SeqCst));
            for number in 100..120 {
                assert_eq!(step(&one, &STEP, number).unwrap().native, 40);
            }
            gate.set(()).unwrap();
            assert_eq!(stalled.join().unwrap().native, 30);
        });
        assert_eq!(step(&two, &STEP, 2).unwrap().native, 30);
    }

    #[test]
    fn request_at_which_the_binder_panics_gets_transient_and_the_manager_goes_on() {
        let FaultyScene { scene, events, .. } = faulty_manager("panics", true);
        let client = Orb::new().unwrap();
        let object = scene.object(&client, "task-2");
        let mut raw = RawClient::for_object(&object);
        assert_eq!(raw.send("step", None, Some(0)), raw.receive_reply_id());
        raw.send("step", None, Some(1));
        let (kind, minor) = raw.receive_void_reply().unwrap();
        assert_eq!((kind, minor & 0xfff), (Kind::Transient, 1));
        for number in 2..20 {
            assert_eq!(raw.send("step", None, Some(number)), raw.receive_reply_id());
        }
        let failures = events.lock().clone();
        assert!(failures.len() == 1 && failures[0].contains("panics: the task binder panicked"), "{failures:?}");
        assert_eq!(scene.pool.counts().requests_handed_over, 19);
        assert_eq!(step(&object, &STEP, 20).unwrap().native, 30);
    }

    #[test]
    fn no_task_has_the_priority_of_a_thread_that_reads() {
        for mode in [CorePoolMode::Manager, CorePoolMode::LeaderFollowers, CorePoolMode::Bound] {
            let scene = Scene::new(fifo_orb(), named(mode, "most").cores([0]));
            for rules in [TaskRules::default(), TaskRules::default().deadline(std::time::Duration::from_secs(1))] {
                scene.pool.set_tasks(&[task(1, 0, 98).rules(rules)]).unwrap();
                let refused = scene.pool.set_tasks(&[task(1, 0, 99).rules(rules)]).is_err();
                assert_eq!(refused, READING.contains(&mode), "{mode:?} {rules:?}");
            }
        }
    }

    #[test]
    fn leader_followers_needs_two_threads() {
        let orb = fifo_orb();
        let config = named(CorePoolMode::LeaderFollowers, "one").cores([0]).threads_per_core(1).max_threads(1);
        assert!(orb.real_time().create_core_pool(&config, Arc::new(ByName)).is_err());
    }

    #[test]
    fn shutdown_waits_for_the_running_request_in_each_mode() {
        for mode in READING {
            let scene = Scene::new(fifo_orb(), named(mode, "ends").cores([0]));
            scene.set(&[task(1, 0, 40)]);
            let clients = [(); 2].map(|()| Orb::new().unwrap());
            let [object, idle] = clients.each_ref().map(|client| scene.object(client, "task-1"));
            assert!(step(&idle, &STEP, 0).unwrap().is_bound());
            std::thread::scope(|scope| {
                let call = scope.spawn(|| step(&object, &HOLD, 7).unwrap());
                wait_until(|| scene.state.held.load(Ordering::SeqCst) == 1);
                let end = scope.spawn(|| shut_down(&scene));
                wait_until(|| has_shutdown_begun(&scene));
                scene.state.open.store(true, Ordering::SeqCst);
                assert_eq!(call.join().unwrap().native, 40, "{mode:?}");
                assert_eq!(end.join().unwrap(), [0, 7], "{mode:?}");
            });
        }
    }
}
