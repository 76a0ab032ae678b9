//! The threads of tasks: their starts, cores and priorities, and the choice of the thread that runs
//! a message.
//!
//! The lock of the pool's state orders all changes that the pool makes to a thread's core and
//! priority. The monitor of CPU budgets lowers a thread under the lock of its budget.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::poll;
use corelane_sys::thread::{self, CpuSet, Scheduling, ThreadBuilder};

use super::bound::{BoundConnection, serve};
use super::deadline_order::DeadlineOrder;
use super::kernel_refusals::Request;
use super::reader::{READER_PRIORITY, run_follower, run_held};
use super::roster::{BindDecision, Duty, LeadDecision, ThreadNumber};
use super::{
    AssignedWork, Assignment, Mailbox, PoolState, RESTING_PRIORITY, START_PAUSE, Seat, ServedTask, SharedPool,
    TaskThread,
};
use crate::event::Event;
use crate::nested_wait;
use crate::orb_context::OrbContext;
use crate::rt::config::SchedulingClass;
use crate::rt::core_config::{CorePoolMode, RefusedTask};
use crate::server::architecture::Architecture;
use crate::server::connection::Connection;
use crate::server::handler::RequestHandler;
use crate::server::lane::Lane;
use crate::server::worker::Worker;
use crate::thread_context::{self, LaneIdentity};

impl SharedPool {
    pub(super) fn scheduling(&self, priority: u8) -> Scheduling {
        match self.settings.class {
            SchedulingClass::Fifo => Scheduling::Fifo(priority),
            SchedulingClass::RoundRobin => Scheduling::RoundRobin(priority),
            SchedulingClass::Fair => Scheduling::Other,
        }
    }

    /// Returns the core whose threads serve a task of `core`. In a pool without affinity, the
    /// number of the first core stands for all cores.
    pub(super) fn core_of(&self, core: usize) -> usize {
        match self.settings.mode {
            CorePoolMode::NoAffinity => self.settings.cores.first().copied().unwrap_or(core),
            _ => core,
        }
    }

    /// Returns the cores on which the threads of `core` run.
    fn affinity_of(&self, core: usize) -> CpuSet {
        let mut cores = CpuSet::one(core);
        if self.settings.mode == CorePoolMode::NoAffinity {
            self.settings.cores.iter().for_each(|&core| cores.insert(core));
        }
        cores
    }

    /// Gives a thread the core and the scheduling of its duty. The lock of the state orders all
    /// changes of a thread.
    ///
    /// If the kernel refuses what it has permitted before, the thread keeps its core and its
    /// scheduling, and its task leaves the set. Returns false in this case. An error because the
    /// thread has ended is not a refusal.
    pub(super) fn place(&self, state: &mut PoolState, number: ThreadNumber) -> bool {
        let (core, scheduling, task) = match state.roster.duty(number) {
            Duty::Serve(binding) => {
                let level = state.order.level_of(number);
                (binding.core, self.scheduling(level.unwrap_or(binding.priority)), Some(binding.task))
            }
            Duty::Sleep => {
                let priority = if self.is_led() { READER_PRIORITY } else { RESTING_PRIORITY };
                (state.roster.home(number), self.scheduling(priority), None)
            }
            // The thread keeps its core for the job that it may be running.
            Duty::GiveUp => return true,
        };
        let Some(seat) = state.seats.get_mut(number) else { return true };
        let Some(tid) = seat.tid else { return true };
        let mut refusal = None;
        let before = seat.core;
        let is_lost = self.settings.mode != CorePoolMode::NoAffinity && state.lost_cores.contains(&core);
        if before != Some(core) && !is_lost {
            match thread::set_affinity(Some(tid), &self.affinity_of(core)) {
                Ok(()) => {
                    seat.core = Some(core);
                    state.refusals.permit(Request::Core(core));
                }
                Err(error) if thread::is_ended_thread_error(&error) => return true,
                Err(error) => refusal = Some((Request::Core(core), format!("core {core}: {error}"))),
            }
        }
        let withdrawn = |state: &PoolState, refusal: &Option<(Request, String)>| {
            let refused = refusal.as_ref().filter(|(request, _)| state.refusals.was_permitted(*request));
            task.filter(|_| refused.is_some())
        };
        if withdrawn(state, &refusal).is_none()
            && let Some(seat) = state.seats.get_mut(number)
            && seat.scheduling != scheduling
        {
            // `set_scheduling` changes nothing while the thread's job is demoted because of its
            // budget. The thread takes the scheduling of its duty when the job ends.
            let set = match &self.budgets {
                Some(budgets) => budgets.set_scheduling(tid, scheduling),
                None => thread::set_scheduling(Some(tid), scheduling),
            };
            let fixed = match scheduling {
                Scheduling::Fifo(priority) | Scheduling::RoundRobin(priority) => Some(priority),
                _ => None,
            };
            match set {
                Ok(()) => {
                    seat.scheduling = scheduling;
                    if let Some(priority) = fixed {
                        state.refusals.permit(Request::FixedPriority(priority));
                    }
                }
                Err(error) if thread::is_ended_thread_error(&error) => return true,
                Err(error) => {
                    let request = Request::FixedPriority(fixed.unwrap_or(u8::MAX));
                    refusal = Some((request, format!("{scheduling:?}: {error}")));
                }
            }
        }
        let withdrawn = withdrawn(state, &refusal);
        let Some((request, reason)) = refusal else {
            if let Some(task) = task {
                state.refusals.forget(task);
            }
            return true;
        };
        let Some(task) = withdrawn else {
            // The request is for a sleeping thread, or the kernel has never permitted such a
            // request. In the second case the pool cannot guarantee the timing of its tasks, and
            // records the reason.
            if !state.refusals.was_permitted(request) {
                state.refusal.get_or_insert(reason);
            }
            return true;
        };
        if let Some(seat) = state.seats.get_mut(number)
            && seat.core != before
            && let Some(before) = before
        {
            // If the kernel refuses the earlier core as well, the thread gets a core when it next
            // sleeps.
            let is_back = thread::set_affinity(Some(tid), &self.affinity_of(before)).is_ok();
            seat.core = is_back.then_some(before);
        }
        self.withdraw(state, task, request, reason);
        false
    }

