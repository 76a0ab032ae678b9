//! Admission of tasks through the ORB, over TCP.

use std::time::Duration;

use corelane::mapping::Operation;
use corelane::rt::{BestEffortShare, CorePool, CorePoolConfig, CorePoolMode, Scheduling, served_by};
use corelane::{Endpoint, ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException, SystemExceptionKind as Kind};
use corelane_sched::allocation::{Discipline, Machine};
use corelane_services::cores::protocol::tasks::{AdmitError, ReserveError};
use corelane_services::cores::protocol::{
    AdmissionTest, Criticality, JobOverrun, Promise, TaskSpec, TaskState, TaskTiming, TasksRef,
};
use corelane_services::cores::registry::RegistryLimits;
use corelane_services::cores::{
    AdmissionConfig, ClientIdentityInterceptor, DispatchCosts, MemoryTaskRegistry, charge_mode, with_best_effort_share,
};
use corelane_services::naming::NamingConfig;
use corelane_services::naming::cos_naming::NamingContextExtRef;

const MS: u64 = 1_000_000;

struct Scene {
    server: Orb,
    client: Orb,
    tasks: TasksRef,
}

impl Scene {
    fn new(machine: Machine, limits: RegistryLimits) -> Self {
        let server = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(ClientIdentityInterceptor).build().unwrap();
        AdmissionConfig::with_registry(MemoryTaskRegistry::new(machine, limits)).serve(&server).unwrap();
        let client = Orb::new().unwrap();
        let Endpoint::Tcp { port, .. } = server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        let tasks = client.string_to_reference(&format!("corbaloc::1.2@127.0.0.1:{port}/CorelaneTasks")).unwrap();
        Scene { server, client, tasks }
    }

    fn with_cores(cores: u32) -> Self {
        Self::new(Machine::with_cores(cores), RegistryLimits::default())
    }

    fn object(&self) -> NamingContextExtRef {
        let naming = NamingConfig::new().serve(&self.server).unwrap();
        self.client.string_to_reference(&naming.reference().as_object().to_string()).unwrap()
    }
}

