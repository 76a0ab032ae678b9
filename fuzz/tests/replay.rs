//! Runs every committed input through every target, so that earlier findings stay fixed.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corelane_fuzz::{TARGETS, planted};
use corelane_sys::usage::thread_time;

/// Maximum processor time of one input. The load of other processes does not affect this time.
const MAX_PROCESSOR_TIME: Duration = Duration::from_secs(10);

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn every_target_has_a_corpus() {
    for (name, _) in TARGETS {
        let folder = here().join("corpus").join(name);
        assert!(!files(&folder).is_empty(), "fuzz/corpus/{name} is empty: `cargo xtask fuzz {name} --keep` fills it");
    }
}

#[test]
fn every_folder_of_inputs_has_a_target() {
    for part in ["corpus", "regressions", "seeds"] {
        for folder in files(&here().join(part)) {
            let name = folder.file_name().unwrap().to_str().unwrap();
            assert!(TARGETS.iter().any(|(target, _)| *target == name), "fuzz/{part}/{name} belongs to no target");
        }
    }
}

#[test]
fn committed_inputs_run_through_every_target() {
    let mut failures = Vec::new();
    let folders = ["corpus", "regressions", "seeds"].map(|part| files(&here().join(part))).concat();
    for path in folders.iter().flat_map(|folder| files(folder)) {
        let input = fs::read(&path).unwrap();
        let shown = path.strip_prefix(here()).unwrap().display().to_string();
        for (name, target) in TARGETS {
            let begin = thread_time();
            if panic::catch_unwind(|| target(&input)).is_err() {
                failures.push(format!("fuzz/{shown} makes {name} panic"));
            } else if thread_time() - begin > MAX_PROCESSOR_TIME {
                failures.push(format!("{name} uses {:?} of processor time on fuzz/{shown}", thread_time() - begin));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn planted_fault_needs_its_four_octets() {
    planted(b"");
    planted(b"\xc0\x4e\x7a");
    planted(b"\xc0\x4e\x7a\x18");
    assert!(panic::catch_unwind(|| planted(b"\xc0\x4e\x7a\x19 and more")).is_err());
}
