//! The work of consumers as periodic tasks, and their response times by `corelane-sched`.

use std::collections::BTreeMap;

use corelane_sched::analysis::StepBudget;
use corelane_sched::analysis::response_time::response_time_within;
use corelane_sched::task::{Nanos, Timing, Utilization};

use crate::events::designator::TimeoutKind;
use crate::events::reach::{DeliverySetArrival, DeliveryTrigger};

/// The declared load of the events of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublicationLoad {
    /// Worst-case execution time of a consumer that gets one event, in nanoseconds; `None` if it is
    /// not declared.
    pub wcet: Option<Nanos>,
    /// The time after which consumers must have handled an event, in nanoseconds; `None` for the
    /// period.
    pub deadline: Option<Nanos>,
    /// The time by which an event may be early or late, in nanoseconds.
    pub jitter: Nanos,
    /// The number of the lane of the events, from 0, the most urgent.
    pub lane: usize,
}

/// The declared load of a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionLoad {
    /// Worst-case execution time of the consumer for a set, in nanoseconds; `None` for the sum of
    /// the times that the publications of the set's events declare.
    pub wcet: Option<Nanos>,
    /// The time after which the consumer must have handled a set, in nanoseconds; `None` for that
    /// of the publication that triggers the set.
    pub deadline: Option<Nanos>,
    /// The lane of all sets of the consumer; `None` if the events decide.
    pub lane: Option<usize>,
    /// The core on which the consumer runs.
    pub core: u32,
}

/// The work of one consumer for its sets with the same trigger, as a periodic task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerJob {
    /// The index of the subscription in [`ScheduledLoad::subscriptions`].
    pub subscription: usize,
    /// The part of the sets that bounds the rate of their arrival.
    pub trigger: JobTrigger,
    /// The most urgent and the least urgent lane in which the sets may be.
    pub lanes: (usize, usize),
    /// The task, or the reason why its period or execution time is not known.
    pub timing: Result<Timing, UndeclaredTiming>,
    /// Index of a job without a known load that may delay this job, which then has no response
    /// time.
    pub delayed_by: Option<usize>,
    /// The longest time from the arrival of a set's last event until its consumer has handled it,
    /// in nanoseconds; `None` if it is not analysed or has no known bound.
    pub response: Option<Nanos>,
}

/// The part of a set that bounds the rate of its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTrigger {
    /// The publication with this index in [`ScheduledLoad::publications`].
    Publication(usize),
    /// A timeout with this delay or period in nanoseconds.
    Timeout(TimeoutKind, Nanos),
}

/// The reason why a job is not analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndeclaredTiming {
    /// No period is declared.
    Period,
    /// No execution time is declared.
    Execution,
    /// The timeout expires once. The value is the execution time in nanoseconds, if it is declared.
    Once(Option<Nanos>),
}

impl UndeclaredTiming {
    /// Returns the reason as text.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Period => "no period is declared",
            Self::Execution => "no wcet is declared",
            Self::Once(_) => "the timeout expires once",
        }
    }
}

impl ConsumerJob {
    /// Returns true if the times of the job, and of all jobs that may delay it, are known.
    #[must_use]
    pub const fn is_analysed(&self) -> bool {
        self.timing.is_ok() && self.delayed_by.is_none()
    }

    /// Returns true if the job is analysed and may miss its deadline.
    #[must_use]
    pub fn may_miss_deadline(&self) -> bool {
        self.is_analysed()
            && self.timing.is_ok_and(|timing| self.response.is_none_or(|response| response > timing.deadline))
    }

    pub(super) fn has_load(&self) -> bool {
        self.load().is_some()
    }

    /// Returns the work by which the job may delay others, if it is known. A timeout that expires
    /// once is a task whose period has no end.
    fn load(&self) -> Option<Timing> {
        match self.timing {
            Ok(timing) => Some(timing),
            Err(UndeclaredTiming::Once(execution)) => execution.map(|execution| Timing::new(execution, Nanos::MAX)),
            Err(UndeclaredTiming::Period | UndeclaredTiming::Execution) => None,
        }
    }
}

/// The declared loads of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduledLoad {
    /// Number of lanes; 0 counts as 1.
    pub lanes: usize,
    /// Processor time of the channel for each delivery, in nanoseconds.
    pub overhead: Nanos,
    /// The load of each publication.
    pub publications: Vec<PublicationLoad>,
    /// The load of each subscription.
    pub subscriptions: Vec<SubscriptionLoad>,
}

