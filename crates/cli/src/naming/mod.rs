//! The command `corelane naming`, which runs a name server and works with any CORBA name server.

mod client;
pub(crate) mod control;
mod import;
mod output;
mod prune;
mod serve;
mod walk;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgMatches, Command};
use corelane_services::store::Durability;
use serde_json::json;

pub(crate) use self::client::{object_of_reference, object_of_word};
use self::output::Output;
use crate::arguments::{self, ArgumentRefusal, INVALID_TIMEOUT, MIN_TIMEOUT_S, flag, option, seconds};
use crate::text::excerpt;
use crate::{DONE, NOT_DONE};

pub(crate) const USAGE: &str = "\
usage: corelane naming serve [--listen ADDRESS]... [--publish ADDRESS]... [--store FILE] [--durability synced|relaxed]
                             [--read-only] [--allow-control USER,...] [--control PATH] [--ior-file FILE]
                             [--orb-config FILE]
       corelane naming list|tree [--at REFERENCE] [--timeout SECONDS] [NAME]
       corelane naming bind|rebind|bind-context|rebind-context [--at REFERENCE] [--timeout SECONDS] NAME OBJECT
       corelane naming unbind|new|resolve [--at REFERENCE] [--timeout SECONDS] NAME
       corelane naming watch [--interval SECONDS] [--count N] [--at REFERENCE] [--timeout SECONDS] [NAME]
       corelane naming prune [--dry-run] [--follow] [--at REFERENCE] [--timeout SECONDS] [NAME]
       corelane naming import --from REFERENCE [--replace] [--jobs N] [--control PATH] [--at REFERENCE]
                              [--timeout SECONDS] [NAME]
       corelane naming backup --store FILE COPY
       corelane naming backup --control PATH COPY
       corelane naming shutdown --control PATH
Each command has --json.

`serve` runs a name server until SIGTERM or SIGINT. Its key is NameService; it prints its reference. The other commands
work on any CORBA name server. Names have `/` between components and `.` between id and kind; `\\` stands before a `/`, `.` or
`\\` that belongs to the name.

  serve             serve names; without --store they are lost when the server ends
  list              print the bindings of a context; those of contexts end with `/`
  tree              print the bindings of a context and of all contexts below it
  bind, rebind      bind a name to an object; `rebind` replaces the object that it is bound to
  bind-context, rebind-context
                    bind a name to a context, such as that of another name server
  unbind            remove a binding
  new               make a context and bind a name to it; prints its reference
  resolve           print the reference that a name is bound to
  watch             print changes of names as they come; names of other servers are compared repeatedly
  prune             unbind names whose objects or contexts no longer exist or cannot be reached
  import            copy all names of another name server, or of one of its contexts
  backup            copy the store of a server that does not run (--store), or of one that runs (--control)
  shutdown          end a server that runs

  --at REFERENCE    the name server, or a context: IOR:, corbaloc:, corbaname: or @FILE
                    (corbaloc::1.2@127.0.0.1:2809/NameService)
  --timeout SECONDS give each call this time (30; for the objects that `prune` checks: 3)
  --dry-run         unbind nothing, and print what would be unbound
  --follow          prune the contexts of other servers too, to which names lead
  --interval SECONDS
                    time between two comparisons (1)
  --count N         end after N changes
  --from REFERENCE  the context whose names are copied to NAME
  --replace         bind names again that are bound to other objects
  --jobs N          make this number of calls at a time, 1 to 256 (16)
  --listen ADDRESS  tcp:HOST:PORT, unix:PATH or shm:PATH (tcp:127.0.0.1:2809)
  --publish ADDRESS the address in references, if it differs
  --store FILE      keep all names in this file
  --durability relaxed
                    acknowledge changes before they are on the disk, up to 100 ms earlier
  --read-only       refuse changes
  --allow-control USER,...
                    let processes of these users, given by number, copy, fill and end the server over its control socket
  --control PATH    the control socket (the store's path with `.control`)
  --ior-file FILE   write the reference to this file too
  --orb-config FILE the ORB's options, whose pool is `naming` (docs/configuration.md)
  --json            print one JSON object a line

OBJECT is IOR:, corbaloc:, corbaname:, @FILE, a file that holds one of them, or - for the standard input.

Exit status: 0 done, 1 not done, 2 wrong usage.
";

const NO_INTERVAL: &str = "an interval is a number of seconds";
const DEFAULT_JOBS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamingCommand {
    List,
    Tree,
    Bind,
    Rebind,
    BindContext,
    RebindContext,
    Unbind,
    New,
    Resolve,
    Watch,
    Prune,
    Import,
}

#[derive(Debug)]
struct NamingArguments {
    at: Option<String>,
    timeout: Option<Duration>,
    dry_run: bool,
    follow: bool,
    interval: Option<Duration>,
    count: Option<u64>,
    from: Option<String>,
    replace: bool,
    jobs: usize,
    allow_control: Vec<u32>,
    control: Option<PathBuf>,
    listen: Vec<String>,
    publish: Vec<String>,
    store: Option<PathBuf>,
    durability: Durability,
    read_only: bool,
    is_json: bool,
    ior_file: Option<PathBuf>,
    orb_config: Option<String>,
    words: Vec<String>,
}

pub(crate) fn command() -> Command {
    let on_server = |name: &'static str| {
        let command = arguments::command(name, USAGE).args([option("at", "REFERENCE"), option("timeout", "SECONDS")]);
        command.arg(arguments::positionals("NAME"))
    };
    let serve = arguments::command("serve", USAGE)
        .args([option("listen", "ADDRESS"), option("publish", "ADDRESS")].map(|one| one.action(ArgAction::Append)))
        .args([option("store", "FILE"), option("durability", "synced|relaxed"), flag("read-only")])
        .args([option("allow-control", "USER,..."), option("control", "PATH"), option("ior-file", "FILE")])
        .arg(option("orb-config", "FILE"))
        .arg(arguments::positionals("NAME").hide(true));
    let names = ["list", "tree", "bind", "rebind", "bind-context", "rebind-context", "unbind", "new", "resolve"];
    let watch = on_server("watch").args([option("interval", "SECONDS"), option("count", "N")]);
    let prune = on_server("prune").args([flag("dry-run"), flag("follow")]);
    let import = on_server("import").args([
        option("from", "REFERENCE"),
        flag("replace"),
        option("jobs", "N"),
        option("control", "PATH"),
    ]);
    let backup = arguments::command("backup", USAGE).args([
        option("store", "FILE"),
        option("control", "PATH"),
        arguments::positionals("COPY"),
    ]);
    let shutdown = arguments::command("shutdown", USAGE)
        .args([option("control", "PATH"), arguments::positionals("NAME").hide(true)]);
    let naming = arguments::command("naming", USAGE)
        .subcommand(serve)
        .subcommands(names.map(on_server))
        .subcommands([watch, prune, import, backup, shutdown])
        .mut_subcommands(|subcommand| subcommand.arg(flag("json")));
    arguments::with_descriptions(naming, USAGE)
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let (command, parsed) = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    let mut output = Output::new(out, parsed.is_json);
    let outcome = match action(&command) {
        Some(action) => client::run(action, &parsed, &mut output),
        None if command == "serve" => serve::run(&parsed, &mut output),
        None if command == "shutdown" => serve::shutdown(&parsed),
        None => serve::backup(&parsed, &mut output),
    };
    match outcome {
        Ok(()) => DONE,
        Err(reason) => {
            Output::new(out, parsed.is_json).last_line(|| format!("error: {reason}"), || json!({ "error": reason }));
            NOT_DONE
        }
    }
}

