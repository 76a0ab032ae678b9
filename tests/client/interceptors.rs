//! Interceptors: what they see of every kind of request, on both sides, and what they can change.

use std::sync::Arc;
use std::time::Duration;

use corelane::{
    AddedContexts, CallPolicies, Completion, Interceptor, Orb, PoolExhausted, ReceivedContexts, RequestInfo,
    RequestOutcome, SystemException, SystemExceptionKind as Kind,
};
use corelane_sys::lock::{Mutex, Scope};
use corelane_tests::{Probe, ProbeRef, TestProbe};

/// A service context that no ORB knows.
const TRACE: u32 = 0x434c_4eff;

/// Keeps a line for each point that a request passes.
#[derive(Clone)]
struct Recorder {
    name: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn new(name: &'static str) -> Self {
        Recorder { name, lines: Arc::new(Mutex::new("lines", Scope::Orb, Vec::new())) }
    }

    fn note(&self, line: String) {
        self.lines.lock().push(format!("{} {line}", self.name));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }
}

fn shown(outcome: &RequestOutcome<'_>) -> String {
    match outcome {
        RequestOutcome::SystemException(exception) => format!("{:?}", exception.kind()),
        other => format!("{other:?}"),
    }
}

impl Interceptor for Recorder {
    fn send_request(&self, request: &RequestInfo<'_>, contexts: &mut AddedContexts) -> Result<(), SystemException> {
        self.note(format!("send {}", request.operation()));
        contexts.add(TRACE, request.number().to_be_bytes());
        Ok(())
    }

    fn receive_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        self.note(format!("reply {} {}", request.operation(), shown(outcome)));
    }

    fn receive_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &ReceivedContexts<'_>,
    ) -> Result<(), SystemException> {
        assert!(!request.object_key().is_empty());
        let trace = contexts.find(TRACE).map(|data| u64::from_be_bytes(data.try_into().unwrap()) != 0);
        self.note(format!("receive {} {trace:?}", request.operation()));
        if request.operation() == "panic" {
            return Err(SystemException::new(Kind::NoPermission, 5, Completion::No));
        }
        Ok(())
    }

    fn send_reply(&self, request: &RequestInfo<'_>, outcome: &RequestOutcome<'_>) {
        self.note(format!("answer {} {}", request.operation(), shown(outcome)));
    }
}

/// A server and a client, each with an interceptor.
struct Pair {
    client: Recorder,
    server: Recorder,
    probe: ProbeRef,
    _orb: Orb,
    _server: Orb,
}

fn pair() -> Pair {
    let (client, server) = (Recorder::new("client"), Recorder::new("server"));
    let serving = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(server.clone()).build().unwrap();
    let object = serving.root_poa().activate(&Probe::servant(TestProbe::default())).unwrap();
    serving.root_poa().manager().activate().unwrap();
    let orb = Orb::builder().interceptor(client.clone()).build().unwrap();
    let probe = orb.reference(&object.to_string()).unwrap();
    Pair { client, server, probe, _orb: orb, _server: serving }
}

#[test]
fn interceptors_see_every_request_before_and_after_it() {
    let pair = pair();
    assert_eq!(pair.probe.cube_long(3).unwrap(), 27);
    pair.probe.refuse(1).unwrap_err();
    pair.probe.refuse(200).unwrap_err();
    pair.probe.note(1).unwrap();
    assert_eq!(pair.probe.noted().unwrap(), 1);
    let sent = ["cube_long Returned", "refuse UserException", "refuse NoPermission", "note Sent", "noted Returned"];
    let expected = sent.map(|line| {
        let (operation, _) = line.split_once(' ').unwrap();
        [format!("client send {operation}"), format!("client reply {line}")]
    });
    assert_eq!(pair.client.take(), expected.concat());
    let answered =
        ["cube_long Returned", "refuse UserException", "refuse NoPermission", "note Returned", "noted Returned"];
    let expected = answered.map(|line| {
        let (operation, _) = line.split_once(' ').unwrap();
        [format!("server receive {operation} Some(true)"), format!("server answer {line}")]
    });
    assert_eq!(pair.server.take(), expected.concat());
}

