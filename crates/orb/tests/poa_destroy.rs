//! Tests of the tree of POAs: creation, adapter activators, destruction and persistence (CORBA
//! 3.0.3, section 11.3.8).
#![allow(clippy::disallowed_types, reason = "a test may lock as it likes")]

mod poa;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use corelane::mapping::Operation;
use corelane::poa::*;
use corelane::rt::{InvalidThreadpool, LanesConfig, RtPolicies, ThreadpoolConfig};
use corelane::{Completion, ObjectRef, Orb, Servant, SystemException, SystemExceptionKind as Kind};
use poa::*;

const ENDING: (Kind, u32, Completion) = (Kind::Transient, 4, Completion::No);

#[test]
fn child_poas_have_unique_names() {
    let world = World::new();
    let a = world.poa("a", USER);
    let empty = world.poa("", USER);
    let inner = a.create_poa("a", None, RETAINING).unwrap();
    assert_eq!(world.root.create_poa("a", None, USER).unwrap_err(), PoaError::AdapterAlreadyExists);
    assert_eq!(refused_by(world.root.create_poa("n\0ul", None, USER)).0, Kind::BadParam);
    assert_eq!((inner.name(), inner.parent().unwrap(), world.root.parent()), ("a", a.clone(), None));
    assert_eq!(world.root.name(), "RootPOA");
    assert_eq!(world.root.children(), [empty.clone(), a.clone()]);
    assert_eq!(world.root.find_poa("a", false).unwrap(), a);
    assert_eq!(world.root.find_poa("", true).unwrap(), empty);
    for activate in [false, true] {
        assert_eq!(world.root.find_poa("b", activate).unwrap_err(), PoaError::AdapterNonExistent);
    }
    let mut ids = [world.root.id(), a.id(), empty.id(), inner.id()];
    ids.sort();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(inner.policies(), &RETAINING);
}

#[test]
fn conflicting_policies_are_refused_with_their_index() {
    let world = World::new();
    let cases = [
        (PoaPolicies { servant_retention: ServantRetention::NonRetain, ..USER }, 6),
        (PoaPolicies { request_processing: RequestProcessing::DefaultServant, ..USER }, 6),
        (PoaPolicies { implicit_activation: ImplicitActivation::Implicit, ..USER }, 4),
        (
            PoaPolicies {
                implicit_activation: ImplicitActivation::Implicit,
                id_assignment: IdAssignment::System,
                ..LOCATOR
            },
            4,
        ),
    ];
    for (policies, index) in cases {
        assert_eq!(world.root.create_poa("a", None, policies).unwrap_err(), PoaError::InvalidPolicy(index));
    }
    assert!(world.root.children().is_empty());
}

#[test]
fn operations_on_a_destroyed_poa_raise_object_not_exist() {
    let world = World::new();
    let poa = world.poa("a", PoaPolicies { id_uniqueness: IdUniqueness::Unique, ..RETAINING });
    let default = world.poa("d", DEFAULT);
    let managed = world.poa("m", ACTIVATOR);
    let servant = number(1);
    let object = poa.activate(&servant).unwrap();
    let id = poa.reference_to_id(&object).unwrap();
    for poa in [&poa, &default, &managed] {
        poa.destroy(true, true).unwrap();
        poa.destroy(true, true).unwrap();
    }
    assert_eq!(refused_by(poa.create_poa("b", None, USER)), NO_ADAPTER);
    assert_eq!(refused_by(poa.find_poa("b", true)), NO_ADAPTER);
    assert_eq!(refused_by(poa.activate_object(&servant)), NO_ADAPTER);
    assert_eq!(refused_by(poa.activate_object_with_id(&id, &servant)), NO_ADAPTER);
    assert_eq!(refused_by(poa.deactivate_object(&id)), NO_ADAPTER);
    assert_eq!(refused_by(poa.create_reference(VALUE)), NO_ADAPTER);
    assert_eq!(refused_by(poa.create_reference_with_id(&id, VALUE)), NO_ADAPTER);
    assert_eq!(refused_by(poa.servant_to_id(&servant)), NO_ADAPTER);
    assert_eq!(refused_by(poa.servant_to_reference(&servant)), NO_ADAPTER);
    assert_eq!(refused_by(poa.reference_to_servant(&object)), NO_ADAPTER);
    assert_eq!(refused_by(poa.reference_to_id(&object)), NO_ADAPTER);
    assert_eq!(refused_by(poa.id_to_servant(&id)), NO_ADAPTER);
    assert_eq!(refused_by(poa.id_to_reference(&id)), NO_ADAPTER);
    assert_eq!(refused_by(default.servant()), NO_ADAPTER);
    assert_eq!(refused_by(default.set_servant(&servant)), NO_ADAPTER);
    assert_eq!(refused_by(managed.servant_manager()), NO_ADAPTER);
    let manager = ServantManager::Activator(Arc::new(Never));
    assert_eq!(refused_by(managed.set_servant_manager(manager)), NO_ADAPTER);
    for way in WAYS {
        assert_eq!(refused(world.call(way, &object)), NO_OBJECT, "{way:?}");
    }
}

