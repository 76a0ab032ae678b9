//! The scheduling class and the cores of the ORB's threads.

use std::sync::Arc;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    LaneConfig, LanesConfig, OverrunAction, PriorityModel, RtClientPolicies, RtConfig, RtPolicies, Scheduling,
    SchedulingClass, ThreadInfo, threads,
};
use corelane::{ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{CpuSet, ThreadBuilder, affinity};
use corelane_tests::real_time::{Reporter, call_who};

const CALLER: u8 = 40;

fn urgently<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let last = affinity(None).unwrap().iter().last().unwrap();
    let builder = ThreadBuilder::new().name("caller").affinity(CpuSet::one(last)).scheduling(Scheduling::Fifo(CALLER));
    match builder.spawn(body) {
        Ok(thread) => thread.join().unwrap(),
        Err(error) => panic!("SCHED_FIFO is not permitted here: {error}"),
    }
}

fn named(prefix: &str) -> Vec<ThreadInfo> {
    let found: Vec<_> = threads().unwrap().into_iter().filter(|thread| thread.name.starts_with(prefix)).collect();
    assert!(!found.is_empty(), "no name begins with {prefix} among {:?}", threads().unwrap());
    found
}

#[track_caller]
fn assert_all(prefix: &str, scheduling: Scheduling, cores: CpuSet) {
    for thread in named(prefix) {
        assert_eq!((thread.scheduling, thread.cores), (scheduling, cores), "{}", thread.name);
    }
}

struct Ender(Arc<Mutex<Option<Orb>>>);

impl Skeleton for Ender {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Ender:1.0"]
    }

    fn dispatch(&self, _: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let orb = self.0.lock().take();
        drop(orb);
        // The ORB's shutdown thread waits for the thread of this request, so the shutdown thread
        // still exists.
        let ender = named("orb/end");
        call.reply().write_u8(ender[0].scheduling.priority());
        Ok(())
    }
}

fn lanes(orb: &Orb, name: &str) -> ObjectRef {
    let lanes = [1000, 20000].map(|priority| LaneConfig::default().priority(priority));
    let config = LanesConfig::default().name(name).lanes(lanes);
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 1000)),
        threadpool: Some(orb.real_time().create_threadpool_with_lanes(&config).unwrap()),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("lanes", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    root.manager().activate().unwrap();
    poa.activate(&Reporter::new(orb).servant()).unwrap()
}

fn server() -> (Orb, String) {
    let config = RtConfig::default().overrun_action(OverrunAction::LowerPriority(0));
    let orb = Orb::builder().real_time(config).listen("tcp:127.0.0.1:0").build().unwrap();
    urgently(move || {
        let object = lanes(&orb, "fl");
        (orb, object.to_string())
    })
}

fn calls(client: Orb, ior: String) -> Orb {
    urgently(move || {
        client.real_time().current().unwrap().set_priority(1000).unwrap();
        corelane_sys::thread::set_scheduling(None, Scheduling::Fifo(CALLER)).unwrap();
        let object = client.string_to_object(&ior).unwrap().unwrap();
        let bands = RtClientPolicies { priority_bands: Some(vec![(0, 20000)]), ..RtClientPolicies::default() };
        for object in [object.with_rt_policies(&bands).unwrap(), object] {
            call_who(&object).unwrap();
            object.send_deferred("who", |_| Ok(())).unwrap().reply().map(drop).unwrap();
        }
        client
    })
}

/// One test has all cases, because threads of different ORBs have equal names.
#[test]
fn threads_are_scheduled_by_their_role() {
    let all = affinity(None).unwrap();
    let last = CpuSet::one(all.iter().last().unwrap());
    let (server, ior) = server();
    let client = calls(Orb::builder().build().unwrap(), ior);
    assert_all("fl/p1000/l", Scheduling::Fifo(3), all);
    assert_all("fl/p20000/l", Scheduling::Fifo(60), all);
    assert_all("orb/overrun", Scheduling::Fifo(99), all);
    assert_all("orb/watch", Scheduling::Other, all);
    assert_all("orb/r40", Scheduling::Fifo(CALLER), all);
    assert_all("orb/r2", Scheduling::Fifo(60), all);
    assert_all("pool/l", Scheduling::Other, all);
    drop((client, server));

    // A pool without a priority inherits the scheduling of the thread that builds the ORB.
    let fair = RtConfig::default().scheduling(SchedulingClass::Fair);
    let directory = std::env::temp_dir().join(format!("corelane-classes-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let address = format!("shm:{}", directory.join("s").display());
    let over_memory = urgently(move || {
        let orb = Orb::builder().real_time(fair).listen(address).build().unwrap();
        lanes(&orb, "fair");
        let owner = Arc::new(Mutex::new("owner", LockScope::Orb, None));
        let ender = orb.root_poa().activate(&Servant::new(Ender(Arc::clone(&owner)))).unwrap().to_string();
        *owner.lock() = Some(orb);
        ender
    });
    assert_all("fair/p", Scheduling::Other, last);
    assert_all("pool/l", Scheduling::Fifo(CALLER), last);
    let client = Orb::builder().build().unwrap();
    let ender = client.string_to_object(&over_memory).unwrap().unwrap();
    ender.validate_connection().unwrap();
    // A monitor starts with the priority of the thread that starts it, and lowers its priority when
    // it runs.
    let settled = || {
        let ends = named("net/peers");
        ends.len() == 2 && ends.iter().all(|thread| thread.scheduling == Scheduling::Other)
    };
    assert!((0..2_000).any(|_| settled() || {
        std::thread::sleep(std::time::Duration::from_millis(5));
        false
    }));
    let roles = ["fair/", "pool/", "orb/watch", "net/peers", "orb/r"];
    for thread in threads().unwrap().iter().filter(|thread| thread.name.contains('/')) {
        assert!(roles.iter().any(|role| thread.name.starts_with(role)), "{thread:?} has an unknown role");
    }
    let mut reply = ender.send_deferred("end", |_| Ok(())).unwrap();
    let ended_at = reply.reply().unwrap().read(|decoder| decoder.read_u8()).unwrap();
    assert_eq!(ended_at, 0, "the end of the ORB is not urgent");
    let _ = std::fs::remove_dir_all(directory);
}
