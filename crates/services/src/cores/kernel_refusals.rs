//! Refusals of the kernel until the task registry withdraws the promises of their tasks.

use corelane_sched::task::{CoreId, Nanos, TaskId};

/// Time for which the refusal of a core is held. It should exceed the time from the first refusal
/// of a lost core until the loss shows in the affinity masks of all threads.
const CORE_REFUSAL_DELAY: Nanos = 100_000_000;

#[derive(Debug)]
struct HeldRefusal {
    task: TaskId,
    /// The refused core; `None` for a priority.
    core: Option<CoreId>,
    due: Nanos,
}

/// Refusals by the kernel of tasks whose promises the task registry has not withdrawn yet. The
/// kernel also refuses a core that is offline. The tasks of such a core get other cores, so their
/// promises must not end. Therefore the refusal of a core is held for [`CORE_REFUSAL_DELAY`], and
/// forgotten if the core proves to be lost in this time.
#[derive(Debug, Default)]
pub(super) struct HeldRefusals(Vec<HeldRefusal>);

impl HeldRefusals {
    /// Adds a refusal of a core, or of a priority if `core` is `None`. The caller takes the
    /// refusals of the pool before it looks for lost cores.
    pub(super) fn add(&mut self, task: TaskId, core: Option<usize>, now: Nanos) {
        let core = core.and_then(|core| u32::try_from(core).ok());
        let core = core.map(|core| CoreId { core, ..CoreId::default() });
        let due = if core.is_some() { now.saturating_add(CORE_REFUSAL_DELAY) } else { now };
        self.0.push(HeldRefusal { task, core, due });
    }

    pub(super) fn forget_cores(&mut self, lost: &[CoreId]) {
        self.0.retain(|refusal| !refusal.core.is_some_and(|core| lost.contains(&core)));
    }

    /// Removes the refusals that are due, and returns the tasks whose promises must be withdrawn
    /// now. `core_of` returns the present core of a task: the refusal of a core that the task has
    /// left ends no promise.
    pub(super) fn take_due(&mut self, now: Nanos, mut core_of: impl FnMut(TaskId) -> Option<CoreId>) -> Vec<TaskId> {
        let due = self.0.extract_if(.., |refusal| refusal.due <= now);
        let holds = |refusal: &HeldRefusal| refusal.core.is_none_or(|core| core_of(refusal.task) == Some(core));
        due.filter(holds).map(|refusal| refusal.task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_cores_are_due_later_unless_the_core_is_lost() {
        let core = |core| CoreId { core, ..CoreId::default() };
        // Task 4 has moved to another core after the refusal.
        let core_of = |task| {
            Some(core(if task == TaskId(1) {
                1
            } else if task == TaskId(4) {
                3
            } else {
                2
            }))
        };
        let mut held = HeldRefusals::default();
        held.add(TaskId(1), Some(1), 10);
        held.add(TaskId(2), None, 10);
        held.add(TaskId(3), Some(2), 10);
        held.add(TaskId(4), Some(2), 10);
        held.forget_cores(&[]);
        assert_eq!(held.take_due(10, core_of), [TaskId(2)]);
        assert_eq!(held.take_due(9 + CORE_REFUSAL_DELAY, core_of), []);
        // The loss of core 1 is noticed after its refusal.
        held.forget_cores(&[core(1)]);
        assert_eq!(held.take_due(10 + CORE_REFUSAL_DELAY, core_of), [TaskId(3)]);
        assert_eq!(held.take_due(Nanos::MAX, core_of), []);
    }
}
