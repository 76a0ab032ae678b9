//! The periodic tasks of the clients: the server admits them, and runs their calls on one core.

use std::time::Duration;

use corelane::Orb;
use corelane::rt::CorePoolConfig;
use corelane_sched::allocation::Machine;
use corelane_services::cores::protocol::tasks::AdmitError;
use corelane_services::cores::protocol::{AdmissionTest, Criticality, JobOverrun, Rejected, TaskSpec, TaskTiming};
use corelane_services::cores::{AdmissionConfig, AdmissionService};

use crate::Result;

/// The only core that runs tasks. With one core, the demo refuses a task of the same size on every
/// machine.
const CORE: usize = 0;

/// Serves an admission object, whose tasks run on one core.
pub(crate) fn serve(orb: &Orb) -> Result<AdmissionService> {
    let pool = CorePoolConfig::default().name("tasks").cores([CORE]);
    Ok(AdmissionConfig::new(Machine::with_cores(1)).core_pool(pool).serve(orb)?)
}

/// Returns the reason why a task was refused, with the test that it failed.
pub(crate) fn refusal(error: AdmitError) -> String {
    let AdmitError::Rejected(Rejected { test, reason, .. }) = error else {
        return format!("the server does not decide: {error:?}");
    };
    let test = match test {
        AdmissionTest::CapacityTest => "capacity test",
        AdmissionTest::DeadlineTest => "deadline test",
        AdmissionTest::LevelTest => "test of priority levels",
        AdmissionTest::CoreTest => "test for a core",
    };
    format!("{test}: {reason}")
}

/// Returns a task that uses at most `execution` of processor time in each call, and makes at most
/// `rate` calls per second.
pub(crate) fn task(name: &str, execution: Duration, rate: u32, deadline: Duration) -> TaskSpec {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let timing = TaskTiming {
        execution: nanoseconds(execution),
        period: nanoseconds(Duration::from_secs(1) / rate),
        deadline: nanoseconds(deadline),
        jitter: 0,
        blocking: 0,
        min_distance: 0,
    };
    TaskSpec {
        name: name.to_owned(),
        target: None,
        operation: String::new(),
        timing,
        importance: Criticality::Normal,
        core: -1,
        lease: 0,
        overrun: JobOverrun::Report,
    }
}
