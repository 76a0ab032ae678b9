//! The reader threads, which read replies on multiplexed connections. Each connection band has one
//! thread, which starts with the band's first multiplexed connection.

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

use super::multiplexed::{CloseCause, MultiplexedConnection, ReadOutcome};
use crate::event::Event;
use crate::orb_context::OrbContext;
use crate::rt::band::ConnectionBand;

const STOP_TOKEN: u64 = u64::MAX;
const INTEREST: Interest = Interest::READABLE.union(Interest::HANG_UP).union(Interest::EDGE);
const MAX_CONNECTIONS: u32 = 1 << 16;

pub(crate) struct ReplyReaders {
    limits: Limits,
    threads: Mutex<ReaderThreads>,
}

#[derive(Default)]
struct ReaderThreads {
    running: Vec<RunningReader>,
    stopped: bool,
}

pub(super) struct Registration {
    reader: Arc<ReplyReader>,
    slot: u32,
    generation: u32,
}

struct RunningReader {
    band: ConnectionBand,
    reader: Arc<ReplyReader>,
    thread: JoinHandle<()>,
}

struct ReplyReader {
    epoll: Epoll,
    wake: EventFd,
    stop: AtomicBool,
    connections: GenerationalSlab<Weak<MultiplexedConnection>>,
    limits: Limits,
}

impl ReplyReaders {
    pub(crate) fn new(limits: Limits) -> Self {
        ReplyReaders { limits, threads: Mutex::new("reply readers", LockScope::Orb, ReaderThreads::default()) }
    }

    pub(crate) fn attach(
        &self,
        orb: &OrbContext,
        band: ConnectionBand,
        connection: &Arc<MultiplexedConnection>,
    ) -> io::Result<()> {
        let Some(fd) = connection.stream().readiness_descriptor() else {
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
            // The reader thread may have left its loop before the connection was added, so the
            // connection is closed.
            connection.close(&CloseCause::Io(io::ErrorKind::ConnectionAborted));
        }
        Ok(())
    }

    /// Returns the reader of a band, and starts its thread if there is none. The caller must report
    /// the returned event, because this function holds the lock.
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
        let connections = GenerationalSlab::new("multiplexed connections", LockScope::Lane, MAX_CONNECTIONS);
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

    /// Starts a reader thread at the band's priority. If the kernel refuses the priority, starts
    /// the thread at the calling thread's priority and returns an event.
    fn start(
        &self,
        orb: &OrbContext,
        band: ConnectionBand,
        reader: &Arc<ReplyReader>,
    ) -> io::Result<(JoinHandle<()>, Option<Event>)> {
        let name = format!("orb/r{}", band.id());
        let builder =
            thread::ThreadBuilder::new().name(name.clone()).stack_size(256 * 1024).preferred_affinity(orb.cores());
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
            let _ = thread.join();
        }
    }
}

impl Registration {
    fn token(&self) -> u64 {
        (u64::from(self.slot) << 32) | u64::from(self.generation)
    }

    pub(super) fn set_writable_interest(&self, fd: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
        let interest = if wanted { INTEREST | Interest::WRITABLE } else { INTEREST };
        self.reader.epoll.modify(fd, self.token(), interest)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
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
        // Tokens of the connections that may have more input, which epoll may not report again.
        let mut unfinished: Vec<u64> = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let timeout = (!unfinished.is_empty()).then_some(Duration::ZERO);
            let Ok(count) = self.epoll.wait(&mut events, timeout) else {
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

    fn connection(&self, token: u64) -> Option<Arc<MultiplexedConnection>> {
        self.connections.get((token >> 32) as u32, token as u32).and_then(|connection| connection.upgrade())
    }

    fn read_connection(&self, token: u64, unfinished: &mut Vec<u64>) {
        match self.connection(token).map(|connection| connection.read_replies(&self.limits)) {
            Some(ReadOutcome::More) => unfinished.push(token),
            Some(ReadOutcome::Drained) => {}
            // The kernel removes the descriptor from the epoll instance when the stream is dropped.
            Some(ReadOutcome::Closed) | None => drop(self.connections.retire((token >> 32) as u32, token as u32)),
        }
    }
}

impl fmt::Debug for ReplyReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyReaders").finish_non_exhaustive()
    }
}
