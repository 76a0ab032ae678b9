//! Tests of `corelane rio` as a process.

use std::process::{Command, Output};
use std::time::Duration;

use corelane_net::{Endpoint, IoClass, IoProperties, Transport, Wait};
use corelane_rio::{RioConfig, RioTransport};
use corelane_sys::{bpf, poll};
use serde_json::{Value as Json, json};

fn rio(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).arg("rio").args(words).output().expect("the program starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the transports of this process in the report of `status`.
fn own_transports() -> Vec<Json> {
    let output = rio(&["status", "lo", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!((&report["schema"], &report["interface"]), (&json!(1), &json!("lo")));
    let transports = report["transports"].as_array().expect("transports").clone();
    transports.into_iter().filter(|one| one["process"] == json!(std::process::id())).collect()
}

#[test]
fn status_shows_the_streams_of_a_process_until_its_orbs_end() {
    let transport = RioTransport::new(RioConfig::default().max_connections(3));
    let class = IoClass::Guaranteed { bytes: 5_000, period: Duration::from_secs(3_600) };
    let io = IoProperties { class, ..IoProperties::default() };
    let listener = transport.listen_with_io(&Endpoint::tcp("127.0.0.1", 0), &io).expect("a listener");
    let client = transport.connect(listener.local_endpoint(), None).expect("a connection");
    poll::wait_readable(listener.readiness(), None).expect("the kernel waits");
    let server = listener.accept().expect("a connection");
    assert_eq!(own_transports(), Vec::<Json>::new());

    transport.attach_orb();
    assert_eq!(client.send(&[1; 9_000], Wait::Block).expect("room"), 9_000);
    let mut received = 0;
    while received < 5_000 {
        received += server.recv(&mut [0; 9_000], Wait::Block).expect("bytes of the budget");
    }
    assert!(server.recv(&mut [0; 1], Wait::Now).is_err());
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

/// With privileges, `clean` attaches a program for a moment, so the test has a network namespace of
/// its own.
#[test]
fn clean_finds_nothing_to_remove() {
    // include/uapi/linux/capability.h: CAP_SYS_ADMIN.
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
