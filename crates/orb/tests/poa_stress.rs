//! Tests of the POA under load, with several kinds of operation at the same time.
#![allow(clippy::disallowed_types, reason = "a test may lock as it likes")]

mod poa;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corelane::poa::*;
use corelane::{Servant, SystemException, SystemExceptionKind as Kind};
use poa::*;

const TIME: Duration = Duration::from_secs(2);

/// Time after which a test ends even if the situation under test has not occurred.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns true while a test must continue: for `time`, and then until the situation under test has occurred, for at
/// most [`PATIENCE`].
fn goes_on(begin: Instant, time: Duration, has_met: bool) -> bool {
    let so_far = begin.elapsed();
    so_far < time || (!has_met && so_far < PATIENCE)
}

#[derive(Default)]
struct Life {
    living: AtomicUsize,
    etherealized: AtomicUsize,
    incarnated: AtomicUsize,
    present: Mutex<HashSet<ObjectId>>,
}

struct Living(Arc<Life>, AtomicBool, AtomicUsize);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.living.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Maker {
    life: Arc<Life>,
    made: Mutex<Vec<(Servant, Arc<Living>)>>,
}

impl Maker {
    fn make(&self) -> Servant {
        self.life.living.fetch_add(1, Ordering::SeqCst);
        let living = Arc::new(Living(Arc::clone(&self.life), AtomicBool::new(false), AtomicUsize::new(0)));
        let own = Arc::clone(&living);
        let servant = servant(move || {
            own.2.fetch_add(1, Ordering::SeqCst);
            assert!(!own.1.load(Ordering::SeqCst), "a request must not run after the etherealization of its servant");
            std::thread::yield_now();
            assert!(!own.1.load(Ordering::SeqCst), "a servant must not be etherealized while its request runs");
            own.2.fetch_sub(1, Ordering::SeqCst);
            Ok(1)
        });
        self.made.lock().unwrap().push((servant.clone(), living));
        servant
    }
}

impl ServantActivator for Maker {
    fn incarnate(&self, id: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        self.life.incarnated.fetch_add(1, Ordering::SeqCst);
        assert!(self.life.present.lock().unwrap().insert(id.clone()), "an object must not be incarnated twice");
        Ok(Some(self.make()))
    }

    fn etherealize(&self, id: &ObjectId, _: &Poa, servant: &Servant, _: bool, remaining: bool) {
        assert!(!remaining);
        self.life.etherealized.fetch_add(1, Ordering::SeqCst);
        let mut made = self.made.lock().unwrap();
        let at = made.iter().position(|(of, _)| of == servant).unwrap();
        let (_, living) = made.swap_remove(at);
        living.1.store(true, Ordering::SeqCst);
        assert_eq!(living.2.load(Ordering::SeqCst), 0, "expected that no request runs in an etherealized servant");
        assert!(self.life.present.lock().unwrap().remove(id), "an object must not be etherealized twice");
    }
}

