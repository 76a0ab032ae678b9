//! The modes of core pools: which thread reads a request of a task, and which one runs it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use corelane::rt::{CorePoolConfig, CorePoolMode, TaskBinder, TaskRules};
use corelane::{Event, Orb, SystemExceptionKind as Kind};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{Scheduling, list_threads};
use corelane_tests::core_pool::{ByName, HOLD, STEP, Scene, step, task};
use corelane_tests::real_time::{RawClient, fifo_orb, wait_until};

use super::{ROUNDS, bound_threads, call_back_during_nested_calls, change_tasks_under_calls, serve_over};

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
        assert_eq!(scene.pool.advisory_reason(), None);
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
        assert_eq!((counts.handed_over, counts.led), by_mode);
        assert_eq!((counts.bound, counts.not_bound, counts.foreign), (0, 0, 0));
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
    let reason = scene.pool.advisory_reason().unwrap();
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
    assert_eq!((counts.bound, counts.borrowed, counts.moved, counts.handed_over), (2, 0, 0, 0));
    // A task has no core, so another core moves no thread.
    scene.set(&[task(1, 0, 40), task(2, 1, 30)]);
    assert_eq!(scene.pool.counts().moved, 0);
    scene.pool.lose_core(0);
    scene.pool.return_core(0);
    assert!(bound_threads("free3").iter().all(|(cores, _)| cores[..] == [0, 1]));
}

#[test]
fn request_is_served_by_a_borrowed_and_a_new_thread_and_then_by_none_in_each_mode() {
    for mode in READING {
        for refuses in [false, true] {
            let name = if refuses { "refuses" } else { "few" };
            let config = named(mode, name).cores([0, 1]).threads_per_core(1).refuse_without_thread(refuses);
            // In leader/followers a thread must remain to read.
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
            assert!(counts.borrowed >= 1, "{mode:?} {counts:?}");
            let spawned = if mode == CorePoolMode::Manager { 1 } else { 2 };
            assert_eq!(counts.spawned, spawned, "{mode:?}");
            // The client of a refused call repeats it before it fails.
            let unserved = (counts.not_bound, counts.without_thread > 0);
            assert_eq!(unserved, if refuses { (0, true) } else { (1, false) }, "{mode:?} {counts:?}");
            // The threads are free again.
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
        let served = counts.handed_over + counts.led;
        assert_eq!((served, counts.not_bound), (2 * u64::from(ROUNDS), 0), "{mode:?} {counts:?}");
    }
}

#[test]
fn connections_of_other_transports_are_read_in_each_mode() {
    for mode in READING {
        for carrier in ["unix", "shm"] {
            let counts = serve_over(carrier, named(mode, carrier));
            assert_eq!(counts.handed_over + counts.led, 150, "{mode:?} {carrier} {counts:?}");
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
        assert_eq!((counts.handed_over + counts.led, counts.foreign), (41, 20), "{mode:?} {counts:?}");
        assert_eq!(scene.orb.event_counts().connections_opened, 1);
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
            wait_until(|| scene.pool.counts().delayed_by_rate == 1);
            // Another request on each connection is above the rate.
            for object in [&one, &two] {
                assert_eq!(step(object, &STEP, 2).unwrap_err().kind(), Kind::Transient, "{mode:?}");
            }
            scene.set(&[rated(std::time::Duration::from_nanos(1))]);
            assert_eq!(early.join().unwrap().native, 40);
        });
        assert_eq!(step(&two, &STEP, 3).unwrap().native, 40);
        assert_eq!(*scene.state.steps.0.lock(), [0, 1, 3], "{mode:?}");
        assert!(scene.pool.counts().refused >= 2);
    }
}

/// Finds tasks by name. Blocks or panics once on a thread of a manager, for a request of task 2.
struct Faulty {
    panics: bool,
    has_failed: AtomicBool,
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

fn faulty_manager(name: &str, panics: bool) -> (Scene, Arc<OnceLock<()>>, Events) {
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
    let binder = Faulty { panics, has_failed: AtomicBool::new(false), gate: Arc::clone(&gate) };
    let config = CorePoolConfig::default().mode(CorePoolMode::Manager).name(name).cores([0]);
    let scene = Scene::with_binder(orb, config, Arc::new(binder));
    scene.set(&[task(1, 0, 40), task(2, 0, 30)]);
    (scene, gate, events)
}

#[test]
fn manager_goes_on_while_one_of_its_threads_is_blocked() {
    let (scene, gate, _) = faulty_manager("stalls", false);
    let clients = [(); 2].map(|()| Orb::new().unwrap());
    let [one, two] = ["task-1", "task-2"].map(|id| scene.object(&clients[usize::from(id == "task-2")], id));
    // A thread of the lane reads the first request of each connection, and the manager the others.
    assert!(step(&two, &STEP, 0).unwrap().is_bound());
    std::thread::scope(|scope| {
        let stalled = scope.spawn(|| step(&two, &STEP, 1).unwrap());
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
    let (scene, _, events) = faulty_manager("panics", true);
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
    assert_eq!(scene.pool.counts().handed_over, 19);
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
            let end = scope.spawn(|| scene.orb.shutdown(true).unwrap());
            scene.state.open.store(true, Ordering::SeqCst);
            assert_eq!(call.join().unwrap().native, 40, "{mode:?}");
            end.join().unwrap();
        });
    }
}
