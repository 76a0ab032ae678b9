//! Sources of priority inversion, from the list in docs/real-time.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use corelane::poa::{PoaPolicies, Threading};
use corelane::rt::{
    BufferBounds, LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass, ThreadpoolConfig,
    ThreadpoolId,
};
use corelane::{Dispatch, ObjectRef, Orb, PoolConfig, SystemExceptionKind as Kind};
use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder, affinity};
use corelane_tests::real_time::{RawClient, RawReply, Reporter, decode_reference, fair_orb, fifo_orb, wait_until};
use corelane_wire::exception::minor::OMG;

// The default mapping gives `LOW`, `MIDDLE` and `HIGH` the native priorities 2, 25 and 50.
const LOW: i16 = 335;
const MIDDLE: i16 = 8025;
const HIGH: i16 = 16384;

fn object(orb: &Orb, pool: Option<ThreadpoolId>, policies: PoaPolicies) -> (ObjectRef, Arc<Reporter>) {
    let model = Some((PriorityModel::ClientPropagated, LOW));
    let real_time = RtPolicies { priority_model: model, threadpool: pool, ..RtPolicies::default() };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("sources", Some(root.manager()), policies, &real_time).unwrap();
    let reporter = Reporter::new(orb);
    (poa.activate(&reporter.servant()).unwrap(), reporter)
}

fn lanes(orb: &Orb, cores: &[usize]) -> ThreadpoolId {
    let lane = |priority| LaneConfig::default().priority(priority).static_threads(2).cores(cores.to_vec());
    let config = LanesConfig::default().lanes([lane(LOW), lane(HIGH)]);
    orb.real_time().create_threadpool_with_lanes(&config).unwrap()
}

fn at_both_lanes(object: &ObjectRef) -> [RawClient; 2] {
    let ports = decode_reference(object).lanes;
    [ports[0].0, ports[1].0].map(|port| RawClient::connect(object, port))
}

fn dispatched(dispatch: Dispatch) -> Orb {
    let config = RtConfig::default().scheduling(SchedulingClass::Fair);
    let pool = PoolConfig::default().dispatch(dispatch);
    let orb = Orb::builder().real_time(config).pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

#[test]
fn on_a_connection_of_two_priorities_the_high_request_waits_for_the_low_one() {
    let orb = dispatched(Dispatch::ThreadPerConnection { max_threads: 8 });
    let (object, reporter) = object(&orb, None, PoaPolicies::default());
    let [mut both, mut other] = [(); 2].map(|()| RawClient::for_object(&object));
    both.send_at_priority("wait", LOW, None);
    reporter.wait_for_held_threads(1);
    both.send_at_priority("who", HIGH, None);
    let _ = other.who(Some(MIDDLE)).who();
    reporter.release();
    for _ in 0..2 {
        let _ = both.receive_reply().2.who();
    }
    assert_eq!(*reporter.priorities_run.lock(), [MIDDLE, LOW, HIGH]);
}

#[test]
fn with_a_connection_for_each_priority_the_high_request_does_not_wait() {
    let orb = dispatched(Dispatch::ThreadPerConnection { max_threads: 8 });
    let (object, reporter) = object(&orb, None, PoaPolicies::default());
    let [mut low, mut high] = [(); 2].map(|()| RawClient::for_object(&object));
    low.send_at_priority("wait", LOW, None);
    reporter.wait_for_held_threads(1);
    let _ = high.who(Some(HIGH)).who();
    reporter.release();
    let _ = low.receive_reply().2.who();
    assert_eq!(*reporter.priorities_run.lock(), [HIGH, LOW]);
}

/// A queue in order of priority avoids this inversion (priority_inversion.rs).
#[test]
fn in_a_queue_without_priorities_the_high_request_is_last() {
    let orb = dispatched(Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 64 });
    let (object, reporter) = object(&orb, None, PoaPolicies::default());
    let mut blocker = RawClient::for_object(&object);
    blocker.send_at_priority("wait", LOW, None);
    reporter.wait_for_held_threads(1);
    let mut client = RawClient::for_object(&object);
    for priority in [LOW, LOW, LOW, HIGH] {
        client.send_at_priority("who", priority, None);
    }
    reporter.release();
    for _ in 0..4 {
        let _ = client.receive_reply().2.who();
    }
    assert_eq!(*reporter.priorities_run.lock(), [LOW, LOW, LOW, LOW, HIGH]);
}

