//! What keeps an ORB's inside alive, and what its threads may do to it.

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use corelane_sys::lock::{Mutex, Scope};

use super::{Core, Orb};
use crate::exception::{SystemException, SystemExceptionKind as Kind};
use crate::mapping::Operation;
use crate::object::ObjectRef;
use crate::poa::{
    AdapterActivator, Cookie, IdUniqueness, ObjectId, Poa, PoaPolicies, RequestProcessing, ServantLocator,
    ServantManager, ServantResult, ServantRetention,
};
use crate::servant::{Servant, ServerCall, Skeleton};
use crate::server::config::{Dispatch, PoolConfig};

/// Longer than anything here takes on the slowest machine; a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A servant whose only operation is a closure, and which keeps something until it is dropped.
struct Does<F, K>(F, #[allow(dead_code, reason = "kept to be dropped")] K);

impl<F: Fn() + Send + Sync + 'static, K: Send + Sync + 'static> Skeleton for Does<F, K> {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:test/Does:1.0"]
    }

    fn dispatch(&self, operation: &[u8], _call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        if operation != b"do" {
            return Err(SystemException::bad_operation());
        }
        (self.0)();
        Ok(())
    }
}

fn does(act: impl Fn() + Send + Sync + 'static) -> Servant {
    Servant::new(Does(act, ()))
}

fn keeps(kept: impl Send + Sync + 'static) -> Servant {
    Servant::new(Does(|| {}, kept))
}

fn call(object: &ObjectRef) -> Result<(), SystemException> {
    static DO: Operation = Operation::new("do");
    object.invoke(&DO, &|_| Ok(())).map(drop)
}

fn serving(dispatch: Dispatch) -> Orb {
    let orb = Orb::builder().pool(PoolConfig { dispatch, ..PoolConfig::default() }).listen("tcp:127.0.0.1:0");
    let orb = orb.build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

/// Another ORB's reference to an object of `orb`.
fn from_afar(object: &ObjectRef) -> (Orb, ObjectRef) {
    let client = Orb::new().unwrap();
    let reference = client.string_to_object(&object.to_string()).unwrap().unwrap();
    (client, reference)
}

/// Waits until nothing keeps the inside: neither a thread nor a table.
fn gone(core: &Weak<Core>) {
    let began = Instant::now();
    while core.strong_count() > 0 {
        assert!(began.elapsed() < PATIENCE, "{} still keep the inside of the ORB", core.strong_count());
        std::thread::sleep(Duration::from_millis(1));
    }
}

const EVERY_DISPATCH: [Dispatch; 4] = [
    Dispatch::Reactive,
    Dispatch::ThreadPerConnection { most: 4 },
    Dispatch::LeaderFollowers { threads: 3 },
    Dispatch::HalfSyncHalfAsync { threads: 2, queue: 8 },
];

/// An ORB, for whoever is to drop it.
type Owned = Arc<Mutex<Option<Orb>>>;

fn owned() -> Owned {
    Arc::new(Mutex::new("an ORB", Scope::Orb, None))
}

fn drop_it(owned: &Owned) {
    let orb = owned.lock().take();
    drop(orb);
}

#[test]
fn an_orb_dropped_in_its_own_upcall_ends_behind_it() {
    for dispatch in EVERY_DISPATCH {
        let orb = serving(dispatch);
        let core = Arc::downgrade(orb.core());
        let owner = owned();
        let servant = does({
            let owner = Arc::clone(&owner);
            move || drop_it(&owner)
        });
        let (client, object) = from_afar(&orb.root_poa().activate(&servant).unwrap());
        *owner.lock() = Some(orb);
        // The request that ends its ORB is answered.
        call(&object).unwrap_or_else(|exception| panic!("{dispatch:?}: {exception}"));
        gone(&core);
        drop(client);
    }
}

#[test]
fn an_orb_dropped_with_a_servant_on_a_thread_of_its_own_ends_behind_it() {
    for dispatch in EVERY_DISPATCH {
        let orb = serving(dispatch);
        let core = Arc::downgrade(orb.core());
        let owner = owned();
        let poa = orb.root_poa();
        let id = Arc::new(OnceLock::new());
        // The object is deactivated by its own request: its servant goes when that is done, outside of any upcall.
        let servant = Servant::new(Does(
            {
                let (poa, id) = (poa.clone(), Arc::clone(&id));
                move || poa.deactivate_object(id.get().unwrap()).unwrap()
            },
            Arc::clone(&owner),
        ));
        let _ = id.set(poa.activate_object(&servant).unwrap());
        let (client, object) = from_afar(&poa.id_to_reference(id.get().unwrap()).unwrap());
        *owner.lock() = Some(orb);
        drop((owner, servant, poa));
        // The ORB may cut the connection before the answer is out: this is its servant's own doing.
        let _ = call(&object);
        gone(&core);
        drop(client);
    }
}

#[test]
fn an_orb_dropped_by_its_event_handler_ends_behind_it() {
    let owner = owned();
    let handler = Arc::clone(&owner);
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").on_event(move |_| drop_it(&handler)).build().unwrap();
    let core = Arc::downgrade(orb.core());
    let crate::Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    *owner.lock() = Some(orb);
    let mut peer = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::io::Write::write_all(&mut peer, b"this is no GIOP").unwrap();
    gone(&core);
}

/// A locator and adapter activator that keeps what it is given.
struct Keeper(#[allow(dead_code, reason = "kept to be dropped")] Mutex<Vec<Box<dyn Any + Send>>>);

impl ServantLocator for Keeper {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        Ok((Some(does(|| {})), Box::new(())))
    }

    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        Ok(())
    }
}

