//! The command `corelane cores`, which analyses and simulates periodic tasks on cores, and admits
//! them to a server.

mod analyse;
mod calibrate;
mod generate;
pub(crate) mod output;
mod picture;
mod remote;
mod report;
mod simulate;
mod top;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command};
use corelane::rt::{BestEffortShare, CorePoolMode};
use corelane_sched::allocation::{Discipline, Machine, Rejection, TaskSet, admit_all};
use corelane_sched::quantity::{parse_fraction, parse_time};
use corelane_sched::task::{Nanos, TaskId, Utilization};
use corelane_sched::task_file::{self, MAX_CORES_IN_FILE, MAX_FILE_BYTES, TaskFile};

use self::output::{milliseconds, write_file, write_table};
use crate::arguments::{self, ArgumentRefusal, flag, option};
use crate::text::excerpt;
use crate::{DONE, NOT_DONE};

pub(crate) const USAGE: &str = "\
usage: corelane cores analyse FILE [--cores N] [--discipline NAME] [--json] [--svg FILE] [--rt-app FILE]
       corelane cores simulate FILE [--cores N] [--discipline NAME] [--global] [--for TIME] [--seed N]
                               [--lose CORE@TIME] [--json] [--svg FILE]
       corelane cores generate --util U [--balance B | --tasks N] [--cores N] [--seed N]
       corelane cores serve [--listen ADDRESS] [--orb-config FILE] [--cores N] [--discipline NAME] [--enforce-rates]
                             [--best-effort BUDGET/PERIOD] [--mode NAME]
                            [--store FILE] [--task-ports FIRST]
       corelane cores admit FILE [--at REFERENCE] [--target REFERENCE] [--lease TIME] [--json]
       corelane cores withdraw TASK TOKEN [--at REFERENCE]
       corelane cores snapshot [--at REFERENCE] [--json]
       corelane cores top [--at REFERENCE] [--refresh TIME | --once [--json]]
       corelane cores report FILE [--at REFERENCE] [--for TIME]
       corelane cores calibrate [--at REFERENCE [--for TIME | --target REFERENCE --operation NAME]] [--count N] [--json]
                                [--machine FILE]

Decides whether periodic tasks keep their deadlines. FILE is a task file in TOML, or the JSON of rt-app; `-` is the standard
input (docs/task-allocation.md). `serve` admits the tasks of clients until SIGTERM or SIGINT, and runs their requests on the
cores of their tasks. Without the permission to do so, its promises are advisory, and it says so.

  analyse           give each task a core and a priority, and compute its worst-case response time
  simulate          run the tasks in virtual time, and report the longest response times and the missed deadlines
  generate          print a random task file: the workload of the MC-ORB paper, or N tasks in one group
  serve             admit tasks to the cores of this machine; prints the reference of the admission object
  admit             ask a server to admit the tasks of a file; prints a number and a token for each
  withdraw          end a task of a server
  snapshot          print the tasks and the cores of a server
  top               show the tasks and cores of a server again and again: the promised bounds beside the measured times
  report            record the jobs of a server, and write a page of HTML with a Gantt chart of its cores into FILE
  calibrate         measure the costs of this machine, and the processor times of an operation or of all tasks of a server

  --cores N         the machine has N cores (what the file says; else as many as the pinned tasks need)
  --discipline NAME fixed-priority, liu-layland or earliest-deadline-first (what the file says; else fixed-priority)
  --json            print JSON
  --svg FILE        draw response times, or the schedule, into this file
  --rt-app FILE     write the allocation for rt-app into this file
  --global          let every task run on every core, instead of the core that the allocation gives it
  --for TIME        simulate this long (ten times the longest period); report, calibrate: record this long (2s)
  --refresh TIME    the pause between two views (1s)
  --once            print one view and end
  --seed N          simulate: arrivals vary within the jitter; generate: another set (0)
  --lose CORE@TIME  the core stops at this time, such as 1@250ms
  --util U          the sum of the tasks' utilizations, such as 1.6
  --balance B       the second group has B times the 10 tasks of the first: 0.1 to 1 (0.5)
  --tasks N         one group of N tasks
  --listen ADDRESS  tcp:HOST:PORT, unix:PATH or shm:PATH (tcp:127.0.0.1:2810)
  --orb-config FILE the ORB's options, whose pool is `admission` (docs/configuration.md)
  --best-effort BUDGET/PERIOD
                    requests without a task get BUDGET of each core in each PERIOD, above all tasks; as in 2ms/20ms
  --mode NAME       bound: a thread of the core reads the connection of a task (default). manager: one thread reads all requests
                    and hands them over. leader-followers: the thread that reads a request runs it. no-affinity: the threads
                    of tasks run on every core, and the promises are advisory
  --enforce-rates   bound the requests of each task to its period and jitter: one early request waits, further ones are refused
  --store FILE      keep the promises in this file. After a restart each is held for its lease, and a client that renews it
                    keeps its task, core and reference
  --task-ports FIRST
                    the tasks' addresses have this port and those after it (free ports; with a store, those of before)
  --at REFERENCE    the admission object: IOR:, corbaloc:, corbaname: or @FILE
                    (corbaloc::1.2@127.0.0.1:2810/CorelaneTasks)
  --target REFERENCE
                    the object that the tasks call; prints a reference for each task; calibrate: the object to call
  --operation NAME  an operation without arguments, which is called N times as a task
  --count N         the number of calls, and of measurements of each cost (1001)
  --machine FILE    write the costs into this file, as the table [machine] of a task file
  --lease TIME      the time for which the promises hold (3600s)

