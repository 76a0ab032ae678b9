//! The demo runs by itself, calls without a failure, and leaves its report.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_avionics")).args(arguments).output().unwrap()
}

#[test]
fn two_seconds_of_flight() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo");
    let report = folder.join("report.html");
    let _ = fs::remove_file(&report);
    let output = demo(&["--seconds", "2", "--out", folder.to_str().unwrap()]);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.is_empty(), "{}\n{said}\n{errors}", output.status);

    let (_, summary) = said.split_once("\nsummary ").expect(&said);
    let page = fs::read_to_string(&report).unwrap();
    // Rates of a busy machine may be lower, but not by half.
    for (client, expected) in [("inertial", 20), ("radar", 10), ("engines", 5), ("display", 25), ("bulk", 40)] {
        let line = summary.lines().find(|line| line.starts_with(client)).expect(&said);
        assert!(calls(line) >= expected, "{said}");
        assert!(line.ends_with(" 0"), "{client} has failures\n{said}");
        assert!(page.contains(&format!("<h2>{client}</h2>")), "{client} is not in the page");
        assert!(page.contains(&format!("<td>{}<td>", calls(line))), "the page has another number of calls of {client}");
    }
    let foreign = summary.lines().find(|line| line.starts_with("omniorb")).map(calls);
    let left_out = said.contains("omniORB   left out: ");
    assert!(left_out || foreign.is_some_and(|calls| calls >= 10), "{said}");
    assert_eq!(page.matches("<svg").count(), if left_out { 5 } else { 6 });
    assert!(!page.contains("http"), "the page is to need nothing else");
    assert!(summary.contains(" 0 calls failed"), "{said}");
    assert!(said.contains("SCHED_FIFO") || said.contains("Fixed priorities are refused"), "{said}");
}

#[test]
fn a_server_that_dies_is_told() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dying");
    let mut command = Command::new(env!("CARGO_BIN_EXE_avionics"));
    command.args(["--seconds", "2", "--out", folder.to_str().unwrap()]).stdout(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let mut output = BufReader::new(demo.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("clients ") {
        if let Some(words) = line.strip_prefix("server    process ") {
            let (server, _) = words.split_once(',').unwrap();
            assert!(Command::new("kill").args(["-9", server]).status().unwrap().success());
        }
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("trouble   server ended with signal: 9"), "{rest}");
}

/// The number of calls in a line of the table: the word after the rate, which has the only slash.
fn calls(line: &str) -> usize {
    let (_, rest) = line.split_once('/').unwrap_or_else(|| panic!("no rate in {line}"));
    rest.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for wrong in [&["--seconds", "0"][..], &["--seconds"], &["fly"]] {
        let output = demo(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: avionics"));
    }
}

#[test]
fn without_a_place_for_the_report_it_says_so() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-folder");
    fs::write(&file, "a file").unwrap();
    let output = demo(&["--seconds", "1", "--out", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("avionics: "));
}
