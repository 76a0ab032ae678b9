//! The hang-up monitor notices when servers close connections, so that the next request is not
//! written to a closed connection. Each ORB has one monitor thread.
//!
//! Monitoring makes each reply slower, because the kernel checks the epoll instance of the
//! connection. A caller that makes [`BUSY_CALLS`] calls within a [`USAGE_PERIOD`] therefore
//! suspends the monitoring of its connection, unless the connection's mode is [`PINNED`] or
//! [`ALWAYS`].

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::Stream;
use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, Mutex, PiMutex};
use corelane_sys::poll;
use corelane_sys::slab::{GenerationalSlab, RetireResult};
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling};

use crate::orb_context::OrbContext;

const STOP_TOKEN: u64 = u64::MAX;

/// Time between two samples of the number of calls on each unmonitored connection.
const USAGE_PERIOD: Duration = Duration::from_millis(50);

/// A connection with at least this number of calls in a [`USAGE_PERIOD`] is busy.
const BUSY_CALLS: u32 = 64;

/// A busy connection with fewer calls than this number in a [`USAGE_PERIOD`] is idle again.
const IDLE_CALLS: u32 = 16;

/// Number of calls after a oneway during which monitoring is not suspended.
const ONEWAY_COOLDOWN_CALLS: u32 = 1024;

const MONITORED: u8 = 0;
const UNMONITORED: u8 = 1;
/// Mode of a connection that is monitored because it recently carried a oneway.
const PINNED: u8 = 2;
/// Mode of a connection that is always monitored, or that has no descriptor to monitor.
const ALWAYS: u8 = 3;

/// Maximum time between two runs of the maintenance while the ORB keeps memory of large messages.
const SPARES_PERIOD: Duration = Duration::from_secs(1);

pub(crate) trait Maintained: Send + Sync {
    fn orb(&self) -> &OrbContext;

    /// Sends the oneway batches that are due. Returns the time at which to call this function
    /// again; `None` if no batch waits.
    fn send_batches(&self) -> Option<Monotonic>;

    fn run_maintenance(&self);
}

pub(crate) trait HangupHandler: Send + Sync {
    fn close_hung_up(&self, orb: &OrbContext);
}

pub(crate) struct HangupMonitor {
    shared: Arc<MonitorInner>,
    cores: Option<CpuSet>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct MonitorInner {
    stamp: u64,
    epoll: Epoll,
    wake: EventFd,
    stop: AtomicBool,
    maintained: OnceLock<(Weak<dyn Maintained>, Duration)>,
    entries: GenerationalSlab<MonitorEntry>,
    /// The slots and generations of the unmonitored connections in `entries`. The capacity suffices
    /// for all connections, so adding an entry allocates nothing. Threads suspend and resume
    /// monitoring under this lock.
    unmonitored: PiMutex<Vec<(u32, u32)>>,
}

struct MonitorEntry {
    state: Arc<StreamState>,
    owner: Weak<dyn HangupHandler>,
}

struct StreamState {
    stream: Box<dyn Stream>,
    hung_up: AtomicBool,
    /// Number of calls, wrapping. Stored `Relaxed` by the thread that has checked the connection
    /// out.
    calls: AtomicU32,
    /// Value of `calls` at the last sample. Valid while the connection is unmonitored. Stored and
    /// loaded `Relaxed`.
    sampled_calls: AtomicU32,
    /// Stored `Release` by the thread that has checked the connection out. The monitor's thread
    /// changes `UNMONITORED` to `MONITORED`.
    mode: AtomicU8,
}

pub(crate) struct MonitoredStream {
    state: Arc<StreamState>,
    entry: Option<(Arc<MonitorInner>, u32, u32)>,
    busy_since: Monotonic,
    /// Value of `calls` at the last oneway. Valid in the mode [`PINNED`].
    pinned_at: u32,
}

impl HangupMonitor {
    pub(crate) fn new(max_streams: u32, stamp: u64, cores: Option<CpuSet>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let wake = EventFd::new()?;
        epoll.add(std::os::fd::AsFd::as_fd(&wake), STOP_TOKEN, Interest::READABLE | Interest::EDGE)?;
        let entries = GenerationalSlab::new("monitored connections", LockScope::Orb, max_streams);
        let (stop, maintained) = (AtomicBool::new(false), OnceLock::new());
        let unmonitored = PiMutex::new("unmonitored connections", LockScope::Orb, Vec::new());
        let shared = Arc::new(MonitorInner { stamp, epoll, wake, stop, maintained, entries, unmonitored });
        Ok(HangupMonitor { shared, cores, thread: Mutex::new("monitor thread", LockScope::Orb, None) })
    }

