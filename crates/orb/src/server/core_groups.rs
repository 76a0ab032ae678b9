//! Core groups: the threads of a leader/followers lane wait in several epoll instances, one for
//! each group of cores, so that a request is served on the core where it arrived
//! (docs/decisions/0026-requests-are-served-where-they-arrive.md).
//!
//! In one epoll instance the kernel wakes the thread that began to wait last, wherever it ran. With
//! clients on several cores, each call then wakes a thread of another core.
//!
//! All groups watch a connection in steady use exclusively, and the group of the peer's core is the
//! first. So an arrival wakes an idle thread of this group or, if it has none, of another group.
//! The lane's own epoll instance, which each group watches, has everything else: new connections,
//! listeners, room to write, and connections that a thread polls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::thread::{self, CpuSet};

use super::architecture::Architecture;
use super::connection::Connection;
use super::lane::{LISTENER, Lane, WAKE, handle_of, interest, token_of};
use super::worker::Worker;

/// Token of the lane's own epoll instance in a group. No connection has it.
const LANE: u64 = u64::MAX - 1;
/// Maximum number of groups. The kernel holds an entry for a connection in each of them.
const MAX_GROUPS: usize = 8;
/// A thread compares its core with the peer's in one of this number of messages.
const MESSAGES_PER_CHECK: u32 = 64;
/// A thread moves after this number of checks that found it outside the cores of its group.
const CHECKS_BEFORE_MOVE: u32 = 2;

/// Number of a group, from 1. Zero stands for no group.
pub(super) type GroupNumber = u8;

#[derive(Debug)]
pub(super) struct CoreGroups {
    groups: Vec<Group>,
    started_threads: AtomicUsize,
}

#[derive(Debug)]
struct Group {
    epoll: Epoll,
    cores: CpuSet,
}

/// The group of a thread, and what the thread knows of its core.
#[derive(Debug, Default)]
pub(super) struct ThreadGroup {
    number: GroupNumber,
    /// The connection of the thread's last event from the lane's own epoll instance. It joins the
    /// groups when the thread has handled the event.
    joining: Option<(u32, u32)>,
    messages: u32,
    misplaced_checks: u32,
}

impl CoreGroups {
    /// Creates the groups of a lane with this number of threads. Returns `None` if the threads may
    /// use one core only.
    pub(super) fn new(threads: usize, lane: &Epoll, wake: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let usable: Vec<usize> = thread::affinity(None)?.iter().collect();
        Self::of_cores(&usable, threads, lane, wake)
    }

    fn of_cores(usable: &[usize], threads: usize, lane: &Epoll, wake: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let count = usable.len().min(threads).min(MAX_GROUPS);
        if count < 2 {
            return Ok(None);
        }
        let create = |number| {
            let epoll = Epoll::new()?;
            // Level-triggered: a thread takes one event at a time from the lane's epoll instance.
            epoll.add(lane.as_fd(), LANE, Interest::READABLE)?;
            epoll.add(wake, WAKE, Interest::READABLE | Interest::EDGE | Interest::EXCLUSIVE)?;
            let cores = usable[number * usable.len() / count..(number + 1) * usable.len() / count].iter().copied();
            Ok(Group { epoll, cores: cores.collect() })
        };
        let groups = (0..count).map(create).collect::<io::Result<_>>()?;
        Ok(Some(CoreGroups { groups, started_threads: AtomicUsize::new(0) }))
    }

    /// Returns the group of the calling thread, which begins to serve the lane, and moves the
    /// thread to a core of the group.
    pub(super) fn enter(&self) -> ThreadGroup {
        // Relaxed: only the number matters.
        let index = self.started_threads.fetch_add(1, Ordering::Relaxed) % self.groups.len();
        self.groups[index].attract_thread();
        ThreadGroup { number: number_of(index), ..ThreadGroup::default() }
    }

    fn group(&self, thread: &ThreadGroup) -> &Group {
        // A thread that has not entered the lane, for example one in a nested wait, may wait in any
        // group: each of them has all events.
        &self.groups[usize::from(thread.number.saturating_sub(1)).min(self.groups.len() - 1)]
    }

