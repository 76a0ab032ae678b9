//! `corelane cores`: whether periodic tasks keep their deadlines on the cores of a machine.

mod analyse;
mod generate;
mod picture;
mod simulate;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};

use corelane_sched::allocation::{Discipline, Machine, Rejection, TaskSet, admit_all};
use corelane_sched::quantity::{parse_fraction, parse_time};
use corelane_sched::task::{Nanos, Utilization};
use corelane_sched::task_file::{self, MAX_BYTES, MAX_CORES, TaskFile};

use crate::text::excerpt;
use crate::{DONE, NOT_DONE, WRONG_USAGE};

/// Text of `corelane help cores`.
pub(crate) const USAGE: &str = "\
usage: corelane cores analyse FILE [--cores N] [--discipline NAME] [--json] [--svg FILE] [--rt-app FILE]
       corelane cores simulate FILE [--cores N] [--discipline NAME] [--global] [--for TIME] [--seed N]
                               [--lose CORE@TIME] [--json] [--svg FILE]
       corelane cores generate --util U [--balance B | --tasks N] [--cores N] [--seed N]

Decides whether periodic tasks keep their deadlines. FILE is a task file in TOML, or the JSON of rt-app; `-` is the standard
input (docs/task-allocation.md).

  analyse           give each task a core and a priority, and compute its worst-case response time
  simulate          run the tasks in virtual time, and report the longest response times and the missed deadlines
  generate          print a random task file: the workload of the MC-ORB paper, or N tasks in one group

  --cores N         the machine has N cores (what the file says; else as many as the pinned tasks need)
  --discipline NAME fixed-priority, liu-layland or earliest-deadline-first (what the file says; else fixed-priority)
  --json            print JSON
  --svg FILE        draw response times, or the schedule, into this file
  --rt-app FILE     write the allocation for rt-app into this file
  --global          let every task run on every core, instead of the core that the allocation gives it
  --for TIME        simulate this long (ten times the longest period)
  --seed N          simulate: arrivals vary within the jitter; generate: another set (0)
  --lose CORE@TIME  the core stops at this time, such as 1@250ms
  --util U          the sum of the tasks' utilizations, such as 1.6
  --balance B       the second group has B times the 10 tasks of the first: 0.1 to 1 (0.5)
  --tasks N         one group of N tasks

Times are written as 250us, 3ms or 1s.

Exit status: 0 all deadlines are kept, 1 a deadline can be missed or the file cannot be read, 2 wrong usage.
";

/// The most tasks that `generate` makes.
const MAX_GENERATED: usize = 1_000;

/// The subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Analyse,
    Simulate,
    Generate,
}

/// The options and the file.
#[derive(Debug, Default)]
struct Arguments {
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
}