struct Never;

impl ServantActivator for Never {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        Err(ServantManagerError::no_such_object())
    }
    fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {}
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl ServantActivator for Notes {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        Ok(Some(number(1)))
    }
    fn etherealize(&self, id: &ObjectId, poa: &Poa, servant: &Servant, cleanup: bool, remaining: bool) {
        self.0.lock().unwrap().push(format!("{} {id:?} {cleanup} {remaining}", poa.name()));
        if cleanup {
            let refused = poa.create_poa("late", None, USER).unwrap_err();
            assert!(matches!(refused, PoaError::System(e) if (e.kind(), e.minor() & 0xfff) == (Kind::BadInvOrder, 17)));
            assert_eq!(refused_by(poa.activate_object_with_id(&"late".into(), servant)), NO_ADAPTER);
        }
    }
}

#[test]
fn destruction_while_requests_run() {
    let world = World::new();
    for way in WAYS {
        let parent = world.poa("parent", USER);
        let child = parent.create_poa("child", Some(world.root.manager()), ACTIVATOR).unwrap();
        let notes = Arc::new(Notes::default());
        child.set_servant_manager(ServantManager::Activator(Arc::clone(&notes) as _)).unwrap();
        let slow = Slow::default();
        child.activate_object_with_id(&"busy".into(), &slow.servant()).unwrap();
        child.activate_object_with_id(&"idle".into(), &number(2)).unwrap();
        parent.activate_object_with_id(&"top".into(), &number(3)).unwrap();
        let busy = child.id_to_reference(&"busy".into()).unwrap();
        let others = [child.id_to_reference(&"idle".into()).unwrap(), parent.id_to_reference(&"top".into()).unwrap()];
        std::thread::scope(|scope| {
            let call = scope.spawn(|| world.call(way, &busy));
            slow.wait_entered(1);
            parent.destroy(true, false).unwrap();
            let waiter = scope.spawn(|| parent.destroy(false, true));
            a_while();
            assert!(!waiter.is_finished() && notes.0.lock().unwrap().is_empty());
            assert_eq!(world.root.find_poa("parent", false).unwrap_err(), PoaError::AdapterNonExistent);
            assert!(world.root.children().is_empty());
            assert_eq!(world.root.create_poa("parent", None, USER).unwrap_err(), PoaError::AdapterAlreadyExists);
            assert_eq!(refused_by(parent.create_poa("x", None, USER)), (Kind::BadInvOrder, 17));
            for object in &others {
                for way in WAYS {
                    assert_eq!(refused(world.call(way, object)), ENDING, "{way:?}");
                }
                assert_eq!(refused(world.remote(object).validate_connection()), ENDING);
            }
            slow.go_on();
            assert_eq!(call.join().unwrap().unwrap(), 1, "a running request ends well");
            waiter.join().unwrap().unwrap();
        });
        let mut noted = notes.0.lock().unwrap().clone();
        noted.sort();
        assert_eq!(noted, ["child ObjectId(busy) true false", "child ObjectId(idle) true false"]);
        for object in &others {
            assert_eq!(refused(world.call(way, object)), NO_OBJECT);
        }
        world.no_panics();
        world.poa("parent", USER).destroy(true, true).unwrap();
    }
}

