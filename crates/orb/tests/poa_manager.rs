//! Tests of POA managers (CORBA 3.0.3, section 11.3.2).
#![allow(clippy::disallowed_types, reason = "a test may lock as it likes")]

mod poa;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corelane::poa::*;
use corelane::{
    CallPolicies, Completion, Dispatch, ObjectRef, Orb, PoolConfig, Servant, SystemExceptionKind as Kind, Version,
};
use poa::*;

const DISCARDED: (Kind, u32, Completion) = (Kind::Transient, 1, Completion::No);
const REFUSED: (Kind, u32, Completion) = (Kind::ObjAdapter, 1, Completion::No);

fn own_manager(world: &World, name: &str, policies: PoaPolicies) -> Poa {
    world.root.create_poa(name, None, policies).unwrap()
}

#[test]
fn manager_changes_state_as_the_specification_says() {
    let world = World::new();
    type Step = fn(&PoaManager) -> Result<(), PoaError>;
    let steps: [(Step, ManagerState); 3] = [
        (PoaManager::activate, ManagerState::Active),
        (|manager| manager.hold_requests(false), ManagerState::Holding),
        (|manager| manager.discard_requests(false), ManagerState::Discarding),
    ];
    let manager = own_manager(&world, "a", RETAINING).manager().clone();
    assert_eq!(manager.state(), ManagerState::Holding);
    for (first, from) in steps {
        for (second, to) in steps {
            first(&manager).unwrap();
            assert_eq!(manager.state(), from);
            second(&manager).unwrap();
            assert_eq!(manager.state(), to);
        }
    }
    for (number, (step, _)) in steps.into_iter().enumerate() {
        let manager = own_manager(&world, &format!("b{number}"), RETAINING).manager().clone();
        step(&manager).unwrap();
        manager.deactivate(true, false).unwrap();
        manager.deactivate(false, true).unwrap();
        for (step, _) in steps {
            assert_eq!(step(&manager), Err(PoaError::AdapterInactive));
            assert_eq!(manager.state(), ManagerState::Inactive);
        }
    }
}

#[test]
fn managers_are_made_listed_and_found() {
    let world = World::new();
    let factory = world.root.manager_factory();
    assert_eq!(world.root.manager().id(), "RootPOAManager");
    let shared = factory.create_manager("shared").unwrap();
    assert_eq!(shared.state(), ManagerState::Holding);
    assert_eq!(factory.create_manager("shared").unwrap_err(), PoaError::ManagerAlreadyExists);
    assert_eq!(factory.create_manager("RootPOAManager").unwrap_err(), PoaError::ManagerAlreadyExists);
    let taken = factory.create_manager("POAManager2").unwrap();
    let (a, b) = (own_manager(&world, "a", USER), own_manager(&world, "b", USER));
    let c = world.root.create_poa("c", Some(&shared), USER).unwrap();
    assert!(a.manager() != b.manager() && a.manager() != &taken && c.manager() == &shared);
    let mut ids: Vec<String> = factory.list().iter().map(|manager| manager.id().to_owned()).collect();
    assert_eq!(ids.len(), 5);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "ids are unique");
    assert_eq!(factory.find("shared"), Some(shared));
    assert_eq!(factory.find("missing"), None);
    let other = World::new();
    assert_eq!(refused_by(other.root.create_poa("x", Some(a.manager()), USER)).0, Kind::BadParam);
}

#[test]
fn discarding_and_inactive_managers_refuse_requests() {
    let world = World::new();
    for (name, policies) in [("a", RETAINING), ("b", USER), ("c", PERSISTENT), ("d", DEFAULT)] {
        let poa = own_manager(&world, name, policies);
        let object = if name == "a" {
            poa.activate(&number(1)).unwrap()
        } else {
            poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
            poa.id_to_reference(&"x".into()).unwrap()
        };
        poa.manager().activate().unwrap();
        assert_eq!(world.call(Way::Remote, &object).unwrap(), 1);
        poa.manager().discard_requests(false).unwrap();
        for way in WAYS {
            assert_eq!(refused(world.call(way, &object)), DISCARDED, "{name} {way:?}");
        }
        assert_eq!(refused(world.remote(&object).validate_connection()), DISCARDED);
        assert_eq!(refused(object.validate_connection()), DISCARDED);
        // A LocateReply of GIOP 1.0 cannot carry the exception, so it reports an unknown object.
        let old = Orb::builder().giop_version(Version::GIOP_1_0).build().unwrap();
        let object_of_old = old.string_to_object(&object.to_string()).unwrap().unwrap();
        assert_eq!(refused(object_of_old.validate_connection()), NO_OBJECT);
        assert_eq!(refused(call_marshalled(&object_of_old)), DISCARDED);
        poa.manager().deactivate(true, true).unwrap();
        for way in WAYS {
            assert_eq!(refused(world.call(way, &object)), REFUSED, "{name} {way:?}");
        }
        assert_eq!(refused(world.remote(&object).validate_connection()), REFUSED);
    }
}

