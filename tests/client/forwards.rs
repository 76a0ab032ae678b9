//! LOCATION_FORWARD over real connections.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use corelane::poa::{Cookie, ObjectId, Poa, ServantLocator, ServantManager, ServantManagerError, ServantResult};
use corelane::{
    Completion, Dispatch, ObjectRef, Orb, PoolConfig, Servant, SystemException, SystemExceptionKind as Kind, minor,
};
use corelane_tests::{EVERY_DISPATCH, LOCATOR_POLICIES, Probe, ProbeRef, TestProbe};

struct Whereabouts {
    servant: Servant,
    here: AtomicBool,
    gone: AtomicBool,
    elsewhere: OnceLock<ObjectRef>,
    asked: AtomicU32,
}

impl ServantLocator for Whereabouts {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.gone.load(Ordering::SeqCst) {
            return Err(ServantManagerError::no_such_object());
        }
        match self.elsewhere.get() {
            Some(elsewhere) if !self.here.load(Ordering::SeqCst) => {
                Err(ServantManagerError::Forward(elsewhere.clone()))
            }
            _ => Ok((Some(self.servant.clone()), Box::new(()))),
        }
    }

    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        Ok(())
    }
}

struct Server {
    orb: Orb,
    object: ObjectRef,
    whereabouts: Arc<Whereabouts>,
}

impl Server {
    fn new(dispatch: Dispatch) -> Self {
        let pool = PoolConfig::default().dispatch(dispatch);
        let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
        let poa = orb.root_poa().create_poa("moves", None, LOCATOR_POLICIES).unwrap();
        let whereabouts = Arc::new(Whereabouts {
            servant: Probe::servant(TestProbe::default()),
            here: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            elsewhere: OnceLock::new(),
            asked: AtomicU32::new(0),
        });
        poa.set_servant_manager(ServantManager::Locator(Arc::clone(&whereabouts) as _)).unwrap();
        poa.manager().activate().unwrap();
        let object = poa.create_reference_with_id(&"x".into(), ProbeRef::REPOSITORY_ID).unwrap();
        Server { orb, object, whereabouts }
    }

    fn moves_to(&self, other: &Server) {
        self.whereabouts.elsewhere.set(other.object.clone()).unwrap();
    }

    fn asked(&self) -> u32 {
        self.whereabouts.asked.load(Ordering::SeqCst)
    }

    fn seen_by(&self, orb: &Orb) -> ProbeRef {
        orb.string_to_reference(&self.object.to_string()).unwrap()
    }
}

fn chain(length: usize, dispatch: Dispatch) -> Vec<Server> {
    let servers: Vec<_> = (0..length).map(|_| Server::new(dispatch)).collect();
    servers.windows(2).for_each(|pair| pair[0].moves_to(&pair[1]));
    servers
}

#[test]
fn a_chain_of_forwards_is_followed_once() {
    for dispatch in EVERY_DISPATCH {
        let servers = chain(4, dispatch);
        let orb = Orb::new().unwrap();
        let probe = servers[0].seen_by(&orb);
        for number in 1..5 {
            assert_eq!(probe.cube_octet(number).unwrap(), number * number * number);
        }
        let asked: Vec<u32> = servers.iter().map(Server::asked).collect();
        assert_eq!(asked, [1, 1, 1, 4], "{dispatch:?}: later calls go to the server at which the first call ended");
    }
}

#[test]
fn circular_forwards_are_transient_after_ten() {
    let servers = chain(2, Dispatch::LeaderFollowers { threads: 2 });
    servers[1].moves_to(&servers[0]);
    let orb = Orb::new().unwrap();
    let lost = servers[0].seen_by(&orb).cube_octet(2).unwrap_err();
    assert_eq!((lost.kind(), lost.minor(), lost.completed()), (Kind::Transient, minor::FORWARD_LOOP, Completion::No));
    assert_eq!(servers[0].asked() + servers[1].asked(), 11, "the first call, and ten forwards");
}

#[test]
fn object_that_returns_is_found_at_its_original_server() {
    let mut servers = chain(2, Dispatch::LeaderFollowers { threads: 2 });
    let orb = Orb::new().unwrap();
    let probe = servers[0].seen_by(&orb);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let gone = servers.pop().unwrap();
    servers[0].whereabouts.here.store(true, Ordering::SeqCst);
    gone.orb.shutdown(true).unwrap();
    drop(gone);
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    assert_eq!(probe.cube_octet(4).unwrap(), 64);
    assert_eq!(servers[0].asked(), 3);
}

/// `non_existent` asks the original server first, because the object may have returned to this
/// server.
#[test]
fn non_existent_is_answered_by_the_original_server() {
    let servers = chain(2, Dispatch::LeaderFollowers { threads: 2 });
    let orb = Orb::new().unwrap();
    let probe = servers[0].seen_by(&orb);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    assert!(!probe.as_object().non_existent().unwrap());
    servers[1].whereabouts.gone.store(true, Ordering::SeqCst);
    servers[0].whereabouts.here.store(true, Ordering::SeqCst);
    assert!(!probe.as_object().non_existent().unwrap());
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    servers[0].whereabouts.here.store(false, Ordering::SeqCst);
    assert!(
        probe.as_object().non_existent().unwrap(),
        "the reference leads to the first server, where the object no longer exists"
    );
    assert_eq!(probe.cube_octet(4).unwrap_err().kind(), Kind::ObjectNotExist);
}
