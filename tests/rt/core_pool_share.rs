//! The guaranteed share of requests without a task in core pools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use corelane::mapping::Operation;
use corelane::poa::PoaPolicies;
use corelane::rt::{BestEffortShare, CorePoolConfig, PriorityModel, RtOrb, RtPolicies, TaskBinding, TaskRules};
use corelane::{ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException, SystemExceptionKind as Kind};
use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder, list_threads, scheduling};
use corelane_sys::usage::thread_time;
use corelane_tests::core_pool::{HOLD, STEP, Scene, step, task};
use corelane_tests::real_time::{fifo_orb, wait_until};

const BUDGET: Duration = Duration::from_millis(3);
const PERIOD: Duration = Duration::from_millis(20);
const ABOVE_TASKS: Scheduling = Scheduling::Fifo(98);
/// Maximum processor time of a busy thread, after which the test fails.
const MOST: Duration = Duration::from_secs(3);

/// An operation that works for as much processor time as its argument says in microseconds. Returns
/// the processor times above all tasks and in the ordinary scheduling class.
static WORK: Operation = Operation::new("work");
/// An operation that works until its thread has been lowered from a priority above all tasks, as
/// often as its argument says. Returns the processor times at this priority, one for each lowering.
static LOWERED: Operation = Operation::new("lowered");

struct Worker;

impl Skeleton for Worker {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Worker:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let argument = call.arguments().read_u32()?;
        let begun = thread_time();
        let (mut last, mut phases) = (begun, vec![(scheduling(None).unwrap(), Duration::ZERO)]);
        let wanted = Duration::from_micros(argument.into());
        let is_done = |phases: &[(Scheduling, Duration)], now: Duration| match operation {
            b"work" => now - begun >= wanted,
            _ => phases.iter().filter(|(of, _)| *of == Scheduling::Other).count() >= argument as usize,
        };
        while !is_done(&phases, last) && last - begun < MOST {
            let (now, of) = (thread_time(), scheduling(None).unwrap());
            match phases.last_mut() {
                Some((before, time)) if *before == of => *time += now - last,
                _ => phases.push((of, now - last)),
            }
            last = now;
        }
        let reply = call.reply();
        if operation == b"work" {
            for wanted in [ABOVE_TASKS, Scheduling::Other] {
                let time: Duration = phases.iter().filter(|(of, _)| *of == wanted).map(|(_, time)| *time).sum();
                reply.write_u64(time.as_nanos() as u64);
            }
        } else {
            let above: Vec<_> = phases.iter().filter(|(of, _)| *of == ABOVE_TASKS).collect();
            reply.write_u32(above.len() as u32);
            above.iter().for_each(|(_, time)| reply.write_u64(time.as_nanos() as u64));
        }
        Ok(())
    }
}

fn call(object: &ObjectRef, operation: &Operation<'_>, argument: u32) -> Vec<Duration> {
    let mut reply = object
        .invoke(operation, &|encoder| {
            encoder.write_u32(argument);
            Ok(())
        })
        .unwrap();
    let is_counted = std::ptr::eq(operation, &LOWERED);
    reply
        .read(|decoder| {
            let count = if is_counted { decoder.read_u32()? } else { 2 };
            (0..count).map(|_| Ok(Duration::from_nanos(decoder.read_u64()?))).collect()
        })
        .unwrap()
}

fn scene(name: &str, share: Option<BestEffortShare>) -> (Scene, ObjectRef, Orb) {
    let mut config = CorePoolConfig::default().name(name).cores([0]).best_effort_threads(2);
    config.best_effort_share = share;
    let scene = Scene::new(fifo_orb(), config);
    let servant = Servant::new(Worker);
    scene.poa.activate_object_with_id(&corelane::poa::ObjectId::from(&b"worker"[..]), &servant).unwrap();
    let client = Orb::new().unwrap();
    let worker = scene.object(&client, "worker");
    (scene, worker, client)
}

fn share() -> Option<BestEffortShare> {
    Some(BestEffortShare::new(BUDGET, PERIOD))
}

/// Keeps core 0 busy at the priority of a task until it is dropped, for at most 3 s of processor
/// time.
struct BusyCore {
    is_over: Arc<AtomicBool>,
    has_given_up: Arc<AtomicBool>,
}

impl BusyCore {
    fn begin() -> Self {
        let (is_over, has_given_up) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let has_begun = Arc::new(AtomicBool::new(false));
        let (over, gave_up, begun) = (Arc::clone(&is_over), Arc::clone(&has_given_up), Arc::clone(&has_begun));
        let body = move || {
            begun.store(true, Ordering::SeqCst);
            while !over.load(Ordering::SeqCst) {
                if thread_time() > MOST {
                    gave_up.store(true, Ordering::SeqCst);
                    return;
                }
            }
        };
        ThreadBuilder::new().scheduling(Scheduling::Fifo(90)).affinity(CpuSet::one(0)).spawn(body).unwrap();
        wait_until(|| has_begun.load(Ordering::SeqCst));
        BusyCore { is_over, has_given_up }
    }
}

