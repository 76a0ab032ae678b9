//! Watching connections for the end: nothing is written to a connection that the peer has closed a while ago.
//!
//! One thread per ORB, made with the first connection, waits for hang-ups of all of them. Replies do not wake it. It is in the ordinary
//! class and on the cores of the thread that made the ORB, whoever made that connection; what others may wait for it does at their
//! priority.
//!
//! To the kernel each reply is an event of a watched connection, whether anybody waits for it or not, and costs its sender time. So
//! callers that make [`STEADY`] calls within a [`ROUND`] leave their connection unwatched: their next call finds the end itself. The
//! thread looks every round which of those are quiet, and watches them again. Requests without a reply learn nothing: a connection
//! that carries such is watched.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::Stream;
use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Mutex, PiMutex, Scope};
use corelane_sys::poll;
use corelane_sys::slots::{Retired, SlotTable};
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling};

use super::pool::Pool;
use crate::orb::Core;

const STOP: u64 = u64::MAX;

/// How often the thread looks which connections have become quiet, while one is not watched.
const ROUND: Duration = Duration::from_millis(50);

/// Calls in a round that make a use steady.
const STEADY: u32 = 64;

/// With fewer in a round it is not steady any more.
const QUIET: u32 = 16;

/// Calls that follow a request without a reply before the connection may be left: to leave it and come back costs as much as is saved in
/// some of them.
const WARY: u32 = 1024;

/// From one request id to the next: even ones, as bidirectional GIOP wants of the side that connected.
const ID_STEP: u32 = 2;

/// It is watched, and need not be when it is in steady use.
const WATCHED: u8 = 0;
/// It is in steady use, and not watched.
const LEFT: u8 = 1;
/// It is watched, and carried a request without a reply not long ago.
const KEPT: u8 = 2;
/// It is watched always, if there is anything to watch.
const ALWAYS: u8 = 3;

/// The thread and what it watches.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    cores: Option<CpuSet>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// The ORB.
    stamp: u64,
    epoll: Epoll,
    wake: Wake,
    stop: AtomicBool,
    /// The ORB that is tidied now and then, and how often.
    tidied: OnceLock<(Weak<Core>, Duration)>,
    entries: SlotTable<Entry>,
    /// The slots and generations of those that are not watched, and of some that are gone; there is room for all. Whoever has it begins and
    /// ends watching. The thread looks every round while there are any; who puts the first in wakes it.
    left: PiMutex<Vec<(u32, u32)>>,
}

struct Entry {
    line: Arc<Line>,
    /// Closes the connection if nobody uses it.
    pool: Weak<Pool>,
}

/// What a connection and the thread both know.
struct Line {
    stream: Box<dyn Stream>,
    hung_up: AtomicBool,
    /// The last request id. Only who has the connection writes it.
    request: AtomicU32,
    /// What that was a round ago, while the connection is not watched.
    seen: AtomicU32,
    /// One of the states above. Only who has the connection writes it, but that the thread ends `LEFT`.
    watching: AtomicU8,
}

/// A connection's stream; watching ends when it is dropped.
pub(crate) struct Watched {
    line: Arc<Line>,
    entry: Option<(Arc<Shared>, u32, u32)>,
    /// When the calls that may be steady began.
    since: Monotonic,
    /// The id of the request before the last one without a reply; says something in `KEPT` only.
    kept_at: u32,
}

impl Watcher {
    pub(crate) fn new(most: u32, stamp: u64, cores: Option<CpuSet>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let wake = Wake::new()?;
        epoll.add(std::os::fd::AsFd::as_fd(&wake), STOP, Interest::READABLE | Interest::EDGE)?;
        let entries = SlotTable::new("watched connections", Scope::Orb, most);
        let (stop, tidied) = (AtomicBool::new(false), OnceLock::new());
        let left = PiMutex::new("connections not watched", Scope::Orb, Vec::new());
        let shared = Arc::new(Shared { stamp, epoll, wake, stop, tidied, entries, left });
        Ok(Watcher { shared, cores, thread: Mutex::new("watcher thread", Scope::Orb, None) })
    }

