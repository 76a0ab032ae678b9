//! Core pool: leader/followers for requests without a task, and for each core sleeping threads that
//! serve the connections of tasks.
//!
//! A thread of the lane that reads the first message of a task keeps the connection's read lock and
//! passes message and connection to a sleeping thread of the task's core. The woken thread takes
//! the task's core and priority and becomes the only, blocking reader of the connection. The connection
//! stays in the lane's table. At a message boundary the thread gives the connection back, if the
//! task ends or replies wait for the peer. While a servant waits for a nested call, the lane's
//! threads read the connection, because a callback may arrive on it. A message of a task on a
//! connection that has another thread is handed over to a thread of its task's core.
//!
//! [`Roster`] decides which thread serves which connection, and [`RateGuard`] which requests of a
//! task wait or are refused.
//!
//! Invariant: the read lock of a connection belongs to one thread at any time, so each message is
//! read once, and in the order of its arrival.

mod bound;
mod job_log;
mod rate;
mod roster;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::cpu_budget::CpuBudgets;
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling, ThreadBuilder, Tid};
use corelane_sys::{counters, poll};
use corelane_wire::giop::{Header, MessageKind};

use self::bound::{BoundConnection, serve};
use self::job_log::{JobLog, TaskMeter, TaskMeters};
use self::rate::{RateGuard, RateVerdict};
use self::roster::{BindDecision, Duty, Roster, ThreadNumber};
use crate::event::Event;
use crate::job_budget::JobBudget;
use crate::orb_context::OrbContext;
use crate::rt::config::SchedulingClass;
use crate::rt::core_config::{
    CorePoolCounts, JobBatch, JobOverrunAction, TaskBinder, TaskBinding, TaskMeasurement, TaskRules,
};
use crate::server::architecture::{Architecture, MessagePlacement};
use crate::server::connection::{Connection, ReadCause, WaitingRequest};
use crate::server::handler::RequestHandler;
use crate::server::lane::Lane;
use crate::server::lane_loop;
use crate::server::message::{Message, object_key};
use crate::server::threads::ThreadStarter;
use crate::server::worker::Worker;
use crate::thread_context::{self, LaneIdentity};
use crate::{minor, nested_wait};

/// The longest time for which a thread waits for its connection alone, and so notices no change of
/// its duty.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Native priority of sleeping threads: the lowest fixed priority.
const RESTING_PRIORITY: u8 = 1;

/// The settings of a core pool's threads.
#[derive(Clone, Debug)]
pub(crate) struct CorePoolSettings {
    /// The cores, each with its threads at the start.
    pub(crate) cores: Vec<usize>,
    pub(crate) threads_per_core: usize,
    pub(crate) max_threads: usize,
    pub(crate) best_effort_threads: usize,
    pub(crate) class: SchedulingClass,
    pub(crate) max_recorded_jobs: usize,
}

/// The threads of a core pool.
pub(crate) struct CorePoolThreads(Arc<SharedPool>);

impl std::fmt::Debug for CorePoolThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CorePoolThreads").field(&self.0.settings).finish()
    }
}

/// The state that the threads of a pool share.
struct SharedPool {
    settings: CorePoolSettings,
    binder: Arc<dyn TaskBinder>,
    /// The budgets of jobs that can be demoted; `None` if the threads have no priorities.
    budgets: Option<CpuBudgets>,
    /// The instant from which the times of rates are counted.
    started_at: Monotonic,
    state: PiMutex<PoolState>,
    jobs: JobLog,
}

struct PoolState {
    roster: Roster,
    meters: TaskMeters,
    /// The threads in the order of their numbers.
    seats: Vec<Seat>,
    handles: Vec<JoinHandle<()>>,
    /// The cores on which the kernel lets no thread run at present.
    lost_cores: BTreeSet<usize>,
    /// The rates of the tasks that have one, by task.
    rates: BTreeMap<u64, Arc<RateGuard>>,
    /// The reason why promises are advisory, once the kernel has refused a core or a priority.
    refusal: Option<String>,
    is_refusal_reported: bool,
}

