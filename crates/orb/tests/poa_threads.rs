//! Tests of the thread policies (CORBA 3.0.3, section 11.3.7.1).
#![allow(clippy::disallowed_types, reason = "a test may lock as it likes")]

mod poa;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use corelane::poa::*;
use corelane::{CallPolicies, Completion, ObjectRef, Orb, Servant, SystemException, SystemExceptionKind as Kind};
use poa::*;

/// A check that fails if two threads are inside; one thread may enter several times.
#[derive(Default)]
struct Alone {
    owner: Mutex<Option<ThreadId>>,
    depth: AtomicUsize,
    visits: AtomicUsize,
}

impl Alone {
    fn visit<T>(&self, inside: impl FnOnce() -> T) -> T {
        let me = std::thread::current().id();
        {
            let mut owner = self.owner.lock().unwrap();
            assert!(owner.is_none_or(|owner| owner == me), "only one thread at a time may be inside");
            *owner = Some(me);
        }
        self.depth.fetch_add(1, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(50));
        let result = inside();
        if self.depth.fetch_sub(1, Ordering::SeqCst) == 1 {
            *self.owner.lock().unwrap() = None;
        }
        result
    }
}

struct Managed(Arc<Alone>);

impl Managed {
    fn servant(&self) -> Servant {
        let alone = Arc::clone(&self.0);
        servant(move || alone.visit(|| Ok(1)))
    }
}

impl ServantActivator for Managed {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        self.0.visit(|| Ok(Some(self.servant())))
    }
    fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {
        self.0.visit(|| ());
    }
}

impl ServantLocator for Managed {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        self.0.visit(|| Ok((Some(self.servant()), Box::new(()) as Cookie)))
    }
    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        self.0.visit(|| Ok(()))
    }
}

impl AdapterActivator for Managed {
    fn unknown_adapter(&self, _: &Poa, _: &str) -> Result<bool, SystemException> {
        self.0.visit(|| Ok(false))
    }
}

#[test]
fn single_thread_poa_runs_one_request_at_a_time() {
    let world = World::new();
    for (name, policies) in [("a", USER), ("b", ACTIVATOR), ("c", LOCATOR), ("d", DEFAULT)] {
        let poa = world.poa(name, PoaPolicies { threading: Threading::SingleThread, ..policies });
        let alone = Arc::new(Alone::default());
        let managed = Arc::new(Managed(Arc::clone(&alone)));
        poa.set_adapter_activator(Some(Arc::clone(&managed) as _));
        match name {
            "a" => {
                for id in ["x", "y", "z"] {
                    poa.activate_object_with_id(&id.into(), &managed.servant()).unwrap();
                }
            }
            "b" => poa.set_servant_manager(ServantManager::Activator(Arc::clone(&managed) as _)).unwrap(),
            "c" => poa.set_servant_manager(ServantManager::Locator(Arc::clone(&managed) as _)).unwrap(),
            _ => poa.set_servant(&managed.servant()).unwrap(),
        }
        std::thread::scope(|scope| {
            for id in ["x", "y", "z"] {
                let object = poa.create_reference_with_id(&id.into(), VALUE).unwrap();
                for way in WAYS {
                    let (world, object, poa) = (&world, object.clone(), poa.clone());
                    scope.spawn(move || {
                        for round in 0..20 {
                            assert_eq!(world.call(way, &object).unwrap(), 1, "{name} {way:?}");
                            if name == "b" && way == Way::Direct && round % 4 == 0 {
                                // Another thread may have deactivated the object, so an error is
                                // ignored.
                                let _ = poa.deactivate_object(&id.into());
                            }
                            if round % 5 == 0 {
                                assert!(poa.find_poa("missing", true).is_err());
                            }
                        }
                    });
                }
            }
        });
        poa.destroy(true, true).unwrap();
        assert!(alone.visits.load(Ordering::SeqCst) >= 3 * 3 * 20);
        world.no_panics();
    }
}

#[test]
fn a_single_thread_poa_may_be_entered_again_by_its_thread() {
    let world = World::new();
    let poa = world.poa("a", PoaPolicies { threading: Threading::SingleThread, ..USER });
    poa.activate_object_with_id(&"inner".into(), &number(5)).unwrap();
    let inner = poa.id_to_reference(&"inner".into()).unwrap();
    let outer = servant(move || Ok(call(&inner)? + call_marshalled(&inner)?));
    poa.activate_object_with_id(&"outer".into(), &outer).unwrap();
    let outer = poa.id_to_reference(&"outer".into()).unwrap();
    for way in WAYS {
        assert_eq!(world.call(way, &outer).unwrap(), 10, "{way:?}");
    }
}

fn runs_in(thread: ThreadId) -> Servant {
    servant(move || Ok(i32::from(std::thread::current().id() == thread)))
}

struct Answers(ThreadId);

