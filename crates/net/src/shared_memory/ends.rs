//! The end of a peer, told to threads that sleep: one thread of the process watches the sockets of all connections, so that nobody has to wake up by
//! himself to look whether the other side is still there. It is there as long as they are.
//!
//! It is named `net/ends`, hears of hang-ups only, and does nothing but wake; where that is permitted it has the highest fixed priority, so that
//! nobody waits for a dead peer because others keep the cores busy. Where it cannot be started, and in a connection whose peer has said that it
//! writes no more, threads that sleep look by themselves.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::process;
use corelane_sys::ring::Rings;
use corelane_sys::thread::{self, Builder, JoinHandle};

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

/// A connection that is watched, until this is dropped; before its descriptor is closed.
#[derive(Debug)]
pub(super) struct Watched {
    watch: Arc<Watch>,
    token: u64,
}

impl Watched {
    /// Watches the connection with this socket. None where that cannot be.
    pub(super) fn new(fd: BorrowedFd<'_>, ends: &Arc<Ends>) -> Option<Self> {
        let watch = Watch::of_process()?;
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
        added.is_ok().then_some(watched)
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
    thread: Option<JoinHandle<()>>,
    forks: u64,
}

#[derive(Debug)]
struct List {
    epoll: Epoll,
    wake: Wake,
    stop: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    all: HashMap<u64, Weak<Ends>>,
}

/// Of the wake-up; connections count from 1.
const WAKE: u64 = 0;

impl Watch {
    /// That of this process, started if there is none: a forked child has not its parent's thread.
    fn of_process() -> Option<Arc<Self>> {
        static WATCH: Mutex<Weak<Watch>> = Mutex::new("watch of shared memory", Scope::Orb, Weak::new());
        let mut watch = WATCH.lock();
        if let Some(watch) = watch.upgrade().filter(|watch| watch.forks == process::generation()) {
            return Some(watch);
        }
        let started = Arc::new(Watch::start().ok()?);
        *watch = Arc::downgrade(&started);
        Some(started)
    }

    fn start() -> io::Result<Self> {
        let (epoll, wake) = (Epoll::new()?, Wake::new()?);
        epoll.add(wake.as_fd(), WAKE, Interest::READABLE)?;
        let state = Mutex::new("connections of shared memory", Scope::Orb, State::default());
        let list = Arc::new(List { epoll, wake, stop: AtomicBool::new(false), state });
        // Whoever sleeps on shared memory may have any priority.
        let thread = thread::at_highest(|scheduling| {
            let list = Arc::clone(&list);
            Builder::new().name("net/ends").stack_size(128 * 1024).scheduling(scheduling).spawn(move || list.run())
        })?;
        Ok(Watch { list, thread: Some(thread), forks: process::generation() })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A forked child has not the thread.
        if self.forks == process::generation()
            && let Some(thread) = self.thread.take()
        {
            self.list.stop.store(true, Ordering::Release);
            self.list.wake.notify();
            // It does nothing that can panic.
            let _ = thread.join();
        }
    }
}

impl List {
    fn run(&self) {
        let mut events = [Event::EMPTY; 16];
        // An error could only come of memory running out, and then those who sleep are told nothing more.
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

    fn watched() -> (std::os::fd::OwnedFd, Option<Watched>) {
        let sizes = Sizes::at_least(4096, 4096);
        let (rings, _memory) = Rings::create(sizes).unwrap();
        let (fd, _other) = socket::pair().unwrap();
        let watched = Watched::new(fd.as_fd(), &Ends::new(rings));
        (fd, watched)
    }

    #[test]
    fn one_thread_watches_all_connections_and_ends_when_there_are_none() {
        let ((first, one), (second, other)) = (watched(), watched());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(Arc::ptr_eq(&one.watch, &other.watch));
        one.end(first.as_fd());
        other.end(second.as_fd());
        // One of its own: other tests have connections too.
        let watch = Watch::start().unwrap();
        let list = Arc::clone(&watch.list);
        drop(watch);
        assert_eq!(Arc::strong_count(&list), 1, "the thread has been joined");
    }
}
