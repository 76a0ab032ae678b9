//! A thread of a core pool that is the only reader of a connection.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_net::Wait;
use corelane_sys::clock::Monotonic;
use corelane_sys::poll;
use corelane_sys::slab::SlabGuard;
use corelane_sys::thread::Scheduling;
use corelane_wire::giop::MessageKind;

use super::rate::{RateGuard, RateVerdict};
use super::roster::ThreadNumber;
use super::{Assignment, CHECK_INTERVAL, Mailbox, RateAdmission, ServedTask, SharedPool, TaskThread, unwatch};
use crate::clock;
use crate::nested_wait::{self, NestedWaitHook};
use crate::orb_context::OrbContext;
use crate::server::architecture::Architecture;
use crate::server::connection::{Connection, WaitingRequest};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, LaneTask, StartedRequest};
use crate::server::message::{Message, object_key};
use crate::server::worker::{ReadResult, Worker};
use crate::thread_context;

/// Serves a connection, beginning with its first message, until the connection ends or returns to
/// the lane's threads.
pub(super) fn serve<S: Architecture<S>, H: RequestHandler>(
    pool: &Arc<SharedPool>,
    number: ThreadNumber,
    mailbox: &Mailbox,
    bound: &Rc<BoundConnection<S, H>>,
    worker: &mut Worker,
    (waiting, message, not_before): (WaitingRequest, Message, Option<Monotonic>),
) {
    let BoundConnection { lane, handler, connection, .. } = &**bound;
    let context = handler.context();
    let seen = mailbox.changes.load(Ordering::Acquire);
    let mut duty =
        DutyWatch { pool, mailbox, number, seen, keeps: true, task: None, waits_in_poll: false, may_have_input: true };
    duty.take(lane, context);
    nested_wait::install_dedicated(Rc::<BoundConnection<S, H>>::clone(bound));
    // The thread never waits in a write, so only the time-out of reading matters.
    let write_timeout = lane.config.connection_limits.write_timeout;
    duty.keeps &= connection.stream.set_coarse_timeouts(CHECK_INTERVAL, write_timeout).is_ok();
    let ended = not_before.and_then(|until| bound.wait_for_turn(&mut duty, worker, until));
    let mut step = ended.unwrap_or_else(|| {
        let kind = message.parts().0.kind;
        pool.run_job(context, duty.task.as_ref(), kind, || bound.run_first(worker, waiting, message))
    });
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
            // The thread is free before the lane's threads read the connection, so they can bind
            // the connection to it again.
            pool.finish(number);
            return bound.give_back();
        }
        step = bound.serve_next(&mut duty, worker);
    }
}

/// The duty of a bound thread, as the thread last read it.
struct DutyWatch<'p> {
    pool: &'p Arc<SharedPool>,
    mailbox: &'p Mailbox,
    number: ThreadNumber,
    /// The number of changes that the thread has read.
    seen: u32,
    /// False if the thread must give its connection up.
    keeps: bool,
    /// The task whose connection the thread serves.
    task: Option<ServedTask>,
    /// True after a wait of at least [`CHECK_INTERVAL`]. The thread then waits for the connection
    /// and for its mailbox, which costs one more system call for each message, and no wake-up while
    /// the client is silent. Otherwise it waits for the connection alone, and at most for this
    /// interval.
    waits_in_poll: bool,
    /// True if a complete message may be in a buffer, so that the descriptor does not report it.
    may_have_input: bool,
}

impl DutyWatch<'_> {
    /// Returns the rate of the task whose connection the thread serves.
    #[inline]
    fn rate(&self) -> Option<Arc<RateGuard>> {
        self.task.as_ref().and_then(|task| task.rate.clone())
    }

    /// Reads the duty again if it has changed.
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
        // A change of the tasks reports no refusal itself, because its caller may hold locks.
        self.pool.report_refusal(context, &lane.config.name);
    }
}

/// The outcome of a step of a thread with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The connection can be read again.
    GoesOn,
    /// The connection has ended, and the thread retires it.
    Failed,
    /// The connection has ended and is retired.
    Ended,
}

/// The connection that a thread serves, with the hook of the thread's nested calls.
pub(super) struct BoundConnection<S, H> {
    pub(super) lane: Arc<Lane<S>>,
    pub(super) handler: Arc<H>,
    pub(super) connection: Arc<Connection>,
    /// The object key of the task.
    pub(super) key: Box<[u8]>,
}

impl<S: Architecture<S>, H: RequestHandler> BoundConnection<S, H> {
    /// Runs the message with which another thread passed the connection to this thread.
    fn run_first(&self, worker: &mut Worker, waiting: WaitingRequest, message: Message) -> Step {
        let started = self.lane.begin_waiting_request(waiting, message);
        let Some(StartedRequest { guard, connection, message, waited }) = started else { return Step::GoesOn };
        let goes_on = worker.dispatch(&self.handler, &connection, message, Wait::Now, waited);
        drop(guard);
        if goes_on { Step::GoesOn } else { Step::Failed }
    }

