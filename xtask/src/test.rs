//! `cargo xtask test`: the whole run, as continuous integration does it.

use crate::steps::{self, Steps};
use crate::{check, host, interop, models};

/// Builds the programs with which the benchmarks compare, and calls each of them a few times; figures are of no interest here.
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

/// How much of the run is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything, the peers included.
    Full,
    /// Without the peers, and so without their system packages.
    Quick,
}

/// Installs what is missing, then checks, then tests.
pub(crate) fn run(steps: &mut Steps, extent: Extent) {
    if extent == Extent::Full && !steps.step("system packages", host::packages) {
        return;
    }
    check::run(steps);
    // One failure is not to hide others.
    let own = ["test", "--workspace", "--exclude", interop::PACKAGE, "--locked", "--no-fail-fast"];
    steps.command("tests", steps::cargo().args(own));
    models::run(steps);
    if extent == Extent::Full {
        interop::all(steps);
        steps.command("benchmarks' peers", steps::cargo().args(PEERS));
    }
}
