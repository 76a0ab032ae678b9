//! Draining connections of a lane. They are retired but have not ended, for one of three reasons:
//! requests of them still run or wait, their peers have not read the last output, or their peers
//! have not closed.
//!
//! Invariant: a connection that a thread does not find in the slab is listed here, or has ended. It
//! is retired and listed in one step, and removed from the list when nothing is left to do. So the
//! output for a half-closed peer is sent as soon as the peer reads, even if requests of the
//! connection still run.
//!
//! A draining connection has a descriptor, and output that its peer has not read. It counts in
//! `max_connections`. So does a connection that has ended while requests keep its descriptor. If
//! the lane is full and no idle connection makes room, the connection that has been draining
//! longest does. A connection whose requests wait for something other than its peer is not evicted.
//! Its descriptor would stay as long as the requests, and its peer expects their replies. The
//! memory of draining connections counts in `max_buffered_bytes`. `write_timeout` bounds the time
//! for which a peer may read nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_net::Peer;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{PiMutex, Scope};
use corelane_sys::slab::RetireResult;
use corelane_wire::connection::ProtocolFault;

use super::architecture::Architecture;
use super::connection::{CloseTerms, Connection, DrainProgress};
use super::final_messages;
use super::lane::{Lane, LaneTask};
use crate::clock;
use crate::event::Event;
use crate::fault::Fault;
use crate::orb_context::OrbContext;

type ConnectionHandle = (u32, u32);

/// The draining connections by handle, in the order in which draining began, each with the time at
/// which it began.
#[derive(Debug)]
pub(super) struct DrainingConnections(PiMutex<InsertionOrderedMap<(Monotonic, Arc<Connection>)>>);

/// A map by handle that keeps the order of insertion. Each operation takes constant time.
#[derive(Debug)]
struct InsertionOrderedMap<T> {
    all: HashMap<ConnectionHandle, LinkedEntry<T>>,
    first: Option<ConnectionHandle>,
    last: Option<ConnectionHandle>,
}

/// A value, with links to the values inserted just before and just after it.
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

    /// Appends a value, unless the handle already has one.
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

    /// Returns the link to the value after `before`, or the link to the first value.
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
        DrainingConnections(PiMutex::new("ending connections", Scope::Lane, InsertionOrderedMap::new()))
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.0.lock().all.len()
    }

    fn find(&self, handle: ConnectionHandle) -> Option<Arc<Connection>> {
        self.0.lock().all.get(&handle).map(|retiring| Arc::clone(&retiring.value.1))
    }

    /// Iterates over the connections. The lane's lock is not held while the caller works on a
    /// connection, and the descriptors of the other connections are not kept.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Arc<Connection>> + '_ {
        let handles: Vec<ConnectionHandle> = self.0.lock().iter().map(|(handle, _)| handle).collect();
        handles.into_iter().filter_map(|handle| self.find(handle))
    }

    fn insert(&self, connection: &Arc<Connection>) {
        self.0.lock().insert(connection.handle, || (clock::now(), Arc::clone(connection)));
    }

    /// Retires a connection with `retire`. In the same step it lists the connection, if threads are
    /// in it.
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

    /// Removes a connection that has ended.
    fn remove(&self, connection: &Connection) {
        // Dropped without the lock, because dropping may close the stream.
        let forgotten = self.0.lock().remove(connection.handle);
        connection.release_slot_if_unused();
        drop(forgotten);
    }

    /// Removes the first connection for which `predicate` is true, and returns it.
    fn take_oldest(&self, predicate: impl Fn(&Connection) -> bool) -> Option<(Monotonic, Arc<Connection>)> {
        let mut list = self.0.lock();
        let (handle, _) = list.iter().find(|(_, (_, connection))| predicate(connection))?;
        list.remove(handle)
    }
}

impl<S: Architecture<S>> Lane<S> {
    /// Retires a connection whose peer sends nothing more. Earlier requests are still answered.
    #[cold]
    pub(crate) fn handle_half_close(&self, context: &OrbContext, connection: &Connection) {
        connection.record_half_close();
        self.retire_connection(context, connection.handle);
    }

    /// Ends a connection whose peer broke the protocol; `told` is its last message. If the peer is
    /// sending a message that is too large, the rest of it is read, within bounds. So a peer that
    /// sends the whole message before it reads still gets the answer.
    #[cold]
    pub(crate) fn handle_protocol_fault(
        &self,
        context: &OrbContext,
        connection: &Arc<Connection>,
        fault: Fault,
        told: &[u8],
    ) {
        context.events().report(&Event::ProtocolFault { peer: connection.stream.peer().clone(), fault });
        let rest = match fault {
            Fault::Protocol(ProtocolFault::TooLarge { size, .. }) => usize::try_from(size).unwrap_or(usize::MAX),
            _ => 0,
        };
        connection.queue_last_message_and_discard(told, rest, clock::now(), self.closing_time);
        self.retire_connection(context, connection.handle);
    }

