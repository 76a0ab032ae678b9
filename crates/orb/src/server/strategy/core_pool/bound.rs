//! The work of a core-pool thread that alone reads the connection of a task and runs its requests.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_sys::poll;
use corelane_wire::giop::MessageKind;

use super::rate::{RateAdmission, RateWait};
use super::reader::Hold;
use super::roster::ThreadNumber;
use super::{AssignedWork, Assignment, CHECK_INTERVAL, Mailbox, ServedTask, SharedPool, TaskThread, unwatch};
use crate::clock;
use crate::nested_wait::{self, NestedWaitHook};
use crate::orb_context::OrbContext;
use crate::server::architecture::Architecture;
use crate::server::connection::{Connection, WaitingRequest};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, LaneTask};
use crate::server::message::{Message, target_of};
use crate::server::worker::{ReadResult, Worker};

/// Serves a connection, beginning with its first message, until the connection ends or returns to
/// the lane's threads.
pub(super) fn serve<S: Architecture<S>, H: RequestHandler>(
    pool: &Arc<SharedPool>,
    number: ThreadNumber,
    mailbox: &Arc<Mailbox>,
    bound: &Rc<BoundConnection<S, H>>,
    worker: &mut Worker,
    (waiting, message, wait): (WaitingRequest, Message, Option<RateWait>),
) {
    let BoundConnection { lane, handler, connection, .. } = &**bound;
    let context = handler.context();
    let seen = mailbox.changes.load(Ordering::Acquire);
    let mut duty =
        DutyWatch { pool, mailbox, number, seen, keeps: true, task: None, waits_in_poll: false, may_have_input: true };
    duty.take(lane, context);
    nested_wait::install_dedicated(Rc::<BoundConnection<S, H>>::clone(bound));
    // The thread never waits in a write, so the write time-out has no effect.
    let write_timeout = lane.config.connection_limits.write_timeout;
    duty.keeps &= connection.stream.set_coarse_timeouts(CHECK_INTERVAL, write_timeout).is_ok();
    let mut step = bound.run_waiting(&mut duty, worker, (waiting, message), wait);
    loop {
        match step {
            Step::GoesOn => {}
            Step::Failed => {
                pool.finish(number);
                return lane.retire_connection(context, connection.handle);
            }
            Step::Ended => return pool.finish(number),
        }
        if !nested_wait::is_dedicated() {
            if !bound.reclaim() {
                return pool.finish(number);
            }
            nested_wait::install_dedicated(Rc::<BoundConnection<S, H>>::clone(bound));
            duty.may_have_input = true;
        }
        duty.check(lane, context);
        if !duty.keeps || connection.is_read_paused() || lane.is_closing() {
            // The thread is marked free before the lane's threads read the connection, so that they
            // can bind the connection to it again.
            pool.finish(number);
            return bound.give_back();
        }
        step = bound.serve_next(&mut duty, worker);
    }
}

struct DutyWatch<'p> {
    pool: &'p Arc<SharedPool>,
    mailbox: &'p Arc<Mailbox>,
    number: ThreadNumber,
    /// Value of [`Mailbox::changes`] when the thread last read its duty.
    seen: u32,
    /// False if the thread must return its connection to the lane.
    keeps: bool,
    task: Option<ServedTask>,
    /// True after a wait of at least [`CHECK_INTERVAL`]. The thread then polls its connection and
    /// its mailbox without a time-out. This costs a system call for each message, but saves
    /// wake-ups while the client is silent.
    waits_in_poll: bool,
    /// True if a complete message may be in a buffer, so that the descriptor does not report it.
    may_have_input: bool,
}

impl DutyWatch<'_> {
    #[inline]
    fn check<S: Architecture<S>>(&mut self, lane: &Lane<S>, context: &OrbContext) {
        let changes = self.mailbox.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.seen = changes;
            self.take(lane, context);
        }
    }

    #[cold]
    fn take<S: Architecture<S>>(&mut self, lane: &Lane<S>, context: &OrbContext) {
        self.task = self.pool.take_duty(lane, context, self.number);
        self.keeps &= self.task.is_some();
        // A thread that changes the set of tasks may hold locks, so it does not report a refusal of
        // the kernel. The calling thread reports the refusal when it takes its new duty.
        self.pool.report_refusal(context, &lane.config.name);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    GoesOn,
    /// The connection has ended, and the caller must retire it.
    Failed,
    /// The connection has ended and is retired.
    Ended,
}

pub(super) struct BoundConnection<S, H> {
    pub(super) lane: Arc<Lane<S>>,
    pub(super) handler: Arc<H>,
    pub(super) connection: Arc<Connection>,
    pub(super) key: Box<[u8]>,
}

