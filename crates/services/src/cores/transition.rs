//! Plans that keep all deadlines while they are carried out.
//!
//! A task that moves has a job in flight on the core that it leaves. A plan that swaps two tasks can
//! be right before and after the swap, and wrong between. Such a plan is not used.

use corelane_sched::allocation::{self, AllocationStep, Machine, Plan, Rejection, TaskSet, is_schedulable};
use corelane_sched::task::{CoreId, Task, TaskId};

/// Decides about `task` beside `set`, which begins as `before`. The two differ if the task replaces
/// another one.
///
/// # Errors
/// [`Rejection`] if no plan keeps all deadlines. It is not exhaustive if a plan was left out.
pub(super) fn admit(before: &TaskSet, set: &TaskSet, machine: &Machine, task: &Task) -> Result<Plan, Rejection> {
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
            // The cheaper rungs find nothing either.
            Err(rejection) if is_exhaustive => return Err(rejection),
            Err(rejection) => return Err(Rejection { is_exhaustive, ..rejection }),
        }
    }
    // The cheapest rung has no moves, so that its plan was taken.
    Err(Rejection {
        task: task.id,
        test: allocation::AdmissionTest::Deadlines,
        core: None,
        excess: Default::default(),
        longest_execution: None,
        is_exhaustive,
    })
}

/// Returns true if every core that another task moves to has room for it beside all its tasks until
/// now.
fn keeps_deadlines(before: &TaskSet, machine: &Machine, plan: &Plan) -> bool {
    if plan.moves.is_empty() {
        return true;
    }
    let targets: Vec<CoreId> = plan.moves.iter().map(|step| step.to).collect();
    let mut machine = machine.clone();
    machine.cores.retain(|core| targets.contains(&core.id));
    let mut both = TaskSet::default();
    for (task, core) in before.iter() {
        if targets.contains(&core) {
            both.insert(*task, core);
        }
        if let Some(step) = plan.moves.iter().find(|step| step.task == task.id && step.to != core) {
            // The task is on both cores, under two names.
            both.insert(Task { id: TaskId(task.id.0 | SECOND), pinned: None, ..*task }, step.to);
        }
    }
    is_schedulable(&both, &machine)
}

/// The bit that no name of a task in the books has.
const SECOND: u64 = 1 << 63;
