//! The entries of a schedule, by the numbers that publications and dependencies name in `rt_info`.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use corelane_sched::task::{MAX_PERIOD, MIN_PERIOD, Nanos};

use super::jobs::{PublicationLoad, SubscriptionLoad};
use crate::events::header::{EventHeader, EventSource, EventType};

const MAX_ENTRIES: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) struct EntryUse {
    pub(in crate::events) entry: i32,
    /// Maximum number of publications, or of consumers, that name the entry at a time.
    pub(in crate::events) max_users: usize,
}

/// The reaction to events beyond their declaration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SurplusPolicy {
    /// The events go to the least urgent lane, which is for best effort. The default.
    #[default]
    BestEffort,
    /// The events are dropped.
    Drop,
}

type UsedEntries = (SubscriptionLoad, Vec<EntryUse>);

/// The declaration of a supplier's events of one type and source.
///
/// A publication names the entry by its `rt_info`. One publication may name it at a time, unless
/// [`max_users`](Self::max_users) permits more; each counts as a separate load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationEntry {
    pub(super) rt_info: i32,
    max_users: usize,
    event_type: EventType,
    source: EventSource,
    lane: i32,
    period: Nanos,
    jitter: Nanos,
    max_size: Option<u32>,
    wcet: Option<Nanos>,
    deadline: Option<Nanos>,
}

fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

impl PublicationEntry {
    /// Creates an entry with a number that is not 0. The events are in the lane with the number
    /// `lane` ([`EventLane::new`](crate::events::EventLane::new)), which is not the least urgent
    /// lane. `period` is the shortest time between two events: 100 us to one hour.
    #[must_use]
    pub fn new(rt_info: i32, lane: i32, period: Duration) -> Self {
        Self {
            rt_info,
            max_users: 1,
            event_type: EventType::ANY,
            source: EventSource::ANY,
            lane,
            period: nanos(period),
            jitter: 0,
            max_size: None,
            wcet: None,
            deadline: None,
        }
    }

    /// Restricts the entry to publications of this type and source. Default: every type and every
    /// source, as [`EventType::ANY`] and [`EventSource::ANY`] also mean here.
    #[must_use]
    pub const fn event(mut self, event_type: EventType, source: EventSource) -> Self {
        self.event_type = event_type;
        self.source = source;
        self
    }

    /// Sets the maximum number of publications that name the entry at a time, at least one, which
    /// is the default. A connection with a further publication is refused
    /// ([`ScheduleTest::EntryUsers`](super::ScheduleTest::EntryUsers)).
    #[must_use]
    pub const fn max_users(mut self, max: usize) -> Self {
        self.max_users = max;
        self
    }

    /// Sets the time by which an event may be early or late, at most one hour. Default: 0; an event
    /// that comes before its period has passed is then surplus.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = nanos(jitter);
        self
    }

    /// Sets the maximum size of an event in bytes: its payload and its encoded value. Default: no
    /// bound.
    #[must_use]
    pub const fn max_size(mut self, bytes: u32) -> Self {
        self.max_size = Some(bytes);
        self
    }

    /// Sets the worst-case execution time of each consumer that gets an event. Default: none; the
    /// entry of each consumer must then declare the time.
    #[must_use]
    pub fn wcet(mut self, time: Duration) -> Self {
        self.wcet = Some(nanos(time));
        self
    }

    /// Sets the time from the arrival of an event until its consumers must have handled it, at most
    /// one hour. Default: the period.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(nanos(deadline));
        self
    }

    pub(in crate::events) const fn period(&self) -> Nanos {
        self.period
    }

    pub(in crate::events) const fn load(&self, lane: usize) -> PublicationLoad {
        PublicationLoad { wcet: self.wcet, deadline: self.deadline, jitter: self.jitter, lane }
    }

    pub(in crate::events) const fn max_bytes(&self) -> Option<u32> {
        self.max_size
    }

    pub(in crate::events) const fn entry_use(&self) -> EntryUse {
        EntryUse { entry: self.rt_info, max_users: self.max_users }
    }

    /// Checks the type and source of a publication that names the entry.
    ///
    /// # Errors
    /// Returns the wrong field with the reason.
    pub(in crate::events) fn check_event(&self, header: &EventHeader) -> Result<(), (&'static str, String)> {
        if self.event_type != EventType::ANY && self.event_type != header.event_type {
            return Err((
                "type",
                format!("the entry {} is for events of the type {}", self.rt_info, self.event_type.0),
            ));
        }
        if self.source != EventSource::ANY && self.source != header.source {
            return Err((
                "source",
                format!("the entry {} is for events of the source {}", self.rt_info, self.source.0),
            ));
        }
        Ok(())
    }

    fn check(&self, lanes: &[i32], max_queued: usize) -> Result<(), (&'static str, String)> {
        let Some(at) = lanes.iter().position(|lane| *lane == self.lane) else {
            return Err(("lane", format!("the channel has no lane {}", self.lane)));
        };
        if at + 1 == lanes.len() {
            return Err(("lane", format!("the least urgent lane, {}, is for best effort", self.lane)));
        }
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.period) {
            return Err(("period", "a period is 100 us to one hour".to_owned()));
        }
        if self.jitter > MAX_PERIOD {
            return Err(("jitter", "a jitter is at most one hour".to_owned()));
        }
        if self.max_size.is_some_and(|size| size as usize > max_queued) {
            return Err(("size", format!("a consumer's queue holds events of at most {max_queued} bytes")));
        }
        check_users(self.max_users)?;
        check_times(self.wcet, self.deadline)
    }
}