/// A thread as the other threads of its pool see it.
struct Seat {
    mailbox: Arc<Mailbox>,
    /// The kernel's id of the thread; `None` until the thread runs.
    tid: Option<Tid>,
    /// The core and the scheduling that the thread has; `None` if the core is not set.
    core: Option<usize>,
    scheduling: Scheduling,
    /// The connection that the thread serves.
    connection: Weak<Connection>,
}

/// The way by which other threads reach a thread of the pool.
struct Mailbox {
    wake: EventFd,
    assignment: PiMutex<Option<Assignment>>,
    /// Number of changes of the thread's duty, wrapping. The thread reads it at each message
    /// boundary. Written with release under the lock of the state, read with acquire.
    changes: AtomicU32,
}

/// A message for a thread, and perhaps its connection.
struct Assignment {
    waiting: WaitingRequest,
    message: Message,
    /// The object key of the task if the thread serves the connection from now on; `None` if it
    /// serves the message alone.
    key: Option<Box<[u8]>>,
    /// The time at which the message may run; `None` for at once.
    not_before: Option<Monotonic>,
}

/// The task whose messages a thread serves.
struct ServedTask {
    binding: TaskBinding,
    rate: Option<Arc<RateGuard>>,
    meter: Option<Arc<TaskMeter>>,
}

/// The decision whether the rate of a task permits a message.
enum RateAdmission {
    /// The message runs, at once or at the time `not_before`. In the second case the rate waits for
    /// [`RateGuard::end_wait`].
    Runs { not_before: Option<Monotonic>, rate: Option<Arc<RateGuard>> },
    /// The message is refused.
    Refused,
}

/// The thread that runs a message of a task.
enum TaskThread {
    /// This thread runs the message, and serves the connection from now on.
    Connection(Arc<Mailbox>),
    /// This thread runs the message.
    Message(Arc<Mailbox>),
    /// A thread without a task runs the message.
    None,
}

impl Mailbox {
    /// Passes a message, and perhaps its connection, to the thread, which sleeps.
    fn assign(&self, assignment: Assignment) {
        *self.assignment.lock() = Some(assignment);
        counters::count_handoff();
        self.wake.notify();
    }
}

impl CorePoolThreads {
    pub(crate) fn new(settings: CorePoolSettings, binder: Arc<dyn TaskBinder>, budgets: Option<CpuBudgets>) -> Self {
        let state = PoolState {
            roster: Roster::new(settings.max_threads),
            meters: TaskMeters::default(),
            seats: Vec::new(),
            lost_cores: BTreeSet::new(),
            rates: BTreeMap::new(),
            handles: Vec::new(),
            refusal: (settings.class == SchedulingClass::Fair)
                .then(|| "the ORB's threads are in the ordinary class".to_owned()),
            is_refusal_reported: false,
        };
        let state = PiMutex::new("core pool", LockScope::Lane, state);
        let jobs = JobLog::new(settings.max_recorded_jobs);
        CorePoolThreads(Arc::new(SharedPool { settings, binder, budgets, started_at: Monotonic::now(), state, jobs }))
    }

    /// Replaces the set of tasks. Bound threads take their new cores and priorities at once. Threads
    /// whose task is not in the set give their connections back.
    pub(crate) fn set_tasks(&self, tasks: &[TaskBinding]) {
        let pool = &*self.0;
        let mut state = pool.state.lock();
        state.meters.set_tasks(tasks);
        let mut before = std::mem::take(&mut state.rates);
        for TaskBinding { task, rules, .. } in tasks {
            let Some(distance) = rules.min_distance else { continue };
            let kept = before.remove(task).filter(|rate| rate.has(distance, rules.jitter));
            let rate = kept.unwrap_or_else(|| Arc::new(RateGuard::new(distance, rules.jitter)));
            state.rates.insert(*task, rate);
        }
        for number in state.roster.set_tasks(tasks) {
            pool.place(&mut state, number);
            if let Some(seat) = state.seats.get(number) {
                seat.mailbox.changes.fetch_add(1, Ordering::Release);
                seat.mailbox.wake.notify();
            }
        }
    }