fn later<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    way: Way,
    world: &'s World,
    object: &ObjectRef,
) -> std::thread::ScopedJoinHandle<'s, Result<i32, corelane::SystemException>> {
    let object = object.clone();
    scope.spawn(move || world.call(way, &object))
}

#[test]
fn held_requests_run_when_the_manager_is_activated() {
    let world = World::new();
    let poa = own_manager(&world, "holding", USER);
    let elsewhere = own_manager(&world, "elsewhere", USER);
    poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
    let object = poa.id_to_reference(&"x".into()).unwrap();
    for state in [ManagerState::Active, ManagerState::Discarding, ManagerState::Inactive] {
        std::thread::scope(|scope| {
            let calls: Vec<_> = WAYS.into_iter().map(|way| (way, later(scope, way, &world, &object))).collect();
            let located = scope.spawn(|| world.remote(&object).validate_connection());
            a_while();
            assert!(!located.is_finished() && calls.iter().all(|(_, call)| !call.is_finished()));
            let free = world.root.activate(&number(5)).unwrap();
            assert_eq!(world.call(Way::Remote, &free).unwrap(), 5);
            elsewhere.manager().activate().unwrap();
            match state {
                ManagerState::Active => poa.manager().activate().unwrap(),
                ManagerState::Discarding => poa.manager().discard_requests(false).unwrap(),
                _ => poa.manager().deactivate(false, false).unwrap(),
            }
            for (way, call) in calls {
                match state {
                    ManagerState::Active => assert_eq!(call.join().unwrap().unwrap(), 1, "{way:?}"),
                    ManagerState::Discarding => assert_eq!(refused(call.join().unwrap()), DISCARDED, "{way:?}"),
                    _ => assert_eq!(refused(call.join().unwrap()), REFUSED, "{way:?}"),
                }
            }
            assert_eq!(located.join().unwrap().is_ok(), state == ManagerState::Active);
        });
        // The call fails if the manager is inactive, so the result is ignored.
        let _ = poa.manager().hold_requests(false);
    }
}

#[test]
fn a_held_call_ends_at_its_deadline() {
    let world = World::new();
    let poa = own_manager(&world, "holding", USER);
    let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
    let policies = CallPolicies { timeout: Some(Duration::from_millis(50).into()), ..CallPolicies::NONE };
    for object in [object.with_policies(policies), world.remote(&object).with_policies(policies)] {
        let start = Instant::now();
        assert_eq!(call_marshalled(&object).unwrap_err().kind(), Kind::Timeout);
        // The time-out of 50 ms has ended the call, and not the ORB's time-out of two minutes.
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn held_requests_run_in_the_order_of_their_arrival() {
    // With one thread, requests run in the order in which they are released.
    let world = World::with_threads(1);
    let poa = own_manager(&world, "holding", PoaPolicies { id_uniqueness: IdUniqueness::Multiple, ..USER });
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..20 {
        let order = Arc::clone(&order);
        let noted = servant(move || {
            order.lock().unwrap().push(number);
            Ok(number)
        });
        poa.activate_object_with_id(&ObjectId::from(&*number.to_string()), &noted).unwrap();
    }
    // On one connection the order of arrival is known.
    let mut stream = connect(&world);
    let objects = (0..20).map(|number| poa.id_to_reference(&ObjectId::from(&*number.to_string())).unwrap());
    stream.write_all(&objects.zip(0..).flat_map(|(object, id)| request(&object, id)).collect::<Vec<u8>>()).unwrap();
    a_while();
    assert!(order.lock().unwrap().is_empty());
    poa.manager().activate().unwrap();
    eventually(|| order.lock().unwrap().len() == 20);
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[test]
fn requests_are_held_in_every_dispatch_architecture() {
    for dispatch in [
        Dispatch::Reactive,
        Dispatch::ThreadPerConnection { max_threads: 8 },
        Dispatch::LeaderFollowers { threads: 2 },
        Dispatch::HalfSyncHalfAsync { threads: 2, max_queued: 8 },
    ] {
        let pool = PoolConfig::default().dispatch(dispatch);
        let server = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
        let client = Orb::builder().call_timeout(Duration::from_secs(60)).build().unwrap();
        let root = server.root_poa();
        let object = root.activate(&number(1)).unwrap();
        let object = client.string_to_object(&object.to_string()).unwrap().unwrap();
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| call_marshalled(&object))).collect();
            a_while();
            assert!(calls.iter().all(|call| !call.is_finished()), "{dispatch:?}");
            root.manager().activate().unwrap();
            for call in calls {
                assert_eq!(call.join().unwrap().unwrap(), 1, "{dispatch:?}");
            }
        });
    }
}

