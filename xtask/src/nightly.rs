//! Miri and ThreadSanitizer, which need a nightly toolchain.
//!
//! Miri has no shared mappings, sockets or scheduling classes; ThreadSanitizer does not see
//! accesses by the kernel or in assembly.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{self, Steps};

const PACKAGE: &str = "corelane-sys";
/// Tests without system calls, which take some minutes under Miri.
const MIRI: [&str; 3] = ["ring::protocol", "hash_index::tests::every_slot", "hash_index::tests::index_agrees"];
const TSAN: [&str; 6] = ["lock::", "pi_mutex::", "checkout_cell::", "ring::", "slab::", "mpsc::"];
/// The target for ThreadSanitizer, which needs a standard library that is built for an explicit
/// target.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs tests under Miri. An empty list of `filters` selects the tests in [`MIRI`].
pub(crate) fn miri(steps: &mut Steps, filters: &[&str]) {
    steps.step("miri", |root| {
        let mut command = nightly(root, "miri");
        command.args(["miri", "test", "--package", PACKAGE, "--lib", "--locked", "--"]);
        command.args(if filters.is_empty() { &MIRI } else { filters });
        // The tests use the clock and the environment, which Miri permits only without isolation.
        steps::status(command.env("MIRIFLAGS", "-Zmiri-disable-isolation"))
    });
}

pub(crate) fn tsan(steps: &mut Steps, filters: &[&str]) {
    steps.step("tsan", |root| {
        let mut command = nightly(root, "tsan");
        command.args(["test", "-Zbuild-std", "--target", TARGET, "--package", PACKAGE, "--lib", "--locked", "--"]);
        command.args(if filters.is_empty() { &TSAN } else { filters });
        steps::status(command.env("RUSTFLAGS", "-Zsanitizer=thread"))
    });
}

fn nightly(root: &Path, folder: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root);
    // These variables would select the stable toolchain.
    for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTC_WRAPPER"] {
        command.env_remove(variable);
    }
    command.env("CARGO_TARGET_DIR", target(root).join(folder));
    command
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into)
}
