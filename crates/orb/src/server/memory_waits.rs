//! Requests that wait while unread replies fill much of a lane's memory.
//!
//! While unread replies use more than half of the memory, requests of up to 4 KiB for operations
//! with large replies wait, and their connections are not read. The lane remembers the operations
//! whose large replies a transport did not accept as a whole (`large_replies.rs`).
//!
//! A connection counts with at most an eighth of the lane's memory, and not at all after its peer
//! has read nothing for a tenth of the write time-out.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::EpollEvent;
use corelane_wire::giop::Header;

use super::architecture::Architecture;
use super::connection::{Connection, ReadCause, WaitingRequest};
use super::handler::RequestHandler;
use super::lane::{LISTENER, Lane, LaneTask, handle_of};
use super::message::Message;
use super::worker::Worker;
use crate::clock;
use crate::orb_context::OrbContext;

/// Maximum size in bytes of a request that waits. The waiting requests count in no budget.
const MAX_DEFERRED_BYTES: usize = 4096;
/// A peer that has read nothing for the write time-out divided by this number delays no request.
const STALLED_PART: u32 = 10;

impl<S: Architecture<S>> Lane<S> {
    #[cold]
    #[inline(never)]
    pub(super) fn send_begun(&self, context: &OrbContext) {
        let mut flush = |token| self.flush(context, handle_of(token));
        self.begun.send(&mut flush);
        self.resume_deferred(context);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn step_beside_begun<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.send_begun(handler.context());
        let mut timeout = timeout;
        if self.has_ready() {
            if !worker.ran_listed_task
                && let Some(work) = self.next_ready()
            {
                worker.ran_listed_task = true;
                self.run_or_defer(handler, worker, work);
                return Ok(());
            }
            timeout = Some(Duration::ZERO);
        }
        worker.ran_listed_task = false;
        let polls = cfg!(feature = "spin") && self.may_spin && timeout.is_none() && !self.lacks_memory();
        let event = if polls { self.wait_spinning(handler, worker)? } else { self.next_event(worker, timeout)? };
        if let Some(event) = event {
            self.handle_or_defer(handler, worker, event);
        }
        Ok(())
    }

    /// Returns true while unread replies hold so much memory that requests with large replies wait.
    pub(super) fn lacks_memory(&self) -> bool {
        cfg!(feature = "reply-memory-waits") && self.ready.has_begun() && self.memory_budget.unread().is_exceeded()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn handle_deferring<H: RequestHandler>(&self, handler: &Arc<H>, worker: &mut Worker, event: EpollEvent) {
        let token = event.token();
        if token & LISTENER != 0 || event.is_hung_up() || event.is_error() || !event.is_readable() {
            return self.handle_event(handler, worker, event);
        }
        if event.is_writable() {
            self.flush(handler.context(), handle_of(token));
        }
        self.read_or_defer(handler, worker, handle_of(token), ReadCause::Readiness);
    }

    fn run_or_defer<H: RequestHandler>(&self, handler: &Arc<H>, worker: &mut Worker, work: LaneTask) {
        match work {
            LaneTask::Read(handle) if self.lacks_memory() => {
                let listing = self.connections.get(handle.0, handle.1).and_then(|connection| connection.take_listing());
                self.read_or_defer(handler, worker, handle, listing.unwrap_or(ReadCause::Readiness));
            }
            work => self.run_task(handler, worker, work),
        }
    }

    fn read_or_defer<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        handle: (u32, u32),
        cause: ReadCause,
    ) {
        let Some(connection) = self.connections.get(handle.0, handle.1) else {
            return self.read(handler, worker, handle, cause);
        };
        if cause == ReadCause::Readiness && connection.is_congested() {
            self.flush(handler.context(), handle);
        }
        let mut detached = None;
        let Some(more) = self.receive_message(handler.context(), worker, &connection, cause, &mut detached) else {
            return;
        };
        if self.defer_received(handler, worker, &connection, &mut detached) {
            return;
        }
        if self.run_message(handler, worker, &connection, detached, more) {
            drop(connection);
            self.read(handler, worker, handle, ReadCause::Buffered);
        }
    }

