//! A lane whose threads are all busy: dynamic threads, borrowing, buffering, refusal, deadlines.

use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    BufferBounds, ExpiredRequestAction, LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass,
    ThreadpoolConfig, ThreadpoolId,
};
use corelane::{CallPolicies, Completion, ObjectRef, Orb, SystemExceptionKind as Kind, Timeout};
use corelane_tests::real_time::{
    RawClient, RawReply, Reporter, call_who, decode_reference, fair_orb, fifo_orb, wait_until,
};
use corelane_wire::exception::minor::OMG;
use corelane_wire::giop::context_id;
use corelane_wire::ior::TaggedComponent;
use corelane_wire::rt::{encode_deadline_context, encode_priority_context};
use std::sync::Arc;

const REFUSED: RawReply = RawReply::Raised(Kind::Transient, OMG | 1);

fn object(orb: &Orb, pool: ThreadpoolId) -> (ObjectRef, Arc<Reporter>) {
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 10)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("kept", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let reporter = Reporter::new(orb);
    (poa.activate(&reporter.servant()).unwrap(), reporter)
}

fn pool(orb: &Orb, config: ThreadpoolConfig) -> (ObjectRef, Arc<Reporter>) {
    let pool = orb.real_time().create_threadpool(&config).unwrap();
    object(orb, pool)
}

fn threads(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with(prefix)).count()
}

#[test]
fn dynamic_threads_start_when_all_threads_are_busy_and_end_afterwards() {
    let orb = fair_orb();
    let config =
        ThreadpoolConfig::default().name("dyn").dynamic_threads(2).idle_thread_timeout(Duration::from_millis(30));
    let (object, reporter) = pool(&orb, config);
    assert_eq!(threads("dyn/d"), 0);
    let mut clients: Vec<_> = (0..4).map(|_| RawClient::for_object(&object)).collect();
    for client in &mut clients {
        client.send_at_priority("wait", 10, None);
    }
    // The fourth request stays in the socket, because no thread is free.
    reporter.wait_for_held_threads(3);
    assert_eq!(threads("dyn/d"), 2);
    reporter.release();
    let mut served: Vec<String> = clients.iter_mut().map(|client| client.receive_reply().2.who().thread).collect();
    served.sort();
    served.dedup();
    assert_eq!(served, ["dyn/d0", "dyn/d1", "dyn/l0"]);
    wait_until(|| threads("dyn/d") == 0);
    let _ = RawClient::for_object(&object).who(Some(10)).who();
}

#[test]
fn without_overload_options_requests_stay_in_the_socket_while_the_lane_is_busy() {
    let orb = fair_orb();
    let (object, reporter) = pool(&orb, ThreadpoolConfig::default());
    let mut clients: Vec<_> = (0..8).map(|_| RawClient::for_object(&object)).collect();
    for client in &mut clients {
        client.send_at_priority("wait", 10, None);
    }
    reporter.wait_for_held_threads(1);
    reporter.release();
    for client in &mut clients {
        let _ = client.receive_reply().2.who();
    }
}

#[test]
fn buffer_holds_requests_up_to_its_bound_and_refuses_further_ones() {
    let orb = fair_orb();
    let buffering = Some(BufferBounds { max_requests: 2, max_bytes: 0 });
    let (object, reporter) = pool(&orb, ThreadpoolConfig::default().buffering(buffering));
    let mut first = RawClient::for_object(&object);
    first.send_at_priority("wait", 10, None);
    reporter.wait_for_held_threads(1);
    let mut second = RawClient::for_object(&object);
    let ids: Vec<u32> = (0..4).map(|_| second.send_at_priority("who", 10, None)).collect();
    // The buffer is full, so the third and fourth requests are refused at once.
    for id in &ids[2..] {
        let (answered, _, answer) = second.receive_reply();
        assert_eq!((answered, answer), (*id, REFUSED));
    }
    reporter.release();
    let _ = first.receive_reply().2.who();
    for id in &ids[..2] {
        let (answered, _, answer) = second.receive_reply();
        assert_eq!((answered, answer.who().priority), (*id, 10));
    }
    let _ = second.who(Some(10)).who();
}

#[test]
fn bytes_of_waiting_requests_are_bounded() {
    let orb = fair_orb();
    let buffering = Some(BufferBounds { max_requests: 0, max_bytes: 16 });
    let (object, reporter) = pool(&orb, ThreadpoolConfig::default().buffering(buffering));
    let mut first = RawClient::for_object(&object);
    // The lane's only thread counts as busy while it registers the connection, so the lane may
    // refuse the request. The test then sends the request again.
    wait_until(|| {
        first.send_at_priority("wait", 10, None);
        wait_until(|| reporter.waiting.load(Ordering::SeqCst) == 1 || first.has_data());
        reporter.waiting.load(Ordering::SeqCst) == 1 || {
            assert_eq!(first.receive_reply().2, REFUSED);
            false
        }
    });
    assert_eq!(RawClient::for_object(&object).who(Some(10)), REFUSED);
    reporter.release();
    let _ = first.receive_reply().2.who();
    let mut later = RawClient::for_object(&object);
    wait_until(|| later.who(Some(10)) != REFUSED);
}

