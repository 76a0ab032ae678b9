//! Runs every benchmark to its end with a few calls.
//!
//! Other tests use the machine at the same time, so the figures have no meaning.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use corelane_sys::thread::{Scheduling, ThreadBuilder};
use serde_json::Value;

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts")
}

fn names() -> Vec<String> {
    let list = String::from_utf8(corelane(&["bench", "list"]).stdout).expect("text");
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

const LITTLE: &[&str] = &["--quick", "--count", "2", "--warm-up", "0", "--repetitions", "1", "--without-peers"];

/// Returns further options of a benchmark. `counts` measures one operation only, because it
/// single-steps its processes, which is slow.
fn also(name: &str) -> &'static [&'static str] {
    match name {
        "counts" => &["--op", "octet"],
        // `cores` compares numbers of cores, so it must not be pinned to cores.
        "cores" => &["--unpinned"],
        _ => &[],
    }
}

/// Returns true if the reason for a missing number is permitted: a program that is not built, a
/// measurement on request, a missing permission or feature, or a busy machine.
fn may_be_missing(reason: &str) -> bool {
    let words = [
        "build ",
        "permitted",
        "ulimit",
        "no symbols",
        "only with --",
        "not implemented",
        "does not strain",
        "link cannot be made",
        "does not exceed",
    ];
    words.iter().any(|words| reason.contains(words))
}

/// Runs a benchmark with a few calls and with `options`. Panics if it fails, or if a number of
/// Corelane is missing for a reason that is not permitted.
fn run_to_end(name: &str, options: &[&str]) {
    let began = Instant::now();
    let json = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}{}.json", options.concat()));
    let json_words = ["--json", &json.to_string_lossy()];
    let output = corelane(&[&["bench", "run", name], LITTLE, also(name), options, &json_words].concat());
    let said = || format!("{name} {options:?}: {}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", said());
    let lines = std::fs::read_to_string(&json).expect("the file is there");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert_eq!(lines.last().expect("lines")["record"], "end", "{}", said());
    let of = |record: &str| lines.iter().filter(|line| line["record"] == record).collect::<Vec<_>>();
    for missing in of("missing") {
        let text = |member: &str| missing[member].as_str().unwrap_or_default().to_owned();
        let ours = text("peer").starts_with("Corelane");
        assert!(!ours || may_be_missing(&text("reason")), "{}", said());
    }
    let measured = of("result").len() + of("value").len();
    assert!(measured > 0 || !of("missing").is_empty(), "{}", said());
    println!("{name} {options:?}: {measured} figures, {:.1} s", began.elapsed().as_secs_f64());
}

#[test]
fn every_benchmark_runs_to_its_end() {
    let names = names();
    assert!(names.len() >= 20 && names.iter().any(|name| name == "inversion"), "{names:?}");
    for name in names {
        run_to_end(&name, &[]);
    }
}

/// Regression test: the first calls and the measured calls of `cores-path` had different
/// priorities, so that they used separate connections.
#[test]
fn benchmarks_of_cores_run_with_fixed_priorities() {
    if ThreadBuilder::new().scheduling(Scheduling::Fifo(10)).spawn(|| ()).is_err() {
        println!("not tested: fixed priorities are not permitted");
        return;
    }
    for name in ["cores-clock", "cores-migration", "cores-path", "cores-isolation"] {
        run_to_end(name, &["--fifo", "10"]);
    }
}
