//! The fuzzing engine: its build with instrumentation, its runs, and its output.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use super::Target;
use crate::steps;

/// While this variable is set, this program is cargo's workspace wrapper of the compiler.
const COMPILING: &str = "CORELANE_FUZZ_COMPILER";

/// Compiler options that count the passes through every edge of the code, and map each counter to
/// its code.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
];

/// Compiler option that reports the operands of each comparison to the engine, which inserts them
/// into its inputs.
const COMPARISONS: &str = "-Cllvm-args=-sanitizer-coverage-trace-compares";

/// The crate that is compiled without reports of comparisons, because the reports make it much
/// slower. Its inputs are text, for which a dictionary replaces the reports.
const WITHOUT_COMPARISONS: &str = "corelane_idl";

/// Running time in seconds from which an input counts as a finding.
const SECONDS_PER_INPUT: u32 = 5;

/// Memory in MB above which a run counts as a finding.
const MEGABYTES: u32 = 512;

const MINIMISING: Duration = Duration::from_secs(20);

const QUIET: Duration = Duration::from_secs(10);

/// Bounds of a run, which ends at the bound that it reaches first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) runs: Option<u64>,
    pub(crate) time: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) executions: u64,
    pub(crate) took: Duration,
    pub(crate) edges: u64,
    /// Number of features, as libFuzzer counts them: edges with their frequency, and comparisons.
    pub(crate) features: u64,
    pub(crate) inputs: u64,
    pub(crate) megabytes: u64,
    pub(crate) findings: Vec<PathBuf>,
    /// True if the engine failed without leaving an input, for example by a stack overflow.
    pub(crate) died: bool,
}

/// If cargo has called this program as a compiler wrapper, becomes the compiler with the options
/// for instrumentation, and returns only if that fails. Otherwise returns `None`.
pub(crate) fn as_compiler() -> Option<ExitCode> {
    std::env::var_os(COMPILING)?;
    let mut words = std::env::args_os().skip(1);
    let compiler = words.next()?;
    let words: Vec<OsString> = words.collect();
    let error = Command::new(&compiler).args(instrumentation(&words)).args(&words).exec();
    eprintln!("{}: {error}", compiler.display());
    Some(ExitCode::FAILURE)
}

/// Returns the instrumentation options for a call of the compiler. Build scripts and macros run on
/// the host and get no options.
fn instrumentation(words: &[OsString]) -> Vec<&'static str> {
    let after = |name: &str| words.iter().skip_while(|word| *word != name).nth(1).and_then(|word| word.to_str());
    if after("--target").is_none() {
        return Vec::new();
    }
    let compares = after("--crate-name") != Some(WITHOUT_COMPARISONS);
    COVERAGE.iter().copied().chain(compares.then_some(COMPARISONS)).collect()
}

pub(crate) struct Engine {
    root: PathBuf,
    programs: PathBuf,
}

impl Engine {
    pub(crate) fn build(root: &Path) -> Result<Self, String> {
        println!("building the targets (the first time takes two minutes, and a C++ compiler)");
        let host = host()?;
        let own = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
        let folder = root.join("target/fuzz/build");
        let mut command = steps::cargo();
        command
            .args(["build", "--package", "corelane-fuzz", "--features", "engine", "--bins", "--profile", "fuzz"])
            .args(["--locked", "--quiet", "--target", &host, "--target-dir"])
            .arg(&folder)
            .env("RUSTC_WORKSPACE_WRAPPER", own)
            .env(COMPILING, "1")
            .current_dir(root);
        steps::status(&mut command)?;
        Ok(Self { root: root.to_owned(), programs: folder.join(host).join("fuzz") })
    }