    /// Removes a task from the set, because the kernel refuses a request for it. Its threads return
    /// their connections to the lane.
    fn withdraw(&self, state: &mut PoolState, task: u64, request: Request, reason: String) {
        if state.refusals.refuse(task, request, reason) {
            state.roster.count_refused_by_kernel();
        }
        for number in state.roster.remove_task(task) {
            state.tell_duty(number);
        }
        // A change of the rate wakes the thread that waits with a request above the rate. The
        // thread must find its new duty, so the rate changes last.
        if let Some(rate) = state.rates.get(&task) {
            rate.change(None);
        }
    }

    pub(super) fn change_order<R>(
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

    /// Adds the job that the calling thread begins to the order, or removes the job if `begins` is
    /// `None`. Records the thread's scheduling in its context.
    pub(super) fn reorder(&self, context: &OrbContext, number: ThreadNumber, begins: Option<(usize, u64)>) {
        let mut state = self.state.lock();
        match begins {
            Some((core, deadline)) => {
                // The task may have moved since the thread read its duty, so the present core
                // counts.
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

    /// Sets the scheduling of the calling thread's duty after a demoted job, unless the end of the
    /// job has restored it. If the kernel refuses the scheduling, the task leaves the set.
    #[cold]
    pub(super) fn restore_demoted(&self, context: &OrbContext, number: ThreadNumber) {
        let mut state = self.state.lock();
        let Ok(real) = thread::scheduling(None) else { return };
        let Some(seat) = state.seats.get_mut(number).filter(|seat| seat.scheduling != real) else { return };
        seat.scheduling = real;
        self.place(&mut state, number);
        let native = state.seats.get(number).map(|seat| seat.scheduling);
        drop(state);
        thread_context::enter_lane(thread_context::current_lane(context.stamp()), native);
        if let Some(report) = self.reporter.get() {
            report();
        }
    }

    pub(super) fn report_refusal(&self, context: &OrbContext, pool: &str) {
        let mut state = self.state.lock();
        let tasks = state.refusals.take_unreported();
        if !state.is_refusal_reported
            && let Some(error) = state.refusal.clone()
        {
            state.is_refusal_reported = true;
            drop(state);
            context.events().report(&Event::TaskTimingNotGuaranteed { pool: pool.to_owned(), error });
        } else {
            drop(state);
        }
        for RefusedTask { task, reason, .. } in tasks {
            context.events().report(&Event::TaskRefused { pool: pool.to_owned(), task, error: reason });
        }
    }

    pub(super) fn start_thread<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        state: &mut PoolState,
        lane: &Arc<Lane<S>>,
        handler: &Arc<H>,
        number: ThreadNumber,
        wake: EventFd,
    ) -> io::Result<()> {
        let mailbox = Arc::new(Mailbox {
            wake,
            assignment: PiMutex::new("assignment", LockScope::Lane, None),
            changes: AtomicU32::new(0),
        });
        let builder = ThreadBuilder::new()
            .name(format!("{}/b{number}", lane.config.name))
            .stack_size(lane.config.thread_stack_size)
            .scheduling(Scheduling::Other)
            .preferred_affinity(self.usable)
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
    /// serves the connection from now on, unless the connection has a thread already. A message
    /// that is not a job gets a thread only if this thread then serves the connection.
    pub(super) fn choose_thread<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        lane: &Lane<S>,
        handler: &Arc<H>,
        connection: &Arc<Connection>,
        task: u64,
        (is_job, serves_connection): (bool, bool),
    ) -> TaskThread {
        let Some(lane) = lane.weak_self.upgrade() else { return TaskThread::None };
        let mut state = self.state.lock();
        // A stream without a descriptor cannot return to the lane's epoll, so the connection is not
        // bound.
        let mut serves_connection = serves_connection && connection.stream.readiness_descriptor().is_some();
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
                self.place_woken(&mut state, number).then_some(number)
            }
            BindDecision::Start(number) => self.try_start(&mut state, &lane, handler, number).then_some(number),
            BindDecision::Exhausted => None,
            BindDecision::Occupied | BindDecision::NoTask => return TaskThread::None,
        };
        let seat = number.and_then(|number| state.seats.get_mut(number));
        let mailbox = seat.map(|seat| {
            seat.connection = Arc::downgrade(connection);
            Arc::clone(&seat.mailbox)
        });
        let is_in_set = state.roster.contains(task);
        drop(state);
        self.report_refusal(handler.context(), &lane.config.name);
        match mailbox {
            Some(mailbox) if serves_connection => TaskThread::Connection(mailbox),
            Some(mailbox) => TaskThread::Message(mailbox),
            None if is_in_set => TaskThread::Exhausted,
            // The kernel has refused the thread's core or priority, so the task has left the set.
            None => TaskThread::None,
        }
    }

    /// Starts a thread that the roster has counted. Returns false if this fails, or failed a short
    /// time before. A lack of descriptors or threads ends no timing guarantee of the pool, because
    /// any client can cause it by opening connections.
    fn try_start<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        state: &mut PoolState,
        lane: &Arc<Lane<S>>,
        handler: &Arc<H>,
        number: ThreadNumber,
    ) -> bool {
        let pauses = state.start_failed_at.is_some_and(|failed_at| failed_at.elapsed() < START_PAUSE);
        let is_started =
            !pauses && EventFd::new().and_then(|wake| self.start_thread(state, lane, handler, number, wake)).is_ok();
        if !pauses {
            state.start_failed_at = (!is_started).then(Monotonic::now);
        }
        if !is_started {
            state.roster.start_failed(number);
        }
        is_started
    }

