//! Tests of the request processing algorithm (CORBA 3.0.3, section 11.2.6), for remote, encoded and
//! direct calls.

#![allow(clippy::disallowed_types, reason = "a test may lock as it likes")]

mod poa;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use corelane::mapping::Operation;
use corelane::poa::*;
use corelane::{Completion, ObjectRef, Servant, SystemException, SystemExceptionKind as Kind, current};
use poa::*;

#[test]
fn objects_in_the_map_are_found_by_every_kind_of_id() {
    let world = World::new();
    let user = world.poa("user", USER);
    let persistent = world.poa("persistent", PERSISTENT);
    let system = world.poa("system", PoaPolicies { lifespan: Lifespan::Persistent, ..RETAINING });
    let long = ObjectId::from(&[b'x'; 300][..]);
    for (poa, id) in [(&user, &ObjectId::from("a")), (&persistent, &ObjectId::from("")), (&persistent, &long)] {
        poa.activate_object_with_id(id, &number(7)).unwrap();
        let object = poa.id_to_reference(id).unwrap();
        for way in WAYS {
            assert_eq!(world.call(way, &object).unwrap(), 7, "{way:?}");
        }
        assert_eq!((object.type_id(), poa.reference_to_id(&object).unwrap()), (VALUE, id.clone()));
    }
    let (first, second) = (system.activate(&number(1)).unwrap(), world.root.activate(&number(2)).unwrap());
    for way in WAYS {
        assert_eq!((world.call(way, &first).unwrap(), world.call(way, &second).unwrap()), (1, 2), "{way:?}");
    }
}

#[test]
fn an_object_that_is_not_in_the_map_does_not_exist() {
    let world = World::new();
    let user = world.poa("user", USER);
    let gone = world.root.activate(&number(1)).unwrap();
    world.root.deactivate_object(&world.root.reference_to_id(&gone).unwrap()).unwrap();
    let never = user.create_reference_with_id(&"never".into(), VALUE).unwrap();
    let unplaced = world.root.create_reference(VALUE).unwrap();
    for object in [&gone, &never, &unplaced] {
        for way in WAYS {
            assert_eq!(refused(world.call(way, object)), NO_OBJECT, "{way:?}");
        }
        assert!(object.non_existent().unwrap());
        assert!(world.remote(object).non_existent().unwrap());
        assert_eq!(refused(world.remote(object).validate_connection()), NO_OBJECT);
        assert_eq!(refused(object.validate_connection()), NO_OBJECT);
    }
    let here = world.root.activate(&number(1)).unwrap();
    assert!(!world.remote(&here).non_existent().unwrap());
    world.remote(&here).validate_connection().unwrap();
}

#[test]
fn transient_references_of_another_orb_are_stale() {
    let (old, new) = (World::new(), World::new());
    for poa in [old.root.clone(), old.poa("a", RETAINING)] {
        let object = poa.activate(&number(1)).unwrap();
        // `moved` has the key of the ORB `old` and the address of the ORB `new`, as an old
        // reference has after a restart of the server.
        let key = object.ior().profiles.last().and_then(|profile| profile.parse().ok()).unwrap().object_key.to_vec();
        let text: String = key.iter().map(|octet| format!("%{octet:02x}")).collect();
        let port = new.server.endpoints()[0].to_string().rsplit(':').next().unwrap().to_owned();
        let moved = new.client.string_to_object(&format!("corbaloc::127.0.0.1:{port}/{text}")).unwrap().unwrap();
        new.poa(&format!("copy{}", poa.name()), RETAINING).activate(&number(2)).unwrap();
        assert_eq!(refused(call_marshalled(&moved)), NO_OBJECT);
    }
}

