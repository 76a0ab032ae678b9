//! `corelane naming`: a name server, and commands for any CORBA name server.

mod client;
mod serve;
mod walk;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use corelane_services::store::Durability;

use crate::text::excerpt;
use crate::{DONE, NOT_DONE, WRONG_USAGE};

/// Help text of the command.
pub(crate) const USAGE: &str = "\
usage: corelane naming serve [--listen ADDRESS]... [--publish ADDRESS]... [--store FILE] [--durability synced|relaxed]
                             [--read-only] [--ior-file FILE]
       corelane naming list|tree [--at REFERENCE] [--timeout SECONDS] [NAME]
       corelane naming bind|rebind|bind-context|rebind-context [--at REFERENCE] [--timeout SECONDS] NAME OBJECT
       corelane naming unbind|new|resolve [--at REFERENCE] [--timeout SECONDS] NAME
       corelane naming prune [--dry-run] [--at REFERENCE] [--timeout SECONDS] [NAME]
       corelane naming backup --store FILE COPY

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
  prune             unbind names whose objects or contexts no longer exist or cannot be reached
  backup            copy the store of a server that does not run

  --at REFERENCE    the name server, or a context: IOR:, corbaloc:, corbaname: or @FILE
                    (corbaloc::1.2@127.0.0.1:2809/NameService)
  --timeout SECONDS give each call this time (30; for the objects that `prune` checks: 3)
  --dry-run         unbind nothing, and print what would be unbound
  --listen ADDRESS  tcp:HOST:PORT, unix:PATH or shm:PATH (tcp:127.0.0.1:2809)
  --publish ADDRESS the address in references, if it differs
  --store FILE      keep all names in this file
  --durability relaxed
                    acknowledge changes before they are on the disk, up to 100 ms earlier
  --read-only       refuse changes
  --ior-file FILE   write the reference to this file too

OBJECT is IOR:, corbaloc:, corbaname: or @FILE, a file that holds one of them.

Exit status: 0 done, 1 not done, 2 wrong usage.
";

/// A command that works on a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    List,
    Tree,
    Bind,
    Rebind,
    BindContext,
    RebindContext,
    Unbind,
    New,
    Resolve,
    Prune,
}

#[derive(Debug)]
struct Arguments {
    at: Option<String>,
    timeout: Option<Duration>,
    dry_run: bool,
    listen: Vec<String>,
    publish: Vec<String>,
    store: Option<PathBuf>,
    durability: Durability,
    read_only: bool,
    ior_file: Option<PathBuf>,
    words: Vec<String>,
}

/// Runs the command with the arguments after `corelane naming`.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let command = arguments.next().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if matches!(command.as_str(), "help" | "-h" | "--help") {
        let _ = out.write_all(USAGE.as_bytes());
        return DONE;
    }
    let parsed = match parse(&command, arguments) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => {
            let _ = out.write_all(USAGE.as_bytes());
            return DONE;
        }
        Err(reason) => {
            let _ = write!(out, "error: {reason}\n\n{USAGE}");
            return WRONG_USAGE;
        }
    };
    let outcome = match action(&command) {
        Some(action) => client::run(action, &parsed, out),
        None if command == "serve" => serve::run(&parsed, out),
        None => serve::backup(&parsed, out),
    };
    match outcome {
        Ok(()) => DONE,
        Err(reason) => {
            // Ignore errors: the reader may have closed the pipe.
            let _ = writeln!(out, "error: {reason}");
            NOT_DONE
        }
    }
}

fn action(command: &str) -> Option<Action> {
    Some(match command {
        "list" => Action::List,
        "tree" => Action::Tree,
        "bind" => Action::Bind,
        "rebind" => Action::Rebind,
        "bind-context" => Action::BindContext,
        "rebind-context" => Action::RebindContext,
        "unbind" => Action::Unbind,
        "new" => Action::New,
        "resolve" => Action::Resolve,
        "prune" => Action::Prune,
        _ => return None,
    })
}

fn parse(command: &str, words: impl Iterator<Item = OsString>) -> Result<Option<Arguments>, String> {
    let action = action(command);
    let (is_serve, is_backup) = (command == "serve", command == "backup");
    if action.is_none() && !is_serve && !is_backup {
        return Err(match command {
            "" => "no command is given".to_owned(),
            other => format!("there is no command `naming {}`", excerpt(other)),
        });
    }
    let mut parsed = Arguments {
        at: None,
        timeout: None,
        dry_run: false,
        listen: Vec::new(),
        publish: Vec::new(),
        store: None,
        durability: Durability::Synced,
        read_only: false,
        ior_file: None,
        words: Vec::new(),
    };
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        match word.as_str() {
            "-h" | "--help" => return Ok(None),
            "--at" if action.is_some() => parsed.at = Some(value()?),
            "--timeout" if action.is_some() => {
                let seconds = value()?.parse().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
                parsed.timeout = Some(Duration::from_secs_f64(seconds.ok_or("a time-out is a number of seconds")?));
            }
            "--dry-run" if action == Some(Action::Prune) => parsed.dry_run = true,
            "--store" if action.is_none() => parsed.store = Some(value()?.into()),
            "--listen" if is_serve => parsed.listen.push(value()?),
            "--publish" if is_serve => parsed.publish.push(value()?),
            "--read-only" if is_serve => parsed.read_only = true,
            "--ior-file" if is_serve => parsed.ior_file = Some(value()?.into()),
            "--durability" if is_serve => {
                parsed.durability = match value()?.as_str() {
                    "synced" => Durability::Synced,
                    "relaxed" => Durability::Relaxed,
                    other => return Err(format!("`{}` is not a durability: synced or relaxed", excerpt(other))),
                }
            }
            option if option.starts_with("--") => {
                return Err(format!("`naming {command}` has no option `{}`", excerpt(option)));
            }
            _ => parsed.words.push(word),
        }
    }
    let expected = match action {
        Some(Action::List | Action::Tree | Action::Prune) => 0..=1,
        Some(Action::Unbind | Action::New | Action::Resolve) => 1..=1,
        Some(_) => 2..=2,
        None if is_serve => 0..=0,
        None => 1..=1,
    };
    if !expected.contains(&parsed.words.len()) {
        let count = parsed.words.len();
        let few_or_many = if count < *expected.start() { "too few" } else { "too many" };
        return Err(format!("`naming {command}` has {few_or_many} arguments"));
    }
    if is_backup && parsed.store.is_none() {
        return Err("`naming backup` needs --store".to_owned());
    }
    Ok(Some(parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str]) -> String {
        let mut out = Vec::new();
        assert_eq!(run(words.iter().map(OsString::from), &mut out), WRONG_USAGE, "{words:?}");
        String::from_utf8(out).unwrap().lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
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
        ] {
            assert_eq!(refused(words), reason);
        }
    }
}
