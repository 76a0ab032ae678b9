//! Task files: the description of a system's tasks and its machine.

pub mod rt_app;
pub mod toml;
pub mod toml_table;

use std::fmt;

use crate::allocation::{Core, DEFAULT_CORE_CAPACITY, Discipline, Machine, Overheads, RequestReading};
use crate::task::{CoreId, Task, TimingError, Utilization};

/// Maximum size of a task file in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// Maximum number of tasks in a task file.
pub const MAX_TASKS_IN_FILE: usize = 10_000;

/// Maximum number of cores in a task file.
pub const MAX_CORES_IN_FILE: u32 = 1_024;

/// Maximum length of a task's name in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A task with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTask {
    /// The name: 1 to [`MAX_NAME_BYTES`] bytes, no control characters, unique in its file.
    pub name: String,
    /// The task. Its id is its index in [`TaskFile::tasks`].
    pub task: Task,
}

/// The machine that a task file describes. Fields that the file omits are `None`, and omitted
/// overheads are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineDescription {
    /// The number of cores.
    pub cores: Option<u32>,
    /// The schedulability test of each core.
    pub discipline: Option<Discipline>,
    /// The share of each core that tasks may use.
    pub capacity: Option<Utilization>,
    /// The costs of each job beyond its execution time.
    pub overheads: Overheads,
    /// The reading of each request by a thread above all tasks.
    pub reading: Option<RequestReading>,
}

impl MachineDescription {
    /// Returns the machine. It has the number of cores that the file declares. Without a
    /// declaration it has the cores that pinned tasks need, at least one.
    #[must_use]
    pub fn machine(&self, tasks: &[NamedTask]) -> Machine {
        let pinned = tasks.iter().filter_map(|named| named.task.pinned_core).map(|core| core.core.saturating_add(1));
        let cores = self.cores.unwrap_or_else(|| pinned.max().unwrap_or(1)).min(MAX_CORES_IN_FILE);
        let mut machine = Machine::with_cores(cores);
        machine.discipline = self.discipline.unwrap_or_default();
        machine.overheads = self.overheads;
        machine.reading = self.reading;
        let capacity = self.capacity.unwrap_or(DEFAULT_CORE_CAPACITY);
        machine.cores.iter_mut().for_each(|core: &mut Core| core.capacity = capacity);
        machine
    }
}

/// The content of a task file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFile {
    /// The machine on which the tasks run.
    pub machine: MachineDescription,
    /// The tasks, in the order of the file.
    pub tasks: Vec<NamedTask>,
}

/// Error of a task file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFileError {
    /// The line in the file, counted from 1, if it is known.
    pub line: Option<usize>,
    /// The field with the error, such as `task.period`; empty if the whole text is malformed.
    pub field: String,
    /// The reason why the file is refused.
    pub reason: String,
}

impl TaskFileError {
    fn new(line: Option<usize>, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { line, field: field.into(), reason: reason.into() }
    }
}

impl fmt::Display for TaskFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for TaskFileError {}

fn size_error(text: &str) -> Option<TaskFileError> {
    let reason = || format!("the file has {} bytes; at most {MAX_FILE_BYTES} are read", text.len());
    (text.len() > MAX_FILE_BYTES).then(|| TaskFileError::new(None, "", reason()))
}

fn name_error(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        Some("a name has 1 to 64 bytes")
    } else if name.chars().any(char::is_control) {
        Some("a name has no control characters")
    } else {
        None
    }
}

fn core(number: u32) -> CoreId {
    CoreId { core: number, ..CoreId::default() }
}

fn timing_reason(error: &TimingError) -> String {
    let text = |time| crate::quantity::format_time(time);
    format!(
        "{} is out of range: with the task's other times it must be {} to {}",
        text(error.value),
        text(error.min_allowed),
        text(error.max_allowed)
    )
}
