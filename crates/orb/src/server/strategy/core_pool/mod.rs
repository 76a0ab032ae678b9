//! Core pool: leader/followers for requests without a task, and for each core sleeping threads that
//! serve the connections of tasks.
//!
//! A thread of the lane that reads the first message of a task passes the message and its
//! connection to a sleeping thread of the task's core. This thread takes the task's core and
//! priority, and reads the connection until the task ends or replies wait for the peer.
//!
//! A request of a task is a *job*: the rate, the budget and the measurement of its task apply to
//! it, and to no other message.
//!
//! Invariant: the read lock of a connection belongs to one thread at any time, so each message is
//! read once, and in the order of its arrival.

mod bound;
mod deadline_order;
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

use corelane_net::Wait;
use corelane_sys::clock::Monotonic;
use corelane_sys::cpu_budget::CpuBudgets;
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling, ThreadBuilder, Tid};
use corelane_sys::{counters, poll};
use corelane_wire::Limits;
use corelane_wire::giop::MessageKind;

use self::bound::{BoundConnection, serve};
use self::deadline_order::DeadlineOrder;
use self::job_log::{JobLog, TaskMeter, TaskMeters};
use self::rate::{RateAdmission, RateWait, TaskRate};
use self::roster::{BindDecision, Duty, Roster, ThreadNumber};
use crate::event::Event;
use crate::job_budget::{self, JobBudget};
use crate::orb_context::OrbContext;
use crate::rt::config::SchedulingClass;
use crate::rt::core_config::{
    CorePoolCounts, JobBatch, JobOverrunAction, TaskBinder, TaskBinding, TaskMeasurement, TaskRules,
};
use crate::server::architecture::{Architecture, MessagePlacement};
use crate::server::connection::{Connection, ReadCause, WaitingRequest};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, LaneTask, StartedRequest};
use crate::server::lane_loop;
use crate::server::message::{Message, object_key};
use crate::server::parked_request::ParkedRequest;
use crate::server::threads::ThreadStarter;
use crate::server::worker::Worker;
use crate::thread_context::{self, LaneIdentity};
use crate::{minor, nested_wait};

/// The longest time for which a thread waits for its connection alone, and so notices no change of
/// its duty.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Native priority of sleeping threads: the lowest fixed priority.
const RESTING_PRIORITY: u8 = 1;

/// Highest native priority of a job with a deadline.
pub(crate) const MOST_DEADLINE_PRIORITY: u8 = 97;

#[derive(Clone, Debug)]
pub(crate) struct CorePoolSettings {
    pub(crate) cores: Vec<usize>,
    pub(crate) threads_per_core: usize,
    pub(crate) max_threads: usize,
    pub(crate) best_effort_threads: usize,
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
    /// The budgets of jobs that can be demoted; `None` if the threads have no priorities.
    budgets: Option<CpuBudgets>,
    /// The instant from which the times of rates and deadlines are counted.
    started_at: Monotonic,
    state: PiMutex<PoolState>,
    jobs: JobLog,
}

struct PoolState {
    roster: Roster,
    meters: TaskMeters,
    seats: Vec<Seat>,
    handles: Vec<JoinHandle<()>>,
    /// The cores on which the kernel lets no thread run at present.
    lost_cores: BTreeSet<usize>,
    rates: BTreeMap<u64, Arc<TaskRate>>,
    order: DeadlineOrder,
    changed_levels: Vec<ThreadNumber>,
    /// The reason why promises are advisory; `None` if there is no reason.
    refusal: Option<String>,
    is_refusal_reported: bool,
}

struct Seat {
    mailbox: Arc<Mailbox>,
    /// The kernel's id of the thread; `None` until the thread runs.
    tid: Option<Tid>,
    /// `None` if the thread's core is not set.
    core: Option<usize>,
    scheduling: Scheduling,
    connection: Weak<Connection>,
}

struct Mailbox {
    /// Notified for each assignment, for a change of the thread's duty or of the rate for which it
    /// waits, and when the lane stops.
    wake: EventFd,
    assignment: PiMutex<Option<Assignment>>,
    /// Number of changes of the thread's duty, wrapping. The thread reads it at each message
    /// boundary. Written with release under the lock of the state, read with acquire.
    changes: AtomicU32,
}

struct Assignment {
    waiting: WaitingRequest,
    message: Message,
    /// The object key of the task if the thread serves the connection from now on; `None` if it
    /// serves the message alone.
    key: Option<Box<[u8]>>,
    wait: Option<RateWait>,
}

struct ServedTask {
    number: ThreadNumber,
    binding: TaskBinding,
    rate: Option<Arc<TaskRate>>,
    meter: Option<Arc<TaskMeter>>,
}

