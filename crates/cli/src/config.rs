//! Options from a configuration file and from the environment.
//!
//! An option's value comes from the first of these sources that has one: the words of the command,
//! the environment, the file, the command's default. Each configured value becomes a word in front
//! of the user's words, so that one parser checks all values.

mod import;
mod orb_options;
mod program;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::vec;

use clap::{ArgAction, ArgMatches, Command};
use serde_json::{Value as Json, json};
use toml::de::{DeTable, DeValue};

use self::program::ProgramSources;
use crate::arguments::{self, ArgumentRefusal, flag, option};
use crate::text::{excerpt, json_text, printable};
use crate::{DONE, NOT_DONE, TOOLS};

pub(crate) const USAGE: &str = "\
usage: corelane config show [--json] [COMMAND]...
       corelane config show [--json] [--environment PREFIX] FILE [-ORBNAME VALUE]...
       corelane config import [--for programs|commands] [--from omniorb|tao] [FILE]... [-ORBNAME VALUE]...

`show` shows each option of the commands that can be configured, such as `naming serve`, with its value and its source: the
environment, the configuration file or the default. COMMAND is the beginning of a command's name.

With FILE, whose name has a dot or a slash, `show` checks the configuration of a program and shows its settings. PREFIX is the
beginning of the program's environment variables. -ORB options are those of the program.

`import` reads omniORB's configuration file, TAO's svc.conf and -ORB options, in files or as words, and prints a configuration
file. Each option without a counterpart is named on the standard error, with its place and the reason.

  show              show the options
  import            convert options of other ORBs

  --json            print one JSON object
  --environment PREFIX
                    also read the environment variables that begin with PREFIX and _
  --for programs|commands
                    whose file to print: that of a program (default), or that of the commands
  --from omniorb|tao
                    the ORB of the files and options, if their first line does not show it

CORELANE_CONFIG names the file of the commands. docs/commands.md describes it and the environment, docs/configuration.md those of
programs.

Exit status: 0 shown or converted, 1 the configuration is refused or a file cannot be read, 2 wrong usage, or a file is
malformed.
";

const CONFIGURED: &[&str] = &["call", "cores", "doctor", "events", "ior", "naming", "ping", "sniff"];
const FILE: &str = "CORELANE_CONFIG";
const MAX_FILE: u64 = 1 << 20;

pub(crate) fn command() -> Command {
    let options = [flag("json"), option("environment", "PREFIX"), arguments::positionals("COMMAND")];
    let show = arguments::command("show", USAGE).args(options);
    let config = arguments::command("config", USAGE).subcommand(show).subcommand(import::command());
    arguments::with_descriptions(config, USAGE)
}

pub(crate) fn run(words: vec::IntoIter<OsString>, out: &mut dyn Write) -> u8 {
    let words: Vec<OsString> = words.collect();
    if words.first().is_some_and(|word| word == "show") {
        let (words, of_orb) = program::split(words);
        let parsed = arguments::parse_subcommand("config", command(), words).map_err(ArgumentRefusal::reason);
        return match parsed {
            Ok((_, parsed)) => show(&parsed, of_orb, out),
            Err(reason) => arguments::print_refusal(reason, USAGE, out),
        };
    }
    let (words, of_orb) = import::split(words);
    let parsed = arguments::parse_subcommand("config", command(), words).map_err(ArgumentRefusal::reason);
    match parsed {
        Ok((_, parsed)) => import::run(&parsed, of_orb, out),
        Err(reason) => arguments::print_refusal(reason, USAGE, out),
    }
}

fn show(parsed: &ArgMatches, arguments: Vec<String>, out: &mut dyn Write) -> u8 {
    let is_json = parsed.get_flag("json");
    let words = arguments::texts(parsed, "COMMAND");
    let prefix = arguments::text(parsed, "environment");
    let refuse = |reason: &str, out: &mut dyn Write| arguments::print_refusal(Some(reason.to_owned()), USAGE, out);
    let shown = match words.as_slice() {
        [file] if program::is_file(file) => {
            let file = parsed.get_one::<OsString>("COMMAND").map(Path::new).unwrap_or(Path::new(file));
            let sources = ProgramSources { file, prefix, arguments };
            if is_json { sources.into_json().map(|json| json_text(&json)) } else { sources.into_text() }
        }
        words if words.iter().any(|word| program::is_file(word)) => return refuse("more than one file is given", out),
        _ if prefix.is_some() => return refuse("`--environment` needs a file", out),
        words => show_commands(&words.join(" "), is_json),
    };
    let (status, text) = match shown {
        Ok(text) => (DONE, text),
        Err(error) if is_json => (NOT_DONE, json_text(&json!({ "schema": 1, "error": error }))),
        Err(error) => (NOT_DONE, format!("error: {error}\n")),
    };
    let _ = out.write_all(text.as_bytes());
    status
}