    /// Monitors `stream`. The monitoring is never suspended if `always` is true, or if the stream
    /// does not report every arrival. A stream without a descriptor is not monitored.
    pub(crate) fn monitor(
        &self,
        stream: Box<dyn Stream>,
        owner: Weak<dyn HangupHandler>,
        always: bool,
    ) -> io::Result<MonitoredStream> {
        let always = always || stream.readiness_descriptor().is_none() || !stream.reports_every_arrival();
        let mode = AtomicU8::new(if always { ALWAYS } else { MONITORED });
        let (calls, sampled_calls) = (AtomicU32::new(0), AtomicU32::new(0));
        let state = Arc::new(StreamState { stream, hung_up: AtomicBool::new(false), calls, sampled_calls, mode });
        let mut monitored = MonitoredStream { state, entry: None, busy_since: crate::clock::now(), pinned_at: 0 };
        let Some(fd) = monitored.state.stream.readiness_descriptor() else { return Ok(monitored) };
        self.start()?;
        let entry = MonitorEntry { state: Arc::clone(&monitored.state), owner };
        let (slot, generation) =
            self.shared.entries.insert(entry).map_err(|full| io::Error::other(full.to_string()))?;
        let added = self.shared.add(fd, slot, generation);
        monitored.entry = Some((Arc::clone(&self.shared), slot, generation));
        added?;
        if !always {
            // Entries of `unmonitored` may belong to closed connections, so room for every live
            // connection is reserved in addition to these entries.
            let more = self.shared.entries.live_count();
            self.shared.unmonitored.lock().reserve(more);
        }
        Ok(monitored)
    }

    pub(crate) fn set_maintenance(&self, orb: Weak<dyn Maintained>, period: Duration) {
        let _ = self.shared.maintained.set((orb, period));
    }

