//! The command `corelane cores simulate`, which runs tasks in virtual time.

use std::io::{self, Write};

use corelane_sched::allocation::{Discipline, task_placements};
use corelane_sched::analysis::priorities::deadline_monotonic_order;
use corelane_sched::simulation::{
    self, ArrivalPattern, CoreAssignment, SchedulingRule, SimulationOutcome, TaskObservations, simulate,
};
use corelane_sched::task::{Nanos, Timing};
use serde_json::{Value as Json, json};

use super::{AllocatedSystem, CoresArguments, milliseconds, picture, write_file, write_table};
use crate::text::{json_text, printable};

/// Duration of a simulation without `--for`, as a multiple of the longest period.
const PERIODS: u64 = 10;

pub(super) fn run(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let system = AllocatedSystem::read(arguments)?;
    let timings: Vec<Timing> = system.file.tasks.iter().map(|named| named.task.timing).collect();
    let cores = system.machine.cores.len();
    if let Some((core, _)) = arguments.lost_core
        && core >= cores
    {
        return Err(format!("`--lose {core}`: the machine has {cores} cores, 0 to {}", cores - 1));
    }
    let simulated = simulation::SimulatedSystem {
        levels: levels(&system, &timings, arguments.is_global),
        arrivals: arrivals(&timings, arguments.seed),
        lost_core: arguments.lost_core,
        ..simulation::SimulatedSystem::new(
            timings.iter().map(|timing| system.machine.overheads.add_to(timing)).collect(),
            if arguments.is_global {
                CoreAssignment::Global { core_count: cores }
            } else {
                CoreAssignment::Partitioned(places(&system)?)
            },
            match system.machine.discipline {
                Discipline::FixedPriority | Discipline::LiuLayland => SchedulingRule::FixedPriority,
                Discipline::EarliestDeadlineFirst => SchedulingRule::EarliestDeadlineFirst,
            },
        )
    };
    let longest = timings.iter().map(|timing| timing.period).max().unwrap_or(0);
    let duration = arguments.duration.unwrap_or_else(|| longest.saturating_mul(PERIODS));
    let outcome = simulate(&simulated, duration);
    if let Some(file) = &arguments.svg {
        let names: Vec<&str> = system.file.tasks.iter().map(|named| named.name.as_str()).collect();
        write_file(file, &picture::schedule(&names, cores, duration, &outcome))?;
    }
    let _ = if arguments.is_json {
        out.write_all(json_text(&as_json(&system, duration, &outcome)).as_bytes())
    } else {
        write_text(out, &system, duration, &outcome)
    };
    Ok(!outcome.has_misses())
}

fn places(system: &AllocatedSystem) -> Result<Vec<usize>, String> {
    let place = |named: &corelane_sched::task_file::NamedTask| {
        let core = system.set.core_of(named.task.id);
        let place = core.and_then(|core| system.machine.cores.iter().position(|other| other.id == core));
        place.ok_or_else(|| format!("{}: the machine has no core that it may run on", printable(&named.name)))
    };
    system.file.tasks.iter().map(place).collect()
}

/// Returns the priority level of each task. If `is_global`, one order of levels covers all cores,
/// by deadline. Otherwise each core has separate levels.
fn levels(system: &AllocatedSystem, timings: &[Timing], is_global: bool) -> Vec<u32> {
    let mut levels = vec![0; timings.len()];
    if is_global {
        for (level, place) in (0..).zip(deadline_monotonic_order(timings)) {
            levels[place] = level;
        }
    } else {
        for promise in task_placements(&system.set, &system.machine) {
            // The id of a task is its index in the file.
            if let Some(level) = usize::try_from(promise.task.0).ok().and_then(|place| levels.get_mut(place)) {
                *level = promise.level;
            }
        }
    }
    levels
}

/// Returns periodic arrivals. With a seed, each job is late by a random part of its task's jitter.
fn arrivals(timings: &[Timing], seed: Option<u64>) -> Vec<ArrivalPattern> {
    let of_task =
        |place: u64| ArrivalPattern { seed: seed.map(|seed| seed.wrapping_add(place)), ..ArrivalPattern::PERIODIC };
    (0..).map(of_task).take(timings.len()).collect()
}

fn write_text(
    out: &mut dyn Write,
    system: &AllocatedSystem,
    duration: Nanos,
    outcome: &SimulationOutcome,
) -> io::Result<()> {
    let header = ["task", "jobs", "missed", "preempted", "longest response ms", "deadline ms"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for (named, observed) in system.file.tasks.iter().zip(&outcome.tasks) {
        table.push(vec![
            printable(&named.name),
            observed.completed.to_string(),
            observed.missed.to_string(),
            observed.preemptions.to_string(),
            milliseconds(observed.worst_response),
            milliseconds(named.task.timing.deadline),
        ]);
    }
    write_table(out, &table)?;
    writeln!(out)?;
    if outcome.is_truncated {
        writeln!(
            out,
            "the simulation ended before its time: it stops at {} events or {} open jobs",
            simulation::MAX_SIMULATED_EVENTS,
            simulation::MAX_OPEN_JOBS
        )?;
    }
    let missed: u64 = outcome.tasks.iter().map(|task| task.missed).sum();
    let jobs: u64 = outcome.tasks.iter().map(|task| task.completed).sum();
    writeln!(out, "{} ms, {jobs} jobs: {missed} deadlines missed", milliseconds(duration))
}

fn as_json(system: &AllocatedSystem, duration: Nanos, outcome: &SimulationOutcome) -> Json {
    let task = |(named, observed): (&corelane_sched::task_file::NamedTask, &TaskObservations)| {
        json!({
            "name": named.name,
            "jobs": observed.completed,
            "missed": observed.missed,
            "preempted": observed.preemptions,
            "longest_response_ns": observed.worst_response,
            "deadline_ns": named.task.timing.deadline,
        })
    };
    json!({
        "schema": 1,
        "duration_ns": duration,
        "tasks": system.file.tasks.iter().zip(&outcome.tasks).map(task).collect::<Vec<_>>(),
        "misses": outcome.has_misses(),
        "is_cut": outcome.is_truncated,
    })
}
