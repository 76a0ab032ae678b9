//! The measurements of a core pool, as the admission object reports them.

use std::time::Duration;

use corelane::rt::{BestEffortUse, CoreJob, CorePool, TaskMeasurement};

use super::idl::cores as idl;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn reported_times(measured: &TaskMeasurement) -> idl::TaskMeasurement {
    idl::TaskMeasurement {
        task: measured.task,
        jobs: measured.jobs,
        shortest: nanos(measured.min_response),
        mean: nanos(measured.mean_response),
        longest: nanos(measured.max_response),
    }
}

fn reported_use(share: &BestEffortUse) -> idl::BestEffortUse {
    idl::BestEffortUse {
        core: u32::try_from(share.core).unwrap_or(u32::MAX),
        used: nanos(share.used_time),
        exhausted: share.exhausted_periods,
        guaranteed: share.runs_above_tasks,
    }
}

pub(super) fn measurements(pool: Option<&CorePool>) -> idl::Measurements {
    let counts = pool.map(CorePool::counts).unwrap_or_default();
    idl::Measurements {
        has_pool: pool.is_some(),
        advisory_reason: pool.and_then(CorePool::missing_guarantee_reason).unwrap_or_default(),
        tasks: pool.map(CorePool::measurements).unwrap_or_default().iter().map(reported_times).collect(),
        counts: idl::PoolCounts {
            bound: counts.connections_bound,
            bound_now: counts.currently_bound_connections,
            borrowed: counts.threads_borrowed,
            spawned: counts.threads_started,
            moved: counts.threads_moved,
            not_bound: counts.requests_not_bound,
            handed_over: counts.requests_handed_over,
            without_task: counts.requests_without_task,
        },
        best_effort: pool.map(CorePool::best_effort_uses).unwrap_or_default().iter().map(reported_use).collect(),
        led: counts.led,
        without_thread: counts.without_thread,
    }
}

/// Returns the number from which to ask next, and up to `most` records of jobs from number `first`
/// on.
pub(super) fn recorded_jobs(pool: Option<&CorePool>, first: u64, most: u32) -> (u64, idl::JobRecords) {
    let Some(pool) = pool else { return (first, Vec::new()) };
    let batch = pool.recorded_jobs(first, usize::try_from(most).unwrap_or(usize::MAX));
    let record = |job: &CoreJob| idl::JobRecord {
        number: job.number,
        task: job.task,
        core: u32::try_from(job.core).unwrap_or(u32::MAX),
        start: job.started_at,
        finish: job.ended_at,
        processor_time: nanos(job.processor_time),
    };
    (batch.next_number, batch.jobs.iter().map(record).collect())
}
