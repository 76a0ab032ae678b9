//! `cargo xtask demo`: builds the avionics example in release mode and runs it.

use std::path::Path;
use std::process::ExitCode;

use crate::steps;

const PACKAGE: &str = "corelane-example-avionics";

pub(crate) fn run(root: &Path, options: &[&str]) -> ExitCode {
    println!("building the demo (release; the first time takes a minute or two)");
    let mut command = steps::cargo();
    command.args(["run", "--release", "--locked", "--quiet", "--package", PACKAGE, "--"]).args(options);
    match command.current_dir(root).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cargo could not be started: {error}");
            ExitCode::FAILURE
        }
    }
}