#[test]
fn the_default_servant_serves_objects_that_are_not_in_the_map() {
    let world = World::new();
    let non_retain = PoaPolicies { servant_retention: ServantRetention::NonRetain, ..DEFAULT };
    for (name, policies) in [("retain", DEFAULT), ("non-retain", non_retain)] {
        let poa = world.poa(name, policies);
        let object = poa.create_reference_with_id(&"some".into(), VALUE).unwrap();
        for way in WAYS {
            assert_eq!(refused(world.call(way, &object)), (Kind::ObjAdapter, 3, Completion::No), "{way:?}");
        }
        assert_eq!(poa.servant().unwrap_err(), PoaError::NoServant);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let default = servant(move || {
            let current = current().unwrap();
            sees.lock().unwrap().push((current.object_id, current.poa.name().to_owned()));
            Ok(3)
        });
        poa.set_servant(&default).unwrap();
        assert_eq!(poa.servant().unwrap(), default);
        for way in WAYS {
            assert_eq!(world.call(way, &object).unwrap(), 3, "{way:?}");
        }
        assert_eq!(*seen.lock().unwrap(), vec![(ObjectId::from("some"), name.to_owned()); 3]);
        assert_eq!(poa.id_to_servant(&"any".into()).unwrap(), default);
        assert_eq!(poa.reference_to_servant(&object).unwrap(), default);
    }
    let poa = world.root.find_poa("retain", false).unwrap();
    poa.activate_object_with_id(&"some".into(), &number(4)).unwrap();
    let object = poa.id_to_reference(&"some".into()).unwrap();
    for way in WAYS {
        assert_eq!(world.call(way, &object).unwrap(), 4, "{way:?}");
    }
    poa.deactivate_object(&"some".into()).unwrap();
    assert_eq!(world.call(Way::Remote, &object).unwrap(), 3);
}

/// Makes servants, each of which returns the number of servants made so far.
#[derive(Default)]
struct Maker {
    made: AtomicUsize,
    told: Mutex<Vec<String>>,
    answer: Mutex<Option<ServantResult<Option<Servant>>>>,
}

impl ServantActivator for Maker {
    fn incarnate(&self, id: &ObjectId, poa: &Poa) -> ServantResult<Option<Servant>> {
        assert!(current().is_none(), "`current` must return nothing in `incarnate`");
        self.told.lock().unwrap().push(format!("incarnate {id:?} {}", poa.name()));
        match &*self.answer.lock().unwrap() {
            Some(answer) => answer.clone(),
            None => Ok(Some(number(self.made.fetch_add(1, Ordering::SeqCst) as i32 + 1))),
        }
    }

    fn etherealize(&self, id: &ObjectId, poa: &Poa, _: &Servant, cleanup: bool, remaining: bool) {
        let line = format!("etherealize {id:?} {} {cleanup} {remaining}", poa.name());
        self.told.lock().unwrap().push(line);
    }
}

fn managed(world: &World, name: &str, policies: PoaPolicies) -> (Poa, Arc<Maker>) {
    let poa = world.poa(name, policies);
    let maker = Arc::new(Maker::default());
    poa.set_servant_manager(ServantManager::Activator(Arc::clone(&maker) as _)).unwrap();
    (poa, maker)
}

#[test]
fn a_servant_activator_is_asked_once() {
    let world = World::new();
    for (way, policies) in WAYS.into_iter().zip([
        ACTIVATOR,
        PoaPolicies { lifespan: Lifespan::Persistent, ..ACTIVATOR },
        PoaPolicies { id_assignment: IdAssignment::System, ..ACTIVATOR },
    ]) {
        let name = format!("{way:?}");
        let (poa, maker) = managed(&world, &name, policies);
        let object = if policies.id_assignment == IdAssignment::User {
            poa.create_reference_with_id(&"x".into(), VALUE).unwrap()
        } else {
            poa.create_reference(VALUE).unwrap()
        };
        world.remote(&object).validate_connection().unwrap();
        assert!(maker.told.lock().unwrap().is_empty());
        for _ in 0..2 {
            assert_eq!(world.call(way, &object).unwrap(), 1, "{way:?}");
        }
        let id = poa.reference_to_id(&object).unwrap();
        assert_eq!(*maker.told.lock().unwrap(), [format!("incarnate {id:?} {name}")]);
        poa.deactivate_object(&id).unwrap();
        assert_eq!(maker.told.lock().unwrap()[1..], [format!("etherealize {id:?} {name} false false")]);
        assert_eq!(world.call(way, &object).unwrap(), 2, "{way:?}");
        poa.deactivate_object(&id).unwrap();
        poa.activate_object_with_id(&id, &number(9)).unwrap();
        assert_eq!(world.call(way, &object).unwrap(), 9, "{way:?}");
        poa.deactivate_object(&id).unwrap();
        assert_eq!(maker.told.lock().unwrap().len(), 5);
    }
}

