//! The admitted tasks, a task that the server refuses, and the jobs that the server has recorded.

use std::fmt::Write;
use std::time::Duration;

use corelane::ObjectRef;
use corelane_services::cores::AdmittedTask;
use corelane_services::cores::protocol::tasks::AdmitError;
use corelane_services::cores::protocol::{JobRecord, Measurements, TaskRecord, TasksRef};

use super::page::escape;
use super::record::format_bound;
use crate::{Result, admission};

/// Time for which the jobs of the chart are recorded.
const CHART: Duration = Duration::from_secs(1);
const MAX_JOBS: u32 = 1_000;
const PATIENCE: Duration = Duration::from_secs(2);

/// Name, execution time, calls per second and deadline of the omniORB client's task. The client
/// calls the task reference as it would call any other reference.
const GROUND_LINK: (&str, Duration, u32, Duration) =
    ("omniorb", Duration::from_millis(2), 10, Duration::from_millis(100));
/// A task that the server refuses, because it needs most of the core.
const SURVEY: (&str, Duration, u32, Duration) = ("survey", Duration::from_millis(95), 10, Duration::from_millis(100));

/// The admission object of the server, and the results of its operations.
pub(super) struct AdmittedTasks {
    tasks: TasksRef,
    ground_link: Option<AdmittedTask<ObjectRef>>,
    /// Number of the first job that is recorded.
    first_job: u64,
    records: Vec<TaskRecord>,
    measured: Option<Measurements>,
    jobs: Vec<JobRecord>,
    /// The reason why the server refused `SURVEY`.
    refusal: String,
    was_observed: bool,
}

impl AdmittedTasks {
    pub(super) fn new(tasks: &ObjectRef) -> Self {
        AdmittedTasks {
            tasks: TasksRef::from_object(tasks.clone()).with_timeout(PATIENCE),
            ground_link: None,
            first_job: 0,
            records: Vec::new(),
            measured: None,
            jobs: Vec::new(),
            refusal: String::new(),
            was_observed: false,
        }
    }

    /// Asks for the admission of the omniORB client, and returns the reference that it calls.
    pub(super) fn admit_ground_link(&mut self, target: &ObjectRef) -> Result<String> {
        let (name, execution, rate, deadline) = GROUND_LINK;
        let task = AdmittedTask::admit(&self.tasks, target, &admission::task(name, execution, rate, deadline))
            .map_err(|error| format!("the task of the omniORB client is not admitted: {error:?}"))?;
        let reference = task.reference().to_string();
        self.ground_link = Some(task);
        Ok(reference)
    }

    /// Asks for the admission of `SURVEY`, which the server must refuse, and starts the recording
    /// of jobs. Further calls do nothing. Call it when all clients have their tasks.
    pub(super) fn observe_once(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.was_observed, true) {
            return Ok(());
        }
        let (name, execution, rate, deadline) = SURVEY;
        self.refusal = match self.tasks.admit(&admission::task(name, execution, rate, deadline)) {
            Err(error @ AdmitError::Rejected(_)) => admission::refusal(error),
            Err(error) => return Err(format!("the server neither admits nor refuses a task: {error:?}").into()),
            Ok(_) => return Err("the server admits a task that needs most of the core".into()),
        };
        self.records = self.tasks.monitor()?.0;
        (self.first_job, _) = self.tasks.recorded_jobs(u64::MAX, 0)?;
        let span = u64::try_from(CHART.as_nanos()).unwrap_or(u64::MAX);
        self.tasks.record_jobs(span)?;
        Ok(())
    }

    /// Gets the jobs that the server has recorded, and its measurements. Call it while the server
    /// runs.
    pub(super) fn collect(&mut self) -> Result<()> {
        (_, self.jobs) = self.tasks.recorded_jobs(self.first_job, MAX_JOBS)?;
        self.measured = Some(self.tasks.monitor()?.3);
        Ok(())
    }

    /// Returns a line for each task, the reason if the promises are advisory, and a line for the
    /// refused task.
    pub(super) fn lines(&self) -> String {
        let mut text = String::new();
        for (index, task) in self.records.iter().enumerate() {
            let _ = writeln!(
                text,
                "{:9} {:9} core {}, {} of each {}, at the latest {} after the call, deadline {}",
                if index == 0 { "tasks" } else { "" },
                task.name,
                task.core,
                time(task.timing.execution),
                time(task.timing.period),
                time(task.response),
                time(task.timing.deadline),
            );
        }
        if let Some(measured) = self.measured.as_ref().filter(|measured| !measured.advisory_reason.is_empty()) {
            let _ = writeln!(text, "          the promises are advisory: {}", measured.advisory_reason);
        }
        let (name, execution, rate, _) = SURVEY;
        let period = format_bound(Duration::from_secs(1) / rate);
        let _ = writeln!(text, "refused   {name:9} {} of each {period}: {}", format_bound(execution), self.refusal);
        text
    }

    pub(super) fn section(&self) -> String {
        let mut page =
            String::from("<h2>Tasks of the clients</h2>\n<p>The server has promised these tasks their core.");
        let _ = writeln!(page, " It refused <i>{}</i>: {}.</p>", SURVEY.0, escape(&self.refusal));
        if let Some(measured) = self.measured.as_ref().filter(|measured| !measured.advisory_reason.is_empty()) {
            let _ = writeln!(page, "<p>The promises are advisory: {}.</p>", escape(&measured.advisory_reason));
        }
        page += "<div class=\"wide\"><table>\n<tr><th>task<th>core<th>level<th>execution<th>period<th>deadline<th>worst case\n";
        for task in &self.records {
            let timing = &task.timing;
            let times = [timing.execution, timing.period, timing.deadline, task.response].map(time);
            let (name, cells) = (escape(&task.name), times.join("<td>"));
            let _ = writeln!(page, "<tr><td>{name}<td>{}<td>{}<td>{cells}", task.core, task.level);
        }
        page + "</table></div>\n" + &self.chart()
    }

    fn chart(&self) -> String {
        let Some(begin) = self.jobs.iter().map(|job| job.start).min() else {
            return "<p>No job was recorded.</p>\n".to_owned();
        };
        let end = self.jobs.iter().map(|job| job.finish).max().unwrap_or(begin).max(begin + 1);
        let at = |time: u64| LEFT as f64 + (time - begin) as f64 * WIDTH as f64 / (end - begin) as f64;
        let (mut rows, height) = (String::new(), self.records.len() * ROW);
        for (row, task) in self.records.iter().enumerate() {
            let y = row * ROW;
            let _ = writeln!(
                rows,
                "<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                LEFT - 10,
                y + 14,
                escape(&task.name)
            );
            for job in self.jobs.iter().filter(|job| job.task == task.task) {
                let (x, width) = (at(job.start), (at(job.finish) - at(job.start)).max(1.0));
                let _ = writeln!(
                    rows,
                    "<rect class=\"bar\" x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\"/>",
                    y + 3,
                    ROW - 6
                );
            }
        }
        let (width, span) = (LEFT + WIDTH + 20, time(end - begin));
        format!(
            "<p>The jobs that ran in {span}. A job lasts from the read request to the written reply.</p>\n<svg width=\"{width}\" \
             height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"Jobs of the tasks\">\n{rows}</svg>\n"
        )
    }
}

/// Height of a row in pixels.
const ROW: usize = 20;
/// Left margin of the chart in pixels.
const LEFT: usize = 100;
/// Width of the chart in pixels.
const WIDTH: usize = 760;

fn time(nanoseconds: u64) -> String {
    format!("{} ms", nanoseconds as f64 / 1e6)
}