Times are written as 250us, 3ms or 1s.

Exit status: 0 all deadlines are kept, 1 a deadline can be missed, or the file or the server cannot be used, 2 wrong usage.
";

/// Shortest pause between two views of `top`, because each view costs the server a request.
const MIN_REFRESH: Nanos = 50_000_000;
const MAX_GENERATED: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoresCommand {
    Analyse,
    Simulate,
    Generate,
    Serve,
    Admit,
    Withdraw,
    Snapshot,
    Top,
    Report,
    Calibrate,
}

/// The arguments of all subcommands. Arguments of other subcommands keep their defaults.
#[derive(Debug, Default)]
struct CoresArguments {
    file: Option<String>,
    cores: Option<u32>,
    discipline: Option<Discipline>,
    is_json: bool,
    svg: Option<String>,
    rt_app: Option<String>,
    is_global: bool,
    duration: Option<Nanos>,
    seed: Option<u64>,
    lost_core: Option<(usize, Nanos)>,
    utilization: Option<Utilization>,
    balance: Option<Utilization>,
    tasks: Option<usize>,
    listen: Option<String>,
    orb_config: Option<String>,
    enforces_rates: bool,
    best_effort: Option<BestEffortShare>,
    mode: CorePoolMode,
    store: Option<PathBuf>,
    task_ports: Option<u16>,
    at: Option<String>,
    target: Option<String>,
    lease: Option<Nanos>,
    refresh: Option<Nanos>,
    is_once: bool,
    operation: Option<String>,
    count: Option<usize>,
    machine: Option<String>,
    task: Option<(TaskId, [u8; 16])>,
}