#[test]
fn the_result_of_a_servant_activator_reaches_the_client() {
    let world = World::new();
    let (poa, maker) = managed(&world, "managed", ACTIVATOR);
    let elsewhere = world.root.activate(&number(77)).unwrap();
    let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
    let taken = number(0);
    poa.activate_object_with_id(&"y".into(), &taken).unwrap();
    let raised = SystemException::new(Kind::NoPermission, 5, Completion::No);
    let answers = [
        (Ok(None), (Kind::ObjAdapter, 7, Completion::No)),
        (Ok(Some(taken)), (Kind::ObjAdapter, 5, Completion::No)),
        (Err(ServantManagerError::System(raised)), (Kind::NoPermission, 5, Completion::No)),
        (Err(ServantManagerError::no_such_object()), NO_OBJECT),
    ];
    for (answer, expected) in answers {
        *maker.answer.lock().unwrap() = Some(answer);
        for way in WAYS {
            maker.told.lock().unwrap().clear();
            assert_eq!(refused(world.call(way, &object)), expected, "{way:?}");
            assert_eq!(maker.told.lock().unwrap().len(), 1, "{way:?}");
        }
    }
    let other = World::new();
    let far = world.server.string_to_object(&other.root.activate(&number(78)).unwrap().to_string()).unwrap().unwrap();
    for (reference, answer) in [(elsewhere, 77), (far, 78)] {
        *maker.answer.lock().unwrap() = Some(Err(ServantManagerError::Forward(reference)));
        for way in WAYS {
            maker.told.lock().unwrap().clear();
            let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
            assert_eq!(world.call(way, &object).unwrap(), answer, "{way:?}");
            assert_eq!(maker.told.lock().unwrap().len(), 1, "expected one call of the servant manager for each call");
        }
    }
}

#[test]
fn missing_or_panicking_servant_manager_raises_an_exception() {
    struct Panics;
    impl ServantActivator for Panics {
        fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
            std::panic::resume_unwind(Box::new("no"));
        }
        fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {
            std::panic::resume_unwind(Box::new("no"));
        }
    }
    let world = World::new();
    for policies in [ACTIVATOR, LOCATOR] {
        let poa = world.poa(&format!("{:?}", policies.servant_retention), policies);
        let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
        for way in WAYS {
            assert_eq!(refused(world.call(way, &object)), (Kind::ObjAdapter, 4, Completion::No), "{way:?}");
        }
        assert_eq!(refused(world.remote(&object).validate_connection()), NO_OBJECT);
    }
    let poa = world.root.find_poa("Retain", false).unwrap();
    poa.set_servant_manager(ServantManager::Activator(Arc::new(Panics))).unwrap();
    let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
    for way in WAYS {
        assert_eq!(refused(world.call(way, &object)), (Kind::Unknown, 0, Completion::No), "{way:?}");
    }
    poa.activate_object_with_id(&"x".into(), &number(5)).unwrap();
    poa.deactivate_object(&"x".into()).unwrap();
    assert_eq!(world.server.event_counts().servants_panicked, 4);
    poa.activate_object_with_id(&"x".into(), &number(5)).unwrap();
    assert_eq!(world.call(Way::Remote, &object).unwrap(), 5);
}

