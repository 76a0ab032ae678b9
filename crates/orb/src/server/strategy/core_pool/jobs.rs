//! The jobs of tasks: their rates, budgets, deadlines and measurements.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_sys::poll;
use corelane_wire::Limits;
use corelane_wire::giop::{Header, MessageKind};

use super::rate::{RateAdmission, RateWait};
use super::roster::ThreadNumber;
use super::{Assignment, Mailbox, ServedTask, SharedPool};
use crate::event::Event;
use crate::job_budget::{self, JobBudget};
use crate::minor;
use crate::orb_context::OrbContext;
use crate::rt::core_config::{JobOverrunAction, TaskBinding, TaskRules};
use crate::server::architecture::{Architecture, MessagePlacement};
use crate::server::connection::{Connection, ReadCause, WaitingRequest};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, LaneTask, StartedRequest};
use crate::server::message::{self, Message};
use crate::server::parked_request::ParkedRequest;
use crate::server::worker::Worker;

impl ServedTask {
    /// Returns the deadline of a job, counted from now: the deadline of the task, or a shorter
    /// deadline for which the request asks. `waited` is the time since the request was read.
    #[inline]
    pub(super) fn deadline_of(
        &self,
        (header, octets): (&Header, &[u8]),
        limits: &Limits,
        waited: Duration,
    ) -> Option<Duration> {
        let TaskRules { deadline, min_requested_deadline: shortest_deadline, .. } = self.binding.rules;
        let (Some(deadline), Some(shortest)) = (deadline, shortest_deadline) else { return deadline };
        let asked = message::remaining_time(header, octets, limits).map(|time| time.saturating_sub(waited));
        Some(asked.map_or(deadline, |asked| asked.max(shortest).min(deadline)))
    }
}

impl SharedPool {
    /// Returns the task of a message with this object key and operation. `None` if the key names no
    /// task, or if the task is limited to another operation.
    pub(super) fn task_of(&self, (key, operation): (&[u8], Option<&[u8]>)) -> Option<u64> {
        let task = self.binder.task_of(key)?;
        let Some(operation) = operation else { return Some(task) };
        let is_job = self.state.lock().operations.get(&task).is_none_or(|own| **own == *operation);
        is_job.then_some(task)
    }

    pub(super) fn admit(&self, task: u64) -> RateAdmission {
        let rate = self.state.lock().rates.get(&task).cloned();
        rate.map_or(RateAdmission::Runs, |rate| rate.arrive(self.started_at.elapsed()))
    }

    pub(super) fn assign(&self, mailbox: &Mailbox, assignment: Assignment) {
        if assignment.wait.is_some() {
            self.state.lock().roster.count_delayed();
        }
        mailbox.assign(assignment);
    }

    /// Blocks the calling thread until the rate of the task permits the request, or until the task
    /// or the lane ends. A change of the rate wakes the thread through its mailbox, and the thread
    /// then computes the time again.
    #[cold]
    pub(super) fn wait_for_turn<S: Architecture<S>>(&self, lane: &Lane<S>, mailbox: &Arc<Mailbox>, wait: RateWait) {
        while let Some(turn) = wait.turn(mailbox) {
            let until = self.started_at + turn;
            if until.is_past() || lane.is_stopping() {
                break;
            }
            // An error only makes this loop check again.
            let _ = poll::wait_readable(mailbox.wake.as_fd(), Some(until));
            mailbox.wake.take_notifications();
        }
        wait.end();
    }

