//! The operations of `CORBA::Object` that go over the wire.

use corelane::dynamic::{DynamicServant, ServerRequest};
use corelane::mapping::Operation;
use corelane::poa::{
    Cookie, IdAssignment, Lifespan, ObjectId, Poa, PoaPolicies, RequestProcessing, ServantActivator, ServantLocator,
    ServantManager, ServantManagerError, ServantResult, ServantRetention,
};
use corelane::{
    Completion, Endpoint, ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException, SystemExceptionKind as Kind,
};
use corelane_tests::any::{Echo, EchoRef, TestEcho};
use corelane_tests::{ProbeRef, RefuseError, Refused};

struct Hollow;

impl DynamicServant for Hollow {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/dynamic/Echo:1.0", "IDL:corelane.test/dynamic/Base:1.0"]
    }

    fn invoke(&self, _: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        Err(SystemException::bad_operation())
    }
}

fn asked(object: &ObjectRef) {
    assert!(object.is_a("IDL:corelane.test/dynamic/Echo:1.0").unwrap());
    assert!(object.is_a("IDL:corelane.test/dynamic/Base:1.0").unwrap());
    assert!(object.is_a("IDL:omg.org/CORBA/Object:1.0").unwrap());
    assert!(!object.is_a("IDL:corelane.test/dynamic/Echo:1.1").unwrap() && !object.is_a("").unwrap());
    assert!(!object.non_existent().unwrap());
    assert_eq!(object.repository_id().unwrap(), "IDL:corelane.test/dynamic/Echo:1.0");
    assert!(object.component().unwrap().is_none());
    let refused = object.interface_definition().unwrap_err();
    assert_eq!(refused.kind(), Kind::NoImplement);
    let call = |operation: &'static str, id: &str| {
        let operation = Operation::new(operation);
        let mut reply = object.invoke(&operation, &|encoder| encoder.write_str(id))?;
        reply.read(|decoder| decoder.read_bool())
    };
    assert_eq!((call("_not_existent", ""), call("_is_a", "IDL:omg.org/CORBA/Object:1.0")), (Ok(false), Ok(true)));
    assert_eq!(call("_is_a", "IDL:corelane.test/dynamic/Echo:1.0"), Ok(true));
    assert_eq!(call("_domain_managers", "").unwrap_err().kind(), Kind::NoImplement);
    let unknown = call("_no_such", "").unwrap_err();
    assert_eq!((unknown.kind(), unknown.minor() & 0xfff), (Kind::BadOperation, 2));
}

#[test]
fn every_object_answers_the_object_operations() {
    for servant in [Echo::servant(TestEcho::default()), Servant::dynamic(Hollow)] {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let poa = orb.root_poa();
        let id = poa.activate_object(&servant).unwrap();
        poa.manager().activate().unwrap();
        let local = poa.id_to_reference(&id).unwrap();
        asked(&local);
        let client = Orb::new().unwrap();
        let remote: ObjectRef = client.string_to_reference(&local.to_string()).unwrap();
        asked(&remote);
        // A corbaloc URL gives a reference without a type id, so the client asks the server for the
        // type.
        orb.bind_corbaloc_key("plain", &local).unwrap();
        let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("{:?}", orb.endpoints()) };
        let plain = client.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/plain")).unwrap().unwrap();
        asked(&plain);
        assert!(EchoRef::narrow(&plain).unwrap().is_some());
        poa.deactivate_object(&id).unwrap();
        assert!(local.non_existent().unwrap() && remote.non_existent().unwrap() && plain.non_existent().unwrap());
        assert_eq!(remote.is_a("IDL:Other:1.0").unwrap_err().kind(), Kind::ObjectNotExist);
    }
}

/// Calls `_non_existent` by its name, because `ObjectRef::non_existent` turns OBJECT_NOT_EXIST into
/// true. Returns the result or the exception.
fn answered(object: &ObjectRef) -> Result<bool, Kind> {
    let ask = |name| {
        let answer = object.invoke(&Operation::new(name), &|_| Ok(()));
        answer.and_then(|mut reply| reply.read(|decoder| decoder.read_bool())).map_err(|raised| raised.kind())
    };
    let answer = ask("_non_existent");
    assert_eq!(ask("_not_existent"), answer);
    answer
}

struct Nothing(Kind);

impl ServantActivator for Nothing {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        Err(ServantManagerError::System(SystemException::new(self.0, 0, Completion::No)))
    }

    fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {}
}

impl ServantLocator for Nothing {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        Err(ServantManagerError::no_such_object())
    }

    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        Ok(())
    }
}

