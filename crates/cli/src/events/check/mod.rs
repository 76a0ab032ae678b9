//! The command `corelane events check`, which checks the filters and the schedule in a channel
//! file.

mod file;
mod schedule;

pub(super) use self::file::ChannelFile;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};

use corelane_sched::analysis::StepBudget;
use corelane_sched::quantity::format_time;
use corelane_sched::task::Utilization;
use corelane_sched::task_file::MAX_FILE_BYTES;
use corelane_services::events::schedule::{ConsumerJob, JobTrigger};
use corelane_services::events::{EventHeader, EventSource, FilterReach, PublishedEventKind, TimeoutKind};
use serde_json::{Value as Json, json};

use self::file::{FilePublication, FileSubscription};
use super::options::EventsArguments;
use crate::cores::output::{milliseconds, write_table};
use crate::text::{excerpt, json_line, printable};

/// Maximum number of named sources with which a publication without a source is checked.
const MAX_SOURCES: usize = 1_000;

struct CheckedSubscription<'f> {
    subscription: &'f FileSubscription,
    reach: FilterReach,
    accepted: BTreeSet<usize>,
}

impl CheckedSubscription<'_> {
    fn is_right(&self) -> bool {
        self.subscription.refusal.is_none()
            && self.reach.unreachable_parts.is_empty()
            && !self.reach.deliverable_sets.is_empty()
    }
}

struct CheckedChannel<'f> {
    file: &'f ChannelFile,
    subscriptions: Vec<CheckedSubscription<'f>>,
    jobs: Vec<ConsumerJob>,
    cores: BTreeMap<u32, Utilization>,
}

impl CheckedChannel<'_> {
    /// Returns true if [`CheckedSubscription::is_right`] is true for each subscription, and no job
    /// misses its deadline or may be delayed by a job without a known load.
    fn is_right(&self) -> bool {
        let is_wrong = |job: &ConsumerJob| job.may_miss_deadline() || job.delayed_by.is_some();
        self.subscriptions.iter().all(CheckedSubscription::is_right) && !self.jobs.iter().any(is_wrong)
    }

    /// Returns the reason why a job is not analysed; `None` if it is analysed.
    fn not_analysed(&self, job: &ConsumerJob) -> Option<String> {
        if let Err(reason) = job.timing {
            return Some(reason.reason().to_owned());
        }
        let by = self.jobs.get(job.delayed_by?)?;
        let name = self.file.subscriptions.get(by.subscription).map_or("", |subscription| &subscription.name);
        Some(format!("delayed by {} ({})", printable(name), trigger_text(self.file, by.trigger)))
    }

    fn is_taken(&self, publication: usize) -> bool {
        self.subscriptions.iter().any(|subscription| subscription.accepted.contains(&publication))
    }
}

/// Checks a channel file, prints the result, and returns [`CheckedChannel::is_right`].
pub(super) fn run(arguments: &EventsArguments, out: &mut dyn Write) -> Result<bool, String> {
    let file = read(&arguments.channel)?;
    if file.is_scheduled() {
        file.schedule().map_err(|error| printable(&format!("{}: {error}", excerpt(&arguments.channel))))?;
    }
    let checked = check(&file);
    let _ = if arguments.is_json {
        out.write_all(json_line(&as_json(&checked)).as_bytes())
    } else {
        write_text(out, &checked)
    };
    Ok(checked.is_right())
}

/// Reads a channel file; `-` is the standard input.
pub(super) fn read(path: &str) -> Result<ChannelFile, String> {
    let unreadable = |error: io::Error| format!("`{}` cannot be read: {error}", excerpt(path));
    let mut text = String::new();
    // `file::read` refuses a text of this length.
    let max = MAX_FILE_BYTES as u64 + 1;
    let read = if path == "-" {
        io::stdin().lock().take(max).read_to_string(&mut text)
    } else {
        File::open(path).map_err(unreadable)?.take(max).read_to_string(&mut text)
    };
    read.map_err(unreadable)?;
    file::read(&text).map_err(|error| printable(&format!("{}: {error}", excerpt(path))))
}