enum TaskThread {
    /// This thread runs the message, and serves the connection from now on.
    Connection(Arc<Mailbox>),
    Message(Arc<Mailbox>),
    /// A thread without a task runs the message, because no thread is free for the task.
    Exhausted,
    /// A thread without a task runs the message: the task is not in the pool's set, or the message
    /// is no job and its connection cannot be bound.
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
    pub(crate) fn new(settings: CorePoolSettings, binder: Arc<dyn TaskBinder>, budgets: Option<CpuBudgets>) -> Self {
        let state = PoolState {
            roster: Roster::new(settings.max_threads),
            meters: TaskMeters::default(),
            seats: Vec::new(),
            lost_cores: BTreeSet::new(),
            rates: BTreeMap::new(),
            order: DeadlineOrder::new(MOST_DEADLINE_PRIORITY),
            changed_levels: Vec::new(),
            handles: Vec::new(),
            refusal: (settings.class == SchedulingClass::Fair)
                .then(|| "the ORB's threads are in the ordinary class".to_owned()),
            is_refusal_reported: false,
        };
        let state = PiMutex::new("core pool", LockScope::Lane, state);
        let jobs = JobLog::new(settings.max_recorded_jobs);
        CorePoolThreads(Arc::new(SharedPool { settings, binder, budgets, started_at: Monotonic::now(), state, jobs }))
    }

