//! Tests of the lifetime of an ORB's internal state, and of shutdowns from the ORB's own threads.

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use corelane_sys::lock::{LockScope, Mutex};

use super::Orb;
use crate::exception::{SystemException, SystemExceptionKind as Kind};
use crate::mapping::Operation;
use crate::object::ObjectRef;
use crate::poa::{
    AdapterActivator, Cookie, IdUniqueness, ObjectId, Poa, PoaPolicies, RequestProcessing, ServantLocator,
    ServantManager, ServantResult, ServantRetention,
};
use crate::servant::{Servant, ServerCall, Skeleton};
use crate::server::config::{Dispatch, PoolConfig};
use crate::server_context::ServerContext;

const PATIENCE: Duration = Duration::from_secs(60);

/// A servant that runs the closure in its first field. Its second field lives as long as the
/// servant.
struct ClosureServant<F, K>(F, #[allow(dead_code, reason = "kept to be dropped")] K);

impl<F: Fn() + Send + Sync + 'static, K: Send + Sync + 'static> Skeleton for ClosureServant<F, K> {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:test/ClosureServant:1.0"]
    }

    fn dispatch(&self, operation: &[u8], _call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        if operation != b"do" {
            return Err(SystemException::bad_operation());
        }
        (self.0)();
        Ok(())
    }
}

fn closure_servant(act: impl Fn() + Send + Sync + 'static) -> Servant {
    Servant::new(ClosureServant(act, ()))
}

fn keeps(kept: impl Send + Sync + 'static) -> Servant {
    Servant::new(ClosureServant(|| {}, kept))
}

fn call(object: &ObjectRef) -> Result<(), SystemException> {
    static DO: Operation = Operation::new("do");
    object.invoke(&DO, &|_| Ok(())).map(drop)
}

