//! Known sources of priority inversion, on SCHED_FIFO threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use corelane::poa::PoaPolicies;
use corelane::rt::{
    BufferBounds, LaneConfig, LanesConfig, PriorityModel, RtMutex, RtPolicies, ThreadpoolConfig, ThreadpoolId,
};
use corelane::{ObjectRef, Orb};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder, affinity};
use corelane_tests::real_time::{RawClient, Reporter, decode_reference, fifo_orb, wait_until};

// The default mapping gives `LOW`, `MIDDLE` and `HIGH` the native priorities 2, 25 and 50.
const LOW: i16 = 335;
const MIDDLE: i16 = 8025;
const HIGH: i16 = 16384;

fn last_core() -> usize {
    affinity(None).unwrap().iter().last().unwrap()
}

fn object(orb: &Orb, pool: ThreadpoolId) -> (ObjectRef, Arc<Reporter>) {
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, LOW)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("busy", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let reporter = Reporter::new(orb);
    (poa.activate(&reporter.servant()).unwrap(), reporter)
}

fn laned(orb: &Orb) -> ThreadpoolId {
    let cores = vec![last_core()];
    let lane = |priority| LaneConfig::default().priority(priority).cores(cores.clone());
    let lanes = vec![lane(LOW), lane(HIGH)];
    orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap()
}

fn unlaned(orb: &Orb, buffering: Option<BufferBounds>) -> ThreadpoolId {
    let cores = vec![last_core()];
    let config = ThreadpoolConfig::default().default_priority(LOW).cores(cores).buffering(buffering);
    orb.real_time().create_threadpool(&config).unwrap()
}

/// Sends low requests, of which the first occupies the core, and then a high request. Returns the
/// priorities in the order in which the requests end.
///
/// If `answered`, the test waits for the high reply before it releases the first low request.
fn order_of_low_and_high(orb: &Orb, pool: ThreadpoolId, answered: bool) -> Vec<i16> {
    const LOW_ONES: usize = 6;
    let (object, reporter) = object(orb, pool);
    let ports: Vec<u16> = decode_reference(&object).lanes.iter().map(|lane| lane.0).collect();
    let mut low = RawClient::connect(&object, ports[0]);
    let mut high = RawClient::connect(&object, *ports.last().unwrap());
    let who = high.who(Some(HIGH)).who();
    assert_eq!((who.native, who.thread.contains("/l")), (50, true));
    reporter.priorities_run.lock().clear();
    let begun = reporter.begun.load(SeqCst);
    for _ in 0..LOW_ONES {
        low.send_at_priority("hold", LOW, None);
    }
    wait_until(|| reporter.begun.load(SeqCst) > begun);
    high.send_at_priority("who", HIGH, None);
    if answered {
        let _ = high.receive_reply().2.who();
    }
    reporter.release();
    if !answered {
        let _ = high.receive_reply().2.who();
    }
    for _ in 0..LOW_ONES {
        let _ = low.receive_reply().2.who();
    }
    let order = reporter.priorities_run.lock().clone();
    assert_eq!(order.len(), LOW_ONES + 1);
    order
}

#[test]
fn with_lanes_the_high_request_runs_before_all_waiting_low_requests() {
    let orb = fifo_orb();
    assert_eq!(order_of_low_and_high(&orb, laned(&orb), true)[0], HIGH);
}

#[test]
fn without_lanes_the_high_request_waits_for_low_requests_that_run_or_were_read() {
    let orb = fifo_orb();
    let order = order_of_low_and_high(&orb, unlaned(&orb, None), false);
    let before = order.iter().position(|priority| *priority == HIGH).unwrap();
    assert!(before >= 2, "no inversion: only {before} low requests ran before the high request");
}