#[test]
fn pool_without_lanes_runs_the_more_urgent_waiting_request_first() {
    let orb = fair_orb();
    let buffering = Some(BufferBounds { max_requests: 5, max_bytes: 0 });
    let (object, reporter) = pool(&orb, ThreadpoolConfig::default().buffering(buffering));
    let mut first = RawClient::for_object(&object);
    first.send_at_priority("wait", 1, None);
    reporter.wait_for_held_threads(1);
    let mut others = RawClient::for_object(&object);
    for priority in [5, 100, 50, 5, 100] {
        others.send_at_priority("who", priority, None);
    }
    let refused = others.send_at_priority("who", 1000, None);
    assert_eq!(others.receive_reply().0, refused, "five wait");
    reporter.release();
    for _ in 0..5 {
        let _ = others.receive_reply().2.who();
    }
    assert_eq!(*reporter.priorities_run.lock(), [1, 100, 100, 50, 5, 5]);
}

fn borrowing(lanes: &[i16]) -> LanesConfig {
    let lanes = lanes.iter().map(|&priority| LaneConfig::default().priority(priority));
    LanesConfig::default().lanes(lanes).allow_borrowing(true)
}

#[test]
fn a_busy_lane_borrows_an_idle_thread_of_a_lower_one_at_its_own_priority() {
    let orb = fifo_orb();
    let pool = orb.real_time().create_threadpool_with_lanes(&borrowing(&[335, 8025, 16384])).unwrap();
    let (object, reporter) = object(&orb, pool);
    let ports: Vec<u16> = decode_reference(&object).lanes.iter().map(|lane| lane.0).collect();
    let mut low = RawClient::connect(&object, ports[0]);
    let own = low.who(Some(335)).who();
    assert_eq!((own.native, own.lane), (2, 0));
    let mut high: Vec<_> = (0..3).map(|_| RawClient::connect(&object, ports[2])).collect();
    for client in &mut high {
        client.send_at_priority("wait", 16384, None);
    }
    reporter.wait_for_held_threads(3);
    // The low lane's thread is lent to the high lane.
    low.send_at_priority("who", 335, None);
    reporter.release();
    let mut threads = Vec::new();
    for client in &mut high {
        let who = client.receive_reply().2.who();
        assert_eq!((who.lane, who.native, who.priority), (2, 50, 16384));
        assert!(!who.handed_over);
        threads.push(who.thread);
    }
    threads.sort();
    assert_eq!(threads, ["rt/p16384/l0", "rt/p335/l0", "rt/p8025/l0"]);
    let again = low.receive_reply().2.who();
    assert_eq!((again.native, again.lane, again.tid), (2, 0, own.tid), "the lent thread has its own priority again");
}

#[test]
fn a_lane_does_not_borrow_from_a_higher_one() {
    let orb = fair_orb();
    let pool = orb.real_time().create_threadpool_with_lanes(&borrowing(&[10, 20])).unwrap();
    let (object, reporter) = object(&orb, pool);
    let ports: Vec<u16> = decode_reference(&object).lanes.iter().map(|lane| lane.0).collect();
    let mut low: Vec<_> = (0..2).map(|_| RawClient::connect(&object, ports[0])).collect();
    for client in &mut low {
        client.send_at_priority("wait", 10, None);
    }
    reporter.wait_for_held_threads(1);
    let mut high = RawClient::connect(&object, ports[1]);
    for _ in 0..50 {
        assert_eq!(high.who(Some(20)).who().thread, "rt/p20/l0");
    }
    reporter.release();
    for client in &mut low {
        assert_eq!(client.receive_reply().2.who().thread, "rt/p10/l0");
    }
}