struct Lender {
    told: Mutex<Vec<String>>,
    servant: Mutex<ServantResult<Option<Servant>>>,
    after: Mutex<Result<(), SystemException>>,
}

impl ServantLocator for Lender {
    fn preinvoke(&self, id: &ObjectId, poa: &Poa, operation: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        let frame = current().unwrap();
        assert_eq!((&frame.object_id, &frame.poa, frame.servant()), (id, poa, None));
        let mut told = self.told.lock().unwrap();
        told.push(format!("pre {id:?} {operation}"));
        let cookie = told.len();
        Ok((self.servant.lock().unwrap().clone()?, Box::new(cookie)))
    }

    fn postinvoke(
        &self,
        id: &ObjectId,
        _: &Poa,
        operation: &str,
        cookie: Cookie,
        servant: &Servant,
    ) -> Result<(), SystemException> {
        let frame = current().unwrap();
        assert_eq!((&frame.object_id, frame.servant()), (id, Some(servant)));
        let mut told = self.told.lock().unwrap();
        assert_eq!(cookie.downcast_ref::<usize>(), Some(&told.len()), "expected the cookie of the last preinvoke");
        told.push(format!("post {id:?} {operation}"));
        self.after.lock().unwrap().clone()
    }
}

fn located(world: &World, servant: ServantResult<Option<Servant>>) -> (ObjectRef, Arc<Lender>) {
    let poa = world.poa("located", LOCATOR);
    let lender = Arc::new(Lender { told: Mutex::default(), servant: Mutex::new(servant), after: Mutex::new(Ok(())) });
    poa.set_servant_manager(ServantManager::Locator(Arc::clone(&lender) as _)).unwrap();
    (poa.create_reference_with_id(&"x".into(), VALUE).unwrap(), lender)
}

#[test]
fn a_servant_locator_is_asked_for_every_request() {
    let world = World::new();
    let (object, lender) = located(&world, Ok(Some(number(6))));
    world.remote(&object).validate_connection().unwrap();
    assert!(lender.told.lock().unwrap().is_empty());
    for way in WAYS {
        lender.told.lock().unwrap().clear();
        assert_eq!(world.call(way, &object).unwrap(), 6, "{way:?}");
        assert_eq!(*lender.told.lock().unwrap(), ["pre ObjectId(x) value", "post ObjectId(x) value"], "{way:?}");
    }
    lender.told.lock().unwrap().clear();
    assert!(!world.remote(&object).non_existent().unwrap());
    assert_eq!(world.remote(&object).repository_id().unwrap(), VALUE);
    let told = ["pre ObjectId(x) _non_existent", "post ObjectId(x) _non_existent"];
    assert_eq!(lender.told.lock().unwrap()[..2], told);
    assert_eq!(lender.told.lock().unwrap().len(), 4);
}

#[test]
fn the_result_of_a_servant_locator_reaches_the_client() {
    let world = World::new();
    let (object, lender) = located(&world, Ok(None));
    let told = |lender: &Lender| std::mem::take(&mut *lender.told.lock().unwrap()).len();
    for way in WAYS {
        assert_eq!(refused(world.call(way, &object)), (Kind::ObjAdapter, 7, Completion::No), "{way:?}");
        assert_eq!(told(&lender), 1, "expected no postinvoke without a servant");
    }
    *lender.servant.lock().unwrap() = Err(SystemException::new(Kind::NoPermission, 5, Completion::No).into());
    for way in WAYS {
        assert_eq!(refused(world.call(way, &object)), (Kind::NoPermission, 5, Completion::No), "{way:?}");
        assert_eq!(told(&lender), 1, "expected no postinvoke after an exception of preinvoke");
    }
    let elsewhere = world.root.activate(&number(77)).unwrap();
    *lender.servant.lock().unwrap() = Err(ServantManagerError::Forward(elsewhere));
    for way in WAYS {
        assert_eq!(world.call(way, &object).unwrap(), 77, "{way:?}");
    }
    told(&lender);
    let raises = servant(|| Err(SystemException::new(Kind::NoMemory, 1, Completion::Yes)));
    *lender.servant.lock().unwrap() = Ok(Some(raises));
    for way in WAYS {
        assert_eq!(refused(world.call(way, &object)), (Kind::NoMemory, 1, Completion::Yes), "{way:?}");
        assert_eq!(told(&lender), 2, "expected a postinvoke after an exception of the operation");
    }
    *lender.after.lock().unwrap() = Err(SystemException::new(Kind::NoResponse, 2, Completion::Maybe));
    for way in WAYS {
        assert_eq!(refused(world.call(way, &object)), (Kind::NoResponse, 2, Completion::Maybe), "{way:?}");
    }
    *lender.servant.lock().unwrap() = Ok(Some(number(1)));
    for way in WAYS {
        assert_eq!(refused(world.call(way, &object)), (Kind::NoResponse, 2, Completion::Maybe), "{way:?}");
    }
}

