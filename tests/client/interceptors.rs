//! Interceptors in clients and servers: the requests that they see, and the changes that they can
//! make.

use std::sync::Arc;
use std::time::Duration;

use corelane::poa::{Poa, PoaPolicies, Threading};
use corelane::{
    AddedServiceContexts, CallPolicies, Completion, ConnectionPoolExhaustedAction, Endpoint, Interceptor, Orb,
    RequestInfo, RequestOutcome, RequestServiceContexts, SystemException, SystemExceptionKind as Kind,
};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::{Probe, ProbeRef, TestProbe};

const TRACE: u32 = 0x5445_5354;

#[derive(Clone)]
struct Recorder {
    name: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn new(name: &'static str) -> Self {
        Recorder { name, lines: Arc::new(Mutex::new("lines", LockScope::Orb, Vec::new())) }
    }

    fn note(&self, line: String) {
        self.lines.lock().push(format!("{} {line}", self.name));
    }

    fn len(&self) -> usize {
        self.lines.lock().len()
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }
}

fn shown(outcome: &RequestOutcome<'_>) -> String {
    match outcome {
        RequestOutcome::SystemException(exception) => format!("{:?}", exception.kind()),
        RequestOutcome::Failed { .. } => "Failed".to_owned(),
        other => format!("{other:?}"),
    }
}

