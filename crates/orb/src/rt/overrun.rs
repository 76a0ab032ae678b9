//! Detection of operations that take longer than they declare (`@wcet`).
//!
//! The clock is the thread's processor time. It excludes waiting, preemption, and requests served
//! while a nested call waits. It is read twice for each request whose operation declares a time,
//! and never otherwise.
//!
//! With [`OverrunAction::LowerPriority`] the kernel also watches that clock while the operation
//! runs, and the monitor lowers the thread (`sys::cpu_budget`).

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use corelane_sched::Priority;
use corelane_sys::cpu_budget::{BudgetLeft, CpuBudget, CpuBudgetMonitor};
use corelane_sys::thread;
use corelane_sys::usage::thread_time;

use super::config::{OverrunAction, SchedulingClass};
use super::current::can_lower;
use super::thread_context::{self, SavedScheduling};
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb_context::OrbContext;
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

/// Starts the CPU budget monitor if the configuration needs one.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn start_cpu_monitor(orb: &OrbContext) -> io::Result<()> {
    let rt = &orb.config().rt;
    if !matches!(rt.overruns, OverrunAction::LowerPriority(_)) || rt.scheduling == SchedulingClass::Fair {
        return Ok(());
    }
    const NAME: &str = "orb/overrun";
    // If the system refuses fixed priorities here, the lanes have none either.
    orb.set_cpu_monitor(thread::at_highest_priority(|scheduling| CpuBudgetMonitor::start(NAME, scheduling))?);
    Ok(())
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
    fn start(orb: &OrbContext, to: i16, time: Duration, begun: Duration) -> Option<Self> {
        let overseer = orb.cpu_monitor()?;
        let to = orb.config().rt.scheduling_for(Priority::new(to)?).ok()??;
        let outer = stop_budget();
        if !can_lower(thread_context::current_scheduling().ok()?, to) {
            return None;
        }
        let stamp = orb.stamp();
        CPU_BUDGET.with_borrow_mut(|own| {
            if own.as_ref().is_none_or(|(of, _)| *of != stamp) {
                *own = CpuBudget::for_current_thread(overseer).ok().map(|made| (stamp, made));
            }
            own.as_mut()?.1.restart(time, to);
            Some(BudgetScope { before: SavedScheduling::capture(), started_at: begun, outer })
        })
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
        let allowed = call.orb().and_then(|orb| match orb.config().rt.overruns {
            OverrunAction::LowerPriority(to) => BudgetScope::start(orb, to, declared, begun),
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
        if let Some(orb) = call.orb() {
            let (operation, declared) = (self.operation, self.declared);
            orb.events().report(&Event::Overrun { operation, declared, used });
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
        let Some(orb) = call.orb() else { return result };
        match orb.config().rt.overruns {
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
