//! `cargo xtask fuzz`: runs the fuzz targets of fuzz/ with libFuzzer (docs/fuzzing.md).

mod engine;
mod options;
mod seeds;

pub(crate) use engine::as_compiler;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use engine::{Engine, Limit, Ran};
use options::{Options, Work};

pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Maximum length of an input in bytes.
    pub(crate) longest: usize,
    /// File in fuzz/dictionary/ with words that inputs may contain.
    pub(crate) dictionary: Option<&'static str>,
}

const TARGETS: &[Target] = &[
    Target { name: "cdr", what: "CDR values of every type", longest: 256, dictionary: None },
    Target { name: "any", what: "values of any type", longest: 192, dictionary: None },
    Target { name: "generated", what: "CDR of types that the IDL compiler generates", longest: 192, dictionary: None },
    Target { name: "valuetypes", what: "values with sharing, chunks and indirections", longest: 256, dictionary: None },
    Target { name: "giop_framing", what: "GIOP streams in arbitrary pieces", longest: 512, dictionary: None },
    Target { name: "ior_text", what: "IOR and corbaloc text", longest: 768, dictionary: Some("ior_text") },
    Target { name: "naming_records", what: "records of the Naming Service", longest: 256, dictionary: None },
    Target { name: "event_filters", what: "filters of event consumers", longest: 256, dictionary: None },
    Target { name: "event_records", what: "records of durable event channels", longest: 256, dictionary: None },
    Target { name: "orb_options", what: "options of other ORBs", longest: 512, dictionary: Some("orb_options") },
    Target {
        name: "configuration",
        what: "programs' configurations",
        longest: 1024,
        dictionary: Some("configuration"),
    },
    Target { name: "connection_ops", what: "operations on a connection's state", longest: 128, dictionary: None },
    Target { name: "rio_frames", what: "frames through the steering program", longest: 256, dictionary: None },
    Target { name: "sniff", what: "capture files", longest: 2048, dictionary: None },
    Target { name: "idl", what: "IDL source", longest: 160, dictionary: Some("idl") },
    Target { name: "idl_tokens", what: "words of IDL", longest: 40, dictionary: None },
];

/// A target with a planted fault, which coverage guidance must find.
const PLANTED: Target = Target { name: "planted", what: "a planted fault", longest: 64, dictionary: None };

/// Maximum number of executions in the search for the planted fault. Without guidance, 2^32
/// executions would find it once on average.
const PLANTED_RUNS: u64 = 2_000_000;

struct Row {
    name: &'static str,
    ran: Ran,
}

/// Runs the command. The exit status is 1 if a target has a finding or died, or if `--prove` does
/// not find the planted fault, and 2 after an error.
pub(crate) fn run(root: &Path, words: &[&str]) -> ExitCode {
    let outcome = Options::parse(words).and_then(|options| match options.work {
        Work::List => {
            for target in TARGETS {
                println!("{:<16} {}, at most {} octets", target.name, target.what, target.longest);
            }
            Ok(true)
        }
        Work::Prove => prove(root),
        Work::Keep => keep(root, &options),
        Work::Run => fuzz(root, &options),
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("cargo xtask fuzz: {problem}");
            ExitCode::from(2)
        }
    }
}

fn fuzz(root: &Path, options: &Options) -> Result<bool, String> {
    let engine = Engine::build(root)?;
    seeds::write(root, TARGETS)?;
    let mut rows = Vec::new();
    for target in &options.targets {
        println!("==> {}: {}", target.name, target.what);
        rows.push(Row { name: target.name, ran: engine.run(target, &options.limit)? });
    }
    print!("{}", table(&rows));
    let found: Vec<&PathBuf> = rows.iter().flat_map(|row| &row.ran.findings).collect();
    for path in &found {
        println!("finding: {}", path.strip_prefix(root).unwrap_or(path).display());
    }
    // A target may die without leaving an input, for example of a stack overflow.
    let died: Vec<&str> = rows.iter().filter(|row| row.ran.died).map(|row| row.name).collect();
    for name in &died {
        println!("died without leaving an input: {name}; target/fuzz/log/{name}.txt has the seed");
    }
    Ok(found.is_empty() && died.is_empty())
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "\n{:<16} {:>12} {:>10} {:>9} {:>9} {:>8} {:>9} {:>9}\n",
        "target", "executions", "per second", "edges", "features", "inputs", "memory", "findings"
    );
    for Row { name, ran } in rows {
        let rate = ran.executions as f64 / ran.took.as_secs_f64().max(0.001);
        text += &format!(
            "{name:<16} {:>12} {rate:>10.0} {:>9} {:>9} {:>8} {:>6} MB {:>9}\n",
            ran.executions,
            ran.edges,
            ran.features,
            ran.inputs,
            ran.megabytes,
            ran.findings.len()
        );
    }
    text
}

fn keep(root: &Path, options: &Options) -> Result<bool, String> {
    let engine = Engine::build(root)?;
    seeds::write(root, TARGETS)?;
    for target in &options.targets {
        let kept = engine.keep(target)?;
        println!("fuzz/corpus/{}: {kept} inputs", target.name);
    }
    Ok(true)
}

fn prove(root: &Path) -> Result<bool, String> {
    let engine = Engine::build(root)?;
    let ran = engine.run(&PLANTED, &Limit { runs: Some(PLANTED_RUNS), time: Some(Duration::from_secs(120)) })?;
    for path in &ran.findings {
        fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let found = !ran.findings.is_empty();
    let word = if found { "was found" } else { "was NOT found: the engine sees no coverage" };
    println!("the planted fault, four certain octets, {word}, {} executions", ran.executions);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_of_targets_is_that_of_the_package() {
        let programs = fs::read_dir(crate::root().join("fuzz/engine")).unwrap();
        let programs: BTreeSet<String> =
            programs.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        let listed = TARGETS.iter().chain([&PLANTED]).map(|target| target.name.to_owned()).collect();
        assert_eq!(programs, listed);
        for dictionary in TARGETS.iter().filter_map(|target| target.dictionary) {
            assert!(crate::root().join(format!("fuzz/dictionary/{dictionary}.dict")).exists(), "{dictionary}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_target() {
        let ran = Ran { executions: 10_000_000, took: Duration::from_secs(100), edges: 12, ..Ran::default() };
        let text = table(&[Row { name: "cdr", ran }]);
        let line = text.lines().nth(2).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["cdr", "10000000", "100000", "12", "0", "0", "0", "MB", "0"]);
    }
}
