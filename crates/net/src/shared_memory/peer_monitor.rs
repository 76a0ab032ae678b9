//! The peer monitor: wakes threads that sleep on a connection whose peer has ended.
//!
//! A thread of the transport, `net/peers`, watches the sockets of all connections, so that waiting
//! threads need not wake up periodically. The thread ends with the last connection, or earlier when
//! the last ORB that used the transport [detaches](crate::Transport::detach_orb).
//!
//! The thread runs at the highest fixed priority of the threads that have slept on its connections,
//! if any had one. So these threads learn in time that a peer is dead.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, Mutex, PiMutex};
use corelane_sys::process;
use corelane_sys::ring::RingPair;
use corelane_sys::thread::{self, JoinHandle, Scheduling, ThreadBuilder, Tid};

#[derive(Debug)]
pub(super) struct PeerState {
    pub(super) rings: RingPair,
    /// Set when the socket has reported a hang-up, and at the end of the monitor. Never cleared.
    must_check: AtomicBool,
    asleep: AtomicU32,
}

impl PeerState {
    pub(super) fn new(rings: RingPair) -> Arc<Self> {
        Arc::new(PeerState { rings, must_check: AtomicBool::new(false), asleep: AtomicU32::new(0) })
    }

    /// Returns true if the calling thread must check by itself whether the peer has ended. A thread
    /// calls this function before it sleeps, after it has set its wake method.
    pub(super) fn must_check_peer(&self) -> bool {
        // Sequentially consistent: either this load sees the flag of `request_check`, or the
        // monitor sees the thread's request to be woken.
        self.must_check.load(Ordering::SeqCst)
    }

    /// Counts the calling thread as asleep. The thread calls this function before it checks
    /// [`must_check_peer`](Self::must_check_peer).
    #[inline]
    pub(super) fn begin_sleep(&self) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn end_sleep(&self) {
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn request_check(&self) {
        self.must_check.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.rings.reader().unpark();
        self.rings.writer().unpark();
    }

    /// Returns true if a thread counts as asleep. A wake-up can be in vain, because a hostile peer
    /// can restore the word on which the thread sleeps. So the monitor repeats the wake-up while
    /// the result is true.
    fn is_any_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst) > 0
    }
}

#[derive(Clone, Debug)]
pub(super) struct PeerMonitor(Arc<PiMutex<MonitorUsers>>);

#[derive(Debug, Default)]
struct MonitorUsers {
    orbs: usize,
    forks: u64,
    watch: Weak<MonitorThread>,
}

impl Default for PeerMonitor {
    fn default() -> Self {
        PeerMonitor(Arc::new(PiMutex::new("users of the peer monitor", LockScope::Orb, MonitorUsers::default())))
    }
}

impl PeerMonitor {
    /// Returns the running thread, or starts one. `None` if no thread can be started. A forked
    /// child does not have its parent's thread, so it starts another one.
    fn start(&self) -> Option<Arc<MonitorThread>> {
        let mut current = self.0.lock();
        let is_there = |watch: &Arc<MonitorThread>| {
            watch.forks == process::fork_generation() && !watch.shared.stop.load(Ordering::Acquire)
        };
        if let Some(watch) = current.watch.upgrade().filter(is_there) {
            return Some(watch);
        }
        let started = Arc::new(MonitorThread::start().ok()?);
        current.watch = Arc::downgrade(&started);
        Some(started)
    }

    pub(super) fn attach_orb(&self) {
        let mut used = self.0.lock();
        if used.forks != process::fork_generation() {
            // The ORBs counted so far belong to the parent process, so a forked child begins at 0.
            (used.orbs, used.forks) = (0, process::fork_generation());
        }
        used.orbs += 1;
    }

    /// After the last ORB, ends the thread and waits for its end. Threads that sleep on the
    /// remaining connections then check their peers by themselves.
    pub(super) fn detach_orb(&self) {
        let mut used = self.0.lock();
        used.orbs = used.orbs.saturating_sub(1);
        if used.orbs > 0 {
            return;
        }
        let current = std::mem::take(&mut used.watch);
        drop(used);
        if let Some(watch) = current.upgrade() {
            watch.stop();
        }
    }
}