    /// Watches `stream`, `always` or while it is not in steady use; a stream without a descriptor is not watched and never known to have hung up.
    /// One whose descriptor tells of octets only when asked costs nothing to watch.
    pub(crate) fn watch(&self, stream: Box<dyn Stream>, pool: Weak<Pool>, always: bool) -> io::Result<Watched> {
        let always = always || stream.readiness().is_none() || !stream.tells_of_octets();
        let watching = AtomicU8::new(if always { ALWAYS } else { WATCHED });
        let (request, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        let line = Arc::new(Line { stream, hung_up: AtomicBool::new(false), request, seen, watching });
        let mut watched = Watched { line, entry: None, since: crate::clock::now(), kept_at: 0 };
        let Some(fd) = watched.line.stream.readiness() else { return Ok(watched) };
        self.start()?;
        let entry = Entry { line: Arc::clone(&watched.line), pool };
        let (slot, generation) =
            self.shared.entries.insert(entry).map_err(|full| io::Error::other(full.to_string()))?;
        let added = self.shared.add(fd, slot, generation);
        watched.entry = Some((Arc::clone(&self.shared), slot, generation));
        added?;
        if !always {
            // Besides those that are there, which may be gone.
            let more = self.shared.entries.len();
            self.shared.left.lock().reserve(more);
        }
        Ok(watched)
    }

    /// Tidies `core` every `period`, once the thread runs.
    pub(crate) fn tidy(&self, core: Weak<Core>, period: Duration) {
        // Set once: an ORB starts once.
        let _ = self.shared.tidied.set((core, period));
    }

    /// Starts the thread, if it does not run yet.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("orb/watch").stack_size(256 * 1024);
            let builder = builder.scheduling(Scheduling::Other).preferred_affinity(self.cores);
            *thread = Some(builder.spawn(move || shared.run())?);
        }
        Ok(())
    }

    /// Makes the thread look what is held and how long.
    pub(crate) fn look(&self) {
        self.shared.wake.notify();
    }

    /// Puts a thread that does nothing in the place of that which watches.
    #[cfg(test)]
    pub(crate) fn pause(&self) {
        self.stop();
        self.shared.stop.store(false, Ordering::Release);
        *self.thread.lock() = Some(thread::Builder::new().spawn(|| ()).expect("a thread"));
    }

    /// Tells the thread to end.
    pub(crate) fn tell(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.notify();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.tell();
        if let Some(thread) = self.thread.lock().take() {
            // The thread does nothing that can panic; if it did, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        crate::current::belongs_to(self.stamp);
        let mut events = [Event::EMPTY; 32];
        let mut tidied = Monotonic::now();
        let mut held: Option<Monotonic> = None;
        let mut round: Option<Monotonic> = None;
        while !self.stop.load(Ordering::Acquire) {
            let period = self.tidied.get().map(|(_, period)| *period);
            let moments = held.into_iter().chain(round).map(Monotonic::remaining);
            let patience = period.into_iter().chain(moments).min();
            let count = match self.epoll.wait(&mut events, patience) {
                Ok(count) => count,
                Err(error) => return self.failed(&error),
            };
            let core = self.tidied.get().and_then(|(core, _)| core.upgrade());
            if let Some(core) = &core {
                held = core.send_held(false);
                if period.is_some_and(|period| tidied.elapsed() >= period) {
                    core.tidy();
                    tidied = Monotonic::now();
                }
            }
            let due = round.is_some_and(Monotonic::is_past);
            if due || round.is_none() {
                round = self.look_around(due).then(|| Monotonic::now() + ROUND);
            }
            for event in &events[..count] {
                let (slot, generation) = ((event.token() >> 32) as u32, event.token() as u32);
                let Some(entry) = self.entries.get(slot, generation) else { continue };
                entry.line.hung_up.store(true, Ordering::Release);
                let pool = entry.pool.upgrade();
                drop(entry);
                if let (Some(pool), Some(core)) = (pool, &core) {
                    pool.sweep(core);
                }
            }
        }
    }

    /// Where a round is over, watches those that were left and are quiet. Whether to look again in a round.
    fn look_around(&self, over: bool) -> bool {
        let mut left = self.left.lock();
        if over {
            left.retain(|&(slot, generation)| {
                let Some(entry) = self.entries.get(slot, generation) else { return false };
                let request = entry.line.request.load(Ordering::Relaxed);
                let calls = request.wrapping_sub(entry.line.seen.swap(request, Ordering::Relaxed)) / ID_STEP;
                if calls < QUIET {
                    self.resume(&entry.line, slot, generation);
                    entry.line.watching.store(WATCHED, Ordering::Release);
                }
                calls >= QUIET
            });
        }
        !left.is_empty()
    }

    /// Watches again what was left, and looks whether it has ended meanwhile: that is told too, but maybe too late for the next request. Where
    /// the kernel refuses, the next call takes another connection.
    fn resume(&self, line: &Line, slot: u32, generation: u32) {
        let Some(fd) = line.stream.readiness() else { return };
        let is_watched = self.add(fd, slot, generation).is_ok();
        if !is_watched || poll::ended(fd).map_or(true, |ended| ended.reading) {
            line.hung_up.store(true, Ordering::Release);
        }
    }

    /// Hang-ups of a connection, also one that has been, are told to the thread.
    fn add(&self, fd: BorrowedFd<'_>, slot: u32, generation: u32) -> io::Result<()> {
        let token = (u64::from(slot) << 32) | u64::from(generation);
        self.epoll.add(fd, token, Interest::HANG_UP | Interest::EDGE)
    }

    /// The thread ends early: hang-ups are found out by calls from now on, and nothing is tidied.
    #[cold]
    fn failed(&self, error: &io::Error) {
        self.stop.store(true, Ordering::Release);
        if let Some(core) = self.tidied.get().and_then(|(core, _)| core.upgrade()) {
            core.events().report(&crate::event::Event::ThreadFailed { message: format!("orb/watch: {error}") });
        }
    }
}

