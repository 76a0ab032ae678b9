//! Leader/followers with an overload thread. This thread reads while every other thread of the lane
//! is busy, and never runs a servant. For each request it starts a dynamic thread, borrows a thread
//! from a lane with a lower priority, buffers the request, or rejects the request.

use std::any::Any;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_sched::overload::{LaneLoad, OverloadAction};
use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::idle_threads::{IdleSlot, IdleThreads, MarkBusyResult, MarkIdleResult};
use corelane_sys::lock::{LockScope, Mutex, PiMutex};
use corelane_sys::poll;
use corelane_sys::thread::{self, JoinHandle, Tid};

use crate::clock;
use crate::event::Event;
use crate::orb_context::OrbContext;
use crate::server::architecture::{Architecture, MessagePlacement};
use crate::server::connection::{Connection, ReadCause};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, LaneTask};
use crate::server::lane_role::LaneRole;
use crate::server::message::Message;
use crate::server::threads::{self, Run, ThreadStarter};
use crate::server::worker::Worker;
use crate::thread_context;

/// Maximum time for which the overload thread sleeps after a failed borrowing, so that a thread of
/// a lower lane can mark itself idle.
const LENDER_WAIT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct OverloadThread<S> {
    idle_threads: IdleThreads,
    wake: EventFd,
    lendable_threads: PiMutex<Vec<Arc<LendableThread<S>>>>,
    /// Number of static threads that have started. The overload thread does not read before all of
    /// them have started.
    started_static: AtomicU32,
    dynamic_threads: AtomicU32,
    dynamic_started: AtomicU32,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The lanes whose threads this lane may borrow, the highest priority first.
    lower: OnceLock<Vec<Weak<Lane<S>>>>,
    upper: OnceLock<Vec<Weak<Lane<S>>>>,
    /// [`OverloadFunctions`], which the lane calls through pointers. So the linker drops their code
    /// from programs without real-time thread pools.
    functions: Box<dyn Any + Send + Sync>,
}

#[derive(Debug)]
struct OverloadFunctions<S, H> {
    run_overload: Run<S, H>,
    run_pool_thread: Run<S, H>,
    admit_request: fn(&Lane<S>, &Arc<H>, &mut Worker, &Arc<Connection>, Message),
}

impl<S: HasOverloadThread, H: RequestHandler> OverloadFunctions<S, H> {
    fn new() -> Self {
        OverloadFunctions {
            run_overload: |lane, handler| lane.run_overload(handler),
            run_pool_thread: |lane, handler| lane.run_pool_thread(handler, false),
            admit_request: Lane::admit_request,
        }
    }
}

pub(crate) trait HasOverloadThread: Architecture<Self> {
    fn overload_thread(&self) -> Option<&OverloadThread<Self>>;
}

/// The borrowing lane, and the task that the thread runs; `None` if another thread has taken the
/// task.
type Loan<S> = (Arc<Lane<S>>, Option<LaneTask>);

#[derive(Debug)]
struct LendableThread<S> {
    slot: IdleSlot,
    tid: Tid,
    wake: EventFd,
    loan: PiMutex<Option<Loan<S>>>,
}

impl<S: HasOverloadThread> OverloadThread<S> {
    pub(crate) fn new<H: RequestHandler>() -> io::Result<Self> {
        Ok(OverloadThread {
            idle_threads: IdleThreads::new(),
            wake: EventFd::new()?,
            lendable_threads: PiMutex::new("threads of a lane", LockScope::Lane, Vec::new()),
            started_static: AtomicU32::new(0),
            dynamic_threads: AtomicU32::new(0),
            dynamic_started: AtomicU32::new(0),
            threads: Mutex::new("dynamic threads", LockScope::Lane, Vec::new()),
            lower: OnceLock::new(),
            upper: OnceLock::new(),
            functions: Box::new(OverloadFunctions::<S, H>::new()),
        })
    }

    pub(crate) fn set_neighbours(&self, lower: Vec<Weak<Lane<S>>>, upper: Vec<Weak<Lane<S>>>) {
        let _ = (self.lower.set(lower), self.upper.set(upper));
    }

    fn functions<H: RequestHandler>(&self) -> Option<&OverloadFunctions<S, H>> {
        self.functions.downcast_ref()
    }

    fn is_lender(&self) -> bool {
        self.upper.get().is_some_and(|upper| !upper.is_empty())
    }

    fn can_borrow(&self) -> bool {
        let idle = |lane: &Weak<Lane<S>>| {
            lane.upgrade().is_some_and(|lane| lane.overload().is_some_and(|overload| overload.idle_threads.has_idle()))
        };
        self.lower.get().is_some_and(|lower| lower.iter().any(idle))
    }

