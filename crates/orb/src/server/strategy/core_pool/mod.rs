//! Core pool: leader/followers for requests without a task, and for each core sleeping threads that
//! serve the connections of tasks.
//!
//! The threads `POOL/l0` of the lane are the *best-effort threads*: they accept connections, and
//! run requests that belong to no task. A best-effort thread that reads the first message of a task
//! passes the message and its connection to a thread for tasks: one that sleeps, of the task's core
//! if possible, or a new one. This thread takes the task's core and priority, and reads the
//! connection until it ends or must return to the lane.
//!
//! This is the mode [`CorePoolMode::Bound`]. [`CorePoolMode::NoAffinity`] differs in the cores of
//! the threads only. In the other modes [`reader`] reads the connections of tasks.
//!
//! A request of a task is a *job*: the rate, the budget and the measurement of its task apply to
//! it, and to no other message.
//!
//! Invariant: the read lock of a connection belongs to one thread at any time, so each message is
//! read once, and in the order of its arrival.

mod bound;
mod deadline_order;
mod deferrable_server;
mod job_log;
mod jobs;
mod kernel_refusals;
mod rate;
mod reader;
mod roster;
mod share;
mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::counters;
use corelane_sys::cpu_budget::CpuBudgets;
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling, Tid};
use corelane_wire::Limits;
use corelane_wire::giop::MessageKind;

use self::deadline_order::DeadlineOrder;
use self::job_log::{JobLog, TaskMeter, TaskMeters};
use self::kernel_refusals::KernelRefusals;
use self::rate::{RateAdmission, RateWait, TaskRate};
pub(crate) use self::reader::READER_PRIORITY;
use self::reader::{Hold, TaskReader, TaskRequest};
use self::roster::{Duty, Roster, ThreadNumber};
use self::share::BestEffortShares;
pub(crate) use self::share::SHARE_PRIORITY;
use crate::orb_context::OrbContext;
use crate::rt::config::SchedulingClass;
use crate::rt::core_config::{
    BestEffortShare, BestEffortUse, CorePoolCounts, CorePoolMode, JobBatch, RefusedTask, TaskBinder, TaskBinding,
    TaskMeasurement,
};
use crate::server::architecture::{Architecture, MessagePlacement};
use crate::server::connection::{Connection, ReadCause, WaitingRequest};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, LaneTask};
use crate::server::lane_loop;
use crate::server::message::{Message, object_key, target_of};
use crate::server::parked_request::ParkedRequest;
use crate::server::threads::ThreadStarter;
use crate::server::worker::Worker;

/// The longest time for which the thread of a task blocks on its connection only. During this time
/// it does not notice a change of its duty.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Native priority of sleeping threads: the lowest fixed priority.
const RESTING_PRIORITY: u8 = 1;

/// The pause after a failed start of a thread, during which no other thread is started.
const START_PAUSE: Duration = Duration::from_millis(100);

/// Highest native priority of a job with a deadline.
pub(crate) const MOST_DEADLINE_PRIORITY: u8 = 97;

#[derive(Clone, Debug)]
pub(crate) struct CorePoolSettings {
    /// The cores of the pool, at least one.
    pub(crate) cores: Vec<usize>,
    pub(crate) mode: CorePoolMode,
    pub(crate) threads_per_core: usize,
    pub(crate) max_threads: usize,
    pub(crate) refuses_without_thread: bool,
    pub(crate) best_effort_threads: usize,
    pub(crate) best_effort_share: Option<BestEffortShare>,
    pub(crate) class: SchedulingClass,
    pub(crate) max_recorded_jobs: usize,
    pub(crate) limits: Limits,
}

pub(crate) struct CorePoolThreads(Arc<SharedPool>);

impl std::fmt::Debug for CorePoolThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CorePoolThreads").field(&self.0.settings).finish()
    }
}

