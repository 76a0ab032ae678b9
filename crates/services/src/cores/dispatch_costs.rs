//! The costs of the dispatch modes of a core pool in the analysis.

use std::time::Duration;

use corelane::rt::CorePoolMode;
use corelane_sched::allocation::{Machine, RequestReading};
use corelane_sched::task::Nanos;

/// The time that the dispatch of one request costs beyond the time of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchCosts {
    /// The time for which the thread that reads a request keeps a core from all tasks, including
    /// the thread's context switches. Default: 30 us.
    pub reading: Duration,
    /// The time from the end of the reading until the task's thread runs on the task's core: a
    /// hand-over by the manager, or in leader/followers the move of the thread to the core.
    /// Default: 30 us.
    pub hand_off: Duration,
}

impl Default for DispatchCosts {
    fn default() -> Self {
        DispatchCosts { reading: Duration::from_micros(30), hand_off: Duration::from_micros(30) }
    }
}

/// Counts the costs of a core pool's mode in a machine. Create the task registry of an admission
/// object with the returned machine if its core pool has this mode.
///
/// | mode | charged |
/// |---|---|
/// | [`Bound`](CorePoolMode::Bound) | nothing: no thread but the task's works for a request |
/// | [`Manager`](CorePoolMode::Manager) | the reading of each request above all tasks, on the machine's first core, which must be the first core of the pool; the hand-over of each job |
/// | [`LeaderFollowers`](CorePoolMode::LeaderFollowers) | the reading of each request above all tasks on each core, because any thread may read it; the move of each job's thread |
/// | [`NoAffinity`](CorePoolMode::NoAffinity) | nothing, because no analysis of single cores holds |
///
/// ```
/// use corelane::Orb;
/// use corelane::rt::{CorePoolConfig, CorePoolMode};
/// use corelane_sched::allocation::Machine;
/// use corelane_services::cores::{AdmissionConfig, DispatchCosts, charge_mode};
///
/// let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
/// let mode = CorePoolMode::Manager;
/// let machine = charge_mode(Machine::with_cores(1), mode, DispatchCosts::default());
/// let pool = CorePoolConfig::default().cores([0]).mode(mode);
/// let cores = AdmissionConfig::new(machine).core_pool(pool).serve(&orb)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn charge_mode(mut machine: Machine, mode: CorePoolMode, costs: DispatchCosts) -> Machine {
    let nanoseconds = |time: Duration| Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
    let core = match mode {
        CorePoolMode::Bound | CorePoolMode::NoAffinity => return machine,
        CorePoolMode::Manager => machine.cores.first().map(|core| core.id),
        CorePoolMode::LeaderFollowers => None,
    };
    machine.reading = Some(RequestReading { cost: nanoseconds(costs.reading), core });
    let hand_off = &mut machine.overheads.hand_off;
    *hand_off = hand_off.saturating_add(nanoseconds(costs.hand_off));
    machine
}

#[cfg(test)]
mod tests {
    use corelane_sched::allocation::{TaskSet, admit};
    use corelane_sched::task::{Task, TaskId, Timing};

    use super::*;

    const US: Nanos = 1_000;

    #[test]
    fn each_mode_is_charged_with_the_work_of_its_threads() {
        let costs = DispatchCosts { reading: Duration::from_micros(20), hand_off: Duration::from_micros(10) };
        let response = |mode, pinned: u32| {
            let machine = charge_mode(Machine::with_cores(2), mode, costs);
            let task = Task::new(TaskId(1), Timing::new(1_000 * US, 10_000 * US)).unwrap();
            let task = Task { pinned_core: Some(machine.cores[pinned as usize].id), ..task };
            admit(&TaskSet::for_machine(&machine), &machine, &task).unwrap().response.unwrap() / US
        };
        // A request waits 40 us, for its own reading and for the reading of one request before it.
        // On the manager's core, the reading also counts as 20 us of work above the task.
        assert_eq!([0, 1].map(|core| response(CorePoolMode::Manager, core)), [1_070, 1_050]);
        assert_eq!([0, 1].map(|core| response(CorePoolMode::LeaderFollowers, core)), [1_070, 1_070]);
        for mode in [CorePoolMode::Bound, CorePoolMode::NoAffinity] {
            assert_eq!([0, 1].map(|core| response(mode, core)), [1_000, 1_000]);
        }
    }
}
