//! Runs the demo in both forms: all calls succeed, each event is counted, and it writes its report.

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

/// Runs the demo for 3 seconds. Returns its output and its report.
fn successful_demo(name: &str, arguments: &[&str]) -> (String, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let report = folder.join("report.html");
    let _ = fs::remove_file(&report);
    let output = demo(&[arguments, &["--seconds", "3", "--out", folder.to_str().unwrap()]].concat());
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.is_empty(), "{}\n{said}\n{errors}", output.status);
    assert!(said.contains("SCHED_FIFO") || said.contains("Fixed priorities are refused"), "{said}");
    (said.into_owned(), fs::read_to_string(&report).unwrap())
}

/// Returns the rows of a demo, each with its minimum number of calls. The argument is true if the
/// client of omniORB is left out.
type Rows = dyn Fn(bool) -> Vec<(&'static str, usize)>;

/// Runs the demo until each row has its calls, at most five times. The demo calls in real time, so
/// it makes fewer calls if the machine pauses.
fn demo_with_calls(name: &str, arguments: &[&str], rows: &Rows) -> (String, String) {
    for _ in 0..4 {
        let (said, page) = successful_demo(name, arguments);
        let summary = said.split_once("\nsummary ").expect(&said).1;
        let has_calls = |(client, calls)| Row::of(client, summary).is_some_and(|row| row.calls >= calls);
        if rows(leaves_omniorb_out(&said)).into_iter().all(has_calls) {
            return (said, page);
        }
    }
    successful_demo(name, arguments)
}

fn leaves_omniorb_out(said: &str) -> bool {
    let left_out = said.contains("omniORB   left out: ");
    assert!(!left_out || !has_omniorb(), "the omniORB client is left out although omniORB is installed\n{said}");
    left_out
}

/// Checks the rows of the clients and of the work, with the least number of calls of each, in the
/// live table, in the summary and in the page.
fn check_rows(said: &str, page: &str, expected: &[(&str, usize)], without_deadline: &[&str]) {
    let (before, summary) = said.split_once("\nsummary ").expect(said);
    // During the run, the output has a line for each client, even without a terminal.
    let (_, live) = before.split_once(" s of 3\n").expect(said);
    let mut missed = 0;
    for &(client, calls) in expected {
        let now = Row::of(client, live).unwrap_or_else(|| panic!("{client} is not in the live table\n{said}"));
        let row = Row::of(client, summary).expect(said);
        assert!(row.calls >= calls && row.calls >= now.calls, "{client}\n{said}");
        assert_eq!(row.failed, "0", "{client}\n{said}");
        if row.calls > 0 {
            let [p50, p99, most] = row.latencies.each_ref().map(|latency| microseconds(latency));
            assert!(0.0 < p50 && p50 <= p99 && p99 <= most, "{client}\n{said}");
        }
        match &row.deadline {
            Some(_) => missed += row.missed.parse::<usize>().expect(said),
            None => assert_eq!(row.missed, "-", "{client} has no deadline to miss"),
        }
        assert_eq!(row.deadline.is_none(), without_deadline.contains(&client), "{client}");
        assert!(page.contains(&format!("<h2>{client}</h2>")), "{client} is not in the page");
        let cells = [&row.calls.to_string(), &row.latencies[0], &row.latencies[1], &row.latencies[2]];
        let cells = cells.map(|cell| format!("<td>{cell}")).concat();
        assert!(page.contains(&cells), "the page does not have the cells {cells} for {client}");
    }
    assert!(summary.contains(&format!("{missed} deadlines missed, 0 calls failed")), "{said}");
    assert!(!page.contains("http"), "the page must refer to no other resource");
}

/// Checks that each name has a task, and that the task `survey` was refused with the name of the
/// test that it failed.
fn check_tasks(said: &str, page: &str, names: &[&str]) {
    let (_, summary) = said.split_once("\nsummary ").expect(said);
    let lines: Vec<&str> = summary.lines().collect();
    for name in names {
        let is_task = |line: &&str| line.contains(&format!(" {name} ")) && line.contains(" core 0, ");
        assert!(lines.iter().any(is_task), "{name} has no task\n{said}");
    }
    let refusal = lines.iter().find(|line| line.starts_with("refused   survey ")).expect(said);
    assert!(refusal.contains(": capacity test: core 0 "), "{refusal}");
    assert!(page.contains("It refused <i>survey</i>: capacity test: "), "{page}");
    assert!(page.contains("aria-label=\"Jobs of the tasks\""), "{page}");
}

#[test]
fn direct_demo_succeeds_and_writes_its_report() {
    // On a busy machine rates may be lower, but not by half.
    let rows = |left_out: bool| {
        let mut expected = vec![("inertial", 30), ("position", 30), ("radar", 15), ("engines", 7), ("selftest", 1)];
        expected.extend([("steering", 30), ("display", 37), ("bulk", 60)]);
        expected.extend((!left_out).then_some(("omniorb", 15)));
        expected
    };
    let (said, page) = demo_with_calls("direct", &["--direct"], &rows);
    let left_out = leaves_omniorb_out(&said);
    let expected = rows(left_out);
    check_rows(&said, &page, &expected, &["display", "bulk", "omniorb"]);
    let tasks = ["inertial", "position", "radar", "engines", "selftest", "steering", "omniorb"];
    check_tasks(&said, &page, &tasks[..tasks.len() - usize::from(left_out)]);
    assert!(!said.contains("\nchannel "), "{said}");
    // The page has a histogram for each client, and a chart of the jobs.
    assert_eq!(page.matches("<svg").count(), expected.len() + 1);
}

#[test]
fn demo_on_the_channel_counts_each_event_and_changes_its_mode() {
    let rows = |left_out: bool| {
        let mut expected = vec![("navigation", 30), ("threats", 15), ("endurance", 7), ("health", 0), ("hud", 45)];
        expected.extend([("tracking", 0), ("steering", 30), ("bulk", 60)]);
        expected.extend((!left_out).then_some(("omniorb", 15)));
        expected
    };
    let (said, page) = demo_with_calls("events", &[], &rows);
    let left_out = leaves_omniorb_out(&said);
    let expected = rows(left_out);
    check_rows(&said, &page, &expected, &["bulk", "omniorb"]);
    let tasks = ["navigation", "threats", "endurance", "hud", "tracking", "steering", "omniorb"];
    check_tasks(&said, &page, &tasks[..tasks.len() - usize::from(left_out)]);

    let (before, summary) = said.split_once("\nsummary ").expect(&said);
    let mut names = ["navigation", "threats", "endurance", "health", "hud", "tracking", "display"].to_vec();
    check_channel(before, &page, &[&names[..], &["sensors"]].concat());
    names.extend(["inertial", "position", "radar", "engines", "selftest"]);
    check_channel(summary, &page, &names);
    for mode in
        ["attack with navigation, threats, endurance, hud, tracking", "cruise with navigation, threats, endurance"]
    {
        assert!(summary.contains(&format!("mode      {mode}")) && page.contains(&format!("<li>Mode {mode}")), "{said}");
    }
    assert!(summary.matches(": admitted\n").count() == 2, "{said}");
    // The page has a histogram for each row with calls, a chart of the jobs, and a chart of the
    // channel's deliveries.
    let idle = page.matches("<p>No calls.</p>").count();
    assert_eq!(page.matches("<svg").count(), expected.len() - idle + 2);
}

/// Checks the counts of each consumer in the last table of the channel in a text.
fn check_channel(text: &str, page: &str, expected: &[&str]) {
    let (_, table) = text.rsplit_once("\nchannel ").expect(text);
    let mut names = Vec::new();
    for line in table.lines().skip(1).take_while(|line| !line.is_empty()) {
        let (name, counts) = line.split_once(' ').expect(line);
        let counts: Vec<u64> = counts.split_whitespace().map(|count| count.parse().unwrap()).collect();
        assert_eq!(counts.len(), 6, "{line}");
        assert_eq!(counts[0], counts[1..].iter().sum::<u64>(), "{line}");
        assert!(counts[0] > 0 || name == "selftest" || name == "health", "{line}");
        let is_in_page = page.contains(&format!("<tr><td>{name}<td>"));
        assert!(is_in_page || name == "sensors", "{name} is not in the page");
        names.push(name);
    }
    names.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected, "{text}");
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

/// Fails if the commands are not sorted into their stream, or if the bulk transfer is sorted into
/// it.
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
    let of_clients = ["inertial", "position", "radar", "engines", "steering", "display", "bulk"];
    check_link(&["--direct"], &of_clients);
    check_link(&[], &["navigation", "threats", "endurance", "hud", "steering", "bulk"]);
}

fn check_link(form: &[&str], clients: &[&str]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("linked");
    let output = demo(&[form, &["--link", "--seconds", "2", "--out", folder.to_str().unwrap()]].concat());
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let (_, summary) = said.split_once("\nsummary ").expect(&said);
    assert!(summary.contains("\nstream    level stream steering;"), "{said}");
    let number = |after: &str| -> u64 {
        let rest = summary.split_once(after).unwrap_or_else(|| panic!("{after}: {said}")).1;
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    // A request of a client with a deadline has nearly 100 bytes, and a block of the bulk transfer
    // has more than 100 frames.
    let commands = number("stream    commands: guaranteed, ");
    assert!((1_500..1_000_000).contains(&commands), "{said}");
    assert!(number("bulk and the rest: best effort, ") > 0, "{said}");
    for client in clients {
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
    while !line.starts_with("work ") {
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
