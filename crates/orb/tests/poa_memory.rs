//! What an active object costs, and that finding one costs nothing that is counted.

mod poa;

use corelane::poa::*;
use corelane::{Orb, Servant};
use corelane_sys::counters;
use poa::*;

#[global_allocator]
static ALLOCATOR: corelane_sys::alloc::Counting = corelane_sys::alloc::Counting;

const OBJECTS: u32 = 1_000_000;

/// Octets that this thread holds more than before `work`.
fn held(work: impl FnOnce()) -> u64 {
    let before = counters::snapshot();
    work();
    let counted = counters::snapshot() - before;
    counted.allocated_bytes - counted.freed_bytes
}

fn orb() -> Orb {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

/// Activates a million objects, each with its own servant, and returns the octets of each besides the servant.
fn cost(policies: PoaPolicies, activate: impl Fn(&Poa, u32, &Servant)) -> f64 {
    let orb = orb();
    let poa = orb.root_poa().create_poa("p", Some(orb.root_poa().manager()), policies).unwrap();
    let mut servants = Vec::new();
    servants.extend((0..OBJECTS).map(|_| number(0)));
    let octets = held(|| {
        for (number, servant) in servants.iter().enumerate() {
            activate(&poa, number as u32, servant);
        }
    });
    f64::from(u32::try_from(octets / 1024).unwrap()) * 1024.0 / f64::from(OBJECTS)
}

#[test]
fn an_active_object_costs_at_most_160_octets() {
    let system = |poa: &Poa, _, servant: &Servant| drop(poa.activate_object(servant).unwrap());
    let user = |poa: &Poa, number: u32, servant: &Servant| {
        let id = ObjectId::from(&number.to_be_bytes()[..]);
        poa.activate_object_with_id(&id, servant).unwrap();
    };
    let multiple = |policies| PoaPolicies { id_uniqueness: IdUniqueness::Multiple, ..policies };
    let figures = [
        ("transient, SYSTEM_ID, UNIQUE_ID", cost(RETAINING, system)),
        ("transient, SYSTEM_ID, MULTIPLE_ID", cost(multiple(RETAINING), system)),
        ("persistent, USER_ID, UNIQUE_ID", cost(PERSISTENT, user)),
        ("persistent, USER_ID, MULTIPLE_ID", cost(multiple(PERSISTENT), user)),
    ];
    for (what, octets) in figures {
        println!("{what}: {octets:.1} octets for each of {OBJECTS} objects");
    }
    for (what, octets) in figures {
        assert!(octets > 16.0 && octets <= 160.0, "{what}: {octets}");
    }
}

#[test]
fn a_direct_call_takes_no_lock_and_allocates_nothing() {
    let orb = orb();
    let root = orb.root_poa();
    let user = root.create_poa("user", Some(root.manager()), USER).unwrap();
    let persistent = root.create_poa("persistent", Some(root.manager()), PERSISTENT).unwrap();
    let system = root.activate(&number(1)).unwrap();
    user.activate_object_with_id(&"some user id".into(), &number(1)).unwrap();
    persistent.activate_object_with_id(&"some user id".into(), &number(1)).unwrap();
    let id = ObjectId::from("some user id");
    for object in [system, user.id_to_reference(&id).unwrap(), persistent.id_to_reference(&id).unwrap()] {
        call(&object).unwrap();
        let before = counters::snapshot();
        for _ in 0..100 {
            call(&object).unwrap();
        }
        assert_eq!(counters::snapshot() - before, counters::Counters::default());
    }
}