/// Runs the command with the arguments behind `corelane cores`.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let command = arguments.next().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let parsed = match command.as_str() {
        "help" | "-h" | "--help" => Ok(None),
        "analyse" => parse(Action::Analyse, arguments),
        "simulate" => parse(Action::Simulate, arguments),
        "generate" => parse(Action::Generate, arguments),
        "" => Err("no command is given".to_owned()),
        other => Err(format!("there is no command `cores {}`", excerpt(other))),
    };
    let outcome = match parsed {
        Ok(Some((Action::Analyse, arguments))) => analyse::run(&arguments, out),
        Ok(Some((Action::Simulate, arguments))) => simulate::run(&arguments, out),
        Ok(Some((Action::Generate, arguments))) => generate::run(&arguments, out),
        Ok(None) => {
            // A closed pipe is the reader's choice, here and below.
            let _ = out.write_all(USAGE.as_bytes());
            return DONE;
        }
        Err(reason) => {
            let _ = write!(out, "error: {reason}\n\n{USAGE}");
            return WRONG_USAGE;
        }
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

/// Parses the words behind the subcommand. `None`: help is asked for.
fn parse(action: Action, words: impl Iterator<Item = OsString>) -> Result<Option<(Action, Arguments)>, String> {
    let mut parsed = Arguments::default();
    let (has_file, is_analyse) = (action != Action::Generate, action == Action::Analyse);
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        match word.as_str() {
            "-h" | "--help" => return Ok(None),
            "--cores" => parsed.cores = Some(number(&word, &value()?, 1, u64::from(MAX_CORES))?),
            "--seed" if !is_analyse => parsed.seed = Some(number(&word, &value()?, 0, u64::MAX)?),
            "--discipline" if has_file => {
                let name = value()?;
                let discipline = task_file::toml::discipline(&name);
                parsed.discipline =
                    Some(discipline.ok_or_else(|| format!("there is no discipline `{}`", excerpt(&name)))?);
            }
            "--json" if has_file => parsed.is_json = true,
            "--svg" if has_file => parsed.svg = Some(value()?),
            "--rt-app" if is_analyse => parsed.rt_app = Some(value()?),
            "--global" if action == Action::Simulate => parsed.is_global = true,
            "--for" if action == Action::Simulate => parsed.duration = Some(time(&word, &value()?)?),
            "--lose" if action == Action::Simulate => parsed.lost_core = Some(lost_core(&value()?)?),
            "--util" if !has_file => parsed.utilization = Some(fraction(&word, &value()?)?),
            "--balance" if !has_file => parsed.balance = Some(fraction(&word, &value()?)?),
            "--tasks" if !has_file => {
                parsed.tasks = Some(number(&word, &value()?, 1, MAX_GENERATED as u64)?);
            }
            option if option.starts_with("--") => return Err(format!("there is no option `{}` here", excerpt(option))),
            _ if has_file && parsed.file.is_none() => parsed.file = Some(word),
            other => return Err(format!("`{}` is one argument too many", excerpt(other))),
        }
    }
    match action {
        Action::Generate if parsed.utilization.is_none() => Err("`--util` is missing".to_owned()),
        Action::Generate if parsed.balance.is_some() && parsed.tasks.is_some() => {
            Err("`--balance` and `--tasks` exclude each other".to_owned())
        }
        Action::Analyse | Action::Simulate if parsed.file.is_none() => Err("no task file is given".to_owned()),
        _ => Ok(Some((action, parsed))),
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

fn lost_core(text: &str) -> Result<(usize, Nanos), String> {
    let (core, at) = text.split_once('@').ok_or_else(|| format!("`--lose {}`: expected CORE@TIME", excerpt(text)))?;
    Ok((number("--lose", core, 0, u64::from(MAX_CORES))?, time("--lose", at)?))
}

/// A task file with the machine that the options make of it, and its tasks on cores.
struct System {
    file: TaskFile,
    machine: Machine,
    /// The tasks that were admitted, and the rejected ones on the core with the most room.
    set: TaskSet,
    rejections: Vec<Rejection>,
}

impl System {
    /// Reads the task file and gives each task a core.
    fn read(arguments: &Arguments) -> Result<System, String> {
        let name = arguments.file.as_deref().unwrap_or("-");
        let text = read_text(name).map_err(|error| format!("{}: {error}", excerpt(name)))?;
        let is_json = text.trim_start().starts_with('{');
        let read = if is_json { task_file::rt_app::read(&text) } else { task_file::toml::read(&text) };
        let mut file = read.map_err(|error| format!("{}: {error}", excerpt(name)))?;
        if file.tasks.is_empty() {
            return Err(format!("{}: the file has no task", excerpt(name)));
        }
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
        Ok(System { file, machine, set, rejections })
    }
}

/// Reads a file, or the standard input for `-`, up to a byte beyond [`MAX_BYTES`]: then the reader of task files refuses it.
fn read_text(name: &str) -> io::Result<String> {
    let mut text = String::new();
    let most = MAX_BYTES as u64 + 1;
    match name {
        "-" => io::stdin().lock().take(most).read_to_string(&mut text)?,
        _ => File::open(name)?.take(most).read_to_string(&mut text)?,
    };
    Ok(text)
}

fn write_file(name: &str, text: &str) -> Result<(), String> {
    std::fs::write(name, text).map_err(|error| format!("{}: {error}", excerpt(name)))
}

/// Returns a time in milliseconds, to the microsecond, rounded up.
fn milliseconds(time: Nanos) -> String {
    let micros = time.div_ceil(1_000);
    format!("{}.{:03}", micros / 1_000, micros % 1_000)
}

/// Writes rows in columns. The first column is aligned to the left, the others to the right.
fn write_table(out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(action: Action, words: &str) -> Result<Arguments, String> {
        parse(action, words.split_whitespace().map(OsString::from)).map(|parsed| parsed.expect("no help").1)
    }

    #[test]
    fn options_belong_to_their_subcommand() {
        let arguments = parsed(Action::Simulate, "f --lose 1@250ms --for 2s --seed 7 --global").expect("right");
        assert_eq!(arguments.lost_core, Some((1, 250_000_000)));
        assert_eq!((arguments.duration, arguments.seed, arguments.is_global), (Some(2_000_000_000), Some(7), true));
        for (action, wrong) in [
            (Action::Analyse, "f --global"),
            (Action::Analyse, "f --seed 1"),
            (Action::Analyse, ""),
            (Action::Analyse, "f g"),
            (Action::Analyse, "f --cores 0"),
            (Action::Analyse, "f --cores 1025"),
            (Action::Analyse, "f --discipline round-robin"),
            (Action::Simulate, "f --lose 1"),
            (Action::Simulate, "f --lose x@1ms"),
            (Action::Simulate, "f --for 3"),
            (Action::Generate, "--util"),
            (Action::Generate, "--tasks 3"),
            (Action::Generate, "--util 1.6 --tasks 3 --balance 0.1"),
            (Action::Generate, "--util 1.6 f"),
        ] {
            assert!(parsed(action, wrong).is_err(), "{action:?} {wrong}");
        }
    }

    #[test]
    fn times_are_rounded_up_to_microseconds() {
        assert_eq!(milliseconds(0), "0.000");
        assert_eq!(milliseconds(1), "0.001");
        assert_eq!(milliseconds(20_500_000), "20.500");
    }
}