fn action(command: &str) -> Option<NamingCommand> {
    Some(match command {
        "list" => NamingCommand::List,
        "tree" => NamingCommand::Tree,
        "bind" => NamingCommand::Bind,
        "rebind" => NamingCommand::Rebind,
        "bind-context" => NamingCommand::BindContext,
        "rebind-context" => NamingCommand::RebindContext,
        "unbind" => NamingCommand::Unbind,
        "new" => NamingCommand::New,
        "resolve" => NamingCommand::Resolve,
        "watch" => NamingCommand::Watch,
        "prune" => NamingCommand::Prune,
        "import" => NamingCommand::Import,
        _ => return None,
    })
}

fn parse(words: impl Iterator<Item = OsString>) -> Result<(String, NamingArguments), Option<String>> {
    let mut words: Vec<OsString> = words.collect();
    let name = words.first().map(|word| excerpt(&word.to_string_lossy())).unwrap_or_default();
    let naming = command();
    if let Some(subcommand) = naming.find_subcommand(&name) {
        // A name may start with `-`, so only words that start with `--`, and `-h`, are options.
        let is_word = |word: &str, _| !word.starts_with("--") && word != "-h";
        let placed = arguments::move_positionals_last(subcommand, words.drain(1..), is_word);
        words.extend(placed);
    }
    let (name, parsed) = arguments::parse_subcommand("naming", naming, words).map_err(|refusal| match refusal {
        ArgumentRefusal::Unknown(word) => Some(format!("`naming {name}` has no option `{}`", excerpt(&word))),
        other => other.reason(),
    })?;
    let arguments = refine(&name, &parsed).map_err(Some)?;
    Ok((name, arguments))
}

