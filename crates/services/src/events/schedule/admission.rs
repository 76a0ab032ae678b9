//! Admission: a publication or a consumer that names an entry is connected only if all admitted
//! consumers then meet their deadlines.
//!
//! The jobs are those of the declared events alone. A set with an event beyond its declaration is
//! in the least urgent lane, which delays no job.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use corelane_sched::analysis::StepBudget;
use corelane_sched::analysis::sensitivity::{MAX_SCALING_FACTOR, Thousandths, find_largest};
use corelane_sched::quantity::format_time;
use corelane_sched::task::{MAX_PERIOD, Nanos};

use super::entries::EntryUse;
use super::jobs::{ConsumerJob, PublicationLoad, ScheduledLoad, SubscriptionLoad};
use crate::events::expression::EventNames;
use crate::events::filter::EventFilter;
use crate::events::header::EventHeader;
use crate::events::reach::PublishedEventKind;

/// Maximum number of steps of a decision, and separately of the search for a load that would fit.
/// The thread of the connecting call makes these steps.
const MAX_STEPS: u32 = 1 << 21;
const MAX_PUBLICATIONS: usize = 256;
const MAX_CONSUMERS: usize = 256;

/// The declaration of a publication, whose supplier is admitted or asks for admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) struct AdmittedPublication {
    pub(in crate::events) used: EntryUse,
    pub(in crate::events) header: EventHeader,
    pub(in crate::events) period: Nanos,
    pub(in crate::events) load: PublicationLoad,
}

/// The declaration of a consumer that is admitted or asks for admission. A clone copies no filter.
#[derive(Clone, Debug)]
pub(in crate::events) struct AdmittedConsumer {
    pub(in crate::events) proxy: u64,
    pub(in crate::events) used: Arc<[EntryUse]>,
    /// Shared with the channel, which reads it for each event.
    pub(in crate::events) filter: Arc<EventFilter>,
    pub(in crate::events) load: SubscriptionLoad,
}

#[derive(Clone, Debug)]
pub(in crate::events) enum Candidate {
    Supplier(Vec<AdmittedPublication>),
    Consumer(Box<AdmittedConsumer>),
}

/// The kind of a peer that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedPeer {
    /// A supplier with its publications.
    Supplier,
    /// A consumer with its dependencies.
    Consumer,
}

/// The test that a connection did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleTest {
    /// An admitted consumer, or the new one, would miss its deadline. Times are in nanoseconds.
    ResponseTime {
        /// The response time; `None` if it has no bound, or if the analysis reached its maximum
        /// number of steps.
        response: Option<Nanos>,
        /// The deadline of the consumer.
        deadline: Nanos,
    },
    /// The filters and publications are too many for the maximum number of steps of the analysis.
    TooComplex,
    /// Neither the consumer nor the publications of its events declare an execution time.
    NoExecutionTime,
    /// The entry has its maximum number of users.
    EntryUsers {
        /// The number of the entry.
        entry: i32,
        /// The maximum number of publications or of consumers
        /// ([`PublicationEntry::max_users`](crate::events::PublicationEntry::max_users),
        /// [`SubscriptionEntry::max_users`](crate::events::SubscriptionEntry::max_users)).
        max: usize,
    },
    /// The channel has the maximum number of admitted publications, or of admitted consumers.
    ChannelLimit {
        /// The maximum number of publications, or of consumers.
        max: usize,
    },
}

/// A load that would fit in place of the refused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissibleLoad {
    /// The longest execution time of the consumer that would fit, in nanoseconds.
    ExecutionTime(Nanos),
    /// The smallest factor that would fit for the periods of all publications of the supplier, in
    /// thousandths.
    PeriodFactor(Thousandths),
}

/// The refusal of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmissionRefusal {
    /// The kind of the refused peer.
    pub peer: RefusedPeer,
    /// The number of the refused peer's proxy.
    pub proxy: u64,
    /// The number of the proxy of the consumer that does not pass the test; `None` if the test
    /// concerns no consumer.
    pub consumer: Option<u64>,
    /// The lane in which the consumer does not pass the test, by the number given to
    /// [`EventLane::new`](crate::events::EventLane::new); 0 without a consumer.
    pub lane: i32,
    /// The core of the consumer that does not pass the test; 0 without a consumer.
    pub core: u32,
    /// The test that the connection did not pass.
    pub failed_test: ScheduleTest,
    /// A load that would fit; `None` if the search found none.
    pub admissible: Option<AdmissibleLoad>,
}

