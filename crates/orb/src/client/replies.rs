//! Who reads the connections that several calls share: one thread for each priority band, made with the band's first such
//! connection, at the priority of the highest callers of the band. It runs on the cores of the thread that made the ORB.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::slots::SlotTable;
use corelane_sys::thread::{self, JoinHandle, Scheduling};
use corelane_wire::Limits;

use super::bands::Band;
use super::multiplexed::{Lost, Multiplexed, Read};
use crate::event::Event as Told;
use crate::orb::Core;

const STOP: u64 = u64::MAX;
const INTEREST: Interest = Interest::READABLE.and(Interest::HANG_UP).and(Interest::EDGE);
/// Shared connections that one thread reads at most.
const MOST: u32 = 1 << 16;

/// The threads of all bands.
pub(crate) struct Replies {
    limits: Limits,
    bands: Mutex<Threads>,
}

/// Those that run.
#[derive(Default)]
struct Threads {
    running: Vec<Running>,
    /// No further ones are made.
    stopped: bool,
}

/// A connection's place with its reader; given up when this is dropped.
pub(super) struct Place {
    reader: Arc<Reader>,
    slot: u32,
    generation: u32,
}

/// The thread of a band.
struct Running {
    band: Band,
    reader: Arc<Reader>,
    thread: JoinHandle<()>,
}

struct Reader {
    epoll: Epoll,
    wake: Wake,
    stop: AtomicBool,
    connections: SlotTable<Weak<Multiplexed>>,
    limits: Limits,
}

impl Replies {
    pub(crate) fn new(limits: Limits) -> Self {
        Replies { limits, bands: Mutex::new("readers of replies", Scope::Orb, Threads::default()) }
    }

    /// Reads `connection` from now on, until it ends.
    pub(crate) fn read(&self, core: &Core, band: Band, connection: &Arc<Multiplexed>) -> io::Result<()> {
        let Some(fd) = connection.stream().readiness() else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the transport has no descriptor to wait for"));
        };
        let (reader, refused) = self.reader(core, band)?;
        if let Some(refused) = refused {
            core.events().report(&refused);
        }
        let (slot, generation) =
            reader.connections.insert(Arc::downgrade(connection)).map_err(|full| io::Error::other(full.to_string()))?;
        let place = Place { reader: Arc::clone(&reader), slot, generation };
        reader.epoll.add(fd, place.token(), INTEREST)?;
        connection.keep(place);
        if reader.stop.load(Ordering::SeqCst) {
            // It may have looked for the last time.
            connection.end(&Lost::Io(io::ErrorKind::ConnectionAborted));
        }
        Ok(())
    }

    /// The reader of a band, and what is to be told of its thread when no lock is held.
    fn reader(&self, core: &Core, band: Band) -> io::Result<(Arc<Reader>, Option<Told>)> {
        let mut bands = self.bands.lock();
        if bands.stopped {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the ORB has been shut down"));
        }
        let alive = |running: &&Running| running.band == band && !running.reader.stop.load(Ordering::Acquire);
        if let Some(running) = bands.running.iter().find(alive) {
            return Ok((Arc::clone(&running.reader), None));
        }
        let (epoll, wake) = (Epoll::new()?, Wake::new()?);
        epoll.add(std::os::fd::AsFd::as_fd(&wake), STOP, Interest::READABLE)?;
        let connections = SlotTable::new("shared connections", Scope::Lane, MOST);
        let reader =
            Arc::new(Reader { epoll, wake, stop: AtomicBool::new(false), connections, limits: self.limits.clone() });
        let (thread, refused) = self.start(core, band, &reader)?;
        bands.running.push(Running { band, reader: Arc::clone(&reader), thread });
        Ok((reader, refused))
    }

    /// Starts the thread of a band: as its highest callers where the system permits it, else as the caller at hand.
    fn start(&self, core: &Core, band: Band, reader: &Arc<Reader>) -> io::Result<(JoinHandle<()>, Option<Told>)> {
        let name = format!("orb/r{}", band.number());
        let builder = thread::Builder::new().name(name.clone()).stack_size(256 * 1024).preferred_affinity(core.cores());
        // A range whose end cannot be mapped has no calls at that end.
        let scheduling = band.native(&core.config().rt).ok().flatten().unwrap_or(Scheduling::Other);
        let run = || {
            let own = Arc::clone(reader);
            move || own.run()
        };
        builder.clone().scheduling(scheduling).spawn(run()).map(|thread| (thread, None)).or_else(|error| {
            let refused = Told::PriorityRefused { thread: name, error: error.to_string() };
            Ok((builder.spawn(run())?, Some(refused)))
        })
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        let mut bands = self.bands.lock();
        bands.stopped = true;
        let running = std::mem::take(&mut bands.running);
        drop(bands);
        for Running { reader, thread, .. } in running {
            reader.stop.store(true, Ordering::SeqCst);
            reader.wake.notify();
            // The thread does nothing that can panic; if it did, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl Place {
    fn token(&self) -> u64 {
        (u64::from(self.slot) << 32) | u64::from(self.generation)
    }

    /// Wants to be told of room to send, or not any more.
    pub(super) fn watch_room(&self, fd: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
        let interest = if wanted { INTEREST | Interest::WRITABLE } else { INTEREST };
        self.reader.epoll.modify(fd, self.token(), interest)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The kernel forgets the descriptor when the stream is dropped.
        let _ = self.reader.connections.retire(self.slot, self.generation);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Reader {
    fn run(&self) {
        let mut events = [Event::EMPTY; 32];
        // Those with more to read than they may in one go. They take turns with what is reported.
        let mut listed: Vec<u64> = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let timeout = (!listed.is_empty()).then_some(Duration::ZERO);
            // Without being told of anything nothing can be read: what waits for it ends.
            let Ok(count) = self.epoll.wait(&mut events, timeout) else {
                // The next connection gets another thread.
                self.stop.store(true, Ordering::Release);
                break;
            };
            for token in std::mem::take(&mut listed) {
                self.read(token, &mut listed);
            }
            for event in &events[..count] {
                if event.writable()
                    && let Some(connection) = self.connection(event.token())
                {
                    connection.go_on_sending();
                }
                if !listed.contains(&event.token()) {
                    self.read(event.token(), &mut listed);
                }
            }
        }
        for connection in self.connections.iter().filter_map(|connection| connection.upgrade()) {
            connection.end(&Lost::Io(io::ErrorKind::ConnectionAborted));
        }
    }

    /// The connection with this token, if there still is one.
    fn connection(&self, token: u64) -> Option<Arc<Multiplexed>> {
        self.connections.get((token >> 32) as u32, token as u32).and_then(|connection| connection.upgrade())
    }

    fn read(&self, token: u64, listed: &mut Vec<u64>) {
        match self.connection(token).map(|connection| connection.read(&self.limits)) {
            Some(Read::More) => listed.push(token),
            Some(Read::Dry) => {}
            // The kernel forgets the descriptor when the stream is dropped.
            Some(Read::Over) | None => drop(self.connections.retire((token >> 32) as u32, token as u32)),
        }
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").finish_non_exhaustive()
    }
}