    pub(crate) fn run(&self, target: &Target, limit: &Limit) -> Result<Ran, String> {
        let findings = self.made(&format!("fuzz/findings/{}", target.name))?;
        let before = files(&findings)?;
        let mut command = self.program(target);
        command
            .arg(format!("-timeout={SECONDS_PER_INPUT}"))
            .arg(format!("-rss_limit_mb={MEGABYTES}"))
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .args(["-print_final_stats=1", "-detect_leaks=0"]);
        if let Some(runs) = limit.runs {
            command.arg(format!("-runs={runs}"));
        }
        if let Some(time) = limit.time {
            command.arg(format!("-max_total_time={}", time.as_secs()));
        }
        if let Some(dictionary) = target.dictionary {
            command.arg(format!("-dict={}", self.root.join(format!("fuzz/dictionary/{dictionary}.dict")).display()));
        }
        command.arg(self.work(target)?).args(self.inputs(target)).arg(&findings);
        let mut ran = self.watched(target, command)?;
        for path in files(&findings)?.difference(&before) {
            self.minimise(target, path)?;
            ran.findings.push(path.clone());
        }
        ran.died &= ran.findings.is_empty();
        Ok(ran)
    }

    fn watched(&self, target: &Target, mut command: Command) -> Result<Ran, String> {
        let log = self.made("target/fuzz/log")?.join(format!("{}.txt", target.name));
        let wrong = |error: std::io::Error| format!("{}: {error}", target.name);
        let mut copy = fs::File::create(&log).map_err(wrong)?;
        let began = Instant::now();
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(wrong)?;
        let terminal = std::io::stdout().is_terminal();
        let (mut ran, mut shown) = (Ran::default(), began);
        let mut said = BufReader::new(child.stderr.take().ok_or("the engine has no output")?);
        let mut line = Vec::new();
        while said.read_until(b'\n', &mut line).map_err(wrong)? > 0 {
            copy.write_all(&line).map_err(wrong)?;
            read(&String::from_utf8_lossy(&line), &mut ran);
            line.clear();
            let pause = if terminal { Duration::from_millis(500) } else { QUIET };
            if shown.elapsed() >= pause {
                shown = Instant::now();
                progress(&ran, began.elapsed(), terminal);
            }
        }
        let status = child.wait().map_err(wrong)?;
        ran.took = began.elapsed();
        progress(&ran, ran.took, false);
        ran.died = !status.success();
        if ran.died {
            println!("    ended with {status}; its output is in {}", log.display());
        }
        Ok(ran)
    }

    fn minimise(&self, target: &Target, path: &Path) -> Result<(), String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("crash-") {
            return Ok(());
        }
        println!("    making {name} smaller");
        let small = self.made("target/fuzz/minimised")?.join(&*name);
        let mut command = Command::new(self.programs.join(program(target)));
        command
            .arg("-minimize_crash=1")
            .arg(format!("-max_total_time={}", MINIMISING.as_secs()))
            .arg(format!("-exact_artifact_path={}", small.display()))
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().map_err(|error| format!("{name}: {error}"))?;
        let smaller = fs::metadata(&small)
            .is_ok_and(|small| fs::metadata(path).is_ok_and(|whole| small.len() < whole.len() && small.len() > 0));
        if smaller {
            fs::copy(&small, path).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }

    pub(crate) fn keep(&self, target: &Target) -> Result<usize, String> {
        let corpus = self.made(&format!("fuzz/corpus/{}", target.name))?;
        let fresh = self.root.join("target/fuzz/kept").join(target.name);
        let wrong = |error: std::io::Error| format!("{}: {error}", fresh.display());
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(wrong)?;
        }
        fs::create_dir_all(&fresh).map_err(wrong)?;
        let mut command = self.program(target);
        // Counting edges without their frequency makes the corpus small.
        command.args(["-set_cover_merge=1", "-use_counters=0"]).arg(&fresh).arg(self.work(target)?);
        command.args(self.inputs(target)).stdout(Stdio::null()).stderr(Stdio::null());
        steps::status(&mut command)?;
        let chosen = files(&fresh)?;
        for old in files(&corpus)? {
            fs::remove_file(old).map_err(wrong)?;
        }
        for path in &chosen {
            fs::copy(path, corpus.join(path.file_name().unwrap_or_default())).map_err(wrong)?;
        }
        Ok(chosen.len())
    }

    fn program(&self, target: &Target) -> Command {
        let mut command = Command::new(self.programs.join(program(target)));
        command.arg(format!("-max_len={}", target.longest)).current_dir(&self.root);
        command
    }

    fn work(&self, target: &Target) -> Result<PathBuf, String> {
        self.made(&format!("target/fuzz/found/{}", target.name))
    }

    fn inputs(&self, target: &Target) -> Vec<PathBuf> {
        let folders =
            ["fuzz/corpus", "fuzz/regressions", "fuzz/seeds", "crates/wire/tests/corpus", super::seeds::FOLDER];
        let paths = folders.map(|folder| self.root.join(folder).join(target.name));
        paths.into_iter().filter(|path| path.is_dir()).collect()
    }

    fn made(&self, folder: &str) -> Result<PathBuf, String> {
        let path = self.root.join(folder);
        fs::create_dir_all(&path).map_err(|error| format!("{folder}: {error}"))?;
        Ok(path)
    }
}

