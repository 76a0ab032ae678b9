//! The reader of the connections of tasks, in the modes in which a thread above all tasks reads
//! each request: the manager, and leader/followers.
//!
//! ```text
//!            first request of a task                 request of a task
//! lane -----------------------------> read by -----------------------------> held by the thread
//!      <----------------------------- the reader <-------------------------- that runs it
//!        its task ended, above the rate,           end of the request, nested call
//!        replies are not read, lane closes,
//!        too many messages besides jobs
//! ```
//!
//! The epoll of the reader reports a connection once, and then nothing until the connection is
//! watched again. While a thread holds the connection, its read lock is kept. So the requests of a
//! connection run one after another in the order of their arrival, except during nested calls.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::pending_lock::PendingLockGuard;
use corelane_sys::thread::{self, CpuSet, Tid};
use corelane_wire::exception::minor;
use corelane_wire::giop::MessageKind;

use super::rate::{RateAdmission, RateWait};
use super::roster::ThreadNumber;
use super::{AssignedWork, Assignment, Mailbox, SharedPool, TaskThread, unwatch};
use crate::event::Event;
use crate::nested_wait::{self, NestedWaitHook};
use crate::rt::core_config::CorePoolMode;
use crate::server::architecture::{Architecture, MessagePlacement};
use crate::server::connection::{Connection, ReadCause, ReadState, WaitingRequest};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, LaneTask, handle_of, token_of};
use crate::server::message::{Message, target_of};
use crate::server::worker::{ReadResult, Worker};

/// Native priority of the threads that read the requests of tasks: above all tasks.
pub(crate) const READER_PRIORITY: u8 = 99;

/// Number of the manager's threads: one can read while the other blocks.
const MANAGER_THREADS: usize = 2;

/// Number of messages that are not jobs after which the reader leaves a connection to the lane's
/// threads until the connection's next job. So a client's flood of such messages takes no time from
/// tasks.
const MAX_MESSAGES_BESIDES_JOBS: u32 = 4;

const WAKE: u64 = u64::MAX;

pub(super) struct TaskReader {
    epoll: Epoll,
    /// Notified if `listed` has work, and for the end of the lane.
    wake: EventFd,
    listed: PiMutex<VecDeque<ListedWork>>,
    /// The kernel's ids of the manager's threads.
    manager: PiMutex<Vec<Tid>>,
}

enum ListedWork {
    /// A connection that may have input in its buffer.
    Read((u32, u32)),
    Request(TaskRequest),
}

/// A request of a task, which has been read and has no thread yet.
pub(super) struct TaskRequest {
    pub(super) task: u64,
    pub(super) waiting: WaitingRequest,
    pub(super) message: Message,
    pub(super) wait: Option<RateWait>,
    pub(super) hold: Hold,
}

/// Whether the connection of a waiting request is read before the request has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// The connection is read by other threads.
    None,
    /// Nothing reads the connection until the request has run. `may_have_input` is true if the next
    /// message may be in the connection's buffer.
    Connection { may_have_input: bool },
}

enum Content {
    Job(u64),
    /// A request without a task (`is_foreign` is true), or a LocateRequest (`is_foreign` is false).
    BestEffort {
        is_foreign: bool,
    },
    Other,
}

impl TaskReader {
    pub(super) fn new() -> io::Result<Self> {
        let (epoll, wake) = (Epoll::new()?, EventFd::new()?);
        epoll.add(wake.as_fd(), WAKE, Interest::READABLE | Interest::EDGE)?;
        let listed = PiMutex::new("listed requests of tasks", LockScope::Lane, VecDeque::new());
        let manager = PiMutex::new("manager", LockScope::Lane, Vec::new());
        Ok(TaskReader { epoll, wake, listed, manager })
    }

    /// Ends the waits of the reader's threads, and drops the requests that have no thread.
    pub(super) fn stop(&self) {
        // The drop of a request may list its connection, so it must not happen under the lock.
        let dropped = std::mem::take(&mut *self.listed.lock());
        drop(dropped);
        self.wake.notify();
    }