impl Watched {
    #[inline]
    pub(crate) fn stream(&self) -> &dyn Stream {
        &*self.line.stream
    }

    #[inline]
    pub(crate) fn hung_up(&self) -> bool {
        self.line.hung_up.load(Ordering::Acquire)
    }

    /// The id of the last request.
    fn last_request(&self) -> u32 {
        self.line.request.load(Ordering::Relaxed)
    }

    /// Whether it is not watched.
    #[cfg(test)]
    pub(super) fn is_left(&self) -> bool {
        self.line.watching.load(Ordering::Relaxed) == LEFT
    }

    /// An id for the next request.
    #[inline]
    pub(crate) fn next_request(&mut self) -> u32 {
        let id = self.last_request().wrapping_add(ID_STEP);
        self.line.request.store(id, Ordering::Relaxed);
        if id.is_multiple_of(STEADY * ID_STEP) {
            self.used_much(id);
        }
        id
    }

    /// So many calls have been made since this was called last.
    #[cold]
    fn used_much(&mut self, id: u32) {
        let watching = self.line.watching.load(Ordering::Relaxed);
        if watching == ALWAYS || watching == LEFT {
            return;
        }
        let now = crate::clock::now();
        let since = std::mem::replace(&mut self.since, now);
        if watching == KEPT {
            if id.wrapping_sub(self.kept_at) > WARY * ID_STEP {
                self.line.watching.store(WATCHED, Ordering::Release);
            }
        } else if now.since(since) <= ROUND {
            self.leave(id);
        }
    }

    /// Ends watching until the thread finds the connection quiet.
    fn leave(&self, id: u32) {
        let (Some((shared, slot, generation)), Some(fd)) = (&self.entry, self.line.stream.readiness()) else { return };
        let mut left = shared.left.lock();
        // Without the thread, and where the kernel refuses, it stays watched.
        if shared.stop.load(Ordering::Acquire) || shared.epoll.remove(fd).is_err() {
            return;
        }
        // What is left of this round counts as a whole one.
        self.line.seen.store(id.wrapping_sub(STEADY * ID_STEP), Ordering::Relaxed);
        self.line.watching.store(LEFT, Ordering::Release);
        if left.is_empty() {
            shared.wake.notify();
        }
        debug_assert!(left.len() < left.capacity(), "there is room for all");
        left.push((*slot, *generation));
    }

    /// Sees to it that the connection is watched, for a request without a reply. False if it has hung up.
    #[inline]
    pub(crate) fn keep(&mut self) -> bool {
        self.kept_at = self.last_request();
        match self.line.watching.load(Ordering::Acquire) {
            LEFT => self.watch_on(),
            WATCHED => self.line.watching.store(KEPT, Ordering::Release),
            _ => {}
        }
        !self.hung_up()
    }

