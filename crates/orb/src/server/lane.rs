//! A lane: listeners, connections, and the threads that serve them.
//!
//! Invariant: to read and answer the requests of one connection, a thread never waits for the peer
//! of another connection.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::{ConnectionProperties, Endpoint, Listener, Peer, Stream, WaitLimit};
use corelane_sched::Priority;
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::pending_lock::PendingLockGuard;
use corelane_sys::slab::{GenerationalSlab, SlabGuard};
use corelane_sys::thread::{JoinHandle, Scheduling};
use corelane_sys::wake_flag::WakeFlag;

use super::acceptor::Delegation;
use super::admission;
use super::architecture::{Architecture, MessagePlacement};
use super::begun_replies::BegunReplies;
use super::config::PoolConfig;
use super::connection::{Connection, ConnectionGroup, LateRequest, ReadCause, ReadState, WaitingRequest};
use super::connection_lane::ConnectionLane;
use super::core_groups::{CoreGroups, WAKE};
use super::draining::DrainingConnections;
use super::handler::RequestHandler;
use super::idle_eviction::IdleTracker;
use super::lane_role::LaneRole;
use super::memory_budget::MemoryBudget;
#[cfg(feature = "replies-first")]
use super::memory_wait_list::MemoryWaits;
use super::message::Message;
use super::parked_request::ResumeOn;
pub(crate) use super::ready_list::LaneTask;
use super::ready_list::ReadyList;
use super::recent_rings::RecentRings;
use super::spinning::may_spin;
use super::worker::{ReadResult, Worker};
use crate::clock;
use crate::event::Event as OrbEvent;
use crate::nested_wait::AwaitedReply;
use crate::orb_context::OrbContext;
use crate::rt::protocol::Protocol;
use crate::thread_context::LaneIdentity;

pub(super) const LISTENER: u64 = 1 << 63;
pub(super) const MAX_ACCEPTS: usize = 64;
const MAX_BACKLOG: usize = 4096;

/// Returns the events for which the lane watches a connection. Room to write is one of them only
/// while the connection is congested, because a Unix socket reports room each time the peer reads.
pub(super) fn interest(congested: bool) -> Interest {
    let always = Interest::READABLE | Interest::HANG_UP | Interest::EDGE;
    if congested { always | Interest::WRITABLE } else { always }
}

/// A lane of a thread pool; a pool without lanes has one `Lane`. `S` is the type of the dispatch
/// architecture.
#[derive(Debug)]
pub(crate) struct Lane<S> {
    pub(crate) config: PoolConfig,
    /// The lane's role in a Real-time CORBA thread pool; `None` in a pool that the ORB's builder
    /// configured.
    pub(crate) role: Option<LaneRole>,
    pub(super) weak_self: Weak<Lane<S>>,
    pub(super) epoll: Epoll,
    core_groups: Option<CoreGroups>,
    pub(super) wake: EventFd,
    pub(super) listeners: PiMutex<Vec<Box<dyn Listener>>>,
    endpoints: Vec<Endpoint>,
    protocols: PiMutex<Vec<Protocol>>,
    pub(super) connections: GenerationalSlab<Arc<Connection>>,
    pub(super) ready: ReadyList,
    /// Set while a woken thread has not noticed its wake-up; further tasks then need no wake-up.
    pub(super) wake_pending: WakeFlag,
    pub(crate) strategy: S,
    pub(super) draining: DrainingConnections,
    pub(super) memory_budget: Arc<MemoryBudget>,
    pub(super) begun: BegunReplies,
    #[cfg(feature = "replies-first")]
    pub(super) memory_waits: MemoryWaits,
    pub(super) closing_time: Duration,
    /// True after accepting has stopped because of an error, until the next call of `accept_again`:
    /// after the end of a connection or at the next maintenance, for example.
    pub(super) accept_starved: AtomicBool,
    pub(super) idle_tracker: IdleTracker,
    /// Number of connections whose retirement has begun and is not finished.
    pub(super) retiring: AtomicUsize,
    pub(super) closing: AtomicBool,
    pub(super) may_spin: bool,
    pub(super) recent_rings: RecentRings,
    stop: AtomicBool,
    lowest: OnceLock<Weak<Lane<S>>>,
    pub(super) delegation: Delegation<S>,
}