    /// Gives the reader a request that a thread of the lane has read.
    pub(super) fn take_over(&self, request: TaskRequest) {
        self.list(ListedWork::Request(request));
    }

    fn list(&self, work: ListedWork) {
        self.listed.lock().push_back(work);
        self.wake.notify();
    }

    fn next_listed(&self) -> Option<ListedWork> {
        let (work, has_more) = {
            let mut listed = self.listed.lock();
            (listed.pop_front(), !listed.is_empty())
        };
        if has_more {
            self.wake.notify();
        }
        work
    }

    /// Lets the reader's epoll instance report the next input of a connection whose read lock is
    /// free. If input is there already, lists the connection for reading instead.
    pub(super) fn watch<S: Architecture<S>>(&self, lane: &Lane<S>, connection: &Connection, may_have_input: bool) {
        let token = token_of(connection.handle);
        let is_there = may_have_input || matches!(connection.stream.arm_readiness(), Ok(Some(true)));
        if is_there {
            return self.list(ListedWork::Read(connection.handle));
        }
        // A retired connection belongs to the lane, so it is not watched here.
        let Some(_served) = lane.guard_connection(connection) else { return };
        let Some(arrivals) = connection.stream.arrival_descriptor() else { return };
        let interest = Interest::READABLE | Interest::HANG_UP | Interest::ONE_SHOT;
        if self.epoll.modify(arrivals, token, interest).is_err() && self.epoll.add(arrivals, token, interest).is_err() {
            // The kernel lacks memory, so the connection is closed. The client calls again on a new
            // connection.
            connection.close();
            self.list(ListedWork::Read(connection.handle));
        }
    }

    fn unwatch(&self, connection: &Connection) {
        if let Some(arrivals) = connection.stream.arrival_descriptor() {
            // A connection that was never watched is not in the epoll, so an error is ignored.
            let _ = self.epoll.remove(arrivals);
        }
    }

