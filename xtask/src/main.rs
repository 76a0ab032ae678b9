//! Tasks of the project, such as checks and test runs.
#![forbid(unsafe_code)]

mod check;
mod crash;
mod cross;
mod demo;
mod dependencies;
mod dist;
mod figures;
mod fuzz;
mod host;
mod idl_corpus;
mod interop;
mod layers;
mod licences;
mod metadata;
mod models;
mod modules;
mod mutants;
mod nightly;
mod source;
mod steps;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use steps::Steps;

const HELP: &str = "\
cargo xtask <command>

  check            formatting, clippy, rustdoc, dependency direction, licences, source rules
  layers           the layers inside the ORB, and circles of files in all crates (part of check)
  test             installs missing system packages (root, apt), then check, all tests, models, interop
  test --quick     like test, without the peers: no system packages, no interop
  interop          the tests with other ORBs alone
  interop --tao PREFIX  tests with your own installation of TAO
  interop --nats   tests of event channels joined by NATS JetStream; installs nats-server (root, apt), builds bridges/nats
  models           the models of the protocols over atomics, in every interleaving with up to 3 preemptions (the largest: 2)
  models --preemptions N  all models with up to N preemptions; with 3 the largest takes minutes
  demo             runs a mission computer and its clients for 15 seconds; report in target/demo/report.html
  demo --seconds N like demo, for N seconds
  demo --direct    the same work by direct calls, without an event channel
  fuzz [TARGET...] runs the fuzz targets, a minute each; docs/fuzzing.md has more
       --runs N    N executions of each target; --seconds N: N seconds each
       --keep      adds the inputs that reach new paths to fuzz/corpus
       --list      names the targets; --prove: finds a planted fault
  mutants [FILE...]  changes the code in one place at a time: 95 of 100 times a test must fail; takes an hour or more
       --jobs N    N mutants at a time; CONTRIBUTING.md has more
  crash naming     kills a name server 1,000 times, and simulates 1,000 power failures under its store; takes minutes
       --cycles N  N kills; --cuts N: N power failures
  crash cores      kills a server of admissions and its clients 1,000 times
  crash events     kills a server of durable event channels 1,000 times, and simulates 1,000 power failures
  miri [FILTER...] tests of unsafe code under Miri, by hand: needs a nightly toolchain with miri and rust-src
  tsan [FILTER...] tests of shared data under ThreadSanitizer, by hand: needs a nightly toolchain with rust-src
  cross            the crates for 64-bit ARM; rustup installs the target if it is missing
  dist             the `corelane` command as one file without libraries, in target/dist, and a run of it
  figures          measures the figures of the README, and writes them and docs/calls.svg
  figures --quick  like figures, with fewer calls
  names            the names that several types of the workspace have (check refuses those of public types)
  build-time       time of a release build of the workspace from fetched sources
  idl-corpus DIR   compares the IDL compiler with omniidl on every .idl file below DIR
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
        ["layers"] => check::structure(&mut steps),
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
        ["mutants", options @ ..] => {
            if !mutants::run(&mut steps, options) {
                eprint!("{HELP}");
                return ExitCode::from(2);
            }
        }
        ["figures", options @ ..] => {
            if !figures::run(&mut steps, options) {
                eprint!("{HELP}");
                return ExitCode::from(2);
            }
        }
        ["crash", options @ ..] => {
            if !crash::run(&mut steps, options) {
                eprint!("{HELP}");
                return ExitCode::from(2);
            }
        }
        ["miri", filters @ ..] => nightly::miri(&mut steps, filters),
        ["tsan", filters @ ..] => nightly::tsan(&mut steps, filters),
        ["cross"] => cross::run(&mut steps),
        ["dist"] => dist::run(&mut steps),
        ["names"] => {
            steps.step("names of several types", modules::repeated_type_names);
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
    let _ = std::fs::remove_dir_all(&folder);
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
