//! The end of a peer, told to threads that sleep: one thread of the process watches the sockets of all connections, so that nobody has to wake up by
//! himself to look whether the other side is still there.
//!
//! It is named `net/ends`, hears of hang-ups only, and does nothing but wake; where that is permitted it has the highest fixed priority, so that
//! nobody waits for a dead peer because others keep the cores busy. Where it cannot be started, and in a connection whose peer has said that it
//! writes no more, threads that sleep look by themselves.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::process;
use corelane_sys::ring::Rings;
use corelane_sys::thread::{Builder, Scheduling};

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
            let mut state = watch.state.lock();
            state.next += 1;
            let token = state.next;
            state.all.insert(token, Arc::downgrade(ends));
            token
        };
        let watched = Watched { watch, token };
        // An end that is there already is told of at once.
        let added = watched.watch.epoll.add(fd, token, Interest::HANG_UP | Interest::EDGE);
        added.is_ok().then_some(watched)
    }

    /// Ends the watching.
    pub(super) fn end(self, fd: BorrowedFd<'_>) {
        self.watch.state.lock().all.remove(&self.token);
        // It may not be watched any more.
        let _ = self.watch.epoll.remove(fd);
    }
}

#[derive(Debug)]
struct Watch {
    epoll: Epoll,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    all: HashMap<u64, Weak<Ends>>,
}

/// The last one that was started, and the generation of the process that did.
type Started = Option<(u64, Arc<Watch>)>;

impl Watch {
    /// That of this process: a forked child has not its parent's thread.
    fn of_process() -> Option<Arc<Self>> {
        static WATCH: OnceLock<Mutex<Started>> = OnceLock::new();
        let generation = process::generation();
        let mut watch = WATCH.get_or_init(|| Mutex::new("watch of shared memory", Scope::Orb, None)).lock();
        match &*watch {
            Some((its, watch)) if *its == generation => Some(Arc::clone(watch)),
            _ => {
                let started = Watch::start().ok()?;
                *watch = Some((generation, Arc::clone(&started)));
                Some(started)
            }
        }
    }

    fn start() -> io::Result<Arc<Self>> {
        let state = Mutex::new("connections of shared memory", Scope::Orb, State::default());
        let watch = Arc::new(Watch { epoll: Epoll::new()?, state });
        let spawn = |builder: Builder| {
            let watch = Arc::clone(&watch);
            builder.name("net/ends").stack_size(128 * 1024).spawn(move || watch.run())
        };
        let highest = *Scheduling::PRIORITIES.end();
        // Without the permission it is a thread like the one that starts it.
        spawn(Builder::new().scheduling(Scheduling::Fifo(highest))).or_else(|_| spawn(Builder::new()))?;
        Ok(watch)
    }

    fn run(&self) {
        let mut events = [Event::EMPTY; 16];
        // Ends with the process; an error could only come of memory running out, and then those who sleep are told nothing more.
        while let Ok(count) = self.epoll.wait(&mut events, None) {
            for event in &events[..count] {
                let ends = self.state.lock().all.get(&event.token()).and_then(Weak::upgrade);
                if let Some(ends) = ends {
                    ends.tell();
                }
            }
        }
    }
}