impl AdmissionRefusal {
    /// Returns the time in nanoseconds by which the response time exceeds the deadline; `None`
    /// without a bound, and for other tests.
    #[must_use]
    pub fn deadline_excess(&self) -> Option<Nanos> {
        match self.failed_test {
            ScheduleTest::ResponseTime { response, deadline } => Some(response?.saturating_sub(deadline)),
            ScheduleTest::TooComplex
            | ScheduleTest::NoExecutionTime
            | ScheduleTest::EntryUsers { .. }
            | ScheduleTest::ChannelLimit { .. } => None,
        }
    }
}

impl fmt::Display for AdmissionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.peer {
            RefusedPeer::Supplier => "supplier",
            RefusedPeer::Consumer => "consumer",
        };
        write!(f, "the {kind} {} does not fit the schedule: ", self.proxy)?;
        if let Some(consumer) = self.consumer {
            write!(f, "consumer {consumer} in the lane {} on core {}: ", self.lane, self.core)?;
        }
        match self.failed_test {
            ScheduleTest::ResponseTime { response: Some(response), deadline } => {
                let excess = format_time(response.saturating_sub(deadline));
                let (response, deadline) = (format_time(response), format_time(deadline));
                write!(f, "response time {response}, deadline {deadline}, excess {excess}")?;
            }
            ScheduleTest::ResponseTime { response: None, deadline } => {
                write!(f, "the response time has no known bound, deadline {}", format_time(deadline))?;
            }
            ScheduleTest::TooComplex => f.write_str("the filters and publications are too many to analyse")?,
            ScheduleTest::NoExecutionTime => f.write_str("no wcet is declared")?,
            ScheduleTest::EntryUsers { entry, max } => {
                write!(f, "the entry {entry} has its maximum number of users, {max}")?;
            }
            ScheduleTest::ChannelLimit { max } => {
                write!(f, "the channel has at most {max} admitted publications, and as many admitted consumers")?;
            }
        }
        match self.admissible {
            Some(AdmissibleLoad::ExecutionTime(time)) => write!(f, "; a wcet of {} would fit", format_time(time)),
            Some(AdmissibleLoad::PeriodFactor(factor)) => {
                write!(f, "; periods {}.{:03} times as long would fit", factor / 1_000, factor % 1_000)
            }
            None => Ok(()),
        }
    }
}

impl std::error::Error for AdmissionRefusal {}

struct TooManySteps;

#[derive(Clone, Debug, Default)]
pub(in crate::events) struct ChannelLoad {
    /// The `rt_info` of each lane, the most urgent first.
    pub(in crate::events) lanes: Vec<i32>,
    pub(in crate::events) overhead: Nanos,
    pub(in crate::events) publications: Vec<AdmittedPublication>,
    pub(in crate::events) consumers: Vec<AdmittedConsumer>,
}

impl ChannelLoad {
    /// Returns an error if the candidate does not fit beside the admitted peers. `proxy` is the
    /// number of the candidate's proxy.
    pub(in crate::events) fn admit(mut self, proxy: u64, candidate: Candidate) -> Result<(), AdmissionRefusal> {
        let (publications, consumers) = (self.publications.len(), self.consumers.len());
        let peer = match candidate {
            Candidate::Supplier(new) => {
                self.publications.extend(new);
                RefusedPeer::Supplier
            }
            Candidate::Consumer(new) => {
                self.consumers.push(*new);
                RefusedPeer::Consumer
            }
        };
        let refusal = |consumer, lane, core, test, admissible| {
            Err(AdmissionRefusal { peer, proxy, consumer, lane, core, failed_test: test, admissible })
        };
        for (count, max) in [(self.publications.len(), MAX_PUBLICATIONS), (self.consumers.len(), MAX_CONSUMERS)] {
            if count > max {
                return refusal(None, 0, 0, ScheduleTest::ChannelLimit { max }, None);
            }
        }
        if let Some(EntryUse { entry, max_users: max }) = self.crowded_entry() {
            return refusal(None, 0, 0, ScheduleTest::EntryUsers { entry, max }, None);
        }
        let failing = match self.failing_job(&mut StepBudget::new(MAX_STEPS)) {
            Ok(failing) => failing,
            Err(TooManySteps) => return refusal(None, 0, 0, ScheduleTest::TooComplex, None),
        };
        let Some((job, test)) = failing else { return Ok(()) };
        let mut steps = StepBudget::new(MAX_STEPS);
        let admissible = match peer {
            RefusedPeer::Consumer => self.longest_execution(consumers, &mut steps).map(AdmissibleLoad::ExecutionTime),
            RefusedPeer::Supplier => self.period_factor(publications, &mut steps).map(AdmissibleLoad::PeriodFactor),
        };
        let consumer = self.consumers.get(job.subscription);
        let lane = self.lanes.get(job.lanes.1).copied().unwrap_or_default();
        refusal(consumer.map(|it| it.proxy), lane, consumer.map_or(0, |it| it.load.core), test, admissible)
    }

