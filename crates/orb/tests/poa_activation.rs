//! Tests of activation, and of the conversions between servants, ids and references (CORBA 3.0.3,
//! section 11.3.8).
#![allow(clippy::disallowed_types, reason = "a test may lock as it likes")]

mod poa;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use corelane::poa::*;
use corelane::{Completion, Servant, SystemException, SystemExceptionKind as Kind, current};
use poa::*;

struct Never;

impl ServantActivator for Never {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        Err(ServantManagerError::no_such_object())
    }
    fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {}
}

impl ServantLocator for Never {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        Err(ServantManagerError::no_such_object())
    }
    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        Ok(())
    }
}

#[track_caller]
fn wrong<T: Debug>(result: Result<T, PoaError>, allowed: bool, what: &str, policies: &PoaPolicies) {
    let refused = matches!(result, Err(PoaError::WrongPolicy));
    assert_eq!(refused, !allowed, "{what}: {result:?} with {policies:?}");
}

#[test]
fn operations_are_permitted_by_the_policies_of_the_specification() {
    let world = World::new();
    let foreign = world.root.activate(&number(1)).unwrap();
    for (number_of, policies) in legal_policies().into_iter().enumerate() {
        let poa = world.poa(&format!("p{number_of}"), policies);
        let p = &policies;
        let retain = p.servant_retention == ServantRetention::Retain;
        let system = p.id_assignment == IdAssignment::System;
        let default = p.request_processing == RequestProcessing::DefaultServant;
        let manager = p.request_processing == RequestProcessing::ServantManager;
        let knows = retain
            && (p.id_uniqueness == IdUniqueness::Unique || p.implicit_activation == ImplicitActivation::Implicit);
        let id = ObjectId::from("some");
        wrong(poa.servant_manager(), manager, "servant_manager", p);
        let right: [ServantManager; 2] =
            [ServantManager::Activator(Arc::new(Never)), ServantManager::Locator(Arc::new(Never))];
        let [right, not_right] = if retain { right } else { [right[1].clone(), right[0].clone()] };
        wrong(poa.set_servant_manager(not_right.clone()), manager, "set_servant_manager", p);
        if manager {
            assert_eq!(refused_by(poa.set_servant_manager(not_right)), (Kind::ObjAdapter, 4));
            assert!(poa.servant_manager().unwrap().is_none());
            poa.set_servant_manager(right.clone()).unwrap();
            assert_eq!(refused_by(poa.set_servant_manager(right)), (Kind::BadInvOrder, 6));
            assert!(poa.servant_manager().unwrap().is_some());
        }
        wrong(poa.servant(), default, "servant", p);
        wrong(poa.set_servant(&number(1)), default, "set_servant", p);
        wrong(poa.activate_object(&number(1)), retain && system, "activate_object", p);
        wrong(poa.activate_object_with_id(&id, &number(1)), retain, "activate_object_with_id", p);
        wrong(poa.deactivate_object(&ObjectId::from("other")), retain, "deactivate_object", p);
        wrong(poa.create_reference(VALUE), system, "create_reference", p);
        wrong(poa.create_reference_with_id(&id, VALUE), true, "create_reference_with_id", p);
        wrong(poa.servant_to_id(&number(1)), default || knows, "servant_to_id", p);
        wrong(poa.servant_to_reference(&number(1)), knows, "servant_to_reference", p);
        wrong(poa.reference_to_servant(&foreign), retain || default, "reference_to_servant", p);
        wrong(poa.id_to_servant(&id), retain || default, "id_to_servant", p);
        wrong(poa.id_to_reference(&id), retain, "id_to_reference", p);
        assert_eq!(poa.reference_to_id(&foreign).unwrap_err(), PoaError::WrongAdapter);
        if retain || default {
            assert_eq!(poa.reference_to_servant(&foreign).unwrap_err(), PoaError::WrongAdapter);
        }
        if system {
            assert_eq!(refused_by(poa.create_reference_with_id(&id, VALUE)), (Kind::BadParam, 14));
            if retain {
                assert_eq!(refused_by(poa.activate_object_with_id(&id, &number(1))), (Kind::BadParam, 14));
            }
        }
        if retain {
            let unknown = ObjectId::from("unknown");
            assert_eq!(poa.deactivate_object(&unknown).unwrap_err(), PoaError::ObjectNotActive);
            assert_eq!(poa.id_to_reference(&unknown).unwrap_err(), PoaError::ObjectNotActive);
            assert_eq!(poa.id_to_servant(&unknown).is_ok(), default);
        }
        if (default || knows) && p.implicit_activation == ImplicitActivation::Explicit {
            assert_eq!(poa.servant_to_id(&number(1)).unwrap_err(), PoaError::ServantNotActive);
        }
    }
}

