//! Tests of `corelane ping` and `corelane doctor REFERENCE` with working, dead and hostile servers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

use corelane::dynamic::{DynamicServant, ServerRequest};
use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtConfig, RtPolicies, SchedulingClass};
use corelane::{Endpoint, Orb, Servant, SystemException};
use corelane_services::naming::NamingConfig;
use serde_json::Value as Json;

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("the program ends by itself")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

struct Server {
    _orb: Orb,
    port: u16,
    reference: String,
}

impl Server {
    fn start() -> Self {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().expect("an ORB");
        let naming = NamingConfig::new().serve(&orb).expect("a name server");
        let Some(Endpoint::Tcp { port, .. }) = orb.endpoints().first() else { panic!("no TCP endpoint") };
        let (port, reference) = (*port, naming.reference().as_object().to_string());
        Server { _orb: orb, port, reference }
    }

    fn url(&self) -> String {
        format!("corbaloc::1.2@127.0.0.1:{}/NameService", self.port)
    }
}

fn hostile(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

fn silent() -> SocketAddr {
    hostile(std::mem::forget)
}

fn closing() -> SocketAddr {
    hostile(|mut connection| drop(connection.read(&mut [0; 1])))
}

fn garbage() -> SocketAddr {
    hostile(|mut connection| {
        let _ = connection.read(&mut [0; 1024]);
        let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nServer: \x1b[2J\r\n\r\n");
    })
}

fn refused() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let address = client.local_addr().expect("an address");
    // The connection occupies its port, so no server of another test gets it.
    std::mem::forget((listener, client));
    address
}

#[test]
fn ping_reports_type_and_response_times_of_an_object() {
    let server = Server::start();
    let output = corelane(&["ping", "--count", "3", "--interval", "0", &server.reference]);
    let said = text(&output);
    assert_eq!(status(&output), 0, "{said}");
    for part in [
        "type          IDL:omg.org/CosNaming/NamingContextExt:1.0\n",
        &format!("answer        profile 1, tcp:127.0.0.1:{}, IIOP 1.2\n", server.port),
        "locate        3 asked: here (3)\n",
        "is_a          3 asked IDL:omg.org/CosNaming/NamingContextExt:1.0: yes (3)\n",
        "non_existent  3 asked: exists (3)\n",
        "\nlocate: p50 ",
        "###",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let output = corelane(&["ping", "--json", "--count", "5", "--interval", "0.001", &server.url()]);
    assert_eq!(status(&output), 0);
    let report = json(&output);
    assert_eq!((&report["schema"], &report["is_there"], &report["is_cut"]), (&1.into(), &true.into(), &false.into()));
    assert_eq!(report["answered"]["endpoint"], format!("tcp:127.0.0.1:{}", server.port));
    assert_eq!(report["asked_type"], "IDL:omg.org/CORBA/Object:1.0");
    for question in report["questions"].as_array().unwrap() {
        assert_eq!((&question["sent"], &question["failures"]), (&5.into(), &0.into()), "{question}");
        let counts = question["latency"]["histogram"].as_array().unwrap().iter();
        assert_eq!(counts.map(|bucket| bucket["count"].as_u64().unwrap()).sum::<u64>(), 5, "{question}");
    }
}

#[test]
fn ping_reports_the_address_that_answers() {
    let server = Server::start();
    let dead = refused().port();
    let url = format!("corbaloc::1.2@127.0.0.1:{dead},:1.2@127.0.0.1:{}/NameService", server.port);
    let report = json(&corelane(&["ping", "--json", "--count", "1", &url]));
    assert_eq!((&report["answered"]["profile"], &report["answered"]["version"]), (&2.into(), &"1.2".into()));
    assert_eq!(report["unanswered"][0]["endpoint"], format!("tcp:127.0.0.1:{dead}"));
    assert!(report["unanswered"][0]["error"].as_str().unwrap().contains("refused"), "{report}");
    let lanes = [format!("3@127.0.0.1:{dead}"), format!("7@127.0.0.1:{}", server.port)];
    let made = corelane(&["ior", "make", "--lane", &lanes[0], "--lane", &lanes[1], "--key", "NameService"]);
    let report = json(&corelane(&["ping", "--json", "--count", "1", text(&made).trim()]));
    assert_eq!(report["answered"]["lane_priority"], 7);
    assert_eq!(report["unanswered"][0]["lane_priority"], 3);
    let named = corelane(&["ping", "--count", "1", &format!("corbaname::127.0.0.1:{}", server.port)]);
    assert_eq!(status(&named), 0, "{}", text(&named));
}

struct Plain;

impl DynamicServant for Plain {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Plain:1.0"]
    }

    fn invoke(&self, _: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        Err(SystemException::bad_operation())
    }
}

#[test]
fn doctor_reports_each_lane_of_a_real_time_server() {
    let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").real_time(rt).build().expect("an ORB");
    let lane = |priority| LaneConfig::default().priority(priority).static_threads(1).listen("tcp:127.0.0.1:0");
    let lanes = LanesConfig::default().name("lanes").lanes([lane(10), lane(20)]);
    let pool = orb.real_time().create_threadpool_with_lanes(&lanes).expect("a pool");
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 10)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let poa = orb.root_poa().create_rt_poa("lanes", None, PoaPolicies::default(), &policies).expect("a POA");
    let reference = poa.activate(&Servant::dynamic(Plain)).expect("an object").to_string();
    poa.manager().activate().expect("an active manager");
    let report = json(&corelane(&["ping", "--json", "--count", "2", &reference]));
    assert_eq!((&report["is_there"], &report["asked_type"]), (&true.into(), &"IDL:Plain:1.0".into()), "{report}");
    assert_eq!((&report["answered"]["lane_priority"], &report["answered"]["profile"]), (&10.into(), &1.into()));
    let output = corelane(&["doctor", &reference]);
    let said = text(&output);
    assert_eq!(status(&output), 0, "{said}");
    for priority in [10, 20] {
        assert!(said.contains(&format!(", lane of priority {priority}: it has the object\n")), "{said}");
    }
}

