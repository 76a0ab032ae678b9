//! The command `corelane cores calibrate`, which measures the execution times of jobs and the costs
//! of the machine.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use corelane::mapping::Operation;
use corelane::{ObjectRef, Orb};
use corelane_bench::machine_costs::MachineCosts;
use corelane_sched::allocation::Overheads;
use corelane_sched::task::Nanos;
use corelane_sched::task_file::{MachineDescription, TaskFile, toml};
use corelane_services::cores::admit_task;
use corelane_services::cores::protocol::tasks::AdmitError;
use corelane_services::cores::protocol::{Criticality, JobOverrun, JobRecord, TaskSpec, TaskTiming, TasksRef};
use corelane_sys::clock::Monotonic;
use serde_json::{Value as Json, json};

use super::top::Monitored;
use super::{CoresArguments, remote, report, write_file, write_table};
use crate::naming;
use crate::text::{excerpt, json_text, printable};

/// Default number of calls, and of measurements of each cost. With this number, the quantile of
/// 99.9 % is the second largest value.
const DEFAULT_COUNT: usize = 1_001;

/// Maximum number of calls, and of measurements of each cost.
pub(super) const MAX_COUNT: usize = 100_000;

const DEFAULT_SPAN: Nanos = 2_000_000_000;

/// Number of calls after which the records of their jobs are fetched.
const CALLS_IN_BATCH: usize = 100;
const RECORDS_IN_BATCH: u32 = 1_000;
/// The time for which the server records jobs, from the first call of a batch.
const BATCH_SPAN: Nanos = 10_000_000_000;
/// Maximum time for which the command waits for the record of a job whose reply has arrived.
const RECORD_WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// The task under which the calls run. Its share of a core is small, so that most servers have room
/// for it. A job that exceeds its execution time continues below all tasks
/// ([`JobOverrun::Demote`]).
const TIMING: TaskTiming =
    TaskTiming { execution: 1_000, period: 1_000_000, deadline: 1_000_000, jitter: 0, blocking: 0, min_distance: 0 };
const LEASE: Nanos = 3_600_000_000_000;

/// Measured times of one kind in nanoseconds, in ascending order.
struct SortedTimes(Vec<Nanos>);

impl SortedTimes {
    fn new(mut times: Vec<Nanos>) -> Self {
        times.sort_unstable();
        SortedTimes(times)
    }

    /// Returns the shortest time that at least `parts` thousandths of the times do not exceed; 0
    /// without times.
    fn quantile(&self, parts: usize) -> Nanos {
        let rank = (self.0.len() * parts).div_ceil(1_000).max(1);
        self.0.get(rank - 1).copied().unwrap_or(0)
    }

    fn max(&self) -> Nanos {
        self.quantile(1_000)
    }

    /// Returns minimum, median, quantiles of 99 % and 99.9 %, and maximum.
    fn figures(&self) -> [Nanos; 5] {
        [0, 500, 990, 999, 1_000].map(|parts| self.quantile(parts))
    }

    fn cells(&self) -> Vec<String> {
        std::iter::once(self.0.len().to_string()).chain(self.figures().map(microseconds)).collect()
    }

    fn json(&self) -> Json {
        let [min, median, p99, p999, max] = self.figures();
        json!({ "count": self.0.len(), "min_ns": min, "median_ns": median, "p99_ns": p99, "p99_9_ns": p999, "max_ns": max })
    }
}

/// The processor times of the jobs of one task or operation.
struct MeasuredJobs {
    name: String,
    times: SortedTimes,
    /// Number of jobs that the server has not recorded.
    missing: usize,
}

impl MeasuredJobs {
    /// Returns the proposed argument of `@wcet`: the longest measured time and a fifth of it,
    /// rounded up to microseconds.
    fn proposed_wcet_us(&self) -> u64 {
        let longest = self.times.max();
        longest.saturating_add(longest / 5).div_ceil(1_000).max(1)
    }
}

pub(super) fn run(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let count = arguments.count.unwrap_or(DEFAULT_COUNT);
    let jobs = match (&arguments.target, &arguments.operation) {
        (Some(target), Some(operation)) => vec![called(arguments, target, operation, count)?],
        _ if arguments.at.is_some() => observed(arguments)?,
        _ => Vec::new(),
    };
    let costs = MachineCosts::measure(count).map_err(|failure| failure.to_string())?;
    let report = CalibrationReport::new(jobs, costs);
    if let Some(file) = &arguments.machine {
        write_file(file, &report.machine_text())?;
    }
    let _ = if arguments.is_json { out.write_all(json_text(&report.json()).as_bytes()) } else { report.write(out) };
    Ok(true)
}