#[test]
fn servant_of_another_interface_raises_obj_adapter_2() {
    static OTHER: Operation = Operation::new("other");
    let world = World::new();
    let (object, lender) = located(&world, Ok(Some(number(6))));
    for object in [world.remote(&object), object] {
        let answer = object.invoke(&OTHER, &|_| Ok(()));
        assert_eq!(refused(answer.map(drop)), (Kind::ObjAdapter, 2, Completion::No));
        assert_eq!(
            std::mem::take(&mut *lender.told.lock().unwrap()).len(),
            2,
            "expected that the servant returns to the locator"
        );
    }
}

#[test]
fn one_servant_of_a_locator_serves_many_objects_concurrently() {
    let world = World::new();
    let slow = Slow::default();
    let poa = world.poa("located", LOCATOR);
    struct Same(Servant);
    impl ServantLocator for Same {
        fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
            Ok((Some(self.0.clone()), Box::new(())))
        }
        fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
            Ok(())
        }
    }
    poa.set_servant_manager(ServantManager::Locator(Arc::new(Same(slow.servant())))).unwrap();
    std::thread::scope(|scope| {
        for id in ["a", "b", "c"] {
            let object = poa.create_reference_with_id(&id.into(), VALUE).unwrap();
            let world = &world;
            scope.spawn(move || world.call(Way::Remote, &object).unwrap());
        }
        slow.wait_entered(3);
        slow.go_on();
    });
}

#[test]
fn panic_raises_unknown_and_the_policy_decides_if_the_object_stays_active() {
    let world = World::new();
    for on_panic in [ServantPanicAction::KeepActive, ServantPanicAction::Deactivate] {
        let poa = world.poa(&format!("{on_panic:?}"), PoaPolicies { servant_panic_action: on_panic, ..USER });
        for way in WAYS {
            let id = ObjectId::from(&*format!("{way:?}"));
            poa.activate_object_with_id(&id, &servant(|| std::panic::resume_unwind(Box::new("oh")))).unwrap();
            let object = poa.id_to_reference(&id).unwrap();
            assert_eq!(refused(world.call(way, &object)), (Kind::Unknown, 0, Completion::Maybe));
            let again = refused(world.call(way, &object));
            assert_eq!(again == NO_OBJECT, on_panic == ServantPanicAction::Deactivate, "{way:?} {again:?}");
        }
    }
}

#[test]
fn implicit_operations_run_and_an_unknown_operation_is_refused() {
    static UNKNOWN: Operation = Operation::new("nonsense");
    let world = World::new();
    let object = world.root.activate(&number(1)).unwrap();
    for object in [object.clone(), world.remote(&object)] {
        assert!(object.is_a(VALUE).unwrap() && !object.is_a("IDL:test/Other:1.0").unwrap());
        assert_eq!(object.repository_id().unwrap(), VALUE);
        let answer = object.invoke(&UNKNOWN, &|_| Ok(())).map(drop);
        assert_eq!(refused(answer), (Kind::BadOperation, 2, Completion::No));
    }
}