impl ScheduledLoad {
    /// Returns the jobs of a subscription, for the sets that its filter delivers
    /// ([`EventFilter::analyse_reach`](crate::events::EventFilter::analyse_reach)). `publications`
    /// has the index of the publication of each published event.
    #[must_use]
    pub fn consumer_jobs(
        &self,
        subscription: usize,
        sets: &[DeliverySetArrival],
        publications: &[usize],
    ) -> Vec<ConsumerJob> {
        let mut jobs: Vec<ConsumerJob> = Vec::new();
        for set in sets {
            let job = self.job(subscription, set, publications);
            // An event of a publication without a source is in the sets of several sources, and
            // starts at most one job. So jobs with the same trigger are merged.
            match jobs.iter_mut().find(|before| before.trigger == job.trigger) {
                Some(before) => merge(before, job),
                None => jobs.push(job),
            }
        }
        jobs
    }

    fn job(&self, number: usize, set: &DeliverySetArrival, publications: &[usize]) -> ConsumerJob {
        let subscription = self.subscriptions.get(number).copied().unwrap_or_default();
        let of_event = |event: &usize| publications.get(*event).and_then(|number| self.publications.get(*number));
        let last = self.lanes.saturating_sub(1);
        let lanes = |events: &[usize]| events.iter().filter_map(of_event).map(|it| it.lane).collect::<Vec<_>>();
        // A set is in the lane of its most urgent event.
        let most_urgent = lanes(&set.events).into_iter().min().unwrap_or(last);
        let least_urgent = set.groups.iter().filter_map(|group| lanes(group).into_iter().max()).min().unwrap_or(last);
        let lanes = subscription.lane.map_or((most_urgent, least_urgent), |lane| (lane, lane));
        let declared = |events: &[usize]| {
            let times = events.iter().map(|event| of_event(event).and_then(|publication| publication.wcet));
            let sum = times.reduce(|sum, time| Some(sum?.saturating_add(time?)));
            sum.flatten()
        };
        let (trigger, of_trigger) = match set.trigger {
            DeliveryTrigger::Event(event) => {
                let number = publications.get(event).copied().unwrap_or_default();
                (JobTrigger::Publication(number), of_event(&event).copied().unwrap_or_default())
            }
            DeliveryTrigger::Timeout(kind, delay) => (JobTrigger::Timeout(kind, delay), PublicationLoad::default()),
        };
        let wcet = subscription.wcet.or_else(|| declared(&set.events)).map(|wcet| wcet.saturating_add(self.overhead));
        let timing = match (set.period, wcet) {
            (None, _) if matches!(set.trigger, DeliveryTrigger::Timeout(..)) => Err(UndeclaredTiming::Once(wcet)),
            (None, _) => Err(UndeclaredTiming::Period),
            (_, None) => Err(UndeclaredTiming::Execution),
            (Some(period), Some(wcet)) => Ok(Timing::new(wcet, period)
                .with_deadline(subscription.deadline.or(of_trigger.deadline).unwrap_or(period))
                .with_jitter(set.jitter.saturating_add(of_trigger.jitter))),
        };
        ConsumerJob { subscription: number, trigger, lanes, timing, delayed_by: None, response: None }
    }

    /// Computes the response times of all jobs, and returns the utilization of each core by the
    /// jobs with known times. A job is delayed by each other job on its core whose lane may be as
    /// urgent or more urgent. If the load of one of these other jobs is not known, or if `steps`
    /// end, the job has no known response time.
    pub fn analyse(&self, jobs: &mut [ConsumerJob], steps: &mut StepBudget) -> BTreeMap<u32, Utilization> {
        let core = |job: &ConsumerJob| self.subscriptions.get(job.subscription).map_or(0, |it| it.core);
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
            let loads: Result<Vec<Timing>, usize> =
                delaying.map(|(number, other)| other.load().ok_or(number)).collect();
            results.push(match loads {
                // Deadlines count from the arrival of the last event of a set.
                Ok(loads) => (None, response_time_within(&timing, &loads, steps).map(|response| response.from_ready)),
                Err(number) => (Some(number), None),
            });
        }
        for (job, (delayed_by, response)) in jobs.iter_mut().zip(results) {
            job.delayed_by = delayed_by;
            job.response = response;
        }
        cores
    }
}

fn merge(before: &mut ConsumerJob, other: ConsumerJob) {
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
