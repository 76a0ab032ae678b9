//! Channel files: the types, sources, lanes, publications and subscriptions of an event channel in
//! TOML. Publications and subscriptions with an `rt_info` are the entries of the channel's
//! schedule.

use std::time::Duration;

use corelane_sched::task::Nanos;
use corelane_sched::task_file::toml_table::{TomlTable, parse_document};
use corelane_sched::task_file::{MAX_CORES_IN_FILE, TaskFileError};
use corelane_services::events::{
    ChannelSchedule, EventFilter, EventLane, EventNames, EventSource, EventType, FilterBuilder, FilterLimits,
    PublicationEntry, QueueLimits, SubscriptionEntry, SurplusPolicy,
};

const MAX_ENTRIES: usize = 1_000;
/// Maximum value of `max_users`. A channel admits at most this number of publications, and of
/// consumers.
const MAX_USERS: u32 = 256;

const BUILDERS: [(&str, FilterBuilder); 2] = [("basic", FilterBuilder::Basic), ("prefix", FilterBuilder::Prefix)];

const SURPLUS: [(&str, SurplusPolicy); 2] = [("best-effort", SurplusPolicy::BestEffort), ("drop", SurplusPolicy::Drop)];

#[derive(Debug, Default)]
pub(in crate::events) struct ChannelFile {
    pub(super) names: EventNames,
    pub(super) sources: Vec<EventSource>,
    pub(in crate::events) builder: FilterBuilder,
    /// Processor time of the channel for each delivery.
    pub(super) overhead: Nanos,
    surplus: SurplusPolicy,
    /// The lanes, the most urgent first.
    pub(super) lanes: Vec<FileLane>,
    pub(super) publications: Vec<FilePublication>,
    pub(super) subscriptions: Vec<FileSubscription>,
}

#[derive(Debug)]
pub(super) struct FileLane {
    pub(super) rt_info: u32,
    priority: Option<u32>,
    /// The types whose events are in this lane if their publication names no lane.
    pub(super) types: Vec<EventType>,
}

#[derive(Debug)]
pub(super) struct FilePublication {
    pub(super) supplier: String,
    /// The number of the publication's entry in the schedule.
    pub(super) rt_info: Option<u32>,
    /// Maximum number of publications that use the entry at a time.
    max_users: usize,
    pub(super) event_type: EventType,
    /// The source of the events; `None` if the supplier may push events of any source.
    pub(super) source: Option<EventSource>,
    pub(super) period: Option<Nanos>,
    pub(super) jitter: Nanos,
    pub(super) size: Option<u32>,
    /// Execution time of a consumer that gets one event.
    pub(super) wcet: Option<Nanos>,
    pub(super) deadline: Option<Nanos>,
    pub(super) lane: Option<usize>,
}

#[derive(Debug)]
pub(super) struct FileSubscription {
    pub(super) name: String,
    /// The number of the subscription's entry in the schedule.
    pub(super) rt_info: Option<u32>,
    /// Maximum number of consumers that use the entry at a time.
    max_users: usize,
    pub(super) filter: EventFilter,
    /// The reason why the channel's filter builder refuses the filter; `None` if it accepts the
    /// filter.
    pub(super) refusal: Option<String>,
    pub(super) wcet: Option<Nanos>,
    pub(super) deadline: Option<Nanos>,
    pub(super) lane: Option<usize>,
    pub(super) core: u32,
}

impl ChannelFile {
    /// Returns the numbers of the schedule's entries.
    fn entries(&self) -> impl Iterator<Item = u32> {
        let publications = self.publications.iter().filter_map(|publication| publication.rt_info);
        publications.chain(self.subscriptions.iter().filter_map(|subscription| subscription.rt_info))
    }

    /// Returns true if the file has entries of a schedule. The other publications and subscriptions
    /// of the file then have best effort.
    pub(in crate::events) fn is_scheduled(&self) -> bool {
        self.entries().next().is_some()
    }

    pub(in crate::events) fn event_lanes(&self) -> Vec<EventLane> {
        let lane = |lane: &FileLane| {
            let types =
                lane.types.iter().fold(EventLane::new(lane.rt_info.cast_signed()), |lane, it| lane.event_type(*it));
            match lane.priority.and_then(|priority| i16::try_from(priority).ok()) {
                Some(priority) => types.priority(priority),
                None => types,
            }
        };
        self.lanes.iter().map(lane).collect()
    }