    /// Passes a request that gets no thread of its task to a best-effort thread, which runs or
    /// refuses it. If `should_wait` is true, the request is above the rate and is refused, because
    /// there is no thread at which it could wait. `is_in_set` is false if the task has ended.
    #[cold]
    pub(super) fn run_without_thread<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        lane: &Lane<S>,
        handler: &Arc<H>,
        (waiting, message): (WaitingRequest, Message),
        task: u64,
        (should_wait, is_in_set): (bool, bool),
    ) {
        if should_wait {
            return self.refuse_elsewhere(lane, handler, (waiting, message), task);
        }
        if is_in_set {
            self.report_not_bound(handler.context(), &waiting, task);
        }
        if !is_in_set || !self.settings.refuses_without_thread {
            return lane.push(LaneTask::Dispatch(waiting, message));
        }
        let (bytes, handler) = (message.bytes(), Arc::clone(handler));
        let refuse = move |_| Worker::new().reject_overloaded(&handler, &waiting, &message);
        lane.push(LaneTask::RunCollocated(ParkedRequest { bytes, resume: Box::new(refuse) }));
    }

    /// Puts a request above the rate of its task on the ready list, so that a best-effort thread
    /// refuses it.
    #[cold]
    pub(super) fn refuse_elsewhere<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        lane: &Lane<S>,
        handler: &Arc<H>,
        (waiting, message): (WaitingRequest, Message),
        task: u64,
    ) {
        let bytes = message.bytes();
        let (pool, handler) = (Arc::clone(self), Arc::clone(handler));
        let refuse = move |_| pool.refuse(&handler, &mut Worker::new(), &waiting, &message, task);
        lane.push(LaneTask::RunCollocated(ParkedRequest { bytes, resume: Box::new(refuse) }));
    }

    /// Refuses a request above the rate of its task: the client of a two-way call gets TRANSIENT,
    /// and a oneway is dropped. The calling thread is a best-effort thread.
    #[cold]
    pub(super) fn refuse<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Connection,
        message: &Message,
        task: u64,
    ) {
        let is_oneway = !message.wants_reply();
        self.state.lock().roster.count_refused(is_oneway);
        worker.reject(handler, connection, message, minor::TASK_RATE);
        let peer = connection.stream.peer().clone();
        handler.context().events().report(&Event::TaskRateExceeded { peer, task, is_oneway });
    }

    /// Refuses a request on the calling thread of the lane, and releases the connection's read
    /// lock, which this thread holds.
    #[cold]
    pub(super) fn refuse_here<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        message: &Message,
        task: u64,
    ) -> MessagePlacement {
        self.refuse(handler, worker, connection, message, task);
        connection.read_state.try_release_kept();
        lane.list_connection(connection, ReadCause::Readiness);
        MessagePlacement::Elsewhere { reads_on: false }
    }

    /// Runs a message on the calling thread. If `task` is present, the message is a job: the budget
    /// of the task applies, the job is ordered by `deadline` if there is one, and it is measured
    /// unless its request is parked.
    #[inline]
    pub(super) fn run_job<R>(
        &self,
        context: &OrbContext,
        task: Option<&ServedTask>,
        deadline: Option<Duration>,
        run: impl FnOnce() -> R,
    ) -> R {
        let meter = task.and_then(|task| task.meter.as_deref());
        let run = || {
            let started = meter.map(|meter| {
                job_budget::take_parked();
                (meter, self.jobs.begin())
            });
            let result = run();
            if let Some((meter, start)) = started
                && !job_budget::take_parked()
            {
                self.jobs.end(meter, start);
            }
            result
        };
        let run = || match task.map(|task| (task.number, task.binding)) {
            Some((
                number,
                TaskBinding { task, rules: TaskRules { budget: Some(budget), overrun_action: overrun, .. }, .. },
            )) => self.run_with_budget(context, number, (task, budget, overrun), run),
            _ => run(),
        };
        let by_deadline = task.and_then(|task| Some((task.number, task.binding.core, deadline?)));
        match by_deadline {
            Some(job) => self.run_by_deadline(context, job, run),
            None => run(),
        }
    }

    /// Runs a message that waited for the calling thread. The message is a job if `task` is present
    /// and the message is a request that runs now. Returns false if the connection must be retired.
    pub(super) fn run_waiting<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        task: Option<&ServedTask>,
        (waiting, message): (WaitingRequest, Message),
    ) -> bool {
        // A request that is deferred or that must not run is not a job.
        let Some(started) = lane.begin_waiting_request(waiting, message) else { return true };
        let StartedRequest { guard, connection, message, waited } = started;
        let task = task.filter(|_| message.parts().0.kind == MessageKind::Request);
        let deadline = task.and_then(|task| task.deadline_of(message.parts(), &self.settings.limits, waited));
        let goes_on = self.run_job(handler.context(), task, deadline, || {
            worker.dispatch(handler, &connection, message, WaitLimit::Now, waited)
        });
        drop(guard);
        goes_on
    }

    #[cold]
    pub(super) fn run_with_budget<R>(
        &self,
        context: &OrbContext,
        number: ThreadNumber,
        (task, budget, action): (u64, Duration, JobOverrunAction),
        job: impl FnOnce() -> R,
    ) -> R {
        let monitor = context.cpu_monitor().filter(|_| action != JobOverrunAction::Report);
        let monitor = monitor.map(|monitor| (context.stamp(), monitor));
        let running = JobBudget::begin(budget, monitor, action == JobOverrunAction::Stop);
        let result = job();
        if let Some(overrun) = running.end() {
            self.state.lock().roster.count_overrun(overrun);
            if overrun.is_demoted {
                self.restore_demoted(context, number);
            }
            context.events().report(&Event::JobOverBudget { task, budget, used: overrun.used, action });
        }
        result
    }

    #[cold]
    pub(super) fn run_by_deadline<R>(
        &self,
        context: &OrbContext,
        (number, core, deadline): (ThreadNumber, usize, Duration),
        run: impl FnOnce() -> R,
    ) -> R {
        let deadline_at = self.started_at.elapsed().saturating_add(deadline);
        let deadline_at = u64::try_from(deadline_at.as_nanos()).unwrap_or(u64::MAX);
        self.reorder(context, number, Some((core, deadline_at)));
        let result = run();
        self.reorder(context, number, None);
        result
    }
}
