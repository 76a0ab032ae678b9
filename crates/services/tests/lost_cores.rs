//! The loss and the return of a core under a core pool.
//!
//! The only test of this file changes the cores of its whole process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use corelane::mapping::Operation;
use corelane::rt::{CorePoolConfig, CpuSet, Scheduling, served_by};
use corelane::{Event, ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException};
use corelane_sched::allocation::Machine;
use corelane_services::cores::protocol::{
    Criticality, JobOverrun, Promise, TaskRecord, TaskSpec, TaskState, TaskTiming, TasksRef,
};
use corelane_services::cores::{AdmissionConfig, ClientIdentityInterceptor};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{list_threads, set_affinity};

const MS: u64 = 1_000_000;

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
        call.reply().write_bool(by.thread.contains("/b"));
        Ok(())
    }
}

/// Calls the object of a task. Returns the number of the core, then whether the thread has a fixed
/// priority, and then whether the thread serves the task.
fn report(promise: &Promise) -> (u32, bool, bool) {
    static REPORT: Operation = Operation::new("report");
    let object: &ObjectRef = promise.target.as_ref().expect("a task reference");
    let mut reply = object.invoke(&REPORT, &|_| Ok(())).unwrap();
    reply.read(|decoder| Ok((decoder.read_u32()?, decoder.read_u8()? > 0, decoder.read_bool()?))).unwrap()
}

fn task(execution: u64, core: i32, importance: Criticality, target: &ObjectRef) -> TaskSpec {
    let timing = TaskTiming {
        execution: execution * MS,
        period: 100 * MS,
        deadline: 0,
        jitter: 0,
        blocking: 0,
        min_distance: 0,
    };
    TaskSpec {
        name: "task".into(),
        target: Some(target.clone()),
        operation: String::new(),
        timing,
        importance,
        core,
        lease: 3_600_000 * MS,
        overrun: JobOverrun::Report,
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}");
}

fn record(tasks: &TasksRef, promise: &Promise) -> Option<TaskRecord> {
    let (records, ..) = tasks.snapshot().unwrap();
    records.into_iter().find(|record| record.task == promise.task)
}

/// A cpuset of the test's process. The drop moves the process back to the parent, and removes the
/// cpuset.
struct Cpuset {
    own: PathBuf,
    parent: PathBuf,
}

impl Cpuset {
    fn enter() -> io::Result<Self> {
        let v1 = Path::new("/sys/fs/cgroup/cpuset");
        let parent = if v1.join("cpuset.cpus").exists() { v1.to_owned() } else { PathBuf::from("/sys/fs/cgroup") };
        let own = parent.join(format!("corelane-lost-cores-{}", std::process::id()));
        if parent != v1 {
            fs::write(parent.join("cgroup.subtree_control"), "+cpuset")?;
        }
        fs::create_dir(&own)?;
        let set = Cpuset { own, parent };
        let mems = fs::read_to_string(set.parent.join("cpuset.mems")).unwrap_or_default();
        let mems = if mems.trim().is_empty() { "0" } else { mems.trim() };
        set.set_cores("0-1")?;
        fs::write(set.own.join("cpuset.mems"), mems)?;
        fs::write(set.own.join("cgroup.procs"), std::process::id().to_string())?;
        Ok(set)
    }

    fn set_cores(&self, cores: &str) -> io::Result<()> {
        fs::write(self.own.join("cpuset.cpus"), cores)
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let left = fs::write(self.parent.join("cgroup.procs"), std::process::id().to_string());
        if let Err(error) = left.and_then(|()| fs::remove_dir(&self.own)) {
            eprintln!("{} stays: {error}", self.own.display());
        }
    }
}

/// Simulates the loss of cores by the affinity of the thread that watches the cores.
fn set_cores_of_watch(cores: &[usize]) {
    let threads = list_threads().unwrap();
    let watch = threads.iter().find(|thread| thread.name == "cores/decide").expect("the thread that makes decisions");
    set_affinity(Some(watch.tid), &cores.iter().copied().collect::<CpuSet>()).unwrap();
}