#[test]
fn missing_object_or_other_type_gives_status_1() {
    let server = Server::start();
    let missing = format!("corbaloc::1.2@127.0.0.1:{}/nothing", server.port);
    let output = corelane(&["ping", "--count", "2", "--interval", "0", &missing]);
    let said = text(&output);
    assert_eq!(status(&output), 1, "{said}");
    assert!(said.contains("locate        2 asked: failed (2): OBJECT_NOT_EXIST"), "{said}");
    let output = corelane(&["ping", "--count", "1", "--type", "IDL:Shop\x1b:1.0", &server.url()]);
    assert_eq!(status(&output), 1);
    assert!(text(&output).contains("is_a          1 asked IDL:Shop\\u{1b}:1.0: no (1)\n"), "{}", text(&output));
    for (words, reason) in [
        (&["ping", "nonsense"][..], "error: `nonsense` cannot be used: "),
        (&["ping", "IOR:00000000000000010000000000000000"], "error: the reference is nil"),
        (&["ping", "@missing"], "error: `missing` cannot be read: "),
    ] {
        let output = corelane(words);
        assert_eq!(status(&output), 1);
        assert!(text(&output).starts_with(reason), "{}", text(&output));
    }
}

#[test]
fn ping_ends_with_any_hostile_server() {
    for (server, reason, timeout) in [
        (silent(), "TIMEOUT", "0.3"),
        (closing(), "COMM_FAILURE", "20"),
        (garbage(), "the server broke the protocol", "20"),
        (refused(), "refused", "20"),
    ] {
        let url = format!("corbaloc::1.2@{server}/k");
        let output = corelane(&["ping", "--timeout", timeout, "--deadline", "60", "--count", "1000000", &url]);
        let said = text(&output);
        assert_eq!(status(&output), 1, "{said}");
        assert!(said.contains(&format!("no answer     profile 1, tcp:{server}: ")) && said.contains(reason), "{said}");
    }
    let many = format!("corbaloc:{}/k", vec![format!(":1.2@{}", silent()); 64].join(","));
    let report = json(&corelane(&["ping", "--json", "--timeout", "0.2", "--deadline", "0.5", &many]));
    assert_eq!((&report["is_cut"], &report["is_there"]), (&true.into(), &false.into()));
    assert!(report["unanswered"].as_array().unwrap().len() < 64);
}

#[test]
fn ping_that_ends_at_its_deadline_has_no_failures() {
    let server = Server::start();
    let (url, times) = (server.url(), ["--interval", "1000", "--timeout", "60", "--deadline", "10"]);
    let report = json(&corelane(&[&["ping", "--json", "--count", "1000000", &url], &times[..]].concat()));
    assert_eq!((&report["is_cut"], &report["is_there"]), (&true.into(), &true.into()), "{report}");
    for question in report["questions"].as_array().expect("questions") {
        assert_eq!((&question["sent"], &question["failures"]), (&1.into(), &0.into()), "{question}");
    }
}

