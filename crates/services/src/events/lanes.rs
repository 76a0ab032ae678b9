//! The lanes of a channel: a thread for each consumer and preemption priority.

use std::collections::{BTreeSet, HashMap};

use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtCurrent, RtPolicies};
use corelane::{Completion, Orb, SystemException, SystemExceptionKind as Kind};
use corelane_sys::thread::ThreadBuilder;

use super::header::EventType;

const MAX_LANES: usize = 16;

/// A lane of a channel: the events of one preemption priority, for example of one rate group.
///
/// In a channel with lanes ([`EventChannelBuilder::lanes`](super::EventChannelBuilder::lanes)) a
/// push consumer has a queue, a thread and a connection for each lane in which it gets events. A
/// gateway in the channel's process needs none.
///
/// ```
/// use corelane_services::events::{EventChannel, EventLane, EventType};
///
/// // `rt_info` 1 names events of 20 Hz, `rt_info` 2 events of 5 Hz. Events of the type 40 belong to
/// // the first lane even if their suppliers name no `rt_info`.
/// let fast = EventLane::new(1).event_type(EventType(40));
/// let channel = EventChannel::builder().lanes([fast, EventLane::new(2)]);
/// # let _ = channel;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLane {
    rt_info: i32,
    priority: Option<i16>,
    event_types: Vec<EventType>,
}

impl EventLane {
    /// Creates a lane that dependencies and publications name by this `rt_info`, which is not 0.
    #[must_use]
    pub const fn new(rt_info: i32) -> Self {
        Self { rt_info, priority: None, event_types: Vec::new() }
    }

    /// Sets the CORBA priority of the lane's threads, and of the calls that they make. The ORB's
    /// priority mapping converts it to a priority of the kernel. Default: the threads inherit class
    /// and priority from the thread that connects the consumer.
    #[must_use]
    pub const fn priority(mut self, priority: i16) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Puts the events of this type into the lane if their supplier names no `rt_info`. Suppliers
    /// of CORBA's Event Service name none.
    #[must_use]
    pub fn event_type(mut self, event_type: EventType) -> Self {
        self.event_types.push(event_type);
        self
    }
}

/// Creates a thread pool with a lane of one thread for each priority of `lanes`, and returns
/// policies with which channels receive calls in this pool
/// ([`EventChannelBuilder::real_time`](super::EventChannelBuilder::real_time)).
///
/// A supplier's call runs in the pool's lane with the highest priority that is not above the CORBA
/// priority of the supplier's thread (CLIENT_PROPAGATED with priority bands). So no push waits for
/// a thread that serves a lower band. The lanes have separate addresses, from which clients choose
/// by the references of the channel's objects. Calls without a priority run in the lowest lane. A
/// lane of `lanes` without a priority has the priority 0 here.
///
/// `ceiling` is the highest priority that calls from other machines may carry. The ORB refuses
/// their calls above it with NO_PERMISSION, and their oneway pushes above it are lost. `None`
/// permits such calls only the priority of the lowest lane ([`LaneConfig::max_request_priority`]).
///
/// A thread of the pool calls a consumer in the channel's process itself only if the consumer's POA
/// has these policies, too. Otherwise a thread of the consumer's pool runs the push.
///
/// A lane has one thread, so a call that waits delays all later calls to the lane. Do not use the
/// policies for a durable channel, whose pushes wait for the disk. A channel that consumers pull
/// from needs [`max_waiting_pulls(0)`](super::EventChannelBuilder::max_waiting_pulls).
///
/// ```
/// use corelane::Orb;
/// use corelane::rt::{RtConfig, SchedulingClass};
/// use corelane_services::events::{EventChannel, EventLane, receive_lanes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let rt = RtConfig::default().scheduling(SchedulingClass::Fair);
/// let orb = Orb::builder().real_time(rt).listen("tcp:127.0.0.1:0").build()?;
/// let lanes = [EventLane::new(20).priority(900), EventLane::new(1).priority(100)];
/// let policies = receive_lanes(&orb, &lanes, None)?;
/// let channel = EventChannel::builder().lanes(lanes).real_time(policies).serve(&orb)?;
/// # let _ = channel;
/// # Ok(()) }
/// ```
///
/// # Errors
/// BAD_PARAM if `lanes` is empty or has a negative priority; the errors of
/// [`RtOrb::create_threadpool_with_lanes`](corelane::rt::RtOrb::create_threadpool_with_lanes).
pub fn receive_lanes(orb: &Orb, lanes: &[EventLane], ceiling: Option<i16>) -> Result<RtPolicies, SystemException> {
    let priorities: BTreeSet<i16> = lanes.iter().map(|lane| lane.priority.unwrap_or(0)).collect();
    let Some(&lowest) = priorities.first() else { return Err(invalid("there are no lanes to receive in".to_owned())) };
    if lowest < 0 {
        return Err(invalid(format!("the priority {lowest} of a lane is negative")));
    }
    // The lowest band begins at 0, so that each priority has a band. A lane's priority is in its
    // band.
    let tops = priorities.iter().skip(1).map(|next| next - 1).chain([i16::MAX]);
    let bands =
        priorities.iter().zip(tops).map(|(&priority, top)| (if priority == lowest { 0 } else { priority }, top));
    let lane = |&priority: &i16| {
        let ceiling = ceiling.filter(|ceiling| *ceiling >= priority);
        LaneConfig::default().priority(priority).max_request_priority(ceiling)
    };
    let config = LanesConfig::default().name("events").lanes(priorities.iter().map(lane));
    Ok(RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, lowest)),
        priority_bands: Some(bands.collect()),
        threadpool: Some(orb.real_time().create_threadpool_with_lanes(&config)?),
        ..RtPolicies::default()
    })
}