pub(crate) fn command() -> Command {
    let file = || arguments::positional("FILE");
    let machine = || [option("cores", "N"), option("discipline", "NAME"), flag("json"), option("svg", "FILE")];
    let analyse = arguments::command("analyse", USAGE).arg(file()).args(machine()).arg(option("rt-app", "FILE"));
    let simulate = arguments::command("simulate", USAGE).arg(file()).args(machine());
    let simulate = simulate.args([flag("global"), option("for", "TIME"), option("seed", "N")]);
    let generate = arguments::command("generate", USAGE).args([option("util", "U"), option("balance", "B")]);
    let generate = generate.args([option("tasks", "N"), option("cores", "N"), option("seed", "N")]);
    let serve = arguments::command("serve", USAGE).args([
        option("listen", "ADDRESS"),
        option("orb-config", "FILE"),
        option("cores", "N"),
    ]);
    let serve =
        serve.args([option("discipline", "NAME"), flag("enforce-rates"), option("best-effort", "BUDGET/PERIOD")]);
    let serve = serve.arg(option("mode", "NAME"));
    let serve = serve.args([option("store", "FILE"), option("task-ports", "FIRST")]);
    let at = || option("at", "REFERENCE");
    let admit = arguments::command("admit", USAGE).arg(file()).args([at(), option("target", "REFERENCE")]);
    let admit = admit.args([option("lease", "TIME"), flag("json")]);
    let withdraw = arguments::command("withdraw", USAGE).arg(arguments::positional("TASK"));
    let withdraw = withdraw.args([arguments::positional("TOKEN"), at()]);
    let snapshot = arguments::command("snapshot", USAGE).args([at(), flag("json")]);
    let simulate = simulate.arg(option("lose", "CORE@TIME"));
    let top = arguments::command("top", USAGE).args([at(), option("refresh", "TIME"), flag("once"), flag("json")]);
    let report = arguments::command("report", USAGE).arg(file()).args([at(), option("for", "TIME")]);
    let calibrate = arguments::command("calibrate", USAGE).args([at(), option("for", "TIME"), flag("json")]);
    let calibrate = calibrate.args([option("target", "REFERENCE"), option("operation", "NAME")]);
    let calibrate = calibrate.args([option("count", "N"), option("machine", "FILE")]);
    let commands = [analyse, simulate, generate, serve, admit, withdraw, snapshot, top, report, calibrate];
    arguments::with_descriptions(arguments::command("cores", USAGE).subcommands(commands), USAGE)
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let (action, arguments) = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    let outcome = match action {
        CoresCommand::Analyse => analyse::run(&arguments, out),
        CoresCommand::Simulate => simulate::run(&arguments, out),
        CoresCommand::Generate => {
            let CoresArguments { utilization, balance, tasks, cores, seed, .. } = arguments;
            let (utilization, seed) = (utilization.unwrap_or_default(), seed.unwrap_or_default());
            generate::run(&generate::GenerateOptions { utilization, balance, tasks, cores, seed }, out)
        }
        CoresCommand::Serve => remote::serve(&arguments, out),
        CoresCommand::Admit => remote::admit(&arguments, out),
        CoresCommand::Withdraw => remote::withdraw(&arguments),
        CoresCommand::Snapshot => remote::snapshot(&arguments, out),
        CoresCommand::Top => top::run(&arguments, out),
        CoresCommand::Report => report::run(&arguments, out),
        CoresCommand::Calibrate => calibrate::run(&arguments, out),
    };
    match outcome {
        Ok(true) => DONE,
        Ok(false) => NOT_DONE,
        Err(reason) => {
            let _ = writeln!(out, "error: {reason}");
            NOT_DONE
        }
    }
}

fn parse(words: impl Iterator<Item = OsString>) -> Result<(CoresCommand, CoresArguments), Option<String>> {
    let parsed = arguments::parse_subcommand("cores", command(), words).map_err(ArgumentRefusal::subcommand_reason)?;
    refine(&parsed.0, &parsed.1).map_err(Some)
}

