//! References whose calls bypass the object adapter after the adapter has found the servant.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use corelane::poa::{Cookie, ObjectId, Poa, ServantLocator, ServantManager, ServantManagerError, ServantResult};
use corelane::{ObjectRef, Orb, Servant, SystemException, SystemExceptionKind as Kind};
use corelane_tests::LOCATOR_POLICIES;

corelane::include_idl!("direct");

use direct::*;

#[derive(Default)]
struct Calls(AtomicI32);

impl Base for Calls {
    fn in_upcall(&self) -> Result<bool, SystemException> {
        Ok(corelane::current().is_some())
    }
}

impl Counter for Calls {
    fn add(&self, more: i32, sum: i32) -> Result<(i32, i32), SystemException> {
        assert!(more >= 0, "the argument is negative");
        Ok((self.0.fetch_add(1, Ordering::Relaxed) + 1, sum + more))
    }
}

fn serve() -> (Orb, CounterRef, Weak<Calls>) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let servant = Arc::new(Calls::default());
    let weak = Arc::downgrade(&servant);
    let object = orb.root_poa().activate(&Counter::servant_of(servant)).unwrap();
    (orb, CounterRef::from_object(object.with_poa_bypass()), weak)
}

#[test]
fn first_call_goes_through_the_adapter_and_later_calls_bypass_it() {
    let (orb, direct, servant) = serve();
    let poa = orb.root_poa();
    poa.manager().discard_requests(false).unwrap();
    assert_eq!(direct.add(2, 1).unwrap_err().kind(), Kind::Transient, "nothing is known of the object yet");
    poa.manager().activate().unwrap();
    assert_eq!(direct.add(2, 1).unwrap(), (1, 3));

    poa.manager().discard_requests(false).unwrap();
    assert_eq!(direct.add(4, 3).unwrap(), (2, 7));
    let usual: CounterRef = orb.string_to_reference(&direct.to_string()).unwrap();
    assert_eq!(usual.add(4, 7).unwrap_err().kind(), Kind::Transient, "other references ask the adapter in each call");
    assert_eq!(direct.clone().add(0, 7).unwrap(), (3, 7), "a clone calls as its original does");
    assert_eq!(direct.in_upcall().unwrap_err().kind(), Kind::Transient);
    poa.manager().activate().unwrap();
    assert!(direct.in_upcall().unwrap(), "the first call is an upcall");
    assert!(!direct.in_upcall().unwrap());

    orb.shutdown(true).unwrap();
    assert_eq!(direct.add(0, 7).unwrap(), (4, 7));
    assert!(servant.upgrade().is_some());
    drop(direct);
    assert!(servant.upgrade().is_none(), "the servant outlives the last reference to it");
}

#[test]
fn panic_of_a_servant_reaches_its_direct_caller() {
    let (orb, direct, _) = serve();
    orb.root_poa().manager().activate().unwrap();
    direct.add(1, 0).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| direct.add(-1, 0))).is_err());
    assert_eq!(direct.add(1, 1).unwrap(), (2, 2));
}

#[test]
fn object_of_another_orb_is_called_through_its_adapter() {
    let (server, direct, _) = serve();
    server.root_poa().manager().activate().unwrap();
    let client = Orb::new().unwrap();
    let far: CounterRef = client.string_to_reference(&direct.to_string()).unwrap();
    let far = CounterRef::from_object(far.as_object().with_poa_bypass());
    for calls in 1..3 {
        assert_eq!(far.add(1, 5).unwrap(), (calls, 6));
        assert!(far.in_upcall().unwrap());
    }
    server.shutdown(true).unwrap();
    assert!(far.add(1, 5).is_err());
}

struct ByTurns([ObjectRef; 2], AtomicUsize);

impl ServantLocator for ByTurns {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        let turn = self.1.fetch_add(1, Ordering::Relaxed);
        Err(ServantManagerError::Forward(self.0[turn % 2].clone()))
    }

    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        Ok(())
    }
}

/// Regression test: the target of a forward was cached as the location of the object.
#[test]
fn servant_locator_of_a_forwarded_object_is_asked_at_every_call() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let root = orb.root_poa();
    let places = [(); 2].map(|()| root.activate(&Counter::servant_of(Arc::new(Calls::default()))).unwrap());
    let poa = root.create_poa("elsewhere", None, LOCATOR_POLICIES).unwrap();
    let locator = ByTurns(places, AtomicUsize::new(0));
    poa.set_servant_manager(ServantManager::Locator(Arc::new(locator))).unwrap();
    for poa in [&root, &poa] {
        poa.manager().activate().unwrap();
    }
    let object = poa.create_reference_with_id(&"x".into(), CounterRef::REPOSITORY_ID).unwrap();
    let direct = CounterRef::from_object(object.with_poa_bypass());
    let calls: Vec<i32> = (0..6).map(|_| direct.add(0, 0).unwrap().0).collect();
    assert_eq!(calls, [1, 1, 2, 2, 3, 3]);
}