/// Lets a server record the jobs of its tasks for the time of `--for`. Returns the processor times
/// of each task's jobs.
fn observed(arguments: &CoresArguments) -> Result<Vec<MeasuredJobs>, String> {
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let tasks = remote::object(&orb, arguments)?;
    let before = Monitored::fetch(&tasks)?;
    let recording = report::record(&tasks, arguments.duration.unwrap_or(DEFAULT_SPAN))?;
    let after = Monitored::fetch(&tasks)?;
    let mut times: BTreeMap<u64, Vec<Nanos>> = BTreeMap::new();
    for job in &recording.jobs {
        times.entry(job.task).or_default().push(job.processor_time);
    }
    if times.is_empty() {
        return Err("no task of the server has run a job in this time".to_owned());
    }
    let measured = |(task, times): (u64, Vec<Nanos>)| {
        let record = after.tasks.iter().chain(&before.tasks).find(|record| record.task == task);
        let name = record.map_or_else(|| task.to_string(), |record| record.name.clone());
        MeasuredJobs { name, times: SortedTimes::new(times), missing: 0 }
    };
    Ok(times.into_iter().map(measured).collect())
}

/// Calls an operation without arguments as a task of a core pool, `count` times. Returns the
/// processor times that the server has recorded for these calls.
fn called(arguments: &CoresArguments, target: &str, operation: &str, count: usize) -> Result<MeasuredJobs, String> {
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let tasks = remote::object(&orb, arguments)?;
    let target = naming::object_of_word(&orb, target)?.ok_or("the target's reference is nil")?;
    let spec = TaskSpec {
        name: format!("calibrate-{}", std::process::id()),
        target: Some(target),
        operation: String::new(),
        timing: TIMING,
        importance: Criticality::Low,
        core: -1,
        lease: LEASE,
        overrun: JobOverrun::Demote,
    };
    let promise = admit_task(&tasks, &spec).map_err(|error| match error {
        AdmitError::Rejected(rejected) => printable(&rejected.reason),
        AdmitError::Pending(_) => "the server does not decide".to_owned(),
        AdmitError::System(exception) => remote::explain(&exception),
    })?;
    let made = match &promise.target {
        Some(target) => calls(&tasks, (target, operation), promise.task, count),
        None => Err("the server has not returned a reference to the task".to_owned()),
    };
    // If the withdrawal fails, the task ends with its lease.
    let _ = tasks.withdraw(promise.task, &promise.token);
    let times = made?;
    if times.is_empty() {
        return Err("the server has recorded no job".to_owned());
    }
    let missing = count - times.len();
    Ok(MeasuredJobs { name: operation.to_owned(), times: SortedTimes::new(times), missing })
}

/// Calls the operation `count` times, and returns the processor times of these calls that the
/// server has recorded under the task number `task`. There are fewer than `count` if records are
/// missing.
fn calls(
    tasks: &TasksRef,
    (target, operation): (&ObjectRef, &str),
    task: u64,
    count: usize,
) -> Result<Vec<Nanos>, String> {
    let explained = |exception| remote::explain(&exception);
    let called = Operation::new(operation);
    let (mut next, _) = tasks.recorded_jobs(u64::MAX, 0).map_err(explained)?;
    let mut times = Vec::with_capacity(count);
    let mut made = 0;
    while made < count {
        tasks.record_jobs(BATCH_SPAN).map_err(explained)?;
        let batch = CALLS_IN_BATCH.min(count - made);
        for _ in 0..batch {
            target
                .invoke(&called, &|_| Ok(()))
                .map_err(|exception| format!("`{}`: {exception}", excerpt(operation)))?;
        }
        made += batch;
        // A thread records its job after it has sent the reply, so a record may arrive later.
        let until = Monotonic::now() + RECORD_WAIT;
        let wanted = times.len() + batch;
        while times.len() < wanted {
            let (following, jobs) = tasks.recorded_jobs(next, RECORDS_IN_BATCH).map_err(explained)?;
            if jobs.is_empty() {
                if until.is_past() {
                    break;
                }
                std::thread::sleep(PAUSE);
                continue;
            }
            next = following;
            times.extend(jobs.iter().filter(|job| job.task == task).map(|job: &JobRecord| job.processor_time));
        }
    }
    times.truncate(count);
    Ok(times)
}

struct CalibrationReport {
    jobs: Vec<MeasuredJobs>,
    cores: usize,
    has_fixed_priorities: bool,
    /// Each cost with its name in the report and in JSON.
    costs: Vec<(&'static str, &'static str, SortedTimes)>,
    machine: MachineDescription,
}

impl CalibrationReport {
    fn new(jobs: Vec<MeasuredJobs>, costs: MachineCosts) -> Self {
        let MachineCosts { cores, has_fixed_priorities, .. } = costs;
        let timer = SortedTimes::new(costs.timer_latencies);
        let same_core = SortedTimes::new(costs.same_core_wake_up);
        let other_core = SortedTimes::new(costs.other_core_wake_up);
        let sleeping_move = SortedTimes::new(costs.sleeping_move);
        let overheads = Overheads {
            context_switch: same_core.quantile(999),
            hand_off: same_core.quantile(999).max(other_core.quantile(999)),
            release_jitter: timer.quantile(999),
            blocking: 0,
        };
        let number = u32::try_from(cores.len()).ok();
        let costs = vec![
            ("timer", "timer", timer),
            ("wake-up, same core", "same_core_wake_up", same_core),
            ("wake-up, other core", "other_core_wake_up", other_core),
            ("move of a sleeping thread", "sleeping_move", sleeping_move),
        ];
        let machine = MachineDescription { cores: number, overheads, ..MachineDescription::default() };
        CalibrationReport { jobs, cores: cores.len(), has_fixed_priorities, costs, machine }
    }

