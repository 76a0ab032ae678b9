//! Periodic tasks of a client, admitted by a server, over TCP.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use corelane::mapping::Operation;
use corelane::rt::{CorePoolConfig, OverrunRule, PeriodicJob, PeriodicTaskBuilder, Scheduling, served_by};
use corelane::{
    Event, Interceptor, ObjectRef, Orb, RequestInfo, RequestOutcome, Servant, ServerCall, Skeleton, SystemException,
    SystemExceptionKind as Kind,
};
use corelane_sched::allocation::Machine;
use corelane_services::cores::protocol::tasks::{AdmitError, ReserveError};
use corelane_services::cores::protocol::{
    self, Criticality, JobOverrun, Pending, Promise, Promises, Reservation, TaskSpec, TaskState, TaskTiming, TaskToken,
    TasksRef,
};
use corelane_services::cores::{AdmissionConfig, AdmissionService, AdmittedTask, ClientIdentityInterceptor};
use corelane_sys::lock::{LockScope, Mutex};

const MS: u64 = 1_000_000;

fn spec(name: &str, execution: u64, period: u64) -> TaskSpec {
    let timing = TaskTiming { execution, period, deadline: 0, jitter: 0, blocking: 0, min_distance: 0 };
    TaskSpec {
        name: name.to_owned(),
        target: None,
        operation: String::new(),
        timing,
        importance: Criticality::Normal,
        core: -1,
        lease: 0,
        overrun: JobOverrun::Report,
    }
}

/// A servant whose operation `wait` returns when `is_released` is set.
struct Reporter {
    is_released: Arc<AtomicBool>,
    waiting: Arc<AtomicU64>,
}

impl Skeleton for Reporter {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/CoreReporter:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        match operation {
            b"report" => {}
            b"wait" => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                while !self.is_released.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => return Err(SystemException::bad_operation()),
        }
        let by = served_by();
        let native = if let Some(Scheduling::Fifo(native)) = by.scheduling { native } else { 0 };
        call.reply().write_u32(by.core.and_then(|core| u32::try_from(core).ok()).unwrap_or(u32::MAX));
        call.reply().write_u8(native);
        call.reply().write_latin1_str(&by.thread)?;
        Ok(())
    }
}

type Report = (u32, u8, String);

fn call(object: &ObjectRef, operation: &Operation<'_>) -> Result<Report, SystemException> {
    object
        .invoke(operation, &|_| Ok(()))?
        .read(|decoder| Ok((decoder.read_u32()?, decoder.read_u8()?, decoder.read_string()?)))
}

fn report(object: &ObjectRef) -> Result<Report, SystemException> {
    static REPORT: Operation = Operation::new("report");
    call(object, &REPORT)
}

fn call_wait(object: &ObjectRef) -> Result<Report, SystemException> {
    static WAIT: Operation = Operation::new("wait");
    call(object, &WAIT)
}

struct Scene {
    service: AdmissionService,
    is_released: Arc<AtomicBool>,
    waiting: Arc<AtomicU64>,
    tasks: TasksRef,
    target: ObjectRef,
    _client: Orb,
    _server: Orb,
}

impl Scene {
    fn new(core_pool: Option<CorePoolConfig>) -> Self {
        let server = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(ClientIdentityInterceptor).build().unwrap();
        let mut config = AdmissionConfig::new(Machine::with_cores(2));
        if let Some(pool) = core_pool {
            config = config.core_pool(pool);
        }
        let service = config.serve(&server).unwrap();
        let poa = server.root_poa();
        poa.manager().activate().unwrap();
        let (is_released, waiting) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let reporter = Reporter { is_released: Arc::clone(&is_released), waiting: Arc::clone(&waiting) };
        let target = poa.activate(&Servant::new(reporter)).unwrap().to_string();
        let client = Orb::new().unwrap();
        let tasks = client.string_to_reference(&service.reference().to_string()).unwrap();
        let target = client.string_to_object(&target).unwrap().unwrap();
        Scene { service, is_released, waiting, tasks, target, _client: client, _server: server }
    }
}