#[test]
fn content_of_a_file_is_not_parsed_as_a_file_name() {
    let server = Server::start();
    let path = |name: &str| format!("{}/ping-{name}", env!("CARGO_TARGET_TMPDIR"));
    let (inner, outer) = (path("inner"), path("outer"));
    std::fs::write(&inner, server.url()).expect("written");
    std::fs::write(&outer, format!("@{inner}")).expect("written");
    assert_eq!(status(&corelane(&["ping", "--count", "1", &format!("@{inner}")])), 0);
    let output = corelane(&["ping", "--count", "1", &format!("@{outer}")]);
    assert_eq!(status(&output), 1);
    assert!(text(&output).starts_with("error: `@") && text(&output).contains("cannot be used: "), "{}", text(&output));
    let endless = corelane(&["naming", "list", "--at", "@/dev/zero"]);
    assert_eq!(status(&endless), 1);
    assert_eq!(text(&endless), "error: `/dev/zero` holds more than 16777216 octets\n");
}

#[test]
fn references_of_maximum_size_are_examined() {
    let server = Server::start();
    let begin = format!("corbaloc::1.2@127.0.0.1:{}/", server.port);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("largest-key");
    std::fs::write(&path, format!("{begin}{}", "k".repeat((1 << 20) - begin.len()))).expect("written");
    let path = format!("@{}", path.display());
    let output = corelane(&["ping", "--count", "1", &path]);
    let said = text(&output);
    assert_eq!(status(&output), 1, "{}", &said[..said.len().min(400)]);
    assert!(said.contains("1 asked: failed (1): OBJECT_NOT_EXIST") && said.len() < 4000, "{said}");
    let (status, found) = finding(&path, "server");
    assert_eq!(status, 1);
    assert!(found["found"].as_str().unwrap().starts_with("it does not have the object"), "{found}");
    let many = format!(
        "corbaloc:{},:1.2@127.0.0.1:{}/NameService",
        vec![format!(":1.2@{}", refused()); 63].join(","),
        server.port
    );
    let report = json(&corelane(&["ping", "--json", "--count", "1", &many]));
    assert_eq!((&report["answered"]["profile"], &report["is_there"]), (&64.into(), &true.into()));
    assert_eq!(finding(&many, "route").0, 0);
}

fn finding(reference: &str, check: &str) -> (i32, Json) {
    finding_within("20", reference, check)
}

/// Examines a reference, and returns the exit status and the finding of `check`. `seconds` is the
/// maximum time of each question.
fn finding_within(seconds: &str, reference: &str, check: &str) -> (i32, Json) {
    let output = corelane(&["doctor", "--json", "--timeout", seconds, reference]);
    let report = json(&output);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["works"], status(&output) == 0);
    let findings = report["findings"].as_array().expect("findings");
    let found = findings.iter().find(|one| one["check"] == check && one["verdict"] != "yes");
    (status(&output), found.unwrap_or_else(|| panic!("{check} in {report:#}")).clone())
}

#[test]
fn doctor_reports_that_a_working_object_can_be_called() {
    let server = Server::start();
    let output = corelane(&["doctor", &server.reference]);
    let said = text(&output);
    assert_eq!(status(&output), 0, "{said}");
    let place = format!("profile 1: tcp:127.0.0.1:{}: ", server.port);
    for part in [
        "yes  reference        1 profile, IDL:omg.org/CosNaming/NamingContextExt:1.0\n",
        "yes  GIOP version     profile 1: 1.2\n",
        "yes  code sets        profile 1: UTF-8 for char, UTF-16 for wchar\n",
        "yes  limits           profile 1: object key of ",
        &format!("?    publish address  {place}only programs on the server's own machine reach it\n     remedy: "),
        &format!("yes  route            {place}a program takes connections at 127.0.0.1:{}\n", server.port),
        &format!("yes  server           {place}it has the object\n"),
        "yes  object           it exists and answers\n",
        "\nThe object can be called.\n",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("\nNO "), "{said}");
    let url = format!("corbaloc::1.2@{},:1.2@127.0.0.1:{}/NameService", refused(), server.port);
    let (status, found) = finding(&url, "route");
    assert_eq!((status, &found["profile"], &found["verdict"]), (0, &1.into(), &"no".into()));
}