#[test]
fn all_overload_options_together_answer_every_request_under_load() {
    let orb = fair_orb();
    for _ in 0..5 {
        let config = borrowing(&[])
            .buffering(Some(BufferBounds { max_requests: 8, max_bytes: 0 }))
            .lanes([10, 20].map(|priority| LaneConfig::default().priority(priority).dynamic_threads(1)))
            .idle_thread_timeout(Duration::from_millis(1));
        let pool = orb.real_time().create_threadpool_with_lanes(&config).unwrap();
        let (object, _) = object(&orb, pool);
        let ports: Vec<u16> = decode_reference(&object).lanes.iter().map(|lane| lane.0).collect();
        let (ports, target) = (&ports, &object);
        let served: usize = std::thread::scope(|scope| {
            let run = |index: usize| {
                move || {
                    let mut client = RawClient::connect(target, ports[index % 2]);
                    let mut served = 0;
                    for round in 0..100 {
                        let priority = if round % 10 == 0 {
                            30 - 10 * (1 + index as i16 % 2)
                        } else {
                            10 + 10 * (index as i16 % 2)
                        };
                        client.send_at_priority("spin", priority, Some(50));
                        match client.receive_reply().2 {
                            RawReply::Served(who) => {
                                assert_eq!(who.priority, priority);
                                served += 1;
                            }
                            refused => assert_eq!(refused, REFUSED),
                        }
                    }
                    served
                }
            };
            let clients: Vec<_> = (0..8).map(|index| scope.spawn(run(index))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert!(served > 400, "{served}");
        orb.root_poa().find_poa("kept", false).unwrap().destroy(true, true).unwrap();
        orb.real_time().destroy_threadpool(pool).unwrap();
    }
}

fn late(late: ExpiredRequestAction) -> (Orb, ObjectRef, Arc<Reporter>) {
    let config = RtConfig::default().expired_request_action(late);
    let orb = Orb::builder().real_time(config).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    let buffering = Some(BufferBounds { max_requests: 8, max_bytes: 0 });
    let config = ThreadpoolConfig::default().buffering(buffering).default_priority(16384);
    let (object, reporter) = pool(&orb, config);
    (orb, object, reporter)
}

fn within(client: &mut RawClient, remaining: Duration) -> u32 {
    let data = encode_deadline_context(remaining);
    client.send_with_context("who", Some((context_id::REMAINING_DEADLINE, &data[..])), None)
}

#[test]
fn request_that_expired_while_it_waited_is_rejected_and_counted() {
    let (orb, object, reporter) = late(ExpiredRequestAction::Reject);
    let mut blocker = RawClient::for_object(&object);
    blocker.send_at_priority("wait", 10, None);
    reporter.wait_for_held_threads(1);
    let mut client = RawClient::for_object(&object);
    let (hurried, patient) =
        (within(&mut client, Duration::from_nanos(1)), within(&mut client, Duration::from_secs(600)));
    // The buffer takes eight requests, so the refusal of a ninth shows that both earlier requests
    // wait in it.
    let mut probe = RawClient::for_object(&object);
    for _ in 0..7 {
        probe.send_at_priority("who", 10, None);
    }
    assert_eq!(probe.receive_reply().2, REFUSED);
    reporter.release();
    let answers: std::collections::HashMap<u32, RawReply> =
        (0..2).map(|_| client.receive_reply()).map(|(id, _, answer)| (id, answer)).collect();
    assert_eq!(answers[&hurried], RawReply::Raised(Kind::Timeout, OMG | 2));
    assert!(matches!(answers[&patient], RawReply::Served(_)));
    assert_eq!(orb.event_counts().deadlines_passed, 1);
}

#[test]
fn expired_request_runs_if_the_orb_permits() {
    let (orb, object, _reporter) = late(ExpiredRequestAction::Run);
    let mut client = RawClient::for_object(&object);
    within(&mut client, Duration::ZERO);
    assert!(matches!(client.receive_reply().2, RawReply::Served(_)));
    within(&mut client, Duration::from_secs(600));
    assert!(matches!(client.receive_reply().2, RawReply::Served(_)));
    client.send_with_context("who", Some((context_id::REMAINING_DEADLINE, &[1, 0, 0])), None);
    assert!(matches!(client.receive_reply().2, RawReply::Raised(Kind::Marshal, _)));
    assert_eq!(orb.event_counts().deadlines_passed, 1);
}

#[test]
fn late_request_in_a_lane_runs_at_a_lower_priority_if_configured() {
    let config = RtConfig::default().expired_request_action(ExpiredRequestAction::LowerPriority(335));
    let orb = Orb::builder().real_time(config).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    let lanes = vec![LaneConfig::default().priority(16384)];
    let pool = orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap();
    let (object, _reporter) = object(&orb, pool);
    let mut client = RawClient::for_object(&object);
    for (remaining, native) in [(Duration::from_secs(600), 50), (Duration::ZERO, 2), (Duration::from_secs(600), 50)] {
        within(&mut client, remaining);
        assert_eq!(client.receive_reply().2.who().native, native);
    }
}

#[test]
fn late_request_runs_at_a_lower_priority_in_the_lane_of_its_own_priority() {
    let config = RtConfig::default()
        .expired_request_action(ExpiredRequestAction::LowerPriority(7))
        .scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(config).listen("tcp:127.0.0.1:0").build().unwrap();
    let root = orb.root_poa();
    root.manager().activate().unwrap();
    let lanes = [10, 20].map(|priority| LaneConfig::default().priority(priority));
    let laned = orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap();
    let plain = orb.real_time().create_threadpool(&ThreadpoolConfig::default()).unwrap();
    let make = |name: &str, model: PriorityModel, pool, bands: Option<Vec<(i16, i16)>>| {
        let policies = RtPolicies {
            priority_model: Some((model, 20)),
            threadpool: Some(pool),
            priority_bands: bands,
            ..RtPolicies::default()
        };
        let poa = root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
        poa.activate(&Reporter::new(&orb).servant()).unwrap()
    };
    let bands = Some(vec![(8, 15), (16, 30)]);
    let late = |client: &mut RawClient, priority: i16| {
        let (deadline, priority) = (encode_deadline_context(Duration::ZERO), encode_priority_context(priority));
        let contexts =
            [(context_id::REMAINING_DEADLINE, &deadline[..]), (context_id::RT_CORBA_PRIORITY, &priority[..])];
        client.send_with_contexts("who", &contexts, None);
        let who = client.receive_reply().2.who();
        (who.priority, who.lane)
    };
    let mut lanes = RawClient::for_object(&make("lanes", PriorityModel::ClientPropagated, laned, None));
    assert_eq!((late(&mut lanes, 10), late(&mut lanes, 20)), ((7, 0), (7, 1)));
    let mut banded = RawClient::for_object(&make("bands", PriorityModel::ClientPropagated, plain, bands));
    assert_eq!(late(&mut banded, 20).0, 7);
    let mut declared = RawClient::for_object(&make("declared", PriorityModel::ServerDeclared, plain, None));
    assert_eq!(late(&mut declared, 30).0, 7);
    assert_eq!(lanes.who(Some(20)).who().priority, 20);
    // A handed-over request counts once.
    assert_eq!(orb.event_counts().deadlines_passed, 4);
}

#[test]
fn client_sends_the_remaining_time_of_a_precise_deadline() {
    let (server, object, reporter) = late(ExpiredRequestAction::Reject);
    let client = fair_orb();
    let object = client.string_to_object(&object.to_string()).unwrap().unwrap();
    let mut blocker = RawClient::for_object(&object);
    blocker.send_at_priority("wait", 10, None);
    reporter.wait_for_held_threads(1);
    let within = |timeout| object.with_policies(CallPolicies { timeout: Some(timeout), ..CallPolicies::NONE });
    for timeout in [Timeout::Precise, Timeout::Coarse] {
        // If the deadline passes before the request is sent, the test repeats the call.
        let mut failed = std::iter::repeat_with(|| call_who(&within(timeout(Duration::from_secs(1)))).unwrap_err());
        let given_up =
            failed.find(|late| late.kind() != Kind::Timeout || late.completed() == Completion::Maybe).unwrap();
        assert_eq!(given_up.kind(), Kind::Timeout);
    }
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| call_who(&within(Timeout::Precise(Duration::from_secs(600)))));
        reporter.release();
        assert!(patient.join().unwrap().is_ok());
    });
    let _ = blocker.receive_reply().2.who();
    let _ = blocker.who(Some(10)).who();
    wait_until(|| server.event_counts().deadlines_passed == 1);
    assert_eq!(reporter.priorities_run.lock().len(), 4, "the request with a coarse deadline has run");
}

