//! Connections that are retired and have not ended: a request runs or waits, or the peer has not
//! read its replies or closed its side.
//!
//! A draining connection counts in `max_connections`, and its memory in `max_buffered_bytes`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_net::Peer;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::slab::RetireResult;
use corelane_wire::connection::ProtocolFault;

use super::architecture::Architecture;
use super::connection::{CloseTerms, Connection, DrainProgress};
use super::final_messages;
use super::lane::{Lane, LaneTask};
use crate::clock;
use crate::event::Event;
use crate::fault::PeerFault;
use crate::orb_context::OrbContext;

type ConnectionHandle = (u32, u32);

/// The connections in the order in which they were added, each with the time of its addition.
#[derive(Debug)]
pub(super) struct DrainingConnections(PiMutex<InsertionOrderedMap<(Monotonic, Arc<Connection>)>>);

#[derive(Debug)]
struct InsertionOrderedMap<T> {
    all: HashMap<ConnectionHandle, LinkedEntry<T>>,
    first: Option<ConnectionHandle>,
    last: Option<ConnectionHandle>,
}

#[derive(Debug)]
struct LinkedEntry<T> {
    value: T,
    before: Option<ConnectionHandle>,
    after: Option<ConnectionHandle>,
}

impl<T> InsertionOrderedMap<T> {
    fn new() -> Self {
        InsertionOrderedMap { all: HashMap::new(), first: None, last: None }
    }

    fn insert(&mut self, handle: ConnectionHandle, value: impl FnOnce() -> T) {
        if self.all.contains_key(&handle) {
            return;
        }
        let before = self.last.replace(handle);
        *self.link_after(before) = Some(handle);
        self.all.insert(handle, LinkedEntry { value: value(), before, after: None });
    }

    fn remove(&mut self, handle: ConnectionHandle) -> Option<T> {
        let LinkedEntry { value, before, after } = self.all.remove(&handle)?;
        *self.link_after(before) = after;
        match after.and_then(|after| self.all.get_mut(&after)) {
            Some(after) => after.before = before,
            None => self.last = before,
        }
        Some(value)
    }

    fn link_after(&mut self, before: Option<ConnectionHandle>) -> &mut Option<ConnectionHandle> {
        match before.and_then(|before| self.all.get_mut(&before)) {
            Some(before) => &mut before.after,
            None => &mut self.first,
        }
    }

    fn iter(&self) -> impl Iterator<Item = (ConnectionHandle, &T)> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let handle = next?;
            let linked = self.all.get(&handle)?;
            next = linked.after;
            Some((handle, &linked.value))
        })
    }
}

impl DrainingConnections {
    pub(super) fn new() -> Self {
        DrainingConnections(PiMutex::new("draining connections", LockScope::Lane, InsertionOrderedMap::new()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().all.len()
    }

    fn find(&self, handle: ConnectionHandle) -> Option<Arc<Connection>> {
        self.0.lock().all.get(&handle).map(|retiring| Arc::clone(&retiring.value.1))
    }

    /// Iterates over the connections that are on the list now, without those that leave it before
    /// their turn. No lock is held while the caller works on a connection.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Arc<Connection>> + '_ {
        let handles: Vec<ConnectionHandle> = self.0.lock().iter().map(|(handle, _)| handle).collect();
        handles.into_iter().filter_map(|handle| self.find(handle))
    }

    fn insert(&self, connection: &Arc<Connection>) {
        self.0.lock().insert(connection.handle, || (clock::now(), Arc::clone(connection)));
    }

    /// Calls `retire`, and adds the connection to the list if threads use it. The lock of the list
    /// is held from the call to the addition.
    fn retire_and_insert<T>(
        &self,
        connection: &Arc<Connection>,
        retire: impl FnOnce() -> RetireResult<T>,
    ) -> RetireResult<T> {
        let mut list = self.0.lock();
        let retired = retire();
        if matches!(retired, RetireResult::Deferred) {
            list.insert(connection.handle, || (clock::now(), Arc::clone(connection)));
        }
        retired
    }

    fn remove(&self, connection: &Connection) {
        // The drop may close the stream, which is a system call, so the lock is not held.
        let forgotten = self.0.lock().remove(connection.handle);
        connection.release_slot_if_unused();
        drop(forgotten);
    }

    fn take_oldest(&self, predicate: impl Fn(&Connection) -> bool) -> Option<(Monotonic, Arc<Connection>)> {
        let mut list = self.0.lock();
        let (handle, _) = list.iter().find(|(_, (_, connection))| predicate(connection))?;
        list.remove(handle)
    }
}

impl<S: Architecture<S>> Lane<S> {
    /// Retires a connection whose input has ended. Requests that have arrived still run, unless the
    /// lane closes.
    #[cold]
    pub(crate) fn handle_half_close(&self, context: &OrbContext, connection: &Connection) {
        connection.record_half_close();
        self.retire_connection(context, connection.handle);
    }