    pub(super) fn readiness(&self, thread: &ThreadGroup) -> BorrowedFd<'_> {
        self.group(thread).epoll.as_fd()
    }

    fn number_of_core(&self, core: usize) -> Option<GroupNumber> {
        self.groups.iter().position(|group| group.cores.contains(core)).map(number_of)
    }

    /// Watches input in all groups, beginning with `first`. After a failure no group watches it.
    fn watch(&self, first: GroupNumber, readiness: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let input = Interest::READABLE | Interest::EDGE | Interest::EXCLUSIVE;
        let start = usize::from(first.saturating_sub(1));
        let in_order = self.groups.iter().cycle().skip(start).take(self.groups.len());
        let watched: io::Result<()> = in_order.map(|group| group.epoll.add(readiness, token, input)).collect();
        if watched.is_err() {
            self.unwatch(readiness);
        }
        watched
    }

    pub(super) fn unwatch(&self, readiness: BorrowedFd<'_>) {
        for group in &self.groups {
            // It fails if the group does not watch the descriptor.
            let _ = group.epoll.remove(readiness);
        }
    }
}

impl Group {
    /// Moves the calling thread to a core of the group. The kernel may move the thread on later.
    fn attract_thread(&self) {
        let Ok(before) = thread::affinity(None) else { return };
        let cores: CpuSet = self.cores.iter().filter(|core| before.contains(*core)).collect();
        // A failure leaves the thread where it is.
        if cores.iter().next().is_some() && thread::set_affinity(None, &cores).is_ok() {
            let _ = thread::set_affinity(None, &before);
        }
    }
}

fn number_of(index: usize) -> GroupNumber {
    GroupNumber::try_from(index + 1).unwrap_or(1)
}

impl<S: Architecture<S>> Lane<S> {
    /// Waits for an event, for at most `timeout`; `None` means no limit.
    pub(super) fn next_event_in_group(
        &self,
        groups: &CoreGroups,
        thread: &mut ThreadGroup,
        timeout: Option<Duration>,
    ) -> io::Result<Option<EpollEvent>> {
        let mut events = [EpollEvent::EMPTY; 1];
        thread.joining = None;
        if groups.group(thread).epoll.wait(&mut events, timeout)? == 0 {
            return Ok(None);
        }
        if events[0].token() != LANE {
            if events[0].token() & LISTENER == 0 {
                self.check_core(groups, thread, handle_of(events[0].token()));
            }
            return Ok(Some(events[0]));
        }
        // Another thread may have taken the event.
        if self.epoll.wait(&mut events, Some(Duration::ZERO))? == 0 {
            return Ok(None);
        }
        if events[0].token() & LISTENER == 0 && events[0].is_readable() {
            thread.joining = Some(handle_of(events[0].token()));
        }
        Ok(Some(events[0]))
    }

    /// Lets the groups watch the connection whose event the thread has handled, if it came from the
    /// lane's own epoll instance.
    #[inline]
    pub(super) fn join_groups(&self, worker: &mut Worker) {
        if let Some(handle) = worker.group.joining.take()
            && let Some(groups) = self.core_groups()
            && let Some(connection) = self.connections.get(handle.0, handle.1)
        {
            self.watch_in_groups(groups, &worker.group, &connection);
        }
    }

    /// Lets the groups watch the input of the connection in place of the lane's own epoll instance.
    /// The first group is that of the peer's core or, if this is not known, that of the calling
    /// thread. Returns false if the connection is congested or has no descriptor.
    pub(super) fn watch_in_groups(&self, groups: &CoreGroups, thread: &ThreadGroup, connection: &Connection) -> bool {
        let Some(readiness) = connection.stream.readiness_descriptor() else { return false };
        let peers = connection.stream.incoming_core().and_then(|core| groups.number_of_core(core));
        let first = peers.unwrap_or(thread.number.max(1));
        let token = token_of(connection.handle);
        let watch = || {
            if connection.is_congested() {
                return Ok(false);
            }
            groups.unwatch(readiness);
            self.epoll.modify(readiness, token, Interest::HANG_UP | Interest::EDGE)?;
            // The groups report input that has arrived before.
            let watched = groups.watch(first, readiness, token);
            if watched.is_err() {
                self.epoll.modify(readiness, token, interest(false))?;
            }
            connection.first_group.store(if watched.is_ok() { first } else { 0 }, Ordering::Relaxed);
            Ok(watched.is_ok())
        };
        // The lock keeps the flag for congestion from changing.
        connection.with_output_locked(watch).unwrap_or_else(|_: io::Error| {
            connection.close();
            false
        })
    }

