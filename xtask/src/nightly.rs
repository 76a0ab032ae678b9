//! Miri and ThreadSanitizer, which a developer starts by hand. Only these two need a nightly
//! toolchain.
//!
//! Miri interprets the code and finds undefined behaviour; it has no shared mappings, sockets or
//! scheduling classes. ThreadSanitizer runs the tests and finds unordered accesses; it does not see
//! accesses by the kernel or in assembly.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{self, Steps};

const PACKAGE: &str = "corelane-sys";
/// Tests that make no system calls and take only minutes under Miri.
const MIRI: [&str; 3] = ["ring::protocol", "hash_index::tests::every_slot", "hash_index::tests::index_agrees"];
/// Tests of data that threads share: locks, queues, tables and rings.
const TSAN: [&str; 6] = ["lock::", "pi_mutex::", "checkout_cell::", "ring::", "slab::", "mpsc::"];
/// Target triple. It is explicit, because ThreadSanitizer needs a standard library built for it
/// with instrumentation.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs tests of unsafe code under Miri. `filters` selects tests; an empty list selects the tests
/// that Miri can run.
pub(crate) fn miri(steps: &mut Steps, filters: &[&str]) {
    steps.step("miri", |root| {
        let mut command = nightly(root, "miri");
        command.args(["miri", "test", "--package", PACKAGE, "--lib", "--locked", "--"]);
        command.args(if filters.is_empty() { &MIRI } else { filters });
        // The tests use the machine's clock and environment, which Miri permits only without
        // isolation.
        steps::status(command.env("MIRIFLAGS", "-Zmiri-disable-isolation"))
    });
}

/// Runs tests of shared data under ThreadSanitizer. `filters` selects tests, as for [`miri`].
pub(crate) fn tsan(steps: &mut Steps, filters: &[&str]) {
    steps.step("tsan", |root| {
        let mut command = nightly(root, "tsan");
        command.args(["test", "-Zbuild-std", "--target", TARGET, "--package", PACKAGE, "--lib", "--locked", "--"]);
        command.args(if filters.is_empty() { &TSAN } else { filters });
        steps::status(command.env("RUSTFLAGS", "-Zsanitizer=thread"))
    });
}

/// Returns the nightly `cargo` with a target folder of its own.
fn nightly(root: &Path, folder: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root);
    // These variables would select the toolchain that runs this program.
    for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTC_WRAPPER"] {
        command.env_remove(variable);
    }
    command.env("CARGO_TARGET_DIR", target(root).join(folder));
    command
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into)
}
