//! Charges each operation with `@wcet`, and each job with a budget, for the processor time of its
//! thread, except while the thread runs other requests.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use corelane_sys::cpu_budget::{BudgetOutcome, CpuBudget, CpuBudgetMonitor};
use corelane_sys::thread::Scheduling;
use corelane_sys::usage::thread_time;

use crate::thread_context::{self, SavedScheduling, can_lower};

thread_local! {
    static MONITORED_OPERATIONS: Cell<u32> = const { Cell::new(0) };
    /// Processor time of the calling thread that is not charged to running operations, because the
    /// thread ran other requests.
    static UNCHARGED_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

thread_local! {
    static CPU_BUDGET: RefCell<Option<(u64, CpuBudget)>> = const { RefCell::new(None) };
}

fn stop_budget() -> BudgetOutcome {
    let left = CPU_BUDGET
        .with_borrow_mut(|own| own.as_mut().map_or(BudgetOutcome::NotStarted, |(_, allowance)| allowance.stop()));
    if let BudgetOutcome::Exhausted(to) = left {
        thread_context::record_lowered(to);
    }
    left
}

fn resume_budget(left: BudgetOutcome, used: Duration) {
    if let BudgetOutcome::Unused(left, then) = left {
        CPU_BUDGET.with_borrow_mut(|own| {
            if let Some((_, allowance)) = own {
                allowance.restart(left.saturating_sub(used), then);
            }
        });
    }
}

#[derive(Debug)]
pub(crate) struct ChargedOperation {
    started_at: Duration,
    uncharged_before: Duration,
}

impl ChargedOperation {
    pub(crate) fn begin() -> Self {
        MONITORED_OPERATIONS.set(MONITORED_OPERATIONS.get() + 1);
        ChargedOperation { started_at: thread_time(), uncharged_before: UNCHARGED_TIME.get() }
    }

    #[cfg(feature = "core-pool")]
    pub(crate) fn started_at(&self) -> Duration {
        self.started_at
    }

    pub(crate) fn used(&self) -> Duration {
        let uncharged = UNCHARGED_TIME.get().saturating_sub(self.uncharged_before);
        thread_time().saturating_sub(self.started_at).saturating_sub(uncharged)
    }
}

impl Drop for ChargedOperation {
    fn drop(&mut self) {
        MONITORED_OPERATIONS.set(MONITORED_OPERATIONS.get() - 1);
    }
}

#[derive(Debug)]
pub(crate) struct BudgetScope {
    before: SavedScheduling,
    started_at: Duration,
    outer: BudgetOutcome,
}

impl BudgetScope {
    /// Starts a budget of the calling thread. When the budget is used up, the thread gets the
    /// scheduling `to`. `monitor` belongs to the ORB with the random number `stamp`. Returns `None`
    /// if the thread cannot be lowered to `to`, or if the budget cannot be made.
    #[cold]
    pub(crate) fn start(
        (stamp, monitor): (u64, &CpuBudgetMonitor),
        to: Scheduling,
        time: Duration,
        operation: &ChargedOperation,
    ) -> Option<Self> {
        // The enclosing budget's monitor could change the thread's scheduling, which is read next.
        // So this budget is stopped first.
        let outer = stop_budget();
        let is_started = thread_context::current_scheduling().is_ok_and(|now| can_lower(now, to))
            && CPU_BUDGET.with_borrow_mut(|own| {
                if own.as_ref().is_none_or(|(of, _)| *of != stamp) {
                    let Ok(made) = CpuBudget::for_current_thread(monitor) else { return false };
                    *own = Some((stamp, made));
                }
                if let Some((_, budget)) = own {
                    budget.restart(time, to);
                }
                true
            });
        if is_started {
            Some(BudgetScope { before: SavedScheduling::capture(), started_at: operation.started_at, outer })
        } else {
            resume_budget(outer, Duration::ZERO);
            None
        }
    }
}

#[cfg(feature = "core-pool")]
impl BudgetScope {
    pub(crate) fn stop(&mut self) -> bool {
        matches!(stop_budget(), BudgetOutcome::Exhausted(_))
    }
}

impl Drop for BudgetScope {
    fn drop(&mut self) {
        stop_budget();
        self.before.restore();
        if self.outer != BudgetOutcome::NotStarted {
            resume_budget(self.outer, thread_time().saturating_sub(self.started_at));
        }
    }
}

pub(crate) struct ChargePause(Option<(Duration, Duration, BudgetOutcome)>);

impl ChargePause {
    #[inline]
    pub(crate) fn begin() -> Self {
        ChargePause((MONITORED_OPERATIONS.get() > 0).then(|| (UNCHARGED_TIME.get(), thread_time(), stop_budget())))
    }
}

impl Drop for ChargePause {
    #[inline]
    fn drop(&mut self) {
        if let Some((before, begun, left)) = self.0 {
            // The uncharged time is replaced, because this pause includes the nested pauses.
            UNCHARGED_TIME.set(before + thread_time().saturating_sub(begun));
            resume_budget(left, Duration::ZERO);
        }
    }
}