fn refine(command: &str, parsed: &ArgMatches) -> Result<NamingArguments, String> {
    let action = action(command);
    let [is_serve, is_backup, is_shutdown] = ["serve", "backup", "shutdown"].map(|known| command == known);
    let values = |id: &str| parsed.try_get_many::<OsString>(id).ok().flatten().into_iter().flatten();
    let texts = |id: &str| values(id).map(|word| word.to_string_lossy().into_owned()).collect::<Vec<String>>();
    let flag = |id: &str| parsed.try_get_one::<bool>(id).ok().flatten().copied().unwrap_or_default();
    let one = |id: &str| texts(id).pop();
    let arguments = NamingArguments {
        at: texts("at").pop(),
        timeout: one("timeout").map(|text| seconds(&text, MIN_TIMEOUT_S, INVALID_TIMEOUT)).transpose()?,
        dry_run: flag("dry-run"),
        follow: flag("follow"),
        interval: one("interval").map(|text| seconds(&text, MIN_TIMEOUT_S, NO_INTERVAL)).transpose()?,
        count: one("count").map(|text| number(&text, 1..=u64::MAX)).transpose()?,
        from: one("from"),
        replace: flag("replace"),
        jobs: one("jobs").map_or(Ok(DEFAULT_JOBS), |text| number(&text, 1..=256).map(|jobs| jobs as usize))?,
        allow_control: one("allow-control").map_or(Ok(Vec::new()), |text| users(&text))?,
        control: values("control").last().map(PathBuf::from),
        listen: texts("listen"),
        publish: texts("publish"),
        store: values("store").next().map(PathBuf::from),
        durability: match texts("durability").pop().as_deref() {
            None | Some("synced") => Durability::Synced,
            Some("relaxed") => Durability::Relaxed,
            Some(other) => return Err(format!("`{}` is not a durability: synced or relaxed", excerpt(other))),
        },
        read_only: flag("read-only"),
        is_json: flag("json"),
        ior_file: values("ior-file").next().map(PathBuf::from),
        orb_config: one("orb-config"),
        words: texts(if is_backup { "COPY" } else { "NAME" }),
    };
    let expected = match action {
        Some(
            NamingCommand::List
            | NamingCommand::Tree
            | NamingCommand::Watch
            | NamingCommand::Prune
            | NamingCommand::Import,
        ) => 0..=1,
        Some(NamingCommand::Unbind | NamingCommand::New | NamingCommand::Resolve) => 1..=1,
        Some(_) => 2..=2,
        None if is_serve || is_shutdown => 0..=0,
        None => 1..=1,
    };
    if !expected.contains(&arguments.words.len()) {
        let count = arguments.words.len();
        let few_or_many = if count < *expected.start() { "too few" } else { "too many" };
        return Err(format!("`naming {command}` has {few_or_many} arguments"));
    }
    check(command, &arguments)?;
    Ok(arguments)
}

fn check(command: &str, parsed: &NamingArguments) -> Result<(), String> {
    let has_path = parsed.store.is_some() || parsed.control.is_some();
    let complaint = match command {
        "backup" if !has_path => "`naming backup` needs --store",
        "backup" if parsed.store.is_some() && parsed.control.is_some() => {
            "`naming backup` takes either --store or --control"
        }
        "shutdown" if parsed.control.is_none() => "`naming shutdown` needs --control",
        "import" if parsed.from.is_none() => "`naming import` needs --from",
        "serve" if !parsed.allow_control.is_empty() && !has_path => "`--allow-control` needs --store or --control",
        "serve" if parsed.allow_control.is_empty() && parsed.control.is_some() => "`--control` needs --allow-control",
        _ => return Ok(()),
    };
    Err(complaint.to_owned())
}

fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("`{}` is not a number from {} to {}", excerpt(text), range.start(), range.end()))
}

pub(crate) fn users(text: &str) -> Result<Vec<u32>, String> {
    let users = text.split(',').map(|user| user.parse().ok()).collect::<Option<_>>();
    users.ok_or_else(|| format!("`{}` is not a list of user numbers", excerpt(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WRONG_USAGE;

    fn refused(words: &[&str]) -> String {
        let mut out = Vec::new();
        assert_eq!(run(words.iter().map(OsString::from), &mut out), WRONG_USAGE, "{words:?}");
        String::from_utf8(out).unwrap().lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for (words, reason) in [
            (&[][..], "error: no command is given"),
            (&["what"], "error: there is no command `naming what`"),
            (&["bind", "a"], "error: `naming bind` has too few arguments"),
            (&["resolve", "a", "b"], "error: `naming resolve` has too many arguments"),
            (&["list", "--at"], "error: `--at` needs a value"),
            (&["list", "--dry-run"], "error: `naming list` has no option `--dry-run`"),
            (&["serve", "--at", "x"], "error: `naming serve` has no option `--at`"),
            (&["serve", "--durability", "x"], "error: `x` is not a durability: synced or relaxed"),
            (&["list", "--timeout", "0"], "error: a time-out is a number of seconds"),
            (&["backup", "copy"], "error: `naming backup` needs --store"),
            (
                &["backup", "--store", "a", "--control", "b", "c"],
                "error: `naming backup` takes either --store or --control",
            ),
            (&["shutdown"], "error: `naming shutdown` needs --control"),
            (&["shutdown", "--store", "a"], "error: `naming shutdown` has no option `--store`"),
            (&["import"], "error: `naming import` needs --from"),
            (&["import", "--from", "a", "--jobs", "0"], "error: `0` is not a number from 1 to 256"),
            (&["watch", "--interval", "x"], "error: an interval is a number of seconds"),
            (&["serve", "--allow-control", "0"], "error: `--allow-control` needs --store or --control"),
            (&["serve", "--control", "a"], "error: `--control` needs --allow-control"),
            (&["serve", "--allow-control", "root"], "error: `root` is not a list of user numbers"),
        ] {
            assert_eq!(refused(words), reason);
        }
    }
}