#[test]
fn non_existent_is_true_for_objects_that_do_not_exist() {
    // The port stays closed between the two ORBs, because no other test uses this address.
    let orb = Orb::builder().listen("tcp:127.0.55.1:0").build().unwrap();
    let root = orb.root_poa();
    root.manager().activate().unwrap();
    let client = Orb::new().unwrap();
    let both = |object: &ObjectRef| {
        let remote: ObjectRef = client.string_to_reference(&object.to_string()).unwrap();
        let answer = answered(&remote);
        assert_eq!(answered(object), answer);
        if answer != Ok(false) {
            let other = remote.repository_id().map_err(|raised| raised.kind());
            assert_eq!(other, Err(answer.err().unwrap_or(Kind::ObjectNotExist)), "other operations raise");
            assert_eq!(remote.non_existent().ok(), matches!(answer, Ok(_) | Err(Kind::ObjectNotExist)).then_some(true));
        }
        answer
    };
    let user = PoaPolicies { id_assignment: IdAssignment::User, ..PoaPolicies::default() };
    let persistent = PoaPolicies { lifespan: Lifespan::Persistent, ..user };
    let servant_manager = PoaPolicies { request_processing: RequestProcessing::ServantManager, ..user };
    let locator = PoaPolicies { servant_retention: ServantRetention::NonRetain, ..servant_manager };
    let poa = |name: &str, policies| root.create_poa(name, Some(root.manager()), policies).unwrap();
    let never = |poa: &Poa| poa.create_reference_with_id(&"never".into(), "IDL:X:1.0").unwrap();
    let id = root.activate_object(&Echo::servant(TestEcho::default())).unwrap();
    let deactivated = root.id_to_reference(&id).unwrap();
    assert_eq!(both(&deactivated), Ok(false));
    root.deactivate_object(&id).unwrap();
    assert_eq!(both(&deactivated), Ok(true));
    let (user, persistent) = (poa("user", user), poa("persistent", persistent));
    assert_eq!((both(&never(&user)), both(&never(&persistent))), (Ok(true), Ok(true)));
    let of_gone = never(&user);
    user.destroy(false, true).unwrap();
    assert_eq!(both(&of_gone), Ok(true));
    // TRANSIENT does not say if the object exists.
    for (name, raised, expected) in
        [("gone", Kind::ObjectNotExist, Ok(true)), ("unknown", Kind::Transient, Err(Kind::Transient))]
    {
        let poa = poa(name, servant_manager);
        poa.set_servant_manager(ServantManager::Activator(std::sync::Arc::new(Nothing(raised)))).unwrap();
        assert_eq!(both(&never(&poa)), expected);
    }
    let located = poa("located", locator);
    located.set_servant_manager(ServantManager::Locator(std::sync::Arc::new(Nothing(Kind::Transient)))).unwrap();
    assert_eq!(both(&never(&located)), Ok(true));
    // A destroyed persistent POA may be created again with its objects, so the answer is an
    // exception and not true.
    let of_persistent = never(&persistent);
    persistent.destroy(false, true).unwrap();
    assert_eq!(both(&of_persistent), Err(Kind::ObjectNotExist));
    let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("{:?}", orb.endpoints()) };
    let at = |url: String| client.string_to_object(&url).unwrap().unwrap();
    assert_eq!(answered(&at(format!("corbaloc::1.2@127.0.55.1:{port}/nothing"))), Ok(true));
    orb.shutdown(true).unwrap();
    drop(orb);
    let again = Orb::builder().listen(format!("tcp:127.0.55.1:{port}")).build().unwrap();
    again.root_poa().manager().activate().unwrap();
    let stale: ObjectRef = client.string_to_reference(&deactivated.to_string()).unwrap();
    assert_eq!(answered(&stale), Ok(true));
}

/// A servant that raises an undeclared exception. Dynamic servants and servants of another version
/// of the IDL can do so.
struct Foreign;

impl Skeleton for Foreign {
    fn repository_ids(&self) -> &'static [&'static str] {
        &[ProbeRef::REPOSITORY_ID]
    }

    fn dispatch(&self, _: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        call.raise(&Refused { code: 3, why: "because".into() })
    }
}

#[test]
fn undeclared_exception_is_unknown() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    poa.manager().activate().unwrap();
    let local = ProbeRef::from_object(poa.activate(&Servant::new(Foreign)).unwrap());
    let client = Orb::new().unwrap();
    let remote: ProbeRef = client.string_to_reference(&local.to_string()).unwrap();
    for probe in [local, remote] {
        let unknown = probe.cube_octet(2).unwrap_err();
        let said = (unknown.kind(), unknown.minor() & 0xfff, unknown.completed());
        assert_eq!(said, (Kind::Unknown, 1, Completion::Yes));
        assert!(unknown.to_string().contains("IDL:corelane.test/Test/Refused:1.0"), "{unknown}");
        assert_eq!(probe.level().unwrap_err(), unknown, "an attribute's operations declare no exceptions");
        let RefuseError::Refused(refused) = probe.refuse(1).unwrap_err() else { panic!("another exception") };
        assert_eq!((refused.code, refused.why.as_str()), (3, "because"));
    }
}
