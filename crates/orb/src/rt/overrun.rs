//! Detection of operations that use more processor time than their IDL declares (annotation
//! `@wcet`).
//!
//! The used time is the processor time of the thread, without other requests that the thread runs
//! while the operation waits.

use std::io;
use std::time::Duration;

use corelane_sched::Priority;
use corelane_sys::cpu_budget::CpuBudgetMonitor;
use corelane_sys::thread;

use super::config::{OverrunAction, SchedulingClass};
use crate::cpu_charge::{BudgetScope, ChargedOperation};
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb_context::OrbContext;
use crate::servant::ServerCall;

#[derive(Debug)]
pub(crate) struct OverrunMonitor {
    operation: &'static str,
    declared: Duration,
    _budget: Option<BudgetScope>,
    charged: ChargedOperation,
}

/// Starts the thread that lowers priorities at the end of budgets, if
/// [`OverrunAction::LowerPriority`] is configured and threads have fixed priorities.
///
/// # Errors
/// If the kernel refuses to start a thread.
pub(crate) fn start_cpu_monitor(orb: &OrbContext) -> io::Result<()> {
    let rt = &orb.config().rt;
    if !matches!(rt.overrun_action, OverrunAction::LowerPriority(_)) || rt.scheduling == SchedulingClass::Fair {
        return Ok(());
    }
    ensure_cpu_monitor(orb)
}

/// Starts the thread that lowers priorities at the end of budgets, unless it runs already.
///
/// # Errors
/// If the kernel refuses to start a thread.
pub(super) fn ensure_cpu_monitor(orb: &OrbContext) -> io::Result<()> {
    if orb.cpu_monitor().is_some() {
        return Ok(());
    }
    const NAME: &str = "orb/overrun";
    // If the kernel refuses this thread a fixed priority, it refuses one to lanes as well, and no
    // priority of a lane needs to be lowered.
    orb.set_cpu_monitor(thread::start_at_highest_priority(|scheduling| CpuBudgetMonitor::start(NAME, scheduling))?);
    Ok(())
}

/// Starts a budget of the calling thread: when the processor time `declared` is used up, the thread
/// gets the CORBA priority `to`. Returns `None` if no monitor runs, if `to` cannot be mapped, if
/// the thread cannot be lowered to it, or if the kernel refuses the budget.
#[cold]
fn start_budget(orb: &OrbContext, to: i16, declared: Duration, charged: &ChargedOperation) -> Option<BudgetScope> {
    let monitor = orb.cpu_monitor()?;
    let to = orb.config().rt.scheduling_for(Priority::new(to)?).ok()??;
    BudgetScope::start((orb.stamp(), monitor), to, declared, charged)
}

impl OverrunMonitor {
    pub(crate) fn begin(call: &ServerCall<'_>, operation: &'static str, declared: Duration) -> Self {
        let charged = ChargedOperation::begin();
        let budget = call.orb().and_then(|orb| match orb.config().rt.overrun_action {
            OverrunAction::LowerPriority(to) => start_budget(orb, to, declared, &charged),
            OverrunAction::Run | OverrunAction::Reject => None,
        });
        OverrunMonitor { operation, declared, _budget: budget, charged }
    }

    /// Ends the operation, and reports an overrun.
    ///
    /// # Errors
    /// The error in `result`. TIMEOUT after an overrun, if [`OverrunAction::Reject`] is configured
    /// and the operation succeeded.
    pub(crate) fn end(self, call: &ServerCall<'_>, result: Result<(), SystemException>) -> Result<(), SystemException> {
        let used = self.charged.used();
        if used > self.declared { self.handle_overrun(used, call, result) } else { result }
    }

    #[cold]
    pub(crate) fn end_by_panic(self, call: &ServerCall<'_>) {
        let used = self.charged.used();
        if used > self.declared {
            self.report(used, call);
        }
    }

    fn report(&self, used: Duration, call: &ServerCall<'_>) {
        if let Some(orb) = call.orb() {
            let (operation, declared) = (self.operation, self.declared);
            orb.events().report(&Event::ExecutionTimeOverrun { operation, declared, used });
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
        match orb.config().rt.overrun_action {
            OverrunAction::Run | OverrunAction::LowerPriority(_) => result,
            OverrunAction::Reject if call.has_raised() => result,
            OverrunAction::Reject => result.and_then(|()| {
                let exception = SystemException::new(Kind::Timeout, crate::minor::OVERRUN, Completion::Yes);
                Err(exception.with_message("the operation used more processor time than it declares"))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::thread::{Scheduling, ThreadBuilder};

    use super::*;
    use crate::rt::RtConfig;
    use crate::{Orb, thread_context};

    /// Regression test: a nested operation without a budget stopped the budget of the enclosing
    /// operation.
    #[test]
    fn enclosing_budget_continues_during_an_operation_without_a_budget() {
        const LOW: i16 = 335;
        let config = RtConfig::default().overrun_action(OverrunAction::LowerPriority(LOW));
        let orb = Orb::builder().real_time(config).build().unwrap();
        let priority = || thread::scheduling(None).unwrap().priority();
        let body = move || {
            let outer_operation = ChargedOperation::begin();
            let start = |time, operation: &_| start_budget(orb.core().client(), LOW, time, operation);
            let outer = start(Duration::from_millis(5), &outer_operation).expect("a thread that can be lowered");
            thread_context::set_scheduling(Scheduling::Fifo(1)).unwrap();
            assert!(start(Duration::from_secs(1), &ChargedOperation::begin()).is_none());
            thread_context::set_scheduling(Scheduling::Fifo(50)).unwrap();
            while priority() == 50 && outer_operation.used() < Duration::from_secs(1) {}
            assert_eq!(priority(), 2);
            drop(outer);
            assert_eq!(priority(), 50);
        };
        let thread =
            ThreadBuilder::new().scheduling(Scheduling::Fifo(50)).spawn(body).expect("SCHED_FIFO is permitted");
        thread.join().unwrap();
    }
}