#[test]
fn plain_keys_lead_to_references_until_unbound() {
    let world = World::new();
    let object = world.root.activate(&number(8)).unwrap();
    let port = world.server.endpoints()[0].to_string().rsplit(':').next().unwrap().to_owned();
    let named = world.client.string_to_object(&format!("corbaloc::127.0.0.1:{port}/Eight")).unwrap().unwrap();
    let named = || world.client.string_to_object(&named.to_string()).unwrap().unwrap();
    assert_eq!(refused(call_marshalled(&named())), NO_OBJECT);
    world.server.bind_corbaloc_key("Eight", &object).unwrap();
    assert_eq!(refused(world.server.bind_corbaloc_key("Eight", &object)).0, Kind::BadParam);
    assert_eq!(
        refused(
            world
                .server
                .bind_corbaloc_key("CLNPx\0\0", &object)
                .and_then(|()| world.server.bind_corbaloc_key("", &object))
        )
        .0,
        Kind::BadParam
    );
    assert_eq!(call_marshalled(&named()).unwrap(), 8);
    named().validate_connection().unwrap();
    assert!(world.server.unbind_corbaloc_key("Eight") && !world.server.unbind_corbaloc_key("Eight"));
    assert_eq!(refused(call_marshalled(&named())), NO_OBJECT);
    world.server.bind_corbaloc_key("Eight", &object).unwrap();
    assert_eq!(call_marshalled(&named()).unwrap(), 8);
    // A reference of the same ORB looks up the plain key for each call.
    let near = world.server.string_to_object(&named().to_string()).unwrap().unwrap();
    assert_eq!([call(&near).unwrap(), call(&near).unwrap()], [8, 8]);
    world.server.unbind_corbaloc_key("Eight");
    assert_eq!(refused(call(&near)), NO_OBJECT);
    world.server.bind_corbaloc_key("Eight", &world.root.activate(&number(9)).unwrap()).unwrap();
    assert_eq!(call(&near).unwrap(), 9);
}

#[test]
fn a_plain_key_serves_an_object_of_this_orb_and_sends_elsewhere_for_another() {
    static IS_A: Operation = Operation::new("_is_a");
    let world = World::new();
    let address = world.server.endpoints()[0].to_string();
    let corbaloc = format!("corbaloc::{}/Key", address.trim_start_matches("tcp:"));
    let other = World::new();
    let elsewhere =
        world.server.string_to_object(&other.root.activate(&number(2)).unwrap().to_string()).unwrap().unwrap();
    world.server.bind_corbaloc_key("Elsewhere", &elsewhere).unwrap();
    let by_key = |key: &str| world.client.string_to_object(&corbaloc.replace("Key", key)).unwrap().unwrap();
    assert_eq!(call_marshalled(&by_key("Elsewhere")).unwrap(), 2);
    // A reference of the same ORB looks up the plain key for each call.
    let near = world.server.string_to_object(&corbaloc.replace("Key", "Elsewhere")).unwrap().unwrap();
    assert_eq!([call(&near).unwrap(), call_marshalled(&near).unwrap()], [2, 2]);
    world.server.bind_corbaloc_key("Alias", &near).unwrap();
    let alias = world.server.string_to_object(&corbaloc.replace("Key", "Alias")).unwrap().unwrap();
    assert_eq!([call(&alias).unwrap(), call_marshalled(&alias).unwrap()], [2, 2]);
    assert!(world.server.unbind_corbaloc_key("Elsewhere"));
    for gone in [near, alias] {
        assert_eq!([refused(call(&gone)), refused(call_marshalled(&gone))], [NO_OBJECT; 2]);
    }

    let poa = world.poa("plain", PERSISTENT);
    let id = ObjectId::from("one");
    poa.activate_object_with_id(&id, &number(1)).unwrap();
    let object = poa.id_to_reference(&id).unwrap();
    world.server.bind_corbaloc_key("Here", &object).unwrap();
    let named = by_key("Here");
    assert_eq!(call_marshalled(&named).unwrap(), 1);
    named.validate_connection().unwrap();
    let answer = named.invoke(&IS_A, &|e| e.write_str(VALUE)).unwrap().read(|d| d.read_bool());
    assert!(answer.unwrap());
    let local = world.server.string_to_object(&corbaloc.replace("Key", "Here")).unwrap().unwrap();
    assert_eq!((call(&local).unwrap(), call_marshalled(&local).unwrap()), (1, 1));

    poa.deactivate_object(&id).unwrap();
    assert_eq!(refused(call_marshalled(&named)), NO_OBJECT);
    assert_eq!(refused(named.validate_connection()).0, Kind::ObjectNotExist);
    assert!(named.non_existent().unwrap());
    poa.activate_object_with_id(&id, &number(3)).unwrap();
    assert_eq!(call_marshalled(&named).unwrap(), 3);

    // The key is bound to itself, so the server forwards each request to the same key. The client
    // ends this loop with TRANSIENT.
    world.server.bind_corbaloc_key("Loop", &by_key("Loop")).unwrap();
    assert_eq!(refused(call_marshalled(&by_key("Loop"))).0, Kind::Transient);
}

