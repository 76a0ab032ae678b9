//! Runs the demo: all calls succeed, and it writes its report.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use corelane_rio::examination::steering_refusal;

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_avionics")).args(arguments).output().unwrap()
}

fn has_omniorb() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = |program| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    in_path("omniidl") && in_path("g++") && Path::new("/usr/include/omniORB4/CORBA.h").exists()
}

#[test]
fn demo_of_three_seconds_succeeds_and_writes_its_report() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo");
    let report = folder.join("report.html");
    let _ = fs::remove_file(&report);
    let output = demo(&["--seconds", "3", "--out", folder.to_str().unwrap()]);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.is_empty(), "{}\n{said}\n{errors}", output.status);

    let left_out = said.contains("omniORB   left out: ");
    assert!(!left_out || !has_omniorb(), "the omniORB client is left out although omniORB is installed\n{said}");
    let (before, summary) = said.split_once("\nsummary ").expect(&said);
    let page = fs::read_to_string(&report).unwrap();
    // During the run, the output has a line for each client, even without a terminal.
    let (_, live) = before.split_once(" s of 3\n").expect(&said);
    // On a busy machine rates may be lower, but not by half.
    let mut expected = vec![("inertial", 30), ("radar", 15), ("engines", 7), ("display", 37), ("bulk", 60)];
    expected.extend((!left_out).then_some(("omniorb", 15)));
    let mut missed = 0;
    for &(client, calls) in &expected {
        let now = Row::of(client, live).unwrap_or_else(|| panic!("{client} is not in the live table\n{said}"));
        let row = Row::of(client, summary).expect(&said);
        assert!(row.calls >= calls && row.calls >= now.calls, "{client}\n{said}");
        assert_eq!(row.failed, "0", "{client}\n{said}");
        let [p50, p99, most] = row.latencies.each_ref().map(|latency| microseconds(latency));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= most, "{client}\n{said}");
        match &row.deadline {
            Some(_) => missed += row.missed.parse::<usize>().expect(&said),
            None => assert_eq!(row.missed, "-", "{client} has no deadline to miss"),
        }
        assert_eq!(row.deadline.is_some(), ["inertial", "radar", "engines"].contains(&client), "{client}");
        assert!(page.contains(&format!("<h2>{client}</h2>")), "{client} is not in the page");
        let cells = [&row.calls.to_string(), &row.latencies[0], &row.latencies[1], &row.latencies[2]];
        let cells = cells.map(|cell| format!("<td>{cell}")).concat();
        assert!(page.contains(&cells), "the page does not have the cells {cells} for {client}");
    }
    assert!(summary.contains(&format!("{missed} deadlines missed, 0 calls failed")), "{said}");
    let lines: Vec<&str> = summary.lines().collect();
    let has_task =
        |name: &str| lines.iter().any(|line| line.contains(&format!(" {name} ")) && line.contains(" core 0, "));
    for name in ["inertial", "radar", "engines"].into_iter().chain((!left_out).then_some("omniorb")) {
        assert!(has_task(name), "{name} has no task\n{said}");
    }
    assert!(lines.iter().any(|line| line.starts_with("refused   survey ")), "{said}");
    assert!(page.contains("It refused <i>survey</i>: ") && page.contains("aria-label=\"Jobs of the tasks\""), "{page}");
    assert_eq!(page.matches("<svg").count(), expected.len() + 1);
    assert!(!page.contains("http"), "the page must refer to no other resource");
    assert!(said.contains("SCHED_FIFO") || said.contains("Fixed priorities are refused"), "{said}");
}

struct Row {
    calls: usize,
    latencies: [String; 3],
    deadline: Option<String>,
    missed: String,
    failed: String,
}

impl Row {
    fn of(client: &str, text: &str) -> Option<Row> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(client))?;
        // Joins each number with its unit, so that both are one word.
        let line = line.replace(" us", "_us").replace(" ms", "_ms");
        // Only the rate has a slash; the scheduling class before it may be two words.
        let words = line.split_whitespace().skip_while(|word| !word.contains('/')).map(|word| word.replace('_', " "));
        let [_, calls, p50, p99, most, deadline, missed, failed] = words.collect::<Vec<_>>().try_into().ok()?;
        Some(Row {
            calls: calls.parse().ok()?,
            latencies: [p50, p99, most],
            deadline: (deadline != "-").then_some(deadline),
            missed,
            failed,
        })
    }
}

fn microseconds(latency: &str) -> f64 {
    let (number, unit) = latency.split_once(' ').unwrap_or_else(|| panic!("no latency: {latency}"));
    number.parse::<f64>().unwrap() * if unit == "ms" { 1e3 } else { 1.0 }
}

/// Fails if the commands are not sorted into their stream, or if the bulk transfer is.
#[test]
fn demo_over_a_link_shows_the_stream_of_the_commands_and_the_rest() {
    if let Some(refusal) = steering_refusal() {
        return println!("not run: {refusal}");
    }
    let can_unshare =
        Command::new("unshare").args(["--net", "true"]).output().is_ok_and(|output| output.status.success());
    if !can_unshare {
        return println!("not run: the process cannot make network namespaces");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("linked");
    let output = demo(&["--link", "--seconds", "2", "--out", folder.to_str().unwrap()]);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let (_, summary) = said.split_once("\nsummary ").expect(&said);
    assert!(summary.contains("\nstream    level stream steering;"), "{said}");
    let number = |after: &str| -> u64 {
        let rest = summary.split_once(after).unwrap_or_else(|| panic!("{after}: {said}")).1;
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    // A request of the inertial sensor has more than 100 bytes, and a block of the bulk transfer has
    // more than 100 frames.
    let commands = number("stream    commands: guaranteed, ");
    assert!((2_000..1_000_000).contains(&commands), "{said}");
    assert!(number("bulk and the rest: best effort, ") > 0, "{said}");
    for client in ["inertial", "radar", "engines", "display", "bulk"] {
        let row = Row::of(client, summary).expect(&said);
        assert!(row.calls > 0 && row.failed == "0", "{client}\n{said}");
    }
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("<h2>Real-time I/O</h2>") && page.contains("<li>commands: guaranteed, "), "{page}");
}

#[test]
fn demo_reports_a_server_that_dies() {
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
        assert!(output.read_line(&mut line).unwrap() > 0, "the demo ended before its server was killed");
    }
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("trouble   server ended with signal: 9"), "{rest}");
}

#[test]
fn invalid_options_are_refused() {
    for wrong in [&["--seconds", "0"][..], &["--seconds"], &["fly"]] {
        let output = demo(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: avionics"));
    }
}

#[test]
fn demo_without_a_writable_folder_prints_the_reason() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-folder");
    fs::write(&file, "a file").unwrap();
    let output = demo(&["--seconds", "1", "--out", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("avionics: "));
}
