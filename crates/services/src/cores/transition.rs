//! Plans during whose application all deadlines are met.
//!
//! A task that moves may have a running job on the core that it leaves. If two tasks swap cores,
//! all deadlines can be met before and after the swap but missed during it. This module refuses
//! such plans.

use corelane_sched::allocation::{self, AdmissionPlan, AllocationStep, Machine, Rejection, TaskSet, is_schedulable};
use corelane_sched::task::{CoreId, Task, TaskId};

/// Searches for a plan that adds `task` to `set`. `before` is the set that runs before the plan. It
/// differs from `set` if `task` replaces a task.
///
/// # Errors
/// [`Rejection`] if the search finds no plan that keeps all deadlines. The rejection is not
/// exhaustive if a plan was refused because of its moves.
pub(super) fn admit(
    before: &TaskSet,
    set: &TaskSet,
    machine: &Machine,
    task: &Task,
) -> Result<AdmissionPlan, Rejection> {
    let mut is_exhaustive = true;
    let mut machine = machine.clone();
    for rung in [machine.max_allocation_step, AllocationStep::Move, AllocationStep::Direct] {
        if rung > machine.max_allocation_step {
            continue;
        }
        machine.max_allocation_step = rung;
        match allocation::admit(set, &machine, task) {
            Ok(plan) if keeps_deadlines(before, &machine, &plan) => return Ok(plan),
            Ok(_) => is_exhaustive = false,
            // A search with fewer kinds of moves finds no plan either, so the search ends.
            Err(rejection) if is_exhaustive => return Err(rejection),
            Err(rejection) => return Err(Rejection { is_exhaustive, ..rejection }),
        }
    }
    // Not reached: a plan of `AllocationStep::Direct` has no moves and is returned above.
    Err(Rejection {
        task: task.id,
        test: allocation::AdmissionTest::Deadlines,
        core: None,
        excess_utilization: Default::default(),
        max_fitting_execution: None,
        is_exhaustive,
    })
}

/// Returns true if each core to which a task moves has room for that task in addition to all tasks
/// that the core runs before the plan.
fn keeps_deadlines(before: &TaskSet, machine: &Machine, plan: &AdmissionPlan) -> bool {
    if plan.moves.is_empty() {
        return true;
    }
    let targets: Vec<CoreId> = plan.moves.iter().map(|step| step.to).collect();
    // The reading of requests counts for all tasks, including those on other cores.
    let tasks = before.iter().map(|(task, _)| task).chain([&plan.task]);
    let mut machine = machine.with_reading_of(tasks).into_owned();
    machine.cores.retain(|core| targets.contains(&core.id));
    let mut both = TaskSet::default();
    for (task, core) in before.iter() {
        if targets.contains(&core) {
            both.insert(*task, core);
        }
        if let Some(step) = plan.moves.iter().find(|step| step.task == task.id && step.to != core) {
            // The moving task counts on both cores, under two ids.
            both.insert(Task { id: TaskId(task.id.0 | SECOND), pinned_core: None, ..*task }, step.to);
        }
    }
    is_schedulable(&both, &machine)
}

/// A bit that no task id of the task registry has. It marks the id under which a moving task counts
/// on its new core.
const SECOND: u64 = 1 << 63;
