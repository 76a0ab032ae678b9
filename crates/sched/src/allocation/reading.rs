//! Work above all tasks that each request of a task causes: a thread reads the request before the
//! task's thread runs it.
//!
//! This work delays the tasks of the reading thread's core, and the start of every job. So a new
//! task delays tasks of other cores, too, and may make them move.

use std::borrow::Cow;

use super::{AdmissionPlan, AdmissionTest, AllocationStep, Machine, Move, Rejection, TaskSet, admit_charged};
use crate::analysis::StepBudget;
use crate::analysis::response_time::response_time;
use crate::task::{CoreId, MAX_PERIOD, Nanos, Task, Timing};

/// The reading of requests by a thread above all tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestReading {
    /// The time for which the thread works for each request.
    pub cost: Nanos,
    /// The thread's core. `None` if a thread of any core may read; the work then counts on each
    /// core.
    pub core: Option<CoreId>,
}

impl RequestReading {
    fn work_of(&self, timing: &Timing) -> Timing {
        Timing { execution: self.cost, deadline: timing.period, blocking: 0, ..*timing }
    }
}

impl Machine {
    /// Returns the machine with the reading of the tasks' requests as work above all tasks, and
    /// with the longest delay of a request by the reading of others as release jitter. The reading
    /// counts on each core if the machine lacks the reading thread's core.
    #[must_use]
    pub fn with_reading_of<'t>(&self, tasks: impl IntoIterator<Item = &'t Task>) -> Cow<'_, Machine> {
        let Some(reading) = self.reading.filter(|reading| reading.cost > 0) else { return Cow::Borrowed(self) };
        let work: Vec<Timing> = tasks.into_iter().map(|task| reading.work_of(&task.timing)).collect();
        // The wait of a request is at most the response time of a further request that is read
        // after all others.
        let delay = response_time(&Timing::new(reading.cost, MAX_PERIOD), &work);
        let mut machine = Machine { reading: None, ..self.clone() };
        let jitter = &mut machine.overheads.release_jitter;
        *jitter = jitter.saturating_add(delay.map_or(Nanos::MAX, |delay| delay.from_arrival));
        let only = reading.core.filter(|core| self.place_of(*core).is_some());
        for core in machine.cores.iter_mut().filter(|core| only.is_none_or(|only| only == core.id)) {
            core.interference.extend(&work);
        }
        Cow::Owned(machine)
    }
}

/// Decides as [`admit`](super::admit) does, on a machine with [`Machine::reading`]. Tasks of cores
/// that lack time for the reading of the new task's requests move, the smallest first.
pub(super) fn admit(set: &TaskSet, machine: &Machine, task: &Task) -> Result<AdmissionPlan, Rejection> {
    let machine = machine.with_reading_of(set.iter().map(|(task, _)| task).chain([task]));
    let mut rest = TaskSet::default();
    set.iter().for_each(|(task, core)| rest.insert(*task, core));
    let mut moving: Vec<Task> = Vec::new();
    let mut loads = rest.loads(&machine).into_owned();
    let mut steps = StepBudget::new(machine.max_steps);
    for (load, core) in loads.iter_mut().zip(&machine.cores) {
        while !load.fits(&mut steps) {
            let movable = load.tasks().iter().map(|(task, _)| *task).filter(|task| task.pinned_core.is_none());
            let smallest = movable.min_by_key(|task| task.timing.utilization());
            let Some(smallest) = smallest.filter(|_| machine.max_allocation_step > AllocationStep::Direct) else {
                return Err(Rejection {
                    core: Some(core.id),
                    is_exhaustive: false,
                    ..Rejection::without_core(task.id, AdmissionTest::Deadlines)
                });
            };
            load.remove_task(smallest.id);
            rest.withdraw(smallest.id);
            moving.push(smallest);
        }
    }
    moving.sort_by_key(|task| std::cmp::Reverse(task.timing.utilization()));
    for one in moving {
        let plan = admit_charged(&rest, &machine, &one).map_err(|rejection| Rejection {
            task: task.id,
            max_fitting_execution: None,
            is_exhaustive: false,
            ..rejection
        })?;
        rest.apply(&plan);
    }
    let plan = admit_charged(&rest, &machine, task)?;
    rest.apply(&plan);
    let moved = |(task, from): (&Task, CoreId)| {
        let to = rest.core_of(task.id).filter(|to| *to != from)?;
        Some(Move { task: task.id, from, to })
    };
    let moves: Vec<Move> = set.iter().filter_map(moved).collect();
    let found_by = if moves.is_empty() { plan.found_by_step } else { plan.found_by_step.max(AllocationStep::Move) };
    Ok(AdmissionPlan { moves, found_by_step: found_by, ..plan })
}
