//! Tests of `corelane rio` as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use corelane_net::{Endpoint, IoClass, IoProperties, Transport, WaitLimit};
use corelane_rio::admission::{ProcessingCost, StreamResources};
use corelane_rio::feature_level::FeatureLevel;
use corelane_rio::{RioConfig, RioTransport, StreamAdmission};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::socket::{self, Address, SocketOptions};
use corelane_sys::{bpf, poll};
use serde_json::{Value as Json, json};

fn rio(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).arg("rio").args(words).output().expect("the program starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The tests that look at the transports of this process run one after the other.
static ALONE: Mutex<()> = Mutex::new("one test at a time", LockScope::Orb, ());

fn all_transports() -> Vec<Json> {
    let output = rio(&["status", "lo", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!((&report["schema"], &report["interface"]), (&json!(1), &json!("lo")));
    report["transports"].as_array().expect("transports").clone()
}

/// Returns the transports of this process that `status` reports.
fn own_transports() -> Vec<Json> {
    all_transports().into_iter().filter(|one| one["process"] == json!(std::process::id())).collect()
}

#[test]
fn calibrate_measures_each_cost() {
    let output = rio(&["calibrate", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    for field in ["per_period_ns", "per_packet_ns", "per_kibibyte_ns"] {
        assert!(report[field].as_u64().is_some_and(|time| time > 0), "{field} of {report}");
    }
    let shown = text(&rio(&["calibrate"]));
    assert!(shown.contains(" ns for each period\n") && shown.contains(" ns for each KiB\n"), "{shown}");
}

#[test]
fn status_shows_the_refusal_of_advisory_admission() {
    let _alone = ALONE.lock();
    let cost = ProcessingCost { per_period: 1_000, per_packet: 1_000, per_kibibyte: 100 };
    let admission = StreamAdmission::new(StreamResources::new(1_000_000, cost)).advisory(true);
    let transport = RioTransport::new(RioConfig::default().admission(admission));
    let class = IoClass::Guaranteed { bytes: 5_000, period: Duration::from_millis(10) };
    let io = IoProperties { class, ..IoProperties::default() };
    let _listener = transport.listen_with_io_properties(&Endpoint::tcp("127.0.0.1", 0), &io).expect("a listener");
    transport.attach_orb();
    let refusal = transport.streams()[0].refusal.expect("a refusal").to_string();
    let of_link = |one: &Json| one["streams"][0]["refusal"].as_str() == Some(refusal.as_str());
    assert!(own_transports().iter().any(of_link), "{:?}", own_transports());
    assert!(text(&rio(&["status", "lo"])).contains(&format!("    refusal  {refusal}\n")));
    transport.detach_orb();
}

#[test]
fn status_shows_the_streams_of_a_process_until_its_orbs_end() {
    let _alone = ALONE.lock();
    let transport = RioTransport::new(RioConfig::default().max_connections(3));
    let class = IoClass::Guaranteed { bytes: 5_000, period: Duration::from_secs(3_600) };
    let io = IoProperties { class, ..IoProperties::default() };
    let listener = transport.listen_with_io_properties(&Endpoint::tcp("127.0.0.1", 0), &io).expect("a listener");
    let client = transport.connect(listener.local_endpoint(), None).expect("a connection");
    poll::wait_readable(listener.readiness_descriptor(), None).expect("the kernel waits");
    let server = listener.accept().expect("a connection");
    assert_eq!(own_transports(), Vec::<Json>::new());

    transport.attach_orb();
    assert_eq!(client.send(&[1; 9_000], WaitLimit::Block).expect("room"), 9_000);
    let mut received = 0;
    while received < 5_000 {
        received += server.recv(&mut [0; 9_000], WaitLimit::Block).expect("bytes of the budget");
    }
    assert!(server.recv(&mut [0; 1], WaitLimit::Now).is_err());
    let transports = own_transports();
    let [found] = transports.as_slice() else { panic!("one transport: {transports:?}") };
    assert_eq!(found["level"], json!("socket options"));
    let stream = &found["streams"][0];
    for (field, expected) in [
        ("side", json!("server")),
        ("class", json!("guaranteed")),
        ("connections", json!(1)),
        ("max_connections", json!(3)),
        ("refused_connections", json!(0)),
        ("period_ns", json!(3_600_000_000_000_u64)),
        ("budget_bytes", json!(5_000)),
        ("budget_used_bytes", json!(5_000)),
        ("received_bytes", json!(5_000)),
        ("waiting_connections", json!(1)),
        ("waits", json!(1)),
        ("period_thread", json!("rio/s1")),
    ] {
        assert_eq!(stream[field], expected, "{field} of {stream}");
    }
    let shown = text(&rio(&["status", "lo"]));
    let process = format!("process {} (", std::process::id());
    assert!(shown.contains(&process), "{shown}");
    assert!(shown.contains("  stream 1 (server): guaranteed, 1 of 3 connections, 0 refused\n"), "{shown}");
    assert!(shown.contains("    budget   5000 of 5000 bytes used in this period of 3600000000000 ns"), "{shown}");

    transport.detach_orb();
    assert_eq!(own_transports(), Vec::<Json>::new());
}

/// With privileges, `clean` attaches an XDP program to the interface for a short time, so the test
/// runs in a new network namespace.
#[test]
fn clean_finds_nothing_to_remove() {
    // The capability 21 is CAP_SYS_ADMIN (include/uapi/linux/capability.h).
    let mut command = Command::new(if bpf::has_capability(21) { "unshare" } else { env!("CARGO_BIN_EXE_corelane") });
    if bpf::has_capability(21) {
        command.args(["--net", env!("CARGO_BIN_EXE_corelane")]);
    }
    let output = command.args(["rio", "clean", "lo", "--json"]).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report["removed"], json!([]));
    assert!(report["found"].as_str().is_some_and(|found| found.contains("lo ")), "{report}");
}

/// A user id that has no privileges on most systems.
const OTHER_USER: u32 = 65_534;

/// Starts this program as [`OTHER_USER`], with a transport of an ORB, or with a socket whose report
/// is `text`.
fn start_as_other_user(text: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "a_process_of_another_user", "--ignored", "--nocapture"]);
    if let Some(text) = text {
        command.env("CORELANE_REPORT", text);
    }
    command.env("CORELANE_OTHER_USER", "1").uid(OTHER_USER).gid(OTHER_USER);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("user {OTHER_USER} must be able to start this test: {error}"));
    let lines = BufReader::new(child.stdout.as_mut().expect("a pipe")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "the process begins");
    child
}

#[test]
#[ignore = "the process that start_as_other_user starts"]
fn a_process_of_another_user() {
    if std::env::var("CORELANE_OTHER_USER").is_err() {
        return;
    }
    let wait = || std::io::stdin().read(&mut [0; 1]).expect("the end of the test");
    match std::env::var("CORELANE_REPORT") {
        Ok(text) => {
            let name = format!("corelane-rio/{}/0", std::process::id());
            let address = SocketAddr::from_abstract_name(name).expect("a short name");
            let listener = UnixListener::bind_addr(&address).expect("a new name");
            std::thread::spawn(move || {
                for connection in listener.incoming() {
                    // Ignores an error: the reader may have ended.
                    let _ = connection.expect("a connection").write_all(text.as_bytes());
                }
            });
            println!("ready");
            wait();
        }
        Err(_) => {
            let transport = RioTransport::new(RioConfig::default());
            transport.attach_orb();
            println!("ready");
            wait();
            transport.detach_orb();
        }
    }
}

fn is_ordinary_user() -> bool {
    let is_ordinary = corelane_sys::process::effective_user_id() != 0;
    if is_ordinary {
        println!("not run: the process does not run as root");
    }
    is_ordinary
}

#[test]
fn root_sees_the_transports_of_other_users() {
    if is_ordinary_user() {
        return;
    }
    let mut other = start_as_other_user(None);
    let found = all_transports();
    drop(other.stdin.take());
    other.wait().expect("the process ends");
    let of_other: Vec<&Json> = found.iter().filter(|one| one["process"] == json!(other.id())).collect();
    assert_eq!(of_other.len(), 1, "{found:?}");
    assert_eq!(of_other[0]["user"], json!(OTHER_USER));
}

#[test]
fn a_process_outside_of_the_readers_pid_namespace_is_shown() {
    if is_ordinary_user() || !bpf::has_capability(21) {
        return println!("not run: no PID namespace can be made");
    }
    let _alone = ALONE.lock();
    let transport = RioTransport::new(RioConfig::default().max_connections(7_331));
    transport.attach_orb();
    let io = IoProperties { class: IoClass::Priority, ..IoProperties::default() };
    let listener = transport.listen_with_io_properties(&Endpoint::tcp("127.0.0.1", 0), &io).expect("a listener");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_corelane"), "rio", "status", "lo"]);
    let shown = text(&command.output().expect("util-linux is installed"));
    let json: Json = serde_json::from_slice(&command.arg("--json").output().expect("it runs").stdout).expect("JSON");
    drop(listener);
    transport.detach_orb();
    assert!(shown.contains("process of another PID namespace (user 0): socket options"), "{shown}");
    let own = |one: &&Json| one["streams"][0]["max_connections"] == json!(7_331);
    let own = json["transports"].as_array().expect("transports").iter().find(own).expect("the transport");
    assert_eq!((&own["process"], &own["program"]), (&Json::Null, &Json::Null));
}

/// Runs a test of this program in a new network namespace, which also has separate abstract names
/// of sockets.
fn run_in_a_namespace(test: &str) {
    let script = "ip link set lo up && exec \"$0\" --exact \"$1\" --ignored --nocapture";
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", script]).arg(program).arg(test).env("CORELANE_IN_A_NAMESPACE", "1");
    let output = command.output().expect("util-linux is installed");
    assert!(output.status.success() && text(&output).contains("1 passed"), "{output:?}");
}

fn is_in_a_namespace() -> bool {
    std::env::var("CORELANE_IN_A_NAMESPACE").is_ok()
}

/// The tests run in new network namespaces, because `clean` attaches an XDP program to the
/// interface for a short time.
#[test]
fn clean_names_the_users_of_an_interface() {
    if is_ordinary_user() || corelane_rio::examination::steering_refusal().is_some() || !bpf::has_capability(21) {
        return println!("not run: the process cannot examine interfaces");
    }
    run_in_a_namespace("clean_examines_an_interface_that_another_user_claims");
    run_in_a_namespace("clean_says_if_a_process_has_no_program");
    run_in_a_namespace("clean_restores_no_settings_of_a_live_process");
}

/// Fails if `clean` restores the settings of a live process whose journal is in another folder, or
/// does not report that it cannot restore settings.
#[test]
#[ignore = "a part of clean_names_the_users_of_an_interface"]
fn clean_restores_no_settings_of_a_live_process() {
    if !is_in_a_namespace() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("corelane-clean-{}", std::process::id()));
    let config = RioConfig::for_interface("lo").max_level(FeatureLevel::KernelPriorities).journal_folder(&folder);
    let transport = RioTransport::new(config);
    transport.attach_orb();
    assert_eq!(transport.level(), FeatureLevel::KernelPriorities, "{}", transport.level_limit_reason());
    let shown = text(&rio(&["clean", "lo"]));
    assert!(shown.starts_with("Nothing is removed: a process has the kernel priorities"), "{shown}");
    let status = text(&rio(&["status", "lo"]));
    assert!(status.contains(&format!("  journal: {}/", folder.display())), "{status}");
    assert_eq!(transport.level(), FeatureLevel::KernelPriorities);
    // Without capabilities, the command cannot remove the discipline of real-time I/O.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_corelane"), "rio", "clean", "lo"]);
    let output = command.output().expect("util-linux is installed");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).starts_with("error: not restored: "), "{output:?}");
    transport.detach_orb();
    std::fs::remove_dir_all(&folder).expect("the folder");
}