    /// Reports the fault, queues `last_message` and retires the connection. If the peer's message
    /// is too large, the drain discards the rest of it within bounds, because the peer perhaps
    /// reads nothing before it has sent everything.
    #[cold]
    pub(crate) fn handle_protocol_fault(
        &self,
        context: &OrbContext,
        connection: &Arc<Connection>,
        fault: PeerFault,
        last_message: &[u8],
    ) {
        context.events().report(&Event::ProtocolFault { peer: connection.stream.peer().clone(), fault });
        let rest = match fault {
            PeerFault::Protocol(ProtocolFault::TooLarge { size, .. }) => usize::try_from(size).unwrap_or(usize::MAX),
            _ => 0,
        };
        connection.queue_last_message_and_discard(last_message, rest, clock::now(), self.closing_time);
        self.retire_connection(context, connection.handle);
    }

    /// Retires a connection: removes it from the slab, so that no thread can begin to use it. The
    /// drain begins when the last thread that uses the connection has left it.
    #[cold]
    pub(crate) fn retire_connection(&self, context: &OrbContext, handle: ConnectionHandle) {
        let found = self.connections.get(handle.0, handle.1).map(|connection| Arc::clone(&connection));
        let Some(connection) = found else { return };
        // While the connection is in neither the slab nor the list, this count tells
        // `poll_all_draining` that it exists.
        self.retiring.fetch_add(1, Ordering::AcqRel);
        let retired = self.draining.retire_and_insert(&connection, || self.connections.retire(handle.0, handle.1));
        let was_deferred = matches!(retired, RetireResult::Deferred);
        let was_there = !matches!(retired, RetireResult::Stale);
        if let RetireResult::Taken(connection) = retired {
            self.finish_retire(connection);
        }
        if !was_deferred {
            self.retiring.fetch_sub(1, Ordering::AcqRel);
        }
        if !was_there {
            return;
        }
        context.events().connection_closed();
        // This pointer is dropped first, because the descriptor closes with the last pointer to the
        // connection. If other threads use the connection, the last of them calls `accept_again`.
        drop(connection);
        self.accept_again();
    }

    /// Begins the drain of a connection. A connection that was closed while idle, and has no queued
    /// last message, ends at once, with CloseConnection if the transport takes this message without
    /// waiting.
    #[cold]
    pub(super) fn finish_retire(&self, connection: Arc<Connection>) {
        if connection.is_closed_idle() && !connection.has_queued_last_message() {
            connection.close_with_message(&final_messages::close_connection());
            return self.draining.remove(&connection);
        }
        connection.mark_vacated();
        self.draining.insert(&connection);
        let now = clock::now();
        // The next sweep closes a connection whose peer has read nothing for `write_timeout`, and
        // reports it.
        let has_had_its_time =
            !connection.is_closed() && connection.write_stalled_for(now) > self.config.connection_limits.write_timeout;
        let progress =
            if has_had_its_time { DrainProgress::Pending } else { self.advance_connection(&connection, now) };
        if progress.is_over() {
            return;
        }
        if self.is_stopping() {
            // After the connection's removal from the list, no thread can find the connection to
            // close it. So it is closed first.
            connection.close();
            self.draining.remove(&connection);
        } else {
            // Makes epoll report again the events of the stream that it has reported before the
            // drain.
            connection.watch_writability(true);
            self.continue_discarding(&connection, progress);
        }
    }

    #[cold]
    pub(super) fn poll_draining(&self, context: &OrbContext, handle: ConnectionHandle) {
        if let Some(connection) = self.draining.find(handle) {
            let progress = self.advance_and_report(context, &connection, clock::now());
            self.continue_discarding(&connection, progress);
            drop(connection);
            self.accept_again();
        }
    }

    fn continue_discarding(&self, connection: &Connection, progress: DrainProgress) {
        if progress == DrainProgress::MoreInput {
            self.push(LaneTask::Read(connection.handle));
        }
    }

    fn advance_and_report(&self, context: &OrbContext, connection: &Arc<Connection>, now: Monotonic) -> DrainProgress {
        let progress = self.advance_connection(connection, now);
        if progress == DrainProgress::WriteTimedOut {
            context.events().replies_unread([connection.stream.peer().clone()]);
        }
        progress
    }