/// A connection that the monitor watches. [`unregister`](Self::unregister) ends the watch before
/// the connection's descriptor is closed.
#[derive(Debug)]
pub(super) struct MonitoredPeer {
    watch: Arc<MonitorThread>,
    token: u64,
}

impl MonitoredPeer {
    pub(super) fn new(fd: BorrowedFd<'_>, ends: &Arc<PeerState>, watching: &PeerMonitor) -> Option<Self> {
        let watch = watching.start()?;
        let token = {
            let mut state = watch.shared.peers.lock();
            state.next += 1;
            let token = state.next;
            state.all.insert(token, Arc::downgrade(ends));
            token
        };
        let watched = MonitoredPeer { watch, token };
        // If the peer has already hung up, the kernel reports the hang-up at once, so no hang-up is
        // missed.
        let added = watched.watch.shared.epoll.add(fd, token, Interest::HANG_UP | Interest::EDGE);
        if watched.watch.shared.stop.load(Ordering::Acquire) {
            // The connection was added while the monitor was stopping, so the monitor may have
            // missed it.
            ends.request_check();
        }
        if added.is_err() {
            watched.watch.shared.peers.lock().all.remove(&token);
            return None;
        }
        Some(watched)
    }

    /// Raises the monitor to the priority of the calling thread, which is about to sleep.
    #[inline]
    pub(super) fn match_caller_priority(&self) {
        let wanted = thread::native_priority();
        if wanted > self.watch.shared.priority.load(Ordering::Relaxed) {
            self.watch.shared.raise_priority(wanted);
        }
    }

    pub(super) fn unregister(self, fd: BorrowedFd<'_>) {
        self.watch.shared.peers.lock().all.remove(&self.token);
        // The call fails only if the descriptor is no longer watched, which is harmless.
        let _ = self.watch.shared.epoll.remove(fd);
    }
}

#[derive(Debug)]
struct MonitorThread {
    shared: Arc<PeerMonitorShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    forks: u64,
}

#[derive(Debug)]
struct PeerMonitorShared {
    epoll: Epoll,
    wake: EventFd,
    stop: AtomicBool,
    /// Fixed priority of the monitor's thread; 0 for the ordinary class. Changed under the lock
    /// `peers`.
    priority: AtomicU8,
    thread: OnceLock<Tid>,
    peers: PiMutex<MonitoredPeers>,
}

#[derive(Debug, Default)]
struct MonitoredPeers {
    next: u64,
    all: HashMap<u64, Weak<PeerState>>,
}

const WAKE_TOKEN: u64 = 0;
/// Interval at which the monitor repeats the wake-up of a thread that still counts as asleep.
const REWAKE_INTERVAL: Duration = Duration::from_millis(1);
const MAX_FINAL_WAKE_UPS: usize = 100;

impl MonitorThread {
    fn start() -> io::Result<Self> {
        let (epoll, wake) = (Epoll::new()?, EventFd::new()?);
        epoll.add(wake.as_fd(), WAKE_TOKEN, Interest::READABLE)?;
        let list = Arc::new(PeerMonitorShared {
            epoll,
            wake,
            stop: AtomicBool::new(false),
            priority: AtomicU8::new(0),
            thread: OnceLock::new(),
            peers: PiMutex::new("connections of shared memory", LockScope::Orb, MonitoredPeers::default()),
        });
        let run = Arc::clone(&list);
        // The thread starts with the priority of its creator, which may be a lane's thread, and
        // then lowers its own priority.
        let builder = ThreadBuilder::new().name("net/peers").stack_size(128 * 1024);
        let thread = builder.spawn(move || run.run())?;
        let thread = Mutex::new("thread of shared memory", LockScope::Orb, Some(thread));
        Ok(MonitorThread { shared: list, thread, forks: process::fork_generation() })
    }