fn show_commands(wanted: &str, is_json: bool) -> Result<String, String> {
    let settings = Settings::read()?;
    if settings.shown(wanted).next().is_none() {
        return Err(format!("there is no command `{}` that can be configured", excerpt(wanted)));
    }
    Ok(if is_json { json_text(&settings.to_json(wanted)) } else { settings.to_text(wanted) })
}

struct KnownOption {
    /// The command with its subcommand, for example `naming serve`.
    command: String,
    name: String,
    takes_value: bool,
    is_repeatable: bool,
}

impl KnownOption {
    /// Returns the environment variables of the option. The variable of the subcommand precedes the
    /// variable of its command.
    fn variables(&self) -> Vec<String> {
        let path: Vec<&str> = self.command.split(' ').collect();
        let variable = |path: &[&str]| format!("CORELANE_{}_{}", path.join("_"), self.name);
        let spelled = |text: String| text.to_uppercase().replace('-', "_");
        (1..=path.len()).rev().map(|length| spelled(variable(&path[..length]))).collect()
    }
}

fn known_options() -> Vec<KnownOption> {
    fn of(command: &Command, path: &str, found: &mut Vec<KnownOption>) {
        let options = command.get_arguments().filter_map(|argument| Some((argument, argument.get_long()?)));
        for (argument, name) in options.filter(|(argument, _)| argument.get_id() != "help") {
            let takes_value = argument.get_action().takes_values();
            let is_repeatable = matches!(argument.get_action(), ArgAction::Append);
            found.push(KnownOption { command: path.to_owned(), name: name.to_owned(), takes_value, is_repeatable });
        }
        for subcommand in command.get_subcommands() {
            of(subcommand, &format!("{path} {}", subcommand.get_name()), found);
        }
    }
    let mut found = Vec::new();
    for tool in TOOLS.iter().filter(|tool| CONFIGURED.contains(&tool.name)) {
        of(&(tool.command)(), tool.name, &mut found);
    }
    found
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Environment(String),
    File(String),
}

/// The configured values of an option. The value of an option without an argument is `true` or
/// `false`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    values: Vec<OsString>,
    source: Source,
}

struct Settings {
    options: Vec<KnownOption>,
    file: Option<PathBuf>,
    set: BTreeMap<(String, String), Setting>,
}

