//! `cargo xtask test`: the complete run, as in continuous integration.

use crate::steps::{self, Steps};
use crate::{check, host, interop, models};

/// Arguments that build the peers' programs for benchmarks, and call each of them a few times. The
/// figures do not matter here.
const PEERS: &[&str] = &[
    "run",
    "--package",
    "corelane-cli",
    "--locked",
    "--",
    "bench",
    "run",
    "cubit",
    "--strict",
    "--count",
    "20",
    "--warm-up",
    "0",
    "--repetitions",
    "1",
    "--op",
    "octet",
    "--op",
    "structs4",
    "--op",
    "oneway",
];

/// Extent of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything, including the peers.
    Full,
    /// Without the peers and their system packages.
    Quick,
}

/// Installs what is missing, then checks, then tests.
pub(crate) fn run(steps: &mut Steps, extent: Extent) {
    if extent == Extent::Full && !steps.step("system packages", host::packages) {
        return;
    }
    check::run(steps);
    // A failure must not hide other failures.
    let own = ["test", "--workspace", "--exclude", interop::PACKAGE, "--locked", "--no-fail-fast"];
    steps.command("tests", steps::cargo().args(own));
    models::run(steps);
    if extent == Extent::Full {
        interop::all(steps);
        steps.command("benchmarks' peers", steps::cargo().args(PEERS));
    }
}
