//! The end of a peer, told to threads that sleep: one thread of a transport watches the sockets of all its connections, so that nobody has to wake up
//! by himself to look whether the other side is still there. It is there as long as they are, or until the last ORB that used the
//! transport [ends](crate::Transport::end).
//!
//! It is named `net/ends`, hears of hang-ups only, and does nothing but wake. It is in the ordinary class until a thread of a fixed priority
//! sleeps over its connections, and then as urgent as the most urgent of these: nobody waits for a dead peer because less urgent threads
//! keep the cores busy, and peers that come and go disturb nobody who is more urgent. Where it cannot be started, and in a connection
//! whose peer has said that it writes no more, threads that sleep look by themselves.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Mutex, PiMutex, Scope};
use corelane_sys::process;
use corelane_sys::ring::Rings;
use corelane_sys::thread::{self, Builder, JoinHandle, Scheduling, Tid};

/// The rings of a connection, and whether their peer may be gone.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) rings: Rings,
    /// The socket has told of an end. Never taken back.
    told: AtomicBool,
}

impl Ends {
    pub(super) fn new(rings: Rings) -> Arc<Self> {
        Arc::new(Ends { rings, told: AtomicBool::new(false) })
    }

    /// Whether the socket has told of an end: it is looked at before anybody sleeps. To be asked after it was said how this side waits.
    pub(super) fn are_told(&self) -> bool {
        // Sequentially consistent: with `tell`, either this is seen, or the wish to be woken is.
        self.told.load(Ordering::SeqCst)
    }

    fn tell(&self) {
        self.told.store(true, Ordering::SeqCst);
        self.rings.reader().unpark();
        self.rings.writer().unpark();
    }
}

/// The watch of a transport; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Watching(Arc<PiMutex<Used>>);

#[derive(Debug, Default)]
struct Used {
    /// ORBs of this process that use it.
    orbs: usize,
    forks: u64,
    watch: Weak<Watch>,
}

impl Default for Watching {
    fn default() -> Self {
        Watching(Arc::new(PiMutex::new("watch of shared memory", Scope::Orb, Used::default())))
    }
}

impl Watching {
    /// What watches now, started if nothing does: a forked child has not its parent's thread.
    fn start(&self) -> Option<Arc<Watch>> {
        let mut current = self.0.lock();
        let is_there =
            |watch: &Arc<Watch>| watch.forks == process::generation() && !watch.list.stop.load(Ordering::Acquire);
        if let Some(watch) = current.watch.upgrade().filter(is_there) {
            return Some(watch);
        }
        let started = Arc::new(Watch::start().ok()?);
        current.watch = Arc::downgrade(&started);
        Some(started)
    }

    /// One more ORB uses it.
    pub(super) fn begin(&self) {
        let mut used = self.0.lock();
        if used.forks != process::generation() {
            // Those of the parent are not here.
            (used.orbs, used.forks) = (0, process::generation());
        }
        used.orbs += 1;
    }

