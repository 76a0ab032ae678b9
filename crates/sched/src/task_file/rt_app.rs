//! Task files of rt-app: JSON, times in microseconds.
//!
//! The execution time is the sum of the `run` and `runtime` events, and the period is the period of
//! the timer or else `dl-period`. The reader refuses threads that sleep, lock, signal or have
//! several phases, because they have no period.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{MAX_CORES_IN_FILE, MAX_TASKS_IN_FILE, NamedTask, TaskFile, TaskFileError};
use crate::task::{CoreId, Nanos, Task, TaskId, Timing, TimingField};

const MICROSECOND: u64 = 1_000;

/// Native priority of level 0 in a written file.
const TOP_PRIORITY: u32 = 98;

/// Properties of threads and phases that are not events, so the sum of the execution times ignores
/// them.
const IGNORED: [&str; 16] = [
    "comment",
    "dl-deadline",
    "dl-period",
    "dl-runtime",
    "cpus",
    "delay",
    "instance",
    "loop",
    "membind_nodes",
    "nodes_membind",
    "policy",
    "priority",
    "taskgroup",
    "util_max",
    "util_min",
    "phases",
];

/// Reads a task file of rt-app. A thread whose `instance` is n becomes n tasks.
///
/// # Errors
/// [`TaskFileError`] with the line of malformed JSON, or with a field that is out of range or does
/// not apply to a periodic task.
pub fn read(text: &str) -> Result<TaskFile, TaskFileError> {
    if let Some(error) = super::size_error(text) {
        return Err(error);
    }
    let document: Value = serde_json::from_str(text)
        .map_err(|error| TaskFileError::new(Some(error.line()), "", format!("malformed JSON: {error}")))?;
    let threads = document.get("tasks").and_then(Value::as_object);
    let threads = threads.ok_or_else(|| wrong("tasks", "expected an object"))?;
    let mut file = TaskFile::default();
    let mut names = BTreeSet::new();
    for (name, thread) in threads {
        let path = format!("tasks.{}", shown(name));
        let thread = thread.as_object().ok_or_else(|| wrong(&path, "expected an object"))?;
        let task = read_thread(&path, thread)?;
        let instances = number(&path, thread, "instance")?.unwrap_or(1);
        for instance in 0..instances {
            let name = if instances == 1 { name.clone() } else { format!("{name}-{instance}") };
            if let Some(reason) = super::name_error(&name) {
                return Err(wrong(&path, reason));
            }
            if file.tasks.len() == MAX_TASKS_IN_FILE {
                return Err(wrong("tasks", &format!("more than {MAX_TASKS_IN_FILE} tasks")));
            }
            if !names.insert(name.clone()) {
                return Err(wrong(&path, "another task has this name"));
            }
            let id = TaskId(u64::try_from(file.tasks.len()).unwrap_or(u64::MAX));
            file.tasks.push(NamedTask { name, task: Task { id, ..task } });
        }
    }
    Ok(file)
}

fn read_thread(path: &str, thread: &Map<String, Value>) -> Result<Task, TaskFileError> {
    let (phase_path, phase) = only_phase(path, thread)?;
    let mut execution = 0_u64;
    let mut period = None;
    for (event, value) in phase {
        let kind = event.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let field = format!("{phase_path}.{}", shown(event));
        match kind {
            "run" | "runtime" => {
                let time = microseconds(&field, value)?;
                execution = execution.checked_add(time).ok_or_else(|| wrong(&field, "the times are too long"))?;
            }
            "timer" if period.is_none() => {
                let time = value.get("period").ok_or_else(|| wrong(&field, "the field `period` is missing"))?;
                period = Some(microseconds(&format!("{field}.period"), time)?);
            }
            "timer" => return Err(wrong(&field, "a periodic task has one timer")),
            _ if IGNORED.contains(&event.as_str()) => {}
            _ => return Err(wrong(&field, "a periodic task has the events run, runtime and timer only")),
        }
    }
    let property = |name| match time(&phase_path, phase, name)? {
        Some(time) => Ok(Some(time)),
        None => time(path, thread, name),
    };
    let period = match period {
        Some(period) => period,
        None => property("dl-period")?
            .ok_or_else(|| wrong(&phase_path, "the thread has neither a timer nor a dl-period"))?,
    };
    let deadline = property("dl-deadline")?.unwrap_or(period);
    let task = Task::new(TaskId(0), Timing::new(execution, period).with_deadline(deadline)).map_err(|error| {
        let field = match error.field {
            TimingField::Execution => "run",
            TimingField::Deadline => "dl-deadline",
            _ => "timer.period",
        };
        wrong(&format!("{phase_path}.{field}"), &super::timing_reason(&error))
    })?;
    let pinned = match only_core(&phase_path, phase)? {
        Some(core) => Some(core),
        None => only_core(path, thread)?,
    };
    Ok(Task { pinned_core: pinned, ..task })
}

