//! Tests of the end of objects, POAs and ORBs: the threads that wait for the end, and the callbacks
//! that run during it.
#![allow(clippy::disallowed_types, reason = "a test may lock as it likes")]

mod poa;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use corelane::poa::*;
use corelane::{ObjectRef, Orb, Servant, SystemException};
use poa::*;

#[derive(Default)]
struct Counts(AtomicUsize);

impl ServantActivator for Counts {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        Ok(Some(number(1)))
    }
    fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a POA with an object that another thread has deactivated. Its `etherealize` call is
/// still queued for the main thread, which is the calling thread. `Counts` counts these calls.
fn deactivated_object(world: &World) -> (Poa, Arc<Counts>) {
    let manager = world.root.manager_factory().create_manager("main").unwrap();
    let policies = PoaPolicies { threading: Threading::MainThread, ..ACTIVATOR };
    let poa = world.root.create_poa("main", Some(&manager), policies).unwrap();
    let counts = Arc::new(Counts::default());
    poa.set_servant_manager(ServantManager::Activator(Arc::clone(&counts) as _)).unwrap();
    poa.activate_object_with_id(&"x".into(), &number(1)).unwrap();
    std::thread::scope(|scope| scope.spawn(|| poa.deactivate_object(&"x".into()).unwrap()).join().unwrap());
    assert_eq!(counts.0.load(Ordering::SeqCst), 0);
    (poa, counts)
}

#[test]
fn shutdown_ends_objects_that_wait_for_the_main_thread() {
    for elsewhere in [false, true] {
        let world = World::new();
        let (_poa, counts) = deactivated_object(&world);
        std::thread::scope(|scope| {
            let end = || world.server.shutdown(true).unwrap();
            if elsewhere { scope.spawn(end).join().unwrap() } else { end() }
        });
        assert_eq!(counts.0.load(Ordering::SeqCst), 1);
        world.no_panics();
    }
}

#[test]
fn main_thread_runs_the_deactivations_for_which_it_waits() {
    type Wait = fn(&Poa);
    let waits: [Wait; 3] = [
        |poa| poa.activate_object_with_id(&"x".into(), &number(2)).unwrap(),
        |poa| poa.destroy(true, true).unwrap(),
        |poa| poa.manager().deactivate(true, true).unwrap(),
    ];
    for wait in waits {
        let world = World::new();
        let (poa, counts) = deactivated_object(&world);
        wait(&poa);
        assert_eq!(counts.0.load(Ordering::SeqCst), 1);
        world.no_panics();
    }
}

/// The main thread waits for a servant. The servant waits for a deactivation that is queued for the
/// main thread, so the main thread must run the deactivation during its wait.
#[test]
fn main_thread_runs_deactivations_for_which_its_awaited_servant_waits() {
    let world = World::new();
    let (poa, counts) = deactivated_object(&world);
    let entered = Arc::new(AtomicUsize::new(0));
    let enters = Arc::clone(&entered);
    let waits = servant(move || {
        enters.fetch_add(1, Ordering::SeqCst);
        poa.activate_object_with_id(&"x".into(), &number(2)).map_err(|_| SystemException::bad_operation())?;
        Ok(1)
    });
    let object = world.root.activate(&waits).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| world.call(Way::Remote, &object));
        eventually(|| entered.load(Ordering::SeqCst) == 1);
        world.root.manager().hold_requests(true).unwrap();
        assert_eq!(running.join().unwrap().unwrap(), 1);
    });
    assert_eq!(counts.0.load(Ordering::SeqCst), 1);
    world.no_panics();
}

struct Last<F: Fn() + Send + Sync + 'static>(F);

impl<F: Fn() + Send + Sync + 'static> Drop for Last<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl<F: Fn() + Send + Sync + 'static> Value for Last<F> {
    fn value(&self) -> Result<i32, SystemException> {
        Ok(1)
    }
}

fn ends_with(last: impl Fn() + Send + Sync + 'static) -> Servant {
    let last = Last(last);
    servant(move || last.value())
}