    pub(crate) fn start(&self) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = thread::ThreadBuilder::new().name("orb/watch").stack_size(256 * 1024);
            let builder = builder.scheduling(Scheduling::Other).preferred_affinity(self.cores);
            *thread = Some(builder.spawn(move || shared.run())?);
        }
        Ok(())
    }

    pub(crate) fn wake(&self) {
        self.shared.wake.notify();
    }

    /// Stops the monitor thread, and stores a thread that ends at once in its place, so that the
    /// monitor starts no other thread.
    #[cfg(test)]
    pub(crate) fn replace_thread(&self) {
        self.stop();
        self.shared.stop.store(false, Ordering::Release);
        *self.thread.lock() = Some(thread::ThreadBuilder::new().spawn(|| ()).expect("a thread"));
    }

    pub(crate) fn request_stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.notify();
    }

    pub(crate) fn stop(&self) {
        self.request_stop();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl MonitorInner {
    fn run(&self) {
        crate::thread_context::set_owner(self.stamp);
        let mut events = [EpollEvent::EMPTY; 32];
        let mut maintained_at = Monotonic::now();
        let mut held: Option<Monotonic> = None;
        let mut round: Option<Monotonic> = None;
        while !self.stop.load(Ordering::Acquire) {
            let period = self.maintained.get().map(|(orb, period)| {
                let has_spares = orb.upgrade().is_some_and(|orb| orb.orb().spares().cached_bytes() > 0);
                if has_spares { SPARES_PERIOD.min(*period) } else { *period }
            });
            let moments = held.into_iter().chain(round).map(Monotonic::remaining);
            let timeout = period.into_iter().chain(moments).min();
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(error) => return self.report_failure(&error),
            };
            let maintained = self.maintained.get().and_then(|(orb, _)| orb.upgrade());
            if let Some(maintained) = &maintained {
                held = maintained.send_batches();
                if period.is_some_and(|period| maintained_at.elapsed() >= period) {
                    maintained.run_maintenance();
                    maintained_at = Monotonic::now();
                }
            }
            let due = round.is_some_and(Monotonic::is_past);
            if due || round.is_none() {
                round = self.resume_idle(due).then(|| Monotonic::now() + USAGE_PERIOD);
            }
            for event in &events[..count] {
                let (slot, generation) = ((event.token() >> 32) as u32, event.token() as u32);
                let Some(entry) = self.entries.get(slot, generation) else { continue };
                entry.state.hung_up.store(true, Ordering::Release);
                let owner = entry.owner.upgrade();
                drop(entry);
                if let (Some(owner), Some(maintained)) = (owner, &maintained) {
                    owner.close_hung_up(maintained.orb());
                }
            }
        }
    }

    /// If the usage period is over, resumes the monitoring of connections with few calls. Returns
    /// true if unmonitored connections remain.
    fn resume_idle(&self, over: bool) -> bool {
        let mut unmonitored = self.unmonitored.lock();
        if over {
            unmonitored.retain(|&(slot, generation)| {
                let Some(entry) = self.entries.get(slot, generation) else { return false };
                let total = entry.state.calls.load(Ordering::Relaxed);
                let calls = total.wrapping_sub(entry.state.sampled_calls.swap(total, Ordering::Relaxed));
                if calls < IDLE_CALLS {
                    self.resume(&entry.state, slot, generation);
                    entry.state.mode.store(MONITORED, Ordering::Release);
                }
                calls >= IDLE_CALLS
            });
        }
        !unmonitored.is_empty()
    }

    /// Adds the connection to the epoll instance again, and checks for a hang-up at once, because
    /// the kernel might report an earlier hang-up after the next request.
    fn resume(&self, state: &StreamState, slot: u32, generation: u32) {
        let Some(fd) = state.stream.readiness_descriptor() else { return };
        let is_watched = self.add(fd, slot, generation).is_ok();
        if !is_watched || poll::check_hang_up(fd).map_or(true, |ended| ended.is_read_closed) {
            state.hung_up.store(true, Ordering::Release);
        }
    }

    /// Adds a connection to the epoll instance. The kernel also reports hang-ups from before this
    /// call.
    fn add(&self, fd: BorrowedFd<'_>, slot: u32, generation: u32) -> io::Result<()> {
        let token = (u64::from(slot) << 32) | u64::from(generation);
        self.epoll.add(fd, token, Interest::HANG_UP | Interest::EDGE)
    }

    #[cold]
    fn report_failure(&self, error: &io::Error) {
        self.stop.store(true, Ordering::Release);
        if let Some(maintained) = self.maintained.get().and_then(|(orb, _)| orb.upgrade()) {
            maintained
                .orb()
                .events()
                .report(&crate::event::Event::ThreadFailed { message: format!("orb/watch: {error}") });
        }
    }
}

impl MonitoredStream {
    #[inline]
    pub(crate) fn stream(&self) -> &dyn Stream {
        &*self.state.stream
    }

    #[inline]
    pub(crate) fn has_hung_up(&self) -> bool {
        self.state.hung_up.load(Ordering::Acquire)
    }

