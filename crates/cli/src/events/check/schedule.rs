//! The schedule of a channel: the jobs of its consumers as periodic tasks, and their response
//! times.

use std::collections::BTreeMap;

use corelane_sched::analysis::response_time::response_time;
use corelane_sched::task::{Nanos, Timing, Utilization};
use corelane_services::events::{SetArrival, SetTrigger, TimeoutKind};

use super::file::{ChannelFile, FilePublication, FileSubscription};

/// The work of one consumer for its sets with the same trigger, as a periodic task. The trigger is
/// the part of a set that bounds the rate of its arrival.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) subscription: usize,
    pub(super) trigger: JobTrigger,
    /// The most urgent and the least urgent lane in which the sets may be.
    pub(super) lanes: (usize, usize),
    pub(super) timing: Result<Timing, Undeclared>,
    /// Index of a job without a known load that may delay this job, which is then not analysed.
    pub(super) delayed_by: Option<usize>,
    pub(super) response: Option<Nanos>,
}

/// The part of a set that bounds the rate of its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobTrigger {
    /// The publication with this index in the file.
    Publication(usize),
    Timeout(TimeoutKind, Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undeclared {
    Period,
    Execution,
    /// The timeout expires once. The execution time may be declared.
    Once(Option<Nanos>),
}

impl Undeclared {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Period => "no period is declared",
            Self::Execution => "no wcet is declared",
            Self::Once(_) => "the timeout expires once",
        }
    }
}

impl Job {
    /// Returns true if the response time is computed, or has no bound.
    pub(super) const fn is_analysed(&self) -> bool {
        self.timing.is_ok() && self.delayed_by.is_none()
    }

    pub(super) fn misses(&self) -> bool {
        self.is_analysed()
            && self.timing.is_ok_and(|timing| self.response.is_none_or(|response| response > timing.deadline))
    }

    /// Returns the work by which the job may delay others, if it is known. A timeout that expires
    /// once is a task whose period has no end.
    fn load(&self) -> Option<Timing> {
        match self.timing {
            Ok(timing) => Some(timing),
            Err(Undeclared::Once(execution)) => execution.map(|execution| Timing::new(execution, Nanos::MAX)),
            Err(Undeclared::Period | Undeclared::Execution) => None,
        }
    }
}

/// Returns the jobs of a subscription. `publications` has the index of the publication of each
/// published event.
pub(super) fn jobs(
    file: &ChannelFile,
    number: usize,
    subscription: &FileSubscription,
    sets: &[SetArrival],
    publications: &[usize],
) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for set in sets {
        let job = job(file, number, subscription, set, publications);
        // An event of a publication without a source is in the sets of several sources, and starts
        // at most one job.
        match jobs.iter_mut().find(|before| before.trigger == job.trigger) {
            Some(before) => merge(before, job),
            None => jobs.push(job),
        }
    }
    jobs
}

fn merge(before: &mut Job, other: Job) {
    before.lanes = (before.lanes.0.min(other.lanes.0), before.lanes.1.max(other.lanes.1));
    before.timing = match (before.timing, other.timing) {
        (Ok(one), Ok(other)) => Ok(Timing {
            execution: one.execution.max(other.execution),
            jitter: one.jitter.max(other.jitter),
            deadline: one.deadline.min(other.deadline),
            ..one
        }),
        (Err(reason), _) | (_, Err(reason)) => Err(reason),
    };
}

fn job(
    file: &ChannelFile,
    number: usize,
    subscription: &FileSubscription,
    set: &SetArrival,
    publications: &[usize],
) -> Job {
    let of_event = |event: &usize| publications.get(*event).and_then(|number| file.publications.get(*number));
    let lane_of_event = |publication: &FilePublication| {
        let of_type = || file.lanes.iter().position(|lane| lane.types.contains(&publication.event_type));
        publication.lane.or_else(of_type).unwrap_or(file.lanes.len().saturating_sub(1))
    };
    let last = file.lanes.len().saturating_sub(1);
    let lanes = |events: &[usize]| events.iter().filter_map(of_event).map(lane_of_event).collect::<Vec<_>>();
    // A set is in the lane of its most urgent event.
    let most_urgent = lanes(&set.events).into_iter().min().unwrap_or(last);
    let least_urgent = set.groups.iter().filter_map(|group| lanes(group).into_iter().max()).min().unwrap_or(last);
    let lanes = subscription.lane.map_or((most_urgent, least_urgent), |lane| (lane, lane));
    let declared = |events: &[usize]| {
        let times = events.iter().map(|event| of_event(event).and_then(|publication| publication.wcet));
        times.sum::<Option<Nanos>>().filter(|_| !events.is_empty())
    };
    let (trigger, deadline) = match set.trigger {
        SetTrigger::Event(event) => {
            let number = publications.get(event).copied().unwrap_or_default();
            (JobTrigger::Publication(number), of_event(&event).and_then(|publication| publication.deadline))
        }
        SetTrigger::Timeout(kind, delay) => (JobTrigger::Timeout(kind, delay), None),
    };
    let wcet = subscription.wcet.or_else(|| declared(&set.events)).map(|wcet| wcet.saturating_add(file.overhead));
    let timing = match (set.period, wcet) {
        (None, _) if matches!(set.trigger, SetTrigger::Timeout(..)) => Err(Undeclared::Once(wcet)),
        (None, _) => Err(Undeclared::Period),
        (_, None) => Err(Undeclared::Execution),
        (Some(period), Some(wcet)) => Ok(Timing::new(wcet, period)
            .with_deadline(subscription.deadline.or(deadline).unwrap_or(period))
            .with_jitter(set.jitter)),
    };
    Job { subscription: number, trigger, lanes, timing, delayed_by: None, response: None }
}

/// Computes the response times of all jobs, and returns the utilization of each core. A job is
/// delayed by each other job on its core whose lane may be as urgent. If the load of one of them is
/// not known, the job has no known response time.
pub(super) fn analyse(file: &ChannelFile, jobs: &mut [Job]) -> BTreeMap<u32, Utilization> {
    let core = |job: &Job| file.subscriptions.get(job.subscription).map_or(0, |subscription| subscription.core);
    let mut results = Vec::with_capacity(jobs.len());
    let mut cores: BTreeMap<u32, Utilization> = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        let Ok(timing) = job.timing else {
            results.push((None, None));
            continue;
        };
        let of_core = cores.entry(core(job)).or_default();
        *of_core = of_core.saturating_add(timing.utilization());
        let others = jobs.iter().enumerate().filter(|(other, _)| *other != at);
        let delaying = others.filter(|(_, other)| core(other) == core(job) && other.lanes.0 <= job.lanes.1);
        let loads: Result<Vec<Timing>, usize> = delaying.map(|(number, other)| other.load().ok_or(number)).collect();
        results.push(match loads {
            // Deadlines count from the arrival of the last event of a set.
            Ok(loads) => (None, response_time(&timing, &loads).map(|response| response.from_ready)),
            Err(number) => (Some(number), None),
        });
    }
    for (job, (delayed_by, response)) in jobs.iter_mut().zip(results) {
        job.delayed_by = delayed_by;
        job.response = response;
    }
    cores
}