#[test]
fn doctor_reports_why_a_server_does_not_answer() {
    for (server, seconds, check, cause) in [
        (silent(), "1", "server", "it takes connections and answers nothing"),
        (closing(), "20", "server", "it closes the connection without an answer"),
        (garbage(), "20", "server", "it answers, but not in GIOP"),
        (refused(), "20", "route", "refused: the machine answers, and no program listens there"),
    ] {
        let (status, found) = finding_within(seconds, &format!("corbaloc::1.2@{server}/k"), check);
        assert_eq!((status, &found["verdict"]), (1, &"no".into()), "{found}");
        assert_eq!(found["endpoint"], format!("tcp:{server}"));
        assert!(found["found"].as_str().unwrap().starts_with(cause), "{found}");
        assert!(found["remedy"].as_str().is_some_and(|remedy| !remedy.contains('\n')), "{found}");
    }
    let output = corelane(&["doctor", "--timeout", "20", &format!("corbaloc::1.2@{}/k", refused())]);
    assert!(text(&output).contains("\nNO   route ") && text(&output).ends_with("\nThe object cannot be called.\n"));
}

#[test]
fn doctor_reports_faults_of_addresses_names_and_objects() {
    let server = Server::start();
    let port = server.port;
    for (reference, check, status, cause) in [
        ("corbaloc::1.2@no-such-host.invalid:1/k".to_owned(), "name resolution", 1, "`no-such-host.invalid` cannot be"),
        (format!("corbaloc::1.2@0.0.0.0:{}/k", refused().port()), "publish address", 1, "stands for every address"),
        (format!("corbaloc::127.0.0.1:{port}/NameService"), "GIOP version", 0, "1.0: no wide text"),
        (
            format!("corbaloc::1.2@127.0.0.1:{port}/nothing"),
            "server",
            1,
            "it does not have the object (OBJECT_NOT_EXIST",
        ),
        (format!("corbaname::1.2@{}#shop", refused()), "name", 1, "`shop` cannot be looked up"),
        ("IOR:00000000000000010000000000000000".to_owned(), "reference", 1, "the reference is nil"),
        ("corbaloc:rir:/NameService".to_owned(), "reference", 1, "the text stands for an initial reference"),
        ("IOR:zz\x1b[2J".to_owned(), "reference", 1, "`IOR:zz\\u{1b}[2J` is not a reference"),
        ("nonsense".to_owned(), "reference", 1, "`nonsense` is not a reference"),
    ] {
        let (found_status, found) = finding(&reference, check);
        assert_eq!(found_status, status, "{reference}: {found}");
        assert!(found["found"].as_str().unwrap().starts_with(cause), "{reference}: {found}");
        assert!(found["remedy"].is_string(), "{reference}: {found}");
    }
    let unbound = format!("corbaname::1.2@127.0.0.1:{port}#shop/a");
    let (found_status, found) = finding(&unbound, "name");
    let cause = format!("\"{unbound}\" is not resolved: nothing is bound to the first part of shop/a");
    assert_eq!((found_status, &found["found"]), (1, &Json::from(cause)));
    let made = |words: &[&str]| {
        let output = corelane(&[&["ior", "make"], words].concat());
        assert_eq!(status(&output), 0, "{}", text(&output));
        text(&output).trim().to_owned()
    };
    let ssl = made(&["--address", "h:0", "--key", "k", "--component", "20=000000660006138800"]);
    assert!(finding(&ssl, "transport").1["found"].as_str().unwrap().contains("TLS"));
    let unix = made(&["--address", "uiop:/nowhere/socket", "--key", "k"]);
    assert_eq!(finding(&unix, "route").1["found"], "there is no such socket");
    let unknown = made(&["--profile", "0x12345678=00"]);
    assert!(finding(&unknown, "transport").1["found"].as_str().unwrap().contains("does not have this transport"));
    let broken = made(&["--profile", "0=00"]);
    assert!(finding(&broken, "reference").1["found"].as_str().unwrap().contains("malformed"));
    let place = format!("127.0.0.1:{port}");
    let sets = "1=0100000000000000000000000000000000000000";
    let sets = made(&["--address", &place, "--key", "NameService", "--component", sets]);
    assert!(finding(&sets, "code sets").1["found"].as_str().unwrap().starts_with("none in common"));
}

#[test]
fn doctor_reports_guarantees_as_json() {
    let output = corelane(&["doctor", "--json"]);
    assert_eq!(status(&output), 0);
    let report = json(&output);
    let names: Vec<&str> =
        report["guarantees"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"scheduling-class") && names.contains(&"timer-slack"), "{names:?}");
    let words = ["doctor", "--require", "timer-slack", "corbaloc::h/k"];
    assert_eq!(status(&corelane(&words)), 2);
}
