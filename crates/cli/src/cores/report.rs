//! The command `corelane cores report`, which draws the jobs that the cores of a server ran.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use corelane::Orb;
use corelane_sched::task::{Nanos, Utilization};
use corelane_services::cores::protocol::{JobRecord, TaskRecord, TasksRef};
use corelane_sys::clock::Monotonic;

use super::picture::{GanttBar, GanttChart, GanttRow, gantt};
use super::top::Monitored;
use super::{CoresArguments, milliseconds, remote, write_file};
use crate::text::printable;

const DEFAULT_SPAN: Nanos = 2_000_000_000;
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of records that the command reads with one call.
const BATCH: u32 = 1_000;
const MAX_RECORDS: usize = 200_000;
/// The detailed chart shows this many periods of the task with the longest period.
const DETAIL_PERIODS: u64 = 4;

#[derive(Default)]
pub(super) struct Recording {
    pub(super) jobs: Vec<JobRecord>,
    /// Number of records that the server replaced by newer ones before this program fetched them.
    lost: u64,
    is_truncated: bool,
}

pub(super) fn run(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let file = arguments.file.as_deref().ok_or("no file is given")?;
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let tasks = remote::object(&orb, arguments)?;
    let before = Monitored::fetch(&tasks)?;
    let recording = record(&tasks, arguments.duration.unwrap_or(DEFAULT_SPAN))?;
    let after = Monitored::fetch(&tasks)?;
    let page = page(&before, &after, &recording);
    if file == "-" {
        let _ = out.write_all(page.as_bytes());
    } else {
        write_file(file, &page)?;
        let _ = writeln!(out, "{} jobs of {} tasks in {file}", recording.jobs.len(), by_task(&recording).len());
    }
    Ok(true)
}

/// Lets the server record its jobs for `span`, and fetches the records during this time.
pub(super) fn record(tasks: &TasksRef, span: Nanos) -> Result<Recording, String> {
    let explained = |exception| remote::explain(&exception);
    // The number of the next record, with which this recording begins.
    let (mut next, _) = tasks.recorded_jobs(u64::MAX, 0).map_err(explained)?;
    let span = tasks.record_jobs(span).map_err(explained)?.min(span);
    let until = Monotonic::now() + Duration::from_nanos(span);
    let mut recording = Recording::default();
    loop {
        let is_last = until.is_past();
        loop {
            let (following, jobs) = tasks.recorded_jobs(next, BATCH).map_err(explained)?;
            let Some(first) = jobs.first() else { break };
            recording.lost = recording.lost.saturating_add(first.number.saturating_sub(next));
            next = following;
            let room = MAX_RECORDS - recording.jobs.len();
            recording.is_truncated |= jobs.len() > room;
            recording.jobs.extend(jobs.into_iter().take(room));
            if recording.is_truncated {
                return Ok(recording);
            }
        }
        if is_last {
            return Ok(recording);
        }
        std::thread::sleep(PAUSE.min(until.remaining()));
    }
}

fn by_task(recording: &Recording) -> BTreeMap<u64, Vec<&JobRecord>> {
    let mut tasks: BTreeMap<u64, Vec<&JobRecord>> = BTreeMap::new();
    for job in &recording.jobs {
        tasks.entry(job.task).or_default().push(job);
    }
    tasks
}

fn find<'m>(before: &'m Monitored, after: &'m Monitored, task: u64) -> Option<&'m TaskRecord> {
    after.tasks.iter().chain(&before.tasks).find(|record| record.task == task)
}

fn page(before: &Monitored, after: &Monitored, recording: &Recording) -> String {
    let mut html = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Jobs on cores</title>\n<style>body{font-family:\
         sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid \
         #ccc}td:first-child,th:first-child{text-align:left}.over{color:#c0392b;font-weight:bold}svg{max-width:100%;height:auto}\
         </style></head><body>\n<h1>Jobs on cores</h1>\n",
    );
    let tasks = by_task(recording);
    let counts = &after.counts;
    let _ = writeln!(
        html,
        "<p>{} jobs of {} tasks. The server admitted {} tasks and rejected {}; {} requests exceeded the rate and {} a quota.</p>",
        recording.jobs.len(),
        tasks.len(),
        counts.promised,
        counts.rejected,
        counts.over_rate,
        counts.over_quota
    );
    if !after.measured.advisory_reason.is_empty() {
        let _ = writeln!(
            html,
            "<p class=\"over\">The promises are advisory: {}.</p>",
            escaped(&after.measured.advisory_reason)
        );
    }
    if recording.lost > 0 || recording.is_truncated {
        let _ = writeln!(
            html,
            "<p class=\"over\">The report is not complete: {} records were replaced by newer ones{}.</p>",
            recording.lost,
            if recording.is_truncated { ", and the recording has more jobs than a report" } else { "" }
        );
    }
    write_tasks(&mut html, before, after, &tasks);
    write_cores(&mut html, after, &tasks);
    write_charts(&mut html, before, after, recording, &tasks);
    html.push_str("</body></html>\n");
    html
}

