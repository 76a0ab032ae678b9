//! Detection of operations that take longer than they declare (`@wcet`).
//!
//! The clock is the thread's processor time. It excludes waiting, preemption, and requests served
//! while a nested call waits. It is read twice for each request whose operation declares a time,
//! and never otherwise.
//!
//! With [`OverrunAction::LowerPriority`] the kernel also watches that clock while the operation
//! runs, and the monitor lowers the thread (`sys::cpu_budget`).

use std::cell::{Cell, RefCell};
use std::time::Duration;

use corelane_sched::Priority;
use corelane_sys::cpu_budget::{BudgetLeft, CpuBudget};
use corelane_sys::usage::thread_time;

use super::OverrunAction;
use super::current::can_lower;
use super::thread_context::{self, SavedScheduling};
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb::Core;
use crate::servant::ServerCall;

/// The measurement of a running operation that declared its maximum processor time.
#[derive(Debug)]
pub(crate) struct OverrunMonitor {
    operation: &'static str,
    declared: Duration,
    started_at: Duration,
    /// `UNCHARGED_TIME` of the thread when the operation began.
    uncharged_before: Duration,
    /// Lowers the thread when the declared time is used; ends with the operation.
    _budget: Option<BudgetScope>,
}

thread_local! {
    /// Number of nested operations of the calling thread that are measured.
    static MONITORED_OPERATIONS: Cell<u32> = const { Cell::new(0) };
    /// Processor time that the calling thread has spent on other requests while measured operations
    /// waited.
    static UNCHARGED_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

thread_local! {
    /// The calling thread's timer, for the ORB with this stamp.
    static CPU_BUDGET: RefCell<Option<(u64, CpuBudget)>> = const { RefCell::new(None) };
}

/// Stops the calling thread's budget and returns the rest of it.
fn stop_budget() -> BudgetLeft {
    let left = CPU_BUDGET
        .with_borrow_mut(|own| own.as_mut().map_or(BudgetLeft::NotStarted, |(_, allowance)| allowance.stop()));
    if let BudgetLeft::Exhausted(to) = left {
        thread_context::record_lowered(to);
    }
    left
}

/// Restarts the budget with the time left after `used`.
fn resume_budget(left: BudgetLeft, used: Duration) {
    if let BudgetLeft::Unused(left, then) = left {
        CPU_BUDGET.with_borrow_mut(|own| {
            if let Some((_, allowance)) = own {
                allowance.restart(left.saturating_sub(used), then);
            }
        });
    }
}

/// A budget for an operation, whose thread is lowered when it is used up.
#[derive(Debug)]
struct BudgetScope {
    before: SavedScheduling,
    started_at: Duration,
    /// Budget that was left to the enclosing operation.
    outer: BudgetLeft,
}

impl BudgetScope {
    /// Starts a budget of `time` for the calling thread; `begun` is the thread's clock now. Returns
    /// `None` if the thread would not be lowered.
    #[cold]
    fn start(core: &Core, to: i16, time: Duration, begun: Duration) -> Option<Self> {
        let overseer = core.rt().cpu_monitor()?;
        let to = core.config().rt.scheduling_for(Priority::new(to)?).ok()??;
        // Stopped before the thread's scheduling is looked at, which the monitor changes.
        let outer = stop_budget();
        let is_started = thread_context::current_scheduling().is_ok_and(|now| can_lower(now, to))
            && CPU_BUDGET.with_borrow_mut(|own| {
                let stamp = core.poa_table().stamp;
                if own.as_ref().is_none_or(|(of, _)| *of != stamp) {
                    let Ok(made) = CpuBudget::for_current_thread(overseer) else { return false };
                    *own = Some((stamp, made));
                }
                if let Some((_, budget)) = own {
                    budget.restart(time, to);
                }
                true
            });
        if is_started {
            Some(BudgetScope { before: SavedScheduling::capture(), started_at: begun, outer })
        } else {
            resume_budget(outer, Duration::ZERO);
            None
        }
    }
}

impl Drop for BudgetScope {
    fn drop(&mut self) {
        stop_budget();
        self.before.restore();
        if self.outer != BudgetLeft::NotStarted {
            resume_budget(self.outer, thread_time().saturating_sub(self.started_at));
        }
    }
}

/// Excludes the calling thread's time from the operations that it already runs, until this is
/// dropped.
pub(crate) struct ChargePause(Option<(Duration, Duration, BudgetLeft)>);

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
            // Set, not added: nested pauses ended within this one and are part of its time.
            UNCHARGED_TIME.set(before + thread_time().saturating_sub(begun));
            resume_budget(left, Duration::ZERO);
        }
    }
}