#[test]
fn destruction_without_etherealization_drops_servants() {
    let world = World::new();
    let poa = world.poa("a", ACTIVATOR);
    let notes = Arc::new(Notes::default());
    poa.set_servant_manager(ServantManager::Activator(Arc::clone(&notes) as _)).unwrap();
    let counted = Arc::new(());
    let own = Arc::clone(&counted);
    poa.activate_object_with_id(&"x".into(), &servant(move || Ok(Arc::strong_count(&own) as i32))).unwrap();
    assert_eq!(Arc::strong_count(&counted), 2);
    poa.destroy(false, true).unwrap();
    assert_eq!(Arc::strong_count(&counted), 1);
    assert!(notes.0.lock().unwrap().is_empty());
}

#[test]
fn held_requests_are_refused_when_their_poa_is_destroyed() {
    let world = World::new();
    let poa = world.root.create_poa("holding", None, USER).unwrap();
    poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
    let sibling = world.root.create_poa("sibling", Some(poa.manager()), USER).unwrap();
    sibling.activate_object_with_id(&"x".into(), &number(2)).unwrap();
    let [object, other] = [&poa, &sibling].map(|poa| poa.id_to_reference(&"x".into()).unwrap());
    std::thread::scope(|scope| {
        let calls: Vec<_> = WAYS
            .into_iter()
            .map(|way| {
                (
                    way,
                    scope.spawn({
                        let (w, o) = (&world, &object);
                        move || w.call(way, o)
                    }),
                )
            })
            .collect();
        let unaffected = scope.spawn(|| world.call(Way::Remote, &other));
        a_while();
        assert!(calls.iter().all(|(_, call)| !call.is_finished()));
        poa.destroy(true, true).unwrap();
        for (way, call) in calls {
            let answer = refused(call.join().unwrap());
            // The destruction may already be complete when the request looks for the POA again.
            assert!(answer == ENDING || answer == NO_OBJECT, "{way:?} {answer:?}");
        }
        a_while();
        assert!(!unaffected.is_finished(), "requests of another POA must still be held");
        sibling.manager().activate().unwrap();
        assert_eq!(unaffected.join().unwrap().unwrap(), 2);
    });
}

#[test]
fn an_upcall_may_destroy_its_own_poa() {
    let world = World::new();
    for (number, way) in WAYS.into_iter().enumerate() {
        let poa = world.poa(&format!("a{number}"), ACTIVATOR);
        let notes = Arc::new(Notes::default());
        poa.set_servant_manager(ServantManager::Activator(Arc::clone(&notes) as _)).unwrap();
        let own = poa.clone();
        let watched = Arc::clone(&notes);
        poa.activate_object_with_id(
            &"x".into(),
            &servant(move || {
                own.destroy(true, false).unwrap();
                let current = corelane::current().unwrap();
                assert_eq!((&current.poa, current.object_id), (&own, "x".into()));
                assert_eq!(watched.0.lock().unwrap().len(), 0, "not before the request is done");
                Ok(5)
            }),
        )
        .unwrap();
        let object = poa.id_to_reference(&"x".into()).unwrap();
        assert_eq!(world.call(way, &object).unwrap(), 5);
        poa.destroy(true, true).unwrap();
        assert_eq!(*notes.0.lock().unwrap(), [format!("a{number} ObjectId(x) true false")]);
    }
}

