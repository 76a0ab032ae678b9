//! What every object answers: the operations of `CORBA::Object` that go over the wire.

use corelane::dynamic::{DynamicServant, ServerRequest};
use corelane::mapping::Operation;
use corelane::{
    Completion, Endpoint, ObjectRef, Orb, Reference, Servant, ServerCall, Skeleton, SystemException,
    SystemExceptionKind as Kind,
};
use corelane_tests::any::{Echo, EchoRef, TestEcho};
use corelane_tests::{ProbeRef, RefuseError, Refused};

/// Has the interfaces of an echo and none of its operations.
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
    // As clients of older ORBs ask, and what the ORB has no call for.
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
fn every_object_answers_them() {
    for servant in [Echo::servant(TestEcho::default()), Servant::dynamic(Hollow)] {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let poa = orb.root_poa();
        let id = poa.activate_object(&servant).unwrap();
        poa.manager().activate().unwrap();
        let local = poa.id_to_reference(&id).unwrap();
        asked(&local);
        let client = Orb::new().unwrap();
        let remote: ObjectRef = client.reference(&local.to_string()).unwrap();
        asked(&remote);
        // A reference that does not say what it is of.
        orb.bind_key("plain", &local).unwrap();
        let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("{:?}", orb.endpoints()) };
        let plain = client.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/plain")).unwrap().unwrap();
        asked(&plain);
        assert!(EchoRef::narrow(&plain).unwrap().is_some());
        poa.deactivate_object(&id).unwrap();
        assert!(local.non_existent().unwrap() && remote.non_existent().unwrap() && plain.non_existent().unwrap());
        assert_eq!(remote.is_a("IDL:Other:1.0").unwrap_err().kind(), Kind::ObjectNotExist);
    }
}

/// A servant of generated code cannot raise what its operations do not declare; one of another version of the IDL can, and so can one
/// that is written by hand.
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
fn an_exception_that_the_operation_does_not_declare_is_unknown() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    poa.manager().activate().unwrap();
    let local = ProbeRef::from_object(poa.activate(&Servant::new(Foreign)).unwrap());
    let client = Orb::new().unwrap();
    let remote: ProbeRef = client.reference(&local.to_string()).unwrap();
    for probe in [local, remote] {
        let unknown = probe.cube_octet(2).unwrap_err();
        let said = (unknown.kind(), unknown.minor() & 0xfff, unknown.completed());
        assert_eq!(said, (Kind::Unknown, 1, Completion::Yes));
        assert!(unknown.to_string().contains("IDL:corelane.test/Test/Refused:1.0"), "{unknown}");
        assert_eq!(probe.level().unwrap_err(), unknown, "an attribute's operations declare none");
        // Where it is declared it is what it is.
        let RefuseError::Refused(refused) = probe.refuse(1).unwrap_err() else { panic!("another exception") };
        assert_eq!((refused.code, refused.why.as_str()), (3, "because"));
    }
}
