//! Runs steps one after another; a failed step does not stop the following steps.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A short remark if the step passed, or the reason for its failure.
pub(crate) type Outcome = Result<String, String>;

struct Done {
    name: String,
    result: StepResult,
    took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepResult {
    Passed,
    Failed,
    /// The output gives the reason why the step did not run.
    LeftOut,
}

pub(crate) struct Steps {
    root: PathBuf,
    started: Instant,
    done: Vec<Done>,
}

impl Steps {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, started: Instant::now(), done: Vec::new() }
    }

    /// Runs a step and prints its outcome. Returns true if the step passed.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce(&Path) -> Outcome) -> bool {
        println!("==> {name}  [{} since the start]", seconds(self.started.elapsed()));
        let began = Instant::now();
        let outcome = work(&self.root);
        let took = began.elapsed();
        let passed = outcome.is_ok();
        match outcome {
            Ok(remark) if remark.is_empty() => println!("    passed: {name}, {}", seconds(took)),
            Ok(remark) => println!("    passed: {name}, {}: {remark}", seconds(took)),
            Err(reason) => println!("    FAILED: {name}, {}\n{}", seconds(took), indented(&reason)),
        }
        let result = if passed { StepResult::Passed } else { StepResult::Failed };
        self.done.push(Done { name: name.to_owned(), result, took });
        passed
    }

    pub(crate) fn left_out(&mut self, name: &str, why: &str) {
        println!("==> {name}  [{} since the start]\n    LEFT OUT: {why}", seconds(self.started.elapsed()));
        self.done.push(Done { name: name.to_owned(), result: StepResult::LeftOut, took: Duration::ZERO });
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn command(&mut self, name: &str, command: &mut Command) -> bool {
        self.step(name, |root| status(command.current_dir(root)))
    }

    pub(crate) fn summary(&self) -> ExitCode {
        println!("\nsummary");
        for step in &self.done {
            let word = match step.result {
                StepResult::Passed => "passed",
                StepResult::Failed => "FAILED",
                StepResult::LeftOut => "left out",
            };
            println!("  {word:<8}  {:>9}  {}", seconds(step.took), step.name);
        }
        let count = |result| self.done.iter().filter(|step| step.result == result).count();
        let (passed, failed) = (count(StepResult::Passed), count(StepResult::Failed));
        let left_out = match count(StepResult::LeftOut) {
            0 => String::new(),
            number => format!("{number} left out, "),
        };
        println!("steps: {passed} passed, {failed} failed, {left_out}{}", seconds(self.started.elapsed()));
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs a program without input. The output of the program goes to the outputs of this process.
pub(crate) fn status(command: &mut Command) -> Outcome {
    let shown = shown(command);
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(String::new()),
        Ok(status) => Err(format!("`{shown}` ended with {status}")),
        Err(error) => Err(format!("`{shown}` could not be started: {error}")),
    }
}

pub(crate) fn output(command: &mut Command) -> Outcome {
    let shown = shown(command);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}` ended with {}\n{}", output.status, said.trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{shown}` printed something that is not UTF-8"))
}

pub(crate) fn findings(found: Vec<String>, remark: String) -> Outcome {
    if found.is_empty() { Ok(remark) } else { Err(found.join("\n")) }
}

pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect::<String>().trim_end().to_owned()
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_remembered_and_the_next_one_still_runs() {
        let mut steps = Steps::new(PathBuf::from("."));
        assert!(!steps.step("first", |_| Err("because".into())));
        assert!(steps.step("second", |_| Ok(String::new())));
        steps.left_out("third", "it needs a machine that is not here");
        let results: Vec<StepResult> = steps.done.iter().map(|step| step.result).collect();
        assert_eq!(results, [StepResult::Failed, StepResult::Passed, StepResult::LeftOut]);
        assert_eq!(steps.summary(), ExitCode::FAILURE);
    }

    #[test]
    fn a_command_that_fails_or_is_missing_says_its_name() {
        let failed = status(&mut Command::new("false")).unwrap_err();
        assert!(failed.contains("`false`"), "{failed}");
        let missing = status(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(missing.contains("could not be started"), "{missing}");
    }

    #[test]
    fn findings_become_a_failure_that_lists_them_all() {
        assert_eq!(findings(Vec::new(), "3 crates".into()), Ok("3 crates".into()));
        assert_eq!(findings(vec!["one".into(), "two".into()], String::new()), Err("one\ntwo".into()));
    }
}