#[test]
fn id_uniqueness_limits_the_activations_of_a_servant() {
    let world = World::new();
    for policies in
        legal_policies().into_iter().filter(|policies| policies.servant_retention == ServantRetention::Retain)
    {
        let poa = world.poa("p", policies);
        if policies.request_processing == RequestProcessing::ServantManager {
            poa.set_servant_manager(ServantManager::Activator(Arc::new(Never))).unwrap();
        }
        let servant = number(1);
        let system = policies.id_assignment == IdAssignment::System;
        let new_id = |name: &str| match system {
            true => poa.reference_to_id(&poa.create_reference(VALUE).unwrap()).unwrap(),
            false => ObjectId::from(name),
        };
        let unique = policies.id_uniqueness == IdUniqueness::Unique;
        let (first, second) = (new_id("first"), new_id("second"));
        poa.activate_object_with_id(&first, &servant).unwrap();
        assert_eq!(poa.activate_object_with_id(&first, &number(2)).unwrap_err(), PoaError::ObjectAlreadyActive);
        let again = poa.activate_object_with_id(&second, &servant);
        assert_eq!(again, if unique { Err(PoaError::ServantAlreadyActive) } else { Ok(()) });
        if system {
            let third = poa.activate_object(&servant);
            assert_eq!(third.is_err(), unique);
            let (a, b) = (poa.activate_object(&number(3)).unwrap(), poa.activate_object(&number(4)).unwrap());
            assert_ne!(a, b);
            let object = poa.id_to_reference(&a).unwrap();
            assert_eq!(world.call(Way::Remote, &object).unwrap(), 3);
            for answer in 10..13 {
                poa.deactivate_object(&a).unwrap();
                assert_eq!(
                    refused(world.call(Way::Remote, &object)).0,
                    if policies.request_processing == RequestProcessing::DefaultServant {
                        Kind::ObjAdapter
                    } else {
                        Kind::ObjectNotExist
                    }
                );
                poa.activate_object_with_id(&a, &number(answer)).unwrap();
                for way in WAYS {
                    assert_eq!(world.call(way, &object).unwrap(), answer, "{policies:?}");
                }
            }
        }
        assert_eq!(poa.id_to_servant(&first).unwrap(), servant);
        assert_eq!(poa.reference_to_servant(&poa.id_to_reference(&first).unwrap()).unwrap(), servant);
        if unique {
            assert_eq!(poa.servant_to_id(&servant).unwrap(), first);
            assert_eq!(poa.reference_to_id(&poa.servant_to_reference(&servant).unwrap()).unwrap(), first);
        }
        poa.deactivate_object(&first).unwrap();
        assert_eq!(poa.deactivate_object(&first).unwrap_err(), PoaError::ObjectNotActive);
        if unique {
            poa.activate_object_with_id(&second, &servant).unwrap();
        }
        poa.destroy(true, true).unwrap();
    }
}

#[test]
fn use_of_a_servant_activates_it_with_implicit_activation() {
    let world = World::new();
    for lifespan in [Lifespan::Transient, Lifespan::Persistent] {
        for id_uniqueness in [IdUniqueness::Unique, IdUniqueness::Multiple] {
            let poa = world.poa("p", PoaPolicies { lifespan, id_uniqueness, ..PoaPolicies::ROOT_POA });
            let servant = number(4);
            let first = poa.servant_to_reference(&servant).unwrap();
            let second = poa.servant_to_reference(&servant).unwrap();
            let id = poa.servant_to_id(&servant).unwrap();
            assert_eq!(world.call(Way::Remote, &first).unwrap(), 4);
            let unique = id_uniqueness == IdUniqueness::Unique;
            assert_eq!(first.is_equivalent(&second), unique);
            assert_eq!(poa.reference_to_id(&first).unwrap() == id, unique);
            poa.destroy(true, true).unwrap();
        }
    }
}

