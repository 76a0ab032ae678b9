//! Detection of operations that take longer than they declare (`@wcet`).
//!
//! The clock is the thread's processor time. It excludes waiting, preemption, and requests served
//! while a nested call waits. It is read twice for each request whose operation declares a time,
//! and never otherwise.
//!
//! With [`OverrunAction::LowerPriority`] the kernel also watches that clock while the operation
//! runs, and the monitor lowers the thread (`sys::cpu_budget`).

use std::time::Duration;

use corelane_sched::Priority;

use super::OverrunAction;
use crate::cpu_charge::{BudgetScope, ChargedOperation};
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb::Core;
use crate::servant::ServerCall;

/// The measurement of a running operation that declared its maximum processor time.
#[derive(Debug)]
pub(crate) struct OverrunMonitor {
    operation: &'static str,
    declared: Duration,
    /// Lowers the thread when the declared time is used; ends with the operation.
    _budget: Option<BudgetScope>,
    charged: ChargedOperation,
}

/// Starts a budget that has the kernel lower the calling thread to CORBA priority `to`.
#[cold]
fn start_budget(core: &Core, to: i16, declared: Duration, charged: &ChargedOperation) -> Option<BudgetScope> {
    let monitor = core.rt().cpu_monitor()?;
    let to = core.config().rt.scheduling_for(Priority::new(to)?).ok()??;
    BudgetScope::start((core.poa_table().stamp, monitor), to, declared, charged)
}

impl OverrunMonitor {
    /// Begins to measure `operation` on the calling thread.
    pub(crate) fn begin(call: &ServerCall<'_>, operation: &'static str, declared: Duration) -> Self {
        let charged = ChargedOperation::begin();
        let budget = call.core().and_then(|core| match core.config().rt.overruns {
            OverrunAction::LowerPriority(to) => start_budget(core, to, declared, &charged),
            OverrunAction::Run | OverrunAction::Reject => None,
        });
        OverrunMonitor { operation, declared, _budget: budget, charged }
    }

    /// Ends the measurement of an operation that returned `result`.
    ///
    /// # Errors
    /// The error in `result`; TIMEOUT if the configuration rejects late results.
    pub(crate) fn end(self, call: &ServerCall<'_>, result: Result<(), SystemException>) -> Result<(), SystemException> {
        let used = self.charged.used();
        if used > self.declared { self.handle_overrun(used, call, result) } else { result }
    }

    /// Ends the measurement of an operation that panicked.
    #[cold]
    pub(crate) fn end_by_panic(self, call: &ServerCall<'_>) {
        let used = self.charged.used();
        if used > self.declared {
            self.report(used, call);
        }
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