    /// Returns the schedule of the file's entries.
    ///
    /// # Errors
    /// Returns the entry and field that a channel with default queues would refuse.
    pub(in crate::events) fn schedule(&self) -> Result<ChannelSchedule, String> {
        let mut schedule =
            ChannelSchedule::new().overhead(Duration::from_nanos(self.overhead)).surplus_policy(self.surplus);
        for publication in &self.publications {
            let lane = publication.lane.and_then(|lane| self.lanes.get(lane));
            let (Some(rt_info), Some(lane), Some(period)) = (publication.rt_info, lane, publication.period) else {
                continue;
            };
            let numbers = (rt_info.cast_signed(), lane.rt_info.cast_signed());
            let mut entry = PublicationEntry::new(numbers.0, numbers.1, Duration::from_nanos(period));
            entry = entry.event(publication.event_type, publication.source.unwrap_or(EventSource::ANY));
            entry = entry.max_users(publication.max_users);
            entry = entry.jitter(Duration::from_nanos(publication.jitter));
            entry = publication.size.map_or(entry.clone(), |size| entry.max_size(size));
            entry = publication.wcet.map_or(entry.clone(), |wcet| entry.wcet(Duration::from_nanos(wcet)));
            entry = publication.deadline.map_or(entry.clone(), |time| entry.deadline(Duration::from_nanos(time)));
            schedule = schedule.publication(entry);
        }
        for subscription in &self.subscriptions {
            let Some(rt_info) = subscription.rt_info else { continue };
            let mut entry = SubscriptionEntry::new(rt_info.cast_signed()).core(subscription.core);
            entry = entry.max_users(subscription.max_users);
            entry = subscription.wcet.map_or(entry.clone(), |wcet| entry.wcet(Duration::from_nanos(wcet)));
            entry = subscription.deadline.map_or(entry.clone(), |time| entry.deadline(Duration::from_nanos(time)));
            schedule = schedule.subscription(entry);
        }
        let lanes: Vec<i32> = self.lanes.iter().map(|lane| lane.rt_info.cast_signed()).collect();
        let max_queued = QueueLimits::default().max_bytes;
        schedule.check(&lanes, max_queued).map_err(|error| error.to_string())?;
        Ok(schedule)
    }
}

/// Parses the text of a channel file.
pub(in crate::events) fn read(text: &str) -> Result<ChannelFile, TaskFileError> {
    let document = parse_document(text)?;
    let mut root = TomlTable::root(text, &document);
    let mut file = ChannelFile::default();
    if let Some(mut channel) = root.table("channel")? {
        file.builder = channel.choice("builder", &BUILDERS)?.unwrap_or_default();
        file.overhead = channel.time("overhead")?.unwrap_or(0);
        file.surplus = channel.choice("surplus", &SURPLUS)?.unwrap_or_default();
        channel.refuse_unknown_fields()?;
    }
    if let Some(mut types) = root.table("types")? {
        for (name, number) in types.numbers_by_name()? {
            check_name(&types, name)?;
            if number == 0 || (4..16).contains(&number) {
                return Err(types.wrong_field(name, "0 and the numbers from 4 to 15 are no types of events"));
            }
            file.names.add_type(name, EventType(number));
        }
    }
    if let Some(mut sources) = root.table("sources")? {
        for (name, number) in sources.numbers_by_name()? {
            check_name(&sources, name)?;
            if number == 0 {
                return Err(sources.wrong_field(name, "0 is no source of events"));
            }
            file.names.add_source(name, EventSource(number));
            file.sources.push(EventSource(number));
        }
    }
    for mut table in root.tables("lane", MAX_ENTRIES)? {
        let lane = read_lane(&mut table, &file)?;
        file.lanes.push(lane);
    }
    for mut table in root.tables("publication", MAX_ENTRIES)? {
        let publication = read_publication(&mut table, &file)?;
        file.publications.push(publication);
    }
    for mut table in root.tables("subscription", MAX_ENTRIES)? {
        let subscription = read_subscription(&mut table, &file)?;
        file.subscriptions.push(subscription);
    }
    root.refuse_unknown_fields()?;
    Ok(file)
}

fn check_name(table: &TomlTable<'_>, name: &str) -> Result<(), TaskFileError> {
    let reason = "a name has letters, digits, `_`, `.` and `-`, begins with a letter, and is no word of filters";
    if EventNames::is_name(name) { Ok(()) } else { Err(table.wrong_field(name, reason)) }
}