#[test]
fn exception_of_an_interceptor_refuses_the_request() {
    let pair = pair();
    // The servant would panic, which the client would see as UNKNOWN.
    let refused = pair.probe.panic().unwrap_err();
    assert_eq!((refused.kind(), refused.minor(), refused.completed()), (Kind::NoPermission, 5, Completion::No));
    assert_eq!(pair.server.take(), ["server receive panic Some(true)"]);
    assert_eq!(pair.client.take(), ["client send panic", "client reply panic NoPermission"]);
}

/// Raises an exception, or panics, before each request.
struct Refusing(bool);

impl Interceptor for Refusing {
    fn send_request(&self, _: &RequestInfo<'_>, _: &mut AddedContexts) -> Result<(), SystemException> {
        assert!(self.0, "as asked");
        Err(SystemException::new(Kind::NoPermission, 6, Completion::No))
    }
}

#[test]
fn interceptors_before_one_that_fails_see_the_outcome() {
    for (raises, kind) in [(true, Kind::NoPermission), (false, Kind::Unknown)] {
        let pair = pair();
        let (first, last) = (Recorder::new("first"), Recorder::new("last"));
        let builder = Orb::builder().interceptor(first.clone()).interceptor(Refusing(raises)).interceptor(last.clone());
        let orb = builder.build().unwrap();
        let probe: ProbeRef = orb.reference(&pair.probe.to_string()).unwrap();
        assert_eq!(probe.cube_long(1).unwrap_err().kind(), kind);
        assert_eq!(first.take(), ["first send cube_long".to_owned(), format!("first reply cube_long {kind:?}")]);
        assert!(last.take().is_empty() && pair.server.take().is_empty());
    }
}

#[test]
fn deferred_and_multiplexed_calls_pass_the_same_points() {
    let pair = pair();
    let deferred = |value: i32| {
        let arguments = move |encoder: &mut corelane::Encoder<'static>| {
            encoder.write_i32(value);
            Ok(())
        };
        pair.probe.as_object().send_deferred("cube_long", arguments).unwrap()
    };
    let mut call = deferred(2);
    assert_eq!(pair.client.take(), ["client send cube_long"]);
    assert_eq!(call.reply().unwrap().read(|decoder| decoder.read_i32()).unwrap(), 8);
    assert_eq!(pair.client.take(), ["client reply cube_long Returned"]);

    let builder = Orb::builder().max_connections_per_server(1).on_pool_exhausted(PoolExhausted::Multiplex);
    let recorder = Recorder::new("shared");
    let orb = builder.interceptor(recorder.clone()).build().unwrap();
    let probe: ProbeRef = orb.reference(&pair.probe.to_string()).unwrap();
    std::thread::scope(|scope| {
        (0..2).for_each(|_| _ = scope.spawn(|| probe.meet(2).unwrap()));
    });
    let mut lines = recorder.take();
    lines.sort();
    let (reply, send) = ("shared reply meet Returned", "shared send meet");
    assert_eq!(lines, [reply, reply, send, send]);
}

#[test]
fn attempts_that_fail_are_seen_and_counted_apart() {
    let pair = pair();
    assert_eq!(pair.probe.cube_long(1).unwrap(), 1);
    pair.client.take();
    let policies = CallPolicies { timeout: Some(Duration::from_millis(200).into()), ..CallPolicies::NONE };
    let slow: ProbeRef = pair.probe.with_policies(policies);
    assert_eq!(slow.slow(3_000).unwrap_err().kind(), Kind::Timeout);
    assert_eq!(pair.client.take(), ["client send slow", "client reply slow Failed"]);
}