fn refine(command: &str, parsed: &ArgMatches) -> Result<(CoresCommand, CoresArguments), String> {
    let action = match command {
        "analyse" => CoresCommand::Analyse,
        "simulate" => CoresCommand::Simulate,
        "serve" => CoresCommand::Serve,
        "admit" => CoresCommand::Admit,
        "withdraw" => CoresCommand::Withdraw,
        "snapshot" => CoresCommand::Snapshot,
        "top" => CoresCommand::Top,
        "report" => CoresCommand::Report,
        "calibrate" => CoresCommand::Calibrate,
        _ => CoresCommand::Generate,
    };
    // An option that the subcommand does not have is treated as absent.
    let text = |id: &str| parsed.try_get_one::<OsString>(id).ok()?.map(|word| word.to_string_lossy().into_owned());
    let flag = |id: &str| parsed.try_get_one::<bool>(id).ok().flatten().copied().unwrap_or_default();
    let discipline = |name: String| {
        let known = task_file::toml::parse_discipline(&name);
        known.ok_or_else(|| format!("there is no discipline `{}`", excerpt(&name)))
    };
    let number_of =
        |id: &str, least, most| text(id).map(|text| number::<u64>(&format!("--{id}"), &text, least, most)).transpose();
    let fraction_of = |id: &str| text(id).map(|text| fraction(&format!("--{id}"), &text)).transpose();
    let arguments = CoresArguments {
        file: text("FILE"),
        cores: number_of("cores", 1, MAX_CORES_IN_FILE.into())?.and_then(|cores| cores.try_into().ok()),
        discipline: text("discipline").map(discipline).transpose()?,
        is_json: flag("json"),
        svg: text("svg"),
        rt_app: text("rt-app"),
        is_global: flag("global"),
        duration: text("for").map(|text| time("--for", &text)).transpose()?,
        seed: number_of("seed", 0, u64::MAX)?,
        lost_core: text("lose").map(|text| lost_core(&text)).transpose()?,
        utilization: fraction_of("util")?,
        balance: fraction_of("balance")?,
        tasks: number_of("tasks", 1, MAX_GENERATED as u64)?.and_then(|tasks| tasks.try_into().ok()),
        listen: text("listen"),
        orb_config: text("orb-config"),
        enforces_rates: flag("enforce-rates"),
        best_effort: text("best-effort").map(|text| best_effort(&text)).transpose()?,
        mode: text("mode").map(|text| mode(&text)).transpose()?.unwrap_or_default(),
        store: parsed.try_get_one::<OsString>("store").ok().flatten().map(PathBuf::from),
        task_ports: number_of("task-ports", 1, remote::MAX_FIRST_PORT.into())?.and_then(|port| port.try_into().ok()),
        at: text("at"),
        target: text("target"),
        lease: text("lease").map(|text| time("--lease", &text)).transpose()?,
        refresh: text("refresh").map(|text| time("--refresh", &text)).transpose()?,
        is_once: flag("once"),
        operation: text("operation"),
        count: number_of("count", 1, calibrate::MAX_COUNT as u64)?.and_then(|count| count.try_into().ok()),
        machine: text("machine"),
        task: text("TASK").zip(text("TOKEN")).and_then(|(task, token)| remote::task_and_token(&task, &token)),
    };
    match action {
        CoresCommand::Generate if arguments.utilization.is_none() => Err("`--util` is missing".to_owned()),
        CoresCommand::Generate if arguments.balance.is_some() && arguments.tasks.is_some() => {
            Err("`--balance` and `--tasks` exclude each other".to_owned())
        }
        CoresCommand::Withdraw if arguments.task.is_none() => {
            Err("`withdraw` needs the number of a task, and its token of 32 hexadecimal digits".to_owned())
        }
        CoresCommand::Analyse | CoresCommand::Simulate | CoresCommand::Admit if arguments.file.is_none() => {
            Err("no task file is given".to_owned())
        }
        CoresCommand::Report if arguments.file.is_none() => Err("no file for the report is given".to_owned()),
        CoresCommand::Calibrate if arguments.target.is_some() != arguments.operation.is_some() => {
            Err("`--target` and `--operation` need each other".to_owned())
        }
        CoresCommand::Calibrate if arguments.duration.is_some() && arguments.target.is_some() => {
            Err("`--for` and `--target` exclude each other".to_owned())
        }
        CoresCommand::Calibrate if arguments.duration.is_some() && arguments.at.is_none() => {
            Err("`--for` needs `--at`".to_owned())
        }
        CoresCommand::Top if arguments.is_json && !arguments.is_once => Err("`--json` needs `--once`".to_owned()),
        CoresCommand::Top if arguments.is_once && arguments.refresh.is_some() => {
            Err("`--once` and `--refresh` exclude each other".to_owned())
        }
        CoresCommand::Top if arguments.refresh.is_some_and(|pause| pause < MIN_REFRESH) => {
            Err("`--refresh` needs at least 50ms".to_owned())
        }
        _ => Ok((action, arguments)),
    }
}

fn number<T: TryFrom<u64>>(option: &str, text: &str, least: u64, most: u64) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("`{option}` needs a number from {least} to {most}, not `{}`", excerpt(text)))
}

fn time(option: &str, text: &str) -> Result<Nanos, String> {
    parse_time(text).map_err(|error| format!("`{option} {}`: {error}", excerpt(text)))
}

fn fraction(option: &str, text: &str) -> Result<Utilization, String> {
    parse_fraction(text).map_err(|error| format!("`{option} {}`: {error}", excerpt(text)))
}

fn best_effort(text: &str) -> Result<BestEffortShare, String> {
    let malformed = || format!("`--best-effort {}`: this is no BUDGET/PERIOD, such as 2ms/20ms", excerpt(text));
    let (budget, period) = text.split_once('/').ok_or_else(malformed)?;
    let time = |text: &str| Ok::<_, String>(Duration::from_nanos(time("--best-effort", text)?));
    Ok(BestEffortShare::new(time(budget)?, time(period)?))
}

fn mode(name: &str) -> Result<CorePoolMode, String> {
    Ok(match name {
        "bound" => CorePoolMode::Bound,
        "manager" => CorePoolMode::Manager,
        "leader-followers" => CorePoolMode::LeaderFollowers,
        "no-affinity" => CorePoolMode::NoAffinity,
        _ => return Err(format!("there is no mode `{}`", excerpt(name))),
    })
}

