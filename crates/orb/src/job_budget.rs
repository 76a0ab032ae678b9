//! The processor-time budget of the job that the calling thread runs: a request of a task of a core
//! pool.

use std::cell::Cell;
use std::time::Duration;

use corelane_sys::cpu_budget::CpuBudgetMonitor;
use corelane_sys::thread::Scheduling;

use crate::cpu_charge::{BudgetScope, ChargedOperation};

thread_local! {
    /// The budget of the job that the calling thread runs.
    static BUDGET: Cell<Option<Duration>> = const { Cell::new(None) };
    /// True if the results of the job are dropped once the budget is used up.
    static STOPS: Cell<bool> = const { Cell::new(false) };
    /// True if the results of the job were dropped.
    static HAS_STOPPED: Cell<bool> = const { Cell::new(false) };
    /// True if a request has been parked on the calling thread.
    static HAS_PARKED: Cell<bool> = const { Cell::new(false) };
    /// Processor time of the thread when the job began, less the time that does not count.
    static BEGUN_AT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The measurement of a running job.
#[derive(Debug)]
pub(crate) struct JobBudget {
    budget: Duration,
    /// The budget at whose end the thread gets a lower priority.
    scope: Option<BudgetScope>,
    charged: ChargedOperation,
}

/// A job that used more processor time than its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobOverrun {
    pub(crate) used: Duration,
    /// True if the thread lost its priority.
    pub(crate) is_demoted: bool,
    /// True if the client got TIMEOUT in place of the results.
    pub(crate) is_stopped: bool,
}

impl JobBudget {
    /// Begins a job with a processor-time budget on the calling thread. When the budget is used up,
    /// `monitor` lowers the thread to the ordinary class. With `stops` the results of the job are
    /// then dropped. `monitor` belongs to the ORB with the stamp beside it.
    pub(crate) fn begin(budget: Duration, monitor: Option<(u64, &CpuBudgetMonitor)>, stops: bool) -> Self {
        let charged = ChargedOperation::begin();
        BUDGET.set(Some(budget));
        BEGUN_AT.set(charged.started_at());
        STOPS.set(stops);
        HAS_STOPPED.set(false);
        let scope = monitor.and_then(|monitor| BudgetScope::start(monitor, Scheduling::Other, budget, &charged));
        JobBudget { budget, scope, charged }
    }

    /// Ends the job. The thread gets its priority back. Returns `None` if the job kept its budget.
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

/// Returns true if the results of the running job are dropped once its budget is used up.
#[inline]
pub(crate) fn can_stop() -> bool {
    STOPS.get()
}

/// Records that the results of the running job are dropped.
#[cold]
pub(crate) fn stop() {
    HAS_STOPPED.set(true);
}

/// Records that the request which the calling thread runs is parked, and runs later.
#[cold]
pub(crate) fn record_parked() {
    HAS_PARKED.set(true);
}

/// Returns true if a request has been parked on the calling thread since the last call.
#[inline]
pub(crate) fn take_parked() -> bool {
    HAS_PARKED.replace(false)
}

/// Returns true if the calling thread runs a job of a core pool's task that has used up its budget
/// ([`TaskRules::budget`](field@crate::rt::TaskRules::budget)). A long operation asks this now and
/// then, and returns early. Costs a system call if the job has a budget.
#[must_use]
pub fn is_job_over_budget() -> bool {
    let used = || corelane_sys::usage::thread_time().saturating_sub(BEGUN_AT.get());
    BUDGET.get().is_some_and(|budget| used() > budget)
}