#[test]
fn a_servant_may_own_its_orb() {
    for owned_by in ["object", "default servant", "plain key"] {
        let lives = Arc::new(());
        let core = Arc::downgrade(&lives);
        let events = move |_: &_| drop(Arc::clone(&lives));
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").on_event(events).build().unwrap();
        let handle = orb.shutdown_handle();
        let poa = orb.root_poa().create_poa("p", None, DEFAULT).unwrap();
        let orb = Arc::new(Mutex::new(Some(orb)));
        let bind = {
            let orb = Arc::clone(&orb);
            move |object: &_| orb.lock().unwrap().as_ref().unwrap().bind_corbaloc_key("X", object).unwrap()
        };
        let owner = ends_with(move || drop(orb.lock().unwrap().take()));
        if owned_by == "default servant" {
            poa.set_servant(&owner).unwrap();
        } else {
            poa.activate_object_with_id(&"x".into(), &owner).unwrap();
        }
        if owned_by == "plain key" {
            poa.manager().activate().unwrap();
            let direct = poa.id_to_reference(&"x".into()).unwrap().with_poa_bypass();
            assert_eq!(call(&direct).unwrap(), 1);
            bind(&direct);
        }
        drop((poa, owner, bind));
        handle.shutdown();
        eventually(|| core.strong_count() == 0);
    }
}

#[test]
fn shutdown_with_completion_waits_for_servants_on_other_threads() {
    let world = World::new();
    let (slow, counts) = (Slow::default(), Arc::new(Counts::default()));
    let poa = world.poa("p", ACTIVATOR);
    poa.set_servant_manager(ServantManager::Activator(Arc::clone(&counts) as _)).unwrap();
    poa.activate_object_with_id(&"x".into(), &slow.servant()).unwrap();
    let object = poa.id_to_reference(&"x".into()).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| call(&object));
        slow.wait_entered(1);
        world.server.shutdown(false).unwrap();
        let end = scope.spawn(|| {
            world.server.shutdown(true).unwrap();
            counts.0.load(Ordering::SeqCst)
        });
        a_while();
        assert!(!end.is_finished());
        slow.go_on();
        assert_eq!(end.join().unwrap(), 1);
        assert_eq!(running.join().unwrap().unwrap(), 1);
    });
}

struct Lends<F>(F);

impl<F: Fn() -> Servant + Send + Sync + 'static> ServantLocator for Lends<F> {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        Ok((Some((self.0)()), Box::new(())))
    }
    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        Ok(())
    }
}

fn lending(root: &Poa, lends: impl Fn() -> Servant + Send + Sync + 'static) -> ObjectRef {
    let poa = root.create_poa("lends", Some(root.manager()), LOCATOR).unwrap();
    poa.set_servant_manager(ServantManager::Locator(Arc::new(Lends(lends)))).unwrap();
    poa.create_reference_with_id(&"x".into(), VALUE).unwrap()
}

#[test]
fn the_drop_of_a_locators_servant_cannot_wait_for_the_orb() {
    let orb = Arc::new(Orb::new().unwrap());
    let (root, refusals) = (orb.root_poa(), Arc::new(Mutex::new(Vec::new())));
    root.manager().activate().unwrap();
    let (told, owner) = (Arc::clone(&refusals), Arc::downgrade(&orb));
    let object = lending(&root, move || {
        let (told, owner) = (Arc::clone(&told), owner.clone());
        ends_with(move || told.lock().unwrap().extend(owner.upgrade().map(|orb| refused(orb.shutdown(true)))))
    });
    assert_eq!((call(&object).unwrap(), call_marshalled(&object).unwrap()), (1, 1));
    let refusals = refusals.lock().unwrap();
    assert!(refusals.len() == 2 && refusals.iter().all(|(kind, minor, _)| (*kind, *minor) == UPCALL), "{refusals:?}");
}