    /// One uses it no more. Behind the last one ends the thread, if there is one, and waits for its end: who sleeps over connections that
    /// are left looks by himself.
    pub(super) fn end(&self) {
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

/// A connection that is watched, until this is dropped; before its descriptor is closed.
#[derive(Debug)]
pub(super) struct Watched {
    watch: Arc<Watch>,
    token: u64,
}

impl Watched {
    /// Watches the connection with this socket. None where that cannot be.
    pub(super) fn new(fd: BorrowedFd<'_>, ends: &Arc<Ends>, watching: &Watching) -> Option<Self> {
        let watch = watching.start()?;
        let token = {
            let mut state = watch.list.state.lock();
            state.next += 1;
            let token = state.next;
            state.all.insert(token, Arc::downgrade(ends));
            token
        };
        let watched = Watched { watch, token };
        // An end that is there already is told of at once.
        let added = watched.watch.list.epoll.add(fd, token, Interest::HANG_UP | Interest::EDGE);
        if watched.watch.list.stop.load(Ordering::Acquire) {
            // It came in beside the end of the transport, which may not have seen it.
            ends.tell();
        }
        added.is_ok().then_some(watched)
    }

    /// The calling thread is about to sleep: who wakes it is as urgent.
    #[inline]
    pub(super) fn serve(&self) {
        let wanted = thread::native_priority();
        if wanted > self.watch.list.priority.load(Ordering::Relaxed) {
            self.watch.list.raise(wanted);
        }
    }

    /// Ends the watching.
    pub(super) fn end(self, fd: BorrowedFd<'_>) {
        self.watch.list.state.lock().all.remove(&self.token);
        // It may not be watched any more.
        let _ = self.watch.list.epoll.remove(fd);
    }
}

/// The thread, while there are connections that it watches.
#[derive(Debug)]
struct Watch {
    list: Arc<List>,
    thread: Mutex<Option<JoinHandle<()>>>,
    forks: u64,
}

#[derive(Debug)]
struct List {
    epoll: Epoll,
    wake: Wake,
    stop: AtomicBool,
    /// The highest of those that it was asked to serve, and who is raised to that.
    priority: AtomicU8,
    thread: OnceLock<Tid>,
    state: PiMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    all: HashMap<u64, Weak<Ends>>,
}

/// Of the wake-up; connections count from 1.
const WAKE: u64 = 0;

impl Watch {
    fn start() -> io::Result<Self> {
        let (epoll, wake) = (Epoll::new()?, Wake::new()?);
        epoll.add(wake.as_fd(), WAKE, Interest::READABLE)?;
        let list = Arc::new(List {
            epoll,
            wake,
            stop: AtomicBool::new(false),
            priority: AtomicU8::new(0),
            thread: OnceLock::new(),
            state: PiMutex::new("connections of shared memory", Scope::Orb, State::default()),
        });
        let run = Arc::clone(&list);
        // It begins as urgent as who makes it, who may be a lane's thread, and steps down by itself: nobody waits for that.
        let builder = Builder::new().name("net/ends").stack_size(128 * 1024);
        let thread = builder.spawn(move || run.run())?;
        let thread = Mutex::new("thread of shared memory", Scope::Orb, Some(thread));
        Ok(Watch { list, thread, forks: process::generation() })
    }

    fn stop(&self) {
        // A forked child has not the thread.
        if self.forks != process::generation() {
            return;
        }
        self.list.stop.store(true, Ordering::Release);
        self.list.wake.notify();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // It does nothing that can panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl List {
    /// Sees to it that the thread is as urgent as that. Where the system refuses it stays as it is.
    #[cold]
    fn raise(&self, wanted: u8) {
        // One at a time: the highest is the last.
        let _state = self.state.lock();
        self.priority.fetch_max(wanted, Ordering::SeqCst);
        self.take_priority(self.thread.get().copied());
    }

    fn take_priority(&self, thread: Option<Tid>) {
        let priority = self.priority.load(Ordering::SeqCst);
        if let Some(tid) = thread
            && priority > 0
        {
            let _ = thread::set_scheduling(Some(tid), Scheduling::Fifo(priority));
        }
    }

    fn run(&self) {
        {
            let _state = self.state.lock();
            let own = thread::current_tid();
            let _ = self.thread.set(own);
            // Leaving a class of fixed priority is never refused.
            let _ = thread::set_scheduling(None, Scheduling::Other);
            self.take_priority(Some(own));
        }
        self.watch();
        // Nobody is told any more, and everybody is to know.
        let all: Vec<Arc<Ends>> = self.state.lock().all.values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|ends| ends.tell());
    }

    fn watch(&self) {
        let mut events = [Event::EMPTY; 16];
        while let Ok(count) = self.epoll.wait(&mut events, None)
            && !self.stop.load(Ordering::Acquire)
        {
            for event in &events[..count] {
                let ends = self.state.lock().all.get(&event.token()).and_then(Weak::upgrade);
                if let Some(ends) = ends {
                    ends.tell();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::ring::Sizes;
    use corelane_sys::socket;

    use super::*;

    fn watched(watching: &Watching) -> (std::os::fd::OwnedFd, Arc<Ends>, Watched) {
        let sizes = Sizes::at_least(4096, 4096);
        let (rings, _memory) = Rings::create(sizes).unwrap();
        let (fd, _other) = socket::pair().unwrap();
        let ends = Ends::new(rings);
        let watched = Watched::new(fd.as_fd(), &ends, watching).unwrap();
        (fd, ends, watched)
    }

    #[test]
    fn one_thread_watches_all_connections_of_a_transport_and_ends_when_there_are_none() {
        let watching = Watching::default();
        let ((first, _, one), (second, _, other)) = (watched(&watching), watched(&watching.clone()));
        assert!(Arc::ptr_eq(&one.watch, &other.watch));
        let (elsewhere, _, alone) = watched(&Watching::default());
        assert!(!Arc::ptr_eq(&one.watch, &alone.watch));
        let list = Arc::clone(&one.watch.list);
        one.end(first.as_fd());
        assert!(Arc::strong_count(&list) > 2);
        other.end(second.as_fd());
        assert_eq!(Arc::strong_count(&list), 1, "the thread has been joined");
        alone.end(elsewhere.as_fd());
    }

    #[test]
    fn the_end_of_the_last_user_joins_the_thread_and_tells_those_who_sleep() {
        let watching = Watching::default();
        watching.begin();
        watching.clone().begin();
        let sizes = Sizes::at_least(4096, 4096);
        let (rings, _memory) = Rings::create(sizes).unwrap();
        let (fd, _peer) = socket::pair().unwrap();
        let ends = Ends::new(rings);
        let left = Watched::new(fd.as_fd(), &ends, &watching).unwrap();
        assert!(!ends.are_told());
        let list = Arc::clone(&left.watch.list);
        watching.end();
        assert!(!ends.are_told() && Arc::strong_count(&list) > 2, "another one uses it");
        watching.end();
        assert!(ends.are_told() && Arc::strong_count(&list) == 2, "the thread has been joined");
        // Somebody else may go on with the same transport.
        let (other, _, next) = watched(&watching);
        assert!(!Arc::ptr_eq(&next.watch, &left.watch));
        next.end(other.as_fd());
        left.end(fd.as_fd());
    }

    #[test]
    fn it_is_as_urgent_as_the_most_urgent_thread_that_sleeps() {
        let watching = Watching::default();
        let (fd, _ends, watched) = watched(&watching);
        let found = || loop {
            // It says who it is when it begins.
            if let Some(tid) = watched.watch.list.thread.get() {
                return thread::scheduling(Some(*tid)).unwrap();
            }
            std::thread::yield_now();
        };
        watched.serve();
        assert_eq!(found(), Scheduling::Other);
        for (priority, expected) in [(3, 3), (7, 7), (5, 7)] {
            let sleeps = || thread::set_scheduling(None, Scheduling::Fifo(priority)).map(|()| watched.serve()).is_ok();
            let asked = std::thread::scope(|scope| scope.spawn(sleeps).join().unwrap());
            // Not everybody may have fixed priorities.
            assert!(!asked || found() == Scheduling::Fifo(expected), "{:?}", found());
        }
        watched.end(fd.as_fd());
    }
}