fn read_lane(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<FileLane, TaskFileError> {
    let rt_info =
        table.number("rt_info", 1, i32::MAX.cast_unsigned())?.ok_or_else(|| table.missing_field("rt_info"))?;
    if file.lanes.iter().any(|lane| lane.rt_info == rt_info) {
        return Err(table.wrong_field("rt_info", "another lane has this number"));
    }
    let names = table.strings("types")?;
    let types = names.into_iter().map(|name| event_type(table, "types", name, file)).collect::<Result<_, _>>()?;
    let priority = table.number("priority", 0, 32_767)?;
    table.refuse_unknown_fields()?;
    Ok(FileLane { rt_info, priority, types })
}

fn read_publication(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<FilePublication, TaskFileError> {
    let name = table.string("type")?.ok_or_else(|| table.missing_field("type"))?;
    let event_type = event_type(table, "type", name, file)?;
    let source = match table.string("source")? {
        Some(name) => {
            let found = file.names.source(name).or_else(|| name.parse().ok().filter(|it| *it != 0).map(EventSource));
            Some(found.ok_or_else(|| table.wrong_field("source", "there is no such source"))?)
        }
        None => None,
    };
    let rt_info = entry(table, file)?;
    let publication = FilePublication {
        supplier: table.string("supplier")?.unwrap_or_default().to_owned(),
        rt_info,
        max_users: max_users(table, rt_info)?,
        event_type,
        source,
        period: positive_time(table, "period")?,
        jitter: table.time("jitter")?.unwrap_or(0),
        size: table.number("size", 0, u32::MAX)?,
        wcet: table.time("wcet")?,
        deadline: positive_time(table, "deadline")?,
        lane: lane(table, file)?,
    };
    if publication.rt_info.is_some() {
        if publication.lane.is_none() {
            return Err(table.missing_field("lane"));
        }
        if publication.period.is_none() {
            return Err(table.missing_field("period"));
        }
    }
    table.refuse_unknown_fields()?;
    Ok(publication)
}

fn read_subscription(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<FileSubscription, TaskFileError> {
    let name = table.string("name")?.ok_or_else(|| table.missing_field("name"))?.to_owned();
    if file.subscriptions.iter().any(|subscription| subscription.name == name) {
        return Err(table.wrong_field("name", "another subscription has this name"));
    }
    let text = table.string("filter")?.ok_or_else(|| table.missing_field("filter"))?;
    let limits = FilterLimits::default();
    let filter = EventFilter::parse(text, &file.names, &limits);
    let filter = filter.map_err(|error| table.wrong_field("filter", &error.to_string()))?;
    let refusal = match EventFilter::build(file.builder, filter.dependencies().headers(), &limits) {
        Err(error) => Some(error.to_string()),
        // The basic builder reads nested groups as groups beside each other, so it builds another
        // filter.
        Ok(built) if built != filter => Some("the basic builder has no groups inside groups".to_owned()),
        Ok(_) => None,
    };
    let rt_info = entry(table, file)?;
    let lane = lane(table, file)?;
    if rt_info.is_some() && lane.is_some() {
        return Err(table.wrong_field("lane", "the publications decide the lanes of a subscription with an entry"));
    }
    let subscription = FileSubscription {
        name,
        rt_info,
        max_users: max_users(table, rt_info)?,
        refusal,
        filter,
        wcet: table.time("wcet")?,
        deadline: positive_time(table, "deadline")?,
        lane,
        core: table.number("core", 0, MAX_CORES_IN_FILE - 1)?.unwrap_or(0),
    };
    table.refuse_unknown_fields()?;
    Ok(subscription)
}

fn event_type(table: &TomlTable<'_>, field: &str, name: &str, file: &ChannelFile) -> Result<EventType, TaskFileError> {
    let is_type = |number: &i32| *number != 0 && !(4..16).contains(number);
    let found = file.names.event_type(name).or_else(|| name.parse().ok().filter(is_type).map(EventType));
    found.ok_or_else(|| table.wrong_field(field, "there is no such type"))
}

fn positive_time(table: &mut TomlTable<'_>, field: &'static str) -> Result<Option<Nanos>, TaskFileError> {
    match table.time(field)? {
        Some(0) => Err(table.wrong_field(field, "the time is 0")),
        time => Ok(time),
    }
}

/// Reads the number of an entry of the schedule.
fn entry(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<Option<u32>, TaskFileError> {
    let rt_info = table.number("rt_info", 1, i32::MAX.cast_unsigned())?;
    if rt_info.is_some() && file.entries().any(|taken| Some(taken) == rt_info) {
        return Err(table.wrong_field("rt_info", "another entry has this number"));
    }
    Ok(rt_info)
}

/// Reads the maximum number of users of the entry `rt_info`; 1 if the table has none.
fn max_users(table: &mut TomlTable<'_>, rt_info: Option<u32>) -> Result<usize, TaskFileError> {
    let Some(max) = table.number("max_users", 1, MAX_USERS)? else { return Ok(1) };
    if rt_info.is_none() {
        return Err(table.missing_field("rt_info"));
    }
    Ok(usize::try_from(max).unwrap_or(1))
}

fn lane(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<Option<usize>, TaskFileError> {
    let Some(rt_info) = table.number("lane", 1, i32::MAX.cast_unsigned())? else { return Ok(None) };
    let found = file.lanes.iter().position(|lane| lane.rt_info == rt_info);
    found.map(Some).ok_or_else(|| table.wrong_field("lane", "there is no lane with this `rt_info`"))
}