#[test]
fn a_buffer_in_order_of_priority_bounds_the_wait_to_the_request_that_runs() {
    let orb = fifo_orb();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let config = ThreadpoolConfig::default()
        .default_priority(HIGH)
        .buffering(Some(BufferBounds { max_requests: 64, max_bytes: 0 }))
        .cores((cores > 1).then(last_core));
    let pool = orb.real_time().create_threadpool(&config).unwrap();
    let (object, reporter) = object(&orb, pool);
    let mut blocker = RawClient::for_object(&object);
    blocker.send_at_priority("wait", LOW, None);
    reporter.wait_for_held_threads(1);
    let mut low = RawClient::for_object(&object);
    for _ in 0..3 {
        low.send_at_priority("who", LOW, None);
    }
    // Uses separate connections, so that the server may read the requests in any order.
    let mut high = RawClient::for_object(&object);
    high.send_at_priority("who", HIGH, None);
    let mut probe = RawClient::for_object(&object);
    // The buffer takes 64 requests, so a refusal shows that all 65 have arrived.
    for _ in 0..61 {
        probe.send_at_priority("who", MIDDLE, None);
    }
    assert!(matches!(probe.receive_reply().2, corelane_tests::real_time::RawReply::Raised(..)));
    reporter.release();
    let _ = high.receive_reply().2.who();
    for _ in 0..3 {
        let _ = low.receive_reply().2.who();
    }
    let order = reporter.priorities_run.lock().clone();
    assert_eq!(order[..2], [LOW, HIGH]);
    assert_eq!(order[order.len() - 3..], [LOW; 3]);
}

/// Returns true if a high thread gets a lock from a low thread before a middle thread has run.
///
/// The low thread takes the lock and wakes the high thread. The high thread wakes the middle thread
/// and waits for the lock. The kernel then runs the low or the middle thread, depending on their
/// priorities.
fn high_is_first(lock: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> bool {
    let core = CpuSet::one(last_core());
    fn parked_until(flag: &AtomicBool) {
        while !flag.load(SeqCst) {
            std::thread::park();
        }
    }
    let start = |priority, body: Box<dyn FnOnce() + Send>| {
        ThreadBuilder::new()
            .name("inversion")
            .affinity(core)
            .scheduling(Scheduling::Fifo(priority))
            .spawn(body)
            .unwrap()
    };
    let lock = Arc::new(lock);
    let [wanted, ready, middle_ran, high_first] = [(); 4].map(|()| Arc::new(AtomicBool::new(false)));
    let middle = {
        let (ready, middle_ran) = (Arc::clone(&ready), Arc::clone(&middle_ran));
        start(
            2,
            Box::new(move || {
                parked_until(&ready);
                middle_ran.store(true, SeqCst);
            }),
        )
    };
    let high = {
        let (lock, wanted, middle_thread) = (Arc::clone(&lock), Arc::clone(&wanted), middle.thread().clone());
        let (middle_ran, high_first) = (Arc::clone(&middle_ran), Arc::clone(&high_first));
        start(
            3,
            Box::new(move || {
                parked_until(&wanted);
                ready.store(true, SeqCst);
                middle_thread.unpark();
                lock(&mut || high_first.store(!middle_ran.load(SeqCst), SeqCst));
            }),
        )
    };
    let high_thread = high.thread().clone();
    let low = start(
        1,
        Box::new(move || {
            lock(&mut || {
                wanted.store(true, SeqCst);
                high_thread.unpark();
            });
        }),
    );
    for thread in [low, high, middle] {
        thread.join().unwrap();
    }
    high_first.load(SeqCst)
}

#[test]
fn mutex_without_priority_inheritance_lets_the_middle_thread_run_first() {
    let mutex = Mutex::new("without inheritance", LockScope::Orb, ());
    assert!(!high_is_first(move |body| {
        let _held = mutex.lock();
        body();
    }));
}

#[test]
fn rt_mutex_lends_the_priority_of_the_waiting_thread() {
    let mutex: RtMutex = fifo_orb().real_time().create_mutex();
    assert!(high_is_first(move |body| {
        let _held = mutex.lock().unwrap();
        body();
    }));
}
