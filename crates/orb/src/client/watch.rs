//! Watching idle connections for the end: nothing is written to a connection that the peer has already closed.
//!
//! One thread per ORB, made with the first connection, waits for hang-ups of all of them. Replies do not wake it. It is in the ordinary
//! class and on the cores of the thread that made the ORB, whoever made that connection; what others may wait for it does at their
//! priority.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::Stream;
use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::slots::{Retired, SlotTable};
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling};

use super::pool::Pool;
use crate::orb::Core;

const STOP: u64 = u64::MAX;

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
}

struct Entry {
    hung_up: Arc<AtomicBool>,
    /// Closes the connection if nobody uses it.
    pool: Weak<Pool>,
}

/// A connection's entry; watching ends when it is dropped.
pub(crate) struct Watched {
    hung_up: Arc<AtomicBool>,
    entry: Option<(Arc<Shared>, u32, u32)>,
}

impl Watcher {
    pub(crate) fn new(most: u32, stamp: u64, cores: Option<CpuSet>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let wake = Wake::new()?;
        epoll.add(std::os::fd::AsFd::as_fd(&wake), STOP, Interest::READABLE | Interest::EDGE)?;
        let entries = SlotTable::new("watched connections", Scope::Orb, most);
        let (stop, tidied) = (AtomicBool::new(false), OnceLock::new());
        let shared = Arc::new(Shared { stamp, epoll, wake, stop, tidied, entries });
        Ok(Watcher { shared, cores, thread: Mutex::new("watcher thread", Scope::Orb, None) })
    }

    /// Watches `stream`; a stream without a descriptor is not watched and never known to have hung up.
    pub(crate) fn watch(&self, stream: &dyn Stream, pool: Weak<Pool>) -> io::Result<Watched> {
        let hung_up = Arc::new(AtomicBool::new(false));
        let Some(fd) = stream.readiness() else { return Ok(Watched { hung_up, entry: None }) };
        self.start()?;
        let entry = Entry { hung_up: Arc::clone(&hung_up), pool };
        let (slot, generation) =
            self.shared.entries.insert(entry).map_err(|full| io::Error::other(full.to_string()))?;
        let token = (u64::from(slot) << 32) | u64::from(generation);
        let watched = Watched { hung_up, entry: Some((Arc::clone(&self.shared), slot, generation)) };
        self.shared.epoll.add(fd, token, Interest::HANG_UP | Interest::EDGE)?;
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
        while !self.stop.load(Ordering::Acquire) {
            let period = self.tidied.get().map(|(_, period)| *period);
            let held_for = held.map(Monotonic::remaining);
            let patience = period.into_iter().chain(held_for).min();
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
            for event in &events[..count] {
                let (slot, generation) = ((event.token() >> 32) as u32, event.token() as u32);
                let Some(entry) = self.entries.get(slot, generation) else { continue };
                entry.hung_up.store(true, Ordering::Release);
                let pool = entry.pool.upgrade();
                drop(entry);
                if let (Some(pool), Some(core)) = (pool, &core) {
                    pool.sweep(core);
                }
            }
        }
    }

    /// The thread ends early: hang-ups are found out by calls from now on, and nothing is tidied.
    #[cold]
    fn failed(&self, error: &io::Error) {
        if let Some(core) = self.tidied.get().and_then(|(core, _)| core.upgrade()) {
            core.events().report(&crate::event::Event::ThreadFailed { message: format!("orb/watch: {error}") });
        }
    }
}

impl Watched {
    #[inline]
    pub(crate) fn hung_up(&self) -> bool {
        self.hung_up.load(Ordering::Acquire)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some((shared, slot, generation)) = self.entry.take() {
            // The kernel forgets the descriptor when the stream is dropped.
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
