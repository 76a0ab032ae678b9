//! The draining connections of a lane: connections that are retired and have not ended. A
//! connection drains while one of its requests runs or waits, while its peer has not read the last
//! output, or while its peer has not closed.
//!
//! Invariant: each connection is in the lane's slab, or in the list of draining connections, or has
//! ended. The lane removes a connection from the slab and adds it to the list in one step, and
//! removes it from the list when the drain is finished. A thread that handles an event of a retired
//! connection therefore finds it, and sends output to a half-closed peer as soon as the peer reads,
//! even while requests of the connection run.
//!
//! A draining connection needs a descriptor, and memory for unread output. It counts in
//! `max_connections`, even after it has ended if one of its requests keeps the descriptor open. If
//! the lane is full and has no idle connection to evict, it evicts the connection that has been
//! draining longest. It never evicts a connection with a request that runs or waits for a thread:
//! the request would keep the descriptor open, and the peer expects the reply. The memory of
//! draining connections counts in `max_buffered_bytes`. `write_timeout` is the maximum time for
//! which a peer may read nothing.

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

/// Slot and generation of a connection in the lane's slab.
type ConnectionHandle = (u32, u32);

/// The list of the draining connections of a lane, in the order in which they began to drain, each
/// with the time at which it began.
#[derive(Debug)]
pub(super) struct DrainingConnections(PiMutex<InsertionOrderedMap<(Monotonic, Arc<Connection>)>>);

/// A map that iterates in the order of insertion. An insertion, a removal and a look-up take
/// constant time.
#[derive(Debug)]
struct InsertionOrderedMap<T> {
    all: HashMap<ConnectionHandle, LinkedEntry<T>>,
    first: Option<ConnectionHandle>,
    last: Option<ConnectionHandle>,
}

/// A value, with links to its neighbours in the order of insertion.
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

    /// Adds a value at the end, unless the map has a value for `handle`.
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

    /// Returns the link to the entry after `before`, or, if `before` is `None`, the link to the
    /// first entry.
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

    /// Returns the number of draining connections.
    pub(super) fn len(&self) -> usize {
        self.0.lock().all.len()
    }

    fn find(&self, handle: ConnectionHandle) -> Option<Arc<Connection>> {
        self.0.lock().all.get(&handle).map(|retiring| Arc::clone(&retiring.value.1))
    }

    /// Iterates over the connections that drain at the time of the call. The iterator does not hold
    /// the lock while the caller works on a connection, and keeps no connection alive in advance.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Arc<Connection>> + '_ {
        let handles: Vec<ConnectionHandle> = self.0.lock().iter().map(|(handle, _)| handle).collect();
        handles.into_iter().filter_map(|handle| self.find(handle))
    }

    fn insert(&self, connection: &Arc<Connection>) {
        self.0.lock().insert(connection.handle, || (clock::now(), Arc::clone(connection)));
    }

    /// Calls `retire`, which removes a connection from the slab. If threads use the connection,
    /// adds it to the list under one lock with the removal.
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

    /// Removes a connection that has ended from the list.
    fn remove(&self, connection: &Connection) {
        // The list's pointer is dropped after the lock is released, because the drop may close the
        // stream, which is a system call.
        let forgotten = self.0.lock().remove(connection.handle);
        connection.release_slot_if_unused();
        drop(forgotten);
    }

    /// Removes and returns the connection that has been draining longest among those for which
    /// `predicate` is true.
    fn take_oldest(&self, predicate: impl Fn(&Connection) -> bool) -> Option<(Monotonic, Arc<Connection>)> {
        let mut list = self.0.lock();
        let (handle, _) = list.iter().find(|(_, (_, connection))| predicate(connection))?;
        list.remove(handle)
    }
}

impl<S: Architecture<S>> Lane<S> {
    /// Retires a connection whose peer has closed its sending direction. Requests that arrived
    /// before are answered.
    #[cold]
    pub(crate) fn handle_half_close(&self, context: &OrbContext, connection: &Connection) {
        connection.record_half_close();
        self.retire_connection(context, connection.handle);
    }

    /// Ends a connection whose peer violated the protocol. `told` is the last message to the peer.
    /// If the fault is a message that is too large, the drain reads and discards the rest of it,
    /// within bounds, so that a peer that sends its whole message before it reads gets the last
    /// message.
    #[cold]
    pub(crate) fn handle_protocol_fault(
        &self,
        context: &OrbContext,
        connection: &Arc<Connection>,
        fault: PeerFault,
        told: &[u8],
    ) {
        context.events().report(&Event::ProtocolFault { peer: connection.stream.peer().clone(), fault });
        let rest = match fault {
            PeerFault::Protocol(ProtocolFault::TooLarge { size, .. }) => usize::try_from(size).unwrap_or(usize::MAX),
            _ => 0,
        };
        connection.queue_last_message_and_discard(told, rest, clock::now(), self.closing_time);
        self.retire_connection(context, connection.handle);
    }