    /// Returns a connection, whose read lock is free, to the lane's threads.
    fn give_back<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
    ) {
        self.unwatch(connection);
        if let Some(_served) = lane.guard_connection(connection) {
            lane.watch_connection(handler.context(), connection);
        }
    }

    /// Watches a connection after a message that is not a job, or returns the connection to the
    /// lane's threads if there were too many such messages since its last job.
    fn go_on<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        may_have_input: bool,
    ) {
        if is_left_to_lane(connection) {
            self.give_back(lane, handler, connection);
        } else {
            self.watch(lane, connection, may_have_input);
        }
    }

    /// Waits for an event, and returns the request of a task if the event brings one. Returns
    /// `Break` if the lane stops or the wait fails.
    fn next_or_end<S: Architecture<S>, H: RequestHandler>(
        &self,
        pool: &Arc<SharedPool>,
        lane: &Arc<Lane<S>>,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> ControlFlow<(), Option<TaskRequest>> {
        if lane.is_stopping() {
            return ControlFlow::Break(());
        }
        match self.next(pool, lane, handler, worker) {
            Ok(request) => ControlFlow::Continue(request),
            Err(error) => {
                let message = format!("{}: {error}", lane.config.name);
                handler.context().events().report(&Event::ThreadFailed { message });
                ControlFlow::Break(())
            }
        }
    }

    /// Waits for an event. Returns the request of a task if the event brings one. Handles all other
    /// messages.
    fn next<S: Architecture<S>, H: RequestHandler>(
        &self,
        pool: &Arc<SharedPool>,
        lane: &Arc<Lane<S>>,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> io::Result<Option<TaskRequest>> {
        let mut events = [EpollEvent::EMPTY; 1];
        if self.epoll.wait(&mut events, None)? == 0 {
            return Ok(None);
        }
        let event = events[0];
        if event.token() != WAKE {
            let handle = handle_of(event.token());
            if (event.is_hung_up() || event.is_error())
                && let Some(connection) = lane.connections.get(handle.0, handle.1)
            {
                connection.record_hang_up();
            }
            return Ok(self.read(pool, lane, handler, worker, handle));
        }
        Ok(match self.next_listed() {
            Some(ListedWork::Request(request)) => Some(request),
            Some(ListedWork::Read(handle)) => self.read(pool, lane, handler, worker, handle),
            None => None,
        })
    }

    /// Reads one message of a connection. Returns the message if it is a request of a task that may
    /// run, and handles every other message.
    fn read<S: Architecture<S>, H: RequestHandler>(
        &self,
        pool: &Arc<SharedPool>,
        lane: &Arc<Lane<S>>,
        handler: &Arc<H>,
        worker: &mut Worker,
        handle: (u32, u32),
    ) -> Option<TaskRequest> {
        let context = handler.context();
        // The connection cannot begin to drain while the guard exists.
        let served = lane.connections.get(handle.0, handle.1)?;
        let connection = Arc::clone(&served);
        if connection.is_read_paused() || lane.is_closing() {
            self.give_back(lane, handler, &connection);
            return None;
        }
        let Some(mut turn) = connection.read_state.try_enter() else {
            // A thread of the lane, which found the connection on the ready list, reads it now, and
            // does not watch it afterwards. The one-shot event of the reader's epoll is used up, so
            // the connection returns to the lane's threads.
            self.give_back(lane, handler, &connection);
            return None;
        };
        let read = turn.with(|reading| {
            reading.is_drained = false;
            worker.read_now(reading, &connection, context)
        });
        let (message, more) = match read {
            ReadResult::InPlace { more } => (None, more),
            ReadResult::Message { message, more } => (Some(message), more),
            ReadResult::Incomplete => {
                let may_have_input = leave(turn);
                self.watch(lane, &connection, may_have_input);
                return None;
            }
            ReadResult::AlreadyEnded => return None,
            ReadResult::EndOfStream => {
                drop(turn);
                lane.handle_half_close(context, &connection);
                return None;
            }
            ReadResult::Fault(fault, told) => {
                drop(turn);
                lane.handle_protocol_fault(context, &connection, fault, &told);
                return None;
            }
        };
        connection.record_message(lane.idle_tracker.now());
        let content = {
            let (header, octets) = message.as_ref().map_or_else(|| worker.in_place(), Message::parts);
            // The program's `TaskBinder` may panic, which must not end this thread. No other code
            // here panics.
            catch_unwind(AssertUnwindSafe(|| {
                let is_request = match header.kind {
                    MessageKind::Request => true,
                    MessageKind::LocateRequest => false,
                    _ => return Content::Other,
                };
                let target = target_of(header, octets, &context.config().limits);
                let task = target.filter(|_| is_request).and_then(|target| pool.task_of(target));
                task.map_or(Content::BestEffort { is_foreign: is_request }, Content::Job)
            }))
        };
        match content {
            Ok(Content::Job(task)) => {
                connection.messages_since_job.store(0, Ordering::Relaxed);
                turn.keep_locked();
                let message = message.unwrap_or_else(|| worker.detach());
                let waiting = connection.add_waiting_request(Duration::ZERO);
                self.admitted(pool, lane, handler, task, (waiting, message), more)
            }
            Ok(Content::BestEffort { is_foreign }) => {
                count_besides_jobs(&connection);
                let may_have_input = leave(turn) | more;
                if is_foreign {
                    pool.state.lock().roster.count_foreign();
                }
                let message = message.unwrap_or_else(|| worker.detach());
                lane.push(LaneTask::Dispatch(connection.add_waiting_request(Duration::ZERO), message));
                self.go_on(lane, handler, &connection, may_have_input);
                None
            }
            Ok(Content::Other) => {
                count_besides_jobs(&connection);
                let may_have_input = leave(turn) | more;
                let goes_on = match message {
                    None => worker.dispatch_in_place(handler, &connection, WaitLimit::Now),
                    Some(message) => worker.dispatch(handler, &connection, message, WaitLimit::Now, Duration::ZERO),
                };
                if goes_on {
                    self.go_on(lane, handler, &connection, may_have_input);
                } else {
                    lane.retire_connection(context, handle);
                }
                None
            }
            Err(_) => {
                count_besides_jobs(&connection);
                let may_have_input = leave(turn) | more;
                let message = message.unwrap_or_else(|| worker.detach());
                worker.reject(handler, &connection, &message, minor::transient::DISCARDED);
                self.go_on(lane, handler, &connection, may_have_input);
                let message = format!("{}: the task binder panicked", lane.config.name);
                context.events().report(&Event::ThreadFailed { message });
                None
            }
        }
    }

    /// Returns a request of a task on a held connection, if the rate of the task permits it.
    /// Otherwise refuses the request, and returns the connection to the lane's threads.
    fn admitted<S: Architecture<S>, H: RequestHandler>(
        &self,
        pool: &Arc<SharedPool>,
        lane: &Lane<S>,
        handler: &Arc<H>,
        task: u64,
        (waiting, message): (WaitingRequest, Message),
        may_have_input: bool,
    ) -> Option<TaskRequest> {
        let wait = match pool.admit(task) {
            RateAdmission::Runs => None,
            RateAdmission::Waits(wait) => Some(wait),
            RateAdmission::Refused => {
                let connection = Arc::clone(&*waiting);
                pool.refuse_elsewhere(lane, handler, (waiting, message), task);
                connection.read_state.try_release_kept();
                self.give_back(lane, handler, &connection);
                return None;
            }
        };
        Some(TaskRequest { task, waiting, message, wait, hold: Hold::Connection { may_have_input } })
    }

    /// Frees the read lock of a held connection, and watches the connection again.
    fn release<S: Architecture<S>>(&self, lane: &Lane<S>, connection: &Connection, hold: Hold) {
        if let Hold::Connection { may_have_input } = hold
            && connection.read_state.try_release_kept()
        {
            self.watch(lane, connection, may_have_input);
        }
    }

    /// Passes a request that gets no thread of its task to a best-effort thread, which runs or
    /// refuses it. The connection returns to the lane's threads if the task has ended (`is_in_set`
    /// is false), or if the request waited for the rate of its task.
    fn run_without_thread<S: Architecture<S>, H: RequestHandler>(
        &self,
        pool: &Arc<SharedPool>,
        lane: &Lane<S>,
        handler: &Arc<H>,
        request: TaskRequest,
        is_in_set: bool,
    ) {
        let TaskRequest { task, waiting, message, wait, hold } = request;
        let connection = Arc::clone(&*waiting);
        let is_early = wait.is_some();
        pool.run_without_thread(lane, handler, (waiting, message), task, (is_early, is_in_set));
        // The end of the wait lets another early request of the task wait.
        drop(wait);
        // An early request that found no thread was refused. Its connection returns to the lane, as
        // after a request above the rate, so that a flood of such requests is not read above tasks.
        if is_in_set && !is_early {
            self.release(lane, &connection, hold);
        } else {
            self.release_to_lane(lane, handler, &connection, hold);
        }
    }

    /// Frees the read lock of a held connection, and returns the connection to the lane's threads.
    fn release_to_lane<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        hold: Hold,
    ) {
        if hold != Hold::None && connection.read_state.try_release_kept() {
            self.give_back(lane, handler, connection);
        }
    }

    /// Puts the manager's threads on their core again.
    pub(super) fn return_manager(&self, core: usize) {
        for tid in self.manager.lock().iter() {
            // An error usually means that the core has gone again. It is ignored, because the
            // core's watcher notices the loss.
            let _ = thread::set_affinity(Some(*tid), &CpuSet::one(core));
        }
    }
}

