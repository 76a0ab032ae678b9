//! The command `corelane idl`, which compiles IDL files to Rust.

use crate::build::{self, WriteOutcome};
use crate::compile::{Compilation, CompileOptions};
use crate::diagnostic::{Severity, placeless_json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// The usage message, printed on request or after wrong arguments.
pub const USAGE: &str = "\
usage: corelane idl [-I DIR]... [-D NAME[=VALUE]]... [--check] [-o DIR] [--depfile FILE]
                    [--message-format human|json] [--idl-4] [--case-sensitive]
                    [--derive PATH]... [--extern IDL=PATH]... FILE...

Compiles IDL to Rust: FILE.idl becomes FILE.rs in DIR (the current folder unless -o says otherwise).

  -I DIR                search included files in DIR
  -D NAME[=VALUE]       define a macro
  --check               parse and check only, write nothing
  -o DIR                write to DIR
  --depfile FILE        also write which files the output depends on, as make reads it
  --message-format F    `human` (the default), or `json`: one object a line
  --idl-4               accept what IDL 4 allows and CORBA 3 forbids
  --case-sensitive      keep names that differ only in case apart, with a warning
  --derive PATH         let types derive another trait (`serde::Serialize`) if all their parts have it
  --extern IDL=PATH     the module or file IDL is the Rust module PATH already (`Shared=shapes::idl::shared`)

Exit status: 0 all accepted, 1 some refused, 2 wrong usage.
";

/// Exit status: every file was accepted.
pub const EXIT_ACCEPTED: u8 = 0;
/// Exit status: a file was refused, or could not be read or written.
pub const EXIT_REFUSED: u8 = 1;
/// Exit status: the arguments are invalid.
pub const EXIT_WRONG_USAGE: u8 = 2;

#[derive(Debug, Default)]
struct CommandArguments {
    options: CompileOptions,
    check: bool,
    json: bool,
    help: bool,
    output: PathBuf,
    depfile: Option<PathBuf>,
    files: Vec<PathBuf>,
}

/// Runs the command with the arguments after `corelane idl` and writes messages to `out`. Returns
/// the exit status: [`EXIT_ACCEPTED`], [`EXIT_REFUSED`] or [`EXIT_WRONG_USAGE`].
pub fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(message) => {
            let _ = write!(out, "error: {message}\n\n{USAGE}");
            return EXIT_WRONG_USAGE;
        }
    };
    if arguments.help {
        let _ = out.write_all(USAGE.as_bytes());
        return EXIT_ACCEPTED;
    }
    let styled = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut status = EXIT_ACCEPTED;
    let mut dependencies = String::new();
    let mut targets = HashMap::new();
    for (at, file) in arguments.files.iter().enumerate() {
        let name = build::output_name(file);
        if !arguments.check
            && let Some(first) = targets.insert(name.clone(), file)
        {
            let (first, name) = (first.display(), name.display());
            let message = format!("`{first}` and `{}` would both become `{name}`", file.display());
            say(&arguments, out, &message);
            status = EXIT_REFUSED;
            continue;
        }
        let last = at + 1 == arguments.files.len();
        match one_file(file, &arguments, styled, last, out) {
            Ok(line) => dependencies.push_str(&line),
            Err(Refused) => status = EXIT_REFUSED,
        }
    }
    if let Some(path) = &arguments.depfile
        && status == EXIT_ACCEPTED
        && !arguments.check
        && let Err(error) = build::write_if_changed(path, &dependencies)
    {
        say(&arguments, out, &format!("cannot write `{}`: {error}", path.display()));
        return EXIT_REFUSED;
    }
    status
}

fn say(arguments: &CommandArguments, out: &mut dyn Write, message: &str) {
    let _ = match arguments.json {
        true => writeln!(out, "{}", placeless_json("error", message)),
        false => writeln!(out, "error: {message}"),
    };
}

fn for_make(path: &Path) -> String {
    path.display().to_string().replace('$', "$$").replace('#', "\\#").replace(' ', "\\ ")
}

struct Refused;

fn one_file(
    file: &Path,
    arguments: &CommandArguments,
    styled: bool,
    last: bool,
    out: &mut dyn Write,
) -> Result<String, Refused> {
    let (mut compilation, tree) = Compilation::of_file_with_tree(file, &arguments.options).map_err(|error| {
        say(arguments, out, &format!("cannot read `{}`: {error}", file.display()));
        Refused
    })?;
    let result = finish(&mut compilation, file, arguments, styled, out);
    if last {
        // Freeing a large tree takes time, and the process exits soon, so the tree is not freed.
        std::mem::forget((compilation, tree));
    }
    result
}