    /// Records that no thread can run on a core at present. The kernel has moved the threads of the
    /// core to other cores.
    pub(crate) fn lose_core(&self, core: usize) {
        let mut state = self.0.state.lock();
        state.lost_cores.insert(core);
        // A thread may have been refused the core before the caller noticed its loss.
        if state.refusal.as_ref().is_some_and(|refusal| refusal.starts_with(&format!("core {core}: "))) {
            state.refusal = None;
            state.is_refusal_reported = false;
        }
    }

    /// Records that threads can run on a core again, and puts the core's threads back on it.
    pub(crate) fn return_core(&self, core: usize) {
        let mut state = self.0.state.lock();
        state.lost_cores.remove(&core);
        for number in 0..state.seats.len() {
            // The kernel may have restored the mask of a thread or not, so it is set again.
            if let Some(seat) = state.seats.get_mut(number).filter(|seat| seat.core == Some(core)) {
                seat.core = None;
            }
            self.0.place(&mut state, number);
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

    /// Returns the reason why promises are advisory; `None` if the kernel has refused nothing.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.0.state.lock().refusal.clone()
    }

    /// Reports the first refusal of the kernel.
    pub(crate) fn report_refusal(&self, context: &OrbContext, pool: &str) {
        self.0.report_refusal(context, pool);
    }
}

impl SharedPool {
    fn scheduling(&self, priority: u8) -> Scheduling {
        match self.settings.class {
            SchedulingClass::Fifo => Scheduling::Fifo(priority),
            SchedulingClass::RoundRobin => Scheduling::RoundRobin(priority),
            SchedulingClass::Fair => Scheduling::Other,
        }
    }

    /// Gives a thread the core and the scheduling of its duty. The lock of the state orders all
    /// changes of a thread.
    fn place(&self, state: &mut PoolState, number: ThreadNumber) {
        let (core, scheduling) = match state.roster.duty(number) {
            Duty::Serve(binding) => (binding.core, self.scheduling(binding.priority)),
            Duty::Sleep => (state.roster.home(number), self.scheduling(RESTING_PRIORITY)),
            // The thread keeps its core for the job that it may be running.
            Duty::GiveUp => return,
        };
        let Some(seat) = state.seats.get_mut(number) else { return };
        let Some(tid) = seat.tid else { return };
        let mut refused = None;
        if seat.core != Some(core) && !state.lost_cores.contains(&core) {
            match thread::set_affinity(Some(tid), &CpuSet::one(core)) {
                Ok(()) => seat.core = Some(core),
                Err(error) => refused = Some(format!("core {core}: {error}")),
            }
        }
        if seat.scheduling != scheduling {
            // A demoted job keeps its low priority until its end, when its thread takes its duty
            // again.
            let set = match &self.budgets {
                Some(budgets) => budgets.set_scheduling(tid, scheduling),
                None => thread::set_scheduling(Some(tid), scheduling),
            };
            match set {
                Ok(()) => seat.scheduling = scheduling,
                Err(error) => refused = Some(format!("{scheduling:?}: {error}")),
            }
        }
        if state.refusal.is_none() {
            state.refusal = refused;
        }
    }

    fn report_refusal(&self, context: &OrbContext, pool: &str) {
        let mut state = self.state.lock();
        if !state.is_refusal_reported
            && let Some(error) = state.refusal.clone()
        {
            state.is_refusal_reported = true;
            drop(state);
            context.events().report(&Event::TasksAdvisory { pool: pool.to_owned(), error });
        }
    }

    /// Starts a thread that has a place in the roster.
    fn start_thread<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        state: &mut PoolState,
        lane: &Arc<Lane<S>>,
        handler: &Arc<H>,
        number: ThreadNumber,
    ) -> io::Result<()> {
        let mailbox = Arc::new(Mailbox {
            wake: EventFd::new()?,
            assignment: PiMutex::new("assignment", LockScope::Lane, None),
            changes: AtomicU32::new(0),
        });
        let builder = ThreadBuilder::new()
            .name(format!("{}/b{number}", lane.config.name))
            .stack_size(lane.config.thread_stack_size)
            .scheduling(Scheduling::Other)
            .prefault_stack(handler.context().config().locks_memory);
        let (pool, lane, handler, own) =
            (Arc::clone(self), Arc::clone(lane), Arc::clone(handler), Arc::clone(&mailbox));
        state.handles.retain(|handle| !handle.is_finished());
        state.handles.push(builder.spawn(move || run_thread(&pool, &lane, &handler, number, &own))?);
        let seat = Seat { mailbox, tid: None, core: None, scheduling: Scheduling::Other, connection: Weak::new() };
        match state.seats.get_mut(number) {
            Some(place) => *place = seat,
            None => state.seats.push(seat),
        }
        Ok(())
    }