/// Counts a message that is not a job. The calling thread has the connection's read lock.
fn count_besides_jobs(connection: &Connection) {
    let count = connection.messages_since_job.load(Ordering::Relaxed);
    connection.messages_since_job.store(count.saturating_add(1), Ordering::Relaxed);
}

/// Returns true if the lane's threads read the connection until its next job.
fn is_left_to_lane(connection: &Connection) -> bool {
    connection.messages_since_job.load(Ordering::Relaxed) >= MAX_MESSAGES_BESIDES_JOBS
}

/// Frees the read lock after a message. Returns true if another thread has reported input while the
/// lock was held.
fn leave(turn: PendingLockGuard<'_, ReadState>) -> bool {
    turn.leave().map_err(drop).is_err()
}

/// A connection that the calling thread holds while it runs a request.
struct HeldConnection<S> {
    pool: Arc<SharedPool>,
    lane: Arc<Lane<S>>,
    connection: Arc<Connection>,
    hold: Cell<Hold>,
}

impl<S: Architecture<S>> NestedWaitHook for HeldConnection<S> {
    fn release_connection(&self) {
        if let Some(reader) = &self.pool.reader {
            reader.release(&self.lane, &self.connection, self.hold.replace(Hold::None));
        }
    }
}

/// Runs a request on the calling thread, which serves the request's task. Then marks the thread
/// free, and after that lets the reader read the connection.
pub(super) fn run_held<S: Architecture<S>, H: RequestHandler>(
    pool: &Arc<SharedPool>,
    (lane, handler): (&Arc<Lane<S>>, &Arc<H>),
    (number, mailbox): (ThreadNumber, &Arc<Mailbox>),
    worker: &mut Worker,
    (waiting, message): (WaitingRequest, Message),
    (wait, hold): (Option<RateWait>, Hold),
) {
    let connection = Arc::clone(&*waiting);
    let held = HeldConnection {
        pool: Arc::clone(pool),
        lane: Arc::clone(lane),
        connection: Arc::clone(&connection),
        hold: Cell::new(hold),
    };
    let held = Rc::new(held);
    if hold != Hold::None {
        nested_wait::install_dedicated(Rc::<HeldConnection<S>>::clone(&held));
    }
    if let Some(wait) = wait {
        // During the wait the reader reads the connection, and refuses further requests above the
        // rate.
        nested_wait::release_dedicated_connection();
        pool.wait_for_turn(lane, mailbox, wait);
    }
    let goes_on = match pool.take_duty(lane, handler.context(), number) {
        Some(task) => pool.run_waiting(lane, handler, worker, Some(&task), (waiting, message)),
        None => {
            // The task has ended. The request is pushed before the lane's threads read the
            // connection, so that they begin it before the next request.
            lane.push(LaneTask::Dispatch(waiting, message));
            if let Some(reader) = &pool.reader {
                reader.release_to_lane(lane, handler, &connection, held.hold.replace(Hold::None));
            }
            true
        }
    };
    nested_wait::uninstall();
    if !goes_on {
        lane.retire_connection(handler.context(), connection.handle);
    }
    // The connection is watched before the thread takes the low priority of a sleeping thread, at
    // which it may have to wait for its core.
    pool.free(number);
    held.release_connection();
    drop((held, connection));
    pool.rest(number);
}

