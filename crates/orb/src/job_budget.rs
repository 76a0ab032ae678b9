//! The processor-time budget of the calling thread's job: a request of a task of a core pool.

use std::cell::Cell;
use std::time::Duration;

use corelane_sys::cpu_budget::CpuBudgetMonitor;
use corelane_sys::thread::Scheduling;

use crate::cpu_charge::{BudgetScope, ChargedOperation};

thread_local! {
    static BUDGET: Cell<Option<Duration>> = const { Cell::new(None) };
    /// If true, the results of the job are dropped once the budget is used up.
    static STOPS: Cell<bool> = const { Cell::new(false) };
    static HAS_STOPPED: Cell<bool> = const { Cell::new(false) };
    static HAS_PARKED: Cell<bool> = const { Cell::new(false) };
    /// Processor time of the thread when the job began.
    static BEGUN_AT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

#[derive(Debug)]
pub(crate) struct JobBudget {
    budget: Duration,
    scope: Option<BudgetScope>,
    charged: ChargedOperation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobOverrun {
    pub(crate) used: Duration,
    pub(crate) is_demoted: bool,
    /// True if the client got TIMEOUT in place of the results.
    pub(crate) is_stopped: bool,
}

impl JobBudget {
    /// Begins a job on the calling thread. When `budget` is used up, `monitor`, if there is one,
    /// lowers the thread to the ordinary scheduling class. The number in the pair is the stamp (a
    /// random number) of the monitor's ORB. With `stops` the job's results are dropped after an
    /// overrun.
    pub(crate) fn begin(budget: Duration, monitor: Option<(u64, &CpuBudgetMonitor)>, stops: bool) -> Self {
        let charged = ChargedOperation::begin();
        BUDGET.set(Some(budget));
        BEGUN_AT.set(charged.started_at());
        STOPS.set(stops);
        HAS_STOPPED.set(false);
        let scope = monitor.and_then(|monitor| BudgetScope::start(monitor, Scheduling::Other, budget, &charged));
        JobBudget { budget, scope, charged }
    }

    /// Ends the job, and restores the thread's priority. Returns `None` if the job did not exceed
    /// its budget.
    pub(crate) fn end(mut self) -> Option<JobOverrun> {
        let is_demoted = self.scope.as_mut().is_some_and(BudgetScope::stop);
        let used = self.charged.used();
        BUDGET.set(None);
        STOPS.set(false);
        let is_stopped = HAS_STOPPED.replace(false);
        let is_over = is_demoted || is_stopped || used > self.budget;
        is_over.then_some(JobOverrun { used, is_demoted, is_stopped })
    }
}

#[inline]
pub(crate) fn can_stop() -> bool {
    STOPS.get()
}

#[cold]
pub(crate) fn stop() {
    HAS_STOPPED.set(true);
}

#[cold]
pub(crate) fn record_parked() {
    HAS_PARKED.set(true);
}

#[inline]
pub(crate) fn take_parked() -> bool {
    HAS_PARKED.replace(false)
}

/// Returns true if the calling thread runs a job of a core pool's task that has used up its budget
/// ([`TaskRules::budget`](field@crate::rt::TaskRules::budget)). A long operation can return early
/// then. Costs a system call if the job has a budget.
#[must_use]
pub fn is_job_over_budget() -> bool {
    let used = || corelane_sys::usage::thread_time().saturating_sub(BEGUN_AT.get());
    BUDGET.get().is_some_and(|budget| used() > budget)
}