    /// Chooses the thread that runs a message of a task. If `serves_connection` is true, the thread
    /// serves the connection from now on, unless the connection has a thread already.
    fn choose_thread<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        lane: &Lane<S>,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        task: u64,
        serves_connection: bool,
    ) -> TaskThread {
        let Some(lane) = lane.weak_self.upgrade() else { return TaskThread::None };
        let mut state = self.state.lock();
        // A stream without a descriptor cannot return to the lane's epoll.
        let mut serves_connection = serves_connection && connection.stream.readiness().is_some();
        let mut decision = BindDecision::Occupied;
        if serves_connection {
            decision = state.roster.bind(task, connection.origin.id);
        }
        if decision == BindDecision::Occupied {
            serves_connection = false;
            decision = state.roster.lend(task);
        }
        let number = match decision {
            BindDecision::Wake(number) => {
                // The priority is raised before the thread is woken, because at its own priority it
                // might have to wait for the core.
                self.place(&mut state, number);
                Some(number)
            }
            BindDecision::Start(number) => match self.start_thread(&mut state, &lane, handler, number) {
                Ok(()) => Some(number),
                Err(_) => {
                    state.roster.start_failed(number);
                    None
                }
            },
            BindDecision::Exhausted => None,
            BindDecision::Occupied | BindDecision::NoTask => return TaskThread::None,
        };
        let seat = number.and_then(|number| state.seats.get_mut(number));
        let mailbox = seat.map(|seat| {
            seat.connection = Arc::downgrade(connection);
            Arc::clone(&seat.mailbox)
        });
        drop(state);
        self.report_refusal(handler.context(), &lane.config.name);
        match mailbox {
            Some(mailbox) if serves_connection => TaskThread::Connection(mailbox),
            Some(mailbox) => TaskThread::Message(mailbox),
            None => {
                let peer = connection.stream.peer().clone();
                handler.context().events().report(&Event::TaskNotBound { peer, task });
                TaskThread::None
            }
        }
    }

    /// Returns the time since the pool's start.
    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Decides whether the rate of a task permits a message with this header.
    fn admit(&self, task: u64, header: &Header) -> RateAdmission {
        let rate = self.state.lock().rates.get(&task).cloned();
        let Some(rate) = rate.filter(|_| header.kind == MessageKind::Request) else {
            return RateAdmission::Runs { not_before: None, rate: None };
        };
        match rate.arrive(self.now()) {
            RateVerdict::Run => RateAdmission::Runs { not_before: None, rate: None },
            RateVerdict::WaitUntil(at) => {
                self.state.lock().roster.count_delayed();
                RateAdmission::Runs { not_before: Some(self.started_at + at), rate: Some(rate) }
            }
            RateVerdict::Refuse => RateAdmission::Refused,
        }
    }

    /// Refuses a request above the rate of its task: the client of a two-way call gets TRANSIENT,
    /// and a oneway is dropped.
    #[cold]
    fn refuse<H: RequestHandler>(
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

    /// Runs a message of a task on the calling thread, within the task's budget. Only a request is a
    /// job, which is measured.
    #[inline]
    fn run_job<R>(
        &self,
        context: &OrbContext,
        task: Option<&ServedTask>,
        kind: MessageKind,
        run: impl FnOnce() -> R,
    ) -> R {
        let meter = task.and_then(|task| task.meter.as_deref()).filter(|_| kind == MessageKind::Request);
        let run = || {
            let started = meter.map(|meter| (meter, self.jobs.begin()));
            let result = run();
            if let Some((meter, start)) = started {
                self.jobs.end(meter, start);
            }
            result
        };
        match task.map(|task| task.binding) {
            Some(TaskBinding { task, rules: TaskRules { budget: Some(budget), overrun, .. }, .. }) => {
                self.run_with_budget(context, (task, budget, overrun), run)
            }
            _ => run(),
        }
    }

    #[cold]
    fn run_with_budget<R>(
        &self,
        context: &OrbContext,
        (task, budget, action): (u64, Duration, JobOverrunAction),
        job: impl FnOnce() -> R,
    ) -> R {
        let monitor = context.cpu_monitor().filter(|_| action != JobOverrunAction::Report);
        let monitor = monitor.map(|monitor| (context.stamp(), monitor));
        let running = JobBudget::begin(budget, monitor, action == JobOverrunAction::Stop);
        let result = job();
        if let Some(overrun) = running.end() {
            self.state.lock().roster.count_overrun(overrun);
            context.events().report(&Event::JobOverBudget { task, budget, used: overrun.used, action });
        }
        result
    }

    /// Records that a thread runs, and gives the thread its core.
    fn enter(&self, number: ThreadNumber) {
        let scheduling = thread_context::current_scheduling().unwrap_or(Scheduling::Other);
        let mut state = self.state.lock();
        if let Some(seat) = state.seats.get_mut(number) {
            seat.tid = Some(thread::current_tid());
            seat.scheduling = scheduling;
        }
        self.place(&mut state, number);
    }

    /// Ends the binding of a thread, which takes its own core again.
    fn finish(&self, number: ThreadNumber) {
        let mut state = self.state.lock();
        state.roster.finish(number);
        if let Some(seat) = state.seats.get_mut(number) {
            seat.connection = Weak::new();
        }
        self.place(&mut state, number);
    }

    /// Records the core and the priority of the calling thread's task in the thread's context.
    /// Returns `None` if the thread must give its connection up.
    fn take_duty<S: Architecture<S>>(
        &self,
        lane: &Lane<S>,
        context: &OrbContext,
        number: ThreadNumber,
    ) -> Option<ServedTask> {
        let state = self.state.lock();
        let native = state.seats.get(number).map(|seat| seat.scheduling);
        let identity = lane.identity(context.stamp());
        match state.roster.duty(number) {
            Duty::Serve(binding) => {
                let priority = context.config().rt.corba_priority(Scheduling::Fifo(binding.priority));
                let priority = priority.map_or(0, corelane_sched::Priority::get);
                let identity = LaneIdentity { priority, has_fixed_priority: true, serves_task: true, ..identity };
                thread_context::enter_lane(identity, native);
                // If the priority changed during an overrunning operation, the end of the operation
                // has restored the earlier priority. A refusal has been recorded before.
                let _ = native.map(|native| thread::set_scheduling(None, native));
                let rate = state.rates.get(&binding.task).cloned();
                Some(ServedTask { binding, rate, meter: state.meters.get(binding.task) })
            }
            Duty::GiveUp | Duty::Sleep => {
                thread_context::enter_lane(identity, native);
                None
            }
        }
    }
}

