//! Parsing of command lines with clap. The help texts, which are written by hand, provide clap's
//! descriptions of options and words.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use crate::text::excerpt;
use crate::{DONE, WRONG_USAGE};

#[derive(Debug, PartialEq, Eq)]
struct HelpEntry<'t> {
    names: &'t str,
    text: String,
}

impl<'t> HelpEntry<'t> {
    fn forms(&self) -> impl Iterator<Item = (&'t str, Option<&'t str>)> {
        self.names.split(", ").map(|form| match form.split_once(' ') {
            Some((name, value)) => (name, Some(value)),
            None => (form, None),
        })
    }
}

/// Returns the entries of a help text. An entry is a line with an indent of two, and the lines that
/// continue it.
fn entries(help: &str) -> Vec<HelpEntry<'_>> {
    let column = column(help);
    let mut entries: Vec<HelpEntry<'_>> = Vec::new();
    for line in help.lines() {
        let indent = line.len() - line.trim_start().len();
        if indent == column
            && let Some(entry) = entries.last_mut()
        {
            if !entry.text.is_empty() {
                entry.text.push(' ');
            }
            entry.text.push_str(line.trim());
        } else if indent == 2 {
            let (names, text) = match line.split_at_checked(column) {
                Some((names, text)) if names.ends_with(' ') => (names.trim(), text.to_owned()),
                _ => (line.trim(), String::new()),
            };
            entries.push(HelpEntry { names, text });
        }
    }
    entries
}

/// Returns the column at which most descriptions of options begin. If the text describes no
/// options, the descriptions of all entries count.
fn column(help: &str) -> usize {
    let of = |prefix: &str| {
        let begin = |line: &str| {
            let gap = line.get(2..)?.find("  ")? + 2;
            Some(gap + line[gap..].len() - line[gap..].trim_start().len())
        };
        let lines = help.lines().filter(|line| line.starts_with(prefix) && !line.starts_with("   "));
        let columns: Vec<usize> = lines.filter_map(begin).collect();
        let count = |column: &usize| columns.iter().filter(|other| *other == column).count();
        columns.iter().copied().max_by_key(count)
    };
    of("  -").or_else(|| of("  ")).unwrap_or(0)
}

pub(crate) fn command(name: &'static str, help: &'static str) -> Command {
    let asks_for_help = Arg::new("help").short('h').long("help").action(ArgAction::Help).help("Print help");
    let (description, rest) = paragraphs(help);
    Command::new(name)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .long_about(description)
        .after_help(rest)
        .arg(asks_for_help)
}

/// Returns the paragraphs before and after the entries, without the usage lines.
fn paragraphs(help: &str) -> (String, String) {
    let (mut before, mut after, mut is_after) = (Vec::new(), Vec::new(), false);
    for paragraph in help.split("\n\n").skip(1) {
        if paragraph.starts_with("  ") {
            is_after = true;
        } else if is_after {
            after.push(paragraph.trim());
        } else {
            before.push(paragraph.trim());
        }
    }
    (before.join("\n\n"), after.join("\n\n"))
}

/// Adds the descriptions in a help text to a command. An option without a description is hidden.
pub(crate) fn with_descriptions(command: Command, help: &str) -> Command {
    let entries = entries(help);
    let text = |name: &str| {
        let entry = entries.iter().find(|entry| entry.forms().any(|(form, _)| form == name));
        entry.map(|entry| entry.text.clone())
    };
    let describe = |argument: Arg| {
        if argument.is_positional() || argument.get_id() == "help" {
            return argument;
        }
        let long = argument.get_long().and_then(|name| text(&format!("--{name}")));
        match long.or_else(|| argument.get_short().and_then(|name| text(&format!("-{name}")))) {
            Some(text) => argument.help(text),
            None => argument.hide(true),
        }
    };
    command.mut_args(describe).mut_subcommands(|subcommand| {
        let about = text(subcommand.get_name()).unwrap_or_default();
        subcommand
            .about(about)
            .mut_args(|argument| if argument.get_help().is_some() { argument } else { describe(argument) })
    })
}

pub(crate) fn summary(help: &str, begin: &str) -> String {
    let entry = entries(help).into_iter().find(|entry| entry.names.starts_with(begin));
    entry.map(|entry| entry.text).unwrap_or_default()
}