#[derive(Clone, Debug, Default)]
pub(super) struct LaneTable(pub(super) Vec<EventLane>);

fn invalid(why: String) -> SystemException {
    SystemException::new(Kind::BadParam, 0, Completion::No).with_message(why)
}

impl LaneTable {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn rt_infos(&self) -> Box<[i32]> {
        self.0.iter().map(|lane| lane.rt_info).collect()
    }

    /// Checks the settings, and that the system permits the priority of each lane.
    pub(super) fn check(&self, orb: &Orb) -> Result<(), SystemException> {
        if self.0.len() > MAX_LANES {
            return Err(invalid(format!("a channel has at most {MAX_LANES} lanes")));
        }
        for (at, lane) in self.0.iter().enumerate() {
            let is_taken = self.0[..at].iter().any(|before| before.rt_info == lane.rt_info);
            if lane.rt_info == 0 || is_taken {
                return Err(invalid(format!("the `rt_info` {} of a lane is 0 or is used twice", lane.rt_info)));
            }
        }
        let current = orb.real_time().current()?;
        for priority in self.0.iter().filter_map(|lane| lane.priority) {
            let current = current.clone();
            let trial = ThreadBuilder::new().name("events/lane").spawn(move || current.set_priority(priority));
            let joined = trial
                .map_err(|error| error.to_string())
                .and_then(|trial| trial.join().map_err(|_| "the thread has panicked".to_owned()));
            joined.map_err(|why| SystemException::new(Kind::NoResources, 0, Completion::No).with_message(why))??;
        }
        Ok(())
    }

    /// Returns the lane of each event type that the lanes list, for suppliers that name no lane. If
    /// several lanes list a type, the most urgent of them gets it.
    pub(super) fn by_type(&self) -> HashMap<i32, usize> {
        let types = |(lane, settings): (usize, &EventLane)| {
            settings.event_types.iter().map(move |event_type| (event_type.0, lane)).collect::<Vec<_>>()
        };
        self.0.iter().enumerate().rev().flat_map(types).collect()
    }

    /// Returns the most urgent lane that the numbers name; `None` if each is 0, and in a channel
    /// without lanes. Refuses a number that no lane has.
    pub(super) fn most_urgent(&self, rt_infos: impl Iterator<Item = i32>) -> Result<Option<usize>, SystemException> {
        let mut most_urgent = None;
        for rt_info in rt_infos.filter(|rt_info| *rt_info != 0 && !self.is_empty()) {
            let lane = self.0.iter().position(|lane| lane.rt_info == rt_info);
            let lane = lane.ok_or_else(|| invalid(format!("the channel has no lane with the `rt_info` {rt_info}")))?;
            most_urgent = Some(most_urgent.map_or(lane, |before: usize| before.min(lane)));
        }
        Ok(most_urgent)
    }

    pub(super) fn enter(&self, lane: usize, current: Option<&RtCurrent>) {
        let priority = self.0.get(lane).and_then(|lane| lane.priority);
        if let (Some(priority), Some(current)) = (priority, current) {
            // The channel has tried the priority. A refusal means that the ORB has ended, or that
            // the process has lost the permission: the thread then works at its present priority.
            let _ = current.set_priority(priority);
        }
    }
}