fn serving(dispatch: Dispatch) -> Orb {
    let orb = Orb::builder().pool(PoolConfig::default().dispatch(dispatch)).listen("tcp:127.0.0.1:0");
    let orb = orb.build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

fn client_with_reference(object: &ObjectRef) -> (Orb, ObjectRef) {
    let client = Orb::new().unwrap();
    let reference = client.string_to_object(&object.to_string()).unwrap().unwrap();
    (client, reference)
}

fn wait_until_dropped(server: &Weak<ServerContext>) {
    let began = Instant::now();
    while server.strong_count() > 0 {
        assert!(began.elapsed() < PATIENCE, "{} owners still keep the ORB's internal state", server.strong_count());
        std::thread::sleep(Duration::from_millis(1));
    }
}

const EVERY_DISPATCH: [Dispatch; 4] = [
    Dispatch::Reactive,
    Dispatch::ThreadPerConnection { max_threads: 4 },
    Dispatch::LeaderFollowers { threads: 3 },
    Dispatch::HalfSyncHalfAsync { threads: 2, max_queued: 8 },
];

type Owned = Arc<Mutex<Option<Orb>>>;

fn owned() -> Owned {
    Arc::new(Mutex::new("an ORB", LockScope::Orb, None))
}

fn drop_it(owned: &Owned) {
    let orb = owned.lock().take();
    drop(orb);
}

#[test]
fn orb_dropped_in_its_own_upcall_shuts_down() {
    for dispatch in EVERY_DISPATCH {
        let orb = serving(dispatch);
        let server = Arc::downgrade(orb.core().server());
        let owner = owned();
        let servant = closure_servant({
            let owner = Arc::clone(&owner);
            move || drop_it(&owner)
        });
        let (client, object) = client_with_reference(&orb.root_poa().activate(&servant).unwrap());
        *owner.lock() = Some(orb);
        call(&object).unwrap_or_else(|exception| panic!("{dispatch:?}: {exception}"));
        wait_until_dropped(&server);
        drop(client);
    }
}

#[test]
fn orb_dropped_by_a_servant_destructor_on_its_own_thread_shuts_down() {
    for dispatch in EVERY_DISPATCH {
        let orb = serving(dispatch);
        let server = Arc::downgrade(orb.core().server());
        let owner = owned();
        let poa = orb.root_poa();
        let id = Arc::new(OnceLock::new());
        // The servant is dropped after the request, outside any upcall.
        let servant = Servant::new(ClosureServant(
            {
                let (poa, id) = (poa.clone(), Arc::clone(&id));
                move || poa.deactivate_object(id.get().unwrap()).unwrap()
            },
            Arc::clone(&owner),
        ));
        let _ = id.set(poa.activate_object(&servant).unwrap());
        let (client, object) = client_with_reference(&poa.id_to_reference(id.get().unwrap()).unwrap());
        *owner.lock() = Some(orb);
        drop((owner, servant, poa));
        // The servant's own shutdown may close the connection before the reply is sent, so the
        // result is ignored.
        let _ = call(&object);
        wait_until_dropped(&server);
        drop(client);
    }
}

#[test]
fn orb_dropped_in_its_event_handler_shuts_down() {
    let owner = owned();
    let handler = Arc::clone(&owner);
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").on_event(move |_| drop_it(&handler)).build().unwrap();
    let server = Arc::downgrade(orb.core().server());
    let crate::Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    *owner.lock() = Some(orb);
    let mut peer = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::io::Write::write_all(&mut peer, b"this is no GIOP").unwrap();
    wait_until_dropped(&server);
}

struct Keeper(#[allow(dead_code, reason = "kept to be dropped")] Mutex<Vec<Box<dyn Any + Send>>>);

impl ServantLocator for Keeper {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        Ok((Some(closure_servant(|| {})), Box::new(())))
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
    Arc::new(Keeper(Mutex::new("kept", LockScope::Orb, vec![Box::new(kept)])))
}

#[test]
fn references_held_by_callbacks_do_not_keep_the_orb_alive() {
    let orb = serving(Dispatch::LeaderFollowers { threads: 2 });
    let server = Arc::downgrade(orb.core().server());
    let root = orb.root_poa();
    let object = root.activate(&closure_servant(|| {})).unwrap();
    let (client, afar) = client_with_reference(&object);
    call(&afar).unwrap();

    orb.register_initial_reference("Self", &object).unwrap();
    orb.bind_corbaloc_key("self", &object).unwrap();
    root.activate(&keeps((object.clone(), root.clone()))).unwrap();
    root.set_adapter_activator(Some(keeper((object.clone(), root.clone()))));
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
    let own = located.create_reference("IDL:test/ClosureServant:1.0").unwrap();
    call(&own).unwrap();
    assert!(Arc::strong_count(orb.core().adapter()) > 1);

    drop(orb);
    assert_eq!(call(&object).unwrap_err().kind(), Kind::BadInvOrder);
    drop((object, own, located, default));
    wait_until_dropped(&server);
    assert_eq!(forgotten.strong_count(), 0);
    drop((root, client));
}

#[test]
fn ended_orb_refuses_keys_and_initial_references() {
    let orb = Orb::new().unwrap();
    let server = Arc::downgrade(orb.core().server());
    let object = orb.root_poa().create_reference("IDL:test/ClosureServant:1.0").unwrap();
    let root = orb.root_poa();
    orb.shutdown(true).unwrap();
    let refused = [orb.register_initial_reference("Late", &object), orb.bind_corbaloc_key("late", &object)];
    for refused in refused {
        let refused = refused.unwrap_err();
        assert_eq!((refused.kind(), refused.minor()), (Kind::BadInvOrder, 0x4f4d_0004));
    }
    root.set_adapter_activator(Some(keeper((object.clone(), root.clone()))));
    drop((orb, object, root));
    wait_until_dropped(&server);
}

#[test]
fn equivalent_references_share_a_bounded_hash() {
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
    assert!(hashes.len() > 90, "nearly all of 100 different references must have different hashes");
}