    /// Announces that the calling thread has marked itself idle. Notifies the overload threads of
    /// the lanes that may borrow the thread and have no idle thread. If `own` is true, also
    /// notifies the overload thread of this lane.
    fn notify_idle(&self, own: bool) {
        if own {
            self.wake.notify();
        }
        for upper in self.upper.get().into_iter().flatten().filter_map(Weak::upgrade) {
            if let Some(overload) = upper.overload()
                && !overload.idle_threads.has_idle()
            {
                overload.wake.notify();
            }
        }
    }
}

impl<S: HasOverloadThread> Architecture<S> for OverloadThread<S> {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()> {
        let static_threads = threads.lane.role.as_ref().map_or(1, |role| role.static_threads);
        let Some(functions) = self.functions::<H>() else { return Ok(()) };
        threads.spawn('k', 1, functions.run_overload)?;
        threads.spawn('l', usize::try_from(static_threads).unwrap_or(usize::MAX), functions.run_pool_thread)
    }

    #[inline]
    fn place_message<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        detached: &mut Option<Message>,
        more: bool,
    ) -> MessagePlacement {
        if worker.is_overload_thread {
            return self.place_overload(lane, handler, worker, connection, detached, more);
        }
        if more {
            lane.list_rest(connection);
        }
        MessagePlacement::Here { reads_on: false }
    }

    /// Wakes the overload thread and the threads that wait for a loan. Returns the dynamic threads.
    fn stop(&self) -> Vec<JoinHandle<()>> {
        self.wake.notify();
        for lendable in &*self.lendable_threads.lock() {
            lendable.wake.notify();
        }
        std::mem::take(&mut *self.threads.lock())
    }
}

impl<S: HasOverloadThread> OverloadThread<S> {
    #[cold]
    fn place_overload<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        detached: &mut Option<Message>,
        more: bool,
    ) -> MessagePlacement {
        if more {
            lane.list_connection(connection, ReadCause::Buffered);
        }
        let message = detached.take().unwrap_or_else(|| worker.detach());
        if let Some(functions) = self.functions::<H>() {
            (functions.admit_request)(lane, handler, worker, connection, message);
        }
        MessagePlacement::Elsewhere { reads_on: false }
    }
}

impl<S: HasOverloadThread> Lane<S> {
    pub(crate) fn overload(&self) -> Option<&OverloadThread<S>> {
        self.strategy.overload_thread()
    }

