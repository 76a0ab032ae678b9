//! Operations that take more of their thread's processor time than they declare.

use std::sync::Arc;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, Overrun, PriorityModel, RtConfig, RtPolicies, SchedulingClass};
use corelane::{
    Completion, Dispatch, Event, NestedWait, Orb, PoolConfig, Reference, SystemException, SystemExceptionKind as Kind,
    minor,
};
use corelane_sys::lock::{Mutex, Scope};
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

/// At what the kernel schedules the calling thread.
fn now() -> u8 {
    thread::scheduling(None).map_or(0, thread::Scheduling::priority)
}

type Told = Arc<Mutex<Vec<(&'static str, Duration, Duration)>>>;

/// A server, a client, what the server is told of, and a reference to a worker.
fn world(overrun: Overrun) -> (Orb, Orb, Told, WorkerRef) {
    dispatched(overrun, Dispatch::LeaderFollowers { threads: 1 })
}

fn dispatched(overrun: Overrun, dispatch: Dispatch) -> (Orb, Orb, Told, WorkerRef) {
    let told: Told = Arc::new(Mutex::new("told", Scope::Orb, Vec::new()));
    let note = Arc::clone(&told);
    let config = RtConfig { scheduling: SchedulingClass::Fair, overrun, ..RtConfig::default() };
    let server = Orb::builder()
        .real_time(config)
        .on_event(move |event| {
            if let Event::Overrun { operation, declared, used } = event {
                note.lock().push((operation, *declared, *used));
            }
        })
        .pool(PoolConfig { dispatch, ..PoolConfig::default() })
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    let root = server.root_poa();
    root.manager().activate().unwrap();
    let text = root.activate(&Busy.servant()).unwrap().to_string();
    let client = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let worker = WorkerRef::from_object(client.string_to_object(&text).unwrap().unwrap());
    (server, client, told, worker)
}

#[test]
fn an_overrun_is_counted_and_told_and_the_client_gets_its_results() {
    let (server, _client, told, worker) = world(Overrun::Run);
    worker.work(1).unwrap();
    worker.undeclared(30_000).unwrap();
    worker.wait(30).unwrap();
    assert_eq!((server.event_counts().overruns, told.lock().len()), (0, 0));
    worker.work(30_000).unwrap();
    assert_eq!(server.event_counts().overruns, 1);
    let told = told.lock().clone();
    let [(operation, declared, used)] = told[..] else { panic!("{told:?}") };
    assert_eq!((operation, declared), ("work", Duration::from_millis(20)));
    assert!(used >= Duration::from_millis(30), "{used:?}");
}

#[test]
fn results_that_took_too_long_may_be_dropped() {
    let (server, _client, _, worker) = world(Overrun::Drop);
    let dropped = worker.work(30_000).unwrap_err();
    assert_eq!(
        (dropped.kind(), dropped.minor(), dropped.completed()),
        (Kind::Timeout, minor::OVERRUN, Completion::Yes)
    );
    worker.work(1).unwrap();
    worker.undeclared(30_000).unwrap();
    assert_eq!(server.event_counts().overruns, 1);
}

/// One thread, which serves what comes while its own call waits.
#[test]
fn what_is_served_while_an_operation_waits_is_not_charged_to_it() {
    let (server, client, told, worker) = dispatched(Overrun::Drop, Dispatch::Reactive);
    client.root_poa().manager().activate().unwrap();
    let other = WorkerRef::from_object(client.root_poa().activate(&Busy.servant()).unwrap());
    worker.through(Some(&other), Some(&worker), false, 60_000).unwrap();
    assert_eq!((server.event_counts().overruns, told.lock().len()), (0, 0));
    // What is served then answers for itself.
    let dropped = worker.through(Some(&other), Some(&worker), true, 60_000).unwrap_err();
    assert_eq!((dropped.kind(), dropped.minor()), (Kind::Timeout, minor::OVERRUN));
    let operations: Vec<_> = told.lock().iter().map(|(operation, ..)| *operation).collect();
    assert_eq!(operations, ["work"]);
}

#[test]
fn an_overrun_that_ends_in_a_panic_is_told_too() {
    let (server, _client, told, worker) = world(Overrun::Run);
    assert_eq!(worker.panic(30_000).unwrap_err().kind(), Kind::Unknown);
    assert_eq!(told.lock().first().map(|(operation, ..)| *operation), Some("panic"));
    worker.work(1).unwrap();
    assert_eq!(server.event_counts().overruns, 1);
}

/// A lane at native priority 50 whose overrunning operations go down to 2, and what calls it.
fn lowering() -> (Orb, Orb, WorkerRef) {
    let overrun = Overrun::Lower(335);
    let server = Orb::builder()
        .real_time(RtConfig { overrun, ..RtConfig::default() })
        .listen("tcp:127.0.0.1:0")
        .build()
        .unwrap();
    server.root_poa().manager().activate().unwrap();
    let lanes = vec![LaneConfig { priority: 16384, ..LaneConfig::default() }];
    let bounds = PoolConfig { nested_wait: Some(NestedWait::Serving { depth: 3 }), ..PoolConfig::default() };
    let config = LanesConfig { lanes, bounds, ..LanesConfig::default() };
    let pool = server.real_time().create_threadpool_with_lanes(&config).unwrap();
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ServerDeclared, 16384)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = server.root_poa();
    let poa = root.create_rt_poa("timed", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let text = poa.activate(&Busy.servant()).unwrap().to_string();
    let client = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    client.root_poa().manager().activate().unwrap();
    let worker = WorkerRef::from_object(client.string_to_object(&text).unwrap().unwrap());
    (server, client, worker)
}

#[test]
fn an_operation_that_overruns_goes_down_while_it_runs_and_its_thread_comes_back() {
    assert!(permitted(), "SCHED_FIFO is not permitted here");
    let (server, client, worker) = lowering();
    for _ in 0..2 {
        assert_eq!(worker.scheduled().unwrap(), 50);
        assert_eq!(worker.until_lowered(2, 1_000_000).unwrap(), 2);
    }
    assert_eq!((worker.scheduled().unwrap(), server.event_counts().overruns), (50, 2));
    // Neither time spent waiting, nor what is served meanwhile, is its own.
    worker.wait(30).unwrap();
    let other = WorkerRef::from_object(client.root_poa().activate(&Busy.servant()).unwrap());
    worker.through(Some(&other), Some(&worker), false, 60_000).unwrap();
    assert_eq!((worker.scheduled().unwrap(), server.event_counts().overruns), (50, 2));
}

fn permitted() -> bool {
    let tried = thread::Builder::new().scheduling(thread::Scheduling::Fifo(1)).spawn(|| ());
    tried.is_ok_and(|thread| thread.join().is_ok())
}

#[test]
fn measuring_costs_two_system_calls_where_something_is_declared_and_none_elsewhere() {
    let (_server, _client, _, worker) = world(Overrun::Run);
    let between = |call: &dyn Fn() -> u64| {
        // The servant reads its clock once more often than it has to wait.
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
