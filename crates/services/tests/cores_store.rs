//! Admission with a store that fails, or whose disk does not respond.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corelane::{Completion, Orb, SystemException, SystemExceptionKind as Kind, minor};
use corelane_sched::allocation::Machine;
use corelane_services::cores::protocol::tasks::{AdmitError, ReserveError};
use corelane_services::cores::protocol::{Criticality, JobOverrun, Promise, TaskSpec, TaskState, TaskTiming, TasksRef};
use corelane_services::cores::registry::RegistryLimits;
use corelane_services::cores::{AdmissionConfig, RECORD_FORMAT, RestoredTasks, StoredTaskRegistry};
use corelane_services::store::{Durability, MemoryStore, RecordChange, RecordVisitor, Revision, Store, StoreError};
use corelane_sys::lock::{Condvar, LockScope, Mutex};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    Works,
    Full,
    /// Commits wait until the disk works.
    Silent,
    /// A commit panics.
    Broken,
}

#[derive(Clone)]
struct TestStore {
    store: MemoryStore,
    disk: Arc<(Mutex<Disk>, Condvar)>,
}

impl TestStore {
    fn new() -> Self {
        let disk = (Mutex::new("test disk", LockScope::Orb, Disk::Works), Condvar::new());
        TestStore { store: MemoryStore::new(RECORD_FORMAT), disk: Arc::new(disk) }
    }

    fn set(&self, disk: Disk) {
        *self.disk.0.lock() = disk;
        self.disk.1.notify_all();
    }
}

