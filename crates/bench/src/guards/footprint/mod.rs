//! The benchmark `footprint`, which measures the size of a server program, and its memory while
//! idle.

mod symbols;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use corelane_sys::{clock, poll, process};

use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::cost::resident_memory_kib;
use crate::harness::{FigureLabel, Progress};
use crate::options::BenchOptions;
use crate::orb::client::object;
use crate::orb::client_orb;
use crate::orb::relay::tcp_address;
use crate::peer::{PeerKind, PeerThreads};
use crate::report::Report;
use crate::value::SingleValue;
use crate::workload::open_idle_connections;

const START: Duration = Duration::from_secs(10);

const IDLE: Duration = Duration::from_millis(300);

const KIB: f64 = 1024.0;
const MOST_PROGRAM_KIB: f64 = 2.0 * 1024.0;
const MOST_MINIMAL_KIB: f64 = 700.0;
/// Maximum KiB by which the size of `hello-server` exceeds the size of a networking program without
/// an ORB, both linked statically.
const MOST_ABOVE_KIB: f64 = 450.0;
const MOST_RESIDENT_KIB: f64 = 5.0 * 1024.0;

pub(crate) fn footprint(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut values = Vec::new();
    progress.show("footprint: hello example");
    let found = hello(options, report);
    values.extend(report.or_report_missing("footprint", "Corelane", found)?.into_iter().flatten());
    let found = minimal(options, report);
    values.extend(report.or_report_missing("footprint", "Corelane, minimal", found)?.into_iter().flatten());
    for features in FEATURES {
        let found = with_features(features);
        let who = format!("Corelane, minimal with {}", features.join(" and "));
        values.extend(report.or_report_missing("footprint", &who, found)?);
    }
    let found = linked_statically(report);
    values.extend(report.or_report_missing("footprint", "Corelane, static", found)?.into_iter().flatten());
    progress.show("footprint: omniORB");
    values.extend(report.or_report_missing("footprint", "omniORB", omniorb(options))?.into_iter().flatten());
    progress.clear();
    report.add_values("footprint", &values)?;
    match report.or_report_missing("footprint", "Corelane, by crate", crates(options))? {
        Some(values) => report.add_values("footprint by crate", &values),
        None => Ok(()),
    }
}

fn hello(options: &BenchOptions, report: &mut Report<'_>) -> Result<Vec<SingleValue>, Failure> {
    let program = match &options.hello_server {
        Some(program) => program.clone(),
        None => beside("hello-server"),
    };
    let build =
        "build the example with `cargo build --release -p corelane-example-hello`, or name its server with --hello";
    let label = label("Corelane", "hello example's server");
    let mut values = vec![of_program(&label, &program, Some(MOST_PROGRAM_KIB), build)?];
    let server = Idle::start(&program)?;
    let [idle, private] = resident_memory_kib(server.child.id());
    values.push(value(&label, "resident, idle", idle, Some(MOST_RESIDENT_KIB)));
    values.push(value(&label, "of it private", private, None));
    let orb = client_orb(0)?;
    let address = tcp_address(&object(&orb, &server.line)?)?;
    let limit = process::raise_descriptor_limit(CONNECTIONS as u64 + 200).unwrap_or(0);
    if limit as usize > CONNECTIONS + 100 {
        let opened = open_idle_connections(address, CONNECTIONS, server.child.id())?;
        let [with, _] = resident_memory_kib(server.child.id());
        values.push(value(&label, "resident, 1,000 connections", with, None));
        drop(opened);
    } else {
        let reason =
            format!("memory with 1,000 connections: the process may have {limit} open descriptors (ulimit -n)");
        report.add_missing("footprint", "Corelane", &reason)?;
    }
    Ok(values)
}

const CONNECTIONS: usize = 1000;

fn minimal(options: &BenchOptions, report: &mut Report<'_>) -> Result<Vec<SingleValue>, Failure> {
    let program = match &options.minimal_server {
        Some(program) => program.clone(),
        None => beside("../minimal/hello-server"),
    };
    let build = "build it with `cargo build --profile minimal -p corelane-example-hello --no-default-features`, or name \
                 it with --minimal";
    let label = label("Corelane", "hello example's server, minimal");
    let mut values = vec![of_program(&label, &program, Some(MOST_MINIMAL_KIB), build)?];
    values.extend(above_bare(&label, &program, None, report)?);
    let server = Idle::start(&program)?;
    let [idle, private] = resident_memory_kib(server.child.id());
    values.push(value(&label, "resident, idle", idle, None));
    values.push(value(&label, "of it private", private, None));
    Ok(values)
}

/// Lists of features. Each list is added to the profile `minimal` of `hello-server`, which has none
/// of them.
const FEATURES: [&[&str]; 4] = [&["any"], &["valuetype"], &["any", "valuetype"], &["shared-memory"]];

/// Returns the size of `hello-server` with these features. The programs have equal names, so each
/// list of features has its own build folder.
fn with_features(features: &[&str]) -> Result<SingleValue, Failure> {
    let folder = format!("minimal-{}", features.join("-"));
    let program = beside(&format!("../{folder}/minimal/hello-server"));
    let build = format!(
        "build it with `cargo build --profile minimal -p corelane-example-hello --no-default-features --features {} \
         --target-dir target/{folder}`",
        features.join(",")
    );
    let label = label("Corelane", &format!("hello example's server, minimal with {}", features.join(" and ")));
    of_program(&label, &program, None, &build)
}