/// The thread that ends the object's last request drops the servant, and the shutdown waits for
/// this thread. If the drop could wait for the ORB, the shutdown would never end.
#[test]
fn the_drop_of_a_servant_cannot_wait_for_the_orb() {
    let mut world = World::new();
    let orb = Arc::new(std::mem::replace(&mut world.server, Orb::new().unwrap()));
    let (slow, refusal) = (Slow::default(), Arc::new(Mutex::new(None)));
    let poa = orb.root_poa().create_poa("p", None, USER).unwrap();
    let (held, told, owner): (_, _, Weak<Orb>) = (slow.clone(), Arc::clone(&refusal), Arc::downgrade(&orb));
    let last = Last(move || *told.lock().unwrap() = owner.upgrade().map(|orb| refused(orb.shutdown(true))));
    let servant = servant(move || {
        held.stay();
        last.value()
    });
    poa.manager().activate().unwrap();
    poa.activate_object_with_id(&"x".into(), &servant).unwrap();
    drop(servant);
    let object = poa.id_to_reference(&"x".into()).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| call(&object));
        slow.wait_entered(1);
        let end = scope.spawn(|| orb.shutdown(true).unwrap());
        a_while();
        slow.go_on();
        assert_eq!(running.join().unwrap().unwrap(), 1);
        end.join().unwrap();
    });
    let (kind, minor, _) = refusal.lock().unwrap().take().unwrap();
    assert_eq!((kind, minor), UPCALL);
}

#[test]
fn a_panic_in_the_drop_of_a_servant_blocks_no_other_thread() {
    struct Fragile;
    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("the test makes this drop panic");
        }
    }
    impl ServantActivator for Fragile {
        fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
            Ok(None)
        }
        fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {}
    }
    impl AdapterActivator for Fragile {
        fn unknown_adapter(&self, _: &Poa, _: &str) -> Result<bool, SystemException> {
            Ok(false)
        }
    }
    fn fragile() -> Servant {
        let fragile = Fragile;
        servant(move || {
            let _kept = &fragile;
            Ok(1)
        })
    }
    let world = World::with_threads(1);
    let objects = world.poa("objects", USER);
    for id in ["x", "y"] {
        objects.activate_object_with_id(&id.into(), &fragile()).unwrap();
    }
    objects.deactivate_object(&"x".into()).unwrap();
    objects.activate_object_with_id(&"x".into(), &number(2)).unwrap();
    let default = world.poa("default", DEFAULT);
    default.set_servant(&fragile()).unwrap();
    let activator = world.poa("activator", ACTIVATOR);
    activator.set_servant_manager(ServantManager::Activator(Arc::new(Fragile))).unwrap();
    activator.set_adapter_activator(Some(Arc::new(Fragile)));
    for poa in [objects, default, activator] {
        poa.destroy(true, true).unwrap();
    }
    let panics = || world.server.event_counts().servants_panicked;
    assert_eq!(panics(), 5);
    let object = lending(&world.root, fragile);
    for way in WAYS {
        // The server has one thread. If a panic ended or blocked this thread, the second call would
        // get no reply.
        assert_eq!([world.call(way, &object).unwrap(), world.call(way, &object).unwrap()], [1, 1], "{way:?}");
    }
    eventually(|| panics() == 11);
    for name in ["plain key", "initial reference", "another initial reference"] {
        let id = world.root.activate_object(&fragile()).unwrap();
        let direct = world.root.id_to_reference(&id).unwrap().with_poa_bypass();
        assert_eq!(call(&direct).unwrap(), 1);
        match name {
            "plain key" => world.server.bind_corbaloc_key(name, &direct).unwrap(),
            _ => world.server.register_initial_reference(name, &direct).unwrap(),
        }
        drop(direct);
        world.root.deactivate_object(&id).unwrap();
    }
    world.root.activate(&fragile()).unwrap();
    assert_eq!(panics(), 11);
    world.server.shutdown(true).unwrap();
    assert_eq!(panics(), 15);
}