fn check(file: &ChannelFile) -> CheckedChannel<'_> {
    let (published, publications) = published_events(file);
    let load = schedule::load(file);
    let mut jobs = Vec::new();
    let mut subscriptions = Vec::new();
    for (number, subscription) in file.subscriptions.iter().enumerate() {
        let reach = subscription.filter.analyse_reach(&published, &file.names);
        let accepted = publications.iter().zip(&reach.accepted_events).filter(|(_, is_accepted)| **is_accepted);
        let accepted = accepted.map(|(publication, _)| *publication).collect();
        if subscription.refusal.is_none() && !file.is_scheduled() {
            jobs.extend(load.consumer_jobs(number, &reach.deliverable_sets, &publications));
        }
        if subscription.refusal.is_none() && subscription.rt_info.is_some() {
            // A delivery set with a best-effort event is in the least urgent lane, and delays no
            // other set. So only sets of declared publications become jobs.
            let declared = |number: &usize| file.publications.get(*number).is_some_and(|it| it.rt_info.is_some());
            let (published, publications): (Vec<PublishedEventKind>, Vec<usize>) = published
                .iter()
                .copied()
                .zip(publications.iter().copied())
                .filter(|(_, number)| declared(number))
                .unzip();
            let sets = subscription.filter.analyse_reach(&published, &file.names).deliverable_sets;
            let is_declared = |job: &ConsumerJob| job.lanes.0 + 1 < file.lanes.len();
            jobs.extend(load.consumer_jobs(number, &sets, &publications).into_iter().filter(is_declared));
        }
        subscriptions.push(CheckedSubscription { subscription, reach, accepted });
    }
    let cores = load.analyse(&mut jobs, &mut StepBudget::default());
    CheckedChannel { file, subscriptions, jobs, cores }
}

/// Returns the events of all publications, and for each event the number of its publication. A
/// publication without a source has one event for each source that the file names (at most
/// [`MAX_SOURCES`]), and one event that stands for all other sources.
fn published_events(file: &ChannelFile) -> (Vec<PublishedEventKind>, Vec<usize>) {
    let headers = file.subscriptions.iter().map(|subscription| subscription.filter.dependencies());
    let of_filters = headers.flat_map(|set| set.headers().iter().map(|header| header.source).collect::<Vec<_>>());
    let named: BTreeSet<EventSource> = file.sources.iter().copied().chain(of_filters).collect();
    let other = (1..=i32::MAX).rev().map(EventSource).find(|source| !named.contains(source));
    let named = named.into_iter().filter(|source| *source != EventSource::ANY).take(MAX_SOURCES);
    let every: Vec<EventSource> = named.chain(other).collect();
    let (mut published, mut publications) = (Vec::new(), Vec::new());
    for (number, publication) in file.publications.iter().enumerate() {
        let sources = publication.source.as_ref().map_or(every.as_slice(), std::slice::from_ref);
        for source in sources {
            let header = EventHeader::new(publication.event_type, *source);
            published.push(PublishedEventKind { header, period: publication.period });
            publications.push(number);
        }
    }
    (published, publications)
}

fn publication_text(file: &ChannelFile, publication: &FilePublication) -> String {
    let mut text = file.names.type_text(publication.event_type);
    if let Some(source) = publication.source {
        text = format!("{text} source {}", file.names.source_text(source));
    }
    if !publication.supplier.is_empty() {
        text = format!("{text} of {}", printable(&publication.supplier));
    }
    text
}

fn trigger_text(file: &ChannelFile, trigger: JobTrigger) -> String {
    match trigger {
        JobTrigger::Publication(number) => {
            file.publications.get(number).map_or_else(String::new, |publication| publication_text(file, publication))
        }
        JobTrigger::Timeout(TimeoutKind::Once, delay) => format!("timeout {}", format_time(delay)),
        JobTrigger::Timeout(TimeoutKind::Interval, delay) => format!("interval {}", format_time(delay)),
        JobTrigger::Timeout(TimeoutKind::Deadline, delay) => format!("deadline {}", format_time(delay)),
    }
}

fn lane_text(file: &ChannelFile, job: &ConsumerJob) -> String {
    let rt_info = |lane: usize| file.lanes.get(lane).map_or_else(|| "-".to_owned(), |lane| lane.rt_info.to_string());
    let (most, least) = job.lanes;
    if most == least { rt_info(most) } else { format!("{} to {}", rt_info(most), rt_info(least)) }
}

fn write_text(out: &mut dyn Write, checked: &CheckedChannel<'_>) -> io::Result<()> {
    let file = checked.file;
    for checked in &checked.subscriptions {
        let CheckedSubscription { subscription, reach, accepted } = checked;
        writeln!(out, "{}: {}", printable(&subscription.name), subscription.filter.expression(&file.names))?;
        for publication in accepted.iter().filter_map(|number| file.publications.get(*number)) {
            writeln!(out, "  gets {}", publication_text(file, publication))?;
        }
        if let Some(refusal) = &subscription.refusal {
            writeln!(out, "  refused by the channel: {refusal}")?;
        }
        for part in &reach.unreachable_parts {
            let why = if part.is_shadowed { "an earlier part gets its events" } else { "no publication fulfils it" };
            writeln!(out, "  never matches: `{}`: {why}", part.expression)?;
        }
        if reach.deliverable_sets.is_empty() {
            writeln!(out, "  never gets an event")?;
        }
    }
    for (_, publication) in file.publications.iter().enumerate().filter(|(number, _)| !checked.is_taken(*number)) {
        writeln!(out, "no subscription gets {}", publication_text(file, publication))?;
    }
    write_schedule(out, checked)?;
    let never = checked.subscriptions.iter().filter(|subscription| !subscription.is_right()).count();
    let misses = checked.jobs.iter().filter(|job| job.may_miss_deadline()).count();
    writeln!(out, "{} of {} subscriptions have parts that never match", never, checked.subscriptions.len())?;
    let analysed = checked.jobs.iter().filter(|job| job.is_analysed()).count();
    let delayed = checked.jobs.iter().filter(|job| job.delayed_by.is_some()).count();
    if delayed > 0 {
        writeln!(out, "{delayed} jobs are not analysed: jobs without a declared period or wcet delay them")?;
    }
    writeln!(out, "{misses} of {analysed} analysed jobs miss their deadlines")
}