pub(crate) fn from_help(name: &'static str, help: &'static str) -> Command {
    let entries = entries(help);
    let options = entries.iter().flat_map(|entry| entry.forms().map(|form| (form, entry.text.clone())));
    let options = options.filter_map(|((name, value), text)| {
        let argument = match (name.strip_prefix("--"), name.strip_prefix('-')) {
            (Some(long), _) => Arg::new(long).long(long),
            (None, Some(short)) => Arg::new(short).short(short.chars().next()?),
            (None, None) => return None,
        };
        let argument = match value {
            Some(value) => argument.action(ArgAction::Append).value_name(value).value_hint(hint(value)),
            None => argument.action(ArgAction::SetTrue),
        };
        Some(argument.help(text))
    });
    command(name, help).args(options)
}

fn hint(value: &str) -> ValueHint {
    match value {
        "FILE" | "PLAN" | "PAGE" | "COPY" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        "PROGRAM" => ValueHint::CommandName,
        _ => ValueHint::Unknown,
    }
}

/// Creates an option with a value. Any word can be the value, even a word that starts with `-`.
pub(crate) fn option(long: &'static str, value: &'static str) -> Arg {
    with_value(Arg::new(long).long(long), value)
}

pub(crate) fn short_option(short: char, id: &'static str, value: &'static str) -> Arg {
    with_value(Arg::new(id).short(short), value)
}

fn with_value(argument: Arg, value: &'static str) -> Arg {
    let argument = argument.value_name(value).value_hint(hint(value)).value_parser(value_parser!(OsString));
    argument.action(ArgAction::Set).allow_hyphen_values(true)
}

pub(crate) fn flag(long: &'static str) -> Arg {
    Arg::new(long).long(long).action(ArgAction::SetTrue)
}

pub(crate) fn positional(name: &'static str) -> Arg {
    Arg::new(name).value_name(name).value_hint(hint(name)).value_parser(value_parser!(OsString))
}

pub(crate) fn positionals(name: &'static str) -> Arg {
    positional(name).num_args(0..).action(ArgAction::Append)
}

pub(crate) fn idl_options() -> [Arg; 4] {
    [
        short_option('I', "include", "DIR").action(ArgAction::Append),
        short_option('D', "define", "NAME[=VALUE]").action(ArgAction::Append),
        flag("idl-4"),
        flag("case-sensitive"),
    ]
}

pub(crate) fn idl_options_of(parsed: &ArgMatches) -> corelane_idl::compile::CompileOptions {
    corelane_idl::compile::CompileOptions {
        include: parsed.get_many::<OsString>("include").into_iter().flatten().map(Into::into).collect(),
        defines: texts(parsed, "define"),
        is_idl_4_enabled: parsed.get_flag("idl-4"),
        is_case_sensitive: parsed.get_flag("case-sensitive"),
        ..corelane_idl::compile::CompileOptions::default()
    }
}

/// Returns the value of an option or positional word. Bytes that are not UTF-8 are replaced.
pub(crate) fn text(parsed: &ArgMatches, id: &str) -> Option<String> {
    parsed.get_one::<OsString>(id).map(|word| word.to_string_lossy().into_owned())
}

