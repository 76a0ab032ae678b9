//! The threads that read multiplexed connections. Each priority band has one thread, which starts
//! with the band's first multiplexed connection. The thread runs at the band's highest priority, on
//! the cores of the thread that made the ORB.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::eventfd::EventFd;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::slab::GenerationalSlab;
use corelane_sys::thread::{self, JoinHandle, Scheduling};
use corelane_wire::Limits;

use super::multiplexed::{CloseCause, Multiplexed, ReadOutcome};
use crate::event::Event;
use crate::orb_context::OrbContext;
use crate::rt::band::ConnectionBand;

const STOP_TOKEN: u64 = u64::MAX;
const INTEREST: Interest = Interest::READABLE.union(Interest::HANG_UP).union(Interest::EDGE);
/// Maximum number of multiplexed connections that one thread reads.
const MAX_CONNECTIONS: u32 = 1 << 16;

/// The reader threads of all bands.
pub(crate) struct ReplyReaders {
    limits: Limits,
    threads: Mutex<ReaderThreads>,
}

#[derive(Default)]
struct ReaderThreads {
    running: Vec<RunningReader>,
    /// True after [`stop`](ReplyReaders::stop): no further threads are made.
    stopped: bool,
}

/// A connection's registration with its reader, removed on drop.
pub(super) struct Registration {
    reader: Arc<ReplyReader>,
    slot: u32,
    generation: u32,
}

/// The reader thread of a band.
struct RunningReader {
    band: ConnectionBand,
    reader: Arc<ReplyReader>,
    thread: JoinHandle<()>,
}

struct ReplyReader {
    epoll: Epoll,
    wake: EventFd,
    stop: AtomicBool,
    connections: GenerationalSlab<Weak<Multiplexed>>,
    limits: Limits,
}

impl ReplyReaders {
    pub(crate) fn new(limits: Limits) -> Self {
        ReplyReaders { limits, threads: Mutex::new("readers of replies", LockScope::Orb, ReaderThreads::default()) }
    }

    /// Makes the reader of `band` read `connection` until it ends.
    pub(crate) fn attach(
        &self,
        orb: &OrbContext,
        band: ConnectionBand,
        connection: &Arc<Multiplexed>,
    ) -> io::Result<()> {
        let Some(fd) = connection.stream().readiness() else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the transport has no descriptor to wait for"));
        };
        let (reader, refused) = self.reader(orb, band)?;
        if let Some(refused) = refused {
            orb.events().report(&refused);
        }
        let (slot, generation) =
            reader.connections.insert(Arc::downgrade(connection)).map_err(|full| io::Error::other(full.to_string()))?;
        let registration = Registration { reader: Arc::clone(&reader), slot, generation };
        reader.epoll.add(fd, registration.token(), INTEREST)?;
        connection.set_registration(registration);
        if reader.stop.load(Ordering::SeqCst) {
            // The reader thread has already left its loop and would not read this connection.
            connection.close(&CloseCause::Io(io::ErrorKind::ConnectionAborted));
        }
        Ok(())
    }

    /// Returns the reader of a band, and an event to report after the lock is released.
    fn reader(&self, orb: &OrbContext, band: ConnectionBand) -> io::Result<(Arc<ReplyReader>, Option<Event>)> {
        let mut threads = self.threads.lock();
        if threads.stopped {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the ORB has been shut down"));
        }
        let alive = |running: &&RunningReader| running.band == band && !running.reader.stop.load(Ordering::Acquire);
        if let Some(running) = threads.running.iter().find(alive) {
            return Ok((Arc::clone(&running.reader), None));
        }
        let (epoll, wake) = (Epoll::new()?, EventFd::new()?);
        epoll.add(std::os::fd::AsFd::as_fd(&wake), STOP_TOKEN, Interest::READABLE)?;
        let connections = GenerationalSlab::new("shared connections", LockScope::Lane, MAX_CONNECTIONS);
        let reader = Arc::new(ReplyReader {
            epoll,
            wake,
            stop: AtomicBool::new(false),
            connections,
            limits: self.limits.clone(),
        });
        let (thread, refused) = self.start(orb, band, &reader)?;
        threads.running.push(RunningReader { band, reader: Arc::clone(&reader), thread });
        Ok((reader, refused))
    }

    /// Starts the reader thread of a band at the band's highest priority, or at the caller's
    /// priority if the kernel refuses.
    fn start(
        &self,
        orb: &OrbContext,
        band: ConnectionBand,
        reader: &Arc<ReplyReader>,
    ) -> io::Result<(JoinHandle<()>, Option<Event>)> {
        let name = format!("orb/r{}", band.id());
        let builder =
            thread::ThreadBuilder::new().name(name.clone()).stack_size(256 * 1024).preferred_affinity(orb.cores());
        // If the band's highest priority has no native priority, no call of the band has this
        // priority. The thread then runs in the ordinary class.
        let scheduling = band.scheduling(&orb.config().rt).ok().flatten().unwrap_or(Scheduling::Other);
        let run = || {
            let own = Arc::clone(reader);
            move || own.run()
        };
        builder.clone().scheduling(scheduling).spawn(run()).map(|thread| (thread, None)).or_else(|error| {
            let refused = Event::ThreadSchedulingRefused { thread: name, error: error.to_string() };
            Ok((builder.spawn(run())?, Some(refused)))
        })
    }

    pub(crate) fn stop(&self) {
        let mut threads = self.threads.lock();
        threads.stopped = true;
        let running = std::mem::take(&mut threads.running);
        drop(threads);
        for RunningReader { reader, thread, .. } in running {
            reader.stop.store(true, Ordering::SeqCst);
            reader.wake.notify();
            // `join` reports a panic of the thread. The ORB ends, so the report is of no use.
            let _ = thread.join();
        }
    }
}