impl AdapterActivator for Keeper {
    fn unknown_adapter(&self, _: &Poa, _: &str) -> Result<bool, SystemException> {
        Ok(false)
    }
}

fn keeper(kept: impl Any + Send) -> Arc<Keeper> {
    Arc::new(Keeper(Mutex::new("kept", Scope::Orb, vec![Box::new(kept)])))
}

#[test]
fn nothing_that_an_orb_was_given_keeps_its_inside_alive() {
    let orb = serving(Dispatch::LeaderFollowers { threads: 2 });
    let core = Arc::downgrade(orb.core());
    let root = orb.root_poa();
    let object = root.activate(&does(|| {})).unwrap();
    let (client, afar) = from_afar(&object);
    call(&afar).unwrap();

    orb.register_initial_reference("Self", &object).unwrap();
    orb.bind_key("self", &object).unwrap();
    root.activate(&keeps((object.clone(), root.clone()))).unwrap();
    root.set_activator(Some(keeper((object.clone(), root.clone()))));
    let policies = PoaPolicies {
        servant_retention: ServantRetention::NonRetain,
        request_processing: RequestProcessing::ServantManager,
        ..PoaPolicies::default()
    };
    let located = root.create_poa("located", Some(root.manager()), policies).unwrap();
    let manager = keeper((object.clone(), located.clone()));
    located.set_servant_manager(ServantManager::Locator(Arc::clone(&manager) as Arc<dyn ServantLocator>)).unwrap();
    let forgotten = Arc::downgrade(&manager);
    drop(manager);
    let policies = PoaPolicies {
        id_uniqueness: IdUniqueness::Multiple,
        request_processing: RequestProcessing::DefaultServant,
        ..PoaPolicies::default()
    };
    let default = root.create_poa("default", Some(root.manager()), policies).unwrap();
    default.set_servant(&keeps((object.clone(), default.clone()))).unwrap();
    let own = located.create_reference("IDL:test/Does:1.0").unwrap();
    call(&own).unwrap();
    assert!(core.strong_count() > 1);

    drop(orb);
    // A reference that is still here keeps nothing but itself.
    assert_eq!(call(&object).unwrap_err().kind(), Kind::BadInvOrder);
    drop((object, own, located, default));
    gone(&core);
    assert_eq!(forgotten.strong_count(), 0);
    drop((root, client));
}

#[test]
fn an_orb_that_has_ended_takes_nothing_that_would_keep_it() {
    let orb = Orb::new().unwrap();
    let core = Arc::downgrade(orb.core());
    let object = orb.root_poa().create_reference("IDL:test/Does:1.0").unwrap();
    let root = orb.root_poa();
    orb.shutdown(true).unwrap();
    let refused = [orb.register_initial_reference("Late", &object), orb.bind_key("late", &object)];
    for refused in refused {
        let refused = refused.unwrap_err();
        assert_eq!((refused.kind(), refused.minor()), (Kind::BadInvOrder, 0x4f4d_0004));
    }
    root.set_activator(Some(keeper((object.clone(), root.clone()))));
    drop((orb, object, root));
    gone(&core);
}

#[test]
fn equivalent_references_share_a_hash_that_keeps_its_bound() {
    let (orb, other) = (Orb::new().unwrap(), Orb::new().unwrap());
    let text = |key: u32| format!("corbaloc::1.2@127.0.0.1:4000/{key}");
    let object = |orb: &Orb, key| orb.string_to_object(&text(key)).unwrap().unwrap();
    let mut hashes = std::collections::HashSet::new();
    for key in 0..100 {
        let (here, there) = (object(&orb, key), object(&other, key));
        assert!(here.is_equivalent(&there));
        for maximum in [0, 1, 6, 1000, u32::MAX] {
            assert_eq!(here.hash_value(maximum), there.hash_value(maximum));
            assert!(here.hash_value(maximum) <= maximum);
        }
        hashes.insert(here.hash_value(u32::MAX));
    }
    assert!(hashes.len() > 90, "other references have other hashes");
}