#[derive(Debug)]
#[must_use = "the connection may end when the guard is dropped"]
pub(crate) enum ConnectionGuard<'l> {
    InService(#[expect(dead_code, reason = "the field is held until its drop")] SlabGuard<'l, Arc<Connection>>),
    Retired(#[expect(dead_code, reason = "the field is held until its drop")] LateRequest),
}

#[derive(Debug)]
pub(crate) struct StartedRequest<'l> {
    pub(crate) guard: ConnectionGuard<'l>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) message: Message,
    pub(crate) waited: Duration,
}

impl<S: Architecture<S>> Lane<S> {
    pub(super) fn with_strategy(
        config: PoolConfig,
        listeners: Vec<Box<dyn Listener>>,
        closing_time: Duration,
        role: Option<LaneRole>,
        strategy: S,
    ) -> io::Result<Arc<Self>> {
        let epoll = Epoll::new()?;
        let wake = EventFd::new()?;
        let core_groups = match strategy.threads_in_core_groups() {
            threads if cfg!(feature = "spin") && threads > 1 => CoreGroups::new(threads, &epoll, wake.as_fd()),
            _ => None,
        };
        if core_groups.is_none() {
            epoll.add(wake.as_fd(), WAKE, Interest::READABLE | Interest::EDGE)?;
        }
        for (index, listener) in (0..).zip(&listeners) {
            epoll.add(listener.readiness_descriptor(), LISTENER | index, Interest::READABLE | Interest::EDGE)?;
        }
        // A connection may occupy its slot for a moment after it has stopped counting as open, so
        // there are twice as many slots as permitted connections.
        let slots = u32::try_from(config.connection_limits.max_connections.saturating_mul(2)).unwrap_or(u32::MAX >> 1);
        let memory_budget = MemoryBudget::new(config.connection_limits.max_buffered_bytes);
        Ok(Arc::new_cyclic(|weak_self: &Weak<Lane<S>>| {
            let lane = weak_self.clone();
            let on_last = move |_, _, connection: Arc<Connection>| {
                if let Some(lane) = lane.upgrade() {
                    lane.finish_retire(connection);
                    lane.retiring.fetch_sub(1, Ordering::AcqRel);
                    lane.accept_again();
                }
            };
            Lane {
                may_spin: may_spin(&config, role.as_ref()) && strategy.may_spin(),
                connections: GenerationalSlab::with_callback("connections", LockScope::Lane, slots, on_last),
                recent_rings: RecentRings::default(),
                config,
                role,
                weak_self: weak_self.clone(),
                epoll,
                core_groups,
                wake,
                endpoints: listeners.iter().map(|listener| listener.local_endpoint().clone()).collect(),
                listeners: PiMutex::new("listeners", LockScope::Lane, listeners),
                protocols: PiMutex::new("protocols of a lane", LockScope::Lane, Vec::new()),
                ready: ReadyList::new(),
                wake_pending: WakeFlag::new(),
                strategy,
                draining: DrainingConnections::new(),
                memory_budget,
                begun: BegunReplies::default(),
                #[cfg(feature = "replies-first")]
                memory_waits: MemoryWaits::new(),
                closing_time,
                accept_starved: AtomicBool::new(false),
                idle_tracker: IdleTracker::new(clock::now()),
                retiring: AtomicUsize::new(0),
                closing: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                lowest: OnceLock::new(),
                delegation: Delegation::new(),
            }
        }))
    }

    #[cold]
    pub(crate) fn of(connection: &Connection) -> Option<Arc<Self>> {
        let lane: Arc<dyn Any + Send + Sync> = connection.lane.upgrade()?;
        lane.downcast().ok()
    }

