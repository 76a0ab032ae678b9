//! The command `corelane cores top`, which shows the tasks and cores of a server with the bounds of
//! their promises beside the measured times.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use corelane::{Orb, SystemExceptionKind as Kind};
use corelane_sched::task::Utilization;
use corelane_services::cores::protocol::{
    BestEffortUse, CoreRecords, Counts, Measurements, TaskMeasurement, TaskRecord, TaskRecords, TasksRef,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::{poll, signal};
use serde_json::{Value as Json, json};

use super::{CoresArguments, milliseconds, remote, write_table};
use crate::text::{json_text, printable};

const DEFAULT_REFRESH: Duration = Duration::from_secs(1);
/// Sequence that moves the cursor of a terminal to the top left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(super) struct Monitored {
    pub(super) tasks: TaskRecords,
    pub(super) cores: CoreRecords,
    pub(super) counts: Counts,
    pub(super) measured: Measurements,
    received_at: Monotonic,
}

impl Monitored {
    pub(super) fn fetch(tasks: &TasksRef) -> Result<Self, String> {
        let (tasks, cores, counts, measured) = tasks.monitor().map_err(|exception| match exception.kind() {
            Kind::BadOperation => format!("{exception}: the server is older than this command"),
            // The results of an older server lack members at their end.
            Kind::Marshal => format!("{exception}: the server may be older than this command"),
            _ => remote::explain(&exception),
        })?;
        Ok(Monitored { tasks, cores, counts, measured, received_at: Monotonic::now() })
    }

    fn measurement(&self, task: &TaskRecord) -> Option<&TaskMeasurement> {
        self.measured.tasks.iter().find(|measured| measured.task == task.task)
    }
}

/// Returns true if a job took longer than the promised response time.
fn is_over_bound(task: &TaskRecord, measured: &TaskMeasurement) -> bool {
    task.response != 0 && measured.longest > task.response
}

/// Prints the state of a server once, or until a termination signal arrives or the reader closes
/// the pipe.
pub(super) fn run(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let tasks = remote::object(&orb, arguments)?;
    let first = Monitored::fetch(&tasks)?;
    if arguments.is_once {
        let _ = if arguments.is_json {
            out.write_all(json_text(&as_json(&first)).as_bytes())
        } else {
            out.write_all(as_text(&first, None).as_bytes())
        };
        return Ok(true);
    }
    let termination = signal::termination().map_err(|error| error.to_string())?;
    let refresh = arguments.refresh.map_or(DEFAULT_REFRESH, Duration::from_nanos);
    // A pipe gets one view after another, each followed by an empty line.
    let (before, after) = if io::stdout().is_terminal() { (CLEAR, "") } else { ("", "\n") };
    let mut earlier: Option<Monitored> = None;
    let mut shown = first;
    loop {
        let view = format!("{before}{}{after}", as_text(&shown, earlier.as_ref()));
        // The reader may have closed the pipe, which ends the command.
        if out.write_all(view.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(true);
        }
        let until = Monotonic::now() + refresh;
        if poll::wait_readable(termination.as_fd(), Some(until)).map_err(|error| error.to_string())? {
            return Ok(true);
        }
        earlier = Some(std::mem::replace(&mut shown, Monitored::fetch(&tasks)?));
    }
}

/// Returns for each core the measured time of jobs between two states, as a share of the time
/// between the states. The jobs of a task count for the core that the task has in the later state.
fn measured_use(earlier: &Monitored, now: &Monitored) -> HashMap<i32, f64> {
    let elapsed = (now.received_at - earlier.received_at).as_nanos().max(1) as f64;
    let total = |measured: &TaskMeasurement| u128::from(measured.mean) * u128::from(measured.jobs);
    let mut used = HashMap::new();
    for task in &now.tasks {
        let Some(measured) = now.measurement(task) else { continue };
        let before = earlier.measured.tasks.iter().find(|before| before.task == task.task).map_or(0, total);
        *used.entry(task.core).or_default() += total(measured).saturating_sub(before) as f64 / elapsed;
    }
    used
}

fn as_text(now: &Monitored, earlier: Option<&Monitored>) -> String {
    let mut text = Vec::new();
    let _ = write_view(&mut text, now, earlier);
    String::from_utf8_lossy(&text).into_owned()
}

