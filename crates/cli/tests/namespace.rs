//! Runs a benchmark plan in a network namespace, with the script of docs/benchmarks.md.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

fn script() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md");
    let page = fs::read_to_string(page).unwrap();
    let lines = page.lines().skip_while(|line| *line != "    #!/bin/sh").take_while(|line| line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.trim_start())).collect()
}

fn ip(words: &[&str]) {
    let status = Command::new("ip").args(words).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {words:?}");
}

struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

fn carried_out(folder: &Path, via: &Path) -> (bool, Vec<Value>) {
    let (plan, out) = (folder.join("plan.json"), folder.join("out.json"));
    let mut program = Command::new(env!("CARGO_BIN_EXE_corelane"));
    let output = program.args(["bench", "plan"]).arg(plan).arg("--json").arg(&out).arg("--via").arg(via).output();
    let lines = fs::read_to_string(out).unwrap();
    (output.unwrap().status.success(), lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn plan_runs_benchmarks_in_a_network_namespace() {
    assert_eq!(corelane_sys::process::effective_user_id(), 0, "only root may make network namespaces");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("namespace");
    fs::create_dir_all(&folder).unwrap();
    let via = folder.join("via");
    fs::write(&via, script()).unwrap();
    fs::set_permissions(&via, fs::Permissions::from_mode(0o755)).unwrap();
    let namespace = Namespace(format!("corelane-{}", std::process::id()));
    let name = &namespace.0;
    let arguments = ["floor", "--count", "5", "--warm-up", "0", "--repetitions", "1", "--op", "octet"];
    let run = json!({"host": name, "program": env!("CARGO_BIN_EXE_corelane"), "arguments": arguments});
    let plan = json!({"schema": "corelane-plan", "version": 1, "runs": [run]});
    fs::write(folder.join("plan.json"), plan.to_string()).unwrap();
    ip(&["netns", "add", name]);
    // The loopback interface of a new namespace is down, so the plan fails if it runs in the
    // namespace.
    assert!(!carried_out(&folder, &via).0, "the plan runs in the namespace");
    ip(&["-n", name, "link", "set", "lo", "up"]);
    let (well, lines) = carried_out(&folder, &via);
    assert!(well, "{lines:?}");
    assert_eq!((&lines[0]["record"], &lines[0]["name"]), (&"run".into(), &name.as_str().into()));
    assert!(lines.iter().any(|line| line["record"] == "result" && line["config"] == "tcp, blocking"), "{lines:?}");
}