fn write_schedule(out: &mut dyn Write, checked: &CheckedChannel<'_>) -> io::Result<()> {
    if checked.jobs.is_empty() {
        return Ok(());
    }
    let file = checked.file;
    let header =
        ["subscription", "event", "core", "lane", "wcet ms", "period ms", "deadline ms", "response ms", "verdict"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for job in &checked.jobs {
        let Some(subscription) = file.subscriptions.get(job.subscription) else { continue };
        let absent = || "-".to_owned();
        let of_timing = |time: fn(&corelane_sched::task::Timing) -> u64| {
            job.timing.as_ref().map_or_else(|_| absent(), |timing| milliseconds(time(timing)))
        };
        rows.push(vec![
            printable(&subscription.name),
            trigger_text(file, job.trigger),
            subscription.core.to_string(),
            lane_text(file, job),
            of_timing(|timing| timing.execution),
            of_timing(|timing| timing.period),
            of_timing(|timing| timing.deadline),
            job.response.map_or_else(absent, milliseconds),
            match (&job.timing, checked.not_analysed(job)) {
                (Err(_), Some(reason)) => reason,
                (_, Some(reason)) => format!("not analysed: {reason}"),
                (_, None) if job.may_miss_deadline() => "misses".to_owned(),
                (_, None) => "fits".to_owned(),
            },
        ]);
    }
    writeln!(out)?;
    write_table(out, &rows)?;
    writeln!(out)?;
    for (core, utilization) in &checked.cores {
        writeln!(out, "core {core}: utilization {utilization}")?;
    }
    Ok(())
}

fn as_json(checked: &CheckedChannel<'_>) -> Json {
    let file = checked.file;
    let publication = |(number, publication): (usize, &FilePublication)| {
        let taken = checked.subscriptions.iter().filter(|subscription| subscription.accepted.contains(&number));
        let octets_per_second = publication
            .size
            .zip(publication.period)
            .map(|(size, period)| u128::from(size) * 1_000_000_000 / u128::from(period.max(1)));
        json!({
            "supplier": publication.supplier,
            "type": publication.event_type.0,
            "source": publication.source.map(|source| source.0),
            "period_ns": publication.period,
            "size": publication.size,
            "octets_per_second": octets_per_second.and_then(|octets| u64::try_from(octets).ok()),
            "subscriptions": taken.map(|taken| taken.subscription.name.as_str()).collect::<Vec<_>>(),
        })
    };
    let subscription = |(number, checked_subscription): (usize, &CheckedSubscription<'_>)| {
        let CheckedSubscription { subscription, reach, accepted } = checked_subscription;
        let jobs = checked.jobs.iter().filter(|job| job.subscription == number);
        let dead = reach
            .unreachable_parts
            .iter()
            .map(|part| json!({ "part": part.expression, "is_shadowed": part.is_shadowed }));
        json!({
            "name": subscription.name,
            "filter": subscription.filter.expression(&file.names),
            "core": subscription.core,
            "publications": accepted,
            "refusal": subscription.refusal,
            "never": dead.collect::<Vec<_>>(),
            "can_match": !reach.deliverable_sets.is_empty(),
            "jobs": jobs.map(|job| job_as_json(checked, job)).collect::<Vec<_>>(),
        })
    };
    let core =
        |(core, utilization): (&u32, &Utilization)| json!({ "core": core, "utilization": utilization.to_string() });
    json!({
        "schema": 1,
        "publications": file.publications.iter().enumerate().map(publication).collect::<Vec<_>>(),
        "subscriptions": checked.subscriptions.iter().enumerate().map(subscription).collect::<Vec<_>>(),
        "cores": checked.cores.iter().map(core).collect::<Vec<_>>(),
        "is_right": checked.is_right(),
    })
}

fn job_as_json(checked: &CheckedChannel<'_>, job: &ConsumerJob) -> Json {
    let file = checked.file;
    let timing = job.timing.as_ref().ok();
    json!({
        "event": trigger_text(file, job.trigger),
        "lane": lane_text(file, job),
        "execution_ns": timing.map(|timing| timing.execution),
        "period_ns": timing.map(|timing| timing.period),
        "jitter_ns": timing.map(|timing| timing.jitter),
        "deadline_ns": timing.map(|timing| timing.deadline),
        "response_ns": job.response,
        "not_analysed": checked.not_analysed(job),
        "misses": job.may_miss_deadline(),
    })
}