/// Returns the path and the fields of the thread's only phase or, without phases, of the thread.
fn only_phase<'t>(
    path: &str,
    thread: &'t Map<String, Value>,
) -> Result<(String, &'t Map<String, Value>), TaskFileError> {
    let Some(phases) = thread.get("phases") else { return Ok((path.to_owned(), thread)) };
    let path = format!("{path}.phases");
    let phases = phases.as_object().ok_or_else(|| wrong(&path, "expected an object"))?;
    let mut phases = phases.iter();
    match (phases.next(), phases.next()) {
        (Some((name, phase)), None) => {
            let path = format!("{path}.{}", shown(name));
            let phase = phase.as_object().ok_or_else(|| wrong(&path, "expected an object"))?;
            Ok((path, phase))
        }
        _ => Err(wrong(&path, "a periodic task has one phase")),
    }
}

fn only_core(path: &str, thread: &Map<String, Value>) -> Result<Option<CoreId>, TaskFileError> {
    let Some(cpus) = thread.get("cpus") else { return Ok(None) };
    let field = format!("{path}.cpus");
    let cpus = cpus.as_array().ok_or_else(|| wrong(&field, "expected an array"))?;
    match cpus.as_slice() {
        [core] => {
            let core = core.as_u64().and_then(|core| u32::try_from(core).ok()).filter(|core| *core < MAX_CORES_IN_FILE);
            core.map(|core| Some(super::core(core))).ok_or_else(|| wrong(&field, "expected 0 to 1023"))
        }
        [] => Err(wrong(&field, "expected at least one core")),
        _ => Err(wrong(&field, "a task is pinned to one core or to none")),
    }
}

fn number(path: &str, object: &Map<String, Value>, name: &str) -> Result<Option<u64>, TaskFileError> {
    let Some(value) = object.get(name) else { return Ok(None) };
    value.as_u64().map(Some).ok_or_else(|| wrong(&format!("{path}.{name}"), "expected a whole number"))
}

fn time(path: &str, object: &Map<String, Value>, name: &str) -> Result<Option<Nanos>, TaskFileError> {
    object.get(name).map(|value| microseconds(&format!("{path}.{name}"), value)).transpose()
}

fn microseconds(field: &str, value: &Value) -> Result<Nanos, TaskFileError> {
    let time = value.as_u64().ok_or_else(|| wrong(field, "expected a whole number of microseconds"))?;
    time.checked_mul(MICROSECOND).ok_or_else(|| wrong(field, "the time is too long"))
}

fn wrong(field: &str, reason: &str) -> TaskFileError {
    TaskFileError::new(None, field, reason)
}

fn shown(key: &str) -> String {
    key.chars().filter(|letter| !letter.is_control()).take(super::MAX_NAME_BYTES).collect()
}

/// A task with the core and the priority level that the allocation has assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedTask {
    /// The task.
    pub task: NamedTask,
    /// The task's core, if it is bound to one.
    pub core: Option<u32>,
    /// The task's priority level on its core; 0 is the most urgent.
    pub level: u32,
}