impl Interceptor for Recorder {
    fn send_request(
        &self,
        request: &RequestInfo<'_>,
        contexts: &mut AddedServiceContexts,
    ) -> Result<(), SystemException> {
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
        contexts: &RequestServiceContexts<'_>,
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

struct Pair {
    client: Recorder,
    server: Recorder,
    probe: ProbeRef,
    _orb: Orb,
    server_orb: Orb,
}

fn pair() -> Pair {
    let (client, server) = (Recorder::new("client"), Recorder::new("server"));
    let serving = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(server.clone()).build().unwrap();
    let object = serving.root_poa().activate(&Probe::servant(TestProbe::default())).unwrap();
    serving.root_poa().manager().activate().unwrap();
    let orb = Orb::builder().interceptor(client.clone()).build().unwrap();
    let probe = orb.string_to_reference(&object.to_string()).unwrap();
    Pair { client, server, probe, _orb: orb, server_orb: serving }
}

#[test]
fn interceptors_see_every_request_before_and_after_it() {
    let pair = pair();
    assert_eq!(pair.probe.cube_long(3).unwrap(), 27);
    pair.probe.refuse(1).unwrap_err();
    pair.probe.refuse(200).unwrap_err();
    pair.probe.note(1).unwrap();
    // The next request must not overtake the oneway in the server.
    while pair.server.len() < 8 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(pair.probe.noted().unwrap(), 1);
    let sent =
        ["cube_long Returned", "refuse UserException", "refuse NoPermission", "note OnewaySent", "noted Returned"];
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
    let refused = pair.probe.panic().unwrap_err();
    assert_eq!((refused.kind(), refused.minor(), refused.completed()), (Kind::NoPermission, 5, Completion::No));
    assert_eq!(pair.server.take(), ["server receive panic Some(true)"]);
    assert_eq!(pair.client.take(), ["client send panic", "client reply panic NoPermission"]);
}

struct Refusing(bool);

impl Interceptor for Refusing {
    fn send_request(&self, _: &RequestInfo<'_>, _: &mut AddedServiceContexts) -> Result<(), SystemException> {
        assert!(self.0, "a panic of the test's interceptor");
        Err(SystemException::new(Kind::NoPermission, 6, Completion::No))
    }
}

#[test]
fn interceptors_before_a_failing_interceptor_see_the_outcome() {
    for (raises, kind) in [(true, Kind::NoPermission), (false, Kind::Unknown)] {
        let pair = pair();
        let (first, last) = (Recorder::new("first"), Recorder::new("last"));
        let builder = Orb::builder().interceptor(first.clone()).interceptor(Refusing(raises)).interceptor(last.clone());
        let orb = builder.build().unwrap();
        let probe: ProbeRef = orb.string_to_reference(&pair.probe.to_string()).unwrap();
        assert_eq!(probe.cube_long(1).unwrap_err().kind(), kind);
        assert_eq!(first.take(), ["first send cube_long".to_owned(), format!("first reply cube_long {kind:?}")]);
        assert!(last.take().is_empty() && pair.server.take().is_empty());
    }
}

#[test]
fn deferred_and_multiplexed_calls_pass_the_points_of_ordinary_calls() {
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

    let builder = Orb::builder()
        .max_connections_per_server(1)
        .on_connection_pool_exhausted(ConnectionPoolExhaustedAction::Multiplex);
    let recorder = Recorder::new("shared");
    let orb = builder.interceptor(recorder.clone()).build().unwrap();
    let probe: ProbeRef = orb.string_to_reference(&pair.probe.to_string()).unwrap();
    std::thread::scope(|scope| {
        (0..2).for_each(|_| _ = scope.spawn(|| probe.meet(2).unwrap()));
    });
    let mut lines = recorder.take();
    lines.sort();
    let (reply, send) = ("shared reply meet Returned", "shared send meet");
    assert_eq!(lines, [reply, reply, send, send]);
}

#[test]
fn attempt_without_a_reply_is_reported_as_failed() {
    let pair = pair();
    let policies = CallPolicies { timeout: Some(Duration::from_millis(200).into()), ..CallPolicies::NONE };
    let impatient: ProbeRef = pair.probe.with_policies(policies);
    // Connects first, so that the time-out does not include the time to connect.
    pair.probe.set_level(0).unwrap();
    pair.client.take();
    // If the deadline passes before the request is sent, the test repeats the call.
    loop {
        let late = impatient.wait_for_level(1).unwrap_err();
        assert_eq!(late.kind(), Kind::Timeout);
        let seen = pair.client.take();
        if late.completed() == Completion::Maybe {
            assert_eq!(seen, ["client send wait_for_level", "client reply wait_for_level Failed"]);
            break;
        }
    }
    pair.probe.set_level(1).unwrap();
}

#[test]
fn deferred_call_that_is_dropped_is_abandoned() {
    let pair = pair();
    let arguments = |encoder: &mut corelane::Encoder<'static>| {
        encoder.write_i32(1);
        Ok(())
    };
    drop(pair.probe.as_object().send_deferred("cube_long", arguments).unwrap());
    assert_eq!(pair.client.take(), ["client send cube_long", "client reply cube_long Abandoned"]);
}

#[test]
fn held_request_passes_the_interceptors_once_when_it_runs() {
    let server = Recorder::new("server");
    let serving = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(server.clone()).build().unwrap();
    let poa = serving.root_poa();
    let held = poa.create_poa("held", None, PoaPolicies::default()).unwrap();
    let main = PoaPolicies { threading: Threading::MainThread, ..PoaPolicies::default() };
    let main = poa.create_poa("main", Some(held.manager()), main).unwrap();
    let probe = |poa: &Poa| poa.activate(&Probe::servant(TestProbe::default())).unwrap().to_string();
    let (held_probe, main_probe) = (probe(&held), probe(&main));
    let client = Orb::new().unwrap();
    std::thread::scope(|scope| {
        for text in [&held_probe, &main_probe] {
            let probe = ProbeRef::unchecked_narrow(&client.string_to_object(text).unwrap().unwrap());
            scope.spawn(move || assert_eq!(probe.cube_long(2).unwrap(), 8));
        }
        // The server must have accepted both connections before the manager lets requests run.
        while serving.event_counts().connections_opened < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        held.manager().activate().unwrap();
        while server.len() < 4 {
            serving.perform_work();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (receive, answer) = ("server receive cube_long None", "server answer cube_long Returned");
    let mut lines = server.take();
    lines.sort();
    assert_eq!(lines, [answer, answer, receive, receive]);
}

#[test]
fn refused_and_forwarded_requests_are_seen() {
    let pair = pair();
    let missing = pair.probe.to_string();
    let endpoint = &pair.server_orb.endpoints()[0];
    let Endpoint::Tcp { port, .. } = endpoint else { panic!("no TCP endpoint: {missing}") };
    let at = |key: &str| format!("corbaloc::1.2@127.0.0.1:{port}/{key}");
    let client = Orb::new().unwrap();
    let nothing = ProbeRef::unchecked_narrow(&client.string_to_object(&at("Nothing")).unwrap().unwrap());
    assert_eq!(nothing.cube_long(1).unwrap_err().kind(), Kind::ObjectNotExist);
    assert_eq!(pair.server.take(), ["server receive cube_long None", "server answer cube_long ObjectNotExist"]);

    let other = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let object = other.root_poa().activate(&Probe::servant(TestProbe::default())).unwrap();
    other.root_poa().manager().activate().unwrap();
    let abroad = pair.server_orb.string_to_object(&object.to_string()).unwrap().unwrap();
    pair.server_orb.bind_corbaloc_key("Abroad", &abroad).unwrap();
    let recorder = Recorder::new("client");
    let client = Orb::builder().interceptor(recorder.clone()).build().unwrap();
    let moved = ProbeRef::unchecked_narrow(&client.string_to_object(&at("Abroad")).unwrap().unwrap());
    assert_eq!(moved.cube_long(2).unwrap(), 8);
    let expected = ["send cube_long", "reply cube_long Forwarded", "send cube_long", "reply cube_long Returned"];
    assert_eq!(recorder.take(), expected.map(|line| format!("client {line}")));
    let seen = ["receive cube_long Some(true)", "answer cube_long Forwarded"];
    assert_eq!(pair.server.take(), seen.map(|line| format!("server {line}")));
}

struct Calling {
    probe: std::sync::OnceLock<ProbeRef>,
    recorder: Recorder,
}

impl Interceptor for Calling {
    fn send_request(&self, request: &RequestInfo<'_>, _: &mut AddedServiceContexts) -> Result<(), SystemException> {
        self.recorder.note(format!("send {}", request.operation()));
        assert_eq!(self.probe.get().unwrap().cube_long(1)?, 1);
        Ok(())
    }
}

#[test]
fn calls_by_an_interceptor_pass_no_interceptor() {
    let pair = pair();
    let recorder = Recorder::new("calling");
    let calling = Arc::new(Calling { probe: std::sync::OnceLock::new(), recorder: recorder.clone() });
    let orb = Orb::builder().interceptor(Arc::clone(&calling)).build().unwrap();
    let probe: ProbeRef = ProbeRef::unchecked_narrow(&orb.string_to_object(&pair.probe.to_string()).unwrap().unwrap());
    calling.probe.set(probe.clone()).unwrap();
    assert_eq!(probe.length_of("abc").unwrap(), 3);
    assert_eq!(recorder.take(), ["calling send length_of"]);
}