impl OverrunMonitor {
    /// Begins to measure `operation` on the calling thread.
    pub(crate) fn begin(call: &ServerCall<'_>, operation: &'static str, declared: Duration) -> Self {
        MONITORED_OPERATIONS.set(MONITORED_OPERATIONS.get() + 1);
        let begun = thread_time();
        let allowed = call.core().and_then(|core| match core.config().rt.overruns {
            OverrunAction::LowerPriority(to) => BudgetScope::start(core, to, declared, begun),
            OverrunAction::Run | OverrunAction::Reject => None,
        });
        OverrunMonitor {
            operation,
            declared,
            started_at: begun,
            uncharged_before: UNCHARGED_TIME.get(),
            _budget: allowed,
        }
    }

    /// Ends the measurement of an operation that returned `result`.
    ///
    /// # Errors
    /// The error in `result`; TIMEOUT if the configuration rejects late results.
    pub(crate) fn end(self, call: &ServerCall<'_>, result: Result<(), SystemException>) -> Result<(), SystemException> {
        let used = self.used();
        if used > self.declared { self.handle_overrun(used, call, result) } else { result }
    }

    /// Ends the measurement of an operation that panicked.
    #[cold]
    pub(crate) fn end_by_panic(self, call: &ServerCall<'_>) {
        let used = self.used();
        if used > self.declared {
            self.report(used, call);
        }
    }

    fn used(&self) -> Duration {
        let aside = UNCHARGED_TIME.get().saturating_sub(self.uncharged_before);
        thread_time().saturating_sub(self.started_at).saturating_sub(aside)
    }

    fn report(&self, used: Duration, call: &ServerCall<'_>) {
        if let Some(core) = call.core() {
            let (operation, declared) = (self.operation, self.declared);
            core.events().report(&Event::Overrun { operation, declared, used });
        }
    }

    #[cold]
    fn handle_overrun(
        self,
        used: Duration,
        call: &ServerCall<'_>,
        result: Result<(), SystemException>,
    ) -> Result<(), SystemException> {
        self.report(used, call);
        let Some(core) = call.core() else { return result };
        match core.config().rt.overruns {
            OverrunAction::Run | OverrunAction::LowerPriority(_) => result,
            OverrunAction::Reject if call.has_raised() => result,
            OverrunAction::Reject => result.and_then(|()| {
                let exception = SystemException::new(Kind::Timeout, crate::minor::OVERRUN, Completion::Yes);
                Err(exception.because("the operation took more processor time than it declares"))
            }),
        }
    }
}

impl Drop for OverrunMonitor {
    fn drop(&mut self) {
        MONITORED_OPERATIONS.set(MONITORED_OPERATIONS.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::thread::{self, Builder, Scheduling};

    use super::*;
    use crate::Orb;
    use crate::rt::RtConfig;

    /// Regression: an operation whose thread is low already took the budget of the operation that
    /// called it.
    #[test]
    fn enclosing_budget_goes_on_where_none_is_started() {
        const LOW: i16 = 335;
        let config = RtConfig::default().overruns(OverrunAction::LowerPriority(LOW));
        let orb = Orb::builder().real_time(config).build().unwrap();
        let priority = || thread::scheduling(None).unwrap().priority();
        let body = move || {
            let start = |time| BudgetScope::start(orb.core(), LOW, time, thread_time());
            let outer = start(Duration::from_millis(5)).expect("a thread that can be lowered");
            thread_context::set_scheduling(Scheduling::Fifo(1)).unwrap();
            assert!(start(Duration::from_secs(1)).is_none());
            thread_context::set_scheduling(Scheduling::Fifo(50)).unwrap();
            // The outer budget is used up long before.
            let end = thread_time() + Duration::from_secs(1);
            while priority() == 50 && thread_time() < end {}
            assert_eq!(priority(), 2);
            drop(outer);
            assert_eq!(priority(), 50);
        };
        let thread = Builder::new().scheduling(Scheduling::Fifo(50)).spawn(body).expect("SCHED_FIFO is permitted");
        thread.join().unwrap();
    }
}