/// The declaration of a consumer's handling.
///
/// A dependency names the entry by its `rt_info`. One consumer may name it at a time, unless
/// [`max_users`](Self::max_users) permits more. A consumer whose dependencies name several entries
/// has the longest of their execution times and the shortest of their deadlines. If one of the
/// entries leaves the execution time to the publications, so does the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionEntry {
    pub(super) rt_info: i32,
    max_users: usize,
    load: SubscriptionLoad,
}

impl SubscriptionEntry {
    /// Creates an entry with a number that is not 0.
    #[must_use]
    pub fn new(rt_info: i32) -> Self {
        Self { rt_info, max_users: 1, load: SubscriptionLoad::default() }
    }

    /// Sets the maximum number of consumers whose dependencies name the entry at a time, at least
    /// one, which is the default. A further consumer is refused
    /// ([`ScheduleTest::EntryUsers`](super::ScheduleTest::EntryUsers)).
    #[must_use]
    pub const fn max_users(mut self, max: usize) -> Self {
        self.max_users = max;
        self
    }

    /// Sets the worst-case execution time of the consumer for one set. Default: the sum of the
    /// times that the publications of the set's events declare.
    #[must_use]
    pub fn wcet(mut self, time: Duration) -> Self {
        self.load.wcet = Some(nanos(time));
        self
    }

    /// Sets the time from the arrival of a set's last event until the consumer must have handled
    /// the set, at most one hour. Default: that of the publication.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.load.deadline = Some(nanos(deadline));
        self
    }

    /// Sets the core on which the consumer runs. Default: 0.
    #[must_use]
    pub const fn core(mut self, core: u32) -> Self {
        self.load.core = core;
        self
    }
}

fn check_users(max: usize) -> Result<(), (&'static str, String)> {
    if max == 0 { Err(("max_users", "an entry has at least one user".to_owned())) } else { Ok(()) }
}

fn check_times(wcet: Option<Nanos>, deadline: Option<Nanos>) -> Result<(), (&'static str, String)> {
    if wcet.is_some_and(|wcet| wcet == 0 || wcet > MAX_PERIOD) {
        return Err(("wcet", "an execution time is more than 0, and at most one hour".to_owned()));
    }
    if deadline.is_some_and(|deadline| deadline == 0 || deadline > MAX_PERIOD) {
        return Err(("deadline", "a deadline is more than 0, and at most one hour".to_owned()));
    }
    Ok(())
}

/// The schedule of a channel: the entries that publications and dependencies name by `rt_info`.
///
/// The channel needs at least two lanes. The least urgent lane is for best effort: it has the
/// events of publications without an entry, the surplus of publications with one, timeouts without
/// an event, and everything for consumers without an entry. The analysis supposes that this lane
/// delays no other lane.
///
/// ```
/// use std::time::Duration;
/// use corelane_services::events::*;
///
/// let ms = Duration::from_millis;
/// let schedule = ChannelSchedule::new()
///     .publication(PublicationEntry::new(101, 20, ms(50)).max_size(64).wcet(ms(2)))
///     .subscription(SubscriptionEntry::new(201).deadline(ms(20)));
/// let channel = EventChannel::builder().lanes([EventLane::new(20), EventLane::new(1)]).schedule(schedule);
/// # let _ = channel;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelSchedule {
    publications: Vec<PublicationEntry>,
    subscriptions: Vec<SubscriptionEntry>,
    overhead: Nanos,
    surplus_policy: SurplusPolicy,
}

impl ChannelSchedule {
    /// Creates a schedule without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry for publications.
    #[must_use]
    pub fn publication(mut self, entry: PublicationEntry) -> Self {
        self.publications.push(entry);
        self
    }

    /// Adds an entry for dependencies of consumers.
    #[must_use]
    pub fn subscription(mut self, entry: SubscriptionEntry) -> Self {
        self.subscriptions.push(entry);
        self
    }