impl Drop for BusyCore {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

#[test]
fn plain_requests_get_their_share_of_a_core_that_tasks_keep_busy() {
    let (scene, worker, _client) = scene("busy", share());
    assert_eq!(scene.pool.missing_guarantee_reason(), None);
    call(&worker, &WORK, 1);
    // The kernel gives threads of the ordinary scheduling class a twentieth of the core. On a
    // loaded machine the time of several periods may come in one piece, during the call, so the
    // measurement is repeated.
    let mut found = Vec::new();
    for _ in 0..10 {
        let busy = BusyCore::begin();
        let [above, _] = call(&worker, &WORK, 15_000)[..] else { panic!("two times") };
        let was_busy = !busy.has_given_up.load(Ordering::SeqCst);
        drop(busy);
        found.push((above, was_busy));
        if above >= Duration::from_millis(10) && was_busy {
            let uses = scene.pool.best_effort_uses();
            assert_eq!((uses.len(), uses[0].core), (1, 0));
            assert!(uses[0].used_time >= above && uses[0].exhausted_periods >= 3, "{uses:?}");
            return;
        }
    }
    panic!("{found:?}");
}

#[test]
fn threads_are_lowered_after_their_budget_and_raised_in_the_next_period() {
    let (scene, worker, _client) = scene("lowered", share());
    let above = call(&worker, &LOWERED, 4);
    assert_eq!(above.len(), 4, "{above:?}");
    // The first period may have begun before the call, so its time is not compared.
    for time in &above[1..] {
        assert!(*time >= BUDGET - Duration::from_micros(300), "{above:?}");
    }
    wait_until(|| scene.pool.best_effort_uses()[0].runs_above_tasks);
    assert!(scene.pool.best_effort_uses()[0].exhausted_periods >= 4);
}

#[test]
fn pool_without_a_share_runs_plain_requests_in_the_ordinary_class() {
    let (scene, worker, _client) = scene("none", None);
    let [above, ordinary] = call(&worker, &WORK, 5_000)[..] else { panic!("two times") };
    assert_eq!(above, Duration::ZERO);
    assert!(ordinary >= Duration::from_millis(5));
    assert!(scene.pool.best_effort_uses().is_empty());
}

#[test]
fn share_remains_beside_bound_connections_and_requests_that_wait() {
    let (scene, worker, client) = scene("bound", share());
    scene.set(&[task(1, 0, 97)]);
    let one = scene.object(&client, "task-1");
    assert_eq!(step(&one, &STEP, 0).unwrap().native, 97);
    let plain = scene.object(&client, "plain");
    std::thread::scope(|scope| {
        let held = scope.spawn(|| step(&plain, &HOLD, 1).unwrap());
        wait_until(|| scene.state.held.load(Ordering::SeqCst) == 1);
        // One of the two best-effort threads waits, and the other thread serves.
        for number in 0..1_000 {
            assert_eq!(step(&one, &STEP, number).unwrap().native, 97);
        }
        // The waiting thread may have used the budget of a period, so the call is repeated.
        wait_until(|| call(&worker, &WORK, 100)[0] > Duration::ZERO);
        scene.state.open.store(true, Ordering::SeqCst);
        held.join().unwrap();
    });
}

#[test]
fn threads_of_a_lost_core_have_no_share_until_the_core_returns() {
    let (scene, worker, _client) = scene("lost", share());
    call(&worker, &WORK, 1);
    scene.pool.mark_core_lost(0);
    assert_eq!(call(&worker, &WORK, 1_000)[0], Duration::ZERO);
    assert!(!scene.pool.best_effort_uses()[0].runs_above_tasks);
    scene.pool.mark_core_returned(0);
    wait_until(|| scene.pool.best_effort_uses()[0].runs_above_tasks);
    wait_until(|| call(&worker, &WORK, 1_000)[0] > Duration::ZERO);
    let threads = list_threads().unwrap();
    let of_pool = threads.iter().filter(|thread| thread.name.starts_with("lost/l"));
    assert_eq!(of_pool.filter(|thread| thread.cores.iter().eq([0])).count(), 2);
}

/// Calls another server from a request without a task. Returns the priority that the nested call
/// has there.
fn priority_of_nested_call(name: &str, share: Option<BestEffortShare>) -> i32 {
    let (scene, _, client) = scene(name, share);
    let other = Scene::new(fifo_orb(), CorePoolConfig::default().name(format!("{name}-other")).cores([0]));
    let recorder = Arc::new(Recorder { orb: other.orb.real_time(), priority: AtomicI32::new(i32::MAX) });
    let servant = Servant::new(RecorderSkeleton(Arc::clone(&recorder)));
    // A priority that is implied by the thread's scheduling is sent only to objects with bands or
    // lanes.
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 0)),
        threadpool: Some(other.pool.id()),
        priority_bands: Some(vec![(0, i16::MAX)]),
        ..RtPolicies::default()
    };
    let root = other.orb.root_poa();
    let poa = root.create_rt_poa("banded", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let object = poa.id_to_reference(&poa.activate_object(&servant).unwrap()).unwrap();
    let object = scene.orb.string_to_object(&object.to_string()).unwrap().unwrap();
    assert!(scene.state.other.set(object).is_ok());
    step(&scene.object(&client, "plain"), &Operation::new("pass"), 0).unwrap();
    recorder.priority.load(Ordering::SeqCst)
}

