//! The guaranteed share for best effort in the analysis: work above all tasks of each core.

use corelane::rt::BestEffortShare;
use corelane_sched::allocation::Machine;
use corelane_sched::analysis::server::{AperiodicServer, ServerKind};
use corelane_sched::task::{Nanos, Timing, Utilization};

use super::registry::CoreUse;

/// Number of native priorities (1 to 97) for the tasks of a core that has a share for best effort.
const LEVELS_BESIDE_SHARE: u32 = 97;

/// Counts a share for best effort on each core of a machine, as work above all tasks.
///
/// Create the task registry of an admission object with the returned machine if its core pool has
/// the share
/// ([`CorePoolConfig::best_effort_share`](field@corelane::rt::CorePoolConfig::best_effort_share)).
/// The share counts as a deferrable server, a periodic task. Its execution time is the budget, plus
/// the lateness of the budget's enforcement, plus twice the machine's time of a context switch. Its
/// jitter is the period without the budget and the lateness. The context switches of single
/// requests within the share are a part of the budget, if the share's
/// [`request_cost`](field@BestEffortShare::request_cost) is twice the machine's time of a context
/// switch. Otherwise they are not counted. The switches of a servant that waits within its request
/// are never counted.
///
/// ```
/// use std::time::Duration;
///
/// use corelane::Orb;
/// use corelane::rt::{BestEffortShare, CorePoolConfig};
/// use corelane_sched::allocation::Machine;
/// use corelane_services::cores::{AdmissionConfig, with_best_effort_share};
///
/// let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
/// let share = BestEffortShare::new(Duration::from_millis(2), Duration::from_millis(20));
/// let share = share.request_cost(Duration::from_micros(4));
/// let machine = with_best_effort_share(Machine::with_cores(1), share);
/// let pool = CorePoolConfig::default().cores([0]).best_effort_share(share);
/// let cores = AdmissionConfig::new(machine).core_pool(pool).serve(&orb)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn with_best_effort_share(mut machine: Machine, share: BestEffortShare) -> Machine {
    let mut work = timing(share);
    let switches = machine.overheads.context_switch.saturating_mul(2);
    work.execution = work.execution.saturating_add(switches);
    for core in &mut machine.cores {
        core.interference.push(work);
    }
    machine.max_priority_levels = machine.max_priority_levels.min(LEVELS_BESIDE_SHARE);
    machine
}

/// Returns true if the task registry reserves at least the utilization of the share on each core,
/// for the share or for other work.
pub(super) fn is_counted(share: BestEffortShare, cores: &[CoreUse]) -> bool {
    let wanted: Utilization = timing(share).utilization();
    cores.iter().all(|core| core.reserved_above_tasks >= wanted)
}

fn timing(share: BestEffortShare) -> Timing {
    let nanoseconds = |time: std::time::Duration| Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
    let budget = nanoseconds(share.budget.saturating_add(BestEffortShare::MAX_BUDGET_OVERRUN));
    AperiodicServer { kind: ServerKind::Deferrable, budget, period: nanoseconds(share.period) }.as_periodic_task()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corelane_sched::allocation::{Discipline, TaskSet, admit};
    use corelane_sched::task::{Task, TaskId};

    use super::*;

    const MS: Nanos = 1_000_000;

    /// Two budgets of the share, each 1.9 ms and a lateness of 0.1 ms, may delay a job by 4 ms.
    #[test]
    fn share_delays_each_task_by_two_budgets() {
        let share = BestEffortShare::new(Duration::from_micros(1_900), Duration::from_millis(10));
        for discipline in [Discipline::FixedPriority, Discipline::EarliestDeadlineFirst] {
            let machine = with_best_effort_share(Machine { discipline, ..Machine::with_cores(1) }, share);
            assert_eq!(machine.max_priority_levels, 97);
            let fits = |execution: Nanos, deadline: Nanos| {
                let task = Task::new(TaskId(1), Timing::new(execution, 20 * MS).with_deadline(deadline)).unwrap();
                admit(&TaskSet::for_machine(&machine), &machine, &task)
            };
            assert!(fits(3 * MS, 7 * MS).is_ok(), "{discipline:?}");
            assert!(fits(3 * MS, 7 * MS - 1).is_err(), "{discipline:?}");
            // A third budget delays a longer job.
            assert!(fits(9 * MS, 15 * MS).is_ok() && fits(9 * MS, 15 * MS - 1).is_err(), "{discipline:?}");
        }
        let fixed = with_best_effort_share(Machine::with_cores(1), share);
        let task = Task::new(TaskId(1), Timing::new(3 * MS, 20 * MS)).unwrap();
        assert_eq!(admit(&TaskSet::for_machine(&fixed), &fixed, &task).unwrap().response, Some(7 * MS));
    }
}