struct SharedPool {
    settings: CorePoolSettings,
    binder: Arc<dyn TaskBinder>,
    /// The cores on which the thread that created the pool may run; `None` if the kernel does not
    /// tell them. New threads of tasks start on these cores. Otherwise a new thread would inherit
    /// the single core of a pinned thread that starts it.
    usable: Option<CpuSet>,
    /// The CPU budgets of tasks whose jobs are demoted on an overrun; `None` if the threads have no
    /// priorities.
    budgets: Option<CpuBudgets>,
    /// The instant from which the times of rates and deadlines are counted.
    started_at: Monotonic,
    state: PiMutex<PoolState>,
    /// Reads the connections of tasks in the modes `Manager` and `LeaderFollowers`; `None` in the
    /// other modes, in which the thread that is bound to a connection reads it.
    reader: Option<TaskReader>,
    jobs: JobLog,
    /// The guaranteed shares of requests without a task, if the pool has them. Set when the threads
    /// start.
    shares: OnceLock<Arc<BestEffortShares>>,
    /// Reports refusals of the kernel that have not been reported. Set when the threads start.
    reporter: OnceLock<Arc<dyn Fn() + Send + Sync>>,
}

struct PoolState {
    roster: Roster,
    meters: TaskMeters,
    seats: Vec<Seat>,
    handles: Vec<JoinHandle<()>>,
    /// The cores on which the kernel lets no thread run at present.
    lost_cores: BTreeSet<usize>,
    rates: BTreeMap<u64, Arc<TaskRate>>,
    /// For each task with a single operation: the only operation whose requests are jobs.
    operations: BTreeMap<u64, Arc<[u8]>>,
    order: DeadlineOrder,
    changed_levels: Vec<ThreadNumber>,
    /// The time of the last start of a thread, if it failed.
    start_failed_at: Option<Monotonic>,
    /// The refusal of the kernel because of which the pool cannot guarantee the timing of its
    /// tasks; `None` if there was no such refusal.
    refusal: Option<String>,
    is_refusal_reported: bool,
    refusals: KernelRefusals,
}

impl PoolState {
    fn has_unreported_refusal(&self) -> bool {
        self.refusals.has_unreported() || (self.refusal.is_some() && !self.is_refusal_reported)
    }

    /// Tells a thread that its duty has changed.
    fn tell_duty(&self, number: ThreadNumber) {
        if let Some(seat) = self.seats.get(number) {
            seat.mailbox.changes.fetch_add(1, Ordering::Release);
            seat.mailbox.wake.notify();
        }
    }
}

struct Seat {
    mailbox: Arc<Mailbox>,
    /// The kernel's id of the thread; `None` until the thread runs.
    tid: Option<Tid>,
    /// The core whose affinity ([`SharedPool::affinity_of`]) the thread has; `None` if it has none.
    core: Option<usize>,
    scheduling: Scheduling,
    connection: Weak<Connection>,
}

struct Mailbox {
    /// Notified for each assignment, for a change of the thread's duty, for a change of the rate
    /// while a request waits at the thread, and when the lane stops.
    wake: EventFd,
    assignment: PiMutex<Option<Assignment>>,
    /// Number of changes of the thread's duty, wrapping. The thread reads it at each message
    /// boundary. Written with release under the lock of the state, read with acquire.
    changes: AtomicU32,
}

struct Assignment {
    waiting: WaitingRequest,
    message: Message,
    work: AssignedWork,
    wait: Option<RateWait>,
}

enum AssignedWork {
    /// The thread serves the connection from now on. The octets are the object key of the task.
    Connection(Box<[u8]>),
    /// The thread runs only this message. [`Hold`] tells whether other threads may read the
    /// connection before the message has run.
    Message(Hold),
}

struct ServedTask {
    number: ThreadNumber,
    binding: TaskBinding,
    rate: Option<Arc<TaskRate>>,
    /// The only operation whose requests are jobs; `None` if all are.
    operation: Option<Arc<[u8]>>,
    meter: Option<Arc<TaskMeter>>,
}