#[test]
fn a_plain_key_of_a_local_object_is_answered_without_a_forward() {
    use corelane_wire::giop::{self, Header, Reply, ReplyStatus, RequestHeader, ResponseExpected, TargetAddress};
    use std::io::{Read, Write};
    let world = World::new();
    let object = world.root.activate(&number(8)).unwrap();
    world.server.bind_corbaloc_key("Eight", &object).unwrap();
    let address = world.server.endpoints()[0].to_string();
    let mut peer = std::net::TcpStream::connect(address.trim_start_matches("tcp:")).unwrap();
    let mut e = corelane_wire::Encoder::new();
    let head = RequestHeader {
        version: corelane::Version::GIOP_1_2,
        request_id: 1,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(b"Eight"),
        operation: b"value",
        contexts: &[],
    };
    giop::write_request_header(&mut e, &head).unwrap();
    giop::finish_message(&mut e).unwrap();
    peer.write_all(&e.to_vec()).unwrap();
    let mut octets = vec![0; 12];
    peer.read_exact(&mut octets).unwrap();
    let header = Header::parse(octets.first_chunk().unwrap()).unwrap();
    octets.resize(header.total_len(), 0);
    peer.read_exact(&mut octets[12..]).unwrap();
    let reply = Reply::parse(&octets, &header, &corelane::Limits::DEFAULT).unwrap();
    assert_eq!(reply.status, ReplyStatus::NoException);
    assert_eq!(reply.body().read_i32().unwrap(), 8);
}

