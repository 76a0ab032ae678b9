//! The project's chores: `cargo xtask check`, `cargo xtask test`, `cargo xtask interop`, `cargo xtask models`,
//! `cargo xtask demo`, `cargo xtask fuzz`, `cargo xtask idl-corpus`.
//!
//! Each check is a pure function from what it reads to a list of findings, so that its own tests can show it refusing a
//! violated rule; [`steps`] runs them, shows progress and sums up. Nothing here is a dependency of the crates.
#![forbid(unsafe_code)]

mod check;
mod demo;
mod dependencies;
mod fuzz;
mod host;
mod idl_corpus;
mod interop;
mod layers;
mod licences;
mod metadata;
mod models;
mod source;
mod steps;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use steps::Steps;

const HELP: &str = "\
cargo xtask <command>

  check            formatting, clippy, rustdoc, dependency direction, licences, source rules
  test             installs missing system packages (root, apt), then check, all tests, models, interop
  interop          the other ORBs alone
  interop --tao PREFIX  live against an installation of TAO that you have
  test --quick     the same without the peers: no system packages, no interop
  models           the models of the protocols over atomics, in every interleaving with up to 3 preemptions (the largest: 2)
  models --preemptions N  all of them with up to N; with 3 the largest takes minutes
  demo             runs a mission computer and its clients for 15 seconds; report in target/demo/report.html
  demo --seconds N the same for N seconds
  fuzz [TARGET...] runs the fuzz targets, a minute each; docs/fuzzing.md has more
       --runs N    that many executions of each; --seconds N: that long
       --keep      adds what was found on the way to fuzz/corpus
       --list      names the targets; --prove: finds a planted fault
  build-time       how long a release build of the workspace takes from nothing but fetched sources
  idl-corpus DIR   the IDL compiler beside omniidl on every .idl file below DIR
  help             this text
";

fn main() -> ExitCode {
    if let Some(status) = fuzz::as_compiler() {
        return status;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut steps = Steps::new(root());
    match words.as_slice() {
        ["check"] => check::run(&mut steps),
        ["test"] => test::run(&mut steps, test::Extent::Full),
        ["test", "--quick"] => test::run(&mut steps, test::Extent::Quick),
        ["interop", options @ ..] => {
            if !interop::run(&mut steps, options) {
                eprint!("{HELP}");
                return ExitCode::from(2);
            }
        }
        ["models", options @ ..] => {
            if !models::run_with(&mut steps, options) {
                eprint!("{HELP}");
                return ExitCode::from(2);
            }
        }
        ["build-time"] => build_time(&mut steps),
        ["demo", options @ ..] => return demo::run(&root(), options),
        ["fuzz", options @ ..] => return fuzz::run(&root(), options),
        ["idl-corpus", options @ ..] => return idl_corpus::run(&root(), options),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    }
    steps.summary()
}

/// A release build of everything into a folder of its own, which goes again. The steps' summary has the time.
fn build_time(steps: &mut Steps) {
    if !steps.command("sources", steps::cargo().args(["fetch", "--locked"])) {
        return;
    }
    let folder = root().join("target").join("build-time");
    steps.step("an empty folder", |_| match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(String::new()),
    });
    let build = ["build", "--workspace", "--release", "--locked", "--quiet", "--target-dir"];
    steps.command("release build", steps::cargo().args(build).arg(&folder));
    // What it takes up is of no further use; what cannot be removed is in the way of nothing.
    let _ = std::fs::remove_dir_all(&folder);
}

/// The workspace's folder: the one above xtask's own.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