#[test]
fn running_servant_finds_its_object() {
    let world = World::new();
    let both: Arc<Mutex<Option<(Poa, Servant)>>> = Arc::default();
    let look = |both: &Arc<Mutex<Option<(Poa, Servant)>>>| {
        let both = Arc::clone(both);
        servant(move || {
            let (poa, servant) = both.lock().unwrap().clone().unwrap();
            let object = poa.servant_to_reference(&servant).unwrap();
            assert_eq!(poa.reference_to_id(&object).unwrap(), current().unwrap().object_id);
            if poa.policies().request_processing == RequestProcessing::DefaultServant {
                assert_eq!(poa.servant_to_id(&servant).unwrap(), current().unwrap().object_id);
            }
            Ok(1)
        })
    };
    let multiple = PoaPolicies { id_uniqueness: IdUniqueness::Multiple, ..USER };
    let non_retain = PoaPolicies { servant_retention: ServantRetention::NonRetain, ..DEFAULT };
    for (name, policies) in [("a", DEFAULT), ("b", non_retain), ("c", multiple)] {
        let poa = world.poa(name, policies);
        let servant = look(&both);
        *both.lock().unwrap() = Some((poa.clone(), servant.clone()));
        if name == "c" {
            poa.activate_object_with_id(&"me".into(), &servant).unwrap();
            poa.activate_object_with_id(&"too".into(), &servant).unwrap();
        } else {
            poa.set_servant(&servant).unwrap();
        }
        assert_eq!(poa.servant_to_reference(&servant).unwrap_err(), PoaError::WrongPolicy);
        for id in ["me", "too"] {
            let object = poa.create_reference_with_id(&id.into(), VALUE).unwrap();
            for way in WAYS {
                assert_eq!(world.call(way, &object).unwrap(), 1, "{name} {way:?}");
            }
        }
    }
}

#[test]
fn system_ids_of_other_poas_and_of_the_future_are_foreign() {
    let world = World::new();
    for lifespan in [Lifespan::Transient, Lifespan::Persistent] {
        let policies = PoaPolicies { lifespan, ..RETAINING };
        let (a, b) = (world.poa("a", policies), world.poa("b", policies));
        let id = |poa: &Poa| poa.reference_to_id(&poa.create_reference(VALUE).unwrap()).unwrap();
        let (from_a, from_b) = (id(&a), (id(&b), id(&b)).1);
        assert_eq!(refused_by(a.activate_object_with_id(&from_b, &number(1))), (Kind::BadParam, 14));
        a.activate_object_with_id(&from_a, &number(1)).unwrap();
        let active = a.activate_object(&number(2)).unwrap();
        let mut next = active.as_octets().to_vec();
        *next.last_mut().unwrap() += 1;
        assert_eq!(refused_by(a.activate_object_with_id(&next[..].into(), &number(3))), (Kind::BadParam, 14));
        for poa in [a, b] {
            poa.destroy(true, true).unwrap();
        }
    }
}

#[derive(Default)]
struct Keeper {
    told: Mutex<Vec<(ObjectId, bool, bool)>>,
    slow: Mutex<Option<Slow>>,
    inside: AtomicBool,
}

impl Keeper {
    fn only_one(&self) {
        assert!(
            !self.inside.swap(true, Ordering::SeqCst),
            "incarnate and etherealize must never overlap for one object"
        );
    }
}

impl ServantActivator for Keeper {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        self.only_one();
        std::thread::yield_now();
        self.inside.store(false, Ordering::SeqCst);
        Ok(Some(number(100)))
    }

    fn etherealize(&self, id: &ObjectId, poa: &Poa, servant: &Servant, cleanup: bool, remaining: bool) {
        self.only_one();
        let slow = self.slow.lock().unwrap().clone();
        if let Some(slow) = slow {
            slow.stay();
        }
        assert_eq!(poa.deactivate_object(id).unwrap_err(), PoaError::ObjectNotActive);
        assert_eq!(poa.activate_object_with_id(id, servant).unwrap_err(), PoaError::ObjectAlreadyActive);
        self.told.lock().unwrap().push((id.clone(), cleanup, remaining));
        self.inside.store(false, Ordering::SeqCst);
    }
}

fn kept(world: &World, policies: PoaPolicies) -> (Poa, Arc<Keeper>) {
    let poa = world.poa("kept", policies);
    let keeper = Arc::new(Keeper::default());
    poa.set_servant_manager(ServantManager::Activator(Arc::clone(&keeper) as _)).unwrap();
    (poa, keeper)
}

#[test]
fn deactivation_takes_effect_after_the_running_requests() {
    let world = World::new();
    for way in WAYS {
        let (poa, keeper) = kept(&world, ACTIVATOR);
        let slow = Slow::default();
        let id = ObjectId::from("x");
        poa.activate_object_with_id(&id, &slow.servant()).unwrap();
        let object = poa.id_to_reference(&id).unwrap();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| world.call(way, &object));
            slow.wait_entered(1);
            poa.deactivate_object(&id).unwrap();
            assert_eq!(poa.deactivate_object(&id).unwrap_err(), PoaError::ObjectNotActive);
            assert_eq!(poa.id_to_reference(&id).unwrap_err(), PoaError::ObjectNotActive);
            // The six waiting calls occupy none of the server's four threads, so the call of another object runs.
            let waiting: Vec<_> = (0..6).map(|_| scope.spawn(|| world.call(Way::Remote, &object))).collect();
            let local = scope.spawn(|| world.call(Way::Direct, &object));
            a_while();
            assert!(!local.is_finished() && waiting.iter().all(|call| !call.is_finished()));
            let free = world.root.activate(&number(9)).unwrap();
            assert_eq!(world.call(Way::Remote, &free).unwrap(), 9);
            assert!(keeper.told.lock().unwrap().is_empty());
            slow.go_on();
            assert_eq!(running.join().unwrap().unwrap(), 1);
            for call in waiting.into_iter().chain([local]) {
                assert_eq!(call.join().unwrap().unwrap(), 100, "expected the reply of a new servant");
            }
        });
        assert_eq!(*keeper.told.lock().unwrap(), [(id, false, false)]);
        poa.destroy(false, true).unwrap();
    }
}

