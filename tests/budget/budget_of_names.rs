//! The cost of `resolve` in a name server, counted for the whole process.

use corelane::{Dispatch, Orb, PoolConfig, SpinPolicy};
use corelane_services::naming::NamingConfig;
use corelane_services::naming::cos_naming::{NameComponent, NamingContextExtRef};
use corelane_sys::counters;
use corelane_tests as _;

const CALLS: u64 = 2000;

/// Maximum number of allocations beside the calls, for example of the hang-up monitor.
const BESIDES: u64 = 20;

fn component(id: &str) -> NameComponent {
    NameComponent { id: id.to_owned(), kind: "object".to_owned() }
}

#[test]
fn resolve_allocates_nothing_and_takes_no_lock_of_the_service() {
    let pool = PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 2 });
    let builder = || Orb::builder().spin_policy(SpinPolicy::Never);
    let server = builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
    let naming = NamingConfig::new().serve(&server).unwrap();
    let client = builder().build().unwrap();
    let text = naming.reference().as_object().to_string();
    let root = NamingContextExtRef::unchecked_narrow(&client.string_to_object(&text).unwrap().unwrap());
    let deep: Vec<NameComponent> = ["a", "b", "c", "d"].map(component).to_vec();
    for depth in 1..deep.len() {
        root.bind_new_context(&deep[..depth]).unwrap();
    }
    root.bind(&deep, Some(root.as_object())).unwrap();
    for number in 0..100 {
        root.bind(&[component(&format!("{number}"))], Some(root.as_object())).unwrap();
    }
    for name in [&deep[..], &[component("7")]] {
        let call = || assert!(root.resolve(name).unwrap().is_some());
        (0..500).for_each(|_| call());
        let (all, own) = (counters::process_snapshot(), counters::snapshot());
        (0..CALLS).for_each(|_| call());
        let own = counters::snapshot() - own;
        let others = counters::process_snapshot() - all - own;
        assert!(own.allocations > 0, "allocations are counted");
        assert!(others.allocations <= BESIDES, "{} allocations, {} components", others.allocations, name.len());
        // The ORB's pool takes one lock for each call, which is not a lock of the name server.
        let locks = others.locks.saturating_sub(CALLS);
        assert!(locks <= CALLS / 10, "{locks} further locks, {} components", name.len());
    }
}
