//! The waits of a lane's threads in core groups, and the connections that the groups watch.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use corelane_sys::epoll::{EpollEvent, Interest};
use corelane_sys::thread;

use super::architecture::Architecture;
use super::connection::{Connection, ConnectionGroup};
use super::core_groups::{CoreGroups, LANE, ThreadGroup};
use super::lane::{LISTENER, Lane, handle_of, interest, token_of};
use super::worker::Worker;

/// A thread compares its core with the peer's core once in this number of events of its group. The
/// number is prime, so that a thread that serves several connections in turn examines each of them.
const EVENTS_PER_CHECK: u32 = 61;
/// Number of checks with the same result before a thread moves or a connection changes its group.
const CHECKS_BEFORE_CHANGE: u32 = 2;

impl<S: Architecture<S>> Lane<S> {
    /// Waits for an event, for at most `timeout`; `None` means no limit.
    pub(super) fn next_event_in_group(
        &self,
        groups: &CoreGroups,
        worker: &mut Worker,
        timeout: Option<Duration>,
    ) -> io::Result<Option<EpollEvent>> {
        let mut events = [EpollEvent::EMPTY; 1];
        let thread = &mut worker.group;
        thread.joining = None;
        if groups.group(thread).epoll.wait(&mut events, timeout)? == 0 {
            return Ok(None);
        }
        if events[0].token() == LANE {
            // Another thread may have taken the event, so this wait does not block.
            if self.epoll.wait(&mut events, Some(Duration::ZERO))? == 0 {
                return Ok(None);
            }
            if events[0].token() & LISTENER == 0 && events[0].is_readable() {
                self.begin_joining(groups, thread, handle_of(events[0].token()));
            }
        } else if events[0].token() & LISTENER == 0 && !worker.burst_role.is_runner() {
            thread.events = thread.events.wrapping_add(1);
            if thread.events.is_multiple_of(EVENTS_PER_CHECK) {
                self.compare_cores(groups, thread, handle_of(events[0].token()));
            }
        }
        Ok(Some(events[0]))
    }

    /// Notes the group of the peer's core, which the kernel knows from the last packet on the
    /// connection. Now this packet is the peer's message. Later it may be an acknowledgement of the
    /// reply, which the kernel has processed on this thread's core.
    fn begin_joining(&self, groups: &CoreGroups, thread: &mut ThreadGroup, handle: (u32, u32)) {
        if let Some(connection) = self.connections.get(handle.0, handle.1) {
            let peers = connection.stream.incoming_core().and_then(|core| groups.number_of_core(core));
            connection.group.note_peer(peers.unwrap_or(thread.number.max(1)));
            thread.joining = Some(handle);
        }
    }

    /// If [`begin_joining`](Self::begin_joining) has chosen a connection, lets the groups watch it.
    /// The thread has handled the event of this connection.
    #[inline]
    pub(super) fn join_groups(&self, worker: &mut Worker) {
        if let Some(handle) = worker.group.joining.take()
            && let Some(groups) = self.core_groups()
            && let Some(connection) = self.connections.get(handle.0, handle.1)
        {
            self.watch_in_groups(groups, &connection);
        }
    }

    /// Lets the groups watch the input of the connection in place of the lane's own epoll instance,
    /// beginning with the group of the peer's core. Returns false if the connection is congested or
    /// has no descriptor, or if the kernel refuses.
    pub(super) fn watch_in_groups(&self, groups: &CoreGroups, connection: &Connection) -> bool {
        let Some(readiness) = connection.stream.readiness_descriptor() else { return false };
        let token = token_of(connection.handle);
        let watch = || {
            if connection.is_congested() {
                return Ok(false);
            }
            if connection.group.set_watched(false) {
                groups.unwatch(readiness);
            }
            self.epoll.modify(readiness, token, Interest::HANG_UP | Interest::EDGE)?;
            // From here on the groups report input, including input that has arrived before.
            let is_watched = groups.watch(connection.group.peer(), readiness, token).is_ok();
            if !is_watched {
                self.epoll.modify(readiness, token, interest(false))?;
            }
            connection.group.set_watched(is_watched);
            Ok(is_watched)
        };
        // The output lock keeps the flag `Congested` from changing.
        connection.with_output_locked(watch).unwrap_or_else(|_: io::Error| {
            connection.close();
            false
        })
    }

    /// Ends the watching by the groups. The caller holds the output lock, and decides what the
    /// lane's own epoll instance watches. Returns true if the groups watched the connection.
    pub(super) fn unwatch_in_groups(&self, group: &ConnectionGroup, readiness: BorrowedFd<'_>) -> bool {
        let Some(groups) = self.core_groups() else { return false };
        let was_watched = group.set_watched(false);
        if was_watched {
            groups.unwatch(readiness);
        }
        was_watched
    }

