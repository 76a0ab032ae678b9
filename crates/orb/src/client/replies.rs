//! Who reads the connections that several calls share: one thread for each priority band, made with the band's first such
//! connection by a caller of that band, whose scheduling it inherits.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::eventfd::Wake;
use corelane_sys::lock::{Mutex, Scope};
use corelane_sys::slots::SlotTable;
use corelane_sys::thread::{self, JoinHandle};
use corelane_wire::Limits;

use super::bands::Band;
use super::multiplexed::{Lost, Multiplexed};

const STOP: u64 = u64::MAX;
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
    pub(crate) fn read(&self, band: Band, connection: &Arc<Multiplexed>) -> io::Result<()> {
        let Some(fd) = connection.stream().readiness() else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the transport has no descriptor to wait for"));
        };
        let reader = self.reader(band)?;
        let (slot, generation) =
            reader.connections.insert(Arc::downgrade(connection)).map_err(|full| io::Error::other(full.to_string()))?;
        let token = (u64::from(slot) << 32) | u64::from(generation);
        let place = Place { reader: Arc::clone(&reader), slot, generation };
        reader.epoll.add(fd, token, Interest::READABLE | Interest::HANG_UP | Interest::EDGE)?;
        connection.keep(place);
        Ok(())
    }

    fn reader(&self, band: Band) -> io::Result<Arc<Reader>> {
        let mut bands = self.bands.lock();
        if bands.stopped {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the ORB has been shut down"));
        }
        if let Some(running) = bands.running.iter().find(|running| running.band == band) {
            return Ok(Arc::clone(&running.reader));
        }
        let (epoll, wake) = (Epoll::new()?, Wake::new()?);
        epoll.add(std::os::fd::AsFd::as_fd(&wake), STOP, Interest::READABLE)?;
        let connections = SlotTable::new("shared connections", Scope::Lane, MOST);
        let reader =
            Arc::new(Reader { epoll, wake, stop: AtomicBool::new(false), connections, limits: self.limits.clone() });
        let own = Arc::clone(&reader);
        let builder = thread::Builder::new().name(format!("orb/r{}", band.number())).stack_size(256 * 1024);
        let thread = builder.spawn(move || own.run())?;
        bands.running.push(Running { band, reader: Arc::clone(&reader), thread });
        Ok(reader)
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        let mut bands = self.bands.lock();
        bands.stopped = true;
        let running = std::mem::take(&mut bands.running);
        drop(bands);
        for Running { reader, thread, .. } in running {
            reader.stop.store(true, Ordering::Release);
            reader.wake.notify();
            // The thread does nothing that can panic; if it did, there is nothing left to stop.
            let _ = thread.join();
        }
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
        while !self.stop.load(Ordering::Acquire) {
            let Ok(count) = self.epoll.wait(&mut events, None) else { return };
            for event in &events[..count] {
                let (slot, generation) = ((event.token() >> 32) as u32, event.token() as u32);
                let Some(connection) = self.connections.get(slot, generation) else { continue };
                let alive = Weak::upgrade(&connection).is_some_and(|connection| connection.read(&self.limits));
                drop(connection);
                if !alive {
                    // The kernel forgets the descriptor when the stream is dropped.
                    let _ = self.connections.retire(slot, generation);
                }
            }
        }
        for connection in self.connections.iter().filter_map(|connection| connection.upgrade()) {
            connection.end(&Lost::Io(io::ErrorKind::ConnectionAborted));
        }
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").finish_non_exhaustive()
    }
}