/// Fails if root believes the report of another user's process.
#[test]
#[ignore = "a part of clean_names_the_users_of_an_interface"]
fn clean_examines_an_interface_that_another_user_claims() {
    if !is_in_a_namespace() {
        return;
    }
    let mut other = start_as_other_user(Some("corelane-rio 1\ninterface=lo\n"));
    let report = cleaned();
    drop(other.stdin.take());
    other.wait().expect("the process ends");
    assert_eq!((&report["found"], &report["unread"]), (&json!("lo has no program"), &json!(0)));
}

/// Fails if `clean` says that a process has an XDP program on the interface at a feature level
/// without such programs, or does not count a socket that gives no report.
#[test]
#[ignore = "a part of clean_names_the_users_of_an_interface"]
fn clean_says_if_a_process_has_no_program() {
    if !is_in_a_namespace() {
        return;
    }
    let serve = |level: &'static str| {
        let name = format!("corelane-rio/{}/{level}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).expect("a short name"));
        let listener = listener.expect("a new name");
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let report = format!("corelane-rio 1\ninterface=lo\nlevel={level}\n");
                // Ignores an error: the reader may have ended.
                let _ = connection.expect("a connection").write_all(report.as_bytes());
            }
        });
    };
    serve("socket options");
    let process = std::process::id();
    assert_eq!(cleaned()["found"], json!(format!("process {process} uses lo without a program")));
    serve("stream steering");
    assert_eq!(cleaned()["found"], json!(format!("process {process} uses lo, and its program stays")));
    // This listener accepts no connection, so it gives no report.
    let name = Address::Abstract(b"corelane-rio/silent".to_vec());
    let _silent = socket::listen(&name, &SocketOptions::default(), 0).expect("a listener");
    assert_eq!(cleaned()["unread"], json!(1));
    let shown = text(&rio(&["clean", "lo"]));
    assert!(shown.ends_with("\n1 sockets with the name of real-time I/O gave no report in time.\n"), "{shown}");
}