#[test]
fn deactivation_against_calls_with_a_servant_activator() {
    let world = World::new();
    for lifespan in [Lifespan::Transient, Lifespan::Persistent] {
        let poa = world.poa("p", PoaPolicies { lifespan, ..ACTIVATOR });
        let maker = Arc::new(Maker::default());
        poa.set_servant_manager(ServantManager::Activator(Arc::clone(&maker) as _)).unwrap();
        let ids = ["a", "b", "c"].map(ObjectId::from);
        let begin = Instant::now();
        let calls = AtomicUsize::new(0);
        let life = &maker.life;
        let has_met = || {
            let made = life.incarnated.load(Ordering::SeqCst);
            made > 100 && calls.load(Ordering::SeqCst) > made
        };
        let runs = &|| goes_on(begin, TIME / 2, has_met());
        std::thread::scope(|scope| {
            for way in WAYS {
                let (world, poa, ids, calls) = (&world, &poa, &ids, &calls);
                scope.spawn(move || {
                    let objects = ids.clone().map(|id| {
                        let object = poa.create_reference_with_id(&id, VALUE).unwrap();
                        if way == Way::Remote { world.remote(&object) } else { object }
                    });
                    while runs() {
                        for object in &objects {
                            let answer = if way == Way::Direct { call(object) } else { call_marshalled(object) };
                            assert_eq!(answer.unwrap(), 1);
                            calls.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while runs() {
                        for id in &ids {
                            // Another thread may have deactivated the object, so an error is
                            // ignored.
                            let _ = poa.deactivate_object(id);
                            std::thread::sleep(Duration::from_micros(50));
                        }
                    }
                });
            }
        });
        poa.destroy(true, true).unwrap();
        world.no_panics();
        let (made, ended) = (life.incarnated.load(Ordering::SeqCst), life.etherealized.load(Ordering::SeqCst));
        assert_eq!((made, life.living.load(Ordering::SeqCst)), (ended, 0));
        assert!(made > 100 && calls.load(Ordering::SeqCst) > made, "{made} of {calls:?}");
    }
}

#[test]
fn activation_and_deactivation_against_calls() {
    let world = World::new();
    for policies in [RETAINING, USER, PERSISTENT] {
        let poa = world.poa("p", policies);
        let id = if policies.id_assignment == IdAssignment::System {
            poa.reference_to_id(&poa.create_reference(VALUE).unwrap()).unwrap()
        } else {
            ObjectId::from("x")
        };
        let object = poa.create_reference_with_id(&id, VALUE).unwrap();
        let living = Arc::new(AtomicUsize::new(0));
        let (hits, misses) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let begin = Instant::now();
        let has_met = || hits.load(Ordering::SeqCst) > 100 && misses.load(Ordering::SeqCst) > 100;
        let runs = &|| goes_on(begin, TIME / 2, has_met());
        std::thread::scope(|scope| {
            for way in WAYS {
                let (world, object, hits, misses) = (&world, &object, &hits, &misses);
                scope.spawn(move || {
                    let object = if way == Way::Remote { world.remote(object) } else { object.clone() };
                    while runs() {
                        match if way == Way::Direct { call(&object) } else { call_marshalled(&object) } {
                            Ok(answer) => {
                                assert_eq!((answer, hits.fetch_add(1, Ordering::SeqCst) < usize::MAX), (1, true))
                            }
                            Err(exception) => {
                                assert_eq!(says(&exception), NO_OBJECT);
                                misses.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    }
                });
            }
            for _ in 0..2 {
                let (poa, id, living) = (&poa, &id, &living);
                scope.spawn(move || {
                    while runs() {
                        let own = Arc::clone(living);
                        let servant = servant(move || {
                            assert!(Arc::strong_count(&own) >= 2);
                            Ok(1)
                        });
                        match poa.activate_object_with_id(id, &servant) {
                            Ok(()) => {
                                assert_eq!(
                                    living.fetch_add(1, Ordering::SeqCst),
                                    0,
                                    "expected one activation at a time"
                                );
                                std::thread::yield_now();
                                living.fetch_sub(1, Ordering::SeqCst);
                                poa.deactivate_object(id).unwrap();
                            }
                            Err(PoaError::ObjectAlreadyActive) => std::thread::yield_now(),
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
        world.no_panics();
        assert_eq!(Arc::strong_count(&living), 1, "expected that every servant is dropped");
        assert!(hits.load(Ordering::SeqCst) > 100 && misses.load(Ordering::SeqCst) > 100, "{hits:?} {misses:?}");
        poa.destroy(true, true).unwrap();
    }
}

#[test]
fn destruction_and_new_creation_against_calls() {
    let world = World::new();
    let poa = world.poa("p", PERSISTENT);
    let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
    poa.destroy(true, true).unwrap();
    struct Again(AtomicUsize);
    impl AdapterActivator for Again {
        fn unknown_adapter(&self, parent: &Poa, name: &str) -> Result<bool, SystemException> {
            let policies = PoaPolicies { request_processing: RequestProcessing::ServantManager, ..PERSISTENT };
            match parent.create_poa(name, Some(parent.manager()), policies) {
                Ok(poa) => {
                    self.0.fetch_add(1, Ordering::SeqCst);
                    // The POA may be in destruction, so this call may fail.
                    let maker = ServantManager::Activator(Arc::new(Maker::default()));
                    Ok(poa.set_servant_manager(maker).is_ok())
                }
                Err(PoaError::AdapterAlreadyExists) => Ok(false),
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    let again = Arc::new(Again(AtomicUsize::new(0)));
    world.root.set_adapter_activator(Some(Arc::clone(&again) as _));
    let (hits, misses) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let begin = Instant::now();
    let has_met = || again.0.load(Ordering::SeqCst) > 100 && hits.load(Ordering::SeqCst) > 1000;
    let runs = &|| goes_on(begin, TIME, has_met());
    std::thread::scope(|scope| {
        for way in WAYS {
            let (world, object, hits, misses) = (&world, &object, &hits, &misses);
            scope.spawn(move || {
                let object = if way == Way::Remote { world.remote(object) } else { object.clone() };
                while runs() {
                    match if way == Way::Direct { call(&object) } else { call_marshalled(&object) } {
                        Ok(answer) => {
                            assert_eq!(answer, 1);
                            hits.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(exception) => {
                            let said = says(&exception);
                            assert!(said == NO_OBJECT || (said.0, said.1) == (Kind::Transient, 4), "{exception}");
                            misses.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut wait = false;
            while runs() {
                if let Ok(poa) = world.root.find_poa("p", false) {
                    poa.destroy(true, wait).unwrap();
                    wait = !wait;
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        });
    });
    world.no_panics();
    assert!(again.0.load(Ordering::SeqCst) > 100, "{:?} lives", again.0);
    assert!(hits.load(Ordering::SeqCst) > 1000, "{hits:?} hits, {misses:?} misses");
    world.server.shutdown(true).unwrap();
}

#[test]
fn shutdown_against_calls() {
    for wait in [true, false] {
        let world = World::new();
        let poa = world.poa("p", ACTIVATOR);
        let maker = Arc::new(Maker::default());
        poa.set_servant_manager(ServantManager::Activator(Arc::clone(&maker) as _)).unwrap();
        let object = poa.create_reference_with_id(&"x".into(), VALUE).unwrap();
        let busy = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for way in WAYS {
                let (world, object, busy) = (&world, object.clone(), &busy);
                scope.spawn(move || {
                    let object = if way == Way::Remote { world.remote(&object) } else { object };
                    for calls in 1.. {
                        match if way == Way::Direct { call(&object) } else { call_marshalled(&object) } {
                            Ok(answer) => assert_eq!(answer, 1),
                            Err(_) => return,
                        }
                        if calls == 10 {
                            busy.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            let begin = Instant::now();
            while goes_on(begin, Duration::from_millis(50), busy.load(Ordering::SeqCst) == WAYS.len()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            world.server.shutdown(wait).unwrap();
        });
        assert_eq!(busy.load(Ordering::SeqCst), WAYS.len());
        world.server.shutdown(true).unwrap();
        assert_eq!(maker.life.living.load(Ordering::SeqCst), 0);
        assert_eq!(maker.life.incarnated.load(Ordering::SeqCst), maker.life.etherealized.load(Ordering::SeqCst));
        world.no_panics();
    }
}

#[test]
fn a_slot_used_a_million_times_never_leads_an_old_reference_to_a_new_object() {
    let world = World::new();
    let servant = number(1);
    let first = world.root.activate(&servant).unwrap();
    world.root.deactivate_object(&world.root.reference_to_id(&first).unwrap()).unwrap();
    let slot = |id: &ObjectId| id.as_octets()[..4].to_vec();
    let mut seen = HashSet::new();
    let mut last = world.root.reference_to_id(&first).unwrap();
    for round in 0..1_000_000 {
        let id = world.root.activate_object(&servant).unwrap();
        assert_eq!(slot(&id), slot(&last), "expected that the slot is used again");
        assert_ne!(id, last);
        if round % 1000 == 0 {
            assert!(seen.insert(id.clone()));
        }
        world.root.deactivate_object(&id).unwrap();
        last = id;
    }
    let new = world.root.activate(&servant).unwrap();
    for way in WAYS {
        assert_eq!(world.call(way, &new).unwrap(), 1, "{way:?}");
        assert_eq!(refused(world.call(way, &first)), NO_OBJECT, "{way:?}");
    }
    for old in seen {
        assert_eq!(world.root.id_to_reference(&old).unwrap_err(), PoaError::ObjectNotActive);
    }
}