    /// Compares the core of the thread with the peer's core. If the peer is repeatedly found in
    /// another group, that group becomes the first for the connection. A thread that repeatedly
    /// serves its own group from a core of another group moves back.
    #[cold]
    fn compare_cores(&self, groups: &CoreGroups, thread: &mut ThreadGroup, handle: (u32, u32)) {
        let Some(connection) = self.connections.get(handle.0, handle.1) else { return };
        let Some(peer) = connection.stream.incoming_core().and_then(|core| groups.number_of_core(core)) else { return };
        if is_repeated(&mut thread.misdirected_checks, peer != connection.group.peer()) {
            connection.group.note_peer(peer);
            thread.joining = Some(handle);
        }
        let is_elsewhere = || thread::current_core().is_some_and(|own| groups.number_of_core(own) != Some(peer));
        if is_repeated(&mut thread.misplaced_checks, peer == thread.number && is_elsewhere()) {
            groups.attract(thread);
        }
    }
}

/// Counts successive checks with the result true. If there are enough, returns true and restarts
/// the count.
fn is_repeated(checks: &mut u32, result: bool) -> bool {
    *checks = if result { *checks + 1 } else { 0 };
    let is_enough = *checks >= CHECKS_BEFORE_CHANGE;
    if is_enough {
        *checks = 0;
    }
    is_enough
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use corelane_net::{Endpoint, TcpTransport, Transport, WaitLimit};

    use super::*;
    use crate::Orb;
    use crate::server::config::{Dispatch, PoolConfig};
    use crate::server::core_groups::WAKE;
    use crate::server::strategy;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns the next event that is not a wake-up for a task.
    fn input_event(lane: &strategy::Lane, worker: &mut Worker, timeout: Duration) -> Option<EpollEvent> {
        std::iter::repeat_with(|| lane.next_event(worker, Some(timeout)).unwrap())
            .find(|event| event.is_none_or(|event| event.token() != WAKE))
            .flatten()
    }

    /// Checks that the groups watch the connection after its first message, but not while it is
    /// congested or polled. After the next message they watch it again.
    #[test]
    fn connection_in_steady_use_is_watched_by_the_groups() {
        const CANCEL_REQUEST: &[u8] = b"GIOP\x01\x02\x01\x02\x04\x00\x00\x00\x00\x00\x00\x00";
        let orb = Orb::new().unwrap();
        let handler = orb.core().adapter();
        let config = PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 2 });
        let lane = strategy::Lane::new(config, Vec::new(), Duration::ZERO, None, None).unwrap();
        let groups = lane.core_groups().unwrap();
        let listener = TcpTransport::new().listen(&Endpoint::tcp("127.0.0.1", 0)).unwrap();
        let peer = TcpTransport::new().connect(listener.local_endpoint(), None).unwrap();
        lane.adopt(handler, std::iter::repeat_with(|| listener.accept()).find_map(Result::ok).unwrap());
        let connection = lane.connections.iter().next().map(|connection| Arc::clone(&connection)).unwrap();
        let mut worker = Worker::new();
        while lane.has_ready() {
            lane.step(handler, &mut worker, Some(Duration::ZERO)).unwrap();
        }
        for number in [1, 2, 1] {
            assert!(!connection.group.is_watched());
            for _ in 0..2 {
                peer.send(CANCEL_REQUEST, WaitLimit::Block).unwrap();
                worker.group.number = number;
                let event = input_event(&lane, &mut worker, PATIENCE).unwrap();
                assert_eq!(event.token(), token_of(connection.handle));
                lane.handle_event(handler, &mut worker, event);
                assert!(connection.group.is_watched());
            }
            connection.watch_writability(true);
            assert!(!connection.group.is_watched());
            connection.watch_writability(false);
        }
        assert!(lane.watch_in_groups(groups, &connection) && connection.group.is_watched());
        lane.watch_input(&connection, false);
        assert!(!connection.group.is_watched());
        peer.send(CANCEL_REQUEST, WaitLimit::Block).unwrap();
        for number in [1, 2] {
            worker.group.number = number;
            assert!(input_event(&lane, &mut worker, Duration::ZERO).is_none(), "the connection is polled");
        }
        lane.watch_input(&connection, true);
        worker.group.number = 2;
        assert!(input_event(&lane, &mut worker, PATIENCE).is_some());
    }
}
