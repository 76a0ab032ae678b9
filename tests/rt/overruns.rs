//! Operations that take more of their thread's processor time than they declare.

use std::sync::Arc;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, OverrunAction, PriorityModel, RtConfig, RtPolicies, SchedulingClass};
use corelane::{
    Completion, Dispatch, Event, NestedWait, Orb, PoolConfig, SpinPolicy, SystemException, SystemExceptionKind as Kind,
    minor,
};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::{counters, thread, usage};

mod idl {
    corelane::include_idl!("timed");
}
use idl::timed::{Worker, WorkerRef};

struct Busy;

fn busy(microseconds: u32) -> u64 {
    let before = counters::snapshot().syscalls;
    let end = usage::thread_time() + Duration::from_micros(microseconds.into());
    while usage::thread_time() < end {}
    before
}

impl Worker for Busy {
    fn work(&self, microseconds: u32) -> Result<u64, SystemException> {
        Ok(busy(microseconds))
    }

    fn undeclared(&self, microseconds: u32) -> Result<u64, SystemException> {
        Ok(busy(microseconds))
    }

    fn wait(&self, milliseconds: u32) -> Result<(), SystemException> {
        std::thread::sleep(Duration::from_millis(milliseconds.into()));
        Ok(())
    }

    fn through(
        &self,
        other: Option<&WorkerRef>,
        own: Option<&WorkerRef>,
        declared: bool,
        microseconds: u32,
    ) -> Result<(), SystemException> {
        other.expect("another").call_back(own, declared, microseconds)
    }

    fn call_back(&self, other: Option<&WorkerRef>, declared: bool, microseconds: u32) -> Result<(), SystemException> {
        let other = other.expect("another");
        if declared { other.work(microseconds) } else { other.undeclared(microseconds) }.map(drop)
    }

    fn until_lowered(&self, wanted: u8, microseconds: u32) -> Result<u8, SystemException> {
        let end = usage::thread_time() + Duration::from_micros(microseconds.into());
        while now() != wanted && usage::thread_time() < end {}
        Ok(now())
    }

    fn scheduled(&self) -> Result<u8, SystemException> {
        Ok(now())
    }

    fn panic(&self, microseconds: u32) -> Result<(), SystemException> {
        busy(microseconds);
        panic!("after {microseconds} us");
    }
}

fn now() -> u8 {
    thread::scheduling(None).map_or(0, thread::Scheduling::priority)
}