#[test]
fn an_etherealizing_servant_manager_may_destroy_the_poa() {
    struct Destroys;
    impl ServantActivator for Destroys {
        fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
            Ok(Some(number(1)))
        }
        fn etherealize(&self, _: &ObjectId, poa: &Poa, _: &Servant, _: bool, _: bool) {
            assert_eq!(refused_by(poa.destroy(true, true)), UPCALL);
            poa.destroy(true, false).unwrap();
        }
    }
    let world = World::new();
    let poa = world.poa("a", ACTIVATOR);
    poa.set_servant_manager(ServantManager::Activator(Arc::new(Destroys))).unwrap();
    poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
    poa.deactivate_object(&"x".into()).unwrap();
    poa.destroy(true, true).unwrap();
    world.poa("a", USER);
    world.no_panics();
}

#[test]
fn recreated_poa_serves_old_persistent_references_and_no_transient_ones() {
    let world = World::new();
    for policies in [USER, RETAINING, PERSISTENT] {
        let activate = |poa: &Poa, answer| {
            if policies.id_assignment == IdAssignment::System {
                return poa.activate(&number(answer)).unwrap();
            }
            poa.activate_object_with_id(&"x".into(), &number(answer)).unwrap();
            poa.id_to_reference(&"x".into()).unwrap()
        };
        let first = world.poa("again", policies);
        let old = activate(&first, 1);
        assert_eq!(world.call(Way::Remote, &old).unwrap(), 1);
        first.destroy(true, true).unwrap();
        let second = world.poa("again", policies);
        let new = activate(&second, 2);
        for way in WAYS {
            assert_eq!(world.call(way, &new).unwrap(), 2, "{way:?}");
            match world.call(way, &old) {
                Ok(answer) => assert_eq!((policies.lifespan, answer), (Lifespan::Persistent, 2), "{way:?}"),
                Err(exception) => {
                    assert_eq!((policies.lifespan, says(&exception)), (Lifespan::Transient, NO_OBJECT), "{way:?}");
                }
            }
        }
        assert_eq!(second.reference_to_id(&old).is_ok(), policies.lifespan == Lifespan::Persistent);
        assert_ne!(first.id(), second.id());
        second.destroy(true, true).unwrap();
    }
}

#[test]
fn persistent_references_outlive_the_orb() {
    let system = PoaPolicies { id_assignment: IdAssignment::System, ..PERSISTENT };
    // No other test uses this address, so the port is free when the second ORB starts.
    let address = std::net::TcpListener::bind("127.0.52.1:0").unwrap().local_addr().unwrap();
    let client = Orb::new().unwrap();
    let start = || {
        let orb = Orb::builder().listen(format!("tcp:{address}")).build().unwrap();
        orb.root_poa().manager().activate().unwrap();
        let outer = orb.root_poa().create_poa("outer", Some(orb.root_poa().manager()), USER).unwrap();
        let inner = outer.create_poa("inner", Some(orb.root_poa().manager()), PERSISTENT).unwrap();
        let system = outer.create_poa("system", Some(orb.root_poa().manager()), system).unwrap();
        (orb, inner, system)
    };
    let (orb, inner, system) = start();
    inner.activate_object_with_id(&"x".into(), &number(1)).unwrap();
    let text = inner.id_to_reference(&"x".into()).unwrap().to_string();
    let (first, first_id) = {
        let first = system.activate(&number(10)).unwrap();
        (first.to_string(), system.reference_to_id(&first).unwrap())
    };
    let object = client.string_to_object(&text).unwrap().unwrap();
    assert_eq!(call_marshalled(&object).unwrap(), 1);
    drop(orb);
    let (_orb, inner, system) = start();
    inner.activate_object_with_id(&"x".into(), &number(2)).unwrap();
    assert_eq!(inner.id_to_reference(&"x".into()).unwrap().to_string(), text, "stable to the octet");
    assert_eq!(call_marshalled(&object).unwrap(), 2);
    let new = system.activate(&number(20)).unwrap();
    assert_ne!(system.reference_to_id(&new).unwrap(), first_id, "a system id must not repeat in a later run");
    system.activate_object_with_id(&first_id, &number(11)).unwrap();
    assert_eq!(call_marshalled(&client.string_to_object(&first).unwrap().unwrap()).unwrap(), 11);
}