pub(crate) fn texts(parsed: &ArgMatches, id: &str) -> Vec<String> {
    let values = parsed.get_many::<OsString>(id).into_iter().flatten();
    values.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Parses a number of seconds from `least` to 1,000,000. Any other text gives the error `refusal`.
pub(crate) fn seconds(text: &str, least: f64, refusal: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (least..=1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| refusal.to_owned())
}

pub(crate) const MIN_TIMEOUT_S: f64 = 0.001;
pub(crate) const INVALID_TIMEOUT: &str = "a time-out is a number of seconds";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArgumentRefusal {
    Help,
    Unknown(String),
    Other(String),
}

impl ArgumentRefusal {
    pub(crate) fn reason(self) -> Option<String> {
        match self {
            ArgumentRefusal::Help => None,
            ArgumentRefusal::Unknown(word) if word.starts_with('-') => {
                Some(format!("there is no option `{}`", excerpt(&word)))
            }
            ArgumentRefusal::Unknown(word) => Some(format!("there is no argument `{}`", excerpt(&word))),
            ArgumentRefusal::Other(reason) => Some(reason),
        }
    }

    /// Returns the user's message for a refused subcommand. The message says that an unknown option
    /// does not exist `here`, because another subcommand may have it.
    pub(crate) fn subcommand_reason(self) -> Option<String> {
        match self {
            ArgumentRefusal::Unknown(word) if word.starts_with('-') => {
                Some(format!("there is no option `{}` here", excerpt(&word)))
            }
            ArgumentRefusal::Unknown(word) => Some(format!("`{}` is one argument too many", excerpt(&word))),
            other => other.reason(),
        }
    }
}

/// Prints the reason of the refusal, if there is one, and the help text. Returns the exit status.
pub(crate) fn print_refusal(reason: Option<String>, help: &str, out: &mut dyn Write) -> u8 {
    let _ = match &reason {
        Some(reason) => write!(out, "error: {reason}\n\n{help}"),
        None => out.write_all(help.as_bytes()),
    };
    if reason.is_some() { WRONG_USAGE } else { DONE }
}

pub(crate) fn parse(
    command: Command,
    words: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, ArgumentRefusal> {
    command.no_binary_name(true).try_get_matches_from(words).map_err(|error| {
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.clone(),
            Some(ContextValue::Strings(texts)) => texts.join(", "),
            _ => String::new(),
        };
        let word = context(ContextKind::InvalidArg);
        // clap gives an option as `--at <REFERENCE>`, of which the first word is the name.
        let name = word.split([' ', '=']).next().unwrap_or_default();
        match error.kind() {
            ErrorKind::DisplayHelp => ArgumentRefusal::Help,
            ErrorKind::UnknownArgument => ArgumentRefusal::Unknown(word),
            ErrorKind::InvalidValue if context(ContextKind::InvalidValue).is_empty() => {
                ArgumentRefusal::Other(format!("`{name}` needs a value"))
            }
            ErrorKind::TooManyValues => ArgumentRefusal::Other(format!("`{name}` takes no value")),
            ErrorKind::InvalidSubcommand => ArgumentRefusal::Unknown(context(ContextKind::InvalidSubcommand)),
            _ => ArgumentRefusal::Other(error.kind().to_string()),
        }
    })
}

pub(crate) fn parse_subcommand(
    name: &str,
    command: Command,
    words: impl IntoIterator<Item = OsString>,
) -> Result<(String, ArgMatches), ArgumentRefusal> {
    let words: Vec<OsString> = words.into_iter().collect();
    let first = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    match first.as_str() {
        "help" | "-h" | "--help" => return Err(ArgumentRefusal::Help),
        "" => return Err(ArgumentRefusal::Other("no command is given".to_owned())),
        _ if command.find_subcommand(&first).is_none() => {
            return Err(ArgumentRefusal::Other(format!("there is no command `{name} {}`", excerpt(&first))));
        }
        _ => {}
    }
    let subcommand = parse(command, words)?.remove_subcommand();
    subcommand.ok_or_else(|| ArgumentRefusal::Other("no command is given".to_owned()))
}

/// Moves the positional words to the end, after a `--`. `is_word` gets a word and the number of
/// positional words before it, and returns true for a positional word. It is not called for the
/// values of options.
pub(crate) fn move_positionals_last(
    command: &Command,
    words: impl IntoIterator<Item = OsString>,
    is_word: impl Fn(&str, usize) -> bool,
) -> Vec<OsString> {
    let takes_next = |word: &str| {
        let is_named = |argument: &&Arg| match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some(long), _) => argument.get_long() == Some(long),
            (None, Some(short)) => argument.get_short().is_some_and(|short_option| short.chars().eq([short_option])),
            (None, None) => false,
        };
        command.get_arguments().find(is_named).is_some_and(|argument| argument.get_action().takes_values())
    };
    let (mut options, mut positional) = (Vec::new(), vec![OsString::from("--")]);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if is_word(&text, positional.len() - 1) {
            positional.push(word);
        } else if text == "--" {
            positional.extend(words);
            break;
        } else {
            options.push(word);
            if takes_next(&text) {
                match words.next() {
                    Some(value) => options.push(value),
                    None => return options,
                }
            }
        }
    }
    options.extend(positional);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "\
usage: corelane thing [-I DIR] WORD...

