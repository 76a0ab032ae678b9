//! The command `corelane cores analyse`, which computes the cores, priorities and worst-case
//! response times of tasks.

use std::collections::HashMap;
use std::io::{self, Write};

use corelane_sched::allocation::{Rejection, TaskPlacement, task_placements};
use corelane_sched::task::{TaskId, Timing, Utilization};
use corelane_sched::task_file::rt_app::{self, PlacedTask};
use corelane_sched::task_file::{NamedTask, toml};
use serde_json::{Value as Json, json};

use super::{AllocatedSystem, CoresArguments, milliseconds, picture, write_file, write_table};
use crate::text::{json_text, printable};

const RT_APP_SECONDS: u64 = 10;

struct TaskRow<'s> {
    named: &'s NamedTask,
    /// Placement of the task. A rejected task has a placement on the core that its rejection names;
    /// `None` if the rejection names no core.
    promise: Option<TaskPlacement>,
    rejection: Option<&'s Rejection>,
}

impl TaskRow<'_> {
    fn fits(&self) -> bool {
        self.rejection.is_none() && self.promise.is_some_and(|promise| promise.is_schedulable)
    }
}

pub(super) fn run(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let system = AllocatedSystem::read(arguments)?;
    let mut places: HashMap<TaskId, TaskPlacement> =
        task_placements(&system.set, &system.machine).into_iter().map(|promise| (promise.task, promise)).collect();
    let row = |named| {
        let id = NamedTask::clone(named).task.id;
        let rejection = system.rejections.iter().find(|rejection| rejection.task == id);
        TaskRow { named, promise: places.remove(&id), rejection }
    };
    let rows: Vec<TaskRow<'_>> = system.file.tasks.iter().map(row).collect();
    let all_fit = rows.iter().all(TaskRow::fits);
    if let Some(file) = &arguments.svg {
        let bars: Vec<picture::ResponseBar<'_>> = rows.iter().map(bar).collect();
        write_file(file, &picture::responses(&bars))?;
    }
    if let Some(file) = &arguments.rt_app {
        let placed = rows.iter().filter(|row| row.fits()).filter_map(placed).collect::<Vec<_>>();
        write_file(file, &rt_app::write(&placed, RT_APP_SECONDS))?;
    }
    let _ = if arguments.is_json {
        out.write_all(json_text(&as_json(&system, &rows, all_fit)).as_bytes())
    } else {
        write_text(out, &system, &rows)
    };
    Ok(all_fit)
}

fn bar<'r>(row: &TaskRow<'r>) -> picture::ResponseBar<'r> {
    picture::ResponseBar {
        name: &row.named.name,
        core: row.promise.map(|promise| promise.core.core),
        response: row.promise.and_then(|promise| promise.response),
        deadline: row.named.task.timing.deadline,
        fits: row.fits(),
    }
}

fn placed(row: &TaskRow<'_>) -> Option<PlacedTask> {
    let promise = row.promise?;
    Some(PlacedTask { task: row.named.clone(), core: Some(promise.core.core), level: promise.level })
}

fn utilizations(system: &AllocatedSystem) -> Vec<(u32, Utilization)> {
    let of_core = |core: &corelane_sched::allocation::Core| {
        let timings: Vec<Timing> =
            system.set.iter().filter(|(_, place)| *place == core.id).map(|(task, _)| task.timing).collect();
        (core.id.core, Utilization::total(&timings))
    };
    system.machine.cores.iter().map(of_core).collect()
}

fn write_text(out: &mut dyn Write, system: &AllocatedSystem, rows: &[TaskRow<'_>]) -> io::Result<()> {
    let header = ["task", "core", "priority", "execution ms", "period ms", "deadline ms", "response ms", "verdict"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for row in rows {
        let timing = &row.named.task.timing;
        let absent = || "-".to_owned();
        table.push(vec![
            printable(&row.named.name),
            row.promise.map_or_else(absent, |promise| promise.core.core.to_string()),
            row.promise.map_or_else(absent, |promise| promise.level.to_string()),
            milliseconds(timing.execution),
            milliseconds(timing.period),
            milliseconds(timing.deadline),
            row.promise.and_then(|promise| promise.response).map_or_else(absent, milliseconds),
            match (row.fits(), row.rejection) {
                (true, _) => "fits",
                (false, Some(_)) => "rejected",
                (false, None) => "misses",
            }
            .to_owned(),
        ]);
    }
    write_table(out, &table)?;
    writeln!(out)?;
    for (core, utilization) in utilizations(system) {
        writeln!(out, "core {core}: utilization {utilization}")?;
    }
    for row in rows {
        if let Some(rejection) = row.rejection {
            writeln!(out, "{}: {}", printable(&row.named.name), rejection.reason())?;
        }
    }
    match rows.iter().filter(|row| !row.fits()).count() {
        0 => writeln!(out, "all {} tasks keep their deadlines", rows.len()),
        count => writeln!(out, "{count} of {} tasks cannot keep their deadlines", rows.len()),
    }
}

fn as_json(system: &AllocatedSystem, rows: &[TaskRow<'_>], all_fit: bool) -> Json {
    let task = |row: &TaskRow<'_>| {
        let timing = &row.named.task.timing;
        json!({
            "name": row.named.name,
            "core": row.promise.map(|promise| promise.core.core),
            "level": row.promise.map(|promise| promise.level),
            "execution_ns": timing.execution,
            "period_ns": timing.period,
            "deadline_ns": timing.deadline,
            "response_ns": row.promise.and_then(|promise| promise.response),
            "fits": row.fits(),
            "reason": row.rejection.map(Rejection::reason),
        })
    };
    let core = |(core, utilization): (u32, Utilization)| json!({ "core": core, "utilization_ppb": utilization.0 });
    json!({
        "schema": 1,
        "discipline": toml::discipline_name(system.machine.discipline),
        "cores": utilizations(system).into_iter().map(core).collect::<Vec<_>>(),
        "tasks": rows.iter().map(task).collect::<Vec<_>>(),
        "fits": all_fit,
    })
}