enum TaskThread {
    /// This thread runs the message, and serves the connection from now on.
    Connection(Arc<Mailbox>),
    Message(Arc<Mailbox>),
    /// All threads for tasks are in use or reserved, so a best-effort thread runs the message.
    Exhausted,
    /// The task is not in the pool's set, or the message is not a job and its connection cannot be
    /// bound. A best-effort thread runs the message.
    None,
}

impl Mailbox {
    fn assign(&self, assignment: Assignment) {
        *self.assignment.lock() = Some(assignment);
        counters::count_handoff();
        self.wake.notify();
    }
}

impl CorePoolThreads {
    /// Creates the state of the threads of a core pool, without threads.
    ///
    /// # Errors
    /// If the process or the system is out of descriptors.
    pub(crate) fn new(
        settings: CorePoolSettings,
        binder: Arc<dyn TaskBinder>,
        budgets: Option<CpuBudgets>,
    ) -> io::Result<Self> {
        let advisory = match settings.mode {
            CorePoolMode::NoAffinity => Some("its threads run on each core of the pool"),
            _ if settings.class == SchedulingClass::Fair => Some("the ORB's threads are in the ordinary class"),
            _ => None,
        };
        let state = PoolState {
            roster: Roster::new(settings.max_threads, usize::from(settings.mode == CorePoolMode::LeaderFollowers)),
            meters: TaskMeters::default(),
            seats: Vec::new(),
            lost_cores: BTreeSet::new(),
            rates: BTreeMap::new(),
            operations: BTreeMap::new(),
            order: DeadlineOrder::new(MOST_DEADLINE_PRIORITY),
            changed_levels: Vec::new(),
            handles: Vec::new(),
            start_failed_at: None,
            refusal: advisory.map(str::to_owned),
            is_refusal_reported: false,
            refusals: KernelRefusals::default(),
        };
        let state = PiMutex::new("core pool", LockScope::Lane, state);
        let jobs = JobLog::new(settings.max_recorded_jobs);
        let reader = if settings.mode.reads_above_tasks() { Some(TaskReader::new()?) } else { None };
        Ok(CorePoolThreads(Arc::new(SharedPool {
            settings,
            binder,
            usable: thread::affinity(None).ok(),
            budgets,
            started_at: Monotonic::now(),
            state,
            reader,
            jobs,
            shares: OnceLock::new(),
            reporter: OnceLock::new(),
        })))
    }

    /// Replaces the set of tasks. Bound threads take their new cores and priorities at once.
    /// Threads whose task is not in the set return their connections to the lane. The `demoted`
    /// tasks have no core at present; the pool keeps their measurements and the times of their last
    /// requests.
    pub(crate) fn set_tasks(&self, tasks: &[TaskBinding], demoted: &[u64]) {
        let pool = &*self.0;
        let tasks: Vec<TaskBinding> =
            tasks.iter().map(|task| TaskBinding { core: pool.core_of(task.core), ..*task }).collect();
        let tasks = &tasks[..];
        let mut state = pool.state.lock();
        state.meters.set_tasks(tasks.iter().map(|binding| binding.task).chain(demoted.iter().copied()));
        state.refusals.keep_tasks(|task| tasks.iter().any(|binding| binding.task == task));
        for number in state.roster.set_tasks(tasks) {
            if let Duty::Serve(binding) = state.roster.duty(number) {
                let before = state.order.clone();
                pool.change_order(&mut state, |order, changed| order.move_to(binding.core, number, changed));
                if state.roster.duty(number) == Duty::GiveUp {
                    // The kernel has refused the move, so the job stays on its earlier core.
                    pool.change_order(&mut state, |order, changed| order.restore(before, changed));
                }
            }
            // `place` removes the task of this thread from the set if the kernel refuses the
            // thread's core or priority. The thread's new duty is then to give up its work.
            pool.place(&mut state, number);
            state.tell_duty(number);
        }
        // A change of a rate wakes the thread that waits with a request above this rate. The thread
        // must find its new duty, so the rates change last. A task that the kernel has refused gets
        // no rate, like a demoted task.
        let state = &mut *state;
        let (kept, refused): (Vec<TaskBinding>, Vec<TaskBinding>) =
            tasks.iter().partition(|binding| state.roster.contains(binding.task));
        let without_rate: Vec<u64> = demoted.iter().copied().chain(refused.iter().map(|one| one.task)).collect();
        rate::update(&mut state.rates, &kept, &without_rate);
    }

