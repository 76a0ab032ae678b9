//! The modes of the mission: which work the computer does, as far as the server admits its tasks.

use corelane::ObjectRef;
use corelane_services::cores::AdmittedTask;
use corelane_services::cores::protocol::TasksRef;
use corelane_services::cores::protocol::tasks::AdmitError;

use super::plan::{WORK, Work};
use crate::admission;
use crate::avionics::Mode;
use crate::avionics::event_computer::Refused;

pub(super) struct Modes {
    mode: Mode,
    /// The admission object and the computer; `None` if the server admits no tasks.
    tasks: Option<(TasksRef, ObjectRef)>,
    admitted: Vec<(&'static str, AdmittedTask<ObjectRef>)>,
}

impl Modes {
    /// Begins in the mode `cruise`, for which nothing is admitted yet.
    pub(super) fn new(tasks: Option<(TasksRef, ObjectRef)>) -> Self {
        Modes { mode: Mode::Cruise, tasks, admitted: Vec::new() }
    }

    /// Enters a mode, if all its tasks are admitted beside the tasks of the present mode. A refusal
    /// changes nothing.
    pub(super) fn enter(&mut self, next: Mode) -> Result<(), Refused> {
        if let Some((tasks, computer)) = &self.tasks {
            let mut admitted = Vec::new();
            for work in WORK.iter().filter(|work| work.modes.contains(&next)) {
                if self.admitted.iter().all(|(name, _)| *name != work.name) {
                    let spec = admission::task(work.name, work.execution, work.rate, work.deadline);
                    let task =
                        AdmittedTask::admit(tasks, computer, &spec).map_err(|error| refused(work.name, error))?;
                    admitted.push((work.name, task));
                }
            }
            self.admitted.append(&mut admitted);
        }
        self.mode = next;
        // A task is withdrawn when its handle is dropped, so the server keeps only the tasks of the
        // new mode.
        self.admitted.retain(|(name, _)| WORK.iter().any(|work| work.name == *name && work.modes.contains(&next)));
        Ok(())
    }

    pub(super) fn does(&self, work: &Work) -> bool {
        work.modes.contains(&self.mode)
    }
}

fn refused(task: &str, error: AdmitError) -> Refused {
    Refused { task: task.to_owned(), reason: admission::refusal(error) }
}
