//! `cargo xtask test`: the complete test run.

use crate::steps::{self, Steps};
use crate::{check, host, interop, models};

/// Arguments of a benchmark that builds the peers' programs and calls each of them a few times.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    /// All tests except those with other ORBs.
    Quick,
}

pub(crate) fn run(steps: &mut Steps, extent: Extent) {
    if extent == Extent::Full && !steps.step("system packages", host::packages) {
        return;
    }
    check::run(steps);
    // One command for all packages. A second command for the package of the peers would have other
    // features, and would compile the libraries again.
    let mut tests = steps::cargo();
    tests.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    if extent == Extent::Quick {
        tests.args(["--exclude", interop::PACKAGE]);
    }
    steps.command("tests", &mut tests);
    models::run(steps);
    if extent == Extent::Full {
        steps.command("benchmarks' peers", steps::cargo().args(PEERS));
    }
}