    fn calls(&self) -> u32 {
        self.state.calls.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn is_unmonitored(&self) -> bool {
        self.state.mode.load(Ordering::Relaxed) == UNMONITORED
    }

    #[inline]
    pub(crate) fn count_call(&mut self) -> u32 {
        let calls = self.calls().wrapping_add(1);
        self.state.calls.store(calls, Ordering::Relaxed);
        if calls.is_multiple_of(BUSY_CALLS) {
            self.sample_usage(calls);
        }
        calls
    }

    #[cold]
    fn sample_usage(&mut self, calls: u32) {
        let mode = self.state.mode.load(Ordering::Relaxed);
        if mode == ALWAYS || mode == UNMONITORED {
            return;
        }
        let now = crate::clock::now();
        let since = std::mem::replace(&mut self.busy_since, now);
        if mode == PINNED {
            if calls.wrapping_sub(self.pinned_at) > ONEWAY_COOLDOWN_CALLS {
                self.state.mode.store(MONITORED, Ordering::Release);
            }
        } else if now.since(since) <= USAGE_PERIOD {
            self.suspend(calls);
        }
    }

    fn suspend(&self, calls: u32) {
        let (Some((shared, slot, generation)), Some(fd)) = (&self.entry, self.state.stream.readiness_descriptor())
        else {
            return;
        };
        let mut unmonitored = shared.unmonitored.lock();
        // If the monitor's thread has stopped or the kernel refuses, the connection stays
        // monitored.
        if shared.stop.load(Ordering::Acquire) || shared.epoll.remove(fd).is_err() {
            return;
        }
        // The calls before the suspension count in the current period, because a connection could
        // otherwise seem idle.
        self.state.sampled_calls.store(calls.wrapping_sub(BUSY_CALLS), Ordering::Relaxed);
        self.state.mode.store(UNMONITORED, Ordering::Release);
        if unmonitored.is_empty() {
            shared.wake.notify();
        }
        debug_assert!(unmonitored.len() < unmonitored.capacity(), "the list must have room for every connection");
        unmonitored.push((*slot, *generation));
    }

    #[inline]
    pub(crate) fn ensure_monitored(&mut self) -> bool {
        self.pinned_at = self.calls();
        match self.state.mode.load(Ordering::Acquire) {
            UNMONITORED => self.resume_pinned(),
            MONITORED => self.state.mode.store(PINNED, Ordering::Release),
            _ => {}
        }
        !self.has_hung_up()
    }

    #[cold]
    fn resume_pinned(&self) {
        let Some((shared, slot, generation)) = &self.entry else { return };
        let mut unmonitored = shared.unmonitored.lock();
        if self.state.mode.load(Ordering::Relaxed) == UNMONITORED {
            shared.resume(&self.state, *slot, *generation);
            unmonitored.retain(|one| one != &(*slot, *generation));
        }
        self.state.mode.store(PINNED, Ordering::Release);
    }
}

impl Drop for MonitoredStream {
    fn drop(&mut self) {
        if let Some((shared, slot, generation)) = self.entry.take() {
            // The kernel removes the descriptor from the epoll instance when the last holder of the
            // entry drops the stream.
            let _: RetireResult<_> = shared.entries.retire(slot, generation);
        }
    }
}

impl fmt::Debug for MonitoredStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonitoredStream").field("hung_up", &self.has_hung_up()).finish_non_exhaustive()
    }
}

