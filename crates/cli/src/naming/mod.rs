//! `corelane naming`: a name server, and commands for any CORBA name server.

mod client;
mod control;
mod import;
mod prune;
mod serve;
mod walk;
mod watch;

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
                             [--read-only] [--allow-control USER,...] [--control PATH] [--ior-file FILE]
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
  watch             print changes of names as they come; other servers' names are compared again and again
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

OBJECT is IOR:, corbaloc:, corbaname: or @FILE, a file that holds one of them.

Exit status: 0 done, 1 not done, 2 wrong usage.
";

/// Number of calls that `import` makes at a time.
const DEFAULT_JOBS: usize = 16;

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
    Watch,
    Prune,
    Import,
}

#[derive(Debug)]
struct Arguments {
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
        None if command == "shutdown" => serve::shutdown(&parsed),
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
        "watch" => Action::Watch,
        "prune" => Action::Prune,
        "import" => Action::Import,
        _ => return None,
    })
}

fn parse(command: &str, words: impl Iterator<Item = OsString>) -> Result<Option<Arguments>, String> {
    let action = action(command);
    let [is_serve, is_backup, is_shutdown] = ["serve", "backup", "shutdown"].map(|known| command == known);
    if action.is_none() && !is_serve && !is_backup && !is_shutdown {
        return Err(match command {
            "" => "no command is given".to_owned(),
            other => format!("there is no command `naming {}`", excerpt(other)),
        });
    }
    let mut parsed = Arguments {
        at: None,
        timeout: None,
        dry_run: false,
        follow: false,
        interval: None,
        count: None,
        from: None,
        replace: false,
        jobs: DEFAULT_JOBS,
        allow_control: Vec::new(),
        control: None,
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
            "--timeout" if action.is_some() => parsed.timeout = Some(seconds(&value()?, "a time-out")?),
            "--dry-run" if action == Some(Action::Prune) => parsed.dry_run = true,
            "--follow" if action == Some(Action::Prune) => parsed.follow = true,
            "--interval" if action == Some(Action::Watch) => parsed.interval = Some(seconds(&value()?, "an interval")?),
            "--count" if action == Some(Action::Watch) => parsed.count = Some(number(&value()?, 1..=u64::MAX)?),
            "--from" if action == Some(Action::Import) => parsed.from = Some(value()?),
            "--replace" if action == Some(Action::Import) => parsed.replace = true,
            "--jobs" if action == Some(Action::Import) => parsed.jobs = number(&value()?, 1..=256)? as usize,
            "--control" if action == Some(Action::Import) || action.is_none() => parsed.control = Some(value()?.into()),
            "--allow-control" if is_serve => parsed.allow_control = users(&value()?)?,
            "--store" if is_serve || is_backup => parsed.store = Some(value()?.into()),
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
        Some(Action::List | Action::Tree | Action::Watch | Action::Prune | Action::Import) => 0..=1,
        Some(Action::Unbind | Action::New | Action::Resolve) => 1..=1,
        Some(_) => 2..=2,
        None if is_serve || is_shutdown => 0..=0,
        None => 1..=1,
    };
    if !expected.contains(&parsed.words.len()) {
        let count = parsed.words.len();
        let few_or_many = if count < *expected.start() { "too few" } else { "too many" };
        return Err(format!("`naming {command}` has {few_or_many} arguments"));
    }
    check(command, &parsed)?;
    Ok(Some(parsed))
}

/// Checks options that need each other.
fn check(command: &str, parsed: &Arguments) -> Result<(), String> {
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

fn seconds(text: &str, what: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("{what} is a number of seconds"))
}

fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("`{}` is not a number from {} to {}", excerpt(text), range.start(), range.end()))
}

fn users(text: &str) -> Result<Vec<u32>, String> {
    let users = text.split(',').map(|user| user.parse().ok()).collect::<Option<_>>();
    users.ok_or_else(|| format!("`{}` is not a list of user numbers", excerpt(text)))
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