    /// Limits tasks to one operation each: requests for other operations are not jobs.
    pub(crate) fn set_operations(&self, operations: &[(u64, &str)]) {
        let operations = operations.iter().map(|(task, operation)| (*task, operation.as_bytes().into())).collect();
        self.0.state.lock().operations = operations;
    }

    /// Records that no thread can run on a core at present. The kernel has moved the threads of the
    /// core to other cores.
    pub(crate) fn mark_core_lost(&self, core: usize) {
        if let Some(shares) = self.0.shares.get() {
            shares.set_lost(core, true);
        }
        let mut state = self.0.state.lock();
        state.lost_cores.insert(core);
        state.refusals.mark_core_lost(core);
        // The kernel may have refused the core to a thread before the caller noticed the loss of
        // the core. The loss explains this refusal, so the refusal is forgotten.
        if state.refusal.as_ref().is_some_and(|refusal| refusal.starts_with(&format!("core {core}: "))) {
            state.refusal = None;
            state.is_refusal_reported = false;
        }
    }

    /// Records that threads can run on a core again, and puts the core's threads back on it.
    pub(crate) fn mark_core_returned(&self, core: usize) {
        let mut state = self.0.state.lock();
        state.lost_cores.remove(&core);
        for number in 0..state.seats.len() {
            // The kernel may have restored the CPU mask of a thread or not, so the mask is set
            // again.
            let core = self.0.core_of(core);
            if let Some(seat) = state.seats.get_mut(number).filter(|seat| seat.core == Some(core)) {
                seat.core = None;
            }
            self.0.place(&mut state, number);
        }
        drop(state);
        if let Some(reader) = &self.0.reader
            && self.0.settings.cores.first() == Some(&core)
        {
            reader.return_manager(core);
        }
        if let Some(shares) = self.0.shares.get() {
            shares.set_lost(core, false);
        }
    }

    pub(crate) fn best_effort_uses(&self) -> Vec<BestEffortUse> {
        self.0.shares.get().map(|shares| shares.uses()).unwrap_or_default()
    }

    /// Returns the highest native priority that a task may have; `has_deadline` is true for a task
    /// with a deadline.
    pub(crate) fn most_task_priority(&self, has_deadline: bool) -> u8 {
        match self.0.settings.best_effort_share {
            Some(_) if !has_deadline => SHARE_PRIORITY - 1,
            _ if self.0.reader.is_some() => READER_PRIORITY - 1,
            _ => *Scheduling::FIXED_PRIORITIES.end(),
        }
    }

    pub(crate) fn counts(&self) -> CorePoolCounts {
        self.0.state.lock().roster.counts()
    }

    pub(crate) fn measurements(&self) -> Vec<TaskMeasurement> {
        self.0.state.lock().meters.measurements()
    }

    pub(crate) fn record_jobs_until(&self, until: Monotonic) {
        self.0.jobs.record_until(until);
    }

    pub(crate) fn recorded_jobs(&self, from: u64, most: usize) -> JobBatch {
        self.0.jobs.recorded(from, most)
    }

    pub(crate) fn take_refused_tasks(&self) -> Vec<RefusedTask> {
        self.0.state.lock().refusals.take()
    }

    pub(crate) fn refusal(&self) -> Option<String> {
        self.0.state.lock().refusal.clone()
    }

