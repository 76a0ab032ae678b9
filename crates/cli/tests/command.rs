//! Runs the program and checks its exit status, output and error messages.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

#[test]
fn help_and_version_are_printed() {
    let version = corelane(&["version"]);
    assert_eq!((status(&version), text(&version.stdout)), (0, format!("corelane {}\n", env!("CARGO_PKG_VERSION"))));
    let help = corelane(&["help"]);
    for command in ["idl", "call", "ior", "naming", "cores", "bench", "trace", "doctor", "version", "help"] {
        assert!(text(&help.stdout).contains(&format!("\n  {command}")), "{command}");
        let of_command = corelane(&["help", command]);
        assert_eq!(status(&of_command), 0);
        assert!(text(&of_command.stdout).contains("Exit status"), "{command}");
    }
}

#[test]
fn wrong_usage_has_status_2_and_lists_the_choices() {
    for words in [
        &[][..],
        &["what"],
        &["help", "what"],
        &["ior"],
        &["doctor", "--what"],
        &["bench"],
        &["idl"],
        &["call"],
        &["naming"],
        &["cores"],
    ] {
        let output = corelane(words);
        assert_eq!(status(&output), 2, "{words:?}");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.starts_with("error: ") && said.contains("usage: corelane"), "{words:?}: {said}");
    }
}

#[test]
fn valid_idl_is_compiled_and_invalid_idl_is_refused() {
    let folder = folder("idl");
    let (good, bad) = (folder.join("good.idl"), folder.join("bad.idl"));
    fs::write(&good, "interface Echo { string say(in string what); };\n").expect("written");
    fs::write(&bad, "interface Echo { strung say(); };\n").expect("written");
    let out = folder.to_string_lossy().into_owned();
    let compiled = corelane(&["idl", "-o", &out, &good.to_string_lossy()]);
    assert_eq!(status(&compiled), 0, "{}", text(&compiled.stderr));
    assert!(fs::read_to_string(folder.join("good.rs")).expect("output").contains("trait Echo"));
    let refused = corelane(&["idl", "--check", &bad.to_string_lossy()]);
    assert_eq!(status(&refused), 1);
    assert!(text(&refused.stderr).contains("bad.idl:1"), "{}", text(&refused.stderr));
}