fn task(name: &str, execution: u64, period: u64) -> TaskSpec {
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

fn kind<T: std::fmt::Debug>(outcome: Result<T, AdmitError>) -> Kind {
    match outcome {
        Err(AdmitError::System(exception)) => exception.kind(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn task_is_admitted_and_task_beyond_the_capacity_is_rejected_with_reasons() {
    let scene = Scene::with_cores(1);
    let promise = scene.tasks.admit(&task("a", 60 * MS, 100 * MS)).unwrap();
    assert_eq!((promise.core, promise.response, promise.start, promise.target), (0, 60 * MS, 0, None));
    assert_eq!(promise.lease, RegistryLimits::default().default_lease);
    let Err(AdmitError::Rejected(rejected)) = scene.tasks.admit(&task("b", 50 * MS, 100 * MS)) else {
        panic!("a task beyond the core's capacity must be rejected")
    };
    assert_eq!((rejected.task.as_str(), rejected.test, rejected.core), ("b", AdmissionTest::CapacityTest, 0));
    assert_eq!((rejected.excess, rejected.longest_execution, rejected.is_exhaustive), (150_000_000, 35 * MS, true));
    let reason = "core 0 would be used 0.150 beyond its capacity; an execution time of 35ms would fit";
    assert_eq!(rejected.reason, reason);
    let (tasks, cores, counts) = scene.tasks.snapshot().unwrap();
    assert_eq!((tasks.len(), tasks[0].name.as_str(), tasks[0].state), (1, "a", TaskState::Promised));
    assert_eq!((tasks[0].client.as_str(), tasks[0].core, tasks[0].level), ("address 127.0.0.1", 0, 0));
    assert_eq!((cores[0].capacity, cores[0].used), (950_000_000, 600_000_000));
    assert_eq!((counts.promised, counts.rejected), (1, 1));
    scene.tasks.renew(promise.task, &promise.token, 0).unwrap();
    scene.tasks.withdraw(promise.task, &promise.token).unwrap();
    let (tasks, ..) = scene.tasks.snapshot().unwrap();
    assert!(tasks.iter().all(|task| task.state == TaskState::Ending), "{tasks:?}");
}

#[test]
fn requests_out_of_range_get_the_documented_exceptions() {
    let scene = Scene::with_cores(2);
    assert_eq!(kind(scene.tasks.admit(&task("a", 0, 100 * MS))), Kind::BadParam);
    assert_eq!(kind(scene.tasks.admit(&task("a", 1, 99_999))), Kind::BadParam);
    assert_eq!(kind(scene.tasks.admit(&task("a", 1, u64::MAX))), Kind::BadParam);
    assert_eq!(kind(scene.tasks.admit(&task("", 1, MS))), Kind::BadParam);
    assert_eq!(kind(scene.tasks.admit(&TaskSpec { core: -2, ..task("a", 1, MS) })), Kind::BadParam);
    assert_eq!(kind(scene.tasks.admit(&TaskSpec { core: 2, ..task("a", 1, MS) })), Kind::NoResources);
    let promise = scene.tasks.admit(&task("a", 1, MS)).unwrap();
    let other = [7; 16];
    assert_eq!(scene.tasks.renew(promise.task, &other, 0).unwrap_err().kind(), Kind::NoPermission);
    assert_eq!(scene.tasks.withdraw(promise.task, &other).unwrap_err().kind(), Kind::NoPermission);
    assert_eq!(scene.tasks.withdraw(99, &other).unwrap_err().kind(), Kind::ObjectNotExist);
    assert_eq!(scene.tasks.commit(99, &other).unwrap_err().kind(), Kind::ObjectNotExist);
    let chain = vec![task("a", 1, MS); 33];
    assert!(
        matches!(scene.tasks.reserve(&chain), Err(ReserveError::System(exception)) if exception.kind() == Kind::BadParam)
    );
}

#[test]
fn requests_beyond_rate_and_quota_get_transient() {
    let limits = RegistryLimits { max_tasks_per_client: 1, max_decisions_per_second: 2, ..RegistryLimits::default() };
    let scene = Scene::new(Machine::with_cores(2), limits);
    scene.tasks.admit(&task("a", 1, MS)).unwrap();
    assert_eq!(kind(scene.tasks.admit(&task("b", 1, MS))), Kind::Transient);
    let (_, _, counts) = scene.tasks.snapshot().unwrap();
    assert_eq!(counts.over_quota, 1);
    // The third call exceeds the rate, or only the quota if a slow machine took a second for three
    // calls.
    assert_eq!(kind(scene.tasks.admit(&task("c", 1, MS))), Kind::Transient);
}

#[test]
fn task_reference_leads_to_its_target_until_the_task_ends() {
    let scene = Scene::with_cores(1);
    let object = scene.object();
    let spec = TaskSpec { target: Some(object.as_object().clone()), ..task("a", MS, 100 * MS) };
    let promise = scene.tasks.admit(&spec).unwrap();
    let target = promise.target.expect("the task has a target");
    assert_eq!(target.type_id(), object.as_object().type_id());
    assert!(
        !target.is_equivalent(object.as_object()),
        "the task reference must differ from the reference of the target"
    );
    let through_task = NamingContextExtRef::unchecked_narrow(&target);
    through_task.new_context().unwrap().expect("a context");
    let again = TaskSpec { target: Some(target.clone()), ..spec.clone() };
    assert_eq!(kind(scene.tasks.admit(&again)), Kind::BadParam);
    scene.tasks.withdraw(promise.task, &promise.token).unwrap();
    assert_eq!(through_task.new_context().unwrap_err().kind(), Kind::Transient);
    let elsewhere = scene.client.string_to_object("corbaloc::1.2@192.0.2.1:1/O").unwrap();
    assert_eq!(kind(scene.tasks.admit(&TaskSpec { target: elsewhere, ..spec.clone() })), Kind::BadParam);
    let Endpoint::Tcp { port, .. } = scene.server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let absent = scene.client.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/absent")).unwrap();
    assert_eq!(kind(scene.tasks.admit(&TaskSpec { target: absent, ..spec })), Kind::ObjectNotExist);
}

#[test]
fn chain_over_two_servers_is_reserved_on_both_or_on_neither() {
    let servers = [Scene::with_cores(1), Scene::with_cores(1)];
    let stage = |execution| [task("stage", execution, 100 * MS)];
    servers[1].tasks.admit(&task("other", 60 * MS, 100 * MS)).unwrap();
    let first = servers[0].tasks.reserve(&stage(60 * MS)).unwrap();
    assert!(matches!(servers[1].tasks.reserve(&stage(60 * MS)), Err(ReserveError::Rejected(_))));
    servers[0].tasks.cancel(first.chain, &first.token).unwrap();
    let reserved: Vec<_> = servers.iter().map(|server| server.tasks.reserve(&stage(30 * MS)).unwrap()).collect();
    for (server, reservation) in servers.iter().zip(&reserved) {
        let promises = server.tasks.commit(reservation.chain, &reservation.token).unwrap();
        assert_eq!(promises.len(), 1);
        let changed = TaskTiming { period: 200 * MS, ..stage(30 * MS)[0].timing };
        let changed = server.tasks.change(promises[0].task, &promises[0].token, &changed).unwrap();
        assert!(changed.start <= 100 * MS, "the new timing must begin after the last deadline of the old timing");
    }
}

#[test]
fn decision_with_a_long_search_is_made_by_another_thread() {
    let machine = Machine { max_steps: 1 << 14, ..Machine::with_cores(16) };
    let scene = Scene::new(machine, RegistryLimits::default());
    for _ in 0..16 {
        scene.tasks.admit(&task("a", 60 * MS, 100 * MS)).unwrap();
    }
    let Err(AdmitError::Pending(pending)) = scene.tasks.admit(&task("late", 60 * MS, 100 * MS)) else {
        panic!("the decision must become pending")
    };
    for _ in 0..10_000_000 {
        match scene.tasks.outcome(pending.task, &pending.token) {
            Err(AdmitError::Pending(_)) => std::thread::yield_now(),
            Err(AdmitError::Rejected(rejected)) => return assert_eq!(rejected.task, "late"),
            other => panic!("{other:?}"),
        }
    }
    panic!("the server must make the decision");
}

#[test]
fn one_server_has_one_admission_object() {
    let scene = Scene::with_cores(1);
    assert!(AdmissionConfig::new(Machine::with_cores(1)).serve(&scene.server).is_err());
    assert!(!scene.tasks.as_object().non_existent().unwrap());
}

struct Reporter;

impl Skeleton for Reporter {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/CoreReporter:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        if operation != b"report" {
            return Err(SystemException::bad_operation());
        }
        let by = served_by();
        let native = if let Some(Scheduling::Fifo(native)) = by.scheduling { native } else { 0 };
        call.reply().write_u32(by.core.and_then(|core| u32::try_from(core).ok()).unwrap_or(u32::MAX));
        call.reply().write_u8(native);
        call.reply().write_latin1_str(&by.thread)?;
        Ok(())
    }
}

fn address(object: &ObjectRef) -> Vec<String> {
    object.ior().known_profiles().next().map(|profile| format!("{:?}", profile.address)).into_iter().collect()
}

fn report(object: &ObjectRef) -> Result<(u32, u8, String), SystemException> {
    static REPORT: Operation = Operation::new("report");
    object
        .invoke(&REPORT, &|_| Ok(()))?
        .read(|decoder| Ok((decoder.read_u32()?, decoder.read_u8()?, decoder.read_string()?)))
}

struct PoolScene {
    pool: CorePool,
    target: String,
    reference: String,
    server: Orb,
}

impl PoolScene {
    fn new() -> Self {
        Self::with_pool("tcp:127.0.0.1:0", CorePoolConfig::default())
    }

    fn with_pool(address: &str, config: CorePoolConfig) -> Self {
        Self::with_machine(address, config, Machine::with_cores(2))
    }

    fn with_machine(address: &str, config: CorePoolConfig, machine: Machine) -> Self {
        let permitted = corelane_sys::thread::ThreadBuilder::new().scheduling(Scheduling::Fifo(1)).spawn(|| ());
        permitted.expect("SCHED_FIFO is not permitted here").join().unwrap();
        let server = Orb::builder().listen(address).interceptor(ClientIdentityInterceptor).build().unwrap();
        let config = AdmissionConfig::new(machine).core_pool(config.cores([0, 1]));
        let service = config.serve(&server).unwrap();
        let poa = server.root_poa();
        poa.manager().activate().unwrap();
        let target = poa.activate(&Servant::new(Reporter)).unwrap().to_string();
        let pool = service.core_pool().unwrap().clone();
        PoolScene { pool, target, reference: service.reference().to_string(), server }
    }

    fn client(&self) -> (Orb, TasksRef, ObjectRef) {
        let client = Orb::new().unwrap();
        let tasks = client.string_to_reference(&self.reference).unwrap();
        let target = client.string_to_object(&self.target).unwrap().unwrap();
        (client, tasks, target)
    }

    /// Waits until the first task has had this number of jobs. The server counts a job after the
    /// client has received the reply.
    fn wait_until_jobs_are(&self, jobs: u64) {
        for _ in 0..60_000 {
            if self.pool.measurements()[0].jobs == jobs {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{:?}", self.pool.measurements());
    }

    fn wait_until_nothing_is_bound(&self) {
        for _ in 0..60_000 {
            if self.pool.counts().currently_bound_connections == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{:?}", self.pool.counts());
    }
}

#[test]
fn requests_to_a_task_reference_run_on_the_core_and_at_the_priority_of_the_task() {
    let scene = PoolScene::new();
    let (_first, tasks, target) = scene.client();
    let slow = TaskSpec { target: Some(target.clone()), core: 1, ..task("slow", 10 * MS, 100 * MS) };
    let slow = tasks.admit(&slow).unwrap();
    let of_slow = slow.target.expect("a task reference");
    let (core, native, thread) = report(&of_slow).unwrap();
    assert_eq!((core, native), (1, 98));
    assert!(thread.starts_with("cores/b"), "{thread}");
    // The task with the shorter period lowers the priority of the first task, although the
    // connection of the first task is already bound.
    let (_second, other_tasks, other_target) = scene.client();
    let fast = TaskSpec { target: Some(other_target), core: 1, ..task("fast", MS, 10 * MS) };
    let fast = other_tasks.admit(&fast).unwrap();
    let of_fast = fast.target.expect("a task reference");
    assert_eq!(report(&of_fast).unwrap().1, 98);
    assert_eq!(report(&of_slow).unwrap(), (1, 97, thread.clone()));
    let (_, native, plain) = report(&target).unwrap();
    assert!(native == 0 && !plain.starts_with("cores/b"), "{plain}");
    other_tasks.withdraw(fast.task, &fast.token).unwrap();
    assert_eq!(report(&of_fast).unwrap_err().kind(), Kind::Transient);
    tasks.withdraw(slow.task, &slow.token).unwrap();
    scene.wait_until_nothing_is_bound();
    assert_eq!(report(&of_slow).unwrap_err().kind(), Kind::Transient);
    let counts = scene.pool.counts();
    assert_eq!((counts.connections_bound, counts.requests_not_bound), (2, 0), "{counts:?}");
}

#[test]
fn jobs_run_by_deadline_on_a_machine_that_admits_by_deadline() {
    for discipline in [Discipline::FixedPriority, Discipline::EarliestDeadlineFirst] {
        let mut machine = Machine::with_cores(2);
        machine.discipline = discipline;
        let scene = PoolScene::with_machine("tcp:127.0.0.1:0", CorePoolConfig::default(), machine);
        let (_client, tasks, target) = scene.client();
        let admit = |name, execution, period| {
            tasks.admit(&TaskSpec { target: Some(target.clone()), core: 1, ..task(name, execution * MS, period * MS) })
        };
        let short = admit("short", 45, 100).unwrap();
        let long = admit("long", 70, 150);
        let by_short = report(&short.target.unwrap()).unwrap();
        if discipline == Discipline::FixedPriority {
            assert!(matches!(long, Err(AdmitError::Rejected(_))), "{long:?}");
            assert_eq!(by_short.1, 98);
            continue;
        }
        let by_long = report(&long.unwrap().target.unwrap()).unwrap();
        // Each job is alone on its core, so deadline order gives it 49, the middle of the
        // priorities.
        assert_eq!((by_short.0, by_short.1), (1, 49));
        assert_eq!((by_long.0, by_long.1), (1, 49));
    }
}

#[test]
fn each_mode_of_a_pool_is_charged_and_serves_admitted_tasks() {
    for (mode, charged) in
        [(CorePoolMode::Manager, 90_000), (CorePoolMode::LeaderFollowers, 120_000), (CorePoolMode::NoAffinity, 0)]
    {
        let machine = charge_mode(Machine::with_cores(2), mode, DispatchCosts::default());
        let scene = PoolScene::with_machine("tcp:127.0.0.1:0", CorePoolConfig::default().mode(mode), machine);
        assert_eq!(scene.pool.missing_guarantee_reason().is_some(), mode == CorePoolMode::NoAffinity);
        let (_client, tasks, target) = scene.client();
        let spec = TaskSpec { target: Some(target.clone()), core: 1, ..task("task", 10 * MS, 100 * MS) };
        let promise = tasks.admit(&spec).unwrap();
        assert_eq!(promise.response, 10 * MS + charged, "{mode:?}");
        let reference = promise.target.unwrap();
        for _ in 0..20 {
            let (core, native, thread) = report(&reference).unwrap();
            assert!(native == 98 && thread.starts_with("cores/b"), "{mode:?} {native} {thread}");
            assert!(core == 1 || mode == CorePoolMode::NoAffinity, "{mode:?} {core}");
        }
        scene.wait_until_jobs_are(20);
        let (_, cores, _) = tasks.snapshot().unwrap();
        let reserved: Vec<u64> = cores.iter().map(|core| core.reserved).collect();
        let expected = match mode {
            CorePoolMode::Manager => [300_000, 0],
            CorePoolMode::LeaderFollowers => [300_000, 300_000],
            _ => [0, 0],
        };
        assert_eq!(reserved, expected, "{mode:?}");
        tasks.withdraw(promise.task, &promise.token).unwrap();
        assert_eq!(report(&reference).unwrap_err().kind(), Kind::Transient);
    }
}

#[test]
fn share_for_best_effort_is_above_all_tasks_and_must_be_counted() {
    let share = BestEffortShare::new(Duration::from_micros(1_900), Duration::from_millis(10));
    let config = CorePoolConfig::default().best_effort_share(share);
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let uncounted = AdmissionConfig::new(Machine::with_cores(2)).core_pool(config.clone().cores([0, 1]));
    assert_eq!(uncounted.serve(&server).unwrap_err().kind(), Kind::BadParam);
    let scene =
        PoolScene::with_machine("tcp:127.0.0.1:0", config, with_best_effort_share(Machine::with_cores(2), share));
    let (_client, tasks, target) = scene.client();
    let admit =
        |execution: u64| tasks.admit(&TaskSpec { target: Some(target.clone()), ..task("t", execution, 20 * MS) });
    let admitted = admit(3 * MS).unwrap();
    assert_eq!((admitted.response, report(&admitted.target.unwrap()).unwrap().1), (7 * MS, 97));
    assert!(matches!(admit(16 * MS), Err(AdmitError::Rejected(_))));
    report(&target).unwrap();
    let (_, cores, _, measured) = tasks.monitor().unwrap();
    assert!(cores.iter().all(|core| core.reserved == 200_000_000), "{cores:?}");
    let uses = &measured.best_effort;
    assert_eq!(uses.iter().map(|share| share.core).collect::<Vec<_>>(), [0, 1]);
    assert!(uses.iter().any(|share| share.used > 0), "{uses:?}");
}

#[test]
fn task_whose_target_has_a_plain_key_is_served_without_a_forward() {
    let scene = PoolScene::new();
    let (client, tasks, target) = scene.client();
    scene
        .server
        .bind_corbaloc_key("Reporter", &scene.server.string_to_object(&scene.target).unwrap().unwrap())
        .unwrap();
    let Endpoint::Tcp { port, .. } = scene.server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let plain = client.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/Reporter")).unwrap().unwrap();
    let admit = |target: &ObjectRef| {
        let admitted = tasks.admit(&TaskSpec { target: Some(target.clone()), ..task("t", MS, 20 * MS) }).unwrap();
        admitted.target.expect("a task reference")
    };
    let of_plain = admit(&plain);
    for _ in 0..3 {
        assert!(report(&of_plain).unwrap().2.starts_with("cores/b"));
    }
    scene.wait_until_jobs_are(3);
    assert!(scene.server.unbind_corbaloc_key("Reporter"));
    assert!(report(&of_plain).unwrap().2.starts_with("cores/b"));
    let refused = tasks.admit(&TaskSpec { target: Some(of_plain), ..task("t", MS, 20 * MS) });
    assert_eq!(kind(refused), Kind::BadParam);
    assert!(report(&admit(&target)).unwrap().2.starts_with("cores/b"));
}

#[test]
fn only_the_declared_operation_of_a_task_is_a_job() {
    let scene = PoolScene::new();
    let (_client, tasks, target) = scene.client();
    let spec = TaskSpec { target: Some(target), operation: "report".to_owned(), ..task("t", MS, 20 * MS) };
    let of_task = tasks.admit(&spec).unwrap().target.expect("a task reference");
    // The first request on the connection is not a job, because the task declares another
    // operation. Later requests arrive at the bound thread.
    for expected in [1, 2] {
        assert!(!of_task.with_timeout(Duration::from_secs(60)).non_existent().unwrap());
        assert_eq!(report(&of_task).unwrap().1, 98);
        scene.wait_until_jobs_are(expected);
    }
    assert_eq!(scene.pool.counts().requests_without_task, 1);
}

#[test]
fn monitor_counts_requests_without_a_thread() {
    let config = CorePoolConfig::default().threads_per_core(1).max_threads(2).refuses_without_thread(true);
    let scene = PoolScene::with_pool("tcp:127.0.0.1:0", config);
    let (_client, tasks, target) = scene.client();
    let of_tasks = [0, 1, 2].map(|number| {
        let spec = TaskSpec { target: Some(target.clone()), ..task(&format!("t{number}"), MS, 100 * MS) };
        tasks.admit(&spec).unwrap().target.expect("a task reference")
    });
    assert_eq!(tasks.monitor().unwrap().3.without_thread, 0);
    for of_task in &of_tasks[..2] {
        assert!(report(of_task).unwrap().2.starts_with("cores/b"));
    }
    assert_eq!(report(&of_tasks[2]).unwrap_err().kind(), Kind::Transient);
    let measured = tasks.monitor().unwrap().3;
    assert!(measured.without_thread > 0 && measured.led == 0, "{measured:?}");
    assert_eq!((measured.counts.not_bound, scene.pool.counts().without_thread), (0, measured.without_thread));
}

#[test]
fn end_of_a_lease_frees_the_thread_of_the_task() {
    let scene = PoolScene::new();
    let (_client, tasks, target) = scene.client();
    let short = TaskSpec { target: Some(target), lease: 3_600_000 * MS, ..task("short", MS, 100 * MS) };
    let promise = tasks.admit(&short).unwrap();
    let object = promise.target.expect("a task reference");
    report(&object).unwrap();
    assert_eq!(scene.pool.counts().currently_bound_connections, 1);
    tasks.renew(promise.task, &promise.token, MS).unwrap();
    scene.wait_until_nothing_is_bound();
    assert_eq!(report(&object).unwrap_err().kind(), Kind::Transient);
}

fn two_tasks(tasks: &TasksRef, target: &ObjectRef) -> [Promise; 2] {
    [0, 1].map(|core| {
        let spec = TaskSpec { target: Some(target.clone()), core, ..task(&format!("on {core}"), MS, 100 * MS) };
        tasks.admit(&spec).unwrap()
    })
}

#[test]
fn two_tasks_of_one_client_have_two_connections_on_two_cores() {
    let path = std::env::temp_dir().join(format!("corelane-cores-endpoints-{}", std::process::id()));
    for address in ["tcp:127.0.0.1:0".to_owned(), format!("unix:{}", path.display())] {
        let scene = PoolScene::with_pool(&address, CorePoolConfig::default());
        let (_client, tasks, target) = scene.client();
        let promises = two_tasks(&tasks, &target);
        for _ in 0..20 {
            for (core, promise) in (0..).zip(&promises) {
                let (on, native, thread) = report(promise.target.as_ref().unwrap()).unwrap();
                assert_eq!((on, native, thread.starts_with("cores/b")), (core, 98, true), "{address}");
            }
        }
        let counts = scene.pool.counts();
        assert_eq!(
            (counts.connections_bound, counts.currently_bound_connections, counts.requests_handed_over),
            (2, 2, 0),
            "{address} {counts:?}"
        );
        let [first, _] = &promises;
        let again = tasks.outcome(first.task, &first.token).unwrap();
        assert_eq!(again.target.unwrap().to_string(), first.target.as_ref().unwrap().to_string());
    }
}

#[test]
fn tasks_share_the_address_of_the_pool_until_an_endpoint_is_given_back() {
    let scene = PoolScene::with_pool("tcp:127.0.0.1:0", CorePoolConfig::default().task_endpoint_count(1));
    let (_client, tasks, target) = scene.client();
    let [own, shared] = two_tasks(&tasks, &target);
    let third = TaskSpec { target: Some(target.clone()), core: 0, ..task("third", MS, 100 * MS) };
    let also_shared = tasks.admit(&third).unwrap();
    let [at_own, at_shared, at_pool] =
        [&own, &shared, &also_shared].map(|promise| address(promise.target.as_ref().unwrap()));
    assert_eq!(at_shared, at_pool);
    assert_ne!(at_own, at_shared);
    let again = TaskSpec { target: own.target.clone(), ..third.clone() };
    assert_eq!(kind(tasks.admit(&again)), Kind::BadParam);
    tasks.withdraw(own.task, &own.token).unwrap();
    let next = tasks.admit(&third).unwrap();
    assert_eq!(address(next.target.as_ref().unwrap()), at_own);
    report(next.target.as_ref().unwrap()).unwrap();
    assert_eq!(report(own.target.as_ref().unwrap()).unwrap_err().kind(), Kind::Transient);
}