#[test]
fn activation_waits_for_the_deactivation_to_end() {
    let world = World::new();
    for policies in [USER, RETAINING, PERSISTENT, ACTIVATOR] {
        let poa = world.poa("p", policies);
        let slow = Slow::default();
        let id = if policies.id_assignment == IdAssignment::System {
            poa.activate_object(&slow.servant()).unwrap()
        } else {
            poa.activate_object_with_id(&"x".into(), &slow.servant()).unwrap();
            ObjectId::from("x")
        };
        let object = poa.id_to_reference(&id).unwrap();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| world.call(Way::Remote, &object));
            slow.wait_entered(1);
            poa.deactivate_object(&id).unwrap();
            let activation = scope.spawn(|| poa.activate_object_with_id(&id, &number(2)));
            a_while();
            assert!(!activation.is_finished());
            if policies.request_processing == RequestProcessing::ActiveObjectMapOnly {
                assert_eq!(refused(world.call(Way::Remote, &object)), NO_OBJECT);
            }
            slow.go_on();
            assert_eq!(running.join().unwrap().unwrap(), 1);
            activation.join().unwrap().unwrap();
        });
        assert_eq!(world.call(Way::Remote, &object).unwrap(), 2);
        poa.destroy(true, true).unwrap();
    }
}

#[test]
fn an_upcall_cannot_wait_for_its_own_deactivation() {
    let world = World::new();
    let (poa, keeper) = kept(&world, ACTIVATOR);
    let own = poa.clone();
    let itself = servant(move || {
        let current = current().unwrap();
        let servant = current.servant().unwrap().clone();
        let object = own.id_to_reference(&current.object_id).unwrap();
        own.deactivate_object(&current.object_id).unwrap();
        assert_eq!(
            own.activate_object_with_id(&current.object_id, &servant).unwrap_err(),
            PoaError::ObjectAlreadyActive
        );
        assert_eq!(refused(call(&object)), (Kind::Transient, 1, Completion::No));
        assert_eq!(refused(call_marshalled(&object)), (Kind::Transient, 1, Completion::No));
        Ok(3)
    });
    for way in WAYS {
        poa.activate_object_with_id(&"x".into(), &itself).unwrap();
        let object = poa.id_to_reference(&"x".into()).unwrap();
        assert_eq!(world.call(way, &object).unwrap(), 3, "{way:?}");
        poa.deactivate_object(&"x".into()).unwrap_err();
    }
    assert_eq!(keeper.told.lock().unwrap().len(), 3);
    world.no_panics();
}

#[test]
fn requests_wait_for_the_etherealization_too() {
    let world = World::new();
    let (poa, keeper) = kept(&world, ACTIVATOR);
    let slow = Slow::default();
    *keeper.slow.lock().unwrap() = Some(slow.clone());
    poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
    let object = poa.id_to_reference(&"x".into()).unwrap();
    std::thread::scope(|scope| {
        let deactivation = scope.spawn(|| poa.deactivate_object(&"x".into()));
        slow.wait_entered(1);
        let calls = WAYS.map(|way| {
            scope.spawn({
                let (w, o) = (&world, &object);
                move || w.call(way, o)
            })
        });
        a_while();
        assert!(calls.iter().all(|call| !call.is_finished()));
        slow.go_on();
        deactivation.join().unwrap().unwrap();
        for call in calls {
            assert_eq!(call.join().unwrap().unwrap(), 100);
        }
    });
}

#[test]
fn remaining_activations_are_counted() {
    let world = World::new();
    let (poa, keeper) = kept(&world, PoaPolicies { id_uniqueness: IdUniqueness::Multiple, ..ACTIVATOR });
    let servant = number(1);
    for id in ["a", "b", "c"] {
        poa.activate_object_with_id(&id.into(), &servant).unwrap();
    }
    for id in ["a", "b", "c"] {
        poa.deactivate_object(&id.into()).unwrap();
    }
    let expected = [("a", true), ("b", true), ("c", false)].map(|(id, remaining)| (id.into(), false, remaining));
    assert_eq!(*keeper.told.lock().unwrap(), expected);
    world.no_panics();
}