#[test]
fn key_hints_find_the_same_objects_and_never_another_object() {
    let world = World::new();
    let hinting = PoaPolicies { object_key_hints: ObjectKeyHints::Slots, ..PERSISTENT };
    let poa = world.poa("hinting", hinting);
    let ids: Vec<ObjectId> = (0..20).map(|number| ObjectId::from(format!("object {number}").as_str())).collect();
    for (value, id) in (0..).zip(&ids) {
        poa.activate_object_with_id(id, &number(value)).unwrap();
    }
    let references: Vec<ObjectRef> = ids.iter().map(|id| poa.id_to_reference(id).unwrap()).collect();
    let plain = poa.create_reference_with_id(&ObjectId::from("later"), VALUE).unwrap();
    for way in WAYS {
        for (value, reference) in (0..).zip(&references) {
            assert_eq!(world.call(way, reference).unwrap(), value, "{way:?}");
        }
        assert_eq!(refused(world.call(way, &plain)), NO_OBJECT, "{way:?}");
    }
    for (id, reference) in ids.iter().zip(&references) {
        assert_eq!(&poa.reference_to_id(reference).unwrap(), id);
        world.remote(reference).validate_connection().unwrap();
    }
    // An old hint must not lead to another object.
    for id in &ids {
        poa.deactivate_object(id).unwrap();
    }
    for way in WAYS {
        assert_eq!(refused(world.call(way, &references[0])), NO_OBJECT, "{way:?}");
    }
    for (value, id) in (100..).zip(ids.iter().rev()) {
        poa.activate_object_with_id(id, &number(value)).unwrap();
    }
    for way in WAYS {
        for (value, reference) in (100..).zip(references.iter().rev()) {
            assert_eq!(world.call(way, reference).unwrap(), value, "{way:?}");
        }
    }
    // A POA of the same name in another ORB has the object in another slot, so the hint in the
    // reference is wrong. The POA must still find the object.
    let again = World::new();
    let poa = again.poa("hinting", hinting);
    poa.activate_object_with_id(&ids[7], &number(7)).unwrap();
    let profile = references[7].ior().known_profiles().next().unwrap();
    let key: String = profile.object_key.iter().map(|octet| format!("%{octet:02x}")).collect();
    assert!(key.starts_with("%43%4c%4e%48"), "{key}");
    let address = again.server.endpoints()[0].to_string();
    let moved = format!("corbaloc::1.2@{}/{key}", address.trim_start_matches("tcp:"));
    let moved = again.client.string_to_object(&moved).unwrap().unwrap();
    assert_eq!(call_marshalled(&moved).unwrap(), 7);
}

#[test]
fn current_returns_the_innermost_upcall() {
    let world = World::new();
    let poa = world.poa("inner", USER);
    let long = ObjectId::from(&[b'y'; 100][..]);
    assert!(current().is_none());
    let look = |poa: &Poa, id: &ObjectId| {
        let frame = current().unwrap();
        assert_eq!((&frame.poa, &frame.object_id), (poa, id));
        assert_eq!(frame.reference().unwrap().to_string(), poa.id_to_reference(id).unwrap().to_string());
        assert_eq!(frame.servant(), Some(&poa.id_to_servant(id).unwrap()));
    };
    let (inner_poa, inner_id) = (poa.clone(), long.clone());
    let inner = servant(move || {
        look(&inner_poa, &inner_id);
        Ok(1)
    });
    poa.activate_object_with_id(&long, &inner).unwrap();
    let inner = poa.id_to_reference(&long).unwrap();
    let root = world.root.clone();
    let outer = servant(move || {
        let before = current().unwrap();
        look(&before.poa, &before.object_id);
        assert_eq!(before.poa, root);
        assert_eq!(call(&inner)? + call_marshalled(&inner)?, 2);
        look(&before.poa, &before.object_id);
        assert!(
            std::thread::spawn(|| current().is_none()).join().unwrap(),
            "`current` must return nothing on another thread"
        );
        before.poa.deactivate_object(&before.object_id).unwrap();
        assert_eq!(current().unwrap().servant(), before.servant());
        assert_eq!(current().unwrap().reference().unwrap().type_id(), VALUE);
        Ok(2)
    });
    for way in WAYS {
        let outer = world.root.activate(&outer).unwrap();
        assert_eq!(world.call(way, &outer).unwrap(), 2, "{way:?}");
        assert_eq!(refused(world.call(way, &outer)), NO_OBJECT, "{way:?}");
    }
    assert!(current().is_none());
}

#[test]
fn upcalls_nested_too_deep_are_refused() {
    let world = World::new();
    let own: Arc<Mutex<Option<ObjectRef>>> = Arc::default();
    let next = Arc::clone(&own);
    let recursive = servant(move || {
        let next = next.lock().unwrap().clone().unwrap();
        match call(&next) {
            Err(exception) if exception.kind() == Kind::NoResources => Ok(1),
            other => other.map(|depth| depth + 1),
        }
    });
    let object = world.root.activate(&recursive).unwrap();
    *own.lock().unwrap() = Some(object.clone());
    assert_eq!(call(&object).unwrap(), 32);
    assert!(current().is_none());
}