impl Settings {
    /// Reads the settings of the file and of the environment. The error is a message for the user.
    fn read() -> Result<Settings, String> {
        let file = env::var_os(FILE).map(PathBuf::from);
        let text = file.as_ref().map(read_file).transpose()?;
        let name = file.as_ref().map(|path| format!("`{}`", excerpt(&path.to_string_lossy()))).unwrap_or_default();
        let mut settings = Settings { options: known_options(), file, set: BTreeMap::new() };
        if let Some(text) = text {
            settings.take_file(&text).map_err(|error| format!("{name}: {error}"))?;
        }
        settings
            .read_environment(env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))))?;
        Ok(settings)
    }

    fn take_file(&mut self, text: &str) -> Result<(), String> {
        let table = DeTable::parse(text).map_err(|error| printable(&error.to_string()))?;
        self.take_table(table.get_ref(), "", text)
    }

    fn take_table(&mut self, table: &DeTable<'_>, command: &str, text: &str) -> Result<(), String> {
        for (key, value) in table {
            let name: &str = key.get_ref();
            let line = line_of(text, key.span().start);
            if let DeValue::Table(below) = value.get_ref() {
                let path = if command.is_empty() { name.to_owned() } else { format!("{command} {name}") };
                let is_known = |one: &KnownOption| one.command == path || one.command.starts_with(&format!("{path} "));
                if !self.options.iter().any(is_known) {
                    let commands =
                        self.options.iter().map(|one| one.command.as_str()).chain(CONFIGURED.iter().copied());
                    return Err(format!("line {line}: there is no command {}", nearest(&path, commands)));
                }
                self.take_table(below, &path, text)?;
                continue;
            }
            let is_own = |one: &&KnownOption| {
                !command.is_empty() && (one.command == command || one.command.starts_with(&format!("{command} ")))
            };
            let own: Vec<&KnownOption> = self.options.iter().filter(is_own).collect();
            let with_name: Vec<&KnownOption> = own.iter().copied().filter(|one| one.name == name).collect();
            if with_name.is_empty() {
                let place =
                    if command.is_empty() { "outside of a table".to_owned() } else { format!("of `{command}`") };
                let known = own.iter().map(|one| one.name.as_str());
                return Err(format!("line {line}: there is no option {place} {}", nearest(name, known)));
            }
            let mut found = Vec::new();
            for option in with_name {
                let values = values(value.get_ref(), option).map_err(|reason| format!("line {line}: {reason}"))?;
                let place = (option.command.clone(), name.to_owned());
                let is_nearer = option.command == command || !self.set.contains_key(&place);
                if is_nearer {
                    found.push((place, Setting { values, source: Source::File(command.replace(' ', ".")) }));
                }
            }
            self.set.extend(found);
        }
        Ok(())
    }

    fn read_environment(&mut self, variables: impl Iterator<Item = (String, OsString)>) -> Result<(), String> {
        let of_tools = |name: &str| {
            let tool = |tool: &str| name.starts_with(&format!("CORELANE_{}_", tool.to_uppercase()));
            CONFIGURED.iter().any(|one| tool(one))
        };
        let variables: BTreeMap<String, OsString> = variables.filter(|(name, _)| of_tools(name)).collect();
        let known: Vec<(Vec<String>, &KnownOption)> =
            self.options.iter().map(|option| (option.variables(), option)).collect();
        for name in variables.keys() {
            if !known.iter().any(|(names, _)| names.contains(name)) {
                let names = known.iter().flat_map(|(names, _)| names.iter().map(String::as_str));
                return Err(format!("the environment: there is no variable {}", nearest(name, names)));
            }
        }
        for (names, option) in known {
            let Some((name, value)) = names.iter().find_map(|name| variables.get_key_value(name)) else { continue };
            let values = if option.is_repeatable {
                let text = value.to_str().ok_or_else(|| format!("`{name}` is not UTF-8"))?;
                text.split_whitespace().map(OsString::from).collect()
            } else {
                vec![value.clone()]
            };
            if !option.takes_value && !["true", "false"].iter().any(|word| value == word) {
                return Err(format!("`{name}` is true or false"));
            }
            let setting = Setting { values, source: Source::Environment(name.clone()) };
            self.set.insert((option.command.clone(), option.name.clone()), setting);
        }
        Ok(())
    }

    /// Adds the configured options to the words, except options that the words contain.
    fn with_configured_options(&self, tool: &str, words: Vec<OsString>) -> Vec<OsString> {
        let first = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let subcommand = format!("{tool} {first}");
        let has_subcommand = self.options.iter().any(|one| one.command == subcommand);
        let command = if has_subcommand { subcommand.as_str() } else { tool };
        let mut given = words.into_iter();
        let mut all: Vec<OsString> = given.by_ref().take(usize::from(has_subcommand)).collect();
        let given: Vec<OsString> = given.collect();
        for option in self.options.iter().filter(|option| option.command == command) {
            let name = format!("--{}", option.name);
            let is_it = |word: &OsString| {
                let word = word.to_string_lossy();
                word.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            };
            let place = (option.command.clone(), option.name.clone());
            let Some(setting) = self.set.get(&place) else { continue };
            if given.iter().take_while(|word| *word != "--").any(is_it) {
                continue;
            }
            for value in &setting.values {
                if option.takes_value {
                    let mut word = OsString::from(format!("{name}="));
                    word.push(value);
                    all.push(word);
                } else if value == "true" {
                    all.push(name.clone().into());
                }
            }
        }
        all.extend(given);
        all
    }

    fn shown(&self, wanted: &str) -> impl Iterator<Item = (&KnownOption, Option<&Setting>)> {
        let is_wanted = move |option: &&KnownOption| {
            let rest = option.command.strip_prefix(wanted);
            rest.is_some_and(|rest| wanted.is_empty() || rest.is_empty() || rest.starts_with(' '))
        };
        let wanted: Vec<&KnownOption> = self.options.iter().filter(is_wanted).collect();
        wanted.into_iter().map(|option| (option, self.set.get(&(option.command.clone(), option.name.clone()))))
    }

    fn to_text(&self, wanted: &str) -> String {
        let line = |(option, setting): (&KnownOption, Option<&Setting>)| {
            let name = format!("{} --{}", option.command, option.name);
            let Some(setting) = setting else { return format!("{name}: default\n") };
            let values: Vec<String> = setting.values.iter().map(|value| printable(&value.to_string_lossy())).collect();
            let source = match &setting.source {
                Source::Environment(variable) => variable.clone(),
                Source::File(table) => format!("[{table}] of the file"),
            };
            format!("{name}: {} ({source})\n", values.join(" "))
        };
        self.shown(wanted).map(line).collect()
    }

    fn to_json(&self, wanted: &str) -> Json {
        let option = |(option, setting): (&KnownOption, Option<&Setting>)| {
            let values = setting.map(|setting| {
                setting.values.iter().map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>()
            });
            let (source, place) = match setting.map(|setting| &setting.source) {
                None => ("default", Json::Null),
                Some(Source::Environment(variable)) => ("environment", json!(variable)),
                Some(Source::File(table)) => ("file", json!(table)),
            };
            json!({ "command": option.command, "option": option.name, "values": values, "source": source, "place": place })
        };
        let options: Vec<Json> = self.shown(wanted).map(option).collect();
        json!({ "schema": 1, "file": self.file.as_ref().map(|path| path.to_string_lossy()), "options": options })
    }
}

