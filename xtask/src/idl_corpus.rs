//! `cargo xtask idl-corpus`: compares the IDL compiler with omniidl on every IDL file below a
//! folder.

mod folders;
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use folders::Folders;

const HELP: &str = "\
cargo xtask idl-corpus DIR [-I DIR]... [-D NAME]... [--rust] [--limit SECONDS]

Every folder in DIR is a project. Each of its .idl files is given to `corelane idl --check` and to omniidl;
the table shows how many each accepts; target/idl-corpus/ has a line for each file, and each disagreement with the messages
of both. `--rust` also generates code, so that constructs without a form in Rust yet count as refused.
";

/// The name of a back end of omniidl that does nothing. Without a back end, omniidl returns 0
/// despite errors.
const NO_BACK_END: &str = "front_end_only";

#[derive(Clone, Debug, Default)]
struct Verdict {
    accepted: bool,
    broken: bool,
    /// First line of the output with a reason for the refusal.
    reason: String,
}

struct Row {
    project: String,
    path: PathBuf,
    ours: Verdict,
    theirs: Option<Verdict>,
}

struct Options {
    corpus: PathBuf,
    include: Vec<PathBuf>,
    defines: Vec<String>,
    rust: bool,
    limit: Duration,
}

/// Runs the command. The exit status is 0 only if Corelane accepts every file that omniidl accepts.
pub(crate) fn run(root: &Path, words: &[&str]) -> ExitCode {
    match options(words).and_then(|options| compare(root, &options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("cargo xtask idl-corpus: {problem}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        corpus: PathBuf::new(),
        include: Vec::new(),
        defines: Vec::new(),
        rust: false,
        limit: Duration::from_secs(60),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        match *word {
            "-I" => options.include.push(value()?.into()),
            "-D" => options.defines.push((*value()?).to_owned()),
            "--rust" => options.rust = true,
            "--limit" => {
                let seconds = value()?.parse().map_err(|_| "`--limit` needs a number of seconds".to_owned())?;
                options.limit = Duration::from_secs(seconds);
            }
            folder if options.corpus.as_os_str().is_empty() && !folder.starts_with('-') => {
                options.corpus = folder.into();
            }
            other => return Err(format!("`{other}` is unknown")),
        }
    }
    if options.corpus.is_dir() { Ok(options) } else { Err("the folder of the corpus is missing".to_owned()) }
}

fn compare(root: &Path, options: &Options) -> Result<bool, String> {
    let built = crate::steps::cargo()
        .args(["build", "--release", "--locked", "--quiet", "--package", "corelane-cli"])
        .current_dir(root)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the command could not be built".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let corelane = target.join("release/corelane");
    let output = target.join("idl-corpus");
    std::fs::create_dir_all(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    let omniidl = Command::new("omniidl").arg("-V").stdout(Stdio::null()).status().is_ok();
    if !omniidl {
        println!("omniidl is not installed: only Corelane's verdicts are counted");
    }
    std::fs::write(output.join(NO_BACK_END).with_extension("py"), "def run(tree, arguments):\n    pass\n")
        .map_err(|error| format!("{}: {error}", output.display()))?;
    let folders = Folders::of(&options.corpus, &options.include)?;
    println!("{} files in {} projects", folders.files().len(), folders.projects());
    let began = Instant::now();
    let rows = verdicts(&folders, options, &corelane, omniidl, &output);
    report::write(&rows, &output).map_err(|error| format!("{}: {error}", output.display()))?;
    print!("{}", report::table(&rows));
    println!("{:.0} s; details in {}", began.elapsed().as_secs_f64(), output.display());
    Ok(!rows.iter().any(|row| !row.ours.accepted && row.theirs.as_ref().is_some_and(|theirs| theirs.accepted)))
}

fn verdicts(folders: &Folders, options: &Options, corelane: &Path, omniidl: bool, output: &Path) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let one = |file: &Path| {
        let include = folders.include(file);
        let mut ours = Command::new(corelane);
        ours.arg("idl");
        if options.rust {
            ours.arg("-o").arg(output.join("rust").join(file.with_extension("")));
        } else {
            ours.arg("--check");
        }
        let mut theirs = Command::new("omniidl");
        theirs.arg("-nf").arg(format!("-p{}", output.display())).arg(format!("-b{NO_BACK_END}"));
        for command in [&mut ours, &mut theirs] {
            command.args(options.defines.iter().map(|define| format!("-D{define}")));
            command.args(include.iter().map(|folder| format!("-I{}", folder.display())));
            command.arg(options.corpus.join(file));
        }
        let theirs = omniidl.then(|| verdict(theirs, options.limit));
        let project = file.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        Row { project, path: file.to_owned(), ours: verdict(ours, options.limit), theirs }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || {
            let mut rows = Vec::new();
            while let Some(file) = folders.files().get(next.fetch_add(1, Ordering::Relaxed)) {
                rows.push(one(file));
            }
            rows
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut rows: Vec<Row> = threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
        rows.sort_by(|one, two| one.path.cmp(&two.path));
        rows
    })
}

fn verdict(command: Command, limit: Duration) -> Verdict {
    let mut timed = Command::new("timeout");
    timed.arg(limit.as_secs().to_string()).arg(command.get_program()).args(command.get_args()).env("NO_COLOR", "1");
    let Ok(output) = timed.stdin(Stdio::null()).output() else {
        return Verdict { broken: true, reason: "could not be started".to_owned(), ..Verdict::default() };
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Verdict {
        accepted: output.status.success(),
        broken: !matches!(output.status.code(), Some(0 | 1)),
        reason: if output.status.success() { String::new() } else { report::reason(&said) },
    }
}