fn program(target: &Target) -> String {
    format!("fuzz_{}", target.name)
}

fn host() -> Result<String, String> {
    let said =
        steps::output(Command::new(std::env::var_os("RUSTC").as_deref().unwrap_or(OsStr::new("rustc"))).arg("-vV"))?;
    let line = said.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "`rustc -vV` names no host".to_owned())
}

fn files(folder: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::read_dir(folder).map_err(wrong)?.map(|entry| entry.map(|entry| entry.path()).map_err(wrong)).collect()
}

/// Parses an output line such as `#1024 NEW cov: 12 ft: 30 corp: 4/16b ... rss: 28Mb`.
fn read(line: &str, ran: &mut Ran) {
    if let Some((name, value)) = line.strip_prefix("stat::").and_then(|rest| rest.split_once(':')) {
        let value = value.trim().parse().unwrap_or(0);
        match name {
            "number_of_executed_units" => ran.executions = value,
            "peak_rss_mb" => ran.megabytes = value,
            _ => {}
        }
        return;
    }
    let Some(rest) = line.strip_prefix('#') else { return };
    let mut words = rest.split_whitespace();
    let Some(executions) = words.next().and_then(|word| word.parse().ok()) else { return };
    ran.executions = executions;
    let words: Vec<&str> = words.collect();
    for pair in words.windows(2) {
        let digits = pair[1].split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
        let Ok(value) = digits.parse() else { continue };
        match pair[0] {
            "cov:" => ran.edges = value,
            "ft:" => ran.features = value,
            "corp:" => ran.inputs = value,
            "rss:" => ran.megabytes = ran.megabytes.max(value),
            _ => {}
        }
    }
}

fn progress(ran: &Ran, took: Duration, terminal: bool) {
    let (start, end) = if terminal { ("\r", "") } else { ("", "\n") };
    print!(
        "{start}    {:>6.0} s  {:>11} executions  {:>6} edges  {:>7} features  {:>6} inputs  {:>4} MB{end}",
        took.as_secs_f64(),
        ran.executions,
        ran.edges,
        ran.features,
        ran.inputs,
        ran.megabytes
    );
    // Ignores an error: a run does not depend on its progress output.
    let _ = std::io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_engine_are_read() {
        let mut ran = Ran::default();
        read("INFO: seed corpus: files: 3", &mut ran);
        assert_eq!(ran, Ran::default());
        read(
            "#12431\tNEW    cov: 6329 ft: 18302 corp: 1368/203Kb lim: 301 exec/s: 289 rss: 37Mb L: 149/301 MS: 1 -\n",
            &mut ran,
        );
        let so_far =
            Ran { executions: 12431, edges: 6329, features: 18302, inputs: 1368, megabytes: 37, ..Ran::default() };
        assert_eq!(ran, so_far);
        read("#13000\tpulse  corp: 1368/203Kb exec/s: 0 rss: 36Mb\n", &mut ran);
        assert_eq!(ran, Ran { executions: 13000, ..so_far.clone() });
        read("stat::number_of_executed_units: 20000\n", &mut ran);
        read("stat::peak_rss_mb:              44\n", &mut ran);
        assert_eq!(ran, Ran { executions: 20000, megabytes: 44, ..so_far });
    }

    #[test]
    fn only_crates_of_the_engine_are_instrumented() {
        let call = |line: &str| instrumentation(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(call("--crate-name build_script_build build.rs").is_empty());
        assert!(call("-vV").is_empty());
        assert!(call("--crate-name corelane_wire lib.rs --target here").contains(&COMPARISONS));
        let text = call("--crate-name corelane_idl lib.rs --target here");
        assert_eq!(text, COVERAGE);
    }
}
