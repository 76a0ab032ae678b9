//! BAD_OPERATION raised by a servant reaches the client unchanged, with its minor code and
//! completion status.

use corelane::{
    Completion, Orb, Servant, ServerCall, Skeleton, SystemException, SystemExceptionKind as Kind, mapping::Operation,
};

struct Refusing;

impl Skeleton for Refusing {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Refusing:1.0"]
    }

    fn dispatch(&self, operation: &[u8], _: &mut ServerCall<'_>) -> Result<(), SystemException> {
        match operation {
            b"refuse" => Err(SystemException::new(Kind::BadOperation, 0x1234_5678, Completion::Yes)),
            _ => Err(SystemException::bad_operation()),
        }
    }
}

#[test]
fn bad_operation_of_a_servant_keeps_its_minor_code_and_completion() {
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = server.root_poa();
    poa.manager().activate().unwrap();
    let reference = poa.activate(&Servant::new(Refusing)).unwrap().to_string();
    let client = Orb::new().unwrap();
    let object = client.string_to_object(&reference).unwrap().unwrap();

    static REFUSE: Operation = Operation::new("refuse");
    let raised = object.invoke(&REFUSE, &|_| Ok(())).unwrap_err();
    assert_eq!((raised.kind(), raised.minor(), raised.completed()), (Kind::BadOperation, 0x1234_5678, Completion::Yes));

    static UNKNOWN: Operation = Operation::new("nothing_of_this_name");
    assert_eq!(object.invoke(&UNKNOWN, &|_| Ok(())).unwrap_err(), SystemException::bad_operation());
    assert!(object.is_a("IDL:omg.org/CORBA/Object:1.0").unwrap());
    assert!(!object.is_a("IDL:Other:1.0").unwrap());
}