/// Runs a thread of the manager, which reads requests of tasks and hands them to threads for tasks.
pub(super) fn run_manager<S: Architecture<S>, H: RequestHandler>(
    pool: &Arc<SharedPool>,
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
) {
    let Some(reader) = &pool.reader else { return };
    pool.enter_manager();
    reader.manager.lock().push(thread::current_tid());
    pool.report_refusal(handler.context(), &lane.config.name);
    let mut worker = Worker::new();
    while let ControlFlow::Continue(request) = reader.next_or_end(pool, lane, handler, &mut worker) {
        let Some(request) = request else { continue };
        let connection = Arc::clone(&*request.waiting);
        match pool.choose_thread(lane, handler, &connection, request.task, (true, false)) {
            TaskThread::Connection(mailbox) | TaskThread::Message(mailbox) => {
                let TaskRequest { waiting, message, wait, hold, .. } = request;
                pool.assign(&mailbox, Assignment { waiting, message, work: AssignedWork::Message(hold), wait });
            }
            found => {
                let is_in_set = matches!(found, TaskThread::Exhausted);
                reader.run_without_thread(pool, lane, handler, request, is_in_set);
            }
        }
    }
    let own = thread::current_tid();
    reader.manager.lock().retain(|tid| *tid != own);
    reader.stop();
}