    fn stop(&self) {
        if self.forks != process::fork_generation() {
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.notify();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for MonitorThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl PeerMonitorShared {
    /// Raises the monitor's thread to the fixed priority `wanted`, unless it has a higher one. If
    /// the system refuses the priority, the thread keeps its own.
    #[cold]
    fn raise_priority(&self, wanted: u8) {
        // The lock makes sure that the last caller applies the highest priority.
        let _state = self.peers.lock();
        self.priority.fetch_max(wanted, Ordering::SeqCst);
        self.apply_priority(self.thread.get().copied());
    }

    fn apply_priority(&self, thread: Option<Tid>) {
        let priority = self.priority.load(Ordering::SeqCst);
        if let Some(tid) = thread
            && priority > 0
        {
            let _ = thread::set_scheduling(Some(tid), Scheduling::Fifo(priority));
        }
    }

    fn run(&self) {
        {
            let _state = self.peers.lock();
            let own = thread::current_tid();
            let _ = self.thread.set(own);
            // The call cannot fail: the kernel permits every thread to leave a real-time class.
            let _ = thread::set_scheduling(None, Scheduling::Other);
            self.apply_priority(Some(own));
        }
        self.monitor();
        // No hang-up is reported from here on, so every sleeping thread is woken, and then checks
        // by itself whether its peer has ended.
        let mut all: Vec<Arc<PeerState>> = self.peers.lock().all.values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|ends| ends.request_check());
        for _ in 0..MAX_FINAL_WAKE_UPS {
            wake_again(&mut all);
            if all.is_empty() {
                break;
            }
            std::thread::sleep(REWAKE_INTERVAL);
        }
    }

    fn monitor(&self) {
        let mut events = [EpollEvent::EMPTY; 16];
        // Connections whose hang-up was reported and on which a thread may sleep in spite of the
        // wake-up.
        let mut hung_up: Vec<Arc<PeerState>> = Vec::new();
        loop {
            let time = (!hung_up.is_empty()).then_some(REWAKE_INTERVAL);
            let Ok(count) = self.epoll.wait(&mut events, time) else { break };
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            wake_again(&mut hung_up);
            for event in &events[..count] {
                let ends = self.peers.lock().all.get(&event.token()).and_then(Weak::upgrade);
                if let Some(ends) = ends {
                    ends.request_check();
                    hung_up.extend(ends.is_any_asleep().then_some(ends));
                }
            }
        }
    }
}

/// Wakes the threads that may sleep on these connections, and removes connections on which no
/// thread sleeps from the list.
fn wake_again(hung_up: &mut Vec<Arc<PeerState>>) {
    hung_up.retain(|ends| {
        let is_any_asleep = ends.is_any_asleep();
        if is_any_asleep {
            ends.wake();
        }
        is_any_asleep
    });
}

#[cfg(test)]
mod tests {
    use corelane_sys::clock::Monotonic;
    use corelane_sys::ring::{ParkResult, RingSizes, WakeMethod};
    use corelane_sys::socket;

    use super::*;

    fn watched(watching: &PeerMonitor) -> (std::os::fd::OwnedFd, Arc<PeerState>, MonitoredPeer) {
        let sizes = RingSizes::at_least(4096, 4096);
        let (rings, _memory) = RingPair::create(sizes).unwrap();
        let (fd, _other) = socket::pair().unwrap();
        let ends = PeerState::new(rings);
        let watched = MonitoredPeer::new(fd.as_fd(), &ends, watching).unwrap();
        (fd, ends, watched)
    }

    #[test]
    fn one_monitor_thread_serves_all_connections_and_ends_with_the_last() {
        let watching = PeerMonitor::default();
        let ((first, _, one), (second, _, other)) = (watched(&watching), watched(&watching.clone()));
        assert!(Arc::ptr_eq(&one.watch, &other.watch));
        let (elsewhere, _, alone) = watched(&PeerMonitor::default());
        assert!(!Arc::ptr_eq(&one.watch, &alone.watch));
        let list = Arc::clone(&one.watch.shared);
        one.unregister(first.as_fd());
        assert!(Arc::strong_count(&list) > 2);
        other.unregister(second.as_fd());
        assert_eq!(Arc::strong_count(&list), 1, "expected that the monitor's thread has been joined");
        alone.unregister(elsewhere.as_fd());
    }

    #[test]
    fn connection_that_epoll_refuses_leaves_no_entry() {
        let watching = PeerMonitor::default();
        let (fd, ends, watched) = watched(&watching);
        let entries = || watched.watch.shared.peers.lock().all.len();
        assert_eq!(entries(), 1);
        // The kernel cannot watch a regular file.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(MonitoredPeer::new(file.as_fd(), &ends, &watching).is_none());
        assert_eq!(entries(), 1);
        watched.unregister(fd.as_fd());
    }

    #[test]
    fn last_orb_joins_the_monitor_and_wakes_sleepers() {
        let watching = PeerMonitor::default();
        watching.attach_orb();
        watching.clone().attach_orb();
        let sizes = RingSizes::at_least(4096, 4096);
        let (rings, _memory) = RingPair::create(sizes).unwrap();
        let (fd, _peer) = socket::pair().unwrap();
        let ends = PeerState::new(rings);
        let left = MonitoredPeer::new(fd.as_fd(), &ends, &watching).unwrap();
        assert!(!ends.must_check_peer());
        let list = Arc::clone(&left.watch.shared);
        watching.detach_orb();
        assert!(
            !ends.must_check_peer() && Arc::strong_count(&list) > 2,
            "expected that the monitor runs while another ORB uses it"
        );
        watching.detach_orb();
        assert!(
            ends.must_check_peer() && Arc::strong_count(&list) == 2,
            "expected that the monitor's thread has been joined"
        );
        let (other, _, next) = watched(&watching);
        assert!(!Arc::ptr_eq(&next.watch, &left.watch));
        next.unregister(other.as_fd());
        left.unregister(fd.as_fd());
    }

    #[test]
    fn wake_up_undone_by_the_peer_is_repeated() {
        let watching = PeerMonitor::default();
        let sizes = RingSizes::at_least(4096, 4096);
        let (rings, _memory) = RingPair::create(sizes).unwrap();
        let (fd, peer) = socket::pair().unwrap();
        let ends = PeerState::new(rings);
        let watched = MonitoredPeer::new(fd.as_fd(), &ends, &watching).unwrap();
        ends.begin_sleep();
        ends.rings.reader().set_wake_method(WakeMethod::Futex);
        assert!(!ends.must_check_peer());
        drop(peer);
        let end = Monotonic::now() + Duration::from_secs(60);
        while !ends.must_check_peer() {
            assert!(!end.is_past(), "expected that the monitor reports the end of the socket");
            std::thread::yield_now();
        }
        let woken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !woken.load(Ordering::SeqCst) {
                    ends.rings.reader().set_wake_method(WakeMethod::Futex);
                }
            });
            let result = ends.rings.reader().park(Some(Duration::from_secs(60)));
            woken.store(true, Ordering::SeqCst);
            assert_eq!(result, ParkResult::Woken);
        });
        ends.end_sleep();
        watched.unregister(fd.as_fd());
    }

    #[test]
    fn monitor_takes_the_highest_priority_of_the_sleepers() {
        let watching = PeerMonitor::default();
        let (fd, _ends, watched) = watched(&watching);
        let found = || loop {
            if let Some(tid) = watched.watch.shared.thread.get() {
                return thread::scheduling(Some(*tid)).unwrap();
            }
            std::thread::yield_now();
        };
        watched.match_caller_priority();
        assert_eq!(found(), Scheduling::Other);
        for (priority, expected) in [(3, 3), (7, 7), (5, 7)] {
            let sleeps = || {
                thread::set_scheduling(None, Scheduling::Fifo(priority))
                    .map(|()| watched.match_caller_priority())
                    .is_ok()
            };
            let asked = std::thread::scope(|scope| scope.spawn(sleeps).join().unwrap());
            assert!(!asked || found() == Scheduling::Fifo(expected), "{:?}", found());
        }
        watched.unregister(fd.as_fd());
    }
}