impl<S: Architecture<S>, H: RequestHandler> BoundConnection<S, H> {
    /// Runs a message that another thread has read, or a request that must first wait until the
    /// rate of its task permits it (`wait`). The lane's threads read the connection during this
    /// wait.
    fn run_waiting(
        self: &Rc<Self>,
        duty: &mut DutyWatch<'_>,
        worker: &mut Worker,
        (waiting, message): (WaitingRequest, Message),
        wait: Option<RateWait>,
    ) -> Step {
        if let Some(wait) = wait {
            nested_wait::release_dedicated_connection();
            duty.pool.wait_for_turn(&self.lane, duty.mailbox, wait);
            duty.check(&self.lane, self.handler.context());
            // If `reclaim` fails, `serve` calls it again after the job.
            if duty.keeps && self.reclaim() {
                nested_wait::install_dedicated(Rc::<Self>::clone(self));
                duty.may_have_input = true;
            }
        }
        if duty.task.is_none() {
            // The task has ended, so a best-effort thread runs the message.
            self.lane.push(LaneTask::Dispatch(waiting, message));
            return Step::GoesOn;
        }
        let task = duty.task.as_ref();
        let goes_on = duty.pool.run_waiting(&self.lane, &self.handler, worker, task, (waiting, message));
        if goes_on { Step::GoesOn } else { Step::Failed }
    }

    /// Waits for the next message, and runs it or passes it to another thread. Returns without a
    /// message after [`CHECK_INTERVAL`], if the connection has ended, or if another thread has
    /// changed the duty of this thread.
    fn serve_next(self: &Rc<Self>, duty: &mut DutyWatch<'_>, worker: &mut Worker) -> Step {
        let BoundConnection { lane, handler, connection, key } = &**self;
        let context = handler.context();
        if duty.waits_in_poll && !duty.may_have_input {
            let begun = clock::now();
            if !self.wait_for_input(duty.mailbox) {
                return Step::GoesOn;
            }
            duty.waits_in_poll = begun.elapsed() >= CHECK_INTERVAL;
        }
        let message = match self.read(worker, WaitLimit::Block) {
            Ok(Some((message, more))) => {
                duty.may_have_input = more;
                message
            }
            Ok(None) => {
                (duty.waits_in_poll, duty.may_have_input) = (true, false);
                return Step::GoesOn;
            }
            Err(step) => return step,
        };
        let Some(held) = lane.guard_connection(connection) else { return Step::Ended };
        let (header, octets) = message.as_ref().map_or_else(|| worker.in_place(), Message::parts);
        let is_job = match header.kind {
            MessageKind::Request => {
                let target = target_of(header, octets, &context.config().limits);
                let own = duty.task.as_ref().and_then(|task| task.operation.as_deref());
                let is_own = target
                    .is_some_and(|(named, operation)| named == &**key && own.is_none_or(|own| operation == Some(own)));
                if !is_own {
                    let task = target.and_then(|target| duty.pool.task_of(target));
                    self.pass_on(duty.pool, worker, message, task);
                    return Step::GoesOn;
                }
                true
            }
            MessageKind::LocateRequest => {
                let (waiting, message) = self.detached(worker, message);
                lane.push(LaneTask::Dispatch(waiting, message));
                return Step::GoesOn;
            }
            _ => false,
        };
        duty.check(lane, context);
        if is_job && duty.task.is_none() {
            let (waiting, message) = self.detached(worker, message);
            lane.push(LaneTask::Dispatch(waiting, message));
            return Step::GoesOn;
        }
        let task = duty.task.as_ref().filter(|_| is_job);
        if let Some(ServedTask { binding, rate: Some(rate), .. }) = task {
            match rate.arrive(duty.pool.started_at.elapsed()) {
                RateAdmission::Runs => {}
                RateAdmission::Waits(wait) => {
                    drop(held);
                    duty.pool.state.lock().roster.count_delayed();
                    let waiting = self.detached(worker, message);
                    return self.run_waiting(duty, worker, waiting, Some(wait));
                }
                RateAdmission::Refused => {
                    // From now on the lane's threads read the connection, and refuse further
                    // requests.
                    let (task, waiting) = (binding.task, self.detached(worker, message));
                    duty.pool.refuse_elsewhere(lane, handler, waiting, task);
                    duty.keeps = false;
                    return Step::GoesOn;
                }
            }
        }
        // The lane's threads may run other messages of the connection at this time, so this thread
        // must not wait for the peer while it holds the output lock.
        let parts = message.as_ref().map_or_else(|| worker.in_place(), Message::parts);
        let deadline = task.and_then(|task| task.deadline_of(parts, &context.config().limits, Duration::ZERO));
        let goes_on = duty.pool.run_job(context, task, deadline, || match message {
            None => worker.dispatch_in_place(handler, connection, WaitLimit::Now),
            Some(message) => worker.dispatch(handler, connection, message, WaitLimit::Now, Duration::ZERO),
        });
        drop(held);
        if goes_on { Step::GoesOn } else { Step::Failed }
    }

