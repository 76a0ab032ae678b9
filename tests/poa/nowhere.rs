//! References to objects of an ORB that has no endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane::mapping::{Operation, write_reference};
use corelane::{CdrError, Event, ObjectRef, Orb, SystemException, SystemExceptionKind as Kind};
use corelane_tests::real_time::{Reporter, fair_orb};

fn client_only() -> (Orb, Arc<AtomicUsize>) {
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let builder = Orb::builder().on_event(move |event| {
        if let Event::ReferenceWithoutAddress { type_id } = event {
            assert_eq!(type_id, "IDL:corelane.test/Reporter:1.0");
            assert!(event.to_string().contains("OrbBuilder::listen"), "{event}");
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let orb = builder.build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    (orb, told)
}

fn object(orb: &Orb) -> ObjectRef {
    orb.root_poa().activate(&Reporter::new(orb).servant()).unwrap()
}

fn call_with(object: &ObjectRef, argument: &ObjectRef) -> Result<(), SystemException> {
    static OPERATION: Operation = Operation::new("who");
    object.invoke(&OPERATION, &|encoder| write_reference(encoder, Some(argument))).map(drop)
}

#[test]
fn unreachable_callback_is_refused_when_it_would_leave_the_process() {
    let server = fair_orb();
    let (orb, told) = client_only();
    let callback = object(&orb);
    let far = orb.string_to_object(&object(&server).to_string()).unwrap().unwrap();
    let refused = call_with(&far, &callback).unwrap_err();
    assert_eq!((refused.kind(), refused.minor()), (Kind::BadParam, CdrError::ReferenceWithoutAddress.minor()));
    assert!(refused.to_string().contains("OrbBuilder::listen"), "{refused}");
    call_with(&far, &far).unwrap();
    call_with(&callback, &callback).unwrap();
    let listening = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let far = listening.string_to_object(&object(&server).to_string()).unwrap().unwrap();
    call_with(&far, &object(&listening)).unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 0);
}

#[test]
fn text_of_an_unreachable_reference_is_reported_once() {
    let (orb, told) = client_only();
    let callback = object(&orb);
    assert_eq!(callback.to_string(), callback.to_string());
    assert_eq!(told.load(Ordering::SeqCst), 1);
    let server = fair_orb();
    let _ = object(&server).to_string();
    let far = orb.string_to_object(&object(&server).to_string()).unwrap().unwrap();
    assert!(far.to_string().starts_with("IOR:"));
    assert_eq!(told.load(Ordering::SeqCst), 1);
}