    /// Retires a connection. From now on no thread finds it, and it ends when the last thread
    /// leaves it.
    #[cold]
    pub(crate) fn retire_connection(&self, context: &OrbContext, handle: ConnectionHandle) {
        let found = self.connections.get(handle.0, handle.1).map(|connection| Arc::clone(&connection));
        let Some(connection) = found else { return };
        // Counted first, because the last thread may leave before `retire` returns. Until the
        // connection is listed or has ended, `poll_all_draining` learns of it from this count.
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
        // If the connection's descriptor is not free yet, the last thread that leaves the
        // connection tries to accept again.
        drop(connection);
        self.accept_again();
    }

    /// Continues a retirement after the last thread has left the connection. If the ORB closes, the
    /// peer is told so. A peer that was told of a fault gets time to read the message. A
    /// half-closed peer that still reads gets its replies.
    #[cold]
    pub(super) fn finish_retire(&self, connection: Arc<Connection>) {
        if connection.is_closed_idle() && !connection.has_queued_last_message() {
            connection.close_with_message(&final_messages::close_connection());
            return self.draining.remove(&connection);
        }
        connection.mark_vacated();
        self.draining.insert(&connection);
        let now = clock::now();
        // If the peer's time has passed, the connection is left to the next sweep, which reports
        // the peer.
        let has_had_its_time =
            !connection.is_closed() && connection.write_stalled_for(now) > self.config.connection_limits.write_timeout;
        let progress =
            if has_had_its_time { DrainProgress::Pending } else { self.advance_connection(&connection, now) };
        if progress.is_over() {
            return;
        }
        if self.is_stopping() {
            // After this no thread would find the connection again.
            connection.close();
            self.draining.remove(&connection);
        } else {
            // The connection is already listed. Watching now reports what happened before.
            connection.watch_writability(true);
            self.continue_discarding(&connection, progress);
        }
    }

    /// Continues the draining connection that was at `handle`, after an event.
    #[cold]
    pub(super) fn poll_draining(&self, context: &OrbContext, handle: ConnectionHandle) {
        if let Some(connection) = self.draining.find(handle) {
            let progress = self.advance_and_report(context, &connection, clock::now());
            self.continue_discarding(&connection, progress);
            drop(connection);
            self.accept_again();
        }
    }

    /// If a peer sends faster than its input is discarded in one turn, continues later, after other
    /// work.
    fn continue_discarding(&self, connection: &Connection, progress: DrainProgress) {
        if progress == DrainProgress::MoreInput {
            self.push(LaneTask::ReadBuffered(connection.handle));
        }
    }

    fn advance_and_report(&self, context: &OrbContext, connection: &Arc<Connection>, now: Monotonic) -> DrainProgress {
        let progress = self.advance_connection(connection, now);
        if progress == DrainProgress::WriteTimedOut {
            context.events().replies_unread([connection.stream.peer().clone()]);
        }
        progress
    }

    /// Drains a connection as far as is possible now.
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

    /// Sends the queue to the peer. Requests that were deferred because of the queue then continue.
    #[cold]
    fn flush_draining(&self, connection: &Arc<Connection>) {
        if connection.is_congested() {
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

    /// Continues all draining connections as far as is possible now. Returns true if some of them
    /// have not ended.
    pub(crate) fn poll_all_draining(&self, context: &OrbContext) -> bool {
        // The order matters: a connection is listed before it no longer counts as retiring.
        let retiring = self.retiring.load(Ordering::Acquire) > 0;
        let now = clock::now();
        for connection in self.draining.snapshot() {
            connection.limit_close_time(now, self.closing_time);
            self.advance_and_report(context, &connection, now);
        }
        retiring || self.draining.len() > 0
    }

    /// Shuts down the draining connections that no thread is in, because no thread will continue
    /// them. Returns the peers that have not read their last replies.
    pub(crate) fn abort_draining(&self) -> Vec<Peer> {
        let oldest = || self.draining.take_oldest(Connection::is_vacated).map(|(_, connection)| connection);
        let cut = std::iter::from_fn(oldest).filter(|connection| connection.close() && connection.has_unsent_output());
        cut.map(|connection| connection.stream.peer().clone()).collect()
    }

    /// Continues all draining connections because time has passed.
    pub(super) fn sweep_draining(&self, context: &OrbContext, now: Monotonic) {
        for connection in self.draining.snapshot() {
            // Reported only once, because a connection that is shut down stays listed while a
            // request of it runs.
            if connection.write_stalled_for(now) > self.config.connection_limits.write_timeout && connection.close() {
                context.events().replies_unread([connection.stream.peer().clone()]);
            }
            self.advance_and_report(context, &connection, now);
        }
    }

    /// Closes the connection that has been draining longest, among the connections whose descriptor
    /// this makes free. Returns false if there is none.
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
