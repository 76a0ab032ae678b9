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
}