impl<S: Architecture<S>> Architecture<S> for CorePoolThreads {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()> {
        let settings = &self.0.settings;
        {
            let mut state = self.0.state.lock();
            for &core in settings.cores.iter().flat_map(|core| std::iter::repeat_n(core, settings.threads_per_core)) {
                let Some(number) = state.roster.add(core) else { break };
                self.0.start_thread(&mut state, threads.lane, threads.handler, number)?;
            }
        }
        threads.spawn('l', settings.best_effort_threads.max(1), lane_loop::run)
    }

    fn keeps_read_lock(&self, context: &OrbContext, worker: &mut Worker, detached: Option<&Message>) -> bool {
        let (header, octets) = detached.map_or_else(|| worker.in_place(), Message::parts);
        let key = object_key(header, octets, &context.config().limits);
        worker.claimed_task = key.and_then(|key| self.0.binder.task_of(key));
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
        let (not_before, rate) = match self.0.admit(task, header) {
            RateAdmission::Runs { not_before, rate } => (not_before, rate),
            RateAdmission::Refused => {
                let message = detached.take().unwrap_or_else(|| worker.detach());
                self.0.refuse(handler, worker, connection, &message, task);
                connection.read_state.release();
                lane.list_connection(connection, ReadCause::Readiness);
                return MessagePlacement::Elsewhere { reads_on: false };
            }
        };
        let thread = self.0.choose_thread(lane, handler, connection, task, true);
        if let TaskThread::Connection(mailbox) = thread {
            let message = detached.take().unwrap_or_else(|| worker.detach());
            let (header, octets) = message.parts();
            let key = object_key(header, octets, &handler.context().config().limits).unwrap_or_default().into();
            unwatch(lane, connection);
            let waiting = connection.add_waiting_request(Duration::ZERO);
            mailbox.assign(Assignment { waiting, message, key: Some(key), not_before });
            return MessagePlacement::Elsewhere { reads_on: false };
        }
        // Threads that found the lock kept have left no flag, so the connection is listed.
        connection.read_state.release();
        lane.list_connection(connection, ReadCause::Readiness);
        if let TaskThread::Message(mailbox) = thread {
            let message = detached.take().unwrap_or_else(|| worker.detach());
            let waiting = connection.add_waiting_request(Duration::ZERO);
            mailbox.assign(Assignment { waiting, message, key: None, not_before });
            return MessagePlacement::Elsewhere { reads_on: false };
        }
        // A thread without a task does not wait for the rate.
        if let Some(rate) = rate.filter(|_| not_before.is_some()) {
            rate.end_wait();
        }
        MessagePlacement::Here { reads_on: false }
    }