    /// Returns the costs as the table `[machine]` of a task file.
    fn machine_text(&self) -> String {
        toml::write(&TaskFile { machine: self.machine, tasks: Vec::new() })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let figures = ["min us", "median us", "p99 us", "p99.9 us", "max us"];
        let header = |words: &[&str]| -> Vec<String> { words.iter().map(|&word| word.to_owned()).collect() };
        if !self.jobs.is_empty() {
            let mut table = vec![header(&[&["processor time of", "jobs"], &figures[..], &["@wcet"]].concat())];
            for jobs in &self.jobs {
                let mut row = vec![printable(&jobs.name)];
                row.extend(jobs.times.cells());
                row.push(jobs.proposed_wcet_us().to_string());
                table.push(row);
            }
            write_table(out, &table)?;
            for jobs in self.jobs.iter().filter(|jobs| jobs.missing > 0) {
                let name = printable(&jobs.name);
                writeln!(
                    out,
                    "{name}: {} further calls were no jobs of the task, or have no record. A plain key, as in corbaloc:, \
                     leads calls past the task if it is bound to an object of another server",
                    jobs.missing
                )?;
            }
            writeln!(out)?;
        }
        let mut table = vec![header(&[&["cost", "times"], &figures[..]].concat())];
        for (name, _, times) in self.costs.iter().filter(|(.., times)| !times.0.is_empty()) {
            let mut row = vec![(*name).to_owned()];
            row.extend(times.cells());
            table.push(row);
        }
        write_table(out, &table)?;
        if self.cores < 2 {
            writeln!(out, "the process may use only one core, so wake-ups and moves between cores are not measured")?;
        }
        if !self.has_fixed_priorities {
            writeln!(out, "fixed priorities are not permitted, so the times are those of the ordinary class")?;
        }
        write!(out, "\n{}", self.machine_text().trim_end())?;
        writeln!(out)
    }

    fn json(&self) -> Json {
        let jobs = |jobs: &MeasuredJobs| {
            json!({
                "name": jobs.name,
                "processor_time": jobs.times.json(),
                "missing": jobs.missing,
                "wcet_us": jobs.proposed_wcet_us(),
            })
        };
        let measured = self.costs.iter().filter(|(.., times)| !times.0.is_empty());
        let costs = measured.map(|(_, name, times)| ((*name).to_owned(), times.json()));
        let overheads = &self.machine.overheads;
        json!({
            "schema": 1,
            "jobs": self.jobs.iter().map(jobs).collect::<Vec<_>>(),
            "costs": costs.collect::<serde_json::Map<_, _>>(),
            "fixed_priorities": self.has_fixed_priorities,
            "machine": {
                "cores": self.machine.cores,
                "context_switch_ns": overheads.context_switch,
                "hand_off_ns": overheads.hand_off,
                "release_jitter_ns": overheads.release_jitter,
            },
        })
    }
}

fn microseconds(time: Nanos) -> String {
    format!("{}.{:03}", time / 1_000, time % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_times_and_the_proposal_is_above_the_maximum() {
        let times = SortedTimes::new((1..=2_000).rev().collect());
        assert_eq!(times.figures(), [1, 1_000, 1_980, 1_998, 2_000]);
        assert_eq!(SortedTimes::new(Vec::new()).figures(), [0; 5]);
        let jobs =
            |times: &[Nanos]| MeasuredJobs { name: String::new(), times: SortedTimes::new(times.to_vec()), missing: 0 };
        let proposals = [&[10_000, 99_999][..], &[1], &[Nanos::MAX]].map(|times| jobs(times).proposed_wcet_us());
        assert_eq!(proposals, [120, 1, Nanos::MAX.div_ceil(1_000)]);
        // With the default count, the quantile of 99.9 % is not the maximum.
        let times = SortedTimes::new((0..DEFAULT_COUNT as u64).collect());
        assert!(times.quantile(999) < times.max());
    }

    #[test]
    fn costs_become_the_machine_of_a_task_file() {
        let costs = MachineCosts {
            cores: vec![0, 1],
            timer_latencies: vec![60_000, 50_000],
            same_core_wake_up: vec![5_000],
            other_core_wake_up: vec![9_000, 8_000],
            sleeping_move: vec![3_000],
            ..MachineCosts::default()
        };
        let report = CalibrationReport::new(Vec::new(), costs);
        let read = toml::read(&report.machine_text()).unwrap();
        let overheads = Overheads { context_switch: 5_000, hand_off: 9_000, release_jitter: 60_000, blocking: 0 };
        assert_eq!((read.machine.cores, read.machine.overheads), (Some(2), overheads));
    }
}