    /// Waits for the next message and runs it. Returns without a message after the check interval,
    /// or if another thread has changed the duty of this thread.
    fn serve_next(&self, duty: &mut DutyWatch<'_>, worker: &mut Worker) -> Step {
        let BoundConnection { lane, handler, connection, key } = self;
        let context = handler.context();
        if duty.waits_in_poll && !duty.may_have_input {
            let begun = clock::now();
            if !self.wait_for_input(duty.mailbox, None) {
                return Step::GoesOn;
            }
            duty.waits_in_poll = begun.elapsed() >= CHECK_INTERVAL;
        }
        let message = match self.read(worker, Wait::Block) {
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
        let kind = header.kind;
        let named = object_key(header, octets, &context.config().limits);
        let is_own = named.is_none_or(|named| *named == **key);
        if !is_own {
            let task = named.and_then(|named| duty.pool.binder.task_of(named));
            self.pass_on(duty.pool, worker, message, task);
            return Step::GoesOn;
        }
        let names_task = named.is_some();
        // The task may have changed while the thread waited for the message.
        duty.check(lane, context);
        let mut message = message;
        if names_task && let Some(rate) = duty.rate() {
            if kind != MessageKind::Request {
                // A flood of LocateRequests must not take the time of tasks.
                self.pass_on(duty.pool, worker, message, None);
                return Step::GoesOn;
            }
            match rate.arrive(duty.pool.now()) {
                RateVerdict::Run => {}
                RateVerdict::WaitUntil(at) => {
                    drop(held);
                    let waiting = message.take().unwrap_or_else(|| worker.detach());
                    duty.pool.state.lock().roster.count_delayed();
                    return self.run_at(duty, worker, waiting, duty.pool.started_at + at);
                }
                RateVerdict::Refuse => {
                    self.refuse(duty, worker, message);
                    return Step::GoesOn;
                }
            }
        }
        self.run(duty, worker, (message, kind), held)
    }

    /// Runs a message of the connection's task. The message is in `message`, or else in the buffer
    /// of `worker`.
    #[inline]
    fn run(
        &self,
        duty: &DutyWatch<'_>,
        worker: &mut Worker,
        (message, kind): (Option<Message>, MessageKind),
        held: SlabGuard<'_, Arc<Connection>>,
    ) -> Step {
        let BoundConnection { handler, connection, .. } = self;
        // The lane's threads may run other messages of the connection at this time, so this thread
        // must not wait for the peer while it holds the output lock.
        let goes_on = duty.pool.run_job(handler.context(), duty.task.as_ref(), kind, || match message {
            None => worker.dispatch_in_place(handler, connection, Wait::Now),
            Some(message) => worker.dispatch(handler, connection, message, Wait::Now, Duration::ZERO),
        });
        drop(held);
        if goes_on { Step::GoesOn } else { Step::Failed }
    }

    /// Runs a message of the connection's task at the time `until`.
    #[cold]
    fn run_at(&self, duty: &mut DutyWatch<'_>, worker: &mut Worker, message: Message, until: Monotonic) -> Step {
        if let Some(ended) = self.wait_for_turn(duty, worker, until) {
            return ended;
        }
        let Some(held) = self.lane.guard_connection(&self.connection) else { return Step::Ended };
        let kind = message.parts().0.kind;
        self.run(duty, worker, (Some(message), kind), held)
    }

    /// Reads a message. The first result is `None` if the message is in the buffer of `worker`. The
    /// second is true if more input may have arrived. Returns `Ok(None)` if no message has arrived
    /// within the time for waiting, and `Err` if the connection has ended.
    #[inline(always)]
    fn read(&self, worker: &mut Worker, wait: Wait) -> Result<Option<(Option<Message>, bool)>, Step> {
        let BoundConnection { lane, handler, connection, .. } = self;
        let context = handler.context();
        // The lock is kept for this thread until it gives the connection back.
        let Some(mut turn) = connection.read_state.resume() else { return Err(Step::Ended) };
        let read = match turn.with(|reading| worker.read(reading, connection, context, wait)) {
            ReadResult::InPlace { more } => (None, more),
            ReadResult::Message { message, more } => (Some(message), more),
            ReadResult::Incomplete => {
                turn.keep();
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
        turn.keep();
        connection.record_message(lane.idle_tracker.now());
        Ok(Some(read))
    }

    /// Waits until the connection may have input, another thread has changed the duty of this
    /// thread, or `until` has passed. Returns true if the connection may have input.
    #[cold]
    fn wait_for_input(&self, mailbox: &Mailbox, until: Option<Monotonic>) -> bool {
        let stream = &self.connection.stream;
        let Some(readiness) = stream.arrivals() else { return true };
        // An error means that the connection has ended, which the next read finds.
        if !matches!(stream.arm_readiness(), Ok(None | Some(false))) {
            return true;
        }
        let Ok([input, is_woken]) = poll::wait_readable_any([readiness, mailbox.wake.as_fd()], until) else {
            return true;
        };
        if is_woken {
            mailbox.wake.drain();
        }
        input
    }

    /// Waits until the request that arrived too early may run, and refuses further requests of the
    /// task meanwhile. A change of the task's rate ends the wait. Requests that arrive during the
    /// wait are read in the ordinary class, so that a flood of them takes no time from tasks.
    /// Returns the next step if the connection has ended.
    #[cold]
    fn wait_for_turn(&self, duty: &mut DutyWatch<'_>, worker: &mut Worker, until: Monotonic) -> Option<Step> {
        let rate = duty.rate();
        let (mut ended, mut is_lowered) = (None, false);
        let has_rate = |duty: &DutyWatch<'_>| match (&rate, duty.rate()) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, &now),
            _ => false,
        };
        while ended.is_none() && duty.keeps && has_rate(duty) && !until.is_past() {
            // Requests that arrived with the waiting one are in the buffer.
            if std::mem::take(&mut duty.may_have_input) || self.wait_for_input(duty.mailbox, Some(until)) {
                // The kernel permits a lower priority to every thread.
                let _ = thread_context::set_scheduling(Scheduling::Other);
                is_lowered = true;
                ended = self.refuse_arrivals(duty, worker, until);
            }
            duty.check(&self.lane, self.handler.context());
        }
        if is_lowered {
            duty.take(&self.lane, self.handler.context());
        }
        match &rate {
            Some(rate) if ended.is_some() => rate.cancel_wait(),
            Some(rate) => rate.end_wait(),
            None => {}
        }
        duty.may_have_input = true;
        ended
    }

    /// Reads the messages that have arrived. Refuses requests of the connection's task, and passes
    /// other messages on. Returns the next step if the connection has ended.
    fn refuse_arrivals(&self, duty: &DutyWatch<'_>, worker: &mut Worker, until: Monotonic) -> Option<Step> {
        while !until.is_past() {
            let message = match self.read(worker, Wait::Now) {
                Ok(Some((message, _))) => message.unwrap_or_else(|| worker.detach()),
                Ok(None) => return None,
                Err(step) => return Some(step),
            };
            let Some(_held) = self.lane.guard_connection(&self.connection) else { return Some(Step::Ended) };
            let (header, octets) = message.parts();
            let named = object_key(header, octets, &self.handler.context().config().limits);
            match named {
                Some(named) if *named == *self.key && header.kind == MessageKind::Request => {
                    self.refuse(duty, worker, Some(message));
                }
                _ => {
                    let task = named.filter(|named| **named != *self.key).and_then(|key| duty.pool.binder.task_of(key));
                    self.pass_on(duty.pool, worker, Some(message), task);
                }
            }
        }
        None
    }

    /// Refuses a request above the rate of the connection's task.
    #[cold]
    fn refuse(&self, duty: &DutyWatch<'_>, worker: &mut Worker, message: Option<Message>) {
        let Some(task) = &duty.task else { return };
        let message = message.unwrap_or_else(|| worker.detach());
        duty.pool.refuse(&self.handler, worker, &self.connection, &message, task.binding.task);
    }

    /// Passes a message that does not belong to the connection's task to a thread of its own task,
    /// or to the lane's threads.
    #[cold]
    fn pass_on(&self, pool: &Arc<SharedPool>, worker: &mut Worker, message: Option<Message>, task: Option<u64>) {
        let message = message.unwrap_or_else(|| worker.detach());
        let waiting = self.connection.add_waiting_request(Duration::ZERO);
        let admission = task.map(|task| (task, pool.admit(task, message.parts().0)));
        match admission {
            Some((task, RateAdmission::Refused)) => {
                drop(waiting);
                pool.refuse(&self.handler, worker, &self.connection, &message, task);
            }
            Some((task, RateAdmission::Runs { not_before, rate })) => {
                match pool.choose_thread(&self.lane, &self.handler, &self.connection, task, false) {
                    TaskThread::Connection(mailbox) | TaskThread::Message(mailbox) => {
                        mailbox.assign(Assignment { waiting, message, key: None, not_before });
                    }
                    TaskThread::None => {
                        // A thread without a task does not wait for the rate.
                        if let Some(rate) = rate.filter(|_| not_before.is_some()) {
                            rate.end_wait();
                        }
                        self.lane.push(LaneTask::Dispatch(waiting, message));
                    }
                }
            }
            None => {
                pool.state.lock().roster.count_foreign();
                self.lane.push(LaneTask::Dispatch(waiting, message));
            }
        }
    }

    /// Takes the connection back from the lane's threads after a nested call. Returns false if one
    /// of them reads it now, or if it is retired.
    fn reclaim(&self) -> bool {
        // A draining connection needs its events. With the guard it cannot begin to drain
        // meanwhile.
        let Some(_served) = self.lane.guard_connection(&self.connection) else { return false };
        let Some(turn) = self.connection.read_state.try_enter() else { return false };
        turn.keep();
        unwatch(&self.lane, &self.connection);
        true
    }

    /// Gives the connection back to the lane's threads.
    fn give_back(&self) {
        self.connection.read_state.release();
        // With the guard the connection cannot begin to drain meanwhile, which needs other events.
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