fn escaped(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn longest(jobs: &[&JobRecord]) -> Nanos {
    jobs.iter().map(|job| job.finish.saturating_sub(job.start)).max().unwrap_or(0)
}

fn write_tasks(html: &mut String, before: &Monitored, after: &Monitored, tasks: &BTreeMap<u64, Vec<&JobRecord>>) {
    html.push_str(
        "<h2>Tasks</h2>\n<p>A time lasts from the read request to the written reply, at the server. The execution time is the \
         processor time of a job.</p>\n<table><tr><th>task</th><th>core</th><th>priority</th><th>period ms</th><th>deadline \
         ms</th><th>bound ms</th><th>longest ms</th><th>execution: promised ms</th><th>longest ms</th><th>jobs</th></tr>\n",
    );
    for (number, jobs) in tasks {
        let record = find(before, after, *number);
        let longest = longest(jobs);
        let execution = jobs.iter().map(|job| job.processor_time).max().unwrap_or(0);
        let bound = record.map_or(0, |record| record.response);
        let told = |time: Option<Nanos>| time.filter(|time| *time != 0).map_or_else(|| "-".to_owned(), milliseconds);
        let mark = |is_over| if is_over { " class=\"over\"" } else { "" };
        let promised = record.map_or(0, |record| record.timing.execution);
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td><td{}>{}</td><td>{}</td>\
             </tr>",
            record.map_or_else(|| format!("task {number}"), |record| escaped(&record.name)),
            record.map_or_else(|| "-".to_owned(), |record| record.core.to_string()),
            record.map_or_else(|| "-".to_owned(), |record| record.level.to_string()),
            told(record.map(|record| record.timing.period)),
            told(record.map(|record| record.timing.deadline)),
            told(Some(bound)),
            mark(bound != 0 && longest > bound),
            milliseconds(longest),
            told(Some(promised)),
            mark(promised != 0 && execution > promised),
            milliseconds(execution),
            jobs.len()
        );
    }
    html.push_str("</table>\n");
}

fn write_cores(html: &mut String, after: &Monitored, tasks: &BTreeMap<u64, Vec<&JobRecord>>) {
    let jobs = || tasks.values().flatten();
    let (first, last) = (jobs().map(|job| job.start).min(), jobs().map(|job| job.finish).max());
    let span = last.unwrap_or(0).saturating_sub(first.unwrap_or(0));
    html.push_str(
        "<h2>Cores</h2>\n<table><tr><th>core</th><th>promised</th><th>capacity</th><th>used by jobs</th></tr>\n",
    );
    for core in &after.cores {
        let used: u128 = jobs().filter(|job| job.core == core.core).map(|job| u128::from(job.processor_time)).sum();
        let share = used * u128::from(Utilization::ONE.0) / u128::from(span.max(1));
        let share = Utilization(u64::try_from(share).unwrap_or(u64::MAX));
        let (promised, capacity) = (Utilization(core.used), Utilization(core.capacity));
        let _ = writeln!(html, "<tr><td>{}</td><td>{promised}</td><td>{capacity}</td><td>{share}</td></tr>", core.core);
    }
    html.push_str("</table>\n");
}

fn write_charts(
    html: &mut String,
    before: &Monitored,
    after: &Monitored,
    recording: &Recording,
    tasks: &BTreeMap<u64, Vec<&JobRecord>>,
) {
    let mut jobs: Vec<&JobRecord> = recording.jobs.iter().collect();
    // A preempting job begins later, so its bar is drawn over the bar of the preempted job.
    jobs.sort_by_key(|job| (job.start, std::cmp::Reverse(job.finish)));
    let Some(from) = jobs.first().map(|job| job.start) else {
        html.push_str("<p>No job ran during the recording.</p>\n");
        return;
    };
    let until = jobs.iter().map(|job| job.finish).max().unwrap_or(from).max(from);
    let numbers: Vec<u64> = tasks.keys().copied().collect();
    let records: Vec<Option<&TaskRecord>> = numbers.iter().map(|number| find(before, after, *number)).collect();
    let name = |(number, record): (&u64, &Option<&TaskRecord>)| {
        record.map_or_else(|| format!("task {number}"), |record| printable(&record.name))
    };
    let names: Vec<String> = numbers.iter().zip(&records).map(name).collect();
    let place_of = |task: u64| numbers.binary_search(&task).unwrap_or(0);
    let mut jobs_of_cores: BTreeMap<u32, usize> = after.cores.iter().map(|core| (core.core, 0)).collect();
    for job in &jobs {
        *jobs_of_cores.entry(job.core).or_default() += 1;
    }
    let cores: Vec<u32> = jobs_of_cores.keys().copied().collect();
    let core_of = |core: u32| cores.binary_search(&core).unwrap_or(0);
    let longest_period = records.iter().flatten().map(|record| record.timing.period).max().unwrap_or(0);
    let detail = longest_period.saturating_mul(DETAIL_PERIODS);
    let mut spans = vec![("Whole recording", until)];
    if detail > 0 && detail < (until - from) / 2 {
        spans.insert(0, ("Beginning in detail", from + detail));
    }
    for (title, until) in spans {
        let _ = writeln!(html, "<h2>{title}</h2>\n<p>A bar that covers another one is a job that preempted it.</p>");
        let row_of_core =
            |(core, count): (&u32, &usize)| GanttRow { name: format!("core {core}"), note: format!("{count} jobs") };
        html.push_str(&gantt(&GanttChart {
            title: "Cores".to_owned(),
            colours: names.clone(),
            rows: jobs_of_cores.iter().map(row_of_core).collect(),
            bars: jobs.iter().map(|job| bar(job, core_of(job.core), place_of(job.task))).collect(),
            from,
            until,
        }));
        let row_of_task = |(name, jobs): (&String, &Vec<&JobRecord>)| GanttRow {
            name: name.clone(),
            note: format!("{} jobs, longest {} ms", jobs.len(), milliseconds(longest(jobs))),
        };
        html.push_str(&gantt(&GanttChart {
            title: "Tasks".to_owned(),
            colours: cores.iter().map(|core| format!("core {core}")).collect(),
            rows: names.iter().zip(tasks.values()).map(row_of_task).collect(),
            bars: jobs.iter().map(|job| bar(job, place_of(job.task), core_of(job.core))).collect(),
            from,
            until,
        }));
    }
}

fn bar(job: &JobRecord, row: usize, colour: usize) -> GanttBar {
    GanttBar { row, colour, from: job.start, until: job.finish }
}