#[test]
fn jobs_of_an_admitted_task_run_on_its_core_and_the_task_ends_with_its_handle() {
    let permitted = corelane_sys::thread::ThreadBuilder::new().scheduling(Scheduling::Fifo(1)).spawn(|| ());
    permitted.expect("SCHED_FIFO is not permitted here").join().unwrap();
    let scene = Scene::new(Some(CorePoolConfig::default().cores([0, 1])));
    let pinned = TaskSpec { core: 1, ..spec("sensor", MS, 5 * MS) };
    let admitted = AdmittedTask::admit(&scene.tasks, &scene.target, &pinned).unwrap();
    assert_eq!((admitted.promise().core, admitted.promise().response), (1, MS));
    let plain = report(&scene.target).unwrap();
    assert!(!plain.2.starts_with("cores/b"), "{plain:?}");
    // The connection of this call is idle when the periodic task starts. The task must not use it,
    // because a periodic task has a private connection.
    assert_eq!(report(admitted.reference()).unwrap().0, 1);
    assert_eq!(scene.tasks.record_jobs(u64::MAX).unwrap(), 3_600_000 * MS);
    let reports = Arc::new(Mutex::new("reports", LockScope::Orb, Vec::new()));
    let builder = admitted.periodic().max_jobs(20).overrun_rule(OverrunRule::CatchUp { max_backlog: u64::MAX });
    let (found, other) = (Arc::clone(&reports), scene.target.clone());
    let running = builder.start(admitted.reference(), move |object, job| {
        let reported = report(object)?;
        found.lock().push((job.number(), reported));
        report(&other).map(drop)
    });
    let statistics = running.unwrap().wait();
    assert_eq!((statistics.started, statistics.completed, statistics.failed), (20, 20, 0), "{statistics:?}");
    assert_eq!(
        (statistics.skipped_releases, statistics.response.count(), statistics.start_lateness.count()),
        (0, 20, 20)
    );
    let reports = reports.lock();
    let numbers: Vec<u64> = reports.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    let threads: HashSet<&Report> = reports.iter().map(|(_, report)| report).collect();
    assert_eq!(threads.len(), 1, "one thread must serve the task: {threads:?}");
    let (core, native, thread) = threads.into_iter().next().unwrap();
    assert_eq!((*core, *native), (1, 98));
    assert!(thread.starts_with("cores/b"), "{thread}");
    let counts = scene.service.core_pool().unwrap().counts();
    assert_eq!(
        (
            counts.connections_bound,
            counts.requests_without_task,
            counts.requests_handed_over,
            counts.requests_not_bound
        ),
        (2, 0, 0, 0),
        "{counts:?}"
    );
    check_measurements(&scene, admitted.promise().task);
    let once = admitted.periodic().max_jobs(1);
    let statistics = admitted.start(once, |object, _| report(object).map(drop)).unwrap().wait();
    assert_eq!(statistics.completed, 1);
    let (tasks, ..) = scene.tasks.snapshot().unwrap();
    assert!(tasks.iter().all(|task| task.state == TaskState::Ending), "{tasks:?}");
}

