//! The schedule of a channel: the jobs of its consumers as periodic tasks, and their response times.

use std::collections::BTreeMap;

use corelane_sched::analysis::response_time::response_time;
use corelane_sched::task::{Nanos, Timing, Utilization};
use corelane_services::events::{SetArrival, SetTrigger, TimeoutKind};

use super::file::{ChannelFile, FilePublication, FileSubscription};

/// The handling of the sets of one kind by one consumer.
#[derive(Debug)]
pub(super) struct Job {
    /// The number of the subscription.
    pub(super) subscription: usize,
    pub(super) trigger: JobTrigger,
    /// The most urgent and the least urgent lane in which the sets may be.
    pub(super) lanes: (usize, usize),
    pub(super) timing: Result<Timing, Undeclared>,
    /// The worst-case response time, if it is known and has a bound.
    pub(super) response: Option<Nanos>,
}

/// The event whose arrival starts a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobTrigger {
    /// The publication with this number.
    Publication(usize),
    Timeout(TimeoutKind, Nanos),
}

/// The reason why a job is not analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undeclared {
    Period,
    Execution,
    /// The timeout expires once.
    Once,
}

impl Undeclared {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Period => "no period is declared",
            Self::Execution => "no wcet is declared",
            Self::Once => "the timeout expires once",
        }
    }
}

impl Job {
    /// Returns true if the job is analysed and misses its deadline.
    pub(super) fn misses(&self) -> bool {
        self.timing.is_ok_and(|timing| self.response.is_none_or(|response| response > timing.deadline))
    }
}

/// Returns the jobs of a subscription. `publications` has the publication of each published event.
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
    let timing = match (set.period, subscription.wcet.or_else(|| declared(&set.events))) {
        (None, _) if matches!(set.trigger, SetTrigger::Timeout(..)) => Err(Undeclared::Once),
        (None, _) => Err(Undeclared::Period),
        (_, None) => Err(Undeclared::Execution),
        (Some(period), Some(wcet)) => Ok(Timing::new(wcet.saturating_add(file.overhead), period)
            .with_deadline(subscription.deadline.or(deadline).unwrap_or(period))
            .with_jitter(set.jitter)),
    };
    Job { subscription: number, trigger, lanes, timing, response: None }
}

/// Computes the response times of all jobs, and returns the utilization of each core. A job is
/// delayed by each other job on its core whose lane may be as urgent.
pub(super) fn analyse(file: &ChannelFile, jobs: &mut [Job]) -> BTreeMap<u32, Utilization> {
    let core = |job: &Job| file.subscriptions.get(job.subscription).map_or(0, |subscription| subscription.core);
    let mut responses = Vec::with_capacity(jobs.len());
    let mut cores: BTreeMap<u32, Utilization> = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        let Ok(timing) = job.timing else {
            responses.push(None);
            continue;
        };
        let of_core = cores.entry(core(job)).or_default();
        *of_core = of_core.saturating_add(timing.utilization());
        let others = jobs.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
        let delaying = others.filter(|other| core(other) == core(job) && other.lanes.0 <= job.lanes.1);
        let interfering: Vec<Timing> = delaying.filter_map(|other| other.timing.ok()).collect();
        // Deadlines count from the arrival of the last event of a set.
        responses.push(response_time(&timing, &interfering).map(|response| response.from_ready));
    }
    for (job, response) in jobs.iter_mut().zip(responses) {
        job.response = response;
    }
    cores
}