#[derive(Default)]
struct Maker {
    asked: AtomicUsize,
    slow: Option<Slow>,
    answer: Mutex<Option<Result<bool, SystemException>>>,
}

impl AdapterActivator for Maker {
    fn unknown_adapter(&self, parent: &Poa, name: &str) -> Result<bool, SystemException> {
        assert!(corelane::current().is_none());
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(answer) = self.answer.lock().unwrap().clone() {
            return answer;
        }
        assert_eq!(parent.find_poa(name, true).unwrap_err(), PoaError::AdapterNonExistent, "not asked twice");
        let poa = parent.create_poa(name, Some(parent.manager()), PERSISTENT).unwrap();
        assert_eq!(parent.find_poa(name, true).unwrap(), poa);
        if let Some(slow) = &self.slow {
            slow.stay();
        }
        poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
        poa.set_adapter_activator(parent.adapter_activator());
        Ok(true)
    }
}

/// Returns a reference to an object of a destroyed POA. The POA's ancestors below the root are
/// destroyed too.
fn orphan(world: &World, names: &[&str]) -> ObjectRef {
    let mut poa = world.root.clone();
    for name in names {
        poa = poa.create_poa(name, Some(world.root.manager()), PERSISTENT).unwrap();
    }
    let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
    world.root.find_poa(names[0], false).unwrap().destroy(true, true).unwrap();
    object
}

#[test]
fn adapter_activators_make_the_poas_that_a_request_needs() {
    let world = World::new();
    for (number, way) in WAYS.into_iter().enumerate() {
        let names = [&*format!("a{number}"), "b", "c"];
        let object = orphan(&world, &names);
        world.root.set_adapter_activator(None);
        assert_eq!(refused(world.call(way, &object)), NO_OBJECT);
        let maker = Arc::new(Maker::default());
        world.root.set_adapter_activator(Some(Arc::clone(&maker) as _));
        assert_eq!(world.call(way, &object).unwrap(), 1, "{way:?}");
        assert_eq!(world.call(way, &object).unwrap(), 1, "{way:?}");
        assert_eq!(maker.asked.load(Ordering::SeqCst), 3);
        let made = world.root.find_poa(names[0], false).unwrap();
        assert_eq!(made.find_poa("b", false).unwrap().find_poa("new", true).unwrap().name(), "new");
        assert_eq!(maker.asked.load(Ordering::SeqCst), 4);
    }
}

#[test]
fn the_result_of_an_adapter_activator_decides_the_exception() {
    let world = World::new();
    let object = orphan(&world, &["a"]);
    let transient = {
        let poa = world.poa("t", USER);
        let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
        poa.destroy(true, true).unwrap();
        object
    };
    let maker = Arc::new(Maker::default());
    world.root.set_adapter_activator(Some(Arc::clone(&maker) as _));
    let raised = SystemException::new(Kind::NoMemory, 7, Completion::Maybe);
    for (answer, expected) in
        [(Ok(false), NO_OBJECT), (Ok(true), NO_OBJECT), (Err(raised), (Kind::ObjAdapter, 1, Completion::No))]
    {
        *maker.answer.lock().unwrap() = Some(answer.clone());
        for way in WAYS {
            assert_eq!(refused(world.call(way, &object)), expected, "{way:?} {answer:?}");
        }
        match world.root.find_poa("a", true).unwrap_err() {
            PoaError::AdapterNonExistent => assert!(answer.is_ok()),
            PoaError::System(exception) => assert_eq!(says(&exception), (Kind::ObjAdapter, 1, Completion::No)),
            other => panic!("{other:?}"),
        }
    }
    let asked = maker.asked.load(Ordering::SeqCst);
    assert_eq!(asked, 12);
    assert_eq!(refused(world.call(Way::Remote, &transient)), NO_OBJECT);
    assert_eq!(maker.asked.load(Ordering::SeqCst), asked, "never asked for a transient object");
    world.root.manager().discard_requests(false).unwrap();
    assert_eq!(refused(world.call(Way::Remote, &object)), (Kind::Transient, 1, Completion::No));
    world.root.manager().deactivate(true, true).unwrap();
    assert_eq!(refused(world.call(Way::Remote, &object)), (Kind::ObjAdapter, 1, Completion::No));
    assert_eq!(maker.asked.load(Ordering::SeqCst), asked);
}

