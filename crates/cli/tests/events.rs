//! `corelane events`: a server, a consumer and a supplier as processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;

fn corelane(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.arg("events").args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A program that runs until it is dropped.
struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(words: &[&str]) -> Self {
        let mut process = corelane(words).spawn().expect("the program starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Running { process, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("the rest");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(words: &[&str]) -> Output {
    corelane(words).output().expect("the program starts")
}

/// Pushes texts until the consumer, which may not be connected yet, prints a line.
fn first_line(tail: &mut Running, push: &[&str]) -> String {
    let is_printed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_printed.load(Ordering::Relaxed) {
                assert!(run(push).status.success());
            }
        });
        let line = tail.line();
        is_printed.store(true, Ordering::Relaxed);
        line
    })
}

#[test]
fn events_travel_from_push_through_a_server_to_tail() {
    let mut server = Running::start(&["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight"]);
    let (cos, rtec) = (server.line(), server.line());
    assert!(cos.ends_with("/flight") && rtec.ends_with("/flight.rtec"), "{cos} {rtec}");
    let mut typed = Running::start(&["tail", "--json", "--type", "17", "--type", "18", "--count", "1", &rtec]);
    let line = first_line(&mut typed, &["push", "--type", "17", "--source", "3", &rtec, "take-off"]);
    let line: Json = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&line["type"], &line["source"], &line["payload"]), (&17.into(), &3.into(), &"".into()));
    assert_eq!(line["value"].to_string().matches("take-off").count(), 1, "{line}");
    assert_eq!(typed.rest(), "");
    assert!(typed.process.wait().expect("it ends").success());
    let mut values = Running::start(&["tail", &cos]);
    assert!(first_line(&mut values, &["push", &cos, "landing"]).contains("landing"));
}

#[test]
fn wrong_words_are_refused() {
    let says = |words: &[&str], status: i32, text: &str| {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), said.contains(text)), (Some(status), true), "{words:?}: {said}");
    };
    says(&["tail"], 2, "no channel is given");
    says(&["push", "flight"], 2, "no text is given");
    says(&["tail", "--type", "x", "flight"], 2, "`--type` needs a number, not `x`");
    says(&["push", "--type", "1", "--type", "2", "flight", "text"], 2, "an event has one `--type`");
    says(&["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "a/b"], 1, "a channel's name has 1 to 64 letters");
    says(&["tail", "corbaloc::1.2@127.0.0.1:1/flight"], 1, "the channel cannot be used");
    says(&["create"], 2, "no channel is given");
    says(&["destroy", "flight"], 2, "`events destroy` needs --control");
    says(&["serve", "--control", "c"], 2, "`--allow-control` and `--control` need each other");
    says(&["serve", "--lane", "x"], 2, "`--lane` needs a number or N:PRIORITY, not `x`");
    says(&["serve", "--overflow", "x"], 2, "`x` is not a reaction to a full queue");
    says(&["top", "--interval", "x"], 2, "an interval is a number of seconds");
}

/// Returns the standard output of a command that succeeds.
fn output(words: &[&str]) -> String {
    let output = run(words);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

#[test]
fn channels_are_created_counted_and_destroyed() {
    let socket = std::env::temp_dir().join(format!("corelane-events-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let control = socket.to_str().expect("UTF-8");
    let user = corelane_sys::process::effective_user_id().to_string();
    let mut server = Running::start(&[
        "serve",
        "--listen",
        "tcp:127.0.0.1:0",
        "--channel",
        "flight",
        "--lane",
        "20",
        "--lane",
        "5",
        "--overflow",
        "drop-newest",
        "--allow-control",
        &user,
        "--control",
        control,
    ]);
    let (cos, rtec) = (server.line(), server.line());
    let server_at = cos.strip_suffix("/flight").expect("the channel's key");
    let (monitor, factory) = (format!("{server_at}/CorelaneEvents"), format!("{server_at}/omniEvents"));
    assert!(output(&["create", "--at", &factory, "ground"]).starts_with("IOR:"));
    assert_eq!(output(&["list", "--at", &monitor]), "flight\nground\n");
    assert_eq!(output(&["list", "--at", &monitor, "--json"]).lines().next(), Some("{\"channel\":\"flight\"}"));
    let mut tail = Running::start(&["tail", "--count", "1", &rtec]);
    first_line(&mut tail, &["push", &rtec, "take-off"]);
    assert_eq!(tail.rest(), "");
    let line = output(&["stat", "--at", &monitor, "--json"]);
    let flight: Json = serde_json::from_str(line.lines().next().expect("a line")).expect("JSON");
    let published = flight["published"].as_u64().expect("a number");
    assert!(published >= 1 && flight["sets"]["routed"].as_u64() <= Some(published), "{flight}");
    // A consumer that is connected and pulls nothing has the events in its queues.
    let orb = corelane::Orb::new().expect("an ORB");
    let channel: corelane_services::events::cos_event_channel_admin::EventChannelRef =
        orb.string_to_reference(&format!("{server_at}/ground")).expect("the channel");
    let puller = channel.for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    output(&["push", &format!("{server_at}/ground"), "one", "two"]);
    let shown = output(&["stat", "--at", &monitor, "ground"]);
    assert!(shown.contains("ground: 0 suppliers, 1 consumers\n  events: published 2,"), "{shown}");
    assert!(shown.contains("    lane 0: 0 sets, 0 bytes\n    lane 1: 2 sets, "), "{shown}");
    let table = output(&["top", "--at", &monitor, "--count", "2", "--interval", "0.01"]);
    assert_eq!(table.lines().filter(|line| line.starts_with("ground")).count(), 2, "{table}");
    // No client may destroy a channel, and over the control socket the permitted user may.
    let refused = channel.destroy().unwrap_err();
    assert_eq!(refused.kind(), corelane::SystemExceptionKind::NoPermission);
    output(&["destroy", "--control", control, "ground"]);
    assert_eq!(output(&["list", "--at", &monitor]), "flight\n");
    let again = run(&["destroy", "--control", control, "ground"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "error: the server has no channel `ground`\n");
    let unknown = run(&["stat", "--at", &monitor, "ground"]);
    assert_eq!(String::from_utf8_lossy(&unknown.stdout), "error: the server has no channel `ground`\n");
    // A name is free again as soon as its channel is destroyed.
    let _ = output(&["create", "--at", &factory, "ground"]);
    let twice = run(&["create", "--at", &factory, "ground"]);
    assert!(String::from_utf8_lossy(&twice.stdout).contains("the name `ground` is in use or not permitted"));
}

#[test]
fn server_without_the_users_permission_closes_the_control_connection() {
    let socket = std::env::temp_dir().join(format!("corelane-events-other-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let control = socket.to_str().expect("UTF-8");
    let other = (corelane_sys::process::effective_user_id() + 1).to_string();
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--allow-control", &other, "--control", control];
    let mut server = Running::start(&words);
    server.line();
    let refused = run(&["destroy", "--control", control, "EventChannel"]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("the server closed the connection"), "{said}");
}
