//! Channel files: the types, sources, lanes, publications and subscriptions of an event channel in
//! TOML.

use corelane_sched::task::Nanos;
use corelane_sched::task_file::toml_table::{TomlTable, document};
use corelane_sched::task_file::{MAX_CORES, TaskFileError};
use corelane_services::events::{EventFilter, EventNames, EventSource, EventType, FilterBuilder, FilterLimits};

const MAX_ENTRIES: usize = 1_000;

const BUILDERS: [(&str, FilterBuilder); 2] = [("basic", FilterBuilder::Basic), ("prefix", FilterBuilder::Prefix)];

#[derive(Debug, Default)]
pub(super) struct ChannelFile {
    pub(super) names: EventNames,
    pub(super) sources: Vec<EventSource>,
    pub(super) builder: FilterBuilder,
    /// Processor time of the channel for each delivery.
    pub(super) overhead: Nanos,
    /// The lanes, the most urgent first.
    pub(super) lanes: Vec<FileLane>,
    pub(super) publications: Vec<FilePublication>,
    pub(super) subscriptions: Vec<FileSubscription>,
}

#[derive(Debug)]
pub(super) struct FileLane {
    pub(super) rt_info: u32,
    /// The types whose events are in this lane if their publication names no lane.
    pub(super) types: Vec<EventType>,
}

#[derive(Debug)]
pub(super) struct FilePublication {
    pub(super) supplier: String,
    pub(super) event_type: EventType,
    /// `None` if the supplier may push events of any source.
    pub(super) source: Option<EventSource>,
    pub(super) period: Option<Nanos>,
    pub(super) size: Option<u32>,
    /// Execution time of a consumer that gets one event.
    pub(super) wcet: Option<Nanos>,
    pub(super) deadline: Option<Nanos>,
    pub(super) lane: Option<usize>,
}

#[derive(Debug)]
pub(super) struct FileSubscription {
    pub(super) name: String,
    pub(super) filter: EventFilter,
    /// The reason why the channel's filter builder refuses the filter; `None` if it accepts the
    /// filter.
    pub(super) refusal: Option<String>,
    pub(super) wcet: Option<Nanos>,
    pub(super) deadline: Option<Nanos>,
    pub(super) lane: Option<usize>,
    pub(super) core: u32,
}

/// Reads a channel file.
pub(super) fn read(text: &str) -> Result<ChannelFile, TaskFileError> {
    let document = document(text)?;
    let mut root = TomlTable::root(text, &document);
    let mut file = ChannelFile::default();
    if let Some(mut channel) = root.table("channel")? {
        file.builder = channel.choice("builder", &BUILDERS)?.unwrap_or_default();
        file.overhead = channel.time("overhead")?.unwrap_or(0);
        channel.refuse_unknown()?;
    }
    if let Some(mut types) = root.table("types")? {
        for (name, number) in types.numbers()? {
            check_name(&types, name)?;
            if number == 0 || (4..16).contains(&number) {
                return Err(types.wrong_field(name, "0 and the numbers from 4 to 15 are no types of events"));
            }
            file.names.add_type(name, EventType(number));
        }
    }
    if let Some(mut sources) = root.table("sources")? {
        for (name, number) in sources.numbers()? {
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
    root.refuse_unknown()?;
    Ok(file)
}

fn check_name(table: &TomlTable<'_>, name: &str) -> Result<(), TaskFileError> {
    let reason = "a name has letters, digits, `_`, `.` and `-`, begins with a letter, and is no word of filters";
    if EventNames::is_name(name) { Ok(()) } else { Err(table.wrong_field(name, reason)) }
}

fn read_lane(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<FileLane, TaskFileError> {
    let rt_info = table.number("rt_info", 1, i32::MAX.cast_unsigned())?.ok_or_else(|| table.missing("rt_info"))?;
    if file.lanes.iter().any(|lane| lane.rt_info == rt_info) {
        return Err(table.wrong_field("rt_info", "another lane has this number"));
    }
    let names = table.strings("types")?;
    let types = names.into_iter().map(|name| event_type(table, "types", name, file)).collect::<Result<_, _>>()?;
    table.refuse_unknown()?;
    Ok(FileLane { rt_info, types })
}

fn read_publication(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<FilePublication, TaskFileError> {
    let name = table.string("type")?.ok_or_else(|| table.missing("type"))?;
    let event_type = event_type(table, "type", name, file)?;
    let source = match table.string("source")? {
        Some(name) => {
            let found = file.names.source(name).or_else(|| name.parse().ok().filter(|it| *it != 0).map(EventSource));
            Some(found.ok_or_else(|| table.wrong_field("source", "there is no such source"))?)
        }
        None => None,
    };
    let publication = FilePublication {
        supplier: table.string("supplier")?.unwrap_or_default().to_owned(),
        event_type,
        source,
        period: positive_time(table, "period")?,
        size: table.number("size", 0, u32::MAX)?,
        wcet: table.time("wcet")?,
        deadline: positive_time(table, "deadline")?,
        lane: lane(table, file)?,
    };
    table.refuse_unknown()?;
    Ok(publication)
}

fn read_subscription(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<FileSubscription, TaskFileError> {
    let name = table.string("name")?.ok_or_else(|| table.missing("name"))?.to_owned();
    if file.subscriptions.iter().any(|subscription| subscription.name == name) {
        return Err(table.wrong_field("name", "another subscription has this name"));
    }
    let text = table.string("filter")?.ok_or_else(|| table.missing("filter"))?;
    let limits = FilterLimits::default();
    let filter = EventFilter::parse(text, &file.names, &limits);
    let filter = filter.map_err(|error| table.wrong_field("filter", &error.to_string()))?;
    let refusal = match EventFilter::build(file.builder, filter.dependencies().headers(), &limits) {
        Err(error) => Some(error.to_string()),
        // The basic builder reads nested groups as groups beside each other.
        Ok(built) if built != filter => Some("the basic builder has no groups inside groups".to_owned()),
        Ok(_) => None,
    };
    let subscription = FileSubscription {
        name,
        refusal,
        filter,
        wcet: table.time("wcet")?,
        deadline: positive_time(table, "deadline")?,
        lane: lane(table, file)?,
        core: table.number("core", 0, MAX_CORES - 1)?.unwrap_or(0),
    };
    table.refuse_unknown()?;
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

fn lane(table: &mut TomlTable<'_>, file: &ChannelFile) -> Result<Option<usize>, TaskFileError> {
    let Some(rt_info) = table.number("lane", 1, i32::MAX.cast_unsigned())? else { return Ok(None) };
    let found = file.lanes.iter().position(|lane| lane.rt_info == rt_info);
    found.map(Some).ok_or_else(|| table.wrong_field("lane", "there is no lane with this `rt_info`"))
}