fn write_view(out: &mut dyn Write, now: &Monitored, earlier: Option<&Monitored>) -> io::Result<()> {
    let used = earlier.map(|earlier| measured_use(earlier, now));
    let mut table =
        vec![["core", "promised", "best effort", "capacity", "jobs' share", "tasks"].map(str::to_owned).to_vec()];
    for core in &now.cores {
        let number = i32::try_from(core.core).unwrap_or(-1);
        let tasks = now.tasks.iter().filter(|task| task.core == number).count();
        let share = used.as_ref().map(|used| used.get(&number).copied().unwrap_or(0.0));
        table.push(vec![
            core.core.to_string(),
            Utilization(core.used).to_string(),
            Utilization(core.reserved).to_string(),
            Utilization(core.capacity).to_string(),
            share.map_or_else(|| "-".to_owned(), |share| format!("{share:.3}")),
            tasks.to_string(),
        ]);
    }
    write_table(out, &table)?;
    writeln!(out)?;
    let header = [
        "task",
        "number",
        "client",
        "state",
        "core",
        "priority",
        "period ms",
        "deadline ms",
        "bound ms",
        "longest ms",
        "mean ms",
        "jobs",
        "verdict",
    ];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    table.extend(now.tasks.iter().map(|task| task_row(task, now.measurement(task))));
    write_table(out, &table)?;
    writeln!(out)?;
    let Counts { promised, rejected, over_rate, over_quota, leases_ended, reservations_lapsed } = now.counts;
    writeln!(
        out,
        "{promised} admitted, {rejected} rejected, {over_rate} beyond the rate, {over_quota} beyond a quota, {leases_ended} \
         leases ended, {reservations_lapsed} reservations lapsed"
    )?;
    if !now.measured.has_pool {
        return writeln!(out, "the server has no core pool: the promises are advisory, and nothing is measured");
    }
    let counts = &now.measured.counts;
    writeln!(
        out,
        "connections: {} bound now, {} in all, {} moved, {} borrowed threads, {} threads started",
        counts.bound_now, counts.bound, counts.moved, counts.borrowed, counts.spawned
    )?;
    writeln!(
        out,
        "requests: {} handed over, {} run by their reader, {} without a task, {} without their core, {} refused without a \
         thread",
        counts.handed_over, now.measured.led, counts.without_task, counts.not_bound, now.measured.without_thread
    )?;
    for share in &now.measured.best_effort {
        let state = if share.guaranteed { "above all tasks" } else { "in the background" };
        let used = milliseconds(share.used);
        writeln!(
            out,
            "best effort on core {}: {used} ms in its share, which was used up in {} periods; now {state}",
            share.core, share.exhausted
        )?;
    }
    if !now.measured.advisory_reason.is_empty() {
        writeln!(out, "the promises are advisory: {}", printable(&now.measured.advisory_reason))?;
    }
    Ok(())
}

fn task_row(task: &TaskRecord, measured: Option<&TaskMeasurement>) -> Vec<String> {
    let measured = measured.filter(|measured| measured.jobs > 0);
    let absent = || "-".to_owned();
    let verdict = match measured {
        None => "-",
        Some(measured) if is_over_bound(task, measured) => "over bound",
        Some(_) if task.response == 0 => "-",
        Some(_) => "within",
    };
    vec![
        printable(&task.name),
        task.task.to_string(),
        printable(&task.client),
        remote::state_name(task.state).to_owned(),
        if task.core < 0 { absent() } else { task.core.to_string() },
        task.level.to_string(),
        milliseconds(task.timing.period),
        milliseconds(task.timing.deadline),
        if task.response == 0 { absent() } else { milliseconds(task.response) },
        measured.map_or_else(absent, |measured| milliseconds(measured.longest)),
        measured.map_or_else(absent, |measured| milliseconds(measured.mean)),
        measured.map_or_else(|| "0".to_owned(), |measured| measured.jobs.to_string()),
        verdict.to_owned(),
    ]
}

fn as_json(now: &Monitored) -> Json {
    let mut document = remote::snapshot_json(&now.tasks, &now.cores, &now.counts);
    for (task, shown) in now.tasks.iter().zip(document["tasks"].as_array_mut().into_iter().flatten()) {
        shown["measured"] = now.measurement(task).map_or(Json::Null, |measured| {
            json!({
                "jobs": measured.jobs,
                "shortest_ns": measured.shortest,
                "mean_ns": measured.mean,
                "longest_ns": measured.longest,
                "over_bound": is_over_bound(task, measured),
            })
        });
    }
    let counts = &now.measured.counts;
    let share = |share: &BestEffortUse| {
        json!({
            "core": share.core,
            "used_ns": share.used,
            "exhausted": share.exhausted,
            "guaranteed": share.guaranteed,
        })
    };
    document["pool"] = if now.measured.has_pool {
        let reason = &now.measured.advisory_reason;
        json!({
            "advisory_reason": if reason.is_empty() { Json::Null } else { reason.as_str().into() },
            "bound": counts.bound,
            "bound_now": counts.bound_now,
            "borrowed": counts.borrowed,
            "spawned": counts.spawned,
            "moved": counts.moved,
            "not_bound": counts.not_bound,
            "handed_over": counts.handed_over,
            "led": now.measured.led,
            "without_task": counts.without_task,
            "without_thread": now.measured.without_thread,
            "best_effort": now.measured.best_effort.iter().map(share).collect::<Vec<_>>(),
        })
    } else {
        Json::Null
    };
    document
}