fn lost_core(text: &str) -> Result<(usize, Nanos), String> {
    let (core, at) = text.split_once('@').ok_or_else(|| format!("`--lose {}`: expected CORE@TIME", excerpt(text)))?;
    Ok((number("--lose", core, 0, u64::from(MAX_CORES_IN_FILE))?, time("--lose", at)?))
}

/// A task file, its machine as changed by the options, and the assignment of its tasks to cores.
struct AllocatedSystem {
    file: TaskFile,
    machine: Machine,
    /// The admitted tasks, and the rejected tasks on the core that their rejection names.
    set: TaskSet,
    rejections: Vec<Rejection>,
}

impl AllocatedSystem {
    fn read(arguments: &CoresArguments) -> Result<AllocatedSystem, String> {
        let mut file = read_task_file(arguments)?;
        file.machine.cores = arguments.cores.or(file.machine.cores);
        file.machine.discipline = arguments.discipline.or(file.machine.discipline);
        let machine = file.machine.machine(&file.tasks);
        let (mut set, rejections) = admit_all(&machine, file.tasks.iter().map(|named| &named.task));
        for rejection in &rejections {
            let task = file.tasks.iter().find(|named| named.task.id == rejection.task);
            if let (Some(named), Some(core)) = (task, rejection.core) {
                set.insert(named.task, core);
            }
        }
        Ok(AllocatedSystem { file, machine, set, rejections })
    }
}

fn read_task_file(arguments: &CoresArguments) -> Result<TaskFile, String> {
    let name = arguments.file.as_deref().unwrap_or("-");
    let text = read_text(name).map_err(|error| format!("{}: {error}", excerpt(name)))?;
    let is_json = text.trim_start().starts_with('{');
    let read = if is_json { task_file::rt_app::read(&text) } else { task_file::toml::read(&text) };
    let file = read.map_err(|error| format!("{}: {error}", excerpt(name)))?;
    if file.tasks.is_empty() {
        return Err(format!("{}: the file has no task", excerpt(name)));
    }
    Ok(file)
}

/// Reads a file, or the standard input for `-`, up to one byte beyond [`MAX_FILE_BYTES`]. The
/// parser of task files refuses a text of this length.
fn read_text(name: &str) -> io::Result<String> {
    let mut text = String::new();
    let most = MAX_FILE_BYTES as u64 + 1;
    match name {
        "-" => io::stdin().lock().take(most).read_to_string(&mut text)?,
        _ => File::open(name)?.take(most).read_to_string(&mut text)?,
    };
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<CoresArguments, Option<String>> {
        parse(words.split_whitespace().map(OsString::from)).map(|parsed| parsed.1)
    }

    #[test]
    fn subcommand_refuses_options_of_other_subcommands() {
        let arguments = parsed("simulate f --lose 1@250ms --for 2s --seed 7 --global").expect("right");
        assert_eq!(arguments.lost_core, Some((1, 250_000_000)));
        assert_eq!((arguments.duration, arguments.seed, arguments.is_global), (Some(2_000_000_000), Some(7), true));
        for wrong in [
            "analyse f --global",
            "analyse f --seed 1",
            "analyse",
            "analyse f g",
            "analyse f --cores 0",
            "analyse f --cores 1025",
            "analyse f --discipline round-robin",
            "simulate f --lose 1",
            "simulate f --lose x@1ms",
            "simulate f --for 3",
            "generate --util",
            "generate --tasks 3",
            "generate --util 1.6 --tasks 3 --balance 0.1",
            "generate --util 1.6 f",
            "serve f",
            "serve --cores 0",
            "serve --mode fast",
            "admit f --mode manager",
            "admit f --enforce-rates",
            "serve --task-ports 65520",
            "admit",
            "admit f --lease 3",
            "withdraw 1",
            "withdraw 1 00",
            "snapshot f",
            "top --json",
            "top --once --refresh 1s",
            "top --refresh 10ms",
            "top f",
            "report",
            "report f --json",
            "calibrate f",
            "calibrate --count 0",
            "calibrate --target t",
            "calibrate --operation o",
            "calibrate --at a --target t --operation o --for 1s",
            "calibrate --for 1s",
        ] {
            assert!(matches!(parsed(wrong), Err(Some(_))), "{wrong}");
        }
    }
}