    /// Registers a waiting request for a message, and returns both. The message is in `message` or,
    /// if this is `None`, in the buffer of `worker`.
    #[cold]
    fn detached(&self, worker: &mut Worker, message: Option<Message>) -> (WaitingRequest, Message) {
        let message = message.unwrap_or_else(|| worker.detach());
        (self.connection.add_waiting_request(Duration::ZERO), message)
    }

    #[inline(always)]
    fn read(&self, worker: &mut Worker, wait: WaitLimit) -> Result<Option<(Option<Message>, bool)>, Step> {
        let BoundConnection { lane, handler, connection, .. } = self;
        let context = handler.context();
        // This thread holds the read lock between messages, until it returns the connection to the
        // lane.
        let Some(mut turn) = connection.read_state.resume_kept() else { return Err(Step::Ended) };
        let read = match turn.with(|reading| worker.read(reading, connection, context, wait)) {
            ReadResult::InPlace { more } => (None, more),
            ReadResult::Message { message, more } => (Some(message), more),
            ReadResult::Incomplete => {
                turn.keep_locked();
                return Ok(None);
            }
            ReadResult::AlreadyEnded => return Err(Step::Ended),
            ReadResult::EndOfStream => {
                drop(turn);
                lane.handle_half_close(context, connection);
                return Err(Step::Ended);
            }
            ReadResult::Fault(fault, told) => {
                drop(turn);
                lane.handle_protocol_fault(context, connection, fault, &told);
                return Err(Step::Ended);
            }
        };
        turn.keep_locked();
        connection.record_message(lane.idle_tracker.now());
        Ok(Some(read))
    }

    /// Waits until the connection may have input, or another thread has changed the duty of this
    /// thread. Returns true if the connection may have input.
    #[cold]
    fn wait_for_input(&self, mailbox: &Mailbox) -> bool {
        let stream = &self.connection.stream;
        let Some(readiness) = stream.arrival_descriptor() else { return true };
        // An error means that the connection has ended, which the next read finds.
        if !matches!(stream.arm_readiness(), Ok(None | Some(false))) {
            return true;
        }
        let Ok([input, is_woken]) = poll::wait_readable_any([readiness, mailbox.wake.as_fd()], None) else {
            return true;
        };
        if is_woken {
            mailbox.wake.take_notifications();
        }
        input
    }

    /// Passes on, or refuses, a request that does not belong to the task to which the connection is
    /// bound.
    #[cold]
    fn pass_on(&self, pool: &Arc<SharedPool>, worker: &mut Worker, message: Option<Message>, task: Option<u64>) {
        let BoundConnection { lane, handler, connection, .. } = self;
        let (waiting, message) = self.detached(worker, message);
        let Some(task) = task else {
            pool.state.lock().roster.count_foreign();
            return lane.push(LaneTask::Dispatch(waiting, message));
        };
        let wait = match pool.admit(task) {
            RateAdmission::Runs => None,
            RateAdmission::Waits(wait) => Some(wait),
            RateAdmission::Refused => return pool.refuse_elsewhere(lane, handler, (waiting, message), task),
        };
        match pool.choose_thread(lane, handler, connection, task, (true, false)) {
            TaskThread::Connection(mailbox) | TaskThread::Message(mailbox) => {
                let work = AssignedWork::Message(Hold::None);
                pool.assign(&mailbox, Assignment { waiting, message, work, wait });
            }
            found => {
                let is_in_set = matches!(found, TaskThread::Exhausted);
                pool.run_without_thread(lane, handler, (waiting, message), task, (wait.is_some(), is_in_set));
            }
        }
    }

    /// Takes the connection back from the lane's threads after a nested call or a wait. Returns
    /// false if another thread reads the connection now, or if the connection is retired.
    fn reclaim(&self) -> bool {
        // `unwatch` must not remove a draining connection from the lane's epoll instance. The
        // connection cannot begin to drain while the guard exists.
        let Some(_served) = self.lane.guard_connection(&self.connection) else { return false };
        let Some(turn) = self.connection.read_state.try_enter() else { return false };
        turn.keep_locked();
        unwatch(&self.lane, &self.connection);
        true
    }

    fn give_back(&self) {
        self.connection.read_state.try_release_kept();
        if let Some(_served) = self.lane.guard_connection(&self.connection) {
            self.lane.watch_connection(self.handler.context(), &self.connection);
        }
    }
}

impl<S: Architecture<S>, H: RequestHandler> NestedWaitHook for BoundConnection<S, H> {
    fn release_connection(&self) {
        self.give_back();
    }
}