    /// Returns an entry that has more users than it may have, if there is one.
    fn crowded_entry(&self) -> Option<EntryUse> {
        let publications = self.publications.iter().map(|publication| publication.used);
        let mut uses = publications.chain(self.consumers.iter().flat_map(|consumer| consumer.used.iter().copied()));
        let mut users: BTreeMap<i32, usize> = BTreeMap::new();
        uses.find(|used| {
            let count = users.entry(used.entry).or_default();
            *count += 1;
            *count > used.max_users
        })
    }

    fn longest_execution(&self, consumer: usize, steps: &mut StepBudget) -> Option<Nanos> {
        let mut tried = self.clone();
        find_largest(1, MAX_PERIOD, |execution| {
            if let Some(consumer) = tried.consumers.get_mut(consumer) {
                consumer.load.wcet = Some(execution);
            }
            tried.passes(steps)
        })
    }

    /// Returns the smallest factor that fits for the periods of the publications from the index
    /// `first` on; `None` if the search finds none.
    fn period_factor(&self, first: usize, steps: &mut StepBudget) -> Option<Thousandths> {
        let mut tried = self.clone();
        let less = find_largest(0, MAX_SCALING_FACTOR - 1_000, |less| {
            for (tried, given) in tried.publications.iter_mut().zip(&self.publications).skip(first) {
                let period = u128::from(given.period) * u128::from(MAX_SCALING_FACTOR - less);
                tried.period = Nanos::try_from(period.div_ceil(1_000)).unwrap_or(Nanos::MAX);
            }
            tried.passes(steps)
        })?;
        Some(MAX_SCALING_FACTOR - less)
    }

    fn passes(&self, steps: &mut StepBudget) -> bool {
        matches!(self.failing_job(steps), Ok(None))
    }

    /// Returns the most urgent job that does not pass, with its test, if there is one.
    fn failing_job(&self, steps: &mut StepBudget) -> Result<Option<(ConsumerJob, ScheduleTest)>, TooManySteps> {
        let nodes: usize = self.consumers.iter().map(|consumer| consumer.filter.nodes().len()).sum();
        if !steps.try_take(nodes.saturating_mul(self.publications.len())) || steps.is_exhausted() {
            return Err(TooManySteps);
        }
        let (load, mut jobs) = self.jobs();
        // The analysis compares each job with each other job, so it costs the square of their
        // number.
        if !steps.try_take(jobs.len().saturating_mul(jobs.len())) || steps.is_exhausted() {
            return Err(TooManySteps);
        }
        load.analyse(&mut jobs, steps);
        let test = |job: &ConsumerJob| match job.timing {
            Ok(timing) if job.may_miss_deadline() => {
                Some(ScheduleTest::ResponseTime { response: job.response, deadline: timing.deadline })
            }
            // This job passes even if a job without an execution time delays it, because that other
            // job fails.
            Ok(_) => None,
            Err(_) if job.has_load() => None,
            Err(_) => Some(ScheduleTest::NoExecutionTime),
        };
        let failing = jobs.into_iter().filter_map(|job| test(&job).map(|test| (job, test)));
        Ok(failing.min_by_key(|(job, _)| job.lanes.1))
    }

    /// Returns the load of all admitted peers, and the jobs of the consumers, except the jobs that
    /// are in the least urgent lane only.
    pub(super) fn jobs(&self) -> (ScheduledLoad, Vec<ConsumerJob>) {
        let load = ScheduledLoad {
            lanes: self.lanes.len(),
            overhead: self.overhead,
            publications: self.publications.iter().map(|publication| publication.load).collect(),
            subscriptions: self.consumers.iter().map(|consumer| consumer.load).collect(),
        };
        let event = |publication: &AdmittedPublication| PublishedEventKind {
            header: publication.header,
            period: Some(publication.period),
        };
        let published: Vec<PublishedEventKind> = self.publications.iter().map(event).collect();
        let indices: Vec<usize> = (0..published.len()).collect();
        let names = EventNames::new();
        let mut jobs = Vec::new();
        for (number, consumer) in self.consumers.iter().enumerate() {
            let reach = consumer.filter.analyse_reach(&published, &names);
            jobs.extend(load.consumer_jobs(number, &reach.deliverable_sets, &indices));
        }
        jobs.retain(|job| job.lanes.0 + 1 < self.lanes.len());
        (load, jobs)
    }
}