type Told = Arc<Mutex<Vec<(&'static str, Duration, Duration)>>>;

fn world(overrun: OverrunAction) -> (Orb, Orb, Told, WorkerRef) {
    dispatched(overrun, Dispatch::LeaderFollowers { threads: 1 })
}

fn dispatched(overrun: OverrunAction, dispatch: Dispatch) -> (Orb, Orb, Told, WorkerRef) {
    let told: Told = Arc::new(Mutex::new("told", LockScope::Orb, Vec::new()));
    let note = Arc::clone(&told);
    let config = RtConfig::default().scheduling(SchedulingClass::Fair).overrun_action(overrun);
    let server = Orb::builder()
        .real_time(config)
        .on_event(move |event| {
            if let Event::ExecutionTimeOverrun { operation, declared, used } = event {
                note.lock().push((operation, *declared, *used));
            }
        })
        // A thread that polls makes system calls, which one of the tests counts, so no thread
        // polls.
        .pool(PoolConfig::default().dispatch(dispatch).spin_policy(Some(SpinPolicy::Never)))
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    let root = server.root_poa();
    root.manager().activate().unwrap();
    let text = root.activate(&Worker::servant(Busy)).unwrap().to_string();
    let client = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let worker = WorkerRef::from_object(client.string_to_object(&text).unwrap().unwrap());
    (server, client, told, worker)
}

#[test]
fn overrun_is_counted_and_reported_and_the_client_gets_its_results() {
    let (server, _client, told, worker) = world(OverrunAction::Run);
    worker.work(1).unwrap();
    worker.undeclared(30_000).unwrap();
    worker.wait(30).unwrap();
    assert_eq!((server.event_counts().execution_time_overruns, told.lock().len()), (0, 0));
    worker.work(30_000).unwrap();
    assert_eq!(server.event_counts().execution_time_overruns, 1);
    let told = told.lock().clone();
    let [(operation, declared, used)] = told[..] else { panic!("{told:?}") };
    assert_eq!((operation, declared), ("work", Duration::from_millis(20)));
    assert!(used >= Duration::from_millis(30), "{used:?}");
}

#[test]
fn reject_replaces_the_result_of_an_overrun_by_timeout() {
    let (server, _client, _, worker) = world(OverrunAction::Reject);
    let dropped = worker.work(30_000).unwrap_err();
    assert_eq!(
        (dropped.kind(), dropped.minor(), dropped.completed()),
        (Kind::Timeout, minor::OVERRUN, Completion::Yes)
    );
    worker.work(1).unwrap();
    worker.undeclared(30_000).unwrap();
    assert_eq!(server.event_counts().execution_time_overruns, 1);
}

#[test]
fn nested_request_is_not_charged_to_the_waiting_operation() {
    let (server, client, told, worker) = dispatched(OverrunAction::Reject, Dispatch::Reactive);
    client.root_poa().manager().activate().unwrap();
    let other = WorkerRef::from_object(client.root_poa().activate(&Worker::servant(Busy)).unwrap());
    worker.through(Some(&other), Some(&worker), false, 60_000).unwrap();
    assert_eq!((server.event_counts().execution_time_overruns, told.lock().len()), (0, 0));
    let dropped = worker.through(Some(&other), Some(&worker), true, 60_000).unwrap_err();
    assert_eq!((dropped.kind(), dropped.minor()), (Kind::Timeout, minor::OVERRUN));
    let operations: Vec<_> = told.lock().iter().map(|(operation, ..)| *operation).collect();
    assert_eq!(operations, ["work"]);
}

#[test]
fn overrun_that_ends_in_a_panic_is_reported() {
    let (server, _client, told, worker) = world(OverrunAction::Run);
    assert_eq!(worker.panic(30_000).unwrap_err().kind(), Kind::Unknown);
    assert_eq!(told.lock().first().map(|(operation, ..)| *operation), Some("panic"));
    worker.work(1).unwrap();
    assert_eq!(server.event_counts().execution_time_overruns, 1);
}

/// Makes a server, a client, and the client's reference to a worker. The worker's lane has native
/// priority 50, and the thread of an operation that overruns is lowered to native priority 2.
fn lowering() -> (Orb, Orb, WorkerRef) {
    let overrun = OverrunAction::LowerPriority(335);
    let server = Orb::builder()
        .real_time(RtConfig::default().overrun_action(overrun))
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    server.root_poa().manager().activate().unwrap();
    let lanes = vec![LaneConfig::default().priority(16384)];
    let nested_wait = Some(NestedWait::Serve { max_depth: 3 });
    let config = LanesConfig::default().lanes(lanes).nested_wait(nested_wait);
    let pool = server.real_time().create_threadpool_with_lanes(&config).unwrap();
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, 16384)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = server.root_poa();
    let poa = root.create_rt_poa("timed", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let text = poa.activate(&Worker::servant(Busy)).unwrap().to_string();
    let client = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    client.root_poa().manager().activate().unwrap();
    let worker = WorkerRef::from_object(client.string_to_object(&text).unwrap().unwrap());
    (server, client, worker)
}

#[test]
fn overrunning_operation_is_lowered_while_it_runs_and_its_thread_is_restored_afterwards() {
    assert!(permitted(), "SCHED_FIFO is not permitted here");
    let (server, client, worker) = lowering();
    for _ in 0..2 {
        assert_eq!(worker.scheduled().unwrap(), 50);
        assert_eq!(worker.until_lowered(2, 1_000_000).unwrap(), 2);
    }
    assert_eq!((worker.scheduled().unwrap(), server.event_counts().execution_time_overruns), (50, 2));
    worker.wait(30).unwrap();
    let other = WorkerRef::from_object(client.root_poa().activate(&Worker::servant(Busy)).unwrap());
    worker.through(Some(&other), Some(&worker), false, 60_000).unwrap();
    assert_eq!((worker.scheduled().unwrap(), server.event_counts().execution_time_overruns), (50, 2));
}

fn permitted() -> bool {
    let tried = thread::ThreadBuilder::new().scheduling(thread::Scheduling::Fifo(1)).spawn(|| ());
    tried.is_ok_and(|thread| thread.join().is_ok())
}

#[test]
fn measuring_costs_two_system_calls_for_declared_operations_and_none_for_others() {
    let (_server, _client, _, worker) = world(OverrunAction::Run);
    let between = |call: &dyn Fn() -> u64| {
        // The system calls that the servant makes to read its clock cancel out below.
        let first = call();
        (call() - first, call() - first)
    };
    for _ in 0..3 {
        worker.undeclared(0).unwrap();
    }
    let (one, two) = between(&|| worker.undeclared(0).unwrap());
    let (timed, twice) = between(&|| worker.work(0).unwrap());
    assert_eq!((two - one, twice - timed), (one, timed));
    assert_eq!(timed - one, 2);
}