impl ServantActivator for Answers {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        Ok(Some(runs_in(self.0)))
    }
    fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {}
}

impl ServantLocator for Answers {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        Ok((Some(runs_in(self.0)), Box::new(()) as Cookie))
    }
    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        Ok(())
    }
}

fn one_of_each_kind(poa: &Poa, thread: ThreadId) -> Vec<ObjectRef> {
    let (mut objects, policies) = (Vec::new(), poa.policies());
    let retains = policies.servant_retention == ServantRetention::Retain;
    let own_ids = policies.id_assignment == IdAssignment::System;
    if retains {
        let id = if own_ids {
            poa.activate_object(&runs_in(thread)).unwrap()
        } else {
            poa.activate_object_with_id(&"active".into(), &runs_in(thread)).unwrap();
            "active".into()
        };
        objects.push(poa.id_to_reference(&id).unwrap());
    }
    let manager = Arc::new(Answers(thread));
    match policies.request_processing {
        RequestProcessing::ActiveObjectMapOnly => return objects,
        RequestProcessing::DefaultServant => poa.set_servant(&runs_in(thread)).unwrap(),
        RequestProcessing::ServantManager if retains => {
            poa.set_servant_manager(ServantManager::Activator(manager)).unwrap();
        }
        RequestProcessing::ServantManager => poa.set_servant_manager(ServantManager::Locator(manager)).unwrap(),
    }
    let other = if own_ids {
        poa.create_reference(VALUE).unwrap()
    } else {
        poa.create_reference_with_id(&"other".into(), VALUE).unwrap()
    };
    objects.push(other);
    objects
}

#[test]
fn every_legal_combination_serves_under_every_thread_policy() {
    let world = World::new();
    std::thread::scope(|scope| {
        let main = scope.spawn(|| world.server.run());
        let thread = main.thread().id();
        let ready = main_object(&world, &runs_in(thread));
        eventually(|| world.call(Way::Direct, &ready).unwrap() == 1);
        let (mut made, mut called) = (0, 0);
        for policies in legal_policies() {
            for threading in [Threading::OrbControlled, Threading::SingleThread, Threading::MainThread] {
                let poa = world.poa(&format!("p{made}"), PoaPolicies { threading, ..policies });
                for object in one_of_each_kind(&poa, thread) {
                    for way in WAYS {
                        let in_main = world.call(way, &object).unwrap() == 1;
                        assert_eq!(in_main, threading == Threading::MainThread, "{way:?} {:?}", poa.policies());
                        called += 1;
                    }
                }
                made += 1;
            }
        }
        // 30 of the combinations have an active object (RETAIN). 30 have an object without an active servant (default
        // servant or servant manager).
        assert_eq!((made, called), (3 * 42, 3 * 3 * (30 + 30)));
        world.server.shutdown(true).unwrap();
    });
    world.no_panics();
}

const MAIN: PoaPolicies = PoaPolicies { threading: Threading::MainThread, ..USER };

fn main_object(world: &World, servant: &Servant) -> ObjectRef {
    let poa = world.root.find_poa("main", false).unwrap_or_else(|_| world.poa("main", MAIN));
    let _ = poa.deactivate_object(&"x".into());
    poa.activate_object_with_id(&"x".into(), servant).unwrap();
    poa.id_to_reference(&"x".into()).unwrap()
}

#[test]
fn a_main_thread_poa_runs_in_the_thread_of_run() {
    let world = World::new();
    std::thread::scope(|scope| {
        let main = Arc::new(Mutex::new(None));
        let set = Arc::clone(&main);
        let server = &world.server;
        scope.spawn(move || {
            *set.lock().unwrap() = Some(std::thread::current().id());
            server.run();
        });
        eventually(|| main.lock().unwrap().is_some());
        let object = main_object(&world, &runs_in(main.lock().unwrap().unwrap()));
        eventually(|| world.call(Way::Direct, &object).unwrap() == 1);
        let second = scope.spawn(|| server.run());
        for way in WAYS {
            for _ in 0..50 {
                assert_eq!(world.call(way, &object).unwrap(), 1, "{way:?}");
            }
        }
        assert!(!second.is_finished());
        world.server.shutdown(true).unwrap();
    });
}

#[test]
fn perform_work_runs_one_request() {
    let world = World::new();
    let object = main_object(&world, &runs_in(std::thread::current().id()));
    assert!(!world.server.work_pending() && !world.server.perform_work());
    assert_eq!(world.call(Way::Direct, &object).unwrap(), 1, "the thread that made the ORB is the main thread");
    std::thread::scope(|scope| {
        for way in WAYS {
            let call = scope.spawn({
                let (w, o) = (&world, &object);
                move || w.call(way, o)
            });
            eventually(|| world.server.work_pending());
            a_while();
            assert!(!call.is_finished());
            assert!(world.server.perform_work());
            assert_eq!(call.join().unwrap().unwrap(), 1, "{way:?}");
            assert!(!world.server.work_pending());
        }
        world.remote(&object).validate_connection().unwrap();
    });
}

