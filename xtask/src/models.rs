//! Models of the protocols over atomics, which `loom` runs in all interleavings with a limited
//! number of preemptions.

use std::path::{Path, PathBuf};

use crate::steps::{self, Steps};

const PACKAGE: &str = "corelane-sys";

pub(crate) fn run(steps: &mut Steps) {
    within(steps, None);
}

/// Runs the models. Returns false if the options are invalid.
pub(crate) fn run_with(steps: &mut Steps, options: &[&str]) -> bool {
    match options {
        [] => within(steps, None),
        ["--preemptions", number] => match number.parse() {
            Ok(number) => within(steps, Some(number)),
            Err(_) => return false,
        },
        _ => return false,
    }
    true
}

/// Runs the models. `preemptions` replaces the maximum number of preemptions in an interleaving,
/// for every model.
fn within(steps: &mut Steps, preemptions: Option<u8>) {
    steps.step("models", |root| {
        let mut command = steps::cargo();
        command.args(["test", "--package", PACKAGE, "--lib", "--release", "--locked"]).current_dir(root);
        // A separate target folder preserves the output of other builds.
        command.env("CARGO_TARGET_DIR", target(root).join("loom")).env("RUSTFLAGS", "--cfg loom -D warnings");
        if let Some(preemptions) = preemptions {
            command.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
        }
        steps::status(&mut command)
    });
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into)
}
