//! Costs that a machine adds to the jobs of tasks: late timers, wake-ups of threads, and moves of
//! threads to other cores.

use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::thread::{self, Scheduling};

use crate::Failure;
use crate::papers::cores::clock::wake_ups;
use crate::papers::cores::migration::sleeping_moves;
use crate::placement::{CoreChoice, Placement, Side, permits_fixed_priorities};

/// Native priority of the measuring threads, if fixed priorities are permitted.
const PRIORITY: u8 = 10;

/// Length of a sleep whose lateness is measured.
const SLEEP: Duration = Duration::from_micros(200);

/// Measured costs of this machine, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineCosts {
    /// The cores that the process may use.
    pub cores: Vec<usize>,
    /// True if the measuring threads had fixed priorities. In the ordinary scheduling class, other
    /// threads and the timer slack of the kernel add to the times.
    pub has_fixed_priorities: bool,
    /// Times from the end of a sleep until the sleeping thread runs.
    pub timer_latencies: Vec<u64>,
    /// Times from the call that wakes a thread on the core of the calling thread until the woken
    /// thread runs. They include a context switch.
    pub same_core_wake_up: Vec<u64>,
    /// Times from the call that wakes a thread on another core until that thread runs. Empty if the
    /// process may use only one core.
    pub other_core_wake_up: Vec<u64>,
    /// Times of the system call that moves a sleeping thread to another core. Empty if the process
    /// may use only one core.
    pub sleeping_move: Vec<u64>,
}

impl MachineCosts {
    /// Measures each cost `count` times, on the first two cores that the process may use.
    ///
    /// # Errors
    /// The kernel refuses to place or to wake a thread.
    pub fn measure(count: usize) -> Result<Self, Failure> {
        let refused = |error: std::io::Error| Failure::new(format!("the threads cannot be placed: {error}"));
        let cores: Vec<usize> = thread::affinity(None).map_err(refused)?.iter().collect();
        let first = *cores.first().ok_or_else(|| Failure::new("the process may use no core"))?;
        let has_fixed_priorities = permits_fixed_priorities();
        let scheduling = has_fixed_priorities.then_some(Scheduling::Fifo(PRIORITY));
        let on = |cores| Placement { cores, scheduling };
        let mut costs = MachineCosts { has_fixed_priorities, ..MachineCosts::default() };
        costs.timer_latencies = {
            let _entered = on(CoreChoice::Shared(first)).enter(Side::Client).map_err(refused)?;
            (0..count).map(|_| lateness()).collect()
        };
        costs.same_core_wake_up = wake_ups(count, &on(CoreChoice::Shared(first)))?;
        if let Some(&second) = cores.get(1) {
            costs.other_core_wake_up = wake_ups(count, &on(CoreChoice::Separate(first, second)))?;
            costs.sleeping_move = sleeping_moves(count, (first, second), has_fixed_priorities.then_some(PRIORITY))?;
        }
        Ok(MachineCosts { cores, ..costs })
    }
}

fn lateness() -> u64 {
    let began = clock::now();
    std::thread::sleep(SLEEP);
    u64::try_from(began.elapsed().saturating_sub(SLEEP).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cost_is_measured_as_often_as_requested() {
        let costs = MachineCosts::measure(20).unwrap();
        assert_eq!((costs.timer_latencies.len(), costs.same_core_wake_up.len()), (20, 20));
        let others = if costs.cores.len() > 1 { 20 } else { 0 };
        assert_eq!((costs.other_core_wake_up.len(), costs.sleeping_move.len()), (others, others));
        for times in [&costs.same_core_wake_up, &costs.other_core_wake_up, &costs.sleeping_move] {
            assert!(times.iter().all(|time| *time > 0), "{times:?}");
        }
    }
}
