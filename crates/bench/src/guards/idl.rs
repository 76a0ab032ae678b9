//! The benchmark `idl-front-end`, which compares the speed of preprocessing, parsing and checking
//! IDL with that of omniidl.
//!
//! The time of the front end is the time for a long file less the time for a nearly empty file. Of
//! all turns, the shortest time for each file counts.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use corelane_sys::clock;

use crate::Failure;
use crate::harness::{FigureLabel, Progress};
use crate::options::BenchOptions;
use crate::report::Report;
use crate::value::SingleValue;

const PARTS: [usize; 2] = [45, 190];

const TURNS: usize = 15;

const MOST_SECONDS_PER_MILLION: f64 = 2.0;
/// Maximum time as a fraction of omniidl's time for the same text.
const MOST_SHARE: f64 = 0.1;

/// A back end without output for omniidl, which does not run without a back end.
const NO_BACK_END: &str = "front_end_only";

pub(crate) fn front_end(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let folder = TemporaryFolder::new()?;
    let empty = folder.write("empty.idl", "typedef long Nothing;\n")?;
    folder.write(&format!("{NO_BACK_END}.py"), "def run(tree, arguments):\n    pass\n")?;
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("the path of this program is unknown: {error}")))?;
    let mut compilers =
        vec![Compiler { peer: "Corelane", program: own, arguments: vec!["idl".into(), "--check".into()] }];
    let back_end = vec![format!("-p{}", folder.0.display()), format!("-b{NO_BACK_END}")];
    let omniidl = Compiler { peer: "omniORB", program: "omniidl".into(), arguments: back_end };
    match (options.without_peers, omniidl.time(&empty)) {
        (true, _) => report.add_missing("idl-front-end", "omniORB", "left out by --without-peers")?,
        (false, Err(reason)) => report.add_missing("idl-front-end", "omniORB", &reason.to_string())?,
        (false, Ok(_)) => compilers.push(omniidl),
    }
    for parts in PARTS {
        let text = text(parts);
        let file = folder.write("plant.idl", &text)?;
        let lines = code_lines(&text);
        progress.show(&format!("idl-front-end: {lines} lines"));
        let mut shortest = vec![[Duration::MAX; 2]; compilers.len()];
        for _ in 0..TURNS {
            for (compiler, shortest) in compilers.iter().zip(&mut shortest) {
                shortest[0] = shortest[0].min(compiler.time(&empty)?);
                shortest[1] = shortest[1].min(compiler.time(&file)?);
            }
        }
        progress.clear();
        let seconds = |shortest: &[Duration; 2]| shortest[1].saturating_sub(shortest[0]).as_secs_f64();
        let mut values = Vec::new();
        for (compiler, shortest) in compilers.iter().zip(&shortest) {
            let bound = (compiler.peer == "Corelane").then_some(MOST_SECONDS_PER_MILLION);
            let per_million = seconds(shortest) * 1e6 / lines as f64;
            values.push(value(compiler.peer, "per million lines", per_million, "s", bound));
            values.push(value(compiler.peer, "lines per second", lines as f64 / seconds(shortest), "", None));
            values.push(value(compiler.peer, "start-up, left out above", shortest[0].as_secs_f64() * 1e3, "ms", None));
        }
        if let [ours, theirs] = shortest.as_slice() {
            let share = seconds(ours) / seconds(theirs);
            values.push(value("Corelane", "of omniidl's time", share, "", Some(MOST_SHARE)));
        }
        let title =
            format!("idl-front-end, {} lines, {lines} of them without comments and blank ones", text.lines().count());
        report.add_values(&title, &values)?;
    }
    Ok(())
}

struct Compiler {
    peer: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Compiler {
    fn time(&self, file: &Path) -> Result<Duration, Failure> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let before = clock::now();
        let status = command.status();
        let took = clock::now().since(before);
        match status {
            Ok(status) if status.success() => Ok(took),
            Ok(status) => Err(Failure::new(format!("`{}` ended with {status}", self.program.display()))),
            Err(error) => Err(Failure::new(format!(
                "`{}` cannot be run: {error}; install omniidl (as Debian calls it), or leave it out with --without-peers",
                self.program.display()
            ))),
        }
    }
}

struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("corelane-bench-{}.idl", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| Failure::new(format!("`{}`: {error}", path.display())))?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|error| Failure::new(format!("`{}`: {error}", path.display())))?;
        Ok(path)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn value(peer: &'static str, quantity: &str, value: f64, unit: &'static str, bound: Option<f64>) -> SingleValue {
    let label = FigureLabel {
        bench: "idl-front-end",
        peer,
        transport: "none",
        op: String::new(),
        config: "shortest of 15 turns".to_owned(),
        axis_point: None,
    };
    SingleValue { label, quantity: quantity.to_owned(), value, unit, bound }
}

fn code_lines(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('/')).count()
}

fn text(parts: usize) -> String {
    let mut text = String::new();
    for part in 0..parts {
        let _ = write!(
            text,
            "// Part {part} of the plant.\nmodule Plant{part} {{\n  const unsigned long MAX_ITEMS = (1 << 4) * 3 + {part};\n\n"
        );
        for sensor in 0..8 {
            let _ = write!(
                text,
                "  /** A reading of sensor {sensor}, as it was taken. */\n  struct Reading{sensor} {{\n    long   id;      // \
                 which sensor\n    double value;   // in its unit\n    string<64> unit;\n    unsigned long long taken_at;\n    \
                 sequence<octet, MAX_ITEMS> raw;\n  }};\n  typedef sequence<Reading{sensor}> Reading{sensor}Seq;\n\n"
            );
        }
        text.push_str(
            "  enum State { IDLE, RUNNING, FAILED, MAINTENANCE };\n  union Value switch (State) {\n    case IDLE: long \
             number;\n    case RUNNING: case FAILED: Reading0 reading;\n    default: string text;\n  };\n  exception NotFound \
             { string name; State cause; };\n  exception Refused { string reason; };\n",
        );
        for device in 0..4_u32 {
            let base = device.checked_sub(1).map_or(String::new(), |base| format!(" : Device{base}"));
            let _ = write!(
                text,
                "\n  /// A device of kind {device}.\n  interface Device{device}{base} {{\n    readonly attribute string \
                 name{device};\n    attribute long mode{device};\n"
            );
            for operation in 0..6 {
                let _ = write!(
                    text,
                    "    /// Takes a reading, and says what came of it.\n    Reading{operation}Seq \
                     take{device}_{operation}(in Reading{operation} first, inout Value second, out State third)\n      \
                     raises (NotFound, Refused);\n"
                );
            }
            let _ = write!(text, "    oneway void notify{device}(in string<128> what);\n  }};\n");
        }
        text.push_str("};\n\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_idl_has_enough_lines() {
        for parts in PARTS {
            let text = text(parts);
            assert!(code_lines(&text) > 5_000, "{}", code_lines(&text));
        }
        assert_eq!(code_lines("a;\n\n  // b\n  /** c */\nd;\n"), 2);
    }

    #[test]
    fn failing_program_has_no_time() {
        let compiler = |program: &str| Compiler { peer: "omniORB", program: program.into(), arguments: Vec::new() };
        assert!(compiler("/bin/false").time(Path::new("x")).is_err());
        assert!(compiler("/nonexistent").time(Path::new("x")).is_err());
        assert!(compiler("/bin/true").time(Path::new("x")).is_ok());
    }
}
