//! Entry point for fuzzing: a function over bytes that must return for any input.

use std::collections::BTreeSet;

use crate::allocation::{admit_all, is_schedulable, task_placements};
use crate::task_file::{MAX_CORES_IN_FILE, TaskFile, TaskFileError, rt_app, toml};

const MAX_MESSAGE: usize = 4_000;
/// Maximum number of tasks, and of cores, that are analysed.
const MOST: usize = 8;
const MAX_STEPS: u32 = 1 << 12;

/// Reads a task file: of rt-app if the text begins with `{`, otherwise TOML. Writes an accepted
/// file, reads it again, and allocates its first tasks to cores.
///
/// # Panics
/// If a message names a line that the file does not have, an accepted task has a time out of range
/// or the name of another task, the written file differs, or an admitted task misses its deadline.
pub fn task_files(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let read = if text.starts_with('{') { rt_app::read(&text) } else { toml::read(&text) };
    match read {
        Ok(file) => check_file(&file),
        Err(error) => check_error(&error, text.split('\n').count()),
    }
}

fn check_error(error: &TaskFileError, lines: usize) {
    let message = error.to_string();
    assert!(message.len() <= MAX_MESSAGE, "{message}");
    assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{message}");
}

fn check_file(file: &TaskFile) {
    let mut names = BTreeSet::new();
    for named in &file.tasks {
        assert_eq!(named.task.timing.check(), Ok(()), "{named:?}");
        assert!(named.task.pinned_core.is_none_or(|core| core.core < MAX_CORES_IN_FILE), "{named:?}");
        assert!(names.insert(&named.name), "{named:?}");
    }
    assert_eq!(toml::read(&toml::write(file)).as_ref(), Ok(file));
    let mut machine = file.machine.machine(&file.tasks);
    assert!(!machine.cores.is_empty() && machine.cores.len() <= MAX_CORES_IN_FILE as usize);
    machine.cores.truncate(MOST);
    machine.max_steps = MAX_STEPS;
    let tasks = file.tasks.iter().take(MOST).map(|named| &named.task);
    let (set, rejections) = admit_all(&machine, tasks);
    assert_eq!(set.len() + rejections.len(), file.tasks.len().min(MOST));
    assert!(rejections.iter().all(|rejection| !rejection.reason().is_empty()));
    assert!(is_schedulable(&set, &machine), "{set:?}");
    assert!(task_placements(&set, &machine).iter().all(|placed| placed.is_schedulable), "{set:?}");
}
