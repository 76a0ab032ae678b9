//! Several dynamic requests at once: the order of replies, deadlines, and requests that cannot be
//! sent.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use corelane::dynamic::{DynamicRequest, DynamicResponse, DynamicServant, RequestError, ServerRequest};
use corelane::{
    Any, Canceller, Dispatch, ObjectRef, Orb, PoolConfig, Servant, SystemException, SystemExceptionKind as Kind,
    Timeout, TypeCode,
};
use corelane_tests::any::{EchoRef, serve_echo};
use corelane_tests::scripted;

struct Held(Arc<Barrier>);

impl DynamicServant for Held {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Held:1.0"]
    }

    fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        let number = request.arguments(&[TypeCode::LONG])?;
        self.0.wait();
        request.reply(&number)
    }
}

fn held(client: &Orb) -> (Orb, ObjectRef, Arc<Barrier>) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let barrier = Arc::new(Barrier::new(2));
    let id = orb.root_poa().activate_object(&Servant::dynamic(Held(Arc::clone(&barrier)))).unwrap();
    orb.root_poa().manager().activate().unwrap();
    let reference = orb.root_poa().id_to_reference(&id).unwrap().to_string();
    (orb, client.string_to_reference(&reference).unwrap(), barrier)
}

fn echo(client: &Orb) -> (Orb, ObjectRef) {
    // One thread runs the requests in the order of arrival.
    let pool = PoolConfig::default().dispatch(Dispatch::Reactive);
    let (server, echo) = serve_echo(Orb::builder().pool(pool));
    let reference: EchoRef = client.string_to_reference(&echo.as_object().to_string()).unwrap();
    (server, reference.as_object().clone())
}

fn hold(object: &ObjectRef, number: i32) -> DynamicRequest {
    object.request("hold").input(Any::new(&number).unwrap()).returns(TypeCode::LONG)
}

fn add(object: &ObjectRef, a: i32, b: i32) -> DynamicRequest {
    let request = object.request("add").input(Any::new(&a).unwrap()).inout(Any::new(&b).unwrap());
    request.output(TypeCode::LONG).returns(TypeCode::LONG)
}

fn number(response: &Result<DynamicResponse, RequestError>) -> i32 {
    response.as_ref().unwrap().result.extract().unwrap()
}

fn failure(response: &Result<DynamicResponse, RequestError>) -> (Kind, u32) {
    match response {
        Err(RequestError::System(exception)) => (exception.kind(), exception.minor() & 0xfff),
        other => panic!("{other:?}"),
    }
}

#[test]
fn responses_come_in_the_order_of_arrival() {
    let client = Orb::new().unwrap();
    let (_one, held, barrier) = held(&client);
    let (_other, echo) = echo(&client);
    let mut responses =
        DynamicRequest::send_all_deferred([hold(&held, 7), add(&echo, 1, 1), add(&echo, 2, 2)]).unwrap();
    assert_eq!(responses.outstanding_count(), 3);
    let mut early: Vec<(usize, i32)> =
        (0..2).map(|_| responses.next().unwrap()).map(|(at, it)| (at, number(&it))).collect();
    early.sort_unstable();
    assert_eq!(early, [(1, 2), (2, 4)]);
    assert_eq!((responses.outstanding_count(), responses.is_next_ready()), (1, false));
    barrier.wait();
    let (at, response) = responses.next().unwrap();
    assert_eq!((at, number(&response)), (0, 7));
    assert!(responses.next().is_none() && responses.is_next_ready() && responses.outstanding_count() == 0);
}