    /// Reports refusals of the kernel that have not been reported. The caller must hold no lock
    /// that the ORB's event callback may need.
    pub(crate) fn report_refusal(&self, context: &OrbContext, pool: &str) {
        self.0.report_refusal(context, pool);
    }
}

impl<S: Architecture<S>> Architecture<S> for CorePoolThreads {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()> {
        let settings = &self.0.settings;
        let (pool, handler) = (Arc::downgrade(&self.0), Arc::downgrade(threads.handler));
        let name = threads.lane.config.name.clone();
        let report = move || {
            if let (Some(pool), Some(handler)) = (pool.upgrade(), handler.upgrade()) {
                pool.report_refusal(handler.context(), &name);
            }
        };
        // A lane starts its threads once, so the cell is empty.
        let _ = self.0.reporter.set(Arc::new(report));
        {
            let mut state = self.0.state.lock();
            for &core in settings.cores.iter().flat_map(|core| std::iter::repeat_n(core, settings.threads_per_core)) {
                let Some(number) = state.roster.add(self.0.core_of(core)) else { break };
                self.0.start_thread(&mut state, threads.lane, threads.handler, number, EventFd::new()?)?;
            }
        }
        let pool = Arc::clone(&self.0);
        threads.spawn('m', self.0.manager_threads(), move |lane, handler| reader::run_manager(&pool, lane, handler))?;
        let count = settings.best_effort_threads.max(1);
        let Some(share) = settings.best_effort_share else { return threads.spawn('l', count, lane_loop::run) };
        let scheduling = self.0.scheduling(SHARE_PRIORITY);
        let (shares, handle, refusal) = share::start(share, &settings.cores, scheduling, &threads.lane.config.name)?;
        {
            let mut state = self.0.state.lock();
            state.handles.push(handle);
            if state.refusal.is_none() {
                state.refusal = refusal;
            }
        }
        // A lane starts its threads once, so the cell is empty.
        let _ = self.0.shares.set(Arc::clone(&shares));
        let pool = Arc::clone(&self.0);
        threads.spawn('l', count.max(settings.cores.len()), move |lane, handler| {
            share::run(&pool, &shares, lane, handler);
        })
    }

    fn keeps_read_lock(&self, context: &OrbContext, worker: &mut Worker, detached: Option<&Message>) -> bool {
        let (header, octets) = detached.map_or_else(|| worker.in_place(), Message::parts);
        let target = target_of(header, octets, &context.config().limits);
        worker.claimed_task = target.and_then(|target| self.0.task_of(target));
        worker.claimed_task.is_some()
    }