#[test]
fn round_trip_timeout_of_another_orbs_client_is_read() {
    let (orb, object, _reporter) = late(ExpiredRequestAction::Reject);
    let mut client = RawClient::for_object(&object);
    let mut answer = |policy: u32, hundreds: u64| {
        // The policy's value counts units of 100 ns, and has the layout of Corelane's deadline
        // context, which counts nanoseconds.
        let value = encode_deadline_context(Duration::from_nanos(hundreds)).to_vec();
        let policies = TaggedComponent::policies(&[(policy, value)]).unwrap();
        client.send_with_context("who", Some((context_id::INVOCATION_POLICIES, &policies.data)), None);
        client.receive_reply().2
    };
    assert!(matches!(answer(32, 6_000_000_000), RawReply::Served(_)));
    assert_eq!(answer(32, 0), RawReply::Raised(Kind::Timeout, OMG | 2));
    assert!(matches!(answer(31, 0), RawReply::Served(_)), "another policy is read as a round-trip time-out");
    client.send_with_context("who", Some((context_id::INVOCATION_POLICIES, &[1, 0, 0])), None);
    assert!(matches!(client.receive_reply().2, RawReply::Raised(Kind::Marshal, _)));
    assert_eq!(orb.event_counts().deadlines_passed, 1);
}