#[test]
fn tasks_of_a_lost_core_move_or_are_demoted_and_return_with_it() {
    let events = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let seen = Arc::clone(&events);
    let observe = move |event: &Event| match event {
        Event::CoreLost { core, moved, demoted, .. } => seen.lock().push(("lost", *core, *moved, *demoted)),
        Event::CoreReturned { core, restored, .. } => seen.lock().push(("returned", *core, *restored, 0)),
        _ => {}
    };
    let server = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(ClientIdentityInterceptor).on_event(observe);
    let server = server.build().unwrap();
    let pool = CorePoolConfig::default().cores([0, 1]);
    let service = AdmissionConfig::new(Machine::with_cores(2)).core_pool(pool).serve(&server).unwrap();
    let poa = server.root_poa();
    poa.manager().activate().unwrap();
    let target = poa.activate(&Servant::new(Reporter)).unwrap().to_string();
    let client = Orb::new().unwrap();
    let tasks: TasksRef = client.string_to_reference(&service.reference().to_string()).unwrap();
    let target = client.string_to_object(&target).unwrap().unwrap();
    // Core 0 has no room for the two tasks of core 1 until the first task has ended.
    let filler = tasks.admit(&task(90, 0, Criticality::Normal, &target)).unwrap();
    let high = tasks.admit(&task(30, -1, Criticality::High, &target)).unwrap();
    let low = tasks.admit(&task(30, -1, Criticality::Low, &target)).unwrap();
    assert_eq!((filler.core, high.core, low.core), (0, 1, 1));
    tasks.withdraw(filler.task, &filler.token).unwrap();
    wait_until("the share of the ended task must become free", || record(&tasks, &filler).is_none());
    let resident = tasks.admit(&task(50, 0, Criticality::Normal, &target)).unwrap();
    let reports = || [&resident, &high, &low].map(report);
    let states =
        || [&resident, &high, &low].map(|promise| record(&tasks, promise).map(|record| (record.core, record.state)));
    let whole = [(0, true, true), (1, true, true), (1, true, true)];
    assert_eq!(reports(), whole);

    let jobs_of_low = || {
        let (_, _, _, measured) = tasks.monitor().unwrap();
        measured.tasks.iter().find(|times| times.task == low.task).map(|times| times.jobs)
    };

    let lose_and_return = |set_cores: &dyn Fn(&[usize])| {
        wait_until("the job must be measured", || jobs_of_low() > Some(0));
        let jobs = jobs_of_low();
        set_cores(&[0]);
        let moved = [Some((0, TaskState::Promised)), Some((0, TaskState::Promised)), Some((-1, TaskState::Demoted))];
        wait_until("the loss of the core must be noticed", || states() == moved);
        let [of_resident, of_high, _] = reports();
        assert_eq!((of_resident, of_high), ((0, true, true), (0, true, true)));
        wait_until("the demoted task must lose its thread", || !report(&low).2);
        assert!(jobs_of_low() >= jobs, "the measurements of the demoted task are lost");
        let pinned = task(1, 1, Criticality::Normal, &target);
        assert!(tasks.admit(&pinned).is_err(), "a lost core has no room");
        set_cores(&[0, 1]);
        let kept = [(0, TaskState::Promised), (1, TaskState::Promised), (1, TaskState::Promised)].map(Some);
        wait_until("the return of the core must be noticed", || states() == kept);
        // The demoted task gets its thread back with its next requests.
        wait_until("the tasks must run on their cores", || reports() == whole);
        wait_until("the measurements must continue", || jobs_of_low() > jobs);
    };
    let expected = [("lost", 1, 1, 1), ("returned", 1, 2, 0)];
    lose_and_return(&set_cores_of_watch);
    wait_until("both events must be reported", || *events.lock() == expected);
    match Cpuset::enter() {
        Ok(set) => {
            events.lock().clear();
            lose_and_return(&|cores| {
                let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
                set.set_cores(&cores.join(",")).unwrap();
            });
            wait_until("both events must be reported", || *events.lock() == expected);
        }
        Err(error) => eprintln!("not run with a cpuset: the kernel or the system refuses one: {error}"),
    }
    assert_eq!(service.core_pool().and_then(|pool| pool.missing_guarantee_reason()), None);
}