    /// Returns the endpoints at which the lane listens, without those of single tasks. A configured
    /// port 0 is replaced by the port that the kernel chose.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        let of_tasks = self.role.as_ref().map_or(0, |role| role.task_listeners);
        self.endpoints.iter().take(self.endpoints.len().saturating_sub(of_tasks))
    }

    /// Claims the properties for a POA, and returns those that no POA has claimed before. A claim
    /// holds for the life of the lane unless it is withdrawn, because all POAs of a lane share its
    /// sockets.
    ///
    /// Fails if another POA has claimed different properties of one of the protocols.
    #[cold]
    pub(crate) fn claim_protocols(&self, wanted: &[Protocol]) -> io::Result<Vec<Protocol>> {
        let mut known = self.protocols.lock();
        let same_kind = |one: &Protocol, other: &Protocol| std::mem::discriminant(one) == std::mem::discriminant(other);
        let mut new: Vec<Protocol> = Vec::new();
        for protocol in wanted {
            match known.iter().chain(&new).find(|known| same_kind(known, protocol)) {
                Some(known) if known == protocol => {}
                Some(_) => return Err(io::ErrorKind::AlreadyExists.into()),
                None => new.push(*protocol),
            }
        }
        known.extend(&new);
        Ok(new)
    }

    /// Withdraws claims, so that later connections have the default properties of the transport.
    #[cold]
    pub(crate) fn unclaim_protocols(&self, claimed: &[Protocol]) {
        self.protocols.lock().retain(|known| !claimed.contains(known));
        for protocol in claimed {
            for listener in self.listeners.lock().iter().filter(|listener| protocol.serves(listener.local_endpoint())) {
                let _ = listener.set_properties(&ConnectionProperties::default());
            }
        }
    }

    #[cold]
    pub(crate) fn apply_protocols(&self, claimed: &[Protocol]) -> io::Result<()> {
        for protocol in claimed {
            for listener in self.listeners.lock().iter().filter(|listener| protocol.serves(listener.local_endpoint())) {
                listener.set_properties(&protocol.socket_settings().properties)?;
            }
        }
        Ok(())
    }

    /// Returns the descriptor that is readable while the lane has an event for the thread.
    pub(crate) fn readiness(&self, worker: &Worker) -> BorrowedFd<'_> {
        match self.core_groups() {
            Some(groups) => groups.readiness(&worker.group),
            None => self.epoll.as_fd(),
        }
    }

    #[inline]
    pub(super) fn core_groups(&self) -> Option<&CoreGroups> {
        if cfg!(feature = "spin") { self.core_groups.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.ready.has_any()
    }

    #[cfg(feature = "core-pool")]
    pub(super) fn has_ready_or_begun(&self) -> bool {
        self.ready.has_any_or_begun()
    }

    /// Handles an event or a task. If there is none, waits for an event for at most `timeout`;
    /// `None` means no limit. Without a limit, may first poll connections, and then runs the
    /// messages that arrive on them.
    #[inline]
    pub(crate) fn step<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let mut timeout = timeout;
        if self.ready.has_any_or_begun() {
            #[cfg(feature = "replies-first")]
            if self.ready.has_begun() {
                return self.step_beside_begun(handler, worker, timeout);
            }
            // Connections on the ready list with endless input must not delay the events of other
            // connections, so tasks and events take turns.
            if !worker.ran_listed_task
                && let Some(work) = self.next_ready()
            {
                worker.ran_listed_task = true;
                self.run_task(handler, worker, work);
                return Ok(());
            }
            timeout = Some(Duration::ZERO);
        }
        worker.ran_listed_task = false;
        let event = if cfg!(feature = "spin") && self.may_spin && timeout.is_none() {
            self.wait_spinning(handler, worker)?
        } else {
            self.next_event(worker, timeout)?
        };
        if let Some(event) = event {
            self.handle_event(handler, worker, event);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn send_begun_first(&self, _context: &OrbContext) {
        #[cfg(feature = "replies-first")]
        if self.ready.has_begun() {
            self.send_begun(_context);
        }
    }

    #[inline]
    pub(super) fn handle_or_defer<H: RequestHandler>(&self, handler: &Arc<H>, worker: &mut Worker, event: EpollEvent) {
        #[cfg(feature = "replies-first")]
        if self.lacks_memory() {
            return self.handle_deferring(handler, worker, event);
        }
        self.handle_event(handler, worker, event);
    }

    pub(super) fn step_until_arrival<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        loop {
            // The ready list is checked first, because an earlier step may have cleared the wake-up
            // for a task and then handled an event.
            let (come, work) = if self.has_ready() {
                (awaited.has_arrived()?, true)
            } else {
                awaited.wait_or_work(self.readiness(worker))?
            };
            if come {
                return Ok(());
            }
            if work {
                self.step(handler, worker, Some(Duration::ZERO))?;
            }
        }
    }

    #[inline]
    pub(super) fn next_event(&self, worker: &mut Worker, timeout: Option<Duration>) -> io::Result<Option<EpollEvent>> {
        if let Some(groups) = self.core_groups() {
            return self.next_event_in_group(groups, worker, timeout);
        }
        let mut events = [EpollEvent::EMPTY; 1];
        Ok((self.epoll.wait(&mut events, timeout)? > 0).then(|| events[0]))
    }

    #[inline]
    pub(super) fn handle_event<H: RequestHandler>(&self, handler: &Arc<H>, worker: &mut Worker, event: EpollEvent) {
        match event.token() {
            // The wake-up descriptor is edge-triggered, so its counter need not be read.
            WAKE => self.wake_pending.clear(),
            token if token & LISTENER != 0 => self.accept_reported(handler, token),
            token => {
                let handle = handle_of(token);
                let over = event.is_hung_up() || event.is_error();
                if over && let Some(connection) = self.connections.get(handle.0, handle.1) {
                    connection.record_hang_up();
                }
                if event.is_writable() || over {
                    self.flush(handler.context(), handle);
                }
                if event.is_readable() || over {
                    self.read(handler, worker, handle, ReadCause::Readiness);
                    self.join_groups(worker);
                }
            }
        }
    }

    #[cold]
    pub(super) fn run_task<H: RequestHandler>(&self, handler: &Arc<H>, worker: &mut Worker, work: LaneTask) {
        match work {
            LaneTask::Read(handle) => {
                // A retired connection is not in the slab. `read` continues its drain.
                let listing = self.connections.get(handle.0, handle.1).and_then(|connection| connection.take_listing());
                self.read(handler, worker, handle, listing.unwrap_or(ReadCause::Readiness));
            }
            LaneTask::PollStream(connection) => {
                connection.clear_report();
                self.flush(handler.context(), connection.handle);
                self.read(handler, worker, connection.handle, ReadCause::Readiness);
            }
            LaneTask::ShedMemory => {
                self.shed_memory(handler.context());
                #[cfg(feature = "replies-first")]
                self.resume_deferred(handler.context());
            }
            LaneTask::Dispatch(waiting, message) | LaneTask::DispatchBuffered { waiting, message, .. } => {
                // The request may have arrived at another lane, which runs it on this thread.
                if let Some(lane) = Self::of(&waiting) {
                    lane.run_waiting(handler, worker, waiting, message);
                }
            }
            LaneTask::RunCollocated(held) => (held.resume)(ResumeOn::CurrentThread),
        }
    }

    #[inline]
    pub(crate) fn guard_connection(&self, connection: &Connection) -> Option<SlabGuard<'_, Arc<Connection>>> {
        self.connections.get(connection.handle.0, connection.handle.1)
    }

    pub(crate) fn run_waiting<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        waiting: WaitingRequest,
        message: Message,
    ) {
        #[cfg(feature = "replies-first")]
        let (waiting, message) = if self.ready.has_begun() {
            let Some(request) = self.defer_waiting(handler, waiting, message) else { return };
            request
        } else {
            (waiting, message)
        };
        let Some(started) = self.begin_waiting_request(waiting, message) else { return };
        let StartedRequest { guard, connection, message, waited } = started;
        let goes_on = worker.dispatch(handler, &connection, message, WaitLimit::Now, waited);
        drop(guard);
        if !goes_on {
            self.retire_connection(handler.context(), connection.handle);
        }
    }

    /// Begins a request that has waited. Returns `None` if the request is deferred, or if it must
    /// not run because CloseConnection tells the peer that it did not run.
    pub(crate) fn begin_waiting_request(
        &self,
        waiting: WaitingRequest,
        message: Message,
    ) -> Option<StartedRequest<'_>> {
        // `begin_late` comes before `stop_waiting`, so that the connection cannot end in between.
        let served = self.guard_connection(&waiting);
        let (waiting, message) = waiting.defer(message)?;
        let lives = served.is_some();
        let guard = served.map_or_else(|| ConnectionGuard::Retired(waiting.begin_late()), ConnectionGuard::InService);
        let (connection, waited) = waiting.stop_waiting();
        // Sequential consistency: the closing thread sees the late request, or this thread sees
        // that the lane closes.
        let closing = self.closing.load(Ordering::SeqCst) || connection.is_closed_idle();
        admission::may_still_run(lives, closing).then_some(StartedRequest { guard, connection, message, waited })
    }

    /// Returns what threads of the lane record in their context. `stamp` identifies the ORB.
    pub(super) fn identity(&self, stamp: u64) -> LaneIdentity {
        match &self.role {
            Some(role) => LaneIdentity {
                stamp,
                pool: role.pool,
                lane: role.index,
                priority: role.priority.get(),
                has_fixed_priority: role.is_lane,
                #[cfg(feature = "core-pool")]
                serves_task: false,
            },
            None => LaneIdentity::of_default_pool(stamp),
        }
    }

    pub(crate) fn priority(&self) -> Priority {
        self.role.as_ref().map_or(Priority::MIN, |role| role.priority)
    }

    pub(crate) fn ceiling(&self) -> Option<Priority> {
        self.role.as_ref().map_or_else(|| self.config.max_request_priority.and_then(Priority::new), |role| role.ceiling)
    }

    #[cold]
    pub(crate) fn set_lowest(&self, lowest: &Arc<Lane<S>>) {
        let _ = self.lowest.set(Arc::downgrade(lowest));
    }

    #[cold]
    pub(super) fn lowest(&self) -> Option<Arc<Lane<S>>> {
        self.lowest.get()?.upgrade()
    }

    /// Reads and runs messages of a connection, at most `max_reads` in one turn. Continues the
    /// drain of a retired connection.
    #[inline]
    pub(super) fn read<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        handle: (u32, u32),
        cause: ReadCause,
    ) {
        let mut cause = cause;
        let mut read = 0;
        while self.read_message(handler, worker, handle, cause) {
            cause = ReadCause::Buffered;
            read += 1;
            if read == self.strategy.max_reads() {
                return self.list_handle(handle, ReadCause::Buffered);
            }
        }
    }

    #[inline]
    fn read_message<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        handle: (u32, u32),
        cause: ReadCause,
    ) -> bool {
        let Some(connection) = self.connections.get(handle.0, handle.1) else {
            self.poll_draining(handler.context(), handle);
            return false;
        };
        if cause == ReadCause::Readiness && connection.is_congested() {
            // Some transports report room to write and input by one event, so the queue is flushed
            // here as well.
            self.flush(handler.context(), handle);
        }
        let mut detached = None;
        let Some(more) = self.receive_message(handler.context(), worker, &connection, cause, &mut detached) else {
            return false;
        };
        self.run_message(handler, worker, &connection, detached, more)
    }

    /// Runs a message, or passes it to the thread that the architecture chooses. The message is in
    /// `detached` or, if this is `None`, in the buffer of `worker`. `more` is true if the next
    /// message may have arrived. Returns true if the calling thread must read the next message.
    #[inline(always)]
    pub(super) fn run_message<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        mut detached: Option<Message>,
        more: bool,
    ) -> bool {
        connection.record_message(self.idle_tracker.now());
        let reads_on = match self.strategy.place_message(self, handler, worker, connection, &mut detached, more) {
            MessagePlacement::Here { reads_on } => reads_on,
            MessagePlacement::Elsewhere { reads_on } => return reads_on,
        };
        let goes_on = match detached {
            None => worker.dispatch_in_place(handler, connection, WaitLimit::Now),
            Some(message) => worker.dispatch(handler, connection, message, WaitLimit::Now, Duration::ZERO),
        };
        if !goes_on {
            self.retire_connection(handler.context(), connection.handle);
            return false;
        }
        reads_on
    }

    /// Reads one message into `detached` or the buffer of `worker`. Returns true if more input may
    /// have arrived. Returns `None` if no message is complete, another thread reads, reading is
    /// paused, or the input has ended or is faulty.
    #[inline(always)]
    pub(super) fn receive_message(
        &self,
        context: &OrbContext,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        cause: ReadCause,
        detached: &mut Option<Message>,
    ) -> Option<bool> {
        let mut turn = connection.read_state.try_enter()?;
        if cause == ReadCause::Readiness {
            turn = clear_drained(turn);
        }
        loop {
            if connection.is_read_paused() {
                // Reading is paused, but the pause may have ended before the read lock was
                // released, so the pause is checked again.
                match turn.leave() {
                    Ok(()) if connection.is_read_paused() => return None,
                    Ok(()) => turn = connection.read_state.try_enter()?,
                    Err(noted) => turn = clear_drained(noted),
                }
                continue;
            }
            let more = match turn.with(|reading| worker.read_now(reading, connection, context)) {
                ReadResult::InPlace { more } => more,
                ReadResult::Message { message, more } => {
                    *detached = Some(message);
                    more
                }
                ReadResult::Incomplete | ReadResult::AlreadyEnded => match turn.leave() {
                    Ok(()) => return None,
                    Err(noted) => {
                        turn = clear_drained(noted);
                        continue;
                    }
                },
                ReadResult::EndOfStream => {
                    drop(turn);
                    self.handle_half_close(context, connection);
                    return None;
                }
                ReadResult::Fault(fault, last_message) => {
                    drop(turn);
                    self.handle_protocol_fault(context, connection, fault, &last_message);
                    return None;
                }
            };
            #[cfg(feature = "core-pool")]
            if self.strategy.keeps_read_lock(context, worker, detached.as_ref()) {
                turn.keep_locked();
                return Some(more);
            }
            return match turn.leave() {
                Ok(()) => Some(more),
                Err(noted) => {
                    drop(clear_drained(noted));
                    Some(true)
                }
            };
        }
    }

    #[cold]
    pub(super) fn flush(&self, context: &OrbContext, handle: (u32, u32)) {
        let Some(connection) = self.connections.get(handle.0, handle.1) else {
            self.poll_draining(context, handle);
            return;
        };
        if !connection.is_congested() {
            return;
        }
        match connection.flush() {
            Ok(true) => {
                for (waiting, message) in connection.take_deferred() {
                    self.requeue(waiting, message);
                }
                self.list_connection(&connection, ReadCause::Readiness);
            }
            Ok(false) => {}
            Err(_) => self.retire_connection(context, handle),
        }
    }

    #[cold]
    pub(super) fn requeue(&self, waiting: WaitingRequest, message: Message) {
        self.strategy.requeue(self, waiting, message);
    }

    pub(super) fn set_dscp(&self, context: &OrbContext, stream: &dyn Stream) {
        if let Some(role) = &self.role
            && self.allows_dscp(stream)
        {
            context.set_code_point(stream, role.priority);
        }
    }

    #[cold]
    pub(crate) fn allows_dscp(&self, stream: &dyn Stream) -> bool {
        let is_tcp = matches!(stream.peer(), Peer::Ip(_));
        let off = |protocol: &Protocol| matches!(protocol, Protocol::Tcp(tcp) if !tcp.enable_network_priority);
        is_tcp && !self.protocols.lock().iter().any(off)
    }

    pub(crate) fn watch_connection(&self, context: &OrbContext, connection: &Arc<Connection>) {
        if connection.stream.readiness_descriptor().is_none() {
            return self.watch_without_descriptor(context, connection);
        }
        let interest = interest(connection.is_congested());
        let watched = connection.stream.readiness_descriptor().map(|fd| {
            self.epoll.add(fd, token_of(connection.handle), interest).or_else(|_| {
                // A connection with a thread of its own is in epoll already if a reply has had to
                // wait for room to write.
                self.epoll.modify(fd, token_of(connection.handle), interest)
            })
        });
        if matches!(watched, Some(Ok(()))) {
            // Epoll does not report input that a thread has read into the connection's buffer, so
            // the connection is listed.
            self.list_connection(connection, ReadCause::Readiness);
        } else {
            self.retire_connection(context, connection.handle);
        }
    }

    #[cold]
    fn watch_without_descriptor(&self, context: &OrbContext, connection: &Arc<Connection>) {
        let (lane, reported) = (self.weak_self.clone(), Arc::downgrade(connection));
        let report = move || {
            if let (Some(lane), Some(connection)) = (lane.upgrade(), reported.upgrade())
                && connection.raise_report()
            {
                lane.push(LaneTask::PollStream(connection));
            }
        };
        if !connection.stream.set_readiness_callback(Arc::new(report)) {
            self.retire_connection(context, connection.handle);
        }
    }

    /// Begins the close of the lane. A connection whose requests run ends at the earliest when they
    /// have finished.
    pub(crate) fn close<H: RequestHandler>(&self, handler: &Arc<H>) {
        // Connections in the backlogs must get CloseConnection, and not a reset by the kernel.
        for index in 0..self.endpoints.len() {
            let _ = (0..MAX_BACKLOG / MAX_ACCEPTS).take_while(|_| self.accept(handler, index)).count();
        }
        self.closing.store(true, Ordering::SeqCst);
        self.listeners.lock().clear();
        for connection in self.connections.iter() {
            let handle = connection.handle;
            drop(connection);
            self.retire_connection(handler.context(), handle);
        }
    }

    /// Stops the lane: wakes one thread, and each thread that ends wakes the next. Returns threads
    /// that the caller must join.
    pub(crate) fn stop(&self) -> Vec<JoinHandle<()>> {
        self.stop.store(true, Ordering::Release);
        let dropped = self.ready.stop();
        drop(dropped);
        let threads = self.strategy.stop();
        self.wake.notify();
        threads
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn wake(&self) {
        self.wake.notify();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn run_maintenance(&self, context: &OrbContext) {
        let now = clock::now();
        self.sweep_draining(context, now);
        self.idle_tracker.advance_clock(now);
        self.accept_again();
        for connection in self.connections.iter() {
            if self.exceeds_first_request_timeout(&connection, now) {
                let found = Arc::clone(&connection);
                drop(connection);
                self.close_idle(context, &found, false);
                continue;
            }
            let peer = || connection.stream.peer().clone();
            let event = if connection.stalled_for(now) > self.config.connection_limits.read_stall_timeout {
                OrbEvent::ReadStalled { peer: peer() }
            } else if connection.write_stalled_for(now) > self.config.connection_limits.write_timeout {
                OrbEvent::WriteTimedOut { peer: peer() }
            } else {
                #[cfg(feature = "replies-first")]
                if self.is_stalled(&connection, now) {
                    connection.memory_use().exempt_unread();
                }
                continue;
            };
            let found = Arc::clone(&connection);
            drop(connection);
            context.events().report(&event);
            found.close();
            self.close_now(context, &found);
        }
        #[cfg(feature = "replies-first")]
        self.maintain_memory_waits(context, now);
    }

    #[cold]
    fn close_now(&self, context: &OrbContext, connection: &Connection) {
        self.retire_connection(context, connection.handle);
        self.poll_draining(context, connection.handle);
    }

    /// Returns true if running requests use memory of their budget, or have used some since the
    /// last call.
    pub(crate) fn was_used(&self) -> bool {
        self.memory_budget.was_used()
    }

    pub(super) fn scheduling(&self) -> Option<Scheduling> {
        self.role.as_ref().and_then(|role| role.scheduling)
    }

    pub(crate) fn is_real_time(&self) -> bool {
        self.scheduling().is_some()
    }

    #[cold]
    fn shed_memory(&self, context: &OrbContext) {
        self.memory_budget.begin_shedding();
        #[cfg(feature = "replies-first")]
        let now = clock::now();
        while self.memory_budget.is_exceeded() {
            let served = self.connections.iter().map(|connection| Arc::clone(&connection));
            let rank = |connection: &Arc<Connection>| {
                let held = connection.memory_use().held_bytes();
                #[cfg(feature = "replies-first")]
                let held = (cfg!(feature = "reply-memory-waits") && held > 0 && self.is_stalled(connection, now), held);
                held
            };
            let largest = served.chain(self.draining.snapshot()).max_by_key(rank);
            let Some(connection) = largest.filter(|connection| connection.memory_use().held_bytes() > 0) else {
                return;
            };
            // The connection may end later. Its memory is written off now, so that this loop closes
            // no further connection for the same memory.
            let Some(octets) = connection.memory_use().write_off() else { continue };
            context
                .events()
                .report(&OrbEvent::MemoryBudgetExceeded { peer: connection.stream.peer().clone(), bytes: octets });
            connection.close();
            self.close_now(context, &connection);
        }
    }
}

impl<S: Architecture<S>> ConnectionLane for Lane<S> {
    #[cold]
    fn list_for_reading(&self, handle: (u32, u32)) {
        self.list_handle(handle, ReadCause::Readiness);
    }

    #[cold]
    fn list_shedding(&self) {
        self.push(LaneTask::ShedMemory);
    }

    #[cold]
    fn watch_writability(
        &self,
        readiness: BorrowedFd<'_>,
        handle: (u32, u32),
        group: &ConnectionGroup,
        congested: bool,
    ) {
        let (token, interest) = (token_of(handle), interest(congested));
        self.unwatch_in_groups(group, readiness);
        // A connection with a thread of its own is not in epoll yet, so it is added.
        if self.epoll.modify(readiness, token, interest).is_err() {
            let _ = self.epoll.add(readiness, token, interest);
        }
        if cfg!(feature = "replies-first") {
            self.begun.watch(readiness, token, congested);
        }
    }

    #[cold]
    fn count_begun(&self, begins: bool) {
        self.ready.count_begun(begins);
        #[cfg(feature = "replies-first")]
        if !begins && !self.ready.has_begun() && !self.memory_waits.is_empty() {
            self.push(LaneTask::ShedMemory);
        }
    }
}

/// Notes that the input is not drained, because new input was reported.
fn clear_drained(mut turn: PendingLockGuard<'_, ReadState>) -> PendingLockGuard<'_, ReadState> {
    turn.with(|reading| reading.is_drained = false);
    turn
}

pub(super) fn token_of(handle: (u32, u32)) -> u64 {
    (u64::from(handle.0) << 32) | u64::from(handle.1)
}

#[inline]
pub(super) fn handle_of(token: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = token.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}