    /// Returns true if the message was deferred. Otherwise it is in `detached` or, if this is
    /// `None`, in the buffer of `worker`.
    fn defer_received<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        detached: &mut Option<Message>,
    ) -> bool {
        if worker.keeps_read_lock() {
            return false;
        }
        let (header, octets) = detached.as_ref().map_or_else(|| worker.in_place(), Message::parts);
        if !self.must_defer(handler, connection, (header, octets), Duration::ZERO) {
            return false;
        }
        // The thread's buffer may be much larger than the message, so a copy of the message waits
        // and the buffer is reused.
        let copy = Message::Assembled(*header, octets.to_vec(), Vec::new());
        let message = match detached.take() {
            Some(message @ Message::Assembled(..)) => message,
            Some(Message::Buffered(..)) => copy,
            None => {
                drop(worker.detach());
                copy
            }
        };
        let kept = self.defer_for_memory(handler.context(), connection.add_waiting_request(Duration::ZERO), message);
        *detached = kept.map(|(_, message)| message);
        detached.is_none()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn defer_waiting<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        waiting: WaitingRequest,
        message: Message,
    ) -> Option<(WaitingRequest, Message)> {
        if self.must_defer(handler, &waiting, message.parts(), waiting.waited()) {
            return self.defer_for_memory(handler.context(), waiting, message);
        }
        Some((waiting, message))
    }

    fn must_defer<H: RequestHandler>(
        &self,
        handler: &Arc<H>,
        connection: &Connection,
        (header, octets): (&Header, &[u8]),
        waited: Duration,
    ) -> bool {
        self.lacks_memory()
            && octets.len() <= MAX_DEFERRED_BYTES
            && waited < self.config.connection_limits.write_timeout
            && self.strategy.may_defer_requests()
            && !self.is_closing()
            && self.guard_connection(connection).is_some()
            && handler
                .operation_hash(header, octets)
                .is_some_and(|hash| self.memory_budget.large_replies().contains(hash))
    }

    fn defer_for_memory(
        &self,
        context: &OrbContext,
        waiting: WaitingRequest,
        message: Message,
    ) -> Option<(WaitingRequest, Message)> {
        let handle = waiting.handle;
        let refused = waiting.defer_for_memory(message);
        if refused.is_none() {
            self.memory_waits.add(handle, clock::now());
            // Memory may have become free before `memory_waits` contained the connection, so this
            // thread checks again.
            self.resume_deferred(context);
        }
        refused
    }

    /// If the lane has memory for a large reply, ends the wait of one connection or, if no reply is
    /// sent in part, of all connections.
    pub(super) fn resume_deferred(&self, context: &OrbContext) {
        while !self.memory_waits.is_empty() && !self.lacks_memory() {
            let Some(handle) = self.memory_waits.take(None) else { return };
            if self.end_memory_wait(context, handle) && self.ready.has_begun() {
                return;
            }
        }
    }

    fn end_memory_wait(&self, context: &OrbContext, handle: (u32, u32)) -> bool {
        let lives = self.connections.get(handle.0, handle.1).is_some_and(|connection| {
            connection.end_memory_wait();
            true
        });
        self.flush(context, handle);
        lives
    }

    /// Returns true if the peer has read nothing for so long that its unread replies delay no
    /// request.
    pub(super) fn is_stalled(&self, connection: &Connection, now: Monotonic) -> bool {
        connection.write_stalled_for(now) > self.config.connection_limits.write_timeout / STALLED_PART
    }

    pub(super) fn maintain_memory_waits(&self, context: &OrbContext, now: Monotonic) {
        let write_timeout = self.config.connection_limits.write_timeout;
        while let Some(handle) = self.memory_waits.take(Some(now - write_timeout)) {
            self.end_memory_wait(context, handle);
        }
        self.resume_deferred(context);
        if self.memory_waits.is_empty() && self.memory_budget.unread().held() == 0 {
            // Replies of the remembered operations may have become small, so the lane forgets the
            // operations.
            self.memory_budget.large_replies().clear();
        }
    }
}
