//! Crash tests, repeated many times: `kill -9` of a server, and simulated power failures.

use std::path::Path;

use crate::steps::{self, Outcome, Steps};

const USUAL: u32 = 1_000;

/// A test. `variable` is the environment variable with the number of repetitions.
#[derive(Debug)]
struct Crash {
    title: &'static str,
    package: &'static str,
    file: &'static str,
    test: &'static str,
    variable: &'static str,
}

const KILLS: &str = "CORELANE_CYCLES";
const CUTS: &str = "CORELANE_CUTS";

const NAMING: &[Crash] = &[
    Crash {
        title: "power failures under a store",
        package: "corelane-services",
        file: "store",
        test: "synced_commits_survive_power_failures_whole",
        variable: CUTS,
    },
    Crash {
        title: "power failures under a name service",
        package: "corelane-services",
        file: "store",
        test: "power::acknowledged_changes_survive_power_failures_whole",
        variable: CUTS,
    },
    Crash {
        title: "kill -9 of a name server beside four clients",
        package: "corelane-cli",
        file: "naming",
        test: "acknowledged_changes_survive_kill_9",
        variable: KILLS,
    },
];

const CORES: &[Crash] = &[Crash {
    title: "kill -9 of a server of admissions and of its clients",
    package: "corelane-cli",
    file: "cores_store",
    test: "promises_survive_kill_9",
    variable: KILLS,
}];

const EVENTS: &[Crash] = &[
    Crash {
        title: "power failures under a durable event channel",
        package: "corelane-services",
        file: "store",
        test: "power_events::acknowledged_events_survive_power_failures_in_order",
        variable: CUTS,
    },
    Crash {
        title: "kill -9 of a server of durable event channels beside four suppliers",
        package: "corelane-cli",
        file: "events_durable",
        test: "acknowledged_events_survive_kill_9",
        variable: KILLS,
    },
];

fn tests_of(service: &str) -> Option<&'static [Crash]> {
    match service {
        "naming" => Some(NAMING),
        "cores" => Some(CORES),
        "events" => Some(EVENTS),
        _ => None,
    }
}

/// Runs the crash tests. Returns false if the options are invalid.
pub(crate) fn run(steps: &mut Steps, options: &[&str]) -> bool {
    let Some(options) = Options::parse(options) else { return false };
    for crash in options.tests {
        let times = if crash.variable == KILLS { options.cycles } else { options.cuts };
        steps.step(&format!("{}, {times} times", crash.title), |root| repeat(root, crash, times));
    }
    true
}

#[derive(Clone, Copy, Debug)]
struct Options {
    tests: &'static [Crash],
    cycles: u32,
    cuts: u32,
}

impl Options {
    fn parse(words: &[&str]) -> Option<Options> {
        let (service, words) = words.split_first()?;
        let mut options = Options { tests: tests_of(service)?, cycles: USUAL, cuts: USUAL };
        for pair in words.chunks(2) {
            let [option, number] = pair else { return None };
            let number = number.parse().ok().filter(|number| *number > 0)?;
            match *option {
                "--cycles" => options.cycles = number,
                "--cuts" => options.cuts = number,
                _ => return None,
            }
        }
        Some(options)
    }
}

fn repeat(root: &Path, crash: &Crash, times: u32) -> Outcome {
    let mut command = steps::cargo();
    command.args(["test", "--locked", "--package", crash.package, "--test", crash.file, "--", "--exact", crash.test]);
    let output = command.current_dir(root).env(crash.variable, times.to_string()).output();
    let output = output.map_err(|error| format!("cargo could not be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    // Cargo succeeds even if a filter matches no test.
    if output.status.success() && said.contains("1 passed") {
        return Ok(String::new());
    }
    Err(format!("the test failed or did not run:\n{said}{}", String::from_utf8_lossy(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_options_are_parsed_and_others_refused() {
        let parse = |line: &str| Options::parse(&line.split_whitespace().collect::<Vec<_>>());
        let numbers = |line: &str| parse(line).map(|options| (options.tests.len(), options.cycles, options.cuts));
        assert_eq!(numbers("naming"), Some((NAMING.len(), USUAL, USUAL)));
        assert_eq!(numbers("naming --cycles 30 --cuts 7"), Some((NAMING.len(), 30, 7)));
        assert_eq!(numbers("cores --cycles 30"), Some((CORES.len(), 30, USUAL)));
        assert_eq!(numbers("events --cycles 30"), Some((EVENTS.len(), 30, USUAL)));
        for line in ["", "event", "naming --cycles", "naming --cycles 0", "naming --cycles x", "naming --kills 3"] {
            assert!(parse(line).is_none(), "{line}");
        }
    }

    #[test]
    fn each_named_test_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for crash in NAMING.iter().chain(CORES).chain(EVENTS) {
            let folder = crash.package.strip_prefix("corelane-").unwrap();
            let tests = root.join(format!("crates/{folder}/tests"));
            let (path, test) = match crash.test.split_once("::") {
                Some((module, test)) => (tests.join(module).join("mod.rs"), test),
                None => (tests.join(format!("{}.rs", crash.file)), crash.test),
            };
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(&format!("fn {test}()")), "{}", path.display());
        }
    }
}