fn finish(
    compilation: &mut Compilation,
    file: &Path,
    arguments: &CommandArguments,
    styled: bool,
    out: &mut dyn Write,
) -> Result<String, Refused> {
    let output = if arguments.check || !compilation.is_accepted() { None } else { Some(compilation.to_rust()) };
    for diagnostic in compilation.diagnostics.list() {
        let shown = match arguments.json {
            true => diagnostic.to_json(&compilation.sources) + "\n",
            false => diagnostic.render(&compilation.sources, styled) + "\n\n",
        };
        let _ = out.write_all(shown.as_bytes());
    }
    let left_out = match arguments.json {
        true => compilation.diagnostics.omission_notice_json(),
        false => compilation.diagnostics.omission_notice(),
    };
    let _ = out.write_all(left_out.as_bytes());
    let errors = compilation.diagnostics.error_count();
    if errors > 0 {
        if !arguments.json {
            let warnings =
                compilation.diagnostics.list().iter().filter(|one| one.severity == Severity::Warning).count();
            let _ = writeln!(out, "error: `{}` is refused: {}", file.display(), count(errors, warnings));
        }
        return Err(Refused);
    }
    let Some(text) = output else { return Ok(String::new()) };
    let name = build::output_name(file);
    let target = arguments.output.join(name);
    let written = std::fs::create_dir_all(&arguments.output).and_then(|()| build::write_if_changed(&target, &text));
    match written {
        Ok(WriteOutcome::Changed | WriteOutcome::Same) => {
            let files = compilation.files_read();
            Ok(format!("{}: {}\n", for_make(&target), files.map(for_make).collect::<Vec<_>>().join(" ")))
        }
        Err(error) => {
            say(arguments, out, &format!("cannot write `{}`: {error}", target.display()));
            Err(Refused)
        }
    }
}

fn count(errors: usize, warnings: usize) -> String {
    let number = |count, word: &str| if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") };
    match warnings {
        0 => number(errors, "error"),
        _ => format!("{}, {}", number(errors, "error"), number(warnings, "warning")),
    }
}

fn is_option(argument: &str, option: &str) -> bool {
    argument.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<CommandArguments, String> {
    let mut parsed = CommandArguments::default();
    let mut arguments = arguments.into_iter();
    let mut only_files = false;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        if only_files || !text.starts_with('-') || text == "-" {
            parsed.files.push(argument.into());
            continue;
        }
        if parsed.options.parse_argument(&argument, &mut arguments)? {
            continue;
        }
        let mut value = |name: &str| {
            let joined = text.strip_prefix(name).filter(|rest| !rest.is_empty());
            let joined = joined.map(|rest| OsString::from(rest.strip_prefix('=').unwrap_or(rest)));
            joined.or_else(|| arguments.next()).ok_or_else(|| format!("`{name}` needs a value"))
        };
        match text.as_str() {
            "--" => only_files = true,
            "-h" | "--help" => parsed.help = true,
            "--check" => parsed.check = true,
            _ if is_option(&text, "--message-format") => {
                let format = value("--message-format")?;
                parsed.json = match format.to_str() {
                    Some("json") => true,
                    Some("human") => false,
                    _ => return Err(format!("there is no message format `{}`", format.to_string_lossy())),
                };
            }
            _ if is_option(&text, "--derive") => {
                parsed.options.derives.push(value("--derive")?.to_string_lossy().into_owned());
            }
            _ if is_option(&text, "--extern") => {
                let both = value("--extern")?.to_string_lossy().into_owned();
                let (idl, rust) = both.split_once('=').ok_or("`--extern` needs IDL=PATH")?;
                parsed.options.externals.push((idl.to_owned(), rust.to_owned()));
            }
            _ if is_option(&text, "--depfile") => parsed.depfile = Some(value("--depfile")?.into()),
            _ if text.starts_with("-o") => parsed.output = value("-o")?.into(),
            _ => return Err(format!("there is no option `{text}`")),
        }
    }
    if parsed.files.is_empty() && !parsed.help {
        return Err("no file is given".to_owned());
    }
    Ok(parsed)
}
