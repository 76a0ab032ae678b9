//! Mutation tests: `cargo-mutants` makes one change to the code at a time, and the package's tests
//! must then fail.
//!
//! A run takes an hour or more, so no other command includes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::steps::{self, Outcome, Steps};

const PERCENT: usize = 95;

const CONFIG: &str = ".cargo/mutants.toml";

/// Runs the mutation tests. Returns false if the options are invalid.
pub(crate) fn run(steps: &mut Steps, options: &[&str]) -> bool {
    let Some(options) = Options::parse(options) else { return false };
    let is_there = steps.step("cargo-mutants", |_| installed());
    if is_there && steps.step(CONFIG, |root| explained(&root.join(CONFIG))) {
        steps.step("mutants", |root| mutate(root, &options));
    }
    true
}

fn pattern(file: &str) -> String {
    format!("^{}:", file.replace('.', "\\."))
}

fn package(root: &Path, file: &str) -> Result<String, String> {
    let manifests = Path::new(file).ancestors().skip(1).map(|folder| root.join(folder).join("Cargo.toml"));
    let nearest = manifests.into_iter().find_map(|manifest| std::fs::read_to_string(manifest).ok());
    let name = nearest.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("name = ")));
    name.map(|name| name.trim_matches('"').to_owned()).ok_or_else(|| format!("{file}: no package has this file"))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Files to change. An empty list means all files in [`CONFIG`].
    files: Vec<String>,
    jobs: Option<u16>,
}

impl Options {
    fn parse(words: &[&str]) -> Option<Options> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--jobs" => options.jobs = Some(words.next()?.parse().ok()?),
                word if word.starts_with('-') => return None,
                file => options.files.push(file.to_owned()),
            }
        }
        Some(options)
    }
}

fn installed() -> Outcome {
    steps::output(steps::cargo().args(["mutants", "--version"]))
        .map(|version| version.trim().to_owned())
        .map_err(|_| "cargo-mutants is missing: `cargo install cargo-mutants --locked` installs it".to_owned())
}