#[test]
fn requests_wait_until_the_adapter_activator_returns() {
    let world = World::new();
    let object = orphan(&world, &["a"]);
    let slow = Slow::default();
    let maker = Arc::new(Maker { slow: Some(slow.clone()), ..Maker::default() });
    world.root.set_adapter_activator(Some(Arc::clone(&maker) as _));
    std::thread::scope(|scope| {
        let call = |way| {
            let (world, object) = (&world, &object);
            scope.spawn(move || world.call(way, object))
        };
        let first = call(Way::Marshalled);
        slow.wait_entered(1);
        let calls: Vec<_> =
            [Way::Remote, Way::Remote, Way::Remote, Way::Remote, Way::Remote, Way::Direct].map(call).into();
        let find = scope.spawn(|| world.root.find_poa("a", true));
        a_while();
        assert!(!find.is_finished() && calls.iter().all(|call| !call.is_finished()));
        // Five waiting calls occupy none of the server's four threads.
        let free = world.root.activate(&number(9)).unwrap();
        assert_eq!(world.call(Way::Remote, &free).unwrap(), 9);
        slow.go_on();
        for call in calls.into_iter().chain([first]) {
            assert_eq!(call.join().unwrap().unwrap(), 1);
        }
        find.join().unwrap().unwrap();
    });
    assert_eq!(maker.asked.load(Ordering::SeqCst), 1);
}

#[test]
fn shutdown_lets_running_requests_answer() {
    for round in 0..20 {
        let world = World::new();
        let slow = Slow::default();
        let object = world.root.activate(&slow.servant()).unwrap();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| world.call(Way::Remote, &object));
            slow.wait_entered(1);
            let shutdown = scope.spawn(|| world.server.shutdown(true));
            if round % 2 == 0 {
                a_while();
            }
            assert!(!shutdown.is_finished());
            slow.go_on();
            assert_eq!(call.join().unwrap().unwrap(), 1);
            shutdown.join().unwrap().unwrap();
        });
        assert_eq!(slow.entered(), 1);
    }
}

#[test]
fn shutdown_destroys_all_poas() {
    let world = World::new();
    let poa = world.poa("a", ACTIVATOR);
    let notes = Arc::new(Notes::default());
    poa.set_servant_manager(ServantManager::Activator(Arc::clone(&notes) as _)).unwrap();
    poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
    let object = world.root.activate(&number(1)).unwrap();
    world.server.shutdown(true).unwrap();
    assert_eq!(*notes.0.lock().unwrap(), ["a ObjectId(x) true false"]);
    assert_eq!(refused_by(world.root.activate_object(&number(2))), NO_ADAPTER);
    for way in [Way::Marshalled, Way::Direct] {
        assert_eq!(refused(world.call(way, &object)), (Kind::BadInvOrder, 4, Completion::No), "{way:?}");
    }
    let later = world.server.string_to_object("corbaloc::127.0.0.1:1/x").unwrap_err();
    assert_eq!(says(&later), (Kind::BadInvOrder, 4, Completion::No));
}