    fn advance_connection(&self, connection: &Arc<Connection>, now: Monotonic) -> DrainProgress {
        self.flush_draining(connection);
        let closes = self.closing.load(Ordering::SeqCst);
        let terms = CloseTerms {
            last_message: closes.then(final_messages::close_connection),
            closing_time: self.closing_time,
            write_timeout: self.config.connection_limits.write_timeout,
        };
        let progress = connection.advance_drain(&terms, now);
        if progress.is_over() {
            self.draining.remove(connection);
        }
        progress
    }

    #[cold]
    fn flush_draining(&self, connection: &Arc<Connection>) {
        // A connection that is not congested has no deferred requests, and a thread that sends on
        // it may hold the output lock. So such a connection is not flushed.
        if connection.is_congested() {
            #[cfg(feature = "replies-first")]
            connection.end_memory_wait();
            match connection.flush() {
                Ok(true) => {
                    for (waiting, message) in connection.take_deferred() {
                        self.requeue(waiting, message);
                    }
                }
                Ok(false) => {}
                Err(_) => drop(connection.close()),
            }
        }
    }

    /// Advances all drains and limits their time to `closing_time`. Returns true if connections
    /// have not ended.
    pub(crate) fn poll_all_draining(&self, context: &OrbContext) -> bool {
        // A connection is added to the list before its `retiring` count ends, so either the list or
        // the count shows it.
        let retiring = self.retiring.load(Ordering::Acquire) > 0;
        let now = clock::now();
        for connection in self.draining.snapshot() {
            connection.limit_close_time(now, self.closing_time);
            self.advance_and_report(context, &connection, now);
        }
        retiring || self.draining.len() > 0
    }

    /// Closes the draining connections that no thread uses, after the lane has stopped. Returns the
    /// peers of the connections that this call closed before all their replies were sent.
    pub(crate) fn abort_draining(&self) -> Vec<Peer> {
        let oldest = || self.draining.take_oldest(Connection::is_vacated).map(|(_, connection)| connection);
        let cut = std::iter::from_fn(oldest).filter(|connection| connection.close() && connection.has_unsent_output());
        cut.map(|connection| connection.stream.peer().clone()).collect()
    }

    pub(super) fn sweep_draining(&self, context: &OrbContext, now: Monotonic) {
        for connection in self.draining.snapshot() {
            // A closed connection stays on the list while one of its requests runs, but its peer is
            // reported once.
            if connection.write_stalled_for(now) > self.config.connection_limits.write_timeout && connection.close() {
                context.events().replies_unread([connection.stream.peer().clone()]);
            }
            self.advance_and_report(context, &connection, now);
        }
    }

    /// Closes the connection that has been draining longest among those on which no request runs or
    /// waits for a thread. Returns false if there is none.
    #[cold]
    pub(super) fn evict_oldest_draining(&self, context: &OrbContext) -> bool {
        let Some((since, connection)) = self.draining.take_oldest(Connection::is_unused) else { return false };
        let octets = connection.memory_use().held_bytes();
        connection.close();
        connection.release_slot_if_unused();
        connection.memory_use().write_off();
        let (peer, after) = (connection.stream.peer().clone(), clock::now().since(since));
        context.events().report(&Event::DrainingConnectionEvicted { peer, bytes: octets, draining: after });
        true
    }
}

#[cfg(test)]
mod tests {
    mod event_orders;
    mod eviction;
    mod harness;

    use super::*;

    #[test]
    fn insertion_order_survives_removals() {
        let (mut list, mut model) = (InsertionOrderedMap::new(), Vec::<(ConnectionHandle, u32)>::new());
        let mut state = 1u32;
        for number in 0..2000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let handle = (state >> 16 & 7, 0);
            if state >> 30 == 0 {
                let at = model.iter().position(|(other, _)| *other == handle);
                assert_eq!(list.remove(handle), at.map(|at| model.remove(at).1));
            } else {
                list.insert(handle, || number);
                if model.iter().all(|(other, _)| *other != handle) {
                    model.push((handle, number));
                }
            }
            assert!(list.iter().map(|(handle, number)| (handle, *number)).eq(model.iter().copied()));
            assert_eq!(
                (list.first, list.last),
                (model.first().map(|(handle, _)| *handle), model.last().map(|(handle, _)| *handle))
            );
        }
        for (handle, number) in model {
            assert_eq!(list.remove(handle), Some(number));
        }
        assert_eq!((list.first, list.last, list.all.len()), (None, None, 0));
    }
}