    /// Replaces the set of tasks. Bound threads take their new cores and priorities at once.
    /// Threads whose task is not in the set return their connections to the lane. Of the `demoted`
    /// tasks, the measurements and the times of the last requests remain.
    pub(crate) fn set_tasks(&self, tasks: &[TaskBinding], demoted: &[u64]) {
        let pool = &*self.0;
        let mut state = pool.state.lock();
        state.meters.set_tasks(tasks.iter().map(|binding| binding.task).chain(demoted.iter().copied()));
        for number in state.roster.set_tasks(tasks) {
            if let Duty::Serve(binding) = state.roster.duty(number) {
                pool.change_order(&mut state, |order, changed| order.move_to(binding.core, number, changed));
            }
            pool.place(&mut state, number);
            if let Some(seat) = state.seats.get(number) {
                seat.mailbox.changes.fetch_add(1, Ordering::Release);
                seat.mailbox.wake.notify();
            }
        }
        // A thread whose wait for a rate ends must find its new duty, so the rates change last.
        rate::update(&mut state.rates, tasks, demoted);
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

    pub(crate) fn refusal(&self) -> Option<String> {
        self.0.state.lock().refusal.clone()
    }

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
            Duty::Serve(binding) => {
                let level = state.order.level_of(number);
                (binding.core, self.scheduling(level.unwrap_or(binding.priority)))
            }
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

    fn change_order<R>(
        &self,
        state: &mut PoolState,
        change: impl FnOnce(&mut DeadlineOrder, &mut Vec<ThreadNumber>) -> R,
    ) -> R {
        let mut changed = std::mem::take(&mut state.changed_levels);
        let result = change(&mut state.order, &mut changed);
        for number in changed.drain(..) {
            self.place(state, number);
        }
        state.changed_levels = changed;
        result
    }

    #[cold]
    fn run_by_deadline<R>(
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

    /// Adds the job that the calling thread begins to the order, or removes the job if `begins` is
    /// `None`. Records the thread's scheduling in its context.
    fn reorder(&self, context: &OrbContext, number: ThreadNumber, begins: Option<(usize, u64)>) {
        let mut state = self.state.lock();
        match begins {
            Some((core, deadline)) => {
                // The task may have moved since the thread read its duty.
                let duty = state.roster.duty(number);
                let core = if let Duty::Serve(binding) = duty { binding.core } else { core };
                self.change_order(&mut state, |order, changed| order.begin(core, deadline, number, changed));
            }
            None => {
                self.change_order(&mut state, |order, changed| order.end(number, changed));
                self.place(&mut state, number);
            }
        }
        let native = state.seats.get(number).map(|seat| seat.scheduling);
        drop(state);
        thread_context::enter_lane(thread_context::current_lane(context.stamp()), native);
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
    /// serves the connection from now on, unless the connection has a thread already. A message that
    /// is no job gets a thread only with its connection.
    fn choose_thread<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        lane: &Lane<S>,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        task: u64,
        (is_job, serves_connection): (bool, bool),
    ) -> TaskThread {
        let Some(lane) = lane.weak_self.upgrade() else { return TaskThread::None };
        let mut state = self.state.lock();
        // A stream without a descriptor cannot return to the lane's epoll.
        let mut serves_connection = serves_connection && connection.stream.readiness().is_some();
        let mut decision = BindDecision::Occupied;
        if serves_connection {
            decision = state.roster.bind(task, connection.origin.id);
        }
        if decision == BindDecision::Occupied && is_job {
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
            None => TaskThread::Exhausted,
        }
    }

    #[cold]
    fn report_not_bound(&self, context: &OrbContext, connection: &Connection, task: u64) {
        self.state.lock().roster.count_not_bound();
        let peer = connection.stream.peer().clone();
        context.events().report(&Event::TaskNotBound { peer, task });
    }

    /// Returns the mailbox of a sleeping thread for a request of a task that could not run when it
    /// was read. `None` if no sleeping thread is free for the task, which is counted, or if the
    /// task is not in the set.
    fn wake_sleeper(&self, connection: &Arc<Connection>, task: u64) -> Option<Arc<Mailbox>> {
        let mut state = self.state.lock();
        match state.roster.lend(task) {
            BindDecision::Wake(number) => {
                self.place(&mut state, number);
                let seat = state.seats.get_mut(number)?;
                seat.connection = Arc::downgrade(connection);
                return Some(Arc::clone(&seat.mailbox));
            }
            // Only a thread that has a handler can start further threads.
            BindDecision::Start(number) => state.roster.start_failed(number),
            BindDecision::Exhausted => {}
            BindDecision::Occupied | BindDecision::NoTask => return None,
        }
        state.roster.count_not_bound();
        None
    }

    fn admit(&self, task: u64) -> RateAdmission {
        let rate = self.state.lock().rates.get(&task).cloned();
        rate.map_or(RateAdmission::Runs, |rate| rate.arrive(self.started_at.elapsed()))
    }

    fn assign(&self, mailbox: &Mailbox, assignment: Assignment) {
        if assignment.wait.is_some() {
            self.state.lock().roster.count_delayed();
        }
        mailbox.assign(assignment);
    }

    /// Waits at the mailbox of the calling thread for the turn of a request. A change of the rate
    /// moves the turn, and the end of the task ends the wait.
    #[cold]
    fn wait_for_turn<S: Architecture<S>>(&self, lane: &Lane<S>, mailbox: &Arc<Mailbox>, wait: RateWait) {
        while let Some(turn) = wait.turn(mailbox) {
            let until = self.started_at + turn;
            if until.is_past() || lane.is_stopping() {
                break;
            }
            // An error only makes this loop check again.
            let _ = poll::wait_readable(mailbox.wake.as_fd(), Some(until));
            mailbox.wake.drain();
        }
        wait.end();
    }

    /// Lets a thread without a task refuse a request above the rate of its task.
    #[cold]
    fn refuse_elsewhere<S: Architecture<S>, H: RequestHandler>(
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
    /// and a oneway is dropped. The calling thread has no task.
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

    /// Refuses a request on the calling thread of the lane, and releases the connection's read lock, which
    /// this thread holds.
    #[cold]
    fn refuse_here<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        message: &Message,
        task: u64,
    ) -> MessagePlacement {
        self.refuse(handler, worker, connection, message, task);
        connection.read_state.release();
        lane.list_connection(connection, ReadCause::Readiness);
        MessagePlacement::Elsewhere { reads_on: false }
    }

    /// Runs a message on the calling thread. If `task` is present, the message is a job: the budget
    /// and the deadline of the task apply, and the job is measured unless its request is parked.
    #[inline]
    fn run_job<R>(&self, context: &OrbContext, task: Option<&ServedTask>, run: impl FnOnce() -> R) -> R {
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
        let run = || match task.map(|task| task.binding) {
            Some(TaskBinding { task, rules: TaskRules { budget: Some(budget), overrun, .. }, .. }) => {
                self.run_with_budget(context, (task, budget, overrun), run)
            }
            _ => run(),
        };
        let by_deadline = task.and_then(|task| Some((task.number, task.binding.core, task.binding.rules.deadline?)));
        match by_deadline {
            Some(job) => self.run_by_deadline(context, job, run),
            None => run(),
        }
    }

    /// Runs a message that waited for the calling thread. The message is a job if `task` is present
    /// and the message is a request that runs now. Returns false if the connection must be retired.
    fn run_waiting<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        task: Option<&ServedTask>,
        (waiting, message): (WaitingRequest, Message),
    ) -> bool {
        // A request that is deferred or that must not run is no job.
        let Some(started) = lane.begin_waiting_request(waiting, message) else { return true };
        let StartedRequest { guard, connection, message, waited } = started;
        let task = task.filter(|_| message.parts().0.kind == MessageKind::Request);
        let goes_on =
            self.run_job(handler.context(), task, || worker.dispatch(handler, &connection, message, Wait::Now, waited));
        drop(guard);
        goes_on
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

    fn enter(&self, number: ThreadNumber) {
        let scheduling = thread_context::current_scheduling().unwrap_or(Scheduling::Other);
        let mut state = self.state.lock();
        if let Some(seat) = state.seats.get_mut(number) {
            seat.tid = Some(thread::current_tid());
            seat.scheduling = scheduling;
        }
        self.place(&mut state, number);
    }

    fn finish(&self, number: ThreadNumber) {
        let mut state = self.state.lock();
        state.roster.finish(number);
        if let Some(seat) = state.seats.get_mut(number) {
            seat.connection = Weak::new();
        }
        self.place(&mut state, number);
    }

    /// Returns the task that the calling thread serves, and records its priority in the thread's
    /// context. Returns `None` if the thread must return its connection to the lane, or must not
    /// run its message.
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
                Some(ServedTask { number, binding, rate, meter: state.meters.get(binding.task) })
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
        let is_job = header.kind == MessageKind::Request;
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
            self.0.assign(&mailbox, Assignment { waiting, message, key: Some(key), wait });
            return MessagePlacement::Elsewhere { reads_on: false };
        }
        if matches!(thread, TaskThread::None | TaskThread::Exhausted) && wait.is_some() {
            let message = detached.take().unwrap_or_else(|| worker.detach());
            return self.0.refuse_here(lane, handler, worker, connection, &message, task);
        }
        if matches!(thread, TaskThread::Exhausted) && is_job {
            self.0.report_not_bound(handler.context(), connection, task);
        }
        // Threads that found the read lock kept have left no flag for new input, so the connection is
        // listed, and is read again.
        connection.read_state.release();
        lane.list_connection(connection, ReadCause::Readiness);
        if let TaskThread::Message(mailbox) = thread {
            let message = detached.take().unwrap_or_else(|| worker.detach());
            let waiting = connection.add_waiting_request(Duration::ZERO);
            self.0.assign(&mailbox, Assignment { waiting, message, key: None, wait });
            return MessagePlacement::Elsewhere { reads_on: false };
        }
        MessagePlacement::Here { reads_on: false }
    }