impl fmt::Debug for HangupMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HangupMonitor").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd};
    use std::{fs, thread};

    use corelane_net::{Endpoint, TcpTransport, Transport};

    use super::*;
    use crate::client::pool::ConnectionPool;
    use crate::invocation::{Operation, call};
    use crate::policy::SyncScope;
    use crate::{Orb, clock};

    struct MonitorFixture {
        monitor: HangupMonitor,
        monitored: MonitoredStream,
        peer: TcpStream,
    }

    impl MonitorFixture {
        fn new(always: bool) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = Endpoint::tcp("127.0.0.1", listener.local_addr().unwrap().port());
            let stream = TcpTransport::new().connect(&endpoint, None).unwrap();
            let monitor = HangupMonitor::new(9, 0, None).unwrap();
            let monitored = monitor.monitor(stream, Weak::<ConnectionPool>::new(), always).unwrap();
            MonitorFixture { monitor, monitored, peer: listener.accept().unwrap().0 }
        }

        fn alone(always: bool) -> Self {
            let fixture = Self::new(always);
            fixture.monitor.replace_thread();
            fixture
        }

        fn shared(&self) -> &MonitorInner {
            &self.monitor.shared
        }

        /// Returns the mode. Asserts that the connection is monitored or in the list of unmonitored
        /// connections, as its mode requires.
        fn state(&self) -> u8 {
            let unmonitored = self.shared().unmonitored.lock();
            let mode = self.monitored.state.mode.load(Ordering::Relaxed);
            let file = format!("/proc/self/fdinfo/{}", self.shared().epoll.as_fd().as_raw_fd());
            let fd = self.monitored.stream().readiness_descriptor().unwrap().as_raw_fd().to_string();
            let members = fs::read_to_string(file).unwrap();
            let is_there = members.lines().any(|line| line.split_whitespace().take(2).eq(["tfd:", fd.as_str()]));
            assert_eq!(
                (is_there, unmonitored.len()),
                (mode != UNMONITORED, usize::from(mode == UNMONITORED)),
                "{members}"
            );
            mode
        }

        fn call(&mut self, calls: u32, time: Duration) {
            let begin = Monotonic::from_nanos(1_000_000_000);
            self.monitored.busy_since = begin;
            clock::set(Some(begin + time));
            for _ in 0..calls {
                self.monitored.count_call();
            }
            clock::set(None);
        }

        fn look(&self) -> bool {
            self.shared().resume_idle(true)
        }

        fn wait(&self, what: &str, until: impl Fn(&Self) -> bool) {
            let end = Monotonic::now() + Duration::from_secs(20);
            while !until(self) {
                assert!(!end.is_past(), "the connection must be {what} within 20 s");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn busy_connection_is_unmonitored_until_idle() {
        let mut fixture = MonitorFixture::alone(false);
        for _ in 0..3 {
            fixture.call(BUSY_CALLS - 1, Duration::ZERO);
            assert_eq!(fixture.state(), MONITORED);
            fixture.call(1, USAGE_PERIOD);
            assert_eq!(fixture.state(), UNMONITORED);
            assert!(fixture.shared().resume_idle(false));
            for calls in [0, IDLE_CALLS, 5 * BUSY_CALLS] {
                fixture.call(calls, USAGE_PERIOD);
                assert!(fixture.look());
                assert_eq!(fixture.state(), UNMONITORED);
            }
            fixture.call(IDLE_CALLS - 1, USAGE_PERIOD);
            assert!(!fixture.look());
            assert_eq!(fixture.state(), MONITORED);
            let rest = (BUSY_CALLS - fixture.monitored.calls() % BUSY_CALLS) % BUSY_CALLS;
            fixture.call(rest, 2 * USAGE_PERIOD);
            assert_eq!(fixture.state(), MONITORED);
        }
        fixture.call(9 * BUSY_CALLS, USAGE_PERIOD + Duration::from_nanos(1));
        assert_eq!(fixture.state(), UNMONITORED, "the time of each BUSY_CALLS calls is measured separately");
    }

    #[test]
    fn slow_calls_do_not_make_a_connection_busy() {
        let mut fixture = MonitorFixture::alone(false);
        for _ in 0..9 {
            fixture.call(BUSY_CALLS, USAGE_PERIOD + Duration::from_nanos(1));
            assert_eq!(fixture.state(), MONITORED);
        }
        assert!(!fixture.look());
    }

    #[test]
    fn connection_with_oneways_stays_monitored() {
        let mut fixture = MonitorFixture::alone(false);
        fixture.call(BUSY_CALLS, USAGE_PERIOD);
        assert_eq!(fixture.state(), UNMONITORED);
        for _ in 0..3 {
            assert!(fixture.monitored.ensure_monitored());
            fixture.call(ONEWAY_COOLDOWN_CALLS, USAGE_PERIOD);
            assert_eq!(fixture.state(), PINNED);
        }
        fixture.call(BUSY_CALLS, USAGE_PERIOD);
        assert_eq!(fixture.state(), MONITORED);
        assert!(fixture.monitored.ensure_monitored());
        assert_eq!(fixture.state(), PINNED);
        fixture.call(ONEWAY_COOLDOWN_CALLS + 2 * BUSY_CALLS, USAGE_PERIOD);
        assert_eq!(fixture.state(), UNMONITORED);
    }

    #[test]
    fn ensure_monitored_detects_a_closed_peer() {
        let mut fixture = MonitorFixture::alone(false);
        fixture.call(BUSY_CALLS, USAGE_PERIOD);
        fixture.peer.shutdown(Shutdown::Write).unwrap();
        wait_for_end(&fixture.peer);
        assert!(!fixture.monitored.has_hung_up());
        assert!(!fixture.monitored.ensure_monitored());
        assert!(fixture.monitored.has_hung_up());
    }

    #[test]
    fn ensure_monitored_detects_a_peer_that_closed_before_monitoring_resumed() {
        let mut fixture = MonitorFixture::alone(false);
        fixture.call(BUSY_CALLS, USAGE_PERIOD);
        fixture.peer.shutdown(Shutdown::Write).unwrap();
        wait_for_end(&fixture.peer);
        assert!(fixture.look() && !fixture.look());
        assert_eq!(fixture.state(), MONITORED);
        assert!(!fixture.monitored.ensure_monitored());
    }

    pub(in crate::client) fn wait_for_end(peer: &TcpStream) {
        let (from, to) = (peer.peer_addr().unwrap().port(), peer.local_addr().unwrap().port());
        let here = u32::from_ne_bytes([127, 0, 0, 1]);
        let line = format!("{here:08X}:{from:04X} {here:08X}:{to:04X} 08");
        let end = Monotonic::now() + Duration::from_secs(20);
        while !fs::read_to_string("/proc/self/net/tcp").unwrap().contains(&line) {
            assert!(!end.is_past());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn request(stream: &mut TcpStream) -> u32 {
        let mut head = [0; 16];
        stream.read_exact(&mut head).unwrap();
        let number = |at: usize| u32::from_ne_bytes(*head[at..].first_chunk().unwrap());
        io::copy(&mut stream.take(u64::from(number(8)) - 4), &mut io::sink()).unwrap();
        number(12)
    }

    #[test]
    fn oneway_avoids_an_unmonitored_connection_whose_peer_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let orb = Orb::builder().build().unwrap();
        orb.core().hangup_monitor().replace_thread();
        let url = format!("corbaloc::1.2@{}/Key", listener.local_addr().unwrap());
        let object = orb.string_to_object(&url).unwrap().unwrap();
        let operation = Operation::new("op");
        let mut first = thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                for _ in 0..BUSY_CALLS {
                    let id = request(&mut stream);
                    let head = [b"GIOP\x01\x02".as_slice(), &[u8::from(cfg!(target_endian = "little")), 1]].concat();
                    let numbers = [12, id, 0, 0].map(u32::to_ne_bytes).concat();
                    stream.write_all(&[head, numbers].concat()).unwrap();
                }
                stream
            });
            clock::set(Some(Monotonic::now()));
            for _ in 0..BUSY_CALLS {
                call::invoke(object.callee(), &operation, &|_| Ok(())).unwrap();
            }
            clock::set(None);
            server.join().unwrap()
        });
        first.shutdown(Shutdown::Write).unwrap();
        wait_for_end(&first);
        call::oneway(object.callee(), &operation, SyncScope::Transport, &|_| Ok(())).unwrap();
        first.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(
            first.read(&mut [0]).unwrap(),
            0,
            "the closed connection must carry no oneway and must be closed by the client"
        );
        request(&mut listener.accept().unwrap().0);
    }

    #[test]
    fn always_monitored_connection_is_never_unmonitored() {
        let mut fixture = MonitorFixture::alone(true);
        fixture.call(9 * BUSY_CALLS, Duration::ZERO);
        assert!(fixture.monitored.ensure_monitored() && !fixture.look());
        assert_eq!(fixture.state(), ALWAYS);
    }

    #[test]
    fn unmonitored_connection_is_removed_when_dropped() {
        let mut fixture = MonitorFixture::alone(false);
        fixture.call(BUSY_CALLS, USAGE_PERIOD);
        assert_eq!(fixture.state(), UNMONITORED);
        let MonitorFixture { monitor, monitored, mut peer } = fixture;
        drop(monitored);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the dropped connection must be closed");
        assert!(!monitor.shared.resume_idle(true));
        assert!(monitor.shared.unmonitored.lock().is_empty() && !monitor.shared.entries.has_live_entries());
    }

    #[test]
    fn thread_resumes_monitoring_and_detects_a_hangup() {
        let mut fixture = MonitorFixture::new(false);
        for _ in 0..2 {
            fixture.call(BUSY_CALLS, USAGE_PERIOD);
            fixture.wait("monitored", |fixture| fixture.state() == MONITORED);
            assert_eq!(
                fixture.monitored.state.sampled_calls.load(Ordering::Relaxed),
                fixture.monitored.calls(),
                "the monitor's thread must sample the calls when it resumes monitoring"
            );
        }
        fixture.call(BUSY_CALLS, USAGE_PERIOD);
        fixture.peer.shutdown(Shutdown::Write).unwrap();
        fixture.wait("hung up", |fixture| fixture.monitored.has_hung_up());
        fixture.monitor.stop();
    }
}