impl Store for TestStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        self.store.for_each(visit)
    }

    fn commit(&self, after: Revision, batch: &[RecordChange<'_>], sync: Durability) -> Result<Revision, StoreError> {
        let mut disk = self.disk.0.lock();
        while *disk == Disk::Silent {
            disk = self.disk.1.wait(disk);
        }
        match *disk {
            Disk::Broken => panic!("simulated"),
            Disk::Works => self.store.commit(after, batch, sync),
            _ => Err(StoreError::Full { reason: "no space left".to_owned() }),
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.store.sync()
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.store.backup(path)
    }
}

struct Scene {
    server: Orb,
    _client: Orb,
    tasks: TasksRef,
    restored: RestoredTasks,
}

impl Scene {
    fn new(store: &TestStore) -> Self {
        let registry =
            StoredTaskRegistry::open(store.clone(), Machine::with_cores(1), RegistryLimits::default()).unwrap();
        let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let service = AdmissionConfig::with_registry(registry).serve(&server).unwrap();
        let client = Orb::new().unwrap();
        let tasks = client.string_to_reference(&service.reference().to_string()).unwrap();
        Scene { server, _client: client, tasks, restored: service.restored_tasks() }
    }

    /// Shuts the server down, drops it, and starts another one with the store.
    fn restart(self, store: &TestStore) -> Self {
        self.server.shutdown(true).unwrap();
        drop(self);
        Self::new(store)
    }

    fn promised(&self) -> (Vec<u64>, u64) {
        let (tasks, cores, _) = self.tasks.snapshot().unwrap();
        let promised = tasks.iter().filter(|record| record.state == TaskState::Promised);
        (promised.map(|record| record.task).collect(), cores[0].used)
    }
}

fn timing(execution: u64) -> TaskTiming {
    TaskTiming { execution, period: 100 * MS, deadline: 0, jitter: 0, blocking: 0, min_distance: 0 }
}

fn task(execution: u64) -> TaskSpec {
    TaskSpec {
        name: "t".to_owned(),
        target: None,
        operation: String::new(),
        timing: timing(execution),
        importance: Criticality::Normal,
        core: -1,
        lease: 100 * SECOND,
        overrun: JobOverrun::Report,
    }
}

fn refusal(admitted: Result<Promise, AdmitError>) -> SystemException {
    match admitted {
        Err(AdmitError::System(exception)) => exception,
        other => panic!("{other:?}"),
    }
}

fn assert_not_saved(exception: &SystemException) {
    assert_eq!((exception.kind(), exception.minor()), (Kind::NoResources, minor::NOT_SAVED), "{exception}");
    assert_eq!(exception.completed(), Completion::Maybe);
}

#[test]
fn full_store_refuses_new_promises_and_keeps_the_others() {
    let store = TestStore::new();
    let scene = Scene::new(&store);
    let tasks = &scene.tasks;
    let [kept, withdrawn] = [30, 10].map(|execution| tasks.admit(&task(execution * MS)).unwrap());
    store.set(Disk::Full);
    assert_not_saved(&refusal(tasks.admit(&task(20 * MS))));
    let chain = tasks.reserve(&[task(MS), task(MS)]).unwrap();
    assert_not_saved(&tasks.commit(chain.chain, &chain.token).unwrap_err());
    assert_eq!(scene.promised(), (vec![kept.task, withdrawn.task], 400_000_000));
    let Err(ReserveError::System(refused)) = tasks.change(kept.task, &kept.token, &timing(40 * MS)) else {
        panic!("a change must be saved")
    };
    assert_not_saved(&refused);
    assert_eq!(scene.promised().1, 400_000_000);
    assert_eq!(tasks.renew(kept.task, &kept.token, 50 * SECOND).unwrap(), 50 * SECOND);
    let kept_lease = tasks.renew(kept.task, &kept.token, 200 * SECOND).unwrap();
    assert!((50 * SECOND..=100 * SECOND).contains(&kept_lease), "{kept_lease}");
    let again = tasks.outcome(kept.task, &kept.token).unwrap();
    assert!(again.core == kept.core && again.lease <= 100 * SECOND, "{again:?}");
    tasks.withdraw(withdrawn.task, &withdrawn.token).unwrap();
    assert_eq!(scene.promised().0, [kept.task]);
    store.set(Disk::Works);
    let later = tasks.admit(&task(20 * MS)).unwrap();
    tasks.change(kept.task, &kept.token, &timing(40 * MS)).unwrap();
    assert!(tasks.renew(kept.task, &kept.token, 200 * SECOND).unwrap() > 100 * SECOND);
    let scene = scene.restart(&store);
    assert_eq!(scene.promised(), (vec![kept.task, later.task], 600_000_000));
    assert_eq!((scene.restored.tasks, scene.restored.demoted, scene.restored.tasks_with_new_references), (2, 0, 0));
    let held = scene.tasks.outcome(kept.task, &kept.token).unwrap().lease;
    assert!(held > 100 * SECOND, "the longest lease counts: {held}");
}

#[test]
fn restarted_server_gets_the_machine_of_its_time() {
    let store = TestStore::new();
    let scene = Scene::new(&store);
    let [low, high] = [Criticality::Low, Criticality::High]
        .map(|importance| scene.tasks.admit(&TaskSpec { importance, ..task(40 * MS) }).unwrap());
    scene.server.shutdown(true).unwrap();
    drop(scene);
    // The core now has room for one task only, so the less critical task is demoted.
    let mut machine = Machine::with_cores(1);
    machine.cores[0].capacity = corelane_sched::task::Utilization(500_000_000);
    let registry = StoredTaskRegistry::open(store.clone(), machine, RegistryLimits::default()).unwrap();
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let service = AdmissionConfig::with_registry(registry).serve(&server).unwrap();
    let restored = service.restored_tasks();
    assert_eq!((restored.tasks, restored.demoted), (2, 1));
    let client = Orb::new().unwrap();
    let tasks: TasksRef = client.string_to_reference(&service.reference().to_string()).unwrap();
    assert_eq!(tasks.outcome(high.task, &high.token).unwrap().core, 0);
    assert_eq!(refusal(tasks.outcome(low.task, &low.token)).kind(), Kind::NoResources);
    tasks.renew(low.task, &low.token, 0).unwrap();
}

#[test]
fn silent_disk_holds_new_promises_only() {
    let store = TestStore::new();
    let scene = Scene::new(&store);
    let kept = scene.tasks.admit(&task(10 * MS)).unwrap();
    store.set(Disk::Silent);
    std::thread::scope(|scope| {
        // By default, two requests may wait for the store.
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let client = Orb::new().unwrap();
                    let tasks: TasksRef = client.string_to_reference(&scene.tasks.as_object().to_string()).unwrap();
                    tasks.admit(&task(10 * MS)).unwrap()
                })
            })
            .collect();
        let client = scene.tasks.with_timeout(Duration::from_secs(30));
        for _ in 0..60_000 {
            if scene.promised().0.len() == 3 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(scene.promised().0.len(), 3, "both requests are decided");
        assert_eq!(refusal(client.admit(&task(10 * MS))).kind(), Kind::Transient);
        assert_eq!(client.withdraw(kept.task, &kept.token).unwrap_err().kind(), Kind::Transient);
        assert_eq!(client.renew(kept.task, &kept.token, 0).unwrap(), RegistryLimits::default().default_lease);
        client.outcome(kept.task, &kept.token).unwrap();
        assert!(waiting.iter().all(|thread| !thread.is_finished()), "no promise is acknowledged before it is saved");
        store.set(Disk::Works);
        let promises: Vec<Promise> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_ne!(promises[0].task, promises[1].task);
    });
    scene.tasks.withdraw(kept.task, &kept.token).unwrap();
    let scene = scene.restart(&store);
    assert_eq!(scene.promised().0.len(), 2);
}