    /// Serves the lane until it stops or a wait fails. A dynamic thread ends after
    /// `idle_thread_timeout` without work.
    fn run_pool_thread<H: RequestHandler>(self: &Arc<Self>, handler: &Arc<H>, dynamic: bool) {
        let (Some(overload), Some(role)) = (self.overload(), &self.role) else { return };
        let lendable = match EventFd::new() {
            Ok(wake) => Arc::new(LendableThread {
                slot: IdleSlot::new(),
                tid: thread::current_tid(),
                wake,
                loan: PiMutex::new("loan", LockScope::Lane, None),
            }),
            Err(error) => {
                // The thread counts as started, so that the overload thread does not wait for it.
                overload.started_static.fetch_add(u32::from(!dynamic), Ordering::AcqRel);
                overload.wake.notify();
                return self.report_thread_failure(handler.context(), &error);
            }
        };
        overload.lendable_threads.lock().push(Arc::clone(&lendable));
        crate::server::nested_wait::enter(self, handler);
        // The thread restores the cached scheduling after a loan, so the cache must be filled
        // first.
        let _ = thread_context::current_scheduling();
        if !dynamic {
            overload.started_static.fetch_add(1, Ordering::AcqRel);
        }
        let mut worker = Worker::new();
        while !self.is_stopping() {
            match self.handle_next(handler, &mut worker, overload, role, &lendable, dynamic) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.report_thread_failure(handler.context(), &error);
                    break;
                }
            }
        }
        crate::nested_wait::uninstall();
        overload.lendable_threads.lock().retain(|other| !Arc::ptr_eq(other, &lendable));
        self.wake();
    }

    /// Handles the next event, task or loan. Returns false if a dynamic thread has found no work
    /// and must end.
    fn handle_next<H: RequestHandler>(
        self: &Arc<Self>,
        handler: &Arc<H>,
        worker: &mut Worker,
        overload: &OverloadThread<S>,
        role: &LaneRole,
        lendable: &LendableThread<S>,
        dynamic: bool,
    ) -> io::Result<bool> {
        if self.has_ready() {
            self.step(handler, worker, Some(Duration::ZERO))?;
            return Ok(true);
        }
        self.send_begun_first(handler.context());
        overload.notify_idle(overload.idle_threads.mark_idle(&lendable.slot) == MarkIdleResult::Monitored);
        let mut until = dynamic.then(|| Monotonic::now() + role.idle_thread_timeout);
        if self.has_ready() || self.is_stopping() {
            until = Some(Monotonic::now());
        }
        let is_lender = overload.is_lender();
        let waited = if is_lender {
            // The thread takes no event while other lanes can borrow it, so it only waits until an
            // event can be taken.
            poll::wait_readable_either(lendable.wake.as_fd(), self.readiness(worker), until).map(|(called, _)| {
                if called {
                    lendable.wake.take_notifications();
                }
                None
            })
        } else {
            self.next_event(worker, until.map(Monotonic::remaining))
        };
        match overload.idle_threads.mark_busy(&lendable.slot) {
            MarkBusyResult::Busy => {}
            MarkBusyResult::LastIdle => overload.wake.notify(),
            MarkBusyResult::ClaimedByOther => return self.run_loan(handler, worker, lendable).map(|()| true),
        }
        let event = waited?;
        let event = if is_lender { self.next_event(worker, Some(Duration::ZERO))? } else { event };
        match event {
            Some(event) => self.handle_or_defer(handler, worker, event),
            None if self.has_ready() => {}
            None => return Ok(!dynamic || until.is_none_or(|until| !until.is_past())),
        }
        Ok(true)
    }

    fn run_loan<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        lendable: &LendableThread<S>,
    ) -> io::Result<()> {
        let (lane, work) = loop {
            if let Some(loan) = lendable.loan.lock().take() {
                break loan;
            }
            if self.is_stopping() {
                lendable.slot.release();
                return Ok(());
            }
            // The lane that has claimed the thread sets the loan soon after the claim, so this
            // thread waits for the loan.
            let _ = poll::wait_readable(lendable.wake.as_fd(), None);
            lendable.wake.take_notifications();
        };
        {
            let _visit = thread_context::LaneVisit::begin(lane.identity(handler.context().stamp()), lane.scheduling());
            if let Some(work) = work {
                lane.run_task(handler, worker, work);
            }
        }
        lendable.slot.release();
        Ok(())
    }

    fn run_overload<H: RequestHandler>(self: &Arc<Self>, handler: &Arc<H>) {
        let (Some(overload), Some(role)) = (self.overload(), &self.role) else { return };
        let mut worker = Worker::for_overload_thread();
        while !self.is_stopping() {
            overload.idle_threads.set_monitored(true);
            let is_starting = overload.started_static.load(Ordering::Acquire) < role.static_threads;
            if is_starting || overload.idle_threads.has_idle() {
                overload.idle_threads.set_monitored(is_starting);
                if self.has_ready() {
                    self.wake_idle_thread();
                }
                if poll::wait_readable(overload.wake.as_fd(), None).is_err() {
                    return;
                }
                overload.wake.take_notifications();
                continue;
            }
            if let Err(error) = self.handle_overload(handler, &mut worker, overload, role) {
                return self.report_thread_failure(handler.context(), &error);
            }
        }
    }

    fn handle_overload<H: RequestHandler>(
        self: &Arc<Self>,
        handler: &Arc<H>,
        worker: &mut Worker,
        overload: &OverloadThread<S>,
        role: &LaneRole,
    ) -> io::Result<()> {
        self.send_begun_first(handler.context());
        let now = self.lane_load(overload);
        if self.ready.has_request() {
            match role.overload_rules.decide(now, 0) {
                OverloadAction::Spawn => return self.spawn_dynamic(handler, overload),
                OverloadAction::Borrow => {
                    if !self.borrow(overload) {
                        // The overload thread sleeps, because a thread of the lower lane may need
                        // the core to mark itself idle.
                        poll::wait_readable(overload.wake.as_fd(), Some(clock::now() + LENDER_WAIT))?;
                        overload.wake.take_notifications();
                    }
                    return Ok(());
                }
                OverloadAction::Buffer | OverloadAction::Refuse => {}
            }
        }
        if !role.overload_rules.can_accept_request(now) {
            poll::wait_readable(overload.wake.as_fd(), None)?;
            overload.wake.take_notifications();
            return Ok(());
        }
        if let Some(reading) = self.ready.take_read() {
            self.run_task(handler, worker, reading);
            return Ok(());
        }
        let (wake, work) = poll::wait_readable_either(overload.wake.as_fd(), self.readiness(worker), None)?;
        if wake {
            overload.wake.take_notifications();
        }
        if work
            && !overload.idle_threads.has_idle()
            && let Some(event) = self.next_event(worker, Some(Duration::ZERO))?
        {
            self.handle_or_defer(handler, worker, event);
        }
        Ok(())
    }

    fn lane_load(&self, overload: &OverloadThread<S>) -> LaneLoad {
        let (waiting, buffered_bytes) = self.ready.buffered();
        LaneLoad {
            dynamic_threads: overload.dynamic_threads.load(Ordering::Acquire),
            can_borrow: overload.can_borrow(),
            buffered_requests: waiting,
            buffered_bytes,
        }
    }

    fn admit_request<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        message: Message,
    ) {
        let (Some(overload), Some(role)) = (self.overload(), &self.role) else { return };
        let octets = message.parts().1.len() as u64;
        if role.overload_rules.decide(self.lane_load(overload), octets) == OverloadAction::Refuse {
            return worker.reject_overloaded(handler, connection, &message);
        }
        let priority = if role.is_lane {
            0
        } else {
            handler.effective_priority(connection, &message).unwrap_or(role.priority.get())
        };
        self.ready.buffer(priority, connection.add_waiting_request(Duration::ZERO), message, octets);
    }

    fn spawn_dynamic<H: RequestHandler>(
        self: &Arc<Self>,
        handler: &Arc<H>,
        overload: &OverloadThread<S>,
    ) -> io::Result<()> {
        let Some(work) = self.ready.take_request() else { return Ok(()) };
        let first = Arc::new(PiMutex::new("first request", LockScope::Lane, Some(work)));
        let given = Arc::clone(&first);
        let run = move |lane: &Arc<Lane<S>>, handler: &Arc<H>| {
            if let Some(work) = { given.lock().take() } {
                lane.run_task(handler, &mut Worker::new(), work);
            }
            lane.run_pool_thread(handler, true);
            if let Some(overload) = lane.overload() {
                overload.dynamic_threads.fetch_sub(1, Ordering::AcqRel);
                overload.wake.notify();
            }
        };
        let mut threads = overload.threads.lock();
        if self.is_stopping() {
            // `stop` has taken the threads to join, so no thread may be added.
            return Ok(());
        }
        overload.dynamic_threads.fetch_add(1, Ordering::AcqRel);
        let name = format!("{}/d{}", self.config.name, overload.dynamic_started.fetch_add(1, Ordering::Relaxed));
        match threads::spawn(self, handler, name, run) {
            Ok(thread) => {
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => {
                drop(threads);
                overload.dynamic_threads.fetch_sub(1, Ordering::AcqRel);
                handler
                    .context()
                    .events()
                    .report(&Event::ThreadFailed { message: format!("{}: {error}", self.config.name) });
                // The thread could not be started, so the overload thread waits until a thread is
                // idle.
                let work = first.lock().take();
                self.ready.push_front(work);
                poll::wait_readable(overload.wake.as_fd(), None)?;
                overload.wake.take_notifications();
            }
        }
        Ok(())
    }

    fn borrow(self: &Arc<Self>, overload: &OverloadThread<S>) -> bool {
        let mut lower = overload.lower.get().into_iter().flatten().filter_map(Weak::upgrade);
        lower.any(|lower| self.borrow_from(&lower))
    }

    /// Borrows an idle thread of `lower` for a request of this lane. Returns false if `lower` has
    /// no idle thread, but true, without borrowing, if the ready list of this lane has no request.
    fn borrow_from(self: &Arc<Self>, lower: &Lane<S>) -> bool {
        let Some(lender) = lower.overload() else { return false };
        let lendable_threads = lender.lendable_threads.lock();
        if !self.ready.has_request() {
            return true;
        }
        let claimed = lendable_threads
            .iter()
            .find_map(|lendable| Some((Arc::clone(lendable), lender.idle_threads.try_claim(&lendable.slot)?)));
        drop(lendable_threads);
        let Some((lendable, last)) = claimed else { return false };
        // `None` means that a thread of this lane has taken the request.
        let work = self.ready.take_request();
        if let Some(native) = self.scheduling() {
            // The priority is raised before the wake-up, because at its own priority the thread
            // might have to wait for a core.
            let _ = thread::set_scheduling(Some(lendable.tid), native);
        }
        *lendable.loan.lock() = Some((Arc::clone(self), work));
        lendable.wake.notify();
        if last {
            lender.wake.notify();
        }
        true
    }

    fn report_thread_failure(&self, context: &OrbContext, error: &io::Error) {
        context.events().report(&Event::ThreadFailed { message: format!("{}: {error}", self.config.name) });
    }
}