/// Adds the configured options of a command to its words, unless the words ask for help. The error
/// is a message for the user.
pub(crate) fn with_configured_options(tool: &str, words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let is_set = || env::vars_os().any(|(name, _)| name.as_encoded_bytes().starts_with(b"CORELANE_"));
    let asks_for_help = words.iter().any(|word| word == "--help" || word == "-h");
    if !CONFIGURED.contains(&tool) || asks_for_help || !is_set() {
        return Ok(words);
    }
    Ok(Settings::read()?.with_configured_options(tool, words))
}

fn read_file(path: &PathBuf) -> Result<String, String> {
    let name = format!("`{}`", excerpt(&path.to_string_lossy()));
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(format!("{name} cannot be read: {error}")),
        Ok(length) if length as u64 > MAX_FILE => Err(format!("{name} holds more than {MAX_FILE} octets")),
        Ok(_) => Ok(text),
    }
}

fn values(value: &DeValue<'_>, option: &KnownOption) -> Result<Vec<OsString>, String> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) if option.takes_value => Ok(OsString::from(&**text)),
        DeValue::Integer(number) if option.takes_value => Ok(OsString::from(number.to_string())),
        DeValue::Float(number) if option.takes_value => Ok(OsString::from(number.to_string())),
        DeValue::Boolean(is_set) if !option.takes_value => Ok(OsString::from(is_set.to_string())),
        _ if option.takes_value => Err(format!("`{}` is a text or a number", option.name)),
        _ => Err(format!("`{}` is true or false", option.name)),
    };
    match value {
        DeValue::Array(values) if option.is_repeatable => values.iter().map(|value| one(value.get_ref())).collect(),
        value => Ok(vec![one(value)?]),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|octet| **octet == b'\n').count() + 1
}

fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let likeness = |known: &&str| (strsim::jaro_winkler(name, known) * 1e6) as u64;
    match known.max_by_key(likeness).filter(|known| likeness(known) > 700_000) {
        Some(known) => format!("`{}`: the nearest one is `{known}`", excerpt(name)),
        None => format!("`{}`", excerpt(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = Settings { options: known_options(), file: None, set: BTreeMap::new() };
        settings.take_file(file)?;
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value)));
        settings.read_environment(variables).map(|()| settings)
    }

    fn with_configured_options(file: &str, variables: &[(&str, &str)], words: &str) -> String {
        let settings = settings(file, variables).unwrap();
        let (tool, words) = words.split_once(' ').unwrap_or((words, ""));
        let words = words.split_whitespace().map(OsString::from).collect();
        settings.with_configured_options(tool, words).join(std::ffi::OsStr::new(" ")).to_string_lossy().into_owned()
    }

    #[test]
    fn words_precede_the_environment_and_the_environment_precedes_the_file() {
        let file = "[naming]\nat = 'a'\n[naming.serve]\nlisten = ['x', 'y']\nread-only = true\n[ping]\ncount = 3\ninterval = 0.5\n";
        assert_eq!(with_configured_options(file, &[], "naming list shop"), "list --at=a shop");
        assert_eq!(
            with_configured_options(file, &[("CORELANE_NAMING_AT", "b")], "naming list shop"),
            "list --at=b shop"
        );
        assert_eq!(with_configured_options(file, &[("CORELANE_NAMING_AT", "b")], "naming list --at c"), "list --at c");
        assert_eq!(with_configured_options(file, &[("CORELANE_NAMING_AT", "b")], "naming list --at=c"), "list --at=c");
        let both = [("CORELANE_NAMING_AT", "b"), ("CORELANE_NAMING_LIST_AT", "d")];
        assert_eq!(with_configured_options(file, &both, "naming list"), "list --at=d");
        assert_eq!(with_configured_options(file, &both, "naming tree -- --at"), "tree --at=b -- --at");
        assert_eq!(with_configured_options(file, &[], "naming serve"), "serve --listen=x --listen=y --read-only");
        assert_eq!(with_configured_options(file, &[], "naming serve --listen z"), "serve --read-only --listen z");
        let none = [("CORELANE_NAMING_SERVE_LISTEN", " p  q"), ("CORELANE_NAMING_SERVE_READ_ONLY", "false")];
        assert_eq!(with_configured_options(file, &none, "naming serve"), "serve --listen=p --listen=q");
        assert_eq!(with_configured_options(file, &[], "ping r"), "--count=3 --interval=0.5 r");
        for file in ["[naming]\nat = 'a'\n[naming.list]\nat = 'b'\n", "[naming.list]\nat = 'b'\n[naming]\nat = 'a'\n"] {
            assert_eq!(with_configured_options(file, &[], "naming list"), "list --at=b");
            assert_eq!(with_configured_options(file, &[], "naming tree"), "tree --at=a");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_most_similar_name() {
        for (file, variables, reason) in [
            (
                "[naming.serve]\nlisen = 'x'\n",
                &[][..],
                "line 2: there is no option of `naming serve` `lisen`: the nearest one is `listen`",
            ),
            ("[namin]\nat = 'x'\n", &[], "line 1: there is no command `namin`: the nearest one is `naming`"),
            ("at = 'x'\n", &[], "line 1: there is no option outside of a table `at`"),
            ("[ping]\ncount = [3]\n", &[], "line 2: `count` is a text or a number"),
            ("[naming.serve]\nread-only = 'yes'\n", &[], "line 2: `read-only` is true or false"),
            ("", &[("CORELANE_NAMING_SERVE_READ_ONLY", "1")], "`CORELANE_NAMING_SERVE_READ_ONLY` is true or false"),
            (
                "",
                &[("CORELANE_PING_COUNTS", "1")],
                "the environment: there is no variable `CORELANE_PING_COUNTS`: the nearest one is `CORELANE_PING_COUNT`",
            ),
        ] {
            let Err(error) = settings(file, variables) else { panic!("{file} is accepted") };
            assert_eq!(error, reason);
        }
        assert!(settings("[ping\n", &[]).is_err());
        assert!(settings("", &[("CORELANE_CYCLES", "1"), ("PING_COUNT", "x")]).is_ok());
    }

    #[test]
    fn each_option_has_a_variable_of_its_own() {
        let options = known_options();
        let own: Vec<String> = options.iter().filter_map(|option| option.variables().into_iter().next()).collect();
        let mut single = own.clone();
        single.sort_unstable();
        single.dedup();
        assert_eq!(single.len(), own.len());
        assert!(own.len() > 60, "{}", own.len());
    }
}