Does a thing with WORDs.

Also another one.

  make, remake      make a thing
  -I, -D DIR        a folder
                    and more
  --timeout SECONDS give up
  --much-longer-name VALUE
                    the rest
  --quick, --full   fewer or more

Times are in seconds.

Exit status: 0 done.
";

    #[test]
    fn descriptions_are_parsed_from_the_help_text() {
        let names: Vec<_> = entries(HELP).into_iter().map(|entry| (entry.names, entry.text)).collect();
        let expected = [
            ("make, remake", "make a thing"),
            ("-I, -D DIR", "a folder and more"),
            ("--timeout SECONDS", "give up"),
            ("--much-longer-name VALUE", "the rest"),
            ("--quick, --full", "fewer or more"),
        ];
        assert_eq!(names, expected.map(|(names, text)| (names, text.to_owned())));
        let with_descriptions = with_descriptions(
            command("thing", HELP)
                .arg(option("timeout", "SECONDS"))
                .arg(short_option('I', "include", "DIR"))
                .arg(flag("secret"))
                .subcommand(command("remake", HELP).arg(flag("quick"))),
            HELP,
        );
        let help =
            |id: &str| with_descriptions.get_arguments().find(|one| one.get_id() == id).map(|one| one.get_help());
        assert_eq!(help("timeout").flatten().unwrap().to_string(), "give up");
        assert_eq!(help("include").flatten().unwrap().to_string(), "a folder and more");
        assert!(with_descriptions.get_arguments().find(|one| one.get_id() == "secret").unwrap().is_hide_set());
        let remake = with_descriptions.find_subcommand("remake").unwrap();
        assert_eq!(remake.get_about().unwrap().to_string(), "make a thing");
        assert_eq!(
            with_descriptions.get_long_about().unwrap().to_string(),
            "Does a thing with WORDs.\n\nAlso another one."
        );
        let after = with_descriptions.get_after_help().unwrap().to_string();
        assert_eq!(after, "Times are in seconds.\n\nExit status: 0 done.");
        let options: Vec<String> =
            from_help("thing", HELP).get_arguments().map(|one| one.get_id().to_string()).collect();
        assert_eq!(options, ["help", "I", "D", "timeout", "much-longer-name", "quick", "full"]);
    }

    #[test]
    fn refusal_has_a_reason() {
        let refused = |words: &[&str]| {
            let thing = command("thing", HELP).arg(option("timeout", "SECONDS")).arg(flag("quick"));
            parse(thing, words.iter().map(OsString::from)).unwrap_err().reason()
        };
        assert_eq!(refused(&["-h"]), None);
        assert_eq!(refused(&["--what"]).unwrap(), "there is no option `--what`");
        assert_eq!(refused(&["what"]).unwrap(), "there is no argument `what`");
        assert_eq!(refused(&["--timeout"]).unwrap(), "`--timeout` needs a value");
        assert_eq!(refused(&["--quick=3"]).unwrap(), "`--quick` takes no value");
        assert_eq!(refused(&["--\x1b[2J"]).unwrap(), "there is no option `--\\u{1b}[2J`");
    }

    #[test]
    fn positional_words_are_moved_to_the_end() {
        let command = command("thing", HELP).args([option("timeout", "SECONDS"), short_option('I', "include", "DIR")]);
        let until_two = |word: &str, count| count >= 2 || !word.starts_with('-') || word == "-";
        for (words, expected) in [
            ("a b --timeout -x", "-- a b --timeout -x"),
            ("--timeout -- a -I b -Ic b -5", "--timeout -- -I b -Ic -- a b -5"),
            ("- --timeout=3 b", "--timeout=3 -- - b"),
            ("a", "-- a"),
            ("--timeout 1 -- a b c", "--timeout 1 -- a b c"),
            ("--timeout --timeout a b c", "--timeout --timeout -- a b c"),
            ("a --timeout", "--timeout"),
        ] {
            let placed = move_positionals_last(&command, words.split(' ').map(OsString::from), until_two);
            assert_eq!(placed.join(std::ffi::OsStr::new(" ")), expected);
        }
    }
}