    fn place_message<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        detached: &mut Option<Message>,
        more: bool,
    ) -> MessagePlacement {
        let Some(task) = worker.claimed_task.take() else {
            if more {
                lane.list_rest(connection);
            }
            return MessagePlacement::Here { reads_on: false };
        };
        let (header, _) = detached.as_ref().map_or_else(|| worker.in_place(), Message::parts);
        let is_job = header.kind == MessageKind::Request;
        if let Some(reader) = &self.0.reader {
            let hand = (worker, connection, detached);
            return self.0.place_for_reader(reader, (lane, handler), hand, (task, is_job), more);
        }
        let admission = if is_job { self.0.admit(task) } else { RateAdmission::Runs };
        let wait = match admission {
            RateAdmission::Runs => None,
            RateAdmission::Waits(wait) => Some(wait),
            RateAdmission::Refused => {
                let message = detached.take().unwrap_or_else(|| worker.detach());
                return self.0.refuse_here(lane, handler, worker, connection, &message, task);
            }
        };
        let thread = self.0.choose_thread(lane, handler, connection, task, (is_job, true));
        if let TaskThread::Connection(mailbox) = thread {
            let message = detached.take().unwrap_or_else(|| worker.detach());
            let (header, octets) = message.parts();
            let key = object_key(header, octets, &handler.context().config().limits).unwrap_or_default().into();
            unwatch(lane, connection);
            let waiting = connection.add_waiting_request(Duration::ZERO);
            self.0.assign(&mailbox, Assignment { waiting, message, work: AssignedWork::Connection(key), wait });
            return MessagePlacement::Elsewhere { reads_on: false };
        }
        if matches!(thread, TaskThread::None | TaskThread::Exhausted) && wait.is_some() {
            let message = detached.take().unwrap_or_else(|| worker.detach());
            return self.0.refuse_here(lane, handler, worker, connection, &message, task);
        }
        if matches!(thread, TaskThread::Exhausted) && is_job {
            self.0.report_not_bound(handler.context(), connection, task);
            if self.0.settings.refuses_without_thread {
                let message = detached.take().unwrap_or_else(|| worker.detach());
                worker.reject_overloaded(handler, connection, &message);
                connection.read_state.try_release_kept();
                lane.list_connection(connection, ReadCause::Readiness);
                return MessagePlacement::Elsewhere { reads_on: false };
            }
        }
        // Other threads could not report new input while the read lock was kept. So the connection
        // is put on the ready list, and a thread reads it again.
        connection.read_state.try_release_kept();
        lane.list_connection(connection, ReadCause::Readiness);
        if let TaskThread::Message(mailbox) = thread {
            let message = detached.take().unwrap_or_else(|| worker.detach());
            let waiting = connection.add_waiting_request(Duration::ZERO);
            self.0.assign(&mailbox, Assignment { waiting, message, work: AssignedWork::Message(Hold::None), wait });
            return MessagePlacement::Elsewhere { reads_on: false };
        }
        MessagePlacement::Here { reads_on: false }
    }

    /// Runs a message that could not run when it was read. A request of a task runs on a sleeping
    /// thread if one is free for the task; the lane's threads run all other messages.
    fn requeue(&self, lane: &Lane<S>, waiting: WaitingRequest, message: Message) {
        let (header, octets) = message.parts();
        let target = target_of(header, octets, &self.0.settings.limits);
        let target = target.filter(|_| header.kind == MessageKind::Request);
        let task = target.and_then(|target| self.0.task_of(target));
        if let (Some(task), Some(reader), true) = (task, &self.0.reader, self.0.is_led()) {
            return reader.take_over(TaskRequest { task, waiting, message, wait: None, hold: Hold::None });
        }
        let sleeper = task.and_then(|task| self.0.wake_sleeper(&waiting, task));
        // The event callback must not run on the calling thread, which may hold locks of the
        // program.
        if task.is_some()
            && self.0.state.lock().has_unreported_refusal()
            && let Some(report) = self.0.reporter.get().cloned()
        {
            lane.push(LaneTask::RunCollocated(ParkedRequest { bytes: 0, resume: Box::new(move |_| report()) }));
        }
        match sleeper {
            Some(mailbox) => {
                mailbox.assign(Assignment { waiting, message, work: AssignedWork::Message(Hold::None), wait: None })
            }
            None => lane.push(LaneTask::Dispatch(waiting, message)),
        }
    }

    #[cfg(feature = "replies-first")]
    fn may_defer_requests(&self) -> bool {
        false
    }

    fn stop(&self) -> Vec<JoinHandle<()>> {
        if let Some(shares) = self.0.shares.get() {
            shares.end();
        }
        if let Some(reader) = &self.0.reader {
            reader.stop();
        }
        let mut state = self.0.state.lock();
        state.roster.close();
        for seat in &state.seats {
            // The thread may wait in a read or a write. The shutdown of the stream ends the wait.
            if let Some(connection) = seat.connection.upgrade() {
                connection.close();
            }
            seat.mailbox.wake.notify();
        }
        std::mem::take(&mut state.handles)
    }
}

fn unwatch<S>(lane: &Lane<S>, connection: &Connection) {
    if let Some(readiness) = connection.stream.readiness_descriptor() {
        let _ = lane.epoll.remove(readiness);
    }
}