fn check_measurements(scene: &Scene, task: u64) {
    // The server counts a job after the client has received the reply.
    let mut tries = 0..10_000;
    let measured = loop {
        let (_, _, _, measured) = scene.tasks.monitor().unwrap();
        if measured.tasks.iter().any(|measured| measured.jobs == 21) {
            break measured;
        }
        assert!(tries.next().is_some(), "{measured:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(measured.has_pool && measured.counts.bound == 2, "{measured:?}");
    let [times] = &measured.tasks[..] else { panic!("{measured:?}") };
    assert_eq!(times.task, task);
    assert!(0 < times.shortest && times.shortest <= times.mean && times.mean <= times.longest, "{times:?}");
    let mut records = Vec::new();
    let mut next = 0;
    loop {
        let (following, batch) = scene.tasks.recorded_jobs(next, 7).unwrap();
        assert!(batch.len() <= 7);
        if batch.is_empty() {
            break;
        }
        records.extend(batch);
        next = following;
    }
    assert_eq!(records.iter().map(|job| job.number).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    assert!(records.iter().all(|job| (job.task, job.core) == (task, 1)), "{records:?}");
    assert!(records.windows(2).all(|pair| pair[0].finish <= pair[1].start), "{records:?}");
    let longest = records.iter().map(|job| job.finish - job.start).max();
    assert!(longest > Some(0) && longest <= Some(times.longest), "{longest:?} {times:?}");
}

#[test]
fn server_without_a_core_pool_measures_nothing() {
    let scene = Scene::new(None);
    let (tasks, cores, _, measured) = scene.tasks.monitor().unwrap();
    assert_eq!((tasks.len(), cores.len(), measured.has_pool, measured.tasks.len()), (0, 2, false, 0));
    assert_eq!(scene.tasks.record_jobs(1).unwrap_err().kind(), Kind::BadInvOrder);
    assert_eq!(scene.tasks.recorded_jobs(5, 10).unwrap(), (5, Vec::new()));
}

#[test]
fn task_that_catches_up_runs_every_job_and_task_that_skips_leaves_missed_ones_out() {
    let scene = Scene::new(None);
    let run = |rule| {
        let numbers = Arc::new(Mutex::new("numbers", LockScope::Orb, Vec::new()));
        let found = Arc::clone(&numbers);
        let builder = PeriodicTaskBuilder::new(Duration::from_millis(4)).overrun_rule(rule).max_jobs(6);
        let task = builder.start(&scene.target, move |object, job| {
            found.lock().push((job.number(), job.skipped_releases()));
            if job.number() == 0 {
                // At least three later releases pass during the first job.
                std::thread::sleep(Duration::from_millis(13));
                assert!(job.remaining().is_zero());
            }
            report(object).map(drop)
        });
        let statistics = task.unwrap().wait();
        (statistics, numbers.lock().clone())
    };
    let (statistics, numbers) = run(OverrunRule::CatchUp { max_backlog: u64::MAX });
    assert_eq!(numbers, (0..6).map(|number| (number, 0)).collect::<Vec<_>>());
    assert!(statistics.overruns >= 1 && statistics.missed_deadlines >= 2, "{statistics:?}");
    assert_eq!((statistics.completed, statistics.skipped_releases), (6, 0));
    let (statistics, numbers) = run(OverrunRule::SkipMissed);
    let &(second, skipped) = &numbers[1];
    assert!(skipped >= 3 && second == skipped + 1, "{numbers:?}");
    assert!(statistics.skipped_releases >= 3 && statistics.completed == 6, "{statistics:?}");
}

#[test]
fn handler_of_overruns_chooses_the_next_job() {
    let scene = Scene::new(None);
    let seen = Arc::new(Mutex::new("overruns", LockScope::Orb, Vec::new()));
    let found = Arc::clone(&seen);
    let builder = PeriodicTaskBuilder::new(Duration::from_millis(4)).max_jobs(2).on_overrun(move |overrun| {
        found.lock().push(*overrun);
        OverrunRule::CatchUp { max_backlog: 1 }
    });
    let task = builder.start(&scene.target, |_, job| {
        std::thread::sleep(Duration::from_millis(if job.number() == 0 { 13 } else { 0 }));
        Ok(())
    });
    let statistics = task.unwrap().wait();
    let overruns = seen.lock().clone();
    assert_eq!(overruns[0].job, 0);
    assert!(overruns[0].missed_releases >= 3 && overruns[0].response >= Duration::from_millis(13), "{overruns:?}");
    assert_eq!(statistics.overruns, overruns.len() as u64);
    assert!(statistics.skipped_releases >= overruns[0].missed_releases - 1, "{statistics:?}");
}

#[test]
fn stop_cancels_the_call_of_the_running_job() {
    let scene = Scene::new(None);
    let outcomes = Arc::new(Mutex::new("outcomes", LockScope::Orb, Vec::new()));
    let found = Arc::clone(&outcomes);
    let task = PeriodicTaskBuilder::new(Duration::from_millis(1)).start(&scene.target, move |object, _| {
        let outcome = call_wait(object).map(drop);
        found.lock().push(outcome.clone());
        outcome
    });
    let task = task.unwrap();
    while scene.waiting.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let statistics = task.stop();
    scene.is_released.store(true, Ordering::SeqCst);
    let outcomes = outcomes.lock();
    // TRANSIENT shows that the call was cancelled. A call that reached its time-out would raise
    // TIMEOUT.
    assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), Kind::Transient, "{:?}", *outcomes);
    assert_eq!((statistics.started, statistics.failed, statistics.has_panicked), (1, 1, false));
}

#[test]
fn stop_ends_a_task_that_waits_for_a_release_far_away() {
    let scene = Scene::new(None);
    let hour = Duration::from_secs(3_600);
    let task = PeriodicTaskBuilder::new(hour).start_delay(hour).start(&scene.target, |_, _| Ok(())).unwrap();
    assert!(!task.is_finished());
    assert_eq!(task.stop().started, 0);
    drop(PeriodicTaskBuilder::new(hour).start_delay(hour).start(&scene.target, |_, _| Ok(())).unwrap());
}

#[test]
fn panic_of_a_job_ends_the_task() {
    let scene = Scene::new(None);
    let told = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let seen = Arc::clone(&told);
    let observe = move |event: &Event| {
        if let Event::ThreadFailed { message } = event {
            seen.lock().push(message.clone());
        }
    };
    let client = Orb::builder().on_event(observe).build().unwrap();
    let target = client.string_to_object(&scene.target.to_string()).unwrap().unwrap();
    let builder = PeriodicTaskBuilder::new(Duration::from_millis(1)).name("sensor");
    let task = builder.start(&target, |_, _| panic!("a test")).unwrap();
    while !task.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(task.statistics().has_panicked);
    let statistics = task.wait();
    assert_eq!((statistics.started, statistics.completed, statistics.failed), (1, 0, 1));
    assert!(statistics.has_panicked);
    let once = PeriodicTaskBuilder::new(Duration::from_millis(1)).name("other");
    let task = once.start(&target, |_, job| if job.number() == 0 { panic!("again") } else { Ok(()) }).unwrap();
    while !task.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(task);
    assert_eq!(
        *told.lock(),
        ["sensor: a function of the task panicked: a test", "other: a function of the task panicked: again"]
    );
}

#[test]
fn panic_of_the_overrun_function_is_no_failed_job() {
    let scene = Scene::new(None);
    let client = Orb::new().unwrap();
    let target = client.string_to_object(&scene.target.to_string()).unwrap().unwrap();
    let builder = PeriodicTaskBuilder::new(Duration::from_millis(1)).on_overrun(|_| panic!("a test"));
    let job = |_: &ObjectRef, _: &PeriodicJob| {
        std::thread::sleep(Duration::from_millis(3));
        Ok(())
    };
    let statistics = builder.start(&target, job).unwrap().wait();
    assert_eq!((statistics.started, statistics.completed, statistics.failed), (1, 1, 0));
    assert_eq!((statistics.overruns, statistics.response.count(), statistics.has_panicked), (1, 1, true));
}

#[test]
fn options_that_cannot_be_are_refused() {
    let scene = Scene::new(None);
    let started = |builder: PeriodicTaskBuilder| builder.start(&scene.target, |_, _| Ok(())).map(drop);
    let kind = |builder| started(builder).unwrap_err().kind();
    let options = || PeriodicTaskBuilder::new(Duration::from_secs(1));
    assert_eq!(kind(PeriodicTaskBuilder::new(Duration::ZERO)), Kind::BadParam);
    assert_eq!(kind(options().thread_stack_size(1)), Kind::BadParam);
    assert_eq!(kind(options().scheduling(Scheduling::Fifo(100))), Kind::BadParam);
    assert_eq!(kind(options().cores(corelane::rt::CpuSet::one(1023))), Kind::BadParam);
    started(options()).unwrap();
}

/// An admission object that leaves the decision pending, and ends the task at its third renewal.
#[derive(Default)]
struct Undecided {
    is_silent: AtomicBool,
    questions: AtomicU64,
    waiting: AtomicU64,
    renewals: AtomicU64,
    withdrawals: AtomicU64,
}

const TOKEN: TaskToken = [7; 16];

fn unused() -> SystemException {
    SystemException::new(Kind::NoImplement, 0, corelane::Completion::No)
}

struct UndecidedServant(Arc<Undecided>);

impl protocol::Tasks for UndecidedServant {
    fn admit(&self, _: &TaskSpec) -> Result<Promise, AdmitError> {
        Err(AdmitError::Pending(Pending { task: 3, token: TOKEN }))
    }

    fn outcome(&self, task: u64, token: &TaskToken) -> Result<Promise, AdmitError> {
        if self.0.questions.fetch_add(1, Ordering::SeqCst) < 2 {
            return Err(AdmitError::Pending(Pending { task, token: *token }));
        }
        let lease = if self.0.is_silent.load(Ordering::SeqCst) { 6_000 * MS } else { 30 * MS };
        Ok(Promise { task, token: *token, target: None, core: 0, response: 0, start: 0, lease })
    }

    fn reserve(&self, _: &[TaskSpec]) -> Result<Reservation, ReserveError> {
        Err(unused().into())
    }

    fn commit(&self, _: u64, _: &TaskToken) -> Result<Promises, SystemException> {
        Err(unused())
    }

    fn cancel(&self, _: u64, _: &TaskToken) -> Result<(), SystemException> {
        Err(unused())
    }

    fn change(&self, _: u64, _: &TaskToken, _: &TaskTiming) -> Result<Promise, ReserveError> {
        Err(unused().into())
    }

    fn renew(&self, task: u64, token: &TaskToken, _: u64) -> Result<u64, SystemException> {
        assert_eq!((task, *token), (3, TOKEN));
        while self.0.is_silent.load(Ordering::SeqCst) {
            self.0.waiting.fetch_max(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        match self.0.renewals.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Ok(30 * MS),
            _ => Err(SystemException::new(Kind::ObjectNotExist, 0, corelane::Completion::No)),
        }
    }

    fn withdraw(&self, task: u64, token: &TaskToken) -> Result<(), SystemException> {
        assert_eq!((task, *token), (3, TOKEN));
        self.0.withdrawals.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn snapshot(&self) -> Result<(protocol::TaskRecords, protocol::CoreRecords, protocol::Counts), SystemException> {
        Err(unused())
    }

    fn monitor(
        &self,
    ) -> Result<(protocol::TaskRecords, protocol::CoreRecords, protocol::Counts, protocol::Measurements), SystemException>
    {
        Err(unused())
    }

    fn record_jobs(&self, _: u64) -> Result<u64, SystemException> {
        Err(unused())
    }

    fn recorded_jobs(&self, _: u64, _: u32) -> Result<(u64, protocol::JobRecords), SystemException> {
        Err(unused())
    }
}

/// Records the renewals of a client that end without a result: the kind of the exception, or `None`
/// after a time-out.
struct Renewals(Arc<Mutex<Vec<Option<Kind>>>>);

impl Interceptor for Renewals {
    fn receive_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        if request.operation() == "renew" {
            match outcome {
                RequestOutcome::SystemException(exception) => self.0.lock().push(Some(exception.kind())),
                RequestOutcome::Failed { .. } => self.0.lock().push(None),
                _ => {}
            }
        }
    }
}

#[test]
fn drop_of_a_task_cancels_a_renewal_that_gets_no_reply() {
    // If the machine pauses, the time-out of a renewal passes before the drop, and the next renewal
    // begins later. The test then tries again.
    let mut failures = Vec::new();
    for _ in 0..5 {
        failures = failures_of_a_silent_renewal();
        // A cancelled call raises TRANSIENT.
        if failures.last() == Some(&Some(Kind::Transient)) {
            return;
        }
    }
    panic!("{failures:?}");
}

/// Drops a task during a renewal without a reply. Returns the failures of its renewals.
fn failures_of_a_silent_renewal() -> Vec<Option<Kind>> {
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let state = Arc::new(Undecided::default());
    state.is_silent.store(true, Ordering::SeqCst);
    let object = protocol::Tasks::servant(UndecidedServant(Arc::clone(&state)));
    let reference = server.root_poa().activate(&object).unwrap().to_string();
    server.root_poa().manager().activate().unwrap();
    let failures = Arc::new(Mutex::new("failures", LockScope::Orb, Vec::new()));
    let client = Orb::builder().interceptor(Renewals(Arc::clone(&failures))).build().unwrap();
    let tasks: TasksRef = client.string_to_reference(&reference).unwrap();
    let target = client.string_to_object(&reference).unwrap().unwrap();
    let admitted = AdmittedTask::admit(&tasks, &target, &spec("a", MS, 10 * MS)).unwrap();
    while state.waiting.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(admitted);
    state.is_silent.store(false, Ordering::SeqCst);
    assert_eq!(state.withdrawals.load(Ordering::SeqCst), 1);
    failures.lock().clone()
}

#[test]
fn handle_waits_for_a_pending_decision_and_renews_the_lease_until_the_server_ends_the_task() {
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let state = Arc::new(Undecided::default());
    let object = protocol::Tasks::servant(UndecidedServant(Arc::clone(&state)));
    let reference = server.root_poa().activate(&object).unwrap().to_string();
    server.root_poa().manager().activate().unwrap();
    let client = Orb::new().unwrap();
    let tasks: TasksRef = client.string_to_reference(&reference).unwrap();
    let target = client.string_to_object(&reference).unwrap().unwrap();
    let admitted = AdmittedTask::admit(&tasks, &target, &spec("a", MS, 10 * MS)).unwrap();
    assert_eq!(state.questions.load(Ordering::SeqCst), 3);
    // The server may count more renewals, because the client does not count those whose reply is
    // late.
    while !admitted.has_lapsed() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(state.renewals.load(Ordering::SeqCst) >= 3);
    assert_eq!(state.withdrawals.load(Ordering::SeqCst), 0);
    drop(admitted);
    assert_eq!(state.withdrawals.load(Ordering::SeqCst), 1);
    state.questions.store(2, Ordering::SeqCst);
    AdmittedTask::admit(&tasks, &target, &spec("a", MS, 10 * MS)).unwrap().withdraw().unwrap();
    assert_eq!(state.withdrawals.load(Ordering::SeqCst), 2);
}