    /// A task's requests have a rate, and a budget for their replies.
    #[cfg(feature = "replies-first")]
    fn may_defer_requests(&self) -> bool {
        false
    }

    fn stop(&self) -> Vec<JoinHandle<()>> {
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

/// Stops watching a connection, which one thread reads from now on.
fn unwatch<S>(lane: &Lane<S>, connection: &Connection) {
    if let Some(readiness) = connection.stream.readiness() {
        // An error means that the descriptor is not watched.
        let _ = lane.epoll.remove(readiness);
    }
}

/// Runs a thread of the pool: sleeps until it is assigned a connection, and serves it.
fn run_thread<S: Architecture<S>, H: RequestHandler>(
    pool: &Arc<SharedPool>,
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
    number: ThreadNumber,
    mailbox: &Mailbox,
) {
    thread_context::set_owner(handler.context().stamp());
    thread_context::enter_lane(lane.identity(handler.context().stamp()), None);
    pool.enter(number);
    pool.report_refusal(handler.context(), &lane.config.name);
    let mut worker = Worker::new();
    while !lane.is_stopping() {
        let assignment = mailbox.assignment.lock().take();
        let Some(Assignment { waiting, message, key, not_before }) = assignment else {
            // An error only makes this loop check again.
            let _ = poll::wait_readable(mailbox.wake.as_fd(), None);
            mailbox.wake.drain();
            continue;
        };
        let Some(key) = key else {
            let task = pool.take_duty(lane, handler.context(), number);
            if let Some(until) = not_before {
                // A change of the task ends the wait.
                let seen = mailbox.changes.load(Ordering::Acquire);
                while !until.is_past() && !lane.is_stopping() && mailbox.changes.load(Ordering::Acquire) == seen {
                    // An error only makes this loop check again.
                    let _ = poll::wait_readable(mailbox.wake.as_fd(), Some(until));
                    mailbox.wake.drain();
                }
                if let Some(rate) = task.as_ref().and_then(|task| task.rate.as_ref()) {
                    rate.end_wait();
                }
            }
            let kind = message.parts().0.kind;
            pool.run_job(handler.context(), task.as_ref(), kind, || {
                lane.run_waiting(handler, &mut worker, waiting, message);
            });
            pool.finish(number);
            continue;
        };
        let connection = Arc::clone(&*waiting);
        let bound = BoundConnection { lane: Arc::clone(lane), handler: Arc::clone(handler), connection, key };
        let bound = Rc::new(bound);
        serve(pool, number, mailbox, &bound, &mut worker, (waiting, message, not_before));
        nested_wait::uninstall();
        // The drop of the last handle frees the descriptor.
        drop(bound);
        lane.accept_again();
    }
}