/// Sends a request of priority `HIGH` to `pool` while a thread of priority `MIDDLE` keeps the core
/// busy. Returns the two priorities in the order in which the request and the thread end.
///
/// With `served`, the test ends the middle thread only after it has received the reply.
fn beside_a_middle_thread(pool: impl FnOnce(&Orb, &[usize]) -> ThreadpoolId, served: bool) -> Vec<i16> {
    let core = affinity(None).unwrap().iter().last().unwrap();
    let orb = fifo_orb();
    let (object, reporter) = object(&orb, Some(pool(&orb, &[core])), PoaPolicies::default());
    let mut high = RawClient::connect(&object, decode_reference(&object).lanes.last().unwrap().0);
    assert_eq!(high.who(Some(HIGH)).who().native, 50);
    reporter.priorities_run.lock().clear();
    let [runs, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let middle = {
        let (reporter, runs, stop) = (Arc::clone(&reporter), Arc::clone(&runs), Arc::clone(&stop));
        let end = corelane_sys::clock::now() + std::time::Duration::from_secs(10);
        let builder = ThreadBuilder::new().name("middle").affinity(CpuSet::one(core)).scheduling(Scheduling::Fifo(25));
        let body = move || {
            runs.store(true, SeqCst);
            while !stop.load(SeqCst) && !end.is_past() {}
            reporter.priorities_run.lock().push(MIDDLE);
        };
        builder.spawn(body).unwrap()
    };
    wait_until(|| runs.load(SeqCst));
    high.send_at_priority("who", HIGH, None);
    if served {
        let _ = high.receive_reply().2.who();
    }
    stop.store(true, SeqCst);
    middle.join().unwrap();
    if !served {
        let _ = high.receive_reply().2.who();
    }
    reporter.priorities_run.lock().clone()
}

#[test]
fn a_request_to_a_pool_of_low_priority_waits_for_middle_threads_before_it_is_read() {
    let pool = |orb: &Orb, cores: &[usize]| {
        let config = ThreadpoolConfig::default().default_priority(LOW).cores(cores.to_vec());
        orb.real_time().create_threadpool(&config).unwrap()
    };
    assert_eq!(beside_a_middle_thread(pool, false), [MIDDLE, HIGH]);
}

#[test]
fn a_lane_reads_at_the_priority_of_its_requests() {
    assert_eq!(beside_a_middle_thread(lanes, true), [HIGH, MIDDLE]);
}

/// Requests to a POA with single-threaded objects take the lock of the POA.
#[test]
fn lock_that_all_priorities_take_makes_the_high_request_wait() {
    let orb = fair_orb();
    let pool = lanes(&orb, &[]);
    let policies = PoaPolicies { threading: Threading::SingleThread, ..PoaPolicies::default() };
    let (object, reporter) = object(&orb, Some(pool), policies);
    let [mut low, mut high] = at_both_lanes(&object);
    low.send_at_priority("wait", LOW, None);
    reporter.wait_for_held_threads(1);
    high.send_at_priority("who", HIGH, None);
    // The high lane serves an object of another POA at once.
    let beside = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, LOW)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("beside", Some(root.manager()), PoaPolicies::default(), &beside).unwrap();
    let other = poa.activate(&reporter.servant()).unwrap();
    let [_, mut free] = at_both_lanes(&other);
    assert_eq!(free.who(Some(HIGH)).who().priority, HIGH);
    reporter.release();
    let _ = high.receive_reply().2.who();
    let _ = low.receive_reply().2.who();
    assert_eq!(*reporter.priorities_run.lock(), [HIGH, LOW, HIGH]);
}

#[test]
fn tables_that_are_read_without_a_lock_delay_no_request() {
    let orb = fair_orb();
    let (object, reporter) = object(&orb, Some(lanes(&orb, &[])), PoaPolicies::default());
    let [mut low, mut high] = at_both_lanes(&object);
    low.send_at_priority("wait", LOW, None);
    reporter.wait_for_held_threads(1);
    assert_eq!(high.who(Some(HIGH)).who().priority, HIGH);
    reporter.release();
    let _ = low.receive_reply().2.who();
    assert_eq!(*reporter.priorities_run.lock(), [HIGH, LOW]);
}

const REFUSED: RawReply = RawReply::Raised(Kind::Transient, OMG | 1);
const ROOM: u32 = 3;

fn fill(low: &mut RawClient, reporter: &Reporter) {
    low.send_at_priority("wait", LOW, None);
    reporter.wait_for_held_threads(1);
    for _ in 0..=ROOM {
        low.send_at_priority("who", LOW, None);
    }
    assert_eq!(low.receive_reply().2, REFUSED);
}

fn empty(low: &mut RawClient, reporter: &Reporter) {
    reporter.release();
    for _ in 0..=ROOM {
        let _ = low.receive_reply().2.who();
    }
}

#[test]
fn a_buffer_full_of_low_requests_has_no_room_for_a_high_one() {
    let orb = fifo_orb();
    let buffering = Some(BufferBounds { max_requests: ROOM, max_bytes: 0 });
    let config = ThreadpoolConfig::default().default_priority(LOW).buffering(buffering);
    let pool = orb.real_time().create_threadpool(&config).unwrap();
    let (object, reporter) = object(&orb, Some(pool), PoaPolicies::default());
    let [mut low, mut high] = [(); 2].map(|()| RawClient::for_object(&object));
    fill(&mut low, &reporter);
    assert_eq!(high.who(Some(HIGH)), REFUSED);
    empty(&mut low, &reporter);
    assert_eq!(high.who(Some(HIGH)).who().native, 50);
}

#[test]
fn each_lane_has_a_buffer_of_its_own() {
    let orb = fifo_orb();
    let buffering = Some(BufferBounds { max_requests: ROOM, max_bytes: 0 });
    let lanes = [LOW, HIGH].map(|priority| LaneConfig::default().priority(priority));
    let config = LanesConfig::default().lanes(lanes).buffering(buffering);
    let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
    let (object, reporter) = object(&orb, Some(pool), PoaPolicies::default());
    let [mut low, mut high] = at_both_lanes(&object);
    fill(&mut low, &reporter);
    assert_eq!(high.who(Some(HIGH)).who().native, 50);
    empty(&mut low, &reporter);
}
