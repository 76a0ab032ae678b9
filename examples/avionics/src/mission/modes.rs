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

    /// Withdraws the tasks that the next mode does not need, and admits those that it needs. If one
    /// is refused, the present mode gets its tasks again.
    pub(super) fn enter(&mut self, next: Mode) -> Result<(), Refused> {
        let before = std::mem::replace(&mut self.mode, next);
        self.plan().inspect_err(|_| {
            self.mode = before;
            // These tasks fitted before.
            let _ = self.plan();
        })
    }

    pub(super) fn does(&self, work: &Work) -> bool {
        work.modes.contains(&self.mode)
    }

    fn plan(&mut self) -> Result<(), Refused> {
        let Some((tasks, computer)) = &self.tasks else { return Ok(()) };
        let needed: Vec<&Work> = WORK.iter().filter(|work| work.modes.contains(&self.mode)).collect();
        // A task is withdrawn when its handle is dropped.
        self.admitted.retain(|(name, _)| needed.iter().any(|work| work.name == *name));
        for work in needed {
            if self.admitted.iter().any(|(name, _)| *name == work.name) {
                continue;
            }
            let spec = admission::task(work.name, work.execution, work.rate, work.deadline);
            let task = AdmittedTask::admit(tasks, computer, &spec).map_err(|error| refused(work.name, error))?;
            self.admitted.push((work.name, task));
        }
        Ok(())
    }
}

fn refused(task: &str, error: AdmitError) -> Refused {
    Refused { task: task.to_owned(), reason: admission::refusal(error) }
}