    /// Ends the watching by the groups. The caller decides what the lane's own epoll instance
    /// watches. Returns true if the groups watched the connection.
    pub(super) fn unwatch_in_groups(&self, connection: &Connection) -> bool {
        let Some(groups) = self.core_groups() else { return false };
        if connection.first_group.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        if let Some(readiness) = connection.stream.readiness_descriptor() {
            groups.unwatch(readiness);
        }
        true
    }

    /// Compares the core of the thread with the peer's core in some messages, when the last packet
    /// is the peer's. Makes the peer's group the first for the connection, and moves a thread that
    /// serves this group from elsewhere.
    #[inline]
    fn check_core(&self, groups: &CoreGroups, thread: &mut ThreadGroup, handle: (u32, u32)) {
        thread.messages = thread.messages.wrapping_add(1);
        if thread.messages.is_multiple_of(MESSAGES_PER_CHECK) {
            self.compare_cores(groups, thread, handle);
        }
    }

    #[cold]
    fn compare_cores(&self, groups: &CoreGroups, thread: &mut ThreadGroup, handle: (u32, u32)) {
        let Some(connection) = self.connections.get(handle.0, handle.1) else { return };
        let Some(core) = connection.stream.incoming_core() else { return };
        let Some(number) = groups.number_of_core(core) else { return };
        let first = connection.first_group.load(Ordering::Relaxed);
        if first != 0 && first != number {
            self.watch_in_groups(groups, thread, &connection);
        }
        let is_misplaced = number == thread.number
            && thread::current_core().is_some_and(|own| groups.number_of_core(own) != Some(number));
        thread.misplaced_checks = if is_misplaced { thread.misplaced_checks + 1 } else { 0 };
        if thread.misplaced_checks >= CHECKS_BEFORE_MOVE {
            thread.misplaced_checks = 0;
            groups.group(thread).attract_thread();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicI32;
    use std::time::Instant;

    use corelane_sys::eventfd::EventFd;

    use super::*;

    const INPUT: u64 = 7;
    const PATIENCE: Duration = Duration::from_secs(60);

    fn four_groups(lane: &Epoll, wake: &EventFd) -> CoreGroups {
        CoreGroups::of_cores(&[0, 1, 2, 3], 4, lane, wake.as_fd()).unwrap().unwrap()
    }

    /// Waits in a group, and returns the token of the event.
    fn token_in(groups: &CoreGroups, number: GroupNumber, waiter: &AtomicI32) -> Option<u64> {
        let thread = ThreadGroup { number, ..ThreadGroup::default() };
        waiter.store(thread::current_tid().as_raw(), Ordering::Release);
        let mut events = [EpollEvent::EMPTY; 1];
        (groups.group(&thread).epoll.wait(&mut events, Some(PATIENCE)).unwrap() > 0).then(|| events[0].token())
    }

    fn await_sleep(waiter: &AtomicI32) {
        let begun = Instant::now();
        let sleeps = || match waiter.load(Ordering::Acquire) {
            0 => false,
            id => std::fs::read_to_string(format!("/proc/self/task/{id}/stat"))
                .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))),
        };
        while !sleeps() {
            assert!(begun.elapsed() < PATIENCE, "the thread does not sleep");
            std::thread::yield_now();
        }
    }

    #[test]
    fn arrival_wakes_a_thread_of_the_first_group() {
        for first in 1..=4 {
            let (lane, wake) = (Epoll::new().unwrap(), EventFd::new().unwrap());
            let groups = four_groups(&lane, &wake);
            let (mut peer, server) = UnixStream::pair().unwrap();
            groups.watch(first, server.as_fd(), INPUT).unwrap();
            let waiters: [AtomicI32; 4] = Default::default();
            let (groups, all) = (&groups, &waiters);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (1..=4)
                    .map(|number: GroupNumber| {
                        scope.spawn(move || token_in(groups, number, &all[usize::from(number) - 1]))
                    })
                    .collect();
                all.iter().for_each(await_sleep);
                peer.write_all(b"x").unwrap();
                let mut threads: Vec<_> = threads.into_iter().map(Some).collect();
                let woken = threads[usize::from(first) - 1].take().unwrap();
                assert_eq!(woken.join().unwrap(), Some(INPUT));
                // The other threads have seen nothing. Each wake-up ends the wait of one of them.
                for _ in 1..threads.len() {
                    all.iter()
                        .zip(&threads)
                        .filter(|(_, thread)| thread.as_ref().is_some_and(|t| !t.is_finished()))
                        .for_each(|(waiter, _)| await_sleep(waiter));
                    wake.notify();
                    let begun = Instant::now();
                    let ended = loop {
                        let ended = threads.iter().position(|thread| thread.as_ref().is_some_and(|t| t.is_finished()));
                        if let Some(ended) = ended {
                            break ended;
                        }
                        assert!(begun.elapsed() < PATIENCE, "no thread wakes");
                        std::thread::yield_now();
                    };
                    assert_eq!(threads[ended].take().unwrap().join().unwrap(), Some(WAKE));
                }
            });
        }
    }

    #[test]
    fn arrival_wakes_a_thread_of_another_group_if_none_waits_in_the_first() {
        for (first, waiting) in [(1, 4), (4, 1), (2, 3)] {
            let (lane, wake) = (Epoll::new().unwrap(), EventFd::new().unwrap());
            let groups = four_groups(&lane, &wake);
            let (mut peer, server) = UnixStream::pair().unwrap();
            groups.watch(first, server.as_fd(), INPUT).unwrap();
            let waiter = AtomicI32::new(0);
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| token_in(&groups, waiting, &waiter));
                await_sleep(&waiter);
                peer.write_all(b"x").unwrap();
                assert_eq!(thread.join().unwrap(), Some(INPUT));
            });
        }
    }

    #[test]
    fn input_that_arrived_while_no_thread_waited_is_in_each_group() {
        let (lane, wake) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let groups = four_groups(&lane, &wake);
        let (mut peer, server) = UnixStream::pair().unwrap();
        groups.watch(3, server.as_fd(), INPUT).unwrap();
        peer.write_all(b"x").unwrap();
        for number in 1..=4 {
            assert_eq!(token_in(&groups, number, &AtomicI32::new(0)), Some(INPUT), "group {number}");
        }
    }

    #[test]
    fn every_group_reports_the_events_of_the_lane() {
        let (lane, wake) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let groups = four_groups(&lane, &wake);
        let (mut peer, server) = UnixStream::pair().unwrap();
        lane.add(server.as_fd(), INPUT, Interest::READABLE | Interest::EDGE).unwrap();
        peer.write_all(b"x").unwrap();
        for number in 1..=4 {
            assert_eq!(token_in(&groups, number, &AtomicI32::new(0)), Some(LANE), "group {number}");
        }
    }

    #[test]
    fn cores_are_shared_out_among_the_groups() {
        let (lane, wake) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let cores_of = |cores: &[usize], threads| {
            let groups = CoreGroups::of_cores(cores, threads, &lane, wake.as_fd()).unwrap();
            groups.map(|groups| groups.groups.iter().map(|group| group.cores.iter().collect()).collect::<Vec<Vec<_>>>())
        };
        assert_eq!(cores_of(&[3], 4), None);
        assert_eq!(cores_of(&[0, 1], 4), Some(vec![vec![0], vec![1]]));
        assert_eq!(cores_of(&[0, 2, 4, 6, 8], 2), Some(vec![vec![0, 2], vec![4, 6, 8]]));
        let many: Vec<usize> = (0..64).collect();
        assert_eq!(cores_of(&many, 100).unwrap().len(), MAX_GROUPS);
    }
}