#[test]
fn every_operation_fails_after_shutdown() {
    const ENDED: (Kind, u32, Completion) = (Kind::BadInvOrder, 4, Completion::No);
    let world = World::new();
    let (orb, root) = (&world.server, &world.root);
    let object = root.activate(&number(1)).unwrap();
    let typed = object.to_string();
    let remote = world.remote(&object);
    let (rt, managers) = (orb.real_time(), root.manager_factory());
    let holding = managers.create_manager("holding").unwrap();
    let (mutex, _) = rt.create_named_mutex("m").unwrap();
    let pool = rt.create_threadpool(&ThreadpoolConfig::default()).unwrap();
    orb.register_initial_reference("Known", &object).unwrap();
    orb.shutdown(true).unwrap();
    world.client.shutdown(true).unwrap();

    let of_the_orb = [
        ("string_to_object", orb.string_to_object(&typed).map(drop)),
        ("string_to_reference", orb.string_to_reference::<ObjectRef>(&typed).map(drop)),
        ("bind_key", orb.bind_corbaloc_key("key", &object)),
        ("register_initial_reference", orb.register_initial_reference("Name", &object)),
        ("resolve_initial_references", orb.resolve_initial_references("Known").map(drop)),
        ("RtOrb::set_policies", rt.set_policies(RtPolicies::default())),
        ("RtOrb::current", rt.current().map(drop)),
        ("RtOrb::create_named_mutex", rt.create_named_mutex("n").map(drop)),
        ("RtOrb::open_named_mutex", rt.open_named_mutex("m").map(drop)),
        ("RtOrb::destroy_mutex", rt.destroy_mutex(&mutex)),
        ("RtOrb::create_threadpool", rt.create_threadpool(&ThreadpoolConfig::default()).map(drop)),
        ("RtOrb::create_threadpool_with_lanes", rt.create_threadpool_with_lanes(&LanesConfig::default()).map(drop)),
    ];
    for (operation, answer) in of_the_orb {
        assert_eq!(refused(answer), ENDED, "{operation}");
    }
    match rt.destroy_threadpool(pool).unwrap_err() {
        InvalidThreadpool::System(exception) => assert_eq!(says(&exception), ENDED),
        other => panic!("{other:?}"),
    }
    assert_eq!(refused_by(managers.create_manager("another")), (Kind::BadInvOrder, 4));
    for (manager, before) in [(root.manager(), ManagerState::Active), (&holding, ManagerState::Holding)] {
        for (operation, answer) in [
            ("activate", manager.activate()),
            ("hold_requests", manager.hold_requests(false)),
            ("discard_requests", manager.discard_requests(true)),
            ("deactivate", manager.deactivate(true, true)),
        ] {
            assert_eq!(refused_by(answer), (Kind::BadInvOrder, 4), "{operation} of {}", manager.id());
        }
        assert_eq!(manager.state(), before);
    }

    static VALUE_OF: Operation = Operation::new("value");
    for object in [&object, &remote] {
        let of_a_reference = [
            ("invoke", object.invoke(&VALUE_OF, &|_| Ok(())).map(drop)),
            ("invoke_raising", object.invoke_raising(&VALUE_OF, &|_| Ok(())).map(drop)),
            ("send_deferred", object.send_deferred("value", |_| Ok(())).map(drop)),
            ("send_oneway", object.send_oneway(&VALUE_OF, &|_| Ok(()))),
            ("is_a", object.is_a("IDL:Other:1.0").map(drop)),
            ("non_existent", object.non_existent().map(drop)),
            ("repository_id", object.repository_id().map(drop)),
            ("interface_definition", object.interface_definition().map(drop)),
            ("component", object.component().map(drop)),
            ("validate_connection", object.validate_connection()),
            ("establish", object.preconnect(&[], 1)),
        ];
        for (operation, answer) in of_a_reference {
            assert_eq!(refused(answer), ENDED, "{operation}");
        }
    }
    // The shutdown has destroyed the root POA, so its operations raise OBJECT_NOT_EXIST 4.
    assert_eq!(refused_by(root.create_poa("p", None, USER)), NO_ADAPTER);
    assert_eq!(refused_by(root.find_poa("p", true)), NO_ADAPTER);
    assert_eq!(refused_by(root.id_to_reference(&"x".into())), NO_ADAPTER);
    orb.shutdown(true).unwrap();
}