fn mutate(root: &Path, options: &Options) -> Outcome {
    let output = target(root).join("mutants");
    let results = output.join("mutants.out");
    // Removes the results of an earlier run, which a failed run would not replace.
    match std::fs::remove_dir_all(&results) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.to_string()),
        _ => {}
    }
    std::fs::create_dir_all(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    let mut command = steps::cargo();
    command.args(["mutants", "--no-times", "--output"]).arg(&output).current_dir(root);
    let mut packages = BTreeSet::new();
    for file in &options.files {
        // `--file` adds the file to the files of the configuration, so a pattern selects the
        // mutants.
        command.args(["--re", &pattern(file)]);
        packages.insert(package(root, file)?);
    }
    // Without `--package`, a change of a structure's member in another package would also run the
    // tests of that package.
    for package in packages {
        command.args(["--package", &package]);
    }
    if let Some(jobs) = options.jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    // Optimising would take longer than it saves, because each mutant is compiled and tested once.
    command.env("CARGO_PROFILE_TEST_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.env("CARGO_PROFILE_TEST_DEBUG", "0");
    // The exit status is an error if a single mutant is missed, so the results decide.
    let ended = steps::status(&mut command);
    match Results::read(&results) {
        Ok(results) => results.judge(),
        Err(reason) => Err(match ended {
            Ok(_) => reason,
            Err(status) => format!("{status}\n{reason}"),
        }),
    }
}

fn target(root: &Path) -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// The results of a run. Each list has a line `FILE:LINE:COLUMN: description of the change` for
/// each of its mutants.
#[derive(Debug, Default)]
struct Results {
    /// Number of all mutants. An interrupted run leaves some of them without a result.
    all: usize,
    caught: Vec<String>,
    timeout: Vec<String>,
    missed: Vec<String>,
    unviable: Vec<String>,
}

impl Results {
    fn read(folder: &Path) -> Result<Results, String> {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let list = |name: &str| text(name).map(|text| text.lines().map(ToOwned::to_owned).collect::<Vec<_>>());
        let all: Vec<serde_json::Value> =
            serde_json::from_str(&text("mutants.json")?).map_err(|error| format!("mutants.json: {error}"))?;
        Ok(Results {
            all: all.len(),
            caught: list("caught.txt")?,
            timeout: list("timeout.txt")?,
            missed: list("missed.txt")?,
            unviable: list("unviable.txt")?,
        })
    }

    /// Fails if too few mutants were detected, or if not all were tried. A mutant with which a test
    /// does not end counts as detected.
    fn judge(&self) -> Outcome {
        let found = self.caught.len() + self.timeout.len();
        let viable = found + self.missed.len();
        let tried = viable + self.unviable.len();
        let mut report = self.table();
        for missed in &self.missed {
            report.push_str(&format!("missed: {missed}\n"));
        }
        report.push_str(&format!("{found} of {viable} mutants found, {} do not compile", self.unviable.len()));
        if viable == 0 || tried != self.all {
            return Err(format!("{report}\nonly {tried} of {} mutants were tried", self.all));
        }
        if found * 100 < viable * PERCENT {
            return Err(format!(
                "{report}\nfewer than {PERCENT} % were found: write tests for those that were missed, or add those that change \
                 nothing to {CONFIG}, each with its reason"
            ));
        }
        Ok(report)
    }

    fn table(&self) -> String {
        let mut files: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let file = |line: &'_ String| line.split(':').next().map_or(0, str::len);
        for line in self.caught.iter().chain(&self.timeout) {
            files.entry(&line[..file(line)]).or_default().0 += 1;
        }
        for line in &self.missed {
            files.entry(&line[..file(line)]).or_default().1 += 1;
        }
        let mut table = String::from("found  missed  file\n");
        for (file, (found, missed)) in files {
            table.push_str(&format!("{found:>5}  {missed:>6}  {file}\n"));
        }
        table
    }
}

fn explained(config: &Path) -> Outcome {
    let text = std::fs::read_to_string(config).map_err(|error| format!("{}: {error}", config.display()))?;
    steps::findings(unexplained(&text), String::new())
}

/// Returns the entries of `exclude_re` without a comment in the line above.
fn unexplained(config: &str) -> Vec<String> {
    let lines = config.lines().map(str::trim);
    let mut before = "";
    let mut found = Vec::new();
    for line in lines.skip_while(|line| !line.starts_with("exclude_re")).skip(1).take_while(|line| *line != "]") {
        if !line.starts_with('#') && !before.starts_with('#') {
            found.push(format!("{CONFIG}: no reason above {line}"));
        }
        before = line;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &str, count: usize) -> Vec<String> {
        (0..count).map(|line| format!("{file}:{line}:1: replace f with ()")).collect()
    }

    #[test]
    fn the_pattern_of_a_file_matches_its_path_alone() {
        assert_eq!(pattern("crates/orb/src/policy.rs"), r"^crates/orb/src/policy\.rs:");
    }

    #[test]
    fn package_of_a_file_is_that_of_the_nearest_manifest() {
        let root = crate::root();
        assert_eq!(package(&root, "crates/orb/src/poa/key.rs").as_deref(), Ok("corelane"));
        assert_eq!(package(&root, "crates/sched/src/placement.rs").as_deref(), Ok("corelane-sched"));
        assert!(package(&root, "nowhere/src/lib.rs").is_err());
    }

    #[test]
    fn run_passes_with_ninety_five_percent_of_compiling_mutants() {
        let mut results = Results {
            all: 107,
            caught: lines("a.rs", 90),
            timeout: lines("b.rs", 5),
            missed: lines("b.rs", 5),
            unviable: lines("c.rs", 7),
        };
        let report = results.judge().unwrap();
        for part in
            ["   90       0  a.rs\n", "    5       5  b.rs\n", "missed: b.rs:4:1", "95 of 100", "7 do not compile"]
        {
            assert!(report.contains(part), "{part} in\n{report}");
        }
        assert!(!report.contains("c.rs"));
        results.missed.extend(results.caught.pop());
        let reason = results.judge().unwrap_err();
        assert!(reason.contains("94 of 100") && reason.contains("fewer than 95 %"), "{reason}");
    }

    #[test]
    fn interrupted_run_fails() {
        let results = Results { all: 3, caught: lines("a.rs", 2), ..Results::default() };
        assert!(results.judge().unwrap_err().contains("only 2 of 3"));
        assert!(Results::default().judge().is_err());
        let only_broken = Results { all: 1, unviable: lines("a.rs", 1), ..Results::default() };
        assert!(only_broken.judge().is_err());
    }

    #[test]
    fn results_are_read_from_the_files_of_the_tool() {
        let folder = std::env::temp_dir().join(format!("corelane-xtask-mutants-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("mutants.json", "[{}, {}, {}]"),
            ("caught.txt", "a.rs:1:1: x\na.rs:2:1: y\n"),
            ("timeout.txt", ""),
            ("missed.txt", "a.rs:3:1: z\n"),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        assert!(Results::read(&folder).unwrap_err().contains("unviable.txt"));
        std::fs::write(folder.join("unviable.txt"), "").unwrap();
        let results = Results::read(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((results.all, results.caught.len(), results.missed), (3, 2, vec!["a.rs:3:1: z".to_owned()]));
    }

    #[test]
    fn every_exclusion_has_its_reason() {
        let config = "a = [\n\"x\",\n]\nexclude_re = [\n  # because\n  \"one\",\n  \"two\",\n]\nb = [\n\"y\",\n]\n";
        assert_eq!(unexplained(config), [".cargo/mutants.toml: no reason above \"two\","]);
        explained(&crate::root().join(CONFIG)).unwrap();
    }

    #[test]
    fn options_are_files_and_a_number_of_jobs() {
        let options = Options { files: vec!["a.rs".into(), "b.rs".into()], jobs: Some(2) };
        assert_eq!(Options::parse(&["a.rs", "--jobs", "2", "b.rs"]), Some(options));
        assert_eq!(Options::parse(&[]), Some(Options::default()));
        assert_eq!((Options::parse(&["--jobs"]), Options::parse(&["--jbs", "2"])), (None, None));
    }
}