#[test]
fn server_does_not_start_on_a_full_or_malformed_store() {
    let store = TestStore::new();
    store.set(Disk::Full);
    let serve = |store: &TestStore| {
        let registry = StoredTaskRegistry::open(store.clone(), Machine::with_cores(1), RegistryLimits::default())?;
        let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        Ok::<_, StoreError>(AdmissionConfig::with_registry(registry).serve(&server).map(drop))
    };
    let refused = serve(&store).unwrap().unwrap_err();
    assert_eq!(refused.kind(), Kind::PersistStore);
    assert!(refused.to_string().contains("free some space on its disk"), "{refused}");
    store.set(Disk::Works);
    serve(&store).unwrap().unwrap();
    let (revision, key) = (store.for_each(&mut |_, _| Ok(())).unwrap(), [&[2][..], &7_u64.to_be_bytes()].concat());
    store.commit(revision, &[RecordChange::Put(&key, b"short")], Durability::Synced).unwrap();
    let refused = serve(&store).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
}

#[test]
fn end_of_the_server_tries_the_last_save_once_more() {
    let store = TestStore::new();
    let scene = Scene::new(&store);
    let task = scene.tasks.admit(&task(10 * MS)).unwrap();
    store.set(Disk::Full);
    scene.tasks.withdraw(task.task, &task.token).unwrap();
    store.set(Disk::Works);
    assert!(scene.restart(&store).promised().0.is_empty());
}

#[test]
fn renewal_grants_no_time_that_has_passed() {
    let store = TestStore::new();
    let scene = Scene::new(&store);
    let promise = scene.tasks.admit(&task(10 * MS)).unwrap();
    let tasks = scene.tasks.with_timeout(Duration::from_secs(60));
    let longest = || scene.tasks.snapshot().unwrap().0.iter().map(|record| record.remaining).max().unwrap_or(0);
    let poll = |is_done: &dyn Fn() -> bool| {
        for _ in 0..60_000 {
            if is_done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the request is not decided");
    };
    store.set(Disk::Silent);
    std::thread::scope(|scope| {
        let renewal = scope.spawn(|| {
            let client = Orb::new().unwrap();
            let tasks: TasksRef = client.string_to_reference(&scene.tasks.as_object().to_string()).unwrap();
            tasks.renew(promise.task, &promise.token, 200 * SECOND)
        });
        poll(&|| longest() > 100 * SECOND);
        let before = longest();
        store.set(Disk::Works);
        let granted = renewal.join().unwrap().unwrap();
        assert!(granted > 100 * SECOND && granted < before, "{granted} {before}");
    });
    store.set(Disk::Silent);
    std::thread::scope(|scope| {
        let renewal = scope.spawn(|| tasks.renew(promise.task, &promise.token, 300 * SECOND));
        poll(&|| longest() > 200 * SECOND);
        let withdrawal = scope.spawn(|| {
            let client = Orb::new().unwrap();
            let tasks: TasksRef = client.string_to_reference(&scene.tasks.as_object().to_string()).unwrap();
            tasks.withdraw(promise.task, &promise.token)
        });
        poll(&|| scene.promised().0.is_empty());
        store.set(Disk::Works);
        assert_eq!(renewal.join().unwrap().unwrap_err().kind(), Kind::ObjectNotExist);
        withdrawal.join().unwrap().unwrap();
    });
}

#[test]
fn panic_of_the_store_leaves_no_refused_promise() {
    let store = TestStore::new();
    let scene = Scene::new(&store);
    let kept = scene.tasks.admit(&task(10 * MS)).unwrap();
    store.set(Disk::Broken);
    assert_not_saved(&refusal(scene.tasks.admit(&task(10 * MS))));
    assert_eq!(scene.promised(), (vec![kept.task], 100_000_000));
    store.set(Disk::Works);
    let refused = refusal(scene.tasks.admit(&task(10 * MS)));
    assert_eq!((refused.minor(), refused.completed()), (minor::NOT_SAVED, Completion::No));
    assert_eq!(scene.promised(), (vec![kept.task], 100_000_000));
}

#[test]
fn least_number_of_waiting_requests_is_one() {
    let serve = |config: AdmissionConfig| {
        let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let service = config.max_waiting_saves(0).serve(&server).unwrap();
        service.reference().admit(&task(10 * MS)).unwrap();
    };
    serve(AdmissionConfig::new(Machine::with_cores(1)));
    let registry =
        StoredTaskRegistry::open(TestStore::new(), Machine::with_cores(1), RegistryLimits::default()).unwrap();
    serve(AdmissionConfig::with_registry(registry));
}