fn linked_statically(report: &mut Report<'_>) -> Result<Vec<SingleValue>, Failure> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let program = beside(&format!("../{target}/minimal/hello-server"));
    let build = format!(
        "build it with `RUSTFLAGS='-C target-feature=+crt-static' cargo build --profile minimal --target {target} -p \
         corelane-example-hello --no-default-features`"
    );
    let label = label("Corelane", "hello example's server, minimal, static");
    let mut values = vec![of_program(&label, &program, None, &build)?];
    values.extend(above_bare(&label, &program, Some(MOST_ABOVE_KIB), report)?);
    Ok(values)
}

/// Returns the size of `hello-bare`, a networking program without an ORB, and by how much `server`
/// is larger, both in KiB. Returns no values if `hello-bare` is missing.
fn above_bare(
    label: &FigureLabel,
    server: &Path,
    bound: Option<f64>,
    report: &mut Report<'_>,
) -> Result<Vec<SingleValue>, Failure> {
    let bare = server.with_file_name("hello-bare");
    if !bare.is_file() {
        let reason =
            format!("size above a program without an ORB: `{}` is missing; the same build makes it", bare.display());
        report.add_missing("footprint", "floor", &reason)?;
        return Ok(Vec::new());
    }
    let (with, without) = (stripped_size(server)? as f64 / KIB, stripped_size(&bare)? as f64 / KIB);
    Ok(vec![
        value(label, "networking program without an ORB", without, None),
        value(label, "above that", with - without, bound),
    ])
}

fn beside(name: &str) -> PathBuf {
    let own = std::env::current_exe().ok();
    own.and_then(|own| Some(own.parent()?.join(name))).unwrap_or_else(|| PathBuf::from(name))
}

fn of_program(label: &FigureLabel, program: &Path, most: Option<f64>, build: &str) -> Result<SingleValue, Failure> {
    if !program.is_file() {
        return Err(Failure::new(format!("there is no `{}`: {build}", program.display())));
    }
    Ok(value(label, "program, stripped", stripped_size(program)? as f64 / KIB, most))
}

fn crates(options: &BenchOptions) -> Result<Vec<SingleValue>, Failure> {
    let program = options.hello_server.clone().unwrap_or_else(|| beside("hello-server"));
    let sums = symbols::by_crate(&program)?;
    let label = |name: &str| FigureLabel { op: name.to_owned(), ..label("Corelane", "hello example's server") };
    Ok(sums
        .iter()
        .take(14)
        .map(|(name, size)| value(&label(name), "code and constants", *size as f64 / KIB, None))
        .collect())
}

fn omniorb(options: &BenchOptions) -> Result<Vec<SingleValue>, Failure> {
    let orb = options.peer(PeerKind::OmniOrb)?;
    let label = label("omniORB", "server of `call`");
    let size = stripped_size(&orb.program())?;
    let (server, _) = orb.serve(BaselineTransport::Tcp, PeerThreads::Default, &options.placement)?;
    std::thread::sleep(IDLE);
    let [idle, private] = resident_memory_kib(server.pid());
    Ok(vec![
        value(&label, "program, stripped, without libraries", size as f64 / KIB, None),
        value(&label, "resident, idle", idle, None),
        value(&label, "of it private", private, None),
    ])
}

fn stripped_size(program: &Path) -> Result<u64, Failure> {
    let copy = std::env::temp_dir().join(format!("corelane-bench-{}.stripped", std::process::id()));
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&copy).arg(program).stdin(Stdio::null());
    let outcome = strip.output();
    let size = fs::metadata(&copy).map(|metadata| metadata.len());
    let _ = fs::remove_file(&copy);
    match outcome {
        Err(error) => Err(Failure::new(format!("`strip` cannot be run: {error}; install binutils"))),
        Ok(output) if !output.status.success() => Err(Failure::new(format!(
            "`strip` refuses `{}`: {}",
            program.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
        Ok(_) => size.map_err(|error| Failure::new(format!("the stripped program: {error}"))),
    }
}

struct Idle {
    child: Child,
    line: String,
}

impl Idle {
    fn start(program: &Path) -> Result<Self, Failure> {
        use std::os::fd::AsFd;
        let named = |reason: String| Failure::new(format!("`{}` {reason}", program.display()));
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| named(format!("cannot be started: {error}")))?;
        let mut idle = Idle { child, line: String::new() };
        let output = idle.child.stdout.take().ok_or_else(|| named("has no output".to_owned()))?;
        let deadline = clock::now() + START;
        let readable = poll::wait_readable(output.as_fd(), Some(deadline)).unwrap_or(false);
        if !readable || BufReader::new(output).read_line(&mut idle.line).unwrap_or(0) == 0 {
            return Err(named(format!("has printed nothing within {} s", START.as_secs())));
        }
        idle.line.truncate(idle.line.trim_end().len());
        std::thread::sleep(IDLE);
        Ok(idle)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn label(peer: &'static str, config: &str) -> FigureLabel {
    FigureLabel {
        bench: "footprint",
        peer,
        transport: "tcp",
        op: String::new(),
        config: config.to_owned(),
        axis_point: None,
    }
}

fn value(label: &FigureLabel, quantity: &str, value: f64, bound: Option<f64>) -> SingleValue {
    SingleValue { label: label.clone(), quantity: quantity.to_owned(), value, unit: "KiB", bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripped_program_is_smaller() {
        let program = std::env::current_exe().unwrap();
        let size = stripped_size(&program).unwrap();
        assert!((1..fs::metadata(&program).unwrap().len()).contains(&size), "{size}");
        assert!(stripped_size(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn program_without_a_first_line_is_refused() {
        let Err(refused) = Idle::start(Path::new("/bin/true")) else { panic!("accepted") };
        assert!(refused.to_string().contains("printed nothing"), "{refused}");
        assert!(Idle::start(Path::new("/nonexistent")).is_err());
    }
}
