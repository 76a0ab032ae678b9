//! Tests of `corelane trace`: two processes on one time line, messages between processes, and
//! hand-overs between threads.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn traced(server: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.json", server.replace(':', "-")));
    let mut program = Command::new(env!("CARGO_BIN_EXE_corelane"));
    let output = program.args(["trace", "--calls", "3", "--server", server, "--out"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{server}: {}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn of<'e>(events: &'e [Value], phase: &str, name: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["ph"] == phase && event["name"] == name).collect()
}

fn threads(events: &[Value]) -> Vec<&str> {
    let server = of(events, "M", "process_name").into_iter().find(|event| event["args"]["name"] == "server").unwrap();
    let names = of(events, "M", "thread_name").into_iter().filter(|event| event["pid"] == server["pid"]);
    names.map(|event| event["args"]["name"].as_str().unwrap()).collect()
}

#[test]
fn trace_has_both_processes_and_their_messages() {
    let events = traced("per-connection");
    let names: Vec<_> = of(&events, "M", "process_name").iter().map(|event| event["args"]["name"].clone()).collect();
    assert_eq!(names, ["client", "server"]);
    // The server may not have recorded the last reply, so one message may be missing.
    let (from, to) = (of(&events, "s", "message"), of(&events, "f", "message"));
    assert!(from.len() == to.len() && (5..=6).contains(&from.len()), "{from:?}");
    for (from, to) in from.iter().zip(&to) {
        assert!(from["id"] == to["id"] && from["pid"] != to["pid"], "{from} {to}");
    }
    let waits = of(&events, "X", "waiting for the socket");
    assert!(waits.iter().all(|wait| wait["args"]["blame"] == "socket"), "{waits:?}");
    assert!(waits.iter().filter(|wait| wait["args"]["until"] == "reply read").count() == 3, "{waits:?}");
    for stage in ["request parsed", "adapter found", "servant found", "operation found", "servant done"] {
        assert_eq!(of(&events, "X", stage).len(), 3, "{stage}");
    }
    assert!(of(&events, "b", "waiting in the queue").is_empty());
}

#[test]
fn requests_that_are_handed_over_wait_in_the_queue() {
    for (server, takes_in, runs) in [("half-sync:2", "bench/l", "bench/w"), ("lanes:2", "pool/l", "rt/p200/l")] {
        let events = traced(server);
        let waits = of(&events, "b", "waiting in the queue");
        assert_eq!(waits.len(), 3, "{server}");
        assert!(waits.iter().all(|wait| wait["args"]["blame"] == "queue"), "{waits:?}");
        let (from, to) = (of(&events, "s", "hand-over"), of(&events, "f", "hand-over"));
        assert!(!from.is_empty() && from.len() == to.len(), "{server}: {from:?} {to:?}");
        for (from, to) in from.iter().zip(&to) {
            assert!(from["pid"] == to["pid"] && from["tid"] != to["tid"], "{from} {to}");
        }
        let threads = threads(&events);
        for kind in [takes_in, runs] {
            assert!(threads.iter().any(|name| name.starts_with(kind)), "{server}: {threads:?}");
        }
    }
}