struct Recorder {
    orb: RtOrb,
    priority: AtomicI32,
}

struct RecorderSkeleton(Arc<Recorder>);

impl Skeleton for RecorderSkeleton {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Recorder:1.0"]
    }

    fn dispatch(&self, _: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let priority = self.0.orb.current()?.the_priority().unwrap_or(-1);
        self.0.priority.store(priority.into(), Ordering::SeqCst);
        let reply = call.reply();
        reply.write_u32(0);
        reply.write_u8(0);
        reply.write_i16(priority);
        reply.write_bool(false);
        Ok(reply.write_latin1_str("recorder")?)
    }
}

#[test]
fn nested_call_gets_no_priority_from_the_share() {
    let without = priority_of_nested_call("nested-none", None);
    assert_eq!(priority_of_nested_call("nested", share()), without);
}

#[test]
fn idle_threads_do_not_wake_the_thread_that_checks_the_budget() {
    let (scene, worker, _client) = scene("idle", share());
    // Both best-effort threads may see the same work. One of them takes it, and the other must not
    // count as busy.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = Orb::new().unwrap();
                let worker = scene.object(&client, "worker");
                for _ in 0..300 {
                    call(&worker, &WORK, 10);
                }
            });
        }
    });
    call(&worker, &WORK, 1);
    let threads = list_threads().unwrap();
    let checker = threads.iter().find(|thread| thread.name == "idle/s0").expect("the thread that checks").tid.as_raw();
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/self/task/{checker}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    let is_asleep = || {
        let before = switches();
        std::thread::sleep(10 * PERIOD);
        switches() == before
    };
    assert!((0..20).any(|_| is_asleep()), "the thread wakes up without work");
}

#[test]
fn thread_of_a_task_does_not_inherit_the_core_of_the_thread_that_starts_it() {
    let mut config = CorePoolConfig::default().name("born").cores([0]).threads_per_core(1);
    config.best_effort_share = share();
    let scene = Scene::new(fifo_orb(), config);
    // The machine has no such core, so the new thread is not pinned.
    scene.set(&[task(1, 1_000, 40)]);
    let (first, second) = (Orb::new().unwrap(), Orb::new().unwrap());
    assert!(step(&scene.object(&first, "task-1"), &STEP, 0).unwrap().is_bound());
    let by = step(&scene.object(&second, "task-1"), &STEP, 1).unwrap();
    assert_eq!(scene.pool.counts().threads_started, 1);
    let threads = list_threads().unwrap();
    let thread = threads.iter().find(|thread| thread.name == by.thread).expect("the thread");
    assert_eq!(thread.cores, corelane_sys::thread::affinity(None).unwrap());
}

#[test]
fn settings_of_a_share_out_of_range_are_refused() {
    let orb = fifo_orb();
    let time = Duration::from_micros;
    for (budget, period) in [(99, 10_000), (100, 999), (9_900, 10_000), (5_000, 3_600_000_001)] {
        let share = BestEffortShare::new(time(budget), time(period));
        let config = CorePoolConfig::default().cores([0]).best_effort_share(share);
        let refused = orb.real_time().create_core_pool(&config, Arc::new(corelane_tests::core_pool::ByName));
        assert_eq!(refused.unwrap_err().kind(), Kind::BadParam, "{share:?}");
    }
    let costly = BestEffortShare::new(BUDGET, PERIOD).request_cost(BUDGET);
    let config = CorePoolConfig::default().cores([0]).best_effort_share(costly);
    let refused = orb.real_time().create_core_pool(&config, Arc::new(corelane_tests::core_pool::ByName));
    assert_eq!(refused.unwrap_err().kind(), Kind::BadParam);
    let (scene, ..) = scene("levels", share());
    assert_eq!(scene.pool.set_tasks(&[task(1, 0, 98)]).unwrap_err().kind(), Kind::BadParam);
    let by_deadline = TaskRules::default().deadline(Duration::from_millis(5));
    scene.set(&[task(1, 0, 97), TaskBinding::new(2, 0, 98).rules(by_deadline)]);
}
