//! The benchmark `cores-balance`, which measures the work of the kernel's load balancer while all
//! tasks are bound to one core (table I of the MC-ORB paper).
//!
//! The kernel's function profiler (tracefs) reports the number of attempts and their time. If the
//! profiler is not permitted, /proc/schedstat reports the number only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corelane_sched::generate::Workload;
use corelane_sched::task::Utilization;
use corelane_sys::clock;
use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder};

use super::label;
use crate::Failure;
use crate::harness::Progress;
use crate::options::{BenchOptions, Depth};
use crate::orb::servant::compute;
use crate::papers::cpu::rounds_for;
use crate::report::Report;
use crate::targets::cores::balance as goals;
use crate::testbed::require_fixed_priorities;
use crate::value::SingleValue;

const BENCH: &str = "cores-balance";

/// Number of tasks, and utilization of the core in percent. The paper has 100 percent in place of
/// 90, which would leave no time to other threads.
const SETS: [(usize, u64); 4] = [(10, 60), (30, 60), (10, 90), (30, 90)];

/// Names of the function that balances the load of cores, by version of the kernel.
const FUNCTIONS: [&str; 2] = ["sched_balance_rq", "load_balance"];

const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

const SCHEDSTAT: &str = "/proc/schedstat";

const PRIORITY: u8 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Attempts {
    count: u64,
    /// Total time of the attempts in microseconds; `None` if the source reports no times.
    time_us: Option<f64>,
}

#[derive(Debug)]
enum Source {
    Profiler(PathBuf, &'static str),
    Schedstat,
}

impl Source {
    /// Finds a source that this machine permits, and starts the profiler if it is the source.
    fn find() -> Result<Source, Failure> {
        for folder in FOLDERS.map(PathBuf::from) {
            let functions = fs::read_to_string(folder.join("available_filter_functions")).unwrap_or_default();
            let known = |name: &&str| functions.lines().any(|line| line == *name);
            if let Some(function) = FUNCTIONS.into_iter().find(|name| known(name))
                && fs::write(folder.join("set_ftrace_filter"), function).is_ok()
                && fs::write(folder.join("function_profile_enabled"), "1").is_ok()
            {
                return Ok(Source::Profiler(folder, function));
            }
        }
        match fs::read_to_string(SCHEDSTAT) {
            Ok(_) => Ok(Source::Schedstat),
            Err(error) => Err(Failure::new(format!(
                "neither the kernel's function profiler (tracefs) nor {SCHEDSTAT} is permitted here: {error}"
            ))),
        }
    }

