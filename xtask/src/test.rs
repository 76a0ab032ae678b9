//! `cargo xtask test`: the whole run, as continuous integration does it.

use crate::steps::{self, Steps};
use crate::{check, host};

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
    let all = ["test", "--workspace", "--locked"];
    steps.command("tests", steps::cargo().args(all));
}
