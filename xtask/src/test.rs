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
    let own = ["test", "--workspace", "--exclude", interop::PACKAGE, "--locked", "--no-fail-fast"];
    steps.command("tests", steps::cargo().args(own));
    models::run(steps);
    if extent == Extent::Full {
        interop::all(steps);
        steps.command("benchmarks' peers", steps::cargo().args(PEERS));
    }
}