    /// Runs a message that could not run when it was read. A sleeping thread runs a request of a
    /// task if one is free for the task; the lane's threads run all other messages.
    fn requeue(&self, lane: &Lane<S>, waiting: WaitingRequest, message: Message) {
        let (header, octets) = message.parts();
        let key = object_key(header, octets, &self.0.settings.limits);
        let task = key.filter(|_| header.kind == MessageKind::Request).and_then(|key| self.0.binder.task_of(key));
        match task.and_then(|task| self.0.wake_sleeper(&waiting, task)) {
            Some(mailbox) => mailbox.assign(Assignment { waiting, message, key: None, wait: None }),
            None => lane.push(LaneTask::Dispatch(waiting, message)),
        }
    }

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

fn unwatch<S>(lane: &Lane<S>, connection: &Connection) {
    if let Some(readiness) = connection.stream.readiness() {
        let _ = lane.epoll.remove(readiness);
    }
}

fn run_thread<S: Architecture<S>, H: RequestHandler>(
    pool: &Arc<SharedPool>,
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
    number: ThreadNumber,
    mailbox: &Arc<Mailbox>,
) {
    thread_context::set_owner(handler.context().stamp());
    thread_context::enter_lane(lane.identity(handler.context().stamp()), None);
    pool.enter(number);
    pool.report_refusal(handler.context(), &lane.config.name);
    let mut worker = Worker::new();
    while !lane.is_stopping() {
        let assignment = mailbox.assignment.lock().take();
        let Some(Assignment { waiting, message, key, wait }) = assignment else {
            let _ = poll::wait_readable(mailbox.wake.as_fd(), None);
            mailbox.wake.drain();
            continue;
        };
        let Some(key) = key else {
            if let Some(wait) = wait {
                pool.wait_for_turn(lane, mailbox, wait);
            }
            match pool.take_duty(lane, handler.context(), number) {
                Some(task) => {
                    let handle = waiting.handle;
                    if !pool.run_waiting(lane, handler, &mut worker, Some(&task), (waiting, message)) {
                        lane.retire_connection(handler.context(), handle);
                    }
                }
                // The task has ended.
                None => lane.push(LaneTask::Dispatch(waiting, message)),
            }
            pool.finish(number);
            continue;
        };
        let connection = Arc::clone(&*waiting);
        let bound = BoundConnection { lane: Arc::clone(lane), handler: Arc::clone(handler), connection, key };
        let bound = Rc::new(bound);
        serve(pool, number, mailbox, &bound, &mut worker, (waiting, message, wait));
        nested_wait::uninstall();
        drop(bound);
        lane.accept_again();
    }
}