/// Writes a task file of rt-app. Its threads run for `seconds` seconds under `SCHED_FIFO`.
///
/// Times are rounded to microseconds, and never in favour of a task: execution times up, periods
/// and deadlines down. Jitter, blocking, minimum distance and criticality are omitted.
#[must_use]
pub fn write(tasks: &[PlacedTask], seconds: u64) -> String {
    let mut threads = Map::new();
    for PlacedTask { task: NamedTask { name, task }, core, level } in tasks {
        let timing = &task.timing;
        let period = timing.period / MICROSECOND;
        let mut thread = json!({
            "policy": "SCHED_FIFO",
            "priority": TOP_PRIORITY.saturating_sub(*level).max(1),
            "loop": -1,
            "run": timing.execution.div_ceil(MICROSECOND),
            "timer": { "ref": "unique", "period": period },
        });
        if let Some(object) = thread.as_object_mut() {
            if let Some(core) = core {
                object.insert("cpus".to_owned(), json!([core]));
            }
            if timing.deadline != timing.period {
                object.insert("dl-deadline".to_owned(), json!(timing.deadline / MICROSECOND));
            }
        }
        threads.insert(name.clone(), thread);
    }
    let document = json!({
        "global": { "duration": seconds, "calibration": "CPU0", "default_policy": "SCHED_OTHER", "lock_pages": true },
        "tasks": threads,
    });
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_become_tasks() {
        let text = r#"{
            "global": { "duration": 2 },
            "tasks": {
                "control": { "policy": "SCHED_FIFO", "priority": 20, "cpus": [1], "loop": -1,
                             "run": 2000, "timer": { "ref": "unique", "period": 20000 }, "dl-deadline": 15000 },
                "sensor": { "instance": 2, "phases": { "only": { "loop": 1, "run0": 100, "runtime1": 50,
                            "timer": { "ref": "tick", "period": 1000 } } } },
                "deadline": { "policy": "SCHED_DEADLINE", "dl-period": 5000, "run": 400 }
            }
        }"#;
        let file = read(text).expect("a task file");
        let names: Vec<&str> = file.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["control", "deadline", "sensor-0", "sensor-1"]);
        let timings: Vec<Timing> = file.tasks.iter().map(|task| task.task.timing).collect();
        assert_eq!(timings[0], Timing::new(2_000_000, 20_000_000).with_deadline(15_000_000));
        assert_eq!(timings[1], Timing::new(400_000, 5_000_000));
        assert_eq!(timings[2..], [Timing::new(150_000, 1_000_000); 2]);
        assert_eq!(file.tasks[0].task.pinned_core.map(|core| core.core), Some(1));
        assert_eq!(file.tasks[3].task.id, TaskId(3));
    }

    #[test]
    fn phase_properties_take_precedence_over_thread_properties() {
        let text = r#"{ "tasks": { "t": { "cpus": [0], "dl-deadline": 9000, "phases": { "only": {
            "cpus": [1], "dl-period": 5000, "dl-deadline": 3000, "run": 400 } } } } }"#;
        let task = read(text).expect("a task file").tasks[0].task;
        assert_eq!(task.pinned_core.map(|core| core.core), Some(1));
        assert_eq!(task.timing, Timing::new(400_000, 5_000_000).with_deadline(3_000_000));
        let text = text.replace("\"cpus\": [1],", "");
        assert_eq!(read(&text).expect("a task file").tasks[0].task.pinned_core.map(|core| core.core), Some(0));
        let wrong = text.replace("\"run\"", "\"cpus\": [0, 1], \"run\"");
        assert_eq!(
            read(&wrong).unwrap_err().to_string(),
            "tasks.t.phases.only.cpus: a task is pinned to one core or to none"
        );
    }

    #[test]
    fn written_files_are_read_back() {
        let timing = Timing::new(1_500, 100_999).with_deadline(90_001);
        let task = Task::new(TaskId(0), timing).expect("in range");
        let placed =
            |name: &str, core, level| PlacedTask { task: NamedTask { name: name.to_owned(), task }, core, level };
        let text = write(&[placed("a \"b\"", Some(3), 0), placed("c", None, 200)], 5);
        let file = read(&text).expect("its own output");
        assert_eq!(file.tasks[0].name, "a \"b\"");
        assert_eq!(file.tasks[0].task.timing, Timing::new(2_000, 100_000).with_deadline(90_000));
        assert_eq!(file.tasks[0].task.pinned_core.map(|core| core.core), Some(3));
        assert_eq!(file.tasks[1].task.pinned_core, None);
        let document: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(document["tasks"]["a \"b\""]["priority"], 98);
        assert_eq!(document["tasks"]["c"]["priority"], 1);
        assert_eq!(document["global"]["duration"], 5);
    }

    fn error(thread: &str) -> String {
        read(&format!("{{\"tasks\": {{\"t\": {thread}}}}}")).expect_err("malformed").to_string()
    }

    #[test]
    fn errors_name_the_line_or_the_field() {
        assert_eq!(read("{\n\"tasks\": 1,,").unwrap_err().line, Some(2));
        assert_eq!(read("{}").unwrap_err().to_string(), "tasks: expected an object");
        assert_eq!(error("1"), "tasks.t: expected an object");
        assert_eq!(error("{\"run\": 1}"), "tasks.t: the thread has neither a timer nor a dl-period");
        let timer = "\"timer\": {\"period\": 1000}";
        assert_eq!(
            error(&format!("{{\"run\": 1, \"sleep\": 5, {timer}}}")),
            "tasks.t.sleep: a periodic task has the events run, runtime and timer only"
        );
        assert_eq!(error(&format!("{{\"run\": -1, {timer}}}")), "tasks.t.run: expected a whole number of microseconds");
        assert_eq!(
            error(&format!("{{\"run\": 2000, {timer}}}")),
            "tasks.t.run: 2ms is out of range: with the task's other times it must be 1ns to 1ms"
        );
        assert_eq!(error(&format!("{{\"run\": 18446744073709551615, {timer}}}")), "tasks.t.run: the time is too long");
        assert_eq!(error("{\"run\": 1, \"timer\": {}}"), "tasks.t.timer: the field `period` is missing");
        assert_eq!(
            error("{\"run\": 1, \"timer\": {\"period\": 1000}, \"timer1\": {\"period\": 1000}}"),
            "tasks.t.timer1: a periodic task has one timer"
        );
        assert_eq!(error("{\"phases\": {}}"), "tasks.t.phases: a periodic task has one phase");
        assert_eq!(
            error(&format!("{{\"run\": 1, {timer}, \"cpus\": [0, 1]}}")),
            "tasks.t.cpus: a task is pinned to one core or to none"
        );
        assert_eq!(error(&format!("{{\"run\": 1, {timer}, \"cpus\": [-1]}}")), "tasks.t.cpus: expected 0 to 1023");
        assert_eq!(error(&format!("{{\"run\": 1, {timer}, \"instance\": 20000}}")), "tasks: more than 10000 tasks");
    }
}