/// Runs a leader/followers thread, which reads requests of tasks and runs them, one at a time.
pub(super) fn run_follower<S: Architecture<S>, H: RequestHandler>(
    pool: &Arc<SharedPool>,
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
    number: ThreadNumber,
    mailbox: &Arc<Mailbox>,
) {
    let Some(reader) = &pool.reader else { return };
    let mut worker = Worker::new();
    while let ControlFlow::Continue(request) = reader.next_or_end(pool, lane, handler, &mut worker) {
        let Some(request) = request else { continue };
        match pool.lead(lane, handler, number, request.task, &request.waiting) {
            Ok(()) => {
                let TaskRequest { waiting, message, wait, hold, .. } = request;
                if wait.is_some() {
                    pool.state.lock().roster.count_delayed();
                }
                let (server, own) = ((lane, handler), (number, mailbox));
                run_held(pool, server, own, &mut worker, (waiting, message), (wait, hold));
            }
            Err(is_in_set) => reader.run_without_thread(pool, lane, handler, request, is_in_set),
        }
    }
    reader.stop();
}

impl SharedPool {
    /// Gives a message of a task to the reader, with its connection, whose read lock the calling
    /// thread of the lane keeps. `more` is true if the next message may have arrived.
    pub(super) fn place_for_reader<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        reader: &TaskReader,
        (lane, handler): (&Lane<S>, &Arc<H>),
        (worker, connection, detached): (&mut Worker, &Arc<Connection>, &mut Option<Message>),
        (task, is_job): (u64, bool),
        more: bool,
    ) -> MessagePlacement {
        let is_in_set = self.state.lock().roster.contains(task);
        if is_job {
            connection.messages_since_job.store(0, Ordering::Relaxed);
        }
        // Only a job brings a connection to the reader, which reads above all tasks. The reader's
        // epoll instance cannot watch a stream without a descriptor.
        let is_held = is_in_set && is_job && connection.stream.readiness_descriptor().is_some();
        let admission = if is_in_set && is_job { self.admit(task) } else { RateAdmission::Runs };
        let wait = match admission {
            RateAdmission::Runs => None,
            RateAdmission::Waits(wait) => Some(wait),
            RateAdmission::Refused => {
                let message = detached.take().unwrap_or_else(|| worker.detach());
                return self.refuse_here(lane, handler, worker, connection, &message, task);
            }
        };
        if is_held {
            unwatch(lane, connection);
        } else {
            connection.read_state.try_release_kept();
            // Other threads could not report new input while the read lock was kept. So the
            // connection is put on the ready list, and a thread reads it again.
            lane.list_connection(connection, ReadCause::Readiness);
        }
        if !(is_in_set && is_job) {
            return MessagePlacement::Here { reads_on: false };
        }
        let message = detached.take().unwrap_or_else(|| worker.detach());
        let waiting = connection.add_waiting_request(Duration::ZERO);
        let hold = if is_held { Hold::Connection { may_have_input: more } } else { Hold::None };
        reader.take_over(TaskRequest { task, waiting, message, wait, hold });
        MessagePlacement::Elsewhere { reads_on: false }
    }

    pub(super) fn is_led(&self) -> bool {
        self.settings.mode == CorePoolMode::LeaderFollowers
    }

    pub(super) fn manager_threads(&self) -> usize {
        if self.settings.mode == CorePoolMode::Manager { MANAGER_THREADS } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;

    use corelane_net::{Peer, ShutdownDirection, Stream};
    use corelane_wire::Limits;

    use super::super::{CorePoolSettings, CorePoolThreads};
    use super::*;
    use crate::Orb;
    use crate::rt::config::SchedulingClass;
    use crate::rt::core_config::TaskBinder;
    use crate::server::config::PoolConfig;
    use crate::server::strategy::{Lane, Strategy};

    #[derive(Debug)]
    struct Local(UnixStream);

    impl Stream for Local {
        fn recv(&self, buffer: &mut [u8], _: WaitLimit) -> io::Result<usize> {
            (&self.0).read(buffer)
        }

        fn send_vectored(&self, slices: &[IoSlice<'_>], _: WaitLimit) -> io::Result<usize> {
            (&self.0).write_vectored(slices)
        }

        fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }

        fn set_coarse_timeouts(&self, _: Duration, _: Duration) -> io::Result<()> {
            Ok(())
        }

        fn shutdown(&self, _: ShutdownDirection) {
            let _ = self.0.shutdown(std::net::Shutdown::Both);
        }

        fn peer(&self) -> &Peer {
            &Peer::Unknown
        }
    }

    struct NoTasks;

    impl TaskBinder for NoTasks {
        fn task_of(&self, _: &[u8]) -> Option<u64> {
            None
        }
    }

    const CLOSE_CONNECTION: &[u8] = b"GIOP\x01\x02\x01\x05\x00\x00\x00\x00";

    /// A lane without threads: the test does their work.
    fn lane() -> Arc<Lane> {
        let settings = CorePoolSettings {
            cores: vec![0],
            mode: CorePoolMode::Manager,
            threads_per_core: 1,
            max_threads: 1,
            refuses_without_thread: false,
            best_effort_threads: 1,
            best_effort_share: None,
            class: SchedulingClass::Fair,
            max_recorded_jobs: 0,
            limits: Limits::default(),
        };
        let threads = CorePoolThreads::new(settings, Arc::new(NoTasks), None).unwrap();
        let hour = Duration::from_secs(3_600);
        Lane::with_strategy(PoolConfig::default(), Vec::new(), hour, None, Strategy::CorePool(threads)).unwrap()
    }

    #[test]
    fn input_that_is_reported_while_a_thread_of_the_lane_reads_is_not_lost() {
        let (orb, lane) = (Orb::new().unwrap(), lane());
        let (handler, mut worker) = (orb.core().adapter(), Worker::new());
        let mut work = || (0..10).for_each(|_| lane.step(handler, &mut worker, Some(Duration::ZERO)).unwrap());
        let (mut client, served) = UnixStream::pair().unwrap();
        served.set_nonblocking(true).unwrap();
        lane.adopt(handler, Box::new(Local(served)));
        work();
        let connection = lane.connections.iter().next().map(|connection| Arc::clone(&connection)).unwrap();
        let pool = &lane.core_pool().unwrap().0;
        let reader = pool.reader.as_ref().unwrap();
        unwatch(&lane, &connection);
        reader.watch(&lane, &connection, false);
        // A thread of the lane finds the connection on the ready list, and reads the first part of
        // a message.
        let turn = connection.read_state.try_enter().unwrap();
        client.write_all(&CLOSE_CONNECTION[..6]).unwrap();
        assert!(reader.next(pool, &lane, handler, &mut Worker::new()).unwrap().is_none());
        drop(turn);
        work();
        client.write_all(&CLOSE_CONNECTION[6..]).unwrap();
        work();
        assert!(lane.connections.iter().next().is_none(), "the second part of the message must be read");
    }
}