    fn read(&self) -> Result<Attempts, Failure> {
        match self {
            Source::Profiler(folder, function) => profiled_in(&folder.join("trace_stat"), function),
            Source::Schedstat => {
                let text = fs::read_to_string(SCHEDSTAT).map_err(|error| Failure::new(error.to_string()))?;
                Ok(Attempts { count: balanced(&text), time_us: None })
            }
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Source::Profiler(folder, _) = self {
            // Errors are ignored, because the profiler was switched on through the same files.
            let _ = fs::write(folder.join("function_profile_enabled"), "0");
            let _ = fs::write(folder.join("set_ftrace_filter"), "");
        }
    }
}

fn profiled_in(folder: &Path, function: &str) -> Result<Attempts, Failure> {
    let files = fs::read_dir(folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    let mut sum = Attempts { count: 0, time_us: Some(0.0) };
    for file in files.flatten().filter(|file| file.file_name().to_string_lossy().starts_with("function")) {
        let text = fs::read_to_string(file.path()).map_err(|error| Failure::new(error.to_string()))?;
        let Attempts { count, time_us } = profiled(&text, function);
        sum = Attempts { count: sum.count + count, time_us: Some(sum.time_us.unwrap_or(0.0) + time_us.unwrap_or(0.0)) };
    }
    Ok(sum)
}

/// Parses the profile of one core: lines of function, number of calls and total time, such as
/// `sched_balance_rq  12  34.567 us  ...`.
fn profiled(text: &str, function: &str) -> Attempts {
    let line =
        text.lines().find_map(|line| line.trim_start().strip_prefix(function).filter(|rest| rest.starts_with(' ')));
    let mut words = line.unwrap_or("").split_whitespace();
    let count = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let time_us = words.next().and_then(|word| word.parse().ok());
    Attempts { count, time_us }
}

/// Returns the number of attempts to balance loads in /proc/schedstat: the first number of each of
/// the 3 kinds of idleness in the lines of scheduling domains. A kind has 8 numbers in versions 15
/// and 16, and 11 in version 17.
fn balanced(text: &str) -> u64 {
    let version: u32 = text.lines().find_map(|line| line.strip_prefix("version ")?.trim().parse().ok()).unwrap_or(0);
    let numbers = if version >= 17 { 11 } else { 8 };
    let domains = text.lines().filter(|line| line.starts_with("domain"));
    // The name and the mask of the domain precede the numbers; version 17 has the domain's kind
    // between the two.
    let skipped = if version >= 17 { 3 } else { 2 };
    let of_domain = |line: &str| -> u64 {
        let words: Vec<u64> = line.split_whitespace().skip(skipped).filter_map(|word| word.parse().ok()).collect();
        words.chunks(numbers).take(3).filter_map(|kind| kind.first()).sum()
    };
    domains.map(of_domain).sum()
}

pub(crate) fn balance(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let Some(source) = report.or_report_missing(BENCH, "kernel", Source::find())? else { return Ok(()) };
    if !require_fixed_priorities(BENCH, report)? {
        return Ok(());
    }
    let Some((core, _)) = super::core_pair(options) else {
        return report.add_missing(BENCH, "kernel", super::ONE_CORE);
    };
    let seconds = match options.depth {
        Depth::Quick => 5,
        Depth::Usual => 30,
        Depth::Full => 300,
    };
    let time =
        options.requested.count.map_or(Duration::from_secs(seconds), |count| Duration::from_millis(count as u64));
    let mut values = Vec::new();
    for (tasks, percent) in SETS {
        let config = format!("{tasks} tasks, utilization 0.{percent}");
        progress.show(&format!("{BENCH}: {config}"));
        let before = source.read()?;
        let began = clock::now();
        run_tasks(tasks, percent, core, time)?;
        let passed = began.elapsed();
        let after = source.read()?;
        values.extend(cell(&config, before, after, passed));
    }
    progress.clear();
    report.add_values(&format!("{BENCH}: the kernel's load balancer, all tasks bound to core {core}"), &values)
}

fn cell(config: &str, before: Attempts, after: Attempts, passed: Duration) -> Vec<SingleValue> {
    let count = after.count.saturating_sub(before.count);
    let value = |quantity: &str, value, unit, bound| SingleValue {
        label: label(BENCH, "kernel", "", config.to_owned()),
        quantity: quantity.to_owned(),
        value,
        unit,
        bound,
    };
    let mut values = vec![value("attempts to balance", count as f64, "", None)];
    if let (Some(before), Some(after)) = (before.time_us, after.time_us) {
        let time = (after - before).max(0.0);
        values.push(value("time of an attempt", time / count.max(1) as f64, "us", None));
        values.push(value("time of all attempts", time, "us", None));
        let share = time / (passed.as_secs_f64() * 1e6).max(1.0);
        values.push(value("share of the time, millionths", share * 1e6, "", Some(goals::MAX_SHARE_MILLIONTHS)));
    }
    values
}

fn run_tasks(tasks: usize, percent: u64, core: usize, time: Duration) -> Result<(), Failure> {
    let workload = Workload::one_group(Utilization(percent * (Utilization::ONE.0 / 100)), tasks);
    let rounds = f64::from(rounds_for(Duration::from_millis(10))) / 1e7;
    let begin = clock::now();
    let mut threads = Vec::with_capacity(tasks);
    for task in workload.tasks(0) {
        let (rounds, period) =
            ((task.timing.execution as f64 * rounds) as u32, Duration::from_nanos(task.timing.period));
        let builder = ThreadBuilder::new().name("bench/task").affinity(CpuSet::one(core));
        let thread = builder.scheduling(Scheduling::Fifo(PRIORITY)).spawn(move || {
            let mut due = begin;
            while due < begin + time {
                std::thread::sleep(due.remaining());
                std::hint::black_box(compute(std::hint::black_box(rounds)));
                due += period;
            }
        });
        threads.push(thread.map_err(|error| Failure::new(format!("a task cannot be started: {error}")))?);
    }
    let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| Failure::new("a task panicked")));
    joined.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_and_statistics_are_parsed() {
        let profile = "  Function                               Hit    Time            Avg             s^2\n  \
                       --------                               ---    ----            ---             ---\n  \
                       sched_balance_rq_other                   9    1.000 us        1.000 us        0.000 us\n  \
                       sched_balance_rq                        12    34.500 us       2.875 us        1.000 us\n";
        assert_eq!(profiled(profile, "sched_balance_rq"), Attempts { count: 12, time_us: Some(34.5) });
        assert_eq!(profiled(profile, "load_balance"), Attempts::default());
        let kinds = |first: u64| format!("{first} 1 1 1 1 1 1 1 ");
        let old = format!("version 15\ncpu0 1 2\ndomain0 3 {}{}{}9 9\ncpu1 1\n", kinds(5), kinds(7), kinds(11));
        assert_eq!(balanced(&old), 23);
        let kinds = |first: u64| format!("{first} 1 1 1 1 1 1 1 1 1 1 ");
        let new = format!("version 17\ndomain0 MC 3 {}{}{}9 9\n", kinds(5), kinds(7), kinds(11));
        assert_eq!(balanced(&new), 23);
        assert_eq!(balanced(""), 0);
    }

    #[test]
    fn the_share_has_a_goal_where_the_time_is_known() {
        let (none, some) = (Attempts { count: 5, time_us: None }, Attempts { count: 5, time_us: Some(2.0) });
        assert_eq!(cell("x", none, none, Duration::from_secs(1)).len(), 1);
        let values = cell("x", some, Attempts { count: 15, time_us: Some(12.0) }, Duration::from_secs(1));
        let numbers: Vec<f64> = values.iter().map(|value| value.value).collect();
        assert_eq!(numbers, [10.0, 1.0, 10.0, 10.0]);
        assert_eq!(values[3].bound, Some(goals::MAX_SHARE_MILLIONTHS));
    }
}