    /// Sets the processor time of the channel for each delivery, at most one hour. Default: 0.
    #[must_use]
    pub fn overhead(mut self, time: Duration) -> Self {
        self.overhead = nanos(time);
        self
    }

    /// Sets what happens to events beyond their declaration. Default:
    /// [`SurplusPolicy::BestEffort`].
    #[must_use]
    pub const fn surplus_policy(mut self, policy: SurplusPolicy) -> Self {
        self.surplus_policy = policy;
        self
    }

    pub(in crate::events) const fn overhead_time(&self) -> Nanos {
        self.overhead
    }

    pub(in crate::events) const fn chosen_surplus_policy(&self) -> SurplusPolicy {
        self.surplus_policy
    }

    /// Returns the entry with this number and the index of its lane, if both exist.
    pub(in crate::events) fn publication_entry(
        &self,
        rt_info: i32,
        lanes: &[i32],
    ) -> Option<(&PublicationEntry, usize)> {
        let entry = self.publications.iter().find(|entry| entry.rt_info == rt_info)?;
        Some((entry, lanes.iter().position(|lane| *lane == entry.lane)?))
    }

    /// Returns the load of a consumer whose dependencies name these numbers, and the entries that
    /// it uses; `None` if all are 0.
    ///
    /// # Errors
    /// Returns the index of a number without an entry, or of an entry with another core than those
    /// before it, with the reason.
    pub(in crate::events) fn subscription_load(
        &self,
        rt_infos: &[i32],
    ) -> Result<Option<UsedEntries>, (usize, String)> {
        let mut combined: Option<SubscriptionLoad> = None;
        let mut used: Vec<EntryUse> = Vec::new();
        for (at, rt_info) in rt_infos.iter().enumerate().filter(|(_, rt_info)| **rt_info != 0) {
            let entry = self.subscriptions.iter().find(|entry| entry.rt_info == *rt_info);
            let entry = entry.ok_or_else(|| (at, format!("the schedule has no subscription entry {rt_info}")))?;
            let load = combined.get_or_insert(entry.load);
            if load.core != entry.load.core {
                return Err((at, format!("the entry {rt_info} has another core than the entries before it")));
            }
            // If an entry leaves the execution time to the publications, the maximum is not known,
            // so the result is `None`.
            load.wcet = load.wcet.zip(entry.load.wcet).map(|(one, other)| one.max(other));
            load.deadline = [load.deadline, entry.load.deadline].into_iter().flatten().min();
            // A consumer with several dependencies of an entry is one user.
            if used.iter().all(|other| other.entry != *rt_info) {
                used.push(EntryUse { entry: *rt_info, max_users: entry.max_users });
            }
        }
        Ok(combined.map(|load| (load, used)))
    }

    /// Checks the entries for a channel with these lanes, the most urgent first, whose queues hold
    /// events of at most `max_queued` bytes.
    ///
    /// # Errors
    /// Returns the first entry and field that is not permitted.
    pub fn check(&self, lanes: &[i32], max_queued: usize) -> Result<(), ScheduleError> {
        let of_schedule = |field, reason: &str| ScheduleError { entry: None, field, reason: reason.to_owned() };
        if lanes.len() < 2 {
            return Err(of_schedule("lanes", "a schedule needs two lanes: the least urgent one is for best effort"));
        }
        if self.publications.len() > MAX_ENTRIES || self.subscriptions.len() > MAX_ENTRIES {
            return Err(of_schedule("entries", "a schedule has at most 1,024 entries of a kind"));
        }
        if self.overhead > MAX_PERIOD {
            return Err(of_schedule("overhead", "an overhead is at most one hour"));
        }
        let mut taken = BTreeSet::new();
        let publications =
            self.publications.iter().map(|entry| ("publication", entry.rt_info, entry.check(lanes, max_queued)));
        let of_subscription = |entry: &SubscriptionEntry| {
            check_users(entry.max_users).and_then(|()| check_times(entry.load.wcet, entry.load.deadline))
        };
        let subscriptions =
            self.subscriptions.iter().map(|entry| ("subscription", entry.rt_info, of_subscription(entry)));
        for (kind, rt_info, checked) in publications.chain(subscriptions) {
            let error = |(field, reason)| ScheduleError { entry: Some((kind, rt_info)), field, reason };
            if rt_info == 0 || !taken.insert(rt_info) {
                return Err(error(("rt_info", "the number is 0, or another entry has it".to_owned())));
            }
            checked.map_err(error)?;
        }
        Ok(())
    }
}

/// A field of a schedule that is not permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    /// Kind and number of the entry; `None` for the schedule itself.
    entry: Option<(&'static str, i32)>,
    field: &'static str,
    reason: String,
}

impl ScheduleError {
    /// Returns the name of the field.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            Some((kind, rt_info)) => write!(f, "the {kind} entry {rt_info}: {}: {}", self.field, self.reason),
            None => write!(f, "the schedule: {}: {}", self.field, self.reason),
        }
    }
}