    #[cold]
    fn watch_on(&self) {
        let Some((shared, slot, generation)) = &self.entry else { return };
        let mut left = shared.left.lock();
        if self.line.watching.load(Ordering::Relaxed) == LEFT {
            shared.resume(&self.line, *slot, *generation);
            left.retain(|one| one != &(*slot, *generation));
        }
        self.line.watching.store(KEPT, Ordering::Release);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some((shared, slot, generation)) = self.entry.take() {
            // The kernel forgets the descriptor when the stream is dropped, by whoever has the entry last.
            let _: Retired<_> = shared.entries.retire(slot, generation);
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("hung_up", &self.hung_up()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd};
    use std::{fs, thread};

    use corelane_net::{Endpoint, Tcp, Transport};

    use super::*;
    use crate::invocation::{Operation, call};
    use crate::policy::SyncScope;
    use crate::{Orb, clock};

    /// A connection that nobody but the test uses, and its peer.
    struct Played {
        watcher: Watcher,
        watched: Watched,
        peer: TcpStream,
    }

    impl Played {
        fn new(always: bool) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = Endpoint::tcp("127.0.0.1", listener.local_addr().unwrap().port());
            let stream = Tcp::new().connect(&endpoint, None).unwrap();
            let watcher = Watcher::new(9, 0, None).unwrap();
            let watched = watcher.watch(stream, Weak::new(), always).unwrap();
            Played { watcher, watched, peer: listener.accept().unwrap().0 }
        }

        /// The thread is not there: the test looks around.
        fn alone(always: bool) -> Self {
            let played = Self::new(always);
            played.watcher.pause();
            played
        }

        fn shared(&self) -> &Shared {
            &self.watcher.shared
        }

        /// What the connection's state is; that the kernel and the list agree.
        fn state(&self) -> u8 {
            let left = self.shared().left.lock();
            let watching = self.watched.line.watching.load(Ordering::Relaxed);
            let file = format!("/proc/self/fdinfo/{}", self.shared().epoll.as_fd().as_raw_fd());
            let fd = self.watched.stream().readiness().unwrap().as_raw_fd().to_string();
            let members = fs::read_to_string(file).unwrap();
            let is_there = members.lines().any(|line| line.split_whitespace().take(2).eq(["tfd:", fd.as_str()]));
            assert_eq!((is_there, left.len()), (watching != LEFT, usize::from(watching == LEFT)), "{members}");
            watching
        }

        /// Calls that together take `time`.
        fn call(&mut self, calls: u32, time: Duration) {
            let begin = Monotonic::from_nanos(1_000_000_000);
            self.watched.since = begin;
            clock::set(Some(begin + time));
            for _ in 0..calls {
                self.watched.next_request();
            }
            clock::set(None);
        }

        /// What the thread does when a round is over.
        fn look(&self) -> bool {
            self.shared().look_around(true)
        }

        /// Waits for what the thread does.
        fn wait(&self, what: &str, until: impl Fn(&Self) -> bool) {
            let end = Monotonic::now() + Duration::from_secs(20);
            while !until(self) {
                assert!(!end.is_past(), "not {what}");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn who_is_in_steady_use_is_left_until_it_is_quiet() {
        let mut played = Played::alone(false);
        for _ in 0..3 {
            played.call(STEADY - 1, Duration::ZERO);
            assert_eq!(played.state(), WATCHED);
            played.call(1, ROUND);
            assert_eq!(played.state(), LEFT);
            assert!(played.shared().look_around(false));
            // The calls before count, as they may all have been in this round; then those between.
            for calls in [0, QUIET, 5 * STEADY] {
                played.call(calls, ROUND);
                assert!(played.look());
                assert_eq!(played.state(), LEFT);
            }
            played.call(QUIET - 1, ROUND);
            assert!(!played.look());
            assert_eq!(played.state(), WATCHED);
            let rest = (STEADY - played.watched.last_request() / ID_STEP % STEADY) % STEADY;
            played.call(rest, 2 * ROUND);
            assert_eq!(played.state(), WATCHED);
        }
        played.call(9 * STEADY, ROUND + Duration::from_nanos(1));
        assert_eq!(played.state(), LEFT, "the time begins anew");
    }

    #[test]
    fn calls_that_take_longer_are_not_steady() {
        let mut played = Played::alone(false);
        for _ in 0..9 {
            played.call(STEADY, ROUND + Duration::from_nanos(1));
            assert_eq!(played.state(), WATCHED);
        }
        assert!(!played.look());
    }

    #[test]
    fn who_carries_requests_without_a_reply_is_not_left() {
        let mut played = Played::alone(false);
        played.call(STEADY, ROUND);
        assert_eq!(played.state(), LEFT);
        for _ in 0..3 {
            assert!(played.watched.keep());
            played.call(WARY, ROUND);
            assert_eq!(played.state(), KEPT);
        }
        played.call(STEADY, ROUND);
        assert_eq!(played.state(), WATCHED);
        assert!(played.watched.keep());
        assert_eq!(played.state(), KEPT);
        played.call(WARY + 2 * STEADY, ROUND);
        assert_eq!(played.state(), LEFT);
    }

    #[test]
    fn a_request_without_a_reply_does_not_go_where_the_peer_has_ended() {
        let mut played = Played::alone(false);
        played.call(STEADY, ROUND);
        played.peer.shutdown(Shutdown::Write).unwrap();
        wait_for_end(&played.peer);
        assert!(!played.watched.hung_up());
        assert!(!played.watched.keep());
        assert!(played.watched.hung_up());
    }

    #[test]
    fn nor_where_it_had_ended_before_the_thread_watched_again() {
        let mut played = Played::alone(false);
        played.call(STEADY, ROUND);
        played.peer.shutdown(Shutdown::Write).unwrap();
        wait_for_end(&played.peer);
        assert!(played.look() && !played.look());
        assert_eq!(played.state(), WATCHED);
        assert!(!played.watched.keep());
    }

    /// Until the kernel of the other side, here, knows that `peer` writes no more: CLOSE_WAIT.
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

    /// Reads a request of GIOP 1.2; its id.
    fn request(stream: &mut TcpStream) -> u32 {
        let mut head = [0; 16];
        stream.read_exact(&mut head).unwrap();
        let number = |at: usize| u32::from_ne_bytes(*head[at..].first_chunk().unwrap());
        io::copy(&mut stream.take(u64::from(number(8)) - 4), &mut io::sink()).unwrap();
        number(12)
    }

    #[test]
    fn a_oneway_takes_another_connection_than_one_that_has_ended_while_it_was_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let orb = Orb::builder().build().unwrap();
        orb.core().watch_no_more();
        let url = format!("corbaloc::1.2@{}/Key", listener.local_addr().unwrap());
        let object = orb.string_to_object(&url).unwrap().unwrap();
        let operation = Operation::new("op");
        let mut first = thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                for _ in 0..STEADY {
                    let id = request(&mut stream);
                    let head = [b"GIOP\x01\x02".as_slice(), &[u8::from(cfg!(target_endian = "little")), 1]].concat();
                    let numbers = [12, id, 0, 0].map(u32::to_ne_bytes).concat();
                    stream.write_all(&[head, numbers].concat()).unwrap();
                }
                stream
            });
            clock::set(Some(Monotonic::now()));
            for _ in 0..STEADY {
                call::invoke(&object, &operation, &|_| Ok(())).unwrap();
            }
            clock::set(None);
            server.join().unwrap()
        });
        first.shutdown(Shutdown::Write).unwrap();
        wait_for_end(&first);
        call::oneway(&object, &operation, SyncScope::Transport, &|_| Ok(())).unwrap();
        first.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(first.read(&mut [0]).unwrap(), 0, "it has the oneway, or is still there");
        request(&mut listener.accept().unwrap().0);
    }

    #[test]
    fn who_is_always_watched_is_never_left() {
        let mut played = Played::alone(true);
        played.call(9 * STEADY, Duration::ZERO);
        assert!(played.watched.keep() && !played.look());
        assert_eq!(played.state(), ALWAYS);
    }

    #[test]
    fn a_connection_that_ends_while_it_is_left_is_forgotten() {
        let mut played = Played::alone(false);
        played.call(STEADY, ROUND);
        assert_eq!(played.state(), LEFT);
        let Played { watcher, watched, mut peer } = played;
        drop(watched);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "it is closed");
        assert!(!watcher.shared.look_around(true));
        assert!(watcher.shared.left.lock().is_empty() && watcher.shared.entries.is_empty());
    }

    #[test]
    fn the_thread_watches_what_is_quiet_and_learns_of_the_end() {
        let mut played = Played::new(false);
        for _ in 0..2 {
            played.call(STEADY, ROUND);
            played.wait("watched", |played| played.state() == WATCHED);
            assert_eq!(played.watched.line.seen.load(Ordering::Relaxed), played.watched.last_request(), "it looked");
        }
        played.call(STEADY, ROUND);
        played.peer.shutdown(Shutdown::Write).unwrap();
        played.wait("hung up", |played| played.watched.hung_up());
        played.watcher.stop();
    }
}