    /// Gives the calling thread the duty to run the request of a task that it has read.
    ///
    /// # Errors
    /// If a best-effort thread must run the request. The error is true if no thread is free for the
    /// task, and false if the task is not in the set.
    pub(super) fn lead<S: Architecture<S>, H: RequestHandler>(
        self: &Arc<Self>,
        lane: &Arc<Lane<S>>,
        handler: &Arc<H>,
        number: ThreadNumber,
        task: u64,
        connection: &Arc<Connection>,
    ) -> Result<(), bool> {
        let mut state = self.state.lock();
        let mut decision = state.roster.lead(number, task);
        if decision == LeadDecision::Alone {
            let home = state.roster.home(number);
            let follower = state.roster.add_follower(home);
            if follower.is_some_and(|follower| self.try_start(&mut state, lane, handler, follower)) {
                decision = state.roster.lead(number, task);
            }
        }
        let is_led = decision == LeadDecision::Run && self.place_woken(&mut state, number);
        if is_led && let Some(seat) = state.seats.get_mut(number) {
            seat.connection = Arc::downgrade(connection);
        }
        let is_in_set = state.roster.contains(task);
        drop(state);
        self.report_refusal(handler.context(), &lane.config.name);
        if is_led { Ok(()) } else { Err(is_in_set) }
    }

    /// Gives a thread with a new binding its core and its priority. If the kernel refuses either,
    /// takes the binding back and returns false.
    fn place_woken(&self, state: &mut PoolState, number: ThreadNumber) -> bool {
        let is_placed = self.place(state, number);
        if !is_placed {
            state.roster.wake_failed(number);
            self.place(state, number);
        }
        is_placed
    }

    #[cold]
    pub(super) fn report_not_bound(&self, context: &OrbContext, connection: &Connection, task: u64) {
        self.state.lock().roster.count_not_bound(self.settings.refuses_without_thread);
        let peer = connection.stream.peer().clone();
        context.events().report(&Event::TaskNotBound { peer, task });
    }