impl std::error::Error for ScheduleError {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn refused(schedule: ChannelSchedule) -> String {
        schedule.check(&[20, 5, 1], 1_000).unwrap_err().to_string()
    }

    #[test]
    fn wrong_entries_are_refused_with_their_field() {
        let entry = |period| PublicationEntry::new(101, 20, period);
        let with = |entry| refused(ChannelSchedule::new().publication(entry));
        assert_eq!(with(entry(Duration::ZERO)), "the publication entry 101: period: a period is 100 us to one hour");
        for period in [Duration::from_secs(9_500_000_000), Duration::from_nanos(99_999), Duration::MAX] {
            assert!(with(entry(period)).contains(" period: "));
        }
        assert!(with(entry(MS).jitter(Duration::MAX)).contains(" jitter: "));
        assert!(
            with(entry(MS).max_size(u32::MAX)).contains(" size: a consumer's queue holds events of at most 1000 bytes")
        );
        for wcet in [Duration::ZERO, Duration::MAX] {
            assert!(with(entry(MS).wcet(wcet)).contains(" wcet: "));
            assert!(with(entry(MS).deadline(wcet)).contains(" deadline: "));
            let entry = SubscriptionEntry::new(201).wcet(wcet);
            let said = refused(ChannelSchedule::new().subscription(entry));
            assert!(said.starts_with("the subscription entry 201: wcet: "), "{said}");
        }
        assert!(with(PublicationEntry::new(101, 7, MS)).contains(" lane: the channel has no lane 7"));
        assert!(
            with(PublicationEntry::new(101, 1, MS)).contains(" lane: the least urgent lane, 1, is for best effort")
        );
        assert!(with(PublicationEntry::new(0, 20, MS)).contains(" rt_info: "));
        assert!(with(entry(MS).max_users(0)).contains(" max_users: "));
        let none = ChannelSchedule::new().subscription(SubscriptionEntry::new(201).max_users(0));
        assert_eq!(refused(none), "the subscription entry 201: max_users: an entry has at least one user");
        let twice = ChannelSchedule::new().publication(entry(MS)).subscription(SubscriptionEntry::new(101));
        assert!(refused(twice).contains("the subscription entry 101: rt_info: "));
        assert!(refused(ChannelSchedule::new().overhead(Duration::MAX)).contains(" overhead: "));
        let right = ChannelSchedule::new().publication(entry(MS).max_size(0)).subscription(SubscriptionEntry::new(201));
        assert_eq!(right.check(&[20, 1], 1_000), Ok(()));
        assert_eq!(right.check(&[20], 1_000).unwrap_err().field(), "lanes");
    }

    #[test]
    fn entry_takes_the_events_to_which_it_is_restricted() {
        let wrong = |entry: PublicationEntry, event_type, source| {
            let header = EventHeader::new(EventType(event_type), EventSource(source));
            entry.check_event(&header).err().map(|(field, _)| field)
        };
        let entry = PublicationEntry::new(101, 20, MS);
        assert_eq!(wrong(entry.clone(), 17, 3), None);
        let of_source = entry.clone().event(EventType(16), EventSource(3));
        assert_eq!(wrong(of_source.clone(), 16, 3), None);
        assert_eq!((wrong(of_source.clone(), 17, 3), wrong(of_source, 16, 4)), (Some("type"), Some("source")));
        assert_eq!(wrong(entry.event(EventType(16), EventSource::ANY), 16, 4), None);
    }

    #[test]
    fn several_entries_of_a_consumer_are_combined() {
        let entry = |rt_info, wcet, deadline| SubscriptionEntry::new(rt_info).wcet(wcet).deadline(deadline);
        let schedule = ChannelSchedule::new()
            .subscription(entry(201, MS, 9 * MS))
            .subscription(entry(202, 2 * MS, 10 * MS))
            .subscription(SubscriptionEntry::new(203))
            .subscription(SubscriptionEntry::new(204).core(1));
        let (load, used) = schedule.subscription_load(&[0, 201, 202, 201]).unwrap().unwrap();
        assert_eq!((load.wcet, load.deadline), (Some(2_000_000), Some(9_000_000)));
        assert_eq!(used, [201, 202].map(|entry| EntryUse { entry, max_users: 1 }));
        assert_eq!(schedule.subscription_load(&[201, 203]).unwrap().unwrap().0.wcet, None);
        assert_eq!(schedule.subscription_load(&[0, 0]), Ok(None));
        assert_eq!(schedule.subscription_load(&[201, 7]).unwrap_err().0, 1);
        assert!(schedule.subscription_load(&[201, 204]).unwrap_err().1.contains("another core"));
    }
}
