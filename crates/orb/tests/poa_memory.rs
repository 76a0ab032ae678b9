//! Measures the memory of an active object, and tests that a look-up allocates nothing and takes no
//! lock.

mod poa;

use corelane::poa::*;
use corelane::{Orb, Servant};
use corelane_sys::counters;
use poa::*;

#[global_allocator]
static ALLOCATOR: corelane_sys::alloc::CountingAllocator = corelane_sys::alloc::CountingAllocator;

const OBJECTS: u32 = 1_000_000;

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

/// Numbers of objects at which the memory is measured: just after the key index or the table of
/// servants has doubled, where the memory for each object is highest, and at the end.
const LOOKS: [u32; 3] = [786_433, 917_505, OBJECTS];

/// Returns the size of the C library's block for `octets` bytes: a multiple of 16, at least 32,
/// with 8 bytes of the allocator.
fn chunk(octets: u64) -> u64 {
    (octets + 8).next_multiple_of(16).max(32)
}

/// Returns the memory of an object in bytes, without the servant: the highest value at [`LOOKS`],
/// and the value at the end. `id` is the size in bytes of an id that is allocated for each object.
fn cost(policies: PoaPolicies, id: u64, activate: impl Fn(&Poa, u32, &Servant)) -> (f64, f64) {
    let orb = orb();
    let poa = orb.root_poa().create_poa("p", Some(orb.root_poa().manager()), policies).unwrap();
    let mut servants = Vec::new();
    servants.extend((0..OBJECTS).map(|_| number(0)));
    let (mut octets, mut most, mut each, mut from) = (0, 0f64, 0f64, 0);
    for until in LOOKS {
        octets += held(|| {
            for number in from..until {
                activate(&poa, number, &servants[number as usize]);
            }
        });
        let chunks = if id == 0 { 0 } else { u64::from(until) * (chunk(id) - id) };
        each = f64::from(u32::try_from((octets + chunks) / 1024).unwrap()) * 1024.0 / f64::from(until);
        most = most.max(each);
        from = until;
    }
    (most, each)
}

#[test]
fn an_active_object_costs_at_most_160_octets() {
    let system = |poa: &Poa, _, servant: &Servant| drop(poa.activate_object(servant).unwrap());
    let user = |poa: &Poa, number: u32, servant: &Servant| {
        let id = ObjectId::from(format!("object {number:07}").as_str());
        poa.activate_object_with_id(&id, servant).unwrap();
    };
    let multiple = |policies| PoaPolicies { id_uniqueness: IdUniqueness::Multiple, ..policies };
    let figures = [
        ("transient, SYSTEM_ID, UNIQUE_ID", cost(RETAINING, 0, system)),
        ("transient, SYSTEM_ID, MULTIPLE_ID", cost(multiple(RETAINING), 0, system)),
        ("persistent, USER_ID, UNIQUE_ID", cost(PERSISTENT, 14, user)),
        ("persistent, USER_ID, MULTIPLE_ID", cost(multiple(PERSISTENT), 14, user)),
    ];
    for (what, (most, octets)) in figures {
        println!("{what}: {octets:.1} octets for each of {OBJECTS} objects, {most:.1} at worst of {LOOKS:?}");
    }
    for (what, (most, octets)) in figures {
        assert!(octets > 16.0 && most <= 160.0, "{what}: {octets}, at worst {most}");
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