#[test]
fn call_without_a_main_thread_ends_at_its_deadline() {
    let world = World::new();
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let object = main_object(
        &world,
        &servant(move || {
            runs.store(true, Ordering::SeqCst);
            Ok(1)
        }),
    );
    let policies = CallPolicies { timeout: Some(Duration::from_millis(50).into()), ..CallPolicies::NONE };
    let local = object.with_policies(policies);
    let answer = std::thread::spawn(move || call(&local)).join().unwrap().unwrap_err();
    assert_eq!((answer.kind(), answer.completed()), (Kind::Timeout, Completion::No));
    assert!(world.server.perform_work());
    assert!(!ran.load(Ordering::SeqCst), "the operation must not run after the caller got COMPLETED_NO");
}

#[test]
fn main_thread_runs_servant_activators() {
    struct InMain(ThreadId, AtomicUsize);
    impl InMain {
        fn check(&self) {
            assert_eq!(std::thread::current().id(), self.0);
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl ServantActivator for InMain {
        fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
            self.check();
            Ok(Some(runs_in(self.0)))
        }
        fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {
            self.check();
        }
    }
    let world = World::new();
    let poa = world.poa("main", PoaPolicies { threading: Threading::MainThread, ..ACTIVATOR });
    let manager = Arc::new(InMain(std::thread::current().id(), AtomicUsize::new(0)));
    poa.set_servant_manager(ServantManager::Activator(Arc::clone(&manager) as _)).unwrap();
    let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| world.call(Way::Remote, &object));
        eventually(|| world.server.perform_work());
        assert_eq!(call.join().unwrap().unwrap(), 1);
        scope.spawn(|| poa.deactivate_object(&"x".into()).unwrap()).join().unwrap();
        assert_eq!(manager.1.load(Ordering::SeqCst), 1);
        assert!(world.server.perform_work());
        assert_eq!(manager.1.load(Ordering::SeqCst), 2);
        world.no_panics();
    });
}

#[test]
fn main_thread_runs_adapter_activators() {
    struct InMain(ThreadId);
    impl AdapterActivator for InMain {
        fn unknown_adapter(&self, parent: &Poa, name: &str) -> Result<bool, SystemException> {
            assert_eq!(std::thread::current().id(), self.0);
            let poa = parent.create_poa(name, Some(parent.manager()), PERSISTENT).unwrap();
            poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
            Ok(true)
        }
    }
    let world = World::new();
    let policies = PoaPolicies { threading: Threading::MainThread, ..PERSISTENT };
    let main = world.poa("main", policies);
    main.set_adapter_activator(Some(Arc::new(InMain(std::thread::current().id()))));
    let child = main.create_poa("child", None, PERSISTENT).unwrap();
    let object = child.create_reference_with_id(&"x".into(), VALUE).unwrap();
    std::thread::scope(|scope| {
        for way in WAYS {
            main.find_poa("child", false).unwrap().destroy(true, true).unwrap();
            let call = scope.spawn({
                let (world, object) = (&world, &object);
                move || world.call(way, object)
            });
            eventually(|| world.server.perform_work());
            assert_eq!(call.join().unwrap().unwrap(), 1, "{way:?}");
        }
    });
    world.no_panics();
}

#[test]
fn requests_that_wait_for_the_main_thread_are_bounded() {
    let world = World::new();
    let object = main_object(&world, &number(1));
    let full = Arc::new(AtomicUsize::new(0));
    let policies = CallPolicies { timeout: Some(Duration::from_millis(1).into()), ..CallPolicies::NONE };
    let local = object.with_policies(policies);
    let counter = Arc::clone(&full);
    std::thread::spawn(move || {
        for _ in 0..1030 {
            if call(&local).unwrap_err().kind() == Kind::Transient {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }
    })
    .join()
    .unwrap();
    assert_eq!(full.load(Ordering::SeqCst), 6);
    assert_eq!(std::iter::repeat_with(|| world.server.perform_work()).take_while(|worked| *worked).count(), 1024);
}

#[test]
fn orb_shuts_down_with_requests_for_an_absent_main_thread() {
    let orb = Orb::builder().build().unwrap();
    let root = orb.root_poa();
    root.manager().activate().unwrap();
    let poa = root.create_poa("main", Some(root.manager()), MAIN).unwrap();
    poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
    let object = poa.id_to_reference(&"x".into()).unwrap();
    let waits = std::thread::spawn(move || call(&object));
    eventually(|| orb.work_pending());
    orb.shutdown(true).unwrap();
    assert_eq!(refused(waits.join().unwrap()), (Kind::BadInvOrder, 4, Completion::No));
}