#[test]
fn references_are_read_from_arguments_and_lines() {
    let output = corelane(&["ior", "corbaloc::server.example:5000/Clock"]);
    assert_eq!(status(&output), 0);
    assert!(text(&output.stdout).contains("server.example:5000"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    let mut child =
        command.args(["ior", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(b"corbaloc::one/k\n\nnonsense\n").expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(status(&output), 1);
    let said = text(&output.stdout);
    assert!(said.contains("one:2809") && said.contains("`nonsense` is not a reference"), "{said}");
}

#[test]
fn doctor_reports_guarantees_and_accepts_a_required_one() {
    let output = corelane(&["doctor"]);
    assert_eq!(status(&output), 0);
    let said = text(&output.stdout);
    assert!(said.contains("scheduling-class") && said.contains("guarantees hold"), "{said}");
    assert_eq!(status(&corelane(&["doctor", "--require", "timer-slack"])), 0);
}

#[test]
fn benchmark_writes_a_table_and_json_lines() {
    let json = folder("bench").join("floor.json");
    let json = json.to_string_lossy();
    let words = ["bench", "run", "floor", "--count", "50", "--repetitions", "2", "--warm-up", "5", "--threads", "2"];
    let output = corelane(&[&words[..], &["--op", "octet", "--op", "oneway", "--json", &json]].concat());
    assert_eq!(status(&output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("machine: ") && said.contains("epoll, 2 threads"), "{said}");
    assert!(text(&output.stderr).contains("measuring floor"), "progress is shown");
    let lines: Vec<serde_json::Value> = fs::read_to_string(&*json)
        .expect("the file is there")
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    assert_eq!(lines[0]["record"], "run");
    let of = |op: &str| lines.iter().filter(|line| line["record"] == "result" && line["op"] == op).count();
    assert_eq!((of("octet"), of("oneway")), (11, 2));
    assert_eq!(lines[lines.len() - 1]["record"], "end");
    assert!(lines.iter().any(|line| line["record"] == "missing" && line["reason"].as_str().unwrap().contains("spin")));
    for line in lines.iter().filter(|line| line["record"] == "result") {
        assert_eq!((&line["schema"], &line["version"]), (&"corelane-bench".into(), &1.into()));
        assert_eq!(line["n"], 100);
        assert!(line["p50_us"].as_f64().is_some_and(|time| time > 0.0), "{line}");
        assert!(line["server_cpu_us"].as_f64().is_some_and(|time| time > 0.0), "{line}");
        assert_eq!(line["baseline_p50_us"].is_null(), line["config"] == "tcp, blocking", "{line}");
    }
    let page = folder("page").join("page.html");
    let output = corelane(&["bench", "report", &json, "--out", &page.to_string_lossy()]);
    assert_eq!(status(&output), 0, "{}", text(&output.stdout));
    assert!(fs::read_to_string(page).expect("the page is there").contains("<svg"));
}

#[test]
fn missing_peer_is_reported() {
    let words =
        ["bench", "run", "call", "--count", "20", "--repetitions", "1", "--op", "octet", "--peers", "/nonexistent"];
    let output = corelane(&words);
    let said = text(&output.stdout);
    assert_eq!(status(&output), 0, "{said}{}", text(&output.stderr));
    assert!(said.contains("NOT MEASURED: call, omniORB") && said.contains("--peers"), "{said}");
}

#[test]
fn omitted_measurements_are_recorded_as_missing() {
    let json = folder("cubit").join("cubit.json");
    let json = json.to_string_lossy();
    let words = ["bench", "run", "cubit", "--count", "5", "--repetitions", "1", "--warm-up", "1", "--without-peers"];
    let more = ["--op", "octet", "--op", "longs65536", "--transport", "shm", "--json", &json];
    let output = corelane(&[&words[..], &more].concat());
    assert_eq!(status(&output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
    let lines = fs::read_to_string(&*json).expect("the file is there");
    let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("each line is JSON"));
    let missing = lines.filter(|line| line["record"] == "missing").map(|line| {
        let reason = line["reason"].as_str().expect("a text");
        format!("{} {}", line["peer"].as_str().expect("a text"), reason.split(':').next().unwrap_or(reason))
    });
    let left_out = "left out by --without-peers";
    let peers = ["omniORB", "JacORB", "Ice"].map(|peer| format!("{peer} {left_out}"));
    let spin = ["floor spin over shm".to_owned()];
    assert_eq!(missing.collect::<Vec<_>>(), [&peers[..], &spin].concat());
}

#[test]
fn counts_of_a_steady_call_are_within_the_bounds_of_the_design() {
    let json = folder("counts").join("counts.json");
    let json = json.to_string_lossy();
    let output = corelane(&[
        "bench",
        "run",
        "counts",
        "--without-peers",
        "--op",
        "octet",
        "--op",
        "long",
        "--op",
        "struct",
        "--json",
        &json,
    ]);
    assert_eq!(status(&output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
    let lines = fs::read_to_string(&*json).expect("the file is there");
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let values = lines.iter().filter(|line| line["record"] == "value");
    let (stepped, counted): (Vec<_>, Vec<_>) =
        values.partition(|value| value["group"].as_str().is_some_and(|group| group.ends_with("step by step")));
    // Three architectures, two kinds of deadline, three operations, two sides, eight counts.
    assert_eq!(counted.len(), 3 * 2 * 3 * 2 * 8);
    for value in counted.iter().chain(&stepped) {
        if let Some(bound) = value["bound"].as_f64() {
            assert!(value["value"].as_f64().is_some_and(|count| count <= bound), "{value}");
        }
        if value["what"] == "client: system calls" {
            assert_eq!(value["value"], value["bound"], "{value}");
        }
    }
    let refused = lines.iter().find(|line| line["record"] == "missing" && line["peer"] == "Corelane");
    assert!(
        refused.is_none(),
        "atomic operations are to be counted, which takes permission to trace (ptrace): {refused:?}"
    );
    assert_eq!(stepped.len(), 3 * 3 * 2 * 3);
    assert_eq!(stepped.iter().filter(|value| value["bound"].is_number()).count(), 3 * 3 * 2);
    for value in stepped {
        let count = value["value"].as_f64().expect("a number");
        assert!(count > 0.0, "{value}");
        let entries = if value["config"] == "thread per connection" { 2.0 } else { 3.0 };
        match value["what"].as_str().expect("a text") {
            "client: kernel entries" => assert_eq!(count, 2.0, "{value}"),
            "server: kernel entries" => assert_eq!(count, entries, "{value}"),
            "client: atomic operations" | "server: atomic operations" => {
                assert!(count.fract() == 0.0, "each call does the same: {value}");
            }
            what => assert!(what.ends_with(": instructions"), "{value}"),
        }
    }
}

#[test]
fn calls_are_compared_with_the_floor_of_their_architecture() {
    let json = folder("call").join("call.json");
    let json = json.to_string_lossy();
    let words = ["bench", "run", "call", "--count", "50", "--repetitions", "2", "--warm-up", "5", "--without-peers"];
    let more = ["--op", "octet", "--op", "oneway", "--transport", "tcp", "--transport", "unix", "--json", &json];
    let output = corelane(&[&words[..], &more].concat());
    assert_eq!(status(&output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
    let lines = fs::read_to_string(&*json).expect("the file is there");
    let parsed = lines.lines().map(|line| serde_json::from_str(line).expect("each line is JSON"));
    let lines: Vec<serde_json::Value> = parsed.collect();
    assert!(lines.iter().any(|line| line["record"] == "missing" && line["peer"] == "omniORB"));
    let of =
        |record: &str| lines.iter().filter(|line| line["record"] == record && line["peer"] == "Corelane").collect();
    let (ours, goals): (Vec<_>, Vec<_>) = (of("result"), of("value"));
    // `octet` has goals against the floor and against calls without polling. `oneway` has values
    // without bounds, over TCP.
    let (judged, told): (Vec<_>, Vec<_>) = goals.into_iter().partition(|line| line["bound"].is_number());
    assert!(judged.len() == 8 && judged.iter().all(|line| line["op"] == "octet"), "{judged:?}");
    assert!(
        told.len() == 4 && told.iter().all(|line| line["op"] == "oneway" && line["transport"] == "tcp"),
        "{told:?}"
    );
    let end = &lines[lines.len() - 1];
    let met = judged.iter().filter(|line| line["value"].as_f64() <= line["bound"].as_f64()).count();
    assert_eq!((&end["goals"], &end["goals_met"]), (&8.into(), &met.into()));
    assert!(text(&output.stdout).contains(&format!("verdict of call: {met} of 8 goals are met")));
    assert_eq!(
        ours.len(),
        16,
        "2 operations x 2 transports x 2 architectures, each also as batches (oneways) or without polling (octets)"
    );
    for line in ours {
        let config = line["config"].as_str().expect("a text");
        let pool = config.starts_with("leader/followers, 4") && line["op"] == "octet";
        let floor = if pool { "epoll, 4 threads" } else { "blocking" };
        assert_eq!(line["against"][0]["config"], floor, "{line}");
        assert_eq!(line["against"][0]["transport"], line["transport"], "{line}");
    }
}