    /// Retires a connection: removes it from the slab, so that no thread can begin to use it. The
    /// drain begins when the last thread that uses the connection has left it. Does nothing if the
    /// connection is retired.
    #[cold]
    pub(crate) fn retire_connection(&self, context: &OrbContext, handle: ConnectionHandle) {
        let found = self.connections.get(handle.0, handle.1).map(|connection| Arc::clone(&connection));
        let Some(connection) = found else { return };
        // The count is raised before the removal, because the last thread may leave the connection
        // before `retire_and_insert` returns. While the connection is in neither the slab nor the
        // list, this count tells `poll_all_draining` that it exists.
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
        // If other threads use the connection, its descriptor is not free. The last of them then
        // calls `accept_again`, too.
        drop(connection);
        self.accept_again();
    }

    /// Begins the drain of a retired connection that the last thread has left. A connection that
    /// was idle gets CloseConnection and ends. If the lane closes, the peer gets CloseConnection. A
    /// peer that violated the protocol has time to read the last message. A peer that closed its
    /// sending direction gets its replies.
    #[cold]
    pub(super) fn finish_retire(&self, connection: Arc<Connection>) {
        if connection.is_closed_idle() && !connection.has_queued_last_message() {
            connection.close_with_message(&final_messages::close_connection());
            return self.draining.remove(&connection);
        }
        connection.mark_vacated();
        self.draining.insert(&connection);
        let now = clock::now();
        // If the peer has read nothing for `write_timeout`, the connection is left to the next
        // sweep, which closes it and reports the peer.
        let has_had_its_time =
            !connection.is_closed() && connection.write_stalled_for(now) > self.config.connection_limits.write_timeout;
        let progress =
            if has_had_its_time { DrainProgress::Pending } else { self.advance_connection(&connection, now) };
        if progress.is_over() {
            return;
        }
        if self.is_stopping() {
            // The lane stops, so no thread would continue the drain. The connection is closed
            // before its removal from the list, after which no thread can find it.
            connection.close();
            self.draining.remove(&connection);
        } else {
            // The connection is on the list, so a thread that handles an event finds it. This call
            // makes epoll report the events of the stream from before the call, too.
            connection.watch_writability(true);
            self.continue_discarding(&connection, progress);
        }
    }

    /// Continues the drain of the connection `handle` after an event of its stream.
    #[cold]
    pub(super) fn poll_draining(&self, context: &OrbContext, handle: ConnectionHandle) {
        if let Some(connection) = self.draining.find(handle) {
            let progress = self.advance_and_report(context, &connection, clock::now());
            self.continue_discarding(&connection, progress);
            drop(connection);
            self.accept_again();
        }
    }

    /// Puts the connection on the ready list if more input must be discarded than a thread may
    /// discard in a row. A thread continues after other work.
    fn continue_discarding(&self, connection: &Connection, progress: DrainProgress) {
        if progress == DrainProgress::MoreInput {
            self.push(LaneTask::Read(connection.handle));
        }
    }

    /// Drains a connection as far as is possible without waiting, and reports a peer that did not
    /// read its replies in time.
    fn advance_and_report(&self, context: &OrbContext, connection: &Arc<Connection>, now: Monotonic) -> DrainProgress {
        let progress = self.advance_connection(connection, now);
        if progress == DrainProgress::WriteTimedOut {
            context.events().replies_unread([connection.stream.peer().clone()]);
        }
        progress
    }

    /// Drains a connection as far as is possible without waiting, and removes it from the list if
    /// it has ended.
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

    /// Sends the replies in the connection's send queue. When the queue is empty, queues the
    /// requests that were deferred until then.
    #[cold]
    fn flush_draining(&self, connection: &Arc<Connection>) {
        if connection.is_congested() {
            match connection.flush().1 {
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

    /// Continues the drains of all connections as far as is possible without waiting. Called
    /// repeatedly while the lane closes. Returns true if connections have not ended.
    pub(crate) fn poll_all_draining(&self, context: &OrbContext) -> bool {
        // `retiring` is loaded before the list is read: a connection is added to the list before
        // its `retiring` count ends, so one of the two shows it.
        let retiring = self.retiring.load(Ordering::Acquire) > 0;
        let now = clock::now();
        for connection in self.draining.snapshot() {
            connection.limit_close_time(now, self.closing_time);
            self.advance_and_report(context, &connection, now);
        }
        retiring || self.draining.len() > 0
    }

    /// Shuts down the draining connections that no thread uses. Called after the lane has stopped,
    /// when no thread would continue their drains. Returns the peers that have not read all their
    /// replies.
    pub(crate) fn abort_draining(&self) -> Vec<Peer> {
        let oldest = || self.draining.take_oldest(Connection::is_vacated).map(|(_, connection)| connection);
        let cut = std::iter::from_fn(oldest).filter(|connection| connection.close() && connection.has_unsent_output());
        cut.map(|connection| connection.stream.peer().clone()).collect()
    }

    /// Continues the drains of all connections, and closes connections whose peers have read
    /// nothing for `write_timeout`. Called once in a maintenance period.
    pub(super) fn sweep_draining(&self, context: &OrbContext, now: Monotonic) {
        for connection in self.draining.snapshot() {
            // `close` returns true at its first call. A closed connection stays on the list while
            // one of its requests runs, but its peer is reported once.
            if connection.write_stalled_for(now) > self.config.connection_limits.write_timeout && connection.close() {
                context.events().replies_unread([connection.stream.peer().clone()]);
            }
            self.advance_and_report(context, &connection, now);
        }
    }

    /// Closes the connection that has been draining longest, among those whose descriptor becomes
    /// free by the close. Returns false if there is none.
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