fn cleaned() -> Json {
    let output = rio(&["clean", "lo", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Fails if the doctor does not report that the kernel steers packets away from their threads.
#[test]
fn the_doctor_finds_receive_packet_steering() {
    if is_ordinary_user() || !bpf::has_capability(21) {
        return println!("not run: no network namespace can be made");
    }
    let report = |mask: &str| {
        let prepare = "mount -t sysfs none /sys && echo $0 > /sys/class/net/lo/queues/rx-0/rps_cpus";
        let script = format!("{prepare} && exec $1 doctor --interface lo");
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c", &script, mask, env!("CARGO_BIN_EXE_corelane")]);
        text(&command.output().expect("util-linux is installed"))
    };
    let (off, on) = (report("0"), report("1"));
    assert!(off.contains("  yes  packet steering    off: each packet stays with its kernel thread\n"), "{off}");
    let (_, found) = on.split_once("  NO   packet steering ").unwrap_or_else(|| panic!("{on}"));
    assert!(found.contains("because of rps_cpus of rx-0\n       remedy: switch it off: "), "{on}");
}

#[test]
fn an_absent_interface_is_an_error() {
    for verb in ["status", "clean"] {
        let output = rio(&[verb, "no-such-if"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output), "error: there is no interface no-such-if\n");
        let output = rio(&[verb, "no-such-if", "--json"]);
        let report: Json = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((output.status.code(), &report["schema"]), (Some(1), &json!(1)));
    }
    assert_eq!(rio(&["status"]).status.code(), Some(2));
    assert_eq!(rio(&["mend", "lo"]).status.code(), Some(2));
}
