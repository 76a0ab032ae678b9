//! Core groups: the threads of a leader/followers lane wait in several epoll instances, one for
//! each group of cores, so that a request is served on the core where it arrived
//! (docs/decisions/0027-requests-are-served-where-they-arrive.md).
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

use corelane_sys::epoll::{Epoll, Interest};
use corelane_sys::kernel_release;
use corelane_sys::thread::{self, CpuSet};

use super::connection::GroupNumber;

/// Token of the descriptor that wakes a thread for a task.
pub(super) const WAKE: u64 = u64::MAX;
/// Token of the lane's own epoll instance in a group. No connection has it.
pub(super) const LANE: u64 = u64::MAX - 1;
/// Maximum number of groups. The kernel holds an entry for a connection in each group.
const MAX_GROUPS: usize = 8;

#[derive(Debug)]
pub(super) struct CoreGroups {
    groups: Vec<Group>,
    started_threads: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) epoll: Epoll,
    cores: CpuSet,
}

/// The group of a thread, and its counts of successive checks in which its own core, or the core of
/// a peer, was in another group than expected.
#[derive(Debug, Default)]
pub(super) struct ThreadGroup {
    pub(super) number: GroupNumber,
    /// A connection that the groups are to watch when the thread has handled its event.
    pub(super) joining: Option<(u32, u32)>,
    pub(super) events: u32,
    pub(super) misplaced_checks: u32,
    pub(super) misdirected_checks: u32,
    /// The cores on which the thread was permitted to run when it entered the lane. `None` if the
    /// thread must not move.
    permitted: Option<CpuSet>,
}

impl CoreGroups {
    /// Creates the groups of a lane with this number of threads. Returns `None` if the threads may
    /// use one core only, or if the kernel may wake the same thread for two arrivals.
    pub(super) fn new(threads: usize, lane: &Epoll, wake: BorrowedFd<'_>) -> Option<Self> {
        // Before Linux 6.18, two arrivals at the same time may wake the same thread. One of the two
        // requests then waits for this thread, even if a thread of another group is idle.
        let usable: Vec<usize> = match kernel_release::is_at_least(6, 18) {
            // Unit tests need groups on every machine.
            _ if cfg!(test) => vec![0, 1],
            true => thread::affinity(None).ok()?.iter().collect(),
            false => return None,
        };
        // The lane also works without groups, so an error is not reported.
        Self::of_cores(&usable, threads, lane, wake).ok()?
    }

    fn of_cores(usable: &[usize], threads: usize, lane: &Epoll, wake: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let count = usable.len().min(threads).min(MAX_GROUPS);
        if count < 2 {
            return Ok(None);
        }
        let create = |number| {
            let epoll = Epoll::new()?;
            // A thread takes one event at a time from the lane's epoll instance. This entry is
            // level-triggered, so that the other events are reported again.
            epoll.add(lane.as_fd(), LANE, Interest::READABLE)?;
            epoll.add(wake, WAKE, Interest::READABLE | Interest::EDGE | Interest::EXCLUSIVE)?;
            let cores = usable[number * usable.len() / count..(number + 1) * usable.len() / count].iter().copied();
            Ok(Group { epoll, cores: cores.collect() })
        };
        let groups = (0..count).map(create).collect::<io::Result<_>>()?;
        Ok(Some(CoreGroups { groups, started_threads: AtomicUsize::new(0) }))
    }

    /// Assigns a group to the calling thread, which begins to serve the lane, and moves the thread
    /// to a core of the group. Returns the group.
    pub(super) fn enter(&self) -> ThreadGroup {
        // Relaxed: the number publishes no other data.
        let index = self.started_threads.fetch_add(1, Ordering::Relaxed) % self.groups.len();
        let permitted = thread::affinity(None).ok();
        let mut entered = ThreadGroup { number: number_of(index), permitted, ..ThreadGroup::default() };
        self.attract(&mut entered);
        entered
    }

    /// Moves the calling thread to a core of its group. The kernel may move the thread away later.
    /// If the program has changed the thread's cores, the thread never moves again.
    pub(super) fn attract(&self, thread: &mut ThreadGroup) {
        thread.permitted = thread.permitted.filter(|permitted| thread::affinity(None).ok() == Some(*permitted));
        let Some(permitted) = thread.permitted else { return };
        let cores: CpuSet = self.group(thread).cores.iter().filter(|core| permitted.contains(*core)).collect();
        // A failure leaves the thread where it is.
        if !cores.is_empty() && thread::set_affinity(None, &cores).is_ok() {
            let _ = thread::set_affinity(None, &permitted);
        }
    }

    pub(super) fn group(&self, thread: &ThreadGroup) -> &Group {
        // A thread that has not entered the lane, for example one in a nested wait, may wait in any
        // group: each of them has all events.
        &self.groups[usize::from(thread.number.saturating_sub(1))]
    }

    pub(super) fn readiness(&self, thread: &ThreadGroup) -> BorrowedFd<'_> {
        self.group(thread).epoll.as_fd()
    }

    pub(super) fn number_of_core(&self, core: usize) -> Option<GroupNumber> {
        self.groups.iter().position(|group| group.cores.contains(core)).map(number_of)
    }

    /// Lets all groups watch the input of a descriptor, beginning with `first`. After a failure no
    /// group watches the descriptor.
    pub(super) fn watch(&self, first: GroupNumber, readiness: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let input = Interest::READABLE | Interest::EDGE | Interest::EXCLUSIVE;
        let start = usize::from(first.saturating_sub(1));
        let in_order = self.groups.iter().cycle().skip(start).take(self.groups.len());
        let watched = { in_order }.try_for_each(|group| group.epoll.add(readiness, token, input));
        if watched.is_err() {
            self.unwatch(readiness);
        }
        watched
    }

    pub(super) fn unwatch(&self, readiness: BorrowedFd<'_>) {
        for group in &self.groups {
            // The removal fails if the group does not watch the descriptor, so an error is ignored.
            let _ = group.epoll.remove(readiness);
        }
    }
}

fn number_of(index: usize) -> GroupNumber {
    GroupNumber::try_from(index + 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicI32;
    use std::time::{Duration, Instant};

    use corelane_sys::epoll::EpollEvent;
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
                let others = threads.iter().flatten();
                assert!(others.clone().all(|thread| !thread.is_finished()), "the arrival woke another thread");
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