    /// Wakes a sleeping thread for a request of a task that could not run when it was read, and
    /// returns its mailbox. Returns `None`, and counts the request, if no sleeping thread is free
    /// for the task. Also returns `None` if the task is not in the set, or leaves it because the
    /// kernel refuses the thread's core or priority.
    pub(super) fn wake_sleeper(&self, connection: &Arc<Connection>, task: u64) -> Option<Arc<Mailbox>> {
        let mut state = self.state.lock();
        match state.roster.lend(task) {
            BindDecision::Wake(number) => {
                if self.place_woken(&mut state, number) {
                    let seat = state.seats.get_mut(number)?;
                    seat.connection = Arc::downgrade(connection);
                    return Some(Arc::clone(&seat.mailbox));
                }
                // The kernel refused the thread's core or priority, so the task has left the set.
                return None;
            }
            // A new thread would need a handler, which this function does not have. So the start
            // counts as failed.
            BindDecision::Start(number) => state.roster.start_failed(number),
            BindDecision::Exhausted => {}
            BindDecision::Occupied | BindDecision::NoTask => return None,
        }
        state.roster.count_not_bound(false);
        None
    }

    /// Puts the calling thread above all tasks, on the manager's core.
    pub(super) fn enter_manager(&self) {
        let core = self.settings.cores.first().copied().unwrap_or_default();
        let scheduling = self.scheduling(READER_PRIORITY);
        let placed = thread::set_affinity(None, &CpuSet::one(core)).map_err(|error| format!("core {core}: {error}"));
        let raised = thread_context::set_scheduling(scheduling).map_err(|error| format!("{scheduling:?}: {error}"));
        if let Err(refusal) = placed.and(raised) {
            self.state.lock().refusal.get_or_insert(refusal);
        }
    }

    pub(super) fn enter(&self, number: ThreadNumber) {
        let scheduling = thread_context::current_scheduling().unwrap_or(Scheduling::Other);
        let mut state = self.state.lock();
        if let Some(seat) = state.seats.get_mut(number) {
            seat.tid = Some(thread::current_tid());
            seat.scheduling = scheduling;
        }
        self.place(&mut state, number);
    }

    pub(super) fn finish(&self, number: ThreadNumber) {
        self.free(number);
        self.rest(number);
    }

    /// Marks a thread free for other work. Until [`rest`](Self::rest) the thread keeps its core and
    /// its priority, except in leader/followers: there it becomes a reader at once, with a reader's
    /// priority.
    pub(super) fn free(&self, number: ThreadNumber) {
        let mut state = self.state.lock();
        state.roster.finish(number);
        if let Some(seat) = state.seats.get_mut(number) {
            seat.connection = Weak::new();
        }
        if self.is_led() {
            self.place(&mut state, number);
        }
    }

    /// Gives a thread that was freed the core and the priority of a sleeping thread, unless it has
    /// new work.
    pub(super) fn rest(&self, number: ThreadNumber) {
        self.place(&mut self.state.lock(), number);
    }

    /// Returns the task that the calling thread serves, and records its priority in the thread's
    /// context. Returns `None` if the thread must return its connection to the lane, or must not
    /// run its message.
    pub(super) fn take_duty<S: Architecture<S>>(
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
                // has restored the earlier priority, so the new priority is set again. The result
                // is ignored, because `place` has recorded a refusal.
                let _ = native.map(|native| thread::set_scheduling(None, native));
                let rate = state.rates.get(&binding.task).cloned();
                let operation = state.operations.get(&binding.task).cloned();
                Some(ServedTask { number, binding, rate, operation, meter: state.meters.get(binding.task) })
            }
            Duty::GiveUp | Duty::Sleep => {
                thread_context::enter_lane(identity, native);
                None
            }
        }
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
    if pool.is_led() {
        return run_follower(pool, lane, handler, number, mailbox);
    }
    let mut worker = Worker::new();
    while !lane.is_stopping() {
        let assignment = mailbox.assignment.lock().take();
        let Some(Assignment { waiting, message, work, wait }) = assignment else {
            let _ = poll::wait_readable(mailbox.wake.as_fd(), None);
            mailbox.wake.take_notifications();
            continue;
        };
        let key = match work {
            AssignedWork::Connection(key) => key,
            AssignedWork::Message(hold) => {
                let (server, own) = ((lane, handler), (number, mailbox));
                run_held(pool, server, own, &mut worker, (waiting, message), (wait, hold));
                continue;
            }
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