#[test]
fn requests_to_remote_and_collocated_objects_are_sent_together() {
    let client = Orb::new().unwrap();
    let (_server, far) = echo(&client);
    let (_own, near) = serve_echo(Orb::builder());
    let objects = [&far, near.as_object()];
    let requests = (0..200).map(|at| add(objects[at % 2], i32::try_from(at).unwrap(), 1));
    let mut seen: Vec<usize> = Vec::new();
    for (at, response) in DynamicRequest::send_all_deferred(requests).unwrap() {
        assert_eq!(number(&response), i32::try_from(at).unwrap() + 1);
        seen.push(at);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[test]
fn request_that_is_late_or_cancelled_is_ready() {
    let client = Orb::new().unwrap();
    let silent = scripted::serve(0, |_, _| Ok(()));
    let silent = client.string_to_object(&format!("corbaloc::1.2@{}/Key", silent.address)).unwrap().unwrap();
    let canceller = Canceller::new().unwrap();
    let hasty = silent.with_timeout(Timeout::Precise(Duration::from_millis(20)));
    for (object, kind) in [(hasty, Kind::Timeout), (silent.with_canceller(&canceller), Kind::Transient)] {
        let mut responses = DynamicRequest::send_all_deferred([hold(&object, 1)]).unwrap();
        if kind == Kind::Transient {
            assert!(!responses.is_next_ready());
            canceller.cancel();
        }
        let begun = Instant::now();
        while !responses.is_next_ready() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{kind:?}: `next` would not wait");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(failure(&responses.next().unwrap().1).0, kind);
    }
}

#[test]
fn every_request_has_its_own_deadline() {
    let client = Orb::new().unwrap();
    let (_one, patient, barrier) = held(&client);
    let (_other, slow, late) = held(&client);
    let hasty = slow.with_timeout(Timeout::Precise(Duration::from_secs(3)));
    let mut responses = DynamicRequest::send_all_deferred([hold(&patient, 1), hold(&hasty, 2)]).unwrap();
    let (at, response) = responses.next().unwrap();
    assert_eq!((at, failure(&response).0, responses.is_next_ready()), (1, Kind::Timeout, false));
    barrier.wait();
    let (at, response) = responses.next().unwrap();
    assert_eq!((at, number(&response)), (0, 1));
    late.wait();
}

#[test]
fn response_of_a_request_that_cannot_be_sent_is_its_exception() {
    let client = Orb::new().unwrap();
    let (_server, echo) = echo(&client);
    let nobody = client.string_to_object("corbaloc::127.0.0.1:1/nobody").unwrap().unwrap();
    let requests = [echo.request("_is_a"), add(&nobody, 1, 1), echo.request("no_such"), add(&echo, 3, 4)];
    let mut responses: Vec<_> = DynamicRequest::send_all_deferred(requests).unwrap().collect();
    responses.sort_by_key(|(at, _)| *at);
    let failures: Vec<(Kind, u32)> = responses[..3].iter().map(|(_, response)| failure(response)).collect();
    assert_eq!((failures[0], failures[1].0, failures[2]), {
        ((Kind::BadParam, 32), Kind::Transient, (Kind::BadOperation, 2))
    });
    assert_eq!(number(&responses[3].1), 7);
    assert!(DynamicRequest::send_all_deferred([]).unwrap().next().is_none());
}

#[test]
fn request_that_was_sent_earlier_can_be_added() {
    let client = Orb::new().unwrap();
    let (_server, echo) = echo(&client);
    let before = add(&echo, 10, 1).send_deferred().unwrap();
    let mut taken = add(&echo, 20, 1).send_deferred().unwrap();
    taken.response().unwrap();
    let mut responses = DynamicRequest::send_all_deferred([add(&echo, 30, 1)]).unwrap();
    assert_eq!((responses.add(before), responses.add(taken)), (1, 2));
    let mut responses: Vec<_> = responses.collect();
    responses.sort_by_key(|(at, _)| *at);
    assert_eq!((number(&responses[0].1), number(&responses[1].1)), (31, 11));
    assert_eq!(failure(&responses[2].1), (Kind::BadInvOrder, 12));
}

#[test]
fn oneways_are_sent_together_unless_a_request_expects_a_reply() {
    let client = Orb::new().unwrap();
    let (_server, echo) = echo(&client);
    let note = |text: &str| echo.request("note").input(Any::new(&text.to_owned()).unwrap());
    let noted =
        || echo.request("noted").returns(TypeCode::STRING).invoke().unwrap().result.extract::<String>().unwrap();
    DynamicRequest::send_all_oneway([note("first"), note("second")]).unwrap();
    while noted() != "second" {}
    let refused = DynamicRequest::send_all_oneway([note("third"), add(&echo, 1, 1)]).unwrap_err();
    assert_eq!((refused.kind(), refused.minor() & 0xfff), (Kind::BadParam, 31));
    // A request that cannot be sent does not affect the other requests.
    let nobody = client.string_to_object("corbaloc::127.0.0.1:1/nobody").unwrap().unwrap();
    let unsent = nobody.request("note").input(Any::new(&String::new()).unwrap());
    assert_eq!(noted(), "second");
    assert_eq!(DynamicRequest::send_all_oneway([unsent, note("fourth")]).unwrap_err().kind(), Kind::Transient);
    while noted() != "fourth" {}
}