fn request(object: &ObjectRef, id: u32) -> Vec<u8> {
    let profile = object.ior().profiles.last().unwrap().parse().unwrap();
    let mut body = vec![0, 0, 0, 0];
    body.extend(id.to_le_bytes());
    body.extend([1, 0, 0, 0]);
    body.extend((profile.object_key.len() as u32).to_le_bytes());
    body.extend(profile.object_key);
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend(6u32.to_le_bytes());
    body.extend(b"value\0\0\0");
    body.extend(0u32.to_le_bytes());
    let mut message = b"GIOP\x01\x00\x01\x00".to_vec();
    message.extend((body.len() as u32).to_le_bytes());
    message.extend(body);
    message
}

fn connect(world: &World) -> std::net::TcpStream {
    let port: u16 = world.server.endpoints()[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
    let stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn a_held_oneway_that_waits_for_the_server_is_answered_once_and_runs() {
    let world = World::new();
    let poa = own_manager(&world, "holding", USER);
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let noted = servant(move || {
        runs.store(true, Ordering::SeqCst);
        Ok(1)
    });
    poa.activate_object_with_id(&"x".into(), &noted).unwrap();
    let object = poa.id_to_reference(&"x".into()).unwrap();
    let profile = object.ior().profiles.last().unwrap().parse().unwrap();
    // A GIOP 1.2 request with SYNC_WITH_SERVER for an object key.
    let mut body = vec![9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    body.extend((profile.object_key.len() as u32).to_le_bytes());
    body.extend(profile.object_key);
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend(b"\x06\0\0\0value\0\0\0\0\0\0\0");
    let mut message = b"GIOP\x01\x02\x01\x00".to_vec();
    message.extend((body.len() as u32).to_le_bytes());
    message.extend(body);
    let mut stream = connect(&world);
    stream.write_all(&message).unwrap();
    let mut reply = [0; 24];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!((reply[7], reply[12], reply[16]), (1, 9, 0), "a reply without exception");
    assert!(!ran.load(Ordering::SeqCst));
    poa.manager().activate().unwrap();
    eventually(|| ran.load(Ordering::SeqCst));
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(stream.read(&mut reply).is_err(), "the server must send only one reply");
}

#[test]
fn held_requests_are_bounded() {
    let world = World::new();
    let poa = own_manager(&world, "holding", USER);
    let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
    let mut stream = connect(&world);
    stream.write_all(&(0..1025).flat_map(|id| request(&object, id)).collect::<Vec<u8>>()).unwrap();
    let mut header = [0; 12];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(header[7], 1, "a reply");
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(text.contains("IDL:omg.org/CORBA/TRANSIENT:1.0"), "{text}");
    let mut more = [0];
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(stream.read(&mut more).is_err(), "only one request must be turned away");
}

#[test]
fn waiting_for_completion_waits_for_running_requests() {
    let world = World::new();
    type Change = fn(&PoaManager) -> Result<(), PoaError>;
    let changes: [Change; 3] = [
        |manager| manager.hold_requests(true),
        |manager| manager.discard_requests(true),
        |manager| manager.deactivate(true, true),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for way in WAYS {
            let poa = own_manager(&world, &format!("{way:?}{number}"), USER);
            let slow = Slow::default();
            poa.activate_object_with_id(&"x".into(), &slow.servant()).unwrap();
            let object = poa.id_to_reference(&"x".into()).unwrap();
            poa.manager().activate().unwrap();
            std::thread::scope(|scope| {
                let call = later(scope, way, &world, &object);
                slow.wait_entered(1);
                let waiter = scope.spawn(|| change(poa.manager()));
                a_while();
                assert!(!waiter.is_finished(), "{way:?}");
                slow.go_on();
                waiter.join().unwrap().unwrap();
                assert_eq!(call.join().unwrap().unwrap(), 1);
            });
        }
    }
}

#[test]
fn waiting_for_completion_ends_when_the_state_changes() {
    let world = World::new();
    let poa = own_manager(&world, "a", USER);
    let slow = Slow::default();
    poa.activate_object_with_id(&"x".into(), &slow.servant()).unwrap();
    let object = poa.id_to_reference(&"x".into()).unwrap();
    poa.manager().activate().unwrap();
    std::thread::scope(|scope| {
        let call = later(scope, Way::Remote, &world, &object);
        slow.wait_entered(1);
        let waiter = scope.spawn(|| poa.manager().hold_requests(true));
        a_while();
        assert!(!waiter.is_finished());
        poa.manager().activate().unwrap();
        waiter.join().unwrap().unwrap();
        assert!(!call.is_finished());
        slow.go_on();
        assert_eq!(call.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn an_upcall_cannot_wait_for_completion() {
    let world = Arc::new(World::new());
    let other = Arc::new(World::new());
    let poa = own_manager(&world, "a", USER);
    let (inner, outer) = (poa.clone(), Arc::downgrade(&world));
    let elsewhere = Arc::clone(&other);
    poa.activate_object_with_id(
        &"x".into(),
        &servant(move || {
            let manager = inner.manager();
            assert_eq!(refused_by(manager.hold_requests(true)), UPCALL);
            assert_eq!(refused_by(manager.discard_requests(true)), UPCALL);
            assert_eq!(refused_by(manager.deactivate(true, true)), UPCALL);
            assert_eq!(refused_by(inner.destroy(true, true)), UPCALL);
            assert_eq!(manager.state(), ManagerState::Active);
            let world = outer.upgrade().unwrap();
            let shutdown = world.server.shutdown(true).unwrap_err();
            assert_eq!((shutdown.kind(), shutdown.minor() & 0xfff), UPCALL);
            // The running upcall belongs to another ORB, so the wait is permitted.
            elsewhere.root.manager().hold_requests(true).unwrap();
            elsewhere.root.manager().activate().unwrap();
            Ok(1)
        }),
    )
    .unwrap();
    poa.manager().activate().unwrap();
    let object = poa.id_to_reference(&"x".into()).unwrap();
    for way in WAYS {
        assert_eq!(world.call(way, &object).unwrap(), 1, "{way:?}");
    }
}

#[derive(Default)]
struct Notes(Mutex<Vec<(ObjectId, bool, bool)>>);

impl ServantActivator for Notes {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        Ok(Some(number(1)))
    }
    fn etherealize(&self, id: &ObjectId, _: &Poa, _: &Servant, cleanup: bool, remaining: bool) {
        self.0.lock().unwrap().push((id.clone(), cleanup, remaining));
    }
}

#[test]
fn deactivation_etherealizes_on_demand_and_only_when_requests_are_done() {
    let world = World::new();
    for (name, etherealize, wait) in [("a", true, true), ("b", true, false), ("c", false, true)] {
        let poa = own_manager(&world, name, ACTIVATOR);
        let notes = Arc::new(Notes::default());
        poa.set_servant_manager(ServantManager::Activator(Arc::clone(&notes) as _)).unwrap();
        poa.manager().activate().unwrap();
        let idle = poa.create_reference_with_id(&"idle".into(), VALUE).unwrap();
        assert_eq!(world.call(Way::Remote, &idle).unwrap(), 1);
        let slow = Slow::default();
        let dropped = Arc::new(AtomicBool::new(false));
        let inside = OnDrop(Arc::clone(&dropped));
        let stay = slow.clone();
        poa.activate_object_with_id(
            &"busy".into(),
            &servant(move || {
                let _inside = &inside;
                stay.stay();
                Ok(2)
            }),
        )
        .unwrap();
        let busy = poa.id_to_reference(&"busy".into()).unwrap();
        std::thread::scope(|scope| {
            let call = later(scope, Way::Remote, &world, &busy);
            slow.wait_entered(1);
            let deactivation = scope.spawn(|| poa.manager().deactivate(etherealize, wait));
            a_while();
            assert_eq!(deactivation.is_finished(), !wait);
            assert!(notes.0.lock().unwrap().iter().all(|(id, ..)| *id == "idle".into()));
            assert!(!dropped.load(Ordering::SeqCst));
            slow.go_on();
            assert_eq!(call.join().unwrap().unwrap(), 2);
            deactivation.join().unwrap().unwrap();
            eventually(|| dropped.load(Ordering::SeqCst));
        });
        let mut noted = notes.0.lock().unwrap().clone();
        noted.sort();
        let both = vec![("busy".into(), true, false), ("idle".into(), true, false)];
        assert_eq!(noted, if etherealize { both } else { Vec::new() });
    }
}

/// From the second call on, a collocated reference finds its object without a look-up of the POA.
/// The waits must include these calls as well.
#[test]
fn waits_for_completion_include_later_collocated_calls() {
    type End = fn(&Poa, &ObjectId) -> Result<(), PoaError>;
    let ends: [(End, bool, Option<Kind>); 4] = [
        (|poa, _| poa.manager().discard_requests(true), true, Some(Kind::Transient)),
        (|poa, _| poa.manager().hold_requests(true).and_then(|()| poa.manager().activate()), true, None),
        (|poa, _| poa.destroy(true, true), true, Some(Kind::ObjectNotExist)),
        (|poa, object| poa.deactivate_object(object), false, Some(Kind::ObjectNotExist)),
    ];
    let world = World::new();
    for (number, (end, waits, then)) in ends.into_iter().enumerate() {
        let poa = own_manager(&world, &number.to_string(), RETAINING);
        poa.manager().activate().unwrap();
        let (slow, stays, dropped) = (Slow::default(), Arc::new(AtomicBool::new(false)), Arc::default());
        let (stay, inside) = ((slow.clone(), Arc::clone(&stays)), OnDrop(Arc::clone(&dropped)));
        let servant = servant(move || {
            let _inside = &inside;
            if stay.1.load(Ordering::SeqCst) {
                stay.0.stay();
            }
            Ok(1)
        });
        let object = poa.activate_object(&servant).unwrap();
        drop(servant);
        let reference = poa.id_to_reference(&object).unwrap();
        assert_eq!(call(&reference).unwrap(), 1);
        stays.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let calls = [(); 2].map(|()| scope.spawn(|| call(&reference)));
            slow.wait_entered(2);
            let ended = scope.spawn(|| end(&poa, &object));
            a_while();
            assert_eq!(ended.is_finished(), !waits);
            assert!(!dropped.load(Ordering::SeqCst));
            slow.go_on();
            calls.into_iter().for_each(|call| assert_eq!(call.join().unwrap().unwrap(), 1));
            ended.join().unwrap().unwrap();
        });
        assert_eq!(call(&reference).map_err(|exception| exception.kind()).err(), then);
        eventually(|| dropped.load(Ordering::SeqCst) == (then == Some(Kind::ObjectNotExist)));
    }
}

struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn toggling_under_load_neither_loses_nor_repeats_a_request() {
    let world = World::new();
    let poa = own_manager(&world, "a", USER);
    let runs = Arc::new(AtomicI32::new(0));
    let counter = Arc::clone(&runs);
    poa.activate_object_with_id(&"x".into(), &servant(move || Ok(counter.fetch_add(1, Ordering::SeqCst)))).unwrap();
    let object = poa.id_to_reference(&"x".into()).unwrap();
    poa.manager().activate().unwrap();
    let stop = AtomicBool::new(false);
    let answered = AtomicI32::new(0);
    std::thread::scope(|scope| {
        for way in WAYS {
            let (world, object, stop, answered) = (&world, &object, &stop, &answered);
            scope.spawn(move || {
                let object = if way == Way::Remote { world.remote(object) } else { object.clone() };
                while !stop.load(Ordering::SeqCst) {
                    let answer = if way == Way::Direct { call(&object) } else { call_marshalled(&object) };
                    answer.unwrap();
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..300 {
            poa.manager().hold_requests(true).unwrap();
            let before = runs.load(Ordering::SeqCst);
            std::thread::yield_now();
            assert_eq!(runs.load(Ordering::SeqCst), before, "nothing runs while the manager holds");
            poa.manager().activate().unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(runs.load(Ordering::SeqCst), answered.load(Ordering::SeqCst));
    assert!(answered.load(Ordering::SeqCst) > 300);
}
