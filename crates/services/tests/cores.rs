//! Admission of tasks through the ORB, over TCP.

use corelane::{Endpoint, Orb, SystemExceptionKind as Kind};
use corelane_sched::allocation::Machine;
use corelane_services::cores::books::BooksLimits;
use corelane_services::cores::protocol::tasks::{AdmitError, ReserveError};
use corelane_services::cores::protocol::{AdmissionTest, Criticality, TaskSpec, TaskState, TaskTiming, TasksRef};
use corelane_services::cores::{AdmissionConfig, ClientIdentityInterceptor, MemoryBooks};
use corelane_services::naming::NamingConfig;
use corelane_services::naming::cos_naming::NamingContextExtRef;

const MS: u64 = 1_000_000;

struct Scene {
    server: Orb,
    client: Orb,
    tasks: TasksRef,
}

impl Scene {
    fn new(machine: Machine, limits: BooksLimits) -> Self {
        let server = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(ClientIdentityInterceptor).build().unwrap();
        AdmissionConfig::with_books(MemoryBooks::new(machine, limits)).serve(&server).unwrap();
        let client = Orb::new().unwrap();
        let Endpoint::Tcp { port, .. } = server.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        let tasks = client.string_to_reference(&format!("corbaloc::1.2@127.0.0.1:{port}/CorelaneTasks")).unwrap();
        Scene { server, client, tasks }
    }

    fn with_cores(cores: u32) -> Self {
        Self::new(Machine::with_cores(cores), BooksLimits::default())
    }

    /// Returns the client's reference to an object of the server. The object is a naming context.
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
    assert_eq!(promise.lease, BooksLimits::default().default_lease);
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
    let limits = BooksLimits { max_tasks_per_client: 1, max_decisions_per_second: 2, ..BooksLimits::default() };
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
    // A task reference cannot be the target of another task.
    let again = TaskSpec { target: Some(target.clone()), ..spec.clone() };
    assert_eq!(kind(scene.tasks.admit(&again)), Kind::BadParam);
    scene.tasks.withdraw(promise.task, &promise.token).unwrap();
    // Uses a new ORB, because the first client remembers the forward of the old reference.
    let fresh = Orb::new().unwrap();
    let ended: NamingContextExtRef = fresh.string_to_reference(&target.to_string()).unwrap();
    assert_eq!(ended.new_context().unwrap_err().kind(), Kind::Transient);
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
    let scene = Scene::new(machine, BooksLimits::default());
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