impl Registration {
    fn token(&self) -> u64 {
        (u64::from(self.slot) << 32) | u64::from(self.generation)
    }

    /// Sets whether the reader reports that the connection has room to send.
    pub(super) fn set_writable_interest(&self, fd: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
        let interest = if wanted { INTEREST | Interest::WRITABLE } else { INTEREST };
        self.reader.epoll.modify(fd, self.token(), interest)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // The kernel removes the descriptor when the stream is dropped.
        let _ = self.reader.connections.retire(self.slot, self.generation);
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl ReplyReader {
    fn run(&self) {
        let mut events = [EpollEvent::EMPTY; 32];
        // Connections that may have more input after their turn. They take turns with the
        // connections that the kernel reports.
        let mut unfinished: Vec<u64> = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let timeout = (!unfinished.is_empty()).then_some(Duration::ZERO);
            // Without epoll no reply can be read, so all waiting calls must end.
            let Ok(count) = self.epoll.wait(&mut events, timeout) else {
                // The band's next connection starts a new thread.
                self.stop.store(true, Ordering::Release);
                break;
            };
            for token in std::mem::take(&mut unfinished) {
                self.read_connection(token, &mut unfinished);
            }
            for event in &events[..count] {
                if event.is_writable()
                    && let Some(connection) = self.connection(event.token())
                {
                    connection.resume_sending();
                }
                if !unfinished.contains(&event.token()) {
                    self.read_connection(event.token(), &mut unfinished);
                }
            }
        }
        for connection in self.connections.iter().filter_map(|connection| connection.upgrade()) {
            connection.close(&CloseCause::Io(io::ErrorKind::ConnectionAborted));
        }
    }

    /// Returns the connection with this token; `None` if the connection no longer exists.
    fn connection(&self, token: u64) -> Option<Arc<Multiplexed>> {
        self.connections.get((token >> 32) as u32, token as u32).and_then(|connection| connection.upgrade())
    }

    fn read_connection(&self, token: u64, unfinished: &mut Vec<u64>) {
        match self.connection(token).map(|connection| connection.read_replies(&self.limits)) {
            Some(ReadOutcome::More) => unfinished.push(token),
            Some(ReadOutcome::Drained) => {}
            // The kernel removes the descriptor when the stream is dropped.
            Some(ReadOutcome::Closed) | None => drop(self.connections.retire((token >> 32) as u32, token as u32)),
        }
    }
}

impl fmt::Debug for ReplyReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyReaders").finish_non_exhaustive()
    }
}
